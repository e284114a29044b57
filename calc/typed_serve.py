"""What was typed of live traffic: the servers, and what comes to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from .asked import Words, case_of, counting_of, group
from .clock import TICKS, Counted, First, Limits
from .errors import RooflmError, check_choice
from .noted import noted
from .options import DRAFTED, HANDOFF, LAYOUT
from .options_serve import USUAL
from .typed import find_handoff, given
from .units import parse_count, parse_rate, parse_share, parse_size, parse_time

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .case import Case
    from .live import Handing
    from .serve import Service, Traffic
    from .served import Slo
    from .speculative_steps import SpeculativeSteps
    from .step_cost import Steps
    from .workload import Lengths, Workload


SCHEDULERS: dict[str, First] = {
    "chunked": "decode", "prefill-first": "prefill", "static": "static",
}  # fmt: skip
"""Names of the policies."""
MANY = 20_000
"""From so many requests on, one run is taken unless replications are asked for."""
REPLICATIONS = 5
WARM_UP = 0.1
"""Share of the requests at a rate that come first and are not measured."""


class UnitCost:
    """Steps of the textbook: one of decoding takes a second, prompts none, whatever the lengths."""

    def run(self, sequences: int, tokens: int, more: Sequence[Counted]) -> tuple[int, int, int]:
        """Take a second for a step."""
        del tokens, more
        return TICKS if sequences else 0, 0, 2**50

    def mixed(
        self, sequences: int, tokens: int, more: Sequence[Counted],
        chunks: Sequence[tuple[int, int]], ends: int,
    ) -> int:  # fmt: skip
        """Take a second where something decodes."""
        del tokens, more, chunks, ends
        return TICKS if sequences else 0

    def moved(self, tokens: int) -> int:
        """Move in no time."""
        del tokens
        return 0


def _said(words: Words, name: str) -> str:
    """Take an option as typed, or as usual."""
    return given(words.get(name), USUAL[name])


def find_service(words: Words) -> Service:
    """Make the servers of what was typed."""
    from .live import ROUTINGS, Pool
    from .serve import Service
    from .step_cost import cache_room, make_limits, make_steps

    case = case_of(words)
    basis = _basis(words, case)
    replicas = 1 if case.layout is None else case.layout.replicas
    one = _one_replica(case)
    swap = words.get("swap")
    steps = make_steps(one, basis, _host_link(one) if swap is not None else 0.0)
    scheduler = _said(words, "scheduler")
    check_choice(scheduler, tuple(SCHEDULERS), "--scheduler")
    routing: Any = _said(words, "routing_policy")
    check_choice(routing, ROUTINGS, "--routing-policy")
    like = Limits(
        pool=0,
        block=_at_most(_said(words, "block"), "--block", MOST_BLOCK),
        tokens=parse_count(_said(words, "max_batched_tokens"), "--max-batched-tokens"),
        sequences=_most_sequences(words, case, basis),
        first=SCHEDULERS[scheduler],
    )
    _refuse_idle(words)
    memory = cache_room(one, like.tokens, like.sequences)
    drafting, beside = _drafting(words, one, steps, basis, memory)
    pool_bytes = memory["cache_pool_bytes"]
    typed_pool = words.get("cache")
    if typed_pool is not None:
        pool_bytes = float(parse_size(typed_pool, "--cache", least=1))
        if pool_bytes > memory["cache_pool_bytes"]:
            what = f"the caches have {memory['cache_pool_bytes'] / 1e9:,.2f} GB of memory"
            raise RooflmError(what, "--cache", "Take less.")
        memory["cache_pool_bytes"] = pool_bytes
    limits = make_limits(steps, pool_bytes, like, beside)
    if not limits.pool:
        what = f"{pool_bytes:,.0f} B hold no block of the cache"
        raise RooflmError(what, "--cache", "Give the caches more memory.")
    unit_bytes = pool_bytes / limits.pool
    watermark = words.get("watermark")
    if watermark not in (None, "0"):
        share = parse_share(watermark, "--watermark")
        limits = replace(limits, watermark=int(share * limits.pool))
    if swap is not None:
        limits = replace(limits, swap=int(parse_size(swap, "--swap", least=1) / unit_bytes))
    unit_cost = bool(words.get("unit_cost"))
    if unit_cost and drafting is not None:
        what = "steps that take a second each know of no draft"
        raise RooflmError(what, "--unit-cost", "Leave out one of the options.")
    cost: Any = UnitCost() if unit_cost else drafting or steps
    if unit_cost and limits.first == "decode":
        what = "prompts that take no time have steps of their own"
        raise RooflmError(what, "--unit-cost", "Say --scheduler prefill-first, or static.")
    reserve, longest = _contiguous(words, limits)
    if reserve:
        tokens = unit_bytes / limits.block
        limits = replace(limits, pool=int(pool_bytes // tokens), units=0)
        unit_bytes = tokens
    pool = Pool(cost, limits, replicas, routing, reserve, longest)
    handing, prefill_steps, told = _handing(words, case, basis, limits)
    return Service(
        one, basis, steps, pool, memory, unit_bytes, handing,
        told=(*_told(limits, unit_bytes, words), *told, *_drafting_told(drafting)),
        unit_cost=unit_cost, prefill_steps=prefill_steps,
    )  # fmt: skip


def _basis(words: Words, case: Case) -> str:
    """Take estimates where there are some, unless bounds are asked for."""
    asked = words.get("basis")
    if asked is not None:
        check_choice(asked, ("estimate", "bound"), "--basis")
        return str(asked)
    return "bound" if case.constants is None or case.basis == "bound" else "estimate"


def _drafting(
    words: Words, case: Case, steps: Steps, basis: str, memory: dict[str, float]
) -> tuple[SpeculativeSteps | None, float]:
    """Make the step times of a server that drafts, and tell bytes of its draft's cache a token.

    memory: of the device; what the draft holds is taken off the room for caches.
    """
    drafted = group(words, DRAFTED)
    if all(value is None for value in drafted.values()):
        return None, 0.0
    from .drafts import draft_memory
    from .speculative_steps import SpeculativeSteps, timed_contexts
    from .typed_drafts import find_speculation

    asked = find_speculation(case, drafted, counting_of(words), words.get("models"))
    if drafted["draft_tokens"] is None and asked.shape is None:
        what = "how many tokens a round drafts is needed"
        raise RooflmError(what, "--draft-tokens", "Say --draft-tokens 4.")
    gamma = 1
    if drafted["draft_tokens"] is not None:
        gamma = parse_count(drafted["draft_tokens"], "--draft-tokens")
    if gamma > asked.longest:
        what = f"the draft makes at most {asked.longest} tokens"
        raise RooflmError(what, "--draft-tokens", "Take fewer.")
    if steps.kinds:
        what = "drafting is simulated for models whose layers all see everything"
        raise RooflmError(what, "--draft", "Leave it out.")
    proposal = asked.proposal(gamma)
    short, long = (draft_memory(asked.draft, 1, S, proposal) for S in (1, 1001))
    weights = float(short["draft_weights_bytes"])
    memory["draft_weights_bytes"] = weights
    memory["cache_pool_bytes"] -= weights
    if memory["cache_pool_bytes"] <= 0:
        raise RooflmError("the draft leaves no room for caches", "--draft", "Take a smaller one.")
    beside = float(long["draft_cache_bytes"] - short["draft_cache_bytes"]) / 1000
    longest = sum(law.most for law in _laws(words)) if words.get("trace") is None else 2**17
    contexts = timed_contexts(min(longest, 2**20))
    return SpeculativeSteps(steps, asked, gamma, basis, contexts), beside


def _drafting_told(drafting: SpeculativeSteps | None) -> list[str]:
    """Say what an approximation drafting is."""
    if drafting is None:
        return []
    return [
        f"drafting: rounds of {drafting.gamma} drafted tokens yield {drafting.tokens:.3g} on "
        "average, and each token takes that share of a round (an approximation: tokens come "
        "several at once, and the draft's own prefill is left out)"
    ]


def _contiguous(words: Words, limits: Limits) -> tuple[str, int]:
    """Read whether caches are reserved in one piece, and for how many tokens at most."""
    from .sharing_server import RESERVES

    way = words.get("contiguous")
    if way is None:
        return "", 0
    check_choice(way, RESERVES, "--contiguous")
    if limits.first == "static" or limits.swap:
        option = "--swap" if limits.swap else "--scheduler"
        raise RooflmError("what is reserved whole never gives way", option, "Leave it out.")
    if not limits.whole_blocks:
        what = "caches in one piece are simulated where all layers keep all tokens"
        raise RooflmError(what, "--contiguous", "Leave it out.")
    return way, parse_count(_said(words, "max_len"), "--max-len")


def _one_replica(case: Case) -> Case:
    """Leave one replica of a deployment: each is a server of its own."""
    if case.layout is None or case.layout.replicas == 1:
        return case
    layout = replace(case.layout, replicas=1)
    return replace(case, ranks=tuple(replace(r, layout=layout) for r in case.ranks))


def _most_sequences(words: Words, case: Case, basis: str) -> int:
    """Tell how many sequences run at once: no more than any published step of the engine has."""
    most = None if basis == "bound" or case.constants is None else case.constants.most_batch
    typed = words.get("max_sequences")
    if typed is None:
        usual = int(USUAL["max_sequences"])
        return usual if most is None else min(usual, most)
    value = parse_count(typed, "--max-sequences")
    if most is not None and value > most:
        what = f"published steps of the engine have at most {most:,} sequences here"
        raise RooflmError(what, "--max-sequences", "Take fewer, or --basis bound.")
    return value


def _host_link(case: Case) -> float:
    """Tell how fast caches go to host memory and back [B/s]."""
    speed = case.machine.links.get("pcie")
    if speed is None:
        what = f"how fast {case.machine.name} reaches its host is not known"
        raise RooflmError(what, "--swap", "Leave it out: what gives way is computed again.")
    return float(speed)


def _handing(
    words: Words, case: Case, basis: str, limits: Limits
) -> tuple[Handing | None, Any, tuple[str, ...]]:
    """Find the machines that compute prompts for those that decode."""
    from .handoff import sent_bytes
    from .live import Handing, Pool
    from .requests import Work
    from .step_cost import cache_room, make_limits, make_steps

    found = find_handoff(
        counting_of(words), group(words, HANDOFF), case, group(words, LAYOUT),
        words.get("hardware"), [Work(1)],
    )  # fmt: skip
    servers = words.get("prefill_servers")
    if found is None:
        if servers is not None:
            raise RooflmError("nothing is handed on", "--prefill-servers", "Say --prefill-on.")
        return None, None, ()
    if limits.first == "static":
        raise RooflmError("a static batch computes its own prompts", "--scheduler", "Leave it out.")
    if words.get("contiguous") is not None:
        what = "caches in one piece are simulated where their prompts are computed"
        raise RooflmError(what, "--contiguous", "Leave it out.")
    steps = make_steps(found.prefill, basis)
    like = replace(limits, swap=0, watermark=0)
    room = cache_room(found.prefill, like.tokens, like.sequences)
    own = make_limits(steps, room["cache_pool_bytes"], like)
    number = parse_count(_said(words, "prefill_servers"), "--prefill-servers")

    def transfer(prompt: int) -> int:
        size = sent_bytes(case, prompt)
        return round((found.latency_s + size / found.bytes_per_s) * TICKS)

    told = (
        f"prompts: {number} of {found.prefill.machine.name}; caches go one after the other at "
        f"{found.bytes_per_s / 1e9:g} GB/s",
    )
    return Handing(Pool(steps, own, number), transfer), steps, told


def _told(limits: Limits, unit_bytes: float, words: Words) -> list[str]:
    """Say how the engine schedules."""
    way = words.get("contiguous")
    names = {first: name for name, first in SCHEDULERS.items()}
    kept = limits.pool * unit_bytes / 1e9
    how = {
        "decode": f"decoding first, prompts in chunks of what is left of {limits.tokens:,} tokens",
        "prefill": f"whole prompts first, up to {limits.tokens:,} tokens a step",
        "static": "a batch starts when the one before has ended, its slots held until then",
    }[limits.first]
    said = [
        f"scheduler {names[limits.first]}: {how}; at most {limits.sequences:,} sequences",
        f"cache: {kept:,.2f} GB in blocks of {limits.block} tokens; what gives way is "
        + ("swapped to the host" if limits.swap else "computed again")
        if way is None
        else f"cache: {kept:,.2f} GB, each request's reserved in one piece ({way}), first fit",
    ]
    if words.get("unit_cost"):
        said.append("unit cost: a decode step takes 1 s, a prompt nothing")
    return said


def find_traffic(words: Words) -> Traffic:
    """Make what comes to the servers of what was typed."""
    from .serve import Traffic

    rate, trace, clients = (words.get(n) for n in ("rate", "trace", "clients"))
    asked = [f"--{n}" for n in ("trace", "clients") if words.get(n) is not None]
    if words.get("arrivals") in ("burst", "at-once") and not asked:
        if rate is not None or words.get("find_rate") or words.get("sweep"):
            what = "requests that all come at once have no rate"
            raise RooflmError(what, "--arrivals", "Leave out the rate, or say poisson.")
        asked.append("--arrivals")
    if clients is not None and words.get("sweep"):
        raise RooflmError("clients have no rate", "--sweep", "Leave out --clients.")
    if len(asked) > 1 or (clients is not None and rate is not None):
        what = "requests come at a rate, from clients, or as a trace says"
        raise RooflmError(what, " and ".join(asked) or "--rate", "Say one of them.")
    if not asked and rate is None and not words.get("find_rate") and not words.get("sweep"):
        what = "how requests come is needed"
        raise RooflmError(what, "--rate", "Say --rate 4, --clients 16 or --trace FILE.")
    seed = _whole(_said(words, "seed"), "--seed")
    if trace is not None:
        return _of_trace(words, trace, rate, seed)
    law = _laws(words)
    if clients is not None:
        return _of_clients(words, clients, law, seed)
    _refuse(words, ("rounds", "think", "stagger"), "clients wait for their answers", "--clients")
    requests = parse_count(_said(words, "requests"), "--requests")
    arrivals: Any = _said(words, "arrivals")
    burstiness = words.get("burstiness")
    shape = 1.0
    if burstiness is not None:
        endless = burstiness.strip() == "inf"
        shape = float("inf") if endless else parse_rate(burstiness, "--burstiness")

    def make(rate: float | None, seed: int) -> Workload:
        from .workload import open_loop

        work = open_loop(rate or 1.0, requests, *law, seed, arrivals, shape)
        return _sharing(words, work, seed)

    warm = _warm_up(words, requests, WARM_UP)
    number = None if rate is None else parse_rate(rate, "--rate")
    return Traffic(make, number, seed, _replications(words, requests), warm)


MOST_BLOCK = 65_536
"""Tokens of a block of the cache at most."""
MOST_RATES = 1000
"""Rates of a sweep at most."""
BESIDE = (
    ("prefix_groups", ("prefix",)), ("limit", ("trace",)), ("scale", ("trace",)),
    ("attainment", ("find_rate",)), ("max_len", ("contiguous",)),
    ("routing_policy", ("replicas", "prefill_servers")),
)  # fmt: skip
"""Options that mean nothing without one of some others."""


def _refuse_idle(words: Words) -> None:
    """Refuse options that would be without effect."""
    for name, others in BESIDE:
        if words.get(name) is not None and not any(words.get(other) for other in others):
            option, needed = (f"--{n.replace('_', '-')}" for n in (name, others[0]))
            raise RooflmError(f"it says nothing without {needed}", option, "Leave it out.")
    looked = [n for n in ("rate", "find_rate", "sweep") if words.get(n)]
    if len(looked) > 1:
        what = "one rate, several, or the largest that is kept"
        raise RooflmError(what, f"--{looked[1].replace('_', '-')}", f"Leave out --{looked[0]}.")


def _at_most(text: str, option: str, most: int) -> int:
    value = parse_count(text, option)
    if value > most:
        raise RooflmError(f"{value:,} is more than {most:,}", option, "Take less.")
    return value


def _whole(text: str, option: str) -> int:
    """Read a whole number of 0 or more."""
    return 0 if text.strip() == "0" else parse_count(text, option)


def _laws(words: Words) -> tuple[Lengths, Lengths]:
    """Read the laws of lengths."""
    from .workload import parse_law

    prompt = _said(words, "prompt")
    return (
        parse_law(prompt, "--prompt"),
        parse_law(_said(words, "output_tokens"), "--output-tokens"),
    )


def _of_clients(words: Words, text: str, law: tuple[Lengths, Lengths], seed: int) -> Traffic:
    from .serve import Traffic
    from .workload import closed_loop

    _refuse(words, ("requests", "arrivals", "burstiness"), "clients have rounds", "--rounds")
    clients = parse_count(text, "--clients")
    rounds = parse_count(_said(words, "rounds"), "--rounds")
    think, stagger = (
        0.0 if words.get(n) in (None, "0") else parse_time(words[n], f"--{n}")
        for n in ("think", "stagger")
    )

    def make(rate: float | None, seed: int) -> Workload:
        del rate
        work = closed_loop(clients, rounds, *law, seed, think, stagger)
        return _sharing(words, work, seed)

    alike = all(law_.mean == law_.most for law_ in law) and words.get("prefix_groups") is None
    replications = 1 if alike else _replications(words, clients * rounds)
    return Traffic(make, None, seed, replications, _warm_up(words, clients * rounds, 0.0))


def _of_trace(words: Words, path: str, rate: str | None, seed: int) -> Traffic:
    from .serve import Traffic
    from .traces import read_trace

    _refuse(
        words, ("requests", "arrivals", "burstiness", "prompt", "output_tokens", "rounds", "think",
                "stagger"), "a trace says what comes and when", "--trace",
    )  # fmt: skip
    limit, scale = words.get("limit"), words.get("scale")
    number = None if rate is None else parse_rate(rate, "--rate")
    rows = None if limit is None else parse_count(limit, "--limit")
    faster = 1.0 if scale is None else parse_rate(scale, "--scale")
    if scale is not None and (rate is not None or words.get("sweep")):
        what = "a rate takes the place of the times that would be scaled"
        raise RooflmError(what, "--scale", "Leave out one of the options.")
    known: dict[tuple[float | None, int], Workload] = {}

    def make(rate: float | None, seed: int) -> Workload:
        key = (rate, seed if rate is not None else 0)
        if key not in known:
            known.clear()
            known[key] = read_trace(path, rate=rate, seed=seed, limit=rows, scale=faster)
        return _sharing(words, known[key], seed)

    requests = len(make(number, seed).prompt)
    replications = 1 if number is None else _replications(words, requests)
    return Traffic(make, number, seed, replications, _warm_up(words, requests, 0.0))


def _sharing(words: Words, work: Workload, seed: int) -> Workload:
    """Give requests prefixes in common, where that was typed."""
    text = words.get("prefix")
    if text is None:
        return work
    from .workload import shared_prefix

    groups = parse_count(given(words.get("prefix_groups"), "1"), "--prefix-groups")
    return shared_prefix(work, parse_count(text, "--prefix"), groups, seed)


def _refuse(words: Mapping[str, Any], names: Sequence[str], why: str, fix: str) -> None:
    """Refuse options that mean nothing here."""
    idle = [n for n in names if words.get(n) is not None]
    if idle:
        option = f"--{idle[0].replace('_', '-')}"
        raise RooflmError(why, option, f"Leave it out, or see {fix}.")


def _replications(words: Words, requests: int) -> int:
    text = words.get("replications")
    if text is None:
        return REPLICATIONS if requests <= MANY else 1
    return parse_count(text, "--replications")


def _warm_up(words: Words, requests: int, usual: float) -> int:
    """Count the requests that come first and are not measured."""
    text = words.get("warm_up")
    if text is None:
        return int(usual * requests)
    value = _whole(text, "--warm-up")
    if value >= requests:
        what = f"all {requests:,} requests would be left out"
        raise RooflmError(what, "--warm-up", "Take fewer, or more --requests.")
    return value


def find_slo(words: Words) -> Slo:
    """Read what is promised."""
    from .served import Slo

    times = {
        name: None if words.get(f"slo_{name}") is None
        else parse_time(words[f"slo_{name}"], f"--slo-{name}")
        for name in ("ttft", "itl", "e2e")
    }  # fmt: skip
    return Slo(times["ttft"], times["itl"], times["e2e"])


def find_share(words: Words) -> float:
    """Read which share of the requests keeps it."""
    return parse_share(_said(words, "attainment"), "--attainment", whole=True)


@noted
def served(words: Words, tell: Any = None) -> dict[str, Any]:
    """Answer what was typed of live traffic."""
    from .serve import at_rate, details, find_rate, frame

    service, traffic, slo = find_service(words), find_traffic(words), find_slo(words)
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {}
    if words.get("find_rate"):
        if words.get("clients") is not None or words.get("trace") is not None:
            what = "a rate is found for requests that are drawn"
            raise RooflmError(what, "--find-rate", "Leave out --clients and --trace.")
        share = find_share(words)
        best = find_rate(service, traffic, slo, share, tell)
        found["found_rate"] = {**best, "attainment_asked": share}
        traffic = replace(traffic, rate=best["rate_requests_per_s"])
    runs: list[Any] = []
    swept = words.get("sweep")
    if swept is not None:
        whole = True
        for rate in parse_rates(swept):
            try:
                row = at_rate(service, traffic, rate, slo, tell)
            except KeyboardInterrupt:
                if not rows:
                    raise
                whole = False
                break
            if row["complete"] or not rows:
                rows.append(row)
            whole = whole and row["complete"]
            if not whole:
                break
        traffic = replace(traffic, rate=rows[0]["rate_requests_per_s"])
        row = {**rows[0], "complete": whole}
    else:
        limit = found["found_rate"]["capacity_requests_per_s"] if found else None
        row = at_rate(service, traffic, traffic.rate, slo, tell, runs, limit)
    answer = frame(service, traffic, {**row, **found}, rows)
    if slo.says:
        answer["slo"] = asdict(slo)
    if runs:
        answer |= details(runs[0], traffic.warm_up)
    return answer


def served_row(words: Words) -> dict[str, Any]:
    """Answer a point of a study of live traffic: a row with a column for every figure."""
    answer = served(words)
    if not answer["complete"]:
        raise KeyboardInterrupt
    named = {key: answer[key] for key in ("model", "hardware", "assumptions")}
    return {**named, "rows": [_flat(answer)]}


def _flat(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Lay an answer out in columns, whose names end in their units."""
    row: dict[str, Any] = {
        key: value for key, value in answer.items()
        if value is None or isinstance(value, bool | int | float)
        or key in ("load", "basis", "model", "hardware")
    }  # fmt: skip
    for key in ("ttft_s", "itl_s", "tpot_s", "e2e_s"):
        name = key.removesuffix("_s")
        row |= {f"{name}_{quantile}_s": value for quantile, value in answer[key].items()}
        row[f"{name}_half_width_s"] = answer["intervals"].get(f"{key}.mean")
    row |= answer["time_split"]
    row |= {f"closed_form_{key}": value for key, value in answer["closed_form"].items()}
    memory = answer["memory"]
    row |= {f"cache_{key}": value for key, value in answer["cache"].items()}
    held = ("weights_bytes", "activations_bytes", "reserve_bytes", "draft_weights_bytes")
    row["memory_bytes"] = sum(memory.get(key, 0.0) for key in held) + memory["peak_bytes"]
    return row | {k: v for k, v in memory.items() if k.endswith("_bytes") and k not in row}


