"""What engines print about their memory, against worked cases and figures of public logs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from rooflm.calc import engine_memory as em
from rooflm.calc.attention import Attention
from rooflm.calc.cache_groups import Caches, Groups, cache_groups
from rooflm.calc.case import Case
from rooflm.calc.engine_budget import engine_memory
from rooflm.calc.engine_rules import GIB, Asked, find_rules, memory_engines, parse_version, usual
from rooflm.calc.errors import RooflmError
from rooflm.calc.experts import NoFeedForward
from rooflm.calc.memory import (
    paged_chunk_tokens,
    paged_window_tokens,
    weights_bytes,
)
from rooflm.calc.model import (
    Group,
    Model,
    token_bytes,
)
from rooflm.calc.paging import pool_blocks, pool_sequences, sequence_blocks
from rooflm.calc.passes import BF16
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import MODELS_FILE, find_machine, find_model, preset_names
from rooflm.calc.torch_allocator import Allocator, allocated_bytes
from rooflm.calc.units import parse_size

from .engine_logs import LOGS, counted, is_listed, is_rounding, off, table_of_those_off
from .golden import GOLDEN, table
from .helpers import Terminal

TABLE = table("engine_memory")
CASES: dict[str, Any] = {c["id"]: c for c in TABLE["cases"]}
Found = dict[str, Any]
OTHER = ("weights", "allocated", "parameters", "widths", "bits", "layers_gib", "share", "queued",
         "streams")  # fmt: skip
"""Rules of figures that are no pools, tokens, blocks, concurrencies or caches."""


# Worked cases.


def prefill(x: Any) -> Found:
    """Parts of the widest point of an MLP, and the scores that nobody stores."""
    T, D, F, b = x["T"], x["D"], x["F"], x["b"]
    return {
        "residual": em.mlp_pass_bytes(T, D, 0, b) / 2,
        "gate_up": em.mlp_pass_bytes(T, 0, F, b) * 2 / 3,
        "act_out": em.mlp_pass_bytes(T, 0, F, b) / 3,
        "sum_model": em.mlp_pass_bytes(T, D, F, b),
        "naive_scores_32h": b * x["heads"] * T * T,
    }


def logits(x: Any) -> Found:
    """Logits of a step, and of every prompt token."""
    return {
        "bytes": em.logits_bytes(x["B"], x["V"], x["bytes"]),
        "prompt_logprobs_8192": em.logits_bytes(x["T"], x["V"], x["bytes"]),
    }


def budget(x: Any) -> Found:
    """A pool, its blocks, tokens and whole sequences."""
    model = find_model(x["model"])
    pool = em.vllm_pool_bytes(
        x["total"], x["u"], x["weights"], x["peak_activation"], x["non_torch"]
    )
    groups = cache_groups(model, BF16, x["block"])
    blocks = groups.blocks(pool)
    return {
        "kv_bytes": pool,
        "blocks": blocks,
        "tokens": groups.line_tokens(blocks, 1),
        "seqs_4096": pool_sequences(blocks, x["length"], x["block"]),
    }


def breakdown(x: Any) -> Found:
    """The pool of a log, in its unit."""
    pool = em.vllm_pool_bytes(
        x["total_gib"], x["u"], x["weights_gib"], x["peak_activation_gib"], x["non_torch_gib"]
    )
    return {"kv_gib": pool}


def units(x: Any) -> Found:
    """MiB in bytes, and over the number on the box."""
    size = parse_size(f"{x['mib']}MiB", "--capacity")
    return {"bytes": size, "over_80e9": size / 80e9}


def vidur(x: Any) -> Found:
    """Requests of the longest length that are left room for."""
    held = 2 * x["params_per_device"]
    pool = em.vllm_pool_bytes(x["total_gb"] * GIB, 1 - x["margin"], held, 0, 0)
    token = token_bytes(find_model(x["model"]), BF16)
    return {"max_batch": pool_blocks(pool, token, x["max_tokens"])}


def graphs(x: Any) -> Found:
    """The share without CUDA graphs, and the share that keeps the pool."""
    part = x["graph_fraction_of_total"]
    return {
        "u_equivalent": em.graph_utilization(x["u"], part, 1),
        "u_to_keep_kv": em.graph_utilization(x["u"], -part, 1),
    }


def context(x: Any) -> Found:
    """The least that the registry's ranges leave for a context."""
    ranges = [find_rules(name)["ranges"] for name in memory_engines()]
    return {
        "lazy_loading": min(r["non_torch"]["low_gib"] for r in ranges if "non_torch" in r) * GIB
    }


