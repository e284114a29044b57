"""A `Model` as torch runs it: an embedding, layers, a head, and the caches of some sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..calc.experts import NoFeedForward
from ..calc.model import NORM_WEIGHTS, Group, Model
from . import attend, elementwise
from .attention_layers import AttentionLayer, MLALayer
from .ffn_layers import ExpertsLayer
from .layers import Nothing, make_ffn, make_mixer
from .linears import Linear, held_bytes, make_linear
from .making import Maker, Meter, refused
from .untyped import Tensor, functional, torch

Norm = tuple[Tensor, ...]
"""Gain and bias of a norm; nothing where there is none."""


@dataclass
class Layer:
    """One layer: a mixer and a feed-forward, with norms around them."""

    mixer: Any
    ffn: Any
    norms: list[Norm]
    """Before the mixer, before the feed-forward, and after each where there are four."""
    parallel: bool

    @property
    def has_mixer(self) -> bool:
        """Tell whether there is a mixer."""
        return not isinstance(self.mixer, Nothing)

    @property
    def has_ffn(self) -> bool:
        """Tell whether there is a feed-forward."""
        return not isinstance(self.ffn, Nothing)

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from (*self.mixer.held, *self.ffn.held)
        yield from (t for norm in self.norms for t in norm)


@dataclass
class Network:
    """What runs a model on a device."""

    model: Model
    maker: Maker
    table: Tensor
    positions: Tensor | None
    layers: list[Layer]
    final: Norm
    head: Linear
    gather: Callable[[Tensor], Tensor] | None = None
    """Puts the logits of ranks together; nothing on one device."""
    first_row: int = 0
    """First row of the vocabulary that this rank holds."""
    meter: Meter = field(default_factory=Meter)

    @property
    def held(self) -> Iterator[Tensor]:
        """All weights that are stored, a tied table once."""
        yield self.table
        if not self.model.tied:
            yield from self.head.held
        elif self.model.head_bias:
            yield self.head.held[-1]
        yield from self.final
        if self.positions is not None:
            yield self.positions
        for layer in self.layers:
            yield from layer.held

    @property
    def weights_bytes(self) -> int:
        """Bytes of all weights as torch holds them [B]."""
        return held_bytes(list(self.held))

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        found: dict[str, str] = {}
        for layer in self.layers:
            found |= layer.mixer.kernels | layer.ffn.kernels
        return found | {"head": self.head.kernel}

    def caches(self, B: int, S: int) -> list[Any]:
        """Make empty caches of B sequences of at most S tokens, one for each layer."""
        return [
            layer.mixer.cache(B, S, self.maker) if layer.has_mixer else None
            for layer in self.layers
        ]

    def fill(self, caches: Sequence[Any]) -> None:
        """Fill caches with random numbers, as a context would: pages of zeros may be one page."""
        for cache in caches:
            for held in () if cache is None else cache.held:
                # fp8 has no random numbers of its own; large caches are filled a part at a time.
                for part in held:
                    part.copy_(self.maker.normal(*part.shape).to(part.dtype))

    @torch.no_grad()
    def run(self, tokens: Tensor, n: int, caches: Sequence[Any]) -> Tensor:
        """Compute T new tokens of each sequence after n cached ones: logits of the last, [B, V].

        tokens: [B, T].
        """
        meter = self.meter
        x = meter("embedding", self.embed, tokens, n)
        for layer, cache in zip(self.layers, caches, strict=True):
            x = self.layer(layer, x, n, cache)
        logits = meter("head", self.head, meter("norms", self.norm, self.final, x[:, -1]))
        return logits if self.gather is None else meter("communication", self.gather, logits)

    def embed(self, tokens: Tensor, n: int) -> Tensor:
        """Gather rows of the embedding, and of the positions where they are learned."""
        if self.gather is None:
            x = functional.embedding(tokens, self.table)
        else:
            own = tokens - self.first_row
            here = (own >= 0) & (own < self.table.shape[0])
            x = (
                functional.embedding(own.clamp(0, self.table.shape[0] - 1), self.table)
                * here[..., None]
            )
            x = self.reduced(x)
        if self.positions is not None:
            x = x + self.positions[n : n + tokens.shape[1]]
        return x

    def norm(self, norm: Norm, x: Tensor) -> Tensor:
        """Norm rows."""
        if not norm:
            return x
        if self.model.norm == "rms":
            return elementwise.rms_norm(x, norm[0])
        return elementwise.layer_norm(x, norm[0], norm[1] if len(norm) > 1 else None)

    def layer(self, layer: Layer, x: Tensor, n: int, cache: Any) -> Tensor:
        """Compute one layer."""
        meter, norms = self.meter, layer.norms
        if layer.parallel:
            normed = meter("norms", self.norm, norms[0], x)
            other = normed if len(norms) == 1 else meter("norms", self.norm, norms[1], x)
            out = layer.mixer(normed, n, cache, meter) + layer.ffn(other, meter)
            return x + self.sent(out)
        places = iter(norms)
        after = len(norms) == 4
        if layer.has_mixer:
            out = layer.mixer(meter("norms", self.norm, next(places), x), n, cache, meter)
            out = self.sent(out)
            x = x + (meter("norms", self.norm, norms[2], out) if after else out)
        if layer.has_ffn:
            out = layer.ffn(meter("norms", self.norm, next(places), x), meter)
            out = self.sent(out)
            x = x + (meter("norms", self.norm, norms[3], out) if after else out)
        return x

    def sent(self, x: Tensor) -> Tensor:
        """Add up what the ranks computed, and time it apart."""
        return x if self.maker.reduce is None else self.meter("communication", self.reduced, x)

    def reduced(self, x: Tensor) -> Tensor:
        """Add up what the ranks computed."""
        return x if self.maker.reduce is None else self.maker.reduce(x)

    @property
    def experts(self) -> list[ExpertsLayer]:
        """Layers with experts."""
        return [layer.ffn for layer in self.layers if isinstance(layer.ffn, ExpertsLayer)]

    def touched(self) -> float | None:
        """Distinct experts that a layer's pass touched on average since this was asked; or None."""
        counts = [n for layer in self.experts for n in layer.touched]
        for layer in self.experts:
            layer.touched.clear()
        return sum(map(float, counts)) / len(counts) if counts else None

    @torch.no_grad()
    def choose_attention(self, B: int, S: int, caches: Sequence[Any]) -> str:
        """Choose the fastest kernel of attention for a decode step at context S; name it."""
        kernels = attend.decode_kernels(self.maker.device)
        names: dict[str, None] = {}
        for alike in self._attending(caches).values():
            calls = [mixer.call(mixer.queries(B, 1, self.maker), S - 1, c) for mixer, c in alike]
            name = attend.fastest(kernels, calls)
            for mixer, _ in alike:
                mixer.decode_kernel = kernels[name]
            names[name] = None
        return " and ".join(names)

    @torch.no_grad()
    def choose_prefill(self, B: int, T: int, caches: Sequence[Any]) -> str:
        """Choose the fastest kernel of attention over prompts of T tokens; name it."""
        names: dict[str, None] = {}
        for alike in self._attending(caches).values():
            mixer = alike[0][0]
            kernels = attend.prefill_kernels(mixer.span(T))
            name = attend.fastest_prefill(kernels, *mixer.prompt(B, T, self.maker))
            for one, _ in alike:
                one.prefill_kernel = kernels[name]
            names[name] = None
        return " and ".join(names)

    def _attending(self, caches: Sequence[Any]) -> dict[int, list[tuple[Any, Any]]]:
        """Group layers with attention by their kind, each with its cache."""
        kinds: dict[int, list[tuple[Any, Any]]] = {}
        for layer, cache in zip(self.layers, caches, strict=True):
            if isinstance(layer.mixer, AttentionLayer | MLALayer):
                kinds.setdefault(id(layer.mixer.of), []).append((layer.mixer, cache))
        return kinds


