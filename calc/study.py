"""The points of a study: every variant at every point of the grid, in blocks of columns."""

from __future__ import annotations

import contextlib
import itertools
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from .answered import bounded, fitted
from .asked import (
    DENOISED,
    WORK,
    case_of,
    command_of,
    counting_of,
    denoises,
    group,
    is_mixed,
    speculated,
    swept,
    works_of,
)
from .compare import Place, compared
from .cost import Paid, costs, economics_of
from .errors import RooflmError, nearest, printable
from .expectations import Expectation, check_expectations, check_selection
from .options import COSTED, DRAFTED, HANDOFF
from .options_memory import MEMORY
from .options_serve import USUAL
from .output import flatten
from .plain import is_list, is_number
from .quantities import further, names_of
from .study_file import COLUMNS, SERVED, Drawn, Study, located
from .sweep import FEW_POINTS, grid_columns, of_each_device, takes_arrays
from .typed import given, parse_costs
from .units import parse_counts, parse_time

if TYPE_CHECKING:
    from .case import Case

T = TypeVar("T")

Block = dict[str, Any]
"""Columns of some points: lists or numpy arrays of one length."""
Words = Mapping[str, Any]

BLOCK_POINTS = 50_000
"""Points of a block: enough for arrays to pay, few enough to be kept on an interrupt."""
INNER = ("context", "batch")
"""Axes that a command answers at once, the batch fastest."""
PRICED = (
    "output_usd_per_mtok", "input_usd_per_mtok", "cached_input_usd_per_mtok", "usd_per_request",
    "joules_per_token", "margin",
)  # fmt: skip
"""Columns of cost and energy, which need no option where they are measured."""
LACKING = ("--on", "--capacity")
"""Where an error stands that is about what a machine lacks, and not about what was typed."""
MOST_PROBES = 24
"""Points of the axes that are asked for a quantity that the first one lacks."""
MOST_CHECKED = 200
"""Cases that are made before any is answered, so that a mistake is told at once."""
ABSENT = {"state_bytes": 0, "adapters_bytes": 0, "host_bytes": 0, "devices": 1}
"""Columns that a sweep has only where there is something, and what they are elsewhere."""
UNCASED = (*WORK, *DENOISED, *COSTED, *HANDOFF, *DRAFTED, *INNER, *SERVED, *MEMORY,
           "p", "q", "draft_cost")  # fmt: skip
"""Options that a case does not hold."""
ELSEWHERE = (
    "Keys of the command's JSON are measured, for a sweep those of show, fit and roofline too; "
    "plan, levers, solve and quantize answer by themselves."
)
"""Where a quantity is told that is near to none of a study."""
ANSWERED_BY = {
    "plan": ("fewest_devices", "frontier", "layouts", "qualifying", "rejected", "nearest"),
    "levers": ("lever", "acts_on", "speedup", "throughput_gain", "cost_kept", "memory_kept",
               "not_tried"),
    "solve": ("unknown", "value", "formula", "definitions", "valid_for"),
    "quantize": ("bits", "code", "restored", "scale", "zero_point", "snr_db", "mse",
                 "bits_per_weight", "max_error", "error_bound"),
}  # fmt: skip
"""Keys in JSON of commands that search or take other inputs, and are no commands of a study."""
GAPPED = ("model", "on", "weights", "kv", "time_model", "accounting", "engine", "basis")
"""Axes along which some points may have no answer where others have one."""


@dataclass(frozen=True)
class Ready:
    """A study whose every name was checked against what its points answer."""

    study: Study
    columns: tuple[str, ...]
    keys: Mapping[str, tuple[Any, ...]]
    """What identifies a row, with all its values; the variant first."""
    measured: tuple[str, ...]
    expect: tuple[Expectation, ...]
    figures: tuple[Drawn, ...]
    probes: Mapping[str, Probe]
    """The first point of each variant."""
    gaps: bool
    """Points may have no answer; the reason is a column."""

    @property
    def points(self) -> int:
        """Rows of all variants; of two laws one a token."""
        return self.study.points * sum(len(probe.rows) for probe in self.probes.values())

    @property
    def shared_keys(self) -> list[str]:
        """What identifies a point of all variants: the axes, and what rows of a point differ in."""
        rows = ("token", "draft_cost", "draft_tokens")
        return [k for k in self.keys if k in self.axis_columns or k in rows]

    @property
    def axis_columns(self) -> list[str]:
        """Columns of the axes, in their order."""
        return axis_columns(self.study)


