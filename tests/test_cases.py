"""Worked cases of the theory: every expected value of tests/golden/cases.yaml is computed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rooflm.calc import attention as att
from rooflm.calc import matmul, mlp, requests
from rooflm.calc.attention import Attention
from rooflm.calc.case import Case
from rooflm.calc.experts import (
    Experts,
    distinct_experts,
    distinct_experts_skewed,
    saturating_tokens,
    zipf_shares,
)
from rooflm.calc.memory import activations_bytes, largest, paged_chunk_tokens
from rooflm.calc.mla import (
    MLA,
    absorbed_flops,
    crossover_tokens,
    materialised_cache_elements,
    materialised_flops,
    mla_cache_elements,
)
from rooflm.calc.mlp import MLP
from rooflm.calc.model import (
    Group,
    Model,
    active_parameters,
    cache_elements,
    ledger,
    parameters,
    streamed_parameters,
    total_parameters,
)
from rooflm.calc.passes import Operator, Segment, decode, prefill
from rooflm.calc.presets import find_model
from rooflm.calc.solve import Target, Unknown, sensitivity, solve
from rooflm.calc.sweep import step_row
from rooflm.calc.timing import (
    TIME_MODELS,
    Rates,
    bandwidth_time,
    compute_time,
    flops,
    step_time,
    throughput,
)

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


def of_model(i: Inputs) -> tuple[Model, Inputs]:
    """Take the model that a case names."""
    dims = MODELS[i["model"]]
    return model_of(dims), dims


def attention_of(ops: list[Operator]) -> int:
    """Add up the attention FLOPs of a pass."""
    return sum(op.count * op.flops for op in ops if op.name == "attention")


def linear_of(ops: list[Operator]) -> int:
    """Add up all other FLOPs of a pass."""
    return flops(ops) - attention_of(ops)


def one_chunk(i: Inputs) -> dict[str, Any]:
    """Attention of one chunk after a prefix."""
    model, _ = of_model(i)
    return {"flops": attention_of(ledger(model, prefill(1, i["chunk"], i["prefix"])))}


def chunks(i: Inputs) -> dict[str, Any]:
    """A prefill in chunks: what stays and what is read again."""
    model, dims = of_model(i)
    passes = requests.prefill_passes(1, requests.Work(i["S"], chunk=i["chunk"]))
    m = requests.chunk_count(i["S"], i["chunk"])
    read = requests.chunked_cache_reads(m, i["chunk"])
    assert len(passes) == m
    assert read == sum(p[0].context for p in passes)
    return {
        "n_chunks": m,
        "attn_flops_total": sum(attention_of(ledger(model, p)) for p in passes),
        "prior_kv_tokens_read": sum(p[0].cached for p in passes),
        "kv_tokens_read_incl_own": read,
        "kv_read_amplification": read / i["S"],
        "kv_bytes_read": att.kv_cache_bytes(read, dims["K"], dims["H"], dims["L"]),
        "weight_reads": m,
    }


def prefix(i: Inputs) -> dict[str, Any]:
    """A prefill of which most is cached."""
    model, _ = of_model(i)
    work = requests.Work(i["prompt"], prefix=i["matched_tokens"], block=i["block_size"])
    (left,) = requests.prefill_passes(1, work)
    ops = ledger(model, left)
    return {
        "reused": work.reused,
        "computed": left[0].new,
        "attn_flops_full": attention_of(ledger(model, prefill(1, i["prompt"]))),
        "attn_flops_left": attention_of(ops),
        "linear_flops_left": linear_of(ops),
    }


def shared_prefix(i: Inputs) -> dict[str, Any]:
    """Decode of sequences that share a prompt: storage, and reads by two kinds of kernel."""
    model, dims = of_model(i)
    plain = Case(model, h100(), shared_prefix=i["shared"])
    once = replace(plain, prefix_once=True)
    B, S = i["n"], i["shared"] + i["private"]

    def read(case: Case) -> float:
        return sum(op.count * op.read_bytes for op in case.ledger(case.step(B, S)))

    stored = [step_row(of, of.step(B, S), B, S)["kv_cache_bytes"] for of in (plain, once)]
    assert stored[0] == stored[1]
    return {
        "stored": stored[0],
        "read_plain": read(plain),
        "read_cascade": read(once),
        "intensity_shared_part": att.attention_intensity_limit(i["n"], dims["N"], dims["K"]),
    }


def no_cache(i: Inputs) -> dict[str, Any]:
    """Generation that recomputes its prefix at every step, counted step by step."""
    n = i["n"]
    without = sum(att.causal_pairs(0, s) for s in range(1, n + 1))
    cached = sum(att.causal_pairs(s, 1) for s in range(n))
    return {
        "pairs_no_cache_causal": without,
        "pairs_no_cache_closed_form": requests.pairs_without_cache(n),
        "pairs_cached": cached,
        "ratio": without // cached,
        "linear_token_passes_no_cache": sum(range(1, n + 1)),
        "linear_token_passes_cached": n,
    }


def prefill_time(i: Inputs) -> dict[str, Any]:
    """Time to first token at an efficiency."""
    if "model" not in i:
        rate = i["chips"] * i["mfu"] * i["flops"]
        return {"time": compute_time(2 * i["P"] * i["T"], rate)}
    model, _ = of_model(i)
    ops = ledger(model, prefill(1, i["T"]))
    rate = i["mfu"] * i["flops"]
    # The case gives two FLOPs to each norm weight as well, which no matmul has.
    linear = linear_of(ops) + 2 * i["T"] * parameters(model)["norms"]
    return {
        "linear_flops": linear,
        "attn_flops": attention_of(ops),
        "time": compute_time(linear + attention_of(ops), rate),
        "rule_of_thumb": compute_time(2 * total_parameters(model) * i["T"], rate),
    }


def ttft_sum(i: Inputs) -> dict[str, Any]:
    """Time to first token behind a queue: the prefill yields the first token."""
    first = i["queue"] + i["prefill"]
    return {"ttft": first, "ttft_if_engine_redecodes": first + i["first_decode"]}


def transfer(i: Inputs) -> dict[str, Any]:
    """Hand a cache over a network."""
    moved = i["tokens"] * i["kv_per_token"]
    return {"bytes": moved, "time": bandwidth_time(moved, i["net_bw"])}


def end_to_end(i: Inputs) -> dict[str, Any]:
    """Time of a whole request."""
    return {"e2e": requests.end_to_end_time(i["ttft"], i["tpot"], i["G"])}


def lecture_case(K: int = 40) -> Case:
    """Count Llama-2-13B on the H100 as the lecture does: the W and C of these cases."""
    model = find_model("llama-2-13b", {"K": str(K)})
    return Case(model, h100(), accounting="lecture", time_model="bandwidth")


def solved(unknown: Unknown, target: Target, B: int = 1, K: int = 40) -> dict[str, Any]:
    """Ask the solver, at 1024 tokens."""
    return solve(lecture_case(K), unknown, B, 1024, target)


def max_batch(i: Inputs) -> dict[str, Any]:
    """Solve for the batch that fits."""
    return {"B": solved("batch", Target())["value"]}


def batch_for_latency(i: Inputs) -> dict[str, Any]:
    """Solve for the batch within a latency, and learn what no batch can reach."""
    answer = solved("batch", Target(latency_s=i["tau"]))
    fixed = {d["name"]: d["value"] for d in answer["definitions"]}["fixed_s"]
    assert solved("batch", Target(latency_s=0.007))["value"] is None
    return {"B": answer["value"], "min_latency": fixed, "impossible_tau": 0.007}


def crossover(i: Inputs) -> dict[str, Any]:
    """Solve for the context where the cache takes as much as the weights."""
    target = Target(when="cache-equals-weights")
    return {f"B{B}": solved("context", target, B)["value"] for B in i["B"]}


def throughput_limit(i: Inputs) -> dict[str, Any]:
    """Solve for the throughput limit and what reaches a share of it."""
    limit = solved("throughput", Target())
    half = limit["half_batch"]
    share = solved("batch", Target(share=0.9))
    assert share["value"] == 280
    return {
        "R_inf": limit["value"],
        "B_half": half,
        "R_at_B_half": throughput(half, bandwidth_time(i["W"] + half * i["C"], i["bw"])),
        "B_for_90pct": 0.9 * half / (1 - 0.9),
    }


def compute_bound(i: Inputs) -> dict[str, Any]:
    """The batch where the weights alone, and the whole step, turn compute-bound."""
    ridge = matmul.ridge(i["flops"], i["bw"])
    answer = solved("batch", Target(when="compute-bound"), K=8)
    return {
        "B_weights": matmul.saturating_rows_shortcut(ridge),
        "B_total": -1 if answer["value"] is None else answer["value"],
    }


def never_compute_bound(i: Inputs) -> dict[str, Any]:
    """The context above which no batch is compute-bound, all 2P FLOPs counted."""
    ridge = matmul.ridge(i["flops"], i["bw"])
    return {"S": 2 * i["P"] / (i["kappa"] * ridge - att.attention_flops(40, N=40, H=128))}


def elasticity(quantity: str) -> Callable[[Inputs], dict[str, Any]]:
    """Elasticities of the lecture's time or throughput."""

    def compute(i: Inputs) -> dict[str, Any]:
        found = sensitivity(lecture_case(), i["B"], i["S"])[quantity]
        return {"beta" if k == "β" else k: v for k, v in found.items()}

    return compute


