"""Attention in torch, over a static cache of keys and values, or of latents.

Sources of what is computed: transformers, models/llama, qwen3, mistral, llama4, deepseek_v3.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ..calc.attention import Attention
from ..calc.errors import RooflmError
from ..calc.mla import MLA
from . import attend, elementwise
from .linears import Linear
from .making import Maker, Meter, cache_dtype, refused
from .untyped import Tensor, torch


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

    def span(self, T: int) -> None:
        """See everything before."""

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
