"""Layers with a state in torch: each token updates it in place.

Sources of what is computed: transformers, models/mamba2 and qwen3_next.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from ..calc.linear_attention import DeltaNet
from ..calc.ssm import Mamba2
from . import elementwise
from .linears import Linear, dtype_of
from .making import Maker, Meter, refused
from .untyped import Tensor, functional, torch


@dataclass
class State:
    """A recurrent state and the columns of its convolution."""

    matrix: Tensor
    columns: Tensor

    @property
    def held(self) -> tuple[Tensor, ...]:
        """What is stored."""
        return (self.matrix, self.columns)


class StateLayer:
    """What layers with a state have in common: projections around an update token by token."""

    into: Linear
    out: Linear
    part = "recurrence projections"

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {self.part: self.into.kernel, "recurrence": _update()}

    def __call__(self, x: Tensor, n: int, cache: State, meter: Meter) -> Tensor:
        """Compute T tokens after n cached ones, [B, T, D]."""
        made = meter(self.part, self.into, x)
        out = meter("recurrence", self.scan, made, cache)
        return meter(self.part, self.out, out)

    @abstractmethod
    def scan(self, made: Tensor, cache: State) -> Tensor:
        """Advance the state by each token in turn."""


@dataclass
class Mamba2Layer(StateLayer):
    """Mamba-2: projections, a convolution, and a state that each token updates."""

    of: Mamba2
    into: Linear
    out: Linear
    taps: Tensor
    conv_bias: Tensor | None
    rates: Tensor
    """Logarithm of the decay, bias of the step, and what skips the state: [3, heads]."""
    norm: Tensor | None

    @classmethod
    def make(cls, mixer: Mamba2, D: int, maker: Maker) -> Mamba2Layer:
        """Make the weights of one layer; raise `RooflmError` for what is not run."""
        m = mixer
        made = m.inner + m.channels + m.heads
        rates = torch.stack(
            (maker.vector(m.heads, 0.5), maker.vector(m.heads), maker.vector(m.heads, 1.0))
        )
        return cls(
            m,
            maker.matrix(made, D, "linear_mixer", m.bias),
            maker.matrix(D, m.inner, "linear_mixer", m.bias),
            maker.normal(m.channels, m.taps, scale=0.5),
            maker.vector(m.channels) if m.conv_bias else None,
            rates,
            maker.vector(m.inner, 1.0) if m.norm else None,
        )

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from (*self.into.held, *self.out.held, self.taps, self.rates)
        yield from (t for t in (self.conv_bias, self.norm) if t is not None)

    def cache(self, B: int, S: int, maker: Maker) -> State:
        """Make the state of B sequences that have not begun."""
        m = self.of
        return _state((B, m.heads, m.width, m.s), (B, m.channels, m.taps - 1), maker)

    def scan(self, made: Tensor, cache: State) -> Tensor:
        """Advance the state by each token in turn."""
        m, (B, T, _) = self.of, made.shape
        rows: list[Tensor] = []
        per = m.heads // m.groups
        a, bias, skip = self.rates
        for t in range(T):
            gate, mixed, step = made[:, t].split([m.inner, m.channels, m.heads], dim=-1)
            mixed = elementwise.convolve(cache.columns, mixed, self.taps, self.conv_bias)
            u, b, c = mixed.split([m.inner, m.groups * m.s, m.groups * m.s], dim=-1)
            b, c = (z.reshape(B, m.groups, m.s).repeat_interleave(per, 1) for z in (b, c))
            step = functional.softplus(step.float() + bias.float())
            decay = torch.exp(-step * torch.exp(a.float()))
            u = u.reshape(B, m.heads, m.width)
            y = elementwise.scan_step(cache.matrix, u, b, c, step, decay, skip)
            y = y.reshape(B, m.inner)
            if self.norm is None:
                rows.append((y * functional.silu(gate.float())).to(gate.dtype))
            else:
                rows.append(elementwise.gated_norm(y, gate, self.norm, m.groups))
        return torch.stack(rows, dim=1)


@dataclass
class DeltaLayer(StateLayer):
    """A gated delta rule: a matrix of each head, corrected by what its key recalls."""

    of: DeltaNet
    into: Linear
    """D to queries, keys, values, strengths, decays and gates."""
    out: Linear
    taps: Tensor
    rates: Tensor
    """Logarithm of the decay and bias of its step: [2, heads]."""
    norm: Tensor

    @classmethod
    def make(cls, mixer: DeltaNet, D: int, maker: Maker) -> DeltaLayer:
        """Make the weights of one layer; raise `RooflmError` for what is not run."""
        m = mixer
        if m.decay != "head" or m.rank is not None:
            raise refused("delta rules with a decay of each channel")
        made = m.channels + 2 * m.value_heads + m.values
        return cls(
            m,
            maker.matrix(made, D, "linear_mixer"),
            maker.matrix(D, m.values, "linear_mixer"),
            maker.normal(m.channels, m.taps, scale=0.5),
            torch.stack((maker.vector(m.value_heads, 0.5), maker.vector(m.value_heads))),
            maker.vector(m.value, 1.0),
        )

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from (*self.into.held, *self.out.held, self.taps, self.rates, self.norm)

    def cache(self, B: int, S: int, maker: Maker) -> State:
        """Make the state of B sequences that have not begun."""
        m = self.of
        return _state((B, m.value_heads, m.key, m.value), (B, m.channels, m.taps - 1), maker)

    def scan(self, made: Tensor, cache: State) -> Tensor:
        """Advance the state by each token in turn."""
        m, (B, T, _) = self.of, made.shape
        rows: list[Tensor] = []
        a, bias = self.rates.float()
        per = m.value_heads // m.key_heads
        for t in range(T):
            widths = [m.channels, m.value_heads, m.value_heads, m.values]
            mixed, beta, step, gate = made[:, t].split(widths, dim=-1)
            mixed = elementwise.convolve(cache.columns, mixed, self.taps, None)
            q, k, v = mixed.split([m.keys, m.keys, m.values], dim=-1)
            q, k = (z.reshape(B, m.key_heads, m.key).repeat_interleave(per, 1) for z in (q, k))
            v = v.reshape(B, m.value_heads, m.value).float()
            decay = torch.exp(-torch.exp(a) * functional.softplus(step.float() + bias))
            query = elementwise.unit(q) * m.key**-0.5
            strength = torch.sigmoid(beta.float())
            y = elementwise.delta_step(cache.matrix, query, elementwise.unit(k), v, decay, strength)
            gates = gate.reshape(B, m.value_heads, m.value)
            rows.append(elementwise.norm_gated(y, gates, self.norm).reshape(B, m.values))
        return torch.stack(rows, dim=1)


def _state(matrix: tuple[int, ...], columns: tuple[int, ...], maker: Maker) -> State:
    precision = maker.precision
    plain = precision.cache.name in ("bf16", "fp16", "fp32")
    kind = precision.cache.name if plain else precision.activations.name
    return State(
        torch.zeros(matrix, dtype=dtype_of(precision.state.name), device=maker.device),
        torch.zeros(columns, dtype=dtype_of(kind), device=maker.device),
    )


def _update() -> str:
    return "compiled update" if elementwise.fuses() else "eager update"
