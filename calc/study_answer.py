"""What a study answers: its rows, what identifies them, what was expected, what is assumed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from .asked import case_of, group
from .cost import Paid, economics_of
from .cost import told as costs_told
from .errors import Exit, RooflmError
from .expectations import judge
from .explain import unit_of
from .labels import has_unit
from .options import COSTED
from .plain import is_list
from .study import (
    GAPPED,
    PRICED,
    Block,
    Ready,
    blocks,
    combinations,
    command_line,
    outer_axes,
    words_of,
)
from .sweep import assumptions as assumed
from .typed import parse_costs

MOST_HELD = 10**5
"""Rows that are held at once: for a table, JSON, figures and frozen numbers."""

Tell = Callable[[int, int], None]


def interrupted(what: str, fix: str = "") -> RooflmError:
    """Say what Ctrl-C left of a study."""
    return RooflmError(what, fix=fix, code=Exit.INTERRUPTED)


def unfinished(ready: Ready, rows: Sequence[Any], fix: str = "") -> RooflmError:
    """Say how many rows of a study Ctrl-C left."""
    return interrupted(f"interrupted: {len(rows):,} of {ready.points:,} rows were finished", fix)


def rows_of(ready: Ready, tell: Tell) -> tuple[list[dict[str, Any]], bool]:
    """Work all rows out; those that were finished, and whether that is all of them."""
    if ready.points > MOST_HELD:
        what = f"{ready.points:,} rows are more than the {MOST_HELD:,} that are held at once"
        raise RooflmError(what, "--output", "Write them: --output rows.csv.")
    rows: list[dict[str, Any]] = []
    try:
        for points, work in blocks(ready, every=True):
            block = work()
            rows += to_rows(block)
            tell(len(rows), max(ready.points, len(rows) + points))
        tell(len(rows), len(rows))
    except KeyboardInterrupt:
        return rows, False
    return rows, True


def to_rows(block: Block) -> list[dict[str, Any]]:
    """Turn columns into rows of plain numbers and words."""
    lists = [plain(column) for column in block.values()]
    return [dict(zip(block, values, strict=True)) for values in zip(*lists, strict=True)]


def plain(column: Any) -> list[Any]:
    """Turn a column into plain numbers, truths and words; nan is nothing."""
    values: list[Any] = column.tolist() if hasattr(column, "tolist") else column
    if getattr(getattr(column, "dtype", None), "kind", "O") == "f":
        import numpy as np

        if np.isnan(column).any():
            values = [None if v != v else v for v in values]
    return values


def answer(ready: Ready, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Lay a study out by the keys of the contract."""
    study, probes = ready.study, ready.probes
    names = {
        key: list(dict.fromkeys(
            name for p in probes.values() for name in _several(p.answer.get(key))
        ))
        for key in ("model", "hardware", "draft", "acceptance")
    }  # fmt: skip
    for axis, key in (("model", "model"), ("on", "hardware")):
        names[key] = list(map(str, study.axes.get(axis, names[key])))
    return {
        "schema": "rooflm.study/1",
        "study": Path(study.path).name,
        "title": study.title,
        "says": study.says,
        "command": study.command,
        "model": names["model"],
        "hardware": names["hardware"],
        # One draft, or one acceptance, of all variants.
        "draft": names["draft"][0] if len(names["draft"]) == 1 else None,
        "acceptance": names["acceptance"][0] if len(names["acceptance"]) == 1 else None,
        "axes": list(ready.keys),
        "grid": {key: list(values) for key, values in ready.keys.items()},
        "units": {name: _unit(ready, name) for name in ready.columns if name not in ready.keys},
        "variants": [
            {
                "variant": name,
                "changes": dict(study.variants[name]),
                "command": command_line(study, name),
                "assumptions": list(probes[name].answer.get("assumptions", ())),
            }
            for name in study.variants
        ],
        "one_at_a_time": outer_axes(study),
        "derive": {name: e.text for name, e in study.derive.items()},
        "facts": {
            name: {"label": f.label, "unit": f.unit, "source": f.source}
            for name, f in study.facts.items()
        },
        "rows": list(rows),
        "expectations": judge(ready.expect, rows, list(ready.keys), ready.shared_keys),
        "assumptions": assumptions(ready),
    }


def expecting_nothing(ready: Ready) -> Ready:
    """Leave out what is expected, of a study of which not all rows are there."""
    return replace(ready, expect=())


def _several(value: Any) -> list[Any]:
    return [] if value is None else value if is_list(value) else [value]


def _unit(ready: Ready, name: str) -> str | None:
    """Tell the unit of a column; None of words, and of what arithmetic made."""
    if name in ready.study.facts:
        return ready.study.facts[name].unit
    if name in ready.study.derive:
        return unit_of(name) if has_unit(name) else None
    row = next(iter(ready.probes.values())).rows[0]
    if isinstance(row.get(name), str | bool) or name in ("fits", "regime", "basis", "reason"):
        return None
    return unit_of(name) if unit_of(name) != "parameters" or "param" in name else None


def assumptions(ready: Ready) -> list[str]:
    """Say what a study takes for granted: what holds for all variants once, the rest by name."""
    told = _assumed(ready)
    lines: dict[str, list[str]] = {}
    for label, own in told.items():
        for line in own:
            lines.setdefault(line, []).append(label)
    said = [line for line, labels in lines.items() if len(labels) == len(told)]
    said += [
        f"{', '.join(labels)}: {line}" for line, labels in lines.items() if len(labels) < len(told)
    ]
    for name, fact in ready.study.facts.items():
        said.append(f"{name}: not computed but given; {fact.source}")
    return said


MOST_ASSUMED = 24
"""Cases whose assumptions are told; of more than that, those of the first."""


def _assumed(ready: Ready) -> dict[str, dict[str, None]]:
    """List what is assumed of each variant, and of each model and machine along an axis."""
    study = ready.study
    told = {
        name: dict.fromkeys(probe.answer.get("assumptions", ()))
        for name, probe in ready.probes.items()
    }
    along = [axis for axis in GAPPED if axis in study.axes]
    cases: dict[str, dict[str, Any]] = {}
    for variant in study.variants:
        for combo in combinations(study) if along else ():
            named = [str(combo[axis]) for axis in along]
            label = ", ".join([*([variant] if len(study.variants) > 1 else []), *named])
            cases.setdefault(label, words_of(study, variant, combo))
    if not cases or len(cases) > MOST_ASSUMED or study.command != "sweep":
        return told
    phase = next(iter(ready.probes.values())).words.get("phase") or "decode"
    contexts = [v for v in ready.keys.get("context_tokens", ()) if isinstance(v, int)]
    found: dict[str, dict[str, None]] = {}
    for label, words in cases.items():
        try:
            case = case_of(words)
            lines = assumed(case, phase, contexts[:1])
            if any(name in PRICED for name in ready.measured):
                paid = parse_costs({"cost": True, **group(words, COSTED)}) or Paid()
                lines += costs_told([economics_of(case.machine, paid)], phase, ())
            found[label] = dict.fromkeys(lines)
        except RooflmError as e:
            found[label] = {f"no figures: {e}": None}
    return found
