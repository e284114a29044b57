"""What batching shares and what it does not: bytes of a token, and intensities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.labels import quantity
from .axes import counted, grounded, logarithmic
from .legends import entries, legend_of
from .roofline import reads, rooflines
from .series import Row, named, wide
from .style import BLUE, GREY, VERMILION, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .series import Answer

MOVED = "moved_bytes"


def draw(answer: Answer) -> Figure:
    """Draw a decode step at several batches: what a token reads, and what that does to intensity.

    answer: rooflines of one model on one machine, under "rooflines". Left: weights and cache that
    a step reads, over its tokens [B]; weights are read once for all, each cache for one. Right:
    intensity of all operators with weights, and of those that read a cache or a state, activations
    included, beside the ridge [FLOP/B].
    """
    answers = sorted(rooflines(answer, "reuse"), key=lambda one: one["batch"])
    _check(answers)
    batches = [one["batch"] for one in answers]
    parts: tuple[tuple[str, str, str, Callable[[Row], bool], int], ...] = (
        ("weights", BLUE, "o", _of_matrices, 0),
        ("cache and states", VERMILION, "s", _of_cache, 1),
    )
    about = {**answers[0], **({"title": answer["title"]} if answer.get("title") else {})}
    drawing, (left, right) = figure(
        2,
        caption(
            about, named("context_tokens", answers[0]["context_tokens"]), "left: reads of a decode "
            "step over its tokens; right: FLOPs over all bytes that the operators move",
        ),
    )  # fmt: skip
    totals = [
        [sum(reads(op, "reuse")[which] for op in one["operators"]) / one["batch"]
         for one in answers] for which in (0, 1)
    ]  # fmt: skip
    shown = quantity({}, MOVED, [{MOVED: v} for values in totals for v in values])
    style: dict[str, Any] = {"linewidth": 1.3, "markersize": 4}
    for name, colour, marker, belongs, which in parts:
        if not any(totals[which]):
            continue
        scaled = [shown.scale * v for v in totals[which]]
        left.plot(batches, scaled, color=colour, marker=marker, label=name, **style)
        means = [_intensity(one, belongs) for one in answers]
        label = "matrices" if which == 0 else "attention and states"
        right.plot(batches, means, color=colour, marker=marker, label=label, **style)
    right.axhline(
        answers[0]["ridge_flops_per_byte"], color=GREY, linestyle="--", linewidth=1.2,
        label=f"ridge of {answers[0]['hardware']}",
    )  # fmt: skip
    for ax in (left, right):
        counted(ax, "x", batches)
        heights = [y for line in ax.lines for y in line.get_ydata()]
        if wide(heights, 4):
            logarithmic(ax, "y")
        else:
            grounded(ax, heights)
        ax.set_xlabel("batch [sequences]")
    left.set_ylabel(f"reads of a token {shown.label[shown.label.index('[') :]}")
    right.set_ylabel("intensity [FLOP/B]")
    for ax in (left, right):
        legend_of(ax, entries(ax))
    return drawing


def _of_matrices(op: Row) -> bool:
    """Tell whether an operator multiplies by weights."""
    return bool(op["flops"]) and op["weight_read_bytes"] > op["cache_read_bytes"]


def _of_cache(op: Row) -> bool:
    """Tell whether an operator computes with a cache or a state."""
    return bool(op["flops"]) and op["cache_read_bytes"] > op["weight_read_bytes"]


def _intensity(answer: Row, belongs: Callable[[Row], bool]) -> float | None:
    """Take the intensity of some operators together [FLOP/B]."""
    ops = [op for op in answer["operators"] if belongs(op)]
    moved = sum(op["bytes"] for op in ops)
    return sum(op["flops"] for op in ops) / moved if moved else None


def _check(answers: Sequence[Row]) -> None:
    """Refuse answers that differ in more than their batch, and repeated batches."""
    for key in ("model", "hardware", "context_tokens"):
        if len({one[key] for one in answers}) > 1:
            raise RooflmError(f"the rooflines differ in {key}", "reuse", "Vary the batch alone.")
    if len({one["batch"] for one in answers}) < len(answers):
        raise RooflmError("a batch is there twice", "reuse", "Vary the batch alone.")
    if len(answers) < 2:
        raise RooflmError("one batch shows no reuse", "reuse", "Take rooflines of several batches.")
