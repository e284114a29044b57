"""Lengths of the sequences of one batch: typed, or read from a file."""

from __future__ import annotations

from pathlib import Path

from .errors import RooflmError
from .units import parse_count, parse_counts
from .yamlfile import read_text


def parse_lengths(text: str, option: str) -> list[int]:
    """Read lengths: counts and ranges as everywhere, or a file with one length a line."""
    try:
        is_file = Path(text).is_file()
    except (OSError, ValueError):
        is_file = False
    if not is_file:
        return parse_counts(text, option)
    lengths: list[int] = []
    for number, line in enumerate(read_text(Path(text)).splitlines(), start=1):
        words = line.partition("#")[0].replace(",", " ").split()
        lengths += [parse_count(word, f"{text}:{number}:1") for word in words]
    if not lengths:
        raise RooflmError("the file holds no lengths", text, "Write one number a line.")
    return lengths
