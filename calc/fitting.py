"""Fit constants of a formula to measurements: least mean relative error, within limits."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[np.float64]

STEP = 1e-4
"""Relative step of a numerical derivative."""
SMALLEST = 0.01
"""Relative errors below it weigh alike: a perfect fit has no derivative."""


def fit(
    predict: Callable[[Array], Any],
    start: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    measured: Sequence[float],
    rounds: int = 40,
) -> Array:
    """Find the positive constants with the least mean of |predicted/measured - 1|.

    predict: constants to predicted figures; start, low, high: first guess and limits of each
    constant; measured: what to meet; rounds: at most so many steps. Returns the constants.
    Gauss-Newton in the logarithms of the constants, reweighted so that outliers do not pull.
    """
    target = np.asarray(measured, dtype=float)
    lows, highs = np.log(np.asarray(low, float)), np.log(np.asarray(high, float))
    at = np.clip(np.log(np.asarray(start, float)), lows, highs)

    def misses(point: Array) -> Array:
        return np.asarray(predict(np.exp(point)), dtype=float) / target - 1

    missed = misses(at)
    least, damping = float(np.abs(missed).mean()), 1e-3
    for _ in range(rounds):
        slopes = np.empty((len(target), len(at)))
        for i in range(len(at)):
            step = STEP if at[i] + STEP <= highs[i] else -STEP
            beside: Array = at.copy()
            beside[i] += step
            slopes[:, i] = (misses(beside) - missed) / step
        weights = 1 / np.maximum(np.abs(missed), SMALLEST)
        curvature = (slopes * weights[:, None]).T @ slopes
        slope = (slopes * weights[:, None]).T @ missed
        for _ in range(8):
            damped = curvature + damping * np.diag(np.diag(curvature) + 1e-12)
            move: Any = np.linalg.solve(damped, slope)
            tried: Array = np.clip(at - move, lows, highs)
            there = misses(tried)
            if float(np.abs(there).mean()) < least - 1e-9:
                break
            damping *= 4
        else:
            break
        at, missed, damping = tried, there, max(damping / 5, 1e-9)
        least = float(np.abs(missed).mean())
    return np.exp(at)
