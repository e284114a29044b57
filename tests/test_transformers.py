"""Parameters, caches and FLOPs against the classes of transformers.

Every expected value is read off a live class: published sizes on the meta device, which holds
shapes and no data; tiny ones run on the CPU.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from typing import Any

import pytest

from rooflm.calc.architectures import FAMILIES
from rooflm.calc.attention import Attention
from rooflm.calc.configkeys import Absent, Keys
from rooflm.calc.experts import Experts
from rooflm.calc.memory import weights_bytes
from rooflm.calc.mla import MLA, materialised_flops
from rooflm.calc.model import Model, cache_elements, ledger, state_elements, total_parameters
from rooflm.calc.passes import BF16, Segment
from rooflm.calc.plain import is_list
from rooflm.calc.precision import precision_of

from .live import STEPS, B, Step, config_of, instantiate, read, run, transformers
from .live import one_thread as one_thread
from .tiny_models import PUBLISHED, SPARSE, tiny
from .tiny_states import STATES

COMPARED = PUBLISHED | STATES
"""Every model; test_transformers_states.py runs those that keep a state."""
# Gemma 4's class writes the heads of its full layers as per_layer_config, which is not read.
SAVED = [name for name in COMPARED if not name.startswith("gemma-4")]
WHOLE = [name for name in PUBLISHED if name not in SPARSE]
"""Models whose caches hold keys and values of layers of their own and nothing else."""


@cache
def stored(name: str) -> tuple[Any, int]:
    """Count the parameters of a published model in its class, a shared one once."""
    config = config_of(COMPARED[name])
    number = sum(p.numel() for p in instantiate(config, "meta").parameters())
    if config.model_type == "longcat_flash":
        # The class gives its empty experts two of three matrices; the checkpoint does not.
        empty = 2 * config.hidden_size * config.expert_ffn_hidden_size * config.zero_expert_num
        number -= config.num_hidden_layers // 2 * empty
    return config, number


@cache
def observed(name: str) -> tuple[Model, list[Step]]:
    """Run a tiny model of the shape of a published one."""
    keys = tiny(PUBLISHED[name])
    return read(keys, name), run(instantiate(config_of(keys), "cpu"), "cpu", STEPS)


def seen(mixer: Attention, n: int, T: int) -> Any:
    """Tokens whose keys the class reads: it keeps a chunk as a window, and masks what is before."""
    if mixer.chunk is not None:
        return min(n, int(mixer.chunk) - 1) + T
    return mixer.seen_tokens(n, T)


def counted_flops(model: Model, n: int, T: int) -> Any:
    """FLOPs of a class by the counter: the ledger's, which are the needed ones, and its waste.

    Every class: logits of all positions; scores of the whole rectangle of queries and keys, those
    that the mask takes out again included; latents always expanded, never absorbed.
    """
    segments = [Segment(B, T, n, head_rows=T)]
    kind = {field: value for field, value, _ in model.provenance}["architecture"]
    flops: Any = sum(op.count * op.flops for op in ledger(model, segments))
    for group in model.groups:
        mixer, ffn = group.mixer, group.ffn
        more: Any = 0
        if isinstance(mixer, Attention):
            # Differential attention runs once for each half of the values.
            times = 2 if kind == "diffllama" else 1
            pairs = times * T * seen(mixer, n, T) - mixer.pairs(n, T)
            more += B * 2 * mixer.N * (mixer.H + mixer.value_width) * pairs
        elif isinstance(mixer, MLA):
            widths = (mixer.N, mixer.c, mixer.r, mixer.d, mixer.v)
            more += B * materialised_flops(T * (n + T), n + T, *widths)
            more -= mixer.core_flops(segments)
        if isinstance(ffn, Experts) and kind == "llama4_text":
            # All experts compute all tokens; the router's weights are 0 but for the chosen.
            more += (ffn.E - ffn.k) * ffn.expert().matrices * 2 * B * T * model.D * ffn.F
        flops += group.count * more
    return flops


def needed_reads(model: Model, n: int, T: int) -> Any:
    """Cache elements that attention reads: the ledger's, and what a chunked class masks."""
    reads: Any = sum(op.count * op.read_bytes for op in ledger(model, [Segment(B, T, n)]))
    elements = reads / BF16.cache.bytes
    for group in model.groups:
        if isinstance(group.mixer, Attention):
            excess = seen(group.mixer, n, T) - group.mixer.seen_tokens(n, T)
            elements += group.count * B * group.mixer.token_elements * excess
    return elements


@pytest.mark.parametrize("name", COMPARED)
def test_parameters_are_those_of_the_class(name: str) -> None:
    """The keys of a checkpoint alone, without the class's defaults, give its parameters."""
    _, number = stored(name)

    assert number == total_parameters(read(COMPARED[name]))


