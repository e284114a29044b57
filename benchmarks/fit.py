"""Make every constant of an estimate again, and every error that is claimed for it.

    python benchmarks/fit.py            print what a fit finds
    python benchmarks/fit.py --write    and put it into hardware.yaml, calc/engines.yaml and
                                        validate/unseen.yaml

Kernels are fitted on benchmarks/kernels/*.csv and judged by leaving shapes out in turn; engines on
validate/published.yaml, judged as validate/fits.py says. Takes a minute on one core.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import yaml

from rooflm.calc.engines import ENGINES_FILE, chip_kind, engine_names, find_engine
from rooflm.calc.errors import RooflmError
from rooflm.calc.estimate import WIDE
from rooflm.calc.fitting import Array, fit
from rooflm.calc.hardware import bound_flops
from rooflm.calc.presets import HARDWARE_FILE, find_machine
from rooflm.calc.readings import interpolated
from rooflm.validate import accuracy, fits
from rooflm.validate.fits import figure
from rooflm.validate.predict import Prediction
from rooflm.validate.predict import predict as predict_row
from rooflm.validate.published import rows

TABLES = Path(__file__).parent / "kernels"
TIMED = {
    "h100-sxm": "trtllm", "h200-sxm": "trtllm", "b200-sxm": "trtllm",
    "a100-sxm-80gb": "vllm", "l40s": "sglang",
}  # fmt: skip
"""Chips with timings, and the attention backend that is taken; matmuls have one each."""
ALL_REDUCE = {"a100-sxm-80gb": "sglang"}
"""Backend of the all-reduce where it is not TensorRT-LLM's: that one leaps on the A100."""
L2_MIB = {"h100-sxm": 50, "h200-sxm": 50, "b200-sxm": 126, "a100-sxm-80gb": 40, "l40s": 96}
"""Size of the L2, as the tables take it [MiB]."""
CACHED = 2
"""A cache below so many sizes of the L2 is read from there, in part."""
LARGE_MATRIX = 8e6
"""Bytes from which on a matrix counts as one that comes from memory."""
MATMULS = {"bf16": ("bf16", 2), "fp8": ("fp8", 1), "nvfp4": ("fp4", 0.5625)}
"""What a format computes in, and bytes of a number, with the scales of 16 (nvfp4)."""
FOLDS = 40
"""Shapes are left out in as many groups."""

Table = dict[str, Array]


def read(name: str, **wanted: str) -> Table:
    """Read the rows of a table of kernels that have all wanted values; numbers as arrays."""
    with (TABLES / f"{name}.csv").open(encoding="utf-8") as file:
        found = list(csv.DictReader(line for line in file if not line.startswith("#")))
    kept = [r for r in found if all(r[k].startswith(v) for k, v in wanted.items())]
    texts = ("hardware", "format", "backend")
    return {k: np.array([float(r[k]) for r in kept]) for k in found[0] if k not in texts}


def where(table: Table, mask: Any) -> Table:
    """Keep some rows of a table."""
    return {k: v[mask] for k, v in table.items()}


def left_out(
    form: Callable[[Table, Array], Array],
    table: Table,
    start: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
    shape: Sequence[str],
) -> tuple[Array, Array]:
    """Fit a form, and predict each shape without it.

    form: table and constants to seconds; shape: columns that make one. Returns the constants and
    the predictions [s].
    """
    seconds = table["latency_us"] * 1e-6
    shapes = sorted(set(zip(*(table[c] for c in shape), strict=True)))
    number = {s: i % FOLDS for i, s in enumerate(shapes)}
    fold = np.array([number[s] for s in zip(*(table[c] for c in shape), strict=True)])
    whole = fit(lambda c: form(table, c), start, low, high, list(seconds))
    predicted = np.empty(len(seconds))
    for out in sorted(set(fold)):
        seen = where(table, fold != out)
        own = fit(lambda c, seen=seen: form(seen, c), start, low, high, list(seconds[fold != out]))
        predicted[fold == out] = form(where(table, fold == out), own)
    return whole, predicted


