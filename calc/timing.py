"""How long a ledger takes on a machine: one bound, and the simpler models around it.

bandwidth <= overlap <= operator <= serial, always. None contains kernel launches, communication
or an efficiency below 1: they are bounds of a perfect implementation, not estimates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from .passes import Operator
from .readings import Q, formula, is_zero, maximum, total

TimeModel = Literal["bandwidth", "overlap", "operator", "serial"]
TIME_MODELS: tuple[TimeModel, ...] = get_args(TimeModel)


@dataclass(frozen=True)
class Rates:
    """What a machine does in a second."""

    flops_per_s: Q
    """Dense peak of the format that computes; None where it is not known [FLOP/s]."""
    bytes_per_s: Q
    """Memory bandwidth [B/s]."""
    others: Mapping[str, Q] = field(default_factory=dict[str, Q])
    """Peaks of formats that multiply weights of fewer bits, by format [FLOP/s]."""
    host_bytes_per_s: Q = None
    """Bandwidth of the bus to host memory, one direction; None where nothing goes over it [B/s]."""

    def peak(self, compute: str) -> Q:
        """Peak that does the products of an operator; the plain one where a chip has no other."""
        return self.others.get(compute, self.flops_per_s)


@formula
def bandwidth_time(bytes: Q, bytes_per_s: Q) -> Q:
    """Seconds to move bytes at full bandwidth.

    bytes: traffic [B]; bytes_per_s: bandwidth [B/s]. Returns [s]. The lecture's time model.

    >>> round(bandwidth_time(26869760000, 3.35e12), 6)
    0.008021
    """
    return bytes / bytes_per_s


@formula
def compute_time(flops: Q, flops_per_s: Q) -> Q:
    """Seconds to compute at the dense peak.

    flops: work [FLOP]; flops_per_s: peak [FLOP/s]. Returns [s].

    >>> compute_time(989e9, 989e12)
    0.001
    """
    return flops / flops_per_s


@formula
def throughput(tokens: Q, seconds: Q) -> Q:
    """Tokens of all sequences in a second.

    tokens: sequences times tokens each [tokens]; seconds: time of the step [s]. Returns [tokens/s].

    >>> throughput(64, 0.032)
    2000.0
    """
    return tokens / seconds


def flops(ledger: Sequence[Operator]) -> Q:
    """Add up the arithmetic of a pass [FLOP]."""
    return total(op.count * op.flops for op in ledger)


def compulsory_bytes(ledger: Sequence[Operator]) -> Q:
    """Add up the bytes of a pass that no fusion avoids [B]."""
    return total(op.count * op.compulsory_bytes for op in ledger)


def step_time(ledger: Sequence[Operator], rates: Rates, model: TimeModel = "operator") -> Q:
    """Time of a pass [s].

    bandwidth: compulsory bytes at full bandwidth. overlap: the larger of that and all FLOPs at
    peak; nothing is faster. operator: the sum over operators of the larger of the two, since
    operators run one after the other; the bound. serial: the sum of both, nothing overlapped.
    """
    match model:
        case "bandwidth":
            return moving_time(ledger, rates)
        case "overlap":
            return maximum(moving_time(ledger, rates), computing_time(ledger, rates))
        case "operator":
            return total(op.count * operator_time(op, rates) for op in ledger)
        case "serial":
            moving = moving_time(ledger, rates, overlapped=False)
            return total((moving, computing_time(ledger, rates), sending_time(ledger)))


def moving_time(ledger: Sequence[Operator], rates: Rates, overlapped: bool = True) -> Q:
    """Time of the compulsory bytes of a pass [s].

    What lies in host memory goes over the host link, at the same time as memory traffic and both
    ways at once; overlapped=False adds all up.
    """
    away = [op for op in ledger if op.hosted]
    if not away:
        return bandwidth_time(compulsory_bytes(ledger), rates.bytes_per_s)
    here = compulsory_bytes([op for op in ledger if not op.hosted])
    memory = bandwidth_time(here, rates.bytes_per_s)
    if not overlapped:
        return memory + bandwidth_time(compulsory_bytes(away), rates.host_bytes_per_s)
    inward = total(op.count * (op.weight_bytes + op.read_bytes) for op in away)
    outward = total(op.count * op.write_bytes for op in away)
    return maximum(memory, bandwidth_time(_busier(inward, outward), rates.host_bytes_per_s))


def operator_moving_time(op: Operator, rates: Rates) -> Q:
    """Time of the compulsory bytes of one run of an operator [s]."""
    if not op.hosted:
        return bandwidth_time(op.compulsory_bytes, rates.bytes_per_s)
    moved = _busier(op.weight_bytes + op.read_bytes, op.write_bytes)
    return bandwidth_time(moved, rates.host_bytes_per_s)


def _busier(inward: Q, outward: Q) -> Q:
    """Bytes of the busier direction of a link; no max in a formula with one direction [B]."""
    return inward if is_zero(outward) else outward if is_zero(inward) else maximum(inward, outward)


def sending_time(ledger: Sequence[Operator]) -> Q:
    """Time that a pass spends on messages to other devices [s]."""
    return total(op.count * op.seconds for op in ledger)


def computing_time(ledger: Sequence[Operator], rates: Rates) -> Q:
    """Time that all arithmetic of a pass takes, each operator at the peak of its format [s]."""
    work: dict[str, list[Operator]] = {}
    for op in ledger:
        work.setdefault(op.compute if op.compute in rates.others else "", []).append(op)
    return total(compute_time(flops(ops), rates.peak(compute)) for compute, ops in work.items())


def operator_time(op: Operator, rates: Rates) -> Q:
    """Bound of one run of an operator: the larger of its two times [s]."""
    if not is_zero(op.seconds):
        return op.seconds
    return maximum(operator_moving_time(op, rates), compute_time(op.flops, rates.peak(op.compute)))


def shares(ledger: Sequence[Operator], rates: Rates, model: TimeModel = "operator") -> tuple[Q, Q]:
    """Split the time of a pass into what compute sets and what memory traffic sets [s].

    operator: the times of the operators that each limits. overlap and serial: both totals.
    bandwidth: traffic alone.
    """
    memory = moving_time(ledger, rates, overlapped=model != "serial")
    if model == "bandwidth":
        return 0 * memory, memory
    if model != "operator":
        return computing_time(ledger, rates), memory
    computing = total(_computing_time(op, rates) for op in ledger)
    return computing, step_time(ledger, rates) - computing


def _computing_time(op: Operator, rates: Rates) -> Q:
    compute = op.count * compute_time(op.flops, rates.peak(op.compute))
    memory = op.count * operator_moving_time(op, rates)
    return (compute > memory) * compute
