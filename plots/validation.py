"""A run of real steps: measured against predicted, and the errors by batch and context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axes import counted, label_axes, linear, logarithmic
from .legends import entries, legend_of
from .series import Answer, drawable
from .style import BLUE, GREEN, GREY, MARKERS, PALETTE, VERMILION, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PREDICTIONS = {
    "bound_s": ("bound, datasheet", GREY, "v"),
    "ceiling_bound_s": ("bound, measured ceilings", BLUE, "s"),
    "estimate_s": ("estimate", GREEN, "^"),
    "calibrated_s": ("calibrated on the other half", VERMILION, "o"),
}


def draw(answer: Answer) -> Figure:
    """Draw every measured step against its predictions, and the errors of the best of them."""
    rows = drawable(answer, "validation", "measured_s")
    who, summary = answer["device"], answer["summary"]
    best = "calibrated_s" if any(r["calibrated_s"] for r in rows) else "ceiling_bound_s"
    median = summary["median_calibrated_error"]
    told = "" if median is None else f", median {100 * median:.1f} %"
    caption = (
        f"{len(rows)} steps on {who['name']}, {answer['date']}, torch {who['torch']}. Left: "
        "medians and the tenth to ninetieth percentile of the measurements; the line is equality. "
        f"Right: error of '{PREDICTIONS[best][0]}'{told}; lines 15 % to either side."
    )
    drawing, (left, right) = figure(2, caption)
    for key, (label, colour, marker) in PREDICTIONS.items():
        known = [r for r in rows if r[key] is not None]
        same = key == "bound_s" and answer.get("preset") is None
        if not known or same:
            continue
        x = [1e3 * r["measured_s"] for r in known]
        spread = [
            [1e3 * (r["measured_s"] - r["measured_low_s"]) for r in known],
            [1e3 * (r["measured_high_s"] - r["measured_s"]) for r in known],
        ]
        left.errorbar(
            x, [1e3 * r[key] for r in known], xerr=spread, fmt=marker, markersize=4, color=colour,
            elinewidth=0.8, alpha=0.75, label=label,
        )  # fmt: skip
    ends = [1e3 * min(r["measured_s"] for r in rows), 1e3 * max(r["measured_s"] for r in rows)]
    left.plot(ends, ends, color="black", linewidth=0.9)
    series = dict.fromkeys((r["weights"], r["context_tokens"]) for r in rows)
    colours = dict(zip(dict.fromkeys(r["weights"] for r in rows), PALETTE, strict=False))
    for i, (weights, context) in enumerate(series):
        own = [
            r
            for r in rows
            if (r["weights"], r["context_tokens"]) == (weights, context) and r[best] is not None
        ]
        style: dict[str, Any] = {"color": colours.get(weights, GREY), "markersize": 5}
        right.plot(
            [r["batch"] for r in own], [100 * (r[best] / r["measured_s"] - 1) for r in own],
            MARKERS[i % len(MARKERS)], label=f"{weights}, {context:,} tokens", **style,
        )  # fmt: skip
    for level, line in ((0, "-"), (-15, ":"), (15, ":")):
        right.axhline(level, linestyle=line, color="black", linewidth=0.9)
    logarithmic(left, "x")
    logarithmic(left, "y")
    counted(right, "x", [r["batch"] for r in rows])
    linear(right, "y")
    label_axes(left, "measured [ms]", "predicted [ms]")
    label_axes(right, "batch [sequences]", "error of the prediction [%]")
    for ax in (left, right):
        legend_of(ax, entries(ax))
    return drawing
