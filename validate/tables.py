"""What people see of a run: its steps, the parts of them, and the device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from ..calc.errors import RooflmError
from ..calc.output import Page, Table
from ..calc.plain import is_map, is_number
from ..calc.yamlfile import read_text

HEADS = (
    "model", "weights", "cache", "phase", "batch", "context", "measured [ms]", "p10-p90", "bound",
    "at ceilings", "estimate", "calibrated", "of its limit", "attention", "why not",
)  # fmt: skip
"""Columns of the steps; predictions are errors: predicted / measured - 1. The limit is the measured
read rate of a decode step, and the measured rate of products of a prefill."""


def read_answer(path: str) -> dict[str, Any]:
    """Read a run that was kept as JSON; raises `RooflmError` for anything else."""
    try:
        answer: Any = json.loads(read_text(Path(path)), parse_constant=_no_number)
    except json.JSONDecodeError as e:
        raise RooflmError(f"the file is no JSON: {e.msg}", f"{path}:{e.lineno}:{e.colno}") from None
    except RecursionError:
        raise RooflmError("the file is nested too deeply", path) from None
    if not is_map(answer) or answer.get("schema") != "rooflm.validate/1":
        fix = "Make one with `rooflm validate ... --output run.json`."
        raise RooflmError("the file holds no run of rooflm validate", path, fix)
    _check(answer, path)
    from .judge import summary, told

    # A run that was killed has rows, and neither calibrations nor a summary.
    whole = dict[str, Any](answer)
    whole.setdefault("calibrations", [])
    whole["summary"] = summary(whole["rows"])
    return whole | {"assumptions": told(whole)}


def _no_number(word: str) -> float:
    raise json.JSONDecodeError(f"{word} is no number", word, 0)


NEEDED: dict[str, tuple[type, ...]] = {
    "device": (dict,), "ceilings": (dict,), "checks": (list,), "rows": (list,), "ranks": (int,),
    "date": (str,), "interrupted": (bool,),
}  # fmt: skip
"""Keys of a run that is read again."""
WORDS = "model", "asked", "weights"
"""Words that every row has."""
POSITIVE = (
    "batch", "context_tokens", "measured_s", "measured_low_s", "measured_high_s", "bytes",
    "read_share", "weights_bytes", "memory_bytes",
)  # fmt: skip
"""Numbers above zero that every measured row has."""
KNOWN = "bound_s", "ceiling_bound_s", "calibrated_s", "peak_bytes", "allocated_weights_bytes"
"""The same where they are known."""
ERRORS = "bound_error", "ceiling_error", "error", "calibrated_error"
"""Relative errors, where they are known."""


def _check(answer: Mapping[str, Any], path: str) -> None:
    """Raise `RooflmError` for a run that lacks what a report needs."""
    for key, kinds in NEEDED.items():
        if not isinstance(answer.get(key), kinds):
            raise RooflmError(f"the run has no usable '{key}'", path)
    for i, row in enumerate(answer["rows"]):
        if not is_map(row):
            raise RooflmError(f"row {i + 1} of the run is no mapping", path)
        wrong = _wrong_key(row)
        if wrong is not None:
            raise RooflmError(f"row {i + 1} of the run has no usable '{wrong}'", path)


def _wrong_key(row: Mapping[str, Any]) -> str | None:
    """Find a key of a row that is missing or is not of its kind."""
    usable: dict[str, bool] = {key: isinstance(row.get(key), str) for key in WORDS}
    measured = row.get("measured_s", 0) is not None
    usable["excluded"] = isinstance(row.get("excluded", 0), str | None if measured else str)
    if measured:
        usable |= {key: _is_positive(row.get(key)) for key in POSITIVE}
        usable |= {key: row.get(key) is None or _is_positive(row[key]) for key in KNOWN}
        usable |= {key: row.get(key) is None or _is_finite(row[key]) for key in ERRORS}
        usable["kernels"] = is_map(row.get("kernels"))
        usable["parts"] = isinstance(row.get("parts"), list)
    return next((key for key, is_usable in usable.items() if not is_usable), None)


def _is_finite(value: Any) -> bool:
    return is_number(value) and isfinite(value)


def _is_positive(value: Any) -> bool:
    return _is_finite(value) and value > 0


def page(answer: Mapping[str, Any]) -> Page:
    """Lay out a run."""
    tables = [steps_table(answer["rows"])]
    furthest = worst(answer["rows"])
    if furthest is not None:
        tables.append(parts_table(furthest))
    if answer["checks"]:
        tables.append(checks_table(answer["checks"]))
    return Page(tables, [*summary_told(answer), *answer["assumptions"]])


def steps_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Lay out every point."""
    cells = [_step(row) for row in rows]
    keep = [i for i in range(len(HEADS)) if i < 7 or any(row[i] not in ("", "-") for row in cells)]
    heads = [HEADS[i] for i in keep]
    words = [h for h in ("weights", "cache", "phase", "attention", "why not") if h in heads]
    return Table(heads, [[row[i] for i in keep] for row in cells], keys=1, words=words)


