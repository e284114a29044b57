"""What each operator reads, writes and holds, by hand from the shapes of its rows."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflm.calc.attention import Attention, NoMixer
from rooflm.calc.compressed import Compressed
from rooflm.calc.experts import Experts, NoFeedForward
from rooflm.calc.formats import CACHES, FORMATS
from rooflm.calc.linear_attention import DeltaNet, LinearAttention
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.mlstm import MLSTM
from rooflm.calc.model import (
    Group,
    Model,
    cache_bytes,
    growing_elements,
    ledger,
    token_bytes,
    token_elements,
)
from rooflm.calc.passes import BF16, Precision, Segment
from rooflm.calc.presets import MODELS_FILE, build_model, load_all
from rooflm.calc.rglru import RGLRU
from rooflm.calc.rwkv import RWKV4, RWKV7, ChannelMix
from rooflm.calc.short_conv import ShortConv
from rooflm.calc.sparse import SparseAttention, SparseMLA
from rooflm.calc.ssm import Mamba, Mamba2

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
        "state in": ([11, 12, 12, 20, 3], [11, 11, 12, 12, 20, 3]), "state": ([47, 12], [11, 47, 12]),
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


@given(st.integers(0, 40), st.integers(1, 20), st.integers(1, 12), st.integers(0, 4))
def test_tokens_that_queries_see(n: int, T: int, W: int, sinks: int) -> None:
    """Pairs, keys read and keys kept of windows, sinks and chunks are those of sets of positions."""
    full, chunked = Attention(N=4, K=2, H=8), Attention(N=4, K=2, H=8, chunk=W)
    window = Attention(N=4, K=2, H=8, window=W, sink_tokens=sinks)
    for layer, sees in (
        (full, lambda x: set(range(x + 1))),
        (window, lambda x: {p for p in range(x + 1) if p < sinks or p > x - W}),
        (chunked, lambda x: {p for p in range(x + 1) if p // W == x // W}),
    ):
        seen = [sees(x) for x in range(n, n + T)]
        assert layer.pairs(n, T) == sum(map(len, seen))
        assert layer.seen_tokens(n, T) == len(set().union(*seen))
        # What the last query sees is kept, but of a chunk all that it may come to hold.
        kept = min(n + T, W) if layer is chunked else len(seen[-1])
        assert layer.kept_tokens(n + T) == kept
    prefix = {p for p in range(n) if p < sinks or p > n + T - 1 - W}
    assert window.common_tokens(n + T, n) == len(prefix)
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


def test_an_operator_multiplies_in_the_format_of_its_weights() -> None:
    """Of all presets, what reads smaller weights in fp8 computes in fp8, and nothing else does."""
    kind = Precision(weights=FORMATS["fp8"])
    presets: list[Model] = load_all(MODELS_FILE, build_model)
    for model in presets:
        plain = ledger(model, [Segment(2, 3, 4)])
        for wide, small in zip(plain, ledger(model, [Segment(2, 3, 4)], kind), strict=True):
            # Scores of latents stay in the format of the cache, whatever multiplies beside them.
            at_fp8 = small.weight_bytes < wide.weight_bytes and small.part != "attention"
            assert small.compute == ("fp8" if at_fp8 else ""), (model.name, small.name)
