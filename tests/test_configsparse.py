"""Configs with indexers, compressed or shared caches, several streams, and of diffusion models.

Expected figures: the full-size classes on the meta device, transformers 5.24.0, but for LLaDA and
Hunyuan-Large (their published modeling code); the schedule of DeepSeek-V4-Pro is that of its
technical report, section 4.2.1. The configs are the keys that matter and their published values.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from rooflm.calc.errors import RooflmError
from rooflm.calc.huggingface import model_of_config
from rooflm.calc.model import (
    Model,
    active_parameters,
    cache_elements,
    growing_elements,
    ledger,
    parameters,
    streamed_parameters,
    token_elements,
    total_parameters,
)
from rooflm.calc.passes import Segment


class Figures(NamedTuple):
    """What a model is known to have [1]."""

    total: int
    active: int
    streamed: int
    cache: float
    """Elements of a token at a short context, of all layers, as the reference keeps them."""
    growth: float
    """Elements that a further token adds beyond all windows, on average."""


def windows(near: int, count: int) -> list[str]:
    """List layer types: after `near` layers with a window one that sees everything."""
    return [*["sliding_attention"] * near, "full_attention"] * count


LATENT = {
    "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
}  # fmt: skip
GLM: dict[str, Any] = {
    "model_type": "glm_moe_dsa", "hidden_size": 6144, "intermediate_size": 12288,
    "num_hidden_layers": 78, "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size":
    154880, "q_lora_rank": 2048, "kv_lora_rank": 512, "qk_nope_head_dim": 192, "qk_rope_head_dim":
    64, "v_head_dim": 256, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "moe_intermediate_size": 2048, "first_k_dense_replace": 3, "index_n_heads": 32,
    "index_head_dim": 128, "index_topk": 2048,
}  # fmt: skip
FLASH: dict[str, Any] = {
    "model_type": "deepseek_v4", "hidden_size": 4096, "num_hidden_layers": 43,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "vocab_size": 129280,
    "q_lora_rank": 1024, "sliding_window": 128, "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
    "o_groups": 8, "o_lora_rank": 1024, "hc_mult": 4, "index_n_heads": 64, "index_head_dim": 128,
    "index_topk": 512, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6,
    "moe_intermediate_size": 2048, "num_hash_layers": 3, "num_nextn_predict_layers": 1,
}  # fmt: skip
PRO: dict[str, Any] = FLASH | {
    "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128, "q_lora_rank": 1536,
    "compress_ratios": [128, 128, *[4, 128] * 29, 4, 0], "o_groups": 16, "index_topk": 1024,
    "n_routed_experts": 384, "moe_intermediate_size": 3072,
}  # fmt: skip
LATER = [0] * 3 + [1] * 57
MINIMAX: dict[str, Any] = {
    "model_type": "minimax_m3", "hidden_size": 6144, "intermediate_size": 3072,
    "dense_intermediate_size": 12288, "shared_intermediate_size": 3072, "num_hidden_layers": 60,
    "num_attention_heads": 64, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 200064,
    "num_local_experts": 128, "num_experts_per_tok": 4, "n_shared_experts": 1, "moe_layer_freq":
    LATER, "use_qk_norm": True, "qk_norm_type": "per_head", "sparse_attention_config":
    {"use_sparse_attention": True, "sparse_attention_freq": LATER, "sparse_disable_index_value":
    LATER, "sparse_block_size": 128, "sparse_index_dim": 128, "sparse_init_block": 0,
    "sparse_local_block": 1, "sparse_num_index_heads": 4, "sparse_topk_blocks": 16},
}  # fmt: skip
GEMMA3N: dict[str, Any] = {
    "model_type": "gemma3n_text", "hidden_size": 2048, "intermediate_size": [8192] * 30,
    "num_hidden_layers": 30, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 256,
    "vocab_size": 262400, "vocab_size_per_layer_input": 262144, "hidden_size_per_layer_input": 256,
    "sliding_window": 512, "layer_types": windows(4, 6), "num_kv_shared_layers": 10,
    "altup_num_inputs": 4, "laurel_rank": 64, "tie_word_embeddings": True,
}  # fmt: skip
GEMMA4: dict[str, Any] = {
    "model_type": "gemma4_text", "hidden_size": 1536, "intermediate_size": 6144,
    "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1, "head_dim": 256,
    "global_head_dim": 512, "vocab_size": 262144, "vocab_size_per_layer_input": 262144,
    "hidden_size_per_layer_input": 256, "sliding_window": 512, "layer_types": windows(4, 7),
    "num_kv_shared_layers": 20, "use_double_wide_mlp": True, "attention_k_eq_v": False,
    "num_global_key_value_heads": None, "enable_moe_block": False,
}  # fmt: skip
LLADA: dict[str, Any] = {
    "model_type": "llada", "d_model": 4096, "n_heads": 32, "n_kv_heads": 32, "n_layers": 32,
    "mlp_hidden_size": 12288, "include_bias": False, "include_qkv_bias": False, "weight_tying":
    False, "vocab_size": 126464, "embedding_size": 126464, "block_type": "llama",
    "layer_norm_type": "rms", "rope": True,
}  # fmt: skip
DREAM: dict[str, Any] = {
    "model_type": "Dream", "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers":
    28, "num_attention_heads": 28, "num_key_value_heads": 4, "vocab_size": 152064,
    "tie_word_embeddings": False, "use_sliding_window": False,
}  # fmt: skip
HUNYUAN: dict[str, Any] = {
    "model_type": "hunyuan", "hidden_size": 6400, "num_hidden_layers": 64, "num_attention_heads":
    80, "num_key_value_heads": 8, "attention_head_dim": 80, "intermediate_size": 18304,
    "num_experts": 16, "moe_topk": 1, "num_shared_expert": 1, "use_mixed_mlp_moe": True, "use_cla":
    True, "cla_share_factor": 2, "use_qk_norm": True, "vocab_size": 128512, "tie_word_embeddings":
    True,
}  # fmt: skip

FACTS: dict[str, tuple[dict[str, Any], Figures]] = {
    # https://huggingface.co/deepseek-ai/DeepSeek-V3.2
    "DeepSeek-V3.2": (
        {"model_type": "deepseek_v32", "hidden_size": 7168, "intermediate_size": 18432,
        "num_hidden_layers": 61, "num_attention_heads": 128, "num_key_value_heads": 128,
        "vocab_size": 129280, "q_lora_rank": 1536, **LATENT, "n_routed_experts": 256,
        "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
        "first_k_dense_replace": 3, "moe_layer_freq": 1, "index_n_heads": 64, "index_head_dim":
        128, "index_topk": 2048},
        Figures(671_877_929_216, 38_403_807_488, 37_477_128_448, 42_944, 42_944),
    ),
    # https://huggingface.co/zai-org/GLM-5
    "GLM-5": (GLM, Figures(743_911_199_232, 41_784_709_632, 40_833_126_912, 54_912, 54_912)),
    # https://huggingface.co/deepseek-ai/DeepSeek-V4-Flash
    "DeepSeek-V4-Flash": (
        FLASH, Figures(284_332_230_231, 13_799_622_231, 13_270_091_351, 5_488, 3_440)
    ),
    # In the reference windows beside entries are no tokens that grow: 30 * 160 + 31 * 4.
    "DeepSeek-V4-Pro": (
        PRO, Figures(1_572_997_179_491, 49_779_058_787, 48_852_379_747, 4_924, 4_924)
    ),
    # https://huggingface.co/MiniMaxAI/MiniMax-M3
    "MiniMax-M3": (
        MINIMAX, Figures(426_174_565_632, 25_962_466_560, 24_733_273_344, 68_736, 68_736)
    ),
    # https://huggingface.co/google/gemma-3n-E2B
    "gemma-3n-E2B": (
        GEMMA3N, Figures(4_435_182_688, 4_435_182_688, 2_421_916_768, 20_480, 4_096)
    ),
    # https://huggingface.co/google/gemma-4-E2B
    "gemma-4-E2B": (
        {"model_type": "gemma4", "text_config": GEMMA4},
        Figures(4_628_569_344, 4_628_569_344, 2_279_759_104, 9_216, 3_072),
    ),
    # https://huggingface.co/google/gemma-4-E4B
    "gemma-4-E4B": (
        GEMMA4 | {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 42,
        "num_key_value_heads": 2, "layer_types": windows(5, 7), "num_kv_shared_layers": 18,
        "use_double_wide_mlp": False},
        Figures(7_463_013_376, 7_463_013_376, 4_644_441_088, 28_672, 8_192),
    ),
    # https://huggingface.co/GSAI-ML/LLaDA-8B-Base
    "LLaDA-8B": (LLADA, Figures(8_015_581_184, 8_015_581_184, 7_497_584_640, 262_144, 262_144)),
    # https://huggingface.co/Dream-org/Dream-v0-Base-7B, which has the shapes of Qwen2-7B
    "Dream-7B": (DREAM, Figures(7_615_616_512, 7_615_616_512, 7_070_619_136, 28_672, 28_672)),
    # https://huggingface.co/tencent/Tencent-Hunyuan-Large
    "Hunyuan-Large": (
        HUNYUAN, Figures(388_698_128_640, 51_318_800_640, 51_318_800_640, 40_960, 40_960)
    ),
}  # fmt: skip


def read(config: dict[str, Any]) -> Model:
    """Read plain data as a config.json."""
    return model_of_config(config, "model", "config.json")


@pytest.mark.parametrize("name", FACTS)
def test_published_configs_are_exact(name: str) -> None:
    """Parameters and cache of a published config come out to the unit."""
    config, figures = FACTS[name]
    model = read(config)
    kept = model.reference_kv_elements

    assert figures.total == total_parameters(model)
    assert figures.active == active_parameters(model)
    assert figures.streamed == streamed_parameters(model)
    assert figures.cache == (token_elements(model) if kept is None else kept)
    assert figures.growth == growing_elements(model)


def test_cache_of_deepseek_v4_at_a_million_tokens() -> None:
    """Windows of 128 tokens, entries of 4 and 128 tokens, keys and values in one, at 16 bits."""
    assert cache_elements(read(PRO), 2**20) * 2 == 10_334_371_840
    assert cache_elements(read(FLASH), 2**20) * 2 == 7_219_838_976


def test_layers_that_share_an_indexer() -> None:
    """Every fourth layer of GLM-5.2 chooses, the first two as well: 21 of 78 keep index keys."""
    model = read(GLM | {"index_topk_freq": 4})
    kinds = [g.mixer.kind for g in model.groups for _ in range(int(g.count))]

    assert (kinds.count("mla+indexer"), kinds.count("mla+choice")) == (21, 57)
    assert cache_elements(model, 1) == 78 * (512 + 64) + 21 * 128


@pytest.mark.parametrize(
    "said",
    [
        {"index_topk_freq": 3},
        {"index_topk_freq": 3, "index_skip_topk_offset": 2},
        {"index_topk_pattern": "FF" + "SSF" * 25 + "S"},
        {"indexer_types": ["full"] * 2 + ["shared", "shared", "full"] * 25 + ["shared"]},
    ],
)
def test_indexers_are_told_in_several_ways(said: dict[str, Any]) -> None:
    """A step and an offset, letters, and words say the same."""
    once = read(GLM | {"index_topk_freq": 3})

    assert read(GLM | said).groups == once.groups


@pytest.mark.parametrize("config", [GLM, FLASH, MINIMAX, GEMMA3N, GEMMA4])
def test_the_way_around_the_layers_is_in_the_ledger(config: dict[str, Any]) -> None:
    """Weights that a step reads are those that are streamed, and the rows that are gathered."""
    model = read(config)
    ops: Any = sum(op.count * op.weight_bytes for op in ledger(model, [Segment(1, 1, 99)]))
    around = model.residual
    rows = model.D + (0 if around is None else model.layers * around.width)

    assert ops == pytest.approx(2 * (streamed_parameters(model) + rows), rel=1e-12)


def test_streams_are_read_with_the_layers() -> None:
    """DeepSeek-V4 has four streams, Gemma 3n four and tables of each layer, Gemma 4 the tables."""
    four, three, last = (read(c).residual for c in (FLASH, GEMMA3N, GEMMA4))
    assert four is not None
    assert three is not None
    assert last is not None

    assert (four.streams, four.altup, four.width) == (4, 0, 0)
    assert (three.altup, three.laurel, three.width, three.rows) == (4, 64, 256, 262144)
    assert (last.altup, last.width, last.rows) == (0, 256, 262144)
    assert read(GEMMA4 | {"hidden_size_per_layer_input": 0}).residual is None


def test_diffusion_models_keep_nothing() -> None:
    """They denoise whole sequences; LLaDA's embedding has rows of its own number."""
    assert read(LLADA).denoises
    assert read(DREAM).denoises
    assert read(LLADA | {"embedding_size": 126592}).V == 126592


