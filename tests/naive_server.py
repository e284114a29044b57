"""A server as a loop over steps and sequences: slow, plain, and the oracle of the event clock."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any


def serve(
    arrivals: list[int], prompts: list[int], outputs: list[int], cost: Any, limits: Any,
    priorities: list[int] | None = None, clients: int = 0, think: int = 0, handed: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Serve requests token by token; the same policies, written as an engine's own loop is.

    clients: request i comes when request i - clients has ended and the client has thought; handed:
    the prompts were computed elsewhere, and the first tokens are there.
    """
    clock, steps, swaps = 0, 0, 0
    some = range(len(prompts))
    todo = sorted((arrivals[i], i) for i in some if not clients or i < clients)
    came = list(arrivals)
    waiting: list[int] = []
    running: list[int] = []
    cached = [0] * len(prompts)
    generated = [0] * len(prompts)
    held = [0] * len(prompts)
    away = [0] * len(prompts)
    resident = [handed] * len(prompts)
    last = list(arrivals)
    free, host = limits.pool, limits.swap
    least = free
    first = list(arrivals) if handed else [-1] * len(prompts)
    finish = [-1] * len(prompts)
    preemptions = [0] * len(prompts)
    decodes = [False] * len(prompts)
    gaps: list[int] = []
    if handed:
        for i in some:
            generated[i], cached[i], decodes[i] = 1, prompts[i], True

    def hold(tokens: int) -> int:
        blocks = (tokens + limits.block - 1) // limits.block
        whole = limits.fixed + blocks * limits.units
        for kind in limits.kinds:
            whole += (min(tokens, kind.limit) + limits.block - 1) // limits.block * kind.units
        return whole

    def rank(i: int) -> tuple[int, int, int]:
        return (priorities[i] if priorities else 0, came[i], i)

    def queue(i: int, front: bool = False) -> None:
        waiting.insert(0 if front else len(waiting), i)
        if priorities:
            waiting.sort(key=rank)

    def preempt(i: int) -> int:
        """Take a sequence out of the batch; returns what moving its cache takes."""
        nonlocal free, host, swaps
        running.remove(i)
        free += held[i]
        held[i] = 0
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
                take = prompts[i] + generated[i]
                if hold(take) > free - limits.watermark or (news and take > room):
                    break
                waiting.pop(0)
                running.append(i)
                free -= hold(take)
                held[i] = hold(take)
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
            while hold(cached[i] + take) - held[i] > free:
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
            free -= hold(cached[i] + take) - held[i]
            held[i] = hold(cached[i] + take)
            news[i] = take
            room -= take
        if limits.first == "prefill":
            room = 10**9
        if not gave_way and not computes:
            while waiting and room > 0 and len(running) < limits.sequences:
                i = waiting[0]
                if limits.first == "prefill" and not resident[i]:
                    break
                take = 1 if resident[i] else min(room, prompts[i] + generated[i])
                if hold(cached[i] + take) > free - limits.watermark:
                    break
                waiting.pop(0)
                running.append(i)
                free -= hold(cached[i] + take)
                held[i] = hold(cached[i] + take)
                if resident[i] and away[i]:
                    moved += cost.moved(cached[i])
                    host += away[i]
                    away[i] = 0
                resident[i] = False
                news[i] = take
                room -= take
                if not decodes[i] and take < prompts[i] + generated[i]:
                    break
        least = min(least, free)
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
            if cached[i] == prompts[i] + generated[i]:
                if generated[i]:
                    gaps.append(clock - last[i])
                last[i] = clock
                generated[i] += 1
                decodes[i] = True
                if first[i] < 0:
                    first[i] = clock
                if generated[i] == outputs[i]:
                    free += held[i]
                    running.remove(i)
                    done(i)
    assert (free, host) == (limits.pool, limits.swap)
    return {
        "first": first,
        "finish": finish,
        "preemptions": preemptions,
        "steps": steps,
        "least": least,
        "gaps": sorted(gaps),
        "swaps": swaps,
    }
