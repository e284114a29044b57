"""What rooflm predicts for a published row: floor, bound and, with constants, an estimate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from ..calc.case import Case
from ..calc.communication import Communication, rank_messages
from ..calc.deployment import Node, Spread, deploy
from ..calc.errors import RooflmError
from ..calc.estimate import Constants, estimate_time, operator_time
from ..calc.hardware import Machine
from ..calc.model import Model
from ..calc.passes import Operator, Routing, Segment, decode, prefill
from ..calc.precision import precision_of
from ..calc.presets import find_machine, find_model
from ..calc.readings import total
from ..calc.requests import served_token_time
from ..calc.timing import Rates, compulsory_bytes, step_time
from .published import Row, measured_s

ALIKE = 0.46
"""llama-batched-bench: rows**ALIKE sequences choose experts by themselves. Fitted on its rows."""
OPERATORS = {"qkv": "qkv", "out": "out", "gate_up": "mlp up", "down": "mlp down"}
"""Operator of a layer that an op row times."""
NO_LINK = 1e11
"""A link for layouts of chips without one: an estimate takes its messages from a table [B/s]."""


@dataclass(frozen=True)
class Pass:
    """A pass of one rank, run several times."""

    runs: float
    segments: Sequence[Segment]
    operators: Sequence[Operator]
    messages: Sequence[Communication]


@dataclass(frozen=True)
class Prediction:
    """A row with everything that an estimate needs but the constants."""

    row: Row
    case: Case
    rates: Rates
    passes: tuple[Pass, ...]
    measured_s: float
    bound_s: float
    floor_s: float

    @property
    def bytes(self) -> float:
        """Compulsory bytes of all passes [B]."""
        return sum(p.runs * compulsory_bytes(p.operators) for p in self.passes)

    @property
    def group(self) -> str:
        """Rows of one source, chip and model, which a split never tears apart."""
        return f"{self.row.source}|{self.row.hardware}|{self.row.model}"

    def estimate_s(self, constants: Constants) -> float:
        """Time with an engine [s]."""
        model, precision = self.case.model, self.case.precision
        if self.row.kind == "op":
            (one,) = self.passes
            return operator_time(
                one.operators[0], one.segments, self.rates, constants, precision,
                total(s.rows for s in one.segments),
            )  # fmt: skip
        return sum(
            p.runs
            * estimate_time(
                p.operators, p.segments, self.rates, constants, precision, model.layers, p.messages
            )
            for p in self.passes
        )

    def interference(self, constants: Constants) -> float:
        """Share of a served token that prefills of other requests take; 0 of other rows [1]."""
        if self.row.kind != "served":
            return 0.0
        step = replace(self, passes=self.passes[:1]).estimate_s(constants)
        return 1 - step / self.estimate_s(constants)


def routing_of(row: Row) -> Routing:
    """Tell how the prompts of a benchmark choose experts.

    gptSessionBenchmark and LLM-Inference-Bench's TensorRT-LLM runs feed equal prompts, which choose
    equal experts; llama-batched-bench's are partly alike.
    """
    if row.engine == "tensorrt-llm" and row.kind != "served":
        return Routing(fewest=True)
    return Routing(alike=ALIKE) if row.engine == "llama.cpp" else Routing()


@cache
def _presets(model: str, hardware: str) -> tuple[Model, Machine]:
    """Read the presets of a row once for all rows of both."""
    return find_model(model), find_machine(hardware)


def case_of(row: Row) -> Case:
    """Make the case of a row."""
    model, machine = _presets(row.model or "", row.hardware or "")
    sixteen = "fp16" if row.kv == "fp16" or row.weights == "fp16" else "bf16"
    precision = precision_of(
        row.weights, row.kv, model=model, natural=sixteen, routing=routing_of(row)
    )
    case = Case(model, machine, precision)
    if row.devices == 1:
        return case
    ways: dict[str, Any] = {"tp": row.tp or row.devices}
    if row.attention_dp > 1:
        ways["dp"] = row.attention_dp
    if row.moe_ep > 1:
        ways["ep"] = row.moe_ep
    spread = Spread(**ways, link_bytes_per_s=None if machine.links else NO_LINK)
    return deploy(case, spread, Node(machine.name))


def passes_of(row: Row) -> list[tuple[float, list[Segment]]]:
    """List the passes of a row and how often each runs.

    Decode at its mean context, in which a step is linear. A served token is a step of all clients
    and its share of their prefills.
    """
    prompt, generated, batch = row.prompt or 0, row.generated or 0, row.batch or 0
    if row.kind == "op":
        return [(1, prefill(1, batch))]
    if row.kind == "decode":
        return [(1, decode(batch, row.past + prompt + generated / 2))]
    if row.kind == "prefill":
        return [(1, prefill(batch, prompt, row.past))]
    mean = prompt + generated / 2
    if row.kind == "served":
        clients = row.concurrency or 0
        share = served_token_time(0, 1, clients, generated)
        return [(1, decode(clients, mean)), (share, prefill(1, prompt))]
    return [(1, prefill(batch, prompt)), (generated - 1, decode(batch, mean))]


def predict(row: Row) -> Prediction:
    """Prepare a row; raises `RooflmError` where its model, chip or layout cannot be computed."""
    whole = case_of(row)
    case = whole.members[0]
    try:
        rates = case.rates
    except RooflmError:
        if row.kind != "decode" or row.batch != 1:
            raise
        # A step of one sequence moves bytes; what it computes takes no time beside them.
        rates = Rates(float("inf"), case.machine.bandwidth_bytes_per_s)
    passes: list[Pass] = []
    bound = floor = 0.0
    for runs, segments in passes_of(row):
        if row.attention_dp > 1 and segments[0].sequences < row.attention_dp:
            # A prefill of one prompt runs in one group, while the others wait for it.
            segments = [replace(s, sequences=row.attention_dp) for s in segments]
        operators = case.ledger(segments)
        if row.kind == "op":
            name = OPERATORS[row.op or ""]
            operators = [replace(op, count=1) for op in operators if op.name == name]
        local = segments if case.rank is None else case.rank.segments(segments)
        sent = rank_messages(case.rank, segments, case.precision, case.links)
        passes.append(Pass(runs, local, operators, sent))
        if row.kind == "served" and len(passes) > 1:
            # Prefills may share passes with decoding: only the step is a bound.
            continue
        bound += runs * step_time(operators, rates)
        least = operators if row.kind == "op" else case.least_ledger(segments, operators)
        floor += runs * step_time(least, rates, "overlap")
    return Prediction(row, case, rates, tuple(passes), measured_s(row), bound, floor)
