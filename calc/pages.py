"""What people see of an answer: its tables and its notes."""

from __future__ import annotations

from typing import Any

from .labels import machines_of
from .output import Page, Table, prints
from .units import show_gb, show_number

Answer = dict[str, Any]


def models_page(answer: Answer) -> Page:
    """Lay out the list of models."""
    rows = [
        (r["name"], r["hf"] or "", show_number(r["parameters"] / 1e9), show_gb(r["weights_bytes"]),
         f"{r['cache_bytes_per_token'] / 1e3:,.1f}", count(r["max_context_tokens"]))
        for r in answer["rows"]
    ]  # fmt: skip
    heads = ("model", "Hugging Face", "parameters [1e9]", "bf16 weights [GB]",
             "cache per token [kB]", "longest context")  # fmt: skip
    return Page([Table(heads, rows, keys=1, words=heads[1:2])])


def hardware_page(answer: Answer) -> Page:
    """Lay out the list of hardware; one chip alone with every figure."""
    rows = answer["rows"]
    if len(rows) == 1:
        heads = ("figure", "value", "note", "date", "source")
        figures = [
            (f["key"], _figure(f["value"]), f["note"] or "", f["date"] or "", f["url"] or "")
            for f in rows[0]["figures"]
        ]
        return Page(
            [Table(heads, figures, rows[0]["full_name"], words=heads[2:])], rows[0]["notes"]
        )
    heads = ("hardware", "kind", "label [GB]", "driver [GB]", "bandwidth [TB/s]",
             "bf16 [TFLOP/s]", "fp8 [TFLOP/s]", "power [W]", "price [USD/h]")  # fmt: skip
    cells = [
        (r["name"], r["kind"], cell(r["label_gb"]), cell(r["driver_bytes"], 1e9),
         cell(r["bandwidth_bytes_per_s"], 1e12), cell(r["bf16_flops_per_s"], 1e12),
         cell(r["fp8_flops_per_s"], 1e12), cell(r["power_w"]),
         cell(r["price_usd_per_hour"]))
        for r in rows
    ]  # fmt: skip
    notes = ("dense rates, no sparsity; - is not known or not there; "
             "`rooflm hardware NAME` gives sources",)  # fmt: skip
    return Page([Table(heads, cells, keys=1, words=heads[1:2])], notes)


def show_page(answer: Answer, provenance: bool = False) -> Page:
    """Lay out a model; with provenance, where each field came from."""
    dims = ", ".join(f"{k} = {v:,}" for k, v in answer["dimensions"].items())
    parts = [(k, f"{v:,}") for k, v in answer["parameters"].items()]
    sizes = [(k, f"{v:,.0f}", show_gb(v)) for k, v in answer["weights_bytes_by_format"].items()]
    asked = answer["weights_bytes"]
    if asked not in answer["weights_bytes_by_format"].values():
        sizes.append((answer["weights_format"], f"{asked:,.0f}", show_gb(asked)))
    cache = answer["cache"]
    states = any(g["state_elements_per_sequence"] for g in cache["layers"])
    layers = [
        (g["kind"], str(g["count"]), count(g["window_tokens"]), _number(g['elements_per_token']),
         *([f"{g['state_elements_per_sequence']:,}"] if states else []))
        for g in cache["layers"]
    ]  # fmt: skip
    columns = ["cache", "layers", "tokens kept at most", "elements per token and layer"]
    columns += ["state elements per layer"] if states else []
    tables = [
        Table(("parameters", "number"), parts, f"{answer['model']}: {dims}"),
        *([_changed(answer["changed"])] if "changed" in answer else []),
        Table(("weights", "bytes", "GB"), sizes),
    ]
    if layers:
        tables.append(Table(columns, layers))
    if "ranks" in answer:
        heads = ("ranks alike", "parameters", "weights [GB]", "cache a token [B]", "layers")
        ranks = [
            (f"{r['ranks']:,}", f"{r['parameters']:,}", show_gb(r["weights_bytes"]),
             f"{r['cache_bytes_per_token']:,.6g}", f"{r['layers']}")
            for r in answer["ranks"]
        ]  # fmt: skip
        tables.append(Table(heads, ranks, f"{answer['devices']} devices"))
    if provenance:
        told = answer["provenance"] or [{"field": "all", "value": "", "origin": answer["source"]}]
        origins = [(p["field"], p["value"], p["origin"]) for p in told]
        tables.append(Table(("field", "value", "origin"), origins, words=("origin",)))
    if cache["bytes_per_token"] is None:
        per_token = "cache: none"
    else:
        per_token = f"cache: {cache['bytes_per_token']:,} bytes a token in a short context"
        if cache["growing_bytes_per_token"] != cache["bytes_per_token"]:
            per_token += f", {cache['growing_bytes_per_token']:,} beyond all windows"
    if cache["state_bytes_per_sequence"]:
        per_token += f", and a state of {cache['state_bytes_per_sequence']:,} bytes"
    source = f"source: {answer['source']}"
    notes = [
        per_token,
        *answer.get("changed", {}).get("notes", ()),
        *answer.get("layout", ()),
        *answer["unusual"],
        *answer["assumptions"],
        source,
    ]
    if answer["file_bytes"] is not None:
        notes.insert(0, f"the weights of the file take {answer['file_bytes']:,} bytes")
    reference = cache["reference"]
    if reference is not None:
        state = reference["state_bytes_per_sequence"]
        also = f" and a state of {state:,} bytes" if state else ""
        each = f"{reference['bytes_per_token']:,} bytes per token{also}"
        notes.insert(1, f"the reference allocates {each}")
    return Page(tables, notes)


