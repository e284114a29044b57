"""Options of the Python functions: what each command takes, and the kinds of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, SupportsIndex, TypeAlias, TypedDict

from .hardware import Machine
from .model import Model

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array: TypeAlias = NDArray[Any]
else:
    # Hints resolve at run time without numpy, which most answers do not need.
    Array = Any

Answer: TypeAlias = dict[str, Any]
Named: TypeAlias = str | Path | Mapping[str, Any] | Model
"""A preset, a Hugging Face name, a file, an entry or a config as plain data, or a model."""
Sited: TypeAlias = str | Path | Mapping[str, Any] | Machine
"""A preset, a number of them such as 8xh100-sxm, a file, an entry as plain data, or a machine."""
Text: TypeAlias = str | None
Number: TypeAlias = SupportsIndex | float | str | None
"""A number, or its text: 64, "4k", "128Ki"."""
Numbers: TypeAlias = Number | Iterable[SupportsIndex | float | Fraction | str]
"""One, several, or the text of several: [1, 64], np.arange(1, 9), "1:256:x2"."""
Seconds: TypeAlias = Number
"""Seconds, or a text with a unit: 0.02, "20ms"."""
Parts: TypeAlias = str | Mapping[str, Any] | None
"""A text, or by parts: {"experts": "mxfp4", "rest": "bf16"}."""
Settings: TypeAlias = Mapping[str, Any] | Iterable[str] | None
"""Letters and keys with other values: {"K": 8, "tied": True}."""
File: TypeAlias = str | Path | None
Step: TypeAlias = str | Mapping[str, Any]
"""A measured step: {"batch": 1, "context": 512, "latency": 6.9e-3}, or its text."""


class OfModel(TypedDict, total=False):
    """A model's formats and dimensions."""

    set: Settings
    weights: Parts
    kv: Text
    state: Text
    models: File


class Adapted(TypedDict, total=False):
    """Low-rank adapters."""

    lora: Number
    lora_targets: Text


class Shared(TypedDict, total=False):
    """A prefix that a batch shares."""

    shared_prefix: Number
    prefix_reads: Text


class Linked(TypedDict, total=False):
    """A layout that may be looked for: degrees that are given, and links."""

    tp: Number
    pp: Number
    ep: Number
    dp: Number
    cp: Number
    replicas: Number
    link: Number
    network: Number
    link_latency: Seconds
    all_reduce: Text


class Spread(Linked, total=False):
    """A model over devices, and over a device and its host."""

    gpu_layers: Number
    host_link: Number


class OnMachine(OfModel, Spread, total=False):
    """A model on a machine."""

    hardware: File


class Placed(TypedDict, total=False):
    """Sequences and their tokens."""

    batch: Numbers
    context: Numbers


class Worked(TypedDict, total=False):
    """Work other than a decode step."""

    phase: Text
    prompt: Numbers
    output_tokens: Number
    prefix: Number
    chunk: Number
    block: Number


class Estimated(TypedDict, total=False):
    """An engine's estimate, or the bound."""

    engine: Text
    calibration: File
    basis: Text


class Priced(TypedDict, total=False):
    """What a device costs and draws."""

    price: Number
    power: Number
    pue: Number
    utilization: Number


class Costed(Priced, total=False):
    """Cost and energy of tokens."""

    cost: bool
    tariff: Numbers


class Limited(TypedDict, total=False):
    """The memory that there is."""

    reserve: Number
    capacity: Number
    gpu_share: Number


class Counted(Limited, total=False):
    """How to count, beside formats."""

    routing: Numbers
    hardware_scale: Parts


class Timed(Counted, total=False):
    """How to count, and how to add up times."""

    time_model: Text


class Drafted(TypedDict, total=False):
    """Speculation."""

    draft: Text
    acceptance: Numbers
    draft_tokens: Numbers
    draft_tp: Number
    draft_weights: Text
    chains: Number
    tree: str | Iterable[Iterable[int]] | None
    accuracies: str | Iterable[Iterable[float]] | None


class HandedOn(TypedDict, total=False):
    """Prompts that are computed on another machine."""

    prefill_on: Text
    handoff: Number