@dataclass(frozen=True)
class Probe:
    """The first point of a variant."""

    words: Words
    case: Case | None
    answer: Mapping[str, Any]
    rows: Sequence[Mapping[str, Any]]
    failed: bool = False


def prepare(study: Study) -> Ready:
    """Answer the first point of each variant, and check every name against it."""
    probes = {name: _in_place(study, name, _probe) for name in study.variants}
    _check_twins(study, probes)
    _check_axes(study)
    keys = _keys(study, probes)
    known: dict[str, None] = dict.fromkeys(ABSENT) if study.command == "sweep" else {}
    for name, probe in probes.items():
        known |= dict.fromkeys(k for row in probe.rows for k in row)
        if not study.measure:
            continue
        # What the first point lacks another one may have: a format, a layout.
        for combo in itertools.islice(combinations(study), MOST_PROBES):
            said = [m for m in study.measure if m not in known]
            if not said:
                break
            known |= dict.fromkeys(
                _in_place(study, name, lambda s, v, c=combo, n=said: _names_at(s, v, c, n))
            )
    gaps = any(p.failed for p in probes.values()) or any(a in study.axes for a in GAPPED)
    usual = [k for k in known if any(k in probe.rows[0] for probe in probes.values())]
    measured = tuple(m for m in (study.measure or usual) if m not in keys and m != "reason")
    for i, name in enumerate(study.measure):
        if name not in known and name not in keys:
            what = f"no quantity '{printable(name, 40)}' in this study"
            near = nearest(name, [*known, *_all_names(probes)])
            close = _answered_by(name) or near or ELSEWHERE
            if name.startswith("engine.") and study.command != "fit":
                close = "Say command: fit."
            raise RooflmError(what, study.text.where("measure", i), close)
    columns = [*keys, *measured, *study.derive, *study.facts]
    columns += ["reason"] if gaps or "reason" in study.measure else []
    _check_names(study, columns, known)
    _check_figures(study, [*columns, *known])
    figures = tuple(replace(f, at=check_selection(_several(f.at), keys, f.where))
                    for f in study.figures)  # fmt: skip
    expect = tuple(check_expectations(study.expect, columns, keys, _samples(probes)))
    return Ready(
        study, tuple(columns), keys, measured, expect, figures, probes, "reason" in columns
    )


def _answered_by(name: str) -> str:
    """Say which command answers a quantity that no study measures, or nothing."""
    parts = name.split(".")
    for command, keys in ANSWERED_BY.items():
        if parts[0] == command or parts[-1] in keys:
            return f"rooflm {command} answers it, by itself."
    return ""


def _check_axes(study: Study) -> None:
    """Make the case of every point of the axes, where those are few: a mistake is told at once."""
    combos = list(itertools.islice(combinations(study), MOST_CHECKED + 1))
    if len(combos) > MOST_CHECKED or study.command != "sweep":
        return
    for variant in study.variants:
        for combo in combos:
            _in_place(study, variant, lambda s, v, c=combo: case_of(words_of(s, v, c)))


def _samples(probes: Mapping[str, Probe]) -> dict[str, Any]:
    """Take a value of each column from the first points, where one is known."""
    found: dict[str, Any] = {}
    for probe in probes.values():
        found |= {k: v for row in probe.rows for k, v in row.items() if v is not None}
    return found


def _several(at: Mapping[str, Any]) -> dict[str, tuple[Any, ...]]:
    return {k: tuple(v) if is_list(v) else (v,) for k, v in at.items()}


def _in_place(study: Study, variant: str, run: Callable[[Study, str], T]) -> T:
    """Tell of an error about an option where the option stands in the study."""
    try:
        return run(study, variant)
    except RooflmError as e:
        if e.where.startswith("--") or e.where in ("MODEL", "TARGET", "", "--p, --q"):
            raise located(e, study, variant) from None
        raise


