"""The decode step of a model on a machine over batches and contexts: the lecture's table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .errors import RooflmError
from .hardware import Machine, capacity, rates
from .memory import activations_bytes, largest, model_cache_bytes, weights_bytes
from .model import Model, ledger, total_parameters
from .passes import BF16, Operator, Precision, decode
from .readings import Q
from .timing import (
    Rates,
    TimeModel,
    bandwidth_time,
    compulsory_bytes,
    flops,
    regime,
    step_time,
    throughput,
)
from .units import show_gb, show_number

Accounting = Literal["full", "lecture"]

MOST_ROWS = 10**6
FEW_POINTS = 500
"""Below this many points the scalar reading is faster than importing numpy."""


@dataclass(frozen=True)
class Case:
    """A model on a machine, and how to count."""

    model: Model
    machine: Machine
    precision: Precision = BF16
    accounting: Accounting = "full"
    time_model: TimeModel = "operator"
    reserve_bytes: int = 0
    """Memory kept free for what is not modelled [B]."""
    capacity_bytes: int | None = None
    """Capacity in place of the machine's own [B]."""

    @property
    def lecture(self) -> bool:
        """Count as the lecture does."""
        return self.accounting == "lecture"

    @property
    def limit(self) -> tuple[int, str]:
        """Capacity that decides and which figure it is."""
        if self.capacity_bytes is not None:
            return self.capacity_bytes, "given"
        return capacity(self.machine, nominal=self.lecture)

    @property
    def rates(self) -> Rates:
        """Rates of the machine for the formats of the case."""
        return rates(
            self.machine, self.precision.weights.compute, needed=self.time_model != "bandwidth"
        )


def memory(case: Case, B: Q, S: Q, pass_: Sequence[Operator] | None = None) -> dict[str, Q]:
    """What a decode step of B sequences at context S needs in memory, by kind [B].

    The lecture counts weights and cache only.
    """
    kinds = {
        "weights_bytes": weights_bytes(case.model, case.precision, norms=not case.lecture),
        "kv_cache_bytes": model_cache_bytes(case.model, case.precision, B, S),
    }
    if not case.lecture:
        pass_ = pass_ or ledger(case.model, decode(B, S), case.precision)
        kinds["activations_bytes"] = activations_bytes(pass_)
        kinds["reserve_bytes"] = case.reserve_bytes
    return kinds


def memory_bytes(case: Case, B: Q, S: Q) -> Q:
    """Bytes that a decode step of B sequences at context S needs, all kinds together [B]."""
    return sum(memory(case, B, S).values())


def max_sequences(case: Case, S: int) -> int:
    """Most whole sequences of S tokens that fit."""
    limit = case.limit[0]
    return largest(lambda B: memory_bytes(case, B, S) <= limit)


def max_context_tokens(case: Case, B: int) -> int:
    """Longest context at which B sequences fit [tokens]."""
    limit = case.limit[0]
    return largest(lambda S: memory_bytes(case, B, S) <= limit)


def columns(case: Case, B: Q, S: Q) -> dict[str, Q]:
    """Answer a decode step by the contract's keys; numbers give numbers, arrays give arrays."""
    pass_ = ledger(case.model, decode(B, S), case.precision)
    kinds = memory(case, B, S, pass_)
    held = sum(kinds.values())
    limit = case.limit[0]
    work = flops(pass_)
    machine = case.rates
    result: dict[str, Q] = {
        "batch": B,
        "context_tokens": S,
        **kinds,
        "memory_bytes": held,
        "capacity_bytes": limit,
        "fits": held <= limit,
    }
    if case.lecture:
        moved = held
        time = bandwidth_time(moved, machine.bytes_per_s)
        result |= {"time_s": time, "basis": "lecture"}
        limited: Q = "memory"
    else:
        moved = compulsory_bytes(pass_)
        time = step_time(pass_, machine, case.time_model)
        known = machine.flops_per_s is not None
        result |= {
            "time_s": time,
            "basis": "bound",
            "floor_s": step_time(pass_, machine, "overlap") if known else None,
            "bound_s": time,
            "bound_tokens_per_s": throughput(B, time),
        }
        limited = regime(pass_, machine, case.time_model)
    return (
        result
        | {
            "tokens_per_s": throughput(B, time),
            "bytes": moved,
            "flops": work,
            "intensity_flops_per_byte": work / moved,
            "regime": limited,
        }
        | dict.fromkeys(NOT_YET)
    )


