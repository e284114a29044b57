"""What was typed, as the case that it means: a model on a machine and how to count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from .errors import RooflmError, check_choice, printable
from .options import Typed
from .units import (
    parse_count,
    parse_counts,
    parse_layers,
    parse_rate,
    parse_share,
    parse_size,
    parse_speed,
    parse_time,
)

if TYPE_CHECKING:
    from .case import Case
    from .compare import Place
    from .cost import Paid
    from .deployment import Spread
    from .handoff import Handoff
    from .layout_search import Site
    from .requests import Work


LINKS = ("link", "network", "link_latency", "all_reduce")
"""Options of a layout that say what joins devices."""


def given(text: str | None, usual: str) -> str:
    """Take what was typed, even if it is empty; the usual where nothing was."""
    return usual if text is None else text


@dataclass(frozen=True)
class Counting:
    """The options that say how to count, as they were typed."""

    weights: str | None = None
    kv: str | None = None
    accounting: str = "full"
    time_model: str | None = None
    reserve: str = "0"
    capacity: str | None = None
    routing: str | None = None
    state: str | None = None
    tokens_per_step: str | None = None
    gpu_share: str | None = None
    estimating: Estimating | None = None
    terms: Typed = field(default_factory=dict[str, "str | None"])
    """Further terms of a pass: what sequences share, and adapters."""
    hardware_scale: str | None = None


@dataclass(frozen=True)
class Estimating:
    """The options of an estimate, as they were typed."""

    engine: str | None = None
    calibration: str | None = None
    basis: str | None = None


def estimating(model: Any, machine: Any, precision: Any, typed: Counting) -> dict[str, Any]:
    """Find the constants of an estimate; nothing where a command gives none."""
    how = typed.estimating
    if how is None:
        return {}
    usual = "estimate" if typed.time_model is None else "bound"
    basis = given(how.basis, usual)
    check_choice(basis, ("estimate", "bound"), "--basis")
    if typed.accounting == "lecture":
        said = {"--engine": how.engine, "--calibration": how.calibration, "--basis": how.basis}
        for option, text in said.items():
            if text is not None:
                what = "the lecture's accounting estimates nothing"
                raise RooflmError(what, option, "Leave out one of the two options.")
        return {}
    if how.calibration is not None:
        if how.engine is not None:
            raise RooflmError("a calibration is its own engine", "--engine", "Leave it out.")
        from .calibrate import calibrated_constants

        found = calibrated_constants(machine, how.calibration, precision)
        return {"constants": found, "basis": basis}
    if model.denoises:
        return {"no_estimate": "no published step denoises"}
    from .engines import find_constants

    constants, why = find_constants(machine, how.engine)
    return {"constants": constants, "no_estimate": why, "basis": basis}


def make_case(model: Any, machine: Any, typed: Counting) -> Case:
    """Make a case of a model, a machine and what was typed."""
    from .case import Case
    from .timing import TIME_MODELS

    accounting: Any = typed.accounting
    check_choice(accounting, ("full", "lecture"), "--accounting")
    usual = "bandwidth" if accounting == "lecture" else "operator"
    time_model: Any = given(typed.time_model, usual)
    check_choice(time_model, TIME_MODELS, "--time-model")
    capacity, share = typed.capacity, typed.gpu_share
    machine = _scaled(machine, typed.hardware_scale)
    model = with_adapters(model, typed)
    precision = make_precision(typed, machine, model)
    return Case(
        model=model,
        machine=machine,
        precision=precision,
        accounting=accounting,
        time_model=time_model,
        reserve_bytes=parse_size(typed.reserve, "--reserve"),
        capacity_bytes=None if capacity is None else parse_size(capacity, "--capacity", least=1),
        gpu_share=None if share is None else parse_share(share, "--gpu-share", whole=True),
        step_tokens=_step_tokens(model, typed.tokens_per_step),
        **{**estimating(model, machine, precision, typed), **_sharing(model, typed)},
    )


def _scaled(machine: Any, text: str | None) -> Any:
    """Scale figures of a machine, where that was typed."""
    if text is None:
        return machine
    from .hardware import scaled

    return scaled(machine, parse_factors(text))


def parse_factors(text: str) -> dict[str, float]:
    """Read factors of a machine's figures, as in bandwidth=1.1,compute=1.1."""
    from .hardware import SCALED

    factors: dict[str, float] = {}
    for part in text.split(","):
        figure, _, factor = (word.strip() for word in part.partition("="))
        check_choice(figure, SCALED, "--hardware-scale")
        if figure in factors:
            raise RooflmError(f"'{figure}' is scaled twice", "--hardware-scale")
        factors[figure] = parse_rate(factor, "--hardware-scale")
    return factors


