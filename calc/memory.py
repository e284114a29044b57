"""What fills the memory of a device, and the most that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .model import Model, total_parameters
from .passes import Operator, Precision
from .readings import Q, maximum


def weights_bytes(model: Model, precision: Precision, norms: bool = True) -> Q:
    """Bytes that the weights take [B]; `norms=False` is the lecture's count."""
    return precision.weights.bytes * total_parameters(model, norms)


def activations_bytes(ledger: Sequence[Operator]) -> Q:
    """Bytes of the widest point of a pass: one operator's activations live at a time [B].

    Left out: allocator fragmentation and workspaces, which only a run can tell (a few per cent).
    """
    widest: Q = 0
    for op in ledger:
        widest = maximum(widest, op.live_bytes)
    return widest


def largest(holds: Callable[[int], bool], limit: int = 10**12) -> int:
    """Find the largest n in 0..limit for which a monotone condition holds, exactly.

    Doubles until it fails, then bisects: about 80 questions at the most. 0 is taken to hold.
    """
    low, high = 0, 1
    while high <= limit and holds(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low
