"""Collectives and closed forms of layouts: worked cases, three readings, where forms meet."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy

from rooflm.calc.attention import Attention
from rooflm.calc.collectives import (
    all_to_all_bytes,
    all_to_all_time,
    best_one_shot_ranks,
    best_ring_ranks,
    decode_link_limit,
    distinct_destinations,
    expert_exchange_bytes,
    in_switch_time,
    one_shot_time,
    partial_output_bytes,
    pipeline_token_time,
    point_to_point_time,
    prefill_link_limit,
    query_gather_bytes,
    ragged_all_to_all_time,
    remote_copies,
    replica_throughput,
    ring_all_reduce_time,
    ring_gather_time,
    shared_heads,
    tensor_parallel_memory_time,
    two_shot_time,
    two_shot_turn,
)
from rooflm.calc.communication import Communication, Link
from rooflm.calc.experts import distinct_experts
from rooflm.calc.layout import Layout, Rank, shard
from rooflm.calc.model import cache_elements, total_parameters
from rooflm.calc.passes import decode
from rooflm.calc.presets import find_model
from rooflm.calc.timing import bandwidth_time, compute_time

from .golden import table
from .helpers import messages

Inputs = dict[str, Any]
CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in table("cases_layout")["cases"]}
WIDTHS = [1, 2, 4, 8, 16, 32, 64]


def only(name: str, **axes: int) -> Rank:
    """Shard a preset into ranks that are all alike."""
    (rank,) = shard(find_model(name), Layout(**axes))
    return rank


def mla_tp_replication(i: Inputs) -> Inputs:
    """Keep a token in one layer of each rank, and of each rank with sequences of its own."""
    tp, dp = only(i["model"], tp=i["tp"]), only(i["model"], dp=i["tp"])
    layers, sequences = tp.model.layers, i["tp"]
    share = dp.layout.resident(sequences) / sequences
    return {
        "per_rank_tp8": 2 * tp.cache_elements(1) / layers,
        "per_rank_dp_attention": 2 * dp.cache_elements(1) * share / layers,
    }


def all_reduce_forms(i: Inputs) -> Inputs:
    """Compare the forms of an all-reduce."""
    forms = {"ring": ring_all_reduce_time, "one_shot": one_shot_time, "two_shot": two_shot_time,
             "in_switch": in_switch_time}  # fmt: skip
    turn = two_shot_turn(i["ranks"], i["link"], i["latency"])
    return {name: time(**i) for name, time in forms.items()} | {"one_two_crossover": turn}


def tp_sweep(i: Inputs) -> Inputs:
    """Decode on 1 to 64 ranks."""
    model, B = find_model(i["model"]), i["B"]
    weights, cache = 2 * total_parameters(model), 2 * B * cache_elements(model, i["S"])
    link = Link(i["link"], i["latency"], i["all_reduce"])
    seconds: dict[int, float] = {}
    for ranks in WIDTHS:
        step = Communication("", 2 * model.layers, "all-reduce", 2 * B * model.D, ranks, link)
        seconds[ranks] = tensor_parallel_memory_time(weights, cache, ranks, 8, i["bandwidth"])
        seconds[ranks] += step.count * step.seconds
    best = min(WIDTHS, key=lambda ranks: seconds[ranks])
    return {f"Y{ranks}": s for ranks, s in seconds.items()} | {"best_Y": best}


def one_device(i: Inputs) -> float:
    """Step time of one device."""
    return (i["weights"] + i["cache"]) / i["bandwidth"]


def scaling_book_times(i: Inputs) -> Inputs:
    """Compare links, memory and compute of an MLP matrix."""
    B, D, F, Y = i["B"], i["D"], i["F"], i["Y"]
    return {
        "t_ici": point_to_point_time(2 * B * D, i["link"]),
        "t_hbm": bandwidth_time(2 * D * F / Y, i["bandwidth"]),
        "t_math": compute_time(2 * B * D * F / Y, i["flops"]),
    }


def kv_shards(i: Inputs) -> Inputs:
    """Count key/value heads by the formula, and as the ranks hold them."""
    K: dict[str, int] = {}
    for tp in (4, 8, 16):
        mixer = only(i["model"], tp=tp).model.groups[0].mixer
        assert isinstance(mixer, Attention)
        assert shared_heads(i["K"], tp) == mixer.K
        K[f"tp{tp}"] = mixer.K
    return K | {"tp16_total_copies": 16 * K["tp16"] / i["K"]}


def parameters_per_device(i: Inputs) -> Inputs:
    """Count a layer of a rank."""
    model = only(i["model"], tp=i["tp"]).model
    (group,) = model.groups
    parts = [*group.mixer.parameters(model.D).values(), *group.ffn.parameters(model.D).values()]
    return {"per_layer": sum(parts)}


def pipeline(i: Inputs) -> Inputs:
    """Compare a pipeline and tensor parallelism."""
    stages, B = i["stages"], i["B"]
    step = i["weights"], i["cache"]
    pp = pipeline_token_time(*step, stages, i["bandwidth"])
    tp = tensor_parallel_memory_time(*step, stages, 8, i["bandwidth"])
    sent = messages(find_model(i["model"]), Layout(pp=stages), decode(B, 4096), Link(50e9))
    (hop,) = sent
    return {"pp_tpot": pp, "pp_throughput": B / pp, "tp_tpot": tp, "tp_throughput": B / tp,
            "hop_bytes": hop.bytes}  # fmt: skip


def replicas(i: Inputs) -> Inputs:
    """Split a batch over copies of the lecture's model."""
    model, layout = find_model(i["model"], {"K": str(i["K"])}), Layout(i["replicas"])
    sequences = layout.resident(i["B"])
    cache = sequences * cache_elements(model, i["S"])
    seconds = 2 * (total_parameters(model, norms=False) + cache) / i["bandwidth"]
    return {
        "latency": seconds,
        "throughput": replica_throughput(sequences / seconds, layout.replicas),
    }


