"""What PyTorch's caching allocator counts for weights: more than their bytes.

vLLM tells weights as what the allocator has handed out. It cuts blocks from segments and leaves a
remainder of up to 1 MiB with the block in front of it. Source: pytorch/pytorch,
c10/cuda/CUDACachingAllocator.cpp (round_size, get_allocation_size, should_split, free_block);
vllm-project/vllm, vllm/model_executor/models (order of the matrices) and rotary_embedding (what
makes the table). Left out: copies while weights are loaded or repacked, buffers of kernels.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from itertools import groupby

from .mla import MLA
from .model import Group, Model, layer_tensors, tensors
from .passes import Precision
from .weights import Tensor, is_vector, tensor_bytes

MIB = 2**20
SMALL = MIB
"""Up to here a block is cut from a small segment [B]."""
LEAST = 512
"""Blocks are multiples of this [B]."""
SEGMENTS = ((SMALL, 2 * MIB), (10 * MIB - 1, 20 * MIB))
"""Segments for blocks of at most so many bytes; larger ones have one in whole 2 MiB [B]."""


class Allocator:
    """Blocks of segments as PyTorch deals them out: the smallest that fits, cut where it pays.

    >>> torch = Allocator()
    >>> [torch.take(n * MIB) // MIB for n in (6, 13.5, 52)]
    [6, 14, 52]
    """

    def __init__(self) -> None:
        self.held = 0
        """Bytes of blocks that are in use, with what stays behind them [B]."""
        self._free: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
        self._used: list[tuple[bool, int, int]] = []
        self._segments = 0

    def take(self, size: float) -> int:
        """Hand out a block for so many bytes, and tell what it takes [B]."""
        asked = LEAST * max(1, -int(-size // LEAST))
        small = asked <= SMALL
        free = self._free[small]
        place = bisect_left(free, (asked, -1))
        have, start = free.pop(place) if place < len(free) else self._segment(asked)
        if have - asked >= (LEAST if small else SMALL + 1):
            insort(free, (have - asked, start + asked))
            have = asked
        self.held += have
        self._used.append((small, have, start))
        return have

    def give_back(self, number: int) -> None:
        """Free one of the blocks in use, counted from 0 in the order of `take`."""
        small, size, start = self._used.pop(number)
        self.held -= size
        free = self._free[small]
        for other in [f for f in free if f[1] + f[0] == start or f[1] == start + size]:
            free.remove(other)
            start, size = min(start, other[1]), size + other[0]
        insort(free, (size, start))

    @property
    def used(self) -> int:
        """Blocks in use [1]."""
        return len(self._used)

    def _segment(self, asked: int) -> tuple[int, int]:
        """Get a segment from the device: bytes and an address that touches no other."""
        self._segments += 1
        size = next((s for most, s in SEGMENTS if asked <= most), -(-asked // (2 * MIB)) * 2 * MIB)
        return size, self._segments << 50


def allocated_bytes(
    model: Model,
    precision: Precision,
    positions: float = 0,
    width: float = 0,
    *,
    twice: bool = False,
    scalars: int = 0,
    marlin: bool = False,
) -> int:
    """Bytes that the allocator counts for what a rank holds of a model in vLLM [B].

    positions, width: of the rotary table in 16 bits, which the first layer makes from four in fp32
    that are freed again; 0 where there is none; twice: windows have a table of their own; scalars:
    scales of queries, keys and values that vLLM keeps of each layer, none before 0.7, three in it,
    four since; marlin: kernels of that name, with locks and a scale of each column in 16 bits.
    Matrices that vLLM fuses are one block, and their scales another.

    >>> from .passes import BF16
    >>> from .presets import find_model
    >>> round(allocated_bytes(find_model("qwen2.5-1.5b"), BF16, 32768, 128) / 2**30, 4)
    2.8875
    """
    torch = Allocator()
    embedding, *rest = (t for n, t in tensors(model) if t.op in OUTSIDE for _ in range(int(n)))
    torch.take(float(tensor_bytes(embedding, precision)))
    tables = _tables(model, twice) if positions * width else ()
    layer = 0
    for group in model.groups:
        blocks = list(_blocks(group, layer_tensors(model, group), precision, marlin))
        for _ in range(int(group.stored)):
            waits = layer in tables
            for op, size in blocks:
                if waits and op not in BEFORE_TABLE:
                    _make_table(torch, positions * width)
                    waits = False
                torch.take(size)
            for _ in range(scalars):
                torch.take(LEAST)
            layer += 1
    for tensor in [*rest, *_beside(model)]:
        torch.take(float(tensor_bytes(tensor, precision)))
    return torch.held


OUTSIDE = ("embedding", "head", "final norm", "project in", "project out")
"""Operators of weights outside the layers."""
BEFORE_TABLE = ("norms", "qkv", "attention", "out")
"""Operators whose weights the first layer makes before the rotary table."""
FUSED = ("mlp up", "shared up", "experts up", "experts down")
"""Operators whose matrices are one block, beside those of queries, keys and values."""


def _beside(model: Model) -> Iterator[Tensor]:
    """List the weights that surround layers, and those that repeats of a shared layer own."""
    if model.residual is not None:
        yield from model.residual.tensors(model.D, model.layers)
    for group in model.groups:
        again = int(group.count - group.stored)
        yield from [t for t in layer_tensors(model, group) if t.op == "own"] * again


def _tables(model: Model, twice: bool) -> tuple[int, ...]:
    """Tell which layers make a rotary table: the first, and the first that keeps everything."""
    whole = sum(int(g.count) for g in model.groups if g.mixer.window_tokens is None)
    return (0, int(model.layers) // whole - 1) if twice and whole else (0,)


def _blocks(
    group: Group, layer: Iterable[Tensor], precision: Precision, marlin: bool
) -> Iterator[tuple[str, float]]:
    """List operator and bytes of what a layer asks the allocator for."""
    for op, same in groupby(layer, key=lambda t: t.op):
        every = list(same)
        fused = [_parts(t, precision, marlin) for t in every if _fused(t)]
        for size in map(sum, zip(*fused, strict=True)):
            if size:
                yield op, size
        for tensor in every:
            times = int(group.norms if op == "norms" else tensor.count)
            if not _fused(tensor):
                sizes = [size / times for size in _parts(tensor, precision, marlin) if size]
                yield from [(op, size) for size in sizes] * times


def _parts(tensor: Tensor, precision: Precision, marlin: bool) -> tuple[float, ...]:
    """Bytes of the numbers, of their scales, of their zeros, and of what Marlin keeps beside."""
    kind = precision.format_of(tensor.part, matrix=not is_vector(tensor), name=tensor.name)
    numbers = float(kind.bytes * tensor.parameters)
    # Groups in the order of the rows need no index, and vLLM drops it.
    index = float(tensor.count * kind.row_bits * tensor.rows / 8)
    scales = float(tensor_bytes(tensor, precision)) - numbers - index
    zeros = scales * kind.bits / kind.group_bits if kind.group_bits == 16 + kind.bits else 0.0
    if not marlin or is_vector(tensor) or kind.bits >= 16:
        return numbers, scales - zeros, zeros, 0.0
    columns = float(tensor.count * tensor.columns)
    own = scales - zeros if kind.group or kind.column_bits else 2 * columns
    return numbers, own, zeros, LOCKS * columns


LOCKS = 16 * 4 / 64
"""Locks of a column: 16 numbers of 4 bytes for 64 columns (vLLM, marlin_make_workspace) [B]."""


def _fused(tensor: Tensor) -> bool:
    """Tell whether a matrix lies in one block with others of its operator."""
    return not is_vector(tensor) and (tensor.op in FUSED or tensor.name.startswith("attn_"))


def _make_table(torch: Allocator, elements: float) -> None:
    """Make a rotary table: angles, cosines, sines and both in fp32, then in 16 bits."""
    first = torch.used
    for share in (0.5, 0.5, 0.5, 1):
        torch.take(4 * share * elements)
    for _ in range(3):
        torch.give_back(first)
    torch.take(2 * elements)
    torch.give_back(first)


def absorbed_bytes(model: Model) -> int:
    """Bytes of the copies of a latent's up-projections that vLLM keeps in 16 bits [B].

    Decoding multiplies queries and values by them; the projections themselves stay. Source:
    vllm-project/vllm, vllm/v1/attention/backends/mla/common.py (process_weights_after_loading:
    W_UK_T and W_UV).

    >>> from .presets import find_model
    >>> absorbed_bytes(find_model("deepseek-v3")) / 2**20
    1952.0
    """
    latents = [(g.count, g.mixer) for g in model.groups if isinstance(g.mixer, MLA)]
    return int(sum(n * 2 * m.c * m.N * (m.d + m.v) for n, m in latents))
