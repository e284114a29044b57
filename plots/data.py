"""The data of a figure, read back from its axes: what tests, words and drift checks compare."""

from __future__ import annotations

from typing import Any

from ..calc.plain import is_list


def data(drawing: Any) -> list[dict[str, Any]]:
    """List what each panel of a figure was given, in the units of its axes.

    Lines and points have x and y, bars their heights (widths where they lie), heat maps the values
    of their cells, row by row. What carries no data (legends, captions, guides without a label) is
    kept as well: a guide that moves is a change.
    """
    return [_panel(ax) for ax in drawing.axes if ax.get_visible()]


def _panel(ax: Any) -> dict[str, Any]:
    from matplotlib.collections import LineCollection, PathCollection, QuadMesh
    from matplotlib.container import BarContainer

    bars = [c for c in ax.containers if isinstance(c, BarContainer)]
    return {
        "title": ax.get_title(loc="left") or ax.get_title(),
        "x": ax.get_xlabel(),
        "y": ax.get_ylabel(),
        "lines": [
            {"label": _label(line), "x": _plain(line.get_xdata()), "y": _plain(line.get_ydata())}
            for line in ax.lines
        ],
        "points": [
            {"label": _label(c), "xy": _plain(c.get_offsets())}
            for c in ax.collections
            if isinstance(c, PathCollection)
        ],
        "segments": [
            [_plain(segment) for segment in c.get_segments()]
            for c in ax.collections
            if isinstance(c, LineCollection)
        ],
        "bars": [{"label": _label(bar), "heights": _sizes(bar)} for bar in bars],
        "cells": [_cells(c) for c in ax.collections if isinstance(c, QuadMesh)],
    }


def _label(artist: Any) -> str:
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _sizes(bar: Any) -> list[Any]:
    lying = bar.orientation == "horizontal"
    return [_number(p.get_width() if lying else p.get_height()) for p in bar.patches]


def _cells(mesh: Any) -> list[Any]:
    return _plain(mesh.get_array().ravel())


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
