"""Configs of models with recurrent states, at their published sizes, and what is refused of them.

Expected figures: the full-size classes on the meta device and their caches, transformers 5.24.0,
but for MiniMax-M1 and the format of mamba_ssm, which other code than transformers reads.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, NamedTuple

import pytest

from rooflm.calc.errors import RooflmError
from rooflm.calc.huggingface import model_of_config
from rooflm.calc.model import (
    Model,
    active_parameters,
    group_names,
    growing_elements,
    ledger,
    parameters,
    state_elements,
    streamed_parameters,
    total_parameters,
)
from rooflm.calc.passes import decode

from .test_huggingface import CHANGES
from .tiny_states import STATES, words


class Figures(NamedTuple):
    """What a model is known to have [1]."""

    total: int
    active: int
    streamed: int
    growth: int
    """Elements that a token adds to the cache, of all layers."""
    state: int
    """Elements that a sequence needs whatever its length, as the reference keeps them."""


NEMOTRON = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
SUPER = "MEMEMEM*EMEMEMEM*EMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEMEM*EMEMEMEM*EMEMEMEME"
KIMI_FULL = [4, 8, 12, 16, 20, 24, 27]
KIMI: dict[str, Any] = STATES["Kimi-Linear-48B-A3B"] | {
    "num_hidden_layers": 27, "linear_attn_config": {"full_attn_layers": KIMI_FULL, "kda_layers":
    [i for i in range(1, 28) if i not in KIMI_FULL], "head_dim": 128, "num_heads": 32,
    "short_conv_kernel_size": 4},
}  # fmt: skip
WHOLE: dict[str, tuple[dict[str, Any], Figures]] = {
    "mamba-2.8b-hf": ({"num_hidden_layers": 64},
        Figures(2768345600, 2768345600, 2768345600, 0, 6553600)),
    "falcon-mamba-7b": ({"num_hidden_layers": 64},
        Figures(7272665088, 7272665088, 7006326784, 0, 10485760)),
    "Jamba-v0.1": ({"num_hidden_layers": 32},
        Figures(51570323328, 12110311296, 11841875840, 8192, 4587520)),
    "granite-4.0-h-small": ({"num_hidden_layers": 40,
        "layer_types": words("mmmmma" + "mmmmmmmmma" * 3 + "mmmm")},
        Figures(32207337984, 8803121664, 8803121664, 8192, 38965248)),
    "Nemotron-H-8B": ({"num_hidden_layers": 52, "hybrid_override_pattern": NEMOTRON},
        Figures(8100852736, 8100852736, 7563981824, 8192, 26148864)),
    "Nemotron-3-Nano-30B-A3B": ({"num_hidden_layers": 52, "hybrid_override_pattern": NANO},
        Figures(31577937344, 3580073408, 3227751872, 3072, 12623872)),
    "Nemotron-3-Super-120B-A12B": ({"num_hidden_layers": 88, "hybrid_override_pattern": SUPER},
        Figures(120668687360, 12770216960, 12233346048, 4096, 43581440)),
    "Falcon-H1-34B": ({"num_hidden_layers": 72},
        Figures(33642516224, 33642516224, 32305581824, 73728, 76972032)),
    "Zamba2-2.7B": ({"num_hidden_layers": 54, "layers_block_type":
        words("m" + "mmmmmh" * 7 + "mmmmhmmmhmm")},
        Figures(2662214560, 2662214560, 2662214560, 92160, 18828288)),
    "Qwen3-Next-80B-A3B": ({"num_hidden_layers": 48},
        Figures(79674391296, 3874929408, 3563764480, 12288, 20054016)),
    "Qwen3.5-9B": ({"num_hidden_layers": 32},
        Figures(8953803264, 8953803264, 7936684544, 16384, 13369344)),
    "Ling-3.0-Flash": ({"num_hidden_layers": 42},
        Figures(124414191072, 5505672672, 5103281632, 4032, 20070400)),
    "LFM2-350M": ({"num_hidden_layers": 16, "full_attn_idxs": [2, 5, 8, 10, 12, 14]},
        Figures(354483968, 354483968, 354483968, 6144, 30720)),
    "LFM2-24B-A2B": ({"num_hidden_layers": 40, "layer_types": words("cc" + "fccc" * 9 + "fc")},
        Figures(23843659008, 2326879488, 2326879488, 10240, 184320)),
    "recurrentgemma-2b": ({"num_hidden_layers": 26},
        Figures(2682862080, 2682862080, 2682862080, 0, 184320)),
    "rwkv-4-7b-pile": ({"num_hidden_layers": 32},
        Figures(7392649216, 7392649216, 7186714624, 0, 655360)),
}  # fmt: skip
"""Keys that give a model all of its layers, and its figures."""


def read(config: dict[str, Any]) -> Model:
    """Read plain data as a config.json."""
    return model_of_config(config, "model", "config.json")


def figures(model: Model) -> Figures:
    """Count what is compared."""
    counts = (
        total_parameters(model), active_parameters(model), streamed_parameters(model),
        growing_elements(model), state_elements(model, reference=True),
    )  # fmt: skip
    return Figures(*(round(float(n)) for n in counts))


@pytest.mark.parametrize("name", WHOLE)
def test_published_models_come_out_exactly(name: str) -> None:
    """Parameters, cache and state of whole models are those of their classes."""
    changes, expected = WHOLE[name]

    assert figures(read(STATES[name] | changes)) == expected


def test_kimi_names_its_layers_from_one() -> None:
    """The published lists give the checkpoint's numbers but for its 26 x 256 router biases.

    The class's own default has six layers that attend, not seven.
    """
    model = read(KIMI)
    attend = sum(int(g.count) for g in model.groups if g.mixer.kind == "mla")
    saved = {k: v for k, v in KIMI.items() if k != "linear_attn_config"} | {
        "linear_head_dim": 128, "linear_num_heads": 32, "linear_conv_kernel_dim": 4,
        "layer_types": words("".join("f" if i in KIMI_FULL else "l" for i in range(1, 28))),
        "mlp_layer_types": ["dense", *["sparse"] * 26],
    }  # fmt: skip

    # https://huggingface.co/moonshotai/Kimi-Linear-48B-A3B-Instruct: 49,122,681,728 parameters
    assert total_parameters(model) + 26 * 256 == 49_122_681_728
    assert attend == 7
    assert figures(read(saved)) == figures(model)
    assert total_parameters(read(KIMI | {"linear_attn_config": {}})) == 49_133_074_464


MINIMAX: dict[str, Any] = {
    "model_type": "minimax_m1", "hidden_size": 6144, "intermediate_size": 9216,
    "num_hidden_layers": 80, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
    "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 128, "num_local_experts": 32,
    "num_experts_per_tok": 2, "shared_intermediate_size": 0, "vocab_size": 200064,
}  # fmt: skip


@pytest.mark.parametrize("kind", ["minimax_m1", "minimax_text_01"])
def test_minimax_lists_its_layers_by_number(kind: str) -> None:
    """Ten layers of 80 attend; 456 billion parameters, of which a token uses 45.9.

    As arXiv 2501.08313 counts them: without embedding and head.
    """
    model = read(MINIMAX | {"model_type": kind})
    same = MINIMAX | {"model_type": "minimax", "layer_types": words("lllllllf" * 10)}
    del same["attn_type_list"]

    assert 455.5e9 < total_parameters(model) < 456.5e9
    assert 45.85e9 < active_parameters(model) - 2 * 200064 * 6144 < 45.95e9
    assert growing_elements(model) == 10 * 2 * 8 * 128
    assert state_elements(model) == 70 * 64 * 128 * 128
    assert figures(read(same)) == figures(model)


MAMBA_SSM: dict[str, Any] = {
    "d_model": 768, "d_intermediate": 0, "n_layer": 24, "vocab_size": 50277,
    "ssm_cfg": {"layer": "Mamba2"}, "attn_layer_idx": [], "attn_cfg": {}, "rms_norm": True,
    "pad_vocab_size_multiple": 16, "tie_embeddings": True,
}  # fmt: skip
"""https://huggingface.co/state-spaces/mamba2-130m"""


