"""What each Hugging Face class adds to the numbers of its config.json: one row a model_type.

Source: the classes and configuration defaults of transformers 5.24.0 (src/transformers/models); of
types that it lacks, the modeling files beside the checkpoints.
"""

from __future__ import annotations

from dataclasses import replace

from .configkeys import Default, Family, Flag, Routed

ATTENTION_BIAS: Flag = ("attention_bias", False)
MLP_BIAS: Flag = ("mlp_bias", False)
USE_BIAS: Flag = ("use_bias", False)

_LLAMA = {
    "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32, "vocab_size": 32000,
}  # fmt: skip
_MISTRAL = _LLAMA | {"intermediate_size": 14336, "num_key_value_heads": 8}
_QWEN = _LLAMA | {
    "intermediate_size": 22016, "vocab_size": 151936, "num_key_value_heads": 32,
}  # fmt: skip
_NO_WINDOW: dict[str, Default] = {"sliding_window": None}
_ONE_SHARED: dict[str, Default] = {"n_shared_experts": 1}
_FIRST = Routed("first", shared="count")
_LATENT: dict[str, Default] = {
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128,
    "v_head_dim": 128,
}  # fmt: skip
_BIASES = Family(qkv_bias=ATTENTION_BIAS, out_bias=ATTENTION_BIAS)
_ALL_BIASES = replace(_BIASES, mlp_bias=MLP_BIAS)
_GPT = Family(
    norm="layer", tied=True, qkv_bias=True, out_bias=True, mlp_bias=True, gated=False,
    multiple=4, learned_positions=True,
    refuses={"add_cross_attention": "attention to an encoder"},
)  # fmt: skip

