"""A model without hardware: groups of equal layers, an embedding, a head."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from .attention import Attention
from .errors import RooflmError
from .experts import Experts, NoFeedForward
from .formats import Format
from .matmul import matmul_flops
from .mixers import Mixer
from .mlp import MLP
from .passes import BF16, Operator, Precision, Routing, Segment
from .readings import Q, formula, is_zero, minimum, total
from .state import Kept
from .weights import Tensor, vector

if TYPE_CHECKING:
    from .adapters import Adapters
    from .residual import Residual
    from .rwkv import ChannelMix

Norm = Literal["rms", "layer", "layer-no-bias", "none"]
NORM_WEIGHTS: dict[Norm, int] = {"rms": 1, "layer": 2, "layer-no-bias": 1, "none": 0}
"""Weights of a norm per channel: LayerNorm has a gain and a bias, RMSNorm a gain."""

FeedForward: TypeAlias = "MLP | Experts | NoFeedForward | ChannelMix"


@dataclass(frozen=True)
class Group:
    """Equal layers: a mixer and a feed-forward, with block norms around them."""

    count: Q
    mixer: Mixer
    ffn: FeedForward
    norms: Q = 2
    """Block norms of each layer: 1 where attention and MLP share one, 4 for sandwich norms."""
    name: str = ""
    """What tells the group from the others; its letters carry it: K_full, L_window."""
    copies: Q | None = None
    """Sets of weights that the layers share; each layer has its own if None."""
    own: Q = 0
    """Weights of further matrices of each layer beside shared ones: adapters, projections."""
    hosted: Q = 0
    """Layers whose weights, cache and state are in host memory."""

    @property
    def stored(self) -> Q:
        """Sets of weights of the layers [1]."""
        return self.count if self.copies is None else self.copies


@dataclass(frozen=True)
class Model:
    """A decoder-only language model in the letters of the scaling book."""

    name: str
    D: Q
    V: Q
    groups: tuple[Group, ...]
    norm: Norm = "rms"
    final_norm: bool = True
    tied: bool = False
    """The output head is the input embedding."""
    positions: Q = 0
    """Rows of a learned position table [1]."""
    embedding_width: Q | None = None
    """Width of the embedding where it is not D; projections lead in and out."""
    head_bias: bool = False
    parallel: bool = False
    """Attention and MLP of a layer read the same input and are added together."""
    max_context: int | None = None
    """Longest context that the model was trained or extended for [tokens]."""
    source: str = ""
    provenance: tuple[tuple[str, str, str], ...] = ()
    """Where each field came from: name, value, and the key, derivation or class default."""
    tables_hosted: bool = False
    """Tables that rows are gathered from are in host memory."""
    adapters: Adapters | None = None
    """Low-rank adapters beside the weights, which count as no parameters of the model."""
    residual: Residual | None = None
    """What surrounds the layers: hyper-connections, embeddings of each layer."""
    extras: tuple[tuple[str, int], ...] = ()
    """Parts that a checkpoint may hold beside the decoder, and their parameters."""
    denoises: bool = False
    """A diffusion model: each pass computes a sequence both ways and keeps nothing."""
    reference_repeats_heads: bool = False
    """The reference implementation caches keys and values of every query head."""
    weights_format: str | None = None
    """Format of the weights that the model's file tells, as `--weights` takes it."""
    published: str | None = None
    """Format of the weights of the published checkpoint that the preset tells, in the same words;
    None where it has 16 bits."""
    states_format: str | None = None
    """Format of recurrent states that the model's file tells engines to take."""
    weights_unknown: str = ""
    """What the file tells of formats that is not understood, so that `--weights` has to."""
    file_bytes: int | None = None
    """Bytes of the weights in the file that the model was read from [B]."""
    file_parameters: int | None = None
    """Numbers in the weight files beside a config, where their formats tell [parameters]."""

    @property
    def reference_kv_elements(self) -> Q | None:
        """Cache elements of a token that the reference allocates, where it is not the need."""
        if not self.reference_repeats_heads:
            held = total(g.count * g.mixer.reference_token_elements for g in self.groups)
            return None if held == token_elements(self) else held
        full = ((g.count, g.mixer) for g in self.groups)
        return total(count * 2 * m.N * m.H for count, m in full if isinstance(m, Attention))

    @property
    def layers(self) -> Q:
        """Layers, L [1]."""
        return total(g.count for g in self.groups)


@formula
def embedding_parameters(V: Q, D: Q) -> Q:
    """Weights of an embedding or of an output head: VD.

    V: vocabulary [1]; D: width [1]. Returns [parameters].

    >>> embedding_parameters(32000, 5120)
    163840000
    """
    return V * D


