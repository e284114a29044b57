"""Windows, chunks, shared caches, latent attention and experts against brute force."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.calc.attention import Attention, chunked_pairs, windowed_pairs
from rooflm.calc.case import Case, memory_bytes
from rooflm.calc.experts import Experts, distinct_experts, distinct_experts_skewed, zipf_shares
from rooflm.calc.inverse import step_s
from rooflm.calc.memory import paged_window_tokens
from rooflm.calc.mla import MLA, absorbed_flops, materialised_flops
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model, cache_elements, ledger, total_parameters
from rooflm.calc.passes import BF16, Routing, Segment, decode
from rooflm.calc.presets import find_model
from rooflm.calc.solve import Target, sensitivity, solve

from .helpers import Terminal, h100, only


def big() -> Case:
    """Make a machine with room for any of these models."""
    return Case(find_model("mixtral-8x7b"), replace(h100(), driver_bytes=4 * 10**12))


@given(st.integers(0, 60), st.integers(0, 40), st.integers(1, 20))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_windowed_pairs_equal_a_count(n: int, T: int, W: int) -> None:
    """The closed form is the number of pairs that a mask lets through."""
    seen = sum(1 for q in range(n, n + T) for k in range(q + 1) if q - k < W)

    assert windowed_pairs(n, T, W) == seen


@given(st.integers(0, 60), st.integers(0, 40), st.integers(1, 20))
@settings(derandomize=True, max_examples=200, deadline=None)
def test_chunked_pairs_equal_a_count(n: int, T: int, C: int) -> None:
    """A query sees the tokens of its own chunk up to itself."""
    seen = sum(1 for q in range(n, n + T) for k in range(q + 1) if q // C == k // C)

    assert chunked_pairs(n, T, C) == seen


@given(st.integers(0, 50), st.integers(1, 30), st.integers(1, 20), st.sampled_from([0, 3]))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_tokens_read_are_those_that_some_query_sees(n: int, T: int, W: int, sinks: int) -> None:
    """What a pass reads of the cache is the union of what its queries see."""
    window = Attention(1, 1, 1, window=W)
    chunk = Attention(1, 1, 1, chunk=W)
    queries = range(n, n + T)
    seen = {k for q in queries for k in range(q + 1) if q - k < W}
    apart = {k for q in queries for k in range(q + 1) if q // W == k // W}

    assert window.seen_tokens(n, T) == len(seen)
    assert chunk.seen_tokens(n, T) == len(apart)
    assert replace(window, sink_tokens=sinks).kept_tokens(n + T) == min(n + T, W + sinks)


@pytest.mark.parametrize(("E", "k", "B"), [(4, 1, 3), (4, 2, 2), (5, 3, 2), (3, 3, 2)])
def test_distinct_experts_equal_an_enumeration(E: int, k: int, B: int) -> None:
    """The expectation over every choice of every token, all equally likely."""
    choices = list(itertools.combinations(range(E), k))
    tokens = itertools.product(choices, repeat=B)
    counts = [len({expert for chosen in token for expert in chosen}) for token in tokens]

    assert distinct_experts(B, E, k) == pytest.approx(sum(counts) / len(counts))


def test_skew_touches_fewer_experts() -> None:
    """A Zipf law adds up to k, stays at most 1 each, and touches fewer than even routing."""
    for exponent in (0.0, 0.5, 1.0, 3.0):
        shares = zipf_shares(64, 6, exponent)
        assert sum(shares) == pytest.approx(6)
        assert max(shares) <= 1
        assert shares == sorted(shares, reverse=True)
        even = distinct_experts(32, 64, 6)
        skewed = distinct_experts_skewed(32, shares)
        assert skewed == pytest.approx(even) if exponent == 0 else skewed < even


def test_decode_of_mixtral_reads_the_experts_that_its_batch_touches() -> None:
    """Weight bytes grow from 2 of 8 experts a layer to all of them; FLOPs know only k."""
    model = find_model("mixtral-8x7b")
    one = 3 * 4096 * 14336
    rest = 2 * (total_parameters(model) - 32 * 8 * one - 32000 * 4096)
    for B in (1, 4, 16, 64):
        ops = ledger(model, decode(B, 100))
        read = sum(o.count * o.weight_bytes for o in ops)
        experts = 32 * distinct_experts(B, 8, 2) * one
        assert read == pytest.approx(2 * experts + rest + 2 * B * 4096, rel=1e-12)
        flops = sum(o.count * o.flops for o in ops if o.part == "experts")
        assert flops == 2 * B * 32 * 2 * one


def test_the_floor_touches_the_fewest_experts(rooflm: Terminal) -> None:
    """Identical prompts touch k experts: nothing is faster, and no routing is below it."""
    words = ("sweep", "mixtral-8x7b", "--on", "h200-sxm", "--batch", "16")
    even = only(rooflm.json(*words)["rows"])
    skewed = only(rooflm.json(*words, "--routing", "zipf:2")["rows"])
    least = ledger(find_model("mixtral-8x7b"), decode(16, 1024),
                   replace(BF16, routing=Routing(fewest=True)))  # fmt: skip
    moved = sum(o.count * o.compulsory_bytes for o in least)

    assert even["floor_s"] == skewed["floor_s"] == pytest.approx(moved / 4.8e12)
    assert even["floor_s"] < skewed["bound_s"] < even["bound_s"]
    shares = ",".join(["0.25"] * 8)
    given_ = only(rooflm.json(*words, "--routing", shares)["rows"])
    assert given_["bound_s"] == pytest.approx(even["bound_s"], rel=1e-12)
    assert rooflm(*words, "--routing", "0.5,0.5").code == 2
    assert rooflm(*words, "--routing", "zipf:x").code == 2


def test_latent_attention_takes_the_cheaper_mode() -> None:
    """Decode absorbs, a prefill materialises; the ledger has the smaller of the two."""
    mixer = MLA(N=128, c=512, r=64, d=128, v=128, q=1536)
    widths = (128, 512, 64, 128, 128)
    assert mixer.mode(8191, 1) == "absorbed"
    assert mixer.mode(0, 4096) == "materialised"
    for n, T in ((8191, 1), (0, 4096), (5000, 170), (5000, 400)):
        pairs = n * T + T * (T + 1) // 2
        ways = absorbed_flops(pairs, T, *widths), materialised_flops(pairs, n + T, *widths)
        assert mixer.core_flops([Segment(3, T, n)]) == 3 * min(ways)


def test_sharing_layers_store_nothing_and_read_all() -> None:
    """A layer that reads another's cache has no key or value weights, and the same traffic."""
    own = Attention(8, 2, 64)
    model = Model(
        "m", 512, 100, (Group(3, own, MLP(64)), Group(5, replace(own, shares=True), MLP(64)))
    )
    reads = [o.count * o.read_bytes for o in ledger(model, decode(2, 50)) if "attention" in o.name]

    assert cache_elements(model, 50) == 3 * 2 * 2 * 64 * 50
    assert reads == [3 * 2 * 50 * 256 * 2, 5 * 2 * 50 * 256 * 2]


