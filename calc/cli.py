"""The command line: it parses and prints, nothing else."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .errors import Exit, RooflmError, nearest, printable
from .output import OutputFormat, Page, format_of, render, terminal_width, write
from .units import parse_count, parse_counts, parse_rate, parse_share, parse_size, parse_time

if TYPE_CHECKING:
    from .case import Case
    from .compare import Place
    from .requests import Work

START = """Start here: rooflm sweep llama-2-13b --on h100-sxm --batch 1,64,256 --context 1024

`rooflm models` and `rooflm hardware` list what is known; a YAML file will do as well."""

app = typer.Typer(
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Does a language model fit, how fast does it decode, how many users can it serve: "
    "computed before anyone rents a GPU.",
    epilog=START,
)


def _complete_models(incomplete: str) -> list[str]:
    from .presets import MODELS_FILE, preset_names

    return [name for name in preset_names(MODELS_FILE) if name.startswith(incomplete)]


def _complete_hardware(incomplete: str) -> list[str]:
    from .presets import HARDWARE_FILE, preset_names

    return [name for name in preset_names(HARDWARE_FILE) if name.startswith(incomplete)]


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A preset, its Hugging Face name, or a YAML file.",
        autocompletion=_complete_models,
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="A preset or a YAML file.",
        autocompletion=_complete_hardware,
    ),
]
ManyModels = Annotated[
    list[str],
    typer.Argument(metavar="MODEL...", help="Models.", autocompletion=_complete_models),
]
ManyOn = Annotated[
    list[str],
    typer.Option(
        "--on",
        metavar="HARDWARE...",
        help="Machines: repeat the option, or separate with commas.",
        autocompletion=_complete_hardware,
    ),
]
Word = Annotated[str, typer.Argument(metavar="[WORD]", help="Show only names that hold it.")]
Batch = Annotated[
    str, typer.Option(metavar="COUNTS", help="Sequences: 1,64 or 1:256:x2 or 1:9:2.  [default: 1]")
]
Context = Annotated[
    str,
    typer.Option(
        metavar="COUNTS",
        help="Tokens of each sequence, the new one included: 1024, 4k, 128Ki; "
        "512,1024,4096@mixed or FILE@mixed for one batch of different lengths.  [default: 1024]",
    ),
]
OneBatch = Annotated[str, typer.Option("--batch", metavar="COUNT", help="Sequences.")]
OneContext = Annotated[
    str, typer.Option("--context", metavar="COUNT", help="Tokens of each sequence.")
]
Phase = Annotated[str, typer.Option(metavar="PHASE", help="decode (default), prefill or request.")]
Prompt = Annotated[
    str, typer.Option(metavar="COUNTS", help="Prompt tokens of a prefill or request.")
]
OutputTokens = Annotated[
    str, typer.Option(metavar="COUNT", help="Tokens that a request generates.  [default: 128]")
]
Prefix = Annotated[
    str, typer.Option(metavar="COUNT", help="Leading prompt tokens that are in a cache already.")
]
Chunk = Annotated[
    str,
    typer.Option(metavar="COUNT", help="Prompt tokens of a prefill pass; all if not given."),
]
Block = Annotated[
    str, typer.Option(metavar="COUNT", help="Tokens of a cache block; whole blocks are reused.")
]
Weights = Annotated[
    str,
    typer.Option(
        metavar="FORMAT",
        help="Number format of the weights.  [default: bf16, fp16 where a device has only that]",
    ),
]
Cache = Annotated[
    str,
    typer.Option("--kv", metavar="FORMAT", help="Number format of the cache; as the weights."),
]
Set = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a dimension or trait: K=8, tied=true."),
]
AccountingName = Annotated[
    str,
    typer.Option("--accounting", metavar="NAME", help="full, or lecture as in CS336 lecture 10."),
]
TimeModelName = Annotated[
    str,
    typer.Option(
        "--time-model",
        metavar="NAME",
        help="bandwidth, overlap, operator or serial.  [default: operator]",
    ),
]
Reserve = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory kept free for what is not modelled: 2GiB.")
]
Capacity = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory in place of the device's own: 128GiB.")
]
ModelsFile = Annotated[
    str, typer.Option("--models", metavar="FILE", help="A YAML file of further models.")
]
HardwareFile = Annotated[
    str, typer.Option("--hardware", metavar="FILE", help="A YAML file of further hardware.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Check every entry of the files; exit 1 on a mistake.")
]
Format = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="table (default), json, csv or md.")
]
Output = Annotated[
    str, typer.Option(metavar="FILE", help="Write there; its suffix sets the format.")
]
Plot = Annotated[
    str, typer.Option(metavar="FILE", help="Draw time and throughput too: PNG, SVG or PDF.")
]
Sensitivity = Annotated[
    bool, typer.Option("--sensitivity", help="Elasticities of time and throughput as well.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes below the tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a defect.")]


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        sys.stdout.write(f"rooflm {version('rooflm')}\n")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _root(  # pyright: ignore[reportUnusedFunction]
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Say where to start; `_version` has acted by now, and __main__ reads --debug."""
    if context.invoked_subcommand is None:
        sys.stdout.write(context.get_help() + "\n")


