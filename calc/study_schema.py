"""The JSON Schema of study files, for editors: from the same tables that the check uses."""

from __future__ import annotations

from typing import Any

from ..plots.kinds import KINDS
from .study_file import COMMANDS, FACT, FIGURE, OPTIONS, TOP, about, drawn_kinds

Schema = dict[str, Any]

_SCALAR: Schema = {"type": ["string", "number", "boolean"]}
_TEXT: Schema = {"type": "string"}
_LIST: Schema = {"anyOf": [_SCALAR, {"type": "array", "items": _SCALAR, "minItems": 1}]}


def study_schema() -> Schema:
    """Write what a study file may hold as a JSON Schema."""
    options = _closed({name: _told(_option(name), about(name)) for name in OPTIONS})
    axes: Schema = {name: _told(_LIST, about(name)) for name in OPTIONS if name != "set"}
    axes["zip"] = {"type": "array", "items": {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}}
    parts: Schema = {
        "title": _TEXT,
        "says": _TEXT,
        "extends": _TEXT,
        "command": {"enum": list(COMMANDS)},
        "base": options,
        "variants": _map({"anyOf": [{"const": "base"}, options]}),
        "grid": {**_closed(axes), "patternProperties": {r"^set\.\w+$": _LIST}},
        "measure": {"type": "array", "items": _TEXT, "minItems": 1, "uniqueItems": True},
        "derive": _map(_TEXT),
        "facts": _map(_fact()),
        "tolerance": _map({"type": "number", "minimum": 0, "exclusiveMaximum": 1}),
        "figures": {"type": "array", "items": {"anyOf": [_figure(kind) for kind in drawn_kinds()]}},
        "expect": {"type": "array", "items": _expectation()},
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "rooflm study",
        **_closed({name: _told(part, TOP[name]) for name, part in parts.items()}),
    }


def _told(schema: Schema, says: str) -> Schema:
    return {**schema, "description": says}


def _closed(properties: Schema) -> Schema:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _map(inner: Schema) -> Schema:
    return {"type": "object", "additionalProperties": inner}


def _option(name: str) -> Schema:
    if name == "set":
        return _map(_SCALAR)
    return {"type": "boolean"} if name == "cost" else _LIST


def _fact() -> Schema:
    parts: Schema = {name: _map({"type": "number"}) if name == "values" else _TEXT for name in FACT}
    told = {name: _told(part, FACT[name]) for name, part in parts.items()}
    return {**_closed(told), "required": ["source", "values"]}


def _figure(kind: str) -> Schema:
    parts: Schema = {
        name: _map(_LIST) if name == "at" else _TEXT for name in FIGURE if name != "kind"
    }
    told = {name: _told(part, FIGURE[name]) for name, part in parts.items()}
    own: Schema = {name: {"type": ["string", "number"]} for name in KINDS[kind].options}
    named = {"kind": _told({"const": kind}, KINDS[kind].says)}
    return {**_closed({**named, **told, **own}), "required": ["kind"]}


def _expectation() -> Schema:
    value: Schema = {"type": ["string", "number", "boolean", "null"]}
    chain: Schema = {"anyOf": [_TEXT, {"type": "array", "items": _TEXT}]}
    return {
        "type": "object",
        "properties": {"at": _map(_LIST), "source": _TEXT, "order": _map(chain)},
        "additionalProperties": value,
        "minProperties": 1,
    }
