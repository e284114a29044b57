"""Layouts over several devices: a rewrite of the model into what each rank holds of it.

Nothing is counted here. Query heads, MLP columns and the vocabulary are divided; key/value heads
are while there are any, then copied; latents, indexers, routers, norms and hyper-connections are on
every rank. Sources: arXiv 1909.08053 (Megatron); docs.vllm.ai, serving/parallelism_scaling,
expert_parallel_deployment and data_parallel_deployment; docs.sglang.io, advanced_features/dcp.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

from .attention import Attention
from .collectives import shared_heads
from .errors import RooflmError, either
from .experts import Experts
from .model import Group, Model, cache_elements, ledger, total_parameters
from .passes import BF16, Operator, Precision, Segment

VOCABULARY_ROWS = 64
"""Rows of the vocabulary on a rank are a multiple of this: vLLM, vocab_parallel_embedding.py."""

DIVIDED: dict[str, dict[str, str]] = {
    "Attention": {"N": "query heads"},
    "SparseAttention": {"N": "query heads"},
    "MLA": {"N": "query heads"},
    "SparseMLA": {"N": "query heads"},
    "Compressed": {"N": "query heads"},
    "Mamba": {"d": "inner channels"},
    "Mamba2": {"heads": "heads of the state"},
    "LinearAttention": {"heads": "heads of the state"},
    "DeltaNet": {"value_heads": "heads of the state"},
    "MLSTM": {"heads": "heads of the state"},
    "RWKV4": {"A": "inner channels"},
    "RGLRU": {"width": "inner channels", "blocks": "blocks of the gates"},
    "ShortConv": {"D": "channels of the convolution"},
    "MLP": {"F": "MLP columns"},
    "ChannelMix": {"F": "MLP columns"},
    "NoMixer": {},
    "NoFeedForward": {},
}
"""Fields of each kind of layer that tensor parallelism divides, and what they are."""

SHARED = {
    "Attention": "K", "SparseAttention": "K", "Compressed": "groups", "Mamba2": "groups",
    "DeltaNet": "key_heads",
}  # fmt: skip
"""Fields that are divided as long as each rank gets one, and copied beyond."""


@dataclass(frozen=True)
class Layout:
    """How a deployment uses its devices: replicas * dp * pp * tp of them.

    Context and expert parallelism take no devices of their own, as in vLLM and SGLang: cp lies
    within the tp ranks, ep over the dp * tp ranks of a stage.
    """

    replicas: int = 1
    """Copies of everything, each with its share of the sequences."""
    tp: int = 1
    """Ranks that split every layer."""
    pp: int = 1
    """Stages that split the layers."""
    ep: int = 1
    """Sets that the experts are dealt out to; ranks that are left split each expert."""
    dp: int = 1
    """Groups with sequences of their own, whose experts are one set."""
    cp: int = 1
    """Parts that the tokens of a cache are dealt out to."""

    def __post_init__(self) -> None:
        for axis in ("replicas", "tp", "pp", "ep", "dp", "cp"):
            ways = cast("int", getattr(self, axis))
            if ways < 1:
                raise RooflmError(f"{ways} is no number of ranks", f"--{axis}", "Give 1 or more.")
        for axis, ways, ranks, name in (
            ("ep", self.ep, self.stage_ranks, "dp * tp"),
            ("cp", self.cp, self.tp, "tp"),
        ):
            if ranks % ways:
                what = f"{ways} ways do not divide the {ranks} ranks of {name}"
                raise RooflmError(what, f"--{axis}", _possible(_divisors(ranks)))

    @property
    def devices(self) -> int:
        """Devices of the deployment [1]."""
        return self.replicas * self.pp * self.stage_ranks

    @property
    def stage_ranks(self) -> int:
        """Ranks of a stage of a replica [1]."""
        return self.dp * self.tp

    @property
    def expert_tp(self) -> int:
        """Ranks that split each expert [1]."""
        return self.stage_ranks // self.ep

    def resident(self, sequences: int) -> int:
        """Sequences whose cache the fullest rank holds [1]."""
        return -(-sequences // (self.replicas * self.dp))

    def running(self, sequences: int) -> int:
        """Sequences of a pass of the fullest rank: one of pp micro-batches [1]."""
        return -(-self.resident(sequences) // self.pp)

    def together(self, sequences: int) -> int:
        """Sequences of a pass of all dp groups of the fullest replica [1]."""
        return -(-sequences // (self.replicas * self.pp))


@dataclass(frozen=True)
class Rank:
    """What equal ranks hold, as a model of its own.

    A first stage has no head, a last one has the head in the place of the embedding.
    """

    model: Model
    count: int
    """Ranks of the deployment that are alike [1]."""
    first: bool
    last: bool
    layout: Layout

    def cache_elements(self, S: int) -> int:
        """Cache elements of one sequence of S tokens: the fullest of cp parts [elements]."""
        return math.ceil(cache_elements(self.model, S) / self.layout.cp)

    def segments(self, segments: Sequence[Segment]) -> list[Segment]:
        """What the rank computes of a pass of the whole deployment."""
        return [
            replace(
                s,
                sequences=self.layout.running(s.sequences),
                head_rows=s.head_rows if self.last else 0,
            )
            for s in segments
        ]


def shard(model: Model, layout: Layout) -> list[Rank]:
    """List the different ranks of a deployment, in the order of stages and experts.

    model: dimensions as integers; layout: how it is spread. Layers have no order in a model: each
    stage gets its share of every group. What remains goes to the first stages, the heaviest layers
    first, so that stages differ by at most one layer. Raises `RooflmError` where it cannot be.
    """
    check(model, layout)
    alike: dict[tuple[Model, bool, bool], int] = {}
    split = _split_model(model, layout)
    sizes = [g.ffn.E for g in model.groups if isinstance(g.ffn, Experts)]
    # Sets of experts below a remainder hold one more.
    turns = sorted({0, layout.ep, *(E % layout.ep for E in sizes)})
    for stage, counts in enumerate(_stage_counts(model, layout.pp)):
        first, last = stage == 0, stage == layout.pp - 1
        held = _stage(split, counts, first, last)
        for low, high in pairwise(turns):
            key = (_dealt(held, low, layout.ep), first, last)
            ranks = layout.replicas * (high - low) * layout.expert_tp
            alike[key] = alike.get(key, 0) + ranks
    return [Rank(m, n, first, last, layout) for (m, first, last), n in alike.items()]


def fullest(ranks: Iterable[Rank]) -> Rank:
    """Find the rank with the most parameters."""
    return max(ranks, key=lambda r: total_parameters(r.model))


def tp_degrees(model: Model, experts: bool = True) -> list[int]:
    """List the numbers of ranks that can split every layer; experts: whether they are split too."""
    sizes = [size for layer in _layers(model) for size, _ in _sizes(layer)]
    if experts:
        sizes += [layer.F for layer in _layers(model) if isinstance(layer, Experts)]
    known = all(isinstance(x, Experts) or type(x).__name__ in DIVIDED for x in _layers(model))
    return _divisors(math.gcd(*sizes)) if sizes and known else [1]


def check(model: Model, layout: Layout) -> None:
    """Raise `RooflmError`, with the degrees that are possible, where a model cannot be spread."""
    tp, ep, layers = layout.tp, layout.ep, list(_layers(model))
    if layout.pp > model.layers:
        fix = f"Possible: 1 to {model.layers}."
        raise RooflmError(f"{model.layers} layers do not make {layout.pp} stages", "--pp", fix)
    experts = [layer for layer in layers if isinstance(layer, Experts)]
    fewest = min((layer.E for layer in experts), default=1)
    if ep > fewest:
        possible = _possible([n for n in _divisors(layout.stage_ranks) if n <= fewest])
        what = f"{fewest} experts cannot be dealt out to {ep} sets" if experts else "no experts"
        raise RooflmError(what, "--ep", possible)
    possible = f"{_possible(tp_degrees(model, experts=ep == 1))} Or split the layers: --pp {tp}."
    for layer in layers if tp > 1 else []:
        if not isinstance(layer, Experts) and type(layer).__name__ not in DIVIDED:
            kind = getattr(layer, "kind", type(layer).__name__)
            raise RooflmError(f"how ranks split {kind} layers is not known", "--tp", possible)
        for size, what in _sizes(layer):
            if size % tp:
                raise RooflmError(f"{size} {what} cannot be split {tp} ways", "--tp", possible)
    for layer in experts:
        if layer.F % layout.expert_tp:
            what = f"{layer.F} columns of an expert cannot be split {layout.expert_tp} ways"
            raise RooflmError(what, "--ep", f"Deal the experts out: --ep {layout.stage_ranks}.")
    if layout.cp > 1:
        _check_cp(layers, layout)


def _check_cp(layers: list[Any], layout: Layout) -> None:
    """Context parallelism splits the copies that tensor parallelism makes of a key/value head."""
    caching = [x for x in layers if getattr(x, "token_elements", 0)]
    heads = math.lcm(*(x.K if isinstance(x, Attention) else 1 for x in caching))
    copies = layout.tp // heads if caching and layout.tp % heads == 0 else 1
    if copies % layout.cp:
        what = f"{layout.tp} ranks hold {copies} copies of a token, not {layout.cp} to deal out"
        raise RooflmError(what, "--cp", _possible(_divisors(copies)))


def remarks(model: Model, layout: Layout) -> list[str]:
    """Say what a division of the whole by the number of devices would get wrong."""
    tp = layout.tp
    heads = sorted({x.K for x in _layers(model) if isinstance(x, Attention)})
    stored = [(K, tp * shared_heads(K, tp)) for K in heads]
    said = [f"{K} key/value heads are stored as {n} on {tp} ranks" for K, n in stored if n != K]
    if tp > 1 and any(hasattr(layer, "c") for layer in _layers(model)):
        said.append(f"latents and their projections are whole on each of {tp} ranks")
    padded = tp * _vocabulary(model.V, tp)
    if padded != model.V:
        said.append(f"the vocabulary is padded from {model.V:,} to {padded:,} rows")
    if layout.cp > 1:
        said.append(f"each of {layout.cp} ranks holds one token in {layout.cp} of a cache")
    experts = [x for x in _layers(model) if isinstance(x, Experts)]
    if any(x.E % layout.ep for x in experts):
        said.append(f"{layout.ep} sets of experts are not equal: some hold one more")
    if tp > 1 and any(x.shared for x in experts):
        said.append(f"shared experts are split over {tp} ranks, as is a dense MLP")
    if layout.pp > 1 and len(model.groups) > 1:
        said.append("stages take their share of every kind of layer; their order is not known")
    return said


def rank_ledger(
    rank: Rank, segments: Sequence[Segment], precision: Precision = BF16
) -> list[Operator]:
    """List the operators that a rank executes in a pass of the whole deployment.

    Experts see the tokens of all dp groups; of a cache that is dealt out a rank reads and writes
    its part, on average. Scores of an indexer are not divided.
    """
    layout, local = rank.layout, rank.segments(segments)
    operators = ledger(rank.model, local, precision)
    if not rank.first:
        operators = [o for o in operators if o.name not in ("embedding", "project in")]
    if layout.dp > 1:
        together = [
            replace(here, sequences=layout.together(s.sequences))
            for here, s in zip(local, segments, strict=True)
        ]
        seen = {o.name: o for o in ledger(rank.model, together, precision)}
        operators = [seen[o.name] if o.name.startswith("experts ") else o for o in operators]
    if layout.cp > 1:
        operators = [_dealt_tokens(o, layout.cp) for o in operators]
    return operators


def _dealt_tokens(operator: Operator, cp: int) -> Operator:
    if operator.part not in ("attention", "attention projections", "index"):
        return operator
    return replace(
        operator, read_bytes=operator.read_bytes / cp, write_bytes=operator.write_bytes / cp
    )


def parts(mixer: Any) -> tuple[Any, ...]:
    """Take two mixers of one layer apart."""
    return mixer.pair if hasattr(mixer, "pair") else (mixer,)


def _layers(model: Model) -> Iterator[Any]:
    """List mixers and feed-forwards of all kinds of layers."""
    for group in model.groups:
        yield from parts(group.mixer)
        yield group.ffn


def _sizes(layer: Any) -> Iterator[tuple[int, str]]:
    """List what tensor parallelism divides of a layer, and what it is."""
    if isinstance(layer, Experts):
        if layer.shared:
            yield layer.shared, "columns of shared experts"
        return
    for field, what in DIVIDED.get(type(layer).__name__, {}).items():
        yield getattr(layer, field), what


def _split(layer: Any, tp: int) -> Any:
    if hasattr(layer, "pair"):
        return replace(layer, first=_split(layer.first, tp), second=_split(layer.second, tp))
    name = type(layer).__name__
    changes = {field: getattr(layer, field) // tp for field in DIVIDED[name]}
    if name in SHARED:
        changes[SHARED[name]] = shared_heads(getattr(layer, SHARED[name]), tp)
    return replace(layer, **changes) if changes else layer


def _split_model(model: Model, layout: Layout) -> Model:
    """Divide the widths of every layer, and the rows of the tables."""
    tp, inside = layout.tp, layout.expert_tp
    groups: list[Group] = []
    for group in model.groups:
        mixer, ffn = group.mixer, group.ffn
        if isinstance(ffn, Experts):
            ffn = replace(ffn, F=ffn.F // inside, shared=ffn.shared // tp)
        elif tp > 1:
            ffn = _split(ffn, tp)
        groups.append(replace(group, mixer=_split(mixer, tp) if tp > 1 else mixer, ffn=ffn))
    residual = model.residual
    if residual is not None and residual.rows:
        residual = replace(residual, rows=_vocabulary(residual.rows, tp))
    split = replace(model, V=_vocabulary(model.V, tp), groups=tuple(groups), residual=residual)
    return (
        split
        if layout == Layout(layout.replicas)
        else replace(split, file_bytes=None, file_parameters=None)
    )


def _vocabulary(rows: int, tp: int) -> int:
    """Rows of a table on each rank; nothing is padded where nothing is split."""
    unit = math.lcm(VOCABULARY_ROWS, tp)
    return rows if tp == 1 else unit * -(-rows // unit) // tp


def _stage_counts(model: Model, stages: int) -> list[list[int]]:
    """Deal out the layers of every group to the stages, what remains by weights and cache alike."""
    counts = [[g.count // stages for g in model.groups] for _ in range(stages)]
    shares = [0.0] * len(model.groups)
    for held in (
        [_layer_parameters(model, g) for g in model.groups],
        [g.mixer.growing_elements for g in model.groups],
    ):
        whole = sum(n * g.count for n, g in zip(held, model.groups, strict=True)) or 1
        shares = [share + n / whole for share, n in zip(shares, held, strict=True)]
    loads = [0.0] * stages
    for i in sorted(range(len(shares)), key=lambda i: -shares[i]):
        for _ in range(model.groups[i].count % stages):
            stage = min(range(stages), key=lambda s: (sum(counts[s]), counts[s][i], loads[s]))
            counts[stage][i] += 1
            loads[stage] += shares[i]
    return counts


def _layer_parameters(model: Model, group: Group) -> int:
    parts = (group.mixer.parameters(model.D), group.ffn.parameters(model.D))
    return sum(number for part in parts for number in part.values())


def _stage(model: Model, counts: Sequence[int], first: bool, last: bool) -> Model:
    """Take the layers of a stage, with the embedding before the first and the head after the last.

    A model has one table or two: the one of a stage at either end counts as an embedding.
    """
    if first and last:
        return model
    groups = tuple(
        replace(g, count=n, copies=None if g.copies is None else min(g.copies, n))
        for g, n in zip(model.groups, counts, strict=True)
        if n
    )
    ends = first or last
    return replace(
        model,
        groups=groups,
        V=model.V if ends else 0,
        tied=True,
        positions=model.positions if first else 0,
        embedding_width=model.embedding_width if ends else None,
        final_norm=model.final_norm and last,
        head_bias=model.head_bias and last,
    )


def _dealt(model: Model, index: int, ep: int) -> Model:
    """Leave the experts of one set: the others are choices that cost this rank nothing."""
    if ep == 1:
        return model
    groups: list[Group] = []
    for group in model.groups:
        ffn = group.ffn
        if isinstance(ffn, Experts):
            held = ffn.E // ep + (1 if index < ffn.E % ep else 0)
            ffn = replace(ffn, E=held, zero=ffn.zero + ffn.E - held)
        groups.append(replace(group, ffn=ffn))
    return replace(model, groups=tuple(groups))


def _divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def _possible(ways: list[int]) -> str:
    return f"Possible: {either([str(w) for w in ways])}."
