"""Prefills, chunks, whole requests, ragged batches, comparisons and rooflines add up."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.calc.case import Case
from rooflm.calc.passes import decode
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.requests import Work, prefill_row, request_row
from rooflm.calc.sweep import step_row

from .helpers import Terminal, h100, only

CASE = Case(find_model("llama-3-8b"), h100())
ON = ("llama-3-8b", "--on", "h100-sxm")


@given(st.integers(1, 3000), st.integers(1, 3000), st.integers(1, 8), st.integers(0, 3000))
@settings(derandomize=True, max_examples=60, deadline=None)
def test_chunks_sum_to_the_whole(prompt: int, chunk: int, B: int, prefix: int) -> None:
    """Chunking leaves the FLOPs as they are, to the last one, and never lowers time or bytes."""
    matched = min(prefix, prompt)
    whole = prefill_row(CASE, B, Work(prompt, prefix=matched, phase="prefill"))
    parts = prefill_row(CASE, B, Work(prompt, prefix=matched, chunk=chunk, phase="prefill"))

    assert parts["flops"] == whole["flops"]
    assert parts["time_s"] >= whole["time_s"] * (1 - 1e-12)
    assert parts["cache_read_bytes"] >= whole["cache_read_bytes"]
    computed = prompt - whole["reused_tokens"]
    assert parts["passes"] == -(-computed // chunk)


@pytest.mark.parametrize("output", [1, 2, 40, 700])
def test_a_request_is_its_prefill_and_its_decode_steps(output: int) -> None:
    """End to end is TTFT plus every decode step at its own context, one by one."""
    work = Work(600, output=output, chunk=250)
    row = request_row(CASE, 3, work)
    prefill = prefill_row(CASE, 3, Work(600, chunk=250, phase="prefill"))
    contexts = range(601, 600 + output)
    steps = [step_row(CASE, decode(3, S), 3, S)["time_s"] for S in contexts]

    assert row["ttft_s"] == prefill["time_s"]
    assert row["e2e_s"] == pytest.approx(prefill["time_s"] + sum(steps), rel=1e-12)
    if steps:
        assert row["itl_s"] == pytest.approx(sum(steps) / len(steps), rel=1e-12)
    else:
        assert row["itl_s"] is None
    assert row["floor_s"] <= row["bound_s"] * (1 + 1e-12)
    assert row["tokens_per_s"] == pytest.approx(3 * output / row["e2e_s"])


def test_a_cached_prefix_spares_work_but_not_reads() -> None:
    """Reused tokens cost no FLOPs of their own; the cache is as large, and all of it is read."""
    cold = prefill_row(CASE, 1, Work(4096, phase="prefill"))
    warm = prefill_row(CASE, 1, Work(4096, prefix=4000, phase="prefill"))

    assert warm["reused_tokens"] == 4000
    assert warm["flops"] < cold["flops"] / 30
    assert warm["kv_cache_bytes"] == cold["kv_cache_bytes"]
    assert warm["cache_read_bytes"] == cold["cache_read_bytes"]


def test_a_whole_prefix_still_computes_a_block() -> None:
    """A prompt that is cached to the last token recomputes its last block for the logits."""
    assert Work(1024, prefix=1024).reused == 1008


def test_phases_on_the_command_line(rooflm: Terminal) -> None:
    """TTFT, ITL and E2E have figures where they belong, and are null elsewhere."""
    long = (*ON, "--prompt", "2048", "--basis", "bound")
    prefill = only(rooflm.json("sweep", *long, "--phase", "prefill")["rows"])
    request = only(rooflm.json("sweep", *long, "--phase", "request")["rows"])
    step = only(rooflm.json("sweep", *ON)["rows"])

    assert prefill["ttft_s"] == request["ttft_s"] == prefill["time_s"]
    assert request["output_tokens"] == 128
    assert request["e2e_s"] == pytest.approx(request["ttft_s"] + 127 * request["itl_s"])
    assert prefill["e2e_s"] is step["ttft_s"] is step["e2e_s"] is None
    assert prefill["regime"] == "compute"
    # 2048 tokens of an 8B model at the peak: theory of topic 17, at an efficiency of one.
    assert prefill["ttft_s"] == pytest.approx(0.0300, rel=0.02)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--prompt", "5"), "--phase"),
        (("--phase", "prefil"), "prefill"),
        (("--phase", "prefill", "--output-tokens", "5"), "--phase request"),
        (("--phase", "prefill", "--context", "5"), "--prompt"),
        (("--phase", "prefill", "--prompt", "0"), "--prompt"),
        (("--phase", "prefill", "--prompt", "8", "--prefix", "9"), "longer than the prompt"),
        (("--phase", "prefill", "--chunk", "0"), "--chunk"),
        (("--phase", "prefill", "--accounting", "lecture"), "lecture"),
        (("--context", "1,2@mixed", "--batch", "3"), "multiple of 2"),
        (
            (
                "--context",
                "no-such.txt@mixed",
            ),
            "no-such.txt",
        ),
    ],
)
def test_contradictory_phases_are_refused(
    rooflm: Terminal, words: tuple[str, ...], part: str
) -> None:
    """Options that do not belong together exit 2 with the way out."""
    ran = rooflm("sweep", *ON, *words)

    assert ran.code == 2
    assert part in ran.err


def test_a_mixed_batch_reads_the_sum_of_its_contexts(rooflm: Terminal, tmp_path: Path) -> None:
    """BS becomes the sum of the contexts, typed or read from a file."""
    typed = only(rooflm.json("sweep", *ON, "--context", "512,1024,4096@mixed")["rows"])
    path = tmp_path / "lengths.txt"
    path.write_text("512  # short\n1024\n\n4096\n")
    read = only(rooflm.json("sweep", *ON, "--context", f"{path}@mixed")["rows"])
    single = only(rooflm.json("sweep", *ON, "--batch", "3", "--context", "1024")["rows"])

    assert typed == read
    assert typed["batch"] == 3
    assert typed["total_context_tokens"] == 5632
    assert typed["kv_cache_bytes"] == 5632 * 131_072
    extra = (5632 - 3 * 1024) * 131_072 / 3.35e12
    assert typed["bound_s"] == pytest.approx(single["bound_s"] + extra, rel=1e-12)
    # The H100's attention reads the first 100 MB at a share of the bandwidth (hardware.yaml).
    share = find_machine("h100-sxm").kernels["decode"]["small_memory"]
    slower = (typed["estimate_s"] - single["estimate_s"]) * share
    assert slower == pytest.approx(extra, rel=1e-3)


def test_equal_lengths_are_no_different_mixed(rooflm: Terminal) -> None:
    """A mixed batch of one length is that batch."""
    mixed = only(rooflm.json("sweep", *ON, "--context", "800@mixed", "--batch", "5")["rows"])
    plain = only(rooflm.json("sweep", *ON, "--context", "800", "--batch", "5")["rows"])

    assert {k: mixed[k] for k in plain} == plain


def test_compare_answers_in_one_table(rooflm: Terminal) -> None:
    """Llama-3-8B on five machines, each row the sweep's own."""
    chips = ("h100-sxm", "h200-sxm", "a100-sxm-80gb", "rtx-4090", "apple-m2-ultra")
    answer = rooflm.json("compare", "llama-3-8b", "--on", ",".join(chips), "--batch", "8")

    assert [r["hardware"] for r in answer["rows"]] == list(chips)
    for row in answer["rows"]:
        single = only(
            rooflm.json("sweep", "llama-3-8b", "--on", row["hardware"], "--batch", "8")["rows"]
        )
        assert {k: row[k] for k in single} == single
    assert answer["rows"][-1]["weights_format"] == "fp16"
    assert rooflm("compare", "llama-3-8b", "--on", *chips, "--batch", "8").out.count("yes") == 5


