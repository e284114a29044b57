"""What people see of live traffic."""

from __future__ import annotations

from typing import Any

from .output import Page, Table
from .pages import cell, title_of
from .units import show_gb, show_number

Answer = dict[str, Any]
MILLI = 1e-3

WAITS = (
    ("ttft_s", "to the first token"),
    ("itl_s", "between tokens"),
    ("tpot_s", "mean of a request between tokens"),
    ("e2e_s", "to the last token"),
)
"""Latencies as they are shown."""


RESERVED = (
    ("token_share", "with tokens in it"),
    ("future_share", "reserved for tokens that come"),
    ("internal_share", "reserved and never used"),
    ("external_share", "free while a request waits"),
)
"""Shares of a pool whose caches are in one piece."""


def serve_page(answer: Answer) -> Page:
    """Lay out what users wait for, and what the servers did."""
    rows = answer.get("rows")
    title = f"{title_of(answer)}, {answer['basis']}"
    notes = _notes(answer)
    if rows:
        return Page([_rates(rows, title)], [*notes, *answer["assumptions"]])
    waits = Table(
        ("time [ms]", "mean", "p50", "p90", "p99", "± of the mean"),
        [
            (name, *(cell(answer[key][q], MILLI) for q in ("mean", "p50", "p90", "p99")),
             cell(answer["intervals"].get(f"{key}.mean"), MILLI))
            for key, name in WAITS
        ],
        f"{title}: {_load(answer)}",
    )  # fmt: skip
    return Page([waits, _figures(answer)], [*notes, *answer["assumptions"]])


def _load(answer: Answer) -> str:
    """Say what came."""
    rate = answer["rate_requests_per_s"]
    if rate is None:
        return f"{answer['requests']:,} requests"
    return f"{show_number(rate)} requests/s"


def _figures(answer: Answer) -> Table:
    """List what the servers did, a figure in a row."""
    split, memory, form = answer["time_split"], answer["memory"], answer["closed_form"]
    rows = [
        ("throughput [tokens/s]", cell(answer["throughput_tokens_per_s"])),
        ("requests that ended [1/s]", cell(answer["throughput_requests_per_s"])),
    ]
    if answer["capacity_requests_per_s"] is not None:
        rows.append(("capacity [requests/s]", cell(answer["capacity_requests_per_s"])))
    if answer["attainment"] is not None:
        rows += [
            ("requests that kept the promise [%]", cell(answer["attainment"], 0.01)),
            ("goodput [requests/s]", cell(answer["goodput_requests_per_s"])),
        ]
    rows += [
        ("a request waits in the queue [ms]", cell(split["queueing_s"], MILLI)),
        ("its prompt is computed [ms]", cell(split["prefill_s"], MILLI)),
        *([] if split["handoff_s"] is None else
          [("its cache is handed on [ms]", cell(split["handoff_s"], MILLI))]),
        ("it decodes [ms]", cell(split["decode_s"], MILLI)),
        ("messages, of the busy time [%]", cell(split["communication_share"], 0.01)),
        ("servers are busy [%]", cell(split["busy_share"], 0.01)),
        ("sequences that decode, mean", cell(memory["mean_running_sequences"])),
        ("caches, mean and peak [GB]",
         f"{show_gb(memory['mean_bytes'])}, {show_gb(memory['peak_bytes'])}"),
        ("of the pool, mean and peak [%]",
         f"{cell(memory['mean_share'], 0.01)}, {cell(memory['peak_share'], 0.01)}"),
    ]  # fmt: skip
    if "unfilled_share" in memory:
        rows.append(("of it not filled [%]", cell(memory["unfilled_share"], 0.01)))
    rows += [
        (f"of the pool {what} [%]", cell(memory[key], 0.01))
        for key, what in RESERVED if key in memory
    ]  # fmt: skip
    if "hit_share" in memory:
        rows.append(("prompt tokens found in the cache [%]", cell(memory["hit_share"], 0.01)))
    rows += [
        ("requests that gave way", f"{answer['preemptions']:,.4g}"),
        ("closed form: prefill alone [ms]", cell(form["prefill_s"], MILLI)),
        ("closed form: between tokens [ms]", cell(form["itl_s"], MILLI)),
    ]
    return Table(("figure", "value"), rows)


def _rates(rows: list[Answer], title: str) -> Table:
    """Lay out a sweep over rates."""
    heads = ("rate [1/s]", "load", "TTFT mean [ms]", "p99", "ITL mean [ms]", "p99", "E2E mean [s]",
             "tokens/s", "goodput [1/s]", "kept [%]", "pool peak [%]", "gave way")  # fmt: skip
    cells = [
        (show_number(r["rate_requests_per_s"]), str(r["load"]),
         cell(r["ttft_s"]["mean"], MILLI), cell(r["ttft_s"]["p99"], MILLI),
         cell(r["itl_s"]["mean"], MILLI), cell(r["itl_s"]["p99"], MILLI),
         cell(r["e2e_s"]["mean"]), cell(r["throughput_tokens_per_s"]),
         cell(r["goodput_requests_per_s"]), cell(r["attainment"], 0.01),
         cell(r["cache"]["peak_share"], 0.01), f"{r['preemptions']:,.4g}")
        for r in rows
    ]  # fmt: skip
    return Table(heads, cells, title, keys=2)


def _notes(answer: Answer) -> list[str]:
    """Say what must not be overlooked."""
    said: list[str] = []
    found = answer.get("found_rate")
    if found is not None:
        half = found["half_width"]
        width = "" if half is None else f" ± {show_number(half)}"
        said.append(
            f"the largest rate at which {100 * found['attainment_asked']:g} % keep the promise: "
            f"{show_number(found['rate_requests_per_s'])}{width} requests/s (mean of "
            "replications)"
        )
        if found["limit"] == "capacity":
            said.append("the promise is kept up to the capacity, which is what limits the rate")
    if not answer["complete"]:
        said.append(
            f"interrupted: the figures are of {answer['replications']} replications, in each "
            f"{answer['measured_requests']:,} requests that were done and "
            f"{answer['unfinished_requests']:,} that were not"
        )
    if answer["load"] == "unstable":
        said.append(
            f"unstable: {show_number(answer['rate_requests_per_s'])} requests/s come and "
            f"{show_number(answer['capacity_requests_per_s'])} can be served; the queue grows "
            "without end, so that no wait is told"
        )
    elif answer["load"] == "near saturation":
        said.append(
            "near saturation: the queue has not settled, and a longer run would show longer waits"
        )
    return said
