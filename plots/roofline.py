"""Every operator under the roof of its machine, decode beside prefill."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.plain import is_list, is_map
from .axes import brief, label_axes, logarithmic
from .legends import LEGEND, legend, line_handle
from .series import Answer, Row, named
from .style import BLACK, DASHES, GREY, MARKERS, MOST_SERIES, PALETTE, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PASSES = {"operators": "decode", "prefill_operators": "prefill"}
"""Keys of an answer with rows of operators, and the pass that each is of."""

OTHER = "other parts"


def draw(answer: Answer) -> Figure:
    """Draw operators as points under the roofs of their machines, on two logarithmic axes.

    answer: of `roofline`, or several under "rooflines". Across: FLOPs over the weights and the
    cache that an operator has to read, which no fusion avoids; up: FLOPs over its bound, which is
    what the machine lets it reach. What an operator writes counts in the bound alone, so that a
    point may lie under its roof, and none above; textbook intensities, which count activations
    that kernels keep on the chip, would put some far above it. Filled points are of decode, hollow
    ones of prefill; a line joins an operator of several batches or contexts.
    """
    answers = rooflines(answer, "roofline")
    tracks, without = _tracks(answers)
    if not tracks:
        what = "no operator has FLOPs and reads anything, so that there is nothing to draw"
        raise RooflmError(what, "roofline")
    drawing, (ax,) = figure(1, _caption(answer, answers, tracks, without), width=6.2, height=4.2)
    known = list(dict.fromkeys(part for part, _, _, _ in tracks))
    # One colour is kept for all that is left.
    parts = known if len(known) <= MOST_SERIES else [*known[: MOST_SERIES - 1], OTHER]
    several = len({machine for _, _, _, machine in tracks}) > 1
    for part, phase, points, machine in tracks:
        i = parts.index(part if part in parts else OTHER)
        across, up = zip(*points, strict=True)
        label = f"{part}, {phase}, {machine}" if several else f"{part}, {phase}"
        # Matrices lie on one another: later ones are smaller, so that all are seen.
        ax.plot(
            across, up, "-", color=PALETTE[i], linewidth=0.7, marker=MARKERS[i],
            markersize=11 * 0.84**i, markeredgewidth=1.2, zorder=3 + 0.1 * i,
            markerfacecolor=PALETTE[i] if phase == "decode" else "none", label=label,
        )  # fmt: skip
    roofs = _roofs(answers)
    logarithmic(ax, "x")
    left, right = ax.get_xlim()
    ridges = [ridge for _, ridge, _, _ in roofs]
    left, right = min(left, min(ridges) / 3), max(right, 3 * max(ridges))
    drawn: list[Any] = []
    for i, (name, ridge, peak, bandwidth) in enumerate(roofs):
        drawn += ax.plot(
            [left, ridge, right], [1e-12 * bandwidth * left, 1e-12 * peak, 1e-12 * peak],
            linestyle=DASHES[i % len(DASHES)], color=BLACK, linewidth=1.2, label=name, zorder=1.5,
        )  # fmt: skip
    ax.set_xlim(left, right)
    logarithmic(ax, "x")
    logarithmic(ax, "y")
    across = "intensity: work over weights and cache that are read [FLOP/B]"
    label_axes(ax, across, "work over the bound of its time [TFLOP/s]")
    phases = dict.fromkeys(phase for _, phase, _, _ in tracks)
    how: dict[str, Any] = {"linestyle": "none"}
    told = [
        (line_handle(color=PALETTE[i], marker=MARKERS[i], **how), part)
        for i, part in enumerate(parts)
    ]
    fill = {"decode": GREY, "prefill": "none"}
    told += [(line_handle(marker="o", markerfacecolor=fill[p], **how), p) for p in phases]
    legend(drawing, told)
    # Below the roofs, to the right of their ridges, a roofline has room.
    how = LEGEND | {"frameon": True, "edgecolor": "none"}
    ax.legend(handles=drawn, loc="lower right", **how)
    return drawing


def rooflines(answer: Answer, kind: str) -> list[Row]:
    """Take the roofline of an answer, or those that are gathered in it."""
    gathered = answer.get("rooflines")
    found = gathered if is_list(gathered) else [answer]
    for one in found:
        if not is_map(one) or not is_list(one.get("operators")):
            raise RooflmError("the answer has no 'operators'", kind, "It draws a roofline.")
    if not found:
        raise RooflmError("the answer has no rooflines, so that there is nothing to draw", kind)
    return found


def reads(operator: Row, kind: str) -> tuple[float, float]:
    """Tell the weights and the cache that all runs of an operator read [B]."""
    for key in ("weight_read_bytes", "cache_read_bytes"):
        if key not in operator:
            raise RooflmError(f"the operators have no column '{key}'", kind)
    return operator["weight_read_bytes"], operator["cache_read_bytes"]


Track = tuple[str, str, list[tuple[float, float]], str]
"""An operator in one phase on one machine: part, phase, a point an answer, name of the machine."""


def _tracks(answers: Sequence[Row]) -> tuple[list[Track], list[str]]:
    """Gather the points of each operator over the answers, and name those that have none."""
    found: dict[tuple[str, ...], list[tuple[float, float]]] = {}
    without: dict[str, None] = {}
    for answer in answers:
        for key, phase in PASSES.items():
            for op in answer.get(key) or ():
                moved = sum(reads(op, "roofline"))
                if not op["flops"] or not moved or not op["bound_s"]:
                    without[op["part"]] = None
                    continue
                point = (op["flops"] / moved, 1e-12 * op["flops"] / op["bound_s"])
                track = (*_roof(answer)[:1], phase, op["part"], op["name"])
                found.setdefault(track, []).append(point)
    drawn = {part for _, _, part, _ in found}
    tracks = [(part, phase, points, roof.partition(":")[0])
              for (roof, phase, part, _), points in found.items()]  # fmt: skip
    return tracks, [part for part in without if part not in drawn]


def _roof(answer: Row) -> tuple[str, float, float, float]:
    """Take the roof of an answer: its name, ridge [FLOP/B], peak [FLOP/s], bandwidth [B/s]."""
    for key in ("peak_flops_per_s", "bandwidth_bytes_per_s"):
        if answer.get(key) is None:
            raise RooflmError(f"the answer has no '{key}'", "roofline")
    peak, bandwidth = answer["peak_flops_per_s"], answer["bandwidth_bytes_per_s"]
    name = (
        f"{answer['hardware']}: {brief(1e-12 * peak)} TFLOP/s, {brief(1e-12 * bandwidth)} TB/s, "
        f"ridge {brief(answer['ridge_flops_per_byte'])} FLOP/B"
    )
    return name, answer["ridge_flops_per_byte"], peak, bandwidth


def _roofs(answers: Sequence[Row]) -> list[tuple[str, float, float, float]]:
    """List the distinct roofs."""
    return list(dict.fromkeys(_roof(answer) for answer in answers))


ALIKE = 0.02
"""Share by which points may differ that lie on one another."""


def _together(tracks: Sequence[Track]) -> list[str]:
    """Say which parts lie at the same points, so that one hides the others."""

    def same(one: Track, other: Track) -> bool:
        pairs = [(a, b) for p, q in zip(one[2], other[2], strict=False)
                 for a, b in zip(p, q, strict=True)]  # fmt: skip
        alike = all(abs(a - b) <= ALIKE * max(a, b) for a, b in pairs)
        return len(one[2]) == len(other[2]) and alike

    said: dict[str, list[str]] = {}
    for phase in dict.fromkeys(phase for _, phase, _, _ in tracks):
        left = [track for track in tracks if track[1] == phase]
        while left:
            group = [track for track in left if same(left[0], track)]
            left = [track for track in left if not any(track is other for other in group)]
            parts = list(dict.fromkeys(part for part, _, _, _ in group))
            if len(parts) > 1:
                text = f"{', '.join(parts[:-1])} and {parts[-1]}"
                said.setdefault(text, [])
                said[text] += [phase] if phase not in said[text] else []
    return [f"{text} lie at one point in {' and in '.join(phases)}"
            for text, phases in said.items()]  # fmt: skip


def _caption(
    answer: Answer, answers: Sequence[Row], tracks: Sequence[Track], without: Sequence[str]
) -> str:
    about: dict[str, Any] = {
        "title": answer.get("title"),
        "rows": [*answers],
        "model": list(dict.fromkeys(str(one["model"]) for one in answers)),
        "hardware": list(dict.fromkeys(str(one["hardware"]) for one in answers)),
        "assumptions": answer.get("assumptions")
        or list(dict.fromkeys(line for one in answers for line in one.get("assumptions") or ())),
    }
    said: list[str] = []
    for key in ("batch", "context_tokens"):
        values = sorted({one[key] for one in answers})
        ends = [named(key, value) for value in (values[0], values[-1])]
        said.append(ends[0] if len(values) == 1 else f"{ends[0]} to {values[-1]:,}")
    if any(len(points) > 1 for _, _, points, _ in tracks):
        said.append("a line joins an operator of several of them")
    said += _together(tracks)
    said.append("what is written counts in the time alone")
    peaks = [peak for _, _, peak, _ in _roofs(answers)]
    if any(up > 1.001e-12 * max(peaks) for _, _, points, _ in tracks for _, up in points):
        said.append("points above the roof compute in a format with a higher peak")
    if without:
        said.append(f"left out, having no FLOPs: {', '.join(without)}")
    return caption(about, *said)
