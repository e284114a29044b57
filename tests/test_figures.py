"""Figures hold the data of their answers, can be read, and refuse what they cannot draw."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

import pytest
from matplotlib.collections import LineCollection

from rooflm.calc.errors import RooflmError
from rooflm.calc.labels import quantity
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.sweep import sweep
from rooflm.calc.typed import Counting, make_case
from rooflm.plots import kinds
from rooflm.plots.axes import brief, digits, log_ticks, plain
from rooflm.plots.data import data
from rooflm.plots.heatmap import abbreviated
from rooflm.plots.kinds import KINDS
from rooflm.plots.pareto import usual_way
from rooflm.plots.series import named, series
from rooflm.plots.style import entitle, figure, marked, plain_text, save, svg
from rooflm.plots.terminal import chart
from rooflm.plots.words import spoken, words

from .figure_checks import check
from .helpers import Terminal

Answer = dict[str, Any]


def draw(kind: str, answer: Answer, **options: Any) -> Any:
    """Draw an answer; members of matplotlib are not typed."""
    return kinds.draw(kind, answer, **options)


LECTURE = ((1, 26.87, 8.02, 124.7), (64, 79.72, 23.80, 2689.5), (256, 240.78, 71.87, 3562.1))
"""Batch, GB, ms and tokens/s of Stanford CS336 lecture 10; 80 GB hold the first two."""


def swept(*contexts: int, batches: tuple[int, ...] = (1, 64, 256)) -> Answer:
    """Answer a sweep in the lecture's accounting, which the lecture's table is of."""
    machine = find_machine("h100-sxm")
    case = make_case(find_model("llama-2-13b"), machine, Counting(accounting="lecture"))
    return sweep(case, batches, contexts or (1024,))


def study() -> Answer:
    """Write an answer of three variants by hand, with a fact that nobody computes."""
    rows = [
        {"variant": v, "batch": b, "context_tokens": 1024, "memory_bytes": gb * 1e9, "time_s": s,
         "tokens_per_s": b / s, "fits": gb <= 80, "regime": word, "quality": q,
         "weights_bytes": 0.25e9 * gb, "kv_cache_bytes": 0.75e9 * gb, "capacity_bytes": 80e9}
        for v, b, gb, s, word, q in (
            ("MHA", 1, 27, 0.008, "memory", 47.2), ("MHA", 64, 79, 0.024, "memory", 47.2),
            ("MHA", 256, 240, 0.072, "compute", 47.2), ("GQA", 1, 23, 0.007, "memory", 47.1),
            ("GQA", 64, 33, 0.010, "memory", 47.1), ("GQA", 256, 66, 0.020, "compute", 47.1),
            ("MQA", 1, 22, 0.0065, "memory", 46.6), ("MQA", 64, 24, 0.007, "memory", 46.6),
        )
    ]  # fmt: skip
    return {
        "title": "Fewer heads", "axes": ["variant", "batch", "context_tokens"], "rows": rows,
        "facts": {"quality": {"label": "mean of tasks", "unit": "points", "source": "a paper"}},
        "units": {"quality": "points"}, "assumptions": [], "model": ["llama-2-13b"],
        "hardware": ["h100-sxm"],
    }  # fmt: skip


def operator(name: str, part: str, flops: float, weights: float, cache: float) -> Answer:
    """Write a row of a roofline of 100 FLOP/s and 10 B/s."""
    return {
        "name": name, "part": part, "flops": flops, "bytes": weights + cache + 1,
        "weight_read_bytes": weights, "cache_read_bytes": cache,
        "bound_s": max(flops / 100, (weights + cache) / 10),
    }  # fmt: skip


def roof(batch: int, hardware: str = "a chip") -> Answer:
    """Write a roofline by hand: matrices that a batch shares, and a cache that it does not."""

    def ops(rows: int) -> list[Answer]:
        return [
            operator("norms", "norms", 0, 1, 0),
            operator("qkv", "attention projections", 20.0 * rows, 20, 0),
            operator("attention", "attention", 16.0 * rows, 0, 8.0 * batch),
            operator("head", "head", 60.0 * rows, 60, 0),
        ]

    return {
        "model": "a model", "hardware": hardware, "batch": batch, "context_tokens": 512,
        "ridge_flops_per_byte": 10.0, "peak_flops_per_s": 100e12, "bandwidth_bytes_per_s": 10e12,
        "operators": ops(batch), "prefill_operators": ops(64 * batch), "assumptions": ["bounds"],
    }  # fmt: skip


def measured() -> Answer:
    """Write a run of steps by hand, one of which was not measured."""
    rows = [
        {"weights": w, "context_tokens": 512, "batch": b, "measured_s": s,
         "measured_low_s": 0.9 * s, "measured_high_s": 1.2 * s, "bound_s": 0.5 * s,
         "ceiling_bound_s": 0.8 * s, "estimate_s": None, "calibrated_s": 1.05 * s}
        for w, b, s in (("bf16", 1, 0.1), ("bf16", 2, 0.12), ("fp32", 1, 0.2), ("fp32", 4, 0.3))
    ]  # fmt: skip
    rows.append({**rows[0], "batch": 8, "measured_s": None})
    return {
        "rows": rows, "preset": None, "date": "2026-01-02",
        "device": {"name": "a device", "torch": "2.13.0"},
        "summary": {"median_calibrated_error": 0.05},
    }  # fmt: skip


def judged() -> Answer:
    """Write published measurements by hand: two inside their band, one without a band."""
    rows = [
        {"kind": k, "measured_s": m, "estimate_s": e, "estimate_low_s": low,
         "estimate_high_s": high, "error": None if e is None else e / m - 1}
        for k, m, e, low, high in (
            ("decode", 0.01, 0.011, 0.009, 0.012), ("request", 2.0, 1.9, 1.7, 2.1),
            ("op", 0.0001, 0.00012, None, None), ("served", 0.02, None, None, None),
        )
    ]  # fmt: skip
    total = {"error_median": 0.1, "error_p90": 0.2, "coverage": 1.0}
    return {"rows": rows, "total": total}


PLAN = ("plan", "llama-3-8b", "--on", "h100-sxm", "--devices", "1:4", "--latency", "20ms")
SPECULATE = (
    "speculate", "llama-3-8b", "--draft", "llama-3.2-1b", "--acceptance", "0.8", "--on", "h100-sxm",
    "--draft-tokens", "2,4", "--batch", "1,8,64", "--basis", "bound",
)  # fmt: skip
EXPLAIN = ("explain", "bound_s", "llama-2-13b", "--on", "h100-sxm", "--batch", "64")
LIVE = ("serve", "llama-3-8b", "--on", "h100-sxm", "--requests", "150", "--replications", "2",
        "--prompt", "lognormal:512,1")  # fmt: skip

QUALITY = {"x": "memory_bytes", "y": "quality", "better": "low/high"}

Made = tuple[str, Callable[[Terminal], Answer], dict[str, Any]]

EXAMPLES: dict[str, Made] = {
    "sweep": ("sweep", lambda _: swept(1024, 4096), {"latency_s": 0.02}),
    "sweep of variants": ("sweep", lambda _: study(), {}),
    "one point": ("sweep", lambda _: swept(batches=(16,)), {}),
    "eight series": ("sweep", lambda _: swept(*(2**n for n in range(9, 17))), {}),
    "roofline": ("roofline", lambda _: roof(4), {}),
    "rooflines": ("roofline", lambda _: {"rooflines": [roof(1), roof(8), roof(8, "b")]}, {}),
    "pareto": ("pareto", lambda _: swept(1024, 4096), {}),
    "quality": ("pareto", lambda _: study(), QUALITY),
    "memory": ("memory", lambda _: swept(1024, 4096), {}),
    "memory of variants": ("memory", lambda _: study(), {}),
    "cache": ("cache", lambda _: swept(1024, 4096, 65536), {}),
    "reuse": ("reuse", lambda _: {"rooflines": [roof(1), roof(16), roof(64)]}, {}),
    "laws": ("laws", lambda r: r.json("speculate", "--p", "0.8,0.2", "--q", "0.6,0.4"), {}),
    "speculation": ("speculation", lambda r: r.json(*SPECULATE), {}),
    "heatmap": ("heatmap", lambda _: swept(1024, 4096), {}),
    "heatmap of words": ("heatmap", lambda _: study(), {"y": "variant", "z": "regime"}),
    "tornado": ("tornado", lambda r: r.json(*EXPLAIN, "--sensitivity"), {}),
    "levers": ("tornado", lambda r: r.json("levers", *EXPLAIN[2:]), {}),
    "accuracy": ("accuracy", lambda _: judged(), {}),
    "plan": ("plan", lambda r: r.json(*PLAN), {}),
    "timeline": ("timeline", lambda r: r.json(*LIVE, "--rate", "40", "--cache", "4GB"), {}),
    "latencies": ("latencies", lambda r: r.json(*LIVE, "--rate", "20"), {}),
    "throughput": ("throughput-latency", lambda r: r.json(*LIVE, "--sweep", "rate=4:512:x2"), {}),
    "validation": ("validation", lambda _: measured(), {}),
    "lines": ("lines", lambda _: study(), {"y": "time_s", "log": "xy"}),
}


def made(name: str, rooflm: Terminal) -> tuple[Answer, Any]:
    """Make the answer of an example, and its figure."""
    kind, answer_of, options = EXAMPLES[name]
    answer = answer_of(rooflm)
    return answer, draw(kind, answer, **options)


def points_of(group: Any) -> list[tuple[float, float]]:
    """List the points of a scatter."""
    return [(float(x), float(y)) for x, y in group.get_offsets()]


def colours_of(group: Any) -> list[str]:
    """List the colours of a collection."""
    from matplotlib.colors import to_hex

    return [to_hex(colour) for colour in group.get_color()]


def told(drawing: Any) -> str:
    """Take the caption of a figure in one line."""
    return " ".join(drawing.get_supxlabel().split())


def lines_of(ax: Any) -> dict[str, tuple[list[float], list[float]]]:
    """List the lines with a name, with their data."""
    return {
        line.get_label(): (list(line.get_xdata()), list(line.get_ydata()))
        for line in ax.lines
        if not line.get_label().startswith("_")
    }


def test_every_kind_has_an_example_here() -> None:
    """No kind is drawn without being read."""
    assert {kind for kind, _, _ in EXAMPLES.values()} == set(KINDS)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kind_can_be_read_at_half_its_size(name: str, rooflm: Terminal) -> None:
    """No text is cut, covered or too small, no legend covers a point; with a title as well."""
    _, drawing = made(name, rooflm)
    entitle(drawing, "A title of the figure")

    check(drawing)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_kind_is_drawn_in_characters(name: str, rooflm: Terminal) -> None:
    """No line is longer than the terminal, and ASCII is enough where it has to be."""
    _, drawing = made(name, rooflm)
    entitle(drawing, "A title")

    for width in (24, 80):
        wide = chart(drawing, width)
        narrow = chart(drawing, width, height=8, ascii=True)
        assert max(map(len, wide.splitlines())) <= width
        assert max(map(len, narrow.splitlines())) <= width
        assert narrow.isascii()
        assert "\x1b" not in wide
        assert wide.startswith("A title\n")


def test_a_sweep_holds_the_lecture_s_table() -> None:
    """Times and throughputs of the lecture; 256 sequences are dotted, 64 are the wall."""
    drawing = draw("sweep", swept())
    time, rate = drawing.axes

    for ax, column in ((time, 2), (rate, 3)):
        fitting, beyond = ax.get_lines()
        assert list(fitting.get_xdata()) == [1, 64]
        assert list(beyond.get_xdata()) == [64, 256]
        seen = [*fitting.get_ydata(), beyond.get_ydata()[-1]]
        assert seen == pytest.approx([row[column] for row in LECTURE], rel=1e-3)
        assert (fitting.get_linestyle(), beyond.get_linestyle()) == ("-", ":")
        (wall,) = ax.collections
        assert [x for x, _ in wall.get_segments()[0]] == [64, 64]
        assert colours_of(wall) == [fitting.get_color()]
        assert [text.get_text() for text in ax.texts] == ["64"]
    assert time.get_ylabel() == "time of a step [ms]"
    assert rate.get_ylabel() == "throughput [tokens/s]"


def test_every_series_has_a_wall_of_its_own_colour() -> None:
    """Where several stop at one batch their dashes take turns; the legend claims what is drawn.

    By hand: (80e9 - 26.03e9) bytes over 819,200 a token hold 64.3, 64.3 and 16.1 sequences.
    """
    drawing = draw("sweep", swept(1024, 1025, 4096))
    (legend,) = drawing.legends

    for ax in drawing.axes:
        lines = {line.get_label(): line.get_color() for line in ax.lines}
        walls = [(colours_of(w)[0], w.get_segments()[0][0][0]) for w in ax.collections]
        wanted = zip(("1,024 tokens", "1,025 tokens", "4,096 tokens"), (64, 64, 16), strict=True)
        assert walls == [(lines[name], at) for name, at in wanted]
        offsets = [w.get_linestyle()[0][0] for w in ax.collections]
        assert offsets[0] != offsets[1]
    assert "largest batch that fits" in [t.get_text() for t in legend.get_texts()]


@pytest.mark.parametrize(
    ("told", "wall"),
    [(70, ("largest batch that fits", 70)), (None, ("last batch drawn that fits", 64)),
     (300, ("last batch drawn that fits", 64)), (8, ("last batch drawn that fits", 64))],
)  # fmt: skip
def test_a_wall_is_exact_where_the_rows_say_so(told: int | None, wall: tuple[str, int]) -> None:
    """Of rows by hand, 64 fit and 256 do not; a number which contradicts them is no capacity."""
    answer = study()
    answer["rows"] = [row | {"max_sequences": told} for row in answer["rows"]]
    lines = data(draw("sweep", answer))[0]["lines"]

    assert {"label": f"{wall[0]} (MHA)", "x": wall[1]} in lines


@pytest.mark.parametrize(
    "title", ["A title far beyond the width of its figure, " * 3, "时间" * 60, "W" * 150]
)
def test_a_long_title_is_wrapped_inside_the_figure(title: str) -> None:
    """Above a legend and without one, each line ends before the edge; all words are there."""
    for drawing in (draw("heatmap", study(), y="variant"), draw("sweep", swept(batches=(1,)))):
        entitle(drawing, title)
        with plain_text():
            drawing.draw_without_rendering()
        text = drawing.legends[0].get_title() if drawing.legends else drawing._suptitle
        box = text.get_window_extent()
        assert "".join(text.get_text().split()) == "".join(title.split())
        assert 0 <= box.x0 < box.x1 <= drawing.bbox.x1
        assert box.y1 <= drawing.bbox.y1


def test_of_many_contexts_no_sweep_searches_the_largest_batch() -> None:
    """Each takes a search; by hand 53.97e9 bytes over 819,200 a token hold 64.3 of 1,024 tokens."""
    assert swept()["largest"] == [{"context_tokens": 1024, "max_sequences": 64}]
    assert swept(*range(1, 10))["largest"] == []


def test_long_lines_have_few_markers() -> None:
    """Some thirty, at even steps of the axis, the last point among them; short ones have all."""
    assert marked([1.0, 2.0, 3.0]) is None
    chosen = marked([float(n) for n in range(1, 2501)])
    assert chosen is not None
    assert 20 <= len(chosen) <= 31
    assert (chosen[0], chosen[-1]) == (0, 2499)
    line = draw("sweep", swept(batches=tuple(range(1, 101)))).axes[0].get_lines()[0]
    assert 0 < len(line.get_markevery()) < 40


def test_small_changes_of_time_look_small() -> None:
    """A linear axis of a time starts at 0; that of a fact which differs by little does not."""
    answer = study()
    answer["rows"] = [row | {"time_s": 0.02 + 1e-5 * row["batch"]} for row in answer["rows"]]

    assert draw("sweep", answer).axes[0].get_ylim()[0] == 0
    assert draw("lines", answer, y="time_s").axes[0].get_ylim()[0] == 0
    for kind, options in (("lines", {"y": "quality"}), ("pareto", QUALITY)):
        drawing = draw(kind, answer, **options)
        assert drawing.axes[0].get_ylim()[0] > 40
        assert "the axis of 'mean of tasks' does not start at 0" in told(drawing)


def test_a_promised_latency_is_drawn_and_what_keeps_it_is_ringed() -> None:
    """At 10 ms the variant with all heads keeps 1 sequence, the one with eight 64."""
    drawing = draw("sweep", study(), latency_s=0.01)
    promised = lines_of(drawing.axes[0])["latency asked for: 10 ms"]
    batches, rates = lines_of(drawing.axes[1])["largest batch within it"]

    assert promised[1] == [10, 10]
    assert batches == [1, 64, 64]
    assert rates == pytest.approx([1 / 0.008, 64 / 0.010, 64 / 0.007])
    missed = draw("sweep", study(), latency_s=0.001)
    assert "no batch that fits takes at most 1 ms" in " ".join(missed.get_supxlabel().split())


def test_estimates_and_bounds_are_not_joined() -> None:
    """Where some rows have no estimate their bounds make a line of their own, and it is said."""
    answer = study()
    answer["rows"] = [
        row | {"basis": "estimate" if row["batch"] == 1 else "bound"}
        for row in answer["rows"]
        if row["variant"] != "MHA"
    ]
    drawing = draw("sweep", answer)
    lines = drawing.axes[0].get_lines()

    assert [list(line.get_xdata()) for line in lines] == [[1], [64, 256], [1], [64]]
    assert lines[1].get_linestyle() == "--"
    (legend,) = drawing.legends
    assert "bound, where there is no estimate" in [t.get_text() for t in legend.get_texts()]


def test_requests_are_drawn_by_their_whole_time(rooflm: Terminal) -> None:
    """End to end, a line a prompt."""
    words = ("--phase", "request", "--prompt", "512,2048", "--batch", "1,4")
    answer = rooflm.json("sweep", "llama-3-8b", "--on", "h100-sxm", *words)
    lines = lines_of(draw("sweep", answer).axes[0])

    assert list(lines) == ["prompt 512 tokens", "prompt 2,048 tokens"]
    for (_, times), prompt in zip(lines.values(), (512, 2048), strict=True):
        own = [r["e2e_s"] for r in answer["rows"] if r["prompt_tokens"] == prompt]
        assert times == pytest.approx(own)


def test_a_roofline_has_the_roof_and_every_operator_under_it() -> None:
    """min(100, 10 I) TFLOP/s; FLOPs over what is read, and over the bound; no FLOPs, no point."""
    answer = roof(4)
    drawing = draw("roofline", answer)
    (ax,) = drawing.axes
    *points, top = ax.get_lines()
    seen = {
        (round(x, 9), round(1e12 * y, 9))
        for line in points
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    expected = {
        (op["flops"] / (op["weight_read_bytes"] + op["cache_read_bytes"]),
         op["flops"] / op["bound_s"])
        for key in ("operators", "prefill_operators")
        for op in answer[key]
        if op["flops"]
    }  # fmt: skip

    assert seen == expected
    left, ridge, right = top.get_xdata()
    assert ridge == 10
    assert list(top.get_ydata()) == pytest.approx([10 * left, 100, 100])
    assert left < min(x for x, _ in seen)
    assert right > 10
    assert "having no FLOPs: norms" in told(drawing)
    same = "attention projections and head lie at one point in decode and in prefill"
    assert same in told(drawing)
    assert len(points) == 6  # three operators in each of two passes


def test_several_rooflines_share_a_figure() -> None:
    """An operator of several batches is one track; machines that are alike in all have one roof."""
    (ax,) = draw("roofline", {"rooflines": [roof(1), roof(8), roof(8, "b")]}).axes
    tracks = [line for line in ax.get_lines() if line.get_color() != "#000000"]
    roofs = [line for line in ax.get_lines() if line.get_color() == "#000000"]

    assert sorted(len(line.get_xdata()) for line in tracks) == [1] * 6 + [2] * 6
    assert [line.get_label().partition(":")[0] for line in roofs] == ["a chip", "b"]


def test_the_front_is_what_no_row_beats() -> None:
    """Every pair of rows that fit is compared; the steps go through what is left, in order."""
    answer = swept(1024, 4096, 16384)
    (ax,) = draw("pareto", answer).axes
    rows = [r for r in answer["rows"] if r["fits"]]
    left = [
        r
        for r in rows
        if not any(
            o["time_s"] <= r["time_s"]
            and o["tokens_per_s"] >= r["tokens_per_s"]
            and (o["time_s"], o["tokens_per_s"]) != (r["time_s"], r["tokens_per_s"])
            for o in rows
        )
    ]
    left.sort(key=lambda r: r["time_s"])
    times, rates = lines_of(ax)["nothing beats these"]

    assert 0 < len(left) < len(rows)
    assert times == pytest.approx([1e3 * r["time_s"] for r in left])
    assert rates == pytest.approx([r["tokens_per_s"] for r in left])
    seen = sorted(p for group in ax.collections for p in points_of(group))
    every = sorted((1e3 * r["time_s"], r["tokens_per_s"]) for r in answer["rows"])
    assert [x for p in seen for x in p] == pytest.approx([x for p in every for x in p])
    hollow = [g for g in ax.collections if g.get_facecolor()[0].tolist() == [1, 1, 1, 1]]
    assert sum(len(points_of(g)) for g in hollow) == sum(not r["fits"] for r in answer["rows"])


def test_what_is_better_can_be_said() -> None:
    """Quality against memory: more quality for less memory, or the other way round."""
    usual = draw("pareto", study(), **QUALITY)
    turned = draw("pareto", study(), x="memory_bytes", y="quality", better="high/low")

    # 22, 23 and 27 GB with 46.6, 47.1 and 47.2 points; the most memory that fits, for the least.
    assert lines_of(usual.axes[0])["nothing beats these"] == ([22, 23, 27], [46.6, 47.1, 47.2])
    assert lines_of(turned.axes[0])["nothing beats these"] == ([24, 66, 79], [46.6, 47.1, 47.2])
    assert usual.axes[0].get_ylabel() == "mean of tasks [points]"
    assert "a paper" in usual.get_supxlabel()
    with pytest.raises(RooflmError, match="unknown value 'lower'"):
        draw("pareto", study(), better="lower/high")
    for key in ("quality", "capacity_bytes", "batch"):
        with pytest.raises(RooflmError, match=f"less or more of '{key}' is better.*--better"):
            draw("pareto", study(), x="memory_bytes", y=key)


@pytest.mark.parametrize(
    ("way", "keys"),
    [
        ("low", "time_s ttft_s memory_bytes weights_bytes bytes cache.bytes_per_token devices "
                "output_usd_per_mtok joules_per_token sequence_cache_bytes cache.elements"),
        ("high", "tokens_per_s tokens_per_s_per_device max_sequences max_context_tokens speedup "
                 "margin_bytes mlp_up.intensity_flops_per_byte speedup_without_messages"),
        (None, "quality capacity_bytes flops batch context_tokens parameters regime score ops"),
    ],
)  # fmt: skip
def test_what_is_better_is_known_of_some_columns(way: str | None, keys: str) -> None:
    """By what a column is; of all others nobody guesses."""
    assert {key: usual_way(key) for key in keys.split()} == dict.fromkeys(keys.split(), way)


def test_points_say_what_tells_them_apart() -> None:
    """Each has its batch where there is room, and the caption has all; one best point no line."""
    answer = swept(1024, 4096)
    drawing = draw("pareto", answer)
    (ax,) = drawing.axes

    assert len(ax.texts) == len(answer["rows"])
    assert {t.get_text() for t in ax.texts} == {"batch 1", "batch 64", "batch 256"}
    assert "batch 1, 64 and 256" in told(drawing)
    answer["rows"] = answer["rows"][:1]
    alone = draw("pareto", answer)
    assert list(lines_of(alone.axes[0])) == ["nothing beats this"]
    assert alone.axes[0].get_lines()[0].get_linestyle() == "None"


def test_bars_of_memory_are_stacked_to_its_total() -> None:
    """Weights below, cache above, the total written beside, the capacity across."""
    answer = swept(1024, 4096)
    (ax,) = draw("memory", answer).axes
    weights, cache = ax.containers
    rows = answer["rows"]

    assert [p.get_width() for p in weights] == pytest.approx(
        [r["weights_bytes"] / 1e9 for r in rows]
    )
    assert [p.get_width() for p in cache] == pytest.approx(
        [r["kv_cache_bytes"] / 1e9 for r in rows]
    )
    ends = [p.get_x() + p.get_width() for p in cache]
    assert ends == pytest.approx([r["memory_bytes"] / 1e9 for r in rows])
    assert ends[:3] == pytest.approx([row[1] for row in LECTURE], rel=1e-3)
    (limit,) = ax.collections
    assert {x for segment in limit.get_segments() for x, _ in segment} == {80.0}
    written = {text.get_text(): text.get_position()[0] for text in ax.texts}
    assert list(written)[:3] == ["26.9 of 80.0", "79.7", "240.8, does not fit"]
    # A total that fits never reads as one beyond the capacity.
    assert written["79.7"] < 79.7
    assert written["240.8, does not fit"] > 240.8
    names = [label.get_text() for label in ax.get_yticklabels()]
    assert names[:2] == ["1,024 tokens, batch 1", "1,024 tokens, batch 64"]


def test_memory_of_a_draft_is_part_of_the_bars(rooflm: Terminal) -> None:
    """Its weights and its cache are parts like the others; thin parts are told in the caption."""
    answer = rooflm.json(*SPECULATE[:-4], "--batch", "1,64", "--basis", "bound")
    drawing = draw("memory", answer)
    bars = {c.get_label().removeprefix("_"): list(c) for c in drawing.axes[0].containers}

    for i, row in enumerate(answer["rows"]):
        ends = [container[i].get_x() + container[i].get_width() for container in bars.values()]
        assert max(ends) == pytest.approx(row["memory_bytes"] / 1e9)
        drafted = bars["weights of the draft"][i].get_width()
        assert drafted == pytest.approx(row["draft_weights_bytes"] / 1e9)
    assert "other" not in bars


def test_memory_of_fit_and_what_nobody_named_are_drawn(rooflm: Terminal) -> None:
    """`fit` has its parts by themselves; a total that they do not reach leaves another part."""
    answer = rooflm.json("fit", "llama-2-13b", "--on", "h100-sxm", "--batch", "64")
    (ax,) = draw("memory", answer).axes
    assert ax.containers[0][0].get_width() == answer["memory"]["weights_bytes"] / 1e9

    answer["rows"][0]["memory_bytes"] += 5e9
    (ax,) = draw("memory", answer).axes
    assert ax.containers[-1].get_label() == "other"
    assert ax.containers[-1][0].get_width() == pytest.approx(5)


def test_a_cache_is_that_of_one_sequence() -> None:
    """2 K H L S values of two bytes, whatever the batch: 0.84 GB at 1,024 tokens of 13B."""
    (ax,) = draw("cache", swept(1024, 4096)).axes
    line, limit = ax.get_lines()

    assert list(line.get_xdata()) == [1024, 4096]
    each = [2 * 40 * 128 * 40 * S * 2 / 1e9 for S in (1024, 4096)]
    assert list(line.get_ydata()) == pytest.approx(each)
    assert set(limit.get_ydata()) == {80}
    assert ax.get_ylabel() == "cache and state of a sequence [GB]"


def test_a_state_counts_as_cache() -> None:
    """Mamba keeps no cache, and a state that does not grow."""
    case = make_case(find_model("mamba-2.8b"), find_machine("h100-sxm"), Counting())
    answer = sweep(case, (1, 2), (1024, 4096))
    line = draw("cache", answer).axes[0].get_lines()[0]

    state = answer["rows"][0]["state_bytes"]
    assert list(line.get_ydata()) == pytest.approx([state / 1e6] * 2)


def test_reuse_is_what_a_token_reads() -> None:
    """81 B of weights over the batch, 8 B of cache; intensity of matrices grows, the other not."""
    left, right = draw("reuse", {"rooflines": [roof(16), roof(1), roof(64)]}).axes
    weights, cache = lines_of(left).values()

    assert weights[0] == [1, 16, 64]
    assert weights[1] == pytest.approx([81e-3 / B for B in (1, 16, 64)])  # kB
    assert cache[1] == pytest.approx([8e-3] * 3)
    shown = lines_of(right)
    assert shown["matrices"][1] == pytest.approx([80 * B / 82 for B in (1, 16, 64)])
    assert shown["attention and states"][1] == pytest.approx(
        [16 * B / (8 * B + 1) for B in (1, 16, 64)]
    )
    assert shown["ridge of a chip"][1] == [10, 10]


def test_laws_are_those_worked_by_hand(rooflm: Terminal) -> None:
    """Draft 0.8, 0.2; target 0.6, 0.4: 0.6 and 0.2 are accepted, 0.2 is resampled to the second."""
    _, drawing = made("laws", rooflm)
    draft, accepted, output = (
        [[p.get_height() for p in bars] for bars in ax.containers] for ax in drawing.axes
    )

    assert draft == [pytest.approx([0.8, 0.2])]
    assert accepted == [pytest.approx([0.6, 0.2]), pytest.approx([0.8, 0.2])]
    assert output == [
        pytest.approx([0.6, 0.2]), pytest.approx([0, 0.2]), pytest.approx([0.6, 0.4])
    ]  # fmt: skip
    assert [p.get_y() for p in drawing.axes[2].containers[1]] == pytest.approx([0.6, 0.2])
    # The output is the target, so that one figure stands above both.
    assert [t.get_text() for t in drawing.axes[2].texts] == ["0.6", "0.4"]


def test_equal_laws_are_drawn(rooflm: Terminal) -> None:
    """A draft with the target's law loses nothing: all is accepted and none drawn again."""
    drawing = draw("laws", rooflm.json("speculate", "--p", "1/2,1/2", "--q", "1/2,1/2"))
    accepted, resampled, target = (
        [p.get_height() for p in bars] for bars in drawing.axes[2].containers
    )
    assert (accepted, resampled, target) == ([0.5, 0.5], [0, 0], [0.5, 0.5])


