"""From a name or a file to a Model or a Machine: what `MODEL` and `--on` mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from .entries import build_machine, build_model
from .errors import RooflmError, nearest, printable
from .hardware import Machine
from .model import Model
from .plain import is_map
from .schema import DIMENSIONS, HARDWARE, MODEL, Field, check
from .yamlfile import Block, is_file, load, load_block, read_text, top_keys

HOME = Path(__file__).resolve().parents[1]
MODELS_FILE = HOME / "models.yaml"
HARDWARE_FILE = HOME / "hardware.yaml"

NOT_ENTRIES = frozenset({"sources"})
"""Top-level keys of a preset file that are not presets."""


@cache
def preset_text(path: Path) -> str:
    """Read a shipped file once."""
    return read_text(path)


def preset_names(path: Path) -> list[str]:
    """List the presets of a file in the order in which it has them."""
    return [k for k in top_keys(preset_text(path), path.name) if k not in NOT_ENTRIES]


def find_engine_entry(
    file: Path, name: str, fields: dict[str, Field], unknown: str
) -> Mapping[str, Any]:
    """Read an engine of a registry; raises `RooflmError` with `unknown` for one it has not.

    unknown: what is wrong, with `{}` for the name.
    """
    names = preset_names(file)
    if name not in names:
        fix = nearest(name, names) or f"Known: {', '.join(names)}."
        raise RooflmError(unknown.format(printable(name, 40)), "--engine", fix)
    return check(load_block(preset_text(file), name, file.name), fields, name)


def find_model(
    text: str | Model, changes: Mapping[str, str] | None = None, more: str | None = None
) -> Model:
    """Find the model that a user names, with dimensions changed as by `--set`.

    text: a preset's name, its Hugging Face name, a YAML file (FILE, or FILE#ENTRY where it holds
    several), a config.json or its folder, a GGUF file; or a model, taken as it is; changes: key to
    new value, as typed; more: a file of further presets.
    """
    if isinstance(text, Model):
        found = text
    elif (found := read_model_file(text)) is None:
        if not changes:
            return build_model(*_find(text, MODELS_FILE, "model", MODEL, more))
        from .changes import changed

        return changed(lambda: _find(text, MODELS_FILE, "model", MODEL, more), changes)
    if not changes:
        return found
    from .changes import change_model

    return change_model(found, changes)


def read_model_file(text: str) -> Model | None:
    """Read a config.json, a folder that holds one, or a GGUF file; None for any other name."""
    path = Path(os.path.expanduser(text))
    suffix = path.suffix.lower()
    try:
        folder = path.is_dir() and (_is_file_name(text) or (path / "config.json").is_file())
    except (OSError, ValueError):
        return None
    if suffix == ".gguf":
        from .gguf_model import read_gguf

        return read_gguf(path)
    if suffix == ".safetensors":
        what = "a safetensors file holds weights, and not how they are used"
        raise RooflmError(what, text[:200], "Name its folder, with the config.json beside it.")
    if suffix != ".json" and not folder:
        return None
    from .huggingface import read_config
    from .safetensors_file import parameters, read_folder, weight_bytes

    model = read_config(path)
    weights = path if folder else path.parent
    if any(weights.glob("*.safetensors")) or (weights / "model.safetensors.index.json").exists():
        tensors = read_folder(weights)
        held = parameters(tensors)
        return replace(model, file_bytes=weight_bytes(tensors), file_parameters=held)
    return model


def find_machine(text: str | Machine, more: str | None = None) -> Machine:
    """Find the hardware that a user names: a preset's name or a YAML file; a machine is taken."""
    if isinstance(text, Machine):
        return text
    if re.fullmatch(r"[0-9]+ ?x ?[a-z].*", text):
        fix = "Write NODESxDEVICESxNAME, such as 8xh100-sxm or 2x8xh100-sxm."
        raise RooflmError(f"'{text}' is several devices", "--on", fix)
    name, block = _find(text, HARDWARE_FILE, "hardware", HARDWARE, more)
    return build_machine(name, block)


