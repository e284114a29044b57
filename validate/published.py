"""The table of published measurements: what others measured, as facts with their sources."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ..calc.errors import RooflmError, nearest

PUBLISHED_FILE = Path(__file__).with_name("published.yaml")

METRICS: dict[str, tuple[str, ...]] = {
    "decode": (
        "ms_per_token", "tokens_per_s_per_sequence", "tokens_per_s_total",
        "tokens_per_s_per_device",
    ),
    "prefill": ("ms_total", "s_total", "tokens_per_s_total", "tokens_per_s_per_device"),
    "request": (
        "s_total", "ms_total", "output_tokens_per_s_total", "output_tokens_per_s_per_device",
        "total_tokens_per_s_incl_prompt",
    ),
    "op": ("us",),
    "served": ("ms_per_token",),
}  # fmt: skip
"""What a row of each kind may state."""


@dataclass(frozen=True)
class Row:
    """One published figure. What the source does not say is None."""

    id: str
    source: str
    kind: str
    """decode, prefill, request, op or served."""
    metric: str
    value: float
    engine: str
    model: str | None = None
    """Preset of the same shape; None where there is none."""
    hardware: str | None = None
    """Preset of the chip; None where there is none."""
    devices: int = 1
    weights: str | None = None
    kv: str | None = None
    version: str | None = None
    batch: int | None = None
    """Sequences; tokens of an op [1]."""
    past: int = 0
    """Tokens in the cache before the prompt [tokens]."""
    prompt: int | None = None
    """Tokens of the prompt [tokens]."""
    generated: int | None = None
    """Tokens generated [tokens]."""
    op: str | None = None
    """Matrix product of a layer: qkv, out, gate_up or down."""
    backend: str | None = None
    flash_attention: bool | None = None
    concurrency: int | None = None
    """Clients of served traffic [1]."""
    ttft_ms: float | None = None
    """Time to first token of served traffic [ms]."""
    tp: int | None = None
    attention_dp: int = 1
    moe_tp: int = 1
    moe_ep: int = 1
    published_model: str | None = None
    published_hardware: str | None = None
    published_weights: str | None = None
    excluded: str | None = None
    """Why no closed form can predict the row honestly; None where one can."""
    note: str | None = None


FIELDS = tuple(f.name for f in dataclasses.fields(Row))


@cache
def _file(path: Path) -> Mapping[str, Any]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    with path.open(encoding="utf-8") as file:
        return yaml.load(file, Loader=loader)


def sources(path: Path = PUBLISHED_FILE) -> Mapping[str, Mapping[str, Any]]:
    """Tell title, url, date and notes of each source by its key."""
    return _file(path)["sources"]


def rows(path: Path = PUBLISHED_FILE) -> tuple[Row, ...]:
    """Read all rows. Raises `RooflmError` where one has keys or words that it may not have."""
    return tuple(_row(entry, path) for entry in _file(path)["rows"])


def _row(entry: Mapping[str, Any], path: Path) -> Row:
    where = f"{path.name}, row {entry.get('id', '?')}"
    for key in entry:
        if key not in FIELDS:
            raise RooflmError(f"unknown key '{key}'", where, nearest(key, FIELDS) or "")
    try:
        row = Row(**entry)
    except TypeError as e:
        raise RooflmError(str(e).partition("() ")[2], where) from None
    if row.kind not in METRICS or row.metric not in METRICS[row.kind]:
        raise RooflmError(f"a {row.kind} has no metric '{row.metric}'", where)
    return row


def measured_s(row: Row) -> float:
    """Seconds that a row measured: of a step, a prefill, a request, an op, or a served token [s].

    Raises `RooflmError` where batch or lengths that it needs are not stated.
    """
    value, batch, devices = row.value, row.batch, row.devices
    if row.metric in ("ms_per_token", "ms_total"):
        return value / 1e3
    if row.metric == "us":
        return value / 1e6
    if row.metric == "s_total":
        return value
    if row.metric == "tokens_per_s_per_sequence":
        return 1 / value
    tokens = _tokens(row)
    if batch is None or tokens is None:
        raise RooflmError("its batch or its lengths are not stated", row.id)
    rate = value * devices if row.metric.endswith("_per_device") else value
    return batch * tokens / rate


def _tokens(row: Row) -> int | None:
    """Tokens of a sequence that a rate counts."""
    if row.kind == "decode":
        return 1
    if row.kind == "prefill":
        return row.prompt
    if row.metric == "total_tokens_per_s_incl_prompt":
        return None if None in (row.prompt, row.generated) else row.prompt + row.generated  # pyright: ignore
    return row.generated
