"""Constants of an estimate from steps that a user measured: as many as the points can carry."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .case import Case
from .engines import MICRO, NEEDED, find_constants
from .entries import figure_value
from .errors import RooflmError, nearest
from .estimate import TILE_ROWS, Constants, Kernel, estimate_time
from .hardware import Machine
from .passes import Precision, decode
from .plain import is_map
from .schema import CALIBRATION, check
from .timing import step_time
from .units import parse_count, parse_time
from .yamlfile import Block, load, read_text

if TYPE_CHECKING:
    from .fitting import Array

POINT = ("batch", "context", "latency")
CONSTANTS = ("memory", "layer", "sequence", "attention", "compute", "serial")
"""What may be fitted: a share of the bandwidth, the time of a layer and that of a sequence; where
they are asked for, the share of the bandwidth that attention and states reach, that of the peak
that matrix products reach, and the share of the shorter of their two times that the longer does not
hide."""
USUAL = CONSTANTS[:3]
"""What is fitted unless it is said, in this order, as far as the points carry it."""
COSTS = ("layer", "sequence")
"""Constants that are times; the others are shares."""
START = (0.8, 40.0, 10.0, 0.6, 0.8, 0.5)
LOW = (0.01, 0.01, 0.01, 0.01, 0.02, 1e-3)
HIGH = (1.0, 1e5, 1e5, 1.0, 1.0, 1.0)
"""Usual values and limits: shares, and microseconds."""
SHARES = (1.0, 0.8, 0.6, 0.4, 0.25, 0.12, 0.05, 0.02)
"""Shares of the bandwidth from which a fit may begin."""
DIGITS = 6
"""Digits of a constant, in the answer as in the file."""
MOST_MEASURED = 64
"""Points beyond which fitting without each of them takes too long."""
MOST_CONDITION = 100.0
"""Condition beyond which the points do not tell two constants apart."""
FEW_POINTS = 5
"""Fewer judged points than these make no band."""


@dataclass(frozen=True)
class Point:
    """A decode step that was measured."""

    batch: int
    context: int
    latency_s: float


def parse_point(text: str) -> Point:
    """Read a measured step: `batch=1 context=512 latency=10.6ms`."""
    found: dict[str, str] = {}
    for word in text.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if key not in POINT or not equals:
            fix = nearest(key, POINT) or 'Write "batch=1 context=512 latency=10.6ms".'
            raise RooflmError(
                f"'{word[:40]}' is not batch=, context= or latency=", "--measured", fix
            )
        if key in found:
            raise RooflmError(f"'{key}' stands twice", "--measured")
        found[key] = value
    for key in ("context", "latency"):
        if key not in found:
            fix = 'Write "batch=1 context=512 latency=10.6ms".'
            raise RooflmError(f"'{text[:60]}' lacks {key}=", "--measured", fix)
    seconds = parse_time(found["latency"], "--measured")
    if not seconds > 0:
        raise RooflmError("a step takes more than no time", "--measured")
    batch = parse_count(found.get("batch", "1"), "--measured")
    return Point(batch, parse_count(found["context"], "--measured"), seconds)


def calibrate(
    case: Case,
    points: Sequence[Point],
    names: Sequence[str] | None = None,
    engine: str | None = None,
) -> dict[str, Any]:
    """Fit the constants of a case's decode steps to measured ones.

    names: what to fit, out of `CONSTANTS`; as much as the points carry if None; engine: whose start
    times and compute shares of kernels are kept, where the chip's were timed. Raises `RooflmError`
    where the points carry less than is asked for, or one is faster than anything can be.
    """
    if case.layout is not None or case.offloads:
        what = "a calibration is of one device with all layers on it"
        raise RooflmError(what, "--tp", "Leave the layout out.")
    if case.lecture:
        raise RooflmError("the lecture's accounting estimates nothing", "--accounting")
    if case.model.denoises:
        what = f"{case.model.name} denoises: it has no decode step to calibrate"
        raise RooflmError(what, "--measured")
    if not 1 <= len(points) <= MOST_MEASURED:
        what = f"{len(points):,} points were given, of 1 to {MOST_MEASURED}"
        raise RooflmError(what, "--measured")
    base = base_constants(case, engine)
    floors = [_floor(case, p) for p in points]
    for point, floor in zip(points, floors, strict=True):
        if point.latency_s < floor:
            what = (
                f"batch {point.batch:,} at context {point.context:,} in "
                f"{1e3 * point.latency_s:.4g} ms "
                f"is faster than anything can be ({1e3 * floor:.4g} ms)"
            )
            fix = "Is it another model, format or chip, or were there several devices?"
            raise RooflmError(what, "--measured", fix)
    chosen = carried(case, points, base) if names is None else tuple(names)
    _check_names(chosen, case, points, base)
    chosen = tuple(name for name in CONSTANTS if name in chosen)
    values = fitted_values(case, points, base, chosen)
    estimates = estimated_steps(case, points, with_values(base, values))
    rows: list[dict[str, Any]] = []
    for i, (point, floor) in enumerate(zip(points, floors, strict=True)):
        seconds = float(estimates[i])
        rest = [p for j, p in enumerate(points) if j != i]
        unseen = None
        if missing(chosen, case, rest, base) == "":
            alone = fitted_values(case, rest, base, chosen)
            there = estimated_steps(case, [point], with_values(base, alone))
            unseen = float(there[0]) / point.latency_s - 1
        rows.append(
            {
                "batch": point.batch,
                "context_tokens": point.context,
                "measured_s": point.latency_s,
                "floor_s": floor,
                "bound_s": step_time(_ledger(case, point), case.rates),
                "estimate_s": seconds,
                "error": seconds / point.latency_s - 1,
                "unseen_error": unseen,
            }
        )
    return (
        {"schema": "rooflm.calibrate/1"}
        | described(case, base, values)
        | {
            "rows": rows,
            "summary": {
                "median_error": median([abs(r["error"]) for r in rows]),
                "largest_error": max(abs(r["error"]) for r in rows),
                "median_unseen_error": median(
                    [abs(r["unseen_error"]) for r in rows if r["unseen_error"] is not None]
                ),
            },
            "assumptions": [
                f"fitted: {', '.join(values)}; {_kept(base)}",
                "it holds for these formats on this chip, and for models of other sizes as far as "
                "a layer costs the same; --calibration FILE uses it",
                *limits_told(values),
            ],
        }
    )


def described(case: Case, base: Constants, values: Mapping[str, float]) -> dict[str, Any]:
    """Say what a calibration is of, and what was fitted."""
    return {
        "model": case.model.name,
        "hardware": case.machine.name,
        "engine": None if base.engine == "" else base.engine,
        "weights": sorted(_formats(case.precision)),
        "kv": case.precision.cache.name,
        "constants": {_key(name): value for name, value in values.items()},
    }


def limits_told(values: Mapping[str, float]) -> list[str]:
    """Say which constants the fit wanted beyond their limits."""
    told: list[str] = []
    for name, value in values.items():
        i = CONSTANTS.index(name)
        if value >= HIGH[i] * (1 - 1e-3):
            faster = ": the steps are faster than kept costs allow" if name == "memory" else ""
            told.append(f"{name} is at its upper limit{faster}")
        elif value <= LOW[i] * (1 + 1e-3):
            told.append(f"{name} is at its lower limit: these points do not show it")
    return told


def _kept(base: Constants) -> str:
    if not base.engine:
        return (
            "kernels start in no time and compute at the peak, since none were timed on this chip"
        )
    return "start times of kernels and compute shares are those timed on the chip"


def base_constants(case: Case, engine: str | None = None) -> Constants:
    """Find what is kept of an engine on the machine: its kernels, but for their bandwidth.

    Kernels that start in no time and reach the peak where none were timed.
    """
    found, why = find_constants(case.machine, engine)
    if found is None and engine is not None:
        raise RooflmError(why, "--engine")
    if found is None:
        return plain_constants(case)
    return replace(
        found,
        kernels=_without_bandwidth(found),
        layer_s=0.0,
        sequence_s=0.0,
        formats=dict.fromkeys(_formats(case.precision), 1.0),
        most_batch=None,
        band=None,
        prefill_band=None,
        several_band=None,
        decode_only=True,
    )


def plain_constants(case: Case) -> Constants:
    """Begin with kernels that start in no time and reach the rates of the machine."""
    formats = dict.fromkeys(_formats(case.precision), 1.0)
    return Constants("", PLAIN, formats=formats, tile_rows=_tile_rows(case.machine))


def _tile_rows(machine: Machine) -> int:
    """Rows of a tile: vectors have kernels of their own on a CPU, a GPU computes whole tiles."""
    return 1 if machine.kind == "cpu" else TILE_ROWS


PLAIN = {name: Kernel() for name in (*NEEDED, "recurrence")}
"""Kernels that start in no time and reach the rates of the machine."""


def _without_bandwidth(constants: Constants) -> dict[str, Kernel]:
    """Keep of kernels what a calibration does not fit: all but their share of the bandwidth."""
    return {
        name: replace(k, memory=1.0, small_memory=None, wide_memory=1.0)
        for name, k in constants.kernels.items()
    }


def _formats(precision: Precision) -> set[str]:
    """Name the formats of a case's matrices."""
    kinds = [precision.weights, precision.activations, *(own for _, own in precision.parts)]
    kinds += [own for _, own in precision.names]
    return {kind.name for kind in kinds}


