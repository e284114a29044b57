"""What every inverse needs: the step in numbers and symbols, an affine split, an answer."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from .branches import Branch, valid_range
from .case import Case, figures, memory_bytes, slowest
from .errors import RooflmError
from .readings import Q
from .symbols import BATCH, CONTEXT, Expr, Values, number, symbolic_case, sympy, text

MOST = 10**12
"""Largest batch or context that is searched; an answer there means: no limit."""
FAR = 10**15
"""A batch at which every operator shows its limiting branch."""


@dataclass(frozen=True)
class Answer:
    """A solved unknown."""

    value: float | None
    unit: str
    reason: str
    formula: str = ""
    definitions: tuple[tuple[str, str, float], ...] = ()
    """Named parts of the formula: name, expression, value."""
    valid_for: str = ""
    more: tuple[tuple[str, Any], ...] = ()
    """Further figures for programs."""


def step_s(case: Case, B: Q, S: Q) -> Q:
    """Time of a decode step, in any reading [s]."""
    segments = case.step(B, S)
    if case.ranks:
        case = slowest(case, segments)
    return figures(case, segments, case.ledger(segments), B * case.step_tokens)["time_s"]


def memory_expression(case: Case) -> tuple[Expr, Values]:
    """Write the memory of a decode step in symbols, and tell what they stand for."""
    symbolic = symbolic_case(case)
    return memory_bytes(symbolic.case, BATCH, CONTEXT), symbolic.values


def time_expression(case: Case) -> tuple[Expr, Values]:
    """Write the time of a decode step in symbols, and tell what they stand for."""
    symbolic = symbolic_case(case)
    return step_s(symbolic.case, BATCH, CONTEXT), symbolic.values


def affine(expression: Expr, x: Expr) -> tuple[Expr, Expr] | None:
    """Split an expression that is affine in x, or in 1/x, into what is fixed and the slope.

    None where it is neither: experts are touched by a power of the batch.
    """
    # Powers of sums that are no power of x stay: a batch of thousands has as many terms.
    kept = {
        power: sympy.Dummy(positive=True)
        for power in expression.atoms(sympy.Pow)
        if power.base.is_Add and power.exp.is_Integer and x not in power.free_symbols
    }
    expanded = sympy.expand(expression.xreplace(kept))
    slope = sympy.diff(expanded, x)
    if x in slope.free_symbols:
        slope = sympy.expand(-slope * x**2)
        fixed = sympy.expand(expanded - slope / x)
    else:
        fixed = sympy.expand(expanded - slope * x)
    if x in slope.free_symbols | fixed.free_symbols:
        return None
    back = {dummy: power for power, dummy in kept.items()}
    return fixed.xreplace(back), slope.xreplace(back)


def limits_of(expression: Expr, x: Expr) -> tuple[Expr, Expr]:
    """Split an expression at an x without end, where it is affine."""
    split = affine(saturated(expression, x), x)
    assert split is not None, f"no limit in {x}"
    return split


def parts_of(
    branch: Branch, x: Expr, values: Values, names: tuple[str, str], closed: str, otherwise: str
) -> dict[str, Any]:
    """Write the formula of a branch, its named parts and its range.

    closed: the formula in terms of the two names where the branch is affine in x; otherwise: what
    stands in its place, in terms of "whole", which then is the branch itself.
    """
    steps = any(x in node.free_symbols for node in branch.formula.atoms(sympy.floor))
    split = None if steps else affine(branch.formula, x)
    if split is None:
        defined = (part("whole", branch.formula, values),)
    else:
        defined = tuple(part(n, e, values) for n, e in zip(names, split, strict=True))
    return {
        "formula": otherwise if split is None else closed,
        "definitions": defined,
        # Conditions that go in steps have no interval of their own.
        "valid_for": "" if steps else range_text(branch, x, values, whole=x in (BATCH, CONTEXT)),
    }


def saturated(expression: Expr, x: Expr) -> Expr:
    """Let every power (1 - share)^x vanish, as it does where x is without end."""
    powers = {p: 0 for p in expression.atoms(sympy.Pow) if x in p.exp.free_symbols}
    return expression.xreplace(powers)


def range_text(branch: Branch, x: Expr, values: Values, whole: bool) -> str:
    """Say in which range of x the branch stays active."""
    low, high = valid_range(branch, x, values)
    if whole:
        least, most = max(1, math.ceil(low)), math.floor(high) if math.isfinite(high) else None
        end = "" if most is None else f" <= {most:,}"
        return f"{least:,} <= {x.name}{end}"
    if low == 0 and not math.isfinite(high):
        return f"every {x.name} > 0"
    end = f" <= {high:.6g}" if math.isfinite(high) else ""
    return f"{low:.6g} <= {x.name}{end}"


def part(name: str, expression: Expr, values: Values) -> tuple[str, str, float]:
    """Name a part of a formula: its text and its value."""
    return name, text(sympy.factor_terms(expression)), number(expression, values)


def fits_memory(case: Case, B: int, S: int) -> bool | None:
    """Tell whether a decode step fits; None where the capacity is not known."""
    try:
        return bool(memory_bytes(case, B, S) <= case.limit[0])
    except RooflmError:
        return None
