"""Queues, and the steady state of continuous batching, in closed form.

What a simulation of a server is checked against, and what it shows beside its own figures. Sources:
L. Kleinrock, Queueing Systems, volume 1 (1975), chapter 5; J. D. C. Little,
doi:10.1287/opre.9.3.383; DistServe, arXiv 2401.09670; Orca, OSDI 2022 (iteration-level
scheduling, selective batching); Sarathi-Serve, arXiv 2403.02310; jax-ml/scaling-book, inference.md.
Requests come at random (Poisson) and are served as they come. `prefills_per_decode` of handoff.py
is how many machines compute prompts for one that decodes.
"""

from __future__ import annotations

from .attention import causal_pairs
from .readings import Q, formula, maximum, total, widest
from .timing import bandwidth_time, compute_time


@formula
def busy_share(rate: Q, service: Q) -> Q:
    """Share of the time in which a server works: rate times service.

    rate: requests that come [1/s]; service: mean time of each [s]. Returns [1]. From 1 on there is
    no steady state: the formulas of waits below do not hold, and give negative times or divide by
    zero.

    >>> busy_share(5, 0.1)
    0.5
    """
    return rate * service


@formula
def mean_power(times: Q, shares: Q, power: Q = 1) -> Q:
    """Mean of a power of times, each with its share of all requests.

    times: of each kind of request [s]; shares: of all requests, which add up to 1 [1]; power: 1 for
    the mean, 2 for what a wait needs [1]. Returns [s^power].

    >>> round(mean_power([0.05, 0.25], [0.75, 0.25], 2), 6)
    0.0175
    """
    return total(share * time**power for time, share in zip(times, shares, strict=True))


@formula
def mean_wait(rate: Q, service: Q, second_moment: Q) -> Q:
    """Mean wait in a queue of any service times (M/G/1): rate E[t^2]/(2(1 - rate service)).

    rate: requests that come [1/s]; service: mean time of each [s]; second_moment: mean of the
    squared times [s^2]. Returns [s], service not included. One server, one request at a time, in
    any order that does not look at their times; below a busy share of 1. Source: Pollaczek and
    Khinchine; Kleinrock, volume 1, chapter 5.

    >>> round(mean_wait(4, 0.1, 0.0175), 6)
    0.058333
    """
    return rate * second_moment / (2 * (1 - busy_share(rate, service)))


@formula
def mean_wait_equal(rate: Q, service: Q) -> Q:
    """Mean wait where all requests take equally long (M/D/1), the least that random arrivals allow.

    rate: requests that come [1/s]; service: time of each [s]. Returns [s]: rate service^2/(2(1 -
    rate service)). Times that vary make it longer: see `mean_wait`, of which it is a case.

    >>> round(mean_wait_equal(5, 0.1), 6)
    0.05
    """
    return mean_wait(rate, service, service**2)


@formula
def mean_wait_exponential(rate: Q, service: Q) -> Q:
    """Mean wait where times are exponential (M/M/1): twice that of equal ones.

    rate: requests that come [1/s]; service: mean time of each [s]. Returns [s]: rate service^2/(1 -
    rate service), a case of `mean_wait`.

    >>> round(mean_wait_exponential(5, 0.1), 6)
    0.1
    """
    return mean_wait(rate, service, 2 * service**2)


@formula
def queued_ttft(rate: Q, service: Q) -> Q:
    """Mean time to first token of a machine that computes equal prompts one by one.

    rate: prompts that come [1/s]; service: prefill of each [s]. Returns [s]: the wait of M/D/1 and
    the prefill. Left out: decoding, and prompts that share a pass. Source: arXiv 2401.09670,
    section 3.1.

    >>> round(queued_ttft(5, 0.1), 6)
    0.15
    """
    return service + mean_wait_equal(rate, service)


@formula
def pipelined_ttft(rate: Q, service: Q, stages: Q = 2) -> Q:
    """Mean time to first token where the layers are cut into equal stages (inter-op).

    rate: prompts that come [1/s]; service: prefill of each, in all stages [s]; stages: machines in
    a row [1]. Returns [s]: of two, service + rate service^2/(4(2 - rate service)). A prompt is as
    long under way, but the next one enters after a stage. Left out: messages between stages.
    Source: arXiv 2401.09670, section 3.1.

    >>> round(pipelined_ttft(8, 0.1), 6)
    0.116667
    """
    return service + mean_wait_equal(rate, service / stages)


