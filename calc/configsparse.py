"""Make the layers of models with indexers, compressed or shared caches, or several streams.

Sources: transformers 5.24.0, models/deepseek_v32, glm_moe_dsa, deepseek_v4, minimax_m3_vl, gemma3n
and gemma4; github.com/NVlabs/Fast-dLLM, llada/model/configuration_llada.py. Mixers are imported by
the function that makes them: a model loads no others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from .configkeys import Absent, Keys, Layout
from .configlayers import (
    Kind,
    Layer,
    attention,
    block_norms,
    dense,
    experts_of,
    feed_forwards,
    latent_attention,
    layer_kinds,
    plain_layers,
    see,
    some,
)
from .experts import Experts
from .mlp import MLP
from .plain import is_list, is_map

if TYPE_CHECKING:
    from .residual import Residual


def _indexed(keys: Keys, D: int, L: int) -> list[Layer]:
    """Latent attention to tokens that an indexer chooses; some layers take an earlier choice."""
    from .sparse import SparseMLA

    latent = latent_attention(keys)
    if latent.q is None:
        raise keys.fail("q_lora_rank is null", "The indexer makes its queries of their latent.")
    if set(keys.words("layer_types", L) or ()) - {"indexed_attention"}:
        raise keys.fail("layer_types has other words than indexed_attention")
    own = SparseMLA(
        **{f.name: getattr(latent, f.name) for f in fields(latent)},
        index_heads=keys.count("index_n_heads", "index heads"),
        index_width=keys.count("index_head_dim", "width of index keys"),
        top=keys.count("index_topk", "tokens chosen"),
    )
    reader = replace(own, reads_choice=True, index_heads=0, index_width=0)
    chooses = _choosers(keys, L)
    if not chooses[0]:
        raise keys.fail("the first layer takes the choice of an earlier one")
    keys.note("layers with an indexer", some(sum(chooses), L), _choosers_origin(keys))
    norms = block_norms(keys)
    feeds = feed_forwards(keys, L)
    return [(own if c else reader, ffn, norms) for c, ffn in zip(chooses, feeds, strict=True)]


CHOICE_KEYS = ("indexer_types", "index_topk_pattern", "index_topk_freq")
"""Keys that tell the layers with an indexer, the first of them that is there."""


def _choosers_origin(keys: Keys) -> str:
    said = next((k for k in CHOICE_KEYS if keys.config.get(k) is not None), None)
    return f"key {said}" if said else f"class {keys.kind}"


def _choosers(keys: Keys, L: int) -> list[bool]:
    """Tell which layers have an indexer of their own."""
    words: list[Any] | None = keys.words("indexer_types", L)
    pattern = keys.config.get("index_topk_pattern")
    if words is None and isinstance(pattern, str):
        words = [{"F": "full", "S": "shared"}.get(c) for c in pattern]
    elif words is None and pattern is not None:
        words = keys.words("index_topk_pattern", L)
    if words is not None:
        if len(words) != L or set(words) - {"full", "shared"}:
            raise keys.fail(f"the pattern of indexers is not a full or shared for each of {L}")
        return [w == "full" for w in words]
    every = keys.number("index_topk_freq", keys.config.get("index_topk_freq", 1))
    skip = keys.number("index_skip_topk_offset", keys.config.get("index_skip_topk_offset", 2), 0)
    return [max(i - skip + 1, 0) % every == 0 for i in range(L)]


RATIOS = {0: "sliding", 4: "csa", 128: "hca"}
"""Entries of compress_ratios, as the class reads them."""
COMPRESSED = {
    "sliding_attention": "sliding", "compressed_sparse_attention": "csa",
    "heavily_compressed_attention": "hca",
}  # fmt: skip
"""Words of layer_types."""
RATES = (
    ("csa", "compressed_sparse_attention", "compress_rate_csa", 4),
    ("hca", "heavily_compressed_attention", "compress_rate_hca", 128),
)
"""Kind of layer, its key in compress_rates, the older key of its own, and the class default."""


def _compressed(keys: Keys, D: int, L: int) -> list[Layer]:
    """Windows alone, or beside them entries that stand for several tokens (DeepSeek-V4)."""
    from .compressed import Compressed

    if keys.count("num_key_value_heads", "K") != 1:
        raise keys.refuse("more than one key, which is the value", "num_key_value_heads")
    if keys.count("n_shared_experts", "shared experts", 0) != 1:
        raise keys.refuse("another number of shared experts than one", "n_shared_experts")
    near = Compressed(
        N=keys.count("num_attention_heads", "N"),
        H=keys.count("head_dim", "H"),
        q=keys.count("q_lora_rank", "q"),
        window=keys.count("sliding_window", "window"),
        groups=keys.count("o_groups", "groups of the output"),
        rank=keys.count("o_lora_rank", "columns of a group"),
    )
    if near.N * near.H % near.groups:
        raise keys.fail(f"{near.N} heads of {near.H} do not divide into {near.groups} o_groups")
    rates = _rates(keys)
    choice = {
        "index_heads": keys.count("index_n_heads", "index heads"),
        "index_width": keys.count("index_head_dim", "width of index keys"),
        "top": keys.count("index_topk", "entries chosen"),
    }
    mixers = {
        "sliding": near,
        "csa": replace(near, m=rates["csa"], **choice),
        "hca": replace(near, m=rates["hca"]),
    }
    kinds = _schedule(keys, L)
    for kind in sorted(set(kinds)):
        origin = "key layer_types" if keys.config.get("layer_types") else "key compress_ratios"
        keys.note(f"{kind} layers", some(kinds.count(kind), L), origin)
    norms = block_norms(keys)
    feeds = feed_forwards(keys, L)
    return [(mixers[kind], ffn, norms) for kind, ffn in zip(kinds, feeds, strict=True)]


def _schedule(keys: Keys, L: int) -> list[str]:
    """Tell the kind of each layer; the default of the class is no published model's."""
    words = keys.words("layer_types", L)
    if words is not None:
        if set(words) - COMPRESSED.keys():
            raise keys.fail("layer_types has unknown words", f"Known: {', '.join(COMPRESSED)}.")
        return [COMPRESSED[w] for w in words]
    ratios = keys.config.get("compress_ratios")
    if ratios is None:
        raise keys.missing("compress_ratios")
    # Further entries belong to layers that predict further tokens.
    if not is_list(ratios) or len(ratios) < L:
        raise keys.fail("compress_ratios is no list with an entry for each layer")
    if any(isinstance(r, bool) or r not in RATIOS for r in ratios):
        raise keys.fail("compress_ratios has other numbers than 0, 4 and 128")
    return [RATIOS[r] for r in ratios[:L]]


