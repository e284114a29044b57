"""Cost and energy: worked cases (tests/golden/cases_cost.yaml), and the options of commands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from rooflm.calc.cost import (
    Economics,
    Paid,
    costs,
    joules_per_token,
    margin,
    rent_usd,
    tariff_usd,
    usd_per_mtok,
)
from rooflm.calc.errors import Exit
from rooflm.calc.presets import find_machine
from rooflm.calc.requests import Work

from .golden import table
from .helpers import Terminal, only

CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in table("cases_cost")["cases"]}
Inputs = dict[str, Any]


def energy_per_token(i: Inputs) -> dict[str, Any]:
    """Tell the energy of a token and of a thousand."""
    rate = i["B"] / i["latency"]
    each = joules_per_token(i["power"], rate)
    return {
        "j_per_token": each,
        "wh_per_1000": 1000 * each / 3600,
        "with_pue": joules_per_token(i["power"], rate, i["pue"]),
    }


def cost_per_million(i: Inputs) -> dict[str, Any]:
    """Tell the price of a million tokens."""
    return {"usd_per_1e6": usd_per_mtok(i["usd_per_hour"], i["tokens_per_s"])}


def day(i: Inputs) -> dict[str, Any]:
    """Tell rent, revenue and margin of a fleet on a day."""
    cost = rent_usd(i["nodes"] * i["gpus"], i["usd"], 24 * 3600)
    prices = (i["price_hit"], i["price_miss"], i["price_out"])
    revenue = tariff_usd(i["hit"], i["miss"], i["out"], *prices)
    return {"cost": cost, "revenue": revenue, "margin": margin(revenue, cost)}


def energy_of_a_query(i: Inputs) -> dict[str, Any]:
    """Tell the energy of a query on a node."""
    each = joules_per_token(1000 * i["P_node_kw"], i["tps"], i["pue"])
    return {"wh": i["L_out"] * each / 3600}


COMPUTE: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "t21_energy_per_token": energy_per_token, "t21_cost_per_million": cost_per_million,
    "t21_deepseek_day": day, "t21_energy_node": energy_of_a_query,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_expected_value_of_a_worked_case_is_reproduced(name: str) -> None:
    """All values of a case, within 1e-9, and what a source says, within its own rounding."""
    case = CASES[name]
    found = COMPUTE[name](case["inputs"])

    assert found == pytest.approx(case["expected"], rel=1e-9)
    for key, (claimed, tolerance) in case.get("published", {}).items():
        assert found[key] == pytest.approx(claimed, rel=tolerance)


STEP = "llama-3-8b --on h100-sxm --batch 16 --context 2048"
REQUEST = "llama-3-8b --on h100-sxm --batch 4 --phase request --prompt 2048 --output-tokens 64"
WORDS = [STEP, f"{STEP} --tp 2", REQUEST, f"{REQUEST} --prefix 1024 --tp 2"]


def row(rooflm: Terminal, words: str) -> dict[str, Any]:
    """Sweep one point."""
    return only(rooflm.json("sweep", *words.split())["rows"])


def hourly(found: dict[str, Any], price: float) -> float:
    """Rent of all devices of a row, by the definition [USD/s]."""
    return price * found.get("devices", 1) / 3600


def test_any_option_asks_for_cost_and_without_one_nothing_changes(rooflm: Terminal) -> None:
    """--cost adds keys to a row and changes none."""
    plain = row(rooflm, STEP)
    for option in ("--cost", "--price 2", "--power 300", "--pue 1.2", "--utilization 50%"):
        paid = row(rooflm, f"{STEP} {option}")

        assert {k: v for k, v in paid.items() if k in plain} == plain
        assert set(paid) - set(plain) == {"output_usd_per_mtok", "joules_per_token"}
    assert "margin" in row(rooflm, f"{STEP} --tariff 0,0.5,1")


def test_a_step_costs_its_time(rooflm: Terminal) -> None:
    """Price and board power of the preset, times the seconds of the step, over its tokens."""
    chip = find_machine("h100-sxm")
    assert chip.price_usd_per_hour is not None
    assert chip.power_w == 700
    for words in WORDS[:2]:
        found = row(rooflm, f"{words} --cost")
        seconds, devices = found["time_s"], found.get("devices", 1)

        each = hourly(found, chip.price_usd_per_hour) * seconds / 16
        assert found["output_usd_per_mtok"] == pytest.approx(1e6 * each, rel=1e-12)
        assert found["joules_per_token"] == pytest.approx(700 * devices * seconds / 16, rel=1e-12)


def test_utilization_pue_and_what_is_typed_scale_it(rooflm: Terminal) -> None:
    """Half of the time busy is twice the price; the whole time changes nothing."""
    one = row(rooflm, f"{STEP} --price 2 --power 500")
    half = row(rooflm, f"{STEP} --price 2 --power 500 --utilization 50% --pue 1.5")

    assert half["output_usd_per_mtok"] == pytest.approx(2 * one["output_usd_per_mtok"])
    assert half["joules_per_token"] == pytest.approx(1.5 * one["joules_per_token"])
    assert row(rooflm, f"{STEP} --price 2 --power 500 --utilization 100%") == one
    assert row(rooflm, f"{STEP} --price 2 --power 500 --utilization 1") == one


@pytest.mark.parametrize("words", WORDS[2:])
def test_a_request_is_split_by_time_and_adds_up(rooflm: Terminal, words: str) -> None:
    """Input, cached input and output, each times its tokens, are the rent of the whole request."""
    found = row(rooflm, f"{words} --price 3")
    cached = found["reused_tokens"]
    parts = [
        (found["input_usd_per_mtok"], 2048 - cached),
        (found["cached_input_usd_per_mtok"], cached),
        (found["output_usd_per_mtok"], 63),
    ]
    whole = hourly(found, 3) * found["e2e_s"] / 4

    assert found["usd_per_request"] == pytest.approx(whole, rel=1e-12)
    assert sum(n * usd for usd, n in parts if n) / 1e6 == pytest.approx(whole, rel=1e-9)
    decode = hourly(found, 3) * found["itl_s"] / 4
    assert found["output_usd_per_mtok"] == pytest.approx(1e6 * decode, rel=1e-9)


def test_cached_input_pays_for_what_it_adds(rooflm: Terminal) -> None:
    """A prefill after a prefix, less one of its new tokens alone, over the reused tokens."""
    words = "llama-3-8b --on h100-sxm --batch 2 --phase prefill --price 3 --basis bound"
    found = row(rooflm, f"{words} --prompt 8192 --prefix 4096")
    alone = row(rooflm, f"{words} --prompt 4096")

    added = hourly(found, 3) * (found["ttft_s"] - alone["ttft_s"]) / (2 * 4096)
    assert found["cached_input_usd_per_mtok"] == pytest.approx(1e6 * added, rel=1e-9)
    assert found["input_usd_per_mtok"] == pytest.approx(alone["input_usd_per_mtok"], rel=1e-9)
    # Attending to a token is cheaper than computing it.
    assert 0 < found["cached_input_usd_per_mtok"] < found["input_usd_per_mtok"] / 5
    assert alone["cached_input_usd_per_mtok"] is None


def test_a_margin_is_charged_over_cost(rooflm: Terminal) -> None:
    """At the price of its own cost a request has a margin of 0, and at twice that of 1."""
    found = row(rooflm, f"{REQUEST} --price 3 --prefix 1024 --tariff 0,0,1")
    each = found["usd_per_request"] / 64 * 1e6

    even = row(rooflm, f"{REQUEST} --price 3 --prefix 1024 --tariff 0,0,{each!r}")
    assert even["margin"] == pytest.approx(0, abs=1e-9)
    both = row(rooflm, f"{REQUEST} --price 3 --prefix 1024 --tariff 0.1,0.2,{each!r}")
    assert both["margin"] == pytest.approx(1024 * 0.3e-6 / found["usd_per_request"], rel=1e-9)


def test_what_is_not_known_is_null_and_says_what_to_type(rooflm: Terminal) -> None:
    """A chip without a price, and one without a power, name the option."""
    unpriced = rooflm.json("sweep", "llama-3-8b", "--on", "mi355x", "--cost")
    (found,) = unpriced["rows"]
    assert found["output_usd_per_mtok"] is None
    assert found["joules_per_token"] > 0
    assert any("--price" in line for line in unpriced["assumptions"])

    still = rooflm.json("sweep", "llama-3-8b", "--on", "apple-m2-ultra", "--cost")
    assert only(still["rows"])["joules_per_token"] is None
    assert any("--power" in line for line in still["assumptions"])


def test_comparisons_and_every_phase_have_costs(rooflm: Terminal) -> None:
    """A row of compare has the costs of the same row of sweep; no phase is left out."""
    phases = [
        "", "--phase prefill --prompt 512", "--phase request --prompt 512 --output-tokens 8",
        "--phase served --prompt 512 --output-tokens 512 --batch 2",
    ]  # fmt: skip
    for phase in phases:
        words = f"llama-3-8b --on h100-sxm {phase} --price 2 --tariff 1,2,3".split()
        swept, compared = (only(rooflm.json(c, *words)["rows"]) for c in ("sweep", "compare"))
        keys = [k for k in swept if "usd" in k or k in ("joules_per_token", "margin")]

        assert {k: swept[k] for k in keys} == {k: compared[k] for k in keys}
        assert swept["joules_per_token"] > 0
        assert swept["margin"] > -1
    lacks = rooflm.json("compare", "llama-3-8b", "--on", "t4", "--weights", "bf16", "--price", "1")
    assert only(lacks["rows"])["reason"]
    assert only(lacks["rows"])["output_usd_per_mtok"] is None


def test_diffusion_pays_for_all_with_its_output(rooflm: Terminal) -> None:
    """Steps compute prompt and output together: a request's whole cost is its output's."""
    words = "llada-8b --on h100-sxm --phase request --prompt 128 --output-tokens 64 --price 2"
    found = row(rooflm, words)

    assert found["input_usd_per_mtok"] is None
    whole = found["output_usd_per_mtok"] * 64 / 1e6
    assert found["usd_per_request"] == pytest.approx(whole, rel=1e-12)
    assert row(rooflm, "llada-8b --on h100-sxm --context 128 --price 2")["output_usd_per_mtok"] > 0


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--pue 0.9", "--pue"),
        ("--utilization 0", "--utilization"),
        ("--utilization 120%", "--utilization"),
        ("--price free", "--price"),
        ("--power -3", "--power"),
        ("--tariff 1,2", "three prices"),
        ("--tariff 1,2,x", "--tariff"),
    ],
)
def test_what_is_mistyped_is_refused(rooflm: Terminal, option: str, told: str) -> None:
    """One sentence with the option in it."""
    ran = rooflm("sweep", *STEP.split(), *option.split())

    assert ran.code == Exit.USAGE
    assert told in ran.err


def test_tables_have_the_columns(rooflm: Terminal) -> None:
    """Columns are there where costs are asked for, and cached input where some is."""
    plain, paid = rooflm("sweep", *STEP.split()).out, rooflm("sweep", *STEP.split(), "--cost").out
    assert "USD/M" not in plain
    assert "output [USD/M]" in paid
    assert "energy [J/token]" in paid
    request = rooflm("sweep", *REQUEST.split(), "--tariff", "0.1,0.5,2").out
    assert "cached" not in request.partition("\n\n")[0]
    assert "margin" in request
    assert "output [USD/M]" in rooflm("compare", *STEP.split(), "--cost").out


def test_costs_of_rows_by_hand() -> None:
    """Two devices of 3.60 USD an hour, busy half of the time: 0.004 USD a second of work.

    Prices are 1, 2 and 4 USD a million tokens of cached input, input and output.
    """
    how = Economics("chip", 3.6, "", 100.0, pue=1.5, utilization=0.5, tariff=(1, 2, 4))
    case: Any = SimpleNamespace(model=SimpleNamespace(denoises=False))

    def found(row: dict[str, Any], work: Work | None, asked: Any = case) -> dict[str, Any]:
        return costs({"devices": 2, "tokens_per_s": 1000} | row, asked, work, how)

    # 1000 tokens/s: 4 USD a million, which is what is charged; 200 W and half as much again.
    assert found({}, None) == pytest.approx(
        {"output_usd_per_mtok": 4, "margin": 0, "joules_per_token": 0.3}
    )
    # 200 tokens of it a request; 96 cached, 204 fresh and 200 output tokens are charged.
    served = Work(300, 200, prefix=100, phase="served")
    assert found({}, served) == pytest.approx({
        "output_usd_per_mtok": 4, "usd_per_request": 8e-4, "joules_per_token": 0.3,
        "margin": (96e-6 + 408e-6 + 800e-6 - 8e-4) / 8e-4,
    })  # fmt: skip
    # A second for two prompts of 100 tokens; 100 further tokens of 10 ms each.
    row = {"batch": 2, "ttft_s": 1.0, "itl_s": 0.01, "time_s": 2.0}
    assert found(row, Work(100, 101)) == pytest.approx({
        "input_usd_per_mtok": 20, "cached_input_usd_per_mtok": None, "output_usd_per_mtok": 20,
        "usd_per_request": 0.004, "joules_per_token": 0.3,
        "margin": (200e-6 + 404e-6 - 0.004) / 0.004,
    })  # fmt: skip
    # The only token of a request came with its prefill.
    assert found(row, Work(100, 1))["output_usd_per_mtok"] is None
    # A prefill alone has no output; a diffusion model no input of its own, and 101 tokens.
    alone = found(row, Work(100, 101, phase="prefill"))
    assert "output_usd_per_mtok" not in alone
    assert alone["margin"] == pytest.approx((200e-6 - 0.004) / 0.004)
    both: Any = SimpleNamespace(model=SimpleNamespace(denoises=True))
    denoised = found(row, Work(100, 101), both)
    assert denoised["output_usd_per_mtok"] == pytest.approx(0.008 / 202 * 1e6)
    assert denoised["input_usd_per_mtok"] is None
    assert (Paid().pue, Paid().utilization) == (1, 1)


def test_what_is_not_known_of_a_row_is_null() -> None:
    """Without a rate there is no cost of a token, and without a price none at all."""
    how = Economics("chip", 3.6, "", None, tariff=(1, 2, 4))
    assert (how.pue, how.utilization) == (1, 1)
    case: Any = SimpleNamespace(model=SimpleNamespace(denoises=False))
    served = Work(300, 200, phase="served")
    row = {"batch": 2, "ttft_s": None, "itl_s": None, "time_s": None, "tokens_per_s": None}

    for work in (None, served, Work(100, 101)):
        assert set(costs(row, case, work, how).values()) == {None}
    known = row | {"tokens_per_s": 1000, "ttft_s": 1.0, "time_s": 2.0}
    unpriced = replace(how, price_usd_per_hour=None)
    for work in (None, served, Work(100, 101)):
        assert set(costs(known, case, work, unpriced).values()) == {None}
