"""What was typed of a command, answered: one way in for the command line and for Python.

What was typed stands under the names of the options, None where nothing was. Sweeps and
speculation, which studies ask as well, are in `asked`; live traffic is in `typed_serve`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .asked import Words, case_of, counting_of, group, works_of
from .errors import RooflmError, check_choice
from .noted import at_a_context, noted
from .options import COSTED, COUNTED, ESTIMATED, FILES, LAYOUT, TERMS, UNCHARGED
from .typed import (
    LINKS,
    Counting,
    Estimating,
    crossed_cases,
    find_site,
    given,
    make_precision,
    node_of,
    parse_context,
    parse_contexts,
    parse_costs,
    parse_places,
    parse_settings,
    parse_ways,
    refuse_degrees,
    retyped,
    with_adapters,
)
from .units import parse_count, parse_counts, parse_rate, parse_share, parse_time

if TYPE_CHECKING:
    from .case import Case
    from .engine_rules import Asked
    from .fit import Typed

Progress = Callable[[int, int], None]
"""Tells how far long work is."""


def silent(done: int, of: int) -> None:
    """Tell nothing."""
    del done, of


def bounded(words: Words) -> Counting:
    """Gather the options that say how to count, of a command that estimates nothing."""
    return replace(counting_of(words), estimating=None)


def settings_of(words: Words) -> list[str]:
    """Take what `--set` changes."""
    return list(words.get("set") or ())


@noted
def shown(words: Words) -> dict[str, Any]:
    """Answer what a model is made of, and what each rank of a layout holds of it."""
    from .presets import find_model
    from .show import show

    typed = bounded(words)
    check_choice(typed.accounting, ("full", "lecture"), "--accounting")
    changes, norms = parse_settings(settings_of(words)), typed.accounting == "full"
    models = words.get("models")
    found = with_adapters(find_model(words["model"], changes, models), typed)
    precision = make_precision(typed, None, found)
    answer = show(found, precision, norms)
    if changes:
        from .prune import against

        answer |= against(find_model(words["model"], None, models), found, precision, norms)
    for name in (*LINKS, "gpu_layers", "host_link"):
        if words.get(name) is not None:
            option = f"--{name.replace('_', '-')}"
            raise RooflmError("what is shown has no device", option, "`rooflm fit` takes it.")
    ways = parse_ways(group(words, LAYOUT))
    if ways:
        from .deployment import show_ranks

        answer |= show_ranks(found, ways, precision)
    return answer


@noted
@at_a_context
def fitted(words: Words) -> dict[str, Any]:
    """Answer whether a model fits, what fills the memory, and what would make it fit."""
    from .fit import fit, spared, ways
    from .options_memory import MEMORY

    asked = None
    reserving = group(words, MEMORY)
    if any(text is not None for text in reserving.values()):
        from .typed_memory import parse_memory

        asked = parse_memory(reserving, words.get("state"))
    typed = bounded(words)
    case = case_of(words, typed, timed=False)
    batches = parse_counts(given(words.get("batch"), "1"), "--batch")
    context, max_len = words.get("context"), reserving.get("max_len")
    contexts = parse_contexts(max_len if context is None else context, typed)
    answer = fit(case, batches, contexts)
    alone = len(answer["rows"]) == 1
    if asked is not None:
        length = None if context is None or max_len is not None else max(contexts)
        weights = words.get("weights")
        answer["engine"], told = _with_engine(case, asked, length, weights is not None)
        answer["assumptions"][:0] = told
        if not answer["fits"]:
            judged = "what would fit is judged by --batch and --context; whether the engine starts "
            answer["assumptions"].insert(0, judged + "by its own lines")
    elif alone:
        answer["assumptions"][:0] = spared(case, batches[0], contexts[0])
    if not answer["fits"] and alone:
        from .listing import all_machines

        beside = _beside(words, case, typed)
        answer["ways"] = ways(case, batches[0], contexts[0], all_machines(), beside)
        if not answer["ways"]:
            none = (
                "nothing that was tried fits: fewer sequences, a shorter context, weights of fewer "
                "bits, more --tp, other devices, each by itself"
            )
            answer["assumptions"].insert(0, none)
    return answer


def _with_engine(
    case: Case, asked: Asked, context: int | None, weighed: bool
) -> tuple[dict[str, Any], list[str]]:
    """Answer what an engine reserves, and say what it is started with.

    context: the longest that was typed where no length was [tokens]; weighed: a format was typed.
    """
    from .engine_budget import engine_memory, length_said
    from .engine_inputs import request_length
    from .engine_rules import find_rules

    rules, told = find_rules(asked.engine), list[str]()
    # A length of llama.cpp's is that of all slots together.
    together = rules["way"] == "all-at-once" and not rules.get("each")
    slots = asked.sequences or 1 if together else 1
    if context is not None:
        own = request_length(case, rules, asked)
        asked = replace(asked, max_len=context * slots)
        told.append(_started(context * slots, own))
    if asked.engine == "ollama" and not weighed and case.model.source:
        told.append(
            f"weights are counted in {case.precision.weights.name}; what `ollama pull` takes has "
            "about four bits: --weights q4_k_m"
        )
    if asked.max_len is not None:
        told = [*length_said(case, rules, asked.max_len // slots), *told]
    return engine_memory(case, asked), told


def _started(length: int, own: int | None) -> str:
    """Say which length an engine is started with where none was typed for it."""
    told = f"the engine is started with --max-len {length}, by --context"
    if own is None or own == length:
        return told
    return told + f"; left to itself it takes {own:,} (--max-len {own})"


def _beside(words: Words, case: Case, typed: Counting) -> Typed:
    """Gather what a change that makes a model fit has to be typed beside."""
    from .fit import Typed

    node, layout = node_of(words["on"]), group(words, LAYOUT)
    degrees = set(parse_ways(layout))
    engine = words.get("engine")
    if engine is not None:
        from .engine_rules import find_rules

        # llama.cpp gives whole layers to each device.
        if find_rules(engine)["way"] == "all-at-once":
            degrees.add("whole layers")
    rates = {*case.machine.flops, *case.machine.best_flops}
    names = ("fp8" if "fp8" in rates else "int8", "int4")
    if "whole layers" in degrees:
        names = ("q8_0", "q4_k_m")
    own = {n: make_precision(replace(typed, weights=n), case.machine, case.model) for n in names}
    return Typed(
        on=node.name if isinstance(node.name, str) else case.machine.name,
        nodes=getattr(node, "nodes", 1),
        devices=node.devices,
        degrees=frozenset(degrees),
        linked=layout.get("link") is not None,
        fewer_bits=own,
    )


@noted
@at_a_context
def compared(words: Words) -> dict[str, Any]:
    """Answer the same work of several models on several machines."""
    from .compare import compare

    paid = parse_costs(group(words, COSTED))
    works = works_of(words)
    cases = [
        case
        for weights in formats_of(words.get("weights"))
        for kv in formats_of(words.get("kv"))
        for said in [{**words, "weights": weights, "kv": kv}]
        for case in _crossed(list(words["model"]), said, counting_of(said))
    ]
    places = parse_places(words.get("batch"), words.get("context"), works, counting_of(words))
    answer = compare(cases, places)
    if paid is None:
        return answer
    from .cost import add_costs

    return add_costs(answer, [(c, p.work) for p in places for c in cases], paid)


def formats_of(typed: str | None) -> list[str | None]:
    """Take several formats apart, as in bf16,int4; those of parts of a model are one format."""
    return [typed] if typed is None or "=" in typed else [*typed.split(",")]


def _crossed(models: list[Any], words: Words, typed: Counting) -> list[Case]:
    files = words.get("models"), words.get("hardware")
    layout = group(words, LAYOUT)
    return crossed_cases(models, list(words["on"]), settings_of(words), *files, typed, layout)


@noted
def held_against(words: Words) -> dict[str, Any]:
    """Answer where every operator stands against the ridge of a machine."""
    from .roofline import rooflines

    typed = bounded(words)
    cases = _crossed([words["model"]], words, typed)
    batches = parse_counts(given(words.get("batch"), "1"), "--batch")
    return rooflines(cases, batches, parse_context(words.get("context"), typed))


TIMES = ("time_s", "tokens_per_s", "output_usd_per_mtok", "joules_per_token")
"""Quantities beside those of an estimate that may be one."""


def _of_a_step(words: Words, quantity: str, sensitivity: bool) -> Estimating | None:
    """Explain estimates of decode steps on one device; all else at the bound."""
    how = Estimating(**group(words, ESTIMATED))
    wanted = "estimate" in quantity or quantity in TIMES
    alone = not any(group(words, LAYOUT).values()) and node_of(words["on"]).devices is None
    plain = words.get("phase") in (None, "decode") and alone and not sensitivity
    if sensitivity and ("estimate" in quantity or how != Estimating()):
        what = "elasticities are those of the bound, which has a formula to differentiate"
        raise RooflmError(what, "--sensitivity", "Ask for bound_s, without --engine.")
    if not plain and ("estimate" in quantity or how != Estimating()):
        what = "estimates are explained of decode steps on one device"
        raise RooflmError(what, "QUANTITY", "Leave out --phase, --tp and the like.")
    if not wanted and how != Estimating():
        raise RooflmError(f"{quantity} is no estimate", "--engine", "Leave the option out.")
    return how if wanted and plain else None


@noted
def explained(words: Words) -> dict[str, Any]:
    """Answer where a number comes from: its formula, subtotals, values and source."""
    from .cost import Paid, economics_of
    from .definitions import Question
    from .explain import explain

    quantity, sensitivity = words["quantity"], bool(words.get("sensitivity"))
    how = _of_a_step(words, quantity, sensitivity)
    typed = replace(counting_of(words), estimating=how)
    case = case_of(words, typed)
    works = works_of(words)
    if works is not None and len(works) > 1:
        raise RooflmError("one prompt at a time is explained", "--prompt")
    if works is not None and sensitivity:
        fix = "Leave out --phase, or the option."
        raise RooflmError("elasticities are those of a decode step", "--sensitivity", fix)
    work = works[0] if works else None
    typed_context = parse_context(words.get("context"), typed)
    B = parse_count(given(words.get("batch"), "1"), "--batch")
    S = work.last_context if work else typed_context
    paid = economics_of(case.machine, parse_costs(group(words, UNCHARGED)) or Paid())
    answer = explain(Question(case, B, S, work, paid), quantity)
    if sensitivity:
        from .solve import sensitivity as find_sensitivity

        answer["sensitivity"] = find_sensitivity(case, B, S)
    return answer


@noted
def solved(words: Words, tell: Progress = silent) -> dict[str, Any]:
    """Answer what meets a target, with its formula; `feasible` is false where nothing does."""
    from .solve import UNKNOWNS, WHENS, Target, solve

    asked, when, sensitivity = words["unknown"], words.get("when"), words.get("sensitivity")
    check_choice(asked, (*UNKNOWNS, "devices"), "UNKNOWN")
    if when is not None:
        check_choice(when, WHENS, "--when")
    latency, throughput, share = (words.get(n) for n in ("latency", "throughput", "share"))
    target = Target(
        latency_s=None if latency is None else parse_time(latency, "--latency"),
        tokens_per_s=None if throughput is None else parse_rate(throughput, "--throughput"),
        share=None if share is None else parse_share(share, "--share"),
        when=when,
    )
    typed = bounded(words)
    batch, context = words.get("batch"), given(words.get("context"), "1024")
    B = parse_count(given(batch, "1"), "--batch")
    S = parse_count(context, "--context") if asked == "context" else parse_context(context, typed)
    if asked == "devices":
        if share is not None or when is not None or sensitivity:
            what = "devices are solved for a latency, a throughput or both"
            raise RooflmError(what, "--share, --when, --sensitivity", "Leave the option out.")
        from .layout_search import Ask
        from .plan import solve_devices

        layout = group(words, LAYOUT)
        told = ("set", "weights", "kv", "state", "time_model", "reserve", "capacity", "gpu_share",
                "models", "hardware", *LINKS, *TERMS)  # fmt: skip
        refuse_degrees(layout)
        site, _ = find_site(
            words["model"], words["on"], settings_of(words), words.get("models"),
            words.get("hardware"), typed, layout, retyped(group(words, told)),
        )  # fmt: skip
        ask = Ask((1,), S, B if batch else None, target.latency_s, target.tokens_per_s)
        return solve_devices(site, ask, tell)
    case = case_of(words, typed)
    answer = solve(case, asked, B, S, target)
    if sensitivity:
        from .solve import sensitivity as find_sensitivity

        at = {"batch": B, "context": S}
        if answer["feasible"] and asked in at:
            at[asked] = max(1, round(answer["value"]))
        answer["sensitivity"] = find_sensitivity(case, at["batch"], at["context"])
    return answer


@noted
def levered(words: Words) -> dict[str, Any]:
    """Answer what each change would make of a decode step, the best first."""
    from .levers import BYS, levers

    by: Any = given(words.get("by"), "time")
    check_choice(by, BYS, "--by")
    asked = any(words.get(name) is not None for name in ("engine", "calibration"))
    basis = given(words.get("basis"), "estimate" if asked else "bound")
    check_choice(basis, ("estimate", "bound"), "--basis")
    reserve = words.get("reserve")
    said = {
        "model": words["model"],
        "on": words["on"],
        "batch": parse_count(given(words.get("batch"), "1"), "--batch"),
        "context": parse_count(given(words.get("context"), "1024"), "--context"),
        "set": tuple(settings_of(words)),
        **group(words, (*COUNTED, *LAYOUT, *ESTIMATED, *FILES, *UNCHARGED)),
        "cost": True,
        **group(words, ("draft", "acceptance")),
    }
    return levers(said | {"reserve": None if reserve == "0" else reserve, "basis": basis}, by)


@noted
def planned(words: Words, tell: Progress = silent) -> dict[str, Any]:
    """Answer which layouts meet a target; `feasible` is false where none does."""
    from .cost import Paid, economics_of
    from .layout_search import AIMS, Ask
    from .plan import plan

    by = words.get("by")
    estimates = Estimating(**group(words, ESTIMATED))
    layout, costs = group(words, LAYOUT), group(words, UNCHARGED)
    told = retyped(group(words, ("set", *FILES, *COUNTED, "engine", "calibration", *UNCHARGED)))
    linked = retyped({name: layout[name] for name in LINKS})
    linked = linked if any(costs.values()) else (*linked, "--cost")
    site, known = find_site(
        words["model"], words["on"], settings_of(words), words.get("models"),
        words.get("hardware"), counting_of(words), layout, (*told, *linked),
    )  # fmt: skip
    if by is not None:
        check_choice(by, AIMS, "--by")
    devices, batch, latency, throughput = (
        words.get(name) for name in ("devices", "batch", "latency", "throughput")
    )
    ask = Ask(
        devices=tuple(known if devices is None else parse_counts(devices, "--devices")),
        context=parse_count(given(words.get("context"), "1024"), "--context"),
        batch=None if batch is None else parse_count(batch, "--batch"),
        latency_s=None if latency is None else parse_time(latency, "--latency"),
        tokens_per_s=None if throughput is None else parse_rate(throughput, "--throughput"),
        by=by,
        top=parse_count(given(words.get("top"), "10"), "--top"),
        fixed=parse_ways(layout),
        economics=economics_of(site.case.machine, parse_costs(costs) or Paid()),
    )
    return plan(site, ask, estimates.basis, tell)


def quantized(words: Words) -> dict[str, Any]:
    """Answer what becomes of numbers as integers; `values` may be an array as well as a text."""
    from pathlib import Path

    from .quantize import (
        PERS,
        Quantizer,
        as_rows,
        open_numbers,
        parse_code,
        parse_numbers,
        parse_real,
        quantize,
    )

    per: Any = given(words.get("per"), "tensor")
    check_choice(per, PERS, "--per")
    size, scale, zero_point = (words.get(name) for name in ("group", "scale", "zero_point"))
    if size is not None and per != "group":
        raise RooflmError("only groups have a size", "--group", "Add --per group.")
    quantizer = Quantizer(
        bits=parse_count(given(words.get("bits"), "8"), "--bits"),
        signed=not words.get("unsigned"),
        symmetric=bool(words.get("symmetric")),
        scale=None if scale is None else parse_real(scale, "--scale"),
        zero_point=None if zero_point is None else parse_code(zero_point, "--zero-point"),
        per=per,
        group=parse_count(given(size, "128"), "--group"),
    )
    file, values, tensor = (words.get(name) for name in ("file", "values", "tensor"))
    if (file is None) == (values is None):
        what = "numbers are needed" if file is None else "there are both a file and numbers"
        raise RooflmError(what, "--values", "Say either FILE or --values 5.2342,1.5.")
    if values is not None and tensor is not None:
        what = "only a .safetensors file has tensors"
        raise RooflmError(what, "--tensor", "Leave the option out.")
    if file is not None:
        source = open_numbers(Path(file), tensor)
    elif isinstance(values, str):
        source = parse_numbers(values, "--values")
    else:
        source = as_rows(values, "--values")
    return quantize(source, quantizer, parse_count(given(words.get("first"), "16"), "--first"))


@noted
def calibrated(words: Words) -> dict[str, Any]:
    """Answer the constants of an estimate that fit measured steps."""
    from .calibrate import calibrate, parse_point

    measured = list(words.get("measured") or ())
    if not measured:
        fix = 'Say --measured "batch=1 context=512 latency=10.6ms".'
        raise RooflmError("a measured step is needed", "--measured", fix)
    points = [parse_point(text) for text in measured]
    case = case_of(words, bounded(words))
    constants = words.get("constants")
    names = None if constants is None else [n.strip() for n in constants.split(",")]
    return calibrate(case, points, names, words.get("engine"))
