"""A model on a machine, how to count, and what one pass of it takes in memory and time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from .errors import RooflmError
from .hardware import Machine, capacity, rates
from .memory import activations_bytes, largest, reserved_cache_bytes, weights_bytes
from .model import Model, cache_bytes, has_experts, ledger, sequence_state_bytes
from .passes import BF16, Operator, Precision, Routing, Segment, decode, denoise, is_long
from .readings import Q, is_array, is_zero, maximum, minimum, total
from .sharing import common_bytes, common_once
from .timing import (
    Rates,
    TimeModel,
    bandwidth_time,
    compulsory_bytes,
    flops,
    shares,
    step_time,
    throughput,
)

if TYPE_CHECKING:
    from .communication import Links
    from .estimate import Constants
    from .layout import Layout, Rank

Accounting = Literal["full", "lecture"]
Basis = Literal["estimate", "bound"]

ESTIMATES = ("estimate_s", "estimate_low_s", "estimate_high_s", "estimate_tokens_per_s")
"""Keys of a row that are null where there is no estimate."""


LENT = {"Apple": 0.75}
"""Share of a machine's memory that its system lends a GPU by default, by maker [1]: the middle of
0.667 to 0.84 in logs of Macs with 16 to 128 GiB (llama.cpp, recommendedMaxWorkingSetSize)."""


@dataclass(frozen=True)
class Case:
    """A model on a machine, and how to count."""

    model: Model
    machine: Machine
    precision: Precision = BF16
    accounting: Accounting = "full"
    time_model: TimeModel = "operator"
    reserve_bytes: Q = 0
    """Memory kept free for what is not modelled [B]."""
    capacity_bytes: Q | None = None
    """Capacity in place of the machine's own [B]."""
    gpu_share: float | None = None
    """Share of the capacity that a GPU may use; all of it where nothing was said."""
    host_bytes_per_s: Q = None
    """Bus to host memory, one direction; None where no layers are there [B/s]."""
    constants: Constants | None = None
    """What an engine costs on the machine, for estimates; None where there are none."""
    no_estimate: str = ""
    """Why there are none."""
    basis: Basis = "bound"
    """What `time_s` is, where both are there."""
    step_tokens: Q = 1
    """Tokens that a step of a diffusion model yields for each sequence [tokens]."""
    shared_prefix: Q = 0
    """Leading tokens of a decode step that are the same in all sequences [tokens]."""
    prefix_once: bool = False
    """They are read once for all sequences, and not for each."""

    ranks: tuple[Rank, ...] = ()
    """Different ranks of a layout over several devices; none on one device."""
    rank: Rank | None = None
    """The rank that this case is of; its model is what that rank holds."""
    links: Links | None = None
    """What joins the devices."""
    peers: tuple[Rank, ...] = ()
    """All different ranks, beside the one that this case is of."""

    def __post_init__(self) -> None:
        if self.lecture and self.offloads:
            what = "the lecture's accounting keeps all layers on the device"
            raise RooflmError(what, "--gpu-layers", "Leave out one of the two options.")
        if self.lecture and (self.ranks or self.rank is not None):
            what = "the lecture's accounting has one device"
            raise RooflmError(what, "--accounting", "Leave out one of the options.")
        if self.lecture and self.time_model != "bandwidth":
            what = f"the lecture's accounting has no time model '{self.time_model}'"
            raise RooflmError(what, "--time-model", "Leave out one of the two options.")
        if self.lecture and not is_zero(self.reserve_bytes):
            what = "the lecture's accounting has no reserve"
            raise RooflmError(what, "--reserve", "Leave out one of the two options.")
        if self.lecture and self.precision.routing != Routing():
            what = "the lecture's accounting reads all experts"
            raise RooflmError(what, "--routing", "Leave out one of the two options.")

    @property
    def lecture(self) -> bool:
        """Count as the lecture does."""
        return self.accounting == "lecture"

    @property
    def offloads(self) -> bool:
        """Tell whether layers are in host memory."""
        return self.host_bytes_per_s is not None

    @property
    def limit(self) -> tuple[Q, str]:
        """Capacity that decides and which figure it is."""
        if self.capacity_bytes is not None:
            whole, basis = self.capacity_bytes, "given"
        else:
            whole, basis = capacity(self.machine, nominal=self.lecture)
        share = self.gpu_share or self.lent
        return (whole if share in (None, 1) else int(whole * share)), basis

    @property
    def lent(self) -> float | None:
        """Share of its memory that a system lends a GPU by default; None where none is known."""
        return None if self.lecture else LENT.get(self.machine.vendor)

    @property
    def rates(self) -> Rates:
        """Rates of the machine for the formats of the case."""
        formats = self.precision
        own = rates(
            self.machine,
            formats.activations.compute,
            needed=self.time_model != "bandwidth",
            others=formats.computes,
        )
        return replace(own, host_bytes_per_s=self.host_bytes_per_s) if self.offloads else own

    @property
    def members(self) -> tuple[Case, ...]:
        """Cases of the different ranks; this one alone on one device."""
        if not self.ranks:
            return (self,)
        return tuple(
            replace(self, model=r.model, rank=r, ranks=(), peers=self.ranks) for r in self.ranks
        )

    @property
    def layout(self) -> Layout | None:
        """How the model is spread; None on one device."""
        if self.rank is not None:
            return self.rank.layout
        return self.ranks[0].layout if self.ranks else None

    @property
    def least_batch(self) -> int:
        """Fewest sequences that give each group of ranks one [1]."""
        return 1 if self.layout is None else self.layout.dp * self.layout.replicas

    @property
    def stages(self) -> int:
        """Stages that a token goes through, one after the other [1]."""
        return 1 if self.layout is None else self.layout.pp

    @property
    def parts(self) -> int:
        """Parts of a batch that are worked on one after the other or side by side [1]."""
        return self.least_batch * self.stages

    def step(self, B: Q, S: Q) -> list[Segment]:
        """Describe the step that yields tokens: a decode step, or a denoising pass."""
        if self.model.denoises:
            return denoise(B, S)
        return decode(B, S, self.shared_prefix, self.prefix_once)

    def ledger(self, segments: Sequence[Segment]) -> list[Operator]:
        """List the operators of a pass, of a rank those that it executes and what it sends."""
        return self._ledger(segments, self.precision)

    def _ledger(self, segments: Sequence[Segment], precision: Precision) -> list[Operator]:
        if self.rank is None or self.links is None:
            return ledger(self.model, segments, precision)
        from .communication import sent_operators
        from .layout import rank_ledger

        rank = replace(self.rank, model=self.model)
        sent = sent_operators(rank, segments, precision, self.links)
        return [*rank_ledger(rank, segments, precision), *sent]

    def least_ledger(
        self, segments: Sequence[Segment], pass_: Sequence[Operator]
    ) -> Sequence[Operator]:
        """List the operators of a pass in which all tokens choose the same experts and adapter.

        What sequences share is read once.
        """
        shared = any(not is_zero(s.shared) and not s.shared_once for s in segments)
        if shared:
            segments = [replace(s, shared_once=True) for s in segments]
        if not has_experts(self.model) and self.model.adapters is None:
            return self._ledger(segments, self.precision) if shared else pass_
        least = replace(self.precision, routing=Routing(fewest=True))
        return self._ledger(segments, least)


