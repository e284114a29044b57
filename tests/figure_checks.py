"""Whether a figure can be read: at half its size no text is cut, covered or too small."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

LEAST_POINTS = 7.5
"""Size of the smallest text; half of it is what a figure at half size shows."""
SLACK = 1.0
"""Pixels by which boxes may touch: they are rounded up."""


def check(drawing: Any, dpi: float = 75) -> None:
    """Render a figure and raise `AssertionError` for what cannot be read.

    Every text lies inside the canvas, none covers another, none is too small; a legend covers no
    point. The figure is left at that resolution.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawing.set_dpi(dpi)
    canvas = FigureCanvasAgg(drawing)
    canvas.draw()
    width, height = canvas.get_width_height()
    texts = [(text, text.get_window_extent()) for text in visible_texts(drawing)]
    for text, box in texts:
        said = text.get_text()
        inside = (
            box.x0 >= -SLACK and box.y0 >= -SLACK
            and box.x1 <= width + SLACK and box.y1 <= height + SLACK
        )  # fmt: skip
        assert inside, f"'{said}' leaves the canvas of {width} x {height}: {box.extents}"
        assert text.get_fontsize() >= LEAST_POINTS, f"'{said}' has {text.get_fontsize()} points"
    for (one, a), (other, b) in itertools.combinations(texts, 2):
        apart = (
            a.x1 <= b.x0 + SLACK or b.x1 <= a.x0 + SLACK
            or a.y1 <= b.y0 + SLACK or b.y1 <= a.y0 + SLACK
        )  # fmt: skip
        assert apart, f"'{one.get_text()}' and '{other.get_text()}' overlap"
    for legend in _legends(drawing):
        box = legend.get_window_extent()
        for ax in drawing.axes:
            for x, y in drawn_points(ax):
                covered = box.x0 < x < box.x1 and box.y0 < y < box.y1
                assert not covered, f"the legend covers a point at {x:.0f}, {y:.0f} pixels"


def visible_texts(drawing: Any) -> Iterator[Any]:
    """List the texts that are drawn: those of ticks only where the tick is in view."""
    from matplotlib.text import Text

    hidden: set[int] = set()
    for ax in drawing.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            room = 1e-9 * (high - low)
            for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks()):
                if not low - room <= tick.get_loc() <= high + room:
                    hidden |= {id(tick.label1), id(tick.label2)}
    for text in drawing.findobj(Text):
        if text.get_visible() and text.get_text().strip() and id(text) not in hidden:
            yield text


def drawn_points(ax: Any) -> Iterator[tuple[float, float]]:
    """List the points of lines and scatters in view, and the corners of bars, in pixels."""
    from matplotlib.collections import PathCollection

    frame = ax.get_window_extent()
    places: list[Any] = []
    for line in ax.lines:
        places += list(line.get_transform().transform(line.get_xydata()))
    for group in ax.collections:
        if isinstance(group, PathCollection):
            places += list(group.get_offset_transform().transform(group.get_offsets()))
    for bar in ax.patches:
        box = bar.get_window_extent()
        places += [(box.x0, box.y0), (box.x1, box.y1)]
    for x, y in places:
        if frame.x0 <= x <= frame.x1 and frame.y0 <= y <= frame.y1:
            yield x, y


def _legends(drawing: Any) -> Iterator[Any]:
    yield from drawing.legends
    for ax in drawing.axes:
        if ax.get_legend() is not None:
            yield ax.get_legend()
