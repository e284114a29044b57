"""Predicted against measured times, and errors by size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from .axes import linear, logarithmic
from .legends import entries, legend
from .series import Answer, Row, drawable
from .style import BLUE, GREEN, GREY, PURPLE, VERMILION, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = {
    "decode": (BLUE, "o"), "request": (VERMILION, "s"), "prefill": (GREEN, "^"),
    "served": (GREY, "D"), "op": (PURPLE, "v"),
}  # fmt: skip


def draw(answer: Answer) -> Figure:
    """Draw every judged row: its estimate and band against what was measured, and its error."""
    drawable(answer, "accuracy", "measured_s")
    judged = [row for row in answer["rows"] if row["error"] is not None]
    if not judged:
        what = "no row has an estimate beside a measurement, so that there is nothing to draw"
        raise RooflmError(what, "accuracy")
    drawing, (left, right) = figure(2, _caption(answer, judged))
    for kind, (colour, marker) in KINDS.items():
        rows = [row for row in judged if row["kind"] == kind]
        if not rows:
            continue
        measured = [1e3 * row["measured_s"] for row in rows]
        style: dict[str, Any] = {
            "color": colour, "marker": marker, "s": 11, "alpha": 0.6, "linewidths": 0,
        }  # fmt: skip
        banded = [row for row in rows if row.get("estimate_low_s") is not None]
        left.vlines(
            [1e3 * row["measured_s"] for row in banded],
            [1e3 * row["estimate_low_s"] for row in banded],
            [1e3 * row["estimate_high_s"] for row in banded],
            color=colour, linewidth=0.5, alpha=0.35,
        )  # fmt: skip
        left.scatter(measured, [1e3 * row["estimate_s"] for row in rows], label=kind, **style)
        right.scatter(measured, [100 * row["error"] for row in rows], **style)
    ends = [1e3 * f(row["measured_s"] for row in judged) for f in (min, max)]
    for share, line in ((1.0, "-"), (0.8, ":"), (1.2, ":")):
        left.plot(ends, [share * e for e in ends], line, color="black", linewidth=0.9)
    for level, line in ((0, "-"), (-20, ":"), (20, ":")):
        right.axhline(level, linestyle=line, color="black", linewidth=0.9)
    for ax in (left, right):
        logarithmic(ax, "x")
        ax.set_xlabel("measured [ms]")
    logarithmic(left, "y")
    linear(right, "y")
    left.set_ylabel("estimate [ms]")
    right.set_ylabel("error of the estimate [%]")
    legend(drawing, entries(left))
    return drawing


def _caption(answer: Answer, judged: list[Row]) -> str:
    total = answer["total"]
    coverage = total.get("coverage")
    inside = "" if coverage is None else (
        f" Thin lines: the band of each estimate; {100 * coverage:.0f} % of the measurements lie "
        "in theirs."
    )  # fmt: skip
    rows = [row for row in answer["rows"] if row.get("measured_s") is not None]
    of = f" of {len(rows):,}" if len(rows) > len(judged) else ""
    said = [_which(judged, "engine", "engine"), _which(judged, "hardware", "machine")]
    which = f" ({'; '.join(filter(None, said))})" if any(said) else ""
    without = "; the others have no estimate or are excluded" if of else ""
    return (
        f"{len(judged):,}{of} published measurements{which}, each estimated with constants "
        f"fitted without it{without}: "
        f"median error {100 * (total['error_median'] or 0):.1f} %, nine of ten below "
        f"{100 * (total['error_p90'] or 0):.0f} %. Black lines: equal, and 20 % to either side."
        f"{inside}"
    )


def _which(rows: list[Row], key: str, kind: str) -> str:
    """Name what is among the rows, so that a part is not taken for all that is published."""
    names = list(dict.fromkeys(str(row[key]) for row in rows if row.get(key)))
    if len(names) > 4:
        return f"{len(names)} {kind}s"
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""
