"""Make the layers of models with state-space layers, alone or beside attention.

Sources: transformers 5.24.0, the classes named by each function; of checkpoints that mamba_ssm
reads itself, github.com/state-spaces/mamba, mamba_ssm/models/config_mamba.py. Mixers are imported
by the function that makes them: a model loads no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .attention import Attention, NoMixer
from .configkeys import Absent, Default, Keys, Layout
from .configlayers import Layer, Shared, attention, block_norms, dense, experts_of, some
from .experts import Experts, NoFeedForward
from .mixers import Mixer
from .model import FeedForward
from .plain import is_list

if TYPE_CHECKING:
    from .ssm import Mamba, Mamba2

ATTENDS = {
    "attention": True, "full_attention": True, "linear_attention": False, "mamba": False,
    "conv": False,
}  # fmt: skip
"""Words of layer_types, and whether such a layer attends."""


def attending(keys: Keys, L: int, rule: list[bool] | None, origin: str) -> list[bool]:
    """Tell which layers attend: by a word for each, or by the rule of the class."""
    lists = {key: keys.words(key, L) for key in ("layer_types", "layers_block_type")}
    marks: dict[str, list[bool]] = {}
    for key, words in lists.items():
        if words is not None and set(words) - ATTENDS.keys():
            raise keys.fail(f"{key} has unknown words", f"Known: {', '.join(ATTENDS)}.")
        if words is not None:
            marks[key] = [ATTENDS[w] for w in words]
    if len(marks) == 2 and marks["layer_types"] != marks["layers_block_type"]:
        raise keys.fail("layer_types and layers_block_type differ", "Keep one of them.")
    found = next(iter(marks.values()), rule)
    if found is None:
        raise keys.missing("layer_types")
    keys.note("layers that attend", some(sum(found), L),
              f"key {next(iter(marks))}" if marks else origin)  # fmt: skip
    return found


def mixed(
    keys: Keys, attends: list[bool], whole: Mixer, state: Mixer, feeds: list[FeedForward]
) -> list[Layer]:
    """Put layers that attend and layers that keep a state in a row."""
    norms = block_norms(keys)
    mixers = [whole if a else state for a in attends]
    return [(mixer, ffn, norms) for mixer, ffn in zip(mixers, feeds, strict=True)]


def derived(keys: Keys, key: str, field: str, number: int, why: str) -> int:
    """Read a count that is derived from others where it is absent, null or the word auto."""
    name, value = keys.find(key)
    if value is None or isinstance(value, Absent) or value == "auto":
        keys.note(field, number, f"derived: {why}")
        return keys.number(key, number)
    given = keys.number(name, value)
    keys.note(field, given, f"key {name}")
    return given


def must_be(keys: Keys, key: str, modelled: object, other: str) -> None:
    """Refuse a key whose value is not the one that is modelled; absent and null are."""
    if keys.config.get(key) not in (None, modelled):
        raise keys.refuse(other, key)


def divide(keys: Keys, whole: int, parts: int, what: str) -> int:
    """Divide a width evenly, or say that it cannot be."""
    if whole % parts:
        raise keys.fail(f"{what}: {parts} do not divide {whole}")
    return whole // parts


def _expanded(keys: Keys, D: int) -> int:
    """Read the inner width of a state-space layer as a multiple of the model's."""
    return keys.count("mamba_expand", "D_i / D") * D


