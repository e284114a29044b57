"""Runs on this CPU: what is measured, compared, kept and refused. Wiring, not speed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from rooflm.calc.errors import RooflmError
from rooflm.calc.hardware import Machine
from rooflm.calc.presets import HARDWARE_FILE, find_machine, preset_names
from rooflm.plots.validation import draw
from rooflm.validate import ceilings, judge, measured, report, tables
from rooflm.validate import run as running
from rooflm.validate.device import (
    PRESETS,
    cache_bytes,
    memory_total,
    quickest,
    timed,
    timing,
)
from rooflm.validate.plan import Plan, Wanted, planned
from rooflm.validate.run import validate

from .helpers import Terminal
from .little import MATRICES

CPU = torch.device("cpu")
KEPT = Path(judge.__file__).parent / "results/epyc-2-cores.json"
KEPT_RUN = json.loads(KEPT.read_text("utf-8"))
"""The run that the documents quote."""
HERE = Path(__file__).parent
TINY = {"D": "64", "F": "128", "N": "4", "K": "2", "H": "16", "V": "256", "L": "2"}
"""Dimensions of a model that runs in a moment."""
SETS = tuple(TINY.items())
ON_TINY = [word for key, value in SETS for word in ("--set", f"{key}={value}")]
MEASURE = [sys.executable, "-m", "rooflm.validate"]
LITTLE = f"import sys; sys.path.append({str(HERE)!r}); from little import lessen; lessen()\n"
"""Makes a process measure little data."""
RUN = (
    "import sys, runpy; sys.argv[0] = 'rooflm.validate'\n"
    "runpy.run_module('rooflm.validate', run_name='__main__')\n"
)
QUICK = ["--quick", "--budget", "60s", "--quiet"]


@pytest.fixture(scope="module", autouse=True)
def measured_once() -> Iterator[None]:
    """Measure the ceilings of this process once; `test_ceilings_are_plausible` measures its own."""
    patch = pytest.MonkeyPatch()
    for change in MATRICES:
        patch.setattr(*change)
    patch.setattr(running, "measure_ceilings", cache(running.measure_ceilings))
    yield
    patch.undo()


@pytest.fixture(scope="module")
def run() -> dict[str, Any]:
    """A run of four batches and two contexts of a tiny model."""
    return validate(
        Plan(
            ["llama-3-8b"], batches=(1, 2, 4, 8), contexts=(16, 32), changes=SETS, runs=3,
            quick=True, phases=("decode", "prefill"), date="2026-01-01", quiet=True,
        )
    )  # fmt: skip


def test_a_row_holds_what_was_predicted_and_what_was_measured(run: dict[str, Any]) -> None:
    """The keys of the contract, the bytes of the ledger, and the parts of each step."""
    assert run["schema"] == "rooflm.validate/1"
    assert run["model"] == ["llama-3-8b"]
    assert len(run["rows"]) == 16
    for row in run["rows"]:
        assert row["excluded"] is None
        assert row["floor_s"] <= row["bound_s"] * (1 + 1e-12)
        assert row["bound_error"] == pytest.approx(row["bound_s"] / row["measured_s"] - 1)
        assert row["measured_low_s"] <= row["measured_s"] <= row["measured_high_s"]
        assert row["estimate_s"] is None
        assert row["error"] is None
        assert row["allocated_weights_bytes"] == row["weights_bytes"]
        assert row["allocated_cache_bytes"] == row["kv_cache_bytes"]
        bounds = [p["ceiling_bound_s"] for p in row["parts"]]
        assert sum(bounds) == pytest.approx(row["ceiling_bound_s"], rel=1e-9)
        assert {p["part"] for p in row["parts"]} >= {"attention", "mlp", "head"}
        if row["phase"] == "prefill":
            assert row["ttft_s"] == row["measured_s"]
    assert run["summary"]["weights_differ_bytes"] == run["summary"]["cache_differs_bytes"] == 0
    assert all(check["agrees"] for check in run["checks"])
    json.dumps(run, allow_nan=False)


def test_each_half_is_predicted_from_the_other(run: dict[str, Any]) -> None:
    """Every decode step has an estimate that its own time did not make; prefills have none."""
    steps = [r for r in run["rows"] if r["phase"] == "decode"]
    for row in run["rows"]:
        assert (row["calibrated_s"] is None) == (row["phase"] == "prefill")
    white, black = judge.halves(steps)

    assert len(white) == len(black) == 4
    assert not set(white) & set(black)
    for half in (white, black):
        assert {steps[i]["batch"] for i in half} == {1, 2, 4, 8}
        assert {steps[i]["context_tokens"] for i in half} == {16, 32}


def test_constants_that_made_the_times_are_found_again() -> None:
    """Times made with known constants, in both halves: the other half is met within a per cent."""
    from rooflm.calc.calibrate import Point, base_constants, estimated_steps, with_values
    from rooflm.calc.case import Case
    from rooflm.calc.presets import find_model

    machine = Machine("made", "made", "cpu", 30e9, flops={"bf16": 400e9, "fp32": 200e9})
    case = Case(find_model("tinyllama-1.1b"), machine)
    base = base_constants(case)
    truth = {"memory": 0.8, "attention": 0.4, "serial": 0.6}
    places = [Point(B, S, 1.0) for B in range(1, 9) for S in (512, 1024, 2048)]
    made = estimated_steps(case, places, with_values(base, truth))
    rows: list[dict[str, Any]] = [
        {
            "model": "tinyllama-1.1b", "asked": "tiny", "weights": "bf16", "kv": "bf16",
            "phase": "decode",
            "batch": p.batch, "context_tokens": p.context, "layers": 22, "cut_from_layers": None,
            "measured_s": float(s), "measured_high_s": float(s), "excluded": None,
            "read_bytes_per_s": 30e9, "read_spread": 0.0, "error": None, "bound_error": None,
            "ceiling_error": None, "ceiling_bound_s": None, "calibrated_error": None,
            "read_share": 0.5, "peak_bytes": None, "allocated_weights_bytes": 0,
            "weights_bytes": 0, "allocated_cache_bytes": 0, "kv_cache_bytes": 0,
        }
        for p, s in zip(places, made, strict=True)
    ]  # fmt: skip
    answer: dict[str, Any] = {
        "rows": rows, "preset": None, "hardware": "made", "ranks": 1, "ceilings": {},
        "checks": [],
    }  # fmt: skip
    judge.judge(answer, machine, {("tiny", "bf16", "bf16"): (case.model, case.precision)})

    assert answer["summary"]["median_calibrated_error"] < 0.005
    assert answer["summary"]["largest_calibrated_error"] < 0.03
    found = answer["calibrations"][0]["constants"]
    assert found == pytest.approx(truth, rel=0.01)


def test_a_step_below_its_bound_is_found() -> None:
    """Spread and drift are allowed for; a step at half of its bound is not."""
    row = {"ceiling_bound_s": 1.0, "read_spread": 0.05, "measured_high_s": 0.95}

    assert not judge.is_below(row)
    assert judge.is_below(row | {"measured_high_s": 0.9})
    assert not judge.is_below(row | {"ceiling_bound_s": None})


def test_a_kept_run_says_what_the_documents_say() -> None:
    """The run of the documents: nothing below its bound, calibrated within 15 % in the median.

    validate/results/epyc-2-cores.json was measured once; this reads it again.
    """
    answer = tables.read_answer(str(KEPT))
    for weights in ("bf16", "fp32"):
        rows = [r for r in answer["rows"] if r["weights"] == weights]
        summed = judge.summary(rows)
        assert {r["batch"] for r in rows} == set(range(1, 9))
        assert len({r["context_tokens"] for r in rows}) == 3
        assert min(r["weights_bytes"] for r in rows) > 20 * answer["device"]["cache_bytes"]
        assert summed["not_below_bound"] >= 0.95
        assert summed["median_calibrated_error"] <= 0.15
        assert summed["weights_differ_bytes"] == summed["cache_differs_bytes"] == 0


def test_ceilings_are_plausible() -> None:
    """Read, copy and product rates of this CPU, with their spread."""
    found, reader = ceilings.bandwidths(CPU, runs=3, size=2**27)
    rates, lacks = ceilings.matmul_rates(CPU, ("fp32", "bf16"), runs=3)
    launch = ceilings.launch_times(CPU, compile=False, runs=3)

    assert reader.bytes == found["read"]["buffer_bytes"] == 2**27
    for name in ("read", "copy"):
        rate = found[name]
        assert rate["low_bytes_per_s"] <= rate["bytes_per_s"] <= rate["high_bytes_per_s"]
        assert 1e8 < rate["bytes_per_s"] < 1e13
    assert set(rates) == {"fp32", "bf16"}
    assert not lacks
    assert all(1e8 < r["flops_per_s"] < 1e16 for r in rates.values())
    assert 1e-8 < launch["eager_s"] < 1e-2


def _a_cache(device: Any) -> int:
    return 2**25


def test_absurd_rates_are_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Above the datasheet, from a cache, or timed before the device was done: each is said."""
    monkeypatch.setattr(ceilings, "cache_bytes", _a_cache)
    fine = {"read": {"bytes_per_s": 3e12, "buffer_bytes": 2**30}, "growth": 2.0}

    assert ceilings.doubts(fine, CPU, 3.35e12) == []
    above = ceilings.doubts(fine | {"read": {"bytes_per_s": 4e12, "buffer_bytes": 2**30}}, CPU,
                            3.35e12)  # fmt: skip
    assert "1.19 times that of the datasheet" in above[0]
    small = ceilings.doubts(fine | {"read": {"bytes_per_s": 3e12, "buffer_bytes": 2**26}}, CPU)
    assert small[0].startswith("cache-resident")
    early = ceilings.doubts(
        {"read": {"bytes_per_s": 9e13, "buffer_bytes": 2**30}, "growth": 1.0}, CPU, 3.35e12
    )
    assert "takes 1.00 times as long" in early[0]
    assert "the clock stopped before the device did" in early[1]


