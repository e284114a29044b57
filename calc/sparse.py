"""Sparse attention: an indexer scores every token, and attention reads those that it chooses.

Sources: DeepSeek-V3.2-Exp, paper (eq. 1 and 2) and inference/model.py (class Indexer): single
tokens for latent attention; transformers, models/minimax_m3_vl: blocks of keys for each group of
heads. Scoring is left out where all tokens are chosen anyway, as engines do; ReLU, the sum over
heads and the choice itself count no FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .attention import Attention, chunked_total, windowed_pairs
from .matmul import matmul_flops
from .mla import MLA
from .passes import Operator, Precision, Segment
from .readings import Q, formula, half, maximum, minimum, total
from .weights import Tensor, is_vector, read_bytes, vector


@formula
def indexed_pairs(n: Q, T: Q, k: Q) -> Q:
    """Query-key pairs that an indexer scores: those of queries that see more than k tokens.

    n: tokens cached before [tokens]; T: new tokens [tokens]; k: tokens chosen [tokens].
    Returns [pairs].

    >>> indexed_pairs(131071, 1, 2048)
    131072
    >>> indexed_pairs(0, 2048, 2048)
    0
    """
    first, last = maximum(n, k), maximum(n + T, k)
    return half(last * (last + 1)) - half(first * (first + 1))


@formula
def indexed_tokens(S: Q, k: Q) -> Q:
    """Tokens whose index keys a pass reads: all, or none where no more than k are there.

    S: context at the end of the pass [tokens]; k: tokens chosen [tokens]. Returns [tokens].

    >>> indexed_tokens(131072, 2048), indexed_tokens(2048, 2048)
    (131072, 0)
    """
    return S * minimum(maximum(S - k, 0), 1)


@formula
def index_flops(pairs: Q, heads: Q, width: Q) -> Q:
    """FLOPs of an indexer's scores.

    pairs: query-key pairs [pairs]; heads, width: index heads and their width [1]. Returns [FLOP].

    >>> index_flops(131072, 64, 128)
    2147483648
    """
    return 2 * heads * width * pairs


@formula
def block_pairs(n: Q, T: Q, k: Q, block: Q) -> Q:
    """Query-key pairs where a query sees the k best blocks of keys, its own open one included.

    n: tokens cached before [tokens]; T: new tokens [tokens]; k: blocks chosen [1]; block: keys of a
    block [tokens]. Returns [pairs].

    >>> block_pairs(9999, 1, k=16, block=128)
    1936
    """
    return _blocks(n + T, k, block) - _blocks(n, k, block)


def _blocks(n: Q, k: Q, block: Q) -> Q:
    """Pairs of the first n tokens: a triangle as long as all blocks are chosen."""
    near = minimum(n, k * block)
    far = n - near
    return half(near * (near + 1)) + far * (k - 1) * block + chunked_total(far, block)


@formula
def break_even_tokens(k: Q, entry: Q, key: Q) -> Q:
    """Context from which a sparse step moves less than a dense one: k c/(c - i).

    k: tokens chosen [tokens]; entry: cost of a cached token in attention, c; key: that of its index
    key, i (bytes, or FLOPs). Returns [tokens]. With the indexer at work in every step.

    >>> break_even_tokens(2048, 2176 * 128, 128 * 128)
    2176.0
    """
    return k * entry / (entry - key)


@dataclass(frozen=True)
class SparseMLA(MLA):
    """A mixer: latent attention over the tokens that an indexer chooses."""

    index_heads: Q = 0
    index_width: Q = 0
    top: Q = 0
    """Tokens that a query attends to."""
    reads_choice: bool = False
    """Takes the choice of an earlier layer: no indexer of its own."""

    LETTERS: ClassVar = MLA.LETTERS | {"index_heads": "N_I", "index_width": "H_I", "top": "k_I"}

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return "mla+choice" if self.reads_choice else "mla+indexer"

    @property
    def index_key(self) -> Q:
        """Elements that the indexer keeps of a token [elements]."""
        return 0 if self.reads_choice else self.index_width

    @property
    def token_elements(self) -> Q:
        """Cache elements of a token [elements]."""
        return self.c + self.r + self.index_key

    def index_tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of the indexer."""
        if self.reads_choice:
            return
        rank = D if self.q is None else self.q
        yield Tensor("index", "attention", rank, self.index_heads * self.index_width)
        yield Tensor("index", "attention", D, self.index_width)
        yield Tensor("index", "attention", D, self.index_heads)
        # A LayerNorm on index keys: a gain and a bias.
        yield vector("index", "qk_norm", 2 * self.index_width)

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        yield from super().tensors(D)
        yield from self.index_tensors(D)

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens."""
        return super().cache_elements(S) + self.index_key * S

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes of the latent, the rotary key and the index key of one token [B]."""
        own = 0 if self.reads_choice else precision.cache.vector_bytes(self.index_width, "index")
        return super().token_bytes(precision) + own

    def pairs(self, n: Q, T: Q) -> Q:
        """Query-key pairs of T new tokens after n cached ones [pairs]."""
        return windowed_pairs(n, T, self.top)

    def seen_tokens(self, n: Q, T: Q) -> Q:
        """Tokens whose latents are read: those that the last query chooses, at the least."""
        return minimum(n + T, self.top)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        if not self.reads_choice:
            yield index_operator(
                list(self.index_tensors(D)), self.index_heads, self.index_width, self.top,
                (D, count, segments, precision),
            )  # fmt: skip
        yield from super().operators(D, count, segments, precision)

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong."""
        yield from super().unusual(D, layers)
        who = "an earlier layer" if self.reads_choice else (
            f"an indexer of {self.index_heads} heads, which keeps and reads {self.index_width} "
            "elements of every token,"
        )  # fmt: skip
        yield f"{layers} attend to {self.top:,} tokens that {who} chooses"


@dataclass(frozen=True)
class SparseAttention(Attention):
    """A mixer: attention over blocks of keys that an indexer chooses for each group of heads."""

    index_heads: Q = 0
    index_width: Q = 0
    top: Q = 0
    """Blocks that a query attends to, its own open one included."""
    block: Q = 1
    """Keys of a block."""

    LETTERS: ClassVar = Attention.LETTERS | {
        "index_heads": "N_I", "index_width": "H_I", "top": "k_I", "block": "b_I",
    }  # fmt: skip

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return "full+indexer"

    @property
    def token_elements(self) -> Q:
        """Cache elements of a token [elements]."""
        return super().token_elements + self.index_width

    def index_tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of the indexer."""
        yield Tensor("index", "attention", D, self.index_heads * self.index_width)
        yield Tensor("index", "attention", D, self.index_width)
        # Norms on index queries and keys, each as wide as a head.
        yield vector("index", "qk_norm", 2 * self.index_width)

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        yield from super().tensors(D)
        yield from self.index_tensors(D)

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens."""
        return super().cache_elements(S) + self.index_width * S

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes of keys, values and the index key of one token [B]."""
        own = precision.cache.vector_bytes(self.index_width, "index")
        return super().token_bytes(precision) + own

    def pairs(self, n: Q, T: Q) -> Q:
        """Query-key pairs of T new tokens after n cached ones [pairs]."""
        return block_pairs(n, T, self.top, self.block)

    def seen_tokens(self, n: Q, T: Q) -> Q:
        """Tokens whose keys and values are read: those of the last query, at the least."""
        return block_pairs(n + T - 1, 1, self.top, self.block)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        yield index_operator(
            list(self.index_tensors(D)), self.index_heads, self.index_width,
            self.top * self.block, (D, count, segments, precision),
        )  # fmt: skip
        yield from super().operators(D, count, segments, precision)

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong."""
        yield from super().unusual(D, layers)
        yield (
            f"{layers} attend to {self.top} blocks of {self.block} keys that an indexer of "
            f"{self.index_heads} heads chooses, which keeps and reads {self.index_width} elements "
            "of every token"
        )


def index_operator(
    held: Sequence[Tensor],
    heads: Q,
    width: Q,
    k: Q,
    where: tuple[Q, Q, Sequence[Segment], Precision],
) -> Operator:
    """Describe an indexer: its projections, its scores, and the keys that it writes and reads.

    held: its weights; heads, width: its heads and their width [1]; k:
    tokens up to which all are chosen [tokens]; where: model width, layers, pass and formats.
    """
    D, count, segments, precision = where
    b_x, key = precision.activations.bytes, precision.cache.vector_bytes(width, "index")
    weights = total(t.parameters for t in held if not is_vector(t))
    rows = total(s.rows for s in segments)
    pairs = total(s.sequences * indexed_pairs(s.cached, s.new, k) for s in segments)
    made = (heads + 1) * width
    return Operator(
        name="index",
        part="index",
        count=count,
        flops=matmul_flops(rows, weights, 1) + index_flops(pairs, heads, width),
        compute=precision.compute_of("attention"),
        weight_bytes=read_bytes(held, "index", precision),
        read_bytes=total(s.sequences * (key * indexed_tokens(s.context, k)) for s in segments),
        write_bytes=key * rows,
        activation_bytes=b_x * (D + made) * rows,
        live_bytes=b_x * (2 * D + made) * rows,
    )
