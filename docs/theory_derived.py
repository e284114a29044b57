"""Formulas of docs/theory.md that follow from those of calc/ by dividing, equating, cancelling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rooflm.calc.attention import attention_bytes, attention_flops, full_pairs, kv_cache_bytes
from rooflm.calc.matmul import intensity, matmul_bytes, matmul_flops
from rooflm.calc.mla import absorbed_flops, materialised_flops, mla_cache_elements
from rooflm.calc.mlp import mlp_bytes, mlp_flops
from rooflm.calc.readings import floor, is_symbol
from rooflm.calc.speculation import expected_tokens
from rooflm.calc.symbols import sympy
from rooflm.calc.timing import bandwidth_time, throughput


def _simple(value: Any) -> Any:
    """Cancel common factors of a formula, with no minus before it; numbers stay."""
    if not is_symbol(value):
        return value
    over, under = sympy.fraction(sympy.factor(value))
    forms = (over / under, sympy.expand(over) / under, sympy.expand(-over) / sympy.expand(-under))
    texts = {str(form): form for form in forms}
    return texts[min(texts, key=lambda text: (text.startswith("-"), text.count("-"), len(text)))]


def _root(affine: Callable[[Any], Any]) -> Any:
    """Find where a function that is affine in its argument is 0."""
    return _simple(affine(0) / (affine(0) - affine(1)))


def matmul_intensity(B: Any, D: Any, F: Any, b_x: Any = 2, b_w: Any = 2, b_y: Any = 2) -> Any:
    """Intensity of a matmul: its FLOPs over its bytes.

    Returns [FLOP/B].
    """
    return _simple(intensity(matmul_flops(B, D, F), matmul_bytes(B, D, F, b_x, b_w, b_y)))


def matmul_turn(
    D: Any, F: Any, I: Any, b_x: Any = 2, b_w: Any = 2, b_y: Any = 2  # noqa: E741
) -> Any:  # fmt: skip
    """Batch at which a matmul turns compute-bound: its intensity set equal to the ridge I.

    Returns [1]. Where it is negative the matmul never does.
    """
    return _root(lambda B: matmul_flops(B, D, F) - I * matmul_bytes(B, D, F, b_x, b_w, b_y))


def mlp_intensity(B: Any, T: Any, D: Any, F: Any, b: Any = 2) -> Any:
    """Intensity of a gated layer: its FLOPs over its bytes.

    Returns [FLOP/B].
    """
    return _simple(intensity(mlp_flops(B * T, D, F), mlp_bytes(B * T, D, F, b)))


def mlp_turn(D: Any, F: Any, I: Any, b: Any = 2) -> Any:  # noqa: E741
    """Tokens BT at which a gated layer turns compute-bound: its intensity set equal to I.

    Returns [tokens].
    """
    return _root(lambda rows: mlp_flops(rows, D, F) - I * mlp_bytes(rows, D, F, b))


def attention_intensity(S: Any, T: Any, N: Any, K: Any, b_q: Any = 2, b_kv: Any = 2) -> Any:
    """Intensity of attention whose queries see all S tokens: batch and head width cancel.

    Returns [FLOP/B].
    """
    B = H = 1
    flops = attention_flops(B * full_pairs(S - T, T), N, H)
    return _simple(intensity(flops, attention_bytes(B, S, T, N, K, H, b_q, b_kv)))


def absorbed_intensity(N: Any, c: Any, r: Any, b_kv: Any = 2) -> Any:
    """Intensity of absorbed latent attention over a long cache: what a cached token adds.

    Returns [FLOP/B].
    """
    return _simple(intensity(absorbed_flops(1, 0, N, c, r, 0, 0), b_kv * mla_cache_elements(c, r)))


def materialising_tokens(c: Any, r: Any, d: Any, v: Any) -> Any:
    """New tokens above which a long context is cheaper to materialise: equal FLOPs per token of it.

    Returns [tokens].
    """

    def excess(T: Any) -> Any:
        return absorbed_flops(T, 0, 1, c, r, d, v) - materialised_flops(T, 1, 1, c, r, d, v)

    return _root(excess)


def step_time(weights: Any, B: Any, S: Any, K: Any, H: Any, L: Any, b_kv: Any, β: Any) -> Any:
    """Time of a decode step in the lecture's model: weights and caches over bandwidth.

    Returns [s].
    """
    return bandwidth_time(weights + B * kv_cache_bytes(S, K, H, L, b_kv), β)


def step_throughput(weights: Any, B: Any, S: Any, K: Any, H: Any, L: Any, b_kv: Any, β: Any) -> Any:
    """Tokens of all sequences in a second: a token each, over the time of the step.

    Returns [tokens/s].
    """
    return _simple(throughput(B, step_time(weights, B, S, K, H, L, b_kv, β)))


def throughput_limit(S: Any, K: Any, H: Any, L: Any, b_kv: Any, β: Any) -> Any:
    """Throughput that no batch exceeds: only caches count.

    Returns [tokens/s].
    """
    return throughput(1, step_time(0, 1, S, K, H, L, b_kv, β))


def equal_context(weights: Any, B: Any, K: Any, H: Any, L: Any, b_kv: Any) -> Any:
    """Context at which the caches of a batch take as many bytes as the weights.

    Returns [tokens].
    """
    return _root(lambda S: B * kv_cache_bytes(S, K, H, L, b_kv) - weights)


def latency_batch(τ: Any, weights: Any, S: Any, K: Any, H: Any, L: Any, b_kv: Any, β: Any) -> Any:
    """Largest batch whose step takes no longer than asked for.

    Returns [1].
    """
    return floor(_root(lambda B: step_time(weights, B, S, K, H, L, b_kv, β) - τ))


def budget_batch(M: Any, R: Any, weights: Any, S: Any, K: Any, H: Any, L: Any, b_kv: Any) -> Any:
    """Largest batch whose caches fit in the memory M beside the weights and a reserve R.

    Returns [1].
    """
    return floor(_root(lambda B: weights + R + B * kv_cache_bytes(S, K, H, L, b_kv) - M))


def stored_bits(bits: Any, scale: Any, zero: Any, group: Any) -> Any:
    """Bits that a number takes whose group shares a scale and a zero point.

    Returns [bits].
    """
    return bits + (scale + zero) / group


def weight_only_speedup(weights: Any, B: Any, cache: Any, r: Any) -> Any:
    """How many times faster a step is if its weights alone shrink r times, traffic being the limit.

    Returns [1].
    """
    return bandwidth_time(weights + B * cache, 1) / bandwidth_time(weights / r + B * cache, 1)


def expected_tokens_closed(α: Any, γ: Any) -> Any:
    """Expected tokens in closed form, for an acceptance below 1: the series added up.

    Returns [tokens].
    """
    found = expected_tokens(α, γ)
    if not is_symbol(found):
        return found
    below = found.doit().args[-1][0]
    return (
        (1 - α ** (γ + 1)) / (1 - α)
        if sympy.simplify(below * (1 - α) + α ** (γ + 1)) == 1
        else below
    )
