"""From a name or a file to a Model or a Machine: what `MODEL` and `--on` mean."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from .attention import Attention, NoMixer
from .errors import RooflmError, nearest, printable
from .experts import Experts, NoFeedForward
from .hardware import Machine
from .mla import MLA
from .mlp import MLP
from .model import FeedForward, Group, Mixer, Model
from .plain import is_map
from .schema import DIMENSIONS, HARDWARE, KIND, LAYER, MODEL, check
from .yamlfile import Block, load, load_block, read_text, top_keys

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


def find_model(
    text: str, changes: Mapping[str, str] | None = None, more: str | None = None
) -> Model:
    """Find the model that a user names, with dimensions changed as by `--set`.

    text: a preset's name, its Hugging Face name, or a YAML file (FILE, or FILE#ENTRY where it
    holds several), a config.json or its folder, or a GGUF file; changes: key to new value, as
    typed; more: a file of further presets.
    """
    if (found := read_model_file(text)) is not None:
        return change_model(found, changes or {})
    if not changes:
        return build_model(*_find(text, MODELS_FILE, "model", MODEL, more))
    return _changed(lambda: _find(text, MODELS_FILE, "model", MODEL, more), changes)


def _changed(find: Callable[[], tuple[str, Block]], changes: Mapping[str, str]) -> Model:
    """Change a preset: keys of its entry, then letters that only its layers have.

    A key that would change nothing, or only some of the layers that have it, is refused.
    """
    from .letters import dimensions

    def made(wanted: Mapping[str, str]) -> Model:
        name, block = find()
        for key, value in wanted.items():
            _change(block, key, value)
        return build_model(name, block)

    name, block = find()
    original = made({})
    letters = dimensions(original)
    keys = {k: v for k, v in changes.items() if k in DIMENSIONS | _settable() or k not in letters}
    moved = {k: v for k, v in changes.items() if k not in keys}
    for key in keys:
        own = [k for k in block.value.get("kinds", {}).values() if key in k]
        split = key not in letters and any(letter.startswith(f"{key}_") for letter in letters)
        if own or split or (not _says(block, key, changes[key]) and _idle(made, keys, key)):
            if key in letters:
                moved[key] = changes[key]
                continue
            what = f"{key} is not one figure of {name}: its layers differ, or have none"
            raise RooflmError(what, f"--set {key}", f"Its letters are {', '.join(letters)}.")
    model = made({k: v for k, v in keys.items() if k not in moved})
    if not moved:
        said = tuple((k, v, "--set") for k, v in keys.items())
        return replace(model, provenance=(("all others", "", model.source), *said))
    model = replace(model, provenance=(("all others", "", model.source),))
    return change_model(model, moved)


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
    return {k: f for k, f in MODEL.items() if f.kind not in ("map", "text", "texts")}


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


def change_model(model: Model, changes: Mapping[str, str]) -> Model:
    """Change dimensions of a model that no preset describes; letters as its tables show them."""
    from .letters import dimensions, with_letter
    from .units import parse_count

    for key, text in changes.items():
        where = f"--set {key[:40]}"
        flags = {"tied", "final_norm", "head_bias", "parallel"}
        if key in flags:
            if text.lower() not in ("true", "false"):
                raise RooflmError(f"{key} is true or false, not '{text[:40]}'", where)
            model = replace(model, **{key: text.lower() == "true"})
            continue
        known = dimensions(model)
        several = len(model.groups) > 1
        if key not in known or (key == "L" and several):
            names = [*(k for k in known if not (k == "L" and several)), *flags]
            fix = nearest(key, names) or f"Known: {', '.join(names)}."
            raise RooflmError(f"unknown key '{printable(key, 40)}'", where, fix)
        try:
            model = with_letter(model, key, parse_count(text, where))
        except RooflmError as e:
            raise RooflmError(e.what, e.where or where, e.fix) from None
        for group in model.groups:
            a = group.mixer
            if isinstance(a, Attention) and a.N % a.K:
                raise RooflmError(f"K = {a.K} does not divide N = {a.N}", where)
    kept = tuple(row for row in model.provenance if row[0] not in changes)
    said = tuple((key, text, "--set") for key, text in changes.items())
    return replace(model, provenance=(*kept, *said))


def find_machine(text: str, more: str | None = None) -> Machine:
    """Find the hardware that a user names: a preset's name or a YAML file."""
    if re.fullmatch(r"[0-9]+ ?x ?[a-z].*", text):
        fix = "Name one device; layouts over several are not computed."
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
    return ("/" in stem or "\\" in stem) and _is_file(text)


def _is_file(text: str) -> bool:
    try:
        return Path(text).is_file()
    except (OSError, ValueError):
        return False


def _from_file(text: str, what: str, fields: Mapping[str, Any]) -> tuple[str, Block]:
    """Take an entry out of a user's file: the only one, or the one named after a #."""
    stem, _, entry = (text, "", "") if _is_file(text) else text.partition("#")
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


