"""Indexers, compressed and shared caches, several streams: against live classes of transformers.

Tiny models of the shapes of published ones run on the CPU over a real cache. The classes compute
more than is needed: logits of all positions; scores of all queries and keys, which a mask takes
out again, where an indexer chooses some and a window hides others; latents always expanded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from rooflm.calc.attention import Attention
from rooflm.calc.compressed import Compressed, scored_entry_pairs
from rooflm.calc.mixers import Mixer
from rooflm.calc.mla import materialised_flops
from rooflm.calc.model import Model, ledger
from rooflm.calc.passes import BF16, Segment
from rooflm.calc.sparse import SparseAttention, SparseMLA, index_flops, indexed_pairs

from .live import STEPS, B, config_of, instantiate, read, step, transformers
from .live import one_thread as one_thread
from .tiny_models import PUBLISHED, SPARSE, tiny


class Held(NamedTuple):
    """What a step took, and what its cache held after it, all layers [elements]."""

    flops: int
    kept: int
    """Keys and values, latents, index keys, compressed entries."""
    open: int
    """Rows of windows that are not yet an entry."""


@cache
def observed(name: str) -> tuple[Model, list[Held]]:
    """Run a tiny model of the shape of a published one."""
    keys = tiny(PUBLISHED[name])
    model = instantiate(config_of(keys), "cpu")
    kept = transformers.DynamicCache(config=model.config)
    done: list[Held] = []
    for _, new in STEPS:
        flops = step(model, kept, new)
        parts = [elements(layer) for layer in kept.layers]
        done.append(Held(flops, sum(k for k, _ in parts), sum(o for _, o in parts)))
    return read(keys, name), done


def elements(layer: Any) -> tuple[int, int]:
    """Count the elements of a layer's cache and of its open windows; one tensor counts once."""
    kept = [layer.keys, layer.values] if layer.values is not layer.keys else [layer.keys]
    kept += [getattr(layer, name, None) for name in ("indexer_keys", "idx_keys")]
    kept += getattr(layer, "compressed_kv", {}).values()
    windows = ("buffer_kv", "buffer_gate", "overlap_kv", "overlap_gate")
    rows = [t for name in windows for t in getattr(layer, name, {}).values()]
    return size(kept), size(rows)


def size(tensors: list[Any]) -> int:
    """Count the elements of tensors, of which some may not be there."""
    return sum(t.numel() for t in tensors if t is not None)


def kept_between_steps(mixer: Any, S: int) -> Any:
    """Elements of a layer after S tokens: the last W - 1 of a window, as the next step brings one.

    Windows of DeepSeek-V4 that stand alone hold their one tensor twice.
    """
    window = getattr(mixer, "window", None)
    if window is None:
        return mixer.cache_elements(S)
    short = replace(mixer, window=window - 1)
    twice = isinstance(mixer, Compressed) and not mixer.m
    return (2 if twice else 1) * short.cache_elements(S)


def open_rows(mixer: Mixer, S: int) -> Any:
    """Elements of the open window: values and gates of its tokens.

    Where an entry pools two windows, half of the rows of the last closed one as well.
    """
    if not isinstance(mixer, Compressed) or not mixer.m:
        return 0
    rows = S % mixer.m * mixer.overlap
    if mixer.overlap == 2 and mixer.m <= S:
        rows += mixer.m
    return 2 * rows * mixer.entry


def excess_flops(mixer: Mixer, s: Segment) -> Any:
    """FLOPs of one layer that the class takes and the ledger does not."""
    n, T, S = s.cached, s.new, s.context
    if isinstance(mixer, SparseMLA):
        widths = (mixer.N, mixer.c, mixer.r, mixer.d, mixer.v)
        more = B * materialised_flops(T * S, S, *widths) - mixer.core_flops([s])
        if mixer.reads_choice:
            return more
        more += B * index_excess(mixer, T * S, indexed_pairs(n, T, mixer.top))
        # The sum over index heads is a matmul.
        return more + B * 2 * mixer.index_heads * T * S
    if isinstance(mixer, SparseAttention):
        scored = indexed_pairs(n, T, mixer.top * mixer.block)
        more = 4 * mixer.N * mixer.H * (T * S - mixer.pairs(n, T))
        return B * (more + index_excess(mixer, T * S, scored))
    if isinstance(mixer, Compressed):
        entries = S // mixer.m if mixer.m else 0
        shown = T * (min(n, mixer.window - 1) + T + entries)
        more = 4 * mixer.N * mixer.H * (shown - mixer.pairs(s))
        if not mixer.index_heads:
            return B * more
        scored = scored_entry_pairs(n, T, mixer.m, mixer.top)
        return B * (more + index_excess(mixer, T * entries, scored))
    assert isinstance(mixer, Attention)
    shown = T * mixer.seen_tokens(n, T)
    return B * 4 * mixer.N * mixer.H * (shown - mixer.pairs(n, T))


