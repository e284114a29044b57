"""Figures of a study: the answer that each kind draws, and its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .asked import case_of, speculated
from .errors import RooflmError
from .roofline import roofline
from .study import Ready, has_further, words_of
from .study_file import Drawn

MOST_ROOFLINES = 16


def draw_figures(ready: Ready, answer: Mapping[str, Any]) -> Iterator[tuple[Drawn, Any]]:
    """Draw the figures that a study asks for, one after the other."""
    from ..plots.kinds import draw
    from ..plots.style import entitle

    for figure in ready.figures:
        try:
            drawing = draw(figure.kind, figure_answer(ready, answer, figure), **figure.options)
        except RooflmError as e:
            if ".yaml:" in e.where:
                raise
            what = f"the figure '{figure.name}': {e.what}"
            raise RooflmError(what, figure.where, e.fix, e.code) from None
        if figure.title:
            entitle(drawing, figure.title)
        yield figure, drawing


def save_figures(ready: Ready, answer: Mapping[str, Any], folder: str) -> list[Path]:
    """Write the figures of a study into a folder; returns their files."""
    from ..plots.style import save

    if not ready.figures:
        fix = "Write figures: [{kind: sweep}] into it."
        raise RooflmError("the study has no figures", ready.study.path, fix)
    place = Path(folder)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        reason = (e.strerror or str(e)).lower()
        raise RooflmError(f"cannot make the folder: {reason}", f"--figures {folder}") from None
    paths: list[Path] = []
    for figure, drawing in draw_figures(ready, answer):
        paths.append(place / f"{figure.name}.svg")
        save(drawing, str(paths[-1]))
    return paths


def figure_answer(ready: Ready, answer: Mapping[str, Any], figure: Drawn) -> dict[str, Any]:
    """Make the answer that a kind of figure draws: the rows of a study, or what stands behind them.

    Rooflines, sensitivities and laws are no columns: they are answered anew for the rows that the
    figure takes.
    """
    rows = [r for r in answer["rows"] if all(r.get(k) in v for k, v in figure.at.items())]
    if not rows:
        raise RooflmError("no row is drawn", figure.where)
    if figure.kind in ("tornado", "roofline", "reuse") and not has_further(
        ready.study, _words(ready, rows[0])
    ):
        raise RooflmError("this is drawn of decode steps alone", figure.where)
    if figure.kind in ("roofline", "reuse"):
        return {"rooflines": list(_rooflines(ready, rows)), "assumptions": answer["assumptions"]}
    if figure.kind == "laws":
        return speculated(_words(ready, rows[0]))
    if figure.kind == "tornado":
        return _sensitivity(ready, rows)
    return {**answer, "rows": rows}


def _words(ready: Ready, row: Mapping[str, Any]) -> dict[str, Any]:
    """Tell what was typed for a row, batch and context apart."""
    study = ready.study
    combo = {
        name: row[column]
        for name, column in zip(study.axes, ready.axis_columns, strict=True)
        if name not in ("batch", "context")
    }
    return words_of(study, row["variant"], combo)


def _rooflines(ready: Ready, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    if len(rows) > MOST_ROOFLINES:
        what = f"{len(rows):,} rows are more than the {MOST_ROOFLINES} rooflines of a figure"
        raise RooflmError(what, "", "Choose some by at: {batch: 64}.")
    for row in rows:
        yield roofline(case_of(_words(ready, row)), row["batch"], row["context_tokens"])


def _sensitivity(ready: Ready, rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    from .definitions import Question
    from .explain import explain
    from .solve import sensitivity

    if len(rows) > 1:
        what = f"{len(rows):,} rows are meant; sensitivities are those of one"
        raise RooflmError(what, "", "Choose it by at: {variant: ..., batch: 64}.")
    row = rows[0]
    case = case_of(_words(ready, row))
    question = Question(case, row["batch"], row["context_tokens"])
    return {
        "model": case.model.name,
        "hardware": case.machine.name,
        "batch": row["batch"],
        "context_tokens": row["context_tokens"],
        "sensitivity": sensitivity(case, row["batch"], row["context_tokens"]),
        "letters": explain(question, "time_s")["letters"],
        "assumptions": list(ready.probes[row["variant"]].answer["assumptions"]),
    }
