"""What columns are called before people, and in which unit they are shown."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .plain import is_list, is_map

Answer = Mapping[str, Any]
Row = Mapping[str, Any]

WORDS = {
    "time_s": "time", "e2e_s": "time of a request", "ttft_s": "time to the first token",
    "itl_s": "time of a further token", "bound_s": "bound of the time",
    "estimate_s": "estimate of the time", "floor_s": "floor of the time",
    "tokens_per_s": "throughput", "tokens_per_s_per_device": "throughput of a device",
    "bound_tokens_per_s": "bound of the throughput", "memory_bytes": "memory",
    "weights_bytes": "weights", "kv_cache_bytes": "cache", "bytes": "traffic", "flops": "work",
    "capacity_bytes": "capacity", "margin_bytes": "memory that is left",
    "context_tokens": "context", "prompt_tokens": "prompt", "output_tokens": "output",
    "draft_tokens": "draft length", "draft_cost": "cost of a draft step",
    "batch": "batch", "max_sequences": "sequences that fit",
    "intensity_flops_per_byte": "intensity", "output_usd_per_mtok": "price of output",
    "joules_per_token": "energy", "speedup": "speed-up", "acceptance": "acceptance",
    "parameters": "parameters",
    "ttft_mean_s": "TTFT mean", "ttft_p50_s": "TTFT p50", "ttft_p90_s": "TTFT p90",
    "ttft_p99_s": "TTFT p99", "itl_mean_s": "ITL mean", "itl_p50_s": "ITL p50",
    "itl_p90_s": "ITL p90", "itl_p99_s": "ITL p99", "e2e_mean_s": "E2E mean",
    "e2e_p50_s": "E2E p50", "e2e_p90_s": "E2E p90", "e2e_p99_s": "E2E p99",
    "tpot_mean_s": "TPOT mean", "tpot_p99_s": "TPOT p99",
    "throughput_tokens_per_s": "throughput", "rate_requests_per_s": "rate",
    "throughput_requests_per_s": "requests that end", "capacity_requests_per_s": "capacity",
    "goodput_requests_per_s": "goodput", "communication_share": "share of messages",
}  # fmt: skip

PHASE_TIMES = {
    "decode": "time of a step", "denoise": "time of a step", "request": "time of a request",
    "prefill": "time to the first token", "served": "time of a token", "round": "time of a round",
}  # fmt: skip

UNITS = (
    ("usd_per_mtok", "USD per million tokens", 1.0),
    ("flops_per_byte", "FLOP/B", 1.0),
    ("tokens_per_s_per_device", "tokens/s", 1.0),
    ("tokens_per_s", "tokens/s", 1.0),
    ("flops_per_s", "TFLOP/s", 1e-12),
    ("bytes_per_s", "GB/s", 1e-9),
    ("joules_per_token", "J/token", 1.0),
    ("bytes", "GB", 1e-9),
    ("flops", "TFLOP", 1e-12),
    ("tokens", "tokens", 1.0),
    ("parameters", "billion", 1e-9),
    ("sequences", "sequences", 1.0),
    ("batch", "sequences", 1.0),
    ("requests_per_s", "requests/s", 1.0),
    ("_s", "s", 1.0),
)
"""Endings of keys, the longer first, with the unit that is shown and the factor to it."""


@dataclass(frozen=True)
class Quantity:
    """A column as axes and tables show it."""

    key: str
    words: str
    unit: str
    """Unit that is shown; "1" of a number without one, "" of words."""
    scale: float = 1.0
    """Factor from the answer's unit to the one that is shown."""

    @property
    def label(self) -> str:
        """What an axis says: words and, in brackets, the unit."""
        return f"{self.words} [{self.unit}]" if self.unit else self.words

    @property
    def head(self) -> str:
        """What heads a column of a table: the unit only where it says something new."""
        told = self.unit in ("", "1") or self.words.startswith(self.unit)
        return self.words if told else self.label

    def of(self, row: Row) -> float:
        """Take the value of a row in the unit that is shown."""
        return self.scale * row[self.key]

    def show(self, value: float) -> str:
        """Write a figure with its unit, to six digits."""
        unit = "" if self.unit in ("", "1") else f" {self.unit}"
        return f"{self.scale * value:,.6g}{unit}"


