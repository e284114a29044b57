"""What a vLLM log should say of a pool that layers of several kinds share.

Groups of caches are those of `cache_groups`; what the log does not state (tokens of a pass, blocks
of a state) is tried as engines usually set it, and told with the figure that agrees.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from .cache_groups import Groups, cache_groups
from .engine_memory import pool_concurrency
from .engine_rules import find_rules, parse_version
from .errors import RooflmError
from .log_judge import Span, exact, number, said, span
from .log_model import Known
from .log_read import Fact, Start
from .memory import BLOCK_TOKENS
from .passes import BF16

BATCHED = (2048, 8192, 16384)
"""Tokens of a pass where the log states none: defaults (vllm/engine/arg_utils.py at 99d7eb5d)."""
STATES = (1, 2)
"""Blocks of a state: one, two where prefixes are cached (vllm/v1/kv_cache_interface.py)."""

Rule = tuple[Span, str]


@dataclass(frozen=True)
class Way:
    """One way in which a pool may be shared."""

    groups: Groups
    batched: int
    states: int
    words: str

    def request(self, length: float) -> int:
        """Count the blocks of a request of so many tokens."""
        return self.groups.request_blocks(int(length), self.batched, self.states)

    def blocks(self, pool: Span) -> Span:
        """Count the blocks of a pool."""
        low, middle, high = (self.groups.blocks(n) for n in (pool.low, pool.value, pool.high))
        return Span(middle, low, high)


def shared_ways(start: Start, known: Known) -> list[Way]:
    """List how layers of several kinds may share the pool of a log.

    None for layers of one kind, for engines before there were groups, and for caches whose pages
    are not modelled.
    """
    version = version_of(start)
    if known.cache is None or not (known.mixed or known.states):
        return []
    if version is not None and version < (0, 8):
        return []
    block = int(start.number("block_size") or BLOCK_TOKENS)
    found: list[Way] = []
    for model in known.rank_models():
        try:
            groups = cache_groups(model, known.cache, block)
        except RooflmError:
            return []
        kinds = {c.kind for c in groups.caches}
        if not groups.joint and kinds != {"state"}:
            continue
        typed = start.number("max_num_batched_tokens")
        passes = BATCHED if typed is None else (int(typed),)
        told = f"{sum(groups.counts)} groups of {groups.layers} layers, pages of {groups.page:,} B"
        for batched in passes if kinds & {"window", "chunk"} else passes[:1]:
            for states in STATES if "state" in kinds else STATES[:1]:
                words = told
                if kinds & {"window", "chunk"}:
                    words += f", windows with a pass of {batched:,} tokens"
                if "state" in kinds:
                    words += f", {'a block' if states == 1 else f'{states} blocks'} of a state"
                found.append(Way(groups, batched, states, words))
    return list(dict.fromkeys(found))


def unmodelled(known: Known) -> str:
    """Say why a pool of a model is not computed; "" where it is."""
    for model in known.rank_models() if known.cache is not None else []:
        try:
            cache_groups(model, known.cache or BF16, BLOCK_TOKENS)
        except RooflmError as e:
            return e.what
    return ""


def version_of(start: Start) -> tuple[int, ...] | None:
    """Read the version of a start; None where none is stated."""
    found = re.match(r"v?(\d{1,4}\.\d{1,4})", start.word("version") or "")
    return None if found is None else parse_version(found[1])


def whole_lines(start: Start) -> tuple[bool, ...]:
    """Tell whether lines of tokens are those of whole requests: both ways where no version is."""
    version = version_of(start)
    if version is None:
        return (False, True)
    return (version >= parse_version(str(find_rules("vllm")["whole_tokens"])),)


def token_rules(ways: list[Way], start: Start, pool: Fact | None, fact: Fact) -> list[Rule]:
    """List what a line of tokens should say, by the pool or by its blocks."""
    length = _length(start, fact)
    blocks = start.near("gpu_blocks", fact)
    rules: list[Rule] = []
    for way in ways:
        if blocks is not None:
            held, told = exact(blocks.size), f"{number(blocks.size)} blocks"
        elif pool is not None:
            held, told = way.blocks(span(pool)), said(pool)
        else:
            return []
        for whole in whole_lines(start):
            if whole and length is not None:
                each = way.request(length)
                should = _of(held, lambda n, each=each: n / each * length).spread(1)
                what = f"{each:,} blocks for each {number(length)} tokens"
                rules.append((should, f"{told} by {way.words}: {what}"))
            if not whole:
                line = _of(held, lambda n, g=way.groups: g.line_tokens(int(n), int(length or 0)))
                what = f"shared evenly, {way.groups.least_block} tokens a block"
                rules.append((line, f"{told} by {way.words}: {what}"))
    return rules


def concurrency_rules(ways: list[Way], start: Start, pool: Fact | None, fact: Fact) -> list[Rule]:
    """List what a line of concurrency should say, by blocks, the pool, or a line of tokens."""
    length = _length(start, fact)
    blocks, tokens = start.near("gpu_blocks", fact), start.near("tokens", fact)
    rules: list[Rule] = []
    for way in ways if length is not None else []:
        each = way.request(length or 0)
        parts = sum(way.groups.counts)
        if blocks is not None:
            held, told = exact(blocks.size), f"{number(blocks.size)} blocks"
        elif pool is not None:
            held, told = way.blocks(span(pool)), said(pool)
        elif tokens is not None and way.groups.least_block and not all(whole_lines(start)):
            least = tokens.size / way.groups.least_block * parts
            held, told = Span(least, least, least + parts - 1), f"{number(tokens.size)} tokens"
        else:
            continue
        should = _of(held, lambda n, each=each: pool_concurrency(n, each))
        how = f"{told} by {way.words} / {each:,} blocks for {number(length or 0)} tokens"
        rules.append((should, how))
    return rules


def needed_rules(ways: list[Way], length: float) -> list[Rule]:
    """List what a request of so many tokens may need of a pool [B]."""
    return [
        (exact(way.request(length) * way.groups.block_bytes),
         f"{way.request(length):,} blocks of {number(length)} tokens: {way.words}")
        for way in ways
    ]  # fmt: skip


def longest_rules(ways: list[Way], start: Start, pool: Fact, fact: Fact) -> list[Rule]:
    """List the longest requests that a pool may hold, by the ways that give the stated need."""
    length, needed = _length(start, fact), start.near("needed", fact)
    rules: list[Rule] = []
    for way in ways if length is not None and needed is not None else []:
        if not length or needed is None:
            continue
        mine, need = span(needed), way.request(length) * way.groups.block_bytes
        if mine.low <= need <= mine.high:
            held = _of(span(pool), lambda n, way=way: way.groups.longest(
                n, int(length), way.batched, way.states))  # fmt: skip
            rules.append((held, f"{said(pool)} by {way.words}"))
    return rules


def _of(held: Span, rule: Callable[[float], float]) -> Span:
    """Apply a rule that grows to a number and its bounds."""
    return Span(rule(held.value), rule(held.low), rule(held.high))


def _length(start: Start, fact: Fact) -> float | None:
    found = start.near("concurrency_len", fact) or start.near("max_model_len", fact)
    return None if found is None else found.size
