"""Studies: files that are read strictly, points that equal commands, numbers that are guarded."""

from __future__ import annotations

import csv
import importlib
import json
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.calc import study_answer, study_stream
from rooflm.calc.arithmetic import FUNCTIONS, parse
from rooflm.calc.errors import Exit, RooflmError
from rooflm.calc.expectations import parse_wanted
from rooflm.calc.frozen import check_study, frozen_path
from rooflm.calc.study import Ready, blocks, prepare
from rooflm.calc.study_answer import rows_of, to_rows
from rooflm.calc.study_file import read_study
from rooflm.calc.study_schema import study_schema
from rooflm.calc.study_stream import write_csv, write_parquet
from rooflm.calc.yamlfile import load

from .helpers import Terminal

STUDY = importlib.import_module("rooflm.calc.study")
ROOT = Path(__file__).resolve().parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))
NAMES = [path.stem for path in STUDIES]

BASE = "base: {model: llama-2-13b, on: h100-sxm}\n"


def silent(done: int, of: int) -> None:
    """Tell nothing."""


def written(folder: Path, text: str, name: str = "s.yaml") -> str:
    """Write a study and return its path."""
    path = folder / name
    path.write_text(text, "utf-8")
    return str(path)


def ready_of(folder: Path, text: str) -> Ready:
    """Write a study and prepare it."""
    return prepare(read_study(written(folder, text)))


def all_rows(ready: Ready) -> list[dict[str, Any]]:
    """Work all rows of a study out."""
    rows, whole = rows_of(ready, silent)
    assert whole
    return rows


# What the notes claim


@pytest.mark.parametrize("path", STUDIES, ids=NAMES)
def test_every_study_holds(path: Path) -> None:
    """Every study of the project passes its own check, and what it expects has a source."""
    checked = check_study(str(path), silent)

    assert checked["holds"], [v for v in checked["expectations"] if not v["holds"]][:3] or (
        checked["moved"][:3]
    )
    assert checked["frozen"] or any(v["source"] for v in checked["expectations"])


@pytest.mark.parametrize("path", STUDIES, ids=NAMES)
def test_the_schema_accepts_every_study(path: Path) -> None:
    """A validator that is not ours accepts every study; its first line points at the schema."""
    text = path.read_text("utf-8")
    schema = json.loads((ROOT / "docs/schema/study.json").read_text("utf-8"))

    jsonschema.Draft202012Validator(schema).validate(load(text, path.name).value)
    assert text.startswith("# yaml-language-server: $schema=../docs/schema/study.json\n")
    assert schema == study_schema()


@pytest.mark.parametrize(
    "wrong",
    ["bas: {}", "grid: {batchs: [1]}", "variants: {a: {kw: fp8}}", "measure: []",
     "figures: [{kind: pie}]", "facts: {q: {values: {}}}", "command: solve",
     "figures: [{kind: lines, z: batch}]"],
)  # fmt: skip
def test_schema_and_check_refuse_alike(tmp_path: Path, wrong: str) -> None:
    """What the schema refuses, reading refuses as well."""
    assert list(jsonschema.Draft202012Validator(study_schema()).iter_errors(load(wrong, "s").value))
    with pytest.raises(RooflmError):
        read_study(written(tmp_path, wrong if wrong.startswith("bas:") else BASE + wrong))


def test_guards_list_every_preset() -> None:
    """A model or machine that is added without freezing its numbers is caught here."""
    from rooflm.calc.presets import HARDWARE_FILE, MODELS_FILE, preset_names

    for name, file in (("models", MODELS_FILE), ("hardware", HARDWARE_FILE)):
        frozen = json.loads((ROOT / f"studies/guard_{name}.frozen.json").read_text("utf-8"))
        key = frozen["columns"].index("model" if name == "models" else "hardware")
        assert [row[key] for row in frozen["rows"]] == preset_names(file)


# Points


@pytest.mark.parametrize("name", ["mha_gqa", "mla_gqa", "copies_shards", "quantization"])
def test_rows_are_what_the_commands_answer(rooflm: Terminal, name: str) -> None:
    """The command that a study names for a variant answers the same figures, row by row."""
    ready = prepare(read_study(str(ROOT / f"studies/{name}.yaml")))
    answer = study_answer.answer(ready, all_rows(ready))
    shared = ("memory_bytes", "time_s", "bound_s", "tokens_per_s", "fits", "regime")

    for variant in answer["variants"]:
        rows = [row for row in answer["rows"] if row["variant"] == variant["variant"]]
        told = rooflm.json(*shlex.split(variant["command"])[1:])["rows"]
        assert len(rows) == len(told) > 1
        for mine, theirs in zip(rows, told, strict=True):
            for key in shared:
                assert mine.get(key) == theirs.get(key)


def test_rows_of_speculation_are_what_the_command_answers(rooflm: Terminal) -> None:
    """A study of speculation has the rows of `rooflm speculate`, one draft length after another."""
    ready = prepare(read_study(str(ROOT / "studies/speculation.yaml")))
    rows = all_rows(ready)
    words = "llama-3-70b --draft llama-3-8b --acceptance 0.8 --on 8xh100-sxm --context 2048"
    told = rooflm.json(
        "speculate", *words.split(), *shlex.split("--basis bound --draft-tokens 3 --batch 1,64")
    )["rows"]

    for theirs in told:
        mine = next(r for r in rows if (r["batch"], r["draft_tokens"]) == (theirs["batch"], 3))
        assert {k: mine[k] for k in theirs} == theirs


GRIDS = """
grid:
  batch: [1, 2, 3, 64, 600]
  context: [16, 100, 1000, 9000]
measure: [memory_bytes, kv_cache_bytes, bound_s, estimate_s, regime, fits, max_sequences,
          max_context_tokens,
          attention.intensity_flops_per_byte, prefill.mlp_up.bound_s, parameters.total,
          output_usd_per_mtok, reserved_kv_cache_bytes.paged, cache.bytes_per_token]
derive: {share: kv_cache_bytes / memory_bytes}
"""


@pytest.mark.parametrize(
    ("model", "attention", "mlp"),
    [("llama-3-8b", "attention", "mlp_up"), ("gemma-3-12b", "attention_local", "mlp_up_local"),
     ("qwen3-30b-a3b", "attention", "experts_up")],
)  # fmt: skip
def test_arrays_and_rows_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, attention: str, mlp: str
) -> None:
    """A block in one evaluation of arrays gives what its points give one by one."""
    text = f"base: {{model: {model}, on: h100-sxm}}\n" + GRIDS
    text = text.replace("attention.", f"{attention}.").replace("mlp_up.", f"{mlp}.")
    ready = ready_of(tmp_path, text)
    by_rows = all_rows(ready)
    monkeypatch.setattr(STUDY, "FEW_POINTS", 1)
    by_arrays = all_rows(ready)

    assert len(by_arrays) == len(by_rows) == 20
    for one, other in zip(by_arrays, by_rows, strict=True):
        for key in ready.columns:
            same = pytest.approx(other[key], rel=1e-12) if _number(other[key]) else other[key]
            assert one[key] == same, key


