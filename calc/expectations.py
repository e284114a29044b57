"""What a study expects: values with a tolerance, ranges, words, orders of variants; judged."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .errors import RooflmError, nearest, printable
from .plain import is_list, is_map, is_number
from .units import MULTIPLES, TIMES, parse_count, show_number

EXACT = 1e-9
"""Relative difference from a plain number that is none."""

LONGEST = 200
"""Characters of an expectation; patterns take time as the square of their length."""

Place = Callable[..., str]
"""Names the place of a part of an expectation."""

_FIGURE = re.compile(r"([+-]?(?:\d[\d,]*)?\.?\d+(?:[eE][+-]?\d{1,3})?)\s*([A-Za-zµ%]*)(?:/s)?")


@dataclass(frozen=True)
class Wanted:
    """What a value has to be: inside a range, a word, or in an order among variants."""

    text: str
    low: float | None = None
    high: float | None = None
    strict: bool = False
    """The ends of the range are outside it."""
    same: tuple[Any, ...] = ()
    """The one word, truth or null that it has to be, if it is no number."""
    order: tuple[str, ...] = ()
    """Variants from the largest to the smallest."""
    equal_too: bool = False
    """Neighbours in the order may be equal."""

    def holds(self, value: Any) -> bool:
        """Tell whether a value is as wanted."""
        if self.same:
            # 1 is not true here, and 0 is not false.
            return type(value) is type(self.same[0]) and value == self.same[0]
        if not is_number(value):
            return False
        if self.strict:
            return (self.low is None or value > self.low) and (
                self.high is None or value < self.high
            )
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def off(self, value: Any) -> float | None:
        """Tell how far a number lies outside the range, relative to the nearer end; None if not."""
        if not is_number(value) or self.holds(value):
            return None
        ends = [end for end in (self.low, self.high) if end]
        return min((value / end - 1 for end in ends), key=abs, default=None)


@dataclass(frozen=True)
class Expectation:
    """What has to hold of one quantity, at the rows that it names."""

    at: Mapping[str, tuple[Any, ...]]
    """Values that the keys of a row have; all rows if it is empty."""
    quantity: str
    wanted: Wanted
    where: str
    source: str = ""

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Tell whether a row is meant."""
        return all(row.get(key) in values for key, values in self.at.items())


def parse_expectation(
    said: Mapping[str, Any], variants: Iterable[str], where: Place
) -> list[Expectation]:
    """Read one entry of `expect`: rows, and what is wanted of their quantities."""
    at = selection(said.get("at"), lambda *key: where("at", *key))
    source = said.get("source", "")
    if not isinstance(source, str):
        raise RooflmError("a source is a text", where("source"))
    found: list[Expectation] = []
    for name, value in said.items():
        if name in ("at", "source"):
            continue
        if name != "order":
            wanted = parse_wanted(name, value, where(name))
            found.append(Expectation(at, name, wanted, where(name), source))
            continue
        if not is_map(value):
            fix = "Write {tokens_per_s: gqa > mha}."
            raise RooflmError("an order is told of a quantity", where(name), fix)
        for quantity, chains in value.items():
            for chain in chains if is_list(chains) else [chains]:
                wanted = _order(chain, set(variants), where(name, quantity))
                found.append(Expectation(at, quantity, wanted, where(name, quantity), source))
    if not found:
        raise RooflmError("an expectation has a quantity", where(), "Write fits: true.")
    return found


def selection(value: Any, where: Place) -> dict[str, tuple[Any, ...]]:
    """Read which rows are meant: a value, or a list of them, for each key."""
    if value is None:
        return {}
    if not is_map(value):
        raise RooflmError("rows are told by their keys", where(), "Write at: {batch: 64}.")
    found: dict[str, tuple[Any, ...]] = {}
    for key, values in value.items():
        several = values if is_list(values) else [values]
        if any(is_map(v) or is_list(v) for v in several) or not several:
            raise RooflmError(f"'{printable(key, 40)}' has a value or a list of them", where(key))
        found[key] = tuple(several)
    return found


