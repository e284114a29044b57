"""Figures of live traffic hold the data of their answers, and tell no wait that has not settled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.errors import Exit, RooflmError
from rooflm.plots import kinds
from rooflm.plots.data import data
from rooflm.plots.style import figure
from rooflm.plots.terminal import chart
from rooflm.plots.words import words

from .figure_checks import check
from .helpers import Terminal

Answer = dict[str, Any]

SAID = [
    "2,000 requests come at 4.00 a second, at random (Poisson), seed 0", "prompts of 512 tokens",
    "scheduler chunked: decoding first", "time is the estimate (--basis); estimate: an engine",
]  # fmt: skip


def draw(kind: str, answer: Answer) -> Any:
    """Draw an answer; members of matplotlib are not typed."""
    return kinds.draw(kind, answer)


def told(drawing: Any) -> str:
    """Take the caption of a figure in one line."""
    return " ".join(drawing.get_supxlabel().split())


def summed(mean: float | None, *rest: float | None) -> Answer:
    """Write the mean and the quantiles of a wait."""
    return dict(zip(("mean", "p50", "p90", "p99"), (mean, *rest), strict=True))


NOTHING = summed(None, None, None, None)


def one_run(**changes: Any) -> Answer:
    """Write the answer of one run by hand: four intervals of 10 s, four requests."""
    answer: Answer = {
        "model": "a model", "hardware": "a chip", "assumptions": SAID, "load": "stable",
        "requests": 10, "measured_requests": 9, "unfinished_requests": 0, "replications": 3,
        "rate_requests_per_s": 4.0, "capacity_requests_per_s": 5.0, "complete": True,
        "ttft_s": summed(0.03, 0.02, 0.04, 0.045), "itl_s": summed(0.011, 0.01, 0.012, 0.02),
        "e2e_s": summed(2.5, 2, 3.5, 4), "memory": {"peak_share": 0.8},
        "over_time": {
            "time_s": [5, 15, 25, 35], "running_sequences": [1, 4, 4, 0.5],
            "waiting_requests": [0, 2, 1, 0], "pool_share": [0.1, 0.6, 0.7, 0.05],
        },
        "distributions": {
            "ttft_s": {"time_s": [0.01, 0.02, 0.03, 0.05], "share": [0.25, 0.5, 0.75, 1]},
            "itl_s": {"time_s": [0.01, 0.02], "share": [0.5, 1]},
            "e2e_s": {"time_s": [1, 2, 3, 4], "share": [0.25, 0.5, 0.75, 1]},
        },
    }  # fmt: skip
    return answer | changes


def at_rate(rate: float, load: str = "stable", **changes: Any) -> Answer:
    """Write a row of a sweep by hand: 100 tokens a request, waits that grow with the rate."""
    known = load != "unstable"
    row: Answer = {
        "rate_requests_per_s": rate, "capacity_requests_per_s": 10.0, "load": load,
        "throughput_tokens_per_s": 100 * rate, "throughput_requests_per_s": rate,
        "ttft_s": summed(0.01 * rate, 0.01, 0.02, 0.02 * rate) if known else NOTHING,
        "itl_s": summed(0.01 + 0.001 * rate, 0.01, 0.02, 0.02 + 0.001 * rate),
        "e2e_s": summed(1, 1, 1, 1) if known else NOTHING, "replications": 3, "complete": True,
        "intervals": {"ttft_s.mean": 0.001, "ttft_s.p99": 0.5, "itl_s.mean": 0.001,
                      "itl_s.p99": None},
    }  # fmt: skip
    return row | changes


def rates(*rows: Answer, **changes: Any) -> Answer:
    """Write the answer of a sweep by hand."""
    given = rows or (at_rate(2), at_rate(8), at_rate(9.6, "near saturation"),
                     at_rate(12, "unstable"))  # fmt: skip
    answer: Answer = {"model": "a model", "hardware": "a chip", "assumptions": SAID}
    return answer | {"rows": list(given)} | changes


def lines_of(panel: Answer) -> dict[str, tuple[list[float], list[float]]]:
    """List the lines of points by their name; caps of intervals have none."""
    return {line["label"]: (line["x"], line["y"]) for line in panel["lines"] if len(line) > 2}


def walls_of(panel: Answer) -> dict[str, float]:
    """List the lines across a panel by their name."""
    return {
        line["label"]: line.get("x", line.get("y")) for line in panel["lines"] if len(line) == 2
    }


def test_a_timeline_holds_what_runs_and_what_waits() -> None:
    """Requests above and shares of the pool below, on one axis of time, with the peak across."""
    drawing = draw("timeline", one_run())
    above, below = data(drawing)

    assert lines_of(above) == {
        "requests that decode": ([5, 15, 25, 35], [1, 4, 4, 0.5]),
        "requests that wait": ([5, 15, 25, 35], [0, 2, 1, 0]),
    }
    assert lines_of(below)["cache pool in use"] == (
        [5, 15, 25, 35], pytest.approx([10, 60, 70, 5])
    )  # fmt: skip
    assert walls_of(below) == {"peak of a server: 80 %": pytest.approx(80)}
    assert above["x"] == below["x"] == "time [s]"
    assert [ax.get_xlim() for ax in drawing.axes] == [(0, 40)] * 2
    assert [ax.get_ylim()[0] for ax in drawing.axes] == [0, 0]
    assert "means of intervals of 10 s; of 10 requests the first 1 are not measured" in told(
        drawing
    )


def test_captions_of_live_traffic_say_what_came() -> None:
    """Requests, prompts and the scheduler; of several rates none; load and interruptions."""
    said = told(draw("timeline", one_run()))
    assert "2,000 requests come at 4.00 a second, at random (Poisson), seed 0" in said
    assert "prompts of 512 tokens; scheduler chunked;" in said
    assert "time is the estimate, an engine" in said
    swept = told(draw("throughput-latency", rates()))
    assert "2,000 requests come at each rate, at random (Poisson), seed 0" in swept
    cut = one_run(load="unstable", complete=False, unfinished_requests=4, measured_requests=10)
    said = told(draw("timeline", cut | {"requests": 14}))
    assert "unstable: 4 requests/s come and 5 can be served, the queue grows without end" in said
    assert "interrupted: 4 requests are missing" in said


def test_distributions_start_at_nothing_and_have_their_quantiles() -> None:
    """Shares of requests and tokens in per cent, each panel with marks at the answer's figures."""
    drawing = draw("latencies", one_run())
    first, between, last = data(drawing)

    assert lines_of(first)[""] == ([10, 10, 20, 30, 50], [0, 25, 50, 75, 100])
    assert lines_of(between)[""] == ([10, 10, 20], [0, 50, 100])
    marks = {name: lines_of(first)[name] for name in ("p50", "p90", "p99")}
    assert marks == {"p50": ([20], [50]), "p90": ([40], [90]), "p99": ([45], [99])}
    assert lines_of(last)["p90"] == ([3.5], [90])
    assert [panel["x"] for panel in (first, between, last)] == [
        "time to the first token [ms]", "time between tokens [ms]", "time to the last token [s]"
    ]  # fmt: skip
    assert between["y"] == "tokens that waited no longer [%]"
    assert [ax.get_xscale() for ax in drawing.axes] == ["log"] * 3
    assert "curves are of the first of 3 runs, marks are means of all" in told(drawing)
    assert {t.get_text() for t in drawing.axes[0].texts} == {"20.0", "40.0", "45.0"}