def memory(case: Case, segments: Sequence[Segment], pass_: Sequence[Operator]) -> dict[str, Q]:
    """What a pass needs in memory, by kind [B]. The lecture counts weights and cache only.

    segments: the pass, whose sequences are all that are held; pass_: its operators.
    """
    kinds = {
        "weights_bytes": held_weights(case),
        "kv_cache_bytes": total(_held_cache(case, s.sequences, s.kept, s.shared) for s in segments),
    }
    state = sequence_state_bytes(_resident(case), case.precision)
    if not is_zero(state):
        kinds["state_bytes"] = total(held(case, s.sequences) * state for s in segments)
    if case.model.adapters is not None:
        from .adapters import adapters_bytes

        kinds["adapters_bytes"] = adapters_bytes(case.model, case.precision)
    if not case.lecture:
        kinds["activations_bytes"] = activations_bytes(pass_)
        kinds["reserve_bytes"] = case.reserve_bytes
    return kinds


def _held_cache(case: Case, sequences: Q, S: Q, shared: Q) -> Q:
    """Bytes of the cache of sequences of S tokens that the device of a case holds [B].

    shared: leading tokens that are the same in all: each device has them once [tokens].
    """
    B, model = held(case, sequences), _resident(case)
    each = _part(case, cache_bytes(model, S, case.precision))
    if is_zero(shared):
        return B * each
    return common_once(B, each, _part(case, common_bytes(model, S, shared, case.precision)))