def _changed(found: Answer) -> Table:
    """Lay out what another dimension makes of a model."""
    figures = [
        (name.replace("_", " "), f"{row['before']:,}", f"{row['after']:,}",
         "-" if row["kept"] is None else f"{100 * row['kept']:.1f} %")
        for name, row in found.items()
        if name not in ("from", "to", "notes") and (row["before"] or row["after"])
    ]  # fmt: skip
    old, new = (", ".join(f"{k} = {count(v)}" for k, v in found[w].items())
                for w in ("from", "to"))  # fmt: skip
    return Table(("changed", "before", "after", "kept"), figures, f"from {old} to {new}")


def fit_page(answer: Answer) -> Page:
    """Lay out what fills the memory."""
    kinds = {"state_bytes": "state [GB]", "adapters_bytes": "adapters [GB]"}
    more = [kind for kind in kinds if kind in answer["rows"][0]["memory"]]
    host = ["host [GB]"] if "host_bytes" in answer["rows"][0] else []
    heads = ["batch", "context", "weights [GB]", "cache [GB]", *(kinds[k] for k in more),
             "activations [GB]",
             "reserve [GB]",
             "memory [GB]", *host, "margin [GB]", "fits", "sequences that fit"]  # fmt: skip
    rows = [
        (f"{r['batch']:,}", f"{r['context_tokens']:,}", show_gb(r["memory"]["weights_bytes"]),
         show_gb(r["memory"]["kv_cache_bytes"]),
         *(show_gb(r["memory"][kind]) for kind in more),
         _gb(r["memory"].get("activations_bytes")),
         _gb(r["memory"].get("reserve_bytes")), show_gb(r["memory_bytes"]),
         *([show_gb(r["host_bytes"])] if host else []),
         show_gb(r["margin_bytes"]), yes(r["fits"]), f"{r['max_sequences']:,}")
        for r in answer["rows"]
    ]  # fmt: skip
    advice = [_way(way, answer.get("devices", 1)) for way in answer.get("ways", ())]
    return Page([Table(heads, rows, title_of(answer), keys=2)], advice + answer["assumptions"])


