"""Questions that people asked in public are answered by commands they could type."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rooflm.calc.errors import Exit
from rooflm.calc.plain import is_list
from rooflm.calc.units import parse_size

from .golden import table
from .helpers import Terminal

GOLDEN: dict[str, Any] = table("questions")
QUESTIONS: list[dict[str, Any]] = GOLDEN["questions"]


@pytest.fixture
def models(tmp_path: Path) -> str:
    """Write a file of the models that have no preset."""
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump(GOLDEN["models"]), "utf-8")
    return str(path)


def look_up(answer: Any, key: str) -> Any:
    """Take a figure by the steps to it, a number for a place in a list."""
    for step in key.split("."):
        answer = answer[int(step) if is_list(answer) else step]
    return answer


@pytest.mark.parametrize("asked", QUESTIONS, ids=[q["source"] for q in QUESTIONS])
def test_a_question_has_the_answer_worked_by_hand(
    rooflm: Terminal, models: str, asked: dict[str, Any]
) -> None:
    """Every command finds the expected figures, exact or to the digits of the question."""
    for answer in asked["answers"]:
        ran = rooflm(*answer["run"].split(), "--models", models, "--format", "json")
        # That 16-bit weights do not fit is no matter here.
        assert ran.code in (Exit.DONE, Exit.NO), ran.err

        for key, said in answer["expect"].items():
            expected = parse_size(said, key) if isinstance(said, str) else said
            value = look_up(ran.json, key)
            if "rel" in answer:
                expected = pytest.approx(expected, rel=answer["rel"])
            assert value == expected, f"{answer['run']}: {key}"
