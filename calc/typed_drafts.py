"""What was typed about speculation: laws, acceptance, trees, and what drafts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import RooflmError, printable
from .typed import Counting, make_case, make_precision
from .units import parse_count, parse_rate

if TYPE_CHECKING:
    from .case import Case
    from .drafts import Draft, Proposal
    from .speculate import Speculation

T = TypeVar("T")
_CHANCE = re.compile(r"[0-9]{1,20}(\.[0-9]{1,20})?%?|\.[0-9]{1,20}%?|[0-9]{1,20}/[0-9]{1,20}")
MOST_NODES = 1024
"""Positions that one round verifies at the most; larger trees are taken for a slip."""


def parse_chances(text: str, option: str) -> list[Fraction]:
    """Read chances, exactly: 0.8,80%,4/5."""
    return [_chance(part.strip(), option) for part in text.split(",")]


def _chance(text: str, option: str) -> Fraction:
    wrong = RooflmError(
        f"'{printable(text, 40)}' is not a chance", option, "Write 0.8, 80% or 4/5."
    )
    if not _CHANCE.fullmatch(text):
        raise wrong
    try:
        value = Fraction(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ZeroDivisionError:
        raise wrong from None
    if not 0 <= value <= 1:
        raise wrong
    return value


def parse_laws(p: str, q: str) -> tuple[list[Fraction], list[Fraction]]:
    """Read the laws of a draft and a target over the same tokens; each adds up to 1."""
    found = parse_chances(p, "--p"), parse_chances(q, "--q")
    if len(found[0]) != len(found[1]):
        what = f"{len(found[0])} and {len(found[1])} chances are not over the same tokens"
        raise RooflmError(what, "--p, --q")
    for law, option in zip(found, ("--p", "--q"), strict=True):
        if sum(law) != 1:
            fix = "Write fractions where decimals round: 1/3,1/3,1/3."
            # A sum that is off by rounding is told by what is missing: it would read "not 1".
            off = float(sum(law) - 1)
            tiny = f"1 {'-+'[off > 0]} {abs(off):.1g}"
            said = f"{1 + off:.9g}" if abs(off) > 1e-8 else tiny
            raise RooflmError(f"a law adds up to 1, not {said}", option, fix)
    return found


def parse_tree(text: str, accuracies: str | None) -> Proposal:
    """Read a static tree and the accuracies of its candidates."""
    from .drafts import tree

    if accuracies is None:
        fix = "Say --accuracies 0.6,0.15;0.5,0.1: of each depth, by rank."
        raise RooflmError("a tree needs accuracies", "--accuracies", fix)
    paths = [_path(part) for part in text.split(";")]
    if len(paths) > MOST_NODES:
        raise RooflmError(f"more than {MOST_NODES:,} nodes", "--tree", "Is it a slip?")
    chances = [list(map(float, parse_chances(t, "--accuracies"))) for t in accuracies.split(";")]
    return tree(paths, chances)


def _path(text: str) -> list[int]:
    steps = [step.strip() for step in text.split(",")]
    if not all(re.fullmatch(r"[0-9]{1,4}", step) for step in steps):
        what = f"'{printable(text, 40)}' is no path of a tree"
        raise RooflmError(what, "--tree", "Write 0;1;0,0;0,1: ranks from the root on.")
    return list(map(int, steps))


def parse_ratios(text: str) -> list[float]:
    """Read times of a draft step over those of a step of the target."""
    return [parse_rate(part, "--draft-cost") for part in text.split(",")]


def find_draft(
    target: Case,
    text: str,
    typed: Counting,
    tp: str | None,
    models: str | None,
) -> Draft:
    """Find what drafts: a head by its word, or a model by its name.

    target: the case of the target; typed: how the draft is counted; tp: ranks that split it;
    models: a file of further models.
    """
    from .drafts import HEADS, head_draft, model_draft
    from .model import has_experts
    from .presets import find_model

    ways = None if tp is None else parse_count(tp, "--draft-tp")
    most = 1 if target.layout is None else target.layout.tp
    if ways is not None and ways > most:
        raise RooflmError("a draft has no more ranks than its target", "--draft-tp")
    word, colon, rest = text.partition(":")
    if word in ("medusa", "ngram") and typed.weights is not None:
        what = f"{word} has no weights in another format than the target's activations"
        raise RooflmError(what, "--draft-weights", "Leave the option out.")
    if word in HEADS:
        if colon and word not in ("medusa", "eagle3"):
            raise RooflmError(f"{word} takes no number", "--draft", f"Write --draft {word}.")
        number = parse_count(rest, "--draft") if colon else None
        own: Any = None
        if word != "mtp" or typed.weights is not None:
            # A module of the checkpoint is in its formats; heads of others are in 16 bits.
            own = _as_draft(lambda: make_precision(typed, target.machine, None))
        return head_draft(target, word, number, ways, own)
    try:
        model = find_model(text, {}, models)
    except RooflmError as e:
        raise RooflmError(e.what, "--draft" if e.where == "MODEL" else e.where, e.fix) from None
    if not has_experts(model) or "," in (typed.routing or ""):
        # Probabilities are those of the target's own experts.
        typed = replace(typed, routing=None)
    case = _as_draft(lambda: make_case(model, target.machine, typed))
    usual = replace(
        case, constants=target.constants, no_estimate=target.no_estimate, basis=target.basis
    )
    return model_draft(target, usual, ways)


def _as_draft(make: Callable[[], T]) -> T:
    """Name the option of the draft where its formats are wrong."""
    try:
        return make()
    except RooflmError as e:
        where = "--draft-weights" if e.where == "--weights" else e.where
        raise RooflmError(e.what, where, e.fix) from None


def find_speculation(
    target: Case, drafted: Mapping[str, str | None], typed: Counting, models: str | None
) -> Speculation:
    """Read what is asked of a target from the options of speculation."""
    from .drafts import check_target
    from .speculate import Speculation

    check_target(target)
    draft, acceptance, shape = drafted["draft"], drafted["acceptance"], drafted["tree"]
    if draft is None:
        fix = "Say --draft llama-3-8b, eagle, medusa:5, mtp or ngram."
        raise RooflmError("a draft is needed", "--draft", fix)
    if (acceptance is None) == (shape is None):
        what = "what is accepted is needed" if shape is None else "a tree has accuracies"
        fix = "Say --acceptance 0.8, or --tree with --accuracies."
        raise RooflmError(what, "--acceptance", fix)
    if shape is not None and drafted["draft_tokens"] is not None:
        raise RooflmError("a tree has as many tokens as nodes", "--draft-tokens", "Leave it out.")
    if shape is None and drafted["accuracies"] is not None:
        raise RooflmError("accuracies are those of a tree", "--accuracies", "Say --tree as well.")
    chains = 1 if drafted["chains"] is None else parse_count(drafted["chains"], "--chains")
    alphas = (
        (1.0,) if acceptance is None
        else tuple(float(a) for a in parse_chances(acceptance, "--acceptance"))
    )  # fmt: skip
    if chains > 1 and (len(alphas) > 1 or shape is not None):
        what = "several chains have one acceptance"
        raise RooflmError(what, "--chains", "Say --acceptance 0.6, or a tree.")
    if chains > 1 and draft.partition(":")[0] in ("medusa", "ngram"):
        what = f"{draft} proposes one chain"
        raise RooflmError(what, "--chains", "Verify a tree instead: --tree with --accuracies.")
    if chains > MOST_NODES:
        raise RooflmError(f"more than {MOST_NODES:,} chains", "--chains", "Is it a slip?")
    # The machine of the target is scaled already.
    own = replace(
        typed, weights=drafted["draft_weights"], estimating=None, hardware_scale=None, terms={}
    )
    found = find_draft(target, draft, own, drafted["draft_tp"], models)
    planned = None if shape is None else parse_tree(shape, drafted["accuracies"])
    if planned is not None and found.heads and len(planned.steps) > found.heads:
        what = f"a tree of depth {len(planned.steps)} has more levels than {found.heads} heads"
        raise RooflmError(what, "--tree", f"Say --draft medusa:{len(planned.steps)}.")
    return Speculation(target, found, alphas, chains, planned)
