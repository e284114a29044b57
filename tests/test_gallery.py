"""The gallery: figures of the studies and of commands, by the data that their axes were given."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.errors import Exit
from rooflm.calc.study import prepare
from rooflm.calc.study_answer import answer, rows_of
from rooflm.calc.study_figures import draw_figures
from rooflm.calc.study_file import read_study
from rooflm.plots.data import data
from rooflm.plots.kinds import KINDS

from .figure_checks import check
from .helpers import Terminal

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/figures"
STUDIES = [p for p in sorted((ROOT / "studies").glob("*.yaml")) if "figures:" in p.read_text()]
SHOWN = r"^!.*?\(figures/(\w+)\.svg\)\n\n.*?: `(rooflm (?!study|validate).*?)(?: --plot FILE)?`$"
COMMANDS = re.findall(SHOWN, (ROOT / "docs/gallery.md").read_text("utf-8"), re.M)


def leaves(value: Any, where: str = "") -> Iterator[tuple[str, Any]]:
    """List the numbers and words of nested data by their place."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)  # pyright: ignore
        for key, inner in items:  # pyright: ignore[reportUnknownVariableType]
            yield from leaves(inner, f"{where}.{key}")
    else:
        yield where, value


def assert_same(found: Any, kept: Any) -> None:
    """Compare the data of a figure with those that lie beside it."""
    now, before = dict(leaves(found)), dict(leaves(kept))
    assert list(now) == list(before)
    for where, value in now.items():
        number = isinstance(value, float) and isinstance(before[where], int | float)
        wanted = pytest.approx(before[where], rel=1e-9, abs=1e-9) if number else before[where]
        assert value == wanted, where


@pytest.mark.parametrize("path", STUDIES, ids=lambda p: p.stem)
def test_figures_of_studies_are_current_and_legible(path: Path) -> None:
    """Data that drifted are caught by `make figures`; texts neither overlap nor leave the paper."""
    ready = prepare(read_study(str(path)))
    rows, _ = rows_of(ready, lambda done, of: None)
    told = answer(ready, rows)
    for figure, drawing in draw_figures(ready, told):
        assert_same(data(drawing), json.loads((FOLDER / f"{figure.name}.json").read_text("utf-8")))
        assert (FOLDER / f"{figure.name}.svg").is_file()
        check(drawing)


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_figures_of_commands_are_current(
    rooflm: Terminal, tmp_path: Path, name: str, command: str
) -> None:
    """A command of the gallery draws the data that lie beside its figure."""
    path = tmp_path / "figure.json"
    option = "--output" if command.startswith("rooflm plot") else "--plot"
    ran = rooflm(*shlex.split(command)[1:], option, str(path))

    assert ran.code == Exit.DONE, ran.err
    assert_same(json.loads(path.read_text("utf-8")),
                json.loads((FOLDER / f"{name}.json").read_text("utf-8")))  # fmt: skip


def test_the_gallery_has_every_kind() -> None:
    """Every kind is there with a figure, and every figure that lies there is shown."""
    text = (ROOT / "docs/gallery.md").read_text("utf-8")
    shown = set(re.findall(r"\(figures/(\w+)\.svg\)", text))

    assert {p.stem for p in FOLDER.glob("*.svg")} == shown
    assert {p.stem for p in FOLDER.glob("*.json")} == shown
    for kind in KINDS:
        section = text.partition(f"## {kind}\n")[2].partition("\n## ")[0]
        assert ".svg)" in section, kind


@pytest.mark.parametrize(
    "words",
    ["heatmap llama-3-8b --on h100-sxm --batch 1,8 --context 1k,8k --z regime",
     "reuse llama-2-13b --on h100-sxm --batch 1:64:x4",
     "roofline llama-3-8b --on h100-sxm,rtx-4090",
     "tornado bound_s llama-2-13b --on h100-sxm --batch 64",
     "laws --p 0.8,0.2 --q 0.5,0.5",
     "memory llama-3-8b --on rtx-4090 --batch 1,64 --context 8k",
     "pareto llama-3-8b --on h100-sxm,a100-sxm-80gb --batch 1,8",
     "cache llama-3-8b llama-2-7b --on h100-sxm --context 1k,16k",
     "sweep llama-3-8b --on h100-sxm --batch 1:64:x2 --slo 10ms"],
)  # fmt: skip
def test_plot_draws_what_its_command_answers(
    rooflm: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    """`rooflm plot KIND` types on as for the command of the kind, and writes the figure alone."""
    monkeypatch.chdir(tmp_path)
    kind = words.partition(" ")[0]
    ran = rooflm("plot", *words.split())

    assert ran.code == Exit.DONE, ran.err
    assert (tmp_path / f"{kind}.svg").read_text("utf-8").count("<path") > 20


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pie llama-3-8b --on h100-sxm", "unknown value 'pie'"),
        ("sweep llama-3-8b --on h100-sxm --z regime", "sweep has no such option (--z)"),
        ("validation x", "`rooflm validate` draws validation itself"),
        ("sweep llama-3-8b --on h100-sxm --chart -o x.svg", "a chart goes to the terminal"),
        ("sweep llama-3-8b --on h100-sxm -o x.bmp", "a figure is"),
        ("sweep llama-3-8b", "'--on'"),
        ("heatmap llama-3-8b --on h100-sxm --z regim", "regime"),
        ("sweep llama-3-8b --on h100-sxm --slo 3", "is not a time"),
    ],
)
def test_plot_says_what_is_wrong(rooflm: Terminal, words: str, said: str) -> None:
    """A wrong kind, option or file is refused in a sentence."""
    ran = rooflm("plot", *words.split())

    assert ran.code == Exit.USAGE
    assert said in ran.err
    assert ran.err.startswith("rooflm: error: ")


def test_draw_and_chart_are_options_of_commands(rooflm: Terminal, tmp_path: Path) -> None:
    """--draw chooses the kind of --plot, --chart draws below the table; neither is ignored."""
    words = ("sweep", "llama-3-8b", "--on", "h100-sxm", "--batch", "1,8,64", "--context", "1k,8k")
    path = str(tmp_path / "x.json")
    assert rooflm(*words, "--plot", path, "--draw", "heatmap:z=fits").code == Exit.DONE
    assert json.loads(Path(path).read_text("utf-8"))[0]["x"] == "batch [sequences]"
    ran = rooflm(*words, "--chart")
    assert ran.code == Exit.DONE
    table, _, chart = ran.out.partition("\n\n\n")
    assert "tokens/s" in table
    assert "throughput [tokens/s]" in ran.out
    assert max(map(len, chart.splitlines()), default=0) <= 100
    for wrong, said in (
        (("--draw", "heatmap"), "nothing is drawn"),
        (("--chart", "--format", "json"), "a chart stands below a table"),
        (("--plot", path, "--draw", "heatmap:w=1"), "unknown value 'w'"),
        (("--plot", path, "--draw", "pie"), "unknown value 'pie'"),
    ):
        refused = rooflm(*words, *wrong)
        assert refused.code == Exit.USAGE
        assert said in refused.err
