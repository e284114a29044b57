"""A run measures its device with little data: tests of wiring need no ceiling that holds."""

from __future__ import annotations

from typing import Any

from rooflm.validate import ceilings, linears, ranks

MATRICES = ((linears, "TRIED", (256, 256, 2)), (ceilings, "SIZES", {"cpu": (256,)}))
"""Matrices that are multiplied, in place of thousands of columns."""
MESSAGES = (ranks, "SIZES", (2**10, 2**11, 2**12, 2**13, 2**14))
"""Messages whose all-reduce is timed [B]."""


def megabyte(*_: Any) -> int:
    """Read this much, in place of several caches [B]."""
    return 2**20


def lessen() -> None:
    """Change this process, which is one that a test started."""
    for module, name, value in (*MATRICES, MESSAGES, (ceilings, "buffer_bytes", megabyte)):
        setattr(module, name, value)
