"""Workloads and traces: laws against their moments, times exactly, layouts, and bad files."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rooflm.calc import traces, workload
from rooflm.calc.clock import TICKS
from rooflm.calc.errors import RooflmError
from rooflm.calc.traces import read_trace
from rooflm.calc.workload import (
    Workload,
    check,
    closed_loop,
    draw_arrivals,
    lognormal_mean,
    open_loop,
    parse_law,
    shared_prefix,
    spaced,
)

FOLDER = Path(__file__).parent.parent / "traces"
WRONG: Any = "poison"
FIXED = parse_law("512", "--prompt")
SHORT = parse_law("uniform:1-64", "--output-tokens")


def written(folder: Path, content: str | bytes, name: str = "t.csv") -> Path:
    """Write a trace and tell its path."""
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def ticks(seconds: str) -> int:
    """Round a decimal number of seconds to ticks, to even."""
    return round(Fraction(seconds) * TICKS)


def sentence(call: Callable[[], Any]) -> str:
    """Tell the message of the error that a call ends in."""
    with pytest.raises(RooflmError) as caught:
        call()
    return str(caught.value)


# Lengths


def lengths(text: str, n: int = 200_000) -> Any:
    """Draw lengths of a law."""
    return parse_law(text, "--prompt").draw(n, np.random.default_rng(7))


@pytest.mark.parametrize(
    ("text", "mean", "deviation", "least", "most"),
    [
        ("512", 512, 0, 512, 512),
        ("4k", 4000, 0, 4000, 4000),
        ("2Ki", 2048, 0, 2048, 2048),
        # A uniform law of n whole numbers has the variance (n**2 - 1) / 12.
        ("uniform:256-1024", 640, math.sqrt((769**2 - 1) / 12), 256, 1024),
        ("uniform:7-7", 7, 0, 7, 7),
        ("1024@0.8", 921.5, math.sqrt((206**2 - 1) / 12), 819, 1024),
        ("1000@100%", 1000, 0, 1000, 1000),
        ("lognormal:1000,0.5", 1000, 1000 * math.sqrt(math.exp(0.25) - 1), 1, 10**12),
        ("lognormal:300,0", 300, 0, 300, 300),
        # A geometric law of mean m from 1 on has the variance m (m - 1).
        ("exponential:200", 200, math.sqrt(200 * 199), 1, 10**12),
        ("exponential:1", 1, 0, 1, 1),
    ],
)
def test_a_law_has_its_moments(
    text: str, mean: float, deviation: float, least: int, most: int
) -> None:
    """Means lie within five standard errors, deviations within 2 %, and lengths within bounds."""
    law, drawn = parse_law(text, "--prompt"), lengths(text)
    rounding = 0.01 if text.startswith("lognormal") else 0

    assert law.mean == pytest.approx(mean, abs=1e-9)
    assert abs(drawn.mean() - mean) <= 5 * deviation / math.sqrt(len(drawn)) + rounding
    assert drawn.std() == pytest.approx(deviation, rel=0.02)
    assert least <= drawn.min()
    assert drawn.max() <= most
    assert drawn.dtype == np.int64


def test_a_lognormal_law_has_its_quantiles() -> None:
    """Its median is MEAN / exp(SIGMA**2 / 2), and 15.87 % lie below one sigma less."""
    drawn = lengths("lognormal:1000,0.8")
    median = 1000 / math.exp(0.32)

    assert np.median(drawn) == pytest.approx(median, rel=0.01)
    assert (drawn < median / math.exp(0.8)).mean() == pytest.approx(0.15866, abs=0.004)


@pytest.mark.parametrize(("sigma", "most"), [(0.5, 2000), (1.0, 1000), (1.5, 3000), (0.0, 900)])
def test_a_cut_lognormal_law_has_the_mean_that_it_says(sigma: float, most: int) -> None:
    """The closed form of E[min(X, c)] is the mean of what is drawn, and of an integral."""
    drawn = lengths(f"lognormal:1000,{sigma},{most}")
    z = np.linspace(-9, 9, 200_001)
    density = np.exp(-z * z / 2) / math.sqrt(2 * math.pi)
    values = np.minimum(np.exp(math.log(1000) - sigma * sigma / 2 + sigma * z), most)
    integral = float((values * density).sum() * (z[1] - z[0]))

    assert lognormal_mean(1000, sigma, most) == pytest.approx(integral, rel=1e-6)
    assert abs(drawn.mean() - integral) <= 5 * drawn.std() / math.sqrt(len(drawn)) + 0.5
    assert drawn.max() <= most


def test_lengths_of_a_file_are_drawn_as_often_as_they_stand_in_it(tmp_path: Path) -> None:
    """Lengths of a file come with replacement, with or without @."""
    path = written(tmp_path, "# of a log\n100\n100\n2k\n300\n", "lengths.txt")
    drawn = lengths(f"@{path}")

    assert parse_law(str(path), "--prompt").mean == 625
    assert parse_law(f"@{path}", "--prompt").most == 2000
    assert set(drawn.tolist()) == {100, 300, 2000}
    assert (drawn == 100).mean() == pytest.approx(0.5, abs=0.006)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "'' is not a length (--prompt). Write 512, 1024@0.8, uniform:256-1024"),
        ("lognorml:512,1", "Did you mean lognormal? Write 512,"),
        ("poisson:4", "'poisson:4' is not a length (--prompt). Write 512,"),
        ("256-1024", "'256-1024' is not a length (--prompt). Write uniform:256-1024."),
        ("uniform:256", "'uniform:256' is not a range (--prompt). Write uniform:256-1024."),
        ("uniform:9-3", "ends before it begins (--prompt)."),
        ("uniform:0-3", "0 is below 1 (--prompt)."),
        ("lognormal:512", "Write lognormal:MEAN,SIGMA or lognormal:MEAN,SIGMA,MAX."),
        ("lognormal:512,nan", "the sigma 'nan' is not a number from 0 to 10 (--prompt)."),
        ("lognormal:512,-1", "the sigma '-1' is not a number from 0 to 10 (--prompt)."),
        ("lognormal:512,11", "the sigma '11' is not a number from 0 to 10 (--prompt)."),
        ("exponential:0.5", "'0.5' is not a whole number (--prompt)."),
        ("1024@1.5", "'1.5' is not a share between 0 and 1 (--prompt)."),
        ("@", "no file '' (--prompt). @ takes a file."),
        ("@nowhere.txt", "no file 'nowhere.txt' (--prompt)."),
        ("12x", "'12x' is not a positive whole number (--prompt)."),
        ("2e12", "is above 1e+12 (--prompt)."),
    ],
)
def test_a_law_that_is_none_is_refused(text: str, said: str) -> None:
    """A slip in a law gives a sentence with the option and the forms."""
    assert said in sentence(lambda: parse_law(text, "--prompt"))


@given(st.text(alphabet="uniform:logeaxp0123456789@.,-kKi\0 é", max_size=24))
@example("lognormal:1,10")
@example("exponential:1e12")
@example("uniform:1-1e12")
@settings(max_examples=150, derandomize=True, deadline=None)
def test_any_law_draws_lengths_or_says_why_not(text: str) -> None:
    """Whatever is typed is a law whose lengths are from 1 to its largest, or an error."""
    try:
        law = parse_law(text, "--prompt")
    except RooflmError:
        return
    drawn = law.draw(50, np.random.default_rng(1))

    assert drawn.min() >= 1
    assert drawn.max() <= law.most <= 10**12


# Arrivals


def gaps(burstiness: float, rate: float = 4.0, n: int = 100_000) -> Any:
    """Gaps of random arrivals [s]."""
    times = draw_arrivals(rate, n, seed=3, burstiness=burstiness)
    return np.diff(np.array([0, *(t / TICKS for t in times)]))


@pytest.mark.parametrize("burstiness", [0.25, 1.0, 4.0])
def test_random_gaps_have_the_moments_of_a_gamma_law(burstiness: float) -> None:
    """Gaps of mean 1 / rate have the coefficient of variation 1 / sqrt(burstiness)."""
    drawn = gaps(burstiness)
    n, cv = len(drawn), 1 / math.sqrt(burstiness)

    assert abs(drawn.mean() - 0.25) <= 5 * 0.25 * cv / math.sqrt(n)
    assert drawn.std() / drawn.mean() == pytest.approx(cv, rel=0.02)


def test_poisson_gaps_are_exponential() -> None:
    """The Kolmogorov-Smirnov distance to 1 - exp(-rate t) is below its bound at 0.1 %."""
    drawn = np.sort(gaps(1.0))
    n = len(drawn)
    law = 1 - np.exp(-4 * drawn)
    steps = np.arange(n + 1) / n
    distance = max(np.abs(law - steps[1:]).max(), np.abs(law - steps[:-1]).max())

    assert distance < 1.949 / math.sqrt(n)


def test_counts_of_poisson_arrivals_scatter_as_much_as_their_mean() -> None:
    """Requests of each second have a variance equal to their mean; bursts have more."""
    spread = {}
    for burstiness in (0.2, 1.0, 5.0):
        seconds = np.floor(np.cumsum(gaps(burstiness))).astype(int)
        counts = np.bincount(seconds)[:-1]
        spread[burstiness] = counts.var() / counts.mean()

    assert spread[1.0] == pytest.approx(1, abs=0.05)
    assert spread[0.2] > 3
    assert spread[5.0] < 0.4


def test_another_rate_keeps_lengths_and_gaps() -> None:
    """At twice the rate the same requests come in half the time, to a tick and the float's end."""
    slow, fast = (open_loop(rate, 500, SHORT, SHORT, seed=1) for rate in (3.0, 6.0))

    assert (fast.prompt, fast.output) == (slow.prompt, slow.output)
    assert fast.prompt != fast.output
    assert [2 * t for t in fast.arrival] == pytest.approx(slow.arrival, rel=1e-15)
    assert slow.arrival[0] > 0


