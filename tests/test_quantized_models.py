"""Models with weights of fewer bits: what files say, checkpoints take, and commands answer."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.calc import api
from rooflm.calc.case import Case
from rooflm.calc.configquant import file_formats
from rooflm.calc.definitions import Question
from rooflm.calc.errors import Exit, RooflmError
from rooflm.calc.experts import Experts
from rooflm.calc.huggingface import model_of_config
from rooflm.calc.memory import weights_bytes
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Model, tensors, total_parameters
from rooflm.calc.plain import is_map
from rooflm.calc.precision import precision_of, told
from rooflm.calc.presets import MODELS_FILE, find_machine, find_model, preset_names
from rooflm.calc.units import parse_size
from rooflm.calc.weights import Tensor, is_vector

from .golden import table
from .helpers import Terminal, only
from .test_explain import evaluator

GOLDEN: dict[str, Any] = table("checkpoints")
CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in GOLDEN["cases"]}

# What a config.json says

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2048, "vocab_size": 32000,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8,
}  # fmt: skip
MIXED: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 1024, "intermediate_size": 2048,
    "moe_intermediate_size": 512, "vocab_size": 32000, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "n_routed_experts": 16,
    "num_experts_per_tok": 2, "n_shared_experts": 1, "first_k_dense_replace": 1,
    "q_lora_rank": 256, "kv_lora_rank": 128, "qk_rope_head_dim": 32, "qk_nope_head_dim": 64,
    "v_head_dim": 64, "n_group": 1, "topk_group": 1,
}  # fmt: skip
"""One dense layer, three of experts, latent attention."""
BLOCK = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True, "version": "gemm"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}
NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": None}


def packed(kind: str, bits: int, strategy: str, inputs: bool = False, **more: Any) -> Any:
    """Make the config of compressed-tensors with one group."""
    weights = {"num_bits": bits, "strategy": strategy, "symmetric": True, **more}
    group = {"targets": ["Linear"], "weights": weights,
             "input_activations": {"num_bits": bits} if inputs else None}  # fmt: skip
    return {"quant_method": "compressed-tensors", "format": kind,
            "config_groups": {"group_0": group}, "ignore": ["lm_head"]}  # fmt: skip


SAYS: list[tuple[dict[str, Any], str]] = [
    (BLOCK, "fp8-block"),
    ({"quant_method": "fp8", "activation_scheme": "static"}, "fp8"),
    (AWQ, "awq"),
    (GPTQ, "gptq"),
    (GPTQ | {"lm_head": True}, "head=gptq,rest=gptq"),
    (NF4, "nf4"),
    (NF4 | {"bnb_4bit_use_double_quant": True}, "nf4-double"),
    ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8-weights"),
    ({"load_in_8bit": True, "load_in_4bit": False}, "int8-weights"),
    (packed("float-quantized", 8, "tensor", True, type="float"), "fp8"),
    (packed("float-quantized", 8, "channel", True, type="float"), "fp8"),
    (packed("float-quantized", 8, "block", True, block_structure=[128, 128]), "fp8-block"),
    (packed("int-quantized", 8, "channel", True), "int8-channel"),
    (packed("int-quantized", 8, "tensor", True), "int8"),
    (packed("pack-quantized", 4, "group", group_size=128), "int4"),
    (packed("pack-quantized", 4, "group", group_size=128, symmetric=False), "awq"),
    (packed("pack-quantized", 4, "group", group_size=32), "int4-sym-g32"),
    (packed("nvfp4-pack-quantized", 4, "tensor_group", True, group_size=16), "nvfp4"),
    (packed("mxfp4-pack-quantized", 4, "group", group_size=32), "mxfp4"),
    (MODELOPT, "fp8"),
    (MODELOPT | {"quant_algo": "NVFP4"}, "nvfp4"),
]
"""Configs of published checkpoints, by the keys that matter, and `--weights` for them."""


def read(config: dict[str, Any], quantization: Any) -> Model:
    """Read a config with these formats."""
    return model_of_config(config | {"quantization_config": quantization}, "own", "config.json")


@pytest.mark.parametrize(("quantization", "text"), SAYS, ids=[f"{i}-{t}" for i, (_, t) in
                                                              enumerate(SAYS)])  # fmt: skip
def test_the_format_of_a_file_is_the_default(quantization: dict[str, Any], text: str) -> None:
    """Read, noted where it came from, taken unless another is said; nothing else changes."""
    model = read(LLAMA, quantization)
    (row,) = [p for p in model.provenance if p[0] == "weights_format"]

    assert (model.weights_format, model.weights_unknown) == (text, "")
    assert row[1] == text
    assert row[2].startswith("key quantization_config: ")
    assert precision_of(None, model=model) == precision_of(text, model=model)
    assert precision_of("bf16", model=model).weights.name == "bf16"
    assert model.groups == model_of_config(LLAMA, "own", "config.json").groups


def test_a_nested_config_may_say_it_inside_or_outside() -> None:
    """Multimodal files have it at either level."""
    for config in ({"text_config": LLAMA | {"quantization_config": AWQ}},
                   {"text_config": LLAMA, "quantization_config": AWQ}):  # fmt: skip
        assert model_of_config(config, "own", "").weights_format == "awq"


@pytest.mark.parametrize("nothing", [None, {}, False])
def test_a_file_without_formats_says_none(nothing: Any) -> None:
    """Nothing to tell is nothing told."""
    model = read(LLAMA, nothing)

    assert (model.weights_format, model.weights_unknown) == (None, "")
    assert precision_of(None, model=model).weights.name == "bf16"


KEYS = st.sampled_from([
    "quant_method", "quant_algo", "bits", "group_size", "zero_point", "weight_block_size", "fmt",
    "modules_to_not_convert", "ignore", "ignored_layers", "lm_head", "dynamic", "load_in_4bit",
    "load_in_8bit", "bnb_4bit_quant_type", "config_groups", "targets", "weights", "num_bits",
    "strategy", "symmetric", "input_activations", "format", "expert_dtype",
])  # fmt: skip
UNKNOWN: list[tuple[Any, str]] = [
    ("awq", "no mapping"),
    ({"bits": 4}, "no quant_method, bits 4"),
    ({"quant_method": "hqq"}, "hqq"),
    ({"quant_method": ["awq"]}, "awq"),
    (BLOCK | {"weight_block_size": [32, 32]}, r"fp8, weight_block_size \[32, 32\]"),
    (BLOCK | {"fmt": "e5m2"}, "fmt e5m2"),
    (AWQ | {"bits": 3}, "awq, bits 3, group_size 128"),
    (AWQ | {"bits": True}, "bits True"),
    (AWQ | {"zero_point": False}, "awq"),
    (AWQ | {"group_size": 64}, "group_size 64"),
    (GPTQ | {"bits": 8}, "gptq, bits 8"),
    (GPTQ | {"dynamic": {"-:.*": {}}}, "rules for single modules"),
    (GPTQ | {"lm_head": "yes"}, "lm_head"),
    (NF4 | {"bnb_4bit_quant_type": "fp4"}, "bnb_4bit_quant_type fp4"),
    (NF4 | {"load_in_8bit": True}, "bitsandbytes"),
    ({"quant_method": "mxfp4"}, "no experts in the model"),
    ({"quant_method": "compressed-tensors"}, "no config_groups"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["re:.*q"]}}},
     "targets other than Linear"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": {"targets": ["Linear"]}}},
     "no weights in a group"),
    (packed("pack-quantized", 4, "group", group_size=32, symmetric=False), "not symmetric"),
    (packed("pack-quantized", 8, "channel"), "pack-quantized, 8 bits, strategy channel"),
    (packed("float-quantized", 8, "tensor"), "float-quantized"),
    (packed("int-quantized", 8, "channel", True) | {"sparsity_config": {"a": 1}}, "sparse"),
    (MODELOPT | {"quant_algo": "W4A8_AWQ"}, "quant_algo W4A8_AWQ"),
    (AWQ | {"modules_to_not_convert": "gate"}, "modules that are left out"),
    (AWQ | {"modules_to_not_convert": ["wizardry"]}, "module wizardry"),
    (packed("int-quantized", 8, "channel", True) | {"ignore": ["re:(("]}, r"module re:\(\("),
    (AWQ | {"modules_to_not_convert": ["self_attn.o_proj"]},
     "attention in 16 bits in 0 of 4 layers"),
    (AWQ | {"modules_to_not_convert": ["model.layers.0."]}, "attention in 16 bits in 1 of 4"),
]  # fmt: skip


@pytest.mark.parametrize(("quantization", "what"), UNKNOWN, ids=range(len(UNKNOWN)))
def test_what_is_not_understood_asks_for_the_format(quantization: Any, what: str) -> None:
    """The model is read; its bytes are not counted as 16 bits, nor as something near."""
    model = read(LLAMA, quantization)

    assert model.weights_format is None
    assert ("weights_format", "not known") in [p[:2] for p in model.provenance]
    message = rf"the quantization_config of this file \(.*{what}.*\) is not known"
    with pytest.raises(RooflmError, match=message + r".*Say --weights FORMAT\."):
        precision_of(None, model=model)
    assert precision_of("awq", model=model).weights.name == "awq"


ROUTERS = ["model.layers.1.mlp.gate", "lm_head", "model.embed_tokens"]
KEPT: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    (LLAMA, AWQ | {"modules_to_not_convert": None}, "awq"),
    (LLAMA, AWQ | {"modules_to_not_convert": ["lm_head", "visual",
                                               "vision_tower.layers.0.self_attn"]}, "awq"),
    (LLAMA, AWQ | {"modules_to_not_convert": ["self_attn"]}, "attention=bf16,rest=awq"),
    (LLAMA, AWQ | {"modules_to_not_convert": [f"model.layers.{i}.self_attn" for i in range(4)]},
     "attention=bf16,rest=awq"),
    (LLAMA, BLOCK | {"modules_to_not_convert": [
        f"model.layers.{i}.self_attn.{p}_proj" for i in range(4) for p in "qkvo"]},
     "attention=bf16,rest=fp8-block"),
    (LLAMA, MODELOPT | {"ignore": ["*self_attn*", "lm_head", "model.layers.4*"]},
     "attention=bf16,rest=fp8"),
    (LLAMA, MODELOPT | {"exclude_modules": ["language_model.model.layers.*.mlp*"]},
     "mlp=bf16,rest=fp8"),
    (LLAMA, packed("int-quantized", 8, "channel", True) | {"ignore": ["re:.*self_attn.*"]},
     "attention=bf16,rest=int8-channel"),
    (LLAMA, NF4 | {"llm_int8_skip_modules": ["lm_head", "multi_modal_projector"]}, "nf4"),
    (MIXED, BLOCK | {"modules_to_not_convert": ROUTERS}, "fp8-block"),
    (MIXED, packed("pack-quantized", 4, "group", group_size=32) | {"ignore": [
        "lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]},
     "attention=bf16,mlp=bf16,shared_experts=bf16,rest=int4-sym-g32"),
    (MIXED, AWQ | {"modules_to_not_convert": ["model.layers.0.mlp", "gate"]}, "mlp=bf16,rest=awq"),
    (MIXED, {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]},
     "experts=mxfp4,rest=bf16"),
    (MIXED | {"expert_dtype": "fp4"}, BLOCK, "experts=mxfp4,rest=fp8-block"),
    (MIXED | {"expert_dtype": "fp8"}, BLOCK, "fp8-block"),
]  # fmt: skip


@pytest.mark.parametrize(("config", "quantization", "text"), KEPT, ids=range(len(KEPT)))
def test_parts_that_a_file_leaves_in_16_bits_stay_there(
    config: dict[str, Any], quantization: dict[str, Any], text: str
) -> None:
    """Names, prefixes, wildcards and patterns; towers, routers and heads are passed over."""
    model = read(config, quantization)

    assert model.weights_format == text, model.weights_unknown
    assert precision_of(None, model=model).format_of("embedding").name == "bf16"


@pytest.mark.parametrize("pattern", ["re:(.*)*x", "re:(.|.)*z$", "re:.*.*.*.*z", "re:([a-z]+)+!"])
def test_patterns_that_may_take_forever_are_not_run(pattern: str) -> None:
    """The format is asked for instead."""
    assert (
        "module re:" in read(LLAMA, BLOCK | {"modules_to_not_convert": [pattern]}).weights_unknown
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 200) | st.text(max_size=8)
    | st.sampled_from(["Linear", "re:.*", "model.layers.0", "self_attn", "fp4", "e4m3", "group"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
METHODS = ["fp8", "awq", "gptq", "bitsandbytes", "mxfp4", "compressed-tensors", "modelopt"]


@given(st.sampled_from(METHODS), st.dictionaries(KEYS, JSON, max_size=6) | JSON)
@settings(max_examples=300, deadline=None)
def test_any_quantization_config_is_understood_or_said_not_to_be(method: str, said: Any) -> None:
    """Whatever stands there: a format that --weights takes, or the words of the refusal."""
    if is_map(said):
        said = {"quant_method": method, **said}
    model = read(MIXED, said)

    if model.weights_format is not None:
        assert precision_of(model.weights_format, model=model)
    elif said not in (None, False, {}):
        assert model.weights_unknown
        with pytest.raises(RooflmError, match="Say --weights FORMAT"):
            precision_of(None, model=model)


def test_another_kind_of_experts_is_not_understood() -> None:
    """The key of DeepSeek-V4 knows two."""
    assert "expert_dtype fp6" in read(MIXED | {"expert_dtype": "fp6"}, BLOCK).weights_unknown


def test_the_16_bits_of_a_file_are_those_of_the_device() -> None:
    """A chip without bf16 multiplies in fp16 what the file has in bf16."""
    model = read(MIXED, {"quant_method": "mxfp4"})
    formats = precision_of(None, model=model, natural="fp16")

    assert (formats.activations.name, formats.cache.name) == ("fp16", "fp16")
    assert told(formats) == "weights fp16, experts mxfp4"


MXFP4 = {
    "quant_method": "mxfp4",
    "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
    ],
}  # fmt: skip
MISTRAL = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None,
           "modules_to_not_convert": ["model.vision_tower", "model.multi_modal_projector",
                                      "lm_head"]}  # fmt: skip
PUBLISHED: dict[str, dict[str, Any]] = {
    "gpt-oss-20b": MXFP4,
    "gpt-oss-120b": MXFP4,
    "deepseek-v3": BLOCK,
    "deepseek-v3.2": BLOCK | {"scale_fmt": "ue8m0"},
    "deepseek-v4-flash": BLOCK | {"scale_fmt": "ue8m0", "expert_dtype": "fp4"},
    "deepseek-v4-pro": BLOCK | {"scale_fmt": "ue8m0", "expert_dtype": "fp4"},
    "kimi-k2": BLOCK,
    "kimi-k2.5": packed("pack-quantized", 4, "group", group_size=32) | {"ignore": [
        "lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
        r"re:.*mlp\.(gate|up|gate_up|down)_proj.*"]},
    "minimax-m2": BLOCK | {"fmt": "float8_e4m3fn", "modules_to_not_convert": [
        "gate", "e_score_correction_bias", "lm_head"]},
    "devstral-2-123b": MISTRAL,
    "mistral-medium-3.5-128b": MISTRAL,
}  # fmt: skip
"""What the config.json of the `hf` of a preset says, by the keys that matter; that of DeepSeek-V4
has expert_dtype beside it. No other preset's has a quantization_config."""


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_preset_has_the_format_of_its_checkpoint(name: str) -> None:
    """The preset tells what is derived from the file; it is the default of the weights."""
    model = find_model(name)
    layers = [
        {t.part for t in (*g.mixer.tensors(model.D), *g.ffn.tensors(model.D))}
        for g in model.groups
        for _ in range(int(g.count))
    ]
    derived = file_formats({"quantization_config": PUBLISHED[name]}, {}, layers)

    assert (model.published, "") == (derived.weights, derived.unknown)
    assert precision_of(None, model=model) == precision_of(derived.weights, model=model)


