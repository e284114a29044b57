"""What an engine printed when it started, explained: each figure, and what it should be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from . import log_llamacpp, log_sglang, log_trtllm, log_vllm
from .errors import RooflmError
from .log_lines import log_lines
from .log_model import Known, known
from .log_read import MEANT, Log, Start, chosen, read_log
from .log_words import ENGINES, SETTINGS

ENGINE = {
    "vllm": log_vllm.explain,
    "sglang": log_sglang.explain,
    "trtllm": log_trtllm.explain,
    "llamacpp": log_llamacpp.explain,
}


def explain_file(path: str, typed: Mapping[str, str | None]) -> dict[str, Any]:
    """Explain the log of a file, or of stdin; typed: model, weights, kv, tp and pp as typed."""
    where = "stdin" if path == "-" else path
    return explain_log(read_log(log_lines(path), where), typed, where)


def explain_log(
    log: Log, typed: Mapping[str, str | None], where: str = "the log"
) -> dict[str, Any]:
    """Explain a log that was read; `RooflmError` where no line tells a figure.

    A text about engines, as a page of documentation, may have words of theirs.
    """
    start = chosen(log)
    found = known(start, dict(typed))
    engine = start.engine or log.engine
    figures = sorted(ENGINE[engine](start, found), key=lambda f: f["line"])
    if not figures:
        what = f"words of {ENGINES[engine]} are in it, but no figure of its start"
        raise RooflmError(what, where, "Name all that it printed at its start.")
    judged = [f for f in figures if f["agrees"] is not None]
    return {
        "schema": "rooflm.explain-log/1",
        "engine": ENGINES[engine],
        "version": start.word("version"),
        "model": found.name,
        "preset": None if found.model is None else found.model.name,
        "ranks": log.ranks,
        "starts": log.begun,
        "settings": settings(start),
        "figures": figures,
        "judged": len(judged),
        "agreeing": sum(bool(f["agrees"]) for f in judged),
        "lines": log.lines,
        "unknown_lines": log.unknown,
        "assumptions": _assumptions(log, engine, found, {f["unit"] for f in figures}),
    }


def settings(start: Start) -> dict[str, Any]:
    """List what the engine was told, and the dimensions that it printed."""
    told: dict[str, Any] = {}
    for name in SETTINGS:
        fact = start.first(name)
        if fact is None:
            continue
        value: Any = fact.value
        if isinstance(value, str):
            value = start.word(name) or value
        elif not fact.digits:
            value = round(value)
        told[name] = value
    typed = told.pop("utilization", None)
    if typed is not None:
        told.setdefault("gpu_memory_utilization", typed)
    return told


def _assumptions(log: Log, engine: str, found: Known, units: set[str | None]) -> list[str]:
    said = [
        f"agrees: within the rounding of the log; weights within {100 * log_vllm.SLACK[engine]:g} %"
    ]
    said += [
        f"{unit} of {ENGINES[engine]} are {MEANT[unit]}, 2^{power} bytes, and are read so"
        for unit, power in (("MB", 20), ("GB", 30))
        if unit in units
    ]
    if len(log.engines) > 1:
        names = " and ".join(ENGINES[e] for e in log.engines)
        said.append(f"lines of {names} are there; those of {ENGINES[engine]} are explained")
    if log.begun > 1:
        said.append(f"the log holds {log.begun} starts; one is explained, the last with figures")
    return [*said, *dict.fromkeys(found.assumed)]
