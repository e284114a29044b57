"""Whatever people type or a file holds: an answer, or one sentence; no traceback, no hang.

Texts and data are right but for a few parts, since bytes at random do not get past the first line
of any parser. FUZZ_INPUTS says how many each parser is given: 1,000 unless it is set, the same ones
at each run; `make fuzz` gives 100,000, others at each run.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import typer
from hypothesis import HealthCheck, example, given, note, settings

from rooflm.calc import __main__ as entry
from rooflm.calc import arithmetic, cli, expectations, units
from rooflm.calc.calibrate import calibrated_constants, parse_point
from rooflm.calc.changes import parse_changes
from rooflm.calc.cli import app
from rooflm.calc.deployment import parse_node
from rooflm.calc.engine_rules import parse_version
from rooflm.calc.errors import Exit, RooflmError
from rooflm.calc.frozen import changed_inputs, frozen_path, moved, read_frozen
from rooflm.calc.gguf_model import read_gguf
from rooflm.calc.hardware import Machine
from rooflm.calc.huggingface import model_of_config, read_config
from rooflm.calc.lengths import parse_lengths
from rooflm.calc.log_explain import explain_log
from rooflm.calc.log_lines import decoded, log_lines
from rooflm.calc.log_read import read_log
from rooflm.calc.model import Model
from rooflm.calc.plain import is_map
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.printing import parse_draw
from rooflm.calc.quantize import (
    Quantizer,
    open_numbers,
    parse_code,
    parse_numbers,
    parse_real,
    quantize,
)
from rooflm.calc.safetensors_file import INDEX, read_folder, read_header
from rooflm.calc.study import Ready, prepare
from rooflm.calc.study_answer import rows_of
from rooflm.calc.study_file import read_study
from rooflm.calc.traces import read_trace
from rooflm.calc.typed import parse_factors, parse_ways
from rooflm.calc.typed_drafts import parse_chances, parse_laws, parse_tree
from rooflm.calc.typed_serve import parse_rates
from rooflm.calc.workload import check, parse_law
from rooflm.calc.yamlfile import top_keys
from rooflm.validate.__main__ import run as validate

from . import test_configstates, test_huggingface, test_quantized_models
from .strategies import (
    BATCH,
    HOSTILE,
    LONG,
    VALUES,
    Maker,
    altered,
    among,
    damaged,
    either,
    several,
)
from .test_weight_files import llama, make
from .test_workload import AZURE, BURST_3, MOONCAKE, OWN

ROOT = Path(__file__).parents[1]
INPUTS = int(os.environ.get("FUZZ_INPUTS", "1000"))
NIGHTLY = INPUTS > 1000
LONGEST_S = 5
"""CPU time that an input may take [s]."""
PAGES = os.open("/proc/self/statm", os.O_RDONLY)
"""Where Linux tells the pages of this process: opened once, it is read 50,000 times."""
MOST_BYTES = 2**30
"""Memory that an input may take beside what is taken already [B]."""

fuzzed = settings(
    max_examples=max(1, INPUTS // BATCH),
    derandomize=not NIGHTLY,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)


class TooLong(BaseException):
    """No `except Exception` holds it up."""


@contextlib.contextmanager
def bounded() -> Generator[None, None, None]:
    """Stop what takes more time or memory than an input may."""

    def stop(*_: object) -> None:
        raise TooLong(f"more than {LONGEST_S} s")

    held = int(os.pread(PAGES, 64, 0).split()[0]) * resource.getpagesize()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    before = signal.signal(signal.SIGPROF, stop)
    resource.setrlimit(resource.RLIMIT_AS, (held + MOST_BYTES, limits[1]))
    signal.setitimer(signal.ITIMER_PROF, LONGEST_S)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, limits)
        signal.signal(signal.SIGPROF, before)


def taken(call: Callable[[], Any]) -> Any:
    """Call what reads something: what it makes, or None where it says what is wrong."""
    with bounded():
        try:
            return call()
        except RooflmError as e:
            refused = e
    assert refused.code == 2
    assert str(refused).isprintable()
    assert len(str(refused)) <= 603
    return None


def each(inputs: Sequence[Any]) -> Iterator[Any]:
    """Go through a batch; where one fails it is the last that is noted."""
    for one in inputs:
        note(f"input: {str(one)[:3000]!r}")
        yield one


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """Give a folder for files that are written over, in memory where Linux has such a place."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as name:
        made = Path(name)
        (made / "folder").mkdir()
        (made / "file.txt").write_text("nothing of use\n")
        yield made


def kept(path: Path, content: str | bytes) -> Path:
    """Write a file; what no text can hold is written as it is in Python."""
    raw = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    path.write_bytes(raw)
    return path


# Words

