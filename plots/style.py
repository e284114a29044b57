"""One style for every figure: colour-blind-safe, legible in print and at half size."""

from __future__ import annotations

import contextlib
import re
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..calc.errors import RooflmError
from ..calc.labels import each_of, machines_of, phase_of
from ..calc.output import write_file

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLUE, VERMILION, GREEN, PURPLE = "#0072b2", "#d55e00", "#009e73", "#cc79a7"
ORANGE, SKY, BLACK, GREY = "#e69f00", "#56b4e9", "#000000", "#6b6b6b"
INK = "#404040"
"""Colour of notes beside points."""
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, GREY)
"""Okabe and Ito's colours, grey in place of their yellow, which print loses on white."""

MARKERS = "os^DvPX*"
DASHES: tuple[Any, ...] = (
    "-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (8, 2)), (0, (3, 1.5)),
    (0, (2, 1, 6, 1)),
)  # fmt: skip
HATCHES = ("", "///", "...", "\\\\\\", "xxx", "---", "ooo", "+++")
"""What tells series apart in grey, beside their colours."""
MOST_SERIES = len(PALETTE)

SMALL, USUAL = 8.0, 9.0
"""Points of notes and ticks, and of labels: 4 and more where a figure is printed at half size."""
WIDTH, HEIGHT = 5.2, 3.9
"""Inches of a panel without the caption and the legend, which make room for themselves."""
LINE = 0.16
"""Inches of a line of small text."""

FILE_TYPES = (".png", ".svg", ".pdf")

MOST_MARKERS = 60
"""Points of a line of which each has a marker; longer lines have some thirty in all."""

Way = Literal["x", "y"]
WAYS: tuple[Way, Way] = ("x", "y")


def figure(
    columns: int, caption: str, width: float = WIDTH, height: float = HEIGHT, rows: int = 1
) -> Any:
    """Make a figure with axes side by side and a caption of the assumptions below.

    width, height: inches of one panel; rows: of panels one above the other, which share their
    x-axis. Returns the figure and the list of its axes, row by row.
    """
    import textwrap

    from matplotlib.figure import Figure

    lines = textwrap.wrap(caption, int(16 * width * columns), break_on_hyphens=False)
    size = (width * columns, height * rows + LINE * len(lines))
    drawing = Figure(figsize=size, dpi=150, layout="constrained")
    shared: Any = "col" if rows > 1 else False
    axes: list[Any] = list(drawing.subplots(rows, columns, squeeze=False, sharex=shared).flat)
    for ax in axes:
        ax.grid(True, color="#dddddd", linewidth=0.6)
        ax.set_axisbelow(True)
        ax.spines[["top", "right"]].set_visible(False)
        ax.tick_params(which="both", labelsize=SMALL)
        ax.xaxis.label.set_size(USUAL)
        ax.yaxis.label.set_size(USUAL)
    if lines:
        drawing.supxlabel("\n".join(lines), fontsize=SMALL, color=GREY, x=0.01, ha="left")
    return drawing, axes


def marked(across: Sequence[float]) -> list[int] | None:
    """Choose which points of a line have markers, at even steps of a logarithmic axis.

    across: where they stand, in order. None: all of them.
    """
    from bisect import bisect_left

    if len(across) <= MOST_MARKERS:
        return None
    first, last, half = across[0], across[-1], MOST_MARKERS // 2
    logs = first > 0 and last >= 8 * first
    shares = [i / half for i in range(half + 1)]
    places = [first * (last / first) ** s if logs else first + (last - first) * s for s in shares]
    return sorted({min(bisect_left(across, place), len(across) - 1) for place in places})


FURTHER_FONTS = (
    "Noto Sans CJK SC", "Noto Sans CJK JP", "WenQuanYi Zen Hei", "PingFang SC", "Hiragino Sans",
    "Microsoft YaHei", "Yu Gothic", "Malgun Gothic", "Noto Sans Devanagari", "Noto Emoji",
)  # fmt: skip
"""Fonts of systems, for letters that DejaVu lacks."""


@contextlib.contextmanager
def plain_text() -> Generator[None]:
    """Make texts that are shown as they are: a dollar is no formula, and no letter is an error.

    Letters that DejaVu lacks are taken from a font of the system that has them; without one they
    are boxes, of which matplotlib warns at each look.
    """
    from matplotlib import rc_context  # pyright: ignore[reportUnknownVariableType]
    from matplotlib.font_manager import fontManager

    there = {font.name for font in fontManager.ttflist}
    families = ["DejaVu Sans", *(name for name in FURTHER_FONTS if name in there)]
    with warnings.catch_warnings(), rc_context({"text.parse_math": False, "font.family": families}):
        warnings.filterwarnings("ignore", r"Glyph \d+ .*missing from")
        yield