def test_mamba_ssm_pads_the_vocabulary() -> None:
    """A config without model_type is that of mamba_ssm: 50,277 words have 50,288 rows."""
    model = read(MAMBA_SSM)

    assert figures(model) == Figures(128989632, 128989632, 128989632, 0, 4890624)
    assert model.V == 50288
    assert ("V", "50288") in {(field, value) for field, value, _ in model.provenance}
    assert ("G_m", "1", "class default of mamba_ssm's Mamba2") in model.provenance


def test_mamba_ssm_is_the_first_mamba_unless_it_says_so() -> None:
    """https://huggingface.co/state-spaces/mamba-2.8b has an empty ssm_cfg, and 50,280 rows."""
    first: dict[str, Any] = {
        "d_model": 2560, "n_layer": 64, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True,
    }  # fmt: skip

    assert figures(read(first)) == WHOLE["mamba-2.8b-hf"][1]
    # Checkpoints converted for transformers keep the key.
    more: dict[str, Any] = {"num_hidden_layers": 64, "d_model": 2560, "ssm_cfg": {}}
    both = STATES["mamba-2.8b-hf"] | more
    assert figures(read(both)) == WHOLE["mamba-2.8b-hf"][1]
    wide = read(first | {"ssm_cfg": {"layer": "Mamba2", "d_state": 64, "ngroups": 8, "expand": 4}})
    assert state_elements(wide) == 64 * (10240 * 64 + 3 * (10240 + 2 * 8 * 64))


