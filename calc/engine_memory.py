"""What engines reserve of a device: pools, blocks, tokens, concurrency, as their logs print them.

The mathematics needs weights, a cache and what one pass makes; an engine reserves a share of the
device before a request has come. Sources are files of the engines at a commit; what only a run can
tell (activations as profiled, memory beside PyTorch, CUDA graphs) is an argument of every formula.
"""

from __future__ import annotations

from .readings import Q, ceil, floor, formula, maximum, minimum


@formula
def vllm_pool_bytes(
    total: Q, utilization: Q, weights: Q, activations: Q, non_torch: Q, graphs: Q = 0
) -> Q:
    """Bytes that vLLM leaves for caches: utilization total - weights - activations - non_torch.

    total: memory of the device, not what is free of it [B]; utilization: --gpu-memory-utilization
    [1]; weights: on this rank [B]; activations: peak of a pass of dummies [B]; non_torch: context,
    NCCL, workspaces [B]; graphs: CUDA graphs, where the version counts them inside [B]. Returns
    [B]. Of several ranks the smallest counts. Source: vllm-project/vllm,
    vllm/v1/worker/gpu_worker.py at 0012cf69 (determine_available_memory); logs of issue 13074.

    >>> round(vllm_pool_bytes(139.72, 1.0, 39.66, 0.24, 2.53), 2)
    97.29
    """
    return utilization * total - weights - activations - non_torch - graphs


@formula
def graph_utilization(utilization: Q, graphs: Q, total: Q) -> Q:
    """Utilization that leaves as much for caches where CUDA graphs are not counted inside.

    utilization: as typed [1]; graphs: estimated CUDA graphs [B]; total: memory of the device [B].
    Returns [1]: utilization - graphs/total. vLLM counts them by default since 0.21. Source: vLLM's
    own line, as in wtdcode/vllm-backport issue 15 (0.95 is 0.9225).

    >>> round(graph_utilization(0.95, 0.0275 * 24, 24), 4)
    0.9225
    """
    return utilization - graphs / total


@formula
def page_blocks(pool: Q, page: Q, layers: Q) -> Q:
    """Blocks of a pool that layers of one group share: floor(pool/(page layers)).

    pool: bytes for caches [B]; page: bytes of a block in one layer [B]; layers: of the largest
    group, all of them where layers are alike [1]. Returns [blocks]. Source: vllm-project/vllm,
    vllm/v1/core/kv_cache_utils.py at 001cabc1 (get_num_blocks).

    >>> page_blocks(58908206489.6, 16 * 4096, 32)
    28089
    """
    return floor(pool / (page * layers))


@formula
def pool_concurrency(blocks: Q, request_blocks: Q) -> Q:
    """Requests of the longest length that a pool holds: blocks/request_blocks, not rounded.

    blocks: of the pool [blocks]; request_blocks: those that one such request takes, of all groups
    together [blocks]. Returns [1]. Source: vllm-project/vllm, vllm/v1/core/kv_cache_utils.py at
    001cabc1 (get_max_concurrency_for_kv_cache_config).

    >>> round(pool_concurrency(1381, 2048 // 16), 2)
    10.79
    """
    return blocks / request_blocks


@formula
def state_page_tokens(state: Q, token: Q, granule: Q = 16) -> Q:
    """Tokens of a block whose attention page holds a state: granule ceil(state/(granule token)).

    state: bytes of a layer's state [B]; token: cache of a token in an attention layer [B]; granule:
    tokens that a block is a multiple of [tokens]. Returns [tokens]. The state's page is padded up
    to the attention page. Source: vllm-project/vllm, vllm/model_executor/models/config.py at
    0144dd5b (HybridAttentionMambaModelConfig); 784 is what vLLM logs for Qwen3.5-27B.

    >>> state_page_tokens(4 * 48 * 128 * 128 + 2 * 3 * 10240, 2 * 2 * 4 * 256)
    784
    """
    return granule * ceil(state / (granule * token))


@formula
def aligned_page_bytes(size: Q, unit: Q = 576) -> Q:
    """Bytes of a page that is a multiple of a unit: unit ceil(size/unit).

    size: bytes of the entries of a block [B]; unit: what pages are aligned to [B]. Returns [B].
    DeepSeek-V4 in vLLM has blocks of 256 tokens: 64 or 2 entries of 584 B, 64 index keys of 132 B.
    Left out: which pages share a pool. Source: blog.vllm.ai, 2026-04-24 (DeepSeek-V4).

    >>> [aligned_page_bytes(n) for n in (64 * 584, 64 * 132, 2 * 584)]
    [37440, 8640, 1728]
    """
    return unit * ceil(size / unit)