def _sharing(model: Any, typed: Counting) -> dict[str, Any]:
    """Read what the sequences of a step share; nothing where nothing was typed."""
    text, how = typed.terms.get("shared_prefix"), typed.terms.get("prefix_reads")
    if text is None:
        if how is not None:
            what = "no prefix is shared, so that none is read"
            raise RooflmError(what, "--prefix-reads", "Say --shared-prefix 2048 as well.")
        return {}
    from .sharing import check_sharing

    check_choice(given(how, "each"), ("each", "once"), "--prefix-reads")
    if typed.accounting == "lecture":
        what = "the lecture's accounting shares nothing"
        raise RooflmError(what, "--shared-prefix", "Leave out one of the two options.")
    check_sharing(model)
    shared: dict[str, Any] = {"shared_prefix": parse_count(text, "--shared-prefix")}
    if how != "once":
        return shared
    why = "no published step reads a shared prefix once"
    return shared | {"prefix_once": True, "constants": None, "no_estimate": why}


def with_adapters(model: Any, typed: Counting) -> Any:
    """Put adapters beside the weights of a model; the model itself where nothing was typed."""
    text, targets = typed.terms.get("lora"), typed.terms.get("lora_targets")
    if text is None:
        if targets is not None:
            raise RooflmError("there are no adapters", "--lora-targets", "Say --lora 16 as well.")
        return model
    from .adapters import Adapters, adapted

    if typed.accounting == "lecture":
        what = "the lecture's accounting has no adapters"
        raise RooflmError(what, "--lora", "Leave out one of the two options.")
    named: Any = given(targets, "all")
    check_choice(named, ("all", "attention"), "--lora-targets")
    rank, times, count = text.partition("x")
    held = parse_count(count, "--lora") if times else 1
    return adapted(model, Adapters(parse_count(rank, "--lora"), held, named))


def parse_contexts(text: str | None, typed: Counting) -> list[int]:
    """Read contexts of steps, each with a token of its own beside what is shared."""
    contexts = parse_counts(given(text, "1024"), "--context")
    shared = typed.terms.get("shared_prefix")
    if shared is not None:
        from .sharing import check_contexts

        check_contexts(parse_count(shared, "--shared-prefix"), contexts)
    return contexts


def parse_context(text: str | None, typed: Counting) -> int:
    """Read the context of one step."""
    parse_count(given(text, "1024"), "--context")
    return parse_contexts(text, typed)[0]


def refuse_shared(typed: Counting, what: str) -> None:
    """Refuse a shared prefix of anything but decode steps at one context."""
    if typed.terms.get("shared_prefix") is not None:
        fix = "Leave it out; a prompt finds its prefix in a cache with --prefix."
        raise RooflmError(f"a prefix that {what} share is not modelled", "--shared-prefix", fix)


def _step_tokens(model: Any, text: str | None) -> float:
    if text is None:
        return 1
    if not model.denoises:
        what = f"{model.name} decodes a token a step"
        raise RooflmError(what, "--tokens-per-step", "Leave the option out.")
    return parse_rate(text, "--tokens-per-step")


def make_precision(typed: Counting, machine: Any = None, model: Any = None) -> Any:
    """Find the formats of a pass: what was typed, or those of the model's file or checkpoint.

    The lecture's accounting counts presets in 16 bits.
    """
    from .hardware import natural_format
    from .precision import precision_of

    natural = natural_format(machine) if machine is not None else "bf16"
    return precision_of(
        typed.weights,
        typed.kv,
        typed.state,
        model=model,
        natural=natural,
        routing=_routing(typed.routing),
        published=typed.accounting != "lecture",
    )


def _routing(text: str | None) -> Any:
    """Read how tokens choose experts: even, zipf:EXPONENT, or one probability an expert."""
    from .passes import Routing

    if text in (None, "even"):
        return Routing()
    word, colon, rest = text.partition(":")
    try:
        numbers = tuple(float(n) for n in (rest if colon else text).split(","))
    except ValueError:
        numbers = ()
    if word == "zipf" and len(numbers) == 1 and 0 <= numbers[0] <= 10:
        return Routing(exponent=numbers[0])
    if word == "alike" and len(numbers) == 1 and 0 <= numbers[0] <= 1:
        return Routing(alike=numbers[0])
    if not colon and len(numbers) > 1 and all(0 <= n <= 1 for n in numbers):
        return Routing(shares=numbers)
    what = f"'{printable(text, 40)}' is no routing"
    raise RooflmError(
        what, "--routing", "Write even, zipf:1.0, alike:0.5, or a probability an expert."
    )


