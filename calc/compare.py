"""The same work on several models and machines, side by side."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .case import Case, fullest, host_memory, memory
from .errors import RooflmError
from .model import total_parameters
from .precision import told as told_formats
from .readings import total
from .requests import Work, check_works, prefill_passes, prefill_row, request_row, served_row, told
from .sweep import assumptions, check_size, gaps, grid_rows, of_each_device, step_row, takes_arrays


@dataclass(frozen=True)
class Place:
    """One point of a comparison: decode at a context, or a piece of work."""

    batch: int
    context: int
    work: Work | None = None


def compare(cases: Sequence[Case], places: Sequence[Place]) -> dict[str, Any]:
    """Answer the same work for every case; a case that cannot compute it has memory only.

    A machine that lacks the format, or whose rate or capacity nobody published, has nulls in
    place of figures and the reason beside them.
    """
    check = check_size if phase_of(places[0]) == "decode" else check_works
    check(len(cases) * len(places))
    each = [_rows(case, places) for case in cases]
    rows = [row for of_place in zip(*each, strict=True) for row in of_place]
    said: dict[str, None] = {}
    phase, contexts = phase_of(places[0]), [p.context for p in places]
    for i, case in enumerate(cases):
        own = rows[i :: len(cases)]
        try:
            lines = assumptions(case, phase, contexts, rows=own) + gaps(case, phase, own)
        except RooflmError:
            continue
        said |= dict.fromkeys(
            line for line in lines if not line.startswith(("capacity", "time model"))
        )
    model = cases[0].time_model
    return {
        "schema": "rooflm.compare/1",
        "model": list(dict.fromkeys(c.model.name for c in cases)),
        "hardware": list(dict.fromkeys(c.machine.name for c in cases)),
        "accounting": cases[0].accounting,
        "time_model": model,
        "phase": phase_of(places[0]),
        "rows": rows,
        "assumptions": [
            *said,
            f"time model {model} at the dense peak of each chip, or at a measured rate above it; "
            "capacity as the driver reports it where that is known",
        ],
    }


def phase_of(place: Place) -> str:
    """Name what a place asks for."""
    return "decode" if place.work is None else place.work.phase


def _rows(case: Case, places: Sequence[Place]) -> list[dict[str, Any]]:
    """Answer the places of a case: those of a large grid of decode steps together."""
    batches = [*dict.fromkeys(place.batch for place in places)]
    contexts = [*dict.fromkeys(place.context for place in places)]
    if takes_arrays(case, len(places)) and list(places) == [
        Place(B, S) for S in contexts for B in batches
    ]:
        # A case without figures says why in each of its rows.
        with contextlib.suppress(RooflmError):
            head = _head(case)
            rows = grid_rows(case, batches, contexts)
            return [_whole(head, row) for row in rows]
    return [compared(case, place) for place in places]


def _head(case: Case) -> dict[str, Any]:
    return {
        "model": case.model.name,
        "hardware": case.machine.name,
        "parameters": total_parameters(case.model, norms=not case.lecture),
        "weights_format": told_formats(case.precision).removeprefix("weights "),
        "kv_format": case.precision.cache.name,
    }


def _whole(head: dict[str, Any], row: dict[str, Any]) -> dict[str, Any]:
    return head | row | of_each_device(row) | {"reason": None}


def compared(case: Case, place: Place) -> dict[str, Any]:
    """Answer one row."""
    head = _head(case)
    try:
        row = _figures(case, place)
        return _whole(head, row)
    except RooflmError as e:
        return head | _memory_only(case, place) | {"reason": str(e)}


def _figures(case: Case, place: Place) -> dict[str, Any]:
    if place.work is None:
        segments = case.step(place.batch, place.context)
        return step_row(case, segments, place.batch, place.context)
    row = {"prefill": prefill_row, "request": request_row, "served": served_row}
    return told(row[place.work.phase](case, place.batch, place.work))


def _memory_only(case: Case, place: Place) -> dict[str, Any]:
    """Answer what the fullest pass holds, where there is no rate to time it."""
    passes = [] if place.work is None else prefill_passes(place.batch, place.work)
    if phase_of(place) != "prefill":
        passes.append(case.step(place.batch, place.context))
    full = [(fullest(case, segments), segments) for segments in passes]
    every = [memory(of, segments, of.ledger(segments)) for of, segments in full]
    kinds = max(every, key=lambda kinds: total(kinds.values()))
    held = total(kinds.values())
    hosts = max((n for p in passes for n in host_memory(case, p).values()), default=0)
    try:
        limit = case.limit[0]
    except RooflmError:
        limit = None
    return {
        "batch": place.batch,
        "context_tokens": place.context,
        **kinds,
        "memory_bytes": held,
        **({} if not case.offloads else {"host_bytes": hosts}),
        "capacity_bytes": limit,
        "fits": None if limit is None else held <= limit,
        **dict.fromkeys(("time_s", "floor_s", "bound_s", "tokens_per_s", "bound_tokens_per_s")),
        **dict.fromkeys(("ttft_s", "itl_s", "e2e_s", "intensity_flops_per_byte", "regime")),
        "basis": None,
    }