@formula
def embedding_read_bytes(rows: Q, V: Q, D: Q, b: Q = 2) -> Q:
    """Bytes that the input embedding reads: a gather of one row a token, at most the table.

    rows: tokens of the pass, BT [1]; V: rows of the table [1]; D: width [1]; b: bytes per weight
    [B]. Returns [B]. Reading the whole table instead overstates a Llama-3-8B step by 7 %.

    >>> embedding_read_bytes(8, 128256, 4096)
    65536
    """
    return minimum(rows, V) * D * b


def layer_tensors(model: Model, group: Group) -> Iterator[Tensor]:
    """List the weights that one layer of a group uses; only those of `own` are never shared."""
    yield vector("norms", "norms", NORM_WEIGHTS[model.norm] * model.D * group.norms)
    yield from group.mixer.tensors(model.D)
    yield from group.ffn.tensors(model.D)
    if not is_zero(group.own):
        yield Tensor("own", "own", group.own, 1)


def tensors(model: Model) -> Iterator[tuple[Q, Tensor]]:
    """List the weights of a model, each with how many layers hold such.

    A tied head is left out: its table is the embedding. Buffers that are not trained (rotary
    tables, masks) are left out as well.
    """
    D, V = model.D, model.V
    E = D if model.embedding_width is None else model.embedding_width
    width = NORM_WEIGHTS[model.norm] * D
    yield 1, Tensor("embedding", "embedding", E, V, name="token_embd")
    if not model.tied:
        yield 1, Tensor("head", "head", E, V, name="output")
    if model.head_bias:
        yield 1, vector("head", "head", V)
    if model.final_norm:
        yield 1, vector("final norm", "norms", width)
    if not is_zero(model.positions):
        yield 1, Tensor("embedding", "positions", D, model.positions)
    if model.embedding_width is not None:
        yield 1, Tensor("project in", "projections", E, D)
        yield 1, Tensor("project out", "projections", D, E)
    for group in model.groups:
        for tensor in layer_tensors(model, group):
            yield (group.count if tensor.op == "own" else group.stored), tensor
    if model.residual is not None:
        yield from ((1, t) for t in model.residual.tensors(D, model.layers))


def parameters(model: Model) -> dict[str, Q]:
    """Count the parameters of a model by part; parts that it lacks are absent.

    Returns a dict of part name to [parameters]; `sum` of it is the total. A tied head is 0.
    """
    parts: dict[str, Q] = {"embedding": 0, "head": 0, "norms": 0}
    for times, tensor in tensors(model):
        number = tensor.parameters
        if not is_zero(number):
            parts[tensor.part] = parts.get(tensor.part, 0) + times * number
    return parts


def total_parameters(model: Model, norms: bool = True) -> Q:
    """Add up the parameters of a model [parameters]; `norms=False` is the lecture's count."""
    parts = parameters(model)
    return sum(n for part, n in parts.items() if norms or part not in ("norms", "qk_norm"))


def check_both_ways(model: Model) -> None:
    """Refuse layers that do not see everything: what both ways means there is not modelled."""
    for group in model.groups:
        kind = group.mixer.kind
        if kind not in ("full", "mla"):
            what = f"diffusion over layers of kind {kind} is not modelled"
            raise RooflmError(what, "", "Take a model whose layers all see everything.")


def has_experts(model: Model) -> bool:
    """Tell whether any layer has experts."""
    return any(isinstance(g.ffn, Experts) for g in model.groups)


def chunk_lengths(model: Model) -> set[Q]:
    """List the different chunks of the layers that do not look out of one [tokens].

    Blocks of keys are such chunks as well: of the last one a query sees what is there of it.
    """
    mixers = [g.mixer for g in model.groups if isinstance(g.mixer, Attention)]
    found = {m.chunk for m in mixers if m.chunk is not None}
    if any(m.kind == "full+indexer" for m in mixers):
        from .sparse import SparseAttention

        found |= {m.block for m in mixers if isinstance(m, SparseAttention)}
    return found


def entry_lengths(model: Model) -> set[Q]:
    """List the numbers of tokens that a compressed entry stands for, where layers have such."""
    if not any(g.mixer.kind in ("csa", "hca") for g in model.groups):
        return set()
    from .compressed import Compressed

    mixers = [g.mixer for g in model.groups]
    return {m.m for m in mixers if isinstance(m, Compressed) and not is_zero(m.m)}


def idle_parameters(model: Model) -> Q:
    """Count the parameters of the experts that a token does not choose [parameters]."""
    return total(
        g.count * g.ffn.idle_parameters(model.D) for g in model.groups if isinstance(g.ffn, Experts)
    )


