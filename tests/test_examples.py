"""Commands that the documents and the help mention run as they are printed.

What stands in generated blocks has run when they were made; these are the rest.
"""

from __future__ import annotations

import inspect
import json
import re
import shlex
import struct
from pathlib import Path

import pytest

from rooflm.calc.cli import app
from rooflm.calc.cli_help import PURPOSES
from rooflm.calc.errors import Exit

from .helpers import Terminal

ROOT = Path(__file__).resolve().parents[1]
GENERATED = r"<!-- \[\[\[cog.*?\[\[\[end\]\]\] -->"
ELSEWHERE = {
    "docs/extending.md",  # test_extending.py
    "docs/gallery.md",  # test_gallery.py
}
"""Pages whose commands other tests run."""
NOT_RUN = {
    "rooflm --install-completion": "changes the shell of who runs it",
    "rooflm validate --quick": "measures for minutes; test_validate.py runs it with less",
    "rooflm accuracy --engine vllm --hardware h100-sxm --rows": "5 s; test_accuracy.py runs others",
    "rooflm plan deepseek-v3 --on 8xh200-sxm --devices 8,16 --network 50GB --throughput 20k": (
        "8 s; the same with --batch runs"
    ),
}
PLACEHOLDER = re.compile(r" (FILE|MODEL|FOLDER|COMMAND|N|…)\b| …")


def mentioned() -> list[str]:
    """Find commands with arguments, in words of their own or in the help's examples."""
    found: dict[str, None] = {}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        if str(page.relative_to(ROOT)) in ELSEWHERE:
            continue
        text = page.read_text("utf-8")
        if page.name == "cli.md":
            # The help wraps its lines.
            examples = re.findall(r"Example: (rooflm .*)", re.sub(r"\n  +(?=\S)", " ", text))
        else:
            own = re.sub(GENERATED, "", text, flags=re.DOTALL)
            examples = re.findall(r"`(rooflm [^`\n]+)`|^(?:\$ )?(rooflm \w.*--.*)$", own, re.M)
            examples = [a or b for a, b in examples]
        found |= dict.fromkeys(words.strip() for words in examples)
    return [
        words
        for words in found
        if len(words.split()) > 2
        and not PLACEHOLDER.search(words)
        and words not in NOT_RUN
        and not words.startswith("rooflm validate")
    ]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a folder with the files that the examples name, and go there."""
    for name in ("studies", "docs", "validate", "traces"):
        (tmp_path / name).symlink_to(ROOT / name)
    (tmp_path / "server.log").symlink_to(ROOT / "docs/examples/vllm.log")
    header = json.dumps({"w": {"dtype": "F32", "shape": [128, 2], "data_offsets": [0, 1024]}})
    numbers = struct.pack("<256f", *(n / 7 for n in range(256)))
    packed = struct.pack("<Q", len(header)) + header.encode() + numbers
    (tmp_path / "model.safetensors").write_bytes(packed)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("words", mentioned())
def test_what_is_mentioned_runs(rooflm: Terminal, words: str) -> None:
    """It answers, yes or no."""
    ran = rooflm(*shlex.split(words)[1:])

    assert ran.code in (Exit.DONE, Exit.NO), ran.err


def test_every_command_has_a_purpose_and_an_example(rooflm: Terminal) -> None:
    """The help lists each command once; each but `validate`, which lists runs, shows an example."""
    names = [name for group in PURPOSES.values() for name in group]
    listed = re.findall(r"^  ([a-z][a-z-]*)  +[A-Z]", rooflm("--help").out, re.M)

    assert sorted(names) == sorted(set(names))
    assert listed == names
    for name in names:
        assert f"rooflm {name}" in rooflm(name, "--help").out.partition("xample")[2], name


def test_the_help_of_a_command_lists_each_option_once(rooflm: Terminal) -> None:
    """Headings take options apart and lose none: those of `fit`, counted in its signature."""
    callbacks = [command.callback for command in app.registered_commands]
    fit = next(c for c in callbacks if c is not None and c.__name__ == "fit")
    typed = inspect.signature(fit).parameters
    _, _, below = rooflm("fit", "--help").out.partition("\nOptions:\n")
    listed = re.findall(r"^  (?:-[a-z], )?--([a-z-]+)", below, re.M)

    assert len(listed) == len(set(listed)) == len(typed) - len(["MODEL"]) + len(["--help"])
