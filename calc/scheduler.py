"""Iteration-level scheduling of live requests, exact and by events: the clock of a server.

Every step of the engine decodes one token of each running sequence and, with what is left of a
budget of tokens, computes prompts in chunks (Orca, OSDI 2022; Sarathi-Serve, arXiv 2403.02310).
Between two events (an arrival that can be admitted, a completion, a full window, an empty pool)
steps differ only by the tokens in their caches, so that their times add up in closed form. Time is
a whole number of ticks: sums are exact, and ties stay ties.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Callable, Sequence

from .clock import ROWS, WIDTH, Counted, Late, Limits, Served, StepCost, Trace
from .waiting import Queue


class Server:
    """An engine: first come, first served within a priority; the last to be served gives way.

    `submit` hands it requests, in the order of their arrival; `advance` runs to a time, or until
    all of them are done.
    """

    shares = False
    """Caches have content that others may find."""

    def __init__(
        self, cost: StepCost, limits: Limits, trace: Trace,
        record: Callable[[list[int], list[Late]], None] | None = None,
        ended: Callable[[int, int], None] | None = None,
        ranked: bool = False,
    ) -> None:  # fmt: skip
        """Start with an empty engine.

        trace: shared by the servers of a deployment; record: is given rows of steps; ended: told
        of each request that is done, and when; ranked: requests have priorities.
        """
        self.cost, self.limits, self.trace = cost, limits, trace
        self.record, self.ended = record, ended
        self.clock: int = 0
        self.steps: int = 0
        self.events: int = 0
        self.swaps: int = 0
        self.idle: int = 0
        self.free: int = limits.pool
        self.least_free: int = limits.pool
        self.host: int = limits.swap
        # Arrivals in order, and who comes: a request, or the number of one that `submit_all` knows.
        self._at: list[int] = []
        self._who: list[int | Served] = []
        self._next: int = 0
        self._prompt: Sequence[int] = ()
        self._output: Sequence[int] = ()
        self.waiting = Queue(ranked)
        self.running: dict[Served, None] = {}
        self._serial = self._order = 0
        # Ends of sequences, and steps at which caches of a kind are full: step, serial, kind.
        self._ends: list[tuple[int, int, Served]] = []
        self._turns: list[tuple[int, int, int, Served]] = []
        self._tokens: int = 0
        self._more = [Counted(kind) for kind in limits.kinds]
        self._keeps = [kind for kind in limits.kinds if kind.units]
        # Units that the next tokens take, by the step, and in a whole turn of a block.
        self._demand = [0] * limits.block
        # Up to so many sequences an arrival may be admitted while steps run.
        self._open = limits.sequences
        if limits.first == "decode":
            self._open = min(limits.sequences, limits.tokens)
        elif limits.first == "static":
            self._open = 0
        self._turn: int = 0
        self.partial: Served | None = None
        self._rows: list[int] = []
        self.late: list[Late] = []
        # Decoding first, memory as a count of blocks of one kind: what `_usual` is written for.
        self._simple = (
            type(self) is Server and limits.first == "decode" and not limits.kinds
            and not limits.fixed and not ranked
        )  # fmt: skip
        # Sequences that wait for steps that computed prompts alone: how many, in the order of the
        # batch, and when their last token came.
        self._held_up: list[tuple[int, int]] = []

    def submit(
        self, i: int, arrival: int, prompt: int, output: int, priority: int = 0,
        generated: int = 0,
    ) -> None:  # fmt: skip
        """Hand over a request; with generated tokens, its cache was computed elsewhere."""
        rank = (priority, arrival, i) if self.waiting.ranked else ()
        sequence = Served(i, prompt, output, rank, generated)
        if generated:
            sequence.resident, sequence.cached = True, prompt + generated - 1
            sequence.last = arrival
        place = len(self._at)
        if self._at and arrival <= self._at[-1]:
            place = bisect_right(self._at, arrival, lo=self._next)
            # Those that come at once are in the order of their numbers.
            while place > self._next and self._at[place - 1] == arrival and self._i(place - 1) > i:
                place -= 1
        self._at.insert(place, arrival)
        self._who.insert(place, sequence)

    def submit_all(
        self, arrival: Sequence[int], prompt: Sequence[int], output: Sequence[int]
    ) -> None:
        """Hand over all requests of a workload, by their numbers and in the order of arrival."""
        self._at, self._who = list(arrival), list(range(len(arrival)))
        self._prompt, self._output = prompt, output

    def _i(self, place: int) -> int:
        """Tell the number of a request that comes."""
        one = self._who[place]
        return one if isinstance(one, int) else one.i

    @property
    def done(self) -> bool:
        """Tell whether every request has come and gone."""
        return not (self.running or self.waiting.head or self.partial or self._next < len(self._at))

    @property
    def load(self) -> int:
        """Requests that have come and are not done."""
        coming = bisect_right(self._at, self.clock, lo=self._next) - self._next
        # Of a static batch those that have ended still hold their slots.
        running = len(self._ends) if self.limits.first == "static" else len(self.running)
        return running + len(self.waiting) + (self.partial is not None) + coming

    def advance(self, until: int | None = None) -> None:
        """Run until no step begins before a time, or until all is done."""
        # This loop and what it calls run a few times for each request: names are kept at hand.
        at, waiting, running, rows = self._at, self.waiting, self.running, self._rows
        block, whole_first = self.limits.block, self.limits.first != "decode"
        while until is None or self.clock < until:
            if self._next < len(at) and at[self._next] <= self.clock:
                self._arrive()
            head = waiting.head
            if head is None and self.partial is None and self._simple:
                self._usual(until)
                if len(rows) >= ROWS * WIDTH:
                    self.flush()
                if until is not None and self.clock >= until:
                    return
                if self._next < len(at) and at[self._next] <= self.clock:
                    self._arrive()
                head = waiting.head
            if head is None and self.partial is None and not running:
                if self._next >= len(at):
                    return
                arrival = at[self._next]
                if until is not None and arrival >= until:
                    return
                self.idle += arrival - self.clock
                self.clock = arrival
                continue
            self.events += 1
            if head is not None:
                head = self._admissible(head)
            if head is not None and whole_first and not head.resident:
                self._prefill()
            elif (
                head is not None or self.partial is not None
                or self._demand[self.steps % block] > self.free
            ):  # fmt: skip
                self._step()
            else:
                self._run(until)
            if len(rows) >= ROWS * WIDTH:
                self.flush()

    def flush(self) -> None:
        """Hand over the rows that were kept."""
        if self.record is not None:
            self.record(self._rows, self.late)
        del self._rows[:]
        self.late.clear()

    def _arrive(self) -> None:
        """Queue the requests that have come."""
        at, who, clock, place = self._at, self._who, self.clock, self._next
        while place < len(at) and at[place] <= clock:
            one = who[place]
            if isinstance(one, int):
                one = Served(one, self._prompt[one], self._output[one], ())
            self.waiting.append(one)
            place += 1
        self._next = place
        if place > ROWS:
            del at[:place], who[:place]
            self._next = 0

    def hold(self, tokens: int) -> int:
        """Count the units that the cache of a sequence takes."""
        limits = self.limits
        held = limits.fixed - -tokens // limits.block * limits.units
        for kind in self._keeps:
            held -= -min(tokens, kind.limit) // limits.block * kind.units
        return held

    def _admissible(self, head: Served) -> Served | None:
        """Tell whether the next step admits a request that heads the queue."""
        limits = self.limits
        if len(self.running) >= limits.sequences:
            return None
        if limits.first == "static":
            return None if self.running else head
        spare = self.free - limits.watermark
        if limits.first == "prefill" and not head.resident:
            return head if self.need(head, head.whole) <= spare else None
        room = limits.tokens - len(self.running)
        if room <= 0 and limits.first == "decode":
            return None
        spare -= self._demand[self.steps % limits.block]
        if head.resident:
            tokens = head.cached + 1
        else:
            found = self.found(head) if self.shares else 0
            tokens = found + min(room, head.prompt + head.generated - found)
        return head if self.need(head, tokens) <= spare else None

    # What caches take: overridden where they are shared, or reserved in one piece.

    def found(self, head: Served) -> int:
        """Count the tokens of a waiting request that are in a cache already."""
        del head
        return 0

    def need(self, head: Served, tokens: int) -> int:
        """Count the units that an admission takes, so that the cache covers its tokens."""
        del head
        return self.hold(tokens)

    def take(self, head: Served, tokens: int, need: int) -> None:
        """Admit a request: its cache covers so many tokens, for which it takes units."""
        del head, tokens
        self.free -= need

    def growth(self, sequence: Served, tokens: int) -> int:
        """Count the units that the next chunk of a prompt takes."""
        return self.hold(tokens) - self.hold(sequence.cached)

    def grow(self, sequence: Served, tokens: int) -> None:
        """Let the cache of a prompt under way cover more tokens."""
        self.free -= self.growth(sequence, tokens)

    def give(self, sequence: Served, tokens: int) -> None:
        """Free what a sequence of so many tokens holds."""
        del sequence
        self.free += self.hold(tokens)

    def make_room(self, index: int) -> tuple[bool, int]:
        """Take what the decoding of a step needs; the last to be served give way until it fits.

        index: of the step within a block. Tells whether any did, and ticks of what was moved.
        """
        gave_way, moved = False, 0
        while self._demand[index] > self.free:
            moved += self.preempt()
            gave_way = True
        self.free -= self._demand[index]
        return gave_way, moved

    def decoded(self, steps: int) -> None:
        """Take what the next steps of the sequences that decode need."""

    def computed(self, sequence: Served) -> None:
        """Note that the tokens of a chunk are in the cache."""

    def _run(self, until: int | None) -> None:
        """Run decode steps up to the next event, in closed form."""
        n, block, step = len(self.running), self.limits.block, self.steps
        ends, turns = self._ends, self._turns
        # Sequences that gave way leave their ends behind.
        while ends[0][2].serial != ends[0][1]:
            heapq.heappop(ends)
        k = ends[0][0] - step
        while turns and turns[0][3].serial != turns[0][1]:
            heapq.heappop(turns)
        if turns and turns[0][0] - step < k:
            k = turns[0][0] - step
        free, turn = self.free, self._turn
        # Even if all needed a block in the first step of each turn, so many turns would fit.
        if turn and k > (free // turn - 1) * block:
            k = self._steps_of_pool(k, step)
        first, rise, most = self.cost.run(n, self._tokens + n, self._more)
        if most < k:
            k = most
        stop = until
        # What heads the queue does not fit; only who overtakes it might.
        if (
            self._next < len(self._at) and n < self._open
            and (self.waiting.head is None or self.waiting.ranked)
        ):  # fmt: skip
            arrival = self._at[self._next]
            if stop is None or arrival < stop:
                stop = arrival
        started = self.clock
        taken = k * first + rise * (k * (k - 1) // 2)
        if stop is not None and taken > stop - started:
            k = min(k, steps_until(first, rise, stop - started))
            taken = k * first + rise * (k * (k - 1) // 2)
        self.clock = started + taken
        used = 0
        if turn:
            whole, rest = divmod(k, block)
            used = whole * turn
            if rest:
                start = step % block
                if start + rest <= block:
                    used += sum(self._demand[start : start + rest])
                else:
                    used += turn - sum(self._demand[start + rest - block : start])
            self.free = free = free - used
            if self.shares:
                self.decoded(k)
            if free < self.least_free:
                self.least_free = free
        if self.record is not None:
            late = self._note_late(started + first) if self._held_up else 0
            waiting, held = len(self.waiting), self._tokens
            if self.limits.first == "static":
                # Slots that are held until the longest ends get no tokens.
                n = len(ends)
            if late and k > 1:
                # What the first of them took is told with the others: it is one step of many.
                self._rows.extend((1, n, late, first, 0, 0, started, free + used, waiting, held, 0))
                self._rows.extend((k - 1, n, 0, first + rise, rise, 0, started + first, free,
                                   waiting, held + n, used))  # fmt: skip
            else:
                self._rows.extend((k, n, late, first, rise, 0, started, free, waiting, held, used))
        self.steps = step = step + k
        self._tokens += len(self.running) * k
        for counted in self._more:
            counted.tokens += counted.growing * k
        if ends[0][0] <= step or (turns and turns[0][0] <= step):
            self._complete()

    def _usual(self, until: int | None) -> None:
        """Run while nobody waits and a prompt is computed in one step: the usual events at once.

        What `_run`, `_step` and `_complete` do with one kind of cache and nothing that gives way or
        waits; whatever else comes up is left to them.
        """
        limits, cost, trace, demand = self.limits, self.cost, self.trace, self._demand
        block, units, record = limits.block, limits.units, self.record is not None
        at, running, ends, rows = self._at, self.running, self._ends, self._rows
        clock, step, tokens, free = self.clock, self.steps, self._tokens, self.free
        turn, place, n, events = self._turn, self._next, len(running), 0
        least, most_rows = self.least_free, ROWS * WIDTH
        # Each look-up counts: this loop is most of a simulation.
        who, push, pop, mixed = self._who, heapq.heappush, heapq.heappop, cost.mixed
        began, first_at, finish = trace.start, trace.first, trace.finish
        try:
            while (until is None or clock < until) and len(rows) < most_rows:
                if place < len(at) and at[place] <= clock:
                    fresh: list[Served] = []
                    chunks: list[tuple[int, int]] = []
                    budget = room = limits.tokens - n
                    taken_blocks = demand[step % block]
                    spare = free - taken_blocks - limits.watermark
                    later = place
                    while later < len(at) and at[later] <= clock:
                        one = who[later]
                        if isinstance(one, int):
                            one = Served(one, self._prompt[one], self._output[one], ())
                        room -= one.prompt
                        spare -= -(-one.prompt // block) * units
                        if one.resident or room < 0 or spare < 0 or n + len(fresh) >= self._open:
                            break
                        fresh.append(one)
                        chunks.append((one.prompt, 0))
                        later += 1
                    if later < len(at) and at[later] <= clock:
                        # Somebody waits, or a prompt is computed in part.
                        break
                    events += 1
                    place = later
                    free = spare + limits.watermark
                    if free < least:
                        least = free
                    taken = mixed(n, tokens + n, (), chunks, len(chunks))
                    if record:
                        rows.extend((1, n, 0, taken, 0, budget - room, clock, free, 0, tokens, 0))
                    started = clock
                    clock += taken
                    step += 1
                    tokens += n
                    for one in fresh:
                        i, prompt = one.i, one.prompt
                        began[i] = started
                        first_at[i] = clock
                        one.generated, one.cached, one.since = 1, prompt, step
                        if one.output == 1:
                            free += -(-prompt // block) * units
                            self._next, self.clock = place, clock
                            self._end(i)
                            continue
                        self._serial += 1
                        one.serial = self._serial
                        running[one] = None
                        n += 1
                        tokens += prompt
                        demand[(step - prompt) % block] += units
                        turn += units
                        push(ends, (step + one.output - 1, self._serial, one))
                elif n == 0:
                    if place >= len(at) or (until is not None and at[place] >= until):
                        break
                    self.idle += at[place] - clock
                    clock = at[place]
                    continue
                else:
                    while ends[0][2].serial != ends[0][1]:
                        pop(ends)
                    k = ends[0][0] - step
                    if turn and k > (free // turn - 1) * block:
                        # The pool may run short.
                        break
                    first, rise, most = cost.run(n, tokens + n, ())
                    if most < k:
                        k = most
                    taken = k * first + rise * (k * (k - 1) // 2)
                    stop = until
                    if place < len(at) and n < self._open and (stop is None or at[place] < stop):
                        stop = at[place]
                    if stop is not None and taken > stop - clock:
                        sooner = steps_until(first, rise, stop - clock)
                        if sooner < k:
                            k = sooner
                        taken = k * first + rise * (k * (k - 1) // 2)
                    events += 1
                    whole, rest, start = k // block, k % block, step % block
                    if start + rest <= block:
                        used = whole * turn + sum(demand[start : start + rest])
                    else:
                        used = whole * turn + turn - sum(demand[start + rest - block : start])
                    free -= used
                    if free < least:
                        least = free
                    if record:
                        rows.extend((k, n, 0, first, rise, 0, clock, free, 0, tokens, used))
                    clock += taken
                    step += k
                    tokens += n * k
                while ends and ends[0][0] <= step:
                    _, serial, one = pop(ends)
                    if serial != one.serial:
                        continue
                    del running[one]
                    one.serial = -1
                    n -= 1
                    cached = one.cached + step - one.since
                    tokens -= cached
                    demand[(one.since - one.cached) % block] -= units
                    turn -= units
                    free += -(-cached // block) * units
                    finish[one.i] = clock
                    if self.ended is not None:
                        # It may hand over the next request of its client.
                        self._next, self.clock = place, clock
                        self.ended(one.i, clock)
        finally:
            # An interrupt finds the figures of what was done.
            self.clock, self.steps, self._tokens, self.free = clock, step, tokens, free
            self._turn, self._next, self.least_free = turn, place, least
            self.events += events
        if place > ROWS:
            del at[:place], self._who[:place]
            self._next = 0

    def _note_late(self, now: int) -> int:
        """Note the tokens of sequences that wait since a time before this step; counts them."""
        groups, self._held_up = self._held_up, []
        self.late += [(count, now - last, now) for count, last in groups]
        return sum(count for count, _ in groups)

    def _steps_of_pool(self, most: int, step: int) -> int:
        """Count the steps, up to a number, that the free units last; at least one does."""
        free, turn, block, demand = self.free, self._turn, self.limits.block, self._demand
        steps = 0
        while steps < most:
            need = demand[(step + steps) % block]
            if need > free:
                break
            free -= need
            steps += 1
            if steps % block == 0 and turn <= free:
                # A whole turn takes what each sequence takes once.
                turns = min(free // turn, (most - steps) // block)
                free -= turns * turn
                steps += turns * block
        return steps

    def _complete(self) -> None:
        """Note full windows, and let the sequences go that have all their tokens."""
        turns, ends, steps = self._turns, self._ends, self.steps
        while turns and turns[0][0] <= steps:
            _, serial, which, sequence = heapq.heappop(turns)
            if serial == sequence.serial:
                self._fill(serial, which, sequence)
        while ends and ends[0][0] <= steps:
            _, serial, sequence = heapq.heappop(ends)
            if serial == sequence.serial:
                self._finish(sequence)
        if self.limits.first == "static" and not ends and self.running:
            for sequence in list(self.running):
                self._leave(sequence)

    def _finish(self, sequence: Served) -> None:
        """Note that a request has all its tokens, and free what it holds."""
        if self.limits.first != "static":
            self._leave(sequence)
        self._end(sequence.i)

    def _end(self, i: int) -> None:
        self.trace.finish[i] = self.clock
        if self.ended is not None:
            self.ended(i, self.clock)

    def _fill(self, serial: int, which: int, sequence: Served) -> None:
        """A sequence has reached the limit of a kind of layers."""
        counted, block = self._more[which], self.limits.block
        kind = counted.kind
        if kind.wraps:
            counted.tokens -= kind.limit
            heapq.heappush(self._turns, (self.steps + kind.limit, serial, which, sequence))
            return
        counted.growing -= 1
        if self.limits.first != "static":
            self._demand[(sequence.since - sequence.cached) % block] -= kind.units
            self._turn -= kind.units

    def _join(self, sequence: Served, step: int, left: int) -> None:
        """Count a sequence among those that decode from a step on."""
        cached = sequence.cached
        self._serial += 1
        sequence.serial, sequence.since = self._serial, step
        self.running[sequence] = None
        self._tokens += cached
        units = self.limits.units
        for which, counted in enumerate(self._more):
            kind = counted.kind
            if kind.wraps:
                seen = cached % kind.limit
                turn = kind.limit - seen
            elif cached < kind.limit:
                seen, turn = cached, kind.limit - cached
                units += kind.units
            else:
                counted.tokens += kind.limit
                continue
            counted.tokens += seen
            counted.growing += 1
            heapq.heappush(self._turns, (step + turn, self._serial, which, sequence))
        if self.limits.first != "static":
            self._demand[(step - cached) % self.limits.block] += units
            self._turn += units
        heapq.heappush(self._ends, (step + left, self._serial, sequence))

    def _leave(self, sequence: Served) -> int:
        """Take a sequence out of the batch and free its units; returns its cached tokens."""
        del self.running[sequence]
        cached = sequence.cached + self.steps - sequence.since
        self._tokens -= cached
        units = self.limits.units
        for counted in self._more:
            kind = counted.kind
            if kind.wraps:
                counted.tokens -= cached % kind.limit
                counted.growing -= 1
            elif cached < kind.limit:
                counted.tokens -= cached
                counted.growing -= 1
                units += kind.units
            else:
                counted.tokens -= kind.limit
        if self.limits.first == "static":
            self.free += sequence.room
        else:
            self._demand[(sequence.since - sequence.cached) % self.limits.block] -= units
            self._turn -= units
            self.give(sequence, cached)
        sequence.serial = -1
        return cached

    def _step(self) -> None:
        """Run one step that may preempt, go on with a prompt, and admit others."""
        limits, step, started = self.limits, self.steps, self.clock
        index = step % limits.block
        gave_way, moved = False, 0
        if self.shares or self._demand[index] > self.free:
            gave_way, moved = self.make_room(index)
        else:
            self.free -= self._demand[index]
        decoding = len(self.running)
        tokens = self._tokens + decoding
        room = limits.tokens - decoding if limits.first == "decode" else 0
        chunks: list[tuple[int, int]] = []
        through: list[Served] = []
        if self.partial is not None and room > 0:
            room, gave_way = self._go_on(room, chunks, through, gave_way)
        joined: list[Served] = []
        if not gave_way:
            moved += self._admit(room, chunks, through, joined)
        for sequence in joined:
            tokens += sequence.cached + 1
            left = sequence.output - sequence.generated
            self._join(sequence, step, left)
        if self.free < self.least_free:
            self.least_free = self.free
        decoding += len(joined)
        if chunks:
            taken = self.cost.mixed(decoding, tokens, self._more, chunks, len(through))
        elif decoding:
            taken = self.cost.run(decoding, tokens, self._more)[0]
        else:
            taken = 0
        taken += moved
        self.clock += taken
        if self.record is not None:
            late = len(joined) + (self._note_late(self.clock) if self._held_up else 0)
            for sequence in joined:
                self.late.append((1, self.clock - sequence.last, self.clock))
            computed, held, waits = _new_tokens(chunks), self._tokens, len(self.waiting)
            self._rows.extend(
                (1, decoding, late, taken, 0, computed, started, self.free, waits, held, 0)
            )
        self.steps += 1
        self._tokens += decoding
        for counted in self._more:
            counted.tokens += counted.growing
        if self.shares:
            for sequence in [*through, *([] if self.partial is None else [self.partial])]:
                self.computed(sequence)
        for sequence in through:
            self._start(sequence)
        if joined and through:
            # The batch is in the order of admission: a prompt under way was there before.
            for sequence in sorted([*through, *joined], key=lambda s: s.order):
                if sequence in self.running:
                    del self.running[sequence]
                    self.running[sequence] = None
        step += 1
        if (self._ends and self._ends[0][0] <= step) or (self._turns and self._turns[0][0] <= step):
            self._complete()

    def _prefill(self) -> None:
        """Run one step that computes whole prompts, while decoding waits."""
        limits, room, started = self.limits, self.limits.tokens, self.clock
        chunks: list[tuple[int, int]] = []
        through: list[Served] = []
        static = limits.first == "static"
        longest = found = 0
        while len(self.running) + len(through) < limits.sequences:
            head = self.waiting.head
            if head is None or head.resident:
                break
            if static:
                # Every slot is held until the longest ends.
                longest = max(longest, head.output)
                slots = [self.hold(s.prompt + longest) for s in [*through, head]]
                if sum(slots) > limits.pool - limits.watermark:
                    break
            else:
                found = self.found(head)
                # A prompt longer than a step may be has one of its own.
                if chunks and head.whole - found > room:
                    break
                need = self.need(head, head.whole)
                if need > self.free - limits.watermark:
                    break
                self.take(head, head.whole, need)
            self._take_head(head)
            head.cached = head.whole
            chunks.append((head.whole - found, found))
            through.append(head)
            room -= head.whole - found
        if static:
            longest = max(s.output for s in through)
            for s in through:
                s.room = self.hold(s.prompt + longest)
                self.free -= s.room
        if self.free < self.least_free:
            self.least_free = self.free
        taken = self.cost.mixed(0, 0, self._more, chunks, len(through))
        self.clock += taken
        if self.record is not None:
            computed, held, waits = _new_tokens(chunks), self._tokens, len(self.waiting)
            self._rows.extend((1, 0, 0, taken, 0, computed, started, self.free, waits, held, 0))
            # Their next token comes after this step and the one that makes it.
            on_time = len(self.running) - sum(count for count, _ in self._held_up)
            if on_time:
                self._held_up.append((on_time, started))
        if self.shares:
            for sequence in through:
                self.computed(sequence)
        # Decoding sequences stay as they are: their steps are counted from here on.
        for sequence in through:
            self._start(sequence)
        self._complete()

    def _go_on(
        self, room: int, chunks: list[tuple[int, int]], through: list[Served], gave_way: bool
    ) -> tuple[int, bool]:
        """Compute the next chunk of the prompt that is under way; it gives way where none fits."""
        sequence = self.partial
        assert sequence is not None
        past = sequence.cached
        take = min(room, sequence.whole - past)
        if self.growth(sequence, past + take) > self.free:
            self._put_back(sequence)
            return room, True
        self.grow(sequence, past + take)
        sequence.cached = past + take
        chunks.append((take, past))
        if past + take == sequence.whole:
            through.append(sequence)
            self.partial = None
        return room - take, gave_way

    def _admit(
        self, room: int, chunks: list[tuple[int, int]], through: list[Served],
        joined: list[Served],
    ) -> int:  # fmt: skip
        """Admit waiting requests while tokens, sequences and units last; returns ticks of moves."""
        limits, moved = self.limits, 0
        while self.partial is None:
            head = self.waiting.head
            running = len(self.running) + len(through) + len(joined)
            if head is None or running >= limits.sequences:
                break
            if head.resident:
                need = self.need(head, head.cached + 1)
                if need > self.free - limits.watermark:
                    break
                if limits.first == "decode" and room <= 0:
                    break
                self._take_head(head)
                self.take(head, head.cached + 1, need)
                head.resident = False
                if head.room:
                    # It comes back from host memory.
                    moved += self.cost.moved(head.cached)
                    self.host += head.room
                    head.room = 0
                joined.append(head)
                room -= 1
                continue
            if room <= 0:
                break
            found = self.found(head) if self.shares else 0
            whole = head.prompt + head.generated
            take = min(room, whole - found)
            need = self.need(head, found + take)
            if need > self.free - limits.watermark:
                break
            self._take_head(head)
            self.take(head, found + take, need)
            head.cached = found + take
            chunks.append((take, found))
            room -= take
            if head.cached == whole:
                through.append(head)
            else:
                self.partial = head
        return moved

    def _take_head(self, head: Served) -> None:
        """Take a request out of the queue, and note when it was first taken."""
        self.waiting.popleft()
        self._order += 1
        head.order = self._order
        if self.trace.start[head.i] < 0:
            self.trace.start[head.i] = self.clock

    def _start(self, sequence: Served) -> None:
        """Show the token that a prompt ends with, and decode from now on."""
        if self.record is not None and sequence.generated:
            # A request that gave way: its token comes late.
            self.late.append((1, self.clock - sequence.last, self.clock))
        sequence.generated += 1
        i = sequence.i
        if self.trace.first[i] < 0:
            self.trace.first[i] = self.clock
        left = sequence.output - sequence.generated
        if left == 0 and self.limits.first != "static":
            self.give(sequence, sequence.cached)
            self._end(i)
            return
        self._join(sequence, self.steps, left)

    def preempt(self) -> int:
        """Let the last to be served give way; returns ticks of what is moved."""
        victim = self._last()
        if victim is self.partial:
            self._put_back(victim)
            return 0
        victim.generated += self.steps - victim.since
        victim.last = self._last_token(victim)
        victim.cached = self._leave(victim)
        self._note(victim)
        size = self.hold(victim.cached)
        if size <= self.host:
            self.host -= size
            self.swaps += 1
            victim.resident, victim.room = True, size
            return self.cost.moved(victim.cached)
        victim.cached = 0
        return 0

    def _last_token(self, victim: Served) -> int:
        """Tell when the last token of a sequence that gives way came."""
        if not self._held_up:
            return self.clock
        place, before = list(self.running).index(victim), 0
        for g, (count, last) in enumerate(self._held_up):
            before += count
            if place < before:
                self._held_up[g] = (count - 1, last)
                return last
        return self.clock

    def _put_back(self, partial: Served) -> None:
        """Send the prompt that is under way back to the queue."""
        self.partial = None
        self.give(partial, partial.cached)
        partial.cached = 0
        self._note(partial)

    def _note(self, victim: Served) -> None:
        self.trace.preemptions[victim.i] = self.trace.preemptions.get(victim.i, 0) + 1
        self.waiting.appendleft(victim)

    def _last(self) -> Served:
        """Find who gives way: the one under way, or the last in the batch, or of least rank."""
        if self.waiting.ranked:
            partial = [] if self.partial is None else [self.partial]
            return max([*self.running, *partial], key=lambda s: s.rank)
        return self.partial if self.partial is not None else next(reversed(self.running))


def _new_tokens(chunks: Sequence[tuple[int, int]]) -> int:
    return chunks[0][0] if len(chunks) == 1 else sum(new for new, _ in chunks)


def steps_until(first: int, rise: int, gap: int) -> int:
    """Count the steps until a time has passed: the least k of k first + rise k(k - 1)/2 >= gap."""
    if gap <= first:
        return 1
    if rise == 0:
        return -(-gap // first)
    # A root of floats is near, and whole numbers settle it: ties stay ties.
    half, whole = first / rise - 0.5, 2 * (gap / rise)
    k = int(whole / (math.sqrt(half * half + whole) + half)) or 1
    over = k * first + rise * (k * (k - 1) // 2) - gap
    while over < 0:
        over += first + k * rise
        k += 1
    while k > 1:
        over -= first + (k - 1) * rise
        if over < 0:
            break
        k -= 1
    return k
