"""A server as a loop over steps and sequences: slow, plain, and the oracle of the event clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


class Blocks:
    """Memory as a count of units."""

    def __init__(self, limits: Any, requests: int) -> None:
        self.limits = limits
        self.free = limits.pool
        self.held = [0] * requests

    def hold(self, tokens: int) -> int:
        """Units of a sequence."""
        limits = self.limits
        blocks = (tokens + limits.block - 1) // limits.block
        whole = limits.fixed + blocks * limits.units
        for kind in limits.kinds:
            whole += (min(tokens, kind.limit) + limits.block - 1) // limits.block * kind.units
        return whole

    def found(self, i: int, tokens: int) -> int:
        """Tokens that are in a cache already."""
        return 0

    def need(self, i: int, tokens: int) -> int:
        """Units that are needed for a sequence to have so many tokens."""
        return self.hold(tokens) - self.held[i]

    def cover(self, i: int, tokens: int) -> None:
        """Take them."""
        self.free -= self.need(i, tokens)
        self.held[i] = self.hold(tokens)

    def drop(self, i: int, tokens: int) -> None:
        """Give all of a sequence back."""
        self.free += self.held[i]
        self.held[i] = 0

    def computed(self, i: int, tokens: int) -> None:
        """The tokens of a chunk are there."""


class SharedBlocks:
    """Blocks by content: lists of keys, None where a block has none; and keys that lie idle."""

    def __init__(self, limits: Any, requests: int, keys: Any) -> None:
        self.pool, self.block, self.keys = limits.pool, limits.block, keys
        self.own: list[list[Any]] = [[] for _ in range(requests)]
        self.idle: list[Any] = []

    def hold(self, tokens: int) -> int:
        """Blocks of a sequence alone."""
        return (tokens + self.block - 1) // self.block

    def _held(self) -> set[Any]:
        return {key for table in self.own for key in table if key is not None}

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        blank = sum(table.count(None) for table in self.own)
        return self.pool - len(self._held()) - blank

    def _matched(self, i: int, tokens: int) -> list[Any]:
        there = self._held() | set(self.idle)
        matched: list[Any] = []
        for key in self.keys(i, (tokens - 1) // self.block):
            if key not in there:
                break
            matched.append(key)
        return matched

    def found(self, i: int, tokens: int) -> int:
        """Tokens that are in a cache already."""
        return len(self._matched(i, tokens)) * self.block

    def need(self, i: int, tokens: int, whole: int = 0) -> int:
        """Free blocks that a sequence takes; whole: of one that is admitted, all its tokens."""
        if self.own[i]:
            return self.hold(tokens) - len(self.own[i])
        matched = self._matched(i, whole)
        return self.hold(tokens) - len(matched) + sum(key in self.idle for key in matched)

    def cover(self, i: int, tokens: int, whole: int = 0) -> None:
        """Take them: what was found, then empty blocks, then those idle for longest."""
        if not self.own[i]:
            for key in self._matched(i, whole):
                if key in self.idle:
                    self.idle.remove(key)
                self.own[i].append(key)
        while len(self.own[i]) < self.hold(tokens):
            if self.free - len(self.idle) == 0:
                self.idle.pop(0)
            self.own[i].append(None)

    def drop(self, i: int, tokens: int) -> None:
        """Give all of a sequence back; what has content lies idle, its last block first."""
        self.computed(i, tokens)
        table, self.own[i] = self.own[i], []
        still = self._held()
        for key in reversed(table):
            if key is not None and key not in still:
                self.idle.append(key)

    def computed(self, i: int, tokens: int) -> None:
        """Full blocks can be found, unless others hold the same."""
        there = self._held() | set(self.idle)
        for j, key in enumerate(self.keys(i, tokens // self.block)):
            if self.own[i][j] is None and key not in there:
                self.own[i][j] = key


def serve(
    arrivals: list[int], prompts: list[int], outputs: list[int], cost: Any, limits: Any,
    priorities: list[int] | None = None, clients: int = 0, think: int = 0, handed: bool = False,
    keys: Any = None,
) -> dict[str, Any]:  # fmt: skip
    """Serve requests token by token; the same policies, written as an engine's own loop is.

    clients: request i comes when request i - clients has ended and the client has thought; handed:
    the prompts were computed elsewhere, and the first tokens are there; keys: of the content of
    the first blocks of a request, where caches are shared.
    """
    clock, steps, swaps = 0, 0, 0
    some = range(len(prompts))
    todo = sorted((arrivals[i], i) for i in some if not clients or i < clients)
    came = list(arrivals)
    waiting: list[int] = []
    running: list[int] = []
    cached = [0] * len(prompts)
    generated = [0] * len(prompts)
    memory: Any = Blocks(limits, len(prompts))
    if keys is not None:
        memory = SharedBlocks(limits, len(prompts), keys)
    hold = memory.hold
    away = [0] * len(prompts)
    resident = [handed] * len(prompts)
    last = list(arrivals)
    host = limits.swap
    least = limits.pool
    first = list(arrivals) if handed else [-1] * len(prompts)
    finish = [-1] * len(prompts)
    preemptions = [0] * len(prompts)
    decodes = [False] * len(prompts)
    gaps: list[int] = []
    if handed:
        for i in some:
            generated[i], cached[i], decodes[i] = 1, prompts[i], True

    def rank(i: int) -> tuple[int, int, int]:
        return (priorities[i] if priorities else 0, came[i], i)

    def queue(i: int, front: bool = False) -> None:
        waiting.insert(0 if front else len(waiting), i)
        if priorities:
            waiting.sort(key=rank)

    def preempt(i: int) -> int:
        """Take a sequence out of the batch; returns what moving its cache takes."""
        nonlocal host, swaps
        running.remove(i)
        memory.drop(i, cached[i])
        preemptions[i] += 1
        queue(i, front=True)
        if decodes[i] and hold(cached[i]) <= host:
            away[i], resident[i] = hold(cached[i]), True
            host -= away[i]
            swaps += 1
            return cost.moved(cached[i])
        cached[i] = 0
        decodes[i] = False
        return 0

    def seen(i: int, kind: Any) -> int:
        """Tokens that a new token of a sequence sees of a kind of layers."""
        return cached[i] % kind.limit + 1 if kind.wraps else min(cached[i] + 1, kind.limit)

    def need(i: int, tokens: int, whole: int) -> int:
        return memory.need(i, tokens) if keys is None else memory.need(i, tokens, whole)

    def cover(i: int, tokens: int, whole: int) -> None:
        if keys is None:
            memory.cover(i, tokens)
        else:
            memory.cover(i, tokens, whole)

    def leaving(news: dict[int, int]) -> list[int]:
        """Prompts that yield their only token leave first, then those that decode."""
        return [i for i in news if not decodes[i]] + [i for i in news if decodes[i]]

    def done(i: int) -> None:
        nonlocal todo
        finish[i] = clock
        if clients and i + clients < len(prompts):
            came[i + clients] = last[i + clients] = clock + think
            todo = sorted([*todo, (clock + think, i + clients)])

    while todo or waiting or running:
        while todo and todo[0][0] <= clock:
            queue(todo.pop(0)[1])
        if not waiting and not running:
            clock = todo[0][0]
            continue
        if limits.first == "static":
            batch: list[int] = []
            while waiting and len(batch) < limits.sequences:
                some_more = [*batch, waiting[0]]
                most = max(outputs[i] for i in some_more)
                if sum(hold(prompts[i] + most) for i in some_more) > limits.pool - limits.watermark:
                    break
                batch.append(waiting.pop(0))
            most = max(outputs[i] for i in batch)
            least = min(least, limits.pool - sum(hold(prompts[i] + most) for i in batch))
            clock += cost.mixed(0, 0, [], [(prompts[i], 0) for i in batch], len(batch))
            for i in batch:
                first[i] = last[i] = clock
                cached[i] = prompts[i]
                if outputs[i] == 1:
                    done(i)
            for t in range(1, most):
                more = [
                    SimpleNamespace(kind=k, tokens=sum(seen(i, k) for i in batch), growing=0)
                    for k in limits.kinds
                ]
                clock += cost.run(len(batch), sum(cached[i] + 1 for i in batch), more)[0]
                steps += 1
                for i in batch:
                    cached[i] += 1
                    if outputs[i] > t:
                        gaps.append(clock - last[i])
                    last[i] = clock
                    if outputs[i] == t + 1:
                        done(i)
            continue
        room = limits.tokens
        news: dict[int, int] = {}
        moved = 0
        gave_way = False
        computes = False
        if limits.first == "prefill":
            while waiting and len(running) < limits.sequences and not resident[waiting[0]]:
                i = waiting[0]
                whole = prompts[i] + generated[i]
                found = memory.found(i, whole)
                take = whole - found
                if need(i, whole, whole) > memory.free - limits.watermark or (news and take > room):
                    break
                waiting.pop(0)
                running.append(i)
                cover(i, whole, whole)
                cached[i] = found
                news[i] = take
                room -= take
            computes = bool(news)
            room = 0 if news else len(running)
        for i in [] if computes else list(running):
            if i not in running:
                continue
            take = min(prompts[i] + generated[i] - cached[i], room)
            if take == 0:
                continue
            while memory.need(i, cached[i] + take) > memory.free:
                gave_way = True
                if not decodes[i]:
                    victim = i
                else:
                    victim = max(running, key=rank) if priorities else running[-1]
                moved += preempt(victim)
                if victim in news:
                    room += news.pop(victim)
                if victim == i:
                    break
            if i not in running:
                continue
            memory.cover(i, cached[i] + take)
            news[i] = take
            room -= take
        if limits.first == "prefill":
            room = 10**9
        if not gave_way and not computes:
            while waiting and room > 0 and len(running) < limits.sequences:
                i = waiting[0]
                if limits.first == "prefill" and not resident[i]:
                    break
                whole = prompts[i] + generated[i]
                if not resident[i]:
                    cached[i] = memory.found(i, whole)
                take = 1 if resident[i] else min(room, whole - cached[i])
                if need(i, cached[i] + take, whole) > memory.free - limits.watermark:
                    cached[i] = cached[i] if resident[i] else 0
                    break
                waiting.pop(0)
                running.append(i)
                cover(i, cached[i] + take, whole)
                if resident[i] and away[i]:
                    moved += cost.moved(cached[i])
                    host += away[i]
                    away[i] = 0
                resident[i] = False
                news[i] = take
                room -= take
                if not decodes[i] and cached[i] + take < prompts[i] + generated[i]:
                    break
        least = min(least, memory.free)
        decoding = [i for i in news if decodes[i]]
        chunks = [(news[i], cached[i]) for i in news if i not in decoding]
        ends = sum(cached[i] + news[i] == prompts[i] + generated[i] for i in news if not decodes[i])
        tokens = sum(cached[i] + 1 for i in decoding)
        more = [
            SimpleNamespace(kind=k, tokens=sum(seen(i, k) for i in decoding), growing=0)
            for k in limits.kinds
        ]
        if chunks:
            clock += cost.mixed(len(decoding), tokens, more, chunks, ends)
        elif decoding:
            clock += cost.run(len(decoding), tokens, more)[0]
        clock += moved
        steps += limits.first == "decode" or not chunks
        for i in list(news):
            cached[i] += news[i]
            if not decodes[i]:
                memory.computed(i, cached[i])
        for i in leaving(news):
            if cached[i] == prompts[i] + generated[i]:
                if generated[i]:
                    gaps.append(clock - last[i])
                last[i] = clock
                generated[i] += 1
                decodes[i] = True
                if first[i] < 0:
                    first[i] = clock
                if generated[i] == outputs[i]:
                    memory.drop(i, cached[i])
                    running.remove(i)
                    done(i)
    assert (memory.free, host) == (limits.pool, limits.swap)
    return {
        "first": first,
        "finish": finish,
        "preemptions": preemptions,
        "steps": steps,
        "least": least,
        "gaps": sorted(gaps),
        "swaps": swaps,
    }