@formula
def sglang_pool_bytes(before: Q, after: Q, fraction: Q) -> Q:
    """Bytes that SGLang leaves for caches: after - before (1 - fraction).

    before, after: memory that is free before and after the weights are loaded, the least of all
    ranks [B]; fraction: --mem-fraction-static [1]. Returns [B]. Activations and CUDA graphs live in
    the rest. Source: sgl-project/sglang, python/sglang/srt/model_executor/
    model_runner_kv_cache_mixin.py at 001ccef0 (profile_max_num_token).

    >>> round(sglang_pool_bytes(79.0, 63.0, 0.88), 2)
    53.52
    """
    return after - before * (1 - fraction)


@formula
def sglang_graph_bytes(graphs: Q, groups: Q = 0) -> Q:
    """Bytes that SGLang keeps for CUDA graphs where no share is typed: 2 MiB for each sequence.

    graphs: largest batch of a graph [1]; groups: dp of DP attention, 0 without it [1]. Returns [B].
    Each group takes 3 MiB a sequence more, and 4.5 MiB where graphs are of more than 300. Source:
    sgl-project/sglang, pull request 10975 (server_args.py, enable_dp_attention).

    >>> [sglang_graph_bytes(*n) // 2**20 for n in ((256,), (256, 8), (512, 8))]
    [512.0, 6656.0, 19456.0]
    """
    grouped = 3 + 1.5 * maximum(0, minimum(1, graphs - 300))
    return 2**20 * graphs * (2 + grouped * groups)


@formula
def sglang_share(total: Q, chunk: Q, graphs: Q, ranks: Q = 1, least: Q = 0) -> Q:
    """Share that SGLang takes where none is typed: 1 - reserved/total, in thousandths.

    total: memory of the device [B]; chunk: tokens of a chunk of a prefill [tokens]; graphs: bytes
    for CUDA graphs [B]; ranks: tp times pp, as SGLang counts them [1]; least: reserved at least
    [B]. Returns [1]. Reserved are 512 MiB, 1.5 MiB a token, 128 MiB a rank, and the graphs. Left
    out: graphs of prefills, 8 MiB a size, towers, drafts. Source: sgl-project/sglang, pull requests
    10975 and 11076; that of an H100 is 0.835.

    >>> sglang_share(81559 * 2**20, 8192, sglang_graph_bytes(256), least=10 * 2**30)
    0.835
    """
    reserved = 2**20 * (512 + 1.5 * maximum(chunk, 2048) + 128 * ranks) + graphs
    return floor(1000 * (1 - maximum(reserved, least) / total) + 0.5) / 1000


@formula
def sglang_tokens(pool: Q, full: Q, window: Q = 0, ratio: Q = 0, page: Q = 1) -> Q:
    """Tokens of SGLang's pool, whose window layers hold a fixed share of them.

    pool: bytes for caches [B]; full, window: cache of a token in all layers that keep everything,
    and in all that keep a window [B]; ratio: --swa-full-tokens-ratio, tokens of windows for each
    [1]; page: tokens of a page [tokens]. Returns [tokens]: floor(pool/(full + ratio window)), in
    whole pages. A pool for all, whatever the window. Source: sgl-project/sglang,
    model_runner_kv_cache_mixin.py at 001ccef0 (set_num_tokens_hybrid_swa).

    >>> sglang_tokens(1e9, 5511.4375, 35624, 0.1)
    110206
    """
    return page * floor(floor(pool / (full + ratio * window)) / page)


@formula
def sglang_states(pool: Q, ratio: Q, state: Q) -> Q:
    """States that SGLang makes room for: the share ratio/(1 + ratio) of a pool.

    pool: bytes for caches and states [B]; ratio: --mamba-full-memory-ratio [1]; state: bytes of a
    sequence's state in all layers [B]. Returns [1]. The rest is for caches; a slot more is
    allocated as padding. Source: sgl-project/sglang, model_runner_kv_cache_mixin.py at 001ccef0
    (handle_max_mamba_cache).

    >>> sglang_states(20e9, 0.9, 99e6)
    95
    """
    return floor(pool * ratio / (1 + ratio) / state)


@formula
def trtllm_blocks(free: Q, fraction: Q, token: Q, block: Q) -> Q:
    """Blocks of TensorRT-LLM's pool: floor(fraction free/(token block)).

    free: memory that is free once the engine is loaded, the least of all ranks [B]; fraction:
    free_gpu_memory_fraction [1]; token: cache of a token in all layers of the rank [B]; block:
    tokens_per_block [tokens]. Returns [blocks]. Source: NVIDIA/TensorRT-LLM,
    tensorrt_llm/_torch/pyexecutor/resource_manager.py at 001541ba (calculate_max_num_blocks).

    >>> trtllm_blocks(17.83 * 2**30, 0.9, 65536, 32)
    8216
    """
    return floor(fraction * free / (token * block))


CELLS = 256
"""Cells that llama.cpp's caches are multiples of (ggml-org/llama.cpp, src/llama-context.cpp)."""


