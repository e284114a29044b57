"""The search for layouts that do what is asked: what each can do, and which is best."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from .candidates import (
    Unit,
    evaluated,
    even_batches,
    layouts,
    least_for,
    make_unit,
    memory_at,
    misfit,
    most_that_fit,
    most_within,
    place,
    time_at,
    whole_nodes,
)
from .case import Case
from .cost import Economics
from .deployment import Node, Spread, deploy
from .errors import RooflmError
from .layout import Layout

AIMS = ("cost", "latency", "throughput", "devices")
MOST_DEVICES = 512
"""Most devices that are planned: layouts grow faster than their number."""
SPLIT, ROOM, SLOW, FEW, GAP = (
    "the model cannot be split so", "does not fit", "too slow", "too few tokens a second",
    "no estimate",
)  # fmt: skip
"""Why a layout is rejected."""


@dataclass(frozen=True)
class Ask:
    """What is asked of a plan."""

    devices: tuple[int, ...]
    """Numbers of devices to try."""
    context: int
    batch: int | None = None
    """Sequences of the whole deployment; None for what suits each layout."""
    latency_s: float | None = None
    tokens_per_s: float | None = None
    by: str | None = None
    """What is best: one of `AIMS`; by what is asked if None."""
    top: int = 10
    """Rows that are shown."""
    fixed: Mapping[str, int] = field(default_factory=dict[str, int])
    """Degrees that are given."""
    economics: Economics | None = None

    @property
    def aim(self) -> str:
        """What is best."""
        return self.by or ("cost" if self.tokens_per_s is None else "devices")

    @property
    def quickest(self) -> bool:
        """Among layouts of equal rank the one with the shorter step is better: small batches."""
        return self.aim == "latency" or (self.aim == "devices" and self.tokens_per_s is not None)


@dataclass(frozen=True)
class Site:
    """Where layouts are tried: a case of one device, and how devices are joined."""

    case: Case
    name: str
    """What `--on` names, without a number."""
    node: int | None = None
    """Devices of a node; None where a chip alone is named, and all are of one."""
    spread: Spread = field(default_factory=Spread)
    """Links that were typed."""
    words: tuple[str, ...] = ()
    """Other options that were typed, for the commands."""
    model: str = ""
    """The model as it was typed."""


@dataclass(frozen=True)
class Found:
    """A layout that does what is asked."""

    layout: Layout
    batch: int
    seconds: float
    limit: str
    """What keeps it from a better figure."""

    @property
    def each(self) -> float:
        """Tokens per second of each device."""
        return self.batch / self.seconds / self.layout.devices


@dataclass(frozen=True)
class Missed:
    """A layout that does not do what is asked, and by how much."""

    layout: Layout
    reason: str
    factor: float = float("inf")
    """How many times too much it needs or takes, or too little it yields."""
    batch: int = 1
    detail: str = ""
    short: float = 0.0
    """How many times too few tokens a second it yields, where it is too slow as well."""


class NoEstimateError(Exception):
    """Some layout has no estimate where others have one."""


@dataclass(frozen=True)
class Search:
    """What has been found out of layouts at one basis; grows while they are tried."""

    where: Site
    context: int
    strict: bool = False
    """An estimate that is not there ends the search."""
    units: dict[Layout, Unit | str] = field(default_factory=dict[Layout, "Unit | str"])
    """Layouts whose figures others follow from; why not, where a link is not known."""
    misfits: dict[Layout, str] = field(default_factory=dict[Layout, str])
    fullest: dict[Layout, int] = field(default_factory=dict[Layout, int])
    """Largest batch that fits."""
    fastest: dict[tuple[Layout, float | None], tuple[int, str]] = field(
        default_factory=dict[tuple[Layout, "float | None"], "tuple[int, str]"]
    )
    """Batch of the highest throughput within a latency, and what limits it."""

    def misfit(self, layout: Layout) -> str:
        """Say why a layout is not possible for the model; "" where it is."""
        one = replace(layout, replicas=1)
        if one not in self.misfits:
            self.misfits[one] = misfit(self.where.case.model, one)
        return self.misfits[one]

    def unit(self, layout: Layout) -> Unit | str:
        """Find the layout whose figures those of a layout follow from."""
        where = self.where
        one = evaluated(layout, where.node)
        if one not in self.units:
            on = place(where.name, one.devices, where.node)
            try:
                made = make_unit(where.case, one, where.spread, on, self.context)
            except RooflmError as e:
                made = e.what
            self.units[one] = made
        return self.units[one]

    def room(self, unit: Unit) -> int:
        """Find the largest batch that fits."""
        if unit.layout not in self.fullest:
            self.fullest[unit.layout] = most_that_fit(unit)
        return self.fullest[unit.layout]

    def seconds(self, unit: Unit, batch: int) -> float | None:
        """Time of a step [s]; raises `NoEstimateError` where all need one and this has none."""
        found = time_at(unit, batch)
        if found is None and self.strict:
            raise NoEstimateError
        return found

    def best(self, unit: Unit, latency: float | None) -> tuple[int, str]:
        """Find the batch of the highest throughput that fits and meets a latency; 0 for none."""
        key = unit.layout, latency
        if key not in self.fastest:
            room = most = self.room(unit)
            limit = "memory"
            if latency is not None or unit.case.basis == "estimate":
                most = most_within(unit, latency or float("inf"), room)
            if most < room:
                limit = "latency" if self.seconds(unit, most + 1) else "estimate"
            rated = [(b / s, b) for b in even_batches(unit, most) if (s := self.seconds(unit, b))]
            chosen = max(rated)[1] if rated else 0
            self.fastest[key] = chosen, limit if chosen == most else "even"
        return self.fastest[key]


def examine(search: Search, layout: Layout, ask: Ask) -> Found | Missed:
    """Try a layout: what it does, or why not what is asked."""
    if why := search.misfit(layout):
        return Missed(layout, SPLIT, detail=why)
    unit = search.unit(layout)
    if isinstance(unit, str):
        return Missed(layout, unit)
    copies = layout.replicas // unit.layout.replicas
    least = 1 if ask.batch is None else -(-ask.batch // copies)
    limit = unit.case.limit[0]
    if memory_at(unit, least) > limit:
        return Missed(layout, ROOM, memory_at(unit, least) / limit, least * copies)
    seconds = search.seconds(unit, least)
    if seconds is None:
        return Missed(layout, GAP)
    most_s, wanted = ask.latency_s, ask.tokens_per_s
    if most_s is not None and seconds > most_s:
        batch = ask.batch or least * copies
        short = 0.0 if wanted is None else wanted * seconds / batch
        return Missed(layout, SLOW, seconds / most_s, batch, short=short)
    if ask.batch is not None:
        rate = ask.batch / seconds
        if wanted is not None and rate < wanted:
            return Missed(layout, FEW, wanted / rate, ask.batch)
        return Found(layout, ask.batch, seconds, "batch")
    batch, why = (1, "batch") if ask.quickest and wanted is None else search.best(unit, most_s)
    seconds = search.seconds(unit, batch)
    if seconds is None:
        return Missed(layout, GAP)
    if wanted is not None and copies * batch / seconds < wanted:
        return Missed(layout, FEW, wanted / (copies * batch / seconds), batch * copies)
    return Found(layout, batch * copies, seconds, why)


def quickest(search: Search, found: Found, ask: Ask) -> Found:
    """Take the smallest batch that reaches the throughput, and as many more as take no longer."""
    wanted = ask.tokens_per_s
    unit = search.unit(found.layout)
    assert isinstance(unit, Unit)
    copies = found.layout.replicas // unit.layout.replicas
    batch, most, limit = 1, search.room(unit), "batch"
    if wanted is not None:
        most, limit = found.batch // copies, "throughput"
        batch = least_for(unit, wanted / copies, most)
    seconds = search.seconds(unit, batch)
    assert seconds is not None
    batch = most_within(unit, seconds * (1 + SAME), most)
    seconds = search.seconds(unit, batch)
    assert seconds is not None
    return Found(found.layout, batch * copies, seconds, limit)


SAME = 1e-12
"""Times that differ by less are equal."""


def rounded(value: float) -> float:
    """Take twelve digits: what differs beyond them is equal."""
    return float(f"{value:.12g}")


def rank(found: Found, ask: Ask) -> tuple[float, ...]:
    """Order layouts by what is asked; of equal ones the simplest is first."""
    time, each, n = rounded(found.seconds), -rounded(found.each), found.layout.devices
    order = {
        "cost": (each, time),
        "latency": (time, each),
        "throughput": (rounded(n * each), time),
        "devices": (n, each, time) if ask.tokens_per_s is None else (n, time),
    }[ask.aim]
    layout = found.layout
    simple = (layout.cp, layout.ep, layout.dp, layout.pp, layout.replicas, layout.tp)
    return (*order, n, *simple)


Progress = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


def silent(done: int, of: int) -> None:
    """Tell nothing of progress."""


def _least_time(search: Search, found: Found, ask: Ask) -> float:
    """Time that a layout takes at least: fewer sequences than this cannot reach the target [s]."""
    unit = search.unit(found.layout)
    assert isinstance(unit, Unit)
    copies = found.layout.replicas // unit.layout.replicas
    alone = search.seconds(unit, 1)
    assert alone is not None
    if ask.tokens_per_s is None:
        return alone
    fewest = math.ceil(ask.tokens_per_s / copies * alone * (1 - SAME))
    more = search.seconds(unit, min(max(1, fewest), found.batch // copies))
    assert more is not None
    return more


def _quickened(search: Search, good: Sequence[Found], ask: Ask) -> list[Found]:
    """Take the shortest step of every layout that can be among the first; others come after."""
    by_devices = ask.aim == "devices"
    bounds = [
        (f.layout.devices if by_devices else 0, _least_time(search, f, ask), i)
        for i, f in enumerate(good)
    ]
    ranked = list(good)
    first: dict[Layout, tuple[int, float]] = {}
    for devices, least, i in sorted(bounds):
        shown = sorted(first.values())[: ask.top]
        if len(shown) == ask.top and (devices, least * (1 - SAME)) > shown[-1]:
            break
        found = ranked[i] = quickest(search, good[i], ask)
        kind = replace(found.layout, replicas=1)
        now = (devices, found.seconds)
        first[kind] = min(first.get(kind, now), now)
    return ranked


def every_layout(search: Search, ask: Ask) -> list[Layout]:
    """List the layouts of all numbers of devices, possible for the model or not."""
    model = search.where.case.model
    return [layout for n in sorted(ask.devices) for layout in layouts(model, n, ask.fixed)]


def try_all(
    search: Search, ask: Ask, progress: Progress = silent
) -> tuple[list[Found], list[Missed]]:
    """Try every layout; what does what is asked comes best first."""
    every = every_layout(search, ask)
    if search.strict:
        # One without an estimate decides for all: the large ones lack it most often.
        for layout in sorted(every, key=lambda x: -x.devices // x.replicas):
            if not search.misfit(layout) and isinstance(unit := search.unit(layout), Unit):
                copies = layout.replicas // unit.layout.replicas
                least = 1 if ask.batch is None else -(-ask.batch // copies)
                if memory_at(unit, least) <= unit.case.limit[0]:
                    search.seconds(unit, least)
    good: list[Found] = []
    bad: list[Missed] = []
    for i, layout in enumerate(every):
        progress(i, 2 * len(every))
        tried = examine(search, layout, ask)
        if isinstance(tried, Found):
            good.append(tried)
        else:
            bad.append(tried)
    if ask.quickest and ask.batch is None:
        good = _quickened(search, good, ask)
    return sorted(good, key=lambda f: rank(f, ask)), bad


def frontier(
    search: Search, ask: Ask, progress: Progress = silent, good: Sequence[Found] = ()
) -> list[Found]:
    """Choose what nothing beats in both latency and throughput of a device, whatever the targets.

    Of layouts and batches: powers of two, the largest that fits and those near it that are dealt
    out evenly, or the one that is given; and of `good`, what does what is asked.
    """
    free = replace(ask, latency_s=None, tokens_per_s=None)
    points: list[Found] = list(good)
    seen: set[Layout] = set()
    every = every_layout(search, ask)
    for i, layout in enumerate(every):
        progress(len(every) + i, 2 * len(every))
        if ask.batch is not None:
            tried = examine(search, layout, free)
            points += [tried] if isinstance(tried, Found) else []
            continue
        # Further replicas have the same time and throughput of a device.
        one = evaluated(layout, search.where.node)
        if one not in seen:
            seen.add(one)
            points += _points(search, layout)
    points.sort(key=lambda f: (rounded(f.seconds), -rounded(f.each), rank(f, ask)))
    best: list[Found] = []
    for point in points:
        if not best or rounded(point.each) > rounded(best[-1].each):
            best.append(point)
    return best


def _points(search: Search, layout: Layout) -> list[Found]:
    """List a layout at every power of two of a replica's batch, and near the largest that fits."""
    unit = "" if search.misfit(layout) else search.unit(layout)
    if isinstance(unit, str):
        return []
    copies, most = layout.replicas // unit.layout.replicas, search.room(unit)
    powers = {1 << k for k in range(most.bit_length())}
    found: list[Found] = []
    for batch in sorted(powers | set(even_batches(unit, most))):
        seconds = search.seconds(unit, batch)
        if seconds is not None:
            limit = "memory" if batch == most else "batch"
            found.append(Found(layout, batch * copies, seconds, limit))
    return found


def distinct(good: Sequence[Found], top: int) -> list[Found]:
    """Take the best of layouts that differ in nothing but replicas."""
    best: dict[Layout, Found] = {}
    for found in good:
        best.setdefault(replace(found.layout, replicas=1), found)
        if len(best) == top:
            break
    return list(best.values())


def search_of(where: Site, ask: Ask, strict: bool = False) -> Search:
    """Begin a search; what no layout can mend is refused at once."""
    case = where.case
    if case.model.denoises:
        what = f"{case.model.name} denoises, which is computed on one device only"
        raise RooflmError(what, "MODEL", "`rooflm sweep` answers it.")
    if max(ask.devices) > MOST_DEVICES:
        what = f"{max(ask.devices):,} devices are more than {MOST_DEVICES} to plan for"
        raise RooflmError(what, "--devices")
    if not any(whole_nodes(n, where.node) for n in ask.devices):
        what = f"no number of devices is part of a node of {where.node}, or fills nodes"
        raise RooflmError(what, "--devices")
    if case.lecture:
        what = "the lecture's accounting has one device"
        raise RooflmError(what, "--accounting", "Leave the option out.")
    _ = case.limit, case.rates, deploy(case, where.spread, Node(where.name))
    return Search(where, ask.context, strict)
