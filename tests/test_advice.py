"""What `fit` advises, typed back; what it asks for; what tables and notes say beside figures."""

from __future__ import annotations

import re

import pytest

from rooflm.calc.answered import fitted
from rooflm.calc.asked import case_of
from rooflm.calc.fit import Typed, ways
from rooflm.calc.model import cache_bytes, growing_bytes
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_machine, find_model

from .helpers import Terminal

ADVICE = re.compile(r"would fit: (.*?)(?: at the most| \(.*\))?$", re.MULTILINE)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("deepseek-v3 --on 8xh100-sxm --weights bf16", {"--weights", "--on"}),
        ("deepseek-v3 --on h100-sxm --tp 8 --weights bf16", {"--weights", "--tp", "--on"}),
        ("llama-3-8b --on rtx-4090 --batch 16 --context 8Ki",
         {"--batch", "--context", "--weights", "--tp", "--on"}),
        ("llama-3-8b --on rtx-4090 --batch 16 --context 8Ki --gpu-share 90%",
         {"--batch", "--context", "--weights", "--tp", "--on"}),
        ("llama-3-8b --on h100-sxm --batch 800000 --context 2Ki --shared-prefix 1Ki",
         {"--batch"}),
        ("llama-3-70b --on 2x8xh100-sxm --batch 10000", {"--batch", "--context"}),
        ("deepseek-v3 --on apple-m3-ultra --pp 2 --capacity 256GB", {"--weights"}),
        ("llama-3-8b --on rtx-4090 --engine llama.cpp --batch 16 --context 8Ki",
         {"--batch", "--context", "--weights", "--on"}),
        ("llama-2-13b --on h100-sxm --accounting lecture --batch 80",
         {"--batch", "--context", "--weights", "--on"}),
    ],
)  # fmt: skip
def test_what_would_fit_fits(rooflm: Terminal, words: str, options: set[str]) -> None:
    """Each line of advice, typed after what it mends, fits."""
    ran = rooflm("fit", *words.split())
    lines = ADVICE.findall(ran.out)

    assert ran.code == 1
    assert {line.split()[0] for line in lines} == options
    for line in lines:
        assert rooflm("fit", *words.split(), *line.split()).code == 0, line


def test_other_machines_are_as_many_and_joined() -> None:
    """1,342 GB over 8 are 168 GB each; an M3 Ultra lends 384 GB and has no link to others."""
    words = {"model": "deepseek-v3", "on": "8xh100-sxm", "weights": "bf16"}
    case, apple = case_of(words), [find_machine("apple-m3-ultra")]
    eight = Typed("h100-sxm", devices=8)

    assert ways(case, 1, 1024, apple, eight)[1:] == []
    joined = ways(case, 1, 1024, apple, Typed("h100-sxm", devices=8, linked=True))
    assert joined[1]["value"] == "8xapple-m3-ultra"
    on = [way["value"] for way in fitted(words)["ways"] if way["option"] == "--on"]
    assert on
    assert all(re.fullmatch("8x[a-z].*", value) for value in on)


@pytest.mark.parametrize(
    ("on", "weights", "tp", "node"),
    [
        # 141.1 GB in bf16. In fp8 68.5 GB of layers and 4.2 GB of tables are below 85.5 GB.
        ("h100-sxm", "fp8", "2", None),
        # No fp8 here: int8 takes 72.7 GB of 42.95, int4 below 42; 141.1 over 4 are 35.3.
        ("1xa100-sxm-40gb", "int4", "4", "4xa100-sxm-40gb"),
        # Over 8 they are 17.6 GB of 25.8 GB; the layers in int4 alone take 34 GB.
        ("rtx-4090", None, "8", None),
    ],
)
def test_fewer_bits_and_more_devices(
    on: str, weights: str | None, tp: str, node: str | None
) -> None:
    """The most bits and the fewest ranks with which Llama-3-70B fits."""
    found = {w["option"]: w for w in reversed(fitted({"model": "llama-3-70b", "on": on})["ways"])}

    assert found.get("--weights", {"value": None})["value"] == weights
    assert (found["--tp"]["value"], found["--tp"]["on"]) == (tp, node)


@pytest.mark.parametrize(
    ("words", "link"),
    [
        ("llama-3-8b --on apple-m3-ultra --pp 2", "--link 10GB"),
        ("llama-3-8b --on 2x8xh100-sxm --tp 8 --pp 2", "--network 50GB"),
        ("llama-3-8b --on apple-m1 --gpu-layers 10", "--host-link 30GB"),
    ],
)
def test_memory_needs_no_link(rooflm: Terminal, words: str, link: str) -> None:
    """What fits is the same with a link as without; time still asks for one."""
    free = rooflm.json("fit", *words.split())

    assert free == rooflm.json("fit", *words.split(), *link.split())
    assert link.split()[0] in rooflm("sweep", *words.split()).err


def test_memory_that_is_kept_free(rooflm: Terminal) -> None:
    """0.9 x 85,520,809,984 - 2 GiB - 16,060,522,496 hold 54.7 sequences of 8,192 x 131,072 B."""
    words = ("fit", "llama-3-8b", "--on", "h100-sxm", "--context", "8192")
    said = "--gpu-share 0.9 --reserve 2GiB"

    assert f"({said}) --batch 54 or --context 8192 fits" in rooflm(*words).out
    assert rooflm(*words, *said.split(), "--batch", "54").code == 0
    assert rooflm(*words, *said.split(), "--batch", "55").code == 1
    # A state grows with no context.
    assert "or any --context fits" in rooflm("fit", "mamba-2.8b", "--on", "h100-sxm").out
    for more in (("--reserve", "1GB"), ("--engine", "vllm"), ("--accounting", "lecture")):
        assert "kept free" not in rooflm(*words, *more).out


