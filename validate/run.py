"""Real steps of models on the device at hand, beside what was predicted of the same steps."""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ..calc.case import Case, estimated, memory
from ..calc.engines import find_constants
from ..calc.errors import RooflmError
from ..calc.experts import Experts
from ..calc.hardware import Machine
from ..calc.memory import weights_bytes
from ..calc.model import Model, has_experts, total_parameters
from ..calc.passes import Operator, Precision, Routing, Segment, decode, prefill
from ..calc.precision import precision_of
from ..calc.presets import find_model
from ..calc.timing import compulsory_bytes, step_time
from . import ceilings, elementwise, judge, measured
from .agreement import agreement, format_errors
from .device import (
    Timing,
    alternated,
    find_device,
    identity,
    memory_free,
    peak_bytes,
    reset_peak,
    resident_bytes,
    state,
    synchronize,
)
from .layers import DeltaLayer, Maker, Mamba2Layer
from .network import Network, build, cut, held_caches
from .ranks import Ranks, alone
from .untyped import torch

FREE_SHARE = 0.85
"""Share of the free memory that a run may take."""
BUILD_S = {"cpu": 2e-8, "cuda": 2e-10}
"""Time of a random weight and its format, roughly [s]."""
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


@dataclass
class Subject:
    """A model in a format: what is built once and run at several points."""

    name: str
    model: Model
    """What runs: of a rank where there are several, cut where the whole does not fit."""
    whole: Model
    precision: Precision
    points: list[tuple[str, int, int]]
    """Phase, batch and context."""
    cut_from: int | None = None
    """Layers of the whole model where some were left out."""