ROUTERS = ("gate", "wg", "router", "classifier", "shared_expert_gate")
"""Linear layers by the end of their names that keep 16 bits, as the head does."""
OTHERS = {
    "gpt2": "its class has no linear layers",
    "opt-6.7b": "what surrounds the layers is linear", "opt-350m": "likewise",
    "gemma-3n-E2B": "embeddings of layers have linear layers", "gemma-4-E2B": "likewise",
    "gemma-4-31B": "likewise", "gemma-4-26B-A4B": "likewise",
    "gpt-oss-20b": "its class keeps experts transposed", "Llama-4-Maverick": "likewise",
}  # fmt: skip


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name not in OTHERS])
def test_scales_belong_to_the_outputs_of_the_class(name: str) -> None:
    """In int8 each linear layer and expert has 32 bits for each output, and all else 16 bits."""
    keys = tiny(PUBLISHED[name])
    net = instantiate(config_of(keys), "meta")
    linear = {
        f"{module}.weight"
        for module, layer in net.named_modules()
        if any(kind.__name__ == "Linear" for kind in type(layer).__mro__)
        and "lm_head" not in module
        and not {*module.split(".")[-2:]} & {*ROUTERS}
    }
    held = 0
    for parameter, p in net.named_parameters():
        experts = p.dim() == 3 and "experts" in parameter
        outputs = p.shape[0] * p.shape[1] if experts else p.shape[0]
        few = experts or parameter in linear
        held += p.numel() + 4 * outputs if few else 2 * p.numel()

    assert weights_bytes(read(keys, name), precision_of("int8-channel")) == held


@pytest.mark.parametrize("name", SAVED)
def test_a_saved_config_reads_like_its_keys(name: str) -> None:
    """All keys that the class writes into a config.json give the same counts."""
    config, number = stored(name)
    keys = read(COMPARED[name])
    for saved in (config.to_dict(), config.to_diff_dict()):
        model = read(saved)
        assert number == total_parameters(model)
        assert state_elements(keys) == state_elements(model)
        for S in (1, 1000, 10**6):
            assert cache_elements(keys, S) == cache_elements(model, S)


def test_every_class_is_compared() -> None:
    """Each row of rooflm whose class transformers has is one of the models here."""
    known = {kind for kind in FAMILIES if kind in transformers.CONFIG_MAPPING}

    assert known == {config["model_type"] for config in COMPARED.values()}


@pytest.mark.parametrize("kind", sorted({c["model_type"] for c in COMPARED.values()}))
def test_class_defaults_are_those_of_the_class(kind: str) -> None:
    """What rooflm fills in for an absent key is what the class fills in."""
    family = FAMILIES[kind]
    # Qwen's classes erase a window that is not switched on.
    switched = {"use_sliding_window": True} if family.sight in ("switch", "odd") else {}
    config = transformers.AutoConfig.for_model(kind, **switched).to_dict()
    keys = Keys(config, kind, family, "config.json", nested=False)
    traits: list[Any] = [getattr(family, f.name) for f in fields(family)]
    assumed: dict[str, Any] = {"tie_word_embeddings": family.tied}
    assumed |= family.defaults | family.nested
    assumed |= {trait[0]: trait[1] for trait in traits if isinstance(trait, tuple)}
    for key, value in assumed.items():
        name, given = keys.find(key)
        if is_list(given):
            # The class keeps one number for all layers as a list of them.
            assert set(given) == {given[0]}
            given = given[0]
        # Keys of older configs, such as sliding_window_pattern, are no longer written.
        if not isinstance(given, Absent):
            assert (name, value) == (name, given)


@pytest.mark.parametrize("name", WHOLE)
def test_cache_of_the_class(name: str) -> None:
    """Attention reads and writes what the ledger says, and the next token's needs are kept.

    Kept between steps is what a context of one token more needs, without that token: a class with
    a window of W keeps W - 1 tokens, and reads W with the new one. Falcon's new decoder repeats
    keys and values for all query heads first.
    """
    model, steps = observed(name)
    token = cache_elements(model, 1)
    repeats = 1 if model.reference_kv_elements is None else model.reference_kv_elements / token
    for (n, T), step in zip(STEPS, steps, strict=True):
        writes: Any = sum(op.count * op.write_bytes for op in ledger(model, [Segment(B, T, n)]))

        assert step.read == repeats * needed_reads(model, n, T)
        assert step.written == repeats * writes / BF16.cache.bytes
        assert step.held == repeats * B * (cache_elements(model, n + T + 1) - token)


@pytest.mark.parametrize("name", WHOLE)
def test_decode_reads_the_cache_of_its_context(name: str) -> None:
    """The step at context S reads the elements that a cache of S tokens is counted with."""
    model, steps = observed(name)
    token = cache_elements(model, 1)
    repeats = 1 if model.reference_kv_elements is None else model.reference_kv_elements / token
    n, T = STEPS[-1]

    assert steps[-1].read == repeats * B * cache_elements(model, n + T)


@pytest.mark.parametrize("name", WHOLE)
def test_flops_of_the_class(name: str) -> None:
    """Prompt, chunk and decode of a tiny model take the ledger's FLOPs and the class's waste."""
    model, steps = observed(name)
    for (n, T), step in zip(STEPS, steps, strict=True):
        assert step.flops == counted_flops(model, n, T)


@pytest.mark.parametrize(
    "name", ["Meta-Llama-3-8B", "gemma-3-27b", "gpt-oss-20b", "Qwen3-30B-A3B", "DeepSeek-V3"]
)
def test_flops_at_published_sizes(name: str) -> None:
    """Shapes alone of a long prompt and a decode beyond the windows take the ledger's FLOPs."""
    steps = ((0, 1536), (1536, 1))
    # The other ways to run experts look at which ones were chosen, which shapes do not tell.
    model = instantiate(config_of(PUBLISHED[name]), "meta", experts="batched_mm")
    for (n, T), step in zip(steps, run(model, "meta", steps), strict=True):
        assert step.flops == counted_flops(read(PUBLISHED[name]), n, T)
