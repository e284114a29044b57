"""Every model preset against counts that this project did not make (tests/golden/models.yaml)."""

from __future__ import annotations

from typing import Any

import pytest

from rooflm.calc.attention import attention_bytes
from rooflm.calc.entries import build_model
from rooflm.calc.matmul import matmul_bytes
from rooflm.calc.mixers import WHERE, mixer_class
from rooflm.calc.mlp import mlp_bytes, mlp_parameters
from rooflm.calc.model import (
    NORM_WEIGHTS,
    Group,
    Model,
    active_parameters,
    cache_elements,
    embedding_parameters,
    ledger,
    parameters,
    state_elements,
    streamed_parameters,
    total_parameters,
)
from rooflm.calc.passes import Segment, decode
from rooflm.calc.presets import MODELS_FILE, find_model, load_all, preset_names
from rooflm.calc.rwkv import rwkv7_parameters
from rooflm.calc.side_by_side import SideBySide
from rooflm.calc.ssm import mamba2_parameters, mamba_parameters
from rooflm.calc.timing import flops

from .golden import table

GOLDEN: dict[str, dict[str, Any]] = table("models")
PARTS = {
    "embedding": "embedding",
    "head": "head",
    "position": "positions",
    "norms": "norms",
    "qk_norms": "qk_norm",
    "attention": "attention",
    "linear_mixer": "linear_mixer",
    "mlp": "mlp",
    "other": "projections",
    "experts": "experts",
    "shared_experts": "shared_experts",
    "router": "router",
    "hyper_connections": "hyper_connections",
    "residual": "residual",
    "layer_embeddings": "layer_embeddings",
}
FAR = 10**9
"""A context beyond all windows, and a whole number of compressed entries [tokens]."""
ROUND = 128
"""Tokens after which every layer has added whole entries [tokens]."""


def test_every_preset_has_an_independent_count() -> None:
    """No preset is without an expected total, and no expected total without a preset."""
    assert preset_names(MODELS_FILE) == list(GOLDEN)


def test_presets_cover_the_families_of_the_notes() -> None:
    """Llama 1 to 3, Mistral v0.3, Qwen 2 and 3, Gemma 1, Phi-2, GPT-2, OPT and OLMo 2 are there."""
    families = ("llama-1-", "llama-2-", "llama-3-", "mistral-7b-v0.3", "qwen2-", "qwen3-",
                "gemma-1-", "phi-2", "gpt2", "opt-", "olmo-2-")  # fmt: skip
    for family in families:
        assert any(name.startswith(family) for name in GOLDEN), family


def test_every_mixer_has_a_preset() -> None:
    """Each mixer that an entry can name is held against a count, alone or beside attention."""
    presets: list[Model] = load_all(MODELS_FILE, build_model)
    mixers = [g.mixer for model in presets for g in model.groups]
    mixers += [m.second for m in mixers if isinstance(m, SideBySide)]
    used = {type(m) for m in mixers}

    assert [key for key in WHERE if mixer_class(key) not in used] == []


@pytest.mark.parametrize("name", GOLDEN)
def test_parameters_equal_the_instantiated_model_to_the_last_weight(name: str) -> None:
    """Total, every part, active and streamed parameters equal the count to the unit."""
    expected = GOLDEN[name]
    model = find_model(name)
    parts = parameters(model)

    assert total_parameters(model) == expected["total"]
    for theirs, ours in PARTS.items():
        if theirs in expected:
            assert parts.get(ours, 0) == expected[theirs], theirs
    if "streamed" in expected:
        assert active_parameters(model) == expected["active"]
        assert streamed_parameters(model) == expected["streamed"]
        assert "experts" in parts or expected["active"] == expected["total"]


@pytest.mark.parametrize(
    "name", [n for n, e in GOLDEN.items() if {"cache_per_token", "cache_1m"} & e.keys()]
)
def test_cache_equals_what_the_reference_keeps(name: str) -> None:
    """Cache elements of a token, short of all windows and beyond them, equal the reference's."""
    model, expected = find_model(name), GOLDEN[name]
    token = expected.get("cache_per_token")
    windows = [w for g in model.groups if (w := g.mixer.window_tokens) is not None]
    short = min(windows, default=1000)

    if token is not None:
        assert cache_elements(model, 1) == token
        assert cache_elements(model, short) == short * token
    growth = cache_elements(model, FAR + ROUND) - cache_elements(model, FAR)
    assert growth / ROUND == expected.get("cache_growing", token)
    assert model.reference_kv_elements == expected.get("cache_reference")
    if "cache_1m" in expected:
        assert cache_elements(model, 2**20) == expected["cache_1m"]


@pytest.mark.parametrize("name", GOLDEN)
def test_state_equals_what_the_reference_keeps(name: str) -> None:
    """Elements of a sequence that do not grow equal the reference's, or there are none."""
    assert state_elements(find_model(name), reference=True) == GOLDEN[name].get("state", 0)