def validate(plan: Plan, keep: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Measure the ceilings of a device and real steps on it, and compare.

    plan: what to run; keep: called with the answer after every point, so that nothing is lost.
    Returns the object of `rooflm validate`. A point that fails is a row that says why; Ctrl-C ends
    the run with what there is, `interrupted` set. Raises `RooflmError` where nothing can run.
    """
    device = find_device(plan.device)
    elementwise.fuse(plan.compile)
    who = identity(device)
    preset = measured.find_preset(plan.on, who)
    answer: dict[str, Any] = {
        "schema": "rooflm.validate/1",
        "date": plan.date,
        "device": who,
        "hardware": None,
        "ranks": plan.ranks.count,
        "ceilings": {},
        "checks": [],
        "rows": [],
        "interrupted": False,
    }
    talk = Talk(plan.quiet or plan.ranks.rank > 0)
    try:
        _measure(plan, device, preset, answer, talk, keep or (lambda _: None))
    except KeyboardInterrupt:
        answer["interrupted"] = True
    finally:
        talk.end()
    machine = _machine(answer, preset)
    judge.judge(answer, machine, plan)
    return answer


def _machine(answer: dict[str, Any], preset: Machine | None) -> Machine | None:
    if preset is not None or "read" not in answer["ceilings"]:
        return preset
    return measured.machine_of(answer["device"], answer["ceilings"], answer["date"])


def _measure(
    plan: Plan,
    device: Any,
    preset: Machine | None,
    answer: dict[str, Any],
    talk: Talk,
    keep: Callable[[dict[str, Any]], None],
) -> None:
    talk.say("measuring ceilings")
    start = time.monotonic()
    answer["ceilings"], reader = _ceilings(plan, device, preset)
    answer["state"] = state(device)
    machine = _machine(answer, preset)
    assert machine is not None
    answer["hardware"] = machine.name
    answer["preset"] = None if preset is None else preset.name
    subjects = list(_subjects(plan, device, machine, answer))
    talk.points = sum(len(s.points) for s in subjects)
    talk.seconds = sum(_expected(s, p, machine, plan) for s in subjects for p in s.points)
    for subject in subjects:
        _check(plan, device, subject, answer)
        for row in _rows(plan, device, subject, machine, answer, reader, talk, start):
            answer["rows"].append(row)
            keep(answer)
        _free(device)
    answer["state_after"] = state(device)
    answer["seconds"] = time.monotonic() - start


def _ceilings(
    plan: Plan, device: Any, preset: Machine | None
) -> tuple[dict[str, Any], ceilings.Reader]:
    runs = 3 if plan.quick else 9
    found, reader = ceilings.bandwidths(device, runs)
    formats = ("fp32", "bf16") if plan.quick else ceilings.FORMATS
    rates, lacks = ceilings.matmul_rates(device, formats, 3 if plan.quick else 7)
    sheet = None if preset is None else preset.bandwidth_bytes_per_s
    found |= {
        "matmul": rates,
        "lacks": lacks,
        "launch": ceilings.launch_times(device, compile=not plan.quick),
        "doubts": ceilings.doubts(found, device, sheet),
    }
    if plan.ranks.count > 1:
        found["all_reduce"] = plan.ranks.all_reduce_times(device)
    return found, reader


def _subjects(
    plan: Plan, device: Any, machine: Machine, answer: dict[str, Any]
) -> Iterator[Subject]:
    """List what is run, models and formats crossed; what cannot be run is a row that says why."""
    crossed = [
        (name, weights, cache)
        for name in plan.models
        for weights in plan.weights
        for cache in plan.caches
    ]
    share = plan.budget_s / max(1, len(crossed))
    for name, weights, cache in crossed:
        try:
            whole = find_model(name, dict(plan.changes))
            yield planned(plan, device, machine, whole, weights, cache, share)
        except RooflmError as e:
            if len(crossed) == 1:
                raise
            shown = {"model": name, "weights": weights, "kv": cache or None}
            answer["rows"].append(shown | {"excluded": str(e)} | NO_FIGURES)


def planned(
    plan: Plan,
    device: Any,
    machine: Machine,
    whole: Model,
    weights: str,
    cache: str,
    seconds: float,
) -> Subject:
    """Plan one model in one format: all its layers, or as many as fit in memory and time.

    seconds: time that it may take [s]. Raises `RooflmError` where nothing of it can run.
    """
    from .network import check

    check(whole)
    model = plan.ranks.share(whole)
    precision = precision_of(weights, cache or None, model=whole)
    points = [(phase, B, S) for phase in plan.phases for S in plan.contexts for B in plan.batches]
    subject = Subject(whole.name, model, whole, precision, points)
    layers = int(model.layers)
    if plan.layers is not None:
        layers = min(layers, plan.layers)
    else:
        free = FREE_SHARE * memory_free(device)
        least = min(_needed(subject, machine, p) for p in points)
        if least > free:
            outside = weights_bytes(replace(model, groups=()), precision)
            layers = max(1, math.floor(layers * (free - outside) / max(1, least - outside)))
        expected = sum(_expected(subject, p, machine, plan) for p in points)
        if expected > seconds:
            layers = max(1, min(layers, math.floor(int(model.layers) * seconds / expected)))
    layers = -int(plan.ranks.most(-layers))
    if layers < model.layers:
        shorter = cut(model, layers)
        subject = replace(subject, model=shorter, cut_from=int(model.layers))
    return subject


def segments_of(phase: str, B: int, S: int) -> list[Segment]:
    """Describe the pass of a point."""
    return prefill(B, S) if phase == "prefill" else decode(B, S)


def _case(subject: Subject, machine: Machine) -> Case:
    return Case(subject.model, machine, subject.precision)


def _needed(subject: Subject, machine: Machine, point: tuple[str, int, int]) -> float:
    """Memory that a point needs [B]."""
    case, segments = _case(subject, machine), segments_of(*point)
    return float(sum(memory(case, segments, case.ledger(segments)).values()))


def _expected(subject: Subject, point: tuple[str, int, int], machine: Machine, plan: Plan) -> float:
    """Time that a point takes to set up and to run, roughly [s]."""
    case, segments = _case(subject, machine), segments_of(*point)
    bandwidth = replace(case, time_model="bandwidth")
    seconds = SLOWER * float(step_time(case.ledger(segments), bandwidth.rates, "bandwidth"))
    flops = machine.flops.get("bf16") or machine.flops.get("fp32")
    if flops:
        seconds += SLOWER * sum(float(op.count * op.flops) for op in case.ledger(segments)) / flops
    built = BUILD_S[plan.device] * float(total_parameters(subject.model)) / len(subject.points)
    return built + seconds * (plan.runs + 6) + 0.5


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
    subjects = list(_subjects(plan, device, machine, answer))
    rows = answer["rows"]
    for subject in subjects:
        for point in subject.points:
            needed = _needed(subject, machine, point)
            rows.append(
                _about(subject, point)
                | {
                    "memory_bytes": needed,
                    "fits": needed <= FREE_SHARE * memory_free(device),
                    "expected_s": _expected(subject, point, machine, plan),
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


def _about(subject: Subject, point: tuple[str, int, int]) -> dict[str, Any]:
    phase, B, S = point
    return {
        "model": subject.name,
        "weights": subject.precision.weights.name,
        "kv": subject.precision.cache.name,
        "phase": phase,
        "batch": B,
        "context_tokens": S,
        "layers": int(subject.model.layers),
        "cut_from_layers": subject.cut_from,
    }


NO_FIGURES = dict.fromkeys((
    "floor_s", "bound_s", "ceiling_bound_s", "estimate_s", "calibrated_s", "measured_s", "error",
    "bound_error", "ceiling_error", "calibrated_error",
))  # fmt: skip
"""What a row without a measurement has."""


def _check(plan: Plan, device: Any, subject: Subject, answer: dict[str, Any]) -> None:
    """Hold the step against a cacheless forward on small shapes, and the format against bf16."""
    key = (subject.name, subject.precision.weights.name, subject.precision.cache.name)
    if any((c["model"], c["weights"], c["kv"]) == key for c in answer["checks"]):
        return
    found = agreement(subject.whole, subject.precision, device, plan.seed)
    errors = format_errors(subject.whole, subject.precision, device, plan.seed)
    answer["checks"].append({"model": key[0], "weights": key[1], "kv": key[2], **found, **errors})


def _rows(
    plan: Plan,
    device: Any,
    subject: Subject,
    machine: Machine,
    answer: dict[str, Any],
    reader: ceilings.Reader,
    talk: Talk,
    start: float,
) -> Iterator[dict[str, Any]]:
    """Build a model once and run its points; each that fails says why."""
    _free(device)
    before = resident_bytes()
    maker = Maker(
        subject.precision, device, plan.seed, plan.ranks.rank, reduce=plan.ranks.reduce,
        most_positions=max(plan.contexts) + 1,
    )  # fmt: skip
    talk.say(f"building {subject.name}, {subject.precision.weights.name}")
    try:
        network = build(subject.model, maker, plan.ranks.gather)
    except (RooflmError, RuntimeError, MemoryError) as e:
        for point in subject.points:
            yield _failed(subject, point, _reason(e))
        return
    for point in subject.points:
        phase, B, S = point
        talk.point(f"{subject.name} {subject.precision.weights.name} {phase} B={B} S={S}")
        try:
            if plan.ranks.most(time.monotonic() - start) > plan.budget_s:
                raise RooflmError(f"the time of the run, {plan.budget_s:g} s, was over", "--budget")
            yield _point(plan, device, subject, network, point, machine, answer, reader, before)
        except (RooflmError, RuntimeError, MemoryError) as e:
            yield _failed(subject, point, _reason(e))
        _free(device)
        talk.done(_expected(subject, point, machine, plan))


def _reason(error: BaseException) -> str:
    if isinstance(error, torch.cuda.OutOfMemoryError | MemoryError):
        return "out of memory"
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__


def _failed(subject: Subject, point: tuple[str, int, int], why: str) -> dict[str, Any]:
    return _about(subject, point) | NO_FIGURES | {"excluded": why}


def _free(device: Any) -> None:
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def _point(
    plan: Plan,
    device: Any,
    subject: Subject,
    network: Network,
    point: tuple[str, int, int],
    machine: Machine,
    answer: dict[str, Any],
    reader: ceilings.Reader,
    before: int | None,
) -> dict[str, Any]:
    """Run one point and compare it with what is predicted of it."""
    phase, B, S = point
    recurrent = any(isinstance(x.mixer, Mamba2Layer | DeltaLayer) for x in network.layers)
    if phase == "prefill" and recurrent:
        what = "prompts of layers with a state run token by token here, which is no prefill"
        raise RooflmError(what, "--phase")
    positions = subject.model.positions
    if positions and positions < S:
        raise RooflmError(f"the model has {positions:,} positions, not {S:,}", "--context")
    _check_memory(plan, subject, network, point, machine, device)
    caches = network.caches(B, S)
    network.fill(caches)
    shape = (B, S if phase == "prefill" else 1)
    tokens = torch.randint(
        subject.whole.V, shape, generator=network.maker.same, device=device
    )  # fmt: skip
    n = 0 if phase == "prefill" else S - 1
    if phase == "prefill":
        kernel = network.choose_prefill(B, S, caches)
    else:
        kernel = network.choose_attention(B, S, caches)
    reset_peak(device)
    network.touched()

    def step() -> Any:
        return network.run(tokens, n, caches)

    # Ranks have to run equally often.
    limit = plan.budget_s / 4 if plan.ranks.count == 1 else None
    best, reads = alternated(step, reader.run, device, plan.runs, seconds=limit)
    eager = best
    peak = peak_bytes(device)
    touched = network.touched()
    parts = _parts(network, step, device, plan)
    mode, lacks = "eager", ""
    if device.type == "cuda":
        graph, lacks = _graphed(step, device)
        if graph is not None:
            best, reads = alternated(graph, reader.run, device, plan.runs)
            mode = "graph"
    around = reader.bytes / reads.median_s
    case = _case(_with_touched(subject, B * (S if phase == "prefill" else 1), touched), machine)
    here = measured.at_ceilings(machine, answer["ceilings"])
    here = replace(here, bandwidth_bytes_per_s=around)
    row = _about(subject, point) | _figures(case, here, segments_of(*point), best, around)
    row["parts"] = _compared(case, here, segments_of(*point), parts)
    if phase == "prefill":
        row["ttft_s"] = best.median_s
    allocated = held_caches(caches)
    if device.type == "cpu":
        peak = None if peak is None or before is None else peak - before
    return row | {
        "mode": mode,
        "graph_lacks": lacks or None,
        "eager_s": eager.median_s,
        "kernels": network.kernels | ({"attention": kernel} if kernel else {}),
        "touched_experts": touched,
        "allocated_weights_bytes": network.weights_bytes,
        "allocated_cache_bytes": allocated,
        "peak_bytes": peak,
        "read_bytes_per_s": around,
        "read_spread": reads.spread,
        "clock_mhz": state(device)["clock_mhz"],
        "excluded": None,
    }


def _check_memory(
    plan: Plan,
    subject: Subject,
    network: Network,
    point: tuple[str, int, int],
    machine: Machine,
    device: Any,
) -> None:
    more = _needed(subject, machine, point) - network.weights_bytes
    free = memory_free(device)
    if plan.ranks.most(more - FREE_SHARE * free) > 0:
        need = f"cache and activations need {more / 1e9:,.1f} GB more"
        raise RooflmError(f"{need}, and {free / 1e9:,.1f} are free")


def _graphed(step: Callable[[], Any], device: Any) -> tuple[Callable[[], Any] | None, str]:
    """Capture a step as one CUDA graph; None and the reason where it cannot be."""
    try:
        side = torch.cuda.Stream(device)
        side.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream(device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    except RuntimeError as e:
        synchronize(device)
        return None, str(e).splitlines()[0][:200]
    return graph.replay, ""


def _parts(network: Network, step: Callable[[], Any], device: Any, plan: Plan) -> dict[str, float]:
    """Time the parts of a step, each waited for: the median of several steps [s]."""
    meter = network.meter

    def clock() -> float:
        synchronize(device)
        return time.perf_counter()

    found: list[dict[str, float]] = []
    for _ in range(min(5, plan.runs)):
        meter.clock, meter.seconds = clock, {}
        step()
        found.append(meter.seconds)
    meter.clock = None
    middle = len(found) // 2
    return {part: sorted(f[part] for f in found)[middle] for part in found[0]}


def _with_touched(subject: Subject, rows: int, touched: float | None) -> Subject:
    """Predict a pass that touches as many experts as the measured one did.

    The number of tokens that would touch as many, choosing by themselves, is rows**alike.
    """
    if touched is None or rows < 2 or not has_experts(subject.model):
        return subject
    ffn = next(g.ffn for g in subject.model.groups if isinstance(g.ffn, Experts))
    left = 1 - touched / ffn.E
    if left <= 0:
        return subject
    alone_ = math.log(left) / math.log(1 - ffn.k / ffn.E)
    alike = min(1.0, max(0.0, math.log(max(alone_, 1.0)) / math.log(rows)))
    routing = Routing(alike=alike)
    return replace(subject, precision=replace(subject.precision, routing=routing))


def _figures(
    case: Case, here: Machine, segments: Sequence[Segment], found: Timing, read: float
) -> dict[str, Any]:
    """Put a measurement beside what is predicted of it; null where nothing is."""
    pass_ = case.ledger(segments)
    at = replace(case, machine=here)
    kinds = memory(case, segments, pass_)
    bound, floor = (
        _seconds(case, lambda c: step_time(pass_, c.rates, "operator")),
        _seconds(case, lambda c: step_time(c.least_ledger(segments, pass_), c.rates, "overlap")),
    )
    near = _seconds(at, lambda c: step_time(pass_, c.rates, "operator"))
    constants, _ = find_constants(case.machine, "compiled")
    guess = None
    if constants is not None:
        seconds = estimated(replace(case, constants=constants), segments, pass_)
        guess = None if seconds is None else float(seconds)
    measured_s = found.median_s
    moved = float(compulsory_bytes(pass_))
    return {
        "floor_s": floor,
        "bound_s": bound,
        "ceiling_bound_s": near,
        "estimate_s": guess,
        "calibrated_s": None,
        "measured_s": measured_s,
        "measured_low_s": found.low_s,
        "measured_high_s": found.high_s,
        "runs": found.runs,
        "error": _error(guess, measured_s),
        "bound_error": _error(bound, measured_s),
        "ceiling_error": _error(near, measured_s),
        "calibrated_error": None,
        "bytes": moved,
        "read_share": moved / measured_s / read,
        **{name: float(size) for name, size in kinds.items()},
        "memory_bytes": float(sum(kinds.values())),
    }


def _seconds(case: Case, time_of: Callable[[Case], Any]) -> float | None:
    try:
        return float(time_of(case))
    except RooflmError:
        return None


def _error(predicted: float | None, measured_s: float) -> float | None:
    return None if predicted is None else predicted / measured_s - 1


def _compared(
    case: Case, here: Machine, segments: Sequence[Segment], parts: dict[str, float]
) -> list[dict[str, Any]]:
    """Put the measured time of each part beside its bounds."""
    by_part: dict[str, list[Operator]] = {}
    for op in case.ledger(segments):
        by_part.setdefault(op.part, []).append(op)
    at = replace(case, machine=here)
    rows: list[dict[str, Any]] = []
    for part in dict.fromkeys((*by_part, *parts)):
        ops = by_part.get(part, [])
        rows.append(
            {
                "part": part,
                "bound_s": _seconds(case, lambda c, ops=ops: step_time(ops, c.rates, "operator")),
                "ceiling_bound_s": _seconds(
                    at, lambda c, ops=ops: step_time(ops, c.rates, "operator")
                ),
                "measured_s": parts.get(part),
            }
        )
    return rows


class Talk:
    """Progress on stderr: which point, how many are left, and about how long they take."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.points = self.number = 0
        self.seconds = self.expected = 0.0
        self.start = time.monotonic()
        self.live = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Write one line; on a terminal over the last one."""
        if self.quiet:
            return
        end = "\x1b[K\r" if self.live else "\n"
        sys.stderr.write(f"rooflm: {text}{end}")
        sys.stderr.flush()

    def point(self, text: str) -> None:
        """Say which point runs."""
        self.number += 1
        left = self.seconds - self.expected
        if self.expected > 0:
            # What was planned, at the pace so far.
            left *= (time.monotonic() - self.start) / self.expected
        minutes, rest = divmod(max(0, round(left)), 60)
        self.say(f"{self.number}/{self.points} {text}, about {minutes}:{rest:02d} left")

    def done(self, expected: float) -> None:
        """Count a point that has run."""
        self.expected += expected

    def end(self) -> None:
        """Leave the line."""
        if self.live and not self.quiet:
            sys.stderr.write("\x1b[K")
            sys.stderr.flush()