def test_arrays_have_all_columns_of_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A layout of equal ranks in one evaluation has every column that its rows have one by one."""
    text = "base: {model: mixtral-8x7b, on: 4xh100-sxm, tp: 4, cost: true, tariff: '0.1,0.2,0.6'}\n"
    ready = ready_of(tmp_path, text + "grid: {batch: [1, 4, 600], context: [100, 5000]}\n")
    by_rows = all_rows(ready)
    monkeypatch.setattr(STUDY, "FEW_POINTS", 1)
    for one, other in zip(all_rows(ready), by_rows, strict=True):
        for key, value in other.items():
            assert one[key] == (pytest.approx(value, rel=1e-12) if _number(value) else value), key


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_axes_are_crossed_and_zipped(tmp_path: Path) -> None:
    """The points are the product of the groups of axes, slowest first, batch fastest."""
    ready = ready_of(
        tmp_path,
        BASE + "variants: {a: base, b: {kv: fp8}}\ngrid: {tp: [1, 2], replicas: [2, 1], "
        "context: [10, 20], batch: 2:8:x2, zip: [tp, replicas]}\nmeasure: [devices]\n",
    )
    found = [
        (r["variant"], r["tp"], r["replicas"], r["context_tokens"], r["batch"], r["devices"])
        for r in all_rows(ready)
    ]

    assert found == [
        (v, tp, n, S, B, 2)
        for v in "ab"
        for tp, n in ((1, 2), (2, 1))
        for S in (10, 20)
        for B in (2, 4, 8)
    ]


def test_an_axis_of_a_dimension(tmp_path: Path) -> None:
    """`set.K` is an axis: the cache is 2 K H L bytes an element and token, by hand."""
    ready = ready_of(tmp_path, BASE + "grid: {set.K: [1, 8, 40]}\nmeasure: [kv_cache_bytes]\n")

    assert [(r["K"], r["kv_cache_bytes"]) for r in all_rows(ready)] == [
        (K, 2 * K * 128 * 40 * 1024 * 2) for K in (1, 8, 40)
    ]


def test_requests_and_prefills(tmp_path: Path) -> None:
    """Studies of requests have their columns; the prompt is an axis."""
    text = BASE.replace("}", ", phase: request, output_tokens: 8, basis: bound}")
    text += "grid: {prompt: [64, 128]}\nmeasure: [ttft_s, itl_s, e2e_s]\n"
    ready = ready_of(tmp_path, text)

    for row in all_rows(ready):
        whole = row["ttft_s"] + 7 * row["itl_s"]
        assert row["e2e_s"] == pytest.approx(whole, rel=1e-12)
    assert [r["prompt_tokens"] for r in all_rows(ready)] == [64, 128]


def test_what_an_engine_reserves_is_measured(tmp_path: Path) -> None:
    """72 GiB less 15,231,233,024 B and 2 GiB are 65,319 blocks of 16 * 57,344 B, by hand."""
    text = """command: fit
base: {model: qwen2.5-7b, on: a100-sxm-80gb, engine: vllm, utilization: 0.9, max_len: 32Ki,
       peak_activation: 1GiB, non_torch: 0.3GiB, graphs: 0.7GiB}
variants: {all: base, half: {utilization: 0.45}}
measure: [engine.blocks, engine.tokens, fits]
"""
    all_, half = all_rows(ready_of(tmp_path, text))

    assert (all_["engine.blocks"], all_["engine.tokens"]) == (65319, 1045104)
    assert half["engine.tokens"] == (72 * 2**29 - 15231233024 - 2**31) // (16 * 57344) * 16
    assert all_["fits"] is half["fits"] is True


@pytest.mark.parametrize("same", ["block: 16", "chunk: 4096", "output_tokens: 128", "prompt: 1Ki"])
def test_what_is_usual_is_no_variant(same: str, tmp_path: Path) -> None:
    """A default that is spelt out, and a chunk that is longer than the prompt, change nothing."""
    phase = "request" if "output" in same else "prefill"
    base = f"base: {{model: gpt2, on: h100-sxm, phase: {phase}}}\n"
    text = f"{base}variants: {{a: base, b: {{{same}}}}}\n"
    with pytest.raises(RooflmError, match="changes nothing"):
        ready_of(tmp_path, text)


def test_letters_that_a_font_lacks_are_no_error(rooflm: Terminal, tmp_path: Path) -> None:
    """A title in Chinese with a symbol is drawn, whatever fonts there are, without a warning."""
    figure = "figures: [{kind: sweep, name: a, title: 批量 \U0001f680}]"
    path = written(tmp_path, BASE + f"title: 批量\ngrid: {{batch: [1, 8]}}\n{figure}\n")
    ran = rooflm("study", path, "--quiet", "--figures", str(tmp_path))

    assert (ran.code, (tmp_path / "a.svg").exists()) == (0, True)


def test_the_pool_of_an_engine_is_that_of_its_worked_example(tmp_path: Path) -> None:
    """Blocks and tokens are those of t20_vllm_kv_budget in golden/engine_memory.yaml, by hand."""
    text = """command: fit
base: {model: llama-3-8b, on: h100-sxm, engine: vllm, utilization: 0.9, max_len: 4096,
       peak_activation: 1.5GB, non_torch: 0.5GB, graphs: 0GB}
measure: [engine.blocks, engine.tokens]
expect: [{engine.blocks: 28089, engine.tokens: 449424}]
"""
    (row,) = all_rows(ready_of(tmp_path, text))

    assert (row["engine.blocks"], row["engine.tokens"]) == (28089, 449424)


@pytest.mark.parametrize(
    "typed",
    ["plan llama-3-8b --on h100-sxm --devices 1", "levers llama-3-8b --on h100-sxm",
     "solve batch llama-3-8b --on h100-sxm --latency 20ms", "quantize --values 1,2 --scale 1"],
)  # fmt: skip
def test_what_other_commands_answer_are_keys_of_theirs(rooflm: Terminal, typed: str) -> None:
    """A quantity that a study refuses as another command's stands in the JSON of that command."""
    ran = rooflm(*typed.split(), "--format", "json")

    for key in STUDY.ANSWERED_BY[typed.split()[0]]:
        assert f'"{key}":' in ran.out, key


@pytest.mark.parametrize(
    "rest",
    [
        "on: h100-sxm}\nvariants: {a: base, b: {power: 500}}\nderive: {x: joules_per_token * 2}",
        # 700 W is the cap of the first board alone: an H100 NVL has 400 W, by its datasheet.
        "}\ngrid: {on: [h100-sxm, h100-nvl]}\nvariants: {a: base, b: {power: 700}}\n"
        "measure: [joules_per_token]",
        # 81,559 MiB is what the driver of the first board reports, and of no other.
        "}\ngrid: {on: [h100-sxm, h100-nvl]}\nvariants: {a: base, b: {capacity: 81559MiB}}",
    ],
)
def test_a_figure_of_one_machine_is_a_variant_along_several(rest: str, tmp_path: Path) -> None:
    """What tells two variants apart at one point, or in one column, is no twin."""
    assert list(ready_of(tmp_path, "base: {model: llama-3-8b, " + rest).probes) == ["a", "b"]


