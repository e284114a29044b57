"""Layers in torch: each mixer and feed-forward of a `Model` with weights, a cache and a step.

Where norms stand within a layer, the base of rotary positions and the activation make no difference
to cost, and are the usual ones. Every layer says its kernels, and holds what the ledger counts.
Sources of what they compute: transformers, models/llama, deepseek_v3, mixtral, mamba2, qwen3_next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..calc.attention import Attention
from ..calc.errors import RooflmError
from ..calc.experts import Experts, NoFeedForward
from ..calc.linear_attention import DeltaNet
from ..calc.mla import MLA
from ..calc.mlp import MLP
from ..calc.passes import Precision
from ..calc.ssm import Mamba2
from . import attend, elementwise
from .linears import Linear, dtype_of, make_linear
from .untyped import Tensor, functional, torch

Reduce = Callable[[Tensor], Tensor]
"""Adds up what ranks computed; nothing on one device."""


class Meter:
    """Calls what a layer does, and adds its time up by part where that was asked for."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] | None = None
        self.seconds: dict[str, float] = {}

    def __call__(self, part: str, run: Callable[..., Any], *args: Any) -> Any:
        """Call a function for a part of the step."""
        if self.clock is None:
            return run(*args)
        before = self.clock()
        found = run(*args)
        self.seconds[part] = self.seconds.get(part, 0.0) + self.clock() - before
        return found


@dataclass
class Maker:
    """Makes weights: random, in the formats of a case."""

    precision: Precision
    device: Any
    seed: int = 0
    rank: int = 0
    """Which rank the weights are of: what all ranks hold is the same on each."""
    keep: bool = False
    """Keep what the stored numbers stand for, to check results."""
    reduce: Reduce | None = None
    most_positions: int = 4096
    """Longest context that will be run [tokens]."""

    def __post_init__(self) -> None:
        self.random, self.same = (torch.Generator(device=self.device) for _ in range(2))
        self.random.manual_seed(self.seed + 1000 * self.rank)
        self.same.manual_seed(self.seed + 500)
        self.dtype = dtype_of(self.precision.activations.name)
        self.tables: dict[int, tuple[Tensor, Tensor]] = {}

    def normal(self, *shape: int, scale: float = 1.0, shared: bool = False) -> Tensor:
        """Make normally distributed numbers in the format of the activations.

        shared: the same on all ranks.
        """
        made = torch.empty(shape, dtype=self.dtype, device=self.device)
        return made.normal_(0.0, scale, generator=self.same if shared else self.random)

    def vector(self, length: int, middle: float = 0.0) -> Tensor:
        """Make a vector around a value, as biases are."""
        return self.normal(length, scale=0.1) + middle

    def gain(self, length: int, middle: float = 1.0) -> Tensor:
        """Make the gain of a norm, or its bias: the same on all ranks."""
        return self.normal(length, scale=0.1, shared=True) + middle

    def matrix(
        self, columns: int, rows: int, part: str, bias: bool = False, shared: bool = False
    ) -> Linear:
        """Make a matrix of a part of the model, in the part's format."""
        kind = self.precision.format_of(part).name
        weight = self.normal(columns, rows, scale=rows**-0.5, shared=shared)
        own = self.vector(columns) if bias else None
        return make_linear(weight, kind, own, self.keep)

    def angles(self, width: int) -> tuple[Tensor, Tensor]:
        """Share the tables of rotary positions between layers."""
        if width not in self.tables:
            made = elementwise.rotary_tables(self.most_positions, width, self.device)
            self.tables[width] = made
        return self.tables[width]

    def plain(self, part: str, what: str) -> None:
        """Refuse formats of fewer bits where torch has no kernel that reads them."""
        kind = self.precision.format_of(part)
        if kind.covers != "all":
            found = f"torch has no kernel for {what} in {kind.name}"
            raise RooflmError(found, "--weights", f"Take bf16 for them: {part}=bf16.")


def refused(what: str) -> RooflmError:
    """Say that a kind of layer is not run."""
    return RooflmError(
        f"{what} are not run as torch steps", "MODEL", "`rooflm sweep` counts them all the same."
    )