def test_a_timing_is_a_median_with_its_spread() -> None:
    """Percentiles as numpy has them; a run that takes too long ends after three."""
    import numpy as np

    seconds = [0.5, 0.1, 0.4, 0.2, 0.3]
    found = timing(seconds)

    assert found.median_s == 0.3
    assert (found.low_s, found.high_s) == pytest.approx(np.quantile(seconds, (0.1, 0.9)))
    assert timed(lambda: time.sleep(0.02), CPU, runs=50, warm=0, seconds=0.01).runs == 3


def test_the_quickest_that_runs_is_taken() -> None:
    """A kernel that raises is passed over; where none runs the last reason is told."""

    def broken() -> Any:
        raise ValueError("no such kernel")

    ways = {
        "broken": broken,
        "slow": lambda: lambda: time.sleep(0.02),
        "quick": lambda: lambda: time.sleep(0.001),
    }

    assert quickest(ways, CPU, "a test") == "quick"
    with pytest.raises(RooflmError, match="no kernel for a test on this device: broken: no such"):
        quickest({"broken": broken}, CPU, "a test")


def test_the_measured_device_is_a_preset_of_every_command(
    run: dict[str, Any], rooflm: Terminal, tmp_path: Path
) -> None:
    """Its entry is read by `sweep`, and the calibration of the run with it."""
    hardware, calibration = tmp_path / "here.yaml", tmp_path / "my.yaml"
    hardware.write_text(report.hardware_text(run), "utf-8")
    calibration.write_text(report.calibration_text(run), "utf-8")
    entry = yaml.safe_load(hardware.read_text("utf-8"))
    assert next(iter(entry)) == run["hardware"]

    command = ("sweep", "llama-3-8b", *ON_TINY, "--on", str(hardware), "--batch", "4")
    rows = rooflm.json(*command, "--context", "32", "--calibration", str(calibration))["rows"]

    here = next(r for r in run["rows"] if (r["batch"], r["context_tokens"]) == (4, 32))
    assert rows[0]["bound_s"] == pytest.approx(here["bound_s"], rel=1e-3)
    assert rows[0]["estimate_s"] >= rows[0]["floor_s"]