@formula
def sharded_ttft(rate: Q, service: Q, speedup: Q) -> Q:
    """Mean time to first token where every layer is shared out (intra-op).

    rate: prompts that come [1/s]; service: prefill of each on one machine [s]; speedup: of all
    machines over one, less than their number for the messages between them [1]. Returns [s]:
    service/speedup + rate service^2/(2 speedup (speedup - rate service)). Source: arXiv 2401.09670,
    section 3.1.

    >>> round(sharded_ttft(8, 0.1, 1.5), 6)
    0.104762
    """
    return queued_ttft(rate, service / speedup)


@formula
def mean_context(P: Q, steps: Q) -> Q:
    """Mean context of the decode steps of a request: P + (steps + 1)/2.

    P: prompt [tokens]; steps: decode steps, of contexts P + 1 to P + steps [1]. Returns [tokens].
    Steps are G - 1 where the prefill yields the first of G tokens, as in `end_to_end_time`; papers
    that count a decode step for it too have G.

    >>> mean_context(1024, 256)
    1152.5
    """
    return P + (steps + 1) / 2


@formula
def served_step_time(rate: Q, steps: Q, S: Q, weights: Q, token_bytes: Q, bytes_per_s: Q) -> Q:
    """Decode step of the batch that a rate of requests keeps up, memory traffic alone.

    rate: requests that come [1/s]; steps: decode steps of each [1]; S: mean context of them
    [tokens]; weights: bytes that a step streams [B]; token_bytes: cache of a token in all layers
    [B]; bytes_per_s: bandwidth [B/s]. Returns [s]: t = weights/(bytes_per_s - rate steps S
    token_bytes), from t = (weights + B S token_bytes)/bytes_per_s at B = rate steps t (Little).
    Below `greatest_rate`. Left out: prefills, limits of memory, and that B varies. Source:
    doi:10.1287/opre.9.3.383, and the lecture's time model.

    >>> round(served_step_time(10, 256, 1152.5, 16060522496, 131072, 3.35e12), 8)
    0.00541984
    """
    return weights / (bytes_per_s - rate * steps * S * token_bytes)


@formula
def served_batch(rate: Q, steps: Q, S: Q, weights: Q, token_bytes: Q, bytes_per_s: Q) -> Q:
    """Mean number of sequences that decode at a rate of requests: rate steps t (Little).

    rate: requests that come [1/s]; steps: decode steps of each [1]; S: mean context of them
    [tokens]; weights: bytes that a step streams [B]; token_bytes: cache of a token in all layers
    [B]; bytes_per_s: bandwidth [B/s]. Returns [1]; t and what is left out as in
    `served_step_time`.

    >>> round(served_batch(10, 256, 1152.5, 16060522496, 131072, 3.35e12), 4)
    13.8748
    """
    step = served_step_time(rate, steps, S, weights, token_bytes, bytes_per_s)
    return rate * steps * step


@formula
def greatest_rate(steps: Q, S: Q, token_bytes: Q, bytes_per_s: Q) -> Q:
    """Rate of requests that no batch can decode: bytes_per_s/(steps S token_bytes).

    steps: decode steps of a request [1]; S: mean context of them [tokens]; token_bytes: cache of a
    token in all layers [B]; bytes_per_s: bandwidth [B/s]. Returns [1/s]. All bandwidth then reads
    caches: weights no longer count, and memory is taken to hold any batch.

    >>> round(greatest_rate(256, 1152.5, 131072, 3.35e12), 3)
    86.627
    """
    return bytes_per_s / (steps * S * token_bytes)


@formula
def ending_per_step(B: Q, steps: Q) -> Q:
    """Sequences that end in a decode step on average, and are replaced: B/steps.

    B: sequences that decode [1]; steps: decode steps of each [1]. Returns [1]. Source:
    jax-ml/scaling-book, applied-inference.md.

    >>> ending_per_step(32, 4096)
    0.0078125
    """
    return B / steps


@formula
def freed_per_step(B: Q, P: Q, steps: Q) -> Q:
    """Cache tokens that sequences leave behind in a decode step on average: B(P + steps)/steps.

    B: sequences that decode [1]; P: prompt [tokens]; steps: decode steps of each [1]. Returns
    [tokens]. As many come in: B with the step itself, the others with prompts. Source:
    jax-ml/scaling-book, applied-inference.md.

    >>> freed_per_step(32, 8192, 4096)
    96.0
    """
    return ending_per_step(B, steps) * (P + steps)


