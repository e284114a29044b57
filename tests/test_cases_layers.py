"""Worked cases of states, compression and diffusion (tests/golden/cases_layers.yaml)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from rooflm.calc.compressed import (
    Compressed,
    all_entry_pairs,
    compressed_cache_elements,
    compressor_state_elements,
    entry_pairs,
    scored_entry_pairs,
)
from rooflm.calc.diffusion import (
    block_cache_reads,
    block_tokens_per_pass,
    denoising_flops,
    least_tokens_per_step,
    saturating_batch,
    tokens_per_step,
)
from rooflm.calc.linear_attention import (
    LinearAttention,
    delta_rule_flops,
    linear_attention_flops,
    linear_state_elements,
)
from rooflm.calc.mla import absorbed_flops, mla_cache_elements
from rooflm.calc.model import (
    Group,
    Model,
    active_parameters,
    cache_elements,
    ledger,
    sequence_state_bytes,
    streamed_parameters,
    total_parameters,
)
from rooflm.calc.passes import (
    BF16,
    FORMATS,
    Operator,
    Precision,
    commit_block,
    decode,
    denoise_block,
)
from rooflm.calc.presets import find_model
from rooflm.calc.sparse import break_even_tokens, index_flops
from rooflm.calc.ssm import Mamba, scan_flops, ssd_flops
from rooflm.calc.state import Kept
from rooflm.calc.timing import bandwidth_time, compute_time, throughput

from .golden import table

CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in table("cases_layers")["cases"]}
Inputs = dict[str, Any]
HALF = Precision(state=FORMATS["bf16"])
"""States in 16 bits as well."""
V32_TOKEN = 656 + 132
"""Bytes that a layer of DeepSeek-V3.2 keeps of a token in its fp8 layout."""


def layer(model: Model, kind: str) -> int:
    """Count the parameters of one mixer of a kind, norms included."""
    (group,) = (g for g in model.groups if g.mixer.kind == kind)
    return sum(group.mixer.parameters(model.D).values())


def one_model(i: Inputs) -> dict[str, Any]:
    """Count a preset, and its mixers."""
    model = find_model(i["model"])
    found = {"total": total_parameters(model), "active": active_parameters(model)}
    return found | {key: layer(model, i[key]) for key in ("layer", "other") if key in i}


def v4_parameters(i: Inputs) -> dict[str, Any]:
    """Count a DeepSeek-V4 and what compression adds to a layer."""
    model = find_model(i["model"])
    mixers = [g.mixer for g in model.groups if isinstance(g.mixer, Compressed)]
    full = next(m for m in mixers if m.kind == "csa")
    D = model.D
    held = [t for t in full.tensors(D) if t.op in ("qkv", "out")]
    core = sum(t.parameters for t in held)
    return {
        "total": total_parameters(model),
        "active_incl_embeddings": active_parameters(model),
        "active_excl_input_embedding": streamed_parameters(model),
        "attn_core_per_layer": core,
        "csa_extra_per_layer": layer(model, "csa") - core,
        "hca_extra_per_layer": layer(model, "hca") - core,
    }


def dsa_cache(i: Inputs) -> dict[str, Any]:
    """Tell the cache of latent attention with index keys."""
    elements = mla_cache_elements(i["kv_rank"], i["d_rope"]) + i["d_index"]
    fp8 = i["fp8_latent"] + i["fp8_key"]
    model = find_model("deepseek-v3.2")
    return {
        "bf16": 2 * elements,
        "fp8": fp8,
        "per_token_fp8": i["L"] * fp8,
        "per_token_bf16": 2 * cache_elements(model, 1),
        "total_1M_bf16": 2 * cache_elements(model, i["S"]),
    }


def dsa_decode(i: Inputs) -> dict[str, Any]:
    """Hold a sparse step against a dense one."""
    S, k, c, r = i["S"], i["k"], i["latent"], i["rope"]
    scores = index_flops(S, i["index_heads"], i["index_dim"])
    core = absorbed_flops(k, 0, i["N"], c, r, 0, 0)
    dense = absorbed_flops(S, 0, i["N"], c, r, 0, 0)
    keys, entries = S * i["key"], min(k, S) * i["entry"]
    model = find_model("deepseek-v3.2")
    step = named(ledger(model, decode(1, S)), "index", "attention")
    queries = absorbed_flops(0, 1, i["N"], c, r, 128, 128)
    assert step["attention"].flops == core + queries
    assert step["index"].flops - 2 * (step["index"].weight_bytes / 2 - 256) == scores
    assert step["index"].read_bytes == 2 * 128 * S
    assert step["attention"].read_bytes == 2 * (c + r) * k
    return {
        "index_bytes": keys,
        "core_bytes": entries,
        "dense_mla_bytes": S * i["entry"],
        "index_flops": scores,
        "core_flops": core,
        "dense_flops": dense,
        "bytes_ratio": S * i["entry"] / (keys + entries),
        "flops_ratio": dense / (scores + core),
        "index_intensity": scores / keys,
    }


def named(ops: list[Operator], *names: str) -> dict[str, Operator]:
    """Take operators by name, without that of their layers."""
    return {name: next(op for op in ops if op.name.split()[0] == name) for name in names}


def dsa_break_even(i: Inputs) -> dict[str, Any]:
    """Tell from where on the indexer pays."""
    pair = absorbed_flops(1, 0, i["N"], i["latent"], i["rope"], 0, 0)
    score = index_flops(1, i["index_heads"], i["index_dim"])
    return {
        "S_bytes": break_even_tokens(i["k"], i["entry"], i["key"]),
        "S_flops": break_even_tokens(i["k"], pair, score),
    }


def v4_bytes(i: Inputs, entry: int, key: int) -> int:
    """Add up what all layers of a DeepSeek-V4 keep, by bytes of an entry and of an index key."""
    S, W = i["S"], i["W"]
    csa = compressed_cache_elements(S, W, entry, i["m"], key)
    hca = compressed_cache_elements(S, W, entry, i["m2"])
    return i["csa"] * csa + i["hca"] * hca + i["swa"] * min(S, W) * entry


def v4_cache(i: Inputs) -> dict[str, Any]:
    """Tell the cache of a DeepSeek-V4 in three formats."""
    S, c = i["S"], i["c"]
    low = v4_bytes(i, 584, 68)
    layers = i["csa"] + i["hca"] + i["swa"]
    bf16 = 2 * cache_elements(find_model(i["model"]), S)
    assert bf16 == v4_bytes(i, 2 * c, 2 * i["index_dim"])
    return {
        "bf16_bytes": bf16,
        "fp8kv_fp4idx_bytes": low,
        "fp8kv_fp8idx_bytes": v4_bytes(i, 584, 132),
        "marginal_per_token_fp8fp4": i["csa"] * (584 + 68) / i["m"] + i["hca"] * 584 / i["m2"],
        "ratio_to_v32_fp8": low / (61 * V32_TOKEN * S),
        "ratio_to_gqa8_bf16": low / (layers * 2 * 8 * 128 * 2 * S),
    }


def v4_claims(i: Inputs) -> dict[str, Any]:
    """Derive the ratios of the technical report."""
    pro = v4_cache(CASES["t09_v4_pro_cache_1M"]["inputs"])
    flash = v4_cache(CASES["t09_v4_flash_cache_1M"]["inputs"])
    sizes = CASES["t09_v4_pro_cache_1M"]["inputs"]
    # Raw entries of a sequence kept whole, against the compressed ones.
    compressed = sizes["csa"] / sizes["m"] + sizes["hca"] / sizes["m2"]
    return {
        "pro_kv_vs_v32": pro["ratio_to_v32_fp8"],
        "flash_kv_vs_v32": flash["ratio_to_v32_fp8"],
        "pro_kv_vs_gqa8": pro["ratio_to_gqa8_bf16"],
        "swa_over_compressed_pro": (sizes["csa"] + sizes["hca"]) / compressed,
    }


def v4_decode(i: Inputs) -> dict[str, Any]:
    """Tell what the attention of one token reads and computes, all layers."""
    S, k, W = i["S"], i["k"], i["W"]
    scored = scored_entry_pairs(S - 1, 1, 4, k)
    chosen = entry_pairs(S - 1, 1, 4, k) + W
    heavy = all_entry_pairs(S - 1, 1, 128) + W
    entries = i["csa"] * chosen + i["hca"] * heavy + i["swa"] * W
    scores = i["csa"] * index_flops(scored, 64, 128)
    core = 4 * i["N"] * 512 * entries
    step = ledger(find_model(i["model"]), decode(1, S))
    cores = [op for op in step if op.name.startswith("attention")]
    assert sum(op.count * op.flops for op in cores) == core
    assert sum(op.count * op.read_bytes for op in cores) == 2 * 512 * entries
    (index,) = (op for op in step if op.name.startswith("index"))
    assert index.read_bytes * index.count == 2 * 128 * i["csa"] * scored
    return {
        "kv_bytes_read": i["csa"] * scored * i["index_bytes"] + entries * i["entry_bytes"],
        "indexer_flops": scores,
        "core_flops": core,
    }


def v4_flops(i: Inputs) -> dict[str, Any]:
    """Weight the FLOPs of a token by format: fp4 half, fp8 one, bf16 two."""

    def of(case: str, model: str) -> float:
        work = v4_decode(CASES[case]["inputs"])
        dense = 2 * streamed_parameters(find_model(model))
        return work["indexer_flops"] / 2 + 2 * work["core_flops"] + dense

    sparse = dsa_decode(CASES["t09_dsa_decode"]["inputs"] | {"S": i["S"]})
    before = 61 * (sparse["index_flops"] + 2 * sparse["core_flops"])
    before += 2 * streamed_parameters(find_model("deepseek-v3"))
    return {
        "pro_ratio": of("t09_v4_pro_decode_s1048576", "deepseek-v4-pro") / before,
        "flash_ratio": of("t09_v4_flash_decode_s1048576", "deepseek-v4-flash") / before,
    }


def v4_state(i: Inputs) -> dict[str, Any]:
    """Tell the open windows of compressors."""
    return {
        "csa_main_per_layer": 4 * compressor_state_elements(i["m"], i["c"], overlap=2),
        "csa_index_per_layer": 4 * compressor_state_elements(i["m"], i["index_dim"], overlap=2),
        "hca_per_layer": 4 * compressor_state_elements(i["m2"], i["c"]),
        "pro_total": sequence_state_bytes(find_model(i["model"]), BF16),
    }


def kept(model: Model) -> tuple[Kept, Kept]:
    """Tell the state of the first group, needed and by the reference."""
    mixer = model.groups[0].mixer
    return mixer.state, mixer.reference_state


def mamba_state(i: Inputs) -> dict[str, Any]:
    """Tell the state of Mamba."""
    model = find_model(i["model"])
    needed, reference = kept(model)
    assert needed.recurrent == reference.recurrent
    return {
        "ssm_elems": needed.recurrent,
        "conv_elems_vllm": needed.columns,
        "conv_elems_reference": reference.columns,
        "per_layer": needed.bytes(BF16),
        "total": sequence_state_bytes(model, BF16),
    }


def mamba_decode(i: Inputs) -> dict[str, Any]:
    """Tell the work and the traffic of one layer for one token."""
    model = find_model(i["model"])
    mixer = model.groups[0].mixer
    assert isinstance(mixer, Mamba)
    ops = list(mixer.operators(i["D"], 1, decode(1, 100), BF16))
    moved = sum(op.read_bytes + op.write_bytes for op in ops)
    scan = scan_flops(mixer.state.recurrent)
    return {
        "flops": sum(op.flops for op in ops),
        "scan_flops": scan,
        "state_bytes_moved": moved,
        "scan_intensity": scan / (2 * 4 * mixer.state.recurrent),
    }


def mamba2_state(i: Inputs) -> dict[str, Any]:
    """Tell the state of Mamba-2 in two formats."""
    model = find_model(i["model"])
    needed, _ = kept(model)
    return {
        "ssm_elems": needed.recurrent,
        "conv_elems": needed.columns,
        "total_fp32": sequence_state_bytes(model, BF16),
        "total_bf16": sequence_state_bytes(model, HALF),
    }


def hybrid(i: Inputs) -> dict[str, Any]:
    """Hold the state of a hybrid against its cache."""
    model = find_model(i["model"])
    state, token = sequence_state_bytes(model, BF16), 2 * cache_elements(model, 1)
    found = {
        "state": state,
        "state_fp32": state,
        "kv_per_token": token,
        "kv": 2 * cache_elements(model, i["S"]),
    }
    if "mamba_layers" in i:
        as_many = token / i["attn_layers"] * i["mamba_layers"]
        found["state_equals_kv_of_24_layers_at"] = math.ceil(state / as_many)
        found["state_over_kv_tokens"] = math.ceil(state / token)
    return found


def delta_rule(i: Inputs) -> dict[str, Any]:
    """Tell the work of the delta rule."""
    state = linear_state_elements(i["v_heads"], i["dk"], i["dv"])
    moved = 2 * 4 * state
    work = delta_rule_flops(state)
    return {"flops": work, "bytes_fp32": moved, "intensity": work / moved}


def rwkv7_state(i: Inputs) -> dict[str, Any]:
    """Tell the state of RWKV-7."""
    return {"state": sequence_state_bytes(find_model(i["model"]), BF16)}


def linear_attention(i: Inputs) -> dict[str, Any]:
    """Tell the state of linear attention without a normaliser."""
    mixer = LinearAttention(i["heads"], i["dk"], i["dv"])
    work = linear_attention_flops(mixer.state.elements)
    assert mixer.step_flops() == work
    return {
        "state": i["L"] * mixer.state.bytes(HALF),
        "decode_flops_per_layer": work,
    }


def long_caches(i: Inputs) -> dict[str, Any]:
    """Hold the caches of a hybrid and of two transformers side by side."""
    names = {"jamba": "jamba-v0.1", "mixtral": "mixtral-8x7b", "llama2_7b": "llama-2-7b"}
    found = {k: 2 * cache_elements(find_model(name), i["S"]) for k, name in names.items()}
    return found | {"jamba_state": sequence_state_bytes(find_model("jamba-v0.1"), HALF)}


def ssd(i: Inputs) -> dict[str, Any]:
    """Tell the work of the chunked form."""
    return {"flops": ssd_flops(i["heads"], i["P"], i["N"], i["groups"], i["Q"])}


def llada(i: Inputs) -> dict[str, Any]:
    """Tell a full-sequence step."""
    n = i["prompt"] + i["gen"]
    each = tokens_per_step(i["gen"], i["steps"])
    work = denoising_flops(i["params"], n, i["L"], i["N"], i["H"])
    compute, memory = compute_time(work, i["flops"]), bandwidth_time(i["weight_bytes"], i["bw"])
    step, decoding = max(compute, memory), 2 * i["params"]
    return {
        "tokens_per_step": each,
        "flops_per_step": work,
        "flops_per_token": work / each,
        "ar_flops_per_token": decoding,
        "ratio_linear": 2 * i["params"] * n / decoding,
        "t_compute": compute,
        "t_memory": memory,
        "t_step": step,
        "throughput_b1": throughput(each, step),
        "ar_throughput_b1": throughput(1, memory),
        "B": saturating_batch(memory, compute),
    }


def block_diffusion(i: Inputs) -> dict[str, Any]:
    """Tell a block's tokens a pass, its work and its reads, and hold the passes against them."""
    b, s, S = i["block"], i["steps"], i["S"]
    model = find_model(i["model"])
    passes = [ledger(model, denoise_block(1, S, b))] * s + [ledger(model, commit_block(1, S, b))]
    ops = [op for step in passes for op in step]
    linear = sum(op.count * op.flops for op in ops if op.part not in ("attention", "head"))
    once = [op for op in ledger(model, decode(1, S)) if op.part not in ("attention", "head")]
    reads = sum(op.count * op.read_bytes for op in ops) / (2 * cache_elements(model, 1))
    # The passes before the last have the block at hand; only the last writes it and reads it back.
    assert reads == (s + 1) * S - s * b
    return {
        "tokens_per_pass": block_tokens_per_pass(b, s),
        "flops_per_token_linear": linear / b / sum(op.count * op.flops for op in once),
        "kv_reads_per_token": block_cache_reads(S, b, s),
        "ar_kv_reads": block_cache_reads(S, 1, 1, commit=0),
    }


