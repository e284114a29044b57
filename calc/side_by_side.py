"""Attention and a recurrent state in one layer, on the same input (Falcon-H1)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .mixers import Mixer
from .passes import Operator, Precision, Segment
from .readings import Q
from .state import Kept
from .weights import Tensor, Weighted


@dataclass(frozen=True)
class SideBySide(Weighted):
    """A mixer of two: what either one needs is needed."""

    first: Mixer
    second: Mixer

    LETTERS: ClassVar[dict[str, str]] = {}

    @property
    def pair(self) -> tuple[Mixer, Mixer]:
        """Both of them, each with letters of its own."""
        return self.first, self.second

    @property
    def kind(self) -> str:
        """Name of the kind."""
        return f"{self.first.kind}+{self.second.kind}"

    @property
    def window_tokens(self) -> Q | None:
        """Most tokens that a sequence keeps [tokens]."""
        return self.first.window_tokens

    @property
    def token_elements(self) -> Q:
        """Elements that a token of a short context adds to the cache [elements]."""
        return self.first.token_elements + self.second.token_elements

    @property
    def reference_token_elements(self) -> Q:
        """Elements of a token in the reference implementation [elements]."""
        return self.first.reference_token_elements + self.second.reference_token_elements

    @property
    def growing_elements(self) -> Q:
        """Elements that a further token adds to the cache [elements]."""
        return self.first.growing_elements + self.second.growing_elements

    @property
    def state(self) -> Kept:
        """What a sequence needs whatever its length."""
        return _both(self.first.state, self.second.state)

    @property
    def reference_state(self) -> Kept:
        """What the reference implementation keeps of it."""
        return _both(self.first.reference_state, self.second.reference_state)

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer."""
        yield from self.first.tensors(D)
        yield from self.second.tensors(D)

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens."""
        return self.first.cache_elements(S) + self.second.cache_elements(S)

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes that a token of a short context adds to the cache [B]."""
        return self.first.token_bytes(precision) + self.second.token_bytes(precision)

    def growing_bytes(self, precision: Precision) -> Q:
        """Bytes that a further token adds to the cache beyond all windows [B]."""
        return self.first.growing_bytes(precision) + self.second.growing_bytes(precision)

    def cache_bytes(self, S: Q, precision: Precision) -> Q:
        """Bytes that one layer keeps for a sequence of S tokens beside its state [B]."""
        return self.first.cache_bytes(S, precision) + self.second.cache_bytes(S, precision)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        yield from self.first.operators(D, count, segments, precision)
        yield from self.second.operators(D, count, segments, precision)

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong."""
        yield f"{layers} have {self.first.kind} attention and {self.second.kind} side by side"
        yield from self.first.unusual(D, layers)
        yield from self.second.unusual(D, layers)


def _both(one: Kept, other: Kept) -> Kept:
    return Kept(one.recurrent + other.recurrent, one.columns + other.columns)