def _rates(keys: Keys) -> dict[str, int]:
    """Read how many tokens an entry stands for."""
    rates: dict[str, int] = {}
    said = keys.config.get("compress_rates")
    if said is not None and not is_map(said):
        raise keys.fail("compress_rates is not a mapping")
    for kind, inner, older, default in RATES:
        found = [(key, holder[key]) for key, holder in ((older, keys.config), (inner, said or {}))
                 if holder.get(key) is not None]  # fmt: skip
        name, value = found[0] if found else (inner, default)
        rates[kind] = keys.number(name, value)
        origin = f"key {name}" if found else f"class default of {keys.kind}"
        if not found and keys.config.get("compress_ratios") is not None:
            origin = "key compress_ratios"
        keys.note(f"tokens of an entry, {kind}", value, origin)
    return rates


def _blocks(keys: Keys, D: int, L: int) -> list[Layer]:
    """Attention to blocks of keys that an indexer chooses, in some layers (MiniMax-M3)."""
    from .sparse import SparseAttention

    index: Any = keys.config.get("sparse_attention_config") or {}
    if not is_map(index):
        raise keys.fail("sparse_attention_config is not a mapping")
    sparse = _flags(keys, L, "layer_types", ("full_attention", "minimax_m3_sparse"),
                    "sparse_attention_config.sparse_attention_freq",
                    index.get("sparse_attention_freq"))  # fmt: skip
    _refuse_blocks(keys, index, sparse)
    whole = attention(keys, D)
    indexed = SparseAttention(
        **{f.name: getattr(whole, f.name) for f in fields(whole)},
        index_heads=_index_count(keys, index, "index_n_heads", "sparse_num_index_heads"),
        index_width=_index_count(keys, index, "index_head_dim", "sparse_index_dim"),
        top=_index_count(keys, index, "index_topk_blocks", "sparse_topk_blocks"),
        block=_index_count(keys, index, "index_block_size", "sparse_block_size"),
    )
    routed = _flags(keys, L, "mlp_layer_types", ("dense", "sparse"), "moe_layer_freq",
                    keys.config.get("moe_layer_freq"))  # fmt: skip
    keys.note("layers with an indexer", some(sum(sparse), L), "key layer_types or its older form")
    keys.note("layers with experts", some(sum(routed), L), "key mlp_layer_types or moe_layer_freq")
    plain = dense(keys, keys.count("dense_intermediate_size", "F of dense layers"))
    feeds = [experts_of(keys, L, i) if r else plain for i, r in enumerate(routed)]
    norms = block_norms(keys)
    return [(indexed if s else whole, ffn, norms) for s, ffn in zip(sparse, feeds, strict=True)]


