"""Predictions beside published measurements: how wrong rooflm is, and where."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from ..calc.engines import constants_of, find_engine
from ..calc.errors import RooflmError
from ..calc.estimate import Constants
from .fits import Set, engine_of, engine_with, folds, gap, members, sets, summary
from .predict import Prediction, predict
from .published import Row, measured_s, rows

UNSEEN_FILE = Path(__file__).with_name("unseen.yaml")
"""Constants of each set without one of its folds, by set: what rows are judged with."""
LOW, HIGH = 0.06, 0.94
"""Quantiles of measured/estimate that a band spans."""

Judged = dict[str, Any]


def accuracy(
    wanted: Mapping[str, str], table: Sequence[Row] | None = None, by: str = "set"
) -> dict[str, Any]:
    """Judge every row that matches, each with constants that had not seen it.

    wanted: word that source, hardware, engine, kind, weights, model or batch must have; table: the
    published rows if None; by: what the summary groups by, `set` being what constants are
    fitted on together.
    """
    every = _published() if table is None else judge(table)
    judged = [row for row in every if _matches(row, wanted)]
    if not judged:
        what = "no published row has " + ", ".join(f"{k} {v}" for k, v in wanted.items())
        raise RooflmError(what, f"--{next(iter(wanted))}")
    groups: dict[str, list[Judged]] = {}
    for row in judged:
        name = row[by] if row[by] is not None else "no estimate" if by == "set" else "not stated"
        groups.setdefault(str(name), []).append(row)
    return {
        "schema": "rooflm.accuracy/1",
        "source": sorted({row["source"] for row in judged}),
        "by": by,
        "rows": judged,
        "summary": [
            {by: name, **totals(group)}
            for name, group in sorted(groups.items(), key=lambda item: item[0])
        ],
        "total": totals(judged),
        "assumptions": list(TOLD),
    }


TOLD = (
    "error: estimate / measured - 1, with constants fitted without the row: rows of one source, "
    "chip and model stay together, dealt into halves or, where those are fewer than ten, left out "
    "in turn",
    "one efficiency: the bound over the median share of it that the other rows on the chip reached",
    "band: where 88 % of the measurements of other folds lie, as a share of the estimate; in band: "
    "share of rows inside",
    "rows that no closed form can predict honestly stay in the table, with the reason (excluded)",
    "bounds of served rows are those of a decode step alone; old TensorRT-LLM rows fed equal "
    "prompts (equal experts), llama-batched-bench partly alike ones (rows**0.46, fitted on all of "
    "its rows)",
)


@cache
def _published() -> tuple[Judged, ...]:
    """Judge the shipped table once."""
    return tuple(judge(rows()))


def _matches(row: Judged, wanted: Mapping[str, str]) -> bool:
    exact = ("batch", "kind")
    return all(
        str(row[key]) == word if key in exact else word.lower() in str(row[key]).lower()
        for key, word in wanted.items()
    )


def judge(table: Iterable[Row]) -> list[Judged]:
    """Predict every row: those of a set with constants that had not seen them."""
    found: dict[str, Judged] = {}
    predictions: list[Prediction] = []
    for row in table:
        found[row.id] = _stated(row)
        if row.excluded is None:
            try:
                predictions.append(predict(row))
            except RooflmError as e:
                found[row.id]["no_estimate"] = e.what
    for p in predictions:
        found[p.row.id] |= {
            "measured_s": p.measured_s,
            "floor_s": p.floor_s,
            "bound_s": p.bound_s,
            "bound_error": p.bound_s / p.measured_s - 1,
            "mbu": p.bytes / p.measured_s / p.case.machine.bandwidth_bytes_per_s,
        }
    left = {p.row.id: p for p in predictions}
    for chosen in sets():
        kept = members(chosen, left.values())
        for p, constants, fold in unseen(chosen, kept):
            _estimated(found[p.row.id], p, p.estimate_s(constants), chosen.name, fold)
            del left[p.row.id]
    for p in left.values():
        # What no constant was fitted on is unseen with the constants of all rows.
        name = "vidur" if p.row.kind == "op" else engine_of(p.row)
        engine = "tensorrt-llm-0.9" if p.row.kind == "op" else name
        why = (
            "no constants of its engine" if engine is None else gap(p, engine, find_engine(engine))
        )
        if why:
            found[p.row.id]["no_estimate"] = why
            continue
        constants, _ = constants_of(str(engine), find_engine(str(engine)), p.case.machine)
        assert constants is not None
        kind = "matmuls" if p.row.kind == "op" else "not fitted on"
        _estimated(found[p.row.id], p, p.estimate_s(constants), f"{name}, {kind}", 0)
    answer = list(found.values())
    _one_efficiency(answer)
    _bands(answer)
    for row in answer:
        row.pop("fold")
    return answer


FIGURES = (
    "floor_s", "bound_s", "one_efficiency_s", "estimate_s", "estimate_low_s", "estimate_high_s",
    "error", "bound_error", "one_efficiency_error", "mbu",
)  # fmt: skip
"""What a row has once it is predicted."""


def _stated(row: Row) -> Judged:
    try:
        measured = measured_s(row)
    except RooflmError:
        measured = None
    return {
        "id": row.id,
        "source": row.source,
        "kind": row.kind,
        "model": row.model or row.published_model,
        "hardware": row.hardware or row.published_hardware,
        "devices": row.devices,
        "engine": row.engine,
        "version": row.version,
        "weights": row.weights or row.published_weights,
        "batch": row.concurrency if row.kind == "served" else row.batch,
        "prompt_tokens": row.prompt,
        "past_tokens": row.past,
        "output_tokens": row.generated,
        "set": None,
        "measured_s": measured,
        **dict.fromkeys(FIGURES),
        "excluded": row.excluded,
        "no_estimate": None,
        "fold": None,
    }


def _estimated(row: Judged, p: Prediction, seconds: float, name: str, fold: int) -> None:
    row |= {
        "set": name,
        "estimate_s": seconds,
        "error": seconds / p.measured_s - 1,
        "fold": fold,
    }


def unseen(chosen: Set, kept: Sequence[Prediction]) -> Iterable[tuple[Prediction, Constants, int]]:
    """Give each row of a set the constants that were fitted without its fold, and the fold."""
    stored = unseen_constants().get(chosen.name, [])
    fold = folds([chosen.group(p) for p in kept])
    if max(fold, default=-1) >= len(stored):
        what = f"rows of '{chosen.name}' are others than its constants were fitted on"
        raise RooflmError(what, UNSEEN_FILE.name, "benchmarks/fit.py --write makes them again.")
    for out, values in enumerate(stored):
        entry = engine_with(find_engine(chosen.engine), chosen.kind, values)
        for p, f in zip(kept, fold, strict=True):
            if f == out:
                constants, _ = constants_of(chosen.engine, entry, p.case.machine)
                assert constants is not None
                yield p, constants, f


@cache
def unseen_constants() -> Mapping[str, list[Mapping[str, float]]]:
    """Read the constants of each set without one of its folds, in the order of the folds."""
    return yaml.safe_load(UNSEEN_FILE.read_text(encoding="utf-8"))["sets"]


def _one_efficiency(answer: Sequence[Judged]) -> None:
    """Estimate each row by the median share of the bound that others of its chip reached."""
    known = [row for row in answer if row["estimate_s"] is not None]
    for row in known:
        others = [
            r["bound_s"] / r["measured_s"]
            for r in known
            if r["engine"] == row["engine"]
            and r["hardware"] == row["hardware"]
            and r["kind"] == row["kind"]
            and (r["fold"] != row["fold"] or r["set"] != row["set"])
        ]
        if others:
            row["one_efficiency_s"] = row["bound_s"] / float(np.median(others))
            row["one_efficiency_error"] = row["one_efficiency_s"] / row["measured_s"] - 1


def _bands(answer: Sequence[Judged]) -> None:
    """Give rows the band of the other folds of their set, or of their engine where few are left."""
    known = [row for row in answer if row["estimate_s"] is not None]
    for row in known:
        for same in (("set",), ("engine", "kind")):
            ratios = [
                r["measured_s"] / r["estimate_s"]
                for r in known
                if all(r[key] == row[key] for key in same)
                and (r["fold"] != row["fold"] or r["set"] != row["set"])
            ]
            if len(ratios) >= FEW_ROWS:
                low, high = np.quantile(ratios, [LOW, HIGH])
                row["estimate_low_s"] = max(float(low) * row["estimate_s"], row["floor_s"])
                row["estimate_high_s"] = float(high) * row["estimate_s"]
                break


FEW_ROWS = 8
"""Fewer rows than these make no band."""


def totals(group: Sequence[Judged]) -> dict[str, Any]:
    """Sum up rows: medians and 90th percentiles of the sizes of errors, coverage and width."""

    def sizes(key: str) -> dict[str, Any]:
        told = summary(
            row[key] for row in group if row[key] is not None and row["error"] is not None
        )
        return {f"{key}_median": told["median"], f"{key}_p90": told["p90"]}

    banded = [row for row in group if row["estimate_low_s"] is not None]
    inside = [
        row["estimate_low_s"] <= row["measured_s"] <= row["estimate_high_s"] for row in banded
    ]
    widths = [
        (row["estimate_high_s"] - row["estimate_low_s"]) / row["estimate_s"] for row in banded
    ]
    return {
        "rows": len(group),
        "judged": sum(row["error"] is not None for row in group),
        "excluded": sum(row["excluded"] is not None for row in group),
        **sizes("bound_error"),
        **sizes("one_efficiency_error"),
        **sizes("error"),
        "coverage": sum(inside) / len(inside) if inside else None,
        "band_width_median": float(np.median(widths)) if widths else None,
    }
