"""What is known: every model and every chip, with where its figures come from."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .entries import build_machine, build_model
from .errors import RooflmError, nearest
from .hardware import Machine
from .model import Model, token_elements, total_parameters
from .plain import is_map, is_number
from .presets import (
    HARDWARE_FILE,
    MODELS_FILE,
    blocks,
    load_all,
    own_blocks,
    own_sources,
    preset_text,
)
from .schema import HARDWARE, MODEL
from .yamlfile import Block, load_block


def list_models(word: str = "", more: str | None = None) -> dict[str, Any]:
    """List the models whose name or Hugging Face name holds all words; more: a user's file."""
    rows: list[dict[str, Any]] = []
    found: list[Model] = load_all(MODELS_FILE, build_model, more, MODEL)
    for model in found:
        hub = re.fullmatch(r"https://huggingface\.co/([^/]+/[^/]+)/blob/.*", model.source)
        total = total_parameters(model)
        rows.append(
            {
                "name": model.name,
                "hf": hub[1] if hub else None,
                "parameters": total,
                "weights_bytes": 2 * total,
                "cache_bytes_per_token": 2 * token_elements(model),
                "max_context_tokens": model.max_context,
            }
        )
    kept = [r for r in rows if _holds(word, f"{r['name']} {r['hf']}")]
    return _answer("models", word, kept, [r["name"] for r in rows])


def all_machines() -> list[Machine]:
    """Build every hardware preset."""
    return load_all(HARDWARE_FILE, build_machine)


def list_hardware(word: str = "", more: str | None = None) -> dict[str, Any]:
    """List the hardware whose name, or full name, holds all words; more: a user's file."""
    text = preset_text(HARDWARE_FILE)
    sources: dict[str, dict[str, Any]] = load_block(text, "sources", HARDWARE_FILE.name).value
    if more is not None:
        sources = sources | own_sources(more)
    rows: list[dict[str, Any]] = []
    known = blocks(HARDWARE_FILE, more, HARDWARE)
    names = [name for name, _ in known]
    for name, block in [(n, b) for n, b in known if n == word or word not in names]:
        machine, entry = build_machine(name, block), block.value
        if word != name and not _holds(word, f"{name} {machine.full_name}"):
            continue
        label = machine.label_bytes
        rows.append(
            {
                "name": name,
                "full_name": machine.full_name,
                "kind": machine.kind,
                "label_gb": None if label is None else label / 1e9,
                "driver_bytes": machine.driver_bytes,
                "bandwidth_bytes_per_s": machine.bandwidth_bytes_per_s,
                "bf16_flops_per_s": machine.flops.get("bf16"),
                "fp8_flops_per_s": machine.flops.get("fp8"),
                "power_w": machine.power_w,
                "price_usd_per_hour": machine.price_usd_per_hour,
                "figures": figures(entry, sources),
                "notes": entry.get("notes", []),
            }
        )
    return _answer("hardware", word, rows, names)


def figures(entry: dict[str, Any], sources: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    """List every figure of a chip with its note, date and source."""
    listed: list[dict[str, Any]] = []
    kernels = entry.get("kernels", {})
    plain = {key: value for key, value in entry.items() if key != "kernels"}
    timed = {key: value for key, value in kernels.items() if key != "all_reduce"}
    about = {"source": kernels.get("source"), "date": kernels.get("date")}
    found = _walk(plain) + [(k, figure | about) for k, figure in _walk(timed, "kernels.")]
    for key, figure in found:
        source = sources.get(str(figure.get("source")), {})
        listed.append(
            {
                "key": key,
                "value": figure["value"],
                "note": figure.get("note"),
                "date": figure.get("date") or source.get("date"),
                "source": source.get("title") or figure.get("source"),
                "url": source.get("url"),
            }
        )
    return listed


def _walk(entry: dict[str, Any], prefix: str = "") -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for key, value in entry.items():
        if is_map(value):
            if "value" in value:
                found.append((prefix + key, value))
            else:
                found += _walk(value, f"{prefix}{key}.")
        elif is_number(value):
            found.append((prefix + key, {"value": value}))
    return found


def _holds(word: str, text: str) -> bool:
    return all(w in text.lower() for w in word.lower().split())


def _answer(what: str, word: str, rows: list[dict[str, Any]], names: list[str]) -> dict[str, Any]:
    if not rows:
        fix = nearest(word, names) or f"`rooflm {what}` lists them all."
        raise RooflmError(f"no {what} named like '{word[:60]}'", "WORD", fix)
    return {
        "schema": f"rooflm.{what}/1",
        "model": None,
        "hardware": None,
        "rows": rows,
        "assumptions": ["weights and cache in bf16"] if what == "models" else ["dense rates"],
    }


def check_file(
    shipped: Path, own: str | None, build: Callable[[str, Block], Any], fields: Mapping[str, Any]
) -> tuple[list[str], list[str]]:
    """Check every entry of the shipped file and of a user's; tell what is right and what is not."""
    right: list[str] = []
    wrong: list[str] = []
    for path in (shipped.name, own):
        if path is None:
            continue
        try:
            entries = own_blocks(own, fields) if path is own else blocks(shipped, None, fields)
        except RooflmError as e:
            wrong.append(str(e))
            continue
        mistakes = [m for m in (_mistake(n, b, build) for n, b in entries) if m]
        wrong += mistakes
        if not mistakes:
            right.append(f"{path}: {len(entries)} entries, all valid")
    return right, wrong


def _mistake(name: str, block: Block, build: Callable[[str, Block], Any]) -> str | None:
    try:
        build(name, block)
    except RooflmError as e:
        return str(e)
    return None
