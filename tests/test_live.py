"""Simulated servers against theory, identities, and loops over tokens: waits, Little, quantiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rooflm.calc import queueing
from rooflm.calc.asked import case_of
from rooflm.calc.clock import TICKS, Counted, Limits, new_trace
from rooflm.calc.errors import RooflmError
from rooflm.calc.live import Handing, Pool, Run, StepLog, run
from rooflm.calc.scheduler import Server
from rooflm.calc.served import (
    Slo,
    distribution,
    gap_distribution,
    gap_summary,
    gaps,
    interval,
    latencies,
    met,
    occupancy,
    over_time,
    summed_up,
)
from rooflm.calc.step_cost import make_steps
from rooflm.calc.workload import Workload, closed_loop, open_loop, parse_law

from .golden import table
from .test_scheduler import Load, Ticks, looped, workload

CASES: dict[str, dict[str, Any]] = {
    c["id"]: c for group in ("cases", "simulated") for c in table("cases_serving")[group]
}


class Prompts:
    """Prompts take a time for each token; nothing decodes."""

    def __init__(self, token: int) -> None:
        self.token = token

    def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
        """Take no time."""
        del sequences, tokens, more
        return 0, 0, 2**50

    def mixed(
        self, sequences: int, tokens: int, more: Sequence[Counted],
        chunks: Sequence[tuple[int, int]], ends: int,
    ) -> int:  # fmt: skip
        """Take the time of the new tokens."""
        del sequences, tokens, more, ends
        return self.token * sum(new for new, _ in chunks)

    def moved(self, tokens: int) -> int:
        """Take no time."""
        del tokens
        return 0


ONE_BY_ONE = Limits(10**12, tokens=10**12, sequences=1)
"""A step computes one prompt, whole."""
SERVICE = 10**8
"""Mean ticks of a prompt: that much time is a unit here."""
TOKENS = 10**4
"""Mean tokens of a prompt: so many that whole tokens are no matter (1e-4 of a mean square)."""


def times_of(law: str, chance: np.random.Generator, number: int) -> Any:
    """Draw the tokens of prompts by a law of mean TOKENS."""
    if law == "equal":
        return np.full(number, TOKENS)
    if law == "exponential":
        return np.ceil(chance.exponential(TOKENS, number)).astype(np.int64)
    if law == "lognormal":
        drawn = TOKENS * np.exp(0.5 * chance.standard_normal(number) - 0.125)
        return np.maximum(1, np.rint(drawn)).astype(np.int64)
    case = CASES["t16_pollaczek_khinchine"]["inputs"]
    shares, mean = case["prob"], queueing.mean_power(case["D"], case["prob"])
    sizes = np.array([round(TOKENS * time / mean) for time in case["D"]])
    return chance.choice(sizes, number, p=shares)


def second_moment(law: str) -> float:
    """Mean square of times of mean 1: 1, 2, exp(0.5**2), and that of the worked case."""
    case = CASES["t16_pollaczek_khinchine"]["expected"]
    known = {"equal": 1.0, "exponential": 2.0, "lognormal": math.exp(0.25)}
    return known.get(law) or case["EX2"] / case["mean"] ** 2


WORKED = {("equal", 0.5): ("t16_md1", "wait"), ("two", 0.4): ("t16_pollaczek_khinchine", "wait")}
"""Queues that a worked case is of."""
RUNS = 20
"""Replications of a queue."""


REQUESTS = 160_000
"""Requests of a replication, so that an interval is narrow."""
SERVED = 2_500
"""The first of them, which the server serves."""


@pytest.mark.parametrize("busy", [0.3, 0.4, 0.5, 0.8])
@pytest.mark.parametrize("law", ["equal", "exponential", "lognormal", "two"])
def test_waits_are_those_of_queueing_theory(law: str, busy: float) -> None:
    """M/D/1, M/M/1 and M/G/1: Pollaczek and Khinchine's wait is within the 95 % interval, +-2 %.

    Requests come at random to a server of one prompt at a time. Its waits equal Lindley's recursion
    (doi:10.1017/S0305004100027638) tick by tick, which goes on where the server would take long.
    """
    means: list[float] = []
    for seed in range(RUNS):
        chance = np.random.default_rng(seed)
        drawn = chance.exponential(SERVICE / busy, REQUESTS)
        arrival = np.cumsum(np.rint(drawn).astype(np.int64))
        prompt = times_of(law, chance, REQUESTS)
        trace = new_trace(SERVED)
        server = Server(Prompts(SERVICE // TOKENS), ONE_BY_ONE, trace)
        for i in range(SERVED):
            server.submit(i, int(arrival[i]), int(prompt[i]), 1)

        server.advance()

        longer = prompt[:-1] * (SERVICE // TOKENS) - np.diff(arrival)
        walk = np.concatenate(([0], np.cumsum(longer)))
        waits = walk - np.minimum.accumulate(walk)
        assert trace.start == (arrival + waits)[:SERVED].tolist()
        means.append(float(waits[REQUESTS // 50 :].mean()) / SERVICE)
    told = interval(means)

    expected = queueing.mean_wait(busy, 1.0, second_moment(law))
    if (law, busy) in WORKED:
        name, key = WORKED[law, busy]
        # Worked in seconds, with a mean service of 0.1 s.
        assert 0.1 * expected == pytest.approx(CASES[name]["expected"][key], rel=1e-9)
    assert told["mean"] is not None
    assert told["half_width"] is not None
    assert told["half_width"] <= 0.02 * expected
    assert abs(told["mean"] - expected) <= told["half_width"]


def test_a_first_token_comes_with_the_prefill() -> None:
    """Of two kinds of prompts each waits and is computed: no decode step is added to either."""
    case = CASES["t16_pollaczek_khinchine"]["inputs"]
    chance = np.random.default_rng(0)
    came = np.cumsum(chance.exponential(1 / case["R"], 2000))
    service = chance.choice(case["D"], 2000, p=case["prob"])
    prompt = [round(1000 * s) for s in service]
    work = Workload([int(t * TICKS) for t in came], prompt, [1] * 2000)

    times = latencies(run(work, Pool(Prompts(TICKS // 1000), ONE_BY_ONE)))

    waits = times.start - times.arrival
    assert 0.5 < (waits > 0).mean() / (case["R"] * 0.1) < 2, "as many wait as find it busy"
    assert times.ttft - waits == pytest.approx(service, rel=1e-9)
    assert times.e2e == pytest.approx(times.ttft, rel=1e-12)


def test_time_to_first_token_is_wait_and_prefill() -> None:
    """Case t17_ttft_sum: who comes 0.05 s before the server is free waits so long, and prefills."""
    case = CASES["t17_ttft_sum"]
    queue, prefill = (round(case["inputs"][k] * TICKS) for k in ("queue", "prefill"))
    step = round(case["inputs"]["first_decode"] * TICKS)

    class Engine(Prompts):
        """Decode steps as well."""

        def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
            """Take the time of a decode step."""
            del sequences, tokens, more
            return step, 0, 2**50

    work = Workload([0, prefill - queue], [1, 1], [1, 3])
    made = run(work, Pool(Engine(prefill), ONE_BY_ONE))

    times = latencies(made)
    assert times.ttft[1] == pytest.approx(case["expected"]["ttft"], rel=1e-9)
    assert times.finish[1] - times.first[1] == pytest.approx(2 * case["inputs"]["first_decode"])
    # An engine that is handed the cache has to decode for its first own token.
    handed = Handing(Pool(Prompts(prefill), ONE_BY_ONE), lambda prompt: 0)
    later = latencies(run(work, Pool(Engine(prefill), ONE_BY_ONE), handed))
    assert later.ttft[1] == pytest.approx(case["expected"]["ttft"], rel=1e-9)
    assert later.ttft[1] + step / TICKS == pytest.approx(
        case["expected"]["ttft_if_engine_redecodes"], rel=1e-9
    )


@pytest.mark.parametrize("first", ["decode", "prefill", "static"])
def test_littles_law_is_an_identity(first: str) -> None:
    """Requests in the system, summed over time, are the sums of their times: in whole ticks.

    Between two events the server counts what it has; arrivals within add the rest of the event.
    With priorities, swaps, hand-offs, clients and too small pools among the workloads.
    """
    for seed in range(300):
        load = workload(seed, first)
        server, came, done = _started(load)
        area, done_before = 0, 0
        while not server.done:
            began = server.clock
            # Those that have come by now, whether or not the engine has looked.
            inside = sum(t <= began for t in came.values()) - done_before
            if first != "static":
                assert server.load == inside
            before = dict(came)
            idle = min((t for t in came.values() if t > began), default=began)
            server.advance(began + 1 if inside else idle + 1)
            ended = server.clock
            area += inside * (ended - began)
            area += sum(ended - t for t in before.values() if began < t <= ended)
            done_before = len(done)

        trace = server.trace
        assert area == sum(trace.finish[i] - t for i, t in came.items())
        assert len(came) == len(load.prompts)


def test_the_load_of_a_static_batch_is_what_is_not_done() -> None:
    """Two requests in a batch, of 2 and of 9 tokens: after five steps one of them is left."""
    limits = Limits(100, sequences=2, first="static")
    server = Server(Bandwidth(1, 0, 1.0), limits, new_trace(2))
    for i, output in enumerate((2, 9)):
        server.submit(i, 0, 1, output)

    server.advance(5 * TICKS)
    assert server.load == 1


def _started(load: Load) -> tuple[Server, dict[int, int], list[int]]:
    """Hand a workload to a server; tells when requests came, as they come, and who is done."""
    came: dict[int, int] = {}
    done: list[int] = []

    def submit(i: int, arrival: int) -> None:
        came[i] = arrival
        priority = load.priorities[i] if load.priorities else 0
        server.submit(i, arrival, load.prompts[i], load.outputs[i], priority, int(load.handed))

    def ended(i: int, now: int) -> None:
        done.append(i)
        if load.clients and i + load.clients < len(load.prompts):
            submit(i + load.clients, now + load.think)

    server = Server(
        load.cost, load.limits, new_trace(len(load.prompts)), ended=ended,
        ranked=bool(load.priorities),
    )  # fmt: skip
    for i, arrival in enumerate(load.arrivals):
        if not load.clients or i < load.clients:
            submit(i, arrival)
    return server, came, done


LLAMA: dict[str, Any] = {"model": "llama-3-8b", "on": "h100-sxm"}


def llama(rate: float, requests: int, prompt: str, output: str, pool: int = 26_800) -> Run:
    """Serve random requests by the estimates of a model on a chip."""
    steps = make_steps(case_of(LLAMA), "estimate")
    law = parse_law(prompt, "--prompt"), parse_law(output, "--output-tokens")
    work = open_loop(rate, requests, *law, seed=3)
    return run(work, Pool(steps, Limits(pool, kinds=steps.kinds)))


@pytest.mark.parametrize(("rate", "output"), [(1, 250), (15, 250), (45, 250), (2, 2000)])
def test_decoding_sequences_are_rate_times_their_time(rate: float, output: int) -> None:
    """Little's law of those that decode: steps and requests tell the same sum, to 1e-12."""
    made = llama(rate, 400, "exponential:500", f"exponential:{output}")
    table_ = made.steps[0].table()
    k = table_["steps"]
    lasted = k * table_["first_s"] + table_["rise_s"] * k * (k - 1) / 2
    times = latencies(made)

    area = math.fsum(table_["decoding"] * lasted)
    assert not made.trace.preemptions
    sums = sum(made.trace.finish) - sum(made.trace.first)
    assert area == pytest.approx(sums / TICKS, rel=1e-12)
    assert math.fsum(lasted) + made.servers[0].idle / TICKS == pytest.approx(made.end, rel=1e-12)
    told = occupancy(made, 1.0, 16)["mean_running_sequences"]
    assert told == pytest.approx(area / math.fsum(lasted), rel=1e-12)
    assert float(times.output.sum()) - 400 == pytest.approx(gaps(made.steps).tokens, rel=1e-12), (
        "a gap for every token but the first"
    )


