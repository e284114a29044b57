"""One text, three readings: numbers, arrays and symbols agree; and what a docstring promises."""

from __future__ import annotations

import doctest
import importlib
import inspect
import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings

from rooflm.calc import readings
from rooflm.calc.extremes import crossing, extreme
from rooflm.calc.letters import symbolic
from rooflm.calc.model import Model, cache_elements, ledger, total_parameters
from rooflm.calc.passes import Operator, Segment, decode
from rooflm.calc.symbols import number as evaluate
from rooflm.calc.timing import TIME_MODELS, Rates, compulsory_bytes, flops, shares, step_time

from . import strategies as own

CALC = Path(inspect.getfile(readings)).parent
MODULES = [
    importlib.import_module(f"rooflm.calc.{p.stem}")
    for p in sorted(CALC.glob("*.py"))
    if not p.stem.startswith("__")
]


def array_value(quantity: Any) -> float:
    """Take the one number of an array; what depends on neither axis is a number already."""
    return float(np.asarray(quantity).item())


@given(own.models(), own.batches, own.contexts, own.rates)
@settings(derandomize=True, max_examples=10, deadline=None)
def test_numbers_arrays_and_symbols_agree(model: Model, B: int, S: int, rates: Rates) -> None:
    """Parameters, cache, FLOPs, bytes and every time model are the same in all three readings."""
    b, s, c, w = sympy.symbols("B S C beta", positive=True)
    letters, values = symbolic(model)
    replace = {sympy.Symbol(k, positive=True, integer=True): v for k, v in values.items()}
    replace |= {
        b: B,
        s: S,
        c: rates.flops_per_s,
        w: rates.bytes_per_s,
    }
    number = ledger(model, decode(B, S))
    array = ledger(model, decode(np.array([[B]]), np.array([[S]])))
    symbol = ledger(letters, decode(b, s))

    def value(expression: Any) -> float:
        return evaluate(sympy.sympify(expression), replace)

    assert total_parameters(model) == pytest.approx(value(total_parameters(letters)), rel=1e-15)
    assert cache_elements(model, S) == pytest.approx(value(cache_elements(letters, s)), rel=1e-15)
    for quantity in (flops, compulsory_bytes):
        assert array_value(quantity(array)) == pytest.approx(quantity(number), rel=1e-12)
        assert value(quantity(symbol)) == pytest.approx(quantity(number), rel=1e-12)
    for time_model in TIME_MODELS:
        seconds = step_time(number, rates, time_model)
        assert array_value(step_time(array, rates, time_model)) == pytest.approx(seconds, rel=1e-12)
        formula = step_time(symbol, Rates(c, w), time_model)
        assert value(formula) == pytest.approx(seconds, rel=1e-12)
        both = zip(shares(array, rates, time_model), shares(number, rates, time_model), strict=True)
        for ours, theirs in both:
            assert array_value(ours) == pytest.approx(theirs, rel=1e-9, abs=1e-12 * seconds)


B, D, E, F, S, V, k = sympy.symbols("B D E F S V k", positive=True, integer=True)
b_w = sympy.Symbol("b_w", positive=True)
REACHED = 1 - (1 - k / E) ** B


EXTREMES: list[tuple[Any, ...]] = [
    (2 * D * S * b_w, 2 * D * b_w, b_w * (D + 4 * V)),
    (B * b_w * (2 * D + k * F), b_w * (2 * D + k * F), B * (2 * D * b_w + 4 * E), 0),
    (2 * D * E * F * REACHED, 2 * B * D * F * k, D * F * REACHED),
    (S - 1, S, 3, B),
    (sympy.Max(B, S), S + 1, sympy.Min(D, F)),
    (sympy.Min(D, F), D, 1),
    (sympy.floor(S / 4), sympy.ceiling(S / 4), sympy.binomial(E, k)),
    (B * D, B * D, 2 * B * D),
    (S, 1.5, 1),
]


@pytest.mark.parametrize("values", EXTREMES, ids=str)
@pytest.mark.parametrize("kind", ["Max", "Min"])
def test_max_and_min_of_symbols_are_those_of_sympy(kind: str, values: tuple[Any, ...]) -> None:
    """The same expression that sympy's own search for an order gives."""
    found = extreme(kind, *values)

    assert found == getattr(sympy, kind)(*values)
    assert type(found) is type(getattr(sympy, kind)(*values))