NAMES = ("gemma-3-27b", "gpt-oss-20b", "mixtral-8x7b", "deepseek-v3")


@pytest.mark.parametrize("name", NAMES)
def test_a_context_is_inverted_exactly_through_its_windows(name: str) -> None:
    """The longest context that fits, or is within a latency, on either side of a window."""
    case = replace(big(), model=find_model(name))
    weights = memory_bytes(case, 3, 1)
    for room in (10**6, 10**8, 10**10):
        limited = replace(case, capacity_bytes=weights + room)
        longest = solve(limited, "context", 3, 1, Target())["value"]
        assert memory_bytes(limited, 3, longest) <= weights + room
        assert memory_bytes(limited, 3, longest + 1) > weights + room
    for S in (100, 5000, 10**6):
        latency = step_s(case, 3, S)
        assert solve(case, "context", 3, 1, Target(latency_s=latency))["value"] == S


@pytest.mark.parametrize("name", NAMES)
def test_batches_are_solved_for_experts_and_windows(name: str) -> None:
    """Batch for a latency, a share and the compute-bound regime, put back."""
    case = replace(big(), model=find_model(name))
    latency = 1.7 * step_s(case, 2, 300)
    B = solve(case, "batch", 1, 300, Target(latency_s=latency))["value"]
    assert step_s(case, B, 300) <= latency < step_s(case, B + 1, 300)
    share = solve(case, "batch", 1, 300, Target(share=0.6))
    n, wanted = share["value"], 0.6 * share["limit_tokens_per_s"]
    assert n / step_s(case, n, 300) >= wanted > (n - 1) / step_s(case, n - 1, 300)
    assert math.isfinite(solve(case, "throughput", 1, 300, Target())["value"])


