"""Diffusion language models: passes that compute many positions both ways, beside decoding.

Full-sequence models compute prompt and output in every pass and keep nothing; block diffusion
denoises a block of tokens over a cache of what is before and then writes the block into it in a
pass of its own. Sources: github.com/ML-GSAI/LLaDA, generate.py and README (no cache, logits of all
positions); arXiv 2503.09573 (block diffusion). Every step commits equally many tokens; classifier-
free guidance doubles the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from .case import Case, figures, limits, regime
from .errors import RooflmError
from .memory import largest
from .model import check_both_ways, has_experts
from .passes import Segment, commit_block, decode, denoise_block
from .readings import Q, formula, total
from .requests import Work, check_works
from .sweep import check_size, check_yield, frame, step_row
from .timing import throughput


@formula
def tokens_per_step(output_tokens: Q, steps: Q) -> Q:
    """Tokens that a denoising step yields on average.

    output_tokens: tokens generated together, G [tokens]; steps: denoising steps [1].
    Returns [tokens].

    >>> tokens_per_step(128, 32)
    4.0
    """
    return output_tokens / steps


@formula
def denoising_flops(P: Q, tokens: Q, L: Q, N: Q, H: Q) -> Q:
    """FLOPs of a full-sequence step: 2Pn + 4LNHn², no causal half and no cache.

    P: parameters that multiply a token, the head among them [parameters]; tokens: prompt and
    output together, n [tokens]; L: layers [1]; N: heads [1]; H: head width [1]. Returns [FLOP].

    >>> denoising_flops(8e9, 256, L=32, N=32, H=128)
    4130359738368.0
    """
    return 2 * P * tokens + 4 * L * N * H * tokens * tokens


@formula
def block_tokens_per_pass(block: Q, steps: Q, commit: Q = 1) -> Q:
    """Tokens that a pass of block diffusion yields on average: b/(s + 1).

    block: tokens of a block [tokens]; steps: denoising passes of a block [1]; commit: passes that
    write its keys and values, 0 where the last denoising pass does [1]. Returns [tokens].
    Decoding is block = steps = 1, commit = 0.

    >>> block_tokens_per_pass(32, 8)
    3.5555555555555554
    """
    return block / (steps + commit)


@formula
def block_cache_reads(S: Q, block: Q, steps: Q, commit: Q = 1) -> Q:
    """Cached tokens that block diffusion reads for each token that it yields: S(s + 1)/b.

    S: context [tokens]; block, steps, commit: as in `block_tokens_per_pass`. Returns [tokens].

    >>> block_cache_reads(4096, 32, 8)
    1152.0
    """
    return S * (steps + commit) / block


@formula
def least_tokens_per_step(tokens_per_s: Q, weights_bytes: Q, bytes_per_s: Q) -> Q:
    """Tokens that each step has to yield for a rate, as each reads the weights: R W/β.

    tokens_per_s: rate of one sequence, R [tokens/s]; weights_bytes: W [B]; bytes_per_s: memory
    bandwidth, β [B/s]. Returns [tokens].

    >>> round(least_tokens_per_step(1109, 14e9, 3.35e12), 3)
    4.635
    """
    return tokens_per_s * weights_bytes / bytes_per_s


@formula
def saturating_batch(memory_s: Q, compute_s: Q) -> Q:
    """Batch at which a step turns compute-bound, as memory time stays and compute time grows.

    memory_s: memory time of a step [s]; compute_s: compute time of one sequence [s]. Returns [1].
    A full-sequence step of 256 positions is there at 1.1 sequences.

    >>> round(saturating_batch(0.004776, 0.004176), 2)
    1.14
    """
    return memory_s / compute_s


MOST_BATCH = 10**6
"""Largest batch that is searched for the end of the advantage."""
TRIED = 10**4
"""Batches that are tried one by one where there are experts: beyond, any pass touches them all."""


def block_passes(B: Q, S: Q, block: int, steps: int) -> list[tuple[list[Segment], int]]:
    """List the passes of a block, and how often each runs: denoising ones, and one that keeps it.

    B: sequences [1]; S: context with the block [tokens]; block: its tokens [tokens]; steps:
    denoising passes [1].
    """
    return [(denoise_block(B, S, block), steps), (commit_block(B, S, block), 1)]


def block_row(case: Case, B: Q, S: Q, block: int, steps: int) -> dict[str, Any]:
    """Answer a block of block diffusion: its denoising passes and the one that keeps it.

    B: sequences [1]; S: context with the block [tokens]; block: its tokens [tokens]; steps:
    denoising passes [1].
    """
    passes = block_passes(B, S, block, steps)
    ledgers = [case.ledger(segments) for segments, _ in passes]
    parts = [
        figures(case, segments, ops, tokens=0)
        for (segments, _), ops in zip(passes, ledgers, strict=True)
    ]
    times = [n for _, n in passes]
    row: dict[str, Any] = dict(max(parts, key=lambda part: part["memory_bytes"]))
    for key in ("time_s", "floor_s", "bound_s", "bytes", "flops"):
        known = [part[key] for part in parts]
        row[key] = None if None in known else sum(n * x for n, x in zip(times, known, strict=True))
    sides = [limits(case, ops) for ops in ledgers]
    computing, moving = (sum(n * s[i] for n, s in zip(times, sides, strict=True)) for i in (0, 1))
    limit = case.limit[0]
    rate = throughput(B * block, row["time_s"])
    return {
        "batch": B,
        "context_tokens": S,
        **row,
        "capacity_bytes": limit,
        "fits": row["memory_bytes"] <= limit,
        "passes": steps + 1,
        "tokens_per_pass": block_tokens_per_pass(block, steps),
        "tokens_per_s": rate,
        "bound_tokens_per_s": rate,
        "intensity_flops_per_byte": row["flops"] / row["bytes"],
        "regime": regime(computing, moving),
        "basis": "bound",
        **dict.fromkeys(("ttft_s", "e2e_s")),
    }


def _even_batch(ahead: Callable[[Q], Q], routed: bool) -> int | None:
    """Tell the batch from which on decoding yields as many tokens; None beyond all searched.

    ahead: whether denoising yields more, for a batch or an array of them; routed: experts make
    the lead grow before it shrinks, so that each batch is tried until all are surely touched.
    """
    tried = 0
    if routed:
        import numpy as np

        batches = np.arange(1, TRIED + 1, dtype=float)
        leading = batches[np.broadcast_to(ahead(batches), batches.shape)]
        if not leading.size or leading[-1] < TRIED:
            return 1 + int(leading[-1]) if leading.size else 1
        tried = TRIED
    last = largest(lambda B: tried >= B or bool(ahead(B)), MOST_BATCH)
    return None if last >= MOST_BATCH else last + 1


def sweep_diffusion(
    case: Case, batches: Sequence[int], contexts: Sequence[int], block: int | None, steps: int
) -> dict[str, Any]:
    """Answer denoising for every batch at every context, and decoding of the same model beside it.

    block: tokens of a block [tokens]; None for full-sequence steps; steps: denoising passes of a
    block [1]. `even_batch` is the smallest batch at which decoding yields as many tokens a second,
    by context: from there on the advantage is gone.
    """
    check_size(len(batches) * len(contexts))
    check_both_ways(case.model)
    if case.ranks:
        what = "denoising is computed on one device only"
        raise RooflmError(what, "--tp", "Leave the layout out.")
    if case.lecture:
        what = "the lecture's accounting is of decode steps"
        raise RooflmError(what, "--accounting", "Leave the option out.")
    if block is not None and min(contexts) < block:
        what = f"a context of {min(contexts):,} tokens does not hold a block of {block:,}"
        raise RooflmError(what, "--context")
    if block is not None and steps > block:
        what = f"{steps:,} passes for a block of {block:,} tokens leave passes without one"
        raise RooflmError(what, "--denoise-steps")
    case = replace(case, constants=None, no_estimate="no published step denoises")
    plain = replace(case, model=replace(case.model, denoises=False), step_tokens=1)

    def denoising(B: int, S: int) -> dict[str, Any]:
        if block is None:
            row = step_row(case, case.step(B, S), B, S)
            return row | {"passes": 1, "tokens_per_pass": case.step_tokens}
        return block_row(case, B, S, block, steps)

    def decoding(B: Q, S: int) -> Q:
        segments = decode(B, S)
        return figures(plain, segments, plain.ledger(segments), B)["tokens_per_s"]

    def ahead(B: Q, S: int) -> Q:
        passes = [(case.step(B, S), 1)] if block is None else block_passes(B, S, block, steps)
        yielded = B * (case.step_tokens if block is None else block)
        seconds = total(
            n * figures(case, segments, case.ledger(segments), tokens=0)["time_s"]
            for segments, n in passes
        )
        return yielded / seconds > decoding(B, S)

    rows: list[dict[str, Any]] = []
    even: dict[int, int | None] = {}
    for S in contexts:
        even[S] = _even_batch(lambda B, S=S: ahead(B, S), has_experts(case.model))
        for B in batches:
            row, other = denoising(B, S), decoding(B, S)
            beside = {
                "autoregressive_tokens_per_s": other,
                "speedup": row["tokens_per_s"] / other,
                "even_batch": even[S],
            }
            rows.append(row | beside)
    answer = frame(case, "denoise", rows, contexts)
    if block is None:
        answer["assumptions"].append(f"each step yields {case.step_tokens:g} tokens a sequence")
    else:
        formats = answer["assumptions"][0].partition("; ")[2]
        answer["phase"] = "denoise-block"
        answer["assumptions"][0] = (
            f"denoise: a block of {block:,} tokens takes {steps:,} passes over the cache of what "
            "is before it, both ways within the block, and one more that writes its keys and "
            f"values; time_s is that of the block, {block / (steps + 1):.4g} tokens a pass; "
            f"{formats}"
        )
    answer["assumptions"].append(
        "speedup: against decoding with the same weights and a cache; from even_batch on decoding "
        "yields as many tokens a second or more"
    )
    return answer


def request_row(case: Case, B: int, work: Work, steps: int) -> dict[str, Any]:
    """Answer a whole generation of a full-sequence model: equal steps over prompt and output.

    B: sequences [1]; work: prompt and output; steps: denoising steps [1]. All tokens are there at
    the end: the time to the first one is that of the last.
    """
    length = work.prompt + work.output
    of = replace(case, step_tokens=tokens_per_step(work.output, steps))
    row = step_row(of, of.step(B, length), B, length)
    for key in ("time_s", "floor_s", "bound_s", "bytes", "flops"):
        row[key] = None if row[key] is None else steps * row[key]
    return row | {
        "prompt_tokens": work.prompt,
        "output_tokens": work.output,
        "passes": steps,
        "tokens_per_pass": of.step_tokens,
        "weight_read_bytes": steps
        * total(op.count * op.weight_bytes for op in of.ledger(of.step(B, length))),
        "cache_read_bytes": 0,
        "ttft_s": row["time_s"],
        "itl_s": None,
        "e2e_s": row["time_s"],
    }


def sweep_requests(
    case: Case, batches: Sequence[int], works: Sequence[Work], steps: int | None
) -> dict[str, Any]:
    """Answer whole generations for every batch and piece of work.

    steps: denoising steps [1]; None for as many as the tokens that each yields need.
    """
    check_works(len(batches) * len(works))
    for work in works:
        if work.phase == "prefill" or work.prefix or work.chunk:
            what = "a full-sequence diffusion model computes prompt and output together"
            fix = "Say --phase request, --prompt and --output-tokens alone."
            raise RooflmError(what, "--phase, --prefix, --chunk", fix)
        if steps is not None and steps > work.output:
            what = f"{steps:,} steps for {work.output:,} tokens leave steps without one"
            raise RooflmError(what, "--denoise-steps")
        if steps is not None and case.step_tokens != 1:
            what = "the steps of a request tell how many tokens each yields"
            raise RooflmError(what, "--tokens-per-step, --denoise-steps", "Say one of them.")
        check_yield(case.step_tokens, work.output)
    rows = [
        request_row(case, B, w, steps or math.ceil(w.output / case.step_tokens))
        for w in works
        for B in batches
    ]
    answer = frame(case, "request", rows, [r["context_tokens"] for r in rows])
    answer["assumptions"][0] = (
        "request: every denoising step computes prompt and output both ways; nothing is kept, and "
        f"all tokens are there at the end; weights {case.precision.weights.name}"
    )
    return answer
