"""YAML files in which every value knows its line, read strictly.

YAML 1.2 numbers and booleans (3.35e12 is a number, `on` is a word), duplicate keys and aliases
refused, only the named block of a long file parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias, cast

import yaml

from .errors import RooflmError, nearest
from .plain import is_map

Key: TypeAlias = tuple[str | int, ...]

LARGEST_FILE = 4 * 2**20
"""Bytes beyond which a file of presets is taken for a mistake: ours are below 0.2 MB."""
DEEPEST = 12
"""Levels of nesting beyond which a file is refused; ours have five."""

_TOP_KEY = re.compile(
    r"""^(?:"([^"\n]+)"|'([^'\n]+)'|([^\s#\-"'\[\]{},&*!|>%@`:][^\n]*?))\s*:(?=\s|$)""", re.M
)
_INT = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None, "~": None, "": None}


@dataclass(frozen=True)
class Block:
    """A value of a YAML file and where each part of it stands."""

    value: Any
    places: dict[Key, tuple[int, int]]
    """Line and column of each key, by its path."""
    path: str

    def under(self, name: str) -> Block:
        """Take the part of a mapping that stands under a key."""
        inner = {k[1:]: place for k, place in self.places.items() if k[:1] == (name,)}
        return Block(self.value[name], inner, self.path)

    def where(self, key: Key = ()) -> str:
        """Name the place of a key: file:line:column."""
        while key not in self.places and key:
            key = key[:-1]
        line, column = self.places.get(key, (1, 1))
        if line == 0:
            # What was typed stands in no file.
            return f"--set {next(part for part in reversed(key) if isinstance(part, str))}"
        return f"{self.path}:{line}:{column}"


def read_text(path: Path, largest: int = LARGEST_FILE) -> str:
    """Read a text file of a sensible size, or say what is wrong with it.

    largest: bytes that a file may have [B]. UTF-8 and UTF-16 with a byte order mark are read.
    """
    try:
        if path.is_dir():
            raise RooflmError("a folder stands where a file is needed", str(path))
        with path.open("rb") as file:
            raw = file.read(largest + 1)
    except OSError as e:
        reason = (e.strerror or "cannot be read").lower()
        raise RooflmError(f"cannot read the file: {reason}", str(path)) from None
    except ValueError:
        raise RooflmError("this is not a file name", str(path)) from None
    if len(raw) > largest:
        what = f"the file is larger than {largest // 2**20} MiB, the most that is read"
        raise RooflmError(what, str(path))
    try:
        text = raw.decode("utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise RooflmError("the file is not text", str(path), "Text in UTF-8 is needed.")
    if not text.strip():
        raise RooflmError("the file is empty", str(path))
    return text.replace("\r\n", "\n")


def is_file(text: str) -> bool:
    """Tell whether what somebody typed is the path of a file."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


@cache
def top_keys(text: str, path: str) -> Mapping[str, tuple[int, int, int]]:
    """Find the top-level keys of a block-style file without parsing it.

    Returns for each its line, and the start and end of its block in the text. Duplicates are
    refused.
    """
    found: dict[str, tuple[int, int, int]] = {}
    matches = list(_TOP_KEY.finditer(text))
    ends = [m.start() for m in matches[1:]] + [len(text)]
    line, position = 1, 0
    for match, end in zip(matches, ends, strict=True):
        key = next(group for group in match.groups() if group is not None)
        line += text.count("\n", position, match.start())
        position = match.start()
        if key in found:
            where = f"{path}:{line}:1"
            raise RooflmError(f"'{key}' stands twice, first in line {found[key][0]}", where)
        found[key] = (line, match.start(), end)
    return found


def load_block(text: str, key: str, path: str) -> Block:
    """Parse one top-level block of a file."""
    keys = top_keys(text, path)
    if key not in keys:
        fix = nearest(key, keys) or f"It has {', '.join(list(keys)[:8])}."
        raise RooflmError(f"no entry '{key}'", path, fix)
    line, start, end = keys[key]
    whole = load(text[start:end], path, line - 1)
    if not is_map(whole.value) or key not in whole.value:
        raise RooflmError(f"the entry '{key}' cannot be read", f"{path}:{line}:1")
    return whole.under(key)


def load(text: str, path: str, lines_before: int = 0) -> Block:
    """Parse YAML text whose first line is line `lines_before` + 1 of its file."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        root = cast("yaml.Node | None", yaml.compose(text, Loader=loader))
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        where = f"{path}:{mark.line + 1 + lines_before}:{mark.column + 1}" if mark else path
        problem = getattr(e, "problem", None) or str(e).splitlines()[0]
        raise RooflmError(f"this is not valid YAML: {problem}", where) from None
    except RecursionError:
        raise RooflmError("the file is nested too deeply", path) from None
    places: dict[Key, tuple[int, int]] = {}
    seen: set[int] = set()

    def build(node: yaml.Node | None, key: Key) -> Any:
        if node is None:
            return None
        place = (node.start_mark.line + 1 + lines_before, node.start_mark.column + 1)
        places.setdefault(key, place)
        where = f"{path}:{place[0]}:{place[1]}"
        if id(node) in seen:
            raise RooflmError("aliases are not allowed here", where, "Write the value out.")
        seen.add(id(node))
        if len(key) > DEEPEST:
            raise RooflmError("the file is nested too deeply", where)
        if isinstance(node, yaml.MappingNode):
            mapping: dict[str, Any] = {}
            for key_node, value_node in node.value:
                name = build(key_node, (*key, "?"))
                spot = (key_node.start_mark.line + 1 + lines_before, key_node.start_mark.column + 1)
                at = f"{path}:{spot[0]}:{spot[1]}"
                if isinstance(name, dict | list):
                    raise RooflmError("a key must be a word", at)
                name = str(key_node.value)
                if name in mapping:
                    first = places[(*key, name)][0]
                    raise RooflmError(f"'{name}' stands twice, first in line {first}", at)
                places[(*key, name)] = spot
                mapping[name] = build(value_node, (*key, name))
            return mapping
        if isinstance(node, yaml.SequenceNode):
            return [build(item, (*key, i)) for i, item in enumerate(node.value)]
        return _scalar(node)

    return Block(build(root, ()), places, path)


def _scalar(node: Any) -> Any:
    text: str = node.value
    if node.style:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INT.fullmatch(text) and len(text) <= 40:
        return int(text)
    if _FLOAT.fullmatch(text) and len(text) <= 40:
        return float(text)
    return text
