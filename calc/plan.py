"""Layouts over many devices that meet a target, best first; and what trades latency for cost."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from .candidates import DEGREES, command_words, layout_name, place, whole_nodes
from .case import Case
from .cost import costs
from .cost import told as cost_told
from .deployment import deploy
from .deployment import told as spread_told
from .layout import Layout
from .layout_search import (
    FEW,
    ROOM,
    SLOW,
    Ask,
    Found,
    Missed,
    NoEstimateError,
    Progress,
    Site,
    distinct,
    frontier,
    search_of,
    silent,
    try_all,
)
from .model import has_experts
from .sweep import assumptions, of_each_device, step_row

MOST_SOLVED = 64
"""Most devices that are tried where their number is solved for."""


def deployed(where: Site, layout: Layout) -> Case:
    """Spread the case of a place as a layout says."""
    spread = replace(where.spread, **{axis: getattr(layout, axis) for axis in DEGREES})
    return deploy(where.case, spread, place(where.name, layout.devices, where.node))


def command(where: Site, found: Found | Missed, ask: Ask) -> str:
    """Write the command that gives the figures of a row."""
    n, node = found.layout.devices, where.node
    on = where.name
    if node is not None:
        on = f"{n}x{on}" if n <= node else f"{n // node}x{node}x{on}"
    words = [
        "rooflm", "sweep", where.model, "--on", on, *command_words(found.layout),
        "--batch", str(found.batch), "--context", str(ask.context),
        "--basis", where.case.basis, *where.words,
    ]  # fmt: skip
    return shlex.join(words)


def row_of(where: Site, found: Found | Missed, ask: Ask) -> dict[str, Any]:
    """Answer a row by the keys of a sweep, with the layout before them."""
    case = deployed(where, found.layout)
    B, S = found.batch, ask.context
    row = step_row(case, case.step(B, S), B, S)
    row |= {"devices": found.layout.devices}
    row |= of_each_device(row)
    if ask.economics is not None:
        row |= costs(row, case, None, ask.economics)
    for key in ("ttft_s", "e2e_s"):
        del row[key]
    head = {axis: getattr(found.layout, axis) for axis in DEGREES}
    limit = {"limit": found.limit} if isinstance(found, Found) else {"reason": found.reason}
    return {"devices": row.pop("devices"), **head, **row, **limit,
            "command": command(where, found, ask)}  # fmt: skip


def plan(
    where: Site,
    ask: Ask,
    basis: str | None = None,
    progress: Progress = silent,
) -> dict[str, Any]:
    """Answer with every layout that does what is asked, best first.

    basis: as it was typed. Without one the times are estimates where every layout has one, and
    bounds otherwise: neither is ranked against the other.
    """
    known = where.case.basis == "estimate" and where.case.constants is not None
    if where.case.basis == "estimate" and basis is None and not known:
        where = replace(where, case=replace(where.case, basis="bound"))
    idle = [n for n in ask.devices if not whole_nodes(n, where.node)]
    ask = replace(ask, devices=tuple(n for n in ask.devices if n not in idle) or ask.devices)
    mixed = False
    search = search_of(where, ask, strict=known and basis is None)
    try:
        good, bad = try_all(search, ask, progress)
        best = frontier(search, ask, progress, good)
    except NoEstimateError:
        mixed = True
        where = replace(where, case=replace(where.case, basis="bound"))
        search = search_of(where, ask)
        good, bad = try_all(search, ask, progress)
        best = frontier(search, ask, progress, good)
    progress(1, 1)
    rows = [row_of(where, found, ask) for found in distinct(good, ask.top)]
    near = None if good else _nearest(bad)
    answer: dict[str, Any] = {
        "schema": "rooflm.plan/1",
        "model": where.case.model.name,
        "hardware": where.case.machine.name,
        "devices": list(ask.devices),
        "context_tokens": ask.context,
        "batch": ask.batch,
        "latency_s": ask.latency_s,
        "throughput_tokens_per_s": ask.tokens_per_s,
        "by": ask.aim,
        "basis": where.case.basis,
        "feasible": bool(good),
        "reason": "" if good else _why_none(bad, near),
        "capacity_bytes": where.case.limit[0],
        "layouts": len(good) + len(bad),
        "qualifying": len(good),
        "fewest_devices": min((f.layout.devices for f in good), default=None),
        "rows": rows,
        "frontier": [row_of(where, found, ask) for found in best],
        "rejected": rejected(bad),
        "nearest": None if near is None else _near_row(where, near, ask),
    }
    shown = rows or answer["frontier"]
    return answer | {"assumptions": told(where, ask, shown, good, mixed, idle)}


def solve_devices(where: Site, ask: Ask, progress: Progress = silent) -> dict[str, Any]:
    """Answer with the fewest devices of a layout that does what is asked: every number is tried."""
    ask = replace(ask, by="devices", top=1)
    search = search_of(where, ask)
    good: list[Found] = []
    bad: list[Missed] = []
    for n in range(1, MOST_SOLVED + 1):
        progress(n, MOST_SOLVED)
        if whole_nodes(n, where.node):
            good, missed = try_all(search, replace(ask, devices=(n,)))
            bad += missed
        if good:
            break
    progress(1, 1)
    answer: dict[str, Any] = {
        "schema": "rooflm.solve/1",
        "model": where.case.model.name,
        "hardware": where.case.machine.name,
        "unknown": "devices",
        "value": good[0].layout.devices if good else None,
        "unit": "devices",
        "feasible": bool(good),
    }
    row = None
    if good:
        row = row_of(where, good[0], ask)
        reason = (
            f"the fewest whose best layout does what is asked: {layout_name(row)} takes "
            f"{1e3 * row['time_s']:.4g} ms at a batch of {row['batch']:,}, "
            f"{row['tokens_per_s']:,.4g} tokens/s"
        )
    else:
        reason = f"none up to {MOST_SOLVED}: {_why_none(bad, _nearest(bad))}"
    sentences = told(where, replace(ask, devices=(1, MOST_SOLVED)), [], good, False, [])
    return answer | {
        "reason": reason,
        "formula": None,
        "definitions": [],
        "valid_for": None,
        **({} if row is None else {key: row[key] for key in SOLVED}),
        "assumptions": [line for line in sentences if not line.startswith(("frontier", "limit"))],
    }


SOLVED = (*DEGREES, "batch", "time_s", "tokens_per_s", "memory_bytes", "command")
"""Figures of the layout of the fewest devices."""


def rejected(bad: Iterable[Missed]) -> list[dict[str, Any]]:
    """Count rejected layouts by reason."""
    counts: dict[str, list[Missed]] = {}
    for missed in bad:
        counts.setdefault(missed.reason, []).append(missed)
    return [
        {"reason": reason, "layouts": len(those), "example": those[0].detail or None}
        for reason, those in sorted(counts.items(), key=lambda item: -len(item[1]))
    ]


def _nearest(bad: Iterable[Missed]) -> Missed | None:
    """Find the layout that misses by least, one that fits if there is any."""
    known = [m for m in bad if m.reason in (ROOM, SLOW, FEW)]
    return min(known, key=lambda m: (m.reason == ROOM, max(m.factor, m.short)), default=None)


def _near_row(where: Site, near: Missed, ask: Ask) -> dict[str, Any]:
    return row_of(where, near, ask) | {"factor": near.factor}


def _why_none(bad: Sequence[Missed], near: Missed | None) -> str:
    """Say why no layout does what is asked."""
    if not bad:
        return "no layout has the degrees that are given"
    if near is None:
        most = rejected(bad)[0]
        return f"every layout is rejected: {most['reason']}"
    few = "yields {} times too few tokens a second"
    much = {
        ROOM: "needs {} times the memory", SLOW: "takes {} times too long", FEW: few,
    }[near.reason].format(_times(near.factor))  # fmt: skip
    if near.short > 1:
        much += f" and {few.format(_times(near.short))}"
    name = layout_name(near.layout)
    return f"no layout does; the nearest, {name} at a batch of {near.batch:,}, {much}"


def _times(factor: float) -> str:
    """Show a factor above 1 so that it does not read as 1."""
    return f"{factor:.3g}" if factor >= 1.005 else f"{factor:.9g}"


AIM_SAYS = {
    "cost": "tokens/s of a device, which is the least cost of a token, then time",
    "latency": "time, then tokens/s of a device",
    "throughput": "tokens/s of all devices, then time",
    "devices": "fewest devices, then {}",
}


def told(
    where: Site,
    ask: Ask,
    rows: Sequence[dict[str, Any]],
    good: Sequence[Found],
    mixed: bool,
    idle: Sequence[int],
) -> list[str]:
    """Say in sentences how layouts are ranked, and what their figures rest on."""
    case = where.case
    then = "tokens/s of a device" if ask.tokens_per_s is None else "time"
    said = [f"best first: {AIM_SAYS[ask.aim].format(then)}; of equal layouts, and of those that "
            "differ in replicas alone, the first"]  # fmt: skip
    if ask.batch is not None:
        said.append(f"batch: {ask.batch:,} sequences of the whole deployment, as given")
    elif ask.quickest:
        least = "one sequence" if ask.tokens_per_s is None else "the fewest that reach the target"
        said.append(
            f"batch: of each replica {least}, whose step is the shortest, and as many more as "
            "take no longer"
        )
    else:
        said.append(
            "batch: of each layout the largest that fits and meets the latency, or a little "
            "less where sequences are dealt out evenly"
        )
    basis = f"times are {case.basis}s (--basis)"
    if mixed:
        basis += (
            ": some layouts or batches have no estimate, and none is ranked against a bound; "
            "--basis estimate leaves them out"
        )
    said.append(basis)
    if good and ask.aim != "devices":
        few = min(good, key=lambda f: (f.layout.devices, f.seconds))
        name = layout_name(few.layout)
        said.append(f"fewest devices: {few.layout.devices}, {name} (--by devices)")
    said.append(
        "limit: what keeps a layout from a better figure: memory (one sequence more does not "
        "fit), latency (it is too slow), throughput (fewer are too few), even (one more makes all "
        "others wait for its part), batch (as it stands), estimate (more were never measured)"
    )
    said.append(
        "frontier: what nothing beats in both time and tokens/s of a device, whatever the targets: "
        "of the rows, of batches that are powers of two, and of the largest"
    )
    if not has_experts(case.model) and "dp" not in ask.fixed:
        said.append("without experts dp does what replicas do, and is left out")
    if where.node is None:
        if max(ask.devices) > 1:
            said.append("all devices are of one node: --on 8xh100-sxm says how many one has")
    else:
        said.append(f"nodes of {where.node} devices, and parts of one")
    if idle:
        said.append(f"left out: {idle[0]} to {idle[-1]} devices where they do not fill nodes")
    if good:
        best = deployed(where, good[0].layout)
        said += [line for line in spread_told(best) if line.startswith("messages")]
    if ask.economics is not None:
        said += cost_told([ask.economics], "decode", rows)
    if all(row["estimate_s"] is None for row in rows):
        case = replace(case, constants=None)
    return said + assumptions(case, contexts=[ask.context], rows=rows)
