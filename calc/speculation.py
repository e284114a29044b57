"""Speculative sampling: which drafted tokens are accepted, how many, and how many to draft.

Letters are those of the lecture: p is the law of the draft, q that of the target; Leviathan et al.
swap them. Source: arXiv 2211.17192 (Leviathan et al.), arXiv 2302.01318 (Chen et al.).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from .readings import Q, formula, is_symbol, maximum, minimum, series, total


@formula
def accept_probability(p: Q, q: Q) -> Q:
    """Chance that a drafted token is accepted: min(1, q/p).

    p: chance that the draft draws it, not 0 [1]; q: chance that the target would [1]. Returns [1].

    >>> accept_probability(0.8, 0.6)
    0.7499999999999999
    """
    return minimum(1, q / p)


@formula
def accepted_mass(p: Q, q: Q) -> Q:
    """Chance that a token is drafted and accepted: min(p, q).

    p: chance that the draft draws it [1]; q: chance that the target would [1]. Returns [1]; over
    all tokens it adds up to the acceptance, which is 1 less the total variation of p and q.

    >>> accepted_mass(0.8, 0.6)
    0.6
    """
    return minimum(p, q)


@formula
def rejected_mass(p: Q, q: Q) -> Q:
    """Chance that a token is drawn after a rejection: max(q - p, 0).

    p: chance that the draft draws it [1]; q: chance that the target would [1]. Returns [1]. Divided
    by its sum over all tokens it is the residual law; to draw from q itself instead is wrong.

    >>> rejected_mass(0.2, 0.5)
    0.3
    """
    return maximum(q - p, 0)


@formula
def expected_tokens(alpha: Q, gamma: int) -> Q:
    """Tokens that a pass of the target yields: (1 - a^(g+1))/(1 - a), the sum of a^0 to a^g.

    alpha: chance that a drafted token is accepted once those before it were, the same for each [1];
    gamma: drafted tokens, a whole number [tokens]. Returns [tokens]; gamma + 1 where all are
    accepted. One token is always the target's own. Where acceptance differs between requests the
    mean acceptance gives too little, since the sum is convex. Source: arXiv 2211.17192, eq. (1).

    >>> round(expected_tokens(0.8, 4), 4)
    3.3616
    """
    return series(lambda i: alpha**i, 0, gamma)


def expected_tokens_by_position(alphas: Sequence[Q]) -> Q:
    """Tokens that a pass of the target yields where the chances differ by position [tokens].

    alphas: chance that each drafted token is accepted once those before it were [1].

    >>> expected_tokens_by_position([0.5, 0.5])
    1.75
    """
    return 1 + total(itertools.accumulate(alphas, lambda a, b: a * b))


def expected_tree_tokens(nodes: Sequence[Sequence[int]], accuracies: Sequence[Sequence[Q]]) -> Q:
    """Tokens that a pass yields which verifies a static tree: 1 and each node's chance [tokens].

    nodes: the path of each, the rank of the candidate at each depth, 0 the likeliest; accuracies:
    of each depth, the chance that the candidate of each rank is the right one [1]. Heads are taken
    to be independent. Source: arXiv 2401.10774 (Medusa), section on the tree.

    >>> expected_tree_tokens([[0], [0, 0]], [[0.6], [0.5]])
    1.9
    """
    return 1 + total(
        math.prod(accuracies[depth][rank] for depth, rank in enumerate(path)) for path in nodes
    )


@formula
def expected_chain_tokens(alpha: Q, gamma: int, chains: Q) -> Q:
    """Tokens that a pass yields which verifies several independent drafts: the longest accepted.

    alpha: chance that a drafted token is accepted once those before it were [1]; gamma: tokens of a
    draft, a whole number [tokens]; chains: drafts, b [1]. Returns [tokens]:
    (g+1) - sum over i of (1 - a^i)^b. Source: arXiv 2402.02057 (Lookahead decoding).

    >>> round(expected_chain_tokens(0.6, 4, 2), 8)
    3.05814784
    """
    return gamma + 1 - series(lambda i: (1 - alpha**i) ** chains, 1, gamma)


@formula
def speculative_speedup(tokens: Q, plain: Q, drafting: Q, verifying: Q) -> Q:
    """How many times faster than plain decoding a round of speculation yields its tokens.

    tokens: that a round yields [tokens]; plain: time of a decode step [s]; drafting: of all draft
    passes of a round [s]; verifying: of the target's pass over the drafted tokens [s]. Returns [1].

    >>> round(speculative_speedup(3.3616, 0.0053, 0.0024, 0.0053), 3)
    2.314
    """
    return tokens * plain / (drafting + verifying)


@formula
def ideal_speedup(alpha: Q, gamma: int, c: Q) -> Q:
    """Speed-up where verifying takes as long as a plain step: E/(gc + 1).

    alpha: acceptance [1]; gamma: drafted tokens, a whole number [tokens]; c: time of a draft step
    over that of a step of the target [1]. Returns [1]. Some gamma gives more than 1 exactly where
    alpha > c. Holds for one sequence while memory traffic limits; with more, verifying takes
    longer. Source: arXiv 2211.17192, theorem 3.8.

    >>> round(ideal_speedup(0.8, 4, 0.05), 4)
    2.8013
    """
    return speculative_speedup(expected_tokens(alpha, gamma), 1, gamma * c, 1)


@formula
def work_increase(tokens: Q, gamma: int, c: Q) -> Q:
    """How many times the arithmetic of plain decoding a token takes: (gc + g + 1)/E.

    tokens: that a round yields [tokens]; gamma: drafted tokens, a whole number [tokens]; c: work of
    a draft token over that of a token of the target [1]. Returns [1]: the target computes all g + 1
    positions. Source: arXiv 2211.17192, theorem 3.11.

    >>> round(work_increase(expected_tokens(0.8, 4), 4, 0.05), 4)
    1.5469
    """
    return (gamma * c + gamma + 1) / tokens


@formula
def best_gamma(alpha: Q, c: Q) -> Q:
    """Draft length at which the ideal speed-up is largest, as a real number.

    alpha: acceptance, between c and 1 [1]; c: time of a draft step over that of a step of the
    target, above 0 [1]. Returns [tokens]: ((c - z)/ln a - 1)/c with
    z = -c W(-exp(ln a/c - ln a - 1)), W the lower branch of Lambert's function. Where the
    derivative of `ideal_speedup` is 0; the best whole number is one of its neighbours. Where
    alpha <= c nothing is won, and where alpha is 1 or c is 0 longer is always better.

    >>> round(best_gamma(0.8, 0.05), 4)
    7.8567
    """
    log, exp, lower = _functions(symbolic=is_symbol(alpha, c))
    z = -c * lower(-exp(log(alpha) / c - log(alpha) - 1))
    found = ((c - z) / log(alpha) - 1) / c
    return found if is_symbol(found) else float(found)


def _functions(symbolic: bool) -> tuple[Any, Any, Any]:
    """Give logarithm, exponential and the lower branch of Lambert's function."""
    if symbolic:
        import sympy

        library: Any = sympy
        return library.log, library.exp, lambda x: library.LambertW(x, -1)  # pyright: ignore
    import mpmath

    # The exponential underflows where drafts are cheap: mpmath's exponents have no end.
    library = mpmath
    return library.log, library.exp, lambda x: library.lambertw(x, -1).real  # pyright: ignore


def best_whole_gamma(alpha: float, c: float) -> int:
    """Whole draft length at which the ideal speed-up is largest; 0 where nothing is won [tokens].

    alpha: acceptance below 1 [1]; c: time of a draft step over that of a step of the target, above
    0 [1].

    >>> best_whole_gamma(0.8, 0.05), best_whole_gamma(0.04, 0.05)
    (8, 0)
    """
    if alpha <= c:
        return 0
    low = max(0, math.floor(best_gamma(alpha, c)))
    return max((low, low + 1), key=lambda gamma: ideal_speedup(alpha, gamma, c))


@formula
def medusa_parameters(D: Q, V: Q, heads: Q) -> Q:
    """Weights of Medusa heads: a residual block and a matrix over the vocabulary each.

    D: width [1]; V: vocabulary [1]; heads: how many [1]. Returns [parameters]: h(D^2 + D + DV). All
    are read once a round. Source: github.com/FasterDecoding/Medusa, medusa_model.py.

    >>> medusa_parameters(4096, 32000, 5)
    739266560
    """
    return heads * (D * D + D + D * V)
