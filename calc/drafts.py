"""What proposes tokens to a target: a model of its own, a head on the target, or nothing that runs.

EAGLE and multi-token-prediction heads are a layer like one of the target's behind a projection, so
that they are models here, which share tables with the target. Sources: arXiv 2401.15077 (EAGLE),
2503.01840 (EAGLE-3), 2401.10774 (Medusa), 2412.19437 (DeepSeek-V3, section 2.2); weights as in
github.com/SafeAILab/EAGLE, sgl-project/SpecForge, FasterDecoding/Medusa, deepseek-ai/DeepSeek-V3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .attention import Attention
from .case import Case, fullest, memory
from .errors import RooflmError
from .experts import Experts
from .layout import Layout, shard
from .matmul import matmul_flops
from .mlp import MLP
from .model import Group, Model, sequence_state_bytes, tensors, total_parameters
from .passes import Operator, Segment
from .precision import told as formats_told
from .readings import Q, total
from .speculation import (
    expected_chain_tokens,
    expected_tokens_by_position,
    expected_tree_tokens,
    medusa_parameters,
)
from .weights import tensor_bytes

EAGLE3_VOCABULARY = 32_000
"""Rows of the output head of the published EAGLE-3 heads for Llama-3."""
MOST_HEADS = 64
"""Most Medusa heads: more are taken for a slip."""
TABLES = ("embedding", "head")
"""Operators of the tables that a head shares with its target."""
HEADS = ("eagle", "eagle3", "medusa", "mtp", "ngram")
"""Words of `--draft` that are no model."""


@dataclass(frozen=True)
class Proposal:
    """The shape of a round: what each draft pass computes, and what the target verifies."""

    steps: tuple[int, ...]
    """Tokens of a sequence that each draft pass computes [tokens]."""
    drafted: int
    """Tokens that are proposed, in all chains [tokens]."""
    tokens: float
    """Tokens that a round yields, in expectation [tokens]."""
    length: int
    """Tokens of one chain; all of a tree [tokens]."""

    @property
    def rows(self) -> int:
        """Positions of a sequence that the target computes: the proposed ones and the last."""
        return self.drafted + 1


def chain(alphas: Sequence[float], gamma: int, chains: int = 1) -> Proposal:
    """Propose `gamma` tokens one after the other, in one draft or in several independent ones.

    alphas: acceptance, one for all positions, or one for each of them.
    """
    if len(alphas) > 1:
        return Proposal((1,) * gamma, gamma, expected_tokens_by_position(alphas[:gamma]), gamma)
    tokens = float(expected_chain_tokens(alphas[0], gamma, chains))
    # All chains begin at the same token.
    steps = (1, *(chains,) * (gamma - 1)) if gamma else ()
    return Proposal(steps, chains * gamma, tokens, gamma)


def tree(nodes: Sequence[Sequence[int]], accuracies: Sequence[Sequence[float]]) -> Proposal:
    """Propose a static tree; each draft pass computes the nodes that have children, level by level.

    nodes: the path of each; accuracies: of each depth, by rank. Raises `RooflmError` for a node
    without a parent or without an accuracy, and for accuracies that are more than 1 together.
    """
    paths = [tuple(path) for path in nodes]
    for depth, chances in enumerate(accuracies, start=1):
        if sum(chances) > 1 + 1e-9:
            what = f"the candidates of depth {depth} are right {sum(chances):g} times in one"
            raise RooflmError(what, "--accuracies", "They add up to at most 1.")
    for path in paths:
        name = ",".join(map(str, path))
        if path[:-1] and path[:-1] not in paths:
            raise RooflmError(f"node {name} has no parent", "--tree")
        if paths.count(path) > 1:
            raise RooflmError(f"node {name} is there twice", "--tree")
        known = [len(chances) for chances in accuracies]
        if len(path) > len(known) or any(r >= n for r, n in zip(path, known, strict=False)):
            fix = "Give each depth an accuracy for each rank: 0.6,0.15;0.5,0.1."
            raise RooflmError(f"node {name} has no accuracy", "--accuracies", fix)
    depths = max(map(len, paths))
    parents = [{path[:-1] for path in paths if len(path) == depth + 1} for depth in range(depths)]
    tokens = float(expected_tree_tokens(paths, accuracies))
    return Proposal(tuple(map(len, parents)), len(paths), tokens, len(paths))


@dataclass(frozen=True)
class Draft:
    """What proposes tokens, beside a target on the same devices."""

    name: str
    first: Case | None = None
    """Case of the first draft pass of a round; None where no model runs."""
    further: Case | None = None
    """Case of those after it."""
    shared: tuple[str, ...] = ()
    """Operators whose weights are the target's own."""
    heads: int = 0
    """Medusa heads, which all run once a round [1]."""
    told: tuple[str, ...] = ()
    """What it is, in sentences."""

    @property
    def parameters(self) -> Q:
        """Weights that it adds to the target's [parameters]."""
        if self.first is None:
            return 0
        model = self.first.model
        if self.heads:
            return medusa_parameters(model.D, model.V, self.heads)
        return total(n * t.parameters for n, t in tensors(model) if t.op not in self.shared)


