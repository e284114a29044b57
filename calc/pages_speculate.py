"""What people see of speculation."""

from __future__ import annotations

from typing import Any

from .labels import machines_of
from .output import Page, Table
from .pages import cell, paid_columns, yes
from .plain import is_list
from .units import show_gb

Answer = dict[str, Any]


def speculate_page(answer: Answer) -> Page:
    """Lay out rounds of speculation on a machine, beside plain decoding."""
    rows = answer["rows"]
    paid, paid_cells = paid_columns(rows)
    silent = ["without messages"] if "speedup_without_messages" in rows[0] else []
    heads = ["batch", "context", "drafted", "tokens a round", "draft [ms]", "verify [ms]",
             "plain step [ms]", "speed-up", *silent, "tokens/s", *paid, "draft [GB]",
             "memory [GB]", "fits", "regime"]  # fmt: skip
    cells = [
        (f"{r['batch']:,}", f"{r['context_tokens']:,}", f"{r['draft_tokens']}",
         f"{r['expected_tokens']:.3f}", *(cell(r[k], 1e-3) for k in ("drafting_s", "verifying_s",
         "plain_s")), _times(r["speedup"]),
         *([_times(r["speedup_without_messages"])] if silent else []), cell(r["tokens_per_s"]),
         *paid_cells[i], show_gb(r["draft_weights_bytes"] + r["draft_cache_bytes"]),
         show_gb(r["memory_bytes"]), yes(r["fits"]), r["regime"])
        for i, r in enumerate(rows)
    ]  # fmt: skip
    title = (
        f"{answer['model']} drafted by {answer['draft']} on {', '.join(machines_of(answer))}, "
        f"{answer['basis']}"
    )
    notes = [_falls(f, len(answer["falls_below_1"]) > 1) for f in answer["falls_below_1"]]
    return Page([Table(heads, cells, title, keys=2)], [*notes, *answer["assumptions"]])


def _falls(found: Answer, several: bool) -> str:
    """Say at which batches a draft length gains."""
    where = f" at context {found['context_tokens']:,}" if several else ""
    drafted, last = f"a draft of {found['draft_tokens']}{where}", found["searched_to_batch"]
    if not found["gains"]:
        return f"{drafted} loses at every batch up to {last:,}"
    spans = [
        f"{g['from_batch']:,} to {last if g['to_batch'] is None else g['to_batch']:,}"
        for g in found["gains"]
    ]
    return (
        f"{drafted} gains at batches {' and '.join(spans)}, memory aside, of those up to {last:,}"
    )


def ideal_page(answer: Answer) -> Page:
    """Lay out speculation without models."""
    heads = ("draft cost", "drafted", "tokens a pass", "speed-up", "work")
    cells = [
        (f"{r['draft_cost']:g}", str(r["draft_tokens"]),
         f"{r['expected_tokens']:.4f}", _times(r["speedup"]), _times(r["work_factor"]))
        for r in answer["rows"]
    ]  # fmt: skip
    given = answer["acceptance"]
    alphas = given if is_list(given) else [given]
    title = f"acceptance {', '.join(f'{alpha:.12g}' for alpha in alphas)}"
    tables = [Table(heads, cells, title, keys=2)] if cells else []
    best = [
        (f"{b['draft_cost']:g}", _length(b["draft_tokens"]),
         "-" if b["draft_tokens_real"] is None else f"{b['draft_tokens_real']:.4f}",
         _times(b["speedup"]))
        for b in answer["best"]
    ]  # fmt: skip
    of = ("draft cost", "best length", "real optimum", "speed-up")
    return Page([*tables, Table(of, best, title, keys=1)], answer["assumptions"])


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
    return "longer" if value is None else str(value)


def _times(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"
