"""What runs between the matrices: norms, rotary positions, gates, and the updates of states.

Plain torch; `fuse(True)` compiles each of them to one kernel, where torch can.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from .linears import compiled
from .untyped import Tensor, functional, torch

EPSILON = 1e-6
BASE = 10000.0
"""Base of rotary positions; which one makes no difference to cost."""

_fuses = False


def fuse(on: bool) -> None:
    """Compile what follows, or do not."""
    global _fuses
    _fuses = on
    if on:
        # Each batch and context is a shape of its own.
        torch._dynamo.config.cache_size_limit = 512


def fuses() -> bool:
    """Tell whether what runs between the matrices is compiled."""
    return _fuses


def fused(function: Callable[..., Any]) -> Callable[..., Any]:
    """Run a function compiled where that was asked for."""

    @wraps(function)
    def run(*args: Any) -> Any:
        return compiled(function)(*args) if _fuses else function(*args)

    return run


@fused
def rms_norm(x: Tensor, gain: Tensor) -> Tensor:
    """Root-mean-square norm over the last axis."""
    return functional.rms_norm(x, (x.shape[-1],), gain, EPSILON)


@fused
def layer_norm(x: Tensor, gain: Tensor, bias: Tensor | None) -> Tensor:
    """Mean and variance norm over the last axis."""
    return functional.layer_norm(x, (x.shape[-1],), gain, bias, EPSILON)


def rotary_tables(positions: int, width: int, device: Any) -> tuple[Tensor, Tensor]:
    """Cosine and sine of each position and pair, [positions, width / 2] in fp32."""
    powers = torch.arange(0, width, 2, device=device, dtype=torch.float32) / width
    angles = torch.arange(positions, device=device, dtype=torch.float32)[:, None] * BASE**-powers
    return angles.cos(), angles.sin()


@fused
def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs (i, i + width/2) of [..., T, heads, width] by [T, width/2] angles."""
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    c, s = cos[:, None, :].to(x.dtype), sin[:, None, :].to(x.dtype)
    return torch.cat((first * c - second * s, second * c + first * s), dim=-1)


@fused
def silu_gate(x: Tensor) -> Tensor:
    """Half of a row gates the other: silu(first) * second."""
    first, second = x.chunk(2, dim=-1)
    return functional.silu(first) * second


@fused
def gelu(x: Tensor) -> Tensor:
    """Activation of plain feed-forwards."""
    return functional.gelu(x)


@fused
def gated_norm(x: Tensor, gate: Tensor, gain: Tensor, groups: int) -> Tensor:
    """Norm of each group of a row that was gated before: Mamba-2."""
    wide = (x.float() * functional.silu(gate.float())).unflatten(-1, (groups, -1))
    normed = functional.rms_norm(wide, (wide.shape[-1],), None, EPSILON)
    return (gain * normed.flatten(-2)).to(gate.dtype)


@fused
def norm_gated(x: Tensor, gate: Tensor, gain: Tensor) -> Tensor:
    """Norm of a row that is gated after: gated DeltaNet."""
    normed = gain * functional.rms_norm(x.float(), (x.shape[-1],), None, EPSILON)
    return (normed * functional.silu(gate.float())).to(gate.dtype)


@fused
def convolve(columns: Tensor, new: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
    """One column of a causal convolution over each channel, then silu.

    columns: [B, channels, taps - 1], the earlier ones, moved on by one in place; new: [B,
    channels]; taps: [channels, taps].
    """
    window = torch.cat((columns.to(new.dtype), new[..., None]), dim=-1)
    columns.copy_(window[..., 1:])
    made = (window * taps).sum(-1)
    return functional.silu(made if bias is None else made + bias)


@fused
def scan_step(
    state: Tensor, x: Tensor, B: Tensor, C: Tensor, step: Tensor, decay: Tensor, skip: Tensor
) -> Tensor:
    """Advance the state of Mamba-2 by a token and read it.

    state: [B, heads, width, s], changed in place; x: [B, heads, width]; B, C: [B, heads, s]; step,
    decay: [B, heads]; skip: [heads]. Returns [B, heads, width] in fp32.
    """
    x32 = x.float()
    update = (step[..., None] * x32)[..., None] * B.float()[:, :, None, :]
    new = state.float() * decay[..., None, None] + update
    state.copy_(new)
    return (new * C.float()[:, :, None, :]).sum(-1) + skip.float()[:, None] * x32


@fused
def delta_step(
    state: Tensor, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor
) -> Tensor:
    """Advance the state of a gated delta rule by a token and read it.

    state: [B, heads, key, value], changed in place; q, k: [B, heads, key]; v: [B, heads, value];
    decay, beta: [B, heads]. Returns [B, heads, value] in fp32.
    """
    old = state.float() * decay[..., None, None]
    recalled = (old * k[..., None]).sum(-2)
    change = (v - recalled) * beta[..., None]
    new = old + k[..., None] * change[..., None, :]
    state.copy_(new)
    return (new * q[..., None]).sum(-2)


@fused
def unit(x: Tensor) -> Tensor:
    """Scale rows to length 1, in fp32."""
    wide = x.float()
    return wide * torch.rsqrt((wide * wide).sum(-1, keepdim=True) + EPSILON)