def test_shared_blocks_of_zamba2_are_stored_once_and_run_often() -> None:
    """Nine hybrid layers share two blocks; each has a projection and adapters of its own."""
    model = read(STATES["Zamba2-2.7B"] | WHOLE["Zamba2-2.7B"][0])
    shared = next(g for g in model.groups if g.copies is not None)
    D, F, rank = 2560, 10240, 128

    assert (shared.count, shared.copies) == (9, 2)
    assert shared.own == D * D + rank * (D + 2 * F)
    assert parameters(model)["attention"] == 2 * (3 * (2 * D) ** 2 + 2 * D * D)
    flops = sum(o.count * o.flops for o in ledger(model, decode(1, 1)) if o.part == "attention")
    assert flops == 9 * 4 * 32 * 160 * 1
    assert group_names(model) == ["mamba2", "shared_full_dense"]


def test_layers_of_nemotron_have_one_part_each() -> None:
    """A layer is a mixer or a feed-forward, and groups are named after what they have."""
    model = read(STATES["Nemotron-H-8B"] | WHOLE["Nemotron-H-8B"][0])

    assert [(n, g.count) for n, g in zip(group_names(model), model.groups, strict=True)] == [
        ("mamba2", 24), ("dense", 24), ("full", 4),
    ]  # fmt: skip
    assert all(g.norms == 1 for g in model.groups)
    # The pattern alone tells the number of layers.
    alone = STATES["Nemotron-H-8B"] | {"hybrid_override_pattern": NEMOTRON}
    del alone["num_hidden_layers"]
    assert figures(read(alone)) == figures(model)


SUPER_MTP = STATES["Nemotron-3-Super-120B-A12B"] | {
    "num_hidden_layers": 88, "hybrid_override_pattern": SUPER, "num_nextn_predict_layers": 1,
    "mtp_hybrid_override_pattern": "*E",
}  # fmt: skip
LING_MTP = STATES["Ling-3.0-Flash"] | {"num_hidden_layers": 42, "num_nextn_predict_layers": 1}
GLM: dict[str, Any] = {
    "model_type": "glm4_moe", "hidden_size": 5120, "intermediate_size": 12288,
    "num_hidden_layers": 92, "num_attention_heads": 96, "num_key_value_heads": 8, "head_dim": 128,
    "vocab_size": 151552, "attention_bias": True, "use_qk_norm": True, "moe_intermediate_size":
    1536, "n_routed_experts": 160, "n_shared_experts": 1, "num_experts_per_tok": 8,
    "first_k_dense_replace": 3, "num_nextn_predict_layers": 1,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "held", "biases"),
    [
        # The checkpoint has no biases of the router among its numbers.
        (SUPER_MTP, 123_611_012_096, 0),
        (LING_MTP, 127_486_405_600, 41 * 512),
        (GLM, 358_337_791_296, 90 * 160),
    ],
    ids=["Nemotron-3-Super-120B-A12B", "Ling-3.0-Flash", "GLM-4.5"],
)
def test_layers_of_further_tokens_complete_the_checkpoint(
    config: dict[str, Any], held: int, biases: int
) -> None:
    """Decoder, prediction layer and biases of routers are the numbers on huggingface.co."""
    model = read(config)

    assert total_parameters(model) + dict(model.extras)["mtp"] + biases == held


