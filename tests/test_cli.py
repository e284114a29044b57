"""The command line keeps its promises: keys, formats, exit codes, and nothing half-written."""

from __future__ import annotations

import csv
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.case import Case
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.sweep import sweep

from .helpers import Terminal, only

ROOFLM = [sys.executable, "-m", "rooflm.calc"]
GPT2 = ("gpt2", "--on", "h100-sxm")
SWEEP = ("sweep", "llama-2-13b", "--on", "h100-sxm")
ROW_KEYS = {
    "batch", "context_tokens", "weights_bytes", "kv_cache_bytes", "memory_bytes", "capacity_bytes",
    "fits", "time_s", "floor_s", "bound_s", "estimate_s", "estimate_low_s", "estimate_high_s",
    "ttft_s", "e2e_s", "tokens_per_s", "bound_tokens_per_s", "estimate_tokens_per_s",
    "intensity_flops_per_byte", "regime", "basis",
}  # fmt: skip


def shell(*words: str, **more: str) -> subprocess.CompletedProcess[str]:
    """Run rooflm in a process of its own."""
    env = {**os.environ, **more}
    return subprocess.run([*ROOFLM, *words], capture_output=True, text=True, check=False, env=env)


def test_sweep_row_has_every_key_of_the_contract(rooflm: Terminal) -> None:
    """A row of a sweep has all keys that users rely on."""
    answer = rooflm.json(*SWEEP)

    assert set(only(answer["rows"])) >= ROW_KEYS
    assert {"schema", "model", "hardware", "assumptions"} <= set(answer)
    assert answer["rows"][0]["batch"] == 1
    assert answer["rows"][0]["context_tokens"] == 1024


def test_show_has_every_key_of_the_contract(rooflm: Terminal) -> None:
    """Parameters by part, cache by layer kind, no reference cache where it is the needed one."""
    answer = rooflm.json("show", "llama-3-8b")

    assert {"total", "active", "streamed", "embedding", "head"} <= set(answer["parameters"])
    assert answer["weights_bytes"] == 2 * 8_030_261_248
    cache = answer["cache"]
    assert cache["elements_per_token"] == cache["growing_elements_per_token"] == 65536
    assert cache["bytes_per_token"] == 131_072
    assert cache["state_elements_per_sequence"] == cache["state_bytes_per_sequence"] == 0
    (layers,) = cache["layers"]
    assert layers == {
        "kind": "full", "count": 32, "window_tokens": None, "elements_per_token": 2048,
        "state_elements_per_sequence": 0,
    }  # fmt: skip
    assert cache["reference"] is None


def test_fit_has_every_key_of_the_contract(rooflm: Terminal) -> None:
    """Memory by kind adds up to the whole, and the margin to the capacity."""
    answer = rooflm.json("fit", "llama-3-8b", "--on", "h100-sxm", "--reserve", "2GiB")

    assert set(answer["memory"]) >= {
        "weights_bytes", "kv_cache_bytes", "activations_bytes", "reserve_bytes"
    }  # fmt: skip
    assert answer["memory"]["reserve_bytes"] == 2 * 2**30
    assert answer["memory_bytes"] == sum(answer["memory"].values())
    assert answer["margin_bytes"] == answer["capacity_bytes"] - answer["memory_bytes"]
    assert answer["fits"] is True


@pytest.mark.parametrize("reserve", ["0", "3GB"])
@pytest.mark.parametrize("context", [1, 1000, 8192])
def test_max_sequences_is_the_last_that_fits(rooflm: Terminal, context: int, reserve: str) -> None:
    """The answer fits and one more sequence does not."""
    words = ("fit", "qwen3-8b", "--on", "rtx-4090", "--context", str(context), "--reserve", reserve)
    most = rooflm.json(*words)["max_sequences"]

    assert rooflm(*words, "--batch", str(most)).code == 0
    assert rooflm(*words, "--batch", str(most + 1)).code == 1


def test_fit_that_fails_exits_1_and_says_how_to_mend_it(rooflm: Terminal) -> None:
    """No: with the largest batch, the longest context, and the cheapest chips that hold it."""
    words = ("fit", "llama-2-13b", "--on", "h100-sxm", "--batch", "80")
    ran = rooflm(*words, "--format", "json")
    ways = {w["option"]: w["value"] for w in reversed(ran.json["ways"])}
    smaller = ("--batch", ways["--batch"])
    shorter = ("--context", ways["--context"])

    assert ran.code == 1
    assert ran.json["fits"] is False
    assert rooflm(*words[:4], *smaller).code == 0
    assert rooflm(*words, *shorter).code == 0
    assert rooflm("fit", "llama-2-13b", "--on", ways["--on"], "--batch", "80").code == 0
    prices = [w["price_usd_per_hour"] for w in ran.json["ways"] if w["option"] == "--on"]
    known = [p for p in prices if p is not None]
    assert known == sorted(known)
    assert prices[: len(known)] == known


