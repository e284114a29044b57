"""Engines by how they reserve memory: their usual settings, and ranges that public logs show.

engine_memory.yaml is the registry, beside that of speeds (engines.yaml); neither needs the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .errors import RooflmError
from .presets import HOME, find_engine_entry, preset_names
from .schema import Field

MEMORY_FILE = HOME / "calc" / "engine_memory.yaml"
GIB = 2**30

WAYS = ("share-of-total", "share-of-free", "share-after-load", "all-at-once")
"""vLLM's, SGLang's, TensorRT-LLM's, llama.cpp's."""

_RANGE: dict[str, Field] = {
    "usual_gib": Field("figure", "where our formulas have none [GiB]"),
    "low_gib": Field("figure", "least that logs show [GiB]", required=True),
    "high_gib": Field("figure", "most that logs show [GiB]", required=True),
    "source": Field("text", "which logs", required=True),
}
_SETTINGS: dict[str, Field] = {
    "utilization": Field("figure", "share of memory that it takes [1]"),
    "block_tokens": Field("count", "tokens of a block"),
    "batched_tokens": Field("count", "tokens of a pass at the most"),
    "sequences": Field("count", "sequences of a pass at the most"),
    "length": Field("count", "longest request where none is typed; that of the model if absent"),
}
RULES: dict[str, Field] = {
    "name": Field("text", "what it is called", required=True),
    "way": Field("choice", "what it takes a share of", required=True, choices=WAYS),
    "share": Field("text", "its name for that share"),
    "takes": Field("texts", "options that it knows", required=True),
    "beyond": Field("text", "what it does with a length beyond the model's"),
    "clamps": Field("flag", "a length beyond the model's is cut to that"),
    "each": Field("flag", "a length is that of each slot, not of all together"),
    **_SETTINGS,
    "large": Field("map", "usual settings on large devices, but for A100", inside={
        "from_gib": Field("figure", "from which memory on [GiB]", required=True), **_SETTINGS,
    }),
    "older": Field("map", "usual settings of older versions", inside={
        "below": Field("text", "before which version", required=True), **_SETTINGS,
    }),
    "by_memory": Field("map", "usual settings of devices with less than so many GiB", inside={
        "*": Field("map", "settings", inside={
            "batched_tokens": _SETTINGS["batched_tokens"],
            "length": _SETTINGS["length"],
            "graphs": Field("count", "largest batch of a CUDA graph"),
            "graphs_of_4": Field("count", "the same on four ranks and more"),
        }),
    }),
    "share_since": Field("text", "version since which its share follows from the device"),
    "graphs_inside": Field("text", "version from which CUDA graphs count inside the share"),
    "whole_tokens": Field("text", "version from which its tokens are those of whole requests"),
    "window_ratio": Field("figure", "tokens of window layers for each of full ones [1]"),
    "compressed_ratio": Field("figure", "the same beside compressed caches [1]"),
    "state_ratio": Field("figure", "memory of states for that of caches [1]"),
    "states": Field("choice", "format of states where nobody says one: that of the model, or fp32",
                    choices=("model", "fp32")),
    "ranges": Field("map", "what only a run can tell", inside={"*": Field("map", "an input",
                    inside=_RANGE)}, required=True),
    "notes": Field("texts", "what trips people"),
    "sources": Field("texts", "files of the engine", required=True),
}  # fmt: skip


@dataclass(frozen=True)
class Asked:
    """What was asked of an engine; None is as usual."""

    engine: str
    version: tuple[int, ...] | None = None
    """The newest that is known where nothing was said."""
    utilization: float | None = None
    max_len: int | None = None
    batched: int | None = None
    sequences: int | None = None
    block: int | None = None
    states: int = 1
    """Blocks that a request holds in each group of state layers [blocks]."""
    state: str | None = None
    """Format of states as typed; the engine's own where nothing was."""
    window_ratio: float | None = None
    state_ratio: float | None = None
    free: int | None = None
    """Free memory: before the weights are loaded, or after that for TensorRT-LLM [B]."""
    measured: Mapping[str, int] = field(default_factory=dict[str, int])
    """Inputs that only a run can tell, by the keys of `ranges` [B]."""


def memory_engines() -> list[str]:
    """List the engines whose memory is known."""
    return preset_names(MEMORY_FILE)


@cache
def find_rules(name: str) -> Mapping[str, Any]:
    """Read how an engine reserves memory; raises `RooflmError` for an unknown one."""
    return find_engine_entry(MEMORY_FILE, name, RULES, "no engine '{}' whose memory is known")


def usual(rules: Mapping[str, Any], key: str, asked: Asked, total: float, chip: str) -> Any:
    """Find a usual setting: of the version, of a large device, or of the engine; None if neither.

    total: memory of the device [B]; chip: its name.
    """
    older, large = rules.get("older", {}), rules.get("large", {})
    if key in older and before(asked.version, older["below"]):
        return older[key]
    if key in by_memory(rules, total):
        return by_memory(rules, total)[key]
    if key in large and total >= large["from_gib"] * GIB and not chip.startswith("a100"):
        return large[key]
    return rules.get(key)


def by_memory(rules: Mapping[str, Any], total: float) -> Mapping[str, Any]:
    """Find the usual settings of a device with so much memory [B]; none where all have the same."""
    none: Mapping[str, Any] = {}
    rows: Mapping[str, Mapping[str, Any]] = rules.get("by_memory", none)
    return next((row for limit, row in rows.items() if total < float(limit) * GIB), none)


def before(version: tuple[int, ...] | None, limit: str | None) -> bool:
    """Tell whether a version is older than a limit; the newest is not."""
    return limit is not None and version is not None and version < parse_version(limit)


def parse_version(text: str) -> tuple[int, ...]:
    """Read a version such as 0.21 or v0.12.0."""
    parts = text.strip().removeprefix("v").split(".")
    if not all(part.isdecimal() and len(part) < 8 for part in parts):
        what = f"'{text[:40]}' is not a version"
        raise RooflmError(what, "--engine-version", "Write 0.12 or 0.21.0.")
    return tuple(int(part) for part in parts)