def load_all(
    path: Path,
    build: Callable[[str, Block], Any],
    more: str | None = None,
    fields: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Build every preset of a shipped file, and of a user's before them."""
    return [build(name, block) for name, block in blocks(path, more, fields or {})]


def blocks(path: Path, more: str | None, fields: Mapping[str, Any]) -> list[tuple[str, Block]]:
    """List every entry of a user's file and of a shipped one that it does not replace."""
    found = {} if more is None else dict(own_blocks(more, fields))
    text = preset_text(path)
    for name in preset_names(path):
        if name not in found:
            found[name] = load_block(text, name, path.name)
    return list(found.items())


def own_blocks(path: str | None, fields: Mapping[str, Any]) -> list[tuple[str, Block]]:
    """List the entries of a user's file."""
    if path is None:
        return []
    whole, names = _own(path, "preset", fields)
    return [(name, whole.under(name)) for name in names]


def own_sources(path: str) -> dict[str, Any]:
    """Read the sources that a user's file defines for its figures."""
    whole = load(read_text(Path(os.path.expanduser(path))), path)
    found = whole.value.get("sources") if is_map(whole.value) else None
    return {k: v for k, v in found.items() if is_map(v)} if is_map(found) else {}


def _find(
    text: str, presets: Path, what: str, fields: Mapping[str, Any], more: str | None
) -> tuple[str, Block]:
    if _is_file_name(text):
        return _from_file(text, what, fields)
    own = [] if more is None else own_names(more, what, fields)
    mine = [name for name in own if _plain(name) == _plain(text)]
    if len(mine) == 1 and text not in set(preset_names(presets)) - set(own):
        return _from_file(f"{more}#{mine[0]}", what, fields)
    whole = preset_text(presets)
    name = _resolve(text, whole, preset_names(presets), what, own)
    return name, load_block(whole, name, presets.name)


def _is_file_name(text: str) -> bool:
    stem = text.partition("#")[0].lower()
    if stem.endswith((".yaml", ".yml", ".json", ".gguf", "/")) or stem.startswith((".", "/", "~")):
        return True
    # org/name is a Hugging Face name unless such a file is there.
    return ("/" in stem or "\\" in stem) and is_file(text)


def _from_file(text: str, what: str, fields: Mapping[str, Any]) -> tuple[str, Block]:
    """Take an entry out of a user's file: the only one, or the one named after a #."""
    stem, _, entry = (text, "", "") if is_file(text) else text.partition("#")
    whole, names = _own(stem, what, fields)
    if not entry and len(names) > 1:
        shown = ", ".join(names[:8])
        fix = f"Say which: {stem}#{names[0]}. It has {shown}."
        raise RooflmError(f"the file holds {len(names)} entries", stem, fix)
    entry = entry or names[0]
    if entry not in names:
        fix = nearest(entry, names) or f"It has {', '.join(names[:8])}."
        raise RooflmError(f"no entry '{entry}'", stem, fix)
    return entry, whole.under(entry)


def own_names(path: str, what: str, fields: Mapping[str, Any]) -> list[str]:
    """List the entries of a user's file."""
    return _own(path, what, fields)[1]


def _own(stem: str, what: str, fields: Mapping[str, Any]) -> tuple[Block, list[str]]:
    """Read a user's file and the names of its entries."""
    path = Path(os.path.expanduser(stem))
    if path.suffix.lower() in (".json", ".gguf"):
        raise RooflmError(
            f"a {path.suffix} file holds no {what} entries", stem, "Name a YAML file."
        )
    whole = load(read_text(path), stem)
    entries = whole.value
    names = [k for k in entries if k not in NOT_ENTRIES] if is_map(entries) else []
    if not names:
        raise RooflmError(f"the file holds no {what} entries (NAME: {{...}})", whole.where())
    if any(k in fields or k in DIMENSIONS for k in names):
        fix = f"Put a line `my-{what}:` above them and indent them."
        raise RooflmError("the keys of an entry stand at the top of the file", whole.where(), fix)
    return whole, names


def _resolve(text: str, whole: str, names: list[str], what: str, own: list[str]) -> str:
    """Find the one preset that a name means; raise with the candidates where it is not one."""
    if text in names:
        return text
    aliases = {name: [name] for name in names}
    for name, (_, start, end) in top_keys(whole, what).items():
        hub = re.search(r"^  hf: *(\S+)", whole[start:end], re.M)
        if hub and name in aliases:
            aliases[name] += [hub[1], hub[1].rpartition("/")[2]]
    plain = _plain(text)
    same = [n for n, known in aliases.items() if plain in map(_plain, known)]
    if plain and len(same) == 1:
        return same[0]
    words = [w for w in re.split(r"[^a-z0-9.]+", text.lower()) if w]
    alike = same or [n for n, known in aliases.items() if words and _holds(words, known)]
    where = "MODEL" if what == "model" else "--on"
    shown = printable(text, 60)
    if alike:
        more = f" and {len(alike) - 8} more" if len(alike) > 8 else ""
        fix = f"It may be {', '.join(alike[:8])}{more}: name one."
        raise RooflmError(f"'{shown}' is not the name of one {what}", where, fix)
    command = "models" if what == "model" else "hardware"
    lists = f"`rooflm {command}` lists what is known; a file will do."
    fix = nearest(text, [*own, *names]) or lists
    raise RooflmError(f"unknown {what} '{shown}'", where, fix)


def _holds(words: list[str], known: list[str]) -> bool:
    return any(all(w in name.lower() for w in words) for name in known)


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9.]", "", name.lower())
