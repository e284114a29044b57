"""What a rank of a layout sends in a pass.

Collectives are kept apart from the operators of a pass: none overlaps with compute, and engines
choose the algorithm of an all-reduce by size. A reduce-scatter and an all-gather in place of an
all-reduce (sequence parallelism) move the same bytes around a ring.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias, cast

from .attention import Attention
from .collectives import (
    all_to_all_time,
    distinct_destinations,
    in_switch_time,
    one_shot_time,
    point_to_point_time,
    ring_all_reduce_time,
    ring_gather_time,
    two_shot_time,
)
from .errors import RooflmError
from .experts import Experts, NoFeedForward
from .layout import Layout, Rank, parts
from .model import Group, Model, group_names
from .passes import Operator, Precision, Segment
from .readings import Q, is_zero, minimum, total

AllReduce = Literal["ring", "one-shot", "two-shot", "in-switch"]
Kind = Literal["all-reduce", "all-gather", "reduce-scatter", "all-to-all", "point-to-point"]

ALL_REDUCES = {
    "ring": ring_all_reduce_time,
    "one-shot": one_shot_time,
    "two-shot": two_shot_time,
    "in-switch": in_switch_time,
}


@dataclass(frozen=True)
class Link:
    """What joins the devices."""

    bytes_per_s: Q
    """Bandwidth of a device in one direction [B/s]."""
    latency_s: Q = 0
    """Latency of a message, which has to be measured [s]."""
    all_reduce: AllReduce = "ring"
    """How ranks add up; engines choose by size and have fixed thresholds."""
    pair_bytes_per_s: Q | None = None
    """Bandwidth to one other device where each pair has links of its own; None elsewhere [B/s]."""

    def bandwidth(self, ranks: Q) -> Q:
        """Bandwidth of a device to the others of a group [B/s]."""
        if self.pair_bytes_per_s is None:
            return self.bytes_per_s
        return minimum(self.bytes_per_s, (ranks - 1) * self.pair_bytes_per_s)


@dataclass(frozen=True)
class Links:
    """What joins the devices of a deployment."""

    near: Link
    """Within a node."""
    far: Link | None = None
    """Between nodes; None where it is not known."""
    node_devices: int = 1
    """Devices of a node [1]."""
    bridge: str = ""
    """Name of the near link where it joins a few devices of one node; the far one joins those."""

    @property
    def between(self) -> Link:
        """Link between nodes; raises `RooflmError` where none is known."""
        if self.far is None and self.bridge:
            what = f"{self.bridge} joins {self.node_devices} devices, and no other link is known"
            raise RooflmError(what, "--link", "Say --link 31GB, one direction of a device.")
        if self.far is None:
            what = "this layout sends from node to node, and no network between them is known"
            raise RooflmError(what, "--network", "Say --network 50GB, one direction of a device.")
        return self.far


@dataclass(frozen=True)
class Communication:
    """A collective of a pass; figures are of one run, `count` runs are equal."""

    name: str
    count: Q
    kind: Kind
    bytes: Q
    """Bytes of the tensor as the formula of the kind takes it [B]."""
    ranks: Q
    """Devices that take part [1]."""
    link: Link

    @property
    def seconds(self) -> Q:
        """Time of one run [s]."""
        link, bytes_per_s = self.link, self.link.bandwidth(self.ranks)
        match self.kind:
            case "all-reduce":
                time = ALL_REDUCES[link.all_reduce]
            case "all-gather" | "reduce-scatter":
                time = ring_gather_time
            case "all-to-all":
                time = all_to_all_time
            case "point-to-point":
                return point_to_point_time(self.bytes, bytes_per_s, link.latency_s)
        return time(self.bytes, self.ranks, bytes_per_s, link.latency_s)


def sent_operators(
    rank: Rank, segments: Sequence[Segment], precision: Precision, links: Links
) -> Iterator[Operator]:
    """List what a rank sends in a pass of the whole deployment as operators of its pass."""
    for sent in _communication(rank, segments, precision, links.near):
        far = _far_share(sent, rank.layout, links.node_devices)
        seconds = 0 if far == 1 else (1 - far) * sent.seconds
        if far > 0:
            seconds += far * replace(sent, link=links.between).seconds
        yield Operator(sent.name, "communication", sent.count, seconds=seconds)


def rank_messages(
    rank: Rank | None, segments: Sequence[Segment], precision: Precision, links: Links | None
) -> list[Communication]:
    """List what a rank sends within its node in a pass; nothing on one device.

    Raises `RooflmError` where some of it goes from node to node.
    """
    if rank is None or links is None:
        return []
    sent = list(_communication(rank, segments, precision, links.near))
    if any(_far_share(s, rank.layout, links.node_devices) for s in sent):
        beyond = f"beyond {links.bridge}" if links.bridge else "from node to node"
        raise RooflmError(f"no message {beyond} was measured", "--engine")
    return sent


def _far_share(sent: Communication, layout: Layout, node: int) -> float:
    """Tell which share of the runs of a collective goes between nodes.

    Ranks of tp are neighbours, then groups of dp, stages and replicas: a block of neighbours stays
    in a node that holds whole blocks. Of the hops between stages some cross, counted for each.
    """
    if layout.devices <= node:
        return 0
    if sent.kind == "point-to-point":
        hops = range(1, layout.pp)
        starts = range(0, layout.devices, layout.pp * layout.stage_ranks)
        crossing = [
            (start + hop * layout.stage_ranks) // node
            != (start + (hop - 1) * layout.stage_ranks) // node
            for start in starts
            for hop in hops
        ]
        return sum(crossing) / len(crossing)
    of_groups = sent.kind == "all-to-all" or sent.name.partition(" of all")[0] in OF_GROUPS
    block = layout.stage_ranks if of_groups else layout.tp
    return 0 if block <= node and node % block == 0 else 1


OF_GROUPS = ("tokens", "results")
"""Collectives over the dp groups of a stage begin with these words."""


def _communication(
    rank: Rank, segments: Sequence[Segment], precision: Precision, link: Link
) -> Iterator[Communication]:
    model, layout, b = rank.model, rank.layout, precision.activations.bytes
    local = rank.segments(segments)
    rows = sum(s.rows for s in local)
    everyone = sum(
        replace(here, sequences=layout.together(s.sequences)).rows
        for here, s in zip(local, segments, strict=True)
    )
    residual = model.residual
    if layout.tp > 1 and rank.first:
        width = model.D if model.embedding_width is None else model.embedding_width
        width += 0 if residual is None else model.layers * residual.width
        yield Communication("embedding", 1, "all-reduce", b * rows * width, layout.tp, link)
    for group, name in zip(model.groups, group_names(model), strict=True):
        sent = [
            *_mixer_sends(model, group, layout, b),
            *_ffn_sends(model, group, layout, everyone / rows),
        ]
        for what, kind, width, ranks in sent:
            label = f"{what} {name}" if name else what
            yield Communication(label, group.count, kind, width * rows * b, ranks, link)
    head_rows = total(s.sequences * s.head_rows for s in local if not is_zero(s.head_rows))
    if layout.tp > 1 and not is_zero(head_rows):
        logits = b * head_rows * model.V * layout.tp
        yield Communication("logits", 1, "all-gather", logits, layout.tp, link)
    if layout.pp > 1:
        streams = 1 if residual is None else max(1, residual.streams)
        stream = b * rows * model.D * streams
        yield Communication("next stage", 1, "point-to-point", stream, 2, link)


Sends: TypeAlias = Iterator[tuple[str, Kind, float, int]]
"""Name, kind, elements a row of the pass, ranks."""


def _mixer_sends(model: Model, group: Group, layout: Layout, b: float) -> Sends:
    tp, cp, mixer = layout.tp, layout.cp, cast("Any", group.mixer)
    if tp == 1 or mixer.kind == "none":
        return
    for part in parts(mixer):
        if cp > 1 and part.token_elements:
            N, q, v = _query_widths(part)
            yield "queries", "all-gather", N * cp * q, cp
            # A log-sum-exp in fp32 goes with each partial output.
            yield "partial outputs", "reduce-scatter", N * cp * (v + 4 / b), cp
        if part.kind == "mamba":
            yield "step, input and output", "all-reduce", part.r + 2 * part.s, tp
    if not model.parallel or isinstance(group.ffn, NoFeedForward):
        yield "after mixer", "all-reduce", model.D, tp


def _ffn_sends(model: Model, group: Group, layout: Layout, groups: Q) -> Sends:
    """List what an MLP sends; groups: rows of all dp groups for one of this rank [1]."""
    tp, dp, ep, D, ffn = layout.tp, layout.dp, layout.ep, model.D, group.ffn
    ranks, shares = layout.stage_ranks, True
    if isinstance(ffn, NoFeedForward):
        return
    if isinstance(ffn, Experts) and dp > 1:
        if ep == 1:
            yield "tokens of all groups", "all-gather", groups * ffn.width(D), dp
            yield "results of all groups", "reduce-scatter", groups * ffn.width(D), dp
        else:
            # Ranks of a group have the same rows: each sends its part of them.
            copies = _copies(ffn, ep) * layout.expert_tp
            yield "dispatch", "all-to-all", ranks / tp * copies * ffn.width(D), ranks
            yield "combine", "all-to-all", ranks / tp * copies * ffn.width(D), ranks
            shares = bool(ffn.shared) or model.parallel
    if tp > 1:
        yield "after MLP", "all-reduce" if shares else "all-gather", D, tp


def _copies(ffn: Experts, ep: int) -> float:
    """Sets of experts that a row goes to, those that do nothing left out."""
    sets = ffn.choices / ffn.E
    return distinct_destinations(sets, ffn.choices, ffn.k) * ep / sets


def _query_widths(mixer: Any) -> tuple[int, int, int]:
    """Tell the heads of a rank, and the widths of a query and an output of each."""
    if isinstance(mixer, Attention):
        return mixer.N, mixer.H, mixer.value_width
    if hasattr(mixer, "c"):
        return mixer.N, mixer.c + mixer.r, mixer.c
    return mixer.N, mixer.H, mixer.H