def test_names_of_devices_are_presets() -> None:
    """Each name that a driver reports means a preset that is there."""
    known = set(preset_names(HARDWARE_FILE))

    assert set(PRESETS.values()) <= known
    assert measured.find_preset(None, {"name": "NVIDIA H200"}) == find_machine("h200-sxm")
    assert measured.find_preset(None, {"name": "no such chip"}) is None
    assert measured.find_preset("h100-sxm", {"name": "x"}) == find_machine("h100-sxm")


def test_layers_are_cut_where_the_whole_does_not_fit() -> None:
    """A 70B model in this memory: fewer layers, and the prediction is of as many."""
    machine = Machine("made", "made", "cpu", 30e9, flops={"bf16": 4e11})
    from rooflm.calc.presets import find_model

    plan = Plan(["llama-3-70b"], batches=(1,), contexts=(128,), budget_s=1e6)
    asked = Wanted("a model", "bf16", "", None)
    subject = planned(plan, CPU, machine, find_model("llama-3-70b"), asked, 1e6)
    short = planned(plan, CPU, machine, find_model("llama-3-8b"), asked, 20.0)

    if memory_total(CPU) < 100e9:
        assert subject.cut_from == 80
        assert 1 <= subject.model.layers < 80
    assert short.cut_from == 32
    assert 1 <= short.model.layers < 32