def _flags(
    keys: Keys, L: int, key: str, words: tuple[str, str], older: str, flags: Any
) -> list[bool]:
    """Read which layers have a trait: by words, or by an older list of a 0 or 1 for each.

    One of them has to be there: that no layer has it, or each, is no published model.
    """
    said = keys.words(key, L)
    if said is not None:
        if set(said) - set(words):
            raise keys.fail(f"{key} has other words than {words[0]} and {words[1]}")
        return [w == words[1] for w in said]
    if flags is None:
        raise keys.fail(f"{key} is missing, and {older} as well", "Add one of them.")
    if not is_list(flags) or len(flags) != L or any(f not in (0, 1) for f in flags):
        raise keys.fail(f"{older} is not a list of a 0 or 1 for each of the {L} layers")
    return [f == 1 for f in flags]


def _refuse_blocks(keys: Keys, index: dict[str, Any], sparse: list[bool]) -> None:
    """Refuse what the class ignores or does otherwise than its formulas say."""
    inner = "sparse_attention_config"
    if index.get("use_sparse_attention") is False and any(sparse):
        raise keys.fail(f"{inner} switches off the indexers that it describes")
    values = index.get("sparse_disable_index_value")
    if is_list(values) and any(s and not v for s, v in zip(sparse, values, strict=False)):
        raise keys.refuse("values of the indexer", f"{inner}.sparse_disable_index_value")
    if index.get("sparse_init_block") not in (None, 0):
        raise keys.refuse("first blocks that stay in view", f"{inner}.sparse_init_block")
    if _index_count(keys, index, "index_local_blocks", "sparse_local_block", 0) == 0:
        raise keys.refuse("a choice without the open block", f"{inner}.sparse_local_block")
    if keys.config.get("use_qk_norm") is False:
        raise keys.refuse("keys without norms", "use_qk_norm")
    if keys.config.get("qk_norm_type") not in (None, "per_head"):
        raise keys.refuse("norms that are not a head wide", "qk_norm_type")
    if keys.config.get("n_shared_experts") not in (None, 1):
        raise keys.refuse("another number of shared experts than one", "n_shared_experts")
    wide = keys.config.get("moe_intermediate_size")
    if wide is not None and wide != keys.config.get("intermediate_size"):
        raise keys.fail("moe_intermediate_size is not intermediate_size, which the class reads")


