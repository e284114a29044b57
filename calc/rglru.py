"""RG-LRU: a gated linear recurrence for each channel (Griffin, RecurrentGemma).

Source: arXiv 2402.19427; transformers, models/recurrent_gemma. Exponentials and gates count no
FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from .readings import Q, ratio
from .recurrent import Recurrent, Widths
from .state import Kept, convolution_columns


@dataclass(frozen=True)
class RGLRU(Recurrent):
    """A mixer: one number of state for each channel, with two gates of block-diagonal matrices."""

    width: Q
    blocks: Q
    taps: Q = 4

    LETTERS: ClassVar = {"width": "D_i", "blocks": "N_l", "taps": "k_c"}
    ABOUT: ClassVar = {
        "width": "width of the recurrence", "blocks": "blocks of the matrices of its gates",
        "taps": "tokens that the convolution sees",
    }  # fmt: skip
    DIVIDES: ClassVar = (("blocks", "width"),)
    kind = "rg-lru"

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        w = self.width
        inner = ratio(w, self.blocks)
        return Widths(
            # Each gate has a matrix for each block of channels: one of w rows altogether.
            into=((D, w), (D, w), (w, inner), (w, inner)),
            out=((w, D),),
            # Biases of four projections and two gates, the convolution, the decay.
            rest=2 * w + D + 2 * w + w * (self.taps + 1) + w,
            norms=0,
            wide=4 * w,
            inner=w,
        )

    @property
    def state(self) -> Kept:
        """What is needed of a sequence, which is what transformers keeps."""
        return Kept(self.width, convolution_columns(self.width, self.taps))

    def step_flops(self) -> Q:
        """FLOPs of convolution and recurrence for one token: a h + b (i x) a channel [FLOP]."""
        return 4 * self.width + 2 * self.taps * self.width

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield (
            f"{layers} keep {self.width} numbers and {self.taps - 1} columns of a convolution, "
            "read and written each step, whatever the context"
        )
