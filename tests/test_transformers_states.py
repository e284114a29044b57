"""Recurrent states, their convolutions and what surrounds them, against live classes.

Tiny models of the shapes of published ones run on the CPU over the cache that the class makes.
What is held is read off its tensors. What is computed is counted by torch: matrix products and
convolutions, no elementwise work, so that the ledger's recurrences are left out and what the torch
path of a class does in their place is added. That path pads a pass to whole chunks, convolves the
columns that it keeps and those of the padding as well, and reads no state before a long pass.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import pytest

from rooflm.calc.attention import Attention
from rooflm.calc.linear_attention import DeltaNet, LinearAttention
from rooflm.calc.mixers import Mixer
from rooflm.calc.mla import MLA, materialised_flops
from rooflm.calc.mlstm import MLSTM
from rooflm.calc.model import Model, cache_elements, ledger, state_elements, total_parameters
from rooflm.calc.passes import Segment
from rooflm.calc.rglru import RGLRU
from rooflm.calc.short_conv import ShortConv
from rooflm.calc.side_by_side import SideBySide
from rooflm.calc.ssm import Mamba, Mamba2, ssd_flops
from rooflm.calc.state import Kept

from .live import STEPS, B, config_of, flop_counter, instantiate, read, torch, transformers
from .live import one_thread as one_thread
from .tiny_states import CHUNK, STATES, tiny_state

OWN_CACHE = {"minimax", "rwkv", "xlstm"}
"""Classes with a cache of their own, which they make themselves."""
DELTA_CHUNK = 64
"""Tokens of a chunk of the delta rule, whatever the config says."""


def steps_of(name: str) -> tuple[tuple[int, int], ...]:
    """List the passes of a model: a prompt, a chunk, a decode.

    The class of MiniMax masks a chunk as if nothing came before it, where its first layer keeps
    no keys, and cannot run one.
    """
    return ((0, 24), (24, 1)) if name.startswith("MiniMax") else STEPS


class Held(NamedTuple):
    """What a pass took, and what the cache of its sequences held after it [elements]."""

    flops: int
    state: Kept
    keys_and_values: int


@cache
def observed(name: str) -> tuple[Model, list[Held]]:
    """Run a tiny model of the shape of a published one."""
    keys = tiny_state(STATES[name])
    model = instantiate(config_of(keys), "cpu")
    kind = keys["model_type"]
    kept: Any = None if kind in OWN_CACHE else transformers.DynamicCache(config=model.config)
    argument = "state" if kind == "rwkv" else "cache"
    done: list[Held] = []
    for _, new in steps_of(name):
        ids = torch.ones(B, new, dtype=torch.long)
        counter = flop_counter.FlopCounterMode(display=False)
        with torch.no_grad(), counter:
            out = model(ids, use_cache=True, **{argument: kept})
        kept = getattr(out, argument, kept)
        done.append(Held(counter.get_total_flops(), state(model, kept), keys_and_values(kept)))
    return read(keys, name), done


def size(tensors: Any) -> int:
    """Count the elements of tensors, of which some may not be there."""
    return sum(t.numel() for t in tensors if torch.is_tensor(t))


def state(model: Any, kept: Any) -> Kept:
    """Read the states off a cache; RecurrentGemma keeps them in its layers."""
    match model.config.model_type:
        case "rwkv":
            # The last tokens of both halves come first.
            return Kept(recurrent=size(kept[2:]), columns=size(kept[:2]))
        case "xlstm":
            return Kept(sum(size(layer) for layer in kept.rnn_state.values()))
        case "minimax":
            return Kept(size(kept.linear_cache))
        case "recurrent_gemma":
            blocks = [m for m in model.modules() if hasattr(m, "conv1d_state")]
            return Kept(
                recurrent=size(block.rg_lru.recurrent_states for block in blocks),
                columns=size(block.conv1d_state for block in blocks),
            )
        case _:
            layers = [layer for layer in kept.layers if hasattr(layer, "conv_states")]
            return Kept(
                recurrent=sum(size(layer.recurrent_states.values()) for layer in layers),
                columns=sum(size(layer.conv_states.values()) for layer in layers),
            )


def keys_and_values(kept: Any) -> int:
    """Count the keys and values, or latents, of a cache."""
    layers = getattr(kept, "layers", ())
    return sum(size((getattr(x, "keys", None), getattr(x, "values", None))) for x in layers)


def parts(mixer: Mixer) -> tuple[Mixer, ...]:
    """Take apart what stands side by side."""
    return (mixer.first, mixer.second) if isinstance(mixer, SideBySide) else (mixer,)


def columns(mixer: Mixer, n: int, T: int) -> int:
    """Count the positions that a class convolves: of the pass, of what is kept, of the padding.

    A decode takes the last two positions. RecurrentGemma sees no kept columns in a long pass, and
    multiplies element by element in a decode.
    """
    taps: Any = getattr(mixer, "taps", 1)
    if isinstance(mixer, RGLRU):
        return 0 if T == 1 else T + taps - 1
    if n and T == 1:
        return 2
    return (n and taps) + max(T, 0 if n else taps) + taps - 1


def convolution(mixer: Any, n: int, T: int) -> Any:
    """FLOPs of the convolution of one layer and sequence."""
    match mixer:
        case Mamba():
            channels = mixer.d
        case Mamba2() | DeltaNet():
            channels = mixer.channels
        case ShortConv():
            channels = mixer.D
        case RGLRU():
            channels = mixer.width
        case _:
            return 0
    return 2 * channels * mixer.taps * columns(mixer, n, T)


def products(mixer: Mixer, n: int, T: int) -> Any:
    """FLOPs of the matrix products in place of the recurrence of one layer and sequence."""
    decodes = n > 0 and T == 1
    match mixer:
        case Mamba():
            return 2 * mixer.d * mixer.s * T
        case Mamba2():
            heads, width, s = mixer.heads, mixer.width, mixer.s
            if decodes:
                return 2 * heads * width * s
            chunks = -(-T // CHUNK)
            # Inputs and outputs are repeated for each head; states go from chunk to chunk.
            dense = chunks * CHUNK * ssd_flops(heads, width, s, heads, CHUNK)
            return dense + 2 * heads * (chunks + 1) ** 2 * width * s
        case DeltaNet():
            if decodes:
                return 0
            rows = -(-T // DELTA_CHUNK) * DELTA_CHUNK
            k, v = mixer.key, mixer.value
            wide, narrow = (k, v) if mixer.decay == "head" else (v, k)
            within = 4 * DELTA_CHUNK * wide + 2 * DELTA_CHUNK * narrow
            return mixer.value_heads * rows * (within + 6 * k * v)
        case LinearAttention():
            blocks = [1] if decodes else [CHUNK] * (T // CHUNK) + [T % CHUNK]
            # One token has no scores.
            scores = 0 if decodes else sum(4 * b * b * mixer.key for b in blocks)
            return mixer.heads * (scores + 4 * sum(blocks) * mixer.key * mixer.value)
        case MLSTM():
            return mixer.heads * (4 * mixer.key * mixer.value + 2 * mixer.key) * T
        case _:
            return 0


def masked(mixer: Mixer, s: Segment) -> Any:
    """FLOPs of one layer that a mask takes out again; latents are always expanded."""
    n, T = s.cached, s.new
    if isinstance(mixer, Attention):
        seen = T * mixer.seen_tokens(n, T)
        return B * 4 * mixer.N * mixer.H * (seen - mixer.pairs(n, T))
    if isinstance(mixer, MLA):
        widths = (mixer.N, mixer.c, mixer.r, mixer.d, mixer.v)
        return B * materialised_flops(T * s.context, s.context, *widths) - mixer.core_flops([s])
    return 0


@pytest.mark.parametrize("name", STATES)
def test_state_of_the_class(name: str) -> None:
    """After each pass a cache holds the reference's state of each sequence, to the element."""
    model, steps = observed(name)
    wanted = [(g.count, g.mixer.reference_state) for g in model.groups]
    for held in steps:
        assert held.state.recurrent == B * sum(count * kept.recurrent for count, kept in wanted)
        assert held.state.columns == B * sum(count * kept.columns for count, kept in wanted)
        assert held.state.elements == B * state_elements(model, reference=True)


