"""The formula behind a number: symbols, subtotals by operator class, substitution, value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from .case import Case, engine_time, few_sequences, fullest, max_sequences, slowest
from .definitions import (
    Definitions,
    Question,
    definitions,
    evaluated,
    model_definitions,
    point,
)
from .errors import RooflmError, nearest
from .extremes import extreme
from .formats import FORMATS
from .passes import prefill
from .requests import prefill_passes
from .sweep import assumptions
from .symbols import UNITS, Expr, Values, latex, letter, symbolic_case, sympy, text


def explain(question: Question, quantity: str) -> dict[str, Any]:
    """Answer with the formula of a quantity, its subtotals, the substitution and the value."""
    whole = question.case
    question, values, known = _defined(question, quantity)
    unknown = {"output_usd_per_mtok": "price", "joules_per_token": "power"}.get(quantity)
    if unknown is not None and quantity not in known:
        what = f"no {unknown} of {whole.machine.name} is known for such a step"
        raise RooflmError(what, f"--{unknown}", "Say what it is, and leave --phase out.")
    name = resolve(quantity, known)
    used = reachable(name, known)
    if few_sequences(whole, question.batch) and _times(used):
        what = "with fewer sequences than stages a token takes what all stages take together"
        raise RooflmError(what, "--batch", "Explain a batch of as many, or sweep this one.")
    found: dict[str, float | None] = {}
    terms = [_term(inner, known, values, found) for inner in used]
    letters = {s for t in terms for s in known[t["name"]].free_symbols if s.name not in known}
    phase = "decode" if question.work is None else question.work.phase
    return {
        "schema": "rooflm.explain/1",
        "model": question.case.model.name,
        "hardware": question.case.machine.name,
        "quantity": name,
        "formula": "\n".join(f"{t['name']} = {t['formula']}" for t in terms),
        "latex": "\n".join(f"{latex(letter(t['name']))} = {t['latex']}" for t in terms),
        "substitution": "\n".join(f"{t['name']} = {t['substitution']}" for t in terms),
        "value": terms[0]["value"],
        "unit": terms[0]["unit"],
        "terms": terms,
        "letters": {
            s.name: {"value": values[s], "unit": _unit_of_letter(s.name)}
            for s in sorted(letters, key=str)
            if s in values
        },
        "assumptions": assumptions(whole, phase, [question.context]),
        "omits": omits_of(name),
        "source": source_of(name),
    }


def _defined(question: Question, quantity: str) -> tuple[Question, Values, Definitions]:
    """Define the quantities of the rank that decides on one, with the values of the letters."""
    question = _as_there_is(question, quantity)
    whole = question.case
    if whole.ranks:
        question = replace(question, case=_deciding(question, quantity))
        if quantity.rpartition(".")[2] in _of_model(whole):
            question = replace(question, case=replace(whole, ranks=(), links=None))
    symbolic = symbolic_case(question.case)
    return question, symbolic.values | point(question), definitions(question, symbolic)


def formulas(question: Question, quantities: Sequence[str]) -> dict[str, list[tuple[str, Expr]]]:
    """List the formula of each quantity with those of its subtotals, as expressions.

    Quantities that no formula defines are left out. Estimates of several devices have no symbolic
    reading, so that times of a layout are bounds.
    """
    case = question.case
    if case.layout is not None:
        question = replace(question, case=replace(case, constants=None))
    found: dict[str, list[tuple[str, Expr]]] = {}
    known: Definitions = {}
    for quantity in quantities:
        if not known or case.ranks:
            # Of a layout the rank decides that a quantity is that of.
            _, _, known = _defined(question, quantity)
        try:
            name = resolve(quantity, known)
        except RooflmError:
            continue
        found[quantity] = [(inner, tidy(known[inner])) for inner in reachable(name, known)]
    return found


def _as_there_is(question: Question, quantity: str) -> Question:
    """Leave the estimate out where the step has none; raise where it is what is asked for."""
    case = question.case
    segments = case.step(question.batch, question.context)
    try:
        if case.constants is not None or "estimate" in quantity:
            engine_time(case, segments, case.ledger(segments))
    except RooflmError as e:
        if "estimate" in quantity:
            raise RooflmError(f"there is no estimate: {e.what}", "QUANTITY", e.fix) from None
        return replace(question, case=replace(case, constants=None, no_estimate=e.what))
    return question


def _unit_of_letter(name: str) -> str:
    """Tell the unit of a letter; peaks of other formats are C_fp8 and the like."""
    return UNITS.get(name, "FLOP/s" if name.startswith("C_") else "1")


def _deciding(question: Question, quantity: str) -> Case:
    """Choose the rank that a quantity of a layout is that of: the fullest, or the slowest."""
    case, work = question.case, question.work
    segments = case.step(question.batch, question.context)
    if work is not None:
        segments = prefill_passes(question.batch, work)[-1]
    if quantity.startswith("prefill."):
        segments = prefill(question.batch, question.context)
    of_memory = (
        "memory", "weights", "kv_cache", "state", "activations", "margin", "reserve",
    )  # fmt: skip
    last = quantity.rpartition(".")[2]
    if quantity == "prefill_activations_bytes":
        return fullest(case, prefill(1, question.context))
    if quantity == "max_sequences":
        most = max_sequences(case, question.context)
        return fullest(case, case.step(max(1, most), question.context))
    by_memory = last.startswith(of_memory) or quantity.startswith("reserved")
    return (fullest if by_memory else slowest)(case, segments)


def _times(names: list[str]) -> bool:
    """Tell whether any of some quantities is the time of a pass."""
    return any(n.rpartition(".")[2] in ("time_s", "bound_s", "floor_s") for n in names)


def _of_model(case: Case) -> set[str]:
    """Name the quantities that are those of the whole model, whatever the layout."""
    alone = symbolic_case(replace(case, ranks=(), links=None)).case
    return {*model_definitions(alone), "touched_parameters", "untouched"} - {"weights_bytes"}


def _term(
    name: str, known: Definitions, values: Values, found: dict[str, float | None]
) -> dict[str, Any]:
    """Describe one line of an explanation; a line inside a sum has no single value."""
    expression = tidy(known[name])
    inner = {
        symbol: value
        for symbol in expression.free_symbols
        if symbol.name in known
        and (value := evaluated(symbol.name, known, values, found)) is not None
    }
    return {
        "name": name,
        "formula": text(expression),
        "latex": latex(expression),
        "substitution": text(expression, {**values, **inner}),
        "value": evaluated(name, known, values, found),
        "unit": unit_of(name),
    }


@lru_cache(maxsize=4096)
def tidy(expression: Expr) -> Expr:
    """Factor an expression, and the arguments of its max and min, for the reader."""
    if not expression.args:
        return expression
    if isinstance(expression, sympy.Max | sympy.Min):
        return extreme(expression.func.__name__, *map(tidy, expression.args))
    if expression.has(sympy.Max, sympy.Min, sympy.Sum):
        return expression.func(*map(tidy, expression.args))
    if any(not power.exp.is_number for power in expression.atoms(sympy.Pow)):
        # Factoring pulls (-1)**B out of (1 - k/E)**B.
        return sympy.factor_terms(expression)
    return sympy.factor(expression)


TABLES = ("parameters", "cache", "memory", "weights_bytes_by_format")
"""Objects of an answer whose keys may be asked for by their path: memory.weights_bytes."""


def resolve(quantity: str, known: Mapping[str, Expr]) -> str:
    """Find a quantity by its key, or by its path in an answer."""
    if quantity in known:
        return quantity
    table, dot, short = quantity.partition(".")
    if dot and table in TABLES and short in known:
        return short
    # As tables print it: cache [GB], step [ms].
    plain = re.sub(r" *\[.*\]$", "", quantity)
    fix = nearest(plain, known) or f"Known: {', '.join(known)}."
    if "ttft" in quantity.lower():
        fix = "The time to the first token is that of the prompt: bound_s --phase prefill."
    raise RooflmError(f"no quantity '{quantity[:40]}'", "QUANTITY", fix)


def reachable(name: str, known: Mapping[str, Expr]) -> list[str]:
    """List a definition and all that it uses, each before its own parts."""
    order: list[str] = []

    def visit(inner: str) -> None:
        if inner in order:
            order.remove(inner)
        order.append(inner)
        for symbol in sorted(known[inner].free_symbols, key=lambda s: list(known).index(s.name)
                             if s.name in known else -1):  # fmt: skip
            if symbol.name in known:
                visit(symbol.name)

    visit(name)
    return order


def unit_of(name: str) -> str:
    """Tell the unit of a quantity by the ending of its key."""
    last = name.rpartition(".")[2]
    if name.startswith("reserved_kv_cache_bytes."):
        return "B"
    for ending, unit in (
        ("tokens_per_s", "tokens/s"), ("per_device", "tokens/s"),
        ("usd_per_mtok", "USD/Mtok"), ("joules_per_token", "J"),
        ("bytes_per_token", "B"), ("per_byte", "FLOP/B"),
        ("elements_per_token", "elements"), ("elements_per_sequence", "elements"),
        ("bytes_per_sequence", "B"), ("bytes", "B"), ("flops", "FLOP"), ("tokens", "tokens"),
        ("_s", "s"), ("parameters", "parameters"),
    ):  # fmt: skip
        if last.endswith(ending):
            return unit
    if last in FORMATS:
        return "B"
    if last == "max_sequences":
        return "sequences"
    plain = ("batch", "passes", "runs", "speedup", "devices")
    return "1" if last in plain else "tokens" if last == "tokens_per_pass" else "parameters"


def omits_of(name: str) -> list[str]:
    """Say what a quantity leaves out, and how much that is worth."""
    last = name.rpartition(".")[2]
    if last.endswith("usd_per_mtok"):
        return ["hosts, people, and hours that are paid and idle, unless --utilization says so"]
    if last == "joules_per_token":
        return ["hosts and network; that decoding draws less than the cap while it waits"]
    if last.endswith("estimate_s") or last.startswith("estimate"):
        return [
            "how waves of tiles fill a chip: up to 15 % at 128 to 256 rows",
            "queues, prefills of others, clocks that sink under load",
        ]
    if last.endswith("_s"):
        return [
            "kernel launches and host gaps: microseconds for each of some ten kernels a layer",
            "efficiencies below 1: large reads reach 0.8 to 0.95 of nominal bandwidth, matmuls 0.6 "
            "to 0.9 of the dense peak",
            "FLOPs of norms, rotary embedding, softmax and sampling: below 1 % of a layer",
        ]
    if last in ("memory_bytes", "margin_bytes", "activations_bytes"):
        return ["context, graphs, workspaces and fragmentation: 0.3 to over 2 GB, as `--reserve`"]
    if last.startswith("ridge"):
        return ["clocks that differ from the rated ones"]
    if last.endswith("flops") or "flops_per_byte" in last:
        return ["norms, rotary embedding, softmax, sampling: below 1 % of a layer at H >= 64"]
    if last in ("touched_parameters", "untouched"):
        return ["likeness of tokens: a batch of alike ones touches fewer experts, k at the least"]
    if unit_of(name) == "parameters" or last in ("total", "weights_bytes"):
        return ["buffers that are not trained (rotary tables, masks), vocabulary padding"]
    if last.startswith("kv_cache") or last in ("bytes_per_token", "elements_per_token"):
        return ["padding of the last cache block: 7.5 tokens a sequence on average at 16 a block"]
    return []


def source_of(name: str) -> str:
    """Name where the formula comes from."""
    last = name.rpartition(".")[2]
    if last in ("touched_parameters", "untouched"):
        return "each token leaves an expert out with probability 1 - k/E; arXiv 2401.04088"
    if unit_of(name) == "parameters" or last in (*FORMATS, "weights_bytes"):
        return (
            "architecture as transformers builds it; counts equal instantiated models to the unit "
            "(tests/golden/models.yaml)"
        )
    if last.endswith("estimate_s") or last.startswith("estimate"):
        return (
            "timings of kernels (ai-dynamo/aiconfigurator) and published steps of the engine: "
            "`rooflm accuracy`, docs/accuracy.md"
        )
    if last in ("ttft_s", "itl_s", "e2e_s") or "pass" in last or "reused" in last:
        return "jax-ml/scaling-book, inference.md; chunks: arXiv 2401.09670; docs.vllm.ai"
    return (
        "Stanford CS336 lecture 10 (github.com/stanford-cs336/lectures, lecture_10.py); "
        "jax-ml/scaling-book, roofline.md and inference.md"
    )