@dataclass
class KV:
    """Keys and values of one layer, [B, K, slots, H]; a window's slots are used in turn."""

    k: Tensor
    v: Tensor
    window: int | None = None
    chunk: int | None = None

    @property
    def held(self) -> tuple[Tensor, ...]:
        """What is stored."""
        return (self.k, self.v)

    def slots(self, n: int) -> tuple[int, int]:
        """Slot of position n, and how many slots its query sees."""
        if self.chunk is not None:
            return n % self.chunk, n % self.chunk + 1
        if self.window is not None:
            return n % self.window, min(n + 1, self.window)
        return n, n + 1

    def write(self, k: Tensor, v: Tensor, n: int) -> None:
        """Store keys and values of positions n..n+T-1, [B, T, K, H]."""
        T, size = k.shape[1], self.k.shape[2]
        if T == 1:
            slot = self.slots(n)[0]
            self.k[:, :, slot] = k[:, 0].to(self.k.dtype)
            self.v[:, :, slot] = v[:, 0].to(self.v.dtype)
            return
        first = max(n, n + T - size)
        slots = [self.slots(p)[0] for p in range(first, n + T)]
        where = torch.tensor(slots, device=k.device)
        plain_k, plain_v = (t[:, first - n :].transpose(1, 2) for t in (k, v))
        if plain_k.dtype != self.k.dtype:
            plain_k, plain_v = plain_k.to(self.k.dtype), plain_v.to(self.v.dtype)
        # One-byte numbers are moved as bytes: torch indexes no fp8.
        bits = torch.uint8 if self.k.element_size() == 1 else self.k.dtype
        self.k.view(bits)[:, :, where] = plain_k.view(bits)
        self.v.view(bits)[:, :, where] = plain_v.view(bits)

    def read(self, n: int) -> tuple[Tensor, Tensor]:
        """Keys and values that the query at position n sees."""
        seen = self.slots(n)[1]
        return self.k[:, :, :seen], self.v[:, :, :seen]


