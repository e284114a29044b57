"""Measure the budgets, each as a ratio of one run, and print them as a Markdown table.

    python benchmarks/run.py > docs/benchmarks.md

Both sides of a ratio run in turn, many times; the medians are compared, so that a noisy machine
slows both. Exits with 1 where a budget is missed.
"""

from __future__ import annotations

import compileall
import csv
import io
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from plain_server import serve
from serving import make_service, make_work, simulate

from rooflm import calc
from rooflm.calc.clock import TICKS
from rooflm.calc.memory import activations_bytes, weights_bytes
from rooflm.calc.model import Model, cache_elements, ledger
from rooflm.calc.passes import BF16, decode
from rooflm.calc.presets import find_machine, find_model
from rooflm.calc.study import blocks, prepare
from rooflm.calc.study_file import read_study
from rooflm.calc.study_stream import write_csv
from rooflm.calc.sweep import sweep
from rooflm.calc.timing import Rates, compulsory_bytes, flops, step_time
from rooflm.calc.typed import Counting, make_case
from rooflm.calc.workload import Workload
from rooflm.plots.kinds import draw
from rooflm.plots.style import image

H100 = Rates(flops_per_s=989e12, bytes_per_s=3.35e12)
POINTS = 1000
B = np.geomspace(1, 512, POINTS)[:, None]
S = np.linspace(1, 32_768, POINTS)[None, :]


@dataclass(frozen=True)
class Line:
    """A budget and what was measured."""

    what: str
    measured: str
    budget: str
    kept: bool


