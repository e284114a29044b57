"""What the numbers of a study rest on: options, dimensions, rates, constants."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from typing import Any, cast

from .asked import is_mixed, mixed_lengths
from .case import Case
from .engine_rules import find_rules
from .errors import RooflmError
from .plain import is_map
from .study import Ready, case_at, combinations, words_of


def inputs(ready: Ready) -> dict[str, Any]:
    """List what the numbers of a study rest on, flat: options, models, machines, constants."""
    study = ready.study
    found: dict[str, Any] = {"rooflm": version("rooflm")}
    for variant in study.variants:
        for name, value in study.words(variant).items():
            found[f"variant {variant}: {name}"] = _told(value)
    for name, values in study.axes.items():
        found[f"grid: {name}"] = ",".join(map(str, values))
    found["measure"] = ",".join(ready.measured)
    found |= {f"derive: {name}": said.text for name, said in study.derive.items()}
    for name, fact in study.facts.items():
        found |= {f"fact {name}: {variant}": value for variant, value in fact.values.items()}
    named = [a for a in study.axes if a in ("model", "on", "engine") or a.startswith("set.")]
    seen: set[str] = set()
    for variant in study.variants:
        for combo in combinations(study):
            told = json.dumps([variant, {a: combo[a] for a in named}], default=str)
            words = words_of(study, variant, combo)
            if told in seen or words.get("model") is None:
                continue
            seen.add(told)
            case = case_at(study, words)
            # Files of one's own may give one name to two models.
            own = f" of {variant}" if words.get("models") or words.get("hardware") else ""
            for kind, part in _parts(words, case):
                flat = _flat(dataclasses.asdict(part), f"{kind} {part.name}{own}: ")
                found |= {k: v for k, v in flat.items() if not k.endswith(_SAID)}
            found |= _lengths(words)
            if study.command == "fit" and words.get("engine") is not None:
                label = f"memory of {words['engine']}: "
                found |= _flat(find_rules(words["engine"]), label)
            if case.constants is not None:
                label = f"engine on {case.machine.name}: "
                found |= _flat(dataclasses.asdict(case.constants), label)
    return found


def _parts(words: Mapping[str, Any], case: Case) -> Iterator[tuple[str, Any]]:
    """List the models and machines of a point: a draft, and where prompts are computed, too."""
    from .presets import find_machine, find_model
    from .typed import node_of

    yield "model", case.model
    yield "hardware", case.machine
    draft, elsewhere = words.get("draft"), words.get("prefill_on")
    if draft is not None:
        with contextlib.suppress(RooflmError):
            yield "draft", find_model(draft, {}, words.get("models"))
    if elsewhere is not None:
        yield "prefill on", find_machine(node_of(elsewhere).name, words.get("hardware"))


def _lengths(words: Mapping[str, Any]) -> dict[str, Any]:
    """Tell the lengths of a batch of different ones, which may stand in a file."""
    if not is_mixed(words):
        return {}
    return {f"lengths {words['context']}": ",".join(map(str, mixed_lengths(words)))}


_SAID = (": source", ": full_name", ": max_context", ": price_date")
"""Fields that no number rests on."""


def _told(value: Any) -> Any:
    return ",".join(f"{k}={v}" for k, v in value.items()) if is_map(value) else value


def _flat(value: Any, prefix: str) -> dict[str, Any]:
    """Name the leaves of nested data by their path; what is empty or unset is left out."""
    inner: Iterable[tuple[Any, Any]]
    if is_map(value):
        inner = value.items()
    elif isinstance(value, list | tuple):
        inner = enumerate(cast("Sequence[Any]", value))
    else:
        return {} if value in (None, "", False) else {prefix.rstrip("."): value}
    dot = "" if prefix.endswith(": ") else "."
    found: dict[str, Any] = {}
    for key, item in inner:
        found |= _flat(item, f"{prefix}{dot if prefix[-1] != ' ' else ''}{key}")
    return found