def test_speculation_takes_the_best_length_of_each_batch(rooflm: Terminal) -> None:
    """Of two draft lengths the larger speed-up; contexts are lines of their own."""
    answer, drawing = made("speculation", rooflm)
    batches, speedups = lines_of(drawing.axes[0])["bound"]

    assert batches == [1, 8, 64]
    for batch, speedup in zip(batches, speedups, strict=True):
        assert speedup == max(r["speedup"] for r in answer["rows"] if r["batch"] == batch)
    longer = [row | {"context_tokens": 9999} for row in answer["rows"]]
    twice = draw("speculation", answer | {"rows": answer["rows"] + longer})
    assert list(lines_of(twice.axes[0])) == ["1,024 tokens", "9,999 tokens", "plain decoding"]


def test_a_heat_map_has_a_cell_a_row() -> None:
    """Values by context and batch, hatched where they do not fit, with their numbers."""
    answer = swept(1024, 4096)
    drawing = draw("heatmap", answer)
    ax = drawing.axes[0]
    mesh, hatched = ax.collections

    assert mesh.get_array().ravel().tolist() == pytest.approx(
        [1e3 * r["time_s"] for r in answer["rows"]]
    )
    out = {(i % 3, i // 3) for i, r in enumerate(answer["rows"]) if not r["fits"]}
    corners = [path.vertices[:4].mean(axis=0) for path in hatched.get_paths()]
    assert {(round(x), round(y)) for x, y in corners} == out
    assert [t.get_text() for t in ax.texts] == [digits(1e3 * r["time_s"]) for r in answer["rows"]]
    assert [t.get_text() for t in ax.get_xticklabels()] == ["1", "64", "256"]
    assert drawing.axes[1].get_ylabel() == "time of a step [ms]"


def test_a_heat_map_of_words_has_a_legend() -> None:
    """Regimes of variants; a place without a row stays empty."""
    drawing = draw("heatmap", study(), y="variant", z="regime")
    cells = drawing.axes[0].collections[0].get_array()

    assert cells.filled(-1).tolist() == [[0, 0, 1], [0, 0, 1], [0, 0, -1]]
    told = [t.get_text() for t in drawing.legends[0].get_texts()]
    assert told == ["regime: memory", "regime: compute", "does not fit"]
    # The words stand in the cells, and their shades differ in grey.
    assert sorted(t.get_text() for t in drawing.axes[0].texts) == ["compute"] * 2 + ["memory"] * 6
    shades = [patch.get_facecolor() for patch in drawing.legends[0].get_patches()[:2]]
    greys = [0.299 * red + 0.587 * green + 0.114 * blue for red, green, blue, _ in shades]
    assert abs(greys[0] - greys[1]) > 0.4


def test_numbers_on_hatches_stand_on_a_patch() -> None:
    """Of the colour of the cell; those that fit need none."""
    answer = swept(1024, 4096)
    texts = draw("heatmap", answer).axes[0].texts

    for row, text in zip(answer["rows"], texts, strict=True):
        assert (text.get_bbox_patch() is None) == row["fits"]


def test_words_are_shortened_where_cells_are_narrow() -> None:
    """To what still tells them apart, or left to the legend."""
    names = ["memory", "compute"]
    assert abbreviated(names, 60) == {"memory": "memory", "compute": "compute"}
    assert abbreviated(names, 30) == {"memory": "memo.", "compute": "comp."}
    assert abbreviated(names, 5) == {}
    assert abbreviated(["operator a", "operator b"], 25) == {}


def test_a_heat_map_refuses_two_rows_in_one_cell() -> None:
    """It says what else tells them apart."""
    with pytest.raises(RooflmError, match="They differ in variant"):
        draw("heatmap", study())


def test_sensitivities_are_sorted_and_both_drawn(rooflm: Terminal) -> None:
    """The largest above; the bandwidth shortens the time as it raises the throughput."""
    answer, drawing = made("tornado", rooflm)
    time, rate = drawing.axes[0].containers
    names = [t.get_text() for t in drawing.axes[0].get_yticklabels()]
    letters = [name.partition(" = ")[0] for name in names]
    every = answer["sensitivity"]

    assert [p.get_width() for p in time] == [every["time_s"][k] for k in letters]
    assert [p.get_width() for p in rate] == [every["tokens_per_s"][k] for k in letters]
    sizes = [max(abs(every["time_s"][k]), abs(every["tokens_per_s"][k])) for k in letters]
    assert sizes == sorted(sizes, reverse=True)
    assert set(letters) == set(every["time_s"])
    assert names[0] == "β = 3.35 TB/s"
    assert time[0].get_width() == pytest.approx(-1)


def test_levers_are_bars_from_one(rooflm: Terminal) -> None:
    """In the order of the answer, those with the largest effect; what is left out is counted."""
    answer, drawing = made("levers", rooflm)
    (ax,) = drawing.axes
    bars = sorted((p for c in ax.containers for p in c), key=lambda p: p.get_y())
    known = [r["speedup"] for r in answer["rows"] if r["speedup"] is not None]

    moving = sorted(abs(math.log(v)) for v in known if abs(math.log(v)) > math.log(1.01))
    drawn = [v for v in known if abs(math.log(v)) >= moving[-20]]
    assert [1 + p.get_width() for p in bars] == pytest.approx(drawn)
    assert min(drawn) < 1
    assert {p.get_x() for p in bars} == {1}
    still = len(known) - len(moving)
    assert still > 0
    assert f"{len(moving) - 20} with smaller effects" in told(drawing)
    assert f"{still} with less than 1 % of effect" in told(drawing)
    assert "time of a token with one lever at a time, bounds" in told(drawing)
    hatches = {(p.get_hatch() or "", c.get_label().split(",")[0]) for c in ax.containers for p in c}
    assert len(hatches) == len({hatch for hatch, _ in hatches})


def test_levers_that_change_nothing_are_no_figure() -> None:
    """One sentence, where a bar would have no length."""
    row = {"lever": "a", "acts_on": "work", "memory_kept": 1.001, "fits": True}
    with pytest.raises(RooflmError, match="no lever changes the memory by 1 %"):
        draw("tornado", {"by": "memory", "basis": "bound", "rows": [row]})


def test_sensitivities_are_only_of_what_was_asked(rooflm: Terminal) -> None:
    """Those of a time beside an explanation of memory are refused; a caption claims what it has."""
    answer = rooflm.json("explain", "memory_bytes", *EXPLAIN[2:], "--sensitivity")
    with pytest.raises(RooflmError, match="elasticities are those of time and throughput"):
        draw("tornado", answer)
    alone = {"sensitivity": {"time_s": {"B": 0.5}}, "model": "m", "hardware": "h"}
    assert "changes of time in per cent" in told(draw("tornado", alone))


def test_accuracy_draws_every_judged_row_with_its_band() -> None:
    """Kernels too; the caption tells the share inside."""
    answer = judged()
    drawing = draw("accuracy", answer)
    left, right = drawing.axes
    bars = [g for g in left.collections if isinstance(g, LineCollection)]
    groups = {g.get_label(): g for g in left.collections if g not in bars}
    kept = [r for r in answer["rows"] if r["error"] is not None]

    assert {name: points_of(g) for name, g in groups.items()} == {
        r["kind"]: [(1e3 * r["measured_s"], 1e3 * r["estimate_s"])] for r in kept
    }
    flat = [x for group in bars for band in group.get_segments() for p in band for x in p]
    assert flat == pytest.approx([10, 9, 10, 12, 2000, 1700, 2000, 2100])
    errors = sorted(y for g in right.collections for _, y in points_of(g))
    assert errors == pytest.approx([-5, 10, 20])
    assert "100 % of the measurements" in told(drawing)
    assert "3 of 4 published measurements, each" in told(drawing)
    answer["rows"] = [r | {"engine": "vllm", "hardware": "a chip"} for r in answer["rows"]]
    some = told(draw("accuracy", answer))
    assert "3 of 4 published measurements (engine vllm; machine a chip)" in some


def test_a_plan_names_its_layouts(rooflm: Terminal) -> None:
    """The frontier, the best of what is asked, and the latency."""
    answer, drawing = made("plan", rooflm)
    shown = lines_of(drawing.axes[0])

    front = answer["frontier"]
    assert shown["nothing beats these"][0] == [1e3 * r["time_s"] for r in front]
    assert shown["nothing beats these"][1] == [r["tokens_per_s_per_device"] for r in front]
    best = answer["rows"][0]
    assert shown["best of what is asked"] == (
        [1e3 * best["time_s"]], [best["tokens_per_s_per_device"]]
    )  # fmt: skip
    assert shown["latency asked for: 20 ms"][0] == [20, 20]
    assert drawing.axes[0].texts


def test_a_validation_draws_what_was_measured() -> None:
    """Predictions against measurements, errors by batch; what was not measured is left out."""
    left, right = draw("validation", measured()).axes
    rows = measured()["rows"][:4]
    shown = {c.get_label(): c[0] for c in left.containers}

    assert list(shown) == ["bound, measured ceilings", "calibrated on the other half"]
    for name, key in zip(shown, ("ceiling_bound_s", "calibrated_s"), strict=True):
        assert list(shown[name].get_xdata()) == [1e3 * r["measured_s"] for r in rows]
        assert list(shown[name].get_ydata()) == [1e3 * r[key] for r in rows]
    errors = lines_of(right)
    assert errors["bf16, 512 tokens"] == ([1, 2], pytest.approx([5, 5]))
    assert errors["fp32, 512 tokens"] == ([1, 4], pytest.approx([5, 5]))


def test_lines_are_those_of_any_two_columns() -> None:
    """A line a variant, in the order of x; the axes that are asked for are logarithmic."""
    (ax,) = draw("lines", study(), x="batch", y="memory_bytes", log="y").axes

    shown = lines_of(ax)
    assert {name: xs for name, (xs, _) in shown.items()} == {
        "MHA": [1, 64], "GQA": [1, 64, 256], "MQA": [1, 64]
    }  # fmt: skip
    heights = [y for _, ys in shown.values() for y in ys]
    assert heights == pytest.approx([27, 79, 23, 33, 66, 22, 24])
    beyond = ax.get_lines()[1]
    assert list(beyond.get_xdata()) == [64, 256]
    assert list(beyond.get_ydata()) == pytest.approx([79, 240])
    assert (beyond.get_linestyle(), beyond.get_markerfacecolor()) == (":", "white")
    assert beyond.get_color() == ax.get_lines()[0].get_color()
    assert (ax.get_xscale(), ax.get_yscale()) == ("linear", "log")
    assert ax.get_ylabel() == "memory [GB]"


def test_captions_name_devices_models_and_machines(rooflm: Terminal) -> None:
    """Of several devices how many, of a study its models; what shows no time says nothing of it."""
    layout = ("sweep", "llama-3-8b", "--on", "8xh100-sxm", "--batch", "1,8")
    answer = rooflm.json(*layout)
    assert "llama-3-8b on 8 x h100-sxm;" in told(draw("sweep", answer))
    assert "on 8 x h100-sxm;" in told(draw("memory", answer))
    timed = ["time model operator at 3.35 TB/s: a bound", "time is the estimate (--basis)"]
    given = study() | {"assumptions": timed}
    for kind, options in (("pareto", QUALITY), ("memory", {}), ("cache", {}),
                          ("lines", {"y": "memory_bytes"})):  # fmt: skip
        said = told(draw(kind, given, **options))
        assert said.startswith("Fewer heads; llama-2-13b on h100-sxm")
        assert "estimate" not in said
        assert "bound" not in said
    assert "time is the estimate" in told(draw("lines", given, y="time_s"))
    given["model"] = ["a", "b", "c", "d"]
    assert told(draw("memory", given)) == "Fewer heads; h100-sxm."
    derived: Answer = study() | {"assumptions": timed, "derive": {"gain": "plain.time_s / time_s"}}
    rows: list[Answer] = study()["rows"]
    derived["rows"] = [row | {"gain": 2.0} for row in rows]
    assert "time is the estimate" in told(draw("lines", derived, y="gain"))


def test_a_caption_of_speculation_names_target_draft_and_acceptance(rooflm: Terminal) -> None:
    """Of a study as well, whose answer has lists; what it lacks is left out."""
    answer = rooflm.json(*SPECULATE)
    of_study: Answer = answer | {"title": "Drafts", "model": ["big"], "draft": ["small"],
                         "acceptance": [0.8], "hardware": ["chip"]}  # fmt: skip
    rows: list[Answer] = answer["rows"]
    of_study["rows"] = [row | {"devices": 8} for row in rows]

    assert "Drafts; big drafted by small on 8 x chip;" in told(draw("speculation", of_study))
    assert "acceptance 0.8" in told(draw("speculation", of_study))
    without = {k: v for k, v in of_study.items() if k not in ("draft", "acceptance")}
    assert "Drafts; big on 8 x chip; " in told(draw("speculation", without))
    assert "acceptance" not in told(draw("speculation", without))


def test_answers_of_other_options_are_refused_with_those_that_are_needed(rooflm: Terminal) -> None:
    """Laws need two laws, speed-ups of batches need models."""
    with pytest.raises(RooflmError, match=r"no laws.*--p 0.8,0.2 --q"):
        draw("laws", rooflm.json(*SPECULATE))
    words = ("speculate", "--draft-cost", "0.1", "--acceptance", "0.8")
    for more in ((), ("--draft-tokens", "1:4")):
        with pytest.raises(RooflmError, match=r"no batches.*--draft DRAFT"):
            draw("speculation", rooflm.json(*words, *more))


def test_data_are_what_the_axes_show() -> None:
    """Bars by name and value, cells by place, lines across by one value, hollow what fits not."""
    levers = {"by": "time", "basis": "bound", "assumptions": [], "rows": [
        {"lever": "one", "acts_on": "work", "speedup": 1.5, "fits": True},
        {"lever": "two", "acts_on": "work", "speedup": 0.5, "fits": True},
    ]}  # fmt: skip
    (bars,) = data(draw("tornado", levers))[0]["bars"]
    assert bars == {"label": "acts on work", "names": ["one", "two"], "values": [1.5, 0.5]}
    weights, cache = data(draw("memory", study()))[0]["bars"]
    assert cache["names"][:2] == ["MHA, batch 1", "MHA, batch 64"]
    assert weights["values"][:2] == pytest.approx([6.75, 19.75])
    assert cache["values"][:2] == pytest.approx([20.25, 59.25])

    panels = data(draw("heatmap", study(), y="variant", z="regime"))
    (cells,) = panels[0]["cells"]
    assert (cells["x"], cells["y"]) == ([1, 64, 256], ["MHA", "GQA", "MQA"])
    assert cells["values"] == ["memory", "memory", "compute"] * 2 + ["memory", "memory", None]
    panels = data(draw("heatmap", swept(1024, 4096)))
    assert len(panels) == 1
    assert panels[0]["cells"][0]["y"] == [1024, 4096]

    fitting, beyond, wall = data(draw("sweep", swept()))[0]["lines"]
    assert (fitting["hollow"], beyond["hollow"]) == (False, True)
    assert wall == {"label": "largest batch that fits", "x": 64}
    speedup = {"batch": 1, "context_tokens": 1, "draft_tokens": 2, "speedup": 1.5}
    lines = data(draw("speculation", {"rows": [speedup]}))[0]["lines"]
    assert {"label": "plain decoding", "y": 1.0} in lines
    assert [group["hollow"] for group in data(draw("pareto", study()))[0]["points"]] == [
        False, True, False, False
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("sweep", ["1,024 tokens: time of a step [ms] 8.021 at batch [sequences] 1, 23.8 at 64.",
                   "1,024 tokens, what does not fit: time of a step [ms] 71.87 at",
                   "latency asked for: 20 ms at 20.",
                   "largest batch that fits (1,024 tokens) at 64."]),
        ("one point", ["throughput [tokens/s] 1,359 at batch [sequences] 16."]),
        ("memory of variants", ["cache: MHA, batch 1: 20.25; MHA, batch 64: 59.25;",
                                "capacity, 80.0 GB."]),
        ("speculation", ["plain decoding at 1."]),
        ("levers", ["acts on work, does not fit: twice the batch: 0.5965."]),
        ("heatmap", ["smallest 8.021 at batch [sequences] 1, context [tokens] 1,024; largest 264.2 "
                     "at batch [sequences] 256, context [tokens] 4,096."]),
        ("heatmap of words", ["regime: memory in 6 cells, compute in 2 cells."]),
        ("validation", ["bound, measured ceilings: predicted [ms] 80 at measured [ms] 100"]),
    ],
)  # fmt: skip
def test_a_figure_is_told_in_words(name: str, said: list[str], rooflm: Terminal) -> None:
    """Every part with a name by its data; nothing of guides and bars of colours."""
    _, drawing = made(name, rooflm)
    text = words(drawing, "What it shows.")

    assert text.startswith("What it shows. ")
    for part in said:
        assert part in text
    assert " _" not in text
    assert re.search(r"\de[+-]?\d", text) is None


def test_numbers_in_words_are_written_out() -> None:
    """With separators and no powers of ten, up to 10^15."""
    assert [spoken(v) for v in (0, 1.0, 0.0251, 12.3456, 123456.7, 3.2e14, 2e-7, 4e15)] == [
        "0", "1", "0.0251", "12.35", "123,457", "320,000,000,000,000", "0.0000002", "4.000e+15"
    ]  # fmt: skip


def test_names_with_hyphens_are_not_broken_in_a_terminal() -> None:
    """A line ends before TensorRT-LLM, whatever its width."""
    drawing, (ax,) = figure(1, "times are the estimates of TensorRT-LLM 1.0 on h100-sxm")
    ax.plot([0, 1], [0, 1])

    for width in range(24, 60):
        assert "TensorRT-LLM" in chart(drawing, width)
        assert "h100-sxm" in chart(drawing, width)


EMPTY: list[tuple[str, Answer, str]] = [
    *((kind, {"rows": []}, "no rows|no '|nothing to draw|no layout") for kind in KINDS),
    ("sweep", {"rows": [{"batch": 1}]}, "no column 'time_s'"),
    ("sweep", {"rows": [{"batch": 1, "time_s": None, "tokens_per_s": None, "reason": "no rate."}]},
     "no row has a value of 'time_s', so that there is nothing to draw: no rate"),
    ("lines", {"rows": [{"batch": 1, "tokens_per_ss": 2}]}, "Did you mean tokens_per_ss"),
    ("roofline", {"rooflines": []}, "no rooflines"),
    ("roofline", {"operators": [{"flops": 1}]}, "no column 'weight_read_bytes'"),
    ("reuse", {"rooflines": [roof(1)]}, "one batch shows no reuse"),
    ("reuse", {"rooflines": [roof(1), roof(1)]}, "a batch is there twice"),
    ("reuse", {"rooflines": [roof(1), roof(2, "b")]}, "differ in hardware"),
    ("plan", {"frontier": [], "rows": [], "context_tokens": 1, "basis": "bound", "model": "m",
              "hardware": "h"}, "no layout was found"),
    ("cache", {"rows": [{"batch": 1, "context_tokens": 1, "kv_cache_bytes": 0}]}, "no row keeps"),
    ("memory", {"rows": [{"memory_bytes": 1.0}] * 25}, "25 rows are more than the 24 bars"),
    ("tornado", {"sensitivity": {"time_s": {}}}, "no letter has a sensitivity"),
    ("tornado", {"by": "luck", "rows": []}, "not ranked by 'luck'"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "answer", "told"), EMPTY)
def test_nothing_to_draw_is_refused(kind: str, answer: Answer, told: str) -> None:
    """One sentence that says what is missing, and of which figure."""
    with pytest.raises(RooflmError, match=told) as refused:
        draw(kind, answer)

    assert kind in str(refused.value)


def test_unknown_kinds_and_options_are_refused() -> None:
    """With the nearest name that is known."""
    with pytest.raises(RooflmError, match=r"unknown kind of figure 'heatmab'.*heatmap"):
        draw("heatmab", study())
    with pytest.raises(RooflmError, match=r"no option 'z'.*latency_s"):
        draw("sweep", study(), z="time_s")
    with pytest.raises(RooflmError, match="unknown value 'z'"):
        draw("lines", study(), log="z")


def test_more_series_than_can_be_told_apart_are_refused() -> None:
    """Nine contexts: the sentence names how many there are."""
    with pytest.raises(RooflmError, match="9 series are more than the 8"):
        draw("sweep", swept(*(2**n for n in range(8, 17)), batches=(1,)))


def test_series_are_named_by_what_differs() -> None:
    """A key that says what another says already does not make the name longer."""
    rows = [
        {"variant": v, "model": m, "hardware": h, "batch": b, "context_tokens": 512 + b}
        for v, m, h, b in itertools.product(("one",), ("a", "b"), ("x", "y"), (1, 2))
    ]
    rows = [row | {"weights_format": "bf16" if row["model"] == "a" else "fp8"} for row in rows]
    found = series({}, rows, "batch")

    # The format follows from the model, and the context from the batch.
    assert [line.label for line in found] == ["a, x", "a, y", "b, x", "b, y"]
    assert [line.rows for line in found] == [rows[i : i + 2] for i in (0, 2, 4, 6)]
    assert named("context_tokens", 4096) == "4,096 tokens"
    assert named("devices", 1) == "1 device"


@pytest.mark.parametrize(
    ("key", "value", "label", "shown"),
    [
        ("time_s", 0.02, "time [ms]", 20), ("time_s", 3.5, "time [s]", 3.5),
        ("time_s", 2e-5, "time [\N{MICRO SIGN}s]", 20), ("memory_bytes", 8e10, "memory [GB]", 80),
        ("kv_cache_bytes", 3e6, "cache [MB]", 3), ("tokens_per_s", 5, "throughput [tokens/s]", 5),
        ("batch", 4, "batch [sequences]", 4), ("context_tokens", 9, "context [tokens]", 9),
        ("output_usd_per_mtok", 0.3, "price of output [USD per million tokens]", 0.3),
        ("attention.intensity_flops_per_byte", 2, "attention intensity [FLOP/B]", 2),
        ("peak_flops_per_s", 989e12, "peak [TFLOP/s]", 989), ("speedup", 2, "speed-up [1]", 2),
    ],
)  # fmt: skip
def test_axes_name_their_units(key: str, value: float, label: str, shown: float) -> None:
    """The unit is that of the key's ending, the scale suits the value."""
    found = quantity({}, key, [{key: value}])

    assert found.label == label
    assert found.of({key: value}) == pytest.approx(shown)


def test_ticks_are_plain_numbers() -> None:
    """Powers of two of counts, 1-2-5 of short ranges, powers of ten of long ones."""
    assert log_ticks(0.9, 300, 2)[0] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert log_ticks(8, 240, 10)[0] == [10, 20, 50, 100, 200]
    assert log_ticks(0.5, 2e4, 10)[0] == [1, 10, 100, 1000, 10_000]
    assert len(log_ticks(61, 69, 10)[0]) >= 2
    assert [plain(v) for v in (1e3, 0.01, 16, 2e-5, 3e8)] == [
        "1,000", "0.01", "16", "2\N{MIDDLE DOT}10\u207b\u2075", "3\N{MIDDLE DOT}10\u2078"
    ]  # fmt: skip
    assert [digits(v) for v in (0.012, 1.5, 20.04, 99.97, 1234.5)] == [
        "0.0120", "1.50", "20.0", "100", "1,234"
    ]  # fmt: skip
    assert brief(1.5) == "1.5"


def test_the_same_answer_gives_the_same_svg(tmp_path: Any) -> None:
    """No date and no random name; the background may be left out; a file holds the same."""
    text = svg(draw("sweep", swept()))
    clear = svg(draw("sweep", swept()), transparent=True)
    save(draw("sweep", swept()), str(tmp_path / "sweep.svg"))

    assert text == svg(draw("sweep", swept())) == (tmp_path / "sweep.svg").read_text("utf-8")
    assert text.startswith("<?xml")
    assert text.count("fill: #ffffff") > clear.count("fill: #ffffff")
    with pytest.raises(RooflmError, match="a figure is"):
        save(draw("sweep", swept()), str(tmp_path / "sweep.bmp"))


def test_a_chart_stands_where_the_data_do() -> None:
    """The letter of a series in the column and the row of its point, small where nothing fits."""
    lines = chart(draw("sweep", study()), 60, height=10).splitlines()
    first = lines[1:11]
    columns = [row.partition("\N{BOX DRAWINGS LIGHT VERTICAL}")[2].ljust(55) for row in first]
    letters = {c: (x, y) for y, row in enumerate(columns) for x, c in enumerate(row) if c in "aB"}

    # The 256 sequences that do not fit take longest and stand at the right, above all others.
    assert letters["a"][1] == 0
    assert letters["a"][0] >= 50
    assert letters["B"][1] > 0
    assert "A MHA   B GQA   C MQA" in " ".join(lines)
    assert "small letters: does not fit" in " ".join(lines)


def test_a_chart_of_bars_and_cells_holds_the_numbers() -> None:
    """Totals beside bars, the capacity across them, values in the cells."""
    bars = chart(draw("memory", swept()), 70)
    cells = chart(draw("heatmap", swept()), 70)
    blocks = [line.count("\N{FULL BLOCK}") for line in bars.splitlines()[1:4]]

    assert all(text in bars for text in ("26.9", "79.7", "241", "| capacity, 80.0 GB"))
    assert blocks[0] == blocks[1] == blocks[2] > 0
    assert all(text in cells for text in ("8.02", "23.8", "71.9*", "* does not fit"))


def test_a_chart_has_colours_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Codes of colours, where the output takes them."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    drawing = draw("lines", study())

    assert "\x1b[" in chart(drawing, 60, colour=True)
    assert "\x1b[" not in chart(drawing, 60)


def broken(how: str) -> Any:
    """Make a figure with one fault."""
    drawing, (ax,) = figure(1, "a caption")
    ax.plot([0, 1], [0, 1], "o", label="a line of points")
    if how == "overlap":
        ax.text(0.5, 0.5, "one text")
        ax.text(0.5, 0.5, "another")
    elif how == "points":
        ax.text(0.5, 0.5, "small", fontsize=5)
    elif how == "leaves":
        ax.text(0.9, 0.5, "a text that is far too long for this place").set_in_layout(False)
    elif how == "covers":
        ax.legend(loc="lower left")
    return drawing


@pytest.mark.parametrize("how", ["overlap", "points", "leaves", "covers"])
def test_a_figure_that_cannot_be_read_is_found(how: str) -> None:
    """Each fault by itself; without any the same figure passes."""
    with pytest.raises(AssertionError, match=how):
        check(broken(how))
    check(broken("nothing"))


def test_colours_stay_apart_for_all_eyes() -> None:
    """Any two of the eight colours, or else their greys, differ; markers differ anyway."""
    from matplotlib.colors import to_rgb

    from rooflm.plots.style import MARKERS, PALETTE

    def seen(colour: str, blind: str) -> tuple[float, ...]:
        red, green, blue = (c**2.2 for c in to_rgb(colour))
        if blind == "red-green":
            # Viénot, Brettel and Mollon 1999 for deuteranopes, in linear light.
            red, green, blue = 0.293 * red + 0.707 * green, 0.293 * red + 0.707 * green, (
                -0.022 * red + 0.022 * green + blue
            )  # fmt: skip
        return tuple(max(c, 0) ** (1 / 2.2) for c in (red, green, blue))

    for blind in ("", "red-green"):
        for one, other in itertools.combinations(PALETTE, 2):
            assert math.dist(seen(one, blind), seen(other, blind)) > 0.15, (one, other, blind)
    assert len(set(MARKERS)) == len(set(PALETTE)) == 8


def test_powers_of_ten_are_letters_and_no_markup() -> None:
    """Titles are shown as they are, so that ticks of a saved figure are: 10 to the ninth."""
    answer = study()
    one = answer["rows"][0]["variant"]
    rows = [row for row in answer["rows"] if row["variant"] == one]
    answer["rows"] = [row | {"context_tokens": 10**9} for row in rows]
    drawing = draw("heatmap", answer, y="context_tokens")
    with plain_text():
        drawing.draw_without_rendering()
    ticks = [t.get_text() for ax in drawing.axes for t in ax.get_yticklabels()]

    assert "10\N{SUPERSCRIPT NINE}" in ticks
    assert not any("$" in tick for tick in ticks)
