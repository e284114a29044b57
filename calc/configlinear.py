"""Make the layers of models with linear attention, short convolutions or other recurrences.

Sources: transformers 5.24.0, the classes named by each function; of MiniMax-Text-01 and M1, the
modeling files beside the checkpoints. Mixers are imported by the function that makes them: a model
loads no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from .configkeys import Keys, Layout
from .configlayers import (
    Layer,
    attention,
    block_norms,
    dense,
    feed_forwards,
    latent_attention,
    some,
)
from .configstates import attending, derived, divide, mixed, must_be
from .mlp import MLP
from .plain import is_list, is_number


def _every(L: int, period: int) -> list[bool]:
    """Mark each layer whose number, counted from 1, is a multiple of a period."""
    return [(i + 1) % period == 0 for i in range(L)]


def _interval(keys: Keys, L: int, key: str, default: int) -> tuple[list[bool], str]:
    """Read after how many layers one attends, and tell where that was said."""
    value = keys.config.get(key)
    if value is None:
        return _every(L, default), f"class default of {keys.kind}"
    return _every(L, keys.number(key, value)), f"key {key}"


def _delta(keys: Keys, D: int, L: int) -> list[Layer]:
    """Gated DeltaNet, and attention with a gate each few layers (Qwen3-Next, Qwen3.5)."""
    from .linear_attention import DeltaNet

    must_be(keys, "attn_output_gate", True, "attention without a gate")
    if keys.family.experts is None or keys.family.experts.where == "all":
        must_be(keys, "mlp_only_layers", [], "dense layers, which the class does not have")
    state = DeltaNet(
        key_heads=keys.count("linear_num_key_heads", "K_l"),
        value_heads=keys.count("linear_num_value_heads", "N_l"),
        key=keys.count("linear_key_head_dim", "d_k"),
        value=keys.count("linear_value_head_dim", "d_v"),
        taps=keys.count("linear_conv_kernel_dim", "k_c"),
    )
    _grouped(keys, state.value_heads, state.key_heads)
    attends = attending(keys, L, *_interval(keys, L, "full_attention_interval", 4))
    return mixed(keys, attends, attention(keys, D), state, feed_forwards(keys, L))


def _grouped(keys: Keys, values: Any, key_heads: Any) -> None:
    """Check that heads of values can share heads of keys."""
    divide(keys, int(values), int(key_heads), "heads of keys in linear attention")


def _olmo(keys: Keys, D: int, L: int) -> list[Layer]:
    """Gated DeltaNet, and attention each fourth layer, at least in the last one (OLMo Hybrid)."""
    from .linear_attention import DeltaNet

    N = keys.count("num_attention_heads", "N")
    key_heads = derived(keys, "linear_num_key_heads", "K_l", N, "num_attention_heads")
    value_heads = derived(keys, "linear_num_value_heads", "N_l", N, "num_attention_heads")
    _grouped(keys, value_heads, key_heads)
    three = 3 * D // (4 * key_heads)
    key = derived(keys, "linear_key_head_dim", "d_k", three, "3/4 hidden_size / heads of keys")
    state = DeltaNet(
        key_heads=key_heads,
        value_heads=value_heads,
        key=key,
        value=derived(keys, "linear_value_head_dim", "d_v", 2 * key, "2 * linear_key_head_dim"),
        taps=keys.count("linear_conv_kernel_dim", "k_c"),
    )
    rule = _every(L, 4) if L >= 4 else [*[False] * (L - 1), True]
    attends = attending(keys, L, rule, f"class default of {keys.kind}")
    return mixed(keys, attends, attention(keys, D), state, feed_forwards(keys, L))


def _kimi(keys: Keys, D: int, L: int) -> list[Layer]:
    """Kimi Delta Attention, its gates of low rank, and latent attention (Kimi Linear)."""
    from .linear_attention import DeltaNet

    cfg = keys.mapping("linear_attn_config")
    heads = _inner(keys, cfg, "num_heads", "linear_num_heads", "N_l")
    width = _inner(keys, cfg, "head_dim", "linear_head_dim", "d_k")
    taps = _inner(keys, cfg, "short_conv_kernel_size", "linear_conv_kernel_dim", "k_c")
    state = DeltaNet(heads, heads, width, width, taps, "channel", rank=width)
    rule, origin = _kda_layers(keys, cfg, L), "key linear_attn_config"
    if rule is None:
        rule, origin = [i > 0 and i % 4 == 0 for i in range(L)], f"class default of {keys.kind}"
    elif "layer_types" in keys.config and attending(keys, L, rule, origin) != rule:
        raise keys.fail("layer_types and linear_attn_config differ")
    attends = attending(keys, L, rule, origin)
    return mixed(keys, attends, latent_attention(keys), state, feed_forwards(keys, L))


def _inner(keys: Keys, cfg: dict[str, Any], inner: str, key: str, field: str) -> int:
    """Read a number of linear_attn_config, or the key that the class saves it under."""
    if cfg.get(inner) is None:
        return keys.count(key, field)
    number = keys.number(f"linear_attn_config.{inner}", cfg[inner])
    if keys.config.get(key) not in (None, number):
        raise keys.fail(f"{key} and linear_attn_config.{inner} differ", "Keep one of them.")
    keys.note(field, number, f"key linear_attn_config.{inner}")
    return number


def _kda_layers(keys: Keys, cfg: dict[str, Any], L: int) -> list[bool] | None:
    """Read which layers attend: two lists of layer numbers, counted from 1."""
    lists = [cfg.get(key) for key in ("full_attn_layers", "kda_layers")]
    if lists == [None, None]:
        return None
    full, linear = (
        [keys.number("a layer of linear_attn_config", n, 1, L) for n in listed]
        if is_list(listed) else []
        for listed in lists
    )  # fmt: skip
    if sorted(full + linear) != list(range(1, L + 1)):
        raise keys.fail("full_attn_layers and kda_layers do not name each layer once")
    return [i + 1 in full for i in range(L)]


def _bailing(keys: Keys, D: int, L: int) -> list[Layer]:
    """Kimi Delta Attention, its gates of full rank, and gated latent attention (Ling 3)."""
    from .linear_attention import DeltaNet

    N = keys.count("num_attention_heads", "N")
    heads = derived(keys, "linear_num_heads", "N_l", N, "num_attention_heads")
    # The class saves the width of a rotary key as head_dim, and the width of these heads apart.
    width, taps = (
        keys.count(key if key in keys.config or older not in keys.config else older, field)
        for key, older, field in (
            ("linear_head_dim", "head_dim", "d_k"),
            ("linear_conv_kernel_dim", "short_conv_kernel_size", "k_c"),
        )
    )
    state = DeltaNet(heads, heads, width, width, taps, "channel")
    latent = replace(latent_attention(keys), gate=True)
    attends = attending(keys, L, *_interval(keys, L, "layer_group_size", 6))
    return mixed(keys, attends, latent, state, feed_forwards(keys, L))


def _lightning(keys: Keys, D: int, L: int) -> list[Layer]:
    """Lightning attention, and softmax attention in some layers (MiniMax-Text-01, M1)."""
    from .linear_attention import LinearAttention

    whole = attention(keys, D)
    state = LinearAttention(
        heads=whole.N, key=whole.H, value=whole.H, gate=True, norm=True, decays=True
    )
    rule, origin = None, "key attn_type_list"
    flags = keys.config.get("attn_type_list")
    if flags is not None:
        if not is_list(flags) or len(flags) != L or any(f not in (0, 1) for f in flags):
            raise keys.fail(f"attn_type_list is not a list of a 0 or 1 for each of {L} layers")
        rule = [f == 1 for f in flags]
    elif keys.kind == "minimax":
        rule, origin = [i % 2 == 0 for i in range(L)], f"class default of {keys.kind}"
    elif "layer_types" not in keys.config:
        raise keys.missing("attn_type_list")
    attends = attending(keys, L, rule, origin)
    if flags is not None and attends != rule:
        raise keys.fail("attn_type_list and layer_types differ", "Keep one of them.")
    return mixed(keys, attends, whole, state, feed_forwards(keys, L))


def _lfm2(keys: Keys, D: int, L: int) -> list[Layer]:
    """Short convolutions, and attention in some layers (LFM2)."""
    from .short_conv import ShortConv

    for key in ("conv_dim", "conv_dim_out", "block_dim"):
        must_be(keys, key, D, "convolutions of another width than the layers")
    state = ShortConv(
        D,
        taps=keys.count("conv_L_cache", "k_c"),
        bias=keys.flag(keys.family.conv_bias, "biases around the convolution"),
    )
    rule: list[bool] | None = None
    listed = keys.indices("full_attn_idxs", L)
    if keys.family.experts is None:
        rule = [listed is None or i in listed for i in range(L)]
    origin = "key full_attn_idxs" if listed else f"class default of {keys.kind}"
    attends = attending(keys, L, rule, origin)
    if listed is not None and attends != [i in listed for i in range(L)]:
        raise keys.fail("full_attn_idxs and layer_types differ", "Keep one of them.")
    if keys.family.experts is None:
        return mixed(keys, attends, attention(keys, D), state, [_lfm2_mlp(keys)] * L)
    return mixed(keys, attends, attention(keys, D), state, feed_forwards(keys, L))


def _lfm2_mlp(keys: Keys) -> MLP:
    """Read the width of an MLP: two thirds of what is written, rounded up, unless switched off."""
    written = keys.count("intermediate_size", "F as written")
    if not keys.flag(("block_auto_adjust_ff_dim", True), "F adjusted"):
        keys.note("F", written, "key intermediate_size")
        return dense(keys, written)
    wide = 2 * written // 3
    if keys.config.get("block_ffn_dim_multiplier", 1) is not None:
        wide = int(ratio(keys, "block_ffn_dim_multiplier", 1.0) * wide)
        multiple = keys.count("block_multiple_of", "F a multiple of")
        wide = -(-wide // multiple) * multiple
    keys.note("F", wide, "derived: 2/3 intermediate_size, rounded up")
    return dense(keys, wide)


def ratio(keys: Keys, key: str, default: float) -> float:
    """Read a factor above 0."""
    value = keys.config.get(key)
    if value is None:
        keys.note(key, default, f"class default of {keys.kind}")
        return default
    if not is_number(value) or not 0 < value < 1000:
        raise keys.fail(f"{key} is {value!r:.40}", "A number above 0 is needed.")
    keys.note(key, value, f"key {key}")
    return float(value)


def _griffin(keys: Keys, D: int, L: int) -> list[Layer]:
    """Gated linear recurrences, and attention with a window in between (RecurrentGemma)."""
    from .rglru import RGLRU

    whole = attention(keys, D)
    N = int(whole.N)
    width = derived(keys, "lru_width", "D_i", D, "hidden_size")
    divide(keys, width, N, "blocks of the gates")
    if keys.count("intermediate_size", "F of both halves") % 2:
        raise keys.fail("intermediate_size is odd, and counts two halves")
    state = RGLRU(width, blocks=N, taps=keys.count("conv1d_width", "k_c"))
    near = replace(whole, window=keys.count("attention_window_size", "window"))
    words = keys.config.get("block_types")
    origin = "key block_types" if words is not None else f"class default of {keys.kind}"
    unit: Any = ["recurrent", "recurrent", "attention"] if words is None else words
    if not is_list(unit) or not unit or any(w not in ("recurrent", "attention") for w in unit):
        raise keys.fail("block_types is no list of recurrent and attention")
    attends = [unit[i % len(unit)] == "attention" for i in range(L)]
    keys.note("layers that attend", some(sum(attends), L), origin)
    return mixed(keys, attends, near, state, feed_forwards(keys, L))


def _rwkv(keys: Keys, D: int, L: int) -> list[Layer]:
    """Time mixing and channel mixing (RWKV-4)."""
    from .rwkv import RWKV4, ChannelMix

    A = derived(keys, "attention_hidden_size", "D_a", D, "hidden_size")
    feed = ChannelMix(dense(keys).F, receptance=True)
    return [(RWKV4(D=D, A=A), feed, block_norms(keys))] * L


def _xlstm(keys: Keys, D: int, L: int) -> list[Layer]:
    """Matrix memories (xLSTM)."""
    from .mlstm import MLSTM

    must_be(keys, "embedding_dim", D, "an embedding of another width, which the class ignores")
    must_be(keys, "num_blocks", L, "another number of blocks, which the class ignores")
    must_be(keys, "add_out_norm", True, "no final norm, which the class has")
    heads = keys.count("num_heads", "N_l")
    factors = ratio(keys, "qk_dim_factor", 0.5), ratio(keys, "v_dim_factor", 1.0)
    key, value = (divide(keys, int(D * f), heads, "heads of the memory") for f in factors)
    multiple = keys.count("ffn_round_up_to_multiple_of", "F a multiple of")
    # A fraction above a multiple is dropped, not rounded up.
    F = int((D * ratio(keys, "ffn_proj_factor", 2.667) + multiple - 1) // multiple * multiple)
    keys.note("F", F, "derived: ffn_proj_factor * hidden_size, rounded up")
    return [(MLSTM(heads, key, value), dense(keys, F), block_norms(keys))] * L


LAYOUTS: dict[Layout, Callable[[Keys, int, int], list[Layer]]] = {
    "delta": _delta, "olmo_hybrid": _olmo, "kimi_linear": _kimi, "bailing_hybrid": _bailing,
    "lightning": _lightning, "lfm2": _lfm2, "griffin": _griffin, "rwkv": _rwkv, "xlstm": _xlstm,
}  # fmt: skip
"""What makes the layers of a class."""