def _step(row: Mapping[str, Any]) -> tuple[str, ...]:
    about = (
        row["model"], row["weights"], row["kv"] or "-", row.get("phase", "-"),
        _count(row.get("batch")), _count(row.get("context_tokens")),
    )  # fmt: skip
    if row["measured_s"] is None:
        return (*about, *["-"] * 8, row["excluded"] or "")
    spread = f"{1e3 * row['measured_low_s']:,.4g}-{1e3 * row['measured_high_s']:,.4g}"
    return (
        *about,
        f"{1e3 * row['measured_s']:,.4g}",
        spread,
        percent(row["bound_error"]),
        percent(row["ceiling_error"]),
        percent(row["error"]),
        percent(row["calibrated_error"]),
        _limit(row),
        row["kernels"].get("attention", "-"),
        "",
    )


def _limit(row: Mapping[str, Any]) -> str:
    share = row["read_share"] if row["phase"] == "decode" else row.get("compute_share")
    return "-" if share is None else f"{100 * share:.0f} %"


def checks_table(checks: Sequence[Mapping[str, Any]]) -> Table:
    """Lay out whether the step computes what it should."""
    heads = ("checked on small shapes", "weights", "cache", "off a cacheless fp32 forward",
             "allowed", "agrees", "off bf16, random weights", "same token")  # fmt: skip
    cells = [
        (
            c["model"], c["weights"], c["kv"], _scientific(c["relative_error"]),
            _scientific(c["allowed"]), _agrees(c),
            _scientific(c["error_against_bf16"]),
            "-" if c["same_token"] is None else f"{100 * c['same_token']:.0f} %",
        )
        for c in checks
    ]  # fmt: skip
    return Table(heads, cells, keys=1, words=("weights", "cache", "agrees"))


def _agrees(check: Mapping[str, Any]) -> str:
    return {True: "yes", False: "NO"}.get(check["agrees"], "-")