def test_other_presets_have_16_bits() -> None:
    """None but those above says a format."""
    said = {name for name in preset_names(MODELS_FILE) if find_model(name).published is not None}
    assert said == set(PUBLISHED)


def test_a_published_format_is_the_default_of_all_commands(rooflm: Terminal) -> None:
    """gpt-oss-120b takes what its files do; 16 bits where asked for, and by the lecture.

    65,248,815,744 B: headers of its files, github.com/alvarobartt/hf-mem/issues/60.
    """
    name, on = "gpt-oss-120b", ("--on", "h100-sxm")
    shown = rooflm.json("show", name)
    fit = rooflm.json("fit", name, *on)
    row = only(rooflm.json("sweep", name, *on)["rows"])
    sixteen = only(rooflm("fit", name, *on, "--weights", "bf16", "--format", "json").json["rows"])
    lecture = rooflm.json("show", name, "--accounting", "lecture")

    assert shown["weights_bytes"] == 65248815744
    assert fit["memory"]["weights_bytes"] == row["weights_bytes"] == shown["weights_bytes"]
    assert fit["fits"]
    assert (
        "counted as published: experts=mxfp4,rest=bf16 (--weights takes another format)"
        in fit["assumptions"]
    )
    assert not sixteen["fits"]
    assert sixteen["memory"]["weights_bytes"] == 2 * shown["parameters"]["total"]
    assert shown["weights_format"] == "bf16, experts mxfp4"
    assert "bf16, experts mxfp4    65,248,815,744" in rooflm("show", name).out
    assert lecture["weights_bytes"] == 2 * lecture["parameters"]["total"]
    assert api.show(name)["weights_bytes"] == shown["weights_bytes"]
    assert api.fit(name, "h100-sxm")["memory"] == fit["memory"]


