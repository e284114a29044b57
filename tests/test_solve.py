"""Answers put back meet their target, the next integer does not; reasons and formulas are right."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rooflm.calc.case import Case, memory_bytes
from rooflm.calc.hardware import natural_format
from rooflm.calc.inverse import MOST, step_s, time_expression
from rooflm.calc.listing import all_machines
from rooflm.calc.model import chunk_lengths
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import MODELS_FILE, find_machine, find_model, preset_names
from rooflm.calc.solve import Target, sensitivity, solve
from rooflm.calc.symbols import BATCH, CONTEXT
from rooflm.calc.turning import both_times, is_compute_bound

from .helpers import Terminal, h100

PRESETS = preset_names(MODELS_FILE)
CHIPS = [
    m for m in all_machines()
    if natural_format(m) in m.flops and (m.driver_bytes or m.label_bytes)
]  # fmt: skip
CONTEXTS = (1, 64, 1024, 8191)


def case_of(index: int) -> Case:
    """Pair a preset with a chip, so that all of both are met."""
    machine = CHIPS[index % len(CHIPS)]
    model = find_model(PRESETS[index])
    return Case(model, machine, precision_of(None, natural=natural_format(machine)))


@pytest.mark.parametrize("index", range(0, len(PRESETS), 5), ids=PRESETS[::5])
def test_a_solved_batch_meets_its_target_and_the_next_does_not(index: int) -> None:
    """What fits, what is within a latency, what reaches a throughput, what is compute-bound."""
    case = case_of(index)
    S = CONTEXTS[index % len(CONTEXTS)]
    limit = case.limit[0]

    # Each preset meets two of the four questions, and its neighbour the other two.
    if index % 2:
        _reached_and_bound(case, S)
        return
    fits = solve(case, "batch", 1, S, Target())["value"]
    if fits is None:
        assert memory_bytes(case, 1, S) > limit
    else:
        assert memory_bytes(case, fits, S) <= limit < memory_bytes(case, fits + 1, S)
    latency = 3.3 * step_s(case, 1, S)
    fast = solve(case, "batch", 1, S, Target(latency_s=latency))["value"]
    assert step_s(case, fast, S) <= latency < step_s(case, fast + 1, S)


def _reached_and_bound(case: Case, S: int) -> None:
    """Put back the batch that reaches a throughput, and the one that turns compute-bound."""
    share = solve(case, "batch", 1, S, Target(share=0.7))
    B, wanted = share["value"], 0.7 * share["limit_tokens_per_s"]
    assert B / step_s(case, B, S) >= wanted
    assert B == 1 or (B - 1) / step_s(case, B - 1, S) < wanted

    bound = solve(case, "batch", 1, S, Target(when="compute-bound"))
    if bound["value"] is None:
        assert not is_compute_bound(case, 10**9, S)
        longest = bound["longest_context_tokens"]
        if longest is None:
            # Steps become faster with each chunk or block: no longest context is told.
            assert chunk_lengths(case.model)
            return
        assert longest < S
        assert not is_compute_bound(case, 10**12, longest + 1)
        assert longest == 0 or is_compute_bound(case, 10**12, longest)
    else:
        assert is_compute_bound(case, bound["value"], S)
        assert bound["value"] == 1 or not is_compute_bound(case, bound["value"] - 1, S)
        if bound["root"] is not None:
            # A root that is a whole number may lie on either side of it in floating point.
            roots = (bound["root"], bound["root"] * (1 + 1e-12))
            assert bound["value"] in [max(1, math.floor(root) + 1) for root in roots]


@pytest.mark.parametrize("index", range(0, len(PRESETS), 21))
def test_solved_contexts_and_rates_meet_their_targets(index: int) -> None:
    """Longest context in memory and in time; least bandwidth and compute for a latency."""
    case = case_of(index)
    limit, B, S = case.limit[0], 4, 700
    longest = solve(case, "context", B, 1, Target())["value"]
    if longest is not None:
        assert memory_bytes(case, B, longest) <= limit
        # A memory that does not grow with the context has no longest one.
        assert longest == MOST or limit < memory_bytes(case, B, longest + 1)
    now = step_s(case, B, S)
    within = solve(case, "context", B, 1, Target(latency_s=1.2 * now))["value"]
    assert step_s(case, B, within) <= 1.2 * now
    assert within == MOST or 1.2 * now < step_s(case, B, within + 1)
    compute = case.precision.weights.compute
    for unknown in ("bandwidth", "compute"):
        answer = solve(case, unknown, B, S, Target(latency_s=1.5 * now))
        rate = answer["value"]

        def seconds(r: float, unknown: str = unknown) -> float:
            machine = (
                replace(case.machine, bandwidth_bytes_per_s=r)
                if unknown == "bandwidth"
                else replace(case.machine, flops={compute: r}, best_flops={})
            )
            return step_s(replace(case, machine=machine), B, S)

        assert seconds(rate) <= 1.5 * now < seconds(rate * (1 - 1e-9))
    assert solve(case, "capacity", B, S, Target())["value"] == memory_bytes(case, B, S)


@pytest.mark.parametrize("index", range(0, len(PRESETS), 14))
def test_the_printed_formula_gives_the_printed_value(index: int) -> None:
    """The named parts, put into the formula of the active branch, give the solved integer."""
    case = case_of(index)
    latency = 2 * step_s(case, 1, 512)
    answer = solve(case, "batch", 1, 512, Target(latency_s=latency))
    parts = {d["name"]: d["value"] for d in answer["definitions"]}
    if "whole" in parts:
        # Experts are touched by a power of the batch: no closed form, the step itself is shown.
        assert parts["whole"] == pytest.approx(step_s(case, answer["value"], 512), rel=1e-12)
        return

    by_formula = (latency - parts["fixed_s"]) / parts["s_per_sequence"]
    assert answer["value"] == math.floor(by_formula * (1 + 1e-12))
    low, _, high = answer["valid_for"].partition(" <= B")
    assert int(low.replace(",", "")) <= answer["value"]
    if high:
        assert answer["value"] <= int(high.removeprefix(" <= ").replace(",", ""))


def test_a_branch_ends_where_it_says() -> None:
    """Within the printed range the formula is exact; beyond it another operator limits."""
    case = Case(find_model("llama-3-8b"), h100())
    answer = solve(case, "batch", 1, 64, Target(latency_s=0.0052))
    parts = {d["name"]: d["value"] for d in answer["definitions"]}
    last = int(answer["valid_for"].rpartition("<= ")[2].replace(",", ""))

    def formula(B: int) -> float:
        return parts["fixed_s"] + B * parts["s_per_sequence"]

    assert formula(last) == pytest.approx(step_s(case, last, 64), rel=1e-12)
    assert formula(last + 2) < step_s(case, last + 2, 64) * (1 - 1e-9)


@pytest.mark.parametrize("accounting", ["full", "lecture"])
@pytest.mark.parametrize(("B", "S"), [(1, 1024), (64, 1024), (600, 16), (40_000, 8)])
@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2", "opt-350m", "qwen3-8b"])
def test_elasticities_equal_numeric_differentiation(
    name: str, B: int, S: int, accounting: str
) -> None:
    """Every elasticity of time and throughput is the central difference of the symbolic step."""
    model = "bandwidth" if accounting == "lecture" else "operator"
    case = Case(find_model(name), h100(), accounting=accounting, time_model=model)  # pyright: ignore[reportArgumentType]
    from rooflm.calc.symbols import number

    expression, values = time_expression(case)
    values |= {BATCH: B, CONTEXT: S}
    found = sensitivity(case, B, S)
    assert {"B", "S", "D", "β"} <= set(found["time_s"]) | {"S"}
    for symbol, value in values.items():
        if symbol not in expression.free_symbols:
            assert symbol.name not in found["time_s"]
            continue
        h = 1e-6
        up, down = (number(expression, {**values, symbol: value * f}) for f in (1 + h, 1 - h))
        slope = (math.log(up) - math.log(down)) / (math.log1p(h) - math.log1p(-h))
        assert found["time_s"].get(symbol.name, 0) == pytest.approx(slope, abs=1e-6)
        own = 1 if symbol == BATCH else 0
        assert found["tokens_per_s"].get(symbol.name, 0) == pytest.approx(own - slope, abs=1e-6)


def test_the_reason_is_right_where_nothing_answers(rooflm: Terminal) -> None:
    """No batch within 7 ms, none compute-bound at 1024 tokens, none beyond the limit: exit 1."""
    base = ("llama-2-13b", "--on", "h100-sxm", "--context", "1024")
    asked = {
        ("batch", "--latency", "7ms"): "one sequence alone takes 7.92",
        ("batch", "--when", "compute-bound"): "above 106 tokens of context none is",
        ("batch", "--throughput", "1M"): "the limit is",
        ("bandwidth", "--latency", "1us"): "compute alone takes",
        ("compute", "--latency", "1us"): "memory traffic alone takes",
    }
    for (unknown, *rest), reason in asked.items():
        ran = rooflm("solve", unknown, *base, *rest, "--format", "json")
        assert ran.code == 1, ran.err
        assert ran.json["feasible"] is False
        assert ran.json["value"] is None
        assert reason in ran.json["reason"]


def test_solve_has_every_key_of_the_contract(rooflm: Terminal) -> None:
    """The answer names the unknown, its value and unit, why, the formula and its range."""
    words = ("solve", "batch", "llama-2-13b", "--on", "h100-sxm", "--accounting", "lecture")
    answer = rooflm.json(*words, "--latency", "20ms")

    assert {"unknown", "value", "unit", "feasible", "reason", "formula", "valid_for"} <= set(answer)
    assert answer["value"] == 48
    assert rooflm.json(*words)["value"] == 64


def test_a_compute_bound_step_has_more_compute_than_memory_time() -> None:
    """The two sides add up to the bound, and their order is the regime."""
    case = Case(find_model("llama-3-8b"), find_machine("h100-sxm"))
    computing, moving = both_times(case, 400, 32)

    assert computing + moving == pytest.approx(step_s(case, 400, 32), rel=1e-12)
    assert computing > moving


def test_the_context_that_turns_the_regime_is_where_a_sweep_turns(rooflm: Terminal) -> None:
    """Four hundred sequences compute longer up to a context, and move longer beyond it."""
    words = ("llama-3-8b", "--on", "h100-sxm", "--batch", "400")

    answer = rooflm.json("solve", "context", *words, "--when", "compute-bound")

    last = answer["value"]
    rows = rooflm.json("sweep", *words, "--context", f"{last},{last + 1}")["rows"]
    assert answer["reason"].startswith("longest context")
    assert [row["regime"] for row in rows] == ["compute", "memory"]


def test_few_sequences_are_memory_bound_at_any_context(rooflm: Terminal) -> None:
    """Four rows of a matmul are far below the ridge, and attention is as well."""
    words = ("llama-3-8b", "--on", "h100-sxm", "--batch", "4")

    ran = rooflm("solve", "context", *words, "--when", "compute-bound", "--format", "json")

    assert ran.code == 1
    assert ran.json["reason"] == "none: 4 sequences are memory-bound at any context"
    rows = rooflm.json("sweep", *words, "--context", "1,1024,128Ki")["rows"]
    assert {row["regime"] for row in rows} == {"memory"}
