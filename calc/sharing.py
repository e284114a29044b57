"""A prefix that all sequences of a batch share: stored once, and read once or for each of them.

Sources: docs.vllm.ai, design/prefix_caching (blocks of equal tokens are one block); flashinfer.ai,
2024/02/02/cascade-inference.html, and arXiv 2402.05099 (Hydragen): kernels that read a prefix
once for all sequences. Ordinary paged kernels read it for each. A layer shares what it keeps of the
prefix: all of it, what is left of it in a window, or nothing, as a state mixes all tokens into one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .errors import RooflmError
from .readings import Q, formula, is_zero, maximum, minimum, total

if TYPE_CHECKING:
    from .case import Case
    from .model import Model
    from .passes import Precision, Segment


@formula
def common_once(B: Q, each: Q, common: Q) -> Q:
    """Cache that B sequences hold or read where a part is the same in all: h + B(s - h).

    B: sequences [1]; each: cache of one of them, s [tokens]; common: the part that is the same, h
    [tokens]. Returns [tokens], or bytes of bytes.

    >>> common_once(32, each=2560, common=2048) * 131072
    2415919104
    """
    return common + B * (each - common)


@formula
def common_window_tokens(S: Q, W: Q, h: Q, s: Q = 0) -> Q:
    """Tokens of a prefix that a window still sees: max(0, min(S, W) - (S - h)), and sinks.

    S: context [tokens]; W: window, the query's own token included [tokens]; h: leading tokens that
    are the same in all sequences [tokens]; s: first tokens that stay in view beside the window
    [tokens]. Returns [tokens].

    >>> common_window_tokens(1500, 1024, 1000), common_window_tokens(3000, 1024, 1000)
    (524, 0)
    """
    if is_zero(s):
        return maximum(0, minimum(S, W) - (S - h))
    return minimum(h, s) + maximum(0, minimum(S - s, W) - (S - h))


def cache_read_bytes(mixer: Any, s: Segment, token: Q) -> Q:
    """Bytes of the cache that one layer reads for a segment; token: bytes of one token [B]."""
    each = token * mixer.cache_tokens(s)
    if not s.shared_once or is_zero(s.shared):
        return s.sequences * each
    return common_once(s.sequences, each, token * mixer.common_tokens(s.context, s.shared))


def common_bytes(model: Model, S: Q, h: Q, precision: Precision) -> Q:
    """Bytes of the cache of a sequence of S tokens that are those of its first h, all layers [B].

    Layers that read the cache of others, and those with a state, keep nothing of it.
    """
    return total(
        g.count * one.token_bytes(precision) * one.common_tokens(S, h)
        for g in model.groups
        for one in _sharing(g.mixer)
        if not is_zero(one.token_bytes(precision))
    )


def _sharing(mixer: Any) -> list[Any]:
    """List the mixers of a layer that keep tokens, of two side by side those of both."""
    return [one for one in getattr(mixer, "pair", (mixer,)) if hasattr(one, "common_tokens")]


KINDS = ("full", "sliding", "streaming", "shared", "mla", "none")
"""Kinds of attention of which it is known what they keep of a prefix."""


def check_sharing(model: Model) -> None:
    """Refuse models with layers of which it is not known what they share of a prefix."""
    if model.denoises:
        what = f"{model.name} keeps no cache in which a prefix could be shared"
        raise RooflmError(what, "--shared-prefix", "Leave the option out.")
    for group in model.groups:
        for one in getattr(group.mixer, "pair", (group.mixer,)):
            with_state = is_zero(one.token_elements) and not is_zero(one.state.elements)
            chunked = getattr(one, "chunk", None) is not None
            if chunked or (one.kind not in KINDS and not with_state):
                what = f"what {one.kind} layers share of a prefix is not modelled"
                raise RooflmError(what, "--shared-prefix", "Leave the option out.")


def check_contexts(shared: Q, contexts: Sequence[int]) -> None:
    """Refuse contexts without a token of their own."""
    if contexts and min(contexts) <= shared:
        what = (
            f"a shared prefix of {shared:,} tokens leaves none of {min(contexts):,} to a sequence"
        )
        raise RooflmError(what, "--shared-prefix", f"Take a --context above {shared:,}.")


def asked(case: Case) -> dict[str, Any]:
    """Tell what was asked for, by the keys of the contract; nothing where nothing is shared."""
    if is_zero(case.shared_prefix):
        return {}
    reads = "once" if case.prefix_once else "each"
    return {"shared_prefix_tokens": case.shared_prefix, "prefix_reads": reads}


def told(case: Case) -> list[str]:
    """Say in sentences what is shared, and how it is read; nothing where nothing is."""
    if is_zero(case.shared_prefix):
        return []
    who = "all sequences"
    if case.layout is not None and case.layout.dp * case.layout.replicas > 1:
        who = "all sequences of a group of ranks, each of which has a copy"
    how = "once for all (a kernel that knows of it)" if case.prefix_once else "for each of them"
    if case.prefix_once and any(g.mixer.kind == "mla" for g in case.model.groups):
        how += ", its keys and values made once where that is less work"
    states = any(not is_zero(g.mixer.state.elements) for g in case.model.groups)
    return [
        f"the first {case.shared_prefix:,} tokens are the same in {who}: stored once, read {how}; "
        "floor_s always reads them once; prefills are counted without it"
        + ("; states are not shared: each sequence has its own" if states else "")
    ]
