"""Layouts: what each rank holds and computes, and what it sends."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from rooflm.calc.attention import Attention, NoMixer
from rooflm.calc.collectives import distinct_destinations, replica_throughput
from rooflm.calc.communication import Link, Links, sent_operators
from rooflm.calc.compressed import Compressed
from rooflm.calc.entries import build_model
from rooflm.calc.errors import RooflmError
from rooflm.calc.experts import Experts, NoFeedForward
from rooflm.calc.layout import (
    Layout,
    Rank,
    fullest,
    rank_ledger,
    remarks,
    shard,
    tp_degrees,
)
from rooflm.calc.linear_attention import DeltaNet, LinearAttention
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.mlstm import MLSTM
from rooflm.calc.model import (
    Group,
    Model,
    cache_elements,
    ledger,
    parameters,
    sequence_state_bytes,
    total_parameters,
)
from rooflm.calc.passes import BF16, Segment, decode
from rooflm.calc.presets import MODELS_FILE, find_model, load_all
from rooflm.calc.rglru import RGLRU
from rooflm.calc.rwkv import RWKV4
from rooflm.calc.short_conv import ShortConv
from rooflm.calc.side_by_side import SideBySide
from rooflm.calc.sparse import SparseAttention, SparseMLA
from rooflm.calc.ssm import Mamba, Mamba2
from rooflm.calc.timing import flops

from .helpers import messages

LINK = Link(450e9, 2e-6)
FAR = 100_000
"""A context beyond most windows [tokens]."""


@cache
def presets() -> list[Model]:
    """Load every preset once."""
    return load_all(MODELS_FILE, build_model)


def expert_sets(model: Model) -> int:
    """Fewest experts of a layer."""
    return min((g.ffn.E for g in model.groups if isinstance(g.ffn, Experts)), default=1)


def layouts(model: Model) -> list[Layout]:
    """List layouts that a model allows, each axis alone and several together."""
    ways = [t for t in tp_degrees(model) if 1 < t <= 64]
    found = [Layout(tp=t) for t in ways] + [Layout(pp=p) for p in (2, 3) if p <= model.layers]
    found += [Layout(tp=t, pp=2, replicas=3) for t in ways if model.layers > 1]
    for ranks in (2, 3, 8, 64):
        if 1 < ranks <= expert_sets(model):
            found += [Layout(dp=ranks, ep=ranks)]
    if 1 < 2 * (t := min(ways, default=8)) <= expert_sets(model):
        found += [Layout(dp=2, tp=t, ep=2 * t)] if t in ways else []
    return found


def summed(ranks: list[Rank]) -> dict[str, int]:
    """Add the parameters of all ranks up by part."""
    parts: dict[str, int] = {}
    for rank in ranks:
        for part, number in parameters(rank.model).items():
            parts[part] = parts.get(part, 0) + rank.count * number
    return parts


def test_one_device_holds_the_model_itself() -> None:
    """With every degree 1 the rank's model equals the model, and so does what it executes."""
    for model in presets():
        (rank,) = shard(model, Layout())
        (copy,) = shard(model, Layout(replicas=3))

        assert rank.model == copy.model == model
        assert (rank.count, copy.count) == (1, 3)
        assert not remarks(model, Layout())
        assert not messages(model, Layout(), decode(4, 100), LINK)
        assert rank_ledger(rank, decode(4, 100)) == ledger(model, decode(4, 100))


def test_ranks_together_hold_everything() -> None:
    """Ranks add up to the devices and hold every part at least once; what is split, exactly."""
    for model in presets():
        whole = parameters(model)
        for layout in layouts(model):
            ranks = shard(model, layout)
            sums = summed(ranks)

            assert sum(r.count for r in ranks) == layout.devices
            for part, number in whole.items():
                # A stage at the end has its table as an embedding.
                if part not in ("head", "embedding"):
                    assert sums.get(part, 0) >= layout.replicas * number, (model.name, layout, part)
            assert sums["embedding"] + sums["head"] >= layout.replicas * (
                whole["embedding"] + whole["head"]
            )
            experts = [g.ffn for g in model.groups if isinstance(g.ffn, Experts)]
            if "experts" in whole and not any(e.bias for e in experts):
                assert sums["experts"] == layout.replicas * whole["experts"], (model.name, layout)