PHASES = ("decode", "denoise", "prefill", "request", "served")
"""What assumptions begin with that define the work of an answer."""


def words(key: str) -> str:
    """Put a key into words, without its unit."""
    if key in WORDS:
        return WORDS[key]
    ending = _ending(key)
    if ending != key:
        key = key.removesuffix(ending).strip("_")
    return re.sub("[_.]+", " ", key).strip()


def quantity(answer: Answer, key: str, rows: Sequence[Row]) -> Quantity:
    """Label a column: words, and a unit that suits the values of the rows."""
    facts = answer.get("facts")
    fact = facts.get(key) if is_map(facts) else None
    said = words(key)
    if any(isinstance(row.get(key), str) for row in rows):
        return Quantity(key, said, "")
    if is_map(fact):
        return Quantity(key, str(fact.get("label") or said), str(fact.get("unit") or 1))
    if key == "time_s":
        told = [phase_of(str(line)) for line in answer.get("assumptions") or ()]
        phase = answer.get("phase") or next(filter(None, told), "")
        said = PHASE_TIMES.get("round" if rows and "drafting_s" in rows[0] else str(phase), said)
    units = answer.get("units")
    if is_map(units) and key in units and not has_unit(key):
        return Quantity(key, said, str(units[key] or 1))
    ending = _ending(key)
    unit, scale = next(((u, f) for end, u, f in UNITS if end == ending), ("1", 1.0))
    sizes = [abs(row[key]) for row in rows if isinstance(row.get(key), int | float)]
    sizes = [size for size in sizes if size > 0] or [1.0]
    most = max(sizes)
    middle = math.sqrt(min(sizes) * most)
    if unit == "s" and middle < 0.3:
        unit, scale = ("ms", 1e3) if middle >= 3e-4 else ("\N{MICRO SIGN}s", 1e6)
    elif unit == "GB" and most < 1e8:
        unit, scale = ("MB", 1e-6) if most >= 1e5 else ("kB", 1e-3)
    elif unit == "TFLOP" and most < 1e10:
        unit, scale = "GFLOP", 1e-9
    elif unit == "billion" and most < 1e8:
        unit, scale = "million", 1e-6
    return Quantity(key, said, unit, scale)


def has_unit(key: str) -> bool:
    """Tell whether the ending of a key names a unit."""
    return bool(_ending(key))


def _ending(key: str) -> str:
    """Find the ending of a key that names a unit; "" of others: a share_of_batch is no batch."""
    for ending, _, _ in UNITS:
        whole = ending == "batch"
        inner = key.endswith(ending if ending.startswith("_") else (f"_{ending}", f".{ending}"))
        if key == ending or (inner and not whole):
            return ending
    return ""


def phase_of(line: str) -> str:
    """Name the phase that an assumption defines; "" of other assumptions."""
    phase = line.partition(":")[0]
    return phase if phase in PHASES else ""


def each_of(value: Any) -> list[str]:
    """List the names of one or of several."""
    return [str(v) for v in (value if is_list(value) else [value]) if v is not None]


def machines_of(answer: Mapping[str, Any]) -> list[str]:
    """Name the machines of an answer, each with the number of devices: 8 x h100-sxm."""
    rows, assumed = answer.get("rows"), answer.get("assumptions") or ()
    told: list[Mapping[str, Any]] = [answer, *(rows if is_list(rows) else ())]
    found: list[str] = []
    for name in each_of(answer.get("hardware")):
        counts = {
            row["devices"] for row in told
            if isinstance(row.get("devices"), int) and row.get("hardware", name) in (name, [name])
        }  # fmt: skip
        laid = [re.search(r"^layout: .*: (\d+) devices;", str(line)) for line in assumed]
        counts |= {int(found[1]) for found in laid if found and not counts}
        low, high = (min(counts), max(counts)) if counts else (1, 1)
        times = f"{low} to {high} x " if low < high else f"{high} x " if high > 1 else ""
        found.append(f"{times}{name}")
    return found
