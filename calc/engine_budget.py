"""What an engine's pool holds of a case: its own lines, and need beside reservation.

A pool is counted three times: with the inputs that are known or estimated, and with the least and
the most that public logs show of those that only a run can tell.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .cache_groups import Groups, cache_groups
from .case import Case, cached_bytes, held_weights, reserved
from .engine_inputs import (
    Inputs,
    Settings,
    inputs,
    latents_said,
    ranges_said,
    settings,
    told_inputs,
)
from .engine_lines import Pool, Sizes, kept, llama_pool, sglang_pool, trtllm_pool
from .engine_memory import (
    graph_utilization,
    pool_concurrency,
    sglang_pool_bytes,
    vllm_pool_bytes,
)
from .engine_rules import Asked, before, find_rules
from .engine_states import with_index, with_states
from .errors import RooflmError
from .experts import Experts
from .model import sequence_state_bytes
from .offload import table_bytes


def engine_memory(case: Case, asked: Asked) -> dict[str, Any]:
    """Answer what an engine reserves on the fullest rank of a case, and what its lines say.

    Raises `RooflmError` where the engine could not do what is asked, or is not modelled.
    """
    rules = find_rules(asked.engine)
    _refuse(case, rules)
    case, states = with_states(case, rules) if asked.state is None else (case, [])
    case, keys = with_index(case, asked.engine)
    if asked.free is not None and asked.free > case.limit[0]:
        what = f"{asked.free / 2**30:,.2f} GiB are more than the device has"
        raise RooflmError(what, "--free", f"It has {float(case.limit[0]) / 2**30:,.2f} GiB.")
    _refuse_layout(case, rules)
    _refuse_unused(case, asked)
    found = [_on_rank(one, rules, asked) for one in case.members]
    # Engines take the smallest pool of all ranks.
    answer = min(found, key=lambda a: (_capacity(a), a["pool_bytes"]))
    return answer | {"pools": _pools(case), "sentences": [
        *_layout_said(case, rules, answer["max_concurrency"]),
        *states, *keys,
        *latents_said(case, rules, asked), *answer["sentences"]]}  # fmt: skip


def _capacity(answer: Mapping[str, Any]) -> float:
    return answer["tokens"] if answer["blocks"] is None else answer["blocks"]


def _refuse(case: Case, rules: Mapping[str, Any]) -> None:
    """Refuse what no engine's memory is told of."""
    layout = case.layout
    why = ""
    if case.lecture:
        why, where = "the lecture's accounting has no engine", "--accounting"
    elif case.model.denoises:
        why, where = "a diffusion model without a cache has no pool", "MODEL"
    elif layout is not None and layout.cp > 1:
        why, where = "tokens that are split over devices are not modelled for engines", "--cp"
    elif case.offloads and rules["way"] != "all-at-once":
        why, where = f"{rules['name']} keeps all layers on the device", "--gpu-layers"
    elif case.shared_prefix != 0:
        why, where = "an engine reserves nothing for what is shared", "--shared-prefix"
    elif case.model.adapters is not None:
        why, where = "the room that engines keep for adapters is not modelled", "--lora"
    elif case.reserve_bytes != 0:
        why, where = "an engine knows of no reserve: --non-torch is what others use", "--reserve"
    else:
        return
    raise RooflmError(why, where, "Leave out one of the options.")


def _pools(case: Case) -> int:
    """Pools of a deployment: of groups and replicas each has its own."""
    return 1 if case.layout is None else case.layout.dp * case.layout.replicas


def _refuse_layout(case: Case, rules: Mapping[str, Any]) -> None:
    """Refuse layouts that an engine does not have, or whose pools are not modelled."""
    layout = case.layout
    if layout is None:
        return
    if rules["way"] == "all-at-once":
        for axis in ("tp", "ep", "dp"):
            if getattr(layout, axis) > 1:
                what = f"{rules['name']} gives whole layers to each device"
                raise RooflmError(what, f"--{axis}", "Take --pp instead.")
    if rules["way"] != "share-of-total":
        return
    if layout.ep not in (1, layout.stage_ranks):
        what = f"vLLM spreads experts over all ranks of a stage, dp x tp = {layout.stage_ranks}"
        fix = f"Say --ep {layout.stage_ranks}, or leave it out: each expert is split then."
        raise RooflmError(what, "--ep", fix)
    if layout.pp > 1 and any(
        cache_groups(one.model, one.precision, 16).joint for one in case.members
    ):
        what = "vLLM groups the caches of stages as those of the whole model, which is not modelled"
        raise RooflmError(f"{what} for layers of several kinds", "--pp", "Take --tp instead.")


