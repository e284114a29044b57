"""Prompts that are computed on one machine and decoded on another: times, bytes and balance."""

from __future__ import annotations

from typing import Any

import pytest

from rooflm.calc.case import Case
from rooflm.calc.handoff import Handoff, handoff_row, prefills_per_decode, sent_bytes
from rooflm.calc.passes import decode
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.requests import Work, prefill_row
from rooflm.calc.sweep import step_row

from .helpers import Terminal, h100, only

LLAMA = find_model("llama-3-8b")
REQUEST = "llama-3-8b --on h100-sxm --phase request --prompt 2048 --basis bound"


def row(rooflm: Terminal, words: str) -> dict[str, Any]:
    """Sweep one point."""
    return only(rooflm.json("sweep", *words.split())["rows"])


def test_the_worked_hand_off(rooflm: Terminal) -> None:
    """2048 tokens of 131,072 bytes at 50 GB/s take 5.36870912 ms.

    Source: jax-ml/scaling-book, inference.md (disaggregation): cache over network bandwidth.
    """
    found = row(rooflm, f"{REQUEST} --prefill-on h100-sxm --handoff 50GB")

    assert found["handoff_bytes"] == 2048 * 131_072 == 268_435_456
    assert found["handoff_s"] == pytest.approx(0.00536870912, rel=1e-12)


@pytest.mark.parametrize("B", [1, 24])
@pytest.mark.parametrize("output", [2, 40])
def test_a_request_is_a_prefill_a_hand_off_and_decode_steps(B: int, output: int) -> None:
    """TTFT is the prefill of one prompt there and the way; each further token is a step here.

    No step comes before the first token: output - 1 of them at prompt + 1 and on.
    """
    there, here = Case(LLAMA, find_machine("rtx-4090")), Case(LLAMA, h100())
    work = Work(1500, output=output, chunk=512)
    found = handoff_row(here, Handoff(there, 20e9, 3e-6), B, work)
    alone = prefill_row(there, 1, work)
    steps = [step_row(here, decode(B, S), B, S) for S in range(1501, 1500 + output)]
    way = 3e-6 + 1500 * 131_072 / 20e9
    decoding = sum(step["bound_s"] for step in steps)

    assert len(steps) == output - 1
    assert found["prefill_s"] == alone["bound_s"]
    assert found["ttft_s"] == pytest.approx(alone["bound_s"] + way, rel=1e-12)
    assert found["itl_s"] == pytest.approx(decoding / len(steps), rel=1e-12)
    assert found["e2e_s"] == found["time_s"]
    assert found["e2e_s"] == pytest.approx(alone["bound_s"] + way + decoding, rel=1e-12)
    assert found["bound_s"] == pytest.approx(found["e2e_s"], rel=1e-12)
    floor = alone["floor_s"] + sum(step["floor_s"] for step in steps)
    assert found["floor_s"] == pytest.approx(floor, rel=1e-12)
    assert found["flops"] == B * alone["flops"] + sum(step["flops"] for step in steps)
    assert found["tokens_per_s"] == pytest.approx(B * output / decoding)
    last = steps[-1]
    for key in ("weights_bytes", "kv_cache_bytes", "activations_bytes", "memory_bytes", "fits"):
        assert found[key] == last[key]
    assert found["prefill_memory_bytes"] == alone["memory_bytes"]


def test_machines_keep_pace() -> None:
    """As many prefill machines as are told compute prompts as fast as sequences end.

    A decode machine with B sequences of G - 1 steps ends B of them each (G - 1) ITL.
    """
    case = Case(LLAMA, h100())
    found = handoff_row(case, Handoff(case, 50e9), 32, Work(2048, output=128))
    prompts_per_s = found["prefills_per_decode"] / found["prefill_s"]

    assert prompts_per_s == pytest.approx(32 / (127 * found["itl_s"]))
    # By hand: one machine that prefills for 0.1 s and decodes 40 at a time for 2 s needs two.
    assert prefills_per_decode(0.1, 2.0, 40) == 2


@pytest.mark.parametrize("name", ["llama-3-8b", "gemma-3-27b", "deepseek-v3", "falcon-h1-34b",
                                  "mamba-2.8b"])  # fmt: skip
def test_what_is_handed_on_is_what_a_sequence_holds(name: str) -> None:
    """Cache and states of the prompt: what a decode machine would hold of one such sequence."""
    case = Case(find_model(name), h100())
    held = step_row(case, decode(1, 5000), 1, 5000)

    assert sent_bytes(case, 5000) == held["kv_cache_bytes"] + held.get("state_bytes", 0)


def test_a_format_of_the_cache_is_handed_on(rooflm: Terminal) -> None:
    """An fp8 cache is half the bytes; a cached prefix is handed on with the rest."""
    words = f"{REQUEST} --prefill-on h100-sxm --handoff 50GB"

    assert row(rooflm, f"{words} --kv fp8")["handoff_bytes"] == 134_217_728
    warm = rooflm.json("sweep", *f"{words} --prefix 2000".split())
    assert only(warm["rows"])["reused_tokens"] == 2000
    assert only(warm["rows"])["handoff_bytes"] == 268_435_456
    assert any("all is handed on" in line for line in warm["assumptions"])


