"""What `--set` changes: keys of a preset's entry, and letters of any model."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .entries import build_model, pattern_unit
from .errors import RooflmError, nearest, printable
from .letters import dimensions, with_layers, with_letter
from .mixers import misfit
from .model import Model
from .readings import is_zero
from .schema import DIMENSIONS, LAYER, MODEL, Field, check
from .units import parse_count
from .yamlfile import Block


def parse_changes(settings: list[str]) -> dict[str, str]:
    """Split `--set KEY=VALUE` options."""
    changes: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key or not value:
            raise RooflmError(
                f"'{setting[:40]}' is not KEY=VALUE",
                "--set",
                "Write --set K=8, or mla=c:512+r:64+d:128+v:128.",
            )
        if key in changes:
            raise RooflmError(f"'{key}' is set twice", "--set")
        changes[key] = value
    return changes


def changed(find: Callable[[], tuple[str, Block]], changes: Mapping[str, str]) -> Model:
    """Change a preset: keys of its entry, then letters that only its layers have.

    A key that would change nothing, or only some of the layers that have it, is refused. A pattern
    that repeats is cut or goes on; layers that are named one by one are scaled by their groups.
    """

    def made(wanted: Mapping[str, str]) -> Model:
        name, block = find()
        for key, value in wanted.items():
            _change(block, key, value)
        return build_model(name, block)

    name, block = find()
    given = build_model(name, block)
    if "D" in changes:
        _check_width(given)
    letters = dimensions(given)
    keys = {k: v for k, v in changes.items() if k in DIMENSIONS | _settable() or k not in letters}
    if len(given.groups) > 1 and 2 * len(pattern_unit(block)) > given.layers:
        keys.pop("L", None)
    moved = {k: v for k, v in changes.items() if k not in keys}
    for key in keys:
        # Experts have an F of their own.
        inside = "experts" if key == "F" else key
        own = [k for k in block.value.get("kinds", {}).values() if key in k or inside in k]
        split = key not in letters and any(letter.startswith(f"{key}_") for letter in letters)
        if own or split or (not _says(block, key, changes[key]) and _idle(made, keys, key)):
            if key in letters:
                moved[key] = changes[key]
                continue
            what = f"{key} is not one figure of {name}: its layers differ, or have none"
            raise RooflmError(what, f"--set {key}", f"Its letters are {', '.join(letters)}.")
    model = made({k: v for k, v in keys.items() if k not in moved})
    said = ((k, v, "--set") for k, v in keys.items() if k not in moved)
    model = replace(model, provenance=(("all others", "", model.source), *said))
    return change_model(model, moved)


def _check_width(model: Model) -> None:
    """Refuse another D where a model has weights that it cannot follow into."""
    if any(not is_zero(g.own) for g in model.groups):
        what = f"layers of {model.name} have matrices whose sizes are given as one number"
        raise RooflmError(what, "--set D", "Change D together with it in a YAML entry.")


def _says(block: Block, key: str, text: str) -> bool:
    """Tell whether an entry has this value already."""
    holder = block.value["dims"] if key in DIMENSIONS else block.value
    return key in holder and str(holder[key]).lower() == text.lower()


def _idle(made: Callable[[Mapping[str, str]], Model], keys: Mapping[str, str], key: str) -> bool:
    """Tell whether a change among others makes no difference to the model."""
    try:
        without = made({k: v for k, v in keys.items() if k != key})
    except RooflmError:
        return False
    return without == made(keys)


def _settable() -> dict[str, Any]:
    """Fields of an entry that one word can change; flat maps and a pattern are spelt out."""
    kinds = ("count", "figure", "flag", "choice", "choices")
    flat = {k: f for k, f in LAYER.items() if f.kind == "map"}
    return {k: f for k, f in MODEL.items() if f.kind in kinds} | flat | {"pattern": PATTERN}


PATTERN = Field("texts", "kinds of layers in order: 3*window:1024+full, or full+shared")
_KIND = re.compile(r"(?:([1-9][0-9]{0,3})\*)?(full|shared|window|chunk)(?::([0-9]+[kKMi]*))?")


def _set_pattern(block: Block, text: str) -> None:
    """Let layers of a plain stack differ: full, of a window or chunk, or with a shared cache."""
    where = "--set pattern"
    if "pattern" in block.value or any(k in block.value for k in ("window", "chunk", "shares_kv")):
        what = "the model has layers of its own kinds"
        raise RooflmError(what, where, "Change its pattern in a YAML entry.")
    kinds: dict[str, dict[str, Any]] = {}
    pattern: list[str] = []
    for part in re.split(r"[+,]", text):
        found = _KIND.fullmatch(part.strip())
        if found is None or (found[2] in ("window", "chunk")) != (found[3] is not None):
            fix = "Write 3*window:1024+full, or full+shared."
            raise RooflmError(f"'{printable(part, 40)}' is no kind of layer", where, fix)
        times, kind, size = found.groups()
        own: dict[str, Any] = {"shares_kv": True} if kind == "shared" else {}
        if size is not None:
            own = {kind: parse_count(size, where)}
        if kind == "shared" and not pattern:
            what = "the first layer has no cache before it that it could share"
            raise RooflmError(what, where, "Write full+shared.")
        name = kind if kinds.get(kind, own) == own else f"{kind}{size}"
        kinds[name] = own
        pattern.append(f"{times}*{name}" if times else name)
    for key, value in (("kinds", kinds), ("pattern", pattern)):
        block.value[key] = value
        block.places[(key,)] = (0, 0)


def _map_of(text: str, key: str, inside: Mapping[str, Field]) -> dict[str, Any]:
    """Read a flat map, such as c:512+r:64+d:128+v:128."""
    found: dict[str, Any] = {}
    for part in re.split(r"[+,]", text):
        name, colon, value = (word.strip() for word in part.partition(":"))
        if not colon:
            fix = f"Write {key}={'+'.join(f'{k}:1' for k in list(inside)[:2])}."
            raise RooflmError(f"'{printable(part, 40)}' is not KEY:VALUE", f"--set {key}", fix)
        kind = inside[name].kind if name in inside else "count"
        where = f"--set {key}"
        if name in found:
            raise RooflmError(f"'{name}' is set twice", where)
        found[name] = (
            _flag(name, value, where) if kind == "flag"
            else value if kind == "choice"
            else 0 if not value.strip("0") and value else parse_count(value, where)
        )  # fmt: skip
    return found


def change_model(model: Model, changes: Mapping[str, str]) -> Model:
    """Change dimensions of a model that no preset describes; letters as its tables show them."""
    for key, text in changes.items():
        where = f"--set {key[:40]}"
        flags = {"tied", "final_norm", "head_bias", "parallel"}
        if key in flags:
            model = replace(model, **{key: _flag(key, text, where)})
            continue
        known = dimensions(model)
        if key not in known:
            names = [*known, *flags]
            fix = nearest(key, names) or f"Known: {', '.join(names)}."
            raise RooflmError(f"unknown key '{printable(key, 40)}'", where, fix)
        if key == "D":
            _check_width(model)
        try:
            value = parse_count(text, where)
            model = with_layers(model, value) if key == "L" else with_letter(model, key, value)
        except RooflmError as e:
            raise RooflmError(e.what, e.where or where, e.fix) from None
        if wrong := next(filter(None, (misfit(g.mixer) for g in model.groups)), ""):
            raise RooflmError(wrong, where)
    kept = tuple(row for row in model.provenance if row[0] not in changes)
    said = tuple((key, text, "--set") for key, text in changes.items())
    return replace(model, provenance=(*kept, *said))


def _flag(key: str, text: str, where: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise RooflmError(f"{key} is true or false, not '{text[:40]}'", where)
    return text.lower() == "true"


def _change(block: Block, key: str, text: str) -> None:
    """Put a typed value in place of a preset's, as if the entry had said so."""
    fields = DIMENSIONS | _settable()
    if key not in fields:
        fix = nearest(key, fields) or f"Known: {', '.join(fields)}."
        raise RooflmError(f"unknown key '{printable(key, 40)}'", "--set", fix)
    check(block, MODEL, "the entry")
    spec, where = fields[key], f"--set {key}"
    if key == "pattern":
        _set_pattern(block, text)
        return
    value: Any = text
    match spec.kind:
        case "count":
            value = 0 if spec.zero and not text.strip("0") else parse_count(text, where)
        case "flag":
            value = _flag(key, text, where)
        case "choices":
            value = [] if text == "none" else re.split(r"[+,]", text)
        case "map":
            value = _map_of(text, key, spec.keys)
        case _:
            pass
    place = ("dims", key) if key in DIMENSIONS else (key,)
    holder = block.value["dims"] if key in DIMENSIONS else block.value
    holder[key] = value
    probe = Block({key: value}, {}, where)
    try:
        check(probe, {key: spec}, "it")
    except RooflmError as e:
        raise RooflmError(e.what.replace("it.", "", 1), where) from None
    block.places[place] = (0, 0)
