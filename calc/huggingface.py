"""Read a model from the config.json of a Hugging Face checkpoint.

Parameters come out to the unit; what the types of this package cannot express is refused by name.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .architectures import FAMILIES, REFUSED, SAME
from .configkeys import MOST_LAYERS, Absent, Keys, Layout
from .configlayers import Layer, Shared, parts_of, plain_layers
from .configquant import KEY, NOTHING, FileFormats, file_formats
from .errors import RooflmError, nearest, printable
from .experts import Experts, NoFeedForward
from .mixers import Mixer
from .mlp import MLP
from .model import FeedForward, Group, Model
from .plain import is_list, is_map
from .yamlfile import read_text

if TYPE_CHECKING:
    from .residual import Residual

INNER = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which a multimodal config holds that of its language model."""
LEFT_OUT = {
    "vision_config": "left out: the vision tower and its projector",
    "audio_config": "left out: the audio tower and its projector",
    "num_nextn_predict_layers": "left out: layers that predict further tokens",
    "num_mtp_modules": "left out: layers that predict further tokens",
    "mtp_num_hidden_layers": "left out: layers that predict further tokens",
}
"""Keys of parts that are no part of the decoder."""


def read_config(path: Path) -> Model:
    """Read a config.json, or the one in a folder."""
    try:
        file = path / "config.json" if path.is_dir() else path
        named = file.name.lower() == "config.json"
        name = (file.absolute().parent.name if named else "") or file.stem
    except (OSError, ValueError):
        raise RooflmError("this is not a file name", str(path)) from None
    text = read_text(file)
    try:
        config = json.loads(text, object_pairs_hook=_once)
    except json.JSONDecodeError as e:
        where = f"{file}:{e.lineno}:{e.colno}"
        raise RooflmError(f"this is not valid JSON: {e.msg.lower()}", where) from None
    except RecursionError:
        raise RooflmError("the file is nested too deeply", str(file)) from None
    except ValueError as e:
        raise RooflmError(f"this is not valid JSON: {str(e).split(';')[0]}", str(file)) from None
    if not is_map(config):
        raise RooflmError("a mapping of keys to values is needed", str(file))
    # Names of folders may be no text, which no figure and no file of text can hold.
    return model_of_config(config, printable(name), printable(str(file)))


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = dict(pairs)
    if len(keys) < len(pairs):
        names = [k for k, _ in pairs]
        raise ValueError(f"'{next(k for k in names if names.count(k) > 1)[:40]}' stands twice")
    return keys


def model_of_config(config: dict[str, Any], name: str, where: str) -> Model:
    """Make the Model that a config.json describes, or say what stands in the way.

    config: the file as plain data; name: of the model; where: place for error messages.
    """
    inner, path = _language_part(config, where)
    kind = _kind(inner, config, where)
    family = FAMILIES[SAME.get(kind, kind)]
    keys = Keys(inner, kind, family, where, nested=bool(path))
    if path:
        keys.note("config", path, f"key {path}")
    keys.note("architecture", kind, "key model_type" if "model_type" in inner else "derived")
    keys.refuse_switched()
    if inner.get("per_layer_config") and family.layout != "gemma4":
        fix = "Read the config.json as it was published."
        raise RooflmError("per_layer_config gives layers dimensions of their own", where, fix)
    D = keys.count("hidden_size", "D")
    V = _vocabulary(keys)
    L = _depth(keys)
    layers = _layers(keys, D, L)
    residual = _residual(keys)
    if family.denoises:
        keys.note("denoises", True, f"class {kind}: a pass computes the sequence both ways")
    final_norm = keys.flag(family.final_norm, "final_norm")
    norm = family.norm
    if "layer_norm_elementwise_affine" in inner:
        affine = keys.flag(("layer_norm_elementwise_affine", True), "norms have weights")
        norm = norm if affine else "none"
    keys.note("norm", norm, f"class {kind}")
    if family.first_norm:
        mixer, ffn, norms = parts_of(layers[0])
        layers[0] = (mixer, ffn, norms + 1)
        keys.note("norm of the embedding", 1, f"class {kind}: counted with the first layer")
    context = keys.optional("max_position_embeddings", "max_context")
    positions, width = 0, None
    if family.learned_positions:
        positions = keys.count("max_position_embeddings", "positions") + family.extra_positions
    if family.narrow_embedding:
        width = keys.optional("word_embed_proj_dim", "embedding_width")
    for key, reason in LEFT_OUT.items():
        for holder in (config, inner):
            if holder.get(key) not in (None, 0, False):
                keys.note(key, "in the config", reason)
    formats = _formats(keys, config, D, layers)
    groups = _groups(layers)
    return Model(
        name=name,
        D=D,
        V=V,
        groups=groups,
        norm=norm,
        final_norm=final_norm,
        tied=_tied(keys, config),
        positions=positions,
        embedding_width=width if isinstance(width, int) and width != D else None,
        head_bias=keys.flag(family.head_bias, "head_bias"),
        parallel=keys.flag(family.parallel, "parallel"),
        max_context=context if isinstance(context, int) else None,
        source=where,
        residual=residual,
        extras=_extras(keys, D, V, layers),
        denoises=family.denoises,
        reference_repeats_heads=_repeated(keys),
        weights_format=formats.weights,
        states_format=_states(keys),
        weights_unknown=formats.unknown,
        provenance=tuple((field, *said) for field, said in keys.taken.items()),
    )


