"""What the clock of a server counts: ticks, kinds of requests, limits, what runs, and a trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

TICKS = 2**70
"""Ticks of a second: half a million steps add up to 1e-13 of their sum."""

First = Literal["decode", "prefill", "static"]


class StepCost(Protocol):
    """Ticks of the steps of an engine."""

    def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
        """Tell the ticks of a decode step, how much longer each next one is, and for how many.

        sequences: that decode; tokens: that they see in the first step, their new ones included;
        more: what they see of caches that have a limit.
        """
        ...

    def mixed(
        self, sequences: int, tokens: int, more: Sequence[Counted],
        chunks: Sequence[tuple[int, int]], ends: int,
    ) -> int:  # fmt: skip
        """Tell the ticks of a step that computes prompts as well.

        chunks: of prompts, new and cached tokens of each; ends: how many of them end a prompt.
        """
        ...

    def moved(self, tokens: int) -> int:
        """Tell the ticks in which the cache of a sequence goes to host memory or comes back."""
        ...


@dataclass(frozen=True)
class Kind:
    """A kind of layers by what they see and keep of a context."""

    limit: int
    """Most tokens."""
    units: int = 0
    """Of the pool, that a block of it takes; 0 where it is only read."""
    wraps: bool = False
    """At the limit it begins anew (chunks), and does not stay there (windows)."""


@dataclass(frozen=True)
class Limits:
    """What a step and the cache may hold, and the policy."""

    pool: int
    """Units of memory for caches: blocks, unless `units` says otherwise."""
    block: int = 16
    """Tokens of a block."""
    tokens: int = 2048
    """Tokens of a step: decoded ones and those of prompts."""
    sequences: int = 256
    """Sequences that run at once."""
    watermark: int = 0
    """Units that stay free when a request is admitted."""
    first: First = "decode"
    """What goes first: decoding, with prompts in chunks of what is left of the tokens of a step;
    or prompts, whole and in steps of their own, while decoding waits. static: a batch is admitted
    when the one before has ended, and its slots are held and computed until its longest ends."""
    units: int = 1
    """Of the pool, that a block of the layers without a limit takes."""
    kinds: tuple[Kind, ...] = ()
    """Layers that see or keep no more than a limit."""
    fixed: int = 0
    """Units that a sequence takes whatever its length: its states."""
    swap: int = 0
    """Units of host memory that sequences which give way go to; 0: they are computed again."""

    @property
    def whole_blocks(self) -> bool:
        """Tell whether a unit is a block: all layers keep all tokens, and nothing else."""
        return self.units == 1 and not self.fixed and not any(k.units for k in self.kinds)


class Served:
    """A request in the engine."""

    # What it starts with is the class's: there are millions, and each sets what it comes to.
    cached = 0
    """Tokens in the cache at step `since`."""
    since = 0
    serial = -1
    """Of its start in the batch; -1 outside of it."""
    order = 0
    """Of its admission."""
    resident = False
    """Its cache exists elsewhere: it need not be computed, and is brought in."""
    last = 0
    """When its last token came [ticks]."""
    room = 0
    """Units that are set aside for it, where that does not follow from its tokens."""

    def __init__(
        self, i: int, prompt: int, output: int, rank: tuple[int, ...], generated: int = 0
    ) -> None:
        """Make a request of so many tokens.

        rank: order among others: priority, arrival, number; empty where there are no priorities.
        """
        self.i, self.prompt, self.output, self.rank = i, prompt, output, rank
        self.generated = generated

    @property
    def whole(self) -> int:
        """Tokens that are computed before its next one: prompt and output so far."""
        return self.prompt + self.generated


@dataclass(slots=True)
class Counted:
    """What the sequences that decode see of the caches of a kind."""

    kind: Kind
    tokens: int = 0
    """Without the new ones."""
    growing: int = 0
    """Sequences whose new token adds to it."""


@dataclass
class Trace:
    """What became of requests, by their number; -1 for what has not happened."""

    start: list[int]
    """When the first step that computes it began [ticks]."""
    first: list[int]
    """When the first token came [ticks]."""
    finish: list[int]
    preemptions: dict[int, int] = field(default_factory=dict[int, int])
    """How often a request gave way, of those that did."""


def new_trace(requests: int) -> Trace:
    """Make the trace of requests that have not come yet."""
    return Trace([-1] * requests, [-1] * requests, [-1] * requests)


WIDTH = 11
"""Numbers of a row, which tells of the steps of a server between two events: how many, sequences
that decode, how many of these had their last token before the step, ticks of the first step, how
much longer each next one is, tokens of prompts in each, when they began [ticks], units of the pool
that are free after them, requests that wait, tokens in the caches of those that decode before them,
and units that decoding took in the course of them. Rows follow each other in one list."""
Late = tuple[int, int, int]
"""Tokens that came later than a step after the one before: how many, after what time, and when."""
ROWS = 65_536
"""Rows that a server keeps before it hands them over."""
