"""Kernels of attention that torch offers, and which of them is fastest where it stands.

Queries of heads that share keys and values are rows of one small matrix, so that the cache is read
once for all of them: [B, K, G, H] against [B, K, S, H].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ..calc.errors import RooflmError
from .device import quickest
from .linears import compiled
from .untyped import Tensor, functional, torch

Kernel = Callable[..., Tensor]
"""Queries, keys, values and a scale to outputs; over prompts also what queries see."""

BLOCK = 512
"""Queries of a block of a prefill that is computed in blocks."""


def decode_matmul(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Two matrix products and a softmax."""
    k, v = k.to(q.dtype), v.to(q.dtype)
    return torch.softmax((q @ k.transpose(-1, -2)) * scale, dim=-1) @ v


def decode_sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """Scaled dot-product attention, the kernel of torch's choice."""
    return functional.scaled_dot_product_attention(q, k.to(q.dtype), v.to(q.dtype), scale=scale)


def _backend(name: str) -> Kernel:
    """Scaled dot-product attention by one kernel alone."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    backend = getattr(SDPBackend, name)

    def run(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
        with sdpa_kernel(backend):
            return decode_sdpa(q, k, v, scale)

    return run


def _flex(q: Tensor, k: Tensor, v: Tensor, scale: float) -> Tensor:
    """FlexAttention, which splits long caches over the chip."""
    from torch.nn.attention.flex_attention import flex_attention

    B, K, G, H = q.shape
    heads = q.reshape(B, K * G, 1, H)
    found: Any = flex_attention(heads, k.to(q.dtype), v.to(q.dtype), scale=scale, enable_gqa=True)
    return found.reshape(B, K, G, -1)


def decode_kernels(device: Any) -> dict[str, Kernel]:
    """List the kernels of decode attention that may run on a device."""
    found: dict[str, Kernel] = {"matmul and softmax": decode_matmul}
    if device.type != "cuda":
        return found | {"sdpa": decode_sdpa}
    for name in ("FLASH_ATTENTION", "EFFICIENT_ATTENTION", "CUDNN_ATTENTION"):
        found[f"sdpa {name.partition('_')[0].lower()}"] = _backend(name)
    # Compiled once for all points: a kernel for each shape would cost more than the run.
    found["flex, compiled"] = compiled(_flex)
    found["matmul and softmax, compiled"] = compiled(decode_matmul)
    return found


def prefill_sdpa(q: Tensor, k: Tensor, v: Tensor, scale: float, span: Span | None = None) -> Tensor:
    """Causal attention of a whole prompt: [B, N, T, H] against [B, K, T, H]; windows by blocks."""
    if span is not None:
        return prefill_blocks(q, k, v, scale, span)
    return functional.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )


Span = Callable[[int, int], "tuple[int, Callable[[Tensor, Tensor], Tensor]]"]
"""For queries from one position to another: the first key, and which pairs of positions meet."""


def window_span(window: int) -> Span:
    """Queries see the last `window` tokens, their own included."""

    def span(first: int, last: int) -> tuple[int, Callable[[Tensor, Tensor], Tensor]]:
        return max(0, first - window + 1), lambda i, j: (j <= i) & (j > i - window)

    return span


def chunk_span(chunk: int) -> Span:
    """Queries do not look out of their chunk."""

    def span(first: int, last: int) -> tuple[int, Callable[[Tensor, Tensor], Tensor]]:
        return first // chunk * chunk, lambda i, j: (j <= i) & (j // chunk == i // chunk)

    return span


def _causal_span(first: int, last: int) -> tuple[int, Callable[[Tensor, Tensor], Tensor]]:
    return 0, lambda i, j: j <= i


def prefill_blocks(
    q: Tensor, k: Tensor, v: Tensor, scale: float, span: Span | None = None
) -> Tensor:
    """Attention of a whole prompt by blocks of queries, each with the keys that it may see."""
    span = span or _causal_span
    B, N, T, H = q.shape
    K = k.shape[1]
    made: list[Tensor] = []
    for first in range(0, T, BLOCK):
        last = min(first + BLOCK, T)
        start, meets = span(first, last)
        queries = q[:, :, first:last].reshape(B, K, (N // K) * (last - first), H)
        scores = (queries @ k[:, :, start:last].transpose(-1, -2)) * scale
        i = torch.arange(first, last, device=q.device)[:, None]
        j = torch.arange(start, last, device=q.device)[None, :]
        shaped = scores.view(B, K, N // K, last - first, last - start)
        shaped = shaped.masked_fill(~meets(i, j), float("-inf"))
        weights = torch.softmax(shaped, dim=-1).reshape(scores.shape).to(v.dtype)
        out = weights @ v[:, :, start:last]
        made.append(out.reshape(B, N, last - first, v.shape[-1]))
    return torch.cat(made, dim=2)


def fastest(
    kernels: Mapping[str, Kernel], calls: Sequence[tuple[Tensor, Tensor, Tensor, float]]
) -> str:
    """Name the kernel of decode attention that is fastest over several layers' calls.

    calls: queries, keys, values and scale of layers that are beyond the caches together. A kernel
    whose outputs differ from those of two plain products in fp32 is not taken.
    """
    q, k, v, scale = calls[0]
    right = decode_matmul(q.float(), k.float(), v.float(), scale)

    def ready(kernel: Kernel) -> Callable[[], object]:
        _same(kernel(q, k, v, scale), right)
        return lambda: [kernel(*call) for call in calls]

    return quickest(
        {n: partial(ready, kernel) for n, kernel in kernels.items()}, q.device, "attention"
    )


def prefill_kernels(span: Span | None) -> dict[str, Kernel]:
    """List the kernels of attention over prompts; windows are left out of by blocks alone."""
    blocks: dict[str, Kernel] = {"matmul in blocks": prefill_blocks}
    return blocks if span is not None else {"sdpa, causal": prefill_sdpa} | blocks


def fastest_prefill(
    kernels: Mapping[str, Kernel], q: Tensor, k: Tensor, v: Tensor, scale: float
) -> str:
    """Name the kernel of attention over prompts that is fastest, of those that agree."""
    few = [t[:, :, :BLOCK].contiguous() for t in (q, k, v)]
    right = prefill_blocks(few[0].float(), few[1].float(), few[2].float(), scale)

    def ready(kernel: Kernel) -> Callable[[], object]:
        _same(kernel(*few, scale), right)
        return lambda: kernel(q, k, v, scale)

    ways = {n: partial(ready, kernel) for n, kernel in kernels.items()}
    return quickest(ways, q.device, "attention over prompts")


def _same(found: Tensor, right: Tensor) -> None:
    off = float((found.float() - right).abs().amax())
    if not off <= 0.05 * float(right.abs().amax()) + 1e-3:
        raise RooflmError(f"its outputs are off by {off:.3g}")