def error(predicted: Array, table: Table, mask: Any = slice(None)) -> float:
    """Mean relative error of predictions [1]."""
    return float(np.abs(predicted / (table["latency_us"] * 1e-6) - 1)[mask].mean())


def matmul(chip: str, name: str) -> dict[str, Any] | None:
    """Fit matrix products from memory, of a format."""
    machine, (compute, size) = find_machine(chip), MATMULS[name]
    table = read("matmul", hardware=chip, format=name)
    if not len(table["m"]):
        return None
    table = where(table, (size * table["n"] * table["k"] >= LARGE_MATRIX) & (table["l2_ratio"] > 1))
    peak, bandwidth = bound_flops(machine, compute), machine.bandwidth_bytes_per_s

    def form(t: Table, c: Array) -> Array:
        moved = size * (t["m"] * t["k"] + t["n"] * t["k"]) + 2 * t["m"] * t["n"]
        work = 2 * t["m"] * t["n"] * t["k"]
        return c[0] * 1e-6 + np.maximum(moved / bandwidth / c[1], work / peak / c[2])

    whole, unseen = left_out(form, table, (4, 0.8, 0.7), (0.1,) * 3, (50, 1, 1), ("m", "n", "k"))
    return entry(start_us=whole[0], memory=whole[1], compute=whole[2]) | {
        "rows": len(unseen), "error": figure(error(unseen, table)),
    }  # fmt: skip


def decode_attention(chip: str, backend: str) -> tuple[dict[str, Any], dict[str, float]]:
    """Fit attention of decode steps: the first bytes, about those that a cache holds, apart."""
    machine = find_machine(chip)
    cache = L2_MIB[chip] * 2**20
    table = read("decode_attention", hardware=chip, backend=backend)
    large = table["l2_ratio"] > CACHED
    # Timings of the L40S below twice its L2 are those of the L2.
    steep = chip == "l40s"
    if steep:
        table, large = where(table, large), slice(None)
    wide = not steep and bool((table["H"] > WIDE).any())
    first_bytes = 0 if steep else CACHED * cache

    def form(t: Table, c: Array) -> Array:
        moved = 4 * t["b"] * t["s"] * t["K"] * t["H"] / machine.bandwidth_bytes_per_s
        first = np.minimum(moved, first_bytes / machine.bandwidth_bytes_per_s)
        if wide:
            moved, first = (x / np.where(t["H"] > WIDE, c[3], 1) for x in (moved, first))
        slow = first / c[2] if len(c) > 2 else 0
        return c[0] * 1e-6 + slow + (moved - first) / c[1]

    start, low, high = (12, 0.9, 0.7, 0.9), (0.1, 0.1, 0.1, 0.1), (100, 1, 9, 1)
    n = 2 if steep else 4 if wide else 3
    shape = ("b", "s", "N", "K", "H")
    whole, unseen = left_out(form, table, start[:n], low[:n], high[:n], shape)
    kernel = entry(start_us=whole[0], memory=whole[1])
    if not steep:
        kernel |= entry(small_memory=min(1.0, whole[2])) | {"small_bytes": int(first_bytes)}
    judged = {"all rows": error(unseen, table), "beyond the cache": error(unseen, table, large)}
    if wide:
        kernel |= entry(wide_memory=whole[3])
    return kernel | {
        "rows": len(unseen), "error": figure(judged["beyond the cache"]),
    }, judged  # fmt: skip


def prefill_attention(chip: str, backend: str) -> dict[str, Any]:
    """Fit causal attention: its share of the peak grows with the context."""
    table = read("prefill_attention", hardware=chip, backend=backend)
    peak = bound_flops(find_machine(chip), "bf16")

    def form(t: Table, c: Array) -> Array:
        work = 4 * t["b"] * t["N"] * t["H"] * t["s"] * (t["s"] + 1) / 2
        return c[0] * 1e-6 + work * (1 + c[2] / t["s"]) / peak / c[1]

    shape = ("b", "s", "N", "K", "H")
    whole, unseen = left_out(form, table, (13, 0.57, 500), (0.1, 0.1, 1), (100, 1, 9000), shape)
    return entry(start_us=whole[0], compute=whole[1], short_tokens=whole[2]) | {
        "rows": len(unseen), "error": figure(error(unseen, table)),
    }  # fmt: skip


