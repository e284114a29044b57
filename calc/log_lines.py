"""Lines of a log: decoded, without colours, and the rank that wrote each.

A log may be of any length: it is read in pieces, a line is cut at `MOST_CHARACTERS`, and nothing is
kept. Programs write in UTF-8, shells of Windows in UTF-16 with a byte order mark.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from .errors import RooflmError

PIECE = 1 << 20
"""Bytes that are read at once."""
MOST_CHARACTERS = 1 << 16
"""Characters of a line that are looked at; settings of an engine take a few thousand."""
HEAD = 240
"""Characters in which the rank of a line stands."""

_COLOURS = re.compile(r"(?:\x1b|\\u001b|\\x1b)?\[(?:\d{1,3}(?:;\d{1,3}){0,4})?[mK]")
_RANKS = (
    ("", r"\b(?:Worker_)?((?:DP|PP|TP|EP|CP)\d{1,4}(?:[_ ](?:DP|PP|TP|EP|CP)\d{1,4})*)"),
    ("rank ", r"(?i:\brank)[ =:]?(\d{1,4})\b"),
    ("rank ", r"^\[\d+,(\d{1,4})\]<std"),
    ("pid ", r"\((?:\w*Worker\w*|RayWorkerWrapper) pid=(\d{1,9})"),
)
_RANK_PATTERNS = [(word, re.compile(pattern)) for word, pattern in _RANKS]


def log_lines(path: str) -> Iterator[tuple[int, str]]:
    """Read the lines of a file, or of stdin where the path is "-", with their numbers."""
    name = "stdin" if path == "-" else path
    try:
        if path == "-":
            yield from decoded(_stdin(), name)
            return
        with Path(path).expanduser().open("rb") as file:
            yield from decoded(file, name)
    except IsADirectoryError:
        fix = "Name the file of the log."
        raise RooflmError("a log is a file, and this is a folder", name, fix) from None
    except (OSError, ValueError, RuntimeError) as e:
        reason = (getattr(e, "strerror", None) or str(e)).lower()
        raise RooflmError(f"cannot read the log: {reason}", name) from None


def _stdin() -> BinaryIO:
    if sys.stdin is None:  # pyright: ignore[reportUnnecessaryComparison]
        raise RooflmError("cannot read the log: stdin is closed")
    return sys.stdin.buffer


def decoded(stream: BinaryIO, name: str) -> Iterator[tuple[int, str]]:
    """Decode a stream of bytes into numbered lines; progress bars count as one line.

    Raises `RooflmError` where the first piece is no text.
    """
    piece = stream.read(PIECE)
    encoding, skipped = _encoding(piece, name)
    decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
    piece = piece[skipped:]
    number, rest, cut = 1, "", False
    while True:
        last = not piece
        text = decoder.decode(piece, last)
        *whole, tail = text.split("\n")
        for one in whole:
            line = rest if cut else rest + one
            yield from _parts(number, line)
            number, rest, cut = number + 1, "", False
        if not cut:
            rest += tail
            cut = len(rest) > MOST_CHARACTERS
            rest = rest[:MOST_CHARACTERS]
        if last:
            break
        piece = stream.read(PIECE)
    if rest:
        yield from _parts(number, rest)


def _parts(number: int, line: str) -> Iterator[tuple[int, str]]:
    """Split what a progress bar wrote over itself."""
    line = line[:MOST_CHARACTERS]
    if "\r" not in line:
        yield number, line
        return
    for part in line.split("\r"):
        if part:
            yield number, part


def _encoding(piece: bytes, name: str) -> tuple[str, int]:
    """Tell the encoding of a log by its first bytes, and how many of them are no text."""
    for mark, encoding in (
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if piece.startswith(mark):
            return encoding, len(mark)
    head = piece[:4096]
    if b"\0" not in head:
        return "utf-8", 0
    half = len(head) // 2
    for start, encoding in ((1, "utf-16-le"), (0, "utf-16-be")):
        if half > 8 and head[start::2].count(0) > 0.9 * half and 0 not in head[1 - start :: 2]:
            return encoding, 0
    raise RooflmError("the file holds no text", name, "Name what the engine printed at its start.")


def plain(line: str) -> str:
    """Take colours out of a line, and Docker's JSON from around it."""
    if line.startswith('{"log":'):
        with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
            line = str(json.loads(line)["log"]).rstrip("\n")
    return _COLOURS.sub("", line) if "[" in line else line


def rank_of(line: str) -> str:
    """Tell which rank wrote a line, by its prefix: TP3, rank 1, or the number of its process."""
    head = line[:HEAD]
    for word, pattern in _RANK_PATTERNS:
        found = pattern.search(head)
        if found:
            return word + found[1].replace(" ", "_")
    return ""