def test_a_seed_makes_one_workload() -> None:
    """The same seed makes the same requests, and another seed others."""
    assert open_loop(3, 50, SHORT, SHORT, 1) == open_loop(3, 50, SHORT, SHORT, 1)
    assert open_loop(3, 50, SHORT, SHORT, 1).prompt != open_loop(3, 50, SHORT, SHORT, 2).prompt
    assert open_loop(3, 50, SHORT, SHORT, 1).arrival != open_loop(3, 50, SHORT, SHORT, 2).arrival


def test_constant_arrivals_add_up_no_error() -> None:
    """Request i comes at i / rate to the nearest tick, as an infinite burstiness has it too."""
    made = open_loop(0.3, 1000, FIXED, FIXED, 0, "constant")

    assert made.arrival == [round(Fraction(10 * i, 3) * TICKS) for i in range(1000)]
    assert draw_arrivals(0.3, 1000, 0, burstiness=math.inf) == made.arrival
    # At ten a second the tenth request comes in a second, which no sum of floats does.
    assert draw_arrivals(10, 11, 0, "constant")[10] == TICKS
    assert spaced(Fraction(1, 2 * TICKS), 4) == [0, 0, 1, 2]


@pytest.mark.parametrize(("rate", "how"), [(5.0, "burst"), (5.0, "at-once"), (math.inf, "poisson")])
def test_a_burst_comes_at_once(rate: float, how: Any) -> None:
    """A burst, or an infinite rate, starts all requests at 0."""
    made = open_loop(rate, 9, FIXED, SHORT, 0, how)

    assert made.arrival == [0] * 9
    assert made.told[0] == "9 requests come at once, seed 0"


