"""Gated short convolutions in place of attention (LFM2).

Source: transformers, models/lfm2; arXiv 2511.23404.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from .readings import Q
from .recurrent import Recurrent, Widths
from .state import Kept, convolution_columns


@dataclass(frozen=True)
class ShortConv(Recurrent):
    """A mixer: a convolution over the last tokens between two gates."""

    D: Q
    taps: Q = 3
    bias: bool = False

    LETTERS: ClassVar = {"D": "D", "taps": "k_c"}
    ABOUT: ClassVar = {
        "taps": "tokens that the convolution sees", "bias": "biases on all three parts",
    }  # fmt: skip
    kind = "conv"

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        # One rank of several has a part of the width, and rows of the whole.
        return Widths(
            into=((D, 3 * self.D),),
            out=((self.D, D),),
            rest=self.D * self.taps + (4 * self.D + D if self.bias else 0),
            norms=0,
            wide=3 * self.D,
            inner=self.D,
        )

    @property
    def state(self) -> Kept:
        """What is needed of a sequence."""
        return Kept(0, convolution_columns(self.D, self.taps))

    @property
    def reference_state(self) -> Kept:
        """What transformers keeps: all columns that the convolution sees."""
        return Kept(0, self.D * self.taps)

    def step_flops(self) -> Q:
        """FLOPs of the convolution and both gates for one token [FLOP]."""
        return 2 * self.taps * self.D + 2 * self.D

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield f"{layers} keep {self.taps - 1} columns of {self.D} numbers, whatever the context"
