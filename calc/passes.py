"""What a pass is made of: segments of sequences, and the operators that run over them."""

from __future__ import annotations

from dataclasses import dataclass

from .errors import RooflmError, nearest
from .readings import Q, real, total


@dataclass(frozen=True)
class Format:
    """A number format: what an element takes in memory, and what computes with it."""

    name: str
    bytes: Q
    """Bytes per element [B]."""
    compute: str
    """Format whose peak rate multiplies such numbers."""


FORMATS = {
    "fp32": Format("fp32", 4, "fp32"),
    "bf16": Format("bf16", 2, "bf16"),
    "fp16": Format("fp16", 2, "fp16"),
}
"""Formats without scales: their bytes per element are exact."""


def find_format(name: str, where: str = "") -> Format:
    """Look a number format up; raise `RooflmError` with the known ones otherwise."""
    if name not in FORMATS:
        fix = nearest(name, FORMATS) or f"Known formats: {', '.join(FORMATS)}."
        raise RooflmError(f"unknown number format '{name[:40]}'", where, fix)
    return FORMATS[name]


@dataclass(frozen=True)
class Routing:
    """How the tokens of a pass choose experts."""

    exponent: float = 0.0
    """Exponent of a Zipf law over the experts of a layer; 0 is even."""
    shares: tuple[float, ...] = ()
    """Probability that a token chooses each expert, in place of a law."""
    fewest: bool = False
    """All tokens choose the same experts: the least that a pass can touch."""


@dataclass(frozen=True)
class Precision:
    """The formats of a pass. Activations and arithmetic follow the weights."""

    weights: Format = FORMATS["bf16"]
    cache: Format = FORMATS["bf16"]
    state: Format = FORMATS["fp32"]
    """Format of recurrent states; columns of convolutions are in that of the cache."""
    routing: Routing = Routing()

    @property
    def activations(self) -> Format:
        """Format of activations."""
        return self.weights


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

    def __post_init__(self) -> None:
        for name in ("sequences", "new", "cached", "head_rows"):
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


def decode(B: Q, S: Q) -> list[Segment]:
    """Describe a decode step: B sequences, one new token each, at context S (new one included)."""
    return [Segment(sequences=B, new=1, cached=real(S) - 1)]


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

    @property
    def compulsory_bytes(self) -> Q:
        """Bytes that no fusion avoids: weights, cache read, cache written [B]."""
        return total((self.weight_bytes, self.write_bytes, self.read_bytes))

    @property
    def operator_bytes(self) -> Q:
        """Compulsory bytes and unfused activations [B]."""
        return self.compulsory_bytes + self.activation_bytes
