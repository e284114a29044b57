"""Figures that servers printed, each held against what rooflm computes from stated inputs.

The figures are in golden/engine_memory.yaml, whose threads can be opened, and in
golden/engine_memory_described.yaml. The tables of docs/accuracy.md are made here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import yaml

from rooflm.calc import engine_memory as em
from rooflm.calc.attention import Attention
from rooflm.calc.cache_groups import Groups, cache_groups
from rooflm.calc.engine_budget import Settings, vllm_holds
from rooflm.calc.engine_lines import kept
from rooflm.calc.engine_rules import GIB
from rooflm.calc.entries import build_model
from rooflm.calc.layout import Layout, shard
from rooflm.calc.memory import weights_bytes
from rooflm.calc.model import (
    Model,
    parameters,
    sequence_state_bytes,
    tensors,
    token_bytes,
    total_parameters,
)
from rooflm.calc.passes import Precision
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.torch_allocator import absorbed_bytes, allocated_bytes
from rooflm.calc.weights import is_vector, tensor_bytes
from rooflm.calc.yamlfile import Block

from .golden import GOLDEN, table

FILES = ("engine_memory", "engine_memory_described")
"""Tables of figures, those first whose sources can be opened."""
TABLES = [table(name)["logs"] for name in FILES]
OWN = {
    name: build_model(name, Block(entry, {}, "engine_memory_described.yaml"))
    for name, entry in table(FILES[1])["models"].items()
}
MIB = 2**20


def model_of(x: Any) -> tuple[Model, Precision]:
    """Find the model of a row, what a rank holds of it, and its formats."""
    if "shape" in x:
        layers, heads, key, value, width = x["shape"]
        own = find_model("llama-3-8b")
        mixer = Attention(N=heads, K=heads, H=key, H_v=value)
        model = replace(own, groups=(replace(own.groups[0], count=layers, mixer=mixer),))
        kv = "fp32" if width == 4 else "bf16"
    else:
        model = OWN[x["own"]] if "own" in x else find_model(x["model"])
        model, kv = replace(model, tied=x.get("tied", model.tied)), x.get("kv", "bf16")
        if x.get("tp", 1) > 1:
            model = shard(model, Layout(tp=x["tp"]))[0].model
    return model, precision_of(x.get("format", "bf16"), kv, x.get("state"), model=model)


def groups_of(x: Any) -> Groups:
    """Group the caches of a row's model."""
    model, precision = model_of(x)
    return cache_groups(model, precision, x.get("block", 16))


def token_of(x: Any) -> float:
    """Bytes of a token in all layers that keep everything."""
    model, precision = model_of(x)
    return kept(model, precision).full


def unit_of(x: Any) -> int:
    """Bytes of the unit that a row is printed in."""
    return {"mib": MIB, "bytes": 1}.get(x.get("unit", "gib"), GIB)


def settings_of(x: Any) -> Settings:
    """Make settings of a row."""
    return Settings(0.9, x.get("block", 16), x["batched"], 256, x["length"])


def held_weights(x: Any) -> float:
    """Weights with the table of rotations, as vLLM counts them."""
    model, precision = model_of(x)
    table_bytes = em.rope_table_bytes(x["positions"], x["width"])
    again = absorbed_bytes(model) if x.get("absorbed") else 0
    return (weights_bytes(model, precision) + table_bytes + again) / unit_of(x)


def allocated(x: Any) -> float:
    """Weights as PyTorch's allocator counts them, with what vLLM keeps beside."""
    model, precision = model_of(x)
    how = {key: x[key] for key in ("twice", "scalars", "marlin") if key in x}
    held = allocated_bytes(model, precision, x["positions"], x["width"], **how)
    return (held + (absorbed_bytes(model) if x.get("absorbed") else 0)) / unit_of(x)


def recurrent_gib(x: Any) -> float:
    """Recurrent states of all slots and of one for padding [GiB]."""
    model, precision = model_of(x)
    each = sum(float(g.count * g.mixer.state.recurrent) for g in model.groups)
    return (x["slots"] + 1) * each * float(precision.state.bytes) / GIB


def layer_parameters(model: Model) -> float:
    """Parameters of the layers, without embedding and head."""
    return sum(n for part, n in parameters(model).items() if part not in ("embedding", "head"))


def streams(x: Any) -> float:
    """GB/s of a step that reads its weights and a cache; ranks share no embedding, head or norm."""
    model, ranks = find_model(x["model"]), x.get("tp", 1)
    precision = precision_of(x.get("format", "bf16"), "bf16", model=model)
    read = x.get("slots", 0) * token_bytes(model, precision)
    for times, tensor in tensors(model):
        if tensor.op == "embedding" and not x.get("embedding", True):
            continue
        whole = tensor.op in ("embedding", "head") or is_vector(tensor)
        read += times * tensor_bytes(tensor, precision) / (1 if whole else ranks)
    return float(x["rate"] * read) / 1e9


