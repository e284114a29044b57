"""What people see of levers."""

from __future__ import annotations

from typing import Any

from .output import Page, Table
from .pages import cell, count, title_of, yes
from .units import show_gb

Answer = dict[str, Any]


def levers_page(answer: Answer) -> Page:
    """Lay out levers by their effect, and how each is reproduced and checked."""
    base = answer["base"]
    priced = base["output_usd_per_mtok"] is not None
    heads = ["lever", "acts on", "token [ms]", "faster", "tokens/s", "throughput", "memory [GB]",
             "memory kept", *(["USD/Mtok", "cost kept"] if priced else []), "fits",
             "sequences that fit"]  # fmt: skip
    cells = [_cells(row, priced) for row in answer["rows"]]
    now = {"lever": "as it is", "acts_on": "-", "speedup": 1.0, "throughput_gain": 1.0,
           "memory_kept": 1.0, "cost_kept": 1.0}  # fmt: skip
    title = (
        f"{title_of(answer | {'rows': []})}, batch {base['batch']:,}, context "
        f"{base['context_tokens']:,}, {answer['basis']}: levers by {answer['by']}"
    )
    effects = Table(heads, [_cells(base | now, priced), *cells], title, keys=1, words=heads[:2])
    checks = [(row["lever"], row["check"], row["command"]) for row in answer["rows"]]
    also = ("lever", "to check", "command")
    tables = [effects, Table(also, checks, words=also)]
    if answer["not_tried"]:
        left = [(row["lever"], row["reason"]) for row in answer["not_tried"]]
        tables.append(Table(("not tried", "why"), left, words=("not tried", "why")))
    share = f"the cache is {100 * answer['cache_share']:.0f} % of the bytes of a step"
    return Page(tables, [share, *answer["assumptions"]])


def _cells(row: Answer, priced: bool) -> tuple[str, ...]:
    cost = [cell(row["output_usd_per_mtok"]), _share(row["cost_kept"])] if priced else []
    return (
        row["lever"], row["acts_on"], cell(row["time_s"], 1e-3), f"{row['speedup']:.2f}x",
        cell(row["tokens_per_s"]), f"{row['throughput_gain']:.2f}x",
        show_gb(row["memory_bytes"]), _share(row["memory_kept"]), *cost,
        yes(row["fits"]), count(row["max_sequences"]),
    )  # fmt: skip


def _share(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.0f} %"
