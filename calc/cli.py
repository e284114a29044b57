"""The command line: it parses and prints, nothing else."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import typer

from .errors import Exit, RooflmError, nearest, printable
from .output import OutputFormat, Page, Table, format_of, render, terminal_width, write
from .units import parse_counts, parse_size, show_gb, show_number

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Does a language model fit, how fast does it decode, how many users can it serve: "
    "computed before anyone rents a GPU.",
)

ModelName = Annotated[
    str, typer.Argument(metavar="MODEL", help="A preset, its Hugging Face name, or a YAML file.")
]
Word = Annotated[str, typer.Argument(metavar="[WORD]", help="Show only names that hold it.")]
On = Annotated[str, typer.Option("--on", metavar="HARDWARE", help="A preset or a YAML file.")]
Batch = Annotated[str, typer.Option(help="Sequences: 1,64 or 1:256:x2 or 1:9:2.")]
Context = Annotated[
    str, typer.Option(help="Tokens of each sequence, the new one included: 1024, 4k, 128Ki.")
]
Weights = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="Number format of the weights: bf16, or fp16 where the device lacks it.",
    ),
]
Cache = Annotated[str, typer.Option("--kv", metavar="FORMAT", help="Number format of the cache.")]
Set = Annotated[
    list[str],
    typer.Option(
        "--set", metavar="KEY=VALUE", help="Change a dimension or a trait: K=8, tied=true."
    ),
]
AccountingName = Annotated[
    str, typer.Option("--accounting", help="full, or lecture: as CS336 lecture 10 counts.")
]
TimeModelName = Annotated[
    str, typer.Option("--time-model", help="bandwidth, overlap, operator (default) or serial.")
]
Reserve = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory kept free for what is not modelled: 2GiB.")
]
Capacity = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory in place of the device's own: 128GiB.")
]
Format = Annotated[str, typer.Option("--format", help="table (default), json, csv or md.")]
Output = Annotated[
    str, typer.Option(metavar="FILE", help="Write there; its suffix sets the format.")
]
Plot = Annotated[
    str, typer.Option(metavar="FILE", help="Draw latency and throughput too: PNG, SVG or PDF.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes below the tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a defect.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"rooflm {version('rooflm')}\n")
        raise typer.Exit


@app.callback()
def _root(  # pyright: ignore[reportUnusedFunction]
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Hold the options before a command; `_version` has acted by now and `main` reads --debug."""


@dataclass(frozen=True)
class Printing:
    """Where and how an answer goes."""

    format: OutputFormat
    output: str | None
    quiet: bool


def _printing(format: str, output: str, quiet: bool) -> Printing:
    path = output or None
    chosen: Any = format or format_of(path)
    _choice(chosen, ("table", "json", "csv", "md"), "--format")
    return Printing(chosen, path, quiet)


def _choice(value: str, known: tuple[str, ...], option: str) -> None:
    if value not in known:
        fix = nearest(value, known) or f"Known: {', '.join(known)}."
        raise RooflmError(f"unknown value '{printable(value, 40)}'", option, fix)


def _emit(answer: dict[str, Any], page: Page, how: Printing) -> None:
    width = terminal_width() if how.output is None else 10_000
    write(render(answer, page, how.format, width, how.quiet), how.output)


def _precision(weights: str, kv: str, machine: Any = None) -> Any:
    from .hardware import natural_format
    from .passes import Precision, find_format

    chosen = weights or (natural_format(machine) if machine is not None else "bf16")
    return Precision(find_format(chosen, "--weights"), find_format(kv or chosen, "--kv"))


def _case(
    model: str, on: str, settings: list[str], weights: str, kv: str, accounting: str,
    time_model: str, reserve: str, capacity: str,
) -> Any:  # fmt: skip
    from .case import Case
    from .presets import find_machine, find_model, parse_changes
    from .timing import TIME_MODELS

    _choice(accounting, ("full", "lecture"), "--accounting")
    machine = find_machine(on)
    kind: Literal["full", "lecture"] = "lecture" if accounting == "lecture" else "full"
    chosen: Any = time_model or ("bandwidth" if kind == "lecture" else "operator")
    _choice(chosen, TIME_MODELS, "--time-model")
    return Case(
        model=find_model(model, parse_changes(settings)),
        machine=machine,
        precision=_precision(weights, kv, machine),
        accounting=kind,
        time_model=chosen,
        reserve_bytes=parse_size(reserve, "--reserve"),
        capacity_bytes=parse_size(capacity, "--capacity") if capacity else None,
    )


