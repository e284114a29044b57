"""A prefix that all sequences of a batch share: what is stored, what is read, how long it takes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from rooflm.calc.attention import Attention
from rooflm.calc.case import Case, figures, max_sequences, memory, memory_bytes, reserved
from rooflm.calc.definitions import Question
from rooflm.calc.explain import explain
from rooflm.calc.mla import MLA, absorbed_flops, materialised_flops, mixed_flops
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model
from rooflm.calc.options import Typed
from rooflm.calc.passes import BF16
from rooflm.calc.presets import find_model
from rooflm.calc.ssm import Mamba
from rooflm.calc.sweep import step_row, sweep
from rooflm.calc.typed import Counting, find_case

from .helpers import Terminal, h100, only

W, SINKS = 5, 2
LAYERS: dict[str, tuple[int, Any]] = {
    "full": (2, Attention(N=4, K=2, H=8)),
    "sliding": (3, Attention(N=4, K=2, H=8, window=W)),
    "streaming": (1, Attention(N=4, K=2, H=8, window=W, sink_tokens=SINKS)),
    "shared": (2, Attention(N=4, K=2, H=8, shares=True)),
    "mla": (2, MLA(N=4, c=16, r=4, d=8, v=8)),
    "mamba": (2, Mamba(d=16, s=4, r=2)),
}
TOKEN_BYTES = {"full": 64, "sliding": 64, "streaming": 64, "shared": 64, "mla": 40}
"""2 * K * H * 2 bytes, or c + r elements of two bytes."""


def model_of(*kinds: str) -> Model:
    """Make a small model of layers of some kinds."""
    groups = tuple(
        Group(count=LAYERS[k][0], mixer=LAYERS[k][1], ffn=MLP(F=32), name=k) for k in kinds
    )
    return Model(name="small", D=32, V=64, groups=groups)


def seen(kind: str, S: int) -> list[int]:
    """List the positions that the newest of S tokens sees in a layer."""
    if kind == "mamba":
        return []
    if kind == "sliding":
        return [p for p in range(S) if p >= S - W]
    if kind == "streaming":
        return [p for p in range(S) if p >= S - W or p < SINKS]
    return list(range(S))


@pytest.mark.parametrize("kind", LAYERS)
def test_storage_and_reads_equal_a_count_of_different_tokens(kind: str) -> None:
    """Entries are told apart by layer, position and, beyond the prefix, sequence: counted in loops.

    Layers that read the cache of another store nothing; those with a state have no tokens.
    """
    model = model_of(kind)
    layers, token = LAYERS[kind][0], TOKEN_BYTES.get(kind, 0)
    for B, S, h in itertools.product((1, 2, 7), (2, 4, 5, 6, 9, 14), (1, 2, 3, 6, 12)):
        if h >= S:
            continue
        each = [
            (layer, p, -1 if p < h else b)
            for layer in range(layers)
            for b in range(B)
            for p in seen(kind, S)
        ]
        case = Case(model, h100(), shared_prefix=h)
        once = replace(case, prefix_once=True)
        segments = case.step(B, S)

        stored = 0 if kind == "shared" else token * len(set(each))
        assert memory(case, segments, ())["kv_cache_bytes"] == stored
        if kind != "mamba":
            assert read(case, B, S) == token * len(each)
            assert read(once, B, S) == token * len(set(each))
        else:
            assert read(case, B, S) == read(once, B, S) == read(Case(model, h100()), B, S)


def words_of(text: str) -> list[str]:
    """Split a command line."""
    return text.split()


def read(case: Case, B: int, S: int) -> int:
    """Add up the cache and state that a step reads [B]."""
    return sum(op.count * op.read_bytes for op in case.ledger(case.step(B, S)))


MODELS = ["llama-3-8b", "gemma-3-27b", "deepseek-v3", "qwen3-next-80b-a3b", "gpt-oss-20b",
          "falcon-h1-34b"]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("once", [False, True])
def test_one_sequence_shares_nothing(name: str, once: bool) -> None:
    """At batch 1 every figure is the one without a prefix, to the bit."""
    plain = Case(find_model(name), h100())
    case = replace(plain, shared_prefix=1000, prefix_once=once)

    assert step_row(case, case.step(1, 3000), 1, 3000) == step_row(
        plain, plain.step(1, 3000), 1, 3000
    )
    assert reserved(case, 1, 3000) == reserved(plain, 1, 3000)


@pytest.mark.parametrize("name", MODELS)
def test_the_floor_reads_a_prefix_once(name: str) -> None:
    """Both ways of reading have one floor, and neither bound is below it.

    Work is that of separate sequences, but for latent attention, which may do less.
    """
    plain = Case(find_model(name), h100())
    each = replace(plain, shared_prefix=3000)
    rows = [
        step_row(case, case.step(64, 4000), 64, 4000)
        for case in (plain, each, replace(each, prefix_once=True))
    ]

    assert rows[1]["floor_s"] == rows[2]["floor_s"] < rows[0]["floor_s"]
    assert rows[2]["floor_s"] <= rows[2]["bound_s"] * (1 + 1e-12)
    assert rows[2]["bound_s"] < rows[1]["bound_s"] == rows[0]["bound_s"]
    assert rows[1]["flops"] == rows[0]["flops"] >= rows[2]["flops"]
    assert rows[0]["kv_cache_bytes"] > rows[1]["kv_cache_bytes"] == rows[2]["kv_cache_bytes"]
    for key in ("weights_bytes", "activations_bytes", "state_bytes"):
        assert rows[0].get(key) == rows[1].get(key)


def test_the_worked_case_of_llama() -> None:
    """32 sequences of 2048 shared tokens and 512 of their own, 131,072 bytes a token.

    By hand: stored and read once 2048 + 32 * 512 = 18,432 tokens; for each 32 * 2560 = 81,920. The
    shared part has the work of 32 sequences and the bytes of one: 32 * N/K = 128 FLOP/B.
    """
    case = Case(find_model("llama-3-8b"), h100(), shared_prefix=2048)
    once = replace(case, prefix_once=True)

    assert memory(case, case.step(32, 2560), ())["kv_cache_bytes"] == 18_432 * 131_072
    assert read(case, 32, 2560) == 81_920 * 131_072
    assert read(once, 32, 2560) == 18_432 * 131_072
    alone = replace(once, shared_prefix=2559)
    (op,) = (o for o in alone.ledger(alone.step(32, 2560)) if o.name == "attention")
    shared = 4 * 32 * 128 * 32 * 2559 / (2559 * 4096)
    assert shared == 128
    assert op.flops / op.read_bytes == pytest.approx(shared, rel=0.02)


def test_latent_attention_makes_the_keys_of_a_prefix_once() -> None:
    """The cheapest of three forms is taken; by hand the mixed one is ahead from 171 sequences.

    Making keys and values of a token takes 2Nc(d + v), and saves each sequence 2N(2c + r) less
    2N(d + r + v): 131072/768 = 170.7 sequences (arXiv 2509.21081 keeps them made instead).
    """
    widths = (128, 512, 64, 128, 128)
    mixer = MLA(N=128, c=512, r=64, d=128, v=128)
    model = Model(name="mla", D=64, V=64, groups=(Group(1, mixer, MLP(F=64)),))
    case = Case(model, h100(), shared_prefix=4096, prefix_once=True)
    for B, mixed in ((1, False), (170, False), (171, True), (512, True)):
        (op,) = (o for o in case.ledger(case.step(B, 5120)) if o.name == "attention")
        absorbed = B * absorbed_flops(5120, 1, *widths)
        both = materialised_flops(B * 4096, 4096, *widths)
        both += B * absorbed_flops(1024, 1, *widths)
        assert op.flops == min(absorbed, both)
        assert (op.flops < absorbed) == mixed
        assert mixed_flops(B, 4096, 1024, *widths) == both


def test_several_sequences_of_layouts_share_on_each_group() -> None:
    """Two replicas of 8 sequences hold the prefix once each; ranks of a group as their heads."""
    h, S, token = 1024, 1536, 131_072

    def cache(ways: str) -> int:
        layout: Typed = dict(zip(["tp", "dp", "replicas"], ways.split(), strict=True))
        typed = Counting(terms={"shared_prefix": str(h)})
        case = find_case("llama-3-8b", "h100-sxm", [], None, None, typed, layout)
        row = step_row(case, case.step(16, S), 16, S)
        return row["kv_cache_bytes"]

    assert cache("1 1 2") == token * (h + 8 * (S - h))
    assert cache("4 1 1") * 4 == token * (h + 16 * (S - h))
    assert cache("1 2 1") == token * (h + 8 * (S - h))


def test_blocks_of_a_prefix_are_set_aside_once() -> None:
    """A paged engine shares whole blocks of 16: of 1000 tokens 62 blocks, of the context 188."""
    case = Case(find_model("llama-3-8b"), h100(), shared_prefix=1000)

    assert reserved(case, 8, 3000)["paged"] == 131_072 * 16 * (62 + 8 * (188 - 62))


def test_more_sequences_fit() -> None:
    """The most that fit by a search is the most by hand: what is left after weights and prefix."""
    case = Case(find_model("llama-3-8b"), h100(), shared_prefix=8000)
    most = max_sequences(case, 8192)
    limit = case.limit[0]

    assert memory_bytes(case, most, 8192) <= limit < memory_bytes(case, most + 1, 8192)
    own = (limit - 16_060_522_496 - 8000 * 131_072) / (192 * 131_072)
    assert 0.9 * own < most <= own
    assert most > 10 * max_sequences(replace(case, shared_prefix=0), 8192)


LATENT = Model("latent", 640, 6400, (Group(3, MLA(N=4, c=32, r=8, d=16, v=16), MLP(960)),))


@pytest.mark.parametrize(
    ("name", "once", "keys"),
    [
        ("llama-3-8b", False, ("kv_cache_bytes", "bytes", "bound_s", "floor_s")),
        ("llama-3-8b", True, ("memory_bytes", "flops", "bound_s", "floor_s")),
        ("gemma-3-27b", True, ("kv_cache_bytes", "bytes", "reserved_kv_cache_bytes.paged")),
        ("latent", False, ("floor_s", "kv_cache_bytes")),
    ],
)
def test_formulas_of_figures_give_the_figures(name: str, once: bool, keys: tuple[str, ...]) -> None:
    """`explain` writes what `sweep` computes, prefix included."""
    model = LATENT if name == "latent" else find_model(name)
    case = Case(model, h100(), shared_prefix=3000, prefix_once=once)
    row = step_row(case, case.step(300, 3500), 300, 3500)
    row["reserved_kv_cache_bytes.paged"] = reserved(case, 300, 3500)["paged"]
    for key in keys:
        answer = explain(Question(case, 300, 3500), key)
        assert answer["value"] == pytest.approx(row[key], rel=1e-12), key
    if "kv_cache_bytes" in keys:
        assert "h" in explain(Question(case, 300, 3500), "kv_cache_bytes")["letters"]


def test_a_grid_equals_its_points() -> None:
    """More points than are computed one by one give the same rows."""
    case = Case(find_model("gemma-3-27b"), h100(), shared_prefix=500, prefix_once=True)
    batches, contexts = list(range(1, 61)), list(range(501, 2001, 100))
    rows = sweep(case, batches, contexts)["rows"]

    assert len(rows) == 900
    for i in (0, 59, 333, 899):
        B, S = rows[i]["batch"], rows[i]["context_tokens"]
        alone = step_row(case, case.step(B, S), B, S)
        for key in ("kv_cache_bytes", "bytes", "bound_s", "floor_s"):
            assert rows[i][key] == pytest.approx(alone[key], rel=1e-12)


def test_layers_on_the_host_share_as_well(rooflm: Terminal) -> None:
    """Half of the layers in host memory hold half of the cache there, the prefix once."""
    words = words_of("llama-3-8b --on rtx-4090 --batch 8 --context 3000 --shared-prefix 2000")
    row = only(rooflm.json("sweep", *words, "--gpu-layers", "16", "--host-link", "31.5GB")["rows"])
    layer = 218_112_000

    assert row["kv_cache_bytes"] == 16 * 4096 * (2000 + 8 * 1000)
    table = 2 * 128_256 * 4096
    assert row["host_bytes"] == 16 * (2 * layer + 4096 * (2000 + 8 * 1000)) + table


def test_reading_once_has_no_estimate(rooflm: Terminal) -> None:
    """No published step reads a prefix once: null with a reason; for each the estimate stays."""
    words = words_of("llama-3-8b --on h100-sxm --batch 32 --context 2560")
    plain = only(rooflm.json("sweep", *words)["rows"])
    each = rooflm.json("sweep", *words, "--shared-prefix", "2048")
    once = rooflm.json("sweep", *words, "--shared-prefix", "2048", "--prefix-reads", "once")

    assert only(each["rows"])["estimate_s"] == plain["estimate_s"]
    assert only(once["rows"])["estimate_s"] is None
    assert "no estimate: no published step reads a shared prefix once" in "".join(
        once["assumptions"]
    )
    assert (each["shared_prefix_tokens"], each["prefix_reads"]) == (2048, "each")
    assert once["prefix_reads"] == "once"
    assert "shared_prefix_tokens" not in rooflm.json("sweep", *words)


def test_states_are_said_to_be_stored_for_each(rooflm: Terminal) -> None:
    """A hybrid shares the cache of its attention layers; its states it does not, and says so."""
    words = words_of("qwen3-next-80b-a3b --on h100-sxm --batch 4 --context 4096")
    plain = rooflm.json("sweep", *words)
    shared = rooflm.json("sweep", *words, "--shared-prefix", "4000")

    assert only(shared["rows"])["state_bytes"] == only(plain["rows"])["state_bytes"]
    assert only(shared["rows"])["kv_cache_bytes"] < only(plain["rows"])["kv_cache_bytes"]
    assert any("states are not shared" in line for line in shared["assumptions"])


def test_every_command_takes_a_shared_prefix(rooflm: Terminal) -> None:
    """fit, compare, roofline, explain and solve agree with sweep."""
    words = ("llama-3-8b", "--on", "h100-sxm", "--context", "2560", "--shared-prefix", "2048",
             "--prefix-reads", "once")  # fmt: skip
    point = (*words, "--batch", "32")
    row = only(rooflm.json("sweep", *point)["rows"])

    assert rooflm.json("fit", *point)["memory"]["kv_cache_bytes"] == row["kv_cache_bytes"]
    assert only(rooflm.json("compare", *point)["rows"])["bound_s"] == row["bound_s"]
    operators = rooflm.json("roofline", *point)["operators"]
    assert sum(o["bound_s"] for o in operators) == pytest.approx(row["bound_s"])
    value = rooflm.json("explain", "bound_s", *point)["value"]
    assert value == pytest.approx(row["bound_s"], rel=1e-12)
    solved = rooflm.json("solve", "batch", *words)
    assert solved["value"] == rooflm.json("fit", *point)["max_sequences"]
    longest = rooflm.json("solve", "context", *point)["value"]
    case = Case(find_model("llama-3-8b"), h100(), shared_prefix=2048)
    limit = case.limit[0]
    assert memory_bytes(case, 32, longest) <= limit < memory_bytes(case, 32, longest + 1)
    # More sequences than even one own token of each has room for.
    none = rooflm("solve", "context", *words, "--batch", "500k")
    assert none.code == 1
    assert "2,049 tokens take" in none.out


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("sweep llama-3-8b --shared-prefix 1024", "leaves none of 1,024"),
        ("fit llama-3-8b --shared-prefix 2k --context 4k,2k", "leaves none of 2,000"),
        ("compare llama-3-8b --shared-prefix 1024", "leaves none"),
        ("roofline llama-3-8b --shared-prefix 1024", "leaves none"),
        ("explain bound_s llama-3-8b --shared-prefix 1024", "leaves none"),
        ("solve batch llama-3-8b --shared-prefix 1024", "leaves none"),
        ("solve context llama-3-8b --shared-prefix 9 --when compute-bound", "Sweep --context"),
        ("sweep llama-3-8b --prefix-reads once", "Say --shared-prefix"),
        ("sweep llama-3-8b --shared-prefix 9 --prefix-reads twice", "each, once"),
        ("sweep llama-3-8b --shared-prefix 9 --phase request", "--prefix"),
        ("compare llama-3-8b --shared-prefix 9 --phase prefill", "--prefix"),
        ("sweep llama-3-8b --shared-prefix 9 --context 10,20@mixed", "different lengths"),
        ("sweep llama-3-8b --shared-prefix 9 --accounting lecture", "lecture"),
        ("sweep llada-8b --shared-prefix 9", "keeps no cache"),
        ("sweep llama-3-8b --shared-prefix 9 --denoise-block 32 --denoise-steps 8", "denoised"),
        ("sweep deepseek-v3.2 --shared-prefix 9", "mla+indexer layers share"),
        ("sweep deepseek-v4-flash --shared-prefix 9", "layers share of a prefix is not"),
        ("sweep llama-4-scout --shared-prefix 9", "chunked layers share"),
    ],
)
def test_what_is_not_modelled_is_refused(rooflm: Terminal, words: str, part: str) -> None:
    """Contradictions and layers of which it is not known exit 2 with a sentence."""
    ran = rooflm(*words.split(), "--on", "h100-sxm")

    assert ran.code == 2
    assert part in ran.err


def test_the_work_of_figures_is_one_text() -> None:
    """`figures` of a segment made by hand is that of the case."""
    case = Case(find_model("llama-3-8b"), h100(), BF16, shared_prefix=100, prefix_once=True)
    segments = case.step(4, 200)
    assert (segments[0].shared, segments[0].shared_once) == (100, True)
    by_hand = [replace(segments[0], shared=0, shared_once=False)]
    plain = Case(find_model("llama-3-8b"), h100())

    with_, without = (
        figures(of, s, of.ledger(s), 4) for of, s in ((case, segments), (plain, by_hand))
    )
    assert without["bytes"] - with_["bytes"] == 3 * 100 * 131_072
