"""What the figures of a vLLM log should be.

Lines: vllm/worker/worker.py (0.2 to 0.8), vllm/v1/worker/gpu_worker.py and
vllm/v1/core/kv_cache_utils.py (V1). The pool is utilization x total - weights - activations -
non-torch; blocks are shared by all ranks, so that the rank with the smallest pool decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from .engine_memory import graph_utilization, rope_table_bytes
from .log_judge import SLACK, Answer, Span, closest, exact, figure, gib, number, said, span
from .log_model import Known
from .log_pool import (
    concurrency_rules,
    longest_rules,
    needed_rules,
    shared_ways,
    token_rules,
    unmodelled,
    whole_lines,
)
from .log_read import Fact, Start
from .memory import BATCHED_TOKENS, BLOCK_TOKENS, reserved_cache_bytes
from .model import cache_bytes

SWAP_GIB = 4
"""Swap space of a device before 0.8, by default [GiB]."""
SET_ASIDE = 150 * 2**20
"""What vLLM keeps off the pool that it suggests (gpu_worker.py, redundancy_buffer_memory) [B]."""
RUN = "only a run can tell it: no dimension of the model says it"


def explain(start: Start, known: Known) -> Iterator[Answer]:
    """Judge every figure of a start."""
    for fact in start.all("total", "free"):
        yield figure(fact, how="told by the driver, not by the model")
    for fact in start.all("usable"):
        yield _usable(start, fact)
    for fact in start.all("weights"):
        yield weights(start, known, fact, "vllm")
    for fact in start.all("non_torch", "activation", "graphs", "graphs_taken"):
        yield figure(fact, how=RUN)
    for fact in start.all("peak_torch"):
        yield _peak(start, fact)
    for fact in start.all("effective"):
        yield _effective(start, fact)
    for fact in start.all("pool"):
        yield _pool(start, fact)
    for fact in start.all("suggested"):
        yield _suggested(start, fact)
    packed = unmodelled(known)
    judges = {
        "gpu_blocks": _blocks, "cpu_blocks": _blocks, "tokens": _tokens, "stored": _tokens,
        "needed": _needed,
    }  # fmt: skip
    for fact in start.all(*judges):
        judge = judges[fact.name]
        yield figure(fact, how=packed) if packed else judge(start, known, fact)
    for fact in start.all("concurrency"):
        yield _concurrency(start, known, fact)
    for fact in start.all("estimated_len"):
        yield _estimated(start, known, fact)


def weights(start: Start, known: Known, fact: Fact, engine: str) -> Answer:
    """Judge the weights of a device: parameters in their formats, and the rotary table."""
    held = known.rank_weights()
    if not held:
        return figure(fact, how=known.why)
    positions, width = known.rope_table(start.number("max_model_len"))
    rope = rope_table_bytes(positions, width)
    near = min(held, key=lambda b: abs(b - fact.size))
    how = f"the weights of a rank ({gib(near)})"
    table = f" and the rotary table ({gib(rope)})" if rope else ""
    rules = [(exact(near + rope), how + table), (exact(near), how)]
    if known.turns_twice and rope:
        rope = 2 * rope
        table = f" and two rotary tables, of windows and of the rest ({gib(rope)})"
        rules.append((exact(near + rope), how + table))
    kept = min(known.rank_remainders(positions, width), default=0.0)
    if kept:
        told = f", and what torch keeps behind matrices ({gib(kept)})"
        rules.append((exact(near + rope + kept), how + table + told))
    again = known.absorbed() if engine == "vllm" else 0
    if again:
        told = f", and up-projections of the latent once more in 16 bits ({gib(again)})"
        rules.append((exact(near + again), how + told))
    beside = 2 * sum(n for _, n in known.model.extras) if known.model is not None else 0
    if beside:
        told = f", and parts beside the decoder in 16 bits ({gib(beside)})"
        rules.append((exact(near + beside), how + told))
    extra = [
        *(["the model that drafts"] if start.word("speculative") else []),
        *(["room for adapters"] if start.word("lora") else []),
        *(["parts beside the decoder"] if known.model and known.model.extras else []),
        "scales and repacked or padded matrices", "buffers of kernels",
        "a longer rotary table",
    ]  # fmt: skip
    less = "another format than is assumed, tied tensors, or experts that stay in host memory"
    fills = ", ".join(extra) if fact.size > near else less
    return closest(fact, rules, fills, SLACK[engine])


def _utilization(start: Start, fact: Fact) -> Fact | None:
    return start.near("utilization", fact) or start.first("gpu_memory_utilization")


def _usable(start: Start, fact: Fact) -> Answer:
    total, share = start.near("total", fact), _utilization(start, fact)
    if total is None or share is None:
        return figure(fact, how="the log states no total and share of it")
    how = f"{share.number:g} x {said(total)}"
    return figure(fact, span(total) * span(share), how, "another share than the log shows")


def _peak(start: Start, fact: Fact) -> Answer:
    held = start.near("weights", fact)
    how = RUN if held is None else f"weights ({said(held)}) and activations, which {RUN}"
    return figure(fact, how=how)


def _effective(start: Start, fact: Fact) -> Answer:
    graphs, total, share = (start.near(n, fact) for n in ("graphs", "total", "utilization"))
    if graphs is not None and share is not None and total is None and share.size > fact.size:
        whole = graphs.size / (share.size - fact.size)
        how = f"{share.number:g} - {said(graphs)} / total; so the total is near {gib(whole)}"
        return figure(fact, how=how)
    if graphs is None or total is None or share is None:
        return figure(fact, how="the share less that of the CUDA graphs, which is not stated")
    value = graph_utilization(share.size, graphs.size, total.size)
    taken = span(graphs) / span(total)
    bounds = Span(value, share.size - taken.high - share.half, share.size - taken.low + share.half)
    return figure(fact, bounds, f"{share.number:g} - {said(graphs)} / {said(total)}")


def _parts(start: Start, fact: Fact) -> tuple[Span, str, list[str]] | None:
    """Add up what the pool is less than the usable memory; None where the log states too little."""
    peak = start.near("peak_torch", fact)
    names = ["peak_torch", "non_torch"] if peak else ["weights", "activation", "non_torch"]
    found = [start.near(name, fact) for name in names]
    if not all(found):
        return None
    facts = [f for f in found if f is not None]
    words = [said(f) for f in facts]
    spans = [span(f) for f in facts]
    graphs = start.near("graphs", fact)
    if graphs is not None:
        spans.append(span(graphs))
        words.append(said(graphs))
    taken = spans[0]
    for more in spans[1:]:
        taken = taken + more
    return taken, " - ".join(words), names


def _budget(start: Start, fact: Fact) -> Span | None:
    usable = start.near("usable", fact)
    total, share = start.near("total", fact), _utilization(start, fact)
    if total is not None and share is not None:
        product = span(total) * span(share)
        if usable is not None:
            mine = span(usable)
            return Span(mine.value, max(mine.low, product.low), min(mine.high, product.high))
        return product
    return None if usable is None else span(usable)


def _pool(start: Start, fact: Fact) -> Answer:
    budget, parts = _budget(start, fact), _parts(start, fact)
    if budget is None or parts is None:
        lacks = [] if budget is not None else ["total memory"]
        lacks += [] if parts is not None else ["activations and memory outside torch"]
        how = f"utilization x total - weights - activations - non-torch; not in the log: {lacks[0]}"
        return figure(fact, how=how + "".join(f", {w}" for w in lacks[1:]))
    taken, words, _ = parts
    how = f"{gib(budget.value)} usable - {words}"
    fills = "the rank that is shown need not be the one with the smallest pool"
    return figure(fact, budget - taken, how, fills)


def _suggested(start: Start, fact: Fact) -> Answer:
    budget, parts = _budget(start, fact), _parts(start, fact)
    if budget is None or parts is None:
        return figure(fact, how="what may be used less weights, activations, non-torch and graphs")
    taken, words, _ = parts
    how = f"{gib(budget.value)} usable - {words} - 150 MiB that are kept off"
    return figure(fact, budget - taken - exact(SET_ASIDE), how)


def _block(start: Start) -> tuple[float, str]:
    found = start.number("block_size")
    if found:
        return found, f"{found:.0f} tokens a block"
    return BLOCK_TOKENS, f"{BLOCK_TOKENS} tokens a block, the default"


def _smallest_pool(start: Start) -> Fact | None:
    return min(start.all("pool"), key=lambda f: f.size, default=None)


def _blocks(start: Start, known: Known, fact: Fact) -> Answer:
    block, words = _block(start)
    tokens = start.first("stored", "tokens")
    if fact.name == "cpu_blocks" and not fact.size:
        return figure(fact, how="no swap space: it was switched off, or the engine is V1")
    if fact.name == "cpu_blocks":
        swap = start.number("swap_space")
        share = swap or SWAP_GIB
        each = known.token_bytes()
        if not each:
            return figure(fact, how=known.why or "swap space / bytes of a block")
        given = "" if swap is not None else ", the default"
        how = f"{share:g} GiB of swap space{given} / ({words} x {number(each[0])} B a token)"
        bounds = exact(share * 2**30 / (block * each[0])).spread(1)
        return figure(fact, bounds, how, "another swap space or block size")
    pool, each = _smallest_pool(start), known.token_bytes()
    if tokens is not None and not (pool and each):
        how = f"{number(tokens.size)} tokens / {words}"
        return figure(fact, exact(tokens.size / block), how, "another block size")
    swapped = start.first("cpu_blocks")
    if pool is not None and not each and swapped is not None and swapped.size:
        share = start.number("swap_space") or SWAP_GIB
        blocks = exact(swapped.size).spread(0, 1)
        how = f"{said(pool)} / {share:g} GiB of swap space x {number(swapped.size)} blocks of that"
        return figure(fact, span(pool) / exact(share * 2**30) * blocks, how, "another swap space")
    if pool is None or not each:
        how = known.why or "the pool / bytes of a block; the log states no pool, or none is kept"
        return figure(fact, how=how)
    how = f"{said(pool)} / ({words} x {number(each[0])} B a token)"
    return figure(fact, (span(pool) / exact(block * each[0])).spread(1), how, _differs(known))


def _differs(known: Known) -> str:
    if known.states:
        return ("recurrent states share the pool: in another format, with drafted tokens or cached "
                "prefixes they take other pages and blocks")  # fmt: skip
    if known.mixed:
        return "layers of several kinds are in groups of equal pages, which are padded"
    return "a rank that is not shown has a smaller pool, or a connector or a draft shares it"


def _tokens(start: Start, known: Known, fact: Fact) -> Answer:
    block, words = _block(start)
    blocks = start.near("gpu_blocks", fact)
    pool, each = _smallest_pool(start), known.token_bytes()
    shared = token_rules(shared_ways(start, known), start, pool, fact)
    if blocks is not None:
        whole = exact(blocks.size * block), f"{number(blocks.size)} blocks, {words}"
        return closest(fact, [*shared, whole], "another block size, or groups")
    if pool is None or not each:
        how = known.why or "pool / bytes of a token; no pool is stated, or none is kept"
        return closest(fact, shared, _differs(known)) if shared else figure(fact, how=how)
    ways = [(each[0], f"{number(each[0])} B a token")]
    if known.mixed:
        padded = known.padded_token_bytes()[0]
        if padded != each[0]:
            ways.append((padded, f"{number(padded)} B a token, all layers padded to the largest"))
    # Tokens are those of whole blocks.
    rules = [((span(pool) / exact(size)).spread(block), f"{said(pool)} / {told}")
             for size, told in ways]  # fmt: skip
    return closest(fact, [*shared, *rules], _differs(known))


def _concurrency(start: Start, known: Known, fact: Fact) -> Answer:
    length = start.near("concurrency_len", fact) or start.first("max_model_len")
    tokens, blocks = start.near("tokens", fact), start.near("gpu_blocks", fact)
    block, words = _block(start)
    shared = concurrency_rules(shared_ways(start, known), start, _smallest_pool(start), fact)
    if length is None or (tokens is None and blocks is None):
        how = "tokens of the pool / longest context; the log lacks one of them"
        return closest(fact, shared, _differs(known)) if shared else figure(fact, how=how)
    held = tokens.size if tokens is not None else blocks.size * block if blocks else 0.0
    source = "tokens" if tokens is not None else f"tokens ({words})"
    how = f"{number(held)} {source} / {number(length.size)}"
    fills = "layers that keep a window or a state take less of a long request than of a short one"
    if not known.mixed and known.model is not None:
        fills = "another block size, or replicas whose pools are added up"
    plain = exact(held / length.size), how
    # Since 0.21 the line of tokens is made of that of concurrency.
    rules = [plain, *shared] if all(whole_lines(start)) else [*shared, plain]
    return closest(fact, rules, fills)


def _needed(start: Start, known: Known, fact: Fact) -> Answer:
    length = start.near("max_model_len", fact)
    models = known.rank_models()
    if length is None or not models or known.cache is None:
        return figure(fact, how=known.why or "bytes of the cache of the longest context")
    block, _ = _block(start)
    tokens = -(-int(length.size) // int(block)) * int(block)
    cache = known.cache
    most = f"the cache of {number(tokens)} tokens on a rank"
    rules = [(exact(cache_bytes(m, tokens, cache)), most) for m in models]
    if known.mixed:
        rules = [*needed_rules(shared_ways(start, known), length.size), *rules]
        paged = f"{most}, in whole blocks, windows with a pass of {BATCHED_TOKENS:,} tokens"
        rules += [(exact(reserved_cache_bytes(m, cache, 1, tokens)["paged"]), paged)
                  for m in models]  # fmt: skip
        rules += [(exact(b * tokens), f"{most}, all layers padded to the largest")
                  for b in known.padded_token_bytes()]  # fmt: skip
    fills = _differs(known)
    if known.layout.pp > 1:
        fills = "up to 0.15 the need of all stages was held against the pool of one"
    return closest(fact, rules, fills)


def _estimated(start: Start, known: Known, fact: Fact) -> Answer:
    pool, needed = start.near("pool", fact), start.near("needed", fact)
    length = start.near("max_model_len", fact)
    if pool is None or needed is None or length is None:
        return figure(fact, how="pool / bytes of a token; the log lacks the pool or the need")
    block, _ = _block(start)
    should = (span(pool) * exact(length.size) / span(needed)).spread(block, block)
    how = f"{number(length.size)} x {said(pool)} / {said(needed)}"
    fills = "a part of the need that does not grow with the context: states, windows, whole pages"
    shared = longest_rules(shared_ways(start, known), start, pool, fact)
    return closest(fact, [*shared, (should, how)], fills)
