"""From the lines of a log to facts: what was printed, on which line, by which rank."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from .errors import RooflmError
from .log_lines import plain, rank_of
from .log_patterns import PATTERNS, Pattern
from .log_words import FIGURES

MOST_FACTS = 64
"""Different values of a fact that are kept of a start."""
SERVED = (" HTTP/1.", "throughput: ", "gen throughput", "Prefill batch")
"""Words of the lines that a running server writes for every request or second: most of a log."""
MOST = 1e18
"""Numbers from here on are slips or damage, and no figures."""
NEVER_0 = frozenset({
    "block_size", "page_size", "concurrency_len", "max_model_len", "tokens_per_block", "n_layer",
    "n_head", "n_head_kv", "tp", "pp", "total", "needed", "max_seq_len", "window", "n_ctx",
    "n_ubatch", "swap_space", "cells",
})  # fmt: skip
"""Facts that are not there where they are 0, as others are divided by them."""
MOST_STARTS = 16
"""Starts of a log that are kept, the last ones."""

SIZES = {
    "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40,
    "KB": 2**10, "MB": 2**20, "GB": 2**30, "TB": 2**40,
}  # fmt: skip
"""Bytes of a unit as engines use it: all of them divide by powers of two."""
MEANT = {"KB": "KiB", "MB": "MiB", "GB": "GiB", "TB": "TiB"}
"""Units that are called by the name of another."""
_UNITS = {"gib": "GiB", "mib": "MiB", "gb": "GB", "mb": "MB", "b": "B"}
_SIZE = re.compile(r"([\d.]+) ?(\w+)")


@dataclass
class Fact:
    """A value that a line holds."""

    name: str
    value: float | str
    digits: int
    """Digits after the point."""
    unit: str
    """As the log writes it; empty for counts and words."""
    line: int
    rank: str
    typed: bool = False
    """As it was typed, not rounded."""
    ranks: set[str] = field(default_factory=set[str])
    """Every rank that wrote the same."""
    lines: list[int] = field(default_factory=list[int])
    """The first lines that hold the same."""

    @property
    def number(self) -> float:
        """The value in its own unit; 0 for words."""
        return 0.0 if isinstance(self.value, str) else self.value

    @property
    def times(self) -> int:
        """Bytes of its unit, 1 for counts."""
        return SIZES.get(self.unit, 1)

    @property
    def half(self) -> float:
        """Half of the last digit, in bytes or as a count: how far the log rounds."""
        rounds = not self.typed and (self.digits or self.unit)
        return 0.5 * 10.0**-self.digits * self.times if rounds else 0.0

    @property
    def size(self) -> float:
        """The value in bytes, or as a count."""
        return self.number * self.times


@dataclass
class Start:
    """What one start of an engine printed."""

    facts: dict[str, list[Fact]] = field(default_factory=dict[str, list[Fact]])
    votes: Counter[str] = field(default_factory=Counter[str])
    """Lines that engines print, by engine."""

    @property
    def engine(self) -> str:
        """The engine that printed most of its lines; "" where none of them is an engine's."""
        return max(self.votes, key=lambda e: self.votes[e], default="")

    def all(self, *names: str) -> list[Fact]:
        """List the facts of some names in the order of lines."""
        found = (f for name in names for f in self.facts.get(name, ()))
        return sorted(found, key=lambda f: f.line)

    def near(self, name: str, to: Fact) -> Fact | None:
        """Find the fact of a name that belongs to another: of its rank, and the nearest."""
        found = self.facts.get(name, [])
        mine = [f for f in found if to.rank and to.rank in f.ranks] or found
        return min(mine, key=lambda f: min(abs(n - to.line) for n in f.lines), default=None)

    def first(self, *names: str) -> Fact | None:
        """Find the first fact of the first name that the start has."""
        return next((self.facts[n][0] for n in names if self.facts.get(n)), None)

    def number(self, *names: str) -> float | None:
        """Tell the number of the first of some names that is there."""
        found = self.first(*names)
        return None if found is None or isinstance(found.value, str) else found.value

    def word(self, name: str) -> str | None:
        """Tell a word, and None where the log says None."""
        for fact in self.facts.get(name, ()):
            text = str(fact.value).strip().rstrip(".,;")
            if text.lower() not in ("none", "null", "auto", ""):
                return text
        return None

    def says_none(self, name: str) -> bool:
        """Tell whether the log says that a setting has no value."""
        return any(str(f.value).lower() in ("none", "null") for f in self.facts.get(name, ()))

    def figures(self) -> int:
        """Count the figures of the start."""
        return sum(len(v) for name, v in self.facts.items() if name in FIGURES)

    def add(self, fact: Fact) -> None:
        """Keep a fact; one that several ranks print is kept once."""
        kept = self.facts.setdefault(fact.name, [])
        for old in kept:
            if (old.value, old.unit) == (fact.value, fact.unit):
                # Buffers of equal devices are several facts of equal size.
                if fact.name.startswith(("device_", "layer_", "compute_", "output_")):
                    continue
                if fact.rank:
                    old.ranks.add(fact.rank)
                if len(old.lines) < MOST_FACTS:
                    old.lines.append(fact.line)
                return
        if len(kept) < MOST_FACTS or (fact.name.startswith("layer_") and len(kept) < 4096):
            fact.lines.append(fact.line)
            if fact.rank:
                fact.ranks.add(fact.rank)
            kept.append(fact)