def test_fit_takes_ranges(rooflm: Terminal) -> None:
    """Several points are rows; the whole does not fit where one does not."""
    ran = rooflm(
        "fit", "llama-2-13b", "--on", "h100-sxm", "--batch", "1,64,256", "--format", "json"
    )

    assert ran.code == 1
    assert [r["fits"] for r in ran.json["rows"]] == [True, True, False]


def test_ranges_and_multiples(rooflm: Terminal) -> None:
    """1:8:x2, 1:9:4, 1k and 2Ki mean what they say."""
    rows = rooflm.json(*SWEEP, "--batch", "1:8:x2,1:9:4", "--context", "1k,2Ki")["rows"]

    assert [r["batch"] for r in rows[:7]] == [1, 2, 4, 8, 1, 5, 9]
    assert rooflm.json(*SWEEP, "--batch", "1.001k,1e3")["rows"][0]["batch"] == 1001
    assert [rows[0]["context_tokens"], rows[-1]["context_tokens"]] == [1000, 2048]


def test_a_count_that_is_whole_at_its_first_point_only_keeps_its_rest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An expected number is an integer where one sequence touches one thing, and no other is."""

    def row(case: object, segments: object, B: Any, S: Any) -> dict[str, Any]:
        whole = isinstance(B, int)
        return {"batch": B, "touched": 1 if whole else (B + 1) / 2}

    monkeypatch.setattr(sys.modules[sweep.__module__], "step_row", row)
    case = Case(find_model("llama-3-8b"), find_machine("h100-sxm"))
    rows = sweep(case, list(range(1, 601)), [1024])["rows"]

    assert [r["touched"] for r in rows[:4]] == [1, 1.5, 2, 2.5]
    assert all(isinstance(r["batch"], int) for r in rows)


def test_a_grid_equals_single_points(rooflm: Terminal) -> None:
    """The array reading behind a large grid gives the rows that single points give."""
    grid = rooflm.json(*SWEEP, "--batch", "1:300:13", "--context", "100:4000:100")["rows"]
    assert len(grid) == 24 * 40
    for row in (grid[0], grid[777], grid[-1]):
        words = ("--batch", str(row["batch"]), "--context", str(row["context_tokens"]))
        single = only(rooflm.json(*SWEEP, *words)["rows"])
        assert list(row) == list(single)
        for key, value in single.items():
            assert type(row[key]) is type(value), key
            if isinstance(value, float):
                assert row[key] == pytest.approx(value, rel=1e-12), key
            else:
                assert row[key] == value, key


def test_fit_needs_no_compute_rate(rooflm: Terminal) -> None:
    """A memory system whose compute rate nobody published still holds what it holds."""
    words = ("fit", "llama-3-8b", "--on", "ddr5-6000-dual", "--capacity", "32GiB")

    assert rooflm.json(*words)["fits"] is True


def test_a_chip_without_bf16_computes_in_fp16(rooflm: Terminal) -> None:
    """A V100 has fp16 only: that is the default there, and it is said."""
    answer = rooflm.json("sweep", "gpt2", "--on", "v100-sxm2-32gb")

    assert "weights fp16" in answer["assumptions"][0]
    assert rooflm(*SWEEP, "--weights", "bf16").code == 0


def test_time_models_are_ordered_and_named(rooflm: Terminal) -> None:
    """Each time model answers, in order, and the floor is the overlap."""
    rows = {
        m: only(rooflm.json(*SWEEP, "--batch", "600", "--set", "K=8", "--time-model", m)["rows"])
        for m in ("bandwidth", "overlap", "operator", "serial")
    }
    times = [r["time_s"] for r in rows.values()]

    assert times == sorted(times)
    assert len(set(times)) >= 3
    assert rows["operator"]["floor_s"] == rows["overlap"]["time_s"]


def test_regime_turns_compute_bound(rooflm: Terminal) -> None:
    """A short context and a large batch leave the memory regime; a small batch does not."""
    words = (*SWEEP, "--set", "K=8", "--context", "16", "--batch", "1,4096")
    assert [r["regime"] for r in rooflm.json(*words)["rows"]] == ["memory", "compute"]


def test_csv_and_markdown_hold_the_rows(rooflm: Terminal) -> None:
    """CSV has the JSON keys with full precision, Markdown the table."""
    answer = rooflm.json(*SWEEP, "--batch", "1,64")
    rows = list(
        csv.DictReader(io.StringIO(rooflm(*SWEEP, "--batch", "1,64", "--format", "csv").out))
    )
    page = rooflm(*SWEEP, "--batch", "1,64", "--format", "md").out

    assert [float(r["time_s"]) for r in rows] == [r["time_s"] for r in answer["rows"]]
    assert [r["fits"] for r in rows] == ["true", "true"]
    assert "| 64 | 1,024 | 26.03 | 53.69 |" in page


@pytest.mark.parametrize("command", ["models", "hardware"])
def test_lists_find_by_word(rooflm: Terminal, command: str) -> None:
    """A word narrows the list; an unknown one is refused with the nearest name."""
    word = {"models": "qwen3", "hardware": "h100"}[command]
    rows = rooflm.json(command, word)["rows"]
    everything = rooflm.json(command)["rows"]

    assert 3 <= len(rows) < len(everything)
    assert all(word in r["name"] for r in rows)
    assert rooflm(command, "zzzz").code == 2


def test_one_chip_shows_every_figure_with_its_source(rooflm: Terminal) -> None:
    """`hardware NAME` prints value, note, date and address."""
    out = rooflm("hardware", "h100-sxm").out

    assert "85,520,809,984" in out
    assert "https://" in out


def test_the_table_in_a_pipe_and_in_a_narrow_terminal_keeps_every_digit() -> None:
    """A wide pipe has one table; forty columns have several, with no digit lost."""
    piped = shell(*SWEEP, "--batch", "1,64,256", "--quiet").stdout
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(COLUMNS="40", TERM="xterm-256color")
        os.execv(sys.executable, [*ROOFLM, *SWEEP, "--batch", "1,64,256", "--quiet"])
    chunks: list[bytes] = []
    try:
        while chunk := os.read(master, 65536):
            chunks.append(chunk)
    except OSError:
        pass
    assert os.waitpid(pid, 0)[1] == 0
    narrow = b"".join(chunks).decode()

    def figures(text: str) -> set[str]:
        return set(re.findall(r"[0-9][0-9,.]*", text))

    assert figures(narrow) == figures(piped)
    assert max(len(line) for line in narrow.splitlines()[1:]) <= 40
    assert "\x1b" not in narrow


def test_output_goes_to_a_file_whole_or_not_at_all(rooflm: Terminal, tmp_path: Path) -> None:
    """The suffix sets the format; an error leaves the old file as it was."""
    path = tmp_path / "table.json"
    assert rooflm(*SWEEP, "--output", str(path)).out == ""
    before = path.read_text()
    assert json.loads(before)["schema"] == "rooflm.sweep/1"

    assert rooflm(*SWEEP, "--batch", "0", "--output", str(path)).code == 2
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["table.json"]


def test_a_figure_is_drawn_beside_the_table(rooflm: Terminal, tmp_path: Path) -> None:
    """--plot writes an image and the table is printed all the same."""
    path = tmp_path / "sweep.svg"
    ran = rooflm(*SWEEP, "--batch", "1:256:x2", "--plot", str(path))

    assert ran.code == 0
    assert "26.87" in ran.out
    assert path.read_text().startswith("<?xml")
    assert rooflm(*SWEEP, "--plot", str(tmp_path / "sweep.bmp")).code == 2


def test_the_figure_draws_the_rows_it_is_given(rooflm: Terminal) -> None:
    """Lines hold the times and throughputs of the answer; what does not fit is dotted."""
    from rooflm.plots.sweep import draw

    answer = rooflm.json(*SWEEP, "--batch", "1,64,256")
    figure: Any = draw(answer)
    solid, dotted = figure.axes[0].get_lines()

    assert list(solid.get_xdata()) == [1, 64]
    assert list(dotted.get_xdata()) == [64, 256]
    assert list(solid.get_ydata()) == [1e3 * r["time_s"] for r in answer["rows"][:2]]
    assert (solid.get_linestyle(), dotted.get_linestyle()) == ("-", ":")
    assert list(figure.axes[1].get_lines()[0].get_ydata()) == [
        r["tokens_per_s"] for r in answer["rows"][:2]
    ]


@pytest.mark.parametrize("command", ["plot", "validate"])
def test_help_fits_into_eighty_columns(
    command: str, rooflm: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists and examples that are printed as written are no wider than a usual terminal."""
    monkeypatch.setenv("COLUMNS", "80")
    assert max(map(len, rooflm(command, "--help").out.splitlines())) <= 80


