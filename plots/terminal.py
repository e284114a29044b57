"""A figure in characters, for a terminal: the same lines, points, bars and cells."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from .axes import lowered
from .blocks import LETTERS, Screen, bar_rows, cell_rows, empty
from .data import x_label
from .style import GREY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PLAIN_TEXT = {
    "\N{MINUS SIGN}": "-", "\N{MULTIPLICATION SIGN}": "x", "\N{MICRO SIGN}": "u",
    "\N{MIDDLE DOT}": "x",
}  # fmt: skip

BRAILLE = range(0x2800, 0x2900)
LEAST_WIDTH = 20


def chart(
    drawing: Figure, width: int, height: int = 20, colour: bool = False, ascii: bool = False
) -> str:
    """Write a figure in lines of at most so many characters, one of its panels below the other.

    height: rows of a panel without its axis; colour: with codes of colours, where the output is a
    terminal; ascii: without characters that old encodings lack.
    """
    width = max(width, LEAST_WIDTH)
    anyone: Any = drawing
    handles = [
        pair
        for legend in (*anyone.legends, *(ax.get_legend() for ax in anyone.axes))
        if legend is not None
        for pair in zip(legend.legend_handles, (t.get_text() for t in legend.texts), strict=True)
    ]
    titles: list[str] = [legend.get_title().get_text() for legend in anyone.legends]
    title = next(filter(None, [*titles, str(anyone.get_suptitle())]), "")
    blocks = [wrapped(title, width)] if title else list[list[str]]()
    screen = Screen(width, height, colour, ascii, handles)
    for ax in anyone.axes:
        if ax.get_label() == "<colorbar>":
            continue
        screen.used, screen.small = {}, False
        body = _panel(screen, ax)
        blocks.append([*_head(screen, ax), *body, *_legend(screen)])
    caption = anyone.get_supxlabel()
    if caption:
        blocks.append(wrapped(" ".join(caption.split()), width))
    text = "\n\n".join("\n".join(line.rstrip() for line in block) for block in blocks) + "\n"
    return _to_ascii(text) if ascii else text


def wrapped(text: str, width: int) -> list[str]:
    """Break a text between its words; names with hyphens stay whole."""
    return textwrap.wrap(text, width, break_on_hyphens=False)


def _panel(screen: Screen, ax: Any) -> list[str]:
    """Write what axes hold: cells, bars, or lines and points."""
    from matplotlib.collections import QuadMesh
    from matplotlib.container import BarContainer

    mesh = next((group for group in ax.collections if isinstance(group, QuadMesh)), None)
    if mesh is not None:
        return cell_rows(screen, ax, mesh)
    bars = [c for c in ax.containers if isinstance(c, BarContainer)]
    return bar_rows(screen, ax, bars) if bars else _canvas(screen, ax)


def _head(screen: Screen, ax: Any) -> list[str]:
    """Say what a panel shows: its title, what goes up and what goes across."""
    titles = [ax.get_title(loc=loc) for loc in ("left", "center", "right")]
    across, up = x_label(ax), ax.get_ylabel()
    shown = " against ".join(label for label in (up, across) if label)
    bar = getattr(ax, "_colorbars", ())
    if bar:
        shown = f"{bar[0].get_ylabel()}: {shown}"
    return wrapped(": ".join(part for part in (*titles, shown) if part), screen.width)


def _legend(screen: Screen) -> list[str]:
    """Say what the marks of a panel mean."""
    said = [f"{mark} {label}" for label, mark in screen.used.items()]
    if screen.small:
        said += [f"small letters: {text}" for handle, text in screen.legend if _is_hollow(handle)]
    # An entry is not broken where its line can be.
    whole = "   ".join(text.replace(" ", "\N{NO-BREAK SPACE}") for text in said)
    lines = wrapped(whole, screen.width)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def _is_hollow(handle: Any) -> bool:
    """Tell whether a legend shows what hollow points of all colours mean."""
    take = getattr(handle, "get_markerfacecolor", None)
    if take is None or handle.get_marker() in (None, "None", "none", ""):
        return False
    return empty(take()) and _colour_of(handle) == GREY


def _canvas(screen: Screen, ax: Any) -> list[str]:
    """Write lines as dots and points as letters, with the ticks of both axes."""
    from plotille import Canvas

    ticks = list(_ticks(ax, "y"))
    room = max((len(text) for _, text in ticks), default=0)
    columns = max(8, screen.width - room - 2)
    canvas = Canvas(columns, screen.height, 0, 0, 1, 1, mode="byte", no_color=not screen.colour)
    marks: list[tuple[float, float, str, int | None]] = []
    # What lies above is written last.
    for line in sorted(ax.lines, key=lambda line: line.get_zorder()):
        tone = _tone(line.get_color())
        path = _within(ax, line.get_transform().transform(line.get_path().vertices))
        if str(line.get_linestyle()) not in ("None", "none", " ", ""):
            _join(canvas, path, tone)
        if line.get_marker() not in (None, "None", "none", "", " "):
            every = line.get_markevery()
            shown = line.get_xydata() if every is None else line.get_xydata()[every]
            places = _within(ax, line.get_transform().transform(shown))
            mark = _mark(screen, line.get_color(), line.get_markerfacecolor(), line.get_label())
            marks += [(x, y, mark, tone) for x, y in places]
    for group in ax.collections:
        marks += _collection(screen, ax, canvas, group)
    for x, y, mark, tone in marks:
        if 0 <= x <= 1 and 0 <= y <= 1:
            # The last column and row are those of 1 itself.
            at = min(x, 1 - 0.6 / (2 * columns)), min(y, 1 - 0.6 / (4 * screen.height))
            canvas.point(*at, marker=mark, color=tone)
    for handle, text in screen.legend:
        if text not in screen.used and text not in _elsewhere(ax) and _is_line(handle):
            screen.used[text] = "--"
    rows = canvas.plot(linesep="\n").replace("\u2800", " ").split("\n")
    labels = {round((1 - y) * (screen.height - 1)): text for y, text in ticks}
    edge = "|" if screen.ascii else "\N{BOX DRAWINGS LIGHT VERTICAL}"
    body = [f"{labels.get(i, ''):>{room}} {edge}{row}" for i, row in enumerate(rows)]
    return [*body, *_below(ax, room, columns)]


def _elsewhere(ax: Any) -> set[str]:
    """Name what only the legends of other panels explain."""
    told = {
        other: {text.get_text() for text in other.get_legend().texts}
        for other in ax.figure.axes
        if other.get_legend() is not None
    }
    own = told.pop(ax, set[str]())
    return set[str]().union(*told.values()) - own


def _is_line(handle: Any) -> bool:
    """Tell whether a legend shows a line without points."""
    from matplotlib.collections import LineCollection
    from matplotlib.lines import Line2D

    if isinstance(handle, Line2D):
        return str(handle.get_marker()) in ("None", "none", "")
    return isinstance(handle, LineCollection)


def _collection(
    screen: Screen, ax: Any, canvas: Any, group: Any
) -> list[tuple[float, float, str, int | None]]:
    """Draw the segments of a collection, and return the marks of its points."""
    from matplotlib.collections import LineCollection, PathCollection

    if isinstance(group, LineCollection):
        tone = _tone(group.get_color()[0])
        for segment in group.get_segments():
            _join(canvas, _within(ax, group.get_transform().transform(segment)), tone)
        return []
    if not isinstance(group, PathCollection):
        return []
    places = _within(ax, group.get_offset_transform().transform(group.get_offsets()))
    faces, edges = group.get_facecolor(), group.get_edgecolor()
    face = faces[0] if len(faces) else "none"
    edge = edges[0] if len(edges) else face
    mark = _mark(screen, edge, face, group.get_label())
    return [(x, y, mark, _tone(edge)) for x, y in places]


def _within(ax: Any, pixels: Any) -> list[tuple[float, float]]:
    """Turn pixels into shares of the axes, whatever their scales are."""
    import numpy as np

    return [
        (float(x), float(y))
        for x, y in ax.transAxes.inverted().transform(pixels)
        if np.isfinite(x) and np.isfinite(y)
    ]


def _join(canvas: Any, path: Sequence[tuple[float, float]], tone: int | None) -> None:
    """Draw a path, cut at the frame."""
    import itertools

    for a, b in itertools.pairwise(path):
        cut = _clipped(a, b)
        if cut is not None:
            canvas.line(*cut[0], *cut[1], color=tone)


Point = tuple[float, float]


def _clipped(a: Point, b: Point) -> tuple[Point, Point] | None:
    """Cut a segment at the frame from 0 to 1; None where it lies outside (Liang and Barsky)."""
    (x, y), (dx, dy) = a, (b[0] - a[0], b[1] - a[1])
    enter, leave = 0.0, 1.0
    for towards, room in ((-dx, x), (dx, 0.999 - x), (-dy, y), (dy, 0.999 - y)):
        if towards == 0:
            if room < 0:
                return None
        elif towards < 0:
            enter = max(enter, room / towards)
        else:
            leave = min(leave, room / towards)
    if enter > leave:
        return None
    return (x + enter * dx, y + enter * dy), (x + leave * dx, y + leave * dy)


def _ticks(ax: Any, way: str) -> Iterator[tuple[float, str]]:
    """List the ticks in view: their share of the axis and their text."""
    axis = getattr(ax, f"{way}axis")
    low, high = axis.get_view_interval()
    at = axis.get_majorticklocs()
    texts = axis.get_major_formatter().format_ticks(at)
    for value, text in zip(at, texts, strict=True):
        if min(low, high) <= value <= max(low, high) and text:
            corner = [ax.get_xlim()[0], ax.get_ylim()[0]]
            corner["xy".index(way)] = value
            share = ax.transAxes.inverted().transform(ax.transData.transform(corner))
            yield float(share["xy".index(way)]), lowered(text)


def _below(ax: Any, room: int, columns: int) -> list[str]:
    """Write the ticks of the x-axis, those that have room."""
    row = [" "] * (columns + room + 2)
    free = 0
    for x, text in _ticks(ax, "x"):
        middle = room + 2 + round(x * (columns - 1))
        start = min(max(middle - len(text) // 2, 0), len(row) - len(text))
        if start >= free:
            row[start : start + len(text)] = text
            free = start + len(text) + 1
    return ["".join(row)]


def _mark(screen: Screen, colour: Any, face: Any, label: Any) -> str:
    """Choose the letter of a series by its place in the legend; small where it is hollow."""
    from matplotlib.colors import to_hex

    found = [
        (i, text)
        for i, (handle, text) in enumerate(screen.legend)
        if text == label or _colour_of(handle) == to_hex(colour)
    ]
    named = [pair for pair in found if pair[1] == label] or found
    place, text = named[0] if named else (0, "")
    # What is hollow in the legend as well is so by itself.
    own = getattr(screen.legend[place][0], "get_markerfacecolor", None) if text else None
    hollow = empty(face) and not (own is not None and empty(own()))
    screen.small = screen.small or hollow
    letter = LETTERS[place % len(LETTERS)]
    if text:
        screen.used.setdefault(text, letter)
    return letter.lower() if hollow else letter


def _colour_of(handle: Any) -> str:
    """Take the colour of what stands in a legend."""
    from matplotlib.colors import to_hex

    for name in ("get_color", "get_edgecolor", "get_facecolor"):
        take = getattr(handle, name, None)
        if take is not None:
            colour = take()
            first = colour[0] if getattr(colour, "ndim", 1) == 2 and len(colour) else colour
            return to_hex(first) if len(first) else ""
    return ""


def _tone(colour: Any) -> int | None:
    """Turn a colour into one of the 216 that terminals have."""
    from matplotlib.colors import to_rgb

    red, green, blue = (round(5 * part) for part in to_rgb(colour))
    return 16 + 36 * red + 6 * green + blue if red + green + blue else None


def _to_ascii(text: str) -> str:
    """Replace what an old encoding lacks; dots of lines become points."""
    for old, new in PLAIN_TEXT.items():
        text = text.replace(old, new)
    return "".join("." if ord(c) in BRAILLE else c if ord(c) < 128 else "?" for c in text)
