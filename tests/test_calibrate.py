"""Calibrations: constants that are made up are found again, and too few points are told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.calibrate import (
    Point,
    base_constants,
    calibrate,
    calibrated_constants,
    calibration_text,
    parse_point,
    with_values,
)
from rooflm.calc.case import Case, engine_time
from rooflm.calc.errors import RooflmError
from rooflm.calc.estimate import Constants
from rooflm.calc.passes import decode
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_machine, find_model

GRID = [(1, 512), (32, 2000), (64, 512), (8, 4096), (16, 8000), (4, 30_000)]
"""Batches and contexts that tell all constants apart."""
VALUES = {"memory": 0.6, "layer": 25.0, "sequence": 30.0}


def case_of(model: str = "llama-3-8b", on: str = "h100-sxm", weights: str | None = None) -> Case:
    """Make a case of presets."""
    found = find_model(model)
    return Case(found, find_machine(on), precision_of(weights, model=found))


def seconds(case: Case, constants: Constants, batch: int, context: int) -> float:
    """Estimate a decode step."""
    segments = decode(batch, context)
    return engine_time(replace(case, constants=constants), segments, case.ledger(segments))


def made_up(
    case: Case, values: Mapping[str, float], grid: Sequence[tuple[int, int]]
) -> list[Point]:
    """Make up points that constants would give."""
    constants = with_values(base_constants(case), values)
    return [Point(B, S, seconds(case, constants, B, S)) for B, S in grid]


def values_of(answer: Mapping[str, Any]) -> dict[str, float]:
    """Take the constants of an answer, by their names."""
    return {key.removesuffix("_us"): value for key, value in answer["constants"].items()}


def saved(folder: Path, text: str) -> str:
    """Write a calibration to a file."""
    path = folder / "my.yaml"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("on", ["h100-sxm", "mi300x"])
@pytest.mark.parametrize("few", [1, 2, 3])
def test_constants_are_found_again(on: str, few: int) -> None:
    """As many points as constants give them back, on chips with timed kernels and without."""
    case = case_of(on=on)
    values = dict(list(VALUES.items())[:few])
    answer = calibrate(case, made_up(case, values, GRID[:few]))

    assert values_of(answer) == pytest.approx(values, rel=1e-3)
    assert answer["schema"] == "rooflm.calibrate/1"
    assert (answer["model"], answer["hardware"]) == ("llama-3-8b", on)
    assert answer["summary"]["largest_error"] < 1e-3
    assert answer["summary"]["median_unseen_error"] is None


@pytest.mark.parametrize(
    ("model", "on", "weights"),
    [("llama-3-8b", "rtx-4090", "int4"), ("mixtral-8x7b", "mi300x", "fp8")],
)
def test_points_are_predicted_unseen(model: str, on: str, weights: str) -> None:
    """With more points than constants each is predicted by the others."""
    case = case_of(model, on, weights)
    answer = calibrate(case, made_up(case, VALUES, GRID))

    assert values_of(answer) == pytest.approx(VALUES, rel=1e-3)
    assert all(abs(row["unseen_error"]) < 1e-3 for row in answer["rows"])
    for row in answer["rows"]:
        assert row["floor_s"] <= row["bound_s"] * (1 + 1e-9)
        assert row["bound_s"] < row["estimate_s"]
        assert row["error"] == pytest.approx(row["estimate_s"] / row["measured_s"] - 1)


def test_kernels_are_kept() -> None:
    """Starts and shares of the peak are those of timed kernels, and none where none were timed."""
    timed, bare = base_constants(case_of()), base_constants(case_of(on="mi300x"))

    assert timed.kernels["matmul"].start_s > 0
    assert timed.kernels["matmul"].compute < 1
    assert (bare.kernels["matmul"].start_s, bare.kernels["matmul"].compute) == (0, 1)
    for base in (timed, bare):
        kernels = with_values(base, {"memory": 0.5}).kernels
        assert kernels["matmul"].memory == kernels["decode"].memory == 0.5


@pytest.mark.parametrize("on", ["h100-sxm", "mi300x"])
def test_a_file_estimates_alike(on: str, tmp_path: Path) -> None:
    """A calibration that was written estimates what the fit did."""
    case = case_of(on=on)
    noise = (1.02, 0.99, 1.01, 0.98, 1.0, 1.03)
    points = [
        replace(point, latency_s=point.latency_s * more)
        for point, more in zip(made_up(case, VALUES, GRID), noise, strict=True)
    ]
    answer = calibrate(case, points)
    constants = calibrated_constants(case.machine, saved(tmp_path, calibration_text(answer)))

    for row in answer["rows"]:
        again = seconds(case, constants, row["batch"], row["context_tokens"])
        assert again == pytest.approx(row["estimate_s"], rel=1e-5)
    assert "6 steps of llama-3-8b" in constants.told[0]
    assert constants.band is not None
    assert constants.band[0] < constants.band[1]


def test_few_points_have_no_band(tmp_path: Path) -> None:
    """Fewer than five points that were predicted unseen make no band."""
    case = case_of()
    answer = calibrate(case, made_up(case, VALUES, GRID[:4]))
    constants = calibrated_constants(case.machine, saved(tmp_path, calibration_text(answer)))

    assert answer["summary"]["median_unseen_error"] is not None
    assert constants.band is None
    assert "band: none" in constants.told[1]


def test_the_points_decide_what_is_fitted() -> None:
    """Points that differ in nothing carry one constant, and in context alone no sequence."""
    case = case_of()
    chosen = {
        "alike": [Point(1, 512, 0.0106)] * 3,
        "one batch": [Point(1, 512, 0.0106), Point(1, 2000, 0.0108), Point(1, 100_000, 0.016)],
    }
    fitted = {name: list(values_of(calibrate(case, points))) for name, points in chosen.items()}

    assert fitted == {"alike": ["memory"], "one batch": ["memory", "layer"]}


@pytest.mark.parametrize(
    ("grid", "names", "missing"),
    [
        ([(1, 512)], ["memory", "layer"], "carry|carries"),
        ([(1, 512), (32, 2000)], ["memory", "layer", "sequence"], "2 points carry 2 constants"),
        ([(1, 512), (1, 9000), (1, 90_000)], ["memory", "layer", "sequence"],
         "all points have batch 1: sequence cannot be told"),
        ([(1, 512), (1, 513)], ["memory", "layer"], "too alike to tell memory and layer apart"),
        ([(1, 512)], ["memry"], "Did you mean memory"),
        ([(1, 512), (32, 2000)], ["memory", "memory"], "stands twice"),
    ],
)  # fmt: skip
def test_what_points_do_not_carry(
    grid: list[tuple[int, int]], names: list[str], missing: str
) -> None:
    """Constants that the points do not carry are refused with what is missing."""
    case = case_of()
    with pytest.raises(RooflmError, match=missing) as refused:
        calibrate(case, made_up(case, {"memory": 0.7}, grid), names)

    assert "--constants" in str(refused.value)


def test_nothing_is_faster_than_the_floor() -> None:
    """A point below the floor is refused by its batch and context."""
    with pytest.raises(RooflmError, match=r"batch 1 at context 512.*faster than anything"):
        calibrate(case_of(), [Point(32, 2000, 0.014), Point(1, 512, 0.003)])


def test_what_has_no_estimate() -> None:
    """Operators that no published step has are refused by their name."""
    with pytest.raises(RooflmError, match="no published step has recurrence"):
        calibrate(case_of("mamba-2.8b"), [Point(1, 512, 0.02)])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("contxt=512 latency=3ms", "Did you mean context"),
        ("latency=3ms", "lacks context="),
        ("context=512", "lacks latency="),
        ("", "lacks context="),
        ("512", "is not batch="),
        ("context=1 context=2 latency=3ms", "stands twice"),
        ("context=512 latency=3", "not a time"),
        ("context=512 latency=0ms", "out of range"),
        ("context=512 latency=-3ms", "not a time"),
        ("context=512 latency=nanms", "not a time"),
        ("context=0 latency=3ms", "below 1"),
        ("batch=-1 context=512 latency=3ms", "not a positive whole number"),
    ],
)
def test_points_that_are_mistyped(text: str, told: str) -> None:
    """Mistakes in a point name the option and what is meant."""
    with pytest.raises(RooflmError, match=told) as refused:
        parse_point(text)

    assert "--measured" in str(refused.value)


def test_points_are_read() -> None:
    """A batch is 1 where none is given, and counts have multiples."""
    assert parse_point("context=2k latency=20ms") == Point(1, 2000, 0.02)
    assert parse_point("latency=14ms batch=32 context=512") == Point(32, 512, 0.014)


def test_another_chip_is_refused(tmp_path: Path) -> None:
    """A calibration is of one chip, and names both."""
    case = case_of()
    path = saved(tmp_path, calibration_text(calibrate(case, [Point(1, 512, 0.0106)])))

    with pytest.raises(RooflmError, match="of h100-sxm, not of mi300x"):
        calibrated_constants(find_machine("mi300x"), path)


def test_another_format_is_refused(tmp_path: Path) -> None:
    """A calibration of 16 bits says nothing about fewer."""
    case = case_of()
    path = saved(tmp_path, calibration_text(calibrate(case, [Point(1, 512, 0.0106)])))
    constants = calibrated_constants(case.machine, path)

    with pytest.raises(RooflmError, match="fp8 weights"):
        seconds(case_of(weights="fp8"), constants, 1, 512)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("  kv:", "  kv_cache:", "unknown key 'kv_cache'.*my.yaml:LINE:"),
        ("    memory: ", "    memry: ", "unknown key 'memry'.*my.yaml:LINE:.*Did you mean memory"),
        ("    memory: ", "    memory: 3", "at most 1.*my.yaml:LINE:"),
        ("  points: 1", "  points: one", "whole number.*my.yaml:LINE:"),
        ("  kv: bf16\n", "", "lacks 'kv'"),
        ("calibration:", "calibrated:", "no calibration"),
    ],
)
def test_mistakes_of_a_file(tmp_path: Path, old: str, new: str, told: str) -> None:
    """Mistakes in a file are told with their line."""
    case = case_of()
    text = calibration_text(calibrate(case, [Point(1, 512, 0.0106)]))
    assert text.count(old) == 1
    line = 1 + text[: text.index(old)].count("\n")
    path = saved(tmp_path, text.replace(old, new))

    with pytest.raises(RooflmError, match=told.replace("LINE", str(line))):
        calibrated_constants(case.machine, path)


@pytest.mark.parametrize("on", ["h100-sxm", "mi300x"])
def test_slow_steps_are_met(on: str) -> None:
    """Steps that are many times slower than usual are fitted, and not left at the first guess."""
    case = case_of(on=on)
    values = {"memory": 0.04, "layer": 2000.0, "sequence": 2000.0}
    answer = calibrate(case, made_up(case, values, GRID))

    assert values_of(answer) == pytest.approx(values, rel=1e-3)


def test_points_at_once_are_points_alone() -> None:
    """All points in one ledger take what each takes alone."""
    case = case_of("mixtral-8x7b", "h100-sxm", "fp8")
    points = made_up(case, VALUES, GRID)
    for row in calibrate(case, points)["rows"]:
        assert row["estimate_s"] == pytest.approx(row["measured_s"], rel=1e-5)


def test_what_has_no_decode_step() -> None:
    """Diffusion models, no points and no constants are refused."""
    point = Point(1, 512, 0.0106)
    with pytest.raises(RooflmError, match="denoises"):
        calibrate(case_of("llada-8b"), [point])
    with pytest.raises(RooflmError, match="0 points"):
        calibrate(case_of(), [])
    with pytest.raises(RooflmError, match="no constant is named"):
        calibrate(case_of(), [point], [])


def test_limits_are_told() -> None:
    """A constant that the fit wants beyond its limit is told."""
    case = case_of()
    points = made_up(case, {"memory": 0.8, "sequence": 100.0}, GRID[:3])
    said = calibrate(case, points, ["memory", "layer", "sequence"])["assumptions"]

    assert any("layer is at its lower limit" in sentence for sentence in said)


def test_formats_in_part_are_refused(tmp_path: Path) -> None:
    """A calibration of fewer bits, whose head has 16, is not one of 16 bits."""
    case = case_of(weights="int4")
    path = saved(tmp_path, calibration_text(calibrate(case, [Point(1, 512, 0.0106)])))

    calibrated_constants(case.machine, path, case.precision)
    with pytest.raises(RooflmError, match="int4 weights, not of bf16"):
        calibrated_constants(case.machine, path, case_of().precision)
