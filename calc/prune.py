"""Pruning as a what-if: the letters of a narrower or shallower model, and what it keeps."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from .changes import change_model
from .errors import RooflmError
from .letters import dimensions, layer_step
from .memory import weights_bytes
from .model import Model, sequence_state_bytes, token_bytes, total_parameters
from .passes import Precision
from .readings import as_whole
from .show import cache_layers

MULTIPLE = 128
"""Widths of pruned models are multiples of it, as kernels' tiles are [1]."""

NEW = (
    "a model of other dimensions is a new model: its quality has to be measured, of a pruned one "
    "after distillation; rooflm says nothing about quality"
)
SAME_CACHE = (
    "the cache is as it was, for it has only the layers and what each holds of a token (K and H): "
    "the same tokens take as much memory, and a step that reads more cache than weights gains "
    "little"
)


def width(model: Model, share: float, multiple: int = MULTIPLE) -> dict[str, str]:
    """Tell what to set for a model of so much of the width: D, and F of all MLPs and experts.

    share: of each width that is kept [1]; multiple: what widths are rounded to [1]. Heads, latents,
    states and layers stay, as in Minitron (arXiv 2407.14679): N*H need not be D. A width whose
    nearest multiple is not below it is left as it was; D may not be.

    >>> from .presets import find_model
    >>> width(find_model("llama-2-13b"), 0.75)
    {'D': '3840', 'F': '10368'}
    """
    _check(share)
    changes: dict[str, str] = {}
    for letter, now in dimensions(model).items():
        if letter in ("D", "F") or letter.startswith("F_"):
            kept = max(multiple, math.floor(now * share / multiple + 0.5) * multiple)
            changes |= {letter: str(kept)} if kept < now else {}
    if "D" not in changes:
        what = f"{share:g} of a width of {model.D} is no smaller multiple of {multiple}"
        raise RooflmError(what, f"pruning {model.name}", "Keep a smaller share.")
    change_model(model, changes)
    return changes


def depth(model: Model, share: float) -> dict[str, str]:
    """Tell what to set for a model of so many of the layers: L, of which each group has its share.

    share: of the layers that is kept [1]; the nearest number of layers that cuts no group in parts.

    >>> from .presets import find_model
    >>> depth(find_model("llama-3.1-8b"), 0.5)
    {'L': '16'}
    """
    _check(share)
    step = layer_step(model)
    kept = max(step, math.floor(model.layers * share / step + 0.5) * step)
    if kept >= model.layers:
        what = f"{share:g} of {model.layers} layers is no smaller multiple of {step}"
        raise RooflmError(
            what, f"pruning {model.name}", "Keep a smaller share, or set the layers of one group."
        )
    changes = {"L": str(kept)}
    change_model(model, changes)
    return changes


def _check(share: float) -> None:
    if not 0 < share < 1:
        what = f"a pruned model keeps a share between 0 and 1, not {share:g}"
        raise RooflmError(what, "pruning")


def against(given: Model, model: Model, precision: Precision, norms: bool) -> dict[str, Any]:
    """Compare a model with the one that it was made from by `--set`, under the key `changed`.

    Empty where no dimension differs.
    """
    before, after = dimensions(given), dimensions(model)
    letters = [k for k in {**before, **after} if before.get(k) != after.get(k)]
    if not letters:
        return {}

    def figure(of: Callable[[Model], Any]) -> dict[str, Any]:
        old, new = of(given), of(model)
        return {"before": old, "after": new, "kept": new / old if old else None}

    caches = not (given.denoises or model.denoises)
    nothing: dict[str, Any] = {"before": None, "after": None, "kept": None}
    cache = figure(lambda m: as_whole(token_bytes(m, precision))) if caches else nothing
    state = figure(lambda m: as_whole(sequence_state_bytes(m, precision))) if caches else nothing
    parameters = figure(lambda m: total_parameters(m, norms))
    found: dict[str, Any] = {
        "from": {k: before.get(k) for k in letters},
        "to": {k: after.get(k) for k in letters},
        "parameters": parameters,
        "weights_bytes": figure(lambda m: weights_bytes(m, precision, norms)),
        "cache_bytes_per_token": cache,
        "state_bytes_per_sequence": state,
    }
    smaller = parameters["after"] < parameters["before"]
    kept = cache["before"] and cache_layers(given) == cache_layers(model)
    return {"changed": found | {"notes": [NEW, SAME_CACHE] if smaller and kept else [NEW]}}
