"""Read a model from the config.json of a Hugging Face checkpoint.

Parameters come out to the unit; what the types of this package cannot express is refused by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .architectures import FAMILIES, REFUSED, SAME
from .attention import Attention, NoMixer
from .configkeys import MOST_LAYERS, Absent, Keys, Layout
from .configlayers import (
    Layer,
    attention,
    block_norms,
    dense,
    expert_layers,
    expert_origin,
    experts_of,
    feed_forwards,
    head_width,
    latent_attention,
    layer_kinds,
    plain_layers,
    see,
    some,
)
from .errors import RooflmError, nearest
from .experts import Experts, NoFeedForward
from .mixers import Mixer
from .mlp import MLP
from .model import FeedForward, Group, Model
from .plain import is_list, is_map
from .yamlfile import read_text

INNER = ("text_config", "llm_config", "language_config", "thinker_config")
"""Keys under which a multimodal config holds that of its language model."""
LEFT_OUT = {
    "quantization_config": "not read: weights count as elements",
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
    try:
        text = read_text(file)
    except RooflmError as e:
        # read_text is that of the preset files, and says so.
        what = e.what.replace("preset file", "config.json")
        raise RooflmError(what, e.where, e.fix.replace("YAML", "JSON")) from None
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
    return model_of_config(config, name, str(file))


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
    if inner.get("per_layer_config"):
        fix = "Read the config.json as it was published."
        raise RooflmError("per_layer_config gives layers dimensions of their own", where, fix)
    D = keys.count("hidden_size", "D")
    V = keys.count("vocab_size", "V")
    L = keys.count("num_hidden_layers", "L", most=MOST_LAYERS)
    layers = LAYOUTS[family.layout](keys, D, L)
    final_norm = keys.flag(family.final_norm, "final_norm")
    norm = family.norm
    if "layer_norm_elementwise_affine" in inner:
        affine = keys.flag(("layer_norm_elementwise_affine", True), "norms have weights")
        norm = norm if affine else "none"
    keys.note("norm", norm, f"class {kind}")
    if family.first_norm:
        mixer, ffn, norms = layers[0]
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
        reference_repeats_heads=_repeated(keys),
        provenance=tuple((field, *said) for field, said in keys.taken.items()),
    )


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
    if said is None:
        classes = config.get("architectures", outer.get("architectures"))
        first = classes[0] if is_list(classes) and classes else None
        if isinstance(first, str):
            plain = {k.replace("_", "").replace("-", ""): k for k in (*known, *REFUSED)}
            bare = first.lower().replace("_", "").replace("-", "")
            said = plain.get(bare.split("for")[0].removesuffix("lmheadmodel"), first)
        elif "ssm_cfg" in config:
            said = "mamba2"
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
    mixers = {mixer for mixer, _, _ in counts}
    sorts = {type(ffn) for _, ffn, _ in counts}
    names: dict[type, str] = {MLP: "dense", Experts: "moe", NoFeedForward: "none"}

    def name(mixer: Mixer, ffn: FeedForward) -> str:
        words = [mixer.kind] if len(mixers) > 1 else []
        words += [names.get(type(ffn), "mix")] if len(sorts) > 1 else []
        return "_".join(words)

    return tuple(
        Group(count, mixer, ffn, norms, name(mixer, ffn))
        for (mixer, ffn, norms), count in counts.items()
    )


def _falcon(keys: Keys, D: int, L: int) -> list[Layer]:
    """One norm a layer, or two where attention and MLP have one each or stand in a row."""
    new = keys.flag(("new_decoder_architecture", False), "falcon's decoder")
    both = keys.flag(keys.family.parallel, "parallel")
    count = keys.optional("num_ln_in_parallel_attn", "norms of a layer", most=2)
    if not isinstance(count, int):
        count = 2 if new else 1
    norms = count if both else 2
    keys.taken.pop("norms of a layer", None)
    keys.note("norms of a layer", norms, "derived: parallel_attn, new_decoder_architecture")
    return [(attention(keys, D), dense(keys), norms)] * L


def _gemma4(keys: Keys, D: int, L: int) -> list[Layer]:
    """Layers that see everything have wider heads, fewer of them, and may have no values."""
    for key, what in (
        ("hidden_size_per_layer_input", "embedding tables of each layer"),
        ("num_kv_shared_layers", "last layers that share keys and values, with wider MLPs"),
    ):
        value = keys.config.get(key)
        if key not in keys.config and key == "hidden_size_per_layer_input":
            raise keys.refuse(f"{what} (class default of {key})")
        if value not in (None, 0):
            raise keys.refuse(what, key)
    near = attention(keys, D)
    far = replace(near, H=keys.count("global_head_dim", "H of full layers"))
    if keys.flag(("attention_k_eq_v", False), "values are keys"):
        K = keys.optional("num_global_key_value_heads", "K of full layers")
        far = replace(far, K=K if isinstance(K, int) else near.K, value_is_key=True)
        if far.N % far.K:
            raise keys.fail(f"{far.N} query heads cannot share {far.K} key/value heads")
    kinds = layer_kinds(keys, L)
    mixers = [far if what == "full" else see(near, (what, W)) for what, W in kinds]
    return [(mixer, dense(keys), block_norms(keys)) for mixer in mixers]


def _hunyuan(keys: Keys, D: int, L: int) -> list[Layer]:
    """Every second layer may read the keys and values of the one before it (CLA)."""
    mixer = attention(keys, D)
    E = keys.optional("num_experts", "E")
    mixed = keys.flag(("use_mixed_mlp_moe", False), "experts beside a shared one")
    if not isinstance(E, int) and (mixed or "moe_topk" in keys.config):
        raise keys.missing("num_experts")
    feeds: list[FeedForward] = [dense(keys)] * L
    if isinstance(E, int) and E > 1:
        feeds = feed_forwards(keys, L)
        if not mixed:
            feeds = [replace(f, shared=0) if isinstance(f, Experts) else f for f in feeds]
    every = 1
    if keys.flag(("use_cla", False), "shares keys and values"):
        every = keys.count("cla_share_factor", "layers that share", most=L)
    # The class keeps the norm of the keys in layers that have none.
    extra = mixer.H if mixer.qk_norm == "head" else 0
    reader = replace(mixer, shares=True, extra=extra)
    mixers = [mixer if i % every == 0 else reader for i in range(L)]
    return [(m, f, keys.family.norms) for m, f in zip(mixers, feeds, strict=True)]


def _laguna(keys: Keys, D: int, L: int) -> list[Layer]:
    """Layers have query heads of their own, and a gate on each."""
    gating = keys.config.get("gating", True)
    if gating not in (True, "per-head", "per-element"):
        raise keys.fail("gating is neither true nor per-head nor per-element")
    keys.note("gate", gating, "key gating" if "gating" in keys.config else "class default")
    whole = replace(attention(keys, D), gate="width" if gating == "per-element" else "head")
    heads = keys.counts("num_attention_heads_per_layer", L, 1) or [int(whole.N)] * L
    if any(n % int(whole.K) for n in heads):
        raise keys.fail("num_attention_heads_per_layer is not divisible by num_key_value_heads")
    kinds = layer_kinds(keys, L)
    feeds = feed_forwards(keys, L)
    return [
        (replace(see(whole, kind), N=n), ffn, keys.family.norms)
        for kind, n, ffn in zip(kinds, heads, feeds, strict=True)
    ]


def _llama4(keys: Keys, D: int, L: int) -> list[Layer]:
    """Layers without experts are intermediate_size_mlp wide."""
    routed = expert_layers(keys, L)
    keys.note("layers with experts", some(sum(routed), L), expert_origin(keys))
    F = None if all(routed) else keys.count("intermediate_size_mlp", "F of dense layers")
    whole = attention(keys, D)
    return [
        (see(whole, kind), experts_of(keys, L, i) if r else dense(keys, F), keys.family.norms)
        for i, (kind, r) in enumerate(zip(layer_kinds(keys, L), routed, strict=True))
    ]


def _longcat(keys: Keys, D: int, L: int) -> list[Layer]:
    """Each block has two attentions, two dense layers and experts beside them."""
    keys.note("layers of a block", 3, "class longcat_flash: two dense, one of experts")
    half: Layer = (latent_attention(keys), dense(keys), 2)
    return [
        layer for i in range(L) for layer in (half, half, (NoMixer(), experts_of(keys, L, i), 0))
    ]


def _nas(keys: Keys, D: int, L: int) -> list[Layer]:
    """Every layer has its own heads and width, or lacks them (block_configs of Puzzle)."""
    blocks = keys.config.get("block_configs")
    if not is_list(blocks) or len(blocks) != L:
        raise keys.fail("block_configs is missing, or has no entry for each layer")
    N = keys.count("num_attention_heads", "N")
    whole = Attention(
        N=N,
        K=N,
        H=head_width(keys, D, N),
        qkv_bias=keys.flag(keys.family.qkv_bias, "qkv_bias"),
        out_bias=keys.flag(keys.family.out_bias, "out_bias"),
    )
    keys.note("K", "per layer", "key block_configs: attention.n_heads_in_group")
    keys.note("F", "per layer", "key block_configs: ffn.ffn_mult, rounded up to 256")
    return [_nas_layer(keys, block, whole, D, i) for i, block in enumerate(blocks)]


def _nas_layer(keys: Keys, block: Any, whole: Attention, D: int, i: int) -> Layer:
    mixed = block.get("attention") if is_map(block) else None
    fed = block.get("ffn") if is_map(block) else None
    if not is_map(mixed) or not is_map(fed):
        raise keys.fail(f"block_configs[{i}] lacks attention or ffn")
    for part in (mixed, fed):
        for key in ("replace_with_linear", "sparsify", "window_length", "num_sink_tokens"):
            if part.get(key) not in (None, False):
                raise keys.refuse(f"{key} in block {i}", "block_configs")
    mixer: Mixer = NoMixer()
    if mixed.get("no_op") is not True:
        group = keys.number(f"n_heads_in_group of block {i}", mixed.get("n_heads_in_group"))
        if int(whole.N) % group:
            raise keys.fail(f"n_heads_in_group {group} of block {i} does not divide {whole.N}")
        mixer = replace(whole, K=int(whole.N) // group)
    ffn: FeedForward = NoFeedForward()
    if fed.get("no_op") is not True:
        ratio = fed.get("ffn_mult")
        if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio < 1000:
            raise keys.fail(f"ffn_mult of block {i} is not a number above 0")
        ffn = dense(keys, -(-int(2 * ratio * D / 3) // 256) * 256)
    norms = (not isinstance(mixer, NoMixer)) + (not isinstance(ffn, NoFeedForward))
    return mixer, ffn, norms


LAYOUTS: dict[Layout, Callable[[Keys, int, int], list[Layer]]] = {
    "plain": plain_layers, "falcon": _falcon, "gemma4": _gemma4, "hunyuan": _hunyuan,
    "laguna": _laguna, "llama4": _llama4, "longcat": _longcat, "nas": _nas,
}  # fmt: skip
"""What makes the layers of a class."""