def _mamba(keys: Keys, D: int, d: int) -> Mamba:
    """Read a Mamba layer of inner width d."""
    from .ssm import Mamba

    keys.note("D_i", d, "derived: expansion * hidden_size")
    return Mamba(
        d=d,
        s=keys.count("mamba_d_state", "N_s"),
        r=derived(keys, "mamba_dt_rank", "R", -(-D // 16), "hidden_size / 16, rounded up"),
        taps=keys.count("mamba_d_conv", "k_c"),
        bias=keys.flag(keys.family.state_bias, "biases around the state"),
        conv_bias=keys.flag(keys.family.conv_bias, "bias of the convolution"),
        norms=keys.flag(keys.family.state_norm, "norms around the state"),
    )


def _mamba2(
    keys: Keys, d: int | None, heads: str = "mamba_n_heads", width: str = "mamba_d_head"
) -> Mamba2:
    """Read a Mamba-2 layer; where an inner width d is given, the heads have to fill it."""
    from .ssm import Mamba2

    N = keys.count(heads, "N_m")
    H = _head_width(keys, d, N, width)
    groups = keys.count("mamba_n_groups", "G_m")
    divide(keys, N, groups, "groups of the heads")
    return Mamba2(
        heads=N,
        width=H,
        s=keys.count("mamba_d_state", "N_s"),
        groups=groups,
        taps=keys.count("mamba_d_conv", "k_c"),
        bias=keys.flag(keys.family.state_bias, "biases around the state"),
        conv_bias=keys.flag(keys.family.conv_bias, "bias of the convolution"),
        norm=keys.flag(keys.family.state_norm, "norms around the state"),
    )


def _head_width(keys: Keys, d: int | None, N: int, key: str) -> int:
    """Read the width of N heads, which fill the inner width d where one is given."""
    if d is None:
        return keys.count(key, "H_m")
    even = divide(keys, d, N, "heads of the state-space layers")
    given = derived(keys, key, "H_m", even, "inner width / heads")
    if given != even:
        raise keys.fail(f"{N} heads of {given} do not fill the inner width {d}")
    return given


def _alone(keys: Keys, D: int, L: int) -> list[Layer]:
    """Layers of Mamba without a feed-forward (Mamba, Falcon Mamba)."""
    # The class takes the key where it is there, whatever the expansion says.
    d = keys.optional("intermediate_size", "D_i")
    mixer = _mamba(keys, D, d if isinstance(d, int) else _expanded(keys, D))
    return [(mixer, NoFeedForward(), block_norms(keys))] * L


def _alone2(keys: Keys, D: int, L: int) -> list[Layer]:
    """Layers of Mamba-2 without a feed-forward."""
    mixer = _mamba2(keys, _expanded(keys, D), "num_heads", "head_dim")
    return [(mixer, NoFeedForward(), block_norms(keys))] * L


SSM: dict[str, dict[str, Default]] = {
    "Mamba1": {"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
    "Mamba2": {
        "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 1,
        "mamba_d_head": 64,
    },
}  # fmt: skip
"""Defaults of the layers of mamba_ssm (mamba_simple.py, mamba2.py)."""


def _mamba_ssm(keys: Keys, D: int, L: int) -> list[Layer]:
    """Checkpoints in the format of mamba_ssm: ssm_cfg holds what differs from its defaults."""
    must_be(keys, "rms_norm", True, "LayerNorm in place of RMSNorm")
    must_be(keys, "attn_layer_idx", [], "layers of attention between those of Mamba")
    cfg = keys.mapping("ssm_cfg")
    kind = cfg.get("layer", "Mamba1")
    if kind not in SSM:
        raise keys.fail("the layer of ssm_cfg is neither Mamba1 nor Mamba2")
    for key, other in (
        ("d_ssm", "channels without a state"),
        ("D_has_hdim", "a skip weight for each channel"),
    ):
        if cfg.get(key) not in (None, False):
            raise keys.refuse(other, f"ssm_cfg.{key}")
    two = kind == "Mamba2"
    family = replace(
        keys.family,
        defaults=SSM[kind],
        state_norm=("rmsnorm", True) if two else False,
        state_bias=("bias", False),
        conv_bias=("conv_bias", True),
    )
    inner = Keys(cfg, f"mamba_ssm's {kind}", family, keys.where, nested=False)
    # What ssm_cfg says is noted with the rest.
    inner.taken = keys.taken
    inner.note("layer", kind, "key ssm_cfg.layer" if "layer" in cfg else "default of mamba_ssm")
    d = _expanded(inner, D)
    if two:
        heads = divide(inner, d, inner.count("mamba_d_head", "H_m"), "width of a head")
        inner.note("N_m", heads, "derived: inner width / width of a head")
        inner.config = cfg | {"mamba_n_heads": heads, "mamba_d_head": d // heads}
    mixer = _mamba2(inner, d) if two else _mamba(inner, D, d)
    return [(mixer, NoFeedForward(), block_norms(keys))] * L


def _jamba(keys: Keys, D: int, L: int) -> list[Layer]:
    """Mamba with a layer of attention once in a while, and experts more often (Jamba)."""
    attends, routed = (_periodic(keys, L, part) for part in ("attn", "expert"))
    if keys.count("num_experts", "E") == 1:
        # The class takes a dense layer for one expert.
        routed = [False] * L
    keys.note("layers that attend", some(sum(attends), L), "key attn_layer_period")
    keys.note("layers with experts", some(sum(routed), L), "key expert_layer_period")
    feeds = [experts_of(keys, L, i) if r else dense(keys) for i, r in enumerate(routed)]
    state = _mamba(keys, D, _expanded(keys, D))
    return mixed(keys, attends, attention(keys, D), state, [*feeds])


def _periodic(keys: Keys, L: int, part: str) -> list[bool]:
    """Mark the layers at an offset of a period."""
    period = keys.count(f"{part}_layer_period", f"period of {part} layers")
    offset = keys.count(f"{part}_layer_offset", f"offset of {part} layers", 0)
    if offset >= period:
        raise keys.fail(f"{part}_layer_offset is not below {part}_layer_period")
    return [i % period == offset for i in range(L)]


def _bamba(keys: Keys, D: int, L: int) -> list[Layer]:
    """Mamba-2 with a few layers of attention (Bamba, Granite 4)."""
    listed = keys.indices("attn_layer_indices", L) or []
    rule = [i in listed for i in range(L)]
    named = "attn_layer_indices" in keys.config
    origin = "key attn_layer_indices" if named else f"class default of {keys.kind}"
    attends = attending(keys, L, rule, origin)
    feeds: list[FeedForward]
    if keys.family.experts is None:
        feeds = [dense(keys)] * L
    elif keys.count("num_experts", "E", 0):
        feeds = [experts_of(keys, L, i) for i in range(L)]
    else:
        # Without experts the shared one is all there is.
        feeds = [dense(keys, keys.count("shared_expert_intermediate_size", "F"))] * L
    state = _mamba2(keys, _expanded(keys, D))
    return mixed(keys, attends, attention(keys, D), state, feeds)


def _falcon_h1(keys: Keys, D: int, L: int) -> list[Layer]:
    """Attention and Mamba-2 on the same input in each layer (Falcon-H1)."""
    from .side_by_side import SideBySide

    must_be(keys, "mamba_use_mlp", True, "layers without an MLP")
    d = keys.optional("mamba_d_ssm", "D_i")
    state = _mamba2(keys, d if isinstance(d, int) else _expanded(keys, D))
    both = SideBySide(attention(keys, D), state)
    return [(both, dense(keys), block_norms(keys))] * L


LETTERS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}
"""Letters of the patterns of Nemotron-H, and the words that stand for them since."""
WORDS = {word: word for word in LETTERS.values()} | {
    "mamba": "linear_attention", "attention": "full_attention",
}  # fmt: skip


def pattern(keys: Keys, listed: str, letters: str) -> list[str] | None:
    """Read the kinds of layers of a Nemotron-H: a list of words, or a string of letters."""
    words, text = keys.config.get(listed), keys.config.get(letters)
    found: list[str] | None = None
    if words is not None:
        if not is_list(words) or not words or any(w not in WORDS for w in words):
            raise keys.fail(f"{listed} is no list of {', '.join(LETTERS.values())}")
        found = [WORDS[w] for w in words]
    if text is None:
        return found
    if not isinstance(text, str) or not text or set(text) - LETTERS.keys():
        raise keys.fail(f"{letters} is not made of the letters {' '.join(LETTERS)}")
    spelt = [LETTERS[letter] for letter in text]
    if found is not None and found != spelt:
        raise keys.fail(f"{listed} and {letters} differ", "Keep one of them.")
    return spelt


def pattern_length(keys: Keys) -> int:
    """Tell the number of layers, which the class reads off the pattern alone."""
    words = pattern(keys, "layers_block_type", "hybrid_override_pattern")
    if words is None:
        raise keys.missing("hybrid_override_pattern")
    said = keys.config.get("num_hidden_layers")
    if said not in (None, len(words)):
        raise keys.fail(f"num_hidden_layers is {said}, and the pattern has {len(words)} layers")
    keys.note("L", len(words), "derived: length of the pattern")
    return len(words)


def _nemotron_h(keys: Keys, D: int, L: int) -> list[Layer]:
    """Each layer has either a mixer or a feed-forward (Nemotron-H)."""
    words = pattern(keys, "layers_block_type", "hybrid_override_pattern") or []
    if pattern(keys, "layer_types", "hybrid_override_pattern") not in (None, words):
        raise keys.fail("layer_types and layers_block_type differ", "Keep one of them.")
    must_be(keys, "mamba_conv_bias", keys.flag(keys.family.conv_bias, "bias of the convolution"),
            "another bias of the convolution than use_conv_bias says")  # fmt: skip
    for word, what in zip(LETTERS.values(), ("M", "E", "*", "-"), strict=True):
        keys.note(f"{word} layers", some(words.count(word), L), f"{what} of the pattern")
    made = {word: nemotron_layer(keys, D, word) for word in dict.fromkeys(words)}
    return [made[word] for word in words]


def nemotron_layer(keys: Keys, D: int, word: str) -> Layer:
    """Make a layer of one kind."""
    norms = block_norms(keys)
    match word:
        case "linear_attention":
            return _mamba2(keys, None), NoFeedForward(), norms
        case "full_attention":
            return attention(keys, D), NoFeedForward(), norms
        case "moe":
            return NoMixer(), _latent_experts(keys), norms
        case _:
            return NoMixer(), dense(keys), norms


def _latent_experts(keys: Keys) -> Experts:
    """Read experts that may work at a width of their own."""
    must_be(keys, "n_shared_experts", 1, "another number of shared experts than one")
    # The class takes intermediate_size for a width of 0.
    keys.count("shared_expert_intermediate_size", "F of the shared expert")
    latent = keys.optional("moe_latent_size", "D_e")
    return replace(experts_of(keys, 1, 0), latent=latent if isinstance(latent, int) else None)


def _zamba2(keys: Keys, D: int, L: int) -> list[Layer]:
    """Mamba-2 in each layer; before some of them one of a few shared blocks (Zamba2).

    A shared block reads the embedding beside its input, so that its first norm and its projections
    are twice as wide; a projection and adapters are each layer's own.
    """
    words = keys.words("layers_block_type", L)
    if words is None:
        raise keys.fail("layers_block_type is missing", "It says which layers have a shared block.")
    if set(words) - {"hybrid", "mamba", "linear_attention"}:
        raise keys.fail("layers_block_type has other words than hybrid and mamba")
    must_be(keys, "use_conv_bias", True, "convolutions without biases, which the class has")
    must_be(keys, "tie_word_embeddings", True, "an untied head, and blocks that are not shared")
    must_be(keys, "layer_types", words, "other kinds of layers than layers_block_type")
    places = [i for i, word in enumerate(words) if word == "hybrid"]
    must_be(keys, "hybrid_layer_ids", places, "other shared blocks than layers_block_type")
    mamba: Layer = (_mamba2(keys, _expanded(keys, D)), NoFeedForward(), block_norms(keys))
    hybrids = words.count("hybrid")
    if not hybrids:
        return [mamba] * L
    keys.note("layers with a shared block", some(hybrids, L), "key layers_block_type")
    blocks = keys.count("num_mem_blocks", "shared blocks")
    ffn = dense(keys)
    shared = Shared(
        mixer=_wide_attention(keys, D),
        ffn=ffn,
        norms=3,
        copies=min(blocks, hybrids),
        own=D * D + _adapters(keys, D, ffn.F),
    )
    return [
        layer for word in words for layer in ((shared, mamba) if word == "hybrid" else (mamba,))
    ]


def _wide_attention(keys: Keys, D: int) -> Attention:
    """Read attention over rows that are twice as wide as the model, its heads as well."""
    N = keys.count("num_attention_heads", "N")
    # Not under its other names, which the class ignores.
    said = keys.config.get("num_key_value_heads")
    K = N if said is None else keys.number("num_key_value_heads", said)
    keys.note("K", K, "derived: num_attention_heads" if said is None else "key num_key_value_heads")
    divide(keys, N, K, "key/value heads")
    H = divide(keys, 2 * D, N, "heads of a shared block")
    for key in ("attention_head_dim", "head_dim"):
        must_be(keys, key, H, "heads that are not 2 * hidden_size / heads wide")
    must_be(keys, "attention_hidden_size", 2 * D, "attention that is not twice as wide")
    must_be(keys, "num_query_groups", K, "other key/value heads than num_key_value_heads")
    keys.note("H", H, "derived: 2 * hidden_size / num_attention_heads")
    return Attention(N=N, K=K, H=H, inputs=2)


def _adapters(keys: Keys, D: int, F: Any) -> int:
    """Weights of the low-rank adapters of a layer: on the MLP always, on attention if switched."""
    rank = keys.count("adapter_rank", "R_a")
    on_attention = keys.flag(("use_shared_attention_adapter", False), "adapters of attention")
    # Each of q, k and v leads from 2 D to 2 D.
    return rank * (D + 2 * int(F)) + (3 * rank * 4 * D if on_attention else 0)


LAYOUTS: dict[Layout, Callable[[Keys, int, int], list[Layer]]] = {
    "mamba": _alone, "mamba2": _alone2, "mamba_ssm": _mamba_ssm, "jamba": _jamba, "bamba": _bamba,
    "falcon_h1": _falcon_h1, "nemotron_h": _nemotron_h, "zamba2": _zamba2,
}  # fmt: skip
"""What makes the layers of a class."""
