"""The command line: it parses and prints, nothing else."""

# Annotations are evaluated once, where they stand: as text each start would compile 150 of them.

import copy
import sys
from typing import Annotated, Any

import typer

from .cli_help import Purposes, Sections
from .cli_hints import way_out
from .cli_log import add as add_log
from .cli_serve import add as add_serve
from .cli_study import add as add_studies
from .errors import Exit, RooflmError, check_choice, say
from .options import (
    ADAPTERS,
    BOUNDED,
    COSTED,
    COUNTED,
    DRAFTED,
    ESTIMATED,
    FILES,
    HANDOFF,
    LAYOUT,
    PLANNED,
    PLOTTED,
    PRINTED,
    SHARED,
    TERMS,
    UNCHARGED,
    AccountingName,
    Aim,
    BasisName,
    Batch,
    Bits,
    Block,
    Cache,
    CalibrationFile,
    Capacity,
    Check,
    Chunk,
    ConstantNames,
    Context,
    Debug,
    DenoiseBlock,
    DenoiseSteps,
    Devices,
    DraftCost,
    Draws,
    EachRow,
    EngineName,
    First,
    Format,
    GpuShare,
    GroupBy,
    Grouped,
    GroupSize,
    HardwareFile,
    HardwareScale,
    Latency,
    LeverAcceptance,
    LeverDraft,
    ManyModels,
    ManyOn,
    Measured,
    MixedContext,
    ModelName,
    ModelsFile,
    NumbersFile,
    On,
    OneBatch,
    OneContext,
    OnlyBatch,
    OnlyEngine,
    OnlyHardware,
    OnlyKind,
    OnlyModel,
    OnlySource,
    OnlyWeights,
    OptionalContext,
    OptionalModel,
    OptionalOn,
    Output,
    OutputTokens,
    Per,
    Phase,
    PlannedBatch,
    Prefix,
    Prompt,
    Provenance,
    Quiet,
    RankedBy,
    Reserve,
    RoutingName,
    Scale,
    Sensitivity,
    Set,
    SolvedBatch,
    State,
    Symmetric,
    TensorName,
    Throughput,
    TimeModelName,
    TokensPerStep,
    Top,
    Typed,
    Unsigned,
    Values,
    Wants,
    Weights,
    Word,
    ZeroPoint,
    with_layout,
    with_options,
)
from .options_memory import MEMORY
from .output import progress_on, write
from .printing import check_points, emit
from .printing import printing as printing_of
from .typed import given

START = """Start here: rooflm sweep llama-2-13b --on h100-sxm --batch 1,64,256 --context 1024

`rooflm models` and `rooflm hardware` list what is known; a YAML file will do as well."""

