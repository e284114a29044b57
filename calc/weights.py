"""Weights as they lie in memory: matrices and vectors, each with the operator that reads it.

One list serves the count of parameters, the bytes that are stored and those that a pass streams:
they cannot drift apart.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from .passes import Precision
from .readings import Q, is_zero, total


class Tensor(NamedTuple):
    """Equal weights of one layer."""

    op: str
    """Operator that reads them."""
    part: str
    """Part of the model that they are counted with, and addressed by in `--weights`."""
    rows: Q
    """Inner width of a matrix; 1 for a vector [1]."""
    columns: Q
    """Outputs of a matrix; length of a vector [1]."""
    count: Q = 1
    """How many there are [1]."""
    name: str = ""
    """What a GGUF file calls it, where its mixtures treat it by name."""

    @property
    def parameters(self) -> Q:
        """Numbers in all of them [parameters]."""
        return self.count * (self.rows * self.columns)


def vector(op: str, part: str, length: Q, count: Q = 1) -> Tensor:
    """Describe a vector: a bias, the gain of a norm, numbers that no matrix product reads."""
    return Tensor(op, part, 1, length, count)


def tensor_bytes(tensor: Tensor, precision: Precision) -> Q:
    """Bytes that tensors take with their scales [B]."""
    kind = precision.format_of(tensor.part, matrix=not is_vector(tensor), name=tensor.name)
    return tensor.count * kind.matrix_bytes(tensor.rows, tensor.columns)


def is_vector(tensor: Tensor) -> bool:
    """Tell whether a tensor is no matrix: it keeps 16 bits where matrices have fewer."""
    return isinstance(tensor.rows, int) and tensor.rows == 1


def read_bytes(tensors: Iterable[Tensor], op: str, precision: Precision) -> Q:
    """Bytes of the weights that an operator reads once [B]."""
    return total(tensor_bytes(t, precision) for t in tensors if t.op == op)


def parameters_of(tensors: Iterable[Tensor]) -> dict[str, Q]:
    """Count parameters by part; parts that hold none are absent."""
    parts: dict[str, Q] = {}
    for tensor in tensors:
        number = tensor.parameters
        if not is_zero(number):
            parts[tensor.part] = parts.get(tensor.part, 0) + number
    return parts


class Weighted(ABC):
    """A layer that lists its tensors."""

    @abstractmethod
    def tensors(self, D: Q) -> Iterator[Tensor]:
        """List the weights of one layer, D the model width."""

    def parameters(self, D: Q) -> dict[str, Q]:
        """Count the parameters of one layer by part."""
        return parameters_of(self.tensors(D))