def test_variants_may_differ_in_traffic_alone(tmp_path: Path) -> None:
    """Another rate is another variant, though model and machine are the same."""
    base = "command: serve\nbase: {model: llama-3-8b, on: h100-sxm, requests: 9}\n"
    text = base + "variants: {one: {rate: 1}, two: {rate: 2}}\nmeasure: [ttft_mean_s]\n"

    assert [row["variant"] for row in all_rows(ready_of(tmp_path, text))] == ["one", "two"]


def test_a_point_without_an_answer_says_why(tmp_path: Path) -> None:
    """Along an axis of machines, one that lacks the format has memory, nulls and a reason."""
    text = "base: {model: llama-3-8b, weights: bf16}\ngrid: {on: [h100-sxm, apple-m4]}\n"
    rows = all_rows(ready_of(tmp_path, text + "measure: [memory_bytes, bound_s]\n"))

    assert rows[0]["bound_s"] > 0
    assert rows[0]["reason"] is None
    assert rows[1]["bound_s"] is None
    assert "bf16" in rows[1]["reason"]
    assert rows[1]["memory_bytes"] > 16e9


def test_what_is_given_becomes_a_column(tmp_path: Path) -> None:
    """Facts are columns with their source, null for a variant without one."""
    text = BASE + (
        "variants: {a: base, b: {kv: fp8}}\nmeasure: [time_s]\n"
        "facts: {mmlu: {source: a paper, unit: '%', values: {a: 50.5}}}\n"
    )
    ready = ready_of(tmp_path, text)
    answer = study_answer.answer(ready, all_rows(ready))

    assert [r["mmlu"] for r in answer["rows"]] == [50.5, None]
    assert "mmlu: not computed but given; a paper" in answer["assumptions"]


def test_extending_merges_maps_and_replaces_lists(tmp_path: Path) -> None:
    """A study that extends another adds to its maps, replaces its lists, and reads its paths."""
    (tmp_path / "far").mkdir()
    own = "mine:\n  dims: {D: 64, F: 256, N: 4, K: 4, H: 16, L: 2, V: 100}\n"
    (tmp_path / "far/mine.yaml").write_text(own, "utf-8")
    far = "base: {model: mine, models: mine.yaml, on: h100-sxm, context: 8}\n"
    far += "variants: {a: base, b: {set: {K: 2}}}\nmeasure: [time_s, fits]\n"
    far += "derive: {x: time_s * 2}\n"
    written(tmp_path / "far", far, "o.yaml")
    near = "extends: far/o.yaml\nbase: {context: 16}\nvariants: {c: {kv: fp8}}\n"
    study = read_study(written(tmp_path, near + "measure: [memory_bytes]\n"))

    assert list(study.variants) == ["a", "b", "c"]
    assert study.base["context"] == "16"
    assert study.base["model"] == "mine"
    assert study.measure == ("memory_bytes",)
    assert [r["context_tokens"] for r in all_rows(prepare(study))] == [16, 16, 16]
    without = read_study(written(tmp_path, near + "derive: {x: null}\n", "w.yaml"))
    assert without.derive == {}


def test_each_point_is_told_of_by_its_own_words(tmp_path: Path) -> None:
    """Along an axis of phases a large grid is no decode step, as a small one is none."""
    text = "base: {model: llama-3.1-8b, on: h100-sxm}\nmeasure: [time_s]\n"
    large = ready_of(tmp_path, text + "grid: {phase: [decode, prefill], batch: '1:600'}\n")
    small = ready_of(tmp_path, text + "grid: {phase: [decode, prefill], batch: [1]}\n")

    assert [r["time_s"] for r in all_rows(large) if r["batch"] == 1] == [
        r["time_s"] for r in all_rows(small)
    ]


def test_another_variants_column_is_its_own(tmp_path: Path) -> None:
    """VARIANT.column is never that of the row; what a variant lacks is 0 or missing."""
    text = (
        "base: {on: h100-sxm}\nvariants: {A: {model: falcon-mamba-7b}, B: {model: llama-3.1-8b}}\n"
    )
    text += "measure: [state_bytes]\nfacts: {q: {source: a paper, values: {A: 2, B: 3}}}\n"
    text += "derive: {z: state_bytes - B.state_bytes, w: A.q / q}\n"
    one, other = all_rows(ready_of(tmp_path, text))

    assert one["z"] == one["state_bytes"] > 0
    assert other["z"] == 0
    assert (one["w"], other["w"]) == (1, 2 / 3)


def test_messages_and_operators_have_names_of_their_own(rooflm: Terminal, tmp_path: Path) -> None:
    """In a layout the embedding is the operator; what is sent for it is embedding_messages."""
    base = "base: {model: llama-3.1-70b, on: 8xh200-sxm, tp: 8, batch: 17, context: 3100}\n"
    row = all_rows(
        ready_of(tmp_path, base + "measure: [embedding.bytes, embedding_messages.bound_s]\n")
    )[0]
    told = rooflm.json(*shlex.split(
        "roofline llama-3.1-70b --on 8xh200-sxm --tp 8 --batch 17 --context 3100"
    ))["operators"]  # fmt: skip
    own = [op for op in told if op["name"] == "embedding"]

    assert row["embedding.bytes"] == next(op["bytes"] for op in own if op["regime"] == "memory") > 0
    sent = next(op["bound_s"] for op in own if op["regime"] == "communication")
    assert row["embedding_messages.bound_s"] == sent > 0


def test_a_gap_in_a_large_grid_has_rows_with_the_reason(tmp_path: Path) -> None:
    """A machine without a rate has memory and the reason at any size, and in any order."""
    text = "base: {model: llama-3-8b, weights: bf16}\n"
    text += "measure: [memory_bytes, bound_s, max_sequences]\n"
    ready = ready_of(tmp_path, text + "grid: {on: [apple-m4, h100-sxm], batch: '1:600'}\n")
    rows = all_rows(ready)

    assert all(r["bound_s"] is None and r["reason"] for r in rows[:600])
    assert all(r["bound_s"] > 0 and r["max_sequences"] > 0 for r in rows[600:])


def test_variants_at_contexts_of_their_own_are_put_in_an_order(tmp_path: Path) -> None:
    """Variants that differ in their context are compared with each other, and found by it."""
    text = BASE + "variants: {short: {context: 512}, long: {context: 32k}}\nmeasure: [time_s]\n"
    text += (
        "expect: [{order: {time_s: long > short}}, {at: {context_tokens: 32k}, time_s: 1ms..1s}]\n"
    )
    checked = check_study(written(tmp_path, text), silent)

    assert checked["holds"]
    assert len(checked["expectations"]) == 2