def with_values(base: Constants, values: Mapping[str, float]) -> Constants:
    """Put fitted values into constants."""
    share = values.get("memory", 1.0)
    kernels = {name: replace(k, memory=share) for name, k in base.kernels.items()}
    for name in ("decode", "recurrence"):
        if name in kernels:
            kernels[name] = replace(kernels[name], memory=values.get("attention", share))
    for name in kernels:
        if name.startswith("matmul"):
            own = kernels[name]
            kernels[name] = replace(
                own,
                compute=values.get("compute", own.compute),
                serial=values.get("serial", own.serial),
            )
    return replace(
        base,
        kernels=kernels,
        layer_s=values.get("layer", 0.0) * MICRO,
        sequence_s=values.get("sequence", 0.0) * MICRO,
    )


def _key(name: str) -> str:
    return f"{name}_us" if name in COSTS else name


def _ledger(case: Case, point: Point) -> Any:
    return case.ledger(decode(point.batch, point.context))


def _floor(case: Case, point: Point) -> float:
    segments = decode(point.batch, point.context)
    return step_time(case.least_ledger(segments, case.ledger(segments)), case.rates, "overlap")


def estimated_steps(case: Case, points: Sequence[Point], constants: Constants) -> Array:
    """Estimate the decode steps of points with constants [s]."""
    return _predictor(case, points)(constants)