WORDS = (
    "64", "4k", "128Ki", "1:256:x2", "1:9:2,3", "80GB", "80GiB", "450GB/s", "20ms", "1.5s", "500us",
    "0.9", "90%", "2.5k", "uniform:1k-3k", "lognormal:100,0.5,1k", "exponential:64", "512@0.8",
    "0.8,0.2", "4/5,1/5", "0;1;0,0;0,1", "zipf:1.0", "rate=1:32:x2", "2x8xh100-sxm", "v0.12.0",
    "bandwidth=1.1,compute=0.9", "experts=mxfp4,rest=bf16", "heatmap:x=batch,z=regime",
    "pareto:latency_s=20ms", "batch=1 context=512 latency=10.6ms", "-1.5", "K=8",
    "mla=c:512+r:64+d:128+v:128", "pattern=3*window:1024+full", "1,2,3\n4,5,6", "0.14,0.55,2.19",
)  # fmt: skip
"""What options take."""

PARSERS: tuple[Callable[[str], Any], ...] = (
    *(
        lambda text, read=read: read(text, "--option")
        for read in (
            units.parse_count, units.parse_counts, units.parse_size, units.parse_speed,
            units.parse_time, units.parse_share, units.parse_rate, parse_code, parse_real,
            parse_numbers, parse_law, parse_lengths, parse_chances, arithmetic.parse,
        )
    ),
    units.parse_layers, parse_factors, parse_rates, parse_node, parse_version, parse_point,
    parse_draw, precision_of,
    lambda text: parse_laws(text, text),
    lambda text: parse_tree(text, "0.6,0.15;0.5,0.1"),
    lambda text: parse_changes([text]),
    lambda text: parse_ways({"tp": text}),
    lambda text: precision_of(None, text),
    lambda text: expectations.parse_wanted("time_s", text, "here"),
    lambda text: expectations.parse_wanted("memory_bytes", text, "here"),
)  # fmt: skip


@fuzzed
@given(several(damaged(WORDS)))
@example(["a" + " " * 100_000 + "!", "1" + " " * 100_000 + ".."])
def test_any_word_is_read_or_refused(texts: list[str]) -> None:
    """Every reader of options takes every word: units, ranges, laws, chances, arithmetic."""
    for text in each(texts):
        for read in PARSERS:
            taken(lambda read=read, text=text: read(text))


@pytest.mark.parametrize("word", LONG, ids=range(len(LONG)))
def test_no_length_of_a_word_makes_a_reader_slow(word: str) -> None:
    """A hundred thousand characters on the command line are read or refused at once."""
    for read in (*PARSERS, find_model, find_machine):
        taken(lambda read=read: read(word))


@pytest.mark.parametrize("word", ["12" + " " * 40 + "x", "0" * 39 + "17", "1_000", "\u0661"])
def test_a_code_is_read_whole_or_not_at_all(word: str) -> None:
    """Digits beyond the fortieth, and what follows them, are not passed over."""
    with pytest.raises(RooflmError):
        parse_code(word, "--zero-point")


EXPRESSIONS = (
    "kv_cache_bytes / memory_bytes", "max(a, b.c) * 2 ** 3 - -1", "sqrt(abs(a)) + log2(b.c) / 1e3",
    "min(a, 1, (b.c + 2) / 3)", "a ** b.c ** 2",
)  # fmt: skip
OPERATORS = (
    *HOSTILE, "**", "**", "//", "(", ")", "log10", "sqrt", "1e308", "0", "-", "lambda", ".",
    "__x__",
)  # fmt: skip


@fuzzed
@given(several(damaged(EXPRESSIONS, OPERATORS), among(0.0, -1.0, 1e308, 1e-320, 7.0)))
@example([("9" * 300, 1.0), ("10 ** 10 ** 10", 1.0)])
def test_any_expression_is_a_number_or_none(inputs: list[tuple[str, float]]) -> None:
    """Arithmetic is refused where it is read, or gives a finite number or none."""
    for text, value in each(inputs):
        found = taken(lambda text=text: arithmetic.parse(text, "here"))
        if found is not None:
            result = found.value(dict.fromkeys(found.names, value))
            assert result is None or abs(result) < float("inf")


EXPECTED = (
    "23.80ms ± 0.01ms", "20ms..25ms", ">= 1k", "< 30ms", "2689 ± 1", "26.87GB ± 5%", "memory",
    "1,000",
    "24.00 GB",
)  # fmt: skip


@fuzzed
@given(
    several(
        either(damaged(EXPECTED), among(*(v for v in VALUES if v != 10**400))),
        among("time_s", "memory_bytes", "tokens_per_s", "regime", "intensity"),
    )
)
@example([(float("nan"), "time_s"), (float("inf"), "batch"), ("1" * 100_000 + "!", "time_s")])
def test_any_expectation_is_judged_or_refused(inputs: list[tuple[Any, str]]) -> None:
    """What is wanted has ends that numbers can be held against."""
    for value, quantity in each(inputs):
        wanted = taken(lambda v=value, q=quantity: expectations.parse_wanted(q, v, "here"))
        if wanted is not None:
            assert all(end is None or abs(end) < float("inf") for end in (wanted.low, wanted.high))
            assert wanted.holds(1.0) in (True, False)
            wanted.off(1.0)


# YAML


def entries_of(name: str, *wanted: str) -> tuple[str, ...]:
    """Take entries out of a shipped file, as files of one's own."""
    text = (ROOT / name).read_text("utf-8")
    blocks = top_keys(text, name)
    return tuple(text[blocks[entry][1] : blocks[entry][2]] for entry in wanted)


