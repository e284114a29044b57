"""Answers about live traffic: what users wait for at a rate, at several, and at the most they may.

A run is a simulation with a seed; replications with seeds of their own give intervals. Rates are
held against the capacity, which a run of the same requests that all come at once tells: at that
rate and above no figure is finite, and shortly below it none is settled.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .case import Case
from .clock import TICKS, Counted, Kind, StepCost
from .errors import Exit, RooflmError
from .live import Handing, Pool, Run, run
from .requests import served_token_time
from .served import (
    Latencies,
    Slo,
    distribution,
    durations,
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
from .step_cost import Steps, seen_tokens
from .workload import Workload

NEAR = 0.95
"""Share of the capacity from which on nothing is settled."""
CUT = 0.1
"""Share of the requests of a capacity run that are left out at its start and at its end."""


@dataclass(frozen=True)
class Service:
    """What serves: servers, their step times, and what their memory holds."""

    case: Case
    basis: str
    steps: Steps
    pool: Pool
    memory: Mapping[str, float]
    """Of the fullest device of a server [B]."""
    unit_bytes: float
    handing: Handing | None = None
    told: tuple[str, ...] = ()
    unit_cost: bool = False
    """Steps take a second each, whatever the model."""
    prefill_steps: Steps | None = None
    """Of the machine that computes prompts for others."""


@dataclass(frozen=True)
class Traffic:
    """What comes: requests by rate and seed."""

    make: Callable[[float | None, int], Workload]
    rate: float | None
    """Requests a second; None for clients, and for a trace as it is."""
    seed: int = 0
    replications: int = 1
    warm_up: int = 0
    """Requests that come first and are not measured."""


Tell = Callable[[int, int], None]
"""Told of how many requests are done, and of how many."""


def simulate(
    service: Service, workload: Workload, tell: Tell | None = None, turn: int = 0, of: int = 1
) -> Run:
    """Run a workload on a service; turn, of: which of several runs it is."""

    def progress(done: int) -> None:
        if tell is not None:
            tell(turn * len(workload.prompt) + done, of * len(workload.prompt))

    return run(workload, service.pool, service.handing, progress)


def capacity(service: Service, workload: Workload) -> float | None:
    """Requests a second that a service ends when it never has to wait for one; None without end.

    All requests come at once; the first and the last tenth to end are left out, in which the batch
    fills and drains. Few requests are taken several times over, until what is measured is several
    times as long as the longest request takes: before that the batch has not settled. Static
    batches are counted whole.
    """
    least = BATCHES * service.pool.limits.sequences * service.pool.servers
    while True:
        flood = _flood(workload, least)
        made, rate, span = _ended_per_s(service, flood)
        taken = max(map(operator.sub, made.trace.finish, made.trace.start), default=0)
        static = service.pool.limits.first == "static"
        if static or span >= SETTLED * taken or len(flood.prompt) >= MOST_FLOOD:
            return rate
        least = 2 * len(flood.prompt)


def _ended_per_s(service: Service, flood: Workload) -> tuple[Run, float | None, int]:
    """Let all requests come at once: the run, those that end in a second, and ticks measured."""
    requests = len(flood.prompt)
    made = run(flood, service.pool, service.handing)
    if not made.complete:
        raise KeyboardInterrupt
    ends = sorted(made.trace.finish)
    low = int(CUT * requests)
    high = requests - 1 - low
    span = ends[high] - ends[low]
    if span <= 0 or high <= low or service.pool.limits.first == "static":
        return made, requests * TICKS / ends[-1] if ends[-1] else None, ends[-1]
    return made, (high - low) * TICKS / span, span


BATCHES = 12
"""Times as many requests as run at once are in a capacity run at least."""
MOST_FLOOD = 40_000
"""Requests of a capacity run at most, unless that many more run at once."""
SETTLED = 3
"""Times as long as its longest request a capacity run is measured at least."""


def _flood(work: Workload, least: int) -> Workload:
    """Let all requests of a workload come at once: the first of many, or few several times over."""
    requests = len(work.prompt)
    size = min(requests, max(least, MOST_FLOOD // 2))
    times = -(-least // size)

    def again(values: list[Any]) -> list[Any]:
        return values[:size] * times

    return replace(
        work, arrival=[0] * (size * times), prompt=again(work.prompt), output=again(work.output),
        priority=again(work.priority), prefix=again(work.prefix),
        prefix_tokens=again(work.prefix_tokens), clients=0, think=0,
        # The same conversation again would find all of itself.
        session=[
            f"{name} {turn}" if name else ""
            for turn in range(times) for name in work.session[:size]
        ],
    )  # fmt: skip


def measure(service: Service, made: Run, warm_up: int, slo: Slo) -> dict[str, Any]:
    """Take the figures out of one run, by the keys of the answer."""
    work = made.workload
    found = latencies(made, warm_up)
    done = len(found.arrival)
    tokens = gaps(made.steps[: made.decoders], _since(made, warm_up))
    span = float(found.finish.max() - found.arrival.min()) if done else 0.0
    answer: dict[str, Any] = {
        "requests": len(work.prompt),
        "measured_requests": done,
        "unfinished_requests": found.measured - done,
        "duration_s": made.end,
        "ttft_s": summed_up(found.ttft),
        "itl_s": gap_summary(tokens),
        "tpot_s": summed_up(found.itl),
        "e2e_s": summed_up(found.e2e),
        "throughput_tokens_per_s": float(found.output.sum()) / span if span else None,
        "throughput_requests_per_s": done / span if span else None,
        "goodput_requests_per_s": None,
        "attainment": None,
    }
    if slo.says and done:
        good = met(found, slo)
        answer["attainment"] = float(good.mean())
        answer["goodput_requests_per_s"] = float(good.sum()) / span if span else None
    answer["time_split"] = split(service, made, found)
    answer["cache"] = occupancy(made, service.unit_bytes, service.pool.limits.block)
    answer["preemptions"] = sum(made.trace.preemptions.values())
    answer["swaps"] = sum(s.swaps for s in made.servers)
    answer["engine_steps"] = sum(s.steps for s in made.servers)
    answer["events"] = sum(s.events for s in made.servers)
    return answer


def _since(made: Run, warm_up: int) -> float:
    """Tell when the first request that is measured came [s]."""
    return made.arrival[warm_up] / TICKS if 0 < warm_up < len(made.arrival) else 0.0


def split(service: Service, made: Run, found: Latencies) -> dict[str, float | None]:
    """Split the mean time of a request: queueing, prefill, decode; and the share of messages."""
    import numpy as np

    if not len(found.arrival):
        keys = ("queueing_s", "prefill_s", "handoff_s", "decode_s")
        return dict.fromkeys((*keys, "communication_share", "busy_share"))
    sent = busy = 0.0
    for steps in made.steps[: made.decoders]:
        table = steps.table()
        rows = (table["decoding"] + table["prompt_tokens"]).astype(int)
        if not len(rows):
            continue
        service.steps.row_time(int(rows.max()))
        of_rows = np.array(service.steps.sent_s)
        sent += float((of_rows[rows] * table["steps"]).sum())
        busy += float(durations(table).sum())
    handed = 0.0 if found.handed is None else float(found.handed.mean())
    share: float | None = sent / busy if busy else 0.0
    if service.pool.cost is not service.steps:
        # What rounds of drafting send is not told apart.
        share = None
    return {
        "queueing_s": float(found.waited.mean()),
        "prefill_s": float((found.ttft - found.waited).mean()) - handed,
        "handoff_s": None if found.handed is None else handed,
        "decode_s": float((found.e2e - found.ttft).mean()),
        "communication_share": share,
        "busy_share": busy / (made.end * made.decoders) if made.end else 0.0,
    }


SPREAD = ("ttft_s", "itl_s", "tpot_s", "e2e_s")
"""Figures that have a mean and quantiles."""
ALONE = ("throughput_tokens_per_s", "throughput_requests_per_s", "goodput_requests_per_s",
         "attainment")  # fmt: skip


def at_rate(
    service: Service, traffic: Traffic, rate: float | None, slo: Slo, tell: Tell | None = None,
    runs: list[Run] | None = None, limit: float | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Answer what users wait for at a rate, the mean of all replications and its interval.

    runs: gets the first run, which may be drawn; limit: the capacity, where it is known.
    """
    found: list[dict[str, Any]] = []
    form: dict[str, float | None] = {}
    stable: bool | None = None
    known = limit
    complete = True
    for turn in range(traffic.replications):
        work = traffic.make(rate, traffic.seed + turn)
        if turn == 0:
            form = closed_form(service, work, rate)
            if rate is not None and known is None:
                known = capacity(service, work)
        made = simulate(service, work, tell, turn, traffic.replications)
        if runs is not None and turn == 0:
            runs.append(made)
        warm = min(traffic.warm_up, len(work.prompt) - 1)
        told = measure(service, made, warm, slo)
        if not made.complete:
            complete = False
            if found:
                # What is told is of whole replications.
                break
        found.append(told)
        if not complete:
            break
    regime = None
    if rate is not None and known is not None:
        stable = rate < known
        regime = (
            "unstable" if not stable else "near saturation" if rate >= NEAR * known else "stable"
        )
    row = dict(found[0])
    row |= {"rate_requests_per_s": rate, "capacity_requests_per_s": known}
    row |= {"stable": stable, "load": regime, "complete": complete}
    row["replications"] = len(found)
    for key in ("time_split", "cache"):
        row[key] = {name: _mean([f[key].get(name) for f in found]) for name in row[key]}
    for key in ("duration_s", "preemptions", "swaps", "engine_steps", "events"):
        row[key] = _mean([f[key] for f in found])
    row["intervals"] = {}
    for key in SPREAD:
        for name in row[key]:
            values = [f[key][name] for f in found if f[key][name] is not None]
            told = interval(values)
            row[key] = row[key] | {name: told["mean"]}
            row["intervals"][f"{key}.{name}"] = told["half_width"]
    for key in ALONE:
        told = interval([f[key] for f in found if f[key] is not None])
        row[key] = told["mean"]
        row["intervals"][key] = told["half_width"]
    if regime == "unstable":
        # Without an end of the queue these depend on how long one looks: they are no answer.
        for key in ("ttft_s", "e2e_s"):
            row[key] = dict.fromkeys(row[key])
            row["intervals"] |= {f"{key}.{name}": None for name in row[key]}
        row["time_split"] = row["time_split"] | {"queueing_s": None}
        row["attainment"] = row["goodput_requests_per_s"] = None
    row["closed_form"] = form
    return row


