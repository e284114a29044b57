"""From a name or a file to a Model or a Machine: what `MODEL` and `--on` mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from .entries import build_machine, build_model
from .errors import RooflmError, either, nearest, printable
from .hardware import Machine
from .model import Model
from .names import chip_words, engine_name, like_chips, plain_name, same_chip, same_dimensions
from .plain import is_map
from .schema import DIMENSIONS, HARDWARE, MODEL, Field, check
from .yamlfile import Block, is_file, load, load_block, read_text, top_keys

T = TypeVar("T")

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
    names, name = preset_names(file), engine_name(name)
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
            return _built(text, MODELS_FILE, "model", MODEL, more, build_model)
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

        found, kind = same_dimensions(path.name, _called(MODELS_FILE))
        if found and kind and not is_file(text):
            fix = f"{_quantized(found, kind)[:-1]}, or name the file where it lies."
            raise RooflmError("there is no such file", text[:200], fix)

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
    if re.fullmatch(r"[0-9]+(?:x ?| x )[a-zA-Z].*", text):
        fix = "Write NODESxDEVICESxNAME, such as 8xh100-sxm or 2x8xh100-sxm."
        raise RooflmError(f"'{text}' is several devices", "--on", fix)
    return _built(text, HARDWARE_FILE, "hardware", HARDWARE, more, build_machine)


def preset_of(name: str) -> str | None:
    """Find the preset that has the dimensions of a model of a hub or a log; nothing is opened.

    >>> preset_of("meta-llama/Meta-Llama-3.1-8B-Instruct-AWQ")
    'llama-3.1-8b'
    """
    return same_dimensions(name, _called(MODELS_FILE))[0]


def told_model(text: str, more: str | None = None) -> str:
    """Say which preset was taken for a model of another name; "" where it is that preset."""
    folder = Path(os.path.expanduser(text))
    try:
        if (folder / "config.json").is_file():
            return ""
    except (OSError, ValueError):
        return ""
    name, ruled = _named(text, MODELS_FILE, "model", MODEL, more)
    return f"{printable(text, 80)} has the dimensions of the preset {name}" if ruled else ""


def told_machine(text: str, more: str | None = None) -> str:
    """Say which preset was taken for half a name; "" where all of it was typed."""
    name, ruled = _named(text, HARDWARE_FILE, "hardware", HARDWARE, more)
    return f"{printable(text, 40)} is taken for {name}" if ruled else ""


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
    own = _own_name(text, presets, what, fields, more)
    if own is not None:
        return _from_file(own, what, fields)
    name, _ = _resolve(text, presets, what, _names_beside(more, what, fields))
    return name, load_block(preset_text(presets), name, presets.name)


def _built(
    text: str, presets: Path, what: str, fields: Mapping[str, Any], more: str | None,
    build: Callable[[str, Block], T],
) -> T:  # fmt: skip
    """Build what a name means, a shipped preset once: no one changes a model or a machine."""
    own = _own_name(text, presets, what, fields, more)
    if own is not None:
        return build(*_from_file(own, what, fields))
    name, _ = _resolve(text, presets, what, _names_beside(more, what, fields))
    return _shipped(presets, name, build)


@cache
def _shipped(presets: Path, name: str, build: Callable[[str, Block], T]) -> T:
    return build(name, load_block(preset_text(presets), name, presets.name))


def _named(
    text: str, presets: Path, what: str, fields: Mapping[str, Any], more: str | None
) -> tuple[str | None, bool]:
    """Find the preset that a name means, None for a file's entry; tell whether by a rule."""
    if _own_name(text, presets, what, fields, more) is not None:
        return None, False
    return _resolve(text, presets, what, _names_beside(more, what, fields))


def _own_name(
    text: str, presets: Path, what: str, fields: Mapping[str, Any], more: str | None
) -> str | None:
    """Name the file, and the entry of a user's file, that a name means; None for a preset."""
    if _is_file_name(text):
        return text
    own = _names_beside(more, what, fields)
    mine = [name for name in own if plain_name(name) == plain_name(text)]
    shipped = set(preset_names(presets)) - set(own)
    return f"{more}#{mine[0]}" if len(mine) == 1 and text not in shipped else None


def _names_beside(more: str | None, what: str, fields: Mapping[str, Any]) -> list[str]:
    """List the entries of a user's file beside the shipped ones, if there is one."""
    return [] if more is None else own_names(more, what, fields)


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


