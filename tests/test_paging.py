"""A paged cache equals lists of blocks that are counted anew at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from rooflm.calc.paging import (
    PagedCache,
    mean_unfilled_tokens,
    sample_copies,
    sampled_blocks,
    sequence_blocks,
    unfilled_tokens,
)

Key = tuple[Any, ...]


def keys_of(tokens: list[Any], block: int) -> list[Key]:
    """Name the full blocks of a sequence by all that they hold and all that comes before."""
    return [tuple(tokens[:end]) for end in range(block, len(tokens) + 1, block)]


def cut(body: list[int], end: int, n: int) -> list[int]:
    """Take the first tokens of a body, its end, and zeros."""
    return [*body, end, *9 * [0]][:n]


@dataclass(eq=False)
class Cell:
    """A block of the naive cache: equal to no other, with the key that it is remembered by."""

    key: Key | None = None


class Naive:
    """The same cache as lists: who holds a block is found by looking into every table."""

    def __init__(self, blocks: int, block: int) -> None:
        self.blocks, self.block = blocks, block
        self.tables: dict[int, list[Cell]] = {}
        self.covered: dict[int, int] = {}
        self.idle: list[Cell] = []
        self.copies = self.evicted = 0

    def holders(self, cell: Cell) -> int:
        """Count the tables that have a block."""
        return sum(one is cell for table in self.tables.values() for one in table)

    def held(self) -> list[Cell]:
        """List all blocks of tables, each once."""
        return list({id(one): one for table in self.tables.values() for one in table}.values())

    @property
    def empty(self) -> int:
        """Count the blocks that are neither held nor remembered."""
        return self.blocks - len(self.held()) - len(self.idle)

    def known(self) -> dict[Key, Cell]:
        """List what can be found."""
        return {one.key: one for one in self.held() + self.idle if one.key is not None}

    def match(self, keys: list[Key]) -> int:
        """Count leading keys that are known."""
        known = self.known()
        return next((i for i, key in enumerate(keys) if key not in known), len(keys))

    def take(self, seq: int) -> None:
        """Append a block to a table."""
        if not self.empty:
            del self.idle[0]
            self.evicted += 1
        self.tables[seq].append(Cell())

    def cover(self, seq: int, tokens: int) -> None:
        """Copy an open block that others hold, and append blocks."""
        table, covered = self.tables[seq], self.covered[seq]
        if covered % self.block and tokens > covered and self.holders(table[-1]) > 1:
            # The copy is taken while the others still hold the original.
            self.take(seq)
            table[-2:] = [table[-1]]
            self.copies += 1
        while len(table) * self.block < tokens:
            self.take(seq)
        self.covered[seq] = tokens

    def admit(self, seq: int, matched: list[Key], tokens: int) -> None:
        """Hold what matches, then append blocks."""
        known = self.known()
        self.tables[seq] = [known[key] for key in matched]
        self.covered[seq] = len(matched) * self.block
        self.idle = [one for one in self.idle if one not in self.tables[seq]]
        self.cover(seq, tokens)

    def release(self, seq: int) -> None:
        """Let a table go, its last block first."""
        del self.covered[seq]
        for one in reversed(self.tables.pop(seq)):
            if one.key is not None and not self.holders(one):
                self.idle.append(one)


class Paging(RuleBasedStateMachine):
    """Admissions, growth, samples and ends of sequences that often begin alike."""

    sequences: Bundle[int] = Bundle("sequences")
    few = st.lists(st.integers(0, 1), max_size=5)
    # Few prompts, so that most begin like one before.
    prompts = st.builds(
        cut, st.sampled_from([[], [0, 0, 0], [0, 1, 1, 0]]), st.integers(0, 1), st.integers(0, 9)
    )

    @initialize(blocks=st.integers(2, 12), block=st.integers(1, 3))
    def start(self, blocks: int, block: int) -> None:
        """Take a pool that is often too small."""
        self.cache, self.naive = PagedCache(blocks, block), Naive(blocks, block)
        self.tokens: dict[int, list[int]] = {}
        self.memory: dict[tuple[int, int], int] = {}
        self.ever: set[Key] = set()
        self.born = 0

    def write(self, seq: int, start: int) -> None:
        """Write the tokens of a sequence from one on where its table says."""
        block, table = self.cache.block, self.cache.table(seq)
        for i in range(start, len(self.tokens[seq])):
            self.memory[table[i // block], i % block] = self.tokens[seq][i]

    def refused(self, act: Any) -> None:
        """Ask for more than the pool has, and find that nothing has changed."""
        before = (self.cache.free, self.cache.cached, self.cache.evicted, self.cache.copies)
        with pytest.raises(RuntimeError, match="are free"):
            act()
        assert before == (
            self.cache.free, self.cache.cached, self.cache.evicted, self.cache.copies
        )  # fmt: skip

    @rule(target=sequences, prompt=prompts, computed=st.integers(0, 9))
    def admit(self, prompt: list[int], computed: int) -> Any:
        """Admit a prompt, or a first part of it, on what it finds."""
        cache, seq = self.cache, self.born
        keys = keys_of(prompt, cache.block)
        found = cache.match(keys)
        assert found == self.naive.match(keys)
        tokens = max(min(computed, len(prompt)), found * cache.block)
        held = self.naive.held()
        fresh = sequence_blocks(tokens, cache.block) - found
        woken = sum(self.naive.known()[key] not in held for key in keys[:found])
        assert cache.need(keys[:found], tokens) == fresh + woken
        if fresh + woken > cache.free:
            self.refused(lambda: cache.admit(seq, keys[:found], tokens))
            return multiple()  # pyright: ignore[reportUnknownVariableType]
        cache.admit(seq, keys[:found], tokens)
        self.naive.admit(seq, keys[:found], tokens)
        self.born += 1
        self.tokens[seq] = prompt[:tokens]
        self.write(seq, found * cache.block)
        return seq

    @rule(seq=sequences, more=few)
    def extend(self, seq: int, more: list[int]) -> None:
        """Append tokens; the block that is copied keeps what it held."""
        cache, covered = self.cache, len(self.tokens[seq])
        tokens, free, last = covered + len(more), cache.free, cache.table(seq)[-1:]
        growth = cache.growth(seq, tokens)
        if growth > free:
            self.refused(lambda: cache.extend(seq, tokens))
            return
        assert cache.extend(seq, tokens) == growth == free - cache.free
        self.naive.cover(seq, tokens)
        own = cache.table(seq)[covered // cache.block :][:1]
        if covered % cache.block and own != last:
            for i in range(covered % cache.block):
                self.memory[own[0], i] = self.memory[last[0], i]
        self.tokens[seq] += more
        self.write(seq, covered)

    @rule(seq=sequences, most=st.integers(0, 9))
    def remember(self, seq: int, most: int = 9) -> None:
        """Make the first full blocks of a sequence known."""
        keys = keys_of(self.tokens[seq], self.cache.block)[:most]
        self.cache.remember(seq, keys)
        self.ever.update(keys)
        for one, key in zip(self.naive.tables[seq], keys, strict=False):
            if key not in self.naive.known():
                one.key = key

    @rule(target=sequences, seq=sequences)
    def fork(self, seq: int) -> int:
        """Sample another answer to the same prompt."""
        child = self.born
        self.born += 1
        self.cache.fork(seq, child)
        self.naive.tables[child] = list(self.naive.tables[seq])
        self.naive.covered[child] = self.naive.covered[seq]
        self.tokens[child] = list(self.tokens[seq])
        return child

    @rule(seq=consumes(sequences), known=st.booleans())
    def release(self, seq: int, known: bool) -> None:
        """End a sequence, once; most leave known blocks behind."""
        if known:
            self.remember(seq)
        self.cache.release(seq)
        self.naive.release(seq)
        del self.tokens[seq]
        with pytest.raises(KeyError):
            self.cache.release(seq)

    @invariant()
    def blocks_are_the_same(self) -> None:
        """Tables share what those of the naive cache share, and every block is accounted for."""
        cache, naive = self.cache, self.naive
        pairs = {
            (block, id(cell))
            for seq, cells in naive.tables.items()
            for block, cell in zip(cache.table(seq), cells, strict=True)
        }
        assert len(pairs) == len({b for b, _ in pairs}) == len({c for _, c in pairs}) == cache.held
        assert all(0 <= block < cache.blocks for block, _ in pairs)
        assert cache.cached == len(naive.idle)
        assert cache.free == naive.empty + len(naive.idle)
        assert (cache.copies, cache.evicted) == (naive.copies, naive.evicted)
        # Which contents are left tells in which order others were evicted.
        known = naive.known()
        assert all(cache.match([key]) == (key in known) for key in self.ever)

    @invariant()
    def everyone_reads_its_own_tokens(self) -> None:
        """No block was written that another sequence reads, found by its content or shared."""
        block = self.cache.block
        for seq, tokens in self.tokens.items():
            table = self.cache.table(seq)
            assert len(table) == sequence_blocks(len(tokens), block)
            assert tokens == [
                self.memory[table[i // block], i % block] for i in range(len(tokens))
            ]  # fmt: skip

    def teardown(self) -> None:
        """Once all sequences are gone all blocks are free."""
        for seq in list(self.tokens):
            self.cache.release(seq)
        assert self.cache.held == 0
        assert self.cache.free == self.cache.blocks


TestPaging = Paging.TestCase
TestPaging.settings = settings(
    derandomize=True, max_examples=120, stateful_step_count=40, deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)  # fmt: skip


def test_samples_of_a_prompt_share_its_blocks_and_copy_the_open_one() -> None:
    """Four samples of 100 + 60 tokens: 22 blocks for 40, 3 copies (arXiv 2309.06180, section 4.4).

    By hand: 6 whole blocks of 16 once, and 4 of each; the last that shares the open block keeps it.
    """
    cache = PagedCache(64, 16)
    cache.admit(0, [], 100)
    for child in (1, 2, 3):
        cache.fork(0, child)
    assert cache.held == 7
    original = cache.table(0)[6]
    for tokens in range(101, 161):
        for seq in range(4):
            cache.extend(seq, tokens)

    assert cache.held == sampled_blocks(4, 100, 60, 16) == 22
    assert sum(len(cache.table(seq)) for seq in range(4)) == 4 * sequence_blocks(160, 16) == 40
    assert cache.copies == sample_copies(4, 100, 16) == 3
    assert [cache.table(seq)[6] == original for seq in range(4)] == [False, False, False, True]
    for seq in range(4):
        cache.release(seq)
    assert cache.free == 64


@pytest.mark.parametrize("prompt", [1, 15, 16, 17, 96, 100])
@pytest.mark.parametrize("samples", [1, 2, 5])
def test_closed_forms_of_samples_count_what_the_cache_holds(prompt: int, samples: int) -> None:
    """Blocks and copies of any number of samples after any prompt."""
    cache = PagedCache(200, 16)
    cache.admit(0, [], prompt)
    for child in range(1, samples):
        cache.fork(0, child)
    for steps in (1, 2, 40):
        for seq in range(samples):
            cache.extend(seq, prompt + steps)

        assert cache.held == sampled_blocks(samples, prompt, steps, 16)
        assert cache.copies == sample_copies(samples, prompt, 16)


def test_a_sequence_has_a_block_for_each_begun_one() -> None:
    """4097 tokens are 257 blocks of 16, 74 such sequences fit 19,073 blocks (by hand: division)."""
    cache = PagedCache(19073, 16)
    seq = 0
    while cache.need([], 4097) <= cache.free:
        cache.admit(seq, [], 4097)
        seq += 1

    assert (seq, len(cache.table(0))) == (74, 257)
    assert cache.free == 19073 - 74 * 257
    with pytest.raises(RuntimeError, match="257 blocks are asked for and 55 are free"):
        cache.admit(seq, [], 4097)


def test_the_last_block_is_half_empty_on_average() -> None:
    """Over whole blocks of lengths (block - 1)/2 tokens are unfilled: 7.5 of 16.

    Source: arXiv 2309.06180, sections 4.1 to 4.3: waste is within the last block; the mean of 0 to
    15.
    """
    cache = PagedCache(10, 16)
    cache.admit(0, [], 0)
    unfilled: list[int] = []
    for tokens in range(1, 129):
        cache.extend(0, tokens)
        unfilled.append(16 * cache.held - tokens)
        assert unfilled[-1] == unfilled_tokens(tokens, 16)

    assert sum(unfilled) / len(unfilled) == mean_unfilled_tokens(16) == 7.5


def prompt(*parts: tuple[str, int]) -> list[Key]:
    """Name the full blocks of four tokens of a prompt that is made of parts."""
    return keys_of([(name, i) for name, n in parts for i in range(n)], 4)


def test_the_example_of_the_documentation() -> None:
    """Three requests in ten blocks of four tokens, as docs.vllm.ai, design/prefix_caching has them.

    Blocks 2, 1 and 0 of the first are found as there. The engine then evicts block 3 while block 6
    is behind it in its queue; here block 6, which holds nothing to be found, is taken first.
    """
    cache = PagedCache(10, 4)
    first = prompt(("a", 16))
    cache.admit(0, [], 15)
    cache.remember(0, first[:3])
    assert cache.table(0) == [0, 1, 2, 3]
    assert cache.extend(0, 17) == 1
    cache.remember(0, first)
    second = prompt(("a", 10), ("b", 4))
    assert cache.match(second) == 2
    assert cache.need(second[:2], 14) == 2
    cache.admit(1, second[:2], 14)
    cache.remember(1, second)
    assert cache.table(1) == [0, 1, 5, 6]
    cache.release(0)
    assert (cache.free, cache.cached, cache.held) == (6, 2, 4)
    cache.release(1)
    assert (cache.free, cache.cached, cache.held) == (10, 5, 0)
    third = prompt(("a", 12), ("c", 17))
    assert cache.match(third) == 3
    assert cache.need(third[:3], 29) == 8
    cache.admit(2, third[:3], 29)

    assert cache.table(2)[:3] == [0, 1, 2]
    assert set(cache.table(2)[3:]) == {4, 6, 7, 8, 9}
    assert cache.evicted == 0
    assert cache.extend(2, 33) == 1
    assert cache.table(2)[-1] == 3
    assert cache.evicted == 1


def test_what_was_used_last_is_evicted_last_and_ends_before_beginnings() -> None:
    """Of two idle prompts the older goes first, block by block from its end."""
    cache = PagedCache(6, 4)
    old, new = prompt(("a", 12)), prompt(("b", 12))
    for seq, keys in enumerate((old, new)):
        cache.admit(seq, [], 12)
        cache.remember(seq, keys)
        cache.release(seq)
    cache.admit(2, old[:1], 4)
    cache.release(2)
    left: list[tuple[int, int]] = []
    cache.admit(3, [], 0)
    for blocks in range(1, 7):
        cache.extend(3, 4 * blocks)
        left.append((cache.match(old), cache.match(new)))

    # The first block of the older prompt was used again, after all of the newer one.
    assert left == [(2, 3), (1, 3), (1, 2), (1, 1), (1, 0), (0, 0)]
    assert cache.evicted == 6


def test_of_two_blocks_with_one_content_the_older_is_found() -> None:
    """Two equal prompts that were computed at the same time leave one of them behind."""
    cache = PagedCache(6, 4)
    keys = prompt(("a", 8))
    for seq in (0, 1):
        cache.admit(seq, [], 9)
    for seq in (0, 1):
        cache.remember(seq, keys)
    cache.admit(2, keys, 8)
    assert cache.table(2) == cache.table(0)[:2]
    for seq in (0, 1, 2):
        cache.release(seq)

    assert (cache.cached, cache.free) == (2, 6)


def test_slips_of_the_caller_are_refused() -> None:
    """Unknown and doubled sequences, blocks that are not full, and tables that shrink."""
    with pytest.raises(ValueError, match="no pool"):
        PagedCache(4, 0)
    cache = PagedCache(4, 4)
    cache.admit(0, [], 7)
    for act in (cache.release, cache.table):
        with pytest.raises(KeyError):
            act(1)
    with pytest.raises(KeyError):
        cache.extend(1, 4)
    with pytest.raises(KeyError):
        cache.fork(1, 2)
    with pytest.raises(KeyError):
        cache.admit(1, ["unknown"], 4)
    with pytest.raises(ValueError, match="has a table"):
        cache.admit(0, [], 4)
    with pytest.raises(ValueError, match="has a table"):
        cache.fork(0, 0)
    with pytest.raises(ValueError, match="more than 6"):
        cache.extend(0, 6)
    with pytest.raises(ValueError, match="has not filled 2 blocks"):
        cache.remember(0, ["a", "b"])
    cache.remember(0, ["a"])
    with pytest.raises(ValueError, match="another key"):
        cache.remember(0, ["b"])
    with pytest.raises(ValueError, match="hold more than 3 tokens"):
        cache.admit(1, ["a"], 3)
    assert (cache.held, cache.free) == (2, 2)
