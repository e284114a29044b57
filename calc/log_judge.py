"""A figure of a log beside what it should be: whether both agree within the log's own rounding.

A figure that is printed as 8.11 lies between 8.105 and 8.115. What is computed from rounded figures
lies between two bounds as well; both agree where the intervals touch.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .log_read import MEANT, SIZES, Fact
from .log_words import FIGURES

SLACK = {"vllm": 0.0015, "sglang": 0.005, "trtllm": 0.01, "llamacpp": 0.01}
"""Shares by which the weights of an engine may differ: buffers, allocators that round up, a
difference of free memory in SGLang, what an engine file and a GGUF file hold beside weights."""


@dataclass(frozen=True)
class Span:
    """A number that is known between two bounds."""

    value: float
    low: float
    high: float

    def __add__(self, other: Span) -> Span:
        """Add, with bounds."""
        return Span(self.value + other.value, self.low + other.low, self.high + other.high)

    def __sub__(self, other: Span) -> Span:
        """Subtract, with bounds."""
        return Span(self.value - other.value, self.low - other.high, self.high - other.low)

    def __mul__(self, other: Span) -> Span:
        """Multiply positive numbers, with bounds."""
        return Span(self.value * other.value, self.low * other.low, self.high * other.high)

    def __truediv__(self, other: Span) -> Span:
        """Divide positive numbers, with bounds."""
        return Span(
            self.value / other.value if other.value else 0.0,
            self.low / other.high if other.high else 0.0,
            self.high / other.low if other.low > 0 else float("inf"),
        )

    def spread(self, below: float, above: float = 0.0) -> Span:
        """Widen the bounds."""
        return Span(self.value, self.low - below, self.high + above)


def exact(value: float) -> Span:
    """Make a number without rounding."""
    return Span(value, value, value)


def span(fact: Fact) -> Span:
    """Tell between which bounds a figure of a log lies, in bytes or as a count."""
    return Span(fact.size, fact.size - fact.half, fact.size + fact.half)


def one_of(values: Iterable[float]) -> list[Span]:
    """Make candidates of numbers."""
    return [exact(v) for v in values]


Answer = dict[str, Any]


def figure(
    fact: Fact,
    should: Span | list[Span] | None = None,
    how: str = "",
    fills: str | None = None,
    slack: float = 0.0,
) -> Answer:
    """Describe a figure, and judge it where there is something to hold it against.

    should: what it should be, or several where ranks differ: the nearest counts; how: where that
    comes from, or why there is none; fills: what a difference consists of; slack: share by which
    it may be off.
    """
    candidates = [should] if isinstance(should, Span) else should or []
    mine = span(fact)
    best = min(candidates, key=lambda s: abs(s.value - mine.value), default=None)
    agrees = off = None
    if best is not None:
        room = slack * abs(best.value)
        agrees = mine.low <= best.high + room and mine.high >= best.low - room
        off = (mine.value / best.value - 1) if best.value else None
    unit = fact.unit
    return {
        "name": fact.name,
        "line": fact.line,
        "rank": fact.rank or None,
        "ranks": max(1, len(fact.ranks)),
        "says": FIGURES.get(fact.name, fact.name),
        "value": fact.number if unit or fact.digits else round(fact.number),
        "unit": unit or None,
        "unit_means": (MEANT.get(unit, unit) or None),
        "bytes": round(fact.size) if unit else None,
        "expected": None if best is None else _shown(best.value, fact),
        "agrees": agrees,
        "off": off,
        "how": how,
        "fills": None if agrees or agrees is None else fills,
    }


def closest(
    fact: Fact, ways: list[tuple[Span, str]], fills: str | None = None, slack: float = 0.0
) -> Answer:
    """Hold a figure against several rules; the first that agrees counts, or else the first."""
    judged = [figure(fact, should, how, fills, slack) for should, how in ways]
    return next((j for j in judged if j["agrees"]), judged[0])


def _shown(value: float, fact: Fact) -> float:
    """Give a computed number in the unit of the figure."""
    shown = value / SIZES.get(fact.unit, 1)
    return round(shown) if not fact.unit and not fact.digits else shown


def number(value: float, unit: str = "") -> str:
    """Write a number into a sentence: whole ones whole, others to four digits."""
    text = f"{value:,.0f}" if abs(value) >= 10_000 or value == round(value) else f"{value:,.5g}"
    return f"{text} {unit}" if unit else text


def gib(value: float) -> str:
    """Write bytes in GiB."""
    return f"{value / 2**30:,.4g} GiB"


def said(fact: Fact) -> str:
    """Write a figure as the log has it, in the unit that it means."""
    unit = MEANT.get(fact.unit, fact.unit)
    return f"{fact.number:,.{fact.digits}f}{' ' + unit if unit else ''}"
