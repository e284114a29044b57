"""Closed forms of queues, paging and steady serving: worked cases, readings, and simulations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

from rooflm.calc import paging, queueing
from rooflm.calc.attention import Attention, attention_flops, kv_cache_bytes
from rooflm.calc.handoff import prefills_per_decode
from rooflm.calc.model import Model, total_parameters
from rooflm.calc.presets import find_model
from rooflm.calc.readings import FORMULAS

from .golden import table

CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in table("cases_serving")["cases"]}
Inputs = dict[str, Any]


def attention_of(model: Model) -> tuple[int, int]:
    """Cache bytes of a token and FLOPs of a query-key pair, in all layers."""
    (group,) = model.groups
    assert isinstance(group.mixer, Attention)
    N, K, H = group.mixer.N, group.mixer.K, group.mixer.H
    return kv_cache_bytes(1, K, H, group.count), group.count * attention_flops(1, N, H)


def slots(i: Inputs) -> dict[str, Any]:
    """Slots of a cache, and the sequences that reserve the longest."""
    token, longest = kv_cache_bytes(1, i["K"], i["H"], i["L"], i["b"]), i["max_len"]
    held = paging.pool_blocks(i["kv_budget_bytes"], token, 1)
    most = paging.pool_blocks(i["kv_budget_bytes"], token, longest)
    assert most == paging.pool_sequences(held, longest, 1)
    return {
        "per_token": token,
        "slots": held,
        "orca_max_batch": most,
        "leftover": paging.unreserved_share(held, longest),
    }


def waste(i: Inputs) -> dict[str, Any]:
    """Tokens of the last block that hold nothing."""
    mean = paging.mean_unfilled_tokens(i["block"])
    return {
        "mean_waste_uniform": mean,
        "waste_at_len_17": paging.unfilled_tokens(17, i["block"]),
        "waste_at_len_16": paging.unfilled_tokens(16, i["block"]),
        "fraction_at_mean_499": mean / (mean + i["prompt"] + i["gen"]),
    }


def blocks(i: Inputs) -> dict[str, Any]:
    """Blocks of a pool, of a sequence, and their table."""
    token, _ = attention_of(find_model(i["model"]))
    count = paging.pool_blocks(i["kv_budget"], token, i["block"])
    own = paging.sequence_blocks(i["S"], i["block"])
    return {
        "block_bytes_all_layers": i["block"] * token,
        "blocks_per_seq": own,
        "num_blocks": count,
        "max_seqs": paging.pool_sequences(count, i["S"], i["block"]),
        "naive_max_seqs": paging.pool_blocks(i["kv_budget"], token, i["S"]),
        "block_table_bytes_int32": 4 * i["seqs"] * own,
    }


def samples(i: Inputs) -> dict[str, Any]:
    """Samples of one prompt."""
    n, P, steps, block = i["n"], i["prompt"], i["gen"], i["block"]
    apart = n * paging.sequence_blocks(P + steps, block)
    shared = paging.sampled_blocks(n, P, steps, block)
    return {
        "blocks_unshared": apart,
        "blocks_shared": shared,
        "saving": 1 - shared / apart,
        "cow_copies": paging.sample_copies(n, P, block),
    }


def reservation(i: Inputs) -> dict[str, Any]:
    """Use of a reservation."""
    each = i["prompt"], i["gen"], i["max_len"]
    return {
        "final": paging.final_reserved_use(*each),
        "time_average": paging.mean_reserved_use(*each),
    }


def selective(i: Inputs) -> dict[str, Any]:
    """Rows and pairs of ragged prompts."""
    lengths = i["lengths"]
    return {
        "rows_packed": queueing.packed_rows(lengths),
        "rows_padded": queueing.rows_to_longest(lengths),
        "attn_pairs_causal": queueing.packed_pairs(lengths),
        "attn_pairs_if_mixed": queueing.mixed_pairs(lengths),
    }


def equal_prompts(i: Inputs) -> dict[str, Any]:
    """One queue of equal prompts."""
    return {
        "rho": queueing.busy_share(i["R"], i["D"]),
        "wait": queueing.mean_wait_equal(i["R"], i["D"]),
        "ttft": queueing.queued_ttft(i["R"], i["D"]),
    }


def two_machines(i: Inputs) -> dict[str, Any]:
    """Two machines in a row, or side by side in every layer."""
    return {
        "single": queueing.queued_ttft(i["R"], i["D"]),
        "inter": queueing.pipelined_ttft(i["R"], i["D"]),
        "intra": queueing.sharded_ttft(i["R"], i["D"], i["K"]),
    }


def unlike_prompts(i: Inputs) -> dict[str, Any]:
    """One queue of two kinds of prompts."""
    mean = queueing.mean_power(i["D"], i["prob"])
    second = queueing.mean_power(i["D"], i["prob"], 2)
    return {
        "mean": mean,
        "rho": queueing.busy_share(i["R"], mean),
        "EX2": second,
        "wait": queueing.mean_wait(i["R"], mean, second),
        "wait_if_deterministic": queueing.mean_wait_equal(i["R"], mean),
    }


def fixed_point(i: Inputs) -> dict[str, Any]:
    """The batch that a rate keeps up."""
    model = find_model(i["model"])
    assert i["weights"] == 2 * total_parameters(model)
    S = queueing.mean_context(i["prompt"], i["gen"])
    rest = i["weights"], i["kv_per_token"], i["bw"]
    return {
        "mean_context": S,
        "B": queueing.served_batch(i["rate"], i["gen"], S, *rest),
        "tpot": queueing.served_step_time(i["rate"], i["gen"], S, *rest),
        "rate_max": queueing.greatest_rate(i["gen"], S, *rest[1:]),
    }


def turnover(i: Inputs) -> dict[str, Any]:
    """Sequences that end in a step."""
    return {
        "finish_per_step": queueing.ending_per_step(i["B"], i["gen"]),
        "tokens_freed_per_step": queueing.freed_per_step(i["B"], i["prompt"], i["gen"]),
    }


def machines(i: Inputs) -> dict[str, Any]:
    """Machines that compute prompts for one that decodes."""
    return {"ratio": prefills_per_decode(i["t_prefill"], i["t_step"] * i["gen"], i["B"])}


def interference(i: Inputs) -> dict[str, Any]:
    """A step with a chunk and without."""
    model = find_model(i["model"])
    parameters, (token, pair) = total_parameters(model), attention_of(model)
    rest = parameters, 2 * parameters, token, pair, i["flops"], i["bw"]
    alone = queueing.mixed_step_time(i["B_decode"], i["S"], 0, 0, *rest)
    both = queueing.mixed_step_time(i["B_decode"], i["S"], i["prefix"], i["chunk"], *rest)
    return {"t_decode_only": alone, "t_hybrid": both, "inflation": both / alone}


def limits(i: Inputs) -> dict[str, Any]:
    """Requests that keep their limits."""
    rate = len(i["ttft"]) / i["duration"]
    share = queueing.attainment(i["ttft"], i["tpot"], i["slo_ttft"], i["slo_tpot"])
    return {"throughput": rate, "attainment": share, "goodput": queueing.goodput(rate, share)}


COMPUTE: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "t15_opt13b": slots,
    "t15_internal": waste,
    "t15_block": blocks,
    "t15_parallel": samples,
    "t15_contiguous": reservation,
    "t16_selective": selective,
    "t16_md1_parallel": two_machines,
    "t16_md1": equal_prompts,
    "t16_pollaczek": unlike_prompts,
    "t16_little": fixed_point,
    "t16_steady": turnover,
    "t16_pd": machines,
    "t16_chunk": interference,
    "t16_goodput": limits,
}


@pytest.mark.parametrize("name", CASES)
def test_every_expected_value_of_a_worked_case_is_reproduced(name: str) -> None:
    """All values of a case, within 1e-9, and what a source says, within its own rounding."""
    case = CASES[name]
    compute = next(f for prefix, f in COMPUTE.items() if name.startswith(prefix))

    found = compute(case["inputs"])

    assert found == pytest.approx(case["expected"], rel=1e-9)
    for key, (claimed, tolerance) in case.get("published", {}).items():
        assert found[key] == pytest.approx(claimed, rel=tolerance)


VALUES: dict[str, float] = {
    "rate": 3.0, "service": 0.11, "second_moment": 0.04, "stages": 2, "speedup": 1.7,
    "B": 7, "P": 101, "steps": 61, "S": 130, "n": 4096, "T": 300, "block": 16, "blocks": 1000,
    "budget": 7e9, "longest": 2048, "slots": 15728, "weights": 16e9, "parameters": 8e9,
    "token_bytes": 131072, "pair_flops": 524288, "bytes_per_s": 3.35e12, "flops_per_s": 989e12,
    "attained": 0.9,
}  # fmt: skip
SEQUENCES = ("lengths", "times", "ttft")
PLAIN = [
    name
    for name, formula in FORMULAS.items()
    if formula.__module__ in (paging.__name__, queueing.__name__)
    and not set(SEQUENCES) & set(inspect.signature(formula).parameters)
]


@pytest.mark.parametrize("name", PLAIN)
def test_numbers_arrays_and_symbols_agree(name: str) -> None:
    """Each formula gives the same in its three readings."""
    formula = FORMULAS[name]
    names = list(inspect.signature(formula).parameters)
    numbers = [VALUES[n] for n in names]
    letters = [sympy.Symbol(n, positive=True) for n in names]

    number = formula(*numbers)

    array = formula(*(np.array([v, v]) for v in numbers))
    assert array == pytest.approx(np.array([number, number]), rel=1e-12)
    symbol = formula(*letters).subs(dict(zip(letters, map(sympy.Rational, numbers), strict=True)))
    assert float(symbol) == pytest.approx(number, rel=1e-12)


def test_formulas_of_several_requests_have_all_readings() -> None:
    """Lengths and times may be lists of numbers, arrays, and lists of symbols."""
    a, b, c = (sympy.Symbol(n, positive=True) for n in "abc")
    values = {a: 3, b: 9, c: 5}
    for formula in (
        queueing.packed_rows, queueing.rows_to_longest, queueing.packed_pairs, queueing.mixed_pairs
    ):  # fmt: skip
        number = formula([3, 9, 5])
        assert formula(np.array([3, 9, 5])) == number
        assert formula([a, b, c]).subs(values) == number
    shares = [0.5, 0.25, 0.25]
    second = queueing.mean_power([3, 9, 5], shares, 2)
    assert queueing.mean_power(np.array([3, 9, 5]), np.array(shares), 2) == second == 31
    assert queueing.mean_power([a, b, c], shares, 2).subs(values) == second
    kept = queueing.attainment(np.array([0.2, 0.6]), np.array([0.01, 0.01]), 0.5, 0.05)
    assert kept == 0.5


def test_parallel_prefills_are_the_published_expressions() -> None:
    """Both forms of DistServe (arXiv 2401.09670, section 3.1), as they are printed there."""
    R, D, K = (sympy.Symbol(n, positive=True) for n in "RDK")

    inter = D + R * D**2 / (4 * (2 - R * D))
    intra = D / K + R * D**2 / (2 * K * (K - R * D))
    assert sympy.simplify(queueing.pipelined_ttft(R, D) - inter) == 0
    assert sympy.simplify(queueing.sharded_ttft(R, D, K) - intra) == 0


def test_the_batch_solves_its_equation() -> None:
    """B = R n t with t = (W + B S k)/beta, linear in B; none solves it at the greatest rate."""
    rate, steps, S, W, k, beta = sympy.symbols("R n S W k beta", positive=True)

    B = queueing.served_batch(rate, steps, S, W, k, beta)
    step = queueing.served_step_time(rate, steps, S, W, k, beta)
    assert sympy.simplify(B - rate * steps * step) == 0
    assert sympy.simplify(step - (W + B * S * k) / beta) == 0
    greatest = queueing.greatest_rate(steps, S, k, beta)
    assert sympy.simplify((1 / B).subs(rate, greatest)) == 0


@pytest.mark.parametrize("steps", [1, 2, 255])
def test_the_mean_context_is_that_of_all_steps(steps: int) -> None:
    """Contexts are P + 1, P + 2, ... P + steps."""
    contexts = range(1025, 1025 + steps)

    assert queueing.mean_context(1024, steps) == sum(contexts) / steps


def test_as_many_tokens_come_as_are_freed() -> None:
    """A step adds one token for each sequence, and a prompt for each that begins."""
    begun = queueing.ending_per_step(32, 4096)

    assert queueing.freed_per_step(32, 8192, 4096) == 32 + begun * 8192


CUSTOMERS = 400_000


def waits(gaps: Any, times: Any) -> Any:
    """Find the wait of each request by Lindley's recursion, as a running minimum.

    w[i + 1] = max(0, w[i] + t[i] - gap[i]): D. V. Lindley, doi:10.1017/S0305004100027638.
    """
    walk = np.concatenate(([0.0], np.cumsum(times[:-1] - gaps[1:])))
    return walk - np.minimum.accumulate(walk)


def interval(values: Any) -> tuple[float, float]:
    """Take the mean, and five standard errors of it from means of 100 batches."""
    means = values[CUSTOMERS // 20 :].reshape(100, -1).mean(axis=1)
    return float(means.mean()), 5 * float(means.std(ddof=1)) / 10


@pytest.mark.parametrize("busy", [0.3, 0.6, 0.8])
@pytest.mark.parametrize("kind", ["equal", "exponential", "two"])
def test_waits_are_those_of_a_simulated_queue(kind: str, busy: float) -> None:
    """Poisson arrivals and three kinds of times: the formula is within five standard errors."""
    chance = np.random.default_rng(20)
    rate = busy / 0.1
    gaps = chance.exponential(1 / rate, CUSTOMERS)
    if kind == "equal":
        times = np.full(CUSTOMERS, 0.1)
        closed = queueing.mean_wait_equal(rate, 0.1)
    elif kind == "exponential":
        times = chance.exponential(0.1, CUSTOMERS)
        closed = queueing.mean_wait_exponential(rate, 0.1)
    else:
        sizes, shares = [0.05, 0.25], [0.75, 0.25]
        times = chance.choice(sizes, CUSTOMERS, p=shares)
        closed = queueing.mean_wait(rate, 0.1, queueing.mean_power(sizes, shares, 2))

    mean, error = interval(waits(gaps, times))

    assert error < 0.15 * closed
    assert mean == pytest.approx(closed, abs=error)


def test_a_pipeline_is_two_simulated_queues_in_a_row() -> None:
    """What leaves the first of two equal stages never waits for the second."""
    chance = np.random.default_rng(21)
    gaps = chance.exponential(1 / 8, CUSTOMERS)
    half = np.full(CUSTOMERS, 0.05)
    arrivals = np.cumsum(gaps)
    left = arrivals + waits(gaps, half) + half
    # A hair shorter than a stage, as departures a stage apart are rounded.
    second = waits(np.diff(left, prepend=0.0), half - 1e-9)
    assert second.max() < 1e-6

    mean, error = interval(left + second + half - arrivals)
    assert mean == pytest.approx(queueing.pipelined_ttft(8, 0.1), abs=error)


def test_a_step_beside_a_chunk_by_hand() -> None:
    """Where traffic limits: 5 s of weights, 10 s of caches that decode, 4 s of a chunk's 8 tokens.

    Where arithmetic does: 40 s of products and 15 s of pairs.
    """
    assert queueing.mixed_step_time(2, 10, 6, 2, 5, 40, 4, 1, 100, 8) == 5 + 10 + 4
    assert queueing.mixed_step_time(2, 10, 6, 2, 500, 40, 4, 100, 100, 8) == 40 + 10 + 15


def test_a_limit_that_is_met_exactly_is_kept() -> None:
    """Both limits are the longest times that are still promised."""
    assert queueing.attainment([0.5, 0.5, 0.6], [0.05, 0.06, 0.05], 0.5, 0.05) == pytest.approx(
        1 / 3
    )
