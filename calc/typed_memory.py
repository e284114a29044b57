"""What was typed of an engine's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .engine_rules import Asked, find_rules, parse_version
from .errors import RooflmError
from .names import engine_name
from .units import parse_count, parse_rate, parse_share, parse_size

MEASURED = ("peak_activation", "non_torch", "graphs")


def parse_memory(typed: Mapping[str, str | None], state: str | None = None) -> Asked | None:
    """Read what was typed of an engine's memory; None where no engine was named.

    state: format of states as typed. Raises `RooflmError` for settings without an engine, and for
    those that it does not know.
    """
    said = {name: text for name, text in typed.items() if text is not None}
    engine = said.pop("engine", None)
    if engine is None:
        for name in said:
            option = f"--{name.replace('_', '-')}"
            raise RooflmError("no engine is named", option, "Say --engine vllm as well.")
        return None
    engine = engine_name(engine)
    rules = find_rules(engine)
    version = said.pop("engine_version", None)
    check_takes(rules, list(said))

    def count(name: str) -> int | None:
        text = said.get(name)
        return None if text is None else parse_count(text, f"--{name.replace('_', '-')}")

    def share(name: str, whole: bool = True) -> float | None:
        text = said.get(name)
        option = f"--{name.replace('_', '-')}"
        return None if text is None else parse_share(text, option, whole=whole)

    states = said.get("state_ratio")
    free = said.get("free")
    return Asked(
        engine=engine,
        version=None if version is None else parse_version(version),
        utilization=share("utilization"),
        max_len=count("max_len"),
        batched=count("max_batched_tokens"),
        sequences=count("max_sequences"),
        block=count("block"),
        states=count("state_blocks") or 1,
        state=state,
        window_ratio=share("window_ratio"),
        state_ratio=None if states is None else parse_rate(states, "--state-ratio"),
        free=None if free is None else parse_size(free, "--free", least=1),
        measured={
            name: parse_size(said[name], f"--{name.replace('_', '-')}")
            for name in MEASURED
            if name in said
        },
    )


def check_takes(rules: Mapping[str, Any], typed: Sequence[str]) -> None:
    """Refuse options that an engine does not know.

    typed: names of options as in `takes`. Raises `RooflmError`.
    """
    for name in typed:
        if name not in rules["takes"]:
            option = f"--{name.replace('_', '-')}"
            known = ", ".join(f"--{n.replace('_', '-')}" for n in rules["takes"])
            raise RooflmError(f"{rules['name']} has no such setting", option, f"It takes {known}.")
