"""What is run: models and formats, their points, and how many layers fit in memory and time."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..calc.case import Case, memory
from ..calc.errors import RooflmError
from ..calc.hardware import Machine
from ..calc.memory import weights_bytes
from ..calc.model import Model, tensors, total_parameters
from ..calc.passes import Precision, Segment, decode, prefill
from ..calc.precision import precision_of
from ..calc.presets import find_model
from ..calc.timing import step_time
from ..calc.weights import is_vector
from . import ceilings, measured
from .device import find_device, identity, memory_free
from .linears import dtype_of, make_linear
from .making import Maker, cache_dtype
from .network import build, check
from .ranks import Ranks, alone
from .shrink import cut, small
from .talk import reason
from .untyped import torch

SQUARE = 128
"""Side of a matrix that tells whether torch has a kernel for a format."""
FREE_SHARE = 0.85
"""Share of the free memory that a run may take."""
BUILD_S = {"cpu": 2e-8, "cuda": 2e-10}
"""Time of a random weight and its format, roughly [s]."""
COMPILE_S = 40.0
"""Time that the kernels of a model take to compile, roughly [s]."""
SLOWER = 2.5
"""A step is taken to last so many times its bound when a run is planned."""


@dataclass(frozen=True)
class Plan:
    """What to run."""

    models: Sequence[str]
    device: str = "cpu"
    on: str | None = None
    """Preset of the device; that of its name if None."""
    batches: Sequence[int] = (1, 2, 4, 8)
    contexts: Sequence[int] = (512, 1024, 2048)
    weights: Sequence[str] = ("bf16",)
    caches: Sequence[str] = ("",)
    """Formats of the cache; "" follows the weights."""
    phases: Sequence[str] = ("decode",)
    changes: tuple[tuple[str, str], ...] = ()
    layers: int | None = None
    """Layers that are run, in the proportions of the model's groups; as many as fit if None."""
    budget_s: float = 600.0
    """Time that the whole run may take [s]."""
    runs: int = 9
    compile: bool = False
    """Compile what runs between the matrices."""
    quick: bool = False
    seed: int = 0
    ranks: Ranks = field(default_factory=alone)
    date: str = ""
    quiet: bool = False
    debug: bool = False
    """Let a defect of a point end the run, with its traceback."""


@dataclass
class Subject:
    """A model in a format: what is built once and run at several points."""

    name: str
    asked: str
    """The model as it was typed."""
    model: Model
    """What runs: of a rank where there are several, cut where the whole does not fit."""
    whole: Model
    weights: str
    """Formats of the weights, as they were typed."""
    precision: Precision
    points: list[tuple[str, int, int]]
    """Phase, batch and context."""
    cut_from: int | None = None
    """Layers of the whole model where some were left out."""


NO_FIGURES = dict.fromkeys((
    "floor_s", "bound_s", "ceiling_bound_s", "estimate_s", "calibrated_s", "measured_s", "error",
    "bound_error", "ceiling_error", "calibrated_error",
))  # fmt: skip
"""What a row without a measurement has."""


@dataclass(frozen=True)
class Wanted:
    """A model in a format that was asked for."""

    name: str
    weights: str
    cache: str
    model: Model | None
    why: str = ""
    """Why it is not run."""


def wanted(plan: Plan, device: Any) -> list[Wanted]:
    """List models and formats crossed, and which of them cannot be run and why.

    Raises `RooflmError` where none can, before anything is measured.
    """
    found: list[Wanted] = []
    first: RooflmError | None = None
    for name in plan.models:
        for weights in plan.weights:
            for cache in plan.caches:
                try:
                    model = find_model(name, dict(plan.changes))
                    check(model)
                    plan.ranks.share(model)
                    check_runs(model, precision_of(weights, cache or None, model=model), device)
                except RooflmError as e:
                    first = first or e
                    found.append(Wanted(name, weights, cache, None, str(e)))
                else:
                    found.append(Wanted(name, weights, cache, model))
    if first is not None and all(w.model is None for w in found):
        raise first
    return found


def formats_of(asked: Sequence[Wanted]) -> tuple[str, ...]:
    """Name the formats in which what is run multiplies, and those of every device."""
    found = dict.fromkeys(("fp32", "bf16"))
    for one in asked:
        if one.model is not None:
            precision = precision_of(one.weights, one.cache or None, model=one.model)
            found |= dict.fromkeys((precision.activations.name, *precision.computes))
    return tuple(name for name in found if name in ceilings.FORMATS)


def list_subjects(
    plan: Plan, device: Any, machine: Machine, asked: Sequence[Wanted], answer: dict[str, Any]
) -> list[Subject]:
    """Plan what is run; what cannot be run becomes a row of the answer that says why."""
    share = plan.budget_s / len(asked)
    found: list[Subject] = []
    for one in asked:
        if one.model is None:
            shown = {"model": one.name, "weights": one.weights, "kv": one.cache or None}
            answer["rows"].append(shown | {"excluded": one.why} | NO_FIGURES)
        else:
            found.append(planned(plan, device, machine, one.model, one, share))
    return found