def test_promises_stand_in_the_panels_of_their_waits() -> None:
    """At their times, told in the caption; a wait without one has no line."""
    slo = {"ttft_s": 0.1, "itl_s": 0.015, "e2e_s": None}
    drawing = draw("latencies", one_run(slo=slo))
    check(drawing)

    assert [walls_of(panel) for panel in data(drawing)] == [
        {"promised": pytest.approx(100)}, {"promised": pytest.approx(15)}, {}
    ]  # fmt: skip
    assert "promised: time to the first token 100 ms, time between tokens 15 ms (mean of a" in (
        told(drawing)
    )
    drawing = draw("throughput-latency", rates(slo=slo))
    check(drawing)
    assert [walls_of(panel)["promised"] for panel in data(drawing)] == pytest.approx([100, 15])


def test_waits_that_have_not_settled_have_no_distribution() -> None:
    """Under an unstable load only the times between tokens are drawn, and the caption says why."""
    drawing = draw("latencies", one_run(load="unstable", ttft_s=NOTHING, e2e_s=NOTHING))

    assert [panel["x"] for panel in data(drawing)] == ["time between tokens [ms]"]
    assert "unstable: 4 requests/s come and 5 can be served" in told(drawing)
    with pytest.raises(RooflmError, match="no request waited"):
        draw("latencies", one_run(ttft_s=NOTHING, e2e_s=NOTHING, itl_s=NOTHING))