def worst(rows: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Find the step that is furthest from its bound at measured ceilings."""
    judged = [r for r in rows if r.get("ceiling_error") is not None]
    return max(judged, key=lambda r: abs(r["ceiling_error"]), default=None)


def parts_table(row: Mapping[str, Any]) -> Table:
    """Lay out the parts of one step: which of them is off."""
    heads = ("part", "measured [ms]", "bound [ms]", "at ceilings [ms]", "at ceilings / measured")
    cells = [
        (
            p["part"],
            _ms(p["measured_s"]),
            _ms(p["bound_s"]),
            _ms(p["ceiling_bound_s"]),
            "-"
            if not p["measured_s"] or p["ceiling_bound_s"] is None
            else f"{p['ceiling_bound_s'] / p['measured_s']:.2f}",
        )
        for p in row["parts"]
    ]
    which = (
        f"{row['model']}, {row['weights']}, batch {row['batch']}, {row['context_tokens']} tokens"
    )
    return Table(heads, cells, f"furthest from its bound, by part: {which}")


def ceilings_table(answer: Mapping[str, Any]) -> Table:
    """Lay out what was measured of the device itself."""
    found = answer["ceilings"]
    rows = [
        (f"{name} [GB/s]", *_rates(found[name], "bytes_per_s"), found[name]["kernel"])
        for name in ("read", "copy")
    ]  # fmt: skip
    rows += [
        (f"products in {name} [GFLOP/s]", *_rates(r, "flops_per_s"),
         " x ".join(map(str, r["shape"])))
        for name, r in found["matmul"].items()
    ]  # fmt: skip
    rows += [
        (f"start of a kernel, {name.removesuffix('_s')} [us]", f"{1e6 * s:,.3g}", "", "")
        for name, s in found["launch"].items()
        if name.endswith("_s") and s is not None
    ]
    rows += [
        (f"all-reduce of {m['bytes']:,} B [us]", f"{1e6 * m['seconds']:,.4g}",
         f"{1e6 * m['low_s']:,.4g}-{1e6 * m['high_s']:,.4g}", "")
        for m in found.get("all_reduce", ())
    ]  # fmt: skip
    return Table(("ceiling", "median", "p10-p90", "by"), rows, keys=1, words=("by",))


def _rates(found: Mapping[str, Any], unit: str) -> tuple[str, str]:
    """Write a rate and its spread in units of 1e9."""
    middle, low, high = (f"{found[key + unit] / 1e9:,.4g}" for key in ("", "low_", "high_"))
    return middle, f"{low}-{high}"


def plan_page(answer: Mapping[str, Any]) -> Page:
    """Lay out what would run."""
    heads = ("model", "weights", "cache", "phase", "batch", "context", "layers", "memory [GB]",
             "fits", "about [s]", "why not")  # fmt: skip
    cells = [
        (
            r["model"], r["weights"], r["kv"] or "-", r.get("phase", "-"), _count(r.get("batch")),
            _count(r.get("context_tokens")), _layers(r),
            f"{r['memory_bytes'] / 1e9:,.2f}" if "memory_bytes" in r else "-",
            {True: "yes", False: "no"}.get(r.get("fits"), "-"),
            f"{r['expected_s']:,.1f}" if "expected_s" in r else "-", r.get("excluded") or "",
        )
        for r in answer["rows"]
    ]  # fmt: skip
    words = ("weights", "cache", "phase", "fits", "why not")
    notes = (
        f"{answer['device']['name']}: {answer['free_bytes'] / 1e9:,.1f} GB are free",
        f"about {answer['expected_s']:,.0f} s in all, and the ceilings before; nothing has run",
    )
    return Page([Table(heads, cells, keys=1, words=words)], notes)


def _layers(row: Mapping[str, Any]) -> str:
    if "layers" not in row:
        return "-"
    whole = row["cut_from_layers"]
    return f"{row['layers']}" if whole is None else f"{row['layers']} of {whole}"


def summary_told(answer: Mapping[str, Any]) -> list[str]:
    """Say in sentences how far off the predictions were."""
    s = answer["summary"]
    said = [f"{s['measured']} of {s['points']} points were measured on {answer['device']['name']}"]
    if s["not_below_bound"] is not None:
        said.append(f"{100 * s['not_below_bound']:.0f} % are not below the bound at ceilings")
    for key, what in (
        ("median_bound_error", "bound"),
        ("median_ceiling_error", "bound at measured ceilings"),
        ("median_error", "estimate"),
        ("median_calibrated_error", "calibrated on the other half"),
    ):
        if s[key] is not None:
            said.append(f"{what}: off by {100 * s[key]:.1f} % (median)")
    if s["median_memory_error"] is not None:
        said.append(f"memory: off by {100 * s['median_memory_error']:.1f} % (median)")
    if answer["interrupted"]:
        said.append("the run was interrupted: this is what had been measured")
    return ["; ".join(said)]


def percent(share: float | None) -> str:
    """Write an error with its sign."""
    return "-" if share is None else f"{100 * share:+.1f} %"


def _scientific(value: float | None) -> str:
    return "-" if value is None else f"{value:.1e}"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:,.4g}"
