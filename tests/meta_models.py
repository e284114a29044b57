"""Presets at their published size as configs of the classes of transformers.

Sizes are written out here, and not taken from models.yaml, which they check. A row is a class and
its keys: letters stand for the names of the table below, `tied` for tie_word_embeddings (false
unless given), anything else is a key of the class itself. Keys that are left out are the class's
to fill in: the width of a head where it is width / heads, and key/value heads where all have
their own.
"""

from __future__ import annotations

from typing import Any

NAMES: dict[str, str] = {
    "D": "hidden_size", "F": "intermediate_size", "L": "num_hidden_layers",
    "N": "num_attention_heads", "K": "num_key_value_heads", "H": "head_dim",
    "V": "vocab_size", "W": "sliding_window", "E": "num_experts",
    "k": "num_experts_per_tok", "M": "moe_intermediate_size",
}  # fmt: skip
"""Keys of most classes: M is the width of an expert where the class has other MLPs too."""

GPT2 = {"D": "n_embd", "N": "n_head", "L": "n_layer", "F": "n_inner"}
ROUTED = {"E": "n_routed_experts"}
LOCAL = {"E": "num_local_experts"}
OTHER_NAMES: dict[str, dict[str, str]] = {
    "bloom": {"N": "n_head", "L": "n_layer"},
    "bailing_hybrid": {"k": "num_experts_per_token"},
    "codegen": GPT2,
    "deepseek_v2": ROUTED,
    "deepseek_v3": ROUTED,
    "deepseek_v32": ROUTED,
    "deepseek_v4": ROUTED,
    "dots1": ROUTED,
    "ernie4_5_moe": {"E": "moe_num_experts", "k": "moe_k"},
    "falcon": {"K": "num_kv_heads", "F": "ffn_hidden_size"},
    "glm4_moe": ROUTED,
    "glm_moe_dsa": ROUTED,
    "gpt2": GPT2,
    "gpt_bigcode": GPT2,
    "gpt_oss": LOCAL,
    "granitemoe": LOCAL,
    "granitemoehybrid": LOCAL,
    "hunyuan_v1_moe": {"k": "moe_topk"},
    "kimi_linear": {"k": "num_experts_per_token"},
    "llama4_text": LOCAL,
    "longcat_flash": ROUTED | {"L": "num_layers", "F": "ffn_hidden_size", "k": "moe_topk",
                               "M": "expert_ffn_hidden_size"},
    "minimax": LOCAL,
    "minimax_m2": LOCAL,
    "minimax_m3_vl_text": LOCAL,
    "mixtral": LOCAL,
    "mpt": {"D": "d_model", "N": "n_heads", "L": "n_layers"},
    "nemotron_h": ROUTED,
    "opt": {"F": "ffn_dim"},
    "phimoe": LOCAL,
    "recurrent_gemma": {"W": "attention_window_size"},
    "sarvam_mla": ROUTED,
    "solar_open": ROUTED,
    "xlstm": {"N": "num_heads"},
}  # fmt: skip
"""Classes that call some of them otherwise."""


def row(kind: str, *, tied: bool = False, **keys: Any) -> dict[str, Any]:
    """Write keys of config.json under the names that a class gives them."""
    names = NAMES | OTHER_NAMES.get(kind, {})
    config = {"model_type": kind, "tie_word_embeddings": tied}
    return config | {names.get(key, key): value for key, value in keys.items()}


LATENT: dict[str, Any] = {
    "kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
}  # fmt: skip
"""Widths of latent attention, which DeepSeek's followers kept."""

FULL, WINDOW = "full_attention", "sliding_attention"
"""Types of layers."""

TYPES = {"a": "attention", "c": "conv", "f": FULL, "h": "hybrid", "l": "linear_attention",
         "m": "mamba", "w": WINDOW}  # fmt: skip
"""Letters of the types of layers."""


def types(*letters: str) -> list[str]:
    """Spell out types of layers, a letter each: runs of layers one after the other."""
    return [TYPES[letter] for letter in "".join(letters)]


DELTA: dict[str, Any] = {
    "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
}  # fmt: skip
"""Widths of the linear attention of Qwen, large and small."""

NEMOTRON: dict[str, Any] = {
    "H": 128, "V": 131072, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
}  # fmt: skip
"""Widths of Nemotron's layers, unless given."""


def nemotron(layers: str, **keys: Any) -> dict[str, Any]:
    """Write a Nemotron: M is a Mamba layer, * attention, - an MLP, E experts."""
    return row("nemotron_h", **(NEMOTRON | keys), hybrid_override_pattern=layers)


INDEX: dict[str, Any] = {"index_head_dim": 128, "index_topk": 2048}
"""Keys of indexers that choose single tokens."""

FLASH: dict[str, Any] = {
    "H": 512, "K": 1, "W": 128, "V": 129280, "k": 6, "n_shared_experts": 1, "qk_rope_head_dim": 64,
    "o_lora_rank": 1024, "hc_mult": 4, "index_n_heads": 64, "index_head_dim": 128,
    "num_hash_layers": 3,
}  # fmt: skip
"""What both sizes of DeepSeek-V4 have in common."""

