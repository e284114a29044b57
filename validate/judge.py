"""What measured steps say of predictions: constants from half of them, judged on the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..calc.calibrate import (
    Point,
    base_constants,
    carried,
    described,
    estimated_steps,
    fitted_values,
    limits_told,
    median,
    missing,
    plain_constants,
    with_values,
)
from ..calc.case import Case
from ..calc.errors import RooflmError
from ..calc.hardware import Machine
from ..calc.model import Model
from ..calc.passes import Precision, Routing

if TYPE_CHECKING:
    from ..calc.estimate import Constants

FITTED = {"cpu": ("memory", "attention", "serial"), "gpu": ("memory", "layer", "attention")}
"""What is fitted, by the kind of device, where the points tell it apart; else what
`rooflm calibrate` fits. A chip that copies while it computes hides the shorter time."""
BELOW = 0.02
"""A step is below a bound if it is by more than this beside the spread of both."""


def judge(
    answer: dict[str, Any], machine: Machine | None, models: Mapping[Key, tuple[Model, Precision]]
) -> None:
    """Fit constants to each half of the steps, predict the other, sum up; changes the answer.

    models: what ran, with its formats, for the rows of each key.
    """
    answer["calibrations"] = []
    if machine is not None:
        for key, rows in grouped(answer["rows"]).items():
            try:
                answer["calibrations"].append(_calibrated(rows, machine, *models[key], answer))
            except RooflmError as e:
                first = rows[0]
                answer["calibrations"].append(
                    {"model": first["model"], "weights": [first["weights"]], "lacks": str(e)}
                )
    answer["summary"] = summary(answer["rows"])
    answer["assumptions"] = told(answer)


Key = tuple[str, str, str]
"""Model as it was typed, formats of its weights and of its cache: what a network was built of."""


def key_of(row: Mapping[str, Any]) -> Key:
    """Tell which network a row is of."""
    return row["asked"], row["weights"], row["kv"]


def grouped(rows: Sequence[dict[str, Any]]) -> dict[Key, list[dict[str, Any]]]:
    """Group the decode steps that were measured by what was built for them."""
    found: dict[Key, list[dict[str, Any]]] = {}
    for row in rows:
        if row["excluded"] is None and row["phase"] == "decode":
            found.setdefault(key_of(row), []).append(row)
    return found


def halves(rows: Sequence[Mapping[str, Any]]) -> tuple[list[int], list[int]]:
    """Split points like the squares of a chessboard, so that both halves span the same range."""
    batches = sorted({r["batch"] for r in rows})
    contexts = sorted({r["context_tokens"] for r in rows})
    white: list[int] = []
    black: list[int] = []
    for i, row in enumerate(rows):
        square = batches.index(row["batch"]) + contexts.index(row["context_tokens"])
        (black if square % 2 else white).append(i)
    return white, black


def _calibrated(
    rows: Sequence[dict[str, Any]],
    machine: Machine,
    model: Model,
    precision: Precision,
    answer: Mapping[str, Any],
) -> dict[str, Any]:
    """Predict each half with constants from the other, and fit those of a calibration on all."""
    if answer["ranks"] > 1:
        raise RooflmError("a calibration is of one device, and several ranks ran")
    first, preset = rows[0], answer["preset"] is not None
    case = Case(model, machine, precision)
    points = [Point(r["batch"], r["context_tokens"], r["measured_s"]) for r in rows]
    base = _base(case)
    parts = halves(rows)
    for fitted, judged in (parts, parts[::-1]):
        own, others = ([points[i] for i in half] for half in (fitted, judged))
        seen = _as_it_was(case, [rows[i] for i in fitted], preset)
        values = fitted_values(seen, own, base, _chosen(case, own, base))
        there = estimated_steps(
            _as_it_was(case, [rows[i] for i in judged], preset),
            others,
            with_values(base, values),
        )
        for i, seconds in zip(judged, there, strict=True):
            rows[i]["calibrated_s"] = float(seconds)
            rows[i]["calibrated_error"] = float(seconds) / rows[i]["measured_s"] - 1
    whole = _as_it_was(case, rows, preset)
    values = fitted_values(whole, points, base, _chosen(case, points, base))
    again = estimated_steps(whole, points, with_values(base, values))
    errors: list[float] = [float(s) / r["measured_s"] - 1 for r, s in zip(rows, again, strict=True)]
    unseen: list[float] = [r["calibrated_error"] for r in rows]
    return described(case, base, values) | {
        "layers": first["layers"],
        "rows": [
            {"unseen_error": there, "error": seen}
            for there, seen in zip(unseen, errors, strict=True)
        ],
        "told": limits_told(values),
        "summary": {
            "median_unseen_error": median([abs(error) for error in unseen]),
            "largest_unseen_error": max(map(abs, unseen)),
            "largest_error": max(map(abs, errors)),
        },
    }


def _as_it_was(case: Case, rows: Sequence[Mapping[str, Any]], preset: bool) -> Case:
    """Give each point the read bandwidth that was measured beside it; a preset keeps its own.

    Constants are shares: of the datasheet's rate, or of what the device reached at the time.
    """
    case = _as_routed(case, rows)
    if preset:
        return case
    import numpy as np

    reads: Any = np.array([row["read_bytes_per_s"] for row in rows])
    return replace(case, machine=replace(case.machine, bandwidth_bytes_per_s=reads))


def _as_routed(case: Case, rows: Sequence[Mapping[str, Any]]) -> Case:
    """Give each point the experts that its tokens were seen to touch."""
    touched = [row.get("touched_experts") for row in rows]
    if None in touched:
        return case
    import numpy as np

    routing = Routing(distinct=np.array(touched, dtype=float))
    return replace(case, precision=replace(case.precision, routing=routing))


def _base(case: Case) -> Constants:
    """Begin with kernels that were timed on the chip, where a compiled step was published."""
    try:
        return base_constants(case, "compiled")
    except RooflmError:
        return plain_constants(case)


def _chosen(case: Case, points: Sequence[Point], base: Constants) -> tuple[str, ...]:
    if len(points) < 2:
        raise RooflmError("a half of one point or none carries no constants")
    names = FITTED["cpu" if case.machine.kind == "cpu" else "gpu"]
    told = missing(names, case, points, base) == ""
    return names if told else carried(case, points, base)


def summary(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Sum the comparison up; nulls where nothing was measured."""
    run = [r for r in rows if r["excluded"] is None]
    steps = [r for r in run if r["phase"] == "decode"]

    def errors(key: str, of: Sequence[Mapping[str, Any]] = run) -> list[float]:
        return [abs(r[key]) for r in of if r[key] is not None]

    bound = [r for r in run if r["ceiling_bound_s"] is not None]
    below = [r for r in bound if is_below(r)]
    return {
        "points": len(rows),
        "measured": len(run),
        "not_below_bound": 1 - len(below) / len(bound) if bound else None,
        "median_error": median(errors("error")),
        "median_bound_error": median(errors("bound_error")),
        "median_ceiling_error": median(errors("ceiling_error")),
        "median_calibrated_error": median(errors("calibrated_error", steps)),
        "largest_calibrated_error": max(errors("calibrated_error", steps), default=None),
        "median_memory_error": median(
            [abs(r["peak_bytes"] / r["memory_bytes"] - 1) for r in run if r["peak_bytes"]]
        ),
        "median_read_share": median([r["read_share"] for r in steps]),
        "largest_read_share": max((r["read_share"] for r in steps), default=None),
        "weights_differ_bytes": max(
            (abs(r["allocated_weights_bytes"] - r["weights_bytes"]) for r in run), default=None
        ),
        "cache_differs_bytes": max(
            (
                abs(r["allocated_cache_bytes"] - r["kv_cache_bytes"] - r.get("state_bytes", 0))
                for r in run
            ),
            default=None,
        ),
    }


