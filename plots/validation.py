"""A run of real steps: measured against predicted, and the errors by batch and context."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .style import BLUE, GREEN, GREY, VERMILION, figure, save

PREDICTIONS = {
    "bound_s": ("bound, datasheet", GREY),
    "ceiling_bound_s": ("bound, measured ceilings", BLUE),
    "estimate_s": ("estimate", GREEN),
    "calibrated_s": ("calibrated on the other half", VERMILION),
}
MARKERS = "osD^v<>Ph*"


def draw(answer: Mapping[str, Any], path: str) -> Any:
    """Draw every measured step against its predictions, and the errors of the best of them."""
    rows = [r for r in answer["rows"] if r["measured_s"] is not None]
    who, summary = answer["device"], answer["summary"]
    best = "calibrated_s" if any(r["calibrated_s"] for r in rows) else "ceiling_bound_s"
    caption = (
        f"{len(rows)} steps on {who['name']}, {answer['date']}, torch {who['torch']}. Left: "
        "medians and the tenth to ninetieth percentile of the measurements; the line is equality. "
        "Right: "
        f"error of '{PREDICTIONS[best][0]}'; lines 15 % to either side."
    )
    drawing, (left, right) = figure(2, caption)
    for key, (label, colour) in PREDICTIONS.items():
        told = [r for r in rows if r[key] is not None]
        same = key == "bound_s" and answer.get("preset") is None
        if not told or same:
            continue
        x = [1e3 * r["measured_s"] for r in told]
        spread = [
            [1e3 * (r["measured_s"] - r["measured_low_s"]) for r in told],
            [1e3 * (r["measured_high_s"] - r["measured_s"]) for r in told],
        ]
        left.errorbar(
            x, [1e3 * r[key] for r in told], xerr=spread, fmt="o", markersize=3.5, color=colour,
            elinewidth=0.7, alpha=0.75, label=label,
        )  # fmt: skip
    if rows:
        ends = [1e3 * min(r["measured_s"] for r in rows), 1e3 * max(r["measured_s"] for r in rows)]
        left.plot(ends, ends, color="black", linewidth=0.8)
        left.legend(frameon=False, fontsize=8)
    series = dict.fromkeys((r["weights"], r["context_tokens"]) for r in rows)
    colours = dict(
        zip(dict.fromkeys(r["weights"] for r in rows), (BLUE, VERMILION, GREEN, GREY), strict=False)
    )
    for i, (weights, context) in enumerate(series):
        own = [
            r
            for r in rows
            if (r["weights"], r["context_tokens"]) == (weights, context) and r[best] is not None
        ]
        right.plot(
            [r["batch"] for r in own], [100 * (r[best] / r["measured_s"] - 1) for r in own],
            MARKERS[i % len(MARKERS)], color=colours.get(weights, GREY), markersize=4.5,
            label=f"{weights}, {context:,} tokens",
        )  # fmt: skip
    for level, line in ((0, "-"), (-15, ":"), (15, ":")):
        right.axhline(level, linestyle=line, color="black", linewidth=0.8)
    left.set_xscale("log")
    left.set_yscale("log")
    right.set_xscale("log", base=2)
    left.set_xlabel("measured [ms]")
    left.set_ylabel("predicted [ms]")
    right.set_xlabel("batch [sequences]")
    right.set_ylabel("error of the prediction [%]")
    if series:
        right.legend(frameon=False, fontsize=7, ncols=2)
    if summary["median_calibrated_error"] is not None:
        right.set_title(f"median {100 * summary['median_calibrated_error']:.1f} %", fontsize=9)
    save(drawing, path)
    return drawing