def test_what_is_split_adds_up_exactly() -> None:
    """Query heads, MLP columns and keys up to K heads of a Llama add up to the whole's."""
    model = find_model("llama-3-70b")
    for tp in (2, 8, 16):
        (rank,) = shard(model, Layout(tp=tp))
        held, whole = summed([rank]), parameters(model)
        copied = max(0, tp - 8) * 2 * 80 * 8192 * 128

        assert held["mlp"] == whole["mlp"]
        assert held["attention"] == whole["attention"] + copied
        assert held["norms"] == tp * whole["norms"]


def rank_state(rank: Rank, sequences: int) -> tuple[float, float, float]:
    """Tell weights, cache and state of a rank."""
    held = rank.layout.resident(sequences)
    return (
        total_parameters(rank.model),
        held * rank.cache_elements(FAR),
        held * sequence_state_bytes(rank.model, BF16),
    )


def test_nothing_grows_along_an_axis() -> None:
    """More ranks of one axis never hold more weights, cache or state each."""
    for model in presets():
        ways = [t for t in tp_degrees(model) if t <= 64]
        sets = [n for n in (1, 2, 4, 5, 8, 64) if n <= expert_sets(model)]
        experts = [g.ffn for g in model.groups if isinstance(g.ffn, Experts)]
        # What remains of several kinds of layers may meet on a stage of a longer pipeline.
        stages = (1, 2, 4, 8, 16) if len(model.groups) > 1 else range(1, 20)
        # Where experts are split before, sets of different size may hold more than that.
        even = [n for n in sets if all(x.F % 64 == 0 and x.E % n == 0 for x in experts)]
        axes = [
            [Layout(tp=t) for t in ways],
            [Layout(pp=p) for p in stages if p <= model.layers],
            [Layout(dp=n, ep=n) for n in sets],
            [Layout(dp=64, ep=n) for n in even if 64 % n == 0],
            [Layout(replicas=n) for n in (1, 2, 3)],
        ]
        for axis in axes:
            states = [[rank_state(r, 384) for r in shard(model, x)] for x in axis]
            for i in range(3):
                most = [max(state[i] for state in ranks) for ranks in states]
                # Of two end stages with equal layers the last one has the final norm as well.
                norm = model.D if i == 0 else 0
                for before, after in pairwise(most):
                    assert after <= before + norm, (model.name, axis, i, most)


def test_stages_of_a_longer_pipeline_have_no_more_layers() -> None:
    """One more stage never gives any stage more layers, of any kind or of all."""
    for model in presets():
        most = [g.count for g in model.groups] + [model.layers]
        for pp in range(2, min(model.layers, 20) + 1):
            ranks = shard(model, Layout(pp=pp))
            before = most
            most = [max(held(r, g.name) for r in ranks) for g in model.groups]
            most += [max(r.model.layers for r in ranks)]
            assert all(n <= m for n, m in zip(most, before, strict=True)), (model.name, pp)
            assert most[-1] - min(r.model.layers for r in ranks) <= 1


def held(rank: Rank, kind: str) -> int:
    """Count the layers of a kind on a rank."""
    return sum(g.count for g in rank.model.groups if g.name == kind)


def test_latents_are_whole_on_every_rank() -> None:
    """Tensor parallelism does not shrink a latent cache; its weights lose the heads alone."""
    for name in ("deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash"):
        model = find_model(name)
        for tp in (2, 8, 64):
            (rank,) = shard(model, Layout(tp=tp))

            assert rank.cache_elements(FAR) == cache_elements(model, FAR)
    (rank,) = shard(find_model("deepseek-v3"), Layout(tp=8))
    held = rank.model.groups[0].mixer.parameters(7168)["attention"]
    down = 7168 * 1536 + 7168 * 576
    split = 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168

    assert held == down + split // 8
    assert "latents and their projections are whole on each of 8 ranks" in remarks(
        find_model("deepseek-v3"), Layout(tp=8)
    )


