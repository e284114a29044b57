"""What surrounds the layers of some models: hyper-connections, AltUp, LAuReL, layer embeddings.

Sources: arXiv 2409.19606 and the DeepSeek-V4 technical report (hyper-connections); 2301.13310
(AltUp), 2411.07501 (LAuReL); transformers, models/deepseek_v4, gemma3n and gemma4. Mixing the
streams themselves counts no FLOPs: a few for each channel.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from .matmul import matmul_flops
from .passes import Operator, Precision, Segment
from .readings import Q, formula, is_zero, minimum, total
from .weights import Tensor, vector


@formula
def hyper_connection_parameters(D: Q, h: Q) -> Q:
    """Weights of the hyper-connections of one layer, before its mixer and before its feed-forward.

    D: model width [1]; h: residual streams [1]. Returns [parameters]: each a matrix from all
    streams to 2h + h² coefficients, as many biases, three scales.

    >>> hyper_connection_parameters(4096, 4)
    786486
    """
    coefficients = (2 + h) * h
    return 2 * (coefficients * h * D + coefficients + 3)


@formula
def layer_embedding_parameters(V: Q, L: Q, e: Q) -> Q:
    """Weights of the embedding tables of all layers: a row of e numbers a token and layer.

    V: rows of the tables [1]; L: layers [1]; e: width of a layer's row [1]. Returns [parameters].
    Gathered from, never streamed: half of Gemma-4-E2B.

    >>> layer_embedding_parameters(262144, 35, 256)
    2348810240
    """
    return V * L * e


@dataclass(frozen=True)
class Residual:
    """Traits of the residual stream of a model."""

    streams: Q = 0
    altup: Q = 0
    laurel: Q = 0
    width: Q = 0
    rows: Q = 0

    LETTERS: ClassVar = {
        "streams": "h_c", "altup": "h_a", "laurel": "R_l", "width": "D_l", "rows": "V_l",
    }  # fmt: skip
    ABOUT: ClassVar = {
        "streams": "streams of hyper-connections (DeepSeek-V4)",
        "altup": "streams of AltUp (Gemma 3n)", "laurel": "rank of LAuReL (Gemma 3n)",
        "width": "width of the embedding of each layer (Gemma 3n and 4)",
        "rows": "rows of the embedding of each layer",
    }  # fmt: skip

    def layer_products(self, D: Q) -> Q:
        """Products of a token with the matrices of one layer [1].

        As many as their weights, but AltUp's router works twice: before the layer and after it.
        """
        h, a = self.streams, self.altup
        return 2 * (2 + h) * h * h * D + 2 * a * D + 2 * D * self.laurel + 2 * D * self.width

    def layer_norms(self, D: Q) -> Q:
        """Weights of the norms of one layer [parameters]."""
        return D * sum(not is_zero(x) for x in (self.altup, self.laurel, self.width))

    def layer_parameters(self, D: Q) -> dict[str, Q]:
        """Count the parameters of one layer by part."""
        h, a = self.streams, self.altup
        # Coefficients of the prediction and of the correction, and a scale of the latter.
        mixing = 0 if is_zero(a) else a * a * a + a * a + a * D + D
        return {
            "hyper_connections": 0 if is_zero(h) else hyper_connection_parameters(D, h),
            "residual": mixing + 2 * D * self.laurel + 2 * D * self.width,
            "norms": self.layer_norms(D),
        }

    def model_matrices(self, D: Q, L: Q) -> Q:
        """Weights of the matrices before the first layer and after the last [parameters]."""
        h, a = self.streams, self.altup
        around = 0 if is_zero(a) else 2 * (a - 1) * D * D
        return h * h * D + around + D * L * self.width

    def parameters(self, D: Q, L: Q) -> dict[str, Q]:
        """Count the parameters that belong to no layer by part."""
        h, a = self.streams, self.altup
        around = 0 if is_zero(a) else 2 * (a - 1) * D * D
        return {
            "hyper_connections": 0 if is_zero(h) else h * h * D + h + 1,
            "residual": around + D * L * self.width,
            "norms": self.width,
            "layer_embeddings": layer_embedding_parameters(self.rows, L, self.width),
        }

    def tensors(self, D: Q, L: Q) -> Iterator[Tensor]:
        """List the weights of all layers and of what surrounds them."""
        for times, parts in ((L, self.layer_parameters(D)), (1, self.parameters(D, L))):
            for part, number in parts.items():
                if part == "layer_embeddings":
                    yield Tensor("residual", part, self.width, self.rows, L)
                else:
                    yield vector("residual", part, number, times)

    def operators(
        self, D: Q, L: Q, segments: Sequence[Segment], precision: Precision
    ) -> Iterator[Operator]:
        """List what surrounds L layers in a pass."""
        # Small and sensitive: these weights keep the 16 bits of the activations.
        b_x = precision.activations.bytes
        rows = total(s.rows for s in segments)
        apart = self.parameters(D, L)
        row = precision.format_of("embedding").matrix_bytes(self.width, 1)
        yield Operator(
            name="residual",
            part="residual",
            count=1,
            flops=matmul_flops(rows, self.model_matrices(D, L), 1),
            weight_bytes=b_x * total(n for part, n in apart.items() if part != "layer_embeddings")
            + minimum(rows, self.rows) * L * row,
            activation_bytes=b_x * (2 * D + L * self.width) * rows,
            live_bytes=b_x * (2 * D + L * self.width) * rows,
        )
        yield Operator(
            name="residual layers",
            part="residual",
            count=L,
            flops=matmul_flops(rows, self.layer_products(D), 1),
            weight_bytes=b_x * total(self.layer_parameters(D).values()),
            activation_bytes=b_x * 2 * D * rows,
            live_bytes=b_x * 2 * D * rows,
        )

    def unusual(self) -> Iterator[str]:
        """Say what a formula for a plain Llama would get wrong."""
        if not is_zero(self.streams):
            yield f"hyper-connections: {self.streams} residual streams between the layers"
        if not is_zero(self.altup):
            yield f"AltUp: {self.altup} residual streams, one of which a layer works on"
        if not is_zero(self.laurel):
            yield f"a low-rank path of rank {self.laurel} beside each layer (LAuReL)"
        if not is_zero(self.width):
            yield (
                f"each layer has an embedding of {self.rows:,} x {self.width}: a row of it is "
                "gathered for each token, the tables are not streamed"
            )