def alternate(a: Callable[[], Any], b: Callable[[], Any], runs: int) -> tuple[float, float]:
    """Median seconds of two functions, run in turn."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(runs):
        for function, taken in zip((a, b), times, strict=True):
            start = time.perf_counter()
            function()
            taken.append(time.perf_counter() - start)
    return statistics.median(times[0]), statistics.median(times[1])


def ratio(what: str, ours: float, theirs: float, budget: float, than: str) -> Line:
    """Hold seconds of ours against those of something else: at most so many times as many."""
    unit, scale, digits = ("s", 1, 1) if ours >= 1 else ("ms", 1e3, 0)
    each = [f"{scale * seconds:.{digits}f} {unit}" for seconds in (ours, theirs)]
    measured = f"{ours / theirs:.2f}x ({' against '.join(each)})"
    return Line(what, measured, f"<= {budget:g}x {than}", ours <= budget * theirs)


def start_up(words: Sequence[str], budget: float) -> Line:
    """Compare a cold command with the bare import of typer."""

    def run(command: Sequence[str]) -> Callable[[], object]:
        return lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    ours, bare = alternate(
        run([sys.executable, "-m", "rooflm.calc", *words]),
        run([sys.executable, "-c", "import typer"]),
        runs=21,
    )
    name = "`rooflm " + " ".join(words) + "`"
    return ratio(name, ours, bare, budget, "the bare import of typer")


def six_kinds() -> Model:
    """Put windows, chunks, latent attention and experts into one model of six kinds of layers."""
    parts = [find_model(name) for name in ("gemma-3-27b", "llama-4-scout", "deepseek-v3")]
    return replace(parts[0], groups=tuple(group for part in parts for group in part.groups))


def mesh_by_ledger(model: Model) -> tuple[Any, ...]:
    """Memory, bound, throughput and intensity on the mesh, by the package."""
    pass_ = ledger(model, decode(B, S))
    small = weights_bytes(model, BF16) + activations_bytes(pass_)
    bound = step_time(pass_, H100)
    return (
        small + B * (2 * cache_elements(model, S)),
        bound,
        B / bound,
        flops(pass_) / compulsory_bytes(pass_),
    )


def mesh_by_hand() -> tuple[Any, ...]:
    """Compute the same figures from a closed form factored by hand for this one architecture."""
    D, F, N, K, H, L, V = 5120.0, 13824.0, 40.0, 40.0, 128.0, 40.0, 32000.0
    peak, width = H100.flops_per_s, H100.bytes_per_s
    matrices = (D * (N + 2 * K) * H, N * H * D, 2 * D * F, D * F)
    new = 2 * 2 * K * H
    linear = sum(
        L * np.maximum(2 * B * m / peak, (2 * m + written * B) / width)
        for m, written in zip(matrices, (new, 0, 0, 0), strict=True)
    )
    linear = linear + np.maximum(2 * B * D * V / peak, 2 * D * V / width)
    linear = linear + (2 * D * np.minimum(B, V) + 2 * D * (2 * L + 1)) / width
    weights = 2 * (L * (sum(matrices) + 2 * D) + D * V + D)
    flops_linear = 2 * B * (L * sum(matrices) + D * V)
    bytes_linear = weights + L * new * B + 2 * D * np.minimum(B, V)
    tokens = B * S
    read = (4 * K * H * L) * tokens
    bound = linear + np.maximum((4 * N * H * L / peak) * tokens, read / width)
    live = B * np.max([2 * (2 * D + 3 * F), 2 * D + 4 * V, 2 * (D + (2 * N + 2 * K) * H)])
    memory = (weights + 2 * D * V + live) + read
    intensity = (flops_linear + (4 * N * H * L) * tokens) / (bytes_linear + read)
    return memory, bound, B / bound, intensity


def mesh() -> list[Line]:
    """Compare a million-point mesh with the closed form written by hand; they must agree."""
    dense, several = find_model("llama-2-13b"), six_kinds()
    for ours, theirs in zip(mesh_by_ledger(dense), mesh_by_hand(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    package, hand = alternate(lambda: mesh_by_ledger(dense), mesh_by_hand, runs=21)
    rate = POINTS * POINTS / package
    longer, _ = alternate(lambda: mesh_by_ledger(several), mesh_by_hand, runs=21)
    rate_of_six = POINTS * POINTS / longer
    return [
        ratio(
            "10^6-point mesh: memory, bound, throughput, intensity",
            package,
            hand,
            2,
            "a closed form factored by hand",
        ),
        Line("the same, points a second", f"{rate:.2g}", ">= 1e7", rate >= 1e7),
        Line("six kinds of layers", f"{rate_of_six:.2g}", ">= 5e6", rate_of_six >= 5e6),
    ]


MILLION = """
title: a million points
base: {model: llama-3-8b, on: h100-sxm, basis: bound}
grid: {batch: "1:1000", context: "10:10000:10"}
measure: [memory_bytes, bound_s, tokens_per_s, intensity_flops_per_byte, fits]
"""


def study() -> Line:
    """Compare a study of a million points with the standard library writing the same arrays."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "study.yaml"
        path.write_text(MILLION, "utf-8")
        ready = prepare(read_study(str(path)))
        columns = [work() for _, work in blocks(ready)]

        def ours() -> None:
            write_csv(ready, str(Path(folder) / "ours.csv"), False, lambda done, of: None)

        def theirs() -> None:
            with (Path(folder) / "theirs.csv").open("w", newline="") as file:
                writer = csv.writer(file)
                for block in columns:
                    lists = [c.tolist() if hasattr(c, "tolist") else c for c in block.values()]
                    writer.writerows(zip(*lists, strict=True))

        package, library = alternate(ours, theirs, runs=3)
    than = "the standard library writing the same arrays"
    return ratio("10^6-point study to CSV", package, library, 3, than)


def figure() -> Line:
    """Compare the figure of a sweep of 10^4 points with the same lines by matplotlib alone."""
    from matplotlib.figure import Figure

    case = make_case(find_model("llama-3-8b"), find_machine("h100-sxm"), Counting())
    answer = sweep(case, range(1, 2501), [1024, 2048, 4096, 8192])
    contexts = [[r for r in answer["rows"] if r["context_tokens"] == S] for S in
                (1024, 2048, 4096, 8192)]  # fmt: skip

    def ours() -> None:
        image(draw("sweep", answer), "png")

    def bare() -> None:
        drawing = Figure(figsize=(10.4, 4.4), dpi=150, layout="constrained")
        for ax, key in zip(drawing.subplots(1, 2), ("time_s", "tokens_per_s"), strict=True):
            for rows in contexts:
                ax.plot([r["batch"] for r in rows], [r[key] for r in rows], label="context")
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.legend()
        drawing.savefig(io.BytesIO(), format="png")

    package, library = alternate(ours, bare, runs=7)
    than = "the same lines by matplotlib alone"
    return ratio("figure of a sweep of 10^4 points", package, library, 2, than)