def find_case(
    model: Any,
    on: Any,
    settings: list[str],
    models: str | None,
    hardware: str | None,
    typed: Counting,
    layout: Typed,
    timed: bool = True,
) -> Case:
    """Find a model and a machine by name, and make a case of them, spread as was typed.

    timed: how long messages take matters; memory needs no link.
    """
    node = node_of(on)
    return spread_case(
        _one_device(model, node.name, settings, models, hardware, typed), layout, node, timed
    )


def _one_device(
    model: Any, on: Any, settings: list[str], models: str | None, hardware: str | None,
    typed: Counting,
) -> Case:  # fmt: skip
    """Find a model and a machine by name, and make a case of them."""
    from .model import has_experts
    from .presets import find_machine, find_model

    machine = find_machine(on, hardware)
    found = find_model(model, parse_settings(settings), models)
    if typed.routing is not None and not has_experts(found):
        raise RooflmError(f"{found.name} has no experts", "--routing", "Leave the option out.")
    return make_case(found, machine, typed)


def refuse_degrees(layout: Typed) -> None:
    """Refuse a layout where it is looked for."""
    for name, text in layout.items():
        if text is not None and name not in LINKS:
            option = f"--{name.replace('_', '-')}"
            raise RooflmError("the layout is solved for", option, "Leave the option out.")


def find_site(
    model: str, on: str, settings: list[str], models: str | None, hardware: str | None,
    typed: Counting, links: Typed, words: Sequence[str],
) -> tuple[Site, list[int]]:  # fmt: skip
    """Find a model and a machine for layouts that are looked for, and the devices that --on names.

    links: what was typed of them; words: options that were typed, for commands that are told.
    """
    from .layout_search import Site

    node = node_of(on)
    case = _one_device(model, node.name, settings, models, hardware, typed)
    spread = parse_spread({name: text for name, text in links.items() if name in LINKS})
    site = Site(case, node.name, node.devices, spread, tuple(words), model)
    most = 8 if node.devices is None else node.devices * node.nodes
    return site, list(range(1, most + 1))


def node_of(on: Any) -> Any:
    """Take a number of devices off the name of a machine; most names, and machines, have none."""
    if not isinstance(on, str) or not on[:1].isdigit():
        return _Plain(on)
    from .deployment import parse_node

    return parse_node(on)


@dataclass(frozen=True)
class _Plain:
    """A machine by name, one of it."""

    name: Any
    devices: None = None


def spread_case(case: Case, layout: Typed, node: Any, timed: bool = True) -> Case:
    """Spread a case over devices, where a layout or a number of devices was typed.

    timed: links that are not known are asked for; else they take no time, which nobody looks at.
    """
    said = {name: text for name, text in layout.items() if text is not None}
    layers, link = said.pop("gpu_layers", None), said.pop("host_link", None)
    if layers is not None or link is not None:
        from .offload import offload

        speed = None if timed else float("inf")
        speed = speed if link is None else parse_speed(link, "--host-link")
        case = spread_case(case, {**layout, "gpu_layers": None, "host_link": None}, node, timed)
        return offload(case, None if layers is None else parse_layers(layers), speed)
    if not said and node.devices is None:
        return case
    from .deployment import Node, deploy

    spread = parse_spread(layout)
    if not timed:
        from .deployment import without_links

        spread = without_links(spread)
    whole = node if isinstance(node, Node) else Node(node.name)
    return deploy(case, spread, whole)


def parse_spread(layout: Typed) -> Spread:
    """Read the degrees and the links of a layout that were typed."""
    from .deployment import Spread

    said = {name: text for name, text in layout.items() if text is not None}
    ways: dict[str, int] = parse_ways(layout)
    speeds: dict[str, float] = {
        name: parse_speed(said[name], f"--{name}") for name in ("link", "network") if name in said
    }
    latency = parse_time(said["link_latency"], "--link-latency") if "link_latency" in said else 0.0
    return Spread(
        **ways,
        link_bytes_per_s=speeds.get("link"),
        network_bytes_per_s=speeds.get("network"),
        latency_s=latency,
        all_reduce=said.get("all_reduce", "ring"),
    )