def sweep_page(answer: Answer) -> Page:
    """Lay out a sweep of decode steps, prefills or requests."""
    rows = answer["rows"]
    kinds = {"state_bytes": "state [GB]", "adapters_bytes": "adapters [GB]"}
    more = [kind for kind in kinds if kind in rows[0]]
    host = ["host [GB]"] if "host_bytes" in rows[0] else []
    beside = ["speed-up", "even batch"] if "speedup" in rows[0] else []
    each = ["a device"] if "tokens_per_s_per_device" in rows[0] else []
    paid, paid_cells = paid_columns(rows)
    handed = ["prefill fits", "prefill [ms]", "hand-off [ms]", "prefills a decode"]
    handed = handed if "handoff_s" in rows[0] else []
    heads = ["batch", "context", "weights [GB]", "cache [GB]", *(kinds[k] for k in more),
             "memory [GB]", *host, "fits", *handed, *_time_heads(answer["phase"]),
             *_band_heads(rows, answer["phase"]), "tokens/s", *each, *paid, *beside, "FLOP/B",
             "regime"]  # fmt: skip
    cells = [
        (_number(r["batch"]), _number(r["context_tokens"]), show_gb(r["weights_bytes"]),
         show_gb(r["kv_cache_bytes"]), *(show_gb(r[kind]) for kind in more),
         show_gb(r["memory_bytes"]), *([show_gb(r["host_bytes"])] if host else []), yes(r["fits"]),
         *(_handed(r) if handed else []), *_times(r, answer["phase"]),
         *_band(r, rows, answer["phase"]), cell(r["tokens_per_s"]),
         *([cell(r["tokens_per_s_per_device"])] if each else []), *paid_cells[i],
         *([cell(r["speedup"]), _even(r["even_batch"])] if beside else []),
         cell(r["intensity_flops_per_byte"]), r["regime"])
        for i, r in enumerate(rows)
    ]  # fmt: skip
    basis = " and ".join(dict.fromkeys(r["basis"] for r in rows))
    title = f"{title_of(answer)}, {answer['phase']}, {basis}"
    notes = list(answer["assumptions"])
    if "mixed_context_tokens" in answer:
        notes.insert(0, f"mixed contexts, the mean is shown: {len(answer['mixed_context_tokens'])} "
                        "lengths share the batch equally")  # fmt: skip
    if answer["phase"] in ("prefill", "request") and rows[0]["passes"] > 1:
        r = rows[0]
        of = "request" if answer["phase"] == "request" and r["itl_s"] is None else "prefill"
        notes.insert(0, f"{r['passes']} passes of the first row's {of} read "
                        f"{show_gb(r['weight_read_bytes'])} GB of weights and "
                        f"{show_gb(r['cache_read_bytes'])} GB of cache")  # fmt: skip
    return Page([Table(heads, cells, title, keys=2)], notes)


PAID = {
    "input_usd_per_mtok": "input [USD/M]",
    "cached_input_usd_per_mtok": "cached [USD/M]",
    "output_usd_per_mtok": "output [USD/M]",
    "usd_per_request": "request [USD]",
    "joules_per_token": "energy [J/token]",
    "margin": "margin",
}
"""Columns of cost and energy."""


def paid_columns(rows: list[Answer]) -> tuple[list[str], list[list[str]]]:
    """Lay out the columns of cost and energy that rows have: their heads, and cells by row."""
    keys = [key for key in PAID if any(key in r for r in rows)]
    keys = [k for k in keys if not k.startswith("cached") or any(r[k] is not None for r in rows)]
    return [PAID[k] for k in keys], [[cell(r[k]) for k in keys] for r in rows]


def _handed(row: Answer) -> list[str]:
    """Show the prefill of a prompt that is computed elsewhere, and its way."""
    fits = row["prefill_fits"]
    return [
        "-" if fits is None else yes(fits), cell(row["prefill_s"], 1e-3),
        cell(row["handoff_s"], 1e-3), cell(row["prefills_per_decode"]),
    ]  # fmt: skip


def _even(batch: int | None) -> str:
    return "-" if batch is None else f"{batch:,}"


