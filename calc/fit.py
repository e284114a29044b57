"""Whether a model fits a device, what fills it, and the cheapest ways to make it fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .case import (
    Case,
    fullest,
    host_memory,
    max_context_tokens,
    max_sequences,
    memory,
    memory_bytes,
    reserved,
)
from .deployment import USUAL_NODE, Node, Spread, deploy, joined, without_links
from .errors import RooflmError
from .hardware import Machine, capacity
from .layout import tp_degrees
from .memory import BATCHED_TOKENS, BLOCK_TOKENS, activations_bytes, largest_near
from .model import total_parameters
from .passes import Precision, prefill
from .readings import Q, is_zero
from .sharing import asked as shared
from .show import uncounted
from .sweep import assumptions, devices_of
from .units import parse_size

MOST_POINTS = 2000
MOST_CHIPS = 3
MOST_TP = 64
"""Ranks of tensor parallelism that are tried at the most."""


def fit(case: Case, batches: Sequence[int], contexts: Sequence[int]) -> dict[str, Any]:
    """Answer whether B sequences of S tokens fit, for every batch at every context.

    One point is told at the top level; several are told in `rows`.
    """
    if len(batches) * len(contexts) > MOST_POINTS:
        what = f"{len(batches) * len(contexts):,} points are more than {MOST_POINTS:,}"
        raise RooflmError(what, "--batch, --context", "`rooflm sweep` takes more.")
    rows = [point(case, B, S) for S in contexts for B in batches]
    limit, basis = case.limit
    answer: dict[str, Any] = {
        "schema": "rooflm.fit/1",
        "model": case.model.name,
        "hardware": case.machine.name,
        "accounting": case.accounting,
        "parameters": total_parameters(case.model, norms=not case.lecture),
        "capacity_basis": basis,
        "capacity_nominal_bytes": case.machine.label_bytes,
        "capacity_driver_bytes": case.machine.driver_bytes,
        **devices_of(case),
        **shared(case),
    }
    said = assumptions(case, contexts=contexts, timed=False)
    if not case.lecture and not case.model.denoises:
        longest = max(contexts)
        alone = prefill(1, longest)
        whole = activations_bytes(fullest(case, alone).ledger(alone))
        answer["prefill_activations_bytes"] = whole
        said.append(
            f"activations are those of a decode step; one prompt of {longest:,} tokens in a "
            f"single pass would hold {whole / 1e9:.3g} GB of them instead"
        )
    said += _left_out(case)
    if not case.model.denoises:
        said.append(_reserved_sentence(rows[-1]["reserved_kv_cache_bytes"]))
    if len(rows) == 1:
        answer |= rows[0]
    else:
        answer |= {"capacity_bytes": limit, "fits": all(r["fits"] for r in rows)}
    if case.model.reference_kv_elements is not None:
        each = case.precision.cache.bytes * case.model.reference_kv_elements
        said.append(
            f"the reference implementation allocates {each:,.0f} bytes a token, which is not what "
            "is needed"
        )
    return answer | {"rows": rows, "assumptions": said}


def _left_out(case: Case) -> list[str]:
    """Say what engines may hold beside the weights that are counted."""
    said = uncounted(case.model)
    table = case.precision.format_of("embedding")
    if case.model.tied and case.precision.weights.bits < table.bits == 16:
        held = table.bytes * case.model.V * (case.model.embedding_width or case.model.D)
        said.append(
            f"the embedding is the head as well, {held / 1e9:.3g} GB in {table.name}, and counted "
            "once; an engine that stores a copy for the head: --set tied=false"
        )
    return said


def point(case: Case, B: int, S: int) -> dict[str, Any]:
    """Answer one batch at one context."""
    return needs(case, B, S) | {"max_sequences": max_sequences(case, S)}


def needs(case: Case, B: Q, S: Q) -> dict[str, Any]:
    """Answer what B sequences of S tokens need, in any reading."""
    limit = case.limit[0]
    segments = case.step(B, S)
    full = fullest(case, segments)
    kinds = memory(full, segments, full.ledger(segments))
    held = sum(kinds.values())
    return {
        "batch": B,
        "context_tokens": S,
        "memory": kinds,
        "memory_bytes": held,
        **host_memory(case, segments),
        "capacity_bytes": limit,
        "margin_bytes": limit - held,
        "fits": held <= limit,
        "reserved_kv_cache_bytes": {
            "needed": kinds["kv_cache_bytes"],
            **reserved(full, B, S),
        },
    }


def _reserved_sentence(cache: dict[str, int]) -> str:
    """Tell need from reservation."""
    needed, paged, padded = (f"{cache[k] / 1e9:,.3g}" for k in ("needed", "paged", "padded"))
    blocks = f"{BLOCK_TOKENS} tokens a block"
    if cache["paged"] == cache["padded"]:
        return f"cache: {needed} GB needed, {paged} GB in whole blocks of a paged engine ({blocks})"
    return (
        f"cache: {needed} GB needed; {paged} GB in whole blocks of a paged engine with passes of "
        f"{BATCHED_TOKENS:,} tokens ({blocks}), {padded} GB where it pads window layers to full"
    )


@dataclass(frozen=True)
class Typed:
    """What was typed that a change has to be typed beside."""

    on: str
    """Machine that --on names."""
    nodes: int = 1
    devices: int | None = None
    """Devices of a node; None where no number stands before the name."""
    degrees: frozenset[str] = frozenset()
    """Degrees of a layout that were typed."""
    linked: bool = False
    """A link was typed, so that the machine needs none of its own."""
    fewer_bits: Mapping[str, Precision] = field(default_factory=dict[str, Precision])
    """Formats of weights to try, most bits first."""

    def site(self, name: str, devices: int | None) -> str:
        """Write a machine as --on takes it, with devices of a node before its name."""
        if devices is None:
            return name
        return f"{f'{self.nodes}x' if self.nodes > 1 else ''}{devices}x{name}"


def ways(
    case: Case, B: int, S: int, machines: Sequence[Machine], typed: Typed
) -> list[dict[str, Any]]:
    """List the cheapest changes that make B sequences of S tokens fit, each typed by itself.

    Fewer sequences, a shorter context, weights of fewer bits, more ranks of tensor parallelism, or
    as many of another chip, cheapest by its dated price; chips without a price come last, smallest
    first. Chips without a capacity of their own or a link that the layout needs are left out, and
    all chips where the capacity was given.
    """
    found: list[dict[str, Any]] = []
    most = max_sequences(case, S)
    if 0 < most < B:
        found.append({"option": "--batch", "value": str(most)})
    longest = max_context_tokens(case, B)
    if case.shared_prefix < longest < S:
        found.append({"option": "--context", "value": str(longest)})
    held, limit = memory_bytes(case, B, S), case.limit[0]
    for name, precision in typed.fewer_bits.items():
        if memory_bytes(replace(case, precision=precision), B, S) <= limit:
            found.append({"option": "--weights", "value": name})
            break
    found += _more_devices(case, B, S, typed)
    if case.capacity_bytes is not None:
        return found
    chips: list[tuple[float, int, Machine]] = []
    for machine in machines:
        other = replace(case, machine=machine)
        if machine.label_bytes is None or not (typed.linked or joined(machine, case.layout)):
            continue
        if held <= other.limit[0] and machine.name != case.machine.name:
            price = machine.price_usd_per_hour or float("inf")
            chips.append((price, capacity(machine, nominal=case.lecture)[0], machine))
    for price, whole, machine in sorted(chips, key=lambda c: c[:2])[:MOST_CHIPS]:
        found.append(
            {
                "option": "--on",
                "value": typed.site(machine.name, typed.devices),
                "capacity_bytes": whole,
                "price_usd_per_hour": price if price < float("inf") else None,
                "price_date": machine.price_date or None,
            }
        )
    return found


def _more_devices(case: Case, B: int, S: int, typed: Typed) -> list[dict[str, Any]]:
    """Find the fewest ranks of tensor parallelism that hold it, where no other degree was typed.

    Nodes have eight devices at the most.
    """
    one_device = case.offloads or case.lecture
    if one_device or typed.degrees - {"tp"} or not (typed.linked or case.machine.links):
        return []
    alone, limit = replace(case, ranks=(), links=None), case.limit[0]
    now = 1 if case.layout is None else case.layout.devices
    for tp in tp_degrees(case.model):
        if tp <= now or tp > MOST_TP or (tp > USUAL_NODE and tp % USUAL_NODE):
            continue
        try:
            wide = deploy(alone, without_links(Spread(tp=tp)), Node(typed.on))
        except RooflmError:
            continue
        if memory_bytes(wide, B, S) <= limit:
            on = None
            if typed.devices is not None:
                nodes = -(-tp // USUAL_NODE)
                on = replace(typed, nodes=nodes).site(typed.on, tp // nodes)
            return [{"option": "--tp", "value": str(tp), "on": on}]
    return []


ENDLESS = 10**12
"""No batch or context is looked for beyond it [1]."""
SPARED = ("0.9", "2GiB")
"""Share of the memory and reserve that engines roughly leave: vLLM's usual share, and a context."""
UNIFIED_SPARED = ("0.75", "2GiB")
"""The same where the memory is shared with a system, by what macOS gives a GPU."""


