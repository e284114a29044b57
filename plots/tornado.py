"""What moves time and throughput most: sensitivities to letters, or levers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.plain import is_map
from .axes import brief, digits, linear
from .legends import entries, legend
from .series import Answer, drawable
from .style import BLACK, BLUE, HATCHES, ORANGE, PALETTE, SMALL, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

QUANTITIES = {
    "time_s": ("time", BLUE, HATCHES[0]), "tokens_per_s": ("throughput", ORANGE, HATCHES[1])
}  # fmt: skip

EFFECTS = {
    "time": ("speedup", "speed-up: time of a token without the lever over that with it [1]"),
    "throughput": ("throughput_gain", "throughput over that without the lever [1]"),
    "memory": ("memory_kept", "memory over that without the lever [1]"),
    "cost": ("cost_kept", "cost of a token over that without the lever [1]"),
}
"""What levers are ranked by, with the column and its label."""
RANKED = {"time": "time of a token", "cost": "cost of a token"}

LEAST = 0.01
"""Change below which a lever is left out."""

ELASTIC = ("time_s", "bound_s", "tokens_per_s")
"""What an answer with sensitivities may explain."""

MOST_BARS = 20
LONGEST = 46
"""Characters of a label."""


def draw(answer: Answer) -> Figure:
    """Draw bars, the largest above.

    Of `explain --sensitivity`: by how many per cent time and throughput change where a letter
    grows by one per cent. Of `levers`: the effect by which they are ranked, from 1 to either side,
    in the order of the answer; one that does not fit is white. Where they are many, those with the
    largest effect are drawn; those with next to none are counted.
    """
    if is_map(answer.get("sensitivity")):
        return _sensitivities(answer)
    if "sensitivity" not in answer and "by" not in answer:
        fix = "Take `rooflm explain --sensitivity` or `rooflm levers`."
        raise RooflmError("the answer has no 'sensitivity' and no levers", "tornado", fix)
    return _levers(answer)


def _sensitivities(answer: Answer) -> Figure:
    asked = str(answer.get("quantity") or "time_s")
    if asked not in ELASTIC:
        what = f"elasticities are those of time and throughput, and the answer explains '{asked}'"
        raise RooflmError(what, "tornado", "Take `rooflm explain time_s --sensitivity`.")
    every: Mapping[str, Mapping[str, float]] = answer["sensitivity"]
    known = {key: every[key] for key in QUANTITIES if every.get(key)}
    letters = dict.fromkeys(letter for values in known.values() for letter in values)
    if not letters:
        raise RooflmError("no letter has a sensitivity", "tornado")

    def size(letter: str) -> float:
        return max(abs(values.get(letter) or 0) for values in known.values())

    ordered = sorted(letters, key=size, reverse=True)
    shown = ordered[:MOST_BARS]
    notes = [
        f"changes of {' and '.join(QUANTITIES[key][0] for key in known)} in per cent, where a "
        "letter grows by one per cent",
        f"{len(ordered) - len(shown)} letters with less are left out"
        if len(ordered) > len(shown) else "",
    ]  # fmt: skip
    height = 0.7 + 0.34 * max(3, len(shown))
    drawing, (ax,) = figure(1, caption(answer, *notes), width=6.0, height=height)
    for n, (key, values) in enumerate(known.items()):
        name, colour, hatch = QUANTITIES[key]
        heights = [i + 0.36 * (n - (len(known) - 1) / 2) for i in range(len(shown))]
        ax.barh(
            heights, [values.get(letter) or 0 for letter in shown], height=0.34, color=colour,
            hatch=hatch, edgecolor="white", linewidth=0.4, label=name,
        )  # fmt: skip
    ax.axvline(0, color=BLACK, linewidth=0.9)
    _names(ax, [_letter(answer, letter) for letter in shown])
    ax.set_xlabel("change where the letter grows by 1 % [%]")
    legend(drawing, entries(ax))
    return drawing


def _letter(answer: Answer, letter: str) -> str:
    """Name a letter with its value: S = 1,024 tokens, C = 989 TFLOP/s."""
    letters = answer.get("letters")
    about = letters.get(letter) if is_map(letters) else None
    if not is_map(about) or about.get("value") is None:
        return letter
    value, unit = about["value"], str(about.get("unit", "1"))
    if unit in ("B/s", "FLOP/s") and value >= 1e9:
        return f"{letter} = {brief(1e-12 * value)} T{unit}"
    return f"{letter} = {value:,.10g}" + ("" if unit == "1" else f" {unit}")


def _levers(answer: Answer) -> Figure:
    by = answer["by"]
    if by not in EFFECTS:
        raise RooflmError(f"levers are not ranked by '{by}'", "tornado")
    key, label = EFFECTS[by]
    rows = drawable(answer, "tornado", "lever", key)
    sizes = [abs(math.log(row[key])) if row[key] > 0 else math.inf for row in rows]
    moving = [i for i, size in enumerate(sizes) if size >= math.log(1 + LEAST)]
    if not moving:
        raise RooflmError(f"no lever changes the {by} by {100 * LEAST:.0f} %", "tornado")
    kept = sorted(sorted(moving, key=lambda i: -sizes[i])[:MOST_BARS])
    shown = [rows[i] for i in kept]
    missing, still = len(answer["rows"]) - len(rows), len(rows) - len(moving)
    left = [
        f"{count} with {what}"
        for count, what in (
            (len(moving) - len(kept), "smaller effects"),
            (still, f"less than {100 * LEAST:.0f} % of effect"),
        )
        if count
    ]
    notes = [
        f"{RANKED.get(by, by)} with one lever at a time, {answer['basis']}s",
        f"levers left out: {' and '.join(left)}" if left else "",
        f"{missing} have no figure" if missing else "",
    ]
    acts = list(dict.fromkeys(row["acts_on"] for row in shown))
    height = 0.7 + 0.25 * max(3, len(shown))
    base = answer.get("base")
    case = {**answer, "rows": [base] if is_map(base) else []}
    about = caption(case, *notes, timed=by != "memory")
    drawing, (ax,) = figure(1, about, width=7.0, height=height)
    for n, act in enumerate(acts):
        colour, hatch = PALETTE[n % len(PALETTE)], HATCHES[n % len(HATCHES)]
        own = [(i, row) for i, row in enumerate(shown) if row["acts_on"] == act]
        for fitting in (True, False):
            bars = [(i, row) for i, row in own if (row.get("fits") is not False) == fitting]
            if bars:
                ax.barh(
                    [i for i, _ in bars], [row[key] - 1 for _, row in bars], left=1, height=0.7,
                    facecolor=colour if fitting else "white", hatch=hatch, linewidth=0.6,
                    edgecolor="white" if fitting else colour,
                    label=f"acts on {act}" if fitting else f"acts on {act}, does not fit",
                )  # fmt: skip
    ax.axvline(1, color=BLACK, linewidth=0.9)
    _names(ax, [_short(str(row["lever"])) for row in shown])
    reach = [row[key] for row in shown]
    low, high = min([*reach, 1.0]), max([*reach, 1.0])
    span = high - low or 1.0
    for i, value in enumerate(reach):
        right = value >= 1
        ax.text(
            value + (0.01 if right else -0.01) * span, i, digits(value), va="center",
            ha="left" if right else "right", fontsize=SMALL,
        )  # fmt: skip
    ax.set_xlim(low - (0.12 * span if low < 1 else 0.02 * span), high + 0.12 * span)
    ax.set_xlabel(label)
    legend(drawing, entries(ax))
    return drawing


def _names(ax: Any, names: list[str]) -> None:
    """Write names beside the bars, the first above."""
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    ax.grid(False, axis="y")
    ax.tick_params(axis="y", length=0)
    linear(ax, "x")


def _short(name: str) -> str:
    """Cut a name, first what stands in parentheses."""
    import re

    name = re.sub(r" \(.*?\)", "", name)
    return name if len(name) <= LONGEST else name[: LONGEST - 3].rstrip() + "..."