def compare_page(answer: Answer) -> Page:
    """Lay out a comparison; beside estimates a bound says that it is one."""
    rows = answer["rows"]
    paid, paid_cells = paid_columns(rows)
    caches = len({r["kv_format"] for r in rows}) > 1
    heads = ["model", "hardware", "batch", "context", "format", *(["cache"] if caches else []),
             "memory [GB]", "capacity [GB]", "fits", *_time_heads(answer["phase"]),
             *_band_heads(rows, answer["phase"]), "tokens/s", *paid, "regime"]  # fmt: skip
    cells = [
        (r["model"], *machines_of(r), _number(r["batch"]), _number(r["context_tokens"]),
         r["weights_format"], *([r["kv_format"]] if caches else []),
         show_gb(r["memory_bytes"]), _gb(r["capacity_bytes"]),
         "-" if r["fits"] is None else yes(r["fits"]),
         *(_at(r, rows, 0, time) for time in _times(r, answer["phase"])),
         *_band(r, rows, answer["phase"]),
         _at(r, rows, 1, cell(r["tokens_per_s"])), *paid_cells[i], r["regime"] or "-")
        for i, r in enumerate(rows)
    ]  # fmt: skip
    reasons = dict.fromkeys(r["reason"] for r in rows if r["reason"])
    return Page([Table(heads, cells, keys=2)], [*reasons, *answer["assumptions"]])


def _at(row: Answer, rows: list[Answer], most: int, shown: str) -> str:
    """Mark a bound where other rows are estimates; most: it is above what is bounded."""
    if shown == "-" or row["basis"] != "bound" or all(r["basis"] != "estimate" for r in rows):
        return shown
    return f"{('≥≤' if prints('≥≤') else ('>=', '<='))[most]} {shown}"


def roofline_page(answer: Answer) -> Page:
    """Lay out operators against the ridge, several machines or batches one after the other."""
    heads = ("operator", "runs", "GFLOP", "GB", "FLOP/B", "bound [ms]", "regime")
    tables: list[Table] = []
    ridges: list[str] = []
    for one in answer.get("rooflines", [answer]):
        size, length = f"{one['batch']:,}", f"{one['context_tokens']:,}"
        step = f"{title_of(one)}, a step, batch {size}, context {length}"
        tables.append(Table(heads, [_operator(r) for r in one["operators"]], step))
        if "prefill_operators" in one:
            rows = [_operator(r) for r in one["prefill_operators"]]
            tables.append(Table(heads, rows, f"prefill of {size} prompts of {length} tokens"))
        of = f" of {', '.join(machines_of(one))}" if "rooflines" in answer else ""
        ridges.append(f"ridge{of}: {show_number(one['ridge_flops_per_byte'])} FLOP/B")
    bytes_ = ("GB and FLOP/B count unfused activations; bound and regime count what no fusion "
              "avoids, so that the bounds add up to the step")  # fmt: skip
    return Page(tables, [*dict.fromkeys(ridges), bytes_, *answer["assumptions"]])


def _operator(row: dict[str, Any]) -> tuple[str, ...]:
    return (
        row["name"], f"{row['runs']:,}", show_number(row["flops"] / 1e9), show_gb(row["bytes"]),
        show_number(row["intensity_flops_per_byte"]), show_number(1e3 * row["bound_s"]),
        row["regime"],
    )  # fmt: skip


def explain_page(answer: Answer, sensitivity: dict[str, dict[str, float]] | None = None) -> Page:
    """Lay out a formula, its substitution and its value."""
    heads = ("quantity", "formula", "with numbers", "value", "unit")
    rows = [
        (t["name"], t["formula"], t["substitution"],
         "-" if t["value"] is None else f"{t['value']:,.9g}", t["unit"])
        for t in answer["terms"]
    ]  # fmt: skip
    letters = [
        (name, f"{entry['value']:,.9g}", entry["unit"]) for name, entry in answer["letters"].items()
    ]
    tables = [
        Table(heads, rows, f"{answer['quantity']} of {title_of(answer)}", words=heads[1:3]),
        Table(("letter", "value", "unit"), letters),
    ]
    notes = [f"left out: {o}" for o in answer["omits"]] + [f"source: {answer['source']}"]
    return Page([*tables, *_sensitivity(sensitivity)], [*notes, *answer["assumptions"]])