def active_parameters(model: Model) -> Q:
    """Count the parameters that one token uses, embeddings included [parameters].

    All but the experts that it does not choose.
    """
    return total_parameters(model) - idle_parameters(model)


def streamed_parameters(model: Model) -> Q:
    """Count the parameters that a decode step at batch 1 reads [parameters].

    The active ones without the tables of embeddings and positions, which are gathered from, a row
    a token, unless the embedding is the head as well. Weights that layers share count once.
    """
    parts = parameters(model)
    gathered = total(parts.get(part, 0) for part in gathered_parts(model))
    return active_parameters(model) - gathered


def gathered_parts(model: Model) -> list[str]:
    """Name the parts that are tables to gather rows from, and not streamed."""
    return ["positions", "layer_embeddings", *([] if model.tied else ["embedding"])]


def untouched_parameters(model: Model, rows: Q, routing: Routing) -> Q:
    """Count the parameters of the experts that no token of a pass chooses [parameters].

    rows: tokens of the pass [1]; routing: how they choose. An expectation, 0 without experts.
    """
    return total(
        g.count * g.ffn.untouched_parameters(model.D, rows, routing)
        for g in model.groups
        if isinstance(g.ffn, Experts)
    )


def cache_elements(model: Model, S: Q) -> Q:
    """Count the cache elements of one sequence of S tokens, all layers [elements]."""
    return total(g.count * g.mixer.cache_elements(S) for g in model.groups)


def cache_bytes(model: Model, S: Q, precision: Precision) -> Q:
    """Bytes that the cache of one sequence of S tokens takes, scales included, all layers [B]."""
    return total(g.count * g.mixer.cache_bytes(S, precision) for g in model.groups)


def token_bytes(model: Model, precision: Precision) -> Q:
    """Bytes that a token of a short context takes in the cache of all layers [B]."""
    return total(g.count * g.mixer.token_bytes(precision) for g in model.groups)


def token_elements(model: Model) -> Q:
    """Count the cache elements that a token of a short context takes in all layers."""
    return total(g.count * g.mixer.token_elements for g in model.groups)


def growing_elements(model: Model) -> Q:
    """Count the elements that a further token adds to a sequence beyond all windows."""
    return total(g.count * g.mixer.growing_elements for g in model.groups)


def growing_bytes(model: Model, precision: Precision) -> Q:
    """Bytes that a further token adds to a sequence beyond all windows [B]."""
    return total(g.count * g.mixer.growing_bytes(precision) for g in model.groups)


def state_elements(model: Model, reference: bool = False) -> Q:
    """Count the elements that a sequence needs whatever its length, all layers [elements].

    reference: what the reference implementation keeps of it instead.
    """
    return total(g.count * kept.elements for g, kept in _states(model, reference))


def sequence_state_bytes(model: Model, precision: Precision, reference: bool = False) -> Q:
    """Bytes that a sequence needs whatever its length, all layers [B]."""
    return total(g.count * kept.bytes(precision) for g, kept in _states(model, reference))


def _states(model: Model, reference: bool) -> list[tuple[Group, Kept]]:
    return [(g, g.mixer.reference_state if reference else g.mixer.state) for g in model.groups]


def ledger(
    model: Model, segments: Sequence[Segment], precision: Precision = BF16
) -> list[Operator]:
    """List the operators that a pass executes, in order of execution.

    model: dimensions as numbers, arrays or symbols; segments: the pass; precision: number formats
    (bf16 throughout unless given). Norms, rotary embedding, softmax and sampling have bytes or
    none, and no FLOPs.
    """
    return list(_operators(model, segments, precision))


