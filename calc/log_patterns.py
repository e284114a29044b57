r"""What engines print when they start: lines, as regular expressions with named groups.

A pattern belongs to an engine and is tried where its key stands in a line. The name of a group is
that of a fact, and after two underscores how it is written:

n   a whole number, with or without commas     x   a number, which may be rounded
v   a number as it was typed, not rounded
gib, mib, b   a number in that unit            gb, mb   so called, and GiB or MiB in fact
size   a number with its unit                  t   a word

vLLM up to 0.8, SGLang and TensorRT-LLM divide by 2**30 and write GB: vllm/model_executor and
worker.py (`/ float(2**30)`), python/sglang/srt/utils.py (`/ (1 << 30)`); llama.cpp divided by
2**20 and wrote MB until 2023. Gaps between two words are bounded, so that no line takes long.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_X = r"\d[\d,]{0,30}(?:\.\d{1,12})?"
_SORTS = {
    "n": r"\d[\d,]{0,30}", "b": r"\d[\d,]{0,30}", "x": _X, "v": _X, "gib": _X, "mib": _X, "gb": _X,
    "mb": _X, "size": r"\d{1,15}(?:\.\d{1,12})? ?[KMGT]?i?B\b",
    "t": r"[^\s,'\"()\[\]{}]{1,200}",
}  # fmt: skip
_FIELD = re.compile(r"(?<!P)<([a-z]\w*?)__(\w+)>")


@dataclass(frozen=True)
class Pattern:
    """A line of an engine, or a part of one."""

    engine: str
    """Empty where several engines print it."""
    key: str
    """What has to stand in the line."""
    regex: re.Pattern[str]
    begins: bool = False
    """The line is the first of a start."""


def _made(engine: str, key: str, text: str, begins: bool = False) -> Pattern:
    """Compile a row of a table, with `<name__sort>` for a group of that sort."""
    written = _FIELD.sub(lambda m: f"(?P<{m[1]}__{m[2]}>{_SORTS[m[2]]})", text)
    return Pattern(engine, key, re.compile(written), begins)


def _setting(name: str, sort: str, *spellings: str) -> list[tuple[str, str, str]]:
    """List the ways to write a setting: in a namespace, in a dict, on a command line."""
    field = rf"['\"]?<{name}__{sort}>"
    ways = [
        ("", word, rf"(?<![\w.-]){word}(?:=|['\"]: ?){field}")
        for word in spellings
        if not word.startswith("-")
    ]
    typed = [word for word in spellings if word.startswith("-")]
    typed += [w[:2] + w[2:].replace("-", "_") for w in typed if "-" in w[2:]]
    return ways + [("", word, rf"(?<![\w-]){word}[= ]{{1,4}}{field}") for word in typed]


_SETTINGS = [
    *_setting("model", "t", "model", "model_tag", "model_path", "--model", "--model-path"),
    *_setting("max_model_len", "n", "max_model_len", "max_seq_len", "--max-model-len"),
    *_setting("gpu_memory_utilization", "v", "gpu_memory_utilization", "--gpu-memory-utilization"),
    *_setting("tp", "n", "tensor_parallel_size", "tp_size", "--tensor-parallel-size", "--tp-size",
              "--tp", "-tp"),
    *_setting("pp", "n", "pipeline_parallel_size", "pp_size", "--pipeline-parallel-size",
              "--pp-size", "-pp"),
    *_setting("dp", "n", "data_parallel_size", "dp_size", "--data-parallel-size", "-dp"),
    *_setting("block_size", "n", "block_size", "--block-size"),
    *_setting("page_size", "n", "page_size", "--page-size"),
    *_setting("quantization", "t", "quantization", "--quantization"),
    *_setting("kv_cache_dtype", "t", "kv_cache_dtype", "--kv-cache-dtype"),
    *_setting("state_dtype", "t", "mamba_ssm_cache_dtype", "mamba_ssm_dtype",
              "--mamba-ssm-cache-dtype", "--mamba-ssm-dtype"),
    *_setting("swap_space", "v", "swap_space", "--swap-space"),
    *_setting("max_num_seqs", "n", "max_num_seqs", "--max-num-seqs"),
    *_setting("max_num_batched_tokens", "n", "max_num_batched_tokens",
              "--max-num-batched-tokens"),
    *_setting("mem_fraction_static", "v", "mem_fraction_static", "--mem-fraction-static"),
    *_setting("swa_full_tokens_ratio", "v", "swa_full_tokens_ratio", "--swa-full-tokens-ratio"),
    *_setting("context_length", "n", "context_length", "context_len", "--context-length"),
    *_setting("ngl", "n", "--n-gpu-layers", "-ngl"),
    *_setting("n_parallel", "n", "--parallel", "-np"),
    *_setting("ctx_size", "n", "--ctx-size"),
    *_setting("free_gpu_memory_fraction", "v", "free_gpu_memory_fraction",
              "kv_cache_free_gpu_mem_fraction", "kv_cache_free_gpu_memory_fraction",
              "--kv_cache_free_gpu_memory_fraction"),
    ("", "dtype=", r"(?<![\w-])dtype=(?:torch\.)?['\"]?<dtype__t>"),
    ("", "'dtype'", r"'dtype': ?['\"]?(?:torch\.)?<dtype__t>"),
    ("", "--dtype", r"--dtype[= ]{1,4}<dtype__t>"),
    ("", "speculative", r"speculative[-_](?:config|algorithm|model)['\"]?[=:\s]{1,4}"
     r"(?P<speculative__t>(?!None|null)[^\s,]{2,80})"),
    ("", "enable_lora", r"enable_lora['\"]?\s?[=:]\s?(?P<lora__t>True)"),
    ("", "enable_expert_parallel", r"enable_expert_parallel['\"]?\s?[=:]\s?(?P<ep__t>True)"),
    ("", "--enable-expert-parallel", r"(?P<ep__t>--enable-expert-parallel)"),
]  # fmt: skip

_BEGINS = [
    ("vllm", r"LLM engine (", r"Initializing an? (?:V[01] )?LLM engine \(v?<version__t>\)"),
    ("vllm", r"LLM engine with config", r"Initializing an (?P<banner__t>LLM engine) with config"),
    ("vllm", r"API server version", r"vLLM API server version:? <version__t>"),
    ("vllm", "vllm serve", r"\bvllm serve <model__t>"),
    ("sglang", "ServerArgs(", r"(?P<banner__t>ServerArgs)\("),
    ("sglang", "sglang", r"(?P<banner__t>sglang)(?:\.launch_server| serve)\b"),
    ("trtllm", "TensorRT-LLM version", r"TensorRT-LLM version:? <version__t>"),
    (
        "llamacpp",
        "llama_model_loader: loaded",
        r"llama_model_loader: (?P<banner__t>loaded) meta data",
    ),
    ("llamacpp", "llama.cpp: loading model", r"(?P<banner__t>llama\.cpp): loading model"),
]

_VLLM = [
    ("Using max model len", r"Using max model len <max_model_len__n>"),
    ("attention block size to", r"Setting attention block size to <block_size__n> tokens"),
    ("kv cache block size to", r"(?:Forcing|Setting) kv cache block size to <block_size__n>"),
    ("padding layers", r"Add <padding_layers__n> padding layers"),
    ("mamba_ssm_cache_dtype to", r"Updating mamba_ssm_cache_dtype to '<state_dtype__t>'"),
    ("Padding mamba page", r"Padding mamba page size by <page_padding__x>%"),
    ("weights took", r"Loading model weights took <weights__gb> GB"),
    ("odel loading took", r"[Mm]odel loading took <weights__gib> GiB"),
    ("Gib", r"\bmodel weights take <weights__gib>Gib"),
    ("total_gpu_memory (", r"total_gpu_memory \(<total__gib>GiB\) x gpu_memory_utilization "
     r"\(<utilization__x>\) = <usable__gib>GiB"),
    ("model weights take", r"model weights take {1,8}<weights__gib>GiB"),
    ("non_torch_memory", r"non_torch_memory(?: takes)?[ =]{1,12}<non_torch__gib>Gi[Bb]"),
    ("activation peak memory", r"activation peak memory(?: takes)? {1,12}<activation__gib>GiB"),
    ("reserved for KV Cache is", r"reserved for KV Cache is <pool__gib>GiB"),
    ("available_kv_cache_memory", r"available_kv_cache_memory[ =]{1,12}<pool__gib>GiB"),
    ("kv_cache_size=", r"kv_cache_size=<pool__gib>GiB"),
    ("total_gpu_memory", r"total_gpu_memory[ =]{1,12}<total__gib>GiB"),
    ("gpu_memory_utilization  ", r"gpu_memory_utilization {2,12}<utilization__x>"),
    ("vLLM instance can use  ", r"vLLM instance can use {2,12}<usable__gib>GiB"),
    ("peak_torch_memory", r"peak_torch_memory=<peak_torch__gib>GiB"),
    ("gpu_memory_utilization=", r"\bgpu_memory_utilization=<utilization__x>"),
    ("ilable KV cache memory:", r"Available KV cache memory: <pool__gib> GiB"),
    ("Free memory on device", r"Free memory on device(?: [\w:]{1,12})? \(<free__gib>/<total__gib> "
     r"GiB\) on startup"),
    ("Desired GPU memory utilization", r"Desired GPU memory utilization is \(<utilization__v>, "
     r"<usable__gib> GiB\)"),
    ("GiB for weight", r"Actual usage(?: is|:) <weights__gib> GiB for weights?, "
     r"<activation__gib> GiB for peak activation, <non_torch__gib> GiB for non-torch memory"),
    ("raph memory", r"<graphs__gib> GiB for (?:CUDAGraph|NPU graph|CUDA graph) memory"),
    ("--kv-cache-memory=", r"--kv-cache-memory=<suggested__b>` .{0,30}?to fit in"),
    ("# GPU blocks", r"# GPU blocks: <gpu_blocks__n>"),
    ("blocks:", r"# (?:CUDA|cuda|rocm|ROCM|xpu|npu) blocks: <gpu_blocks__n>"),
    ("# CPU blocks", r"# CPU blocks: <cpu_blocks__n>"),
    ("KV cache size:", r"\b(?:GPU|NPU|CPU|XPU) KV cache size: <tokens__n> tokens"),
    ("aximum concurrency for", r"Maximum concurrency for <concurrency_len__n> tokens per request: "
     r"<concurrency__x>x"),
    ("larger than the maximum number of tokens", r"max seq len \(<max_model_len__n>\) is larger "
     r"than the maximum number of tokens that can be stored in KV cache \(<stored__n>\)"),
    ("at least one request with", r"max seq len \(<max_model_len__n>\),? ?\(<needed__gib> GiB KV "
     r"cache is needed"),
    ("available KV cache memory (", r"available KV cache memory \(<pool__gib> GiB\)"),
    ("estimated maximum model length", r"estimated maximum model length is <estimated_len__n>"),
    ("Graph capturing finished", r"Graph capturing finished in \d{1,6} secs?, took "
     r"<graphs_taken__gib> GiB"),
    ("CUDA graph memory:", r"Estimated CUDA graph memory: <graphs__gib> GiB"),
    ("CUDA graph memory profiling is", r"--gpu-memory-utilization=<utilization__x> is equivalent "
     r"to --gpu-memory-utilization=<effective__x> without"),
    ("num_device_blocks", r"num_device_blocks=<gpu_blocks__n>"),
    ("MTP model", r"(?P<speculative__t>MTP) model"),
    ("draft", r"Loading (?P<speculative__t>drafter|draft) model"),
]  # fmt: skip

_SGLANG = [
    ("sglang", r"\bsglang[ =]{1,2}v?<version__t>"),
    ("Load weight begin", r"Load weight begin\. avail mem=<avail_begin__gb> ?GB"),
    ("Load weight end", r"Load weight end\..{0,300}?avail mem=<avail_end__gb> ?GB"),
    ("Load weight end", r"Load weight end\..{0,300}?mem usage=<weights__gb> ?GB"),
    ("Load weight end", r"Load weight end\..{0,200}?\bquant=<quantization__t>"),
    ("Load weight end", r"Load weight end\..{0,120}?type=<architecture__t>"),
    ("Load weight end", r"Load weight end\..{0,200}?dtype=(?:torch\.)?<dtype__t>"),
    ("KV Cache is allocated", r"KV Cache is allocated\.(?: dtype: (?:torch\.)?<pool_dtype__t>,)? "
     r"#tokens: <tokens__n>"),
    ("K size:", r"K size: <k_size__gb> ?GB, V size: <v_size__gb> ?GB"),
    ("KV size:", r"KV size: <kv_size__gb> ?GB"),
    ("Memory pool end", r"Memory pool end\. avail mem=<avail_pool__gb> ?GB"),
    ("Capture cuda graph begin", r"Capture cuda graph begin\..{0,80}?avail mem=<avail_graph__gb>"),
    ("Capture cuda graph end", r"Capture cuda graph end\..{0,60}?mem usage=<graphs_taken__gb> ?GB"),
    ("Capture cuda graph end", r"Capture cuda graph end\..{0,90}?avail mem=<avail_after__gb> ?GB"),
    ("max_total_num_tokens=", r"max_total_num_tokens=<max_total_tokens__n>"),
    ("max_running_requests=", r"max_running_requests=<max_running_requests__n>"),
    ("available_gpu_mem=", r"available_gpu_mem=<avail_last__gb> ?GB"),
    ("sliding window memory pool", r"full_layer_tokens=<full_tokens__n>, "
     r"swa_layer_tokens=<swa_tokens__n>"),
    ("Mamba Cache is allocated", r"max_mamba_cache_size: <mamba_slots__n>, conv_state size: "
     r"<conv_state__gb> ?GB, ssm_state size: <ssm_state__gb> ?GB"),
    ("KV cache dtype", r"Using KV cache dtype:? (?:torch\.)?<pool_dtype__t>"),
]  # fmt: skip

_TRTLLM = [
    ("Engine version", r"Engine version <version__t> found"),
    ("Loaded engine size", r"Loaded engine size: <engine__mib> MiB"),
    ("IExecutionContext creation", r"IExecutionContext creation: .{0,60}?now: CPU \d{1,9}, "
     r"GPU <context_now__mib> \(MiB\)"),
    ("bytes for k/v cache", r"Allocate <kv_bytes__b> bytes for k/v cache"),
    ("in paged KV cache.", r"Using <tokens__n> tokens in paged KV cache"),
    ("max tokens in paged kv cache", r"total: <total__gib> GiB, available: <available__gib> GiB"),
    ("primary pool", r"blocks in KV cache primary pool: <blocks__n>"),
    ("primary blocks=", r"primary blocks=<blocks__n>"),
    ("per sequence:", r"Max KV cache (?:pages|blocks) per sequence: <pages_per_sequence__n>"),
    ("tokens per block", r"[Tt]okens per block ?[=:] ?<tokens_per_block__n>"),
    ("tokens per block", r"[Nn]umber of tokens per block: <tokens_per_block__n>"),
    ("window size=", r"\[window size=<window__n>\]"),
    ("in paged KV cache (", r"Allocated <pool__gib> GiB for max tokens in paged KV cache "
     r"\(<tokens__n>\)"),
    ("maxSequenceLen", r"maxSequenceLen: <max_seq_len__n>"),
    ("maxBatchSize", r"maxBatchSize: <max_batch_size__n>"),
    ("maxBeamWidth", r"maxBeamWidth: <max_beam_width__n>"),
    ("AttentionWindowSize", r"AttentionWindowSize: \(\d{1,9}\) \* <n_layer__n>"),
    ("(inside torch)", r"after loading model weights \(inside torch\) in memory usage profiling: "
     r"<weights__gib> GiB"),
    ("[TensorRT-LLM]", r"(?P<banner__t>TensorRT-LLM)"),
    ("[TRT-LLM]", r"(?P<banner__t>TRT-LLM)"),
]  # fmt: skip

_META = r"(?:print_info|llm_load_print_meta|llama_model_load_internal): "
_NEW = r"(?:llama_context|llama_new_context_with_model|llama_init_from_model|init|llama_params_fit)"
_CACHE = (
    r"(?:llama_kv_cache\w{0,24}|llama_memory_recurrent|llama_init_from_model|"
    r"llama_new_context_with_model|llama_init_from_file)"
)
_LLAMACPP = [
    ("build:", r"\bbuild(?: =|:) <version__t>(?: \(| with)"),
    ("general.name", r"general\.name\s{1,40}(?:str)?\s{0,20}= (?P<model__t>[^'\"]{1,80}?)\s*$"),
    ("arch ", _META + r"arch\s{1,20}= <architecture__t>"),
    ("n_layer", _META + r"n_layer\s{1,20}= <n_layer__n>"),
    ("n_embd ", _META + r"n_embd\s{1,20}= <n_embd__n>"),
    ("n_vocab", _META + r"n_vocab\s{1,20}= <n_vocab__n>"),
    ("n_head ", _META + r"n_head\s{1,20}= <n_head__n>"),
    ("n_head_kv", _META + r"n_head_kv\s{1,20}= <n_head_kv__n>"),
    ("n_embd_head_k ", _META + r"n_embd_head_k\s{1,20}= <n_embd_head_k__n>"),
    ("n_embd_k_gqa", _META + r"n_embd_k_gqa\s{1,20}= <n_embd_k_gqa__n>"),
    ("n_embd_v_gqa", _META + r"n_embd_v_gqa\s{1,20}= <n_embd_v_gqa__n>"),
    ("n_swa ", _META + r"n_swa\s{1,20}= <n_swa__n>"),
    ("n_ctx_train", _META + r"n_ctx_train\s{1,20}= <n_ctx_train__n>"),
    ("_rank", _META + r"(?:n_)?(?:lora_kv|kv_lora)(?:_rank)?\s{1,20}= <kv_rank__n>"),
    ("model params", _META + r"model params\s{1,20}= (?P<params__t>[\d.]{1,12} [KMBT])\b"),
    ("size ", _META + r"(?:model|file) size\s{1,20}= "
     r"(?P<file_size__size>\d{1,9}\.\d{1,3} [KMGT]i?B)\b"),
    ("BPW", r"\(<bpw__x> BPW\)"),
    ("type ", _META + r"(?:model ftype|file type)\s{1,20}= <file_type__t>"),
    ("block_count", r"\.block_count\s{1,40}u32\s{1,20}= <n_layer__n>"),
    ("layer ", r"layer\s{1,4}(?P<layer__n>\d{1,5}): n_embd_k_gqa = <layer_k__n>, n_embd_v_gqa = "
     r"<layer_v__n>"),
    ("kv_lora_rank", r"layer\s{1,4}(?P<layer__n>\d{1,5}): n_embd_head_qk_rope = <layer_rope__n>, "
     r"kv_lora_rank = <layer_rank__n>"),
    ("offloaded", r"offloaded <layers_offloaded__n>/<layers_total__n> layers to GPU"),
    ("buffer size", r"(?:load_tensors|llm_load_tensors):\s{0,20}[\w.]{2,24}(?: model)? buffer "
     r"size = \s{0,8}<device_weights__mib> MiB"),
    ("KV buffer size", r"[\w.]{2,24} KV buffer size = \s{0,8}<device_kv__mib> MiB"),
    ("compute buffer size", r"compute buffer size (?:of|=) \s{0,8}<compute_buffer__mib> MiB"),
    ("output buffer size", r"output buffer size = \s{0,8}<output_buffer__mib> MiB"),
    ("self size", _CACHE + r": (?:KV|kv) self size\s{1,4}= \s{0,6}<kv_size__size>"),
    ("self size", r"self size\s{1,4}=.{0,24}?, K \(<type_k__t>\): \s{0,6}<k_size__mib> MiB, V "
     r"\(<type_v__t>\): \s{0,6}<v_size__mib> MiB"),
    ("c^KV", r"c\^KV \(<type_k__t>\):"),
    ("kv^T", r"kv\^T(?: \((?P<latent_twice__t>\w{2,8})\)|: not used)"),
    ("self size", r"\b(?P<old__t>kv) self size"),
    ("cells,", r"llama_kv_cache\w{0,16}: size = \s{0,6}<kv_size__mib> MiB \(\s{0,8}<cells__n> "
     r"cells,\s{1,6}<cache_layers__n> layers(?:,\s{1,6}(?P<streams__t>\d{1,4}(?:/\s?\d{1,4})?) "
     r"seqs)?\), K \(<type_k__t>\): \s{0,6}<k_size__mib> MiB, V \(<type_v__t>\): "
     r"\s{0,6}<v_size__mib> MiB"),
    ("llama_memory_recurrent: size", r"recurrent: size = \s{0,6}<state__mib> MiB "
     r"\(\s{0,8}<state_cells__n> cells,\s{1,6}<state_layers__n> layers"),
    ("SWA KV cache, size", r"creating\s{1,12}SWA KV cache, size = <swa_cells__n> cells"),
    ("non-SWA KV cache, size", r"creating non-SWA KV cache, size = <full_cells__n> cells"),
    ("n_ctx ", _NEW + r": n_ctx\s{1,20}= <n_ctx__n>"),
    ("n_ctx ", r"llama_model_load_internal: n_ctx\s{1,20}= <n_ctx__n>"),
    ("n_seq_max", _NEW + r": n_seq_max\s{1,20}= <n_seq_max__n>"),
    ("n_batch", _NEW + r": n_batch\s{1,20}= <n_batch__n>"),
    ("n_ubatch", _NEW + r": n_ubatch\s{1,20}= <n_ubatch__n>"),
    ("flash_attn", _NEW + r": flash_attn\s{1,20}= <flash_attn__t>"),
    ("kv_unified", _NEW + r": kv_unified\s{1,20}= <kv_unified__t>"),
    ("memory.required.kv", r"memory\.required\.kv=\"<ollama_kv__size>"),
    ("memory.weights.total", r"memory\.weights\.total=\"<ollama_weights__size>"),
    ("memory.graph.full", r"memory\.graph\.full=\"<ollama_graph__size>"),
    ("layers.model", r"layers\.model=<layers_total__n> layers\.offload=<layers_offloaded__n>"),
    ("layers.model", r"layers\.model=<layers_total__n>"),
    ("model weights", r"msg=\"model weights\" (?:buffer|device)=\w{2,12} "
     r"size=\"<device_weights__size>"),
    ("kv cache", r"msg=\"kv cache\" (?:backend|device)=\w{2,12} .{0,30}?size=\"<device_kv__size>"),
    ("compute graph", r"msg=\"compute graph\" .{0,60}?size=\"<compute_buffer__size>"),
]  # fmt: skip

PATTERNS = (
    *(_made(*row, begins=True) for row in _BEGINS),
    *(_made("vllm", *row) for row in _VLLM),
    *(_made("sglang", *row) for row in _SGLANG),
    *(_made("trtllm", *row) for row in _TRTLLM),
    *(_made("llamacpp", *row) for row in _LLAMACPP),
    *(_made(*row) for row in _SETTINGS),
)
"""Every line that is recognised."""