@dataclass
class AttentionLayer:
    """Softmax attention over a static cache."""

    of: Attention
    qkv: Linear
    out: Linear
    norms: tuple[Tensor, ...]
    angles: tuple[Tensor, Tensor] | None
    part = "attention projections"
    decode_kernel: attend.Kernel = attend.decode_matmul
    prefill_kernel: Any = attend.prefill_sdpa

    @classmethod
    def make(cls, mixer: Attention, D: int, maker: Maker, rotary: bool) -> AttentionLayer:
        """Make the weights of one layer; raise `RooflmError` for what is not run."""
        if mixer.shares or mixer.value_is_key or mixer.inputs != 1:
            raise refused("layers that take keys or values from elsewhere")
        if mixer.extra or mixer.sink_tokens:
            raise refused("attention sinks")
        if type(mixer) is not Attention:
            raise refused(f"layers of kind {mixer.kind}")
        if mixer.gate != "none" and mixer.qkv_bias:
            raise refused("biases beside a gate")
        width = mixer.N * mixer.H + mixer.key_value_width + mixer.gate_width
        qkv = maker.matrix(width, D, "attention", mixer.qkv_bias)
        out = maker.matrix(D, mixer.N * mixer.value_width, "attention", mixer.out_bias)
        lengths = {
            "none": (), "head": (mixer.H, mixer.H), "shared-head": (mixer.H,),
            "width": (mixer.N * mixer.H, mixer.K * mixer.H),
        }[mixer.qk_norm]  # fmt: skip
        norms = tuple(maker.gain(n) for n in lengths)
        return cls(mixer, qkv, out, norms, maker.angles(mixer.H) if rotary else None)

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from (*self.qkv.held, *self.out.held, *self.norms)

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {self.part: self.qkv.kernel}

    def cache(self, B: int, S: int, maker: Maker) -> KV:
        """Make an empty cache of B sequences of at most S tokens."""
        m = self.of
        slots = min(S, m.window_tokens or S)
        dtype = cache_dtype(maker.precision)
        k, v = (
            torch.empty((B, m.K, slots, w), dtype=dtype, device=maker.device)
            for w in (m.H, m.value_width)
        )
        return KV(k, v, m.window, m.chunk)

    def __call__(self, x: Tensor, n: int, cache: KV, meter: Meter) -> Tensor:
        """Compute T tokens after n cached ones, [B, T, D]."""
        q, k, v, gate = meter(self.part, self.project, x, n)
        meter(self.part, cache.write, k, v, n)
        out = meter("attention", self.attend, q, k, v, n, cache)
        return meter(self.part, self.finish, out, gate)

    def project(self, x: Tensor, n: int) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
        """Make queries, keys and values, [B, T, heads, H], normed and rotated."""
        m, (B, T, _) = self.of, x.shape
        widths = [m.N * m.H, m.K * m.H, m.K * m.value_width, m.gate_width]
        q, k, v, gate = self.qkv(x).split(widths, dim=-1)
        if m.qk_norm == "width":
            q, k = elementwise.rms_norm(q, self.norms[0]), elementwise.rms_norm(k, self.norms[1])
        q, k = q.reshape(B, T, m.N, m.H), k.reshape(B, T, m.K, m.H)
        if m.qk_norm in ("head", "shared-head"):
            q, k = elementwise.rms_norm(q, self.norms[0]), elementwise.rms_norm(k, self.norms[-1])
        if self.angles is not None:
            cos, sin = (t[n : n + T] for t in self.angles)
            both = elementwise.rotate(torch.cat((q, k), dim=2), cos, sin)
            q, k = both[:, :, : m.N], both[:, :, m.N :]
        return q, k, v.reshape(B, T, m.K, m.value_width), gate if m.gate_width else None

    def queries(self, B: int, T: int, maker: Maker) -> Tensor:
        """Make random queries, [B, T, N, H]."""
        return maker.normal(B, T, self.of.N, self.of.H)

    def prompt(self, B: int, T: int, maker: Maker) -> tuple[Tensor, Tensor, Tensor, float]:
        """Make what a kernel over prompts is called with."""
        m = self.of
        q = maker.normal(B, m.N, T, m.H)
        return q, maker.normal(B, m.K, T, m.H), maker.normal(B, m.K, T, m.value_width), m.H**-0.5

    def call(self, q: Tensor, n: int, cache: KV) -> tuple[Tensor, Tensor, Tensor, float]:
        """Tell what a decode kernel is called with; q: [B, 1, N, H]."""
        m = self.of
        rows = q.reshape(q.shape[0], m.K, m.N // m.K, m.H)
        return (rows, *cache.read(n), m.H**-0.5)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, n: int, cache: KV) -> Tensor:
        """Attend over the cache (one token) or over the prompt itself."""
        m, (B, T) = self.of, q.shape[:2]
        if T == 1:
            return self.decode_kernel(*self.call(q, n, cache)).reshape(B, 1, -1)
        if n:
            raise RooflmError("a chunk after a cached part is not run as a torch step")
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = self.prefill_kernel(q, k, v, m.H**-0.5, self.span(T))
        return out.transpose(1, 2).reshape(B, T, -1)

    def span(self, T: int) -> attend.Span | None:
        """Tell which keys queries of a prompt see; None for all before them."""
        m = self.of
        if m.chunk is not None and m.chunk < T:
            return attend.chunk_span(m.chunk)
        if m.window is not None and m.window < T:
            return attend.window_span(m.window)
        return None

    def finish(self, out: Tensor, gate: Tensor | None) -> Tensor:
        """Gate and project back."""
        if gate is not None:
            each = self.of.gate == "head"
            own = torch.sigmoid(gate)
            own = own.repeat_interleave(self.of.value_width, -1) if each else own
            out = out * own
        return self.out(out)