@dataclass(frozen=True)
class Printing:
    """Where and how an answer goes."""

    format: OutputFormat
    output: str | None
    quiet: bool


def _printing(format: str, output: str, quiet: bool, more: tuple[str, ...] = ()) -> Printing:
    path = output or None
    chosen: Any = format or format_of(path)
    _choice(chosen, ("table", "json", "csv", "md", *more), "--format")
    return Printing(chosen, path, quiet)


def _choice(value: str, known: tuple[str, ...], option: str) -> None:
    if value not in known:
        fix = nearest(value, known) or f"Known: {', '.join(known)}."
        raise RooflmError(f"unknown value '{printable(value, 40)}'", option, fix)


def _emit(answer: dict[str, Any], page: Page, how: Printing) -> None:
    width = terminal_width() if how.output is None else 10_000
    write(render(answer, page, how.format, width, how.quiet), how.output)


@dataclass(frozen=True)
class Counting:
    """The options that say how to count, as they were typed."""

    weights: str = ""
    kv: str = ""
    accounting: str = "full"
    time_model: str = ""
    reserve: str = "0"
    capacity: str | None = None


def _case(model: Any, machine: Any, typed: Counting) -> Case:
    """Make a case of a model, a machine and what was typed."""
    from .case import Case
    from .timing import TIME_MODELS

    accounting: Any = typed.accounting
    _choice(accounting, ("full", "lecture"), "--accounting")
    usual = "bandwidth" if accounting == "lecture" else "operator"
    time_model: Any = typed.time_model or usual
    _choice(time_model, TIME_MODELS, "--time-model")
    capacity = typed.capacity
    return Case(
        model=model,
        machine=machine,
        precision=_precision(typed, machine),
        accounting=accounting,
        time_model=time_model,
        reserve_bytes=parse_size(typed.reserve, "--reserve"),
        capacity_bytes=None if capacity is None else parse_size(capacity, "--capacity", least=1),
    )


def _precision(typed: Counting, machine: Any = None) -> Any:
    from .hardware import natural_format
    from .passes import Precision, find_format

    chosen = typed.weights or (natural_format(machine) if machine is not None else "bf16")
    return Precision(find_format(chosen, "--weights"), find_format(typed.kv or chosen, "--kv"))


def _found(
    model: str, on: str, settings: list[str], models: str, hardware: str, typed: Counting
) -> Case:
    """Find a model and a machine by name, and make a case of them."""
    from .presets import find_machine, find_model, parse_changes

    machine = find_machine(on, hardware or None)
    return _case(find_model(model, parse_changes(settings), models or None), machine, typed)