NOT_YET = (
    "estimate_s",
    "estimate_low_s",
    "estimate_high_s",
    "estimate_tokens_per_s",
    "ttft_s",
    "e2e_s",
)
"""Keys of the contract that a decode step has no figure for: null, never guessed."""


def sweep(case: Case, batches: Sequence[int], contexts: Sequence[int]) -> dict[str, Any]:
    """Answer every batch at every context, batches fastest."""
    points = len(batches) * len(contexts)
    if points > MOST_ROWS:
        what = f"{points:,} points are more than {MOST_ROWS:,}"
        raise RooflmError(what, "--batch, --context", "Take a larger step.")
    if case.lecture and case.time_model != "bandwidth":
        what = f"the lecture's accounting has no time model '{case.time_model}'"
        raise RooflmError(what, "--time-model", "Leave out one of the two options.")
    if points < FEW_POINTS:
        rows = [columns(case, B, S) for S in contexts for B in batches]
    else:
        rows = _grid_rows(case, batches, contexts)
    limit, basis = case.limit
    return {
        "schema": "rooflm.sweep/1",
        "model": case.model.name,
        "hardware": case.machine.name,
        "accounting": case.accounting,
        "time_model": case.time_model,
        "phase": "decode",
        "parameters": total_parameters(case.model, norms=not case.lecture),
        "capacity_bytes": limit,
        "capacity_basis": basis,
        "capacity_nominal_bytes": case.machine.label_bytes,
        "capacity_driver_bytes": case.machine.driver_bytes,
        "rows": rows,
        "assumptions": assumptions(case, contexts),
    }


def _grid_rows(case: Case, batches: Sequence[int], contexts: Sequence[int]) -> list[dict[str, Any]]:
    import numpy as np

    B = np.array(batches, dtype=float)[None, :]
    S = np.array(contexts, dtype=float)[:, None]
    shape = (len(contexts), len(batches))
    whole = {"batch", "context_tokens"}
    lists: dict[str, list[Any]] = {}
    for key, value in columns(case, B, S).items():
        full = np.broadcast_to(np.asarray(value, dtype=object if value is None else None), shape)
        flat = full.reshape(-1)
        if key in whole or key.endswith("bytes") or key == "flops":
            # Beyond 2**53 float64 no longer holds every integer; 1 part in 10**16.
            flat = flat.astype(object) if flat.dtype == object else np.rint(flat)
            lists[key] = [int(v) for v in flat]
        else:
            lists[key] = flat.tolist()
    return [dict(zip(lists, values, strict=True)) for values in zip(*lists.values(), strict=True)]


def assumptions(case: Case, contexts: Sequence[int] = ()) -> list[str]:
    """Say in sentences what an answer takes for granted and leaves out."""
    machine, formats = case.machine, case.precision
    bandwidth = f"{show_number(machine.bandwidth_bytes_per_s / 1e12)} TB/s"
    said = [
        f"decode: each sequence reads its S cached tokens, the new one included, and writes one; "
        f"weights {formats.weights.name}, cache {formats.cache.name}"
    ]
    if case.lecture:
        said.append(
            "lecture accounting: parameters without norms, every parameter read each step, no "
            f"writes, no activations; time = bytes / {bandwidth}"
        )
    else:
        compute, peak = formats.weights.compute, case.rates.flops_per_s
        if peak is None or case.time_model == "bandwidth":
            speed = f"{bandwidth} (compute is not counted)"
        else:
            kind = (
                "measured, above the datasheet" if peak > machine.flops.get(compute, 0) else "dense"
            )
            speed = f"{bandwidth} and {show_number(peak / 1e12)} TFLOP/s {compute} ({kind})"
        said.append(
            f"bound, time model {case.time_model}, at {speed}: no kernel launches, no "
            "inefficiency; real steps take longer"
        )
        reserve = case.reserve_bytes
        said.append(
            f"reserve: {show_gb(reserve)} GB as given"
            if reserve
            else "reserve: none; context, graphs and fragmentation take 0.3 to over 2 GB: --reserve"
        )
    said.append(capacity_sentence(case))
    longest = case.model.max_context
    if longest is not None and any(longest < S for S in contexts):
        said.append(f"{case.model.name} is configured for at most {longest:,} tokens of context")
    return said


def capacity_sentence(case: Case) -> str:
    """Say which capacity decides, and the figure beside it."""
    limit, basis = case.limit
    label, driver = case.machine.label_bytes, case.machine.driver_bytes
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