def all_reduce(chip: str) -> tuple[dict[int, dict[int, float]], dict[int, float]]:
    """Take the measured curves, and judge them by leaving each size out in turn."""
    curves: dict[int, dict[int, float]] = {}
    errors: dict[int, float] = {}
    for ranks in (2, 4, 8):
        table = read("all_reduce", hardware=chip, backend=ALL_REDUCE.get(chip, "trtllm"))
        table = where(table, table["ranks"] == ranks)
        points = sorted(zip(table["bytes"], table["latency_us"], strict=True))
        curves[ranks] = {int(moved): round(float(us), 2) for moved, us in points}
        missed = [
            abs(interpolated(float(moved), points[:i] + points[i + 1 :]) / us - 1)
            for i, (moved, us) in enumerate(points) if 0 < i < len(points) - 1
        ]  # fmt: skip
        errors[ranks] = float(np.mean(missed))
    return curves, errors


def entry(**values: float) -> dict[str, Any]:
    """Round constants."""
    return {key: figure(float(value)) for key, value in values.items()}


def kernels(write: bool) -> dict[str, Any]:
    """Fit all kernels of all timed chips; returns the errors on unseen shapes."""
    text = HARDWARE_FILE.read_text(encoding="utf-8")
    told: dict[str, Any] = {}
    for chip, backend in TIMED.items():
        fitted = {
            "matmul": matmul(chip, "bf16"), "matmul_fp8": matmul(chip, "fp8"),
            "matmul_fp4": matmul(chip, "nvfp4"),
        }  # fmt: skip
        found: dict[str, Any] = {k: v for k, v in fitted.items() if v}
        errors: dict[str, Any] = {k: v["error"] for k, v in found.items()}
        for name in found:
            # Timings of 8 and 4 bits quantize activations on the way, for some us: engines fuse it.
            found[name]["start_us"] = found["matmul"]["start_us"]
        found["decode"], judged = decode_attention(chip, backend)
        errors |= {f"decode attention, {k}": figure(v) for k, v in judged.items()}
        found["prefill"] = prefill_attention(chip, backend)
        errors["prefill attention"] = found["prefill"]["error"]
        if chip != "l40s":
            found["all_reduce"], missed = all_reduce(chip)
            errors |= {f"all-reduce, {n} ranks": figure(e) for n, e in missed.items()}
        told[chip] = errors
        print(chip, errors, file=sys.stderr)
        text = with_kernels(text, chip, found)
    if write:
        HARDWARE_FILE.write_text(text, encoding="utf-8")
    return told


def with_kernels(text: str, chip: str, found: Mapping[str, Any]) -> str:
    """Put the kernels of a chip into the text of hardware.yaml."""
    lines = ["  kernels:", "    source: aiconfigurator", f'    date: "{datetime.date.today()}"']
    for key, values in found.items():
        if key == "all_reduce":
            lines.append("    all_reduce:")
            lines += [f"      {n}: {flow(curve)}" for n, curve in values.items()]
        else:
            lines.append(f"    {key}: {flow(values)}")
    block = re.compile(
        rf"(^{re.escape(chip)}:\n(?:(?!^\S)[^\n]*\n)*?)  kernels:\n(?:    [^\n]*\n)+", re.M
    )
    changed, n = block.subn(lambda m: m[1] + "\n".join(lines) + "\n", text, count=1)
    if n != 1:
        raise RooflmError(f"{chip} has no block of kernels", HARDWARE_FILE.name)
    return changed


def flow(values: Mapping[Any, Any]) -> str:
    """Write a mapping on one line."""
    return "{" + ", ".join(f"{k}: {v:.12g}" for k, v in values.items()) + "}"