def _probe(study: Study, variant: str) -> Probe:
    """Answer the first point of a variant."""
    change = study.variants[variant]
    for name in (*change, *(f"set.{k}" for k in change.get("set", {}))):
        if name in study.axes:
            key = ("set", name[4:]) if name.startswith("set.") else (name,)
            where = study.text.where("variants", variant, *key)
            raise RooflmError(f"'{name}' is an axis of the grid already", where)
    words = words_of(study, variant, next(combinations(study)))
    once = {**words, **{name: str(study.axes[name][0]) for name in inner_axes(study)}}
    if study.command != "sweep":
        answer = _beside(study, once)
        case = None if words.get("model") is None else case_at(study, words)
        return Probe(words, case, answer, answer["rows"])
    for name, what in (("model", "model"), ("on", "machine")):
        if words.get(name) is None:
            raise RooflmError(f"no {what} is named", study.text.where("base"), f"Write {name}: ...")
    case = case_of(words)
    works_of(once)
    try:
        answer = swept(_costed(study, once))
    except RooflmError as e:
        rows = _compared(once, case) if e.where in LACKING else [{"reason": None}]
        if any(row["reason"] is None for row in rows):
            raise
        said = [f"no figures: {rows[0]['reason']}"]
        named = {"model": case.model.name, "hardware": case.machine.name}
        return Probe(words, case, {**named, "assumptions": said}, rows, failed=True)
    return Probe(words, case, answer, answer["rows"])


def _compared(words: Words, case: Case) -> list[dict[str, Any]]:
    """Answer points that have no figures with what they hold in memory, and the reason."""
    batches = parse_counts(given(words.get("batch"), "1"), "--batch")
    works = works_of(words)
    if works is not None:
        places = [Place(B, w.last_context, w) for w in works for B in batches]
    else:
        contexts = parse_counts(given(words.get("context"), "1024"), "--context")
        places = [Place(B, S) for S in contexts for B in batches]
    return [compared(case, place) for place in places]


def _check_twins(study: Study, probes: Mapping[str, Probe]) -> None:
    """Refuse a variant that is another one in other words."""
    seen: list[tuple[Any, str]] = []
    for name, probe in probes.items():
        if probe.case is None:
            continue
        # Where a dimension came from makes no other model.
        model = replace(probe.case.model, provenance=(), source="")
        usual = {"batch": "1", "context": "1024", "cost": False}
        usual |= USUAL if study.command == "serve" else {}
        work, told = _outcome(study, name, probe, probe.case)
        rest = {
            k: _plainly(usual.get(k) if v is None else v)
            for k, v in group(probe.words, UNCASED).items() if k not in told
        }  # fmt: skip
        case = replace(
            probe.case, model=model, machine=replace(probe.case.machine, scaled_by=""),
            capacity_bytes=_other_capacity(study, probe.case),
        )  # fmt: skip
        what = (case, rest, work, _paid(study, probe.words, probe.case))
        for other, twin in seen:
            if other == what:
                said = f"the variant '{name}' changes nothing: it is '{twin}' in other words"
                raise RooflmError(said, study.text.where("variants", name))
        seen.append((what, name))


def _outcome(study: Study, name: str, probe: Probe, case: Case) -> tuple[Any, Container[str]]:
    """Tell what options of a variant come to, and which: what is usual may be spelt out.

    Those of cost are compared by `_paid`, and constants of an engine are the case's.
    """
    words, paid = probe.words, {*COSTED, "engine"}
    match study.command:
        case "sweep":
            # A chunk may be longer than its prompt.
            return [
                replace(w, chunk=None) if w.chunk is not None and w.chunk >= w.prompt else w
                for w in works_of(words) or ()
            ], {*WORK, *paid}
        case "speculate":
            from .typed_drafts import find_speculation

            drafted = group(words, DRAFTED)
            found = find_speculation(case, drafted, counting_of(words), words.get("models"))
            return found, {*DRAFTED, *paid} - {"draft_tokens"}
        case "fit":
            held = _in_place(study, name, _reserved)
            # A utilization of memory is none of costs.
            return held, {*COSTED} - {*MEMORY} if held is None else {*COSTED, *MEMORY}
        case _:
            return None, paid


