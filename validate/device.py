"""The device at hand: what it is, what state it is in, and how long something takes on it."""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..calc.errors import Exit, RooflmError
from .talk import reason

INSTALL = "pip install 'rooflm[validate]'"

PRESETS = {
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "NVIDIA H200": "h200-sxm",
    "NVIDIA B200": "b200-sxm",
    "NVIDIA L4": "l4",
    "NVIDIA L40S": "l40s",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
    "NVIDIA GeForce RTX 3090": "rtx-3090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "NVIDIA GeForce RTX 5090": "rtx-5090",
}
"""Presets of devices by the name that their driver reports."""


CALLS = 5
"""Calls of a kernel that is compared with others in one graph."""


@dataclass(frozen=True)
class Timing:
    """How long a run takes: the middle and the spread of several."""

    median_s: float
    low_s: float
    """Tenth percentile [s]."""
    high_s: float
    """Ninetieth percentile [s]."""
    runs: int

    @property
    def spread(self) -> float:
        """Share of the median between the two percentiles [1]."""
        return (self.high_s - self.low_s) / self.median_s


def find_device(name: str) -> Any:
    """Find a torch device; raises `RooflmError` with exit code 3 where torch or it is missing."""
    try:
        import torch
    except ImportError:
        what = "measuring needs torch"
        raise RooflmError(what, "", f"Install it: {INSTALL}.", Exit.MISSING) from None
    if name == "cuda" and not torch.cuda.is_available():
        why = "no driver, or one that is too old" if torch.version.cuda else "torch has no CUDA"
        raise RooflmError(
            f"torch sees no CUDA device: {why}", "--device", "Measure --device cpu.", Exit.MISSING
        )
    return torch.device(name)


def synchronize(device: Any) -> None:
    """Wait until the device has done everything that it was given."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)


def timed(
    run: Callable[[], object],
    device: Any,
    runs: int = 9,
    warm: int = 2,
    seconds: float | None = None,
) -> Timing:
    """Time a function on a device, each run from an idle device to an idle device.

    run: what is timed; runs: how often, fewer once `seconds` have passed, and three at least; warm:
    runs before, which are not timed. On CUDA the device's own clock is read.
    """
    for _ in range(warm):
        run()
    synchronize(device)
    found: list[float] = []
    start = time.perf_counter()
    while len(found) < runs:
        found.append(_once(run, device))
        if seconds is not None and len(found) >= 3 and time.perf_counter() - start > seconds:
            break
    return timing(found)


def alternated(
    run: Callable[[], object],
    other: Callable[[], object],
    device: Any,
    runs: int = 9,
    warm: int = 2,
    seconds: float | None = None,
) -> tuple[Timing, Timing]:
    """Time two functions in turns, so that both see the same device: it may be another one soon.

    The arguments are those of `timed`. Returns the times of `run` and of `other`.
    """
    for _ in range(warm):
        run()
        other()
    synchronize(device)
    found: list[float] = []
    beside: list[float] = []
    start = time.perf_counter()
    while len(found) < runs:
        beside.append(_once(other, device))
        found.append(_once(run, device))
        if seconds is not None and len(found) >= 3 and time.perf_counter() - start > seconds:
            break
    return timing(found), timing(beside)


def _once(run: Callable[[], object], device: Any) -> float:
    if device.type != "cuda":
        before = time.perf_counter()
        run()
        return time.perf_counter() - before
    import torch

    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) / 1e3


def timing(seconds: Sequence[float]) -> Timing:
    """Summarise runs by their median and their tenth and ninetieth percentile."""
    ordered = sorted(seconds)
    return Timing(
        statistics.median(ordered),
        _quantile(ordered, 0.1),
        _quantile(ordered, 0.9),
        len(ordered),
    )


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def quickest(
    candidates: Mapping[str, Callable[[], Callable[[], object]]], device: Any, what: str
) -> str:
    """Name the quickest of several ways to do the same.

    candidates: what makes each ready, checks it, and returns what is timed; one that raises is not
    taken, since a kernel may lack what a device or a shape needs. what: said where none runs, which
    raises `RooflmError` with the last reason.
    """
    best, least, why = "", float("inf"), "none was tried"
    for name, ready in candidates.items():
        try:
            seconds = timed(_as_in_a_step(ready(), device), device, runs=3, warm=1).median_s
        except Exception as e:
            why = f"{name}: {reason(e)}"
            continue
        if seconds < least:
            best, least = name, seconds
    if not best:
        raise RooflmError(f"torch has no kernel for {what} on this device: {why}")
    return best


def _as_in_a_step(run: Callable[[], object], device: Any) -> Callable[[], object]:
    """Time kernels of CUDA in a graph, as the step will run; others as they are."""
    return captured(run, device, CALLS) if device.type == "cuda" else run


def captured(run: Callable[[], object], device: Any, calls: int = 1) -> Callable[[], object]:
    """Capture so many calls in a CUDA graph and return what replays it.

    Raises what the capture raises, on the stream that was current before: one that fails leaves its
    own behind.
    """
    import torch

    usual = torch.cuda.current_stream(device)
    side = torch.cuda.Stream(device)
    side.wait_stream(usual)
    with torch.cuda.stream(side):
        for _ in range(3):
            run()
    usual.wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            for _ in range(calls):
                run()
    except Exception:
        torch.cuda.set_stream(usual)
        synchronize(device)
        raise
    return graph.replay


def identity(device: Any) -> dict[str, Any]:
    """Describe a device and the software on it."""
    import torch

    found: dict[str, Any] = {
        "device": device.type,
        "name": device_name(device),
        "memory_bytes": memory_total(device),
        "cache_bytes": cache_bytes(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    if device.type == "cuda":
        facts = _facts(device)
        found |= {
            "processors": facts.multi_processor_count,
            "compute_capability": f"{facts.major}.{facts.minor}",
            "cuda": torch.version.cuda,
            **_smi({"driver": "driver_version"}),
        }
    else:
        found |= {"processors": os.cpu_count(), "threads": torch.get_num_threads()}
    return found


def state(device: Any) -> dict[str, Any]:
    """Read clocks, power and temperature; null where nothing tells them."""
    if device.type == "cuda":
        return {key: _number(text) for key, text in _smi(SMI_STATE).items()}
    clocks = [float(line.partition(":")[2]) for line in _cpu_lines("cpu MHz")]
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else None
    return {
        "clock_mhz": statistics.median(clocks) if clocks else None,
        "power_cap_w": None,
        "load": load,
    }


def device_name(device: Any) -> str:
    """Name a device as its driver, or the system, does."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    names = [line.partition(":")[2].strip() for line in _cpu_lines("model name")]
    return f"{names[0]}, {os.cpu_count()} cores" if names else platform.processor() or "CPU"


