"""What the facts of a log are called: engines, settings, and figures in words."""

from __future__ import annotations

ENGINES = {
    "vllm": "vLLM", "sglang": "SGLang", "trtllm": "TensorRT-LLM", "llamacpp": "llama.cpp",
}  # fmt: skip
"""Engines by the short names of their patterns."""

SETTINGS = (
    "dtype", "quantization", "kv_cache_dtype", "state_dtype", "max_model_len", "gpu_memory_utilization", "tp",
    "pp", "dp", "ep", "block_size", "swap_space", "max_num_seqs", "max_num_batched_tokens",
    "speculative", "lora", "mem_fraction_static", "context_length", "page_size", "pool_dtype",
    "swa_full_tokens_ratio",
    "max_running_requests", "free_gpu_memory_fraction", "tokens_per_block", "max_seq_len",
    "max_batch_size", "max_beam_width", "window", "architecture", "n_layer", "n_embd", "n_vocab",
    "n_head", "n_head_kv", "n_embd_head_k", "n_embd_k_gqa", "n_embd_v_gqa", "n_swa",
    "n_ctx_train", "kv_rank", "params", "bpw", "file_type", "type_k", "type_v", "n_ctx",
    "n_seq_max", "n_parallel", "ctx_size", "n_batch", "n_ubatch", "flash_attn", "kv_unified",
    "ngl", "padding_layers", "page_padding", "cells", "cache_layers", "streams",
    "full_cells", "state_cells", "state_layers", "concurrency_len", "utilization",
)  # fmt: skip
"""Facts that are told to an engine, or dimensions of its model."""

FIGURES = {
    "total": "memory of the device, as the driver tells it",
    "free": "free memory of the device before anything was loaded",
    "usable": "memory that the engine may use: a share of the total",
    "effective": "the share without what is set aside for CUDA graphs",
    "weights": "weights on one device after loading",
    "non_torch": "memory outside torch: context, NCCL, workspaces",
    "activation": "most that activations took in a trial pass",
    "peak_torch": "most that torch held in a trial pass, weights included",
    "graphs": "memory set aside for CUDA graphs",
    "graphs_taken": "memory that captured CUDA graphs took",
    "pool": "memory for keys and values on one device",
    "suggested": "pool that would use all that the engine may use",
    "gpu_blocks": "blocks of the pool",
    "cpu_blocks": "blocks of the swap space in host memory",
    "tokens": "tokens that the pool holds",
    "stored": "tokens that the pool holds",
    "concurrency": "requests of the longest context that the pool holds",
    "needed": "cache of one request of the longest context",
    "estimated_len": "longest context whose cache would fit in the pool",
    "avail_begin": "free memory before the weights",
    "avail_end": "free memory after the weights",
    "k_size": "keys of all tokens on one device",
    "v_size": "values of all tokens on one device",
    "kv_size": "cache of all tokens",
    "avail_pool": "free memory after the pool was allocated",
    "avail_graph": "free memory before CUDA graphs",
    "avail_after": "free memory after CUDA graphs",
    "avail_last": "free memory of the running server",
    "max_total_tokens": "tokens that the pool holds",
    "full_tokens": "tokens that the pool of full layers holds",
    "swa_tokens": "tokens that the pool of window layers holds",
    "mamba_slots": "sequences whose recurrent states are held",
    "conv_state": "columns of convolutions of all slots",
    "ssm_state": "recurrent states of all slots",
    "engine": "weights of the engine file on one device",
    "context_now": "memory that TensorRT manages: the weights of the engine",
    "kv_bytes": "cache of all tokens on one device",
    "available": "free memory before the pool",
    "blocks": "blocks of the pool",
    "pages_per_sequence": "blocks that the longest sequence takes",
    "file_size": "weights of the file",
    "layers_offloaded": "layers on GPUs",
    "layers_total": "layers that can be on GPUs: those of the model, and the output",
    "device_weights": "weights in the buffer of one device",
    "device_kv": "cache in the buffer of one device",
    "compute_buffer": "activations and workspaces of one device",
    "output_buffer": "logits and embeddings that are handed out",
    "swa_cells": "cells of the layers that keep a window",
    "state": "recurrent states of all sequences",
    "ollama_kv": "cache that ollama counts on",
    "ollama_weights": "weights that ollama counts on",
    "ollama_graph": "activations and workspaces that ollama counts on",
}
"""Figures in words."""
