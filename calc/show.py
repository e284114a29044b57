"""What a model is: parameters by part, bytes by format, cache by layer kind."""

from __future__ import annotations

from typing import Any

from .model import Model, cache_elements, parameters, streamed_parameters, total_parameters
from .passes import FORMATS, Precision


def show(model: Model, precision: Precision, norms: bool = True) -> dict[str, Any]:
    """Describe a model without hardware; `norms=False` is the lecture's count."""
    parts = parameters(model)
    left_out = 0 if norms else parts["norms"] + parts.get("qk_norm", 0)
    total = total_parameters(model, norms)
    counted = {k: v for k, v in parts.items() if norms or k not in ("norms", "qk_norm")}
    per_token = cache_elements(model, 1)
    return {
        "schema": "rooflm.show/1",
        "model": model.name,
        "hardware": None,
        "source": model.source,
        "dimensions": dimensions(model),
        "max_context_tokens": model.max_context,
        "parameters": {
            "total": total,
            "active": total,
            "streamed": streamed_parameters(model) - left_out,
            **counted,
        },
        "weights_bytes": precision.weights.bytes * total,
        "weights_bytes_by_format": {f.name: f.bytes * total for f in FORMATS.values()},
        "cache": {
            "elements_per_token": per_token,
            "growing_elements_per_token": per_token,
            "bytes_per_token": precision.cache.bytes * per_token,
            "state_elements_per_sequence": 0,
            "state_bytes_per_sequence": 0,
            "layers": [
                {
                    "kind": g.mixer.kind,
                    "count": g.count,
                    "window_tokens": None,
                    "elements_per_token": g.mixer.cache_elements(1),
                }
                for g in model.groups
            ],
            "reference": None,
        },
        "unusual": unusual(model),
        "assumptions": [
            f"weights {precision.weights.name}, cache {precision.cache.name}",
            "active: used for a token, embeddings included; streamed: read by a decode step at "
            "batch 1 (the input embedding is a gather)",
        ]
        + ([] if norms else ["lecture accounting: parameters without norms"]),
    }


def dimensions(model: Model) -> dict[str, Any]:
    """Tell the letters of a model."""
    group = model.groups[0]
    mixer, ffn = group.mixer, group.ffn
    return {
        "D": model.D, "F": ffn.F, "N": mixer.N, "K": mixer.K, "H": mixer.H,
        "L": model.layers, "V": model.V,
    }  # fmt: skip


def unusual(model: Model) -> list[str]:
    """Say what a formula for a plain Llama would get wrong about a model."""
    said: list[str] = []
    for g in model.groups:
        if g.mixer.N * g.mixer.H != model.D:
            said.append(f"heads are {g.mixer.N} x {g.mixer.H} = {g.mixer.N * g.mixer.H} wide, "
                        f"not D = {model.D}")  # fmt: skip
        if g.mixer.K != g.mixer.N:
            said.append(f"{g.mixer.N} query heads share {g.mixer.K} key/value heads: the cache is "
                        f"{g.mixer.N // g.mixer.K} times smaller than with one each")  # fmt: skip
        if not g.ffn.gated:
            said.append("the MLP is plain: two matrices, not three")
        if g.mixer.qk_norm != "none":
            said.append(f"queries and keys are normed ({g.mixer.qk_norm})")
        if g.mixer.qkv_bias or g.mixer.out_bias or g.ffn.bias:
            where = [w for w, on in (("qkv", g.mixer.qkv_bias), ("out", g.mixer.out_bias),
                                     ("mlp", g.ffn.bias)) if on]  # fmt: skip
            said.append(f"biases on {', '.join(where)}")
        if g.norms != 2:
            said.append(f"{g.norms} block norms a layer, not 2")
    if model.tied:
        said.append("the head is the embedding table: stored once, read in full as the head")
    if model.positions:
        said.append(f"{model.positions:,} learned positions")
    if model.embedding_width is not None:
        said.append(
            f"the embedding is {model.embedding_width} wide, with projections to D and back"
        )
    if model.parallel:
        said.append("attention and MLP run side by side on the same input")
    if model.norm == "none":
        said.append("the norms have no weights")
    return said
