"""Whether a model fits a device, what fills it, and the cheapest ways to make it fit."""

from __future__ import annotations

from collections.abc import Sequence
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
from .errors import RooflmError
from .hardware import Machine, capacity
from .memory import BATCHED_TOKENS, BLOCK_TOKENS, activations_bytes
from .model import total_parameters
from .passes import prefill
from .readings import Q
from .sharing import asked as shared
from .sweep import assumptions, devices_of

MOST_POINTS = 2000
MOST_CHIPS = 3


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


def ways(case: Case, B: int, S: int, machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """List the cheapest changes that make B sequences of S tokens fit.

    Fewer sequences, a shorter context, or another chip, cheapest by its dated price; chips
    without a price come last, smallest first. Chips without a capacity of their own are left out,
    and all chips where the capacity was given.
    """
    found: list[dict[str, Any]] = []
    most = max_sequences(case, S)
    if 0 < most < B:
        found.append({"option": "--batch", "value": str(most)})
    longest = max_context_tokens(case, B)
    if 0 < longest < S:
        found.append({"option": "--context", "value": str(longest)})
    if case.capacity_bytes is not None:
        return found
    held = memory_bytes(case, B, S)
    chips: list[tuple[float, int, Machine]] = []
    for machine in machines:
        if machine.label_bytes is None:
            continue
        limit, _ = capacity(machine, nominal=case.lecture)
        if held <= limit and machine.name != case.machine.name:
            chips.append((machine.price_usd_per_hour or float("inf"), limit, machine))
    for price, limit, machine in sorted(chips, key=lambda c: c[:2])[:MOST_CHIPS]:
        found.append(
            {
                "option": "--on",
                "value": machine.name,
                "capacity_bytes": limit,
                "price_usd_per_hour": price if price < float("inf") else None,
                "price_date": machine.price_date or None,
            }
        )
    return found