def _part(case: Case, whole: Q) -> Q:
    """Bytes of the cache of one sequence that each device of a group holds [B]."""
    return whole if case.layout is None or case.layout.cp == 1 else whole / case.layout.cp


def held_weights(case: Case) -> Q:
    """Bytes of the weights that the device of a case holds [B]."""
    whole = weights_bytes(case.model, case.precision, norms=not case.lecture)
    if not case.offloads:
        return whole
    from .offload import hosted_weights_bytes

    return whole - hosted_weights_bytes(case.model, case.precision)


def _resident(case: Case) -> Model:
    """Leave the layers whose weights and cache are on the device."""
    if not case.offloads:
        return case.model
    from .offload import resident

    return resident(case.model)


def host_memory(case: Case, segments: Sequence[Segment]) -> dict[str, Q]:
    """What the layers in host memory hold there; nothing where all are on the device [B]."""
    if not case.offloads:
        return {}
    from .offload import hosted_bytes

    return {"host_bytes": hosted_bytes(case.model, segments, case.precision)}


def held(case: Case, sequences: Q) -> Q:
    """Sequences of a deployment that the device of a case holds."""
    return sequences if case.layout is None else case.layout.resident(sequences)


def reserved(case: Case, B: Q, S: Q) -> dict[str, Q]:
    """Bytes that a paged engine sets aside for the sequences that the device of a case holds."""
    shared = case.shared_prefix
    ways = reserved_cache_bytes(_resident(case), case.precision, held(case, B), S, shared)
    cp = 1 if case.layout is None else case.layout.cp
    return ways if cp == 1 else {way: whole / cp for way, whole in ways.items()}


def cached_bytes(case: Case, B: Q, S: Q) -> Q:
    """Bytes of the cache of B sequences of S tokens that the device of a case holds [B]."""
    shared = 0 if is_zero(case.shared_prefix) else minimum(case.shared_prefix, S - 1)
    return _held_cache(case, B, S, shared)


def memory_bytes(case: Case, B: Q, S: Q) -> Q:
    """Bytes that a decode step of B sequences at context S needs, all kinds together [B].

    On several devices those of the fullest one.
    """
    if case.ranks:
        return max(memory_bytes(member, B, S) for member in case.members)
    segments = case.step(B, S)
    # The lecture counts no activations, so it needs no ledger.
    pass_ = () if case.lecture else case.ledger(segments)
    return total(memory(case, segments, pass_).values())


def max_sequences(case: Case, S: int) -> int:
    """Most whole sequences of S tokens that fit."""
    limit = case.limit[0]
    return largest(lambda B: memory_bytes(case, B, S) <= limit)


def max_context_tokens(case: Case, B: int) -> int:
    """Longest context at which B sequences fit [tokens]."""
    limit = case.limit[0]
    return largest(lambda S: memory_bytes(case, B, S) <= limit)


