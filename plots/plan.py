"""The frontier of a plan: time of a step against throughput of a device."""

from __future__ import annotations

from typing import Any

from .style import BLUE, GREY, VERMILION, figure, save


def draw(answer: dict[str, Any], path: str) -> Any:
    """Draw the frontier, each layout named where it begins, and the layouts that were asked for."""
    caption = (
        f"{answer['model']} on {answer['hardware']}, decode at {answer['context_tokens']:,} tokens "
        f"of context, {answer['basis']}s; each point a layout at a batch that fits"
    )
    drawing, axes = figure(1, caption)
    (ax,) = axes
    rows = answer["frontier"]
    if rows:
        ax.plot(*_points(rows), color=BLUE, marker="o", markersize=3, label="nothing beats these")
    before = ""
    for row in rows:
        name = _name(row)
        if name != before:
            at = (1e3 * row["time_s"], row["tokens_per_s_per_device"])
            ax.annotate(name, at, fontsize=6, color=GREY, xytext=(3, -7),
                        textcoords="offset points")  # fmt: skip
        before = name
    if answer["rows"]:
        ax.plot(*_points(answer["rows"][:1]), "x", color=VERMILION, label="best of what is asked")
    if answer["latency_s"] is not None:
        ax.axvline(1e3 * answer["latency_s"], linestyle=":", color=GREY, label="latency asked for")
    ax.set_xscale("log")
    ax.set_yscale("log")
    for which in (ax.xaxis.set_major_formatter, ax.xaxis.set_minor_formatter):
        which("{x:g}")
    ax.set_xlabel("time of a step [ms]")
    ax.set_ylabel("throughput of a device [tokens/s]")
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, fontsize=8)
    save(drawing, path)
    return drawing


def _points(rows: list[dict[str, Any]]) -> tuple[list[float], list[float]]:
    return [1e3 * r["time_s"] for r in rows], [r["tokens_per_s_per_device"] for r in rows]


def _name(row: dict[str, Any]) -> str:
    degrees = ("replicas", "tp", "pp", "dp", "ep", "cp")
    return " ".join(f"{axis}{row[axis]}" for axis in degrees if row[axis] > 1) or "one device"
