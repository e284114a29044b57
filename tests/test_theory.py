# ruff: noqa: RUF001
"""The chapter of formulas: each is the function's own, each example follows from its formula."""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.letters import with_letter
from rooflm.calc.matmul import matmul_saturating_rows
from rooflm.calc.model import parameters, total_parameters
from rooflm.calc.presets import find_model
from rooflm.calc.readings import FORMULAS
from rooflm.calc.symbols import number, sympy

DOCS = Path(__file__).resolve().parents[1] / "docs"
sys.path.insert(0, str(DOCS))

import theory  # noqa: E402
import theory_derived as derived  # noqa: E402
import transcript  # noqa: E402

PAGE = (DOCS / "theory.md").read_text("utf-8")
transcript.formulas()  # Imports every module that has formulas.
ENTRIES = theory.entries()
POWERS = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")


def evaluated(entry: theory.Entry, values: dict[str, Any]) -> float:
    """Put numbers in place of the letters of a formula."""
    letters = {s: values[s.name] for s in entry.expression.free_symbols}
    if entry.expression.has(sympy.LambertW):
        return float(entry.expression.subs(letters).evalf())
    return float(number(entry.expression, letters))


def near(value: Any, random_: random.Random) -> Any:
    """Draw another number near one: a whole one stays whole, a share stays below 1."""
    if isinstance(value, int):
        return value + random_.randint(0, max(1, value // 3))
    return value * random_.uniform(0.7, 1)


def test_every_formula_is_shown_or_left_out_with_a_reason() -> None:
    """A formula that is added to the register is missed here until the page has it."""
    names = {entry.function.rpartition(".")[2] for entry in ENTRIES}

    assert set(FORMULAS) - names == set(theory.LEFT_OUT)
    for name, why in theory.LEFT_OUT.items():
        assert f"| `{name}` | {why} |" in PAGE


def test_every_section_is_on_the_page_once() -> None:
    """No section is forgotten, and none is shown twice."""
    shown = re.findall(r'theory\.show\("(\w+)"\)', PAGE)

    assert sorted(shown) == sorted(theory.SHOWN)


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.function)
def test_a_formula_is_what_its_function_computes(entry: theory.Entry) -> None:
    """At the example and near it, the expression gives what the function gives for numbers."""
    random_ = random.Random(entry.function)
    points = [entry.values, *({k: near(v, random_) for k, v in entry.values.items()} for _ in "12")]

    for values in points:
        assert evaluated(entry, values) == pytest.approx(float(entry.read(values)), rel=1e-9)


def rows() -> list[list[str]]:
    """Read the tables of examples: the cells of each row."""
    found = [[c.strip() for c in line.strip("|").split(" | ")] for line in PAGE.splitlines()
             if re.match(r"\| (derived|`\w+\.\w+`) \|", line)]  # fmt: skip
    return [cells for cells in found if len(cells) == 4]


def printed(cell: str) -> float:
    """Read the number at the start of a cell; 2·10⁻⁶ is a power of ten."""
    digits = cell.split()[0].replace(",", "")
    digits, _, power = digits.partition("·10")
    return float(f"{digits}e{power.translate(POWERS) or 0}")


def test_printed_examples_follow_from_printed_formulas() -> None:
    """Letters and value are read off the page, and the formula of the page is worked out anew."""
    sections = re.findall(r'theory\.show\("(\w+)"\)', PAGE)
    in_order = [theory.Entry(*one) for name in sections for one in theory.SHOWN[name]]
    found = rows()

    assert len(found) == len(in_order) == len(ENTRIES)
    for entry, cells in zip(in_order, found, strict=True):
        given = re.findall(r"(\S[^=,]*?) = ([\d,.·⁻⁰¹²³⁴⁵⁶⁷⁸⁹-]+)(?:, |$)", cells[2])
        values = {name.replace(" ", "_"): printed(value) for name, value in given}
        assert set(values) == set(entry.values), cells
        # Letters are printed with six digits, and where they are rounded floors may turn.
        assert printed(cells[3]) == pytest.approx(evaluated(entry, values), rel=2e-5), cells


def test_named_parts_add_up_to_the_whole() -> None:
    """Putting y_1 and y_2 back gives the formula that was taken apart; some formula has both."""
    most = 0
    for entry in ENTRIES:
        whole, parts = theory.split(entry.expression)
        most = max(most, len(parts))
        for y, part in reversed(parts):
            whole = whole.xreplace({y: part})
        assert whole == entry.expression
    assert most == 2


def test_blocks_use_what_github_renders() -> None:
    r"""GitHub refuses \operatorname; braces and environments close, and lines are not too wide."""
    blocks = re.findall(r"```math\n(.*?)```", PAGE, re.S)
    macros = set(re.findall(r"\\[a-zA-Z]+", "".join(blocks)))

    assert len(blocks) > 40
    assert macros <= {
        r"\begin", r"\end", r"\text", r"\mathrm", r"\frac", r"\sqrt", r"\binom", r"\sum", r"\quad",
        r"\left", r"\right", r"\lfloor", r"\rfloor", r"\lceil", r"\rceil", r"\max", r"\min",
        r"\ln", r"\alpha", r"\beta", r"\gamma", r"\kappa", r"\lambda", r"\tau",
    }  # fmt: skip
    for block in blocks:
        assert block.count("{") == block.count("}")
        assert len(re.findall(r"\\left\b", block)) == len(re.findall(r"\\right\b", block))
        assert max(map(len, block.splitlines())) < 190


@pytest.mark.parametrize("command", dict.fromkeys(re.findall(r"`(rooflm [^`]+)`(?! gives)", PAGE)))
def test_commands_of_the_page_run(command: str) -> None:
    """Each "In rooflm" line can be typed; those whose value is printed ran when it was made."""
    assert "rooflm: error" not in transcript.output(command)


def test_derived_formulas_against_what_is_known() -> None:
    """Turns and limits: the exact batch of calc/, and figures worked out by hand.

    Gated MLP: 3 I DF/(3 DF - 2 I(D + F)) at 16 bits; latent attention: 512·256/(1088 - 320) and
    2·128·1088/(2·576); the lecture's 48 sequences at 20 ms, problem 10.2's 119 sequences.
    """
    ridge, D, F = 989e12 / 3.35e12, 5120, 13824
    weights = 26030899200

    assert derived.matmul_turn(D, F, ridge) == pytest.approx(matmul_saturating_rows(D, F, ridge))
    assert derived.matmul_turn(512, 512, ridge) < 0
    exact = 3 * ridge * D * F / (3 * D * F - 2 * ridge * (D + F))
    assert derived.mlp_turn(D, F, ridge) == pytest.approx(exact)
    assert derived.materialising_tokens(512, 64, 128, 128) == pytest.approx(512 * 256 / 768)
    assert derived.absorbed_intensity(128, 512, 64) == pytest.approx(256 * 1088 / 1152)
    assert derived.latency_batch(0.02, weights, 1024, 40, 128, 40, 2, 3.35e12) == 48
    assert derived.budget_batch(80e9, 0, 16e9, 4096, 8, 128, 32, 2) == 119
    assert derived.stored_bits(4, 16, 4, 128) == 4.15625  # AWQ: llm-awq's int4, groups of 128


def test_the_series_of_speculation_has_its_closed_form() -> None:
    """Theorem 3.8 of arXiv 2211.17192 has (1 - a^(g+1))/(1 - a)."""
    α, γ = sympy.symbols("α γ", positive=True)

    assert derived.expected_tokens_closed(α, γ) == (1 - α ** (γ + 1)) / (1 - α)
    assert derived.expected_tokens_closed(0.8, 4) == pytest.approx((1 - 0.8**5) / 0.2)


def test_numbers_in_the_prose_are_those_of_the_program() -> None:
    """What sentences say beside the tables: counts of presets, turns, the lecture's two steps."""
    llama, gemma = find_model("llama-2-13b"), find_model("gemma-3-27b")
    norms = parameters(llama)["norms"]
    full = sum(group.count for group in gemma.groups if group.mixer.window_tokens is None)
    pairs = ((40, llama), (8, with_letter(llama, "K", 8)))
    steps = [
        1e3 * derived.step_time(2 * (total_parameters(m) - norms), 64, 1024, K, 128, 40, 2, 3.35e12)
        for K, m in pairs
    ]

    assert f"{norms:,} weights of {total_parameters(llama):,}" in PAGE
    assert f"{full} of {gemma.layers} layers keep everything" in PAGE
    assert f"{steps[0]:.1f} to {steps[1]:.1f} ms" in PAGE
    assert f"it takes {derived.matmul_turn(5120, 13824, 989 / 3.35):.0f} for this matrix" in PAGE
    assert f"At {derived.absorbed_intensity(128, 512, 64):.0f} FLOPs a byte" in PAGE


@pytest.mark.parametrize("n", [0, 1, 1000, 5000])
def test_what_the_page_says_of_cached_tokens(n: int) -> None:
    """Pairs after n cached tokens are a difference; scored entries are all beyond the first."""
    T, W, m, k = 3000, 1024, 4, 300
    cases = (
        ("windowed_pairs", (W,)), ("chunked_pairs", (W,)), ("indexed_pairs", (k,)),
        ("block_pairs", (16, 128)), ("all_entry_pairs", (m,)), ("entry_pairs", (m, k)),
    )  # fmt: skip
    for name, more in cases:
        pairs = FORMULAS[name]
        assert pairs(n, T, *more) == pairs(0, n + T, *more) - pairs(0, n, *more)

    first = (k + 1) * m - 1
    start, end = max(n, first), max(n + T, first)
    scored = FORMULAS["all_entry_pairs"](start, end - start, m)
    assert FORMULAS["scored_entry_pairs"](n, T, m, k) == scored