def test_a_published_model_without_a_part_is_counted(rooflm: Terminal) -> None:
    """A change may leave no experts; the format of the rest stays."""
    model = find_model("gpt-oss-20b")
    dense = replace(model, groups=tuple(replace(g, ffn=MLP(F=2880)) for g in model.groups))

    assert told(precision_of(None, model=dense)) == "weights bf16"
    with pytest.raises(RooflmError, match="no part 'experts'"):
        precision_of(model.published, model=dense)


def test_a_file_of_presets_may_say_a_format(tmp_path: Path, rooflm: Terminal) -> None:
    """It is taken like that of a built-in preset; what is no format is refused in its line."""
    file = tmp_path / "own.yaml"
    text = "mine:\n  dims: {D: 64, F: 128, N: 4, K: 2, H: 16, L: 2, V: 256}\n  weights: WORD\n"
    file.write_text(text.replace("WORD", "fp8"), "utf-8")
    shown = rooflm.json("show", "mine", "--models", str(file))

    assert "counted as published: fp8 (--weights takes another format)" in shown["assumptions"]
    for word in ("fp7", "experts=mxfp4,rest=bf16"):
        file.write_text(text.replace("WORD", word), "utf-8")
        failed = rooflm("show", "mine", "--models", str(file))
        assert failed.code == Exit.USAGE
        assert "own.yaml:3" in failed.err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Make the folder of a checkpoint in AWQ."""
    config = LLAMA | {"quantization_config": AWQ}
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    return tmp_path


@pytest.mark.parametrize("command", ["show", "sweep", "fit"])
def test_commands_default_to_the_format_of_a_file_and_say_so(
    rooflm: Terminal, folder: Path, command: str
) -> None:
    """Bytes are those of --weights awq; the totals of `show` are those of any format."""
    machine = () if command == "show" else ("--on", "h100-sxm")
    answer, asked, plain = (
        rooflm.json(command, str(folder), *machine, *more)
        for more in ((), ("--weights", "awq"), ("--weights", "bf16"))
    )

    assert answer == asked
    assert (
        "counted as in the model's file: awq (--weights takes another format)"
        in answer["assumptions"]
    )
    assert any("weights awq, rest bf16" in line for line in answer["assumptions"])
    if command == "show":
        assert answer["parameters"] == plain["parameters"]
        assert answer["weights_bytes_by_format"] == plain["weights_bytes_by_format"]
        assert answer["weights_bytes"] < plain["weights_bytes"]


@pytest.mark.parametrize("command", ["show", "sweep", "fit"])
def test_commands_refuse_a_file_of_unknown_formats(
    rooflm: Terminal, folder: Path, command: str
) -> None:
    """Exit 2 and the way out, which works."""
    config = LLAMA | {"quantization_config": AWQ | {"bits": 3}}
    (folder / "config.json").write_text(json.dumps(config), "utf-8")
    words = (command, str(folder), *(() if command == "show" else ("--on", "h100-sxm")))
    ran = rooflm(*words)

    assert ran.code == Exit.USAGE
    assert "(awq, bits 3, group_size 128) is not known" in ran.err
    assert "Say --weights FORMAT." in ran.err
    assert rooflm.json(*words, "--weights", "int3")


# Checkpoints


@pytest.fixture
def models(tmp_path: Path) -> str:
    """Write a file of the models that have no preset."""
    path = tmp_path / "models.yaml"
    path.write_text(yaml.safe_dump(GOLDEN["models"]), "utf-8")
    return str(path)


@pytest.mark.parametrize("row", GOLDEN["checkpoints"], ids=[r["log"] for r in
                                                            GOLDEN["checkpoints"]])  # fmt: skip
def test_weights_take_what_engines_report(
    rooflm: Terminal, models: str, row: dict[str, Any]
) -> None:
    """Weights, tables of positions and rounding of the allocator, within what is said."""
    answer = rooflm.json(*row["run"].split(), "--models", models)
    positions, rotary = row.get("rope", (0, 0))
    held = only(answer["rows"])["weights_bytes"] + 2 * positions * rotary
    held += row.get("rounded", 0) * 2**20

    reported = parse_size(row["expect"], row["log"])
    assert held == pytest.approx(reported, rel=row.get("rel", 1.5e-3))


def test_four_bits_save_less_at_a_large_batch(rooflm: Terminal) -> None:
    """The step of the lecture's 13B with its cache, in 16 and in four bits."""
    case = CASES["t12_weight_quant_speedup_with_kv"]
    i = case["inputs"]
    words = ("sweep", i["model"], "--on", i["hardware"], "--accounting", "lecture")
    batch = ("--batch", f"1,{i['B']}", "--context", str(i["S"]))
    one, many = rooflm.json(*words, *batch)["rows"]
    small, awq = rooflm.json(*words, *batch, "--weights", "awq")["rows"]
    found = {
        "latency_bf16": many["time_s"],
        "latency_awq": awq["time_s"],
        "speedup": many["time_s"] / awq["time_s"],
        "speedup_b1": one["time_s"] / small["time_s"],
    }

    assert found == pytest.approx(case["expected"], rel=1e-12)