def _index_count(keys: Keys, index: dict[str, Any], key: str, older: str, least: int = 1) -> int:
    """Read a number of the indexer, under the older name in sparse_attention_config first."""
    if older not in index:
        return keys.count(key, key, least)
    number = keys.number(older, index[older], least)
    keys.note(key, number, f"key sparse_attention_config.{older}")
    return number


def _gemma3n(keys: Keys, D: int, L: int) -> list[Layer]:
    """The last layers read the keys and values of the last one of their kind before them."""
    whole = attention(keys, D)
    kinds = layer_kinds(keys, L)
    shares = _sharing(keys, kinds)
    widths = keys.counts("intermediate_size", L, 1) or [keys.count("intermediate_size", "F")] * L
    keys.note("F", widths[0] if len(set(widths)) == 1 else "per layer", "key intermediate_size")
    if keys.config.get("activation_sparsity_pattern") is not None:
        keys.note("activation_sparsity_pattern", "in the config",
                  "not read: zeros of activations are multiplied as well")  # fmt: skip
    norms = block_norms(keys)
    return [
        (replace(see(whole, kind), shares=s), dense(keys, F), norms)
        for kind, s, F in zip(kinds, shares, widths, strict=True)
    ]


def _gemma4(keys: Keys, D: int, L: int) -> list[Layer]:
    """Layers that see everything have wider heads, fewer of them, and may have no values.

    The last layers may read the keys and values of others, and be twice as wide for it.
    """
    if keys.config.get("use_bidirectional_attention") == "all":
        raise keys.refuse("attention both ways", "use_bidirectional_attention")
    near = attention(keys, D)
    kinds = layer_kinds(keys, L)
    if kinds[-1][0] != "full":
        kinds[-1] = ("full", None)
        keys.note("last layer", "full", f"class {keys.kind}, whatever layer_types says")
    _saved_heads(keys, kinds)
    far = replace(near, H=keys.count("global_head_dim", "H of full layers"))
    if keys.flag(("attention_k_eq_v", False), "values are keys"):
        K = keys.optional("num_global_key_value_heads", "K of full layers")
        far = replace(far, K=K if isinstance(K, int) else near.K, value_is_key=True)
        if far.N % far.K:
            raise keys.fail(f"{far.N} query heads cannot share {far.K} key/value heads")
    shares = _sharing(keys, kinds)
    narrow = dense(keys)
    doubled = any(shares) and keys.flag(("use_double_wide_mlp", False), "F doubled where shared")
    wide = replace(narrow, F=2 * narrow.F) if doubled else narrow
    norms = block_norms(keys)
    if keys.flag(("enable_moe_block", False), "experts beside the MLP"):
        # Three norms more, a scale of the router's input, and one of each expert.
        near, far = (replace(m, extra=m.extra + D) for m in (near, far))
        narrow = wide = _beside(keys, narrow, any(shares))
        norms += 3
    return [
        (replace(far if kind[0] == "full" else see(near, kind), shares=s), wide if s else narrow,
         norms)
        for kind, s in zip(kinds, shares, strict=True)
    ]  # fmt: skip


def _beside(keys: Keys, mlp: MLP, shares: bool) -> Experts:
    """Read experts beside an MLP that every token takes, as one that all of them share."""
    if shares:
        raise keys.refuse("experts in layers that read the cache of others", "num_kv_shared_layers")
    return Experts(
        F=keys.count("moe_intermediate_size", "F of an expert"), E=keys.count("num_experts", "E"),
        k=keys.count("top_k_experts", "k"), shared=mlp.F, router_bias=True,
    )  # fmt: skip


SAVED = {
    "head_dim": ("global_head_dim", "H of full layers"),
    "num_key_value_heads": ("num_global_key_value_heads", "K of full layers"),
}
"""Keys of per_layer_config, what they are called in published files, and what they mean."""


