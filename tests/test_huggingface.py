"""Models read from config.json: exact parameters and caches, and nothing but RooflmError.

Expected figures of FACTS: the full-size classes instantiated on the meta device, transformers
5.24.0; of Llama-3_3-Nemotron-Super-49B-v1: summed up from its block_configs. The configs are the
keys that matter and their published values.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rooflm.calc.errors import RooflmError
from rooflm.calc.huggingface import model_of_config, read_config
from rooflm.calc.model import (
    Model,
    active_parameters,
    cache_elements,
    streamed_parameters,
    total_parameters,
)


class Figures(NamedTuple):
    """What a model is known to have [1]."""

    total: int
    active: int
    cache: int
    """Elements of a token at a short context, of all layers, as the reference keeps them."""
    growth: int
    """Elements that a further token adds beyond all windows."""


def block(heads: int | None, ratio: float) -> dict[str, Any]:
    """Make a block of a model found by a search: heads of a group and F / (2/3 D)."""
    attention = {"n_heads_in_group": heads, "no_op": heads is None}
    return {"attention": attention, "ffn": {"ffn_mult": ratio, "no_op": False}}


RATIOS = (
    [2.625] * 2 + [3.28125] + [1.3125, 2.625, 2.625, 1.3125, 5.25, 1.3125, 2.625] + [1.3125] * 3
    + [1.3125, 1.0, 1.0, 1.3125, 1.0, 1.0, 1.0, 1.3125, 1.3125, 0.5, 0.5, 1.0, 1.0, 0.5, 0.5]
    + [1.0, 0.5, 0.5]
)  # fmt: skip
"""Widths of the 31 blocks without attention, in their order."""
BLOCKS = (
    [block(8, 2.625)] + [block(8, 5.25)] * 5 + [block(None, r) for r in RATIOS[:2]]
    + [block(8, 5.25)] * 3 + [block(None, r) for r in RATIOS[2:3]] + [block(8, 5.25)] * 30
    + [block(None, r) for r in RATIOS[3:13]] + [block(8, 5.25)]
    + [block(None, r) for r in RATIOS[13:]] + [block(8, 5.25)] * 9
)  # fmt: skip

FACTS: dict[str, tuple[dict[str, Any], Figures]] = {
    # https://huggingface.co/meta-llama/Meta-Llama-3.1-8B
    "Meta-Llama-3.1-8B": (
        {"max_position_embeddings": 131072, "model_type": "llama", "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "vocab_size": 128256},
        Figures(8_030_261_248, 8_030_261_248, 65_536, 65_536),
    ),
    # https://huggingface.co/meta-llama/Llama-3.2-3B
    "Llama-3.2-3B": (
        {"max_position_embeddings": 131072, "model_type": "llama", "hidden_size": 3072,
        "intermediate_size": 8192, "num_attention_heads": 24, "num_hidden_layers": 28,
        "num_key_value_heads": 8, "tie_word_embeddings": True, "vocab_size": 128256},
        Figures(3_212_749_824, 3_212_749_824, 57_344, 57_344),
    ),
    # https://huggingface.co/lmsys/vicuna-13b-v1.3
    "vicuna-13b-v1.3": (
        {"max_position_embeddings": 2048, "model_type": "llama", "hidden_size": 5120,
        "intermediate_size": 13824, "num_attention_heads": 40, "num_hidden_layers": 40,
        "vocab_size": 32000},
        Figures(13_015_864_320, 13_015_864_320, 409_600, 409_600),
    ),
    # https://huggingface.co/mistralai/Mistral-7B-v0.1
    "Mistral-7B-v0.1": (
        {"max_position_embeddings": 32768, "model_type": "mistral", "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 8, "vocab_size": 32000},
        Figures(7_241_732_096, 7_241_732_096, 65_536, 0),
    ),
    # https://huggingface.co/mistralai/Mixtral-8x7B-v0.1
    "Mixtral-8x7B-v0.1": (
        {"max_position_embeddings": 32768, "model_type": "mixtral", "hidden_size": 4096,
        "intermediate_size": 14336, "num_attention_heads": 32, "num_experts_per_tok": 2,
        "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size":
        32000},
        Figures(46_702_792_704, 12_879_925_248, 65_536, 65_536),
    ),
    # https://huggingface.co/mistralai/Ministral-3-14B-Base-2512
    "Ministral-3-14B-Base-2512": (
        {"model_type": "mistral3", "text_config": {"max_position_embeddings": 262144, "model_type":
        "ministral3", "hidden_size": 5120, "intermediate_size": 16384, "num_attention_heads": 32,
        "num_hidden_layers": 40, "num_key_value_heads": 8, "vocab_size": 131072}},
        Figures(13_506_073_600, 13_506_073_600, 81_920, 81_920),
    ),
    # https://huggingface.co/Qwen/Qwen2.5-3B
    "Qwen2.5-3B": (
        {"max_position_embeddings": 32768, "model_type": "qwen2", "use_sliding_window": False,
        "hidden_size": 2048, "intermediate_size": 11008, "num_attention_heads": 16,
        "num_hidden_layers": 36, "num_key_value_heads": 2, "tie_word_embeddings": True,
        "vocab_size": 151936},
        Figures(3_085_938_688, 3_085_938_688, 18_432, 18_432),
    ),
    # https://huggingface.co/Qwen/Qwen3-0.6B
    "Qwen3-0.6B": (
        {"max_position_embeddings": 40960, "model_type": "qwen3", "use_sliding_window": False,
        "hidden_size": 1024, "intermediate_size": 3072, "num_attention_heads": 16,
        "num_hidden_layers": 28, "num_key_value_heads": 8, "tie_word_embeddings": True,
        "vocab_size": 151936},
        Figures(596_049_920, 596_049_920, 57_344, 57_344),
    ),
    # https://huggingface.co/Qwen/Qwen1.5-MoE-A2.7B
    "Qwen1.5-MoE-A2.7B": (
        {"max_position_embeddings": 32768, "model_type": "qwen2_moe", "use_sliding_window": False,
        "hidden_size": 2048, "num_attention_heads": 16, "num_hidden_layers": 24,
        "num_key_value_heads": 16, "vocab_size": 151936, "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632, "num_experts_per_tok": 4, "num_experts": 60},
        Figures(14_315_784_192, 2_689_173_504, 98_304, 98_304),
    ),
    # https://huggingface.co/Qwen/Qwen3-30B-A3B
    "Qwen3-30B-A3B": (
        {"max_position_embeddings": 40960, "model_type": "qwen3_moe", "use_sliding_window": False,
        "head_dim": 128, "hidden_size": 2048, "moe_intermediate_size": 768, "num_attention_heads":
        32, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48,
        "num_key_value_heads": 4, "vocab_size": 151936},
        Figures(30_532_122_624, 3_353_032_704, 49_152, 49_152),
    ),
    # https://huggingface.co/Qwen/Qwen3-VL-30B-A3B-Instruct
    "Qwen3-VL-30B-A3B-Instruct": (
        {"model_type": "qwen3_vl_moe", "text_config": {"max_position_embeddings": 262144,
        "model_type": "qwen3_vl_moe_text", "head_dim": 128, "hidden_size": 2048,
        "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
        "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size":
        151936}},
        Figures(30_532_122_624, 3_353_032_704, 49_152, 49_152),
    ),
    # https://huggingface.co/google/gemma-7b
    "gemma-7b": (
        {"model_type": "gemma", "max_position_embeddings": 8192, "hidden_size": 3072,
        "intermediate_size": 24576, "num_hidden_layers": 28, "num_attention_heads": 16,
        "num_key_value_heads": 16, "vocab_size": 256000},
        Figures(8_537_680_896, 8_537_680_896, 229_376, 229_376),
    ),
    # https://huggingface.co/google/gemma-2-2b
    "gemma-2-2b": (
        {"max_position_embeddings": 8192, "model_type": "gemma2", "hidden_size": 2304,
        "intermediate_size": 9216, "num_attention_heads": 8, "num_hidden_layers": 26,
        "num_key_value_heads": 4, "vocab_size": 256000},
        Figures(2_614_341_888, 2_614_341_888, 53_248, 26_624),
    ),
    # https://huggingface.co/google/gemma-3-27b-it
    "gemma-3-27b-it": (
        {"model_type": "gemma3", "text_config": {"max_position_embeddings": 131072, "model_type":
        "gemma3_text", "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16,
        "sliding_window": 1024}},
        Figures(27_009_346_304, 27_009_346_304, 253_952, 40_960),
    ),
    # https://huggingface.co/google/gemma-4-31B
    "gemma-4-31B": (
        {"model_type": "gemma4", "text_config": {"max_position_embeddings": 262144, "model_type":
        "gemma4_text", "attention_k_eq_v": True, "hidden_size": 5376,
        "hidden_size_per_layer_input": 0, "intermediate_size": 21504, "layer_types":
        ["sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention",
        "sliding_attention", "full_attention"] * 10, "num_attention_heads": 32,
        "num_global_key_value_heads": 4, "num_hidden_layers": 60, "num_key_value_heads": 16,
        "sliding_window": 1024, "vocab_size": 262144}},
        Figures(30_697_345_280, 30_697_345_280, 450_560, 40_960),
    ),
    # AI-Hypercomputer/maxtext, src/maxtext/configs/models/gemma4-12b.yml
    "gemma-4-12B": (
        {"model_type": "gemma4_unified", "text_config": {"model_type": "gemma4_unified_text",
        "attention_k_eq_v": True, "hidden_size": 3840, "intermediate_size": 15360, "layer_types":
        (["sliding_attention"] * 5 + ["full_attention"]) * 8, "num_attention_heads": 16,
        "num_global_key_value_heads": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
        "vocab_size": 262144}},
        Figures(11_907_350_272, 11_907_350_272, 172_032, 8_192),
    ),
    # huggingface/transformers, src/transformers/models/gemma4/convert_gemma4_weights.py
    "gemma-4-26B-A4B": (
        {"model_type": "gemma4", "text_config": {"max_position_embeddings": 262144, "model_type":
        "gemma4_text", "attention_k_eq_v": True, "enable_moe_block": True, "hidden_size": 2816,
        "hidden_size_per_layer_input": 0, "intermediate_size": 2112, "layer_types":
        (["sliding_attention"] * 5 + ["full_attention"]) * 5, "moe_intermediate_size": 704,
        "num_attention_heads": 16, "num_experts": 128, "num_global_key_value_heads": 2,
        "num_hidden_layers": 30, "num_key_value_heads": 8, "sliding_window": 1024,
        "top_k_experts": 8, "vocab_size": 262144}},
        Figures(25_233_141_760, 3_822_530_560, 112_640, 10_240),
    ),
    # https://huggingface.co/openai-community/gpt2
    "gpt2": (
        {"model_type": "gpt2", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024,
        "vocab_size": 50257},
        Figures(124_439_808, 124_439_808, 18_432, 18_432),
    ),
    # https://huggingface.co/bigcode/starcoder
    "starcoder": (
        {"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "n_positions":
        8192, "vocab_size": 49152},
        Figures(15_517_456_384, 15_517_456_384, 10_240, 10_240),
    ),
    # https://huggingface.co/EleutherAI/pythia-12b
    "pythia-12b": (
        {"model_type": "gpt_neox", "hidden_size": 5120, "num_hidden_layers": 36,
        "num_attention_heads": 40, "intermediate_size": 20480, "vocab_size": 50688},
        Figures(11_846_072_320, 11_846_072_320, 368_640, 368_640),
    ),
    # https://huggingface.co/facebook/opt-350m
    "opt-350m": (
        {"model_type": "opt", "max_position_embeddings": 2048, "num_hidden_layers": 24,
        "hidden_size": 1024, "word_embed_proj_dim": 512, "num_attention_heads": 16, "ffn_dim":
        4096, "do_layer_norm_before": False, "vocab_size": 50272},
        Figures(331_196_416, 331_196_416, 49_152, 49_152),
    ),
    # https://huggingface.co/bigscience/bloom-560m
    "bloom-560m": (
        {"model_type": "bloom", "n_layer": 24, "hidden_size": 1024, "n_head": 16, "vocab_size":
        250880},
        Figures(559_214_592, 559_214_592, 49_152, 49_152),
    ),
    # https://huggingface.co/mosaicml/mpt-7b
    "mpt-7b": (
        {"model_type": "mpt", "n_layers": 32, "d_model": 4096, "n_heads": 32, "max_seq_len": 2048,
        "vocab_size": 50432},
        Figures(6_649_286_656, 6_649_286_656, 262_144, 262_144),
    ),
    # https://huggingface.co/tiiuae/falcon-180B
    "falcon-180B": (
        {"model_type": "falcon", "num_hidden_layers": 80, "hidden_size": 14848,
        "num_attention_heads": 232, "num_kv_heads": 8, "new_decoder_architecture": True,
        "vocab_size": 65024},
        Figures(178_557_088_768, 178_557_088_768, 2_375_680, 2_375_680),
    ),
    # https://huggingface.co/tiiuae/falcon-rw-1b
    "falcon-rw-1b": (
        {"model_type": "falcon", "num_hidden_layers": 24, "hidden_size": 2048,
        "num_attention_heads": 32, "bias": True, "multi_query": False, "parallel_attn": False,
        "vocab_size": 50304},
        Figures(1_311_625_216, 1_311_625_216, 98_304, 98_304),
    ),
    # https://huggingface.co/THUDM/chatglm3-6b
    "chatglm3-6b": (
        {"model_type": "chatglm", "add_qkv_bias": True, "ffn_hidden_size": 13696, "hidden_size":
        4096, "multi_query_attention": True, "multi_query_group_num": 2, "num_attention_heads": 32,
        "num_layers": 28, "padded_vocab_size": 65024, "seq_length": 8192},
        Figures(6_243_584_000, 6_243_584_000, 14_336, 14_336),
    ),
    # https://huggingface.co/CohereForAI/c4ai-command-a-03-2025
    "c4ai-command-a-03-2025": (
        {"max_position_embeddings": 131072, "model_type": "cohere2", "hidden_size": 12288,
        "intermediate_size": 36864, "num_attention_heads": 96, "num_hidden_layers": 64,
        "num_key_value_heads": 8, "vocab_size": 256000},
        Figures(111_057_580_032, 111_057_580_032, 131_072, 32_768),
    ),
    # https://huggingface.co/microsoft/phi-1_5
    "phi-1_5": (
        {"model_type": "phi", "max_position_embeddings": 2048, "hidden_size": 2048,
        "intermediate_size": 8192, "num_hidden_layers": 24, "num_attention_heads": 32,
        "vocab_size": 51200},
        Figures(1_418_270_720, 1_418_270_720, 98_304, 98_304),
    ),
    # https://huggingface.co/microsoft/Phi-3-mini-4k-instruct
    "Phi-3-mini-4k-instruct": (
        {"model_type": "phi3", "max_position_embeddings": 4096, "hidden_size": 3072,
        "intermediate_size": 8192, "num_hidden_layers": 32, "num_attention_heads": 32,
        "vocab_size": 32064, "sliding_window": 2047},
        Figures(3_821_079_552, 3_821_079_552, 196_608, 0),
    ),
    # https://huggingface.co/allenai/OLMo-2-1124-7B
    "OLMo-2-1124-7B": (
        {"max_position_embeddings": 4096, "model_type": "olmo2", "hidden_size": 4096,
        "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32,
        "vocab_size": 100352},
        Figures(7_298_617_344, 7_298_617_344, 262_144, 262_144),
    ),
    # https://huggingface.co/deepseek-ai/DeepSeek-V2
    "DeepSeek-V2": (
        {"max_position_embeddings": 163840, "model_type": "deepseek_v2", "first_k_dense_replace":
        1, "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size": 1536,
        "n_routed_experts": 160, "num_attention_heads": 128, "num_experts_per_tok": 6,
        "num_hidden_layers": 60, "vocab_size": 102400},
        Figures(235_741_434_880, 21_375_800_320, 34_560, 34_560),
    ),
    # https://huggingface.co/moonshotai/Kimi-K2-Instruct
    "Kimi-K2-Instruct": (
        {"max_position_embeddings": 131072, "model_type": "kimi_k2", "first_k_dense_replace": 1,
        "hidden_size": 7168, "intermediate_size": 18432, "moe_intermediate_size": 2048,
        "n_routed_experts": 384, "num_attention_heads": 64, "num_experts_per_tok": 8,
        "num_hidden_layers": 61, "vocab_size": 163840},
        Figures(1_026_408_209_408, 32_861_477_888, 35_136, 35_136),
    ),
    # https://huggingface.co/meituan-longcat/LongCat-Flash-Chat
    "LongCat-Flash-Chat": (
        {"model_type": "longcat_flash", "max_position_embeddings": 131072, "vocab_size": 131072,
        "hidden_size": 6144, "num_layers": 28, "num_attention_heads": 64, "ffn_hidden_size": 12288,
        "expert_ffn_hidden_size": 2048, "n_routed_experts": 512, "moe_topk": 12},
        Figures(560_664_958_976, 27_954_796_544, 32_256, 32_256),
    ),
    # https://huggingface.co/openai/gpt-oss-120b
    "gpt-oss-120b": (
        {"max_position_embeddings": 131072, "model_type": "gpt_oss", "hidden_size": 2880,
        "intermediate_size": 2880, "num_attention_heads": 64, "num_experts_per_tok": 4,
        "num_hidden_layers": 36, "num_key_value_heads": 8, "num_local_experts": 128, "vocab_size":
        201088},
        Figures(116_829_156_672, 5_711_982_912, 36_864, 18_432),
    ),
    # https://huggingface.co/meta-llama/Llama-4-Scout-17B-16E-Instruct
    "Llama-4-Scout-17B-16E-Instruct": (
        {"model_type": "llama4", "text_config": {"max_position_embeddings": 10485760, "model_type":
        "llama4_text", "hidden_size": 5120, "intermediate_size": 8192, "num_attention_heads": 40,
        "num_experts_per_tok": 1, "num_hidden_layers": 48, "num_key_value_heads": 8,
        "num_local_experts": 16, "vocab_size": 202048}},
        Figures(107_769_861_120, 17_172_894_720, 98_304, 24_576),
    ),
    # https://huggingface.co/zai-org/GLM-4.5
    "GLM-4.5": (
        {"max_position_embeddings": 131072, "model_type": "glm4_moe", "attention_bias": True,
        "head_dim": 128, "hidden_size": 5120, "intermediate_size": 12288, "moe_intermediate_size":
        1536, "num_attention_heads": 96, "n_routed_experts": 160, "num_experts_per_tok": 8,
        "first_k_dense_replace": 3, "num_hidden_layers": 92, "num_key_value_heads": 8,
        "use_qk_norm": True, "vocab_size": 151552},
        Figures(352_797_814_784, 33_632_251_904, 188_416, 188_416),
    ),
    # https://huggingface.co/MiniMaxAI/MiniMax-M2
    "MiniMax-M2": (
        {"max_position_embeddings": 196608, "model_type": "minimax_m2", "hidden_size": 3072,
        "intermediate_size": 1536, "num_attention_heads": 48, "num_experts_per_tok": 8,
        "num_hidden_layers": 62, "num_key_value_heads": 8, "num_local_experts": 256, "vocab_size":
        200064},
        Figures(228_689_748_992, 11_030_537_216, 126_976, 126_976),
    ),
    # https://huggingface.co/tencent/Hunyuan-A13B-Instruct
    "Hunyuan-A13B-Instruct": (
        {"max_position_embeddings": 32768, "model_type": "hunyuan", "hidden_size": 4096,
        "intermediate_size": 3072, "moe_topk": [8] * 32, "num_attention_heads": 32, "num_experts":
        64, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_shared_expert": [1] * 32,
        "tie_word_embeddings": True, "use_mixed_mlp_moe": True, "use_qk_norm": True, "vocab_size":
        128167},
        Figures(80_393_183_232, 12_747_448_320, 65_536, 65_536),
    ),
    # https://huggingface.co/poolside/Laguna-XS.2
    "Laguna-XS.2": (
        {"model_type": "laguna", "max_position_embeddings": 131072, "vocab_size": 100352,
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 40,
        "num_attention_heads": 48, "num_key_value_heads": 8, "num_experts": 256,
        "num_experts_per_tok": 8, "moe_intermediate_size": 512, "layer_types": ["full_attention",
        "sliding_attention", "sliding_attention", "sliding_attention"] * 10,
        "num_attention_heads_per_layer": [48, 64, 64, 64] * 10},
        Figures(33_442_617_088, 3_017_135_872, 81_920, 20_480),
    ),
    # https://huggingface.co/arcee-ai/Trinity-Mini
    "Trinity-Mini": (
        {"max_position_embeddings": 131072, "model_type": "afmoe", "hidden_size": 2048,
        "intermediate_size": 6144, "moe_intermediate_size": 1024, "num_attention_heads": 32,
        "num_dense_layers": 2, "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers":
        32, "num_key_value_heads": 4, "num_shared_experts": 1, "sliding_window": 2048,
        "vocab_size": 200192},
        Figures(26_123_974_400, 3_474_732_800, 32_768, 8_192),
    ),
    # https://huggingface.co/swiss-ai/Apertus-70B-2509
    "Apertus-70B-2509": (
        {"max_position_embeddings": 65536, "model_type": "apertus", "hidden_size": 8192,
        "intermediate_size": 43008, "num_attention_heads": 64, "num_hidden_layers": 80,
        "num_key_value_heads": 8, "vocab_size": 131072},
        Figures(70_599_864_480, 70_599_864_480, 163_840, 163_840),
    ),
    # https://huggingface.co/nvidia/Llama-3_3-Nemotron-Super-49B-v1
    "Llama-3_3-Nemotron-Super-49B-v1": (
        {"max_position_embeddings": 131072, "model_type": "nemotron-nas", "block_configs": BLOCKS,
        "hidden_size": 8192, "num_attention_heads": 64, "num_hidden_layers": 80, "vocab_size":
        128256},
        Figures(49_867_145_216, 49_867_145_216, 100_352, 100_352),
    ),
}  # fmt: skip

LLAMA = FACTS["Meta-Llama-3.1-8B"][0]
GEMMA = FACTS["gemma-3-27b-it"][0]["text_config"]
KIMI = FACTS["Kimi-K2-Instruct"][0]
MOE = FACTS["Qwen1.5-MoE-A2.7B"][0] | {"intermediate_size": 5632}


def read(config: dict[str, Any]) -> Model:
    """Read plain data as a config.json."""
    return model_of_config(config, "model", "config.json")


def numbers(model: Model) -> tuple[Any, ...]:
    """Take the numbers that depend on a config."""
    caches = (cache_elements(model, 1), cache_elements(model, 10**6))
    return (
        total_parameters(model),
        active_parameters(model),
        streamed_parameters(model),
        *caches,
        model.positions,
    )


@pytest.mark.parametrize("name", FACTS)
def test_published_configs_are_exact(name: str) -> None:
    """Parameters, active parameters and cache of a published config come out to the unit."""
    config, figures = FACTS[name]
    model = read(config)
    far = 10**8
    growth = cache_elements(model, far + 1) - cache_elements(model, far)
    cache = model.reference_kv_elements or cache_elements(model, 1)
    repeats = 1 if model.reference_kv_elements is None else 29

    assert figures.total == total_parameters(model)
    assert figures.active == active_parameters(model)
    assert figures.cache == cache
    assert figures.growth == growth * repeats


@pytest.mark.parametrize("name", FACTS)
def test_every_number_says_where_it_came_from(name: str) -> None:
    """No provenance is empty, and the dimensions are all in it."""
    model = read(FACTS[name][0])

    assert all(field and value and origin for field, value, origin in model.provenance)
    assert {"D", "V", "L", "N", "tied", "norm"} <= {field for field, _, _ in model.provenance}


NF4 = {"_load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "quant_method": "bitsandbytes"}


@pytest.mark.parametrize(
    ("field", "value", "origin"),
    [
        ("D", "5120", "key hidden_size"),
        ("H", "128", "derived: hidden_size / num_attention_heads"),
        ("K", "40", "derived: num_attention_heads, as num_key_value_heads is absent"),
        ("tied", "False", "class default of llama"),
        ("norm", "rms", "class llama"),
        ("weights_format", "nf4", "key quantization_config: bitsandbytes, bnb_4bit_quant_type nf4"),
    ],
)
def test_provenance_names_key_rule_or_class(field: str, value: str, origin: str) -> None:
    """A field was read from a key, derived, or is what its class does."""
    config = FACTS["vicuna-13b-v1.3"][0] | {"quantization_config": NF4}

    assert (field, value, origin) in read(config).provenance


@pytest.mark.parametrize("outer", ["text_config", "llm_config", "language_config"])
def test_nested_configs_are_followed(outer: str) -> None:
    """The language model of a multimodal config is found under any of its names."""
    wrapped = {"model_type": "wrapper", "hidden_size": 1, "vision_config": {}, outer: LLAMA}

    assert numbers(read(LLAMA)) == numbers(read(wrapped))
    assert numbers(read(LLAMA)) == numbers(read({"thinker_config": {outer: LLAMA}}))


def test_tie_flag_of_the_wrapper_counts_where_the_inner_is_silent() -> None:
    """A head tied outside is tied; two flags that differ are refused."""
    assert read({"text_config": LLAMA, "tie_word_embeddings": True}).tied
    assert not read({"text_config": LLAMA}).tied
    with pytest.raises(RooflmError, match="True inside and False outside"):
        read({"text_config": LLAMA | {"tie_word_embeddings": True}, "tie_word_embeddings": False})


@pytest.mark.parametrize(
    ("key", "alias"),
    [
        ("hidden_size", "n_embd"),
        ("hidden_size", "d_model"),
        ("num_hidden_layers", "n_layer"),
        ("num_hidden_layers", "num_layers"),
        ("num_attention_heads", "n_head"),
        ("num_key_value_heads", "num_kv_heads"),
        ("num_key_value_heads", "num_heads_kv"),
        ("num_key_value_heads", "n_head_kv"),
        ("intermediate_size", "ffn_dim"),
        ("intermediate_size", "ffn_hidden_size"),
        ("vocab_size", "padded_vocab_size"),
        ("max_position_embeddings", "seq_length"),
    ],
)
def test_aliases_are_read(key: str, alias: str) -> None:
    """Other spellings of a key are as good, and two that differ are refused."""
    renamed = {alias if k == key else k: v for k, v in LLAMA.items()}

    assert numbers(read(LLAMA)) == numbers(read(renamed))
    if key != "max_position_embeddings":
        with pytest.raises(RooflmError, match="two spellings of one key"):
            read(LLAMA | {alias: 2})


HUGE = 10**30
CHANGES: dict[str, Callable[[Any], Any]] = {
    "null": lambda _: None,
    "text": str,
    "negative": lambda v: [-1] if isinstance(v, list) else -1,
    "zero": lambda _: 0,
    "huge": lambda _: HUGE,
    "flag": lambda v: not v,
    "fraction": lambda _: 1.5,
    "list": lambda _: [1, None],
    "map": lambda _: {"a": 1},
}


def mutations() -> list[tuple[str, str, str]]:
    """List each change of each key of four models."""
    models = {"llama": LLAMA, "gemma": GEMMA, "kimi": KIMI, "moe": MOE}
    return [
        (model, key, change)
        for model, config in models.items()
        for key in config
        for change in ("dropped", "renamed", *CHANGES)
    ]


@pytest.mark.parametrize(("name", "key", "change"), mutations())
def test_broken_configs_end_in_an_error_or_a_named_default(
    name: str, key: str, change: str
) -> None:
    """A key that is missing or wrong is refused, harmless, or replaced by what provenance names."""
    whole = {"llama": LLAMA, "gemma": GEMMA, "kimi": KIMI, "moe": MOE}[name]
    config = deepcopy(whole)
    value = config.pop(key)
    if change == "renamed":
        config[f"{key}_"] = value
    elif change != "dropped":
        config[key] = CHANGES[change](value)
    try:
        model = read(config)
    except RooflmError:
        return
    if numbers(model) == numbers(read(whole)) or config.get(key) == value:
        return
    said = " ".join(origin for _, _, origin in model.provenance)
    given = change in ("zero", "flag") and f"key {key}" in said
    assert given or "class default" in said or "derived" in said


@pytest.mark.parametrize("key", ["hidden_size", "vocab_size", "num_hidden_layers"])
def test_missing_sizes_name_the_key_and_its_aliases(key: str) -> None:
    """The error of a missing size says under which names it was looked for."""
    config = {k: v for k, v in LLAMA.items() if k != key}
    with pytest.raises(RooflmError, match=f"{key} is missing.*Looked for {key}.* or "):
        read(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gwen2"}, "unknown model_type 'gwen2'.*Did you mean qwen2"),
        ({"model_type": "nothing like it"}, "unknown model_type.*Known: afmoe, "),
        ({"model_type": None}, "model_type is missing"),
        ({"model_type": 3}, "model_type is not a word"),
        ({"model_type": "hunyuan", "moe_topk": 1}, "num_experts is missing"),
        ({"model_type": "mpt", "attn_config": {"kv_n_heads": 4}}, "grouped heads"),
        ({"model_type": "zamba"}, "zamba has state-space layers with projections"),
        ({"model_type": "jetmoe"}, "mixture of attention heads"),
        ({"model_type": "qwen2", "layer_types": ["mamba"] * 32}, "recurrent state"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, "list of 32 words"),
        ({"layer_types": ["sliding_attention"] * 32}, "does not have"),
        ({"model_type": "qwen2", "layer_types": ["odd"] * 32}, "unknown word 'odd' in layer_types"),
        ({"model_type": "exaone4", "sliding_window_pattern": "LXG"}, "Letters L and G"),
        ({"model_type": "llama4_text", "no_rope_layers": [1, 0]}, "a 0 or 1 for each layer"),
        (
            {"model_type": "llama4_text", "layer_types": ["sliding_attention"] * 32},
            "layer_types has windows, which llama4_text does not have",
        ),
        ({"num_key_value_heads": 5}, "32 query heads cannot share 5 key/value heads"),
        ({"num_attention_heads": 24, "num_key_value_heads": 8}, "24 heads do not divide"),
        ({"hidden_size": True}, "hidden_size is True"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'.*true or false"),
        ({"is_encoder_decoder": True}, "an encoder beside the decoder"),
        ({"text_config": 3}, "text_config is not a mapping"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(changes: dict[str, Any], message: str) -> None:
    """The error says which key, value, or part of a model stands in the way."""
    with pytest.raises(RooflmError, match=message):
        read(LLAMA | changes)


def test_class_name_stands_in_for_model_type() -> None:
    """A config without model_type is read by the name of its class."""
    config = {k: v for k, v in LLAMA.items() if k != "model_type"}
    named = read(config | {"architectures": ["LlamaForCausalLM"]})

    assert numbers(read(LLAMA)) == numbers(named)


def test_window_of_qwen_is_off_unless_switched_on() -> None:
    """sliding_window means nothing without use_sliding_window, and starts at a layer."""
    config = FACTS["Qwen2.5-3B"][0] | {"sliding_window": 1024, "max_window_layers": 20}
    on = read(config | {"use_sliding_window": True})

    assert [g.mixer.kind for g in read(config).groups] == ["full"]
    assert [(g.name, g.count) for g in on.groups] == [("full", 20), ("sliding", 16)]


def test_layers_of_the_same_kind_are_one_group() -> None:
    """Groups are named by what tells them apart."""
    trinity = read(FACTS["Trinity-Mini"][0])

    assert [(g.name, g.count) for g in read(KIMI).groups] == [("dense", 1), ("moe", 60)]
    assert {"sliding_dense", "sliding_moe", "full_moe"} == {g.name for g in trinity.groups}


def test_files_and_folders_are_read(tmp_path: Path) -> None:
    """A config.json is found by its own name or that of its folder."""
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA), encoding="utf-8")

    assert read_config(file) == read_config(tmp_path)
    assert read_config(tmp_path).name == tmp_path.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"a": 1,\n "b" 2}', "not valid JSON.*config.json:2:6"),
        ("", "the file is empty.*config.json"),
        ("[1]", "mapping of keys"),
        ("{}", "model_type is missing.*config.json"),
        ('{"a": 1, "a": 2}', "'a' stands twice"),
        ("[" * 10**5, "nested too deeply"),
        ('{"a": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"a": NaN', "not valid JSON"),
        ("\0", "not text"),
        ('{"a": "' + "x" * 2**22 + '"}', "larger than 4 MiB"),
    ],
)
def test_files_that_are_no_config_are_refused(text: str, message: str, tmp_path: Path) -> None:
    """The error names the file, and the line and column where JSON breaks."""
    file = tmp_path / "config.json"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(RooflmError, match=message):
        read_config(file)


@pytest.mark.parametrize("name", ["nowhere", "a\0b"])
def test_files_that_are_not_there_are_refused(name: str, tmp_path: Path) -> None:
    """A path without a file is an error of the user."""
    with pytest.raises(RooflmError):
        read_config(tmp_path / name)
