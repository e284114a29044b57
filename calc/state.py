"""What a sequence keeps whatever its length: recurrent states and columns of convolutions.

Sources: state-spaces/mamba, mamba_simple.py (allocate_inference_cache); vllm-project/vllm,
mamba_utils.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from .formats import CacheFormat, Format
from .passes import Precision
from .readings import Q, formula


@formula
def convolution_columns(channels: Q, taps: Q) -> Q:
    """Elements that a causal convolution needs of earlier tokens: one column less than its taps.

    channels: width of what it runs over [1]; taps: tokens that it sees [1]. Returns [elements].
    transformers and mamba_ssm keep `taps` columns, llama.cpp and vLLM as many as needed.

    >>> convolution_columns(5120, 4)
    15360
    """
    return channels * (taps - 1)


@formula
def state_bytes(recurrent: Q, columns: Q, b_s: Q = 4, b_kv: Q = 2) -> Q:
    """Bytes that a layer keeps of a sequence whatever its length.

    recurrent: elements of the recurrent state [elements]; columns: those of convolutions and
    shifted tokens [elements]; b_s, b_kv: bytes per element of each [B]. Returns [B].

    >>> state_bytes(81920, 15360)
    358400
    """
    return b_s * recurrent + b_kv * columns


@dataclass(frozen=True)
class Kept:
    """What one layer keeps of a sequence whatever its length."""

    recurrent: Q = 0
    """Elements in the number format of the state."""
    columns: Q = 0
    """Columns of convolutions and shifted tokens, in the format that `columns_format` tells."""

    @property
    def elements(self) -> Q:
        """Elements of both kinds."""
        return self.recurrent + self.columns

    def bytes(self, precision: Precision) -> Q:
        """Bytes of both kinds [B]."""
        columns = columns_format(precision)
        return state_bytes(self.recurrent, self.columns, precision.state.bytes, columns.bytes)


PLAIN = ("fp32", "bf16", "fp16")
"""Formats of a cache that its columns of convolutions are in as well."""


def columns_format(precision: Precision) -> CacheFormat | Format:
    """Tell the format of columns of convolutions and shifted tokens: the cache's where it is plain.

    A cache of fewer than 16 bits holds keys and values; columns stay as they are computed.
    """
    return precision.cache if precision.cache.name in PLAIN else precision.activations


NOTHING = Kept()
