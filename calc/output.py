"""From an answer to text: tables for people, JSON and CSV for programs, Markdown for documents."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TextIO

from .errors import RooflmError
from .plain import is_list, is_map

OutputFormat = Literal["table", "json", "csv", "md"]

WIDE = 10_000
"""Columns of a table that no terminal cuts: pipes and files."""
MOST_TABLE_ROWS = 5000
"""Rows of a table for people; programs take CSV or JSON."""


@dataclass(frozen=True)
class Table:
    """A table for people; every cell is text already."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    keys: int = 1
    """Leading columns that are repeated where a table is split."""
    words: Sequence[str] = ()
    """Heads of further columns that hold words and stand at the left."""

    def is_words(self, column: int) -> bool:
        """Tell whether a column stands at the left."""
        return column < self.keys or self.heads[column] in self.words


@dataclass(frozen=True)
class Page:
    """What a command shows people: tables, then notes."""

    tables: Sequence[Table]
    notes: Sequence[str] = field(default_factory=tuple)


def render(
    answer: dict[str, Any], page: Page, format: OutputFormat, width: int = WIDE, quiet: bool = False
) -> str:
    """Turn an answer into text of the wanted format, ending in a newline."""
    notes = () if quiet else page.notes
    match format:
        case "json":
            import json

            return json.dumps(answer, indent=2, allow_nan=False) + "\n"
        case "csv":
            return to_csv(answer)
        case "md":
            tables = "\n\n".join(to_markdown(t) for t in page.tables)
            return tables + "\n" + ("\n" if notes else "") + "".join(f"- {n}\n" for n in notes)
        case "table":
            tables = "\n".join(to_text(t, width) for t in page.tables)
            return tables + ("\n" if notes and tables else "") + "".join(f"{n}\n" for n in notes)


def to_csv(answer: dict[str, Any]) -> str:
    """Write the rows of an answer, or its own keys where it has none, with full precision."""
    import csv
    import io

    rows: Sequence[dict[str, Any]] = answer.get("rows") or ()
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if not rows:
        writer.writerow(("key", "value"))
        writer.writerows(flatten(answer).items())
        return text.getvalue()
    # Rows are flattened twice, as a million of them are too many to keep.
    heads = list(dict.fromkeys(k for row in rows for k in flatten(row)))
    writer.writerow(heads)
    for row in rows:
        flat = flatten(row)
        writer.writerow([_csv_cell(flat.get(h)) for h in heads])
    return text.getvalue()


def _csv_cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    return "" if value is None else value