def test_four_bits_could_be_3_71_times_as_fast_on_an_a100(rooflm: Terminal) -> None:
    """https://github.com/mit-han-lab/llm-awq/issues/79: a 13B, weights alone."""
    words = ("sweep", "llama-2-13b", "--on", "a100-sxm-80gb", "--context", "1")
    sixteen, four = (
        only(rooflm.json(*words, "--weights", kind)["rows"])["bound_s"] for kind in ("bf16", "awq")
    )

    assert round(sixteen / four, 2) == 3.71


def v4_bytes(tensor: Tensor) -> float:
    """Bytes of one of DeepSeek-V4's tensors by the rule of its checkpoint [B]."""
    numbers = tensor.rows * tensor.columns
    position_bias = tensor.op == "compress" and tensor.part == "attention" and is_vector(tensor)
    sinks = tensor.op == "qkv" and tensor.part == "attention" and is_vector(tensor)
    # What weighs the heads of the indexer is as wide as there are heads.
    weigher = tensor.op == "index" and tensor.columns == 64
    if tensor.part == "experts":
        return numbers / 2 + math.ceil(tensor.rows / 32) * tensor.columns
    if tensor.part == "hyper_connections" or position_bias or sinks:
        return 4 * numbers
    if tensor.part not in ("attention", "shared_experts") or tensor.op == "compress" or weigher:
        return 2 * numbers
    return numbers + math.ceil(tensor.rows / 128) * math.ceil(tensor.columns / 128)


