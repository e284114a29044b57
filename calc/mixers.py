"""The mixers of layers: what each one answers, and where it is.

A new mixer is a frozen dataclass in a file of its own and a line of `WHERE`. Only the files that a
model needs are imported.
"""

from __future__ import annotations

import dataclasses
import importlib
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from .passes import Operator, Precision, Segment
from .readings import Q
from .state import Kept
from .weights import Tensor


class Mixer(Protocol):
    """What mixes the tokens of a layer: attention of some kind, or a recurrent state."""

    LETTERS: ClassVar[dict[str, str]]
    """Fields that are dimensions, and their letters in docs/nomenclature.md."""

    @property
    def kind(self) -> str:
        """Name of the kind, which groups of layers and tables go by."""
        ...

    @property
    def window_tokens(self) -> Q | None:
        """Most tokens that a sequence keeps; None without limit [tokens]."""
        ...

    @property
    def token_elements(self) -> Q:
        """Elements that a token of a short context adds to the cache [elements]."""
        ...

    @property
    def reference_token_elements(self) -> Q:
        """Elements of a token in the reference implementation [elements]."""
        ...

    @property
    def growing_elements(self) -> Q:
        """Cache elements that a further token adds beyond all windows [elements]."""
        ...

    @property
    def state(self) -> Kept:
        """What a sequence needs whatever its length."""
        ...

    @property
    def reference_state(self) -> Kept:
        """What the reference implementation keeps of it."""
        ...

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer, D the model width."""
        ...

    def parameters(self, D: Q) -> dict[str, Q]:
        """Count the parameters of one layer by part, D the model width."""
        ...

    def cache_elements(self, S: Q) -> Q:
        """Count the elements that one layer keeps for a sequence of S tokens beside its state."""
        ...

    def token_bytes(self, precision: Precision) -> Q:
        """Bytes that a token of a short context adds to the cache, scales included [B]."""
        ...

    def growing_bytes(self, precision: Precision) -> Q:
        """Bytes that a further token adds to the cache beyond all windows [B]."""
        ...

    def cache_bytes(self, S: Q, precision: Precision) -> Q:
        """Bytes that one layer keeps for a sequence of S tokens beside its state [B]."""
        ...

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        ...

    def unusual(self, D: Q, layers: str) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong; `layers` names the layers."""
        ...


WHERE: dict[str, str] = {
    "mla": "mla.MLA",
    "mamba": "ssm.Mamba",
    "mamba2": "ssm.Mamba2",
    "linear": "linear_attention.LinearAttention",
    "delta": "linear_attention.DeltaNet",
    "rwkv4": "rwkv.RWKV4",
    "rwkv7": "rwkv.RWKV7",
    "rg_lru": "rglru.RGLRU",
    "conv": "short_conv.ShortConv",
    "mlstm": "mlstm.MLSTM",
    "compressed": "compressed.Compressed",
}
"""Key of a mixer in an entry, and the class that it is: every mixer but plain attention."""

MixerClass: TypeAlias = Any
"""A dataclass that answers as `Mixer` does, with ABOUT: what each key of its map means."""


def mixer_class(key: str) -> MixerClass:
    """Import the class of a mixer."""
    module, _, name = WHERE[key].partition(".")
    return getattr(importlib.import_module(f".{module}", __package__), name)


def make(key: str, own: Mapping[str, Any], traits: Mapping[str, Any]) -> Mixer:
    """Make a mixer of the keys of its map; what is not in it comes from traits of the same name."""
    cls = mixer_class(key)
    names = {f.name for f in dataclasses.fields(cls)} - cls.ABOUT.keys()
    shared = {name: traits[name] for name in names if name in traits}
    return cls(**shared, **own)


def misfit(mixer: Mixer) -> str:
    """Say which of a mixer's dimensions do not go together; nothing where they do."""
    for part, whole in getattr(mixer, "DIVIDES", ()):
        a, b = getattr(mixer, part), getattr(mixer, whole)
        if b % a:
            letters: Mapping[str, str] = mixer.LETTERS
            return f"{letters[part]} = {a} does not divide {letters[whole]} = {b}"
    if getattr(mixer, "index_heads", 0) and not getattr(mixer, "m", 1):
        return "an indexer chooses entries, and there are none where m = 0"
    both: Sequence[Mixer] = getattr(mixer, "pair", ())
    for one in both:
        if wrong := misfit(one):
            return wrong
    return ""


def choices(cls: MixerClass, name: str) -> tuple[str, ...]:
    """List the words that a field may hold; none where it is no word."""
    return typing.get_args(typing.get_type_hints(cls)[name])
