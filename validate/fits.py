"""Which rows which constants are fitted on, and how wrong they are on rows that they had not seen.

Rows of one source, chip and model stay together. In alphabetical order, so that
both get every source and chip, they are dealt into halves in turn, each judged with the constants
of the other; where there are fewer than ten such groups, each is left out in turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..calc.engines import chip_kind, constants_of, find_engine
from ..calc.errors import RooflmError
from ..calc.estimate import Constants
from ..calc.fitting import Array, fit
from ..calc.model import has_experts
from ..calc.requests import MOST_INTERFERENCE
from .predict import Prediction
from .published import Row

FEW_GROUPS = 10
LIMITS: dict[str, tuple[float, float, float]] = {
    "layer_us": (40, 0.01, 900),
    "prefill_layer_us": (80, 0.01, 900),
    "sequence_us": (10, 0.01, 300),
    "message_us": (8, 0.01, 100),
    "experts": (0.7, 0.1, 1),
    "memory": (0.8, 0.05, 1),
    "attention": (0.7, 0.02, 1),
    "compute": (0.5, 0.01, 1),
    "int8": (0.9, 0.1, 1),
    "int4": (0.8, 0.1, 1),
    "fp8-block": (0.7, 0.1, 1),
}
"""First guess and limits of each constant."""
FORMATS = ("int8", "int4", "fp8-block")
"""Constants that are shares of a format."""


@dataclass(frozen=True)
class Set:
    """Rows that some constants of an engine are fitted on, and judged by."""

    name: str
    engine: str
    keys: tuple[str, ...]
    takes: Callable[[Row], bool]
    experts: bool | None = False
    """Models with experts, without (False), or both (None)."""
    kind: str = ""
    """Kind of chips whose constants they are, of an engine with kernels of its own."""
    group: Callable[[Prediction], str] = lambda prediction: prediction.group


def _of(engine: str, *kinds: str, several: bool | None = None) -> Callable[[Row], bool]:
    def takes(row: Row) -> bool:
        many = several is None or (row.devices > 1) == several
        return row.kind in kinds and many and engine_of(row) == engine

    return takes


def _on(engine: str, kind: str, *kinds: str) -> Callable[[Row], bool]:
    takes = _of(engine, *kinds, several=False)
    return lambda row: takes(row) and kind_of(row) == kind


def engine_of(row: Row) -> str | None:
    """Name the engine of the registry that a row ran on; None where it holds none for it."""
    version = row.version or ""
    match row.engine:
        case "tensorrt-llm":
            return "tensorrt-llm" if row.kind == "served" else "tensorrt-llm-0.9"
        case "vllm" if "2023" in version:
            return None
        case "vllm":
            return "vllm" if row.kind == "served" else "vllm-0.6"
        case "llama.cpp":
            if row.backend == "hip":
                return "llama.cpp-hip"
            # On Apple chips the years differ less than the rows.
            old = "2024" in version and not (row.hardware or "").startswith("apple")
            return "llama.cpp-2024" if old else "llama.cpp"
        case "compiled" | "exllama":
            return row.engine
        case _:
            return None


def kind_of(row: Row) -> str:
    """Name the kind of chips that a row belongs to, of an engine with kernels of its own."""
    engine = engine_of(row)
    return "" if engine is None or row.hardware is None else chip_kind(engine, row.hardware)


def sets() -> list[Set]:
    """List what is fitted, in the order in which it is: later constants build on earlier ones."""
    found = [
        Set("TensorRT-LLM 0.5-0.9, one device", "tensorrt-llm-0.9", ("layer_us", "sequence_us"),
            _of("tensorrt-llm-0.9", "decode", "request", several=False)),
        Set("TensorRT-LLM 0.5-0.9, tensor parallel", "tensorrt-llm-0.9", ("message_us",),
            _of("tensorrt-llm-0.9", "decode", "request", several=True)),
        Set("TensorRT-LLM 0.5-0.9, prefill", "tensorrt-llm-0.9", ("prefill_layer_us",),
            _of("tensorrt-llm-0.9", "prefill", several=False)),
        Set("vLLM 0.6, one device", "vllm-0.6", ("layer_us", "sequence_us"),
            _of("vllm-0.6", "decode", "request", several=False)),
        Set("vLLM 0.6, tensor parallel", "vllm-0.6", ("message_us",),
            _of("vllm-0.6", "decode", "request", several=True)),
        Set("compiled, one device", "compiled", ("int8", "int4"),
            _of("compiled", "decode", several=False)),
        Set("compiled, tensor parallel", "compiled", ("message_us",),
            _of("compiled", "decode", several=True)),
        Set("TensorRT-LLM 1.x, served", "tensorrt-llm", ("layer_us",),
            _of("tensorrt-llm", "served"), experts=None),
        Set("vLLM 0.12-0.18, served", "vllm", ("layer_us", "fp8-block", "int4"),
            _of("vllm", "served"), experts=None),
    ]  # fmt: skip
    for engine in ("llama.cpp", "llama.cpp-2024", "llama.cpp-hip", "exllama"):
        for kind, chip in find_engine(engine)["chips"].items():
            many = "experts" in chip
            found.append(
                Set(
                    f"{engine}, {kind}",
                    engine,
                    ("memory", "layer_us", "attention", "experts")
                    if many
                    else ("memory", "layer_us"),
                    _on(engine, kind, "decode"),
                    experts=None,
                    kind=kind,
                    group=(lambda p: str(p.row.model)) if many else (lambda p: p.group),
                )
            )
            if "compute" in chip:
                found.append(
                    Set(f"{engine}, {kind}, prefill", engine, ("compute",),
                        _on(engine, kind, "prefill"), experts=None, kind=kind)
                )  # fmt: skip
    return found


def engine_with(entry: Mapping[str, Any], kind: str, values: Mapping[str, float]) -> dict[str, Any]:
    """Put other constants into an engine; kind: of chips, where it has kernels of its own."""
    changed = copy.deepcopy(dict(entry))
    at: dict[str, Any] = changed["chips"][kind] if kind else changed
    for key, value in values.items():
        (changed["formats"] if key in FORMATS else at)[key] = value
    return changed


def estimates(
    predictions: Sequence[Prediction], name: str, entry: Mapping[str, Any]
) -> list[float]:
    """Estimate rows with an engine [s]."""
    known: dict[str, Constants] = {}
    found: list[float] = []
    for p in predictions:
        machine = p.case.machine
        if machine.name not in known:
            constants, why = constants_of(name, entry, machine)
            if constants is None:
                raise ValueError(f"{p.row.id}: {why}")
            known[machine.name] = constants
        found.append(p.estimate_s(known[machine.name]))
    return found


def fitted(
    chosen: Set, predictions: Sequence[Prediction], entry: Mapping[str, Any]
) -> dict[str, float]:
    """Fit the constants of a set to its rows, to the digits that a fit is worth."""
    start, low, high = zip(*(LIMITS[key] for key in chosen.keys), strict=True)

    def predict(values: Array) -> list[float]:
        named = dict(zip(chosen.keys, map(float, values), strict=True))
        return estimates(predictions, chosen.engine, engine_with(entry, chosen.kind, named))

    best = fit(predict, start, low, high, [p.measured_s for p in predictions])
    return dict(zip(chosen.keys, map(figure, best), strict=True))


def figure(value: float) -> float:
    """Round to the digits that a fit is worth."""
    return float(f"{value:.3g}")


def folds(groups: Sequence[str]) -> list[int]:
    """Deal groups in alphabetical order into two halves in turn; few ones into one fold each."""
    names = sorted(set(groups))
    ways = len(names) if len(names) < FEW_GROUPS else 2
    return [names.index(group) % ways for group in groups]


def unseen(
    chosen: Set,
    predictions: Sequence[Prediction],
    entry: Mapping[str, Any],
    groups: Sequence[str] | None = None,
) -> tuple[list[float], list[dict[str, float]]]:
    """Estimate each row with constants that were fitted without its fold, and tell those.

    groups: in place of those of the set, such as sources. Returns the estimates [s], not a number
    where there is one group only, and the constants without each fold, in the order of the folds.
    """
    fold = folds(groups or [chosen.group(p) for p in predictions])
    found, stored = [float("nan")] * len(predictions), list[dict[str, float]]()
    if len(set(fold)) < 2:
        return found, stored
    for out in sorted(set(fold)):
        seen = [p for p, f in zip(predictions, fold, strict=True) if f != out]
        stored.append(fitted(chosen, seen, entry))
        left = [i for i, f in enumerate(fold) if f == out]
        changed = engine_with(entry, chosen.kind, stored[-1])
        seconds = estimates([predictions[i] for i in left], chosen.engine, changed)
        for i, s in zip(left, seconds, strict=True):
            found[i] = s
    return found, stored


def members(chosen: Set, predictions: Iterable[Prediction]) -> list[Prediction]:
    """Pick the rows of a set that the engine can estimate."""
    entry = find_engine(chosen.engine)
    return [
        p
        for p in predictions
        if chosen.takes(p.row)
        and (chosen.experts is None or has_experts(p.case.model) == chosen.experts)
        and not gap(p, chosen.engine, entry)
    ]


def gap(prediction: Prediction, name: str, entry: Mapping[str, Any]) -> str:
    """Say why an engine has no estimate of a row; "" where it has one."""
    constants, why = constants_of(name, entry, prediction.case.machine)
    if constants is None:
        return why
    try:
        share = prediction.interference(constants)
        prediction.estimate_s(constants)
    except RooflmError as e:
        return e.what
    return "prefills of others are more than half of a token" if share > MOST_INTERFERENCE else ""


def summary(errors: Iterable[float]) -> dict[str, Any]:
    """Median and 90th percentile of the sizes of errors, and their number."""
    sizes = np.abs(np.array([e for e in errors if e == e], dtype=float))
    if not len(sizes):
        return {"rows": 0, "median": None, "p90": None}
    return {
        "rows": len(sizes),
        "median": float(np.median(sizes)),
        "p90": float(np.quantile(sizes, 0.9)),
    }
