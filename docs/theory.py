# ruff: noqa: RUF001
"""Reads the formulas of docs/theory.md from the functions that compute, with an example of each.

A formula is shown by calling its function with symbols, and its example by calling the same
function with numbers. `theory_formulas.py` lists which, and with what.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import transcript
from sympy.printing.latex import LatexPrinter
from theory_formulas import LEFT_OUT, SHOWN

from rooflm.calc.symbols import sympy

WIDE = 100
"""Characters of LaTeX from which a sum is broken into lines, and parts of it get a name."""
GREEK = {
    "α": r"\alpha", "β": r"\beta", "γ": r"\gamma", "κ": r"\kappa", "λ": r"\lambda", "τ": r"\tau",
}  # fmt: skip
RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
NO_UNIT = ("1", "the numbers' unit", "its square", "s^power")


class Letters(dict[str, Any]):
    """Names that become symbols when they are looked up."""

    def __missing__(self, name: str) -> Any:
        """Make the symbol of a positive quantity."""
        self[name] = sympy.Symbol(name, positive=True)
        return self[name]


@dataclass(frozen=True)
class Entry:
    """A formula of the page: its function, letters for its arguments, numbers for the letters."""

    function: str
    """MODULE.NAME, the module one of calc/ or theory_derived."""
    letters: str
    """Arguments that are not the letter of their own name: "rows=B*T"."""
    numbers: str
    """Letters of the example: "B=64, T=1"; those of a default need none."""

    @property
    def compute(self) -> Callable[..., Any]:
        """Find the function."""
        module, _, name = self.function.rpartition(".")
        package = "" if module == "theory_derived" else "rooflm.calc."
        return getattr(importlib.import_module(package + module), name)

    @property
    def arguments(self) -> dict[str, str]:
        """Write every argument as an expression in letters."""
        named, known = _keywords(self.letters), inspect.signature(self.compute).parameters
        if unknown := set(named) - set(known):
            raise ValueError(f"{self.function} has no {unknown}")
        return {name: named.get(name, name) for name in known}

    @property
    def values(self) -> dict[str, Any]:
        """Tell the numbers of the letters, defaults included."""
        given = {k: ast.literal_eval(v) for k, v in _keywords(self.numbers).items()}
        for name, one in inspect.signature(self.compute).parameters.items():
            if self.arguments[name] == name and one.default is not inspect.Parameter.empty:
                given.setdefault(name, one.default)
        return given

    def read(self, letters: dict[str, Any]) -> Any:
        """Call the function with what the letters stand for: symbols, or numbers."""
        return self.compute(**{k: _value(v, letters) for k, v in self.arguments.items()})

    @property
    def expression(self) -> Any:
        """Read the formula; a whole number that was written as a float is whole again."""
        return _read(self)

    @property
    def latex(self) -> str:
        """Write NAME = FORMULA as rows of an aligned block, named parts of it below."""
        name = self.function.rpartition(".")[2].replace("_", " ")
        whole, parts = split(self.expression)
        rows = [rf"\text{{{name}}} &= {broken(whole)}"]
        rows += [rf"{symbol(y.name)} &= {broken(part)}" for y, part in parts]
        return " \\\\\n".join(rows)

    @property
    def row(self) -> str:
        """Write the row of the table: what it is, the example, its value."""
        text = inspect.getdoc(self.compute) or ""
        what = text.partition("\n")[0].partition(": ")[0].rstrip(".")
        unit = re.search(r"Returns\s+\[([^]]*)\]", text)
        kind = "" if unit is None else " ".join(unit[1].split())
        kind = "" if kind in NO_UNIT else f" {kind}"
        given = ", ".join(f"{spoken(k)} = {shown(v)}" for k, v in self.values.items())
        where = "derived" if self.function.startswith("theory_derived") else f"`{self.function}`"
        return f"| {where} | {what} | {given} | {shown(self.read(self.values))}{kind} |"


@functools.cache
def _read(entry: Entry) -> Any:
    """Call the function of an entry with symbols."""
    found = sympy.sympify(entry.read(Letters()))
    whole = {f: sympy.Integer(f) for f in found.atoms(sympy.Float) if float(f).is_integer()}
    return found.xreplace(whole)


def _keywords(text: str) -> dict[str, str]:
    """Split "a=1, b=[x, y]" into names and expressions."""
    call: Any = ast.parse(f"f({text})", mode="eval").body
    return {k.arg: ast.unparse(k.value) for k in call.keywords}


def _value(written: str, letters: dict[str, Any]) -> Any:
    """Work out an expression in letters."""
    return eval(written, {"__builtins__": {}}, letters)


def entries() -> list[Entry]:
    """List the formulas of the page."""
    return [Entry(*one) for some in SHOWN.values() for one in some]


def spoken(name: str) -> str:
    """Write a letter as it is read: words without underscores."""
    return name.replace("_", " ") if len(name.partition("_")[0]) > 1 else name


def shown(value: Any) -> str:
    """Write a number: whole ones in full, others with six digits."""
    if isinstance(value, int) or value == 0 or (float(value).is_integer() and abs(value) < 1e7):
        return f"{int(value):,}"
    digits, _, power = f"{float(value):,.6g}".partition("e")
    return f"{digits}·10{str(int(power)).translate(RAISED)}" if power else digits


def symbol(name: str) -> str:
    """Write a symbol in LaTeX: a letter with an index, or a word set upright."""
    head, _, index = name.partition("_")
    if len(head) > 1:
        return r"\text{" + name.replace("_", " ") + "}"
    head = GREEK.get(head, head)
    if not index:
        return head
    return f"{head}_{{{index}}}" if len(index) == 1 else rf"{head}_{{\mathrm{{{index}}}}}"


class Printer(LatexPrinter):
    """Writes sums with what is added first, so that none begins with a minus that it can avoid."""

    def __init__(self, expression: Any) -> None:
        """Name the symbols of an expression."""
        names = {s: symbol(s.name) for s in expression.atoms(sympy.Symbol)}
        super().__init__({"symbol_names": names, "mul_symbol": r" \, ", "ln_notation": True})

    def _print_Add(self, expr: Any, order: Any = None) -> str:  # noqa: N802
        return "".join(self.signed(expr))

    def signed(self, expr: Any) -> list[str]:
        """Write each term of a sum with its sign, those that are added first."""
        terms = [self._print(term) for term in expr.as_ordered_terms()]
        terms.sort(key=lambda term: term.startswith("-"))
        rest = (f" - {t[1:].lstrip()}" if t.startswith("-") else f" + {t}" for t in terms[1:])
        return [terms[0], *rest]


def broken(expression: Any) -> str:
    """Write an expression in LaTeX; the terms of a wide sum on several lines."""
    printer = Printer(expression)
    whole = printer.doprint(expression)
    if len(whole) <= WIDE or not expression.is_Add:
        return whole
    lines = [""]
    for term in printer.signed(expression):
        if lines[-1] and len(lines[-1]) + len(term) > WIDE:
            lines.append("")
        lines[-1] += term
    return " \\\\\n&\\quad ".join(line.strip() for line in lines)


def split(expression: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Name parts of an expression that is too wide: those that occur most often, then the largest.

    Returns the expression in letters y_1, y_2, and what each of them is, in which others may stand.
    """
    kinds = (sympy.floor, sympy.ceiling, sympy.Max, sympy.Min, sympy.LambertW)
    parts: list[tuple[Any, Any]] = []
    while max(map(len, broken(expression).splitlines())) > WIDE + 10:
        inside = [e for e in sympy.preorder_traversal(expression) if isinstance(e, kinds)]
        inside = [e for e in inside if e != expression]
        if not inside:
            break
        part = max(inside, key=lambda e: (inside.count(e), len(str(e)), str(e)))
        parts.append((sympy.Symbol(f"y_{len(parts) + 1}", positive=True), part))
        expression = expression.xreplace({part: parts[-1][0]})
    return expression, parts