def test_norms_of_keys_that_a_layer_does_not_make() -> None:
    """Layers of Hunyuan-Large that read the keys of another hold a norm for them all the same."""
    parts = parameters(read(HUNYUAN))

    assert parts["qk_norm"] == 64 * 2 * 80
    assert parts["attention"] == 5_505_024_000


def nested(key: str, value: Any) -> dict[str, Any]:
    """Change a key of MiniMax-M3's indexer."""
    return {"sparse_attention_config": MINIMAX["sparse_attention_config"] | {key: value}}


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (GLM, {"q_lora_rank": None}, "q_lora_rank is null"),
        (GLM, {"indexer_types": ["shared"] * 78}, "first layer takes the choice"),
        (GLM, {"index_topk_pattern": "FXS"}, "full or shared for each of 78"),
        (GLM, {"layer_types": ["full_attention"] * 78}, "other words than indexed_attention"),
        (GLM, {"model_type": "deepseek_v32", "index_topk_freq": 4}, "layers that share an indexer"),
        (FLASH, {"compress_ratios": None}, "compress_ratios is missing"),
        (FLASH, {"compress_ratios": [4] * 42}, "an entry for each layer"),
        (FLASH, {"compress_ratios": [8] * 43}, "other numbers than 0, 4 and 128"),
        (FLASH, {"layer_types": ["full_attention"] * 43}, "unknown words"),
        (FLASH, {"num_key_value_heads": 2}, "more than one key"),
        (FLASH, {"n_shared_experts": 2}, "another number of shared experts"),
        (FLASH, {"attention_bias": True}, "biases, which the class does not have"),
        (FLASH, {"o_groups": 7}, "do not divide into 7 o_groups"),
        (FLASH, {"compress_rates": [4, 128]}, "compress_rates is not a mapping"),
        (MINIMAX, {"sparse_attention_config": None}, "layer_types is missing, and"),
        (MINIMAX, {"moe_layer_freq": None}, "mlp_layer_types is missing, and moe_layer_freq"),
        (MINIMAX, {"moe_layer_freq": 1}, "a list of a 0 or 1 for each of the 60"),
        (MINIMAX, {"moe_intermediate_size": 1}, "moe_intermediate_size is not intermediate_size"),
        (MINIMAX, {"attention_output_gate": True}, "gates on the outputs"),
        (MINIMAX, {"use_qk_norm": False}, "keys without norms"),
        (MINIMAX, {"qk_norm_type": "per_layer"}, "norms that are not a head wide"),
        (MINIMAX, {"n_shared_experts": 2}, "another number of shared experts"),
        (MINIMAX, nested("use_sparse_attention", False), "switches off"),
        (MINIMAX, nested("sparse_disable_index_value", [0] * 60), "values of the indexer"),
        (MINIMAX, nested("sparse_init_block", 1), "first blocks that stay in view"),
        (MINIMAX, nested("sparse_local_block", 0), "a choice without the open block"),
        (GEMMA3N, {"num_kv_shared_layers": 30}, "no layer makes the keys"),
        (GEMMA3N, {"layer_types": None}, "layer_types is missing"),
        (GEMMA4, {"num_kv_shared_layers": 32}, "no layer makes the keys that the last 32 read"),
        (GEMMA4, {"enable_moe_block": True}, "experts in layers that read the cache of others"),
        (GEMMA4, {"use_bidirectional_attention": "all"}, "attention both ways"),
        (LLADA, {"block_type": "sequential"}, "another kind of block"),
        (LLADA, {"layer_norm_type": "default"}, "another kind of norm"),
        (LLADA, {"rope": False}, "other positions than rotary"),
        (LLADA, {"include_bias": True}, "biases"),
        (LLADA, {"activation_type": "swiglu"}, "another activation"),
        (LLADA, {"num_experts": 64}, "experts"),
        (LLADA, {"embedding_size": None}, "embedding_size is null"),
        (DREAM, {"use_sliding_window": True}, "windows of a diffusion model"),
        ({"model_type": "mistral_large4"}, {}, "learned rotary frequencies"),
    ],
)
def test_what_is_not_modelled_is_refused_by_name(
    config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    """The error says which key, value, or part of a model stands in the way."""
    with pytest.raises(RooflmError, match=message):
        read(config | changes)


@pytest.mark.parametrize("key", ["block_type", "layer_norm_type", "rope", "embedding_size"])
def test_keys_of_llada_without_a_default_are_missed(key: str) -> None:
    """The defaults of LLaDA's class are those of another model."""
    with pytest.raises(RooflmError, match=f"{key} is missing"):
        read({k: v for k, v in LLADA.items() if k != key})


WRONG: tuple[Any, ...] = (None, "x", -1, 0, 10**30, 1.5, [1, None], [], {"a": 1}, True)


@pytest.mark.parametrize("config", [GLM, FLASH, MINIMAX, GEMMA3N, GEMMA4, LLADA])
def test_broken_configs_end_in_an_error_or_a_named_default(config: dict[str, Any]) -> None:
    """A key that is missing or wrong is refused, harmless, or told of by the provenance."""
    whole = numbers(read(config))
    for key in config:
        dropped = {k: v for k, v in config.items() if k != key}
        for changed in (dropped, *(config | {key: value} for value in WRONG)):
            try:
                model = read(changed)
            except RooflmError:
                continue
            said = " ".join(origin for _, _, origin in model.provenance)
            named = f"key {key}" in said or "class default" in said or "derived" in said
            assert numbers(model) == whole or named, (key, changed.get(key))


def numbers(model: Model) -> tuple[Any, ...]:
    """Take the numbers that depend on a config."""
    caches = (cache_elements(model, 1), cache_elements(model, 10**6))
    return total_parameters(model), active_parameters(model), *caches


@pytest.mark.parametrize(
    ("own", "saved"),
    [
        ({"global_head_dim": 512}, {"head_dim": 512}),
        ({"global_head_dim": 512, "attention_k_eq_v": True, "num_global_key_value_heads": 2},
         {"head_dim": 512, "num_key_value_heads": 2}),
        ({"global_head_dim": 256}, {}),
    ],
)  # fmt: skip
def test_gemma_4_is_read_as_transformers_saves_it(
    own: dict[str, Any], saved: dict[str, Any]
) -> None:
    """Saving by transformers 5.24.0 leaves what differs in each full layer, under its number."""
    plain = {k: v for k, v in GEMMA4.items() if k not in OWN_KEYS}
    full = [i for i, kind in enumerate(GEMMA4["layer_types"]) if kind == "full_attention"]
    layers = {str(i): saved for i in full} if saved else {}
    switch = {k: v for k, v in own.items() if k == "attention_k_eq_v"}
    again = read(plain | switch | {"per_layer_config": layers})

    assert again.groups == read(plain | own).groups
    with pytest.raises(RooflmError, match="dimensions of their own"):
        read(plain | switch | {"per_layer_config": {"0": {"head_dim": 96}}})
    if saved:
        with pytest.raises(RooflmError, match="differ"):
            read(plain | switch | {"per_layer_config": layers, "global_head_dim": 64})


OWN_KEYS = ("global_head_dim", "num_global_key_value_heads", "attention_k_eq_v")
