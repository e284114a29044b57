"""What a pass is made of: segments of sequences, and the operators that run over them."""

from __future__ import annotations

from dataclasses import dataclass

from .formats import CACHES, FORMATS, CacheFormat, Format
from .readings import Q, is_array, is_symbol, is_zero, minimum, real, total


@dataclass(frozen=True)
class Routing:
    """How the tokens of a pass choose experts."""

    exponent: float = 0.0
    """Exponent of a Zipf law over the experts of a layer; 0 is even."""
    shares: tuple[float, ...] = ()
    """Probability that a token chooses each expert, in place of a law."""
    alike: float = 1.0
    """rows**alike tokens choose by themselves, the others as one of those does; 1 is all, and 0
    is all alike."""
    fewest: bool = False
    """All tokens choose the same experts: the least that a pass can touch."""
    distinct: Q = None
    """Distinct experts of each layer that a pass touches, where they were counted [1]."""


LINEAR = frozenset((
    "attention", "mlp", "experts", "shared_experts", "linear_mixer", "residual", "own",
))  # fmt: skip
"""Parts whose matrices a format of fewer than 16 bits is used for, unless it is said otherwise."""
NAMED = (*sorted(LINEAR), "router", "embedding", "head", "rest")
"""Parts that `--weights` may give a format of their own."""


@dataclass(frozen=True)
class Precision:
    """The formats of a pass."""

    weights: Format = FORMATS["bf16"]
    cache: CacheFormat = CACHES["bf16"]
    state: Format = FORMATS["fp32"]
    """Format of recurrent states; columns of convolutions are in that of the cache."""
    rest: Format | None = None
    """Format of activations, and of weights that the one of the weights does not cover; 16 bits of
    the weights' own kind if None."""
    parts: tuple[tuple[str, Format], ...] = ()
    """Formats of parts in place of the one of the weights."""
    names: tuple[tuple[str, Format], ...] = ()
    """Formats of matrices by their name in a GGUF file, whose mixtures treat them by name."""
    routing: Routing = Routing()

    @property
    def activations(self) -> Format:
        """Format of activations."""
        if self.rest is not None:
            return self.rest
        return self.weights if self.weights.covers == "all" else FORMATS["bf16"]

    def format_of(self, part: str, matrix: bool = True, name: str = "") -> Format:
        """Tell the format of the matrices, or of the vectors, of a part.

        name: of a matrix in a GGUF file.
        """
        if not matrix:
            return self.activations
        for named, own in self.parts:
            if named == part:
                return own
        for known, own in self.names:
            if known == name:
                return own
        covers = self.weights.covers
        held = (
            covers == "all"
            or (covers == "experts" and part == "experts")
            or (covers == "linear" and part in LINEAR)
            or (covers == "matrices" and part != "router")
        )
        return self.weights if held else self.activations

    @property
    def computes(self) -> list[str]:
        """Formats that multiply weights of fewer bits than the activations' [names]."""
        found = [self.weights, *(own for _, own in self.parts)]
        names = {kind.compute for kind in found if kind.covers != "all"}
        return sorted((names | {self.attention_compute}) - {""})

    @property
    def expanded(self) -> list[str]:
        """Formats of weights that are read in fewer bits and multiplied as activations [names]."""
        found = [self.weights, *(own for _, own in self.parts)]
        return sorted({kind.name for kind in found if not kind.compute and kind.bits < 16})

    @property
    def attention_compute(self) -> str:
        """Format whose peak attention may compute at: that of a cache of fewer bits."""
        plain = FORMATS.get(self.cache.name)
        whole = plain is not None and plain.covers == "all"
        return "" if whole else self.cache.compute

    def compute_of(self, part: str) -> str:
        """Tell the format whose peak multiplies the matrices of a part; "" for the activations'."""
        own = self.format_of(part)
        return "" if own.covers == "all" else own.compute


BF16 = Precision()
"""Everything in bf16."""