def time_models(i: Inputs) -> dict[str, Any]:
    """Five step-time models on the lecture's bytes, K = 8; the scaling book's by hand."""
    case = lecture_case(K=8)
    B, S = i["B"], i["S"]
    W = 2 * total_parameters(case.model, norms=False)
    C = att.kv_cache_bytes(S, 8, 128, 40)
    linear = Operator("linear", "", 1, flops=W * B, weight_bytes=W)
    scores = Operator(
        "attention", "", 1, flops=40 * att.attention_flops(B * S, 40, 128), read_bytes=B * C
    )
    times = {m: step_time([linear, scores], case_rates(), m) for m in TIME_MODELS}
    return {
        "lecture": times["bandwidth"],
        "scaling_book": scaling_book(B, W, C, 2, case_rates()),
        "per_class": times["operator"],
        "overlap_bound": times["overlap"],
        "serial_bound": times["serial"],
    }


def case_rates() -> Rates:
    """Rates of the lecture's H100."""
    return Rates(989e12, 3.35e12)


def scaling_book(B: int, W: float, C: float, b_w: float, rates: Rates) -> float:
    """Compute the book's step time: attention by bandwidth, the rest on a roofline."""
    compute = compute_time(2 * (W / b_w) * B, rates.flops_per_s)
    return bandwidth_time(B * C, rates.bytes_per_s) + max(
        compute, bandwidth_time(W, rates.bytes_per_s)
    )


