"""What a study answers: its rows held for people and figures, or written as they are made."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import io
import itertools
import json
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from .asked import case_of, group
from .cost import Paid, economics_of
from .cost import told as costs_told
from .errors import Exit, RooflmError
from .expectations import judge
from .explain import unit_of
from .labels import has_unit
from .options import COSTED
from .plain import is_list, is_map
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
PARTS = ".part"

Tell = Callable[[int, int], None]


def interrupted(what: str, fix: str = "") -> RooflmError:
    """Say what Ctrl-C left of a study."""
    return RooflmError(what, fix=fix, code=Exit.INTERRUPTED)


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
        for key in ("model", "hardware")
    }  # fmt: skip
    return {
        "schema": "rooflm.study/1",
        "study": Path(study.path).name,
        "title": study.title,
        "says": study.says,
        "command": study.command,
        "model": names["model"],
        "hardware": names["hardware"],
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
        "expectations": judge(ready.expect, rows, list(ready.keys)),
        "assumptions": assumptions(ready),
    }


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


def write_csv(ready: Ready, path: str | None, resume: bool, tell: Tell) -> int:
    """Write rows as they are made: to a file whole or not at all, or to stdout.

    An interrupt keeps what was finished in a file beside it, and `resume` goes on from there.
    Returns how many rows there are.
    """
    if path is None or path == "-":
        import sys

        if resume:
            raise RooflmError("stdout cannot be gone on with", "--resume", "Say --output rows.csv.")
        try:
            return _write_rows(ready, sys.stdout, 0, tell)
        except KeyboardInterrupt:
            raise interrupted("interrupted; the rows that were finished are printed") from None
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        # A device or a pipe takes rows as they come, and keeps none.
        with _writing(path), target.open("w", encoding="utf-8", newline="") as stream:
            return _write_rows(ready, stream, 0, tell)
    _check_writable(target, path)
    part = part_of(ready, str(target))
    done = _finished(part, path) if resume else 0
    with _writing(path):
        file = part.open("r+" if done else "w", encoding="utf-8", newline="")
    with file:
        if done:
            file.seek(0, io.SEEK_END)
        try:
            with _writing(path):
                rows = _write_rows(ready, file, done, tell)
        except BaseException as e:
            file.flush()
            _interrupted(e, part, path, ready)
            raise
    with _writing(path):
        os.replace(part, target)
    return rows


def _check_writable(target: Path, path: str) -> None:
    """Refuse to put a file in the place of one that is read-only, or of what is no file."""
    why = None
    if target.exists() and not target.is_file():
        why = "it is no file"
    elif target.exists() and not os.access(target, os.W_OK):
        why = "the file is read-only"
    if why is not None:
        raise RooflmError(f"cannot write the output: {why}", f"--output {path}")


def _interrupted(error: BaseException, part: Path, path: str, ready: Ready) -> None:
    """Say what an interrupt left, and how to go on; other errors leave nothing."""
    if not isinstance(error, KeyboardInterrupt):
        part.unlink(missing_ok=True)
        return
    rows = max(0, _lines(part) - 1)
    what = f"interrupted: {rows:,} of {ready.points:,} rows are kept in {part}"
    fix = f"Go on with: rooflm study {ready.study.path} --output {path} --resume"
    raise interrupted(what, fix) from None


@contextlib.contextmanager
def _writing(path: str) -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise RooflmError(f"cannot write the output: {reason}", f"--output {path}") from None


def part_of(ready: Ready, path: str) -> Path:
    """Name the file that holds the rows of an unfinished study: by its content and inputs."""
    told = json.dumps([ready.study.text.value, ready.columns, inputs(ready)], default=str)
    return Path(f"{path}.{hashlib.sha256(told.encode()).hexdigest()[:12]}{PARTS}")


def _finished(part: Path, path: str) -> int:
    """Count the rows that are finished, and cut off one that is not."""
    if not part.is_file():
        others = sorted(Path(path).parent.glob(f"{Path(path).name}.*{PARTS}"))
        what = "nothing of this study as it is now is kept"
        fix = f"{others[0]} is of another state of it." if others else "Leave --resume out."
        raise RooflmError(what, "--resume", fix)
    with part.open("rb+") as file:
        end = 0
        for chunk in iter(lambda: file.read(2**20), b""):
            last = chunk.rfind(b"\n")
            if last >= 0:
                end = file.tell() - len(chunk) + last + 1
        file.truncate(end)
    return _lines(part)


def _lines(part: Path) -> int:
    with part.open("rb") as file:
        return sum(chunk.count(b"\n") for chunk in iter(lambda: file.read(2**20), b""))


def _write_rows(ready: Ready, file: Any, done: int, tell: Tell) -> int:
    """Write the head and the rows after the first `done` lines."""
    writer = csv.writer(file, lineterminator="\n")
    if not done:
        writer.writerow(ready.columns)
    skip, rows = max(0, done - 1), 0
    for points, work in blocks(ready):
        if skip >= rows + points:
            rows += points
            continue
        block = work()
        lists = [_written(column) for column in block.values()]
        size = len(lists[0])
        fresh = zip(*lists, strict=True)
        writer.writerows(itertools.islice(fresh, max(0, skip - rows), None))
        rows += size
        tell(rows, max(ready.points, rows))
    tell(rows, rows)
    return rows


def _written(column: Any) -> list[Any]:
    """Turn a column into what CSV holds: truths in small letters, nothing for nothing."""
    values = plain(column)
    if any(v is True or v is False for v in itertools.islice(values, 2)):
        return ["" if v is None else "true" if v else "false" for v in values]
    return values


def write_parquet(ready: Ready, path: str, tell: Tell) -> int:
    """Write rows as Parquet, a group of rows a block; an interrupt keeps the finished groups."""
    try:
        # pyarrow has no types that pyright could follow.
        pa: Any = importlib.import_module("pyarrow")
        pq: Any = importlib.import_module("pyarrow.parquet")
    except ImportError:
        fix = "pip install 'rooflm[parquet]', or write --output rows.csv."
        raise RooflmError("Parquet needs pyarrow", "--output", fix, Exit.MISSING) from None
    target = Path(os.path.realpath(path))
    _check_writable(target, path)
    part = Path(f"{target}{PARTS}")
    writer, rows = None, 0
    kinds = _kinds(ready)
    schema: Any = pa.schema([(name, getattr(pa, kind)()) for name, kind in kinds.items()])
    try:
        with _writing(path):
            writer = pq.ParquetWriter(part, schema)
            for _, work in blocks(ready):
                block = work()
                arrays: list[Any] = [pa.array(_cast(plain(block[n]), k), type=getattr(pa, k)())
                          for n, k in kinds.items()]  # fmt: skip
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
                rows += len(arrays[0])
                tell(rows, max(ready.points, rows))
    except BaseException as e:
        if writer is not None:
            writer.close()
        if not isinstance(e, KeyboardInterrupt):
            part.unlink(missing_ok=True)
            raise
        what = f"interrupted: {rows:,} of {ready.points:,} rows are kept in {part}"
        raise interrupted(what, "Only CSV can be gone on with: --output rows.csv.") from None
    writer.close()
    with _writing(path):
        os.replace(part, target)
    return rows


def _kinds(ready: Ready) -> dict[str, str]:
    """Tell the Parquet type of each column, from the first points of the variants."""
    found: dict[str, str] = {}
    for name in ready.columns:
        known = [p.rows[0].get(name) for p in ready.probes.values()]
        values = [*ready.keys.get(name, ()), *(v for v in known if v is not None)]
        if name == "reason" or any(isinstance(v, str) for v in values):
            found[name] = "string"
        elif values and all(isinstance(v, bool) for v in values):
            found[name] = "bool_"
        elif name in ready.keys and all(isinstance(v, int) for v in values):
            found[name] = "int64"
        else:
            found[name] = "float64"
    return found


def _cast(values: list[Any], kind: str) -> list[Any]:
    if kind == "string":
        return [None if v is None else str(v) for v in values]
    return [None if v is None else float(v) for v in values] if kind == "float64" else values


def inputs(ready: Ready) -> dict[str, Any]:
    """List what the numbers of a study rest on, flat: options, models, machines, constants."""
    import dataclasses
    from importlib.metadata import version

    study = ready.study
    found: dict[str, Any] = {"rooflm": version("rooflm")}
    for variant in study.variants:
        for name, value in study.words(variant).items():
            found[f"variant {variant}: {name}"] = _told(value)
    for name, values in study.axes.items():
        found[f"grid: {name}"] = ",".join(map(str, values))
    named = [a for a in study.axes if a in ("model", "on", "engine") or a.startswith("set.")]
    seen: set[str] = set()
    for variant in study.variants:
        for combo in combinations(study):
            told = json.dumps([variant, {a: combo[a] for a in named}], default=str)
            words = words_of(study, variant, combo)
            if told in seen or words.get("model") is None:
                continue
            seen.add(told)
            case = case_of(words)
            for kind, part in (("model", case.model), ("hardware", case.machine)):
                flat = _flat(dataclasses.asdict(part), f"{kind} {part.name}: ")
                found |= {k: v for k, v in flat.items() if not k.endswith(_SAID)}
            if case.constants is not None:
                label = f"engine on {case.machine.name}: "
                found |= _flat(dataclasses.asdict(case.constants), label)
    return found


_SAID = (": source", ": full_name", ": max_context", ": price_date")
"""Fields that no number rests on."""


def _told(value: Any) -> Any:
    return ",".join(f"{k}={v}" for k, v in value.items()) if is_map(value) else value


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    """Name the leaves of nested data by their path; what is empty or unset is left out."""
    inner: Iterable[tuple[Any, Any]]
    if is_map(value):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(cast("Sequence[Any]", value))
    else:
        return {} if value in (None, "", False) else {prefix.rstrip("."): value}
    dot = "" if prefix.endswith(": ") else "."
    found: dict[str, Any] = {}
    for key, item in inner:
        found |= _flat(item, f"{prefix}{dot if prefix[-1] != ' ' else ''}{key}")
    return found
