"""Measure simulated traffic: the event clock with all its figures against a plain loop.

    python benchmarks/serving.py 1000000

prints the seconds and the peak memory of so many requests as JSON; `benchmarks/run.py` asks for it.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

from rooflm.calc.asked import case_of
from rooflm.calc.clock import Limits
from rooflm.calc.live import Pool, Run, run
from rooflm.calc.serve import Service, measure
from rooflm.calc.served import Slo
from rooflm.calc.step_cost import make_steps
from rooflm.calc.workload import Workload, open_loop, parse_law

PROMPT = 500
"""Mean tokens of a prompt."""


def make_service() -> Service:
    """Make a server of llama-3-8b on an H100, by its estimates: 26,800 blocks, 256 sequences."""
    case = case_of({"model": "llama-3-8b", "on": "h100-sxm"})
    steps = make_steps(case, "estimate")
    limits = Limits(26_800, tokens=2048, sequences=256, kinds=steps.kinds)
    return Service(case, "estimate", steps, Pool(steps, limits), {}, unit_bytes=1.0)


def make_work(rate: float, requests: int, output: int) -> Workload:
    """Draw requests of exponential lengths that come at random."""
    laws = (parse_law(f"exponential:{mean}", "--prompt") for mean in (PROMPT, output))
    return open_loop(rate, requests, *laws, seed=1)


def simulate(service: Service, work: Workload) -> tuple[Run, dict[str, Any]]:
    """Run a workload and take all figures of the answer out of it."""
    made = run(work, service.pool)
    return made, measure(service, made, 0, Slo(ttft_s=1.0))


def main() -> None:
    """Simulate so many requests once, and tell what it took."""
    service = make_service()
    work = make_work(15, int(sys.argv[1]), 250)
    simulate(service, make_work(15, 1000, 250))
    start = time.perf_counter()
    made, _ = simulate(service, work)
    seconds = time.perf_counter() - start
    assert made.complete
    # Linux tells kilobytes, macOS bytes.
    unit = 1 if sys.platform == "darwin" else 1024
    peak = unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"seconds": seconds, "peak_bytes": peak}))


if __name__ == "__main__":
    main()
