"""What fills the memory, row by row, beside the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.plain import is_map
from .axes import brief, linear, points
from .legends import entries, legend
from .series import Answer, Row, differing, drawable, identities, left_out, named
from .style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    HATCHES,
    ORANGE,
    PURPLE,
    SKY,
    SMALL,
    VERMILION,
    caption,
    figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "weights_bytes": ("weights", BLUE, HATCHES[0]),
    "kv_cache_bytes": ("cache", ORANGE, HATCHES[1]),
    "state_bytes": ("state", GREEN, HATCHES[2]),
    "adapters_bytes": ("adapters", PURPLE, HATCHES[3]),
    "activations_bytes": ("activations", VERMILION, HATCHES[4]),
    "draft_weights_bytes": ("weights of the draft", SKY, HATCHES[5]),
    "draft_cache_bytes": ("cache of the draft", "#f0e442", HATCHES[6]),
    "reserve_bytes": ("reserve", "#c8c8c8", HATCHES[7]),
}
"""What memory is made of, from the left to the right, with a colour and a hatch of each."""

LIGHT = ("white", "#f0e442", "#c8c8c8")
"""Colours on which white hatches would not show."""

MOST_BARS = 24
GB = 1e-9
THIN = 2e-3
"""Share of the axis below which a part cannot be seen."""


def draw(answer: Answer) -> Figure:
    """Draw a bar a row: what fills the memory of a device [GB], its total, and the capacity.

    A part that is nowhere in the rows is left out of the legend; one that the answer does not
    name, so that the parts do not add up to the total, is called other.
    """
    rows = drawable(answer, "memory", "memory_bytes")
    if len(rows) > MOST_BARS:
        what = f"{len(rows):,} rows are more than the {MOST_BARS} bars of a figure"
        raise RooflmError(what, "memory", "Ask for fewer batches, contexts or models.")
    labels = _labels(answer, rows)
    of_devices = any(row.get("devices", 1) > 1 for row in rows)
    notes = ("the fullest device of each layout" if of_devices else "",
             left_out(answer, rows, "without a figure of memory"))  # fmt: skip
    height = 0.9 + 0.27 * max(3, len(rows))
    most = GB * max(max(row["memory_bytes"], row.get("capacity_bytes") or 0) for row in rows)
    sizes = {key: [GB * (_parts(row).get(key) or 0) for row in rows] for key in KINDS}
    thin = {key: max(each) for key, each in sizes.items() if 0 < max(each) < THIN * most}
    notes = (*notes, *(f"{KINDS[key][0]}, at most {brief(1e3 * gb)} MB, are too thin to be seen"
                       for key, gb in thin.items()))  # fmt: skip
    drawing, (ax,) = figure(1, caption(answer, *notes, timed=False), width=7.0, height=height)
    ends = [0.0] * len(rows)
    for key, (name, colour, hatch) in KINDS.items():
        _stack(ax, sizes[key], ends, f"_{name}" if key in thin else name, colour, hatch)
    rest = [max(0.0, GB * row["memory_bytes"] - end) for row, end in zip(rows, ends, strict=True)]
    if any(r > 1e-4 * GB * row["memory_bytes"] for r, row in zip(rest, rows, strict=True)):
        _stack(ax, rest, ends, "other", "white", HATCHES[1])
    _capacities(ax, rows)
    reach = _write(ax, rows, ends, most)
    ax.set_yticks(range(len(rows)), labels)
    ax.invert_yaxis()
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    ax.set_xlim(0, reach)
    linear(ax, "x")
    ax.set_xlabel("memory of a device [GB]")
    # The parts first, in their order, and the line of the capacity last.
    told = entries(ax)
    legend(drawing, [*told[1:], *told[:1]] if told[0][1].startswith("capacity") else told)
    return drawing


def _parts(row: Row) -> Row:
    """Take the parts of a row; `fit` has them by themselves."""
    parts = row.get("memory")
    return parts if is_map(parts) else row


def _stack(
    ax: Any, sizes: list[float], ends: list[float], name: str, colour: str, hatch: str
) -> None:
    """Put a part of every row to the right of those before; nothing where no row has it."""
    if not any(sizes):
        return
    ax.barh(
        range(len(sizes)), sizes, left=list(ends), height=0.68, color=colour, hatch=hatch,
        edgecolor=GREY if colour in LIGHT else "white", linewidth=0.4, label=name,
    )  # fmt: skip
    for i, size in enumerate(sizes):
        ends[i] += size


def _capacities(ax: Any, rows: Sequence[Row]) -> None:
    """Draw the capacity of each row across its bar; lines of neighbours that share it join."""
    known = [(i, GB * row["capacity_bytes"]) for i, row in enumerate(rows)
             if row.get("capacity_bytes") is not None]  # fmt: skip
    if not known:
        return
    at = {gb for _, gb in known}
    name = f"capacity, {at.pop():,.1f} GB" if len(at) == 1 else "capacity"
    ax.vlines(
        [gb for _, gb in known], [i - 0.5 for i, _ in known], [i + 0.5 for i, _ in known],
        color=BLACK, linewidth=1.4, linestyle=(0, (4, 1.5)), label=name, zorder=3,
    )  # fmt: skip


def _write(ax: Any, rows: Sequence[Row], ends: list[float], most: float) -> float:
    """Write the total beside each bar; returns where the axis may end [GB].

    Where it would touch the capacity it stands in the end of the bar: beyond the line it would
    read as more than fits. most: the longest bar or capacity [GB].
    """
    # Names take a third of the width or so.
    gb_of_point = 1.15 * most / (72 * 7.0 * 0.66)
    reach = 1.04 * most
    for i, (row, end) in enumerate(zip(rows, ends, strict=True)):
        text = f"{GB * row['memory_bytes']:,.1f}"
        text += ", does not fit" if row.get("fits") is False else ""
        at, wide = end + 4 * gb_of_point, (points(text) + 6) * gb_of_point
        limit = GB * (row.get("capacity_bytes") or 0)
        how: dict[str, Any] = {"va": "center", "fontsize": SMALL}
        if end <= limit < at + wide and wide <= end:
            patch = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
            ax.text(end - 4 * gb_of_point, i, text, ha="right", bbox=patch, **how)
            continue
        if end <= limit < at + wide:
            # Too short a bar: with its capacity the total cannot be mistaken.
            text = f"{text} of {limit:,.1f}"
            at, wide = limit + 4 * gb_of_point, (points(text) + 6) * gb_of_point
        ax.text(at, i, text, **how)
        reach = max(reach, at + wide)
    return reach


def _labels(answer: Answer, rows: Sequence[Row]) -> list[str]:
    """Name each bar by what differs; by its number where nothing does."""
    keys = differing(rows, identities(answer))
    if not keys:
        first = [answer.get("model"), f"batch {rows[0].get('batch')}"]
        return [", ".join(str(part) for part in first if isinstance(part, str))] * len(rows)
    return [", ".join(named(key, row.get(key)) for key in keys) for row in rows]