def _other_capacity(study: Study, case: Case) -> Any:
    """Take a capacity that is typed [B]; None where it is the machine's own at every point."""
    own = "on" not in study.axes and case.capacity_bytes is not None
    if own and case.limit[0] == replace(case, capacity_bytes=None).limit[0]:
        return None
    return case.capacity_bytes


def _paid(study: Study, words: Words, case: Case) -> Any:
    """Tell what tokens are paid with: nothing where no part of a study names a cost.

    What is typed of cost says nothing there. Elsewhere a default that is spelt out is the same, as
    far as one machine tells; along an axis of machines it is compared as it is typed.
    """
    asked = [study.text.value.get(part) for part in ("measure", "derive", "figures", "expect")]
    if not words.get("cost") and not any(name in str(asked) for name in PRICED):
        return None
    paid = parse_costs({"cost": True, **group(words, COSTED)}) or Paid()
    if "on" in study.axes:
        return bool(words.get("cost")), paid
    # The date of a price is no part of what is paid, and a power that is typed may be the board's.
    how = replace(economics_of(case.machine, paid), price_date="", typed_power=False)
    return bool(words.get("cost")), how


def _reserved(study: Study, variant: str) -> list[dict[str, Any]] | None:
    """Tell what an engine reserves along all axes: a default that is spelt out is the same there.

    None where the axes are long; the options are compared as they are typed then.
    """
    combos = list(itertools.islice(combinations(study), MOST_PROBES + 1))
    if len(combos) > MOST_PROBES:
        return None
    told = [fitted(words_of(study, variant, combo)).get("engine", {}) for combo in combos]
    # An input that is typed is told as given, with the same figures.
    return [{k: v for k, v in flatten(t).items() if not k.endswith((".given", ".source"))}
            for t in told]  # fmt: skip


def _plainly(value: Any) -> Any:
    """Read numbers as numbers, so that 1k is 1000, 1.0 is 1 and 90% is 0.9."""
    if not isinstance(value, str):
        return value
    for read in (parse_counts, _number):
        with contextlib.suppress(RooflmError, ValueError):
            found = read(value, "")
            return found[0] if is_list(found) and len(found) == 1 else found
    return value


def _number(text: str, where: str) -> float:
    """Read a decimal, a share in per cent or a time."""
    if text.endswith("%"):
        return float(text[:-1]) / 100
    return float(text) if re.fullmatch(r"[0-9.]+", text) else parse_time(text, where)


def steps_of(study: Study, words: Words, case: Case | None) -> bool:
    """Tell whether points are decode steps at one context, which arrays answer."""
    return has_further(study, words) and case is not None and not denoises(words, case)


def has_further(study: Study, words: Words) -> bool:
    """Tell whether points are single passes at one context, of which `further` tells."""
    plain = words.get("phase") in (None, "decode") and not is_mixed(words)
    blocks_ = any(words.get(name) is not None for name in DENOISED)
    return study.command == "sweep" and plain and not blocks_


def _names_at(
    study: Study, variant: str, combo: Mapping[str, Any], wanted: Sequence[str]
) -> list[str]:
    """Find which of some names are quantities of a point of the axes; none without an answer."""
    words = words_of(study, variant, combo)
    once = {**words, **{name: str(study.axes[name][0]) for name in inner_axes(study)}}
    try:
        if study.command != "sweep":
            return list(_beside(study, once)["rows"][0])
        case = case_of(words)
        row = swept(_costed(study, once))["rows"][0]
        if not has_further(study, words):
            return list(row)
        return [*row, *further(case, wanted, row["batch"], row["context_tokens"])]
    except RooflmError as e:
        if e.where in LACKING:
            return []
        raise


def _all_names(probes: Mapping[str, Probe]) -> list[str]:
    probe = next(iter(probes.values()))
    if probe.case is None or "context_tokens" not in probe.rows[0]:
        return []
    return names_of(probe.case, probe.rows[0]["batch"], probe.rows[0]["context_tokens"])