def test_machines_of_several_devices(rooflm: Terminal) -> None:
    """2xh100-sxm is a prefill with tp 2; a network of each device carries a part of the cache."""
    two = row(rooflm, f"{REQUEST} --prefill-on 2xh100-sxm --handoff 50GB")
    alone = row(rooflm, "llama-3-8b --on 2xh100-sxm --phase prefill --prompt 2048 --basis bound")
    assert two["prefill_hardware"] == "2xh100-sxm"
    assert two["prefill_s"] == alone["bound_s"]
    assert two["prefill_memory_bytes"] == alone["memory_bytes"]
    assert (two["devices"], two["prefill_devices"]) == (1, 2)
    each = two["tokens_per_s"] / (1 + 2 * two["prefills_per_decode"])
    assert two["tokens_per_s_per_device"] == pytest.approx(each)

    words = f"{REQUEST.replace('h100-sxm', '4xh100-sxm')} --network 25GB"
    assert row(rooflm, f"{words} --prefill-on 2xh100-sxm")["handoff_s"] == pytest.approx(
        268_435_456 / 50e9
    )
    assert row(rooflm, f"{words} --prefill-on h100-sxm")["handoff_s"] == pytest.approx(
        268_435_456 / 25e9
    )


def test_a_typed_capacity_is_that_of_the_decode_machine(rooflm: Terminal) -> None:
    """The prefill machine keeps its own; where nobody knows it, whether it fits is null."""
    words = f"{REQUEST} --handoff 50GB --capacity 10GB"
    found = row(rooflm, f"{words} --prefill-on h100-sxm")
    assert (found["fits"], found["prefill_fits"]) == (False, True)

    cpu = "--prefill-on xeon-spr-8ch-ddr5-4800-2s --time-model bandwidth"
    assert row(rooflm, f"{words} {cpu}")["prefill_fits"] is None
    small = row(rooflm, f"{words} --prefill-on rtx-4090 --set L=80")
    assert small["prefill_fits"] is False


def test_estimates_need_both_machines(rooflm: Terminal) -> None:
    """With both, the parts are estimates; without one of the prefill, null and the reason."""
    words = REQUEST.replace(" --basis bound", "")
    answer = rooflm.json("sweep", *f"{words} --prefill-on h100-sxm --handoff 50GB".split())
    both = only(answer["rows"])
    prefill = row(rooflm, "llama-3-8b --on h100-sxm --phase prefill --prompt 2048")
    assert both["basis"] == "estimate"
    assert both["prefill_s"] == prefill["estimate_s"] > prefill["bound_s"]
    assert both["estimate_s"] == pytest.approx(both["e2e_s"], rel=1e-12)
    assert both["estimate_low_s"] < both["estimate_s"] < both["estimate_high_s"]
    assert any(line.startswith("prefills on h100-sxm") for line in answer["assumptions"])

    answer = rooflm.json("sweep", *f"{words} --prefill-on rtx-4090 --handoff 50GB".split())
    other = only(answer["rows"])
    assert (other["estimate_s"], other["basis"]) == (None, "bound")
    reason = "no estimate: prefills on rtx-4090: prefills of llama.cpp are not predicted here"
    assert any(line.startswith(reason) for line in answer["assumptions"])


def test_what_is_taken_for_granted_is_said(rooflm: Terminal) -> None:
    """Who yields the first token, and that nothing overlaps; the table shows both machines."""
    words = f"{REQUEST} --prefill-on h200-sxm --handoff 50GB --batch 1,8".split()
    said = " ".join(rooflm.json("sweep", *words)["assumptions"])
    assert "no decode step comes before it" in said
    assert "weights bf16" in said
    assert "start together" not in said
    shown = rooflm("sweep", *words).out
    assert "hand-off [ms]" in shown
    assert "prefills a decode" in shown


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (f"{REQUEST} --prefill-on h200-sxm", "Say --handoff 50GB"),
        (f"{REQUEST} --handoff 50GB", "Say --prefill-on"),
        (f"{REQUEST} --handoff 0 --prefill-on h200-sxm", "below 1 byte"),
        (f"{REQUEST} --handoff 50GB --prefill-on h300", "'h300' (--prefill-on)"),
        (f"{REQUEST} --handoff 50GB --prefill-on 3xh100-sxm", "cannot be split 3 ways"),
        (f"{REQUEST} --handoff 50GB --prefill-on h200-sxm --output-tokens 1", "2 or more"),
        (f"{REQUEST} --handoff 50GB --prefill-on h200-sxm --gpu-layers 4", "--gpu-layers"),
        ("llama-3-8b --on h100-sxm --handoff 50GB --prefill-on h200-sxm", "--phase request"),
        (
            "llama-3-8b --on h100-sxm --phase prefill --handoff 50GB --prefill-on h200-sxm",
            "--phase request",
        ),
        (
            "llada-8b --on h100-sxm --phase request --handoff 50GB --prefill-on h200-sxm",
            "keeps no cache",
        ),
        (
            "llama-3-8b --on h100-sxm --phase request --handoff 1GB --prefill-on h200-sxm "
            "--accounting lecture",
            "lecture",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(rooflm: Terminal, words: str, part: str) -> None:
    """What is missing, or does not belong together, exits 2 with the way out."""
    ran = rooflm("sweep", *words.split())

    assert ran.code == 2
    assert part in ran.err
