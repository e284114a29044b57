"""Formats in which engines keep recurrent states and keys of indexers where nobody says one.

Sources: vllm-project/vllm, vllm/model_executor/layers/mamba/mamba_utils.py (_mamba_state_dtype,
kda_state_dtype) and vllm/model_executor/models/config.py (Qwen3.5 and Nemotron-H take that of their
config.json; pull requests 34489, 39032); sgl-project/sglang, python/sglang/srt/configs/
mamba_utils.py (mamba2_state_dtype). Keys of indexers: vllm-project/vllm, vllm/model_executor/
models/deepseek_v2.py (Indexer, k_cache); sgl-project/sglang, python/sglang/srt/mem_cache/
memory_pool.py (NSATokenToKVPool, index_k_with_scale_buffer).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .case import Case
from .formats import CACHES, FORMATS
from .layout import parts
from .linear_attention import DeltaNet
from .model import Model
from .sparse import SparseMLA

AS_MODEL = ("mamba", "mamba2", "linear", "delta")
"""Kinds of layers whose states vLLM keeps in the format of the model."""


def own_states(rules: Mapping[str, Any], model: Model, dtype: str) -> tuple[str, str] | None:
    """Tell the format of states that an engine takes by itself, and in words whose it is.

    dtype: format of the model's activations. None where there are no states, and where the engine
    is not known to take one: fp32 then.
    """
    mixers = [mixer for group in model.groups for mixer in parts(group.mixer)]
    kept = [mixer for mixer in mixers if mixer.state.recurrent and mixer.kind in AS_MODEL]
    if not kept or "states" not in rules:
        return None
    if model.states_format is not None:
        return model.states_format, ", that of its checkpoint"
    if rules["states"] == "model" and not all(_by_channel(mixer) for mixer in kept):
        return dtype, ", that of the model"
    return "fp32", ""


def _by_channel(mixer: Any) -> bool:
    """Tell whether a layer is Kimi Delta Attention, whose states are always in fp32."""
    return isinstance(mixer, DeltaNet) and mixer.decay == "channel"


def with_states(case: Case, rules: Mapping[str, Any]) -> tuple[Case, list[str]]:
    """Keep the states of a case in the format that an engine takes by itself, and say so."""
    precision = case.precision
    found = own_states(rules, case.model, precision.activations.name)
    if found is None:
        return case, []
    kind, whose = found
    said = f"states in {kind}{whose}, as {rules['name']} keeps them where --state is not given"
    return replace(case, precision=replace(precision, state=FORMATS[kind])), [said]


def own_index(name: str, model: Model, cache: str) -> tuple[str, str] | None:
    """Tell the format of a cache whose keys of indexers an engine keeps in 8 bits, and in words.

    name: the engine; cache: format of the cache as typed or usual. None where it stays as it is.
    """
    sparse = any(isinstance(m, SparseMLA) for g in model.groups for m in parts(g.mixer))
    if not sparse or name not in INDEXED or cache not in ("bf16", "fp16"):
        return None
    return "bf16-deepseek", f"keys of indexers in 8 bits, as {INDEXED[name]} keeps them always"


INDEXED = {"vllm": "vLLM", "sglang": "SGLang"}
"""Engines whose indexers have keys in fp8, with an fp32 scale of 128 numbers."""


def with_index(case: Case, engine: str) -> tuple[Case, list[str]]:
    """Keep the keys of a case's indexers in the format that an engine takes, and say so."""
    found = own_index(engine, case.model, case.precision.cache.name)
    if found is None:
        return case, []
    kind, said = found
    return replace(case, precision=replace(case.precision, cache=CACHES[kind])), [said]