def _keys(study: Study, probes: Mapping[str, Probe]) -> dict[str, tuple[Any, ...]]:
    """Tell what identifies a row: the variant, the axes, and what rows of a point differ in."""
    keys: dict[str, tuple[Any, ...]] = {"variant": tuple(study.variants)}
    for name, column in zip(study.axes, axis_columns(study), strict=True):
        keys[column] = study.axes[name]
    axes = tuple(keys)
    for probe in probes.values():
        rows = probe.rows
        for column in ("token", "draft_cost", "draft_tokens", "prompt_tokens", "context_tokens",
                       "batch"):  # fmt: skip
            if column in axes or column not in rows[0]:
                continue
            values = tuple(dict.fromkeys(row[column] for row in rows))
            if len(values) > 1 or column in ("context_tokens", "batch"):
                keys[column] = (*keys.get(column, ()), *values)
    if "prompt_tokens" in keys or "output_tokens" in keys:
        # The context of a request follows from its prompt.
        keys.pop("context_tokens", None)
    return {k: tuple(dict.fromkeys(v)) for k, v in keys.items()}


def axis_columns(study: Study) -> list[str]:
    """Name the columns of the axes."""
    return [COLUMNS.get(name, name.removeprefix("set.")) for name in study.axes]


def _check_names(study: Study, columns: Sequence[str], known: Iterable[str]) -> None:
    """Refuse names that are no column: in arithmetic, facts and tolerances.

    known: what the command answers, whether it is measured or not, which arithmetic may use.
    """
    twice = next((c for i, c in enumerate(columns) if c in columns[:i]), None)
    if twice is not None:
        kind = "derive" if twice in study.derive else "facts"
        raise RooflmError(f"'{twice}' is a column already", study.text.where(kind, twice))
    before: list[str] = [c for c in (*columns, *known) if c not in study.derive]
    for name, expression in study.derive.items():
        for used in expression.names:
            variant, own = split_name(study, used, before)
            lost = own not in before or own == "reason"
            if lost or (variant and own in study.derive):
                fix = nearest(own, before) or "A column that is measured, or derived above."
                what = f"no column '{printable(used, 40)}'"
                raise RooflmError(what, study.text.where("derive", name), fix)
        before.append(name)
    for name in study.tolerance:
        if name not in columns:
            what = f"'{printable(name, 40)}' is not measured"
            raise RooflmError(what, study.text.where("tolerance", name), nearest(name, columns))


def split_name(study: Study, name: str, columns: Container[str]) -> tuple[str, str]:
    """Split VARIANT.COLUMN; no variant where the name is a column of its own row."""
    for variant in study.variants:
        if name not in columns and name.startswith(f"{variant}."):
            return variant, name[len(variant) + 1 :]
    return "", name


def _check_figures(study: Study, columns: Sequence[str]) -> None:
    """Refuse a figure of a column that is not there."""
    for i, figure in enumerate(study.figures):
        for option in ("x", "y", "z"):
            name = figure.options.get(option)
            if name is not None and name not in columns:
                what = f"'{printable(str(name), 40)}' is not measured"
                where = study.text.where("figures", i, option)
                raise RooflmError(what, where, nearest(str(name), columns))


def inner_axes(study: Study) -> list[str]:
    """Name the axes that the command answers at once."""
    together = {name for group_ in study.zipped for name in group_}
    return [name for name in INNER if name in study.axes and name not in together]


def outer_axes(study: Study) -> list[str]:
    """Name the axes that are answered one value after the other."""
    inner = inner_axes(study)
    return [name for name in study.axes if name not in inner]


def combinations(study: Study) -> Iterator[dict[str, Any]]:
    """List the points of the axes that are answered one after the other, slowest first."""
    inner = inner_axes(study)
    groups = [g for g in study.groups if not set(g) & set(inner)]
    for values in itertools.product(*(range(len(study.axes[g[0]])) for g in groups)):
        yield {n: study.axes[n][i] for g, i in zip(groups, values, strict=True) for n in g}


def words_of(study: Study, variant: str, combo: Mapping[str, Any]) -> dict[str, Any]:
    """Tell what a point types, the axes that are answered at once left out."""
    words = study.words(variant)
    settings = dict(words.pop("set", {}))
    for name, value in combo.items():
        if name.startswith("set."):
            settings[name[4:]] = str(value)
        else:
            words[name] = str(value)
    words["set"] = [f"{key}={value}" for key, value in settings.items()]
    return words