def _layout_said(case: Case, rules: Mapping[str, Any], concurrency: float) -> list[str]:
    """Say what of a layout the lines of one rank do not show."""
    layout, said = case.layout, list[str]()
    if layout is None:
        return said
    pools = _pools(case)
    if pools > 1:
        said.append(
            f"each of {pools} groups of ranks (--dp, --replicas) has a pool of its own: lines are "
            f"those of one, all hold {pools * concurrency:,.2f} requests of the longest length"
        )
    stages = {sum(g.count for g in one.model.groups) for one in case.members}
    if layout.pp > 1 and len(stages) > 1:
        name = rules["name"]
        said.append(
            f"stages of {min(stages)} and {max(stages)} layers: the first have one more here; "
            f"{name} may give it to those in between, and have a little more room in the first"
        )
    return said


def length_said(case: Case, rules: Mapping[str, Any], length: int) -> list[str]:
    """Say where a length is beyond what the model was made for, which engines refuse or warn of."""
    most = case.model.max_context
    if most is None or length <= most:
        return []
    made = f"{case.model.name} was made for {most:,} tokens, fewer than {length:,}"
    return [f"{made}: {rules['name']} {rules['beyond']}"]


UNSEEN = 0.989
"""Least share of the memory that nvidia-smi tells which CUDA told engines of in logs [1]."""
CUDA_SAYS = (
    "memory is what nvidia-smi tells; CUDA tells engines of 0.4 to 1.1 % less (79.15 of 80.00 GiB "
    "of an A100, 79.33 of 79.65 of an H100 in logs), which the least counts: --capacity 79.2GiB"
)


PADDED = (1.059, 1.086)
"""What vLLM's kernels made of weights whose experts are in mxfp4, by padding them [1]."""
PADDED_SAYS = (
    "kernels of experts in mxfp4 pad widths that 256 does not divide: 5.9 % more weights are "
    "counted and 8.6 % in the least, as the 60.77 GiB of gpt-oss-120b took 64.38 and 65.97 in logs "
    "of vllm-project/vllm issues 33155 and 23278; 1.71 GiB and less were left for caches"
)


def _pads(case: Case) -> bool:
    """Tell whether experts are in mxfp4 and of a width that kernels pad."""
    mxfp4 = case.precision.format_of("experts").name == "mxfp4"
    feeds = [g.ffn for g in case.model.groups if isinstance(g.ffn, Experts)]
    return mxfp4 and any(case.model.D % 256 or feed.F % 256 for feed in feeds)