def test_copies_of_a_head_are_dealt_out_by_tokens() -> None:
    """Context parallelism divides what tensor parallelism copied, and no more."""
    model = find_model("deepseek-v3")
    for cp in (1, 2, 8):
        (rank,) = shard(model, Layout(tp=8, cp=cp))

        assert rank.cache_elements(FAR) == cache_elements(model, FAR) / cp
    llama = find_model("llama-3-70b")
    (rank,) = shard(llama, Layout(tp=16, cp=2))
    assert rank.cache_elements(FAR) == cache_elements(llama, FAR) / 16
    with pytest.raises(
        RooflmError, match=r"8 ranks hold 1 copies of a token, not 2.*Possible: 1\."
    ):
        shard(llama, Layout(tp=8, cp=2))
    with pytest.raises(RooflmError, match=r"--cp.*Possible: 1, 2, 4 or 8"):
        Layout(tp=8, cp=16)


def test_states_and_groups_are_split_by_heads() -> None:
    """A state is divided; groups of Mamba-2 are copied beyond their number, as key heads are."""
    model = find_model("nemotron-h-8b")
    (rank,) = shard(model, Layout(tp=16))
    mixer: Any = rank.model.groups[0].mixer

    assert (mixer.heads, mixer.groups) == (8, 1)
    assert mixer.state.recurrent == 128 * 64 * 128 // 16
    assert mixer.state.columns == 3 * (8 * 64 + 2 * 128)


ATTENTION, SSD = Attention(N=8, K=2, H=4), Mamba2(heads=8, width=4, s=4, groups=2)


@pytest.mark.parametrize(
    ("layer", "changed"),
    [
        # Heads are divided; two heads of keys, or groups, are as few as one on each of four ranks.
        (ATTENTION, {"N": 2, "K": 1}),
        (SparseAttention(N=8, K=4, H=4, index_heads=4, index_width=4, top=2), {"N": 2, "K": 1}),
        # Latents and indexers are whole.
        (MLA(N=8, c=4, r=2, d=4, v=4), {"N": 2}),
        (SparseMLA(N=8, c=4, r=2, d=4, v=4, index_heads=4, index_width=4, top=2), {"N": 2}),
        (Compressed(N=8, H=4, q=4, window=4, groups=2, rank=4), {"N": 2, "groups": 1}),
        (Mamba(d=8, s=2, r=3), {"d": 2}),
        (SSD, {"heads": 2, "groups": 1}),
        (LinearAttention(heads=8, key=3, value=5), {"heads": 2}),
        (DeltaNet(key_heads=2, value_heads=8, key=3, value=5), {"key_heads": 1, "value_heads": 2}),
        (MLSTM(heads=8, key=3, value=5), {"heads": 2}),
        (RWKV4(D=32, A=8), {"A": 2}),
        (RGLRU(width=32, blocks=8), {"width": 8, "blocks": 2}),
        (ShortConv(D=32), {"D": 8}),
        (SideBySide(ATTENTION, SSD),
         {"first": replace(ATTENTION, N=2, K=1), "second": replace(SSD, heads=2, groups=1)}),
    ],
    ids=lambda x: "" if isinstance(x, dict) else type(x).__name__,
)  # fmt: skip
def test_what_tensor_parallelism_divides(layer: Any, changed: dict[str, Any]) -> None:
    """What each of four ranks holds of a layer; every other dimension is as it was."""
    model = Model("four", 32, 500, (Group(1, layer, MLP(F=8)),))
    (rank,) = shard(model, Layout(tp=4))
    (group,) = rank.model.groups

    assert group.mixer == replace(layer, **changed)
    assert (group.ffn, rank.count) == (MLP(F=2), 4)
    # A table is padded to whole 64 rows, 128 a rank.
    assert rank.model.V == 128


