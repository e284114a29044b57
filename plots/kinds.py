"""The kinds of figures, each a module that is imported when it is drawn."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError, nearest, printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Kind:
    """A kind of figure."""

    says: str
    """What it shows, in one sentence."""
    command: str
    """The command whose answer it draws."""
    options: tuple[str, ...] = ()
    """What else its `draw` takes."""
    in_studies: bool = True
    """Whether the rows of a study hold what it draws."""


KINDS = {
    "sweep": Kind(
        "Time and throughput against batch, with the largest batch that fits.",
        "sweep", ("latency_s",),
    ),
    "roofline": Kind(
        "Every operator under the roof of its machine, decode beside prefill.", "roofline"
    ),
    "pareto": Kind(
        "Two columns against each other, with the rows that no other row beats.",
        "compare", ("x", "y", "better"),
    ),
    "memory": Kind("What fills the memory, row by row, beside the capacity.", "fit"),
    "cache": Kind("Cache and state of a sequence against its context.", "compare"),
    "reuse": Kind(
        "What batching shares: bytes of a token and intensities against batch.", "roofline"
    ),
    "laws": Kind("One step of speculative sampling: draft, accepted, output.", "speculate"),
    "speculation": Kind("Speed-up of speculation against batch.", "speculate"),
    "heatmap": Kind("A column over two others, as colours and numbers.", "sweep", ("x", "y", "z")),
    "tornado": Kind("What changes a step most: sensitivities of time, or levers.", "explain"),
    "accuracy": Kind("Estimates against published measurements, with their bands.", "accuracy",
                     in_studies=False),
    "plan": Kind("Throughput of a device against latency: the best layouts.", "plan",
                 in_studies=False),
    "timeline": Kind("Live traffic over time: what decodes, what waits, the cache.", "serve",
                     in_studies=False),
    "latencies": Kind("How long users wait for tokens: shares of requests and tokens.", "serve",
                      in_studies=False),
    "throughput-latency": Kind("What users wait against throughput, rate by rate.", "serve"),
    "validation": Kind("Measured steps of a device against what was predicted.", "validate",
                       in_studies=False),
    "lines": Kind("One column against another.", "sweep", ("x", "y", "log")),
}  # fmt: skip
"""Every kind by its name, which is that of its module with a hyphen for its underscore."""


def draw(kind: str, answer: Mapping[str, Any], **options: Any) -> Figure:
    """Draw an answer as a kind of figure; options that are None are left to the kind.

    Raises `RooflmError` for an unknown kind or option, and for an answer that has nothing to draw.
    """
    import importlib

    if kind not in KINDS:
        fix = nearest(kind, KINDS) or f"Known: {', '.join(KINDS)}."
        raise RooflmError(f"unknown kind of figure '{printable(kind, 40)}'", "", fix)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in KINDS[kind].options:
            known = ", ".join(KINDS[kind].options)
            fix = f"It has {known}." if known else "It has none."
            raise RooflmError(f"the figure has no option '{printable(name, 40)}'", kind, fix)
    module = importlib.import_module(f".{kind.replace('-', '_')}", __package__)
    from .style import plain_text

    try:
        with plain_text():
            return module.draw(answer, **given)
    except KeyError as e:
        fix = f"It draws what `rooflm {KINDS[kind].command} --format json` prints."
        raise RooflmError(f"the answer has no '{e.args[0]}'", kind, fix) from None