def request_gib(x: Any) -> float:
    """What one request takes of a pool [GiB]."""
    groups = groups_of(x)
    each = groups.request_blocks(x["length"], x.get("batched", 8192), x.get("states", 1))
    return each * groups.block_bytes / GIB


def hybrid_pool(x: Any) -> float:
    """Tokens of a pool by the line of whole requests."""
    how = settings_of(x)
    return vllm_holds(groups_of(x), x["pool_gib"] * GIB, how, x["states"], True, x["length"]).tokens


def pool_tokens(x: Any) -> float:
    """Tokens of a pool by the line before vLLM 0.21."""
    groups = groups_of(x)
    return groups.line_tokens(groups.blocks(x.get("pool_bytes") or x["pool_gib"] * GIB), 1)


def swapped(x: Any) -> float:
    """Blocks that swap space holds."""
    return groups_of(x).blocks(x["swap_gib"] * GIB)


def hybrid_concurrency(x: Any) -> float:
    """Requests that blocks of a model with states hold."""
    each = groups_of(x).request_blocks(x["length"], x["batched"], 1)
    return em.pool_concurrency(x["blocks"], each)


def hybrid_pool_concurrency(x: Any) -> float:
    """Requests of the longest length that a pool of several groups holds."""
    groups = groups_of(x)
    each = groups.request_blocks(x["length"], x["batched"], x["states"])
    return em.pool_concurrency(groups.blocks(x["pool_gib"] * GIB), each)


def other_format(x: Any) -> float:
    """Tokens of the same pool with a cache of fp8, in whole blocks."""
    wide, narrow = (token_of({**x, "kv": kv}) for kv in ("bf16", "fp8"))
    return em.trtllm_blocks(x["tokens"] * wide, 1, narrow, x["block"]) * x["block"]


def llama_mib(x: Any) -> float:
    """A cache of llama.cpp [MiB]."""
    return token_of(x) * em.llama_cells(x["context"], 1, x.get("pad", em.CELLS)) / MIB


def llama_window(x: Any) -> float:
    """Window layers of llama.cpp, of all slots [MiB]."""
    cells = em.llama_cells(x["context"], x["slots"])
    token = token_of(x) if "shape" in x else kept(*model_of(x)).window
    return token * x["slots"] * em.llama_window_cells(cells, x["window"]) / MIB


def llama_states(x: Any) -> float:
    """States of llama.cpp, all in fp32 [MiB]."""
    model, precision = model_of({**x, "kv": "fp32"})
    return x["slots"] * sequence_state_bytes(model, precision) / MIB


def llama_beside(x: Any) -> float:
    """A context, by what another one took with what does not grow [MiB]."""
    more = llama_mib(x) - llama_mib({**x, "context": x["shorter"]})
    return x["with"] + more