STATES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}
"""Formats of states by the words of config.json."""


def _states(keys: Keys) -> str | None:
    """Read the format of recurrent states that engines take; fp32 of Nemotron-H, as in its class.

    Source: vllm-project/vllm, vllm/model_executor/models/config.py.
    """
    for key in ("mamba_ssm_dtype", "mamba_ssm_cache_dtype"):
        kind = STATES.get(str(keys.config.get(key)))
        if kind is not None:
            keys.note("states_format", kind, f"key {key}")
            return kind
    return "fp32" if keys.kind == "nemotron_h" else None


def _formats(keys: Keys, config: dict[str, Any], D: int, layers: list[Layer]) -> FileFormats:
    """Read the formats of the weights, where the file tells them."""
    if all(c.get(KEY) in NOTHING for c in (config, keys.config)):
        return FileFormats()
    kinds: dict[Layer, frozenset[str]] = {}
    for layer in layers:
        if layer not in kinds:
            mixer, ffn, _ = parts_of(layer)
            kinds[layer] = frozenset(t.part for t in (*mixer.tensors(D), *ffn.tensors(D)))
    formats = file_formats(config, keys.config, [kinds[layer] for layer in layers])
    if formats.unknown:
        keys.note("weights_format", "not known", f"key {KEY}: {formats.unknown}")
    elif formats.weights is not None:
        keys.note("weights_format", formats.weights, f"key {KEY}: {formats.said}")
    return formats