class Bandwidth(Prompts):
    """Decode steps stream weights and caches, prompts take no time, as in the closed form."""

    def __init__(self, weights: int, token_bytes: int, bytes_per_s: float) -> None:
        super().__init__(0)
        self.weights = round(weights / bytes_per_s * TICKS)
        self.each = round(token_bytes / bytes_per_s * TICKS)

    def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
        """Read the weights once, and the caches of all."""
        del more
        return self.weights + self.each * tokens, self.each * sequences, 2**50


@pytest.mark.parametrize("rate", [10.0, 20.0, 43.0])
def test_the_batch_is_that_of_the_fixed_point(rate: float) -> None:
    """Case t16_little_fixed_point: sequences and step time within 2 % up to half the limit rate.

    It is a mean-field value: random arrivals make both a little larger (0.9 % at 10 a second).
    """
    case = CASES["t16_little_fixed_point"]["inputs"]
    expected = CASES["t16_little_fixed_point"]["expected"]
    assert rate <= expected["rate_max"] / 2
    steps, S = case["gen"], queueing.mean_context(case["prompt"], case["gen"])
    rest = steps, S, case["weights"], case["kv_per_token"], case["bw"]
    if rate == case["rate"]:
        assert queueing.served_batch(rate, *rest) == pytest.approx(expected["B"], rel=1e-9)
    cost = Bandwidth(case["weights"], case["kv_per_token"], case["bw"])
    limits = Limits(10**9, tokens=10**6, sequences=10**6, first="prefill")
    law = parse_law(str(case["prompt"]), ""), parse_law(str(steps + 1), "")
    batch: list[float] = []
    tpot: list[float] = []
    for seed in range(5):
        made = run(open_loop(rate, 4000, *law, seed=seed), Pool(cost, limits))
        times = latencies(made, 400)
        tpot.append(float(times.itl[:-400].mean()))
        # Sequences seen by time, away from the start and the end.
        seen = over_time(made)["running_sequences"]
        batch.append(sum(seen[24:-24]) / len(seen[24:-24]))

    assert interval(tpot)["mean"] == pytest.approx(queueing.served_step_time(rate, *rest), rel=0.02)
    assert interval(batch)["mean"] == pytest.approx(queueing.served_batch(rate, *rest), rel=0.02)


