"""What the figures of a llama.cpp or ollama log should be.

Lines: src/llama-model.cpp (print_info), src/llama-kv-cache.cpp, src/llama-context.cpp; ollama's
server/memory.go. The log itself prints the dimensions, so no preset is needed: the cache is cells
x layers x the widths of K and V in their formats; sizes of files are parameters x bits.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .engine_memory import llama_cells, llama_window_cells
from .formats import FORMATS
from .log_judge import SLACK, Answer, Span, exact, figure, number, said, span
from .log_model import Known
from .log_read import Fact, Start

OTHER = {"f16": "fp16", "f32": "fp32"}
"""llama.cpp's words for formats."""
BUFFER = "tensors that are kept on several devices, or in host memory beside them, and padding"


def explain(start: Start, known: Known) -> Iterator[Answer]:
    """Judge every figure of a start."""
    for fact in start.all("file_size"):
        yield _file(start, known, fact)
    for fact in start.all("layers_total", "layers_offloaded"):
        yield _layers(start, fact)
    yield from _summed(start, "device_weights", "file_size", "the file's weights, in part")
    yield from _summed(start, "device_kv", "kv_size", "the cache, in part")
    for fact in start.all("kv_size", "k_size", "v_size"):
        yield _cache(start, known, fact)
    yield from window_cells(start)
    for fact in start.all("state"):
        yield _state(start, known, fact)
    for fact in start.all("ollama_kv"):
        yield _ollama(start, known, fact)
    for fact in start.all("ollama_weights", "ollama_graph"):
        yield figure(fact, how="ollama's own estimate before it loads")
    for fact in start.all("compute_buffer", "output_buffer"):
        yield figure(fact, how="of the graph of a batch; only the engine's planner can tell it")


def bits(kind: str) -> float | None:
    """Tell the bits of a number of a block type, scales included; None for one that is unknown."""
    found = FORMATS.get(OTHER.get(kind.lower(), kind.lower()))
    return None if found is None else found.real_bits(256, 256)


def _params(start: Start) -> Span | None:
    fact = start.first("params")
    if fact is None:
        return None
    text, letter = str(fact.value).split()
    try:
        value = float(text)
    except ValueError:
        return None
    times = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}[letter]
    half = 0.5 * 10.0 ** -len(text.partition(".")[2])
    return Span(value * times, (value - half) * times, (value + half) * times)


def _file(start: Start, known: Known, fact: Fact) -> Answer:
    params, bpw = _params(start), start.near("bpw", fact)
    if params is not None and bpw is not None:
        named = start.first("params")
        how = f"{named.value if named else ''} parameters x {said(bpw)} bits / 8"
        return figure(fact, params * span(bpw) / exact(8), how, BUFFER)
    held = known.rank_weights()
    if held and start.word("file_type") is None:
        return figure(fact, exact(held[0]), "the preset's weights", BUFFER, SLACK["llamacpp"])
    return figure(fact, how="parameters x bits of a weight; the log lacks one of them")


def _layers(start: Start, fact: Fact) -> Answer:
    layers = start.number("n_layer")
    if fact.name == "layers_total" and layers is not None:
        how = f"{layers:.0f} layers and the output"
        return figure(fact, exact(layers + 1), how, "layers that predict further tokens")
    asked = start.number("ngl")
    total = start.number("layers_total")
    if fact.name == "layers_offloaded" and asked is not None and total is not None:
        return figure(fact, exact(min(asked, total)), f"{asked:.0f} asked for, {total:.0f} there")
    how = "as -ngl says, or as many as fit"
    return figure(fact, how=how if fact.name == "layers_offloaded" else "the log prints no n_layer")