def solve_page(answer: Answer) -> Page:
    """Lay out a solved unknown."""
    value = answer["value"]
    shown = "none" if value is None else f"{value:,.9g}"
    heads = ("unknown", "value", "unit", "why")
    rows = [(answer["unknown"], shown, answer["unit"], answer["reason"])]
    tables = [Table(heads, rows, title_of(answer), words=heads[3:])]
    if answer["formula"]:
        head = ("formula", "stands for", "value")
        parts = [(answer["formula"], "", shown)]
        parts += [(d["name"], d["formula"], f"{d['value']:,.9g}") for d in answer["definitions"]]
        tables.append(Table(head, parts, words=head[1:2]))
    notes = [f"the formula holds for {answer['valid_for']}"] if answer["valid_for"] else []
    more = _sensitivity(answer.get("sensitivity"))
    return Page([*tables, *more], [*notes, *answer["assumptions"]])


def quantize_page(answer: Answer) -> Page:
    """Lay out the first codes of numbers, and the errors of all."""
    heads = ("value", "scale", "zero point", "code", "restored", "error", "clipped")
    rows = [
        (_number(r["value"]), f"{r['scale']:.6g}", str(r["zero_point"]), str(r["code"]),
         _number(r["restored"]), f"{r['error']:.6g}", yes(r["clipped"]))
        for r in answer["rows"]
    ]  # fmt: skip
    kind = ("signed" if answer["signed"] else "unsigned") + f" {answer['bits']}-bit"
    codes = f"{kind} codes, {answer['code_min']} to {answer['code_max']}"
    found = answer["summary"]
    of = f"{answer['source']}: {found['numbers']:,} numbers in {codes}"
    if found["numbers"] > len(rows):
        of += f"; the first {len(rows):,}"
    told = [
        (name, "-" if x is None else f"{x:,}" if isinstance(x, int) else f"{x:,.6g}")
        for name, x in found.items()
    ]
    return Page([Table(heads, rows, of), Table(("all numbers", "value"), told)],
                answer["assumptions"])  # fmt: skip


def _sensitivity(found: dict[str, dict[str, float]] | None) -> list[Table]:
    if not found:
        return []
    symbols = sorted({s for column in found.values() for s in column})
    rows = [(s, *(f"{column.get(s, 0):+.4f}" for column in found.values())) for s in symbols]
    title = "per cent of change for one per cent of each symbol, on the active branch"
    return [Table(("symbol", *found), rows, title)]


def title_of(answer: Answer) -> str:
    """Say what is answered of, with the number of devices."""
    return f"{answer['model']} on {', '.join(machines_of(answer))}"


def _time_heads(phase: str) -> list[str]:
    return {
        "decode": ["step [ms]"],
        "denoise": ["step [ms]"],
        "denoise-block": ["block [ms]"],
        "prefill": ["TTFT [ms]"],
        "served": ["token [ms]"],
        "request": ["TTFT [ms]", "ITL [ms]", "E2E [s]"],
    }[phase]


def _times(row: dict[str, Any], phase: str) -> list[str]:
    keys = {"prefill": ["ttft_s"], "request": ["ttft_s", "itl_s"]}.get(phase, ["time_s"])
    cells = [cell(row[k], 1e-3) for k in keys]
    return [*cells, cell(row["e2e_s"])] if phase == "request" else cells


def _band_heads(rows: list[Answer], phase: str) -> list[str]:
    """Name the columns of the band and the bound, where a row has an estimate."""
    if all(r.get("estimate_s") is None for r in rows):
        return []
    unit = "s" if phase == "request" else "ms"
    other = "estimate" if all(r["basis"] == "bound" for r in rows) else "bound"
    return [f"band [{unit}]", f"{other} [{unit}]"]


def _band(row: Answer, rows: list[Answer], phase: str) -> list[str]:
    """Show the band of an estimate and the bound; the estimate where the time is the bound."""
    if not _band_heads(rows, phase):
        return []
    unit = 1 if phase == "request" else 1e-3
    ends = [row.get("estimate_low_s"), row.get("estimate_high_s")]
    band = "-" if None in ends else "-".join(cell(end, unit) for end in ends)
    other = "estimate_s" if all(r["basis"] == "bound" for r in rows) else "bound_s"
    return [band, cell(row[other], unit)]