def parse_wanted(quantity: str, value: Any, where: str) -> Wanted:
    """Read what is wanted of a quantity: 23.80ms ± 0.01ms, 20ms..25ms, >= 1, false, memory."""
    if value is None or isinstance(value, bool):
        return Wanted({None: "null", True: "true", False: "false"}[value], same=(value,))
    if isinstance(value, int | float):
        number = _finite(float(value), where)
        return _around(str(value), number, EXACT * abs(number))
    if not isinstance(value, str) or not value.strip():
        raise RooflmError("a value is expected", where, "Write 23.80ms ± 0.01ms, or fits: false.")
    text = value.strip()
    if len(text) > LONGEST:
        raise RooflmError(f"'{printable(text, 40)}' is too long for an expectation", where)
    if text.lower() in ("yes", "no", "true", "false", "on", "off"):
        raise RooflmError(f"'{text}' is a text here", where, "Write true or false.")
    sign = re.match(r"(<=|>=|<|>)\s*(.+)", text)
    if sign:
        end = _with_unit(*_read(sign[2], quantity, where), quantity, where)
        low, high = (end, None) if ">" in sign[1] else (None, end)
        return Wanted(text, low, high, strict="=" not in sign[1])
    for pattern, make in ((r"\s*(?:±|\+-|\+/-)\s*", _spread), (r"\s*\.\.\s*", _range)):
        parts = re.split(pattern, text)
        if len(parts) == 2:
            return make(text, parts, quantity, where)
    if _FIGURE.fullmatch(text):
        number = _scaled(*_read(text, quantity, where), quantity, where)
        return _around(text, number, EXACT * abs(number))
    if re.fullmatch(r"[A-Za-z][\w .-]*", text):
        return Wanted(text, same=(text,))
    fix = "Write 23.80ms ± 0.01ms, 20ms..25ms, >= 1k, true, or a word."
    raise RooflmError(f"'{printable(text, 40)}' is no expectation", where, fix)


def _around(text: str, value: float, spread: float) -> Wanted:
    return Wanted(text, value - spread, value + spread)


def _spread(text: str, parts: Sequence[str], quantity: str, where: str) -> Wanted:
    """Read VALUE ± SPREAD, the spread in percent or in the unit of the value."""
    (value, unit), (spread, own) = (_read(p, quantity, where) for p in parts)
    if own == "%" and unit != "%":
        if spread < 0:
            raise RooflmError(f"'{printable(text, 40)}' has a negative tolerance", where)
        middle = _with_unit(value, unit, quantity, where)
        return _around(text, middle, abs(middle) * spread / 100)
    unit, own = unit or own, own or unit
    middle, width = (_with_unit(*p, quantity, where) for p in ((value, unit), (spread, own)))
    if width < 0:
        raise RooflmError(f"'{printable(text, 40)}' has a negative tolerance", where)
    return _around(text, middle, width)


def _range(text: str, parts: Sequence[str], quantity: str, where: str) -> Wanted:
    """Read LOW..HIGH; a unit at one end is that of both."""
    (low, unit), (high, own) = (_read(p, quantity, where) for p in parts)
    unit, own = unit or own, own or unit
    ends = _with_unit(low, unit, quantity, where), _with_unit(high, own, quantity, where)
    if ends[0] > ends[1]:
        raise RooflmError(f"the range '{printable(text, 40)}' ends before it begins", where)
    return Wanted(text, *ends)


def _with_unit(value: float, unit: str, quantity: str, where: str) -> float:
    """Scale a figure of a range, which needs its unit: below 30 would hold of 30 seconds."""
    if value and not unit and set(_units(quantity)) & {"s", "B"}:
        fix = f"Units: {_units_told(quantity)}."
        raise RooflmError(f"{value:g} has no unit of {quantity}", where, fix)
    return _scaled(value, unit, quantity, where)