def test_version_and_help(rooflm: Terminal) -> None:
    """--version names the program; --help lists the commands; no command shows the help."""
    assert re.fullmatch(r"rooflm \d+\.\d+\.\d+\n", rooflm("--version").out)
    assert rooflm("--help").code == 0
    for command in ("models", "hardware", "show", "fit", "sweep"):
        assert command in rooflm("--help").out
        assert "Example: rooflm" in rooflm(command, "--help").out
    assert rooflm("nonsense").code == 2


# What is typed, a part of the sentence that answers it.
REFUSED = [
    (("sweep", "lama-2-13b", "--on", "h100-sxm"), "llama-2-13b"),
    (("sweep", "nonsense", "--on", "h100-sxm"), "rooflm models"),
    (("sweep", "llama 8b", "--on", "h100-sxm"), "llama-3-8b"),
    (("sweep", "", "--on", "h100-sxm"), "unknown model"),
    (("sweep", "gpt2", "--on", "h100"), "h100-pcie"),
    (("sweep", "gpt2", "--on", "h100-smx"), "h100-sxm"),
    (("sweep", "gpt2", "--on", "8xh100-sxm"), "cannot be split 8 ways"),
    (("sweep", "gpt2"), "--on"),
    (("sweep", "--on", "h100-sxm"), "MODEL"),
    (("sweeep", "gpt2"), "sweep"),
    ((*SWEEP, "--batsh", "1"), "--batch"),
    ((*SWEEP, "--set", "Q=8"), "unknown key 'Q'"),
    ((*SWEEP, "--set", "postions=8"), "positions"),
    ((*SWEEP, "--set", "K"), "KEY=VALUE"),
    ((*SWEEP, "--set", "K=7"), "does not divide"),
    ((*SWEEP, "--set", "K=0"), "below 1"),
    ((*SWEEP, "--set", "K=8", "--set", "K=4"), "twice"),
    ((*SWEEP, "--set", "mlp=gatted"), "gated"),
    ((*SWEEP, "--set", "tied=maybe"), "true or false"),
    ((*SWEEP, "--batch", "0"), "below 1"),
    ((*SWEEP, "--batch", "-1"), "whole number"),
    ((*SWEEP, "--batch=-1"), "whole number"),
    ((*SWEEP, "--batch", "1.5"), "not a whole number"),
    ((*SWEEP, "--batch", "1.."), "whole number"),
    ((*SWEEP, "--batch", "1:"), "not a range"),
    ((*SWEEP, "--batch", "8:1"), "ends before"),
    ((*SWEEP, "--batch", "1:8:x1"), "factor"),
    ((*SWEEP, "--batch", "1:1T"), "values"),
    ((*SWEEP, "--batch", "nan"), "whole number"),
    ((*SWEEP, "--batch", "inf"), "whole number"),
    ((*SWEEP, "--batch", ""), "whole number"),
    ((*SWEEP, "--batch", "1" + 30 * "0"), "above"),
    ((*SWEEP, "--batch", "1e30"), "above"),
    ((*SWEEP, "--batch", "1e999"), "above"),
    ((*SWEEP, "--batch", "1" * 5000), "above"),
    ((*SWEEP, "--context", "0"), "--context"),
    ((*SWEEP, "--batch", "1:5000", "--context", "1:5000"), "more than the 5,000 of a table"),
    ((*SWEEP, "--weights", "bf17"), "bf16"),
    ((*SWEEP, "--kv", "int4"), "--kv"),
    ((*SWEEP, "--format", "jsn"), "json"),
    ((*SWEEP, "--accounting", "lectures"), "lecture"),
    ((*SWEEP, "--time-model", "overlp"), "overlap"),
    ((*SWEEP, "--time-model", "serial", "--accounting", "lecture"), "lecture"),
    ((*SWEEP, "--reserve", "2Gb"), "bytes, not bits"),
    ((*SWEEP, "--reserve", "2GB", "--accounting", "lecture"), "reserve"),
    ((*SWEEP, "--batch", "1.0001k"), "not a whole number"),
    (("show", "~nosuchuser/x.yaml"), "no such file"),
    (("show", "a/" + "x" * 5000), "unknown model"),
    ((*SWEEP, "--reserve", "2G"), "2GB"),
    ((*SWEEP, "--capacity", "much"), "not a size"),
    ((*SWEEP, "--capacity", "40"), "'40' has no unit (--capacity). Say its unit, as 40GB"),
    ((*SWEEP, "--tp", "2", "--link", "50"), "'50' has no unit"),
    ((*SWEEP, "--tp", "2", "--link", "50gb"), "bytes, not bits"),
    ((*SWEEP, "--weights", "4bit"), "Say int4, awq"),
    (("sweep", "gpt2", "--on", "v100-sxm2-32gb", "--weights", "bf16"), "--weights fp32 or fp16"),
    (("sweep", "gpt2", "--on", "ddr5-6000-dual", "--capacity", "64GB"), "--time-model bandwidth"),
    (("fit", "gpt2", "--on", "ddr5-6000-dual"), "--capacity"),
    (("show", "./"), "config.json"),
    (("show", "no-such-file.yaml"), "no such file"),
    (("show", "config.json"), "no such file"),
    (("show", "model.gguf"), "no such file"),
]