def _works(
    phase: str, prompt: str, output_tokens: str, prefix: str, chunk: str, block: str
) -> list[Work] | None:
    """Read what is asked of each sequence; None for decode steps."""
    _choice(phase or "decode", ("decode", "prefill", "request"), "--phase")
    if phase in ("", "decode"):
        for text, option in (
            (prompt, "--prompt"), (output_tokens, "--output-tokens"), (prefix, "--prefix"),
            (chunk, "--chunk"),
        ):  # fmt: skip
            if text:
                fix = "Add --phase prefill or --phase request."
                raise RooflmError("a decode step has no such option", option, fix)
        return None
    from .requests import Work

    known: Any = phase
    if phase == "prefill" and output_tokens:
        fix = "Add --phase request."
        raise RooflmError("a prefill generates one token", "--output-tokens", fix)
    spared = parse_count(prefix, "--prefix") if prefix not in ("", "0") else 0
    lengths = parse_counts(prompt or "1024", "--prompt")
    for length in lengths:
        if spared > length:
            what = f"a prefix of {spared:,} tokens is longer than the prompt of {length:,}"
            raise RooflmError(what, "--prefix")
    return [
        Work(
            prompt=length,
            output=parse_count(output_tokens or "128", "--output-tokens")
            if phase == "request"
            else 1,
            prefix=spared,
            chunk=parse_count(chunk, "--chunk") if chunk else None,
            block=parse_count(block, "--block"),
            phase=known,
        )
        for length in lengths
    ]


