"""What the figures of a TensorRT-LLM log should be.

Lines: cpp/tensorrt_llm/batch_manager/kvCacheManager.cpp. The pool is a share of what is free once
the engine is loaded, 0.9 unless it is typed, in whole blocks of tokens.
"""

from __future__ import annotations

from collections.abc import Iterator

from .log_judge import SLACK, Answer, exact, figure, gib, number, one_of, said, span
from .log_model import Known
from .log_read import Fact, Start

FRACTION = 0.9
"""Share of free memory that the pool takes by default (executor.h, KvCacheConfig)."""
BLOCK = 64
"""Tokens of a block by default before 0.20; 32 since."""


def explain(start: Start, known: Known) -> Iterator[Answer]:
    """Judge every figure of a start."""
    for fact in start.all("engine", "weights", "context_now"):
        yield _engine(known, fact)
    for fact in start.all("total", "available"):
        yield figure(fact, how="told by the driver, not by the model")
    for fact in start.all("blocks"):
        yield _blocks(start, known, fact)
    for fact in start.all("tokens"):
        yield _tokens(start, known, fact)
    for fact in start.all("kv_bytes", "pool"):
        yield _pool(start, known, fact)
    for fact in start.all("pages_per_sequence"):
        yield _pages(start, fact)


def _engine(known: Known, fact: Fact) -> Answer:
    held = known.rank_weights()
    if not held:
        return figure(fact, how=known.why)
    how = f"the preset's weights on a rank ({gib(held[0])})"
    fills = "parts of the engine in 16 bits, scales, kernels in the file; or another format"
    return figure(fact, one_of(held), how, fills, SLACK["trtllm"])


def _tokens_per_block(start: Start) -> tuple[float, str]:
    found = start.number("tokens_per_block")
    return (found, f"{found:.0f}") if found else (BLOCK, f"{BLOCK}, the default before 0.20,")


def _blocks(start: Start, known: Known, fact: Fact) -> Answer:
    tokens, free = start.near("tokens", fact), start.near("available", fact)
    block, words = _tokens_per_block(start)
    each = known.token_bytes()
    if free is not None and each:
        typed = start.number("free_gpu_memory_fraction")
        share = FRACTION if typed is None else typed
        given = "" if typed is not None else ", the default,"
        how = f"{share:g}{given} x {said(free)} free / ({words} tokens x {number(each[0])} B)"
        should = (span(free) * exact(share) / exact(block * each[0])).spread(1, 1)
        return figure(fact, should, how, "another share, block or format of the cache")
    if tokens is not None:
        how = f"{number(tokens.size)} tokens / {words}"
        return figure(fact, exact(tokens.size / block), how, "another block size")
    return figure(fact, how=known.why or "share x free memory / bytes of a block")


def _tokens(start: Start, known: Known, fact: Fact) -> Answer:
    pool, each = start.near("kv_bytes", fact) or start.near("pool", fact), known.token_bytes()
    blocks = start.near("blocks", fact)
    if blocks is not None:
        block, words = _tokens_per_block(start)
        how = f"{number(blocks.size)} blocks x {words} tokens"
        return figure(fact, exact(blocks.size * block), how, "another block size")
    if pool is not None and each:
        how = f"{said(pool)} / {number(each[0])} B a token"
        block, _ = _tokens_per_block(start)
        return figure(fact, (span(pool) / exact(each[0])).spread(block, block), how)
    return figure(fact, how=known.why or "bytes of the pool / bytes of a token")


def _pool(start: Start, known: Known, fact: Fact) -> Answer:
    tokens, each = start.near("tokens", fact), known.token_bytes()
    if tokens is None or not each:
        return figure(fact, how=known.why or "tokens x bytes of a token")
    how = f"{number(tokens.size)} tokens x {number(each[0])} B a token on a rank"
    return figure(fact, one_of(tokens.size * b for b in each), how,
                  "another format of the cache, or layers that keep a window")  # fmt: skip


def _pages(start: Start, fact: Fact) -> Answer:
    length = start.near("max_seq_len", fact) or start.near("window", fact)
    block, words = _tokens_per_block(start)
    if length is None:
        return figure(fact, how="longest sequence / tokens of a block")
    how = f"{number(length.size)} tokens / {words}, in whole blocks"
    should = exact(-(-length.size // block))
    return figure(fact, should.spread(0, 1), how, "room for drafted tokens, or another block size")
