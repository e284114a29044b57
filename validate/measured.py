"""A preset of what was measured: a device that has none gets an entry that every command takes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..calc.entries import build_machine
from ..calc.hardware import Machine
from ..calc.presets import find_machine
from ..calc.yamlfile import load
from .device import PRESETS

DIGITS = 4
"""Digits of a measured figure."""


def at_ceilings(machine: Machine, ceilings: Mapping[str, Any]) -> Machine:
    """Put measured rates in the place of a machine's own; formats that were not timed have none."""
    flops = {name: found["flops_per_s"] for name, found in ceilings["matmul"].items()}
    return replace(
        machine,
        bandwidth_bytes_per_s=ceilings["read"]["bytes_per_s"],
        flops=flops,
        best_flops={},
    )


def entry_name(identity: Mapping[str, Any]) -> str:
    """Name the entry of a device: measured- and its own name in small letters."""
    plain = re.sub(r"[^a-z0-9.]+", "-", str(identity["name"]).lower()).strip("-")
    return f"measured-{plain or identity['device']}"


def entry_text(identity: Mapping[str, Any], ceilings: Mapping[str, Any], date: str) -> str:
    """Write the YAML entry of a device from its measured ceilings, for --on FILE.

    date: day of the measurement. Figures are rounded to four digits, far below their spread.
    """
    import yaml

    source = {"source": "rooflm validate", "date": date}
    entry: dict[str, Any] = {
        "name": f"{identity['name']}, as measured",
        "kind": "gpu" if identity["device"] == "cuda" else "cpu",
        "driver_bytes": int(identity["memory_bytes"]),
        "bandwidth_bytes_per_s": {"value": _digits(ceilings["read"]["bytes_per_s"]), **source},
        "flops": {
            name: {"value": _digits(found["flops_per_s"]), **source}
            for name, found in ceilings["matmul"].items()
        },
        "notes": [
            f"measured with torch {identity['torch']}: reads by {ceilings['read']['kernel']}",
        ],
    }
    if identity.get("cache_bytes"):
        entry["cache_bytes"] = int(identity["cache_bytes"])
    return yaml.safe_dump({entry_name(identity): entry}, sort_keys=False, allow_unicode=True)


def machine_of(identity: Mapping[str, Any], ceilings: Mapping[str, Any], date: str) -> Machine:
    """Make the machine of a device that has no preset, by way of its entry."""
    name = entry_name(identity)
    return build_machine(name, load(entry_text(identity, ceilings, date), name).under(name))


def find_preset(text: str | None, identity: Mapping[str, Any]) -> Machine | None:
    """Find the preset that a user names, or that of the device; None where it has none."""
    name = PRESETS.get(identity["name"]) if text is None else text
    return None if name is None else find_machine(name)


def _digits(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")