def entitle(drawing: Figure, title: str) -> None:
    """Put a title above a figure and its legend, in as many lines as its width asks for."""
    how: Any = {"size": USUAL + 1, "weight": "bold"}
    with plain_text():
        lines = _lines(title, 72 * drawing.get_figwidth() - 18, how)
        drawing.set_figheight(drawing.get_figheight() + (0.5 + len(lines)) * LINE)
        if drawing.legends:
            drawing.legends[0].set_title("\n".join(lines), prop=how)
        else:
            drawing.suptitle("\n".join(lines), x=0.01, ha="left", **how)


def _lines(title: str, room: float, how: Mapping[str, Any]) -> list[str]:
    """Break a title between its words, and within them where it must be; room: its width [pt]."""
    import textwrap

    from .axes import points

    most = max(len(title), 1)
    while True:
        lines = textwrap.wrap(title, most, break_on_hyphens=False)
        widest = max((points(line, **how) for line in lines), default=0.0)
        if widest <= room or most == 1:
            return lines
        most = max(1, min(most - 1, int(most * room / widest) + 2))


def subject(answer: Mapping[str, Any]) -> list[str]:
    """Name what an answer is about: its title, and models, drafts of them, on machines.

    Below a title, which speaks for them, many models or machines are left out.
    """
    title = str(answer.get("title") or "").rstrip(".")
    most = 3 if title else 4
    models, machines = each_of(answer.get("model")), machines_of(answer)
    drafts = each_of(answer.get("draft")) if models else []
    who = _several(models, "" if title else "models", most)
    who += f" drafted by {_several(drafts, 'drafts', most)}" if drafts and who else ""
    where = _several(machines, "" if title else "machines", most)
    about = f"{who} on {where}" if who and where else who or where
    return [part for part in (title, about) if part]


def _several(names: Sequence[str], kind: str, most: int) -> str:
    """Name a few; count more, where they are of a kind."""
    return ", ".join(names) if len(names) <= most else f"{len(names)} {kind}" if kind else ""


def caption(answer: Mapping[str, Any], *more: str, timed: bool = True) -> str:
    """Say what a figure shows: the subject, the formats and the basis of its times, and more.

    timed: it shows times, or what follows from them.
    """
    told: list[str] = [str(line) for line in answer.get("assumptions") or ()]
    said = subject(answer)
    # The sentence that begins with the phase ends with the formats.
    works = [line for line in told if phase_of(line) and "; weights " in line]
    if len(works) == 1:
        said.append("weights " + works[0].rpartition("; weights ")[2])
    if timed:
        said += _basis(told)
    if not said:
        said = [line for line in told if timed or not _is_basis(line)][:1]
    # Names of options say nothing to those who see a figure.
    plain = [re.sub(r" \(--[^)]*\)", "", line) for line in (*said, *more) if line]
    return "; ".join(plain) + "." if plain else ""


def _is_basis(line: str) -> bool:
    return line.startswith(("time ", "no estimate", "lecture", "band:"))


def _basis(told: Sequence[str]) -> list[str]:
    """Say what the times are: estimates, of one engine or several, or bounds."""
    estimates = [line for line in told if line.startswith("time is the estimate")]
    gaps = [line.partition("; ")[0] for line in told if line.startswith("no estimate")]
    bounds = [line for line in told if line.startswith(("time model", "lecture"))]
    if len(estimates) > 1:
        return ["times are estimates, each with the engine of its machine", *gaps[:1]]
    if estimates:
        return [estimates[0].replace("; estimate: ", ", "), *gaps[:1]]
    if len(bounds) > 1:
        return [bounds[0].partition(" at ")[0] + bounds[0].partition(")")[2]]
    return bounds[:1]


def save(drawing: Figure, path: str) -> None:
    """Write a figure; the suffix of the path says how."""
    if Path(path).suffix.lower() not in FILE_TYPES:
        raise RooflmError(f"a figure is {', '.join(FILE_TYPES)}", f"--plot {path}")
    write_file(image(drawing, Path(path).suffix[1:].lower()), path, "--plot")


def svg(drawing: Figure, transparent: bool = False) -> str:
    """Write a figure as the text of an SVG; the same figure gives the same text."""
    return image(drawing, "svg", transparent).decode("utf-8")


def image(drawing: Figure, kind: str, transparent: bool = False) -> bytes:
    """Write a figure as a file of a kind."""
    import io

    from matplotlib import rc_context  # pyright: ignore[reportUnknownVariableType]

    file = io.BytesIO()
    # The same figure is the same file: no date, no random names.
    undated: Any = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with plain_text(), rc_context({"svg.hashsalt": "rooflm"}):
        drawing.savefig(file, format=kind, metadata=undated, transparent=transparent)
    return file.getvalue()