def _read(text: str, quantity: str, where: str) -> tuple[float, str]:
    match = _FIGURE.fullmatch(text.strip())
    if not match:
        what = f"'{printable(text, 40)}' is no figure of {quantity}"
        raise RooflmError(what, where, f"Units: {_units_told(quantity)}.")
    return float(match[1].replace(",", "")), match[2]


def _units(quantity: str) -> Mapping[str, float]:
    """List the units of a quantity, by the ending of its key."""
    if quantity.endswith(("_bytes", "bytes_per_s", "bytes_per_token", "bytes_per_sequence")):
        return {"": 1, **{f"{m}B": float(v) for m, v in MULTIPLES.items()}}
    if quantity.endswith("_s") and not quantity.endswith("per_s"):
        return {"": 1, **TIMES}
    return {**{m: float(v) for m, v in MULTIPLES.items()}, "%": 0.01}


def _units_told(quantity: str) -> str:
    return ", ".join(unit for unit in _units(quantity) if unit)


def _scaled(value: float, unit: str, quantity: str, where: str) -> float:
    known = _units(quantity)
    if unit not in known:
        what = f"'{printable(unit, 20)}' is no unit of {quantity}"
        raise RooflmError(what, where, f"Units: {_units_told(quantity)}.")
    return _finite(value * known[unit], where)


def _finite(value: float, where: str) -> float:
    if not math.isfinite(value):
        raise RooflmError(f"{value:g} is beyond all that is measured", where)
    return value


def _order(chain: Any, variants: set[str], where: str) -> Wanted:
    """Read an order of variants: mla > gqa > mha, or with < throughout."""
    if not isinstance(chain, str):
        raise RooflmError("an order names variants", where, "Write gqa > mha.")
    signs = set(re.findall(r"[<>]=?", chain))
    names = [name.strip() for name in re.split(r"[<>]=?", chain)]
    if len(signs) != 1 or len(names) < 2 or len(set(names)) < len(names):
        what = f"'{printable(chain, 60)}' is no order"
        raise RooflmError(what, where, "Write gqa > mha, with one sign throughout.")
    for name in names:
        if name not in variants:
            fix = nearest(name, variants) or f"Variants: {', '.join(sorted(variants))}."
            raise RooflmError(f"no variant '{printable(name, 40)}'", where, fix)
    sign = signs.pop()
    order = tuple(names if sign.startswith(">") else reversed(names))
    return Wanted(chain, order=order, equal_too="=" in sign)


def check_expectations(
    expectations: Sequence[Expectation],
    columns: Sequence[str],
    keys: Mapping[str, Sequence[Any]],
    samples: Mapping[str, Any],
) -> list[Expectation]:
    """Refuse what is expected of a column that is not there, or of rows that are not.

    columns: all of the study; keys: what identifies a row, with all its values; samples: a value of
    each column that is known. Returns the expectations with counts as numbers.
    """
    found: list[Expectation] = []
    for expected in expectations:
        if expected.quantity not in columns:
            what = f"'{printable(expected.quantity, 40)}' is not measured"
            fix = nearest(expected.quantity, columns) or "Add it to measure."
            raise RooflmError(what, expected.where, fix)
        _check_kind(expected, samples.get(expected.quantity))
        found.append(replace(expected, at=check_selection(expected.at, keys, expected.where)))
    return found


def _check_kind(expected: Expectation, sample: Any) -> None:
    """Refuse a number of what is a word, and the like: it could never hold."""
    wanted = expected.wanted
    if sample is None or wanted.same == (None,):
        return
    kind = _kind(sample)
    if kind != (_kind(wanted.same[0]) if wanted.same else "a number"):
        what = f"'{printable(expected.quantity, 40)}' is {kind}, and never '{wanted.text}'"
        raise RooflmError(what, expected.where)


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a word" if isinstance(value, str) else "a number"