# Arithmetic


@pytest.mark.parametrize(
    "text", ["min(1/(batch-1), 5)", "1/(1/(batch-1))", "(batch-2)**0 + 0/(batch-1)"]
)
def test_arithmetic_is_the_same_in_grids_of_any_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """What is no number stays none, with numbers as with arrays."""
    study = BASE + f"grid: {{batch: '1:3'}}\nmeasure: [time_s]\nderive: {{x: '{text}'}}\n"
    ready = ready_of(tmp_path, study)
    small = [row["x"] for row in all_rows(ready)]
    monkeypatch.setattr(STUDY, "FEW_POINTS", 1)

    assert [row["x"] for row in all_rows(ready)] == small
    assert small[0] is None


SAFE = st.recursive(
    st.sampled_from(["a", "b", "c.d", "2", "0.5", "1e3"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("+-*/"), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
        st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(
            lambda t: f"{t[0]}({t[1]}, {t[2]})"
        ),
        inner.map(lambda x: f"-({x})"),
        inner.map(lambda x: f"sqrt(abs({x}))"),
    ),
    max_leaves=8,
)


@given(SAFE, st.floats(0.1, 10), st.floats(-5, 5), st.floats(0.5, 2))
@settings(max_examples=150, deadline=None, derandomize=True)
def test_arithmetic_is_that_of_python(text: str, a: float, b: float, d: float) -> None:
    """An expression has the value that Python gives the same text; arrays give it element-wise."""
    import math

    import numpy as np

    class Inner:
        pass

    c = Inner()
    c.d = d  # pyright: ignore[reportAttributeAccessIssue]
    expression = parse(text, "here")
    values = {"a": a, "b": b, "c.d": d}
    try:
        # The text is made above, of nothing but arithmetic.
        expected = eval(text, {"a": a, "b": b, "c": c, "sqrt": math.sqrt})
    except ZeroDivisionError:
        assert expression.value(values) is None
        return
    found = expression.value(values)
    assert found == pytest.approx(expected, rel=1e-12, abs=1e-300)
    arrays = {name: np.array([value, value]) for name, value in values.items()}
    with np.errstate(all="ignore"):
        assert np.broadcast_to(expression.value(arrays), 2) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    "text",
    ["__import__('os').system('id')", "a.__class__", "(1).real", "[a]", "a if b else 2", "a; b",
     "lambda: 1", "a[0]", "f'{a}'", "a == b", "print(a)", "max(*a)", "min(a)", "sqrt(a, b)",
     "abs(x=a)", "'a'", "True", "1j", "a @ b", "a // b", "a\n+b", "", "ä + 1", "(" * 300,
     "x" * 400, "-" * 60 + "a", "a := 3", "open('/etc/passwd')", "await a", "a.b()", "1 2"],
)  # fmt: skip
def test_only_arithmetic_is_read(tmp_path: Path, text: str) -> None:
    """Everything that is not arithmetic over columns is refused where it stands."""
    study = BASE + f"measure: [time_s, memory_bytes]\nderive:\n  x: {json.dumps(text)}\n"
    with pytest.raises(RooflmError) as refused:
        ready_of(tmp_path, study)

    assert refused.value.where.endswith("s.yaml:4:3")


def test_what_cannot_be_worked_out_is_nothing(tmp_path: Path) -> None:
    """A division by zero, a root of less than nothing, a number beyond all: no value, no crash."""
    text = BASE + "measure: [time_s, batch]\nderive: {a: time_s/0, b: (time_s - 8)**0.5, "
    text += "c: (time_s + 10)**10**3, d: 'sqrt(-time_s)', e: a + 1}\n"
    row = all_rows(ready_of(tmp_path, text))[0]

    assert [row[k] for k in "abcde"] == [None] * 5
    assert set(FUNCTIONS) == {"min", "max", "abs", "sqrt", "log2", "log10"}


# Expectations


@pytest.mark.parametrize(
    ("quantity", "text", "low", "high"),
    [
        ("time_s", "23.80ms ± 0.01ms", 0.02379, 0.02381),
        ("time_s", "23.8 +- 0.2 ms", 0.0236, 0.024),
        ("time_s", "20ms ± 10%", 0.018, 0.022),
        ("memory_bytes", "79.7GB ± 0.1GB", 79.6e9, 79.8e9),
        ("memory_bytes", "1GiB..2GiB", 2**30, 2**31),
        ("tokens_per_s", "2,689 ± 1", 2688, 2690),
        ("tokens_per_s", "1..2k", 1000, 2000),
        ("share", "40%..60%", 0.4, 0.6),
        ("batch", 64, 64 - 64e-9, 64 + 64e-9),
        ("speedup", ">= 1.5", 1.5, None),
        ("margin_bytes", "-1GB..0GB", -1e9, 0),
    ],
)
def test_expectations_are_read_with_units(
    quantity: str, text: Any, low: float, high: float | None
) -> None:
    """A tolerance, a range or a bound is read in the units of the quantity's key."""
    wanted = parse_wanted(quantity, text, "here")

    assert wanted.low == pytest.approx(low, rel=1e-9)
    assert wanted.high == (None if high is None else pytest.approx(high, rel=1e-9, abs=1e-12))


@pytest.mark.parametrize(
    ("wanted", "right", "wrong"),
    [("< 3", [2.99, -1], [3, None, "x", True]), ("<= 3", [3], [3.1]), (False, [False], [0, True]),
     ("memory", ["memory"], ["compute", None]), (None, [None], [0, False]),
     ("1..2", [1, 1.5, 2], [0.999, 2.001]), (5, [5, 5.0], [5.1])],
)  # fmt: skip
def test_expectations_hold_or_not(wanted: Any, right: list[Any], wrong: list[Any]) -> None:
    """Each kind of expectation holds for what it says, and for nothing else."""
    found = parse_wanted("speedup", wanted, "here")

    assert [found.holds(v) for v in right] == [True] * len(right)
    assert [found.holds(v) for v in wrong] == [False] * len(wrong)


# What is refused