@pytest.mark.parametrize(("words", "part"), REFUSED, ids=lambda v: " ".join(v)[:50])
def test_bad_usage_is_one_clear_sentence_and_exit_2(
    rooflm: Terminal, words: tuple[str, ...], part: str
) -> None:
    """A mistake gives exit 2, nothing on stdout, and one line that names it and the way out."""
    ran = rooflm(*words)

    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert ran.err.startswith("rooflm: error: ")
    assert ran.err.count("\n") == 1
    assert len(ran.err) < 700
    assert part in ran.err


ENTRY = b"a:\n  dims: {%s, H: 8, L: 1, V: 9}\n"
FILES = {
    "empty.yaml": (b"", "empty"),
    "comment.yaml": (b"# nothing\n", "no model entries"),
    "binary.yaml": (b"\x00\xff\xfe\x01" * 100, "not text"),
    "word.yaml": (b"hello\n", "no model entries"),
    "broken.yaml": (b"a: {D: 1\nb: [\n", "not valid YAML"),
    "twice.yaml": (b"a:\n  dims: {D: 1, D: 2}\n", "twice.yaml:2:16"),
    "alias.yaml": (b"a: &x {D: 1}\nb: *x\n", "aliases"),
    "unknown.yaml": (b"a:\n  dims: {D: 8, G: 2}\n", "unknown.yaml:2:16"),
    "missing.yaml": (b"a:\n  dims: {D: 8, F: 8, N: 1, K: 1, H: 8, L: 1}\n", "lacks 'V'"),
    "type.yaml": (ENTRY % b"D: eight, F: 8, N: 1, K: 1", "type.yaml:2:10"),
    "zero.yaml": (ENTRY % b"D: 0, F: 8, N: 1, K: 1", "between 1 and"),
    "divide.yaml": (ENTRY % b"D: 8, F: 8, N: 4, K: 3", "divide.yaml:2:28"),
    "flat.yaml": (b"dims: {D: 8}\n", "indent"),
    "two.yaml": (b"a: {dims: {D: 1}}\nb: {dims: {D: 2}}\n", "two.yaml#a"),
    "deep.yaml": (b"[" * 3000, "deep.yaml"),  # PyYAML words it by its version
    "long.yaml": (b"a: 1\n" * 2_000_000, "larger than 4 MiB"),
}  # fmt: skip


