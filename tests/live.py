"""Classes of transformers, running: what a step computes, and what it does to its cache.

Published sizes go onto the meta device, which holds shapes and no data; tiny ones onto the CPU.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from rooflm.calc.huggingface import model_of_config
from rooflm.calc.model import Model

# Read when transformers is imported: no look at the network, no advice on its own defaults.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

# Neither package has types that pyright could follow.
torch: Any = importlib.import_module("torch")
transformers: Any = importlib.import_module("transformers")
flop_counter: Any = importlib.import_module("torch.utils.flop_counter")

B = 2
STEPS = ((0, 5), (5, 19), (24, 1))
"""Tokens cached and new: a prompt shorter than the window of 7, a chunk beyond it, a decode."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Run on one thread: matmuls this small wait for each other, tenfold on a busy machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def read(config: dict[str, Any], name: str = "model") -> Model:
    """Read plain data as a config.json."""
    return model_of_config(config, name, "config.json")


def config_of(keys: dict[str, Any]) -> Any:
    """Make the class's own config of some keys."""
    return transformers.AutoConfig.for_model(**keys)


def instantiate(config: Any, device: str, experts: str = "eager") -> Any:
    """Make a decoder with random weights; eager attention is matmuls that can be counted."""
    how = {"attn_implementation": "eager", "experts_implementation": experts}
    with torch.device(device), torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        if config.model_type == "mistral4":
            # Registered as a part of a multimodal model only.
            return transformers.Mistral4ForCausalLM._from_config(config, **how).eval()
        return transformers.AutoModelForCausalLM.from_config(config, **how).eval()


class Step(NamedTuple):
    """What a step of a model did."""

    flops: int
    read: int
    """Cache elements that attention was given, those of the new tokens included."""
    written: int
    held: int
    """Cache elements between this step and the next."""


def run(model: Any, device: str, steps: tuple[tuple[int, int], ...]) -> list[Step]:
    """Run a model, and watch what goes into its cache and comes out."""
    kept = transformers.DynamicCache(config=model.config)
    update = kept.update
    traffic: list[tuple[int, int]] = []

    def watched(keys: Any, values: Any, *rest: Any, **named: Any) -> Any:
        out = update(keys, values, *rest, **named)
        traffic.append((sum(t.numel() for t in out), keys.numel() + values.numel()))
        return out

    kept.update = watched
    done: list[Step] = []
    for _, new in steps:
        traffic.clear()
        flops = step(model, kept, new, device)
        held = sum(layer.keys.numel() + layer.values.numel() for layer in kept.layers)
        read, written = (sum(column) for column in zip(*traffic, strict=True))
        done.append(Step(flops, read, written, held))
    return done


def step(model: Any, kept: Any, new: int, device: str = "cpu") -> int:
    """Run one pass of `new` tokens over a cache, and count its FLOPs."""
    ids = torch.ones(B, new, dtype=torch.long, device=device)
    counter = flop_counter.FlopCounterMode(display=False)
    with torch.no_grad(), counter:
        model(ids, cache=kept, use_cache=True)
    return counter.get_total_flops()
