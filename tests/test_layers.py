"""Pairs, entries and states against counting one by one; solved contexts against all contexts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rooflm.calc.attention import Attention
from rooflm.calc.case import Case, memory_bytes
from rooflm.calc.compressed import (
    Compressed,
    all_entry_pairs,
    compressed_cache_elements,
    entry_pairs,
    scored_entry_pairs,
)
from rooflm.calc.diffusion import sweep_diffusion
from rooflm.calc.errors import RooflmError
from rooflm.calc.inverse import step_s
from rooflm.calc.mlp import MLP
from rooflm.calc.model import (
    Group,
    Model,
    cache_elements,
    check_both_ways,
    ledger,
    total_parameters,
)
from rooflm.calc.passes import Segment, decode, denoise
from rooflm.calc.presets import find_model
from rooflm.calc.solve import Target, solve
from rooflm.calc.sparse import SparseAttention, block_pairs, indexed_pairs
from rooflm.calc.timing import flops

from .helpers import Terminal, h100

small = st.integers(0, 60)
positive = st.integers(1, 40)


def counted(n: int, T: int, sees: Callable[[int], int]) -> int:
    """Add up what the queries at positions n + 1 to n + T see, one by one."""
    return sum(sees(x) for x in range(n + 1, n + T + 1))


@given(n=small, T=positive, k=positive)
def test_an_indexer_scores_all_tokens_of_queries_that_see_more_than_it_chooses(
    n: int, T: int, k: int
) -> None:
    """The closed form equals the sum over queries."""
    assert indexed_pairs(n, T, k) == counted(n, T, lambda x: x if x > k else 0)


@given(n=small, T=positive, k=st.integers(1, 6), block=st.integers(1, 9))
def test_blocks_of_keys_that_a_query_chooses(n: int, T: int, k: int, block: int) -> None:
    """A query sees the keys of k blocks at the most, its own open one among them."""

    def sees(x: int) -> int:
        blocks = -(-x // block)
        return x if blocks <= k else (k - 1) * block + x - (blocks - 1) * block

    assert block_pairs(n, T, k, block) == counted(n, T, sees)


@given(n=small, T=positive, k=st.integers(1, 8), m=st.integers(1, 9))
def test_entries_that_a_query_sees_chooses_and_scores(n: int, T: int, k: int, m: int) -> None:
    """floor(x/m) entries are there for the query at position x."""
    assert all_entry_pairs(n, T, m) == counted(n, T, lambda x: x // m)
    assert entry_pairs(n, T, m, k) == counted(n, T, lambda x: min(k, x // m))
    assert scored_entry_pairs(n, T, m, k) == counted(n, T, lambda x: x // m if x // m > k else 0)


@given(T=positive, cut=positive, m=st.integers(1, 9))
def test_chunks_of_a_prefill_add_up_to_the_whole(T: int, cut: int, m: int) -> None:
    """Work of attention over compressed entries does not depend on how a prompt is cut."""
    mixer = Compressed(N=2, H=8, q=4, window=5, groups=1, rank=2, m=m, index_heads=1,
                       index_width=4, top=3)  # fmt: skip
    whole = Segment(1, T + cut, 0)
    parts = (Segment(1, cut, 0), Segment(1, T, cut))

    assert mixer.pairs(whole) == sum(mixer.pairs(s) for s in parts)


def entries_model() -> Model:
    """Make a small model of all three kinds of compressed layers."""
    kinds = (
        Compressed(N=4, H=64, q=32, window=16, groups=2, rank=16),
        Compressed(N=4, H=64, q=32, window=16, groups=2, rank=16, m=12),
        Compressed(N=4, H=64, q=32, window=16, groups=2, rank=16, m=5, index_heads=2,
                   index_width=16, top=10),
    )  # fmt: skip
    mlp = MLP(64)
    groups = tuple(Group(3, m, mlp, name=n) for m, n in zip(kinds, "abc", strict=True))
    return Model("entries", 128, 1000, groups)


def test_solved_contexts_of_compressed_layers_equal_the_longest_of_all() -> None:
    """Within a memory and within a latency, against trying every context."""
    contexts, B = range(1, 400), 3
    case = Case(entries_model(), h100())
    sizes = [memory_bytes(case, B, S) for S in contexts]
    times = [step_s(case, B, S) for S in contexts]
    assert times == sorted(times)
    for at in (59, 333):
        held = replace(case, capacity_bytes=sizes[at])
        answer = solve(held, "context", B, 1, Target())
        assert answer["value"] == max(
            S for S, size in zip(contexts, sizes, strict=True) if size <= sizes[at]
        )
        assert answer["formula"] == "largest S with whole <= M"
        timed = solve(case, "context", B, 1, Target(latency_s=times[at]))
        assert timed["value"] == max(
            S for S, time in zip(contexts, times, strict=True) if time <= times[at]
        )


def test_solved_contexts_of_chosen_blocks_equal_the_longest_of_all() -> None:
    """A block that is opened makes the step faster for a while: the last context counts."""
    mixer = SparseAttention(N=4, K=2, H=64, index_heads=2, index_width=16, top=3, block=16)
    case = Case(Model("blocks", 128, 1000, (Group(3, mixer, MLP(64)),)), h100())
    contexts = range(1, 400)
    times = [step_s(case, 300, S) for S in contexts]
    assert times != sorted(times)
    for at in (60, 143, 150, 257):
        answer = solve(case, "context", 300, 1, Target(latency_s=times[at]))
        assert answer["value"] == max(
            S for S, time in zip(contexts, times, strict=True) if time <= times[at]
        )


def test_cache_equals_weights_at_a_whole_context() -> None:
    """Of compressed layers the first context whose entries outweigh the weights is told."""
    model = entries_model()
    answer = solve(Case(model, h100()), "context", 1, 1, Target(when="cache-equals-weights"))
    S, weights = answer["value"], total_parameters(model)

    assert cache_elements(model, S) >= weights > cache_elements(model, S - 1)


def test_the_regime_of_entries_is_not_solved_for_a_context() -> None:
    """Entries come in steps: that question is refused with a way out."""
    with pytest.raises(RooflmError, match="Sweep --context instead"):
        solve(Case(entries_model(), h100()), "context", 1, 1, Target(when="compute-bound"))


@given(S=st.integers(1, 10**6), W=positive, c=positive, m=positive)
def test_a_longer_context_never_takes_less(S: int, W: int, c: int, m: int) -> None:
    """The compressed cache grows or stays with every token."""
    assert compressed_cache_elements(S + 1, W, c, m) >= compressed_cache_elements(S, W, c, m)


def test_a_denoising_step_is_the_square_of_its_context() -> None:
    """Both ways and without a cache: 4NH S² FLOPs of attention a layer, logits of all positions."""
    model = find_model("llama-2-7b")
    S, ops = 100, ledger(find_model("llama-2-7b"), denoise(3, 100))
    attention = next(op for op in ops if op.name == "attention")
    head = next(op for op in ops if op.name == "head")

    assert attention.flops == 4 * 3 * 32 * 128 * S * S
    assert attention.read_bytes == 0
    assert sum(op.write_bytes for op in ops) == 0
    assert head.flops == 2 * 3 * S * 4096 * 32000
    assert flops(ops) > S * flops(ledger(model, decode(3, 1)))


def test_the_batch_that_ends_the_advantage_is_the_first() -> None:
    """At even_batch decoding is as fast, one sequence before it is not."""
    case = Case(find_model("llama-3-8b"), h100())

    def speedup(B: int) -> float:
        (row,) = sweep_diffusion(case, [B], [4096], block=32, steps=8)["rows"]
        return row["speedup"]

    (row,) = sweep_diffusion(case, [1], [4096], block=32, steps=8)["rows"]
    even = row["even_batch"]
    assert speedup(even) <= 1 < speedup(even - 1)
    assert row["tokens_per_s"] == pytest.approx(32 / row["time_s"], rel=1e-12)
    # A block has 32 rows, and 64 blocks have 2,048: the ridge of an H100 in 16 bits lies at 295.
    two = sweep_diffusion(case, [1, 64], [1024], block=32, steps=8)["rows"]
    assert [row["regime"] for row in two] == ["memory", "compute"]


@pytest.mark.parametrize(("name", "context"), [("llama-2-7b", 4096), ("mixtral-8x7b", 32768)])
def test_where_the_cache_outweighs_the_work_no_batch_ends_the_advantage(
    name: str, context: int
) -> None:
    """Two passes over the cache yield 32 tokens: 16 times fewer reads, at twice the work.

    A token of Llama 2 reads 4096 * 512 KiB / 3.35 TB/s = 641 us of cache in decoding, and computes
    2 * 2 * 6.6e9 / 989e12 = 27 us in a block. Of Mixtral: 1,282 us and 2 * 2 * 12.9e9: 52 us.
    """
    (row,) = sweep_diffusion(Case(find_model(name), h100()), [1], [context], 32, 1)["rows"]

    assert row["even_batch"] is None


def test_full_sequence_steps_lead_until_decoding_outruns_their_compute() -> None:
    """By hand: 4 tokens of 3.873e12 FLOP are 1,021 a second; 4 decoders make 863, 5 make 1,070.

    A decode step reads 15.0e9 B of weights and 256 * 512 KiB a sequence, at 3.35 TB/s. At 4,096
    tokens a step takes 61.4e12 + 4 * 32 * 4096 * 4096^2 = 70.2e12 FLOP, so that 32 tokens are 451
    a second; 2 decoders make 347, 3 make 469.
    """
    for step_tokens, context, even in ((4, 256, 5), (32, 4096, 3)):
        case = Case(find_model("llada-8b"), h100(), step_tokens=step_tokens)
        rows = sweep_diffusion(case, [1, 5], [context], None, 1)["rows"]

        assert [row["even_batch"] for row in rows] == [even, even]


def test_a_block_fits_a_device_that_it_fills() -> None:
    """To the byte; a device of one byte less is too small."""
    case = Case(find_model("llama-2-7b"), h100())

    def block(held: Case) -> dict[str, Any]:
        (row,) = sweep_diffusion(held, [3], [4096], block=32, steps=8)["rows"]
        return row

    full = block(case)["memory_bytes"]
    assert block(replace(case, capacity_bytes=full))["fits"]
    assert not block(replace(case, capacity_bytes=full - 1))["fits"]


def test_a_block_says_what_its_passes_are(rooflm: Terminal) -> None:
    """Eight passes that denoise and one that writes; no published step times them."""
    blocks = ("--denoise-block", "32", "--denoise-steps", "8")
    answer = rooflm.json("sweep", "llama-3-8b", "--on", "h100-sxm", *blocks)
    (row,), (first, *others) = answer["rows"], answer["assumptions"]

    assert row["passes"] == 9
    assert row["estimate_s"] is None
    assert first.startswith("denoise: a block of 32 tokens takes 8 passes over the cache")
    assert first.endswith("3.556 tokens a pass; weights bf16, cache bf16")
    assert not any(other.startswith(("denoise:", "decode:")) for other in others)
    assert any("no published step denoises" in other for other in others)


def test_a_step_for_each_token_is_the_most_and_grids_have_a_limit(
    rooflm: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """128 steps for 128 tokens yield one each; two batches of two prompts are four requests."""
    base = ("sweep", "llada-8b", "--on", "h100-sxm", "--phase", "request", "--output-tokens", "128")
    (row,) = rooflm.json(*base, "--prompt", "128", "--denoise-steps", "128")["rows"]
    monkeypatch.setattr("rooflm.calc.requests.MOST_WORKS", 3)
    ran = rooflm(*base, "--prompt", "64,128", "--batch", "1,2")

    assert (row["passes"], row["tokens_per_pass"]) == (128, 1)
    assert ran.code == 2
    assert "4 prefills or requests are more than 3" in ran.err


def test_diffusion_over_windows_or_states_is_refused() -> None:
    """What both ways means there is not known."""
    for mixer in (Attention(4, 4, 64, window=10), entries_model().groups[0].mixer):
        with pytest.raises(RooflmError, match="is not modelled"):
            check_both_ways(Model("m", 64, 100, (Group(1, mixer, MLP(64)),)))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("llama-2-7b", "--denoise-steps", "8"), "in blocks only"),
        (("llama-2-7b", "--denoise-block", "32"), "how many passes"),
        (("llama-2-7b", "--denoise-block", "32", "--denoise-steps", "8", "--context", "16"),
         "does not hold a block"),
        (("llama-2-7b", "--tokens-per-step", "2"), "decodes a token a step"),
        (("llada-8b", "--denoise-steps", "8"), "single step"),
        (("llada-8b", "--denoise-block", "32", "--denoise-steps", "8"), "without a cache"),
        (("llada-8b", "--phase", "prefill"), "together"),
        (("llada-8b", "--phase", "request", "--denoise-steps", "500"), "leave steps without one"),
        (("llada-8b", "--accounting", "lecture"), "of decode steps"),
        (("llada-8b", "--tokens-per-step", "5000", "--context", "256"), "cannot yield 5000"),
        (("llada-8b", "--context", "512@mixed"), "at one context a row"),
        (("llada-8b", "--phase", "request", "--tokens-per-step", "2", "--denoise-steps", "9"),
         "Say one of them"),
        (("llama-2-7b", "--denoise-block", "32", "--denoise-steps", "33"), "leave passes without"),
        (("gemma-3-1b", "--set", "denoises=true"), "over layers of kind sliding"),
        (("mamba-2.8b", "--state", "fp12"), "unknown number format"),
    ],
)  # fmt: skip
def test_what_denoising_cannot_mean_is_refused(
    rooflm: Terminal, words: tuple[str, ...], says: str
) -> None:
    """Each contradiction of options is one line with the option, exit 2."""
    ran = rooflm("sweep", *words, "--on", "h100-sxm")

    assert ran.code == 2
    assert says in ran.err


def test_a_generation_of_a_diffusion_model_is_its_steps(rooflm: Terminal) -> None:
    """32 steps over 256 positions take 32 times one, and yield 4 tokens each."""
    base = ("sweep", "llada-8b", "--on", "h100-sxm")
    request = ("--phase", "request", "--prompt", "128", "--output-tokens", "128")
    (step,) = rooflm.json(*base, "--context", "256", "--tokens-per-step", "4")["rows"]
    (whole,) = rooflm.json(*base, *request, "--denoise-steps", "32")["rows"]

    (said,) = rooflm.json(*base, *request, "--tokens-per-step", "4")["rows"]

    assert said == whole
    assert whole["e2e_s"] == pytest.approx(32 * step["time_s"], rel=1e-12)
    assert whole["tokens_per_s"] == pytest.approx(step["tokens_per_s"], rel=1e-12)
    assert whole["kv_cache_bytes"] == 0
    assert whole["ttft_s"] == whole["e2e_s"]


@pytest.mark.parametrize("name", ["mixtral-8x7b", "deepseek-v2", "llama-3-8b"])
def test_denoising_leads_at_no_batch_beyond_the_even_one(name: str) -> None:
    """Each batch is asked by itself; experts let the lead grow before it shrinks."""
    case = Case(find_model(name), h100())
    rows: list[dict[str, Any]] = sweep_diffusion(case, range(1, 300), [1024], 32, 8)["rows"]
    leading = [row["batch"] for row in rows if row["speedup"] > 1]

    assert {row["even_batch"] for row in rows} == {max(leading) + 1}


def test_no_context_makes_a_cache_of_a_model_that_keeps_none(rooflm: Terminal) -> None:
    """Full-sequence diffusion has nothing that could equal the weights."""
    ran = rooflm("solve", "context", "llada-8b", "--on", "h100-sxm",
                 "--when", "cache-equals-weights")  # fmt: skip

    assert ran.code == 1
    assert "keeps no cache" in ran.out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nemotron-h-8b", "--set", "G_m=3"), "G_m = 3 does not divide N_m = 128"),
        (("deepseek-v4-pro", "--set", "G_o=7"), "G_o = 7 does not divide N = 128"),
        (("qwen3-next-80b-a3b", "--set", "K_l=5"), "K_l = 5 does not divide N_l = 32"),
        (("llama-3-8b", "--set", "K=3"), "K = 3 does not divide N = 32"),
        (("zamba2-2.7b", "--set", "D=2048"), "sizes are given as one number"),
    ],
)
def test_dimensions_that_do_not_go_together_are_refused(
    rooflm: Terminal, words: tuple[str, ...], says: str
) -> None:
    """Whether they come from an entry or from the command line."""
    ran = rooflm("show", *words)

    assert ran.code == 2
    assert says in ran.err


def test_every_letter_that_is_shown_can_be_set(rooflm: Terminal) -> None:
    """Zamba2's sets of shared weights, Gemma's embedding of each layer: 35 x 128 x 3 less."""
    more = rooflm.json("show", "zamba2-2.7b", "--set", "L_s=3")["parameters"]["total"]
    less = rooflm.json("show", "gemma-4-e2b", "--set", "D_l=128")["parameters"]["total"]
    table, layers = 262_144 * 35 * 128, 35 * 2 * 1536 * 128
    # The projection from the model's width to that of all layers, and the norm after it.
    around = 1536 * 35 * 128 + 128

    assert more > rooflm.json("show", "zamba2-2.7b")["parameters"]["total"]
    assert rooflm.json("show", "gemma-4-e2b")["parameters"]["total"] - less == (
        table + layers + around
    )


def test_latents_that_never_pay_to_materialise_say_so(rooflm: Terminal) -> None:
    """A latent no wider than half of what it stands for: absorbing always takes fewer FLOPs."""
    ran = rooflm("show", "deepseek-v3", "--set", "c=128")

    assert ran.code == 0
    assert "decode absorbs the up-projections\n" in ran.out


@pytest.mark.parametrize(
    ("kv", "columns"), [("fp32", "fp32"), ("fp8", "bf16"), ("int8-head", "bf16")]
)
def test_columns_stay_as_computed_beside_a_cache_of_few_bits(
    rooflm: Terminal, kv: str, columns: str
) -> None:
    """The note names the format in which the bytes of columns are counted: 3 of 5,120 a layer."""
    answer = rooflm.json("fit", "mamba-2.8b", "--on", "h100-sxm", "--kv", kv)
    held = 64 * 5120 * (16 * 4 + 3 * {"fp32": 4, "bf16": 2}[columns])

    assert answer["memory"]["state_bytes"] == held
    assert any(f"columns of convolutions {columns};" in line for line in answer["assumptions"])


@pytest.mark.parametrize("state", ["fp32", "bf16"])
def test_the_format_of_states_is_an_option(rooflm: Terminal, state: str) -> None:
    """Columns of convolutions stay in the cache's format."""
    shown: dict[str, Any] = rooflm.json("show", "mamba-2.8b", "--state", state)["cache"]
    recurrent, columns = 64 * 5120 * 16, 64 * 5120 * 3

    assert shown["state_elements_per_sequence"] == recurrent + columns
    assert shown["state_bytes_per_sequence"] == {"fp32": 4, "bf16": 2}[state] * recurrent + (
        2 * columns
    )