def find_handoff(
    typed: Counting, handoff: Typed, case: Case, layout: Typed, hardware: str | None,
    works: Sequence[Work] | None,
) -> Handoff | None:  # fmt: skip
    """Find where prompts are computed, if not where they are decoded; None where nothing was typed.

    typed: how to count on both machines; a capacity and factors are the decode machine's alone.
    """
    on, speed = handoff.get("prefill_on"), handoff.get("handoff")
    if on is None:
        if speed is not None:
            raise RooflmError("nothing is handed on", "--handoff", "Say --prefill-on as well.")
        return None
    if works is None or works[0].phase != "request":
        what = "only requests are computed on two machines"
        raise RooflmError(what, "--prefill-on", "Add --phase request.")
    if case.model.denoises:
        what = f"{case.model.name} keeps no cache that could be handed on"
        raise RooflmError(what, "--prefill-on", "Leave the option out.")
    from .handoff import Handoff
    from .presets import find_machine

    node = node_of(on)
    links = ("link", "link_latency", "all_reduce") if node.devices not in (None, 1) else ()
    try:
        machine = find_machine(node.name, hardware)
        own = make_case(case.model, machine, replace(typed, capacity=None, hardware_scale=None))
        prefill = spread_case(own, {name: layout.get(name) for name in links}, node)
    except RooflmError as e:
        if e.where != "--on":
            raise
        fix = "`rooflm hardware` lists what is known; as many devices as split every layer will do."
        raise RooflmError(e.what, "--prefill-on", fix) from None
    latency = layout.get("link_latency")
    return Handoff(
        prefill,
        _handoff_speed(speed, layout.get("network"), case, prefill),
        0.0 if latency is None else parse_time(latency, "--link-latency"),
    )


def _handoff_speed(text: str | None, network: str | None, case: Case, prefill: Case) -> float:
    """Read how fast a cache is handed on: as typed, or by as many networks as devices have."""
    if text is not None:
        return parse_speed(text, "--handoff")
    if network is None:
        what = "how fast a cache goes from one machine to the other is not known"
        raise RooflmError(what, "--handoff", "Say --handoff 50GB, bytes a second one way.")
    pairs = [1 if c.layout is None else c.layout.tp * c.layout.pp for c in (case, prefill)]
    return min(pairs) * parse_speed(network, "--network")


def parse_ways(layout: Typed) -> dict[str, int]:
    """Read the degrees of a layout that were typed."""
    fix = (
        "Write 8. One layout at a time: `rooflm compare --on 2xNAME,4xNAME` takes several, "
        "`rooflm plan` tries all."
    )
    return {
        name: parse_count(text, f"--{name}", fix)
        for name, text in layout.items()
        if name in ("tp", "pp", "ep", "dp", "cp", "replicas") and text is not None
    }


def retyped(options: Mapping[str, Any]) -> tuple[str, ...]:
    """Write options as they were typed, for a command that is told."""
    words: list[str] = []
    for name, value in options.items():
        option = f"--{name.replace('_', '-')}"
        if isinstance(value, list):
            words += [word for text in cast("list[str]", value) for word in (option, text)]
        elif value is True:
            words.append(option)
        elif value not in (None, False, "0"):
            words += [option, str(value)]
    return tuple(words)


def parse_costs(costed: Mapping[str, Any]) -> Paid | None:
    """Read what was typed of cost and energy; None where nothing was."""
    said = {name: text for name, text in costed.items() if text not in (None, False)}
    if not said:
        return None
    from .cost import Paid

    found: dict[str, Any] = {
        name: parse_rate(said[option], f"--{option}")
        for name, option in (("price_usd_per_hour", "price"), ("power_w", "power"), ("pue", "pue"))
        if option in said
    }
    if found.get("pue", 1.0) < 1:
        what = "a site draws at least what its devices do"
        raise RooflmError(what, "--pue", "Write 1.2, or leave the option out.")
    if "utilization" in said:
        found["utilization"] = parse_share(said["utilization"], "--utilization", whole=True)
    if "tariff" in said:
        found["tariff"] = _tariff(said["tariff"])
    return Paid(**found)


def _tariff(text: str) -> tuple[float, ...]:
    """Read three prices; what is charged for may be free."""
    prices = [price.strip() for price in text.split(",")]
    if len(prices) != 3:
        what = f"'{printable(text, 40)}' is not three prices"
        fix = "Write CACHED,INPUT,OUTPUT in USD a million tokens: 0.14,0.55,2.19."
        raise RooflmError(what, "--tariff", fix)
    free = re.compile(r"0+(\.0*)?|\.0+")
    return tuple(0.0 if free.fullmatch(p) else parse_rate(p, "--tariff") for p in prices)


