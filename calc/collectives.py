"""What devices send each other: collectives, experts' exchanges, and the closed forms of layouts.

A message costs a latency and its bytes over the link, one direction of it (vendors print both added
up). Nothing overlaps with compute, all links are alike, experts are evenly loaded. Sources:
github.com/NVIDIA/nccl-tests, doc/PERFORMANCE.md; jax-ml/scaling-book, sharding.md, inference.md,
training.md and gpus.md; github.com/flashinfer-ai/flashinfer (one-shot and two-shot).
"""

from __future__ import annotations

from .readings import Q, ceil, formula, is_symbol, maximum, minimum, root


@formula
def ring_gather_time(size: Q, ranks: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds of an all-gather or a reduce-scatter around a ring: (n-1)a + (n-1)M/(nW).

    size: bytes of the whole tensor, M [B]; ranks: devices, n [1]; link: bandwidth in one direction,
    W [B/s]; latency: of a message, a [s]. Returns [s].

    >>> round(ring_gather_time(262144, 8, 450e9, 2e-6), 9)
    1.451e-05
    """
    return (ranks - 1) * latency + (ranks - 1) * size / (ranks * link)


@formula
def ring_all_reduce_time(size: Q, ranks: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds of an all-reduce around a ring: a reduce-scatter, then an all-gather.

    size: bytes of the whole tensor on each rank [B]; ranks: devices [1]; link: bandwidth in one
    direction [B/s]; latency: of a message [s]. Returns [s]. M/W alone, half of it, is a gather.

    >>> round(ring_all_reduce_time(262144, 8, 450e9, 2e-6), 9)
    2.9019e-05
    """
    return 2 * ring_gather_time(size, ranks, link, latency)


@formula
def one_shot_time(size: Q, ranks: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds of an all-reduce in which each rank sends all it has to all others: a + (n-1)M/W.

    size: bytes of the whole tensor on each rank [B]; ranks: devices behind one switch [1]; link:
    bandwidth in one direction [B/s]; latency: of a message [s]. Returns [s].

    >>> round(one_shot_time(262144, 8, 450e9, 2e-6), 9)
    6.078e-06
    """
    # A single rank has nobody to wait for.
    return minimum(ranks - 1, 1) * latency + (ranks - 1) * size / link


@formula
def two_shot_time(size: Q, ranks: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds of an all-reduce in two exchanges behind a switch: 2a + 2(n-1)M/(nW).

    size: bytes of the whole tensor on each rank [B]; ranks: devices behind one switch [1]; link:
    bandwidth in one direction [B/s]; latency: of a message [s]. Returns [s].

    >>> round(two_shot_time(262144, 8, 450e9, 2e-6), 9)
    5.019e-06
    """
    return 2 * minimum(ranks - 1, 1) * latency + 2 * (ranks - 1) * size / (ranks * link)


@formula
def in_switch_time(size: Q, ranks: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds of an all-reduce that the switch adds up (SHARP): a + M/W, whatever the ranks.

    size: bytes of the whole tensor on each rank [B]; ranks: devices, of which one sends nothing
    [1]; link: bandwidth in one direction [B/s]; latency: of a message [s]. Returns [s].

    >>> round(in_switch_time(262144, 8, 450e9, 2e-6), 9)
    2.583e-06
    """
    return minimum(ranks - 1, 1) * (latency + size / link)


@formula
def two_shot_turn(ranks: Q, link: Q, latency: Q) -> Q:
    """Bytes above which two exchanges are faster than one: aWn/((n-1)(n-2)).

    ranks: devices behind one switch, more than two [1]; link: bandwidth in one direction [B/s];
    latency: of a message [s]. Returns [B]. Two ranks are always faster in one.

    >>> round(two_shot_turn(8, 450e9, 2e-6))
    171429
    """
    return latency * link * ranks / ((ranks - 1) * (ranks - 2))


@formula
def all_to_all_bytes(size: Q, ranks: Q) -> Q:
    """Bytes that each rank sends in an all-to-all: M(n-1)/n².

    size: bytes of the tensor on all ranks together [B]; ranks: devices [1]. Returns [B].

    >>> all_to_all_bytes(1048576, 4)
    196608.0
    """
    return size * (ranks - 1) / (ranks * ranks)


@formula
def all_to_all_time(size: Q, ranks: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds of an all-to-all behind a switch: a + M(n-1)/(n²W).

    size: bytes of the tensor on all ranks together [B]; ranks: devices [1]; link: bandwidth in one
    direction [B/s]; latency: of a message [s]. Returns [s]. Up to (n-1)a without a switch.

    >>> round(all_to_all_time(33554432, 8, 450e9), 9)
    8.156e-06
    """
    return minimum(ranks - 1, 1) * latency + all_to_all_bytes(size, ranks) / link


@formula
def ragged_all_to_all_time(size: Q, ranks: Q, k: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds of an all-to-all whose rows go to k ranks each: min(k/n, 1) of the dense one's bytes.

    size: bytes of the dense tensor on all ranks together [B]; ranks: devices [1]; k: ranks that a
    row goes to [1]; link: bandwidth in one direction [B/s]; latency: of a message [s]. Returns [s].

    >>> round(ragged_all_to_all_time(33554432, 8, 4, 450e9), 9)
    4.078e-06
    """
    return all_to_all_time(size * minimum(k / ranks, 1), ranks, link, latency)


@formula
def point_to_point_time(size: Q, link: Q, latency: Q = 0) -> Q:
    """Seconds to send a message: a + M/W.

    size: bytes of the message [B]; link: bandwidth in one direction [B/s]; latency: of a message
    [s]. Returns [s].

    >>> round(point_to_point_time(65536, 50e9, 5e-6), 9)
    6.311e-06
    """
    return latency + size / link


@formula
def distinct_destinations(ranks: Q, E: Q, k: Q) -> Q:
    """Ranks that the k experts of a token lie on: n(1 - C(E - E/n, k)/C(E, k)), expected.

    ranks: devices, n [1]; E: experts, as many on each rank [1]; k: different experts that a token
    chooses evenly [1]. Returns [1]. A row is sent once to each, not k times. Source: scaling-book,
    gpus.md, with different experts in place of independent draws.

    >>> round(distinct_destinations(64, 256, 8), 5)
    7.67575
    """
    elsewhere = E - E / ranks
    if is_symbol(k):
        import sympy

        return ranks * (1 - sympy.binomial(elsewhere, k) / sympy.binomial(E, k))
    missed: Q = 1
    for j in range(int(k.max()) if hasattr(k, "max") else k):
        # In an array of k the largest one counts the draws; the others make no more than theirs.
        draw = minimum(j, k - 1)
        hit = 1 - maximum(elsewhere - draw, 0) / (E - draw)
        missed = missed * (1 - (j < k) * hit)
    return ranks * (1 - missed)


@formula
def remote_copies(copies: Q, ranks: Q) -> Q:
    """Copies of a row that leave their rank: all but the one in n that stays, on average.

    copies: ranks that the row goes to, its own among them [1]; ranks: devices, n [1]. Returns [1].

    >>> remote_copies(8, 64)
    7.875
    """
    return copies * (ranks - 1) / ranks


@formula
def expert_exchange_bytes(tokens: Q, copies: Q, D: Q, dispatch: Q = 2, combine: Q = 2) -> Q:
    """Bytes that a rank sends for one layer of experts: rows out to them, and results back.

    tokens: of the rank [tokens]; copies: other ranks that a row goes to [1]; D: model width [1];
    dispatch, combine: bytes per element on the way out and back, which differ where rows go out in
    fp8 [B]. Returns [B]. Source: github.com/deepseek-ai/DeepEP, README.

    >>> expert_exchange_bytes(128, remote_copies(8, 64), 7168, dispatch=1, combine=2)
    21676032.0
    """
    return tokens * copies * D * (dispatch + combine)


@formula
def query_gather_bytes(rows: Q, N: Q, H: Q, b: Q = 2) -> Q:
    """Bytes of the queries that ranks with different tokens of a cache gather, a layer.

    rows: query tokens of all sequences [1]; N: query heads of the ranks together [1]; H: width of
    a query, the latent's where it is absorbed [1]; b: bytes per element [B]. Returns [B].

    >>> query_gather_bytes(8, 64, 128)
    131072
    """
    return b * rows * N * H


@formula
def partial_output_bytes(rows: Q, N: Q, H: Q, b: Q = 2) -> Q:
    """Bytes of the outputs that such ranks combine, a layer: each with its log-sum-exp in fp32.

    rows: query tokens of all sequences [1]; N: query heads of the ranks together [1]; H: width of
    an output [1]; b: bytes per element [B]. Returns [B]. Source: docs.sglang.io, decode context
    parallelism.

    >>> partial_output_bytes(8, 64, 128)
    133120
    """
    return rows * N * (b * H + 4)


@formula
def shared_heads(K: Q, ranks: Q) -> Q:
    """Key/value heads on each of the ranks that split query heads: max(1, ceil(K/n)).

    K: key/value heads [1]; ranks: devices, n [1]. Returns [1]. Beyond K ranks each head is stored
    n/K times. Source: github.com/microsoft/vidur, param_counter.py; vllm-project/vllm, model
    configuration.

    >>> [shared_heads(8, n) for n in (4, 8, 16)]
    [2, 1, 1]
    """
    return maximum(1, ceil(K / ranks))


@formula
def tensor_parallel_memory_time(weight_bytes: Q, cache_bytes: Q, ranks: Q, K: Q, bandwidth: Q) -> Q:
    """Seconds in which each rank reads its part of weights and cache; communication comes on top.

    weight_bytes, cache_bytes: of the whole model and all sequences [B]; ranks: devices [1]; K:
    key/value heads, beyond which the cache is copied [1]; bandwidth: of a device's memory [B/s].
    Returns [s]. For ranks that divide K, or K them.

    >>> round(tensor_parallel_memory_time(141107412992, 21474836480, 8, 8, 3.35e12), 6)
    0.006067
    """
    return (weight_bytes / ranks + cache_bytes / minimum(ranks, K)) / bandwidth


@formula
def best_ring_ranks(seconds: Q, L: Q, size: Q, link: Q, latency: Q) -> Q:
    """Ranks at which decoding with two ring all-reduces a layer is fastest.

    seconds: of a step on one device, (weights + cache)/bandwidth, all of it split [s]; L: layers
    [1]; size: bytes of an all-reduce, M [B]; link: bandwidth in one direction, W [B/s]; latency: of
    a message, a [s]. Returns [1]: sqrt((seconds - 4LM/W)/(4La)), 0 where splitting never pays.

    >>> round(best_ring_ranks(0.048532, 80, 262144, 450e9, 2e-6), 3)
    8.691
    """
    return root(maximum(seconds - 4 * L * size / link, 0) / (4 * L * latency))


@formula
def best_one_shot_ranks(seconds: Q, L: Q, size: Q, link: Q) -> Q:
    """Ranks at which decoding with two one-shot all-reduces a layer is fastest.

    seconds: of a step on one device, all of it split [s]; L: layers [1]; size: bytes of an
    all-reduce, M [B]; link: bandwidth in one direction, W [B/s]. Returns [1]:
    sqrt(seconds/(2LM/W)), whatever the latency.

    >>> round(best_one_shot_ranks(0.048532, 80, 262144, 450e9), 2)
    22.82
    """
    return root(seconds / (2 * L * size / link))


@formula
def decode_link_limit(F: Q, B: Q, ratio: Q) -> Q:
    """Ranks above which links, not memory, limit the MLP of a decode step: F/(B ratio).

    F: MLP width [1]; B: sequences [1]; ratio: memory bandwidth over that of the links [1].
    Returns [1]. One gather of the activations is counted; a block with a gather and a scatter turns
    at half of it. Source: scaling-book, inference.md.

    >>> decode_link_limit(28672, 64, 8)
    56.0
    """
    return F / (B * ratio)


@formula
def prefill_link_limit(F: Q, link: Q, flops_per_s: Q) -> Q:
    """Ranks above which links, not compute, limit the MLP of a prefill: FW/C.

    F: MLP width [1]; link: bandwidth in one direction, W [B/s]; flops_per_s: peak of a device, C
    [FLOP/s]. Returns [1]. Source: scaling-book, training.md and gpus.md.

    >>> round(prefill_link_limit(28672, 450e9, 990e12), 2)
    13.03
    """
    return F * link / flops_per_s


@formula
def pipeline_stage_time(weight_bytes: Q, cache_bytes: Q, stages: Q, bandwidth: Q) -> Q:
    """Seconds of a stage with one micro-batch of as many as there are stages.

    weight_bytes, cache_bytes: of the whole model and all sequences [B]; stages: of the pipeline,
    p [1]; bandwidth: of a device's memory [B/s]. Returns [s]: (weights/p + cache/p²)/bandwidth.

    >>> round(pipeline_stage_time(141107412992, 21474836480, 4, 3.35e12), 5)
    0.01093
    """
    return (weight_bytes / stages + cache_bytes / (stages * stages)) / bandwidth


@formula
def pipeline_token_time(weight_bytes: Q, cache_bytes: Q, stages: Q, bandwidth: Q) -> Q:
    """Seconds between the tokens of a sequence in a full pipeline: its stages one after another.

    weight_bytes, cache_bytes: of the whole model and all sequences [B]; stages: of the pipeline
    [1]; bandwidth: of a device's memory [B/s]. Returns [s]. All weights are read for each token:
    a pipeline divides memory, not latency.

    >>> round(pipeline_token_time(141107412992, 21474836480, 4, 3.35e12), 4)
    0.0437
    """
    return stages * pipeline_stage_time(weight_bytes, cache_bytes, stages, bandwidth)


@formula
def replica_throughput(tokens_per_s: Q, replicas: Q) -> Q:
    """Tokens per second of equal replicas: as many times those of one.

    tokens_per_s: of one replica at its share of the sequences [tokens/s]; replicas: how many [1].
    Returns [tokens/s]. Latency is that of one, memory grows as throughput does.

    >>> replica_throughput(2113.5, 4)
    8454.0
    """
    return tokens_per_s * replicas
