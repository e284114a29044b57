"""Step times of a server that drafts: an approximation by the mean of accepted tokens.

A round of drafting and verification yields some tokens on average; here each token takes that
share of a round, so that steps stay lines and requests of the same length end together. Left out:
that tokens come several at once, that requests differ by their luck, and the prefill of the draft.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .clock import TICKS, Counted
from .errors import RooflmError
from .speculate import run_round

if TYPE_CHECKING:
    from .speculate import Speculation
    from .step_cost import Steps


@dataclass
class SpeculativeSteps:
    """Ticks of the tokens of a server that drafts."""

    plain: Steps
    asked: Speculation
    gamma: int
    """Drafted tokens of a round."""
    basis: str
    contexts: Sequence[int]
    """At which rounds are timed; lines between them [tokens]."""
    _lines: dict[int, tuple[list[int], list[int]]] = field(
        default_factory=dict[int, "tuple[list[int], list[int]]"]
    )

    @property
    def tokens(self) -> float:
        """Mean tokens of a round [tokens]."""
        return self.asked.proposal(self.gamma).tokens

    def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
        """Tell the ticks of a token of each, how much longer the next ones take, for how many."""
        del more
        lines = self._lines.get(sequences)
        if lines is None:
            lines = self._lines[sequences] = self._timed(sequences)
        ends, ticks = lines
        piece = min(max(1, bisect_left(ends, tokens)), len(ends) - 1)
        low, high = ends[piece - 1], ends[piece]
        rise = (ticks[piece] - ticks[piece - 1]) // max(1, high - low)
        first = ticks[piece - 1] + rise * (tokens - low)
        most = 2**50 if piece == len(ends) - 1 else max(0, high - tokens) // sequences + 1
        return first, rise * sequences, most

    def _timed(self, sequences: int) -> tuple[list[int], list[int]]:
        """Time rounds of equal sequences at some contexts."""
        ends: list[int] = []
        ticks: list[int] = []
        for S in self.contexts:
            seconds = run_round(self.asked, sequences, S, self.gamma).seconds(self.basis)
            if seconds is None:
                what = f"no estimate of a round of {sequences:,} sequences"
                raise RooflmError(what, "--basis", "Take --basis bound.")
            ends.append(sequences * S)
            ticks.append(round(seconds / self.tokens * TICKS))
        return ends, ticks

    def mixed(
        self, sequences: int, tokens: int, more: Sequence[Counted],
        chunks: Sequence[tuple[int, int]], ends: int,
    ) -> int:  # fmt: skip
        """Tell the ticks of a step that computes prompts as well: what these add to a plain one."""
        whole = self.plain.mixed(sequences, tokens, more, chunks, ends)
        if not sequences:
            return whole
        added = whole - self.plain.run(sequences, tokens, more)[0]
        # Nothing that computes a prompt is shorter than the plain step that does.
        return max(whole, self.run(sequences, tokens, more)[0] + max(0, added))

    def moved(self, tokens: int) -> int:
        """Tell the ticks in which a cache goes to host memory or comes back."""
        return self.plain.moved(tokens)


def timed_contexts(longest: int) -> list[int]:
    """List the contexts at which rounds are timed: powers of four up to the longest [tokens]."""
    contexts = [64]
    while contexts[-1] < longest:
        contexts.append(contexts[-1] * 4)
    return contexts if len(contexts) > 1 else [64, 256]