@pytest.mark.parametrize("name", STATES)
def test_keys_and_values_of_the_class(name: str) -> None:
    """Layers that attend keep keys and values, of a window all but the token that comes next."""
    model, steps = observed(name)
    token = cache_elements(model, 1)
    for (n, T), held in zip(steps_of(name), steps, strict=True):
        assert held.keys_and_values == B * (cache_elements(model, n + T + 1) - token)


@pytest.mark.parametrize("name", STATES)
def test_less_is_needed_than_kept(name: str) -> None:
    """A convolution of k tokens needs k - 1 columns of them; nothing else is left out."""
    for group in read(STATES[name]).groups:
        for mixer in parts(group.mixer):
            needed, kept = mixer.state, mixer.reference_state
            taps: Any = getattr(mixer, "taps", 1)
            # RecurrentGemma keeps no more than is needed.
            spare = 0 if taps == 1 or isinstance(mixer, RGLRU) else 1

            assert needed.recurrent == kept.recurrent
            assert needed.columns * taps == kept.columns * (taps - spare)


@pytest.mark.parametrize("name", STATES)
def test_flops_of_the_class(name: str) -> None:
    """Prompt, chunk and decode take the ledger's matrix products and what the class adds.

    A decode of RWKV's class multiplies the rows of each sequence with those of every other.
    """
    model, steps = observed(name)
    for (n, T), held in zip(steps_of(name), steps, strict=True):
        s = Segment(B, T, n, head_rows=T)
        ops = [op for op in ledger(model, [s]) if op.part != "recurrence"]
        flops: Any = sum(op.count * op.flops for op in ops)
        for group in model.groups:
            for mixer in parts(group.mixer):
                torch_path = convolution(mixer, n, T) + products(mixer, n, T)
                flops += group.count * (B * torch_path + masked(mixer, s))
        times = B if name.startswith("rwkv") and T == 1 else 1

        assert held.flops == times * flops