def pop_quiz(i: Inputs) -> dict[str, Any]:
    """A 30B model in int8 on 16 chips."""
    rates = Rates(i["chips"] * i["flops"], i["chips"] * i["bw"])
    each = i["S"] * i["kappa"]
    return {f"t_b{B}": scaling_book(B, i["P"], each, 1, rates) for B in (4, 256)}


def book_table(i: Inputs) -> dict[str, Any]:
    """The book's table of a 13B model on eight chips."""
    seconds = {B: bandwidth_time(i["W"] + B * i["C"], i["bw"]) for B in (1, 64, 240)}
    return {
        "t1": seconds[1],
        "t64": seconds[64],
        "thr240": throughput(240, seconds[240]),
        "exact_kv": att.kv_cache_bytes(8192, 40, 128, 40),
    }


def moe_parameters(i: Inputs) -> dict[str, Any]:
    """Parameters of a mixture, stored and used."""
    mixer = Attention(i["N"], i["K"], i["H"])
    ffn = Experts(i["F_expert"], i["E"], i["k"])
    model = Model("case", i["D"], i["V"], (Group(i["L"], mixer, ffn),))
    return {"total": total_parameters(model), "active": active_parameters(model)}


def deepseek_v3(i: Inputs) -> dict[str, Any]:
    """Parameters of the preset, whose dimensions are those of the case."""
    model = find_model("deepseek-v3")
    moe = model.groups[1]
    assert isinstance(moe.ffn, Experts)
    assert isinstance(moe.mixer, MLA)
    assert (i["D"], i["N"], i["E"]) == (model.D, moe.mixer.N, moe.ffn.E)
    return {
        "total": total_parameters(model),
        "active_incl_both_embeddings": active_parameters(model),
        "active_excl_input_embedding": streamed_parameters(model),
        "mla_per_layer": sum(moe.mixer.parameters(model.D).values()),
        "expert": moe.ffn.expert_parameters(model.D),
    }


def gpt_oss(i: Inputs) -> dict[str, Any]:
    """Parameters of the preset, learned sinks included."""
    model = find_model("gpt-oss-20b")
    sinks = sum(g.count * g.mixer.extra for g in model.groups if isinstance(g.mixer, Attention))
    return {"total": total_parameters(model), "sink_params": sinks}


