"""Presets against the classes of transformers at full size, on a device that holds no data.

The classes count for themselves: parameters are those that a class makes of its own keys, caches
and states what it keeps of a token that it runs. None reads models.yaml, nor anything that rooflm
counts.
"""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest

from rooflm.calc.model import Model, cache_elements, state_elements, total_parameters
from rooflm.calc.presets import MODELS_FILE, find_model, preset_names

from .meta_models import CONFIGS, WITHOUT_CLASS

# Read when transformers is imported: no look at the network, no advice on its own defaults.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# Neither package has types that pyright could follow.
torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")
initialization: Any = importlib.import_module("transformers.initialization")

FAR = 2**30
"""A context beyond all windows, and a whole number of chunks and compressed entries [tokens]."""
ENTRIES = 128
"""Tokens after which each layer with compressed entries has added whole ones [tokens]."""
PASSED_ON = ("Experts", "MLP", "Norm", "NormGated")
"""Ends of the names of parts that touch no cache."""
OWN_CACHE = {"minimax": "cache", "rwkv": "state", "xlstm": "cache"}
"""Classes with a cache of their own, which they make themselves and return by this name."""


@pytest.fixture(scope="module", params=list(CONFIGS))
def made(request: pytest.FixtureRequest) -> tuple[Model, Any]:
    """Give a preset and the decoder that its class makes: shapes without data."""
    config = transformers.AutoConfig.for_model(**CONFIGS[request.param])
    with torch.device("meta"), initialization.no_init_weights():
        decoder = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    decoder.tie_weights()
    return find_model(request.param), decoder.eval()


def empty_weights(config: Any) -> int:
    """Count the weights that LongCat's class gives its empty experts, and its checkpoint does not.

    Two matrices of three for each of them.
    """
    if config.model_type != "longcat_flash":
        return 0
    expert = 2 * config.hidden_size * config.expert_ffn_hidden_size
    return config.num_layers * config.zero_expert_num * expert


class Kept(NamedTuple):
    """What a decoder keeps of a sequence, all layers [elements]."""

    tokens: list[tuple[int, int]]
    """By layer: elements of a token, and of how many tokens at most."""
    entries: int
    """Compressed entries of as many tokens as `ENTRIES` says."""
    state: int
    """What does not grow."""


@pytest.fixture(scope="module")
def kept(made: tuple[Model, Any]) -> Kept:
    """Run the fewest tokens of which every layer keeps something.

    Experts, MLPs, norms and rotations of queries and keys pass on what they are given, since none
    touches the shape of a cache: which expert is chosen is not told by shapes, and the others take
    time. So do the rounds that balance hyper-connections.
    """
    _, decoder = made
    for part in decoder.modules():
        kind = type(part).__name__
        # A mixture that is called an MLP returns its scores too.
        if kind.endswith(PASSED_ON) and not (kind.endswith("MLP") and hasattr(part, "router")):
            part.forward = same
        if hasattr(part, "hc_sinkhorn_iters"):
            part.hc_sinkhorn_iters = 1
    kind = decoder.config.model_type
    tokens = ENTRIES if kind == "deepseek_v4" else 1
    ids = torch.ones(1, tokens, dtype=torch.long, device="meta")
    with torch.no_grad(), unturned(sys.modules[type(decoder).__module__]):
        if kind in OWN_CACHE:
            cache = getattr(decoder(ids, use_cache=True), OWN_CACHE[kind])
        else:
            cache = transformers.DynamicCache(config=decoder.config)
            decoder(ids, cache=cache, use_cache=True)
    layers = getattr(cache, "layers", ())
    entries = sum(size(getattr(layer, "compressed_kv", {}).values()) for layer in layers)
    growing = [layer for layer in layers if getattr(layer, "keys", None) is not None]
    return Kept([of_a_token(layer, kind) for layer in growing], entries, state(decoder, cache))


def same(hidden: Any, *_: Any, **__: Any) -> Any:
    """Give back what came in."""
    return hidden


@contextmanager
def unturned(classes: Any) -> Generator[None]:
    """Leave queries and keys as they are, in a module that turns them together."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave"):
            turn = getattr(classes, name, None)
            if turn is not None and [*inspect.signature(turn).parameters][:3] == ["q", "k", "cos"]:
                patch.setattr(classes, name, both)
        yield


def both(q: Any, k: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
    """Give back two that came in."""
    return q, k


def of_a_token(layer: Any, kind: str) -> tuple[int, int]:
    """Count what a layer keeps of each token, and of how many tokens at most.

    Keys of DeepSeek-V4 are its values, though its class holds a window twice.
    """
    parts = ("keys",) if kind == "deepseek_v4" else ("keys", "values", "indexer_keys", "idx_keys")
    elements = size(getattr(layer, part, None) for part in parts)
    return elements // layer.keys.shape[-2], layer.sliding_window if layer.is_sliding else FAR


def state(decoder: Any, cache: Any) -> int:
    """Count what the class keeps of a sequence whatever its length.

    RecurrentGemma keeps it in its layers. Open windows of DeepSeek-V4 come and go.
    """
    match decoder.config.model_type:
        case "rwkv":
            return size(cache)
        case "xlstm":
            return sum(size(layer) for layer in cache.rnn_state.values())
        case "minimax":
            return size(cache.linear_cache)
        case "recurrent_gemma":
            blocks = [m for m in decoder.modules() if hasattr(m, "conv1d_state")]
            parts = [(b.conv1d_state, b.rg_lru.recurrent_states) for b in blocks]
            return sum(size(tensors) for tensors in parts)
        case _:
            layers = [layer for layer in cache.layers if hasattr(layer, "conv_states")]
            parts = [(layer.conv_states, layer.recurrent_states) for layer in layers]
            return sum(size(tensors.values()) for pair in parts for tensors in pair)


def size(tensors: Iterable[Any]) -> int:
    """Count the elements of tensors, of which some may not be there."""
    return sum(t.numel() for t in tensors if torch.is_tensor(t))


def test_all_presets_with_a_class_are_compared() -> None:
    """Every preset has a row, or a reason why nothing can make it."""
    assert sorted([*CONFIGS, *WITHOUT_CLASS]) == sorted(preset_names(MODELS_FILE))


def test_parameters_of_a_preset_are_those_of_its_class(made: tuple[Model, Any]) -> None:
    """Total parameters equal the class's to the last weight, a shared table counted once."""
    preset, decoder = made
    number = sum(p.numel() for p in decoder.parameters()) - empty_weights(decoder.config)

    assert number == total_parameters(preset)


def test_cache_of_a_preset_grows_as_that_of_its_class(made: tuple[Model, Any], kept: Kept) -> None:
    """A second token adds what the class keeps of it, and a far one what the windows leave.

    Falcon's new decoder repeats keys and values for all query heads first.
    """
    preset, _ = made
    one = cache_elements(preset, 1)
    repeats = preset.reference_kv_elements / one if preset.reference_repeats_heads else 1
    for S in (2, FAR):
        grown = sum(elements * (min(S, window) - 1) for elements, window in kept.tokens)
        grown += kept.entries * (S // ENTRIES)

        assert grown == repeats * (cache_elements(preset, S) - one)


def test_state_of_a_preset_is_that_of_its_class(made: tuple[Model, Any], kept: Kept) -> None:
    """What does not grow is kept as the reference's figure says, or there is none."""
    preset, _ = made

    assert kept.state == state_elements(preset, reference=True)