@dataclass
class MLALayer:
    """Latent attention: decode over the latents themselves, prompts over keys made of them."""

    of: MLA
    down: Linear
    """D to the queries (or their latent), the latent and the rotary key."""
    up: Linear | None
    """Latent of the queries to the queries."""
    keys: Tensor
    """[N, d, c]"""
    values: Tensor
    """[N, v, c]"""
    out: Linear
    norms: tuple[Tensor, ...]
    """Of the latent, and of that of the queries."""
    angles: tuple[Tensor, Tensor]
    part = "attention projections"
    decode_kernel: attend.Kernel = attend.decode_matmul
    prefill_kernel: Any = attend.prefill_sdpa

    @classmethod
    def make(cls, mixer: MLA, D: int, maker: Maker) -> MLALayer:
        """Make the weights of one layer; raise `RooflmError` for what is not run."""
        if type(mixer) is not MLA or mixer.q_bias or mixer.gate or not mixer.latent_norms:
            raise refused(f"layers of kind {mixer.kind} with further parts")
        maker.plain("attention", "the heads of latent attention")
        m = mixer
        heads = m.N * (m.d + m.r)
        into = heads if m.q is None else m.q
        norms = [maker.vector(m.c, 1.0)]
        if m.q is not None:
            norms.append(maker.vector(m.q, 1.0))
        return cls(
            m,
            maker.matrix(into + m.c + m.r, D, "attention"),
            None if m.q is None else maker.matrix(heads, m.q, "attention"),
            maker.normal(m.N, m.d, m.c, scale=m.c**-0.5),
            maker.normal(m.N, m.v, m.c, scale=m.c**-0.5),
            maker.matrix(D, m.N * m.v, "attention", m.out_bias),
            tuple(norms),
            maker.angles(m.r),
        )

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        more = () if self.up is None else self.up.held
        yield from (*self.down.held, *more, self.keys, self.values, *self.out.held, *self.norms)

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {self.part: self.down.kernel}

    def cache(self, B: int, S: int, maker: Maker) -> KV:
        """Make an empty cache of latents, [B, 1, S, c + r]; values are a part of the keys."""
        shape = (B, 1, S, self.of.c + self.of.r)
        k = torch.empty(shape, dtype=cache_dtype(maker.precision), device=maker.device)
        return Latents(k, k[..., : self.of.c])

    def __call__(self, x: Tensor, n: int, cache: KV, meter: Meter) -> Tensor:
        """Compute T tokens after n cached ones, [B, T, D]."""
        q, latent = meter(self.part, self.project, x, n)
        meter(self.part, cache.write, latent[:, :, None], latent[:, :, None, : self.of.c], n)
        out = meter("attention", self.attend, q, latent, n, cache)
        return meter(self.part, self.out, out)

    def project(self, x: Tensor, n: int) -> tuple[Tensor, Tensor]:
        """Make queries, [B, T, N, d + r], and latents, [B, T, c + r], normed and rotated."""
        m, (B, T, _) = self.of, x.shape
        into = m.N * (m.d + m.r) if m.q is None else m.q
        q, latent, key = self.down(x).split([into, m.c, m.r], dim=-1)
        if self.up is not None:
            q = self.up(elementwise.rms_norm(q, self.norms[1]))
        q = q.reshape(B, T, m.N, m.d + m.r)
        cos, sin = (t[n : n + T] for t in self.angles)
        both = torch.cat((q[..., m.d :], key.reshape(B, T, 1, m.r)), dim=2)
        both = elementwise.rotate(both, cos, sin)
        q = torch.cat((q[..., : m.d], both[:, :, : m.N]), dim=-1)
        normed = elementwise.rms_norm(latent, self.norms[0])
        return q, torch.cat((normed, both[:, :, m.N]), dim=-1)

    def queries(self, B: int, T: int, maker: Maker) -> Tensor:
        """Make random queries, [B, T, N, d + r]."""
        return maker.normal(B, T, self.of.N, self.of.d + self.of.r)

    def prompt(self, B: int, T: int, maker: Maker) -> tuple[Tensor, Tensor, Tensor, float]:
        """Make what a kernel over prompts is called with."""
        m = self.of
        width = m.d + m.r
        q, k = (maker.normal(B, m.N, T, width) for _ in range(2))
        return q, k, maker.normal(B, m.N, T, m.v), width**-0.5

    def call(self, q: Tensor, n: int, cache: KV) -> tuple[Tensor, Tensor, Tensor, float]:
        """Tell what a decode kernel is called with: queries carried into the latent space."""
        m = self.of
        absorbed = torch.bmm(q[:, 0, :, : m.d].transpose(0, 1), self.keys).transpose(0, 1)
        rows = torch.cat((absorbed, q[:, 0, :, m.d :]), dim=-1)
        return (rows[:, None], *cache.read(n), (m.d + m.r) ** -0.5)

    def attend(self, q: Tensor, latent: Tensor, n: int, cache: KV) -> Tensor:
        """Attend over latents (one token), or over keys and values made of the prompt's."""
        m, (B, T) = self.of, q.shape[:2]
        if T == 1:
            found = self.decode_kernel(*self.call(q, n, cache))[:, 0]
            values = torch.bmm(found.transpose(0, 1), self.values.transpose(1, 2))
            return values.transpose(0, 1).reshape(B, 1, -1)
        if n:
            raise RooflmError("a chunk after a cached part is not run as a torch step")
        plain, turned = latent.split([m.c, m.r], dim=-1)
        keys = torch.einsum("btc,ndc->bntd", plain, self.keys)
        values = torch.einsum("btc,nvc->bntv", plain, self.values)
        shared = turned[:, None].expand(B, m.N, T, m.r)
        k = torch.cat((keys, shared), dim=-1)
        out = self.prefill_kernel(q.transpose(1, 2), k, values, (m.d + m.r) ** -0.5, None)
        return out.transpose(1, 2).reshape(B, T, -1)