def test_waits_that_are_all_alike_have_an_axis() -> None:
    """To the last digit, as those of equal clients: it reaches two per cent to either side."""
    alike = {"time_s": [0.04, 0.04 + 1e-16], "share": [0.5, 1]}
    answer = one_run(ttft_s=summed(0.04, 0.04, 0.04, 0.04))
    answer["distributions"]["ttft_s"] = alike
    drawing = draw("latencies", answer)

    assert drawing.axes[0].get_xlim() == pytest.approx((40 / 1.02, 40 * 1.02))
    check(drawing)


def test_waits_of_nothing_have_a_linear_axis() -> None:
    """A logarithmic one has no 0, at which requests of the textbook start."""
    answer = one_run(ttft_s=summed(0.5, 0, 1, 2))
    answer["distributions"]["ttft_s"] = {"time_s": [0, 0, 1, 2], "share": [0.25, 0.5, 0.75, 1]}
    drawing = draw("latencies", answer)

    assert [ax.get_xscale() for ax in drawing.axes] == ["linear", "log", "log"]
    check(drawing)


def test_rates_are_points_of_throughput_and_waits() -> None:
    """Mean and p99 of both waits; beyond the capacity there is a line, shortly below it a ring."""
    drawing = draw("throughput-latency", rates())
    first, further = data(drawing)

    throughput = [200, 800, 960]
    assert lines_of(first)["mean"] == (throughput, pytest.approx([20, 80, 96]))
    assert lines_of(first)["p99"] == (throughput, pytest.approx([40, 160, 192]))
    assert lines_of(further)["mean"] == (throughput, pytest.approx([12, 18, 19.6]))
    assert lines_of(further)["p99"] == (throughput, pytest.approx([22, 28, 29.6]))
    near = "near saturation, not settled"
    assert lines_of(first)[near] == ([960, 960], pytest.approx([96, 192]))
    for panel in (first, further):
        assert walls_of(panel) == {"capacity: 10 requests/s": pytest.approx(1000)}
    for ax in drawing.axes:
        assert {t.get_text() for t in ax.texts} == {"2/s", "8/s", "9.6/s"}
    assert "12 requests/s: the queue grows without end, no point" in told(drawing)
    assert "bars are 95 % intervals of 3 runs" in told(drawing)
    check(drawing)


def test_intervals_that_reach_below_nothing_are_cut() -> None:
    """Just above 0, where a logarithmic axis has room; waits without all intervals have no bars."""
    (mean, p99), further = (
        panel["segments"] for panel in data(draw("throughput-latency", rates()))
    )

    assert [y for segment in mean for _, y in segment] == pytest.approx([19, 21, 79, 81, 95, 97])
    assert p99[0] == [[200, pytest.approx(0.05 * 40)], [200, pytest.approx(540)]]
    # Of the other wait only the mean has intervals.
    assert len(further) == 1


def test_services_have_lines_and_capacities_of_their_own() -> None:
    """Rows that differ in more than the rate are told apart, mean and p99 by their dashes."""
    own = [at_rate(rate, variant=name, capacity_requests_per_s=most)
           for name, most in (("one", 10.0), ("two", 20.0)) for rate in (2, 4)]  # fmt: skip
    drawing = draw("throughput-latency", rates(*own))
    panel = data(drawing)[0]

    assert list(filter(None, lines_of(panel))) == ["one", "one, p99", "two", "two, p99"]
    assert walls_of(panel) == {
        "one, capacity: 10 requests/s": pytest.approx(1000),
        "two, capacity: 20 requests/s": pytest.approx(2000),
    }
    entries = [t.get_text() for t in drawing.legends[0].get_texts()]
    assert entries[:2] == ["one", "two"]
    assert entries[-2:] == ["mean", "p99"]
    check(drawing)


def column_of(row: Answer) -> Answer:
    """Write a row as a study has it."""
    waits = {f"{key}_{name}_s": row[f"{key}_s"][name] for key in ("ttft", "itl")
             for name in ("mean", "p99")}  # fmt: skip
    return {k: v for k, v in row.items() if not isinstance(v, dict)} | waits