@dataclass
class Log:
    """What a log holds."""

    engine: str
    """The engine that printed most."""
    engines: list[str]
    """All engines whose lines are there."""
    starts: list[Start]
    begun: int
    """Starts of the whole log."""
    lines: int
    unknown: int
    """Lines that say nothing that is known."""
    ranks: list[str]


def read_log(lines: Iterable[tuple[int, str]], name: str = "") -> Log:
    """Read the facts of a log; lines that are not recognised are counted, and left alone."""
    table = _table()
    starts, begun = [Start()], 1
    engines: Counter[str] = Counter()
    ranks: dict[str, None] = {}
    count = known = 0
    for number, text in lines:
        count += 1
        if any(word in text for word in SERVED):
            continue
        matching = [patterns for key, patterns in table if key in text]
        if not matching:
            continue
        clean = plain(text)
        facts: list[Fact] = []
        votes: Counter[str] = Counter()
        begins = False
        rank = rank_of(clean)
        for pattern in (p for patterns in matching for p in patterns):
            found = pattern.regex.search(clean)
            if found is None:
                continue
            votes[pattern.engine] += 1
            begins |= pattern.begins
            facts += _facts(found, number, rank)
        known += bool(facts)
        if begins and starts[-1].figures():
            starts.append(Start())
            starts = starts[-MOST_STARTS:]
            begun += 1
        del votes[""]
        engines += votes
        starts[-1].votes += votes
        for fact in facts:
            starts[-1].add(fact)
        if facts and rank and len(ranks) < 4096:
            ranks[rank] = None
    where = name or "the log"
    if not count:
        raise RooflmError("the log is empty", where, "Name what the engine printed at its start.")
    if not engines:
        what = f"none of the {count:,} lines read is of a start of vLLM, SGLang, TensorRT-LLM or "
        fix = "Name what one of them printed at its start."
        raise RooflmError(what + "llama.cpp", where, fix)
    told = sorted(ranks, key=lambda r: (len(r), r))
    most = max(engines, key=lambda e: engines[e])
    return Log(most, list(engines), starts, begun, count, count - known, told)


def _table() -> list[tuple[str, list[Pattern]]]:
    """Group the patterns by their keys."""
    table: dict[str, list[Pattern]] = {}
    for pattern in PATTERNS:
        table.setdefault(pattern.key, []).append(pattern)
    return list(table.items())


def _facts(found: re.Match[str], number: int, rank: str) -> list[Fact]:
    """List the facts of a match."""
    facts: list[Fact] = []
    for group, text in found.groupdict().items():
        if text is None:
            continue
        name, _, sort = group.rpartition("__")
        if sort == "t":
            facts.append(Fact(name, text, 0, "", number, rank))
            continue
        unit = _UNITS.get(sort, "")
        if sort == "size":
            parts = _SIZE.fullmatch(text)
            if parts is None or parts[2] not in SIZES:
                continue
            text, unit = parts[1], parts[2]
        digits = len(text.partition(".")[2])
        try:
            value = float(text.replace(",", ""))
        except ValueError:
            continue
        if value < MOST and (value or name not in NEVER_0):
            facts.append(Fact(name, value, digits, unit, number, rank, typed=sort == "v"))
    return facts


def chosen(log: Log) -> Start:
    """Choose the start that is explained: the last one with figures.

    llama.cpp loads the model that drafts after the one that decides, in the same process: of
    its last two models the larger one is meant.
    """
    told = [s for s in log.starts if s.figures()] or log.starts
    last = told[-1]
    if last.engine == "llamacpp" and len(told) > 1:
        sizes = [s.first("file_size", "kv_size") for s in told[-2:]]
        if all(sizes) and sizes[0] and sizes[1] and sizes[0].size > 2 * sizes[1].size:
            return told[-2]
    return last