WRONG = {
    "bas: {}": ("1:1", "unknown key 'bas'"),
    BASE + "grid: {batchs: [1]}": ("2:8", "Did you mean batch?"),
    BASE + "variants: {a: base, b: {kw: fp8}}": ("2:25", "unknown key 'kw'"),
    BASE + "variants:\n  a: base\n  b: {}": ("4:3", "the variant 'b' changes nothing"),
    BASE + "variants:\n  a: base\n  b:\n    set: {K: 40}": ("4:3", "it is 'a' in other words"),
    BASE + "variants: {a: base, b: {kv: fp8}, c: {kv: fp8}}": ("2:35", "is the same as 'b'"),
    BASE + "variants: {a: base, b: {batch: 8}}\ngrid: {batch: [1]}": ("2:25", "is an axis"),
    BASE + "variants: {a: base, b: {kv: fp9}}": ("2:25", "Did you mean fp8?"),
    BASE + "measure: [time_s]\nexpect: [{tokens_per_s: 3}]": ("3:11", "is not measured"),
    BASE + "expect: [{at: {batch: 3}, fits: true}]": ("2:27", "no row has batch 3"),
    BASE + "expect: [{at: {size: 3}, fits: true}]": ("2:26", "not told by 'size'"),
    BASE + "expect: [{time_s: 3GB}]": ("2:11", "'GB' is no unit of time_s"),
    BASE + "expect: [{time_s: '<= 30'}]": ("2:11", "30 has no unit of time_s"),
    BASE + "expect: [{memory_bytes: 1..300}]": ("2:11", "1 has no unit of memory_bytes"),
    BASE + "expect: [{fits: yes}]": ("2:11", "Write true or false"),
    BASE + "expect: [{fits: '> 3'}]": ("2:11", "'fits' is true or false"),
    BASE + "expect: [{time_s: memory}]": ("2:11", "'time_s' is a number"),
    BASE + "expect: [{regime: 3}]": ("2:11", "'regime' is a word"),
    BASE + "figures: [{kind: sweep, latency_s: 30}]": ("2:25", "a time has a unit"),
    BASE + "figures: [{kind: lines, x: batch, y: tokens}]": ("2:35", "'tokens' is not measured"),
    BASE + "expect: [{time_s: 3ms ± 1GB}]": ("2:11", "no unit"),
    BASE + "expect: [{time_s: '~3'}]": ("2:11", "is no expectation"),
    BASE + "expect: [{at: {batch: 1}}]": ("2:10", "has a quantity"),
    BASE + "expect: [{order: {time_s: base > x}}]": ("2:19", "no variant 'x'"),
    BASE + "expect: [{order: {time_s: base}}]": ("2:19", "is no order"),
    BASE + "grid:\n  batch: 1:100000\n  context: 1:10000": ("2:1", "1,000,000,000 points"),
    BASE + "grid:\n  batch: 1:1000000000": ("3:3", "more than 1,000,000 values"),
    BASE + "grid: {batch: [1, 2, 1]}": ("2:8", "has 1 twice"),
    BASE + "grid: {batch: []}": ("2:8", "has no values"),
    BASE + "grid: {batch: [1], context: [1, 2], zip: [batch, context]}": ("2:37", "equal length"),
    BASE + "grid: {zip: [batch]}": ("2:8", "no axis 'batch'"),
    BASE + "grid: {batch: [1, [2, 4]]}": ("2:19", "one list of values"),
    BASE.replace("}", ", batch: '1,64'}"): ("1:42", "write them under grid"),
    BASE.replace("}", ", context: '1k:8k:x2'}"): ("1:42", "write them under grid"),
    BASE + "variants: {a: base, b: {context: 1k}, c: {context: 1000}}": ("2:39", "in other words"),
    BASE + "grid: {kv: [bf16, fp9]}": ("2:8", "Did you mean fp8?"),
    BASE + "grid: {set.K: [8, 7]}": ("2:8", "K"),
    BASE + "expect: [{order: {time_s: base >= base}}]": ("2:19", "is no order"),
    BASE + "expect: [{at: {batch: true}, fits: true}]": ("2:30", "no row has batch True"),
    BASE + "expect: [{time_s: '< 1e999s'}]": ("2:11", "beyond all"),
    BASE + "expect: [{time_s: 5ms ± -1%}]": ("2:11", "negative tolerance"),
    BASE + "grid: {batch: [1, 64], context: [1k, 4k], zip: [batch, context]}\n"
    "expect: [{at: {batch: 1, context_tokens: 4k}, fits: true}]": ("3:47", "no row is meant"),
    BASE + "derive: {'a b': time_s}": ("2:10", "cannot be the name of a column"),
    BASE + "derive: {q: reason}": ("2:10", "no column 'reason'"),
    BASE + "figures: [{kind: lines, log: 5}]": ("2:25", "is not a text"),
    "extends: \"a\\0b\"": ("1:1", "there is no file"),
    BASE + "grid: {set: [1]}": ("2:8", "Write set.K"),
    BASE + "measure: [time_s, max_sequence]": ("2:19", "Did you mean max_sequences?"),
    BASE + "measure: [time_s, time_s]": ("2:19", "twice"),
    BASE + "measure: [time_s]\nderive: {x: tyme_s * 2}": ("3:10", "Did you mean time_s"),
    BASE + "derive: {x: regime * 2}": ("2:10", "holds words"),
    BASE + "derive: {batch: time_s * 2}": ("2:10", "is a column already"),
    BASE + "derive: {time_s: time_s * 2}": ("2:10", "is a column already"),
    BASE + "facts: {q: {values: {base: 1}}}": ("2:9", "has no source"),
    BASE + "facts: {q: {source: x, values: {b: 1}}}": ("2:33", "Known: base"),
    BASE + "facts: {q: {source: x, values: {base: high}}}": ("2:33", "is no figure"),
    BASE + "tolerance: {x: 0.1}": ("2:13", "'x' is not measured"),
    BASE + "tolerance: {time_s: 2}": ("2:13", "from 0 to 1"),
    BASE + "figures: [{kind: pie}]": ("2:12", "unknown value 'pie'"),
    BASE + "figures: [{kind: lines, z: 1}]": ("2:25", "unknown key 'z'"),
    BASE + "figures: [{kind: lines, name: ../x}]": ("2:25", "name of a file"),
    BASE + "figures: [{kind: lines}, {kind: lines}]": ("2:26", "Say name:"),
    BASE + "base: {}": ("2:1", "stands twice"),
    "base: {model: llama-2-13, on: h100-sxm}": ("1:8", "llama-2-13b"),
    "base: {on: h100-sxm}": ("1:1", "no model is named"),
    "base: {model: llama-2-13b}": ("1:1", "no machine is named"),
    BASE + "command: quantize": ("2:1", "Run rooflm quantize"),
    BASE + "command: show": ("2:1", "Known: sweep, speculate, serve or fit"),
    BASE + "measure: [bits]": ("2:11", "rooflm quantize answers it"),
    BASE + "measure: [plan.devices]": ("2:11", "rooflm plan answers it"),
    BASE + "measure: [time_s]\nderive: {x: 9**9**9}": ("3:10", "'9**9**9' is no number"),
    BASE + "measure: [time_s]\nderive: {x: time_s * (1 / 0)}": ("3:10", "'1 / 0' is no number"),
    "command: fit\nbase: {model: llama-3-8b, on: h100-sxm, engine: vllm}\n"
    "grid: {max_len: [1k, 2k]}\nvariants: {a: base, b: {utilization: 0.92, block: 16}}": (
        "4:21", "it is 'a' in other words"
    ),
    "command: serve\nbase: {model: llama-3-8b, on: h100-sxm, rate: 1, requests: 2}\n"
    "variants: {a: base, b: {block: 16, seed: 0, max_batched_tokens: 2Ki, prompt: 512}}": (
        "3:21", "it is 'a' in other words"
    ),
    "command: serve\nbase: {model: llama-3-8b, on: h100-sxm, rate: 1, requests: 2}\n"
    "variants: {a: base, b: {max_sequences: 256, burstiness: 1.0, watermark: 0}}": (
        "3:21", "it is 'a' in other words"
    ),
    "command: serve\nbase: {model: llama-3-8b, on: h100-sxm, clients: 2}\n"
    "variants: {a: base, b: {rounds: 5, think: 0, stagger: 0}}": (
        "3:21", "it is 'a' in other words"
    ),
    # nvidia-smi reports 81,559 MiB of an H100 SXM.
    BASE + "variants: {a: base, b: {capacity: 81559MiB}}": ("2:21", "it is 'a' in other words"),
    BASE + "variants: {a: base, b: {power: 500, pue: 1.2}}": ("2:21", "it is 'a' in other words"),
    # 700 W is the cap of an H100 SXM's board, by its datasheet.
    "base: {model: llama-2-13b, on: h100-sxm}\nmeasure: [joules_per_token]\n"
    "variants: {a: base, b: {power: 700, pue: 1, utilization: 100%}}": (
        "3:21", "it is 'a' in other words"
    ),
    BASE + "variants: {a: base, b: {engine: TRT-LLM, hardware_scale: bandwidth=1}}": (
        "2:21", "it is 'a' in other words"
    ),
    "command: speculate\nbase: {model: llama-3-70b, on: 4xh100-sxm, draft: llama-3-8b,"
    " acceptance: 0.8}\nvariants: {a: base, b: {draft_weights: bf16, chains: 1, draft_tp: 4}}": (
        "3:21", "it is 'a' in other words"
    ),
    BASE + "measure: [engine.tokens]": ("2:11", "Say command: fit"),
    BASE + "measure: [elasticity]": ("2:11", "answer by themselves"),
    "base: [1]": ("1:1", "is a mapping"),
    "base: {model: [a, b], on: h100-sxm}": ("1:8", "takes one value here"),
    "extends: nowhere.yaml": ("1:1", "there is no file"),
    "base: {model: llama-2-13b, on: h100-sxm, phase: prefill}\ngrid: {context: [1]}": (
        "2:8", "a prefill has no context",
    ),
    "base: &a {model: llama-2-13b}\ngrid: *a": ("1:7", "aliases"),
    BASE + "measure: [time_s]\nderive: {batch: time_s * 2}\ngrid: {batch: [1]}": (
        "3:10", "is a column already"
    ),
    BASE.replace("}", ", cost: 3}"): ("1:42", "'cost' is true or false"),
    BASE.replace("}", ", kv: {a: 1}}"): ("1:42", "a single value is needed here"),
    BASE + "variants: {" + ", ".join(f"a{n}: base" for n in range(1001)) + "}": (
        "2:1", "1,001 variants are more than"
    ),
    BASE + "grid: {utilization: ['1:0:1']}": ("2:22", "is no range of up to 10^6 values"),
    BASE + "grid: {utilization: ['1.2.3:1:1']}": ("2:22", "is not a range"),
    BASE + "grid: {batch: [1], zip: batch}": ("2:20", "'zip' is a list of axes"),
    BASE + "grid: {batch: [1, 2], context: [1, 2], kv: [fp8, bf16], "
    "zip: [[batch, context], [context, kv]]}": (
        "2:57", "an axis goes with one group of others"
    ),
    BASE + "expect: {fits: true}": ("2:1", "'expect' is a list"),
}  # fmt: skip


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_study_is_refused_where_it_is_wrong(
    rooflm: Terminal, tmp_path: Path, text: str
) -> None:
    """Every mistake is one sentence with file, line and column, and exit code 2."""
    place, said = WRONG[text]
    path = written(tmp_path, text + "\n")
    ran = rooflm("study", path)

    assert ran.code == Exit.USAGE
    assert ran.out == ""
    assert f"({path}:{place})" in ran.err
    assert said in " ".join(ran.err.split())
    assert ran.err.count("\n") == 1


