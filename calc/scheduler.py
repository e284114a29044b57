"""Iteration-level scheduling of live requests, exact and by events: the clock of a server.

Every step of the engine decodes one token of each running sequence and, with what is left of a
budget of tokens, computes prompts in chunks. Between two events (an arrival that can be admitted,
a completion, an empty pool) steps differ only by the tokens in their caches, so that their times
add up in closed form. Time is a whole number of ticks: sums are exact, and ties stay ties.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

TICKS = 2**70
"""Ticks of a second: half a million steps add up to 1e-13 of their sum."""


class StepCost(Protocol):
    """Ticks of the steps of an engine."""

    def decode(self, sequences: int) -> tuple[int, int]:
        """Tell the ticks of a decode step: fixed, and for each token in the caches."""
        ...

    def mixed(self, sequences: int, tokens: int, chunks: Sequence[tuple[int, int]]) -> int:
        """Tell the ticks of a step that computes prompts as well.

        sequences: that decode; tokens: in their caches, the new ones included; chunks: of prompts,
        new and cached tokens of each.
        """
        ...


@dataclass(frozen=True)
class Limits:
    """What a step and the cache may hold."""

    blocks: int
    """Blocks of the cache."""
    block: int = 16
    """Tokens of a block."""
    tokens: int = 2048
    """Tokens of a step: decoded ones and those of prompts."""
    sequences: int = 256
    """Sequences that run at once."""
    watermark: int = 0
    """Blocks that stay free when a request is admitted."""
    first: Literal["decode", "prefill"] = "decode"
    """What goes first: decoding, with prompts in chunks of what is left of the tokens of a step; or
    prompts, whole and in steps of their own, while decoding waits."""


@dataclass(frozen=True)
class Request:
    """A request: when it comes [ticks], its prompt and its output [tokens]."""

    arrival: int
    prompt: int
    output: int


@dataclass
class Trace:
    """What became of requests, by their number; -1 for what has not happened."""

    first: list[int] = field(default_factory=list[int])
    """When the first token came [ticks]."""
    finish: list[int] = field(default_factory=list[int])
    preemptions: list[int] = field(default_factory=list[int])
    steps: int = 0
    events: int = 0
    least_free: int = 0
    """Fewest blocks that were free."""


class Server:
    """An engine that decodes first, computes prompts in chunks, and preempts by recomputing.

    First come, first served; the last admitted gives way. `advance` runs to a time, or until all
    requests are done.
    """

    def __init__(
        self, requests: Sequence[Request], cost: StepCost, limits: Limits,
        record: Callable[[int, int, int, int, int], None] | None = None,
    ) -> None:  # fmt: skip
        """Start with an empty engine; record: told of each run of steps, see `_run`."""
        self.requests, self.cost, self.limits, self.record = requests, cost, limits, record
        self.clock = 0
        self.trace = Trace([-1] * len(requests), [-1] * len(requests), [0] * len(requests))
        self.trace.least_free = limits.blocks
        self._next = 0
        self._front: deque[int] = deque()
        self._waiting: deque[int] = deque()
        self._running: dict[int, None] = {}
        self._free = limits.blocks
        # Of each request: tokens in the cache at step `since`, tokens generated, life it is in.
        self._cached = [0] * len(requests)
        self._since = [0] * len(requests)
        self._generated = [0] * len(requests)
        self._life = [0] * len(requests)
        self._ends: list[tuple[int, int, int]] = []
        self._tokens = 0
        self._demand = [0] * limits.block
        self._partial = -1

    @property
    def done(self) -> bool:
        """Tell whether every request has come and gone."""
        return not (
            self._running or self._waiting or self._front or self._partial >= 0
            or self._next < len(self.requests)
        )  # fmt: skip

    def advance(self, until: int | None = None) -> None:
        """Run until no step begins before a time, or until all is done."""
        while not self.done and (until is None or self.clock < until):
            self._arrive()
            if not (self._running or self._waiting or self._front or self._partial >= 0):
                self.clock = self.requests[self._next].arrival
                continue
            self.trace.events += 1
            admissible = self._admissible()
            if admissible and self.limits.first == "prefill":
                self._prefill()
            elif self._partial >= 0 or admissible or not self._decode_fits():
                self._step()
            else:
                self._run(until)

    def _arrive(self) -> None:
        """Queue the requests that have come."""
        while self._next < len(self.requests) and self.requests[self._next].arrival <= self.clock:
            self._waiting.append(self._next)
            self._next += 1

    def _decode_fits(self) -> bool:
        return self._demand[self.trace.steps % self.limits.block] <= self._free

    def _head(self) -> int:
        return self._front[0] if self._front else self._waiting[0] if self._waiting else -1

    def _admissible(self) -> bool:
        """Tell whether the next step admits a request."""
        head = self._head()
        if head < 0 or len(self._running) >= self.limits.sequences:
            return False
        if self.limits.first == "prefill":
            return self._blocks(self._whole(head)) <= self._free - self.limits.watermark
        room = self.limits.tokens - len(self._running)
        if room <= 0:
            return False
        need = self._blocks(min(room, self._whole(head)))
        spare = self._free - self._demand[self.trace.steps % self.limits.block]
        return need <= spare - self.limits.watermark

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block)

    def _whole(self, i: int) -> int:
        """Tokens that a request has to compute before its next one: prompt and output so far."""
        return self.requests[i].prompt + self._generated[i]

    def _run(self, until: int | None) -> None:
        """Run decode steps up to the next event, in closed form."""
        n, block = len(self._running), self.limits.block
        step = self.trace.steps
        fixed, each = self.cost.decode(n)
        k = self._ends[0][0] - step
        # Lives that ended leave their ends behind.
        while self._ends[0][2] != self._life[self._ends[0][1]]:
            heapq.heappop(self._ends)
            k = self._ends[0][0] - step
        k = min(k, self._steps_of_pool(k, step, n, block))
        first = fixed + each * (self._tokens + n)
        rise = each * n
        stop = until
        full = n >= self.limits.sequences or (
            n >= self.limits.tokens and self.limits.first == "decode"
        )
        if self._head() < 0 and not full and self._next < len(self.requests):
            arrival = self.requests[self._next].arrival
            stop = arrival if stop is None else min(stop, arrival)
        if stop is not None:
            k = min(k, steps_until(first, rise, stop - self.clock))
        taken = k * first + rise * (k * (k - 1) // 2)
        self.clock += taken
        used = self._demanded(step, k)
        self._free -= used
        self.trace.least_free = min(self.trace.least_free, self._free)
        if self.record is not None:
            self.record(k, n, first, rise, self.clock - taken)
        self.trace.steps += k
        self._tokens += n * k
        self._complete()

    def _steps_of_pool(self, most: int, step: int, n: int, block: int) -> int:
        """Count the steps, up to a number, that the free blocks last; at least one does."""
        free = self._free
        whole = free // n * block if n else most
        # Even if all needed a block in the first step of each turn, so many turns would fit.
        if most <= whole - block:
            return most
        steps = 0
        while steps < most:
            need = self._demand[(step + steps) % block]
            if need > free:
                break
            free -= need
            steps += 1
            if steps % block == 0 and n <= free:
                # A whole turn takes one block of each sequence.
                turns = min(free // n, (most - steps) // block)
                free -= turns * n
                steps += turns * block
        return steps

    def _demanded(self, step: int, k: int) -> int:
        """Count the blocks that k decode steps take."""
        block = self.limits.block
        whole, rest = divmod(k, block)
        start = step % block
        return whole * len(self._running) + sum(
            self._demand[(start + j) % block] for j in range(rest)
        )

    def _complete(self) -> None:
        """Let the sequences go that have all their tokens."""
        while self._ends and self._ends[0][0] <= self.trace.steps:
            _, i, life = heapq.heappop(self._ends)
            if life == self._life[i]:
                self._generated[i] = self.requests[i].output
                self._leave(i)
                self.trace.finish[i] = self.clock

    def _leave(self, i: int) -> None:
        """Take a sequence that decodes out of the batch and free its blocks."""
        del self._running[i]
        cached = self._cached[i] + self.trace.steps - self._since[i]
        self._tokens -= cached
        self._demand[(self._since[i] - self._cached[i]) % self.limits.block] -= 1
        self._free += self._blocks(cached)
        self._life[i] += 1

    def _step(self) -> None:
        """Run one step that may preempt, go on with a prompt, and admit others."""
        limits, step = self.limits, self.trace.steps
        preempted = False
        while self._demand[step % limits.block] > self._free:
            self._preempt()
            preempted = True
        decoding = len(self._running)
        tokens = self._tokens + decoding
        self._free -= self._demand[step % limits.block]
        room = limits.tokens - decoding
        chunks: list[tuple[int, int]] = []
        through: list[int] = []
        if self._partial >= 0 and room > 0:
            room, preempted = self._go_on(room, chunks, through, preempted)
        if not preempted and limits.first == "decode":
            self._admit(room, chunks, through)
        self.trace.least_free = min(self.trace.least_free, self._free)
        if chunks:
            taken = self.cost.mixed(decoding, tokens, chunks)
        else:
            fixed, each = self.cost.decode(decoding)
            taken = fixed + each * tokens if decoding else 0
        self.clock += taken
        if self.record is not None:
            self.record(1, decoding, taken, 0, self.clock - taken)
        self.trace.steps += 1
        self._tokens += decoding
        for i in through:
            self._start(i)
        self._complete()

    def _prefill(self) -> None:
        """Run one step that computes whole prompts, while decoding waits."""
        chunks: list[tuple[int, int]] = []
        through: list[int] = []
        limits, room = self.limits, self.limits.tokens
        while len(self._running) + len(through) < limits.sequences:
            head = self._head()
            whole = self._whole(head) if head >= 0 else 0
            need = self._blocks(whole)
            # A prompt longer than a step may be has one of its own.
            if head < 0 or need > self._free - limits.watermark or (chunks and whole > room):
                break
            (self._front or self._waiting).popleft()
            self._free -= need
            self._cached[head] = whole
            chunks.append((whole, 0))
            through.append(head)
            room -= whole
        self.trace.least_free = min(self.trace.least_free, self._free)
        taken = self.cost.mixed(0, 0, chunks)
        self.clock += taken
        if self.record is not None:
            self.record(1, 0, taken, 0, self.clock - taken)
        # Decoding sequences stay as they are: their steps are counted from here on.
        for i in through:
            self._start(i)
        self._complete()

    def _go_on(
        self, room: int, chunks: list[tuple[int, int]], through: list[int], preempted: bool
    ) -> tuple[int, bool]:
        """Compute the next chunk of the prompt that is under way; it gives way where none fits."""
        i = self._partial
        past = self._cached[i]
        take = min(room, self._whole(i) - past)
        need = self._blocks(past + take) - self._blocks(past)
        if need > self._free:
            self._preempt()
            return room, True
        self._free -= need
        self._cached[i] = past + take
        chunks.append((take, past))
        if past + take == self._whole(i):
            through.append(i)
            self._partial = -1
        return room - take, preempted

    def _admit(self, room: int, chunks: list[tuple[int, int]], through: list[int]) -> None:
        """Admit waiting requests while tokens, sequences and blocks last."""
        limits = self.limits
        while self._partial < 0 and room > 0:
            head = self._head()
            if head < 0 or len(self._running) + len(through) >= limits.sequences:
                return
            take = min(room, self._whole(head))
            need = self._blocks(take)
            if need > self._free - limits.watermark:
                return
            (self._front or self._waiting).popleft()
            self._free -= need
            self._cached[head] = take
            chunks.append((take, 0))
            room -= take
            if take == self._whole(head):
                through.append(head)
            else:
                self._partial = head

    def _start(self, i: int) -> None:
        """Show the token that a prompt ends with, and decode from now on."""
        self._generated[i] += 1
        if self.trace.first[i] < 0:
            self.trace.first[i] = self.clock
        left = self.requests[i].output - self._generated[i]
        if left == 0:
            self.trace.finish[i] = self.clock
            self._free += self._blocks(self._cached[i])
            self._life[i] += 1
            return
        self._running[i] = None
        self._since[i] = self.trace.steps
        self._tokens += self._cached[i]
        self._demand[(self.trace.steps - self._cached[i]) % self.limits.block] += 1
        heapq.heappush(self._ends, (self.trace.steps + left, i, self._life[i]))

    def _preempt(self) -> None:
        """Send the last admitted back to the head of the queue; all of it is computed again."""
        if self._partial >= 0:
            i, self._partial = self._partial, -1
            self._free += self._blocks(self._cached[i])
        else:
            i = next(reversed(self._running))
            self._generated[i] += self.trace.steps - self._since[i]
            self._leave(i)
        self.trace.preemptions[i] += 1
        self._cached[i] = 0
        self._front.appendleft(i)


def steps_until(first: int, rise: int, gap: int) -> int:
    """Count the steps until a time has passed: the least k of k first + rise k(k - 1)/2 >= gap."""
    if gap <= first:
        return 1
    if rise == 0:
        return -(-gap // first)
    # Integers throughout: a float root would part from the sum at ties.
    half = 2 * first - rise
    k = max(1, (math.isqrt(half * half + 8 * rise * gap) - half) // (2 * rise))
    while k * first + rise * (k * (k - 1) // 2) < gap:
        k += 1
    while k > 1 and (k - 1) * first + rise * ((k - 1) * (k - 2) // 2) >= gap:
        k -= 1
    return k
