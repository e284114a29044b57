"""Layers with a state: projections, a convolution, a recurrence, and a projection back.

The whole state is read and written by each pass, unlike keys and values.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, minimum, total
from .state import Kept
from .weights import Tensor, Weighted, read_bytes, vector


@dataclass(frozen=True)
class Widths:
    """Weights and widths of a layer with a state, as its operators use them."""

    into: tuple[tuple[Q, Q], ...]
    """Matrices before the state: rows and columns."""
    out: tuple[tuple[Q, Q], ...]
    """Matrices after it."""
    rest: Q
    """Weights that multiply no matrix: biases, convolution, decays."""
    norms: Q
    """Weights of norms inside the layer."""
    wide: Q
    """Columns that the matrices before the state make."""
    inner: Q
    """Columns of the row after it."""


class Recurrent(Weighted):
    """What mixers with a state have in common; each says its widths, its state and its work."""

    window_tokens = None
    token_elements = growing_elements = reference_token_elements = 0

    @abstractmethod
    def widths(self, D: Q) -> Widths:
        """Tell the weights of one layer, D the model width."""

    @property
    @abstractmethod
    def state(self) -> Kept:
        """What is needed of a sequence."""

    @property
    def reference_state(self) -> Kept:
        """What the reference implementation keeps."""
        return self.state

    @abstractmethod
    def step_flops(self) -> Q:
        """FLOPs of convolution and recurrence for one token [FLOP]."""

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        w = self.widths(D)
        yield from (Tensor("state in", "linear_mixer", *shape) for shape in w.into)
        yield vector("state", "linear_mixer", w.rest)
        yield vector("state", "norms", w.norms)
        yield from (Tensor("state out", "linear_mixer", *shape) for shape in w.out)

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes that a token adds: none."""
        return 0

    def growing_bytes(self, precision: Precision) -> Q:
        """Bytes that a further token adds: none."""
        return 0

    def cache_bytes(self, S: Q, precision: Precision) -> Q:
        """Bytes that grow with the context: none."""
        return 0

    def cache_elements(self, S: Q) -> Q:
        """Count what grows with the context: nothing."""
        return 0

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        b_x, held = precision.activations.bytes, list(self.tensors(D))
        compute = precision.compute_of("linear_mixer")
        rows = total(s.rows for s in segments)
        w, kept = self.widths(D), self.state.bytes(precision)
        yield Operator(
            name="state in",
            part="recurrence projections",
            count=count,
            flops=total(matmul_flops(rows, *shape) for shape in w.into),
            compute=compute,
            weight_bytes=read_bytes(held, "state in", precision),
            activation_bytes=b_x * (D + w.wide) * rows,
            live_bytes=b_x * (2 * D + w.wide) * rows,
        )
        yield Operator(
            name="state",
            part="recurrence",
            count=count,
            flops=self.step_flops() * rows,
            weight_bytes=read_bytes(held, "state", precision),
            # The first pass of a sequence finds no state to read.
            read_bytes=total(s.sequences * minimum(s.cached, 1) * kept for s in segments),
            write_bytes=total(s.sequences * kept for s in segments),
            activation_bytes=b_x * (w.wide + w.inner) * rows,
            live_bytes=b_x * (D + w.wide + w.inner) * rows,
        )
        yield Operator(
            name="state out",
            part="recurrence projections",
            count=count,
            flops=total(matmul_flops(rows, *shape) for shape in w.out),
            compute=compute,
            weight_bytes=read_bytes(held, "state out", precision),
            activation_bytes=b_x * (w.inner + D) * rows,
            live_bytes=b_x * (2 * D + w.inner) * rows,
        )
