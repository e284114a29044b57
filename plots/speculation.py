"""Speed-up of speculation against batch."""

from __future__ import annotations

from typing import Any

from ..calc.errors import RooflmError
from .style import BLUE, GREY, VERMILION, figure, save


def draw(answer: dict[str, Any], path: str) -> Any:
    """Draw the speed-up of each batch, without messages as well where there are any.

    One context is drawn, the first; where several draft lengths were asked for, the best of each
    batch.
    """
    rows = answer["rows"]
    here = [r for r in rows if r["context_tokens"] == rows[0]["context_tokens"]]
    best: dict[int, dict[str, Any]] = {}
    for row in here:
        if row["speedup"] is None:
            continue
        if row["batch"] not in best or row["speedup"] > best[row["batch"]]["speedup"]:
            best[row["batch"]] = row
    if not best:
        raise RooflmError("no round has a time, so that there is nothing to draw", f"--plot {path}")
    drawn = [best[batch] for batch in sorted(best)]
    lengths = sorted({r["draft_tokens"] for r in drawn})
    of = f"{lengths[0]}" if len(lengths) == 1 else f"{lengths[0]} to {lengths[-1]}"
    said = f"Acceptance {answer['acceptance']}, {of} drafted tokens"
    devices = drawn[0].get("devices", 1)
    machine = answer["hardware"] if devices == 1 else f"{devices} x {answer['hardware']}"
    caption = (
        f"{answer['model']} drafted by {answer['draft']} on {machine}, "
        f"{answer['basis']}. {said}, context {drawn[0]['context_tokens']:,}."
    )
    drawing, axes = figure(1, caption)
    ax = axes[0]
    batches = [r["batch"] for r in drawn]
    silent = "speedup_without_messages" in drawn[0]
    if silent:
        without = [r["speedup_without_messages"] for r in drawn]
        ax.plot(
            batches,
            without,
            "--",
            color=BLUE,
            marker="o",
            markersize=3,
            label=f"{answer['basis']}, no messages",
        )
    ax.plot(
        batches, [r["speedup"] for r in drawn], "-", color=VERMILION, marker="o", markersize=3,
        label=f"{answer['basis']}, with messages" if silent else answer["basis"],
    )  # fmt: skip
    ax.axhline(1, color=GREY, linewidth=0.8)
    ax.set_xscale("log", base=2)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("batch [sequences]")
    ax.set_ylabel("speed-up over plain decoding [1]")
    ax.legend(frameon=False)
    save(drawing, path)
    return drawing