def test_compare_shows_no_figure_for_a_format_that_a_chip_lacks(rooflm: Terminal) -> None:
    """A V100 asked for bf16 has its memory and no time, and the reason stands beside it."""
    words = ("--on", "v100-sxm2-32gb,h100-sxm,ddr5-6000-dual", "--weights", "bf16")
    v100, h100_, ddr5 = rooflm.json("compare", "gpt2", *words)["rows"]

    assert v100["time_s"] is v100["tokens_per_s"] is None
    assert "no bf16 rate" in v100["reason"]
    assert v100["fits"] is True
    assert h100_["reason"] is None
    assert h100_["time_s"] > 0
    assert ddr5["fits"] is ddr5["time_s"] is None


def test_a_large_comparison_is_that_of_its_points(rooflm: Terminal) -> None:
    """520 places are answered as arrays; a place of them by itself says the same, gaps included."""
    words = ("compare", "gpt2", "--on", "v100-sxm2-32gb,h100-sxm", "--weights", "bf16")
    large = rooflm.json(*words, "--batch", "1:26", "--context", "50:1000:50")

    assert len(large["rows"]) == 2 * 520
    for row in large["rows"][::97]:
        place = ("--batch", str(row["batch"]), "--context", str(row["context_tokens"]))
        alone = rooflm.json(*words, *place)["rows"][row["hardware"] == "h100-sxm"]
        numbers = {k: v for k, v in alone.items() if isinstance(v, float)}
        assert {k: row[k] for k in numbers} == pytest.approx(numbers, rel=1e-12)
        assert row == alone | {k: row[k] for k in numbers}


