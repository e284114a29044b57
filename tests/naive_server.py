"""A server as a loop over steps and sequences: slow, plain, and the oracle of the event clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def serve(requests: Sequence[Any], cost: Any, limits: Any) -> dict[str, Any]:
    """Serve requests token by token; the same policies, written as an engine's own loop is."""
    clock, steps = 0, 0
    todo = list(range(len(requests)))
    waiting: list[int] = []
    running: list[int] = []
    cached = [0] * len(requests)
    generated = [0] * len(requests)
    held = [0] * len(requests)
    free = limits.blocks
    least = free
    first = [-1] * len(requests)
    finish = [-1] * len(requests)
    preemptions = [0] * len(requests)
    decodes = [False] * len(requests)

    def blocks(tokens: int) -> int:
        return (tokens + limits.block - 1) // limits.block

    def preempt() -> int:
        nonlocal free
        i = running.pop()
        free += held[i]
        held[i] = cached[i] = 0
        decodes[i] = False
        preemptions[i] += 1
        waiting.insert(0, i)
        return i

    while todo or waiting or running:
        while todo and requests[todo[0]].arrival <= clock:
            waiting.append(todo.pop(0))
        if not waiting and not running:
            clock = requests[todo[0]].arrival
            continue
        room = limits.tokens
        news: dict[int, int] = {}
        gave_way = False
        if limits.first == "prefill":
            while waiting and len(running) < limits.sequences:
                i = waiting[0]
                take = requests[i].prompt + generated[i]
                if blocks(take) > free - limits.watermark or (news and take > room):
                    break
                waiting.pop(0)
                running.append(i)
                free -= blocks(take)
                held[i] = blocks(take)
                news[i] = take
                room -= take
            room = 0 if news else len(running)
        for i in running:
            if i not in running:
                continue
            take = min(requests[i].prompt + generated[i] - cached[i], room)
            if take == 0:
                continue
            while blocks(cached[i] + take) - held[i] > free:
                gave_way = True
                if preempt() == i:
                    break
            if i not in running:
                break
            free -= blocks(cached[i] + take) - held[i]
            held[i] = blocks(cached[i] + take)
            news[i] = take
            room -= take
        if not gave_way and limits.first == "decode":
            while waiting and room > 0 and len(running) < limits.sequences:
                i = waiting[0]
                take = min(requests[i].prompt + generated[i], room)
                if blocks(take) > free - limits.watermark:
                    break
                waiting.pop(0)
                running.append(i)
                free -= blocks(take)
                held[i] = blocks(take)
                news[i] = take
                room -= take
        least = min(least, free)
        decoding = [i for i in news if decodes[i]]
        chunks = [(news[i], cached[i]) for i in news if i not in decoding]
        tokens = sum(cached[i] + 1 for i in decoding)
        if chunks:
            clock += cost.mixed(len(decoding), tokens, chunks)
        elif decoding:
            fixed, each = cost.decode(len(decoding))
            clock += fixed + each * tokens
        steps += limits.first == "decode" or not chunks
        for i in list(news):
            cached[i] += news[i]
            if cached[i] == requests[i].prompt + generated[i]:
                generated[i] += 1
                decodes[i] = True
                if first[i] < 0:
                    first[i] = clock
                if generated[i] == requests[i].output:
                    finish[i] = clock
                    free += held[i]
                    running.remove(i)
    assert free == limits.blocks
    return {
        "first": first,
        "finish": finish,
        "preemptions": preemptions,
        "steps": steps,
        "least": least,
    }
