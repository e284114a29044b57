"""Questions that people asked in public are answered by commands they could type."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from rooflm.calc.errors import Exit
from rooflm.calc.plain import is_list
from rooflm.calc.units import parse_size

from .golden import table
from .helpers import Terminal

TABLES: list[dict[str, Any]] = [
    table(name) for name in ("questions", "questions_speed", "questions_engines")
]
QUESTIONS: list[dict[str, Any]] = [q for found in TABLES for q in found["questions"]]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Write a file of the models that have no preset, and one of such hardware."""
    folder = tmp_path_factory.mktemp("questions")
    paths = {key: folder / f"{key}.yaml" for key in ("models", "hardware")}
    for key, path in paths.items():
        entries = {name: e for found in TABLES for name, e in found.get(key, {}).items()}
        path.write_text(yaml.safe_dump(entries), "utf-8")
    return paths


def look_up(answer: Any, key: str) -> Any:
    """Take a figure by the steps to it, a number for a place in a list."""
    for step in key.split("."):
        answer = answer[int(step) if is_list(answer) else step]
    return answer


@pytest.mark.parametrize("asked", QUESTIONS, ids=[q["source"] for q in QUESTIONS])
def test_a_question_has_the_answer_worked_by_hand(
    rooflm: Terminal, files: dict[str, Path], asked: dict[str, Any]
) -> None:
    """Every command finds the expected figures, exact or to the digits of the question.

    No bound is better than what somebody measured; what cannot be answered is refused in words.
    """
    for answer in asked["answers"]:
        words = shlex.split(answer["run"])
        more = ["--models", str(files["models"])]
        more += ["--hardware", str(files["hardware"])] if "--on" in words else []
        ran = rooflm(*words, *more, "--format", "json")
        if "refused" in answer:
            assert ran.code == Exit.USAGE
            assert answer["refused"] in ran.err
            continue
        # That 16-bit weights do not fit is no matter here.
        assert ran.code in (Exit.DONE, Exit.NO), ran.err

        for key, said in answer.get("expect", {}).items():
            expected = parse_size(said, key) if isinstance(said, str) else said
            value = look_up(ran.json, key)
            if "rel" in answer:
                expected = pytest.approx(expected, rel=answer["rel"])
            assert value == expected, f"{answer['run']}: {key}"
        for key, most in answer.get("at_most", {}).items():
            assert look_up(ran.json, key) <= most, f"{answer['run']}: {key}"
        for key, least in answer.get("at_least", {}).items():
            assert look_up(ran.json, key) >= least, f"{answer['run']}: {key}"
