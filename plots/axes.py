"""Axes of figures: numbers as people write them, ticks, labels."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from .style import SMALL, USUAL, WAYS, Way

RAISED = str.maketrans(
    "-0123456789",
    "\N{SUPERSCRIPT MINUS}\N{SUPERSCRIPT ZERO}\N{SUPERSCRIPT ONE}\N{SUPERSCRIPT TWO}"
    "\N{SUPERSCRIPT THREE}\N{SUPERSCRIPT FOUR}\N{SUPERSCRIPT FIVE}\N{SUPERSCRIPT SIX}"
    "\N{SUPERSCRIPT SEVEN}\N{SUPERSCRIPT EIGHT}\N{SUPERSCRIPT NINE}",
)
"""Letters of a power of ten. Figures set no mathematics, as titles may hold a dollar."""
LOWERED = {letter: sign for sign, letter in RAISED.items()}
_POWER = re.compile(f"[{''.join(map(chr, LOWERED))}]+")


def lowered(text: str) -> str:
    """Write powers of ten without raised letters: 10^9."""
    return _POWER.sub(lambda found: "^" + found[0].translate(LOWERED), text)


def plain(value: float) -> str:
    """Write the number of a tick: 0.01, 1, 1,000; powers of ten where that would be long."""
    size = abs(value)
    if size == 0 or 0.9e-4 < size < 1e7:
        return f"{value:,.10g}".replace("-", "\N{MINUS SIGN}")
    power = math.floor(math.log10(size) + 1e-9)
    factor = value / 10.0**power
    whole = abs(factor - 1) < 1e-9
    raised = "10" + str(power).translate(RAISED)
    return raised if whole else f"{factor:.3g}\N{MIDDLE DOT}{raised}"


def brief(value: float) -> str:
    """Write a number in three digits or fewer: 0.012, 1.5, 45.6, 1,230."""
    if not math.isfinite(value):
        return "-"
    if abs(value) >= 99.95:
        return f"{value:,.0f}" if abs(value) < 1e7 else f"{value:.2e}"
    return f"{value:.3g}"


def digits(value: float) -> str:
    """Write a number in three digits, zeros at its end included: 0.0120, 1.50, 45.6, 1,230."""
    if value == 0 or not 1e-3 <= abs(value) < 99.95:
        return brief(value)
    return f"{value:#.3g}"


@lru_cache(4096)
def points(text: str, size: float = SMALL, weight: str = "normal") -> float:
    """Measure the width of a line of text [pt]."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    if not text.strip():
        return 0.0
    width, _, _ = text_to_path.get_text_width_height_descent(
        text, FontProperties(size=size, weight=weight), ismath=False
    )
    return float(width)


def label_axes(ax: Any, x: str, y: str) -> None:
    """Label both axes, in several lines where one would be longer than the axis."""
    import textwrap

    size = ax.get_position()
    sides = (size.width * ax.figure.get_figwidth(), size.height * ax.figure.get_figheight())
    for way, label, inches in zip(WAYS, (x, y), sides, strict=True):
        long = points(label, USUAL) / (72 * inches)
        most = max(12, int(len(label) / long)) if long > 1 else len(label) + 1
        lines = textwrap.wrap(label, most, break_on_hyphens=False)
        getattr(ax, f"set_{way}label")("\n".join(lines))


def linear(ax: Any, way: Way) -> None:
    """Write plain numbers at the ticks of a linear axis."""
    from matplotlib.ticker import FuncFormatter

    def written(value: float, _: int) -> str:
        return plain(value)

    getattr(ax, f"{way}axis").set_major_formatter(FuncFormatter(written))


def grounded(ax: Any, values: Iterable[float]) -> None:
    """Let a linear y-axis start at 0, so that heights are in proportion to what is above 0."""
    linear(ax, "y")
    if min(values) >= 0:
        ax.set_ylim(bottom=0)


def logarithmic(ax: Any, way: Way, base: int = 10) -> None:
    """Make an axis logarithmic with plain numbers at its ticks; to be called after all is drawn."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    getattr(ax, f"set_{way}scale")("log", base=base)
    axis = getattr(ax, f"{way}axis")
    low, high = sorted(getattr(ax, f"get_{way}lim")())
    inches = ax.get_position().width * ax.figure.get_figwidth() if way == "x" else 2.6
    ticks, minor = log_ticks(low, high, base, inches if way == "x" else None)

    def written(value: float, _: int) -> str:
        return plain(value)

    axis.set_major_locator(FixedLocator(ticks))
    axis.set_major_formatter(FuncFormatter(written))
    axis.set_minor_locator(FixedLocator(minor))
    axis.set_minor_formatter(NullFormatter())


def counted(ax: Any, way: Way, values: Iterable[float]) -> None:
    """Suit an axis of whole numbers to its values: powers of two where they span much."""
    from matplotlib.ticker import FixedLocator, MaxNLocator

    known = sorted(set(values))
    if known[0] > 0 and known[-1] >= 8 * known[0]:
        logarithmic(ax, way, 2)
        return
    linear(ax, way)
    few = len(known) == 1
    locator = FixedLocator(known) if few else MaxNLocator(nbins=8, integer=True)
    getattr(ax, f"{way}axis").set_major_locator(locator)


def log_ticks(
    low: float, high: float, base: int, inches: float | None = None
) -> tuple[list[float], list[float]]:
    """Choose the ticks of a logarithmic axis, with labels and without.

    inches: length of an axis whose labels stand side by side; None for one above the other.
    """
    first = math.ceil(math.log(low, base) - 1e-9)
    last = math.floor(math.log(high, base) + 1e-9)
    powers = [float(base) ** n for n in range(first, last + 1)]
    if base != 10 and len(powers) > 1:
        return _thinned(powers, inches), []
    minor = [float(m) * base**n for n in range(first - 1, last + 1) for m in range(2, base)]
    minor = [t for t in minor if low <= t <= high]
    if base == 10 and len(powers) >= 3:
        thin = _thinned(powers, inches)
        return thin, minor if len(thin) == len(powers) else []
    steps = [float(m) * 10**n for n in range(first - 1, last + 1) for m in (1, 2, 5)]
    steps = [t for t in steps if low <= t <= high]
    if base == 10 and len(steps) >= 3:
        return _thinned(steps, inches), minor
    from matplotlib.ticker import MaxNLocator

    between = MaxNLocator(nbins=5, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return _thinned([float(t) for t in between if low <= t <= high], inches), []


def _thinned(ticks: list[float], inches: float | None) -> list[float]:
    """Leave out ticks for which there is no room."""
    most = 9
    if inches is not None and ticks:
        most = max(2, int(72 * inches / (max(points(plain(t)) for t in ticks) + SMALL)))
    every = math.ceil(len(ticks) / most)
    return ticks[::every]