@pytest.mark.parametrize("phase", ["prefill", "request"])
def test_a_chip_without_the_format_holds_the_same_bytes(rooflm: Terminal, phase: str) -> None:
    """Memory needs no rate: that of the fullest pass is the one of a chip that has the format."""
    words = ("--on", "v100-sxm2-32gb,h100-sxm", "--weights", "bf16", "--phase", phase)
    words = (*words, "--prompt", "2000", "--chunk", "1500", "--output-tokens", "3")
    if phase == "prefill":
        words = words[:-2]
    v100, h100_ = rooflm.json("compare", "gpt2", *words)["rows"]

    assert v100["ttft_s"] is None
    for key in ("memory_bytes", "kv_cache_bytes", "activations_bytes", "context_tokens"):
        assert v100[key] == h100_[key], key


def test_compare_of_requests(rooflm: Terminal) -> None:
    """Two models with the same request: each has its TTFT and its end to end."""
    words = ("--on", "h100-sxm", "--phase", "request", "--prompt", "256", "--output-tokens", "9")
    rows = rooflm.json("compare", "llama-3-8b", "llama-3.2-1b", *words)["rows"]

    assert rows[0]["e2e_s"] > rows[1]["e2e_s"] > rows[1]["ttft_s"] > 0


@pytest.mark.parametrize("batch", [1, 64, 1000])
def test_roofline_rows_add_up_to_the_sweep(rooflm: Terminal, batch: int) -> None:
    """The bounds of the operators are the bound of the step; intensities are the textbook's."""
    words = (*ON, "--batch", str(batch), "--context", "256")
    answer = rooflm.json("roofline", *words)
    row = only(rooflm.json("sweep", *words)["rows"])
    prefill = only(
        rooflm.json("sweep", *ON, "--phase", "prefill", "--prompt", "256",
                    "--batch", str(batch))["rows"]
    )  # fmt: skip
    operators = {op["name"]: op for op in answer["operators"]}

    assert sum(op["bound_s"] for op in answer["operators"]) == pytest.approx(row["bound_s"])
    assert sum(op["flops"] for op in answer["operators"]) == row["flops"]
    whole = sum(op["bound_s"] for op in answer["prefill_operators"])
    assert whole == pytest.approx(prefill["bound_s"], rel=1e-12)
    # 4 query heads a key/value head: the intensity of decode attention tends to 4 (topic 2).
    assert operators["attention"]["intensity_flops_per_byte"] == pytest.approx(
        256 * 4 / (256 + 4), rel=1e-12
    )
    assert answer["ridge_flops_per_byte"] == pytest.approx(989e12 / 3.35e12)
    for op in answer["operators"]:
        assert op["intensity_flops_per_byte"] == op["flops"] / op["bytes"]