def mercury(i: Inputs) -> dict[str, Any]:
    """Tell how many tokens a step has to yield."""
    rate = least_tokens_per_step(i["tok_s"], i["weight_bytes"], i["bw"])
    return {"min_tokens_per_step": rate}


COMPUTE: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "t03_params_deepseek_v4": v4_parameters, "t03_params": one_model, "t09_dsa_cache": dsa_cache,
    "t09_dsa_decode": dsa_decode, "t09_dsa_breakeven": dsa_break_even,
    "t09_v4_pro_cache": v4_cache, "t09_v4_flash_cache": v4_cache, "t09_v4_claims": v4_claims,
    "t09_v4_pro_decode": v4_decode, "t09_v4_flash_decode": v4_decode,
    "t09_v4_flops_claim": v4_flops, "t09_v4_state": v4_state, "t10_mamba1_state": mamba_state,
    "t10_mamba1_decode": mamba_decode, "t10_mamba2_state": mamba2_state,
    "t10_nemotron": hybrid, "t10_qwen3_next": hybrid, "t10_gdn": delta_rule,
    "t10_rwkv7": rwkv7_state, "t10_linear": linear_attention, "t10_jamba": long_caches,
    "t10_ssd": ssd, "t11_llada": llada, "t11_block": block_diffusion, "t11_mercury": mercury,
}  # fmt: skip
"""What computes a case, by the beginning of its name; the first that fits."""


@pytest.mark.parametrize("name", CASES)
def test_every_expected_value_of_a_worked_case_is_reproduced(name: str) -> None:
    """All values of a case, within 1e-9; whole numbers exactly."""
    case = CASES[name]
    compute = next(f for start, f in COMPUTE.items() if name.startswith(start))
    found = compute(case["inputs"])
    for key, value in case["expected"].items():
        wanted = value if isinstance(value, int) else pytest.approx(value, rel=1e-9)
        assert found[key] == wanted, key


def test_a_mixer_without_a_model_reads_its_state_but_in_the_first_pass() -> None:
    """A state is written by every pass and read by all but the first of a sequence."""
    mixer = LinearAttention(heads=2, key=3, value=5)
    model = Model("case", 16, 100, (Group(1, mixer, find_model("llama-2-7b").groups[0].ffn),))
    for S, reads in ((1, 0), (2, 1), (1000, 1)):
        ops = named(ledger(model, decode(4, S)), "state")
        (state,) = (op for op in ledger(model, decode(4, S)) if op.name == "state")
        assert state.read_bytes == reads * 4 * 4 * 30
        assert state.write_bytes == 4 * 4 * 30
        assert ops