def _mean(values: Sequence[float | None]) -> float | None:
    """Mean of replications; a whole number where all are the same."""
    known = [v for v in values if v is not None]
    if not known:
        return None
    return known[0] if len(set(known)) == 1 else sum(known) / len(known)


def closed_form(service: Service, work: Workload, rate: float | None) -> dict[str, float | None]:
    """Tell what a formula without a queue says: a step and a share of the others' prefills.

    With clients all of them decode; at a rate as many as come while one decodes (Little's law).
    """
    requests = len(work.prompt)
    prompt, output = sum(work.prompt) / requests, sum(work.output) / requests
    if service.unit_cost:
        return dict.fromkeys(("prefill_s", "running_sequences", "itl_s"))
    prefill = prefill_time(service, prompt)
    context = prompt + output / 2
    servers = service.pool.servers
    share = 0.0 if service.handing is not None else prefill
    most = service.pool.limits.sequences

    def token(sequences: float) -> float:
        step = decode_time(service.pool.cost, service.steps.kinds, sequences, context)
        return served_token_time(step, share, max(1.0, sequences), output)

    batch: float | None
    if work.clients:
        batch = min(work.clients / servers, most)
    elif rate is None or output <= 1:
        batch = None
    else:
        batch = _little(lambda B: rate / servers * (output - 1) * token(B), most)
    known = batch is not None and output > 1
    return {
        "prefill_s": prefill,
        "running_sequences": batch,
        "itl_s": token(batch) if known and batch is not None else None,
    }