class Latents(KV):
    """Latents and rotary keys of one layer; values are a view of them."""

    @property
    def held(self) -> tuple[Tensor, ...]:
        """What is stored."""
        return (self.k,)


@dataclass
class State:
    """A recurrent state and the columns of its convolution."""

    matrix: Tensor
    columns: Tensor

    @property
    def held(self) -> tuple[Tensor, ...]:
        """What is stored."""
        return (self.matrix, self.columns)


@dataclass
class Mamba2Layer:
    """Mamba-2: projections, a convolution, and a state that each token updates."""

    of: Mamba2
    into: Linear
    out: Linear
    taps: Tensor
    conv_bias: Tensor | None
    rates: Tensor
    """Logarithm of the decay, bias of the step, and what skips the state: [3, heads]."""
    norm: Tensor | None
    part = "recurrence projections"

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

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {self.part: self.into.kernel, "recurrence": _update()}

    def cache(self, B: int, S: int, maker: Maker) -> State:
        """Make the state of B sequences that have not begun."""
        m = self.of
        return _state((B, m.heads, m.width, m.s), (B, m.channels, m.taps - 1), maker)

    def __call__(self, x: Tensor, n: int, cache: State, meter: Meter) -> Tensor:
        """Compute T tokens after n cached ones, [B, T, D]."""
        made = meter(self.part, self.into, x)
        out = meter("recurrence", self.scan, made, cache)
        return meter(self.part, self.out, out)

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
class DeltaLayer:
    """A gated delta rule: a matrix of each head, corrected by what its key recalls."""

    of: DeltaNet
    into: Linear
    """D to queries, keys, values, strengths, decays and gates."""
    out: Linear
    taps: Tensor
    rates: Tensor
    """Logarithm of the decay and bias of its step: [2, heads]."""
    norm: Tensor
    part = "recurrence projections"

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

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {self.part: self.into.kernel, "recurrence": _update()}

    def cache(self, B: int, S: int, maker: Maker) -> State:
        """Make the state of B sequences that have not begun."""
        m = self.of
        return _state((B, m.value_heads, m.key, m.value), (B, m.channels, m.taps - 1), maker)

    def __call__(self, x: Tensor, n: int, cache: State, meter: Meter) -> Tensor:
        """Compute T tokens after n cached ones, [B, T, D]."""
        made = meter(self.part, self.into, x)
        out = meter("recurrence", self.scan, made, cache)
        return meter(self.part, self.out, out)

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


def cache_dtype(precision: Precision) -> Any:
    """Tell torch's type of the numbers in a cache."""
    if precision.cache.name not in ("bf16", "fp16", "fp32", "fp8"):
        what = f"torch steps are not run with a cache in {precision.cache.name}"
        raise RooflmError(what, "--kv", "Known: bf16, fp16, fp32, fp8.")
    return dtype_of(precision.cache.name)