def test_a_closed_loop_knows_the_first_arrival_of_each_client() -> None:
    """Clients start a stagger apart, and all later requests wait for an answer."""
    made = closed_loop(3, 4, FIXED, SHORT, seed=1, think=0.1, stagger=0.2)
    check(made)

    assert made.arrival == [0, ticks("0.2"), ticks("0.4"), *[-1] * 9]
    assert (made.clients, made.think, len(made.output)) == (3, ticks("0.1"), 12)
    assert closed_loop(3, 4, FIXED, SHORT, 1).arrival[:3] == [0, 0, 0]
    assert made.output == open_loop(2, 12, FIXED, SHORT, 1).output


def test_prefixes_are_cut_to_what_a_prompt_holds() -> None:
    """Each request has one of the prefixes, of which it shares all but its last token at most."""
    made = open_loop(2, 4000, parse_law("uniform:1-100", "--prompt"), SHORT, 1)
    shared = shared_prefix(made, 50, 4, seed=1)
    check(shared)
    counts = [shared.prefix.count(f"prefix-{k}") for k in range(4)]

    assert shared.prefix_tokens == [min(50, p - 1) for p in made.prompt]
    assert [name == "" for name in shared.prefix] == [p == 1 for p in made.prompt]
    # Four groups of 990 requests with tokens to share, each within five deviations.
    assert all(abs(n - sum(counts) / 4) < 5 * math.sqrt(sum(counts) * 3 / 16) for n in counts)
    assert (made.prefix, shared.prompt, shared.arrival) == ([], made.prompt, made.arrival)
    assert "4 prefixes, fewer in" in shared.told[-1]
    assert "of their own already" in sentence(lambda: shared_prefix(shared, 5, 1, 1))
    assert "at least 1" in sentence(lambda: shared_prefix(made, 0, 1, 1))


def test_a_million_requests_are_plain_lists() -> None:
    """Many requests are made of Python's whole numbers, in ascending order."""
    made = open_loop(7, 100_000, SHORT, SHORT, 1)
    check(made)

    assert {type(v) for v in (made.arrival[5], made.prompt[5], made.output[5])} == {int}
    assert made.arrival == sorted(made.arrival)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: draw_arrivals(0, 5, 1), "a rate of 0 a second is not above 0 (--rate)."),
        (lambda: draw_arrivals(math.nan, 5, 1), "a rate of nan a second is not above 0"),
        (lambda: draw_arrivals(1e-300, 5, 1), "last longer than 1e+12 s (--rate). Is it a slip?"),
        (lambda: draw_arrivals(1, 5, 1, burstiness=0), "is not between 0.001 and 1000, or inf"),
        (lambda: draw_arrivals(1, 5, 1, burstiness=math.nan), "a burstiness of nan is not between"),
        (lambda: draw_arrivals(1, 5, 1, "constant", 2), "means nothing to requests that come"),
        (lambda: draw_arrivals(1, 5, 1, WRONG), "(--arrivals). Did you mean poisson?"),
        (lambda: draw_arrivals(1, 5, -1), "the seed -1 is below 0 (--seed)."),
        (lambda: open_loop(1, 0, FIXED, FIXED, 1), "0 requests are not between 1 and 10,000,000"),
        (lambda: closed_loop(0, 1, FIXED, FIXED, 1), "0 is below 1 (--clients)."),
        (lambda: closed_loop(1, 0, FIXED, FIXED, 1), "0 is below 1 (--rounds)."),
        (lambda: closed_loop(10**6, 11, FIXED, FIXED, 1), "11,000,000 requests are not between"),
        (lambda: closed_loop(1, 1, FIXED, FIXED, 1, -1), "-1 s is no time to wait (--think)."),
        (lambda: closed_loop(1, 1, FIXED, FIXED, 1, 0, math.inf), "inf s is no time to wait"),
    ],
)
def test_options_that_make_no_workload_are_refused(call: Callable[[], Any], said: str) -> None:
    """Rates, numbers and times that cannot be give a sentence with their option."""
    assert said in sentence(call)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (Workload([], [], []), "there are no requests"),
        (Workload([0, 1], [1], [1, 1]), "1 values for 2 requests (prompt)."),
        (Workload([0, 1], [1, 1], []), "0 values for 2 requests (output)."),
        (Workload([0], [0], [1]), "fewer than 1 or more than 1e+12 tokens (prompt)."),
        (Workload([0], [1], [-3]), "fewer than 1 or more than 1e+12 tokens (output)."),
        (Workload([5, 4], [1, 1], [1, 1]), "arrivals do not ascend from 0 on"),
        (Workload([-1, 4], [1, 1], [1, 1]), "arrivals do not ascend from 0 on"),
        (Workload([0, 4], [1, 1], [1, 1], clients=1), "only the first request of each client"),
        (Workload([0], [1], [1], clients=-1), "are below 0 (clients)."),
        (Workload([0], [1], [1], priority=[1, 2]), "2 values for 1 requests (priority)."),
        (Workload([0], [9], [1], prefix=["a"]), "have names and tokens, or neither"),
        (Workload([0], [9], [1], prefix=["a"], prefix_tokens=[10]), "of 10 tokens is longer than"),
        (Workload([0], [9], [1], prefix=["a"], prefix_tokens=[-1]), "shorter than 0"),
        (Workload([0], [9], [1], prefix=[""], prefix_tokens=[2]), "of 2 tokens has no name"),
    ],
)
def test_requests_that_cannot_be_are_refused(made: Workload, said: str) -> None:
    """What no server could be sent gives a sentence."""
    assert said in sentence(lambda: check(made))