@pytest.mark.parametrize(
    "changes",
    [
        {"num_nextn_predict_layers": 0},
        {"num_nextn_predict_layers": 3},
        {"model_type": "dots1", "num_nextn_predict_layers": 1},
    ],
)
def test_uncertain_layers_of_further_tokens_are_left_out(changes: dict[str, Any]) -> None:
    """Neither several of them nor those of other classes are counted."""
    assert read(GLM | changes).extras == ()


REFUSED: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (STATES["Jamba-v0.1"], {"attn_layer_offset": 8}, "attn_layer_offset is not below"),
    (STATES["Bamba-9B"], {"mamba_n_heads": 100}, "100 do not divide 8192"),
    (STATES["Bamba-9B"], {"mamba_d_head": 32}, "128 heads of 32 do not fill the inner width 8192"),
    (STATES["Bamba-9B"], {"mamba_n_groups": 3}, "groups of the heads: 3 do not divide 128"),
    (STATES["granite-4.0-h-small"], {"layer_types": ["mamba"] * 3}, "list of 4 words"),
    (STATES["granite-4.0-h-small"], {"layer_types": ["attn"] * 4}, "layer_types has unknown words"),
    (STATES["granite-4.0-h-small"], {"layers_block_type": words("aaaa")}, "differ"),
    (STATES["Falcon-H1-0.5B"], {"projectors_bias": True}, "biases on one of two projections"),
    (STATES["Falcon-H1-0.5B"], {"mamba_use_mlp": False}, "layers without an MLP"),
    (STATES["Falcon-H1-0.5B"], {"attn_layer_indices": [1]}, "layers without attention"),
    (STATES["Nemotron-H-8B"], {"num_hidden_layers": 8}, "the pattern has 9 layers"),
    (STATES["Nemotron-H-8B"], {"hybrid_override_pattern": "MX"}, "letters M E"),
    (STATES["Nemotron-H-8B"], {"hybrid_override_pattern": None}, "is missing"),
    (STATES["Nemotron-H-8B"], {"layers_block_type": ["mlp"] * 9}, "differ"),
    (STATES["Nemotron-H-8B"], {"attention_bias": True}, "which the class ignores"),
    (STATES["Nemotron-H-8B"], {"tie_word_embeddings": True}, "a tied head"),
    (STATES["Nemotron-3-Nano-30B-A3B"], {"n_shared_experts": 2}, "number of shared experts"),
    (STATES["Nemotron-3-Nano-30B-A3B"], {"mlp_bias": True}, "biases on shared experts"),
    (STATES["Zamba2-2.7B"], {"tie_word_embeddings": False}, "blocks that are not shared"),
    (STATES["Zamba2-2.7B"], {"layers_block_type": None}, "layers_block_type is missing"),
    (STATES["Zamba2-2.7B"], {"attention_head_dim": 80}, "heads that are not 2"),
    (STATES["Zamba2-2.7B"], {"head_dim": 80}, "heads that are not 2"),
    (STATES["Zamba2-2.7B"], {"attention_hidden_size": 128}, "attention that is not twice as wide"),
    (STATES["Zamba2-2.7B"], {"num_query_groups": 4}, "other key/value heads"),
    (STATES["Zamba2-2.7B"], {"hybrid_layer_ids": [0]}, "other shared blocks"),
    (STATES["Falcon-H1-0.5B"], {"mamba_proj_bias": True}, "biases on one of two projections"),
    (STATES["Falcon-H1-0.5B"], {"mamba_conv_bias": None}, "Say true or false"),
    (STATES["Nemotron-H-8B"], {"mamba_conv_bias": False}, "another bias of the convolution"),
    (STATES["Nemotron-H-8B"], {"layer_types": ["mamba", "mamba"]}, "differ"),
    (STATES["Qwen3-Next-80B-A3B"], {"shared_expert_intermediate_size": 0}, "experts without width"),
    (STATES["Qwen3-Next-80B-A3B"], {"attention_bias": True}, "biases of attention and its gate"),
    (STATES["Qwen3-Next-80B-A3B"], {"linear_num_key_heads": 12}, "12 do not divide 32"),
    (STATES["Qwen3.5-9B"], {"attn_output_gate": False}, "attention without a gate"),
    (STATES["Qwen3.5-122B-A10B"], {"mlp_only_layers": [1]}, "dense layers"),
    (KIMI, {"linear_head_dim": 64}, "linear_head_dim and linear_attn_config.head_dim differ"),
    (KIMI, {"layer_types": words("l" * 27)}, "layer_types and linear_attn_config differ"),
    (KIMI, {"linear_attn_config": {"kda_layers": [0], "full_attn_layers": [1]}}, "from 1 to 27"),
    (KIMI, {"linear_attn_config": {"kda_layers": [1], "full_attn_layers": [2]}}, "each layer once"),
    (KIMI, {"linear_attn_config": {"use_full_rank_gate": True}}, "gates of full rank"),
    (KIMI, {"attn_res_block_size": 12}, "residuals from blocks further back"),
    (MINIMAX, {"attn_type_list": None}, "attn_type_list is missing"),
    (MINIMAX, {"attn_type_list": [2] * 80}, "a 0 or 1 for each of 80 layers"),
    (MINIMAX, {"shared_intermediate_size": 9216}, "shared experts"),
    (MINIMAX, {"layer_types": words("l" * 80)}, "differ"),
    (STATES["LFM2-350M"], {"conv_dim": 512}, "convolutions of another width"),
    (STATES["LFM2-350M"], {"layer_types": words("cccc")}, "full_attn_idxs and layer_types differ"),
    (STATES["LFM2-24B-A2B"], {"layer_types": None}, "layer_types is missing"),
    (STATES["recurrentgemma-2b"], {"intermediate_size": 15361}, "is odd"),
    (STATES["recurrentgemma-2b"], {"lru_width": 2561}, "10 do not divide 2561"),
    (STATES["recurrentgemma-2b"], {"block_types": ["mamba"]}, "list of recurrent and attention"),
    (STATES["xLSTM-7b"], {"use_bias": True}, "biases everywhere"),
    (STATES["xLSTM-7b"], {"add_out_norm": False}, "no final norm"),
    (STATES["xLSTM-7b"], {"embedding_dim": 2048}, "embedding of another width"),
    (STATES["xLSTM-7b"], {"qk_dim_factor": -1}, "qk_dim_factor is -1"),
    (MAMBA_SSM, {"rms_norm": False}, "LayerNorm in place of RMSNorm"),
    (MAMBA_SSM, {"d_intermediate": 2048}, "an MLP beside each layer"),
    (MAMBA_SSM, {"attn_layer_idx": [3]}, "layers of attention"),
    (MAMBA_SSM, {"ssm_cfg": {"layer": "Mamba3"}}, "neither Mamba1 nor Mamba2"),
    (MAMBA_SSM, {"ssm_cfg": {"layer": "Mamba2", "d_ssm": 512}}, "channels without a state"),
    (MAMBA_SSM, {"ssm_cfg": [1]}, "ssm_cfg is .*A mapping is needed"),
]  # fmt: skip
"""A config, keys that break it, and what the error says."""


@pytest.mark.parametrize(("config", "changes", "message"), REFUSED)
def test_what_is_not_modelled_is_refused_by_name(
    config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    """The error says which key, value, or part of a model stands in the way."""
    with pytest.raises(RooflmError, match=message):
        read(config | changes)


@pytest.mark.parametrize("name", STATES)
def test_broken_configs_end_in_an_error_or_a_named_default(name: str) -> None:
    """A key that is missing or wrong is refused, harmless, or replaced by what provenance names."""
    whole = STATES[name]
    known = set(read(whole).provenance)
    for key in whole:
        for change in ("dropped", *CHANGES):
            config = deepcopy(whole)
            value = config.pop(key)
            if change != "dropped":
                config[key] = CHANGES[change](value)
            try:
                model = read(config)
            except RooflmError:
                continue
            if figures(model) == figures(read(whole)) or config.get(key) == value:
                continue
            origins = [origin for *_, origin in set(model.provenance) - known]

            assert origins, f"{key} {change}: nothing tells what was taken in its place"