def _resolve(text: str, presets: Path, what: str, own: list[str]) -> tuple[str, bool]:
    """Find the one preset that a name means, and tell whether by a rule; raise with candidates."""
    names = preset_names(presets)
    if text in names:
        return text, False
    aliases = _aliases(presets)
    plain = plain_name(text)
    same = [n for n, known in aliases.items() if plain in map(plain_name, known)]
    if plain and len(same) == 1:
        return same[0], False
    where = "MODEL" if what == "model" else "--on"
    shown = printable(text, 60)
    if what == "model":
        found, kind = same_dimensions(text, _called(presets))
        if found and kind:
            what = f"'{shown}' has the dimensions of {found}, and weights of its own format"
            raise RooflmError(what, where, _quantized(found, kind))
        chosen = [found] if found and not same else []
    else:
        if rack := _rack(text, _chips(presets)):
            raise RooflmError(f"'{shown}' is several devices", where, rack)
        chosen = same_chip(text, _chips(presets))
    if len(chosen) == 1:
        return chosen[0], True
    lists = f"`rooflm {'models' if what == 'model' else 'hardware'}` lists what is known; "
    lists += "its config.json will do." if what == "model" else "a file will do."
    alike = same or chosen or _alike(text, aliases)
    if what == "hardware":
        alike = like_chips(text, _chips(presets)) or alike
        _refuse_size(text, _chips(presets))
    if alike:
        more = f" and {len(alike) - 8} more" if len(alike) > 8 else ""
        fix = f"It may be {', '.join(alike[:8])}{more}: name {'one' if alike[1:] else 'that'}."
        raise RooflmError(f"'{shown}' is not the name of one {what}", where, fix)
    fix = _several(text, aliases) if what == "hardware" else ""
    if what == "model" and "," in text:
        fix = f"Say one after the other: rooflm compare {' '.join(text.split(',')[:3])}."
    fix = fix or nearest(text.rpartition("/")[2], [*own, *names])
    if what == "model" and fix and "," not in text:
        fix += " Of another model its config.json will do."
    fix = fix or lists
    raise RooflmError(f"unknown {what} '{shown}'", where, fix)


def _quantized(found: str, kind: str) -> str:
    """Say how a model is named whose name tells a format."""
    from .formats import FORMATS

    if kind in FORMATS:
        return f"Say {found} --weights {kind}."
    return f"Name {found}, and its format with --weights."


def _refuse_size(text: str, chips: Mapping[str, str]) -> None:
    """Say where to put the memory of a computer whose chip is sold with several."""
    chip, sizes = re.subn(r"[- ]([0-9]+) ?gb?$", "", text.lower())
    found = same_chip(chip, chips)
    if sizes and len(found) == 1 and found[0].startswith("apple-"):
        size = chip_words(text)[-1].upper()
        what = f"{found[0]} is sold with several sizes of memory"
        raise RooflmError(what, "--on", f"Say --on {found[0]} --capacity {size}.")


@cache
def _chips(presets: Path) -> dict[str, str]:
    """Tell what each chip is called in full, with its kind and size of memory."""
    whole = preset_text(presets)
    said = re.compile(r"^  (?:name|memory): *(.+)|^  label_gb: *(?:{value: )?([0-9.]+)", re.M)
    return {
        name: ", ".join(f[0] or f"{f[1]} GB" for f in said.findall(whole[start:end]))
        for name, (_, start, end) in top_keys(whole, presets.name).items()
        if name not in NOT_ENTRIES
    }


def _rack(text: str, chips: Mapping[str, str]) -> str:
    """Say how the devices of a rack are written: gb200-nvl72 is 72 of them."""
    found = re.fullmatch(r"(.+?)[- _]?nvl ?([0-9]{1,3})", text.lower())
    chip = same_chip(found[1], chips) if found else []
    return f"Write {found[2]}x{chip[0]}." if found and len(chip) == 1 else ""


def _several(text: str, aliases: Mapping[str, list[str]]) -> str:
    """Say how several machines are written: names with commas, or a number before the name."""
    if "," in text:
        return "One machine at a time here; `rooflm compare` takes several."
    found = re.fullmatch(
        r"(?![0-9]* ?[x*:])(.+?) ?[x*:] ?([0-9]{1,4})|([0-9]{1,4})(?: ?[*:] ?| )(.+)", text
    )
    if found is None:
        return ""
    chip, count = found[1] or found[4], found[2] or found[3]
    known = _chips(HARDWARE_FILE)
    chips = same_chip(chip, known) or like_chips(chip, known) or _alike(chip, aliases)
    return f"Write {either([f'{count}x{name}' for name in chips[:4]])}." if chips else ""


def _aliases(presets: Path) -> dict[str, list[str]]:
    """List what each preset is called: its name, its name on the hub, and the end of that."""
    whole, names = preset_text(presets), preset_names(presets)
    aliases = {name: [name] for name in names}
    for name, (_, start, end) in top_keys(whole, presets.name).items():
        hub = re.search(r"^  hf: *(\S+)", whole[start:end], re.M)
        if hub and name in aliases:
            aliases[name] += [hub[1], hub[1].rpartition("/")[2]]
    return aliases


def _called(presets: Path) -> dict[str, str]:
    """Give presets by what they are called, in plain letters."""
    aliases = _aliases(presets)
    called = {plain_name(name): name for name in aliases}
    for name, (*_, short) in aliases.items():
        called.setdefault(plain_name(short), name)
    return called


def _alike(text: str, aliases: Mapping[str, list[str]]) -> list[str]:
    """List the presets whose name holds every word."""
    words = [w for w in re.split(r"[^a-z0-9.]+", text.lower()) if w]
    return [n for n, known in aliases.items() if words and _holds(words, known)]


def _holds(words: list[str], known: list[str]) -> bool:
    return any(all(w in name.lower() for w in words) for name in known)
