"""Cache and state of a sequence against its context, by architecture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..calc.labels import quantity
from .axes import counted, label_axes, logarithmic
from .legends import entries, legend
from .series import ROWS, Answer, Row, Series, drawable, few, left_out, series
from .style import DASHES, GREY, MARKERS, PALETTE, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KEPT = "kept_bytes"


def draw(answer: Answer) -> Figure:
    """Draw what each sequence keeps: cache and states over the batch, on two logarithmic axes.

    A line shows the capacity where all rows have the same.
    """
    found = drawable(answer, "cache", "batch", "context_tokens", "kv_cache_bytes")
    kept = [{**row, KEPT: _kept(row)} for row in found]
    rows = [row for row in kept if row[KEPT] > 0]
    if not rows:
        from ..calc.errors import RooflmError

        raise RooflmError("no row keeps a cache or a state", "cache")
    lines = few(_lines(answer, rows), "cache")
    capacities = {row.get("capacity_bytes") for row in rows}
    limit = capacities.pop() if len(capacities) == 1 else None
    shown = quantity(answer, KEPT, rows)
    notes = ["cache and states of one sequence", left_out(answer, rows, "that keeps nothing")]
    drawing, (ax,) = figure(1, caption(answer, *notes, timed=False))
    for i, line in enumerate(lines):
        at = {row["context_tokens"]: shown.of(row) for row in line.rows}
        ax.plot(
            sorted(at), [at[tokens] for tokens in sorted(at)], linestyle=DASHES[i],
            color=PALETTE[i], marker=MARKERS[i], markersize=4, linewidth=1.3,
            label=line.label or ROWS,
        )  # fmt: skip
    if limit is not None:
        label = f"capacity, {limit / 1e9:,.1f} GB"
        ax.axhline(shown.scale * limit, color=GREY, linewidth=1.2, linestyle=(0, (8, 3)),
                   label=label)  # fmt: skip
    counted(ax, "x", [row["context_tokens"] for row in rows])
    logarithmic(ax, "y")
    unit = shown.label[shown.label.index("[") :]
    label_axes(ax, "context [tokens]", f"cache and state of a sequence {unit}")
    legend(drawing, entries(ax))
    return drawing


def _kept(row: Row) -> float:
    return (row["kv_cache_bytes"] + (row.get("state_bytes") or 0)) / row["batch"]


def _lines(answer: Answer, rows: Sequence[Row]) -> list[Series]:
    """Group rows into lines; batches make lines only where a shared prefix makes them differ."""
    without = series(answer, rows, "context_tokens", but=("batch",))
    for line in without:
        each: dict[int, float] = {}
        for row in line.rows:
            first = each.setdefault(row["context_tokens"], row[KEPT])
            if abs(row[KEPT] - first) > 1e-9 * first:
                return series(answer, rows, "context_tokens")
    return without
