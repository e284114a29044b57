"""What people see of speculation."""

from __future__ import annotations

from typing import Any

from .output import Page, Table
from .units import show_gb, show_number

Answer = dict[str, Any]


def speculate_page(answer: Answer) -> Page:
    """Lay out rounds of speculation on a machine, beside plain decoding."""
    rows = answer["rows"]
    silent = ["without messages"] if "speedup_without_messages" in rows[0] else []
    heads = ["batch", "context", "drafted", "tokens a round", "draft [ms]", "verify [ms]",
             "plain step [ms]", "speed-up", *silent, "tokens/s", "memory [GB]", "fits",
             "regime"]  # fmt: skip
    cells = [
        (f"{r['batch']:,}", f"{r['context_tokens']:,}", f"{r['draft_tokens']}",
         f"{r['expected_tokens']:.3f}", *(_ms(r[k]) for k in ("drafting_s", "verifying_s",
         "plain_s")), _times(r["speedup"]),
         *([_times(r["speedup_without_messages"])] if silent else []), _cell(r["tokens_per_s"]),
         show_gb(r["memory_bytes"]), "yes" if r["fits"] else "no", r["regime"])
        for r in rows
    ]  # fmt: skip
    title = (
        f"{answer['model']} drafted by {answer['draft']} on {answer['hardware']}, {answer['basis']}"
    )
    notes = [_falls(f, len(answer["falls_below_1"]) > 1) for f in answer["falls_below_1"]]
    return Page([Table(heads, cells, title, keys=2)], [*notes, *answer["assumptions"]])


def _falls(found: Answer, several: bool) -> str:
    """Say from which batch on a draft length loses."""
    where = f" at context {found['context_tokens']:,}" if several else ""
    drafted = f"a draft of {found['draft_tokens']}{where}"
    if found["batch"] is None:
        return f"{drafted} gains up to batch {found['searched_to']:,}, the largest looked at"
    if found["batch"] == 1:
        return f"{drafted} loses already at batch 1"
    return f"{drafted} loses from batch {found['batch']:,} on"


def ideal_page(answer: Answer) -> Page:
    """Lay out speculation without models."""
    heads = ("acceptance", "draft cost", "drafted", "tokens a pass", "speed-up", "work")
    cells = [
        (f"{r['acceptance']:g}", f"{r['draft_cost']:g}", str(r["draft_tokens"]),
         f"{r['expected_tokens']:.4f}", _times(r["speedup"]), _times(r["work_factor"]))
        for r in answer["rows"]
    ]  # fmt: skip
    tables = [Table(heads, cells, keys=3)] if cells else []
    best = [
        (f"{b['acceptance']:g}", f"{b['draft_cost']:g}", _length(b["draft_tokens"]),
         "-" if b["draft_tokens_real"] is None else f"{b['draft_tokens_real']:.4f}",
         _times(b["speedup"]))
        for b in answer["best"]
    ]  # fmt: skip
    of = ("acceptance", "draft cost", "best length", "real optimum", "speed-up")
    return Page([*tables, Table(of, best, keys=2)], answer["assumptions"])


def laws_page(answer: Answer) -> Page:
    """Lay out one step of speculative sampling."""
    heads = ("token", "draft p", "target q", "accepted with", "accepted mass", "residual", "output",
             "if resampled from q")  # fmt: skip
    keys = ("draft", "target", "accept_probability", "accepted_mass", "residual", "output",
            "output_if_resampled_from_target")  # fmt: skip
    rows = [
        (str(r["token"]), *(_exact(r[k], e[k]) for k in keys))
        for r, e in zip(answer["rows"], answer["exact"]["rows"], strict=True)
    ]
    totals = [
        (name.replace("_", " "), _exact(answer[name], answer["exact"][name]))
        for name in ("acceptance", "rejected_mass", "error_if_resampled_from_target")
    ]
    tables = [Table(heads, rows, keys=1), Table(("together", "value"), totals)]
    return Page(tables, answer["assumptions"])


def _exact(value: float | None, text: str | None) -> str:
    """Show a chance, and the fraction where it is short and not plain already."""
    if value is None or text is None:
        return "-"
    short = f"{value:.6g}"
    return short if "/" not in text or len(text) > 9 else f"{short} ({text})"


def _length(value: int | None) -> str:
    return "no end" if value is None else str(value)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _ms(value: float | None) -> str:
    return "-" if value is None else show_number(1e3 * value)


def _cell(value: float | None) -> str:
    return "-" if value is None else show_number(value)
