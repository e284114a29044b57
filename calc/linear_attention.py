"""Linear attention: a matrix for each head in place of a cache, with or without the delta rule.

Sources: arXiv 2006.16236 (linear attention), 2501.08313 (Lightning, MiniMax-01), 2412.06464 (gated
DeltaNet), 2510.26692 (Kimi Delta Attention); vllm-project/vllm, mamba_utils.py;
fla-org/flash-linear-attention, fla/layers/gated_deltanet.py. Activations and exponentials count no
FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Literal

from .readings import Q, formula
from .recurrent import Recurrent, Widths
from .state import Kept, convolution_columns


@formula
def linear_state_elements(heads: Q, key: Q, value: Q) -> Q:
    """Elements of the state of linear attention: a matrix for each head.

    heads: heads [1]; key, value: widths of keys and values [1]. Returns [elements].

    >>> linear_state_elements(32, 128, 128)
    524288
    """
    return heads * key * value


@formula
def linear_attention_flops(state: Q, decays: bool = False) -> Q:
    """FLOPs of one token: two for each element of the state to update it, two to read it.

    state: elements of the state [elements]; decays: it is scaled first, one more. Returns [FLOP].

    >>> linear_attention_flops(16 * 128 * 128)
    1048576
    """
    return (5 if decays else 4) * state


@formula
def delta_rule_flops(state: Q) -> Q:
    """FLOPs of one token of the gated delta rule: seven for each element of the state.

    state: elements of the state [elements]. Returns [FLOP]. One to decay, two each for what the
    key recalls, for the update of rank one, and for the output.

    >>> delta_rule_flops(32 * 128 * 128)
    3670016
    """
    return 7 * state


@dataclass(frozen=True)
class LinearAttention(Recurrent):
    """A mixer: keys and values are summed up in a matrix for each head."""

    heads: Q
    key: Q
    value: Q
    gate: bool = False
    norm: bool = False
    decays: bool = False
    normaliser: bool = False

    LETTERS: ClassVar = {"heads": "N_l", "key": "d_k", "value": "d_v"}
    ABOUT: ClassVar = {
        "heads": "heads", "key": "width of a key", "value": "width of a value",
        "gate": "a gate on the output, as wide as it", "norm": "a norm on the output",
        "decays": "the state decays (Lightning)", "normaliser": "the sum of keys is kept as well",
    }  # fmt: skip
    kind = "linear"

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        values = self.heads * self.value
        made = 2 * self.heads * self.key + values * (2 if self.gate else 1)
        return Widths(
            into=((D, made),),
            out=((values, D),),
            rest=0,
            norms=values if self.norm else 0,
            wide=made,
            inner=values,
        )

    @property
    def state(self) -> Kept:
        """What is needed of a sequence."""
        sums = self.heads * self.key if self.normaliser else 0
        return Kept(linear_state_elements(self.heads, self.key, self.value) + sums)

    def step_flops(self) -> Q:
        """FLOPs of the recurrence for one token [FLOP]."""
        elements = linear_state_elements(self.heads, self.key, self.value)
        # Adding the key to its sum, and the product of query and sum.
        sums = 3 * self.heads * self.key if self.normaliser else 0
        return linear_attention_flops(elements, self.decays) + sums

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield (
            f"{layers} sum keys and values up in {self.heads} matrices of {self.key} x "
            f"{self.value}, read and written each step, whatever the context"
        )


@dataclass(frozen=True)
class DeltaNet(Recurrent):
    """A mixer: a gated delta rule (gated DeltaNet, Kimi Delta Attention)."""

    key_heads: Q
    value_heads: Q
    key: Q
    value: Q
    taps: Q = 4
    decay: Literal["head", "channel"] = "head"
    rank: Q | None = None

    LETTERS: ClassVar = {
        "key_heads": "K_l", "value_heads": "N_l", "key": "d_k", "value": "d_v", "taps": "k_c",
        "rank": "R_g",
    }  # fmt: skip
    ABOUT: ClassVar = {
        "key_heads": "heads of queries and keys", "value_heads": "heads of values and of the state",
        "key": "width of a key", "value": "width of a value",
        "taps": "tokens that the convolution sees",
        "decay": "one for each head (gated DeltaNet) or for each channel of its keys (Kimi)",
        "rank": "rank of the projections of decay and output gate; full if absent",
    }  # fmt: skip
    DIVIDES: ClassVar = (("key_heads", "value_heads"),)
    kind = "delta"

    @property
    def keys(self) -> Q:
        """Columns of the keys of all heads [1]."""
        return self.key_heads * self.key

    @property
    def values(self) -> Q:
        """Columns of the values of all heads [1]."""
        return self.value_heads * self.value

    @property
    def channels(self) -> Q:
        """Channels that the convolution runs over [1]."""
        return 2 * self.keys + self.values

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        by_head = self.decay == "head"
        decays = self.value_heads if by_head else self.value_heads * self.key
        made = self.channels + self.value_heads + decays + self.values
        gates: tuple[tuple[Q, Q], ...]
        if self.rank is None:
            gates = ((D, decays), (D, self.values))
        else:
            rank = self.rank
            gates = ((D, rank), (rank, decays), (D, rank), (rank, self.values))
        return Widths(
            into=((D, self.channels), (D, self.value_heads), *gates),
            out=((self.values, D),),
            # Bias and scale of the decays beside the convolution.
            rest=self.channels * self.taps + decays + self.value_heads,
            norms=self.value,
            wide=made,
            inner=self.values,
        )

    @property
    def state(self) -> Kept:
        """What is needed of a sequence."""
        return Kept(self._matrices, convolution_columns(self.channels, self.taps))

    @property
    def reference_state(self) -> Kept:
        """What transformers keeps: all columns that the convolution sees."""
        return Kept(self._matrices, self.channels * self.taps)

    @property
    def _matrices(self) -> Q:
        return linear_state_elements(self.value_heads, self.key, self.value)

    def step_flops(self) -> Q:
        """FLOPs of convolution and recurrence for one token [FLOP]."""
        return delta_rule_flops(self._matrices) + 2 * self.taps * self.channels

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield (
            f"{layers} keep {self.value_heads} matrices of {self.key} x {self.value} and "
            f"{self.taps - 1} columns of a convolution, read and written each step, whatever the "
            "context"
        )