def parse_rates(text: str) -> list[float]:
    """Read the rates of a sweep: rate=1,2,4 or rate=1:32:x2."""
    name, equals, values = text.partition("=")
    if name.strip() != "rate" or not equals:
        what = "live traffic is swept over rates"
        raise RooflmError(what, "--sweep", "Write --sweep rate=1:32:x2.")
    rates: list[float] = []
    for part in values.split(","):
        start, colon, rest = part.partition(":")
        if not colon:
            rates.append(parse_rate(part, "--sweep"))
            continue
        stop, _, step = rest.partition(":")
        rate, most = (parse_rate(text, "--sweep") for text in (start, stop))
        times, by = step.startswith("x"), parse_rate(step.removeprefix("x") or "1", "--sweep")
        if times and by <= 1:
            raise RooflmError(f"'{part[:40]}' never ends", "--sweep", "Write rate=1:32:x2.")
        while rate <= most * (1 + 1e-12) and len(rates) <= MOST_RATES:
            rates.append(rate)
            rate = rate * by if times else rate + by
    if len(rates) > MOST_RATES or not rates:
        what = f"{len(rates):,} rates" if rates else "no rate"
        raise RooflmError(f"{what}: a sweep has 1 to {MOST_RATES:,}", "--sweep")
    return rates
