"""What pools of SGLang, TensorRT-LLM and llama.cpp hold of a model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from .case import Case
from .engine_memory import (
    llama_cells,
    llama_window_cells,
    pool_concurrency,
    sglang_states,
    sglang_tokens,
    trtllm_blocks,
)
from .errors import RooflmError
from .formats import CACHES
from .layout import parts
from .memory import largest
from .model import Model, sequence_state_bytes
from .paging import sequence_blocks
from .passes import Precision


@dataclass(frozen=True)
class Sizes:
    """Bytes on a rank."""

    total: float
    weights: float
    run: Mapping[str, float]
    """What only a run can tell, by its name."""
    graphs: float = 0.0
    """CUDA graphs, where they count inside the share."""


@dataclass(frozen=True)
class Pool:
    """What a pool holds."""

    blocks: int | None
    tokens: int
    """As the engine's line says."""
    concurrency: float
    """Requests of the longest length."""
    longest: int
    """Longest request that it holds [tokens]."""
    block: int | None
    request: float
    """Bytes that a request of the longest length takes [B]."""
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kept:
    """Bytes of a token in all layers of a rank, by what layers keep [B]."""

    full: float
    window: float
    keys: float
    """Part of both that is keys or latents."""
    limited: Mapping[int, float]
    """Of window layers, by their window."""
    compressed: bool = False


def kept(model: Model, precision: Precision) -> Kept:
    """Add up what a token takes in layers that keep everything, and in those with a window."""
    full = keys = 0.0
    limited: dict[int, float] = {}
    compressed = False
    for group in model.groups:
        for mixer in parts(group.mixer):
            if hasattr(mixer, "m"):
                compressed = True
                grown = float(mixer.growing_bytes(precision))
                entry = float(mixer.token_bytes(precision)) - grown
                full += group.count * grown
                window = int(mixer.window)
                limited[window] = limited.get(window, 0.0) + group.count * entry
                keys += group.count * (entry + grown)
                continue
            token = float(mixer.token_bytes(precision))
            if not token:
                continue
            if mixer.window_tokens is None:
                full += group.count * token
            else:
                window = int(mixer.window_tokens)
                limited[window] = limited.get(window, 0.0) + group.count * token
            keys += group.count * key_bytes(mixer, precision)
    return Kept(full, sum(limited.values()), keys, limited, compressed)


def key_bytes(mixer: Any, precision: Precision) -> float:
    """Bytes of the keys of a token in one layer; of latents all [B]."""
    if hasattr(mixer, "key_value_bytes"):
        return float(mixer.K * precision.cache.vector_bytes(mixer.H, "key"))
    return float(mixer.token_bytes(precision))