def _on_rank(case: Case, rules: Mapping[str, Any], asked: Asked) -> dict[str, Any]:
    """Answer for one rank."""
    total = float(case.limit[0])
    how = settings(case, rules, asked, total)
    run = inputs(case, rules, asked, how)
    weights = float(held_weights(case))
    padded = rules["way"] == "share-of-total" and _pads(case)
    most = weights * PADDED[1] if padded else weights
    weights *= PADDED[0] if padded else 1.0
    if rules["way"] == "all-at-once":
        if not case.offloads:
            # Whatever is on the device: rows are gathered from host memory.
            rank = case.rank
            stage = rank is not None and rank.first and not rank.last
            weights -= float(table_bytes(case.model, case.precision, stage))
        return _all_at_once(case, rules, asked, how, run, weights, total)
    for key, one in run.items():
        if one.value > total:
            option = f"--{key.replace('_', '-')}"
            what = f"{one.value / 2**30:,.2f} GiB are more than the device has"
            fix = f"It has {total / 2**30:,.2f} GiB"
            fix += "." if one.given else "; a pass of fewer tokens and sequences takes less."
            raise RooflmError(what, option, fix)
    inside = not before(asked.version, rules.get("graphs_inside"))
    if "graphs" in run and not inside and not run["graphs"].given:
        # They come on top of the share, so that the pool knows nothing of them.
        del run["graphs"]

    # CUDA tells engines of less than the driver's tools do.
    driver = case.capacity_bytes is None and case.limit[1] == "driver"
    seen = total * UNSEEN if driver and asked.free is None else total

    def pool(end: str) -> float:
        sizes = {key: getattr(one, end) for key, one in run.items()}
        graphs = sizes.get("graphs", 0.0) if inside else 0.0
        whole, held = (seen, most) if end == "high" else (total, weights)
        return pool_bytes(rules, asked, how, Sizes(whole, held, sizes, graphs))

    # The most of each input leaves the least.
    ends = {"": pool("value"), "_low": pool("high"), "_high": pool("low")}
    hold = _holder(case, rules, asked, how)
    pools = {end: hold(size) for end, size in ends.items()}
    middle = pools[""]
    told: dict[str, Any] = {
        "engine": asked.engine,
        "name": rules["name"],
        "version": None if asked.version is None else ".".join(map(str, asked.version)),
        "total_bytes": total,
        "share": how.share,
        "share_name": rules.get("share"),
        "weights_bytes": weights,
        **{f"{key}_bytes": one.value for key, one in run.items()},
        "graphs_inside": inside if "graphs" in rules["ranges"] else None,
    }
    if "graphs" in run and inside:
        told["share_without_graphs"] = graph_utilization(how.share, run["graphs"].value, total)
    for end, one in pools.items():
        told[f"pool{end}_bytes"] = ends[end]
        told[f"blocks{end}"] = one.blocks
        told[f"tokens{end}"] = one.tokens
        told[f"max_concurrency{end}"] = one.concurrency
        told[f"estimated_max_len{end}"] = one.longest
    needed = _needed(case, how.length)
    return told | {
        "block_tokens": middle.block,
        "max_len": how.length,
        "max_batched_tokens": how.batched,
        "max_sequences": how.sequences,
        "request_needed_bytes": needed,
        "request_reserved_bytes": middle.request,
        "request_padded_bytes": _padded(case, how.length),
        **{f"starts{end}": one.concurrency >= 1 for end, one in pools.items()},
        **middle.more,
        "inputs": told_inputs(run, asked),
        "sentences": [
            *([PADDED_SAYS] if padded else []),
            *_sentences(rules, middle, run),
            *([CUDA_SAYS] if seen < total else []),
        ],
    }


def pool_bytes(rules: Mapping[str, Any], asked: Asked, how: Settings, sizes: Sizes) -> float:
    """Bytes that an engine leaves for caches [B]."""
    run = sizes.run
    beside = run.get("non_torch", 0.0)
    match rules["way"]:
        case "share-of-free":
            free = sizes.total - beside if asked.free is None else float(asked.free)
            return float(sglang_pool_bytes(free, free - sizes.weights, how.share))
        case "share-after-load":
            if asked.free is not None:
                return how.share * asked.free
            left = sizes.total - sizes.weights - run.get("peak_activation", 0.0) - beside
            return how.share * left
        case _:
            return float(
                vllm_pool_bytes(sizes.total, how.share, sizes.weights,
                                run.get("peak_activation", 0.0), beside, sizes.graphs)
            )  # fmt: skip


def _refuse_unused(case: Case, asked: Asked) -> None:
    """Refuse settings of layers that the model does not have."""
    held = kept(case.model, case.precision)
    if asked.window_ratio is not None and not (held.window and held.full):
        what = f"{case.model.name} has no layers with a window beside others"
        raise RooflmError(what, "--window-ratio", "Leave it out.")
    stateless = held.compressed or not sequence_state_bytes(case.model, case.precision)
    if stateless and (asked.states > 1 or asked.state_ratio is not None):
        option = "--state-blocks" if asked.state_ratio is None else "--state-ratio"
        what = f"{case.model.name} has no layers with a state"
        raise RooflmError(what, option, "Leave it out.")


def _holder(
    case: Case, rules: Mapping[str, Any], asked: Asked, how: Settings
) -> Callable[[float], Pool]:
    """Make what tells how much a pool holds."""
    if rules["way"] == "share-of-free":
        ratio = asked.window_ratio
        states = rules["state_ratio"] if asked.state_ratio is None else asked.state_ratio
        return lambda pool: sglang_pool(
            case.model, case.precision, pool, how.length, how.block, rules, ratio, states
        )
    if rules["way"] == "share-after-load":
        return lambda pool: trtllm_pool(case.model, case.precision, pool, how.length, how.block)
    groups = cache_groups(case.model, case.precision, how.block)
    whole = not before(asked.version, rules.get("whole_tokens"))
    limit = max(how.length, case.model.max_context or 0)

    def hold(pool: float) -> Pool:
        return vllm_holds(groups, pool, how, asked.states, whole, limit)

    return hold


