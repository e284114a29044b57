"""Distributions of what users of live traffic wait for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.plain import is_map
from .axes import digits, label_axes, linear, logarithmic
from .legends import annotate, entries, legend
from .series import Answer
from .style import BLACK, BLUE, VERMILION, figure
from .traffic import PROMISED, WAITS, captioned, overloaded, promises, unmeasured, wait_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTILES = {"p50": (50, "o"), "p90": (90, "s"), "p99": (99, "^")}
"""Quantiles that are marked: the share [%], and the marker."""

LEAST_SPAN = 1.02
"""Factor that an axis goes beyond waits that are all but alike: less would magnify rounding."""


def draw(answer: Answer) -> Figure:
    """Draw the share of requests, or of tokens, that waited no longer, a panel for each wait.

    The marks are those of the answer, means of all its runs; the curves are of the first run.
    Waits that the answer does not tell, because they have not settled, have no panel.
    """
    found = answer.get("distributions")
    if not is_map(found):
        what = "the answer has no distributions, so that there is nothing to draw"
        raise RooflmError(what, "latencies", "Leave --sweep out: they are those of one run.")
    keys = [key for key in WAITS if key in found and answer[key]["mean"] is not None]
    if not keys:
        raise RooflmError("no request waited, so that there is nothing to draw", "latencies")
    runs = answer.get("replications") or 1
    notes = [
        overloaded(answer),
        f"curves are of the first of {runs} runs, marks are means of all" if runs > 1 else "",
        *unmeasured(answer),
    ]
    width = 2.9 if len(keys) > 1 else 4.6
    drawing, axes = figure(len(keys), captioned(answer, *notes), width=width, height=3.3)
    for ax, key in zip(axes, keys, strict=True):
        _panel(ax, key, found[key], answer[key], promises(answer).get(key))
    legend(drawing, entries(*axes))
    for ax in axes:
        annotate(ax, [(line.get_xdata()[0], line.get_ydata()[0], digits(line.get_xdata()[0]))
                      for line in reversed(ax.lines) if line.get_label() in QUANTILES])  # fmt: skip
    return drawing


def _panel(
    ax: Any, key: str, curve: Mapping[str, Any], summed: Mapping[str, Any], limit: float | None
) -> None:
    """Draw one distribution with its quantiles, and what is promised."""
    marks = {name: summed[name] for name in QUANTILES}
    shown = wait_of(key, [*curve["time_s"], *marks.values()])
    times = [shown.scale * t for t in curve["time_s"]]
    # The curve starts where nothing is below it.
    ax.plot([times[0], *times], [0, *(100 * s for s in curve["share"])], color=BLUE, linewidth=1.4)
    for name, (share, marker) in QUANTILES.items():
        ax.plot(shown.scale * marks[name], share, marker, color=BLACK, markersize=5, label=name)
    if limit is not None:
        ax.axvline(shown.scale * limit, color=VERMILION, linewidth=1.2, linestyle="--",
                   label=PROMISED)  # fmt: skip
    values = [line.get_xdata()[i] for line in ax.lines for i in (0, -1)]
    if min(values) > 0:
        if max(values) < LEAST_SPAN * min(values):
            ax.set_xlim(min(values) / LEAST_SPAN, LEAST_SPAN * max(values))
        logarithmic(ax, "x")
    else:
        linear(ax, "x")
    # Above all lies the value of p99.
    ax.set_ylim(0, 110)
    ax.set_yticks(range(0, 101, 20))
    linear(ax, "y")
    what = "tokens" if key == "itl_s" else "requests"
    label_axes(ax, shown.label, f"{what} that waited no longer [%]")
