"""State-space layers: Mamba and Mamba-2.

Sources: arXiv 2312.00752 and 2405.21060; github.com/state-spaces/mamba, mamba_simple.py and
mamba2.py. Exponentials, gates and activations count no FLOPs: below 1 % of a layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from .readings import Q, formula, is_zero
from .recurrent import Recurrent, Widths
from .state import Kept, convolution_columns


@formula
def scan_flops(state: Q) -> Q:
    """FLOPs of one token of a selective scan: six for each element of the state.

    state: elements of the state [elements]. Returns [FLOP]. Step times decay, decay, input, its
    sum, and the multiply-add of the output; the exponential is left out.

    >>> scan_flops(5120 * 16)
    491520
    """
    return 6 * state


@formula
def ssd_flops(heads: Q, width: Q, state: Q, groups: Q, chunk: Q) -> Q:
    """FLOPs of one token of the chunked form of Mamba-2, its matrices dense within a chunk.

    heads, width: heads and their width [1]; state: state width of a head [1]; groups: groups of
    heads that share inputs and outputs [1]; chunk: tokens of a chunk [tokens]. Returns [FLOP].
    More than the recurrence takes, and on tensor cores; a bound uses the recurrence. Left out: the
    states handed from chunk to chunk, width*state*heads/chunk a token.

    >>> ssd_flops(heads=80, width=64, state=128, groups=1, chunk=256)
    5308416
    """
    return 2 * groups * chunk * state + 2 * heads * chunk * width + 4 * heads * width * state


@formula
def mamba_parameters(D: Q, d: Q, s: Q, r: Q, taps: Q = 4) -> Q:
    """Weights of a Mamba layer: in and out, convolution, and what makes step, input and output.

    D: model width [1]; d: inner width [1]; s: state width [1]; r: rank of the step [1]; taps:
    tokens that the convolution sees [1]. Returns [parameters]. With the biases of convolution and
    step, and without others.

    >>> mamba_parameters(2560, 5120, 16, 160)
    41241600
    """
    return 3 * D * d + d * (r + 2 * s) + r * d + d + d * (taps + 1) + d * s + d


@formula
def mamba2_parameters(D: Q, heads: Q, width: Q, s: Q, groups: Q, taps: Q = 4) -> Q:
    """Weights of a Mamba-2 layer, its gated norm included.

    D: model width [1]; heads, width: heads and their width [1]; s: state width [1]; groups: groups
    of heads that share inputs and outputs [1]; taps: tokens that the convolution sees [1].
    Returns [parameters]. With the bias of the convolution, and without others.

    >>> mamba2_parameters(4096, heads=128, width=64, s=128, groups=8)
    109635968
    """
    d, shared = heads * width, 2 * groups * s
    return D * (2 * d + shared + heads) + (d + shared) * (taps + 1) + 3 * heads + d + d * D


@dataclass(frozen=True)
class Mamba(Recurrent):
    """A mixer: a state of s numbers for each inner channel."""

    d: Q
    s: Q
    r: Q
    taps: Q = 4
    bias: bool = False
    conv_bias: bool = True
    norms: bool = False

    LETTERS: ClassVar = {"d": "D_i", "s": "N_s", "r": "R_s", "taps": "k_c"}
    ABOUT: ClassVar = {
        "d": "inner width", "s": "state width of a channel", "r": "rank of the step",
        "taps": "tokens that the convolution sees", "bias": "biases on both projections",
        "conv_bias": "a bias on the convolution", "norms": "norms on step, input and output",
    }  # fmt: skip
    kind = "mamba"

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        d, s, r = self.d, self.s, self.r
        biases = (2 * d + D if self.bias else 0) + (d if self.conv_bias else 0)
        return Widths(
            into=((D, 2 * d), (d, r + 2 * s), (r, d)),
            out=((d, D),),
            rest=d * self.taps + d + d * s + d + biases,
            norms=r + 2 * s if self.norms else 0,
            wide=2 * d + r + 2 * s,
            inner=d,
        )

    @property
    def state(self) -> Kept:
        """What is needed of a sequence."""
        return Kept(self.d * self.s, convolution_columns(self.d, self.taps))

    @property
    def reference_state(self) -> Kept:
        """What mamba_ssm and transformers keep: all columns that the convolution sees."""
        return Kept(self.d * self.s, self.d * self.taps)

    def step_flops(self) -> Q:
        """FLOPs of convolution and scan for one token [FLOP]."""
        return scan_flops(self.d * self.s) + 2 * self.taps * self.d

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        yield (
            f"{layers} keep a state of {self.d} x {self.s} and {self.taps - 1} columns of a "
            "convolution, read and written each step, whatever the context"
        )


@dataclass(frozen=True)
class Mamba2(Recurrent):
    """A mixer: a matrix of head width times state width for each head."""

    heads: Q
    width: Q
    s: Q
    groups: Q = 1
    taps: Q = 4
    bias: bool = False
    conv_bias: bool = True
    norm: bool = True

    LETTERS: ClassVar = {
        "heads": "N_m", "width": "H_m", "s": "N_s", "groups": "G_m", "taps": "k_c",
    }  # fmt: skip
    ABOUT: ClassVar = {
        "heads": "heads", "width": "width of a head", "s": "state width of a head",
        "groups": "groups of heads that share inputs and outputs",
        "taps": "tokens that the convolution sees", "bias": "biases on both projections",
        "conv_bias": "a bias on the convolution", "norm": "a gated norm before the output",
    }  # fmt: skip
    DIVIDES: ClassVar = (("groups", "heads"),)
    kind = "mamba2"

    @property
    def inner(self) -> Q:
        """Inner width [1]."""
        return self.heads * self.width

    @property
    def channels(self) -> Q:
        """Channels that the convolution runs over [1]."""
        return self.inner + 2 * self.groups * self.s

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer."""
        d, made = self.inner, self.inner + self.channels + self.heads
        biases = (made + D if self.bias else 0) + (self.channels if self.conv_bias else 0)
        return Widths(
            into=((D, made),),
            out=((d, D),),
            rest=self.channels * self.taps + 3 * self.heads + biases,
            norms=d if self.norm else 0,
            wide=made,
            inner=d,
        )

    @property
    def state(self) -> Kept:
        """What is needed of a sequence."""
        return Kept(self.inner * self.s, convolution_columns(self.channels, self.taps))

    @property
    def reference_state(self) -> Kept:
        """What mamba_ssm and transformers keep: all columns that the convolution sees."""
        return Kept(self.inner * self.s, self.channels * self.taps)

    def step_flops(self) -> Q:
        """FLOPs of convolution and recurrence for one token [FLOP]."""
        return scan_flops(self.inner * self.s) + 2 * self.taps * self.channels

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for attention would get wrong."""
        columns = "" if is_zero(self.taps - 1) else f" and {self.taps - 1} columns of a convolution"
        yield (
            f"{layers} keep a state of {self.heads} x {self.width} x {self.s}{columns}, read and "
            "written each step, whatever the context"
        )
