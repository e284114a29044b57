"""A case in symbols: the same functions then give formulas instead of numbers.

Everything here needs sympy and is imported only where a formula is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import sympy as untyped_sympy

from .case import Case
from .formats import Format
from .hardware import Machine
from .letters import symbolic
from .readings import Q

sympy: Any = untyped_sympy
"""sympy has no types of its own: what comes of it is Any."""

Expr: TypeAlias = Any
"""A sympy expression."""
Values: TypeAlias = dict[Any, Q]
"""What each symbol stands for."""


def letter(name: str) -> Expr:
    """Make the symbol of a positive quantity."""
    return sympy.Symbol(name, positive=True)


def count(name: str) -> Expr:
    """Make the symbol of a positive whole number, such as a dimension."""
    return sympy.Symbol(name, positive=True, integer=True)


BETA, PEAK, CAPACITY, RESERVE = map(letter, ("β", "C", "M", "R"))
HOST_BETA = letter("β_h")
B_W, B_KV, B_S, B_R = map(letter, ("b_w", "b_kv", "b_s", "b_r"))
BATCH, CONTEXT, PREFIX = count("B"), count("S"), count("h")

UNITS = {
    "β": "B/s", "C": "FLOP/s", "M": "B", "R": "B", "b_w": "B", "b_kv": "B", "b_s": "B", "b_r": "B",
    "S": "tokens", "P": "tokens", "T": "tokens", "T_c": "tokens", "h": "tokens", "G": "tokens",
    "W": "tokens", "β_h": "B/s", "price": "USD/h", "power": "W",
}  # fmt: skip
"""Units of the letters that have one; dimensions are pure numbers."""

MOST_LETTERS = 4
"""Symbols with longer names are words, set upright: b_kv is a letter, weights_bytes a word."""


@dataclass(frozen=True)
class Symbolic:
    """A case whose dimensions, rates and formats are symbols, and what they stand for."""

    case: Case
    values: Values


def symbolic_case(case: Case) -> Symbolic:
    """Put symbols in place of every number of a case; a reserve of nothing stays 0."""
    model, dimensions = symbolic(case.model)
    formats = case.precision
    others: Mapping[str, Q] = case.rates.others if _has_rate(case) else {}
    machine = Machine(
        name=case.machine.name,
        full_name=case.machine.full_name,
        kind=case.machine.kind,
        bandwidth_bytes_per_s=BETA,
        flops={formats.activations.compute: PEAK, **{c: letter(f"C_{c}") for c in others}},
    )
    values: Values = {count(name): value for name, value in dimensions.items()}
    values |= {
        BETA: case.machine.bandwidth_bytes_per_s,
        B_W: formats.weights.bytes,
        B_KV: formats.cache.bytes,
        B_S: formats.state.bytes,
    }
    rest = formats.activations
    own = {part: letter(f"b_{part}") for part, _ in formats.parts}
    values |= {own[part]: kind.bytes for part, kind in formats.parts}
    if rest is not formats.weights:
        values[B_R] = rest.bytes
    peak = case.rates.flops_per_s if _has_rate(case) else None
    if peak is not None:
        values[PEAK] = peak
        values |= {letter(f"C_{c}"): rate for c, rate in others.items()}
    if _has_capacity(case):
        values[CAPACITY] = case.limit[0]
    if case.offloads:
        values[HOST_BETA] = case.host_bytes_per_s
    if case.reserve_bytes:
        values[RESERVE] = case.reserve_bytes
    if case.shared_prefix:
        values[PREFIX] = case.shared_prefix
    precision = replace(
        formats,
        weights=_in_bytes(formats.weights, B_W),
        cache=replace(formats.cache, usual=replace(formats.cache.usual, bits=8 * B_KV)),
        state=_in_bytes(formats.state, B_S),
        rest=None if rest is formats.weights else _in_bytes(rest, B_R),
        parts=tuple((part, _in_bytes(kind, own[part])) for part, kind in formats.parts),
    )
    letters = replace(
        case,
        ranks=(),
        model=model,
        machine=machine,
        precision=precision,
        reserve_bytes=RESERVE if case.reserve_bytes else 0,
        capacity_bytes=CAPACITY,
        gpu_share=1.0,
        host_bytes_per_s=HOST_BETA if case.offloads else None,
        shared_prefix=PREFIX if case.shared_prefix else 0,
    )
    return Symbolic(letters, values)


def _in_bytes(kind: Format, symbol: Expr) -> Format:
    """Put a symbol in place of the bytes of a number; scales keep their own."""
    return replace(kind, bits=8 * symbol)


def _has_capacity(case: Case) -> bool:
    machine = case.machine
    return not (case.capacity_bytes is machine.driver_bytes is machine.label_bytes is None)


def _has_rate(case: Case) -> bool:
    compute = case.precision.activations.compute
    return compute in case.machine.flops or compute in case.machine.best_flops


def number(expression: Expr, values: Mapping[Any, Q]) -> float:
    """Evaluate an expression; Max, Min, floor, ceiling and sums included."""
    expression = sympy.sympify(expression)
    sums = {term: _sum(term, values) for term in expression.atoms(sympy.Sum)}
    # What is a sum and nothing else has become a plain number.
    function, symbols = _compiled(sympy.sympify(expression.xreplace(sums)) if sums else expression)
    return function(*(values[s] for s in symbols))


def _sum(term: Expr, values: Mapping[Any, Q]) -> float:
    """Evaluate a sum over an index, all its terms as one array."""
    import numpy as np

    ((index, low, high),) = term.limits
    run = np.arange(round(number(low, values)), round(number(high, values)) + 1, dtype=float)
    symbols = sorted(term.function.free_symbols, key=str)

    def elementwise(reduce: Any) -> Any:
        return lambda *arguments: reduce(np.broadcast_arrays(*arguments))  # pyright: ignore

    own = {"Max": elementwise(np.maximum.reduce), "Min": elementwise(np.minimum.reduce)}
    function = sympy.lambdify(symbols, term.function, [own, "numpy"])
    terms = function(*(run if s == index else values[s] for s in symbols))
    return float(np.sum(np.broadcast_to(terms, run.shape)))


def _binomial(n: float, k: float) -> float:
    """Count choices; gamma functions, which sympy would take, overflow at 256 experts."""
    if float(n).is_integer():
        return math.comb(int(n), int(k))
    return math.prod((n - j) / (j + 1) for j in range(int(k)))


_CACHE: dict[Any, tuple[Any, list[Any]]] = {}


def _compiled(expression: Expr) -> tuple[Any, list[Any]]:
    if expression not in _CACHE:
        if len(_CACHE) > 4096:
            _CACHE.clear()
        symbols = sorted(expression.free_symbols, key=str)
        own = {"Max": max, "Min": min, "binomial": _binomial}
        _CACHE[expression] = (sympy.lambdify(symbols, expression, [own, "math"]), symbols)
    return _CACHE[expression]


def text(expression: Expr, values: Mapping[Any, Q] | None = None) -> str:
    """Print an expression on a line; with values, each symbol as the number it stands for."""
    return _Printer(values or {}).doprint(expression)


def latex(expression: Expr) -> str:
    """Print an expression in LaTeX."""
    names = {
        s: r"\mathrm{" + s.name.replace("_", r"\_") + "}"
        for s in expression.free_symbols
        if len(s.name) > MOST_LETTERS
    }
    return sympy.latex(expression, symbol_names=names | {BETA: r"\beta", HOST_BETA: r"\beta_{h}"})


def mathml(name: str, expression: Expr) -> str:
    """Print NAME = EXPRESSION in MathML, which browsers render by themselves."""
    from sympy.printing.mathml import MathMLPresentationPrinter

    class Printer(MathMLPresentationPrinter):
        def _print_Symbol(self, sym: Expr, style: str = "plain") -> Any:  # noqa: N802
            if len(sym.name) <= MOST_LETTERS:
                return super()._print_Symbol(sym, style)
            # A name in words is one name, and not a letter with an index.
            word = self.dom.createElement("mtext")
            word.appendChild(self.dom.createTextNode(sym.name))
            return word

    printer: Any = Printer()
    inner = "<mo>=</mo>".join(map(printer.doprint, (letter(name), expression)))
    return f'<math display="inline"><mrow>{inner}</mrow></math>'


class _Printer(sympy.printing.str.StrPrinter):
    def __init__(self, values: Mapping[Any, Q]) -> None:
        super().__init__()
        self._values = values

    def _print_Symbol(self, expr: Expr) -> str:  # noqa: N802
        value = self._values.get(expr)
        if value is None:
            return expr.name
        whole = isinstance(value, int) or float(value).is_integer()
        return str(int(value)) if whole and value < 1e18 else repr(float(value))

    def _print_Max(self, expr: Expr) -> str:  # noqa: N802
        return f"max({', '.join(self._print(a) for a in expr.args)})"

    def _print_Min(self, expr: Expr) -> str:  # noqa: N802
        return f"min({', '.join(self._print(a) for a in expr.args)})"

    def _print_Sum(self, expr: Expr) -> str:  # noqa: N802
        inner = self._print(expr.function)
        ((index, low, high),) = expr.limits
        return f"sum({inner} for {index.name} = {self._print(low)} .. {self._print(high)})"