def test_a_paged_engine_reserves_more_than_is_needed(rooflm: Terminal) -> None:
    """Fit tells need, whole blocks, and windows padded to full apart, in that order."""
    words = ("fit", "gemma-3-27b", "--on", "h100-sxm", "--context", "131072")
    answer = rooflm.json(*words)
    cache = answer["reserved_kv_cache_bytes"]

    # Published case: 11,173,625,856 bytes with windows, 66,571,993,088 without.
    assert cache["needed"] == answer["memory"]["kv_cache_bytes"] == 11_173_625_856
    assert cache["padded"] == 66_571_993_088
    local = 52 * 2 * 2 * 16 * 128 * paged_window_tokens(1024, 131072)
    assert cache["paged"] == local + 10 * 2 * 2 * 16 * 128 * 131072
    assert "pads window layers to full" in rooflm(*words).out


def test_explain_shows_the_window(rooflm: Terminal) -> None:
    """The cache formula of a hybrid has each kind's letters and the window."""
    words = ("explain", "kv_cache_bytes", "gemma-3-27b", "--on", "h100-sxm", "--context", "4096")
    answer = rooflm.json(*words)

    assert "min(S, W)" in answer["formula"]
    assert "L_global" in answer["formula"]
    assert answer["value"] == 2 * 2 * 16 * 128 * (10 * 4096 + 52 * 1024)


CONFIG = {
    # github.com/meta-llama/llama-models, Llama 3.1 8B, as its config.json says it.
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "tie_word_embeddings": False, "max_position_embeddings": 131072,
}  # fmt: skip


def test_a_config_file_or_its_folder_is_a_model(rooflm: Terminal, tmp_path: Path) -> None:
    """Every command takes a config.json; it is the preset's twin, with its provenance."""
    folder = tmp_path / "mine"
    folder.mkdir()
    path = folder / "config.json"
    path.write_text(json.dumps(CONFIG))
    preset = rooflm.json("show", "llama-3.1-8b")
    for name in (str(path), str(folder)):
        read = rooflm.json("show", name)
        assert read["parameters"] == preset["parameters"]
        assert read["cache"] == preset["cache"]
        assert read["model"] == "mine"
    shown = rooflm("show", str(path), "--provenance").out
    assert "key num_key_value_heads" in shown
    assert rooflm.json("sweep", str(path), "--on", "h100-sxm")["rows"]
    assert rooflm("explain", "bound_s", str(path), "--on", "h100-sxm").code == 0
    assert rooflm("solve", "batch", str(path), "--on", "h100-sxm").code == 0
    changed = rooflm.json("show", str(path), "--set", "K=4", "--set", "tied=true")
    assert changed["cache"]["bytes_per_token"] == 65536
    assert changed["parameters"]["head"] == 0
    assert rooflm("show", str(path), "--set", "K=5").code == 2
    assert "unknown key" in rooflm("show", str(path), "--set", "Q=5").err


