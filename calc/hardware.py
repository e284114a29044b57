"""A machine: one device of an inference server, with its figures and where they come from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .errors import RooflmError
from .formats import FORMATS
from .timing import Rates


@dataclass(frozen=True)
class Machine:
    """One device. What it lacks, or what nobody published, is absent."""

    name: str
    full_name: str
    kind: str
    bandwidth_bytes_per_s: float
    label_bytes: int | None = None
    """Nominal capacity: the number on the box times 10**9 [B]."""
    driver_bytes: int | None = None
    """Total that the driver reports [B]."""
    flops: Mapping[str, float] = field(default_factory=dict[str, float])
    """Dense datasheet peak of each format [FLOP/s]."""
    best_flops: Mapping[str, float] = field(default_factory=dict[str, float])
    """Rates that somebody measured above the datasheet [FLOP/s]."""
    links: Mapping[str, float] = field(default_factory=dict[str, float])
    """Links to other devices, one direction of one device [B/s]."""
    bridges: Mapping[str, int] = field(default_factory=dict[str, int])
    """How many devices a link joins, where they are not all of a node [1]."""
    pairs: Mapping[str, float] = field(default_factory=dict[str, float])
    """Bandwidth of a link to one other device, where each pair has links of its own [B/s]."""
    price_usd_per_hour: float | None = None
    price_date: str = ""
    power_w: float | None = None
    """Board power, at its cap [W]."""
    family: str = ""
    """Architecture."""
    vendor: str = ""
    """Maker."""
    kernels: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What kernels reach on it by class, or `like`: the chip whose timings hold for it."""
    scaled_by: str = ""
    """Which figures are not its own, in words."""


SCALED = ("bandwidth", "compute", "capacity", "link")
"""Figures of a machine that may be scaled."""


def scaled(machine: Machine, factors: Mapping[str, float]) -> Machine:
    """Make a machine that does not exist: some figures times a factor, the rest as it was."""

    def times(rates: Mapping[str, float], figure: str) -> dict[str, float]:
        return {name: rate * factors.get(figure, 1.0) for name, rate in rates.items()}

    # All-reduces were timed over the links as they are.
    timed = {k: v for k, v in machine.kernels.items() if k != "all_reduce"}

    def bytes_of(held: int | None) -> int | None:
        return None if held is None else round(held * factors.get("capacity", 1.0))

    return replace(
        machine,
        bandwidth_bytes_per_s=machine.bandwidth_bytes_per_s * factors.get("bandwidth", 1.0),
        flops=times(machine.flops, "compute"),
        best_flops=times(machine.best_flops, "compute"),
        links=times(machine.links, "link"),
        pairs=times(machine.pairs, "link"),
        kernels=machine.kernels if factors.get("link", 1.0) == 1 else timed,
        label_bytes=bytes_of(machine.label_bytes),
        driver_bytes=bytes_of(machine.driver_bytes),
        scaled_by=", ".join(f"{figure} x {factor:g}" for figure, factor in factors.items()),
    )


def bound_flops(machine: Machine, compute: str) -> float:
    """Rate that a bound may use: the dense datasheet peak, or a measured one above it [FLOP/s].

    Raises `RooflmError` where the machine lacks the format: nothing is put in its place.
    """
    peaks = [m[compute] for m in (machine.flops, machine.best_flops) if compute in m]
    if peaks:
        return max(peaks)
    known = [f for f in machine.flops if f in FORMATS]
    if known or machine.flops:
        what = f"{machine.name} has no {compute} rate"
        fix = "--time-model bandwidth counts memory traffic alone."
        if {*known} & {"bf16", "fp16"}:
            fix = f"Choose --weights {' or '.join(known)}, or --time-model bandwidth."
    else:
        what = f"no compute rate of {machine.name} is known, so compute time cannot be bounded"
        fix = "Use --time-model bandwidth, which counts memory traffic alone."
    raise RooflmError(what, "--on", fix)


def rates(machine: Machine, compute: str, needed: bool = True, others: Iterable[str] = ()) -> Rates:
    """Rates of a machine for one compute format, as `bound_flops` has them.

    Where the compute rate is not `needed`, a machine without one has None. others: formats that
    multiply weights of fewer bits; those that the machine lacks are left out, so that such
    weights are expanded and multiplied in the first format.
    """
    lacks = compute not in machine.flops and compute not in machine.best_flops
    peak = None if lacks and not needed else bound_flops(machine, compute)
    has = {*machine.flops, *machine.best_flops}
    own = {other: bound_flops(machine, other) for other in others if other in has}
    return Rates(peak, machine.bandwidth_bytes_per_s, own)


def natural_format(machine: Machine) -> str:
    """Choose the 16-bit format that a machine computes: bf16, or fp16 where it has only that."""
    known = {*machine.flops, *machine.best_flops}
    return "fp16" if "fp16" in known and "bf16" not in known else "bf16"


def capacity(machine: Machine, nominal: bool = False) -> tuple[int, str]:
    """Capacity that decides what fits [B], and which figure it is: "driver", "nominal".

    The driver's figure decides where it is known. `nominal=True` is the lecture's convention.
    Raises `RooflmError` where the machine has no such figure.
    """
    if not nominal and machine.driver_bytes is not None:
        return machine.driver_bytes, "driver"
    if machine.label_bytes is not None:
        return machine.label_bytes, "nominal"
    if machine.driver_bytes is not None:
        raise RooflmError(f"{machine.name} has no nominal capacity", "--accounting lecture")
    fix = "Say how much memory there is: --capacity 128GiB."
    raise RooflmError(f"{machine.name} has no capacity of its own", "--on", fix)