def insights(i: Inputs) -> Inputs:
    """Bound a token by what its experts exchange."""
    size = expert_exchange_bytes(i["tokens"], i["copies"], i["D"], i["dispatch"], i["combine"])
    step = point_to_point_time(size, i["link"])
    near = point_to_point_time(size, i["link_nvl72"])
    return {"t_step": step, "tpot": 2 * i["L"] * step, "rate": 1 / (2 * i["L"] * step),
            "t_step_nvl72": near, "tpot_nvl72": 2 * i["L"] * near}  # fmt: skip


def ep_bytes(i: Inputs) -> Inputs:
    """Send rows once to each expert, or once to each rank."""
    k, ranks = i["k"], i["ranks"]
    exact = distinct_destinations(ranks, i["E"], k)

    def sent(copies: float) -> float:
        remote = remote_copies(copies, ranks)
        return expert_exchange_bytes(i["tokens"], remote, i["D"], i["dispatch"], i["combine"])

    return {
        "no_dedup": sent(k),
        "expected_distinct_dest_independent": distinct_experts(k, ranks, 1),
        "expected_distinct_dest_exact": exact,
        "dedup": sent(exact),
    }


def context_parallel(i: Inputs) -> Inputs:
    """Deal tokens out to ranks."""
    B, N, H = i["B"], i["N"], i["H"]
    cache = 2 * B * cache_elements(find_model(i["model"]), i["S"])
    return {
        "kv_per_rank": cache / i["ranks"],
        "q_gather_bytes": query_gather_bytes(B, N, H),
        "out_lse_bytes_per_rank": partial_output_bytes(B, N, H),
    }


def batch_shard(i: Inputs) -> Inputs:
    """Turn queries split by heads into queries split by sequences."""
    size = query_gather_bytes(i["B"], i["N"], i["H"])
    return {"bytes": size, "per_device_bytes": all_to_all_bytes(size, i["ranks"])}


COMPUTED: dict[str, Callable[[Inputs], Inputs]] = {
    "t06_mla_tp_replication": mla_tp_replication,
    "t18_allreduce_forms": all_reduce_forms,
    "t18_tp_sweep_ring": tp_sweep,
    "t18_tp_sweep_two": tp_sweep,
    "t18_tp_sweep_one": tp_sweep,
    "t18_tp_optimum_ring": lambda i: {
        "Y_star": best_ring_ranks(one_device(i), i["L"], i["size"], i["link"], i["latency"])
    },
    "t18_tp_optimum_oneshot": lambda i: {
        "Y_star": best_one_shot_ranks(one_device(i), i["L"], i["size"], i["link"])
    },
    "t18_scaling_book_generation_limit": lambda i: {
        "Y": decode_link_limit(i["F"], i["B"], i["ratio"]),
        "llama70b_b64": decode_link_limit(i["llama70b_F"], i["llama70b_B"], i["ratio"]),
    },
    "t18_scaling_book_times": scaling_book_times,
    "t18_compute_tp_limit": lambda i: {
        "Y_h100": prefill_link_limit(i["F"], i["link"], i["flops"]),
        "Y_tpu_1axis": prefill_link_limit(i["F"], 1, i["tpu_flops_per_byte"]),
    },
    "t18_kv_shards": kv_shards,
    "t18_vidur_param_per_device": parameters_per_device,
    "t18_pipeline_decode": pipeline,
    "t18_replicas": replicas,
    "t18_ep_dsv3_insights": insights,
    "t18_ep_bytes": ep_bytes,
    "t18_alltoall_gpu": lambda i: {
        "t": all_to_all_time(i["size"], i["ranks"], i["link"]),
        "ragged_k4": ragged_all_to_all_time(**i),
    },
    "t18_context_parallel": context_parallel,
    "t18_batch_shard_alltoall": batch_shard,
}


