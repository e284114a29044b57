"""Worked cases of the theory: every expected value of tests/golden/cases.yaml is computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rooflm.calc import attention as att
from rooflm.calc import matmul, mlp
from rooflm.calc.attention import Attention
from rooflm.calc.case import Case
from rooflm.calc.memory import largest
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model, ledger, parameters, total_parameters
from rooflm.calc.passes import decode
from rooflm.calc.sweep import step_row
from rooflm.calc.timing import bandwidth_time, throughput

from .golden import table
from .helpers import h100

CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in table("cases")["cases"]}
MODELS: dict[str, dict[str, Any]] = table("cases")["models"]
Inputs = dict[str, Any]


def model_of(i: Inputs) -> Model:
    """Make a model of a case's dimensions."""
    bias = i.get("mlp_bias", False)
    mixer = Attention(
        N=i["N"],
        K=i["K"],
        H=i["H"],
        qkv_bias=i.get("qkv_bias", False),
        out_bias=i.get("o_bias", False),
        qk_norm="head" if i.get("qk_norm") else "none",
    )
    norm = {"ln": "layer", "none": "none"}.get(i.get("norm", ""), "rms")
    return Model(
        name="case",
        D=i["D"],
        V=i["V"],
        groups=(Group(i["L"], mixer, MLP(i["F"], i.get("gated", True), bias)),),
        norm=norm,  # pyright: ignore[reportArgumentType]
        tied=i.get("tied", False),
        positions=i.get("pos", 0),
    )


def one_matmul(i: Inputs) -> dict[str, Any]:
    """Intensity of one product."""
    flops = matmul.matmul_flops(i["B"], i["D"], i["F"])
    moved = matmul.matmul_bytes(i["B"], i["D"], i["F"])
    exact = matmul.intensity(flops, moved)
    return {
        "flops": flops,
        "bytes": moved,
        "intensity": exact,
        "approx_intensity": i["B"],
        "approx_over_exact": i["B"] / exact,
    }


def saturation(i: Inputs) -> dict[str, Any]:
    """Ridge, ceiling and saturating rows of one product."""
    found: dict[str, Any] = {}
    b_w = i.get("bytes_w", 2)
    if "flops" in i:
        ridge = matmul.ridge(i["flops"], i["bw"])
        found = {"ridge": ridge, "B_crit_approx": matmul.saturating_rows_shortcut(ridge, b_w)}
    if "D" in i:
        found["I_max"] = matmul.matmul_intensity_limit(i["D"], i["F"])
        found["reachable"] = False
    if "D" in i and "flops" in i:
        b_x, b_y = i.get("bytes_x", 2), i.get("bytes_y", 2)
        rows = matmul.matmul_saturating_rows(i["D"], i["F"], found["ridge"], b_x, b_w, b_y)
        tokens = mlp.mlp_saturating_tokens(i["D"], i["F"], found["ridge"])
        found |= {"B_crit": rows, "reachable": math.isfinite(rows), "tokens": tokens}
        if math.isfinite(rows):
            found |= {"B_crit_ceil": math.ceil(rows), "tokens_ceil": math.ceil(tokens)}
    return found


def one_mlp(i: Inputs) -> dict[str, Any]:
    """Intensity of a gated MLP."""
    rows = i["B"] * i["T"]
    flops = mlp.mlp_flops(rows, i["D"], i["F"])
    moved = (mlp.mlp_bytes if "gated" in i else mlp.mlp_bytes_unfused)(rows, i["D"], i["F"])
    return {
        "flops": flops, "bytes": moved, "intensity": matmul.intensity(flops, moved), "approx": rows
    }  # fmt: skip


def one_attention(i: Inputs) -> dict[str, Any]:
    """Intensity of attention."""
    B, S, T, N, K, H = i.get("B", 1), i["S"], i["T"], i["N"], i["K"], i["H"]
    pairs = att.full_pairs(S - T, T) if "causal" in i else att.causal_pairs(S - T, T)
    flops = att.attention_flops(B * pairs, N, H)
    b_kv = i.get("b_kv", 2)
    moved = att.attention_bytes(B, S, T, N, K, H, i.get("b_q", 2), b_kv)
    return {
        "flops": flops,
        "bytes": moved,
        "intensity": matmul.intensity(flops, moved),
        "limit": att.attention_intensity_limit(T, N, K, b_kv),
        "decode_limit": att.attention_intensity_limit(1, N, K, b_kv),
        "G": N // K,
    }


def equal_flops(i: Inputs) -> dict[str, Any]:
    """Context where attention costs as much as the matmuls, with and without the causal half."""
    return {
        "T_noncausal": mlp.fractional_attention_tokens(i["D"]),
        "T_causal": mlp.fractional_attention_tokens(i["D"], causal=True),
    }