def flatten(value: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Name the inner keys of an object by their path: `memory.weights_bytes`."""
    flat: dict[str, Any] = {}
    for key, inner in value.items():
        name = prefix + key
        if is_list(inner):
            inner = {str(i): item for i, item in enumerate(inner)}
        if is_map(inner):
            flat |= flatten(inner, f"{name}.")
        else:
            flat[name] = inner
    return flat


def to_markdown(table: Table) -> str:
    """Write a table as Markdown."""

    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |"

    rule = [":--" if table.is_words(i) else "--:" for i in range(len(table.heads))]
    title = [f"**{table.title}**", ""] if table.title else []
    return "\n".join([*title, line(table.heads), line(rule), *map(line, table.rows)])


def check_rows(rows: int) -> None:
    """Refuse a table that nobody would read."""
    if rows > MOST_TABLE_ROWS:
        what = f"{rows:,} rows are more than the {MOST_TABLE_ROWS:,} of a table"
        raise RooflmError(what, "--format", "Take --format csv or json.")


def to_text(table: Table, width: int) -> str:
    """Write a table for a terminal of `width` columns.

    A table that is too wide is split into several below each other, its first columns repeated:
    no digit is ever cut or wrapped.
    """
    import io

    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable

    check_rows(len(table.rows))
    widths = [
        max(len(head), *(len(row[i]) for row in table.rows)) if table.rows else len(head)
        for i, head in enumerate(table.heads)
    ]
    text = io.StringIO()
    # Wide enough that rich never cuts: what fits is decided here.
    console = Console(file=text, width=max(WIDE, sum(widths) + 3 * len(widths)), color_system=None)
    parts = _split(widths, table.keys, width)
    for part in parts:
        drawn = RichTable(
            header_style="",
            box=box.SIMPLE_HEAD if prints("─") else box.ASCII2, pad_edge=False, show_edge=False,
        )  # fmt: skip
        for i in part:
            justify = "left" if table.is_words(i) else "right"
            drawn.add_column(_plain(table.heads[i]), justify=justify, no_wrap=True)
        for row in table.rows:
            drawn.add_row(*(_plain(row[i]) for i in part))
        console.print(drawn, markup=False, highlight=False)
        if part is not parts[-1]:
            console.print()
    lines = [table.title] if table.title else []
    return "\n".join([*lines, *(line.rstrip() for line in text.getvalue().splitlines())]) + "\n"


def prints(character: str) -> bool:
    """Tell whether stdout has a character."""
    try:
        character.encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _plain(text: str) -> Any:
    from rich.text import Text

    # Brackets are units here, not markup.
    return Text(text)


def _split(widths: Sequence[int], leading: int, width: int) -> list[list[int]]:
    keys = list(range(min(leading, len(widths))))
    parts: list[list[int]] = []
    part = list(keys)
    for i in range(len(keys), len(widths)):
        if len(part) > len(keys) and sum(widths[j] + 3 for j in [*part, i]) > width:
            parts.append(part)
            part = list(keys)
        part.append(i)
    return [*parts, part]


def format_of(path: str | None) -> OutputFormat:
    """Tell the format that a file's name asks for; the table otherwise."""
    by_suffix: dict[str, OutputFormat] = {".json": "json", ".csv": "csv", ".md": "md"}
    return by_suffix.get(Path(path).suffix.lower(), "table") if path else "table"


def terminal_width() -> int:
    """Columns of the terminal; without end where stdout is a pipe or a file."""
    if sys.stdout is None or not sys.stdout.isatty():  # pyright: ignore[reportUnnecessaryComparison]
        return WIDE
    import shutil

    return shutil.get_terminal_size().columns


def write(text: str, path: str | None) -> None:
    """Write to stdout or to a file; a file is there whole or not at all."""
    if path is None or path == "-":
        # Where nothing is open there is nowhere to write; where the reader has gone away, `main`
        # of __main__ knows what to do.
        if sys.stdout is None:  # pyright: ignore[reportUnnecessaryComparison]
            raise RooflmError("cannot write the output: stdout is closed")
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    # As on stdout: a name that is no text, such as that of a folder, does not stop an answer.
    write_file(text.encode("utf-8", "backslashreplace"), path, "--output")


def write_file(content: bytes, path: str, option: str) -> None:
    """Write a file whole or not at all; devices and pipes are written to as they are."""
    try:
        target = Path(path)
        if target.exists() and not target.is_file():
            with target.open("wb") as file:
                file.write(content)
        else:
            _replace(content, Path(os.path.realpath(path)))
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as e:
        raise unwritable(e, path, option) from None


def unwritable(error: Exception, path: str, option: str) -> RooflmError:
    """Say why an output cannot be written."""
    reason = (getattr(error, "strerror", None) or str(error)).lower()
    return RooflmError(f"cannot write the output: {reason}", f"{option} {path}")


def spare_read_only(path: Path) -> None:
    """Refuse to put a file in the place of one that is read-only."""
    if path.exists() and not os.access(path, os.W_OK):
        raise PermissionError(13, "the file is read-only")


def _replace(content: bytes, path: Path) -> None:
    import tempfile

    spare_read_only(path)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:40]}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mode = path.stat().st_mode if path.exists() else 0o666 & ~_umask()
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        # An interrupt may come after the file took its place, and has to stay an interrupt.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def progress_on(stream: TextIO | None) -> Callable[[int, int], None]:
    """Make what tells how far long work is: on a terminal only, and after two seconds of it."""
    import time

    last = time.monotonic() + 1
    live = stream is not None and stream.isatty()

    def tell(done: int, of: int) -> None:
        nonlocal last
        if not live or stream is None:
            return
        if done >= of:
            stream.write("\x1b[K")
        elif time.monotonic() >= last + 1:
            last = time.monotonic()
            stream.write(f"rooflm: {done:,} of {of:,}\x1b[K\r")
        else:
            return
        stream.flush()

    return tell