def parse_changes(settings: list[str]) -> dict[str, str]:
    """Split `--set KEY=VALUE` options."""
    changes: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        key, value = key.strip(), value.strip()
        if not equals or not key or not value:
            raise RooflmError(f"'{setting[:40]}' is not KEY=VALUE", "--set", "Write --set K=8.")
        if key in changes:
            raise RooflmError(f"'{key}' is set twice", "--set")
        changes[key] = value
    return changes


def _change(block: Block, key: str, text: str) -> None:
    """Put a typed value in place of a preset's, as if the entry had said so."""
    from .units import parse_count

    fields = DIMENSIONS | _settable()
    if key not in fields:
        fix = nearest(key, fields) or f"Known: {', '.join(fields)}."
        raise RooflmError(f"unknown key '{printable(key, 40)}'", "--set", fix)
    check(block, MODEL, "the entry")
    spec, where = fields[key], f"--set {key}"
    value: Any = text
    match spec.kind:
        case "count":
            value = 0 if spec.zero and not text.strip("0") else parse_count(text, where)
        case "flag":
            if text.lower() not in ("true", "false"):
                raise RooflmError(f"{key} is true or false, not '{text[:40]}'", where)
            value = text.lower() == "true"
        case "choices":
            value = [] if text == "none" else re.split(r"[+,]", text)
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


def build_model(name: str, block: Block) -> Model:
    """Check an entry and make the Model that it describes."""
    entry = check(block, MODEL, name)
    dims = entry["dims"]
    base = {k: v for k, v in entry.items() if k in LAYER}
    base |= {k: v for k, v in dims.items() if k in KIND}
    groups = tuple(
        build_group(block, kind, count, base | own)
        for kind, count, own in _pattern(block, name, dims["L"])
    )
    hub = entry.get("hf")
    if all(getattr(g.mixer, "shares", False) for g in groups):
        what = "every layer reads the keys and values of another, and none makes them"
        raise RooflmError(what, _place(block, ("shares_kv",)))
    return Model(
        name=name,
        D=dims["D"],
        V=dims["V"],
        groups=groups,
        norm=entry.get("norm", "rms"),
        final_norm=entry.get("final_norm", True),
        tied=entry.get("tied", False),
        positions=entry.get("positions", 0),
        embedding_width=entry.get("embedding_width"),
        head_bias="head" in entry.get("bias", []),
        parallel=entry.get("parallel", False),
        max_context=entry.get("max_context"),
        reference_repeats_heads=entry.get("reference_repeats_heads", False),
        source=entry.get("source")
        or (f"https://huggingface.co/{hub}/blob/main/config.json" if hub else block.path),
    )


def _pattern(block: Block, name: str, L: int) -> list[tuple[str, int, dict[str, Any]]]:
    """Expand a pattern over the layers: each kind, how many layers it has, what is its own."""
    entry = block.value
    kinds: dict[str, dict[str, Any]] = entry.get("kinds", {})
    if "pattern" not in entry:
        if kinds:
            raise RooflmError(f"{name} has kinds of layers but no pattern", block.where(("kinds",)))
        return [("", L, {})]
    unit: list[str] = []
    for i, item in enumerate(entry["pattern"]):
        times, star, kind = item.rpartition("*")
        where = block.where(("pattern", i))
        if star and not (times.strip().isdigit() and 0 < int(times) <= 10**4):
            raise RooflmError(f"'{item}' is not a kind or COUNT*KIND", where)
        if kind.strip() not in kinds:
            fix = nearest(kind.strip(), kinds) or f"The kinds are {', '.join(kinds)}."
            raise RooflmError(f"no kind of layer '{kind.strip()}'", where, fix)
        unit += [kind.strip()] * (int(times) if star else 1)
    where = _place(block, ("dims", "L"))
    if not unit or len(unit) > L:
        raise RooflmError(f"a pattern of {len(unit)} layers does not fit L = {L}", where)
    if block.places.get(("dims", "L")) == (0, 0) and len(unit) * 2 > L:
        what = f"the pattern names {len(unit)} layers one by one and cannot be scaled to {L}"
        raise RooflmError(what, where, "Change the pattern in a YAML entry.")
    if idle := [kind for kind in kinds if kind not in unit]:
        raise RooflmError(f"no layer is of kind '{idle[0]}'", block.where(("kinds", idle[0])))
    layers = [unit[i % len(unit)] for i in range(L)]
    return [(k, layers.count(k), own) for k, own in kinds.items() if k in layers]


def build_group(block: Block, kind: str, count: int, traits: Mapping[str, Any]) -> Group:
    """Make a group of equal layers of what an entry says about its kind."""
    return Group(
        count=count,
        mixer=_mixer(block, kind, traits),
        ffn=_feed_forward(block, kind, traits),
        norms=traits.get("norms_per_layer", 2),
        name=kind,
    )