def check_selection(
    at: Mapping[str, Sequence[Any]], keys: Mapping[str, Sequence[Any]], where: str
) -> dict[str, tuple[Any, ...]]:
    """Refuse rows that a study does not have; counts such as 8Ki become numbers."""
    found: dict[str, tuple[Any, ...]] = {}
    for key, values in at.items():
        if key not in keys:
            fix = nearest(key, keys) or f"They have {', '.join(keys)}."
            raise RooflmError(f"rows are not told by '{printable(key, 40)}'", where, fix)
        whole = all(isinstance(v, int) for v in keys[key])
        read = [parse_count(v, where) if whole and isinstance(v, str) else v for v in values]
        for value in read:
            # 1 is equal to true, and is not it.
            if value not in keys[key] or isinstance(value, bool):
                shown, known = printable(str(value), 40), [str(v) for v in keys[key]]
                some = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
                fix = nearest(shown, known) or f"There is {some}."
                raise RooflmError(f"no row has {key} {shown}", where, fix)
        found[key] = tuple(read)
    return found


def judge(
    expectations: Sequence[Expectation],
    rows: Sequence[Mapping[str, Any]],
    keys: Sequence[str],
    points: Sequence[str],
) -> list[dict[str, Any]]:
    """Tell of each expectation at each of its rows whether it holds.

    keys: what identifies a row, the variant first; points: those of them that variants share, at
    which they are put in an order.
    """
    verdicts: list[dict[str, Any]] = []
    for expected in expectations:
        taken = [row for row in rows if expected.takes(row)]
        if not taken:
            raise RooflmError("no row is meant", expected.where, "Are axes zipped?")
        if expected.wanted.order:
            verdicts += _ordered(expected, taken, points)
            continue
        for row in taken:
            value = row.get(expected.quantity)
            holds, off = expected.wanted.holds(value), expected.wanted.off(value)
            verdicts.append(_verdict(expected, row, keys, value, holds, off))
    return verdicts


def _ordered(
    expected: Expectation, rows: Sequence[Mapping[str, Any]], keys: Sequence[str]
) -> list[dict[str, Any]]:
    """Judge an order of variants at every point that they share."""
    points: dict[tuple[Any, ...], dict[str, Mapping[str, Any]]] = {}
    for row in rows:
        points.setdefault(tuple(row.get(k) for k in keys), {})[row["variant"]] = row
    verdicts: list[dict[str, Any]] = []
    for named in points.values():
        found = [named[v].get(expected.quantity) if v in named else None
                 for v in expected.wanted.order]  # fmt: skip
        numbers = [v for v in found if isinstance(v, int | float)]
        holds = len(numbers) == len(found) and all(
            a > b or (expected.wanted.equal_too and a == b) for a, b in itertools.pairwise(numbers)
        )
        told = ", ".join(f"{name} {_shown(v)}" for name, v in
                         zip(expected.wanted.order, found, strict=True))  # fmt: skip
        row = next(iter(named.values()))
        verdicts.append(_verdict(expected, row, keys, told, holds, None))
    return verdicts


def _shown(value: Any) -> str:
    return show_number(value) if isinstance(value, int | float) else str(value)


def _verdict(
    expected: Expectation, row: Mapping[str, Any], keys: Sequence[str], value: Any, holds: bool,
    off: float | None,
) -> dict[str, Any]:  # fmt: skip
    return {
        "at": {key: row.get(key) for key in keys if row.get(key) is not None},
        "quantity": expected.quantity,
        "expected": expected.wanted.text,
        "value": value,
        "holds": holds,
        "off": off,
        "where": expected.where,
        "source": expected.source,
    }


def at(row: Mapping[str, Any]) -> str:
    """Name a row by what identifies it."""
    return ", ".join(f"{key} {value}" for key, value in row.items() if value is not None)
