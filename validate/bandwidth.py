"""Read bandwidth of the device at hand: the ceiling of every memory-bound step."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any


def read_bandwidth(device: str = "cpu", buffer_bytes: int = 2**30, runs: int = 9) -> dict[str, Any]:
    """Stream a buffer through a sum and report bytes per second.

    device: a torch device, cpu or cuda; buffer_bytes: size of the buffer, which should be many
    times the last-level cache [B]; runs: timed repeats after one that is not timed [1].
    Returns the median and the slowest and fastest run [B/s] with the device's name. Left out:
    writes, and whatever the sum itself costs where arithmetic is slower than memory.
    Raises `ImportError` without torch.
    """
    import torch

    target = torch.device(device)
    # Random, not zeros: pages that were never written may all be one page.
    buffer = torch.rand(buffer_bytes // 4, dtype=torch.float32, device=target)
    wait: Callable[[], object] = torch.cuda.synchronize if target.type == "cuda" else lambda: None
    rates: list[float] = []
    for _ in range(runs + 1):
        wait()
        start = time.perf_counter()
        buffer.sum()
        wait()
        rates.append(buffer.numel() * buffer.element_size() / (time.perf_counter() - start))
    rates = rates[1:]
    cuda = target.type == "cuda"
    return {
        "device": torch.cuda.get_device_name(target) if cuda else "cpu",
        "torch": torch.__version__,
        "buffer_bytes": buffer.numel() * buffer.element_size(),
        "read_bytes_per_s": statistics.median(rates),
        "slowest_bytes_per_s": min(rates),
        "fastest_bytes_per_s": max(rates),
        "runs": runs,
    }
