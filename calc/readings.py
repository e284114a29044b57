"""One text, three readings: what lets a formula take numbers, arrays and symbols alike.

A formula is written in plain arithmetic. Where arithmetic has no operator (max, min, floor, ceil)
it calls this module, which asks the values what they are. Neither numpy nor sympy is imported
unless a value of theirs is already at hand.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar, cast

Q: TypeAlias = Any
"""A quantity: a number (int stays exact), a float64 array, or a sympy expression."""

P = ParamSpec("P")
R = TypeVar("R")

NUMBERS = frozenset({int, float})
"""Types of plain numbers."""

FORMULAS: dict[str, Callable[..., Q]] = {}
"""Every formula by name, in the order of definition: what the docs and their tests walk."""


def formula(function: Callable[P, R]) -> Callable[P, R]:
    """Register a formula and make its integer arrays float64 before they are multiplied.

    An int64 product of six dimensions overflows silently; Python integers and symbols do not, and
    pass untouched.
    """

    @functools.wraps(function)
    def edge(*args: P.args, **kwargs: P.kwargs) -> R:
        convert = cast("Callable[..., R]", function)
        # Numbers are told by their type: a call for each would take longer than most formulas.
        plain: list[Any] = [a if type(a) in NUMBERS else real(a) for a in args]
        if not kwargs:
            return convert(*plain)
        return convert(*plain, **{k: real(v) for k, v in kwargs.items()})

    FORMULAS[function.__name__] = edge
    return edge


def real(value: Q) -> Q:
    """Return an integer array as float64, and anything else as it is."""
    dtype = getattr(value, "dtype", None)
    return value.astype("float64") if dtype is not None and dtype.kind in "iub" else value


def is_symbol(*values: Q) -> bool:
    """Tell whether any of the values is a sympy expression."""
    return any(hasattr(v, "free_symbols") for v in values)


def is_array(*values: Q) -> bool:
    """Tell whether any of the values is a numpy array or scalar."""
    return any(hasattr(v, "dtype") for v in values)


def _dispatch(number: Callable[..., Q], array: str, symbol: str, *values: Q) -> Q:
    if is_symbol(*values):
        if symbol in ("Max", "Min"):
            from .extremes import extreme

            return extreme(symbol, *values)
        import sympy

        return getattr(sympy, symbol)(*values)
    if is_array(*values):
        import numpy as np

        return getattr(np, array)(*values)
    return number(*values)


def maximum(a: Q, b: Q) -> Q:
    """Return the larger of two, element by element for arrays, as Max for symbols."""
    return _dispatch(max, "maximum", "Max", a, b)


def minimum(a: Q, b: Q) -> Q:
    """Return the smaller of two, element by element for arrays, as Min for symbols."""
    return _dispatch(min, "minimum", "Min", a, b)


def widest(values: Iterable[Q]) -> Q:
    """Return the largest of several values, as one Max for symbols; 0 where there are none."""
    several = list(values)
    if is_symbol(*several):
        # Equal operators of many layers are one expression.
        return _dispatch(max, "maximum", "Max", *dict.fromkeys(several))
    return functools.reduce(maximum, several, 0)


def floor(a: Q) -> Q:
    """Round down."""
    return _dispatch(math.floor, "floor", "floor", a)


def ceil(a: Q) -> Q:
    """Round up."""
    return _dispatch(math.ceil, "ceil", "ceiling", a)


def root(a: Q) -> Q:
    """Take the square root."""
    return _dispatch(math.sqrt, "sqrt", "sqrt", a)


def as_whole(x: Q) -> Q:
    """Give a float that holds a whole number as the integer; all else as it is."""
    return int(x) if isinstance(x, float) and x.is_integer() else x


def is_zero(a: Q) -> bool:
    """Tell whether a value is the number 0: a term that is not there, in any reading."""
    # Of symbols only the number itself: whether a sum could be 0 is a long question.
    return a == 0 if isinstance(a, int) or getattr(a, "is_Number", False) else False


def half(a: Q) -> Q:
    """Halve an even integer exactly; arrays and symbols are divided."""
    return a // 2 if isinstance(a, int) else a / 2


def ratio(a: Q, b: Q) -> Q:
    """Divide; two integers that divide evenly stay exact."""
    return a // b if isinstance(a, int) and isinstance(b, int) and a % b == 0 else a / b


def total(values: Iterable[Q]) -> Q:
    """Add up, one accumulator for each broadcast shape, the widest last.

    On an open mesh most terms depend on one axis only: adding them to each other first keeps the
    full-size additions few.
    """
    sums: dict[tuple[int, ...], Q] = {}
    for value in values:
        shape: tuple[int, ...] = ()
        if type(value) in NUMBERS:
            if value == 0 and type(value) is int:
                continue
        elif is_zero(value):
            continue
        else:
            shape = getattr(value, "shape", ())
        sums[shape] = sums[shape] + value if shape in sums else value
    if not sums:
        return 0
    first, *rest = (sums[shape] for shape in sorted(sums, key=math.prod))
    return functools.reduce(operator.add, rest, first)


def series(term: Callable[[Q], Q], first: Q, last: Q) -> Q:
    """Add up the terms of whole indices from first to last, both included; a Sum to a symbol."""
    if is_symbol(last):
        import sympy

        algebra: Any = sympy
        index = algebra.Symbol("i", integer=True)
        return algebra.Sum(term(index), (index, first, last))
    return total(term(i) for i in range(first, last + 1))


def interpolated(x: Q, knots: Sequence[tuple[float, float]]) -> Q:
    """Read a measured curve at x: straight lines between its points in log-log, and beyond them.

    knots: positive x and y, by rising x. Below the first point y is that of the first; above the
    last it goes on as the last line does. Symbols are refused: a table has no formula.
    """
    if is_symbol(x):
        raise TypeError("a measured curve has no symbolic reading")
    if is_array(x):
        import numpy as np

        array: Any = np
        logs, heights = array.log(array.array(knots, dtype=float)).T
        at = array.log(x)
        slope = (heights[-1] - heights[-2]) / (logs[-1] - logs[-2])
        beyond = array.maximum(at - logs[-1], 0) * slope
        return array.exp(array.interp(at, logs, heights) + beyond)
    number = float(x)
    i = next((i for i, (end, _) in enumerate(knots) if number < end), len(knots) - 1)
    if i == 0:
        return knots[0][1]
    (x0, y0), (x1, y1) = knots[i - 1], knots[i]
    return y0 * (y1 / y0) ** (math.log(number / x0) / math.log(x1 / x0))
