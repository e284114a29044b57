"""Arithmetic intensity of one matrix multiplication, and the batch at which it saturates a machine.

Source of the definitions: Stanford CS336 lecture 10 (github.com/stanford-cs336/lectures,
lecture_10.py, "review_of_arithmetic_intensity") and jax-ml/scaling-book, roofline.md,
"Matrix multiplication".
"""

from __future__ import annotations

import math

from .readings import Q, ceil, formula, half


@formula
def matmul_flops(rows: Q, D: Q, F: Q) -> Q:
    """FLOPs of X[rows, D] @ W[D, F]: a multiply-add is two.

    rows: rows of X [1]; D: inner width [1]; F: outer width [1]. Returns [FLOP].

    >>> matmul_flops(64, 5120, 13824)
    9059696640
    """
    return 2 * rows * D * F


@formula
def matmul_bytes(rows: Q, D: Q, F: Q, b_x: Q = 2, b_w: Q = 2, b_y: Q = 2) -> Q:
    """Bytes that X[rows, D] @ W[D, F] moves: both operands read once, the result written once.

    rows, D, F: as in `matmul_flops` [1]; b_x, b_w, b_y: bytes per element of X, W and the result
    [B]. Returns [B]. Left out: reads repeated because a tile does not fit on chip.

    >>> matmul_bytes(64, 5120, 13824)
    143982592
    """
    return b_x * rows * D + b_w * D * F + b_y * rows * F


@formula
def intensity(flops: Q, bytes: Q) -> Q:
    """Arithmetic intensity: FLOPs per byte moved.

    flops: work [FLOP]; bytes: traffic [B]. Returns [FLOP/B].

    >>> round(intensity(9059696640, 143982592), 4)
    62.9222
    """
    return flops / bytes


@formula
def ridge(flops_per_s: Q, bytes_per_s: Q) -> Q:
    """Intensity of a machine at the ridge of its roofline: below it bandwidth limits.

    flops_per_s: dense peak of the format computed in [FLOP/s]; bytes_per_s: memory bandwidth
    [B/s]. Returns [FLOP/B].

    >>> round(ridge(989e12, 3.35e12), 1)
    295.2
    """
    return flops_per_s / bytes_per_s


@formula
def matmul_intensity_limit(D: Q, F: Q, b_x: Q = 2, b_y: Q = 2) -> Q:
    """Intensity of a matmul as its rows grow without end: 2DF/(b_x D + b_y F).

    D, F: widths of the weight [1]; b_x, b_y: bytes per element of operand and result [B].
    Returns [FLOP/B]. A matrix with a limit below the ridge is never compute-bound.

    >>> matmul_intensity_limit(512, 512)
    256.0
    """
    return 2 * D * F / (b_x * D + b_y * F)


def matmul_saturating_rows(
    D: float, F: float, ridge: float, b_x: float = 2, b_w: float = 2, b_y: float = 2
) -> float:
    """Rows at which X[rows, D] @ W[D, F] turns compute-bound; infinity where it never does.

    D, F: widths of the weight [1]; ridge: intensity of the machine [FLOP/B]; b_x, b_w, b_y: bytes
    per element [B]. Returns [1]. The usual shortcut, ridge * b_w / 2, leaves out the activations
    that grow with the rows: 8 % low for a 5120 x 13824 weight on an H100.

    >>> round(matmul_saturating_rows(5120, 13824, 989e12 / 3.35e12), 2)
    320.55
    >>> matmul_saturating_rows(512, 512, 989e12 / 3.35e12), matmul_saturating_rows(8, 8, 4)
    (inf, inf)
    """
    spare = 2 * D * F - ridge * (b_x * D + b_y * F)
    return ridge * b_w * D * F / spare if spare > 0 else math.inf


@formula
def saturating_rows_shortcut(ridge: Q, b_w: Q = 2) -> Q:
    """Rows at which a very wide matmul turns compute-bound, its activations left out.

    ridge: intensity of the machine [FLOP/B]; b_w: bytes per weight [B]. Returns [1].

    >>> round(saturating_rows_shortcut(989e12 / 3.35e12), 1)
    295.2
    """
    return ridge * b_w / 2


@formula
def causal_tile_pairs(T: Q, tile: Q) -> Q:
    """Query-key pairs that a causal kernel computes when it skips only whole tiles.

    T: sequence length [tokens]; tile: side of a square tile [tokens]. Returns [pairs]. Exact
    masking would compute T(T+1)/2.

    >>> causal_tile_pairs(2048, 128)
    2228224
    """
    tiles = ceil(T / tile)
    return half(tiles * (tiles + 1)) * tile * tile