def test_safetensors_beside_a_config_tell_the_bytes_of_the_file(
    rooflm: Terminal, tmp_path: Path
) -> None:
    """The header of the weights gives their exact size."""
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    header = json.dumps({"w": {"dtype": "BF16", "shape": [3, 5], "data_offsets": [0, 30]}}).encode()
    body = len(header).to_bytes(8, "little") + header + bytes(30)
    (tmp_path / "model.safetensors").write_bytes(body)

    shown = rooflm.json("show", str(tmp_path))
    assert shown["file_bytes"] == 30
    assert any("hold 15 numbers" in said for said in shown["unusual"])
    alone = rooflm("show", str(tmp_path / "model.safetensors"))
    assert alone.code == 2
    assert "Name its folder" in alone.err


def test_an_expert_layer_counts_stored_used_and_touched_apart(rooflm: Terminal) -> None:
    """DeepSeek-V3: 671.03e9 stored, 37.55e9 used, 36.63e9 streamed (worked case of topic 3)."""
    parameters = rooflm.json("show", "deepseek-v3")["parameters"]
    ffn = find_model("deepseek-v3").groups[1].ffn
    assert isinstance(ffn, Experts)

    assert parameters["total"] == 671_026_404_352
    assert parameters["active"] == 37_552_282_624
    assert parameters["streamed"] == 36_625_603_584
    assert ffn.touched(1, fewest=False) == ffn.touched(10**6, fewest=True) == 8
    steps = rooflm.json("sweep", "deepseek-v3", "--on", "h200-sxm", "--batch", "1,2,64")["rows"]
    one = 58 * 3 * 7168 * 2048
    for row in steps:
        # Brute force over the experts of a layer: each is left out by all tokens of the batch.
        missed = sum((1 - 8 / 256) ** row["batch"] for _ in range(256))
        touched = 671_026_404_352 - one * missed
        assert row["touched_parameters"] == pytest.approx(touched, rel=1e-12)
    assert steps[0]["touched_parameters"] == pytest.approx(parameters["active"], rel=1e-12)


@pytest.mark.parametrize("latency", [0.0098, 0.0100, 0.0105, 0.0112])
def test_the_longest_context_is_found_through_chunks(latency: float) -> None:
    """Step times rise and fall with each chunk: the answer is the last of all that meet it."""
    case = replace(big(), model=find_model("llama-4-scout"))
    contexts = np.arange(1, 200_000, dtype=float)
    met = contexts[step_s(case, 1, contexts) <= latency]
    answer = solve(case, "context", 1, 1, Target(latency_s=latency))

    assert 0 < met[-1] < contexts[-1]
    assert answer["value"] == met[-1]
    assert "<= S <=" in answer["valid_for"]


def test_a_branch_fixes_what_is_rounded() -> None:
    """An elasticity through floor is that of the open chunk; a difference quotient agrees."""
    case = replace(big(), model=find_model("llama-4-scout"))
    found = sensitivity(case, 8, 20_000)["time_s"]["S"]
    times = [step_s(case, 8, S) for S in (19_999, 20_001)]

    quotient = (times[1] - times[0]) / 2 * 20_000 / step_s(case, 8, 20_000)
    assert found == pytest.approx(quotient, rel=1e-6)


@pytest.mark.parametrize(
    ("model", "change", "message"),
    [
        ("mixtral-8x7b", "k=30", "cannot choose 30 of 8"),
        ("mixtral-8x7b", "E=1", "cannot choose 2 of 1"),
        ("deepseek-v2", "K=8", "not one figure of deepseek-v2"),
        ("deepseek-v2", "F=8", "F_dense"),
        ("gemma-3-27b", "window=2048", "not one figure"),
        ("llama-2-7b", "sink_tokens=4", "beside a window"),
        ("llama-2-7b", "shares_kv=true", "none makes them"),
        ("llama-2-7b", "Q=4", "unknown key"),
    ],
)
def test_a_change_that_cannot_be_meant_is_refused(
    rooflm: Terminal, model: str, change: str, message: str
) -> None:
    """Nothing is changed in silence, and no other layers than those that are meant."""
    ran = rooflm("show", model, "--set", change)

    assert ran.code == 2
    assert message in ran.err


