"""Engines: what they cost beside their kernels, and the constants of one of them on a machine.

engines.yaml holds the engines, hardware.yaml the timings of kernels; benchmarks/fit.py makes both.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from functools import cache
from typing import Any

from .entries import figure_value
from .errors import RooflmError
from .estimate import TILE_ROWS, Constants, Kernel
from .hardware import Machine
from .names import engine_name
from .presets import HOME, find_engine_entry, find_machine, preset_names
from .schema import ENGINE

ENGINES_FILE = HOME / "calc" / "engines.yaml"
KERNELS = ("matmul", "matmul_fp8", "matmul_fp4", "decode", "prefill")
MICRO = 1e-6
FAMILY_ROWS = 8
"""With fewer judged rows on a family of chips, a band is that of all rows of the engine."""


def engine_names() -> list[str]:
    """List the engines in the order of the file: the first that knows a chip is its default."""
    return preset_names(ENGINES_FILE)


@cache
def find_engine(name: str) -> Mapping[str, Any]:
    """Read an engine of the registry; raises `RooflmError` for an unknown one."""
    return find_engine_entry(ENGINES_FILE, name, ENGINE, "unknown engine '{}'")


def find_constants(machine: Machine, engine: str | None = None) -> tuple[Constants | None, str]:
    """Find the constants of an engine on a machine, and why there are none.

    engine: a name of the registry; the first that knows the machine if None.
    """
    if engine is not None:
        engine = engine_name(engine)
        found, why = constants_of(engine, find_engine(engine), machine)
        if found is None and (others := ", ".join(_that_ran(machine))):
            why += f"; engines with an estimate there: {others} (--engine)"
        return found, why
    for name in _that_ran(machine):
        return constants_of(name, find_engine(name), machine)
    return None, f"no published step ran on {machine.name}, or on a chip of its kind"


def _that_ran(machine: Machine) -> Iterator[str]:
    """List the engines that have constants on a machine, in the order of the file."""
    for name in engine_names():
        if constants_of(name, find_engine(name), machine)[0] is not None:
            yield name


def constants_of(
    name: str, engine: Mapping[str, Any], machine: Machine
) -> tuple[Constants | None, str]:
    """Put together the constants of an engine on a machine, and why there are none."""
    if "chips" in engine:
        return _own_kernels(name, engine, machine)
    timed = timed_chip(machine)
    if timed is None:
        return None, f"no kernels were timed on {machine.name}, or on a chip of its kind"
    if not any(fnmatchcase(timed.name, chip) for chip in engine.get("on", ("*",))):
        return None, f"no published step of {engine['name']} ran on the {machine.name}"
    kernels = {
        key.replace("_", " "): _kernel(timed.kernels[key])
        for key in KERNELS if key in timed.kernels
    }  # fmt: skip
    curves: Mapping[str, Any] = timed.kernels.get("all_reduce", {})
    band, where = _band(engine, machine)
    wide, spread = _band(engine, machine, SEVERAL)
    like = "" if timed is machine else f", those of {timed.name} in place of {machine.name}'s"
    told = (
        f"estimate: {engine['name']} ({engine['launch']}), kernels as timed on the chip{like}",
        _band_told(band, where),
    )
    return Constants(
        engine=name,
        kernels=kernels,
        layer_s=_number(engine, "layer_us") * MICRO,
        prefill_layer_s=_micro(engine, "prefill_layer_us"),
        sequence_s=_number(engine, "sequence_us") * MICRO,
        message_s=_number(engine, "message_us") * MICRO,
        formats={k: figure_value(v) for k, v in engine["formats"].items()},
        experts=_number(engine, "experts", 1.0),
        tile_rows=int(_number(engine, "tile_rows", TILE_ROWS)),
        most_batch=engine.get("most_batch"),
        separate_attention=timed.family in engine.get("separate_attention", ()),
        all_reduce={
            int(n): _curve(curve) for n, curve in curves.items() if re.fullmatch("[0-9]{1,9}", n)
        },
        link_bytes_per_s=max(timed.links.values(), default=None),
        band=_pair(band),
        prefill_band=_pair(engine.get("bands", {}).get("prefill", {})),
        several_band=_pair(wide),
        told=told,
        several_told=_band_told(wide, spread),
    ), ""


NEEDED = ("matmul", "decode", "prefill")
"""Classes of kernels without which nothing is estimated."""


def timed_chip(machine: Machine) -> Machine | None:
    """Find the chip whose timings hold for a machine: itself, or the one that it is like."""
    if all(name in machine.kernels for name in NEEDED):
        return machine
    like = machine.kernels.get("like")
    if like is None:
        return None
    try:
        chip = find_machine(str(like))
    except RooflmError as e:
        raise RooflmError(f"{machine.name} is like an {e.what}", "kernels.like", e.fix) from None
    # A chip that is itself like another one has the timings of that.
    return chip if like == machine.name else timed_chip(chip)


def _own_kernels(
    name: str, engine: Mapping[str, Any], machine: Machine
) -> tuple[Constants | None, str]:
    """Put together the constants of an engine whose kernels are its own."""
    kind = chip_kind(name, machine.name) or chip_kind(name, str(machine.kernels.get("like", "")))
    if kind:
        chip = engine["chips"][kind]
        share = chip["memory"]
        attention = min(1.0, share * chip["attention"])
        told = (
            f"estimate: {engine['name']} ({engine['launch']}), constants of {kind}",
            _band_told(chip, kind),
        )
        return Constants(
            engine=name,
            kernels={
                "matmul": Kernel(memory=share, compute=_number(chip, "compute", 1.0)),
                "decode": Kernel(memory=attention),
                "prefill": Kernel(memory=attention, compute=_number(chip, "compute", 1.0)),
            },
            layer_s=_number(chip, "layer_us") * MICRO,
            formats={k: figure_value(v) for k, v in engine["formats"].items()},
            experts=_number(chip, "experts", 1.0),
            tile_rows=int(_number(engine, "tile_rows", TILE_ROWS)),
            most_batch=chip.get("most_batch"),
            band=_pair(chip),
            decode_only="compute" not in chip,
            told=told,
        ), ""
    return None, f"no published step of {engine['name']} ran on the {machine.name}"


def chip_kind(engine: str, chip: str) -> str:
    """Name the kind of chips that one belongs to for an engine; "" where there is none."""
    kinds = find_engine(engine)["chips"].items()
    return next((k for k, c in kinds if any(fnmatchcase(chip, p) for p in c["on"])), "")


def _number(entry: Mapping[str, Any], key: str, usual: Any = 0.0) -> Any:
    value = figure_value(entry.get(key))
    return usual if value is None else value


def _micro(entry: Mapping[str, Any], key: str) -> float | None:
    value = _number(entry, key, None)
    return None if value is None else value * MICRO


def _kernel(entry: Mapping[str, Any]) -> Kernel:
    for share in ("memory", "compute", "small_memory", "wide_memory"):
        if _number(entry, share, 1.0) > 1:
            raise RooflmError(f"a share of the rate is at most 1, not {entry[share]}", share)
    return Kernel(
        start_s=_number(entry, "start_us") * MICRO,
        memory=_number(entry, "memory", 1.0),
        compute=_number(entry, "compute", 1.0),
        small_memory=_number(entry, "small_memory", None),
        small_bytes=_number(entry, "small_bytes"),
        wide_memory=_number(entry, "wide_memory", 1.0),
        short_tokens=_number(entry, "short_tokens"),
    )


def _curve(curve: Mapping[str, Any]) -> tuple[tuple[float, float], ...]:
    try:
        points = sorted((float(moved), float(figure_value(us))) for moved, us in curve.items())
    except ValueError:
        points = []
    if len(points) < 2 or points[0][0] <= 0:
        what = "an all-reduce needs two sizes in bytes, each with microseconds"
        raise RooflmError(what, "kernels.all_reduce")
    return tuple((moved, us * MICRO) for moved, us in points)


SEVERAL = ", several devices"
"""Ending of the names of bands of steps on several devices."""


def _band(
    engine: Mapping[str, Any], machine: Machine, ending: str = ""
) -> tuple[Mapping[str, Any], str]:
    """Choose the band of the machine's family, or of all rows where those are few."""
    bands = engine.get("bands", {})
    own = bands.get(f"{machine.family}{ending}", {})
    if own.get("rows", 0) >= FAMILY_ROWS:
        return own, f"{machine.family}{ending}"
    return bands.get(f"all{ending}", {}), f"all chips{ending}"


def _pair(band: Mapping[str, Any]) -> tuple[float, float] | None:
    return (float(band["low"]), float(band["high"])) if "low" in band else None


def _band_told(band: Mapping[str, Any], where: str) -> str:
    if "low" not in band:
        return "band: none, too few published steps"
    low, high = (f"{100 * (band[end] - 1):+.0f}" for end in ("low", "high"))
    return (
        f"band: {low} to {high} % held 88 % of {band['rows']} published steps ({where}) that the "
        "constants had not seen, and three of four of those of other models than its own"
    )
