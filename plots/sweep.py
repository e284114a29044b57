"""Latency and throughput against batch, with the batch beyond which memory runs out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..calc.labels import Quantity, quantity
from .axes import counted, grounded, label_axes, logarithmic, points
from .legends import entries, hollow_entry, legend, line_handle
from .series import ROWS, Answer, Row, Series, drawable, duration, few, fits, left_out, series, wide
from .style import GREY, INK, MARKERS, PALETTE, SMALL, caption, figure, marked

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LAST, EXACT = "last batch drawn that fits", "largest batch that fits"


def draw(answer: Answer, latency_s: float | None = None) -> Figure:
    """Draw time and throughput of every row against its batch, a line for what else differs.

    What does not fit is dotted, with hollow points. A vertical line stands at the largest batch of
    a series that fits, where the answer tells it for each that stops fitting; else at the last one
    that is drawn and fits, beyond which one that is not drawn may fit as well. latency_s: the most
    that a step may take [s]; of each series the largest batch that fits and keeps it is ringed.
    """
    time = "e2e_s" if any(row.get("e2e_s") for row in answer.get("rows") or ()) else "time_s"
    rows = drawable(answer, "sweep", "batch", time, "tokens_per_s")
    lines = few(series(answer, rows, "batch"), "sweep")
    panels = [quantity(answer, key, rows) for key in (time, "tokens_per_s")]
    missed = latency_s is not None and not any(_within(s, time, latency_s) for s in lines)
    notes = [left_out(answer, rows, "without a time")]
    notes += [f"no batch that fits takes at most {duration(latency_s or 0)}"] if missed else []
    mixed = {"estimate", "bound"} <= {row.get("basis") for row in rows}
    heights = [[shown.of(row) for row in rows] for shown in panels]
    logs = [wide(values, 4) for values in heights]
    drawing, axes = figure(2, caption(answer, *notes))
    for ax, shown in zip(axes, panels, strict=True):
        for i, line in enumerate(lines):
            _line(ax, line, shown, PALETTE[i], MARKERS[i], mixed)
    at, wall = _capacities(answer, lines)
    walls = _walls(axes, lines, at, wall)
    if latency_s is not None:
        _latency(axes, lines, panels, latency_s)
    batches = {row["batch"] for row in rows}
    for ax, shown, values, log in zip(axes, panels, heights, logs, strict=True):
        counted(ax, "x", batches)
        if log:
            logarithmic(ax, "y")
        else:
            grounded(ax, values)
        _name(ax, walls)
        label_axes(ax, "batch [sequences]", shown.label)
    told = entries(axes[0], axes[1])
    if mixed:
        told.append((line_handle(linestyle="--"), "bound, where there is no estimate"))
    if any(not fits(row) for row in rows):
        told.append(hollow_entry(linestyle=":"))
    if walls:
        told.append((line_handle(linewidth=0.9, linestyle=(0, (8, 3))), wall))
    legend(drawing, told)
    return drawing


def _line(ax: Any, line: Series, shown: Quantity, colour: str, marker: str, mixed: bool) -> None:
    """Draw a series in pieces: what fits, what does not, and what is timed otherwise.

    mixed: the answer has estimates and bounds, which no line may join.
    """
    ordered = sorted(line.rows, key=lambda row: row["batch"])
    style: dict[str, Any] = {"color": colour, "marker": marker, "markersize": 4, "linewidth": 1.3}
    label = line.label or ROWS
    for basis in dict.fromkeys(row.get("basis") for row in ordered):
        own = [row for row in ordered if row.get("basis") == basis]
        fitting = [row for row in own if fits(row)]
        not_fitting = [row for row in own if not fits(row)]
        if fitting:
            dash = "--" if mixed and basis == "bound" else "-"
            across, up = _points(fitting, shown)
            ax.plot(across, up, dash, label=label, markevery=marked(across), **style)
        if not_fitting:
            # The dotted part starts where the solid one ends.
            beyond = [*fitting[-1:], *not_fitting]
            across, up = _points(beyond, shown)
            ax.plot(
                across, up, ":", markerfacecolor="white", zorder=1.9, markevery=marked(across),
                label=f"_{label}" if fitting else label, **style,
            )  # fmt: skip


def _points(rows: list[Row], shown: Quantity) -> tuple[list[float], list[float]]:
    return [row["batch"] for row in rows], [shown.of(row) for row in rows]


def _capacities(answer: Answer, lines: Sequence[Series]) -> tuple[dict[int, int], str]:
    """Find the wall of each series that stops fitting, by its place, and what all walls are.

    They are of one sort, so that one name in the legend says what they are.
    """
    last: dict[int, int] = {}
    exact: dict[int, int] = {}
    for i, line in enumerate(lines):
        fitting = [row["batch"] for row in line.rows if fits(row)]
        beyond = [row["batch"] for row in line.rows if not fits(row)]
        if not fitting or not beyond:
            continue
        last[i] = max(fitting)
        told = _told(answer, line)
        # A service's bound on sequences has the same key, but is no capacity of its memory.
        if told is not None and last[i] <= told < min(beyond):
            exact[i] = told
    return (exact, EXACT) if len(exact) == len(last) else (last, LAST)


def _told(answer: Answer, line: Series) -> int | None:
    """Take what an answer says of the largest batch of a series; None where it says nothing.

    Rows of a study that measures it have it themselves; a sweep tells it of each context.
    """
    found = {row.get("max_sequences") for row in line.rows}
    if found == {None}:
        each = {of["context_tokens"]: of["max_sequences"] for of in answer.get("largest") or ()}
        found = {each.get(row.get("context_tokens")) for row in line.rows}
    return found.pop() if len(found) == 1 else None


def _walls(
    axes: list[Any], lines: Sequence[Series], at: Mapping[int, int], wall: str
) -> dict[int, str]:
    """Draw a vertical line at the wall of each series that has one.

    at: the batch of each, by the place of its series; wall: what it is. Returns the batches with
    the colours of their names.
    """
    walls: dict[int, list[int]] = {}
    for i, batch in at.items():
        walls.setdefault(batch, []).append(i)
    for ax in axes:
        for batch, own in walls.items():
            for n, i in enumerate(own):
                # Dashes of series that stop at one batch take turns, so that each is seen.
                dash = (-11 * n, (8, 11 * len(own) - 8))
                name = f" ({lines[i].label})" if lines[i].label else ""
                ax.vlines(
                    batch, 0, 1, transform=ax.get_xaxis_transform(), color=PALETTE[i],
                    linewidth=0.9, linestyle=dash, zorder=1, label=f"_{wall}{name}",
                )  # fmt: skip
    # A name that several share is of none of them.
    return {batch: PALETTE[own[0]] if len(own) == 1 else INK for batch, own in walls.items()}


def _name(ax: Any, walls: dict[int, str]) -> None:
    """Write the batches of the walls above them, where there is room."""
    free, inches = -1.0, ax.get_position().width * ax.figure.get_figwidth()
    to_axes = ax.transData + ax.transAxes.inverted()
    for batch in sorted(walls):
        at, _ = to_axes.transform((batch, ax.get_ylim()[0]))
        half = (points(f"{batch:,}") / 2 + 2) / (72 * inches)
        if at - half >= free:
            ax.text(
                batch, 1.01, f"{batch:,}", transform=ax.get_xaxis_transform(), ha="center",
                va="bottom", fontsize=SMALL, color=walls[batch],
            )  # fmt: skip
            free = at + half


def _within(line: Series, time: str, latency_s: float) -> Row | None:
    """Find the row of the largest batch that fits and takes no longer."""
    kept = [row for row in line.rows if fits(row) and row[time] <= latency_s]
    return max(kept, key=lambda row: row["batch"], default=None)


def _latency(
    axes: list[Any], lines: Sequence[Series], panels: list[Quantity], latency_s: float
) -> None:
    """Draw the latency that is asked for, and ring the largest batch within it of each series."""
    time, rate = panels
    axes[0].axhline(
        time.scale * latency_s, color=GREY, linewidth=1.2, linestyle="--",
        label=f"latency asked for: {duration(latency_s)}",
    )  # fmt: skip
    found = [_within(line, time.key, latency_s) for line in lines]
    best = [row for row in found if row is not None]
    for ax, shown in zip(axes, (time, rate), strict=True):
        if best:
            ax.plot(
                *_points(best, shown), linestyle="none", marker="o", markersize=10,
                markerfacecolor="none", color="black", label="largest batch within it",
            )  # fmt: skip