def test_deepseek_v4_pro_takes_its_checkpoint_tensor_by_tensor() -> None:
    """Five formats in one file, every byte of it."""
    case = CASES["t12_v4_pro_checkpoint"]
    model = find_model(case["inputs"]["model"])
    held = sum(n * t.count * v4_bytes(t) for n, t in tensors(model))
    # No parameters: biases that balance experts in fp32, and in the first layers a table of the
    # experts of each token in int64.
    experts = next(g.ffn for g in model.groups if isinstance(g.ffn, Experts))
    tabled = case["inputs"]["tabled_layers"]
    held += 4 * experts.E * (model.layers - tabled)
    held += 8 * experts.k * model.V * tabled
    expected = case["expected"]

    assert total_parameters(model) == expected["logical_params_main"]
    assert held == expected["bytes_main_model"]
    mean = 8 * held / total_parameters(model)
    assert mean == pytest.approx(expected["mean_bits_per_param_main"], rel=1e-12)


def test_the_formats_of_deepseek_v4_pro_come_within_two_parts_in_a_thousand() -> None:
    """What --weights can say of it: experts and the rest apart."""
    model = find_model("deepseek-v4-pro")
    formats = precision_of("experts=mxfp4,rest=fp8-block", model=model)
    expected = CASES["t12_v4_pro_checkpoint"]["expected"]["bytes_main_model"]
    assert weights_bytes(model, formats) == pytest.approx(expected, rel=2e-3)


