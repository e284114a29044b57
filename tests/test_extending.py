"""The examples of docs/extending.md: an entry alone, and a mixer in one file and one line."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import rooflm.calc.mixers as mixers
from rooflm.calc.model import state_elements, total_parameters
from rooflm.calc.presets import find_model

PAGE = Path(__file__).resolve().parents[1] / "docs" / "extending.md"


def blocks(language: str) -> list[str]:
    """Take the examples of a language from the page."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE.read_text("utf-8"), re.M | re.S)


def test_an_entry_of_known_parts_needs_no_code(tmp_path: Path) -> None:
    """The example's parameters and state are those counted by hand."""
    (entry,) = blocks("yaml")
    (tmp_path / "my-hybrid-2b.yaml").write_text(entry, "utf-8")
    model = find_model(str(tmp_path / "my-hybrid-2b.yaml"))
    D, F, V, d, s = 2048, 8192, 65536, 4096, 128
    mamba = D * (2 * d + 2 * s + 64) + (d + 2 * s) * 5 + 3 * 64 + d + d * D
    attention = 2 * D * 16 * 128 + 2 * D * 4 * 128

    assert total_parameters(model) == (
        V * D + 20 * mamba + 4 * attention + 24 * (3 * D * F + 2 * D) + D
    )
    assert state_elements(model) == 20 * (d * s + 3 * (d + 2 * s))


def test_a_mixer_needs_one_file_and_one_line(tmp_path: Path) -> None:
    """A copy of the package with the example's file and line answers every command."""
    package = tmp_path / "rooflm"
    source = Path(mixers.__file__).parents[1]
    shutil.copytree(source / "calc", package / "calc", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("models.yaml", "hardware.yaml"):
        shutil.copy(source / name, package / name)
    code, line = blocks("python")
    (package / "calc" / "retention.py").write_text(code, "utf-8")
    registry = package / "calc" / "mixers.py"
    text = registry.read_text("utf-8")
    registry.write_text(text.replace("WHERE: dict[str, str] = {\n", f"WHERE = {{\n{line}"), "utf-8")
    entry = tmp_path / "retnet.yaml"
    entry.write_text(
        "retnet:\n  dims: {D: 2048, F: 4096, L: 24, V: 50000}\n"
        "  retention: {heads: 8, key: 256, value: 512}\n",
        "utf-8",
    )

    def answer(*words: str) -> dict[str, Any]:
        command = [sys.executable, "-m", "rooflm.calc", *words, "--format", "json"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return json.loads(ran.stdout)

    shown = answer("show", str(entry))
    layer = 2048 * 2 * (2048 + 4096) + 4096 * 2048
    assert shown["parameters"]["linear_mixer"] == 24 * layer
    assert shown["cache"]["state_elements_per_sequence"] == 24 * 8 * 256 * 512
    assert answer("fit", str(entry), "--on", "h100-sxm")["fits"]
    (row,) = answer("sweep", str(entry), "--on", "h100-sxm")["rows"]
    explained = answer("explain", "bound_s", str(entry), "--on", "h100-sxm")
    assert abs(explained["value"] / row["bound_s"] - 1) < 1e-12
    assert answer("solve", "batch", str(entry), "--on", "h100-sxm")["feasible"]