def vllm_holds(
    groups: Groups, pool: float, how: Settings, states: int, whole: bool, limit: int
) -> Pool:
    """Tell what a pool of vLLM's holds.

    whole: the line of tokens is that of whole requests (from 0.21 on); limit: longest request that
    is looked for [tokens].
    """
    blocks = groups.blocks(pool)
    each = groups.request_blocks(how.length, how.batched, states)
    concurrency = float(pool_concurrency(blocks, each))
    tokens = int(concurrency * how.length) if whole else groups.line_tokens(blocks, how.length)
    return Pool(
        blocks=blocks,
        tokens=tokens,
        concurrency=concurrency,
        longest=groups.longest(pool, limit, how.batched, states),
        block=groups.least_block or None,
        request=each * groups.block_bytes,
        more={
            "groups": [
                {"kind": one.kind, "layers": one.layers, "groups": count,
                 "block_tokens": one.block or None, "page_bytes": one.page,
                 "request_blocks": one.request_blocks(how.length, how.batched, states)}
                for one, count in zip(groups.caches, groups.counts, strict=False)
            ],
            "layers_per_group": groups.layers,
        },
    )  # fmt: skip


def _all_at_once(
    case: Case, rules: Mapping[str, Any], asked: Asked, how: Settings, run: dict[str, Inputs],
    weights: float, total: float,
) -> dict[str, Any]:  # fmt: skip
    """Answer for an engine that allocates the cache of all its slots at the start."""
    slots = how.sequences
    context = how.length * slots if rules.get("each") else how.length
    buffer = run["peak_activation"]
    held, request, longest = llama_pool(case, context, slots, how.batched)
    if not held["cells"]:
        what = f"{context:,} tokens dealt out to {slots:,} slots leave none for each"
        raise RooflmError(what, "--max-sequences", f"Take {context:,} at the most.")

    def fits(n: int) -> bool:
        room = total - weights - buffer.value
        return llama_pool(case, n, slots, how.batched)[0]["pool_bytes"] <= room

    whole = weights + held["pool_bytes"] + buffer.value
    return {
        "engine": asked.engine,
        "name": rules["name"],
        "version": None if asked.version is None else ".".join(map(str, asked.version)),
        "total_bytes": total,
        "share": None,
        "share_name": None,
        "weights_bytes": weights,
        "peak_activation_bytes": buffer.value,
        **held,
        "pool_low_bytes": held["pool_bytes"],
        "pool_high_bytes": held["pool_bytes"],
        "reserved_bytes": whole,
        "reserved_low_bytes": whole - buffer.value + buffer.low,
        "reserved_high_bytes": whole - buffer.value + buffer.high,
        "blocks": None,
        "max_concurrency": float(slots),
        "estimated_max_len": longest(fits),
        "block_tokens": None,
        "max_len": how.length,
        "max_batched_tokens": how.batched,
        "max_sequences": slots,
        "request_needed_bytes": _needed(case, context // slots),
        "request_reserved_bytes": request,
        "request_padded_bytes": _padded(case, context // slots),
        "starts": whole <= total,
        "starts_low": whole - buffer.value + buffer.high <= total,
        "starts_high": whole - buffer.value + buffer.low <= total,
        "inputs": told_inputs(run, asked),
        "sentences": [*rules.get("notes", ()), *ranges_said(run)],
    }


def _needed(case: Case, length: int) -> float:
    """Bytes that the mathematics needs of a request on a rank: its cache and its states [B]."""
    cache = float(cached_bytes(case, _alone(case), length))
    return cache + float(sequence_state_bytes(case.model, case.precision))


def _padded(case: Case, length: int) -> float | None:
    """Bytes of a request on a rank where window layers hold all tokens; None without any [B]."""
    windows = {g.mixer.window_tokens for g in case.model.groups if g.mixer.token_elements}
    if windows <= {None}:
        return None
    cache = float(reserved(case, _alone(case), length)["padded"])
    return cache + float(sequence_state_bytes(case.model, case.precision))


def _alone(case: Case) -> int:
    """Count the sequences of which each rank of a group of dp, which holds whole ones, has one."""
    return 1 if case.layout is None else case.layout.dp * case.layout.replicas


def _sentences(rules: Mapping[str, Any], pool: Pool, run: Mapping[str, Inputs]) -> list[str]:
    return [*pool.said, *ranges_said(run), *rules.get("notes", ())]
