"""Pruning as a what-if: what `--set` changes, and the letters of a share of a model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflm.calc import prune
from rooflm.calc.changes import change_model
from rooflm.calc.entries import build_model
from rooflm.calc.errors import RooflmError
from rooflm.calc.letters import dimensions, layer_step, with_layers
from rooflm.calc.model import Model, ledger, total_parameters
from rooflm.calc.passes import BF16, decode
from rooflm.calc.presets import MODELS_FILE, find_model, load_all
from rooflm.calc.timing import flops

from .helpers import Terminal
from .strategies import models

PRESETS: list[Model] = load_all(MODELS_FILE, build_model)
KEPT = ("parameters", "weights_bytes", "cache_bytes_per_token", "state_bytes_per_sequence")


def test_width_pruning_keeps_the_cache(rooflm: Terminal) -> None:
    """Nemotron-4 15B as Minitron 8B: counts of their published configs, the same 131,072 bytes."""
    changed = rooflm.json("show", "nemotron-4-15b", "--set", "D=4096", "--set", "F=16384")[
        "changed"
    ]

    assert changed["from"] == {"D": 6144, "F": 24576}
    assert changed["to"] == {"D": 4096, "F": 16384}
    before, after = 15_628_775_424, 8_271_699_968
    share = after / before
    assert changed["parameters"] == {"before": before, "after": after, "kept": share}
    weights = {"before": 2 * before, "after": 2 * after, "kept": share}
    assert changed["weights_bytes"] == weights
    same = {"before": 131_072, "after": 131_072, "kept": 1}
    assert changed["cache_bytes_per_token"] == same
    assert changed["state_bytes_per_sequence"] == {"before": 0, "after": 0, "kept": None}
    assert "after distillation" in changed["notes"][0]
    assert changed["notes"][1].startswith("the cache is as it was")


def test_a_shallower_hybrid_has_half_of_cache_and_state(rooflm: Terminal) -> None:
    """Nemotron-H 8B of 52 layers with 26: each group has half, and so have cache and state.

    Its 4 layers of attention keep 2 * 8 * 128 numbers a token, its 24 of Mamba-2 a state of
    128 * 64 * 128 in fp32 and three columns of 128 * 64 + 2 * 8 * 128 numbers in bf16.
    """
    changed = rooflm.json("show", "nemotron-h-8b", "--set", "L=26")["changed"]

    assert changed["to"] == {"L_mamba": 12, "L_mlp": 12, "L_attention": 2, "L": 26}
    token, state = 4 * 2 * 8 * 128 * 2, 24 * (4 * 128 * 64 * 128 + 2 * 3 * (8192 + 2048))
    halves = {"cache_bytes_per_token": token, "state_bytes_per_sequence": state}
    for key, before in halves.items():
        assert changed[key] == {"before": before, "after": before // 2, "kept": 0.5}
    # Half of all that is not embedding, head and final norm.
    around = (2 * 131072 + 1) * 4096
    before, after = changed["parameters"]["before"], changed["parameters"]["after"]
    assert after - around == (before - around) / 2
    assert len(changed["notes"]) == 1


def test_a_pattern_that_repeats_is_cut_where_it_stands(rooflm: Terminal) -> None:
    """Gemma 3 27B has a full layer after five local ones: five of the first 31."""
    changed = rooflm.json("show", "gemma-3-27b", "--set", "L=31")["changed"]
    assert changed["from"] == {"L_local": 52, "L_global": 10, "L": 62}
    assert changed["to"] == {"L_local": 26, "L_global": 5, "L": 31}
    assert changed["cache_bytes_per_token"]["kept"] == 0.5

    shortest = rooflm.json("show", "gemma-3-27b", "--set", "L=6")
    assert (shortest["dimensions"]["L_local"], shortest["dimensions"]["L_global"]) == (5, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nemotron-h-4b", "L=30"), "30 layers cannot be shared out as the 52 are (24 mamba, "
         "24 mlp, 4 attention) (--set L). L may be 26 or 39; --set L_mamba changes one group."),
        (("nemotron-h-4b", "L=3"), "L may be 13; "),
        (("deepseek-v3", "L=30"), "L may be a multiple of 61; --set L_moe changes one group."),
        (("zamba2-2.7b", "L=7"), "2 sets of weights are more than the layers that share them, 1 "),
        (("gemma-3-27b", "L=5"), "a pattern of 6 layers does not fit L = 5"),
    ],
)  # fmt: skip
def test_a_depth_that_cuts_a_group_in_parts_is_refused(
    rooflm: Terminal, words: tuple[str, str], says: str
) -> None:
    """With the nearest that does not."""
    ran = rooflm("show", words[0], "--set", words[1])

    assert ran.code == 2
    assert says in ran.err


def test_groups_of_a_config_are_scaled_as_well(rooflm: Terminal, tmp_path: Path) -> None:
    """A file of six layers, two of them full: three layers, one of them full."""
    config = {
        "model_type": "gemma3_text", "hidden_size": 640, "intermediate_size": 2048,
        "num_hidden_layers": 6, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "vocab_size": 262144, "sliding_window": 512,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    }  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), "utf-8")
    dims = rooflm.json("show", str(path), "--set", "L=3")["dimensions"]

    assert (dims["L_sliding"], dims["L_full"], dims["L"]) == (2, 1, 3)
    assert "L may be 3 or 6" in rooflm("show", str(path), "--set", "L=4").err


def test_traits_and_the_same_number_change_no_dimension(rooflm: Terminal) -> None:
    """There is nothing to compare then."""
    for change in ("tied=true", "D=4096"):
        assert "changed" not in rooflm.json("show", "llama-3.1-8b", "--set", change)
    assert "changed" not in rooflm.json("show", "llama-3.1-8b")


def test_the_table_tells_what_is_kept(rooflm: Terminal) -> None:
    """Letters before and after, a row for each figure that there is, and the sentence."""
    out = rooflm("show", "llama-3.1-8b", "--set", "L=16").out

    assert "from L = 32 to L = 16\n" in out
    row = next(line for line in out.splitlines() if line.startswith("parameters   "))
    assert "number" in row
    kept = next(line for line in out.splitlines() if line.startswith("cache bytes per token"))
    assert kept.split()[-4:] == ["131,072", "65,536", "50.0", "%"]
    assert "state bytes" not in out
    assert "a model of other dimensions is a new model" in out


def test_a_model_that_caches_nothing_has_no_share_of_it(rooflm: Terminal) -> None:
    """A diffusion model."""
    changed = rooflm.json("show", "llada-8b", "--set", "L=16")["changed"]

    nothing = {"before": None, "after": None, "kept": None}
    assert changed["cache_bytes_per_token"] == changed["state_bytes_per_sequence"] == nothing


def test_a_width_that_experts_have_too_is_set_for_both(rooflm: Terminal) -> None:
    """Jamba's dense MLPs and experts are 14,336 wide: 16 layers of 16 experts, 16 dense ones."""
    changed = rooflm.json("show", "jamba-v0.1", "--set", "F=7168")["changed"]

    assert changed["to"] == {"F": 7168}
    less = changed["parameters"]["before"] - changed["parameters"]["after"]
    assert less == (16 * 16 + 16) * 3 * 4096 * 7168


