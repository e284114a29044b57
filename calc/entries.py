"""An entry of a preset file becomes the Model or the Machine that it describes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

from .attention import Attention, NoMixer
from .errors import RooflmError, nearest
from .experts import Experts, NoFeedForward
from .hardware import Machine
from .mixers import WHERE, Mixer, make, misfit, mixer_class
from .mlp import MLP
from .model import FeedForward, Group, Model, check_both_ways
from .plain import is_map
from .schema import HARDWARE, KIND, LAYER, MODEL, check
from .yamlfile import Block

if TYPE_CHECKING:
    from .residual import Residual


def build_model(name: str, block: Block) -> Model:
    """Check an entry and make the Model that it describes."""
    entry = check(block, MODEL, name)
    dims = entry["dims"]
    base = {k: v for k, v in entry.items() if k in LAYER}
    base |= {k: v for k, v in dims.items() if k in KIND or k == "D"}
    groups = tuple(
        build_group(block, kind, count, base | own)
        for kind, count, own in _pattern(block, name, dims["L"])
    )
    hub = entry.get("hf")
    if all(getattr(g.mixer, "shares", False) for g in groups):
        what = "every layer reads the keys and values of another, and none makes them"
        raise RooflmError(what, block.where(("shares_kv",)))
    model = Model(
        name=name,
        D=dims["D"],
        V=dims["V"],
        groups=groups,
        norm=entry.get("norm", "rms"),
        final_norm=entry.get("final_norm", True),
        tied=entry.get("tied", False),
        positions=entry.get("positions", 0),
        embedding_width=entry.get("embedding_width"),
        head_bias="head" in entry.get("bias", []),
        parallel=entry.get("parallel", False),
        residual=_residual(entry),
        extras=tuple(entry.get("extras", {}).items()),
        denoises=entry.get("denoises", False),
        max_context=entry.get("max_context"),
        published=entry.get("weights"),
        states_format=entry.get("states"),
        reference_repeats_heads=entry.get("reference_repeats_heads", False),
        source=entry.get("source")
        or (f"https://huggingface.co/{hub}/blob/main/config.json" if hub else block.path),
    )
    if model.published is not None:
        from .precision import precision_of

        try:
            precision_of(model.published, model=model)
        except RooflmError as e:
            raise RooflmError(e.what, block.where(("weights",)), e.fix) from None
    if model.denoises:
        try:
            check_both_ways(model)
        except RooflmError as e:
            raise RooflmError(e.what, block.where(("denoises",)), e.fix) from None
    return model


def _pattern(block: Block, name: str, L: int) -> list[tuple[str, int, dict[str, Any]]]:
    """Expand a pattern over the layers: each kind, how many layers it has, what is its own."""
    kinds: dict[str, dict[str, Any]] = block.value.get("kinds", {})
    if "pattern" not in block.value:
        if kinds:
            raise RooflmError(f"{name} has kinds of layers but no pattern", block.where(("kinds",)))
        return [("", L, {})]
    unit = pattern_unit(block)
    if not unit or len(unit) > L:
        typed = block.places.get(("pattern",)) == (0, 0)
        where = block.where(("pattern",) if typed else ("dims", "L"))
        raise RooflmError(f"a pattern of {len(unit)} layers does not fit L = {L}", where)
    if idle := [kind for kind in kinds if kind not in unit]:
        raise RooflmError(f"no layer is of kind '{idle[0]}'", block.where(("kinds", idle[0])))
    whole, rest = divmod(L, len(unit))
    counts = {kind: whole * unit.count(kind) + unit[:rest].count(kind) for kind in kinds}
    return [(kind, counts[kind], own) for kind, own in kinds.items()]


def pattern_unit(block: Block) -> list[str]:
    """Spell out the pattern of an entry once: the kind of each layer, in order."""
    kinds = block.value.get("kinds", {})
    unit: list[str] = []
    for i, item in enumerate(block.value.get("pattern", ())):
        times, star, kind = item.rpartition("*")
        where = block.where(("pattern", i))
        if star and not re.fullmatch(r" *[1-9][0-9]{0,3} *", times):
            raise RooflmError(f"'{item}' is not a kind or COUNT*KIND", where)
        if kind.strip() not in kinds:
            fix = nearest(kind.strip(), kinds) or f"The kinds are {', '.join(kinds)}."
            raise RooflmError(f"no kind of layer '{kind.strip()}'", where, fix)
        unit += [kind.strip()] * (int(times) if star else 1)
        if len(unit) > 10**4:
            raise RooflmError("a pattern has 10,000 layers at the most", where)
    return unit


def build_group(block: Block, kind: str, count: int, traits: Mapping[str, Any]) -> Group:
    """Make a group of equal layers of what an entry says about its kind."""
    mixer = _mixer(block, kind, traits)
    if wrong := misfit(mixer):
        own = next((key for key in WHERE if key in traits), "dims")
        named = ("kinds", kind, own)
        raise RooflmError(wrong, block.where(named if named in block.places else (own,)))
    return Group(
        count=count,
        mixer=mixer,
        ffn=_feed_forward(block, kind, traits),
        norms=traits.get("norms_per_layer", 2),
        name=kind,
        copies=traits.get("copies"),
        own=traits.get("own", 0),
    )


def _mixer(block: Block, kind: str, traits: Mapping[str, Any]) -> Mixer:
    """Make what mixes the tokens of a layer."""
    said = traits.get("mixer", "attention")
    others = [key for key in WHERE if key in traits]
    # What a kind says of its own takes the place of what the model says of all its kinds.
    named = [key for key in others if ("kinds", kind, key) in block.places]
    if said == "none" or (("kinds", kind, "mixer") in block.places and said == "attention"):
        named = []
    elif not named:
        named = others
    if len(named) > 1:
        what = f"a layer has one mixer, not {' and '.join(named)}"
        raise RooflmError(what, block.where(("kinds", kind, named[1]) if kind else (named[1],)))
    if said == "none":
        _alone(block, kind, traits, "mixer", tuple(others))
        return NoMixer()
    if said == "both":
        if not named:
            what = "side by side with attention there has to be another mixer"
            raise RooflmError(what, block.where(("mixer",)), f"Known: {', '.join(WHERE)}.")
        from .side_by_side import SideBySide

        return SideBySide(_attention(block, kind, traits), _other(block, kind, named[0], traits))
    return _other(block, kind, named[0], traits) if named else _attention(block, kind, traits)


ATTENTION_ALONE = ("chunk", "sink_tokens", "shares_kv", "value_width", "value_is_key")
"""Traits that no mixer but plain attention has."""


def _other(block: Block, kind: str, key: str, traits: Mapping[str, Any]) -> Mixer:
    """Make a mixer that is not plain attention."""
    if traits.get("mixer") != "both":
        names = {f.name for f in fields(mixer_class(key))}
        window = () if "window" in names else ("window",)
        _alone(block, kind, traits, key, (*ATTENTION_ALONE, *window))
    own = traits[key]
    needed = [f for f in fields(mixer_class(key)) if f.default is MISSING]
    for lacking in (f.name for f in needed if f.name not in own and f.name not in traits):
        raise RooflmError(f"{key} needs '{lacking}'", block.where(("dims",)))
    if key != "mla":
        return make(key, own, traits)
    bias: list[str] = traits.get("bias", [])
    if traits.get("gate") == "width":
        what = "the gate of latent attention is one number a head"
        raise RooflmError(what, block.where(("gate",)), "Write gate: head.")
    more = {"q_bias": "qkv" in bias, "out_bias": "out" in bias,
            "gate": traits.get("gate", "none") == "head"}  # fmt: skip
    if "index" not in traits:
        return make("mla", own | more, {"N": traits["N"]})
    from .sparse import SparseMLA

    index = {f"index_{k}": v for k, v in traits["index"].items() if k in ("heads", "width")}
    if "block" in traits["index"]:
        what = "the indexer of latent attention chooses tokens, not blocks"
        raise RooflmError(what, block.where(("index", "block")))
    rest = {k: v for k, v in traits["index"].items() if k in ("top", "reads_choice")}
    return SparseMLA(N=traits["N"], **own, **more, **index, **rest)


def _attention(block: Block, kind: str, traits: Mapping[str, Any]) -> Attention:
    bias: list[str] = traits.get("bias", [])
    for key in ("N", "K", "H"):
        if key not in traits:
            raise RooflmError(f"attention needs '{key}'", block.where(("dims",)))
    if traits["N"] % traits["K"]:
        own = ("kinds", kind, "K")
        where = block.where(own if own in block.places else ("dims", "K"))
        what = f"K = {traits['K']} does not divide N = {traits['N']}"
        fix = f"{traits['N']} query heads can share {_divisors(traits['N'])} key/value heads."
        raise RooflmError(what, where, fix)
    if "window" in traits and "chunk" in traits:
        raise RooflmError("a layer has a window or a chunk, not both", block.where(("chunk",)))
    if traits.get("sink_tokens") and "window" not in traits:
        what = "sink tokens stay in view beside a window, and there is none"
        raise RooflmError(what, block.where(("sink_tokens",)))
    if traits.get("value_is_key") and traits.get("value_width") not in (None, traits["H"]):
        raise RooflmError("values that are keys are H wide", block.where(("value_width",)))
    whole = Attention(
        N=traits["N"],
        K=traits["K"],
        H=traits["H"],
        H_v=traits.get("value_width"),
        window=traits.get("window"),
        chunk=traits.get("chunk"),
        sink_tokens=traits.get("sink_tokens", 0),
        shares=traits.get("shares_kv", False),
        value_is_key=traits.get("value_is_key", False),
        qkv_bias="qkv" in bias,
        out_bias="out" in bias,
        qk_norm=traits.get("qk_norm", "none"),
        gate=traits.get("gate", "none"),
        extra=traits.get("extra", 0) + (traits["N"] if traits.get("sinks", False) else 0),
        inputs=traits.get("attention_inputs", 1),
        idle_key_norm=traits.get("idle_key_norm", False),
    )
    index = traits.get("index")
    if index is None:
        return whole
    if "block" not in index or index.get("reads_choice") or whole.window_tokens is not None:
        what = "an indexer of plain attention chooses 'block' keys at a time, in layers of its own"
        raise RooflmError(what, block.where(("index",)))
    from .sparse import SparseAttention

    return SparseAttention(
        **{f.name: getattr(whole, f.name) for f in fields(whole)},
        index_heads=index["heads"],
        index_width=index["width"],
        top=index["top"],
        block=index["block"],
    )


def _residual(entry: Mapping[str, Any]) -> Residual | None:
    if "residual" not in entry:
        return None
    from .residual import Residual

    return Residual(**entry["residual"])


def _feed_forward(block: Block, kind: str, traits: Mapping[str, Any]) -> FeedForward:
    shape = traits.get("mlp", "gated")
    bias = "mlp" in traits.get("bias", [])
    if shape == "none":
        _alone(block, kind, traits, "mlp", ("experts",))
        return NoFeedForward()
    experts = traits.get("experts")
    if experts is not None:
        if experts["k"] > experts["E"] + experts.get("zero", 0):
            where = block.where(("experts", "k"))
            raise RooflmError(f"a token cannot choose {experts['k']} of {experts['E']}", where)
        return Experts(**experts, gated=shape == "gated", bias=bias)
    if "F" not in traits:
        raise RooflmError("a dense layer needs 'F'", block.where(("dims",)))
    if shape.startswith("channel-mix"):
        from .rwkv import ChannelMix

        return ChannelMix(F=traits["F"], receptance=shape.endswith("receptance"))
    return MLP(F=traits["F"], gated=shape == "gated", bias=bias)


def _alone(
    block: Block, kind: str, traits: Mapping[str, Any], key: str, others: tuple[str, ...]
) -> None:
    """Refuse traits that a layer of this sort does not have."""
    for other in others:
        # What a kind takes out may stand at the top for the other kinds.
        own = ("kinds", kind, other) if kind else (other,)
        if traits.get(other) and own in block.places:
            layer = f"a layer with {key}: {traits[key]}"
            if key in WHERE:
                layer = "latent attention" if key == "mla" else f"the mixer {key}"
            raise RooflmError(f"{layer} has no '{other}'", block.where(own))


def _divisors(n: int) -> str:
    found = [str(d) for d in range(1, min(n, 10**5) + 1) if n % d == 0]
    return ", ".join(found[:12]) + (" ..." if len(found) > 12 else "")


def build_machine(name: str, block: Block) -> Machine:
    """Check an entry and make the Machine that it describes."""
    entry = check(block, HARDWARE, name)
    label, price = figure_value(entry.get("label_gb")), entry.get("price_usd_per_hour")
    driver, links = figure_value(entry.get("driver_bytes")), entry.get("links", {})
    return Machine(
        name=name,
        full_name=entry["name"],
        kind=entry["kind"],
        bandwidth_bytes_per_s=float(figure_value(entry["bandwidth_bytes_per_s"])),
        label_bytes=None if label is None else round(label * 1e9),
        driver_bytes=None if driver is None else round(driver),
        flops={k: float(figure_value(v)) for k, v in entry.get("flops", {}).items()},
        best_flops={k: float(figure_value(v)) for k, v in entry.get("best_flops", {}).items()},
        links={k: float(figure_value(v)) for k, v in links.items()},
        bridges={k: v["joins"] for k, v in links.items() if is_map(v) and "joins" in v},
        pairs={
            k: float(figure_value(v["pair"])) for k, v in links.items() if is_map(v) and "pair" in v
        },
        price_usd_per_hour=figure_value(price),
        power_w=figure_value(entry.get("power_w")),
        family=str(entry.get("family", "")),
        vendor=str(entry.get("vendor", "")),
        kernels=entry.get("kernels", {}),
        price_date=str(price.get("date", "")) if is_map(price) else "",
    )


def figure_value(figure: Any) -> Any:
    """Take the number of a figure, written plainly or with its source; None stays None."""
    return figure["value"] if is_map(figure) else figure