def test_uneven_stages_differ_by_a_layer() -> None:
    """Layers are dealt out so that stages differ by one at the most, remainders first."""
    model = find_model("deepseek-v3")
    ranks = shard(model, Layout(pp=7))

    layers = [r.model.layers for r in ranks for _ in range(r.count)]
    assert sum(layers) == 61
    assert max(layers) - min(layers) == 1
    assert layers == sorted(layers, reverse=True)
    for group in model.groups:
        assert sum(r.count * held(r, group.name) for r in ranks) == group.count


def test_only_the_ends_of_a_pipeline_have_tables() -> None:
    """The first stage holds the embedding, the last the head, and those between neither."""
    model = find_model("llama-3-70b")
    first, middle, last = shard(model, Layout(pp=4))
    table = model.V * model.D

    assert (first.count, middle.count, last.count) == (1, 2, 1)
    assert [parameters(r.model)["embedding"] for r in (first, middle, last)] == [table, 0, table]
    assert [parameters(r.model)["head"] for r in (first, middle, last)] == [0, 0, 0]
    names = [{o.name for o in rank_ledger(r, decode(8, 100))} for r in (first, middle, last)]
    assert ["embedding" in n for n in names] == [True, False, False]
    assert ["head" in n for n in names] == [False, False, True]
    read = sum(o.count * o.weight_bytes for o in rank_ledger(middle, decode(8, 100)))
    assert read == 2 * total_parameters(middle.model)
    assert fullest([middle, first]) is first


def test_uneven_experts_are_dealt_out() -> None:
    """60 experts on 8 ranks: four hold 8 and four hold 7; each keeps the whole router."""
    model = find_model("qwen1.5-moe-a2.7b")
    full, short = shard(model, Layout(dp=8, ep=8))
    ffns = [r.model.groups[0].ffn for r in (full, short)]

    assert (full.count, short.count) == (4, 4)
    assert [f.E for f in ffns if isinstance(f, Experts)] == [8, 7]
    assert {parameters(r.model)["router"] for r in (full, short)} == {parameters(model)["router"]}
    assert "8 sets of experts are not equal: some hold one more" in remarks(
        model, Layout(dp=8, ep=8)
    )


@pytest.mark.parametrize("layout", [Layout(dp=8, ep=8), Layout(dp=4, tp=2, ep=8), Layout(dp=2)])
def test_experts_compute_the_tokens_of_all_groups(layout: Layout) -> None:
    """Experts of all ranks do the FLOPs of the whole pass and read at most its weights."""
    model = find_model("qwen3-235b-a22b")
    ranks = shard(model, layout)
    whole = {o.name: o for o in ledger(model, decode(64, 1000))}
    parts = [(r.count, {o.name: o for o in rank_ledger(r, decode(64, 1000))}) for r in ranks]

    for name in ("experts up", "experts down"):
        for field in ("flops", "weight_bytes"):
            added = sum(count * getattr(ops[name], field) for count, ops in parts)
            assert added == pytest.approx(getattr(whole[name], field), rel=1e-12)
    attended = sum(count * ops["attention"].flops for count, ops in parts)
    assert attended == pytest.approx(whole["attention"].flops, rel=1e-12)


@pytest.mark.parametrize("tp", [1, 2, 8, 64])
def test_flops_of_the_ranks_are_those_of_the_model(tp: int) -> None:
    """Tensor parallelism divides a Llama's FLOPs, but for keys beyond K heads and padded rows."""
    model = find_model("llama-3-70b")
    (rank,) = shard(model, Layout(tp=tp))
    work = tp * flops(rank_ledger(rank, decode(16, 4096)))
    copied = max(0, tp - 8) * 2 * 16 * 80 * 8192 * 2 * 128
    padded = 2 * 16 * 8192 * (tp * rank.model.V - model.V)

    assert work == flops(ledger(model, decode(16, 4096))) + copied + padded


