"""Two columns of an answer against each other, with the rows that no other row beats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..calc.errors import RooflmError, check_choice
from ..calc.labels import words
from .axes import grounded, label_axes, linear, logarithmic
from .legends import annotate, entries, hollow_entry, legend
from .series import (
    NEAR,
    Answer,
    Row,
    Series,
    axes_of,
    differing,
    drawable,
    few,
    fits,
    floats,
    identities,
    left_out,
    named,
    rows_of,
    series,
    sources,
    timed,
    wide,
)
from .style import BLACK, MARKERS, MOST_SERIES, PALETTE, WAYS, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Better = Literal["low", "high"]
GOALS: tuple[Better, Better] = ("low", "high")
SIZES = ("batch", "context_tokens", "prompt_tokens", "output_tokens", "draft_tokens", "devices")
"""Counts that make points of a series, not a series of their own."""

HIGH = re.compile(
    r"(per_s(_per_device)?|max_sequences|max_context_tokens|margin_bytes|speedup\w*|intensity\w*"
    r"|throughput_gain)$"
)
LOW = re.compile(
    r"(_s|bytes|bytes_per_token|elements|usd|usd_per_\w+|joules|joules_per_\w+|devices|_kept)$"
)
"""Endings of columns of which more, and of which less, is better."""
NEITHER = re.compile(r"capacity\w*_bytes$")
MOST_NAMED = 60
"""Points that are named; the caption has the values of more."""


def draw(answer: Answer, x: str = "time_s", y: str = "", better: str = "") -> Figure:
    """Draw every row as a point, and a step line through the rows that no other row beats.

    x, y: columns, usually time and tokens/s of a device; better: "low" or "high" of each, such
    as low/high; what is not said follows from the column: less is better of time, memory, bytes
    that are read, money, energy and devices, more of rates, speed-ups and of what fits. Of all
    else it has to be said. Rows that do not fit are hollow and beat nothing.
    """
    y = y or _usual(answer)
    rows = drawable(answer, "pareto", x, y)
    ways = _ways(better, x, y)
    lines = few(_coloured(answer, rows, x), "pareto")
    along, up = axes_of(answer, "pareto", rows, x, y)
    front = front_of([row for row in rows if fits(row)], x, y, ways)
    goals = f"better: {_said(ways[0])} across, {_said(ways[1])} up"
    # What tells the rows of a series apart; the series says the rest.
    keys = list(dict.fromkeys(
        key for line in lines for key in differing(line.rows, identities(answer))
        if key not in (x, y)
    ))  # fmt: skip
    near = floats(answer, up, rows)
    heights = [up.of(row) for row in rows]
    notes = (goals, *(_values(key, rows) for key in keys), left_out(answer, rows),
             sources(answer, x, y), NEAR.format(up.words) if near else "")  # fmt: skip
    about = caption(answer, *notes, timed=timed(answer, x, y))
    drawing, (ax,) = figure(1, about, width=5.8, height=4.6)
    size = 26 if len(rows) <= 200 else 9
    for i, line in enumerate(lines):
        for fitting in (True, False):
            own = [row for row in line.rows if fits(row) == fitting]
            if own:
                ax.scatter(
                    [along.of(r) for r in own], [up.of(r) for r in own], s=size, marker=MARKERS[i],
                    facecolors=PALETTE[i] if fitting else "white", edgecolors=PALETTE[i],
                    linewidths=1.1, zorder=3, label=line.label or "rows",
                )  # fmt: skip
    if len(front) == 1:
        (best,) = front
        ax.plot([along.of(best)], [up.of(best)], linestyle="none", marker="o", markersize=10,
                markerfacecolor="none", color=BLACK, label="nothing beats this")  # fmt: skip
    elif front:
        # What is reached at one place is reached at every worse one.
        ax.plot(
            [along.of(r) for r in front], [up.of(r) for r in front], color=BLACK, linewidth=1,
            drawstyle="steps-post" if ways[0] == "low" else "steps-pre", zorder=2,
            label="nothing beats these",
        )  # fmt: skip
    for way, shown in zip(WAYS, (along, up), strict=True):
        if wide(shown.of(row) for row in rows):
            logarithmic(ax, way)
        elif way == "y" and not near:
            grounded(ax, heights)
        else:
            linear(ax, way)
    label_axes(ax, along.label, up.label)
    told = entries(ax)
    if any(not fits(row) for row in rows):
        told.append(hollow_entry(linestyle="none"))
    legend(drawing, told)
    others = [row for row in rows if not any(row is best for best in front)]
    told_of = [*front, *(others if len(rows) <= MOST_NAMED else ())]
    annotate(ax, [
        (along.of(r), up.of(r), ", ".join(named(k, r.get(k)) for k in keys))
        for r in told_of if keys
    ])  # fmt: skip
    return drawing


def _values(key: str, rows: Sequence[Row]) -> str:
    """Say which values of a key the points have: batch 1, 16 and 64."""
    values: list[Any] = list(dict.fromkeys(row.get(key) for row in rows))
    counts = all(isinstance(v, int | float) for v in values)
    values = sorted(values) if counts else values
    each = [f"{v:,.10g}" if isinstance(v, int | float) else str(v) for v in values]
    if len(each) <= 8:
        return f"{words(key)} {', '.join(each[:-1])} and {each[-1]}"
    if counts:
        return f"{words(key)} {each[0]} to {each[-1]}"
    return f"{len(each)} values of {words(key)}"


def _coloured(answer: Answer, rows: Sequence[Row], x: str) -> list[Series]:
    """Group rows by what they are, or by their sizes other than the batch where that is all one."""
    lines = series(answer, rows, x, but=SIZES)
    if len(lines) == 1:
        sized = series(answer, rows, x, but=("batch",))
        return sized if len(sized) <= MOST_SERIES else lines
    return lines


def front_of(rows: Sequence[Row], x: str, y: str, ways: tuple[Better, Better]) -> list[Row]:
    """Find the rows that no other is as good as in both columns and better in one, along x."""
    signs = [1 if way == "low" else -1 for way in ways]

    def cost(row: Row) -> tuple[float, float]:
        return signs[0] * row[x], signs[1] * row[y]

    best: list[Row] = []
    # The best x first, and of equal ones the best y: a row is beaten unless its y is new.
    for row in sorted(rows, key=cost):
        if not best or cost(row)[1] < cost(best[-1])[1]:
            best.append(row)
    return sorted(best, key=lambda row: row[x])


def _usual(answer: Answer) -> str:
    each = "tokens_per_s_per_device"
    known = any(row.get(each) is not None for row in rows_of(answer, "pareto"))
    return each if known else "tokens_per_s"


def _ways(better: str, x: str, y: str) -> tuple[Better, Better]:
    """Read what is better of each column, and tell what is usual where it is not said."""
    said = re.split("[,/: -]+", better) if better else ["", ""]
    if len(said) != 2:
        raise RooflmError(f"'{better}' is not two words", "better", "Write low/high.")
    found: list[Better] = []
    for word, key in zip(said, (x, y), strict=True):
        if word:
            check_choice(word, GOALS, "better")
            found.append("low" if word == "low" else "high")
            continue
        usual = usual_way(key)
        if usual is None:
            what = f"nothing tells whether less or more of '{key}' is better"
            fix = "Say which of x/y, as `better: low/high` in a study or --better low/high."
            raise RooflmError(what, "pareto", fix)
        found.append(usual)
    return found[0], found[1]


def usual_way(key: str) -> Better | None:
    """Tell whether less or more of a column is better; None where its name does not say."""
    if NEITHER.search(key):
        return None
    return "high" if HIGH.search(key) else "low" if LOW.search(key) else None


def _said(way: Better) -> str:
    return "less" if way == "low" else "more"
