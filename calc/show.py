"""What a model is: parameters by part, bytes by format, cache by layer kind."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .experts import Experts, NoFeedForward
from .letters import dimensions
from .memory import (
    BATCHED_TOKENS,
    BLOCK_TOKENS,
    paged_chunk_tokens,
    paged_window_tokens,
    weights_bytes,
)
from .mlp import MLP
from .model import (
    Group,
    Model,
    active_parameters,
    growing_bytes,
    growing_elements,
    parameters,
    sequence_state_bytes,
    state_elements,
    streamed_parameters,
    token_bytes,
    token_elements,
    total_parameters,
)
from .passes import Precision
from .precision import file_told, mixture_told, precision_of, told
from .readings import as_whole

SHOWN = ("fp32", "bf16", "fp8", "int4")
"""Formats of which `show` tells the bytes of all weights."""


def show(model: Model, precision: Precision, norms: bool = True) -> dict[str, Any]:
    """Describe a model without hardware; `norms=False` is the lecture's count."""
    parts = parameters(model)
    left_out = 0 if norms else parts["norms"] + parts.get("qk_norm", 0)
    total = total_parameters(model, norms)
    counted = {k: v for k, v in parts.items() if norms or k not in ("norms", "qk_norm")}
    about: dict[str, Any] = {}
    said: list[str] = []
    if model.adapters is not None:
        from .adapters import described
        from .adapters import told as adapters_told

        about, said = described(model, precision), adapters_told(model, precision)
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
        "extras": dict(model.extras),
        "weights_format": told(precision).removeprefix("weights "),
        "weights_bytes": weights_bytes(model, precision, norms),
        "weights_bytes_by_format": {
            name: weights_bytes(model, precision_of(name, model=model), norms) for name in SHOWN
        },
        "file_bytes": model.file_bytes,
        "cache": cache(model, precision),
        **about,
        "unusual": list(dict.fromkeys(unusual(model))),
        "assumptions": [
            f"{told(precision)}, cache {precision.cache.name}",
            *file_told(model),
            *mixture_told(precision),
            *said,
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
    if model.denoises:
        # Nothing is kept between passes, neither here nor in the reference.
        return dict.fromkeys(CACHE_KEYS) | {"layers": [], "reference": None}
    needed = _kept(model, precision, token_elements(model), reference=False)
    elements = model.reference_kv_elements
    held = token_elements(model) if elements is None else elements
    reference = _kept(model, precision, held, reference=True)
    return {
        **needed,
        "layers": cache_layers(model),
        "reference": None if reference == needed else reference,
    }


CACHE_KEYS = (
    "elements_per_token", "growing_elements_per_token", "bytes_per_token",
    "growing_bytes_per_token", "state_elements_per_sequence", "state_bytes_per_sequence",
)  # fmt: skip


def _kept(model: Model, precision: Precision, elements: Any, reference: bool) -> dict[str, Any]:
    """Describe what a sequence keeps, needed or by the reference, by the keys of the contract."""
    growing = growing_elements(model)
    if reference and model.reference_repeats_heads:
        growing = elements - token_elements(model) + growing
    figures = (
        elements,
        growing,
        token_bytes(model, precision) if not reference else precision.cache.bytes * elements,
        growing_bytes(model, precision) if not reference else precision.cache.bytes * growing,
        state_elements(model, reference),
        sequence_state_bytes(model, precision, reference),
    )
    return dict(zip(CACHE_KEYS, map(as_whole, figures), strict=True))


def cache_layers(model: Model) -> list[dict[str, Any]]:
    """List the kinds of layers by what they keep; layers that differ elsewhere are one kind."""
    kinds: dict[tuple[Any, ...], int] = {}
    for g in model.groups:
        m = g.mixer
        # Layers that read the cache of others keep nothing, however far they look.
        window = m.window_tokens if m.token_elements else None
        key = (m.kind, window, m.token_elements, m.state.elements)
        kinds[key] = kinds.get(key, 0) + g.count
    return [
        {"kind": kind, "count": count, "window_tokens": window, "elements_per_token": elements,
         "state_elements_per_sequence": state}
        for (kind, window, elements, state), count in kinds.items()
    ]  # fmt: skip


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
    if model.residual is not None:
        yield from model.residual.unusual()
    if model.denoises:
        yield "a diffusion model: each pass computes all positions both ways; nothing is cached"
    yield from uncounted(model)
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


def uncounted(model: Model) -> list[str]:
    """Say what a checkpoint holds beside the decoder, which is left out of every figure."""
    return [
        f"not counted: {number:,} parameters of {part}, which the checkpoint holds as well"
        for part, number in model.extras
    ]


def _reserved(layers: str, tokens: int) -> str:
    return (
        f"a paged engine sets aside up to {tokens:,} tokens a sequence for these "
        f"{layers}: passes of {BATCHED_TOKENS:,} tokens, {BLOCK_TOKENS} a block"
    )


def _by_class(value: str, origin: str) -> bool:
    return "class default" in origin and value not in ("True", "False", "none")


def _unusual_mixer(model: Model, g: Group) -> Iterator[str]:
    layers = f"{g.count} layers" if len(model.groups) > 1 else "layers"
    yield from g.mixer.unusual(model.D, layers)
    window = g.mixer.window_tokens if g.mixer.token_elements else None
    if window is not None and g.mixer.kind == "chunked":
        yield _reserved(layers, paged_chunk_tokens(window, FAR))
    elif window is not None:
        yield _reserved(layers, paged_window_tokens(window, FAR))
    if g.copies is not None:
        sets = "one set of weights" if g.copies == 1 else f"{g.copies} sets of weights"
        yield f"{layers} share {sets}: stored once, read and computed with by each layer"


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
        case NoFeedForward():
            yield f"{g.count} layers have no feed-forward"
        case _:
            yield "the feed-forward mixes each token with the one before it (RWKV)"
