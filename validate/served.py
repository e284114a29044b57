"""Simulated traffic beside published serving rows of one device: time per token, first token.

The rows state lengths, clients and engine. Requests, how lengths are drawn and the tokens of a step
are those of the scripts that made them; memory for caches is assumed. None of it is fitted to them
(`Protocol` and the constants here). Constants of engines are those that had not seen the row, as in
`accuracy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from ..calc.case import Case
from ..calc.clock import First, Limits
from ..calc.engines import constants_of, find_engine
from ..calc.errors import RooflmError
from ..calc.estimate import Constants
from ..calc.live import Pool, Run, run
from ..calc.presets import find_machine
from ..calc.served import latencies
from ..calc.step_cost import cache_room, make_limits, make_steps
from ..calc.workload import closed_loop, parse_law
from .accuracy import unseen
from .fits import engine_of, members, sets
from .predict import Prediction, case_of, predict
from .published import Row, rows

BUDGET = 8192
"""Tokens of a step: vLLM's and SGLang's default on these GPUs, and InferenceX's setting of vLLM."""
BESIDE_PROMPT = 1500
"""Tokens of a step of TensorRT-LLM beyond one prompt and a token of each client, as aiconfigurator
configures it: src/aiconfigurator/generator/backends/trtllm.py at 77cd250 (ai-dynamo)."""
BLOCK = 16
"""Tokens of a cache block."""
GPU_SHARE = 0.9
"""Of the memory, for weights, activations and caches: vLLM's default, InferenceX's setting.
TensorRT-LLM takes 0.9 of what weights leave."""
SEQUENCES = 1024
"""Sequences at once, or the clients where they are more: none of these rows is held up by it."""
FIRST: Mapping[str, First] = {"sglang": "prefill"}
"""What goes first where it is not decoding with prompts in chunks. SGLang computes prompts in
steps of their own (`--enable-mixed-chunk` is off). TensorRT-LLM mixes, but whole prompts: chunks
are off there, which is not simulated."""
STAND_IN = "vllm"
"""Engine whose constants stand for those that SGLang has not got."""

PLAUSIBLE = 0.75
"""Largest share of its prefill rate that a row can honestly imply; published shares end at 0.7."""


@dataclass(frozen=True)
class Protocol:
    """How the clients of a benchmark behave: all start at once, nothing is cut as warm-up."""

    name: str
    inferencex: int
    """Requests of each client, rows of InferenceX."""
    others: int
    ratio: str = ""
    """Least length as a share of the nominal one, of rows of InferenceX; all alike if empty."""
    think_s: float = 0.0
    """From an answer to the next request of its client [s]."""

    def rounds(self, row: Row) -> int:
        """Requests of each client."""
        return self.inferencex if is_inferencex(row) else self.others

    def law(self, row: Row, tokens: int) -> str:
        """Law of lengths, as `parse_law` reads it."""
        return f"{tokens}@{self.ratio}" if self.ratio and is_inferencex(row) else f"{tokens}"


REACTION_S = 1e-3
"""What a client takes to ask again. No source has it, but it is not 0: with 0 a request would join
the step that begins as the answer ends. Any value between 0 and a step has it wait for one."""
STATED = Protocol(
    "10 a client, InferenceX lengths from 0.8 of the nominal one, 1 ms between", 10, 10, "0.8",
    REACTION_S,
)  # fmt: skip
"""What rows are scored with, as the tools of both sources send it: InferenceX
`--num-prompts $((CONC * 10))` with `--random-range-ratio` 0.8
(github.com/SemiAnalysisAI/InferenceX, benchmarks/70b_fp8_b200_trt_slurm.sh at a267b4b and
.github/workflows/full-sweep-tmpl.yml at 0108667), aiconfigurator `--request-count` of 10 times the
concurrency and lengths without deviation, after twice it as warm-up (github.com/ai-dynamo/
aiconfigurator, src/aiconfigurator/eval/benchmarks/genai_perf_runner.py at 5e16187)."""
AT_ONCE = Protocol("the same, nothing between", 10, 10, "0.8")
ALIKE = Protocol("10 a client, lengths alike, nothing between", 10, 10)
FEW = Protocol("6 a client (InferenceX) and 3 (others), lengths alike, nothing between", 6, 3)
"""An earlier model came closest to first tokens of these rows with it, and rows were scored with it
until the scripts were read."""
PROTOCOLS = (STATED, AT_ONCE, ALIKE, FEW)


def is_inferencex(row: Row) -> bool:
    """Tell whether a row is of InferenceX's database; the others are of aiconfigurator's team."""
    return (row.note or "").startswith("inferencex")


