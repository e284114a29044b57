"""Softmax attention with N query heads that share K key/value heads (MHA, GQA, MQA).

Sources: Stanford CS336 lecture 10 (lecture_10.py, "arithmetic_intensity_of_inference"); scores
stay on chip as in FlashAttention (arXiv 2205.14135). K and V of a group are read once for all its
query heads and all T query tokens. Softmax, rotary embedding and norms count no FLOPs: together
below 1 % of a layer at H >= 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, formula, half, total


@formula
def causal_pairs(n: Q, T: Q) -> Q:
    """Query-key pairs of T new tokens after n cached ones: nT + T(T+1)/2.

    n: tokens cached before [tokens]; T: new tokens [tokens]. Returns [pairs]. The cached part is
    not halved. A decode step (T = 1) sees n + 1 = S pairs.

    >>> causal_pairs(6144, 2048)
    14681088
    """
    return n * T + half(T * (T + 1))


@formula
def full_pairs(n: Q, T: Q) -> Q:
    """Query-key pairs of T new tokens that see each other both ways and n cached ones.

    n: tokens cached before [tokens]; T: new tokens [tokens]. Returns [pairs]. Encoders and
    diffusion models: no causal half.

    >>> full_pairs(0, 2048)
    4194304
    """
    return T * (n + T)


@formula
def attention_flops(pairs: Q, N: Q, H: Q) -> Q:
    """FLOPs of scores and weighted values: 4NH for each query-key pair.

    pairs: query-key pairs of all sequences [pairs]; N: query heads [1]; H: head width [1].
    Returns [FLOP].

    >>> attention_flops(causal_pairs(0, 4096), N=64, H=128)
    274945015808
    """
    return 4 * N * H * pairs


@formula
def attention_bytes(B: Q, S: Q, T: Q, N: Q, K: Q, H: Q, b_q: Q = 2, b_kv: Q = 2) -> Q:
    """Bytes that attention moves: Q read, output written, K and V read once.

    B: sequences [1]; S: context [tokens]; T: query tokens [tokens]; N, K: query and key/value
    heads [1]; H: head width [1]; b_q, b_kv: bytes per element of queries and cache [B].
    Returns [B]. The batch cancels in the intensity: decode tends to N/K FLOP/B at 16 bits.

    >>> attention_bytes(1, 2048, 1, N=40, K=40, H=128)
    41963520
    """
    return 2 * b_q * B * T * N * H + 2 * b_kv * B * S * K * H


@formula
def attention_intensity_limit(T: Q, N: Q, K: Q, b_kv: Q = 2) -> Q:
    """Intensity of attention over a long cache: 2TN/(K b_kv).

    T: query tokens [tokens]; N, K: query and key/value heads [1]; b_kv: bytes per cache element
    [B]. Returns [FLOP/B].

    >>> attention_intensity_limit(T=1, N=32, K=8, b_kv=1)
    8.0
    """
    return 2 * T * N / (K * b_kv)


@formula
def kv_cache_elements(K: Q, H: Q, tokens: Q = 1) -> Q:
    """Key and value elements that one layer stores for a sequence.

    K: key/value heads [1]; H: head width [1]; tokens: context kept [tokens]. Returns [elements].

    >>> kv_cache_elements(K=8, H=128)
    2048
    """
    return 2 * K * H * tokens


@formula
def kv_cache_bytes(S: Q, K: Q, H: Q, L: Q, b: Q = 2) -> Q:
    """Bytes that the cache of one sequence takes in all layers: 2KHLSb.

    S: context [tokens]; K: key/value heads [1]; H: head width [1]; L: layers [1]; b: bytes per
    element [B]. Returns [B]. Left out: scales of quantized caches, padding to pages.

    >>> kv_cache_bytes(S=1024, K=40, H=128, L=40)
    838860800
    """
    return L * kv_cache_elements(K, H, S) * b


@formula
def attention_parameters(D: Q, N: Q, K: Q, H: Q) -> Q:
    """Weights of the four projections: 2DNH + 2DKH; NH need not equal D.

    D: model width [1]; N, K: query and key/value heads [1]; H: head width [1].
    Returns [parameters]. Biases and QK-norms are counted apart.

    >>> attention_parameters(D=5120, N=40, K=40, H=128)
    104857600
    """
    return 2 * D * N * H + 2 * D * K * H


QKNorm = Literal["none", "head", "width"]


@dataclass(frozen=True)
class Attention:
    """A mixer: full softmax attention of one layer."""

    N: Q
    K: Q
    H: Q
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: QKNorm = "none"
    """Weights on queries and keys: none, one head wide (Qwen3), or all heads wide (OLMo 2)."""

    kind = "full"

    @property
    def qk_norm_parameters(self) -> Q:
        """Weights of the norms on queries and keys [parameters]."""
        match self.qk_norm:
            case "none":
                return 0
            case "head":
                return 2 * self.H
            case "width":
                return self.N * self.H + self.K * self.H

    def qkv_parameters(self, D: Q) -> Q:
        """Weights and biases of the query, key and value projections [parameters]."""
        width = self.N * self.H + 2 * self.K * self.H
        return D * width + (width if self.qkv_bias else 0)

    def out_parameters(self, D: Q) -> Q:
        """Weights and biases of the output projection [parameters]."""
        return self.N * self.H * D + (D if self.out_bias else 0)

    def parameters(self, D: Q) -> dict[str, Q]:
        """Count the parameters of one layer by part."""
        return {
            "attention": self.qkv_parameters(D) + self.out_parameters(D),
            "qk_norm": self.qk_norm_parameters,
        }

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens."""
        return kv_cache_elements(self.K, self.H, S)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        N, K, H = self.N, self.K, self.H
        b_w, b_kv, b_x = precision.weights.bytes, precision.cache.bytes, precision.activations.bytes
        rows = total(s.rows for s in segments)
        width = N * H + 2 * K * H
        qkv = self.qkv_parameters(D) + self.qk_norm_parameters
        yield Operator(
            name="qkv",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, D, width),
            weight_bytes=b_w * qkv,
            write_bytes=b_kv * kv_cache_elements(K, H) * rows,
            activation_bytes=b_x * (D + N * H) * rows,
            live_bytes=b_x * (2 * D + width) * rows,
        )
        yield Operator(
            name="attention",
            part="attention",
            count=count,
            flops=attention_flops(
                total(s.sequences * causal_pairs(s.cached, s.new) for s in segments), N, H
            ),
            read_bytes=total(
                s.sequences * (b_kv * self.cache_elements(s.context)) for s in segments
            ),
            activation_bytes=b_x * (2 * N * H) * rows,
            live_bytes=b_x * (D + width + N * H) * rows,
        )
        yield Operator(
            name="out",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, N * H, D),
            weight_bytes=b_w * self.out_parameters(D),
            activation_bytes=b_x * (N * H + D) * rows,
            live_bytes=b_x * (2 * D + N * H) * rows,
        )
