"""Predicted against measured times, and errors by set."""

from __future__ import annotations

from typing import Any

from .style import BLUE, GREEN, GREY, VERMILION, figure, save

KINDS = {"decode": BLUE, "request": VERMILION, "prefill": GREEN, "served": GREY}


def draw(answer: dict[str, Any], path: str) -> Any:
    """Draw every judged row: its estimate against what was measured, and its error by size."""
    judged = [r for r in answer["rows"] if r["error"] is not None]
    total = answer["total"]
    caption = (
        f"{len(judged):,} published measurements, each estimated with constants fitted without it: "
        f"median error {100 * (total['error_median'] or 0):.1f} %, nine of ten below "
        f"{100 * (total['error_p90'] or 0):.0f} %. Lines: equal, and 20 % to either side."
    )
    drawing, axes = figure(2, caption)
    for kind, colour in KINDS.items():
        rows = [r for r in judged if r["kind"] == kind]
        if not rows:
            continue
        measured = [1e3 * r["measured_s"] for r in rows]
        style: dict[str, Any] = {"color": colour, "s": 9, "alpha": 0.6, "linewidths": 0}
        axes[0].scatter(measured, [1e3 * r["estimate_s"] for r in rows], label=kind, **style)
        axes[1].scatter(measured, [100 * r["error"] for r in rows], **style)
    if judged:
        ends = [
            1e3 * min(r["measured_s"] for r in judged),
            1e3 * max(r["measured_s"] for r in judged),
        ]
        for share, line in ((1.0, "-"), (0.8, ":"), (1.2, ":")):
            axes[0].plot(ends, [share * e for e in ends], line, color="black", linewidth=0.8)
    for level, line in ((0, "-"), (-20, ":"), (20, ":")):
        axes[1].axhline(level, linestyle=line, color="black", linewidth=0.8)
    for ax in axes:
        ax.set_xscale("log")
        ax.set_xlabel("measured [ms]")
    axes[0].set_yscale("log")
    axes[0].set_ylabel("estimate [ms]")
    axes[1].set_ylabel("error of the estimate [%]")
    axes[0].legend(frameon=False)
    save(drawing, path)
    return drawing