def is_below(row: Mapping[str, Any]) -> bool:
    """Tell whether a step was faster than its bound at measured ceilings, spread allowed for.

    The step may be as slow as its slow runs, and the ceiling as low as its slow ones.
    """
    bound = row["ceiling_bound_s"]
    if bound is None:
        return False
    return bool(row["measured_high_s"] < bound * (1 - BELOW - row["read_spread"]))


def told(answer: Mapping[str, Any]) -> list[str]:
    """Say in sentences what the figures are."""
    said = [
        "measured: median of runs, each from an idle device to an idle device; the spread is the "
        "tenth to the ninetieth percentile",
        "bound at ceilings: read bandwidth as measured in turns with the steps, products as "
        "measured at the start",
        "calibrated: constants fitted on half of the points of a model and format, predicting the "
        "other half, at the read bandwidth measured beside each point where there is no preset",
        "weights and caches are random numbers: what a format costs in quality has to be measured "
        "on real ones",
    ]
    if answer.get("hardware") is not None and answer.get("preset") is None:
        said.append("the device has no preset: bounds are at its own ceilings, those at the start")
    if answer["ranks"] > 1:
        said.append(
            f"figures are of one of {answer['ranks']} ranks; bounds leave messages out, which "
            "parts name as communication"
        )
    shorter = sorted({r["model"] for r in answer["rows"] if r.get("cut_from_layers")})
    if shorter:
        said.append(f"fewer layers than the whole model, in both figures: {', '.join(shorter)}")
    said += _fallbacks(answer)
    said += [f"doubt: {doubt}" for doubt in answer["ceilings"].get("doubts", [])]
    return said


def _fallbacks(answer: Mapping[str, Any]) -> list[str]:
    """Say what ran otherwise than it should have, or was not checked."""
    said = [
        f"not checked: {c['model']}, {c['weights']}: {c['lacks']}"
        for c in answer["checks"]
        if c.get("lacks")
    ]
    why = dict.fromkeys(r["graph_lacks"] for r in answer["rows"] if r.get("graph_lacks"))
    said += [f"eager in place of a CUDA graph: {reason}" for reason in why]
    differ = answer["summary"]["weights_differ_bytes"], answer["summary"]["cache_differs_bytes"]
    if any(differ):
        said.append("DEFECT: torch holds other bytes than the ledger counts; see the JSON")
    for found in answer.get("calibrations", ()):
        said += [f"calibration of {found['model']}: {line}" for line in found.get("told", ())]
        if "lacks" in found:
            said.append(f"no calibration of {found['model']}: {found['lacks']}")
    return said