LOADS = (
    (250, 8000, 10, (1, 4, 15, 30, 38, 80)),
    (2000, 1500, 50, (0.1, 0.5, 2)),
)
"""Mean output, requests, how many times as fast, and requests a second: idle to overloaded."""
MOST_EVENTS = 3.5


def traffic() -> list[Line]:
    """Compare simulated traffic, all figures taken, with a loop over steps and sequences.

    Both give the same first and last tokens, to the tick, and the same mean between tokens.
    """
    service, lines = make_service(), list[Line]()
    cost, limits, most = service.pool.cost, service.pool.limits, 0.0
    for output, requests, times, rates in LOADS:
        for rate in rates:
            work = make_work(rate, requests, output)
            made, figures = simulate(service, work)
            first, finish, gaps = serve(work, cost, limits)
            assert (made.trace.first, made.trace.finish) == (first, finish)
            np.testing.assert_allclose(figures["itl_s"]["mean"], np.mean(gaps) / TICKS, rtol=1e-9)
            tokens = len(gaps) + requests
            if not made.trace.preemptions:
                most = max(most, figures["events"] / requests)

            def ours(work: Workload = work) -> None:
                simulate(service, work)

            def theirs(work: Workload = work) -> None:
                serve(work, cost, limits)

            package, loop = alternate(ours, theirs, runs=3)
            name = (
                f"traffic, {output} tokens out, {rate:g} requests a second: "
                f"{1e6 * package / requests:.0f} us a request"
            )
            than = f"a loop of {1e9 * loop / tokens:.0f} ns a token"
            lines.append(ratio(name, package, loop, 1 / times, than))
    what = "events of a request, none giving way"
    return [*lines, Line(what, f"{most:.2f}", f"<= {MOST_EVENTS:g}", most <= MOST_EVENTS)]


def large_traffic() -> list[Line]:
    """Compare a million requests with a hundred thousand, each in a process of its own."""

    def alone(requests: int) -> dict[str, float]:
        script = Path(__file__).with_name("serving.py")
        command = [sys.executable, str(script), str(requests)]
        return json.loads(subprocess.run(command, capture_output=True, check=True).stdout)

    small = sorted((alone(100_000) for _ in range(3)), key=lambda told: told["seconds"])
    large = alone(1_000_000)
    each = 10 * small[1]["seconds"]
    held = large["peak_bytes"] / 1e9
    return [
        ratio("10^6 simulated requests", large["seconds"], each, 1.15, "ten times 10^5"),
        Line("the same, peak memory", f"{held:.2f} GB", "<= 1 GB", held <= 1),
    ]


def main() -> int:
    """Print the table."""
    # An installed start finds bytecode, as that of typer is: where Python may not write any, each
    # run would compile the sources.
    compileall.compile_dir(Path(calc.__file__).parent, quiet=1)
    lines = [
        start_up(["--help"], 2),
        start_up(["sweep", "llama-2-13b", "--on", "h100-sxm", "--batch", "1,64,256"], 3),
        *mesh(),
        study(),
        figure(),
        *traffic(),
        *large_traffic(),
    ]
    print("# Benchmarks\n")
    print("Printed by `python benchmarks/run.py`. Ratios are medians of runs taken in turn on one")
    print("machine; the milliseconds are that machine's and only there for scale.\n")
    print("| what | measured | budget | kept |\n| :-- | --: | :-- | :-- |")
    for line in lines:
        print(f"| {line.what} | {line.measured} | {line.budget} | {'yes' if line.kept else 'no'} |")
    print(f"\nPython {platform.python_version()}, numpy {np.__version__}, {platform.machine()}.")
    return 0 if all(line.kept for line in lines) else 1


if __name__ == "__main__":
    sys.exit(main())