def test_a_cache_that_is_dealt_out_is_read_in_parts() -> None:
    """With cp a rank reads and writes its share of the cache, and streams the same weights."""
    model = find_model("deepseek-v3")
    (whole,), (part,) = shard(model, Layout(tp=8)), shard(model, Layout(tp=8, cp=4))
    before, after = rank_ledger(whole, decode(8, 4096)), rank_ledger(part, decode(8, 4096))

    for one, other in zip(before, after, strict=True):
        assert (one.flops, one.weight_bytes) == (other.flops, other.weight_bytes)
        assert other.read_bytes == one.read_bytes / 4
        assert other.write_bytes == one.write_bytes / 4


def test_replicas_scale_throughput_exactly() -> None:
    """Twice the replicas and twice the sequences: the same pass, twice the tokens."""
    model = find_model("llama-3-8b")
    one, two = Layout(replicas=1, tp=2), Layout(replicas=2, tp=2)
    passes = [rank_ledger(shard(model, x)[0], decode(32 * x.replicas, 512)) for x in (one, two)]

    assert passes[0] == passes[1]
    assert replica_throughput(32 / 0.01, 2) == 64 / 0.01
    assert (one.devices, two.devices) == (2, 4)


def test_a_layout_divides_sequences() -> None:
    """Replicas and groups share the sequences that are held, and stages take turns at them."""
    layout = Layout(replicas=2, dp=4, tp=2, pp=3, ep=8)

    assert (layout.devices, layout.stage_ranks, layout.expert_tp) == (48, 8, 1)
    assert (layout.resident(100), layout.running(100)) == (13, 5)
    first, *_, last = shard(find_model("deepseek-v3"), layout)
    assert first.segments([Segment(100, 7, 3, 2)]) == [Segment(5, 7, 3, 0)]
    assert last.segments([Segment(100, 7, 3, 2)]) == [Segment(5, 7, 3, 2)]


@pytest.mark.parametrize(
    ("name", "axes", "says"),
    [
        ("llama-3-70b", {"tp": 3},
         r"64 query heads cannot be split 3 ways \(--tp\)\. Possible: 1, 2, 4, 8, 16, 32 or 64\."),
        ("qwen2.5-7b", {"tp": 8}, r"28 query heads .* Possible: 1, 2 or 4"),
        ("llama-3-70b", {"pp": 81}, r"80 layers do not make 81 stages \(--pp\)\. .* 1 to 80\."),
        ("mixtral-8x7b", {"dp": 16, "ep": 16},
         r"8 experts cannot be dealt out to 16 sets \(--ep\)\. Possible: 1, 2, 4 or 8"),
        ("llama-3-8b", {"dp": 2, "ep": 2}, r"no experts \(--ep\)\. Possible: 1\."),
        ("granite-4.0-h-small", {"dp": 5}, r"768 columns of an expert cannot be split 5 ways"),
        ("rwkv-7-2.9b", {"tp": 2}, r"how ranks split rwkv7 layers is not known"),
        ("recurrentgemma-2b", {"tp": 4}, r"10 blocks of the gates .* Possible: 1, 2, 5 or 10"),
        ("mamba-2.8b", {"tp": 2, "cp": 2}, r"not 2 to deal out"),
    ],
)  # fmt: skip
def test_impossible_degrees_name_the_possible_ones(
    name: str, axes: dict[str, int], says: str
) -> None:
    """A degree that a model does not allow is refused with those that it does."""
    with pytest.raises(RooflmError, match=says):
        shard(find_model(name), Layout(**axes))