def engines(write: bool) -> None:
    """Fit all sets in order, and judge each."""
    predictions: list[Prediction] = []
    for row in rows():
        if row.excluded is None:
            try:
                predictions.append(predict_row(row))
            except RooflmError:
                continue
    found = {name: dict(find_engine(name)) for name in engine_names()}
    unseen: dict[str, Any] = {}
    ratios: dict[str, list[Ratio]] = {}
    for chosen in fits.sets():
        kept = fits.members(chosen, predictions)
        if not kept:
            print(f"{chosen.name}: no rows", file=sys.stderr)
            continue
        base = found[chosen.engine]
        values = fits.fitted(chosen, kept, base)
        judged, stored = fits.unseen(chosen, kept, base)
        unseen[chosen.name] = stored
        errors = [s / p.measured_s - 1 for s, p in zip(judged, kept, strict=True)]
        told = fits.summary(errors)
        print(chosen.name, values, told, file=sys.stderr)
        entry_ = fits.engine_with(base, chosen.kind, values)
        seen_ratios = [
            (p.case.machine.family, p.measured_s / s, p.case.layout is not None)
            for s, p in zip(judged, kept, strict=True) if s == s
        ]  # fmt: skip
        if chosen.kind:
            chip = entry_["chips"][chosen.kind]
            if chosen.keys != ("compute",):
                ratios.setdefault(chosen.engine, []).extend(seen_ratios)
                chip |= {"rows": len(kept), **rounded(told)} | band(seen_ratios)
        else:
            key = "prefill" if chosen.keys == ("prefill_layer_us",) else "steps"
            ratios.setdefault(f"{chosen.engine} {key}", []).extend(seen_ratios)
            entry_["bands"] = bands(ratios, chosen.engine)
        entry_["date"] = str(datetime.date.today())
        found[chosen.engine] = entry_
    for name, entry_ in found.items():
        for chip in entry_.get("chips", {}).values():
            if "low" not in chip and len(ratios.get(name, ())) >= accuracy.FEW_ROWS:
                # Too few of its own: the band of all chips with the engine.
                chip |= {k: v for k, v in band(ratios[name]).items() if k != "rows"}
    sources = left_out_sources(predictions, found)
    print(sources, file=sys.stderr)
    if write:
        write_engines(found)
        header = "# Constants of each set without one of its folds; made by benchmarks/fit.py.\n"
        text = yaml.safe_dump({"sets": unseen, "left_out": sources}, sort_keys=False, width=100)
        accuracy.UNSEEN_FILE.write_text(header + text, encoding="utf-8")


def rounded(told: Mapping[str, Any]) -> dict[str, float]:
    """Round median and p90, where they are known."""
    return {k: figure(told[k]) for k in ("median", "p90") if told[k] is not None}


Ratio: TypeAlias = tuple[str, float, bool]
"""Family of a row, measured time as a share of the estimate, and whether several devices ran it."""


def band(ratios: Sequence[Ratio]) -> dict[str, Any]:
    """Shares of the estimate that hold 88 % of the measurements; nothing for too few."""
    if len(ratios) < accuracy.FEW_ROWS:
        return {}
    low, high = np.quantile([r for _, r, _ in ratios], [accuracy.LOW, accuracy.HIGH])
    return entry(low=low, high=high) | {"rows": len(ratios)}


def bands(ratios: Mapping[str, list[Ratio]], engine: str) -> dict[str, Any]:
    """Bands of steps by family of chips and of all, of those on several devices, of prefills."""
    steps = ratios.get(f"{engine} steps", [])
    kinds = {"all": steps, "all, several devices": [r for r in steps if r[2]]}
    for family in sorted({r[0] for r in steps}):
        kinds[family] = [r for r in steps if r[0] == family]
        kinds[f"{family}, several devices"] = [r for r in kinds[family] if r[2]]
    kinds["prefill"] = ratios.get(f"{engine} prefill", [])
    return {
        kind: made | rounded(fits.summary(1 / r - 1 for _, r, _ in own))
        for kind, own in kinds.items() if (made := band(own))
    }  # fmt: skip


