"""Smaller models of the same kinds of layers: fewer layers to measure, small shapes to check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..calc.model import Group, Model


def cut(model: Model, layers: int) -> Model:
    """Leave about so many layers of a model, in the proportions of its groups, one of each."""
    share = layers / model.layers
    groups = tuple(replace(g, count=max(1, round(g.count * share))) for g in model.groups)
    return replace(model, groups=groups, name=f"{model.name} ({_count(groups)} layers)")


def _count(groups: Sequence[Group]) -> int:
    return sum(g.count for g in groups)


def small(model: Model, width: int = 64, vocabulary: int = 128) -> Model:
    """Make a small model of the same kinds of layers, to check results on.

    One layer of each group; heads keep their sharing, widths are a few tens.
    """
    groups = tuple(replace(g, count=1, mixer=_small(g.mixer), ffn=_small_ffn(g.ffn, width))
                   for g in model.groups)  # fmt: skip
    positions = min(model.positions, 256)
    return replace(model, D=width, V=vocabulary, groups=groups, positions=positions)


SMALL = {
    "H": 32, "H_v": 32, "window": 5, "chunk": 5, "d": 16, "r": 8, "v": 16, "c": 32, "q": 32,
    "heads": 16, "width": 16, "s": 16, "key": 16, "value": 16,
}  # fmt: skip
"""Widths of the layers of a small model; heads are as many as keep their sharing."""


def _small(mixer: Any) -> Any:
    fields = {k: v for k, v in SMALL.items() if getattr(mixer, k, None) not in (None, 0, False)}
    if hasattr(mixer, "K"):
        sharing = max(1, mixer.N // mixer.K)
        fields |= {"N": 2 * min(sharing, 8), "K": 2}
    elif hasattr(mixer, "N"):
        fields["N"] = 4
    if hasattr(mixer, "groups"):
        fields["groups"] = 1 if mixer.groups == 1 else 2
    if hasattr(mixer, "value_heads"):
        sharing = max(1, mixer.value_heads // mixer.key_heads)
        fields |= {"key_heads": 8, "value_heads": 8 * min(sharing, 2)}
    return replace(mixer, **fields) if fields else mixer


def _small_ffn(ffn: Any, width: int) -> Any:
    if hasattr(ffn, "E"):
        shared = width if ffn.shared else 0
        return replace(ffn, F=width, E=min(ffn.E, 8), k=min(ffn.k, 2), shared=shared)
    return replace(ffn, F=2 * width) if hasattr(ffn, "F") else ffn