def test_impossible_layouts_are_refused_without_a_model() -> None:
    """Degrees are at least 1, and experts span ranks that are there."""
    for axis in (f.name for f in fields(Layout)):
        with pytest.raises(RooflmError, match=f"--{axis}"):
            Layout(**{axis: 0})
    with pytest.raises(RooflmError, match=r"8 ways do not divide the 4 ranks.*Possible: 1, 2 or 4"):
        Layout(dp=2, tp=2, ep=8)


def test_the_vocabulary_is_padded_and_told() -> None:
    """Tables are padded to a multiple of 64 rows, and what that adds is said.

    As github.com/vllm-project/vllm does, vocab_parallel_embedding.py (DEFAULT_VOCAB_PADDING_SIZE).
    """
    model, layout = find_model("gpt2"), Layout(tp=4)
    (rank,) = shard(model, layout)

    assert rank.model.V == 64 * 786 / 4
    assert "the vocabulary is padded from 50,257 to 50,304 rows" in remarks(model, layout)
    assert "8 key/value heads are stored as 16 on 16 ranks" in remarks(
        find_model("llama-3-70b"), Layout(tp=16)
    )
    assert "10 key/value heads are stored as 12 on 4 ranks" in remarks(
        find_model("phi-4"), Layout(tp=4)
    )


def sent(name: str, layout: Layout, B: int = 16) -> dict[str, Any]:
    """List what a decode step of a preset sends, by name."""
    found = messages(find_model(name), layout, decode(B, 4096), LINK)
    return {c.name: (c.count, c.kind, c.bytes, c.ranks) for c in found}


def test_tensor_parallelism_adds_up_twice_a_layer() -> None:
    """Each layer adds up b_x B D bytes after attention and after the MLP; tables once each."""
    row = 16 * 8192 * 2
    assert sent("llama-3-70b", Layout(tp=8)) == {
        "embedding": (1, "all-reduce", row, 8),
        "after mixer": (80, "all-reduce", row, 8),
        "after MLP": (80, "all-reduce", row, 8),
        "logits": (1, "all-gather", 16 * 128256 * 2, 8),
    }


def test_groups_that_share_whole_experts_gather_all_rows() -> None:
    """Four groups of 16 rows: each rank gathers 64 rows of D; in nodes of 8 all of it goes far.

    A ring of n ranks sends (n - 1)/n of the tensor (scaling-book, sharding.md).
    """
    model, layout = find_model("deepseek-v3"), Layout(tp=4, dp=4)
    size = 64 * 7168 * 2
    found = sent("deepseek-v3", layout, B=64)
    assert found["tokens of all groups moe"] == (58, "all-gather", size, 4)

    rank, links = fullest(shard(model, layout)), Links(LINK, Link(25e9), node_devices=8)
    over = {op.name: op.seconds for op in sent_operators(rank, decode(64, 4096), BF16, links)}
    assert over["tokens of all groups moe"] == pytest.approx(3 / 4 * size / 25e9, rel=1e-12)


def test_channels_of_mamba_add_up_what_selects() -> None:
    """Jamba's x_proj makes a step of rank 256, and input and output of 16 each, of all channels."""
    found = sent("jamba-v0.1", Layout(tp=2))
    name = next(name for name in found if name.startswith("step, input and output"))

    assert found[name][1:] == ("all-reduce", 16 * (256 + 2 * 16) * 2, 2)


def test_layers_that_are_added_together_add_up_once() -> None:
    """Attention and MLP side by side share one all-reduce."""
    found = sent("command-r-35b", Layout(tp=2))

    assert found["after MLP"][:2] == (40, "all-reduce")
    assert "after mixer" not in found


def test_experts_exchange_rows_with_ranks() -> None:
    """Rows go once to each rank that holds an expert of theirs: t n(1 - C/C) D b_x (n-1)/n."""
    found = sent("deepseek-v3", Layout(dp=64, ep=64), B=64 * 128)
    copies = distinct_destinations(64, 256, 8)

    assert found.keys() == {"dispatch moe", "combine moe"}
    count, kind, size, ranks = found["dispatch moe"]
    assert (count, kind, ranks) == (58, "all-to-all", 64)
    assert size == pytest.approx(64 * 128 * copies * 7168 * 2, rel=1e-12)
    assert found["combine moe"] == found["dispatch moe"]