MODELS = entries_of(
    "models.yaml", "llama-2-13b", "deepseek-v3", "gemma-3-4b", "jamba-v0.1", "gpt-oss-20b"
)
MACHINES = entries_of("hardware.yaml", "h100-sxm", "rtx-4090", "apple-m2-ultra", "ddr5-6000-dual")
CALIBRATION = """calibration:
  model: gpt2
  hardware: h100-sxm
  weights: [bf16]
  kv: bf16
  constants: {memory: 0.9, layer_us: 2.0}
  points: 8
  error: 0.02
  low: 0.95
  high: 1.05
"""
YAML = (
    *HOSTILE, "&a", "*a", "<<", "!!python/object:os.system", "!!binary x", "|", ">", "'", '"', "#",
    "---", "...", "\t", "?", "- ", ": ", "{", "}", "]", "\r", "\x85", "\u2028", "D", "pattern",
    "1e5",
)  # fmt: skip


@fuzzed
@given(several(damaged(MODELS, YAML)))
@example([MODELS[2].replace("5*", f"{digits}*") for digits in ("9" * 5000, "\u00b2")])
def test_any_model_file_is_a_model_or_a_sentence(folder: Path, texts: list[str]) -> None:
    """An entry of one's own, whatever stands in it."""
    for text in each(texts):
        path = kept(folder / "m.yaml", text)
        found = taken(lambda path=path: find_model(str(path)))
        assert found is None or isinstance(found, Model)


@fuzzed
@given(several(damaged(MACHINES, YAML)))
def test_any_machine_file_is_a_machine_or_a_sentence(folder: Path, texts: list[str]) -> None:
    """A machine of one's own, whatever stands in it."""
    for text in each(texts):
        path = kept(folder / "h.yaml", text)
        found = taken(lambda path=path: find_machine(str(path)))
        assert found is None or isinstance(found, Machine)


@fuzzed
@given(several(damaged([CALIBRATION], YAML)))
def test_any_calibration_is_read_or_refused(folder: Path, texts: list[str]) -> None:
    """Constants of one's own, whatever stands in their file."""
    for text in each(texts):
        path = kept(folder / "c.yaml", text)
        taken(lambda path=path: calibrated_constants(find_machine("h100-sxm"), str(path)))


STUDIES = (
    """title: What a larger batch buys
base: {model: llama-2-13b, on: h100-sxm, accounting: lecture, context: 1024, set: {K: 8}}
variants: {one: {weights: fp8}, two: {set: {K: 40}}}
grid: {batch: 1:256:x16, kv: [bf16, fp8, fp16], zip: [[batch, kv]]}
measure: [memory_bytes, time_s]
derive: {share: memory_bytes / one.memory_bytes}
facts: {quality: {source: mine, unit: points, values: {one: 71.5, two: 70}}}
tolerance: {time_s: 1e-6}
figures: [{kind: sweep, name: a, title: Time, at: {batch: [1, 16]}}]
expect:
  - {at: {batch: 1}, memory_bytes: 26.87GB ± 5%, order: {time_s: one > two}, source: a lecture}
""",
    """command: speculate
base: {model: llama-3-70b, on: 8xh100-sxm, draft: llama-3-8b, acceptance: 0.8}
grid: {batch: [1, 8], draft_tokens: [2, 4]}
""",
)


@fuzzed
@given(several(damaged(STUDIES, YAML)))
def test_any_study_is_prepared_or_refused(folder: Path, texts: list[str]) -> None:
    """A study with its options, axes, expectations, arithmetic and figures."""
    for text in each(texts):
        path = kept(folder / "s.yaml", text)
        taken(lambda path=path: prepare(read_study(str(path))))


# JSON

CONFIGS: tuple[dict[str, Any], ...] = (
    *(config for config, _ in test_huggingface.FACTS.values()),
    *(config for config, _ in test_configstates.WHOLE.values() if "model_type" in config),
)


@fuzzed
@given(several(altered(CONFIGS)))
def test_any_config_is_a_model_or_a_sentence(configs: list[Any]) -> None:
    """A config.json of any class, whatever its keys hold."""
    for config in each(configs):
        if is_map(config):
            found = taken(lambda c=config: model_of_config(c, "drawn", "config.json"))
            assert found is None or isinstance(found, Model)


QUANTIZED = tuple(
    test_quantized_models.MIXED | {"quantization_config": said}
    for said, _ in test_quantized_models.SAYS
)


@fuzzed
@given(several(altered(QUANTIZED)))
def test_any_quantized_config_is_a_model_or_a_sentence(configs: list[Any]) -> None:
    """Formats of a checkpoint are understood, or said not to be."""
    for config in each(configs):
        if is_map(config):
            found = taken(lambda c=config: model_of_config(c, "drawn", "config.json"))
            assert found is None or isinstance(found, Model)


def texts_of(configs: Sequence[Any]) -> tuple[str, ...]:
    """Write data as JSON."""
    return tuple(json.dumps(config) for config in configs)


JSON = (*HOSTILE, "NaN", "Infinity", "-", "[" * 9000, '{"a":' * 9000, "\\ud800", "/*", "'", '"')


