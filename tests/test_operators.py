"""What each operator reads, writes and holds, by hand from the shapes of its rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflm.calc.attention import Attention, NoMixer
from rooflm.calc.compressed import Compressed
from rooflm.calc.errors import RooflmError
from rooflm.calc.experts import Experts, NoFeedForward, zipf_shares
from rooflm.calc.formats import CACHES, FORMATS
from rooflm.calc.linear_attention import DeltaNet, LinearAttention
from rooflm.calc.memory import (
    activations_bytes,
    largest,
    largest_near,
    reserved_cache_bytes,
    weights_bytes,
)
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.mlstm import MLSTM
from rooflm.calc.model import (
    Group,
    Model,
    active_parameters,
    cache_bytes,
    cache_elements,
    group_names,
    growing_elements,
    ledger,
    parameters,
    sequence_state_bytes,
    state_elements,
    streamed_parameters,
    token_bytes,
    token_elements,
    total_parameters,
    untouched_parameters,
)
from rooflm.calc.passes import BF16, Operator, Precision, Routing, Segment
from rooflm.calc.presets import MODELS_FILE, build_model, load_all
from rooflm.calc.residual import Residual
from rooflm.calc.rglru import RGLRU
from rooflm.calc.rwkv import RWKV4, RWKV7, ChannelMix
from rooflm.calc.short_conv import ShortConv
from rooflm.calc.side_by_side import SideBySide
from rooflm.calc.sparse import SparseAttention, SparseMLA
from rooflm.calc.ssm import Mamba, Mamba2
from rooflm.calc.timing import (
    Rates,
    TimeModel,
    compulsory_bytes,
    flops,
    operator_time,
    sending_time,
    shares,
    step_time,
)
from rooflm.calc.weights import parameters_of

ROWS: list[tuple[Any, dict[str, tuple[list[int], list[int]]]]] = [
    # Gated values of another width: 6 heads of 5 and 3, 2 of them with keys and values.
    (Attention(N=6, K=2, H=5, H_v=3, gate="width"), {
        "qkv": ([11, 30, 18], [11, 11, 30, 10, 6, 18]),
        "attention": ([30, 18], [11, 30, 10, 6, 18, 18]),
        "out": ([18, 11], [11, 18, 11]),
    }),
    # The embedding is read beside the input; a gate of one number a head; values are keys.
    (Attention(N=4, K=2, H=5, inputs=2, gate="head", value_is_key=True), {
        "qkv": ([22, 20, 4], [11, 22, 20, 10, 4]),
        "attention": ([20, 20], [11, 20, 10, 4, 20]),
        "out": ([20, 11], [11, 20, 11]),
    }),
    # The latent of the queries is written and read again; each head has an output as wide as the
    # latent before its values are made of it.
    (MLA(N=3, c=5, r=2, d=4, v=8, q=7), {
        "qkv": ([11, 7, 7, 18], [11, 11, 7, 18, 7]),
        "attention": ([18, 24], [11, 18, 15, 24]),
        "out": ([24, 11], [11, 24, 11]),
    }),
    (MLA(N=3, c=5, r=2, d=4, v=8), {
        "qkv": ([11, 18], [11, 11, 18, 7]),
        "attention": ([18, 24], [11, 18, 15, 24]),
    }),
    (SparseMLA(N=3, c=5, r=2, d=4, v=8, q=7, index_heads=2, index_width=3, top=4), {
        "index": ([11, 6, 3], [11, 11, 6, 3]),
        "qkv": ([11, 7, 7, 18], [11, 11, 7, 18, 7]),
    }),
    (SparseAttention(N=6, K=2, H=5, index_heads=2, index_width=3, top=4, block=2), {
        "index": ([11, 6, 3], [11, 11, 6, 3]),
        "qkv": ([11, 30], [11, 11, 30, 10, 10]),
    }),
    # Two windows overlap: values and gates of entries and index keys, 5 + 2 wide, each twice.
    (Compressed(N=4, H=5, q=7, window=3, groups=2, rank=6, m=2, index_heads=3, index_width=2,
                top=4), {
        "qkv": ([11, 7, 7, 20], [11, 11, 7, 20, 5]),
        "compress": ([11, 14, 14], [11, 11, 14, 14]),
        "index": ([7, 6], [11, 11, 6]),
        "attention": ([20, 20], [11, 20, 20]),
        "out": ([20, 12, 12, 11], [11, 20, 12, 11]),
    }),
    # Layers with a state: what the first matrices make, and what is left after the state.
    (Mamba(d=6, s=2, r=3), {
        "state in": ([11, 6, 6, 3, 2, 2], [11, 11, 6, 6, 3, 2, 2]),
        "state": ([19, 6], [11, 19, 6]),
        "state out": ([6, 11], [11, 6, 11]),
    }),
    (Mamba2(heads=3, width=4, s=5, groups=2), {
        "state in": ([11, 12, 12, 20, 3], [11, 11, 12, 12, 20, 3]),
        "state": ([47, 12], [11, 47, 12]),
    }),
    (LinearAttention(heads=2, key=3, value=5, gate=True), {
        "state in": ([11, 6, 6, 10, 10], [11, 11, 6, 6, 10, 10]), "state": ([32, 10], [11, 32, 10]),
    }),
    (DeltaNet(key_heads=2, value_heads=4, key=3, value=5), {
        "state in": ([11, 6, 6, 20, 4, 4, 20], [11, 11, 60]), "state": ([60, 20], [11, 60, 20]),
    }),
    (DeltaNet(key_heads=2, value_heads=4, key=3, value=5, decay="channel"), {
        "state in": ([11, 6, 6, 20, 4, 12, 20], [11, 11, 68]),
    }),
    (RWKV4(D=11, A=9), {"state in": ([11, 27], [11, 11, 27]), "state": ([27, 9], [11, 27, 9])}),
    # Receptance, key, value, decay, learning rate, value residual and gate.
    (RWKV7(D=11), {"state in": ([11, 77], [11, 11, 77]), "state": ([77, 11], [11, 77, 11])}),
    # Two branches and two gates.
    (RGLRU(width=8, blocks=2), {
        "state in": ([11, 8, 8, 8, 8], [11, 11, 32]), "state": ([32, 8], [11, 32, 8]),
    }),
    (ShortConv(D=11), {"state in": ([11, 33], [11, 11, 33]), "state": ([33, 11], [11, 33, 11])}),
    # Queries and keys, values and output gate, two gates a head.
    (MLSTM(heads=2, key=3, value=5), {
        "state in": ([11, 6, 6, 10, 10, 2, 2], [11, 11, 36]), "state": ([36, 10], [11, 36, 10]),
    }),
    (MLP(F=13), {
        "mlp up": ([11, 13], [11, 11, 13, 13, 13]), "mlp down": ([13, 11], [11, 13, 11]),
    }),
    (MLP(F=13, gated=False), {"mlp up": ([11, 13], [11, 11, 13, 13])}),
    (ChannelMix(F=13), {"mlp": ([11, 13, 13, 11], [11, 11, 13, 13])}),
    # Scores of 8 experts in fp32 are two elements each; two experts have the row of a token.
    (Experts(F=13, E=8, k=2, shared=5), {
        "router": ([11, 8, 8], [11, 11, 8, 8]),
        "experts up": ([11, 13, 11, 13], [11, 11, *2 * [11, 13, 13, 13]]),
        "experts down": ([13, 11, 13, 11], [11, 11, *2 * [13, 11]]),
        "shared up": ([11, 5], [11, 11, 5, 5, 5]),
        "shared down": ([5, 11], [11, 5, 11]),
    }),
    (Experts(F=13, E=8, k=2, latent=4), {
        "latent": ([11, 4, 4, 11], [11, 4, 11]),
        "experts up": ([4, 13, 4, 13], [11, 11, *2 * [4, 13, 13, 13]]),
        "experts down": ([13, 4, 13, 4], [11, 11, *2 * [13, 4]]),
    }),
]  # fmt: skip
"""A layer on rows 11 wide; of each operator the widths that a row of the pass reads and writes when
nothing is fused (what goes to the cache apart), and those that are alive, the residual first."""


@pytest.mark.parametrize(
    ("layer", "widths"), ROWS, ids=[f"{type(x).__name__}-{i}" for i, (x, _) in enumerate(ROWS)]
)
def test_rows_of_an_operator(layer: Any, widths: dict[str, tuple[list[int], list[int]]]) -> None:
    """Two sequences of three tokens: six rows of two bytes an element."""
    ops = {o.name: o for o in layer.operators(11, 1, [Segment(2, 3, 4)], BF16)}

    for name, (moved, alive) in widths.items():
        assert ops[name].activation_bytes == 6 * 2 * sum(moved), name
        assert ops[name].live_bytes == 6 * 2 * sum(alive), name


def test_rows_around_the_layers() -> None:
    """Two prompts of three tokens, the logits of one each: an embedding 6 wide, 17 words, 5 places.

    Norms read and write a row; logits are sampled in fp32.
    """
    layer = Group(2, NoMixer(), NoFeedForward(), norms=3, own=7)
    model = Model("by hand", 11, 17, (layer,), embedding_width=6, positions=5, head_bias=True)
    ops = {o.name: o for o in ledger(model, [Segment(2, 3, 0)])}

    found = {n: (o.count, o.flops, o.weight_bytes, o.activation_bytes, o.live_bytes)
             for n, o in ops.items()}  # fmt: skip

    assert found == {
        # A row of each of 6 tokens, and of 3 places.
        "embedding": (1, 0, 2 * (6 * 6 + 3 * 11), 2 * 6 * 6, 2 * 6 * 6),
        "project in": (1, 2 * 6 * 66, 2 * 66, 2 * 6 * (6 + 11), 2 * 6 * (6 + 11)),
        "norms": (6, 0, 2 * 11, 2 * 6 * 22, 2 * 6 * 22),
        "own": (2, 2 * 6 * 7, 2 * 7, 2 * 6 * 22, 2 * 6 * 22),
        "final norm": (1, 0, 2 * 11, 2 * 2 * 22, 2 * 2 * 22),
        "project out": (1, 2 * 2 * 66, 2 * 66, 2 * 2 * (11 + 6), 2 * 2 * (11 + 6)),
        "head": (1, 2 * 2 * 6 * 17, 2 * (6 * 17 + 17), 2 * (12 + 68), 2 * (12 + 68)),
    }
    bare = ledger(replace(model, final_norm=False, embedding_width=None), [Segment(2, 3, 0)])
    assert [o.name for o in bare] == ["embedding", "norms", "own", "head"]
    without = ledger(replace(model, norm="none", embedding_width=None), [Segment(2, 3, 0)])
    assert [o.name for o in without] == ["embedding", "own", "head"]


@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 12), st.integers(0, 4))
def test_tokens_that_queries_see(n: int, T: int, W: int, sinks: int) -> None:
    """Pairs, keys read and kept of windows, sinks and chunks are those of sets of positions."""
    full, chunked = Attention(N=4, K=2, H=8), Attention(N=4, K=2, H=8, chunk=W)
    window = Attention(N=4, K=2, H=8, window=W, sink_tokens=sinks)
    views: list[tuple[Attention, Callable[[int], set[int]]]] = [
        (full, lambda x: set(range(x + 1))),
        (window, lambda x: {p for p in range(x + 1) if p < sinks or p > x - W}),
        (chunked, lambda x: {p for p in range(x + 1) if p // W == x // W}),
    ]
    for layer, sees in views:
        seen = [sees(x) for x in range(n, n + T)]
        assert layer.pairs(n, T) == sum(map(len, seen))
        assert layer.seen_tokens(n, T) == len(frozenset[int]().union(*seen))
        # What the last query sees is kept, but of a chunk all that it may come to hold.
        kept = min(n + T, W) if layer is chunked else len(seen[-1])
        assert layer.kept_tokens(n + T) == kept
    prefix = {p for p in range(n) if p < sinks or p > n + T - 1 - W}
    assert window.common_tokens(n + T, n) == len(prefix)
    assert (window.growing_elements, chunked.growing_elements) == (0, 0)
    assert full.common_tokens(n + T, n) == n


@pytest.mark.parametrize(
    ("layer", "elements", "fp8"),
    [
        # Two heads of keys 5 and values 3 wide; a byte an element.
        (Attention(N=6, K=2, H=5, H_v=3), 2 * (5 + 3), 16),
        (Attention(N=6, K=2, H=5), 2 * (5 + 5), 20),
        (Attention(N=6, K=2, H=5, H_v=3, shares=True), 0, 0),
        # DeepSeek-V3.2's kernels: a byte an element of the latent, four bytes a scale of 128 of
        # them, rotary keys in bf16; index keys of 128 with a scale of their own.
        (MLA(N=128, c=512, r=64, d=128, v=128), 576, 656),
        (SparseMLA(N=8, c=512, r=64, d=128, v=128, index_heads=64, index_width=128, top=2048),
         704, 656 + 132),
        (SparseMLA(N=8, c=512, r=64, d=128, v=128, reads_choice=True, top=2048), 576, 656),
        (SparseAttention(N=6, K=2, H=64, index_heads=4, index_width=128, top=16, block=128),
         2 * 128 + 128, 256 + 132),
        (NoMixer(), 0, 0),
        (Mamba(d=6, s=2, r=3), 0, 0),
    ],
)  # fmt: skip
def test_cache_of_a_token(layer: Any, elements: int, fp8: int) -> None:
    """Elements, 16 bits and 8 bits of a token, of ten tokens, and of a layer in a model."""
    ten, kind = 10, Precision(cache=CACHES["fp8-deepseek"])

    assert layer.token_elements == layer.growing_elements == elements
    assert layer.reference_token_elements == elements
    assert (layer.token_bytes(BF16), layer.token_bytes(kind)) == (2 * elements, fp8)
    assert (layer.cache_elements(ten), layer.cache_bytes(ten, kind)) == (10 * elements, 10 * fp8)
    model = Model("of three", 64, 100, (Group(3, layer, NoFeedForward()),))
    assert token_elements(model) == growing_elements(model) == 3 * elements
    assert (token_bytes(model, kind), cache_bytes(model, ten, kind)) == (3 * fp8, 30 * fp8)


@pytest.mark.parametrize(
    ("layer", "needed", "kept"),
    [
        # State, and three columns of a convolution over four tokens, of which references keep four.
        (Mamba(d=6, s=2, r=3), (12, 18), (12, 24)),
        (Mamba2(heads=3, width=4, s=5, groups=2), (60, 96), (60, 128)),
        (DeltaNet(key_heads=2, value_heads=4, key=3, value=5), (60, 96), (60, 128)),
        (ShortConv(D=11), (0, 22), (0, 33)),
        (RGLRU(width=8, blocks=2), (8, 24), (8, 24)),
        # Numerator, denominator and exponent; the last token of both halves.
        (RWKV4(D=11, A=9), (27, 22), (27, 22)),
        (SideBySide(Mamba(d=6, s=2, r=3), ShortConv(D=11)), (12, 40), (12, 57)),
    ],
)
def test_states(layer: Any, needed: tuple[int, int], kept: tuple[int, int]) -> None:
    """Elements of the state and of columns, as needed and as the reference keeps them."""
    for state, expected in ((layer.state, needed), (layer.reference_state, kept)):
        assert (state.recurrent, state.columns, state.elements) == (*expected, sum(expected))


def test_cache_of_compressed_entries() -> None:
    """A window of 3, entries of 2 tokens: 5 elements each and index keys of 2."""
    layer = Compressed(N=4, H=5, q=7, window=3, groups=2, rank=6, m=2, index_heads=3,
                       index_width=2, top=2)  # fmt: skip

    assert (layer.token_elements, layer.token_bytes(BF16)) == (5 + 3.5, 2 * 8.5)
    assert layer.growing_elements == layer.reference_token_elements == 3.5
    # 7 tokens have 3 entries.
    assert (layer.cache_elements(7), layer.cache_bytes(7, BF16)) == (15 + 21, 2 * 36)
    # Two windows of two tokens, values and gates of both, twice as wide.
    assert (layer.state.recurrent, layer.window_tokens) == (2 * 2 * 2 * 2 * (5 + 2), None)
    bare = replace(layer, m=0, index_heads=0, index_width=0)
    assert (bare.token_elements, bare.growing_elements, bare.window_tokens) == (5, 0, 3)
    assert (bare.reference_token_elements, bare.cache_bytes(7, BF16)) == (10, 2 * 15)
    assert (bare.kind, layer.kind, replace(layer, index_heads=0).kind) == ("sliding", "csa", "hca")


def test_an_operator_multiplies_in_the_format_of_its_weights() -> None:
    """Of all presets, what reads smaller weights in fp8 computes in fp8, and nothing else does."""
    fp8 = FORMATS["fp8"]
    kind = Precision(weights=fp8, parts=(("router", fp8), ("head", fp8)))
    presets: list[Model] = load_all(MODELS_FILE, build_model)
    for model in presets:
        plain = ledger(model, [Segment(2, 3, 4)])
        for wide, small in zip(plain, ledger(model, [Segment(2, 3, 4)], kind), strict=True):
            # Scores of latents stay in the format of the cache, whatever multiplies beside them.
            at_fp8 = small.weight_bytes < wide.weight_bytes and small.part != "attention"
            assert small.compute == ("fp8" if at_fp8 else ""), (model.name, small.name)


# A pass of two sequences, three tokens after four: 6 rows, queries at positions 5, 6 and 7, 18
# pairs a sequence. Elements are two bytes, those of states four.
WORK: list[tuple[Any, dict[str, tuple[float, float, float, float]]]] = [
    (Attention(N=6, K=2, H=5, H_v=3, gate="width", extra=6, out_bias=True, qkv_bias=True,
               qk_norm="head"), {
        # Columns of q, k, v and the gate; biases of the first three, two norms, six sinks.
        "qkv": (12 * 11 * 64, 2 * (11 * 64 + 46 + 10 + 6), 0, 6 * 32),
        "attention": (2 * 6 * (5 + 3) * 36, 0, 2 * 7 * 32, 0),
        "out": (12 * 18 * 11, 2 * (18 * 11 + 11), 0, 0),
    }),
    # Keys that are the values have one matrix; an unused norm of keys is held.
    (Attention(N=4, K=2, H=5, value_is_key=True, qk_norm="width", window=2, sink_tokens=1), {
        "qkv": (12 * 11 * 30, 2 * (11 * 30 + 20 + 10), 0, 6 * 40),
        "attention": (4 * 4 * 5 * 2 * 9, 0, 2 * (2 + 3) * 40, 0),
    }),
    (Attention(N=4, K=2, H=5, shares=True, qk_norm="head", chunk=6), {
        "qkv": (12 * 11 * 20, 2 * (11 * 20 + 5), 0, 0),
        # Positions 5 and 6 see their chunk's 5 and 6 tokens, 7 itself: all of 7 are read.
        "attention": (4 * 4 * 5 * 2 * 12, 0, 2 * 7 * 40, 0),
    }),
    (Attention(N=4, K=2, H=5, shares=True, qk_norm="width", idle_key_norm=True), {
        "qkv": (12 * 11 * 20, 2 * (11 * 20 + 20 + 10), 0, 0),
    }),
    # Absorbed, 2376 a sequence, is less than materialised, 4032.
    (MLA(N=3, c=5, r=2, d=4, v=8, q=7, gate=True, q_bias=True, out_bias=True), {
        "qkv": (12 * (77 + 126 + 77 + 33), 2 * (77 + 126 + 77 + 33 + 7 + 7 + 5 + 7), 0, 6 * 14),
        "attention": (2 * (6 * 12 * 18 + 6 * 5 * 12 * 3), 2 * 5 * 3 * 12, 2 * 7 * 14, 0),
        "out": (12 * 24 * 11, 2 * (24 * 11 + 11), 0, 0),
    }),
    # A wide latent of narrow heads: materialised, 360 a sequence, is less than absorbed, 792.
    (MLA(N=1, c=9, r=1, d=1, v=1, latent_norms=False, q_bias=True), {
        "qkv": (12 * (11 * 2 + 11 * 10), 2 * (22 + 110 + 10), 0, 6 * 20),
        "attention": (2 * (6 * 18 + 36 * 7), 2 * 18, 2 * 7 * 20, 0),
    }),
    # Four tokens of five, six and seven are chosen; all are scored.
    (SparseMLA(N=3, c=5, r=2, d=4, v=8, q=7, index_heads=2, index_width=3, top=4), {
        "index": (12 * (42 + 33 + 22) + 2 * 6 * 36, 2 * (97 + 6), 2 * 7 * 6, 6 * 6),
        "attention": (2 * (6 * 12 * 12 + 6 * 5 * 12 * 3), 2 * 5 * 3 * 12, 2 * 4 * 14, 0),
    }),
    # No more than nine are there: nothing is scored, and index keys are written alone.
    (SparseMLA(N=3, c=5, r=2, d=4, v=8, index_heads=2, index_width=3, top=9), {
        "index": (12 * (66 + 33 + 22), 2 * (121 + 6), 0, 6 * 6),
        "attention": (2 * (6 * 12 * 18 + 6 * 5 * 12 * 3), 2 * 5 * 3 * 12, 2 * 7 * 14, 0),
    }),
    # Three blocks of two hold all of 5 and 6 tokens, and 5 of 7, which alone are scored.
    (SparseAttention(N=6, K=2, H=5, index_heads=2, index_width=3, top=3, block=2), {
        "index": (12 * (66 + 33) + 2 * 6 * 14, 2 * (99 + 6), 2 * 7 * 6, 6 * 6),
        "attention": (4 * 6 * 5 * 2 * 16, 0, 2 * 5 * 40, 0),
    }),
    # Two blocks of two: 3, 4 and 3 tokens of 5, 6 and 7.
    (SparseAttention(N=6, K=2, H=5, index_heads=2, index_width=3, top=2, block=2), {
        "index": (12 * (66 + 33) + 2 * 6 * 36, 2 * (99 + 6), 2 * 7 * 6, 6 * 6),
        "attention": (4 * 6 * 5 * 20, 0, 2 * 3 * 40, 0),
    }),
    # Windows of 3, and 2 entries of the 2, 3 and 3 that there are; 3 and 3 are scored. 28 values
    # and gates a token, of two overlapping windows found and of three tokens left; half an entry a
    # token.
    (Compressed(N=4, H=5, q=7, window=3, groups=2, rank=6, m=2, index_heads=3, index_width=2,
                top=2), {
        "qkv": (12 * (77 + 140 + 55), 2 * (272 + 7 + 5 + 4), 0, 6 * 10),
        "compress": (12 * (220 + 88), 2 * (308 + 28 + 7), 4 * 28 * 2 * 4, 4 * 28 * 6 + 6 * 14 / 2),
        "index": (12 * (42 + 33) + 2 * 6 * 12, 2 * 75, 2 * 3 * 4, 0),
        "attention": (4 * 4 * 5 * 2 * (9 + 6), 0, 2 * (5 + 2) * 10, 0),
        "out": (12 * (10 * 6 * 2 + 12 * 11), 2 * 252, 0, 0),
    }),
    # Every entry is seen, 2 + 3 + 3; one window is open.
    (Compressed(N=4, H=5, q=7, window=3, groups=2, rank=6, m=2), {
        "compress": (12 * 110, 2 * (110 + 10 + 5), 4 * 10 * 2 * 2, 4 * 10 * 4 + 6 * 10 / 2),
        "attention": (4 * 4 * 5 * 2 * (9 + 8), 0, 2 * (5 + 3) * 10, 0),
    }),
    (Compressed(N=4, H=5, q=7, window=3, groups=2, rank=6), {
        "attention": (4 * 4 * 5 * 2 * 9, 0, 2 * 5 * 10, 0),
    }),
    # Six for an element of the state, eight for a channel of a convolution over four tokens; three
    # columns are kept. Weights: convolution and its bias, decays, skips, a bias of the step.
    (Mamba(d=6, s=2, r=3, norms=True, bias=True), {
        "state in": (12 * (132 + 42 + 18), 2 * 192, 0, 0),
        "state": (6 * (72 + 48), 2 * (24 + 6 + 12 + 6 + 6 + 7 + 12 + 11), 2 * 84, 2 * 84),
        "state out": (12 * 66, 2 * 66, 0, 0),
    }),
    (Mamba2(heads=3, width=4, s=5, groups=2, bias=True), {
        "state in": (12 * 11 * 47, 2 * 11 * 47, 0, 0),
        "state": (6 * (360 + 256), 2 * (128 + 32 + 9 + 12 + 47 + 11), 2 * 432, 2 * 432),
        "state out": (12 * 132, 2 * 132, 0, 0),
    }),
    (Mamba(d=6, s=2, r=3, conv_bias=False), {
        "state": (6 * (72 + 48), 2 * (24 + 12 + 6 + 6), 2 * 84, 2 * 84),
    }),
    (Mamba2(heads=3, width=4, s=5, groups=2, conv_bias=False, norm=False), {
        "state": (6 * (360 + 256), 2 * (128 + 9), 2 * 432, 2 * 432),
    }),
    (LinearAttention(heads=2, key=3, value=5), {
        "state in": (12 * 11 * 22, 2 * 11 * 22, 0, 0),
        "state": (6 * 4 * 30, 0, 2 * 120, 2 * 120),
        "state out": (12 * 110, 2 * 110, 0, 0),
    }),
    # A decay, a sum of keys, and its product with the query.
    (LinearAttention(heads=2, key=3, value=5, decays=True, normaliser=True, norm=True), {
        "state": (6 * (5 * 30 + 3 * 6), 2 * 10, 2 * 144, 2 * 144),
    }),
    (DeltaNet(key_heads=2, value_heads=4, key=3, value=5), {
        "state in": (12 * 11 * 60, 2 * 11 * 60, 0, 0),
        "state": (6 * (7 * 60 + 256), 2 * (128 + 4 + 4 + 5), 2 * 432, 2 * 432),
    }),
    (DeltaNet(key_heads=2, value_heads=4, key=3, value=5, decay="channel", rank=2), {
        "state in": (12 * (11 * 36 + 22 + 2 * 12 + 22 + 2 * 20), 2 * 504, 0, 0),
        "state": (6 * (7 * 60 + 256), 2 * (128 + 12 + 4 + 5), 2 * 432, 2 * 432),
    }),
    (RWKV4(D=11, A=9), {
        "state in": (12 * 297, 2 * 297, 0, 0),
        "state": (6 * 13 * 9, 2 * (18 + 33), 2 * 152, 2 * 152),
    }),
    # Three matrices and the two factors of four ranks; token mixes, biases, scales, a norm.
    (RWKV7(D=11, width=11, w=2, a=3, v=4, g=5), {
        "state in": (12 * (3 * 121 + 22 * 14), 2 * 671, 0, 0),
        "state": (6 * 8 * 121, 2 * (6 + 3 + 3 + 2) * 11, 2 * 528, 2 * 528),
    }),
    (RWKV7(D=11, width=11, w=2, a=3, v=0, g=5), {
        "state": (6 * 8 * 121, 2 * (6 + 2 + 3 + 2) * 11, 2 * 528, 2 * 528),
    }),
    (RGLRU(width=8, blocks=2), {
        "state in": (12 * (88 * 2 + 32 * 2), 2 * 240, 0, 0),
        "state": (6 * (32 + 64), 2 * (16 + 11 + 16 + 40 + 8), 2 * 80, 2 * 80),
    }),
    (ShortConv(D=11), {"state": (6 * (66 + 22), 2 * 33, 2 * 44, 2 * 44)}),
    (ShortConv(D=11, bias=True), {
        "state in": (12 * 363, 2 * 363, 0, 0),
        "state": (6 * (66 + 22), 2 * (33 + 33 + 11 + 11), 2 * 44, 2 * 44),
    }),
    (MLSTM(heads=2, key=3, value=5), {
        "state in": (12 * 396, 2 * 396, 0, 0),
        "state": (6 * (150 + 30), 2 * (4 + 10), 2 * 4 * 38, 2 * 4 * 38),
    }),
    (MLP(F=13, bias=True), {
        "mlp up": (12 * 286, 2 * (286 + 26), 0, 0), "mlp down": (12 * 143, 2 * (143 + 11), 0, 0),
    }),
    (ChannelMix(F=13, receptance=True), {"mlp": (12 * 407, 2 * (407 + 22), 0, 0)}),
    (ChannelMix(F=13), {"mlp": (12 * 286, 2 * (286 + 11), 0, 0)}),
    # Six tokens miss an expert with (3/4)^6; a gate of the shared experts is a vector.
    (Experts(F=13, E=8, k=2, shared=5, shared_gate=True, router_bias=True), {
        "router": (12 * 88, 2 * (88 + 8), 0, 0),
        "experts up": (2 * 12 * 286, 8 * (1 - 0.75**6) * 572, 0, 0),
        "experts down": (2 * 12 * 143, 8 * (1 - 0.75**6) * 286, 0, 0),
        "shared up": (12 * (110 + 11), 2 * (110 + 11), 0, 0),
        "shared down": (12 * 55, 2 * 55, 0, 0),
    }),
    (Experts(F=13, E=8, k=2, shared=5, gated=False), {
        "router": (12 * 88, 2 * 88, 0, 0),
        "experts up": (2 * 12 * 143, 8 * (1 - 0.75**6) * 286, 0, 0),
        "shared up": (12 * 55, 2 * 55, 0, 0),
    }),
    # Two of eight and eight empty ones: one each, missed with (7/8)^6.
    (Experts(F=13, E=8, k=2, latent=4, zero=8), {
        "router": (12 * 176, 2 * 176, 0, 0),
        "latent": (12 * 88, 2 * 88, 0, 0),
        "experts up": (12 * 104, 8 * (1 - 0.875**6) * 208, 0, 0),
        "experts down": (12 * 52, 8 * (1 - 0.875**6) * 104, 0, 0),
    }),
]  # fmt: skip
"""A layer on rows 11 wide; of each operator FLOPs, and bytes of weights, read and written."""


@pytest.mark.parametrize(
    ("layer", "work"), WORK, ids=[f"{type(x).__name__}-{i}" for i, (x, _) in enumerate(WORK)]
)
def test_work_of_an_operator(
    layer: Any, work: dict[str, tuple[float, float, float, float]]
) -> None:
    """Products of the matrices and pairs, weights, and what goes to the cache or state and back."""
    ops = {o.name: o for o in layer.operators(11, 1, [Segment(2, 3, 4)], BF16)}

    for name, expected in work.items():
        o = ops[name]
        found = (o.flops, o.weight_bytes, o.read_bytes, o.write_bytes)
        assert found == pytest.approx(expected, rel=1e-12), name


# Places 1 to 5 of a Zipf law, two choices of 137/60.
ZIPF_OF_5 = [2 * 60 / 137 / place for place in range(1, 6)]
ONCE = Segment(sequences=10, new=1, cached=6, shared=4, shared_once=True)
THROWN = Segment(sequences=2, new=3, cached=4, both_ways=True, keeps=False)


@pytest.mark.parametrize(
    ("layer", "s", "flops", "read", "written"),
    [
        # Of 7 tokens 4 are those of all ten sequences.
        (Attention(N=4, K=2, H=5), ONCE, 4 * 4 * 5 * 70, 40 * (4 + 10 * 3), 10 * 40),
        # The prefix is materialised once, 6 for each of 40 pairs and 36 for each of 4 tokens; the
        # rest is absorbed, 38 for each of 30 pairs and 36 for each of 10 rows.
        (MLA(N=1, c=9, r=1, d=1, v=1), ONCE, 6 * 40 + 36 * 4 + 38 * 30 + 36 * 10,
         20 * (4 + 10 * 3), 10 * 20),
        # Three tokens see each other and four in the cache, and none of them is kept.
        (Attention(N=4, K=2, H=5), THROWN, 4 * 4 * 5 * 42, 2 * 4 * 40, 0),
        (MLA(N=1, c=9, r=1, d=1, v=1), THROWN, 2 * (6 * 21 + 36 * 7), 2 * 4 * 20, 0),
        # The first pass of a sequence finds no state.
        (Mamba(d=6, s=2, r=3), Segment(2, 3, 0), 6 * (72 + 48), 0, 2 * 84),
        (Compressed(N=4, H=5, q=7, window=3, groups=2, rank=6, m=2), Segment(2, 3, 0),
         4 * 4 * 5 * 2 * (6 + 2), 2 * (3 + 1) * 10, 6 * 10),
    ],
)  # fmt: skip
def test_segments_of_other_kinds(
    layer: Any, s: Segment, flops: int, read: int, written: int
) -> None:
    """A prefix that is read once, tokens that are thrown away, and the beginning of a sequence."""
    ops = {o.name: o for o in layer.operators(11, 1, [s], BF16)}

    inner = ops["state" if "state" in ops else "attention"]
    writes = ops["qkv" if "qkv" in ops else "state"]
    assert (inner.flops, inner.read_bytes, writes.write_bytes) == (flops, read, written)


@pytest.mark.parametrize(
    ("E", "k", "exponent", "shares"),
    [
        # 2/(1 + 1/2 + 1/3) is above 1; the other two share one choice as 3 to 2.
        (3, 2, 1, [1, 0.6, 0.4]),
        (3, 3, 1, [1, 1, 1]),
        # 1, 1/4, 1/9 and 1/16 of 205/144; then of 61/144 and of 25/144.
        (4, 3, 2, [1, 1, 16 / 25, 9 / 25]),
    ],
)
def test_no_expert_is_chosen_twice(E: int, k: int, exponent: float, shares: list[float]) -> None:
    """Shares of a Zipf law that would be above 1 are cut, and the others take what is left."""
    assert zipf_shares(E, k, exponent) == pytest.approx(shares, rel=1e-12)


@pytest.mark.parametrize("exponent", [0, 0.3, 1.3, 10])
def test_all_experts_are_chosen_where_there_are_no_others(exponent: float) -> None:
    """A token that chooses all experts chooses each."""
    for E in range(1, 40):
        assert zipf_shares(E, E, exponent) == pytest.approx([1] * E, rel=1e-12)


@pytest.mark.parametrize(
    ("empty", "routing", "touched"),
    [
        # Three experts of which a token chooses two; six tokens.
        (0, Routing(), 3 * (1 - (1 / 3) ** 6)),
        (0, Routing(exponent=1), 1 + (1 - 0.4**6) + (1 - 0.6**6)),
        (0, Routing(shares=(0.4, 1, 0.6)), 1 + (1 - 0.4**6) + (1 - 0.6**6)),
        (0, Routing(alike=0), 2),
        (0, Routing(fewest=True), 2),
        (0, Routing(distinct=2.5), 2.5),
        (0, Routing(distinct=2.5, fewest=True), 2),
        # Two empty ones beside: they hold two of five places of the law, and may be all that is
        # chosen.
        (2, Routing(), 3 * (1 - (3 / 5) ** 6)),
        (2, Routing(exponent=1), 3 / 5 * sum(1 - (1 - p) ** 6 for p in ZIPF_OF_5)),
        (2, Routing(fewest=True), 0),
    ],
)
def test_experts_that_a_pass_touches(empty: int, routing: Routing, touched: float) -> None:
    """Each law by its own sum; weights that are not touched, and the work of the tokens."""
    layer = Experts(F=13, E=3, k=2, zero=empty)

    assert layer.touched_by(6, routing) == pytest.approx(touched, rel=1e-12)
    assert layer.untouched_parameters(11, 6, routing) == pytest.approx((3 - touched) * 429)
    ops = {
        o.name: o for o in layer.operators(11, 1, [Segment(2, 3, 4)], Precision(routing=routing))
    }
    assert ops["experts up"].weight_bytes == pytest.approx(2 * 286 * touched)
    # A token uses two experts, or its share of them: none where all tokens choose empty ones.
    used = 0 if empty and routing.fewest else 2 * 3 / (3 + empty)
    assert ops["experts up"].flops == pytest.approx(2 * 6 * used * 286)
    assert layer.idle_parameters(11) == pytest.approx((3 - 2 * 3 / (3 + empty)) * 429)


@pytest.mark.parametrize(
    ("empty", "shares"),
    [(0, (1.0, 1.0)), (0, (0.5, 0.5, 0.5)), (1, (0.5, 0.5, 0.5, 0.5)), (1, (1.0, 0.6, 0.4))],
)
def test_laws_that_are_not_of_these_experts_are_refused(
    empty: int, shares: tuple[float, ...]
) -> None:
    """Too few, not two in all, or of a model some of whose experts are empty."""
    with pytest.raises(RooflmError):
        Experts(F=13, E=3, k=2, zero=empty).touched_by(6, Routing(shares=shares))


def test_times_of_five_operators() -> None:
    """Times of every model, and what sets them, of a pass that is added up by hand.

    100 FLOP/s, 200 in fp8, 10 B/s of memory and 2 B/s each way to the host. Twice: 5 s of
    arithmetic, 4 s of traffic. Once: 5 s in fp8, 6 s of traffic. Three times in host memory: 1 s,
    and 3 s inwards beside 4 s outwards. A message of 1.5 s, twice. Once 1 s of both, which counts
    as traffic.
    """
    rates = Rates(100, 10, {"fp8": 200}, host_bytes_per_s=2)
    ops = [
        Operator("a", "", 2, flops=500, weight_bytes=20, read_bytes=10, write_bytes=10),
        Operator("b", "", 1, compute="fp8", flops=1000, weight_bytes=60),
        Operator("c", "", 3, flops=100, weight_bytes=4, read_bytes=2, write_bytes=8, hosted=True),
        Operator("d", "", 2, seconds=1.5),
        Operator("e", "", 1, compute="int8", flops=100, weight_bytes=10),
    ]

    assert (flops(ops), compulsory_bytes(ops)) == (1000 + 1000 + 300 + 100, 80 + 60 + 42 + 10)
    expected: dict[TimeModel, tuple[float, float, float]] = {
        # Memory and the host link work at the same time: 15 s, and 12 s outwards.
        "bandwidth": (15, 0, 15),
        "overlap": (10 + 5 + 3 + 1, 19, 15),
        "operator": (10 + 6 + 12 + 3 + 1, 10, 22),
        # All one after the other: 15 s of memory and 21 s of the link.
        "serial": (19 + 36 + 3, 19, 36),
    }
    for model, (seconds, computing, moving) in expected.items():
        assert step_time(ops, rates, model) == seconds
        assert shares(ops, rates, model) == (computing, moving)
    assert (sending_time(ops), step_time(ops[:2], rates, "bandwidth")) == (3, 14)
    # In host memory alone: 8 B outwards, 6 B inwards without them, and 12 B with more of a cache.
    only_in, more_in = replace(ops[2], write_bytes=0), replace(ops[2], read_bytes=8)
    hosted = [step_time([op], rates, "bandwidth") for op in (ops[2], only_in, more_in)]
    assert hosted == [3 * 8 / 2, 3 * 6 / 2, 3 * 12 / 2]
    assert [operator_time(op, rates) for op in (*ops, only_in)] == [5, 6, 4, 1.5, 1, 3]


@given(st.integers(0, 300), st.integers(-5, 400), st.integers(1, 250))
def test_the_largest_that_holds(answer: int, guess: int, limit: int) -> None:
    """Searches find the last number for which a condition holds, and ask about none above."""
    asked: list[int] = []

    def holds(n: int) -> bool:
        asked.append(n)
        return n <= answer

    assert largest(holds, limit) == largest_near(holds, guess, limit) == min(answer, limit)
    assert all(0 < n <= limit for n in asked)
    assert largest(lambda n: True) == 10**12


@pytest.mark.parametrize(
    ("layer", "paged", "padded"),
    [
        # 100 tokens are 7 blocks of 16; of 40 that are shared 2 blocks are whole.
        (Attention(N=4, K=2, H=5), 7 * 16 * 3 - 2 * 32, 7 * 16 * 3 - 2 * 32),
        # A window of 33 and a pass of 8192 are more than there is: 7 blocks and one more. Nothing
        # has left it, so that the prefix is there.
        (Attention(N=4, K=2, H=5, window=33), 8 * 16 * 3 - 2 * 32, 7 * 16 * 3 - 2 * 32),
        (Attention(N=4, K=2, H=5, chunk=64), 7 * 16 * 3 - 2 * 32, 7 * 16 * 3 - 2 * 32),
    ],
)  # fmt: skip
def test_blocks_that_are_set_aside(layer: Attention, paged: int, padded: int) -> None:
    """Three sequences of 100 tokens, the first 40 the same: two heads of 5, two layers."""
    model = Model("paged", 20, 100, (Group(2, layer, MLP(F=8)),))

    found = reserved_cache_bytes(model, BF16, 3, 100, shared=40)

    assert found == {"paged": 2 * 40 * paged, "padded": 2 * 40 * padded}
    # Of a prefix that is all of 96 tokens, the last block has the token that is computed.
    whole = reserved_cache_bytes(model, BF16, 3, 96, shared=96)["padded"]
    assert whole == 2 * 40 * (6 * 16 * 3 - 2 * 80)
    diffusion = replace(model, denoises=True)
    assert reserved_cache_bytes(diffusion, BF16, 3, 100) == {"paged": 0, "padded": 0}
    alone = reserved_cache_bytes(model, BF16, 3, 100)
    assert alone == {"paged": 2 * 40 * (paged + 64), "padded": 2 * 40 * (padded + 64)}


def test_the_widest_point_of_a_pass_and_weights_without_norms() -> None:
    """The logits of six rows of 1000 words; two norms of each of two layers, and the last."""
    model = Model("small", 20, 1000, (Group(2, Attention(N=4, K=2, H=5), MLP(F=8)),))

    assert activations_bytes(ledger(model, [Segment(2, 3, 4, head_rows=3)])) == 6 * (40 + 4000)
    whole = 2 * (20 * 20 * 2 + 20 * 20 + 3 * 20 * 8) + 2 * 20 * 1000
    assert weights_bytes(model, BF16, norms=False) == 2 * whole
    assert weights_bytes(model, BF16) == 2 * (whole + 5 * 20)


def test_counts_of_a_model() -> None:
    """Three dense layers, two of experts after a state, six that share two sets of weights."""
    attention = Attention(N=4, K=2, H=5)
    groups = (
        Group(3, attention, MLP(F=13)),
        Group(2, LinearAttention(heads=2, key=3, value=5), Experts(F=13, E=8, k=2)),
        Group(6, attention, NoFeedForward(), norms=1, copies=2, own=7),
    )
    model = Model("by hand", 11, 17, groups, norm="layer", positions=5, head_bias=True)

    assert parameters(model) == {
        "embedding": 187,
        "head": 187 + 17,
        "positions": 55,
        # A gain and a bias of 11 each, two norms a layer or one, and the last.
        "norms": 3 * 44 + 2 * 44 + 2 * 22 + 22,
        "attention": (3 + 2) * 660,
        "mlp": 3 * 429,
        "linear_mixer": 2 * 352,
        "router": 2 * 88,
        "experts": 2 * 8 * 429,
        "own": 6 * 7,
    }
    assert total_parameters(model) == 13105
    assert total_parameters(model, norms=False) == 13105 - 286
    assert active_parameters(model) == 13105 - 2 * 6 * 429
    assert streamed_parameters(model) == 13105 - 2 * 6 * 429 - 55 - 187
    tied = replace(model, tied=True)
    assert total_parameters(tied) == 13105 - 187
    assert streamed_parameters(tied) == 13105 - 187 - 2 * 6 * 429 - 55
    assert untouched_parameters(model, 6, Routing()) == pytest.approx(2 * 8 * 0.75**6 * 429)
    assert (model.layers, cache_elements(model, 10)) == (11, 9 * 20 * 10)
    assert (state_elements(model), sequence_state_bytes(model, BF16)) == (60, 240)
    assert model.reference_kv_elements is None
    assert replace(model, reference_repeats_heads=True).reference_kv_elements == 9 * 2 * 4 * 5
    assert group_names(model) == ["full", "linear", "full3"]
    named = {o.name for o in ledger(model, [Segment(1, 1, 0)])}
    assert {"qkv full", "state linear", "qkv full3", "head"} < named


@pytest.mark.parametrize(("hosted", "held"), [(0, [(3, False)]), (1, [(2, False), (1, True)]),
                                              (3, [(3, True)])])  # fmt: skip
def test_layers_in_host_memory(hosted: int, held: list[tuple[int, bool]]) -> None:
    """Layers of a group are on the device or not, and all of them run."""
    group = Group(3, Attention(N=4, K=2, H=5), MLP(F=13), hosted=hosted)
    ops = ledger(Model("three", 11, 17, (group,)), [Segment(2, 3, 4)])

    assert [(o.count, o.hosted) for o in ops if o.name.startswith("qkv")] == held
    assert {o.name for o in ops if o.hosted} == {
        f"{name} from host" for name in ("norms", "qkv", "attention", "out", "mlp up", "mlp down")
        if hosted
    }  # fmt: skip


def test_a_head_without_bias_and_states_as_needed() -> None:
    """Three words of 64 numbers: 16 bits each, or two blocks of 32 numbers in 34 B a word."""
    model = Model("two", 64, 3, (Group(2, Mamba(d=6, s=2, r=3), NoFeedForward()),))
    blocks = Precision(parts=(("head", FORMATS["q8_0"]),))

    for kind, size in ((BF16, 2 * 3 * 64), (blocks, 3 * 2 * 34)):
        assert ledger(model, [Segment(1, 1, 0)], kind)[-1].weight_bytes == size
    assert state_elements(model) == 2 * (12 + 18)
    assert state_elements(model, reference=True) == 2 * (12 + 24)


def test_what_surrounds_three_layers() -> None:
    """Two streams of hyper-connections, three of AltUp, a rank of 4, embeddings of 7 rows of 5."""
    around = Residual(streams=2, altup=3, laurel=4, width=5, rows=7)

    # Eight coefficients of both streams, before mixer and feed-forward; 27 + 9 of AltUp and 4 rows.
    layer = {"hyper_connections": 2 * (8 * 22 + 8 + 3), "residual": 80 + 88 + 110, "norms": 33}
    whole = {
        "hyper_connections": 44 + 3, "residual": 2 * 2 * 121 + 165, "norms": 5,
        "layer_embeddings": 7 * 3 * 5,
    }  # fmt: skip
    assert (around.layer_parameters(11), around.parameters(11, 3)) == (layer, whole)
    held = parameters_of(around.tensors(11, 3))
    assert held == {part: n + 3 * layer.get(part, 0) for part, n in whole.items()}

    before, each = around.operators(11, 3, [Segment(2, 3, 4)], BF16)
    # A row of each layer's table for each of six tokens.
    assert (before.count, before.flops) == (1, 12 * (44 + 484 + 165))
    assert before.weight_bytes == 2 * (47 + 649 + 5) + 2 * 6 * 15
    assert before.activation_bytes == before.live_bytes == 2 * 6 * (22 + 15)
    # AltUp's router works before the layer and after it.
    assert (each.count, each.flops) == (3, 12 * (2 * 4 * 44 + 66 + 88 + 110))
    assert each.weight_bytes == 2 * (374 + 278 + 33)
    assert each.activation_bytes == each.live_bytes == 2 * 6 * 22
    assert parameters_of(Residual().tensors(11, 3)) == {}
    assert Residual().model_matrices(11, 3) == Residual().layer_products(11) == 0
    few = next(replace(around, rows=4).operators(11, 3, [Segment(2, 3, 4)], BF16))
    assert few.weight_bytes == 2 * (47 + 649 + 5) + 2 * 4 * 15