def test_a_ring_of_studies_is_refused(rooflm: Terminal, tmp_path: Path) -> None:
    """A study that extends itself, by whatever way, is refused with the ring."""
    written(tmp_path, "title: b\nextends: c.yaml\n", "b.yaml")
    written(tmp_path, "extends: a.yaml\n", "c.yaml")
    ran = rooflm("study", written(tmp_path, "extends: b.yaml\n", "a.yaml"))

    assert ran.code == Exit.USAGE
    assert "a.yaml -> b.yaml -> c.yaml -> a.yaml" in ran.err
    assert "c.yaml:1:1" in ran.err


# Guarding numbers

MINE = "mine:\n  dims: {D: 1024, F: 4096, N: 8, K: 8, H: 128, L: 4, V: 1000}\n"
GUARDED = (
    "base: {model: mine, models: mine.yaml, on: h100-sxm, basis: bound}\n"
    "grid: {batch: [1, 4]}\nmeasure: [weights_bytes, bound_s, regime]\n"
)


def test_check_tells_what_moved_and_why(rooflm: Terminal, tmp_path: Path) -> None:
    """A changed dimension moves numbers: told with the share, the input, and exit code 1."""
    (tmp_path / "mine.yaml").write_text(MINE, "utf-8")
    path = written(tmp_path, GUARDED)
    assert rooflm("study", path, "--freeze").code == Exit.DONE
    assert rooflm("study", path, "--check").code == Exit.DONE
    (tmp_path / "mine.yaml").write_text(MINE.replace("F: 4096", "F: 8192"), "utf-8")
    ran = rooflm("study", path, "--check", "--format", "json")

    (checked,) = ran.json["studies"]
    assert ran.code == Exit.NO
    assert not ran.json["holds"]
    assert checked["inputs"] == [
        {"input": "model mine of base: groups.0.ffn.F", "was": 4096, "now": 8192}
    ]
    weights = next(m for m in checked["moved"] if m["quantity"] == "weights_bytes")
    # 3 D F more parameters in each of four layers, two bytes each.
    assert weights["now"] - weights["was"] == 4 * 3 * 1024 * 4096 * 2
    assert weights["change"] == weights["now"] / weights["was"] - 1
    table = rooflm("study", path, "--check")
    assert table.code == Exit.NO
    assert "groups.0.ffn.F" in table.out
    assert "4096" in table.out