# Traces, and their layouts

OWN = "arrival_s,prompt_tokens,output_tokens\n"
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_3 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
)
MOONCAKE = '{"timestamp": %s, "input_length": %s, "output_length": %s, "hash_ids": [0, 1]}\n'


def test_a_trace_of_rooflm_has_all_that_a_workload_has(tmp_path: Path) -> None:
    """Own columns come in any order and case, with cells that may be empty."""
    content = (
        "# a remark\n\n"
        "Session,priority,Output_Tokens,note,ARRIVAL_S,prompt_tokens,prefix,prefix_tokens\n"
        "a,,3,x,0.5,100,sys,64\n"
        "a,-2,4,,1e0,200,,\n"
        " ,1,5.0,, 2.25 ,300,sys,64\n"
    )
    read = read_trace(written(tmp_path, content))

    assert read == Workload(
        arrival=[ticks("0.5"), ticks("1"), ticks("2.25")],
        prompt=[100, 200, 300],
        output=[3, 4, 5],
        priority=[0, -2, 1],
        prefix=["sys", "", "sys"],
        prefix_tokens=[64, 0, 64],
        session=["a", "a", ""],
        told=("3 requests of t.csv (rooflm)",),
    )


def test_rows_of_json_lines_may_lack_what_is_optional(tmp_path: Path) -> None:
    """Keys come in the case of the first row, and options may first stand in a later one."""
    content = (
        '{"Arrival_S": 0.10, "prompt_tokens": 9, "output_tokens": 2}\n\n'
        '{"output_tokens": 3, "Arrival_S": "0.3", "prompt_tokens": 8.0, "session": 7, '
        '"prefix": "p", "prefix_tokens": 4, "priority": -1}\r\n'
    )
    read = read_trace(written(tmp_path, content, "t.jsonl"))

    assert read.arrival == [ticks("0.1"), ticks("0.3")]
    assert (read.prompt, read.output, read.session) == ([9, 8], [2, 3], ["", "7"])
    assert (read.prefix, read.prefix_tokens, read.priority) == (["", "p"], [0, 4], [0, -1])


@pytest.mark.parametrize("suffix", ["", "+00:00", "Z", "+0000"])
def test_a_trace_of_azure_starts_at_its_first_row(tmp_path: Path, suffix: str) -> None:
    """Dates of seven decimals count from the first, over midnight and without a fraction."""
    content = AZURE + (
        f"2023-11-16 23:59:59.9799600{suffix},374,44\n"
        f"2023-11-17 00:00:00{suffix},396,109\n"
        f"2023-11-17T01:00:00.0000001{suffix},879,55\n"
    )
    read = read_trace(written(tmp_path, content))

    assert read.arrival == [0, ticks("0.02004"), ticks("3600.0200401")]
    assert (read.prompt, read.output) == ([374, 396, 879], [44, 109, 55])


def test_offsets_of_dates_are_hours_east(tmp_path: Path) -> None:
    """01:00 at +01:00 is midnight of UTC, and 23:30 at -00:30 is it too."""
    content = AZURE + (
        "2024-05-10 00:00:00+00:00,1,1\n2024-05-10 01:00:00+01:00,2,1\n"
        "2024-05-09 23:30:00.0-00:30,3,1\n"
    )

    assert read_trace(written(tmp_path, content)).arrival == [0, 0, 0]


def test_failures_of_burstgpt_are_left_out_and_counted(tmp_path: Path) -> None:
    """Rows without tokens of the response are failures; time starts at the first other row."""
    content = BURST + (
        "5,ChatGPT,472,0,472,Conversation log\n"
        "45.5,ChatGPT,1087,230,1317,Conversation log\n"
        "118,GPT-4,417,276,693,API log\n"
        "118,GPT-4,0,276,276,API log\n"
    )
    read = read_trace(written(tmp_path, content))

    assert (read.arrival, read.prompt) == ([0, ticks("72.5")], [1087, 417])
    assert read.told == (
        "2 requests of t.csv (BurstGPT)",
        "rows left out, without tokens of prompt or output: 2",
    )
    assert read.session == []


def test_sessions_of_burstgpt_are_conversations(tmp_path: Path) -> None:
    """The newer files name the conversation of a row, and the logs of an API have none."""
    content = BURST_3 + (
        "19440110.0,1722ac82,43,GPT-4,906,446,1352,Conversation log\n"
        "19440161.0,,2,ChatGPT,36,29,65,API log\n"
    )
    read = read_trace(written(tmp_path, content))

    assert (read.session, read.arrival) == (["1722ac82", ""], [0, ticks("51")])