RULES: dict[str, Callable[[Any], float]] = {
    "concurrency": lambda x: em.pool_concurrency(x["blocks"], x["length"] / x["block"]),
    "token_concurrency": lambda x: em.pool_concurrency(x["tokens"], x["length"]),
    "ranks_concurrency": lambda x: x["ranks"] * x["concurrency"],
    "line_tokens": lambda x: x["blocks"] * x["block"],
    "swap_blocks": swapped,
    "vllm_pool": lambda x: em.vllm_pool_bytes(
        x["total"], x["u"], x["weights"], x["activations"], x["non_torch"]
    ),
    "graph_share": lambda x: em.graph_utilization(x["u"], x["graphs_gib"], x["total_gib"]),
    "pool_blocks": lambda x: groups_of(x).blocks(x["pool_gib"] * GIB),
    "pool_tokens": pool_tokens,
    "weights": held_weights,
    "allocated": allocated,
    "recurrent_gib": recurrent_gib,
    "parameters": lambda x: x["parameters"] * x["b"] / GIB,
    "hybrid_concurrency": hybrid_concurrency,
    "hybrid_tokens": lambda x: groups_of(x).line_tokens(x["blocks"], 1),
    "hybrid_pool_tokens": hybrid_pool,
    "hybrid_pool_concurrency": hybrid_pool_concurrency,
    "request_gib": request_gib,
    "longest": lambda x: groups_of(x).longest(
        x["pool_gib"] * GIB, x["limit"], 8192, x.get("states", 1)
    ),
    "sglang_pool": lambda x: em.sglang_pool_bytes(
        x["after"] + x["usage"], x["after"], x["fraction"]
    ),
    "least_share": lambda x: 1 - (x["before"] - x["weights"]) / x["before"],
    "k_size": lambda x: kept(*model_of(x)).keys * x["tokens"] / GIB,
    "tokens_gib": lambda x: token_of(x) * x["tokens"] / unit_of(x),
    "states_gib": lambda x: (x["slots"] + 1) * x["layers"] * x["state"] / GIB,
    "window_tokens": lambda x: x["page"] * int(x["tokens"] * x["ratio"] // x["page"]),
    "trtllm_tokens": lambda x: em.trtllm_blocks(x["pool"], 1, token_of(x), x["block"]) * x["block"],
    "other_format": other_format,
    "llama": llama_mib,
    "llama_window": llama_window,
    "window_cells": lambda x: em.llama_window_cells(em.llama_cells(x["context"]), x["window"]),
    "llama_states": llama_states,
    "llama_beside": llama_beside,
    "bits": lambda x: x["size_gib"] * GIB * 8 / total_parameters(find_model(x["model"])),
    "layers_gib": lambda x: x["bits"] / 8 * layer_parameters(find_model(x["model"])) / GIB,
    "share": lambda x: 100e9 * x["gbs"] / find_machine(x["device"]).bandwidth_bytes_per_s,
    "queued": lambda x: x["one"] * x["prompts"],
    "streams": streams,
    "widths": lambda x: x["heads"] * x["key"],
}

DIGITS: list[Any] = [
    yaml.load((GOLDEN / f"{name}.yaml").read_text("utf-8"), yaml.BaseLoader)["logs"]
    for name in FILES
]
"""The same tables with the digits that are printed."""
LOGS: list[tuple[str, Any, Any]] = [
    (log.get("source") or log["log"], check, digits)
    for logs, printed in zip(TABLES, DIGITS, strict=True)
    for log, same in zip(logs, printed, strict=True)
    for check, digits in zip(log["checks"], same["checks"], strict=True)
]
"""Where a figure was printed, the check of it, and the same with its digits."""
SIZES = ("pool_gib", "total", "weights", "activations", "non_torch", "graphs_gib", "after", "usage",
         "before", "with", "total_gib", "concurrency", "size_gib", "bits", "gbs", "one",
         "rate")  # fmt: skip
"""Inputs that a log rounds."""


def off(check: Any) -> float:
    """Tell by how much a computed figure is off a printed one."""
    return RULES[check["rule"]](check["inputs"]) / check["printed"] - 1


def half_digit(text: str) -> float:
    """Half of the last digit of a number as it is printed."""
    return 0.5 * 10.0 ** -len(text.partition(".")[2])


def is_rounding(check: Any, printed: Any) -> bool:
    """Tell whether a figure is what is computed, but for the rounding of it and of its inputs."""
    rule, inputs = RULES[check["rule"]], check["inputs"]
    value = rule(inputs)
    low = high = value
    for key in set(SIZES) & set(inputs):
        half = half_digit(printed["inputs"][key])
        ends = [rule({**inputs, key: inputs[key] + way * half}) for way in (-1, 1)]
        low, high = low + min(0, *(e - value for e in ends)), high + max(*(e - value for e in ends))
    half = half_digit(printed["printed"])
    return low - half <= check["printed"] <= high + half


def is_listed(check: Any) -> bool:
    """Tell whether a reason is written beside a figure that is off."""
    return "off" in check or "why" in check


FIGURES = {
    "allocated": "weights", "parameters": "weights", "vllm_pool": "pool", "sglang_pool": "pool",
    "pool_tokens": "tokens", "other_format": "tokens of an fp8 cache",
    "ranks_concurrency": "concurrency of groups", "request_gib": "need of a request",
    "least_share": "least share", "queued": "first token", "streams": "weights read",
}  # fmt: skip
"""Words for the rules of figures that are off."""
UNITS = {"weights": "GiB", "pool": "GiB", "need of a request": "GiB", "first token": "s",
         "weights read": "GB/s"}  # fmt: skip
"""Units of figures that say none."""


def counted(number: int) -> tuple[int, int]:
    """Count the figures of a table that are met, and all; number: of the table, 0 or 1."""
    checks = [check for log in TABLES[number] for check in log["checks"]]
    return sum(not is_listed(check) for check in checks), len(checks)


def table_of_those_off(number: int) -> str:
    """Make the table of figures that are off, with links where there are any."""
    first = "source" if number == 0 else "what printed it"
    lines = [
        f"| {first} | figure | printed | computed | what makes the difference |",
        "| :-- | :-- | --: | --: | :-- |",
    ]
    for log, printed in zip(TABLES[number], DIGITS[number], strict=True):
        for check, digits in zip(log["checks"], printed["checks"], strict=True):
            if is_listed(check):
                name = _link(log["source"]) if "source" in log else log["log"]
                lines.append(f"| {name} | {_row(check, digits)} |")
    return "\n".join(lines)


def _row(check: Any, printed: Any) -> str:
    name = FIGURES[check["rule"]] if check["rule"] in FIGURES else str(check["rule"])
    unit = "MiB" if check["inputs"].get("unit") == "mib" else UNITS.get(name, "")
    places = len(printed["printed"].partition(".")[2])
    computed = RULES[check["rule"]](check["inputs"])
    shown = f"{computed:,.0f}" if places == 0 else f"{computed:,.{max(places, 4)}f}"
    value = f"{check['printed']:,.{places}f} {unit}".strip()
    return f"{name} | {value} | {shown} | {check.get('why') or check['off']}"


def _link(source: str) -> str:
    repository, _, number = source.partition("#")
    name = repository.rpartition("/")[2]
    return f"[{name} {number}](https://github.com/{repository}/issues/{number})"