def distinct(i: Inputs) -> dict[str, Any]:
    """Distinct experts, evenly routed."""
    return {f"B{B}": distinct_experts(B, i["E"], i["k"]) for B in i["B"]}


def wrong_distinct(i: Inputs) -> dict[str, Any]:
    """The right expectation beside two that are often used."""
    E, k, B = i["E"], i["k"], i["B"]
    return {
        "exact": distinct_experts(B, E, k),
        "with_replacement": E * (1 - (1 - 1 / E) ** (k * B)),
        "min_E_kB": min(E, k * B),
    }


def two_classes(i: Inputs) -> dict[str, Any]:
    """Hot and cold experts."""
    shares = [i["p_hot"]] * i["hot"] + [i["p_cold"]] * (i["E"] - i["hot"])
    assert sum(shares) == pytest.approx(i["k"])
    return {
        "distinct": distinct_experts_skewed(i["B"], shares),
        "uniform": distinct_experts(i["B"], i["E"], i["k"]),
        "hot_tokens_per_expert": i["B"] * i["p_hot"],
        "mean_tokens_per_expert": i["B"] * i["k"] / i["E"],
    }


def zipf(i: Inputs) -> dict[str, Any]:
    """A Zipf law over experts gives the probabilities of the case."""
    shares = zipf_shares(i["E"], i["k"], 1.0)
    assert shares == pytest.approx(i["p"])
    return {
        "distinct": distinct_experts_skewed(i["B"], shares),
        "max_expert_tokens": i["B"] * max(shares),
    }


def expert_layer(i: Inputs) -> dict[str, Any]:
    """Weight bytes of one expert layer of DeepSeek-V3 in 8 bits, its router in 16."""
    ffn = Experts(i["F_expert"], i["E"], i["k"], shared=i["F_expert"])
    one, D = ffn.expert_parameters(i["D"]), i["D"]
    read = ffn.touched(i["B"], fewest=False) * one
    return {
        "expert_bytes": one,
        "routed_read": read,
        "shared_read": ffn.parameters(D)["shared_experts"],
        "router_read_bf16": 2 * ffn.parameters(D)["router"],
        "naive_k_experts": i["k"] * one,
        "naive_kB_experts": i["k"] * i["B"] * one,
        "per_token_read": read / i["B"],
    }


def expert_saturation(i: Inputs) -> dict[str, Any]:
    """Tokens that make experts compute-bound; the book's 16 of which 2, at a ridge of 240."""
    return {
        "B_crit": saturating_tokens(i["ridge"], i["E"], i["k"], i["bytes_w"]),
        "scaling_book_E16k2": saturating_tokens(240, 16, 2),
    }


def verify_tokens(i: Inputs) -> dict[str, Any]:
    """Experts touched by a verification of several draft tokens."""
    step, many = (distinct_experts(i["B"] * t, i["E"], i["k"]) for t in (1, 1 + i["gamma"]))
    return {"decode": step, "verify": many, "ratio": many / step}


V3_MLA = MLA(N=128, c=512, r=64, d=128, v=128, q=1536)


def mla_cache(i: Inputs) -> dict[str, Any]:
    """Cache of a token: 16 bits, and FlashMLA's 8 bits with four fp32 scales and a bf16 key."""
    c, r, L = i["kv_rank"], i["d_rope"], i["L"]
    layer = i["b"] * mla_cache_elements(c, r)
    return {
        "per_token_layer": layer,
        "per_token": L * layer,
        "fp8_656_per_token": L * (c + 4 * 4 + 2 * r),
    }


def mla_against_heads(i: Inputs) -> dict[str, Any]:
    """Cache of the same heads with keys and values made."""
    full = materialised_cache_elements(i["N"], i["d_k"] - 64, 64, i["d_v"])
    return {"per_token_layer": i["b"] * full, "ratio": full / mla_cache_elements(512, 64)}


def mla_parameters(i: Inputs) -> dict[str, Any]:
    """Parameters of a latent attention layer by matrix."""
    D = i["D"]
    held = [t.parameters for t in V3_MLA.tensors(D) if t.part == "attention"]
    names = ("W_DQ", "W_UQ", "W_DKV_KR", "W_UK_UV", "W_O")
    return {
        **dict(zip(names, held, strict=True)),
        "norms": V3_MLA.norm_parameters,
        "total": sum(V3_MLA.parameters(D).values()),
    }