def test_ties_of_milliseconds_stay_ties(tmp_path: Path) -> None:
    """Equal times of a Mooncake trace are equal ticks, and 0.1 ms three times is 0.3 ms."""
    times = ["0", "100", "100.0", "0.1e3", "100.3", "3000", "3000"]
    content = "".join(MOONCAKE % (t, 6755 + i, 500) for i, t in enumerate(times))
    read = read_trace(written(tmp_path, content, "t.jsonl"))

    assert read.arrival == [round(Fraction(t) / 1000 * TICKS) for t in times]
    assert read.arrival[1] == read.arrival[2] == read.arrival[3]
    assert read.prompt[-1] == 6761
    assert read.told[1] == "hash_ids are not read: no two prompts begin with the same tokens"


@pytest.mark.parametrize(
    "indent", [None, 2], ids=["as vLLM writes it", "formatted over many lines"]
)
def test_the_result_of_a_benchmark_is_a_trace(tmp_path: Path, indent: int | None) -> None:
    """Requests of vLLM's detailed result come when they were sent, without those that failed."""
    result = {
        "date": "20260101-000000", "request_rate": 5.0, "duration": 3.5,
        "input_lens": [1024, 900, 1000], "output_lens": [128, 0, 100],
        "start_times": [71.25, 71.5, 72.000000001], "errors": ["", "timeout", ""],
        "ttfts": [0.1, math.nan, 0.2],
    }  # fmt: skip
    path = written(tmp_path, json.dumps(result, indent=indent), "r.json")
    read = read_trace(path)

    assert (read.arrival, read.prompt) == ([0, ticks("0.750000001")], [1024, 1000])
    assert read.told[1].endswith("without tokens of prompt or output: 1")


def test_lengths_without_times_ask_for_a_rate(tmp_path: Path) -> None:
    """A result without start times, or a trace without a time, is drawn at a rate."""
    result = written(tmp_path, '{"input_lens": [9, 8], "output_lens": [3, 2]}', "r.json")
    table = written(tmp_path, "prompt_tokens,output_tokens\n9,3\n8,2\n")
    lines = written(tmp_path, '{"prompt_tokens": 9, "output_tokens": 3}\n' * 2, "l.jsonl")

    assert sentence(lambda: read_trace(result)) == (
        f"no times: 'start_times' is missing ({result}). Or give a rate, such as --rate 5."
    )
    assert "no times: 'arrival_s' is missing" in sentence(lambda: read_trace(table))
    assert f"({lines}:1)" in sentence(lambda: read_trace(lines))
    for path in (result, table, lines):
        read = read_trace(path, rate=4, seed=3)
        assert read.arrival == draw_arrivals(4, 2, seed=3)
        assert read.told[-1] == (
            "they come at 4.00 a second, at random (Poisson), seed 3, in their order"
        )


def test_a_rate_replaces_the_times_of_a_trace(tmp_path: Path) -> None:
    """With a rate, times are not read at all; the scale multiplies it."""
    path = written(tmp_path, OWN + "9,1,2\nnever,3,4\n1,5,6\n")
    read = read_trace(path, rate=4, scale=2.5)

    assert read.prompt == [1, 3, 5]
    assert read.arrival == draw_arrivals(10, 3, seed=0)


def test_a_scale_speeds_time_up_exactly(tmp_path: Path) -> None:
    """Times are divided by the scale before they are rounded, once."""
    path = written(tmp_path, OWN + "0.1,1,2\n0.7,3,4\n")
    read = read_trace(path, scale=0.3)

    assert read.arrival == [round(Fraction(n, 3) * TICKS) for n in (1, 7)]
    assert read.told[-1] == "they come 0.3 times as fast as they did"


