"""Layouts of a number of devices, and what each of them holds and takes at a batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .case import Case, estimated, last_below, memory_bytes, through_stages
from .deployment import Node, Spread, deploy
from .errors import RooflmError
from .estimate import TILE_ROWS
from .layout import Layout, check
from .memory import largest, largest_near
from .model import Model, has_experts
from .readings import Q
from .timing import step_time

DEGREES = ("replicas", "tp", "pp", "dp", "ep", "cp")
MOST_BATCH = 10**9
"""Largest batch that is searched."""


def divisors(n: int) -> list[int]:
    """List what divides a number."""
    low = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return low + [n // d for d in reversed(low) if d * d != n]


def layouts(model: Model, devices: int, fixed: Mapping[str, int]) -> Iterator[Layout]:
    """List the layouts of so many devices, possible for the model or not.

    fixed: degrees that are given. Models without experts have no ep; their dp does what replicas
    do, and is left out where it is not given.
    """
    experts = has_experts(model)

    def ways(axis: str, of: int, free: bool = True) -> list[int]:
        known = divisors(of) if free or axis in fixed else [1]
        return [n for n in known if n == fixed.get(axis, n)]

    for tp in ways("tp", devices):
        for pp in ways("pp", devices // tp):
            for dp in ways("dp", devices // (tp * pp), experts):
                for replicas in ways("replicas", devices // (tp * pp * dp)):
                    if replicas * tp * pp * dp != devices:
                        continue
                    for ep in ways("ep", dp * tp, experts):
                        for cp in ways("cp", tp):
                            yield Layout(replicas, tp, pp, ep, dp, cp)


def misfit(model: Model, layout: Layout) -> str:
    """Say why a layout is not possible for a model; "" where it is."""
    try:
        check(model, layout)
    except RooflmError as e:
        return e.what
    return ""


def whole_nodes(devices: int, node: int | None) -> bool:
    """Tell whether a number of devices is part of a node, or fills nodes; None is a node of all."""
    return node is None or devices <= node or devices % node == 0


def place(name: str, devices: int, node: int | None) -> Node:
    """Tell what `--on` names for so many devices; node: devices of a node, None where not said."""
    if node is None:
        return Node(name)
    return Node(name, devices) if devices <= node else Node(name, node, devices // node)


def evaluated(layout: Layout, node: int | None) -> Layout:
    """Tell the layout whose figures those of a layout follow from.

    Replicas do the same with their share of the sequences, so that one is enough; unless they lie
    differently over nodes, where some send between them and others do not.
    """
    one = replace(layout, replicas=1)
    if node is None or layout.devices <= node:
        return one
    return one if node % one.devices == 0 or one.devices % node == 0 else layout


@dataclass(frozen=True)
class Unit:
    """A layout on a machine, with what is known of its decode steps at one context."""

    layout: Layout
    case: Case
    context: int
    members: tuple[Case, ...]
    seconds: dict[int, float | None] = field(default_factory=dict[int, "float | None"])
    """Times of steps by batch, None without an estimate where one is asked for [s]."""
    held: dict[int, float] = field(default_factory=dict[int, float])
    """Memory of the fullest device by batch [B]."""


def make_unit(case: Case, layout: Layout, spread: Spread, on: Node, context: int) -> Unit:
    """Spread a case; raises `RooflmError` where a link that the layout needs is not known."""
    ways = {axis: getattr(layout, axis) for axis in DEGREES}
    spread_case = deploy(case, replace(spread, **ways), on)
    unit = Unit(layout, spread_case, context, spread_case.members)
    # What goes from node to node is found out where a pass is made.
    for member in unit.members:
        member.ledger(member.step(layout.dp * layout.replicas, context))
    return unit


def memory_at(unit: Unit, batch: int) -> float:
    """Memory that the fullest device needs [B]."""
    if batch not in unit.held:
        unit.held[batch] = max(memory_bytes(m, batch, unit.context) for m in unit.members)
    return unit.held[batch]


def time_at(unit: Unit, batch: int) -> float | None:
    """Time of a step, by the basis of the case; None where it has no estimate [s]."""
    if batch not in unit.seconds:
        unit.seconds[batch] = step_seconds(unit.members, unit.case, batch, unit.context)
    return unit.seconds[batch]


def step_seconds(members: Sequence[Case], case: Case, B: Q, S: Q) -> Q:
    """Time of a decode step: that of `sweep`, without all else that a row of it has [s]."""
    segments = case.step(B, S)
    passes = [m.ledger(segments) for m in members]
    times = [step_time(p, m.rates, m.time_model) for m, p in zip(members, passes, strict=True)]
    i = times.index(max(times))
    slow, pass_ = members[i], passes[i]
    if case.basis == "estimate":
        return estimated(slow, segments, pass_)
    return through_stages(
        slow, segments, times[i], lambda m: step_time(m.ledger(segments), m.rates, m.time_model)
    )


def most_that_fit(unit: Unit) -> int:
    """Find the largest batch that fits; 0 where one sequence does not."""
    limit = unit.case.limit[0]

    def holds(batch: int) -> bool:
        return memory_at(unit, batch) <= limit

    if not holds(1):
        return 0
    # Memory is nearly a line in the batch: two points of it tell about where it ends.
    near, far = 1, 64 * unit.case.parts
    for _ in range(3):
        each = (memory_at(unit, far) - memory_at(unit, near)) / (far - near)
        if each <= 0:
            return largest(holds, MOST_BATCH)
        guess = int(near + (limit - memory_at(unit, near)) / each)
        if guess in (near, far) or guess >= MOST_BATCH or guess < 1:
            break
        near, far = (far, guess) if abs(guess - far) < abs(guess - near) else (near, guess)
    return largest_near(holds, far, MOST_BATCH)


def most_within(unit: Unit, latency: float, most: int) -> int:
    """Find the largest batch up to `most` whose step takes no longer; 0 where none does."""

    def holds(batch: int) -> bool:
        seconds = time_at(unit, batch)
        return seconds is not None and seconds <= latency

    if most == 0 or not holds(1):
        return 0
    if holds(most):
        return most
    first, last = time_at(unit, 1), time_at(unit, most)
    if first is None or last is None or last <= first:
        return largest(holds, most)
    guess = 1 + int((most - 1) * (latency - first) / (last - first))
    return largest_near(holds, guess, most)


def even_batches(unit: Unit, most: int) -> list[int]:
    """List a batch and the largest ones below it that are dealt out evenly.

    A sequence more than that makes one part of the batch, or one tile of rows, work as if all had
    one more: throughput is highest at one of these.
    """
    layout = unit.layout
    parts = unit.case.parts
    sizes = {parts, layout.replicas * layout.dp, layout.replicas * layout.pp}
    sizes |= {TILE_ROWS * parts} if unit.case.basis == "estimate" else set()
    return sorted({most, *(most - most % size for size in sizes)} - {0}, reverse=True)


def least_for(unit: Unit, rate: float, most: int) -> int:
    """Find the smallest batch up to `most` that reaches a throughput, known to be reached there."""

    def below(batch: int) -> bool:
        seconds = time_at(unit, batch)
        return seconds is not None and batch / seconds < rate

    return min(1 + last_below(unit.case, below, most), most)


def command_words(layout: Layout) -> list[str]:
    """Write the degrees of a layout as options."""
    words: list[str] = []
    for axis in DEGREES:
        ways: Any = getattr(layout, axis)
        words += [f"--{axis}", str(ways)] if ways > 1 else []
    return words


def layout_name(layout: Layout | Mapping[str, Any]) -> str:
    """Name a layout by its degrees."""
    given = layout if isinstance(layout, Mapping) else {a: getattr(layout, a) for a in DEGREES}
    return ", ".join(f"{axis} {given[axis]}" for axis in DEGREES if given[axis] > 1) or "one device"
