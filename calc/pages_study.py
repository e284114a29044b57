"""What people see of a study: its rows, what was expected, what moved."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .expectations import at
from .labels import Quantity, quantity, words
from .output import Page, Table
from .pages import cell, yes

Answer = Mapping[str, Any]


def study_page(answer: Answer) -> Page:
    """Lay out the rows of a study, with what it says and what was expected."""
    tables = [rows_table(answer)]
    wrong = [v for v in answer["expectations"] if not v["holds"]]
    if wrong:
        tables.append(expectations_table(wrong, "does not hold"))
    notes = [answer["says"]] if answer["says"] else []
    first = ", ".join(answer["one_at_a_time"])
    of = f" (first of {first}; the others alike)" if first else ""
    notes += [f"{v['variant']}: {v['command']}{of}" for v in answer["variants"]]
    if answer["derive"]:
        notes += [f"{name} = {text}" for name, text in answer["derive"].items()]
    if answer["expectations"]:
        notes.append(expected_sentence(answer["expectations"]))
    return Page(tables, [*notes, *answer["assumptions"]])


def expected_sentence(verdicts: Sequence[Mapping[str, Any]]) -> str:
    """Say how many expectations hold."""
    right = sum(v["holds"] for v in verdicts)
    return f"expected: {right:,} of {len(verdicts):,} hold"


def shown_keys(answer: Answer) -> list[str]:
    """Name the keys that tell rows apart; the first, where none does."""
    told = [key for key in answer["axes"] if len(answer["grid"][key]) > 1]
    return told or answer["axes"][:1]


def columns_of(answer: Answer) -> list[Quantity]:
    """Choose the unit in which each column of figures is shown."""
    rows = answer["rows"]
    names = [n for n in answer["units"] if n != "reason" or any(row.get(n) for row in rows)]
    return [quantity(answer, name, rows) for name in names]


def rows_table(answer: Answer) -> Table:
    """Lay out the rows of a study."""
    keys, columns = shown_keys(answer), columns_of(answer)
    heads = [*(words(key) for key in keys), *(c.head for c in columns)]
    rows = [
        [
            *(_key(row.get(key)) for key in keys),
            *(_figure(row.get(c.key), c.scale) for c in columns),
        ]
        for row in answer["rows"]
    ]
    worded = [c.head for c in columns if not c.unit]
    return Table(heads, rows, answer["title"], keys=len(keys), words=worded)


def _key(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _figure(value: Any, scale: float) -> str:
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, int) and scale == 1:
        return f"{value:,}"
    return value if isinstance(value, str) else cell(value, 1 / scale)


def expectations_table(verdicts: Sequence[Mapping[str, Any]], title: str) -> Table:
    """Lay out expectations beside what was found."""
    rows = [
        (
            v["quantity"],
            at(v["at"]),
            v["expected"],
            _plain(v["value"], v["quantity"]),
            share(v["off"]),
            v["where"],
        )
        for v in verdicts
    ]
    heads = ("quantity", "at", "expected", "found", "off by", "where")
    return Table(heads, rows, title, keys=2, words=("expected", "found", "where"))


def check_page(checked: Sequence[Answer]) -> Page:
    """Lay out what a check found: what does not hold, what moved, which inputs changed."""
    tables: list[Table] = []
    notes: list[str] = []
    for answer in checked:
        name = answer["study"]
        wrong = [v for v in answer["expectations"] if not v["holds"]]
        if wrong:
            tables.append(expectations_table(wrong, f"{name}: does not hold"))
        if answer["moved"]:
            rows = [
                (
                    m["quantity"],
                    at(m["at"]),
                    _plain(m["was"], m["quantity"]),
                    _plain(m["now"], m["quantity"]),
                    share(m["change"]),
                )
                for m in answer["moved"]
            ]
            heads = ("quantity", "at", "was", "is", "moved by")
            title = f"{name}: moved since it was frozen"
            tables.append(Table(heads, rows, title, keys=2, words=("was", "is")))
            changed = [(c["input"], _plain(c["was"]), _plain(c["now"])) for c in answer["inputs"]]
            if changed:
                heads = ("input", "was", "is")
                title = f"{name}: inputs that changed since"
                tables.append(Table(heads, changed, title, words=("was", "is")))
            else:
                notes.append(f"{name}: no input changed: the formulas did")
        told = [expected_sentence(answer["expectations"])] if answer["expectations"] else []
        if answer["frozen"]:
            stay = answer["frozen"] - len(answer["moved"])
            told.append(f"{max(0, stay):,} of {answer['frozen']:,} frozen numbers are as they were")
        notes.append(f"{name}: {'; '.join(told)}")
    return Page(tables, notes)


def share(value: float | None) -> str:
    """Write a relative difference."""
    return "-" if value is None else f"{100 * value:+.3g} %"


def _plain(value: Any, key: str = "") -> str:
    """Write a value so that what differs from it shows: six digits, in the unit of its key."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return yes(value)
    if isinstance(value, int | float):
        return quantity({}, key, [{key: value}]).show(value) if key else f"{value:.6g}"
    return str(value)