def index_excess(mixer: Any, pairs: Any, needed: Any) -> Any:
    """FLOPs of scores that the class computes and no query needs."""
    return index_flops(pairs - needed, mixer.index_heads, mixer.index_width)


def mixing_flops(model: Model, rows: int) -> Any:
    """FLOPs of mixing streams, which the ledger leaves out: matrices of h x h on D channels.

    Hyper-connections mix them before the mixer and before the feed-forward; AltUp once a layer,
    with coefficients that matrices make of h numbers.
    """
    around = model.residual
    if around is None:
        return 0
    h, a, D = around.streams, around.altup, model.D
    return 2 * rows * model.layers * (2 * h * h * D + a * a * D + a * a * a + a * a)


def passes() -> Iterator[Segment]:
    """List the steps as segments, logits of all their tokens."""
    for n, T in STEPS:
        yield Segment(B, T, n, head_rows=T)


@pytest.mark.parametrize("name", SPARSE)
def test_cache_of_the_class(name: str) -> None:
    """A cache of the class holds what the formulas say: windows, index keys, entries."""
    model, steps = observed(name)
    for s, held in zip(passes(), steps, strict=True):
        kept = sum(g.count * kept_between_steps(g.mixer, s.context) for g in model.groups)

        assert held.kept == B * kept
        assert held.open == B * sum(g.count * open_rows(g.mixer, s.context) for g in model.groups)


@pytest.mark.parametrize("name", SPARSE)
def test_open_windows_fit_into_the_state(name: str) -> None:
    """The state that is counted is at least what the class keeps of open windows."""
    model, steps = observed(name)
    state: Any = sum(g.count * g.mixer.state.elements for g in model.groups)

    assert all(held.open <= B * state for held in steps)
    assert (state > 0) == any(held.open for held in steps)


@pytest.mark.parametrize("name", ["DeepSeek-V3.2", "GLM-5.2", "MiniMax-M3"])
def test_ledger_writes_what_the_cache_grows_by(name: str) -> None:
    """Without windows a pass writes what the cache has more of after it."""
    model, steps = observed(name)
    held = [0, *(h.kept for h in steps)]
    for s, (before, after) in zip(passes(), pairwise(held), strict=True):
        written: Any = sum(op.count * op.write_bytes for op in ledger(model, [s]))

        assert after - before == written / BF16.cache.bytes


@pytest.mark.parametrize("name", SPARSE)
def test_flops_of_the_class(name: str) -> None:
    """Prompt, chunk and decode take the ledger's FLOPs, the class's waste, and mixed streams."""
    model, steps = observed(name)
    for s, held in zip(passes(), steps, strict=True):
        flops: Any = sum(op.count * op.flops for op in ledger(model, [s]))
        flops += sum(g.count * excess_flops(g.mixer, s) for g in model.groups)

        assert held.flops == flops + mixing_flops(model, B * int(s.new))


def test_every_kind_of_layer_is_among_them() -> None:
    """The tiny models have each kind of layer that is read, and choose fewer than there are."""
    kinds = {g.mixer.kind for name in SPARSE for g in observed(name)[0].groups}
    longest = STEPS[-1][0] + STEPS[-1][1]

    assert kinds >= {"mla+indexer", "mla+choice", "full+indexer", "csa", "hca", "sliding", "shared"}
    for name in SPARSE:
        for group in observed(name)[0].groups:
            mixer: Any = group.mixer
            assert getattr(mixer, "top", 0) * (getattr(mixer, "m", 0) or 1) < longest
