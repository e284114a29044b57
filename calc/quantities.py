"""Quantities of a step beside the columns of a sweep: of the model, of memory, of each operator.

Each under the key that `rooflm show`, `fit` and `roofline` answer with, operators as `explain`
names them: `parameters.total`, `cache.bytes_per_token`, `max_sequences`,
`attention.intensity_flops_per_byte`, `prefill.mlp_up.bound_s`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from .case import Case, max_context_tokens, max_sequences, slowest
from .fit import needs
from .matmul import ridge
from .output import flatten
from .passes import prefill
from .plain import is_number
from .readings import Q, is_array
from .roofline import operator_figures
from .show import show


def of_model(case: Case, B: Q, S: Q) -> dict[str, Any]:
    """List the figures of the model: parameters by part, cache of a token, bytes by format."""
    answer = show(case.model, case.precision, norms=not case.lecture)
    return {k: v for k, v in flatten(answer).items() if is_number(v)}


def of_memory(case: Case, B: Q, S: Q) -> dict[str, Any]:
    """List what `fit` tells of B sequences of S tokens, and the longest context of so many."""
    return {
        **flatten(needs(case, B, S)),
        "max_sequences": _each(lambda s: max_sequences(case, s), S),
        "max_context_tokens": _each(lambda b: max_context_tokens(case, b), B),
    }


def _each(of: Callable[[int], int], values: Q) -> Q:
    """Ask for each value of an array; what is searched for has no reading of arrays."""
    if not is_array(values):
        return of(int(values))
    import numpy as np

    return np.array([of(int(v)) for v in values.ravel()]).reshape(values.shape)


def of_operators(case: Case, B: Q, S: Q) -> dict[str, Any]:
    """List figures of every operator of a step, and of a prefill as long; none of the lecture."""
    if case.lecture:
        return {}
    rates = case.rates
    found: dict[str, Any] = {"ridge_flops_per_byte": ridge(rates.flops_per_s, rates.bytes_per_s)}
    passes = {"": case.step(B, S)}
    if not case.model.denoises:
        passes["prefill."] = prefill(B, S)
    for prefix, segments in passes.items():
        slow = slowest(case, segments)
        for op in slow.ledger(segments):
            # A message has the name of what it is about.
            sent = "_messages" if op.part == "communication" else ""
            name = f"{prefix}{op.name.replace(' ', '_')}{sent}"
            figures = operator_figures(op, slow.rates)
            found |= {f"{name}.{key}": value for key, value in figures.items()}
    return found


SOURCES: tuple[Callable[[Case, Q, Q], dict[str, Any]], ...] = (of_model, of_operators, of_memory)
"""Where further quantities come from, the slowest last."""


def further(case: Case, names: Iterable[str], B: Q, S: Q) -> dict[str, Any]:
    """Tell further quantities of decode steps by name; a name that nothing has is left out.

    B: sequences [1]; S: their context [tokens]; open meshes give flat arrays or meshes.
    """
    wanted, found = list(names), dict[str, Any]()
    for source in SOURCES:
        if len(found) == len(wanted):
            break
        told = source(case, B, S)
        found |= {n: told[n] for n in wanted if n in told and n not in found}
    return found


def names_of(case: Case, B: int, S: int) -> list[str]:
    """Name every further quantity of a step."""
    return [name for source in SOURCES for name in source(case, B, S)]
