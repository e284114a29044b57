"""The frontier of a plan: time of a step against throughput of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..calc.errors import RooflmError
from .axes import label_axes, linear, logarithmic
from .legends import annotate, entries, legend
from .series import Answer, Row, duration
from .style import BLUE, GREY, VERMILION, WAYS, figure, subject

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw(answer: Answer) -> Figure:
    """Draw the frontier, each layout named where it begins, and the layouts that were asked for."""
    about = {**answer, "rows": [*answer["frontier"], *answer["rows"]]}
    caption = (
        f"{'; '.join(subject(about))}, decode at {answer['context_tokens']:,} tokens "
        f"of context, {answer['basis']}s; each point a layout at a batch that fits."
    )
    rows: list[Row] = answer["frontier"]
    if not rows and not answer["rows"]:
        raise RooflmError("no layout was found, so that there is nothing to draw", "plan")
    drawing, (ax,) = figure(1, caption)
    if rows:
        ax.plot(*_points(rows), color=BLUE, marker="o", markersize=4, linewidth=1.3,
                label="nothing beats these")  # fmt: skip
    if answer["rows"]:
        ax.plot(*_points(answer["rows"][:1]), "X", color=VERMILION, markersize=8,
                label="best of what is asked")  # fmt: skip
    if answer["latency_s"] is not None:
        label = f"latency asked for: {duration(answer['latency_s'])}"
        ax.axvline(1e3 * answer["latency_s"], linestyle="--", color=GREY, linewidth=1.2,
                   label=label)  # fmt: skip
    for way in WAYS:
        few = len(rows) + len(answer["rows"]) < 2
        (linear if few else logarithmic)(ax, way)
    label_axes(ax, "time of a step [ms]", "throughput of a device [tokens/s]")
    legend(drawing, entries(ax))
    annotate(ax, _named(rows))
    return drawing


def _named(rows: list[Row]) -> list[tuple[float, float, str]]:
    """Name the layouts, each at the first point of the frontier that it has."""
    found: list[tuple[float, float, str]] = []
    before = ""
    for row in rows:
        name = _name(row)
        if name != before:
            found.append((1e3 * row["time_s"], row["tokens_per_s_per_device"], name))
        before = name
    return found


def _points(rows: list[Row]) -> tuple[list[float], list[float]]:
    return [1e3 * r["time_s"] for r in rows], [r["tokens_per_s_per_device"] for r in rows]


def _name(row: Row) -> str:
    degrees = ("replicas", "tp", "pp", "dp", "ep", "cp")
    return " ".join(f"{axis}{row[axis]}" for axis in degrees if row[axis] > 1) or "one device"