def cache_format(row: Row) -> str | None:
    """Name the cache's format: as stated, else fp8 beside weights of 8 or 4 bits.

    InferenceX's scripts state it for all of its rows; aiconfigurator takes it so by default.
    """
    weights = row.weights or ""
    return row.kv or ("fp8" if "fp8" in weights or "fp4" in weights else None)


def step_tokens(row: Row) -> int:
    """Count the tokens that a step may have.

    InferenceX gives TensorRT-LLM 20,000 for gpt-oss (benchmarks/gptoss_fp4_b200_trt_slurm.sh at
    0d8d7d1) and 16,384 for Llama (70b_fp8_b200_trt_slurm.sh at a267b4b, 70b_fp4_b200_trt_docker.sh
    at c2faa3d).
    """
    if row.engine != "tensorrt-llm":
        return BUDGET
    if is_inferencex(row):
        return 20_000 if row.model == "gpt-oss-120b" else 16_384
    return (row.concurrency or 1) + (row.prompt or 1) + BESIDE_PROMPT


@dataclass(frozen=True)
class Replay:
    """A row and what a simulation of it found."""

    row: Row
    tpot_s: float
    """Mean over requests of (last - first token) / (tokens - 1) [s]."""
    ttft_s: float
    """Mean over requests of first token - arrival [s]."""
    closed_s: float
    """Time per token by the formula, as `accuracy` has it: cache as stated, else 16 bits [s]."""
    same_cache_s: float
    """The same with the cache of the simulation [s]."""
    prefill_share: float
    """Prompt tokens a second that the measurement implies, over those of an estimated prefill."""
    pool_share: float
    """Caches of all clients at full length, over what the pool holds."""
    preemptions: int
    stand_in: bool
    """The constants are those of another engine."""

    @property
    def tpot_error(self) -> float:
        """Simulated / measured - 1."""
        return self.tpot_s / (self.row.value / 1e3) - 1

    @property
    def ttft_error(self) -> float:
        """Simulated / measured - 1."""
        return self.ttft_s / _ttft(self.row) - 1

    @property
    def closed_error(self) -> float:
        """Formula / measured - 1."""
        return self.closed_s / (self.row.value / 1e3) - 1

    @property
    def same_cache_error(self) -> float:
        """Formula with the cache of the simulation / measured - 1."""
        return self.same_cache_s / (self.row.value / 1e3) - 1

    @property
    def doubt(self) -> str:
        """Say why the row is none to be held to; "" where it is one."""
        if self.prefill_share > PLAUSIBLE:
            return f"implies {100 * self.prefill_share:.0f} % of the prefill rate"
        if self.pool_share > 1:
            return f"caches of {100 * self.pool_share:.0f} % of the pool"
        return ""


def served_rows() -> list[Row]:
    """List the published rows of one server on one device.

    Rows whose experts are spread over several devices are not of one, whatever their count says.
    """
    alone = [r for r in rows() if r.kind == "served" and r.devices == 1]
    return [r for r in alone if r.moe_tp == r.moe_ep == r.attention_dp == 1]


@cache
def replays(protocol: Protocol = STATED) -> tuple[Replay, ...]:
    """Simulate every row."""
    known = _unseen_constants()
    return tuple(
        replay(row, known.get(row.id) or _constants(row), protocol) for row in served_rows()
    )


@cache
def _unseen_constants() -> dict[str, Constants]:
    """Find the constants that had not seen a row, of the rows that constants are fitted on."""
    predictions: list[Prediction] = []
    for row in rows():
        if row.kind == "served" and row.excluded is None:
            try:
                predictions.append(predict(row))
            except RooflmError:
                continue
    return {
        p.row.id: constants
        for chosen in sets()
        if any(chosen.takes(p.row) for p in predictions)
        for p, constants, _ in unseen(chosen, members(chosen, predictions))
    }


def _constants(row: Row) -> Constants:
    """Take the constants that were fitted on all rows: this one was not among them."""
    name = engine_of(row) or STAND_IN
    found, why = constants_of(name, find_engine(name), find_machine(row.hardware or ""))
    if found is None:
        raise RooflmError(why, row.id)
    return found