class CaseOptions(OnMachine, Adapted, Shared, Estimated, Timed, total=False):
    """Options of `case`."""

    accounting: Text
    tokens_per_step: Number


class ShowOptions(OfModel, Spread, Adapted, total=False):
    """Options of `show`."""

    accounting: Text


class FitOptions(OnMachine, Placed, Limited, Adapted, Shared, total=False):
    """Options of `fit`."""

    accounting: Text
    engine: Text
    engine_version: Text
    utilization: Number
    max_len: Number
    max_batched_tokens: Number
    max_sequences: Number
    block: Number
    state_blocks: Number
    window_ratio: Number
    state_ratio: Number
    peak_activation: Number
    non_torch: Number
    graphs: Number
    free: Number


class SweepOptions(CaseOptions, Placed, Worked, Costed, HandedOn, total=False):
    """Options of `sweep`."""

    denoise_block: Number
    denoise_steps: Number


class CompareOptions(OnMachine, Placed, Worked, Costed, Estimated, Adapted, Shared, total=False):
    """Options of `compare`."""

    routing: Numbers
    accounting: Text
    time_model: Text
    reserve: Number
    gpu_share: Number


class RooflineOptions(OnMachine, Placed, Adapted, Shared, total=False):
    """Options of `roofline`."""

    routing: Numbers


class ExplainOptions(OnMachine, Placed, Worked, Limited, Estimated, Priced, Shared, total=False):
    """Options of `explain`."""

    tokens_per_step: Number
    accounting: Text
    time_model: Text
    sensitivity: bool


class SolveOptions(OnMachine, Placed, Limited, Shared, total=False):
    """Options of `solve`."""

    latency: Seconds
    throughput: Number
    share: Number
    when: Text
    tokens_per_step: Number
    accounting: Text
    time_model: Text
    sensitivity: bool


class SpeculateOptions(OnMachine, Placed, Timed, Estimated, Costed, Drafted, total=False):
    """Options of `speculate`."""

    p: Numbers
    q: Numbers
    draft_cost: Numbers


class LeversOptions(OnMachine, Placed, Timed, Estimated, Priced, total=False):
    """Options of `levers`."""

    by: Text
    draft: Text
    acceptance: Number


class PlanOptions(OfModel, Linked, Placed, Timed, Estimated, Priced, total=False):
    """Options of `plan`."""

    hardware: File
    devices: Numbers
    latency: Seconds
    throughput: Number
    by: Text
    top: Number


class ServeOptions(OnMachine, Counted, Estimated, Drafted, HandedOn, total=False):
    """Options of `serve`."""

    rate: Number
    requests: Number
    prompt: Number
    output_tokens: Number
    arrivals: Text
    burstiness: Number
    clients: Number
    rounds: Number
    think: Seconds
    stagger: Seconds
    trace: File
    limit: Number
    scale: Number
    prefix: Number
    prefix_groups: Number
    seed: Number
    replications: Number
    warm_up: Number
    scheduler: Text
    max_batched_tokens: Number
    max_sequences: Number
    block: Number
    cache: Number
    watermark: Number
    swap: Number
    contiguous: Text
    max_len: Number
    routing_policy: Text
    prefill_servers: Number
    unit_cost: bool
    slo_ttft: Seconds
    slo_itl: Seconds
    slo_e2e: Seconds
    attainment: Number
    find_rate: bool
    sweep: Numbers


class QuantizeOptions(TypedDict, total=False):
    """Options of `quantize`."""

    tensor: Text
    bits: Number
    unsigned: bool
    symmetric: bool
    scale: Number
    zero_point: Number
    per: Text
    group: Number
    first: Number


class CalibrateOptions(Spread, total=False):
    """Options of `calibrate`."""

    set: Settings
    weights: Parts
    kv: Text
    models: File
    hardware: File
    engine: Text
    constants: str | Iterable[str] | None
    routing: Numbers


class LogOptions(TypedDict, total=False):
    """Options of `explain_log`."""

    model: Text
    weights: Text
    kv: Text
    tp: Number
    pp: Number