@app.command()
def models(
    word: Word = "", check: Check = False, models: ModelsFile = "", format: Format = "",
    output: Output = "", quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """List the models that are known, or check the files that describe them.

    Example: rooflm models llama
    """
    from .listing import check_file, list_models
    from .pages import models_page
    from .presets import MODELS_FILE, build_model
    from .schema import MODEL

    if check:
        return _checked(check_file(MODELS_FILE, models, build_model, MODEL))
    answer = list_models(word, models or None)
    _emit(answer, models_page(answer), _printing(format, output, quiet))
    return Exit.DONE


@app.command()
def hardware(
    word: Word = "", check: Check = False, hardware: HardwareFile = "", format: Format = "",
    output: Output = "", quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """List the hardware that is known; one chip alone with every figure and its source.

    Example: rooflm hardware h100-sxm
    """
    from .listing import check_file, list_hardware
    from .pages import hardware_page
    from .presets import HARDWARE_FILE, build_machine
    from .schema import HARDWARE

    if check:
        return _checked(check_file(HARDWARE_FILE, hardware, build_machine, HARDWARE))
    answer = list_hardware(word, hardware or None)
    _emit(answer, hardware_page(answer), _printing(format, output, quiet))
    return Exit.DONE


def _checked(found: tuple[list[str], list[str]]) -> int:
    """Print what a check found: what is right on stdout, mistakes on stderr."""
    right, wrong = found
    write("".join(f"{line}\n" for line in right), None)
    sys.stderr.write("".join(f"rooflm: error: {line}\n" for line in wrong))
    return Exit.NO if wrong else Exit.DONE


@app.command()
def show(
    model: ModelName, set: Set = [], weights: Weights = "", kv: Cache = "",  # noqa: B006
    accounting: AccountingName = "full", models: ModelsFile = "", format: Format = "",
    output: Output = "", quiet: Quiet = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Show a model: parameters by part, bytes by format, cache by layer kind.

    Example: rooflm show qwen3-8b
    """
    from .pages import show_page
    from .presets import find_model, parse_changes
    from .show import show as answer_show

    _choice(accounting, ("full", "lecture"), "--accounting")
    found = find_model(model, parse_changes(set), models or None)
    precision = _precision(Counting(weights, kv))
    answer = answer_show(found, precision, norms=accounting == "full")
    _emit(answer, show_page(answer), _printing(format, output, quiet))


@app.command()
def fit(
    model: ModelName, on: On, batch: Batch = "", context: Context = "", set: Set = [],  # noqa: B006
    weights: Weights = "", kv: Cache = "", accounting: AccountingName = "full",
    reserve: Reserve = "0", capacity: Capacity = None, models: ModelsFile = "",  # pyright: ignore[reportArgumentType]
    hardware: HardwareFile = "", format: Format = "", output: Output = "", quiet: Quiet = False,
    debug: Debug = False,
) -> int:  # fmt: skip
    """Tell whether a model fits, what fills the memory, and the cheapest ways to make it fit.

    Exits with 1 where it does not fit.

    Example: rooflm fit llama-3-8b --on rtx-4090 --batch 16 --context 8k
    """
    from .fit import fit as answer_fit
    from .fit import ways
    from .pages import fit_page

    how = _printing(format, output, quiet)
    typed = Counting(weights, kv, accounting, "", reserve, capacity)
    case = _found(model, on, set, models, hardware, typed)
    batches = parse_counts(batch or "1", "--batch")
    contexts = parse_counts(context or "1024", "--context")
    answer = answer_fit(case, batches, contexts)
    if not answer["fits"] and len(answer["rows"]) == 1:
        from .listing import all_machines

        answer["ways"] = ways(case, batches[0], contexts[0], all_machines())
        if not answer["ways"]:
            none = "no smaller batch or context fits, nor any other device"
            answer["assumptions"].insert(0, none)
    _emit(answer, fit_page(answer), how)
    return Exit.DONE if answer["fits"] else Exit.NO


@app.command()
def sweep(
    model: ModelName, on: On, batch: Batch = "", context: Context = "", phase: Phase = "",
    prompt: Prompt = "", output_tokens: OutputTokens = "", prefix: Prefix = "", chunk: Chunk = "",
    block: Block = "16", set: Set = [], weights: Weights = "", kv: Cache = "",  # noqa: B006
    accounting: AccountingName = "full", time_model: TimeModelName = "", reserve: Reserve = "0",
    capacity: Capacity = None, models: ModelsFile = "", hardware: HardwareFile = "",  # pyright: ignore[reportArgumentType]
    plot: Plot = "", format: Format = "", output: Output = "", quiet: Quiet = False,
    debug: Debug = False,
) -> None:  # fmt: skip
    """Sweep batches and contexts: memory, time, throughput, regime, fits.

    Of decode steps; of prefills and whole requests with --phase.

    Example: rooflm sweep llama-2-13b --on h100-sxm --batch 1,64,256 --context 1024

    Example: rooflm sweep llama-3-8b --on h100-sxm --phase request --prompt 2k --output-tokens 256
    """
    from .pages import sweep_page
    from .sweep import mixed
    from .sweep import sweep as answer_sweep

    how = _printing(format, output, quiet)
    typed = Counting(weights, kv, accounting, time_model, reserve, capacity)
    case = _found(model, on, set, models, hardware, typed)
    works = _works(phase, prompt, output_tokens, prefix, chunk, block)
    if works is not None:
        from .requests import sweep_requests

        if context:
            fix = "Its context follows from --prompt and --output-tokens."
            raise RooflmError(f"a {phase} has no context of its own", "--context", fix)
        answer = sweep_requests(case, parse_counts(batch or "1", "--batch"), works)
    elif context.endswith("@mixed"):
        from .lengths import parse_lengths

        lengths = parse_lengths(context.removesuffix("@mixed"), "--context")
        answer = mixed(case, parse_counts(batch or str(len(lengths)), "--batch"), lengths)
    else:
        batches = parse_counts(batch or "1", "--batch")
        answer = answer_sweep(case, batches, parse_counts(context or "1024", "--context"))
    if plot:
        from ..plots.sweep import draw

        draw(answer, plot)
    _emit(answer, sweep_page(answer), how)


@app.command()
def compare(
    model: ManyModels, on: ManyOn = [], batch: Batch = "", context: Context = "",  # noqa: B006
    phase: Phase = "", prompt: Prompt = "", output_tokens: OutputTokens = "", prefix: Prefix = "",
    chunk: Chunk = "", block: Block = "16", set: Set = [], weights: Weights = "",  # noqa: B006
    kv: Cache = "", accounting: AccountingName = "full", time_model: TimeModelName = "",
    reserve: Reserve = "0", models: ModelsFile = "", hardware: HardwareFile = "",
    format: Format = "", output: Output = "", quiet: Quiet = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Compare models and machines on the same work, side by side.

    Example: rooflm compare llama-3-8b qwen3-8b --on h100-sxm,rtx-4090 --batch 8
    """
    from .compare import compare as answer_compare
    from .pages import compare_page

    how = _printing(format, output, quiet)
    typed = Counting(weights, kv, accounting, time_model, reserve)
    works = _works(phase, prompt, output_tokens, prefix, chunk, block)
    cases = _crossed(model, on, set, models, hardware, typed)
    answer = answer_compare(cases, _places(batch, context, works))
    _emit(answer, compare_page(answer), how)


def _crossed(
    words: list[str], on: list[str], settings: list[str], models: str, hardware: str,
    typed: Counting,
) -> list[Case]:  # fmt: skip
    """Cross all models with all machines; a machine may stand among the models, after --on."""
    from .presets import HARDWARE_FILE, find_machine, find_model, parse_changes, preset_names

    chips = preset_names(HARDWARE_FILE)
    places = [name for text in on for name in text.split(",") if name]
    places += [word for word in words if word in chips]
    names = [word for word in words if word not in chips]
    if not places:
        raise RooflmError("no machine is named", "--on", "Say --on h100-sxm,rtx-4090.")
    if not names:
        raise RooflmError("no model is named", "MODEL", "`rooflm models` lists them.")
    changes = parse_changes(settings)
    machines = [find_machine(place, hardware or None) for place in places]
    found = [find_model(name, changes, models or None) for name in names]
    return [_case(model, machine, typed) for model in found for machine in machines]


def _places(batch: str, context: str, works: Sequence[Work] | None) -> list[Place]:
    from .compare import Place

    batches = parse_counts(batch or "1", "--batch")
    if works is None:
        contexts = parse_counts(context or "1024", "--context")
        return [Place(B, S) for S in contexts for B in batches]
    return [Place(B, w.last_context, w) for w in works for B in batches]


@app.command()
def roofline(
    model: ModelName, on: On, batch: OneBatch = "1", context: OneContext = "1024", set: Set = [],  # noqa: B006
    weights: Weights = "", kv: Cache = "", models: ModelsFile = "", hardware: HardwareFile = "",
    format: Format = "", output: Output = "", quiet: Quiet = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Hold every operator of decode and prefill against the ridge of a machine.

    Example: rooflm roofline llama-3-8b --on h100-sxm --batch 64 --context 4096
    """
    from .pages import roofline_page
    from .roofline import roofline as answer_roofline

    case = _found(model, on, set, models, hardware, Counting(weights, kv))
    answer = answer_roofline(case, parse_count(batch, "--batch"), parse_count(context, "--context"))
    _emit(answer, roofline_page(answer), _printing(format, output, quiet))


@app.command()
def explain(
    quantity: Annotated[str, typer.Argument(help="A column of show, fit, sweep or roofline.")],
    model: ModelName, on: On, batch: OneBatch = "1", context: OneContext = "1024",
    phase: Phase = "", prompt: Prompt = "", output_tokens: OutputTokens = "", prefix: Prefix = "",
    chunk: Chunk = "", block: Block = "16", set: Set = [], weights: Weights = "",  # noqa: B006
    kv: Cache = "", accounting: AccountingName = "full", time_model: TimeModelName = "",
    reserve: Reserve = "0", capacity: Capacity = None, sensitivity: Sensitivity = False,  # pyright: ignore[reportArgumentType]
    models: ModelsFile = "", hardware: HardwareFile = "", format: Format = "", output: Output = "",
    quiet: Quiet = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Explain a number: formula, subtotals, substitution, value, what is left out, source.

    With --format latex the formula alone, for a document.

    Example: rooflm explain bound_s llama-2-13b --on h100-sxm --batch 64
    """
    from .definitions import Question
    from .explain import explain as answer_explain
    from .pages import explain_page

    how = _printing(format, output, quiet, more=("latex",))
    typed = Counting(weights, kv, accounting, time_model, reserve, capacity)
    case = _found(model, on, set, models, hardware, typed)
    works = _works(phase, prompt, output_tokens, prefix, chunk, block)
    work = works[0] if works else None
    typed_context = parse_count(context, "--context")
    B, S = parse_count(batch, "--batch"), work.last_context if work else typed_context
    answer = answer_explain(Question(case, B, S, work), quantity)
    if sensitivity:
        from .solve import sensitivity as find_sensitivity

        answer["sensitivity"] = find_sensitivity(case, B, S)
    if format == "latex":
        write(answer["latex"] + "\n", how.output)
        return
    _emit(answer, explain_page(answer, answer.get("sensitivity")), how)


@app.command()
def solve(
    unknown: Annotated[
        str, typer.Argument(help="batch, context, bandwidth, compute, capacity or throughput.")
    ],
    model: ModelName, on: On, batch: OneBatch = "1", context: OneContext = "1024",
    latency: Annotated[
        str, typer.Option(metavar="TIME", help="A step takes at most this: 20ms.")
    ] = "",
    throughput: Annotated[
        str, typer.Option(metavar="RATE", help="Tokens a second to reach: 2500.")
    ] = "",
    share: Annotated[
        str, typer.Option(metavar="SHARE", help="Share of the throughput limit to reach: 90%.")
    ] = "",
    when: Annotated[
        str, typer.Option(metavar="STATE", help="compute-bound or cache-equals-weights.")
    ] = "",
    set: Set = [], weights: Weights = "", kv: Cache = "", accounting: AccountingName = "full",  # noqa: B006
    time_model: TimeModelName = "", reserve: Reserve = "0", capacity: Capacity = None,  # pyright: ignore[reportArgumentType]
    sensitivity: Sensitivity = False, models: ModelsFile = "", hardware: HardwareFile = "",
    format: Format = "", output: Output = "", quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """Solve for what meets a target: exact, with the formula and where it holds.

    Without a target: the largest batch or context that fits. Exits with 1 where nothing does.

    Example: rooflm solve batch llama-2-13b --on h100-sxm --context 1024 --latency 20ms

    Example: rooflm solve batch llama-2-13b --on h100-sxm --when compute-bound
    """
    from .pages import solve_page
    from .solve import UNKNOWNS, WHENS, Target
    from .solve import sensitivity as find_sensitivity
    from .solve import solve as answer_solve

    how = _printing(format, output, quiet)
    asked: Any = unknown
    _choice(asked, UNKNOWNS, "UNKNOWN")
    state: Any = when or None
    if state:
        _choice(state, WHENS, "--when")
    target = Target(
        latency_s=parse_time(latency, "--latency") if latency else None,
        tokens_per_s=parse_rate(throughput, "--throughput") if throughput else None,
        share=parse_share(share, "--share") if share else None,
        when=state,
    )
    typed = Counting(weights, kv, accounting, time_model, reserve, capacity)
    case = _found(model, on, set, models, hardware, typed)
    B, S = parse_count(batch, "--batch"), parse_count(context, "--context")
    answer = answer_solve(case, asked, B, S, target)
    if sensitivity:
        at = {"batch": B, "context": S}
        if answer["feasible"] and asked in at:
            at[asked] = max(1, round(answer["value"]))
        answer["sensitivity"] = find_sensitivity(case, at["batch"], at["context"])
    _emit(answer, solve_page(answer), how)
    return Exit.DONE if answer["feasible"] else Exit.NO


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
        message = printable(" ".join(e.format_message().split()))
        return _fail(message + ("" if message[-1] in ".?!)" else "."), Exit.USAGE)
    except SystemExit as e:
        # typer turns a closed pipe into exit 1, which here means that the answer is no.
        if isinstance(e.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        raise


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"rooflm: error: {message}\n")
    return code