def _predictor(case: Case, points: Sequence[Point]) -> Callable[[Constants], Array]:
    """Make what estimates the steps of points with constants: one ledger holds them all."""
    import numpy as np

    batches = np.array([p.batch for p in points], dtype=float)
    contexts = np.array([p.context for p in points], dtype=float)
    segments = decode(batches, contexts)
    pass_, machine = case.ledger(segments), case.rates

    def predict(constants: Constants) -> Array:
        layers = case.model.layers
        seconds = estimate_time(pass_, segments, machine, constants, case.precision, layers)
        return np.broadcast_to(np.asarray(seconds, dtype=float), batches.shape)

    return predict


def fitted_values(
    case: Case, points: Sequence[Point], base: Constants, chosen: Sequence[str]
) -> dict[str, float]:
    """Fit the chosen constants to points: shares, and times in microseconds."""
    from .fitting import fit

    estimate = _predictor(case, points)
    measured = [p.latency_s for p in points]

    def predict(values: Any) -> Array:
        named = dict(zip(chosen, map(float, values), strict=True))
        return estimate(with_values(base, named))

    where = [CONSTANTS.index(name) for name in chosen]
    low, high = [LOW[i] for i in where], [HIGH[i] for i in where]
    start = _first_guess(predict, chosen, low, high, measured)
    best = fit(predict, start, low, high, measured, rounds=200)
    return {
        name: float(f"{value:.{DIGITS}g}")
        for name, value in zip(chosen, map(float, best), strict=True)
    }