def mla_absorbed(i: Inputs) -> dict[str, Any]:
    """Decode over the latent itself."""
    widths = (i["N"], i["d_c"], i["d_r"], i["d_nope"], i["d_v"])
    core = absorbed_flops(i["S"], 0, *widths)
    read = i["b"] * mla_cache_elements(i["d_c"], i["d_r"], i["S"])
    return {
        "core_flops": core,
        "absorb_flops": absorbed_flops(0, 1, *widths),
        "kv_bytes": read,
        "intensity": core / read,
        "intensity_fp8_656": core / (656 * i["S"]),
        "flashmla_approx_2hq": 2 * i["N"],
    }


def mla_naive(i: Inputs) -> dict[str, Any]:
    """Decode that makes all keys and values anew."""
    S, widths = i["S"], (128, 512, 64, 128, 128)
    scores = materialised_flops(S, 0, *widths)
    whole = materialised_flops(S, S, *widths)
    return {
        "decompress_flops": whole - scores,
        "attn_flops": scores,
        "ratio_to_absorbed": whole / absorbed_flops(S, 1, *widths),
    }


def mla_crossover(i: Inputs) -> dict[str, Any]:
    """New tokens from which materialising pays, for V3's widths."""
    T = crossover_tokens(512, 64, 128, 128)
    n = 10**7
    assert V3_MLA.mode(n, int(T)) == "absorbed"
    assert V3_MLA.mode(n, int(T) + 1) == "materialised"
    return {"T_star": T}


def mla_in_groups(i: Inputs) -> dict[str, Any]:
    """The latent in head widths, and as key/value groups."""
    elements = mla_cache_elements(i["d_c_over_d_h"], i["d_r_over_d_h"])
    return {"elements_in_d_h": elements, "equivalent_gqa_groups": elements / 2}


def cross_layer(i: Inputs) -> dict[str, Any]:
    """A cache shared by pairs of layers: half is stored, all is read."""
    if "V" not in i:
        return {"kv_layers": att.shared_layers(i["L"], i["share"])}
    own = att.shared_layers(i["L"], i["share"])
    first = Attention(i["N"], i["K"], i["H"])
    groups = (
        Group(own, first, MLP(i["F"]), name="own"),
        Group(i["L"] - own, replace(first, shares=True), MLP(i["F"]), name="shared"),
    )
    model = Model("case", i["D"], i["V"], groups)
    plain = model_of(i)
    ops = ledger(model, decode(1, 1000))
    return {
        "stored_per_token": i["b"] * cache_elements(model, 1),
        "read_per_token": sum(op.count * op.read_bytes for op in ops) // 1000,
        "params_removed": total_parameters(plain) - total_parameters(model),
    }


def gemma_cache(i: Inputs) -> dict[str, Any]:
    """The preset's cache, beside one without windows."""
    model = find_model("gemma-3-27b")
    S = i["S"]
    by_kind = {g.name: 2 * g.count * g.mixer.cache_elements(S) for g in model.groups}
    every = att.kv_cache_bytes(S, 16, 128, 62)
    return {
        "global_bytes": by_kind["global"],
        "local_bytes": by_kind["local"],
        "total": 2 * cache_elements(model, S),
        "all_global": every,
        "ratio": every / sum(by_kind.values()),
    }


def gpt_oss_cache(i: Inputs) -> dict[str, Any]:
    """The preset's cache: half of its layers see 128 tokens."""
    return {"total": 2 * cache_elements(find_model("gpt-oss-20b"), i["S"])}


def scout_cache(i: Inputs) -> dict[str, Any]:
    """Chunked layers: what they hold at the most, and what the next token sees."""
    model = find_model("llama-4-scout")
    local, whole = model.groups
    assert isinstance(local.mixer, Attention)
    C, S = i["chunk"], i["S"]
    return {
        "alloc_local": 2 * local.count * local.mixer.cache_elements(S),
        "live_local_tokens": local.mixer.pairs(S, 1),
        "mean_live_tokens": local.mixer.pairs(0, C) / C,
        "global_bytes": 2 * whole.count * whole.mixer.cache_elements(S),
    }


def chunk_blocks(i: Inputs) -> dict[str, Any]:
    """Blocks of a chunked layer in a paged engine."""
    tokens = paged_chunk_tokens(i["C"], i["max_model_len"], i["max_num_batched_tokens"], i["block"])
    return {"blocks": tokens / i["block"]}


