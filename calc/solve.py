"""The inverse of a question: exact by bracketing, then the formula of the active branch."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from .branches import active, elasticities
from .case import (
    Case,
    cached_bytes,
    few_sequences,
    fullest,
    held_weights,
    last_below,
    max_sequences,
    memory_bytes,
    slowest,
)
from .errors import RooflmError
from .inverse import (
    FAR,
    MOST,
    Answer,
    affine,
    fits_memory,
    limits_of,
    memory_expression,
    part,
    parts_of,
    range_text,
    step_s,
    time_expression,
)
from .memory import largest
from .model import chunk_lengths, entry_lengths
from .readings import Q
from .sweep import assumptions
from .symbols import BATCH, BETA, CAPACITY, CONTEXT, PEAK, Expr, letter, number, symbolic_case
from .turning import compute_bound_batch, longest_compute_bound

Unknown = Literal["batch", "context", "bandwidth", "compute", "capacity", "throughput"]
UNKNOWNS: tuple[Unknown, ...] = (
    "batch", "context", "bandwidth", "compute", "capacity", "throughput",
)  # fmt: skip
When = Literal["compute-bound", "cache-equals-weights"]
WHENS: tuple[When, ...] = ("compute-bound", "cache-equals-weights")


@dataclass(frozen=True)
class Target:
    """What the answer must meet; without any, it must fit the memory."""

    latency_s: float | None = None
    tokens_per_s: float | None = None
    share: float | None = None
    """Share of the throughput limit, between 0 and 1."""
    when: When | None = None


def solve(case: Case, unknown: Unknown, batch: int, context: int, target: Target) -> dict[str, Any]:
    """Answer with the value of an unknown, the formula behind it, and where that holds."""
    whole, timed_by = case, target != Target() or unknown == "throughput"
    of, at = slowest if timed_by else fullest, (batch, context)
    tries = 0
    while True:
        case = of(whole, whole.step(*at)) if whole.ranks else whole
        answer = _dispatch(case, unknown, batch, context, target)
        decides = _decides(whole, case, unknown, answer, (batch, context), timed_by)
        if decides is None:
            break
        at, tries = decides, tries + 1
        if tries <= len(whole.ranks):
            continue
        what = f"other ranks decide at {unknown} = {answer.value:,} and where the search began"
        raise RooflmError(what, "", f"Sweep --{unknown} around it instead.")
    timed = unknown != "capacity" and not (unknown in ("batch", "context") and target == Target())
    sequences = answer.value if unknown == "batch" and answer.value else batch
    if timed and unknown != "throughput" and few_sequences(whole, sequences):
        why = f"{answer.reason}; fewer sequences than stages, so that no one formula holds"
        answer = replace(answer, reason=why, formula="", definitions=(), valid_for="")
    return {
        "schema": "rooflm.solve/1",
        "model": case.model.name,
        "hardware": case.machine.name,
        "unknown": unknown,
        "value": answer.value,
        "unit": answer.unit,
        "feasible": answer.value is not None,
        "reason": answer.reason,
        "formula": answer.formula or None,
        "definitions": [{"name": n, "formula": f, "value": v} for n, f, v in answer.definitions],
        "valid_for": answer.valid_for or None,
        **dict(answer.more),
        "assumptions": assumptions(
            whole,
            contexts=[int(answer.value) if unknown == "context" and answer.value else context],
            timed=timed,
        ),
    }


def _decides(
    whole: Case, case: Case, unknown: Unknown, answer: Answer, at: tuple[int, int], timed: bool
) -> tuple[int, int] | None:
    """Tell the batch and context at which another rank of the layout decides; None if none."""
    if len(whole.ranks) < 2 or answer.value is None or unknown not in ("batch", "context"):
        return None
    value = max(1, round(answer.value))
    B, S = (value, at[1]) if unknown == "batch" else (at[0], value)
    same = math.isclose(step_s(whole, B, S), step_s(case, B, S), rel_tol=1e-12)
    full = memory_bytes(whole, B, S) == memory_bytes(case, B, S)
    return None if (same if timed else full) else (B, S)


TARGETS: dict[Unknown, tuple[str, ...]] = {
    "batch": ("--latency", "--throughput", "--share", "--when"),
    "context": ("--latency", "--when"),
    "bandwidth": ("--latency",),
    "compute": ("--latency",),
    "capacity": (),
    "throughput": (),
}
"""Targets that each unknown can be solved for, one at a time."""


def check_target(unknown: Unknown, target: Target) -> None:
    """Refuse a target that does not go with the unknown, and more than one at a time."""
    given = {
        "--latency": target.latency_s,
        "--throughput": target.tokens_per_s,
        "--share": target.share,
        "--when": target.when,
    }
    asked = [option for option, value in given.items() if value is not None]
    for option in asked:
        if option not in TARGETS[unknown]:
            known = ", ".join(TARGETS[unknown]) or "no target"
            raise RooflmError(f"{unknown} is not solved for this", option, f"It takes {known}.")
    if len(asked) > 1:
        raise RooflmError("one target at a time", " and ".join(asked), "Ask twice.")


def _dispatch(case: Case, unknown: Unknown, batch: int, context: int, target: Target) -> Answer:
    check_target(unknown, target)
    if unknown == "capacity":
        return _capacity(case, batch, context)
    if unknown == "throughput":
        return _throughput_limit(case, context)
    if unknown in ("bandwidth", "compute"):
        if target.latency_s is None:
            raise RooflmError(
                f"{unknown} is solved for a latency", "--latency", "Say --latency 20ms."
            )
        return _rate(case, unknown, batch, context, target.latency_s)
    if target.when is not None and unknown == "context" and case.shared_prefix:
        what = "with a shared prefix a context is solved for memory or latency"
        raise RooflmError(what, "--when", "Sweep --context instead.")
    if target.when == "compute-bound":
        if unknown == "context":
            return longest_compute_bound(case, batch)
        return compute_bound_batch(case, context)
    if target.when == "cache-equals-weights":
        return _cache_equals_weights(case, unknown, batch, context)
    if target.tokens_per_s is not None or target.share is not None:
        return _batch_for_throughput(case, context, target)
    return _largest(case, unknown, batch, context, target.latency_s)


def _largest(
    case: Case, unknown: Unknown, batch: int, context: int, latency: float | None
) -> Answer:
    """Find the largest batch or context that fits, or that meets a latency."""
    by_batch = unknown == "batch"
    x, unit = (BATCH, "sequences") if by_batch else (CONTEXT, "tokens")

    # A sequence has a token of its own beside what is shared.
    first = 1 if by_batch else 1 + case.shared_prefix

    def at(n: int) -> tuple[int, int]:
        return (n, context) if by_batch else (batch, n)

    if latency is None:
        limit = case.limit[0]
        value = largest(lambda n: memory_bytes(case, *at(n)) <= limit, MOST)
        expression, values = memory_expression(case)
        bound, name, fixed, each = CAPACITY, "memory", "fixed_bytes", "bytes_per"
        least = memory_bytes(case, *at(first))
        one = f"one {unit[:-1]} takes" if first == 1 else f"{first:,} {unit} take"
        none = f"none: {one} {least:,.6g} B of {limit:,.6g} B"
    else:

        def holds(n: int) -> bool:
            return step_s(case, *at(n)) <= latency

        value = largest(holds, MOST) if by_batch else _longest(case, holds)
        expression, values = time_expression(case)
        bound, name, fixed, each = letter("τ"), "latency", "fixed_s", "s_per"
        least = step_s(case, *at(first))
        one = "one token" if first == 1 else f"{first:,} tokens"
        alone = "one sequence alone" if by_batch else f"{one} of context"
        none = f"none: {alone} takes {1e3 * least:.6g} ms"
    if value < first:
        return Answer(None, unit, none)
    here = at(value)
    values |= {BATCH: here[0], CONTEXT: here[1], letter("τ"): latency or 1.0}
    branch = active(expression, values, keep=_kept(case, x))
    each = f"{each}_{unit[:-1]}"
    reason = f"largest {unknown} within the {name}"
    more: list[tuple[str, Any]] = []
    if value >= MOST:
        return Answer(MOST, unit, f"{MOST:,}, the most that is searched, is within the {name}")
    if latency is not None:
        fits = fits_memory(case, *here)
        more.append(("fits", fits))
        if fits is False:
            reason += "; it does not fit the memory"
            if by_batch:
                reason += f", where {max_sequences(case, context):,} do"
    return Answer(
        value,
        unit,
        reason,
        more=tuple(more),
        **parts_of(
            branch, x, values, (fixed, each),
            closed=f"{x.name} = floor(({bound.name} - {fixed})/{each})",
            otherwise=f"largest {x.name} with whole <= {bound.name}",
        ),
    )  # fmt: skip


def _kept(case: Case, x: Any) -> Any:
    """Tell the symbol whose roundings stay: that of entries, or of sequences that are dealt out."""
    if x == CONTEXT:
        return x if entry_lengths(case.model) else None
    # Sequences are dealt out to replicas, groups and stages: rounded up.
    spread = case.layout is not None and case.layout.running(10**6) != 10**6
    return x if spread else None


def _longest(case: Case, holds: Callable[[int], bool]) -> int:
    """Find the longest context for which a condition holds.

    Time falls back where a chunk is closed, so that it only grows from the first token of one
    chunk to that of the next, and within a chunk: two searches.
    """
    chunks = chunk_lengths(case.model)
    if not chunks:
        return largest(holds, MOST)
    if len(chunks) > 1:
        raise RooflmError("layers with several lengths of chunks are not solved for a context")
    (C,) = chunks
    opened = largest(lambda q: holds((q - 1) * C + 1), MOST // C)
    if opened == 0:
        return 0
    before = (opened - 1) * C
    return before + largest(lambda n: n == 0 or holds(before + n), C)


def _capacity(case: Case, batch: int, context: int) -> Answer:
    """Tell the memory that a decode step needs."""
    expression, values = memory_expression(case)
    values |= {BATCH: batch, CONTEXT: context}
    branch = active(expression, values)
    value = memory_bytes(case, batch, context)
    return Answer(
        value,
        "B",
        "weights, cache, activations and reserve of the step",
        **parts_of(
            branch, BATCH, values, ("fixed_bytes", "bytes_per_sequence"),
            closed="M = fixed_bytes + B*bytes_per_sequence",
            otherwise="M = whole",
        ),
    )  # fmt: skip


def _rate(case: Case, unknown: Unknown, batch: int, context: int, latency: float) -> Answer:
    """Find the bandwidth or the compute rate at which a step takes a given time."""
    bandwidth = unknown == "bandwidth"
    if not bandwidth and case.time_model == "bandwidth":
        what = "compute is not counted in this accounting"
        option = "--accounting" if case.lecture else "--time-model"
        raise RooflmError(what, option, "Leave the option out.")
    compute = case.precision.activations.compute
    x, unit = (BETA, "B/s") if bandwidth else (PEAK, "FLOP/s")

    def at(rate: float) -> Case:
        machine = case.machine
        if bandwidth:
            return replace(case, machine=replace(machine, bandwidth_bytes_per_s=rate))
        return replace(
            case, machine=replace(machine, flops={**machine.flops, compute: rate}, best_flops={})
        )

    def seconds(rate: float) -> float:
        return step_s(at(rate), batch, context)

    huge = 1e30
    if seconds(huge) > latency:
        other = "compute" if bandwidth else "memory traffic"
        return Answer(
            None, unit, f"none: {other} alone takes {1e3 * seconds(huge):.6g} ms at any {unknown}"
        )
    low, high = 1e-12, huge
    for _ in range(300):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if seconds(middle) <= latency else (middle, high)
    expression, values = time_expression(at(high))
    values |= {BATCH: batch, CONTEXT: context, x: high, letter("τ"): latency}
    branch = active(expression, values)
    name = "bytes" if bandwidth else "flops"
    return Answer(
        high,
        unit,
        f"least {unknown} at which the step takes {1e3 * latency:g} ms",
        **parts_of(
            branch, x, values, ("other_s", name),
            closed=f"{x.name} = {name}/(τ - other_s)",
            otherwise=f"least {x.name} with whole <= τ",
        ),
    )  # fmt: skip


def throughput_limit(case: Case, context: int) -> float:
    """Tokens per second that a batch without end tends to, memory permitting."""
    return case.step_tokens * FAR / (step_s(case, FAR, context) - _fixed_seconds(case, context))


def _fixed_seconds(case: Case, context: int) -> float:
    expression, values = time_expression(case)
    values |= {BATCH: FAR, CONTEXT: context}
    branch = active(_by_groups(expression, case), values)
    return number(limits_of(branch.formula, BATCH)[0], values)


def _by_groups(expression: Expr, case: Case) -> Expr:
    """Let B be the sequences of one part of the batch: what is dealt out is no longer rounded."""
    return expression if case.parts == 1 else expression.subs(BATCH, case.parts * BATCH)


def _throughput_limit(case: Case, context: int) -> Answer:
    """Tell the throughput that a batch without end tends to."""
    expression, values = time_expression(case)
    values |= {BATCH: FAR, CONTEXT: context}
    groups = case.parts
    branch = active(_by_groups(expression, case), values)
    fixed, slope = limits_of(branch.formula, BATCH)
    limit = groups * case.step_tokens / number(slope, values)
    more: list[tuple[str, Any]] = []
    if case.lecture or case.time_model == "bandwidth":
        half = groups * number(fixed, values) / number(slope, values)
        more.append(("half_batch", half))
    fits = _most_that_fit(case, context)
    if fits:
        more += [
            ("max_sequences", fits),
            ("fitting_tokens_per_s", case.step_tokens * fits / step_s(case, fits, context)),
        ]
    return Answer(
        limit,
        "tokens/s",
        "limit of a batch without end: the time that each further sequence adds"
        + (f"; {fits:,} sequences fit" if fits else ""),
        formula=f"limit = {groups * case.step_tokens:g}/s_per_sequence",
        definitions=(part("s_per_sequence", slope, values),),
        valid_for="" if groups > 1 else range_text(branch, BATCH, values, whole=True),
        more=tuple(more),
    )


def _most_that_fit(case: Case, context: int) -> int | None:
    try:
        return max_sequences(case, context)
    except RooflmError:
        return None


def _batch_for_throughput(case: Case, context: int, target: Target) -> Answer:
    """Find the smallest batch that reaches a throughput, or a share of its limit."""
    limit = throughput_limit(case, context)
    wanted = target.tokens_per_s if target.share is None else target.share * limit
    assert wanted is not None
    if wanted >= limit:
        return Answer(None, "sequences", f"none: the limit is {limit:,.6g} tokens/s")
    each = case.step_tokens
    value = 1 + last_below(case, lambda B: each * B / step_s(case, B, context) < wanted, MOST)
    expression, values = time_expression(case)
    values |= {BATCH: value, CONTEXT: context, letter("R"): wanted}
    branch = active(expression, values)
    fits = fits_memory(case, value, context)
    reason = f"smallest batch that reaches {wanted:,.6g} tokens/s"
    if target.share is not None:
        reason += f", {target.share:g} of the limit of {limit:,.6g}"
    if fits is False:
        reason += f"; it does not fit the memory, where {max_sequences(case, context):,} do"
    return Answer(
        value,
        "sequences",
        reason,
        more=(("limit_tokens_per_s", limit), ("fits", fits)),
        **parts_of(
            branch, BATCH, values, ("fixed_s", "s_per_sequence"),
            closed=f"B = ceil(R*fixed_s/({each:g} - R*s_per_sequence))",
            otherwise=f"smallest B with {'' if each == 1 else f'{each:g}*'}B/whole >= R",
        ),
    )  # fmt: skip


def _cache_equals_weights(case: Case, unknown: Unknown, batch: int, context: int) -> Answer:
    """Find where the cache of all sequences takes as many bytes as the weights."""
    by_batch = unknown == "batch"
    x, unit = (BATCH, "sequences") if by_batch else (CONTEXT, "tokens")
    if case.model.denoises:
        return Answer(None, unit, f"none: {case.model.name} keeps no cache")

    def excess(of: Case, B: Q, S: Q) -> Q:
        cached = cached_bytes(of, B, S)
        return cached - held_weights(of)

    def below(n: int) -> bool:
        return excess(case, n if by_batch else batch, context if by_batch else n) < 0

    whole = 1 + largest(below, MOST)
    if whole > MOST:
        return Answer(None, unit, f"none: the cache does not grow to the weights with {x.name}")
    symbolic = symbolic_case(case)
    values = symbolic.values | {BATCH: batch, CONTEXT: context, x: whole}
    branch = active(excess(symbolic.case, BATCH, CONTEXT), values, keep=_kept(case, x))
    if _kept(case, x) is not None:
        return Answer(
            whole,
            unit,
            f"{'smallest batch' if by_batch else 'shortest context'} at which the cache takes as "
            "much memory as the weights",
            formula=f"smallest {x.name} with whole >= 0",
            definitions=(part("whole", branch.formula, values),),
        )
    split = affine(branch.formula, x)
    assert split is not None
    fixed, slope = split
    return Answer(
        -number(fixed, values) / number(slope, values),
        unit,
        f"{unknown} at which cache and weights take the same memory",
        formula=f"{x.name} = missing_bytes/bytes_per_{unit[:-1]}",
        definitions=(
            part("missing_bytes", -fixed, values),
            part(f"bytes_per_{unit[:-1]}", slope, values),
        ),
        valid_for=range_text(branch, x, values, whole=True),
    )


def sensitivity(case: Case, batch: int, context: int) -> dict[str, dict[str, float]]:
    """Per cent that time and throughput change for one per cent of each symbol."""
    if few_sequences(case, batch):
        what = "with fewer sequences than stages no one formula holds"
        raise RooflmError(what, "--sensitivity", "Take a batch of as many.")
    expression, values = time_expression(case)
    values |= {BATCH: batch, CONTEXT: context}
    smooth = bool(entry_lengths(case.model))
    return {
        "time_s": elasticities(expression, values, smooth),
        "tokens_per_s": elasticities(BATCH * case.step_tokens / expression, values, smooth),
    }