def _same(model: Model) -> Model:
    return model


def beside(
    target: Case,
    draft: Case,
    tp: int | None = None,
    own: Callable[[Model], Model] = _same,
) -> Case:
    """Put a draft on the devices of a target: its replicas, and tp ranks of each group.

    tp: ranks that split the draft, at most the target's; as many if None; own: puts the matrices
    that are given as one number to what a rank holds. Experts and cache tokens of a draft are not
    dealt out.
    """
    draft = replace(draft, model=own(draft.model))
    layout = target.layout
    if layout is None:
        return replace(draft, links=target.links)
    ways = layout.tp if tp is None else tp
    if layout.tp % ways:
        what = f"{ways} ranks of a draft are no part of {layout.tp}"
        raise RooflmError(what, "--draft-tp", "Take a divisor.")
    spread = Layout(replicas=layout.replicas, dp=layout.dp, tp=ways)
    if spread.devices == 1:
        return draft
    try:
        ranks = shard(draft.model, spread)
        ranks = tuple(replace(rank, model=own(rank.model)) for rank in ranks)
        return replace(draft, ranks=ranks, links=target.links)
    except RooflmError as e:
        raise RooflmError(f"the draft: {e.what}", "--draft-tp", e.fix) from None


def model_draft(target: Case, draft: Case, tp: int | None) -> Draft:
    """Let another model draft, with weights and a cache of its own."""
    if draft.model.denoises:
        raise RooflmError(f"{draft.model.name} denoises", "--draft", "Draft with a decoder.")
    told = [f"the draft: {formats_told(draft.precision)}, cache {draft.precision.cache.name}"]
    if draft.model.V != target.model.V:
        said = f"{draft.model.V:,} tokens are not the target's {target.model.V:,}: one tokenizer?"
        told.append(f"vocabularies differ ({said})")
    case = beside(target, draft, tp)
    return Draft(draft.model.name, case, case, told=tuple(told))


def head_draft(target: Case, kind: str, number: int | None, tp: int | None, precise: Any) -> Draft:
    """Let a head on the target draft.

    kind: eagle, eagle3, medusa, mtp or ngram; number: Medusa heads, or rows of EAGLE-3's output
    head; tp: ranks that split it; precise: formats of the head, None for those of the target.
    """
    if kind == "ngram":
        return Draft("ngram", told=("ngram: tokens are looked up in the prompt, which is free",))
    whole = replace(target, ranks=(), rank=None, precision=precise or target.precision)
    model = whole.model
    if model.residual is not None:
        what = f"what surrounds the layers of {model.name} is not known of its heads"
        raise RooflmError(what, "--draft", "Describe the head as a model in a YAML file.")
    if kind == "medusa":
        heads = 5 if number is None else number
        if heads > MOST_HEADS:
            what = f"{heads:,} heads are more than {MOST_HEADS}"
            raise RooflmError(what, "--draft", "Is it a slip?")
        case = beside(target, whole, tp)
        told = (
            f"medusa: {heads} heads of a residual block and a matrix over the vocabulary, 16 bits"
        )
        return Draft(f"medusa:{heads}", case, case, heads=heads, told=(told,))
    own: tuple[Callable[[Model], Model], ...] = (_same, _same)
    if kind == "mtp":
        head = prediction_module(model)
        shared, told = TABLES, "a projection of two vectors and one layer"
    else:
        layer = _plain_layer(model)
        if kind == "eagle":
            head = eagle(model, layer)
            shared = TABLES
            told = "a projection of two vectors, one layer of the target's shape"
        else:
            rows = EAGLE3_VOCABULARY if number is None else number
            head = eagle3(model, layer, rows)
            own = (_fused, _wider)
            shared = ("embedding",)
            told = (
                "a projection of three vectors once a round, one layer of the target's shape that "
                f"reads two, {rows:,} tokens of its own"
            )
    cases = [beside(target, replace(whole, model=head), tp, of_pass) for of_pass in own]
    also = "; embedding and head are the target's" if len(shared) > 1 else ""
    said = f"{kind}: {told}{also}; {formats_told(whole.precision)}"
    return Draft(kind, *cases, shared=shared, told=(said,))