def parse_settings(settings: list[str]) -> dict[str, str]:
    """Read what `--set` changes; nothing is imported where nothing is set."""
    if not settings:
        return {}
    from .changes import parse_changes

    return parse_changes(settings)


def parse_works(
    phase: str | None,
    prompt: str | None,
    output_tokens: str | None,
    prefix: str | None,
    chunk: str | None,
    block: str | None,
    context: str | None,
    typed: Counting,
) -> list[Work] | None:
    """Read what is asked of each sequence; None for decode steps."""
    known: Any = given(phase, "decode")
    check_choice(known, ("decode", "prefill", "request", "served"), "--phase")
    if known == "decode":
        for text, option in (
            (prompt, "--prompt"), (output_tokens, "--output-tokens"), (prefix, "--prefix"),
            (chunk, "--chunk"), (block, "--block"),
        ):  # fmt: skip
            if text is not None:
                fix = "Add --phase prefill or --phase request."
                raise RooflmError("a decode step has no such option", option, fix)
        return None
    from .requests import Work, check_works

    refuse_shared(typed, "requests")
    if context is not None:
        fix = "Its context follows from --prompt and --output-tokens."
        raise RooflmError(f"a {known} has no context of its own", "--context", fix)
    if known == "prefill" and output_tokens is not None:
        fix = "Add --phase request."
        raise RooflmError("a prefill generates one token", "--output-tokens", fix)
    spared = 0 if prefix in (None, "0") else parse_count(prefix, "--prefix")
    lengths = parse_counts(given(prompt, "1024"), "--prompt")
    check_works(len(lengths))
    for length in lengths:
        if spared > length:
            what = f"a prefix of {spared:,} tokens is longer than the prompt of {length:,}"
            raise RooflmError(what, "--prefix")
    return [
        Work(
            prompt=length,
            output=parse_count(given(output_tokens, "128"), "--output-tokens")
            if known in ("request", "served")
            else 1,
            prefix=spared,
            chunk=None if chunk is None else parse_count(chunk, "--chunk"),
            block=parse_count(given(block, "16"), "--block"),
            phase=known,
        )
        for length in lengths
    ]


def crossed_cases(
    words: Sequence[Any], on: Sequence[Any], settings: list[str], models: str | None,
    hardware: str | None, typed: Counting, layout: Typed,
) -> list[Case]:  # fmt: skip
    """Cross all models with all machines; a machine may stand among the models, after --on.

    words, on: names, or models and machines themselves.
    """
    from .presets import HARDWARE_FILE, find_machine, find_model, own_names, preset_names
    from .schema import HARDWARE

    chips = preset_names(HARDWARE_FILE)
    if hardware is not None:
        chips += own_names(hardware, "hardware", HARDWARE)
    places = [name for text in on for name in _between_commas(text)]
    there = [word for word in words if word in chips or node_of(word).name in chips]
    places = _once([*places, *there])
    names = _once(word for word in words if word not in there)
    if not places:
        raise RooflmError("no machine is named", "--on", "Say --on h100-sxm,rtx-4090.")
    if not names:
        raise RooflmError("no model is named", "MODEL", "`rooflm models` lists them.")
    changes = parse_settings(settings)
    nodes = [node_of(place) for place in places]
    machines = [find_machine(node.name, hardware) for node in nodes]
    found = [find_model(name, changes, models) for name in names]
    return [
        spread_case(make_case(model, machine, typed), layout, node)
        for model in found
        for machine, node in zip(machines, nodes, strict=True)
    ]


def _between_commas(text: Any) -> list[Any]:
    """Take names apart; a machine stands for itself."""
    return [name for name in text.split(",") if name] if isinstance(text, str) else [text]


def _once(several: Iterable[Any]) -> list[Any]:
    """Keep the first of those that are equal; machines hold dicts, which no set takes."""
    kept: list[Any] = []
    for one in several:
        if one not in kept:
            kept.append(one)
    return kept


def parse_places(
    batch: str | None, context: str | None, works: Sequence[Work] | None, typed: Counting
) -> list[Place]:
    """Cross batches with contexts, or with pieces of work."""
    from .compare import Place

    batches = parse_counts(given(batch, "1"), "--batch")
    if works is None:
        return [Place(B, S) for S in parse_contexts(context, typed) for B in batches]
    return [Place(B, w.last_context, w) for w in works for B in batches]
