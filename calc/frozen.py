"""Numbers of a study that were frozen, and what moved since."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import RooflmError
from .expectations import EXACT, at, judge
from .output import write_file
from .plain import is_list, is_map, is_number
from .study import Ready, prepare
from .study_answer import Tell, rows_of, unfinished
from .study_file import read_study
from .study_inputs import inputs

SCHEMA = "rooflm.frozen/1"
LARGEST = 1e300
"""Magnitude beyond which a frozen figure is refused: differences of such ones overflow."""


def frozen_path(study: str) -> Path:
    """Name the file of a study's frozen numbers: beside it."""
    return Path(study).with_suffix(".frozen.json")


def freeze(ready: Ready, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write the rows of a study and what they rest on; each row a line, for a readable diff."""
    path = frozen_path(ready.study.path)
    kept = [name for name in ready.columns if name != "reason"]
    lines = [json.dumps([row.get(name) for name in kept]) for row in rows]
    given = [f"{json.dumps(k)}: {json.dumps(v, default=str)}" for k, v in inputs(ready).items()]
    text = (
        f'{{\n"schema": "{SCHEMA}",\n"columns": {json.dumps(kept)},\n"rows": [\n'
        + ",\n".join(lines)
        + '\n],\n"inputs": {\n'
        + ",\n".join(given)
        + "\n}\n}\n"
    )
    write_file(text.encode(), str(path), "--freeze")
    return path


def read_frozen(study: str) -> dict[str, Any] | None:
    """Read the frozen numbers of a study; None where there are none."""
    path = frozen_path(study)
    if not path.is_file():
        return None
    try:
        found = json.loads(
            path.read_text("utf-8"), parse_int=_figure, parse_float=_figure, parse_constant=_figure
        )
    except (OSError, ValueError, RecursionError):
        found = None
    whole = is_map(found) and all(k in found for k in ("columns", "rows", "inputs"))
    if not whole or not is_map(found) or found.get("schema") != SCHEMA:
        fix = "Make it again with --freeze."
        raise RooflmError("this is no file of frozen numbers", str(path), fix)
    named = is_list(found["columns"]) and all(isinstance(c, str) for c in found["columns"])
    if not named or not is_list(found["rows"]) or not is_map(found["inputs"]):
        raise RooflmError("this is no file of frozen numbers", str(path), "--freeze again.")
    width = len(found["columns"])
    if any(not is_list(row) or len(row) != width for row in found["rows"]):
        raise RooflmError("a row has not as many values as columns", str(path), "--freeze again.")
    return found


def _figure(text: str) -> float:
    value = float(text)
    if not abs(value) < LARGEST:
        raise ValueError("beyond all that is measured")
    return value if set(text) & set(".eE") else int(text)


def moved(
    ready: Ready, rows: Sequence[Mapping[str, Any]], frozen: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """List what differs from the frozen numbers by more than the tolerance, row by row.

    A number may move by EXACT, or by what the study tolerates of its quantity, relative to what it
    was; words, truths and nothing may not.
    """
    keys, tolerance = list(ready.keys), ready.study.tolerance
    old_rows = [dict(zip(frozen["columns"], values, strict=True)) for values in frozen["rows"]]
    before: dict[str, Mapping[str, Any]] = {_name(row, keys): row for row in old_rows}
    now: dict[str, Mapping[str, Any]] = {_name(row, keys): row for row in rows}
    found: list[dict[str, Any]] = []
    for name, row in now.items():
        at = {k: row.get(k) for k in keys}
        if name not in before:
            found.append(_change(at, "row", None, "new"))
            continue
        old = before[name]
        for quantity in ready.columns:
            if quantity in keys or quantity == "reason":
                continue
            was, value = old.get(quantity), row.get(quantity)
            if not _same(was, value, tolerance.get(quantity, EXACT)):
                found.append(_change(at, quantity, was, value))
    for name, row in before.items():
        if name not in now:
            found.append(_change({k: row.get(k) for k in keys}, "row", "there", None))
    gone = [c for c in frozen["columns"] if c not in (*ready.columns, *keys)]
    found += [_change({}, column, "measured", None) for column in gone]
    return found


def _name(row: Mapping[str, Any], keys: Sequence[str]) -> str:
    return json.dumps([row.get(k) for k in keys], default=str)


def _same(was: Any, now: Any, tolerance: float) -> bool:
    numbers = is_number(was) and is_number(now)
    if not numbers:
        return type(was) is type(now) and was == now
    return abs(now - was) <= tolerance * abs(was)


def _change(at: Mapping[str, Any], quantity: str, was: Any, now: Any) -> dict[str, Any]:
    numbers = is_number(was) and is_number(now)
    share = now / was - 1 if numbers and was else None
    return {"at": dict(at), "quantity": quantity, "was": was, "now": now, "change": share}


def changed_inputs(ready: Ready, frozen: Mapping[str, Any]) -> list[dict[str, Any]]:
    """List the inputs that differ from those that the frozen numbers rest on."""
    # Through JSON, as the frozen ones went: keys and numbers are then alike.
    now: dict[str, Any] = json.loads(json.dumps(inputs(ready), default=str))
    before: Mapping[str, Any] = frozen["inputs"]
    return [
        {"input": name, "was": before.get(name), "now": now.get(name)}
        for name in dict.fromkeys((*before, *now))
        if before.get(name) != now.get(name)
    ]


def freeze_study(path: str, tell: Tell) -> Path:
    """Work a study out and freeze its numbers; returns the file."""
    ready, rows = _worked_out(path, tell)
    return freeze(ready, rows)


def check_study(path: str, tell: Tell) -> dict[str, Any]:
    """Hold a study against what it expects and against its frozen numbers."""
    ready, rows = _worked_out(path, tell)
    frozen = read_frozen(path)
    if frozen is None and not ready.expect:
        fix = "Write expect: into it, or freeze its numbers with --freeze."
        raise RooflmError("there is nothing to check", path, fix)
    verdicts = judge(ready.expect, rows, list(ready.keys), ready.shared_keys)
    changes = [] if frozen is None else moved(ready, rows, frozen)
    counted = 0
    if frozen is not None:
        numbers = [c for c in frozen["columns"] if c not in ready.keys]
        counted = len(numbers) * len(frozen["rows"])
    return {
        "study": path,
        "holds": all(v["holds"] for v in verdicts) and not changes,
        "expectations": verdicts,
        "frozen": counted,
        "moved": changes,
        "inputs": [] if frozen is None or not changes else changed_inputs(ready, frozen),
    }


def _worked_out(path: str, tell: Tell) -> tuple[Ready, list[dict[str, Any]]]:
    ready = prepare(read_study(path))
    rows, whole = rows_of(ready, tell)
    if not whole:
        raise unfinished(ready, rows)
    return ready, rows


def junit_of(checked: Sequence[Mapping[str, Any]]) -> str:
    """Write what was checked as JUnit XML: a suite a study, a case an expectation.

    All frozen numbers of a study are one case, which lists those that moved.
    """
    from xml.etree import ElementTree as ET

    root = ET.Element("testsuites")
    for answer in checked:
        name, changes = answer["study"], answer["moved"]
        verdicts, counted = answer["expectations"], answer["frozen"]
        failed = sum(not v["holds"] for v in verdicts) + bool(changes)
        total = len(verdicts) + bool(counted)
        suite = ET.SubElement(root, "testsuite", name=name, tests=str(total), failures=str(failed))
        for verdict in verdicts:
            title = f"{verdict['quantity']} {verdict['expected']} ({at(verdict['at'])})"
            case = ET.SubElement(suite, "testcase", classname=name, name=title)
            if not verdict["holds"]:
                said = f"expected {verdict['expected']}, found {verdict['value']}"
                ET.SubElement(case, "failure", message=said).text = f"{said}\n{verdict['where']}"
        if counted:
            title = f"{counted:,} frozen numbers"
            case = ET.SubElement(suite, "testcase", classname=name, name=title)
            if changes:
                lines = [
                    f"{at(c['at'])} {c['quantity']}: {c['was']} -> {c['now']}" for c in changes
                ]
                failure = ET.SubElement(case, "failure", message=f"{len(changes):,} moved")
                failure.text = "\n".join(lines)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