def test_times_of_many_decimals_are_rounded_once(tmp_path: Path) -> None:
    """Half ticks go to even, and decimals beyond all floats still tell."""
    exact = Fraction(5, 2 * TICKS)
    digits = str(exact.numerator * 10**71 // exact.denominator).zfill(71)
    content = OWN + "".join(f"{t},1,1\n" for t in ("0", f"0.{digits}", f"0.{digits}1"))
    read = read_trace(written(tmp_path, content))

    assert Fraction(int(digits), 10**71) == exact
    assert read.arrival == [0, 2, 3]


def test_rows_out_of_order_are_sorted_and_ties_keep_their_order(tmp_path: Path) -> None:
    """Rows come in the order of their times, with all that belongs to them, and it is said."""
    content = OWN.replace("\n", ",session\n") + "2,1,9,c\n1,2,8,b\n2,3,7,d\n0.5,4,6,a\n"
    read = read_trace(written(tmp_path, content))

    assert (read.prompt, read.output) == ([4, 2, 1, 3], [6, 8, 9, 7])
    assert read.session == ["a", "b", "c", "d"]
    assert read.arrival == [ticks(t) for t in ("0.5", "1", "2", "2")]
    assert read.told[1] == "rows are sorted by time; earlier than the row above them: 2"
    azure = AZURE + "2024-05-10 00:00:05,1,1\n2024-05-10 00:00:03,2,1\n"
    assert read_trace(written(tmp_path, azure)).arrival == [0, ticks("2")]


def test_a_limit_reads_the_first_requests(tmp_path: Path) -> None:
    """Rows past the limit are not looked at, and failures do not count."""
    content = BURST + "1,m,1,1,2,x\n2,m,1,0,1,x\n3,m,2,1,3,x\nbroken\n"
    path = written(tmp_path, content)

    assert read_trace(path, limit=2).prompt == [1, 2]
    assert "the row has 1 cells and the header has 6" in sentence(lambda: read_trace(path))


SAVED: dict[str, Callable[[str], bytes]] = {
    "BOM": lambda t: t.encode("utf-8-sig"),
    "UTF-16": lambda t: t.encode("utf-16"),
    "big-endian": lambda t: b"\xfe\xff" + t.encode("utf-16-be"),
    "Windows": lambda t: t.replace("\n", "\r\n").encode(),
    "old Mac": lambda t: t.replace("\n", "\r").encode(),
    "no last line end": lambda t: t.rstrip("\n").encode(),
    "blank lines": lambda t: t.replace("\n", "\n\n").encode(),
    "empty rows": lambda t: (t + "\n ,,\n\n").encode(),
    "tabs": lambda t: t.replace(",", "\t").encode(),
    "semicolons": lambda t: t.replace(",", ";").encode(),
    "spaces": lambda t: t.replace(",", ", ").encode(),
    "quotes": lambda t: t.replace("0.5", '"0.5"').encode(),
}
"""Ways to save the text of a trace."""


@pytest.mark.parametrize("way", SAVED)
def test_text_is_read_however_it_was_saved(tmp_path: Path, way: str) -> None:
    """Marks, encodings, line ends and separators of spreadsheets make no difference."""
    content = SAVED[way](OWN + "0.5,10,20\n1.5,30,40\n")
    read = read_trace(written(tmp_path, content))

    assert read.arrival == [ticks("0.5"), ticks("1.5")]
    assert (read.prompt, read.output) == ([10, 30], [20, 40])


# Bad traces


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty (t.csv)."),
        (b"\n \n# only a remark\n", "the file is empty (t.csv)."),
        (b"\x7fELF\0\0\1", "the file is not text (t.csv). Text in UTF-8 is needed."),
        (b"a,b\n\xff\xfe\xfd", "the file is not text (t.csv)."),
        (b"\xff\xfea", "the file is not text (t.csv)."),
        (OWN, "the trace holds no requests (t.csv)."),
        (BURST + "1,m,1,0,1,x\n", "the trace holds no requests that have tokens (t.csv)."),
        (OWN + "0,1\n", "the row has 2 cells and the header has 3 (t.csv:2)."),
        (OWN + "0,1,1\n\n1,1,1,1\n", "the row has 4 cells and the header has 3 (t.csv:4)."),
        (OWN + "-1,1,1\n", "arrival_s is '-1', which is not seconds from 0 on (t.csv:2)."),
        (OWN + "0,1,1\nnan,1,1\n", "arrival_s is 'nan', which is not seconds from 0 on (t.csv:3)."),
        (OWN + "inf,1,1\n", "arrival_s is 'inf', which is not seconds"),
        (OWN + ".,1,1\n", "arrival_s is '.', which is not seconds"),
        (OWN + "1e13,1,1\n", "arrival_s is '1e13', which is not seconds"),
        (OWN + ",1,1\n", "arrival_s is empty, which is not seconds"),
        (OWN + "2024-01-01 00:00:00,1,1\n", "which is not seconds from 0 on (t.csv:2)."),
        (OWN + "0,0,1\n", "prompt_tokens is 0 (t.csv:2). A request has a token of prompt"),
        (OWN + "0,1,0\n", "output_tokens is 0 (t.csv:2)."),
        (OWN + "0,-5,1\n", "prompt_tokens is '-5', which is not a whole number of tokens"),
        (OWN + "0,1,1.5\n", "output_tokens is '1.5', which is not a whole number of tokens"),
        (OWN + "0,nan,1\n", "prompt_tokens is 'nan', which"),
        (OWN + "0,inf,1\n", "prompt_tokens is 'inf', which"),
        (OWN + "0,,1\n", "prompt_tokens is empty, which"),
        (OWN + "0,²,1\n", "prompt_tokens is '²', which"),
        (OWN + "0,9000000000000,1\n", "prompt_tokens is above 1e+12 (t.csv:2). Is it a slip?"),
        (OWN + f"0,{'9' * 5000},1\n", "which is not a whole number of tokens (t.csv:2)."),
        ("arrival_s,prompt_tokens,outptu_tokens\n0,1,1\n",
         "no column 'output_tokens' beside 'prompt_tokens' (t.csv:1). Did you mean outptu_tokens? "
         "Found: arrival_s, prompt_tokens, outptu_tokens."),
        ("ContextTokens,TIMESTAMP\n", "no column 'generatedtokens' beside 'contexttokens'"),
        ("arival_s,prompt_tokens,output_tokens\n0,1,1\n",
         "no times: 'arrival_s' is missing (t.csv:1). Did you mean arival_s? Or give a rate"),
        ("name,size\nx,1\n", "the columns are of no known trace (t.csv:1). Name them arrival_s, "
         "prompt_tokens and output_tokens. Found: name, size."),
        ("arrival_s,prompt_tokens,output_tokens,Arrival_S\n0,1,1,1\n",
         "the column 'arrival_s' stands twice (t.csv:1)."),
        (OWN + '0,1,"1\n', "this is not CSV: unexpected end of data (t.csv:2)."),
        (OWN + f'0,1,"{"x" * 140_000}"\n', "this is not CSV: field larger than field limit"),
        (OWN + "0,1," + "1" * 1_100_000, "the row is longer than 1,048,576 characters (t.csv:2)."),
        (AZURE + "2023-13-16 00:00:00,1,1\n", "timestamp is '2023-13-16 00:00:00', which is not a "
         "date and time (t.csv:2). Write 2023-11-16 18:17:03.98."),
        (AZURE + "2023-11-16 24:00:00,1,1\n", "which is not a date and time (t.csv:2)."),
        (AZURE + "17,1,1\n", "timestamp is '17', which is not a date and time (t.csv:2)."),
        (OWN.strip() + ",priority\n0,1,1,high\n", "priority is 'high', which is not"),
        (OWN.strip() + ",prefix,prefix_tokens\n0,9,1,a,10\n",
         "a prefix of 10 tokens is longer than its prompt of 9 (t.csv:2)."),
        (OWN.strip() + ",prefix,prefix_tokens\n0,9,1,,5\n",
         "prefix and prefix_tokens are not both there (t.csv:2)."),
        (OWN.strip() + ",prefix\n0,9,1,a\n", "prefix and prefix_tokens are not both there"),
        (MOONCAKE % (0, 1, 1) + "[1, 2]\n", "the row is not an object (t.csv:2). Write one object"),
        (MOONCAKE % (0, 1, 1) + "17\n", "the row is not an object (t.csv:2)."),
        (MOONCAKE % (0, 1, 1) + '{"timestamp": 0, "input_length": 1}\n',
         "output_length is empty, which is not a whole number of tokens (t.csv:2)."),
        (MOONCAKE % (0, 1, 1) + '{"timestamp": 1,', "this is not valid JSON: "),
        (MOONCAKE % (0, 1, 1) + "\n{'timestamp': 1}\n", "(t.csv:3:2)."),
        (MOONCAKE % (0, "true", 1), "input_length is true or false, which is not"),
        (MOONCAKE % (0, "[3]", 1), "input_length is a list, which is not"),
        (MOONCAKE % (0, '{"a": 3}', 1), "input_length is an object, which is not"),
        (MOONCAKE % (0, "null", 1), "input_length is empty, which is not"),
        (MOONCAKE % (0, "NaN", 1), "input_length is 'NaN', which is not"),
        (MOONCAKE % (0, -3, 1), "input_length is '-3', which is not"),
        (MOONCAKE % (0, "9" * 3000, 1), "input_length is above 1e+12 (t.csv:1)."),
        (MOONCAKE % (0, "9" * 9000, 1), "a number has too many digits (t.csv:1)."),
        (MOONCAKE % (-1, 1, 1), "timestamp is '-1', which is not milliseconds from 0 on"),
        (MOONCAKE % ("Infinity", 1, 1), "timestamp is 'Infinity', which is not milliseconds"),
        (MOONCAKE % (10**16, 1, 1), "which is not milliseconds from 0 on (t.csv:1)."),
        ("[" * 100_000, "the file is a list (t.csv:1). Write one object a line (JSON Lines)."),
        ('{"a":' * 100_000, "the file is nested too deeply (t.csv)."),
        ("{}", "the columns are of no known trace (t.csv:1)."),
        ('{"input_lens": [1, 2], "output_lens": [1]}',
         "the lists of the result differ in length: input_lens 2, output_lens 1 (t.csv)."),
        ('{"input_lens": [1]}', "the result has no list 'output_lens' (t.csv)."),
        ('{"input_lens": 1, "output_lens": [1]}', "the result has no list 'input_lens' (t.csv)."),
        ('{"input_lens": [1, "x"], "output_lens": [1, 1], "start_times": [0, 0]}',
         "input_lens is 'x', which is not a whole number of tokens (t.csv, request 2)."),
        ('{"input_lens": [1], "output_lens": [1], "start_times": [0]}\n{}\n',
         "the file holds more than one result (t.csv:2). Leave one line in it."),
        ('{"completed": 9, "request_throughput": 2.5}',
         "the result of a benchmark is without lengths (t.csv:1). Run the benchmark with "
         "--save-detailed."),
        ('{\n"input_lens": [1],\n', "this is not valid JSON: "),
    ],
)  # fmt: skip
def test_a_bad_trace_gives_one_sentence_with_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | bytes, said: str
) -> None:
    """Whatever is wrong with a file is told in one line, with the file and the row."""
    written(tmp_path, content)
    monkeypatch.chdir(tmp_path)
    message = sentence(lambda: read_trace("t.csv"))

    assert said in message
    assert "\n" not in message


