"""Low-rank adapters (LoRA) beside the weights: what they hold, what a pass reads and computes.

Sources: arXiv 2106.09685 (LoRA); arXiv 2311.03285 (S-LoRA), several adapters in one batch;
vllm-project/vllm, vllm/lora/layers: on several ranks the factor that a split would sum is whole
on each. Each of the q, k, v, output, gate, up and down matrices has an adapter of its own; a
checkpoint that fuses some of them may have one for all, which is smaller. Adapters that were
merged into the weights cost nothing and are not these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from .attention import Attention
from .errors import RooflmError
from .experts import distinct_experts
from .mlp import MLP
from .passes import Operator, Precision, Segment
from .readings import Q, as_whole, formula, is_zero, maximum, total, widest
from .units import show_gb

if TYPE_CHECKING:
    from .model import Group, Model
    from .weights import Tensor

Targets = Literal["all", "attention"]
ATTENTION = ("attn_q", "attn_k", "attn_v", "attn_output")
MLPS = ("ffn_up", "ffn_down")


@dataclass(frozen=True)
class Adapters:
    """Equal adapters that are held beside the weights of a model."""

    rank: Q
    count: Q = 1
    targets: Targets = "all"


@formula
def adapter_parameters(inputs: Q, outputs: Q, rank: Q) -> Q:
    """Weights of the adapter of a matrix: rank (inputs + outputs).

    inputs, outputs: rows and columns of the matrix [1]; rank: of its change [1]. Returns
    [parameters]. Source: arXiv 2106.09685: W + BA, with A rank x inputs and B outputs x rank.

    >>> 96 * 2 * adapter_parameters(12288, 12288, 8)
    37748736
    """
    return rank * (inputs + outputs)


@formula
def distinct_adapters(sequences: Q, held: Q) -> Q:
    """Different adapters that a pass reads, expected: n(1 - (1 - 1/n)^B), at least one.

    sequences: of the pass, each with one adapter, B [1]; held: adapters that they choose among
    evenly and by themselves, n [1]. Returns [1].

    >>> distinct_adapters(2, 4)
    1.75
    """
    return 1 if held == 1 else maximum(1.0, distinct_experts(sequences, held, 1))


def targeted(group: Group, D: Q, targets: Targets) -> list[Tensor]:
    """List the matrices of one layer that adapters are put on."""
    mixers = [m for m in getattr(group.mixer, "pair", (group.mixer,)) if isinstance(m, Attention)]
    found = [t for m in mixers for t in m.tensors(D) if t.name in ATTENTION]
    if targets == "all" and isinstance(group.ffn, MLP):
        found += [t for t in group.ffn.tensors(D) if t.name in MLPS]
    return found


def layer_parameters(model: Model, group: Group) -> Q:
    """Count the weights of one adapter in a layer of a group [parameters]."""
    own = model.adapters
    if own is None:
        return 0
    return total(
        t.count * adapter_parameters(t.rows, t.columns, own.rank)
        for t in targeted(group, model.D, own.targets)
    )


def parameters_of_one(model: Model) -> Q:
    """Count the weights of one adapter in all layers [parameters]."""
    return total(g.count * layer_parameters(model, g) for g in model.groups)


def adapters_bytes(model: Model, precision: Precision) -> Q:
    """Bytes of all adapters of a model, in the format of activations [B]."""
    held = 0 if model.adapters is None else model.adapters.count
    return as_whole(held * precision.activations.bytes * parameters_of_one(model))


def operators(
    model: Model, group: Group, segments: Sequence[Segment], precision: Precision
) -> Iterator[Operator]:
    """List what the adapters of the layers of a group execute in a pass: both factors of each."""
    own, D, b_x = model.adapters, model.D, precision.activations.bytes
    weights = layer_parameters(model, group)
    if own is None or is_zero(weights):
        return
    rows = total(s.rows for s in segments)
    sequences = total(s.sequences for s in segments)
    read = 1 if precision.routing.fewest else distinct_adapters(sequences, own.count)
    # What a matrix reads, and what it adds its change to, are both there beside the rank's rows.
    live: dict[str, Q] = {}
    moved: Q = 0
    for t in targeted(group, D, own.targets):
        moved += t.count * (t.rows + 2 * own.rank + 2 * t.columns)
        live[t.op] = live.get(t.op, D + t.rows) + t.count * (own.rank + t.columns)
    yield Operator(
        name="adapters",
        part="adapters",
        count=group.count,
        flops=2 * weights * rows,
        weight_bytes=read * (b_x * weights),
        activation_bytes=b_x * moved * rows,
        live_bytes=b_x * widest(live.values()) * rows,
    )


def adapted(model: Model, adapters: Adapters) -> Model:
    """Put adapters beside the weights of a model; raise where it is not known how."""
    if isinstance(adapters.rank, int) and adapters.rank > model.D:
        what = f"a rank of {adapters.rank:,} is above the width of {model.name}, {model.D:,}"
        raise RooflmError(what, "--lora", "Is it a slip?")
    for group in model.groups:
        _check_group(model, group)
    found = replace(model, adapters=adapters)
    if is_zero(parameters_of_one(found)):
        what = f"{model.name} has no matrices that adapters are put on"
        raise RooflmError(what, "--lora", "Leave the option out.")
    return found


def _check_group(model: Model, group: Group) -> None:
    """Refuse layers of which it is not known what their adapters are."""
    for mixer in getattr(group.mixer, "pair", (group.mixer,)):
        one: Any = mixer
        gated = isinstance(one, Attention) and one.gate != "none"
        indexed = isinstance(one, Attention) and type(one) is not Attention
        other = not isinstance(one, Attention) and not is_zero(one.token_elements)
        if gated or indexed or other:
            kind = "gated attention" if gated else f"{one.kind} layers"
            what = f"which adapters {kind} of {model.name} would have is not known"
            raise RooflmError(what, "--lora", "Leave the option out.")
    if group.copies is not None:
        what = f"adapters of layers of {model.name} that share weights are not modelled"
        raise RooflmError(what, "--lora", "Leave the option out.")


def described(model: Model, precision: Precision) -> dict[str, Any]:
    """Describe the adapters of a model by the keys of the contract; nothing without any."""
    own = model.adapters
    if own is None:
        return {}
    about = {
        "rank": own.rank,
        "count": own.count,
        "targets": own.targets,
        "parameters": parameters_of_one(model),
        "bytes": adapters_bytes(model, precision),
    }
    return {"adapters": about}


def told(model: Model, precision: Precision, spread: bool = False) -> list[str]:
    """Say in sentences what adapters are held and read; nothing without any.

    spread: the model is split over ranks.
    """
    own = model.adapters
    if own is None:
        return []
    where = "attention and MLP matrices" if own.targets == "all" else "attention matrices"
    left = "experts, layers with a state, embedding and head have none"
    size = f"{parameters_of_one(model):,} parameters each"
    held = f"{show_gb(adapters_bytes(model, precision))} GB in {precision.activations.name}"
    said = [
        f"adapters: {own.count:,} of rank {own.rank:,} on {where} ({left}): {size}, {held}; a pass "
        "reads those that its sequences choose evenly, floor_s one; merged into the weights an "
        "adapter costs nothing"
    ]
    if spread:
        said.append(
            "adapters on several ranks: A of matrices split by columns and B of those split by "
            "rows are whole on each (vLLM's default)"
        )
    return said
