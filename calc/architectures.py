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
_APART = {"tie_word_embeddings": "a tied head, which the class ignores"}
_PROJECTIONS: Flag = ("mamba_proj_bias", False)
_CONVOLUTION: Flag = ("mamba_conv_bias", True)
_BOTH: Flag = ("add_bias_linear", False)
_MAMBA = Family(
    norms=1, tied=True, layout="mamba", state_bias=USE_BIAS, state_norm=False,
    conv_bias=("use_conv_bias", True),
    defaults={"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2},
)  # fmt: skip
_MAMBA_2: dict[str, Default] = {
    "mamba_n_heads": 128, "mamba_n_groups": 1, "mamba_d_state": 256, "mamba_d_conv": 4,
    "mamba_expand": 2,
}  # fmt: skip
_GATED = Family(
    qk_norm="head", gate="width", layout="delta", defaults={"head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4},
    refuses={"attention_bias": "biases of attention and its gate"},
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
    "bailing_hybrid": replace(
        _BIASES, latent=True, layout="bailing_hybrid", experts=_FIRST, defaults=_LATENT |
        _ONE_SHARED | {"q_lora_rank": None, "first_k_dense_replace": 2, "linear_head_dim":
        128, "linear_conv_kernel_dim": 4}, refuses=_APART
    ),
    "bamba": replace(
        _ALL_BIASES, layout="bamba", state_bias=_PROJECTIONS, conv_bias=_CONVOLUTION,
        defaults=_MAMBA_2
    ),
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
    "deepseek_v32": replace(
        _BIASES, latent=True, experts=_FIRST, layout="indexed", defaults=_LATENT | _ONE_SHARED |
        {"first_k_dense_replace": 3, "index_n_heads": 64, "index_head_dim": 128, "index_topk":
        2048}, refuses=dict.fromkeys(("indexer_types", "index_topk_pattern", "index_topk_freq"),
        "layers that share an indexer")
    ),
    # Scores of all experts are learned where a table chooses them as well.
    "deepseek_v4": Family(
        mlp_bias=MLP_BIAS, experts=Routed("all", shared="one"), layout="compressed",
        defaults=_ONE_SHARED | {"num_key_value_heads": 1, "head_dim": 512, "q_lora_rank": 1024,
        "sliding_window": 128, "o_groups": 8, "o_lora_rank": 1024, "index_n_heads": 64,
        "index_head_dim": 128, "index_topk": 512, "hc_mult": 4},
        refuses={"attention_bias": "biases, which the class does not have"}
    ),
    "diffllama": replace(_ALL_BIASES, lambdas=True),
    "dots1": replace(
        _BIASES, qk_norm="head", sight="late", experts=_FIRST, defaults={"first_k_dense_replace":
        0, "n_shared_experts": None, "sliding_window": 4096, "max_window_layers": 62}
    ),
    # Its projections have the biases of Qwen 2; no layer has a window.
    "dream": Family(
        qkv_bias=True, denoises=True, refuses={"use_sliding_window": "windows of a diffusion model"}
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
    "falcon_h1": replace(
        _ALL_BIASES, layout="falcon_h1", conv_bias=_CONVOLUTION,
        state_norm=("mamba_rms_norm", False), defaults=_MAMBA_2 | {"mamba_d_ssm": 1024},
        refuses=dict.fromkeys(("projectors_bias", "mamba_proj_bias"), "biases on one of two "
        "projections") | {"attn_layer_indices": "layers without attention, which the class ignores"}
    ),
    # Norms around its state have no weights.
    "falcon_mamba": _MAMBA,
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
    "gemma3n_text": replace(
        _BIASES, norms=4, tied=True, qk_norm="head", sight="types", layout="gemma3n",
        defaults={"sliding_window": 512, "head_dim": 256, "num_kv_shared_layers": 15,
        "altup_num_inputs": 4, "laurel_rank": 64, "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144},
        nested={"vocab_size": 262400, "num_attention_heads": 8, "num_key_value_heads": 2,
        "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 35}
    ),
    "gemma4_text": replace(
        _BIASES, norms=4, tied=True, qk_norm="head", sight="types", layout="gemma4",
        defaults={"sliding_window": 512, "head_dim": 256, "global_head_dim": 512,
        "num_kv_shared_layers": 0, "hidden_size_per_layer_input": 256,
        "vocab_size_per_layer_input": 262144}
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
    "glm_moe_dsa": replace(
        _BIASES, latent=True, experts=_FIRST, layout="indexed", defaults=_ONE_SHARED |
        {"first_k_dense_replace": 3, "q_lora_rank": 2048, "kv_lora_rank": 512,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 192, "v_head_dim": 256, "index_n_heads": 32,
        "index_head_dim": 128, "index_topk": 2048}
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
    "granitemoehybrid": replace(
        _BIASES, layout="bamba", experts=Routed("all", width="intermediate_size", shared="width"),
        state_bias=_PROJECTIONS, conv_bias=_CONVOLUTION, defaults=_MAMBA_2 |
        {"shared_expert_intermediate_size": 1024}
    ),
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
    "jamba": Family(
        layout="jamba", experts=Routed("all", width="intermediate_size"), state_bias=_PROJECTIONS,
        state_norm=("mamba_inner_layernorms", True), conv_bias=_CONVOLUTION,
        defaults={"mamba_d_state": 16, "mamba_d_conv": 4, "mamba_expand": 2, "attn_layer_period":
        8, "attn_layer_offset": 4, "expert_layer_period": 2, "expert_layer_offset": 1}
    ),
    "kimi_linear": replace(
        _BIASES, latent=True, layout="kimi_linear", experts=_FIRST, defaults=_LATENT |
        _ONE_SHARED | {"q_lora_rank": None, "first_k_dense_replace": 1, "linear_head_dim": 128,
        "linear_num_heads": 32, "linear_conv_kernel_dim": 4},
        refuses=_APART | {"linear_attn_config.use_full_rank_gate": "gates of full rank",
        "attn_res_block_size": "residuals from blocks further back"}
    ),
    "laguna": Family(
        qkv_bias=ATTENTION_BIAS, qk_norm="head", sight="types", layout="laguna",
        experts=Routed("first", shared="width", router_bias=True),
        defaults={"first_k_dense_replace": 1, "sliding_window": 512, "head_dim": 128,
        "shared_expert_intermediate_size": 512}
    ),
    "lfm2": Family(
        tied=True, qk_norm="head", layout="lfm2", conv_bias=("conv_bias", False),
        defaults={"conv_L_cache": 3, "block_multiple_of": 256}
    ),
    "lfm2_moe": Family(
        tied=True, qk_norm="head", layout="lfm2", conv_bias=("conv_bias", False),
        experts=Routed("dense"), defaults={"conv_L_cache": 3, "num_dense_layers": 2}
    ),
    "llada": Family(
        tied=True, qkv_bias=("include_qkv_bias", False), layout="llada", denoises=True,
        vocabulary="embedding_size", refuses={"include_bias": "biases, those of norms among them",
        "bias_for_layer_norm": "biases of norms", "attention_layer_norm": "norms of its own",
        "alibi": "other positions than rotary ones", "multi_query_attention":
        "a second word on the heads of keys", "num_experts": "experts"}
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
    "mamba": _MAMBA,
    "mamba2": Family(
        norms=1, layout="mamba2", state_bias=USE_BIAS, conv_bias=("use_conv_bias", True),
        defaults={"mamba_d_state": 128, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 8,
        "num_heads": 128, "head_dim": 64}
    ),
    # Configs of mamba_ssm itself: ssm_cfg and no model_type.
    "mamba_ssm": Family(
        norms=1, tied=True, layout="mamba_ssm", padding=("pad_vocab_size_multiple", 8),
        refuses={"d_intermediate": "an MLP beside each layer of Mamba"}
    ),
    "minicpm": Family(tied=True, experts=Routed("optional", width="intermediate_size")),
    "minicpm3": replace(
        _ALL_BIASES, latent=True, tied=True, defaults={"q_lora_rank": 768, "kv_lora_rank": 256,
        "qk_nope_head_dim": 64, "qk_rope_head_dim": 32}
    ),
    "minimax": Family(
        layout="lightning", experts=Routed("all", width="intermediate_size"),
        refuses={"sliding_window": "windows", "shared_intermediate_size": "shared experts"}
    ),
    "minimax_m2": Family(
        qk_norm="width", experts=Routed("all", width="intermediate_size"), defaults={"head_dim":
        128}
    ),
    "minimax_m3_vl_text": Family(
        qk_norm="head", layout="blocks", experts=Routed("all", width="intermediate_size",
        shared="width"), defaults={"head_dim": 128, "dense_intermediate_size": 12288,
        "shared_expert_intermediate_size": 3072, "index_n_heads": 4, "index_head_dim": 128,
        "index_topk_blocks": 16, "index_block_size": 128, "index_local_blocks": 1},
        refuses={"attention_output_gate": "gates on the outputs of attention"}
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
    "nemotron_h": Family(
        norms=1, mlp_bias=MLP_BIAS, gated=False, layout="nemotron_h", state_bias=USE_BIAS,
        conv_bias=("use_conv_bias", True), experts=Routed("all", shared="width"),
        defaults={"head_dim": 128, "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128,
        "mamba_n_groups": 8, "mamba_d_conv": 4, "moe_latent_size": None},
        refuses=_APART | {"attention_bias": "biases, which the class ignores", "mamba_proj_bias":
        "biases, which the class ignores", "sliding_window": "windows, which the class ignores"}
    ),
    "olmo": replace(_BIASES, norm="none"),
    "olmo2": replace(_BIASES, qk_norm="width"),
    "olmo3": replace(
        _BIASES, qk_norm="width", sight="pattern", period=("sliding_window_pattern", 4),
        defaults={"sliding_window": 4096}
    ),
    "olmo_hybrid": replace(
        _BIASES, qk_norm="width", layout="olmo_hybrid", defaults={"linear_conv_kernel_dim": 4}
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
    "qwen3_5_moe_text": replace(
        _GATED, experts=Routed("all", shared="width", shared_gate=True)
    ),
    "qwen3_5_text": _GATED,
    "qwen3_moe": replace(
        _BIASES, qk_norm="head", sight="odd", experts=Routed("step"), defaults={"sliding_window":
        4096}
    ),
    "qwen3_next": replace(
        _GATED, experts=Routed("step", shared="width", shared_gate=True)
    ),
    "recurrent_gemma": Family(
        tied=True, qkv_bias=ATTENTION_BIAS, out_bias=True, mlp_bias=True, halved=True,
        layout="griffin", defaults={"attention_window_size": 2048, "conv1d_width": 4}
    ),
    "rwkv": Family(norm="layer", first_norm=True, multiple=4, layout="rwkv"),
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
    "xlstm": Family(
        layout="xlstm", defaults={"ffn_round_up_to_multiple_of": 64},
        refuses=_APART | {"use_bias": "biases everywhere"}
    ),
    "youtu": replace(_ALL_BIASES, latent=True, tied=True, defaults=_LATENT),
    "zamba2": Family(
        norms=1, tied=True, mlp_bias=_BOTH, multiple=4, layout="zamba2", state_bias=_BOTH,
        defaults={"mamba_d_state": 64, "mamba_d_conv": 4, "mamba_expand": 2, "mamba_n_groups": 1,
        "mamba_n_heads": 8, "num_mem_blocks": 1, "adapter_rank": 128}
    ),
}  # fmt: skip
"""Rows by model_type."""

# What transformers 5.24.0 has for the 12B: no embeddings of layers.
FAMILIES["gemma4_unified_text"] = replace(
    FAMILIES["gemma4_text"], defaults=FAMILIES["gemma4_text"].defaults
    | {"hidden_size_per_layer_input": 0, "sliding_window": 1024}
)  # fmt: skip

NEEDS_HEADS = frozenset((
    "bamba", "cwm", "dots1", "dream", "ernie4_5", "ernie4_5_moe", "exaone4", "falcon_h1",
    "gemma", "gemma2", "gemma3_text", "gemma3n_text", "gemma4_text", "gemma4_unified_text", "glm",
    "glm4", "glm4_moe",
    "gpt_oss", "helium", "hy_v3", "jamba", "laguna", "lfm2", "lfm2_moe", "llama4_text",
    "minimax", "minimax_m2", "minimax_m3_vl_text", "ministral", "ministral3", "mistral",
    "mixtral", "nemotron_h", "phimoe", "qwen2", "qwen2_moe", "qwen3", "qwen3_5_moe_text",
    "qwen3_5_text", "qwen3_moe", "qwen3_next", "seed_oss", "smollm3", "solar_open", "stablelm",
    "starcoder2",
))  # fmt: skip
"""Rows whose class default of num_key_value_heads is that of one size: the key must be there."""

SAME: dict[str, str] = {
    "code_llama": "llama", "Dream": "dream", "gemma3": "gemma3_text", "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text", "gemma4_unified": "gemma4_unified_text",
    "gpt_oss_text": "gpt_oss", "kimi_k2": "deepseek_v3",
    "llama4": "llama4_text", "mimo": "qwen2", "minimax_m1": "minimax",
    "minimax_m3": "minimax_m3_vl_text", "minimax_m3_vl": "minimax_m3_vl_text",
    "minimax_text_01": "minimax", "phi4": "phi3", "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2", "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text",
    "qwen3_vl_moe_text": "qwen3_moe", "qwen3_vl_text": "qwen3", "yi": "llama",
}  # fmt: skip
"""Types whose layers are those of another row."""

_STATE = "layers that keep a recurrent state (state-space or linear attention)"
_INDEXER = "the indexer of a sparse attention, which keeps keys of its own"
_TWO_PARTS = "an encoder beside the decoder"
REFUSED: dict[str, str] = dict.fromkeys(
    ("mistral_large4", "mistral_large4_text"),
    "learned rotary frequencies, and indexers with norms of their input",
) | dict.fromkeys(
    ("bart", "marian", "mbart", "mt5", "pegasus", "t5", "whisper"), _TWO_PARTS
) | dict.fromkeys(
    ("bert", "deberta", "distilbert", "modernbert", "roberta"), "attention both ways"
) | {
    "doge": "dynamic masks and experts of one row each",
    "jetmoe": "a mixture of attention heads, each token choosing among projections",
    "zamba": "state-space layers with projections for each half of their channels",
    "zaya": "convolutions over compressed keys and values (CCA)",
}  # fmt: skip
"""Types that are known and not modelled, and what stands in the way."""

LAYERS_REFUSED: dict[str, str] = {
    "conv": _STATE, "hybrid": _STATE, "linear_attention": _STATE, "mamba": _STATE,
    "recurrent": _STATE, "indexed_attention": _INDEXER,
}  # fmt: skip
"""Words of layer_types that are known and not modelled."""
