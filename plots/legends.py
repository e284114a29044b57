"""Legends and notes of figures, placed where they cover nothing."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from .axes import points
from .style import GREY, INK, LINE, SMALL


def legend(drawing: Any, entries: Iterable[tuple[Any, str]]) -> None:
    """Put a legend above the axes, where it covers nothing; entries of the same name are one."""
    named = _distinct(entries)
    if not named:
        return
    columns = _columns(list(named), 72 * drawing.get_figwidth())
    rows = math.ceil(len(named) / columns)
    drawing.set_figheight(drawing.get_figheight() + 1.1 * LINE * rows)
    drawing.legend(
        list(named.values()), list(named), loc="outside upper left", ncols=columns, **LEGEND
    )


def legend_of(ax: Any, entries: Iterable[tuple[Any, str]]) -> None:
    """Put a legend above one of several axes."""
    named = _distinct(entries)
    if not named:
        return
    columns = _columns(list(named), 72 * ax.get_position().width * ax.figure.get_figwidth())
    ax.legend(
        list(named.values()), list(named), loc="lower left", bbox_to_anchor=(0, 1.01),
        ncols=columns, **LEGEND,
    )  # fmt: skip


LEGEND: dict[str, Any] = {
    "frameon": False, "fontsize": SMALL, "title_fontsize": SMALL, "alignment": "left",
    "columnspacing": 1.4, "handletextpad": 0.6, "handlelength": 2.2, "borderaxespad": 0.2,
}  # fmt: skip


def hollow_entry(linestyle: str) -> tuple[Any, str]:
    """Make the entry of a legend for what does not fit: hollow, with the line that joins it."""
    return line_handle(linestyle=linestyle, marker="o", markerfacecolor="white"), "does not fit"


def _distinct(entries: Iterable[tuple[Any, str]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for handle, label in entries:
        if not label.startswith("_"):
            found.setdefault(label, handle)
    return found


def _columns(labels: list[str], room: float) -> int:
    """Find the most columns for which a legend has room; it fills one after the other [pt]."""
    wide = [points(label) + 4.6 * SMALL for label in labels]
    for columns in range(len(labels), 1, -1):
        each, longer = divmod(len(labels), columns)
        cuts = [i * each + min(i, longer) for i in range(columns + 1)]
        if sum(max(wide[a:b]) for a, b in itertools.pairwise(cuts)) < room:
            return columns
    return 1


def entries(*axes: Any) -> list[tuple[Any, str]]:
    """List the handles and the labels of axes, for a legend."""
    found: list[tuple[Any, str]] = []
    for ax in axes:
        handles, labels = ax.get_legend_handles_labels()
        found += zip(handles, labels, strict=True)
    return found


def line_handle(**how: Any) -> Any:
    """Make a line that stands in a legend for what several artists have in common."""
    from matplotlib.lines import Line2D

    usual: dict[str, Any] = {"color": GREY, "linewidth": 1.3, "markersize": 5}
    return Line2D([], [], **(usual | how))


OFFSETS = (
    (4, 3, "left", "bottom"), (4, -3, "left", "top"), (-4, 3, "right", "bottom"),
    (-4, -3, "right", "top"), (0, 5, "center", "bottom"), (0, -5, "center", "top"),
    (6, 0, "left", "center"), (-6, 0, "right", "center"),
)  # fmt: skip
"""Places of a text beside its point, the preferred first: x, y [pt] and what is aligned."""


def annotate(ax: Any, notes: Sequence[tuple[float, float, str]]) -> None:
    """Write texts beside their points, each where it covers neither text nor data, or not at all.

    To be called last: it looks where everything lies.
    """
    ax.figure.draw_without_rendering()
    frame = ax.get_window_extent()
    taken = _covered(ax)
    for x, y, text in notes:
        for dx, dy, across, up in OFFSETS:
            note = ax.annotate(
                text, (x, y), xytext=(dx, dy), textcoords="offset points", ha=across, va=up,
                fontsize=SMALL, color=INK,
            )  # fmt: skip
            note.set_in_layout(False)
            box = note.get_window_extent().padded(1)
            inside = (
                frame.x0 <= box.x0 and box.x1 <= frame.x1 + 8
                and frame.y0 <= box.y0 and box.y1 <= frame.y1
            )  # fmt: skip
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            note.remove()


def _covered(ax: Any) -> list[Any]:
    """List boxes of pixels that are covered by points, lines and texts of axes."""
    import numpy as np
    from matplotlib.collections import LineCollection, PathCollection
    from matplotlib.transforms import Bbox

    boxes = [text.get_window_extent() for text in ax.texts if text.get_text()]
    places: list[Any] = []
    paths: list[Any] = []
    for line in ax.lines:
        path = line.get_transform().transform(line.get_path().vertices)
        places += list(path)
        # Points without a line cover nothing between them.
        paths += [path] if line.get_linestyle() != "None" else []
    for group in ax.collections:
        if isinstance(group, LineCollection):
            paths += [group.get_transform().transform(s) for s in group.get_segments()]
    for path in paths:
        for a, b in itertools.pairwise(path):
            steps = min(400, int(math.dist(a, b) // 5) + 1) if np.all(np.isfinite((a, b))) else 1
            places += [a + (b - a) * i / steps for i in range(steps + 1)]
    for group in ax.collections:
        if isinstance(group, PathCollection):
            places += list(group.get_offset_transform().transform(group.get_offsets()))
    boxes += [Bbox.from_bounds(x - 2, y - 2, 4, 4) for x, y in places]
    return boxes
