"""What fills the memory of a device, and the most that fits."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .model import Model, tensors
from .passes import Operator, Precision
from .readings import Q, as_whole, ceil, floor, formula, is_zero, minimum, total, widest
from .sharing import common_once, common_window_tokens
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


def largest_near(holds: Callable[[int], bool], guess: int, limit: int) -> int:
    """Find what `largest` finds, with fewer questions where a guess is close.

    guess: where the search begins; limit: the largest n that is asked about.
    """
    low, step = min(max(guess, 1), limit), 1
    if holds(low):
        high = limit + 1
        while low < limit:
            beyond = min(low + step, limit)
            if not holds(beyond):
                high = beyond
                break
            low, step = beyond, 2 * step
    else:
        high = low
        while True:
            low = max(high - step, 0)
            if low == 0 or holds(low):
                break
            high, step = low, 2 * step
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


def reserved_cache_bytes(
    model: Model, precision: Precision, B: Q, S: Q, shared: Q = 0
) -> dict[str, Q]:
    """Bytes that a paged engine sets aside for B sequences of S tokens, two ways [B].

    paged: whole blocks, window layers as `paged_window_tokens`, chunked ones as
    `paged_chunk_tokens`; padded: window layers hold all
    tokens, as where one table of blocks serves every layer. shared: leading tokens that are the
    same in all sequences, of which whole blocks are set aside once [tokens].
    """
    if model.denoises:
        return {"paged": 0, "padded": 0}
    whole = ceil(S / BLOCK_TOKENS) * BLOCK_TOKENS
    common = 0
    if not is_zero(shared):
        common = floor(minimum(shared, S - 1) / BLOCK_TOKENS) * BLOCK_TOKENS
    paged: list[Q] = []
    padded: list[Q] = []
    for g in model.groups:
        window = g.mixer.window_tokens
        if window is None:
            same = 0 if is_zero(common) else g.mixer.cache_bytes(common, precision)
            paged.append(g.count * common_once(B, g.mixer.cache_bytes(whole, precision), same))
            padded.append(paged[-1])
            continue
        token = g.count * g.mixer.token_bytes(precision)
        if g.mixer.kind == "chunked":
            held = minimum(whole, paged_chunk_tokens(window, S))
        else:
            held = minimum(whole + BLOCK_TOKENS, paged_window_tokens(window, S))
        same = 0 if is_zero(common) else common_window_tokens(whole, held, common)
        paged.append(token * common_once(B, held, same))
        padded.append(token * common_once(B, whole, common))
    return {"paged": total(paged), "padded": total(padded)}
