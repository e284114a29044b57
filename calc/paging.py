"""A paged cache: blocks of tokens that sequences share, copy on write, and remember after them.

Sources: vLLM, arXiv 2309.06180 (PagedAttention: sections 4.1 to 4.4); docs.vllm.ai,
design/prefix_caching (blocks that are found by their content, the least recently used of which is
evicted first). Two things are simpler than in vLLM v1: a block that is filled with what another one
already holds is not found by it, and blocks that hold nothing are taken before any content is
evicted, where the engine takes both as they were freed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence

from .queueing import mean_context
from .readings import Q, ceil, floor, formula
from .sharing import common_once


@formula
def sequence_blocks(S: Q, block: Q) -> Q:
    """Blocks that a sequence takes: ceil(S/block), none beyond a multiple.

    S: tokens of the sequence [tokens]; block: tokens of a block [tokens]. Returns [blocks]. A table
    of them has an entry of 4 B for each (int32). Source: arXiv 2309.06180, section 4.2.

    >>> sequence_blocks(4097, 16), sequence_blocks(4096, 16)
    (257, 256)
    """
    return ceil(S / block)


@formula
def pool_blocks(budget: Q, token_bytes: Q, block: Q) -> Q:
    """Blocks that memory holds: floor(budget/(block token_bytes)).

    budget: memory for the cache [B]; token_bytes: cache of a token in all layers [B]; block: tokens
    of a block [tokens]. Returns [blocks]. With the longest sequence as the block it counts the
    sequences of an engine that reserves all of it, and with 1 the slots of a token. Left out:
    layers with blocks of other sizes. Source: arXiv 2309.06180, sections 3 and 4.2.

    >>> pool_blocks(12 * 2**30, 819200, 1), pool_blocks(12 * 2**30, 819200, 2048)
    (15728, 7)
    """
    return floor(budget / (block * token_bytes))


@formula
def pool_sequences(blocks: Q, S: Q, block: Q) -> Q:
    """Sequences that a pool of blocks holds, nothing shared: floor(blocks/ceil(S/block)).

    blocks: blocks of the pool [blocks]; S: tokens of each sequence [tokens]; block: tokens of a
    block [tokens]. Returns [1]. Source: arXiv 2309.06180, section 4.2.

    >>> pool_sequences(19073, 4097, 16)
    74
    """
    return floor(blocks / sequence_blocks(S, block))


@formula
def unfilled_tokens(S: Q, block: Q) -> Q:
    """Tokens that a sequence leaves empty in its last block: -S mod block.

    S: tokens of the sequence [tokens]; block: tokens of a block [tokens]. Returns [tokens].
    Source: arXiv 2309.06180, section 4.3 (waste is within one block).

    >>> unfilled_tokens(17, 16), unfilled_tokens(16, 16)
    (15, 0)
    """
    return sequence_blocks(S, block) * block - S


@formula
def mean_unfilled_tokens(block: Q) -> Q:
    """Tokens that sequences leave empty in their last block on average: (block - 1)/2.

    block: tokens of a block [tokens]. Returns [tokens]. Holds where all remainders of lengths are
    equally likely; a multiple wastes nothing, so that it is not half a block. Source: the mean of
    `unfilled_tokens` over a block.

    >>> mean_unfilled_tokens(16)
    7.5
    """
    return (block - 1) / 2


@formula
def mean_reserved_use(P: Q, steps: Q, longest: Q) -> Q:
    """Share of a reservation that holds tokens, on average while it decodes.

    P: prompt [tokens]; steps: decode steps [1]; longest: tokens that are reserved [tokens]. Returns
    [1]: (P + (steps + 1)/2)/longest. Source: arXiv 2309.06180, section 3.1 (reservations of the
    longest sequence).

    >>> mean_reserved_use(161.31, 337.99, 2048)
    0.16152587890625
    """
    return mean_context(P, steps) / longest


@formula
def final_reserved_use(P: Q, steps: Q, longest: Q) -> Q:
    """Share of a reservation that holds tokens in the end: (P + steps)/longest.

    P: prompt [tokens]; steps: decode steps [1]; longest: tokens that are reserved [tokens]. Returns
    [1]. The rest is never used. Source: arXiv 2309.06180, section 3.1.

    >>> final_reserved_use(161.31, 337.99, 2048)
    0.243798828125
    """
    return (P + steps) / longest


@formula
def unreserved_share(slots: Q, longest: Q) -> Q:
    """Share of a cache that is left beside as many reservations as it holds.

    slots: tokens that the cache holds [tokens]; longest: tokens of a reservation [tokens]. Returns
    [1]. Left out: fragments between reservations of unlike lengths. Source: arXiv 2309.06180,
    section 3.1 and figure 2 (external fragmentation).

    >>> round(unreserved_share(15728, 2048), 4)
    0.0885
    """
    return 1 - floor(slots / longest) * longest / slots


@formula
def sampled_blocks(B: Q, P: Q, steps: Q, block: Q) -> Q:
    """Blocks of samples of one prompt: its whole blocks once, the rest for each.

    B: samples [1]; P: prompt [tokens]; steps: tokens that each adds, 1 or more [tokens]; block:
    tokens of a block [tokens]. Returns [blocks]. Source: arXiv 2309.06180, section 4.4.

    >>> sampled_blocks(4, 100, 60, 16), 4 * sequence_blocks(160, 16)
    (22, 40)
    """
    return common_once(B, sequence_blocks(P + steps, block), floor(P / block))


@formula
def sample_copies(B: Q, P: Q, block: Q) -> Q:
    """Blocks that samples of one prompt copy before they write: B - 1 of an open one, or none.

    B: samples [1]; P: prompt [tokens]; block: tokens of a block [tokens]. Returns [blocks]. The
    last sample that shares the block keeps it. Source: arXiv 2309.06180, section 4.4.

    >>> sample_copies(4, 100, 16), sample_copies(4, 96, 16)
    (3, 0)
    """
    return (B - 1) * (sequence_blocks(P, block) - floor(P / block))


class PagedCache:
    """Blocks of a cache, the table of each sequence, and content that outlives its sequence.

    A key stands for what a full block holds and all that comes before it, so that equal keys are
    equal caches and only leading ones match; the keys of a sequence differ from each other. A full
    block is never written again. Methods check before they change anything; what they raise are
    slips of the caller.
    """

    def __init__(self, blocks: int, block: int) -> None:
        """Start empty. blocks: of the pool [blocks]; block: tokens of each [tokens]."""
        if blocks < 0 or block < 1:
            raise ValueError(f"no pool of {blocks} blocks of {block} tokens")
        self.blocks, self.block = blocks, block
        self.copies = 0
        """Blocks copied on write."""
        self.evicted = 0
        """Remembered blocks that were overwritten."""
        self._empty = list(range(blocks - 1, -1, -1))
        # Blocks that nobody holds but that are remembered, least recently used first. A plain dict
        # would walk over what was deleted at its front.
        self._idle: OrderedDict[int, None] = OrderedDict()
        self._holders = [0] * blocks
        self._key_of: dict[int, Hashable] = {}
        self._block_of: dict[Hashable, int] = {}
        self._tables: dict[int, list[int]] = {}
        self._tokens: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Blocks that can be taken: empty ones, and remembered ones that nobody holds."""
        return len(self._empty) + len(self._idle)

    @property
    def held(self) -> int:
        """Blocks that sequences hold, each counted once."""
        return self.blocks - self.free

    @property
    def cached(self) -> int:
        """Blocks that nobody holds whose content is remembered."""
        return len(self._idle)

    def table(self, seq: int) -> list[int]:
        """List the blocks of a sequence."""
        return list(self._tables[seq])

    def match(self, keys: Sequence[Hashable]) -> int:
        """Count the leading keys whose content is there, held by others or remembered."""
        known = self._block_of
        for i, key in enumerate(keys):
            if key not in known:
                return i
        return len(keys)

    def need(self, matched: Sequence[Hashable], tokens: int) -> int:
        """Count the free blocks that an admission takes: new ones, and matched ones that were idle.

        matched: keys that `match` has counted; tokens: that the table is to cover, theirs included.
        """
        idle, block_of = self._idle, self._block_of
        new = max(0, -(-tokens // self.block) - len(matched))
        return new + sum(block_of[key] in idle for key in matched)

    def admit(self, seq: int, matched: Sequence[Hashable], tokens: int) -> None:
        """Give a sequence the matched blocks and new ones, as many as cover its tokens."""
        if seq in self._tables:
            raise ValueError(f"sequence {seq} has a table")
        if tokens < len(matched) * self.block:
            raise ValueError(f"{len(matched)} matched blocks hold more than {tokens} tokens")
        self._check(self.need(matched, tokens))
        table = [self._block_of[key] for key in matched]
        # Held before others are taken, or these could be evicted for them.
        self._hold(table)
        table += self._take(-(-tokens // self.block) - len(table))
        self._tables[seq], self._tokens[seq] = table, tokens

    def growth(self, seq: int, tokens: int) -> int:
        """Count the free blocks that a sequence takes to cover more tokens, a copy included."""
        return (
            -(-tokens // self.block) - len(self._tables[seq])
            + (tokens > self._tokens[seq] and self._writes_shared(seq))
        )  # fmt: skip

    def extend(self, seq: int, tokens: int) -> int:
        """Let a table cover as many tokens in all, and tell how many blocks that took.

        An open last block that others hold too is copied before it is written: its last holder
        keeps it.
        """
        table, covered = self._tables[seq], self._tokens[seq]
        if tokens < covered:
            raise ValueError(f"sequence {seq} covers {covered} tokens, more than {tokens}")
        taken = self.growth(seq, tokens)
        self._check(taken)
        if tokens > covered and self._writes_shared(seq):
            self._holders[table[-1]] -= 1
            table[-1:] = self._take(1)
            self.copies += 1
        table += self._take(-(-tokens // self.block) - len(table))
        self._tokens[seq] = tokens
        return taken

    def remember(self, seq: int, keys: Sequence[Hashable]) -> None:
        """Let the first blocks of a sequence, which are full, be found by their content.

        Where another block has the key, that one stays, and this one has none.
        """
        table = self._tables[seq]
        if len(keys) * self.block > self._tokens[seq]:
            raise ValueError(f"sequence {seq} has not filled {len(keys)} blocks")
        own = table[: len(keys)]
        for block, key in zip(own, keys, strict=True):
            if self._key_of.get(block, key) != key:
                raise ValueError(f"block {block} is remembered by another key")
        for block, key in zip(own, keys, strict=True):
            if self._block_of.setdefault(key, block) == block:
                self._key_of[block] = key

    def fork(self, seq: int, child: int) -> None:
        """Let a new sequence share all blocks of another."""
        if child in self._tables:
            raise ValueError(f"sequence {child} has a table")
        table = self._tables[seq]
        self._hold(table)
        self._tables[child], self._tokens[child] = list(table), self._tokens[seq]

    def release(self, seq: int) -> None:
        """Let a sequence go; what nobody else holds is idle if it is remembered, empty if not.

        Later blocks are evicted first: fewer prompts begin with all that is before them.
        """
        table = self._tables.pop(seq)
        del self._tokens[seq]
        holders, remembered = self._holders, self._key_of
        for block in reversed(table):
            holders[block] -= 1
            if not holders[block]:
                if block in remembered:
                    self._idle[block] = None
                else:
                    self._empty.append(block)

    def _writes_shared(self, seq: int) -> bool:
        """Tell whether the next token of a sequence goes into a block that others hold."""
        return self._tokens[seq] % self.block > 0 and self._holders[self._tables[seq][-1]] > 1

    def _check(self, need: int) -> None:
        if need > self.free:
            raise RuntimeError(f"{need} blocks are asked for and {self.free} are free")

    def _hold(self, table: Sequence[int]) -> None:
        """Count one holder more of each block; those that were idle are not any more."""
        for block in table:
            if not self._holders[block]:
                del self._idle[block]
            self._holders[block] += 1

    def _take(self, n: int) -> list[int]:
        """Take blocks: empty ones first, then those least recently used."""
        start = max(0, len(self._empty) - n)
        taken = self._empty[: start - 1 if start else None : -1]
        del self._empty[start:]
        while len(taken) < n:
            block, _ = self._idle.popitem(last=False)
            del self._block_of[self._key_of.pop(block)]
            self.evicted += 1
            taken.append(block)
        for block in taken:
            self._holders[block] = 1
        return taken