def one_model(i: Inputs) -> dict[str, Any]:
    """Parameters of a model by part."""
    model = model_of(i)
    parts = parameters(model)
    group = model.groups[0]
    per_layer = group.mixer.parameters(model.D)
    with_norms = total_parameters(model)
    return {
        "total": with_norms,
        "attn_per_layer": sum(per_layer.values()),
        "mlp_per_layer": group.ffn.parameters(model.D)["mlp"],
        "embeddings": parts["embedding"] + parts["head"] + parts.get("positions", 0),
        "missing_norms": parts["norms"],
        "kv_bytes_per_token_int8": att.kv_cache_bytes(1, i["K"], i["H"], i["L"], b=1),
    }


def lecture_parameters(i: Inputs) -> dict[str, Any]:
    """Parameters as the lecture counts them."""
    return one_model(i) | {"total": total_parameters(model_of(i), norms=False)}


def embedding_read(i: Inputs) -> dict[str, Any]:
    """Weight bytes that a decode step streams, against those stored."""
    model = model_of(MODELS[i["model"]])
    stored = i["bytes"] * total_parameters(model)
    read = sum(op.count * op.weight_bytes for op in ledger(model, decode(i["B"], 1)))
    return {"stored": stored, "read": read, "overcount": stored / read - 1}


def lecture_step(i: Inputs) -> dict[str, Any]:
    """Reproduce a row of the lecture's table."""
    case = Case(model_of(i), h100(), accounting="lecture", time_model="bandwidth")
    row = step_row(case, decode(i["B"], i["S"]), i["B"], i["S"])
    return {
        "params": total_parameters(case.model, norms=False),
        "weights": row["weights_bytes"],
        "kv_per_seq": row["kv_cache_bytes"] // i["B"],
        "memory": row["memory_bytes"],
        "latency": row["time_s"],
        "throughput": row["tokens_per_s"],
        "fits_80e9": row["fits"],
    }


def per_token(i: Inputs) -> dict[str, Any]:
    """Cache of a token."""
    return {"bytes": att.kv_cache_bytes(1, i["K"], i["H"], i["L"], i["b"])}


def problem_10_2(i: Inputs) -> dict[str, Any]:
    """How many sequences fit beside 16 GB of weights."""
    each = att.kv_cache_bytes(i["S"], i["K"], i["H"], i["L"])
    return {
        "kv_per_seq": each,
        "max_seqs": largest(lambda B: i["P_bytes"] + B * each <= i["hbm"]),
        "B_cache_equals_weights": i["P_bytes"] / each,
    }


def problem_10_3(i: Inputs) -> dict[str, Any]:
    """Latency and throughput beside 16 GB of weights."""
    seconds = bandwidth_time(i["W"] + i["B"] * i["C"], i["bw"])
    return {"latency": seconds, "throughput": throughput(i["B"], seconds)}


def fewer_heads(i: Inputs) -> dict[str, Any]:
    """What fewer key/value heads save."""
    D, H, L = i["D"], i["H"], i["L"]
    weights = [att.attention_parameters(D, 40, K, H) * L for K in (i["K_from"], i["K_to"])]
    caches = [att.kv_cache_bytes(1, K, H, L) for K in (i["K_from"], i["K_to"])]
    return {"params_saved": weights[0] - weights[1], "kv_factor": caches[0] // caches[1]}


def causal(i: Inputs) -> dict[str, Any]:
    """Pairs of a causal prefill, exact, by tiles, and after a prefix."""
    T, p = i["T"], i.get("p", 0)
    pairs, full = att.causal_pairs(p, T), att.full_pairs(p, T)
    tile_pairs = matmul.causal_tile_pairs(T, i.get("tile", 1))
    by_tile = "tile" in i
    return {
        "full": full,
        "causal": pairs,
        "pairs": pairs if p else full,
        "ratio": (tile_pairs if by_tile else pairs) / full,
        "tiles": tile_pairs // i.get("tile", 1) ** 2,
        "computed_pairs": tile_pairs,
        "over_half_rule": pairs / full,
    }


COMPUTE: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "t01_matmul_exact": one_matmul,
    "t01": saturation,
    "t02_mlp_saturating": saturation,
    "t02_mlp": one_mlp,
    "t02_attn_equals": equal_flops,
    "t02_attn": one_attention,
    "t03_params_llama2_13b_lecture": lecture_parameters,
    "t03_params": one_model,
    "t03_embedding": embedding_read,
    "t05_llama2_13b": lecture_step,
    "t05_kv_per_token": per_token,
    "t05_problem_10_2": problem_10_2,
    "t05_problem_10_3": problem_10_3,
    "t05_mqa": fewer_heads,
    "t19": causal,
}


@pytest.mark.parametrize("name", CASES)
def test_every_expected_value_of_a_worked_case_is_reproduced(name: str) -> None:
    """A case is computed by the formulas of the package and equals its source to 1e-9."""
    case = CASES[name]
    compute = next(f for prefix, f in COMPUTE.items() if name.startswith(prefix))

    computed = compute(case["inputs"])

    for key, expected in case["expected"].items():
        value = computed[key]
        exact = isinstance(expected, int) and isinstance(value, int)
        near = expected if exact else pytest.approx(expected, rel=1e-9)
        assert value == near, f"{name}: {key}"
