"""Settings of an engine on a device, and what only a run of it can tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .case import Case
from .engine_memory import sglang_share
from .engine_rules import GIB, Asked, before, by_memory, usual
from .errors import RooflmError
from .memory import activations_bytes
from .model import has_experts
from .passes import Segment

OPTIONS = {
    "peak_activation": "--peak-activation", "non_torch": "--non-torch", "graphs": "--graphs",
    "free": "--free",
}  # fmt: skip
"""Inputs that only a run can tell, by the option that gives them."""


@dataclass(frozen=True)
class Settings:
    """Settings of an engine on a device: as asked, or as usual."""

    share: float
    block: int
    batched: int
    sequences: int
    length: int


@dataclass(frozen=True)
class Inputs:
    """Bytes of what only a run can tell: as counted, least and most."""

    given: bool
    value: float
    low: float
    high: float
    source: str


def settings(case: Case, rules: Mapping[str, Any], asked: Asked, total: float) -> Settings:
    """Take settings as asked, or as usual on a device of so much memory [B]."""

    def of(key: str, own: Any) -> Any:
        return usual(rules, key, asked, total, case.machine.name) if own is None else own

    length = asked.max_len or case.model.max_context
    if length is None:
        what = f"the longest context of {case.model.name} is not known"
        raise RooflmError(what, "--max-len", "Say --max-len 8192.")
    batched = of("batched_tokens", asked.batched)
    share = of("utilization", asked.utilization)
    if share is None and rules["way"] == "share-of-free":
        share = _share(case, rules, asked, total, batched)
    return Settings(
        share=share or 0.0,
        block=of("block_tokens", asked.block),
        batched=batched,
        sequences=of("sequences", asked.sequences),
        length=length,
    )


def _share(
    case: Case, rules: Mapping[str, Any], asked: Asked, total: float, batched: int
) -> float:  # fmt: skip
    """Find the share that SGLang takes of a device where none is typed."""
    if before(asked.version, rules["share_since"]):
        what = f"the share that {rules['name']} took before {rules['share_since']} is not modelled"
        raise RooflmError(what, "--engine-version", "Say --utilization 0.88 as well.")
    layout = case.layout
    tp = pp = 1
    groups = 0
    if layout is not None:
        tp, pp = layout.tp, layout.pp
        if attends_in_groups(case):
            # SGLang's tp is that of all groups.
            tp, groups = tp * layout.dp, layout.dp
    row = by_memory(rules, total)
    graphs = row["graphs_of_4"] if tp >= 4 else row["graphs"]
    least = 10 * GIB if total > 60 * GIB else 0
    return max(0.0, float(sglang_share(total, batched, graphs, tp * pp, groups, least)))


def attends_in_groups(case: Case) -> bool:
    """Tell whether groups of --dp share experts, which is DP attention to SGLang.

    Groups of a model without experts are servers of their own, which know nothing of each other.
    """
    layout = case.layout
    return layout is not None and layout.dp > 1 and has_experts(case.model)


def inputs(case: Case, rules: Mapping[str, Any], asked: Asked, how: Settings) -> dict[str, Inputs]:
    """Find what only a run can tell of a rank, with the range of public logs.

    Activations are estimated by the widest operator of a pass of all tokens; it lies below what
    engines profile, whose samplers sort in fp32.
    """
    found: dict[str, Inputs] = {}
    # Free memory that was measured holds all that would have to be guessed.
    none: Mapping[str, Any] = {}
    ranges: Mapping[str, Any] = none if asked.free is not None else rules["ranges"]
    for key, ends in ranges.items():
        if key in asked.measured:
            size = float(asked.measured[key])
            found[key] = Inputs(True, size, size, size, "given")
            continue
        low, high = ends["low_gib"] * GIB, ends["high_gib"] * GIB
        value = ends.get("usual_gib", 0) * GIB
        if key == "peak_activation":
            segments = [Segment(1, how.batched, 0), Segment(how.sequences, 1, 0)]
            value = max(value, float(activations_bytes(case.ledger(segments))))
        found[key] = Inputs(False, value, min(value, low), max(value, high), ends["source"])
    return found


def told_inputs(run: Mapping[str, Inputs], asked: Asked) -> list[dict[str, Any]]:
    """List what only a run can tell, and how each was found."""
    rows = [
        {
            "input": key, "option": OPTIONS[key], "given": one.given, "bytes": one.value,
            "low_bytes": one.low, "high_bytes": one.high, "source": one.source,
        }
        for key, one in run.items()
    ]  # fmt: skip
    if asked.free is not None:
        free = float(asked.free)
        rows.append({"input": "free", "option": "--free", "given": True, "bytes": free,
                     "low_bytes": free, "high_bytes": free, "source": "given"})  # fmt: skip
    return rows


def ranges_said(run: Mapping[str, Inputs]) -> list[str]:
    """Say which inputs were not given, and what logs show of them."""
    said: list[str] = []
    for key, one in run.items():
        if not one.given:
            low, high = one.low / GIB, one.high / GIB
            said.append(
                f"{key.replace('_', ' ')} only a run can tell ({OPTIONS[key]}): "
                f"{one.value / GIB:.2f} GiB here, {low:.2f} to {high:.2f} GiB in {one.source}"
            )
    return said