@pytest.mark.parametrize("name", FILES)
def test_a_bad_file_is_refused_with_its_place(rooflm: Terminal, tmp_path: Path, name: str) -> None:
    """Each broken file gives exit 2 and one line that names the file and what is wrong."""
    content, part = FILES[name]
    path = tmp_path / name
    path.write_bytes(content)

    ran = rooflm("show", str(path))

    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert name in ran.err
    assert part in ran.err
    assert ran.err.count("\n") == 1


def test_an_own_model_and_an_own_machine(rooflm: Terminal, tmp_path: Path) -> None:
    """A YAML entry stands where a name does, with plain numbers as figures, in any encoding."""
    model = tmp_path / "mine.yaml"
    text = "tiny:\r\n  dims: {D: 64, F: 256, N: 4, K: 2, H: 16, L: 2, V: 100}\r\n"
    model.write_bytes(text.encode("utf-8-sig"))
    machine = tmp_path / "box.yml"
    machine.write_text(
        "box:\n  name: A box\n  kind: gpu\n  label_gb: 1\n"
        "  bandwidth_bytes_per_s: 1e12\n  flops: {bf16: {value: 1.0e+14}}\n"
    )
    row = only(rooflm.json("sweep", str(model), "--on", str(machine))["rows"])

    weights = 2 * 100 * 64 + 5 * 64 + 2 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 256)
    assert row["weights_bytes"] == 2 * weights
    assert row["capacity_bytes"] == 10**9


def test_an_unreadable_file_is_refused(rooflm: Terminal) -> None:
    """A file that the system will not read gives its reason."""
    unreadable = "/proc/1/mem" if os.geteuid() else "/proc/self/mem"
    ran = rooflm("show", f"{unreadable}/x.yaml")

    assert ran.code == 2
    assert "cannot read the file" in ran.err


@pytest.mark.parametrize(
    "path", ["no/such/folder/x.json", ".", "/proc/nothing/x.json", "/dev/full", "a\0b"]
)
def test_an_output_that_cannot_be_written_exits_2(rooflm: Terminal, path: str) -> None:
    """A missing folder, a folder, a read-only or a full place: one line, exit 2."""
    ran = rooflm(*SWEEP, "--output", path)

    assert ran.code == 2
    assert "cannot write the output" in ran.err
    assert ran.out == ""


def test_a_full_stdout_exits_2() -> None:
    """Output that does not fit on the disk is an error, not silence."""
    with open("/dev/full", "w") as full:
        ran = subprocess.run([*ROOFLM, *SWEEP], stdout=full, stderr=subprocess.PIPE, check=False)

    assert ran.returncode == 2
    assert b"rooflm: error: cannot write the output" in ran.stderr
    assert ran.stderr.count(b"\n") == 1


