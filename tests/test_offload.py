"""Layers in host memory: what stays on the device, what goes over the bus, how long it takes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from rooflm.calc.errors import Exit
from rooflm.calc.model import tensors
from rooflm.calc.offload import hosted_weights_bytes, parted
from rooflm.calc.passes import BF16
from rooflm.calc.presets import find_model
from rooflm.calc.weights import tensor_bytes

from .helpers import Terminal, only

LLAMA = "llama-3-8b --on rtx-4090"
LINK = "--host-link 31.5GB"
MODELS = [
    "llama-3-8b --on rtx-4090 --batch 4 --context 4096",
    "gemma-3-27b --on rtx-4090 --batch 2 --context 8192",
    "mixtral-8x7b --on rtx-4090 --batch 3",
    "qwen3-next-80b-a3b --on rtx-4090 --batch 2 --context 4096",
    "deepseek-v3 --on h100-sxm --batch 2 --weights fp8-block --context 4096",
]


def row(rooflm: Terminal, words: str) -> dict[str, Any]:
    """Sweep one point."""
    return only(rooflm.json("sweep", *words.split())["rows"])


def test_all_layers_on_the_device_are_no_offload(rooflm: Terminal) -> None:
    """--gpu-layers L changes nothing, to the bit, where the embedding is the head as well."""
    words, layers = MODELS[1], 62
    for command in ("sweep", "fit", "compare", "roofline"):
        whole = rooflm(command, *words.split(), "--format", "json")
        parted = rooflm(command, *f"{words} --gpu-layers {layers} --format json".split())
        assert parted == whole
    answer = rooflm.json("explain", "bound_s", *f"{words} --gpu-layers {layers}".split())
    assert answer == rooflm.json("explain", "bound_s", *words.split())


def test_the_embedding_is_in_host_memory(rooflm: Terminal) -> None:
    """llama.cpp's -ngl 1 puts the head alone on the device: 80.60 MiB of OLMoE in Q6_K.

    Source: https://github.com/gpustack/gguf-parser-go/issues/42 (ROCm0 model buffer size = 80.60).
    With all layers there the table alone is away, and there is an estimate still.
    """
    words = "olmoe-1b-7b --on rtx-4090 --weights q6_k"
    head = row(rooflm, f"{words} --gpu-layers 0 {LINK}")
    whole, all_ = row(rooflm, words), row(rooflm, f"{words} --gpu-layers 16 {LINK}")

    assert round(head["weights_bytes"] / 2**20, 2) == 80.60
    assert all_["host_bytes"] == whole["weights_bytes"] - all_["weights_bytes"]
    assert all_["host_bytes"] == 50304 * 2048 * 6.5625 / 8
    assert all_["estimate_s"] == whole["estimate_s"]


def test_positions_are_in_host_memory_of_a_tied_model_too(rooflm: Terminal) -> None:
    """The embedding is the head and stays; positions are gathered alone, a row a step over the bus.

    By hand, OPT 13B: 2,050 positions of 5,120 in 16 bits. Source of the place: ggml-org/llama.cpp,
    src/llama-arch.cpp (LLM_TENSOR_POS_EMBD is LLM_TENSOR_LAYER_INPUT).
    """
    words = "opt-13b --on h100-sxm"
    whole, all_ = row(rooflm, words), row(rooflm, f"{words} --gpu-layers 40 {LINK}")

    assert all_["host_bytes"] == 2050 * 5120 * 2 == 20_992_000
    assert all_["weights_bytes"] == whole["weights_bytes"] - 20_992_000
    assert all_["bytes"] == whole["bytes"]


def test_half_of_llama_over_pcie(rooflm: Terminal) -> None:
    """Batch 1 by hand: 16 layers over 31.5 GB/s, the rest and the head over 1008 GB/s.

    Every operator of one sequence is limited by bytes, so that the bound is their sum.
    """
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert layer == 218_112_000
    token = 2 * 8 * 128 * 2
    swept = row(rooflm, f"{LLAMA} --gpu-layers 16 {LINK}")

    table = 2 * 128_256 * 4096
    assert swept["host_bytes"] == 16 * (2 * layer + 1024 * token) + table
    assert swept["weights_bytes"] == 16 * 2 * layer + table + 2 * 4096
    assert swept["kv_cache_bytes"] == 16 * 1024 * token
    # What is written goes the other way: one token, while the cache of 1024 is read.
    inward = (16 * (2 * layer + 1024 * token) + 2 * 4096) / 31.5e9
    both = (16 * (2 * layer + 1025 * token) + 2 * 4096) / 31.5e9
    memory = (16 * (2 * layer + 1025 * token) + table + 2 * 4096) / 1.008e12
    assert inward + memory <= swept["bound_s"] <= both + memory
    assert swept["floor_s"] == pytest.approx(inward, rel=1e-5)
    assert swept["bound_s"] == pytest.approx(inward + memory, rel=1e-5)


@pytest.mark.parametrize("words", MODELS)
def test_more_layers_on_the_device(rooflm: Terminal, words: str) -> None:
    """Memory grows and time falls; device and host hold the whole; the floor is below the bound.

    The floor need not fall: it takes memory and the link to work at the same time.
    """
    name = words.split()[0]
    layers = find_model(name).layers
    whole = row(rooflm, words)
    rows = [
        row(rooflm, f"{words} --gpu-layers {n} {LINK}")
        for n in sorted({0, 1, 2, layers // 3, layers // 2, layers - 2, layers - 1, layers})
    ]

    for less, more in pairwise(rows):
        assert less["memory_bytes"] < more["memory_bytes"]
        assert less["bound_s"] > more["bound_s"]
    kinds = ("weights_bytes", "kv_cache_bytes", "state_bytes")
    for swept in rows:
        held = sum(swept.get(kind, 0) for kind in kinds) + swept.get("host_bytes", 0)
        assert held == pytest.approx(sum(whole.get(kind, 0) for kind in kinds), rel=1e-15)
        # With all layers on the device both are the same sum but for its rounding.
        assert swept["floor_s"] <= swept["bound_s"] * (1 + 1e-12)
        for same in ("bytes", "flops", "activations_bytes", "touched_parameters"):
            assert swept[same] == pytest.approx(whole[same], rel=1e-15)


@pytest.mark.parametrize("phase", ["", "--phase request --prompt 512 --output-tokens 8"])
def test_time_models_keep_their_order(rooflm: Terminal, phase: str) -> None:
    """None is above the next, whatever limits."""
    for words in (MODELS[0].partition(" --batch")[0], "jamba-v0.1 --on h100-sxm"):
        times = [
            row(rooflm, f"{words} --batch 64 {phase} --gpu-layers 9 {LINK} --time-model {model}")
            for model in ("bandwidth", "overlap", "operator", "serial")
        ]
        bounds = [swept["bound_s"] for swept in times]
        assert bounds == sorted(bounds)
        assert times[2]["floor_s"] <= times[2]["bound_s"]


@pytest.mark.parametrize(("words", "layers"), [(MODELS[0], 9)])
def test_explain_agrees_with_sweep(rooflm: Terminal, words: str, layers: int) -> None:
    """The formula of a figure has its value."""
    words = f"{words} --gpu-layers {layers} {LINK}"
    swept = row(rooflm, words)
    keys = ["bound_s", "host_bytes"]
    keys += ["floor_s", "memory_bytes", "weights_bytes", "kv_cache_bytes"] if layers else []
    for key in keys:
        value = rooflm.json("explain", key, *words.split())["value"]
        assert value == pytest.approx(swept[key], rel=1e-12), key
    fit = rooflm("fit", *words.split(), "--format", "json").json
    assert fit["host_bytes"] == swept["host_bytes"]
    if not layers:
        return
    reserved = rooflm.json("explain", "reserved_kv_cache_bytes.paged", *words.split())["value"]
    assert reserved == pytest.approx(fit["reserved_kv_cache_bytes"]["paged"], rel=1e-12)
    most = rooflm.json("explain", "max_sequences", *words.split())["value"]
    assert most == fit["max_sequences"]


def test_commands_agree(rooflm: Terminal) -> None:
    """Rows of the roofline add up to the step; compare has the figures of sweep."""
    words = f"{MODELS[1]} --gpu-layers 20 {LINK}"
    swept = row(rooflm, words)
    lines = rooflm.json("roofline", *words.split())["operators"]

    assert sum(line["bound_s"] for line in lines) == pytest.approx(swept["bound_s"], rel=1e-12)
    assert (
        only(rooflm.json("compare", *words.split())["rows"]).items()
        >= {key: swept[key] for key in ("memory_bytes", "host_bytes", "bound_s", "fits")}.items()
    )


@pytest.mark.parametrize("model", ["operator", "serial"])
def test_solve_meets_its_target(rooflm: Terminal, model: str) -> None:
    """The answer is the last that meets the target, the next does not."""
    base = f"{LLAMA} --gpu-layers 24 {LINK}"
    timed = f"{base} --time-model {model}"
    words = f"{timed} --latency 300ms"
    most = rooflm.json("solve", "batch", *words.split())["value"]
    here, next_ = (row(rooflm, f"{timed} --batch {n}")["bound_s"] for n in (most, most + 1))
    assert here <= 0.3 < next_
    fitting = rooflm.json("solve", "batch", *base.split())["value"]
    assert [row(rooflm, f"{base} --batch {n}")["fits"] for n in (fitting, fitting + 1)] == [
        True,
        False,
    ]
    turn = rooflm.json("solve", "batch", *timed.split(), "--when", "compute-bound", "--context=64")
    at = turn["value"]
    if at is not None:
        regimes = [row(rooflm, f"{timed} --context 64 --batch {n}")["regime"] for n in (at - 1, at)]
        assert regimes == ["memory", "compute"]
    rate = rooflm.json("solve", "bandwidth", *words.split(), "--batch", str(most))
    assert rate["feasible"]


def test_kinds_of_layers_take_turns() -> None:
    """Each kind has its share, and one layer more never takes one of another kind away."""
    for name in ("gemma-3-27b", "deepseek-v3", "jamba-v0.1"):
        model = find_model(name)
        before = [0] * len(model.groups)
        for n in range(model.layers + 1):
            groups = parted(model, n).groups
            counts = [g.count - g.hosted for g in groups]
            assert sum(counts) == n
            assert all(a <= b <= g.count for a, b, g in zip(before, counts, groups, strict=True))
            for number, g in zip(counts, groups, strict=True):
                assert abs(number - n * g.count / model.layers) < 1.5
            before = counts
        # With all layers away what stays is no layer's.
        away = hosted_weights_bytes(parted(model, 0), BF16)
        own = ("head", "final norm", *(("embedding",) if model.tied else ()))
        stays = sum(n * tensor_bytes(t, BF16) for n, t in tensors(model) if t.op in own)
        assert away + stays == sum(n * tensor_bytes(t, BF16) for n, t in tensors(model))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"{LLAMA} --gpu-layers 33 {LINK}", "Possible: 0 to 32."),
        (f"{LLAMA} --gpu-layers -1 {LINK}", "--gpu-layers"),
        (f"{LLAMA} --gpu-layers 1.5 {LINK}", "not a whole number (--gpu-layers)"),
        (f"{LLAMA} --gpu-layers 16 --host-link 0", "--host-link"),
        ("llama-3-8b --on apple-m1 --gpu-layers 16", "Say --host-link 31.5GB"),
        (f"{LLAMA} {LINK}", "Say --gpu-layers as well."),
        (f"{LLAMA} --gpu-layers 16 {LINK} --accounting lecture", "--gpu-layers"),
        (f"{LLAMA} --gpu-layers 16 {LINK} --tp 2", "Leave out the option, or the layout."),
        ("zamba2-2.7b --on rtx-4090 --gpu-layers 16 --host-link 32GB", "share weights"),
    ],
)
def test_refused(rooflm: Terminal, words: str, says: str) -> None:
    """One sentence, with the option."""
    ran = rooflm("sweep", *words.split())
    assert ran.code == Exit.USAGE
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_show_has_no_host(rooflm: Terminal) -> None:
    """What is shown is without hardware."""
    assert "`rooflm fit` takes it" in rooflm("show", "llama-3-8b", "--gpu-layers", "3").err