def _saved_heads(keys: Keys, kinds: list[Kind]) -> None:
    """Read what transformers saves of the full layers: one by one what differs from the others."""
    saved = keys.config.get("per_layer_config")
    if saved is None:
        return
    full = [str(i) for i, (kind, _) in enumerate(kinds) if kind == "full"]
    layers: list[Any] = list(saved.values()) if is_map(saved) else [None]
    said: Any = layers[0] if layers else {}
    alike = is_map(said) and all(one == said for one in layers)
    if not alike or set(said) - set(SAVED) or (said and set(saved) != set(full)):
        raise keys.fail("per_layer_config gives layers dimensions of their own",
                        "Read the config.json as it was published.")  # fmt: skip
    for key, (published, meaning) in SAVED.items():
        same = {published: said.get(key, keys.find(key)[1])}
        if same[published] is not None and keys.config.get(published) in (None, same[published]):
            keys.config = keys.config | same
            keys.note(meaning, same[published], "key per_layer_config")
        elif same[published] is not None:
            raise keys.fail(f"per_layer_config and {published} differ", "Keep one of them.")


def _sharing(keys: Keys, kinds: list[Kind]) -> list[bool]:
    """Tell which layers read the keys and values of an earlier one: the last ones."""
    L = len(kinds)
    last = keys.count("num_kv_shared_layers", "layers that share", 0, most=L)
    if set(kinds[: L - last]) != set(kinds):
        raise keys.fail(f"no layer makes the keys that the last {last} read")
    return [i >= L - last for i in range(L)]


LLADA: dict[str, tuple[str | bool, str]] = {
    "block_type": ("llama", "another kind of block"),
    "layer_norm_type": ("rms", "another kind of norm"),
    "rope": (True, "other positions than rotary ones"),
}
"""Keys that have to be there, the value that is modelled, and what another one is."""


def _llada(keys: Keys, D: int, L: int) -> list[Layer]:
    """Blocks of a Llama, which a key chooses among others."""
    for key, (modelled, other) in LLADA.items():
        if key not in keys.config:
            raise keys.missing(key)
        if keys.config[key] != modelled:
            raise keys.refuse(other, key)
        keys.note(key, modelled, f"key {key}")
    if keys.config.get("activation_type", "silu") != "silu":
        raise keys.refuse("another activation", "activation_type")
    if keys.config.get("layer_norm_with_affine") is False:
        raise keys.refuse("norms without weights", "layer_norm_with_affine")
    return plain_layers(keys, D, L)


LAYOUTS: dict[Layout, Callable[[Keys, int, int], list[Layer]]] = {
    "blocks": _blocks, "compressed": _compressed, "gemma3n": _gemma3n, "gemma4": _gemma4,
    "indexed": _indexed, "llada": _llada,
}  # fmt: skip
"""What makes the layers of a class."""


def residual_of(keys: Keys) -> Residual | None:
    """Read what surrounds the layers, for the classes that have such."""
    match keys.family.layout:
        case "compressed":
            from .residual import Residual

            return Residual(streams=keys.count("hc_mult", "residual streams"))
        case "gemma3n":
            from .residual import Residual

            return Residual(
                altup=keys.count("altup_num_inputs", "streams of AltUp"),
                laurel=keys.count("laurel_rank", "rank of LAuReL"),
                width=keys.count(WIDTH, "width of a layer's embedding"),
                rows=keys.count(ROWS, "rows of a layer's embedding"),
            )
        case "gemma4":
            width = keys.optional(WIDTH, "width of a layer's embedding", 0)
            if isinstance(width, Absent) or not width:
                return None
            from .residual import Residual

            return Residual(width=width, rows=keys.count(ROWS, "rows of a layer's embedding"))
        case _:
            return None


WIDTH, ROWS = "hidden_size_per_layer_input", "vocab_size_per_layer_input"