FAMILIES: dict[str, Family] = {
    "afmoe": replace(
        _BIASES, norms=4, qk_norm="head", gate="width", sight="pattern",
        period=("global_attn_every_n_layers", 4), experts=Routed("dense", shared="count",
        router_bias=True), defaults={"num_dense_layers": 1, "n_shared_experts": 2,
        "sliding_window": 1024, "head_dim": 128}
    ),
    # Two scalars of the activation (xIELU) are learned in each layer.
    "apertus": replace(_ALL_BIASES, gated=False, qk_norm="head", more=2),
    "arcee": replace(_ALL_BIASES, gated=False),
    "baichuan": Family(),
    "bloom": Family(
        norm="layer", first_norm=True, tied=True, qkv_bias=True, out_bias=True, mlp_bias=True,
        gated=False, multiple=4
    ),
    "chatglm": Family(
        qkv_bias=("add_qkv_bias", False), out_bias=("add_bias_linear", False),
        mlp_bias=("add_bias_linear", False), heads="chatglm",
        refuses={"pre_seq_len": "a prefix encoder"}
    ),
    "codegen": Family(
        norm="layer", norms=1, parallel=True, mlp_bias=True, head_bias=True, gated=False,
        multiple=4
    ),
    "cohere": replace(
        _BIASES, norm="layer-no-bias", norms=1, parallel=True, tied=True, qk_norm="width",
        qk_norm_if=("use_qk_norm", False)
    ),
    "cohere2": replace(
        _BIASES, norm="layer-no-bias", norms=1, parallel=True, tied=True, sight="pattern",
        period=("sliding_window_pattern", 4), defaults={"sliding_window": 4096}
    ),
    "cwm": Family(
        mlp_bias=MLP_BIAS, sight="types", defaults={"sliding_window": 8192, "head_dim": 128}
    ),
    "deepseek": replace(
        _BIASES, experts=_FIRST, defaults={"first_k_dense_replace": 0, "n_shared_experts": None}
    ),
    "deepseek_v2": replace(
        _ALL_BIASES, latent=True, experts=_FIRST, defaults=_LATENT | {"first_k_dense_replace": 0,
        "n_shared_experts": 2}
    ),
    "deepseek_v3": replace(
        _BIASES, latent=True, experts=_FIRST, defaults=_LATENT | _ONE_SHARED |
        {"first_k_dense_replace": 3}
    ),
    "diffllama": replace(_ALL_BIASES, lambdas=True),
    "dots1": replace(
        _BIASES, qk_norm="head", sight="late", experts=_FIRST, defaults={"first_k_dense_replace":
        0, "n_shared_experts": None, "sliding_window": 4096, "max_window_layers": 62}
    ),
    "ernie4_5": Family(
        tied=True, qkv_bias=USE_BIAS, out_bias=USE_BIAS, mlp_bias=USE_BIAS, defaults={"head_dim":
        128}
    ),
    "ernie4_5_moe": Family(
        tied=True, qkv_bias=USE_BIAS, out_bias=USE_BIAS, mlp_bias=USE_BIAS,
        experts=Routed("interval", shared="count", router_bias=True), defaults={"n_shared_experts":
        2, "moe_layer_start_index": 1, "moe_layer_interval": 1}
    ),
    "exaone4": Family(
        qk_norm="head", sight="letters", period=("sliding_window_pattern", 4),
        defaults={"sliding_window": 4096}
    ),
    "falcon": Family(
        norm="layer", tied=True, qkv_bias=("bias", False), out_bias=("bias", False),
        mlp_bias=("bias", False), gated=False, heads="falcon", multiple=4,
        parallel=("parallel_attn", True), layout="falcon"
    ),
    "flex_olmo": replace(
        _BIASES, qk_norm="width", experts=Routed("all", width="intermediate_size")
    ),
    "gemma": replace(
        _BIASES, tied=True, defaults={"head_dim": 256}, nested={"vocab_size": 256000}
    ),
    "gemma2": replace(
        _BIASES, norms=4, tied=True, sight="alternate", defaults={"sliding_window": 4096,
        "head_dim": 256}, nested={"vocab_size": 256000}
    ),
    "gemma3_text": replace(
        _BIASES, norms=4, tied=True, qk_norm="head", sight="pattern",
        period=("sliding_window_pattern", 6), defaults={"sliding_window": 4096, "head_dim": 256},
        nested={"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4,
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26},
        refuses={"use_bidirectional_attention": "attention both ways"}
    ),
    "gemma4_text": replace(
        _BIASES, norms=4, tied=True, qk_norm="head", sight="types", layout="gemma4",
        defaults={"sliding_window": 512, "head_dim": 256, "global_head_dim": 512},
        refuses={"enable_moe_block": "a dense layer beside the experts of a layer"}
    ),
    "glm": Family(qkv_bias=("attention_bias", True), defaults={"head_dim": 128}),
    "glm4": Family(norms=4, qkv_bias=("attention_bias", True), defaults={"head_dim": 128}),
    "glm4_moe": Family(
        qkv_bias=ATTENTION_BIAS, qk_norm="head", qk_norm_if=("use_qk_norm", False), experts=_FIRST,
        defaults=_ONE_SHARED | {"first_k_dense_replace": 1}
    ),
    "glm4_moe_lite": replace(
        _BIASES, latent=True, experts=_FIRST, defaults=_ONE_SHARED | {"first_k_dense_replace": 1,
        "q_lora_rank": 768, "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 192,
        "v_head_dim": 256}
    ),
    "gpt2": _GPT,
    "gpt_bigcode": Family(
        norm="layer", tied=True, qkv_bias=True, out_bias=True, mlp_bias=True, gated=False,
        heads="gpt_bigcode", multiple=4, learned_positions=True,
        refuses={"add_cross_attention": "attention to an encoder"}
    ),
    # Two norms though it is parallel: each branch has its own.
    "gpt_neox": Family(
        norm="layer", qkv_bias=("attention_bias", True), out_bias=("attention_bias", True),
        mlp_bias=True, gated=False, parallel=("use_parallel_residual", True)
    ),
    "gpt_oss": Family(
        qkv_bias=("attention_bias", True), out_bias=("attention_bias", True), sight="alternate",
        sinks=True, experts=Routed("all", width="intermediate_size", bias=True, router_bias=True),
        defaults={"sliding_window": 128, "head_dim": 64}
    ),
    "gptj": Family(
        norm="layer", norms=1, parallel=True, mlp_bias=True, head_bias=True, gated=False,
        multiple=4
    ),
    "granite": _ALL_BIASES,
    "granitemoe": replace(_BIASES, experts=Routed("all", width="intermediate_size")),
    "helium": Family(qkv_bias=ATTENTION_BIAS, mlp_bias=MLP_BIAS, defaults={"head_dim": 128}),
    "hunyuan": replace(
        _ALL_BIASES, qk_norm="head", qk_norm_if=("use_qk_norm", False), layout="hunyuan",
        experts=Routed("all", width="intermediate_size", shared="count"),
        refuses={"use_mla": "its own latent attention", "moe_layer_num_skipped": "dense layers"}
    ),
    "hunyuan_v1_dense": replace(
        _BIASES, qk_norm="head", refuses={"use_cla": "keys and values shared between layers"}
    ),
    "hunyuan_v1_moe": replace(
        _BIASES, qk_norm="head", experts=Routed("all", width="intermediate_size", shared="one"),
        refuses={"use_cla": "keys and values shared between layers"}
    ),
    "hy_v3": replace(
        _ALL_BIASES, qk_norm="head", experts=_FIRST, defaults=_ONE_SHARED |
        {"first_k_dense_replace": 1, "head_dim": 128}
    ),
    "hyperclovax": replace(_ALL_BIASES, norms_if=("use_post_norm", True, 4)),
    "internlm2": Family(qkv_bias=("bias", True), out_bias=("bias", True)),
    "jais2": Family(
        norm="layer", qkv_bias=("attention_bias", True), out_bias=("attention_bias", True),
        mlp_bias=("mlp_bias", True), gated=False
    ),
    "laguna": Family(
        qkv_bias=ATTENTION_BIAS, qk_norm="head", sight="types", layout="laguna",
        experts=Routed("first", shared="width", router_bias=True),
        defaults={"first_k_dense_replace": 1, "sliding_window": 512, "head_dim": 128,
        "shared_expert_intermediate_size": 512}
    ),
    "llama": replace(_ALL_BIASES, nested={**_LLAMA}),
    "llama4_text": replace(
        _BIASES, sight="rope", layout="llama4", experts=Routed("listed", width="intermediate_size",
        shared="one"), defaults={"attention_chunk_size": 8192, "interleave_moe_layer_step": 1,
        "head_dim": 128}
    ),
    "longcat_flash": replace(
        _BIASES, latent=True, layout="longcat", experts=Routed("all"), defaults=_LATENT |
        {"zero_expert_num": 256}
    ),
    "minicpm": Family(tied=True, experts=Routed("optional", width="intermediate_size")),
    "minicpm3": replace(
        _ALL_BIASES, latent=True, tied=True, defaults={"q_lora_rank": 768, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    ),
    "minimax_m2": Family(
        qk_norm="width", experts=Routed("all", width="intermediate_size"), defaults={"head_dim":
        128}
    ),
    "ministral": Family(sight="types", defaults={"sliding_window": 4096}),
    "ministral3": Family(sight="window", defaults=_NO_WINDOW | {"head_dim": 128}),
    "mistral": Family(sight="window", defaults={"sliding_window": 4096}, nested={**_MISTRAL}),
    "mistral4": replace(
        _BIASES, latent=True, experts=_FIRST, defaults=_ONE_SHARED | {"first_k_dense_replace": 0,
        "q_lora_rank": 1024, "kv_lora_rank": 256, "qk_rope_head_dim": 64, "qk_nope_head_dim": 64,
        "v_head_dim": 128}
    ),
    "mixtral": Family(
        sight="window", experts=Routed("all", width="intermediate_size"), defaults=_NO_WINDOW
    ),
    "mpt": Family(
        norm="layer-no-bias", tied=True, gated=False, multiple=4,
        refuses={"attn_config.qk_ln": "norms on queries and keys",
                 "attn_config.kv_n_heads": "grouped heads, which the class ignores"}
    ),
    "nanochat": replace(_BIASES, norm="none", gated=False),
    "nemotron": replace(_ALL_BIASES, norm="layer", gated=False),
    "nemotron-nas": replace(_ALL_BIASES, layout="nas"),
    "olmo": replace(_BIASES, norm="none"),
    "olmo2": replace(_BIASES, qk_norm="width"),
    "olmo3": replace(
        _BIASES, qk_norm="width", sight="pattern", period=("sliding_window_pattern", 4),
        defaults={"sliding_window": 4096}
    ),
    "olmoe": replace(_BIASES, qk_norm="width", experts=Routed("all", width="intermediate_size")),
    # The first two rows belong to padding.
    "opt": Family(
        norm="layer", tied=True, qkv_bias=("enable_bias", True), out_bias=("enable_bias", True),
        mlp_bias=("enable_bias", True), gated=False, learned_positions=True,
        extra_positions=2, narrow_embedding=True, final_norm=("do_layer_norm_before", True),
        refuses={"_remove_final_layer_norm": "no final norm"}
    ),
    "orion": replace(_BIASES, norm="layer"),
    "phi": Family(
        norm="layer", norms=1, parallel=True, qkv_bias=True, out_bias=True, mlp_bias=True,
        head_bias=True, gated=False, refuses={"qk_layernorm": "norms with biases on keys"}
    ),
    "phi3": Family(sight="window", head_bias=("lm_head_bias", False), defaults=_NO_WINDOW),
    "phimoe": replace(
        _BIASES, norm="layer", head_bias=("lm_head_bias", False), sight="window",
        experts=Routed("all", width="intermediate_size"), defaults=_NO_WINDOW
    ),
    # The first Qwen counts both halves of its gated layer as intermediate_size.
    "qwen": Family(qkv_bias=True, halved=True),
    "qwen2": Family(
        qkv_bias=True, sight="switch", nested={**_QWEN}, defaults={"sliding_window": 4096,
        "max_window_layers": 28}
    ),
    "qwen2_moe": Family(
        qkv_bias=("qkv_bias", True), sight="odd", experts=Routed("step", shared="width",
        shared_gate=True), defaults={"sliding_window": 4096, "max_window_layers": 28}
    ),
    "qwen3": replace(
        _BIASES, qk_norm="head", sight="switch", defaults={"head_dim": 128, "sliding_window": 4096,
        "max_window_layers": 28}
    ),
    "qwen3_moe": replace(
        _BIASES, qk_norm="head", sight="odd", experts=Routed("step"), defaults={"sliding_window":
        4096}
    ),
    "sarvam_mla": replace(
        _BIASES, latent=True, experts=_FIRST, defaults=_LATENT | _ONE_SHARED | {"q_lora_rank":
        None, "first_k_dense_replace": 1}
    ),
    "seed_oss": Family(
        qkv_bias=("attention_bias", True), out_bias=("attention_out_bias", False),
        mlp_bias=MLP_BIAS, defaults={"head_dim": 128}
    ),
    "smollm3": replace(_ALL_BIASES, tied=True, sight="odd", defaults=_NO_WINDOW),
    "solar_open": Family(
        qkv_bias=ATTENTION_BIAS, experts=_FIRST,
        defaults=_ONE_SHARED | {"first_k_dense_replace": 0, "head_dim": 128}
    ),
    "stablelm": Family(
        norm="layer", qkv_bias=("use_qkv_bias", False), qk_norm="width",
        qk_norm_if=("qk_layernorm", False), parallel=("use_parallel_residual", False),
        norms_if=("use_parallel_residual", False, 1)
    ),
    "starcoder2": Family(
        norm="layer", tied=True, qkv_bias=("use_bias", True), out_bias=("use_bias", True),
        mlp_bias=("use_bias", True), gated=False, sight="window", defaults=_NO_WINDOW
    ),
    "youtu": replace(_ALL_BIASES, latent=True, tied=True, defaults=_LATENT),
}  # fmt: skip
"""Rows by model_type."""

NEEDS_HEADS = frozenset((
    "cwm", "dots1", "ernie4_5", "ernie4_5_moe", "exaone4", "gemma", "gemma2", "gemma3_text",
    "gemma4_text", "glm", "glm4", "glm4_moe", "gpt_oss", "helium", "hy_v3", "laguna",
    "llama4_text", "minimax_m2", "ministral", "ministral3", "mistral", "mixtral", "phimoe",
    "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "seed_oss", "smollm3", "solar_open", "stablelm",
    "starcoder2",
))  # fmt: skip
"""Rows whose class default of num_key_value_heads is that of one size: the key must be there."""

SAME: dict[str, str] = {
    "code_llama": "llama", "gemma3": "gemma3_text", "gemma4": "gemma4_text",
    "gpt_oss_text": "gpt_oss", "kimi_k2": "deepseek_v3", "llama4": "llama4_text",
    "mimo": "qwen2", "phi4": "phi3", "qwen2_5_vl": "qwen2", "qwen2_5_vl_text": "qwen2",
    "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3", "yi": "llama",
}  # fmt: skip
"""Types whose layers are those of another row."""

_STATE = "layers that keep a recurrent state (state-space or linear attention)"
_INDEXER = "the indexer of a sparse attention, which keeps keys of its own"
_PER_LAYER = "embedding tables of each layer"
_TWO_PARTS = "an encoder beside the decoder"
REFUSED: dict[str, str] = dict.fromkeys(
    (
        "bailing_hybrid", "bamba", "falcon_h1", "falcon_mamba", "granitemoehybrid", "jamba",
        "kimi_linear", "lfm2", "lfm2_moe", "mamba", "mamba2", "minimax", "minimax_m1",
        "minimax_text_01", "nemotron_h", "olmo_hybrid", "qwen3_5", "qwen3_5_moe",
        "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next", "recurrent_gemma", "rwkv", "xlstm",
        "zamba", "zamba2",
    ),
    _STATE,
) | dict.fromkeys(
    (
        "deepseek_v32", "glm_moe_dsa", "minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text",
        "mistral_large4", "mistral_large4_text",
    ),
    _INDEXER,
) | dict.fromkeys(("gemma3n", "gemma3n_text"), _PER_LAYER) | dict.fromkeys(
    ("bart", "marian", "mbart", "mt5", "pegasus", "t5", "whisper"), _TWO_PARTS
) | dict.fromkeys(
    ("bert", "deberta", "distilbert", "modernbert", "roberta"), "attention both ways"
) | {
    "deepseek_v4": "compressed sparse attention and hyper-connections",
    "doge": "dynamic masks and experts of one row each",
    "dream": "decoding by diffusion",
    "jetmoe": "a mixture of attention heads, each token choosing among projections",
    "llada": "decoding by diffusion",
    "zaya": "convolutions over compressed keys and values (CCA)",
}  # fmt: skip
"""Types that are known and not modelled, and what stands in the way."""

LAYERS_REFUSED: dict[str, str] = {
    "conv": _STATE, "hybrid": _STATE, "linear_attention": _STATE, "mamba": _STATE,
    "recurrent": _STATE, "indexed_attention": _INDEXER,
}  # fmt: skip
"""Words of layer_types that are known and not modelled."""
