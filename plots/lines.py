"""One column of an answer against another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calc.labels import quantity
from .axes import counted, label_axes, linear, logarithmic
from .legends import entries, legend
from .series import Answer, drawable, few, left_out, series, sources
from .style import DASHES, MARKERS, PALETTE, WAYS, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGS = ("", "x", "y", "xy")


def draw(answer: Answer, x: str = "batch", y: str = "tokens_per_s", log: str = "") -> Figure:
    """Draw a line a series of rows, ordered along x.

    x, y: columns; log: the axes that are logarithmic.
    """
    from ..calc.errors import check_choice

    check_choice(log, LOGS[1:] if log else LOGS, "log")
    rows = drawable(answer, "lines", x, y)
    along, up = quantity(answer, x, rows), quantity(answer, y, rows)
    lines = few(series(answer, rows, x), "lines")
    notes = (left_out(answer, rows), sources(answer, x, y))
    drawing, (ax,) = figure(1, caption(answer, *notes))
    for i, line in enumerate(lines):
        ordered = sorted(line.rows, key=along.of)
        ax.plot(
            [along.of(r) for r in ordered], [up.of(r) for r in ordered], linestyle=DASHES[i],
            color=PALETTE[i], marker=MARKERS[i], markersize=4, linewidth=1.3,
            label=line.label or None,
        )  # fmt: skip
    for way, shown in zip(WAYS, (along, up), strict=True):
        values = [shown.of(row) for row in rows]
        if way in log:
            whole = way == "x" and all(isinstance(row[x], int) for row in rows)
            (counted(ax, way, values) if whole else logarithmic(ax, way))
        else:
            linear(ax, way)
    label_axes(ax, along.label, up.label)
    legend(drawing, entries(ax))
    return drawing
