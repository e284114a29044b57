"""The matrix memory of xLSTM.

Source: arXiv 2405.04517 and 2503.13427 (xLSTM-7B); transformers, models/xlstm. Exponentials and
gates count no FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from .linear_attention import linear_attention_flops, linear_state_elements
from .readings import Q
from .recurrent import Recurrent, Widths
from .state import Kept


@dataclass(frozen=True)
class MLSTM(Recurrent):
    """A mixer: a matrix, a vector and a scalar for each head, with exponential gates."""

    heads: Q
    key: Q
    value: Q

    LETTERS: ClassVar = {"heads": "N_l", "key": "d_k", "value": "d_v"}
    ABOUT: ClassVar = {
        "heads": "heads", "key": "width of queries and keys", "value": "width of values",
    }  # fmt: skip
    kind = "mlstm"

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        values = self.heads * self.value
        made = 2 * self.heads * self.key + 2 * values + 2 * self.heads
        return Widths(
            into=((D, made),),
            out=((values, D),),
            # Biases of the input and forget gates.
            rest=2 * self.heads,
            norms=values,
            wide=made,
            inner=values,
        )

    @property
    def state(self) -> Kept:
        """Matrix, normaliser and largest exponent of each head."""
        matrices = linear_state_elements(self.heads, self.key, self.value)
        return Kept(matrices + self.heads * self.key + self.heads)

    def step_flops(self) -> Q:
        """FLOPs of the recurrence for one token [FLOP]."""
        matrices = linear_state_elements(self.heads, self.key, self.value)
        return linear_attention_flops(matrices, decays=True) + 5 * self.heads * self.key

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield (
            f"{layers} keep {self.heads} matrices of {self.key} x {self.value}, read and written "
            "each step, whatever the context"
        )