CONFIGS: dict[str, dict[str, Any]] = {
    # Llama and models of its class
    "llama-1-7b": row("llama", D=4096, F=11008, N=32, L=32, V=32000),
    "llama-1-13b": row("llama", D=5120, F=13824, N=40, L=40, V=32000),
    "llama-1-33b": row("llama", D=6656, F=17920, N=52, L=60, V=32000),
    "llama-1-65b": row("llama", D=8192, F=22016, N=64, L=80, V=32000),
    "vicuna-13b": row("llama", D=5120, F=13824, N=40, L=40, V=32000),
    "open-llama-3b": row("llama", D=3200, F=8640, N=32, L=26, V=32000),
    "llama-2-7b": row("llama", D=4096, F=11008, N=32, L=32, V=32000),
    "llama-2-13b": row("llama", D=5120, F=13824, N=40, L=40, V=32000),
    "llama-2-70b": row("llama", D=8192, F=28672, N=64, K=8, L=80, V=32000),
    "codellama-34b": row("llama", D=8192, F=22016, N=64, K=8, L=48, V=32016),
    "llama-3-8b": row("llama", D=4096, F=14336, N=32, K=8, L=32, V=128256),
    "llama-3-70b": row("llama", D=8192, F=28672, N=64, K=8, L=80, V=128256),
    "llama-3.1-8b": row("llama", D=4096, F=14336, N=32, K=8, L=32, V=128256),
    "llama-3.1-70b": row("llama", D=8192, F=28672, N=64, K=8, L=80, V=128256),
    "llama-3.1-405b": row("llama", D=16384, F=53248, N=128, K=8, L=126, V=128256),
    "llama-3.2-1b": row("llama", D=2048, F=8192, N=32, K=8, H=64, L=16, V=128256, tied=True),
    "llama-3.2-3b": row("llama", D=3072, F=8192, N=24, K=8, H=128, L=28, V=128256, tied=True),
    "llama-3.3-70b": row("llama", D=8192, F=28672, N=64, K=8, L=80, V=128256),
    "llama-3.1-minitron-4b-width": row("llama", D=3072, F=9216, N=32, K=8, H=128, L=32, V=128256),
    "llama-3.1-minitron-4b-depth": row("llama", D=4096, F=14336, N=32, K=8, L=16, V=128256),
    "tinyllama-1.1b": row("llama", D=2048, F=5632, N=32, K=4, L=22, V=32000),
    "xgen-7b": row("llama", D=4096, F=11008, N=32, L=32, V=51200),
    "yi-1.5-6b": row("llama", D=4096, F=11008, N=32, K=4, L=32, V=64000),
    "yi-1.5-34b": row("llama", D=7168, F=20480, N=56, K=8, L=60, V=64000),
    "hyperclovax-seed-0.5b": row("llama", D=1024, F=4096, N=16, K=8, H=128, L=24, V=110592,
        tied=True),
    "smollm2-135m": row("llama", D=576, F=1536, N=9, K=3, L=30, V=49152, tied=True),
    "smollm2-360m": row("llama", D=960, F=2560, N=15, K=5, L=32, V=49152, tied=True),
    "smollm2-1.7b": row("llama", D=2048, F=8192, N=32, L=24, V=49152, tied=True),
    "granite-3b-code": row("llama", D=2560, F=10240, N=32, L=32, V=49152, tied=True,
        attention_bias=True, mlp_bias=True),
    "llama-4-scout": row("llama4_text", D=5120, F=8192, N=40, K=8, H=128, L=48, V=202048, E=16,
        k=1, intermediate_size_mlp=16384, interleave_moe_layer_step=1, attention_chunk_size=8192),

    # Their own class is not one of transformers; this one has the same weights.
    "internlm2-7b": row("llama", D=4096, F=14336, N=32, K=8, L=32, V=92544),
    "internlm2.5-7b": row("llama", D=4096, F=14336, N=32, K=8, L=32, V=92544),
    "minicpm-2b": row("llama", D=2304, F=5760, N=36, L=40, V=122753, tied=True),
    "minicpm-2b-128k": row("llama", D=2304, F=5760, N=36, L=40, V=122760),
    "orion-14b": row("stablelm", D=5120, F=15360, N=40, K=40, L=40, V=84608),
    "chatglm3-6b": row("glm", D=4096, F=13696, N=32, K=2, H=128, L=28, V=65024,
        attention_bias=True, pad_token_id=None),

    # As wide a mixture without norms on queries and keys.
    "deepseek-moe-16b": row("glm4_moe", D=2048, F=10944, N=16, K=16, H=128, L=28, V=102400, E=64,
        k=6, M=1408, n_shared_experts=2, first_k_dense_replace=1, attention_bias=False,
        use_qk_norm=False),

    # Mistral
    "mistral-7b-v0.1": row("mistral", D=4096, F=14336, N=32, K=8, L=32, V=32000, W=4096),
    "mistral-7b-v0.2": row("mistral", D=4096, F=14336, N=32, K=8, L=32, V=32000, W=None),
    "mistral-7b-v0.3": row("mistral", D=4096, F=14336, N=32, K=8, L=32, V=32768, W=None),
    "mistral-nemo-12b": row("mistral", D=5120, F=14336, N=32, K=8, H=128, L=40, V=131072, W=None),
    "mistral-small-3.1-24b": row("mistral", D=5120, F=32768, N=32, K=8, H=128, L=40, V=131072,
        W=None),
    "ministral-3-8b": row("ministral3", D=4096, F=14336, N=32, K=8, H=128, L=34, V=131072, W=None),
    "ministral-3-14b": row("ministral3", D=5120, F=16384, N=32, K=8, H=128, L=40, V=131072,
        W=None),
    "devstral-2-123b": row("ministral3", D=12288, F=28672, N=96, K=8, H=128, L=88, V=131072,
        W=None),
    "mistral-medium-3.5-128b": row("ministral3", D=12288, F=28672, N=96, K=8, H=128, L=88,
        V=131072, W=None),
    "mixtral-8x7b": row("mixtral", D=4096, F=14336, N=32, K=8, L=32, V=32000, E=8, k=2),
    "mixtral-8x22b": row("mixtral", D=6144, F=16384, N=48, K=8, L=56, V=32000, E=8, k=2),

    # Qwen
    "qwen1.5-72b": row("qwen2", D=8192, F=24576, N=64, K=64, L=80, V=152064),
    "qwen2-0.5b": row("qwen2", D=896, F=4864, N=14, K=2, L=24, V=151936, tied=True),
    "qwen2-1.5b": row("qwen2", D=1536, F=8960, N=12, K=2, L=28, V=151936, tied=True),
    "qwen2-7b": row("qwen2", D=3584, F=18944, N=28, K=4, L=28, V=152064),
    "qwen2-72b": row("qwen2", D=8192, F=29568, N=64, K=8, L=80, V=152064),
    "qwen2.5-0.5b": row("qwen2", D=896, F=4864, N=14, K=2, L=24, V=151936, tied=True),
    "qwen2.5-1.5b": row("qwen2", D=1536, F=8960, N=12, K=2, L=28, V=151936, tied=True),
    "qwen2.5-3b": row("qwen2", D=2048, F=11008, N=16, K=2, L=36, V=151936, tied=True),
    "qwen2.5-7b": row("qwen2", D=3584, F=18944, N=28, K=4, L=28, V=152064),
    "qwen2.5-14b": row("qwen2", D=5120, F=13824, N=40, K=8, L=48, V=152064),
    "qwen2.5-32b": row("qwen2", D=5120, F=27648, N=40, K=8, L=64, V=152064),
    "qwen2.5-72b": row("qwen2", D=8192, F=29568, N=64, K=8, L=80, V=152064),
    "qwen3-0.6b": row("qwen3", D=1024, F=3072, N=16, K=8, H=128, L=28, V=151936, tied=True),
    "qwen3-1.7b": row("qwen3", D=2048, F=6144, N=16, K=8, H=128, L=28, V=151936, tied=True),
    "qwen3-4b": row("qwen3", D=2560, F=9728, N=32, K=8, H=128, L=36, V=151936, tied=True),
    "qwen3-8b": row("qwen3", D=4096, F=12288, N=32, K=8, H=128, L=36, V=151936),
    "qwen3-14b": row("qwen3", D=5120, F=17408, N=40, K=8, H=128, L=40, V=151936),
    "qwen3-32b": row("qwen3", D=5120, F=25600, N=64, K=8, H=128, L=64, V=151936),
    "qwen1.5-moe-a2.7b": row("qwen2_moe", D=2048, F=5632, N=16, K=16, L=24, V=151936, E=60, k=4,
        M=1408, shared_expert_intermediate_size=5632),
    "qwen3-30b-a3b": row("qwen3_moe", D=2048, F=6144, N=32, K=4, H=128, L=48, V=151936, E=128,
        k=8, M=768),
    "qwen3-235b-a22b": row("qwen3_moe", D=4096, F=12288, N=64, K=4, H=128, L=94, V=151936, E=128,
        k=8, M=1536),
    # Its decoder of text is Qwen 3's.
    "qwen3-vl-30b-a3b": row("qwen3_moe", D=2048, F=6144, N=32, K=4, H=128, L=48, V=151936, E=128,
        k=8, M=768),

    # Gemma
    "gemma-1-2b": row("gemma", D=2048, F=16384, N=8, K=1, H=256, L=18, V=256000, tied=True),
    "gemma-1-7b": row("gemma", D=3072, F=24576, N=16, K=16, H=256, L=28, V=256000, tied=True),
    "gemma-2-2b": row("gemma2", D=2304, F=9216, N=8, K=4, H=256, L=26, V=256000, W=4096,
        tied=True),
    "gemma-2-9b": row("gemma2", D=3584, F=14336, N=16, K=8, H=256, L=42, V=256000, W=4096,
        tied=True),
    "gemma-2-27b": row("gemma2", D=4608, F=36864, N=32, K=16, H=128, L=46, V=256000, W=4096,
        tied=True),
    "gemma-3-1b": row("gemma3_text", D=1152, F=6912, N=4, K=1, H=256, L=26, V=262144, W=512,
        tied=True),
    "gemma-3-4b": row("gemma3_text", D=2560, F=10240, N=8, K=4, H=256, L=34, V=262208, W=1024,
        tied=True),
    "gemma-3-12b": row("gemma3_text", D=3840, F=15360, N=16, K=8, H=256, L=48, V=262208, W=1024,
        tied=True),
    "gemma-3-27b": row("gemma3_text", D=5376, F=21504, N=32, K=16, H=128, L=62, V=262208, W=1024,
        tied=True),
    "gemma-4-31b": row("gemma4_text", D=5376, F=21504, N=32, K=16, H=256, L=60, V=262144, W=1024,
        tied=True, global_head_dim=512, num_global_key_value_heads=4, attention_k_eq_v=True,
        hidden_size_per_layer_input=0, layer_types=([WINDOW] * 5 + [FULL]) * 10),
    "gemma-4-12b": row("gemma4_unified_text", D=3840, F=15360, N=16, K=8, H=256, L=48, V=262144,
        W=1024, tied=True, global_head_dim=512, num_global_key_value_heads=1,
        attention_k_eq_v=True, layer_types=([WINDOW] * 5 + [FULL]) * 8),
    "gemma-4-26b-a4b": row("gemma4_text", D=2816, F=2112, N=16, K=8, H=256, L=30, V=262144, W=1024,
        E=128, M=704, top_k_experts=8, tied=True, enable_moe_block=True, global_head_dim=512,
        num_global_key_value_heads=2, attention_k_eq_v=True, hidden_size_per_layer_input=0,
        layer_types=([WINDOW] * 5 + [FULL]) * 5),

    # Phi
    "phi-1.5": row("phi", D=2048, F=8192, N=32, L=24, V=51200),
    "phi-2": row("phi", D=2560, F=10240, N=32, L=32, V=51200),
    "phi-4": row("phi3", D=5120, F=17920, N=40, K=10, L=40, V=100352, W=None),
    "phi-3-mini": row("phi3", D=3072, F=8192, N=32, K=32, L=32, V=32064, W=2047),
    "phi-3-medium": row("phi3", D=5120, F=17920, N=40, K=10, L=40, V=32064, W=131072),
    "phi-3.5-mini": row("phi3", D=3072, F=8192, N=32, K=32, L=32, V=32064, W=262144),
    "phi-4-mini": row("phi3", D=3072, F=8192, N=24, K=8, L=32, V=200064, W=262144, tied=True),
    "phi-mini-moe": row("phimoe", D=4096, F=960, N=32, K=8, H=128, L=32, V=32064, W=2047, E=16,
        k=2, attention_bias=True, lm_head_bias=True),

    # GPT-2, OPT and their time
    "gpt2": row("gpt2", D=768, N=12, L=12, V=50257, n_positions=1024, tied=True),
    "gpt2-medium": row("gpt2", D=1024, N=16, L=24, V=50257, n_positions=1024, tied=True),
    "gpt2-large": row("gpt2", D=1280, N=20, L=36, V=50257, n_positions=1024, tied=True),
    "gpt2-xl": row("gpt2", D=1600, N=25, L=48, V=50257, n_positions=1024, tied=True),
    "opt-125m": row("opt", D=768, F=3072, N=12, L=12, V=50272, tied=True,
        max_position_embeddings=2048, word_embed_proj_dim=768),
    "opt-350m": row("opt", D=1024, F=4096, N=16, L=24, V=50272, tied=True,
        max_position_embeddings=2048, word_embed_proj_dim=512, do_layer_norm_before=False),
    "opt-1.3b": row("opt", D=2048, F=8192, N=32, L=24, V=50272, tied=True,
        max_position_embeddings=2048, word_embed_proj_dim=2048),
    "opt-6.7b": row("opt", D=4096, F=16384, N=32, L=32, V=50272, tied=True,
        max_position_embeddings=2048, word_embed_proj_dim=4096),
    "opt-13b": row("opt", D=5120, F=20480, N=40, L=40, V=50272, tied=True,
        max_position_embeddings=2048, word_embed_proj_dim=5120),
    "opt-30b": row("opt", D=7168, F=28672, N=56, L=48, V=50272, tied=True,
        max_position_embeddings=2048, word_embed_proj_dim=7168),
    "pythia-70m": row("gpt_neox", D=512, F=2048, N=8, L=6, V=50304),
    "pythia-160m": row("gpt_neox", D=768, F=3072, N=12, L=12, V=50304),
    "pythia-410m": row("gpt_neox", D=1024, F=4096, N=16, L=24, V=50304),
    "pythia-1b": row("gpt_neox", D=2048, F=8192, N=8, L=16, V=50304),
    "pythia-1.4b": row("gpt_neox", D=2048, F=8192, N=16, L=24, V=50304),
    "pythia-2.8b": row("gpt_neox", D=2560, F=10240, N=32, L=32, V=50304),
    "pythia-6.9b": row("gpt_neox", D=4096, F=16384, N=32, L=32, V=50432),
    "pythia-12b": row("gpt_neox", D=5120, F=20480, N=40, L=36, V=50688),
    "redpajama-incite-3b": row("gpt_neox", D=2560, F=10240, N=32, L=32, V=50432,
        use_parallel_residual=False),
    "gpt-j-6b": row("gptj", D=4096, N=16, L=28, V=50400, n_positions=2048, rotary_dim=64),
    "codegen-2b": row("codegen", D=2560, N=32, L=32, V=51200, n_positions=2048, rotary_dim=64),
    "santacoder-1.1b": row("gpt_bigcode", D=2048, F=8192, N=16, L=24, V=49280, n_positions=2048,
        multi_query=True, tied=True),
    "starcoder-15b": row("gpt_bigcode", D=6144, F=24576, N=48, L=40, V=49152, n_positions=8192,
        multi_query=True, tied=True),
    "starcoder2-3b": row("starcoder2", D=3072, F=12288, N=24, K=2, L=30, V=49152, W=4096,
        tied=True),
    "starcoder2-7b": row("starcoder2", D=4608, F=18432, N=36, K=4, L=32, V=49152, W=4096,
        tied=True),
    "falcon-rw-1b": row("falcon", D=2048, N=32, L=24, V=50304, tied=True, alibi=True, bias=True,
        multi_query=False, parallel_attn=False),
    "falcon-11b": row("falcon", D=4096, F=16384, N=32, K=8, L=60, V=65024,
        new_decoder_architecture=True, num_ln_in_parallel_attn=1),
    "falcon-180b": row("falcon", D=14848, N=232, K=8, L=80, V=65024, tied=True,
        new_decoder_architecture=True),
    "mpt-7b": row("mpt", D=4096, N=32, L=32, V=50432, max_seq_len=2048, tied=True),

    # OLMo
    "olmo-1b": row("olmo", D=2048, F=8192, N=16, L=16, V=50304, tied=True),
    "olmo-2-7b": row("olmo2", D=4096, F=11008, N=32, L=32, V=100352),
    "olmo-2-13b": row("olmo2", D=5120, F=13824, N=40, L=40, V=100352),
    "olmo-2-32b": row("olmo2", D=5120, F=27648, N=40, K=8, L=64, V=100352),
    "olmo-3.1-32b": row("olmo3", D=5120, F=27648, N=40, K=8, L=64, V=100278, W=4096),
    "olmoe-1b-7b": row("olmoe", D=2048, F=1024, N=16, L=16, V=50304, E=64, k=8),
    "flex-olmo-7x7b": row("flex_olmo", D=4096, F=11008, N=32, L=32, V=100352, E=7, k=7),

    # DeepSeek and others with latent attention
    "deepseek-v2": row("deepseek_v2", D=5120, F=12288, N=128, K=128, L=60, V=102400, E=160, k=6,
        M=1536, n_shared_experts=2, first_k_dense_replace=1, q_lora_rank=1536, **LATENT),
    "deepseek-v3": row("deepseek_v3", D=7168, F=18432, N=128, K=128, L=61, V=129280, E=256, k=8,
        M=2048, n_shared_experts=1, first_k_dense_replace=3, q_lora_rank=1536, **LATENT),
    "kimi-k2": row("deepseek_v3", D=7168, F=18432, N=64, K=64, L=61, V=163840, E=384, k=8, M=2048,
        n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=1536, **LATENT),
    "kimi-k2.5": row("deepseek_v3", D=7168, F=18432, N=64, K=64, L=61, V=163840, E=384, k=8,
        M=2048, n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=1536, **LATENT),
    "longcat-flash": row("longcat_flash", D=6144, F=12288, N=64, L=28, V=131072, E=512, k=12,
        M=2048, zero_expert_num=256, q_lora_rank=1536, **LATENT),
    "youtu-2b": row("youtu", D=2048, F=6144, N=16, K=16, L=32, V=128256, tied=True,
        q_lora_rank=1536, **LATENT),
    "sarvam-105b": row("sarvam_mla", D=4096, F=16384, N=64, K=64, L=32, V=262144, E=128, k=8,
        M=2048, n_shared_experts=1, first_k_dense_replace=1, q_lora_rank=None, **LATENT),

    # Experts of other makers
    "gpt-oss-20b": row("gpt_oss", D=2880, F=2880, N=64, K=8, H=64, L=24, V=201088, W=128, E=32,
        k=4),
    "gpt-oss-120b": row("gpt_oss", D=2880, F=2880, N=64, K=8, H=64, L=36, V=201088, W=128, E=128,
        k=4),
    "glm-4.5": row("glm4_moe", D=5120, F=12288, N=96, K=8, H=128, L=92, V=151552, E=160, k=8,
        M=1536, n_shared_experts=1, first_k_dense_replace=3, attention_bias=True,
        use_qk_norm=True),
    "minimax-m2": row("minimax_m2", D=3072, F=1536, N=48, K=8, H=128, L=62, V=200064, E=256, k=8),
    "dots1": row("dots1", D=4096, F=10944, N=32, K=32, L=62, V=152064, E=128, k=6, M=1408,
        n_shared_experts=2, first_k_dense_replace=1),
    "hunyuan-a13b": row("hunyuan_v1_moe", D=4096, F=3072, N=32, K=8, H=128, L=32, V=128167, E=64,
        k=8, tied=True),
    "hy3": row("hy_v3", D=4096, F=13312, N=64, K=8, H=128, L=80, V=120832, E=192, k=8, M=1536,
        num_shared_experts=1, mlp_layer_types=["dense"] + ["sparse"] * 79),
    "trinity-mini": row("afmoe", D=2048, F=6144, N=32, K=4, H=128, L=32, V=200192, W=2048, E=128,
        k=8, M=1024, num_shared_experts=1, num_dense_layers=2),
    "trinity-large": row("afmoe", D=3072, F=12288, N=48, K=8, H=128, L=60, V=200192, W=4096,
        E=256, k=4, M=3072, num_shared_experts=1, num_dense_layers=6),
    "laguna-xs.2": row("laguna", D=2048, F=8192, N=48, K=8, H=128, L=40, V=100352, W=512, E=256,
        k=8, M=512, shared_expert_intermediate_size=512,
        num_attention_heads_per_layer=[48, 64, 64, 64] * 10,
        layer_types=[FULL, WINDOW, WINDOW, WINDOW] * 10),
    "ernie-4.5-300b-a47b": row("ernie4_5_moe", D=8192, F=28672, N=64, K=8, L=54, V=103424, E=64,
        k=8, M=3584, moe_num_shared_experts=0, moe_layer_start_index=3),
    "granite-3.0-1b-a400m": row("granitemoe", D=1024, F=512, N=16, K=8, L=24, V=49152, E=32, k=8,
        tied=True),
    "solar-open-100b": row("solar_open", D=4096, N=64, K=8, H=128, L=48, V=196608, E=128, k=8,
        M=1280, n_shared_experts=1),

    # Others
    "hyperclovax-seed-think-14b": row("hyperclovax", D=6144, F=14336, N=48, K=8, L=38, V=110592,
        use_post_norm=True),
    "smollm3-3b": row("smollm3", D=2048, F=11008, N=16, K=4, L=36, V=128256, tied=True),
    "granite-3.0-2b": row("granite", D=2048, F=8192, N=32, K=8, L=40, V=49152, tied=True),
    "aya-23-8b": row("cohere", D=4096, F=14336, N=32, K=8, L=32, V=256000, tied=True),
    "command-r-35b": row("cohere", D=8192, F=22528, N=64, K=64, L=40, V=256000, tied=True),
    "command-a-111b": row("cohere2", D=12288, F=36864, N=96, K=8, H=128, L=64, V=256000, W=4096,
        tied=True),
    "glm-4-32b": row("glm4", D=6144, F=23040, N=48, K=2, H=128, L=61, V=151552,
        attention_bias=False),
    "hunyuan-0.5b": row("hunyuan_v1_dense", D=1024, F=3584, N=16, K=8, H=128, L=24, V=120818,
        tied=True),
    "hunyuan-7b": row("hunyuan_v1_dense", D=4096, F=14336, N=32, K=8, H=128, L=32, V=128167,
        tied=True),
    "stablelm-3b": row("stablelm", D=2560, F=6912, N=32, K=32, L=32, V=50304),
    "nemotron-4-15b": row("nemotron", D=6144, F=24576, N=48, K=8, L=32, V=256000),
    "minitron-8b": row("nemotron", D=4096, F=16384, N=48, K=8, H=128, L=32, V=256000),
    "minitron-4b": row("nemotron", D=3072, F=9216, N=24, K=8, L=32, V=256000),
    "nemotron-mini-4b": row("nemotron", D=3072, F=9216, N=24, K=8, L=32, V=256000),
    "helium-1-2b": row("helium", D=2560, F=7040, N=20, K=20, H=128, L=24, V=48000),
    "exaone-4.0-1.2b": row("exaone4", D=2048, F=4096, N=32, K=8, H=64, L=30, V=102400, tied=True,
        W=None, layer_types=[FULL] * 30),
    "exaone-4.0-32b": row("exaone4", D=5120, F=27392, N=40, K=8, H=128, L=64, V=102400, W=4096,
        sliding_window_pattern=4),
    "ernie-4.5-0.3b": row("ernie4_5", D=1024, F=3072, N=16, K=2, H=128, L=18, V=103424, tied=True),
    "afm-4.5b": row("arcee", D=2560, F=18432, N=20, K=4, H=128, L=36, V=128005),
    "nanochat-d32": row("nanochat", D=2048, F=8192, N=16, K=16, L=32, V=65536),
    "jais-2-8b": row("jais2", D=3328, F=26624, N=26, K=26, H=128, L=32, V=150272),
    "apertus-70b": row("apertus", D=8192, F=43008, N=64, K=8, L=80, V=131072),

    # Mamba
    "mamba-2.8b": row("mamba", D=2560, L=64, V=50280, tied=True, expand=2, state_size=16,
        time_step_rank=160),
    "mamba2-130m": row("mamba2", D=768, L=24, V=50288, tied=True, num_heads=24, head_dim=64,
        n_groups=1, state_size=128),
    "mamba2-2.7b": row("mamba2", D=2560, L=64, V=50288, tied=True, num_heads=80, head_dim=64,
        n_groups=1, state_size=128),
    "falcon-mamba-7b": row("falcon_mamba", D=4096, F=8192, L=64, V=65024, state_size=16,
        time_step_rank=256),

    # Mamba and attention
    "jamba-v0.1": row("jamba", D=4096, F=14336, N=32, K=8, L=32, V=65536, E=16, k=2,
        mamba_expand=2, mamba_d_state=16, mamba_dt_rank=256, attn_layer_period=8,
        attn_layer_offset=4, expert_layer_period=2, expert_layer_offset=1),
    "zamba2-2.7b": row("zamba2", D=2560, F=10240, N=32, K=32, L=54, V=32000, tied=True,
        n_mamba_heads=80, mamba_d_state=64, mamba_ngroups=1, num_mem_blocks=2, adapter_rank=128,
        layers_block_type=types("m", "mmmmmh" * 7, "mmmmh", "mmmh", "mm")),
    "falcon-h1-0.5b": row("falcon_h1", D=1024, F=2048, N=8, K=2, H=64, L=36, V=32784,
        mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_d_state=128, mamba_n_groups=1,
        mamba_rms_norm=False),
    "falcon-h1-1.5b-deep": row("falcon_h1", D=1280, F=3072, N=6, K=2, H=128, L=66, V=65536,
        mamba_d_ssm=1536, mamba_n_heads=24, mamba_d_head=64, mamba_d_state=256, mamba_n_groups=1,
        mamba_rms_norm=True),
    "falcon-h1-34b": row("falcon_h1", D=5120, F=21504, N=20, K=4, H=128, L=72, V=261120,
        mamba_d_ssm=4096, mamba_n_heads=32, mamba_d_head=128, mamba_d_state=256, mamba_n_groups=2,
        mamba_rms_norm=True),
    "granite-4.0-h-350m": row("granitemoehybrid", D=768, F=2048, N=12, K=4, L=32, V=100352,
        tied=True, E=0, k=0, shared_intermediate_size=2048, mamba_n_heads=48, mamba_d_head=32,
        mamba_d_state=128,
        layer_types=types("m" * 10, "a", "mm", "a", "mmm", "a", "m" * 9, "a", "mmmm")),
    "granite-4.0-h-small": row("granitemoehybrid", D=4096, F=768, N=32, K=8, L=40, V=100352,
        tied=True, E=72, k=10, shared_intermediate_size=1536, mamba_n_heads=128, mamba_d_head=64,
        mamba_d_state=128, layer_types=types("mmmmmammmm" * 4)),
    "nemotron-h-4b": nemotron("M-M-M-M*" + "-M-M-M-M-M*" * 3 + "-M-M-M-M-M-", D=3072, F=12288,
        N=32, K=8, mamba_num_heads=112),
    "nemotron-h-8b": nemotron("M-M-M-M*" + "-M-M-M-M-M*" * 3 + "-M-M-M-M-M-", D=4096, F=21504,
        N=32, K=8, mamba_num_heads=128),
    "nemotron-nano-9b-v2": nemotron("M-M-M-MM-M-M-M*-M-M-M*" + "-M-M-M-M*" * 2 +
        "-M-MM-M-M-M-M-M-", D=4480, F=15680, N=40, K=8, mamba_num_heads=128, mamba_head_dim=80),
    "nemotron-nano-12b-v2": nemotron("M-M-M-M*" + "-M-M-M-M*" * 5 + "-M-M-M-M-", D=5120, F=20480,
        N=40, K=8, mamba_num_heads=128, mamba_head_dim=80),
    "nemotron-3-nano-30b-a3b": nemotron("MEMEM*E" + "MEMEM*E" * 4 + "MEMEMEM*E" + "MEMEMEME",
        D=2688, F=1856, N=32, K=2, E=128, k=6, M=1856, n_shared_experts=1,
        moe_shared_expert_intermediate_size=3712, mamba_num_heads=64),
    "nemotron-3-super-120b-a12b": nemotron("MEMEMEM*E" * 3 + "MEMEMEMEM*E" * 4 + "MEMEMEM*E" +
        "MEMEMEME", D=4096, F=2688, N=32, K=2, E=512, k=22, M=2688, n_shared_experts=1,
        moe_shared_expert_intermediate_size=5376, moe_latent_size=1024, mamba_num_heads=128),

    # Linear attention and attention
    "minimax-text-01": row("minimax", D=6144, F=9216, N=64, K=8, H=128, L=80, V=200064, E=32, k=2,
        layer_types=types("lllllllf" * 10)),
    "qwen3-next-80b-a3b": row("qwen3_next", D=2048, F=5120, N=16, K=2, H=256, L=48, V=151936,
        E=512, k=10, M=512, shared_expert_intermediate_size=512, linear_num_value_heads=32,
        layer_types=types("lllf" * 12), **DELTA),
    "qwen3.5-0.8b": row("qwen3_5_text", D=1024, F=3584, N=8, K=2, H=256, L=24, V=248320, tied=True,
        linear_num_value_heads=16, layer_types=types("lllf" * 6), **DELTA),
    "qwen3.5-9b": row("qwen3_5_text", D=4096, F=12288, N=16, K=4, H=256, L=32, V=248320,
        linear_num_value_heads=32, layer_types=types("lllf" * 8), **DELTA),
    "qwen3.5-27b": row("qwen3_5_text", D=5120, F=17408, N=24, K=4, H=256, L=64, V=248320,
        linear_num_value_heads=48, layer_types=types("lllf" * 16), **DELTA),
    "qwen3.5-35b-a3b": row("qwen3_5_moe_text", D=2048, N=16, K=2, H=256, L=40, V=248320, E=256,
        k=8, M=512, shared_expert_intermediate_size=512, linear_num_value_heads=32,
        layer_types=types("lllf" * 10), **DELTA),
    "qwen3.5-122b-a10b": row("qwen3_5_moe_text", D=3072, N=32, K=2, H=256, L=48, V=248320, E=256,
        k=8, M=1024, shared_expert_intermediate_size=1024, linear_num_value_heads=64,
        layer_types=types("lllf" * 12), **DELTA),
    "qwen3.5-397b-a17b": row("qwen3_5_moe_text", D=4096, N=32, K=2, H=256, L=60, V=248320, E=512,
        k=10, M=1024, shared_expert_intermediate_size=1024, linear_num_value_heads=64,
        layer_types=types("lllf" * 15), **DELTA),
    "kimi-linear-48b-a3b": row("kimi_linear", D=2304, F=9216, N=32, K=32, L=27, V=163840, E=256,
        k=8, M=1024, num_shared_experts=1, q_lora_rank=None, linear_head_dim=128,
        linear_num_heads=32, mlp_layer_types=["dense"] + ["sparse"] * 26,
        layer_types=types("lllf" * 6, "llf"), **LATENT),
    "ling-3.0-flash": row("bailing_hybrid", D=2560, F=6144, N=32, K=32, L=42, V=157184, E=512, k=8,
        M=768, num_shared_experts=1, q_lora_rank=None, linear_head_dim=128, linear_num_heads=32,
        mlp_layer_types=["dense"] * 2 + ["sparse"] * 40, layer_types=types("lllllf" * 7),
        **LATENT),

    # Other recurrent layers
    "rwkv-4-7b": row("rwkv", D=4096, F=16384, L=32, V=50277, attention_hidden_size=4096),
    "recurrentgemma-2b": row("recurrent_gemma", D=2560, F=15360, N=10, K=1, L=26, V=256000, W=2048,
        tied=True, lru_width=2560, block_types=["recurrent", "recurrent", "attention"]),
    "xlstm-7b": row("xlstm", D=4096, N=8, L=32, V=50304, qk_dim_factor=0.5, v_dim_factor=1.0,
        ffn_proj_factor=2.667, ffn_round_up_to_multiple_of=64),
    # The class makes an MLP of 6656 narrower: by a third, rounded up to a multiple of 256.
    "lfm2-350m": row("lfm2", D=1024, F=6656, N=16, K=8, L=16, V=65536, tied=True, conv_L_cache=3,
        layer_types=types("ccf" * 3, "cf" * 3, "c")),
    "lfm2-24b-a2b": row("lfm2_moe", D=2048, F=11776, N=32, K=8, L=40, V=65536, tied=True, E=64,
        k=4, M=1536, num_dense_layers=2, conv_L_cache=3, layer_types=types("ccf", "cccf" * 9, "c")),

    # Sparse and compressed attention
    "deepseek-v3.2": row("deepseek_v32", D=7168, F=18432, N=128, K=128, L=61, V=129280, E=256, k=8,
        M=2048, n_shared_experts=1, first_k_dense_replace=3, q_lora_rank=1536, index_n_heads=64,
        **INDEX, **LATENT),
    "deepseek-v4-flash": row("deepseek_v4", D=4096, N=64, L=43, E=256, M=2048, q_lora_rank=1024,
        o_groups=8, index_topk=512, compress_ratios=[0, 0] + [4, 128] * 20 + [4, 0], **FLASH),
    "deepseek-v4-pro": row("deepseek_v4", D=7168, N=128, L=61, E=384, M=3072, q_lora_rank=1536,
        o_groups=16, index_topk=1024, compress_ratios=[128] * 2 + [4, 128] * 29 + [4, 0], **FLASH),
    "glm-5": row("glm_moe_dsa", D=6144, F=12288, N=64, K=64, L=78, V=154880, E=256, k=8, M=2048,
        n_shared_experts=1, first_k_dense_replace=3, q_lora_rank=2048, kv_lora_rank=512,
        qk_rope_head_dim=64, qk_nope_head_dim=192, v_head_dim=256, index_n_heads=32, **INDEX),
    "glm-5.1": row("glm_moe_dsa", D=6144, F=12288, N=64, K=64, L=78, V=154880, E=256, k=8, M=2048,
        n_shared_experts=1, first_k_dense_replace=3, q_lora_rank=2048, kv_lora_rank=512,
        qk_rope_head_dim=64, qk_nope_head_dim=192, v_head_dim=256, index_n_heads=32, **INDEX),
    "minimax-m3": row("minimax_m3_vl_text", D=6144, F=3072, N=64, K=4, H=128, L=60, V=200064,
        E=128, k=4, dense_intermediate_size=12288, shared_intermediate_size=3072,
        index_n_heads=4, index_head_dim=128, index_block_size=128, index_topk_blocks=16,
        mlp_layer_types=["dense"] * 3 + ["sparse"] * 57,
        layer_types=[FULL] * 3 + ["minimax_m3_sparse"] * 57),

    # Gemma with an embedding of each layer
    "gemma-3n-e2b": row("gemma3n_text", D=2048, F=8192, N=8, K=2, H=256, L=30, V=262400, W=512,
        tied=True, num_kv_shared_layers=10, altup_num_inputs=4, laurel_rank=64,
        hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
        layer_types=types("wwwwf" * 6), activation_sparsity_pattern=[0.95] * 10 + [0.0] * 20),
    "gemma-4-e2b": row("gemma4_text", D=1536, F=6144, N=8, K=1, H=256, L=35, V=262144, W=512,
        tied=True, num_kv_shared_layers=20, use_double_wide_mlp=True, global_head_dim=512,
        hidden_size_per_layer_input=256, vocab_size_per_layer_input=262144,
        layer_types=types("wwwwf" * 7)),
    "gemma-4-e4b": row("gemma4_text", D=2560, F=10240, N=8, K=2, H=256, L=42, V=262144, W=512,
        tied=True, num_kv_shared_layers=18, global_head_dim=512, hidden_size_per_layer_input=256,
        vocab_size_per_layer_input=262144, layer_types=types("wwwwwf" * 7)),

    # A diffusion model with the weights of a Llama, whose class keeps what this one does not need.
    "llada-8b": row("llama", D=4096, F=12288, N=32, K=32, L=32, V=126464),
}  # fmt: skip
"""Keys of config.json by preset."""

WITHOUT_CLASS: dict[str, str] = {
    "hunyuan-large": "pairs of layers share a cache, which no class of transformers does",
    "nemotron-super-49b": "layers of many widths, some without attention, in remote code alone",
    "rwkv-7-2.9b": "a class of flash-linear-attention alone",
}
"""Presets that nothing in transformers can make, and why."""
