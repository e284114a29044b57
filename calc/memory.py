"""What fills the memory of a device, and the most that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .model import Model, tensors
from .passes import Operator, Precision
from .readings import Q, as_whole, ceil, formula, minimum, total, widest
from .weights import tensor_bytes


def weights_bytes(model: Model, precision: Precision, norms: bool = True) -> Q:
    """Bytes that the weights take [B]; `norms=False` is the lecture's count."""
    held = total(
        times * tensor_bytes(tensor, precision)
        for times, tensor in tensors(model)
        if norms or tensor.part not in ("norms", "qk_norm")
    )
    return as_whole(held)


def activations_bytes(ledger: Sequence[Operator]) -> Q:
    """Bytes of the widest point of a pass: one operator's activations live at a time [B].

    Left out: allocator fragmentation and workspaces, which only a run can tell (a few per cent).
    """
    return widest(op.live_bytes for op in ledger)


def largest(holds: Callable[[int], bool], limit: int = 10**12) -> int:
    """Find the largest n in 0..limit for which a monotone condition holds, exactly.

    Doubles until it fails, then bisects: about 80 questions at the most. 0 is taken to hold.
    """
    low, high = 0, 1
    while high <= limit and holds(high):
        low, high = high, 2 * high
    high = min(high, limit + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


BLOCK_TOKENS = 16
"""Tokens of a cache block (vLLM's default)."""
BATCHED_TOKENS = 8192
"""Tokens that an engine computes in one pass at the most (vLLM's default on large GPUs)."""


@formula
def paged_window_tokens(W: Q, S: Q, batched: Q = BATCHED_TOKENS, block: Q = BLOCK_TOKENS) -> Q:
    """Tokens that a paged engine sets aside for a window layer: whole blocks and one more.

    W: window [tokens]; S: context [tokens]; batched: tokens of a pass, which must be held before
    older ones leave the window [tokens]; block: tokens of a block [tokens]. Returns [tokens].
    Source: vllm/v1/kv_cache_interface.py, SlidingWindowSpec.

    >>> paged_window_tokens(1024, 131072) // 16
    577
    """
    return (ceil(minimum(W - 1 + batched, S) / block) + 1) * block


@formula
def paged_chunk_tokens(C: Q, S: Q, batched: Q = BATCHED_TOKENS, block: Q = BLOCK_TOKENS) -> Q:
    """Tokens that a paged engine sets aside for a chunked layer: a chunk and a pass.

    C: chunk [tokens]; S: context [tokens]; batched: tokens of a pass [tokens]; block: tokens of a
    block [tokens]. Returns [tokens]. Source: vllm/v1/kv_cache_interface.py,
    ChunkedLocalAttentionSpec.

    >>> paged_chunk_tokens(8192, 131072) // 16
    1024
    """
    return ceil(minimum(C + batched, S) / block) * block


def reserved_cache_bytes(model: Model, precision: Precision, B: Q, S: Q) -> dict[str, Q]:
    """Bytes that a paged engine sets aside for B sequences of S tokens, two ways [B].

    paged: whole blocks, window layers as `paged_window_tokens`, chunked ones as
    `paged_chunk_tokens`; padded: window layers hold all
    tokens, as where one table of blocks serves every layer.
    """
    if model.denoises:
        return {"paged": 0, "padded": 0}
    whole = ceil(S / BLOCK_TOKENS) * BLOCK_TOKENS
    paged: list[Q] = []
    padded: list[Q] = []
    for g in model.groups:
        each, window = B * g.count, g.mixer.window_tokens
        if window is None:
            paged.append(each * g.mixer.cache_bytes(whole, precision))
            padded.append(paged[-1])
            continue
        token = each * g.mixer.token_bytes(precision)
        if g.mixer.kind == "chunked":
            held = minimum(whole, paged_chunk_tokens(window, S))
        else:
            held = minimum(whole + BLOCK_TOKENS, paged_window_tokens(window, S))
        paged.append(token * held)
        padded.append(token * whole)
    return {"paged": total(paged), "padded": total(padded)}
