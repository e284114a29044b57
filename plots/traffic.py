"""Live traffic in figures: what came, what was promised, and what an answer does not tell."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..calc.labels import Quantity, quantity
from ..calc.plain import is_map
from .axes import brief
from .series import Answer, duration
from .style import caption

WAITS = {
    "ttft_s": "time to the first token",
    "itl_s": "time between tokens",
    "e2e_s": "time to the last token",
}
"""What users wait for, by the keys of an answer."""
PROMISED = "promised"
"""Name of the line of a limit."""


def wait_of(key: str, values: Sequence[float]) -> Quantity:
    """Label times that users wait, with a unit that suits them."""
    return replace(quantity({}, key, [{key: v} for v in values]), words=WAITS[key])


def promises(answer: Answer) -> dict[str, float]:
    """List the times that are promised [s]; none where the answer tells of none."""
    slo = answer.get("slo")
    known = slo if is_map(slo) else {}
    return {key: known[key] for key in WAITS if known.get(key) is not None}


def captioned(answer: Answer, *more: str, rates: int = 1) -> str:
    """Say what served, what came, and how it was scheduled; more: of the figure.

    rates: how many the figure has; of several none is that of the traffic. A study whose rows
    differ in other traffic has none to tell.
    """
    told = [str(line) for line in answer.get("assumptions") or ()]
    came = list(itertools.takewhile(lambda line: not line.startswith("scheduler "), told))
    other = set(answer.get("axes") or ()) - {"variant", "rate_requests_per_s"}
    if len(came) == len(told) or other:
        came = []
    if rates > 1:
        came = [re.sub(r" at \S+ a second", " at each rate", line) for line in came]
    how = [line.partition(":")[0] for line in told if line.startswith("scheduler ")]
    kept = [
        f"{name} {duration(limit)}" + (" (mean of a request)" if key == "itl_s" else "")
        for key, name in WAITS.items()
        for limit in [promises(answer).get(key)]
        if limit is not None
    ]
    promised = f"promised: {', '.join(kept)}" if kept else ""
    return caption(answer, *came, *how, promised, *more)


def unmeasured(answer: Answer) -> list[str]:
    """Say which requests are not in the figures: those of the warm-up, and what was interrupted."""
    said: list[str] = []
    first = answer["requests"] - answer["measured_requests"] - answer["unfinished_requests"]
    if first > 0:
        said.append(f"of {answer['requests']:,} requests the first {first:,} are not measured")
    if answer.get("complete") is False:
        said.append(f"interrupted: {answer['unfinished_requests']:,} requests are missing")
    return said


def overloaded(row: Mapping[str, Any]) -> str:
    """Say that a rate is more than can be served; nothing of others."""
    if row.get("load") != "unstable":
        return ""
    rate, most = brief(row["rate_requests_per_s"]), brief(row["capacity_requests_per_s"])
    return f"unstable: {rate} requests/s come and {most} can be served, the queue grows without end"