def _first_guess(
    predict: Callable[[Any], Array],
    chosen: Sequence[str],
    low: Sequence[float],
    high: Sequence[float],
    measured: Sequence[float],
) -> list[float]:
    """Find where a fit begins: times are linear in all constants but the share of the bandwidth.

    A fit that begins far away, where all steps are many times too fast, would not move.
    """
    import numpy as np

    target = np.asarray(measured, dtype=float)
    costs = [i for i, name in enumerate(chosen) if name in COSTS]
    best, least = list(low), float("inf")
    for share in SHARES if "memory" in chosen else SHARES[:1]:
        tried = [
            share if name == "memory" else low[i] if name in COSTS else START[CONSTANTS.index(name)]
            for i, name in enumerate(chosen)
        ]
        if costs:
            bare = predict(tried)
            slopes: list[Array] = []
            for i in costs:
                beside = [value + (1.0 if j == i else 0.0) for j, value in enumerate(tried)]
                slopes.append((predict(beside) - bare) / target)
            found = np.linalg.lstsq(np.stack(slopes, axis=1), 1 - bare / target, rcond=None)[0]
            for i, more in zip(costs, found, strict=True):
                tried[i] = min(max(tried[i] + float(more), low[i]), high[i])
        missed = float(np.abs(predict(tried) / target - 1).mean())
        if missed < least:
            best, least = tried, missed
    return best


def carried(case: Case, points: Sequence[Point], base: Constants) -> tuple[str, ...]:
    """Choose the most constants that the points tell apart."""
    for n in range(len(USUAL), 1, -1):
        if missing(USUAL[:n], case, points, base) == "":
            return USUAL[:n]
    return USUAL[:1]


def _check_names(
    chosen: Sequence[str], case: Case, points: Sequence[Point], base: Constants
) -> None:
    if not chosen:
        raise RooflmError("no constant is named", "--constants", f"Known: {', '.join(CONSTANTS)}.")
    for name in chosen:
        if name not in CONSTANTS:
            fix = nearest(name, CONSTANTS) or f"Known: {', '.join(CONSTANTS)}."
            raise RooflmError(f"no constant '{name[:40]}'", "--constants", fix)
    if len(set(chosen)) < len(chosen):
        raise RooflmError("a constant stands twice", "--constants")
    lacks = missing(chosen, case, points, base)
    if lacks:
        raise RooflmError(lacks, "--constants", "Measure more, or fit fewer.")


def missing(chosen: Sequence[str], case: Case, points: Sequence[Point], base: Constants) -> str:
    """Say what points lack to carry constants; "" where they carry them."""
    if len(points) < len(chosen):
        few = "1 point carries 1 constant" if len(points) == 1 else f"{len(points)} points carry"
        few += "" if len(points) == 1 else f" {len(points)} constants"
        return f"{few} at most, not {len(chosen)}"
    batches = {p.batch for p in points}
    if "sequence" in chosen and len(batches) == 1:
        others = [name for name in chosen if name != "sequence"]
        told = others[-1] if others else "what every step costs"
        have = f"all points have batch {points[0].batch:,}"
        return f"{have}: sequence cannot be told from {told}; measure another batch"
    if _condition(chosen, case, points, base) > MOST_CONDITION:
        what = " and ".join(chosen)
        return f"the points are too alike to tell {what} apart: vary batch or context"
    return ""


def _condition(
    chosen: Sequence[str], case: Case, points: Sequence[Point], base: Constants
) -> float:
    """Condition of the relative derivatives of the steps by the constants, columns scaled."""
    import numpy as np

    start = {name: START[CONSTANTS.index(name)] for name in chosen}
    predict = _predictor(case, points)
    here = predict(with_values(base, start))
    columns: list[Any] = []
    for name in chosen:
        beside = start | {name: start[name] * 1.001}
        column = predict(with_values(base, beside)) / here - 1
        length = float(np.linalg.norm(column))
        if length == 0:
            return float("inf")
        columns.append(column / length)
    return float(np.linalg.cond(np.stack(columns, axis=1)))


def median(values: Sequence[float]) -> float | None:
    """Middle of some values; None where there are none."""
    import statistics

    return statistics.median(values) if values else None