app = typer.Typer(
    cls=Purposes,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Does a language model fit, how fast does it decode, how many users can it serve: "
    "computed before anyone rents a GPU.",
    epilog=START,
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        write(f"rooflm {version('rooflm')}\n", None)
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
        write(context.get_help() + "\n", None)


@app.command()
def models(
    word: Word = None, check: Check = False, models: ModelsFile = None, format: Format = None,
    output: Output = None, quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """List the models that are known, or check the files that describe them.

    Example: rooflm models llama
    """
    from .entries import build_model
    from .listing import check_file, list_models
    from .pages import models_page
    from .presets import MODELS_FILE
    from .schema import MODEL

    if check:
        return _checked(check_file(MODELS_FILE, models, build_model, MODEL))
    answer = list_models(given(word, ""), models)
    emit(answer, models_page, printing_of(format, output, quiet))
    return Exit.DONE


@app.command()
def hardware(
    word: Word = None, check: Check = False, hardware: HardwareFile = None, format: Format = None,
    output: Output = None, quiet: Quiet = False, debug: Debug = False,
) -> int:  # fmt: skip
    """List the hardware that is known; one chip alone with every figure and its source.

    Example: rooflm hardware h100-sxm
    """
    from .entries import build_machine
    from .listing import check_file, list_hardware
    from .pages import hardware_page
    from .presets import HARDWARE_FILE
    from .schema import HARDWARE

    if check:
        return _checked(check_file(HARDWARE_FILE, hardware, build_machine, HARDWARE))
    answer = list_hardware(given(word, ""), hardware)
    emit(answer, hardware_page, printing_of(format, output, quiet))
    return Exit.DONE


def _checked(found: tuple[list[str], list[str]]) -> int:
    """Print what a check found: what is right on stdout, mistakes on stderr."""
    right, wrong = found
    write("".join(f"{line}\n" for line in right), None)
    for line in wrong:
        say(f"rooflm: error: {line}")
    return Exit.NO if wrong else Exit.DONE


@app.command()
@with_options(layout=LAYOUT, terms=ADAPTERS)
def show(
    model: ModelName, set: Set = [], weights: Weights = None, kv: Cache = None,
    state: State = None, accounting: AccountingName = "full", provenance: Provenance = False,
    models: ModelsFile = None, format: Format = None, output: Output = None,
    quiet: Quiet = False, debug: Debug = False,
    layout: Typed = {}, terms: Typed = {},
) -> None:  # fmt: skip
    """Show a model: parameters by part, bytes by format, cache by layer kind.

    Example: rooflm show qwen3-8b
    """
    from .answered import shown
    from .pages import show_page

    answer = shown({
        "model": model, "set": set, "weights": weights, "kv": kv, "state": state,
        "accounting": accounting, "models": models, **layout, **terms,
    })  # fmt: skip
    emit(answer, lambda a: show_page(a, provenance), printing_of(format, output, quiet))


@app.command()
@with_options(layout=LAYOUT, terms=TERMS, reserving=MEMORY, plotted=PLOTTED)
def fit(
    model: ModelName, on: On, batch: Batch = None, context: Context = None, set: Set = [],
    weights: Weights = None, kv: Cache = None, state: State = None,
    accounting: AccountingName = "full", reserve: Reserve = "0", capacity: Capacity = None,
    gpu_share: GpuShare = None,
    models: ModelsFile = None, hardware: HardwareFile = None, format: Format = None,
    output: Output = None, quiet: Quiet = False,
    debug: Debug = False,
    layout: Typed = {}, terms: Typed = {}, reserving: Typed = {}, plotted: Grouped = {},
) -> int:  # fmt: skip
    """Tell whether a model fits, what fills the memory, and the cheapest ways to make it fit.

    With --engine also what that engine reserves, as its log prints it. Exits with 1 where the model
    does not fit; an engine that would not start alone leaves 0, and its line `starts` says no.

    Example: rooflm fit llama-3-8b --on rtx-4090 --batch 16 --context 8k

    Example: rooflm fit llama-3-8b --on h100-sxm --engine vllm --utilization 0.9 --max-len 8192
    """
    from .answered import fitted
    from .pages import fit_page as page

    how = printing_of(format, output, quiet)
    answer = fitted({
        "model": model, "on": on, "batch": batch, "context": context, "set": set,
        "weights": weights, "kv": kv, "state": state, "accounting": accounting,
        "reserve": reserve, "capacity": capacity, "gpu_share": gpu_share, "models": models,
        "hardware": hardware, **layout, **terms, **reserving,
    })  # fmt: skip
    if "engine" in answer:
        from .pages_memory import fit_memory_page as page
    emit(answer, page, how, plotted, "memory")
    return Exit.DONE if answer["fits"] else Exit.NO


@app.command()
@with_options(layout=LAYOUT, terms=TERMS, handoff=HANDOFF, costs=COSTED, plotted=PLOTTED)
def sweep(
    model: ModelName, on: On, batch: Batch = None, context: MixedContext = None,
    phase: Phase = None, prompt: Prompt = None, output_tokens: OutputTokens = None,
    prefix: Prefix = None, chunk: Chunk = None, block: Block = None, set: Set = [],
    weights: Weights = None, routing: RoutingName = None, kv: Cache = None, state: State = None,
    tokens_per_step: TokensPerStep = None, denoise_block: DenoiseBlock = None,
    denoise_steps: DenoiseSteps = None,
    accounting: AccountingName = "full", time_model: TimeModelName = None,
    engine: EngineName = None, calibration: CalibrationFile = None, basis: BasisName = None,
    reserve: Reserve = "0",
    capacity: Capacity = None, gpu_share: GpuShare = None, hardware_scale: HardwareScale = None,
    models: ModelsFile = None, hardware: HardwareFile = None,
    format: Format = None, output: Output = None, quiet: Quiet = False, debug: Debug = False,
    layout: Typed = {}, terms: Typed = {}, handoff: Typed = {}, costs: Grouped = {},
    plotted: Grouped = {},
) -> None:  # fmt: skip
    """Sweep batches and contexts: memory, time, throughput, regime, fits.

    Of decode steps; of prefills and whole requests with --phase.

    Example: rooflm sweep llama-2-13b --on h100-sxm --batch 1,64,256 --context 1024

    Example: rooflm sweep llama-3-8b --on h100-sxm --phase request --prompt 2k --output-tokens 256

    Example: rooflm sweep llama-3-8b --on h100-sxm --batch 1:256:x4 --cost --utilization 60%
    """
    from .asked import swept
    from .pages import sweep_page

    how = printing_of(format, output, quiet)
    check_points(how, batch, context)
    answer = swept({
        "model": model, "on": on, "batch": batch, "context": context, "phase": phase,
        "prompt": prompt, "output_tokens": output_tokens, "prefix": prefix, "chunk": chunk,
        "block": block, "set": set, "weights": weights, "routing": routing, "kv": kv,
        "state": state, "tokens_per_step": tokens_per_step, "denoise_block": denoise_block,
        "denoise_steps": denoise_steps, "accounting": accounting, "time_model": time_model,
        "engine": engine, "calibration": calibration, "basis": basis, "reserve": reserve,
        "capacity": capacity, "gpu_share": gpu_share, "hardware_scale": hardware_scale,
        "models": models, "hardware": hardware, **layout, **terms, **handoff, **costs,
    })  # fmt: skip
    emit(answer, sweep_page, how, plotted, "sweep")


@app.command()
@with_options(layout=LAYOUT, terms=TERMS, costs=COSTED, plotted=PLOTTED)
def compare(
    model: ManyModels, on: ManyOn = [], batch: Batch = None, context: Context = None,
    phase: Phase = None, prompt: Prompt = None, output_tokens: OutputTokens = None,
    prefix: Prefix = None,
    chunk: Chunk = None, block: Block = None, set: Set = [], weights: Weights = None,
    routing: RoutingName = None,
    kv: Cache = None, state: State = None, accounting: AccountingName = "full",
    time_model: TimeModelName = None, engine: EngineName = None,
    calibration: CalibrationFile = None, basis: BasisName = None,
    reserve: Reserve = "0", gpu_share: GpuShare = None, models: ModelsFile = None,
    hardware: HardwareFile = None,
    format: Format = None, output: Output = None, quiet: Quiet = False, debug: Debug = False,
    layout: Typed = {}, terms: Typed = {}, costs: Grouped = {}, plotted: Grouped = {},
) -> None:  # fmt: skip
    """Compare models, machines and formats on the same work, side by side.

    Several formats are --weights bf16,int4 and --kv bf16,fp8.

    Example: rooflm compare llama-3-8b qwen3-8b --on h100-sxm,rtx-4090 --batch 8
    """
    from .answered import compared, formats_of
    from .pages import compare_page

    how = printing_of(format, output, quiet)
    kinds = len(formats_of(weights)) * len(formats_of(kv))
    check_points(how, batch, context, len(model) * max(1, len(on)) * kinds)
    answer = compared({
        "model": model, "on": on, "batch": batch, "context": context, "phase": phase,
        "prompt": prompt, "output_tokens": output_tokens, "prefix": prefix, "chunk": chunk,
        "block": block, "set": set, "weights": weights, "routing": routing, "kv": kv,
        "state": state, "accounting": accounting, "time_model": time_model, "engine": engine,
        "calibration": calibration, "basis": basis, "reserve": reserve, "gpu_share": gpu_share,
        "models": models, "hardware": hardware, **layout, **terms, **costs,
    })  # fmt: skip
    emit(answer, compare_page, how, plotted, "pareto")


@app.command()
@with_options(layout=LAYOUT, terms=TERMS, plotted=PLOTTED)
def roofline(
    model: ModelName, on: ManyOn = [], batch: OneBatch = "1", context: OneContext = "1024",
    set: Set = [],
    weights: Weights = None, routing: RoutingName = None, kv: Cache = None, state: State = None,
    models: ModelsFile = None,
    hardware: HardwareFile = None,
    format: Format = None, output: Output = None, quiet: Quiet = False, debug: Debug = False,
    layout: Typed = {}, terms: Typed = {}, plotted: Grouped = {},
) -> None:  # fmt: skip
    """Hold every operator of decode and prefill against the ridge of a machine.

    Several machines or batches stand one after the other.

    Example: rooflm roofline llama-3-8b --on h100-sxm --batch 64 --context 4096
    """
    from .answered import held_against
    from .pages import roofline_page

    how = printing_of(format, output, quiet)
    answer = held_against({
        "model": model, "on": on, "batch": batch, "context": context, "set": set,
        "weights": weights, "routing": routing, "kv": kv, "state": state, "models": models,
        "hardware": hardware, **layout, **terms,
    })  # fmt: skip
    emit(answer, roofline_page, how, plotted, "roofline")


@app.command()
@with_options(layout=LAYOUT, terms=SHARED, costs=UNCHARGED, plotted=PLOTTED)
def explain(
    quantity: Annotated[str, typer.Argument(
        help="A column of show, fit, sweep or roofline; output_usd_per_mtok, joules_per_token."
    )],
    model: ModelName, on: On, batch: OneBatch = "1", context: OptionalContext = None,
    phase: Phase = None, prompt: Prompt = None, output_tokens: OutputTokens = None,
    prefix: Prefix = None,
    chunk: Chunk = None, block: Block = None, set: Set = [], weights: Weights = None,
    kv: Cache = None, state: State = None, tokens_per_step: TokensPerStep = None,
    accounting: AccountingName = "full", time_model: TimeModelName = None,
    engine: EngineName = None, calibration: CalibrationFile = None, basis: BasisName = None,
    reserve: Reserve = "0", capacity: Capacity = None, gpu_share: GpuShare = None,
    sensitivity: Sensitivity = False,
    models: ModelsFile = None, hardware: HardwareFile = None, format: Format = None,
    output: Output = None,
    quiet: Quiet = False, debug: Debug = False,
    layout: Typed = {}, terms: Typed = {}, costs: Grouped = {}, plotted: Grouped = {},
) -> None:  # fmt: skip
    """Explain a number: formula, subtotals, substitution, value, what is left out, source.

    With --format latex the formula alone, for a document.

    Example: rooflm explain bound_s llama-2-13b --on h100-sxm --batch 64
    """
    from .answered import explained
    from .pages import explain_page

    how = printing_of(format, output, quiet, more=("latex",))
    answer = explained({
        "quantity": quantity, "model": model, "on": on, "batch": batch, "context": context,
        "phase": phase, "prompt": prompt, "output_tokens": output_tokens, "prefix": prefix,
        "chunk": chunk, "block": block, "set": set, "weights": weights, "kv": kv, "state": state,
        "tokens_per_step": tokens_per_step, "accounting": accounting, "time_model": time_model,
        "engine": engine, "calibration": calibration, "basis": basis, "reserve": reserve,
        "capacity": capacity, "gpu_share": gpu_share, "sensitivity": sensitivity,
        "models": models, "hardware": hardware, **layout, **terms, **costs,
    })  # fmt: skip
    if format == "latex":
        write(answer["latex"] + "\n", how.output)
        return
    emit(answer, lambda a: explain_page(a, a.get("sensitivity")), how, plotted, "tornado")


@app.command()
@with_options(layout=LAYOUT, terms=SHARED)
def solve(
    unknown: Annotated[
        str,
        typer.Argument(help="batch, context, bandwidth, compute, capacity, throughput, devices."),
    ],
    model: ModelName, on: On, batch: SolvedBatch = None, context: OneContext = "1024",
    latency: Latency = None, throughput: Throughput = None,
    share: Annotated[
        str | None, typer.Option(metavar="SHARE", help="Share of the throughput limit: 90%.")
    ] = None,
    when: Annotated[
        str | None, typer.Option(metavar="STATE", help="compute-bound or cache-equals-weights.")
    ] = None,
    set: Set = [], weights: Weights = None, kv: Cache = None, state: State = None,
    tokens_per_step: TokensPerStep = None, accounting: AccountingName = "full",
    time_model: TimeModelName = None, reserve: Reserve = "0", capacity: Capacity = None,
    gpu_share: GpuShare = None, sensitivity: Sensitivity = False, models: ModelsFile = None,
    hardware: HardwareFile = None,
    format: Format = None, output: Output = None, quiet: Quiet = False, debug: Debug = False,
    layout: Typed = {}, terms: Typed = {},
) -> int:  # fmt: skip
    """Solve for what meets a target: exact, with the formula and where it holds.

    Without a target: the largest batch or context that fits. Exits with 1 where nothing does.

    Example: rooflm solve batch llama-2-13b --on h100-sxm --context 1024 --latency 20ms

    Example: rooflm solve batch llama-2-13b --on h100-sxm --when compute-bound

    Example: rooflm solve devices llama-3-70b --on h100-sxm --context 4k --latency 15ms --batch 32
    """
    from .answered import solved
    from .pages import solve_page

    how = printing_of(format, output, quiet)
    answer = solved({
        "unknown": unknown, "model": model, "on": on, "batch": batch, "context": context,
        "latency": latency, "throughput": throughput, "share": share, "when": when, "set": set,
        "weights": weights, "kv": kv, "state": state, "tokens_per_step": tokens_per_step,
        "accounting": accounting, "time_model": time_model, "reserve": reserve,
        "capacity": capacity, "gpu_share": gpu_share, "sensitivity": sensitivity,
        "models": models, "hardware": hardware, **layout, **terms,
    }, progress_on(sys.stderr))  # fmt: skip
    emit(answer, solve_page, how)
    return Exit.DONE if answer["feasible"] else Exit.NO


@app.command()
@with_options(
    drafted=DRAFTED, counted=COUNTED, estimated=ESTIMATED, costs=COSTED, files=FILES,
    layout=LAYOUT, plotted=PLOTTED, how=PRINTED,
)  # fmt: skip
def speculate(
    target: OptionalModel = None, on: OptionalOn = None, batch: Batch = None,
    context: OptionalContext = None, p: Draws = None, q: Wants = None, draft_cost: DraftCost = None,
    set: Set = [], *, drafted: Typed, counted: Grouped, estimated: Typed, costs: Grouped,
    files: Typed, layout: Typed, plotted: Grouped, how: dict[str, Any],
) -> None:  # fmt: skip
    """Tell what speculative sampling gains: speed-up by batch, the best draft length, exactness.

    With --p and --q one step of it, exactly; with --draft-cost without models.

    Example: rooflm speculate llama-3-70b --draft llama-3-8b --acceptance 0.8 --on 8xh100-sxm

    Example: rooflm speculate --p 0.8,0.2 --q 0.6,0.4

    Example: rooflm speculate --acceptance 0.8 --draft-cost 0.05 --draft-tokens 1:8
    """
    from . import pages_speculate as pages
    from .asked import speculated

    printing = printing_of(how["format"], how["output"], how["quiet"])
    answer = speculated({
        "model": target, "on": on, "batch": batch, "context": context, "p": p, "q": q,
        "draft_cost": draft_cost, "set": set, **drafted, **counted, **estimated,
        **costs, **files, **layout,
    })  # fmt: skip
    if p is not None:
        emit(answer, pages.laws_page, printing, plotted, "laws")
    elif target is None:
        emit(answer, pages.ideal_page, printing, plotted, "lines:x=draft_tokens,y=speedup")
    else:
        emit(answer, pages.speculate_page, printing, plotted, "speculation")


@app.command()
@with_options(
    counted=COUNTED,
    estimated=BOUNDED,
    costs=UNCHARGED,
    files=FILES,
    layout=LAYOUT,
    plotted=PLOTTED,
    how=PRINTED,
)
def levers(
    model: ModelName, on: On, batch: OneBatch = "1", context: OneContext = "1024",
    by: RankedBy = "time", draft: LeverDraft = None, acceptance: LeverAcceptance = None,
    set: Set = [], *, counted: Typed, estimated: Typed, costs: Grouped, files: Typed, layout: Typed,
    plotted: Grouped, how: dict[str, Any],
) -> None:  # fmt: skip
    """Tell which change would help most: every lever tried, ranked by its effect.

    Formats, heads, latents, windows, sharing, pruning, speculation, batch, devices, faster chips;
    each with the command that reproduces its figure, and what has to be checked.

    Example: rooflm levers llama-2-13b --on h100-sxm --batch 64 --context 1024
    """
    from .answered import levered
    from .pages_levers import levers_page

    printing = printing_of(how["format"], how["output"], how["quiet"])
    answer = levered({
        "model": model, "on": on, "batch": batch, "context": context, "by": by, "draft": draft,
        "acceptance": acceptance, "set": set, **counted, **estimated, **costs, **files, **layout,
    })  # fmt: skip
    emit(answer, levers_page, printing, plotted, "tornado")


@app.command()
@with_options(
    counting=COUNTED, estimating=ESTIMATED, layout=PLANNED, costs=UNCHARGED, files=FILES,
    plotted=PLOTTED, printing=PRINTED,
)  # fmt: skip
def plan(
    model: ModelName, on: On, devices: Devices = None, batch: PlannedBatch = None,
    context: OneContext = "1024", latency: Latency = None, throughput: Throughput = None,
    by: Aim = None, top: Top = "10", set: Set = [],
    counting: Grouped = {}, estimating: Typed = {}, layout: Typed = {}, costs: Grouped = {},
    files: Typed = {}, printing: Grouped = {}, plotted: Grouped = {},
) -> int:  # fmt: skip
    """Plan a deployment: every layout that meets a target, best first, with its command.

    Exits with 1 where none does; the one that is nearest is told.

    Example: rooflm plan llama-3-70b --on h100-sxm --devices 1:16 --context 4k --latency 30ms

    Example: rooflm plan deepseek-v3 --on 8xh200-sxm --devices 8,16 --network 50GB --batch 256
    """
    from .answered import planned
    from .pages_plan import plan_page

    how = printing_of(printing["format"], printing["output"], bool(printing["quiet"]))
    answer = planned({
        "model": model, "on": on, "devices": devices, "batch": batch, "context": context,
        "latency": latency, "throughput": throughput, "by": by, "top": top, "set": set,
        **counting, **estimating, **layout, **costs, **files,
    }, progress_on(sys.stderr))  # fmt: skip
    emit(answer, plan_page, how, plotted, "plan")
    return Exit.DONE if answer["feasible"] else Exit.NO


@app.command()
def quantize(
    file: NumbersFile = None, values: Values = None, tensor: TensorName = None, bits: Bits = "8",
    unsigned: Unsigned = False, symmetric: Symmetric = False, scale: Scale = None,
    zero_point: ZeroPoint = None, per: Per = "tensor", group: GroupSize = None, first: First = "16",
    format: Format = None, output: Output = None, quiet: Quiet = False, debug: Debug = False,
) -> None:  # fmt: skip
    """Quantize numbers to integers: codes, what comes back, the error beside its bound.

    Example: rooflm quantize --values 5.2342,1.5,20 --scale 0.1 --zero-point 4

    Example: rooflm quantize model.safetensors --tensor w --bits 4 --per group --group 128
    """
    from .answered import quantized
    from .pages import quantize_page

    how = printing_of(format, output, quiet)
    answer = quantized({
        "file": file, "values": values, "tensor": tensor, "bits": bits, "unsigned": unsigned,
        "symmetric": symmetric, "scale": scale, "zero_point": zero_point, "per": per,
        "group": group, "first": first,
    })  # fmt: skip
    emit(answer, quantize_page, how)


GROUPS = ("set", "source", "hardware", "engine", "kind", "weights", "model", "batch")


@app.command()
@with_options(plotted=PLOTTED)
def accuracy(
    source: OnlySource = None, model: OnlyModel = None,
    hardware: OnlyHardware = None, engine: OnlyEngine = None,
    kind: OnlyKind = None, weights: OnlyWeights = None, batch: OnlyBatch = None,
    by: GroupBy = "set", rows: EachRow = False, format: Format = None,
    output: Output = None, quiet: Quiet = False, debug: Debug = False, plotted: Grouped = {},
) -> None:  # fmt: skip
    """Tell how accurate it is: predictions beside published measurements.

    Each row is predicted with constants that were fitted without it.

    Example: rooflm accuracy

    Example: rooflm accuracy --engine vllm --hardware h100-sxm --rows
    """
    from ..validate.accuracy import accuracy as answer_accuracy
    from .pages import accuracy_page

    how = printing_of(format, output, quiet)
    check_choice(by, GROUPS, "--by")
    typed = {
        "source": source, "model": model, "hardware": hardware, "engine": engine, "kind": kind,
        "weights": weights, "batch": batch,
    }  # fmt: skip
    wanted = {name: text for name, text in typed.items() if text is not None}
    answer = answer_accuracy(wanted, by=by)
    emit(answer, lambda a: accuracy_page(a, rows), how, plotted, "accuracy")


@app.command()
@with_layout
def calibrate(
    model: ModelName, on: On, measured: Measured = [], engine: EngineName = None,
    constants: ConstantNames = None, set: Set = [], weights: Weights = None, kv: Cache = None,
    routing: RoutingName = None, models: ModelsFile = None, hardware: HardwareFile = None,
    format: Format = None, output: Output = None, quiet: Quiet = False, debug: Debug = False,
    layout: Typed = {},
) -> None:  # fmt: skip
    """Fit the constants of an estimate to steps that you measured.

    With --output FILE.yaml they are written for --calibration of sweep and compare.

    Example: rooflm calibrate llama-3-8b --on h100-sxm --measured "context=512 latency=6.9ms"
    """
    from .answered import calibrated
    from .calibrate import calibration_text
    from .pages import calibrate_page

    saved = output is not None and output.endswith((".yaml", ".yml"))
    how = printing_of(format, None if saved else output, quiet)
    answer = calibrated({
        "model": model, "on": on, "measured": measured, "engine": engine, "constants": constants,
        "set": set, "weights": weights, "kv": kv, "routing": routing, "models": models,
        "hardware": hardware, **layout,
    })  # fmt: skip
    if saved:
        write(calibration_text(answer), output)
    emit(answer, calibrate_page, how)


@app.command(
    add_help_option=False,
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True,
                      "help_option_names": []},
)  # fmt: skip
def validate(context: typer.Context) -> None:
    """Run real steps on this device, beside what is predicted of them."""
    from ..validate.__main__ import run

    # One parser serves this and `python -m rooflm.validate`, where typer need not be there.
    code = run(context.args, "rooflm validate")
    if code:
        raise typer.Exit(code)


add_serve(app)
add_log(app)
add_studies(app)
for registered in app.registered_commands:
    registered.cls = Sections


def _asked_for(words: list[str]) -> typer.Typer:
    """Leave the command that was typed: typer would build the options of all at each start."""
    named = next((word for word in words if not word.startswith("-")), "")
    word = named.replace("-", "_")
    own = [c for c in app.registered_commands if c.callback and c.callback.__name__ == word]
    if not own:
        return app
    alone = copy.copy(app)
    alone.registered_commands = own
    return alone


def main() -> int:
    """Run the command line and return its exit code; every error becomes one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")
    try:
        asked = _asked_for(sys.argv[1:])
        return int(asked(standalone_mode=False, prog_name="rooflm") or 0)
    except RooflmError as e:
        return _fail(str(e), e.code)
    except typer.TyperException as e:
        message = way_out(e, sys.argv[1:])
        return _fail(message + ("" if message[-1] in ".?!)" else "."), Exit.USAGE)
    except SystemExit as e:
        # typer turns a closed pipe into exit 1, which here means that the answer is no.
        if isinstance(e.__context__, BrokenPipeError):
            raise BrokenPipeError from None
        raise


def _fail(message: str, code: int) -> int:
    say(f"rooflm: error: {message}")
    return code