@formula
def llama_cells(context: Q, streams: Q = 1, pad: Q = CELLS) -> Q:
    """Cells of each stream of llama.cpp's cache: the context, dealt out, in whole pads.

    context: -c, for all slots together [tokens]; streams: slots with a cache of their own, 1 where
    it is unified [1]; pad: cells that it is a multiple of [tokens]. Returns [tokens]. Builds before
    2025-11 did not pad. Source: ggml-org/llama.cpp, src/llama-context.cpp (n_ctx_seq), pull
    request 17046.

    >>> [llama_cells(1024, n) * n for n in (1, 3, 4)]
    [1024, 1536, 1024]
    """
    return pad * ceil(floor(pad * ceil(context / pad) / streams) / pad)


@formula
def llama_window_cells(cells: Q, window: Q, batch: Q = 512, slots: Q = 1, pad: Q = CELLS) -> Q:
    """Cells of a stream in llama.cpp's window layers: pad ceil(min(cells, window slots + batch)).

    cells: of layers that keep everything [tokens]; window: last tokens seen [tokens]; batch: -ub,
    tokens of a pass [tokens]; slots: that share the stream, 1 where each has its own [1]; pad:
    cells that it is a multiple of [tokens]. Returns [tokens]. With --swa-full it is `cells`.
    Source: ggml-org/llama.cpp, src/llama-kv-cache-iswa.cpp at 02c28f53.

    >>> llama_window_cells(32768, 2048), llama_window_cells(32768, 512)
    (2560, 1024)
    """
    return pad * ceil(minimum(cells, window * slots + batch) / pad)


@formula
def mlp_pass_bytes(T: Q, D: Q, F: Q, b: Q = 2) -> Q:
    """Bytes alive at the widest point of a gated MLP, fused attention before it.

    T: tokens of a pass [tokens]; D, F: widths of model and MLP [1]; b: bytes of an element [B].
    Returns [B]: b T (2D + 2F + F), residual and normed input, gate and up, their product. Left
    out: what samplers sort in fp32, workspaces; profiled peaks in logs lie between 1.1 and 8 times
    that. Source: by hand, from the shapes; jax-ml.github.io/scaling-book, inference (8k x 5120).

    >>> mlp_pass_bytes(8192, 4096, 14336)
    838860800
    """
    return b * T * (2 * D + 3 * F)


@formula
def logits_bytes(rows: Q, V: Q, b: Q = 4) -> Q:
    """Bytes of logits: b rows V.

    rows: positions whose logits are wanted: a sequence each, or every prompt token for its
    log-probability [1]; V: vocabulary [1]; b: bytes of each, fp32 in samplers [B]. Returns [B].
    Source: vllm-project/vllm, vllm/v1/worker/gpu_worker.py at 0012cf69 (_dummy_sampler_run).

    >>> logits_bytes(256, 128256)
    131334144
    """
    return b * rows * V


@formula
def rope_table_bytes(positions: Q, width: Q, b: Q = 2) -> Q:
    """Bytes of a table of cosines and sines, which vLLM counts with the weights.

    positions: longest context of the model [tokens]; width: rotary width of a head [1]; b: bytes of
    an element [B]. Returns [B]. Every rank has all of it, and models with local and global layers
    two. Source: vllm-project/vllm, RotaryEmbedding (cos_sin_cache); Llama-3.1-8B logs 14.9888 GiB,
    of which the parameters are 14.9575.

    >>> rope_table_bytes(131072, 128) / 2**30
    0.03125
    """
    return b * positions * width


@formula
def state_blocks(drafted: Q = 0, cached: Q = 0) -> Q:
    """Blocks that a request holds in a group of state layers of vLLM: 1 + cached + drafted.

    drafted: tokens that are drafted a round [1]; cached: 1 where prefixes are cached (align), 0
    where not [1]. Returns [blocks]. Source: vllm-project/vllm, vllm/v1/kv_cache_interface.py at
    001cabc1 (MambaSpec.max_memory_usage_bytes).

    >>> state_blocks(), state_blocks(4, 1)
    (1, 6)
    """
    return 1 + cached + drafted


@formula
def group_layers(fewest: Q, most: Q) -> Q:
    """Layers of a group of vLLM's hybrid caches: the fewest of a kind, or the most if that is near.

    fewest, most: layers of the kind that has fewest, and most [1]. Returns [1]: `most` below 1.5
    `fewest`. Last groups are padded. Source: vllm-project/vllm, vllm/v1/core/kv_cache_utils.py at
    001cabc1 (_get_kv_cache_groups_uniform_page_size).

    >>> group_layers(16, 48), group_layers(12, 13)
    (16, 13)
    """
    near = maximum(0, minimum(1, ceil(1.5 * fewest - most)))
    return near * most + (1 - near) * fewest
