"""What users wait for against throughput, a point for each rate, or for each number of clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.labels import Quantity
from ..calc.plain import is_map
from .axes import brief, grounded, label_axes, linear, logarithmic
from .legends import annotate, entries, legend, line_handle
from .series import Answer, Row, drawable, few, rows_of, series, wide
from .style import BLACK, BLUE, GREY, MARKERS, PALETTE, VERMILION, figure
from .traffic import PROMISED, captioned, promises, wait_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KIND = "throughput-latency"
RATE, RATES, TOKENS = "rate_requests_per_s", "throughput_requests_per_s", "throughput_tokens_per_s"
MOST = "capacity_requests_per_s"
CLIENTS = "clients"
PANELS = ("ttft_s", "itl_s")
FIGURES = ("mean", "p99")


def column(key: str, name: str) -> str:
    """Name the column of a figure of a wait: ttft_p99_s."""
    return f"{key.removesuffix('_s')}_{name}_s"


def draw(answer: Answer) -> Figure:
    """Draw mean and p99 of the first and of further tokens, each point labelled by what came.

    Rates beyond the capacity have no settled waits: the capacity is a line instead. What lies
    shortly below it is ringed.
    """
    rows = [_flat(row) for row in _given(answer)]
    settled = [row for row in rows if row.get("load") != "unstable"]
    if rows and not settled:
        what = (
            f"all rates are above the {brief(rows[0][MOST])} requests/s that can be served, so "
            "that there is nothing to draw"
        )
        raise RooflmError(what, KIND, "Take smaller ones.")
    keys = [column(key, name) for key in PANELS for name in FIGURES]
    drawn = drawable({**answer, "rows": settled}, KIND, TOKENS, *keys)
    came = RATE if any(row.get(RATE) is not None for row in drawn) else CLIENTS
    lines = few(series(answer, drawn, came), KIND)
    walls = [_wall(line.rows) for line in lines]
    across = [row[TOKENS] for row in drawn] + [at for at, _ in filter(None, walls)]
    drawing, axes = figure(2, _caption(answer, rows, drawn, came), width=4.4, height=3.5)
    logs = wide(across)
    notes: list[list[tuple[float, float, str]]] = []
    for ax, key in zip(axes, PANELS, strict=True):
        limit = promises(answer).get(key)
        waits = [row[column(key, name)] for row in drawn for name in FIGURES]
        shown = wait_of(key, waits)
        for i, line in enumerate(lines):
            _line(ax, line.rows, shown, line.label, i)
        _near(ax, drawn, shown)
        _capacities(ax, walls, [line.label for line in lines])
        if limit is not None:
            ax.axhline(shown.scale * limit, color=GREY, linewidth=1.2, linestyle=":",
                       label=PROMISED)  # fmt: skip
        heights = [shown.scale * wait for wait in [*waits, *([] if limit is None else [limit])]]
        (logarithmic if logs else linear)(ax, "x")
        if wide(heights, 4):
            logarithmic(ax, "y")
        else:
            grounded(ax, heights)
        label_axes(ax, "throughput [tokens/s]", shown.label)
        notes.append(_named(drawn, shown, came))
    # What the figure is about comes first.
    told = sorted(entries(*axes), key=lambda entry: not isinstance(entry[0], tuple))
    if len(lines) > 1:
        told += [(line_handle(linestyle="-"), "mean"), (line_handle(linestyle="--"), "p99")]
    legend(drawing, told)
    for ax, own in zip(axes, notes, strict=True):
        annotate(ax, own)
    return drawing


def _given(answer: Answer) -> list[Row]:
    """Take the rows of an answer; say how to get some."""
    if "rows" not in answer:
        what = "the answer has no rows, so that there is nothing to draw"
        raise RooflmError(what, KIND, "Say --sweep rate=1:32:x2.")
    return rows_of(answer, KIND)


def _flat(row: Row) -> dict[str, Any]:
    """Give the figures of a wait columns of their own, as those of a study have them."""
    flat = dict(row)
    halves = row.get("intervals")
    for key in PANELS:
        inner = row.get(key)
        if is_map(inner):
            flat |= {column(key, name): inner[name] for name in FIGURES}
            known = halves if is_map(halves) else {}
            flat |= {_half(key, name): known.get(f"{key}.{name}") for name in FIGURES}
    return flat


def _half(key: str, name: str) -> str:
    """Name the column of half of an interval; without a name that of the mean."""
    return column(key, "half_width" if name == "mean" else f"{name}_half_width")


def _line(ax: Any, rows: Sequence[Row], shown: Quantity, label: str, place: int) -> None:
    """Draw the mean and p99 of a series, with their intervals where they are known."""
    ordered = sorted(rows, key=lambda row: row[TOKENS])
    across = [row[TOKENS] for row in ordered]
    alone = not label
    for name, dash, colour, marker in (
        ("mean", "-", BLUE, "o"), ("p99", "--", VERMILION, "s")
    ):  # fmt: skip
        up = [shown.scale * row[column(shown.key, name)] for row in ordered]
        ax.errorbar(
            across, up, yerr=_spread(ordered, shown, name), linestyle=dash,
            color=colour if alone else PALETTE[place], marker=marker if alone else MARKERS[place],
            markersize=4, linewidth=1.3, elinewidth=0.9, capsize=2,
            zorder=2 if name == "mean" else 1.9,
            label=name if alone else label if name == "mean" else f"_{label}, p99",
        )  # fmt: skip


def _spread(rows: Sequence[Row], shown: Quantity, name: str) -> list[list[float]] | None:
    """Take the halves of intervals; None where a row has none."""
    halves = [row.get(_half(shown.key, name)) for row in rows]
    known = [half for half in halves if half is not None]
    if len(known) < len(rows):
        return None
    # An interval that reaches below 0 has no place on a logarithmic axis.
    waits = [row[column(shown.key, name)] for row in rows]
    below = [min(half, 0.95 * wait) for half, wait in zip(known, waits, strict=True)]
    return [[shown.scale * v for v in below], [shown.scale * v for v in known]]


def _near(ax: Any, rows: Sequence[Row], shown: Quantity) -> None:
    """Ring what has not settled."""
    near = [row for row in rows if row.get("load") == "near saturation"]
    if near:
        points = [(row[TOKENS], shown.scale * row[column(shown.key, n)])
                  for row in near for n in FIGURES]  # fmt: skip
        ax.plot(
            *zip(*points, strict=True), linestyle="none", marker="o", markersize=10,
            markerfacecolor="none", color=BLACK, label="near saturation, not settled",
        )  # fmt: skip


def _wall(rows: Sequence[Row]) -> tuple[float, float] | None:
    """Tell the capacity of a series in tokens and in requests a second; None where it has none."""
    known = [row for row in rows if row.get(MOST) and row.get(RATES)]
    if not known:
        return None
    # Requests have so many tokens on average, which the row of the most rate tells best.
    best: Mapping[str, Any] = max(known, key=lambda row: row[RATES])
    return best[MOST] * best[TOKENS] / best[RATES], best[MOST]


def _capacities(
    ax: Any, walls: Sequence[tuple[float, float] | None], labels: Sequence[str]
) -> None:
    """Draw the capacity of every series."""
    for i, (wall, label) in enumerate(zip(walls, labels, strict=True)):
        if wall is not None:
            told = f"capacity: {brief(wall[1])} requests/s"
            ax.axvline(
                wall[0], color=PALETTE[i] if label else GREY, linewidth=1.2, linestyle=(0, (8, 3)),
                label=f"{label}, {told}" if label else told,
            )  # fmt: skip


def _named(rows: Sequence[Row], shown: Quantity, came: str) -> list[tuple[float, float, str]]:
    """Name what came beside the means, the most first, which matters most where room is short."""
    known = [row for row in rows if row.get(came) is not None]
    known.sort(key=lambda row: -row[came])
    unit = "/s" if came == RATE else ""
    return [
        (row[TOKENS], shown.scale * row[column(shown.key, "mean")], f"{brief(row[came])}{unit}")
        for row in known
    ]


def _caption(answer: Answer, rows: Sequence[Row], drawn: Sequence[Row], came: str) -> str:
    """Say what came, and what is not drawn."""
    what = "requests that come in a second" if came == RATE else "clients"
    said = [f"beside the points: {what}"]
    runs = {row.get("replications") or 1 for row in drawn}
    if any(row.get(_half("ttft_s", "mean")) is not None for row in drawn):
        said.append(f"bars are 95 % intervals of {max(runs)} runs")
    beyond = dict.fromkeys(brief(row[RATE]) for row in rows if row.get("load") == "unstable")
    if beyond:
        said.append(f"{' and '.join(beyond)} requests/s: the queue grows without end, no point")
    cut = [brief(row[came]) for row in rows if row.get("complete") is False]
    if cut:
        said.append(f"interrupted at {cut[0]} {'requests/s' if came == RATE else 'clients'}")
    return captioned(answer, *said, rates=len(rows))