def spared(case: Case, B: int, S: int) -> list[str]:
    """Say what fits where memory is left free; nothing where that was typed, or is not counted."""
    if case.lecture or case.gpu_share is not None or not is_zero(case.reserve_bytes):
        return []
    share, reserve = UNIFIED_SPARED if case.machine.kind == "unified" else SPARED
    sparing = replace(case, gpu_share=float(share), reserve_bytes=parse_size(reserve, "--reserve"))
    room, end = sparing.limit[0], case.model.max_context or ENDLESS
    most = _most(lambda n: memory_bytes(sparing, n, S), room, ENDLESS)
    longest = _most(lambda n: memory_bytes(sparing, B, n), room, end)
    found = [f"{option} {n}" for option, n in (("--batch", most), ("--context", longest)) if n]
    if longest == ENDLESS:
        found[-1] = "any --context"
    return [
        f"sequences that fit fill the memory to the last byte; with {share} of it and 2 GiB kept "
        f"free (--gpu-share {share} --reserve {reserve}) {' or '.join(found) or 'nothing'} fits"
    ]


def _most(held: Callable[[int], Q], room: Q, end: int) -> int:
    """Find the largest n up to an end for which no more than the room is held; 0 for none.

    Memory is nearly a line: where it crosses the room is where the search begins.
    """
    near, far = 1, 1024
    for _ in range(2):
        first, last = held(near), held(far)
        each = (last - first) / (far - near)
        guess = end if each <= 0 else int(min(end, max(1, near + (room - first) / each)))
        if guess in (near, far):
            break
        near, far = far, guess
    return largest_near(lambda n: held(n) <= room, far, end)
