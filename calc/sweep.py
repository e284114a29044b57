"""The decode step of a model on a machine over batches and contexts: the lecture's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .case import (
    ESTIMATES,
    Case,
    engine_time,
    figures,
    fullest_memory,
    limits,
    max_sequences,
    regime,
    slowest,
)
from .errors import RooflmError
from .model import has_experts, sequence_state_bytes, total_parameters, untouched_parameters
from .passes import Routing, Segment, decode, prefill
from .precision import file_told, mixture_told, told
from .readings import Q, is_zero
from .sharing import asked as shared
from .sharing import told as sharing_told
from .state import columns_format
from .timing import sending_time
from .units import show_gb, show_number

MOST_ROWS = 10**6
MOST_LARGEST = 8
"""Contexts of which a sweep tells the largest batch that fits: as many as a figure has lines."""
FEW_POINTS = 500
"""Below this many points the scalar reading is faster than importing numpy."""


def step_row(case: Case, segments: Sequence[Segment], B: Q, S: Q) -> dict[str, Q]:
    """Answer one decode step by the keys of the contract; arrays give arrays.

    segments: the step; B: its sequences [1]; S: their context, the mean where they differ [tokens].
    """
    check_yield(case.step_tokens, S)
    slow = slowest(case, segments)
    pass_ = slow.ledger(segments)
    row = figures(slow, segments, pass_, tokens=B * case.step_tokens)
    row |= fullest_memory(case, segments)
    limit = case.limit[0]
    return {
        "batch": B,
        "context_tokens": S,
        **row,
        "capacity_bytes": limit,
        "fits": row["memory_bytes"] <= limit,
        "touched_parameters": total_parameters(case.model, norms=not case.lecture)
        - untouched_parameters(case.model, B, case.precision.routing),
        "regime": regime(*limits(slow, pass_), sending_time(pass_)),
        **devices_of(case),
        "basis": basis_of(case, row),
        **(dict.fromkeys(ESTIMATES) if case.lecture else {}),
        **dict.fromkeys(("ttft_s", "e2e_s")),
    }


def basis_of(case: Case, row: dict[str, Any]) -> str:
    """Name what the time of a row is: that of the lecture, an estimate, or a bound."""
    if case.lecture:
        return "lecture"
    return "bound" if case.basis == "bound" or row["estimate_s"] is None else "estimate"


def of_each_device(row: dict[str, Any]) -> dict[str, Any]:
    """Tell the throughput of each device of a layout; nothing on one device."""
    if "devices" not in row:
        return {}
    rate, devices = row["tokens_per_s"], row["devices"]
    if "prefill_devices" in row:
        devices += row["prefills_per_decode"] * row["prefill_devices"]
    return {"tokens_per_s_per_device": None if rate is None else rate / devices}


def devices_of(case: Case) -> dict[str, Any]:
    """Tell how many devices a layout takes; nothing on one device."""
    return {} if case.layout is None else {"devices": case.layout.devices}


def sweep(case: Case, batches: Sequence[int], contexts: Sequence[int]) -> dict[str, Any]:
    """Answer a decode step for every batch at every context, batches fastest."""
    check_size(len(batches) * len(contexts))
    rows = (
        grid_rows(case, batches, contexts)
        if takes_arrays(case, len(batches) * len(contexts))
        else [step_row(case, case.step(B, S), B, S) for S in contexts for B in batches]
    )
    return frame(case, "decode", rows, contexts) | {"largest": largest_batches(case, contexts)}


def largest_batches(case: Case, contexts: Sequence[int]) -> list[dict[str, int]]:
    """Tell the largest batch that fits at each context, in their order.

    Of more than `MOST_LARGEST` contexts nothing is told: each takes a search of its own.
    """
    each = dict.fromkeys(contexts)
    if len(each) > MOST_LARGEST:
        return []
    return [{"context_tokens": S, "max_sequences": max_sequences(case, S)} for S in each]


def takes_arrays(case: Case, points: int) -> bool:
    """Tell whether points are answered as arrays; ranks that differ are compared one by one."""
    return points >= FEW_POINTS and len(case.ranks) <= 1


def mixed(case: Case, batches: Sequence[int], lengths: Sequence[int]) -> dict[str, Any]:
    """Answer decode steps of batches whose sequences have different lengths.

    batches: sequences of each step, a multiple of the number of lengths; lengths: contexts that
    take equal shares of the batch [tokens]. BS becomes the sum of all contexts.
    """
    rows: list[dict[str, Any]] = []
    for B in batches:
        if B % len(lengths):
            what = f"{B} sequences cannot share {len(lengths)} lengths equally"
            raise RooflmError(what, "--batch", f"Take a multiple of {len(lengths)}.")
        each = B // len(lengths)
        segments = [case.step(each, S)[0] for S in lengths]
        row = step_row(case, segments, B, sum(lengths) / len(lengths))
        rows.append(row | {"total_context_tokens": each * sum(lengths)})
    return frame(case, "decode", rows, lengths) | {"mixed_context_tokens": list(lengths)}


def check_yield(step_tokens: Q, tokens: Q) -> None:
    """Refuse denoising steps that yield more than there is to denoise."""
    least = min(tokens.ravel()) if hasattr(tokens, "ravel") else tokens
    if step_tokens > least:
        what = f"a step over {least:,} tokens cannot yield {step_tokens:g}"
        raise RooflmError(what, "--tokens-per-step")


def check_size(points: int) -> None:
    """Refuse a grid that no table can hold."""
    if points > MOST_ROWS:
        what = f"{points:,} points are more than {MOST_ROWS:,}"
        raise RooflmError(what, "--batch, --context", "Take a larger step.")


def frame(
    case: Case, phase: str, rows: list[dict[str, Any]], contexts: Sequence[int]
) -> dict[str, Any]:
    """Put rows into the object that a sweep answers with."""
    limit, basis = case.limit
    return {
        "schema": "rooflm.sweep/1",
        "model": case.model.name,
        "hardware": case.machine.name,
        "accounting": case.accounting,
        "time_model": case.time_model,
        "phase": phase,
        "parameters": total_parameters(case.model, norms=not case.lecture),
        "capacity_bytes": limit,
        "capacity_basis": basis,
        "capacity_nominal_bytes": case.machine.label_bytes,
        "capacity_driver_bytes": case.machine.driver_bytes,
        **shared(case),
        "rows": [row | of_each_device(row) if "devices" in row else row for row in rows],
        "assumptions": assumptions(case, phase, contexts, rows=rows) + gaps(case, phase, rows),
    }


def gaps(case: Case, phase: str, rows: Sequence[dict[str, Any]]) -> list[str]:
    """Say why some rows have no estimate where others have one."""
    without = [row for row in rows if row.get("estimate_s") is None]
    if case.constants is None or len(without) in (0, len(rows)):
        return []
    return [f"no estimate at batch {without[0]['batch']:,}: {_reason(case, phase, without[0])}"]


def _reason(case: Case, phase: str, row: dict[str, Any]) -> str:
    """Say why a row has no estimate."""
    found = _gap(case, phase, row["batch"], row.get("prompt_tokens") or row["context_tokens"])
    return found or "prefills of others are more than half of a token"


def grid_columns(case: Case, batches: Sequence[int], contexts: Sequence[int]) -> dict[str, Any]:
    """Answer a decode step for every batch at every context as flat arrays, batches fastest.

    Ranks that differ have no such reading. A column of what may be missing holds objects.
    """
    import numpy as np

    B, S = (np.array(values, dtype=float) for values in (batches, contexts))
    shape = (len(contexts), len(batches))
    # Whole numbers are those of one point; beyond 2**53 float64 no longer holds each of them.
    point = step_row(case, case.step(batches[0], contexts[0]), batches[0], contexts[0])
    whole = {k for k, v in point.items() if isinstance(v, int) and not isinstance(v, bool)}
    most = None if case.constants is None else case.constants.most_batch
    known = np.full(len(batches), True) if most is None else most >= B
    columns: dict[str, Any] = {}
    # Beyond the published batches the same case has no estimate.
    for chosen, of in ((known, case), (~known, replace(case, constants=None))):
        if not chosen.any():
            continue
        some, every = B[chosen][None, :], S[:, None]
        for key, value in step_row(of, of.step(some, every), some, every).items():
            array = np.asarray(value)
            if key not in columns:
                columns[key] = np.empty(shape, array.dtype if chosen.all() else object)
            columns[key][:, chosen] = array
    return {k: _counted(v.ravel(), k in whole) for k, v in columns.items()}


def _counted(column: Any, whole: bool) -> Any:
    """Turn a column into whole numbers where it holds nothing else.

    A count that is whole at the first point only, such as an expected number, keeps its rest.
    """
    import numpy as np

    if not whole:
        return column
    values = column.astype(float)
    near = np.rint(values)
    if not np.all(np.abs(values - near) <= 1e-9 * np.abs(values)):
        return column
    if np.max(np.abs(near), initial=0) < 2**62:
        return near.astype(np.int64)
    return np.array([int(v) for v in near], dtype=object)


def grid_rows(case: Case, batches: Sequence[int], contexts: Sequence[int]) -> list[dict[str, Any]]:
    """Answer a decode step for every batch at every context, batches fastest, by arrays."""
    columns = grid_columns(case, batches, contexts)
    lists = [column.tolist() for column in columns.values()]
    return [dict(zip(columns, values, strict=True)) for values in zip(*lists, strict=True)]


PHASES = {
    "decode": "decode: each sequence reads its S cached tokens, the new one included, and "
    "writes one",
    "prefill": "prefill: prompts are computed together, attention with the exact causal half, "
    "logits for the last position only; it yields the first token",
    "denoise": "denoise: a pass computes all S positions both ways, with logits for each, and "
    "keeps nothing",
    "served": "served: as many clients as the batch, each with a request at all times; a token "
    "takes a step of all and (clients - 1)/output of a prefill, no queue; bound and floor are of "
    "the step alone; no estimate where prefills are more than half",
    "request": "request: a prefill, which yields the first token, then one decode step for each "
    "further token at its own context; all sequences start together, no queue",
}


TIME_MODEL_SAYS = {
    "bandwidth": "memory traffic alone; below the floor where compute limits",
    "overlap": "the floor, all compute and traffic overlapped: no kernel launches, no inefficiency",
    "operator": "a bound, no kernel launches, no inefficiency; real steps take longer",
    "serial": "the upper end of perfect efficiency, nothing overlapped; not a bound",
}


ROUTING_SAYS = (
    "experts: the distinct ones that a pass touches in expectation, {} routing, every token and "
    "layer by itself; tokens that are alike touch fewer and are faster, never below floor_s"
)


UNIFIED_SAYS = (
    "unified memory is shared with the system, and all of it is counted here; --gpu-share 90% "
    "leaves some of it to others"
)


def _latent_sentence(mixer: Any, phase: str, contexts: Sequence[int]) -> str:
    """Name the form that is taken for the shortest and the longest context."""
    ends = sorted({min(contexts, default=1), max(contexts, default=1)})
    if phase == "decode":
        forms = dict.fromkeys(mixer.mode(S - 1, 1) for S in ends)
        return (
            f"latent attention: decode takes the form with fewer FLOPs, here {' or '.join(forms)}"
        )
    return "latent attention: each pass takes the form with fewer FLOPs, absorbed or materialised"


def _computing(case: Case) -> list[str]:
    """Say what multiplies weights of fewer bits than the activations have."""
    said: list[str] = []
    for compute in case.precision.computes:
        rate = case.rates.others.get(compute)
        if rate is not None:
            speed = f"{show_number(rate / 1e12)} TFLOP/s"
            said.append(f"fewer bits are multiplied at {speed} {compute}")
        elif case.time_model != "bandwidth":
            plain = case.precision.activations.compute
            said.append(
                f"{case.machine.name} has no {compute} rate: fewer bits are "
                f"expanded and multiplied in {plain}"
            )
    if case.time_model != "bandwidth" and (names := case.precision.expanded):
        plain = case.precision.activations.compute
        said.append(f"{' and '.join(names)}: taken as expanded and multiplied in {plain}")
    return said


BOUNDS_ONLY = "times are to be compared with bounds alone (--basis bound)"


def estimate_told(
    case: Case, phase: str, contexts: Sequence[int], rows: Sequence[dict[str, Any]] = ()
) -> list[str]:
    """Say where estimates come from, or why there are none; nothing of commands without any."""
    if case.constants is None:
        return [f"no estimate: {case.no_estimate}; {BOUNDS_ONLY}"] if case.no_estimate else []
    if rows and all(row.get("estimate_s") is None for row in rows):
        return [f"no estimate: {_reason(case, phase, rows[0])}; {BOUNDS_ONLY}"]
    if not rows and (
        reason := _gap(case, phase, case.members[0].least_batch, max(contexts, default=1))
    ):
        return [f"no estimate: {reason}; {BOUNDS_ONLY}"]
    basis = "time is the estimate" if case.basis == "estimate" else "time is the bound"
    band = case.constants.prefill_band if phase == "prefill" else case.constants.band
    told = case.constants.told if band is not None else case.constants.told[:1]
    return [f"{basis} (--basis); {told[0]}", *told[1:]]


def _gap(case: Case, phase: str, B: Q, S: Q) -> str:
    """Say why B sequences of S tokens have no estimate; "" where they have one."""
    member = case.members[0]
    passes = [] if phase == "prefill" else [decode(B, S)]
    passes += [prefill(B, S)] if phase in ("prefill", "request") else []
    passes += [prefill(member.least_batch, S)] if phase == "served" else []
    try:
        for segments in passes:
            engine_time(member, segments, member.ledger(segments))
    except RooflmError as e:
        return e.what
    return ""


def _routing_name(routing: Routing) -> str:
    if routing.shares:
        return "given"
    if routing.alike != 1:
        return f"partly alike ({routing.alike:g})"
    return f"Zipf {routing.exponent:g}" if routing.exponent else "even"


def assumptions(
    case: Case,
    phase: str = "decode",
    contexts: Sequence[int] = (),
    timed: bool = True,
    rows: Sequence[dict[str, Any]] = (),
) -> list[str]:
    """Say in sentences what an answer takes for granted and leaves out.

    timed: the answer has times in it, so that rates and the time model matter; rows: the answer's.
    """
    machine, formats = case.machine, case.precision
    bandwidth = f"{show_number(machine.bandwidth_bytes_per_s / 1e12)} TB/s"
    if case.model.denoises and phase == "decode":
        phase = "denoise"
    said = [f"{PHASES[phase]}; {told(formats)}, cache {formats.cache.name}"]
    said += file_told(case.model) + mixture_told(formats)
    if machine.scaled_by:
        said.append(f"a machine that does not exist: {machine.name} with {machine.scaled_by}")
    if not is_zero(sequence_state_bytes(case.model, formats)):
        said.append(
            f"state: recurrent part {formats.state.name}, columns of convolutions "
            f"{columns_format(formats).name}; read and written by each pass, apart from the cache"
        )
    if case.lecture:
        said.append(
            "lecture accounting: parameters without norms, every parameter read each step, no "
            f"writes, no activations; time = bytes / {bandwidth}"
        )
    if timed and not case.lecture:
        compute, peak = formats.activations.compute, case.rates.flops_per_s
        if peak is None or case.time_model == "bandwidth":
            speed = bandwidth
        else:
            above = peak > machine.flops.get(compute, 0)
            kind = "the best known: measured, or with 16-bit sums" if above else "dense"
            speed = f"{bandwidth} and {show_number(peak / 1e12)} TFLOP/s {compute} ({kind})"
        said.append(f"time model {case.time_model} at {speed}: {TIME_MODEL_SAYS[case.time_model]}")
        said += _computing(case)
        said += estimate_told(case, phase, contexts, rows)
    if case.layout is not None:
        from .deployment import told as spread_told

        bound = case.constants is None or (
            bool(rows) and all(row.get("estimate_s") is None for row in rows)
        )
        said += spread_told(case, timed, bound)
    said += sharing_told(case)
    if case.model.adapters is not None:
        from .adapters import told as adapters_told

        said += adapters_told(case.model, formats, case.layout is not None)
    if case.offloads:
        from .offload import told as offload_told

        said += offload_told(case.model, case.host_bytes_per_s if timed else None)
    latents = [g.mixer for g in case.model.groups if g.mixer.kind.startswith("mla")]
    if latents and not case.lecture:
        said.append(_latent_sentence(latents[0], phase, contexts))
    if has_experts(case.model) and not case.lecture:
        said.append(ROUTING_SAYS.format(_routing_name(case.precision.routing)))
    if not case.lecture:
        reserve = case.reserve_bytes
        said.append(
            f"reserve: {show_gb(reserve)} GB as given"
            if reserve
            else "reserve: none; context, graphs and fragmentation take 0.3 to over 2 GB: --reserve"
        )
    said.append(capacity_sentence(case))
    if case.machine.kind == "unified" and not (case.lecture or case.gpu_share or case.lent):
        said.append(UNIFIED_SAYS)
    longest = case.model.max_context
    if longest is not None and any(longest < S for S in contexts):
        said.append(f"{case.model.name} is configured for at most {longest:,} tokens of context")
    return said


def capacity_sentence(case: Case) -> str:
    """Say which capacity decides, and the figure beside it."""
    try:
        limit, basis = case.limit
    except RooflmError:
        return "capacity: not known, so whether it fits is not said"
    label, driver = case.machine.label_bytes, case.machine.driver_bytes
    if case.gpu_share is not None:
        share = f"{100 * case.gpu_share:g} % of the {basis} memory"
        return f"capacity: {show_gb(limit)} GB, {share}: what a GPU may use, as given"
    if case.lent is not None:
        return (
            f"capacity: {show_gb(limit)} GB, {100 * case.lent:g} % of the {basis} memory: what "
            "macOS lends a GPU by default, 67 to 84 % in logs; --gpu-share 1 counts all of it"
        )
    if basis == "given":
        return f"capacity: {show_gb(limit)} GB as given"
    if basis == "driver":
        beside = f" (nominal {show_gb(label)} GB)" if label is not None else ""
        return f"capacity: {show_gb(limit)} GB, as the driver reports{beside}"
    beside = (
        f" (the driver reports {show_gb(driver)} GB)"
        if driver is not None
        else "; what the driver reports is not known"
    )
    return f"capacity: {show_gb(limit)} GB nominal{beside}"