def test_a_closed_pipe_exits_0() -> None:
    """A reader that has seen enough is no error."""
    process = subprocess.Popen(
        [*ROOFLM, *SWEEP, "--batch", "1:400", "--context", "1:40", "--format", "json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.read(10)
    process.stdout.close()
    err = process.stderr.read()
    process.stderr.close()

    assert process.wait(timeout=60) == 0
    assert err == b""


def test_ctrl_c_exits_130_and_leaves_no_file(tmp_path: Path) -> None:
    """An interrupt of a long sweep ends quietly; no half-written file stays."""
    path = tmp_path / "out.json"
    words = ("--batch", "1:1000", "--context", "1:1000", "--output", str(path))
    process = subprocess.Popen([*ROOFLM, *SWEEP, *words], stderr=subprocess.PIPE)
    time.sleep(1.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)

    assert process.returncode == 130
    assert b"Traceback" not in err
    assert os.listdir(tmp_path) == []


def test_a_defect_exits_70_with_one_line(rooflm: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of our own says so; the traceback comes with --debug only."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("on purpose")

    monkeypatch.setattr("rooflm.calc.presets.find_model", broken)
    quiet, loud = rooflm("show", "gpt2"), rooflm("show", "gpt2", "--debug")

    assert quiet.code == loud.code == 70
    assert quiet.err.count("\n") == 1
    assert "defect of rooflm" in quiet.err
    assert "Traceback" in loud.err


def test_no_colour_is_ever_forced_into_a_pipe() -> None:
    """NO_COLOR and FORCE_COLOR alike leave a pipe without escapes."""
    for more in (
        {"NO_COLOR": "1"},
        {"FORCE_COLOR": "1"},
        {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    ):
        ran = shell(*SWEEP, **more)
        assert ran.returncode == 0
        assert "\x1b" not in ran.stdout


def test_a_reader_that_never_reads_exits_0() -> None:
    """A pipe closed before the first write is no error, and not the exit code of a no."""
    for words in (SWEEP, ("--help",), ("--version",), ("sweep", "--help"), ("hardware",)):
        read, write = os.pipe()
        os.close(read)
        ran = subprocess.run([*ROOFLM, *words], stdout=write, stderr=subprocess.PIPE, check=False)
        os.close(write)
        assert (ran.returncode, ran.stderr) == (0, b""), words


def test_a_closed_stdout_exits_2() -> None:
    """Without a stdout there is nowhere to write, and that is said."""
    ran = subprocess.run(
        ["bash", "-c", '"$@" >&-', "bash", *ROOFLM, *SWEEP], capture_output=True, check=False
    )

    assert ran.returncode == 2
    assert b"stdout is closed" in ran.stderr


def test_output_into_a_pipe(tmp_path: Path) -> None:
    """--output takes a device or a pipe as it takes a file."""
    ran = subprocess.run(
        ["bash", "-c", '"$@" --output /dev/stdout | cat', "bash", *ROOFLM, *SWEEP],
        capture_output=True,
        check=False,
        text=True,
    )

    assert "26.87" in ran.stdout, ran.stderr


def test_a_figure_is_written_whole_or_not_at_all(rooflm: Terminal, tmp_path: Path) -> None:
    """Where the disk is full an older figure stays and no part of a new one is left."""
    import resource

    keep = tmp_path / "keep.svg"
    keep.write_text("as it was")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2048, limits[1]))
    try:
        codes = [
            rooflm(*SWEEP, "--plot", str(tmp_path / name)).code
            for name in ("keep.svg", "new.pdf", "new.png")
        ]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)

    assert codes == [2, 2, 2]
    assert keep.read_text() == "as it was"
    assert os.listdir(tmp_path) == ["keep.svg"]


def test_a_negative_margin_keeps_its_digits(rooflm: Terminal) -> None:
    """Llama-3-70B misses 85.52 GB by 55.92 GB: two decimals, minus and all."""
    assert "-55.92" in rooflm("fit", "llama-3-70b", "--on", "h100-sxm").out


def test_a_given_capacity_is_not_another_chip(rooflm: Terminal) -> None:
    """With --capacity no chip is proposed: it would not change what decides."""
    words = ("fit", "llama-3-8b", "--on", "h100-sxm", "--batch", "1000", "--capacity", "24GB")
    options = {way["option"] for way in rooflm(*words, "--format", "json").json["ways"]}

    assert "--on" not in options


def test_a_terminal_without_lines_gets_ascii() -> None:
    """An encoding that has no box characters gets a table of ASCII."""
    out = shell(*SWEEP, PYTHONIOENCODING="ascii").stdout

    assert "\\u" not in out.splitlines()[2]
    assert "--" in out.splitlines()[2]


def test_a_folder_named_like_a_hub_name_does_not_hide_it(
    rooflm: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A downloaded folder org/name beside us leaves the preset's name as it is."""
    (tmp_path / "meta-llama" / "Llama-2-13b-hf").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)

    assert rooflm.json("show", "meta-llama/Llama-2-13b-hf")["model"] == "llama-2-13b"


def test_what_a_user_types_never_reaches_the_terminal_raw(rooflm: Terminal) -> None:
    """Escapes and line breaks of an argument are replaced in the message about it."""
    for words in (
        ("--on", "8xh100-\x1b[31m" + "x" * 900),
        ("--on", "a\nb"),
        (*GPT2[1:], "--set", "\x1b[31mK=8"),
    ):
        ran = rooflm("sweep", GPT2[0], *words)
        assert ran.code == 2
        assert "\x1b" not in ran.err
        assert ran.err.count("\n") == 1
        assert len(ran.err) < 700


def test_a_table_too_long_for_people_is_refused(rooflm: Terminal) -> None:
    """Beyond 5000 rows a table is refused with the formats that take them."""
    words = (*SWEEP, "--batch", "1:100", "--context", "1:60")

    assert "--format csv" in rooflm(*words).err
    assert rooflm(*words, "--format", "csv").out.count("\n") == 6001


MORE = [
    (("explain", "bound_s", "gpt2"), "--on"),
    (("explain", "nonsense_xyz", *GPT2), "QUANTITY"),
    (("explain", "bound_s", *GPT2, "--format", "latx"), "latex"),
    (("explain", "bound_s", *GPT2, "--batch", "1,2"), "whole number"),
    (("solve", "batches", *GPT2), "batch"),
    (("solve", "batch", *GPT2, "--latency", "20"), "20ms"),
    (("solve", "batch", *GPT2, "--latency", "0ms"), "out of range"),
    (("solve", "batch", *GPT2, "--latency", "1parsec"), "not a time"),
    (("solve", "batch", *GPT2, "--share", "1.5"), "between 0 and 1"),
    (("solve", "batch", *GPT2, "--throughput", "-5"), "positive"),
    (("solve", "batch", *GPT2, "--when", "computebound"), "compute-bound"),
    (("solve", "bandwidth", *GPT2), "--latency"),
    (("solve", "context", *GPT2, "--share", "0.5"), "It takes --latency"),
    (("solve", "batch", *GPT2, "--share", "0.5", "--latency", "1s"), "one target"),
    (("solve", "capacity", *GPT2, "--latency", "1s"), "no target"),
    (("explain", "zz.bound_s", *GPT2), "no quantity"),
    (("explain", "ttft_s", *GPT2, "--phase", "prefill", "--prompt", "1,2"), "one prompt"),
    (("compare", *GPT2, "--phase", "request", "--context", "9"), "--prompt"),
    (("sweep", *GPT2, "--phase", "prefill", "--prompt", "1M", "--chunk", "1"), "passes"),
    (("sweep", *GPT2, "--phase", "request", "--output-tokens", "1e9"), "summed"),
    (("solve", "batch", "gpt2", "--on", "ddr5-6000-dual"), "--capacity"),
    (("compare", "gpt2"), "--on"),
    (("compare", "--on", "h100-sxm"), "MODEL"),
    (("compare", "h100-sxm", "--on", "h100-sxm"), "no model"),
    (("roofline", "gpt2", "--on", "ddr5-6000-dual"), "compute rate"),
    (("models", "--models", "nope.yaml"), "nope.yaml"),
    (("show", "gpt2", "--models", "nope.yaml"), "nope.yaml"),
]


@pytest.mark.parametrize(("words", "part"), MORE, ids=lambda v: " ".join(v)[:60])
def test_bad_questions_are_one_clear_sentence_too(
    rooflm: Terminal, words: tuple[str, ...], part: str
) -> None:
    """The later commands refuse as the first ones do."""
    ran = rooflm(*words)

    assert ran.code == 2, ran.err
    assert ran.out == ""
    assert ran.err.startswith("rooflm: error: ")
    assert ran.err.count("\n") == 1
    assert part in ran.err


def test_own_preset_files_join_the_shipped_ones(rooflm: Terminal, tmp_path: Path) -> None:
    """--models and --hardware add names, take the place of shipped ones, and are listed."""
    models, chips = tmp_path / "m.yaml", tmp_path / "h.yaml"
    dims = "dims: {D: 64, F: 256, N: 4, K: 2, H: 16, L: 2, V: 100}"
    models.write_text(f"mine:\n  {dims}\ngpt2:\n  {dims}\n")
    chips.write_text("box:\n  name: Box\n  kind: gpu\n  bandwidth_bytes_per_s: 1e12\n")
    more = ("--models", str(models))
    weights = rooflm.json("show", "mine", *more)["parameters"]["total"]

    assert rooflm.json("show", "gpt2", *more)["parameters"]["total"] == weights
    assert rooflm.json("show", "llama-2-13b", *more)["parameters"]["total"] == 13_015_864_320
    names = [r["name"] for r in rooflm.json("models", *more)["rows"]]
    assert names[:2] == ["mine", "gpt2"]
    assert names.count("gpt2") == 1
    words = ("--on", "box", "--hardware", str(chips), "--time-model", "bandwidth")
    row = only(rooflm.json("sweep", "mine", *words, *more, "--capacity", "1GB")["rows"])
    assert row["time_s"] == pytest.approx(row["bytes"] / 1e12)
    assert "box" in rooflm("hardware", "--hardware", str(chips)).out


def test_check_tells_every_mistake_of_a_file(rooflm: Terminal, tmp_path: Path) -> None:
    """--check passes the shipped files and names the place of each mistake in one's own."""
    path = tmp_path / "m.yaml"
    path.write_text("a:\n  dims: {D: 1}\nb:\n  dim: {}\n")
    good = rooflm("models", "--check")
    bad = rooflm("models", "--check", "--models", str(path))

    assert (good.code, bad.code) == (0, 1)
    assert "models.yaml: " in good.out
    assert "all valid" in good.out
    assert "m.yaml:2:" in bad.err
    assert "m.yaml:4:3" in bad.err
    assert rooflm("hardware", "--check").code == 0


def test_rooflm_alone_says_where_to_start(rooflm: Terminal) -> None:
    """Without a command: the commands, and the first one to type."""
    ran = rooflm()

    assert ran.code == 0
    assert "Start here: rooflm sweep llama-2-13b --on h100-sxm" in ran.out


def test_completion_knows_the_names() -> None:
    """The shell completes models after a command, hardware after --on."""

    def complete(line: str) -> str:
        variables = {
            "_ROOFLM_COMPLETE": "complete_bash",
            "COMP_WORDS": line,
            "COMP_CWORD": str(len(line.split(" ")) - 1),
        }
        code = "import sys; sys.argv = ['rooflm']; from rooflm.calc.__main__ import main; main()"
        env = {**os.environ, **variables}
        command = [sys.executable, "-c", code]
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False).stdout

    assert "llama-2-13b" in complete("rooflm show llama-2")
    assert "h100-sxm" in complete("rooflm sweep gpt2 --on h100")


