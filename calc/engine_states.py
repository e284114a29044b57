"""Formats in which engines keep recurrent states where nobody says one.

Sources: vllm-project/vllm, vllm/model_executor/layers/mamba/mamba_utils.py (_mamba_state_dtype,
kda_state_dtype) and vllm/model_executor/models/config.py (Qwen3.5 and Nemotron-H take that of their
config.json; pull requests 34489, 39032); sgl-project/sglang, python/sglang/srt/configs/
mamba_utils.py (mamba2_state_dtype).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from .case import Case
from .formats import FORMATS
from .layout import parts
from .linear_attention import DeltaNet
from .model import Model

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
