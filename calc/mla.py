"""Multi-head latent attention: one compressed latent is cached in place of keys and values.

Sources: DeepSeek-V2 (arXiv 2405.04434); github.com/deepseek-ai/DeepSeek-V3, inference/model.py,
both branches of its attention; FlashMLA, docs/20250422-new-kernel-deep-dive.md. A shared prefix in
the one form and the rest in the other: TyphoonMLA (arXiv 2509.21081).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .attention import causal_pairs, full_pairs
from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, formula, is_zero, minimum, total
from .sharing import cache_read_bytes
from .state import NOTHING
from .weights import Tensor, Weighted, read_bytes, vector


@formula
def mla_cache_elements(c: Q, r: Q, tokens: Q = 1) -> Q:
    """Elements that one layer stores: the latent and one rotary key, whatever the heads.

    c: latent width [1]; r: rotary width [1]; tokens: context [tokens]. Returns [elements]. Neither
    doubled for keys and values nor multiplied by heads.

    >>> mla_cache_elements(512, 64)
    576
    """
    return (c + r) * tokens


@formula
def materialised_cache_elements(N: Q, d: Q, r: Q, v: Q, tokens: Q = 1) -> Q:
    """Elements that one layer would store with keys and values of every head.

    N: heads [1]; d: key width without position [1]; r: rotary width [1]; v: value width [1];
    tokens: context [tokens]. Returns [elements].

    >>> materialised_cache_elements(128, 128, 64, 128) / mla_cache_elements(512, 64)
    71.11111111111111
    """
    return N * (d + r + v) * tokens


@formula
def absorbed_flops(pairs: Q, rows: Q, N: Q, c: Q, r: Q, d: Q, v: Q) -> Q:
    """FLOPs with the up-projections absorbed: every head attends over the latent itself.

    pairs: query-key pairs [pairs]; rows: new tokens [1]; N: heads [1]; c, r: latent and rotary
    width [1]; d, v: key width without position and value width of a head [1]. Returns [FLOP].
    Queries are carried into the latent space and outputs out of it once a row.

    >>> absorbed_flops(8192, 0, 128, 512, 64, 128, 128)
    2281701376
    >>> absorbed_flops(0, 1, 128, 512, 64, 128, 128)
    33554432
    """
    return 2 * N * (2 * c + r) * pairs + 2 * N * c * (d + v) * rows


@formula
def materialised_flops(pairs: Q, tokens: Q, N: Q, c: Q, r: Q, d: Q, v: Q) -> Q:
    """FLOPs with keys and values of every head made anew from the latents of the whole context.

    pairs: query-key pairs [pairs]; tokens: context, cached and new [tokens]; N: heads [1];
    c, r: latent and rotary width [1]; d, v: key width without position and value width [1].
    Returns [FLOP].

    >>> materialised_flops(8192, 8192, 128, 512, 64, 128, 128)
    275548995584
    """
    return 2 * N * (d + r + v) * pairs + 2 * N * c * (d + v) * tokens


@formula
def mixed_flops(B: Q, h: Q, pairs: Q, N: Q, c: Q, r: Q, d: Q, v: Q) -> Q:
    """FLOPs of a decode step that materialises a shared prefix once and absorbs for the rest.

    B: sequences [1]; h: tokens of the prefix [tokens]; pairs: query-key pairs of each sequence with
    its own tokens [pairs]; N: heads [1]; c, r: latent and rotary width [1]; d, v: key width without
    position and value width [1]. Returns [FLOP]. Left out: a prefix that is kept materialised
    beside the latents, which saves the making of it (arXiv 2509.21081).

    >>> mixed_flops(512, 4096, 1024, 128, 512, 64, 128, 128)
    472446402560
    >>> 512 * absorbed_flops(5120, 1, 128, 512, 64, 128, 128)
    747324309504
    """
    widths = (N, c, r, d, v)
    return materialised_flops(B * h, h, *widths) + absorbed_flops(B * pairs, B, *widths)


def crossover_tokens(c: float, r: float, d: float, v: float) -> float:
    """New tokens of a sequence above which materialising a long context costs fewer FLOPs.

    c, r: latent and rotary width [1]; d, v: key width without position and value width [1].
    Returns [tokens], infinite where it never does. For a context much longer than the pass.

    >>> round(crossover_tokens(512, 64, 128, 128), 3)
    170.667
    """
    saved = (2 * c + r) - (d + r + v)
    return c * (d + v) / saved if saved > 0 else math.inf


@dataclass(frozen=True)
class MLA(Weighted):
    """A mixer: multi-head latent attention of one layer."""

    N: Q
    c: Q
    """Width of the latent that is cached."""
    r: Q
    """Width of the rotary key that all heads share."""
    d: Q
    """Width of a key without position."""
    v: Q
    """Width of a value."""
    q: Q | None = None
    """Rank of the query projection; a plain projection if None."""
    latent_norms: bool = True
    """Norms on the latents: q and c weights."""
    q_bias: bool = False
    """Biases on the projections into the latents."""
    out_bias: bool = False
    gate: bool = False
    """A projection to one number a head that gates the output."""

    LETTERS: ClassVar = {"N": "N", "c": "c", "r": "r", "d": "d", "v": "v", "q": "q"}
    ABOUT: ClassVar = {
        "q": "rank of the query projection; plain if absent", "c": "width of the latent",
        "r": "width of the rotary key", "d": "width of a key without position",
        "v": "width of a value",
    }  # fmt: skip
    window_tokens = None
    state = reference_state = NOTHING

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return "mla"

    @property
    def token_elements(self) -> Q:
        """Cache elements of a token [elements]."""
        return self.c + self.r

    @property
    def growing_elements(self) -> Q:
        """Cache elements that a further token adds [elements]."""
        return self.token_elements

    @property
    def reference_token_elements(self) -> Q:
        """Elements of a token in the reference implementation [elements]."""
        return self.token_elements

    @property
    def heads_width(self) -> Q:
        """Columns of the queries of all heads [1]."""
        return self.N * (self.d + self.r)

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        latent = self.c + self.r
        if self.q is None:
            yield Tensor("qkv", "attention", D, self.heads_width)
        else:
            yield Tensor("qkv", "attention", D, self.q)
            yield Tensor("qkv", "attention", self.q, self.heads_width)
        yield Tensor("qkv", "attention", D, latent)
        if self.q_bias:
            yield vector("qkv", "attention", latent + (0 if self.q is None else self.q))
        if self.gate:
            yield Tensor("qkv", "attention", D, self.N)
        yield vector("qkv", "qk_norm", self.norm_parameters)
        yield Tensor("attention", "attention", self.c, self.N * (self.d + self.v))
        yield Tensor("out", "attention", self.N * self.v, D)
        if self.out_bias:
            yield vector("out", "attention", D)

    @property
    def norm_parameters(self) -> Q:
        """Weights of the norms on the latents [parameters]."""
        if not self.latent_norms:
            return 0
        return self.c + (0 if self.q is None else self.q)

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes of the latent and the rotary key of one token, scales included [B]."""
        cache = precision.cache
        return cache.vector_bytes(self.c, "latent") + cache.vector_bytes(self.r, "rope")

    def growing_bytes(self, precision: Precision) -> Q:
        """Bytes that a further token adds to the cache [B]."""
        return self.token_bytes(precision)

    def cache_bytes(self, S: Q, precision: Precision) -> Q:
        """Bytes that one layer keeps for a sequence of S tokens [B]."""
        return self.token_bytes(precision) * S

    def common_tokens(self, S: Q, h: Q) -> Q:
        """Tokens that a sequence of S keeps of a prefix of h that others have too: all of it."""
        return h

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens."""
        return mla_cache_elements(self.c, self.r, S)

    def core_flops(self, segments: Sequence[Segment]) -> Q:
        """FLOPs of scores, values and up-projections, each segment in its cheapest mode [FLOP]."""
        return total(self._segment_flops(s) for s in segments)

    def _segment_flops(self, s: Segment) -> Q:
        widths, pairs = (self.N, self.c, self.r, self.d, self.v), self.segment_pairs(s)
        whole = s.sequences * minimum(
            absorbed_flops(pairs, s.new, *widths),
            materialised_flops(pairs, s.context, *widths),
        )
        if not s.shared_once or is_zero(s.shared):
            return whole
        own = pairs - s.new * s.shared
        return minimum(whole, mixed_flops(s.sequences, s.shared, own, *widths))

    def pairs(self, n: Q, T: Q) -> Q:
        """Query-key pairs of T new tokens after n cached ones [pairs]."""
        return causal_pairs(n, T)

    def seen_tokens(self, n: Q, T: Q) -> Q:
        """Tokens whose latents T new queries after n cached tokens read [tokens]."""
        return n + T

    def segment_pairs(self, s: Segment) -> Q:
        """Query-key pairs of a sequence, its new tokens seeing each other both ways or not."""
        return full_pairs(s.cached, s.new) if s.both_ways else self.pairs(s.cached, s.new)

    def cache_tokens(self, s: Segment) -> Q:
        """Tokens whose latents are read of the cache; those not kept are not in it."""
        seen = self.seen_tokens(s.cached, s.new)
        return seen if s.keeps else seen - s.new

    def mode(self, n: int, T: int) -> str:
        """Name the cheaper mode of T new tokens after n cached ones."""
        widths = (self.N, self.c, self.r, self.d, self.v)
        pairs = self.pairs(n, T)
        absorbed = absorbed_flops(pairs, T, *widths)
        cheaper = absorbed <= materialised_flops(pairs, n + T, *widths)
        return "absorbed" if cheaper else "materialised"

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong."""
        turn = crossover_tokens(self.c, self.r, self.d, self.v)
        materialise = (
            "; prompts without a cache materialise, as do passes of more than "
            f"{turn:,.0f} new tokens after a long one"
        )
        yield (
            f"{layers} cache a latent of {self.c} + {self.r} elements for all {self.N} heads; "
            f"decode absorbs the up-projections{'' if math.isinf(turn) else materialise}"
        )

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        b_x, token = precision.activations.bytes, MLA.token_bytes(self, precision)
        held, compute = list(MLA.tensors(self, D)), precision.compute_of("attention")
        rows = total(s.rows for s in segments)
        queries, latent = self.heads_width, self.c + self.r
        rank = 0 if self.q is None else self.q
        into = queries if self.q is None else self.q
        second = 0 if self.q is None else matmul_flops(rows, self.q, queries)
        gate = D * self.N if self.gate else 0
        yield Operator(
            name="qkv",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, D, into + latent) + second + matmul_flops(rows, gate, 1),
            compute=compute,
            weight_bytes=read_bytes(held, "qkv", precision),
            write_bytes=token * total(s.rows for s in segments if s.keeps),
            activation_bytes=b_x * (D + 2 * rank + queries) * rows,
            live_bytes=b_x * (2 * D + rank + queries + latent) * rows,
        )
        yield Operator(
            name="attention",
            part="attention",
            count=count,
            compute=precision.attention_compute,
            flops=self.core_flops(segments),
            weight_bytes=read_bytes(held, "attention", precision),
            read_bytes=total(cache_read_bytes(self, s, token) for s in segments),
            activation_bytes=b_x * (queries + self.N * self.v) * rows,
            live_bytes=b_x * (D + queries + self.N * (self.c + self.v)) * rows,
        )
        yield Operator(
            name="out",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, self.N * self.v, D),
            compute=compute,
            weight_bytes=read_bytes(held, "out", precision),
            activation_bytes=b_x * (self.N * self.v + D) * rows,
            live_bytes=b_x * (2 * D + self.N * self.v) * rows,
        )
