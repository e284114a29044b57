"""A run of live traffic over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.labels import quantity
from .axes import brief, grounded, label_axes, linear
from .legends import entries, legend_of
from .series import Answer, duration
from .style import BLUE, GREEN, GREY, MARKERS, VERMILION, figure
from .traffic import captioned, overloaded, unmeasured

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKED = slice(4, None, 8)
"""Points that have a marker, which tell lines apart without colours."""


def draw(answer: Answer) -> Figure:
    """Draw what decodes and what waits, and below it the share of the cache pool in use.

    The lines are means of intervals, so that the peak of the pool is a line of its own.
    """
    if "over_time" not in answer:
        what = "the answer has no course over time, so that there is nothing to draw"
        raise RooflmError(what, "timeline", "Leave --sweep out: it is that of one run.")
    course = answer["over_time"]
    times: list[float] = course["time_s"]
    # The middles of the first and the last interval lie half of one from the ends.
    end = times[0] + times[-1]
    shown = quantity(answer, "duration_s", [{"duration_s": end}])
    across = [shown.scale * t for t in times]
    notes = [f"means of intervals of {duration(end / len(times))}", overloaded(answer)]
    text = captioned(answer, *notes, *unmeasured(answer))
    drawing, (above, below) = figure(1, text, width=5.6, height=2.1, rows=2)
    running, waiting = course["running_sequences"], course["waiting_requests"]
    style: dict[str, Any] = {"linewidth": 1.1, "markersize": 3.5, "markevery": MARKED}
    above.plot(across, running, "-", color=BLUE, marker=MARKERS[0], label="requests that decode",
               **style)  # fmt: skip
    above.plot(across, waiting, "--", color=VERMILION, marker=MARKERS[1],
               label="requests that wait", **style)  # fmt: skip
    shares = [100 * share for share in course["pool_share"]]
    below.plot(across, shares, "-", color=GREEN, marker=MARKERS[2], label="cache pool in use",
               **style)  # fmt: skip
    peak = 100 * answer["memory"]["peak_share"]
    below.axhline(peak, color=GREY, linewidth=1.2, linestyle="--",
                  label=f"peak of a server: {brief(peak)} %")  # fmt: skip
    for ax, values in ((above, [*running, *waiting]), (below, [*shares, peak])):
        linear(ax, "x")
        grounded(ax, values)
        ax.set_xlim(0, shown.scale * end)
    label_axes(above, "", "number [requests]")
    label_axes(below, f"time [{shown.unit}]", "share of the pool [%]")
    for ax in (above, below):
        legend_of(ax, entries(ax))
    return drawing