def _costed(study: Study, words: Words) -> dict[str, Any]:
    """Ask for cost where a column of it is measured."""
    priced = any(name in PRICED for name in study.measure)
    return {**words, "cost": True} if priced else dict(words)


def _beside(study: Study, words: Words) -> dict[str, Any]:
    """Answer a point by the command of a study that is no sweep."""
    if study.command == "speculate":
        return speculated(_costed(study, words))
    if study.command == "fit":
        return _fitted(words)
    from .typed_serve import served_row

    return served_row(words)


def _fitted(words: Words) -> dict[str, Any]:
    """Answer what memory holds, with the figures of an engine in every row."""
    answer = fitted(words)
    engine = flatten({"engine": answer.get("engine", {})})
    told = {name: value for name, value in engine.items() if is_number(value)}
    return {**answer, "rows": [flatten(row) | told for row in answer["rows"]]}


def case_at(study: Study, words: Words) -> Case:
    """Make the case of a point; where memory is asked for, nothing is timed."""
    if study.command != "fit":
        return case_of(words)
    return case_of(words, bounded(words), timed=False)


def command_line(study: Study, variant: str) -> str:
    """Spell out a command that answers a variant: all of the grid that it takes at once."""
    combo = next(combinations(study))
    words = words_of(study, variant, combo)
    for name in inner_axes(study):
        values = study.axes[name]
        words[name] = ",".join(map(str, values[:20])) + (",..." if len(values) > 20 else "")
    return command_of(study.command, _costed(study, words))


def blocks(ready: Ready, every: bool = False) -> Iterator[tuple[int, Callable[[], Block]]]:
    """List the blocks of a study: how many points, and what works them out.

    every: with all columns that the command answers, and not only those of the study.
    """
    study = ready.study
    for variant in study.variants:
        for combo in combinations(study):
            for part in _parts(study):
                points = math.prod(map(len, part.values())) * len(ready.probes[variant].rows)
                yield points, lambda v=variant, c=combo, p=part: _block(ready, v, c, p, every)


