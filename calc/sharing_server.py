"""Servers whose caches are more than a count of blocks: shared by content, or one piece each."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, Any

from .clock import Served
from .paging import PagedCache
from .scheduler import Server

if TYPE_CHECKING:
    from .workload import Workload

KeysOf = Callable[[int, int], list[Hashable]]
"""Keys of the content of the first blocks of a request: of request i, so many of them."""


def keys_of(workload: Workload, block: int) -> KeysOf:
    """Tell what the blocks of requests hold: of a prefix, of a conversation, or their own.

    A block is of a prefix where all of it is; from there on it is of the conversation, whose next
    turn begins with all that was said, or of the request alone.
    """
    known: dict[int, list[Hashable]] = {}

    def keys(i: int, blocks: int) -> list[Hashable]:
        """Take the first keys of a request, which are made once."""
        found = known.get(i)
        if found is None or len(found) < blocks:
            if len(known) >= MOST_KNOWN:
                known.clear()
            found = known[i] = made(
                i, max(blocks, (workload.prompt[i] + workload.output[i]) // block)
            )
        return found[:blocks]

    def made(i: int, blocks: int) -> list[Hashable]:
        name = workload.prefix[i] if workload.prefix else ""
        common = min(blocks, workload.prefix_tokens[i] // block) if name else 0
        said = workload.session[i] if workload.session else ""
        own = ("s", name, said) if said else ("r", name, i)
        shared: list[Hashable] = [("p", name, j) for j in range(common)]
        return [*shared, *((*own, j) for j in range(common, blocks))]

    return keys


MOST_KNOWN = 1024
"""Requests whose keys are kept at hand: more than run at once."""


class SharingServer(Server):
    """A server that finds the beginnings of prompts in its cache (automatic prefix caching).

    Whole blocks of equal content are held once; what nobody holds stays until its room is needed,
    least recently used first. Source: docs.vllm.ai, design, automatic prefix caching.
    """

    shares = True

    def __init__(self, *args: Any, keys: KeysOf, **kwargs: Any) -> None:
        """Start with an empty cache; keys: see `keys_of`."""
        super().__init__(*args, **kwargs)
        self.cache = PagedCache(self.limits.pool, self.limits.block)
        self.keys = keys
        self.asked_tokens = self.found_tokens = 0
        # What was matched last, of which request, and in which state of the cache.
        self._last_match: tuple[int, int, int, Sequence[Hashable]] = (-1, -1, -1, ())
        self._changes = 0

    def _matched(self, head: Served) -> Sequence[Hashable]:
        """List the leading blocks of a request that are in the cache; its last token never is."""
        i, whole, changes, matched = self._last_match
        if (i, whole, changes) != (head.i, head.whole, self._changes):
            keys = self.keys(head.i, (head.whole - 1) // self.limits.block)
            matched = keys[: self.cache.match(keys)]
            self._last_match = (head.i, head.whole, self._changes, matched)
        return matched

    def found(self, head: Served) -> int:
        """Count the tokens of a waiting request that are in the cache already."""
        return len(self._matched(head)) * self.limits.block

    def found_in(self, i: int, tokens: int) -> int:
        """Count the leading tokens of a request that are in the cache."""
        block = self.limits.block
        return self.cache.match(self.keys(i, (tokens - 1) // block)) * block

    def need(self, head: Served, tokens: int) -> int:
        """Count the blocks that an admission takes of those that are free."""
        return self.cache.need(self._matched(head), tokens)

    def take(self, head: Served, tokens: int, need: int) -> None:
        """Admit a request: it holds what was found, and takes the rest."""
        del need
        matched = self._matched(head)
        self.cache.admit(head.i, matched, tokens)
        self.free = self.cache.free
        self._changes += 1
        self.asked_tokens += head.whole
        self.found_tokens += len(matched) * self.limits.block

    def growth(self, sequence: Served, tokens: int) -> int:
        """Count the blocks that the next chunk of a prompt takes."""
        return self.cache.growth(sequence.i, tokens)

    def grow(self, sequence: Served, tokens: int) -> None:
        """Let the table of a prompt under way cover more tokens."""
        self.cache.extend(sequence.i, tokens)
        self.free = self.cache.free
        self._changes += 1

    def give(self, sequence: Served, tokens: int) -> None:
        """Let a sequence go; its full blocks are remembered."""
        self.cache.remember(sequence.i, self.keys(sequence.i, tokens // self.limits.block))
        self.cache.release(sequence.i)
        self.free = self.cache.free
        self._changes += 1

    def make_room(self, index: int) -> tuple[bool, int]:
        """Take blocks for one sequence after the other: what is freed meanwhile is taken next."""
        gave_way = False
        for sequence in list(self.running):
            cached = sequence.cached + self.steps - sequence.since
            while (
                sequence in self.running and self.cache.growth(sequence.i, cached + 1) > self.free
            ):
                self.preempt()
                gave_way = True
            if sequence in self.running:
                if self.cache.extend(sequence.i, cached + 1):
                    self._changes += 1
                self.free = self.cache.free
        return gave_way, 0

    def decoded(self, steps: int) -> None:
        """Let the tables of the sequences that decode cover what the next steps write."""
        cache, now = self.cache, self.steps
        self._changes += 1
        for sequence in self.running:
            cache.extend(sequence.i, sequence.cached + now - sequence.since + steps)

    def computed(self, sequence: Served) -> None:
        """Let others find the full blocks of a chunk."""
        keys = self.keys(sequence.i, sequence.cached // self.limits.block)
        self.cache.remember(sequence.i, keys)
        self._changes += 1


RESERVES = ("longest", "power-of-two", "exact")
"""Ways to reserve a cache in one piece: of the longest that a request may be, of the next power of
two of what it will be, or of just that, which an oracle knows (arXiv 2309.06180, section 6)."""


def reserved_tokens(way: str, prompt: int, output: int, longest: int) -> int:
    """Tokens that are reserved for a request.

    way: of `RESERVES`; prompt, output: of the request [tokens]; longest: that a request may be
    [tokens].
    """
    whole = prompt + output - 1
    if way == "longest":
        return longest
    return whole if way == "exact" else min(longest, 1 << (whole - 1).bit_length())


class ReservingServer(Server):
    """A server that reserves the cache of a request in one piece: first fit among the holes.

    The baseline of paging (arXiv 2309.06180, sections 3 and 6): nothing gives way, and what is
    reserved and not used, or free in pieces too small, is lost. The pool is counted in tokens.
    """

    def __init__(self, *args: Any, size_of: Callable[[int, int], int], **kwargs: Any) -> None:
        """Start empty; size_of: tells the tokens that are reserved for a prompt and an output."""
        super().__init__(*args, **kwargs)
        self.size_of = size_of
        # Holes by their start, in order: start, length.
        self.holes: list[tuple[int, int]] = [(0, self.limits.pool)]
        self.regions: dict[int, tuple[int, int]] = {}

    def need(self, head: Served, tokens: int) -> int:
        """Count the tokens that are reserved; more than there are where no hole is wide enough."""
        del tokens
        size = self.size_of(head.prompt, head.output)
        fits = any(length >= size for _, length in self.holes)
        return size if fits else self.limits.pool + 1

    def take(self, head: Served, tokens: int, need: int) -> None:
        """Reserve the first hole that is wide enough."""
        del tokens, need
        size = self.size_of(head.prompt, head.output)
        place = next(i for i, (_, length) in enumerate(self.holes) if length >= size)
        start, length = self.holes[place]
        self.holes[place : place + 1] = [(start + size, length - size)] if length > size else []
        self.regions[head.i] = (start, size)
        self.free -= size

    def growth(self, sequence: Served, tokens: int) -> int:
        """Take nothing more: all of it is reserved."""
        del sequence, tokens
        return 0

    def grow(self, sequence: Served, tokens: int) -> None:
        """Take nothing more."""

    def give(self, sequence: Served, tokens: int) -> None:
        """Free a region, and join it with the holes beside it."""
        del tokens
        start, size = self.regions.pop(sequence.i)
        self.free += size
        holes = sorted([*self.holes, (start, size)])
        joined: list[tuple[int, int]] = []
        for begin, length in holes:
            if joined and joined[-1][0] + joined[-1][1] == begin:
                joined[-1] = (joined[-1][0], joined[-1][1] + length)
            else:
                joined.append((begin, length))
        self.holes = joined
