"""Number formats: what a weight takes in memory with its scales, and what multiplies it.

Bytes are a function of a matrix's rows and columns, not of a nominal number of bits. A matrix of
`rows` inner width and `columns` outputs multiplies X[., rows] to [., columns]; groups run along its
rows, channels are its columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import RooflmError, nearest
from .readings import Q, ceil

Covers = Literal["all", "matrices", "linear", "experts"]
"""What a format is used for unless it is said otherwise: every weight; every matrix, embedding and
head among them; the matrices of the layers, without router, embedding and head; experts alone."""


@dataclass(frozen=True)
class Format:
    """A number format of weights, caches or states."""

    name: str
    bits: Q
    """Bits of one number."""
    compute: str = ""
    """Format whose peak rate multiplies such numbers; that of the activations where it is ""."""
    covers: Covers = "linear"
    group: int = 0
    """Rows of a column that share a scale; 0 where there are no groups."""
    group_bits: Q = 0
    """Scale and zero of a group [bits]."""
    column_bits: Q = 0
    """Scale of a column [bits]."""
    row_bits: Q = 0
    """What is kept of a row: the group that it belongs to [bits]."""
    tile: int = 0
    """Side of square tiles that share a scale; 0 where there are none."""
    tile_bits: Q = 0
    """Scale of a tile [bits]."""
    matrix_bits: Q = 0
    """Scale of a whole matrix [bits]."""

    @property
    def bytes(self) -> Q:
        """Bytes of one number without scales [B]."""
        bits = self.bits
        return bits // 8 if isinstance(bits, int) and bits % 8 == 0 else bits / 8

    def matrix_bytes(self, rows: Q, columns: Q) -> Q:
        """Bytes of a matrix with all its scales [B].

        rows: inner width [1]; columns: outputs [1].
        """
        scales: Q = 0
        if self.group:
            scales += self.group_bits * ceil(rows / self.group) * columns
        if self.column_bits:
            scales += self.column_bits * columns
        if self.row_bits:
            scales += self.row_bits * rows
        if self.tile:
            scales += self.tile_bits * ceil(rows / self.tile) * ceil(columns / self.tile)
        if self.matrix_bits:
            scales += self.matrix_bits
        if not self.group and isinstance(scales, int) and scales == 0:
            return self.bytes * (rows * columns)
        return self.bytes * (rows * columns) + scales / 8


FORMATS: dict[str, Format] = {
    "fp32": Format("fp32", 32, "fp32", "all"),
    "bf16": Format("bf16", 16, "bf16", "all"),
    "fp16": Format("fp16", 16, "fp16", "all"),
}
"""Formats by name."""


def find_format(name: str, where: str = "") -> Format:
    """Look a number format up; raise `RooflmError` with the known ones otherwise."""
    if name not in FORMATS:
        fix = nearest(name, FORMATS) or f"Known formats: {', '.join(FORMATS)}."
        raise RooflmError(f"unknown number format '{name[:40]}'", where, fix)
    return FORMATS[name]