def test_tolerance_lets_a_quantity_move(rooflm: Terminal, tmp_path: Path) -> None:
    """A relative tolerance of a quantity is granted to it alone."""
    (tmp_path / "mine.yaml").write_text(MINE, "utf-8")
    path = written(tmp_path, GUARDED + "tolerance: {weights_bytes: 0.9, bound_s: 0.9}\n")
    rooflm("study", path, "--freeze")
    (tmp_path / "mine.yaml").write_text(MINE.replace("F: 4096", "F: 5120"), "utf-8")

    assert rooflm("study", path, "--check").code == Exit.DONE
    (tmp_path / "mine.yaml").write_text(MINE.replace("F: 4096", "F: 81920"), "utf-8")
    assert rooflm("study", path, "--check").code == Exit.NO


def test_rows_and_columns_that_come_and_go_are_told(rooflm: Terminal, tmp_path: Path) -> None:
    """A point or a quantity that is new or gone since freezing is a difference."""
    (tmp_path / "mine.yaml").write_text(MINE, "utf-8")
    path = written(tmp_path, GUARDED)
    rooflm("study", path, "--freeze")
    changed = GUARDED.replace("[1, 4]", "[1, 8]").replace(", regime", "")
    written(tmp_path, changed)
    (checked,) = rooflm("study", path, "--check", "--format", "json").json["studies"]

    assert [(m["quantity"], m["at"].get("batch"), m["now"]) for m in checked["moved"]] == [
        ("row", 8, "new"), ("row", 4, None), ("regime", None, None),
    ]  # fmt: skip


def test_what_is_expected_and_does_not_hold_exits_1(rooflm: Terminal, tmp_path: Path) -> None:
    """A wrong expectation is told with what was found and by how much it is off; JUnit has it."""
    path = written(tmp_path, BASE + "expect:\n  - time_s: 1ms ± 0.1ms\n  - fits: true\n")
    xml = tmp_path / "out.xml"
    ran = rooflm("study", path, "--check", "--junit", str(xml), "--format", "json")
    (checked,) = ran.json["studies"]
    suite = ET.parse(xml).getroot().find("testsuite")

    assert ran.code == Exit.NO
    wrong, right = checked["expectations"]
    assert not wrong["holds"]
    assert right["holds"]
    assert wrong["off"] == pytest.approx(wrong["value"] / 1.1e-3 - 1)
    assert suite is not None
    assert suite.attrib["tests"] == "2"
    assert suite.attrib["failures"] == "1"
    assert len(suite.findall("testcase")) == 2
    assert len(suite.findall("testcase/failure")) == 1


def test_a_broken_study_leaves_the_others_checked(rooflm: Terminal, tmp_path: Path) -> None:
    """Of several files those that can be read are checked; the exit code tells of the broken."""
    good = written(tmp_path, BASE + "expect: [{fits: true}]\n", "good.yaml")
    ran = rooflm("study", good, written(tmp_path, "bas: {}\n", "bad.yaml"), "--check")

    assert ran.code == Exit.USAGE
    assert "expected: 1 of 1 hold" in ran.out
    assert "unknown key 'bas'" in ran.err


def test_a_study_is_not_written_over(rooflm: Terminal, tmp_path: Path) -> None:
    """Neither rows, nor JUnit, nor a page take the place of the study that they are of."""
    path = written(tmp_path, BASE + "expect: [{fits: true}]\n")
    for words in (["study", path, "--output", path], ["report", path, "-o", path],
                  ["study", path, "--check", "--junit", path]):  # fmt: skip
        ran = rooflm(*words)
        assert ran.code == Exit.USAGE
        assert "this is the study itself" in ran.err
    assert Path(path).read_text("utf-8").startswith("base:")


def test_two_runs_do_not_write_the_same_rows(tmp_path: Path) -> None:
    """A run that finds another one writing its file leaves it alone."""
    import fcntl

    ready = ready_of(tmp_path, STREAM)
    path = tmp_path / "rows.csv"
    with study_stream.part_of(ready, str(path)).open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(RooflmError, match="another run is writing"):
            write_csv(ready, str(path), False, silent)


def test_nothing_to_check_is_refused(rooflm: Terminal, tmp_path: Path) -> None:
    """Checking what neither expects nor was frozen is a mistake, and no success."""
    path = written(tmp_path, BASE)
    ran = rooflm("study", path, "--check")
    assert ran.code == Exit.USAGE
    assert "nothing to check" in ran.err
    frozen_path(path).write_text('{"schema": "x"}', "utf-8")
    assert "no file of frozen numbers" in rooflm("study", path, "--check").err


# Many points


STREAM = BASE + (
    "variants: {a: base, b: {kv: fp8}}\ngrid: {gpu_share: ['50%', '80%'], context: [64, 128], "
    "batch: '1:4'}\nmeasure: [memory_bytes, fits, bound_s, regime]\n"
    "derive: {x: bound_s / a.bound_s}\n"
)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks of three points, so that a study has many."""
    monkeypatch.setattr(STUDY, "BLOCK_POINTS", 3)


@pytest.mark.usefixtures("small_blocks")
def test_csv_holds_the_rows(tmp_path: Path) -> None:
    """What is written block by block is what is held at once, in the same order."""
    ready = ready_of(tmp_path, STREAM)
    path = tmp_path / "rows.csv"
    count = write_csv(ready, str(path), False, silent)
    with path.open(newline="") as file:
        found = list(csv.DictReader(file))
    rows = [{k: row[k] for k in ready.columns} for row in all_rows(ready)]

    assert count == len(found) == len(rows) == 32
    assert list(found[0]) == list(ready.columns)
    for text, row in zip(found, rows, strict=True):
        for key, value in row.items():
            shown = {True: "true", False: "false", None: ""}.get(value) if not _number(value) else 0
            assert text[key] == (shown or str(value)), key


class Stop:
    """Blocks of a study that are interrupted after some of them."""

    def __init__(self, after: int) -> None:
        self.after = after

    def __call__(self, ready: Ready, every: bool = False) -> Iterator[Any]:
        """List the blocks, one of which is interrupted."""
        for i, (points, work) in enumerate(blocks(ready, every)):
            yield points, self.interrupt if i == self.after else work

    def interrupt(self) -> Mapping[str, Any]:
        """Press Ctrl-C."""
        raise KeyboardInterrupt


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("after", [0, 1, 5, 10])
def test_an_interrupted_study_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Ctrl-C keeps finished rows and says how to go on; then the file is as if nothing had been."""
    ready = ready_of(tmp_path, STREAM)
    whole, path = tmp_path / "whole.csv", tmp_path / "rows.csv"
    write_csv(ready, str(whole), False, silent)
    with monkeypatch.context() as patched:
        patched.setattr(study_stream, "blocks", Stop(after))
        with pytest.raises(RooflmError) as stopped:
            write_csv(ready, str(path), False, silent)

    assert stopped.value.code == Exit.INTERRUPTED
    assert "--resume" in str(stopped.value)
    assert "of 32 rows are kept" in str(stopped.value)
    assert not path.exists()
    (part,) = tmp_path.glob("rows.csv.*.part")
    kept = part.read_text("utf-8")
    assert whole.read_text("utf-8").startswith(kept)
    assert kept.count("\n") < 33
    # A row that was cut off in the middle is written again.
    part.write_text(kept + "b,80%,12", "utf-8")
    write_csv(ready, str(path), True, silent)
    assert path.read_bytes() == whole.read_bytes()
    assert not list(tmp_path.glob("*.part"))