def replay(row: Row, constants: Constants, protocol: Protocol = STATED) -> Replay:
    """Simulate a row, and set the formula beside it."""
    clients, prompt, generated = row.concurrency or 1, row.prompt or 1, row.generated or 1
    cached = replace(row, kv=cache_format(row))
    case = replace(case_of(cached), constants=constants, basis="estimate", gpu_share=GPU_SHARE)
    made, limits = _simulated(case, row, protocol)
    times = latencies(made)
    formula, alone = predict(row), predict(cached)
    prefill = alone.passes[1]
    prefill_s = replace(alone, passes=(replace(prefill, runs=1),)).estimate_s(constants)
    implied = clients * prompt / (_ttft(row) + generated * row.value / 1e3)
    return Replay(
        row=row,
        tpot_s=float(times.itl.mean()),
        ttft_s=float(times.ttft.mean()),
        closed_s=formula.estimate_s(constants),
        same_cache_s=alone.estimate_s(constants),
        prefill_share=implied / (prompt / prefill_s),
        pool_share=clients * made.servers[0].hold(prompt + generated - 1) / limits.pool,
        preemptions=sum(made.trace.preemptions.values()),
        stand_in=engine_of(row) is None,
    )


def _simulated(case: Case, row: Row, protocol: Protocol) -> tuple[Run, Limits]:
    clients = row.concurrency or 1
    most = max(SEQUENCES, clients)
    steps = make_steps(case, "estimate")
    # Activations of so many rows are set aside, as an engine measures them when it starts.
    tokens = step_tokens(row)
    room = cache_room(case, tokens, clients)["cache_pool_bytes"]
    like = Limits(
        pool=0, block=BLOCK, tokens=tokens, sequences=most, first=FIRST.get(row.engine, "decode")
    )
    limits = make_limits(steps, room, like)
    prompt, output = (
        parse_law(protocol.law(row, length or 1), row.id) for length in (row.prompt, row.generated)
    )
    work = closed_loop(
        clients, protocol.rounds(row), prompt, output, seed=0, think=protocol.think_s
    )
    return run(work, Pool(steps, limits)), limits


def _ttft(row: Row) -> float:
    if row.ttft_ms is None:
        raise RooflmError("no time to first token was published", row.id)
    return row.ttft_ms / 1e3


def totals(found: Iterable[Replay]) -> dict[str, Any]:
    """Sum up: mean and median sizes of errors, and how many first tokens are within a factor of 2.

    Mean sizes of errors are of times per token; medians are said to be.
    """
    every = list(found)

    def sizes(error: Callable[[Replay], float]) -> Any:
        return np.abs([error(one) for one in every])

    ratios = np.array([1 + one.ttft_error for one in every])
    return {
        "rows": len(every),
        "tpot": float(sizes(lambda one: one.tpot_error).mean()),
        "tpot_median": float(np.median(sizes(lambda one: one.tpot_error))),
        "closed": float(sizes(lambda one: one.closed_error).mean()),
        "same_cache": float(sizes(lambda one: one.same_cache_error).mean()),
        "ttft_median": float(np.median(sizes(lambda one: one.ttft_error))),
        "ttft_within_two": float(((ratios >= 0.5) & (ratios <= 2)).mean()),
    }


EVERY, PLAIN, WITH_SGLANG = (
    "all with constants of their engine",
    "of these, plausible and within the pool",
    "all, SGLang with vLLM's constants",
)
"""Rows that figures are told of."""


def scopes(found: Sequence[Replay]) -> dict[str, list[Replay]]:
    """Pick the rows that figures are told of."""
    own = [one for one in found if not one.stand_in]
    return {EVERY: own, PLAIN: [one for one in own if not one.doubt], WITH_SGLANG: list(found)}


def groups(found: Sequence[Replay]) -> dict[tuple[str, str, str], list[Replay]]:
    """Group rows by model, GPU and engine."""
    made: dict[tuple[str, str, str], list[Replay]] = {}
    for one in sorted(found, key=lambda r: (r.row.model, r.row.hardware, r.row.engine)):
        key = (str(one.row.model), str(one.row.hardware), one.row.engine)
        made.setdefault(key, []).append(one)
    return made


def goals(found: Sequence[Replay]) -> list[tuple[str, float, float]]:
    """Tell what was asked for before anything was scored: of what, at most, and what is reached."""
    every, plain = (totals(scopes(found)[name]) for name in (EVERY, PLAIN))
    token = "mean error of the time per token"
    return [
        (f"{token}, all rows", 0.15, every["tpot"]),
        (f"{token}, plausible rows", 0.10, plain["tpot"]),
        (f"{token}, all rows, beyond the formula's", 0.02, every["tpot"] - every["closed"]),
        ("median error of the time to first token", 0.40, every["ttft_median"]),
        ("first tokens beyond a factor of two", 0.40, 1 - every["ttft_within_two"]),
    ]
