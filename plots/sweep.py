"""Latency and throughput against batch, with the batch beyond which memory runs out."""

from __future__ import annotations

from typing import Any

from .style import BLUE, GREEN, GREY, VERMILION, figure, save

MOST_LINES = 4


def draw(answer: dict[str, Any], path: str) -> Any:
    """Draw the rows of a sweep, one line a context (the first four), and write the figure."""
    caption = f"{answer['model']} on {answer['hardware']}. " + "; ".join(answer["assumptions"][1:3])
    drawing, axes = figure(2, caption)
    contexts = list(dict.fromkeys(r["context_tokens"] for r in answer["rows"]))[:MOST_LINES]
    colours = (BLUE, VERMILION, GREEN, GREY)
    for context, colour in zip(contexts, colours, strict=False):
        rows = [r for r in answer["rows"] if r["context_tokens"] == context]
        for ax, key, scale in ((axes[0], "time_s", 1e3), (axes[1], "tokens_per_s", 1.0)):
            _line(ax, rows, key, scale, colour, f"{context:,} tokens")
    for ax, label in zip(axes, ("time of a step [ms]", "throughput [tokens/s]"), strict=True):
        ax.set_xscale("log", base=2)
        ax.set_yscale("log")
        ax.set_xlabel("batch [sequences]")
        ax.set_ylabel(label)
        ax.legend(title="context", frameon=False)
    axes[0].set_title("solid: fits; dotted: does not", fontsize=9, loc="left")
    save(drawing, path)
    return drawing


def _line(
    ax: Any, rows: list[dict[str, Any]], key: str, scale: float, colour: str, label: str
) -> None:
    ordered = sorted(rows, key=lambda r: r["batch"])
    fitting = [r for r in ordered if r["fits"]]
    # The dotted part starts where the solid one ends.
    beyond = ([fitting[-1]] if fitting else []) + [r for r in ordered if not r["fits"]]
    for part, style in ((fitting, "-"), (beyond, ":")):
        if part:
            ax.plot(
                [r["batch"] for r in part],
                [scale * r[key] for r in part],
                style,
                color=colour,
                marker="o",
                markersize=3,
                label=label if part is (fitting or beyond) else None,
            )
