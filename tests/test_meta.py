"""Presets against the classes of transformers at full size, on a device that holds no data.

The classes count for themselves: parameters are those that a class makes of its own keys, caches
what it keeps of a token that it runs. Neither reads models.yaml, nor anything that rooflm counts.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import pytest

from rooflm.calc.model import Model, cache_elements, total_parameters
from rooflm.calc.presets import MODELS_FILE, find_model, preset_names

from .meta_models import CONFIGS

# Read when transformers is imported: no look at the network, no advice on its own defaults.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# Neither package has types that pyright could follow.
torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")

FAR = 2**30
"""A context beyond all windows, and a whole number of chunks [tokens]."""


@pytest.fixture(scope="module", params=list(CONFIGS))
def made(request: pytest.FixtureRequest) -> tuple[Model, Any]:
    """Give a preset and the decoder that its class makes: shapes without data."""
    config = transformers.AutoConfig.for_model(**CONFIGS[request.param])
    with torch.device("meta"):
        decoder = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    return find_model(request.param), decoder.eval()


def empty_weights(config: Any) -> int:
    """Count the weights that LongCat's class gives its empty experts, and its checkpoint does not.

    Two matrices of three for each of them.
    """
    if config.model_type != "longcat_flash":
        return 0
    expert = 2 * config.hidden_size * config.expert_ffn_hidden_size
    return config.num_layers * config.zero_expert_num * expert


def same(hidden: Any, *_: Any, **__: Any) -> Any:
    """Give back what came in."""
    return hidden


def kept(decoder: Any) -> list[tuple[int, int]]:
    """Run one token and list what each layer keeps of it, and of how many tokens at most.

    States, which do not grow, count nothing. Experts and norms pass on what they are given, since
    neither touches the cache: which expert is chosen is not told by shapes, and norms take time.
    """
    for part in decoder.modules():
        if type(part).__name__.endswith(("Experts", "Norm")):
            part.forward = same
    cache = transformers.DynamicCache(config=decoder.config)
    with torch.no_grad():
        decoder(torch.ones(1, 1, dtype=torch.long, device="meta"), cache=cache, use_cache=True)
    found: list[tuple[int, int]] = []
    for layer in cache.layers:
        tensors = [getattr(layer, part, None) for part in ("keys", "values", "indexer_keys")]
        elements = sum(t.numel() for t in tensors if t is not None)
        found.append((elements, layer.sliding_window if layer.is_sliding else FAR))
    return found


def test_most_presets_are_compared() -> None:
    """At least 60 presets have a class, and every row is a preset."""
    assert len(CONFIGS) >= 60
    assert set(CONFIGS) <= set(preset_names(MODELS_FILE))


def test_parameters_of_a_preset_are_those_of_its_class(made: tuple[Model, Any]) -> None:
    """Total parameters equal the class's to the last weight, a shared table counted once."""
    preset, decoder = made
    number = sum(p.numel() for p in decoder.parameters()) - empty_weights(decoder.config)

    assert number == total_parameters(preset)


def test_cache_of_a_preset_grows_as_that_of_its_class(made: tuple[Model, Any]) -> None:
    """A second token adds what the class keeps of it, and a far one what the windows leave.

    Falcon's new decoder repeats keys and values for all query heads first.
    """
    preset, decoder = made
    layers = kept(decoder)
    one = cache_elements(preset, 1)
    repeats = 1 if preset.reference_kv_elements is None else preset.reference_kv_elements / one
    for S in (2, FAR):
        grown = sum(elements * (min(S, window) - 1) for elements, window in layers)

        assert grown == repeats * (cache_elements(preset, S) - one)
