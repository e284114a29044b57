"""What was typed of a sweep or of speculation, answered: one way in for commands and studies.

What was typed stands under the names of the options, None where nothing was.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .errors import RooflmError
from .noted import at_a_context, noted
from .options import COSTED, COUNTED, DRAFTED, ESTIMATED, HANDOFF, LAYOUT, TERMS
from .typed import (
    Counting,
    Estimating,
    find_case,
    find_handoff,
    given,
    parse_contexts,
    parse_costs,
    parse_works,
    refuse_shared,
    retyped,
)
from .units import parse_count, parse_counts

if TYPE_CHECKING:
    from .case import Case
    from .requests import Work

Words = Mapping[str, Any]

WORK = ("phase", "prompt", "output_tokens", "prefix", "chunk", "block")
"""Options of a prefill or a request."""
DENOISED = ("denoise_block", "denoise_steps")
"""Options of denoising in blocks, and of whole requests."""


def group(words: Words, names: Sequence[str] | Mapping[str, Any]) -> dict[str, Any]:
    """Take some options out of what was typed."""
    return {name: words.get(name) for name in names}


def command_of(command: str, words: Words) -> str:
    """Spell out the command that answers what was typed."""
    options = {name: value for name, value in words.items() if name not in ("model", "on")}
    options["set"] = list(words.get("set") or ())
    named = [words["model"]] if words.get("model") is not None else []
    on = ["--on", words["on"]] if words.get("on") is not None else []
    return shlex.join(["rooflm", command, *named, *on, *retyped(options)])


def counting_of(words: Words) -> Counting:
    """Gather the options that say how to count."""
    said = group(words, COUNTED)
    said["reserve"] = given(said["reserve"], "0")
    return Counting(
        **said,
        accounting=given(words.get("accounting"), "full"),
        tokens_per_step=words.get("tokens_per_step"),
        estimating=Estimating(**group(words, ESTIMATED)),
        terms=group(words, TERMS),
    )


def case_of(words: Words, typed: Counting | None = None, timed: bool = True) -> Case:
    """Make the case of what was typed.

    typed: how to count, where not all that was typed says; timed: its time is asked for, which
    needs links.
    """
    settings: list[str] = list(words.get("set") or ())
    files = words.get("models"), words.get("hardware")
    typed = counting_of(words) if typed is None else typed
    layout = group(words, LAYOUT)
    return find_case(words["model"], words["on"], settings, *files, typed, layout, timed)


def works_of(words: Words) -> list[Work] | None:
    """Read what is asked of each sequence; None for decode steps."""
    work = group(words, WORK)
    return parse_works(**work, context=words.get("context"), typed=counting_of(words))


MIXED = "@mixed"
"""Ending of a context that is several lengths of one batch."""


def is_mixed(words: Words) -> bool:
    """Tell whether what was typed is one batch of sequences of different lengths."""
    return (words.get("context") or "").endswith(MIXED)


def mixed_lengths(words: Words) -> list[int]:
    """Read the lengths of a batch of different ones, typed or from a file [tokens]."""
    from .lengths import parse_lengths

    return parse_lengths(words["context"].removesuffix(MIXED), "--context")


def denoises(words: Words, case: Case) -> bool:
    """Tell whether what was typed is about denoising steps."""
    return case.model.denoises or any(words.get(name) is not None for name in DENOISED)


@noted
@at_a_context
def swept(words: Words) -> dict[str, Any]:
    """Answer a sweep: of decode steps, prefills, requests, served tokens or denoising steps."""
    paid = parse_costs(group(words, COSTED))
    case, typed = case_of(words), counting_of(words)
    works = works_of(words)
    batch, context = words.get("batch"), words.get("context")
    elsewhere = find_handoff(
        typed, group(words, HANDOFF), case, group(words, LAYOUT), words.get("hardware"), works
    )
    if elsewhere is not None and paid is not None:
        what = "what prompts cost that are computed on another machine is not modelled"
        raise RooflmError(what, "--cost", "Price the prefills and the decode steps by themselves.")
    if denoises(words, case):
        refuse_shared(typed, "denoised sequences")
        answer = _denoised(case, words, works)
    elif works is not None and elsewhere is not None:
        from .handoff import sweep_handoffs

        answer = sweep_handoffs(case, elsewhere, _batches(batch), works)
    elif works is not None:
        from .requests import sweep_requests

        answer = sweep_requests(case, _batches(batch), works)
    elif is_mixed(words):
        from .sweep import mixed

        refuse_shared(typed, "sequences of different lengths")
        lengths = mixed_lengths(words)
        answer = mixed(case, parse_counts(given(batch, str(len(lengths))), "--batch"), lengths)
    else:
        from .sweep import sweep

        answer = sweep(case, _batches(batch), parse_contexts(context, typed))
    if paid is None:
        return answer
    from .cost import add_costs

    times = len(answer["rows"]) // len(works or [None])
    return add_costs(answer, [(case, w) for w in works or [None] for _ in range(times)], paid)


def _batches(text: str | None) -> list[int]:
    return parse_counts(given(text, "1"), "--batch")


def _denoised(case: Case, words: Words, works: list[Work] | None) -> dict[str, Any]:
    """Answer a sweep of a diffusion model, or of block diffusion with any model of attention."""
    from .diffusion import sweep_diffusion, sweep_requests

    context, block, steps = (words.get(n) for n in ("context", "denoise_block", "denoise_steps"))
    batches = _batches(words.get("batch"))
    passes = None if steps is None else parse_count(steps, "--denoise-steps")
    if block is None and not case.model.denoises:
        what = f"{case.model.name} decodes: it has denoising steps in blocks only"
        raise RooflmError(what, "--denoise-steps", "Say --denoise-block 32 as well.")
    if works is not None:
        if block is not None:
            raise RooflmError("block diffusion is swept by context", "--phase", "Leave it out.")
        return sweep_requests(case, batches, works, passes)
    if block is not None and case.model.denoises:
        what = f"{case.model.name} computes whole sequences, without a cache for blocks"
        raise RooflmError(what, "--denoise-block", "Say it of a model that has a cache.")
    if block is None and passes is not None:
        fix = "Add --phase request, or say --tokens-per-step."
        raise RooflmError("a single step has no number of steps", "--denoise-steps", fix)
    if block is not None and passes is None:
        what = "how many passes a block takes is needed"
        raise RooflmError(what, "--denoise-steps", "Say --denoise-steps 8.")
    if is_mixed(words):
        raise RooflmError("denoising is swept at one context a row", "--context")
    contexts = parse_counts(given(context, "1024"), "--context")
    size = None if block is None else parse_count(block, "--denoise-block")
    return sweep_diffusion(case, batches, contexts, size, passes or 1)


@noted
@at_a_context
def speculated(words: Words) -> dict[str, Any]:
    """Answer speculation: of models on a machine, of two laws, or of a draft's cost alone."""
    from .speculate import ideal, laws, speculate
    from .typed_drafts import find_speculation, parse_chances, parse_laws, parse_ratios

    target, p, q, cost = (words.get(name) for name in ("model", "p", "q", "draft_cost"))
    modes = {"TARGET": target, "--p, --q": p or q, "--draft-cost": cost}
    asked = [name for name, value in modes.items() if value is not None]
    if len(asked) != 1:
        fix = "Say TARGET with --draft, or --p and --q, or --acceptance and --draft-cost."
        what = "one question at a time" if asked else "a target is needed"
        raise RooflmError(what, " and ".join(asked) or "TARGET", fix)
    lengths = words.get("draft_tokens")
    if target is None:
        _refuse_idle(words, () if cost is None else ("acceptance", "draft_tokens"))
    if p is not None or q is not None:
        if p is None or q is None:
            raise RooflmError("both laws are needed", "--p, --q", "Say --p 0.8,0.2 --q 0.6,0.4.")
        return laws(*parse_laws(p, q))
    if cost is not None:
        if words.get("acceptance") is None:
            raise RooflmError("acceptance is needed", "--acceptance", "Say --acceptance 0.8.")
        alphas = [float(a) for a in parse_chances(words["acceptance"], "--acceptance")]
        tried = [] if lengths is None else parse_counts(lengths, "--draft-tokens")
        return ideal(alphas, parse_ratios(cost), tried)
    if words.get("on") is None:
        raise RooflmError("a machine is needed", "--on", "Say --on 8xh100-sxm.")
    case = case_of(words)
    found = find_speculation(case, group(words, DRAFTED), counting_of(words), words.get("models"))
    contexts = parse_counts(given(words.get("context"), "1024"), "--context")
    batches = _batches(words.get("batch"))
    tried = None if lengths is None else parse_counts(lengths, "--draft-tokens")
    paid = parse_costs(group(words, COSTED))
    answer = speculate(found, batches, contexts, tried)
    if paid is None:
        return answer
    from .cost import add_costs

    return add_costs(answer | {"phase": "decode"}, [(case, None) for _ in answer["rows"]], paid)


def _refuse_idle(words: Words, used: Sequence[str]) -> None:
    """Refuse options of a machine where no model is asked about."""
    names = (*DRAFTED, "on", "batch", "context", "set", *COUNTED, *ESTIMATED, *COSTED,
             "models", "hardware", *LAYOUT)  # fmt: skip
    idle = retyped({n: words.get(n) for n in names if n not in used})
    if idle:
        what = "this is asked of a model on a machine"
        raise RooflmError(what, idle[0], "Say TARGET, or leave the option out.")