def _little(arrived: Callable[[float], float], most: float) -> float | None:
    """Find the sequences that run when as many come as end; None where they pile up."""
    if arrived(most) > most:
        return None
    low, high = 0.0, most
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if arrived(middle) > middle else (low, middle)
    return high


def decode_time(cost: StepCost, kinds: Sequence[Kind], sequences: float, context: float) -> float:
    """Seconds of a decode step of so many equal sequences, between whole numbers a line."""
    low = max(1, int(sequences))
    share = max(0.0, sequences - low)

    def whole(n: int) -> float:
        more = [_seen(kind, n, context) for kind in kinds]
        return cost.run(n, round(n * context), more)[0] / TICKS

    return whole(low) if not share else (1 - share) * whole(low) + share * whole(low + 1)


def _seen(kind: Kind, sequences: int, context: float) -> Counted:
    """What equal sequences see of a kind of layers."""
    return Counted(kind, tokens=round(sequences * seen_tokens(kind, context)), growing=0)


def prefill_time(service: Service, prompt: float) -> float:
    """Seconds of the prefill of a prompt on an idle server, in the chunks of its budget."""
    steps = service.prefill_steps or service.steps
    limits = service.pool.limits if service.handing is None else service.handing.prefill.limits
    size = limits.tokens if limits.first == "decode" else round(prompt)
    taken, past, whole = 0, 0, max(1, round(prompt))
    nothing = [Counted(kind) for kind in steps.kinds]
    while past < whole:
        new = min(size, whole - past)
        taken += steps.mixed(0, 0, nothing, [(new, past)], int(past + new == whole))
        past += new
    return taken / TICKS