def _operators(
    model: Model, segments: Sequence[Segment], precision: Precision
) -> Iterator[Operator]:
    D, V = model.D, model.V
    E = D if model.embedding_width is None else model.embedding_width
    b_x = precision.activations.bytes
    rows = total(s.rows for s in segments)
    head_rows = total(s.sequences * s.head_rows for s in segments if not is_zero(s.head_rows))
    norm_bytes = b_x * NORM_WEIGHTS[model.norm] * D

    # A row of the table is a column of its matrix.
    table = precision.format_of("embedding", name="token_embd")
    gathered = minimum(rows, V) * table.matrix_bytes(E, 1)
    if not is_zero(model.positions):
        # Equal sequences stand at equal positions: their rows are the same.
        places = total(s.new for s in segments)
        positions = embedding_read_bytes(places, model.positions, D, b_x)
        if model.tables_hosted and model.tied:
            # The embedding is the head, on the device: this table alone is in host memory.
            yield Operator("positions", "embedding", 1, weight_bytes=positions, hosted=True)
        else:
            gathered = gathered + positions
    yield Operator(
        name="embedding",
        part="embedding",
        count=1,
        weight_bytes=gathered,
        activation_bytes=b_x * E * rows,
        live_bytes=b_x * E * rows,
        hosted=model.tables_hosted and not model.tied,
    )
    if model.embedding_width is not None:
        yield _projection("project in", rows, E, D, precision)
    if model.residual is not None:
        yield from model.residual.operators(D, model.layers, segments, precision)
    for group, name in zip(model.groups, group_names(model), strict=True):
        for op in _group_operators(model, group, segments, precision):
            yield replace(op, name=f"{op.name} {name}") if name else op
    if is_zero(head_rows):
        return
    if model.final_norm and model.norm != "none":
        yield Operator(
            name="final norm",
            part="norms",
            count=1,
            weight_bytes=norm_bytes,
            activation_bytes=2 * b_x * D * head_rows,
            live_bytes=2 * b_x * D * head_rows,
        )
    if model.embedding_width is not None:
        yield _projection("project out", head_rows, D, E, precision)
    yield Operator(
        name="head",
        part="head",
        count=1,
        flops=matmul_flops(head_rows, E, V),
        compute=precision.compute_of("embedding" if model.tied else "head"),
        weight_bytes=_head_format(model, precision).matrix_bytes(E, V)
        + (b_x * V if model.head_bias else 0),
        activation_bytes=(b_x * E + 4 * V) * head_rows,
        # Logits are sampled in fp32.
        live_bytes=(b_x * E + 4 * V) * head_rows,
    )


def _head_format(model: Model, precision: Precision) -> Format:
    """Tell the format of the head, which is that of the embedding where it is the same table."""
    if model.tied:
        return precision.format_of("embedding", name="token_embd")
    return precision.format_of("head", name="output")


def _group_operators(
    model: Model, group: Group, segments: Sequence[Segment], precision: Precision
) -> Iterator[Operator]:
    """List what the layers of a group execute, those in host memory apart."""
    if is_zero(group.hosted):
        yield from _layer_operators(model, group, segments, precision)
        return
    here = replace(group, count=group.count - group.hosted)
    if not is_zero(here.count):
        yield from _layer_operators(model, here, segments, precision)
    away = replace(group, count=group.hosted)
    for op in _layer_operators(model, away, segments, precision):
        yield replace(op, name=f"{op.name} from host", hosted=True)


def _layer_operators(
    model: Model, group: Group, segments: Sequence[Segment], precision: Precision
) -> Iterator[Operator]:
    """List what the layers of a group execute."""
    D = model.D
    if model.norm != "none" and not is_zero(group.norms):
        b_x = precision.activations.bytes
        moved = 2 * b_x * D * total(s.rows for s in segments)
        yield Operator(
            name="norms",
            part="norms",
            count=group.count * group.norms,
            weight_bytes=b_x * NORM_WEIGHTS[model.norm] * D,
            activation_bytes=moved,
            live_bytes=moved,
        )
    if not is_zero(group.own):
        rows = total(s.rows for s in segments)
        b_x, kind = precision.activations.bytes, precision.format_of("own")
        yield Operator(
            name="own",
            part="own",
            count=group.count,
            flops=matmul_flops(rows, group.own, 1),
            compute=precision.compute_of("own"),
            weight_bytes=kind.matrix_bytes(group.own, 1),
            activation_bytes=2 * b_x * D * rows,
            live_bytes=2 * b_x * D * rows,
        )
    yield from group.mixer.operators(D, group.count, segments, precision)
    yield from group.ffn.operators(D, group.count, segments, precision)
    if model.adapters is not None:
        from .adapters import operators

        yield from operators(model, group, segments, precision)


def _projection(name: str, rows: Q, D: Q, F: Q, precision: Precision) -> Operator:
    b_x = precision.activations.bytes
    return Operator(
        name=name,
        part="embedding",
        count=1,
        flops=matmul_flops(rows, D, F),
        weight_bytes=b_x * D * F,
        activation_bytes=b_x * (D + F) * rows,
        live_bytes=b_x * (D + F) * rows,
    )


def group_names(model: Model) -> list[str]:
    """Name the groups, each differently; the only one of a model needs no name."""
    if len(model.groups) == 1:
        return [""]
    names: list[str] = []
    for i, group in enumerate(model.groups, start=1):
        name = group.name or group.mixer.kind
        names.append(name if name not in names else f"{name}{i}")
    return names