# Commands

WEIGHTS = {
    "llama-3-8b": ("awq", "fp8", "mlp=mxfp4,rest=bf16", "q4_k_m"),
    "gpt-oss-20b": ("awq", "fp8", "experts=mxfp4,rest=bf16", "q4_k_m"),
    "deepseek-v3": ("awq", "fp8", "experts=mxfp4,rest=bf16", "q4_k_m"),
}
FORMATS = [
    (model, weights, kv)
    for model, every in WEIGHTS.items()
    for weights, kv in zip(every, ("fp8", "int8-head", "fp8-deepseek", "fp8"), strict=True)
    # Its formulas are the longest by far, and those of the formats the same.
    if model != "deepseek-v3" or kv != "fp8"
]
WORK = ("--batch", "3", "--context", "700")
SAME = ("bound_s", "weights_bytes", "kv_cache_bytes", "memory_bytes")


@pytest.mark.parametrize(("model", "weights", "kv"), FORMATS)
def test_explanations_give_the_figures_of_a_sweep(
    rooflm: Terminal, model: str, weights: str, kv: str
) -> None:
    """The formula of every numeric column, in formats with scales and parts."""
    words = ("--on", "h100-sxm", *WORK, "--weights", weights, "--kv", kv, "--basis", "bound")
    row = only(rooflm.json("sweep", model, *words)["rows"])
    row = {key: value for key, value in row.items() if not key.startswith("estimate")}
    found = find_model(model)
    case = Case(found, find_machine("h100-sxm"), precision_of(weights, kv, model=found))
    value_of = evaluator(Question(case, 3, 700))

    for key, value in row.items():
        if key in SAME or (isinstance(value, int | float) and not isinstance(value, bool)):
            assert value_of(key) == pytest.approx(value, rel=1e-12), key


