"""The event clock of a server equals a loop over every step and sequence, tick by tick."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.calc.scheduler import Limits, Request, Server, steps_until

from .naive_server import serve


class Ticks:
    """Made-up ticks of steps, of which some are equal, so that arrivals tie with their ends."""

    def __init__(self, chance: random.Random) -> None:
        self.fixed = [chance.randrange(1, 50) for _ in range(400)]
        self.each = chance.choice([0, 1, 3])
        self.prompt = chance.randrange(1, 5)
        self.pair = chance.choice([0, 1])

    def decode(self, sequences: int) -> tuple[int, int]:
        """Tell the ticks of a decode step: fixed, and for each token in the caches."""
        return self.fixed[sequences % 400] + 5 * sequences, self.each

    def mixed(self, sequences: int, tokens: int, chunks: Sequence[tuple[int, int]]) -> int:
        """Tell the ticks of a step that computes prompts as well."""
        fixed, each = self.decode(sequences)
        own = sum(self.prompt * T + self.pair * (T * n + T * (T + 1) // 2) for T, n in chunks)
        return fixed + each * tokens + own


def workload(seed: int, first: str) -> tuple[list[Request], Ticks, Limits]:
    """Make a small workload: bursts, ties, pools that are too small for all that run."""
    chance = random.Random(seed)
    limits = Limits(
        blocks=chance.choice([4, 8, 16, 40]),
        block=chance.choice([1, 2, 4, 16]),
        tokens=chance.choice([2, 4, 8, 16, 64]),
        sequences=chance.choice([1, 2, 3, 8, 100]),
        watermark=chance.choice([0, 0, 1]),
        first=first,  # pyright: ignore[reportArgumentType]
    )
    room = (limits.blocks - limits.watermark) * limits.block
    requests: list[Request] = []
    now = 0
    for _ in range(chance.randrange(1, 14)):
        now += chance.choice([0, 0, chance.randrange(400), 10 * chance.randrange(20)])
        prompt, output = (chance.randrange(1, max(2, room // 2)) for _ in range(2))
        while prompt + output - 1 > room:
            prompt, output = max(1, prompt // 2), max(1, output // 2)
        requests.append(Request(now, prompt, output))
    return requests, Ticks(chance), limits


@pytest.mark.parametrize("first", ["decode", "prefill"])
def test_events_equal_a_loop_over_tokens(first: str) -> None:
    """First tokens, ends, preemptions, steps and free blocks are the same, bit for bit."""
    preemptions = 0
    for seed in range(700):
        requests, cost, limits = workload(seed, first)
        server = Server(requests, cost, limits)
        server.advance()
        kept = server.trace

        assert serve(requests, cost, limits) == {
            "first": kept.first,
            "finish": kept.finish,
            "preemptions": kept.preemptions,
            "steps": kept.steps,
            "least": kept.least_free,
        }, seed
        preemptions += sum(kept.preemptions)
    assert preemptions >= 1000


@pytest.mark.parametrize("first", ["decode", "prefill"])
def test_a_run_that_is_cut_goes_on_the_same(first: str) -> None:
    """Stopping at any time and going on changes nothing: hand-offs and routing may look between."""
    for seed in range(60):
        requests, cost, limits = workload(seed, first)
        whole, cut = Server(requests, cost, limits), Server(requests, cost, limits)
        whole.advance()
        chance = random.Random(seed)
        while not cut.done:
            cut.advance(cut.clock + chance.randrange(1, 200))

        assert cut.trace.first == whole.trace.first
        assert cut.trace.finish == whole.trace.finish
        assert cut.trace.preemptions == whole.trace.preemptions


@given(st.integers(1, 10**30), st.integers(0, 10**25), st.integers(1, 10**36))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_the_steps_until_a_time_are_exact(first: int, rise: int, gap: int) -> None:
    """The count is the least whose sum has passed the time, in integers of any size."""
    k = steps_until(first, rise, gap)

    assert k >= 1
    assert k * first + rise * (k * (k - 1) // 2) >= gap or k == 1
    if k > 1:
        assert (k - 1) * first + rise * ((k - 1) * (k - 2) // 2) < gap
