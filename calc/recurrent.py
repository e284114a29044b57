"""Layers with a state: projections, a convolution, a recurrence, and a projection back.

The whole state is read and written by each pass, unlike keys and values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, is_zero, minimum, total
from .state import Kept


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
            part="recurrence projections",
            count=count,
            # A matrix does two FLOPs a row for each of its weights.
            flops=matmul_flops(rows, w.into, 1),
            weight_bytes=b_w * w.into,
            activation_bytes=b_x * (D + w.wide) * rows,
            live_bytes=b_x * (2 * D + w.wide) * rows,
        )
        yield Operator(
            name="state",
            part="recurrence",
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
            part="recurrence projections",
            count=count,
            flops=matmul_flops(rows, w.out, 1),
            weight_bytes=b_w * w.out,
            activation_bytes=b_x * (w.inner + D) * rows,
            live_bytes=b_x * (2 * D + w.inner) * rows,
        )