@app.command()
def models(
    word: Word = "", format: Format = "", output: Output = "", quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """List the models that are known.

    Example: rooflm models llama
    """
    from .listing import list_models

    answer = list_models(word)
    rows = [
        (r["name"], r["hf"] or "", show_number(r["parameters"] / 1e9), show_gb(r["weights_bytes"]),
         f"{r['cache_bytes_per_token'] / 1e3:,.1f}", _count(r["max_context_tokens"]))
        for r in answer["rows"]
    ]  # fmt: skip
    heads = ("model", "Hugging Face", "parameters [1e9]", "bf16 weights [GB]",
             "cache per token [kB]", "longest context")  # fmt: skip
    _emit(answer, Page([Table(heads, rows, keys=2)]), _printing(format, output, quiet))


@app.command()
def hardware(
    word: Word = "", format: Format = "", output: Output = "", quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """List the hardware that is known; one chip alone with every figure and its source.

    Example: rooflm hardware h100-sxm
    """
    from .listing import list_hardware

    answer = list_hardware(word)
    rows = answer["rows"]
    if len(rows) == 1:
        figures = [
            (f["key"], _figure(f["value"]), f["note"] or "", f["date"] or "", f["url"] or "")
            for f in rows[0]["figures"]
        ]
        heads = ("figure", "value", "note", "date", "source")
        table = Table(heads, figures, rows[0]["full_name"], words=heads[2:])
        page = Page([table], rows[0]["notes"])
    else:
        heads = ("hardware", "kind", "label [GB]", "driver [GB]", "bandwidth [TB/s]",
                 "bf16 [TFLOP/s]", "fp8 [TFLOP/s]", "power [W]", "price [USD/h]")  # fmt: skip
        cells = [
            (r["name"], r["kind"], _cell(r["label_gb"], 1), _cell(r["driver_bytes"], 1e9),
             _cell(r["bandwidth_bytes_per_s"], 1e12), _cell(r["bf16_flops_per_s"], 1e12),
             _cell(r["fp8_flops_per_s"], 1e12), _cell(r["power_w"], 1),
             _cell(r["price_usd_per_hour"], 1))
            for r in rows
        ]  # fmt: skip
        notes = ("dense rates, no sparsity; - is not known or not there; "
                 "`rooflm hardware NAME` gives sources",)  # fmt: skip
        page = Page([Table(heads, cells, keys=2)], notes)
    _emit(answer, page, _printing(format, output, quiet))


@app.command()
def show(
    model: ModelName, set: Set = [], weights: Weights = "", kv: Cache = "",  # noqa: B006
    accounting: AccountingName = "full", format: Format = "", output: Output = "",
    quiet: Quiet = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Show a model: parameters by part, bytes by format, cache by layer kind.

    Example: rooflm show qwen3-8b
    """
    from .presets import find_model, parse_changes
    from .show import show as answer_show

    _choice(accounting, ("full", "lecture"), "--accounting")
    found = find_model(model, parse_changes(set))
    answer = answer_show(found, _precision(weights, kv), norms=accounting == "full")
    dims = ", ".join(f"{k} = {v:,}" for k, v in answer["dimensions"].items())
    parts = [(k, f"{v:,}") for k, v in answer["parameters"].items()]
    sizes = [(k, f"{v:,}", show_gb(v)) for k, v in answer["weights_bytes_by_format"].items()]
    layers = [
        (g["kind"], str(g["count"]), f"{g['elements_per_token']:,}")
        for g in answer["cache"]["layers"]
    ]
    per_token = answer["cache"]["bytes_per_token"]
    page = Page(
        [
            Table(("parameters", "number"), parts, f"{answer['model']}: {dims}"),
            Table(("weights", "bytes", "GB"), sizes),
            Table(("cache", "layers", "elements per token and layer"), layers),
        ],
        [
            f"cache: {per_token:,} bytes per token of a sequence",
            *answer["unusual"],
            *answer["assumptions"],
            f"source: {answer['source']}",
        ],
    )
    _emit(answer, page, _printing(format, output, quiet))


@app.command()
def fit(
    model: ModelName, on: On, batch: Batch = "1", context: Context = "1024", set: Set = [],  # noqa: B006
    weights: Weights = "", kv: Cache = "", accounting: AccountingName = "full",
    reserve: Reserve = "0", capacity: Capacity = "", format: Format = "", output: Output = "",
    quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Tell whether a model fits, what fills the memory, and the cheapest ways to make it fit.

    Exits with 1 where it does not fit.

    Example: rooflm fit llama-3-8b --on rtx-4090 --batch 16 --context 8k
    """
    from .fit import fit as answer_fit
    from .fit import ways

    how = _printing(format, output, quiet)
    case = _case(model, on, set, weights, kv, accounting, "", reserve, capacity)
    batches, contexts = parse_counts(batch, "--batch"), parse_counts(context, "--context")
    answer = answer_fit(case, batches, contexts)
    if not answer["fits"] and len(answer["rows"]) == 1:
        from .listing import all_machines

        answer["ways"] = ways(case, batches[0], contexts[0], all_machines())
        if not answer["ways"]:
            answer["assumptions"].insert(
                0, "no smaller batch or context fits, nor any other device"
            )
    heads = ("batch", "context", "weights [GB]", "cache [GB]", "activations [GB]", "reserve [GB]",
             "memory [GB]", "margin [GB]", "fits", "sequences that fit")  # fmt: skip
    rows = [
        (f"{r['batch']:,}", f"{r['context_tokens']:,}", show_gb(r["memory"]["weights_bytes"]),
         show_gb(r["memory"]["kv_cache_bytes"]), _cell(r["memory"].get("activations_bytes"), 1e9),
         _cell(r["memory"].get("reserve_bytes"), 1e9), show_gb(r["memory_bytes"]),
         show_gb(r["margin_bytes"]), _yes(r["fits"]), f"{r['max_sequences']:,}")
        for r in answer["rows"]
    ]  # fmt: skip
    notes = [_way(w) for w in answer.get("ways", ())] + answer["assumptions"]
    title = f"{answer['model']} on {answer['hardware']}"
    _emit(answer, Page([Table(heads, rows, title, keys=2)], notes), how)
    return Exit.DONE if answer["fits"] else Exit.NO


@app.command()
def sweep(
    model: ModelName, on: On, batch: Batch = "1", context: Context = "1024", set: Set = [],  # noqa: B006
    weights: Weights = "", kv: Cache = "", accounting: AccountingName = "full",
    time_model: TimeModelName = "", reserve: Reserve = "0", capacity: Capacity = "",
    plot: Plot = "", format: Format = "", output: Output = "", quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Sweep batches and contexts: memory, time of a decode step, throughput, regime, fits.

    Example: rooflm sweep llama-2-13b --on h100-sxm --batch 1,64,256 --context 1024
    """
    from .sweep import sweep as answer_sweep

    how = _printing(format, output, quiet)
    case = _case(model, on, set, weights, kv, accounting, time_model, reserve, capacity)
    batches, contexts = parse_counts(batch, "--batch"), parse_counts(context, "--context")
    answer = answer_sweep(case, batches, contexts)
    if plot:
        from ..plots.sweep import draw

        draw(answer, plot)
    heads = ("batch", "context", "weights [GB]", "cache [GB]", "memory [GB]", "fits", "step [ms]",
             "tokens/s", "FLOP/B", "regime")  # fmt: skip
    rows = [
        (f"{r['batch']:,}", f"{r['context_tokens']:,}", show_gb(r["weights_bytes"]),
         show_gb(r["kv_cache_bytes"]), show_gb(r["memory_bytes"]), _yes(r["fits"]),
         show_number(1e3 * r["time_s"]), show_number(r["tokens_per_s"]),
         show_number(r["intensity_flops_per_byte"]), r["regime"])
        for r in answer["rows"]
    ]  # fmt: skip
    title = f"{answer['model']} on {answer['hardware']}, {answer['rows'][0]['basis']}"
    page = Page([Table(heads, rows, title, keys=2)], answer["assumptions"])
    _emit(answer, page, how)


def _way(way: dict[str, Any]) -> str:
    match way["option"]:
        case "--on":
            price, date = way["price_usd_per_hour"], way["price_date"]
            cost = f", {price:.2f} USD/h ({date})" if price is not None else ", price not known"
            return f"would fit: --on {way['value']} ({show_gb(way['capacity_bytes'])} GB{cost})"
        case option:
            return f"would fit: {option} {int(way['value']):,} at the most"


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def _count(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _cell(value: float | None, unit: float) -> str:
    return "-" if value is None else show_number(value / unit)


def _figure(value: float) -> str:
    return f"{value:,.15g}" if value < 1e12 else f"{value:.6g}"


def main() -> int:
    """Run the command line and return its exit code; every error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        return int(app(standalone_mode=False, prog_name="rooflm") or 0)
    except RooflmError as e:
        return _fail(str(e), e.code)
    except typer.TyperException as e:
        return _usage(e)
    except SystemExit as e:
        # typer turns a closed pipe into exit 1, which here means that the answer is no.
        if isinstance(e.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        raise


def _usage(e: Any) -> int:
    """Say what is wrong with the words of a command line."""
    message: str = e.format_message()
    if getattr(e, "exit_code", 2) != Exit.USAGE or type(e).__name__ == "NoArgsIsHelpError":
        sys.stderr.write(message + "\n")
        return Exit.USAGE
    message = printable(" ".join(message.split()))
    return _fail(message + ("" if message[-1] in ".?!)" else "."), Exit.USAGE)


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"rooflm: error: {message}\n")
    return code