@pytest.mark.usefixtures("small_blocks")
def test_another_study_is_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that are kept are neither thrown away nor gone on with once the study has changed."""
    ready = ready_of(tmp_path, STREAM)
    with monkeypatch.context() as patched:
        patched.setattr(study_stream, "blocks", Stop(3))
        with pytest.raises(RooflmError):
            write_csv(ready, str(tmp_path / "rows.csv"), False, silent)
    (part,) = tmp_path.glob("rows.csv.*.part")
    kept = part.read_text("utf-8")
    with pytest.raises(RooflmError, match="rows of a run that was interrupted are kept") as refused:
        write_csv(ready, str(tmp_path / "rows.csv"), False, silent)
    assert "--resume, or delete that file" in str(refused.value)
    assert part.read_text("utf-8") == kept
    other = ready_of(tmp_path, STREAM.replace("128", "256"))
    with pytest.raises(RooflmError, match="nothing of this study as it is now is kept"):
        write_csv(other, str(tmp_path / "rows.csv"), True, silent)


@pytest.mark.usefixtures("small_blocks")
def test_an_interrupted_table_shows_what_is_finished(
    rooflm: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that is interrupted shows the rows that were finished, and exits with 130."""
    monkeypatch.setattr(study_answer, "blocks", Stop(2))
    ran = rooflm("study", written(tmp_path, STREAM), "--format", "json")

    assert ran.code == Exit.INTERRUPTED
    assert "of 32 rows were finished" in ran.err
    assert 0 < len(ran.json["rows"]) < 32


@pytest.mark.usefixtures("small_blocks")
def test_parquet_holds_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that is not ours finds the same figures; an interrupt leaves a readable file."""
    pq: Any = importlib.import_module("pyarrow.parquet")
    ready = ready_of(tmp_path, STREAM)
    path = tmp_path / "rows.parquet"
    write_parquet(ready, str(path), silent)
    found: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    rows = [{k: row[k] for k in ready.columns} for row in all_rows(ready)]
    assert found == rows
    monkeypatch.setattr(study_stream, "blocks", Stop(4))
    with pytest.raises(RooflmError, match=r"are kept in .*\.parquet\.\w+\.part"):
        write_parquet(ready, str(path), silent)
    (part,) = tmp_path.glob("rows.parquet.*.part")
    kept: list[dict[str, Any]] = pq.read_table(part).to_pylist()
    assert kept == rows[: len(kept)]
    assert 0 < len(kept) < len(rows)


def test_many_rows_are_written_and_not_shown(rooflm: Terminal, tmp_path: Path) -> None:
    """More rows than can be held are refused for tables with the way out, and written as CSV."""
    text = "base: {model: llama-3-8b, on: h100-sxm}\ngrid: {batch: '1:400', context: '1:300'}\n"
    path = written(tmp_path, text + "measure: [bound_s]\n")
    ran = rooflm("study", path)
    assert ran.code == Exit.USAGE
    assert "--output rows.csv" in ran.err
    out = tmp_path / "rows.csv"
    assert rooflm("study", path, "--output", str(out)).code == Exit.DONE
    assert out.read_bytes().count(b"\n") == 400 * 300 + 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--junit", "x.xml"], "Say --check as well"),
        (["--check", "--figures", "x"], "a check only checks"),
        (["--format", "csv", "--chart"], "figures are drawn of rows"),
        (["--resume"], "only CSV is gone on with"),
        (["--format", "csv", "--resume"], "stdout cannot be gone on with"),
        (["--figures", "x"], "the study has no figures"),
        (["--output", "no/such/rows.csv"], "cannot write the output"),
        (["--output", "no/such/rows.parquet"], "cannot write the output"),
    ],
)
def test_options_that_do_not_go_together(
    rooflm: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], said: str
) -> None:
    """An option that would be ignored is refused, and so is a file that cannot be written."""
    monkeypatch.chdir(tmp_path)
    ran = rooflm("study", written(tmp_path, BASE), *words)

    assert ran.code == Exit.USAGE
    assert said in ran.err


def test_blocks_cover_the_points(tmp_path: Path) -> None:
    """Blocks tell their points before they are worked out, and hold as many."""
    ready = ready_of(tmp_path, STREAM)

    for points, work in blocks(ready):
        assert len(to_rows(work())) == points
    assert sum(points for points, _ in blocks(ready)) == ready.points == 32
    own = "variants: {a: {context: 512}, b: {context: 1k}, c: {context: 2k}}\nmeasure: [time_s]\n"
    apart = ready_of(tmp_path, BASE + own)
    assert [points for points, _ in blocks(apart)] == [1, 1, 1]
    assert apart.points == len(all_rows(apart)) == 3


def test_figures_of_a_study_are_written_under_their_names(rooflm: Terminal, tmp_path: Path) -> None:
    """One file for each entry of `figures`, none for anything else; a wrong place is named."""
    text = (
        f"title: t\n{BASE}grid: {{batch: [1, 8]}}\nmeasure: [time_s]\n"
        "figures:\n- {kind: roofline, name: roofs}\n- {kind: tornado, name: wind}\n"
    )
    path = tmp_path / "s.yaml"
    path.write_text(text)

    ran = rooflm("study", str(path), "--figures", str(tmp_path / "out"))

    assert ran.code == Exit.USAGE
    assert "2 rows are meant; sensitivities are those of one" in ran.err
    path.write_text(text.replace("wind}", "wind, at: {batch: 8}}"))
    assert rooflm("study", str(path), "--figures", str(tmp_path / "out")).code == Exit.DONE
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"roofs.svg", "wind.svg"}


def test_a_range_of_shares_is_an_axis(rooflm: Terminal, tmp_path: Path) -> None:
    """0.2:0.6:0.2 are three values; a token costs in proportion to the time that is paid for."""
    text = "base: {model: llama-2-13b, on: h100-sxm, cost: true}\n"
    text += "grid: {utilization: ['0.2:0.6:0.2']}\nmeasure: [output_usd_per_mtok]\n"
    rows = rooflm.json("study", written(tmp_path, text))["rows"]

    assert [row["utilization"] for row in rows] == pytest.approx([0.2, 0.4, 0.6])
    paid = [row["output_usd_per_mtok"] * row["utilization"] for row in rows]
    assert paid == pytest.approx([paid[0]] * 3)


def test_a_study_is_a_mapping(rooflm: Terminal, tmp_path: Path) -> None:
    """A list is refused with the keys that a study has."""
    ran = rooflm("study", written(tmp_path, "- 1\n"))

    assert ran.code == Exit.USAGE
    assert "a study is a mapping of keys" in ran.err
    assert "variants, grid, measure" in ran.err