@pytest.mark.parametrize("name", GOLDEN)
def test_parts_beside_the_decoder_are_told_and_not_counted(name: str) -> None:
    """Layers for further tokens and towers equal the checkpoint's, or there are none."""
    assert dict(find_model(name).extras) == GOLDEN[name].get("extras", {})


@pytest.mark.parametrize("name", [n for n, e in GOLDEN.items() if "flops_prefill_64" in e])
def test_flops_equal_the_counter_of_torch(name: str) -> None:
    """FLOPs equal FlopCounterMode once its two habits are undone.

    In a prefill the counter computes the full square of scores and the head at every position.
    """
    model, expected = find_model(name), GOLDEN[name]
    step = ledger(model, decode(1, 65))
    whole = ledger(model, [Segment(1, 64, 0, head_rows=64)])
    causal = sum(op.count * op.flops for op in whole if op.part == "attention")

    assert flops(step) == expected["flops_decode_1_after_64"]
    assert flops(whole) - causal + causal * 64 * 64 / (64 * 65 / 2) == pytest.approx(
        expected["flops_prefill_64"], rel=1e-12
    )


def test_every_weight_is_streamed_or_gathered_once() -> None:
    """The weight bytes of a decode step are the streamed parameters and one row of each table.

    Weights that layers share are read at each use of them.
    """
    presets: list[Model] = load_all(MODELS_FILE, build_model)
    for model in presets:
        read = sum(op.count * op.weight_bytes for op in ledger(model, decode(1, 10)))
        rows = model.D if model.embedding_width is None else model.embedding_width
        rows += model.D if model.positions else 0
        if model.residual is not None:
            rows += model.layers * model.residual.width
        again = sum((g.count - g.stored) * layer_weights(model, g) for g in model.groups)
        expected = 2 * (streamed_parameters(model) + rows + again)
        assert read == pytest.approx(expected, rel=1e-12), model.name


def layer_weights(model: Model, group: Group) -> Any:
    """Weights of one layer of a group that other layers may share [parameters]."""
    norms = NORM_WEIGHTS[model.norm] * model.D * group.norms
    parts = [*group.mixer.parameters(model.D).values(), *group.ffn.parameters(model.D).values()]
    return norms + sum(parts)


@pytest.mark.parametrize(
    ("typed", "found"),
    [
        ("llama-2-13b", "llama-2-13b"),
        ("meta-llama/Llama-2-13b-hf", "llama-2-13b"),
        ("Llama-2-13b-hf", "llama-2-13b"),
        ("LLAMA 2 13B", "llama-2-13b"),
        ("google/gemma-7b", "gemma-1-7b"),
    ],
)
def test_names_of_the_hub_and_other_spellings_find_the_preset(typed: str, found: str) -> None:
    """A preset answers to its name, its Hugging Face name, and either in another spelling."""
    assert find_model(typed).name == found


def test_the_ledger_moves_what_the_textbook_formulas_say() -> None:
    """Operator bytes of projections, attention and MLP equal the closed forms of the lecture."""
    model = find_model("llama-3-8b")
    B, S, T = 3, 1000, 40
    ops = {op.name: op for op in ledger(model, [Segment(B, T, S - T)])}
    D, F, N, K, H = 4096, 14336, 32, 8, 128

    assert ops["qkv"].operator_bytes == matmul_bytes(B * T, D, (N + 2 * K) * H)
    assert ops["out"].operator_bytes == matmul_bytes(B * T, N * H, D)
    assert ops["attention"].operator_bytes == attention_bytes(B, S, T, N, K, H)
    assert ops["mlp up"].operator_bytes + ops["mlp down"].operator_bytes == mlp_bytes(B * T, D, F)
    assert ops["head"].weight_bytes == 2 * 128256 * D


@pytest.mark.parametrize(
    ("name", "part", "expected"),
    [
        ("llama-2-13b", "embedding", embedding_parameters(32000, 5120)),
        ("llama-2-13b", "mlp", 40 * mlp_parameters(5120, 13824)),
        ("mamba-2.8b", "linear_mixer", 64 * mamba_parameters(2560, 5120, 16, 160)),
        # The gated norm of 5,120 weights stands among the norms.
        ("mamba-2-2.7b", "linear_mixer", 64 * (mamba2_parameters(2560, 80, 64, 128, 1) - 5120)),
    ],
)
def test_closed_forms_count_the_weights_of_a_part(name: str, part: str, expected: int) -> None:
    """Letters of the configs in one formula make what the tensors of the part add up to."""
    assert parameters(find_model(name))[part] == expected


def test_the_formula_of_the_rwkv_7_paper_counts_the_whole_model() -> None:
    """Appendix of arXiv 2503.14456: the letters of the 2.9B model, its first layer included."""
    paper = rwkv7_parameters(L=32, D=2560, V=65536, w=96, a=96, v=64, g=320)

    assert total_parameters(find_model("rwkv-7-2.9b")) == paper
