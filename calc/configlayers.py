"""Make the layers of a model from the keys of its config.json and the row of its class."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from .architectures import LAYERS_REFUSED, NEEDS_HEADS, SAME
from .attention import Attention
from .configkeys import Absent, Keys
from .experts import Experts, NoFeedForward
from .mixers import Mixer
from .mla import MLA
from .mlp import MLP
from .model import FeedForward


@dataclass(frozen=True)
class Shared:
    """A layer whose weights others use as well, with matrices of its own beside them."""

    mixer: Mixer
    ffn: FeedForward
    norms: int
    copies: int
    """Sets of weights that the equal layers share."""
    own: int
    """Weights of the matrices that each layer has for itself."""


Layer: TypeAlias = tuple[Mixer, FeedForward, int] | Shared
"""Mixer, feed-forward and block norms of one layer."""
Kind: TypeAlias = tuple[str, int | None]
"""What a layer sees, full, sliding or chunked, and how far."""

WORDS = {
    "full_attention": "full", "attention": "full", "global": "full",
    "sliding_attention": "sliding", "local": "sliding", "chunked_attention": "chunked",
}  # fmt: skip
"""Words of layer_types."""


def parts_of(layer: Layer) -> tuple[Mixer, FeedForward, int]:
    """Take a layer apart: mixer, feed-forward, block norms."""
    return (layer.mixer, layer.ffn, layer.norms) if isinstance(layer, Shared) else layer


def plain_layers(keys: Keys, D: int, L: int) -> list[Layer]:
    """Make the layers of a class without peculiarities."""
    norms = block_norms(keys)
    feeds = feed_forwards(keys, L)
    if keys.family.latent:
        latent = latent_attention(keys)
        return [(latent, ffn, norms) for ffn in feeds]
    whole = attention(keys, D)
    mixers = [see(whole, kind) for kind in layer_kinds(keys, L)]
    return [(mixer, ffn, norms) for mixer, ffn in zip(mixers, feeds, strict=True)]


def block_norms(keys: Keys) -> int:
    """Read the block norms of a layer."""
    family, norms = keys.family, keys.family.norms
    if family.norms_if is None:
        keys.note("norms of a layer", norms, f"class {keys.kind}")
        return norms
    key, default, other = family.norms_if
    return other if keys.flag((key, default), f"{other} norms a layer") else norms


def see(whole: Attention, kind: Kind) -> Attention:
    """Narrow what an attention sees."""
    what, reach = kind
    if what == "chunked":
        return replace(whole, chunk=reach)
    return replace(whole, window=reach) if what == "sliding" else whole


def attention(keys: Keys, D: int) -> Attention:
    """Read the heads of a class, as those that see everything."""
    family = keys.family
    N = keys.count("num_attention_heads", "N")
    K = _kv_heads(keys, N)
    if N % K:
        raise keys.fail(
            f"{N} query heads cannot share {K} key/value heads",
            "num_key_value_heads has to divide num_attention_heads.",
        )
    H = head_width(keys, D, N)
    lambdas = 4 * H if family.lambdas else 0
    sinks = N if family.sinks else 0
    normed = keys.flag(family.qk_norm_if, "qk_norm") if family.qk_norm != "none" else False
    return Attention(
        N=N,
        K=K,
        H=H,
        qkv_bias=keys.flag(family.qkv_bias, "qkv_bias"),
        out_bias=keys.flag(family.out_bias, "out_bias"),
        qk_norm=family.qk_norm if normed else "none",
        gate=family.gate,
        # Weights without a place of their own: sinks, lambdas, scalars of an activation.
        extra=lambdas + sinks + family.more,
    )


def head_width(keys: Keys, D: int, N: int) -> int:
    """Read the width of a head; hidden_size / num_attention_heads where nothing says it."""
    H = keys.optional("head_dim", "H")
    if isinstance(H, int):
        return H
    if D % N:
        what = f"{N} heads do not divide hidden_size {D}"
        raise keys.fail(what, "head_dim or another number of heads is needed.")
    keys.taken.pop("H", None)
    keys.note("H", D // N, "derived: hidden_size / num_attention_heads")
    return D // N


def _kv_heads(keys: Keys, N: int) -> int:
    heads = keys.family.heads
    one = {"falcon": "multi_query", "gpt_bigcode": "multi_query"}.get(heads)
    if heads == "falcon" and keys.flag(("new_decoder_architecture", False), "falcon's decoder"):
        one = None
    if one is not None:
        single = keys.flag((one, True), "multi_query")
        keys.note("K", 1 if single else N, f"derived: {one}")
        return 1 if single else N
    if heads == "chatglm":
        if keys.flag(("multi_query_attention", False), "multi_query"):
            return keys.count("multi_query_group_num", "K")
        keys.note("K", N, "derived: num_attention_heads, without multi_query_attention")
        return N
    K = keys.optional("num_key_value_heads", "K")
    if isinstance(K, int):
        return K
    if isinstance(K, Absent) and SAME.get(keys.kind, keys.kind) in NEEDS_HEADS:
        raise keys.missing("num_key_value_heads")
    keys.taken.pop("K", None)
    why = "absent" if isinstance(K, Absent) else "null"
    keys.note("K", N, f"derived: num_attention_heads, as num_key_value_heads is {why}")
    return N


def latent_attention(keys: Keys) -> MLA:
    """Read the ranks of multi-head latent attention; num_key_value_heads means nothing in it."""
    rank = keys.optional("q_lora_rank", "q")
    if isinstance(rank, Absent):
        raise keys.missing("q_lora_rank")
    return MLA(
        N=keys.count("num_attention_heads", "N"),
        c=keys.count("kv_lora_rank", "c"),
        r=keys.count("qk_rope_head_dim", "r"),
        d=keys.count("qk_nope_head_dim", "d"),
        v=keys.count("v_head_dim", "v"),
        q=rank,
        q_bias=keys.flag(keys.family.qkv_bias, "qkv_bias"),
        out_bias=keys.flag(keys.family.out_bias, "out_bias"),
    )


def layer_kinds(keys: Keys, L: int) -> list[Kind]:
    """Tell what each layer sees: by layer_types, or by the rule of its class."""
    family = keys.family
    words = keys.words("layer_types", L)
    for word in words or ():
        if word in LAYERS_REFUSED:
            raise keys.refuse(f"{LAYERS_REFUSED[word]} ({word})", "layer_types")
        if word not in WORDS:
            raise keys.fail(f"unknown word '{word[:40]}' in layer_types", f"Known: {_known()}.")
    if family.sight == "full":
        if any(WORDS[w] != "full" for w in words or ()):
            raise keys.fail(f"layer_types has windows, which {keys.kind} does not have")
        keys.note("window", None, f"class {keys.kind}")
        return [("full", None)] * L
    if family.sight == "rope":
        return _chunks(keys, words, L)
    if family.sight in ("switch", "odd") and not keys.flag(("use_sliding_window", False), "slides"):
        keys.note("window", None, "derived: use_sliding_window is false")
        return [("full", None)] * L
    W = keys.optional("sliding_window", "window")
    if not isinstance(W, int):
        if isinstance(W, Absent) or (words and "sliding_attention" in words):
            raise keys.fail("sliding_window is missing, and layers slide")
        return [("full", None)] * L
    if words is not None:
        keys.note("layers that slide", some(words.count("sliding_attention"), L), "key layer_types")
        return [("sliding", W) if WORDS[w] == "sliding" else ("full", None) for w in words]
    slides = _sliding(keys, L)
    said = keys.family.sight
    keys.note("layers that slide", some(sum(slides), L), f"class {keys.kind}: {said}")
    return [("sliding", W) if s else ("full", None) for s in slides]


def some(count: int, L: int) -> str:
    """Write how many layers of all have a trait."""
    return f"{count} of {L}"


def _known() -> str:
    return ", ".join(WORDS)


def _sliding(keys: Keys, L: int) -> list[bool]:
    """Tell which layers have a window where layer_types does not."""
    match keys.family.sight:
        case "window":
            return [True] * L
        case "alternate":
            return [i % 2 == 0 for i in range(L)]
        case "switch" | "late":
            first = keys.count("max_window_layers", "layers before the windows", 0)
            return [i >= first for i in range(L)]
        case "pattern" | "letters":
            return _pattern(keys, L)
        case _:
            raise keys.missing("layer_types")


def _pattern(keys: Keys, L: int) -> list[bool]:
    key, default = keys.family.period
    value = keys.config.get(key)
    if keys.family.sight == "letters" and isinstance(value, str):
        if not value or set(value) - set("LG"):
            raise keys.fail(f"{key} is '{value[:40]}'", "Letters L and G, or a number, are needed.")
        return [value[i % len(value)] == "L" for i in range(L)]
    if value is None:
        keys.note(key, default, f"class default of {keys.kind}")
        value = default
    every = keys.number(key, value)
    keys.note(key, every, f"key {key}")
    return [(i + 1) % every != 0 for i in range(L)]


def _chunks(keys: Keys, words: list[str] | None, L: int) -> list[Kind]:
    """Tell which layers of a Llama 4 look at chunks: those with rotary positions."""
    chunk = keys.optional("attention_chunk_size", "chunk")
    rotary = keys.indices("no_rope_layers", L + 1)
    if words is not None:
        near, origin = [WORDS[w] == "chunked" for w in words], "key layer_types"
        if "sliding_attention" in words:
            raise keys.fail(f"layer_types has windows, which {keys.kind} does not have")
    elif rotary:
        if len(rotary) != L or set(rotary) - {0, 1}:
            raise keys.fail("no_rope_layers is not a list of a 0 or 1 for each layer")
        near, origin = [r == 1 for r in rotary], "key no_rope_layers"
    else:
        step = keys.config.get("no_rope_layer_interval", 4)
        every = keys.number("no_rope_layer_interval", step)
        near, origin = [(i + 1) % every != 0 for i in range(L)], f"class default of {keys.kind}"
    if not isinstance(chunk, int):
        return [("full", None)] * L
    keys.note("layers that see chunks", some(sum(near), L), origin)
    return [("chunked", chunk) if n else ("full", None) for n in near]


def width(keys: Keys) -> int:
    """Read the width of a dense feed-forward layer."""
    family = keys.family
    F = keys.optional("intermediate_size", "F")
    if family.halved and isinstance(F, int):
        keys.note("F of a matrix", F // 2, "derived: intermediate_size / 2, of both halves")
        return F // 2
    if isinstance(F, int):
        return F
    if family.multiple is None:
        return keys.count("intermediate_size", "F")
    # The classes of transformers and of the authors read another ratio differently.
    if keys.config.get("expansion_ratio", 4) != 4:
        raise keys.refuse("an MLP that is not 4 times as wide as the layers", "expansion_ratio")
    four = family.multiple * keys.count("hidden_size", "D")
    keys.taken.pop("F", None)
    keys.note("F", four, f"derived: {family.multiple} * hidden_size, class {keys.kind}")
    return four


def dense(keys: Keys, F: int | None = None) -> MLP:
    """Read a dense feed-forward layer."""
    wide = width(keys) if F is None else F
    return MLP(wide, keys.family.gated, keys.flag(keys.family.mlp_bias, "mlp_bias"))


def feed_forwards(keys: Keys, L: int) -> list[FeedForward]:
    """Make the feed-forward of each layer."""
    if keys.family.experts is None:
        return [dense(keys)] * L
    routed = expert_layers(keys, L)
    keys.note("layers with experts", some(sum(routed), L), expert_origin(keys))
    experts = [experts_of(keys, L, i) if r else None for i, r in enumerate(routed)]
    plain = None if all(routed) else dense(keys)
    return [e or plain or NoFeedForward() for e in experts]


def expert_origin(keys: Keys) -> str:
    """Name what says which layers have experts."""
    said = ("mlp_layer_types", "moe_layers", "first_k_dense_replace", "num_dense_layers",
            "decoder_sparse_step", "interleave_moe_layer_step")  # fmt: skip
    key = next((k for k in said if keys.config.get(k) is not None), None)
    return f"key {key}" if key else f"class {keys.kind}"


def expert_layers(keys: Keys, L: int) -> list[bool]:
    """Tell which layers have experts."""
    routed = keys.family.experts
    match routed.where if routed else "all":
        case "first":
            words = keys.words("mlp_layer_types", L)
            if words is not None:
                if set(words) - {"dense", "sparse"}:
                    raise keys.fail("mlp_layer_types has other words than dense and sparse")
                return [w == "sparse" for w in words]
            first = keys.count("first_k_dense_replace", "dense layers first", 0)
            every = keys.config.get("moe_layer_freq")
            step = 1 if every is None else keys.number("moe_layer_freq", every)
            return [i >= first and i % step == 0 for i in range(L)]
        case "dense":
            first = keys.count("num_dense_layers", "dense layers first", 0)
            return [i >= first for i in range(L)]
        case "step":
            every = keys.config.get("decoder_sparse_step")
            step = 1 if every is None else keys.number("decoder_sparse_step", every)
            only = keys.indices("mlp_only_layers", L) or []
            return [i not in only and (i + 1) % step == 0 for i in range(L)]
        case "interval":
            first = keys.count("moe_layer_start_index", "first layer with experts", 0)
            last = keys.config.get("moe_layer_end_index")
            end = L - 1 if last in (None, -1) else keys.number("moe_layer_end_index", last, 0)
            step = keys.count("moe_layer_interval", "step of layers with experts")
            return [(i + 1) % step == 0 and first <= i <= end for i in range(L)]
        case "listed":
            listed = keys.indices("moe_layers", L)
            if listed is not None:
                return [i in listed for i in range(L)]
            step = keys.count("interleave_moe_layer_step", "step of layers with experts")
            return [(i + 1) % step == 0 for i in range(L)]
        case "optional":
            E = keys.optional("num_experts", "E", least=0)
            return [isinstance(E, int) and E > 0] * L
        case _:
            return [True] * L


def experts_of(keys: Keys, L: int, i: int) -> Experts:
    """Read the experts of layer i."""
    routed = keys.family.experts
    assert routed is not None
    if routed.shared != "none" and keys.flag(keys.family.mlp_bias, "mlp_bias"):
        raise keys.refuse("biases on shared experts", "a bias key")
    E = keys.count("num_experts", "E")
    ks = keys.counts("num_experts_per_tok", L, 1)
    Fs = keys.counts(routed.width, L, 1)
    if ks is None:
        raise keys.missing("num_experts_per_tok")
    if Fs is None:
        raise keys.missing(routed.width)
    zero = 0
    if keys.family.layout == "longcat":
        zero = keys.count("zero_expert_num", "experts that do nothing", 0)
    if ks[i] > E + zero:
        raise keys.fail(f"a token chooses {ks[i]} experts of {E}")
    keys.note("k", ks[i], f"key {keys.find('num_experts_per_tok')[0]}")
    keys.note("F of an expert", Fs[i], f"key {keys.find(routed.width)[0]}")
    shared = _shared(keys, L, i, Fs[i])
    if routed.shared_gate and not shared:
        raise keys.refuse("a gate of shared experts without width")
    return Experts(
        F=Fs[i],
        E=E,
        k=ks[i],
        gated=keys.family.gated,
        bias=routed.bias,
        zero=zero,
        shared=shared,
        shared_gate=routed.shared_gate,
        router_bias=routed.router_bias,
    )


def _shared(keys: Keys, L: int, i: int, F: int) -> int:
    """Read the width of all shared experts of a layer together."""
    routed = keys.family.experts
    match routed.shared if routed else "none":
        case "count":
            counts = keys.counts("n_shared_experts", L)
            if counts is None:
                number = keys.optional("n_shared_experts", "shared experts", 0)
                counts = [number if isinstance(number, int) else 0] * L
            else:
                keys.note("shared experts", counts[i], f"key {keys.find('n_shared_experts')[0]}")
            return counts[i] * F
        case "width":
            return keys.count("shared_expert_intermediate_size", "F of the shared expert", 0)
        case "one":
            keys.note("shared experts", 1, f"class {keys.kind}")
            return F
        case _:
            return 0
