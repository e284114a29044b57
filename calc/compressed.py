"""Compressed attention of DeepSeek-V4: one cached entry for several tokens, and a raw window.

Sources: DeepSeek-V4 technical report, sections 2.3 and 4.2.1; transformers, models/deepseek_v4;
vllm-project/vllm, vllm/models/deepseek_v4 (compressor.py for the state). Compressed sparse layers
pool two overlapping windows into an entry and let an indexer choose; heavily compressed ones pool
windows side by side and see every entry. Keys are the values: one tensor. Pooling itself, ReLU and
the choice count no FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .attention import windowed_pairs
from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, floor, formula, half, is_zero, maximum, minimum, ratio, total
from .sparse import index_flops
from .state import NOTHING, Kept
from .weights import Tensor, Weighted, is_vector, read_bytes, vector


@formula
def compressed_cache_elements(S: Q, W: Q, c: Q, m: Q, i: Q = 0) -> Q:
    """Elements that one layer stores: the raw window, and an entry for each m tokens.

    S: context [tokens]; W: raw window [tokens]; c: width of an entry [1]; m: tokens of an entry
    [tokens]; i: width of an index key [1]. Returns [elements]. Keys and values are one tensor.

    >>> compressed_cache_elements(1048576, 128, 512, 4, 128) * 2
    335675392
    """
    return minimum(S, W) * c + floor(S / m) * (c + i)


@formula
def entry_pairs(n: Q, T: Q, m: Q, k: Q) -> Q:
    """Pairs of queries and compressed entries, each query choosing the k best of floor(x/m).

    n: tokens cached before [tokens]; T: new tokens [tokens]; m: tokens of an entry [tokens];
    k: entries chosen at the most [1]. Returns [pairs]. x is the position of a query, from 1.

    >>> entry_pairs(8191, 1, m=4, k=1024)
    1024
    """
    return _entries(n + T, m, k) - _entries(n, m, k)


def _entries(n: Q, m: Q, k: Q) -> Q:
    near = minimum(n, k * m)
    return _floors(near, m) + k * (n - near)


def _floors(n: Q, m: Q) -> Q:
    """Sum of floor(x/m) for x = 1..n."""
    whole = floor(n / m)
    return m * half(whole * (whole - 1)) + whole * (n - whole * m + 1)


@formula
def all_entry_pairs(n: Q, T: Q, m: Q) -> Q:
    """Pairs of queries and compressed entries where each query sees all of them.

    n: tokens cached before [tokens]; T: new tokens [tokens]; m: tokens of an entry [tokens].
    Returns [pairs].

    >>> all_entry_pairs(8191, 1, m=128)
    64
    """
    return _floors(n + T, m) - _floors(n, m)


@formula
def scored_entry_pairs(n: Q, T: Q, m: Q, k: Q) -> Q:
    """Pairs that an indexer of entries scores: those of queries with more than k of them.

    n: tokens cached before [tokens]; T: new tokens [tokens]; m: tokens of an entry [tokens];
    k: entries chosen at the most [1]. Returns [pairs].

    >>> scored_entry_pairs(8191, 1, m=4, k=1024)
    2048
    """
    last = (k + 1) * m - 1
    return _floors(maximum(n + T, last), m) - _floors(maximum(n, last), m)


@formula
def compressor_state_elements(m: Q, width: Q, overlap: Q = 1) -> Q:
    """Elements of an open window: values and gates of overlap*m rows, each overlap*width wide.

    m: tokens of an entry [tokens]; width: width of an entry [1]; overlap: windows that an entry
    pools [1]. Returns [elements]. Source: vllm, deepseek_v4/compressor.py, CompressorStateCache.

    >>> compressor_state_elements(4, 512, overlap=2) * 4
    65536
    """
    return overlap * m * 2 * overlap * width


@dataclass(frozen=True)
class Compressed(Weighted):
    """A mixer: shared-key attention over a raw window and compressed entries."""

    N: Q
    H: Q
    """Width of an entry, key and value in one."""
    q: Q
    window: Q
    groups: Q
    rank: Q
    m: Q = 0
    index_heads: Q = 0
    index_width: Q = 0
    top: Q = 0

    LETTERS: ClassVar = {
        "N": "N", "H": "H", "q": "q", "window": "W", "groups": "G_o", "rank": "R_o", "m": "m",
        "index_heads": "N_I", "index_width": "H_I", "top": "k_I",
    }  # fmt: skip
    ABOUT: ClassVar = {
        "q": "rank of the queries", "groups": "groups of the output projection",
        "rank": "columns of each group of the output", "m": "tokens of an entry; 0: window alone",
        "index_heads": "index heads; 0: every entry is seen", "index_width": "width of index keys",
        "top": "entries that a query attends to at the most",
    }  # fmt: skip
    DIVIDES: ClassVar = (("groups", "N"),)

    @property
    def kind(self) -> str:
        """Name of the kind."""
        if is_zero(self.m):
            return "sliding"
        return "hca" if is_zero(self.index_heads) else "csa"

    @property
    def window_tokens(self) -> Q | None:
        """Most tokens that a sequence keeps [tokens]."""
        return self.window if is_zero(self.m) else None

    @property
    def overlap(self) -> int:
        """Windows that an entry pools: two where they are chosen from [1]."""
        return 1 if is_zero(self.index_heads) else 2

    @property
    def entry(self) -> Q:
        """Elements of a compressed entry and its index key [elements]."""
        return self.H + self.index_width

    @property
    def growing_elements(self) -> Q:
        """Cache elements that a further token adds beyond the window, on average [elements]."""
        return 0 if is_zero(self.m) else self.entry / self.m

    @property
    def token_elements(self) -> Q:
        """Cache elements of a token while the window is open, on average [elements]."""
        return self.H + self.growing_elements

    @property
    def reference_token_elements(self) -> Q:
        """Elements of a token in transformers: windows alone hold keys and values apart."""
        return 2 * self.H if is_zero(self.m) else self.growing_elements

    @property
    def state(self) -> Kept:
        """Open windows of the compressors."""
        if is_zero(self.m):
            return NOTHING
        return Kept(
            compressor_state_elements(self.m, self.H, self.overlap)
            + compressor_state_elements(self.m, self.index_width, self.overlap)
        )

    @property
    def reference_state(self) -> Kept:
        """Nothing that is counted: transformers keeps the open tokens alone, a few rows."""
        return NOTHING

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        N, H = self.N, self.H
        yield Tensor("qkv", "attention", D, self.q)
        yield Tensor("qkv", "attention", self.q, N * H)
        yield Tensor("qkv", "attention", D, H)
        yield vector("qkv", "qk_norm", self.q)
        yield vector("qkv", "norms", H)
        yield vector("qkv", "attention", N)
        if not is_zero(self.m):
            made = self.overlap * self.entry
            # Values and gates, of entries and of index keys; a position bias of each gate.
            yield Tensor("compress", "attention", D, self.overlap * H, 2)
            if not is_zero(self.index_width):
                yield Tensor("compress", "attention", D, self.overlap * self.index_width, 2)
            yield vector("compress", "attention", self.m * made)
            yield vector("compress", "norms", self.entry)
        if not is_zero(self.index_heads):
            yield Tensor("index", "attention", self.q, self.index_heads * self.index_width)
            yield Tensor("index", "attention", D, self.index_heads)
        # The heads of a group go through a matrix of their own.
        yield Tensor("out", "attention", ratio(N * H, self.groups), self.rank, self.groups)
        yield Tensor("out", "attention", self.groups * self.rank, D)

    def matrices(self, D: Q, op: str) -> Q:
        """Weights of the matrices that an operator multiplies with [parameters]."""
        held = (t for t in self.tensors(D) if t.op == op and not is_vector(t))
        return total(t.parameters for t in held)

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens."""
        if is_zero(self.m):
            return minimum(S, self.window) * self.H
        return compressed_cache_elements(S, self.window, self.H, self.m, self.index_width)

    def key_bytes(self, precision: Precision) -> Q:
        """Bytes of the index key of an entry [B]."""
        no_keys = is_zero(self.index_width)
        return 0 if no_keys else precision.cache.vector_bytes(self.index_width, "index")

    def growing_bytes(self, precision: Precision) -> Q:
        """Bytes that a further token adds beyond the window, on average [B]."""
        if is_zero(self.m):
            return 0
        entry = precision.cache.vector_bytes(self.H, "entry")
        return (entry + self.key_bytes(precision)) / self.m

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes of a token while the window is open, on average [B]."""
        return precision.cache.vector_bytes(self.H, "entry") + self.growing_bytes(precision)

    def cache_bytes(self, S: Q, precision: Precision) -> Q:
        """Bytes that one layer keeps for a sequence of S tokens beside its state [B]."""
        entry = precision.cache.vector_bytes(self.H, "entry")
        if is_zero(self.m):
            return minimum(S, self.window) * entry
        return compressed_cache_elements(S, self.window, entry, self.m, self.key_bytes(precision))

    def pairs(self, s: Segment) -> Q:
        """Pairs of queries and entries, raw and compressed, of a sequence [pairs]."""
        near = windowed_pairs(s.cached, s.new, self.window)
        if is_zero(self.m):
            return near
        if is_zero(self.index_heads):
            return near + all_entry_pairs(s.cached, s.new, self.m)
        return near + entry_pairs(s.cached, s.new, self.m, self.top)

    def seen_entries(self, s: Segment) -> Q:
        """Entries read, raw and compressed: those of the last query, at the least."""
        near = minimum(s.cached, self.window - 1) + s.new
        if is_zero(self.m):
            return near
        far = floor(s.context / self.m)
        return near + (far if is_zero(self.index_heads) else minimum(far, self.top))

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass.

        A window is closed once in m tokens: of each token a share 1/m is counted, so that steps
        of neighbouring contexts are alike.
        """
        N, H = self.N, self.H
        b_x, entry = precision.activations.bytes, precision.cache.vector_bytes(H, "entry")
        held, compute = list(self.tensors(D)), precision.compute_of("attention")
        rows = total(s.rows for s in segments)
        yield Operator(
            name="qkv",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, self.matrices(D, "qkv"), 1),
            compute=compute,
            weight_bytes=read_bytes(held, "qkv", precision),
            write_bytes=entry * rows,
            activation_bytes=b_x * (D + 2 * self.q + N * H) * rows,
            live_bytes=b_x * (2 * D + self.q + N * H + H) * rows,
        )
        if not is_zero(self.m):
            yield self._compress(D, count, segments, precision)
        if not is_zero(self.index_heads):
            yield self._index(D, count, segments, precision)
        pairs = total(s.sequences * self.pairs(s) for s in segments)
        yield Operator(
            name="attention",
            part="attention",
            count=count,
            compute=precision.attention_compute,
            flops=4 * N * H * pairs,
            read_bytes=total(s.sequences * (entry * self.seen_entries(s)) for s in segments),
            activation_bytes=b_x * 2 * N * H * rows,
            live_bytes=b_x * (D + 2 * N * H) * rows,
        )
        yield Operator(
            name="out",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, self.matrices(D, "out"), 1),
            compute=compute,
            weight_bytes=read_bytes(held, "out", precision),
            activation_bytes=b_x * (N * H + 2 * self.groups * self.rank + D) * rows,
            live_bytes=b_x * (2 * D + N * H + self.groups * self.rank) * rows,
        )

    def _compress(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Operator:
        """Describe the compressors: a row of each token into the open window, entries out of it."""
        b_x, b_s = precision.activations.bytes, precision.state.bytes
        rows = total(s.rows for s in segments)
        made = 2 * self.overlap * self.entry
        # Of a long pass only the rows of the first and the last open window go through memory.
        found = total(
            s.sequences * minimum(s.cached, 1) * self.overlap * minimum(s.new, self.m)
            for s in segments
        )
        left = total(s.sequences * minimum(s.new, self.overlap * self.m) for s in segments)
        return Operator(
            name="compress",
            part="compress",
            count=count,
            flops=matmul_flops(rows, self.matrices(D, "compress"), 1),
            compute=precision.compute_of("attention"),
            weight_bytes=read_bytes(self.tensors(D), "compress", precision),
            read_bytes=b_s * made * found,
            write_bytes=b_s * made * left + self.growing_bytes(precision) * rows,
            activation_bytes=b_x * (D + made) * rows,
            live_bytes=b_x * (2 * D + made) * rows,
        )

    def _index(self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision) -> Operator:
        """Describe the indexer of entries."""
        b_x, key = precision.activations.bytes, self.key_bytes(precision)
        rows = total(s.rows for s in segments)
        made = self.index_heads * self.index_width
        pairs = total(
            s.sequences * scored_entry_pairs(s.cached, s.new, self.m, self.top) for s in segments
        )
        keys = [floor(s.context / self.m) for s in segments]
        # All entries are chosen where no more than `top` are there: nothing is scored.
        scored = [n * minimum(maximum(n - self.top, 0), 1) for n in keys]
        return Operator(
            name="index",
            part="index",
            count=count,
            flops=matmul_flops(rows, self.matrices(D, "index"), 1)
            + index_flops(pairs, self.index_heads, self.index_width),
            compute=precision.compute_of("attention"),
            weight_bytes=read_bytes(self.tensors(D), "index", precision),
            read_bytes=total(
                s.sequences * (key * n) for s, n in zip(segments, scored, strict=True)
            ),
            activation_bytes=b_x * (self.q + made) * rows,
            live_bytes=b_x * (2 * D + made) * rows,
        )

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong."""
        shared = f"keys are the values, {self.H} wide and shared by {self.N} heads"
        yield f"{layers} see the last {self.window} tokens in raw form; {shared}"
        if not is_zero(self.m):
            chosen = (
                "every one is seen"
                if is_zero(self.index_heads)
                else f"an indexer of {self.index_heads} heads chooses {self.top:,} of them"
            )
            yield f"{layers} keep an entry for each {self.m} tokens beside it: {chosen}"
            yield f"the reference's figures leave out the raw windows of these {layers}"