def _wider(model: Model) -> Model:
    """Let the attention of EAGLE-3 read two vectors: as many weights of q, k and v once more."""
    (group,), D = model.groups, model.D
    mixer = group.mixer
    if not isinstance(mixer, Attention):
        raise TypeError(mixer)
    own = D * (mixer.N + 2 * mixer.K) * mixer.H
    return replace(model, groups=(replace(group, own=own),))


def _fused(model: Model) -> Model:
    """Put the matrix before it that fuses three vectors, whole on each rank."""
    wider = _wider(model)
    (group,) = wider.groups
    return replace(wider, groups=(replace(group, own=group.own + 3 * model.D * model.D),))


def _plain_layer(model: Model) -> Group:
    """Find a dense layer with attention, which EAGLE heads are shaped like."""
    for group in model.groups:
        if group.mixer.kind == "full" and isinstance(group.ffn, MLP):
            return group
    what = (
        f"{model.name} has no dense layer with full attention, so that a head's shape is not known"
    )
    raise RooflmError(what, "--draft", "Describe the head as a model in a YAML file.")


def _headed(model: Model, layer: Group, own: Q, norms: Q, **changes: Any) -> Model:
    group = replace(layer, count=1, copies=None, own=own, norms=norms, name="", hosted=0)
    usual: dict[str, Any] = {"final_norm": False, "tied": False, "positions": 0, "extras": ()}
    return replace(model, groups=(group,), **(usual | changes))


def eagle(model: Model, layer: Group) -> Model:
    """Make an EAGLE head: 2D x D, then a layer without a norm before its attention."""
    return _headed(model, layer, own=2 * model.D * model.D, norms=1)


def eagle3(model: Model, layer: Group, rows: int) -> Model:
    """Make the layer of an EAGLE-3 head, with an output head of its own.

    rows: tokens that it knows [1]. What reads two vectors, and fuses three in the first pass, is
    put to it on each rank.
    """
    return _headed(model, layer, own=0, norms=3, final_norm=True, V=rows)


def prediction_module(model: Model) -> Model:
    """Make the module of multi-token prediction that a checkpoint holds.

    2D x D, norms of both, and one layer of the model: the one whose weights add up to those that
    the checkpoint's parts tell, with or without copies of embedding and head, and but for the
    biases of a router. Raises `RooflmError` where none does.
    """
    held = dict(model.extras).get("mtp")
    if held is None:
        what = f"no module of multi-token prediction of {model.name} is known"
        raise RooflmError(what, "--draft", "Draft with eagle, medusa:5 or a model.")
    tables = 2 * model.V * model.D
    for group in reversed(model.groups):
        norms = group.norms + 2
        made = _headed(model, group, own=2 * model.D * model.D, norms=norms, final_norm=True)
        number = total(n * t.parameters for n, t in tensors(made) if t.op not in TABLES)
        biases = group.ffn.E if isinstance(group.ffn, Experts) else 0
        if any(0 <= held - number - copies <= biases for copies in (0, tables)):
            return made
    what = f"the module of {model.name} has {held:,} weights, and no layer of it makes as many"
    raise RooflmError(what, "--draft", "Describe it as a model in a YAML file.")