def test_groups_that_share_split_experts_gather_all_tokens() -> None:
    """Without expert parallelism rows of all groups are gathered, and results scattered."""
    found = sent("qwen3-30b-a3b", Layout(dp=4, tp=2), B=4)
    row = 2048 * 2

    assert found["tokens of all groups"] == (48, "all-gather", 4 * row, 4)
    assert found["results of all groups"] == (48, "reduce-scatter", 4 * row, 4)
    assert found["after MLP"] == (48, "all-reduce", row, 2)


def test_ranks_with_parts_of_a_cache_gather_queries() -> None:
    """Queries of all heads are gathered, and outputs combined with a log-sum-exp each."""
    mixer = Attention(N=64, K=1, H=128)
    model = Model("one", D=8192, V=1024, groups=(Group(3, mixer, MLP(64)),))
    found = messages(model, Layout(tp=8, cp=8), decode(8, 131072), LINK)
    sizes = {c.name: (c.kind, c.bytes, c.ranks) for c in found}

    assert sizes["queries"] == ("all-gather", 131072, 8)
    assert sizes["partial outputs"] == ("reduce-scatter", 133120, 8)


def test_stages_hand_the_stream_on() -> None:
    """A stage sends b_x B D bytes of its micro-batch, as many streams of them as there are."""
    assert sent("llama-3-70b", Layout(pp=4)) == {"next stage": (1, "point-to-point", 65536, 2)}
    streams = sent("deepseek-v4-flash", Layout(pp=4))["next stage"]
    assert streams == (1, "point-to-point", 4 * 4096 * 4 * 2, 2)


def test_no_link_costs_less_than_nothing() -> None:
    """Every preset's messages have positive bytes and take time."""
    for model in presets():
        for layout in layouts(model):
            found = messages(model, layout, decode(384, 100), LINK)
            assert found
            assert all(c.bytes > 0 and c.ranks > 1 and c.count > 0 for c in found)
            assert all(c.seconds > 0 for c in found)


def test_an_unknown_mixer_is_whole_without_tensor_parallelism() -> None:
    """A mixer that no rule is known for can be staged and copied, not split."""
    model = find_model("rwkv-7-2.9b")

    assert tp_degrees(model) == [1]
    assert sum(r.count for r in shard(model, Layout(pp=2, replicas=2))) == 4


def test_bytes_of_a_file_are_those_of_no_part() -> None:
    """Ranks that hold a part know no file size; replicas hold what the file does."""
    model = replace(find_model("llama-2-7b"), file_bytes=13, file_parameters=7)

    for layout, known in ((Layout(tp=2), None), (Layout(pp=2), None), (Layout(replicas=2), 13)):
        assert {rank.model.file_bytes for rank in shard(model, layout)} == {known}


def test_remaining_layers_go_by_weights_and_cache() -> None:
    """Of two kinds with a layer left over each, the one with the larger shares goes first.

    An MLP has 3840 of 6400 weights and no cache, attention 2560 and all of the cache.
    """
    kinds = Group(3, NoMixer(), MLP(F=40)), Group(3, ATTENTION, NoFeedForward())
    ranks = shard(Model("two", 32, 512, kinds), Layout(pp=2))

    assert [[g.count for g in rank.model.groups] for rank in ranks] == [[1, 2], [2, 1]]


def test_ends_of_a_pipeline_have_their_own_vectors() -> None:
    """The first stage has places, the last one the last norm and the bias of the head."""
    model = replace(find_model("gpt2"), head_bias=True)
    stages = [rank.model for rank in shard(model, Layout(pp=3))]

    assert [m.positions for m in stages] == [1024, 0, 0]
    assert [(m.final_norm, m.head_bias) for m in stages] == [(False, False)] * 2 + [(True, True)]
