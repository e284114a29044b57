"""Step times of a live server are those of its case, for sequences of any lengths together."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest

from rooflm.calc.asked import case_of, swept
from rooflm.calc.case import engine_time
from rooflm.calc.clock import TICKS, Counted, First, Kind, Limits
from rooflm.calc.errors import RooflmError
from rooflm.calc.live import Pool, run
from rooflm.calc.passes import Segment
from rooflm.calc.step_cost import Steps, make_steps
from rooflm.calc.timing import step_time
from rooflm.calc.workload import Workload

from .helpers import only

CASES: dict[str, tuple[str, str, dict[str, str]]] = {
    "groups of query heads": ("llama-3-8b", "h100-sxm", {}),
    "equal heads": ("opt-13b", "h200-sxm", {}),
    "8 bits": ("llama-3-8b", "h100-sxm", {"weights": "fp8", "kv": "fp8"}),
    "experts": ("qwen3-30b-a3b", "h200-sxm", {}),
    "windows": ("mistral-7b-v0.1", "h100-sxm", {}),
    "windows and all": ("gemma-3-27b", "h200-sxm", {}),
    "windows and experts": ("gpt-oss-20b", "h100-sxm", {}),
    "chunks": ("llama-4-scout", "h200-sxm", {}),
    "latents": ("deepseek-v3", "h200-sxm", {}),
    "8 ranks": ("llama-3-70b", "8xh100-sxm", {"tp": "8"}),
    "8 ranks of experts": ("deepseek-v3", "8xh200-sxm", {"tp": "8", "ep": "8"}),
    "states": ("mamba-2-2.7b", "h100-sxm", {}),
    "states and attention": ("jamba-v0.1", "h200-sxm", {}),
    "states, attention, MLPs": ("nemotron-h-8b", "h100-sxm", {}),
    "delta rule": ("qwen3-next-80b-a3b", "h200-sxm", {}),
}
"""A model of each kind of layer, on what, and how."""
STATES = {"states", "states and attention", "states, attention, MLPs", "delta rule"}
"""Those that no published step says anything of: bounds alone."""
ESTIMATES = [name for name in CASES if name not in STATES]
BOTH = [(name, basis) for name in CASES for basis in ("estimate", "bound")
        if basis == "bound" or name in ESTIMATES]  # fmt: skip


@cache
def steps_of(name: str, basis: str) -> Steps:
    """Make the step times of a case of the table."""
    model, on, words = CASES[name]
    return make_steps(case_of({"model": model, "on": on, "basis": basis, **words}), basis)


def whole_pass(steps: Steps, segments: Sequence[Segment]) -> float:
    """Seconds of a pass by its ledger, operator after operator, as a sweep counts them."""
    pass_ = steps.case.ledger(segments)
    if steps.constants is None:
        return float(step_time(pass_, steps.case.rates))
    return float(engine_time(steps.case, segments, pass_))


def decoding(contexts: Sequence[int]) -> list[Segment]:
    """One new token of each sequence, whose cache has so many."""
    return [Segment(1, 1, cached) for cached in contexts]


def counted(kinds: Sequence[Kind], contexts: Sequence[int]) -> list[Counted]:
    """Count what the caches of all sequences together hold of each kind, sequence by sequence."""
    found: list[Counted] = []
    for kind in kinds:
        own = Counted(kind)
        for cached in contexts:
            full = not kind.wraps and cached >= kind.limit
            own.tokens += kind.limit if full else cached % kind.limit
            own.growing += not full
        found.append(own)
    return found


def until_full(kinds: Sequence[Kind], contexts: Sequence[int]) -> int:
    """Count the steps before the first window is full, or the first chunk begins anew."""
    left = [
        kind.limit - (cached % kind.limit if kind.wraps else cached)
        for kind in kinds
        for cached in contexts
        if kind.wraps or cached < kind.limit
    ]
    return min(left, default=10**9)


def batch(chance: random.Random, steps: Steps) -> list[int]:
    """Draw tokens in the caches of a few sequences, or of as many as there may be; short, long."""
    most = 250
    if steps.constants is not None and steps.constants.most_batch is not None:
        most = min(most, steps.constants.most_batch - 4)
    longest = chance.choice([20, 300, 9000, 200_000])
    return [chance.randrange(1, longest) for _ in range(chance.choice([1, 2, 7, most]))]


@pytest.mark.parametrize(("name", "basis"), BOTH)
def test_a_decode_step_is_the_pass_of_its_sequences(name: str, basis: str) -> None:
    """Ticks of unlike sequences equal the ledger of the same pass; each later step adds a rise."""
    chance, steps = random.Random(1), steps_of(name, basis)
    for _ in range(25):
        contexts = batch(chance, steps)
        tokens = sum(contexts) + len(contexts)

        first, rise, most = steps.run(len(contexts), tokens, counted(steps.kinds, contexts))

        assert first / TICKS == pytest.approx(whole_pass(steps, decoding(contexts)), rel=1e-9)
        last = min(most, until_full(steps.kinds, contexts), 10**6) - 1
        for later in {last, chance.randrange(last + 1)} if last > 0 else ():
            grown = decoding([cached + later for cached in contexts])
            assert (first + later * rise) / TICKS == pytest.approx(
                whole_pass(steps, grown), rel=1e-9
            )


@pytest.mark.parametrize(("name", "basis"), BOTH)
def test_a_step_with_prompts_is_the_pass_of_all(name: str, basis: str) -> None:
    """Decoding sequences and chunks of prompts, of which some end: the ledger of them together."""
    chance, steps = random.Random(2), steps_of(name, basis)
    for turn in range(25):
        contexts = batch(chance, steps) if turn % 4 else []
        chunks = [
            (chance.choice([1, chance.randrange(1, 40), chance.randrange(1, 2048)]),
             chance.choice([0, chance.randrange(40), chance.randrange(20_000)]))
            for _ in range(chance.randrange(1, 4))
        ]  # fmt: skip
        ends = chance.randrange(len(chunks) + 1)
        tokens = sum(contexts) + len(contexts)
        more = counted(steps.kinds, contexts)

        found = steps.mixed(len(contexts), tokens, more, chunks, ends)

        prompts = [
            Segment(1, new, cached, head_rows=int(which < ends))
            for which, (new, cached) in enumerate(chunks)
        ]
        whole = whole_pass(steps, [*decoding(contexts), *prompts])
        assert found / TICKS == pytest.approx(whole, rel=1e-9)


def test_lines_end_where_they_bend() -> None:
    """At a knee the steps go on along another line: they are the ledger's on both of its sides."""
    bends = 0
    for name, basis in BOTH:
        steps = steps_of(name, basis)
        for contexts in ([700, 5], [90] * 3, [3000] * 20):
            tokens, more = sum(contexts) + len(contexts), counted(steps.kinds, contexts)
            first, rise, most = steps.run(len(contexts), tokens, more)
            if most >= min(10**6, until_full(steps.kinds, contexts)):
                continue
            after = decoding([cached + most for cached in contexts])
            before = decoding([cached + most - 1 for cached in contexts])

            assert (first + (most - 1) * rise) / TICKS == pytest.approx(
                whole_pass(steps, before), rel=1e-9
            )
            past = counted(steps.kinds, [cached + most for cached in contexts])
            fresh = steps.run(len(contexts), tokens + most * len(contexts), past)
            assert fresh[0] / TICKS == pytest.approx(whole_pass(steps, after), rel=1e-9)
            # The first line would have been wrong from here on: that is what `most` is for.
            bends += (first + 200 * most * rise) / TICKS != pytest.approx(
                whole_pass(steps, decoding([cached + 200 * most for cached in contexts])), rel=1e-6
            )
    assert bends >= 3


