"""Rows of a study written as they are made: CSV that can be gone on with, and Parquet."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import importlib
import io
import itertools
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

from .errors import Exit, RooflmError
from .output import spare_read_only, unwritable
from .study import Ready, blocks
from .study_answer import Tell, interrupted, plain
from .study_inputs import inputs

WORDS = ("reason", "regime", "basis")
"""Columns of words, which the first points may lack."""
PARTS = ".part"
"""Ending of the file that holds the rows of an unfinished study."""


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
    with _writing(path):
        spare_read_only(target)
    part = part_of(ready, str(target))
    if resume:
        _check_kept(part, path)
    with _writing(path):
        file = part.open("a+", encoding="utf-8", newline="")
    with file:
        _lock(file, path)
        done = 0
        if resume:
            done = _finished(part)
        else:
            _spare_kept(part, path)
            file.truncate(0)
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


def _interrupted(error: BaseException, part: Path, path: str, ready: Ready) -> None:
    """Say what an interrupt left, and how to go on; other errors leave nothing."""
    if not part.exists():
        return
    rows = max(0, _lines(part) - 1)
    if not isinstance(error, KeyboardInterrupt):
        # Finished rows are kept: a full disk is no reason to compute them again.
        if not rows:
            part.unlink(missing_ok=True)
        return
    what = f"interrupted: {rows:,} of {ready.points:,} rows are kept in {part}"
    fix = f"Go on with: rooflm study {ready.study.path} --output {path} --resume"
    raise interrupted(what, fix) from None


def _lock(file: Any, path: str) -> None:
    """Refuse to write what another run is writing."""
    try:
        import fcntl
    except ImportError:  # Windows keeps others out by itself.
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        what = "another run is writing these rows"
        raise RooflmError(what, f"--output {path}", "Wait for it, or name another file.") from None


@contextlib.contextmanager
def _writing(path: str) -> Generator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as e:
        raise unwritable(e, path, "--output") from None


def part_of(ready: Ready, path: str) -> Path:
    """Name the file that holds the rows of an unfinished study: by its content and inputs."""
    told = json.dumps([ready.study.text.value, ready.columns, inputs(ready)], default=str)
    return Path(f"{path}.{hashlib.sha256(told.encode()).hexdigest()[:12]}{PARTS}")


def _check_kept(part: Path, path: str) -> None:
    """Refuse to go on where nothing of the study as it is now is kept."""
    if not part.is_file():
        others = sorted(Path(path).parent.glob(f"{Path(path).name}.*{PARTS}"))
        what = "nothing of this study as it is now is kept"
        fix = f"{others[0]} is of another state of it." if others else "Leave --resume out."
        raise RooflmError(what, "--resume", fix)


def _spare_kept(part: Path, path: str) -> None:
    """Refuse to throw finished rows away: the same study with the same inputs has them again."""
    rows = _lines(part) - 1
    if rows > 0:
        what = f"{rows:,} rows of a run that was interrupted are kept in {part}"
        fix = "Go on with --resume, or delete that file to begin anew."
        raise RooflmError(what, f"--output {path}", fix)


def _finished(part: Path) -> int:
    """Count the rows that are finished, and cut off one that is not."""
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
    # A point of a sweep is a row; what speculation tells of a point may be more or fewer.
    sure = ready.study.command == "sweep"
    for points, work in blocks(ready):
        if sure and skip >= rows + points:
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
    with _writing(path):
        spare_read_only(target)
        if target.exists() and not target.is_file():
            raise PermissionError(13, "it is no file")
    part = part_of(ready, str(target))
    writer, rows = None, 0
    file: Any = None
    kinds = _kinds(ready)
    schema: Any = pa.schema([(name, getattr(pa, kind)()) for name, kind in kinds.items()])
    try:
        with _writing(path):
            file = part.open("ab")
            _lock(file, path)
            file.truncate(0)
            writer = pq.ParquetWriter(file, schema)
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
            file.close()
        if not isinstance(e, KeyboardInterrupt):
            if writer is not None:
                part.unlink(missing_ok=True)
            raise
        what = f"interrupted: {rows:,} of {ready.points:,} rows are kept in {part}"
        raise interrupted(what, "Only CSV can be gone on with: --output rows.csv.") from None
    writer.close()
    file.close()
    with _writing(path):
        os.replace(part, target)
    return rows


def _kinds(ready: Ready) -> dict[str, str]:
    """Tell the Parquet type of each column, from the first points of the variants."""
    found: dict[str, str] = {}
    for name in ready.columns:
        known = [p.rows[0].get(name) for p in ready.probes.values()]
        values = [*ready.keys.get(name, ()), *(v for v in known if v is not None)]
        if name in WORDS or any(isinstance(v, str) for v in values):
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
