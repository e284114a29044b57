"""How long a pass takes with a named engine: not what nothing beats, but what is reached.

An operator takes a fixed time and then runs at a share of the bandwidth or of the peak; a layer, a
sequence and a message cost the engine more. The constants come from timings of kernels on a chip
(hardware.yaml) and from published steps of an engine (engines.yaml); benchmarks/fit.py makes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from .errors import RooflmError
from .passes import Operator, Precision, Segment, is_long
from .readings import (
    Q,
    ceil,
    formula,
    interpolated,
    is_array,
    is_symbol,
    is_zero,
    maximum,
    minimum,
    total,
    widest,
)
from .timing import Rates, bandwidth_time, compute_time

if TYPE_CHECKING:
    from .communication import Communication

TILE_ROWS = 64
"""Rows of a tile of a matmul kernel: fewer rows cost as much (seen on an H20 alone)."""
INT4_ROWS = 16
"""The same of kernels that expand 4-bit integers."""
WIDE = 128
"""Heads wider than these have slower kernels on some chips."""
ELEMENTWISE = 0.8
"""Share of the bandwidth that norms reach."""

CLASSES = {
    "attention projections": "matmul",
    "mlp": "matmul",
    "head": "matmul",
    "shared experts": "matmul",
    "router": "matmul",
    "own": "matmul",
    "experts": "experts",
    "attention": "attention",
    "recurrence projections": "matmul",
    "recurrence": "recurrence",
    "norms": "elementwise",
    "embedding": "elementwise",
    "communication": "communication",
}
"""Class of kernel that runs the operators of a part. Parts that are not here were never measured
in a step, and a model that has them has no estimate; those with a state only where the constants
have such a kernel."""
RECURRENT = ("recurrence", "recurrence projections")

HELD = {
    "attention projections": "attention",
    "shared experts": "shared_experts",
    "recurrence projections": "linear_mixer",
}
"""Part of a model that holds the matrices of a part of a pass, where they are called otherwise."""


@dataclass(frozen=True)
class Kernel:
    """What the kernels of a class reach on a chip."""

    start_s: float = 0.0
    """Time of a kernel that moves and computes nothing [s]."""
    memory: float = 1.0
    """Share of the bandwidth that it reaches [1]."""
    compute: float = 1.0
    """Share of the dense peak that it reaches [1]."""
    small_memory: float | None = None
    """Share of the bandwidth for the first bytes; as `memory` if None [1]."""
    small_bytes: float = 0.0
    """How many first bytes [B]."""
    wide_memory: float = 1.0
    """Share of that which heads wider than 128 reach [1]."""
    short_tokens: float = 0.0
    """Context at which half of `compute` is reached [tokens]."""
    serial: float = 0.0
    """Share of the shorter of the two times that the longer one does not hide [1]."""


@dataclass(frozen=True)
class Constants:
    """What an estimate needs beside the ledger and the rates of the machine."""

    engine: str
    kernels: Mapping[str, Kernel]
    layer_s: float = 0.0
    """What a layer costs beside its matmuls and attention [s]."""
    prefill_layer_s: float | None = None
    """The same in a prefill, which runs without a graph of its kernels; `layer_s` if None [s]."""
    sequence_s: float = 0.0
    """What each sequence of a pass costs: scheduling and sampling [s]."""
    message_s: float = 0.0
    """What an all-reduce costs beside its kernel [s]."""
    formats: Mapping[str, float] = field(default_factory=dict[str, float])
    """Share of the bandwidth that weights of a format reach of what 16 bits reach, by the
    beginning of its name [1]; others were never measured with the engine."""
    tile_rows: int = TILE_ROWS
    """Rows that a matmul computes at least; 1 where vectors have kernels of their own [1]."""
    experts: float = 1.0
    """Share of `memory` that experts reach once a pass has several tokens [1]."""
    all_reduce: Mapping[int, Sequence[tuple[float, float]]] = field(
        default_factory=dict[int, "Sequence[tuple[float, float]]"]
    )
    """Measured bytes and seconds of an all-reduce by the number of ranks [B, s]."""
    link_bytes_per_s: float | None = None
    """Bandwidth of the links that those ran over [B/s]."""
    band: tuple[float, float] | None = None
    """Shares of the estimate between which most measurements lie; None where those are few [1]."""
    prefill_band: tuple[float, float] | None = None
    """The same of prefills."""
    several_band: tuple[float, float] | None = None
    """The same of steps on several devices; None where those are few."""
    most_batch: int | None = None
    """Most sequences of a published step [1]."""
    separate_attention: bool = False
    """In a pass of both, attention of prompts and that of decoding are kernels of their own, one
    after the other; one kernel hides the shorter of moving and computing of all otherwise."""
    decode_only: bool = False
    """Only decode steps were measured well enough."""
    told: tuple[str, ...] = ()
    """Where the constants come from and how wrong they were, in sentences."""
    several_told: str = ""
    """What is said of the band of several devices."""


def on_several(constants: Constants) -> Constants:
    """Take the band of steps on several devices, where enough of those were published."""
    if constants.several_band is None:
        return constants
    told = (*constants.told[:1], constants.several_told)
    return replace(constants, band=constants.several_band, told=told)


@formula
def kernel_time(bytes: Q, flops: Q, bytes_per_s: Q, flops_per_s: Q, start: Q, serial: Q = 0) -> Q:
    """Time of a kernel: a fixed part, the larger of its two times, and a share of the other.

    bytes: traffic [B]; flops: work [FLOP]; bytes_per_s: bandwidth that it reaches [B/s];
    flops_per_s: rate that it reaches [FLOP/s]; start: fixed part [s]; serial: share of the shorter
    time that the longer one does not hide, 0 on chips that copy while they compute [1]. Returns
    [s]. Left out: how waves of tiles fill a chip, which makes 128 to 256 rows up to 15 % slower.

    >>> round(kernel_time(33554432, 33554432, 0.85 * 3.35e12, 0.79 * 989e12, 4e-6), 9)
    1.5784e-05
    """
    moving, computing = bandwidth_time(bytes, bytes_per_s), compute_time(flops, flops_per_s)
    longer = start + maximum(moving, computing)
    return longer if is_zero(serial) else longer + serial * minimum(moving, computing)


@formula
def padded_rows(rows: Q, tile: Q = TILE_ROWS) -> Q:
    """Rows that a matmul kernel computes: whole tiles.

    rows: of the activations [1]; tile: rows of a tile [1]. Returns [1].

    >>> padded_rows(65)
    128
    """
    return ceil(rows / tile) * tile


def unmeasured(pass_: Sequence[Operator], recurrent: bool = False) -> str:
    """Say which operators of a pass no published step has; "" where all have been measured.

    recurrent: the constants have a kernel of layers with a state.
    """
    # The rows of an embedding come from host memory in every step that llama.cpp published.
    if any(op.hosted for op in pass_ if op.part != "embedding"):
        return "layers in host memory"
    known = CLASSES.keys() - (() if recurrent else RECURRENT)
    parts = {op.part for op in pass_ if op.part not in known}
    return ", ".join(sorted(parts))


def estimate_time(
    pass_: Sequence[Operator],
    segments: Sequence[Segment],
    rates: Rates,
    constants: Constants,
    precision: Precision,
    layers: Q,
    messages: Sequence[Communication] = (),
) -> Q:
    """Time that a pass takes with an engine on a chip [s]: all terms together.

    pass_: operators of the pass; segments: what they run over; rates: of the machine; constants:
    of the engine on it; layers: of the model [1]; messages: what the rank sends to others within
    its node. Raises `RooflmError` for what was never measured.
    """
    terms = estimate_terms(pass_, segments, rates, constants, precision, layers, messages)
    return total(seconds for _, seconds in terms)


def estimate_terms(
    pass_: Sequence[Operator],
    segments: Sequence[Segment],
    rates: Rates,
    constants: Constants,
    precision: Precision,
    layers: Q,
    messages: Sequence[Communication] = (),
    attends: Sequence[tuple[Sequence[Segment], Sequence[Operator]]] = (),
) -> list[tuple[str, Q]]:
    """List what an estimate adds up: parts of the pass, layers, sequences and messages [s].

    attends: what each attention kernel runs over, and its operators, where those of the pass are
    split (`attention_groups`); as in the pass if empty.
    """
    refuse_unmeasured(pass_, segments, rates, constants)
    if rates.flops_per_s is None:
        # One sequence moves bytes: what it computes takes no time beside them.
        rates = Rates(float("inf"), rates.bytes_per_s)
    rows = total(s.rows for s in segments)
    heads = total(s.sequences * s.head_rows for s in segments)
    sequences = total(s.sequences for s in segments)
    terms = [
        (
            op.part,
            op.count
            * operator_time(
                op, segments, rates, constants, precision, heads if op.part == "head" else rows
            ),
        )
        for op in pass_
        if op.part != "communication" and not (attends and op.part == "attention")
    ]
    terms += [
        (op.part, op.count * attention_time(op, own, rates, constants))
        for own, ops in attends
        for op in ops
    ]
    long = constants.prefill_layer_s is not None and any(map(is_long, segments))
    terms.append(("layers", layers * (constants.prefill_layer_s if long else constants.layer_s)))
    terms.append(("sequences", sequences * constants.sequence_s))
    return terms + [("messages", m.count * message_time(m, constants)) for m in messages]


def refuse_unmeasured(
    pass_: Sequence[Operator], segments: Sequence[Segment], rates: Rates, constants: Constants
) -> None:
    """Raise `RooflmError` for a pass with something that no published step of the engine has."""
    gap = unmeasured(pass_, "recurrence" in constants.kernels)
    if gap:
        raise RooflmError(f"no published step has {gap}", "--engine")
    sequences, most = total(s.sequences for s in segments), constants.most_batch
    if most is not None and not is_symbol(sequences):
        # Steps of more sequences take other kernels: nothing says how fast those are.
        beyond = sequences > most
        if bool(beyond if isinstance(beyond, bool) else beyond.any()):
            what = f"published steps of {constants.engine} have at most {most:,} sequences here"
            raise RooflmError(what, "--engine")
    long = any(map(is_long, segments))
    if constants.decode_only and long:
        raise RooflmError(f"prefills of {constants.engine} are not predicted here", "--engine")
    several = is_symbol(sequences) or (
        sequences.max() if is_array(sequences) else sequences
    ) > 1  # fmt: skip
    if rates.flops_per_s is None and (long or several):
        what = "its compute rate is not known, so only steps of one sequence are estimated"
        raise RooflmError(what, "--on")


def operator_time(
    op: Operator,
    segments: Sequence[Segment],
    rates: Rates,
    constants: Constants,
    precision: Precision,
    rows: Q,
) -> Q:
    """Time of one run of an operator [s]; rows: of its activations [1]."""
    kind = CLASSES[op.part]
    bandwidth, peak = rates.bytes_per_s, rates.peak(op.compute)
    if kind == "elementwise" and is_zero(op.flops):
        return bandwidth_time(op.operator_bytes, ELEMENTWISE * bandwidth)
    if kind == "attention":
        return attention_time(op, segments, rates, constants)
    if kind == "recurrence":
        own = constants.kernels[kind]
        return kernel_time(
            op.operator_bytes, op.flops, own.memory * bandwidth, own.compute * peak, own.start_s
        )
    kernel = constants.kernels.get(f"matmul {op.compute}") or constants.kernels["matmul"]
    weights = precision.format_of(HELD.get(op.part, op.part))
    share = kernel.memory * format_share(weights.name, constants)
    if kind == "experts":
        return kernel_time(
            op.operator_bytes, op.flops, _batched(share, constants.experts, rows) * bandwidth,
            kernel.compute * peak, kernel.start_s, kernel.serial,
        )  # fmt: skip
    tile = min(constants.tile_rows, INT4_ROWS if weights.name.startswith("int4") else TILE_ROWS)
    work = op.flops if tile == 1 else op.flops * (padded_rows(rows, tile) / rows)
    return kernel_time(
        op.operator_bytes, work, share * bandwidth, kernel.compute * peak, kernel.start_s,
        kernel.serial,
    )  # fmt: skip


def format_share(name: str, constants: Constants) -> float:
    """Share of the bandwidth that weights of a format reach of what 16 bits reach [1].

    Raises `RooflmError` for a format that no published step of the engine has.
    """
    known = [start for start in constants.formats if name.startswith(start)]
    if not known:
        what = f"no published step of {constants.engine} has {name} weights"
        raise RooflmError(what, "--engine")
    return constants.formats[max(known, key=len)]


def _batched(share: float, experts: float, rows: Q) -> Q:
    """Share of the bandwidth that experts reach: one token takes another kernel than several."""
    if experts == 1:
        return share
    return share * (1 - (1 - experts) * minimum(rows - 1, 1))


def attention_groups(segments: Sequence[Segment], constants: Constants) -> list[list[Segment]]:
    """Split the segments of a pass by the attention kernel that runs over them.

    Prompts and decoding where the engine has a kernel for each and the pass has both, and else all.
    """
    long = [s for s in segments if is_long(s)]
    short = [s for s in segments if not is_long(s)]
    return [long, short] if constants.separate_attention and long and short else [list(segments)]


def attention_time(
    op: Operator, segments: Sequence[Segment], rates: Rates, constants: Constants
) -> Q:
    """Time of one attention operator [s]: of decode steps by bytes, of long passes by work."""
    long = [s for s in segments if is_long(s)]
    kernel = constants.kernels["prefill" if long else "decode"]
    moving = attention_moving(op.compulsory_bytes, op.head_width, rates, constants)
    context = widest(s.context for s in long) if long else None
    computing = attention_computing(op.flops, context, rates.peak(op.compute), constants)
    return kernel.start_s + maximum(moving, computing)


def attention_moving(moved: Q, head_width: Q, rates: Rates, constants: Constants) -> Q:
    """Time in which attention moves its bytes [s].

    moved: traffic [B]; head_width: of a head [1].
    """
    bandwidth, decode = rates.bytes_per_s, constants.kernels["decode"]
    first = minimum(moved, decode.small_bytes) if decode.small_memory else 0
    if not is_symbol(head_width) and head_width > WIDE:
        bandwidth = bandwidth * decode.wide_memory
    moving = bandwidth_time(moved - first, decode.memory * bandwidth)
    if not decode.small_memory:
        return moving
    return moving + bandwidth_time(first, decode.small_memory * bandwidth)


def attention_computing(flops: Q, context: Q | None, peak: Q, constants: Constants) -> Q:
    """Time in which attention computes [s].

    flops: work [FLOP]; context: longest of the prompts in the pass, None in a pass of decoding
    alone [tokens]; peak: dense rate [FLOP/s]. Nobody timed decode attention that computes for
    longer than it reads: it has the share of a prefill.
    """
    prefill = constants.kernels["prefill"]
    computing = compute_time(flops, prefill.compute * peak)
    return computing if context is None else computing * (1 + prefill.short_tokens / context)


def message_time(message: Communication, constants: Constants) -> Q:
    """Time of one collective within a node [s], from measured all-reduces.

    A link takes no less than its formula says, with the latency and the algorithm that are typed.
    Others than all-reduces move half of its bytes, and take the time of one of half the size.
    """
    table = constants.all_reduce.get(int(message.ranks))
    if table is None:
        known = ", ".join(map(str, constants.all_reduce)) or "none"
        what = f"no all-reduce among {message.ranks} devices was measured (known: {known})"
        raise RooflmError(what, "--tp")
    over, timed = message.link.bandwidth(message.ranks), constants.link_bytes_per_s
    if timed is not None and not is_symbol(over) and over != timed:
        what = f"all-reduces were timed over {timed / 1e9:g} GB/s, not {over / 1e9:.4g} GB/s"
        raise RooflmError(what, "--link")
    moved = message.bytes if message.kind == "all-reduce" else message.bytes / 2
    measured = interpolated(moved, table) + constants.message_s
    # The table has its own latency and way of adding up; those that are typed are waited for.
    return maximum(measured, message.seconds)