@pytest.mark.parametrize(("model", "weights", "kv"), FORMATS[::2])
def test_every_command_means_the_same_by_a_format(
    rooflm: Terminal, model: str, weights: str, kv: str
) -> None:
    """Bytes of weights and cache in six commands; the solved context is the last that fits."""
    formats = ("--weights", weights, "--kv", kv)
    on = ("--on", "h100-sxm")
    words = (*on, "--capacity", "2TB")
    row = only(rooflm.json("sweep", model, *words, *WORK, *formats)["rows"])
    fit = rooflm.json("fit", model, *words, *WORK, *formats)
    other = only(rooflm.json("compare", model, *on, *WORK, *formats)["rows"])
    shown = rooflm.json("show", model, *formats)
    longest = rooflm.json("solve", "context", model, *words, "--batch", "3", *formats)["value"]
    ends = rooflm.json("sweep", model, *words, "--batch", "3", "--context",
                       f"{longest},{longest + 1}", *formats)["rows"]  # fmt: skip

    assert shown["weights_bytes"] == row["weights_bytes"]
    for key in ("weights_bytes", "kv_cache_bytes"):
        explained = rooflm.json("explain", key, model, *words, *WORK, *formats)["value"]
        assert explained == pytest.approx(row[key], rel=1e-12)
        assert fit["memory"][key] == other[key] == row[key]
    assert other["bound_s"] == row["bound_s"]
    assert [end["fits"] for end in ends] == [True, False]