def test_arguments_that_cross_are_told_by_numbers() -> None:
    """Most pairs need no search; where one is never less than the other, it is left to sympy."""
    assert crossing(2 * D * S, B * (D + 4 * V))
    assert crossing(2 * D * E * F * b_w * REACHED, D * F * b_w * k * 3)
    assert not crossing(2 * D * S, 2 * D)
    assert not crossing(S * (D + 1), S * D + S)
    assert not crossing(sympy.binomial(E, k), D)


def test_integer_arrays_do_not_overflow() -> None:
    """B*S = 10**12 on an integer mesh gives the figures of exact integers."""
    from rooflm.calc.presets import find_model

    model = find_model("llama-2-13b")
    B = S = 10**6
    mesh = ledger(model, decode(np.array([B])[:, None], np.array([S])[None, :]))
    exact = ledger(model, decode(B, S))

    assert compulsory_bytes(exact) > 2**63 // 16
    assert flops(mesh).item() == pytest.approx(flops(exact), rel=1e-15)
    assert compulsory_bytes(mesh).item() == pytest.approx(compulsory_bytes(exact), rel=1e-15)
    assert readings.FORMULAS["kv_cache_bytes"](
        S=np.array([10**12]), K=128, H=256, L=128, b=4
    ).item() == pytest.approx(10**12 * 2 * 128 * 256 * 128 * 4, rel=1e-15)
    # The same by place: 3.4e19 B are beyond the 9.2e18 of int64.
    assert readings.FORMULAS["kv_cache_bytes"](
        np.array([10**12]), 128, 256, 128, 4
    ).item() == pytest.approx(10**12 * 2 * 128 * 256 * 128 * 4, rel=1e-15)


def test_whole_halves_and_empty_sums_keep_their_kind() -> None:
    """Integers stay exact where they can, and a sum of no time is a time."""
    assert [(x, type(x)) for x in map(readings.as_whole, (3.0, 3.5))] == [(3, int), (3.5, float)]
    assert [readings.half(x) for x in (6, 10**18 + 2, 3.0)] == [3, 5 * 10**17 + 1, 1.5]
    assert [type(readings.total(xs)) for xs in ([0], [0.0], [])] == [int, float, int]


def test_the_index_of_a_symbolic_series_is_whole() -> None:
    """The floor of each whole number is itself, so that 1 + ... + n = n(n + 1)/2."""
    n = sympy.Symbol("n", integer=True, positive=True)
    added = readings.series(readings.floor, 1, n)

    assert not added.has(sympy.floor)
    assert sympy.simplify(added.doit() - n * (n + 1) / 2) == 0


@given(own.models(), own.batches, own.contexts, own.rates)
@settings(derandomize=True, max_examples=30, deadline=None)
def test_time_models_are_ordered(model: Model, B: int, S: int, rates: Rates) -> None:
    """Bandwidth <= overlap <= operator <= serial, up to rounding."""
    times = [step_time(ledger(model, decode(B, S)), rates, m) for m in TIME_MODELS]

    for smaller, larger in itertools.pairwise(times):
        assert smaller <= larger * (1 + 1e-12)


@given(own.models(), own.batches, own.contexts, own.rates)
@settings(derandomize=True, max_examples=30, deadline=None)
def test_time_grows_with_work_and_falls_with_bandwidth(
    model: Model, B: int, S: int, rates: Rates
) -> None:
    """One more sequence, one more token or less bandwidth never makes a step faster."""

    def seconds(batch: int, context: int, r: Rates) -> float:
        return step_time(ledger(model, decode(batch, context)), r)

    slower = Rates(rates.flops_per_s, 0.9 * rates.bytes_per_s)
    now = seconds(B, S, rates) * (1 - 1e-12)
    assert seconds(B + 1, S, rates) >= now
    assert seconds(B, S + 1, rates) >= now
    assert seconds(B, S, slower) >= now


