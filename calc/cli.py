"""The command line: it parses and prints, nothing else."""

# Annotations are evaluated once, where they stand: as text each start would compile 150 of them.

import copy
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .cli_help import Purposes, Sections
from .cli_log import add as add_log
from .cli_serve import add as add_serve
from .cli_study import add as add_studies
from .errors import Exit, RooflmError, check_choice, printable
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
from .printing import emit
from .printing import printing as printing_of
from .typed import (
    LINKS,
    Counting,
    Estimating,
    crossed_cases,
    find_case,
    find_site,
    given,
    make_precision,
    parse_context,
    parse_contexts,
    parse_costs,
    parse_places,
    parse_settings,
    parse_ways,
    parse_works,
    refuse_degrees,
    retyped,
    with_adapters,
)
from .units import (
    parse_count,
    parse_counts,
    parse_rate,
    parse_share,
    parse_time,
)

if TYPE_CHECKING:
    pass

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
    emit(answer, models_page(answer), printing_of(format, output, quiet))
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
    emit(answer, hardware_page(answer), printing_of(format, output, quiet))
    return Exit.DONE


def _checked(found: tuple[list[str], list[str]]) -> int:
    """Print what a check found: what is right on stdout, mistakes on stderr."""
    right, wrong = found
    write("".join(f"{line}\n" for line in right), None)
    sys.stderr.write("".join(f"rooflm: error: {line}\n" for line in wrong))
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
    from .pages import show_page
    from .presets import find_model
    from .show import show as answer_show

    check_choice(accounting, ("full", "lecture"), "--accounting")
    changes, norms = parse_settings(set), accounting == "full"
    typed = Counting(weights, kv, accounting, state=state, terms=terms)
    found = with_adapters(find_model(model, changes, models), typed)
    precision = make_precision(typed, None, found)
    answer = answer_show(found, precision, norms)
    if changes:
        from .prune import against

        answer |= against(find_model(model, None, models), found, precision, norms)
    for name in ("gpu_layers", "host_link"):
        if layout.get(name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise RooflmError("what is shown has no device", option, "`rooflm fit` takes it.")
    ways = parse_ways(layout)
    if ways:
        from .deployment import show_ranks

        answer |= show_ranks(found, ways, precision)
    emit(answer, show_page(answer, provenance), printing_of(format, output, quiet))


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

    With --engine also what that engine reserves, as its log prints it. Exits with 1 where it does
    not fit.

    Example: rooflm fit llama-3-8b --on rtx-4090 --batch 16 --context 8k

    Example: rooflm fit llama-3-8b --on h100-sxm --engine vllm --utilization 0.9 --max-len 8192
    """
    from .fit import fit as answer_fit
    from .fit import ways
    from .pages import fit_page

    how = printing_of(format, output, quiet)
    asked = None
    if any(text is not None for text in reserving.values()):
        from .typed_memory import parse_memory

        asked = parse_memory(reserving)
    typed = Counting(
        weights, kv, accounting, None, reserve, capacity, state=state, gpu_share=gpu_share,
        terms=terms,
    )  # fmt: skip
    case = find_case(model, on, set, models, hardware, typed, layout)
    batches = parse_counts(given(batch, "1"), "--batch")
    contexts = parse_contexts(context, typed)
    answer = answer_fit(case, batches, contexts)
    page = fit_page
    if asked is not None:
        from .engine_budget import engine_memory
        from .pages_memory import fit_memory_page as page

        answer["engine"] = engine_memory(case, asked)
    if not answer["fits"] and len(answer["rows"]) == 1:
        from .listing import all_machines

        answer["ways"] = ways(case, batches[0], contexts[0], all_machines())
        if not answer["ways"]:
            none = "no smaller batch or context fits, nor any other device"
            answer["assumptions"].insert(0, none)
    emit(answer, page(answer), how, plotted, "memory")
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
    emit(answer, sweep_page(answer), how, plotted, "sweep")


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
    """Compare models and machines on the same work, side by side.

    Example: rooflm compare llama-3-8b qwen3-8b --on h100-sxm,rtx-4090 --batch 8
    """
    from .compare import compare as answer_compare
    from .pages import compare_page

    how, paid = printing_of(format, output, quiet), parse_costs(costs)
    typed = Counting(
        weights,
        kv,
        accounting,
        time_model,
        reserve,
        None,
        routing,
        state,
        gpu_share=gpu_share,
        estimating=Estimating(engine, calibration, basis),
        terms=terms,
    )
    works = parse_works(phase, prompt, output_tokens, prefix, chunk, block, context, typed)
    cases = crossed_cases(model, on, set, models, hardware, typed, layout)
    places = parse_places(batch, context, works, typed)
    answer = answer_compare(cases, places)
    if paid is not None:
        from .cost import add_costs

        answer = add_costs(answer, [(c, p.work) for p in places for c in cases], paid)
    emit(answer, compare_page(answer), how, plotted, "pareto")


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
    from .pages import roofline_page
    from .roofline import rooflines

    how = printing_of(format, output, quiet)
    typed = Counting(weights, kv, routing=routing, state=state, terms=terms)
    cases = crossed_cases([model], on, set, models, hardware, typed, layout)
    batches = parse_counts(batch, "--batch")
    answer = rooflines(cases, batches, parse_context(context, typed))
    emit(answer, roofline_page(answer), how, plotted, "roofline")


TIMES = ("time_s", "tokens_per_s", "output_usd_per_mtok", "joules_per_token")
"""Quantities beside those of an estimate that may be one."""


def _of_a_step(
    quantity: str, on: str, phase: str | None, layout: Typed, sensitivity: bool, how: Estimating
) -> "Estimating | None":
    """Explain estimates of decode steps on one device; all else at the bound."""
    wanted = "estimate" in quantity or quantity in TIMES
    alone = not any(layout.values()) and not on[:1].isdigit()
    plain = phase in (None, "decode") and alone and not sensitivity
    if sensitivity and ("estimate" in quantity or how != Estimating()):
        what = "elasticities are those of the bound, which has a formula to differentiate"
        raise RooflmError(what, "--sensitivity", "Ask for bound_s, without --engine.")
    if not plain and ("estimate" in quantity or how != Estimating()):
        what = "estimates are explained of decode steps on one device"
        raise RooflmError(what, "QUANTITY", "Leave out --phase, --tp and the like.")
    if not wanted and how != Estimating():
        raise RooflmError(f"{quantity} is no estimate", "--engine", "Leave the option out.")
    return how if wanted and plain else None


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
    from .definitions import Question
    from .explain import explain as answer_explain
    from .pages import explain_page

    how = printing_of(format, output, quiet, more=("latex",))
    typed = Counting(
        weights, kv, accounting, time_model, reserve, capacity, None, state,
        tokens_per_step, gpu_share,
        _of_a_step(quantity, on, phase, layout, sensitivity,
                   Estimating(engine, calibration, basis)),
        terms,
    )  # fmt: skip
    case = find_case(model, on, set, models, hardware, typed, layout)
    works = parse_works(phase, prompt, output_tokens, prefix, chunk, block, context, typed)
    if works is not None and len(works) > 1:
        raise RooflmError("one prompt at a time is explained", "--prompt")
    if works is not None and sensitivity:
        fix = "Leave out --phase, or the option."
        raise RooflmError("elasticities are those of a decode step", "--sensitivity", fix)
    work = works[0] if works else None
    typed_context = parse_context(context, typed)
    B, S = parse_count(batch, "--batch"), work.last_context if work else typed_context
    from .cost import Paid, economics_of

    paid = economics_of(case.machine, parse_costs(costs) or Paid())
    answer = answer_explain(Question(case, B, S, work, paid), quantity)
    if sensitivity:
        from .solve import sensitivity as find_sensitivity

        answer["sensitivity"] = find_sensitivity(case, B, S)
    if format == "latex":
        write(answer["latex"] + "\n", how.output)
        return
    emit(answer, explain_page(answer, answer.get("sensitivity")), how, plotted, "tornado")


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
    from .pages import solve_page
    from .solve import UNKNOWNS, WHENS, Target
    from .solve import sensitivity as find_sensitivity
    from .solve import solve as answer_solve

    how = printing_of(format, output, quiet)
    asked: Any = unknown
    check_choice(asked, (*UNKNOWNS, "devices"), "UNKNOWN")
    known: Any = when
    if known is not None:
        check_choice(known, WHENS, "--when")
    target = Target(
        latency_s=None if latency is None else parse_time(latency, "--latency"),
        tokens_per_s=None if throughput is None else parse_rate(throughput, "--throughput"),
        share=None if share is None else parse_share(share, "--share"),
        when=known,
    )
    typed = Counting(
        weights, kv, accounting, time_model, reserve, capacity, None, state,
        tokens_per_step, gpu_share, terms=terms,
    )  # fmt: skip
    B = parse_count(given(batch, "1"), "--batch")
    S = parse_count(context, "--context") if unknown == "context" else parse_context(context, typed)
    if asked == "devices":
        if share is not None or known is not None or sensitivity:
            what = "devices are solved for a latency, a throughput or both"
            raise RooflmError(what, "--share, --when, --sensitivity", "Leave the option out.")
        from .layout_search import Ask
        from .plan import solve_devices

        words = retyped({
            "set": set, "weights": weights, "kv": kv, "state": state, "time_model": time_model,
            "reserve": reserve, "capacity": capacity, "gpu_share": gpu_share, "models": models,
            "hardware": hardware, **{name: layout[name] for name in LINKS}, **terms,
        })  # fmt: skip
        refuse_degrees(layout)
        site, _ = find_site(model, on, set, models, hardware, typed, layout, words)
        ask = Ask((1,), S, B if batch else None, target.latency_s, target.tokens_per_s)
        answer = solve_devices(site, ask, progress_on(sys.stderr))
        emit(answer, solve_page(answer), how)
        return Exit.DONE if answer["feasible"] else Exit.NO
    case = find_case(model, on, set, models, hardware, typed, layout)
    answer = answer_solve(case, asked, B, S, target)
    if sensitivity:
        at = {"batch": B, "context": S}
        if answer["feasible"] and asked in at:
            at[asked] = max(1, round(answer["value"]))
        answer["sensitivity"] = find_sensitivity(case, at["batch"], at["context"])
    emit(answer, solve_page(answer), how)
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
        emit(answer, pages.laws_page(answer), printing, plotted, "laws")
    elif target is None:
        emit(answer, pages.ideal_page(answer), printing, plotted, "lines:x=draft_tokens,y=speedup")
    else:
        emit(answer, pages.speculate_page(answer), printing, plotted, "speculation")


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
    from .levers import BYS
    from .levers import levers as answer_levers
    from .pages_levers import levers_page

    printing = printing_of(how["format"], how["output"], how["quiet"])
    chosen: Any = by
    check_choice(chosen, BYS, "--by")
    asked = any(estimated[name] is not None for name in ("engine", "calibration"))
    basis = given(estimated["basis"], "estimate" if asked else "bound")
    check_choice(basis, ("estimate", "bound"), "--basis")
    reserve = {"reserve": None if counted["reserve"] == "0" else counted["reserve"]}
    words = {
        "model": model, "on": on, "batch": parse_count(batch, "--batch"),
        "context": parse_count(context, "--context"), "set": tuple(set), **counted, **reserve,
        **layout, **estimated, "basis": basis, **files, **costs, "cost": True,
        "draft": draft, "acceptance": acceptance,
    }  # fmt: skip
    answer = answer_levers(words, chosen)
    emit(answer, levers_page(answer), printing, plotted, "tornado")


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
    from .cost import Paid, economics_of
    from .layout_search import AIMS, Ask
    from .pages_plan import plan_page
    from .plan import plan as answer_plan

    how = printing_of(printing["format"], printing["output"], bool(printing["quiet"]))
    estimates = Estimating(**estimating)
    words = (*retyped({"set": set, **files, **counting, **estimating, "basis": None, **costs}),)
    linked = retyped({name: layout[name] for name in LINKS})
    words += linked if any(costs.values()) else (*linked, "--cost")
    site, known = find_site(
        model, on, set, files["models"], files["hardware"],
        Counting(**counting, estimating=estimates), layout, words,
    )  # fmt: skip
    if by is not None:
        check_choice(by, AIMS, "--by")
    ask = Ask(
        devices=tuple(known if devices is None else parse_counts(devices, "--devices")),
        context=parse_count(context, "--context"),
        batch=None if batch is None else parse_count(batch, "--batch"),
        latency_s=None if latency is None else parse_time(latency, "--latency"),
        tokens_per_s=None if throughput is None else parse_rate(throughput, "--throughput"),
        by=by,
        top=parse_count(top, "--top"),
        fixed=parse_ways(layout),
        economics=economics_of(site.case.machine, parse_costs(costs) or Paid()),
    )
    answer = answer_plan(site, ask, estimates.basis, progress_on(sys.stderr))
    emit(answer, plan_page(answer), how, plotted, "plan")
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
    from pathlib import Path

    from .pages import quantize_page
    from .quantize import PERS, Quantizer, open_numbers, parse_code, parse_numbers, parse_real
    from .quantize import quantize as answer_quantize

    how = printing_of(format, output, quiet)
    shared: Any = per
    check_choice(shared, PERS, "--per")
    if group is not None and per != "group":
        raise RooflmError("only groups have a size", "--group", "Add --per group.")
    quantizer = Quantizer(
        bits=parse_count(bits, "--bits"),
        signed=not unsigned,
        symmetric=symmetric,
        scale=None if scale is None else parse_real(scale, "--scale"),
        zero_point=None if zero_point is None else parse_code(zero_point, "--zero-point"),
        per=shared,
        group=parse_count(given(group, "128"), "--group"),
    )
    if (file is None) == (values is None):
        what = "numbers are needed" if file is None else "there are both a file and numbers"
        raise RooflmError(what, "--values", "Say either FILE or --values 5.2342,1.5.")
    if values is not None and tensor is not None:
        raise RooflmError("only a .safetensors file has tensors", "--tensor")
    found = parse_numbers(values, "--values") if values is not None else None
    source = found or open_numbers(Path(given(file, "")), tensor)
    answer = answer_quantize(source, quantizer, parse_count(first, "--first"))
    emit(answer, quantize_page(answer), how)


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
    emit(answer, accuracy_page(answer, rows), how, plotted, "accuracy")


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
    from .calibrate import calibrate as answer_calibrate
    from .calibrate import calibration_text, parse_point
    from .pages import calibrate_page

    saved = output is not None and output.endswith((".yaml", ".yml"))
    how = printing_of(format, None if saved else output, quiet)
    if not measured:
        fix = 'Say --measured "batch=1 context=512 latency=10.6ms".'
        raise RooflmError("a measured step is needed", "--measured", fix)
    points = [parse_point(text) for text in measured]
    typed = Counting(weights, kv, routing=routing)
    case = find_case(model, on, set, models, hardware, typed, layout)
    names = None if constants is None else [n.strip() for n in constants.split(",")]
    answer = answer_calibrate(case, points, names, engine)
    if saved:
        write(calibration_text(answer), output)
    emit(answer, calibrate_page(answer), how)


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