def _facts(device: Any) -> Any:
    import torch

    cuda: Any = torch.cuda
    return cuda.get_device_properties(device)


def memory_total(device: Any) -> int:
    """Memory of a device [B]."""
    if device.type == "cuda":
        return int(_facts(device).total_memory)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def memory_free(device: Any) -> int:
    """Memory of a device that is not used [B]."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.mem_get_info(device)[0])
    for line in _lines(Path("/proc/meminfo")):
        if line.startswith("MemAvailable"):
            return 1024 * int(line.split()[1])
    return memory_total(device)


def cache_bytes(device: Any) -> int | None:
    """Last-level cache of a device; None where nothing tells it [B]."""
    if device.type == "cuda":
        return int(_facts(device).L2_cache_size)
    folder = Path("/sys/devices/system/cpu/cpu0/cache")
    sizes: list[int] = []
    for path in folder.glob("index*/size"):
        text = "".join(_lines(path)).strip()
        unit = {"K": 2**10, "M": 2**20, "G": 2**30}.get(text[-1:])
        if unit is not None and text[:-1].isdigit():
            sizes.append(unit * int(text[:-1]))
    return max(sizes, default=None)


def held_now(device: Any) -> int | None:
    """Memory that this process holds on a device now; None where nothing tells it [B]."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.memory_allocated(device))
    return _status("VmRSS")


def peak_bytes(device: Any) -> int | None:
    """Most memory since `reset_peak` [B]."""
    if device.type == "cuda":
        import torch

        return int(torch.cuda.max_memory_allocated(device))
    return _status("VmHWM")


def reset_peak(device: Any) -> bool:
    """Begin to watch the most memory anew; False where that cannot be."""
    if device.type == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        return True
    try:
        Path("/proc/self/clear_refs").write_text("5", "ascii")
    except OSError:
        return False
    return True


def _status(key: str) -> int | None:
    for line in _lines(Path("/proc/self/status")):
        if line.startswith(key):
            return 1024 * int(line.split()[1])
    return None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []


def _cpu_lines(key: str) -> list[str]:
    return [line for line in _lines(Path("/proc/cpuinfo")) if line.startswith(key)]


SMI_STATE = {
    "clock_mhz": "clocks.sm",
    "memory_clock_mhz": "clocks.mem",
    "power_w": "power.draw",
    "power_cap_w": "power.limit",
    "temperature_c": "temperature.gpu",
}
"""What is asked of the driver's own tool about the state of a device."""


def _smi(fields: Mapping[str, str]) -> dict[str, str | None]:
    """Ask the driver's own tool; nulls where there is none."""
    query = ",".join(fields.values())
    # The driver's tool counts all devices, torch only the visible ones.
    first = os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0] or "0"
    command = [
        "nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", f"--id={first}",
    ]  # fmt: skip
    try:
        ran = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(fields)
    cells = [cell.strip() or None for cell in ran.stdout.strip().split(",")]
    told = cells if len(cells) == len(fields) else [None] * len(fields)
    return dict(zip(fields, told, strict=True))


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None
