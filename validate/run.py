"""Real steps of models on the device at hand, beside what was predicted of the same steps."""

from __future__ import annotations

import contextlib
import gc
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ..calc.errors import RooflmError
from ..calc.hardware import Machine
from ..calc.model import Model
from ..calc.passes import Precision
from . import ceilings, elementwise, judge, measured
from .agreement import UNCHECKED, agreement, format_errors
from .device import find_device, held_now, identity, state
from .ffn_layers import groups_matmuls
from .making import Maker
from .network import build
from .plan import (
    NO_FIGURES,
    Plan,
    Subject,
    about,
    expected_s,
    formats_of,
    list_subjects,
    wanted,
)
from .point import run_point
from .talk import Talk, reason
from .untyped import torch


def validate(plan: Plan, keep: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
    """Measure the ceilings of a device and real steps on it, and compare.

    plan: what to run; keep: called with the answer after every point, so that nothing is lost.
    Returns the object of `rooflm validate`. A point that fails is a row that says why; Ctrl-C ends
    the run with what there is, `interrupted` set. Raises `RooflmError` where nothing can run.
    """
    device = find_device(plan.device)
    elementwise.fuse(plan.compile)
    who = identity(device)
    preset = measured.find_preset(plan.on, who)
    answer: dict[str, Any] = {
        "schema": "rooflm.validate/1",
        "date": plan.date,
        "device": who,
        "model": list(plan.models),
        "hardware": None,
        "ranks": plan.ranks.count,
        "ceilings": {},
        "checks": [],
        "rows": [],
        "interrupted": False,
    }
    models: dict[judge.Key, tuple[Model, Precision]] = {}
    talk = Talk(plan.quiet or plan.ranks.rank > 0)
    try:
        _measure(plan, device, preset, answer, models, talk, keep or (lambda _: None))
    except KeyboardInterrupt:
        answer["interrupted"] = True
    finally:
        talk.end()
    judge.judge(answer, _machine(answer, preset), models)
    return answer


def _machine(answer: dict[str, Any], preset: Machine | None) -> Machine | None:
    if preset is not None or "read" not in answer["ceilings"]:
        return preset
    return measured.machine_of(answer["device"], answer["ceilings"], answer["date"])


def _measure(
    plan: Plan,
    device: Any,
    preset: Machine | None,
    answer: dict[str, Any],
    models: dict[judge.Key, tuple[Model, Precision]],
    talk: Talk,
    keep: Callable[[dict[str, Any]], None],
) -> None:
    asked = wanted(plan, device)
    # A file that cannot be written is told before an hour is spent.
    keep(answer)
    talk.say("measuring ceilings")
    start = time.monotonic()
    formats = formats_of(asked) if plan.quick else ceilings.FORMATS
    found, reader = measure_ceilings(device, formats, plan.quick)
    sheet = None if preset is None else preset.bandwidth_bytes_per_s
    answer["ceilings"] = found | {"doubts": ceilings.doubts(found, device, sheet)}
    if plan.ranks.count > 1:
        answer["ceilings"]["all_reduce"] = plan.ranks.all_reduce_times(device)
    answer["state"] = state(device)
    machine = _machine(answer, preset)
    assert machine is not None
    answer["hardware"] = machine.name
    answer["preset"] = None if preset is None else preset.name
    subjects = list_subjects(plan, device, machine, asked, answer)
    talk.points = sum(len(s.points) for s in subjects)
    talk.seconds = sum(expected_s(s, p, machine, plan) for s in subjects for p in s.points)
    for i, subject in enumerate(subjects):
        key = (subject.asked, subject.weights, subject.precision.cache.name)
        models[key] = (subject.model, subject.precision)
        _check(plan, device, subject, answer)
        # Time that one model leaves over is for the next ones.
        now = time.monotonic()
        end = now + (start + plan.budget_s - now) / (len(subjects) - i)
        for row in _rows(plan, device, subject, machine, answer, reader, talk, end):
            answer["rows"].append(row)
            keep(answer)
        gc.collect()
        _free(device)
    answer["state_after"] = state(device)
    answer["seconds"] = time.monotonic() - start


def measure_ceilings(
    device: Any, formats: Sequence[str], quick: bool
) -> tuple[dict[str, Any], ceilings.Reader]:
    """Measure what the device can do at most, and what reads fastest.

    formats: whose products are timed; quick: fewer runs over a smaller buffer.
    """
    size = ceilings.buffer_bytes(device, quick)
    found, reader = ceilings.bandwidths(device, 3 if quick else 9, size)
    rates, lacks = ceilings.matmul_rates(device, formats, 3 if quick else 7)
    launch = ceilings.launch_times(device, compile=not quick)
    return found | {"matmul": rates, "lacks": lacks, "launch": launch}, reader


def _check(plan: Plan, device: Any, subject: Subject, answer: dict[str, Any]) -> None:
    """Hold the step against a cacheless forward on small shapes, and the format against bf16."""
    found: dict[str, Any] = {
        "model": subject.name, "weights": subject.weights, "kv": subject.precision.cache.name,
    }  # fmt: skip
    try:
        found |= agreement(subject.whole, subject.precision, device, plan.seed)
        found |= format_errors(subject.whole, subject.precision, device, plan.seed)
    except Exception as e:  # small shapes may not suit a kernel that suits the model
        if plan.debug:
            raise
        found |= UNCHECKED | {"lacks": reason(e)}
    answer["checks"].append(found)


def _rows(
    plan: Plan,
    device: Any,
    subject: Subject,
    machine: Machine,
    answer: dict[str, Any],
    reader: ceilings.Reader,
    talk: Talk,
    end: float,
) -> Iterator[dict[str, Any]]:
    """Build a model once and run its points; each that fails says why."""
    _free(device)
    before = held_now(device)
    maker = Maker(
        subject.precision, device, plan.seed, plan.ranks.rank, reduce=plan.ranks.reduce,
        groups=groups_matmuls(device, subject.precision.activations.name),
        most_positions=max(plan.contexts) + 1,
    )  # fmt: skip
    talk.say(f"building {subject.name}, {subject.weights}")
    try:
        network = build(subject.model, maker, plan.ranks.gather)
    except Exception as e:
        if plan.debug:
            raise
        for point in subject.points:
            yield _failed(subject, point, reason(e))
        return
    for point in subject.points:
        phase, B, S = point
        talk.point(f"{subject.name} {subject.weights} {phase} B={B} S={S}")
        try:
            if plan.ranks.most(time.monotonic() - end) > 0:
                raise RooflmError(f"its share of {plan.budget_s:g} s was over", "--budget")
            yield run_point(plan, device, subject, network, point, machine, answer, reader, before)
        except Exception as e:  # a kernel may fail in ways of its own: the other points go on
            if plan.debug:
                raise
            yield _failed(subject, point, reason(e))
        _free(device)
        talk.done(expected_s(subject, point, machine, plan))


def _failed(subject: Subject, point: tuple[str, int, int], why: str) -> dict[str, Any]:
    return about(subject, point) | NO_FIGURES | {"excluded": why}


def _free(device: Any) -> None:
    if device.type == "cuda":
        with contextlib.suppress(RuntimeError):
            # A capture that failed may leave the allocator unwilling to give memory back.
            torch.cuda.empty_cache()
