"""Every quantity that a table shows, defined in symbols by the function that computes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from .branches import active
from .case import (
    Case,
    engine_terms,
    held_weights,
    host_memory,
    max_sequences,
    memory,
    memory_bytes,
    reserved,
)
from .cost import Economics, joules_per_token, usd_per_mtok
from .formats import FORMATS
from .inverse import affine
from .matmul import intensity, ridge
from .memory import activations_bytes, weights_bytes
from .model import (
    gathered_parts,
    growing_bytes,
    growing_elements,
    idle_parameters,
    parameters,
    sequence_state_bytes,
    state_elements,
    token_bytes,
    token_elements,
    untouched_parameters,
)
from .passes import Operator, Segment, decode, prefill
from .precision import precision_of
from .readings import Q, is_zero, total
from .requests import Work, chunk_count, end_to_end_time, prefill_passes, reused_tokens
from .roofline import operator_figures
from .show import SHOWN
from .symbols import (
    BATCH,
    CAPACITY,
    CONTEXT,
    PREFIX,
    Expr,
    Symbolic,
    Values,
    count,
    letter,
    number,
    sympy,
)
from .timing import bandwidth_time, compulsory_bytes, flops, sending_time, step_time, throughput

Definitions = dict[str, Expr]
"""Named subtotals; an expression may use the names of others as symbols."""

PROMPT, OUTPUT, CHUNK, NEW = map(count, ("P", "G", "T_c", "T"))
INDEX, LAST = sympy.Symbol("i", integer=True), count("m")


RENT, POWER, BUSY, PUE = letter("price"), letter("power"), letter("u"), letter("PUE")
"""Price of a device [USD/h], its power [W], share of the paid time that is busy, PUE."""


@dataclass(frozen=True)
class Question:
    """What a quantity is asked about."""

    case: Case
    batch: int
    context: int
    work: Work | None = None
    """A prefill or a request instead of a decode step."""
    economics: Economics | None = None
    """What a device costs and draws; nothing is priced without it."""


def point(question: Question) -> Values:
    """Tell what the letters of the pass stand for."""
    values: Values = {BATCH: question.batch, CONTEXT: question.context}
    work, paid = question.work, question.economics
    if paid is not None:
        values |= {RENT: paid.price_usd_per_hour, POWER: paid.power_w}
        values |= {BUSY: paid.utilization, PUE: paid.pue}
    if work is not None:
        chunk = work.chunk or work.prompt - work.reused
        passes = chunk_count(work.prompt - work.reused, chunk)
        values |= {
            PROMPT: work.prompt,
            OUTPUT: work.output,
            PREFIX: work.reused,
            CHUNK: chunk,
            LAST: passes,
            NEW: work.prompt - work.reused - (passes - 1) * chunk,
            count("matched"): work.prefix,
            count("block"): work.block,
        }
    return values


def compose(expression: Expr, known: Definitions) -> Expr:
    """Put the definitions in place of the names that an expression uses."""
    while names := [s for s in expression.free_symbols if s.name in known]:
        expression = expression.xreplace({s: known[s.name] for s in names})
    return expression


def evaluated(
    name: str, known: Definitions, values: Values, found: dict[str, float | None]
) -> float | None:
    """Work a quantity out from its subtotals; None inside a sum, where it has no single value.

    found: what was worked out before, which is added to. Only a sum is composed first, since what
    is inside it depends on its index: composing all would take most of the time of an explanation.
    """
    if name not in found:
        expression = known[name]
        if expression.has(sympy.Sum):
            expression = compose(expression, known)
        parts: Values = {
            s: evaluated(s.name, known, values, found) if s.name in known else values.get(s)
            for s in expression.free_symbols
        }
        whole = all(part is not None for part in parts.values())
        found[name] = number(expression, parts) if whole else None
    return found[name]


def definitions(question: Question, symbolic: Symbolic) -> Definitions:
    """Define every quantity that a table shows, each from the function that computes it."""
    case = symbolic.case
    known = model_definitions(case)
    if question.work is None:
        known |= _step_definitions(question, case)
        known["context_tokens"] = CONTEXT
        if CAPACITY in symbolic.values:
            known |= _most(question, symbolic)
    else:
        known |= _request_definitions(question, case)
    if case.layout is not None:
        known["devices"] = sympy.Integer(case.layout.devices)
        if "tokens_per_s" in known:
            known["tokens_per_s_per_device"] = letter("tokens_per_s") / letter("devices")
    if question.work is None:
        known |= _costs(question.economics, letter("devices") if "devices" in known else 1)
    known |= {
        "batch": BATCH,
        "capacity_bytes": CAPACITY,
        "margin_bytes": letter("capacity_bytes") - letter("memory_bytes"),
    }
    return {name: sympy.sympify(expression) for name, expression in known.items()}


def model_definitions(case: Case) -> Definitions:
    """Define parameters by part, weights and cache of a token."""
    model = case.model
    parts = {k: v for k, v in parameters(model).items() if not is_zero(v)}
    counted = [k for k in parts if not (case.lecture and k in ("norms", "qk_norm"))]
    gathered = [k for k in counted if k in gathered_parts(model)]
    total_ = letter("total")
    zero = sympy.Integer(0)
    kept = {} if model.denoises else _kept_definitions(case)
    return kept | {
        **{f"{k}_parameters": v for k, v in parts.items()},
        "total": _sum(f"{k}_parameters" for k in counted),
        "idle": idle_parameters(model),
        "active": total_ - letter("idle"),
        "streamed": letter("active") - sum(letter(f"{k}_parameters") for k in gathered),
        **{k: letter(f"{k}_parameters") if k in parts else zero for k in (*parts, "head")},
        "parameters": total_,
        "weights_bytes": held_weights(case),
        **{name: _in_format(case, name) for name in SHOWN},
    }


def _kept_definitions(case: Case) -> Definitions:
    """Define what a sequence keeps; a diffusion model keeps nothing."""
    model, precision = case.model, case.precision
    return {
        "elements_per_token": token_elements(model),
        "growing_elements_per_token": growing_elements(model),
        "bytes_per_token": token_bytes(model, precision),
        "growing_bytes_per_token": growing_bytes(model, precision),
        "state_elements_per_sequence": state_elements(model),
        "state_bytes_per_sequence": sequence_state_bytes(model, precision),
    }


def _in_format(case: Case, name: str) -> Expr:
    """Define the bytes of all weights in a format of `show`."""
    if FORMATS[name].covers == "all":
        return FORMATS[name].bytes * letter("total")
    return weights_bytes(case.model, precision_of(name), norms=not case.lecture)


def _step_definitions(question: Question, case: Case) -> Definitions:
    """Define the columns of a decode step and of its roofline."""
    segments = case.step(BATCH, CONTEXT)
    known = _memory(case, segments)
    known |= _pass(case, segments)
    time = "time_s" if case.lecture else "bound_s"
    known["tokens_per_s"] = throughput(BATCH * case.step_tokens, letter("time_s"))
    known["intensity_flops_per_byte"] = intensity(letter("flops"), letter("bytes"))
    known["untouched"] = untouched_parameters(case.model, BATCH, case.precision.routing)
    known["touched_parameters"] = letter("total") - letter("untouched")
    known["reserved_kv_cache_bytes.needed"] = letter("kv_cache_bytes")
    for way, held in reserved(case, BATCH, CONTEXT).items():
        known[f"reserved_kv_cache_bytes.{way}"] = held
    if not case.lecture:
        known |= estimate_definitions(question, case)
        known["time_s"] = letter("estimate_s" if _estimates(case) else time)
        known["bound_tokens_per_s"] = throughput(BATCH * case.step_tokens, letter(time))
        known |= _operators(case, "", segments)
        known |= _operators(case, "prefill.", prefill(BATCH, CONTEXT))
        if case.model.denoises:
            known |= _beside_decoding(case)
        known["ridge_flops_per_byte"] = ridge(case.rates.flops_per_s, case.rates.bytes_per_s)
        whole = activations_bytes(case.ledger(prefill(1, CONTEXT)))
        known["prefill_activations_bytes"] = whole
    return known


def _costs(paid: Economics | None, devices: Q) -> Definitions:
    """Define what a token of a decode step costs, and its energy, as far as they are known."""
    known: Definitions = {}
    if paid is None:
        return known
    rate = letter("tokens_per_s")
    if paid.price_usd_per_hour is not None:
        known["output_usd_per_mtok"] = usd_per_mtok(devices * RENT, rate, BUSY)
    if paid.power_w is not None:
        known["joules_per_token"] = joules_per_token(devices * POWER, rate, PUE)
    return known


def _estimates(case: Case) -> bool:
    """Tell whether the time of a case is an estimate."""
    return case.constants is not None and case.basis == "estimate"


def estimate_definitions(question: Question, case: Case) -> Definitions:
    """Define the estimate of a decode step on one device, and its band; constants are numbers.

    case: in symbols. Raises `RooflmError` where the step has no estimate.
    """
    if case.constants is None:
        return {}
    segments = case.step(BATCH, CONTEXT)
    plain = question.case.ledger(question.case.step(question.batch, question.context))
    # Whether a head is wide decides on the kernel: that is asked of the number.
    pass_ = [
        replace(op, head_width=known.head_width)
        for op, known in zip(case.ledger(segments), plain, strict=True)
    ]
    groups: dict[str, list[Q]] = {}
    for part, seconds in engine_terms(case, segments, pass_):
        groups.setdefault(f"{part.replace(' ', '_')}_estimate_s", []).append(seconds)
    known: Definitions = {
        name: whole for name, terms in groups.items() if not is_zero(whole := total(terms))
    }
    known = {name: whole for name, whole in known.items() if whole != 0}
    known["estimate_s"] = _sum(known)
    known["estimate_tokens_per_s"] = throughput(BATCH, letter("estimate_s"))
    if case.constants.band is not None:
        low, high = case.constants.band
        least = low * letter("estimate_s")
        known["estimate_low_s"] = sympy.Max(least, letter("floor_s"))
        known["estimate_high_s"] = high * letter("estimate_s")
    return known


def _beside_decoding(case: Case) -> Definitions:
    """Define what a denoising step yields, and how decoding with a cache would do."""
    plain = replace(case, model=replace(case.model, denoises=False))
    time = step_time(plain.ledger(decode(BATCH, CONTEXT)), case.rates, case.time_model)
    decoding = letter("autoregressive_tokens_per_s")
    return {
        "passes": sympy.Integer(1),
        "tokens_per_pass": sympy.sympify(case.step_tokens),
        "autoregressive_bound_s": time,
        "autoregressive_tokens_per_s": throughput(BATCH, letter("autoregressive_bound_s")),
        "speedup": letter("tokens_per_s") / decoding,
    }


def _memory(case: Case, segments: Sequence[Segment]) -> Definitions:
    """Define what a pass needs in memory, kind by kind."""
    kinds = memory(case, segments, case.ledger(segments))
    known = {k: v for k, v in kinds.items() if k != "weights_bytes"}
    known |= host_memory(case, segments)
    known["memory_bytes"] = _sum(k for k, v in kinds.items() if not is_zero(v))
    return known


def _most(question: Question, symbolic: Symbolic) -> Definitions:
    """Define how many sequences fit, on the branch of the activations that is active there."""
    layout = question.case.layout
    # Each group of each replica has an equal part of the sequences; micro-batches round once more.
    groups = question.case.least_batch
    if layout is not None and layout.pp > 1:
        return {}
    most = max_sequences(question.case, question.context)
    values = symbolic.values | {BATCH: max(1, most // groups), CONTEXT: question.context}
    held = active(memory_bytes(symbolic.case, groups * BATCH, CONTEXT), values).formula
    split = affine(held, BATCH)
    assert split is not None, "memory is affine in the batch"
    fixed, each = split
    room = letter("capacity_bytes") - letter("fixed_bytes")
    return {
        "max_sequences": sympy.Max(0, groups * sympy.floor(room / letter("bytes_per_sequence"))),
        "fixed_bytes": fixed,
        "bytes_per_sequence": each,
    }


def _pass(case: Case, segments: Sequence[Segment], prefix: str = "") -> Definitions:
    """Define traffic, work, time and floor of a pass, by operator class."""
    pass_, rates = case.ledger(segments), case.rates
    known = _by_part(pass_, f"{prefix}flops", flops)
    if case.lecture:
        known["bytes"] = letter("memory_bytes")
        return known | {"time_s": bandwidth_time(letter("bytes"), rates.bytes_per_s)}
    known |= _by_part(pass_, f"{prefix}bytes", compulsory_bytes)
    for name, kind in (("weight_read", "weight_bytes"), ("cache_read", "read_bytes")):
        moved = total(op.count * getattr(op, kind) for op in pass_)
        known[f"{prefix}{name}_bytes"] = moved
    # The pass as one operator: what the time models see that add up nothing.
    work, moved = letter(f"{prefix}flops"), letter(f"{prefix}bytes")
    one = [Operator("all", "all", 1, flops=work, weight_bytes=moved)]
    if case.offloads:
        known |= _linked(pass_, prefix, "")
        one = _apart(one, prefix, "")
    own = sorted({op.compute for op in pass_ if op.compute in rates.others})
    if own:
        # Work at another peak is told apart from the rest of it.
        for compute in own:
            done = flops([op for op in pass_ if op.compute == compute])
            known[f"{prefix}{compute}_flops"] = done
        apart = {c: letter(f"{prefix}{c}_flops") for c in own}
        one[0] = replace(one[0], flops=work - sum(apart.values()))
        one += [Operator("all", "all", 1, compute=c, flops=done) for c, done in apart.items()]
    known[f"{prefix}floor_s"] = case.stages * step_time(one, rates, "overlap")
    least = case.least_ledger(segments, pass_)
    if least is not pass_:
        known |= _by_part(least, f"{prefix}least_bytes", compulsory_bytes)
        fewest = [replace(one[0], weight_bytes=letter(f"{prefix}least_bytes")), *one[1:]]
        if flops(least) != flops(pass_):
            # Where experts may be empty, or on other ranks, so may those that all tokens choose.
            known |= _by_part(least, f"{prefix}least_flops", flops)
            done = letter(f"{prefix}least_flops")
            more = [c for c in own if any(op.compute == c for op in least)]
            for compute in more:
                name = f"{prefix}least_{compute}_flops"
                known[name] = flops([op for op in least if op.compute == compute])
            apart = {c: letter(f"{prefix}least_{c}_flops") for c in more}
            fewest = [
                replace(fewest[0], flops=done - sum(apart.values())),
                *one[1 : len(one) - len(own)],
                *(Operator("all", "all", 1, compute=c, flops=f) for c, f in apart.items()),
            ]
        if case.offloads:
            known |= _linked(least, prefix, "least_")
            fewest = _apart([fewest[0], *one[2:]], prefix, "least_")
        known[f"{prefix}floor_s"] = case.stages * step_time(fewest, rates, "overlap")
    if case.time_model == "operator":
        return known | _by_part(
            pass_, f"{prefix}bound_s", lambda ops: case.stages * step_time(ops, rates)
        )
    sent = sending_time(pass_) if case.time_model == "serial" else 0
    whole = case.stages * (step_time(one, rates, case.time_model) + sent)
    return known | {f"{prefix}bound_s": whole}


def _linked(pass_: Sequence[Operator], prefix: str, which: str) -> Definitions:
    """Define the bytes of a pass that go over the host link, each way."""
    away = [op for op in pass_ if op.hosted]
    return {
        f"{prefix}{which}from_host_bytes": total(
            op.count * (op.weight_bytes + op.read_bytes) for op in away
        ),
        f"{prefix}{which}to_host_bytes": total(op.count * op.write_bytes for op in away),
    }


def _apart(one: list[Operator], prefix: str, which: str) -> list[Operator]:
    """Take what goes over the host link off the bytes of the pass as one operator."""
    inward, outward = (letter(f"{prefix}{which}{way}_host_bytes") for way in ("from", "to"))
    first = replace(one[0], weight_bytes=one[0].weight_bytes - inward - outward)
    link = Operator("link", "all", 1, weight_bytes=inward, write_bytes=outward, hosted=True)
    return [first, link, *one[1:]]


def _by_part(pass_: Sequence[Operator], key: str, of: Callable[[list[Operator]], Q]) -> Definitions:
    """Define a sum over operators as the sum of named subtotals, one an operator class."""
    groups: dict[str, list[Operator]] = {}
    for op in pass_:
        # The bytes of all adapters are a figure of memory: those of a pass have another name.
        part = "read_adapters" if op.part == "adapters" else op.part.replace(" ", "_")
        groups.setdefault(part, []).append(op)
    subtotals = {f"{part}_{key}": of(ops) for part, ops in groups.items()}
    known = {name: subtotal for name, subtotal in subtotals.items() if not is_zero(subtotal)}
    return {key: _sum(known), **known}


def _operators(case: Case, prefix: str, segments: Sequence[Segment]) -> Definitions:
    """Define the rows of the roofline: OPERATOR.FIGURE."""
    return {
        f"{prefix}{op.name.replace(' ', '_')}.{key}": expression
        for op in case.ledger(segments)
        for key, expression in (operator_figures(op, case.rates) | {"runs": op.count}).items()
    }


def _request_definitions(question: Question, case: Case) -> Definitions:
    """Define the columns of a prefill or a request: sums over passes and over steps."""
    work = question.work
    assert work is not None
    passes = prefill_passes(question.batch, work)
    several = len(passes) > 1
    inner = [Segment(BATCH, CHUNK, PREFIX + INDEX * CHUNK, head_rows=0)]
    final = [Segment(BATCH, NEW, PROMPT - NEW, head_rows=1)]
    steps = decode(BATCH, CONTEXT)
    known = _pass(case, final, "last_pass_")
    if several:
        known |= _pass(case, inner, "pass_")
    if work.output > 1:
        known |= _pass(case, steps, "step_")

    def prefills(key: str) -> Expr:
        if not several:
            return letter(f"last_pass_{key}")
        return sympy.Sum(letter(f"pass_{key}"), (INDEX, 0, LAST - 2)) + letter(f"last_pass_{key}")

    def further(key: str) -> Expr:
        if work.output == 1:
            return sympy.Integer(0)
        return sympy.Sum(letter(f"step_{key}"), (CONTEXT, PROMPT + 1, PROMPT + OUTPUT - 1))

    whole = work.phase == "request"
    for key in ("bytes", "flops", "floor_s"):
        known[key] = prefills(key) + (further(key) if whole else 0)
    for key in ("weight_read_bytes", "cache_read_bytes"):
        known[key] = prefills(key)
    known["ttft_s"] = prefills("bound_s")
    known["time_s"] = letter("ttft_s")
    tokens = BATCH * (PROMPT - PREFIX)
    if whole:
        tokens = BATCH * OUTPUT
        itl = letter("itl_s") if work.output > 1 else sympy.Integer(0)
        if work.output > 1:
            known["itl_s"] = further("bound_s") / (OUTPUT - 1)
        known["e2e_s"] = end_to_end_time(letter("ttft_s"), itl, OUTPUT)
        known["time_s"] = letter("e2e_s")
    known["bound_s"] = letter("time_s")
    known["tokens_per_s"] = known["bound_tokens_per_s"] = throughput(tokens, letter("time_s"))
    known["intensity_flops_per_byte"] = intensity(letter("flops"), letter("bytes"))
    known |= _memory(case, _fullest(question, inner, final))
    return known | {
        "context_tokens": PROMPT + (OUTPUT - 1 if whole else 0),
        "prompt_tokens": PROMPT,
        "output_tokens": OUTPUT,
        "passes": chunk_count(PROMPT - PREFIX, CHUNK) if several else sympy.Integer(1),
        "reused_tokens": reused_tokens(PROMPT, count("matched"), count("block")),
    }


def _fullest(question: Question, inner: list[Segment], final: list[Segment]) -> list[Segment]:
    """Find the pass that takes the most memory, in symbols."""
    work, case = question.work, question.case
    assert work is not None
    passes = [
        (segments, inner if segments[0].head_rows == 0 else final)
        for segments in prefill_passes(question.batch, work)
    ]
    if work.phase == "request":
        passes.append(
            (decode(question.batch, work.last_context), decode(BATCH, PROMPT + OUTPUT - 1))
        )

    def held(segments: list[Segment]) -> Q:
        return total(memory(case, segments, case.ledger(segments)).values())

    at = max(range(len(passes)), key=lambda i: held(passes[i][0]))
    letters = passes[at][1]
    if letters is inner:
        # Inner passes differ by what is cached before; the fullest is the last of them.
        return [replace(letters[0], cached=PREFIX + (LAST - 2) * CHUNK)]
    return letters


def _sum(names: Iterable[str]) -> Expr:
    return sympy.Add(*(letter(name) for name in names))
