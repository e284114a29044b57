"""Max and Min of symbols: numbers tell most arguments apart before sympy searches for an order.

sympy asks of any two arguments whether one is never less than the other, and factors their
difference before it gives up, which takes milliseconds a pair. Two points at which the order of a
pair differs answer that at once. Everything here needs sympy.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable
from typing import Any

import sympy as untyped_sympy

from .readings import Q

sympy: Any = untyped_sympy

POINTS = 40
"""Points at which arguments are compared."""
LARGEST = 1e5
"""Symbols are whole numbers from 1 to this."""
ONES = 0.3
"""Share of the points at which a symbol is 1, where many terms change places."""
APART = 1e-6
"""Numbers that differ by less than this share of them are taken for equal: roundings."""

Numbers = tuple[float, ...]


@functools.lru_cache(maxsize=4096, typed=True)
def extreme(kind: str, *values: Q) -> Q:
    """Give what sympy's Max or Min (`kind`) of symbols gives: no argument that never counts.

    What was asked for is remembered.
    """
    function = getattr(sympy, kind)
    whole = [sympy.sympify(v) for v in dict.fromkeys(values)]
    if any(isinstance(v, sympy.Max | sympy.Min) for v in whole):
        # Nested ones are taken apart first.
        return function(*whole)
    kept: list[Any] = []
    for value in sympy.ordered(whole):
        lesser: list[Any] = []
        for other in kept:
            if crossing(value, other):
                continue
            chosen = function(value, other)
            if chosen == other:
                break
            if chosen == value:
                lesser.append(other)
        else:
            kept = [k for k in kept if k not in lesser] + [value]
    return function(*kept, evaluate=False)


def crossing(a: Any, b: Any) -> bool:
    """Tell whether either of two expressions is the larger one somewhere; False where unknown."""
    signs = {
        x > y
        for x, y in zip(at_points(a), at_points(b), strict=False)
        if abs(x - y) > APART * (abs(x) + abs(y))
    }
    return len(signs) == 2


@functools.lru_cache(maxsize=65536)
def at_points(expression: Any) -> Numbers:
    """Work an expression out at the points; nothing where a function is not among the known."""
    if expression.is_Symbol:
        return _numbers(expression)
    if expression.is_Number:
        return (float(expression),) * POINTS
    known = _KNOWN.get(expression.func)
    parts = [at_points(argument) for argument in expression.args]
    if known is None or not all(parts):
        return ()
    try:
        return tuple(map(known, *parts))
    except (ArithmeticError, TypeError, ValueError):
        # Beyond floats, or no real number there.
        return ()


def _numbers(symbol: Any) -> Numbers:
    """Choose the numbers that a symbol stands for, small ones as often as large ones."""
    if symbol.is_positive is False:
        return ()
    draw = random.Random(symbol.name)
    top = math.log(LARGEST)
    return tuple(
        1.0 if draw.random() < ONES else float(round(math.exp(draw.uniform(0, top))))
        for _ in range(POINTS)
    )


def _sum(*terms: float) -> float:
    return sum(terms)


def _power(base: float, exponent: float) -> float:
    """Raise to a power; no number where that is none, or too large."""
    try:
        return math.pow(base, exponent)
    except (OverflowError, ValueError):
        return math.nan


def _product(*factors: float) -> float:
    return math.prod(factors)


_KNOWN: dict[Any, Callable[..., float]] = {
    sympy.Add: _sum,
    sympy.Mul: _product,
    sympy.Pow: _power,
    sympy.Max: max,
    sympy.Min: min,
    sympy.floor: math.floor,
    sympy.ceiling: math.ceil,
}
"""Functions that numbers are put into."""