@given(own.models(), own.batches, own.contexts)
@settings(derandomize=True, max_examples=30, deadline=None)
def test_a_pass_is_the_sum_of_its_segments(model: Model, B: int, S: int) -> None:
    """A ragged pass has the FLOPs and cache traffic of its segments, and the weights once."""
    parts = [Segment(B, 1, S - 1), Segment(1, 7, 3)]
    both = ledger(model, parts)
    single = [ledger(model, [p]) for p in parts]

    assert flops(both) == pytest.approx(sum(map(flops, single)), rel=1e-12)
    for kind in ("read_bytes", "write_bytes"):
        moved = [sum(op.count * getattr(op, kind) for op in ops) for ops in (both, *single)]
        # A share 1/m of an entry a token is no whole number.
        assert moved[0] == pytest.approx(moved[1] + moved[2], rel=1e-12)

    def streamed(ops: list[Operator]) -> int:
        # Gathered rows and touched experts grow with the rows of a pass.
        once = [o for o in ops if o.part not in ("embedding", "experts") and o.name != "residual"]
        return sum(o.count * o.weight_bytes for o in once)

    assert streamed(both) == streamed(single[0])
    moved = [sum(o.count * o.weight_bytes for o in ops) for ops in (both, *single)]
    assert max(moved[1:]) * (1 - 1e-12) <= moved[0] <= (moved[1] + moved[2]) * (1 + 1e-12)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.__name__.rpartition(".")[2])
def test_examples_in_docstrings_hold(module: object) -> None:
    """Every doctest of the calculator passes."""
    failed, _ = doctest.testmod(module)  # pyright: ignore[reportArgumentType]

    assert failed == 0


@pytest.mark.parametrize("name", readings.FORMULAS)
def test_a_formula_states_units_and_an_example(name: str) -> None:
    """The docstring of a formula names every argument with a unit, its result, and an example."""
    formula = readings.FORMULAS[name]
    text = inspect.getdoc(formula) or ""

    for argument in inspect.signature(formula).parameters:
        assert re.search(rf"\b{argument}\b", text), argument
    assert re.search(r"\[[^\]]+\]", text)
    assert "Returns [" in text.replace("\n", " ")
    assert f">>> {name}(" in text or f"{name}(" in text.partition(">>>")[2]


DEFAULTS = [
    # Nothing that was not said is there, and of what there is there is one.
    (0, "s graphs window ratio drafted cached latency serial i causal decays least groups"),
    (1, "tokens page streams slots power overlap utilization pue commit ranks"),
    # Elements of 16 bits; states and logits are in fp32.
    (2, "b b_x b_w b_y b_q b_kv dispatch combine"),
    (4, "b b_s"),
    # Gated layers have three matrices, convolutions of Mamba four taps.
    (3, "matrices"),
    (4, "taps"),
    # vLLM: --block-size, --max-num-batched-tokens, the granule of states, DeepSeek-V4's pages.
    (16, "block granule"),
    (8192, "batched"),
    (576, "unit"),
    # llama.cpp: -ub, cells of a cache.
    (512, "batch"),
    (256, "pad"),
    # Stages of a hand-off that overlap; rows of a tile of tensor cores.
    (2, "stages"),
    (64, "tile"),
]


def test_arguments_that_are_left_out_mean_the_same_everywhere() -> None:
    """Defaults of all formulas: nothing, one, 16 bits, or the setting of an engine."""
    expected = {(name, value) for value, names in DEFAULTS for name in names.split()}
    found = {
        (name, argument.default)
        for formula in readings.FORMULAS.values()
        for name, argument in inspect.signature(formula).parameters.items()
        if argument.default is not argument.empty
    }

    assert found == expected
    in_fp32 = inspect.signature(readings.FORMULAS["logits_bytes"]).parameters["b"]
    assert in_fp32.default == 4


def test_sympy_and_numpy_are_imported_only_where_asked_for() -> None:
    """The scalar path of a sweep imports none of the heavy packages."""
    import subprocess
    import sys

    code = (
        "import sys; sys.argv = 'rooflm sweep llama-2-13b --on h100-sxm --batch 1,64,256'.split()\n"
        "import rooflm.calc.__main__ as m\n"
        "try: m.main()\n"
        "except SystemExit as e: assert e.code == 0\n"
        "heavy = {'numpy', 'pydantic', 'sympy', 'matplotlib', 'torch'} & set(sys.modules)\n"
        "sys.exit(f'imported: {heavy}' if heavy else 0)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stderr


def test_a_measured_curve_is_straight_between_logarithms() -> None:
    """Points (1, 2), (4, 8), (16, 4): halfway in logarithms is the root of the product.

    Below the first it stays, beyond the last it goes on with the last slope, -1/2.
    """
    knots = ((1.0, 2.0), (4.0, 8.0), (16.0, 4.0))
    sizes = (0.5, 1, 2, 4, 8, 16, 64)
    wanted = (2, 2, 4, 8, 32**0.5, 4, 2)

    assert [readings.interpolated(x, knots) for x in sizes] == pytest.approx(wanted, rel=1e-12)
    assert readings.interpolated(np.array(sizes), knots) == pytest.approx(wanted, rel=1e-12)