def window(x: Any) -> Found:
    """Tokens and blocks of a window layer."""
    args = (x["W"], x["max_model_len"], x["max_num_batched_tokens"], x["block"])
    tokens = x["W"] - 1 + x["max_num_batched_tokens"]
    return {"tokens": tokens, "blocks": paged_window_tokens(*args) // x["block"]}


def chunk(x: Any) -> Found:
    """Blocks of a chunked layer."""
    args = (x["C"], x["max_model_len"], x["max_num_batched_tokens"], x["block"])
    return {"blocks": paged_chunk_tokens(*args) // x["block"]}


def pages(x: Any) -> Found:
    """Pages of DeepSeek-V4: entries of 4 and of 128 tokens, and index keys."""

    def page(m: int, size: int) -> float:
        return em.aligned_page_bytes(x["block"] // m * size, x["align"])

    return {
        "c4a_main": page(4, x["entry"]),
        "c4_indexer_fp8": page(4, x["index"]),
        "c128a_main": page(128, x["entry"]),
    }


def grown(x: Any) -> float:
    """Bytes that a further token adds to DeepSeek-V4's caches."""
    return x["csa"] * (x["entry"] + x["index"]) / 4 + x["hca"] * x["entry"] / 128


def measured(x: Any) -> Found:
    """A measured pool over the formula of what is needed."""
    each = x["pool_bytes"] / x["tokens"]
    return {
        "measured_per_token": each,
        "formula_marginal_fp8idx": grown(x),
        "overhead": each / grown(x),
    }


def compressed_pool(x: Any) -> Found:
    """Bytes of a token of SGLang's pool: as many of them fill it."""
    swa = x["layers"] * x["entry"]
    whole = grown(x) + x["swa_full_tokens_ratio"] * swa
    tokens = em.sglang_tokens(1e6 * whole, grown(x), swa, x["swa_full_tokens_ratio"])
    assert abs(tokens - 10**6) <= 1
    return {
        "swa_pool": x["swa_full_tokens_ratio"] * swa,
        "csa_pool": x["csa"] * (x["entry"] + x["index"]) / 4,
        "hca_pool": x["hca"] * x["entry"] / 128,
        "total": whole,
        "overhead_over_compressed": whole / grown(x),
    }


def blocks(x: Any) -> Found:
    """Blocks of sequences and of a pool."""
    groups = cache_groups(find_model(x["model"]), BF16, x["block"])
    number, each = groups.blocks(x["kv_budget"]), sequence_blocks(x["S"], x["block"])
    return {
        "block_bytes_all_layers": groups.block_bytes,
        "blocks_per_seq": each,
        "num_blocks": number,
        "max_seqs": number // groups.request_blocks(x["S"], 8192, 1),
        "block_table_bytes_int32": 4 * x["seqs"] * each,
    }


def hybrid(x: Any) -> Found:
    """Blocks of a model with states, and the two lines of a log."""
    groups = cache_groups(find_model(x["model"]), BF16, 16)
    assert groups.least_block == x["block"]
    assert sum(groups.counts) == x["groups"]
    each = groups.request_blocks(x["length"], x["batched"], 1)
    number = round(x["concurrency_line"] * each)
    return {
        "request_blocks": each,
        "blocks": number,
        "tokens": groups.line_tokens(number, x["length"]),
        "concurrency": em.pool_concurrency(number, each),
    }


def too_long(x: Any) -> Found:
    """What one request needs, and the longest that a pool holds, with drafted tokens."""
    state = x["state_bytes"] + x["drafted"] * x["drafted_bytes"]
    block = int(em.state_page_tokens(state, x["token"]))
    page, layers = block * x["token"], x["layers"] + x["drafted_layers"]
    group = int(em.group_layers(layers, x["states"]))
    groups = Groups(
        (Caches("full", layers, page, block), Caches("state", x["states"], page, 0)), page, group
    )
    states = int(em.state_blocks(x["drafted"], 1))
    each = groups.request_blocks(x["length"], 2048, states)
    return {
        "block": block,
        "request_blocks": each,
        "needed_gib": each * groups.block_bytes / GIB,
        "longest": groups.longest(x["pool_gib"] * GIB, x["length"], 2048, states),
    }


COMPUTE: dict[str, Callable[[Any], Found]] = {
    "t20_prefill_activations": prefill,
    "t20_logits_memory": logits,
    "t20_vllm_kv_budget": budget,
    "t20_h100_capacity_units": units,
    "t20_vidur_memory_plan": vidur,
    "t20_vllm_h200_breakdown": breakdown,
    "t20_vllm_cudagraph_equivalence": graphs,
    "t20_cuda_context": context,
    "t08_vllm_swa_bound": window,
    "t08_vllm_chunked_local_bound": chunk,
    "t09_v4_vllm_pages": pages,
    "t09_v4_pool_measured": measured,
    "t09_v4_sglang_pool_pro": compressed_pool,
    "t09_v4_sglang_pool_flash": compressed_pool,
    "t15_block_count": blocks,
    "hybrid_kv_line": hybrid,
    "hybrid_too_long": too_long,
}


@pytest.mark.parametrize("name", CASES)
def test_worked_cases(name: str) -> None:
    """Every expected value of a worked case is computed."""
    case = CASES[name]

    assert COMPUTE[name](case["inputs"]) == pytest.approx(
        case["expected"], rel=case.get("rtol", 1e-9)
    )


# Figures of logs.


@pytest.mark.parametrize(
    ("source", "check", "printed"),
    LOGS,
    ids=[f"{i}-{source[:40]}-{check['rule']}" for i, (source, check, _) in enumerate(LOGS)],
)
def test_figures_of_logs(source: str, check: Any, printed: Any) -> None:
    """A figure holds within its rounding, or is off for the reason that is written beside it."""
    error = off(check)

    assert is_rounding(check, printed) != is_listed(check), source
    if is_listed(check):
        assert (abs(error) > 0.01) == ("why" in check), f"{source}: {100 * error:+.2f} %"


def test_what_is_off_is_listed() -> None:
    """The page on accuracy counts the figures, and its tables are those that are made here."""
    page = (GOLDEN.parents[1] / "docs/accuracy.md").read_text("utf-8")
    listed = page[page.index("## Memory that engines print") :]

    for number in (0, 1):
        near, every = counted(number)
        assert f"{near} of {every} " in listed
        assert table_of_those_off(number) in listed


def test_nine_of_ten_figures_of_logs_hold() -> None:
    """Of pools, tokens, blocks, concurrencies and caches at least 90 % are within 1 %."""
    parts = [c for _, c, _ in LOGS if c["rule"] not in OTHER]
    stated = [c for c in parts if not c.get("unstated")]

    for some, least in ((parts, 0.9), (stated, 0.98)):
        near = [c for c in some if abs(off(c)) <= 0.01]
        assert len(near) / len(some) >= least


# The registry.


def test_every_engine_of_the_registry_reads_and_names_its_sources() -> None:
    """Rules are complete, ranges are in order, and each says where it is from."""
    for name in memory_engines():
        rules = find_rules(name)
        assert rules["sources"]
        for ends in rules["ranges"].values():
            assert ends["low_gib"] <= ends.get("usual_gib", ends["low_gib"]) <= ends["high_gib"]
            assert ends["source"]


def test_settings_follow_version_and_device() -> None:
    """Older versions and larger devices have settings of their own; an A100 is not large."""
    rules = find_rules("vllm")
    old, new = Asked("vllm", version=(0, 12)), Asked("vllm")

    assert usual(rules, "utilization", old, 80e9, "h100-sxm") == 0.9
    assert usual(rules, "utilization", new, 80e9, "h100-sxm") == 0.92
    assert usual(rules, "batched_tokens", new, 80e9, "h100-sxm") == 8192
    assert usual(rules, "batched_tokens", new, 80e9, "a100-sxm-80gb") == 2048
    assert usual(rules, "batched_tokens", new, 25e9, "rtx-4090") == 2048
    assert parse_version("v0.21.0") > parse_version("0.21")
    with pytest.raises(RooflmError, match="is not a version"):
        parse_version("newest")


def test_pages_of_unlike_sizes_are_made_one() -> None:
    """Smaller pages get more tokens where they divide the largest; else they are padded."""
    found = cache_groups(find_model("gemma-4-31b"), BF16, 16)
    sizes = {(c.kind, c.block, c.page) for c in found.caches}

    assert sizes == {("window", 16, 262144), ("full", 32, 262144)}
    assert found.counts == [5, 1]


def test_compressed_caches_are_refused_for_vllm() -> None:
    """What is not modelled is not guessed."""
    with pytest.raises(RooflmError, match="packs compressed caches"):
        cache_groups(find_model("deepseek-v4-flash"), BF16, 256)


def test_a_refusal_names_an_engine_that_accepts() -> None:
    """Of all presets and engines, whatever is said to take takes the model."""
    machine = find_machine("h100-sxm")
    named: Counter[str] = Counter()
    for name in preset_names(MODELS_FILE):
        case = Case(find_model(name), machine, capacity_bytes=10**14)
        for engine in memory_engines():
            said = ""
            try:
                engine_memory(case, Asked(engine, max_len=4096))
            except RooflmError as e:
                said = str(e)
            other = re.search(r"Take --engine (\S+)\.", said)
            assert other or not said or case.model.denoises, (name, engine, said)
            if other:
                named[other[1]] += 1
                engine_memory(case, Asked(other[1], max_len=4096))

    assert named["vllm"] > 30
    assert named["sglang"] >= 8


# The command line.

FIT = ("fit", "llama-3-8b", "--on", "h100-sxm", "--engine", "vllm", "--utilization", "0.9")
GIVEN = ("--peak-activation", "1.5GB", "--non-torch", "500MB", "--engine-version", "0.12")


def test_the_pool_of_the_worked_case_comes_out_of_the_command(rooflm: Terminal) -> None:
    """With all inputs given the pool is one number, and everything beside it as without."""
    held = ("--capacity", "81559MiB")
    answer = rooflm.json(*FIT, *GIVEN, *held, "--max-len", "4096")
    engine = answer.pop("engine")
    plain = rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", *held, "--context", "4096")
    expected = CASES["t20_vllm_kv_budget"]["expected"]

    # An engine keeps memory free by itself.
    assert "kept free" in plain["assumptions"].pop(0)
    assert answer["assumptions"].pop() == "--context is --max-len"
    assert answer == plain
    assert answer["schema"] == "rooflm.fit/1"
    # The worked case leaves norms and rounding of the weights out.
    assert engine["pool_bytes"] == pytest.approx(expected["kv_bytes"], rel=1e-4)
    assert engine["pool_low_bytes"] == engine["pool_bytes"] == engine["pool_high_bytes"]
    assert engine["tokens"] == 16 * engine["blocks"]
    assert engine["max_concurrency"] == engine["blocks"] / 256
    assert engine["request_needed_bytes"] == engine["request_reserved_bytes"] == 4096 * 131072


@pytest.mark.parametrize(
    ("words", "length", "says"),
    [
        # A request of the typed context is what the engine is started for.
        ("--engine vllm --context 4096", 4096, "--max-len 4096, by --context; left to itself"),
        ("--engine vllm", 8192, ""),
        # vllm-project/vllm, vllm/config/model.py; sgl-project/sglang pull request 1778.
        ("--engine vllm --context 500k", 500_000, "does not start unless VLLM_ALLOW_LONG"),
        ("--engine sglang --max-len 9k", 9000, "does not start unless SGLANG_ALLOW_OVERWRITE"),
        # ollama/ollama pull request 1971: the length of the model is taken instead.
        ("--engine ollama --context 80k", 8192, "80,000: Ollama takes that of the model"),
        # ollama/ollama, docs/context-length.mdx and pull request 13946: 4k, 32k and 256k by memory.
        ("--engine ollama --capacity 22GiB", 4096, ""),
        ("--engine ollama --capacity 24GB", 4096, ""),
        ("--engine ollama --capacity 24GiB --set max_context=131072", 32768, ""),
        ("--engine ollama --set max_context=1048576", 262144, ""),
        ("--engine ollama --engine-version 0.15.4", 4096, ""),
        # llama.cpp: -c is that of all slots together.
        ("--engine llama.cpp --context 4096 --max-sequences 2", 8192, "--max-len 8192"),
        ("--engine llama.cpp --context 10240", 10240, "llama.cpp warns and starts"),
    ],
)
def test_an_engine_is_started_for_the_context_that_is_typed(
    rooflm: Terminal, words: str, length: int, says: str
) -> None:
    """Where nothing is typed it takes the 8,192 tokens of llama-3-8b's config.json."""
    answer = rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", *words.split())

    assert answer["engine"]["max_len"] == length
    assert says in " ".join(answer["assumptions"][:2])


@pytest.mark.parametrize(
    ("words", "pool", "blocks"),
    [
        # vllm-project/vllm#11251 and #15039: what was typed, seen and profiled, as their logs say.
        (
            ("llama-3.1-8b", "--on", "2xv100-sxm2-16gb", "--weights", "fp16", "--capacity",
             "15.77GiB", "--utilization", "0.9", "--max-len", "40000", "--peak-activation",
             "2.53GiB", "--non-torch", "0.39GiB"), 3.76, 3852,
        ),
        (
            ("llama-3.3-70b", "--on", "4xh100-sxm", "--capacity", "79.33GiB", "--utilization",
             "0.89", "--max-len", "131072", "--peak-activation", "1.3GiB", "--non-torch",
             "0.28GiB"), 36.07, 29547,
        ),
    ],
)  # fmt: skip
def test_pools_of_logs_come_out_of_the_command(
    rooflm: Terminal, words: tuple[str, ...], pool: float, blocks: int
) -> None:
    """From settings and profile alone the pool of a log is met within 1 %."""
    engine = rooflm.json("fit", *words, "--engine", "vllm", "--engine-version", "0.7")["engine"]

    assert engine["pool_bytes"] / GIB == pytest.approx(pool, rel=0.01)
    assert engine["blocks"] == pytest.approx(blocks, rel=0.01)


def test_the_other_formats_have_the_engine_too(rooflm: Terminal) -> None:
    """Markdown has its table; CSV has the rows of the mathematics, as without an engine."""
    csv = rooflm(*FIT, "--format", "csv").out

    assert "| available for caches [GiB] |" in rooflm(*FIT, "--format", "md").out
    assert csv == rooflm(*FIT[:4], "--format", "csv").out


def test_what_only_a_run_can_tell_makes_an_interval(rooflm: Terminal) -> None:
    """Without them a pool has a least and a most; every input names its range and source."""
    engine = rooflm.json(*FIT)["engine"]

    for key in ("pool{}_bytes", "tokens{}", "max_concurrency{}"):
        assert engine[key.format("_low")] < engine[key.format("")] < engine[key.format("_high")]
    assert [one["input"] for one in engine["inputs"]] == ["peak_activation", "non_torch", "graphs"]
    assert all(not one["given"] and "issue" in one["source"] for one in engine["inputs"])


def test_graphs_count_inside_from_0_21_on(rooflm: Terminal) -> None:
    """The same server has a smaller pool since, and an older one has no such input."""
    new = rooflm.json(*FIT, *GIVEN[:-1], "0.21", "--graphs", "1GiB")["engine"]
    old = rooflm.json(*FIT, *GIVEN)["engine"]

    assert old["pool_bytes"] - new["pool_bytes"] == pytest.approx(GIB)
    assert new["share_without_graphs"] == pytest.approx(0.9 - GIB / new["total_bytes"])
    assert "graphs_bytes" not in old


def test_the_page_has_the_engine_lines(rooflm: Terminal) -> None:
    """People see the lines of the log, in GiB, beside the usual page in GB."""
    shown = rooflm(*FIT, "--max-len", "8192").out

    for line in (
        "available for caches [GiB]", "blocks", "maximum concurrency for 8,192 tokens per request",
        "estimated maximum model length", "needed [GiB]", "reserved [GiB]", "margin [GB]",
    ):  # fmt: skip
        assert line in shown


def test_windows_reserve_more_than_they_need(rooflm: Terminal) -> None:
    """A window layer holds its window and a pass, in blocks; need and reservation are apart."""
    words = ("fit", "gemma-3-27b", "--on", "h100-sxm", "--engine", "vllm")
    wide, narrow = (
        rooflm.json(*words, "--max-batched-tokens", n)["engine"] for n in ("8192", "1024")
    )

    assert wide["request_needed_bytes"] == narrow["request_needed_bytes"] == 11_173_625_856
    assert wide["request_reserved_bytes"] > narrow["request_reserved_bytes"] > 11_173_625_856
    # 52 layers with a window in groups of 10: six groups of 577 blocks, and one of 8,192.
    assert [g["groups"] for g in wide["groups"]] == [6, 1]
    assert [g["request_blocks"] for g in wide["groups"]] == [577, 8192]


def test_ranks_have_the_pool_of_the_smallest(rooflm: Terminal) -> None:
    """Split heads make tokens cheaper on each rank; latents are on every rank."""
    one, two = (
        rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", "--engine", "vllm", *tp)["engine"]
        for tp in ((), ("--tp", "2"))
    )
    latent = rooflm.json("fit", "deepseek-v3", "--on", "8xh200-sxm", "--weights", "fp8",
                         "--engine", "vllm", "--max-len", "8192", "--block", "64")  # fmt: skip

    assert two["groups"][0]["page_bytes"] * 2 == one["groups"][0]["page_bytes"]
    assert latent["engine"]["groups"][0]["page_bytes"] == 64 * 576 * 2


@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_keys_of_indexers_take_8_bits(rooflm: Terminal, engine: str) -> None:
    """1,024 tokens of GLM-5 take 78 layers x (2 x 576 + 132) B, whatever a cache of 16 bits says.

    Source: sglang, memory_pool.py (NSATokenToKVPool); vllm, deepseek_v2.py (Indexer).
    """
    words = ("--engine", engine, "--tp", "8", "--max-len", "1024")
    answer = rooflm.json("fit", "glm-5", "--on", "8xh200-sxm", "--weights", "fp8", *words)

    assert answer["engine"]["request_needed_bytes"] == 1024 * 78 * (2 * 576 + 132)
    assert any("keys of indexers in 8 bits" in said for said in answer["engine"]["sentences"])


def test_blocks_of_torch_keep_up_to_a_mib_behind_them() -> None:
    """By hand, from the rules of CUDACachingAllocator.cpp; sizes in MiB."""
    torch = Allocator()

    def take(size: float) -> float:
        return torch.take(size * 2**20) / 2**20

    # 6 is cut from a segment of 20; 15.5 has one of 16, of which too little is left.
    assert [take(6), take(15.5)] == [6, 16]
    assert [take(9), take(4.5), take(0.5), take(1e-6)] == [9, 5, 0.5, 512 / 2**20]
    torch.give_back(0)
    torch.give_back(1)
    # 6 and 9 lay side by side: together they hold 14, with 1 behind it.
    assert take(14) == 15
    assert torch.held == (16 + 15 + 5 + 0.5) * 2**20 + 512


def test_no_weight_is_left_out_of_blocks() -> None:
    """Of every preset the blocks take the weights, and under 3 % more."""
    for name in preset_names(MODELS_FILE):
        model = find_model(name)
        held, asked = allocated_bytes(model, BF16), float(weights_bytes(model, BF16))
        assert asked <= held < 1.03 * asked, name


def test_sglang_takes_a_share_by_the_device(rooflm: Terminal) -> None:
    """0.835 of an H100, as its logs say (mem_fraction_static=0.835, chunked_prefill_size=8192)."""
    engine = rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", "--engine", "sglang")["engine"]
    small = rooflm.json("fit", "qwen3-4b", "--on", "rtx-4090", "--engine", "sglang")["engine"]

    assert (engine["share"], engine["max_batched_tokens"]) == (0.835, 8192)
    # By hand: 512 + 1.5 * 2,048 + 2 * 24 + 128 MiB of 24,564.
    assert (small["share"], small["max_batched_tokens"]) == (0.847, 2048)


def test_groups_have_pools_of_their_own(rooflm: Terminal) -> None:
    """Lines of vLLM are those of one group of --dp; experts are spread over all ranks.

    Source: https://docs.vllm.ai/en/latest/serving/data_parallel_deployment.html
    """
    words = ("fit", "qwen3-30b-a3b", "--on", "h100-sxm", "--engine", "vllm", "--max-len", "8192")
    one, two = (
        rooflm.json(*words, "--tp", "2", *more)["engine"]
        for more in ((), ("--dp", "2", "--ep", "4"))
    )
    ran = rooflm(*words, "--tp", "2", "--dp", "2", "--ep", "2")

    assert (one["pools"], two["pools"]) == (1, 2)
    assert two["request_needed_bytes"] == one["request_needed_bytes"]
    # Of 128 experts in 48 layers a rank holds a quarter instead of a half.
    experts = 48 * 128 * 3 * 2048 * 768 * 2
    assert one["weights_bytes"] - two["weights_bytes"] == pytest.approx(experts / 4, rel=1e-6)
    assert "each of 2 groups" in two["sentences"][0]
    assert (ran.code, "Say --ep 4" in ran.err) == (2, True)
    ran = rooflm("fit", "gemma-3-27b", "--on", "h100-sxm", "--engine", "vllm", "--pp", "2")
    assert (ran.code, "Take --tp instead." in ran.err) == (2, True)


def test_sglang_shares_a_pool_between_windows_and_the_rest(rooflm: Terminal) -> None:
    """Tokens of window layers are a share of all; free memory that is given leaves no interval."""
    engine = rooflm.json(
        "fit", "gemma-3-27b", "--on", "h200-sxm", "--engine", "sglang", "--free", "139GiB",
        "--utilization", "0.9", "--window-ratio", "0.5",
    )["engine"]  # fmt: skip

    assert engine["window_tokens"] == engine["tokens"] // 2
    assert engine["pool_low_bytes"] == engine["pool_high_bytes"]
    assert engine["pool_bytes"] == pytest.approx(0.9 * 139 * GIB - engine["weights_bytes"])


@pytest.mark.parametrize(
    ("engine", "setting", "why"),
    [
        ("vllm", "--state-blocks", "no layers with a state (--state-blocks)"),
        ("sglang", "--state-ratio", "no layers with a state (--state-ratio)"),
        ("sglang", "--window-ratio", "no layers with a window beside others (--window-ratio)"),
    ],
)
def test_settings_of_layers_that_are_not_there_are_refused(
    engine: str, setting: str, why: str, rooflm: Terminal
) -> None:
    """Llama has neither windows nor states: what is set of them would change nothing."""
    words = ("fit", "llama-3-8b", "--on", "h100-sxm", "--engine", engine, setting)
    ran = rooflm(*words, "2" if engine == "vllm" else "0.5")

    assert (ran.code, why in ran.err) == (2, True)


def test_sglang_divides_a_pool_between_states_and_caches(rooflm: Terminal) -> None:
    """A ratio of 0.9 gives states 9/19 of the pool, in whole states."""
    engine = rooflm.json("fit", "qwen3.5-9b", "--on", "h100-sxm", "--engine", "sglang")["engine"]
    part = engine["state_pool_bytes"] / engine["pool_bytes"]

    assert part == pytest.approx(0.9 / 1.9, rel=0.01)
    assert engine["tokens"] == int(
        (engine["pool_bytes"] - engine["state_pool_bytes"]) // (8 * 4 * 256 * 4)
    )


def test_tensorrt_takes_a_share_of_what_is_free(rooflm: Terminal) -> None:
    """Free memory after loading times the fraction, in blocks of 32, of 64 before 1.0."""
    words = ("fit", "llama-3-8b", "--on", "rtx-5090", "--engine", "tensorrt-llm", "--kv", "fp8",
             "--free", "17.83GiB")  # fmt: skip
    new, old = rooflm.json(*words)["engine"], rooflm.json(*words, "--engine-version", "0.9")
    # A log prints 16.05 GiB and 263,008 tokens; its free memory is rounded.
    assert new["pool_bytes"] / GIB == pytest.approx(16.05, abs=0.01)
    assert new["tokens"] == pytest.approx(263_008, rel=1e-3)
    assert (new["block_tokens"], old["engine"]["block_tokens"]) == (32, 64)


def test_llama_allocates_all_at_once(rooflm: Terminal) -> None:
    """K and V are equal, in cells of whole pads; host layers keep their cache on the host."""
    words = ("fit", "qwen3-8b", "--on", "rtx-4090", "--engine", "llama.cpp", "--max-len", "1000")
    whole = rooflm.json(*words)["engine"]
    half = rooflm.json(*words, "--gpu-layers", "18")["engine"]

    assert whole["cells"] == 1024
    assert whole["k_bytes"] == whole["v_bytes"] == 1024 * 36 * 8 * 128 * 2
    assert half["pool_bytes"] == whole["pool_bytes"] / 2
    assert whole["starts"] is True


def test_ollama_multiplies_a_context_by_its_slots(rooflm: Terminal) -> None:
    """num_ctx is that of each slot, where -c of llama.cpp is dealt out."""
    words = ("fit", "qwen3-8b", "--on", "rtx-4090", "--max-len", "4096", "--max-sequences", "4")
    each, whole = (
        rooflm.json(*words, "--engine", name)["engine"]["cells"] for name in ("ollama", "llama.cpp")
    )

    assert (each, whole) == (16384, 4096)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--utilization", "0.9"), "no engine is named (--utilization). Say --engine vllm"),
        (("--engine", "vlm"), "Did you mean vllm?"),
        (("--engine", "llama.cpp", "--utilization", "0.9"), "has no such setting (--utilization)"),
        (("--engine", "vllm", "--utilization", "95"), "is not a share between 0 and 1"),
        (("--engine", "vllm", "--engine-version", "x"), "is not a version (--engine-version)"),
        (("--engine", "vllm", "--gpu-layers", "10"), "keeps all layers on the device"),
        (("--engine", "sglang", "--engine-version", "0.4"), "Say --utilization 0.88 as well."),
        (("--engine", "llama.cpp", "--tp", "2"), "Take --pp instead."),
        (("--engine", "vllm", "--accounting", "lecture"), "has no engine (--accounting)"),
        (("--engine", "vllm", "--shared-prefix", "100"), "reserves nothing for what is shared"),
        (("--engine", "vllm", "--non-torch", "2Gb"), "bytes, not bits"),
    ],
)
def test_mistakes_say_how_to_mend_them(rooflm: Terminal, words: tuple[str, ...], said: str) -> None:
    """Settings that do not fit an engine are errors of usage."""
    ran = rooflm("fit", "llama-3-8b", "--on", "rtx-4090", *words)

    assert ran.code == 2
    assert said in ran.err


def test_a_model_that_does_not_fit_still_exits_1(rooflm: Terminal) -> None:
    """Exit codes are those of the mathematics; the engine says that it would not start."""
    ran = rooflm("fit", "llama-3-70b", "--on", "rtx-4090", "--engine", "vllm", "--format", "json")

    assert ran.code == 1
    assert ran.json["engine"]["starts"] is False
    assert ran.json["engine"]["blocks"] == 0


def test_cells_and_groups_round_as_the_engines_do() -> None:
    """By hand, where the examples of the formulas come out even."""
    # 258 pads for 257 streams: 256.99 cells each, of which llama.cpp's integers keep 256.
    assert em.llama_cells(258 * 256, 257) == 256
    # 2000 + 512 cells are 9.8 pads; four slots keep four windows.
    assert em.llama_window_cells(32768, 2000) == 10 * 256
    assert em.llama_window_cells(32768, 1024, slots=4) == 4 * 1024 + 512
    # Half as many again is not near any more.
    assert [em.group_layers(10, most) for most in (10, 14, 15, 24)] == [10, 14, 10, 10]
    # A window of 5 and a pass of 10 hold 14 tokens, and a block more.
    assert paged_window_tokens(5, 100, batched=10, block=1) == 15
    assert paged_chunk_tokens(5, 100, batched=10, block=1) == 15


@pytest.mark.parametrize(
    ("kind", "limit", "blocks"),
    # 1000 tokens are 62.5 blocks; a window of 33 with a pass of 128 are 10 and one more, a chunk
    # of 64 with it 12; a state takes what is said.
    [("full", 0, 63), ("window", 33, 11), ("chunk", 64, 12), ("state", 0, 7)],
)
def test_blocks_of_a_request(kind: str, limit: int, blocks: int) -> None:
    """A request of 1000 tokens in blocks of 16."""
    assert Caches(kind, 2, 1, 16, limit).request_blocks(1000, 128, 7) == blocks


def test_groups_of_unlike_caches() -> None:
    """Pages of one size: a multiple of what divides it, padding for what does not."""

    def grouped(*layers: tuple[int, Attention]) -> Groups:
        groups = tuple(Group(n, layer, NoFeedForward()) for n, layer in layers)
        return cache_groups(Model("by hand", 32, 100, groups), BF16, 16)

    # Two, one and five heads of 8: 64, 32 and 160 bytes a token, 16 tokens a block.
    two, one = Attention(N=4, K=2, H=8), Attention(N=4, K=1, H=8)
    alike = grouped((3, two), (2, two))
    assert (alike.page, alike.layers, alike.counts, alike.joint) == (1024, 5, [1], False)
    # One table for both: a block is a page of each layer.
    unlike = grouped((3, two), (2, one))
    assert (unlike.page, unlike.layers, unlike.counts) == (3 * 1024 + 2 * 512, 1, [1])
    five = Attention(N=5, K=5, H=8, window=64)
    joint = grouped((3, two), (2, one), (4, five))
    assert {(c.kind, c.layers, c.page, c.block) for c in joint.caches} == {
        ("full", 3, 2560, 16), ("full", 2, 2560, 80), ("window", 4, 2560, 16),
    }  # fmt: skip
    # The fewest are 2 and the most 4: groups of two layers, the odd one padded.
    assert (joint.joint, joint.layers, sorted(joint.counts)) == (True, 2, [1, 2, 2])


def test_dp_attention_keeps_more_for_its_graphs(rooflm: Terminal) -> None:
    """By hand: 14,848 MiB, and 3 + 1.5 MiB for each of 512 sequences in 8 groups, of 143,771.

    Source: sgl-project/sglang, python/sglang/srt/server_args.py (enable_dp_attention), pull request
    10975. Without experts --dp are servers of their own: 0.835 of an H100, as one alone.
    """
    words = ("--dp", "8", "--engine", "sglang")
    grouped = rooflm.json("fit", "deepseek-v3", "--on", "h200-sxm", *words, "--weights", "fp8")
    apart = rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", *words)

    assert grouped["engine"]["total_bytes"] == 143_771 * 2**20
    assert grouped["engine"]["share"] == round(1 - (14_848 + 4.5 * 512 * 8) / 143_771, 3) == 0.769
    assert apart["engine"]["share"] == 0.835


def test_sglang_holds_no_more_requests_than_states_or_windows(rooflm: Terminal) -> None:
    """Slots of states end before tokens; a short request takes its length of the window pool too.

    By hand: tokens of window layers are 0.8 of the others, and a request of 1,000 tokens lies
    within Gemma's window of 4,096, so that it takes 1,000 of both.
    """
    words = ("--on", "h200-sxm", "--engine", "sglang", "--max-len", "1000")
    states = rooflm.json("fit", "qwen3-next-80b-a3b", "--tp", "2", *words)["engine"]
    windows = rooflm.json("fit", "gemma-2-9b", *words)["engine"]

    assert states["max_concurrency"] == states["state_slots"] < states["tokens"] / 1000
    assert any("line of tokens" in s for s in states["sentences"])
    assert windows["max_concurrency"] == int(0.8 * windows["tokens"]) / 1000
    assert windows["request_reserved_bytes"] == 1000 * 42 * 2 * 8 * 256 * 2


@pytest.mark.parametrize("engine", memory_engines())
def test_no_engine_reserves_less_than_the_need(engine: str) -> None:
    """A request needs no more than an engine keeps for it, whatever its layers are.

    By the definitions: what is needed is part of what is reserved.
    """
    machine = find_machine("b200-sxm")
    judged = 0
    for name in preset_names(MODELS_FILE):
        model = find_model(name)
        case = Case(model, machine, precision_of(None, model=model), capacity_bytes=10**13)
        for length in (1000, 20_000) if len(model.groups) > 1 else (1000,):
            asked = Asked(engine, max_len=length, utilization=0.9)
            try:
                found = engine_memory(case, asked)
            except RooflmError:
                continue
            judged += 1
            needed, reserved = found["request_needed_bytes"], found["request_reserved_bytes"]
            assert needed <= reserved * (1 + 1e-12), (name, length)
    assert judged > 100


@pytest.mark.parametrize(
    ("words", "state", "block", "padded"),
    [
        # By hand: 32 matrices of 128 x 128 and three columns of 8,192, all in bf16, and the padding
        # of 1.49 % that logs print of Qwen3-Next-80B (544: vllm-project/vllm issue 25797).
        ("qwen3-next-80b-a3b --tp 1", (32 * 128 * 128 + 3 * 8192) * 2, 544, 1.49),
        # mamba_ssm_dtype is float32 in the config of Qwen3.5: a log prints 544 and 2.64 %.
        ("qwen3.5-0.8b", 16 * 128 * 128 * 4 + 3 * 6144 * 2, 544, 2.64),
        ("qwen3.5-27b", 48 * 128 * 128 * 4 + 3 * 10240 * 2, 784, None),
        ("qwen3-next-80b-a3b --state fp32", 32 * 128 * 128 * 4 + 3 * 8192 * 2, 1056, None),
    ],
)  # fmt: skip
def test_vllm_keeps_states_in_the_format_of_the_model(
    rooflm: Terminal, words: str, state: int, block: int, padded: float | None
) -> None:
    """States are in the model's format where neither the checkpoint nor --state says another."""
    engine = rooflm.json("fit", *words.split(), "--on", "b200-sxm", "--engine", "vllm",
                         "--max-len", "4096")["engine"]  # fmt: skip
    page = next(g["page_bytes"] for g in engine["groups"] if g["kind"] == "full")

    assert engine["block_tokens"] == block
    assert padded is None or round(100 * (page / state - 1), 2) == padded
    assert page >= state
    assert any(s.startswith("states in ") for s in engine["sentences"]) is ("--state" not in words)


@pytest.mark.parametrize(
    ("words", "block"),
    [
        ("deepseek-v3 --on 8xh200-sxm", 16),
        ("deepseek-v3 --on 8xh200-sxm --kv fp8", 64),
        ("deepseek-v3 --on 8xh200-sxm --engine-version 0.11", 64),
        ("deepseek-v3.2 --on 8xh200-sxm", 64),
        ("deepseek-v3 --on 8xb200-sxm", 32),
        ("deepseek-v3 --on 8xb200-sxm --engine-version 0.11", 128),
        ("deepseek-v3 --on 8xb200-sxm --block 64", 64),
    ],
)
def test_blocks_of_latents_are_those_of_the_kernel(
    rooflm: Terminal, words: str, block: int
) -> None:
    """FlashMLA takes 64, CUTLASS 128, FlashInfer 32, FlashAttention any 16; tokens are alike.

    Source: vllm-project/vllm, vllm/platforms/cuda.py ("Forcing kv cache block size to 64 for
    FlashMLA backend", 128 for CUTLASS_MLA; "Setting kv cache block size to 32 for FLASHINFER_MLA").
    """
    more = ("--weights", "fp8", "--engine", "vllm", "--max-len", "8192")
    engine = rooflm.json("fit", *words.split(), *more)["engine"]
    same = words.partition(" --block")[0].split()
    plain = rooflm.json("fit", *same, *more, "--block", "16")["engine"]

    assert engine["block_tokens"] == block
    assert plain["tokens"] - block < engine["tokens"] <= plain["tokens"]
    assert engine["blocks"] == plain["blocks"] * 16 // block
    latents = any(s.startswith("blocks of latents") for s in engine["sentences"])
    assert latents is ("--block" not in words)


def test_an_engine_may_see_less_than_the_driver_s_tools(rooflm: Terminal) -> None:
    """Logs of an A100 have 79.15 GiB where nvidia-smi has 80.00: the least pool counts with it."""
    words = ("fit", "llama-3-8b", "--on", "a100-sxm-80gb", "--engine", "vllm", *GIVEN)
    told = rooflm.json(*words)["engine"]
    seen = rooflm.json(*words, "--capacity", "79.15GiB")["engine"]

    assert told["pool_low_bytes"] <= seen["pool_bytes"] < told["pool_bytes"]
    assert told["pool_low_bytes"] == pytest.approx(seen["pool_bytes"], rel=1e-3)
    assert any("--capacity 79.2GiB" in said for said in told["sentences"])
    assert not any("--capacity 79.2GiB" in said for said in seen["sentences"])


def test_llama_cpp_keeps_columns_of_convolutions_in_fp32(rooflm: Terminal) -> None:
    """A log of four slots of a 27B hybrid has 598.5 MiB: 4 x (144 + 5.625), all in fp32."""
    words = ("fit", "qwen3.5-27b", "--on", "h200-sxm", "--engine", "llama.cpp")
    engine = rooflm.json(*words, "--max-len", "262144", "--max-sequences", "4")["engine"]

    assert engine["state_bytes"] == 598.5 * 2**20


def test_a_file_of_gpt_oss_keeps_its_experts(rooflm: Terminal) -> None:
    """Unsloth's gpt-oss-20b-Q4_K_M.gguf has 11,624,759,488 bytes, experts in mxfp4 among them."""
    answer = rooflm.json("fit", "gpt-oss-20b", "--on", "rtx-4090", "--weights", "q4_k_m")

    assert answer["memory"]["weights_bytes"] == pytest.approx(11_624_759_488, rel=1e-3)
    assert "experts mxfp4" in answer["assumptions"][1] + answer["assumptions"][0]
    whole = rooflm.json("fit", "gpt-oss-20b", "--on", "rtx-4090", "--weights", "rest=q4_k_m")
    assert whole["memory"]["weights_bytes"] > 15e9


def test_weights_of_ollama_s_tags_are_told(rooflm: Terminal) -> None:
    """Its library's tags without a word for a format are in four bits."""
    words = ("fit", "llama-3-8b", "--on", "rtx-4090", "--engine", "ollama")
    told = "--weights q4_k_m"

    assert any(told in said for said in rooflm.json(*words)["assumptions"])
    assert not any(told in s for s in rooflm.json(*words, "--weights", "q8_0")["assumptions"])


def test_experts_that_kernels_pad_may_leave_no_pool(rooflm: Terminal) -> None:
    """gpt-oss-120b on one H100 at 0.95 left 1.71 GiB (vllm issue 27508), of 13.8 otherwise."""
    words = ("fit", "gpt-oss-120b", "--on", "h100-sxm", "--engine", "vllm", "--engine-version",
             "0.11", "--utilization", "0.95", "--max-batched-tokens", "1024")  # fmt: skip
    engine = rooflm.json(*words)["engine"]
    plain = rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", "--engine", "vllm")["engine"]

    assert engine["weights_bytes"] == pytest.approx(64.38 * 2**30, rel=1e-3)
    assert engine["pool_low_bytes"] < 4.5 * 2**30
    assert engine["sentences"][0].startswith("kernels of experts in mxfp4 pad")
    assert not any("mxfp4" in said for said in plain["sentences"])