@dataclass(frozen=True)
class Segment:
    """Equal sequences of a pass: S = cached + new."""

    sequences: Q
    """Sequences, B [1]."""
    new: Q
    """Tokens computed for each, T [tokens]."""
    cached: Q
    """Tokens in the cache before, n [tokens]."""
    head_rows: Q = 1
    """Positions of each whose logits are wanted: 1 for a prefill, 0 for an inner chunk [1]."""
    both_ways: bool = False
    """New tokens see each other in both directions (diffusion): no causal half."""
    keeps: bool = True
    """Keys and values of the new tokens are kept; a denoising pass throws them away."""
    shared: Q = 0
    """Leading tokens in the cache that are the same in all sequences, h [tokens]."""
    shared_once: bool = False
    """Those are read once for all sequences, and not for each."""

    def __post_init__(self) -> None:
        for name in ("sequences", "new", "cached", "head_rows", "shared"):
            object.__setattr__(self, name, real(getattr(self, name)))

    @property
    def rows(self) -> Q:
        """Rows that a linear layer sees, B*T [1]."""
        return self.sequences * self.new

    @property
    def context(self) -> Q:
        """Tokens of context at the end of the pass, S [tokens]."""
        return self.cached + self.new

    @property
    def kept(self) -> Q:
        """Tokens in the cache at the end of the pass [tokens]."""
        return self.context if self.keeps else self.cached


DECODE_TOKENS = 16
"""Up to so many new tokens a sequence, kernels run as in a decode step."""


def is_long(segment: Segment) -> bool:
    """Tell whether a segment is of a prefill, whose kernels take a tile of queries at a time."""
    new = segment.new
    if is_symbol(new):
        return False
    return bool((new.max() if is_array(new) else new) > DECODE_TOKENS)


def decode(B: Q, S: Q, shared: Q = 0, once: bool = False) -> list[Segment]:
    """Describe a decode step: B sequences, one new token each, at context S (new one included).

    shared: leading tokens that are the same in all, no more than there are before the new one
    [tokens]; once: they are read once for all sequences.
    """
    cached = real(S) - 1
    if is_zero(shared):
        return [Segment(sequences=B, new=1, cached=cached)]
    common = minimum(shared, cached)
    return [Segment(sequences=B, new=1, cached=cached, shared=common, shared_once=once)]


def prefill(B: Q, T: Q, cached: Q = 0) -> list[Segment]:
    """Describe the prefill of B prompts of T tokens after `cached` ones; one row of logits each."""
    return [Segment(sequences=B, new=T, cached=cached)]


def denoise(B: Q, S: Q) -> list[Segment]:
    """Describe a step of a diffusion model without a cache: all S positions, both ways, all logits.

    B: sequences [1]; S: prompt and tokens to generate together [tokens].
    """
    return [Segment(sequences=B, new=S, cached=0, head_rows=S, both_ways=True, keeps=False)]


def denoise_block(B: Q, S: Q, b: Q) -> list[Segment]:
    """Describe a pass of block diffusion: b masked tokens, the last of S, see a cache of the rest.

    B: sequences [1]; S: context, the block included [tokens]; b: tokens of the block [tokens].
    """
    return [Segment(B, new=b, cached=real(S) - b, head_rows=b, both_ways=True, keeps=False)]


def commit_block(B: Q, S: Q, b: Q) -> list[Segment]:
    """Describe the pass that writes keys and values of a finished block; it needs no logits."""
    return [Segment(B, new=b, cached=real(S) - b, head_rows=0, both_ways=True)]


@dataclass(frozen=True)
class Operator:
    """One operator of a pass; figures are of one run, `count` runs are equal."""

    name: str
    part: str
    """Class that tables and explanations group by."""
    count: Q
    compute: str = ""
    """Format whose peak rate does its products; that of the activations where it is ""."""
    flops: Q = 0
    """Arithmetic, a multiply-add is two [FLOP]."""
    weight_bytes: Q = 0
    """Weights streamed once [B]."""
    read_bytes: Q = 0
    """Cache or state read [B]."""
    write_bytes: Q = 0
    """Cache or state written [B]."""
    activation_bytes: Q = 0
    """Activations read and written when nothing is fused [B]."""
    live_bytes: Q = 0
    """Activations that exist while it runs, the residual stream included [B]."""
    seconds: Q = 0
    """Time of a message to other devices, which nothing overlaps [s]."""
    head_width: Q = 0
    """Width of a head of attention, where kernels depend on it [1]."""
    hosted: bool = False
    """Its weights, cache and state are in host memory: its bytes go over the host link."""

    @property
    def compulsory_bytes(self) -> Q:
        """Bytes that no fusion avoids: weights, cache read, cache written [B]."""
        return total((self.weight_bytes, self.write_bytes, self.read_bytes))

    @property
    def operator_bytes(self) -> Q:
        """Compulsory bytes and unfused activations [B]."""
        return self.compulsory_bytes + self.activation_bytes
