"""A figure in words: what those have who do not see it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..calc.plain import is_number
from .axes import lowered
from .data import data, label_of, panels


def words(drawing: Any, says: str) -> str:
    """Tell what a figure shows: lines by their ends, bars by name, cells by their extremes.

    says: what its kind shows. Lines without a label guide the eye and are left out.
    """
    parts = [says]
    for ax, panel in zip(panels(drawing), data(drawing), strict=True):
        x, y = (lowered(panel[way]).replace("\n", " ") for way in ("x", "y"))
        title = f"{panel['title']}: " if panel["title"] else ""
        along, up = x or "across", y or "up"
        parts += [title + _line(line, along, up) for line in _alone(panel["lines"])]
        parts += [title + _points(group, along, up) for group in panel["points"]
                  if group["label"] and group["xy"]]  # fmt: skip
        parts += [title + _bars(bars, x, y) for bars in panel["bars"] if bars["label"]]
        unnamed = [bars for bars in panel["bars"] if not bars["label"]]
        parts += [title + _bars(bars | {"label": x or y}, x, y) for bars in unnamed]
        parts += _limits(ax)
        parts += [_cells(cells, x, y) for cells in panel["cells"]]
    # Panels may share lines, and operators of a part their point.
    return " ".join(dict.fromkeys(parts))


def _alone(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take the lines with a name; what does not fit without the neighbours that it is joined to."""
    fitting = {
        (line["label"], *point) for line in lines if "hollow" in line and not line["hollow"]
        for point in zip(line["x"], line["y"], strict=True)
    }  # fmt: skip
    found: list[dict[str, Any]] = []
    for line in lines:
        if line.get("hollow"):
            own = [point for point in zip(line["x"], line["y"], strict=True)
                   if (line["label"], *point) not in fitting]  # fmt: skip
            line = line | {"x": [x for x, _ in own], "y": [y for _, y in own]}
        if line["label"]:
            found.append(line)
    return found


def spoken(value: Any) -> str:
    """Write a number in four digits, all of them where it is whole: 1,234,567; 0.0251."""
    if value is None:
        return "nothing"
    if not is_number(value):
        return str(value)
    size = abs(value)
    if size >= 1e15:
        return f"{value:.3e}"
    if size == 0 or size >= 1000:
        return f"{value:,.0f}"
    text = f"{value:.{max(0, 3 - math.floor(math.log10(size)))}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _line(line: dict[str, Any], x: str, y: str) -> str:
    if "y" not in line or "x" not in line:
        return f"{line['label']} at {spoken(line.get('x', line.get('y')))}."
    name = f"{line['label']}, what does not fit" if line["hollow"] else line["label"]
    known = [(a, b) for a, b in zip(line["x"], line["y"], strict=True) if b is not None]
    if not known:
        return f"{name}: nothing."
    (first, low), (last, high) = known[0], known[-1]
    said = f"{name}: {y} {spoken(low)} at {x} {spoken(first)}"
    return said + ("." if len(known) == 1 else f", {spoken(high)} at {spoken(last)}.")


def _points(group: dict[str, Any], x: str, y: str) -> str:
    name = f"{group['label']}, what does not fit" if group["hollow"] else group["label"]
    if len(group["xy"]) == 1:
        ((across, up),) = group["xy"]
        return f"{name}: {y} {spoken(up)} at {x} {spoken(across)}."
    reach = [
        f"{label} {spoken(min(values))} to {spoken(max(values))}"
        for label, values in zip((x, y), zip(*group["xy"], strict=True), strict=True)
    ]
    return f"{name}: {len(group['xy']):,} points, {', '.join(reach)}."


def _bars(bars: dict[str, Any], x: str, y: str) -> str:
    each = [
        f"{lowered(name)}: {spoken(value)}" if name else spoken(value)
        for name, value in zip(bars["names"], bars["values"], strict=True)
    ]
    return f"{bars['label'] or x or y}: {'; '.join(each)}."


def _limits(ax: Any) -> list[str]:
    """Tell the limits that stand across bars by their label; those of single rows by their values.

    Bands of points have no label.
    """
    from matplotlib.collections import LineCollection

    said: list[str] = []
    for group in ax.collections:
        label = label_of(group)
        across = group.get_transform() == ax.get_xaxis_transform()
        if not isinstance(group, LineCollection) or not label or across:
            continue
        places = sorted({float(segment[0][0]) for segment in group.get_segments()})
        values = "" if len(places) == 1 else ": " + ", ".join(map(spoken, places))
        said.append(f"{label}{values}.")
    return said


def _cells(cells: dict[str, Any], x: str, y: str) -> str:
    """Tell the smallest and the largest cell with their places, or how many cells a word has."""
    rows = len(cells["y"]) or 1
    width = len(cells["values"]) // rows
    known = [(v, i) for i, v in enumerate(cells["values"]) if v is not None]
    label = cells["label"]
    if any(isinstance(value, str) for value, _ in known):
        counts = Counter(str(value) for value, _ in known)
        each = [f"{name} in {n:,} cell{'' if n == 1 else 's'}" for name, n in counts.items()]
        return f"{label}: {', '.join(each)}."

    def place(i: int) -> str:
        return f"{x} {_at(cells['x'], i % width)}, {y} {_at(cells['y'], i // width)}"

    (least, i), (most, j) = min(known), max(known)
    if least == most:
        return f"{label}: {spoken(least)} in every cell."
    return f"{label}: smallest {spoken(least)} at {place(i)}; largest {spoken(most)} at {place(j)}."


def _at(values: Sequence[Any], i: int) -> str:
    return spoken(values[i]) if i < len(values) else str(i)
