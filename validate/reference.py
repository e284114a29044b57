"""The same models without caches, in fp32 and position by position: what a step must agree with.

Written from the formulas of the papers, not from the layers beside it: explicit sums over earlier
positions, states from the first token on, every expert of every row by itself.
"""

from __future__ import annotations

from typing import Any

from .attention_layers import AttentionLayer, MLALayer
from .elementwise import BASE, EPSILON
from .ffn_layers import ExpertsLayer, MLPLayer
from .network import Network, Norm
from .state_layers import DeltaLayer, Mamba2Layer
from .untyped import Tensor, functional, torch


@torch.no_grad()
def logits(network: Network, tokens: Tensor) -> Tensor:
    """Compute the logits of every position, [B, T, V], of a network that keeps exact weights.

    tokens: [B, T]. Weights are what the stored numbers stand for; everything is in fp32. Experts
    are those that the network chose for the same tokens, where it has run.
    """
    model = network.model
    x = network.table.float()[tokens]
    if network.positions is not None:
        x = x + network.positions.float()[: tokens.shape[1]]
    for layer in network.layers:
        norms = list(layer.norms)
        if layer.parallel:
            first = _norm(model.norm, norms[0], x)
            second = first if len(norms) == 1 else _norm(model.norm, norms[1], x)
            x = x + _mixer(layer.mixer, first) + _ffn(layer.ffn, second)
            continue
        after = norms[2:] if len(norms) == 4 else []
        norms = norms[:2]
        if layer.has_mixer:
            out = _mixer(layer.mixer, _norm(model.norm, norms.pop(0), x))
            x = x + (_norm(model.norm, after[0], out) if after else out)
        if layer.has_ffn:
            out = _ffn(layer.ffn, _norm(model.norm, norms.pop(0), x))
            x = x + (_norm(model.norm, after[1], out) if after else out)
    x = _norm(model.norm, network.final, x)
    return _linear(network.head, x)


def _linear(linear: Any, x: Tensor) -> Tensor:
    made = x @ linear.exact.T
    return made if linear.bias is None else made + linear.bias.float()


def _norm(kind: str, norm: Norm, x: Tensor) -> Tensor:
    if not norm:
        return x
    gain = norm[0].float()
    if kind != "rms":
        x = x - x.mean(-1, keepdim=True)
    scaled = gain * x / (x.pow(2).mean(-1, keepdim=True) + EPSILON).sqrt()
    return scaled + norm[1].float() if len(norm) > 1 else scaled


def _rms(x: Tensor, gain: Tensor) -> Tensor:
    return _norm("rms", (gain,), x)


def _turn(x: Tensor) -> Tensor:
    """Turn the pairs of [B, T, heads, width] by their positions, as complex numbers."""
    half = x.shape[-1] // 2
    positions = torch.arange(x.shape[1], device=x.device, dtype=torch.float64)
    rates = BASE ** (-torch.arange(half, device=x.device, dtype=torch.float64) / half)
    turns = torch.polar(torch.ones((), dtype=torch.float64), positions[:, None] * rates)
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double()) * turns[:, None]
    return torch.cat((pairs.real, pairs.imag), dim=-1).float()


def _mixer(mixer: Any, x: Tensor) -> Tensor:
    match mixer:
        case AttentionLayer():
            return _attention(mixer, x)
        case MLALayer():
            return _latent(mixer, x)
        case Mamba2Layer():
            return _mamba2(mixer, x)
        case DeltaLayer():
            return _delta(mixer, x)
        case _:
            raise TypeError(type(mixer).__name__)


def _softmax_sum(q: Tensor, keys: Tensor, values: Tensor, scale: float) -> Tensor:
    """One query of each head over its keys: [B, N, H], [B, s, N, H], [B, s, N, v]."""
    scores = torch.einsum("bnh,bsnh->bns", q, keys) * scale
    return torch.einsum("bns,bsnv->bnv", torch.softmax(scores, -1), values)


