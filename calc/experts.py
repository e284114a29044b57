"""Mixtures of experts: which weights a pass touches, and what it computes with them.

Stored, used, touched and streamed are four numbers. Source of the expectation: tokens choose k of
E experts independently of each other, whatever they do within a token; checked by enumeration.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from .errors import RooflmError
from .matmul import matmul_flops
from .mlp import MLP
from .passes import Operator, Precision, Routing, Segment
from .readings import Q, formula, is_zero, total
from .weights import Tensor, Weighted, read_bytes, vector


@formula
def distinct_experts(rows: Q, E: Q, k: Q) -> Q:
    """Distinct experts of one layer that a pass touches: E(1 - (1 - k/E)^rows), expected.

    rows: tokens of the pass [1]; E: experts [1]; k: experts of a token [1]. Returns [1]. Tokens
    route independently and evenly; neighbours of one text are alike, so that real passes touch
    fewer.

    >>> distinct_experts(4, 8, 2)
    5.46875
    """
    return E * (1 - (1 - k / E) ** rows)


def distinct_experts_skewed(rows: float, shares: Sequence[float]) -> float:
    """Distinct experts that a pass touches where some are chosen more often.

    rows: tokens of the pass [1]; shares: probability that a token chooses each expert, which add
    up to k [1]. Returns [1]. Skew touches fewer experts and loads the busiest more.

    >>> distinct_experts_skewed(4, [0.25] * 8) == distinct_experts(4, 8, 2)
    True
    """
    return sum(1 - (1 - p) ** rows for p in shares)


@formula
def independent_rows(rows: Q, alike: Q) -> Q:
    """Tokens of a pass that choose experts by themselves: rows**alike.

    rows: tokens of the pass [1]; alike: 1 where all do, 0 where all choose as one [1]. Returns [1].
    A fit, not a law: sequences of one benchmark are alike (llama-batched-bench: 0.46).

    >>> independent_rows(32, 0.5) == 32**0.5
    True
    """
    return rows if isinstance(alike, float | int) and alike == 1 else rows**alike


def zipf_shares(E: int, k: int, exponent: float) -> list[float]:
    """Probabilities of a Zipf law over experts, capped at 1 and adding up to k.

    E: experts [1]; k: experts of a token, E at the most [1]; exponent: 0 is even [1]. Returns E
    numbers [1]. What a cap cuts off goes to the others in proportion.

    >>> [round(p, 3) for p in zipf_shares(4, 2, 1)]
    [0.96, 0.48, 0.32, 0.24]
    """
    weights = [(e + 1) ** -exponent for e in range(E)]
    capped = 0
    # The last one of all can reach 1, and no rounding takes it beyond.
    while weights[capped] * (scale := (k - capped) / sum(weights[capped:])) > 1:
        capped += 1
    return [1.0] * capped + [w * scale for w in weights[capped:]]


def saturating_tokens(ridge: float, E: float, k: float, b_w: float = 2) -> float:
    """Tokens at which the experts turn compute-bound: each sees rows k/E of them.

    ridge: intensity of the machine [FLOP/B]; E, k: experts and experts of a token [1]; b_w: bytes
    per weight [B]. Returns [tokens]. Source: jax-ml/scaling-book, gpus.md (the factor E/k).

    >>> round(saturating_tokens(989e12 / 3.35e12, 256, 8), 1)
    9447.2
    """
    return ridge * (b_w / 2) * E / k


@dataclass(frozen=True)
class Experts(Weighted):
    """A feed-forward layer of routed experts, with or without shared ones."""

    F: Q
    """Width of one expert."""
    E: Q
    """Experts that hold weights."""
    k: Q
    """Experts that a token chooses."""
    gated: bool = True
    bias: bool = False
    zero: Q = 0
    """Further experts that a token may choose and that do nothing (LongCat)."""
    shared: Q = 0
    """Width of all shared experts together; every token uses them."""
    shared_gate: bool = False
    """A gate of D weights on the shared experts."""
    latent: Q | None = None
    """Width at which the experts work, with projections from D and back."""
    router_bias: bool = False
    """Biases of the router that are parameters."""

    LETTERS: ClassVar = {
        "F": "F", "E": "E", "k": "k", "zero": "E_z", "shared": "F_s", "latent": "D_e",
    }  # fmt: skip

    def __post_init__(self) -> None:
        k, choices = self.k, self.choices
        if isinstance(k, int) and isinstance(choices, int) and k > choices:
            raise RooflmError(f"a token cannot choose {k} of {choices} experts")

    def expert(self) -> MLP:
        """One routed expert."""
        return MLP(self.F, self.gated, self.bias)

    def width(self, D: Q) -> Q:
        """Width at which the experts work [1]."""
        return D if self.latent is None else self.latent

    @property
    def choices(self) -> Q:
        """Experts that the router knows, the empty ones included [1]."""
        return self.E + self.zero

    def expert_parameters(self, D: Q) -> Q:
        """Weights of one routed expert [parameters]."""
        return self.expert().parameters(self.width(D))["mlp"]

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer, all its experts."""
        yield Tensor("router", "router", D, self.choices)
        if self.router_bias:
            yield vector("router", "router", self.choices)
        if self.latent is not None:
            yield Tensor("latent", "shared_experts", D, self.latent)
            yield Tensor("latent", "shared_experts", self.latent, D)
        yield from self.expert().tensors(self.width(D), "experts", "experts", self.E)
        if not is_zero(self.shared):
            mlp = MLP(self.shared, self.gated, self.bias)
            yield from mlp.tensors(D, "shared", "shared_experts")
            if self.shared_gate:
                yield vector("shared up", "shared_experts", D)

    @property
    def used(self) -> Q:
        """Experts with weights that a token uses on average [1]."""
        return self.k if is_zero(self.zero) else self.k * self.E / self.choices

    def idle_parameters(self, D: Q) -> Q:
        """Weights of the layer that a token does not use [parameters]."""
        return (self.E - self.used) * self.expert_parameters(D)

    def chosen(self, routing: Routing) -> Sequence[float] | None:
        """Probabilities of a skewed routing, empty experts among them; None where it is even."""
        if routing.shares:
            if not is_zero(self.zero):
                what = "which experts are empty, or on other ranks, is not told by probabilities"
                raise RooflmError(what, "--routing", "Write even or zipf:1.0.")
            if len(routing.shares) != self.E or abs(sum(routing.shares) - self.k) > 1e-6 * self.k:
                what = f"{len(routing.shares)} probabilities that add up to {sum(routing.shares):g}"
                fix = f"{self.E} that add up to {self.k} are needed."
                raise RooflmError(f"{what} do not describe this model's experts", "--routing", fix)
            return routing.shares
        if not routing.exponent:
            return None
        return zipf_shares(self.choices, self.k, routing.exponent)

    def touched(self, rows: Q, fewest: bool, shares: Sequence[float] | None = None) -> Q:
        """Distinct experts that a pass touches [1].

        rows: tokens of the pass [1]; fewest: all tokens choose the same ones, as those of
        identical prompts do; shares: probabilities in place of even routing.
        """
        if fewest:
            return self.k if is_zero(self.zero) else 0
        if shares is not None:
            # Empty experts are spread evenly over the ranks of the law.
            return distinct_experts_skewed(rows, shares) * (self.E / self.choices)
        if is_zero(self.zero):
            return distinct_experts(rows, self.E, self.k)
        return self.E * (1 - (1 - self.k / self.choices) ** rows)

    def touched_by(self, rows: Q, routing: Routing) -> Q:
        """Distinct experts that a pass touches under a routing, or as they were counted [1]."""
        if routing.distinct is not None and not routing.fewest:
            return routing.distinct
        independent = independent_rows(rows, routing.alike)
        return self.touched(independent, routing.fewest, self.chosen(routing))

    def untouched_parameters(self, D: Q, rows: Q, routing: Routing) -> Q:
        """Weights of the layer that no token of a pass uses, in expectation [parameters]."""
        touched = self.touched_by(rows, routing)
        return (self.E - touched) * self.expert_parameters(D)

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what `count` such layers execute in a pass."""
        b_x, held = precision.activations.bytes, list(self.tensors(D))
        rows = total(s.rows for s in segments)
        yield Operator(
            name="router",
            part="router",
            count=count,
            flops=matmul_flops(rows, D, self.choices),
            compute=precision.compute_of("router"),
            weight_bytes=read_bytes(held, "router", precision),
            activation_bytes=(b_x * D + 4 * self.choices) * rows,
            live_bytes=(2 * b_x * D + 4 * self.choices) * rows,
        )
        if self.latent is not None:
            yield Operator(
                name="latent",
                part="experts",
                count=count,
                flops=2 * matmul_flops(rows, D, self.latent),
                compute=precision.compute_of("shared_experts"),
                weight_bytes=read_bytes(held, "latent", precision),
                activation_bytes=2 * b_x * (D + self.latent) * rows,
                live_bytes=b_x * (2 * D + self.latent) * rows,
            )
        routing = precision.routing
        touched = self.touched_by(rows, routing)
        d, one, used = self.width(D), self.expert(), self.used
        if routing.fewest and not is_zero(self.zero):
            used = 0
        each, compute = list(one.tensors(d, "experts", "experts")), precision.compute_of("experts")
        yield Operator(
            name="experts up",
            part="experts",
            count=count,
            flops=matmul_flops(used * rows, d, (one.matrices - 1) * self.F),
            compute=compute,
            weight_bytes=touched * read_bytes(each, "experts up", precision),
            activation_bytes=b_x * used * (d + self.F) * rows,
            live_bytes=b_x * (2 * D + used * (d + one.matrices * self.F)) * rows,
        )
        yield Operator(
            name="experts down",
            part="experts",
            count=count,
            flops=matmul_flops(used * rows, self.F, d),
            compute=compute,
            weight_bytes=touched * read_bytes(each, "experts down", precision),
            activation_bytes=b_x * used * (self.F + d) * rows,
            live_bytes=b_x * (2 * D + used * (self.F + d)) * rows,
        )
        if not is_zero(self.shared):
            mlp = MLP(self.shared, self.gated, self.bias)
            for op in mlp.operators(D, count, segments, precision):
                name = op.name.replace("mlp", "shared")
                gated = self.shared_gate and name == "shared up"
                yield replace(
                    op,
                    name=name,
                    part="shared experts",
                    flops=op.flops + (matmul_flops(rows, D, 1) if gated else 0),
                    compute=precision.compute_of("shared_experts"),
                    weight_bytes=read_bytes(held, name, precision),
                )


@dataclass(frozen=True)
class NoFeedForward(Weighted):
    """A layer whose feed-forward was taken out."""

    LETTERS: ClassVar[dict[str, str]] = {}

    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List no weights."""
        return iter(())

    def operators(
        self, D: Q, count: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """Execute nothing."""
        return iter(())
