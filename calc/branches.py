"""Which arm of every max, min and rounding is active at a point, and how far that stays true."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .readings import Q
from .symbols import Expr, number, sympy


@dataclass(frozen=True)
class Branch:
    """A formula without max and min, and the inequalities under which it is the right one."""

    formula: Expr
    conditions: tuple[Expr, ...]
    """Expressions that are not negative where the branch is active."""


def active(expression: Expr, values: Mapping[Any, Q], keep: Expr | None = None) -> Branch:
    """Let a point choose the argument of every max and min, and the number of every rounding.

    What remains is short enough to solve and to differentiate exactly, in the range in which the
    choices stay the same. Roundings of the symbol `keep` stay in the formula.
    """
    conditions: list[Expr] = []

    def choose(node: Expr) -> Expr:
        if not node.args:
            return node
        args = [choose(a) for a in node.args]
        if isinstance(node, sympy.Max | sympy.Min):
            sign = 1 if isinstance(node, sympy.Max) else -1
            best = max(args, key=lambda a: sign * number(a, values))
            conditions.extend(sign * (best - a) for a in args if a is not best)
            return best
        if isinstance(node, sympy.floor | sympy.ceiling):
            if keep is not None and keep in node.free_symbols:
                return node.func(*args)
            whole = sympy.Integer(round(number(node.func(*args), values)))
            up = isinstance(node, sympy.floor)
            below, above = (whole, whole + 1) if up else (whole - 1, whole)
            conditions.extend((args[0] - below, above - args[0]))
            return whole
        return node.func(*args)

    return Branch(choose(sympy.sympify(expression)), tuple(conditions))


def valid_range(branch: Branch, x: Expr, values: Mapping[Any, Q]) -> tuple[float, float]:
    """Find the interval of one symbol around a point in which the branch stays active.

    x: the symbol that varies; values: the point. Conditions are rational in every symbol, so that
    their sign changes where their numerator has a root.
    """
    low, high = 0.0, float("inf")
    here = float(values[x])
    others = {s: sympy.Rational(v) for s, v in values.items() if s != x}
    for condition in branch.conditions:
        # A condition may hold a max or min itself: the point chooses there as well.
        smooth = active(condition, values).formula
        if x not in smooth.free_symbols:
            continue
        if any(x in power.exp.free_symbols for power in smooth.atoms(sympy.Pow)):
            roots = _sign_changes(smooth, x, values)
        else:
            numerator = sympy.fraction(sympy.together(smooth.xreplace(others)))[0]
            if x not in numerator.free_symbols:
                continue
            roots = map(float, sympy.real_roots(numerator, x))
        for root in roots:
            if root <= here:
                low = max(low, root)
            else:
                high = min(high, root)
    return low, high


def _itself(inner: Expr) -> Expr:
    return inner


FARTHEST = 1e13
"""Where a search for the end of a branch stops: no batch or context goes so far."""


def _sign_changes(expression: Expr, x: Expr, values: Mapping[Any, Q]) -> Iterator[float]:
    """Find the nearest sign changes on both sides of a point, where no formula gives them."""
    here = float(values[x])

    def negative(at: float) -> bool:
        return number(expression, {**values, x: at}) < 0

    side = negative(here)
    for factor, limit in ((2.0, FARTHEST), (0.5, 0.5)):
        near, far = here, here * factor
        while (far - limit) * (factor - 1) < 0 and negative(far) == side:
            near, far = far, far * factor
        if negative(far) != side:
            for _ in range(60):
                middle = (near + far) / 2
                near, far = (middle, far) if negative(middle) == side else (near, middle)
            yield far


def elasticities(
    expression: Expr, values: Mapping[Any, Q], smooth: bool = False
) -> dict[str, float]:
    """Per cent that a quantity changes for one per cent of each symbol, on the active branch.

    smooth: take what is rounded down for a steady growth, as of entries that hold several tokens.

    Defined where no two arguments of a max are equal; at such a ridge the elasticity jumps and
    the arm that is listed first is taken. Symbols that do not matter are left out.
    """
    if smooth:
        expression = expression.replace(sympy.floor, _itself)
    formula = active(expression, values).formula
    whole = number(formula, values)
    found: dict[str, float] = {}
    for symbol in sorted(formula.free_symbols, key=str):
        slope = number(sympy.diff(formula, symbol), values)
        found[symbol.name] = slope * float(values[symbol]) / whole
    return found