REQUESTS = [
    ("groups of query heads", "estimate", 1000, 500, None),
    ("groups of query heads", "bound", 1000, 500, None),
    ("groups of query heads", "estimate", 500_000, 2000, 8192),
    ("equal heads", "estimate", 1500, 500, 512),
    ("8 bits", "estimate", 4000, 300, 1000),
    ("experts", "estimate", 3000, 300, 2048),
    ("windows", "estimate", 4000, 700, 2048),
    ("windows", "bound", 9000, 300, None),
    ("windows and all", "estimate", 900, 400, 256),
    ("windows and all", "bound", 500_000, 2000, 8192),
    ("windows and experts", "estimate", 5000, 300, 2048),
    ("chunks", "estimate", 8000, 700, 2048),
    ("chunks", "bound", 20_000, 300, None),
    ("latents", "estimate", 5000, 300, 2048),
    ("8 ranks", "estimate", 3000, 300, 1024),
    ("8 ranks", "bound", 3000, 300, None),
    ("8 ranks of experts", "estimate", 3000, 300, 1024),
    ("states", "bound", 5000, 300, 2048),
    ("states and attention", "bound", 5000, 300, None),
    ("states, attention, MLPs", "bound", 5000, 300, 2048),
    ("delta rule", "bound", 500_000, 300, 8192),
]
"""Case, basis, prompt, output, and chunk if it is cut."""


