"""Ceilings of the device at hand: rates that no step can beat, and what a kernel costs to start.

Each is the best of several kernels over data many times the last-level cache, so that a step that
reads faster than its ceiling would be a find. Left out: what two kernels reach at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from .device import Timing, alternated, cache_bytes, captured, memory_free, timed
from .linears import dtype_of, make_linear
from .talk import reason
from .untyped import Tensor, torch

LEAST_BUFFER = 2**29
MOST_BUFFER = 2**31
CACHES = 16
"""A buffer is so many times the last-level cache."""
READS = 10
"""Reads that are timed together on a GPU."""
LAUNCHES = 1000
"""Kernels of a run that times their start."""
FORMATS = ("fp32", "bf16", "fp16", "int8", "fp8")
"""Formats whose products are timed, where the device has them."""
SIZES = {"cpu": (1024, 2048), "cuda": (4096, 8192)}
"""Sides of the square matrices that are multiplied."""
ABOVE = 1.02
"""Above the datasheet by more than this is absurd."""
UNFINISHED = 3.0
"""So many times the datasheet is no rate: the clock stopped before the device did."""


def buffer_bytes(device: Any, quick: bool = False) -> int:
    """Size of the buffer that is read: many caches, and a quarter of what is free at most [B].

    quick: four caches, of which a part may be found in the last one.
    """
    cache = cache_bytes(device) or 2**25
    wanted = 4 * cache if quick else max(LEAST_BUFFER, CACHES * cache)
    return min(wanted, MOST_BUFFER, max(2**20, memory_free(device) // 4)) // 2**20 * 2**20


@dataclass(frozen=True)
class Reader:
    """The fastest way to read a buffer, kept to be timed again beside every step."""

    run: Callable[[], object]
    kernel: str
    bytes: int
    """Bytes that a run reads [B]."""


def bandwidths(
    device: Any, runs: int = 9, size: int | None = None
) -> tuple[dict[str, Any], Reader]:
    """Measure the read bandwidth, and that of a copy (bytes read and written) [B/s].

    runs: timed repeats of each kernel; size: of the buffer [B]. Returns the figures, and what reads
    the buffer fastest.
    """
    wanted = buffer_bytes(device) if size is None else size
    # Random, not zeros: pages that were never written may all be one page.
    buffer = torch.rand(wanted // 4, dtype=torch.float32, device=device)
    read = int(buffer.numel() * 4)
    # Starting a read takes longer than its end is waited for: several reads in a row.
    times = READS if device.type == "cuda" else 1
    readers = {name: _repeated(run, times) for name, run in _readers(buffer).items()}
    timings = {name: timed(run, device, runs) for name, run in readers.items()}
    kernel = min(timings, key=lambda name: timings[name].median_s)
    half = buffer[: buffer.numel() // 2]
    whole, part = alternated(readers["sum"], _repeated(half.sum, times), device, runs)
    target = torch.empty_like(buffer)
    copied = timed(lambda: target.copy_(buffer), device, runs)
    figures: dict[str, Any] = {
        "read": rate(times * read, timings[kernel]) | {"kernel": kernel, "buffer_bytes": read},
        "copy": rate(2 * read, copied) | {"kernel": "copy", "buffer_bytes": 2 * read},
        "growth": whole.median_s / part.median_s,
    }
    return figures, Reader(readers[kernel], kernel, times * read)


def _repeated(run: Callable[[], object], times: int) -> Callable[[], object]:
    if times == 1:
        return run

    def several() -> None:
        for _ in range(times):
            run()

    return several


def _readers(buffer: Tensor) -> dict[str, Callable[[], object]]:
    """List ways to read a whole buffer once."""
    return {
        "sum": buffer.sum,
        "amax": lambda: torch.amax(buffer),
        "sum of 64-bit integers": buffer.view(torch.int64).sum,
    }


def rate(size: float, found: Timing, unit: str = "bytes_per_s") -> dict[str, Any]:
    """Turn the time of so many bytes or operations into a rate with its spread."""
    return {
        unit: size / found.median_s,
        f"low_{unit}": size / found.high_s,
        f"high_{unit}": size / found.low_s,
        "runs": found.runs,
    }


def matmul_rates(
    device: Any, names: Sequence[str] = FORMATS, runs: int = 7
) -> tuple[dict[str, Any], dict[str, str]]:
    """Measure the rate of matrix products in each format [FLOP/s], and say which have none.

    Returns the rates with their shapes, and the reason for each format that does not run.
    """
    found: dict[str, Any] = {}
    lacks: dict[str, str] = {}
    for name in names:
        best: dict[str, Any] | None = None
        for side in SIZES[device.type]:
            try:
                run = _product(name, side, device)
                timing = timed(run, device, runs, seconds=2.0)
            except Exception as e:  # torch has no such product here, or it is out of memory
                lacks[name] = reason(e)
                break
            found_rate = rate(2 * side**3, timing, "flops_per_s") | {"shape": [side] * 3}
            if best is None or found_rate["flops_per_s"] > best["flops_per_s"]:
                best = found_rate
            if timing.median_s > 1.0:
                # Far from any use: larger ones would take minutes.
                break
        if best is not None:
            found[name] = best
    return found, lacks


def _product(name: str, side: int, device: Any) -> Callable[[], object]:
    """Make a square product in a format."""
    a, b = (torch.rand(side, side, device=device) - 0.5 for _ in range(2))
    if name == "int8":
        left, right = ((t * 254).to(torch.int8) for t in (a, b))
        return lambda: torch._int_mm(left, right.t())
    if name == "fp8":
        left, right = (t.to(torch.float8_e4m3fn) for t in (a, b))
        one = torch.ones((), device=device)
        wide = torch.bfloat16
        return lambda: torch._scaled_mm(
            left, right.t(), one, one, out_dtype=wide, use_fast_accum=True
        )
    left, right = (t.to(dtype_of(name)) for t in (a, b))
    if device.type == "cpu":
        return partial(make_linear(right, name), left)
    return lambda: torch.mm(left, right)


def launch_times(device: Any, compile: bool = True, runs: int = 5) -> dict[str, Any]:
    """Measure what a kernel costs to start [s]: one by one, compiled, and in a CUDA graph."""
    tiny = torch.zeros(16, device=device)

    def many(step: Callable[[], object]) -> Timing:
        def run() -> None:
            for _ in range(LAUNCHES):
                step()

        return timed(run, device, runs, warm=1)

    found: dict[str, Any] = {"eager_s": many(lambda: tiny.add_(1.0)).median_s / LAUNCHES}
    if compile:
        try:
            compiled = torch.compile(_two_steps)
            compiled(tiny)
            found["compiled_s"] = many(lambda: compiled(tiny)).median_s / LAUNCHES
        except Exception as e:  # no compiler on this machine
            found["compiled_s"] = None
            found["compiled_lacks"] = reason(e)
    if device.type == "cuda":
        replay = captured(lambda: tiny.add_(1.0), device, LAUNCHES)
        found["graph_s"] = timed(replay, device, runs).median_s / LAUNCHES
    return found


def _two_steps(x: Tensor) -> Tensor:
    return x.add_(1.0).mul_(0.5)


def doubts(
    found: Mapping[str, Any], device: Any, datasheet_bytes_per_s: float | None = None
) -> list[str]:
    """Say which measured bandwidths cannot be what they seem.

    found: as `bandwidths` returns it; datasheet_bytes_per_s: of the device, None where it is not
    known [B/s].
    """
    read, said = found["read"], list[str]()
    reached, size, cache = read["bytes_per_s"], read["buffer_bytes"], cache_bytes(device)
    if cache is not None and size < 4 * cache:
        said.append(
            f"cache-resident: a buffer of {size / 1e6:,.0f} MB is not four times the last-level "
            f"cache of {cache / 1e6:,.0f} MB, so that it may be read from there"
        )
    if not 1.5 <= found["growth"] <= 3.0:
        said.append(
            f"a buffer of twice the size takes {found['growth']:.2f} times as long, not twice: "
            "something else than reading was timed, or the clock stopped before the device did"
        )
    if datasheet_bytes_per_s is not None and reached > ABOVE * datasheet_bytes_per_s:
        above = reached / datasheet_bytes_per_s
        why = (
            "the clock stopped before the device did"
            if above > UNFINISHED
            else "the buffer was in a cache, or the datasheet is that of another device"
        )
        said.append(f"the read bandwidth is {above:.2f} times that of the datasheet: {why}")
    return said
