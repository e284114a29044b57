"""Each operator of a pass against the ridge of a machine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .case import Case, slowest
from .errors import RooflmError
from .matmul import intensity, ridge
from .passes import Operator, prefill
from .precision import told
from .readings import Q, is_zero
from .sharing import asked as shared
from .sweep import assumptions
from .timing import Rates, compute_time, operator_moving_time, operator_time

MOST_ROOFLINES = 64
"""Machines times batches of one answer."""


def operator_figures(op: Operator, rates: Rates) -> dict[str, Q]:
    """Figures of all runs of an operator, in any reading.

    bytes and intensity are the operator's, unfused activations included; the bound uses what no
    fusion avoids, so that rows add up to the step.
    """
    work, moved = op.count * op.flops, op.count * op.operator_bytes
    return {
        "flops": work,
        "bytes": moved,
        # A message neither computes nor reads memory.
        "intensity_flops_per_byte": 0 if is_zero(moved) else intensity(work, moved),
        "bound_s": op.count * operator_time(op, rates),
        "weight_read_bytes": op.count * op.weight_bytes,
        "cache_read_bytes": op.count * op.read_bytes,
    }


def operator_row(op: Operator, rates: Rates) -> dict[str, Any]:
    """Answer one operator by the keys of the contract."""
    computing = compute_time(op.flops, rates.peak(op.compute))
    moving = operator_moving_time(op, rates)
    return {
        "name": op.name,
        "part": op.part,
        "runs": op.count,
        **operator_figures(op, rates),
        "regime": "communication"
        if not is_zero(op.seconds)
        else "compute"
        if computing > moving
        else "memory",
    }


def rooflines(cases: Sequence[Case], batches: Sequence[int], context: int) -> dict[str, Any]:
    """Answer several machines or batches side by side; one alone as itself."""
    if len(cases) * len(batches) > MOST_ROOFLINES:
        what = f"{len(cases) * len(batches):,} rooflines are more than {MOST_ROOFLINES}"
        raise RooflmError(what, "--on, --batch")
    answers = [roofline(case, batch, context) for case in cases for batch in batches]
    if len(answers) == 1:
        return answers[0]
    said = dict.fromkeys(line for answer in answers for line in answer["assumptions"])
    return {
        "schema": "rooflm.roofline/1",
        "model": answers[0]["model"],
        "hardware": list(dict.fromkeys(answer["hardware"] for answer in answers)),
        "context_tokens": context,
        "rooflines": answers,
        "assumptions": list(said),
    }


def roofline(case: Case, batch: int, context: int) -> dict[str, Any]:
    """Answer every operator of a decode step, and of the prefill of as many prompts as long."""
    if case.lecture:
        what = "the lecture's accounting has one operator, the whole step"
        raise RooflmError(what, "--accounting", "Leave the option out.")
    rates = case.rates
    answer: dict[str, Any] = {
        "schema": "rooflm.roofline/1",
        "model": case.model.name,
        "hardware": case.machine.name,
        "batch": batch,
        "context_tokens": context,
        "weights_format": told(case.precision).removeprefix("weights "),
        "ridge_flops_per_byte": ridge(rates.flops_per_s, rates.bytes_per_s),
        "peak_flops_per_s": rates.flops_per_s,
        "bandwidth_bytes_per_s": rates.bytes_per_s,
        **shared(case),
    }
    passes = {"operators": case.step(batch, context)}
    if not case.model.denoises:
        passes["prefill_operators"] = prefill(batch, context)
    for key, segments in passes.items():
        slow = slowest(case, segments)
        answer[key] = [operator_row(op, rates) for op in slow.ledger(segments)]
    said = assumptions(case, contexts=[context])
    if case.stages > 1:
        said.append(f"rows are of the slowest stage; a token takes {case.stages} times their sum")
    return answer | {"assumptions": said}