def planned(
    plan: Plan,
    device: Any,
    machine: Machine,
    whole: Model,
    asked: Wanted,
    seconds: float,
) -> Subject:
    """Plan one model in one format: all its layers, or as many as fit in memory and time.

    seconds: time that it may take [s].
    """
    model = plan.ranks.share(whole)
    precision = precision_of(asked.weights, asked.cache or None, model=whole)
    points = [(phase, B, S) for phase in plan.phases for S in plan.contexts for B in plan.batches]
    subject = Subject(whole.name, asked.name, model, whole, asked.weights, precision, points)
    layers = int(model.layers)
    if plan.layers is not None:
        layers = min(layers, plan.layers)
    else:
        free = FREE_SHARE * memory_free(device)
        least = min(needed_bytes(subject, machine, p) for p in points)
        if least > free:
            outside = weights_bytes(replace(model, groups=()), precision)
            layers = max(1, math.floor(layers * (free - outside) / max(1, least - outside)))
        fitting = [p for p in points if needed_bytes(subject, machine, p) <= max(free, least)]
        expected = sum(expected_s(subject, p, machine, plan) for p in fitting)
        if expected > seconds:
            layers = max(1, min(layers, math.floor(int(model.layers) * seconds / expected)))
    layers = -int(plan.ranks.most(-layers))
    if layers < model.layers:
        shorter = cut(model, layers)
        subject = replace(subject, model=shorter, cut_from=int(model.layers))
    return subject


def check_runs(model: Model, precision: Precision, device: Any) -> None:
    """Raise `RooflmError` for layers and formats that are not run, before much is made."""
    tiny = small(model)
    build(tiny, Maker(Precision(), device))
    cache_dtype(precision)
    usual = precision.activations.name
    kinds = {
        t.part: precision.format_of(t.part).name for _, t in tensors(model) if not is_vector(t)
    }
    for part, kind in sorted(kinds.items()):
        plain = kind in ("bf16", "fp16", "fp32")
        if (plain or part in ("embedding", "positions")) and kind != usual:
            what = f"{part} in {kind} beside activations in {usual} is not run as a torch step"
            raise RooflmError(what, "--weights", f"Take {part}={usual}, or {kind} for everything.")
    for kind in sorted(set(kinds.values())):
        ones = torch.ones(SQUARE, SQUARE, dtype=dtype_of(usual), device=device)
        try:
            make_linear(ones, kind)
        except RooflmError:
            raise
        except Exception as e:
            what = f"torch has no kernel for {kind} on this device: {reason(e)}"
            raise RooflmError(what, "--weights") from None
    if set(kinds.values()) - {usual} and any(g.mixer.kind == "mla" for g in model.groups):
        build(tiny, Maker(precision, device))


def segments_of(phase: str, B: int, S: int) -> list[Segment]:
    """Describe the pass of a point."""
    return prefill(B, S) if phase == "prefill" else decode(B, S)


def case_of(subject: Subject, machine: Machine) -> Case:
    """Make the case that predicts a subject on a machine."""
    return Case(subject.model, machine, subject.precision)


def needed_bytes(subject: Subject, machine: Machine, point: tuple[str, int, int]) -> float:
    """Memory that a point needs [B]."""
    case, segments = case_of(subject, machine), segments_of(*point)
    return float(sum(memory(case, segments, case.ledger(segments)).values()))


def expected_s(
    subject: Subject, point: tuple[str, int, int], machine: Machine, plan: Plan
) -> float:
    """Time that a point takes to set up and to run, roughly [s]."""
    case, segments = case_of(subject, machine), segments_of(*point)
    bandwidth = replace(case, time_model="bandwidth")
    seconds = SLOWER * float(step_time(case.ledger(segments), bandwidth.rates, "bandwidth"))
    flops = machine.flops.get("bf16") or machine.flops.get("fp32")
    if flops:
        seconds += SLOWER * sum(float(op.count * op.flops) for op in case.ledger(segments)) / flops
    built = BUILD_S[plan.device] * float(total_parameters(subject.model)) / len(subject.points)
    compiling = COMPILE_S / len(subject.points) if plan.compile else 0.0
    return built + compiling + seconds * (plan.runs + 6) + 0.5


def dry_run(plan: Plan) -> dict[str, Any]:
    """Say what would run, with its memory and time, without measuring anything."""
    device = find_device(plan.device)
    who = identity(device)
    preset = measured.find_preset(plan.on, who)
    machine = preset or Machine(
        "this device", who["name"], plan.device, 3e10 if plan.device == "cpu" else 2e12,
        driver_bytes=who["memory_bytes"],
        flops=dict.fromkeys(ceilings.FORMATS, 3e11 if plan.device == "cpu" else 5e14),
    )  # fmt: skip
    answer: dict[str, Any] = {"rows": []}
    subjects = list_subjects(plan, device, machine, wanted(plan, device), answer)
    rows = answer["rows"]
    for subject in subjects:
        for point in subject.points:
            needed = needed_bytes(subject, machine, point)
            rows.append(
                about(subject, point)
                | {
                    "memory_bytes": needed,
                    "fits": needed <= FREE_SHARE * memory_free(device),
                    "expected_s": expected_s(subject, point, machine, plan),
                }
            )
    return {
        "schema": "rooflm.validate-plan/1",
        "device": who,
        "hardware": None if preset is None else preset.name,
        "free_bytes": memory_free(device),
        "rows": rows,
        "expected_s": sum(r.get("expected_s", 0.0) for r in rows),
    }


def about(subject: Subject, point: tuple[str, int, int]) -> dict[str, Any]:
    """Say which point of which subject a row is of."""
    phase, B, S = point
    return {
        "model": subject.name,
        "asked": subject.asked,
        "weights": subject.weights,
        "kv": subject.precision.cache.name,
        "phase": phase,
        "batch": B,
        "context_tokens": S,
        "layers": int(subject.model.layers),
        "cut_from_layers": subject.cut_from,
    }
