"""What the figures of an SGLang log should be.

Lines: python/sglang/srt/model_executor/model_runner.py and mem_cache/memory_pool.py. GB are GiB.
The pool is what is free after the weights, less a share 1 - mem_fraction_static of what was free
before; K and V are tokens times layers times heads.
"""

from __future__ import annotations

from collections.abc import Iterator

from .attention import Attention
from .engine_memory import sglang_pool_bytes
from .log_judge import Answer, Span, exact, figure, number, said, span
from .log_model import Known
from .log_read import Fact, Start
from .log_vllm import RUN, weights

RATIO = 0.8
"""Tokens of windows for each of full layers, by default (server_args.py, swa_full_tokens_ratio)."""
FREE = "what the driver tells at that moment"


def explain(start: Start, known: Known) -> Iterator[Answer]:
    """Judge every figure of a start."""
    for fact in start.all("avail_begin", "avail_graph", "avail_last"):
        yield figure(fact, how=FREE)
    for fact in start.all("weights"):
        yield weights(start, known, fact, "sglang")
    for fact in start.all("avail_end"):
        yield _after_weights(start, fact)
    for fact in start.all("tokens"):
        yield _tokens(start, known, fact)
    for fact in start.all("k_size", "v_size", "kv_size"):
        yield _cache(start, known, fact)
    for fact in start.all("avail_pool"):
        yield _after_pool(start, fact)
    for fact in start.all("max_total_tokens"):
        yield _total_tokens(start, fact)
    for fact in start.all("full_tokens"):
        yield figure(fact, how="the pool / (bytes of a token in full layers + ratio x in windows)")
    for fact in start.all("swa_tokens"):
        yield _window_tokens(start, fact)
    for fact in start.all("mamba_slots"):
        yield figure(fact, how="a share of the pool, --mamba-full-memory-ratio, or as typed")
    for fact in start.all("conv_state", "ssm_state"):
        yield _states(start, known, fact)
    for fact in start.all("graphs_taken"):
        yield figure(fact, how=RUN)
    for fact in start.all("avail_after"):
        yield _after_graphs(start, fact)


def _after_weights(start: Start, fact: Fact) -> Answer:
    before, held = start.near("avail_begin", fact), start.near("weights", fact)
    if before is None or held is None:
        return figure(fact, how=FREE)
    return figure(fact, span(before) - span(held), f"{said(before)} before - {said(held)} weights")


def _window_tokens(start: Start, fact: Fact) -> Answer:
    full, typed = start.near("full_tokens", fact), start.number("swa_full_tokens_ratio")
    if full is None:
        return figure(fact, how="a share of the tokens of full layers, which are not stated")
    ratio = RATIO if typed is None else typed
    how = f"{ratio:g}{'' if typed is not None else ', the default,'} x {number(full.size)} tokens"
    should = exact(ratio * full.size).spread(_page(start))
    return figure(fact, should, how, "another --swa-full-tokens-ratio")


def _page(start: Start) -> float:
    return start.number("page_size") or 1


def _both(start: Start, fact: Fact) -> tuple[Span, str] | None:
    """Add up keys and values of the pool."""
    whole = start.near("kv_size", fact)
    if whole is not None:
        return span(whole), said(whole)
    keys, values = start.all("k_size"), start.all("v_size")
    if not keys or not values:
        return None
    if len({f.value for f in keys}) > 1:
        return None  # Pools of several kinds of layers.
    return span(keys[0]) + span(values[0]), f"{said(keys[0])} of keys + {said(values[0])} of values"