def sglang_pool(
    model: Model, precision: Precision, pool: float, length: int, page: int,
    rules: Mapping[str, Any], ratio: float | None, states: float,
) -> Pool:  # fmt: skip
    """Tell what a pool of SGLang's holds.

    ratio: tokens of window layers for each of full ones, as typed [1]; states: memory of states for
    that of caches [1].
    """
    held = kept(model, precision)
    states_of_each = float(sequence_state_bytes(model, precision))
    # States of compressors lie in rings of their own, beside the pool.
    state = 0.0 if held.compressed else states_of_each
    more: dict[str, Any] = {}
    room = max(pool, 0.0)
    if state:
        slots = int(sglang_states(room, states, state))
        more |= {"state_slots": slots, "state_pool_bytes": slots * state}
        room -= slots * state
    if not held.full + held.window:
        what = f"{model.name} keeps states alone, which is not modelled for SGLang"
        raise RooflmError(what, "--engine", "Take --engine vllm.")
    part = ratio
    if part is None:
        part = rules["compressed_ratio"] if held.compressed else rules["window_ratio"]
    if not held.full:
        tokens = int(sglang_tokens(room, held.window, page=page))
    else:
        tokens = int(sglang_tokens(room, held.full, held.window, part, page))
    longest = min(tokens, max(length, model.max_context or 0))
    own = kept_own = page * int(sequence_blocks(length, page))
    holds = {"tokens": tokens / length}
    if held.window and held.full:
        limited, window = page * int(tokens * part // page), max(held.limited)
        more["window_tokens"] = limited
        # A request that is shorter than the window keeps all its tokens there too.
        holds["tokens of window layers"] = limited / min(length, window)
        kept_own = page * int(sequence_blocks(min(length, window), page))
        longest = longest if limited >= window else min(longest, limited)
    if state:
        holds["states"] = float(more["state_slots"])
        longest = longest if holds["states"] else 0
    least = min(holds, key=lambda what: holds[what])
    said: list[str] = []
    if held.compressed:
        said.append("the pool leaves out rings of the compressors' states, and padded pages")
    if least != "tokens":
        said.append(
            f"{least} end at {holds[least]:,.2f} requests of {length:,} tokens; SGLang's line of "
            f"tokens, which would be {holds['tokens']:,.2f}, knows nothing of that"
        )
    if held.window == 0:
        more |= {"k_bytes": tokens * held.keys, "v_bytes": tokens * (held.full - held.keys)}
    return Pool(
        blocks=None,
        tokens=tokens,
        concurrency=holds[least],
        longest=longest,
        block=page,
        request=own * held.full + kept_own * held.window + states_of_each,
        more=more,
        said=tuple(said),
    )


def trtllm_pool(model: Model, precision: Precision, pool: float, length: int, block: int) -> Pool:
    """Tell what a pool of TensorRT-LLM's holds, its layers all keeping everything."""
    held = kept(model, precision)
    if held.compressed or float(sequence_state_bytes(model, precision)):
        what = "states and compressed caches are not modelled for TensorRT-LLM"
        other = "sglang" if held.compressed else "vllm"
        raise RooflmError(what, "--engine", f"Take --engine {other}.")
    token = held.full + held.window
    blocks = max(0, int(trtllm_blocks(pool, 1, token, block)))
    tokens = blocks * block
    each = int(sequence_blocks(length, block))
    return Pool(
        blocks=blocks,
        tokens=tokens,
        concurrency=float(pool_concurrency(blocks, each)),
        longest=min(tokens, max(length, model.max_context or 0)),
        block=block,
        request=each * block * token,
        said=("window layers keep all tokens here (max_attention_window sets others)",)
        if held.window
        else (),
    )


def llama_pool(
    case: Case, context: int, slots: int, batch: int
) -> tuple[dict[str, Any], float, Callable[[Callable[[int], bool]], int]]:
    """Tell what llama.cpp allocates on the device for a context of all slots together.

    batch: tokens of a pass [tokens]. Returns its figures, bytes of a slot, and what finds the
    longest context for which something holds.
    """
    from .offload import resident

    model = resident(case.model) if case.offloads else case.model
    held = kept(model, case.precision)
    if held.compressed:
        what = "llama.cpp keeps compressed caches in a way of its own, which is not modelled"
        raise RooflmError(what, "--engine", "Take --engine sglang.")
    cells = int(llama_cells(context, slots))
    full = held.full * cells * slots
    # Columns of convolutions are in fp32 as the states are, whatever the cache is.
    state = float(sequence_state_bytes(model, replace(case.precision, cache=CACHES["fp32"])))
    windows = {w: int(llama_window_cells(cells, w, batch)) for w in held.limited}
    limited = sum(held.limited[w] * n * slots for w, n in windows.items())
    whole = full + limited + slots * state
    tokens = cells * slots
    keys = held.keys / (held.full + held.window) if held.full + held.window else 0.0
    figures: dict[str, Any] = {
        "pool_bytes": whole,
        "k_bytes": keys * (full + limited),
        "v_bytes": (1 - keys) * (full + limited),
        "full_cache_bytes": full,
        "window_cache_bytes": limited,
        "state_bytes": slots * state,
        "cells": tokens,
        "window_cells": {str(w): n * slots for w, n in windows.items()},
        "tokens": tokens,
    }
    most = max(context, (case.model.max_context or 0) * slots)

    def longest(fits: Callable[[int], bool]) -> int:
        return largest(fits, most)

    return figures, whole / slots, longest
