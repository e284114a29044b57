"""Feed-forward layers: gated (three matrices) or plain (two).

Source: Stanford CS336 lecture 10 (lecture_10.py, "arithmetic_intensity_of_inference"). The
activation function is fused into the matmul that feeds it; its FLOPs are left out (below 0.1 %
of the layer at D >= 1024).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, formula, total
from .weights import Tensor, Weighted, read_bytes, vector


@formula
def mlp_parameters(D: Q, F: Q, matrices: Q = 3) -> Q:
    """Weights of a feed-forward layer without biases.

    D: model width [1]; F: MLP width [1]; matrices: 3 if gated, 2 if plain [1].
    Returns [parameters].

    >>> mlp_parameters(D=5120, F=13824)
    212336640
    """
    return matrices * D * F


@formula
def mlp_flops(rows: Q, D: Q, F: Q, matrices: Q = 3) -> Q:
    """FLOPs of a feed-forward layer.

    rows: tokens of the pass, BT [1]; D, F, matrices: as in `mlp_parameters` [1]. Returns [FLOP].

    >>> mlp_flops(1024, D=5120, F=13824)
    434865438720
    """
    return matrices * matmul_flops(rows, D, F)


@formula
def mlp_bytes(rows: Q, D: Q, F: Q, b: Q = 2) -> Q:
    """Bytes of a gated layer whose activation is fused: 2(BTD + BTF)b + 3DFb.

    rows, D, F: as in `mlp_flops` [1]; b: bytes per element [B]. Returns [B]. The lecture's count:
    the hidden row is written once and read once.

    >>> mlp_bytes(1024, D=5120, F=13824)
    502267904
    """
    return 2 * b * rows * (D + F) + 3 * b * D * F


@formula
def mlp_bytes_unfused(rows: Q, D: Q, F: Q, b: Q = 2) -> Q:
    """Bytes of a gated layer run as three matmuls and an activation kernel.

    rows, D, F, b: as in `mlp_bytes`. Returns [B].

    >>> mlp_bytes_unfused(1024, D=5120, F=13824)
    625999872
    """
    return 3 * b * rows * D + 6 * b * rows * F + 3 * b * D * F


def mlp_saturating_tokens(D: float, F: float, ridge: float) -> float:
    """Tokens at which a gated 16-bit layer turns compute-bound; infinity where it never does.

    D, F: widths [1]; ridge: intensity of the machine [FLOP/B]. Returns [tokens].

    >>> round(mlp_saturating_tokens(5120, 13824, 989e12 / 3.35e12), 2)
    311.64
    >>> round(mlp_saturating_tokens(8, 8, 5.99)), mlp_saturating_tokens(8, 8, 6)
    (3594, inf)
    """
    spare = 3 * D * F - 2 * ridge * (D + F)
    return 3 * ridge * D * F / spare if spare > 0 else math.inf


@formula
def fractional_attention_tokens(D: Q, causal: bool = False) -> Q:
    """Sequence length at which attention costs as many FLOPs as the matmuls: 8D, 16D if causal.

    D: model width, with F = 4D gated and NH = D [1]; causal: count only the causal half.
    Returns [tokens]. Source: jax-ml/scaling-book, transformers.md.

    >>> fractional_attention_tokens(4096, causal=True)
    65536
    """
    return (16 if causal else 8) * D


@dataclass(frozen=True)
class MLP(Weighted):
    """A dense feed-forward layer."""

    F: Q
    gated: bool = True
    bias: bool = False

    LETTERS: ClassVar = {"F": "F"}

    @property
    def matrices(self) -> int:
        """Weight matrices of the layer [1]."""
        return 3 if self.gated else 2

    def tensors(self, D: Q, op: str = "mlp", part: str = "mlp", count: Q = 1) -> Iterator[Tensor]:
        """List the weights of one layer, or of `count` equal ones that an operator reads."""
        up = self.matrices - 1
        yield Tensor(f"{op} up", part, D, self.F, count * up, "ffn_up")
        yield Tensor(f"{op} down", part, self.F, D, count, "ffn_down")
        if self.bias:
            yield vector(f"{op} up", part, self.F, count * up)
            yield vector(f"{op} down", part, D, count)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        F, up = self.F, self.matrices - 1
        b_x, held = precision.activations.bytes, list(self.tensors(D))
        compute = precision.compute_of("mlp")
        rows = total(s.rows for s in segments)
        yield Operator(
            name="mlp up",
            part="mlp",
            count=count,
            flops=mlp_flops(rows, D, F, up),
            compute=compute,
            weight_bytes=read_bytes(held, "mlp up", precision),
            activation_bytes=b_x * (D + F) * rows,
            # Residual, normed input, the up products, and the activated hidden row.
            live_bytes=b_x * (2 * D + up * F + F) * rows,
        )
        yield Operator(
            name="mlp down",
            part="mlp",
            count=count,
            flops=mlp_flops(rows, D, F, 1),
            compute=compute,
            weight_bytes=read_bytes(held, "mlp down", precision),
            activation_bytes=b_x * (F + D) * rows,
            live_bytes=b_x * (2 * D + F) * rows,
        )
