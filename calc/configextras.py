"""Count the layers of a checkpoint that predict further tokens, which are no part of the decoder.

Only for classes whose checkpoints are known to hold exactly this: the numbers that their files hold
on huggingface.co are the decoder, this, and the biases of routers, which are no parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from .configkeys import Keys
from .configlayers import Layer, parts_of
from .model import NORM_WEIGHTS

OWN_TABLES: dict[str, bool] = {
    "bailing_hybrid": False, "deepseek_v3": True, "deepseek_v32": True, "glm4_moe": True,
    "glm_moe_dsa": False, "hy_v3": False, "nemotron_h": False, "qwen3_next": False,
}  # fmt: skip
"""Whether the layer holds copies of embedding and head, by model_type."""


def prediction_parameters(keys: Keys, D: int, V: int, layers: Sequence[Layer]) -> int | None:
    """Weights of the one layer that predicts a further token; None where they are not certain.

    A layer like the last one; a projection of its input and the embedding side by side, 2 D to D;
    norms of both and one at the end; with copies of embedding and head or without.
    """
    if keys.kind not in OWN_TABLES:
        return None
    if keys.family.layout == "indexed" and len({parts_of(layer)[0] for layer in layers}) > 1:
        # Whether it has an indexer, where some layers share one, is not known.
        return None
    like = [layers[-1]]
    if keys.family.layout == "nemotron_h":
        from .configstates import nemotron_layer, pattern

        words = pattern(keys, "mtp_layers_block_type", "mtp_hybrid_override_pattern")
        like = [nemotron_layer(keys, D, word) for word in words or ("full_attention", "moe")]
    number = 2 * D * D + 3 * D + (2 * V * D if OWN_TABLES[keys.kind] else 0)
    for mixer, ffn, norms in (parts_of(layer) for layer in like):
        parts = [*mixer.parameters(D).values(), *ffn.parameters(D).values()]
        number += int(sum(parts)) + norms * NORM_WEIGHTS[keys.family.norm] * D
    return number
