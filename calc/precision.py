"""Read what is typed about number formats: one for all weights, or one for each part."""

from __future__ import annotations

from dataclasses import replace

from .attention import Attention
from .errors import RooflmError, nearest
from .experts import Experts
from .formats import CACHES, FILES, FORMATS, Format, Mixture, find_cache_format, find_format
from .mlp import MLP
from .model import Model, parameters
from .passes import NAMED, Precision, Routing

EVEN = Routing()
"""Every token chooses by itself, no expert more often."""


def precision_of(
    weights: str | None,
    cache: str | None = None,
    state: str | None = None,
    *,
    model: Model | None = None,
    natural: str = "bf16",
    routing: Routing = EVEN,
    published: bool = True,
) -> Precision:
    """Choose the formats of a case.

    weights: a format, or PART=FORMAT,... with rest=FORMAT for all others, where a name of
    llama.cpp alone is that of a file, and of a block type elsewhere; if None, that of the
    model's file, or of the checkpoint that its preset tells unless `published` is False, and
    `natural` where there is none; cache: as the weights where they have 16 bits or
    more, else `natural`; natural: 16-bit format of the activations, which also hold what a format
    of fewer bits does not cover. Raises `RooflmError` for unknown names, and where the file tells
    formats that are not understood.
    """
    said = weights
    if said is None and model is not None:
        if model.weights_unknown:
            from .configquant import unknown_formats

            raise unknown_formats(model.weights_unknown, model.source)
        said = model.weights_format or (model.published if published else None)
    main, parts = _parsed(natural if said is None else said, natural)
    if weights is not None and not parts and "=" not in weights:
        main = FILES.get(main, main)
        if _keeps_experts(model, main):
            parts = {"experts": "mxfp4"}
    if weights is None and FORMATS[main].covers == "all":
        # A file's rest=bf16 says 16 bits; which ones, the device does.
        main = natural
    if model is not None:
        there = {*parameters(model), *(("head",) if model.tied else ())}
        if weights is None:
            # A change may have taken parts away that the checkpoint has.
            parts = {part: kind for part, kind in parts.items() if part in there}
        for part in parts:
            if part not in there:
                known = ", ".join(p for p in NAMED if p in there)
                fix = f"Its parts are {known} and rest."
                raise RooflmError(f"{model.name} has no part '{part}'", "--weights", fix)
    whole = FORMATS[main].covers == "all"
    rest = FORMATS[main if whole else natural]
    kept = cache
    if kept is None:
        kept = rest.name if rest.name in CACHES else natural
    return Precision(
        weights=FORMATS[main],
        cache=find_cache_format(kept, "--kv"),
        state=find_format("fp32" if state is None else state, "--state"),
        rest=None if whole else rest,
        parts=tuple((part, FORMATS[kind]) for part, kind in parts.items()),
        names=() if model is None else _mixed(model, FORMATS[main]),
        routing=routing,
    )


def _keeps_experts(model: Model | None, main: str) -> bool:
    """Tell whether a file of llama.cpp keeps the experts as they were published, in mxfp4.

    Its Q4_K_M of gpt-oss-20b has 11,624,759,488 bytes: huggingface.co/unsloth/gpt-oss-20b-GGUF.
    """
    published = "" if model is None or model.published is None else model.published
    return "experts=mxfp4" in published.split(",") and FORMATS[main].covers == "matrices"


NAMES = ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_up", "ffn_down", "token_embd", "output")
"""Matrices that the mixtures of llama.cpp treat by name."""


def _mixed(model: Model, main: Format) -> tuple[tuple[str, Format], ...]:
    """Tell the mean format of each matrix that a mixture treats by name, over all layers."""
    mixers = [g.mixer for g in model.groups if isinstance(g.mixer, Attention)]
    if not isinstance(main, Mixture) or not mixers:
        return ()
    experts = max((g.ffn.E for g in model.groups if isinstance(g.ffn, Experts)), default=0)
    layers, sharing = int(model.layers), mixers[0].N / mixers[0].K
    found: list[tuple[str, Format]] = []
    for name in NAMES:
        rows = model.D if name != "ffn_down" else _hidden(model)
        once = name in ("token_embd", "output")
        bits = main.mean_bits(
            name,
            1 if once else layers,
            sharing=sharing,
            experts=experts,
            tied=model.tied,
            rows=rows,
        )
        found.append((name, replace(FORMATS["q8_0"], name=name, bits=bits, group=0, group_bits=0)))
    return tuple(found)


def _hidden(model: Model) -> int:
    """Tell the inner width of the second matrices of the feed-forward, 256 where there are none."""
    widths = [g.ffn.F for g in model.groups if isinstance(g.ffn, MLP | Experts)]
    return widths[0] if widths else 256


def _parsed(text: str, natural: str) -> tuple[str, dict[str, str]]:
    """Split PART=FORMAT,... into the format of the rest and those of parts."""
    if "=" not in text and "," in text:
        fix = "Say one; `rooflm compare` takes several, and experts=mxfp4,rest=bf16 is one."
        raise RooflmError(f"'{text[:40]}' is several formats", "--weights", fix)
    if "=" not in text:
        return find_format(text.strip(), "--weights").name, {}
    parts: dict[str, str] = {}
    for word in text.split(","):
        part, equals, kind = (piece.strip() for piece in word.partition("="))
        if not equals or not part or not kind:
            what = f"'{word[:40]}' is not PART=FORMAT"
            raise RooflmError(what, "--weights", "Write experts=mxfp4,rest=bf16.")
        if part not in NAMED:
            fix = nearest(part, NAMED) or f"Known parts: {', '.join(NAMED)}."
            raise RooflmError(f"no part of a model is called '{part[:40]}'", "--weights", fix)
        if part in parts:
            raise RooflmError(f"'{part}' is given twice", "--weights")
        parts[part] = find_format(kind, "--weights").name
        if part != "rest" and isinstance(FORMATS[parts[part]], Mixture):
            what = f"{parts[part]} mixes types over a whole file, not within '{part}'"
            raise RooflmError(what, "--weights", "Name the type: q4_k, q6_k.")
    return parts.pop("rest", natural), parts


def told(precision: Precision) -> str:
    """Name the formats of weights in a few words."""
    names = [f"weights {precision.weights.name}"]
    names += [f"{part} {kind.name}" for part, kind in precision.parts]
    if precision.rest is not None and precision.rest is not precision.weights:
        names.append(f"rest {precision.rest.name}")
    return ", ".join(names)


def mixture_told(precision: Precision) -> list[str]:
    """Say where the bits of a file of llama.cpp are a mean of another model's, and no rule's."""
    if precision.names or not precision.weights.stores.startswith("mixture"):
        return []
    name, bits = precision.weights.name, precision.weights.bits
    return [
        f"{name}: {bits:g} bits a weight, as measured on Llama-3.1-8B; a file of this model may be "
        "some per cent off, and a GGUF file itself is read to the byte"
    ]


def file_told(model: Model) -> list[str]:
    """Say what the model's file or its preset tells of its weights, if it tells anything."""
    if model.weights_format is None:
        said = model.published
        told = [] if said is None else [f"counted as published: {said}"]
    else:
        told = [f"counted as in the model's file: {model.weights_format}"]
    return [f"{line} (--weights takes another format)" for line in told]