def _block(rows: list[str]) -> str:
    """Write aligned formulas as a block that GitHub renders."""
    inside = " \\\\[4pt]\n".join(rows)
    return "\n".join(["```math", r"\begin{aligned}", inside, r"\end{aligned}", "```"])


def show(section: str) -> str:
    """Write the formulas of a section as one block, and their examples as a table."""
    found = [Entry(*one) for one in SHOWN[section]]
    table = ["| function | what it is | with | gives |", "| :-- | :-- | :-- | --: |"]
    table += [one.row for one in found]
    return "\n".join([_block([one.latex for one in found]), "", *table])


def explained(command: str, *terms: str) -> str:
    """Run `rooflm explain ...` and write the formula that it prints, with the value.

    terms: the lines of it to show, all if none are named.
    """
    printed = transcript.output(f"{command} --format json")
    if not printed.startswith("{"):
        raise RuntimeError(f"{command}: {printed}")
    answer = json.loads(printed)
    rows: list[str] = []
    for one in answer["terms"]:
        if not terms or one["name"] in terms:
            name = one["name"].replace("_", " ").replace(".", " ")
            rows.append(rf"\text{{{name}}} &= {broken(_parsed(one['formula']))}")
    return f"{_block(rows)}\n\n`{command}` gives {shown(answer['value'])} {answer['unit']}."


def _parsed(formula: str) -> Any:
    """Read a formula that was printed on a line, every name but those of functions a letter."""
    known = {"max": sympy.Max, "min": sympy.Min, "floor": sympy.floor, "ceiling": sympy.ceiling}
    letters = Letters()
    names = {n: known.get(n) or letters[n] for n in re.findall(r"[^\W\d]\w*", formula)}
    return sympy.sympify(formula, locals=names)


def left_out() -> str:
    """List the formulas of the register that the page does not show, and why."""
    lines = ["| function | why it is not above |", "| :-- | :-- |"]
    return "\n".join([*lines, *(f"| `{name}` | {why} |" for name, why in LEFT_OUT.items())])