def _parts(study: Study) -> Iterator[dict[str, Sequence[int]]]:
    """Cut what a command answers at once into parts of bounded size."""
    axes = {name: study.axes[name] for name in inner_axes(study)}
    if not axes:
        yield {}
        return
    contexts, batches = axes.get("context"), axes.get("batch")
    if batches is None or contexts is None:
        name = next(iter(axes))
        for i in range(0, len(axes[name]), BLOCK_POINTS):
            yield {name: axes[name][i : i + BLOCK_POINTS]}
        return
    wide = min(len(batches), BLOCK_POINTS)
    for c in range(0, len(contexts), max(1, BLOCK_POINTS // wide)):
        for b in range(0, len(batches), wide):
            yield {
                "context": contexts[c : c + max(1, BLOCK_POINTS // wide)],
                "batch": batches[b : b + wide],
            }


def _block(
    ready: Ready, variant: str, combo: Mapping[str, Any], part: Mapping[str, Sequence[int]],
    every: bool,
) -> Block:  # fmt: skip
    """Work out the columns of a block."""
    study = ready.study
    own = _measured(ready, variant, combo, part)
    size = len(next(iter(own.values())))
    columns: Block = {"variant": [variant] * size}
    for name, column in zip(study.axes, axis_columns(study), strict=True):
        columns[column] = own[column] if name in part else [combo[name]] * size
    for name in (*ready.keys, *ready.measured):
        if name not in columns:
            columns[name] = own.get(name, [ABSENT.get(name)] * size)
    for name, fact in study.facts.items():
        columns[name] = [fact.values.get(variant)] * size
    others: dict[str, Block] = {}
    for name, expression in study.derive.items():
        used: dict[str, Any] = {}
        here = {**own, **columns}
        for word in expression.names:
            of, column = split_name(study, word, here)
            if of and of not in others:
                others[of] = _measured(ready, of, combo, part)
                given = {n: [f.values.get(of)] * size for n, f in study.facts.items()}
                others[of] = {**others[of], **given}
            there = others[of] if of else here
            used[word] = there.get(column, [ABSENT.get(column)] * size)
        columns[name] = _derived(expression, used, size, study.text.where("derive", name))
    if "reason" in ready.columns:
        columns["reason"] = own.get("reason", [None] * size)
    known = {name: columns[name] for name in ready.columns}
    return {**known, **{k: v for k, v in own.items() if k not in known}} if every else known


def _derived(expression: Any, used: Mapping[str, Any], size: int, where: str) -> Any:
    """Work out an expression along columns; a missing figure makes a missing result."""
    for name, column in used.items():
        if len(column) != size:
            what = f"'{name}' has {len(column):,} rows where this variant has {size:,}"
            raise RooflmError(what, where)
        first = column[0].item() if hasattr(column[0], "item") else column[0]
        if isinstance(first, str | bool):
            raise RooflmError(f"'{name}' holds words, which nothing is computed with", where)
    if size < FEW_POINTS:
        rows = zip(*used.values(), strict=True) if used else [()] * size
        return [expression.value(dict(zip(used, row, strict=True))) for row in rows]
    import numpy as np

    # None becomes nan, and nan nothing again where a column is written.
    arrays = {name: np.asarray(column, dtype=float) for name, column in used.items()}
    with np.errstate(all="ignore"):
        found = np.broadcast_to(np.asarray(expression.value(arrays), dtype=float), size)
    return np.where(np.isfinite(found), found, np.nan)


def _measured(
    ready: Ready, variant: str, combo: Mapping[str, Any], part: Mapping[str, Sequence[int]]
) -> Block:
    """Work out what a block measures, by the command or by one evaluation of arrays."""

    def run(study: Study, variant: str) -> Block:
        words = words_of(study, variant, combo)
        probe = ready.probes[variant]
        own = {k for k in probe.rows[0] if k not in PRICED} | set(ABSENT)
        wanted = [name for name in ready.measured if name not in own]
        points = math.prod(map(len, part.values()))
        if points >= FEW_POINTS and study.command == "sweep":
            case = case_of(words)
            if takes_arrays(case, points) and steps_of(study, words, case):
                # What lacks a rate has rows with the reason.
                with contextlib.suppress(RooflmError):
                    return _by_arrays(words, case, part, wanted)
        typed = {name: ",".join(map(str, values)) for name, values in part.items()}
        return _by_rows(ready, {**words, **typed}, wanted)

    return _in_place(ready.study, variant, run)


def _by_rows(ready: Ready, words: Words, wanted: Sequence[str]) -> Block:
    """Work a block out row by row, as the command answers it."""
    study = ready.study
    if study.command != "sweep":
        rows = _beside(study, words)["rows"]
    else:
        case = case_of(words)
        try:
            rows = swept(_costed(study, words))["rows"]
        except RooflmError as e:
            if not ready.gaps or e.where not in LACKING:
                raise
            rows = _compared(words, case)
        if wanted and has_further(study, words):
            rows = [
                row if row.get("reason") else
                row | further(case, wanted, row["batch"], row["context_tokens"])
                for row in rows
            ]  # fmt: skip
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _by_arrays(
    words: Words, case: Case, part: Mapping[str, Sequence[int]], wanted: Sequence[str]
) -> Block:
    """Work a block of decode steps out in one evaluation of arrays."""
    import numpy as np

    batches = part.get("batch") or parse_counts(given(words.get("batch"), "1"), "--batch")
    contexts = part.get("context") or parse_counts(given(words.get("context"), "1024"), "--context")
    columns = grid_columns(case, batches, contexts)
    columns |= of_each_device(columns)
    shape = (len(contexts), len(batches))
    costed = [name for name in wanted if name in PRICED]
    if costed:
        paid = economics_of(
            case.machine, parse_costs({"cost": True, **group(words, COSTED)}) or Paid()
        )
        columns |= {k: v for k, v in costs(columns, case, None, paid).items() if v is not None}
    names = [name for name in wanted if name not in PRICED]
    if names:
        B, S = np.array(batches, dtype=float)[None, :], np.array(contexts, dtype=float)[:, None]
        told = further(case, names, B, S)
        for name, value in told.items():
            columns[name] = np.broadcast_to(np.asarray(value), shape).ravel()
    size = math.prod(shape)
    return {
        k: [v] * size if v is None or not hasattr(v, "shape") else v for k, v in columns.items()
    }
