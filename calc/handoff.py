"""Prompts computed on another machine: their cache is handed to the one that decodes.

Sources: DistServe (arXiv 2401.09670), Splitwise (arXiv 2311.18677), Mooncake (arXiv 2407.00079);
jax-ml/scaling-book, inference.md (disaggregated serving). The prefill yields the first token, which
the decode machine passes on once the cache is there: no decode step comes before it. The prefill
machine computes a prompt at a time, as they come; the decode machine always has its batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from .case import (
    Case,
    engine_time,
    estimates,
    figures,
    fullest_memory,
    regime,
    slowest,
)
from .collectives import point_to_point_time
from .errors import RooflmError
from .model import cache_bytes, sequence_state_bytes
from .passes import decode
from .readings import Q, formula
from .requests import (
    Work,
    check_works,
    decode_total,
    end_to_end_time,
    prefill_passes,
    prefill_row,
    told,
)
from .sweep import PHASES, basis_of, devices_of, frame
from .timing import throughput


@dataclass(frozen=True)
class Handoff:
    """Where prompts are computed, and how fast their cache goes to where they are decoded."""

    prefill: Case
    bytes_per_s: float
    """Of all that carries the cache of a prompt, one direction [B/s]."""
    latency_s: float = 0.0
    """Of a message [s]."""


@formula
def prefills_per_decode(prefill: Q, decoding: Q, sequences: Q) -> Q:
    """Prefill machines that keep pace with a decode machine: prefill / (decoding / B).

    prefill: time of one prompt [s]; decoding: time that a request decodes [s]; sequences: that
    decode side by side, B [1]. Returns [1]. A machine that has B sequences of that time ends one
    each decoding/B. Left out: queues, which more machines than these make short.

    >>> prefills_per_decode(0.1, 2.0, 40)
    2.0
    """
    return prefill * sequences / decoding


def sent_bytes(case: Case, prompt: Q) -> Q:
    """Bytes of cache and states of one computed prompt: what the decode machine needs of it [B]."""
    held = cache_bytes(case.model, prompt, case.precision)
    return held + sequence_state_bytes(case.model, case.precision)


def prefill_alone(case: Case, work: Work) -> dict[str, Any]:
    """Answer the prefill of a prompt, one for each group of ranks; fits is None if not known."""
    try:
        _ = case.limit
    except RooflmError:
        # Nobody said how much memory there is: times do not depend on it.
        endless = replace(case, capacity_bytes=float("inf"), gpu_share=1.0)
        return prefill_row(endless, case.least_batch, work) | {"fits": None}
    return prefill_row(case, case.least_batch, work)


def handoff_row(case: Case, handoff: Handoff, B: int, work: Work) -> dict[str, Any]:
    """Answer a request that is decoded among B, its prompt computed elsewhere."""
    alone, other = prefill_alone(handoff.prefill, work), handoff.prefill
    each = other.least_batch
    further = decode_total(case, B, work)
    sent = sent_bytes(case, work.prompt)
    sending = point_to_point_time(sent, handoff.bytes_per_s, handoff.latency_s)
    steps = work.output - 1

    def whole(key: str, beside: float) -> Q:
        known = (alone[key], further[key])
        return None if None in known else known[0] + beside + known[1]

    row: dict[str, Any] = {"bound_s": whole("bound_s", sending)}
    # As of every message, the floor does not wait for it.
    row["floor_s"] = whole("floor_s", 0)
    row |= estimates(case, whole("estimate_s", sending), row["floor_s"], B * work.output)
    basis = basis_of(case, row)
    ttft, decoding = alone[f"{basis}_s"] + sending, further[f"{basis}_s"]
    e2e = end_to_end_time(ttft, decoding / steps, work.output)
    last = decode(B, work.last_context)
    slow = slowest(case, last)
    held = figures(slow, last, slow.ledger(last), tokens=B) | fullest_memory(case, last)
    for key in ("bytes", "flops"):
        row[key] = alone[key] * B / each + further[key]
    times = [alone[key] + further[key] for key in ("computing_s", "moving_s", "sending_s")]
    limit, yielded = case.limit[0], B * work.output
    if row["estimate_s"] is not None:
        row["estimate_tokens_per_s"] = throughput(yielded, further["estimate_s"])
    return {
        "batch": B,
        "context_tokens": work.last_context,
        "prompt_tokens": work.prompt,
        "output_tokens": work.output,
        "reused_tokens": alone["reused_tokens"],
        "passes": alone["passes"],
        **{k: v for k, v in held.items() if k.endswith("_bytes")},
        **row,
        "capacity_bytes": limit,
        "fits": held["memory_bytes"] <= limit,
        "prefill_hardware": _name(other),
        "prefill_memory_bytes": alone["memory_bytes"],
        "prefill_fits": alone["fits"],
        "prefill_s": alone[f"{basis}_s"],
        "handoff_bytes": sent,
        "handoff_s": sending,
        "prefills_per_decode": prefills_per_decode(alone[f"{basis}_s"] / each, decoding, B),
        "ttft_s": ttft,
        "itl_s": decoding / steps,
        "e2e_s": e2e,
        "time_s": e2e,
        "basis": basis,
        "tokens_per_s": throughput(yielded, decoding),
        "bound_tokens_per_s": throughput(yielded, further["bound_s"]),
        "intensity_flops_per_byte": row["flops"] / row["bytes"],
        "weight_read_bytes": alone["weight_read_bytes"],
        "cache_read_bytes": alone["cache_read_bytes"],
        "regime": regime(times[0], times[1] + sending, times[2] + sending),
        "devices": _devices(case),
        "prefill_devices": _devices(other),
    }


def _devices(case: Case) -> int:
    return devices_of(case).get("devices", 1)


def _name(case: Case) -> str:
    devices = _devices(case)
    return case.machine.name if devices == 1 else f"{devices}x{case.machine.name}"


def sweep_handoffs(
    case: Case, handoff: Handoff, batches: Sequence[int], works: Sequence[Work]
) -> dict[str, Any]:
    """Answer requests whose prompts are computed elsewhere, for every batch and piece of work."""
    check_works(len(batches) * len(works))
    check_handoff(case, works)
    gap = prefill_gap(handoff.prefill, works[0])
    if case.constants is not None and gap:
        where = f"prefills on {_name(handoff.prefill)}"
        case = replace(case, constants=None, no_estimate=f"{where}: {gap}")
    rows = [told(handoff_row(case, handoff, B, work)) for work in works for B in batches]
    answer = frame(case, "request", rows, [r["context_tokens"] for r in rows])
    formats = answer["assumptions"][0].removeprefix(PHASES["request"])
    answer["assumptions"][:1] = sentences(handoff, formats, works, not gap, rows)
    return answer


def check_handoff(case: Case, works: Sequence[Work]) -> None:
    """Refuse what is not decoded elsewhere than its prompt is computed."""
    if case.offloads:
        what = "a decode machine with layers in host memory is not modelled"
        raise RooflmError(what, "--prefill-on", "Leave out --gpu-layers.")
    if any(work.output < 2 for work in works):
        what = "the prefill yields the only token, so that nothing is handed on"
        raise RooflmError(what, "--output-tokens", "Take 2 or more.")


def prefill_gap(case: Case, work: Work) -> str:
    """Say why prefills have no estimate; "" where they have one."""
    member = case.members[0]
    try:
        for segments in prefill_passes(case.least_batch, work):
            engine_time(member, segments, member.ledger(segments))
    except RooflmError as e:
        return e.what
    return ""


def sentences(
    handoff: Handoff,
    formats: str,
    works: Sequence[Work],
    estimated: bool,
    rows: Sequence[dict[str, Any]],
) -> list[str]:
    """Say what a hand-off takes for granted, in place of what is said of a request."""
    name = _name(handoff.prefill)
    said = [
        f"request: each prompt is computed on {name}, a prompt at a time, and yields the first "
        "token; its cache and states are handed on, then it decodes with the rest of the batch, "
        f"each further token at its own context; no queue{formats}",
        f"hand-off: {handoff.bytes_per_s / 1e9:,.4g} GB/s one way, after the prefill and not "
        "within it; the first token waits for it, and no decode step comes before it; floor_s "
        "leaves it out",
        "tokens/s: of a decode machine that always has its batch; prefills_per_decode machines "
        "keep pace with it at this batch and number of output tokens; memory and fits are those of "
        "the decode machine",
    ]
    if any(row["prefill_fits"] is False for row in rows):
        plain = handoff.prefill.machine.name
        said.append(f"the prefill does not fit {name}: --prefill-on 8x{plain} has eight of them")
    if any(work.reused for work in works):
        said.append("a reused prefix is in the cache of the prefill machine: all is handed on")
    constants = handoff.prefill.constants
    if estimated and constants is not None:
        said.append(f"prefills on {name}: {constants.told[0]}")
    return said
