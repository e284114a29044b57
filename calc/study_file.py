"""A study file: read strictly, every part with its place, what it extends merged in."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from .arithmetic import Expression, parse
from .asked import DENOISED, WORK
from .errors import RooflmError, either, nearest, printable
from .expectations import Expectation, parse_expectation
from .options import (
    COSTED,
    COUNTED,
    DRAFTED,
    ESTIMATED,
    FILES,
    HANDOFF,
    LAYOUT,
    TERMS,
    Batch,
    Context,
    DraftCost,
    Draws,
    ModelName,
    On,
    OutputTokens,
    Phase,
    Prompt,
    Set,
    TokensPerStep,
    Wants,
)

from .options import AccountingName, Block, Chunk, DenoiseBlock, DenoiseSteps, Prefix  # isort: skip
from .options_memory import MEMORY
from .options_serve import ENGINE, PROMISED, TRAFFIC
from .plain import is_list, is_map, is_number
from .units import parse_counts, parse_time
from .yamlfile import Key, load, read_text

COMMANDS = ("sweep", "speculate", "serve", "fit")
ALONE = ("plan", "levers", "solve", "quantize")
"""Commands whose answers are no points, by which no study is answered."""
MOST_STUDY_POINTS = 10**7
"""Points that a study may have: a file of some gigabytes."""
MOST_VARIANTS = 100
MOST_FILES = 20
"""Studies that extend each other."""

SERVED: dict[str, Any] = {
    name: said
    for name, said in {**TRAFFIC, **ENGINE, **PROMISED}.items()
    if name not in ("unit_cost", "find_rate", "sweep")
}
SHARED_NAMES = frozenset(("prompt", "output_tokens", "prefix", "block"))
"""Options of live traffic that other commands have too."""
OPTIONS: dict[str, Any] = {
    **MEMORY,
    "model": ModelName, "on": On, "set": Set, "accounting": AccountingName, "batch": Batch,
    "context": Context, "phase": Phase, "prompt": Prompt, "output_tokens": OutputTokens,
    "prefix": Prefix, "chunk": Chunk, "block": Block, "tokens_per_step": TokensPerStep,
    "denoise_block": DenoiseBlock, "denoise_steps": DenoiseSteps, "p": Draws, "q": Wants,
    "draft_cost": DraftCost, **LAYOUT, **TERMS, **HANDOFF, **COUNTED, **ESTIMATED, **COSTED,
    **FILES, **DRAFTED,
    **{name: said for name, said in SERVED.items() if name not in SHARED_NAMES},
}  # fmt: skip
"""Options of the commands that a study asks, by their names there."""
RESERVED = frozenset(name for name, said in MEMORY.items() if OPTIONS[name] is said)
"""Options of an engine's memory that no other command has."""

SERVED_OPTIONS = frozenset((*SERVED, "model", "on", "set", *LAYOUT, *HANDOFF, *ESTIMATED, *FILES,
                            *DRAFTED, *(n for n in COUNTED if n != "time_model")))  # fmt: skip
"""Options of live traffic in a study."""
FITTED_OPTIONS = frozenset((*MEMORY, "model", "on", "batch", "context", "set", "accounting",
                            "weights", "kv", "state", "reserve", "capacity", "gpu_share",
                            *LAYOUT, *TERMS, *FILES))  # fmt: skip
"""Options of memory in a study."""
_SPECULATED = ("p", "q", "draft_cost", *DRAFTED)
_SWEPT = (*WORK, *DENOISED, "accounting", "tokens_per_step", *TERMS, *HANDOFF)
_COUNTS = (
    "batch", "context", "prompt", "output_tokens", "prefix", "chunk", "block", "denoise_block",
    "denoise_steps", "tp", "pp", "ep", "dp", "cp", "replicas", "gpu_layers", "shared_prefix",
    "draft_tokens", "draft_tp", "chains", "clients", "rounds", "requests", "max_sequences",
    "max_batched_tokens", "prefix_groups", "prefill_servers", "max_len",
    "state_blocks",
)  # fmt: skip
"""Options that take whole numbers, so that an axis of them is read as on the command line."""
_PATHS = ("models", "hardware", "calibration", "trace")
COLUMNS = {
    "on": "hardware", "context": "context_tokens", "prompt": "prompt_tokens",
    "rate": "rate_requests_per_s",
}  # fmt: skip
"""Keys of a row that hold an option under another name."""

