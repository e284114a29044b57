"""RWKV: time mixing with a state, and a feed-forward that looks one token back.

Sources: arXiv 2305.13048 (RWKV-4), 2503.14456 (RWKV-7, with its count of parameters);
fla-org/flash-linear-attention, fla/layers/rwkv7.py. Exponentials count no FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, formula, is_zero, total
from .recurrent import Recurrent, Widths
from .state import Kept
from .weights import Tensor, Weighted, is_vector, read_bytes, vector


@formula
def rwkv7_parameters(L: Q, D: Q, V: Q, w: Q, a: Q, v: Q, g: Q) -> Q:
    """Weights of a whole RWKV-7: 2DV + 4D + LD(12D + 2(w+a+v+g) + 19) - (2vD + D).

    L: layers [1]; D: width [1]; V: vocabulary [1]; w, a, v, g: ranks of decay, learning rate,
    value residual and gate [1]. Returns [parameters]. Source: arXiv 2503.14456, appendix.

    >>> rwkv7_parameters(L=32, D=2560, V=65536, w=96, a=96, v=64, g=320)
    2947735040
    """
    ranks = w + a + v + g
    return 2 * D * V + 4 * D + L * D * (12 * D + 2 * ranks + 19) - (2 * v * D + D)


@dataclass(frozen=True)
class RWKV4(Recurrent):
    """A mixer: a weighted mean with a decay for each channel."""

    D: Q
    A: Q

    LETTERS: ClassVar = {"A": "D_a", "D": "D"}
    ABOUT: ClassVar = {"A": "inner width"}
    kind = "rwkv4"

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        return Widths(
            into=((D, self.A),) * 3,
            out=((self.A, D),),
            rest=2 * self.A + 3 * D,
            norms=0,
            wide=3 * self.A,
            inner=self.A,
        )

    @property
    def state(self) -> Kept:
        """Numerator, denominator and largest exponent; the last token of both halves."""
        return Kept(3 * self.A, 2 * self.D)

    def step_flops(self) -> Q:
        """FLOPs of the recurrence for one token: about 13 for each channel [FLOP]."""
        return 13 * self.A

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield f"{layers} keep five rows of {self.A} numbers, read and written each step"


@dataclass(frozen=True)
class RWKV7(Recurrent):
    """A mixer: a matrix for each head under a generalised delta rule."""

    D: Q
    width: Q = 64
    w: Q = 64
    a: Q = 64
    v: Q = 32
    g: Q = 128

    LETTERS: ClassVar = {
        "D": "D", "width": "H", "w": "R_w", "a": "R_a", "v": "R_v", "g": "R_g",
    }  # fmt: skip
    ABOUT: ClassVar = {
        "width": "width of a head",
        "w": "rank of the decay", "a": "rank of the learning rate",
        "v": "rank of the value residual; 0 in the first layer", "g": "rank of the gate",
    }  # fmt: skip
    kind = "rwkv7"

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        first = D if is_zero(self.v) else 0
        low = [(D, n) for n in (self.w, self.a, self.v, self.g) if not is_zero(n)]
        return Widths(
            into=((D, D),) * 3 + tuple(pair for D, n in low for pair in ((D, n), (n, D))),
            out=((D, D),),
            # Six token mixes, three biases of ranks, three weights a channel.
            rest=12 * D - first,
            norms=2 * D,
            wide=7 * D,
            inner=D,
        )

    @property
    def state(self) -> Kept:
        """A matrix for each head; the last token of both halves."""
        return Kept(self.D * self.width, 2 * self.D)

    def step_flops(self) -> Q:
        """FLOPs of the recurrence for one token: about eight an element [FLOP]."""
        return 8 * self.D * self.width

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield (
            f"{layers} keep {self.D // self.width} matrices of {self.width} x {self.width} and two "
            "rows, read and written each step, whatever the context"
        )


@dataclass(frozen=True)
class ChannelMix(Weighted):
    """A feed-forward of RWKV: two matrices on a mix with the token before, perhaps a receptance."""

    F: Q
    receptance: bool = False

    LETTERS: ClassVar = {"F": "F"}

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        yield Tensor("mlp", "mlp", D, self.F)
        yield Tensor("mlp", "mlp", self.F, D)
        if self.receptance:
            yield Tensor("mlp", "mlp", D, D)
        yield vector("mlp", "mlp", 2 * D if self.receptance else D)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        b_x, held = precision.activations.bytes, list(self.tensors(D))
        weights = total(t.parameters for t in held if not is_vector(t))
        rows = total(s.rows for s in segments)
        yield Operator(
            name="mlp",
            part="mlp",
            count=count,
            flops=matmul_flops(rows, weights, 1),
            compute=precision.compute_of("mlp"),
            weight_bytes=read_bytes(held, "mlp", precision),
            activation_bytes=b_x * 2 * (D + self.F) * rows,
            live_bytes=b_x * (2 * D + 2 * self.F) * rows,
        )
