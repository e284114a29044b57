"""The table of published measurements: its rows resolve, its times are what the sources say."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path

import pytest

from rooflm.calc.errors import RooflmError
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_machine, find_model
from rooflm.validate.published import METRICS, Row, measured_s, rows, sources

ROWS = rows()
PREDICTED = [row for row in ROWS if row.excluded is None]
KERNELS = Path(__file__).resolve().parents[1] / "benchmarks" / "kernels"

EXCLUDED = {
    "batch not stated",
    "chip variant not stated",
    "engine not stated",
    "host-bound: CPU-launched engine",
    "layer split over several devices",
    "no preset: chip variant of another bandwidth",
    "no preset: its bandwidth has no source",
    "parallel layout contradicts itself",
    "parallel layout not stated",
    "prefix caching suspected",
    "prompt not stated",
    "queued: first token after more than 20 s",
    "rate limited by a dequantizing kernel",
    "suspect: far from its sibling rows",
    "suspect: its time does not depend on the load",
    "warm-up inside the timing",
}
ENGINES = {
    *("autoawq", "compiled", "exllama", "fastertransformer", "habana", "llama.cpp", "neuronx"),
    *("sglang", "tensorrt-llm", "unknown", "vidur", "vllm"),
}


def test_enough_rows_are_predicted_and_ids_are_unique():
    """At least 500 rows are held against a formula, of every kind."""
    assert len(PREDICTED) >= 500
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert {row.kind for row in PREDICTED} == set(METRICS)


def test_every_source_is_used_and_can_be_opened():
    """A reader can look every figure up."""
    known = sources()
    assert {row.source for row in ROWS} == set(known)
    for key, source in known.items():
        assert source["url"].startswith("https://"), key
        assert source["title"], key
        assert source["date"], key


def test_reasons_and_engines_come_from_lists():
    """Words that group rows are not made up row by row."""
    assert {row.excluded for row in ROWS} - {None} == EXCLUDED
    assert {row.engine for row in ROWS} == ENGINES


def test_models_hardware_and_formats_are_known():
    """What is predicted has presets and formats."""
    cases = {(row.model, row.weights, row.kv) for row in PREDICTED}
    models = {name: find_model(name) for name in {model or "" for model, _, _ in cases}}
    for name, weights, kv in cases:
        assert weights
        precision_of(weights, kv, None, model=models[name or ""], natural="bf16")
    for name in {row.model for row in ROWS if row.model} - set(models):
        assert find_model(name).name == name
    for name in {row.hardware for row in ROWS if row.hardware}:
        assert find_machine(name).name == name


def test_names_that_are_no_presets_are_said():
    """A row names its model and chip even where there is no preset."""
    for row in ROWS:
        assert row.model or row.published_model, row.id
        assert row.hardware or row.published_hardware, row.id
        # A chip is missing exactly where that is why the row is left out.
        assert (row.hardware is None) == (row.excluded or "").startswith("no preset"), row.id


def test_every_row_that_is_predicted_has_what_its_time_needs():
    """Batch and lengths are stated where a time is made of them."""
    for row in PREDICTED:
        assert measured_s(row) > 0, row.id
        if row.kind == "served":
            assert None not in (row.concurrency, row.prompt, row.generated, row.ttft_ms), row.id
        elif row.kind == "op":
            assert row.op in ("qkv", "out", "gate_up", "down"), row.id
            assert row.batch, row.id
        else:
            assert row.batch, row.id
            assert row.prompt is not None, row.id
            assert row.generated is not None, row.id


@pytest.mark.parametrize(
    ("kind", "metric", "value", "seconds"),
    [
        ("decode", "ms_per_token", 20.0, 0.02),
        ("decode", "tokens_per_s_per_sequence", 50.0, 0.02),
        ("decode", "tokens_per_s_total", 200.0, 0.02),
        ("decode", "tokens_per_s_per_device", 100.0, 0.02),
        ("prefill", "ms_total", 400.0, 0.4),
        ("prefill", "s_total", 0.4, 0.4),
        ("prefill", "tokens_per_s_total", 1000.0, 0.4),
        ("prefill", "tokens_per_s_per_device", 500.0, 0.4),
        ("request", "s_total", 3.0, 3.0),
        ("request", "ms_total", 3000.0, 3.0),
        ("request", "output_tokens_per_s_total", 80.0, 3.0),
        ("request", "output_tokens_per_s_per_device", 40.0, 3.0),
        ("request", "total_tokens_per_s_incl_prompt", 160.0, 4.0),
        ("op", "us", 65.0, 65e-6),
        ("served", "ms_per_token", 10.1199, 0.0101199),
    ],
)
def test_measured_seconds(kind: str, metric: str, value: float, seconds: float):
    """Each metric, worked out by hand."""
    # 4 sequences on 2 devices, 100 tokens of prompt and 60 generated.
    row = Row(
        id="mine", source="me", kind=kind, metric=metric, value=value, engine="unknown",
        devices=2, batch=4, prompt=100, generated=60,
    )  # fmt: skip
    assert measured_s(row) == pytest.approx(seconds)


def test_metrics_of_the_table_above_are_all():
    """No metric is without a case."""
    marked = test_measured_seconds.pytestmark[0].args[1]  # pyright: ignore
    assert {(kind, metric) for kind, metric, _, _ in marked} == {
        (kind, metric) for kind, metrics in METRICS.items() for metric in metrics
    }


def test_rows_as_the_sources_print_them():
    """Two rows, followed from the page that prints them."""
    by_id = {row.id: row for row in ROWS}
    # gpt-fast's README: Llama 2 7B, bf16, 104.9 tokens/s.
    assert measured_s(by_id["gpt-fast-001"]) == pytest.approx(1 / 104.9)
    # TensorRT-LLM 0.9.0: GPT-J, batch 1024, 128 and 128 tokens, 25,860 output tokens/s of a GPU.
    gptj = by_id["trtllm-0.9-h100-a100-001"]
    assert (gptj.model, gptj.hardware, gptj.weights) == ("gpt-j-6b", "h100-sxm", "fp8")
    assert measured_s(gptj) == pytest.approx(1024 * 128 / 25860)


def test_a_time_without_batch_is_refused():
    """A rate over a batch that is not known is no time."""
    row = next(r for r in ROWS if r.excluded == "batch not stated")
    with pytest.raises(RooflmError, match="not stated"):
        measured_s(row)


GOOD = "id: a, source: s, kind: decode, metric: ms_per_token, value: 1, engine: vllm"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"{GOOD}, devises: 2", r"unknown key 'devises' \(mine.yaml, row a\).*devices"),
        (GOOD.replace("decode", "op"), r"no metric 'ms_per_token' \(mine.yaml, row a\)"),
        (GOOD.replace("decode", "decoding"), r"a decoding has no metric"),
        (GOOD.replace("ms_per_token", "fps"), r"no metric 'fps' \(mine.yaml, row a\)"),
        (GOOD.replace(", value: 1", ""), r"value.*\(mine.yaml, row a\)"),
    ],
)
def test_a_wrong_row_is_refused(tmp_path: Path, text: str, says: str):
    """Misspelt keys and words are errors that name the file and the row."""
    file = tmp_path / "mine.yaml"
    file.write_text("sources: {}\nrows:\n  - {" + text + "}\n", encoding="utf-8")
    with pytest.raises(RooflmError, match=says):
        rows(file)


@pytest.mark.parametrize(
    ("name", "least"),
    [("matmul", 1400), ("decode_attention", 1300), ("prefill_attention", 600), ("all_reduce", 600)],
)
def test_tables_of_kernels(name: str, least: int):
    """The tables of kernels say where they come from and name presets."""
    lines = (KERNELS / f"{name}.csv").read_text(encoding="utf-8").splitlines()
    comment = list(itertools.takewhile(lambda line: line.startswith("#"), lines))
    assert any("https://" in line for line in comment)
    table = list(csv.DictReader(lines[len(comment) :]))
    assert len(table) >= least
    assert all(float(row["latency_us"]) > 0 for row in table)
    for hardware in {row["hardware"] for row in table}:
        assert find_machine(hardware).name == hardware