def streaming(i: Inputs) -> dict[str, Any]:
    """First tokens and a window."""
    mixer = Attention(8, 8, 64, window=i["W"], sink_tokens=i["sinks"])
    return {"cached": mixer.kept_tokens(i["S"]), "cached_short": mixer.kept_tokens(600)}


def reach(i: Inputs) -> dict[str, Any]:
    """How far back stacked windows see."""
    return {"tokens": att.receptive_field(i["L"], i["W"])}


def live(i: Inputs) -> dict[str, Any]:
    """Activations of a prefill at its widest point, and the parts of which it is made."""
    model, T = model_of(MODELS[i["model"]]), i["T"]
    ops = {op.name: op.live_bytes for op in ledger(model, prefill(1, T))}
    widest = activations_bytes(ledger(model, prefill(1, T)))
    assert widest == ops["mlp up"]
    return {
        "residual": ops["embedding"],
        "gate_up": ops["mlp up"] - ops["mlp down"],
        "act_out": ops["mlp down"] - ops["norms"],
        "sum_model": widest,
        "twice_the_tokens": activations_bytes(ledger(model, prefill(1, 2 * T))),
        "naive_scores_32h": 2 * i["N"] * T**2,
    }


def logits(i: Inputs) -> dict[str, Any]:
    """Logits of a step, which are wider than its layers, and of all tokens of a prompt."""
    model = model_of(MODELS[i["model"]])
    step, prompt = i["B"], i["prompt"]
    head = activations_bytes(ledger(model, decode(step, 1000)))
    every = activations_bytes(ledger(model, [Segment(1, prompt, 0, head_rows=prompt)]))
    return {
        "all": head,
        "bytes": head - 2 * model.D * step,
        "prompt_logprobs_8192": every - 2 * model.D * prompt,
    }


COMPUTE: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "t01_matmul_exact": one_matmul,
    "t01": saturation,
    "t02_mlp_saturating": saturation,
    "t02_mlp": one_mlp,
    "t02_attn_equals": equal_flops,
    "t02_chunk_attn": one_chunk,
    "t02_chunked": chunks,
    "t02_prefix": prefix,
    "t02_shared": shared_prefix,
    "t02_no": no_cache,
    "t02_attn": one_attention,
    "t03_params_llama2_13b_lecture": lecture_parameters,
    "t03_params_mixtral": moe_parameters,
    "t03_params_deepseek_v3": deepseek_v3,
    "t03_params_gpt_oss": gpt_oss,
    "t03_params": one_model,
    "t03_embedding": embedding_read,
    "t04_distinct_uniform": distinct,
    "t04_distinct_wrong": wrong_distinct,
    "t04_distinct_two": two_classes,
    "t04_distinct_zipf": zipf,
    "t04_dsv3": expert_layer,
    "t04_moe_bcrit": expert_saturation,
    "t04_moe_verify": verify_tokens,
    "t06_mla_cache": mla_cache,
    "t06_mla_vs": mla_against_heads,
    "t06_mla_params": mla_parameters,
    "t06_mla_absorbed": mla_absorbed,
    "t06_mla_naive": mla_naive,
    "t06_mla_prefill": mla_crossover,
    "t06_mla_v2": mla_in_groups,
    "t07_cla": cross_layer,
    "t08_gemma3": gemma_cache,
    "t08_gpt_oss": gpt_oss_cache,
    "t08_llama4": scout_cache,
    "t08_streaming": streaming,
    "t08_vllm_chunked": chunk_blocks,
    "t08_receptive": reach,
    "t05_llama2_13b": lecture_step,
    "t05_kv_per_token": per_token,
    "t05_problem_10_2": problem_10_2,
    "t05_problem_10_3": problem_10_3,
    "t05_mqa": fewer_heads,
    "t17_prefill": prefill_time,
    "t17_scaling": prefill_time,
    "t17_ttft": ttft_sum,
    "t17_kv": transfer,
    "t17_e2e": end_to_end,
    "t19": causal,
    "t20_prefill": live,
    "t20_logits": logits,
    "t22_max": max_batch,
    "t22_batch": batch_for_latency,
    "t22_crossover": crossover,
    "t22_throughput": throughput_limit,
    "t22_compute": compute_bound,
    "t22_never": never_compute_bound,
    "t22_elasticities_latency": elasticity("time_s"),
    "t22_elasticities_throughput": elasticity("tokens_per_s"),
    "t22_latency": time_models,
    "t22_scaling_book_popquiz": pop_quiz,
    "t22_scaling_book_table": book_table,
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