@fuzzed
@given(several(damaged(texts_of(CONFIGS[:3]), JSON)))
def test_any_text_of_a_config_is_read_or_refused(folder: Path, texts: list[str]) -> None:
    """JSON that is none, or almost."""
    for text in each(texts):
        path = kept(folder / "config.json", text)
        taken(lambda path=path: read_config(path))


def written(maker: Maker) -> Maker:
    """Write as JSON what is made."""
    return lambda chance: json.dumps(maker(chance))


def header_bytes(text: str, more: bytes = b"", length: int | None = None) -> bytes:
    """Write a safetensors file of a header as it is given."""
    raw = text.encode("utf-8", "surrogatepass")
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + more


HEADERS: tuple[dict[str, Any], ...] = (
    {
        "__metadata__": {"format": "pt"},
        "a": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "b": {"dtype": "BF16", "shape": [4], "data_offsets": [16, 24]},
    },
)


@fuzzed
@given(
    several(
        either(written(altered(HEADERS)), damaged(texts_of(HEADERS), JSON)),
        among(24, 24, 24, 0, 1),
        among(None, None, None, 0, 1, 2**27, 2**63, 2**64 - 1),
    )
)
def test_any_header_of_safetensors_is_read_or_refused(
    folder: Path, inputs: list[tuple[str, int, int | None]]
) -> None:
    """Names, shapes and places of tensors, and the length of the header itself."""
    for text, more, length in each(inputs):
        path = kept(folder / "w.safetensors", header_bytes(text, bytes(more), length))
        taken(lambda path=path: read_header(path))


RUN: dict[str, Any] = json.loads((ROOT / "validate/results/epyc-2-cores.json").read_text("utf-8"))
RUNS: list[dict[str, Any]] = [
    RUN | {"rows": [RUN["rows"][0] | {"parts": []}], "calibrations": [], "summary": {}}
]
"""A row alone, as a run that was killed may hold: whole runs are long to print."""


@fuzzed
@given(several(either(written(altered(RUNS)), damaged(texts_of(RUNS), JSON))))
def test_any_run_is_shown_or_refused(folder: Path, texts: list[str]) -> None:
    """A run of `validate` that is shown again, damaged in the meantime."""
    for text in each(texts):
        path = str(kept(folder / "run.json", text))
        words = ["--from", path, "--output", f"{path}.md", "--report", f"{path}.report.md"]
        assert taken(lambda words=words: validate(words, "validate")) in (Exit.DONE, None)


INDEXES: tuple[dict[str, Any], ...] = (
    {"metadata": {"total_size": 24}, "weight_map": {"a": "x.safetensors", "b": "x.safetensors"}},
)


@fuzzed
@given(several(either(written(altered(INDEXES)), damaged(texts_of(INDEXES), JSON))))
@example(['{"metadata": {"total_size": 1%s}, "weight_map": {"a": "x.safetensors"}}' % ("0" * 400)])
def test_any_index_of_shards_is_read_or_refused(folder: Path, texts: list[str]) -> None:
    """Which shard holds which tensor, and how many bytes all have."""
    shards = folder / "shards"
    if not shards.exists():
        shards.mkdir()
        kept(shards / "x.safetensors", header_bytes(json.dumps(HEADERS[0]), bytes(24)))
    for text in each(texts):
        kept(shards / INDEX, text)
        taken(lambda: read_folder(shards))


FROZEN: dict[str, Any] = {
    "schema": "rooflm.frozen/1",
    "columns": ["batch", "variant", "time_s", "fits"],
    "rows": [[1, "base", 0.001, True], [2, "base", 0.002, True]],
    "inputs": {"rooflm": "0.1.0", "models.yaml": {"gpt2": "1"}},
}


@pytest.fixture(scope="module")
def worked_out(folder: Path) -> tuple[Ready, list[dict[str, Any]]]:
    """Work a small study out."""
    text = "base: {model: gpt2, on: h100-sxm}\ngrid: {batch: [1, 2]}\nmeasure: [time_s, fits]\n"
    ready = prepare(read_study(str(kept(folder / "f.yaml", text))))
    return ready, rows_of(ready, lambda done, of: None)[0]


@fuzzed
@given(several(either(written(altered([FROZEN])), damaged([json.dumps(FROZEN)], JSON))))
@example([json.dumps({**FROZEN, "rows": [[1, "base", x, True]]}) for x in (10**400, float("nan"))])
def test_any_frozen_numbers_are_held_against_or_refused(
    folder: Path, worked_out: tuple[Ready, list[dict[str, Any]]], texts: list[str]
) -> None:
    """Frozen numbers that somebody has changed are told as moved, or the file is refused."""
    study = folder / "f.yaml"
    for text in each(texts):
        kept(frozen_path(str(study)), text)
        found = taken(lambda: read_frozen(str(study)))
        if found is not None:
            told = [moved(*worked_out, found), changed_inputs(worked_out[0], found)]
            json.dumps(told, allow_nan=False)


# GGUF