def test_an_interrupt_after_writing_is_an_interrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C just as a file has taken its place is no failure to write, and the file is whole."""
    from rooflm.calc import output

    replace = os.replace

    def late(source: str, target: str) -> None:
        replace(source, target)
        raise KeyboardInterrupt

    monkeypatch.setattr(output.os, "replace", late)
    path = tmp_path / "x.json"
    with pytest.raises(KeyboardInterrupt):
        output.write_file(b"{}", str(path), "--output")

    assert path.read_bytes() == b"{}"
    assert list(tmp_path.iterdir()) == [path]


def test_chunks_of_a_prefill_have_a_table(rooflm: Terminal) -> None:
    """A prefill in several passes has no further tokens, and a table all the same."""
    ran = rooflm(
        "sweep", "llama-3.1-8b", "--on", "h100-sxm", "--phase", "prefill", "--chunk", "128"
    )

    assert ran.code == 0
    assert "TTFT [ms]" in ran.out


def test_a_grid_names_communication_as_a_point_does(rooflm: Terminal) -> None:
    """What limits a step of several devices is the same word in a large grid and alone."""
    words = ("sweep", "llama-3-70b", "--on", "8xh100-sxm", "--tp", "8", "--link", "5GB")
    one = rooflm.json(*words, "--batch", "600")["rows"][0]
    many = rooflm.json(*words, "--batch", "1:600")["rows"][-1]

    assert one["regime"] == many["regime"] == "communication"


def test_a_context_that_nobody_typed_is_told(rooflm: Terminal) -> None:
    """A decode step has 1,024 tokens by default; one that is typed, and a prompt, need no note."""
    told = "--context is 1,024 tokens, as none was typed"
    words = ("llama-3-8b", "--on", "h100-sxm")

    for command in ("sweep", "fit", "compare"):
        assert told in rooflm.json(command, *words)["assumptions"]
        assert told not in rooflm.json(command, *words, "--context", "1024")["assumptions"]
    assert told not in rooflm.json("sweep", *words, "--phase", "prefill")["assumptions"]


def test_devices_are_told_wherever_a_machine_is(rooflm: Terminal) -> None:
    """Two and four of one card are two machines, in titles and in rows."""
    four = ("llama-3-70b", "--on", "4xh100-sxm")
    for words in (("sweep", *four), ("fit", *four), ("levers", *four), ("roofline", *four),
                  ("explain", "bound_s", *four)):  # fmt: skip
        assert "on 4 x h100-sxm" in rooflm(*words).out.partition("\n")[0]
    rows = rooflm("compare", "llama-3-70b", "--on", "2xh100-sxm,4xh100-sxm").out
    assert "2 x h100-sxm" in rows
    assert "4 x h100-sxm" in rows