def test_it_runs_without_the_libraries_of_the_command_line(tmp_path: Path) -> None:
    """On a bare machine with torch, numpy and PyYAML: Markdown in place of tables, and a JSON."""
    code = (
        "import sys\n"
        "for name in ('typer', 'click', 'rich', 'pydantic', 'sympy', 'matplotlib'):\n"
        "    sys.modules[name] = None\n"
    )
    words = ["llama-3-8b", *ON_TINY, *QUICK, "--batch", "1", "--context", "32"]
    kept = tmp_path / "run.json"
    ran, again = (
        subprocess.run([sys.executable, "-c", *more], capture_output=True, text=True, check=False)
        for more in (
            [code + LITTLE + RUN, *words, "--output", str(kept)],
            [code + RUN, "--from", str(kept), "--plot", "x.png"],
        )
    )

    assert ran.returncode == 0, ran.stderr
    assert again.returncode == 3
    assert "a figure needs matplotlib" in again.stderr
    assert json.loads(kept.read_text("utf-8"))["summary"]["measured"] == 1
    assert again.stdout.startswith("| model | weights |")


def test_two_ranks_compute_what_one_does(tmp_path: Path) -> None:
    """Weights split over two processes, joined by gloo, give the logits of the whole model.

    Then `torchrun ... --tp 2`: one answer, of one rank, with the time of its messages.
    """
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    kept = tmp_path / "run.json"
    words = ["llama-3-8b", *ON_TINY, *QUICK, "--tp", "2", "--device", "cpu", "--batch", "1,2",
             "--context", "32", "--output", str(kept)]  # fmt: skip
    ran = subprocess.run(
        [*command, str(HERE / "two_ranks.py"), *words], capture_output=True, text=True,
        check=False, cwd=HERE.parent, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip

    assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stdout.count("5 messages") == 2
    answer = json.loads(kept.read_text("utf-8"))
    assert answer["ranks"] == 2
    assert len(answer["ceilings"]["all_reduce"]) == 5
    for row in answer["rows"]:
        parts = {p["part"]: p["measured_s"] for p in row["parts"]}
        assert parts["communication"] > 0
        assert row["allocated_weights_bytes"] == row["weights_bytes"]


def test_ctrl_c_keeps_what_was_measured(tmp_path: Path) -> None:
    """An interrupt after the first points ends with 130, and the points are in the file."""
    kept = tmp_path / "run.json"
    contexts = ",".join(str(n) for n in range(16, 400))
    words = ["llama-3-8b", *ON_TINY, "--quick", "--batch", "1", "--context", contexts]
    started = subprocess.Popen(
        [sys.executable, "-c", LITTLE + RUN, *words, "--device", "cpu", "--output", str(kept)],
        stderr=subprocess.PIPE,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if kept.exists() and len(json.loads(kept.read_text("utf-8"))["rows"]) >= 2:
            break
        time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    _, said = started.communicate(timeout=60)

    assert started.returncode == 130, said[-2000:]
    answer = json.loads(kept.read_text("utf-8"))
    assert answer["interrupted"]
    assert 2 <= answer["summary"]["measured"] < 384


def test_one_failing_point_leaves_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Out of memory at one batch is a row that says so."""
    from rooflm.validate.network import Network

    plain = Network.caches

    def short(self: Network, B: int, S: int) -> Any:
        if B == 2:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return plain(self, B, S)

    monkeypatch.setattr(Network, "caches", short)
    plan = Plan(["llama-3-8b"], batches=(1, 2), contexts=(32,), changes=SETS, runs=3, quick=True,
                quiet=True)  # fmt: skip
    rows = validate(plan)["rows"]

    assert [r["excluded"] for r in rows] == [None, "out of memory"]
    assert rows[1]["measured_s"] is None


def test_reports_and_figures_come_from_the_file(
    run: dict[str, Any], rooflm: Terminal, tmp_path: Path
) -> None:
    """--from: the Markdown report, the figure and the table of a run that was kept."""
    kept, text, image = (tmp_path / name for name in ("run.json", "run.md", "run.svg"))
    kept.write_text(json.dumps(run), "utf-8")
    done = rooflm("validate", "--from", str(kept), "--report", str(text), "--plot", str(image))

    assert done.code == 0
    assert "calibrated on the other half" in done.out
    shown = text.read_text("utf-8")
    for head in ("## Ceilings", "## Steps", "by part", "## Is it the right computation"):
        assert head in shown
    assert image.read_bytes().startswith(b"<?xml")
    axes: Any = draw(run).axes
    assert axes[0].get_xlabel() == "measured [ms]"
    drawn = [line for line in axes[1].get_lines() if line.get_marker() != "None"]
    assert sum(len(line.get_xdata()) for line in drawn) == 8


def test_a_model_of_a_file_is_judged_as_itself(tmp_path: Path) -> None:
    """A config in a folder that is called as a preset: its calibration is of what ran."""
    folder = tmp_path / "llama-3-8b"
    folder.mkdir()
    config = {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64,
        "intermediate_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2,
        "num_hidden_layers": 2, "vocab_size": 256, "tie_word_embeddings": False,
        "max_position_embeddings": 512, "torch_dtype": "bfloat16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    plan = Plan([str(folder)], batches=(1, 2, 4), contexts=(16, 32), runs=3, quick=True, quiet=True)
    answer = validate(plan)

    assert all(r["layers"] == 2 for r in answer["rows"])
    assert all(0.1 < r["calibrated_s"] / r["measured_s"] < 10 for r in answer["rows"])


def test_experts_are_predicted_as_they_were_touched() -> None:
    """The bytes of a row are those of the experts that its tokens chose."""
    sets = (*SETS, ("E", "8"), ("k", "2"))
    plan = Plan(["mixtral-8x7b"], batches=(1, 2, 16), contexts=(16,), changes=sets, runs=3,
                quick=True, quiet=True)  # fmt: skip
    for row in validate(plan)["rows"]:
        rest = row["bytes"] - row["touched_experts"] * 2 * 2 * 3 * 64 * 128
        others = 2 * (2 * 64 * (4 * 16 * 2 + 2 * 16 * 2 + 8 + 2) + 64 * 257)
        cache = row["batch"] * 2 * 2 * 2 * 16 * 2 * 17
        assert rest == pytest.approx(others + cache + 2 * 64 * row["batch"], rel=1e-9)


def test_prompts_name_the_kernel_that_ran() -> None:
    """A window shorter than the prompt is computed in blocks, and the row says so."""
    plan = Plan(["mistral-7b-v0.1"], batches=(1,), contexts=(1, 8, 64), phases=("prefill",),
                changes=(*SETS, ("window", "16")), runs=3, quick=True, quiet=True)  # fmt: skip
    one, short, long = validate(plan)["rows"]

    assert "a decode step" in one["excluded"]
    assert short["kernels"]["attention"] in ("sdpa, causal", "matmul in blocks")
    assert long["kernels"]["attention"] == "matmul in blocks"


def test_files_beside_the_answer_do_not_keep_each_other_back(
    rooflm: Terminal, tmp_path: Path
) -> None:
    """One point carries no calibration: that is said, and the report is written all the same."""
    paths = {name: tmp_path / name for name in ("c.yaml", "r.md", "h.yaml", "p.svg")}
    words = ["llama-3-8b", *ON_TINY, *QUICK, "--device", "cpu", "--batch", "1", "--context", "32",
             "--save-calibration", str(paths["c.yaml"]), "--report", str(paths["r.md"]),
             "--save-hardware", str(paths["h.yaml"]), "--plot", str(paths["p.svg"])]  # fmt: skip
    ran = rooflm("validate", *words)

    assert ran.code == 2
    assert "there is no calibration" in ran.err
    assert "matmul and softmax" in ran.out or "sdpa" in ran.out
    assert [path.exists() for path in paths.values()] == [False, True, True, True]


def test_a_run_that_was_killed_is_still_reported(run: dict[str, Any], tmp_path: Path) -> None:
    """Rows without a summary, as they are kept after each point."""
    kept = tmp_path / "run.json"
    partial = {k: v for k, v in run.items() if k not in ("summary", "assumptions", "calibrations")}
    kept.write_text(json.dumps(partial | {"interrupted": True}), "utf-8")

    answer = tables.read_answer(str(kept))

    assert answer["summary"]["measured"] == 16
    assert "the run was interrupted" in tables.page(answer).notes[0]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        ("{", "the file is no JSON"),
        ("[]", "holds no run"),
        ('{"schema": "rooflm.sweep/1"}', "holds no run"),
        ('{"schema": "rooflm.validate/1"}', "no usable 'device'"),
        ('{"schema": NaN}', "NaN is no number"),
        (
            '{"schema": "rooflm.validate/1", "device": {}, "ceilings": {}, "checks": [{}], '
            '"rows": [], "ranks": 1, "date": "", "interrupted": false}',
            "the run is not usable",
        ),
        (
            json.dumps(KEPT_RUN | {"rows": [KEPT_RUN["rows"][0] | {"batch": 0}]}),
            "row 1 of the run has no usable 'batch'",
        ),
    ],
)
def test_a_file_that_is_no_run_is_refused(
    content: str, what: str, rooflm: Terminal, tmp_path: Path
) -> None:
    """--from says what is wrong, and exits 2."""
    path = tmp_path / "run.json"
    path.write_text(content, "utf-8")
    done = rooflm("validate", "--from", str(path))

    assert done.code == 2
    assert what in done.err


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("--bach", "2"), 2, "Did you mean --batch?"),
        (("--device", "tpu"), 2, "invalid choice: 'tpu'"),
        (("--phase", "decoding"), 2, "Did you mean decode?"),
        (("--batch", "0"), 2, "--batch"),
        (("llama-3-8x",), 2, "unknown model"),
        (("gpt-oss-20b",), 2, "attention sinks are not run"),
        (("llama-3-8b", "--weights", "nvfp4"), 2, "not run in nvfp4"),
        (("llama-3-8b", "--kv", "int8-head"), 2, "cache in int8-head"),
        (("llama-3-8b", "--tp", "2"), 2, "torchrun --nproc-per-node 2"),
        (("llama-3-8b", "--set", "K"), 2, "not KEY=VALUE"),
        (("llama-3-8b", "--on", "h100"), 2, "not the name of one hardware"),
        (("llama-3-8b", "--weights", "mlp=fp32,rest=bf16"), 2, "mlp in fp32 beside"),
        (("llama-3-8b", "--weights", "embedding=int8-weights"), 2, "embedding in int8-weights"),
        (("--from", "x.json", "--batch", "7"), 2, "is not run again (--batch)"),
        (("--dry-run", "--report", "x.md"), 2, "a dry run measures nothing to write"),
        (("--plot", "x.gif"), 2, "a figure is .png"),
    ],
)
def test_mistakes_are_told_before_anything_is_measured(
    words: tuple[str, ...], code: int, what: str, rooflm: Terminal
) -> None:
    """One line on stderr that says what to change."""
    done = rooflm("validate", *words)

    assert done.code == code
    assert done.err.startswith("rooflm: error: ")
    assert what in done.err


def test_a_missing_device_exits_3(rooflm: Terminal) -> None:
    """No CUDA: exit 3, and what to do instead."""
    if torch.cuda.is_available():
        pytest.skip("this machine has a CUDA device")
    done = rooflm("validate", "--device", "cuda")

    assert done.code == 3
    assert "Measure --device cpu" in done.err


def test_a_dry_run_measures_nothing(rooflm: Terminal) -> None:
    """What would run, with memory and time; decode and prefill, formats crossed."""
    command = ("validate", "llama-3-8b", *ON_TINY, "--weights", "bf16", "--weights", "fp32",
               "--phase", "decode,prefill", "--batch", "1,2", "--context", "32",
               "--dry-run")  # fmt: skip
    answer = rooflm.json(*command)

    assert len(answer["rows"]) == 8
    assert all(r["fits"] and r["memory_bytes"] > 0 for r in answer["rows"])
    assert answer["expected_s"] == pytest.approx(sum(r["expected_s"] for r in answer["rows"]))
    assert "nothing has run" in rooflm(*command).out


def test_help_is_the_same_with_and_without_typer(rooflm: Terminal) -> None:
    """Both ways in have one parser."""
    shown = rooflm("validate", "--help")
    alone = subprocess.run([*MEASURE, "--help"], capture_output=True, text=True, check=True)

    assert shown.code == 0
    assert shown.out.startswith("usage: rooflm validate")
    assert "--save-calibration FILE" in shown.out
    assert "--save-calibration FILE" in alone.stdout


def test_the_last_level_cache_is_known_here() -> None:
    """Linux tells the caches of a CPU; a megabyte at least, less than the memory."""
    size = cache_bytes(CPU)
    if size is None:
        pytest.skip("this machine does not tell its caches")

    assert 2**18 <= size < memory_total(CPU)


def test_without_torch_it_says_what_to_install() -> None:
    """Exit 3 with the install command, by either way in; a kept run is reported all the same."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from rooflm.validate.__main__ import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    kept = str(KEPT)
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    told = subprocess.run(
        [sys.executable, "-c", code, "--from", kept], capture_output=True, text=True, check=False
    )

    assert ran.returncode == 3
    assert "pip install 'rooflm[validate]'" in ran.stderr
    assert told.returncode == 0
    assert "48 of 48 points" in told.stdout


def test_nothing_else_imports_torch(rooflm: Terminal) -> None:
    """A sweep with its estimate and a fit run where torch cannot be imported."""
    code = (
        "import sys; sys.modules['torch'] = None\nfrom rooflm.calc.__main__ import main\nmain()\n"
    )
    for words in (("sweep", "llama-3-8b", "--on", "h100-sxm"), ("fit", "gpt2", "--on", "t4")):
        ran = subprocess.run(
            [sys.executable, "-c", code, *words], capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stderr
