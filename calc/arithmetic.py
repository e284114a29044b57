"""Arithmetic over named columns: a small safe language, parsed and never run as code.

Numbers, names, + - * / **, parentheses and six functions. A name is a column, with dots as in its
path (`parameters.total`), or that of another variant at the same point: `VARIANT.time_s`.
"""

from __future__ import annotations

import ast
import functools
import math
import operator
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import RooflmError, nearest, printable
from .readings import Q, maximum, minimum

LONGEST = 300
"""Characters of an expression: beyond them it is no small arithmetic."""
DEEPEST = 40
"""Levels of nesting of an expression."""

_OPERATORS: dict[type[ast.AST], Callable[..., Q]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
}


def _through(name: str) -> Callable[[Q], Q]:
    """Make a function of math that takes arrays as well."""

    def of(x: Q) -> Q:
        if hasattr(x, "shape"):
            import numpy as np

            return getattr(np, name)(x)
        return getattr(math, name)(x)

    return of


FUNCTIONS: dict[str, tuple[Callable[..., Q], int | None]] = {
    "min": (lambda *values: functools.reduce(minimum, values), None),
    "max": (lambda *values: functools.reduce(maximum, values), None),
    "abs": (abs, 1),
    "sqrt": (_through("sqrt"), 1),
    "log2": (_through("log2"), 1),
    "log10": (_through("log10"), 1),
}
"""Functions by name, each with the number of its arguments; None for two or more."""


@dataclass(frozen=True)
class Expression:
    """An expression that was checked, and the names that it uses."""

    text: str
    tree: ast.expr
    names: tuple[str, ...]

    def value(self, columns: Mapping[str, Q]) -> Q:
        """Work an expression out; None where a figure is missing or the result is no number.

        columns: numbers or arrays by name; a missing figure is None, or nan in an array.
        """
        if any(columns[name] is None for name in self.names):
            return None
        try:
            found = _evaluate(self.tree, columns)
        except (ArithmeticError, ValueError):
            return None
        if hasattr(found, "shape"):
            return found
        return None if isinstance(found, complex) or not math.isfinite(found) else found


def parse(text: str, where: str) -> Expression:
    """Read an expression, or say what in it is not allowed."""
    shown = printable(text, 60)
    if len(text) > LONGEST:
        raise RooflmError(f"an expression of {len(text):,} characters is too long", where)
    if not text.isascii() or "\n" in text:
        raise RooflmError(f"'{shown}' is no arithmetic over columns", where, "Write a / b.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise RooflmError(
            f"'{shown}' cannot be read as arithmetic", where, "Write a / b, or max(a, b)."
        ) from None
    names: dict[str, None] = {}
    _check(tree, names, where, 0)
    _check_figures(tree, text.strip(), where)
    return Expression(text.strip(), tree, tuple(names))


def dotted(node: ast.AST) -> str | None:
    """Read a name with dots; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    return ".".join([node.id, *reversed(parts)])


def _check(node: ast.AST, names: dict[str, None], where: str, depth: int) -> None:
    """Refuse every part of an expression that is not listed here."""
    if depth > DEEPEST:
        raise RooflmError("an expression is nested too deeply", where)
    name = dotted(node)
    if name is not None:
        names[name] = None
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool) or not isinstance(node.value, int | float):
            what = f"'{printable(str(node.value), 40)}' is no number"
            raise RooflmError(what, where, "Names of columns stand without quotes.")
    elif isinstance(node, ast.BinOp | ast.UnaryOp) and type(node.op) in _OPERATORS:
        inner = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.operand]
        for part in inner:
            _check(part, names, where, depth + 1)
    elif isinstance(node, ast.Call):
        _check_call(node, where)
        for part in node.args:
            _check(part, names, where, depth + 1)
    else:
        what = f"'{printable(ast.unparse(node), 40)}' is not allowed in arithmetic"
        fix = f"Numbers, columns, + - * / ** and {', '.join(FUNCTIONS)} are."
        raise RooflmError(what, where, fix)


def _check_figures(node: ast.AST, text: str, where: str) -> bool:
    """Refuse a part without columns that is no number, as 9**9**9 or 1/0: it is none at any point.

    Returns whether a part is without columns.
    """
    if dotted(node) is not None:
        return False
    parts = node.args if isinstance(node, ast.Call) else list(ast.iter_child_nodes(node))
    inner = [_check_figures(part, text, where) for part in parts if isinstance(part, ast.expr)]
    if not all(inner):
        return False
    if isinstance(node, ast.expr) and Expression("", node, ()).value({}) is None:
        shown = printable(ast.get_source_segment(text, node) or text, 40)
        what = f"'{shown}' is no number"
        raise RooflmError(what, where, "It is too large, or cannot be worked out.")
    return True


def _check_call(node: ast.Call, where: str) -> None:
    name = dotted(node.func) or printable(ast.unparse(node.func), 40)
    if name not in FUNCTIONS:
        fix = nearest(name, FUNCTIONS) or f"There are {', '.join(FUNCTIONS)}."
        raise RooflmError(f"no function '{printable(name, 40)}'", where, fix)
    wanted = FUNCTIONS[name][1]
    wrong = len(node.args) != wanted if wanted else len(node.args) < 2
    if wrong or node.keywords or any(isinstance(a, ast.Starred) for a in node.args):
        what = f"'{name}' takes {'one figure' if wanted else 'two figures or more'}"
        raise RooflmError(what, where)


def _evaluate(node: ast.AST, columns: Mapping[str, Q]) -> Q:
    name = dotted(node)
    if name is not None:
        return columns[name]
    if isinstance(node, ast.Constant):
        # Floats throughout: 10**10**10 overflows at once where integers would fill the memory.
        value: Any = node.value
        return float(value)
    if isinstance(node, ast.BinOp):
        left, right = _evaluate(node.left, columns), _evaluate(node.right, columns)
        if isinstance(node.op, ast.Pow) and not hasattr(left, "shape"):
            left = float(left)
        return _known(_OPERATORS[type(node.op)](left, right), left, right)
    if isinstance(node, ast.UnaryOp):
        return _OPERATORS[type(node.op)](_evaluate(node.operand, columns))
    assert isinstance(node, ast.Call), "the check let nothing else pass"
    function = FUNCTIONS[dotted(node.func) or ""][0]
    given = [_evaluate(part, columns) for part in node.args]
    return _known(function(*given), *given)


def _known(found: Q, *parts: Q) -> Q:
    """Make nan of what is no number, at once: as with numbers, nothing is made of it afterwards."""
    if not hasattr(found, "shape"):
        if isinstance(found, complex) or not math.isfinite(found):
            raise ValueError("not a number")
        return found
    import numpy as np

    right = np.isfinite(found)
    for part in parts:
        right = right & np.isfinite(part)
    return np.where(right, found, np.nan)