@pytest.mark.parametrize(("name", "basis", "prompt", "output", "chunk"), REQUESTS)
def test_one_request_is_the_closed_form(
    name: str, basis: str, prompt: int, output: int, chunk: int | None
) -> None:
    """First token and end of a request that is alone are those of `sweep --phase request`."""
    model, on, words = CASES[name]
    asked: dict[str, Any] = {
        "model": model, "on": on, "phase": "request", "basis": basis, "prompt": str(prompt),
        "output_tokens": str(output), "chunk": None if chunk is None else str(chunk), **words,
    }  # fmt: skip
    row = only(swept(asked)["rows"])
    steps = steps_of(name, basis)
    # Whole prompts take a step whichever policy computes them.
    policies: tuple[First, ...] = ("decode", "prefill", "static") if chunk is None else ("decode",)
    for first in policies:
        limits = Limits(10**9, tokens=chunk or prompt, kinds=steps.kinds, first=first)

        made = run(Workload([0], [prompt], [output]), Pool(steps, limits))

        assert row["basis"] == basis
        assert made.trace.first[0] / TICKS == pytest.approx(row["ttft_s"], rel=1e-9)
        assert made.trace.finish[0] / TICKS == pytest.approx(row["e2e_s"], rel=1e-9)


def test_events_of_a_long_request_are_few() -> None:
    """Its 2000 steps are one run: the closed form is not reached by stepping through them."""
    steps = steps_of("groups of query heads", "estimate")
    limits = Limits(10**9, tokens=1000, kinds=steps.kinds)

    made = run(Workload([0], [1000], [2000]), Pool(steps, limits))

    assert [server.events for server in made.servers] == [2]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"model": "deepseek-v3.2", "basis": "bound"}, "not simulated under live traffic"),
        ({"model": "mamba-2-2.7b", "basis": "estimate"}, "no published step has recurrence"),
        ({"model": "llama-3-70b", "on": "8xh100-sxm", "pp": "2", "tp": "4"}, "one server is ranks"),
        ({"model": "llama-3-8b", "accounting": "lecture"}, "full accounting"),
    ],
)
def test_what_has_no_step_times_is_refused(words: dict[str, str], said: str) -> None:
    """Layers whose steps are no lines, and cases that are no server, end with a sentence."""
    asked = {"on": "h200-sxm", **words}
    with pytest.raises(RooflmError, match=said):
        make_steps(case_of(asked), words.get("basis", "bound"))


def test_a_cache_is_moved_over_the_bus() -> None:
    """1000 tokens of 131,072 B (2 x 8 heads x 128 x 2 B x 32 layers) at 64 GB/s."""
    case = case_of({"model": "llama-3-8b", "on": "h100-sxm", "basis": "bound"})

    assert make_steps(case, "bound", 64e9).moved(1000) / TICKS == pytest.approx(
        131_072_000 / 64e9, rel=1e-9
    )