def _tokens(start: Start, known: Known, fact: Fact) -> Answer:
    """Judge the tokens by the share of memory; by K and V where that is not stated."""
    each = known.token_bytes()
    after, share = start.near("avail_end", fact), start.number("mem_fraction_static")
    before = start.near("avail_begin", fact)
    held = start.near("weights", fact)
    if each and share and after is not None and (before is not None or held is not None):
        first = span(before) if before is not None else span(after) + span(held or after)
        pool = Span(
            sglang_pool_bytes(first.value, after.size, share),
            span(after).low - first.high * (1 - share),
            span(after).high - first.low * (1 - share),
        )
        told = said(before) if before is not None else f"{first.value / 2**30:.2f} GiB"
        size = f"{number(each[0])} B a token"
        how = f"({said(after)} free - {1 - share:.3g} x {told} before) / {size}"
        fills = "workspaces of the attention kernel, states, or a draft take a part of the pool"
        fills += "; or --max-total-tokens says how many"
        return figure(fact, (pool / exact(each[0])).spread(_page(start)), how, fills)
    sizes = _both(start, fact)
    if sizes is not None and each:
        how = f"({sizes[1]}) / {number(each[0])} B a token"
        fills = "the cache has another format, or not all layers keep every token"
        return figure(fact, (sizes[0] / exact(each[0])).spread(_page(start)), how, fills)
    return figure(fact, how=known.why or "the log states neither a share of memory nor K and V")


def _cache(start: Start, known: Known, fact: Fact) -> Answer:
    """Judge keys or values: all tokens, and one page more that padding writes to."""
    tokens = start.near("tokens", fact)
    if tokens is None or known.cache is None or known.model is None:
        return figure(fact, how=known.why or "the log states no tokens of the pool")
    rows = tokens.size + _page(start)
    found: list[Span] = []
    for model in known.rank_models():
        cache = known.cache.cache
        if fact.name == "kv_size":
            found += [exact(rows * b) for b in known.token_bytes()]
            continue
        total = 0.0
        for g in model.groups:
            if not isinstance(g.mixer, Attention):
                continue
            width = g.mixer.H if fact.name == "k_size" else _values(g.mixer)
            total += g.count * g.mixer.K * cache.vector_bytes(width)
        found.append(exact(rows * total))
    what = {"k_size": "keys", "v_size": "values"}.get(fact.name, "keys and values")
    how = f"{number(tokens.size)} tokens x {what} of all layers on a rank"
    fills = "pools of several kinds of layers, or layers that keep nothing"
    return figure(fact, found, how, fills)


def _values(mixer: Attention) -> float:
    """Tell the width of a value of a head: what the bytes of a token leave beside the key."""
    return mixer.token_elements / mixer.K - mixer.H


def _after_pool(start: Start, fact: Fact) -> Answer:
    after, sizes = start.near("avail_end", fact), _both(start, fact)
    if after is None or sizes is None:
        return figure(fact, how=FREE)
    how = f"{said(after)} after the weights - {sizes[1]}"
    fills = "tables of requests and tokens, workspaces of the attention kernel"
    return figure(fact, span(after) - sizes[0], how, fills)


def _total_tokens(start: Start, fact: Fact) -> Answer:
    tokens = start.near("tokens", fact)
    full = start.near("full_tokens", fact)
    if full is not None:
        return figure(fact, exact(full.size), "the tokens of full layers")
    if tokens is None:
        return figure(fact, how="the tokens of the pool, which the log does not state")
    return figure(fact, exact(tokens.size), "the tokens of the pool", "pools of several layers")


def _states(start: Start, known: Known, fact: Fact) -> Answer:
    slots = start.near("mamba_slots", fact)
    if slots is None or known.model is None or known.cache is None or not known.states:
        return figure(fact, how=known.why or "slots x states of a sequence")
    ways: list[Span] = []
    for model in known.rank_models():
        for more in (0, 1):
            kept = [(g.count, g.mixer.state) for g in model.groups]
            if fact.name == "ssm_state":
                each = sum(n * s.recurrent * 4 for n, s in kept)
            else:
                each = sum(n * s.columns * 2 for n, s in kept)
            ways.append(exact((slots.size + more) * each))
    how = f"{number(slots.size)} slots x states of all layers, in fp32; columns in 16 bits"
    return figure(fact, ways, how, "states in another format, or a slot more for padding")


def _after_graphs(start: Start, fact: Fact) -> Answer:
    before, taken = start.near("avail_graph", fact), start.near("graphs_taken", fact)
    if before is None or taken is None:
        return figure(fact, how=FREE)
    return figure(fact, span(before) - span(taken), f"{said(before)} before - {said(taken)} graphs")
