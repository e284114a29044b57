"""One point of a run: its time, its parts and its memory, beside what is predicted of the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..calc.case import Case, estimated, memory
from ..calc.engines import find_constants
from ..calc.errors import RooflmError
from ..calc.hardware import Machine
from ..calc.passes import Operator, Routing, Segment
from ..calc.timing import compulsory_bytes, flops, step_time
from . import measured
from .ceilings import Reader
from .device import (
    Timing,
    alternated,
    captured,
    memory_free,
    peak_bytes,
    reset_peak,
    state,
    synchronize,
)
from .linears import PACKED, padded_to
from .network import Network, held_caches
from .plan import FREE_SHARE, Plan, Subject, about, case_of, needed_bytes, segments_of
from .state_layers import StateLayer
from .talk import reason
from .untyped import torch


def run_point(
    plan: Plan,
    device: Any,
    subject: Subject,
    network: Network,
    point: tuple[str, int, int],
    machine: Machine,
    answer: dict[str, Any],
    reader: Reader,
    before: int | None,
) -> dict[str, Any]:
    """Run one point and compare it with what is predicted of it."""
    phase, B, S = point
    recurrent = any(isinstance(x.mixer, StateLayer) for x in network.layers)
    if phase == "prefill" and recurrent:
        what = "prompts of layers with a state run token by token here, which is no prefill"
        raise RooflmError(what, "--phase")
    if phase == "prefill" and S < 2:
        raise RooflmError("a prompt of one token is a decode step", "--context")
    positions = subject.model.positions
    if positions and positions < S:
        raise RooflmError(f"the model has {positions:,} positions, not {S:,}", "--context")
    _check_memory(plan, subject, network, point, machine, device)
    caches = network.caches(B, S)
    network.fill(caches)
    shape = (B, S if phase == "prefill" else 1)
    tokens = torch.randint(
        subject.whole.V, shape, generator=network.maker.same, device=device
    )  # fmt: skip
    n = 0 if phase == "prefill" else S - 1
    if phase == "prefill":
        kernel = network.choose_prefill(B, S, caches)
    else:
        kernel = network.choose_attention(B, S, caches)
    watched = reset_peak(device)
    network.touched()

    def step() -> Any:
        return network.run(tokens, n, caches)

    # Ranks have to run equally often.
    limit = plan.budget_s / 4 if plan.ranks.count == 1 else None
    best, reads = alternated(step, reader.run, device, plan.runs, seconds=limit)
    eager = best
    peak = peak_bytes(device)
    touched = network.touched()
    parts = _parts(network, step, device, plan)
    mode, lacks = "eager", ""
    if device.type == "cuda":
        lacks = _not_captured(phase, network)
        try:
            if not lacks:
                graph = captured(step, device)
                best, reads = alternated(graph, reader.run, device, plan.runs)
                mode = "graph"
        except Exception as e:  # whatever asks the host within a step
            lacks = reason(e)
    around = reader.bytes / reads.median_s
    case = case_of(_with_touched(subject, touched), machine)
    here = measured.at_ceilings(machine, answer["ceilings"])
    here = replace(here, bandwidth_bytes_per_s=around)
    row = about(subject, point) | _figures(case, here, segments_of(*point), best, around)
    row["parts"] = _compared(case, here, segments_of(*point), parts)
    if phase == "prefill":
        row["ttft_s"] = best.median_s
    allocated = held_caches(caches)
    # Where a process goes on in memory that it held already, its peak tells nothing of the step.
    more = 0 if peak is None or before is None or not watched else peak - before
    kernels = {
        part: _padded(name, network, B if phase == "decode" else B * S)
        for part, name in network.kernels.items()
    }
    return row | {
        "mode": mode,
        "graph_lacks": lacks or None,
        "eager_s": eager.median_s,
        "kernels": kernels | ({"attention": kernel} if kernel else {}),
        "touched_experts": touched,
        "allocated_weights_bytes": network.weights_bytes,
        "allocated_cache_bytes": allocated,
        "peak_bytes": more if more > 0 else None,
        "read_bytes_per_s": around,
        "read_spread": reads.spread,
        "clock_mhz": state(device)["clock_mhz"],
        "excluded": None,
    }


def _padded(kernel: str, network: Network, rows: int) -> str:
    """Say with a kernel how many rows it multiplies, where they are not those of the step."""
    wanted = padded_to(network.maker.dtype, rows) if PACKED in kernel else rows
    return kernel if wanted == rows else f"{kernel}, {rows} rows as {wanted}"


def _check_memory(
    plan: Plan,
    subject: Subject,
    network: Network,
    point: tuple[str, int, int],
    machine: Machine,
    device: Any,
) -> None:
    more = needed_bytes(subject, machine, point) - network.weights_bytes
    free = memory_free(device)
    if plan.ranks.most(more - FREE_SHARE * free) > 0:
        need = f"cache and activations need {more / 1e9:,.1f} GB more"
        raise RooflmError(f"{need}, and {free / 1e9:,.1f} are free")


def _not_captured(phase: str, network: Network) -> str:
    """Say why a step is not captured; a capture that fails would spoil what runs after it."""
    if phase == "prefill":
        return "prompts run eagerly, as in most engines"
    if any(layer.stacked is None for layer in network.experts):
        return "experts one by one: which ones is decided on the host"
    return ""


def _parts(network: Network, step: Callable[[], Any], device: Any, plan: Plan) -> dict[str, float]:
    """Time the parts of a step, each waited for: the median of several steps [s]."""
    meter = network.meter

    def clock() -> float:
        synchronize(device)
        return time.perf_counter()

    found: list[dict[str, float]] = []
    for _ in range(min(5, plan.runs)):
        meter.clock, meter.seconds = clock, {}
        step()
        found.append(meter.seconds)
    meter.clock = None
    middle = len(found) // 2
    return {part: sorted(f[part] for f in found)[middle] for part in found[0]}


def _with_touched(subject: Subject, touched: float | None) -> Subject:
    """Predict a pass that touches as many experts as the measured one did."""
    if touched is None:
        return subject
    routing = Routing(distinct=touched)
    return replace(subject, precision=replace(subject.precision, routing=routing))


def _figures(
    case: Case, here: Machine, segments: Sequence[Segment], found: Timing, read: float
) -> dict[str, Any]:
    """Put a measurement beside what is predicted of it; null where nothing is."""
    pass_ = case.ledger(segments)
    at = replace(case, machine=here)
    kinds = memory(case, segments, pass_)
    bound, floor = (
        _seconds(case, lambda c: step_time(pass_, c.rates, "operator")),
        _seconds(case, lambda c: step_time(c.least_ledger(segments, pass_), c.rates, "overlap")),
    )
    near = _seconds(at, lambda c: step_time(pass_, c.rates, "operator"))
    constants, _ = find_constants(case.machine, "compiled")
    guess = None
    if constants is not None:
        seconds = estimated(replace(case, constants=constants), segments, pass_)
        guess = None if seconds is None else float(seconds)
    measured_s = found.median_s
    moved = float(compulsory_bytes(pass_))
    return {
        "floor_s": floor,
        "bound_s": bound,
        "ceiling_bound_s": near,
        "estimate_s": guess,
        "calibrated_s": None,
        "measured_s": measured_s,
        "measured_low_s": found.low_s,
        "measured_high_s": found.high_s,
        "runs": found.runs,
        "error": _error(guess, measured_s),
        "bound_error": _error(bound, measured_s),
        "ceiling_error": _error(near, measured_s),
        "calibrated_error": None,
        "bytes": moved,
        "read_share": moved / measured_s / read,
        "compute_share": _compute_share(at, pass_, measured_s),
        **{name: float(size) for name, size in kinds.items()},
        "memory_bytes": float(sum(kinds.values())),
    }


def _compute_share(at: Case, pass_: Sequence[Operator], measured_s: float) -> float | None:
    """Share of the measured rate of products that a pass reached; None where none was measured."""
    peak = _seconds(at, lambda c: c.rates.peak(""))
    return None if peak is None else float(flops(pass_)) / measured_s / peak


def _seconds(case: Case, time_of: Callable[[Case], Any]) -> float | None:
    try:
        return float(time_of(case))
    except RooflmError:
        return None


def _error(predicted: float | None, measured_s: float) -> float | None:
    return None if predicted is None else predicted / measured_s - 1


def _compared(
    case: Case, here: Machine, segments: Sequence[Segment], parts: dict[str, float]
) -> list[dict[str, Any]]:
    """Put the measured time of each part beside its bounds."""
    by_part: dict[str, list[Operator]] = {}
    for op in case.ledger(segments):
        by_part.setdefault(op.part, []).append(op)
    at = replace(case, machine=here)
    rows: list[dict[str, Any]] = []
    for part in dict.fromkeys((*by_part, *parts)):
        ops = by_part.get(part, [])
        rows.append(
            {
                "part": part,
                "bound_s": _seconds(case, lambda c, ops=ops: step_time(ops, c.rates, "operator")),
                "ceiling_bound_s": _seconds(
                    at, lambda c, ops=ops: step_time(ops, c.rates, "operator")
                ),
                "measured_s": parts.get(part),
            }
        )
    return rows