def test_letters_that_a_table_shows_can_be_set(rooflm: Terminal) -> None:
    """Widths of experts, choices and windows change where the layers have them."""
    wide = rooflm.json("show", "mixtral-8x7b", "--set", "F=5", "--set", "k=3")
    shown = rooflm.json("show", "gemma-3-27b", "--set", "W=2048")
    more = rooflm.json("show", "falcon-11b", "--set", "N=64", "--provenance")

    # 32 layers, 8 experts, three matrices of D x F.
    assert wide["parameters"]["experts"] == 32 * 8 * 3 * 4096 * 5
    assert wide["parameters"]["total"] - wide["parameters"]["active"] == 32 * 5 * 3 * 4096 * 5
    windows = [layer["window_tokens"] for layer in shown["cache"]["layers"]]
    assert sorted(windows, key=str) == [2048, None]
    assert more["cache"]["reference"]["elements_per_token"] == 2 * 60 * 64 * 128
    assert {"field": "N", "value": "64", "origin": "--set"} in more["provenance"]


def test_a_flat_law_over_empty_experts_is_even_routing(rooflm: Terminal) -> None:
    """LongCat's empty experts take their share of a Zipf law, which tends to even routing."""
    words = ("sweep", "longcat-flash", "--on", "h200-sxm", "--batch", "1,4")
    even = rooflm.json(*words)["rows"]
    flat = rooflm.json(*words, "--routing", "zipf:0.000001")["rows"]

    for a, b in zip(even, flat, strict=True):
        assert a["bytes"] == pytest.approx(b["bytes"], rel=1e-4)
    assert rooflm("sweep", "gpt2", "--on", "h200-sxm", "--routing", "zipf:1").code == 2


def test_all_tokens_may_choose_empty_experts() -> None:
    """The floor of LongCat's experts is free of their work, or alike prompts would be below it."""
    model = find_model("longcat-flash")
    least = replace(BF16, routing=Routing(fewest=True))
    for op in ledger(model, decode(64, 100), least):
        if op.name.startswith("experts"):
            assert op.flops == op.weight_bytes == 0


def test_defaults_of_the_class_are_named(rooflm: Terminal, tmp_path: Path) -> None:
    """A number that the file does not say is told, with its value."""
    config = {k: v for k, v in CONFIG.items() if k != "num_key_value_heads"}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config | {"model_type": "qwen3_moe_of_nowhere"}))
    assert rooflm("show", str(path)).code == 2
    text = {"model_type": "gemma2", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 99}
    text |= {"num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2}
    path.write_text(json.dumps(text | {"head_dim": 16}))

    said = rooflm.json("show", str(path))["unusual"]
    assert any("default of the class" in s and "4096" in s for s in said)
    path.write_text(json.dumps(text | {"model_type": "llama"}))
    said = rooflm.json("show", str(path))["unusual"]
    assert "not in the file, so H = 16 is derived: hidden_size / num_attention_heads" in said


def test_show_tells_need_from_what_a_paged_engine_sets_aside(rooflm: Terminal) -> None:
    """577 blocks for Gemma's windows, 1,024 for Llama 4's chunks (vLLM, kv_cache_interface.py)."""
    for model, tokens in (("gemma-3-27b", 577 * 16), ("llama-4-scout", 1024 * 16)):
        said = rooflm.json("show", model)["unusual"]
        assert any(f"sets aside up to {tokens:,} tokens" in line for line in said)
