"""Layers in torch: which module makes the mixer and the feed-forward of a `Model`.

Where norms stand within a layer, the base of rotary positions and the activation make no difference
to cost, and are the usual ones. Every layer says its kernels, and holds what the ledger counts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ..calc.attention import Attention
from ..calc.experts import Experts, NoFeedForward
from ..calc.linear_attention import DeltaNet
from ..calc.mla import MLA
from ..calc.mlp import MLP
from ..calc.ssm import Mamba2
from .attention_layers import AttentionLayer, MLALayer
from .ffn_layers import ExpertsLayer, MLPLayer
from .making import Maker, refused
from .state_layers import DeltaLayer, Mamba2Layer
from .untyped import Tensor


@dataclass
class Nothing:
    """A part that a layer lacks."""

    held: tuple[Tensor, ...] = ()
    kernels: dict[str, str] = field(default_factory=dict[str, str])


def make_mixer(mixer: Any, D: int, maker: Maker, rotary: bool) -> Any:
    """Make the mixer of one layer."""
    if isinstance(mixer, Attention):
        return AttentionLayer.make(mixer, D, maker, rotary)
    if isinstance(mixer, MLA):
        return MLALayer.make(mixer, D, maker)
    if isinstance(mixer, Mamba2):
        return Mamba2Layer.make(mixer, D, maker)
    if isinstance(mixer, DeltaNet):
        return DeltaLayer.make(mixer, D, maker)
    if mixer.kind == "none":
        return Nothing()
    raise refused(f"layers of kind {mixer.kind}")


def make_ffn(ffn: Any, D: int, maker: Maker) -> Any:
    """Make the feed-forward of one layer."""
    if isinstance(ffn, MLP):
        return MLPLayer.make(ffn, D, maker)
    if isinstance(ffn, Experts):
        return ExpertsLayer.make(ffn, D, maker)
    if isinstance(ffn, NoFeedForward):
        return Nothing()
    raise refused(f"feed-forwards of kind {type(ffn).__name__}")