def test_shares_give_the_published_pruned_models() -> None:
    """Three quarters of Llama 3.1 8B's width, half of its depth, two thirds of Nemotron-4's width.

    Minitron 8B: D and F of its config.json. Llama 3.1 Minitron 4B: D of Width-Base (whose MLP is
    pruned further), L of Depth-Base.
    """
    llama = find_model("llama-3.1-8b")

    assert prune.width(find_model("nemotron-4-15b"), 2 / 3) == {"D": "4096", "F": "16384"}
    assert prune.width(llama, 0.75) == {"D": "3072", "F": "10752"}
    assert prune.depth(llama, 0.5) == {"L": "16"}
    assert prune.depth(find_model("nemotron-h-8b"), 0.6) == {"L": "26"}
    assert prune.width(find_model("deepseek-v3"), 0.5) == {
        "D": "3584", "F_dense": "9216", "F_moe": "1024", "F_s": "1024",
    }  # fmt: skip


def test_a_width_of_few_multiples_stays() -> None:
    """Experts of 512 keep 0.9 of it, 460.8, in multiples of 128 as 512."""
    found = prune.width(find_model("qwen3-next-80b-a3b"), 0.9)

    assert found == {"D": "1792"}
    assert prune.width(find_model("qwen3-next-80b-a3b"), 0.9, multiple=32)["F"] == "448"


@pytest.mark.parametrize(
    ("ask", "name", "share", "says"),
    [
        (prune.width, "llama-3-8b", 1.0, "between 0 and 1, not 1"),
        (prune.depth, "llama-3-8b", 0.0, "between 0 and 1, not 0"),
        (
            prune.width,
            "llama-3-8b",
            0.999,
            "0.999 of a width of 4096 is no smaller multiple",
        ),
        (prune.depth, "deepseek-v3", 0.5, "0.5 of 61 layers is no smaller multiple of 61"),
        (prune.width, "zamba2-2.7b", 0.5, "sizes are given as one number"),
        (prune.depth, "zamba2-2.7b", 0.1, "2 sets of weights are more than"),
    ],
)
def test_shares_that_no_model_keeps_are_refused(
    ask: Any, name: str, share: float, says: str
) -> None:
    """In a sentence."""
    with pytest.raises(RooflmError, match=says):
        ask(find_model(name), share)


@pytest.mark.parametrize("model", PRESETS, ids=[m.name for m in PRESETS])
def test_every_preset_is_pruned_or_refused(model: Model) -> None:
    """What is set is taken by name too, counts less, and leaves what it does not name."""
    for ask, share in ((prune.width, 0.5), (prune.depth, 0.5)):
        try:
            changes = ask(model, share)
        except RooflmError:
            continue
        small = find_model(model.name, changes)
        assert total_parameters(small) < total_parameters(model)
        assert dimensions(small).keys() == dimensions(model).keys()
        same = dimensions(model).items() - dimensions(small).items()
        assert {k for k, _ in same if not k.startswith("L")} <= changes.keys()
        assert flops(ledger(small, decode(1, 8))) < flops(ledger(model, decode(1, 8)))


@given(model=models(), share=st.floats(0.05, 0.95))
def test_any_model_is_pruned_or_refused(model: Model, share: float) -> None:
    """Of any shape: no more parameters, the cache in proportion to the layers.

    Layers that share weights may be fewer with the same weights.
    """
    for ask in (prune.width, prune.depth):
        try:
            changes = ask(model, share)
        except RooflmError:
            continue
        small = change_model(model, changes)
        assert total_parameters(small) <= total_parameters(model)
        changed = prune.against(model, small, BF16, norms=True)["changed"]
        assert changes.keys() <= changed["to"].keys()
        cache, layers = changed["cache_bytes_per_token"], small.layers / model.layers
        assert cache["kept"] is None or cache["kept"] == pytest.approx(layers)


@given(model=models(), times=st.integers(1, 5))
def test_layers_are_scaled_by_whole_groups(model: Model, times: int) -> None:
    """A multiple of the fewest layers has whole groups, and back again it is the same model."""
    model = replace(model, groups=tuple(replace(g, copies=None) for g in model.groups))
    other = with_layers(model, times * layer_step(model))

    assert other.layers == times * layer_step(model)
    assert with_layers(other, model.layers) == model