@pytest.fixture(scope="module")
def gguf(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Write a small model of llama.cpp, as bytes."""
    path = make(tmp_path_factory.mktemp("gguf") / "m.gguf", llama(layers=1))
    return path.read_bytes()


def overwritten(chance: random.Random) -> tuple[list[tuple[int, bytes, int]], int | None]:
    """Make changes of a header: where, with which byte, how often; and where the file ends."""
    bytes_, times = (b"\xff", b"\0", b"\x7f", b"\1", b"\x08"), (1, 1, 1, 4, 8)
    changes = [
        (chance.randrange(1500), chance.choice(bytes_), chance.choice(times))
        for _ in range(chance.randint(1, 3))
    ]
    return changes, chance.choice((None, None, None, None, 0, 10, 500, 1500))


@fuzzed
@given(several(overwritten))
@example([([(8, b"\xff", 8)], None), ([(16, b"\x7f", 8)], None), ([(23, b"\x80", 1)], None)])
def test_any_gguf_file_is_a_model_or_a_sentence(
    folder: Path, gguf: bytes, inputs: list[tuple[list[tuple[int, bytes, int]], int | None]]
) -> None:
    """Counts (of 2**63 too), types, names and shapes of a header, any of them overwritten."""
    for changes, end in each(inputs):
        raw = bytearray(gguf[:end])
        for at, byte, times in changes:
            raw[at : at + times] = byte * times
        path = kept(folder / "m.gguf", bytes(raw))
        found = taken(lambda path=path: read_gguf(path))
        assert found is None or isinstance(found, Model)


# Traces, lengths and logs

TRACES = (
    OWN + "0,1,1\n0.5,10,20\n",
    "arrival_s,prompt_tokens,output_tokens,priority,prefix,prefix_tokens,session\n0,9,1,1,a,4,c\n",
    AZURE + "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04,1,2\n",
    BURST_3 + "5,s1,1.5,ChatGPT,472,18,490,Conversation log\n",
    MOONCAKE % (0, 6755, 500) + MOONCAKE % (1000, 7, 8),
    '{"start_times": [1.5, 2.5], "input_lens": [1, 2], "output_lens": [3, 4]}\n',
)
CELLS = (*JSON, "\t", ";", "\r", "1e99", "0001-01-01 00:00:00", "9999-12-31 23:59:59", "+99:99")


@fuzzed
@given(several(damaged(TRACES, CELLS), among(None, 2.0)))
@example([(OWN + " " * 100_000 + "x,1,1\n", None)])
def test_any_trace_is_requests_or_a_sentence(
    folder: Path, inputs: list[tuple[str, float | None]]
) -> None:
    """CSV and JSON lines of every service, with cells of every kind."""
    for text, rate in each(inputs):
        path = kept(folder / "t.csv", text)
        found = taken(lambda path=path, rate=rate: read_trace(path, rate=rate))
        if found is not None:
            check(found)


@fuzzed
@given(several(damaged(["1024\n2048 # a remark\n4k, 8k\n", "1.5,2\n-3,4e-3\n"])))
def test_any_file_of_numbers_is_read_or_refused(folder: Path, texts: list[str]) -> None:
    """Lengths of sequences, and numbers to quantize."""
    for text in each(texts):
        path = kept(folder / "n.txt", text)
        taken(lambda path=path: parse_lengths(str(path), "--context"))
        numbers = taken(lambda path=path: open_numbers(path, None))
        if numbers is not None:
            taken(lambda numbers=numbers: quantize(numbers, Quantizer(bits=4)))


LOGS = tuple(
    "\n".join(path.read_text("utf-8").splitlines()[:25])
    for path in sorted((ROOT / "tests/logs").glob("*.txt"))
)
SEEN = (*HOSTILE, "0", "None", "GiB", "MiB", "{", "=", '{"log":', "[" * 10_000, "TP9999 ", "9" * 25)


@fuzzed
@given(several(damaged(LOGS, SEEN), among({}, {}, {"model": "llama-3.1-8b"}, {"tp": "2"})))
def test_any_log_is_explained_or_refused(inputs: list[tuple[str, Mapping[str, str]]]) -> None:
    """Logs of every engine, with numbers and words exchanged."""
    for text, typed in each(inputs):
        raw = io.BytesIO(text.encode("utf-8", "replace"))
        answer = taken(lambda r=raw, t=typed: explain_log(read_log(decoded(r, "log")), t))
        if answer is not None:
            json.dumps(answer, allow_nan=False)


# Settings

LETTERS = (
    "D", "F", "N", "K", "H", "V", "L", "E", "k", "window", "tied", "mlp", "pattern", "mla", "norm",
    "qk_norm", "bias", "experts", "positions", "chunk", "x",
)  # fmt: skip


SET_TO = (
    *HOSTILE, "1", "2", "64", "1e9", "4096", "full+shared", "none", "true", "gated",
    "c:512+r:64+d:128+v:128", "E:8+k:2+F:64", "3*window:1024+full",
)  # fmt: skip


def settings_of(chance: random.Random) -> list[str]:
    """Make one to three settings."""
    return [
        f"{chance.choice(LETTERS)}={chance.choice(SET_TO)}" for _ in range(chance.randint(1, 3))
    ]


def test_a_pattern_over_endless_layers_is_counted() -> None:
    """Five layers with a window, then one without: of 10^9 each sixth sees all."""
    with bounded():
        found = find_model("gemma-3-4b", parse_changes(["L=1e9"]))
    assert {g.name: g.count for g in found.groups} == {
        "local": 10**9 - 10**9 // 6,
        "global": 10**9 // 6,
    }


@fuzzed
@given(
    several(
        among("llama-2-13b", "gemma-3-4b", "gpt-oss-20b", "deepseek-v3", "mamba2-2.7b"), settings_of
    )
)
def test_any_setting_is_a_model_or_a_sentence(inputs: list[tuple[str, list[str]]]) -> None:
    """`--set` of every key to every word."""
    for name, changes in each(inputs):
        found = taken(lambda n=name, c=changes: find_model(n, parse_changes(c)))
        assert found is None or isinstance(found, Model)


def test_what_is_damaged_was_right(folder: Path) -> None:
    """Every text that is changed is read as it stands, or nothing would be tested behind it."""
    for text in MODELS:
        assert find_model(str(kept(folder / "m.yaml", text)))
    for text in MACHINES:
        assert find_machine(str(kept(folder / "h.yaml", text)))
    assert calibrated_constants(find_machine("h100-sxm"), str(kept(folder / "c.yaml", CALIBRATION)))
    for text in STUDIES:
        assert prepare(read_study(str(kept(folder / "s.yaml", text)))).columns
    for config in (*CONFIGS, *QUANTIZED):
        assert model_of_config(config, "right", "config.json").groups
    for text in TRACES:
        assert read_trace(kept(folder / "t.csv", text)).prompt
    for text in WORDS:
        assert any(taken(lambda r=read, t=text: r(t)) is not None for read in PARSERS), text


# The command line

GPT2 = ("gpt2", "--on", "h100-sxm")
STEP = "context=512 latency=2ms"
BASES: dict[str, tuple[str, ...]] = {
    "models": (), "hardware": (), "show": ("gpt2",), "fit": GPT2, "sweep": GPT2, "compare": GPT2,
    "roofline": GPT2, "explain": ("bound_s", *GPT2), "solve": ("batch", *GPT2),
    "speculate": ("llama-3-8b", "--draft", "gpt2", "--acceptance", "0.8", "--on", "h100-sxm"),
    "levers": GPT2, "plan": (*GPT2, "--devices", "1:2"), "quantize": ("--values", "1,2,3"),
    "accuracy": ("--source", "nothing"), "calibrate": (*GPT2, "--measured", STEP), "validate": (),
    "serve": (*GPT2, "--rate", "4", "--requests", "20"), "explain-log": ("vllm.log",),
    "study": ("study.yaml",), "report": ("study.yaml",), "plot": ("sweep", *GPT2),
}  # fmt: skip
"""What each command is asked before an option is put beside it."""
BESIDE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("--prompt", "--output-tokens", "--prefix", "--chunk"), ("--phase", "request")),
    "--block": ("--phase", "request", "--prefix", "64"), "--draw": ("--chart",),
    **dict.fromkeys(("--price", "--power", "--pue", "--utilization", "--tariff"), ("--cost",)),
    **dict.fromkeys(("--link", "--network", "--link-latency", "--all-reduce"), ("--tp", "2")),
    "--scale": ("--zero-point", "1"), "--zero-point": ("--scale", "0.1"),
    "--group": ("--per", "group"),
    "--denoise-steps": ("--denoise-block", "32"), "--denoise-block": ("--denoise-steps", "8"),
    "--lora-targets": ("--lora", "16"), "--prefix-reads": ("--shared-prefix", "64"),
    "--handoff": ("--prefill-on", "h100-sxm", "--phase", "request"), "--junit": ("--check",),
    "--attainment": ("--find-rate",), "--max-len": ("--engine", "vllm"),
    "--tree": ("--accuracies", "0.6"),
}  # fmt: skip
"""Options that say nothing alone."""


COMMANDS: Any = typer.main.get_command(app)
"""All commands with their options, made once: typer takes longer over them than most answers."""


class Typed:
    """Words, and what came of them."""

    def __init__(self, words: Sequence[str]) -> None:
        """Run a command in this process."""
        out, err = io.StringIO(), io.StringIO()
        before, sys.argv = sys.argv, ["rooflm", *words]
        try:
            with (
                bounded(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err),
                pytest.raises(SystemExit) as stopped,
            ):  # fmt: skip
                entry.main()
        finally:
            sys.argv = before
        self.words, self.code = words, stopped.value.code
        self.out = out.getvalue()
        # What is tried is added to a line that may have the option already.
        self.err = re.sub("^rooflm: note: .* is said more than once.*\n", "", err.getvalue())

    def keeps_its_promises(self) -> None:
        """Check the exit code, and that an error is one printable sentence."""
        told = (self.words, self.code, self.err)
        assert self.code in (0, 1, 2, 3), told
        if self.code in (2, 3):
            assert self.out == "", told
            assert self.err.startswith("rooflm: error: "), told
            assert self.err.count("\n") == 1, told
            assert self.err[:-1].isprintable(), told
            assert len(self.err) < 700, told
        elif self.words[-2:] == ("--format", "json"):
            json.loads(self.out, parse_constant=pytest.fail)


def options_of(command: str) -> list[Any]:
    """List the options of a command that take a word."""
    return [
        p for p in COMMANDS.commands[command].params
        if p.param_type_name == "option" and not p.is_flag and p.name != "help"
    ]  # fmt: skip


def test_every_command_has_a_line_to_start_from() -> None:
    """A new command is not left out."""
    assert set(COMMANDS.commands) == set(BASES)


@pytest.fixture(autouse=True)
def elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that may be filled with files of any name; make no command anew."""
    monkeypatch.chdir(folder)

    def all_of_them(words: list[str]) -> Any:
        return COMMANDS

    monkeypatch.setattr(cli, "_asked_for", all_of_them)
    shutil.copy(ROOT / "studies" / "batch_sweep.yaml", "study.yaml")
    shutil.copy(ROOT / "docs" / "examples" / "vllm.log", "vllm.log")


@pytest.mark.parametrize("command", [c for c in BASES if c != "validate"])
def test_every_option_of_a_command_takes_any_word(command: str) -> None:
    """Each option with a word that it does not expect; with all such words at night.

    Words go on from option to option and from command to command, and options that commands share
    are read by the same code: each of these meets several.
    """
    words = [w for w in (*HOSTILE, *LONG) if w not in ("/dev/null", "\0")]
    start = list(BASES).index(command) * 13
    for i, option in enumerate(options_of(command)):
        some = range(len(words)) if NIGHTLY else (start + 7 * i,)
        for n in some:
            word, name = words[n % len(words)], option.opts[0]
            base = [w for w in BASES[command] if w != STEP or name != "--measured"]
            base = base[:-1] if base[-1:] == ["--measured"] else base
            beside = BESIDE.get(name, ())
            known = {o.opts[0] for o in options_of(command)} | {"--chart", "--cost", "--find-rate"}
            more = beside if known.issuperset(w for w in beside if w.startswith("--")) else ()
            ran = Typed((command, *base, *more, f"{name}={word}"))
            ran.keeps_its_promises()


# Surroundings

ENCODED: dict[str, Callable[[str], bytes]] = {
    "Windows line endings": lambda text: text.replace("\n", "\r\n").encode(),
    "UTF-8 with a mark": lambda text: text.encode("utf-8-sig"),
    "UTF-16": lambda text: text.replace("\n", "\r\n").encode("utf-16"),
}
INPUT_FILES: dict[str, tuple[str, Callable[[str], Any]]] = {
    "m.yaml": (MODELS[0], lambda path: find_model(path).groups),
    "h.yaml": (MACHINES[0], lambda path: find_machine(path).flops),
    "c.yaml": (CALIBRATION, lambda path: calibrated_constants(find_machine("h100-sxm"), path)),
    "s.yaml": (STUDIES[0], lambda path: read_study(path).expect),
    "config.json": (json.dumps(CONFIGS[0], indent=1), lambda path: find_model(path).groups),
    "t.csv": (TRACES[0], lambda path: read_trace(Path(path))),
    "t.jsonl": (TRACES[4], lambda path: read_trace(Path(path))),
    "lengths.txt": ("1024\n2048\n", lambda path: parse_lengths(path, "--context")),
    "numbers.txt": ("1,2\n3,4\n", lambda path: open_numbers(Path(path), None).read(0, 2).tolist()),
    "vllm.log": (LOGS[-1], lambda path: read_log(log_lines(path), "log").engine),
}  # fmt: skip
"""Every text that is read, and what is made of it."""


@pytest.mark.parametrize("encoding", ENCODED)
def test_texts_of_other_systems_are_read_alike(folder: Path, encoding: str) -> None:
    """Line endings, marks of byte order and UTF-16 change nothing of what a file says."""
    folder = folder / "alike"  # where no weights lie beside a config.json
    folder.mkdir(exist_ok=True)
    for name, (text, read) in INPUT_FILES.items():
        plain = read(str(kept(folder / name, text)))
        assert read(str(kept(folder / name, ENCODED[encoding](text)))) == plain, name


class Screen(io.TextIOWrapper):
    """A terminal of some encoding."""

    def __init__(self, encoding: str) -> None:
        """Open it."""
        super().__init__(io.BytesIO(), encoding=encoding, newline="")

    def isatty(self) -> bool:
        """It is one."""
        return True

    def shown(self) -> str:
        """What was written."""
        self.flush()
        raw: Any = self.buffer
        return raw.getvalue().decode(self.encoding)


def on_screen(*words: str, encoding: str = "utf-8") -> str:
    """Run a command on a terminal; it has to succeed."""
    screen, before = Screen(encoding), sys.argv
    sys.argv = ["rooflm", *words]
    try:
        with contextlib.redirect_stdout(screen), pytest.raises(SystemExit) as stopped:
            entry.main()
    finally:
        sys.argv = before
    assert stopped.value.code == 0
    return screen.shown()


@pytest.mark.parametrize("columns", ["1", "20", "40", "1000"])
def test_no_width_cuts_a_figure(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal of any width shows every figure of a table."""
    words = ("sweep", *GPT2, "--batch", "1,64", "--quiet")
    monkeypatch.setenv("COLUMNS", "1000")
    wide = set(re.findall(r"[0-9][0-9,.]*", on_screen(*words)))
    monkeypatch.setenv("COLUMNS", columns)

    assert set(re.findall(r"[0-9][0-9,.]*", on_screen(*words))) == wide
    assert "Usage" in on_screen("sweep", "--help")
    assert on_screen(*words, "--chart")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "utf-16"])
def test_no_encoding_of_a_terminal_stops_an_answer(encoding: str) -> None:
    """Lines of boxes and Greek letters are replaced where a terminal has none."""
    shown = on_screen("explain", "bound_s", *GPT2, encoding=encoding)

    assert ("β" in shown) == (encoding == "utf-16")
    assert on_screen("sweep", *GPT2, "--batch", "1,64", "--chart", encoding=encoding)


def in_a_process(*words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    """Run rooflm in a process of its own."""
    command = [sys.executable, "-m", "rooflm.calc", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **more)


def test_a_bare_surrounding_is_enough(tmp_path: Path) -> None:
    """No HOME, the C locale, a dumb terminal: a table, and a figure in the folder that is named."""
    kept_names = ("PATH", "PYTHONPATH")
    bare = {name: os.environ[name] for name in kept_names if name in os.environ}
    bare |= {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "TERM": "dumb"}
    bare["PYTHONPATH"] = os.pathsep.join(sys.path)
    deep = tmp_path / "a folder" / "d\u00e9p\u00f4t"
    deep.mkdir(parents=True)
    kept(deep / "config.json", json.dumps(CONFIGS[0]))
    for words in (("--output", "t.md"), ("--plot", "f.svg", "--output", "t.csv")):
        ran = in_a_process("sweep", str(deep), "--on", "h100-sxm", *words, cwd=deep, env=bare)
        assert ran.returncode == 0, ran.stderr
        assert "Traceback" not in ran.stderr


def test_a_folder_that_takes_no_files_is_said(tmp_path: Path) -> None:
    """A figure whose usual place cannot be written: one sentence, exit 2."""
    ran = in_a_process("plot", "sweep", *GPT2, cwd="/proc")

    assert ran.returncode == 2
    assert ran.stderr.startswith("rooflm: error: cannot write the output")
    assert ran.stderr.count("\n") == 1


def test_a_working_folder_that_is_gone_is_no_defect(tmp_path: Path) -> None:
    """What stands in no folder is not found."""
    gone = f"mkdir {tmp_path}/x && cd {tmp_path}/x && rmdir {tmp_path}/x && exec "
    command = f"{gone} {sys.executable} -P -m rooflm.calc study s.yaml --check --junit j.xml"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert ran.returncode == 2
    assert "s.yaml" in ran.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/full"])
def test_an_error_that_nobody_can_read_keeps_its_exit_code(closed: str, unbuffered: str) -> None:
    """Without a stderr a mistake is still exit 2, and not the 1 of a no or Python's 120."""
    command = f"{sys.executable} -m rooflm.calc show nonsense {closed}"
    env = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    assert subprocess.run(["bash", "-c", command], check=False, env=env).returncode == 2


def test_without_stdout_the_version_has_nowhere_to_go() -> None:
    """That is told, as of every answer."""
    command = f"{sys.executable} -m rooflm.calc --version >&-"
    ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)

    assert (ran.returncode, ran.stderr.count("\n")) == (2, 1)


def test_a_file_that_is_called_like_a_preset_does_not_hide_it(folder: Path) -> None:
    """A name without a suffix is that of a preset."""
    kept(folder / "gpt2", "not a model\n")
    kept(folder / "h100-sxm", "not a machine\n")

    assert find_model("gpt2").name == "gpt2"
    assert find_machine("h100-sxm").name == "h100-sxm"


def test_what_has_no_end_is_refused() -> None:
    """A device that yields bytes for ever, and more points or requests than anybody waits for."""
    for words, part in (
        (("quantize", "/dev/zero"), "larger than 16 MiB"),
        (("sweep", *GPT2, "--batch", "1:1e9"), "values"),
        (("sweep", *GPT2, "--batch", "1:1e6"), "--format"),
        (("compare", *GPT2, "--context", "1:1e6"), "--format"),
        (("serve", *GPT2, "--rate", "4", "--requests", "1e12"), "--requests"),
    ):
        ran = Typed(words)
        ran.keeps_its_promises()
        assert ran.code == 2
        assert part in ran.err


@pytest.mark.parametrize("name", ["link", "network", "link-latency", "all-reduce"])
def test_show_refuses_links_that_it_has_no_use_for(name: str) -> None:
    """An option without effect is not passed over, whatever stands in it."""
    assert Typed(("show", "gpt2", f"--{name}", "nonsense")).code == 2


@pytest.mark.parametrize("command", ["sweep", "fit"])
@pytest.mark.parametrize("option", ["--state", "--reserve"])
def test_an_empty_word_is_not_the_default(command: str, option: str) -> None:
    """Nothing in quotes is a mistake, as of a variable that was never set."""
    ran = Typed((command, *GPT2, option, ""))

    assert ran.code == 2
    assert option in ran.err