def left_out_sources(predictions: Sequence[Prediction], found: Mapping[str, Any]) -> dict[str, Any]:
    """Judge sets of several sources by leaving out one source at a time.

    llama.cpp of all years together: a source is of one year.
    """
    told: dict[str, Any] = {}
    for chosen in fits.sets():
        kept = fits.members(chosen, predictions)
        names = [p.row.source for p in kept]
        if len(set(names)) >= 3 and not chosen.kind:
            judged, _ = fits.unseen(chosen, kept, found[chosen.engine], names)
            told[chosen.name] = tell(judged, kept)
    errors: list[tuple[float, Prediction]] = []
    entry_ = found["llama.cpp"]
    for chosen in (s for s in fits.sets() if s.kind and s.engine == "llama.cpp"):
        if chosen.keys == ("compute",):
            continue
        kept = [p for p in predictions if of_kind(p, chosen.kind, entry_)]
        names = [p.row.source for p in kept]
        for source in sorted(set(names)):
            seen = [p for p in kept if p.row.source != source]
            left = [p for p in kept if p.row.source == source]
            if len(seen) <= len(chosen.keys):
                # As many rows as constants fit exactly, and tell nothing.
                continue
            errors += zip(without_source(chosen, seen, left, entry_), left, strict=True)
    told["llama.cpp, all years, where more rows than constants are left"] = tell(
        [s for s, _ in errors], [p for _, p in errors]
    )
    return told


def of_kind(p: Prediction, kind: str, entry_: Mapping[str, Any]) -> bool:
    """Tell whether a row is llama.cpp's, of any year, on a kind of chips."""
    row, most = p.row, entry_["chips"][kind]["most_batch"]
    return (
        row.engine == "llama.cpp"
        and row.kind == "decode"
        and row.devices == 1
        and row.backend != "hip"
        and (row.batch or 0) <= most
        and chip_kind("llama.cpp", row.hardware or "") == kind
    )


def without_source(
    chosen: fits.Set,
    seen: Sequence[Prediction],
    left: Sequence[Prediction],
    entry_: Mapping[str, Any],
) -> list[float]:
    """Estimate rows with constants fitted on others; attention as each row had it [s]."""

    def estimates(predictions: Sequence[Prediction], values: Mapping[str, float]) -> list[float]:
        found: list[float] = []
        for p in predictions:
            usual = {"attention": WITH_FLASH if p.row.flash_attention else WITHOUT_FLASH}
            changed = fits.engine_with(entry_, chosen.kind, usual | dict(values))
            found += fits.estimates([p], chosen.engine, changed)
        return found

    start, low, high = zip(*(fits.LIMITS[key] for key in chosen.keys), strict=True)
    measured = [p.measured_s for p in seen]

    def predict(c: Array) -> list[float]:
        return estimates(seen, dict(zip(chosen.keys, map(float, c), strict=True)))

    best = fit(predict, start, low, high, measured, rounds=15)
    return estimates(left, dict(zip(chosen.keys, map(float, best), strict=True)))


WITH_FLASH, WITHOUT_FLASH = 0.7, 0.35
"""Share of the bandwidth of matmuls that llama.cpp's attention reaches."""


def tell(judged: Sequence[float], kept: Sequence[Prediction]) -> dict[str, Any]:
    """Rows, median and p90 of judged rows."""
    told = fits.summary(s / p.measured_s - 1 for s, p in zip(judged, kept, strict=True))
    return {"rows": told["rows"], **rounded(told)}


def write_engines(found: Mapping[str, Any]) -> None:
    """Write the registry of engines."""
    text = ENGINES_FILE.read_text(encoding="utf-8")
    header = "".join(line + "\n" for line in text.splitlines() if line.startswith("#"))
    body = "\n".join(
        yaml.safe_dump({name: entry_}, sort_keys=False, width=100) for name, entry_ in found.items()
    )
    ENGINES_FILE.write_text(f"{header}\n{body}", encoding="utf-8")


def main() -> int:
    """Fit kernels, then engines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write what was found")
    parser.add_argument("--only", choices=("kernels", "engines"))
    asked = parser.parse_args()
    if asked.only != "engines":
        kernels(asked.write)
    if asked.only != "kernels":
        engines(asked.write)
    return 0


if __name__ == "__main__":
    sys.exit(main())