def test_rows_of_a_study_are_drawn_like_those_of_an_answer() -> None:
    """By their columns, with the intervals of the means; what was cut short is told."""
    flat = [column_of(row) | {"ttft_half_width_s": 0.001, "itl_half_width_s": None}
            for row in (at_rate(2), at_rate(4, complete=False))]  # fmt: skip
    drawing = draw("throughput-latency", rates(*flat))
    first, further = data(drawing)

    assert lines_of(first)["mean"] == ([200, 400], pytest.approx([20, 40]))
    assert [y for _, y in first["segments"][0][0]] == pytest.approx([19, 21])
    assert further["segments"] == []
    assert "interrupted at 4 requests/s" in told(drawing)


def test_clients_are_points_as_well() -> None:
    """Where nothing comes at a rate their number stands beside each point, and no capacity."""
    row = {"rate_requests_per_s": None, "capacity_requests_per_s": None, "load": None}
    flat = [column_of(at_rate(n) | row) | {"clients": n, "throughput_tokens_per_s": 100.0 * n}
            for n in (1, 4)]  # fmt: skip
    drawing = draw("throughput-latency", rates(*flat, axes=["clients"]))

    assert lines_of(data(drawing)[0])["mean"][0] == [100, 400]
    assert walls_of(data(drawing)[0]) == {}
    assert {t.get_text() for t in drawing.axes[0].texts} == {"1", "4"}
    assert "beside the points: clients" in told(drawing)
    # What the assumptions say of the traffic is that of the first row.
    assert "prompts" not in told(drawing)


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        ("timeline", rates(), "no course over time.*Leave --sweep out"),
        ("latencies", rates(), "no distributions.*Leave --sweep out"),
        ("throughput-latency", one_run(), "no rows.*Say --sweep rate="),
        ("throughput-latency", rates(at_rate(12, "unstable"), at_rate(14, "unstable")),
         "all rates are above the 10 requests/s that can be served.*Take smaller ones"),
        ("throughput-latency", rates({"rate_requests_per_s": 1}), "no column 'throughput_tokens"),
    ],
)  # fmt: skip
def test_other_answers_are_refused_with_what_is_needed(
    kind: str, answer: Answer, said: str
) -> None:
    """One sentence, and the option that gives what is missing."""
    with pytest.raises(RooflmError, match=said):
        draw(kind, answer)


def test_stacked_panels_are_told_by_their_own_lines() -> None:
    """In characters and in words: the axis that both share, and no legend of the other panel."""
    drawing = draw("timeline", one_run())
    above, below, _ = chart(drawing, 60).split("\n\n")

    assert above.startswith("number [requests] against time [s]")
    assert above.endswith("A requests that decode   B requests that wait")
    assert below.endswith("C cache pool in use   -- peak of a server: 80 %")
    assert "requests that wait: number [requests] 0 at time [s] 5, 0 at 35." in words(drawing, "X.")


def test_a_terminal_marks_the_points_that_a_figure_marks() -> None:
    """Every fourth of eight; all where nothing else is said."""
    for every, wanted in ((slice(0, None, 4), 2), (None, 8)):
        drawing, (ax,) = figure(1, "")
        ax.plot(range(8), range(8), "o", markevery=every)
        assert chart(drawing, 40, ascii=True).count("A") == wanted


@pytest.mark.parametrize(
    "wanted",
    [("timeline", "--rate", "8"), ("latencies", "--clients", "4"),
     ("throughput-latency", "--sweep", "rate=2,8")],
    ids=lambda w: w[0],
)  # fmt: skip
def test_the_command_of_live_traffic_draws(
    rooflm: Terminal, tmp_path: Path, wanted: tuple[str, ...]
) -> None:
    """By --plot and --chart, and by `rooflm plot`."""
    kind, *traffic = wanted
    traffic += ["--requests", "60"] if "--clients" not in traffic else []
    words = ("llama-3-8b", "--on", "h100-sxm", *traffic, "--replications", "2")
    path = tmp_path / "figure.svg"
    draw_as = ("--draw", kind) if kind == "latencies" else ()
    ran = rooflm("serve", *words, "--plot", str(path), "--chart", *draw_as)
    assert ran.code == Exit.DONE, ran.err
    usual = path.read_text("utf-8")
    assert "llama-3-8b on h100-sxm; weights bf16" in ran.out

    ran = rooflm("plot", kind, *words, "-o", str(path))
    assert ran.code == Exit.DONE, ran.err
    assert path.read_text("utf-8") == usual