def test_a_bound_beside_estimates_is_marked(rooflm: Terminal) -> None:
    """No published step is of an RTX 4090 with a batch of 8: its time is a bound."""
    words = ("compare", "llama-3-8b", "--on", "a100-sxm-80gb,rtx-4090", "--batch", "8")
    found = {row["hardware"]: row for row in rooflm.json(*words)["rows"]}
    row, marked = found["rtx-4090"], rooflm(*words).out

    assert (found["a100-sxm-80gb"]["basis"], row["basis"]) == ("estimate", "bound")
    assert f"≥ {1e3 * row['bound_s']:.2f}" in marked
    assert f"≤ {row['bound_tokens_per_s']:.1f}" in marked
    assert (marked.count("≥"), marked.count("≤")) == (1, 1)
    assert "≥" in rooflm(*words, "--format", "md").out
    assert "≥" not in rooflm(*words, "--format", "csv").out
    assert "≥" not in rooflm(*words, "--basis", "bound").out


def test_window_layers_held_in_full(rooflm: Terminal) -> None:
    """All 36 layers of gpt-oss-120b, 2 x 8 heads x 64 x 2 B a token, take 9.00 GiB of 131,072."""
    words = ("fit", "gpt-oss-120b", "--on", "2xh200-sxm", "--engine", "vllm")
    ranks = 2
    engine = rooflm.json(*words)["engine"]

    assert ranks * engine["request_padded_bytes"] == 36 * 2 * 8 * 64 * 2 * 131_072 == 9 * 2**30
    assert re.search(r"if all layers are full \[GiB\] +4\.50", rooflm(*words).out)
    full = rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", "--engine", "vllm")
    assert full["engine"]["request_padded_bytes"] is None


def test_growth_beyond_windows(rooflm: Terminal) -> None:
    """Of gemma-4-31b 10 layers keep 2 x 4 x 512 x 2 B a token; 50 more 2 x 16 x 256 x 2 B."""
    beyond = 10 * 2 * 4 * 512 * 2
    short = beyond + 50 * 2 * 16 * 256 * 2
    said = f"cache: {short:,} bytes a token in a short context, {beyond:,} beyond all windows\n"

    assert said in rooflm("show", "gemma-4-31b").out
    assert "beyond" not in rooflm("show", "llama-3-8b").out
    words = ("explain", "growing_bytes_per_token", "gemma-4-31b", "--on", "h100-sxm")
    assert rooflm.json(*words)["value"] == beyond


@pytest.mark.parametrize(
    "name", ["gemma-4-31b", "deepseek-v4-flash", "falcon-h1-34b", "deepseek-v3.2", "jamba-v0.1"]
)
@pytest.mark.parametrize("kv", ["bf16", "fp8"])
def test_growth_is_that_of_the_cache(name: str, kv: str) -> None:
    """A cache of 2 x 10**12 tokens is larger than one of 10**12 by as many growing bytes."""
    model, precision, far = find_model(name), precision_of("bf16", kv), 10**12
    more = cache_bytes(model, 2 * far, precision) - cache_bytes(model, far, precision)

    assert growing_bytes(model, precision) * far == pytest.approx(more, rel=1e-12)


def test_messages_of_bounds(rooflm: Terminal) -> None:
    """Without an estimate and a latency the note says what a bound of --tp leaves out."""
    words, says = ("sweep", "tinyllama-1.1b", "--tp", "2", "--on"), "--link-latency 10us"

    assert says in rooflm(*words, "l40s").out
    assert says not in rooflm(*words, "l40s", "--link-latency", "10us").out
    assert says not in rooflm(*words, "h100-sxm").out
    assert says not in rooflm("fit", *words[1:], "l40s").out


def test_fit_tells_what_engines_may_hold_beside() -> None:
    """Gemma 2 9B: a second table of 256,000 x 3,584 x 2 B = 1.835 GB; Gemma 3 sees images."""
    quantized = fitted({"model": "gemma-2-9b", "on": "rtx-3080-ti", "weights": "awq"})
    plain = fitted({"model": "gemma-2-9b", "on": "h100-sxm"})
    images = fitted({"model": "gemma-3-27b", "on": "h100-sxm"})

    assert any("1.84 GB in bf16, and counted once" in s for s in quantized["assumptions"])
    assert not any("--set tied=false" in said for said in plain["assumptions"])
    assert any("not counted: 423,060,336 parameters" in said for said in images["assumptions"])


def test_memory_that_a_mac_shares_is_not_all_free(rooflm: Terminal) -> None:
    """Two of 256 GB hold 411 GB, and 75 % of them, 384 GB, do not."""
    machine = ["--on", "apple-m3-ultra", "--tp", "2", "--capacity", "256GB"]
    words = ["deepseek-r1", "--weights", "q4_k_m", *machine]

    assert rooflm("fit", *words).code == rooflm("fit", *words, "--gpu-share", "75%").code == 1
    whole = rooflm("fit", *words, "--gpu-share", "100%")
    assert whole.code == 0
