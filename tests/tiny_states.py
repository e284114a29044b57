"""Configs of every class with a recurrent state that transformers and rooflm know: published, tiny.

Sizes are those of the checkpoint that a row is named after, with fewer of its equal layers. Keys
that are left out are the class's to fill in.
"""

from __future__ import annotations

from typing import Any

EACH = {"m": "mamba", "a": "attention", "l": "linear_attention", "f": "full_attention",
        "h": "hybrid", "c": "conv"}  # fmt: skip


def words(letters: str) -> list[str]:
    """Spell out types of layers."""
    return [EACH[letter] for letter in letters]


STATES: dict[str, dict[str, Any]] = {
    "mamba-2.8b-hf": {"model_type": "mamba", "hidden_size": 2560, "num_hidden_layers": 4,
        "state_size": 16, "time_step_rank": 160, "vocab_size": 50280},
    "falcon-mamba-7b": {"model_type": "falcon_mamba", "hidden_size": 4096, "expand": 16,
        "intermediate_size": 8192, "num_hidden_layers": 4, "state_size": 16, "vocab_size": 65024,
        "tie_word_embeddings": False},
    "Mamba-Codestral-7B-v0.1": {"model_type": "mamba2", "hidden_size": 4096, "num_heads": 128,
        "head_dim": 64, "n_groups": 8, "state_size": 128, "num_hidden_layers": 4,
        "vocab_size": 32768},
    "Jamba-v0.1": {"model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 8, "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_experts": 16, "num_experts_per_tok": 2, "mamba_dt_rank": 256, "vocab_size": 65536},
    "Bamba-9B": {"model_type": "bamba", "hidden_size": 4096, "intermediate_size": 14336,
        "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 8,
        "attn_layer_indices": [2], "mamba_n_heads": 128, "mamba_d_head": 64, "mamba_d_state": 128,
        "vocab_size": 128256},
    "granite-4.0-h-small": {"model_type": "granitemoehybrid", "hidden_size": 4096,
        "intermediate_size": 768, "shared_intermediate_size": 1536, "num_hidden_layers": 4,
        "layer_types": words("mmam"), "num_attention_heads": 32, "num_key_value_heads": 8,
        "num_local_experts": 72, "num_experts_per_tok": 10, "mamba_n_heads": 128,
        "mamba_d_head": 64, "mamba_d_state": 128, "vocab_size": 100352,
        "tie_word_embeddings": True},
    "granite-4.0-h-350m": {"model_type": "granitemoehybrid", "hidden_size": 768,
        "intermediate_size": 2048, "shared_intermediate_size": 2048, "num_hidden_layers": 4,
        "layer_types": words("mamm"), "num_attention_heads": 12, "num_key_value_heads": 4,
        "num_local_experts": 0, "num_experts_per_tok": 0, "mamba_n_heads": 48, "mamba_d_head": 32,
        "mamba_d_state": 128, "vocab_size": 100352, "tie_word_embeddings": True},
    "Nemotron-H-8B": {"model_type": "nemotron_h", "hidden_size": 4096, "intermediate_size": 21504,
        "num_hidden_layers": 9, "hybrid_override_pattern": "M-M-M-M*-", "num_attention_heads": 32,
        "num_key_value_heads": 8, "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8,
        "ssm_state_size": 128, "vocab_size": 131072},
    "Nemotron-3-Nano-30B-A3B": {"model_type": "nemotron_h", "hidden_size": 2688,
        "intermediate_size": 1856, "moe_intermediate_size": 1856,
        "moe_shared_expert_intermediate_size": 3712, "num_hidden_layers": 7,
        "hybrid_override_pattern": "MEMEM*E", "num_attention_heads": 32, "num_key_value_heads": 2,
        "n_routed_experts": 128, "num_experts_per_tok": 6, "mamba_num_heads": 64,
        "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "vocab_size": 131072},
    "Nemotron-3-Super-120B-A12B": {"model_type": "nemotron_h", "hidden_size": 4096,
        "intermediate_size": 2688, "moe_intermediate_size": 2688, "moe_latent_size": 1024,
        "moe_shared_expert_intermediate_size": 5376, "num_hidden_layers": 5,
        "hybrid_override_pattern": "MEM*E", "num_attention_heads": 32, "num_key_value_heads": 2,
        "n_routed_experts": 512, "num_experts_per_tok": 22, "mamba_num_heads": 128,
        "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128, "vocab_size": 131072},
    "Falcon-H1-0.5B": {"model_type": "falcon_h1", "hidden_size": 1024, "intermediate_size": 2048,
        "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "head_dim": 64,
        "mamba_d_ssm": 1536, "mamba_n_heads": 24, "mamba_d_head": 64, "mamba_d_state": 128,
        "vocab_size": 32784},
    "Falcon-H1-34B": {"model_type": "falcon_h1", "hidden_size": 5120, "intermediate_size": 21504,
        "num_hidden_layers": 4, "num_attention_heads": 20, "num_key_value_heads": 4,
        "head_dim": 128, "mamba_d_ssm": 4096, "mamba_n_heads": 32, "mamba_d_head": 128,
        "mamba_d_state": 256, "mamba_n_groups": 2, "mamba_rms_norm": True, "vocab_size": 261120},
    "Zamba2-1.2B": {"model_type": "zamba2", "hidden_size": 2048, "intermediate_size": 8192,
        "num_hidden_layers": 6, "layers_block_type": words("mmhmhh"), "num_attention_heads": 32,
        "n_mamba_heads": 64, "num_mem_blocks": 1, "use_shared_attention_adapter": True,
        "adapter_rank": 128, "vocab_size": 32000},
    "Zamba2-2.7B": {"model_type": "zamba2", "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 7, "layers_block_type": words("mhmhmhm"), "num_attention_heads": 32,
        "n_mamba_heads": 80, "num_mem_blocks": 2, "adapter_rank": 128, "vocab_size": 32000},
    "Qwen3-Next-80B-A3B": {"model_type": "qwen3_next", "hidden_size": 2048,
        "intermediate_size": 5120, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 16,
        "num_key_value_heads": 2, "num_experts": 512, "num_experts_per_tok": 10,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "vocab_size": 151936},
    "Qwen3.5-9B": {"model_type": "qwen3_5_text", "hidden_size": 4096, "intermediate_size": 12288,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 4,
        "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
        "linear_value_head_dim": 128, "vocab_size": 248320},
    "Qwen3.5-122B-A10B": {"model_type": "qwen3_5_moe_text", "hidden_size": 3072,
        "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024,
        "num_hidden_layers": 4, "num_attention_heads": 32, "num_key_value_heads": 2,
        "num_experts": 256, "num_experts_per_tok": 8, "linear_num_key_heads": 16,
        "linear_num_value_heads": 64, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
        "vocab_size": 248320},
    "Kimi-Linear-48B-A3B": {"model_type": "kimi_linear", "hidden_size": 2304,
        "intermediate_size": 9216, "moe_intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 32, "num_key_value_heads": 32, "num_experts": 256,
        "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 1,
        "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "vocab_size": 163840,
        "linear_attn_config": {"full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 128,
            "num_heads": 32, "short_conv_kernel_size": 4}},
    "Ling-3.0-Flash": {"model_type": "bailing_hybrid", "hidden_size": 2560,
        "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 6,
        "num_attention_heads": 32, "num_key_value_heads": 32, "num_experts": 512,
        "num_experts_per_token": 8, "num_shared_experts": 1, "first_k_dense_replace": 2,
        "kv_lora_rank": 512, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
        "v_head_dim": 128, "head_dim": 128, "vocab_size": 157184},
    "MiniMax-Text-01": {"model_type": "minimax", "hidden_size": 6144, "intermediate_size": 9216,
        "num_hidden_layers": 4, "layer_types": words("lllf"), "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32,
        "num_experts_per_tok": 2, "vocab_size": 200064},
    "Olmo-Hybrid-7B": {"model_type": "olmo_hybrid", "hidden_size": 3840,
        "intermediate_size": 11008, "num_hidden_layers": 4, "num_attention_heads": 30,
        "vocab_size": 100352},
    "LFM2-350M": {"model_type": "lfm2", "hidden_size": 1024, "block_ff_dim": 6656,
        "num_hidden_layers": 4, "num_attention_heads": 16, "num_key_value_heads": 8,
        "full_attn_idxs": [2], "vocab_size": 65536},
    "LFM2-24B-A2B": {"model_type": "lfm2_moe", "hidden_size": 2048, "intermediate_size": 11776,
        "moe_intermediate_size": 1536, "num_hidden_layers": 4, "layer_types": words("ccfc"),
        "num_attention_heads": 32, "num_key_value_heads": 8, "num_dense_layers": 2,
        "num_experts": 64, "num_experts_per_tok": 4, "vocab_size": 65536},
    "recurrentgemma-2b": {"model_type": "recurrent_gemma", "hidden_size": 2560,
        "intermediate_size": 15360, "lru_width": 2560, "num_hidden_layers": 5,
        "num_attention_heads": 10, "num_key_value_heads": 1, "attention_window_size": 2048,
        "vocab_size": 256000},
    "rwkv-4-7b-pile": {"model_type": "rwkv", "hidden_size": 4096, "intermediate_size": 16384,
        "attention_hidden_size": 4096, "num_hidden_layers": 4, "vocab_size": 50277},
    "xLSTM-7b": {"model_type": "xlstm", "hidden_size": 4096, "num_heads": 8,
        "num_hidden_layers": 4, "vocab_size": 50304},
}  # fmt: skip
"""Keys of config.json by model."""

SMALL: dict[str, int] = {
    "hidden_size": 128, "intermediate_size": 144, "block_ff_dim": 144, "vocab_size": 131,
    "lru_width": 128, "attention_hidden_size": 128, "head_dim": 24, "attention_window_size": 7,
    "shared_intermediate_size": 36, "moe_intermediate_size": 28,
    "shared_expert_intermediate_size": 36, "moe_shared_expert_intermediate_size": 36,
    "moe_latent_size": 44, "num_experts": 16, "num_local_experts": 16, "n_routed_experts": 16,
    "num_experts_per_tok": 2, "num_experts_per_token": 2, "num_attention_heads": 8,
    "expand": 2, "state_size": 6, "mamba_d_state": 6, "ssm_state_size": 6, "time_step_rank": 5,
    "mamba_dt_rank": 5, "num_heads": 8, "mamba_n_heads": 8, "mamba_num_heads": 8,
    "n_mamba_heads": 8, "mamba_d_head": 32, "mamba_head_dim": 20, "mamba_d_ssm": 256,
    "n_groups": 2, "adapter_rank": 10, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
    "linear_key_head_dim": 20, "linear_value_head_dim": 26, "kv_lora_rank": 20,
    "qk_nope_head_dim": 18, "qk_rope_head_dim": 10, "v_head_dim": 22,
}  # fmt: skip
"""Sizes small enough to run, and different enough that none passes for another."""
CHUNKS = {"mamba2": "chunk_size", "nemotron_h": "chunk_size", "zamba2": "chunk_size",
          "bamba": "mamba_chunk_size", "granitemoehybrid": "mamba_chunk_size",
          "falcon_h1": "mamba_chunk_size", "minimax": "block_size"}  # fmt: skip
"""Key of the chunks that a class pads its passes to."""
CHUNK = 8


def tiny_state(config: dict[str, Any]) -> dict[str, Any]:
    """Shrink a config: what is shared or absent stays so, and so do the layers."""
    kind, heads = config["model_type"], config.get("num_attention_heads")
    # The class's own pad_token_id may lie beyond so few words.
    small: dict[str, Any] = {"pad_token_id": 0}
    if kind in CHUNKS:
        small[CHUNKS[kind]] = CHUNK
    for key, value in config.items():
        if key == "num_key_value_heads":
            small[key] = 8 if value == heads else 2
        elif key == "linear_attn_config":
            small[key] = value | {"head_dim": 20, "num_heads": 4}
        elif kind == "mamba2" and key == "head_dim":
            small[key] = 32
        else:
            small[key] = SMALL.get(key, value) if value else value
    return small