@pytest.mark.parametrize("model", WEIGHTS)
def test_formats_leave_the_work_as_it_is(rooflm: Terminal, model: str) -> None:
    """FLOPs are those of 16 bits; weight-only formats leave the rate as well."""
    words = ("sweep", model, "--on", "h100-sxm", "--phase", "prefill", "--prompt", "8192")
    plain = only(rooflm.json(*words, "--weights", "bf16")["rows"])
    for weights in WEIGHTS[model]:
        row = only(rooflm.json(*words, "--weights", weights)["rows"])
        assert row["flops"] == plain["flops"], weights
        if weights == "fp8":
            assert row["bound_s"] < 0.8 * plain["bound_s"]
        else:
            assert row["bound_s"] <= plain["bound_s"]
            assert row["bound_s"] >= plain["flops"] / 989.5e12


def test_fp8_is_computed_where_a_chip_can(rooflm: Terminal) -> None:
    """An H100 multiplies at its fp8 rate; an A100 says that it has none."""
    words = ("sweep", "llama-3-8b", "--phase", "prefill", "--prompt", "8192")
    fast = rooflm.json(*words, "--on", "h100-sxm", "--weights", "fp8")
    slow = rooflm.json(*words, "--on", "a100-sxm-80gb", "--weights", "fp8")
    plain = rooflm.json(*words, "--on", "a100-sxm-80gb", "--weights", "bf16")

    assert any("multiplied at 1,979 TFLOP/s fp8" in line for line in fast["assumptions"])
    assert any("a100-sxm-80gb has no fp8 rate" in line for line in slow["assumptions"])
    assert only(slow["rows"])["bound_s"] >= 0.999 * only(plain["rows"])["flops"] / 312e12


def test_a_part_that_a_model_lacks_is_refused(rooflm: Terminal) -> None:
    """A dense model has no experts."""
    ran = rooflm("sweep", "llama-3-8b", "--on", "h100-sxm", "--weights", "experts=mxfp4,rest=bf16")

    assert ran.code == Exit.USAGE
    assert "llama-3-8b has no part 'experts'" in ran.err


def test_parts_and_mixtures_go_together() -> None:
    """A part of its own leaves the names of a mixture to the others."""
    model = find_model("llama-3-8b")
    mixed = precision_of("q4_k_m", model=model)
    apart = precision_of("mlp=q8_0,rest=q4_k_m", model=model)

    assert apart.format_of("mlp", name="ffn_down").name == "q8_0"
    for name in ("attn_v", "attn_q"):
        kinds = [p.format_of("attention", name=name) for p in (mixed, apart)]
        assert kinds[0] == kinds[1]
        assert kinds[0].bits != mixed.weights.bits


def test_caches_of_deepseek_take_what_their_reports_say(rooflm: Terminal) -> None:
    """788 B of a token in a layer of V3.2; a million tokens of V4-Pro in fp8, index in fp4 too.

    Sources: https://github.com/deepseek-ai/FlashMLA (656 B of a latent), and 132 B of an index key;
    https://docs.vllm.ai, models/deepseek_v4 (584 B of an entry).
    """
    shown = rooflm.json("show", "deepseek-v3.2", "--kv", "fp8-deepseek")
    assert shown["cache"]["bytes_per_token"] == 788 * shown["dimensions"]["L"]
    for kv, held in (("fp8-deepseek", 5_783_720_960), ("fp8-deepseek-fp4", 5_280_404_480)):
        words = ("deepseek-v4-pro", "--on", "h100-sxm", "--context", "1048576", "--kv", kv)
        row = only(rooflm.json("sweep", *words)["rows"])
        assert row["kv_cache_bytes"] == held
        ran = rooflm("fit", *words, "--format", "json")
        assert ran.json["memory"]["kv_cache_bytes"] == held