def draft_passes(
    draft: Draft, B: Q, S: int, proposal: Proposal
) -> list[tuple[Case, list[Segment]]]:
    """List the draft passes of a round: for each, whose it is and what it computes.

    B: sequences [1]; S: context of the decode step that the round replaces [tokens].
    """
    if draft.first is None or draft.further is None or draft.heads:
        return []
    passes: list[tuple[Case, list[Segment]]] = []
    cached = S - 1
    for i, rows in enumerate(proposal.steps):
        case = draft.first if i == 0 else draft.further
        passes.append((case, [Segment(B, rows, cached, head_rows=rows)]))
        cached += rows
    return passes


def _running(case: Case, B: Q) -> Q:
    """Sequences of a pass of the fullest rank [1]."""
    return B if case.layout is None else case.layout.running(B)


def medusa_operator(draft: Draft, B: Q, case: Case) -> Operator:
    """Describe what all Medusa heads of a rank compute for the last token of each sequence."""
    model, b = case.model, case.precision.activations.bytes
    rows = _running(case, B)
    weights = medusa_parameters(model.D, model.V, draft.heads)
    return Operator(
        name="medusa heads",
        part="head",
        count=1,
        flops=matmul_flops(rows, weights, 1),
        weight_bytes=b * weights,
        activation_bytes=draft.heads * (b * model.D + 4 * model.V) * rows,
        live_bytes=draft.heads * 4 * model.V * rows,
    )


def draft_memory(draft: Draft, B: int, S: int, proposal: Proposal) -> dict[str, Q]:
    """What a draft holds beside the target on the fullest device, by kind [B].

    Recurrent drafts hold a state for each position of a round.
    """
    if draft.first is None:
        return {"draft_weights_bytes": 0, "draft_cache_bytes": 0}
    if draft.heads:
        case = draft.first.members[0]
        return {
            "draft_weights_bytes": medusa_operator(draft, B, case).weight_bytes,
            "draft_cache_bytes": 0,
        }
    # The first pass has all weights; the cache holds what the whole round leaves.
    steps = sum(proposal.steps)
    segments = [Segment(B, max(1, steps), S - 1)]
    case = fullest(draft.first, segments)
    kinds = memory(case, segments, case.ledger(segments))
    held = total(
        n * tensor_bytes(t, case.precision)
        for n, t in tensors(case.model)
        if t.op not in draft.shared
    )
    states = 1 + len(proposal.steps)
    return {
        "draft_weights_bytes": held,
        "draft_cache_bytes": kinds["kv_cache_bytes"] + states * kinds.get("state_bytes", 0),
    }


def state_operator(case: Case, B: Q, drafted: int) -> Operator | None:
    """Describe the states that a verification writes for each drafted position; None without any.

    A rejected token takes its state back only if the one before it was kept: engines hold one a
    position (vLLM, MambaSpec.num_speculative_blocks). None where nothing was drafted either.
    """
    held = sequence_state_bytes(case.model, case.precision)
    if not drafted or not held:
        return None
    return Operator(
        name="states of drafted positions",
        part="recurrence",
        count=1,
        write_bytes=drafted * _running(case, B) * held,
    )


def check_target(target: Case) -> None:
    """Refuse targets and layouts for which a round is not modelled."""
    if target.model.denoises:
        what = f"{target.model.name} denoises: it has no next token to draft"
        raise RooflmError(what, "TARGET")
    if target.lecture:
        raise RooflmError("the lecture's accounting has no verification", "--accounting")
    if target.stages > 1:
        fix = "Leave --pp out."
        raise RooflmError("speculation through stages of a pipeline is not modelled", "--pp", fix)
    if target.offloads:
        raise RooflmError("speculation with layers in host memory is not modelled", "--gpu-layers")


def parameters_told(draft: Draft, target: Model) -> str:
    """Say how large a draft is beside its target."""
    if draft.first is None:
        return f"the draft adds no weights to the {total_parameters(target):,} of the target"
    share = draft.parameters / total_parameters(target)
    return f"the draft adds {draft.parameters:,} parameters, {100 * share:.3g} % of the target's"