def _vocabulary(keys: Keys) -> int:
    """Read the rows of the embedding, rounded up where a class does."""
    V = keys.count(keys.family.vocabulary, "V")
    if keys.family.padding is None:
        return V
    key, default = keys.family.padding
    multiple = keys.number(key, keys.config.get(key, default))
    padded = -(-V // multiple) * multiple
    if padded != V:
        keys.taken.pop("V")
        keys.note("V", padded, f"derived: {V} rounded up to a multiple of {multiple} ({key})")
    return padded


def _depth(keys: Keys) -> int:
    """Read the number of layers."""
    if keys.family.layout == "nemotron_h":
        from .configstates import pattern_length

        return pattern_length(keys)
    return keys.count("num_hidden_layers", "L", most=MOST_LAYERS)


def _language_part(config: dict[str, Any], where: str) -> tuple[dict[str, Any], str]:
    path: list[str] = []
    while True:
        key = next((k for k in INNER if k in config and config[k] is not None), None)
        if key is None or len(path) > 3:
            return config, ".".join(path)
        inner = config[key]
        if not is_map(inner):
            raise RooflmError(f"{key} is not a mapping", where)
        config = inner
        path.append(key)


def _kind(config: dict[str, Any], outer: dict[str, Any], where: str) -> str:
    """Find the row of a config: by model_type, or by the name of its class."""
    known = {**FAMILIES, **SAME}
    said = config.get("model_type", outer.get("model_type"))
    if "ssm_cfg" in config and "hidden_size" not in config:
        said = "mamba_ssm"
    if said is None:
        classes = config.get("architectures", outer.get("architectures"))
        first = classes[0] if is_list(classes) and classes else None
        if isinstance(first, str):
            plain = {k.replace("_", "").replace("-", ""): k for k in (*known, *REFUSED)}
            bare = first.lower().replace("_", "").replace("-", "")
            said = plain.get(bare.split("for")[0].removesuffix("lmheadmodel"), first)
        else:
            fix = "Add it: the name of the architecture, such as llama or qwen2."
            raise RooflmError("model_type is missing", where, fix)
    if not isinstance(said, str):
        raise RooflmError("model_type is not a word", where)
    if said in REFUSED:
        raise RooflmError(f"{said} has {REFUSED[said]}, which is not modelled yet", where)
    if said not in known:
        near = nearest(said, known)
        fix = f"{near} " if near else ""
        raise RooflmError(
            f"unknown model_type '{said[:60]}'",
            where,
            f"{fix}Known: {', '.join(sorted(FAMILIES))}.",
        )
    if config.get("is_encoder_decoder") is True:
        raise RooflmError("an encoder beside the decoder is not modelled yet", where)
    return said


def _tied(keys: Keys, outer: dict[str, Any]) -> bool:
    """Read whether the head is the embedding: inside, outside, or the class of the decoder.

    The wrapper's class default is not asked: Mistral3Config ties, its checkpoints do not.
    """
    flag = ("tie_word_embeddings", keys.family.tied)
    name, value = keys.find("tie_word_embeddings")
    said = outer.get("tie_word_embeddings")
    if value is None or isinstance(value, Absent):
        if outer is keys.config or said is None:
            return keys.flag(flag, "tied")
        if not isinstance(said, bool):
            raise keys.fail("tie_word_embeddings is not true or false")
        keys.note("tied", said, "key tie_word_embeddings of the outer config")
        return said
    if isinstance(said, bool) and said != value:
        what = f"{name} is {value} inside and {said} outside"
        raise keys.fail(what, "Make both say what the checkpoint does.")
    return keys.flag(flag, "tied")


def _repeated(keys: Keys) -> bool:
    """Tell whether the cache of the reference holds keys and values of every query head."""
    if keys.config.get("new_decoder_architecture") is not True or keys.family.heads != "falcon":
        return False
    keys.note("reference_repeats_heads", True, "class falcon: heads are repeated in the cache")
    return True


def _groups(layers: list[Layer]) -> tuple[Group, ...]:
    """Gather equal layers, in the order in which they first come."""
    counts: dict[Layer, int] = {}
    for layer in layers:
        counts[layer] = counts.get(layer, 0) + 1
    mixers = {parts_of(layer)[0] for layer in counts}
    sorts = {type(parts_of(layer)[1]) for layer in counts}
    names: dict[type, str] = {MLP: "dense", Experts: "moe", NoFeedForward: "none"}

    def name(mixer: Mixer, ffn: FeedForward) -> str:
        words = [mixer.kind.replace("+", "_")] if len(mixers) > 1 else []
        words += [names.get(type(ffn), "mix")] if len(sorts) > 1 else []
        return "_".join([word for word in words if word != "none"] or words)

    groups: list[Group] = []
    for layer, count in counts.items():
        mixer, ffn, norms = parts_of(layer)
        group = Group(count, mixer, ffn, norms, name(mixer, ffn))
        if isinstance(layer, Shared):
            group = replace(group, name=f"shared_{group.name}", copies=layer.copies, own=layer.own)
        groups.append(group)
    return tuple(groups)


ELSEWHERE: dict[Layout, str] = {
    **dict.fromkeys(("falcon", "hunyuan", "laguna", "llama4", "longcat", "nas"), "configclasses"),
    **dict.fromkeys(
        ("blocks", "compressed", "gemma3n", "gemma4", "indexed", "llada"), "configsparse"
    ),
    **dict.fromkeys(
        ("bamba", "falcon_h1", "jamba", "mamba", "mamba2", "mamba_ssm", "nemotron_h", "zamba2"),
        "configstates",
    ),
    **dict.fromkeys(
        ("bailing_hybrid", "delta", "griffin", "kimi_linear", "lfm2", "lightning", "olmo_hybrid",
         "rwkv", "xlstm"),
        "configlinear",
    ),
}  # fmt: skip
"""Modules with LAYOUTS that are not plain, each imported for the classes that need it."""


def _layers(keys: Keys, D: int, L: int) -> list[Layer]:
    """Make the layers of a class, in the module that knows how."""
    layout = keys.family.layout
    if layout == "plain":
        return plain_layers(keys, D, L)
    module = importlib.import_module(f".{ELSEWHERE[layout]}", __package__)
    layouts: dict[Layout, Callable[[Keys, int, int], list[Layer]]] = module.LAYOUTS
    return layouts[layout](keys, D, L)


def _extras(keys: Keys, D: int, V: int, layers: list[Layer]) -> tuple[tuple[str, int], ...]:
    """Count what a checkpoint holds beside the decoder, where that is certain."""
    if keys.config.get("num_nextn_predict_layers") != 1:
        return ()
    from .configextras import prediction_parameters

    number = prediction_parameters(keys, D, V, layers)
    return () if number is None else (("mtp", number),)


def _residual(keys: Keys) -> Residual | None:
    """Read what surrounds the layers."""
    if ELSEWHERE.get(keys.family.layout) != "configsparse":
        return None
    from .configsparse import residual_of

    return residual_of(keys)