def test_what_is_no_file_is_told(tmp_path: Path) -> None:
    """A folder, a missing file and a name that is none give a sentence each."""
    assert "a folder stands where a trace is needed" in sentence(lambda: read_trace(tmp_path))
    missing = tmp_path / "missing.csv"
    assert sentence(lambda: read_trace(missing)) == (
        f"cannot read the file: no such file or directory ({missing})."
    )
    assert "this is not a file name" in sentence(lambda: read_trace("a\0b"))


def test_options_of_a_trace_are_checked(tmp_path: Path) -> None:
    """Limits, scales and rates that cannot be give a sentence with their option."""
    path = written(tmp_path, OWN + "0,1,1\n")

    assert "0 is below 1 (--limit)" in sentence(lambda: read_trace(path, limit=0))
    for scale in (0.0, -1.0, math.nan, math.inf):
        assert "(--scale)" in sentence(lambda scale=scale: read_trace(path, scale=scale))
    assert "(--rate)" in sentence(lambda: read_trace(path, rate=-1))


def test_more_requests_than_a_workload_holds_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trace of too many rows asks for a limit."""
    monkeypatch.setattr(traces, "MOST_REQUESTS", 3)
    monkeypatch.setattr(workload, "MOST_REQUESTS", 3)
    path = written(tmp_path, OWN + "0,1,1\n" * 4)

    assert f"has more than 3 requests ({path}:5)" in sentence(lambda: read_trace(path))
    assert len(read_trace(path, limit=3).prompt) == 3


PIECES = st.sampled_from(
    [*OWN.strip().split(","), *AZURE.strip().split(","), *BURST_3.strip().split(","), "prefix",
     "prefix_tokens", "session", "priority", ",", ",", ",", "\n", "\n", "\t", ";", '"', "0", "1",
     "17", "0.5", "-1", "1e3", "nan", "2023-11-16 18:17:03.9799600", "{", "}", "[", "]", ":",
     '"timestamp"', '"input_length"', '"output_length"', '"input_lens"', '"output_lens"', "null",
     "true", "#", " ", "é", "\ud7ff", "\0", "\r"]
)  # fmt: skip
"""Parts that traces are made of, and some that break them."""


@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda t: t.encode("utf-8", "surrogatepass")),
        st.lists(PIECES, max_size=40).map(lambda parts: "".join(parts).encode()),
        st.lists(PIECES, max_size=30).map(lambda parts: (OWN + "".join(parts)).encode()),
        st.lists(PIECES, max_size=30).map(lambda p: (MOONCAKE % (0, 1, 1) + "".join(p)).encode()),
    ),
    st.sampled_from([None, 2.0]),
)
@settings(
    max_examples=250, derandomize=True, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
def test_any_file_is_a_workload_or_an_error(
    tmp_path: Path, content: bytes, rate: float | None
) -> None:
    """Whatever bytes a file holds, it is read as requests that can be, or told in a sentence."""
    path = written(tmp_path, content)
    try:
        read = read_trace(path, rate=rate)
    except RooflmError as e:
        assert str(path) in str(e)  # noqa: PT017 (the other way out is as good)
    else:
        check(read)


# The traces of the project


def chat() -> str:
    """Make a chat service: short prompts of wide spread, Poisson arrivals at 4 a second."""
    rng, now = random.Random(1), 0.0
    rows: list[list[Any]] = []
    for _ in range(200):
        now += rng.expovariate(4.0)
        prompt, output = rng.lognormvariate(5.6, 0.9), rng.lognormvariate(5.0, 0.7)
        rows.append([f"{now:.3f}", 1 + round(prompt), 1 + round(output)])
    return table(["arrival_s", "prompt_tokens", "output_tokens"], rows)


def summaries() -> str:
    """Make a service of summaries: long prompts, short outputs, four documents at a time or so."""
    rng, now = random.Random(2), 0.0
    rows: list[list[Any]] = []
    for _ in range(120):
        # One gap in four is long: documents come together.
        now += rng.expovariate(0.25) if rng.random() < 0.25 else rng.expovariate(8.0)
        rows.append([f"{now:.3f}", rng.randrange(4000, 12001), rng.randrange(80, 321)])
    return table(["arrival_s", "prompt_tokens", "output_tokens"], rows)


def sessions() -> str:
    """Make conversations under two system prompts: each turn repeats all that was said before."""
    rng, begun = random.Random(3), 0.0
    rows: list[list[Any]] = []
    for i in range(40):
        begun += rng.expovariate(0.5)
        name, shared = rng.choice([("support", 1024), ("code", 512)])
        now, said = begun, shared
        for _ in range(rng.randrange(1, 7)):
            prompt, output = said + rng.randrange(20, 400), rng.randrange(30, 500)
            urgent = 0 if name == "support" else 1
            rows.append([f"{now:.3f}", prompt, output, urgent, name, shared, f"c{i}"])
            said = prompt + output
            now += 0.02 * output + rng.expovariate(0.1)
    rows.sort(key=lambda row: float(row[0]))
    columns = ["arrival_s", "prompt_tokens", "output_tokens", "priority"]
    return table([*columns, "prefix", "prefix_tokens", "session"], rows)


def table(columns: list[str], rows: list[list[Any]]) -> str:
    """Write rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([columns, *rows])
    return text.getvalue()


TRACES = {"chat": chat, "summaries": summaries, "sessions": sessions}


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_of_the_project_is_made_from_its_seed(name: str) -> None:
    """Each file of traces/ is what its function makes, is small, and is in order."""
    path = FOLDER / f"{name}.csv"
    read = read_trace(path)

    assert path.read_text() == TRACES[name]()
    assert path.stat().st_size <= 10_000
    assert len(read.prompt) <= 200
    assert read.told == (f"{len(read.prompt)} requests of {name}.csv (rooflm)",)


def test_turns_of_the_sessions_repeat_what_was_said() -> None:
    """The prompt of a turn is longer than prompt and output before it, under the same prefix."""
    read = read_trace(FOLDER / "sessions.csv")
    last: dict[str, tuple[int, str]] = {}
    turns = 0
    for prompt, output, prefix, session in zip(
        read.prompt, read.output, read.prefix, read.session, strict=True
    ):
        if session in last:
            turns += 1
            assert prompt > last[session][0]
            assert prefix == last[session][1]
        last[session] = (prompt + output, prefix)

    assert turns > 60
    assert set(read.priority) == {0, 1}