SWITCHED: list[tuple[str, dict[str, Any]]] = [
    ("mamba-2.8b-hf", {"use_bias": True, "use_conv_bias": False, "tie_word_embeddings": False}),
    ("mamba-2.8b-hf", {"time_step_rank": "auto", "conv_kernel": 3}),
    ("falcon-mamba-7b", {"use_bias": True}),
    ("Mamba-Codestral-7B-v0.1", {"use_bias": True, "use_conv_bias": False}),
    ("Jamba-v0.1", {"mamba_proj_bias": True, "mamba_conv_bias": False, "num_experts": 1}),
    ("Jamba-v0.1", {"attn_layer_period": 3, "attn_layer_offset": 1, "expert_layer_period": 4}),
    ("Bamba-9B", {"mamba_proj_bias": True, "attention_bias": True, "mlp_bias": True}),
    ("Bamba-9B", {"attn_layer_indices": None, "mamba_n_groups": 4}),
    ("granite-4.0-h-small", {"attention_bias": True, "mamba_conv_bias": False}),
    ("granite-4.0-h-small", {"layer_types": None}),
    ("Nemotron-H-8B", {"use_bias": True, "mlp_bias": True, "use_conv_bias": False}),
    ("Falcon-H1-0.5B", {"attention_bias": True, "mlp_bias": True, "mamba_d_ssm": None}),
    ("Zamba2-2.7B", {"add_bias_linear": True, "num_mem_blocks": 4}),
    ("Zamba2-1.2B", {"num_mem_blocks": 3, "mamba_ngroups": 2}),
    ("Qwen3-Next-80B-A3B", {"full_attention_interval": 3, "mlp_only_layers": [1]}),
    ("Qwen3.5-9B", {"layer_types": ["full_attention", "linear_attention"] * 2}),
    ("Kimi-Linear-48B-A3B", {"linear_attn_config": {}, "num_hidden_layers": 6, "q_lora_rank": 44}),
    ("Ling-3.0-Flash", {"layer_group_size": 2, "short_conv_kernel_size": 3}),
    ("MiniMax-Text-01", {"layer_types": None, "head_dim": None}),
    ("Olmo-Hybrid-7B", {"num_hidden_layers": 3, "linear_num_key_heads": 4, "attention_bias": True,
                        "linear_num_value_heads": 8}),
    ("Olmo-Hybrid-7B", {"num_key_value_heads": 2, "linear_value_head_dim": 50}),
    ("LFM2-350M", {"conv_bias": True, "block_auto_adjust_ff_dim": False, "conv_L_cache": 4}),
    ("LFM2-350M", {"block_ffn_dim_multiplier": 1.3, "block_multiple_of": 32}),
    ("LFM2-350M", {"full_attn_idxs": None, "num_key_value_heads": 4}),
    ("LFM2-24B-A2B", {"conv_bias": True, "tie_word_embeddings": False}),
    ("recurrentgemma-2b", {"attention_bias": True, "conv1d_width": 3, "lru_width": 64}),
    ("recurrentgemma-2b", {"block_types": ["attention", "recurrent"], "lru_width": None}),
    ("rwkv-4-7b-pile", {"attention_hidden_size": 64, "intermediate_size": None}),
    ("xLSTM-7b", {"qk_dim_factor": 0.75, "v_dim_factor": 2.0, "ffn_round_up_to_multiple_of": 32}),
    ("xLSTM-7b", {"ffn_proj_factor": 1.31, "weight_mode": "fused"}),
]  # fmt: skip
"""A model and keys that change its layers."""


@pytest.mark.parametrize(("name", "changes"), SWITCHED)
def test_parameters_with_other_traits(name: str, changes: dict[str, Any]) -> None:
    """Biases, patterns, widths and what is derived where it is left out are the class's."""
    keys = tiny_state(STATES[name]) | changes
    number = sum(p.numel() for p in instantiate(config_of(keys), "meta").parameters())

    assert number == total_parameters(read(keys))
