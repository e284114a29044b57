"""Notes about what was typed, where an answer took it for something that it does not spell."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any, Concatenate, ParamSpec

from .errors import RooflmError
from .plain import is_list
from .units import MULTIPLES, parse_count

P = ParamSpec("P")
Answering = Callable[Concatenate[Mapping[str, Any], P], dict[str, Any]]

LENGTHS = ("context", "prompt", "output_tokens", "prefix", "chunk", "max_len", "shared_prefix")
"""Options that count tokens."""


def adding(
    notes: Callable[[Mapping[str, Any]], list[str]],
) -> Callable[[Answering[P]], Answering[P]]:
    """Make what adds to an answer notes about what was typed of it."""

    def decorate(answer: Answering[P]) -> Answering[P]:
        @functools.wraps(answer)
        def wrapped(words: Mapping[str, Any], *args: P.args, **named: P.kwargs) -> dict[str, Any]:
            found = answer(words, *args, **named)
            said = notes(words)
            return found | {"assumptions": [*found["assumptions"], *said]} if said else found

        return wrapped

    return decorate


def noted(answer: Answering[P]) -> Answering[P]:
    """Add to an answer the notes about what was typed of it."""
    return adding(notes_of)(answer)


def at_a_context(answer: Answering[P]) -> Answering[P]:
    """Add to an answer about decode steps which context was taken where none was typed."""
    return adding(_usual_context)(answer)


def _usual_context(words: Mapping[str, Any]) -> list[str]:
    asked = [words.get(name) for name in ("context", "prompt", "p", "draft_cost")]
    if words.get("phase") not in (None, "decode") or any(said is not None for said in asked):
        return []
    by = "1,024 tokens, as none was typed" if words.get("max_len") is None else "--max-len"
    return [f"--context is {by}"]


def notes_of(words: Mapping[str, Any]) -> list[str]:
    """Say which presets were taken for other names, and what a K that was typed is."""
    from .presets import told_machine, told_model
    from .typed import node_of

    models, chips = words.get("models"), words.get("hardware")
    named = _names(words.get("model"), words.get("draft"))
    places = ",".join(_names(words.get("on"), words.get("prefill_on"))).split(",")
    notes = [
        *(_told(told_model, name, models) for name in named),
        *(_told(told_machine, node_of(place).name, chips) for place in places),
    ]
    return [*dict.fromkeys(note for note in notes if note), *_thousands(words)]


def _names(*typed: Any) -> list[str]:
    """List the names that were typed; models and machines themselves have none to tell."""
    flat = [n for one in typed for n in (one if is_list(one) else [one])]
    return [name for name in flat if isinstance(name, str)]


def _told(tell: Callable[[str, str | None], str], text: str, more: str | None) -> str:
    """Tell of a name; "" of a word that is none, as a draft that is no model is."""
    try:
        return tell(text, more)
    except RooflmError:
        return ""


def _thousands(words: Mapping[str, Any]) -> list[str]:
    """Say that K is 1,000, where a length was typed with it that is usually a power of two."""
    for name in LENGTHS:
        found = re.search(r"\b(\d+)K\b", str(words.get(name) or ""))
        if found and int(found[1]).bit_count() == 1 and int(found[1]) > 1:
            few, many = (parse_count(found[1] + k, f"--{name}") for k in ("K", "Ki"))
            return [f"{found[0]} is {few:,}: K = {MULTIPLES['K']:,}; {found[0]}i = {many:,}"]
    return []