@formula
def packed_rows(lengths: Q) -> Q:
    """Rows of a pass that takes the tokens of all its sequences one after another.

    lengths: new tokens of each sequence [tokens]. Returns [rows]. What products with weights need:
    they do not ask whose token a row is. Source: Orca, OSDI 2022 (selective batching).

    >>> packed_rows([3, 9, 5])
    17
    """
    return total(lengths)


@formula
def rows_to_longest(lengths: Q) -> Q:
    """Rows of a pass that fills its sequences up to the longest.

    lengths: new tokens of each sequence [tokens]. Returns [rows]. Source: Orca, OSDI 2022.

    >>> rows_to_longest([3, 9, 5])
    27
    """
    return len(lengths) * widest(lengths)


@formula
def packed_pairs(lengths: Q) -> Q:
    """Query-key pairs of prompts that share a pass, each attending to itself alone.

    lengths: tokens of each prompt, nothing cached [tokens]. Returns [pairs]. Source: Orca, OSDI
    2022 (attention is the operator that is not batched).

    >>> packed_pairs([3, 9, 5])
    66
    """
    return total(causal_pairs(0, T) for T in lengths)


@formula
def mixed_pairs(lengths: Q) -> Q:
    """Query-key pairs if the prompts of a pass were taken for one: what `packed_pairs` avoids.

    lengths: tokens of each prompt, nothing cached [tokens]. Returns [pairs].

    >>> mixed_pairs([3, 9, 5])
    153
    """
    return causal_pairs(0, packed_rows(lengths))


@formula
def mixed_step_time(
    B: Q, S: Q, n: Q, T: Q, parameters: Q, weights: Q, token_bytes: Q, pair_flops: Q,
    flops_per_s: Q, bytes_per_s: Q,
) -> Q:  # fmt: skip
    """Step that decodes and computes a chunk of a prompt beside it.

    B: sequences that decode [1]; S: context of each [tokens]; n: tokens of the prompt in the cache
    [tokens]; T: new ones of it [tokens]; parameters: weights that each row is multiplied by [1];
    weights: bytes that a step streams [B]; token_bytes: cache of a token in all layers [B];
    pair_flops: 4LNH, of a query-key pair in all layers [FLOP]; flops_per_s: peak [FLOP/s];
    bytes_per_s: bandwidth [B/s]. Returns [s]: the products with weights of all rows, then the
    caches of decoding, then the attention of the chunk, each as long as its slower resource. No
    chunk is n = T = 0. Left out: FLOPs of decode attention, below its traffic up to about 300 query
    heads a key/value head on an H100; activations; all efficiencies. Source: arXiv 2403.02310
    (decodes ride on a prefill that computes).

    >>> P, each = 8030261248, 4 * 32 * 32 * 128
    >>> round(mixed_step_time(64, 2048, 4096, 512, P, 2 * P, 131072, each, 989e12, 3.35e12), 6)
    0.015663
    """
    products = maximum(
        compute_time(2 * parameters * (B + T), flops_per_s), bandwidth_time(weights, bytes_per_s)
    )
    chunk = maximum(
        compute_time(pair_flops * causal_pairs(n, T), flops_per_s),
        bandwidth_time((n + T) * token_bytes, bytes_per_s),
    )
    return products + bandwidth_time(B * S * token_bytes, bytes_per_s) + chunk


@formula
def attainment(ttft: Q, tpot: Q, ttft_limit: Q, tpot_limit: Q) -> float:
    """Share of requests that keep both limits.

    ttft: time to first token of each request [s]; tpot: mean time of each further token, 0 where
    there is none [s]; ttft_limit, tpot_limit: what is promised [s]. Returns [1]. Numbers and arrays
    only: whether a symbol keeps a limit is not known. Source: arXiv 2401.09670, section 1.

    >>> attainment([0.2, 0.4, 0.9, 0.3], [0.03, 0.06, 0.02, 0.02], 0.5, 0.05)
    0.5
    """
    met = [t <= ttft_limit and d <= tpot_limit for t, d in zip(ttft, tpot, strict=True)]
    return sum(map(bool, met)) / len(met)


@formula
def goodput(rate: Q, attained: Q) -> Q:
    """Requests in a second that keep their limits: rate times their share.

    rate: requests that are served [1/s]; attained: share of them that keeps both limits [1].
    Returns [1/s]. DistServe calls so the greatest rate at which 90 % keep theirs, which is a search
    over rates. Source: arXiv 2401.09670, section 1.

    >>> goodput(2.0, 0.5)
    1.0
    """
    return rate * attained