def find_rate(
    service: Service, traffic: Traffic, slo: Slo, share: float, tell: Tell | None = None
) -> dict[str, Any]:
    """Find the largest rate at which a share of the requests keeps what is promised.

    Every replication looks for its own with the same lengths and scaled gaps; their mean and its
    interval are the answer. Raises `RooflmError` where no rate does.
    """
    if not slo.says:
        raise RooflmError("a rate is found for a promise", "--find-rate", "Say --slo-ttft 500ms.")
    found: list[float] = []
    capacities: list[float] = []
    for turn in range(traffic.replications):
        seed = traffic.seed + turn

        def keeps(rate: float, seed: int = seed, turn: int = turn) -> bool:
            work = traffic.make(rate, seed)
            made = simulate(service, work, tell, turn, traffic.replications)
            if not made.complete:
                raise KeyboardInterrupt
            times = latencies(made, min(traffic.warm_up, len(work.prompt) - 1))
            return float(met(times, slo).mean()) >= share

        most = capacity(service, traffic.make(1.0, seed))
        if most is None:
            raise RooflmError("requests take no time: every rate is kept", "--find-rate")
        capacities.append(most)
        low, high = 0.0, most
        if keeps(most * (1 - RATE_DIGITS)):
            found.append(most * (1 - RATE_DIGITS))
            continue
        least = most / 2**20
        if not keeps(least):
            what = f"even one request at a time keeps it in less than {100 * share:g} % of cases"
            fix = "Promise less, or take a faster machine."
            raise RooflmError(what, "--find-rate", fix, Exit.NO)
        while high - low > RATE_DIGITS * high:
            middle = (low + high) / 2
            low, high = (middle, high) if keeps(middle) else (low, middle)
        found.append(low)
    told = interval(found)
    return {
        "rate_requests_per_s": told["mean"], "half_width": told["half_width"], "found": found,
        "capacity_requests_per_s": sum(capacities) / len(capacities),
        "limit": "capacity" if found[0] == capacities[0] * (1 - RATE_DIGITS) else "promise",
    }  # fmt: skip


RATE_DIGITS = 2e-3
"""A rate is found to this share of it."""


def details(made: Run, warm_up: int) -> dict[str, Any]:
    """Tell a run over time and as distributions, for figures."""
    found = latencies(made, warm_up)
    return {
        "over_time": over_time(made),
        "distributions": {
            "ttft_s": distribution(found.ttft),
            "itl_s": gap_distribution(gaps(made.steps[: made.decoders], _since(made, warm_up))),
            "e2e_s": distribution(found.e2e),
        },
    }


def frame(
    service: Service, traffic: Traffic, row: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Put figures into the object that the command answers with."""
    from .sweep import assumptions, shared

    case = service.case
    said = assumptions(case, "decode", [1024])
    return {
        "schema": "rooflm.serve/1",
        "model": case.model.name,
        "hardware": case.machine.name,
        **shared(case),
        "basis": service.basis,
        **row,
        "memory": {**service.memory, **row.get("cache", {})},
        **({"rows": [dict(r) for r in rows]} if rows else {}),
        "assumptions": [*_came(traffic, rows), *service.told, *said],
    }


def _came(traffic: Traffic, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what came: of a sweep, at which rates."""
    told = list(traffic.make(traffic.rate, traffic.seed).told)
    if not rows:
        return told
    number = rows[0]["requests"]
    return [f"at each rate {number:,} requests, seed {traffic.seed}", *told[1:]]
