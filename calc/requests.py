"""Prefill and whole requests: time to first token, time per further token, end to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .case import Case, estimates, figures, fullest_memory, limits, regime, slowest
from .errors import RooflmError
from .passes import Operator, Segment, decode
from .readings import Q, ceil, floor, formula, half, minimum, total
from .sweep import basis_of, devices_of, frame, step_row
from .timing import sending_time, throughput

BLOCK_TOKENS = 16
"""Tokens of a cache block: only whole blocks of a cached prefix are reused (vLLM's default)."""


@formula
def reused_tokens(prompt: Q, matched: Q, block: Q = BLOCK_TOKENS) -> Q:
    """Tokens of a prompt that a prefix cache spares: whole blocks, and never the last token.

    prompt: length of the prompt [tokens]; matched: leading tokens found in the cache [tokens];
    block: tokens of a cache block [tokens]. Returns [tokens]. The last token is always computed,
    or there would be no logits. Source: docs.vllm.ai, design, automatic prefix caching.

    >>> reused_tokens(3000, 2999)
    2992
    """
    return floor(minimum(matched, prompt - 1) / block) * block


@formula
def chunk_count(tokens: Q, chunk: Q) -> Q:
    """Passes of a chunked prefill; each reads all weights again.

    tokens: computed tokens of a prompt [tokens]; chunk: tokens of a pass [tokens]. Returns [1].

    >>> chunk_count(8192, 512)
    16
    """
    return ceil(tokens / chunk)


@formula
def chunked_cache_reads(passes: Q, chunk: Q) -> Q:
    """Cache tokens that a chunked prefill reads, each chunk's own included: c m(m+1)/2.

    passes: equal chunks [1]; chunk: tokens of each [tokens]. Returns [tokens]. In one pass it
    would be their product: the amplification is (m + 1)/2.

    >>> chunked_cache_reads(16, 512)
    69632
    """
    return chunk * half(passes * (passes + 1))


@formula
def pairs_without_cache(tokens: Q) -> Q:
    """Query-key pairs of generating tokens with no cache, every step recomputing its prefix.

    tokens: generated tokens n [tokens]. Returns [pairs]: n(n+1)(n+2)/6 where a cache leaves
    n(n+1)/2.

    >>> pairs_without_cache(1024)
    179481600
    """
    pairs = tokens * (tokens + 1) * (tokens + 2)
    return pairs // 6 if isinstance(pairs, int) else pairs / 6


@formula
def end_to_end_time(ttft: Q, itl: Q, output_tokens: Q) -> Q:
    """Time of a whole request: TTFT + (G - 1) ITL.

    ttft: time to first token [s]; itl: mean time of each further token [s]; output_tokens: tokens
    generated, G [tokens]. Returns [s].

    >>> round(end_to_end_time(0.2, 0.02, 100), 6)
    2.18
    """
    return ttft + (output_tokens - 1) * itl


@formula
def served_token_time(step: Q, prefill: Q, clients: Q, output_tokens: Q) -> Q:
    """Mean time per output token under load: step + (c - 1)/G of a prefill.

    step: decode step of all clients [s]; prefill: of one prompt [s]; clients: requests that are
    always there, c [1]; output_tokens: tokens of each, G [tokens]. Returns [s]. While a request
    yields G tokens, each of the others ends once and the next one's prefill holds up its steps.
    Left out: queues, and prefills that share a pass with decoding; not to be used where the second
    term is more than half (`MOST_INTERFERENCE`).

    >>> round(served_token_time(0.02, 0.1, 33, 128), 6)
    0.045
    """
    return step + (clients - 1) / output_tokens * prefill


MOST_INTERFERENCE = 0.5
"""Share of other requests' prefills in a token beyond which a closed form predicts nothing."""


@dataclass(frozen=True)
class Work:
    """What is asked of each sequence."""

    prompt: int
    output: int = 1
    """Tokens to generate, the prefill's own included."""
    prefix: int = 0
    """Leading prompt tokens found in a cache."""
    chunk: int | None = None
    """Tokens of a prefill pass; all at once if None."""
    block: int = BLOCK_TOKENS
    phase: Literal["prefill", "request", "served"] = "request"

    def __post_init__(self) -> None:
        """Refuse more decode steps than are summed."""
        if self.output > MOST_OUTPUT:
            what = f"more than {MOST_OUTPUT:,} tokens are not summed"
            raise RooflmError(what, "--output-tokens")

    @property
    def last_context(self) -> int:
        """Context of the last decode step; the first token needs none [tokens]."""
        return self.prompt + self.output - 1

    @property
    def reused(self) -> int:
        """Prompt tokens that need not be computed."""
        return int(reused_tokens(self.prompt, self.prefix, self.block))


MOST_PASSES = 10_000
"""Passes of one prefill: beyond it a chunk is taken for a slip."""
MOST_OUTPUT = 10**7
"""Tokens that a request generates: its decode steps are summed one by one."""
MOST_WORKS = 20_000
"""Prefills and requests of an answer: each takes about a millisecond by itself."""


def check_works(points: int) -> None:
    """Refuse more prefills or requests than are answered while somebody waits."""
    if points > MOST_WORKS:
        what = f"{points:,} prefills or requests are more than {MOST_WORKS:,}"
        fix = "Take a larger step, or a study (`rooflm study`), which tells how far it is."
        raise RooflmError(what, "--prompt, --batch", fix)


def prefill_passes(B: int, work: Work) -> list[list[Segment]]:
    """Cut the prefill of B prompts into passes; only the last computes logits."""
    start = work.reused
    chunk = work.chunk or work.prompt
    if (work.prompt - start) // chunk > MOST_PASSES:
        what = f"a prefill of more than {MOST_PASSES:,} passes is not summed"
        raise RooflmError(what, "--chunk", "Take larger chunks.")
    passes: list[list[Segment]] = []
    while start < work.prompt:
        new = min(chunk, work.prompt - start)
        last = start + new == work.prompt
        passes.append([Segment(B, new, start, head_rows=1 if last else 0)])
        start += new
    return passes


def prefill_row(case: Case, B: int, work: Work) -> dict[str, Any]:
    """Answer a prefill: the sums over its passes, and the memory of the fullest one."""
    if case.lecture:
        what = "the lecture's accounting is of decode steps"
        raise RooflmError(what, f"--phase {work.phase}", "Leave out --accounting lecture.")
    passes = prefill_passes(B, work)
    whole, case = case, slowest(case, passes[-1])
    ledgers = [case.ledger(p) for p in passes]
    parts = [
        figures(case, p, ops, tokens=B * p[0].new) | fullest_memory(whole, p)
        for p, ops in zip(passes, ledgers, strict=True)
    ]
    fullest = max(parts, key=lambda part: part["memory_bytes"])
    row = {k: v for k, v in fullest.items() if k.endswith("bytes")}
    for key in ("floor_s", "bound_s", "estimate_s", "bytes", "flops"):
        known = [part[key] for part in parts]
        row[key] = None if None in known else sum(known)
    computed = B * (work.prompt - work.reused)
    row |= estimates(case, row["estimate_s"], row["floor_s"], computed, prefill=True)
    basis = basis_of(case, row)
    seconds = row["time_s"] = row[f"{basis}_s"]
    computing, moving = (sum(s) for s in zip(*(limits(case, o) for o in ledgers), strict=True))
    sending = case.stages * sum(sending_time(ops) for ops in ledgers)
    computing, moving = case.stages * computing, case.stages * moving
    limit = case.limit[0]
    return {
        "batch": B,
        "context_tokens": work.prompt,
        "prompt_tokens": work.prompt,
        "reused_tokens": work.reused,
        "passes": len(passes),
        **row,
        "capacity_bytes": limit,
        "fits": row["memory_bytes"] <= limit,
        "ttft_s": seconds,
        "tokens_per_s": throughput(computed, seconds),
        "bound_tokens_per_s": throughput(computed, row["bound_s"]),
        "intensity_flops_per_byte": row["flops"] / row["bytes"],
        "weight_read_bytes": _moved(ledgers, "weight_bytes"),
        "cache_read_bytes": _moved(ledgers, "read_bytes"),
        "computing_s": computing,
        "moving_s": moving,
        "sending_s": sending,
        "regime": regime(computing, moving, sending),
        "basis": basis,
        "e2e_s": None,
        **devices_of(case),
    }


def _moved(ledgers: Sequence[Sequence[Operator]], kind: str) -> Q:
    return sum(total(op.count * getattr(op, kind) for op in ops) for ops in ledgers)


MANY_STEPS = 300
"""From this many decode steps on they are summed as an array."""


SUMMED = (
    "floor_s", "bound_s", "estimate_s", "bytes", "flops", "computing_s", "moving_s", "sending_s"
)  # fmt: skip
"""Figures of steps that a request adds up."""


def decode_total(case: Case, B: int, work: Work) -> dict[str, Q]:
    """Add up the decode steps of a request: contexts prompt + 1 to prompt + output - 1."""
    contexts: Any = range(work.prompt + 1, work.prompt + work.output)
    if len(contexts) >= MANY_STEPS:
        import numpy as np

        contexts = np.arange(work.prompt + 1, work.prompt + work.output, dtype=float)
        steps = [contexts]
    else:
        steps = list(contexts)
    case = slowest(case, decode(B, work.last_context))
    sums: dict[str, Q] = dict.fromkeys(SUMMED, 0)
    for S in steps:
        segments = decode(B, S)
        pass_ = case.ledger(segments)
        row = figures(case, segments, pass_, tokens=B)
        computing, moving = limits(case, pass_)
        row |= {
            "computing_s": case.stages * computing,
            "moving_s": case.stages * moving,
            "sending_s": case.stages * sending_time(pass_) * len(_each(S)),
        }
        for key in sums:
            value = row[key]
            sums[key] = None if value is None or sums[key] is None else sums[key] + _sum(value)
    return sums


def _each(S: Q) -> Any:
    """List the contexts of an array; messages are alike at all of them."""
    return S if hasattr(S, "sum") else (S,)


def _sum(value: Q) -> Q:
    return float(value.sum()) if hasattr(value, "sum") else value


def request_row(case: Case, B: int, work: Work) -> dict[str, Any]:
    """Answer a whole request of B sequences that start together."""
    first = prefill_row(case, B, work)
    further = decode_total(case, B, work)
    steps = work.output - 1
    row: dict[str, Any] = {
        key: None if None in (first[key], further[key]) else first[key] + further[key]
        for key in ("floor_s", "bound_s", "estimate_s")
    }
    row |= estimates(case, row["estimate_s"], row["floor_s"], B * work.output)
    basis = basis_of(case, row)
    ttft = first[f"{basis}_s"]
    itl = further[f"{basis}_s"] / steps if steps else None
    e2e = ttft if itl is None else end_to_end_time(ttft, itl, work.output)
    last = decode(B, work.last_context)
    slow = slowest(case, last)
    held = figures(slow, last, slow.ledger(last), tokens=B) | fullest_memory(case, last)
    fullest = max((first, held), key=lambda row: row["memory_bytes"])
    limit = case.limit[0]
    row = first | {k: fullest[k] for k in held if k.endswith("_bytes")} | row
    for key in ("bytes", "flops", "computing_s", "moving_s", "sending_s"):
        row[key] = first[key] + further[key]
    return row | {
        "context_tokens": work.last_context,
        "output_tokens": work.output,
        "fits": fullest["memory_bytes"] <= limit,
        "ttft_s": ttft,
        "itl_s": itl,
        "e2e_s": e2e,
        "time_s": e2e,
        "basis": basis,
        "tokens_per_s": throughput(B * work.output, e2e),
        "bound_tokens_per_s": throughput(B * work.output, row["bound_s"]),
        "intensity_flops_per_byte": row["flops"] / row["bytes"],
        "regime": regime(row["computing_s"], row["moving_s"], row["sending_s"]),
    }


def served_row(case: Case, clients: int, work: Work) -> dict[str, Any]:
    """Answer the mean time per output token of as many clients, each with one request at a time."""
    if case.basis == "bound" and case.constants is not None:
        what = "served tokens are estimated: prefills of others make no bound"
        raise RooflmError(what, "--basis", "Leave the option out.")
    mean = work.prompt + work.output // 2
    row = step_row(case, decode(clients, mean), clients, mean)
    alone = prefill_row(case, case.least_batch, work)
    token = None
    if None not in (row["estimate_s"], alone["estimate_s"]):
        token = served_token_time(row["estimate_s"], alone["estimate_s"], clients, work.output)
        if token - row["estimate_s"] > MOST_INTERFERENCE * token:
            token = None
    row |= estimates(case, token, row["floor_s"], clients)
    return row | {
        "prompt_tokens": work.prompt,
        "output_tokens": work.output,
        "time_s": token,
        "itl_s": token,
        "tokens_per_s": row["estimate_tokens_per_s"],
        "basis": "estimate",
    }


def sweep_requests(case: Case, batches: Sequence[int], works: Sequence[Work]) -> dict[str, Any]:
    """Answer prefills or whole requests for every batch and piece of work."""
    phase = works[0].phase
    check_works(len(batches) * len(works))
    answer_row = {"prefill": prefill_row, "request": request_row, "served": served_row}[phase]
    rows = [told(answer_row(case, B, work)) for work in works for B in batches]
    return frame(case, phase, rows, [r["context_tokens"] for r in rows])


SPLIT = ("computing_s", "moving_s", "sending_s")
"""Figures that a row only carries to tell its regime."""


def told(row: dict[str, Any]) -> dict[str, Any]:
    """Take away what a row only carries for further sums."""
    return {k: v for k, v in row.items() if k not in SPLIT}
