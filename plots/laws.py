"""One step of speculative sampling over a few tokens: draft, accepted, output beside target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from .axes import brief, linear
from .legends import entries, legend
from .series import Answer, drawable
from .style import BLACK, BLUE, GREEN, HATCHES, ORANGE, SMALL, USUAL, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_TOKENS = 16


def draw(answer: Answer) -> Figure:
    """Draw three panels: the law of the draft, what is accepted of it, the output by the target.

    The output is what is accepted and, on top, what is drawn after a rejection: the rejected mass
    times the residual law.
    """
    keys = ("token", "draft", "target", "accepted_mass", "output")
    if "rejected_mass" not in answer:
        what = "the answer has no laws of a draft and a target, so that there is nothing to draw"
        raise RooflmError(what, "laws", "Take `rooflm speculate --p 0.8,0.2 --q 0.6,0.4`.")
    rows = drawable(answer, "laws", *keys)
    if len(rows) > MOST_TOKENS:
        what = f"{len(rows):,} tokens are more than the {MOST_TOKENS} of a figure"
        raise RooflmError(what, "laws")
    rejected = answer["rejected_mass"]
    caption = (
        f"Speculative sampling: a drafted token is accepted with the chance min(1, target / "
        f"draft), {brief(answer['acceptance'])} in all; after a rejection, "
        f"{brief(rejected)} in all, one is drawn from max(target - draft, 0), scaled. The output "
        "has the target's law."
    )
    width = max(2.5, 0.9 + 0.24 * len(rows))
    drawing, panels = figure(3, caption, width=width, height=3.0)
    draft, accepted, target = (
        [row[key] for row in rows] for key in ("draft", "accepted_mass", "target")
    )
    # Of equal laws nothing is rejected, so that there is no residual law.
    resampled = [rejected * row["residual"] if rejected else 0.0 for row in rows]
    at = list(range(len(rows)))
    style: dict[str, Any] = {"linewidth": 0.4, "edgecolor": "white"}
    outline: dict[str, Any] = {"facecolor": "none", "edgecolor": BLACK, "linewidth": 1.1}
    panels[0].bar(at, draft, 0.7, color=BLUE, hatch=HATCHES[1], label="draft", **style)
    panels[1].bar(at, accepted, 0.7, color=GREEN, label="accepted", **style)
    panels[1].bar(at, draft, 0.7, linestyle=":", label="rejected, up to the draft", **outline)
    left, right = ([i + shift for i in at] for shift in (-0.2, 0.2))
    panels[2].bar(left, accepted, 0.38, color=GREEN, label="accepted", **style)
    panels[2].bar(left, resampled, 0.38, bottom=accepted, color=ORANGE, hatch=HATCHES[4],
                  label="resampled", **style)  # fmt: skip
    panels[2].bar(right, target, 0.38, label="target", **outline)
    names = ("draft", "accepted", "output, by the target")
    for ax, name in zip(panels, names, strict=True):
        ax.set_title(name, fontsize=USUAL, loc="left")
        ax.set_xticks(at, [row["token"] for row in rows])
        ax.tick_params(axis="x", length=0)
        ax.grid(False, axis="x")
        ax.set_xlabel("token")
        ax.set_xlim(-0.6, len(rows) - 0.4)
        ax.set_ylim(0, 1.12 * max(*draft, *target))
        linear(ax, "y")
    panels[0].set_ylabel("probability [1]")
    if len(rows) <= 4:
        output = [row["output"] for row in rows]
        for ax, places, heights in (
            # The output is the target: one figure stands above both bars, where two would collide.
            (panels[0], at, draft), (panels[1], at, accepted), (panels[2], at, output),
        ):  # fmt: skip
            for x, height in zip(places, heights, strict=True):
                ax.text(x, height, brief(height), ha="center", va="bottom", fontsize=SMALL)
    legend(drawing, entries(*panels))
    return drawing
