"""What users of a simulated server waited for: latencies, throughput, and where the time went."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from .clock import TICKS
from .live import Run, StepLog
from .scheduler import Server
from .sharing_server import ReservingServer, SharingServer

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

QUANTILES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
POINTS = 240
"""Points of a distribution or of a course over time that an answer holds."""


@dataclass(frozen=True)
class Slo:
    """What is promised to a request; None where nothing is."""

    ttft_s: float | None = None
    itl_s: float | None = None
    """Of the mean time between its tokens."""
    e2e_s: float | None = None

    @property
    def says(self) -> bool:
        """Tell whether anything is promised."""
        return (self.ttft_s, self.itl_s, self.e2e_s) != (None, None, None)


@dataclass(frozen=True)
class Latencies:
    """Times of the requests that were measured and are done [s]."""

    arrival: Array
    waited: Array
    """From arrival to the first step that computes it."""
    ttft: Array
    """From arrival to the first token."""
    e2e: Array
    """From arrival to the last token."""
    output: Array
    """Tokens of each."""
    measured: int
    """Requests that were measured, those that are not done included."""

    handed: Array | None = None
    """From the end of a prompt that was computed elsewhere to its first token."""

    @property
    def start(self) -> Array:
        """When a request was first computed."""
        return self.arrival + self.waited

    @property
    def first(self) -> Array:
        """When its first token came."""
        return self.arrival + self.ttft

    @property
    def finish(self) -> Array:
        """When its last token came."""
        return self.arrival + self.e2e

    @property
    def itl(self) -> Array:
        """Mean time of each further token, of requests that have one; NaN for others."""
        further = self.output - 1
        return np.where(further > 0, (self.e2e - self.ttft) / np.maximum(further, 1), np.nan)


def latencies(run: Run, warm_up: int = 0) -> Latencies:
    """Take the times out of a run.

    warm_up: requests that come first and are not measured.
    """
    trace, output = run.trace, run.workload.output
    done = [i for i in range(warm_up, len(output)) if trace.finish[i] >= 0]

    # Differences of times late in a long run keep their digits: ticks are subtracted as integers.
    base = run.arrival

    whole = len(done) == len(output)

    def between(late: Sequence[int], early: Sequence[int]) -> Array:
        if not whole:
            late, early = [late[i] for i in done], [early[i] for i in done]
        gaps = map(operator.sub, late, early)
        return np.fromiter(gaps, dtype=float, count=len(done)) / float(TICKS)

    return Latencies(
        np.fromiter(base if whole else (base[i] for i in done), float, len(done)) / float(TICKS),
        *(between(ticks, base) for ticks in (trace.start, trace.first, trace.finish)),
        handed=None if run.ready is None else between(trace.first, run.ready),
        output=np.array([output[i] for i in done], dtype=float),
        measured=len(output) - warm_up,
    )  # fmt: skip


def summed_up(values: Array) -> dict[str, float | None]:
    """Mean and quantiles; nulls where there are no values."""
    known = values[~np.isnan(values)]
    if not len(known):
        return dict.fromkeys(("mean", *QUANTILES))
    found = np.quantile(known, list(QUANTILES.values()))
    return {"mean": float(known.mean()), **dict(zip(QUANTILES, map(float, found), strict=True))}


@dataclass(frozen=True)
class Gaps:
    """Times between tokens, as series: count in each of k steps, first + j rise [s]."""

    k: Array
    count: Array
    first: Array
    rise: Array

    @cached_property
    def tokens(self) -> float:
        """Number of gaps."""
        return float((self.k * self.count).sum())

    @cached_property
    def last(self) -> Array:
        """Last gap of each series [s]."""
        return self.first + self.rise * (self.k - 1)

    @cached_property
    def _firsts(self) -> tuple[Array, Array]:
        return _summed_to(self.first, self.k * self.count)

    @cached_property
    def _lasts(self) -> tuple[Array, Array]:
        return _summed_to(self.last, self.k * self.count)

    def below(self, value: float) -> float:
        """Count the gaps up to a time."""
        whole = np.where(value >= self.first, 1.0, 0.0)
        rising = self.rise > 0
        reach = np.floor((value - self.first[rising]) / self.rise[rising] * (1 + 1e-12)) + 1
        whole[rising] = np.clip(reach, 0, self.k[rising])
        whole[~rising] *= self.k[~rising]
        return float((whole * self.count).sum())

    def mean(self) -> float:
        """Mean gap [s]."""
        series = self.k * self.first + self.rise * self.k * (self.k - 1) / 2
        return float((series * self.count).sum() / self.tokens)

    def quantile(self, share: float) -> float:
        """Least time that a share of the gaps does not pass, to 1e-9 of it [s]."""
        target, last = share * self.tokens, self.last
        # A series is nowhere below its first gap, and nowhere above its last one.
        low, high = _least(self._firsts, target), _least(self._lasts, target)
        weights = self.k * self.count
        done = last <= low
        base, inside = float(weights[done].sum()), ~done & (self.first <= high)
        rest = Gaps(self.k[inside], self.count[inside], self.first[inside], self.rise[inside])
        if base + rest.below(low) >= target:
            return low
        while high - low > 1e-9 * high:
            middle = (low + high) / 2
            if base + rest.below(middle) >= target:
                high = middle
            else:
                low = middle
        return high


def _summed_to(values: Array, weights: Array) -> tuple[Array, Array]:
    """Sort values, and add up the weights of all up to each."""
    order = np.argsort(values)
    return values[order], np.cumsum(weights[order])


def _least(summed: tuple[Array, Array], target: float) -> float:
    """Find the least value up to which weights add up to a target."""
    values, sums = summed
    place = int(np.searchsorted(sums, target * (1 - 1e-12)))
    return float(values[min(place, len(values) - 1)])


def gaps(steps: Sequence[StepLog], since: float = 0.0) -> Gaps:
    """Collect the times between tokens of servers that decode, of steps from a time on [s]."""
    tables = [part.table() for part in steps]
    late = np.concatenate([part.late_tokens() for part in steps])
    columns: dict[str, Array] = {
        name: np.concatenate([t[name] for t in tables]) if len(tables) > 1 else tables[0][name]
        for name in ("steps", "decoding", "late", "first_s", "rise_s", "start_s")
    }
    late = late[late[:, 2] >= since]
    on_time = columns["decoding"] - columns["late"]
    keep = (on_time > 0) & (columns["start_s"] >= since)
    ones, zeros = np.ones(len(late)), np.zeros(len(late))
    return Gaps(
        k=np.concatenate([columns["steps"][keep], ones]),
        count=np.concatenate([on_time[keep], late[:, 0]]),
        first=np.concatenate([columns["first_s"][keep], late[:, 1]]),
        rise=np.concatenate([columns["rise_s"][keep], zeros]),
    )


def gap_summary(found: Gaps) -> dict[str, float | None]:
    """Mean and quantiles of the times between tokens; nulls where there are none."""
    if not found.tokens:
        return dict.fromkeys(("mean", *QUANTILES))
    return {
        "mean": found.mean(), **{name: found.quantile(share) for name, share in QUANTILES.items()}
    }  # fmt: skip


def durations(table: Mapping[str, Array]) -> Array:
    """How long each run of steps took [s]."""
    k = table["steps"]
    return k * table["first_s"] + table["rise_s"] * k * (k - 1) / 2


def met(found: Latencies, slo: Slo) -> Array:
    """Tell which requests kept what was promised."""
    good = np.ones(len(found.arrival), dtype=bool)
    for values, limit in ((found.ttft, slo.ttft_s), (found.itl, slo.itl_s), (found.e2e, slo.e2e_s)):
        if limit is not None:
            good &= ~(values > limit)
    return good


def occupancy(run: Run, unit_bytes: float, block: int) -> dict[str, Any]:
    """Tell how full the caches of the servers that decode were, on average over time, and at most.

    unit_bytes: of a unit of the pool [B]; block: tokens of a block.
    """
    pool = run.servers[0].limits.pool
    took, used, held, running = 0.0, 0.0, 0.0, 0.0
    plain = run.servers[0].limits.whole_blocks
    for server, steps in zip(run.servers[: run.decoders], run.steps, strict=False):
        table = steps.table()
        lasted = durations(table)
        used += float((_used(server, table) * lasted).sum())
        grown = table["decoding"] * (table["steps"] + 1) / 2
        held += float(((table["held_tokens"] + grown) * lasted).sum())
        running += float((table["decoding"] * lasted).sum())
        took += float(lasted.sum())
    least = min(server.least_free for server in run.servers[: run.decoders])
    answer: dict[str, Any] = {
        "pool_bytes": pool * unit_bytes,
        "mean_bytes": used / took * unit_bytes if took else 0.0,
        "peak_bytes": (pool - least) * unit_bytes,
        "mean_share": used / took / pool if took else 0.0,
        "peak_share": (pool - least) / pool,
        "mean_running_sequences": running / took if took else 0.0,
    }
    sharing = [s for s in run.servers if isinstance(s, SharingServer)]
    if sharing:
        asked = sum(s.asked_tokens for s in sharing)
        answer["hit_share"] = sum(s.found_tokens for s in sharing) / asked if asked else 0.0
        answer["evicted_blocks"] = sum(s.cache.evicted for s in sharing)
    if isinstance(run.servers[0], ReservingServer):
        answer |= reserved_waste(run, run.servers[0], held, took * pool)
    elif plain and not isinstance(run.servers[0], SharingServer):
        # Prompts that are being computed hold blocks and no tokens yet: they count as waste.
        answer["unfilled_share"] = 1 - held / (used * block) if used else 0.0
    return answer


def _used(server: Server, table: Mapping[str, Array]) -> Array:
    """Units in use in the mean of each run of steps: what decoding takes grows step by step."""
    k = table["steps"]
    growing = table["taken_units"] * (k - 1) / (2 * k)
    return server.limits.pool - table["free_units"] - growing


def reserved_waste(
    run: Run, server: ReservingServer, held: float, whole: float
) -> dict[str, float]:
    """Split caches that are reserved in one piece, as shares of the pool over the busy time.

    server: one of them; held: tokens in caches times seconds; whole: tokens of the pools times
    seconds. token: what holds tokens; future: reserved for tokens that come; internal: reserved and
    never used; external: free while a request waits; the rest is free while none does. Source:
    arXiv 2309.06180, figure 2.
    """
    trace, work = run.trace, run.workload
    future = internal = external = 0.0
    for i, ended in enumerate(trace.finish):
        if ended >= 0:
            lasted = (ended - trace.start[i]) / TICKS
            final = work.prompt[i] + work.output[i] - 1
            size = server.size_of(work.prompt[i], work.output[i])
            future += final * lasted
            internal += (size - final) * lasted
    for steps in run.steps[: run.decoders]:
        table = steps.table()
        external += float((table["free_units"] * durations(table) * (table["waiting"] > 0)).sum())
    return {
        "token_share": held / whole,
        "future_share": (future - held) / whole,
        "internal_share": internal / whole,
        "external_share": external / whole,
    }


def over_time(run: Run, points: int = POINTS) -> dict[str, list[float]]:
    """Tell the course of a run: running, waiting and the share of the pool in use, by time."""
    end = run.end
    edges = np.linspace(0, end, points + 1)
    pool = run.servers[0].limits.pool * run.decoders
    sums = {name: np.zeros(points) for name in ("running", "waiting", "used")}
    for server, steps in zip(run.servers[: run.decoders], run.steps, strict=False):
        table = steps.table()
        lasted, start = durations(table), table["start_s"]
        for name, values in (
            ("running", table["decoding"]),
            ("waiting", table["waiting"]),
            ("used", _used(server, table)),
        ):
            sums[name] += np.diff(np.interp(edges, *_summed(start, lasted, values)))
    width = end / points if end else 1.0
    return {
        "time_s": [float(t) for t in (edges[:-1] + edges[1:]) / 2],
        "running_sequences": [float(v) for v in sums["running"] / width],
        "waiting_requests": [float(v) for v in sums["waiting"] / width],
        "pool_share": [float(v) for v in sums["used"] / width / pool],
    }


def _summed(start: Array, lasted: Array, values: Array) -> tuple[Array, Array]:
    """Corners of the integral of a step function; it stands still while a server is idle."""
    if not len(start):
        return np.zeros(1), np.zeros(1)
    area = np.cumsum(values * lasted)
    corners, heights = np.empty(2 * len(start)), np.empty(2 * len(start))
    corners[0::2], corners[1::2] = start, start + lasted
    heights[0::2], heights[1::2] = area - values * lasted, area
    return corners, heights


def distribution(values: Array, points: int = POINTS) -> dict[str, list[float]]:
    """Times and the share of requests that did not wait longer."""
    known = np.sort(values[~np.isnan(values)])
    if not len(known):
        return {"time_s": [], "share": []}
    shares = np.linspace(0, 1, min(points, len(known)) + 1)[1:]
    at = np.quantile(known, shares, method="inverted_cdf")
    return {"time_s": [float(t) for t in at], "share": [float(s) for s in shares]}


def gap_distribution(found: Gaps, points: int = 60) -> dict[str, list[float]]:
    """Times between tokens and the share of tokens that did not take longer."""
    if not found.tokens:
        return {"time_s": [], "share": []}
    # Denser where the tail is: the last points are 0.1 % apart.
    shares = np.concatenate([np.linspace(0, 1, points + 1)[1:-1], np.linspace(0.99, 1, 11)])
    return {
        "time_s": [found.quantile(float(s)) for s in shares],
        "share": [float(s) for s in shares],
    }


T95 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
       2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086)  # fmt: skip
"""Student's t of 95 % by degrees of freedom, from 1 on; 1.96 beyond 20 is 6 % too narrow."""


def interval(values: Sequence[float]) -> dict[str, float | None]:
    """Mean of replications and half of its 95 % interval (Student); null for fewer than two."""
    if not values:
        return {"mean": None, "half_width": None}
    mean = sum(values) / len(values)
    if len(values) < 2:
        return {"mean": mean, "half_width": None}
    spread = (sum((v - mean) ** 2 for v in values) / (len(values) - 1)) ** 0.5
    t = T95[len(values) - 2] if len(values) - 2 < len(T95) else 1.96
    return {"mean": mean, "half_width": t * spread / len(values) ** 0.5}