def calibration_text(answer: Mapping[str, Any]) -> str:
    """Write what was fitted as the YAML of --calibration."""
    import yaml

    band = _band(
        [1 / (1 + r["unseen_error"]) for r in answer["rows"] if r["unseen_error"] is not None]
    )
    kept = {
        "model": answer["model"],
        "hardware": answer["hardware"],
        **({} if answer["engine"] is None else {"engine": answer["engine"]}),
        "weights": answer["weights"],
        "kv": answer["kv"],
        "constants": {k: float(f"{v:.6g}") for k, v in answer["constants"].items()},
        "points": len(answer["rows"]),
        "error": max(float(f"{answer['summary']['largest_error']:.3g}"), 0.001),
        **(
            {name: float(f"{end:.4g}") for name, end in zip(("low", "high"), band, strict=True)}
            if band
            else {}
        ),
    }
    header = (
        "# Made by `rooflm calibrate`, for --calibration of `rooflm sweep` and `rooflm compare`.\n"
    )
    return header + yaml.safe_dump({"calibration": kept}, sort_keys=False)


def read_calibration(path: str) -> Block:
    """Read a calibration and check it; every mistake is told with its line."""
    whole = load(read_text(Path(os.path.expanduser(path))), path)
    if not is_map(whole.value) or set(whole.value) != {"calibration"}:
        fix = "Make one with `rooflm calibrate ... --output my.yaml`."
        raise RooflmError("this is no calibration", whole.where(), fix)
    block = whole.under("calibration")
    constants = check(block, CALIBRATION, "calibration")["constants"]
    if not constants:
        raise RooflmError("the calibration holds no constant", block.where(("constants",)))
    for name in constants:
        if not name.endswith("_us") and figure_value(constants[name]) > 1:
            raise RooflmError("a share is at most 1", block.where(("constants", name)))
    return block


def calibrated_constants(
    machine: Machine, path: str, precision: Precision | None = None
) -> Constants:
    """Read the constants of a calibration for a machine; raises `RooflmError` for another's.

    precision: of the case; formats of weights that differ from those of the calibration at all are
    refused, where `estimate_time` alone would let pass those that it has in part.
    """
    block = read_calibration(path)
    entry = block.value
    if entry["hardware"] != machine.name:
        what = f"the calibration is of {entry['hardware']}, not of {machine.name}"
        raise RooflmError(what, block.where(("hardware",)))
    if precision is not None and _formats(precision) != set(entry["weights"]):
        own, its = ", ".join(sorted(_formats(precision))), ", ".join(sorted(entry["weights"]))
        what = f"the calibration is of {its} weights, not of {own}"
        raise RooflmError(what, block.where(("weights",)))
    constants = entry["constants"]
    formats = dict.fromkeys(map(str, entry["weights"]), 1.0)
    found, _ = find_constants(machine, entry.get("engine"))
    tile = _tile_rows(machine)
    base = Constants("calibration", PLAIN, formats=formats, tile_rows=tile, decode_only=True)
    if found is not None and "engine" in entry:
        kernels = _without_bandwidth(found)
        base = replace(base, kernels=kernels, tile_rows=found.tile_rows, experts=found.experts)
    ends = [figure_value(entry.get(end)) for end in ("low", "high")]
    band = None if None in ends else (float(ends[0]), float(ends[1]))
    told = (
        f"estimate: calibrated on {entry['points']} steps of {entry['model']}, largest error "
        f"{100 * figure_value(entry['error']):.1f} %",
        "band: none, fewer than five points were predicted unseen"
        if band is None
        else f"band: {100 * (band[0] - 1):+.0f} to {100 * (band[1] - 1):+.0f} % held four of five "
        "points that were predicted unseen",
    )
    values = {k.removesuffix("_us"): float(figure_value(v)) for k, v in constants.items()}
    return replace(with_values(base, values), band=band, told=told)


def _band(ratios: Sequence[float]) -> tuple[float, float] | None:
    """Find the shares of an estimate between which four of five measurements lie."""
    if len(ratios) < FEW_POINTS:
        return None
    import numpy as np

    low, high = np.quantile(np.asarray(ratios, dtype=float), (0.1, 0.9))
    return float(low), float(high)