@pytest.mark.parametrize("case", CASES)
def test_worked_case(case: str) -> None:
    """Every expected value is computed, whole numbers exactly and others to 1e-9."""
    expected: Inputs = CASES[case]["expected"]
    found = COMPUTED[case](CASES[case]["inputs"])

    assert found.keys() == expected.keys()
    for key, value in expected.items():
        exact = isinstance(value, int)
        assert found[key] == (value if exact else pytest.approx(value, rel=1e-9)), key


FORMS = [ring_gather_time, ring_all_reduce_time, one_shot_time, two_shot_time, in_switch_time,
         all_to_all_time]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_one_rank_sends_nothing(form: Callable[..., Any]) -> None:
    """A collective of one rank takes no time, latency included."""
    assert form(2**20, 1, 450e9, 2e-6) == 0


@pytest.mark.parametrize("form", FORMS)
def test_three_readings_agree(form: Callable[..., Any]) -> None:
    """Numbers, arrays and symbols give the same seconds."""
    size, ranks, link, latency = sympy.symbols("M n W a", positive=True)
    number = form(2**20, 8, 450e9, 2e-6)
    array = form(np.array([[2**20]]), np.array([[2, 8]]), 450e9, 2e-6)
    symbol = form(size, ranks, link, latency)
    values = {size: 2**20, ranks: 8, link: 450e9, latency: 2e-6}

    assert array[0, 1] == pytest.approx(number, rel=1e-12)
    assert float(symbol.subs(values)) == pytest.approx(number, rel=1e-12)


@pytest.mark.parametrize("ranks", [3, 4, 8, 64])
def test_two_shots_win_above_the_turn(ranks: int) -> None:
    """At the turning size both forms of an all-reduce take as long; beyond it two are faster."""
    turn = two_shot_turn(ranks, 450e9, 2e-6)
    fabric = (ranks, 450e9, 2e-6)

    assert one_shot_time(turn, *fabric) == pytest.approx(two_shot_time(turn, *fabric), rel=1e-12)
    assert two_shot_time(1.01 * turn, *fabric) < one_shot_time(1.01 * turn, *fabric)
    assert two_shot_time(0.99 * turn, *fabric) > one_shot_time(0.99 * turn, *fabric)


def test_the_best_width_is_a_minimum() -> None:
    """A little more or less than the closed forms' ranks is slower, for rings and for one shot."""
    L, size, link, latency, step = 80, 262144, 450e9, 2e-6, 0.0485

    def seconds(form: Callable[..., float], ranks: float) -> float:
        return step / ranks + 2 * L * form(size, ranks, link, latency)

    ring = best_ring_ranks(step, L, size, link, latency)
    one = best_one_shot_ranks(step, L, size, link)
    for form, best in ((ring_all_reduce_time, ring), (one_shot_time, one)):
        assert seconds(form, best) < min(seconds(form, 0.9 * best), seconds(form, 1.1 * best))
    assert best_ring_ranks(1e-6, L, size, link, latency) == 0


def destinations(ranks: int, E: int, k: int) -> float:
    """Enumerate all choices of k experts and count the ranks that each meets."""
    choices = list(itertools.combinations(range(E), k))
    return sum(len({e // (E // ranks) for e in c}) for c in choices) / len(choices)


@pytest.mark.parametrize(
    ("ranks", "E", "k"), [(2, 4, 2), (4, 8, 3), (3, 9, 8), (6, 6, 2), (1, 5, 5)]
)
def test_destinations_equal_enumeration(ranks: int, E: int, k: int) -> None:
    """The expected number of ranks equals the mean over all choices of experts, in all readings."""
    expected = destinations(ranks, E, k)
    symbols = sympy.symbols("n E k", positive=True, integer=True)
    symbol = distinct_destinations(*symbols).subs(dict(zip(symbols, (ranks, E, k), strict=True)))
    arrays = distinct_destinations(np.array([ranks, 1]), np.array([E, 5]), np.array([k, 1]))

    assert distinct_destinations(ranks, E, k) == pytest.approx(expected, rel=1e-12)
    assert float(symbol) == pytest.approx(expected, rel=1e-12)
    assert arrays == pytest.approx([expected, 1], rel=1e-12)


def test_links_add_up_what_a_pass_sends() -> None:
    """The seconds of a record are those of its kind's formula, an all-reduce's by the link."""
    link = Link(450e9, 2e-6, "in-switch")
    kinds = {
        "all-reduce": in_switch_time, "all-gather": ring_gather_time,
        "reduce-scatter": ring_gather_time, "all-to-all": all_to_all_time,
    }  # fmt: skip
    for kind, form in kinds.items():
        sent = Communication("", 3, kind, 2**20, 8, link)  # pyright: ignore[reportArgumentType]
        assert sent.seconds == form(2**20, 8, 450e9, 2e-6)
    assert math.isclose(
        Communication("", 1, "point-to-point", 2**20, 2, link).seconds, 2e-6 + 2**20 / 450e9
    )
