"""How weights are made: random numbers in the formats of a case, on a device or a rank of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..calc.errors import RooflmError
from ..calc.passes import Precision
from . import elementwise
from .linears import Linear, dtype_of, make_linear
from .untyped import Tensor, torch

Reduce = Callable[[Tensor], Tensor]
"""Adds up what ranks computed; nothing on one device."""


class Meter:
    """Calls what a layer does, and adds its time up by part where that was asked for."""

    def __init__(self) -> None:
        self.clock: Callable[[], float] | None = None
        self.seconds: dict[str, float] = {}

    def __call__(self, part: str, run: Callable[..., Any], *args: Any) -> Any:
        """Call a function for a part of the step."""
        if self.clock is None:
            return run(*args)
        before = self.clock()
        found = run(*args)
        self.seconds[part] = self.seconds.get(part, 0.0) + self.clock() - before
        return found


@dataclass
class Maker:
    """Makes weights: random, in the formats of a case."""

    precision: Precision
    device: Any
    seed: int = 0
    rank: int = 0
    """Which rank the weights are of: what all ranks hold is the same on each."""
    keep: bool = False
    """Keep what the stored numbers stand for, to check results."""
    reduce: Reduce | None = None
    groups: bool = False
    """Multiply plain experts in groups by one kernel."""
    most_positions: int = 4096
    """Longest context that will be run [tokens]."""

    def __post_init__(self) -> None:
        self.random, self.same = (torch.Generator(device=self.device) for _ in range(2))
        self.random.manual_seed(self.seed + 1000 * self.rank)
        self.same.manual_seed(self.seed + 500)
        self.dtype = dtype_of(self.precision.activations.name)
        self.tables: dict[int, tuple[Tensor, Tensor]] = {}

    def normal(self, *shape: int, scale: float = 1.0, shared: bool = False) -> Tensor:
        """Make normally distributed numbers in the format of the activations.

        shared: the same on all ranks.
        """
        made = torch.empty(shape, dtype=self.dtype, device=self.device)
        return made.normal_(0.0, scale, generator=self.same if shared else self.random)

    def vector(self, length: int, middle: float = 0.0) -> Tensor:
        """Make a vector around a value, as biases are."""
        return self.normal(length, scale=0.1) + middle

    def gain(self, length: int, middle: float = 1.0) -> Tensor:
        """Make the gain of a norm, or its bias: the same on all ranks."""
        return self.normal(length, scale=0.1, shared=True) + middle

    def matrix(
        self, columns: int, rows: int, part: str, bias: bool = False, shared: bool = False
    ) -> Linear:
        """Make a matrix of a part of the model, in the part's format."""
        kind = self.precision.format_of(part).name
        weight = self.normal(columns, rows, scale=rows**-0.5, shared=shared)
        own = self.vector(columns) if bias else None
        return make_linear(weight, kind, own, self.keep)

    def angles(self, width: int) -> tuple[Tensor, Tensor]:
        """Share the tables of rotary positions between layers."""
        if width not in self.tables:
            made = elementwise.rotary_tables(self.most_positions, width, self.device)
            self.tables[width] = made
        return self.tables[width]

    def plain(self, part: str, what: str) -> None:
        """Refuse formats of fewer bits where torch has no kernel that reads them."""
        kind = self.precision.format_of(part)
        if kind.covers != "all":
            found = f"torch has no kernel for {what} in {kind.name}"
            raise RooflmError(found, "--weights", f"Take bf16 for them: {part}=bf16.")


def refused(what: str) -> RooflmError:
    """Say that a kind of layer is not run."""
    return RooflmError(
        f"{what} are not run as torch steps", "MODEL", "`rooflm sweep` counts them all the same."
    )


def cache_dtype(precision: Precision) -> Any:
    """Tell torch's type of the numbers in a cache."""
    if precision.cache.name not in ("bf16", "fp16", "fp32", "fp8"):
        what = f"torch steps are not run with a cache in {precision.cache.name}"
        raise RooflmError(what, "--kv", "Known: bf16, fp16, fp32, fp8.")
    return dtype_of(precision.cache.name)
