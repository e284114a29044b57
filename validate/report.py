"""A run as documents: a Markdown report, a calibration, an entry of the device."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..calc.errors import RooflmError
from ..calc.output import to_markdown
from .measured import entry_text
from .tables import (
    ceilings_table,
    checks_table,
    parts_table,
    percent,
    steps_table,
    summary_told,
    worst,
)

STEPS = (
    "Predictions are errors: predicted / measured - 1. The limit of a decode step is the measured "
    "read rate, that of a prefill the measured rate of products."
)


def report(answer: Mapping[str, Any]) -> str:
    """Write a run as Markdown: the device, its ceilings, every step, the worst of them by part."""
    who = answer["device"]
    facts = [
        f"device: {who['name']}, {who['memory_bytes'] / 1e9:,.1f} GB, last-level cache "
        f"{(who['cache_bytes'] or 0) / 1e6:,.1f} MB",
        f"software: torch {who['torch']}, Python {who['python']}, {who['system']}",
        f"date: {answer['date']}; preset: {answer.get('preset') or 'none, its own ceilings'}",
        "state: "
        + ", ".join(
            f"{key} {value:,.4g}" for key, value in answer.get("state", {}).items() if value
        ),
    ]
    lines = ["# A run of rooflm validate", "", *(f"- {fact}" for fact in facts), ""]
    lines += [f"- {line}" for line in (*summary_told(answer), *answer["assumptions"])]
    if "read" in answer["ceilings"]:
        lines += ["", "## Ceilings", "", to_markdown(ceilings_table(answer))]
    lines += [
        "",
        "## Steps",
        "",
        STEPS,
        "",
    ]
    lines += [to_markdown(steps_table(answer["rows"])), ""]
    furthest = worst(answer["rows"])
    if furthest is not None:
        error = percent(furthest["ceiling_error"])
        lines += [f"## The step that is furthest from its bound ({error}), by part", ""]
        lines += [to_markdown(parts_table(furthest)), ""]
        lines += ["Parts are waited for one by one, which costs a little more than the step.", ""]
    if answer["checks"]:
        lines += ["## Is it the right computation", "", to_markdown(checks_table(answer["checks"]))]
    return "\n".join(lines).rstrip() + "\n"


def calibration_text(answer: Mapping[str, Any]) -> str:
    """Write the constants of a run for --calibration; raises `RooflmError` where it has none.

    A calibration is of one model in one format: of several, one has to be chosen.
    """
    found = [c for c in answer["calibrations"] if "constants" in c]
    if not found:
        lacks = "; ".join(str(c["lacks"]) for c in answer["calibrations"]) or "no step was measured"
        raise RooflmError(f"there is no calibration: {lacks}", "--save-calibration")
    if len(found) > 1:
        names = ", ".join(f"{c['model']} in {'+'.join(c['weights'])}" for c in found)
        fix = "Run one model in one format, or name them one by one."
        raise RooflmError(f"the run holds several calibrations: {names}", "--save-calibration", fix)
    from ..calc.calibrate import calibration_text as text

    return text(found[0]).replace("`rooflm calibrate`", "`rooflm validate`")


def hardware_text(answer: Mapping[str, Any]) -> str:
    """Write the entry of the measured device; raises `RooflmError` where nothing was measured."""
    if "read" not in answer["ceilings"]:
        raise RooflmError("no ceiling was measured", "--save-hardware")
    return entry_text(answer["device"], answer["ceilings"], answer["date"])
