"""A model on a machine, how to count, and what one pass of it takes in memory and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from .errors import RooflmError
from .hardware import Machine, capacity, rates
from .memory import activations_bytes, largest, weights_bytes
from .model import Model, cache_bytes, has_experts, ledger, sequence_state_bytes
from .passes import BF16, Operator, Precision, Routing, Segment, decode, denoise
from .readings import Q, is_array, is_zero, total
from .timing import (
    Rates,
    TimeModel,
    bandwidth_time,
    compulsory_bytes,
    flops,
    shares,
    step_time,
    throughput,
)

Accounting = Literal["full", "lecture"]


@dataclass(frozen=True)
class Case:
    """A model on a machine, and how to count."""

    model: Model
    machine: Machine
    precision: Precision = BF16
    accounting: Accounting = "full"
    time_model: TimeModel = "operator"
    reserve_bytes: Q = 0
    """Memory kept free for what is not modelled [B]."""
    capacity_bytes: Q | None = None
    """Capacity in place of the machine's own [B]."""
    step_tokens: Q = 1
    """Tokens that a step of a diffusion model yields for each sequence [tokens]."""

    def __post_init__(self) -> None:
        if self.lecture and self.time_model != "bandwidth":
            what = f"the lecture's accounting has no time model '{self.time_model}'"
            raise RooflmError(what, "--time-model", "Leave out one of the two options.")
        if self.lecture and not is_zero(self.reserve_bytes):
            what = "the lecture's accounting has no reserve"
            raise RooflmError(what, "--reserve", "Leave out one of the two options.")
        if self.lecture and self.precision.routing != Routing():
            what = "the lecture's accounting reads all experts"
            raise RooflmError(what, "--routing", "Leave out one of the two options.")

    @property
    def lecture(self) -> bool:
        """Count as the lecture does."""
        return self.accounting == "lecture"

    @property
    def limit(self) -> tuple[Q, str]:
        """Capacity that decides and which figure it is."""
        if self.capacity_bytes is not None:
            return self.capacity_bytes, "given"
        return capacity(self.machine, nominal=self.lecture)

    @property
    def rates(self) -> Rates:
        """Rates of the machine for the formats of the case."""
        formats = self.precision
        return rates(
            self.machine,
            formats.activations.compute,
            needed=self.time_model != "bandwidth",
            others=formats.computes,
        )

    def step(self, B: Q, S: Q) -> list[Segment]:
        """Describe the step that yields tokens: a decode step, or a denoising pass."""
        return denoise(B, S) if self.model.denoises else decode(B, S)

    def ledger(self, segments: Sequence[Segment]) -> list[Operator]:
        """List the operators of a pass."""
        return ledger(self.model, segments, self.precision)

    def least_ledger(
        self, segments: Sequence[Segment], pass_: Sequence[Operator]
    ) -> Sequence[Operator]:
        """List the operators of a pass in which all tokens choose the same experts."""
        if not has_experts(self.model):
            return pass_
        least = replace(self.precision, routing=Routing(fewest=True))
        return ledger(self.model, segments, least)


def memory(case: Case, segments: Sequence[Segment], pass_: Sequence[Operator]) -> dict[str, Q]:
    """What a pass needs in memory, by kind [B]. The lecture counts weights and cache only.

    segments: the pass, whose sequences are all that are held; pass_: its operators.
    """
    kinds = {
        "weights_bytes": weights_bytes(case.model, case.precision, norms=not case.lecture),
        "kv_cache_bytes": total(
            s.sequences * cache_bytes(case.model, s.kept, case.precision) for s in segments
        ),
    }
    state = sequence_state_bytes(case.model, case.precision)
    if not is_zero(state):
        kinds["state_bytes"] = total(s.sequences * state for s in segments)
    if not case.lecture:
        kinds["activations_bytes"] = activations_bytes(pass_)
        kinds["reserve_bytes"] = case.reserve_bytes
    return kinds


def memory_bytes(case: Case, B: Q, S: Q) -> Q:
    """Bytes that a decode step of B sequences at context S needs, all kinds together [B]."""
    segments = case.step(B, S)
    # The lecture counts no activations, so it needs no ledger.
    pass_ = () if case.lecture else case.ledger(segments)
    return total(memory(case, segments, pass_).values())


def max_sequences(case: Case, S: int) -> int:
    """Most whole sequences of S tokens that fit."""
    limit = case.limit[0]
    return largest(lambda B: memory_bytes(case, B, S) <= limit)


def max_context_tokens(case: Case, B: int) -> int:
    """Longest context at which B sequences fit [tokens]."""
    limit = case.limit[0]
    return largest(lambda S: memory_bytes(case, B, S) <= limit)


def figures(
    case: Case, segments: Sequence[Segment], pass_: Sequence[Operator], tokens: Q
) -> dict[str, Q]:
    """Memory, traffic, work and time of a pass, by the keys of the contract, in any reading.

    segments: the pass; pass_: its operators; tokens: what it yields, for the throughput [tokens].
    """
    kinds = memory(case, segments, pass_)
    machine = case.rates
    held = total(kinds.values())
    moved = held if case.lecture else compulsory_bytes(pass_)
    work = flops(pass_)
    result: dict[str, Q] = {**kinds, "memory_bytes": held}
    if case.lecture:
        time = bandwidth_time(moved, machine.bytes_per_s)
        result["time_s"] = time
    else:
        time = step_time(pass_, machine, case.time_model)
        known = machine.flops_per_s is not None
        result |= {
            "time_s": time,
            "floor_s": step_time(case.least_ledger(segments, pass_), machine, "overlap")
            if known
            else None,
            "bound_s": time,
            "bound_tokens_per_s": throughput(tokens, time),
        }
    return result | {
        "tokens_per_s": throughput(tokens, time),
        "bytes": moved,
        "flops": work,
        "intensity_flops_per_byte": work / moved,
    }


def limits(case: Case, pass_: Sequence[Operator]) -> tuple[Q, Q]:
    """Seconds of a pass that compute sets, and seconds that memory traffic sets."""
    if case.lecture:
        return 0, 1
    return shares(pass_, case.rates, case.time_model)


def regime(computing: Q, moving: Q) -> Q:
    """Name the limit that holds more than half of the time; arrays give arrays of names."""
    if is_array(computing, moving):
        import numpy as np

        return np.where(computing > moving, "compute", "memory")
    return "compute" if computing > moving else "memory"
