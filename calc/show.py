"""What a model is: parameters by part, bytes by format, cache by layer kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .attention import Attention
from .experts import Experts
from .letters import dimensions
from .memory import BATCHED_TOKENS, BLOCK_TOKENS, paged_chunk_tokens, paged_window_tokens
from .mla import MLA, crossover_tokens
from .mlp import MLP
from .model import (
    Group,
    Model,
    active_parameters,
    cache_elements,
    growing_elements,
    parameters,
    streamed_parameters,
    total_parameters,
)
from .passes import FORMATS, Precision


def show(model: Model, precision: Precision, norms: bool = True) -> dict[str, Any]:
    """Describe a model without hardware; `norms=False` is the lecture's count."""
    parts = parameters(model)
    left_out = 0 if norms else parts["norms"] + parts.get("qk_norm", 0)
    total = total_parameters(model, norms)
    counted = {k: v for k, v in parts.items() if norms or k not in ("norms", "qk_norm")}
    return {
        "schema": "rooflm.show/1",
        "model": model.name,
        "hardware": None,
        "source": model.source,
        "dimensions": dimensions(model),
        "max_context_tokens": model.max_context,
        "parameters": {
            "total": total,
            "active": active_parameters(model) - left_out,
            "streamed": streamed_parameters(model) - left_out,
            **counted,
        },
        "weights_bytes": precision.weights.bytes * total,
        "weights_bytes_by_format": {f.name: f.bytes * total for f in FORMATS.values()},
        "file_bytes": model.file_bytes,
        "cache": cache(model, precision),
        "unusual": list(dict.fromkeys(unusual(model))),
        "assumptions": [
            f"weights {precision.weights.name}, cache {precision.cache.name}",
            "active: used for a token, embeddings included; streamed: read by a decode step at "
            "batch 1 (the input embedding is a gather)",
        ]
        + ([] if norms else ["lecture accounting: parameters without norms"]),
        "provenance": [
            {"field": field, "value": value, "origin": origin}
            for field, value, origin in model.provenance
        ],
    }


def cache(model: Model, precision: Precision) -> dict[str, Any]:
    """Describe what a sequence keeps: what is needed, and what the reference allocates if other."""
    per_token = cache_elements(model, 1)
    growing = growing_elements(model)
    figures = {
        "elements_per_token": per_token,
        "growing_elements_per_token": growing,
        "bytes_per_token": precision.cache.bytes * per_token,
        "state_elements_per_sequence": 0,
        "state_bytes_per_sequence": 0,
    }
    reference = model.reference_kv_elements
    return {
        **figures,
        "layers": cache_layers(model),
        "reference": None
        if reference is None
        else figures
        | {
            "elements_per_token": reference,
            "growing_elements_per_token": reference - per_token + growing,
            "bytes_per_token": precision.cache.bytes * reference,
        },
    }


def cache_layers(model: Model) -> list[dict[str, Any]]:
    """List the kinds of layers by what they keep; layers that differ elsewhere are one kind."""
    kinds: dict[tuple[Any, ...], int] = {}
    for g in model.groups:
        key = (g.mixer.kind, g.mixer.window_tokens, g.mixer.cache_elements(1))
        kinds[key] = kinds.get(key, 0) + g.count
    return [
        {"kind": kind, "count": count, "window_tokens": window, "elements_per_token": elements}
        for (kind, window, elements), count in kinds.items()
    ]


def unusual(model: Model) -> Iterator[str]:
    """Say what a formula for a plain Llama would get wrong about a model."""
    for g in model.groups:
        yield from _unusual_mixer(model, g)
        yield from _unusual_ffn(g)
        if g.norms != 2:
            yield f"{g.norms} block norms a layer, not 2"
    if model.tied:
        yield "the head is the embedding table: stored once, read in full as the head"
    if model.positions:
        yield f"{model.positions:,} learned positions"
    if model.embedding_width is not None:
        yield f"the embedding is {model.embedding_width} wide, with projections to D and back"
    if model.parallel:
        yield "attention and MLP run side by side on the same input"
    if model.norm == "none":
        yield "the norms have no weights"
    if chosen := [f"{f} = {v}" for f, v, o in model.provenance if _by_class(v, o)]:
        yield f"not in the file, so the default of the class: {', '.join(chosen)}"
    for f, value, origin in model.provenance:
        if f in ("K", "H") and origin.startswith("derived: "):
            yield f"not in the file, so {f} = {value} is {origin}"
    held, described = model.file_parameters, total_parameters(model)
    if held is not None and held != described:
        yield (
            f"the weight files hold {held:,} numbers where the config describes {described:,}: "
            "they have other parts as well, or are not of this config"
        )
    if model.reference_kv_elements is not None:
        yield "the reference implementation allocates another cache than is needed"


FAR = 10**12
"""A context longer than any window [tokens]."""


def _reserved(layers: str, tokens: int) -> str:
    return (
        f"a paged engine sets aside up to {tokens:,} tokens a sequence for these "
        f"{layers}: passes of {BATCHED_TOKENS:,} tokens, {BLOCK_TOKENS} a block"
    )


def _by_class(value: str, origin: str) -> bool:
    return "class default" in origin and value not in ("True", "False", "none")


def _unusual_mixer(model: Model, g: Group) -> Iterator[str]:
    layers = f"{g.count} layers" if len(model.groups) > 1 else "layers"
    match g.mixer:
        case Attention() as a:
            if a.N * a.H != model.D:
                yield f"heads are {a.N} x {a.H} = {a.N * a.H} wide, not D = {model.D}"
            if a.K != a.N:
                yield (
                    f"{a.N} query heads share {a.K} key/value heads: the cache is "
                    f"{a.N // a.K} times smaller than with one each"
                )
            if a.window is not None:
                first = f"the first {a.sink_tokens:,} and " if a.sink_tokens else ""
                yield f"{layers} see {first}the last {a.window:,} tokens only, and keep no more"
                yield _reserved(layers, paged_window_tokens(a.window + a.sink_tokens, FAR))
            if a.chunk is not None:
                yield f"{layers} do not look out of chunks of {a.chunk:,} tokens"
                yield _reserved(layers, paged_chunk_tokens(a.chunk, FAR))
            if a.shares:
                yield f"{layers} read the keys and values of another layer and keep none"
            if a.qk_norm != "none":
                yield f"queries and keys are normed ({a.qk_norm})"
            if a.gate != "none":
                yield f"attention outputs are gated ({a.gate})"
            where = [w for w, on in (("qkv", a.qkv_bias), ("out", a.out_bias)) if on]
            if where:
                yield f"biases on {' and '.join(where)}"
        case MLA() as m:
            turn = f"{crossover_tokens(m.c, m.r, m.d, m.v):,.0f}"
            yield (
                f"{layers} cache a latent of {m.c} + {m.r} elements for all {m.N} heads; decode "
                f"absorbs the up-projections; prompts without a cache materialise, as do "
                f"passes of more than {turn} new tokens after a long one"
            )
        case _:
            yield f"{layers} have no attention"


def _unusual_ffn(g: Group) -> Iterator[str]:
    match g.ffn:
        case MLP() as m:
            if not m.gated:
                yield "the MLP is plain: two matrices, not three"
            if m.bias:
                yield "biases on the MLP"
        case Experts() as e:
            shared = f", {e.shared} wide shared experts beside them" if e.shared else ""
            yield f"{g.count} layers have {e.E} experts of which a token chooses {e.k}{shared}"
        case _:
            yield f"{g.count} layers have no feed-forward"