TOP = {
    "title": "What the study is called.",
    "says": "What it shows, in sentences.",
    "extends": "Another study file, which this one adds to and overrides.",
    "command": "The command that answers its points: sweep (default), speculate, serve or fit.",
    "base": "Options of the command, by their names with underscores.",
    "variants": "Named changes of the base: options, or the word base for the base itself.",
    "grid": "Axes: options with a list or a range; `zip` names axes that go together.",
    "measure": "Quantities, by their keys in JSON; those of the command if it is left out.",
    "derive": "Further columns, by arithmetic over the others.",
    "facts": "Figures of each variant that rooflm does not compute, with their source.",
    "tolerance": "Relative difference from frozen numbers that is none, for each quantity.",
    "figures": "What is drawn.",
    "expect": "What has to hold.",
}
"""Keys of a study file."""
FACT = {
    "label": "What axes are labelled with.",
    "unit": "Its unit.",
    "source": "Where the figures are from.",
    "values": "A figure for each variant.",
}
FIGURE = {
    "kind": "A kind of `rooflm plot`.",
    "name": "Its file: NAME.svg.",
    "title": "What stands above it.",
    "at": "Rows that are drawn, by the values of their keys.",
}


@dataclass(frozen=True)
class Text:
    """What study files say, merged, and where each part stands."""

    value: dict[str, Any]
    places: Mapping[Key, str]
    path: str
    sources: tuple[str, ...] = ()
    """The files as they are written, those that are extended first."""

    def where(self, *key: str | int) -> str:
        """Name the place of a part: file:line:column."""
        while key not in self.places and key:
            key = key[:-1]
        return self.places.get(key, f"{self.path}:1:1")


@dataclass(frozen=True)
class Fact:
    """A figure of each variant that the user brought."""

    label: str
    unit: str
    source: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Drawn:
    """A figure that a study asks for."""

    kind: str
    name: str
    title: str
    options: Mapping[str, Any]
    at: Mapping[str, Any]
    where: str


@dataclass(frozen=True)
class Study:
    """A study that was checked, as far as its text alone tells."""

    path: str
    title: str
    says: str
    command: str
    base: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]]
    axes: Mapping[str, tuple[Any, ...]]
    """Axes in the order of the file, each with its values."""
    zipped: tuple[tuple[str, ...], ...]
    """Groups of axes that go together; every other axis is crossed with all."""
    measure: tuple[str, ...]
    derive: Mapping[str, Expression]
    facts: Mapping[str, Fact]
    tolerance: Mapping[str, float]
    figures: tuple[Drawn, ...]
    expect: tuple[Expectation, ...]
    text: Text = field(repr=False)

    @property
    def groups(self) -> tuple[tuple[str, ...], ...]:
        """Axes that go together, each group at the place of its first; slowest first."""
        together = {name: group for group in self.zipped for name in group}
        return tuple(dict.fromkeys(together.get(name, (name,)) for name in self.axes))

    @property
    def points(self) -> int:
        """Points of the grid for each variant."""
        return math.prod(len(self.axes[group[0]]) for group in self.groups)

    def words(self, variant: str) -> dict[str, Any]:
        """Tell what a variant types: the base with its changes; settings are added to."""
        return changed(self.base, self.variants[variant])


