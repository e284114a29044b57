"""Rows of an answer as lines: what tells them apart, and the labels of axes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..calc.errors import RooflmError, nearest
from ..calc.labels import Quantity, quantity, words
from ..calc.plain import is_list, is_map
from .axes import brief
from .style import MOST_SERIES

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

IDENTITIES = (
    "variant", "model", "draft", "hardware", "weights_format", "devices", "prompt_tokens",
    "output_tokens", "context_tokens", "acceptance", "draft_cost", "draft_tokens", "batch",
)  # fmt: skip
"""Keys that say which row a row is, in the order in which a label names them."""


ROWS = "_rows"
"""Name of the only line of a figure, which no legend needs."""


@dataclass(frozen=True)
class Series:
    """Rows that make one line, in their order."""

    label: str
    rows: list[Row]


def rows_of(answer: Answer, kind: str) -> list[Row]:
    """Take the rows of an answer; refuse an answer without any."""
    rows = answer.get("rows")
    if not is_list(rows) or not rows:
        raise RooflmError("the answer has no rows, so that there is nothing to draw", kind)
    return [row for row in rows if is_map(row)]


def drawable(answer: Answer, kind: str, *keys: str) -> list[Row]:
    """Take the rows that have a value in all of some columns.

    Refuses a column that no row has, naming it, and rows without any value in one.
    """
    rows = rows_of(answer, kind)
    known = dict.fromkeys(key for row in rows for key in row)
    for key in keys:
        if key not in known:
            fix = nearest(key, known)
            raise RooflmError(f"the rows have no column '{key}'", kind, fix)
        if all(row.get(key) is None for row in rows):
            reasons = [str(row["reason"]) for row in rows if row.get("reason")]
            why = f": {reasons[0].rstrip('.')}" if reasons else ""
            what = f"no row has a value of '{key}', so that there is nothing to draw{why}"
            raise RooflmError(what, kind)
    drawn = [row for row in rows if all(row.get(key) is not None for key in keys)]
    if not drawn:
        raise RooflmError(f"no row has values of {' and '.join(keys)}", kind)
    return drawn


def axes_of(answer: Answer, kind: str, rows: Sequence[Row], *keys: str) -> list[Quantity]:
    """Label the columns along axes of numbers; refuse one that holds words."""
    found = [quantity(answer, key, rows) for key in keys]
    for shown in found:
        if not shown.unit:
            raise RooflmError(f"'{shown.key}' holds words, which have no axis", kind)
    return found


def left_out(answer: Answer, drawn: Sequence[Row], what: str = "without a value") -> str:
    """Say how many rows are not drawn; nothing where all are."""
    count = len(answer["rows"]) - len(drawn)
    if count == 0:
        return ""
    return f"{count:,} row {what} is left out" if count == 1 else (
        f"{count:,} rows {what} are left out"
    )  # fmt: skip


def fits(row: Row) -> bool:
    """Tell whether a row fits; one of which it is not known counts as if it did."""
    return row.get("fits") is not False


def identities(answer: Answer) -> list[str]:
    """List the keys that may tell rows apart: those that the answer names, then the usual ones."""
    axes = answer.get("axes")
    own = [str(key) for key in axes] if is_list(axes) else []
    return list(dict.fromkeys((*own, *IDENTITIES)))


def differing(rows: Sequence[Row], keys: Iterable[str], x: str = "") -> list[str]:
    """Choose the keys that tell rows apart, none of which says what others say already.

    x: the column along the axis; a count that follows from it, as a context does from a prompt,
    tells no lines apart.
    """
    chosen: list[str] = []
    # The class of each row by the keys that are chosen, and how many classes there are.
    classes, count = [0] * len(rows), 1
    across = _column(rows, x) if x in IDENTITIES else None
    for key in keys:
        if key == x:
            continue
        column = _column(rows, key)
        found = len(set(zip(classes, column, strict=True)))
        if found == count:
            continue
        if across is not None and all(isinstance(row.get(key), int | float) for row in rows):
            along = len(set(zip(classes, across, strict=True)))
            if len(set(zip(classes, across, column, strict=True))) == along:
                continue
        chosen.append(key)
        numbers: dict[Any, int] = {}
        pairs = zip(classes, column, strict=True)
        classes, count = [numbers.setdefault(pair, len(numbers)) for pair in pairs], found
    return chosen


def _column(rows: Sequence[Row], key: str) -> list[Any]:
    """Take the values of a key as what can be told apart; lists and mixed values by their text."""
    values = [row.get(key) for row in rows]
    plain = len(set(map(type, values))) == 1 and isinstance(values[0], int | float | str | None)
    return values if plain else [str(value) for value in values]


def series(answer: Answer, rows: Sequence[Row], x: str, but: Sequence[str] = ()) -> list[Series]:
    """Group rows into lines along a column, labelled by what differs; first come, first drawn.

    but: keys that do not make lines of their own.
    """
    keys = differing(rows, [k for k in identities(answer) if k not in but], x)
    columns = [_column(rows, key) for key in keys]
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(tuple(column[i] for column in columns), []).append(row)
    return [Series(", ".join(named(key, group[0].get(key)) for key in keys), group)
            for group in groups.values()]  # fmt: skip


def few(lines: Sequence[Series], kind: str) -> Sequence[Series]:
    """Refuse more lines than colours and markers tell apart."""
    if len(lines) > MOST_SERIES:
        what = f"{len(lines):,} series are more than the {MOST_SERIES} that a figure tells apart"
        raise RooflmError(what, kind, f"They are {lines[0].label}; {lines[1].label}; and so on.")
    return lines


def named(key: str, value: Any) -> str:
    """Say which value of a key a row has: 4,096 tokens, batch 16, h100-sxm."""
    if value is None:
        return f"no {words(key)}"
    number = f"{value:,.10g}" if isinstance(value, int | float) else str(value)
    if key == "context_tokens":
        return f"{number} tokens"
    if key == "devices":
        return f"{number} device{'' if value == 1 else 's'}"
    if key == "draft_tokens":
        return f"{number} drafted"
    if key.endswith("_tokens"):
        return f"{words(key).removesuffix(' tokens')} {number} tokens"
    return number if isinstance(value, str) else f"{words(key)} {number}"


TIMED = re.compile(
    r"(?<![a-z])(\w*_s|\w*per_s\w*|\w*usd\w*|\w*joules\w*|\w*speedup\w*|regime|basis)(?![a-z_])"
)
"""Names of what is a time or follows from one."""


def timed(answer: Answer, *keys: str) -> bool:
    """Tell whether a column is a time or follows from one, as far as its name or formula says."""
    derived = answer.get("derive")
    texts = [str(derived[key]) if is_map(derived) and key in derived else key for key in keys]
    return any(TIMED.search(text) for text in (*texts, *keys))


NEAR = "the axis of '{}' does not start at 0"
LEAST_SPAN = 0.05
"""Share of the largest value below which differences cannot be seen on an axis from 0."""


def floats(answer: Answer, shown: Quantity, rows: Sequence[Row]) -> bool:
    """Tell whether a linear axis starts near its values: that of a fact that differs by little.

    Small differences of a quality are what it is drawn for; those of a time are small.
    """
    facts, values = answer.get("facts"), [shown.of(row) for row in rows]
    spread = max(values) - min(values)
    close = min(values) > 0 and 0 < spread < LEAST_SPAN * max(values)
    return close and is_map(facts) and shown.key in facts


@dataclass(frozen=True)
class Piece:
    """Neighbours along a line that all fit, or that all do not."""

    fits: bool
    rows: list[Row]
    """With the neighbour to either side where they do not fit, to which they are joined."""


def pieces(ordered: Sequence[Row]) -> list[Piece]:
    """Cut the rows of a line where what fits begins or ends."""
    import itertools

    runs = [(key, list(run)) for key, run in itertools.groupby(ordered, fits)]
    found: list[Piece] = []
    for i, (fitting, run) in enumerate(runs):
        before = runs[i - 1][1][-1:] if i and not fitting else []
        after = runs[i + 1][1][:1] if i + 1 < len(runs) and not fitting else []
        found.append(Piece(fitting, [*before, *run, *after]))
    return found


def sources(answer: Answer, *keys: str) -> str:
    """Name the sources of facts that are drawn."""
    facts = answer.get("facts")
    if not is_map(facts):
        return ""
    found = [(key, facts[key]) for key in keys if is_map(facts.get(key))]
    told = [f"{f.get('label') or key}: {f['source']}" for key, f in found if f.get("source")]
    return "; ".join(told)


def wide(values: Iterable[float], factor: float = 10.0) -> bool:
    """Tell whether values are all positive and span more than a factor: a logarithmic axis."""
    known = list(values)
    return bool(known) and min(known) > 0 and max(known) > factor * min(known)


def duration(seconds: float) -> str:
    """Write a time with the unit that suits it: 20 ms."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("\N{MICRO SIGN}s", 1e-6)):
        if seconds >= size:
            return f"{brief(seconds / size)} {unit}"
    return f"{brief(seconds / 1e-9)} ns"
