"""Draws the gallery: every figure of the studies, every other kind once, and their data.

The data that the axes were given lie beside the figures: a test draws again and compares data, not
pixels.
"""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transcript

from rooflm.calc.printing import data_text
from rooflm.calc.study import prepare
from rooflm.calc.study_answer import answer, rows_of
from rooflm.calc.study_figures import draw_figures
from rooflm.calc.study_file import read_study
from rooflm.plots.kinds import KINDS
from rooflm.plots.style import svg

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "docs/figures"

COMMANDS = {
    "tornado_levers": "rooflm levers llama-2-13b --on h100-sxm --batch 64",
    "plan": "rooflm plot plan llama-3-70b --on h100-sxm --devices 1:8 --context 4k",
    "accuracy": "rooflm plot accuracy --engine compiled",
    "timeline": "rooflm plot timeline llama-3-8b --on h100-sxm --rate 13 --requests 1000 "
    "--prompt lognormal:1024,1 --output-tokens exponential:256 --cache 16GB --replications 1",
    "latencies": "rooflm plot latencies llama-3-8b --on h100-sxm --rate 14 --requests 1000 "
    "--prompt lognormal:1024,1 --output-tokens exponential:256",
    "throughput_latency": "rooflm plot throughput-latency llama-3-8b --on h100-sxm "
    "--sweep rate=15,30,45,55,60,64 --replications 3",
}
"""Figures that no study has, by name."""


@dataclass(frozen=True)
class Shown:
    """A figure of the gallery."""

    name: str
    kind: str
    title: str
    command: str
    drawing: Any = None


def studies() -> list[Path]:
    """List the studies that have figures."""
    return [p for p in sorted((ROOT / "studies").glob("*.yaml")) if "figures:" in p.read_text()]


def drawn(path: Path) -> Iterator[Shown]:
    """Draw the figures of a study."""
    ready = prepare(read_study(str(path)))
    rows, _ = rows_of(ready, lambda done, of: None)
    command = f"rooflm study studies/{path.name} --figures FOLDER"
    for figure, drawing in draw_figures(ready, answer(ready, rows)):
        yield Shown(figure.name, figure.kind, figure.title, command, drawing)


def data_of(command: str) -> str:
    """Tell the data of a figure that a command draws."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figure.json"
        said = transcript.output(f"{command} {_file(command)} {path}")
        assert path.exists(), f"{command}: {said}"
        return path.read_text("utf-8")


def _file(command: str) -> str:
    """Tell which option of a command names the figure's file."""
    return "--output" if command.startswith("rooflm plot") else "--plot"


def write() -> None:
    """Draw all, and write the page that shows them."""
    FOLDER.mkdir(exist_ok=True)
    for old in FOLDER.iterdir():
        old.unlink()
    shown: list[Shown] = []
    for path in studies():
        for one in drawn(path):
            (FOLDER / f"{one.name}.svg").write_text(svg(one.drawing), "utf-8")
            (FOLDER / f"{one.name}.json").write_text(data_text(one.drawing), "utf-8")
            shown.append(one)
    for name, command in COMMANDS.items():
        words = shlex.split(command)
        kind = words[2] if words[1] == "plot" else "tornado"
        transcript.output(f"{command} {_file(command)} {FOLDER / name}.svg")
        (FOLDER / f"{name}.json").write_text(data_of(command), "utf-8")
        shown.append(Shown(name, kind, KINDS[kind].says, command))
    (ROOT / "docs/gallery.md").write_text(page(shown), "utf-8")


def page(shown: list[Shown]) -> str:
    """Write the gallery: kinds in their order, the figures of each below it."""
    made = "Made by `make figures`; the data of every figure lie beside it as JSON."
    lines = ["# Gallery", "", made, ""]
    for kind, about in KINDS.items():
        own = [one for one in shown if one.kind == kind]
        lines += [f"## {kind}", "", f"{about.says} It draws what `rooflm {about.command}` answers."]
        if kind == "validation":
            lines += ["", "![Measured steps against predictions](validation.svg)", ""]
            lines += [
                "Measured steps against predictions: `rooflm validate --from RUN.json --plot FILE`"
            ]
        for one in own:
            alt = (one.title or about.says).rstrip(".")
            option = " --plot FILE" if one.command.startswith("rooflm levers") else ""
            lines += [
                "",
                f"![{alt}](figures/{one.name}.svg)",
                "",
                f"{alt}: `{one.command}{option}`",
            ]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    write()
