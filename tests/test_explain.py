"""Every number of a table has a formula that gives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rooflm.calc.case import Case
from rooflm.calc.definitions import Question, compose, definitions, evaluated, point
from rooflm.calc.engines import find_constants
from rooflm.calc.explain import resolve
from rooflm.calc.plain import is_map
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.requests import Work, sweep_requests
from rooflm.calc.symbols import number, symbolic_case

from .helpers import Terminal

MODELS = (
    "llama-2-13b", "gpt2", "opt-350m", "qwen3-8b", "phi-2", "gemma-3-27b", "mixtral-8x7b",
    "deepseek-v3", "gpt-oss-20b", "llama-4-scout",
)  # fmt: skip
WITH_ESTIMATES = ("llama-2-13b", "opt-350m", "gemma-3-27b", "mixtral-8x7b")
"""Models whose estimates are explained as well: attention of each kind, windows, experts."""
WORK = ("--batch", "3", "--context", "700")
REQUEST = ("--phase", "request", "--prompt", "500", "--output-tokens", "20", "--chunk", "128")


def numbers(value: Any, prefix: str = "") -> Iterator[tuple[str, float]]:
    """Walk the numeric columns of an answer."""
    if is_map(value):
        for key, inner in value.items():
            yield from numbers(inner, f"{prefix}{key}.")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield prefix[:-1], value


def evaluator(question: Question) -> Callable[[str], float]:
    """Define every quantity once; then give the value of the formula of each."""
    symbolic = symbolic_case(question.case)
    known = definitions(question, symbolic)
    values = symbolic.values | point(question)
    found: dict[str, float | None] = {}

    def value_of(name: str) -> float:
        value = evaluated(resolve(name, known), known, values, found)
        assert value is not None, name
        return value

    return value_of


def test_a_formula_without_subtotals_gives_the_same() -> None:
    """Put into one expression, a formula has the value that its subtotals give."""
    question = Question(lecture_or("llama-2-13b", ()), 3, 700)
    symbolic = symbolic_case(question.case)
    known = definitions(question, symbolic)
    values = symbolic.values | point(question)
    for name in ("bound_s", "floor_s", "memory_bytes", "tokens_per_s", "max_sequences"):
        whole = number(compose(known[name], known), values)
        assert evaluated(name, known, values, {}) == pytest.approx(whole, rel=1e-12), name


def lecture_or(model: str, more: tuple[str, ...], estimates: bool = False) -> Case:
    """Make the case that the options name."""
    options = dict(zip(more[::2], more[1::2], strict=True))
    lecture = "--accounting" in options
    time_model: Any = "bandwidth" if lecture else options.get("--time-model", "operator")
    machine = find_machine("h100-sxm")
    found = find_model(model)
    return Case(
        found,
        machine,
        precision_of(options.get("--weights"), model=found, published=not lecture),
        constants=None if lecture or not estimates else find_constants(machine)[0],
        basis="bound" if "--time-model" in options else "estimate",
        accounting="lecture" if lecture else "full",
        time_model=time_model,
    )


@pytest.mark.parametrize(
    ("model", "more"),
    [
        *((model, ()) for model in MODELS),
        *((model, ("--accounting", "lecture")) for model in MODELS),
        ("llama-2-13b", ("--time-model", "overlap")),
    ],
)
def test_every_column_of_show_fit_and_sweep_is_explained(
    rooflm: Terminal, model: str, more: tuple[str, ...]
) -> None:
    """The substituted formula equals the column to 1e-12."""
    base = (model, "--on", "h100-sxm", *WORK)
    estimates = model in WITH_ESTIMATES or bool(more)
    basis = () if estimates else ("--basis", "bound")
    columns = dict(numbers(rooflm.json("sweep", *base, *more, *basis)["rows"][0]))
    if not estimates:
        columns = {k: v for k, v in columns.items() if not k.startswith("estimate")}
    if "--time-model" not in more:
        row = rooflm("fit", *base, *more, "--format", "json").json["rows"][0]
        columns |= dict(numbers({k: v for k, v in row.items() if k != "memory"}))
        columns |= dict(numbers(row["memory"]))
        shown = rooflm.json("show", model, *more)
        for part in ("parameters", "cache"):
            table = {k: v for k, v in shown[part].items() if k not in ("layers", "reference")}
            columns |= dict(numbers(table))
        columns |= dict(numbers(shown["weights_bytes_by_format"]))
    assert len(columns) > 12
    value_of = evaluator(Question(lecture_or(model, more, estimates=estimates), 3, 700))

    for key, value in columns.items():
        assert value_of(key) == pytest.approx(value, rel=1e-12), key


@pytest.mark.parametrize("model", ["llama-2-13b", "opt-350m", "deepseek-v3", "gemma-3-27b"])
def test_every_column_of_the_roofline_is_explained(rooflm: Terminal, model: str) -> None:
    """OPERATOR.FIGURE of both phases, and the ridge."""
    answer = rooflm.json("roofline", model, "--on", "h100-sxm", *WORK)
    value_of = evaluator(Question(lecture_or(model, ()), 3, 700))

    for prefix, rows in (("", "operators"), ("prefill.", "prefill_operators")):
        for row in answer[rows]:
            for key, _ in numbers(row):
                name = f"{prefix}{row['name'].replace(' ', '_')}.{key}"
                assert value_of(name) == pytest.approx(row[key], rel=1e-12), name
    assert value_of("ridge_flops_per_byte") == answer["ridge_flops_per_byte"]


WORKS = {
    "prefill": Work(300, phase="prefill"),
    "request": Work(500, output=20, chunk=128, prefix=40),
    "two-passes": Work(500, output=1, chunk=499),
}


@pytest.mark.parametrize(
    ("model", "time_model", "name"),
    [
        *((m, "operator", name) for m in ("llama-2-13b", "gpt2", "mixtral-8x7b") for name in WORKS),
        # Windows of a whole request would take as long as all others together.
        *(("gemma-3-27b", "operator", name) for name in ("prefill", "two-passes")),
        *(("gpt2", "serial", name) for name in WORKS),
    ],
)
def test_every_column_of_prefills_and_requests_is_explained(
    model: str, time_model: str, name: str
) -> None:
    """Sums over chunks and over decode steps give the columns to 1e-12."""
    case, work = lecture_or(model, ("--time-model", time_model)), WORKS[name]
    answer = sweep_requests(case, [3], [work])
    columns = dict(numbers(answer["rows"][0]))
    value_of = evaluator(Question(case, 3, work.last_context, work))
    assert len(columns) > 15

    for key, value in columns.items():
        assert value_of(key) == pytest.approx(value, rel=1e-12), key


def test_an_explanation_has_every_key_of_the_contract(rooflm: Terminal) -> None:
    """Formula, latex, substitution, value, unit, assumptions, what is left out, source."""
    for words in (("ttft_s", *REQUEST), ("itl_s", *REQUEST), ("max_sequences",), ("total",)):
        answer = rooflm.json("explain", words[0], "llama-2-13b", "--on", "h100-sxm", *words[1:])
        for key in ("formula", "latex", "substitution", "unit", "assumptions", "source"):
            assert answer[key], key
        assert answer["value"] > 0
        assert isinstance(answer["omits"], list)


def test_the_formula_reads_like_the_lecture(rooflm: Terminal) -> None:
    """The cache in the letters of the nomenclature, substituted, in bytes; latex on its own."""
    words = ("explain", "kv_cache_bytes", "llama-2-13b", "--on", "h100-sxm", "--batch", "64")
    answer = rooflm.json(*words)

    assert answer["formula"] == "kv_cache_bytes = 2*B*H*K*L*S*b_kv"
    assert answer["substitution"] == "kv_cache_bytes = 2*64*128*40*40*1024*2"
    assert (answer["value"], answer["unit"]) == (53_687_091_200, "B")
    assert r"2 B H K L S b_{kv}" in rooflm(*words, "--format", "latex").out


def test_subtotals_stand_under_the_total(rooflm: Terminal) -> None:
    """The bound is a sum of named operator classes, each with its own line."""
    answer = rooflm.json("explain", "bound_s", "llama-3-8b", "--on", "h100-sxm")
    names = [t["name"] for t in answer["terms"]]

    assert names[0] == "bound_s"
    assert {"attention_bound_s", "mlp_bound_s", "head_bound_s"} <= set(names)
    assert sum(t["value"] for t in answer["terms"][1:]) == pytest.approx(answer["value"])


def test_an_unknown_quantity_is_refused_with_the_nearest(rooflm: Terminal) -> None:
    """A misspelt column names the one that is meant."""
    ran = rooflm("explain", "bound_z", "gpt2", "--on", "h100-sxm")

    assert ran.code == 2
    assert "bound_s" in ran.err


def test_sensitivity_comes_with_an_explanation(rooflm: Terminal) -> None:
    """--sensitivity adds the elasticities; bandwidth is -1 where memory limits."""
    words = ("explain", "time_s", "llama-2-13b", "--on", "h100-sxm", "--sensitivity")

    assert rooflm.json(*words)["sensitivity"]["time_s"]["β"] == pytest.approx(-1)


@pytest.mark.parametrize(
    "words",
    [
        (
            "llama-2-13b",
            "--on",
            "h100-sxm",
            "--batch",
            "64",
            "--utilization",
            "60%",
            "--pue",
            "1.2",
        ),
        ("llama-3-8b", "--on", "mi355x", "--tp", "2", "--price", "3", "--power", "900"),
    ],
)
def test_costs_are_explained(rooflm: Terminal, words: tuple[str, ...]) -> None:
    """Price and energy of a token by formula are those of the sweep, on the same basis."""
    basis = ("--basis", "bound") if "--tp" in words else ()
    (row,) = rooflm.json("sweep", *words, "--cost", *basis)["rows"]
    for key in ("output_usd_per_mtok", "joules_per_token"):
        answer = rooflm.json("explain", key, *words)
        assert answer["value"] == pytest.approx(row[key], rel=1e-12)
        assert answer["unit"] in ("USD/Mtok", "J")
    lacking = rooflm("explain", "output_usd_per_mtok", "llama-3-8b", "--on", "mi355x")
    assert lacking.code == 2
    assert "no price of mi355x is known" in lacking.err