def _attention(layer: AttentionLayer, x: Tensor) -> Tensor:
    m, (B, T, _) = layer.of, x.shape
    made = _linear(layer.qkv, x)
    ends = torch.tensor([m.N * m.H, m.K * m.H, m.K * m.value_width, m.gate_width]).cumsum(0)
    q, k, v, gate = torch.tensor_split(made, ends[:3].tolist(), dim=-1)
    if m.qk_norm == "width":
        q, k = _rms(q, layer.norms[0]), _rms(k, layer.norms[1])
    q, k = q.reshape(B, T, m.N, m.H), k.reshape(B, T, m.K, m.H)
    if m.qk_norm in ("head", "shared-head"):
        q, k = _rms(q, layer.norms[0]), _rms(k, layer.norms[-1])
    if layer.angles is not None:
        q, k = _turn(q), _turn(k)
    # Every query head with keys and values of its own.
    k = k.repeat_interleave(m.N // m.K, 2)
    v = v.reshape(B, T, m.K, m.value_width).repeat_interleave(m.N // m.K, 2)
    rows: list[Tensor] = []
    for t in range(T):
        first = 0
        if m.window is not None:
            first = max(0, t + 1 - m.window)
        if m.chunk is not None:
            first = t - t % m.chunk
        seen = slice(first, t + 1)
        rows.append(_softmax_sum(q[:, t], k[:, seen], v[:, seen], m.H**-0.5).reshape(B, -1))
    out = torch.stack(rows, 1)
    if m.gate_width:
        own = torch.sigmoid(gate)
        out = out * (own.repeat_interleave(m.value_width, -1) if m.gate == "head" else own)
    return _linear(layer.out, out)


def _latent(layer: MLALayer, x: Tensor) -> Tensor:
    """Keys and values of every head, made of the latents: nothing is absorbed."""
    m, (B, T, _) = layer.of, x.shape
    into = m.N * (m.d + m.r) if m.q is None else m.q
    made = _linear(layer.down, x)
    q, latent, key = made[..., :into], made[..., into : into + m.c], made[..., into + m.c :]
    if layer.up is not None:
        q = _linear(layer.up, _rms(q, layer.norms[1]))
    q = q.reshape(B, T, m.N, m.d + m.r)
    latent = _rms(latent, layer.norms[0])
    q = torch.cat((q[..., : m.d], _turn(q[..., m.d :])), -1)
    turned = _turn(key.reshape(B, T, 1, m.r)).expand(B, T, m.N, m.r)
    keys = torch.einsum("btc,ndc->btnd", latent, layer.keys.float())
    keys = torch.cat((keys, turned), -1)
    values = torch.einsum("btc,nvc->btnv", latent, layer.values.float())
    rows = [
        _softmax_sum(q[:, t], keys[:, : t + 1], values[:, : t + 1], (m.d + m.r) ** -0.5)
        for t in range(T)
    ]
    return _linear(layer.out, torch.stack(rows, 1).reshape(B, T, -1))


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _convolution(x: Tensor, taps: Tensor, bias: Tensor | None) -> Tensor:
    """Causal convolution of each channel over [B, T, channels], by its definition."""
    wide = taps.float()
    out = torch.zeros_like(x)
    for t in range(x.shape[1]):
        for i in range(wide.shape[1]):
            earlier = t - (wide.shape[1] - 1 - i)
            if earlier >= 0:
                out[:, t] += x[:, earlier] * wide[:, i]
    return _silu(out if bias is None else out + bias.float())


def _mamba2(layer: Mamba2Layer, x: Tensor) -> Tensor:
    """Mamba-2 as attention with decays: each output is a sum over all earlier tokens."""
    m, (B, T, _) = layer.of, x.shape
    made = _linear(layer.into, x)
    gate, mixed, step = made.split([m.inner, m.channels, m.heads], -1)
    mixed = _convolution(mixed, layer.taps, layer.conv_bias)
    u, b, c = mixed.split([m.inner, m.groups * m.s, m.groups * m.s], -1)
    per = m.heads // m.groups
    u = u.reshape(B, T, m.heads, m.width)
    b, c = (z.reshape(B, T, m.groups, m.s).repeat_interleave(per, 2) for z in (b, c))
    a, bias, skip = layer.rates.float()
    step = torch.log1p(torch.exp(step + bias))
    fall = torch.cumsum(-step * torch.exp(a), 1)
    out = torch.zeros_like(u)
    for t in range(T):
        for j in range(t + 1):
            kept = torch.exp(fall[:, t] - fall[:, j]) * step[:, j]
            out[:, t] += ((c[:, t] * b[:, j]).sum(-1) * kept)[..., None] * u[:, j]
        out[:, t] += skip[:, None] * u[:, t]
    y = out.reshape(B, T, m.inner) * _silu(gate)
    if layer.norm is not None:
        parts = zip(y.chunk(m.groups, -1), layer.norm.chunk(m.groups), strict=True)
        y = torch.cat([_rms(part, gain) for part, gain in parts], -1)
    return _linear(layer.out, y)


def _delta(layer: DeltaLayer, x: Tensor) -> Tensor:
    """Gated delta rule as a product of matrices: S <- a S (I - b k k') + b v k'."""
    m, (B, T, _) = layer.of, x.shape
    made = _linear(layer.into, x)
    mixed, beta, step, gate = made.split([m.channels, m.value_heads, m.value_heads, m.values], -1)
    mixed = _convolution(mixed, layer.taps, None)
    q, k, v = mixed.split([m.keys, m.keys, m.values], -1)
    per = m.value_heads // m.key_heads
    q, k = (z.reshape(B, T, m.key_heads, m.key).repeat_interleave(per, 2) for z in (q, k))
    q, k = (z / (z.pow(2).sum(-1, keepdim=True) + EPSILON).sqrt() for z in (q, k))
    v = v.reshape(B, T, m.value_heads, m.value)
    a, bias = layer.rates.float()
    decay = torch.exp(-torch.exp(a) * torch.log1p(torch.exp(step + bias)))
    strength = torch.sigmoid(beta)
    held = torch.zeros(B, m.value_heads, m.value, m.key)
    one = torch.eye(m.key)
    rows: list[Tensor] = []
    for t in range(T):
        kk = k[:, t, :, :, None] * k[:, t, :, None, :]
        vk = v[:, t, :, :, None] * k[:, t, :, None, :]
        b = strength[:, t, :, None, None]
        held = decay[:, t, :, None, None] * held @ (one - b * kk) + b * vk
        y = (held @ q[:, t, :, :, None])[..., 0] * m.key**-0.5
        own = gate[:, t].reshape(B, m.value_heads, m.value)
        rows.append((_rms(y, layer.norm) * _silu(own)).reshape(B, m.values))
    return _linear(layer.out, torch.stack(rows, 1))


def _ffn(ffn: Any, x: Tensor) -> Tensor:
    match ffn:
        case MLPLayer():
            return _mlp(ffn, x)
        case ExpertsLayer():
            return _experts(ffn, x)
        case _:
            raise TypeError(type(ffn).__name__)


def _mlp(layer: MLPLayer, x: Tensor) -> Tensor:
    made = _linear(layer.up, x)
    if not layer.of.gated:
        return _linear(layer.down, functional.gelu(made))
    half = made.shape[-1] // 2
    return _linear(layer.down, _silu(made[..., :half]) * made[..., half:])


def _experts(layer: ExpertsLayer, x: Tensor) -> Tensor:
    scores = _linear(layer.router, x)
    # Experts that were nearly tied may be others in 16 bits: those that the step chose, if it ran.
    ids = torch.cat(layer.routes, 1) if layer.routes else scores.topk(layer.of.k, -1).indices
    chosen = torch.full_like(scores, float("-inf"))
    chosen.scatter_(-1, ids, scores.gather(-1, ids))
    shares = torch.softmax(chosen, -1)
    out = torch.zeros_like(x)
    for e, expert in enumerate(layer.experts):
        out += shares[..., e, None] * _mlp(expert, x)
    if layer.shared is not None:
        own = _mlp(layer.shared, x)
        if layer.shared_gate is not None:
            own = own * torch.sigmoid(x @ layer.shared_gate.float())[..., None]
        out += own
    return out
