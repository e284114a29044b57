"""Whether the step computes what it should: small shapes against a cacheless forward in fp32."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from ..calc.errors import RooflmError
from ..calc.formats import CACHES, FORMATS
from ..calc.model import Model
from ..calc.passes import Precision
from . import reference
from .ffn_layers import groups_matmuls
from .making import Maker
from .network import Network, build
from .shrink import small
from .untyped import Tensor, torch

SEQUENCES, PROMPT, TOKENS = 2, 6, 14
"""Two sequences: a prompt of six tokens, and eight steps over a cache."""

UNCHECKED = dict.fromkeys((
    "relative_error", "allowed", "agrees", "error_against_bf16", "same_token", "checked_on",
))  # fmt: skip
"""What a check has that could not be made."""

TOLERANCES = {"fp32": 1e-4, "fp16": 0.03, "bf16": 0.1, "fp8": 0.2}
"""Relative error of the logits that the numbers of activations and cache explain."""


def agreement(model: Model, precision: Precision, device: Any, seed: int = 0) -> dict[str, Any]:
    """Compare cached steps with a cacheless forward of the same weights, on small shapes.

    Returns the relative error of the logits (root mean square; the largest of all sequences and
    steps), what is allowed, and whether they agree.
    """
    network, tokens = _network(model, precision, device, seed)
    got = cached_logits(network, tokens)
    want = reference.logits(network, tokens)[:, PROMPT - 1 :]
    error = relative_error(got, want)
    kinds = (precision.activations.name, precision.cache.name)
    if any(c.name == "fp8" for c in (precision.weights, *(kind for _, kind in precision.parts))):
        # Activations are rounded to fp8 for such products.
        kinds = (*kinds, "fp8")
    allowed = max(TOLERANCES.get(kind, TOLERANCES["bf16"]) for kind in kinds)
    shown = error if math.isfinite(error) else None
    return {"relative_error": shown, "allowed": allowed, "agrees": error <= allowed}


def format_errors(model: Model, precision: Precision, device: Any, seed: int = 0) -> dict[str, Any]:
    """Tell how far the outputs of a format are from those of bf16, on the same random weights.

    Real weights are not normally distributed: what a format costs a model has to be measured on the
    model itself.
    """
    plain = replace(
        precision, weights=FORMATS["bf16"], cache=CACHES["bf16"], rest=None, parts=(), names=()
    )
    try:
        network, tokens = _network(model, precision, device, seed)
        own = cached_logits(network, tokens)
        network, tokens = _network(model, plain, device, seed)
        usual = cached_logits(network, tokens)
    except RooflmError:
        return {"error_against_bf16": None, "same_token": None, "checked_on": "random weights"}
    same = (own.argmax(-1) == usual.argmax(-1)).float().mean()
    error = relative_error(own, usual, 0.5)
    return {
        "error_against_bf16": error if math.isfinite(error) else None,
        "same_token": float(same),
        "checked_on": "random weights",
    }


def _network(model: Model, precision: Precision, device: Any, seed: int) -> tuple[Network, Tensor]:
    tiny = small(model)
    groups = groups_matmuls(device, precision.activations.name)
    maker = Maker(precision, device, seed, keep=True, groups=groups, most_positions=TOKENS + 1)
    random = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, tiny.V, (SEQUENCES, TOKENS), generator=random).to(device)
    return build(tiny, maker), tokens


def cached_logits(network: Network, tokens: Tensor, prompt: int = PROMPT) -> Tensor:
    """Compute a prompt, then a step for each further token: logits of these, [B, steps, V]."""
    B, T = tokens.shape
    caches = network.caches(B, T)
    rows = [network.run(tokens[:, :prompt], 0, caches)]
    rows += [network.run(tokens[:, n : n + 1], n, caches) for n in range(prompt, T)]
    return torch.stack(rows, 1).float()


def relative_error(got: Tensor, want: Tensor, share: float = 1.0) -> float:
    """Root mean square of a difference over that of what is right, a quantile over the rows."""
    off = (got - want).pow(2).mean(-1).sqrt() / want.pow(2).mean(-1).sqrt()
    return float(torch.quantile(off.flatten().cpu(), share))