def last_below(case: Case, below: Callable[[int], bool], most: int) -> int:
    """Find the largest batch up to `most` before throughput reaches a target.

    Throughput falls where a part of the batch gets one sequence more, and grows until all parts
    have it: it is searched over full parts, then within the one in which it is reached.
    """
    layout, value, whole = case.layout, 0, most + 1
    sizes = {case.parts, 1 if layout is None else layout.replicas * layout.pp, 1}
    for size in sorted(sizes, reverse=True):

        def holds(n: int, before: int = value, size: int = size) -> bool:
            return below(before + n * size)

        value += size * largest(holds, min(most - value, whole - 1) // size)
        whole = size
    return value


def figures(
    case: Case, segments: Sequence[Segment], pass_: Sequence[Operator], tokens: Q
) -> dict[str, Q]:
    """Memory, traffic, work and time of a pass, by the keys of the contract, in any reading.

    segments: the pass; pass_: its operators; tokens: what it yields, for the throughput [tokens].
    """
    kinds = memory(case, segments, pass_)
    machine = case.rates
    whole = total(kinds.values())
    moved = whole if case.lecture else compulsory_bytes(pass_)
    work = flops(pass_)
    result: dict[str, Q] = {**kinds, "memory_bytes": whole, **host_memory(case, segments)}
    if case.lecture:
        time = bandwidth_time(moved, machine.bytes_per_s)
        result["time_s"] = time
    else:
        bound = through_stages(
            case,
            segments,
            step_time(pass_, machine, case.time_model),
            lambda m: step_time(m.ledger(segments), m.rates, m.time_model),
        )
        floor = None
        if machine.flops_per_s is not None:
            floor = through_stages(
                case,
                segments,
                step_time(case.least_ledger(segments, pass_), machine, "overlap"),
                lambda m: step_time(
                    m.least_ledger(segments, m.ledger(segments)), m.rates, "overlap"
                ),
            )
        seconds = estimated(case, segments, pass_)
        time = bound if seconds is None or case.basis == "bound" else seconds
        long = any(is_long(s) for s in segments)
        result |= {
            "time_s": time,
            "floor_s": floor,
            "bound_s": bound,
            "bound_tokens_per_s": throughput(tokens, bound),
            **estimates(case, seconds, floor, tokens, prefill=long),
        }
    return result | {
        "tokens_per_s": throughput(tokens, time),
        "bytes": moved,
        "flops": work,
        "intensity_flops_per_byte": work / moved,
    }


def estimated(case: Case, segments: Sequence[Segment], pass_: Sequence[Operator]) -> Q:
    """Time of a pass with the engine of the case; None where there is no estimate [s]."""
    if case.constants is None:
        return None
    try:
        return through_stages(
            case,
            segments,
            engine_time(case, segments, pass_),
            lambda m: engine_time(m, segments, m.ledger(segments)),
        )
    except RooflmError:
        return None


def engine_time(case: Case, segments: Sequence[Segment], pass_: Sequence[Operator]) -> Q:
    """Time of a pass on a rank with the engine of the case [s].

    Raises `RooflmError` where something of the pass was never measured.
    """
    return total(seconds for _, seconds in engine_terms(case, segments, pass_))


def engine_terms(
    case: Case, segments: Sequence[Segment], pass_: Sequence[Operator]
) -> list[tuple[str, Q]]:
    """List what the time of a pass with the engine of the case is made of [s]."""
    from .estimate import attention_groups, estimate_terms

    constants, rank = case.constants, case.rank
    if constants is None:
        raise RooflmError(case.no_estimate, "--engine")
    local, sent = segments, []
    if rank is not None:
        from .communication import rank_messages

        local = rank.segments(segments)
        sent = rank_messages(rank, segments, case.precision, case.links)
    groups = attention_groups(segments, constants)
    attends = [
        (
            own if rank is None else rank.segments(own),
            [op for op in case.ledger(own) if op.part == "attention"],
        )
        for own in (groups if len(groups) > 1 else ())
    ]
    return estimate_terms(
        pass_, local, case.rates, constants, case.precision, case.model.layers, sent, attends
    )


def estimates(case: Case, seconds: Q, floor: Q, tokens: Q, prefill: bool = False) -> dict[str, Q]:
    """Put an estimate and its band under the keys of the contract; nulls where there is none.

    seconds, floor: estimate and floor of the pass, None where they are not known [s]; tokens: what
    it yields [tokens]; prefill: it computes a prompt, whose band is another.
    """
    if seconds is None or case.constants is None:
        return dict.fromkeys(ESTIMATES)
    band = case.constants.prefill_band if prefill else case.constants.band
    low, high = (None, None) if band is None else (seconds * band[0], seconds * band[1])
    if low is not None and floor is not None:
        low = maximum(low, floor)
    figures_ = (seconds, low, high, throughput(tokens, seconds))
    return dict(zip(ESTIMATES, figures_, strict=True))


def few_sequences(case: Case, sequences: Q) -> bool:
    """Tell whether a pipeline of unequal stages has fewer sequences than stages."""
    ranks, layout = case.ranks or case.peers, case.layout
    if layout is None or len(ranks) < 2 or hasattr(sequences, "free_symbols"):
        return False
    return bool(layout.resident(sequences) < layout.pp)


def through_stages(
    case: Case, segments: Sequence[Segment], own: Q, seconds: Callable[[Case], Q]
) -> Q:
    """Time of a pass through all stages, one after another [s].

    own: of the stage of the case, the slowest [s]; seconds: tells that of any other. As many
    micro-batches as stages wait for the slowest one each; fewer leave stages idle, and a token
    takes what all stages take together. Ranks that differ within a stage count with their mean.
    """
    sequences = total(s.sequences for s in segments)
    layout = case.layout
    if layout is None or not few_sequences(case, sequences):
        return case.stages * own
    peers = (replace(case, model=r.model, rank=r) for r in case.peers)
    counts = [r.count for r in case.peers]
    each = [n * seconds(peer) for n, peer in zip(counts, peers, strict=True)]
    together = total(each) * layout.pp / sum(counts)
    return maximum(layout.resident(sequences) * own, together)


def slowest(case: Case, segments: Sequence[Segment]) -> Case:
    """Find the rank whose pass takes longest; the case itself on one device."""
    members = case.members
    if len(members) == 1:
        return members[0]
    return max(members, key=lambda m: step_time(m.ledger(segments), m.rates, m.time_model))


def fullest(case: Case, segments: Sequence[Segment]) -> Case:
    """Find the rank that holds the most; the case itself on one device."""
    members = case.members
    if len(members) == 1:
        return members[0]
    return max(members, key=lambda m: total(memory(m, segments, m.ledger(segments)).values()))


def fullest_memory(case: Case, segments: Sequence[Segment]) -> dict[str, Q]:
    """What the fullest device needs, by kind and altogether; nothing where all are alike [B]."""
    if len(case.ranks) < 2:
        return {}
    full = fullest(case, segments)
    kinds = memory(full, segments, full.ledger(segments))
    return {**kinds, "memory_bytes": sum(kinds.values())}


def limits(case: Case, pass_: Sequence[Operator]) -> tuple[Q, Q]:
    """Seconds of a pass that compute sets, and seconds that memory traffic sets."""
    if case.lecture:
        return 0, 1
    return shares(pass_, case.rates, case.time_model)


def regime(computing: Q, moving: Q, sending: Q = 0) -> Q:
    """Name the limit that holds more than half of the time; arrays give arrays of names.

    sending: time of messages, which is part of `moving` [s].
    """
    if is_array(computing, moving, sending):
        import numpy as np

        by_two = np.where(computing > moving, "compute", "memory")
        return np.where(sending > (computing + moving) / 2, "communication", by_two)
    if sending > (computing + moving) / 2:
        return "communication"
    return "compute" if computing > moving else "memory"