def _way(way: dict[str, Any], devices: int) -> str:
    """Say what would fit, as it is typed: without commas."""
    option, value = way["option"], way["value"]
    match option:
        case "--on":
            price, date = way["price_usd_per_hour"], way["price_date"]
            cost = f"{price:.2f} USD/h ({date})" if price is not None else "price not known"
            each = "each " if devices > 1 else ""
            return f"would fit: --on {value} ({each}{show_gb(way['capacity_bytes'])} GB, {cost})"
        case "--tp":
            on = "" if way["on"] is None else f"--on {way['on']} "
            return f"would fit: {on}--tp {value}"
        case "--weights":
            return f"would fit: --weights {value}"
        case _:
            return f"would fit: {option} {value} at the most"


def yes(value: bool) -> str:
    """Show a truth."""
    return "yes" if value else "no"


def count(value: int | None) -> str:
    """Show a whole number; - where there is none."""
    return "-" if value is None else f"{value:,}"


def _number(value: float) -> str:
    return f"{value:,.10g}"


def _gb(value: float | None) -> str:
    return "-" if value is None else show_gb(value)


def cell(value: float | None, unit: float = 1) -> str:
    """Show a number in a unit; - where there is none."""
    return "-" if value is None else show_number(value / unit)


def _figure(value: float) -> str:
    return f"{value:,.15g}" if value < 1e12 else f"{value:.6g}"


def accuracy_page(answer: Answer, each: bool = False) -> Page:
    """Lay out errors by group, or row by row."""
    if each:
        rows = [_judged(r) for r in answer["rows"]]
        heads = ("id", "kind", "model", "hardware", "devices", "engine", "weights", "batch",
                 "prompt", "output", "measured [ms]", "bound [ms]", "estimate [ms]", "error",
                 "MBU", "why not")  # fmt: skip
        return Page([Table(heads, rows, keys=1, words=heads[-1:])], answer["assumptions"])
    heads = (answer["by"], "rows", "judged", "bound", "p90", "one efficiency", "p90", "estimate",
             "p90", "in band", "band")  # fmt: skip
    groups: list[Answer] = [*answer["summary"], {answer["by"]: "all", **answer["total"]}]
    cells = [
        (
            str(g[answer["by"]]),
            f"{g['rows']:,}",
            f"{g['judged']:,}",
            *(_percent(g[k]) for k in SHOWN),
        )
        for g in groups
    ]
    title = "sizes of errors in per cent: median, and what nine of ten stay below"
    return Page([Table(heads, cells, title, words=heads[:1])], answer["assumptions"])


SHOWN = (
    "bound_error_median", "bound_error_p90", "one_efficiency_error_median",
    "one_efficiency_error_p90", "error_median", "error_p90", "coverage", "band_width_median",
)  # fmt: skip


def _judged(row: Answer) -> tuple[str, ...]:
    why = row["excluded"] or row["no_estimate"] or ""
    error = "-" if row["error"] is None else f"{100 * row['error']:+.1f} %"
    return (
        row["id"], row["kind"], row["model"] or "-", row["hardware"] or "-", f"{row['devices']}",
        row["engine"], row["weights"] or "-", count(row["batch"]), count(row["prompt_tokens"]),
        count(row["output_tokens"]), *(cell(row[k], 1e-3) for k in
        ("measured_s", "bound_s", "estimate_s")), error, _percent(row["mbu"]), why,
    )  # fmt: skip


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f}"


def calibrate_page(answer: Answer) -> Page:
    """Lay out fitted constants, and how well they meet each point."""
    constants = [(name, _number(value)) for name, value in answer["constants"].items()]
    rows = [
        (_number(r["batch"]), _number(r["context_tokens"]), *(cell(r[k], 1e-3) for k in
         ("measured_s", "bound_s", "estimate_s")), _signed(r["error"]), _signed(r["unseen_error"]))
        for r in answer["rows"]
    ]  # fmt: skip
    heads = ("batch", "context", "measured [ms]", "bound [ms]", "estimate [ms]", "error",
             "fitted without it")  # fmt: skip
    tables = [
        Table(("constant", "value"), constants, title_of(answer)),
        Table(heads, rows, keys=2),
    ]
    return Page(tables, answer["assumptions"])


def _signed(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:+.1f} %"
