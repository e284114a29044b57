"""Levers: which come first, and that each command gives the figure beside it."""

from __future__ import annotations

import shlex
from typing import Any

import pytest

from .helpers import Terminal, only

LECTURE = ("levers", "llama-2-13b", "--on", "h100-sxm", "--context", "1024")


def kept(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """Take the levers that keep machine, number of devices and batch."""
    return [row for row in answer["rows"] if row["keeps"]]


def best(rows: list[dict[str, Any]], acts_on: str) -> float:
    """Take the largest speed-up of the levers that act on something."""
    return max(row["speedup"] for row in rows if row["acts_on"] == acts_on)


def test_cache_levers_come_first_where_the_cache_is_most_of_the_bytes(rooflm: Terminal) -> None:
    """Llama-2-13B, 64 sequences of 1,024 tokens on the H100: two thirds of the bytes are cache."""
    answer = rooflm.json(*LECTURE, "--batch", "64")
    rows = kept(answer)

    # 53.69 of 79.72 GB in the lecture's table, which streams the embedding as well.
    assert answer["cache_share"] == pytest.approx(53.69 / (79.72 - 0.33), abs=0.002)
    assert [row["acts_on"] for row in rows[:2]] == ["cache", "cache"]
    # Two layers that share a cache store half of it and read all of it: no lever of time.
    reading = [r for r in rows if r["acts_on"] == "cache" and "shared by two" not in r["lever"]]
    assert min(r["speedup"] for r in reading) > best(rows, "weights")


def test_weight_levers_come_first_at_one_sequence(rooflm: Terminal) -> None:
    """One sequence reads 26 GB of weights and 0.8 GB of cache."""
    rows = kept(rooflm.json(*LECTURE, "--batch", "1"))

    assert rows[0]["acts_on"] == "weights"
    assert best(rows, "weights") > best(rows, "cache")


def test_effects_are_those_of_the_bytes_worked_by_hand(rooflm: Terminal) -> None:
    """By the lecture's formula (W + BC)/beta with the figures of its table, within a per cent."""
    answer = rooflm.json(*LECTURE, "--batch", "64")
    rows = {row["lever"]: row for row in answer["rows"]}
    W, C = 26.03 - 0.33, 53.69  # GB; the input embedding is a gather

    assert rows["cache fp8"]["speedup"] == pytest.approx((W + C) / (W + C / 2), rel=0.01)
    # 22.68 and 10.74 GB at eight heads.
    grouped = (W + C) / (22.68 - 0.33 + 10.74)
    assert rows["GQA, 8 key/value heads"]["speedup"] == pytest.approx(grouped, rel=0.01)
    assert rows["pruned to 75 % of the depth"]["speedup"] == pytest.approx(4 / 3, rel=0.01)
    assert rows["10 % more bandwidth"]["speedup"] == pytest.approx(1.1, rel=0.001)
    assert rows["two replicas, each with this batch"]["throughput_gain"] == 2
    assert rows["two replicas, each with this batch"]["cost_kept"] == 1
    assert rows["half the batch"]["batch"] == 32


PLACES = [
    (*LECTURE, "--batch", "64"),
    ("levers", "llama-3-8b", "--on", "2xl40s", "--tp", "2", "--link", "32GB", "--batch", "8",
     "--context", "8k", "--kv", "fp8", "--reserve", "2GB", "--price", "1.5"),
    ("levers", "qwen3-30b-a3b", "--on", "h200-sxm", "--batch", "16", "--context", "4k",
     "--draft", "ngram", "--acceptance", "0.6,0.5", "--routing", "zipf:1.0"),
    ("levers", "llama-3-8b", "--on", "h100-sxm", "--batch", "8", "--basis", "estimate"),
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=["lecture", "layout", "experts", "estimate"])
def test_each_command_gives_the_figures_of_its_row(
    rooflm: Terminal, place: tuple[str, ...]
) -> None:
    """Every row, and the case as it is: time, throughput, memory, fits, cost."""
    answer = rooflm.json(*place)
    assert len(answer["rows"]) > 10
    for row in [answer["base"], *answer["rows"]]:
        words = shlex.split(row["command"])
        ran = only(rooflm.json(*words[1:])["rows"])
        time = ran["itl_s"] if words[1] == "speculate" else ran["time_s"]
        assert time == row["time_s"], row["command"]
        for key in ("tokens_per_s", "memory_bytes", "fits"):
            assert ran[key] == row[key], (key, row["command"])
        assert ran["output_usd_per_mtok"] == row["output_usd_per_mtok"], row["command"]


@pytest.mark.parametrize(
    ("by", "key", "sign"),
    [
        ("time", "time_s", 1),
        ("throughput", "tokens_per_s", -1),
        ("memory", "memory_bytes", 1),
        ("cost", "output_usd_per_mtok", 1),
    ],
)
def test_rows_are_in_the_order_that_is_asked_for(
    rooflm: Terminal, by: str, key: str, sign: int
) -> None:
    """Those that stop fitting last."""
    rows = rooflm.json(*LECTURE, "--batch", "64", "--by", by)["rows"]
    known = [row for row in rows if row[key] is not None]

    assert [r["fits"] for r in rows] == sorted((r["fits"] for r in rows), reverse=True)
    # A chip without a price is not the cheapest.
    unknown = [row[key] is None for row in rows if row["fits"]]
    assert unknown == sorted(unknown)
    figures = [sign * row[key] for row in known if row["fits"]]
    assert figures == sorted(figures)
    for row in rows:
        assert row["check"]


def test_what_cannot_be_tried_says_why(rooflm: Terminal) -> None:
    """Layers of their own kinds, models without a known head, formats without an estimate."""
    reasons = {
        name: {row["lever"]: row["reason"] for row in rooflm.json("levers", *words)["not_tried"]}
        for name, words in {
            "gemma": ("gemma-3-27b", "--on", "h100-sxm"),
            "mamba": ("mamba-2.8b", "--on", "h100-sxm"),
            "estimate": ("llama-3-8b", "--on", "h100-sxm", "--basis", "estimate"),
        }.items()
    }

    assert "layers of its own kinds" in reasons["gemma"]["each cache shared by two layers"]
    assert any("no head of such a model" in why for why in reasons["mamba"].values())
    assert "no estimate for it" in reasons["estimate"].values()


def test_levers_start_from_what_was_typed(rooflm: Terminal) -> None:
    """Scaled figures are scaled further, set letters set anew, prices are those of one machine."""
    words = ("levers", "llama-3-8b", "--on", "h100-sxm", "--batch", "64")
    scaled = rooflm.json(*words, "--hardware-scale", "bandwidth=2", "--capacity", "40GB")
    rows = {row["lever"]: row for row in scaled["rows"]}
    assert rows["10 % more bandwidth"]["speedup"] == pytest.approx(1.1, rel=0.01)
    assert rows["10 % more compute"]["speedup"] == pytest.approx(1, rel=0.01)
    refused = {row["lever"]: row["reason"] for row in scaled["not_tried"]}
    assert refused["10 % more capacity"] == "--capacity says what it is."
    fewer = {row["lever"] for row in rooflm.json(*words, "--set", "K=4")["rows"]}
    assert "MQA, 1 key/value head" in fewer
    priced = rooflm.json(*words, "--price", "2", "--power", "500")["rows"]
    unknown = [row for row in priced if row["lever"] == "on mi355x"]
    assert [row["output_usd_per_mtok"] for row in unknown] == [None]


def test_the_share_of_the_cache_is_that_of_a_pass(rooflm: Terminal) -> None:
    """85.9 GB of cache beside 139 GB of weights; stages read theirs for each of four parts."""
    words = ("levers", "llama-3-70b", "--batch", "64", "--context", "4096")
    shares = [
        rooflm.json(*words, *more)["cache_share"]
        for more in (("--on", "h100-sxm"), ("--on", "4xh100-sxm", "--pp", "4"))
    ]
    assert shares == pytest.approx([85.9 / (85.9 + 139), 85.9 / (85.9 + 4 * 139)], abs=0.01)


def test_the_table_holds_every_command(rooflm: Terminal) -> None:
    """Nothing is cut, however long."""
    words = (*LECTURE, "--batch", "64")
    out = rooflm(*words).out
    for row in rooflm.json(*words)["rows"]:
        assert row["command"] in out
        assert row["check"] in out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "speed"), "unknown value 'speed'"),
        (("--basis", "guess"), "unknown value 'guess'"),
        (("--draft", "eagle", "--batch", "0"), "below 1"),
        (("--draft", "nonsense"), "unknown model 'nonsense' (--draft)"),
        (("--acceptance", "nonsense"), "is not a chance"),
    ],
)
def test_wrong_words_are_refused(rooflm: Terminal, words: tuple[str, ...], said: str) -> None:
    """With exit code 2 and a sentence."""
    ran = rooflm(*LECTURE, *words)

    assert ran.code == 2
    assert said in ran.err
