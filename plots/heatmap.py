"""A column of an answer over two others, as colours and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.labels import Quantity, quantity, words
from .axes import digits, label_axes, logarithmic, plain, points
from .legends import legend
from .series import Answer, Row, differing, drawable, fits, identities, left_out, sources, timed
from .style import MOST_SERIES, SMALL, USUAL, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_NUMBERS = 150
"""Cells of which the values are written."""


def draw(
    answer: Answer, x: str = "batch", y: str = "context_tokens", z: str = "time_s"
) -> Figure:  # fmt: skip
    """Draw a cell a row: z by colour, and as a number or a word where there is room.

    x, y: columns that together say which row it is; z: a column of numbers, whose colours are
    logarithmic where they span more than a factor of 30, or of words, whose shades differ in grey
    as well. Cells that do not fit are hatched; places without a row stay empty.
    """
    rows = drawable(answer, "heatmap", x, y, z)
    _check_single(answer, rows, x, y)
    across, up = _places(rows, x), _places(rows, y)
    columns = [quantity(answer, key, rows) for key in (x, y, z)]
    worded = any(isinstance(row[z], str | bool) for row in rows)
    written = len(across) * len(up) <= MOST_NUMBERS and len(across) <= 20 and not worded
    beside = max(points(_text(value)) for value in up) / 72 + 1.4
    width = max(5.2, beside + _cell_inches(columns, rows) * len(across)) if written else 6.2
    height = min(8.0, max(2.6, 0.8 + 0.27 * len(up)))
    notes = (left_out(answer, rows), sources(answer, z))
    about = caption(answer, *notes, timed=timed(answer, x, y, z))
    drawing, (ax,) = figure(1, about, width=width, height=height)
    ax.grid(False)
    cells: list[list[float]] = [[float("nan")] * len(across) for _ in up]
    place = [{value: i for i, value in enumerate(values)} for values in (across, up)]
    where = {(place[0][row[x]], place[1][row[y]]): row for row in rows}
    told: list[tuple[Any, str]] = []
    if worded:
        # Words have no bar of colours beside them.
        room = 72 * (width - beside + 0.6) / len(across) - 3
        tall = len(up) * 1.3 * SMALL <= 72 * (height - 0.8)
        mesh, told = _colours(ax, cells, where, z, room if tall else 0)
    else:
        for (i, j), row in where.items():
            cells[j][i] = columns[2].scale * row[z]
        mesh = _numbers(drawing, ax, cells, where, columns[2].label, written)
        mesh.held_label = columns[2].label
    mesh.held_places = (across, up)
    told += _hatch(ax, mesh, cells, where)
    _ticks(ax, "x", across, width - beside)
    _ticks(ax, "y", up, height - 0.6)
    label_axes(ax, columns[0].label, columns[1].label)
    legend(drawing, told)
    return drawing


def _cell_inches(columns: Sequence[Quantity], rows: Sequence[Row]) -> float:
    """Find how wide cells have to be for their numbers, and for words below them."""
    texts = [digits(columns[2].of(row)) for row in rows]
    texts += {row[columns[0].key] for row in rows if isinstance(row[columns[0].key], str)}
    return max(0.46, (max(map(points, texts)) + SMALL) / 72)


def _check_single(answer: Answer, rows: Sequence[Row], x: str, y: str) -> None:
    """Refuse rows that would share a cell, naming what else tells them apart."""
    seen: dict[tuple[Any, Any], Row] = {}
    for row in rows:
        other = seen.setdefault((row[x], row[y]), row)
        if other is not row:
            keys = [k for k in identities(answer) if k not in (x, y)]
            varies = differing([other, row], keys)
            what = f"several rows have {x} {row[x]} and {y} {row[y]}"
            fix = f"They differ in {', '.join(varies)}: keep one of each." if varies else ""
            raise RooflmError(what, "heatmap", fix)


def _places(rows: Sequence[Row], key: str) -> list[Any]:
    """List the values of a column, numbers in their order, words as they come."""
    values = list(dict.fromkeys(row[key] for row in rows))
    return sorted(values) if all(isinstance(v, int | float) for v in values) else values


def _mesh(ax: Any, cells: list[list[float]], **how: Any) -> Any:
    import numpy as np

    edges = [np.arange(n + 1) - 0.5 for n in (len(cells[0]), len(cells))]
    held = np.ma.masked_invalid(np.array(cells))
    return ax.pcolormesh(*edges, held, edgecolors="white", linewidth=0.5, **how)


def _numbers(
    drawing: Any, ax: Any, cells: list[list[float]], where: dict[tuple[int, int], Row],
    label: str, written: bool,
) -> Any:  # fmt: skip
    """Colour cells by their numbers, with a bar of colours."""
    from matplotlib.colors import LogNorm, Normalize
    from matplotlib.ticker import FuncFormatter

    known = [cells[j][i] for i, j in where]
    low, high = min(known), max(known)
    logs = low > 0 and high > 30 * low
    if low == high:
        low, high = low - abs(low) / 2, high + (abs(high) / 2 or 1.0)
    norm = (LogNorm if logs else Normalize)(low, high)
    mesh = _mesh(ax, cells, cmap="viridis", norm=norm)
    bar = drawing.colorbar(mesh, ax=ax, pad=0.02, fraction=0.06, aspect=30)
    bar.set_label(label, size=USUAL)
    bar.ax.tick_params(which="both", labelsize=SMALL)
    bar.outline.set_visible(False)

    def tick(value: float, _: int) -> str:
        return plain(value)

    bar.ax.yaxis.set_major_formatter(FuncFormatter(tick))
    if logs:
        logarithmic(bar.ax, "y")
    if written:
        _write(ax, mesh, cells, {(i, j): digits(cells[j][i]) for i, j in where}, where)
    return mesh


def _dark(mesh: Any, value: float) -> bool:
    red, green, blue, _ = mesh.cmap(mesh.norm(value))
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.5


def _write(
    ax: Any, mesh: Any, cells: list[list[float]], texts: dict[tuple[int, int], str],
    where: dict[tuple[int, int], Row],
) -> None:  # fmt: skip
    """Write into cells, on a patch of the colour of the cell where it is hatched."""
    for (i, j), text in texts.items():
        colour = mesh.cmap(mesh.norm(cells[j][i]))
        patch = {"facecolor": colour, "edgecolor": "none", "pad": 2.0}
        ax.text(
            i, j, text, ha="center", va="center", fontsize=SMALL,
            color="white" if _dark(mesh, cells[j][i]) else "black",
            bbox=None if fits(where[i, j]) else patch,
        )  # fmt: skip


def _colours(
    ax: Any, cells: list[list[float]], where: dict[tuple[int, int], Row], z: str, room: float
) -> tuple[Any, list[tuple[Any, str]]]:  # fmt: skip
    """Colour cells by their words; returns the mesh, and what a legend says.

    room: width of a cell for its word [pt].
    """
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap
    from matplotlib.patches import Patch

    said = {at: _worded(row[z]) for at, row in where.items()}
    names = list(dict.fromkeys(said.values()))
    if len(names) > MOST_SERIES:
        what = f"{z} has {len(names)} different words, more than the {MOST_SERIES} of a figure"
        raise RooflmError(what, "heatmap")
    for (i, j), word in said.items():
        cells[j][i] = names.index(word)
    # Shades from dark to light, which stay apart in grey and for all eyes.
    steps = [0.15 + 0.8 * i / max(1, len(names) - 1) for i in range(len(names))]
    colours = [colormaps["cividis"](step) for step in steps]
    mesh = _mesh(ax, cells, cmap=ListedColormap(colours), vmin=-0.5, vmax=len(names) - 0.5)
    mesh.held_label, mesh.held_words = words(z), names
    short = abbreviated(names, room)
    if short:
        _write(ax, mesh, cells, {at: short[word] for at, word in said.items()}, where)
    told = [(Patch(facecolor=c), f"{words(z)}: {n}") for c, n in zip(colours, names, strict=True)]
    return mesh, told


def _worded(value: Any) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def abbreviated(names: Sequence[str], room: float) -> dict[str, str]:
    """Shorten words to the room that they have [pt]; nothing where they would be alike."""
    longest = max(map(len, names))
    # Two letters less are not worth a word that has to be guessed.
    for letters in (longest, *range(longest - 3, 2, -1)):
        short = {n: n if len(n) <= letters else f"{n[:letters].rstrip()}." for n in names}
        if all(points(text) <= room for text in short.values()):
            return short if len(set(short.values())) == len(names) else {}
    return {}


def _hatch(
    ax: Any, mesh: Any, cells: list[list[float]], where: dict[tuple[int, int], Row]
) -> list[tuple[Any, str]]:  # fmt: skip
    """Hatch the cells that do not fit; returns what a legend says."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Patch, Rectangle

    out = [at for at, row in where.items() if not fits(row)]
    if not out:
        return []
    for dark, colour in ((True, "#ffffffb0"), (False, "#00000080")):
        boxes = [Rectangle((i - 0.5, j - 0.5), 1, 1) for i, j in out
                 if _dark(mesh, cells[j][i]) == dark]  # fmt: skip
        how: dict[str, Any] = {"facecolor": "none", "edgecolor": colour, "hatch": "///"}
        if boxes:
            ax.add_collection(PatchCollection(boxes, match_original=False, linewidth=0, **how))
    return [(Patch(facecolor="#9a9a9a", edgecolor="white", hatch="///"), "does not fit")]


def _text(value: Any) -> str:
    return plain(value) if isinstance(value, int | float) else str(value)


def _ticks(ax: Any, way: str, values: list[Any], inches: float) -> None:
    """Write the values at their cells, as many as there is room for on the axis."""
    import math

    texts = [_text(value) for value in values]
    each = max(map(points, texts)) + 0.8 * SMALL if way == "x" else 1.6 * SMALL
    every = math.ceil(len(texts) * each / (72 * inches))
    shown = range(0, len(texts), max(1, every))
    getattr(ax, f"set_{way}ticks")(list(shown), [texts[i] for i in shown])
    ax.tick_params(axis=way, length=0)