def build(
    model: Model,
    maker: Maker,
    gather: Callable[[Tensor], Tensor] | None = None,
) -> Network:
    """Make a network of random weights.

    model: dimensions as numbers, of a rank where several run; maker: formats and device; gather:
    puts the logits of ranks together. Raises `RooflmError` for what is not run, before anything is
    made.
    """
    check(model)
    D = model.D
    table = maker.normal(model.V, D)
    layers = [_layer(model, group, maker) for group in model.groups for _ in range(group.count)]
    bias = maker.vector(model.V) if model.head_bias else None
    if model.tied:
        head = make_linear(
            table, maker.precision.format_of("embedding").name, bias, maker.keep, pack=False
        )
    else:
        head = maker.matrix(model.V, D, "head", model.head_bias)
    return Network(
        model,
        maker,
        table,
        maker.normal(model.positions, D, shared=True) if model.positions else None,
        layers,
        _norm(model, maker) if model.final_norm else (),
        head,
        gather,
        maker.rank * model.V,
    )


def check(model: Model) -> None:
    """Raise `RooflmError` for models that are not run, before any memory is taken."""
    if model.denoises:
        raise refused("diffusion models")
    if model.residual is not None:
        raise refused("layers with streams or embeddings of their own around them")
    if model.embedding_width is not None:
        raise refused("embeddings of another width")
    for group in model.groups:
        if group.own or group.copies is not None:
            raise refused("layers that share their weights")
        bare = isinstance(group.ffn, NoFeedForward) or group.mixer.kind == "none"
        usual = (1, 2) if model.parallel else (1,) if bare else (2, 4)
        if model.norm != "none" and group.norms not in usual:
            raise refused(f"layers with {group.norms} norms")


def _layer(model: Model, group: Group, maker: Maker) -> Layer:
    return Layer(
        make_mixer(group.mixer, model.D, maker, rotary=not model.positions),
        make_ffn(group.ffn, model.D, maker),
        [_norm(model, maker) for _ in range(group.norms)],
        model.parallel,
    )


def _norm(model: Model, maker: Maker) -> Norm:
    number = NORM_WEIGHTS[model.norm]
    return tuple(maker.gain(model.D, 1.0 if i == 0 else 0.0) for i in range(number))


def held_caches(caches: Sequence[Any]) -> int:
    """Bytes of caches as torch holds them [B]."""
    return held_bytes([t for cache in caches if cache is not None for t in cache.held])
