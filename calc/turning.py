"""Where a decode step turns from memory-bound to compute-bound, or why it never does."""

from __future__ import annotations

from .branches import Branch, active, valid_range
from .case import Case, memory_bytes
from .errors import RooflmError
from .hardware import bound_flops
from .inverse import FAR, MOST, Answer, affine, fits_memory, part, parts_of, range_text
from .memory import largest
from .model import chunk_lengths, entry_lengths
from .symbols import BATCH, CONTEXT, PEAK, Expr, Values, number, symbolic_case, sympy
from .timing import (
    Rates,
    bandwidth_time,
    compute_time,
    computing_time,
    flops,
    moving_time,
    operator_moving_time,
    shares,
)


def both_times(case: Case, B: int, S: int) -> tuple[float, float]:
    """Seconds of a decode step that compute sets, and that memory traffic sets.

    Where the time model adds up whole passes, and in lecture accounting, these are the two totals.
    """
    if case.time_model == "bandwidth" and not case.lecture:
        what = "the time model bandwidth counts no compute"
        raise RooflmError(what, "--time-model", "Leave the option out.")
    pass_ = case.ledger(case.step(B, S))
    if case.lecture:
        peak = bound_flops(case.machine, case.precision.activations.compute)
        moving = bandwidth_time(memory_bytes(case, B, S), case.rates.bytes_per_s)
        return compute_time(flops(pass_), peak), moving
    return shares(pass_, case.rates, case.time_model)


def is_compute_bound(case: Case, B: int, S: int) -> bool:
    """Tell whether compute holds more than half of a decode step."""
    computing, moving = both_times(case, B, S)
    return computing > moving


def compute_bound_batch(case: Case, context: int) -> Answer:
    """Find the smallest batch at which a step is compute-bound, or say why there is none."""
    if not is_compute_bound(case, MOST, context):
        return _never(case, context)
    value = 1 + largest(lambda B: not is_compute_bound(case, B, context), MOST)
    branch, values = excess(case, value, context)
    split = affine(branch.formula, BATCH)
    if split is not None and not number(split[1], values):
        # No sequence adds to either side: only a jump turns it.
        split = None
    low, _ = valid_range(branch, BATCH, values)
    reason = "smallest batch at which compute holds more than half of the step"
    formula = "B = floor(fixed_s/gained_s_per_sequence) + 1"
    if split is None:
        formula, root = "smallest B with excess_s > 0", None
        definitions = (part("excess_s", branch.formula, values),)
    else:
        fixed, gained = split
        root = -number(fixed, values) / number(gained, values)
        definitions = (
            part("fixed_s", -fixed, values),
            part("gained_s_per_sequence", gained, values),
        )
    if low > (value - 1) * (1 - 1e-9) and (root is None or root < low):
        # The sum jumps: at this batch an operator changes sides.
        reason += "; an operator turns compute-bound there"
        formula, root = f"B = floor({low:.9g}) + 1, where that operator's two times are equal", low
    fits = fits_memory(case, value, context)
    return Answer(
        value,
        "sequences",
        reason if fits is not False else f"{reason}; it does not fit the memory",
        formula=formula,
        definitions=definitions,
        valid_for=range_text(branch, BATCH, values, whole=True),
        more=(("root", root), ("fits", fits)),
    )


def longest_compute_bound(case: Case, batch: int) -> Answer:
    """Find the context up to which, or from which on, a batch is compute-bound.

    Attention is memory-bound at N/K below the ridge: a longer context ends the compute-bound
    regime. With many query heads a key/value head, or a low ridge, it begins it.
    """
    if chunk_lengths(case.model):
        what = "layers that see chunks are compute-bound at some contexts of each chunk"
        raise RooflmError(what, "--when compute-bound", "Sweep --context instead.")
    if entry_lengths(case.model):
        what = "compressed entries come in steps, and each may turn the regime back"
        raise RooflmError(what, "--when compute-bound", "Sweep --context instead.")
    near, far = (is_compute_bound(case, batch, S) for S in (1, MOST))
    if near == far:
        state = "compute-bound" if near else "memory-bound"
        return Answer(None, "tokens", f"none: {batch:,} sequences are {state} at any context")
    last = largest(lambda S: S == 0 or is_compute_bound(case, batch, S) == near, MOST)
    value = last if near else last + 1
    branch, values = excess(case, batch, value)
    reached = branch if far else Branch(-branch.formula, branch.conditions)
    which = "shortest" if far else "longest"
    return Answer(
        value,
        "tokens",
        f"{which} context at which compute holds more than half of the step",
        **parts_of(
            reached, CONTEXT, values, ("lacking_s", "gained_s_per_token"),
            closed="S = floor(-lacking_s/gained_s_per_token) + 1"
            if far
            else "S = ceil(-lacking_s/gained_s_per_token) - 1",
            otherwise=f"{which} S with whole {'> 0' if far else '< 0'}",
        ),
    )  # fmt: skip


def _never(case: Case, context: int) -> Answer:
    """Prove that no batch is compute-bound: what a further sequence adds to either side."""
    longest = largest(lambda S: is_compute_bound(case, MOST, S), MOST)
    later = is_compute_bound(case, MOST, MOST)
    computing, moving = (seconds / FAR for seconds in both_times(case, FAR, context))
    tail = f"above {longest:,} tokens of context none is" if longest else "at no context is one"
    if chunk_lengths(case.model):
        longest, tail = None, "other contexts may differ with each chunk"
    if later:
        tail = "longer contexts are, as attention itself computes more than it moves"
    return Answer(
        None,
        "sequences",
        f"none: each further sequence adds {1e6 * moving:.4g} us of memory time and "
        f"{1e6 * computing:.4g} us of compute; {tail}",
        more=(("longest_context_tokens", longest),),
    )


def excess(case: Case, B: int, S: int) -> tuple[Branch, Values]:
    """Compute time less memory time in symbols, each operator on the side it has at a point."""
    symbolic = symbolic_case(case)
    letters = symbolic.case
    pass_ = letters.ledger(letters.step(BATCH, CONTEXT))
    values = symbolic.values | {BATCH: B, CONTEXT: S}
    if case.lecture or case.time_model != "operator":
        moving = moving_time(pass_, letters.rates, overlapped=case.time_model != "serial")
        if case.lecture:
            moved = memory_bytes(letters, BATCH, CONTEXT)
            moving = bandwidth_time(moved, letters.rates.bytes_per_s)
            values[PEAK] = bound_flops(case.machine, case.precision.activations.compute)
        total = computing_time(pass_, letters.rates)
        total -= moving
        if case.offloads:
            return active(total, values), values
        return Branch(total, ()), values
    rates: Rates = letters.rates
    formula: Expr = sympy.Integer(0)
    conditions: list[Expr] = []
    for op in pass_:
        compute = op.count * compute_time(op.flops, rates.peak(op.compute))
        memory = op.count * operator_moving_time(op, rates)
        computes = number(compute, values) > number(memory, values)
        formula += compute if computes else -memory
        conditions.append(compute - memory if computes else memory - compute)
    # What is left of min (rows of a gathered table) is chosen by the point as well.
    chosen = active(formula, values)
    return Branch(chosen.formula, (*map(sympy.sympify, conditions), *chosen.conditions)), values
