"""The data of a figure, read back from its axes: what tests, words and drift checks compare."""

from __future__ import annotations

import re
from typing import Any

from ..calc.plain import is_list


def data(drawing: Any) -> list[dict[str, Any]]:
    """List what each panel of a figure was given, in the units of its axes.

    Lines and points have x and y; a line across a panel has one of the two. Bars have the names of
    their places and their values: where they end, or their size where they are parts of a stack.
    Cells have the values of both axes and their own, row by row. Hollow is what does not fit. What
    carries no data (legends, captions, guides without a label) is kept as well: a guide that moves
    is a change. Bars of colours are no panels.
    """
    return [_panel(ax) for ax in panels(drawing)]


def panels(drawing: Any) -> list[Any]:
    """List the axes that hold data."""
    return [ax for ax in drawing.axes if ax.get_visible() and ax.get_label() != "<colorbar>"]


def x_label(ax: Any) -> str:
    """Tell what goes across; of panels one above the other only the lowest has it written."""
    own = [ax, *ax.get_shared_x_axes().get_siblings(ax)]
    return next(filter(None, (str(one.get_xlabel()) for one in own)), "")


def _panel(ax: Any) -> dict[str, Any]:
    from matplotlib.collections import LineCollection, PathCollection, QuadMesh
    from matplotlib.container import ErrorbarContainer

    # Of a line with bars of errors the container has the name.
    named = {id(c.lines[0]): label_of(c) for c in ax.containers if isinstance(c, ErrorbarContainer)}
    segments = [c for c in ax.collections if isinstance(c, LineCollection)]
    walls = [c for c in segments if c.get_transform() == ax.get_xaxis_transform()]
    return {
        "title": ax.get_title(loc="left") or ax.get_title(),
        "x": x_label(ax),
        "y": ax.get_ylabel(),
        "lines": [
            *(_line(ax, line, named.get(id(line), label_of(line))) for line in ax.lines),
            *({"label": label_of(c), "x": _plain(s)[0][0]} for c in walls
              for s in c.get_segments()),
        ],
        "points": [
            {
                "label": label_of(c),
                "hollow": _white(c.get_facecolor()),
                "xy": _plain(c.get_offsets()),
            }
            for c in ax.collections
            if isinstance(c, PathCollection)
        ],
        "segments": [
            [_plain(segment) for segment in c.get_segments()]
            for c in segments
            if not any(c is wall for wall in walls)
        ],
        "bars": bars_of(ax),
        "cells": [cells_of(c) for c in ax.collections if isinstance(c, QuadMesh)],
    }  # fmt: skip


def _line(ax: Any, line: Any, label: str) -> dict[str, Any]:
    """Tell a line by its points; one across the panel by its only value."""
    x, y = _plain(line.get_xdata()), _plain(line.get_ydata())
    if line.get_transform() == ax.get_yaxis_transform(which="grid"):
        return {"label": label, "y": y[0]}
    if line.get_transform() == ax.get_xaxis_transform(which="grid"):
        return {"label": label, "x": x[0]}
    hollow = line.get_marker() not in (None, "None", "none", "", " ") and _white(
        line.get_markerfacecolor()
    )
    return {"label": label, "hollow": hollow, "x": x, "y": y}


def _white(colour: Any) -> bool:
    """Tell whether points are filled with white; rings are filled with nothing."""
    from matplotlib.colors import to_hex

    one = colour[0] if getattr(colour, "ndim", 1) == 2 and len(colour) else colour
    return len(one) > 0 and to_hex(one, keep_alpha=True) == "#ffffffff"


def label_of(artist: Any) -> str:
    """Name what is drawn: as in the legend, or as it would be called there."""
    label = str(artist.get_label())
    unnamed = re.fullmatch(r"_(child|container|nolegend|silent)\w*", label)
    return "" if unnamed else label.lstrip("_")


def bars_of(ax: Any) -> list[dict[str, Any]]:
    """Tell the bars of axes: their label, the names of their places and their values."""
    from matplotlib.container import BarContainer

    groups = [c for c in ax.containers if isinstance(c, BarContainer)]
    if not groups:
        return []
    names = {way: _names(ax, way) for way in ("x", "y")}
    ends: dict[float, list[tuple[int, float]]] = {}
    for group in groups:
        for bar in group.patches:
            place, start, size = _bar(group, bar)
            ends.setdefault(place, []).append((id(bar), start + size))
    told: list[dict[str, Any]] = []
    for group in groups:
        own = names["y" if _lying(group) else "x"]
        values: list[float] = []
        places: list[str] = []
        for bar in group.patches:
            place, start, size = _bar(group, bar)
            stacked = any(i != id(bar) and abs(end - start) < 1e-9 * max(1, abs(end))
                          for i, end in ends[place])  # fmt: skip
            values.append(size if stacked else start + size)
            nearest = min(own, key=lambda at: abs(at - place), default=None)
            places.append("" if nearest is None else own[nearest])
        told.append({"label": label_of(group), "names": places, "values": _number(values)})
    return told


def _lying(group: Any) -> bool:
    return group.orientation == "horizontal"


def _bar(group: Any, bar: Any) -> tuple[float, float, float]:
    """Take the place, the start and the size of a bar."""
    if _lying(group):
        return round(bar.get_y() + bar.get_height() / 2, 6), bar.get_x(), float(bar.get_width())
    return round(bar.get_x() + bar.get_width() / 2, 6), bar.get_y(), float(bar.get_height())


def _names(ax: Any, way: str) -> dict[float, str]:
    ticks = getattr(ax, f"get_{way}ticks")()
    labels = getattr(ax, f"get_{way}ticklabels")()
    return {float(at): t.get_text() for at, t in zip(ticks, labels, strict=True)}


def cells_of(mesh: Any) -> dict[str, Any]:
    """Tell a heat map: what its cells show, both axes, and the values or the words, row by row.

    Figures leave beside the mesh what the axes cannot hold: ticks have no room for every value.
    """
    empty: tuple[list[Any], list[Any]] = ([], [])
    across, up = getattr(mesh, "held_places", empty)
    names: list[str] | None = getattr(mesh, "held_words", None)
    values = _plain(mesh.get_array().ravel())
    if names is not None:
        values = [None if v is None else names[int(v)] for v in values]
    label = getattr(mesh, "held_label", "")
    return {"label": label, "x": across, "y": up, "values": values}


def _plain(values: Any) -> list[Any]:
    """Turn what an axis was given into plain lists; what is masked is not drawn."""
    import numpy as np

    found: Any = np.ma.asarray(values)
    if found.dtype.kind in "iufb":
        found = np.ma.filled(found.astype(float), np.nan)
    return _number(found.tolist())


def _number(value: Any) -> Any:
    """Leave nan out, which JSON does not know."""
    if is_list(value):
        return [_number(v) for v in value]
    return None if value != value else value
