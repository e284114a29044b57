"""What people see of a plan."""

from __future__ import annotations

from typing import Any

from .candidates import layout_name
from .output import Page, Table
from .pages import cell, yes
from .units import show_gb

HEADS = ("layout", "devices", "batch", "memory [GB]", "fits", "step [ms]", "tokens/s", "a device",
         "output [USD/M]", "energy [J/token]", "regime", "limit")  # fmt: skip


def plan_page(answer: dict[str, Any]) -> Page:
    """Lay out the layouts of a plan, the frontier, and what was rejected."""
    what = f"{answer['model']} on {answer['hardware']}, decode at {answer['context_tokens']:,} "
    what += f"tokens, {answer['basis']}"
    tables: list[Table] = []
    if answer["rows"]:
        shown, of = len(answer["rows"]), answer["qualifying"]
        title = f"{what}: {shown} of {of:,} layouts that do what is asked"
        tables.append(_table(answer["rows"], title))
    elif answer["nearest"] is not None:
        tables.append(_table([answer["nearest"]], f"{what}: none does; the nearest"))
    if answer["frontier"]:
        title = "frontier: less time costs tokens/s of a device"
        tables.append(_table(answer["frontier"], title))
    if answer["rejected"]:
        cells = [(r["reason"], f"{r['layouts']:,}", r["example"] or "") for r in answer["rejected"]]
        heads = ("rejected", "layouts", "for example")
        tables.append(Table(heads, cells, words=heads[2:]))
    notes = [answer["reason"]] if answer["reason"] else []
    if answer["rows"]:
        notes.append(f"the first: {answer['rows'][0]['command']}")
    return Page(tables, [*notes, *answer["assumptions"]])


def _table(rows: list[dict[str, Any]], title: str) -> Table:
    cells = [
        (
            layout_name(r), f"{r['devices']}", f"{r['batch']:,}", show_gb(r["memory_bytes"]),
            yes(r["fits"]), cell(r["time_s"], 1e-3), cell(r["tokens_per_s"]),
            cell(r["tokens_per_s_per_device"]), cell(r["output_usd_per_mtok"]),
            cell(r["joules_per_token"]), r["regime"], r.get("limit") or r["reason"],
        )
        for r in rows
    ]  # fmt: skip
    return Table(HEADS, cells, title, words=HEADS[-2:])