def _summed(start: Start, part: str, whole: str, words: str) -> Iterator[Answer]:
    """Judge buffers of devices by their sum; each alone only says where layers lie."""
    facts = start.all(part)
    told = start.first(whole)
    if not facts:
        return
    if told is None or any(f.name == "swa_cells" for f in start.all("swa_cells")):
        for fact in facts:
            yield figure(fact, how=f"{words}: as layers are dealt out")
        return
    total = span(facts[0])
    for more in facts[1:]:
        total = total + span(more)
    mine = span(told)
    slack = 0.05 * mine.value if part == "device_weights" else 0.0
    agree = total.low <= mine.high + slack and total.high >= mine.low - slack
    how = f"{words}: all buffers of the log are {total.value / 2**20:,.2f} MiB of {said(told)}"
    for fact in facts:
        # What the other buffers leave of the whole.
        should = mine - total + span(fact)
        answer = figure(fact, exact(max(should.value, 0.0)), how, BUFFER)
        answer["agrees"] = agree
        answer["fills"] = None if agree else BUFFER
        yield answer


def _widths(start: Start) -> tuple[float, float, str] | None:
    """Add up the widths of keys and values over the layers that are cached, all streams alike."""
    keys, values = start.facts.get("layer_k", []), start.facts.get("layer_v", [])
    if keys and len(keys) == len(values):
        total_k, total_v = sum(f.size for f in keys), sum(f.size for f in values)
        layers = start.number("n_layer")
        if layers is None or layers == len(keys):
            return total_k, total_v, f"{len(keys)} layers as listed"
    k, v = start.number("n_embd_k_gqa"), start.number("n_embd_v_gqa")
    layers = start.number("n_layer")
    if k is None or v is None:
        # Before grouped queries were known to it, llama.cpp cached as wide as the model.
        heads, head = start.number("n_head_kv"), start.number("n_embd_head_k")
        wide = start.number("n_embd")
        all_heads = start.number("n_head")
        if heads and head:
            k = v = heads * head
        elif heads and wide and all_heads:
            k = v = heads * wide / all_heads
        elif heads is None and wide and start.first("old"):
            k = v = wide
    if k is None or v is None:
        return None
    if layers is None:
        return k, v, ""
    return layers * k, layers * v, f"{layers:.0f} layers x ({number(k)} + {number(v)})"


def _cache(start: Start, known: Known, fact: Fact) -> Answer:
    """Judge a cache, its keys or its values."""
    kinds = [start.near(n, fact) for n in ("type_k", "type_v")]
    names = [str(f.value) if f is not None else "" for f in kinds]
    cells_fact = start.near("cells", fact)
    cached = start.near("cache_layers", fact)
    streams = _streams(start, fact)
    latent = start.first("layer_rank", "kv_rank")
    if latent is not None and start.first("layer_rank"):
        return _latent(start, fact, names[0])
    context = start.near("n_ctx", fact)
    rows = cells_fact.size if cells_fact else (context.size if context else None)
    if rows is None:
        return figure(fact, how="cells x layers x widths; the log states no n_ctx")
    if cells_fact is None and context is not None:
        streams = 1
    halves = {"kv_size": (True, True), "k_size": (True, False), "v_size": (False, True)}[fact.name]
    if not names[0]:
        # The first versions kept both in fp16, or in fp32 where f16 was switched off.
        names = ["f16", "f16"]
    sizes = [bits(n) for n in names]
    widths = _widths(start)
    if None in sizes:
        return figure(fact, how=f"bytes of {names[0]} and {names[1]} are not known")
    if widths is None:
        return figure(fact, how="the log prints no widths of keys and values")
    wide = widths[:2]
    layers = start.number("n_layer")
    if cached is not None and layers and not start.facts.get("layer_k"):
        wide = (wide[0] / layers * cached.size, wide[1] / layers * cached.size)
    total = 0.0
    for on, size, width in zip(halves, sizes, wide, strict=True):
        if on and size is not None:
            total += rows * streams * width * size / 8
    count = f"{number(rows)} cells"
    count += f" x {streams} streams" if streams != 1 else ""
    each = f"{cached.size:.0f} layers" if cached is not None else widths[2]
    how = f"{count} x {each} in {names[0]} and {names[1]}"
    ways = [exact(total)]
    padded = llama_cells(int(rows)) * total / rows if rows else total
    ways.append(exact(padded))
    if start.first("old") and fact.name == "kv_size":
        ways.append(exact(2 * total))
        if abs(span(fact).value - 2 * total) < 1:
            how = f"{count} x {widths[2]} in fp32, which older bindings chose"
    fills = "layers of other widths, windows of their own, or padded cells"
    return figure(fact, ways, how, fills)