@dataclass
class MLPLayer:
    """A gated or plain feed-forward layer."""

    of: MLP
    up: Linear
    down: Linear
    part: str = "mlp"

    @classmethod
    def make(cls, ffn: MLP, D: int, maker: Maker, part: str = "mlp", held: str = "mlp") -> MLPLayer:
        """Make the weights of one layer; held: the part whose format it is in."""
        up = maker.matrix((2 if ffn.gated else 1) * ffn.F, D, held, ffn.bias)
        return cls(ffn, up, maker.matrix(D, ffn.F, held, ffn.bias), part)

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from (*self.up.held, *self.down.held)

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {self.part: self.up.kernel}

    def compute(self, x: Tensor) -> Tensor:
        """Compute rows, [..., D]."""
        act = elementwise.silu_gate if self.of.gated else elementwise.gelu
        return self.down(act(self.up(x)))

    def __call__(self, x: Tensor, meter: Meter) -> Tensor:
        """Compute rows, [B, T, D]."""
        return meter(self.part, self.compute, x)


@dataclass
class ExpertsLayer:
    """Routed experts: only those that a token chose are read."""

    of: Experts
    router: Linear
    experts: Sequence[MLPLayer]
    shared: MLPLayer | None
    shared_gate: Tensor | None
    touched: list[int] = field(default_factory=list[int])
    """Distinct experts of each pass since this was emptied."""
    routes: list[Tensor] | None = None
    """Experts of each row of each pass, [B, T, k], kept to check results."""
    part = "experts"

    @classmethod
    def make(cls, ffn: Experts, D: int, maker: Maker) -> ExpertsLayer:
        """Make the weights of one layer; raise `RooflmError` for what is not run."""
        if ffn.zero or ffn.latent is not None:
            raise refused("empty experts, and experts of a width of their own,")
        one = ffn.expert()
        shared = None
        if ffn.shared:
            wide = MLP(ffn.shared, ffn.gated, ffn.bias)
            shared = MLPLayer.make(wide, D, maker, "shared experts", "shared_experts")
        return cls(
            ffn,
            maker.matrix(ffn.choices, D, "router", ffn.router_bias, shared=True),
            [MLPLayer.make(one, D, maker, "experts", "experts") for _ in range(ffn.E)],
            shared,
            maker.normal(D, scale=D**-0.5, shared=True) if ffn.shared and ffn.shared_gate else None,
            routes=[] if maker.keep else None,
        )

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from self.router.held
        for expert in self.experts:
            yield from expert.held
        if self.shared is not None:
            yield from self.shared.held
        if self.shared_gate is not None:
            yield self.shared_gate

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {"experts": f"one by one, {self.experts[0].up.kernel}"}

    def __call__(self, x: Tensor, meter: Meter) -> Tensor:
        """Compute rows, [B, T, D]."""
        flat = x.reshape(-1, x.shape[-1])
        ids, shares = meter("router", self.route, flat)
        if self.routes is not None:
            self.routes.append(ids.reshape(*x.shape[:-1], -1))
        out = meter("experts", self.run_chosen, flat, ids, shares)
        if self.shared is not None:
            own = meter("shared experts", self.shared.compute, flat)
            if self.shared_gate is not None:
                own = own * torch.sigmoid(flat @ self.shared_gate)[:, None]
            out = out + own
        return out.reshape(x.shape)

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Choose k experts of each row, and their shares, which add up to 1."""
        best, ids = torch.topk(self.router(flat).float(), self.of.k, dim=-1)
        return ids, torch.softmax(best, dim=-1)

    def run_chosen(self, flat: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        """Run every expert that was chosen over the rows that chose it."""
        out = torch.zeros_like(flat, dtype=torch.float32)
        chosen: list[int] = torch.unique(ids).tolist()
        self.touched.append(len(chosen))
        for e in chosen:
            rows, place = (ids == e).nonzero(as_tuple=True)
            made = self.experts[e].compute(flat[rows]).float()
            out.index_add_(0, rows, made * shares[rows, place, None])
        return out.to(flat.dtype)


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