class Seconds(Ticks):
    """Ticks of the made-up steps as milliseconds."""

    def run(self, sequences: int, tokens: int, more: Sequence[Any]) -> tuple[int, int, int]:
        """Tell the steps, longer."""
        first, rise, most = super().run(sequences, tokens, more)
        return first * (TICKS >> 10), rise * (TICKS >> 10), most

    def mixed(
        self, sequences: int, tokens: int, more: Sequence[Any],
        chunks: Sequence[tuple[int, int]], ends: int,
    ) -> int:  # fmt: skip
        """Tell the steps, longer."""
        first = Ticks.run(self, sequences, tokens, more)[0] if sequences else 0
        own = sum(self.prompt * T + self.pair * (T * n + T * (T + 1) // 2) for T, n in chunks)
        return (first + own + 3 * ends) * (TICKS >> 10)


def simulated(load: Load) -> Run:
    """Serve a small workload."""
    work = Workload(
        load.arrivals, load.prompts, load.outputs, load.priorities, clients=load.clients,
        think=load.think,
    )  # fmt: skip
    if load.clients:
        work.arrival = [t if i < load.clients else -1 for i, t in enumerate(load.arrivals)]
    return run(work, Pool(load.cost, load.limits))


def small(seed: int, first: str) -> Load:
    """Make a small workload whose steps take milliseconds, and which nobody else prefilled."""
    load = workload(seed, first)
    load.cost.__class__ = Seconds
    load.arrivals = [t * (TICKS >> 10) for t in load.arrivals]
    load.think *= TICKS >> 10
    load.handed = False
    return load


@pytest.mark.parametrize("first", ["decode", "prefill", "static"])
def test_gaps_are_those_of_every_token(first: str) -> None:
    """Mean, quantiles and counts of series equal those of all gaps of a loop over tokens."""
    several = 0
    for seed in range(150):
        load = small(seed, first)
        listed = np.array(looped(load)["gaps"], dtype=float) / TICKS
        found = gaps(simulated(load).steps)

        assert found.tokens == len(listed)
        told = gap_summary(found)
        if not len(listed):
            assert told == {"mean": None, "p50": None, "p90": None, "p99": None}
            continue
        assert told["mean"] == pytest.approx(float(listed.mean()), rel=1e-9)
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            least = float(np.quantile(listed, share, method="inverted_cdf"))
            assert told[name] == pytest.approx(least, rel=2e-9)
        for value in np.quantile(listed, [0.1, 0.5, 0.7, 1.0], method="inverted_cdf"):
            assert found.below(float(value)) == (listed <= value * (1 + 1e-12)).sum()
        told_shares = gap_distribution(found, 7)
        assert told_shares["time_s"][-1] == pytest.approx(float(listed.max()), rel=2e-9)
        several += len(set(listed)) > 5
    assert several >= 50


@pytest.mark.parametrize("first", ["decode", "prefill", "static"])
def test_latencies_are_those_of_a_loop_over_tokens(first: str) -> None:
    """First tokens, ends and means of a request's tokens, clients and priorities included."""
    for seed in range(100):
        load = small(seed, first)
        listed, made = looped(load), simulated(load)
        came = np.array(made.arrival, dtype=float) / TICKS
        first_s, end_s = (np.array(listed[k], dtype=float) / TICKS for k in ("first", "finish"))

        times = latencies(made)
        assert times.ttft == pytest.approx(first_s - came, rel=1e-9, abs=1e-9)
        assert times.e2e == pytest.approx(end_s - came, rel=1e-9, abs=1e-9)
        several = np.array(load.outputs) > 1
        each = (end_s - first_s)[several] / (np.array(load.outputs)[several] - 1)
        assert times.itl[several] == pytest.approx(each, rel=1e-9, abs=1e-9)
        assert np.isnan(times.itl[~several]).all()
        told = summed_up(times.e2e)
        assert told["mean"] == pytest.approx(float((end_s - came).mean()), rel=1e-9)
        assert told["p90"] == pytest.approx(float(np.quantile(end_s - came, 0.9)), rel=1e-9)
        limit = float(np.median(first_s - came)) * (1 + 1e-9)
        slo = Slo(ttft_s=limit, itl_s=0.1)
        kept = (first_s - came <= limit) & ~(np.nan_to_num(times.itl) > 0.1)
        assert np.array_equal(met(times, slo), kept)


def by_step(work: Workload, cost: Any, limits: Limits) -> dict[str, Any]:
    """Serve step by step: each has a row of its own, whose free units are those during it."""
    steps = StepLog()
    server = Server(cost, limits, new_trace(len(work.prompt)), record=steps.record)
    for i, arrival in enumerate(work.arrival):
        server.submit(i, arrival, work.prompt[i], work.output[i])
    until = 0
    while not server.done:
        until = max(until, server.clock) + 1
        before = server.steps, server.clock
        server.advance(until)
        if (server.steps, server.clock) == before:
            # Nothing to do until the next arrival.
            until = min(t for t in work.arrival if t >= server.clock)
    server.flush()
    rows = steps.table()
    assert set(rows["steps"]) == {1.0}
    return rows


@pytest.mark.parametrize("rate", [0.05, 1.0, 15.0])
def test_caches_are_as_full_as_step_by_step(rate: float) -> None:
    """Mean use of the pool and what is unfilled of it, against the sum over all steps (0.5 %)."""
    steps = make_steps(case_of(LLAMA), "estimate")
    limits = Limits(26_800, kinds=steps.kinds)
    law = parse_law("exponential:500", ""), parse_law("exponential:250", "")
    work = open_loop(rate, 60, *law, seed=5)
    rows = by_step(work, steps, limits)

    told = occupancy(run(work, Pool(steps, limits)), 1.0, 16)
    share = rows["first_s"] / rows["first_s"].sum()
    used = float(((limits.pool - rows["free_units"]) * share).sum())
    held = float(((rows["held_tokens"] + rows["decoding"]) * share).sum())
    assert told["mean_share"] == pytest.approx(used / limits.pool, rel=5e-3)
    assert told["mean_bytes"] == pytest.approx(used, rel=5e-3)
    assert told["unfilled_share"] == pytest.approx(1 - held / (16 * used), abs=5e-3)


def test_running_and_peak_are_those_of_every_step() -> None:
    """Sequences that run, on average and by time, and the fullest step, step by step."""
    steps = make_steps(case_of(LLAMA), "estimate")
    limits = Limits(2_000, kinds=steps.kinds)
    law = parse_law("exponential:500", ""), parse_law("exponential:250", "")
    work = open_loop(15.0, 150, *law, seed=5)
    rows = by_step(work, steps, limits)

    made = run(work, Pool(steps, limits))
    told = occupancy(made, 1.0, 16)
    start, lasted, decoding = rows["start_s"], rows["first_s"], rows["decoding"]
    running = float((decoding * lasted).sum() / lasted.sum())
    assert told["mean_running_sequences"] == pytest.approx(running, rel=1e-9)
    assert told["peak_share"] == (limits.pool - min(rows["free_units"])) / limits.pool
    # Over time: the same integral in 50 parts, of which each is checked by itself.
    course = over_time(made, 50)
    width = made.end / 50
    for part, value in enumerate(course["running_sequences"]):
        low, high = part * width, (part + 1) * width
        within = np.minimum(high, start + lasted) - np.maximum(low, start)
        inside = float((decoding * np.maximum(0.0, within)).sum())
        assert value * width == pytest.approx(inside, rel=1e-6, abs=1e-6 * width)
    assert len(course["time_s"]) == len(course["waiting_requests"]) == 50


def test_what_is_left_out_does_not_count() -> None:
    """Requests of the warm-up have no latency, and the tokens of steps before it no gap."""
    work = Workload([0, 0, 10 * TICKS], [1, 1, 1], [4, 3, 3])
    cost = Bandwidth(1, 0, 1.0)
    limits = Limits(100, first="prefill")
    made = run(work, Pool(cost, limits))

    times = latencies(made, 2)
    assert times.measured == 1
    assert times.e2e.tolist() == [2.0], "two steps of a second after its prefill"
    assert gaps(made.steps, 10.0).tokens == 2
    assert gaps(made.steps).tokens == 7


def test_tokens_that_came_late_in_the_warm_up_do_not_count() -> None:
    """A prompt holds up a token of a request that ended long before: of the last one two gaps."""

    class Slow(Bandwidth):
        """Prompts take five seconds."""

        def mixed(
            self, sequences: int, tokens: int, more: Sequence[Counted],
            chunks: Sequence[tuple[int, int]], ends: int,
        ) -> int:  # fmt: skip
            """Take five seconds."""
            del sequences, tokens, more, chunks, ends
            return 5 * TICKS

    work = Workload([0, TICKS, 1000 * TICKS], [1, 1, 1], [20, 3, 3])
    made = run(work, Pool(Slow(1, 0, 1.0), Limits(100, first="prefill")))

    late = gaps(made.steps)
    assert late.quantile(1.0) == pytest.approx(6.0, rel=2e-9), "held up by a prompt"
    found = gaps(made.steps, 999.0)
    assert found.tokens == 2
    assert found.quantile(1.0) == pytest.approx(1.0, rel=2e-9)


@pytest.mark.parametrize(
    ("values", "half"),
    [
        # Student's t of 97.5 %: 12.706 at one degree of freedom, 2.776 at 4 (NIST handbook,
        # table 1.3.6.7.2); spreads by hand: 2**0.5, and (10/4)**0.5.
        ([1.0, 3.0], 12.706 * 2**0.5 / 2**0.5),
        ([1.0, 2.0, 3.0, 4.0, 5.0], 2.776 * 2.5**0.5 / 5**0.5),
    ],
)
def test_intervals_are_students(values: list[float], half: float) -> None:
    """Half-widths of two and of five replications, by a table of t."""
    told = interval(values)

    assert told["mean"] == sum(values) / len(values)
    assert told["half_width"] == pytest.approx(half, rel=1e-9)


def test_one_replication_has_no_interval() -> None:
    """Nulls where nothing can be said: no values, or one."""
    assert interval([]) == {"mean": None, "half_width": None}
    assert interval([2.0]) == {"mean": 2.0, "half_width": None}
    assert summed_up(np.array([math.nan])) == {"mean": None, "p50": None, "p90": None, "p99": None}
    assert distribution(np.array([])) == {"time_s": [], "share": []}


def test_a_distribution_is_of_values_that_occur() -> None:
    """128 values at eight points: each is the least that its share does not pass."""
    values = np.arange(128.0)[::-1]

    told = distribution(values, 8)
    assert told["share"] == [s / 8 for s in range(1, 9)]
    assert told["time_s"] == [15.0, 31.0, 47.0, 63.0, 79.0, 95.0, 111.0, 127.0]


# Several servers


def half_of(work: Workload, which: int) -> Workload:
    """Leave every second request."""
    return Workload(work.arrival[which::2], work.prompt[which::2], work.output[which::2])


@pytest.mark.parametrize("first", ["decode", "prefill", "static"])
def test_two_replicas_are_two_servers_of_half_the_requests(first: str) -> None:
    """Round-robin: every tick, preemption and step is that of two runs with every second one."""
    given_way = 0
    for seed in range(0, 1200, 6):
        load = workload(seed, first)
        work = Workload(load.arrivals, load.prompts, load.outputs)

        both = run(work, Pool(load.cost, load.limits, servers=2))

        for which in (0, 1) if len(load.prompts) > 1 else (0,):
            alone = run(half_of(work, which), Pool(load.cost, load.limits))
            for name in ("start", "first", "finish"):
                assert getattr(both.trace, name)[which::2] == getattr(alone.trace, name)
            assert both.servers[which].steps == alone.servers[0].steps
            assert both.servers[which].events == alone.servers[0].events
            own = {2 * i + which: n for i, n in alone.trace.preemptions.items()}
            assert {i: n for i, n in both.trace.preemptions.items() if i % 2 == which} == own
            given_way += sum(own.values())
    if first != "static":
        assert given_way >= 100


def test_clients_stay_with_their_server() -> None:
    """Clients of a closed loop: two replicas are two runs with half of the clients each."""
    steps = make_steps(case_of(LLAMA), "estimate")
    limits = Limits(4_000, kinds=steps.kinds)
    law = parse_law("exponential:300", ""), parse_law("exponential:100", "")
    work = closed_loop(8, 4, *law, seed=1, think=0.1)

    both = run(work, Pool(steps, limits, servers=2))

    for which in (0, 1):
        own = replace(half_of(work, which), clients=4, think=work.think)
        alone = run(own, Pool(steps, limits))
        assert both.trace.finish[which::2] == alone.trace.finish
        assert both.arrival[which::2] == alone.arrival


def test_the_least_loaded_server_makes_requests_wait_no_longer() -> None:
    """At nine tenths of what four servers can do, mean waits are shorter than by turns."""
    steps = make_steps(case_of(LLAMA), "estimate")
    limits = Limits(26_800, sequences=16, kinds=steps.kinds)
    law = parse_law("exponential:500", ""), parse_law("exponential:250", "")
    flood = run(replace(open_loop(1.0, 2000, *law, seed=0), arrival=[0] * 2000),
                Pool(steps, limits, servers=4))  # fmt: skip
    most = 2000 / flood.end
    for seed in range(3):
        work = open_loop(0.9 * most, 2000, *law, seed=seed)
        waits: dict[str, float] = {}
        for routing in ("round-robin", "least-loaded"):
            pool = Pool(steps, limits, servers=4, routing=routing)
            times = latencies(run(work, pool))
            waits[routing] = float((times.start - times.arrival).mean())

        assert 0 < waits["least-loaded"] < 0.9 * waits["round-robin"]


def test_the_least_loaded_server_is_the_one_with_fewest_requests() -> None:
    """By hand: one long request on the first of two servers sends the next ones to the second."""
    cost, limits = Bandwidth(1, 0, 1.0), Limits(1000, first="prefill", sequences=1)
    work = Workload([0, 1, 10 * TICKS, 13 * TICKS], [1] * 4, [100, 3, 3, 3])

    turns = run(work, Pool(cost, limits, servers=2))
    least = run(work, Pool(cost, limits, servers=2, routing="least-loaded"))

    assert [t / TICKS for t in turns.trace.start] == pytest.approx([0, 0, 99, 13])
    assert [t / TICKS for t in least.trace.start] == pytest.approx([0, 0, 10, 13])


def transfer(prompt: int) -> int:
    """Send a cache: a millisecond, and a microsecond a token."""
    return TICKS // 1000 + prompt * (TICKS // 10**6)


def test_handed_prompts_wait_are_computed_and_sent() -> None:
    """Time to first token = queue + prefill + transfer, each by a recursion of its own.

    One machine computes prompts one by one (Lindley), and one link sends their caches one by one.
    """
    chance = np.random.default_rng(4)
    number, token = 400, TICKS // 10_000
    arrival = np.cumsum(chance.exponential(0.06, number))
    prompt = chance.integers(1, 1000, number).tolist()
    work = Workload([int(t * TICKS) for t in arrival], prompt, [5] * number)
    handing = Handing(Pool(Prompts(token), ONE_BY_ONE), transfer)

    made = run(work, Pool(Bandwidth(10**6, 1, 1e9), Limits(10**6)), handing)

    free = link = 0
    for i, came in enumerate(work.arrival):
        began = max(came, free)
        free = began + prompt[i] * token
        link = max(link, free) + transfer(prompt[i])
        assert made.trace.start[i] == began
        assert made.trace.first[i] == link
    assert min(e - f for e, f in zip(made.trace.finish, made.trace.first, strict=True)) > 0
    # They decode where they are handed to: no prompt is computed a second time.
    assert made.decoders == 1
    assert made.servers[0].steps == len(set(made.trace.finish)) or made.servers[0].steps > 4
    told = made.steps[0].table()
    assert told["prompt_tokens"].sum() == 0
    assert made.steps[1].table()["prompt_tokens"].sum() == sum(prompt)


def test_an_idle_decoder_takes_a_handed_request_at_once() -> None:
    """By hand: prefill 10 ms of 100 tokens, 1.1 ms on the link, then four steps of 1 ms."""
    handing = Handing(Pool(Prompts(TICKS // 10_000), ONE_BY_ONE), transfer)
    work = Workload([0], [100], [5])

    made = run(work, Pool(Bandwidth(10**6, 0, 1e9), Limits(100)), handing)

    times = latencies(made)
    assert times.ttft.tolist() == pytest.approx([0.0111], rel=1e-9)
    assert times.e2e.tolist() == pytest.approx([0.0151], rel=1e-9)


def test_two_machines_compute_prompts_by_turns() -> None:
    """Two prompts that come together are computed side by side, and sent one after the other."""
    work = Workload([0, 0], [100, 100], [2, 1])
    both = Handing(Pool(Prompts(TICKS // 10_000), ONE_BY_ONE, servers=2), transfer)

    made = run(work, Pool(Bandwidth(10**6, 0, 1e9), Limits(100)), both)

    assert [t / TICKS for t in made.trace.first] == pytest.approx([0.0111, 0.0122])
    assert [t / TICKS for t in made.trace.finish] == pytest.approx([0.0121, 0.0122])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda: run(Workload([], [], []), Pool(Prompts(1), ONE_BY_ONE)), "no requests"),
        (
            lambda: run(Workload([0], [1000], [1]), Pool(Prompts(1), Limits(10))),
            r"request 1 \(1,000 tokens .*never fits: it takes 63 of 10 units",
        ),
        (
            lambda: run(
                Workload([0, -1], [1, 1], [2, 2], clients=1), Pool(Prompts(1), Limits(10)),
                Handing(Pool(Prompts(1), Limits(10)), transfer),
            ),
            "clients that wait",
        ),
        (
            lambda: run(
                Workload([0, -1], [1, 1], [2, 2], clients=1),
                Pool(Prompts(1), Limits(10), servers=2, routing="least-loaded"),
            ),
            "stay with one server",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_served_is_refused(change: Callable[[], Run], said: str) -> None:
    """No requests, requests that never fit, and clients where it is not known who serves them."""
    with pytest.raises(RooflmError, match=said):
        change()


def test_a_prompt_that_just_fits_the_pool_is_served() -> None:
    """144 + 16 tokens take 10 blocks of 16, of which the last one is held until the end."""
    limits = Limits(10)

    made = run(Workload([0], [144], [16]), Pool(Prompts(1), limits))
    assert made.trace.finish[0] > 0
    with pytest.raises(RooflmError, match="never fits"):
        run(Workload([0], [145], [17]), Pool(Prompts(1), limits))


def test_an_interrupt_keeps_what_is_done() -> None:
    """After a Ctrl-C the run is not complete, and holds the requests that had ended by then."""
    seen: list[int] = []

    class Pressed(Bandwidth):
        """Interrupts in the middle."""

        def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
            """Press Ctrl-C at the hundredth run."""
            seen.append(sequences)
            if len(seen) == 100:
                raise KeyboardInterrupt
            return super().run(sequences, tokens, more)

    law = parse_law("100", ""), parse_law("exponential:20", "")
    work = open_loop(100.0, 500, *law, seed=0)
    made = run(work, Pool(Pressed(10**6, 1, 1e8), Limits(10**4, first="prefill")))

    times = latencies(made)
    assert not made.complete
    assert 0 < len(times.finish) < 500
    assert times.measured == 500
    whole = run(work, Pool(Bandwidth(10**6, 1, 1e8), Limits(10**4, first="prefill")))
    ended = [i for i, t in enumerate(made.trace.finish) if t >= 0]
    assert [made.trace.finish[i] for i in ended] == [whole.trace.finish[i] for i in ended]
    assert whole.complete


def test_progress_is_told() -> None:
    """Long runs tell how many requests are done, in ascending numbers."""
    told: list[int] = []
    law = parse_law("10", ""), parse_law("exponential:20", "")
    work = open_loop(50.0, 40_000, *law, seed=0)

    run(work, Pool(Bandwidth(10**6, 1, 1e9), Limits(10**4)), tell=told.append)

    assert told
    assert told == sorted(told)
    assert told[-1] <= 40_000