def changed(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put options over others; `set` is merged key by key."""
    settings: dict[str, Any] = {**(base.get("set") or {}), **(changes.get("set") or {})}
    words = {name: value for name, value in {**base, **changes}.items() if value is not None}
    return {**words, "set": settings} if settings else words


def read_study(path: str) -> Study:
    """Read and check a study file.

    Raises `RooflmError` with file, line and column for whatever is wrong with it.
    """
    text = _merged(Path(path), ())
    value = text.value
    _known(value, TOP, text, ())
    command = value.get("command", "sweep")
    if command in ALONE:
        what = f"'{command}' answers by itself, and no points of a study"
        fix = f"Run rooflm {command}, or take {either(list(COMMANDS))}."
        raise RooflmError(what, text.where("command"), fix)
    command = _choice(command, COMMANDS, text.where("command"))
    base = _options(value.get("base", {}), command, text, ("base",))
    variants = _variants(value.get("variants"), base, command, text)
    axes, zipped = _grid(value.get("grid", {}), command, text)
    for kind in ("derive", "facts"):
        for name in _map(value.get(kind, {}), text, (kind,)):
            if not re.fullmatch(r"[A-Za-z]\w{0,59}", name, re.A):
                what = f"'{printable(name, 40)}' cannot be the name of a column"
                raise RooflmError(what, text.where(kind, name), "One word of letters will do.")
    derive = {
        name: parse(_word(said, text.where("derive", name)), text.where("derive", name))
        for name, said in _map(value.get("derive", {}), text, ("derive",)).items()
    }
    facts = _facts(value.get("facts", {}), variants, text)
    study = Study(
        path=path,
        title=printable(_word(value.get("title", Path(path).stem), text.where("title")), 200),
        says=printable(" ".join(_word(value.get("says", ""), text.where("says")).split()), 5000),
        command=command,
        base=base,
        variants=variants,
        axes=axes,
        zipped=zipped,
        measure=_measured(value.get("measure"), text),
        derive=derive,
        facts=facts,
        tolerance=_tolerances(value.get("tolerance", {}), text),
        figures=_figures(value.get("figures", []), text),
        expect=_expectations(value.get("expect", []), variants, text),
        text=text,
    )
    points = study.points * len(variants)
    if points > MOST_STUDY_POINTS:
        what = f"{points:,} points are more than {MOST_STUDY_POINTS:,}"
        raise RooflmError(what, text.where("grid"), "Take larger steps.")
    for name in (*derive, *facts):
        taken = (name in derive and name in facts) or name in (*axes, "variant")
        if taken:
            kind = "derive" if name in derive else "facts"
            raise RooflmError(
                f"'{printable(name, 40)}' is a column already", text.where(kind, name)
            )
    return study


def _merged(path: Path, before: tuple[Path, ...]) -> Text:
    """Read a file and what it extends."""
    source = read_text(path)
    block = load(source, str(path))
    if not is_map(block.value):
        raise RooflmError("a study is a mapping of keys", str(path), f"It has {', '.join(TOP)}.")
    places = {key: block.where(key) for key in block.places}
    own = Text(block.value, places, str(path), (source,))
    if "extends" not in own.value:
        return own
    where = own.where("extends")
    other = path.parent / _word(own.value["extends"], where)
    if not _is_file(other):
        raise RooflmError(f"there is no file {printable(str(other), 80)} to extend", where)
    seen = (*before, path.resolve())
    if len(seen) > MOST_FILES:
        raise RooflmError(f"more than {MOST_FILES} studies extend each other", where)
    if other.resolve() in seen:
        ring = " -> ".join(p.name for p in (*seen[seen.index(other.resolve()) :], other))
        raise RooflmError(f"a study extends itself: {ring}", where)
    under = _merged(other, seen)
    _known(under.value, TOP, under, ())
    said = dict(under.value)
    kept = {k: v for k, v in under.places.items() if k}
    for key, new in own.value.items():
        inner = said.get(key)
        if is_map(new) and is_map(inner):
            # null takes what the other file says away.
            both = inner | new
            if key == "base" and is_map(inner.get("set")) and is_map(new.get("set")):
                both["set"] = inner["set"] | new["set"]
            said[key] = {k: v for k, v in both.items() if v is not None}
            replaced = [(key, name) for name in new]
        else:
            said[key] = new
            replaced = [(key,)]
        kept = {k: v for k, v in kept.items() if not any(k[: len(r)] == r for r in replaced)}
    places = kept | {k: v for k, v in own.places.items() if k}
    return Text(said, places, str(path), (*under.sources, source))


def _known(value: Mapping[str, Any], known: Mapping[str, Any], text: Text, key: Key) -> None:
    """Refuse a key that is not known."""
    for name in value:
        if name not in known:
            fix = nearest(name, known) or f"Known: {', '.join(known)}."
            raise RooflmError(f"unknown key '{printable(name, 40)}'", text.where(*key, name), fix)


def _map(value: Any, text: Text, key: Key) -> dict[str, Any]:
    if value is None:
        return {}
    if not is_map(value):
        raise RooflmError(f"'{key[-1]}' is a mapping of keys to values", text.where(*key))
    return value


def _word(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise RooflmError(f"{printable(repr(value), 40)} is not a text", where, "Put it in quotes.")
    return value


def _choice(value: Any, known: Sequence[str], where: str) -> str:
    if value not in known:
        shown = printable(str(value), 40)
        fix = nearest(shown, known) or f"Known: {either(list(known))}."
        raise RooflmError(f"unknown value '{shown}'", where, fix)
    return value


def known_options(command: str) -> dict[str, Any]:
    """Name the options of a command that a study may use."""
    if command == "serve":
        return {name: said for name, said in OPTIONS.items() if name in SERVED_OPTIONS}
    if command == "fit":
        return {name: said for name, said in OPTIONS.items() if name in FITTED_OPTIONS} | MEMORY
    without = _SPECULATED if command == "sweep" else _SWEPT
    others = SERVED.keys() - SHARED_NAMES | RESERVED
    return {n: said for n, said in OPTIONS.items() if n not in without and n not in others}


def about(option: str) -> str:
    """Tell what an option is, in the words of the command line."""
    said: Any = OPTIONS[option]
    return get_args(said[0] if isinstance(said, tuple) else said)[1].help


def _options(value: Any, command: str, text: Text, key: Key) -> dict[str, Any]:
    """Read options as if they were typed."""
    said = _map(value, text, key)
    _known(said, known_options(command), text, key)
    # null takes away what the base says.
    return {n: v if v is None else _typed(n, v, text, (*key, n)) for n, v in said.items()}


def _typed(name: str, value: Any, text: Text, key: Key) -> Any:
    """Turn the value of an option into what is typed on the command line."""
    where = text.where(*key)
    if name == "set":
        settings = _map(value, text, key)
        return {k: _scalar(v, text.where(*key, k)) for k, v in settings.items()}
    if name == "cost":
        if not isinstance(value, bool):
            raise RooflmError("'cost' is true or false", where)
        return value
    if is_list(value) and name in ("tariff", "p", "q", "acceptance"):
        return ",".join(_scalar(v, text.where(*key, i)) for i, v in enumerate(value))
    written = "" if is_list(value) else _scalar(value, where)
    # Lengths of requests may follow a law: uniform:256-1024.
    counts = name in _COUNTS and "@" not in written and not re.match(r"[a-z]+:", written)
    if is_list(value) or (counts and len(parse_counts(written, where)) > 1):
        fix = "Several values make an axis: write them under grid."
        raise RooflmError(f"'{name}' takes one value here", where, fix)
    # As the file that says it sees it, which may be one that is extended.
    folder = Path(where.rsplit(":", 2)[0]).parent
    if name in _PATHS and not Path(written).is_absolute():
        return str(folder / written)
    if name in ("model", "on") and _is_file(path := folder / written):
        # Without a mark of a path a name is a preset, whatever file has it; a folder may be meant.
        return written if path.is_file() and not re.search(r"[./\\]", written) else str(path)
    return written


def _is_file(path: Path) -> bool:
    """Tell whether a path is one of a file, or of a folder beside it, and no name of a preset."""
    try:
        return path.exists() and (path.is_file() or (path / "config.json").is_file())
    except (OSError, ValueError):
        return False


def _scalar(value: Any, where: str) -> str:
    """Write a value as it is typed."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    raise RooflmError("a single value is needed here", where)


def _variants(
    value: Any, base: Mapping[str, Any], command: str, text: Text
) -> dict[str, dict[str, Any]]:
    """Read variants; the base alone where there are none."""
    if value is None:
        return {"base": {}}
    found: dict[str, dict[str, Any]] = {}
    said = _map(value, text, ("variants",))
    if len(said) > MOST_VARIANTS:
        what = f"{len(said):,} variants are more than {MOST_VARIANTS}"
        raise RooflmError(what, text.where("variants"), "Make an axis of the grid of them.")
    for name, change in said.items():
        where = text.where("variants", name)
        if not re.fullmatch(r"[^\W_][\w +/.:-]{0,39}", name):
            fix = "Letters, digits, spaces and + - / . : will do, 40 at the most."
            raise RooflmError(f"'{printable(name, 50)}' cannot be a variant's name", where, fix)
        own = {} if change == "base" else _options(change, command, text, ("variants", name))
        if change != "base" and changed(base, own) == dict(base):
            fix = "Write `base` for the base itself."
            raise RooflmError(f"the variant '{name}' changes nothing", where, fix)
        twins = [n for n, other in found.items() if changed(base, other) == changed(base, own)]
        if twins:
            raise RooflmError(f"the variant '{name}' is the same as '{twins[0]}'", where)
        found[name] = own
    return found or {"base": {}}


def _grid(
    value: Any, command: str, text: Text
) -> tuple[dict[str, tuple[Any, ...]], tuple[tuple[str, ...], ...]]:
    """Read the axes of a grid and which of them go together."""
    said = dict(_map(value, text, ("grid",)))
    together = said.pop("zip", [])
    known = {**known_options(command), "zip": ""}
    axes: dict[str, tuple[Any, ...]] = {}
    for name, values in said.items():
        where = text.where("grid", name)
        if not re.fullmatch(r"set\.\w+", name):
            _known({name: values}, known, text, ("grid",))
        if name in ("set", "cost", *_PATHS):
            fix = "Write set.K: [1, 8] for a dimension." if name == "set" else ""
            raise RooflmError(f"'{name}' is no axis", where, fix)
        found = tuple(_axis(name, values, text, ("grid", name)))
        if not found:
            raise RooflmError(f"the axis '{name}' has no values", where)
        if len(set(found)) < len(found):
            again = Counter(found).most_common(1)[0][0]
            raise RooflmError(f"the axis '{name}' has {printable(str(again), 40)} twice", where)
        axes[name] = found
    return axes, _zipped(together, axes, text)


def _axis(name: str, value: Any, text: Text, key: Key) -> Iterator[Any]:
    """List the values of an axis: a list, or a range as on the command line."""
    if is_list(value):
        for i, one in enumerate(value):
            if is_list(one):
                raise RooflmError("an axis is one list of values", text.where(*key, i))
            yield from _axis(name, one, text, (*key, i))
        return
    where = text.where(*key)
    if value in (None, "") or is_map(value):
        raise RooflmError(f"the axis '{name}' is a list or a range", where)
    if value == "all" and name in ("model", "on"):
        from .presets import HARDWARE_FILE, MODELS_FILE, preset_names

        yield from preset_names(MODELS_FILE if name == "model" else HARDWARE_FILE)
    elif isinstance(value, str) and (name in _COUNTS or name.startswith("set.")):
        if name in _COUNTS or re.fullmatch(r"[\d:,xkKiMGTe.+ ]+", value):
            yield from parse_counts(value, where)
        else:
            yield value
    elif isinstance(value, str) and re.fullmatch(r"[\d.]+:[\d.]+:[\d.]+", value):
        yield from _decimals(value, where)
    elif isinstance(value, bool | int | float):
        yield value
    else:
        yield _typed(name, value, text, key)


def _decimals(text: str, where: str) -> Iterator[float]:
    """List FIRST:LAST:STEP of decimals without rounding: 0.5:0.9:0.1 has five values."""
    from decimal import Decimal, InvalidOperation

    try:
        first, last, step = (Decimal(part) for part in text.split(":"))
    except InvalidOperation:
        raise RooflmError(f"'{printable(text, 40)}' is not a range", where) from None
    if step <= 0 or last < first or (last - first) / step >= 10**6:
        raise RooflmError(f"'{printable(text, 40)}' is no range of up to 10^6 values", where)
    for i in range(int((last - first) / step) + 1):
        yield float(first + i * step)


def _zipped(
    value: Any, axes: Mapping[str, Sequence[Any]], text: Text
) -> tuple[tuple[str, ...], ...]:
    """Read which axes go together: a list of names, or a list of such lists."""
    where = text.where("grid", "zip")
    if not is_list(value):
        raise RooflmError("'zip' is a list of axes", where)
    groups: list[Any] = value if value and all(is_list(g) for g in value) else [value]
    found: list[tuple[str, ...]] = []
    for group in groups if value else []:
        for name in group:
            if not isinstance(name, str) or name not in axes:
                shown = printable(str(name), 40)
                fix = nearest(shown, axes) or f"Axes: {', '.join(axes)}."
                raise RooflmError(f"no axis '{shown}'", where, fix)
        lengths = {name: len(axes[name]) for name in group}
        if len(lengths) < 2 or len(set(lengths.values())) > 1:
            told = ", ".join(f"{name} has {n:,}" for name, n in lengths.items())
            raise RooflmError(f"two axes or more of equal length go together: {told}", where)
        if any(name in other for other in found for name in group):
            raise RooflmError("an axis goes with one group of others", where)
        found.append(tuple(group))
    return tuple(found)


def _measured(value: Any, text: Text) -> tuple[str, ...]:
    if value is None:
        return ()
    if not is_list(value) or not value:
        raise RooflmError("'measure' is a list of quantities", text.where("measure"))
    names = [_word(v, text.where("measure", i)) for i, v in enumerate(value)]
    for i, name in enumerate(names):
        if name in names[:i]:
            raise RooflmError(f"'{name}' is measured twice", text.where("measure", i))
    return tuple(names)


def _facts(value: Any, variants: Mapping[str, Any], text: Text) -> dict[str, Fact]:
    found: dict[str, Fact] = {}
    for name, said in _map(value, text, ("facts",)).items():
        key: Key = ("facts", name)
        fact = _map(said, text, key)
        _known(fact, FACT, text, key)
        for needed in ("source", "values"):
            if needed not in fact:
                what = f"the fact '{printable(name, 40)}' has no {needed}"
                fix = "rooflm computes no quality: say where the figures are from."
                raise RooflmError(what, text.where(*key), fix)
        values = _map(fact["values"], text, (*key, "values"))
        _known(values, variants, text, (*key, "values"))
        for variant, figure in values.items():
            if not is_number(figure) or not math.isfinite(figure):
                what = f"{printable(repr(figure), 40)} is no figure"
                raise RooflmError(what, text.where(*key, "values", variant))
        words = {k: _word(fact.get(k, ""), text.where(*key, k)) for k in ("unit", "source")}
        label = _word(fact.get("label", name), text.where(*key, "label"))
        found[name] = Fact(label, values=values, **words)
    return found


def _tolerances(value: Any, text: Text) -> dict[str, float]:
    found = _map(value, text, ("tolerance",))
    for name, share in found.items():
        if not is_number(share) or not 0 <= share < 1:
            what = f"{printable(repr(share), 40)} is not a relative difference from 0 to 1"
            raise RooflmError(what, text.where("tolerance", name), "Write 1e-6.")
    return {name: float(share) for name, share in found.items()}


def _listed(value: Any, name: str, text: Text) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not is_list(value):
        raise RooflmError(f"'{name}' is a list", text.where(name))
    return [_map(item, text, (name, i)) for i, item in enumerate(value)]


def drawn_kinds() -> tuple[str, ...]:
    """Name the kinds of figures whose answer a study has."""
    from ..plots.kinds import KINDS

    return tuple(name for name, kind in KINDS.items() if kind.in_studies)


def _figures(value: Any, text: Text) -> tuple[Drawn, ...]:
    from ..plots.kinds import KINDS

    found: list[Drawn] = []
    for i, said in enumerate(_listed(value, "figures", text)):
        if "kind" not in said:
            raise RooflmError("a figure has a kind", text.where("figures", i))
        kind = _choice(said["kind"], drawn_kinds(), text.where("figures", i, "kind"))
        _known(said, {**FIGURE, **dict.fromkeys(KINDS[kind].options)}, text, ("figures", i))
        name = _word(said.get("name", kind), text.where("figures", i, "name"))
        if not re.fullmatch(r"[\w.-]{1,60}", name) or name.startswith("."):
            what = f"'{printable(name, 40)}' cannot be the name of a file"
            raise RooflmError(what, text.where("figures", i, "name"))
        if any(other.name == name for other in found):
            fix = "Say name: for one of them."
            raise RooflmError(f"two figures are called '{name}'", text.where("figures", i), fix)
        title = printable(_word(said.get("title", ""), text.where("figures", i, "title")), 200)
        at = _map(said.get("at"), text, ("figures", i, "at"))
        for k in ("x", "y", "z", "log", "better"):
            if k in said:
                _word(said[k], text.where("figures", i, k))
        options = {
            k: _time(v, text.where("figures", i, k)) if k.endswith("_s") else v
            for k, v in said.items()
            if k not in FIGURE
        }
        found.append(Drawn(kind, name, title, options, at, text.where("figures", i)))
    return tuple(found)


def _time(value: Any, where: str) -> float:
    """Read a time with its unit."""
    if not isinstance(value, str):
        raise RooflmError("a time has a unit", where, "Write 30ms.")
    return parse_time(value, where)


def _expectations(value: Any, variants: Mapping[str, Any], text: Text) -> tuple[Expectation, ...]:
    found: list[Expectation] = []
    for i, said in enumerate(_listed(value, "expect", text)):

        def where(*key: str | int, i: int = i) -> str:
            return text.where("expect", i, *key)

        found += parse_expectation(said, variants, where)
    return tuple(found)


def located(error: RooflmError, study: Study, variant: str) -> RooflmError:
    """Tell of an error about an option where that option stands in the study."""
    named = re.match(r"--([a-z-]+)(?: (\S+))?", error.where)
    option = (
        named[1].replace("-", "_")
        if named
        else {"MODEL": "model", "TARGET": "model"}.get(error.where, "")
    )
    keys: list[Key] = [("variants", variant, option), ("base", option)]
    if option in study.axes:
        keys.insert(0, ("grid", option))
    if option == "set":
        inner = named[2].partition("=")[0] if named and named[2] else ""
        axes = [f"set.{inner}", *(axis for axis in study.axes if axis.startswith("set."))]
        own: list[Key] = [("variants", variant, "set", inner), ("base", "set", inner)]
        keys = [*own, *(("grid", axis) for axis in axes), *keys]
    places = study.text.places
    where = next(
        (places[key] for key in keys if key in places), study.text.where("variants", variant)
    )
    beside = "" if option or not error.where else f" ({error.where})"
    return RooflmError(f"variant '{variant}': {error.what}{beside}", where, error.fix, error.code)
