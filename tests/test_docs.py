"""Documents do not drift: what they show is what the program prints."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cogapp import Cog

from rooflm.calc.cli import app
from rooflm.calc.readings import FORMULAS
from rooflm.calc.schema import HARDWARE, MODEL, Field, json_schema
from rooflm.calc.yamlfile import load

ROOT = Path(__file__).resolve().parents[1]
GENERATED = [
    str(page.relative_to(ROOT))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
    if "[[[cog" in page.read_text("utf-8")
]


@pytest.mark.parametrize("name", GENERATED)
def test_generated_parts_are_current(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`make docs` would change nothing: cog runs in this process, as `python -m cogapp` runs it."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setenv("COLUMNS", "100")  # what a page sets is undone
    code = Cog().main(["cogapp", "-P", "--check", "-I", "docs", name])

    assert code == 0, capsys.readouterr()


@pytest.mark.parametrize(("name", "fields"), [("models", MODEL), ("hardware", HARDWARE)])
def test_schemas_for_editors_are_current(name: str, fields: dict[str, Field]) -> None:
    """The committed JSON Schema is the one of the fields, and the file points at it."""
    written = json.loads((ROOT / f"docs/schema/{name}.json").read_text("utf-8"))
    first = (ROOT / f"{name}.yaml").read_text("utf-8").partition("\n")[0]

    assert written == json_schema(fields, f"rooflm {name}")
    assert first == f"# yaml-language-server: $schema=docs/schema/{name}.json"


@pytest.mark.parametrize("name", ["models", "hardware"])
def test_the_schema_accepts_every_shipped_entry(name: str) -> None:
    """A validator that is not ours accepts the shipped files, and refuses a misspelt key."""
    schema = json.loads((ROOT / f"docs/schema/{name}.json").read_text("utf-8"))
    entries = load((ROOT / f"{name}.yaml").read_text("utf-8"), name).value
    validator = jsonschema.Draft202012Validator(schema)
    wrong: dict[str, Any] = {"x": {"dimz": {}}}

    assert [e.message for e in validator.iter_errors(entries)] == []
    assert list(validator.iter_errors(wrong))


def test_every_command_is_in_the_reference() -> None:
    """A command that is missing from docs/cli.md is caught here."""
    text = (ROOT / "docs/cli.md").read_text("utf-8")
    for command in app.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        assert f"## rooflm {name}\n" in text


def test_every_relative_link_leads_somewhere() -> None:
    """Links between the documents point at files."""
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_nomenclature_has_every_formula_and_letter() -> None:
    """Every formula and every letter of a signature is in the nomenclature."""
    text = (ROOT / "docs/nomenclature.md").read_text("utf-8")
    letters = {row.partition("|")[0].strip() for row in re.findall(r"^\| (.+)", text, re.M)}
    known = {letter for cell in letters for letter in cell.split(", ")}
    for name, formula in FORMULAS.items():
        assert f"`{name}`" in text
        for argument in inspect.signature(formula).parameters:
            if len(argument) == 1 or argument.startswith("b_"):
                assert argument in known | {"b"}, f"{name}: {argument}"


def test_wheel_lists_every_package_folder() -> None:
    """A folder with Python files that is missing from the wheel is caught here."""
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]
    folders = {p.parent.name for p in ROOT.glob("*/__init__.py")} - {"tests"}

    assert set(listed) == {"rooflm"} | {f"rooflm.{f}" for f in folders}


def test_the_design_has_every_module() -> None:
    """A module of calc/ that docs/design.md does not place is caught here."""
    text = (ROOT / "docs/design.md").read_text("utf-8")
    modules = {path.stem for path in (ROOT / "calc").glob("[a-z]*.py")}

    assert {name for name in modules if f"`{name}`" not in text} == set()


def test_make_lists_its_tasks() -> None:
    """A bare `make` prints every task with a word about it."""
    ran = subprocess.run(["make"], cwd=ROOT, capture_output=True, text=True, check=True)
    tasks = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M)

    for task in tasks:
        assert re.search(rf"^{task} +\w", ran.stdout, re.M), task