def _state(start: Start, known: Known, fact: Fact) -> Answer:
    """Judge recurrent states, which are kept in fp32 for every slot, columns as well."""
    slots = start.near("state_cells", fact)
    if slots is None or not known.states or known.model is None:
        how = "slots x states of a sequence: the log prints no dimensions of them"
        return figure(fact, how=how + ("" if known.model is not None else "; --model does"))
    each = 4 * sum(g.count * g.mixer.state.elements for g in known.model.groups)
    how = f"{number(slots.size)} slots x {number(each)} B of states in fp32"
    return figure(
        fact, exact(slots.size * each), how, "columns that are kept beyond what is needed"
    )


def _streams(start: Start, fact: Fact) -> int:
    """Read how many sequences have cells of their own: 4/1 is one stream for four sequences."""
    found = start.near("streams", fact)
    if found is None:
        return 1
    parts = re.findall(r"\d+", str(found.value))
    return int(parts[1]) if len(parts) > 1 else 1


def _latent(start: Start, fact: Fact, kind: str) -> Answer:
    """Judge the cache of latents: rank and rotary width a layer, and the rank once more if kept."""
    rank, rope = start.first("layer_rank"), start.first("layer_rope")
    context = start.near("n_ctx", fact)
    size = bits(kind or "f16")
    layers = len(start.facts.get("layer", ()))
    if context is None or rank is None or rope is None or size is None or not layers:
        return figure(fact, how="cells x layers x (latent and rotary width); n_ctx is not stated")
    twice = start.word("latent_twice")
    width = rank.size + rope.size + (rank.size if twice else 0)
    told = f"({rank.size:.0f} + {rope.size:.0f}{f' + {rank.size:.0f} transposed' if twice else ''})"
    how = f"{number(context.size)} cells x {layers} layers x {told} in {kind or 'f16'}"
    return figure(fact, exact(context.size * layers * width * size / 8), how)


def _ollama(start: Start, known: Known, fact: Fact) -> Answer:
    """Judge the cache that ollama counts on before it loads: fp16 for all slots."""
    context = start.number("ctx_size", "n_ctx")
    widths = _widths(start)
    if context is not None and widths is not None and start.number("n_layer"):
        how = f"{number(context)} tokens x {widths[2]} in f16"
        return figure(fact, exact(context * (widths[0] + widths[1]) * 2), how)
    each = known.token_bytes()
    if context is not None and each:
        how = f"{number(context)} tokens x {number(each[0])} B a token"
        return figure(fact, exact(context * each[0]), how, "another format of the cache")
    return figure(fact, how=known.why or "tokens of all slots x bytes of a token")


def window_cells(start: Start) -> Iterator[Answer]:
    """Judge the cells of window layers: the window of all slots and a batch."""
    full, window = start.number("full_cells"), start.number("n_swa")
    for fact in start.all("swa_cells"):
        if full is None or window is None:
            yield figure(fact, how="the window of every slot and a batch, in whole 256 cells")
            continue
        slots = int(start.number("n_seq_max") or 1)
        batch = int(start.number("n_ubatch") or 512)
        should = exact(llama_window_cells(int(full), int(window), batch, slots))
        yield figure(fact, should, f"window {window:.0f} x {slots} slots + a batch of {batch}")
