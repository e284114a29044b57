"""Settings of an engine on a device, and what only a run of it can tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .case import Case
from .engine_memory import sglang_graph_bytes, sglang_share
from .engine_rules import GIB, Asked, before, by_memory, usual
from .errors import RooflmError
from .layout import parts
from .memory import activations_bytes
from .mla import MLA
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

    length = request_length(case, rules, asked)
    if length is None:
        what = f"the longest context of {case.model.name} is not known"
        raise RooflmError(what, "--max-len", "Say --max-len 8192.")
    batched = of("batched_tokens", asked.batched)
    share = of("utilization", asked.utilization)
    if share is None and rules["way"] == "share-of-free":
        share = _share(case, rules, asked, total, batched)
    return Settings(
        share=share or 0.0,
        block=latent_block(case, rules, asked) or of("block_tokens", asked.block),
        batched=batched,
        sequences=of("sequences", asked.sequences),
        length=length,
    )


def request_length(case: Case, rules: Mapping[str, Any], asked: Asked) -> int | None:
    """Tell the longest request that an engine starts with: as asked, its usual one, the model's.

    None where the model's is asked for and not known [tokens].
    """
    devices = 1 if case.layout is None else case.layout.devices
    total, own = float(case.limit[0]) * devices, case.model.max_context
    length = asked.max_len or usual(rules, "length", asked, total, case.machine.name) or own
    return min(length, own) if length and own and rules.get("clamps") else length


BLACKWELL = ("b100", "b200", "gb200", "b300", "gb300")
"""Chips of compute capability 10, whose kernels for latents are not those of smaller Blackwells."""


def latent_block(case: Case, rules: Mapping[str, Any], asked: Asked) -> int | None:
    """Tell the tokens of a block that vLLM's kernels for latents ask for; None where none is asked.

    FlashMLA takes 64: on Hopper for caches in 8 bits, for all before 0.12, and where an indexer
    chooses. Blackwell's take 32 (FlashInfer) and took 128 (CUTLASS). All others are free. Source:
    vllm-project/vllm, vllm/platforms/cuda.py (_get_backend_priorities; check_and_update_config of
    0.11) and get_supported_kernel_block_sizes in vllm/v1/attention/backends/mla.
    """
    latents = [m for g in case.model.groups for m in parts(g.mixer) if isinstance(m, MLA)]
    if not latents or rules["way"] != "share-of-total" or asked.block is not None:
        return None
    hopper = case.machine.family == "hopper"
    blackwell = case.machine.name.startswith(BLACKWELL)
    if any(m.kind != "mla" for m in latents):
        return 64 if hopper or blackwell else None
    old = before(asked.version, "0.12")
    if blackwell:
        return 128 if old else 32
    return 64 if hopper and (old or case.precision.cache.bytes < 2) else None


def latents_said(case: Case, rules: Mapping[str, Any], asked: Asked) -> list[str]:
    """Say that blocks of latents depend on the kernel."""
    latents = any(isinstance(m, MLA) for g in case.model.groups for m in parts(g.mixer))
    if not latents or rules["way"] != "share-of-total" or asked.block is not None:
        return []
    return [
        "blocks of latents are those of the kernel that vLLM takes here by itself; others take 16, "
        "32, 64 or 128 tokens (--block), which changes the number of blocks and hardly the tokens"
    ]


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
    kept = sglang_graph_bytes(graphs, groups)
    least = 10 * GIB if total > 60 * GIB else 0
    return max(0.0, float(sglang_share(total, batched, kept, tp * pp, least)))


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
