"""Bars and cells in characters: rows of blocks, grids of numbers, letters or shades."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from .axes import digits, lowered

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
"""What marks the points of a series; small where the figure has them hollow."""
FILLS = "\N{FULL BLOCK}\N{MEDIUM SHADE}\N{LIGHT SHADE}\N{DARK SHADE}#=+*"
PLAIN_FILLS = "#=+*ox%@"
SHADES, PLAIN_SHADES = " \N{LIGHT SHADE}\N{MEDIUM SHADE}\N{DARK SHADE}\N{FULL BLOCK}", " .:-=+*#%@"


@dataclass
class Screen:
    """How a figure is written."""

    width: int
    height: int
    colour: bool
    ascii: bool
    legend: list[tuple[Any, str]]
    """Handles and labels of the figure."""
    used: dict[str, str] = field(default_factory=dict[str, str])
    """Labels that were met, with the mark of each."""
    small: bool = False
    """Small letters were written."""


@dataclass(frozen=True)
class Bar:
    """One bar, or one part of a stack."""

    place: float
    """Where it stands among the names."""
    start: float
    end: float
    label: str
    hollow: bool
    """An outline, which hides nothing."""


def bar_rows(screen: Screen, ax: Any, containers: Sequence[Any]) -> list[str]:
    """Write a row a bar, those of a stack in one row, with the name and the value of each."""
    across = containers[0].orientation == "horizontal"
    way = "y" if across else "x"
    names = dict(zip(
        getattr(ax, f"get_{way}ticks")(),
        [lowered(t.get_text()) for t in getattr(ax, f"get_{way}ticklabels")()], strict=True,
    ))  # fmt: skip
    stacks: dict[float, list[Bar]] = {}
    for container in containers:
        label = str(container.get_label())
        for patch in container.patches:
            sides = (patch.get_x(), patch.get_width()), (patch.get_y(), patch.get_height())
            (low, size), (thick, breadth) = sides if across else sides[::-1]
            place = round(thick + breadth / 2, 6)
            bar = Bar(place, low, low + size, label, empty(patch.get_facecolor()))
            stacks.setdefault(place, []).append(bar)
    fills = PLAIN_FILLS if screen.ascii else FILLS
    labels = list(dict.fromkeys(bar.label for stack in stacks.values() for bar in stack))
    marks = {label: fills[i % len(fills)] for i, label in enumerate(labels)}
    # Too thin to be seen: written, but not named.
    screen.used = {label: mark for label, mark in marks.items() if not label.startswith("_")}
    groups: dict[float, list[float]] = {}
    for place in sorted(stacks):
        nearest = min(names, key=lambda at: abs(at - place))
        groups.setdefault(nearest, []).append(place)
    several = any(len(places) > 1 for places in groups.values())
    heads: list[str] = []
    rows: list[list[Bar]] = []
    for nearest, places in groups.items():
        for place in places:
            stack = stacks[place]
            heads.append(names[nearest] if place == places[0] or not several else "")
            rows.append(stack)
    return _rows(screen, ax, heads, rows, marks)


def _rows(
    screen: Screen, ax: Any, heads: list[str], rows: list[list[Bar]], marks: dict[str, str]
) -> list[str]:  # fmt: skip
    """Write bars on one scale, from the least start to the greatest end, limits across them."""
    room = min(max(map(len, heads)), screen.width // 2)
    limits = _limits(screen, ax)
    ends = [edge for stack in rows for bar in stack for edge in (bar.start, bar.end)]
    ends += [value for value, _, _ in limits]
    low, high = min(ends), max(ends)
    values = [digits(_value(stack)) for stack in rows]
    columns = max(4, screen.width - room - 4 - max(map(len, values)))
    scale = columns / ((high - low) or 1.0)
    written: list[str] = []
    for head, stack, value in zip(heads, rows, values, strict=True):
        cells = [" "] * (columns + 1)
        for bar in sorted(stack, key=lambda bar: bar.hollow):
            a, b = sorted((bar.start, bar.end))
            for i in range(round((a - low) * scale), round((b - low) * scale)):
                if not bar.hollow or cells[i] == " ":
                    cells[i] = marks[bar.label]
        row = "".join(cells).rstrip() + f" {value}"
        for at, first, last in limits:
            i = round((at - low) * scale)
            if first <= stack[0].place <= last and row[i : i + 1] in ("", " "):
                row = f"{row[:i]:<{i}}|{row[i + 1 :]}"
        written.append(f"{_cut(head, room):>{room}} {row}")
    return written


def _limits(screen: Screen, ax: Any) -> list[tuple[float, float, float]]:
    """List lines across bars: where they stand, and the first and last bar that they cross."""
    from matplotlib.collections import LineCollection

    found: list[tuple[float, float, float]] = []
    for group in ax.collections:
        if isinstance(group, LineCollection):
            screen.used[str(group.get_label())] = "|"
            found += [
                (float(s[0][0]), float(s[0][1]), float(s[1][1])) for s in group.get_segments()
            ]
    return found


def _value(stack: list[Bar]) -> float:
    """Take what a row comes to: the end of its stack, outlines apart where there is more."""
    filled = [bar for bar in stack if not bar.hollow] or stack
    return max((bar.end for bar in filled), key=abs)


def cell_rows(screen: Screen, ax: Any, mesh: Any) -> list[str]:
    """Write a cell a value: as numbers where they have room, as letters of words, or as shades."""
    import numpy as np

    held: Any = np.ma.masked_invalid(mesh.get_array())
    named = {axis: dict(_labels(ax, axis)) for axis in ("x", "y")}
    room = max(map(len, named["y"].values()), default=0)
    # Where cells are more than characters, as many are left out between two as have to be.
    rows = range(0, held.shape[0], math.ceil(held.shape[0] / (2 * screen.height)))
    columns = range(0, held.shape[1], math.ceil(held.shape[1] / (screen.width - room - 1)))
    wide = (screen.width - room - 1) // len(columns)
    worded = not getattr(ax, "_colorbars", ())
    out = _not_fitting(ax)

    def cell(j: int, i: int) -> str:
        if held.mask is not np.ma.nomask and held.mask[j, i]:
            return ""
        if worded:
            text = LETTERS[int(held[j, i])]
        elif longest + bool(out) < wide:
            text = digits(float(held[j, i]))
        else:
            shades = PLAIN_SHADES if screen.ascii else SHADES
            level = float(mesh.norm(held[j, i]))
            return shades[min(int(level * len(shades)), len(shades) - 1)] * max(1, wide - 1)
        if (i, j) in out:
            return text.lower() if worded else f"{text}*"
        return text

    longest = max(len(digits(float(v))) for v in held.compressed())
    if worded:
        for n, (_, label) in enumerate(screen.legend):
            if ": " in label:
                screen.used[label] = LETTERS[n]
    if out and (worded or longest + 1 < wide):
        screen.used["does not fit"] = "small letters:" if worded else "*"
    lines = [
        f"{named['y'].get(j, ''):>{room}} " + "".join(f"{cell(j, i):>{wide}}" for i in columns)
        for j in reversed(rows)
    ]
    below = [" "] * (room + 1 + wide * len(columns))
    free = 0
    for n, i in enumerate(columns):
        text = named["x"].get(i, "")
        end = room + 1 + wide * (n + 1)
        if text and end - len(text) >= free:
            below[end - len(text) : end] = text
            free = end + 1
    return [*lines, "".join(below)]


def _not_fitting(ax: Any) -> set[tuple[int, int]]:
    """List the cells that a figure hatches."""
    from matplotlib.collections import PatchCollection

    found: set[tuple[int, int]] = set()
    for group in ax.collections:
        if isinstance(group, PatchCollection):
            for path in group.get_paths():
                corners: Any = path.vertices
                x, y = corners[:4].mean(axis=0)
                found.add((round(x), round(y)))
    return found


def _labels(ax: Any, way: str) -> list[tuple[int, str]]:
    at = getattr(ax, f"get_{way}ticks")()
    texts = getattr(ax, f"get_{way}ticklabels")()
    return [(round(v), lowered(t.get_text())) for v, t in zip(at, texts, strict=True)]


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: max(0, most - 3)] + "..."[:most]


def empty(face: Any) -> bool:
    """Tell whether a colour fills nothing."""
    from matplotlib.colors import to_hex, to_rgba

    return to_rgba(face)[3] == 0 or to_hex(face) == "#ffffff"
