"""The event clock of a server equals a loop over every step and sequence, tick by tick."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.calc.clock import WIDTH, Kind, Late, Limits, new_trace
from rooflm.calc.scheduler import Server, steps_until
from rooflm.calc.sharing_server import SharingServer, keys_of
from rooflm.calc.workload import Workload

from .naive_server import serve


class Ticks:
    """Made-up ticks of steps, of which some are equal, so that arrivals tie with their ends."""

    def __init__(self, chance: random.Random, kinds: int) -> None:
        self.fixed = [chance.randrange(1, 50) for _ in range(400)]
        self.each = chance.choice([0, 1, 3])
        self.more = [chance.choice([0, 1, 2]) for _ in range(kinds)]
        self.prompt = chance.randrange(1, 5)
        self.pair = chance.choice([0, 1])
        self.move = chance.choice([0, 2])
        # From so many tokens on, each takes longer: lines have knees.
        self.knee = chance.choice([20, 60, 10**9])

    def run(self, sequences: int, tokens: int, more: Sequence[Any]) -> tuple[int, int, int]:
        """Tell the ticks of a decode step, how much longer each next one is, and for how many."""
        steep = tokens >= self.knee
        each = self.each + steep
        first = self.fixed[sequences % 400] + 5 * sequences + each * tokens - steep * self.knee
        rise = each * sequences
        for own, kind in zip(self.more, more, strict=True):
            first += own * (kind.tokens + kind.growing)
            rise += own * kind.growing
        most = 10**9 if steep or not sequences else -(-(self.knee - tokens) // sequences)
        return first, rise, most

    def mixed(
        self, sequences: int, tokens: int, more: Sequence[Any],
        chunks: Sequence[tuple[int, int]], ends: int,
    ) -> int:  # fmt: skip
        """Tell the ticks of a step that computes prompts as well."""
        first = self.run(sequences, tokens, more)[0] if sequences else 0
        own = sum(self.prompt * T + self.pair * (T * n + T * (T + 1) // 2) for T, n in chunks)
        return first + own + 3 * ends

    def moved(self, tokens: int) -> int:
        """Tell the ticks in which a cache goes to host memory or comes back."""
        return self.move * tokens


@dataclass
class Load:
    """A small workload."""

    arrivals: list[int]
    prompts: list[int]
    outputs: list[int]
    limits: Limits
    cost: Ticks
    priorities: list[int] = field(default_factory=list[int])
    clients: int = 0
    think: int = 0
    handed: bool = False
    keys: Any = None


KINDS = ("plain", "kinds", "swap", "priorities", "clients", "handed")
"""What workloads have beside prompts and outputs; every second one has more than one of them."""


def workload(seed: int, first: str) -> Load:
    """Make a small workload: bursts, ties, pools that are too small for all that run."""
    chance = random.Random(seed)
    has = {KINDS[seed % 6], *(KINDS[seed // 6 % 6 : seed // 6 % 6 + 1] if seed % 2 else ())}
    kinds = ()
    if "kinds" in has:
        kinds = tuple(
            Kind(chance.randrange(1, 12), units, wraps and not units)
            for units, wraps in [(chance.randrange(3), True), (chance.randrange(3), False)]
        )
    block = chance.choice([1, 2, 4, 16])
    limits = Limits(
        pool=chance.choice([4, 8, 16, 40]),
        block=block,
        tokens=chance.choice([2, 4, 8, 16, 64]),
        sequences=chance.choice([1, 2, 3, 8, 100]),
        watermark=chance.choice([0, 0, 1]),
        first=first,  # pyright: ignore[reportArgumentType]
        units=chance.choice([0, 1, 2]) if kinds else 1,
        kinds=kinds,
        fixed=chance.choice([0, 1]) if kinds else 0,
        swap=chance.choice([3, 30]) if "swap" in has else 0,
    )
    server = Server(Ticks(chance, 0), limits, new_trace(0))
    arrivals: list[int] = []
    prompts: list[int] = []
    outputs: list[int] = []
    now = 0
    for _ in range(chance.randrange(1, 14)):
        now += chance.choice([0, 0, chance.randrange(400), 10 * chance.randrange(20)])
        prompt, output = (chance.randrange(1, max(2, limits.pool * block // 2)) for _ in range(2))
        while server.hold(prompt + output) > limits.pool - limits.watermark:
            if prompt + output == 2:
                # The states alone fill the pool.
                return workload(seed + 10_000, first)
            prompt, output = max(1, prompt // 2), max(1, output // 2)
        arrivals.append(now)
        prompts.append(prompt)
        outputs.append(output)
    load = Load(arrivals, prompts, outputs, limits, Ticks(chance, len(kinds)))
    if "priorities" in has:
        load.priorities = [chance.randrange(3) for _ in prompts]
    if "clients" in has:
        load.clients = min(len(prompts), chance.randrange(1, 5))
        load.think = chance.choice([0, 0, 7])
    if "handed" in has and first != "static":
        load.handed = True
        load.outputs = [max(2, output) for output in outputs]
        if any(
            server.hold(p + o) > limits.pool - limits.watermark
            for p, o in zip(prompts, load.outputs, strict=True)
        ):
            load.handed, load.outputs = False, outputs
    return load


def start(load: Load) -> tuple[Server, list[int], list[Late]]:
    """Hand the requests to a server; what it tells of steps and of late tokens is kept."""
    rows: list[int] = []
    late: list[Late] = []

    def record(some: list[int], others: list[Late]) -> None:
        rows.extend(some)
        late.extend(others)

    def submit(i: int, arrival: int) -> None:
        priority = load.priorities[i] if load.priorities else 0
        server.submit(i, arrival, load.prompts[i], load.outputs[i], priority, int(load.handed))

    def ended(i: int, now: int) -> None:
        if load.clients and i + load.clients < len(load.prompts):
            submit(i + load.clients, now + load.think)

    trace = new_trace(len(load.prompts))
    kind = Server if load.keys is None else partial(SharingServer, keys=load.keys)
    if load.handed:
        trace.first = list(load.arrivals)
    server = kind(
        load.cost, load.limits, trace, record=record, ended=ended, ranked=bool(load.priorities)
    )
    for i, arrival in enumerate(load.arrivals):
        if not load.clients or i < load.clients:
            submit(i, arrival)
    return server, rows, late


def kept(server: Server, rows: list[int], late: list[Late]) -> dict[str, Any]:
    """Tell what became of the requests, as the loop over tokens does."""
    server.flush()
    gaps = [gap for count, gap, _ in late for _ in range(count)]
    for place in range(0, len(rows), WIDTH):
        k, n, told_late, first, rise = rows[place : place + 5]
        gaps += [first + j * rise for j in range(k) for _ in range(n - told_late)]
    trace = server.trace
    return {
        "first": trace.first,
        "finish": trace.finish,
        "preemptions": [trace.preemptions.get(i, 0) for i in range(len(trace.first))],
        "steps": server.steps,
        "least": server.least_free,
        "gaps": sorted(gaps),
        "swaps": server.swaps,
    }


def looped(load: Load) -> dict[str, Any]:
    """Serve the same by the loop over tokens."""
    return serve(
        load.arrivals, load.prompts, load.outputs, load.cost, load.limits,
        load.priorities or None, load.clients, load.think, load.handed,
        load.keys,
    )  # fmt: skip


@pytest.mark.parametrize("first", ["decode", "prefill", "static"])
def test_events_equal_a_loop_over_tokens(first: str) -> None:
    """First tokens, ends, gaps, preemptions, steps and free units are the same, bit for bit."""
    preemptions = dict.fromkeys(KINDS, 0)
    swaps = 0
    for seed in range(900):
        load = workload(seed, first)
        server, rows, late = start(load)
        server.advance()
        told = kept(server, rows, late)

        assert looped(load) == told, seed
        preemptions[KINDS[seed % 6]] += sum(told["preemptions"])
        swaps += told["swaps"]
    if first != "static":
        assert sum(preemptions.values()) >= 1000
        assert min(preemptions.values()) >= 80, preemptions
        assert swaps >= 150


def share(load: Load, chance: random.Random) -> None:
    """Let the prompts of a workload begin alike, as prefixes and conversations do."""
    requests = len(load.prompts)
    prefix = [chance.choice(["", "a", "b"]) for _ in range(requests)]
    session = [chance.choice(["", "", "x", "y"]) for _ in range(requests)]
    work = Workload(
        load.arrivals, load.prompts, load.outputs, prefix=prefix, session=session,
        prefix_tokens=[
            chance.randrange(1, n + 1) if name else 0
            for name, n in zip(prefix, load.prompts, strict=True)
        ],
    )  # fmt: skip
    load.keys = keys_of(work, load.limits.block)


@pytest.mark.parametrize("first", ["decode", "prefill"])
def test_shared_caches_equal_a_loop_over_tokens(first: str) -> None:
    """Prompts that begin alike share blocks, and what lies idle is evicted, as in the loop."""
    preemptions = found = evicted = 0
    for seed in range(900):
        load = workload(3 * seed + seed % 3, first)
        if load.limits.kinds or load.limits.swap or load.limits.fixed or load.handed:
            continue
        share(load, random.Random(seed))
        server, rows, late = start(load)
        server.advance()
        told = kept(server, rows, late)

        assert looped(load) == told, seed
        assert isinstance(server, SharingServer)
        assert (server.cache.held, server.cache.free) == (0, load.limits.pool)
        preemptions += sum(told["preemptions"])
        found += server.found_tokens
        evicted += server.cache.evicted
    assert preemptions >= 400
    assert min(found, evicted) >= 10_000


@pytest.mark.parametrize("first", ["decode", "prefill"])
def test_a_run_that_is_cut_goes_on_the_same(first: str) -> None:
    """Stopping at any time and going on changes nothing: hand-offs and routing may look between."""
    for seed in range(120):
        load = workload(seed, first)
        whole, rows, late = start(load)
        cut, cut_rows, cut_late = start(load)
        whole.advance()
        chance = random.Random(seed)
        until = 0
        while not cut.done:
            until += chance.randrange(1, 200)
            cut.advance(until)

        assert kept(cut, cut_rows, cut_late) == kept(whole, rows, late)


@given(st.integers(1, 10**30), st.integers(0, 10**25), st.integers(1, 10**36))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_steps_until_a_time_are_exact(first: int, rise: int, gap: int) -> None:
    """The count is the least whose sum has passed the time, in integers of any size."""
    k = steps_until(first, rise, gap)

    assert k >= 1
    assert k * first + rise * (k * (k - 1) // 2) >= gap or k == 1
    if k > 1:
        assert (k - 1) * first + rise * ((k - 1) * (k - 2) // 2) < gap
