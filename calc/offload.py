"""Layers whose weights, cache and state are in host memory, and stream over the bus each pass.

Tables that rows are gathered from are there as well, whatever is on the device, as in llama.cpp:
ggml-org/llama.cpp, src/llama-model.cpp (dev_input) and src/llama-arch.cpp (LLM_TENSOR_LAYER_INPUT).
An engine that computes such layers on the host's processor moves activations instead: not this.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from .errors import RooflmError
from .model import Model, cache_bytes, layer_tensors, sequence_state_bytes, tensors
from .passes import Precision, Segment
from .readings import Q, as_whole, is_zero, total
from .sharing import common_bytes, common_once
from .weights import tensor_bytes

if TYPE_CHECKING:
    from .case import Case


def offload(case: Case, layers: int | None, bytes_per_s: float | None) -> Case:
    """Keep some layers on the device and the rest in host memory.

    layers: those on the device beside the head [1]; bytes_per_s: of the bus, one direction; None is
    the PCIe link of the machine, where it has one [B/s]. The embedding is in host memory, but for
    one that is the head as well. Raises `RooflmError` where that is not possible.
    """
    model = case.model
    if layers is None:
        what = "all layers are on the device, so that nothing comes from the host"
        raise RooflmError(what, "--host-link", "Say --gpu-layers as well.")
    if not 0 <= layers <= model.layers:
        what = f"{model.name} has {model.layers} layers, not {layers:,}"
        raise RooflmError(what, "--gpu-layers", f"Possible: 0 to {model.layers}.")
    if case.layout is not None:
        what = "layers in host memory of several devices are not modelled"
        raise RooflmError(what, "--gpu-layers", "Leave out the option, or the layout.")
    if layers == model.layers and not table_bytes(model, case.precision):
        return case
    if model.adapters is not None:
        what = "adapters of layers in host memory are not modelled"
        raise RooflmError(what, "--gpu-layers", "Leave out one of the two options.")
    if any(g.copies is not None for g in model.groups):
        what = f"layers of {model.name} share weights, which are not parted"
        raise RooflmError(what, "--gpu-layers", "Leave the option out.")
    speed = case.machine.links.get("pcie") if bytes_per_s is None else bytes_per_s
    if speed is None:
        what = f"no bus between {case.machine.name} and its host is known"
        fix = "Say --host-link 31.5GB, one direction a second (PCIe 4.0 x16)."
        raise RooflmError(what, "--host-link", fix)
    return replace(case, model=parted(model, layers), host_bytes_per_s=speed)


def parted(model: Model, layers: int) -> Model:
    """Put all but some layers in host memory: of each group its share, as nearly as can be.

    layers: on the device [1]. Layers have no order in a model: the groups take turns, as evenly as
    their counts allow, so that one layer more never takes one of another group away.
    """
    turns = sorted(
        ((2 * turn + 1) / g.count, i) for i, g in enumerate(model.groups) for turn in range(g.count)
    )
    held = Counter(i for _, i in turns[:layers])
    groups = tuple(replace(g, hosted=g.count - held[i]) for i, g in enumerate(model.groups))
    return replace(model, groups=groups, tables_hosted=True)


def resident(model: Model) -> Model:
    """Leave the layers on the device.

    What surrounds the layers is that of all of them.
    """
    return _of(model, [g.count - g.hosted for g in model.groups])


def hosted_bytes(model: Model, segments: Sequence[Segment], precision: Precision) -> Q:
    """Bytes in host memory: weights, cache and state of the layers there [B].

    segments: the pass, whose sequences are all that are held.
    """
    away = _of(model, [g.hosted for g in model.groups])
    state = sequence_state_bytes(away, precision)
    kept = total(_kept(away, s, precision) + s.sequences * state for s in segments)
    return hosted_weights_bytes(model, precision) + kept


def _kept(model: Model, s: Segment, precision: Precision) -> Q:
    """Bytes of the cache of the sequences of a segment, what they share once [B]."""
    each = cache_bytes(model, s.kept, precision)
    if is_zero(s.shared):
        return s.sequences * each
    return common_once(s.sequences, each, common_bytes(model, s.kept, s.shared, precision))


def hosted_weights_bytes(model: Model, precision: Precision) -> Q:
    """Bytes of the weights in host memory: layers, and tables that rows are gathered from [B]."""
    held = total(
        g.hosted * tensor_bytes(tensor, precision)
        for g in model.groups
        for tensor in layer_tensors(model, g)
    )
    return as_whole(held) + (table_bytes(model, precision) if model.tables_hosted else 0)


def table_bytes(model: Model, precision: Precision, first: bool = False) -> Q:
    """Bytes of the tables that llama.cpp keeps in host memory, of all layers or of none there [B].

    Embedding, positions, embeddings of each layer; not an embedding that is the head as well, of
    which llama.cpp has a second copy on the device. first: the model is a first stage, whose table
    is no head. Source: ggml-org/llama.cpp, src/llama-arch.cpp (LLM_TENSOR_POS_EMBD is a tensor of
    the input layer, as LLM_TENSOR_TOKEN_EMBD is).
    """
    gathered = ["layer_embeddings", "positions"]
    if first or not model.tied:
        gathered.append("embedding")
    return as_whole(total(
        times * tensor_bytes(tensor, precision)
        for times, tensor in tensors(model)
        if tensor.part in gathered
    ))  # fmt: skip


def told(model: Model, bytes_per_s: float | None) -> list[str]:
    """Say in sentences what is in host memory, and what that leaves out.

    bytes_per_s: of the bus; None where the answer has no times [B/s].
    """
    away, whole = total(g.hosted for g in model.groups), model.layers
    table = "the embedding in host memory, as in llama.cpp"
    if model.tied:
        table = "which is the embedding as well; llama.cpp has a second copy in host memory"
    share = "; of each kind of layer its share, as their order is not known"
    bus = "no buffer is counted for what comes from host memory"
    if bytes_per_s is not None:
        bus = (
            f"weights, cache and state in host memory go over {bytes_per_s / 1e9:,.4g} GB/s one "
            "way (--host-link) in each pass; no buffer is counted for them, and no host computes"
        )
    return [
        f"{whole - away} of {whole} layers on the device, {away} in host memory"
        f"{share if away and len(model.groups) > 1 else ''}; the head is on the device, {table}",
        bus,
    ]


def _of(model: Model, counts: Sequence[Q]) -> Model:
    """Leave a number of layers of every group."""
    groups = zip(model.groups, counts, strict=True)
    return replace(model, groups=tuple(replace(g, count=n, hosted=0) for g, n in groups))
