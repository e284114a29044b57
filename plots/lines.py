"""One column of an answer against another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .axes import counted, grounded, label_axes, linear, logarithmic
from .legends import entries, hollow_entry, legend
from .series import (
    NEAR,
    ROWS,
    Answer,
    axes_of,
    drawable,
    few,
    fits,
    floats,
    left_out,
    pieces,
    series,
    sources,
    timed,
)
from .style import DASHES, MARKERS, PALETTE, WAYS, caption, figure, marked

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGS = ("", "x", "y", "xy")


def draw(answer: Answer, x: str = "batch", y: str = "tokens_per_s", log: str = "") -> Figure:
    """Draw a line a series of rows, ordered along x; what does not fit is dotted and hollow.

    x, y: columns; log: the axes that are logarithmic.
    """
    from ..calc.errors import check_choice

    check_choice(log, LOGS[1:] if log else LOGS, "log")
    rows = drawable(answer, "lines", x, y)
    along, up = axes_of(answer, "lines", rows, x, y)
    lines = few(series(answer, rows, x), "lines")
    near = "y" not in log and floats(answer, up, rows)
    heights = [up.of(row) for row in rows]
    notes = (left_out(answer, rows), sources(answer, x, y), NEAR.format(up.words) if near else "")
    drawing, (ax,) = figure(1, caption(answer, *notes, timed=timed(answer, x, y)))
    cut = not all(map(fits, rows))
    for i, line in enumerate(lines):
        ordered = sorted(line.rows, key=along.of)
        parts = pieces(ordered)
        # What fits stands for the line in the legend.
        first = next((piece for piece in parts if piece.fits), parts[0])
        for piece in parts:
            across = [along.of(r) for r in piece.rows]
            label = line.label or ROWS
            ax.plot(
                across, [up.of(r) for r in piece.rows], color=PALETTE[i], marker=MARKERS[i],
                linestyle=":" if not piece.fits else "-" if cut else DASHES[i],
                markerfacecolor=PALETTE[i] if piece.fits else "white",
                zorder=2 if piece.fits else 1.9, markersize=4, linewidth=1.3,
                label=label if piece is first else f"_{label}",
                markevery=marked(across),
            )  # fmt: skip
    for way, shown in zip(WAYS, (along, up), strict=True):
        values = [shown.of(row) for row in rows]
        if way in log:
            whole = way == "x" and all(isinstance(row[x], int) for row in rows)
            (counted(ax, way, values) if whole else logarithmic(ax, way))
        elif way == "y" and not near:
            grounded(ax, heights)
        else:
            linear(ax, way)
    label_axes(ax, along.label, up.label)
    told = entries(ax)
    if cut:
        told.append(hollow_entry(linestyle=":"))
    legend(drawing, told)
    return drawing
