"""Layers with a state of fixed size: what a sequence keeps whatever its length, and its traffic.

The whole state is read and written by each pass, unlike keys and values. Sources:
state-spaces/mamba, mamba_simple.py (allocate_inference_cache); vllm-project/vllm, mamba_utils.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, formula, is_zero, minimum, total


@formula
def convolution_columns(channels: Q, taps: Q) -> Q:
    """Elements that a causal convolution needs of earlier tokens: one column less than its taps.

    channels: width of what it runs over [1]; taps: tokens that it sees [1]. Returns [elements].
    transformers and mamba_ssm keep `taps` columns, llama.cpp and vLLM as many as needed.

    >>> convolution_columns(5120, 4)
    15360
    """
    return channels * (taps - 1)


@formula
def state_bytes(recurrent: Q, columns: Q, b_state: Q = 4, b_column: Q = 2) -> Q:
    """Bytes that a layer keeps of a sequence whatever its length.

    recurrent: elements of the recurrent state [elements]; columns: those of convolutions and
    shifted tokens [elements]; b_state, b_column: bytes per element of each [B]. Returns [B].

    >>> state_bytes(81920, 15360)
    358400
    """
    return b_state * recurrent + b_column * columns


@dataclass(frozen=True)
class Kept:
    """What one layer keeps of a sequence whatever its length."""

    recurrent: Q = 0
    """Elements in the number format of the state."""
    columns: Q = 0
    """Columns of convolutions and shifted tokens, in the format of the cache."""

    @property
    def elements(self) -> Q:
        """Elements of both kinds."""
        return self.recurrent + self.columns

    def bytes(self, precision: Precision) -> Q:
        """Bytes of both kinds [B]."""
        return state_bytes(
            self.recurrent, self.columns, precision.state.bytes, precision.cache.bytes
        )


NOTHING = Kept()


@dataclass(frozen=True)
class Widths:
    """Weights and widths of a layer with a state, as its operators use them."""

    into: Q
    """Weights of the matrices before the state."""
    out: Q
    """Weights of the matrices after it."""
    rest: Q
    """Weights that multiply no matrix: biases, convolution, decays."""
    norms: Q
    """Weights of norms inside the layer."""
    wide: Q
    """Columns that the matrices before the state make."""
    inner: Q
    """Columns of the row after it."""


class Recurrent:
    """What mixers with a state have in common; each says its widths, its state and its work."""

    window_tokens = None
    token_elements = growing_elements = reference_token_elements = 0

    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer, D the model width."""
        raise NotImplementedError

    @property
    def state(self) -> Kept:
        """What is needed of a sequence."""
        raise NotImplementedError

    @property
    def reference_state(self) -> Kept:
        """What the reference implementation keeps."""
        return self.state

    def step_flops(self) -> Q:
        """FLOPs of convolution and recurrence for one token [FLOP]."""
        raise NotImplementedError

    def parameters(self, D: Q) -> dict[str, Q]:
        """Count the parameters of one layer by part."""
        w = self.widths(D)
        return {"linear_mixer": w.into + w.out + w.rest, "norms": w.norms}

    def cache_elements(self, S: Q) -> Q:
        """Count what grows with the context: nothing."""
        return 0

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        b_w, b_x = precision.weights.bytes, precision.activations.bytes
        rows = total(s.rows for s in segments)
        w, kept = self.widths(D), self.state.bytes(precision)
        yield Operator(
            name="state in",
            part="state projections",
            count=count,
            # A matrix does two FLOPs a row for each of its weights.
            flops=matmul_flops(rows, w.into, 1),
            weight_bytes=b_w * w.into,
            activation_bytes=b_x * (D + w.wide) * rows,
            live_bytes=b_x * (2 * D + w.wide) * rows,
        )
        yield Operator(
            name="state",
            part="state",
            count=count,
            flops=self.step_flops() * rows,
            weight_bytes=b_w * (w.rest + w.norms),
            # The first pass of a sequence finds no state to read.
            read_bytes=total(s.sequences * minimum(s.cached, 1) * kept for s in segments),
            write_bytes=total(s.sequences * kept for s in segments),
            activation_bytes=b_x * (w.wide + w.inner) * rows,
            live_bytes=b_x * (D + w.wide + w.inner) * rows,
        )
        if is_zero(w.out):
            return
        yield Operator(
            name="state out",
            part="state projections",
            count=count,
            flops=matmul_flops(rows, w.out, 1),
            weight_bytes=b_w * w.out,
            activation_bytes=b_x * (w.inner + D) * rows,
            live_bytes=b_x * (2 * D + w.inner) * rows,
        )
