"""How vLLM groups the caches of a model: pages of one size, and as many layers in every group.

A pool has one tensor for each layer of a group; a block is a page in each of them. Groups have
tables of their own, so that a request takes the blocks of every group. Sources: vllm-project/vllm,
vllm/v1/core/kv_cache_utils.py and kv_cache_interface.py at 001cabc1. Modelled: full, windowed and
chunked layers, latents, states, and layers that reuse a cache. Not modelled: the packed pages of
DeepSeek-V4, caches of drafts, and pipelines, whose stages are grouped as the whole model is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from .engine_memory import group_layers, page_blocks, state_page_tokens
from .errors import RooflmError
from .layout import parts
from .memory import largest, paged_chunk_tokens, paged_window_tokens
from .model import Model
from .paging import sequence_blocks
from .passes import Precision


@dataclass(frozen=True)
class Caches:
    """Layers whose caches are alike."""

    kind: str
    """full, window, chunk or state."""
    layers: int
    page: int
    """Bytes of a block in one layer [B]."""
    block: int
    """Tokens of a block; 0 for a state [tokens]."""
    limit: int = 0
    """Window or chunk [tokens]."""

    def request_blocks(self, length: int, batched: int, states: int) -> int:
        """Count the blocks that a request of so many tokens takes in one group.

        batched: tokens of a pass at the most [tokens]; states: blocks of a state [blocks].
        """
        match self.kind:
            case "window":
                tokens = paged_window_tokens(self.limit, length, batched, self.block)
                return int(tokens) // self.block
            case "chunk":
                tokens = paged_chunk_tokens(self.limit, length, batched, self.block)
                return int(tokens) // self.block
            case "state":
                return states
            case _:
                return int(sequence_blocks(length, self.block))


@dataclass(frozen=True)
class Groups:
    """Groups of caches that share a pool."""

    caches: tuple[Caches, ...]
    page: int
    """Bytes of a block in one layer; of all layers where they are one group [B]."""
    layers: int
    """Layers of a group, each with a tensor of the pool; 1 where pages differ [1]."""

    @property
    def counts(self) -> list[int]:
        """Groups of each kind of caches."""
        return [-(-one.layers // self.layers) for one in self.caches] if self.joint else [1]

    @property
    def joint(self) -> bool:
        """Tell whether several kinds share the pool."""
        return len({(c.kind, c.limit) for c in self.caches}) > 1

    @property
    def block_bytes(self) -> int:
        """Bytes of a block in all layers of a group [B]."""
        return self.page * self.layers

    @property
    def least_block(self) -> int:
        """Tokens of the smallest block; 0 where there are states alone [tokens]."""
        return min((c.block for c in self.caches if c.block), default=0)

    def blocks(self, pool: float) -> int:
        """Count the blocks of a pool."""
        return max(0, int(page_blocks(pool, self.page, self.layers)))

    def request_blocks(self, length: int, batched: int, states: int) -> int:
        """Count the blocks that a request takes in all groups."""
        each = [one.request_blocks(length, batched, states) for one in self.caches]
        return sum(n * b for n, b in zip(self.counts, each, strict=False))

    def line_tokens(self, blocks: int, length: int) -> int:
        """Tokens that vLLM's line says before 0.21: blocks shared evenly, smallest block."""
        return blocks // sum(self.counts) * (self.least_block or length)

    def longest(self, pool: float, limit: int, batched: int, states: int) -> int:
        """Find the longest request that a pool holds, as the engine searches for it [tokens]."""
        room = pool // self.block_bytes
        return largest(lambda n: self.request_blocks(n, batched, states) <= room, limit)


def cache_groups(model: Model, precision: Precision, block: int) -> Groups:
    """Group the caches of a model, or of what a rank holds of one.

    block: tokens of a block as typed, or as usual [tokens]. Raises `RooflmError` for caches whose
    pages are not modelled, and where there are none.
    """
    found: list[tuple[str, int, int, int]] = []
    for group in model.groups:
        for mixer in parts(group.mixer):
            found += _kinds(mixer, group.count, precision)
    if not found:
        raise RooflmError(f"{model.name} keeps no cache that an engine would reserve", "MODEL")
    tokens = [size for kind, _, size, _ in found if kind != "state"]
    state = max((size for kind, _, size, _ in found if kind == "state"), default=0)
    if state and tokens:
        block = max(block, int(state_page_tokens(state, max(tokens))))
    caches = _alike(
        Caches(kind, count, size * (block if kind != "state" else 1),
               block if kind != "state" else 0, limit)
        for kind, count, size, limit in found
    )  # fmt: skip
    if len({(c.kind, c.limit) for c in caches}) == 1:
        if len({c.page for c in caches}) == 1:
            (one,) = caches
            return Groups(caches, one.page, one.layers)
        # One table for layers of unlike pages: a block is a page of each.
        whole = sum(c.page * c.layers for c in caches)
        return Groups((replace(caches[0], layers=1, page=whole),), whole, 1)
    page = max(c.page for c in caches)
    same = _alike(_with_page(c, page) for c in caches)
    counts = [c.layers for c in same]
    return Groups(same, page, int(group_layers(min(counts), max(counts))))


def _kinds(mixer: Any, count: int, precision: Precision) -> list[tuple[str, int, int, int]]:
    """Tell kind, layers, bytes of a token or a state, and limit of what a mixer keeps."""
    found: list[tuple[str, int, int, int]] = []
    if mixer.kind in ("csa", "hca") or hasattr(mixer, "m"):
        what = "vLLM packs compressed caches into shared pages, which is not modelled"
        fix = "A log reserved 1.94 times what its tokens need. Take --engine sglang."
        raise RooflmError(what, "--engine", fix)
    token = _whole(mixer.token_bytes(precision))
    if token:
        chunk = getattr(mixer, "chunk", None)
        kind = "full" if mixer.window_tokens is None else "window" if chunk is None else "chunk"
        found.append((kind, count, token, int(mixer.window_tokens or 0)))
    state = _whole(mixer.state.bytes(precision))
    if state:
        found.append(("state", count, state, 0))
    return found


def _with_page(one: Caches, page: int) -> Caches:
    """Give caches pages of one size: larger blocks where they divide it, else padding."""
    times, rest = divmod(page, one.page)
    block = one.block if rest else one.block * times
    return replace(one, page=page, block=block)


def _alike(caches: Iterable[Caches]) -> tuple[Caches, ...]:
    """Put layers together whose caches are alike."""
    layers: dict[Caches, int] = {}
    for one in caches:
        key = replace(one, layers=0)
        layers[key] = layers.get(key, 0) + one.layers
    return tuple(replace(key, layers=count) for key, count in layers.items())


def _whole(size: Any) -> int:
    """Round up to whole bytes."""
    return int(-(-size // 1))
