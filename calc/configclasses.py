"""Make the layers of classes that attend in each layer, and have peculiarities of their own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .attention import Attention, NoMixer
from .configkeys import Keys, Layout
from .configlayers import (
    Layer,
    attention,
    dense,
    expert_layers,
    expert_origin,
    experts_of,
    feed_forwards,
    head_width,
    latent_attention,
    layer_kinds,
    see,
    some,
)
from .experts import Experts, NoFeedForward
from .mixers import Mixer
from .model import FeedForward
from .plain import is_list, is_map, is_number


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
    reader = replace(mixer, shares=True, idle_key_norm=True)
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
        if not is_number(ratio) or not 0 < ratio < 1000:
            raise keys.fail(f"ffn_mult of block {i} is not a number above 0")
        ffn = dense(keys, -(-int(2 * ratio * D / 3) // 256) * 256)
    norms = (not isinstance(mixer, NoMixer)) + (not isinstance(ffn, NoFeedForward))
    return mixer, ffn, norms


LAYOUTS: dict[Layout, Callable[[Keys, int, int], list[Layer]]] = {
    "falcon": _falcon, "hunyuan": _hunyuan, "laguna": _laguna, "llama4": _llama4,
    "longcat": _longcat, "nas": _nas,
}  # fmt: skip
"""What makes the layers of a class."""
