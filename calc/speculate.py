"""Speculation on a machine: a round of drafting and verifying beside plain decode steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from .case import Case, engine_terms, fullest, limits, memory, regime, slowest
from .drafts import (
    Draft,
    Proposal,
    chain,
    check_target,
    draft_memory,
    draft_passes,
    medusa_operator,
    parameters_told,
    state_operator,
)
from .errors import RooflmError
from .passes import Operator, Segment, decode
from .readings import total
from .speculation import (
    accept_probability,
    accepted_mass,
    best_gamma,
    best_whole_gamma,
    expected_tokens,
    expected_tokens_by_position,
    ideal_speedup,
    rejected_mass,
    speculative_speedup,
    work_increase,
)
from .sweep import assumptions, devices_of
from .timing import sending_time, step_time

MOST_DRAFTED = 64
"""Longest draft that is tried."""
MOST_BATCH = 2**16
"""Largest batch at which the speed-up is looked at."""
MOST_ROUNDS = 2000
"""Most rounds of one answer: each takes some milliseconds, and a search several rounds."""
LONGEST = 10_000
"""Longest draft whose tokens are added up."""


@dataclass(frozen=True)
class Pass:
    """Times of one pass; None where there is no estimate [s]."""

    bound: float
    estimate: float | None
    messages: float = 0.0
    """Part of the bound that is messages to other devices [s]."""
    estimated_messages: float = 0.0
    """Part of the estimate that is messages [s]."""

    def seconds(self, basis: str, silent: bool = False) -> float | None:
        """Take the time of a basis; silent: without messages."""
        if basis == "bound":
            return self.bound - (self.messages if silent else 0)
        if self.estimate is None:
            return None
        return self.estimate - (self.estimated_messages if silent else 0)


@dataclass(frozen=True)
class Speculation:
    """What is asked: a target, a draft, and what is accepted of its tokens."""

    target: Case
    draft: Draft
    alphas: tuple[float, ...]
    """Acceptance of all positions, or of each."""
    chains: int = 1
    shape: Proposal | None = None
    """A tree in place of chains."""

    def proposal(self, gamma: int) -> Proposal:
        """Shape a round of `gamma` drafted tokens; that of the tree where one is given."""
        if gamma == 0:
            return Proposal((), 0, 1.0, 0)
        return self.shape or chain(self.alphas, gamma, self.chains)

    @property
    def longest(self) -> int:
        """Longest draft that can be made, and that the acceptance is known for [tokens]."""
        most = self.draft.heads or MOST_DRAFTED
        return most if len(self.alphas) == 1 else min(most, len(self.alphas))


def time_pass(
    case: Case,
    segments: Sequence[Segment],
    more: Callable[[Case], Operator | None] = lambda case: None,
) -> Pass:
    """Time a pass on the slowest rank; more: an operator of a rank beside those of its model."""
    ranks: list[tuple[float, Case, list[Operator]]] = []
    for member in case.members:
        extra = more(member)
        pass_ = member.ledger(segments) + ([] if extra is None else [extra])
        ranks.append((step_time(pass_, member.rates, member.time_model), member, pass_))
    bound, slow, pass_ = max(ranks, key=lambda rank: rank[0])
    try:
        terms = engine_terms(slow, segments, pass_)
    except RooflmError:
        return Pass(bound, None, sending_time(pass_))
    sent = total(seconds for name, seconds in terms if name == "messages")
    whole = total(seconds for _, seconds in terms)
    return Pass(bound, whole, sending_time(pass_), sent)


@dataclass(frozen=True)
class Round:
    """A round beside the plain step that it replaces."""

    proposal: Proposal
    plain: Pass
    drafting: tuple[Pass, ...]
    verifying: Pass

    def seconds(self, basis: str) -> float | None:
        """Time of the round [s]."""
        parts = [p.seconds(basis) for p in (*self.drafting, self.verifying)]
        known = [s for s in parts if s is not None]
        return sum(known) if len(known) == len(parts) else None

    def speedup(self, basis: str, silent: bool = False) -> float | None:
        """How many times faster it yields its tokens; 1 where nothing is drafted.

        silent: without messages to other devices.
        """
        if not self.proposal.drafted:
            return 1.0
        plain = self.plain.seconds(basis, silent)
        verifying = self.verifying.seconds(basis, silent)
        drafting = [p.seconds(basis, silent) for p in self.drafting]
        if plain is None or verifying is None or None in drafting:
            return None
        return speculative_speedup(self.proposal.tokens, plain, total(drafting), verifying)


def run_round(
    asked: Speculation, B: int, S: int, gamma: int, shorter: Round | None = None
) -> Round:
    """Time a round of B sequences whose plain step would be at context S.

    shorter: a round of fewer tokens, whose draft passes are the first of this one.
    """
    target, draft, proposal = asked.target, asked.draft, asked.proposal(gamma)
    plain = time_pass(target, decode(B, S)) if shorter is None else shorter.plain
    if not proposal.drafted:
        return Round(proposal, plain, (), plain)
    known = [] if shorter is None or draft.heads else list(shorter.drafting)
    passes = draft_passes(draft, B, S, proposal)
    drafting = known + [time_pass(*each) for each in passes[len(known) :]]
    if draft.heads and draft.first is not None:
        drafting.append(_medusa_pass(draft, draft.first, B))
    verifying = time_pass(
        target,
        verification(B, S, proposal),
        lambda member: state_operator(member, B, proposal.drafted),
    )
    return Round(proposal, plain, tuple(drafting), verifying)


def _medusa_pass(draft: Draft, case: Case, B: int) -> Pass:
    """Time the Medusa heads: one product after the verification."""
    member = case.members[0]
    op = medusa_operator(draft, B, member)
    return Pass(step_time([op], member.rates, member.time_model), None)


def verification(B: int, S: int, proposal: Proposal) -> list[Segment]:
    """Describe the pass over the last token and the proposed ones, with logits for all.

    Positions of a tree see each other as those of a chain would: at most T(T+1)/2 pairs a head
    too many.
    """
    return [Segment(B, proposal.rows, S - 1, head_rows=proposal.rows)]


def best_round(asked: Speculation, B: int, S: int, basis: str) -> Round:
    """Find the draft length with the largest speed-up; 0 where no length gains anything.

    A tree is as it is. Stops where all further tokens, if they were free and always accepted,
    could not do better.
    """
    if asked.shape:
        return run_round(asked, B, S, asked.shape.length)
    best = run_round(asked, B, S, 0)
    plain, most = best.plain.seconds(basis), asked.proposal(asked.longest).tokens
    tried = best
    for gamma in range(1, asked.longest + 1):
        tried = run_round(asked, B, S, gamma, tried)
        now, top = tried.speedup(basis), best.speedup(basis)
        if now is None or top is None or plain is None:
            break
        if now > top:
            best = tried
        seconds = tried.seconds(basis)
        if seconds and most * plain / seconds < max(now, top):
            break
    return best


def speculate(
    asked: Speculation,
    batches: Sequence[int],
    contexts: Sequence[int],
    lengths: Sequence[int] | None,
) -> dict[str, Any]:
    """Answer rounds for every batch at every context, at the best draft length or at given ones."""
    check_target(asked.target)
    rounds = len(batches) * len(contexts) * len(lengths or (1,))
    if rounds > MOST_ROUNDS:
        what = f"{rounds:,} rounds are more than {MOST_ROUNDS:,}"
        raise RooflmError(what, "--batch, --context, --draft-tokens", "Take a larger step.")
    if lengths and max(lengths) > asked.longest:
        what = f"{max(lengths):,} drafted tokens are more than {asked.longest:,}"
        of = "heads" if asked.draft.heads else "positions whose acceptance is given"
        why = of if asked.longest < MOST_DRAFTED else "that are tried"
        raise RooflmError(f"{what} {why}", "--draft-tokens")
    basis = _basis(asked, batches, contexts, lengths)
    rows = [
        _row(asked, round_, B, S, basis)
        for S in contexts
        for B in batches
        for round_ in (
            [run_round(asked, B, S, gamma) for gamma in lengths]
            if lengths
            else [best_round(asked, B, S, basis)]
        )
    ]
    target, draft = asked.target, asked.draft
    return {
        "schema": "rooflm.speculate/1",
        "model": target.model.name,
        "draft": draft.name,
        "hardware": target.machine.name,
        "acceptance": asked.alphas[0] if len(asked.alphas) == 1 else list(asked.alphas),
        "draft_parameters": draft.parameters,
        "basis": basis,
        "falls_below_1": [_falls(asked, S, lengths, basis, rows) for S in contexts],
        "rows": rows,
        "assumptions": _told(asked, contexts, basis, rows),
    }


def _basis(
    asked: Speculation, batches: Sequence[int], contexts: Sequence[int], lengths: Any
) -> str:
    """Use estimates where every pass of a round has one, or bounds throughout: never both."""
    if asked.target.basis == "bound":
        return "bound"
    gamma = max(lengths) if lengths else asked.longest if asked.shape else 1
    for B in (min(batches), max(batches)):
        if run_round(asked, B, max(contexts), gamma).speedup("estimate") is None:
            return "bound"
    return "estimate"


def _row(asked: Speculation, round_: Round, B: int, S: int, basis: str) -> dict[str, Any]:
    """Lay a round out by the keys of the contract."""
    target, proposal = asked.target, round_.proposal
    segments = verification(B, S, proposal)
    full = fullest(target, segments)
    kinds = memory(full, segments, full.ledger(segments))
    if "state_bytes" in kinds:
        kinds["state_bytes"] *= proposal.rows
    # A server that drafts at other loads holds its draft at this one as well.
    kinds |= draft_memory(asked.draft, B, S, proposal)
    held, limit = total(kinds.values()), target.limit[0]
    slow = slowest(target, segments)
    pass_ = slow.ledger(segments)
    seconds, plain = round_.seconds(basis), round_.plain.seconds(basis)
    drafting = [p.seconds(basis) for p in round_.drafting]
    row: dict[str, Any] = {
        "batch": B,
        "context_tokens": S,
        "draft_tokens": proposal.length,
        "verified_tokens": proposal.rows,
        "expected_tokens": proposal.tokens,
        "time_s": seconds,
        "drafting_s": None if None in drafting else total(drafting),
        "verifying_s": round_.verifying.seconds(basis),
        "plain_s": plain,
        "itl_s": None if seconds is None else seconds / proposal.tokens,
        "speedup": round_.speedup(basis),
        "bound_speedup": round_.speedup("bound"),
        "estimate_speedup": round_.speedup("estimate"),
        "tokens_per_s": None if seconds is None else B * proposal.tokens / seconds,
        "plain_tokens_per_s": None if plain is None else B / plain,
        **kinds,
        "memory_bytes": held,
        "capacity_bytes": limit,
        "fits": held <= limit,
        "regime": regime(*limits(slow, pass_), sending_time(pass_)),
        "basis": basis,
        **devices_of(target),
    }
    if target.layout is not None:
        row["speedup_without_messages"] = round_.speedup(basis, silent=True)
    return row


def _falls(
    asked: Speculation,
    S: int,
    lengths: Sequence[int] | None,
    basis: str,
    rows: list[dict[str, Any]],
) -> dict[str, Any]:
    """Find the batches at which a draft length gains: powers of two, and bisection between them.

    More sequences touch more experts at first, so that a draft may lose, gain and lose again.
    """
    here = [r["draft_tokens"] for r in rows if r["context_tokens"] == S]
    gamma = lengths[0] if lengths else max(1, *here)
    gains: list[dict[str, int | None]] = []

    def gained(B: int) -> bool | None:
        speedup = run_round(asked, B, S, gamma).speedup(basis)
        return None if speedup is None else speedup >= 1

    def turn(low: int, high: int) -> int:
        """Find the first batch above `low` that is like `high`."""
        like = gained(high)
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if gained(middle) == like else (middle, high)
        return high

    last, before = asked.target.least_batch, False
    batch = last
    while batch <= MOST_BATCH and (now := gained(batch)) is not None:
        if now and not before:
            first = batch if batch == last else turn(last, batch)
            gains.append({"from_batch": first, "to_batch": None})
        elif before and not now:
            gains[-1]["to_batch"] = turn(last, batch) - 1
        last, before, batch = batch, now, 2 * batch
    ends = gains[-1]["to_batch"] if gains else asked.target.least_batch - 1
    return {
        "context_tokens": S,
        "draft_tokens": gamma,
        "batch": None if ends is None else ends + 1,
        "gains": gains,
        "searched_to_batch": last,
    }


def _told(
    asked: Speculation, contexts: Sequence[int], basis: str, rows: Sequence[dict[str, Any]]
) -> list[str]:
    """Say what a round takes for granted."""
    target, draft = asked.target, asked.draft
    measured = target if basis == "estimate" else replace(target, constants=None)
    said = [
        "a round: the draft proposes, one pass of the target checks all of it, and yields the "
        "accepted tokens and one of its own; time per token is that of a round over the tokens",
        "acceptance: as given, the same for every sequence, each token independent; where it "
        "differs between requests the mean gives too few tokens; it has to be measured at the "
        "temperature that is used",
        parameters_told(draft, target.model),
        *draft.told,
    ]
    if rows and any("state_bytes" in r for r in rows):
        said.append("states: the target keeps and writes one for each position of a round")
    if basis == "estimate":
        said.append(
            "estimates of passes that nobody published as such: the kernels of decode steps"
        )
    elif target.constants is not None and target.basis == "estimate":
        said.append("bounds, since not every pass of a round has an estimate")
    said.append(
        "left out: sampling, comparing laws, and the token that a draft catches up with after a "
        "round in which all was accepted"
    )
    if draft.name.startswith("medusa") or asked.shape:
        said.append("typical or relaxed acceptance does not keep the target's law")
    # A band is that of plain steps.
    return said + [s for s in assumptions(measured, "decode", contexts) if not s.startswith("band")]


def ideal(
    alphas: Sequence[float], costs: Sequence[float], lengths: Sequence[int]
) -> dict[str, Any]:
    """Answer without models: tokens, speed-up and work by draft length, and the best length.

    alphas: acceptance of all positions, or of each; costs: time of a draft step over that of a step
    of the target [1].
    """
    most = LONGEST if len(alphas) == 1 else len(alphas)
    if lengths and max(lengths) > most:
        what = f"{max(lengths):,} drafted tokens are more than {most:,}"
        why = "" if len(alphas) == 1 else " positions whose acceptance is given"
        raise RooflmError(what + why, "--draft-tokens")
    rows = [_ideal_row(alphas, c, gamma) for c in costs for gamma in lengths]
    return {
        "schema": "rooflm.speculate/1",
        "model": None,
        "hardware": None,
        "acceptance": alphas[0] if len(alphas) == 1 else list(alphas),
        "best": [{"draft_cost": c, **_best(alphas, c)} for c in costs],
        "rows": rows,
        "assumptions": [
            "verifying takes as long as a plain step: one sequence, while memory traffic limits",
            "draft cost: time of a draft step over that of a step of the target; the work factor "
            "takes it for the ratio of work as well",
            "something is won exactly where acceptance is above the draft cost",
        ],
    }


def _ideal_row(alphas: Sequence[float], c: float, gamma: int) -> dict[str, Any]:
    """Answer one draft length."""
    if len(alphas) == 1:
        tokens = expected_tokens(alphas[0], gamma)
    else:
        tokens = expected_tokens_by_position(alphas[:gamma])
    return {
        "draft_cost": c,
        "draft_tokens": gamma,
        "expected_tokens": tokens,
        "speedup": speculative_speedup(tokens, 1, gamma * c, 1),
        "work_factor": work_increase(tokens, gamma, c),
    }


def _best(alphas: Sequence[float], c: float) -> dict[str, Any]:
    """Find the best draft length: in closed form, or of those whose acceptance is given."""
    if len(alphas) > 1:
        found = max(
            (_ideal_row(alphas, c, gamma) for gamma in range(len(alphas) + 1)),
            key=lambda row: row["speedup"],
        )
        return {"draft_tokens": found["draft_tokens"], "draft_tokens_real": None,
                "speedup": found["speedup"]}  # fmt: skip
    alpha = alphas[0]
    real = best_gamma(alpha, c) if 1 > alpha > c else None
    if alpha == 1 or (real is not None and real > LONGEST):
        return {"draft_tokens": None, "draft_tokens_real": real, "speedup": None}
    gamma = best_whole_gamma(alpha, c)
    return {
        "draft_tokens": gamma,
        "draft_tokens_real": 0.0 if real is None else real,
        "speedup": ideal_speedup(alpha, gamma, c),
    }


def laws(p: Sequence[Fraction], q: Sequence[Fraction]) -> dict[str, Any]:
    """Answer one step of speculative sampling, exactly: what is accepted, what comes out.

    p, q: laws of the draft and of the target over the same tokens; each adds up to 1.
    """
    accepted = [Fraction(accepted_mass(a, b)) for a, b in zip(p, q, strict=True)]
    corrected = [Fraction(rejected_mass(a, b)) for a, b in zip(p, q, strict=True)]
    alpha, rejected = sum(accepted, Fraction(0)), sum(corrected, Fraction(0))
    rows: list[dict[str, Any]] = [
        {
            "token": i,
            "draft": a,
            "target": b,
            "accept_probability": Fraction(accept_probability(a, b)) if a else None,
            "accepted_mass": kept,
            "residual": more / rejected if rejected else None,
            "output": kept + more,
            "output_if_resampled_from_target": kept + rejected * b,
        }
        for i, (a, b, kept, more) in enumerate(zip(p, q, accepted, corrected, strict=True))
    ]
    wrong = sum(
        (abs(r["output_if_resampled_from_target"] - r["target"]) for r in rows), Fraction(0)
    )
    found: dict[str, Any] = {
        "acceptance": alpha,
        "rejected_mass": rejected,
        "total_variation": 1 - alpha,
        "error_if_resampled_from_target": wrong / 2,
        "rows": rows,
    }
    return {
        "schema": "rooflm.speculate/1",
        "model": None,
        "hardware": None,
        **_numbers(found),
        "exact": _texts(found),
        "assumptions": [
            "p is the law of the draft, q that of the target; a drafted token is accepted with "
            "min(1, q/p), and after a rejection one is drawn from max(q - p, 0), scaled",
            "the output has the target's law; resampled from q itself it would not",
        ],
    }


def _numbers(value: Any) -> Any:
    """Turn exact fractions into floats, whatever holds them."""
    return _mapped(value, float)


def _texts(value: Any) -> Any:
    """Turn exact fractions into text such as 5/8."""
    return _mapped(value, str)


def _mapped(value: Any, turn: Callable[[Fraction], Any]) -> Any:
    if isinstance(value, dict):
        return {k: _mapped(v, turn) for k, v in value.items()}  # pyright: ignore
    if isinstance(value, list):
        return [_mapped(v, turn) for v in value]  # pyright: ignore
    return turn(value) if isinstance(value, Fraction) else value
