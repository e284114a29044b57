"""A server as a plain loop over steps and sequences: what the event clock is faster than.

The loop of an engine, written as engines write it: each step is scheduled sequence by sequence
(decodes first, then prompts in chunks of what is left of the tokens, first come, first served; the
last one gives way), takes the ticks that the same step times tell, and is then booked sequence by
sequence. It keeps what figures are made of: first and last tokens, and the time between any two; it
makes no figures of them.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from rooflm.calc.clock import Limits, StepCost
from rooflm.calc.workload import Workload


@dataclass(slots=True, eq=False)
class Sequence:
    """A request in the loop."""

    i: int
    whole: int
    """Tokens to compute before its next one."""
    left: int
    """Tokens that are still to come."""
    cached: int = 0
    room: int = 0
    """Tokens that its blocks hold."""
    take: int = 0
    """Tokens of this step."""
    last: int = 0
    """When its last token came [ticks]."""
    decodes: bool = False
    """Its prompt, and what it had yielded when it gave way, are in the cache."""


def serve(work: Workload, cost: StepCost, limits: Limits) -> tuple[list[int], list[int], list[int]]:
    """Serve requests that come at their times; returns first and last tokens, and all gaps."""
    block, budget, most = limits.block, limits.tokens, limits.sequences
    first, finish = [-1] * len(work.prompt), [-1] * len(work.prompt)
    coming = deque(
        (at, Sequence(i, prompt, output))
        for i, (at, prompt, output) in enumerate(
            zip(work.arrival, work.prompt, work.output, strict=True)
        )
    )
    waiting: deque[Sequence] = deque()
    running: list[Sequence] = []
    clock, free, gaps = 0, limits.pool, list[int]()
    while coming or waiting or running:
        while coming and coming[0][0] <= clock:
            waiting.append(coming.popleft()[1])
        if not (waiting or running):
            clock = coming[0][0]
            continue
        room, place, gave_way = budget, 0, False
        decoding = seen = ends = 0
        chunks: list[tuple[int, int]] = []
        while place < len(running):
            one = running[place]
            take = one.whole - one.cached
            if take > room:
                take = room
            while one.cached + take > one.room:
                need = -(-(one.cached + take - one.room) // block)
                if need <= free:
                    free -= need
                    one.room += need * block
                    break
                # The last one gives way and is computed again.
                victim = running.pop()
                gave_way = True
                free += victim.room // block
                victim.cached = victim.room = 0
                victim.decodes = False
                waiting.appendleft(victim)
                if victim is one:
                    break
            if place == len(running):
                break
            one.take = take
            room -= take
            if one.decodes:
                decoding += 1
                seen += one.cached + 1
            elif take:
                chunks.append((take, one.cached))
                ends += one.cached + take == one.whole
            place += 1
        while waiting and room > 0 and len(running) < most and not gave_way:
            one = waiting[0]
            take = one.whole if one.whole < room else room
            need = -(-take // block)
            if need > free - limits.watermark:
                break
            waiting.popleft()
            free -= need
            one.room, one.take = need * block, take
            room -= take
            running.append(one)
            chunks.append((take, 0))
            ends += take == one.whole
            if take < one.whole:
                break
        if chunks:
            clock += cost.mixed(decoding, seen, (), chunks, ends)
        else:
            clock += cost.run(decoding, seen, ())[0]
        through: list[Sequence] = []
        for one in running:
            one.cached += one.take
            if one.cached == one.whole:
                one.whole += 1
                one.left -= 1
                one.decodes = True
                if first[one.i] < 0:
                    first[one.i] = clock
                else:
                    gaps.append(clock - one.last)
                one.last = clock
                if one.left == 0:
                    finish[one.i] = clock
                    free += one.room // block
                    through.append(one)
            one.take = 0
        if through:
            running = [one for one in running if one.left]
    return first, finish, gaps
