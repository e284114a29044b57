"""Softmax attention with N query heads that share K key/value heads (MHA, GQA, MQA).

Sources: Stanford CS336 lecture 10 (lecture_10.py, "arithmetic_intensity_of_inference"); scores
stay on chip as in FlashAttention (arXiv 2205.14135). K and V of a group are read once for all its
query heads and all T query tokens. Softmax, rotary embedding and norms count no FLOPs: together
below 1 % of a layer at H >= 64.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, ceil, floor, formula, half, is_zero, minimum, total
from .sharing import cache_read_bytes, common_window_tokens
from .state import NOTHING
from .weights import Tensor, Weighted, read_bytes, vector


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
def windowed_pairs(n: Q, T: Q, W: Q) -> Q:
    """Query-key pairs of T new tokens after n cached ones, each seeing its last W tokens.

    n: tokens cached before [tokens]; T: new tokens [tokens]; W: window, the query's own token
    included [tokens]. Returns [pairs]. While the context is shorter than the window the causal
    triangle grows; from then on each query adds W.

    >>> windowed_pairs(0, 2048, 1024)
    1573376
    """
    before, after = minimum(n, W), minimum(n + T, W)
    return half(after * (after + 1)) - half(before * (before + 1)) + (T - (after - before)) * W


@formula
def chunked_pairs(n: Q, T: Q, C: Q) -> Q:
    """Query-key pairs of T new tokens after n cached ones that do not look out of their chunk.

    n: tokens cached before [tokens]; T: new tokens [tokens]; C: chunk [tokens]. Returns [pairs].
    The token at position p (from 0) sees (p mod C) + 1 tokens, on average (C + 1)/2. Source:
    transformers, models/llama4.

    >>> chunked_pairs(1_000_000, 1, 8192)
    577
    """
    return chunked_total(n + T, C) - chunked_total(n, C)


def chunked_total(n: Q, C: Q) -> Q:
    """Pairs of the first n tokens: whole chunks and the open one."""
    whole = floor(n / C)
    rest = n - whole * C
    return whole * half(C * (C + 1)) + half(rest * (rest + 1))


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
def receptive_field(L: Q, W: Q) -> Q:
    """Tokens that can reach an output through all layers of windows: L(W - 1) + 1.

    L: layers [1]; W: window, the query's own token included [tokens]. Returns [tokens].

    >>> receptive_field(32, 4096)
    131041
    """
    return L * (W - 1) + 1


@formula
def shared_layers(L: Q, share: Q) -> Q:
    """Layers that keep keys and values where each is shared by several: ceil(L/share).

    L: layers [1]; share: layers that share one cache [1]. Returns [1]. Every layer still reads
    them: storage shrinks, traffic does not. Source: arXiv 2405.12981.

    >>> shared_layers(32, 3)
    11
    """
    return ceil(L / share)


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


QKNorm = Literal["none", "head", "width", "shared-head"]
Gate = Literal["none", "width", "head"]


@dataclass(frozen=True)
class Attention(Weighted):
    """A mixer: softmax attention of one layer, over all of the context or a part of it."""

    N: Q
    K: Q
    H: Q
    H_v: Q | None = None
    """Width of a value head where it is not H."""
    window: Q | None = None
    """Last tokens that a query sees, itself included."""
    chunk: Q | None = None
    """Tokens of the chunks that a query does not look out of."""
    sink_tokens: Q = 0
    """First tokens that stay in view beside a window (StreamingLLM)."""
    shares: bool = False
    """Reads the keys and values of an earlier layer: none of its own are made or kept."""
    value_is_key: bool = False
    """Values are made by the key projection: no weights of their own."""
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: QKNorm = "none"
    """Norm weights on queries and keys: none, H each (Qwen3), all heads wide (OLMo 2)."""
    idle_key_norm: bool = False
    """Holds a norm of keys though it reads those of another layer (Hunyuan)."""
    gate: Gate = "none"
    """Projection that gates the output: none, all heads wide, or one number a head."""
    extra: Q = 0
    """Further weights of the layer: learned sinks, lambdas."""
    inputs: int = 1
    """Rows that the projections read side by side: 2 where the embedding is read as well."""

    LETTERS: ClassVar = {
        "N": "N", "K": "K", "H": "H", "H_v": "H_v", "window": "W", "chunk": "W",
        "sink_tokens": "s", "extra": "x",
    }  # fmt: skip
    DIVIDES: ClassVar = (("K", "N"),)

    @property
    def kind(self) -> str:
        """Name of what a query sees."""
        if self.shares:
            return "shared"
        if self.chunk is not None:
            return "chunked"
        if self.window is None:
            return "full"
        return "sliding" if is_zero(self.sink_tokens) else "streaming"

    @property
    def value_width(self) -> Q:
        """Width of a value head [1]."""
        return self.H if self.H_v is None else self.H_v

    @property
    def window_tokens(self) -> Q | None:
        """Most tokens that a sequence keeps; None without limit [tokens]."""
        if self.chunk is not None:
            return self.chunk
        return None if self.window is None else self.window + self.sink_tokens

    @property
    def qk_norm_parameters(self) -> Q:
        """Weights of the norms on queries and keys [parameters]."""
        keys = 0 if self.shares and not self.idle_key_norm else 1
        match self.qk_norm:
            case "none":
                return 0
            case "shared-head":
                return self.H
            case "head":
                return (1 + keys) * self.H
            case "width":
                return self.N * self.H + keys * self.K * self.H

    @property
    def key_value_width(self) -> Q:
        """Columns of the key and value projections that this layer has [1]."""
        if self.shares:
            return 0
        return self.K * self.H + (0 if self.value_is_key else self.K * self.value_width)

    @property
    def gate_width(self) -> Q:
        """Columns of the gate's projection [1]."""
        match self.gate:
            case "none":
                return 0
            case "head":
                return self.N
            case "width":
                return self.N * self.value_width

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        wide, heads = self.inputs * D, self.N * self.H
        widths = [("attn_q", heads)]
        if not self.shares:
            widths += [("attn_k", self.K * self.H)]
            widths += [] if self.value_is_key else [("attn_v", self.K * self.value_width)]
        for name, columns in widths:
            yield Tensor("qkv", "attention", wide, columns, name=name)
        if self.qkv_bias:
            yield from (vector("qkv", "attention", columns) for _, columns in widths)
        if self.gate != "none":
            yield Tensor("qkv", "attention", wide, self.gate_width)
        yield vector("qkv", "qk_norm", self.qk_norm_parameters)
        yield vector("qkv", "attention", self.extra)
        yield Tensor("out", "attention", self.N * self.value_width, D, name="attn_output")
        if self.out_bias:
            yield vector("out", "attention", D)

    @property
    def key_value_elements(self) -> Q:
        """Key and value elements of one token [elements]."""
        if self.H_v is None:
            return kv_cache_elements(self.K, self.H)
        return self.K * (self.H + self.H_v)

    def key_value_bytes(self, precision: Precision) -> Q:
        """Bytes of the keys and values of one token, scales included [B]."""
        key = precision.cache.vector_bytes(self.H, "key")
        value = precision.cache.vector_bytes(self.value_width, "value")
        return 2 * self.K * key if self.H_v is None and key == value else self.K * (key + value)

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes that a token of a short context adds to the cache [B]."""
        return 0 if self.shares else self.key_value_bytes(precision)

    def growing_bytes(self, precision: Precision) -> Q:
        """Bytes that a further token adds to the cache beyond all windows [B]."""
        return 0 if self.window_tokens is not None else self.token_bytes(precision)

    def cache_bytes(self, S: Q, precision: Precision) -> Q:
        """Bytes that one layer keeps for a sequence of S tokens beside its state [B]."""
        return self.token_bytes(precision) * self.kept_tokens(S)

    @property
    def token_elements(self) -> Q:
        """Elements that a token of a short context adds to the cache [elements]."""
        return 0 if self.shares else self.key_value_elements

    @property
    def growing_elements(self) -> Q:
        """Elements that a further token adds to the cache beyond all windows [elements]."""
        return 0 if self.window_tokens is not None else self.token_elements

    @property
    def reference_token_elements(self) -> Q:
        """Elements of a token in the reference implementation [elements]."""
        return self.token_elements

    state = NOTHING
    reference_state = NOTHING

    def kept_tokens(self, S: Q) -> Q:
        """Tokens of a context that are needed in the cache [tokens]."""
        limit = self.window_tokens
        return S if limit is None else minimum(S, limit)

    def seen_tokens(self, n: Q, T: Q) -> Q:
        """Tokens whose keys and values T new queries after n cached tokens read [tokens]."""
        if self.chunk is not None:
            # The chunk of the first query starts at a multiple of its length.
            return T + n - floor(n / self.chunk) * self.chunk
        if self.window is None:
            return n + T
        return minimum(n, self.window - 1 + self.sink_tokens) + T

    def pairs(self, n: Q, T: Q) -> Q:
        """Query-key pairs of T new tokens after n cached ones [pairs]."""
        if self.chunk is not None:
            return chunked_pairs(n, T, self.chunk)
        if self.window is None:
            return causal_pairs(n, T)
        return windowed_pairs(n, T, self.window + self.sink_tokens)

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong."""
        N, K, H = self.N, self.K, self.H
        if N * H != D:
            yield f"heads are {N} x {H} = {N * H} wide, not D = {D}"
        if K != N:
            yield (
                f"{N} query heads share {K} key/value heads: the cache is {N // K} times smaller "
                "than with one each"
            )
        if self.window is not None:
            first = f"the first {self.sink_tokens:,} and " if self.sink_tokens else ""
            kept = "" if self.shares else ", and keep no more"
            yield f"{layers} see {first}the last {self.window:,} tokens only{kept}"
        if self.chunk is not None:
            yield f"{layers} do not look out of chunks of {self.chunk:,} tokens"
        if self.shares:
            yield f"{layers} read the keys and values of another layer and keep none"
        if self.inputs != 1:
            yield f"{layers} read the embedding beside their input: rows {self.inputs} D wide"
        if self.qk_norm != "none":
            yield f"queries and keys are normed ({self.qk_norm})"
        if self.gate != "none":
            yield f"attention outputs are gated ({self.gate})"
        where = [w for w, on in (("qkv", self.qkv_bias), ("out", self.out_bias)) if on]
        if where:
            yield f"biases on {' and '.join(where)}"

    def segment_pairs(self, s: Segment) -> Q:
        """Query-key pairs of a sequence, its new tokens seeing each other both ways or not."""
        return full_pairs(s.cached, s.new) if s.both_ways else self.pairs(s.cached, s.new)

    def cache_tokens(self, s: Segment) -> Q:
        """Tokens whose keys and values are read of the cache; those not kept are not in it."""
        seen = self.seen_tokens(s.cached, s.new)
        return seen if s.keeps else seen - s.new

    def common_tokens(self, S: Q, h: Q) -> Q:
        """Tokens that a sequence of S keeps, or sees, of a prefix of h that others have too."""
        if self.window is None:
            return h
        return common_window_tokens(S, self.window, h, self.sink_tokens)

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens."""
        return 0 if self.shares else self.key_value_elements * self.kept_tokens(S)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        N, H, H_v = self.N, self.H, self.value_width
        b_x, token = precision.activations.bytes, self.key_value_bytes(precision)
        held, compute = list(self.tensors(D)), precision.compute_of("attention")
        rows = total(s.rows for s in segments)
        kept_rows = total(s.rows for s in segments if s.keeps)
        width, wide = N * H + self.key_value_width + self.gate_width, self.inputs * D
        written = 0 if self.shares else token * kept_rows
        yield Operator(
            name="qkv",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, wide, width),
            compute=compute,
            weight_bytes=read_bytes(held, "qkv", precision),
            write_bytes=written,
            activation_bytes=b_x * (wide + N * H + self.gate_width) * rows,
            live_bytes=b_x * (D + wide + width) * rows,
        )
        pairs = total(s.sequences * self.segment_pairs(s) for s in segments)
        yield Operator(
            name="attention",
            part="attention",
            count=count,
            compute=precision.attention_compute,
            flops=attention_flops(pairs, N, H) if self.H_v is None else 2 * N * (H + H_v) * pairs,
            read_bytes=total(cache_read_bytes(self, s, token) for s in segments),
            activation_bytes=b_x * (N * H + N * H_v) * rows,
            head_width=H,
            live_bytes=b_x * (D + width + N * H_v) * rows,
        )
        yield Operator(
            name="out",
            part="attention projections",
            count=count,
            flops=matmul_flops(rows, N * H_v, D),
            compute=compute,
            weight_bytes=read_bytes(held, "out", precision),
            activation_bytes=b_x * (N * H_v + D) * rows,
            live_bytes=b_x * (2 * D + N * H_v) * rows,
        )


@dataclass(frozen=True)
class NoMixer(Weighted):
    """A layer whose attention was taken out."""

    LETTERS: ClassVar[dict[str, str]] = {}
    kind = "none"
    window_tokens = None
    token_elements = growing_elements = reference_token_elements = 0
    state = reference_state = NOTHING

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List no weights."""
        return iter(())

    def cache_elements(self, S: Q) -> Q:
        """Keep nothing."""
        return 0

    def token_bytes(self, precision: Precision) -> Q:
        """Keep nothing."""
        return 0

    def growing_bytes(self, precision: Precision) -> Q:
        """Keep nothing."""
        return 0

    def cache_bytes(self, S: Q, precision: Precision) -> Q:
        """Keep nothing."""
        return 0

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say that it is missing."""
        yield f"{layers} have no attention"

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """Execute nothing."""
        return iter(())
