"""A model spread over devices: what is typed about it, and the case of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from .case import Case
from .communication import ALL_REDUCES, AllReduce, Link, Links
from .errors import RooflmError, nearest, printable
from .hardware import Machine
from .layout import Layout, remarks, shard, tp_degrees
from .memory import weights_bytes
from .model import Model, token_bytes, total_parameters
from .passes import Precision

NODE = re.compile(r"(?:(\d{1,12})(?:x ?| x ))?(\d{1,12})(?:x ?| x )(?=[a-zA-Z0-9])(.+)")
"""8xh100-sxm or 8 x h100-sxm, and 2x8xh100-sxm for two nodes of eight."""
MOST_DEVICES = 10_000
USUAL_NODE = 8
"""Devices that most nodes have at the most."""


@dataclass(frozen=True)
class Node:
    """What `--on` names: a chip, and how many where that is said."""

    name: str
    devices: int | None = None
    """Devices of a node; None where one chip is named."""
    nodes: int = 1


def parse_node(text: str) -> Node:
    """Take NODESxDEVICESxNAME apart."""
    found = NODE.fullmatch(text)
    if found is None:
        return Node(text)
    if re.fullmatch(r"\d{1,2}", found[3]):
        what = f"'{printable(text, 40)}' ends with the number of devices"
        raise RooflmError(what, "--on", f"Write {found[3]}x{found[2]}.")
    nodes, devices = int(found[1] or 1), int(found[2])
    if not 1 <= nodes * devices <= MOST_DEVICES:
        what = f"{nodes * devices:,} devices are not between 1 and {MOST_DEVICES:,}"
        raise RooflmError(what, "--on")
    return Node(found[3], devices, nodes)


@dataclass(frozen=True)
class Spread:
    """What is typed about a layout; None where nothing is."""

    tp: int | None = None
    pp: int | None = None
    ep: int | None = None
    dp: int | None = None
    cp: int | None = None
    replicas: int | None = None
    link_bytes_per_s: float | None = None
    network_bytes_per_s: float | None = None
    latency_s: float = 0.0
    all_reduce: str = "ring"

    @property
    def given(self) -> dict[str, int]:
        """Degrees that were typed."""
        names = ("tp", "pp", "ep", "dp", "cp", "replicas")
        return {n: ways for n in names if (ways := getattr(self, n)) is not None}


def without_links(spread: Spread) -> Spread:
    """Let messages take no time where no link was typed: for memory, which they do not fill."""
    free = float("inf")
    return replace(
        spread,
        link_bytes_per_s=spread.link_bytes_per_s or free,
        network_bytes_per_s=spread.network_bytes_per_s or free,
    )


def _layout(ways: Mapping[str, int]) -> Layout:
    """Make a layout of what was typed; more devices than any deployment has are a slip."""
    layout = Layout(**ways)
    if layout.devices > MOST_DEVICES:
        what = f"the layout takes {layout.devices:,} devices, more than {MOST_DEVICES:,}"
        most = max(ways, key=lambda name: ways[name])
        raise RooflmError(what, f"--{most}", "Is it a slip?")
    return layout


def layout_of(spread: Spread, node: Node, case: Case) -> Layout | None:
    """Choose the layout; None for one device. A node must be used whole."""
    whole = None if node.devices is None else node.devices * node.nodes
    if not spread.given:
        if whole is None or whole == 1:
            return None
        if whole not in tp_degrees(case.model):
            ways = [n for n in tp_degrees(case.model) if n <= whole]
            what = f"{case.model.name} cannot be split {whole} ways by itself"
            fix = f"Say how: --tp {ways[-1]} with --pp, --dp or --replicas."
            raise RooflmError(what, "--on", fix)
        return Layout(tp=whole)
    layout = _layout(spread.given)
    if whole is not None and layout.devices != whole:
        what = f"the layout takes {layout.devices} devices, and {whole} are named"
        raise RooflmError(what, "--on", f"tp * pp * dp * replicas has to be {whole}.")
    return layout


def deploy(case: Case, spread: Spread, node: Node) -> Case:
    """Spread a case over devices, by what was typed.

    Without a number of devices a layout takes as many of one node as it needs. Raises
    `RooflmError` where the degrees or the links are not possible.
    """
    if spread.all_reduce not in ALL_REDUCES:
        fix = nearest(spread.all_reduce, ALL_REDUCES) or f"Known: {', '.join(ALL_REDUCES)}."
        raise RooflmError(f"no all-reduce '{spread.all_reduce[:40]}'", "--all-reduce", fix)
    layout = layout_of(spread, node, case)
    if layout is None or layout.devices == 1:
        return case
    links = links_of(case.machine, spread, layout, node.devices or layout.devices)
    ranks, constants = tuple(shard(case.model, layout)), case.constants
    if constants is not None and layout.devices > layout.replicas:
        from .estimate import on_several

        constants = on_several(constants)
    return replace(case, ranks=ranks, links=links, constants=constants)


def joined(machine: Machine, layout: Layout | None) -> bool:
    """Tell whether a machine has a link for what a layout sends, or it sends nothing."""
    if machine.links or layout is None:
        return True
    return layout.tp == layout.pp == layout.dp == 1


def links_of(machine: Machine, spread: Spread, layout: Layout, devices: int) -> Links:
    """Tell what joins devices: what was typed, or the machine's own.

    devices: of a node [1].
    """
    how: AllReduce = spread.all_reduce  # pyright: ignore[reportAssignmentType]

    def link(bytes_per_s: float | None) -> Link | None:
        return None if bytes_per_s is None else Link(bytes_per_s, spread.latency_s, how)

    network = link(spread.network_bytes_per_s)
    if (typed := link(spread.link_bytes_per_s)) is not None:
        return Links(typed, network, devices)
    name = _link_name(machine, layout, devices)
    near = Link(
        machine.links.get(name, float("inf")), spread.latency_s, how, machine.pairs.get(name)
    )
    joins = machine.bridges.get(name, devices)
    if joins >= min(devices, layout.devices):
        return Links(near, network, devices)
    others = [rate for other, rate in machine.links.items() if other != name]
    return Links(near, link(max(others, default=None)), joins, bridge=name)


def _link_name(machine: Machine, layout: Layout, devices: int) -> str:
    """Choose the link between the devices of a node: the fastest that joins them.

    devices: of a node [1]. A bridge joins fewer than a node has: it is taken in one node alone,
    where messages beyond it go over the next link; "" where nothing is sent.
    """
    one_node = layout.devices <= devices
    links = [n for n in machine.links if one_node or machine.bridges.get(n, devices) >= devices]
    if links:
        return max(links, key=lambda name: machine.links[name])
    if joined(machine, layout):
        return ""
    what = f"no link between devices of {machine.name} is known"
    raise RooflmError(what, "--link", "Say --link 450GB, one direction of a device a second.")


def show_ranks(model: Model, ways: Mapping[str, int], precision: Precision) -> dict[str, Any]:
    """Describe what each different rank of a layout holds, without hardware."""
    layout = _layout(ways)
    rows = [
        {
            "ranks": rank.count,
            "parameters": total_parameters(rank.model),
            "weights_bytes": weights_bytes(rank.model, precision),
            "cache_bytes_per_token": token_bytes(rank.model, precision) / layout.cp,
            "layers": rank.model.layers,
            **({} if model.adapters is None else _adapters(rank.model, precision)),
        }
        for rank in shard(model, layout)
    ]
    return {"devices": layout.devices, "ranks": rows, "layout": remarks(model, layout)}


def _adapters(model: Model, precision: Precision) -> dict[str, Any]:
    """Tell what the adapters of a rank take."""
    from .adapters import adapters_bytes

    return {"adapters_bytes": adapters_bytes(model, precision)}


def told(case: Case, timed: bool = True, bound: bool = False) -> list[str]:
    """Say in sentences how a case is spread, and what a division of the whole would get wrong.

    timed: the answer has times, so that messages matter; bound: it has bounds alone.
    """
    layout, links = case.layout, case.links
    if layout is None or links is None:
        return []
    names = ("replicas", "tp", "pp", "ep", "dp", "cp")
    axes = ", ".join(f"{n} {getattr(layout, n)}" for n in names if getattr(layout, n) > 1)
    near = links.near
    said = [
        f"layout: {axes or 'one device'}: {layout.devices} devices; memory is that of the fullest, "
        "tokens/s that of all; --batch counts the sequences of all replicas"
    ]
    if timed and layout.tp * layout.pp * layout.dp > 1:
        speed = f"{near.bandwidth(max(2, layout.tp)) / 1e9:,.4g} GB/s one way"
        sent = f"{near.all_reduce} all-reduce over {speed}"
        if near.latency_s or bound or case.constants is None:
            sent += f", {1e6 * float(near.latency_s):g} us a message (--link-latency)"
        if not bound and case.constants is not None:
            sent += " in bounds; estimates have all-reduces as timed, and no less than that"
        said.append(f"messages: {sent}; none overlapped with compute")
        if bound and layout.tp > 1 and not near.latency_s:
            said.append(
                "messages of small models take their latency, which no bound has: they gain less "
                "from --tp than is shown; --link-latency 10us, say, puts it in"
            )
        if links.bridge:
            said.append(
                f"{links.bridge} joins {links.node_devices} devices of {case.machine.name}; "
                + (
                    "what is sent beyond them has no link that is known"
                    if links.far is None
                    else f"beyond them {links.far.bytes_per_s / 1e9:,.4g} GB/s of a device one way"
                )
            )
        elif links.far is not None:
            said.append(
                f"between nodes: {links.far.bytes_per_s / 1e9:,.4g} GB/s of a device one way"
            )
        elif links.node_devices > USUAL_NODE:
            said.append(
                f"all {links.node_devices} devices are taken to be of one node; two nodes of eight "
                f"are --on 2x8x{case.machine.name} --network 50GB"
            )
    said += remarks(case.model, layout) if case.ranks else []
    if layout.pp > 1:
        said.append(f"{layout.pp} stages work on {layout.pp} micro-batches: a token waits for all")
    return said