def _mixer(block: Block, kind: str, traits: Mapping[str, Any]) -> Mixer:
    bias: list[str] = traits.get("bias", [])
    if traits.get("mixer", "attention") == "none":
        _alone(block, kind, traits, "mixer", ("mla",))
        return NoMixer()
    if "mla" in traits:
        others = ("window", "chunk", "sink_tokens", "shares_kv", "value_width", "value_is_key")
        _alone(block, kind, traits, "mla", others)
        return MLA(N=traits["N"], **traits["mla"], q_bias="qkv" in bias, out_bias="out" in bias)
    for key in ("K", "H"):
        if key not in traits:
            raise RooflmError(f"attention needs '{key}'", block.where(("dims",)))
    if traits["N"] % traits["K"]:
        own = ("kinds", kind, "K")
        where = _place(block, own if own in block.places else ("dims", "K"))
        what = f"K = {traits['K']} does not divide N = {traits['N']}"
        fix = f"{traits['N']} query heads can share {_divisors(traits['N'])} key/value heads."
        raise RooflmError(what, where, fix)
    if "window" in traits and "chunk" in traits:
        raise RooflmError("a layer has a window or a chunk, not both", block.where(("chunk",)))
    if traits.get("sink_tokens") and "window" not in traits:
        what = "sink tokens stay in view beside a window, and there is none"
        raise RooflmError(what, _place(block, ("sink_tokens",)))
    if traits.get("value_is_key") and traits.get("value_width") not in (None, traits["H"]):
        raise RooflmError("values that are keys are H wide", _place(block, ("value_width",)))
    return Attention(
        N=traits["N"],
        K=traits["K"],
        H=traits["H"],
        H_v=traits.get("value_width"),
        window=traits.get("window"),
        chunk=traits.get("chunk"),
        sink_tokens=traits.get("sink_tokens", 0),
        shares=traits.get("shares_kv", False),
        value_is_key=traits.get("value_is_key", False),
        qkv_bias="qkv" in bias,
        out_bias="out" in bias,
        qk_norm=traits.get("qk_norm", "none"),
        gate=traits.get("gate", "none"),
        extra=traits.get("extra", 0) + (traits["N"] if traits.get("sinks", False) else 0),
    )


def _feed_forward(block: Block, kind: str, traits: Mapping[str, Any]) -> FeedForward:
    shape = traits.get("mlp", "gated")
    bias = "mlp" in traits.get("bias", [])
    if shape == "none":
        _alone(block, kind, traits, "mlp", ("experts",))
        return NoFeedForward()
    experts = traits.get("experts")
    if experts is not None:
        if experts["k"] > experts["E"] + experts.get("zero", 0):
            where = block.where(("experts", "k"))
            raise RooflmError(f"a token cannot choose {experts['k']} of {experts['E']}", where)
        return Experts(**experts, gated=shape == "gated", bias=bias)
    if "F" not in traits:
        raise RooflmError("a dense layer needs 'F'", block.where(("dims",)))
    return MLP(F=traits["F"], gated=shape == "gated", bias=bias)


def _alone(
    block: Block, kind: str, traits: Mapping[str, Any], key: str, others: tuple[str, ...]
) -> None:
    """Refuse traits that a layer of this sort does not have."""
    for other in others:
        # What a kind takes out may stand at the top for the other kinds.
        own = ("kinds", kind, other) if kind else (other,)
        if traits.get(other) and own in block.places:
            layer = "latent attention" if key == "mla" else f"a layer with {key}: {traits[key]}"
            raise RooflmError(f"{layer} has no '{other}'", _place(block, own))


def _place(block: Block, key: tuple[str, ...]) -> str:
    changed = block.places.get(key) == (0, 0)
    return f"--set {key[-1]}" if changed else block.where(key)


def _divisors(n: int) -> str:
    found = [str(d) for d in range(1, min(n, 10**5) + 1) if n % d == 0]
    return ", ".join(found[:12]) + (" ..." if len(found) > 12 else "")


def build_machine(name: str, block: Block) -> Machine:
    """Check an entry and make the Machine that it describes."""
    entry = check(block, HARDWARE, name)
    label, price = figure_value(entry.get("label_gb")), entry.get("price_usd_per_hour")
    driver = figure_value(entry.get("driver_bytes"))
    return Machine(
        name=name,
        full_name=entry["name"],
        kind=entry["kind"],
        bandwidth_bytes_per_s=float(figure_value(entry["bandwidth_bytes_per_s"])),
        label_bytes=None if label is None else round(label * 1e9),
        driver_bytes=None if driver is None else round(driver),
        flops={k: float(figure_value(v)) for k, v in entry.get("flops", {}).items()},
        best_flops={k: float(figure_value(v)) for k, v in entry.get("best_flops", {}).items()},
        price_usd_per_hour=figure_value(price),
        price_date=str(price.get("date", "")) if is_map(price) else "",
    )


def figure_value(figure: Any) -> Any:
    """Take the number of a figure, written plainly or with its source; None stays None."""
    return figure["value"] if is_map(figure) else figure
