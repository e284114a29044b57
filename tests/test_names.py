"""Names that people paste, half names of chips, and options as other programs call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rooflm.calc.deployment import parse_node
from rooflm.calc.engines import engine_names
from rooflm.calc.names import plain_name
from rooflm.calc.presets import preset_of

from .helpers import Terminal

ON = ("--on", "h100-sxm")


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        # base_model on their pages of huggingface.co.
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Meta-Llama-3-8B-Instruct", "llama-3-8b"),
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5-7b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"),
        ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b"),
        # Table of the distilled models and "base model" of the card of DeepSeek-R1.
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-V3-0324", "deepseek-v3"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", "qwen2.5-14b"),
    ],
)
def test_fine_tunes_have_the_dimensions_of_their_base(
    rooflm: Terminal, name: str, preset: str
) -> None:
    """The answer is the preset's, and says so once; a log's reader takes the name for the same."""
    answer, base = rooflm.json("show", name), rooflm.json("show", preset)
    note = f"{name} has the dimensions of the preset {preset}"

    assert answer.pop("assumptions") == [*base.pop("assumptions"), note]
    assert answer == base
    assert preset_of(name) == preset


@pytest.mark.parametrize(
    ("name", "part"),
    [
        # Dimensions of their own, or formats: nothing is guessed.
        ("Qwen/Qwen2.5-Math-7B", "Did you mean qwen2.5-7b"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", "unknown model"),
        ("codellama/CodeLlama-34b-Instruct-hf", "Did you mean codellama-34b"),
        ("moonshotai/Kimi-K2-Thinking", "Did you mean kimi-k2"),
        ("Qwen/Qwen3-8B-AWQ", "Say qwen3-8b --weights awq."),
        ("unsloth/llama-3.1-8b-Instruct-GGUF", "Name llama-3.1-8b, and its format"),
    ],
)
def test_other_names_are_refused_with_the_nearest(rooflm: Terminal, name: str, part: str) -> None:
    """By what comes after the organisation."""
    ran = rooflm("show", name)

    assert (ran.code, ran.out) == (2, "")
    assert part in ran.err


def test_what_is_read_from_a_file_has_no_note(
    rooflm: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user's entry, or a folder with a config.json, is itself whatever it is called."""
    monkeypatch.chdir(tmp_path)
    Path("own.yaml").write_text(
        "llama-3.1-8b-instruct: {dims: {D: 64, F: 128, N: 4, K: 4, H: 16, L: 2, V: 99}}\n"
    )
    answer = rooflm.json("show", "Llama-3.1-8B-Instruct", "--models", "own.yaml")
    Path("Meta-Llama-3-8B-Instruct").mkdir()
    Path("Meta-Llama-3-8B-Instruct/config.json").write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 99,'
        ' "num_attention_heads": 4, "num_hidden_layers": 2}'
    )
    folder = rooflm.json("show", "Meta-Llama-3-8B-Instruct")

    for found in (answer, folder):
        assert not [line for line in found["assumptions"] if "has the dimensions of" in line]
        assert found["parameters"]["total"] < 1e6


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("4090", "rtx-4090"), ("2x3090", "rtx-3090"), ("NVIDIA H100 SXM", "h100-sxm"),
     ("m3", "apple-m3"), ("v5e", "tpu-v5e"), ("2x RTX 4090", "rtx-4090"), ("b200", "b200-sxm"),
     ("4 x RTX 4090 24GB", "rtx-4090"), ("ryzen ai max 395", "strix-halo"),
     # As nvidia-smi prints them.
     ("NVIDIA H100 80GB HBM3", "h100-sxm"), ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
     ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"), ("NVIDIA H100 NVL", "h100-nvl"),
     ("Tesla T4", "t4"), ("Tesla V100-SXM2-32GB", "v100-sxm2-32gb"), ("NVIDIA GB10", "gb10"),
     ("NVIDIA GeForce RTX 3090 Ti", "rtx-3090-ti"), ("NVIDIA B200", "b200-sxm")],
)  # fmt: skip
def test_a_chip_without_its_maker(rooflm: Terminal, typed: str, meant: str) -> None:
    """One chip has the name when words for makers are left out; the answer names it."""
    answer = rooflm.json("compare", "gpt2", "--on", typed, "--time-model", "bandwidth")

    assert answer["rows"][0]["hardware"] == meant
    name = parse_node(typed).name
    taken = [line for line in answer["assumptions"] if line.startswith(f"{name} is taken for")]
    # What is all of a name needs no note, makers and marks aside.
    assert taken == [f"{name} is taken for {meant}"] or plain_name(name) in plain_name(meant)


def test_half_a_name_of_several_chips_lists_them(rooflm: Terminal) -> None:
    """What tells chips apart is asked for: bandwidths of an H100 differ by 1.6, sizes by shop."""
    wanted = {
        "8xh100": "h100-sxm, h100-pcie, h100-nvl: name one", "H100 80GB": "h100-sxm, h100-pcie:",
        "a100-80gb": "a100-sxm-80gb, a100-pcie-80gb:", "NVIDIA H200": "h200-sxm, h200-nvl:",
        "3060": "It may be rtx-3060-12gb", "3090x2": "Write 2x3090", "8 h100": "Write 8xh100-sxm",
        "gb200-nvl72": "Write 72xgb200.",
        "7900 xt": "rx-7900-xtx", "m3-ultra-256gb": "--on apple-m3-ultra --capacity 256GB",
        "RTX 3060 Laptop GPU": "unknown hardware",
    }  # fmt: skip
    for typed, part in wanted.items():
        ran = rooflm("fit", "gpt2", "--on", typed)
        assert (ran.code, part in ran.err) == (2, True), ran.err


NOTED = "128K is 128,000: K = 1,000; 128Ki = 131,072"


@pytest.mark.parametrize(
    ("context", "noted"), [("128K", True), ("1,128K", True), ("128k", False), ("100K", False)]
)
def test_a_capital_k_is_told(rooflm: Terminal, context: str, noted: bool) -> None:
    """Where it makes 1,000 times a power of two, which is rarely meant."""
    lines = rooflm.json("sweep", "llama-3.1-8b", *ON, "--context", context)["assumptions"]

    assert lines.count(NOTED) == noted


FIT, COMMAND = ("fit", "llama-3-8b"), ("sweep", "llama-3-8b", *ON)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((*FIT, "--on", "h100x8"), "Write 8xh100-sxm, 8xh100-pcie or 8xh100-nvl."),
        ((*FIT, "--on", "h100-sxm:8"), "Write 8xh100-sxm."),
        ((*FIT, "--on", "8*h100-sxm"), "Write 8xh100-sxm."),
        ((*FIT, "--on", "h100"), "It may be h100-sxm, h100-pcie, h100-nvl"),
        ((*FIT, "--on", "rtx-4090,h100-sxm"), "`rooflm compare` takes several"),
        ((*COMMAND, "--batch", "64x"), "1,64 or 1:256:x2"),
        ((*COMMAND, "--batch", "1-16"), "1,64 or 1:256:x2"),
        ((*COMMAND, "--tp", "1,2,4"), "`rooflm plan` tries all"),
        (FIT, "Say --on h100-sxm; `rooflm hardware` lists them."),
        ((*FIT, "4090"), "Say --on 4090;"),
        (("llama-3-8b",), "Did you mean `rooflm fit llama-3-8b --on h100-sxm`?"),
        ((*FIT, "--gpu", "h100-sxm"), "Here it is --on h100-sxm."),
        ((*COMMAND, "--gpus", "2"), "Here it is --tp 2 or --on 2xh100-sxm."),
        ((*COMMAND, "--quant=int4"), "Here it is --weights."),
        ((*COMMAND, "--kv-cache-dtype", "fp8"), "Here it is --kv."),
        ((*COMMAND, "--tensor_parallel_size", "2"), "Here it is --tp."),
        ((*COMMAND, "--max-model-len", "9"), "Here it is --context."),
        ((*FIT, *ON, "--max-model-len", "9"), "Here it is --max-len or --context."),
        ((*FIT, *ON, "--gpu-memory-utilization", "1"), "--utilization or --gpu-share."),
        # The utilization of a sweep is a share of the time that is paid.
        ((*COMMAND, "--gpu-memory-utilization", "1"), "Here it is --gpu-share."),
        ((*COMMAND, "--seq-len", "9"), "Here it is --context or --prompt."),
        ((*COMMAND, "--bs", "9"), "Here it is --batch."),
        ((*COMMAND, "--json"), "Here it is --format json."),
        ((*COMMAND, "--ttft"), "Here it is --phase prefill."),
        ((*COMMAND, "--phase", "ttft"), "Did you mean prefill?"),
        ((*COMMAND, "--batch", "1", "8", "64"), "Several values are written with commas: 1,8,64."),
        ((*COMMAND, "--context", "8,192"), "'8,192' is several values, and no 8192 (--context)."),
        ((*COMMAND, "--batch", "1,024"), "Write 1024."),
        ((*COMMAND, "--weights", "bf16,int4"), "`rooflm compare` takes several"),
        ((*COMMAND, "--output", "200"), "Tokens are --output-tokens 200"),
        (("show", "llama-3-8b", "--context", "8k"), "`rooflm fit`, `rooflm sweep`"),
        (("show", "llama-3-8b", "--set", "hidden_size=5120"), "Did you mean D?"),
        (("compare", "llama-3-8b,qwen3-8b", *ON), "rooflm compare llama-3-8b qwen3-8b."),
        (("solve", "users", "llama-3-8b", *ON), "Did you mean batch?"),
        (("explain", "cache", "llama-3-8b", *ON), "kv_cache_bytes or bytes_per_token"),
        (("explain", "ttft", "llama-3-8b", *ON), "bound_s --phase prefill"),
        ((*FIT, *ON, "--cpu-moe"), "not modelled for experts"),
        (("version",), "It is rooflm --version."),
        ((*FIT, *ON, "-c", "8192"), "Here it is --context."),
        ((*FIT, *ON, "-ngl", "20"), "Here it is --gpu-layers."),
        ((*FIT, *ON, "--load-in-4bit"), "Here it is --weights."),
        (("speculate", "llama-3-70b", *ON, "--draft-model", "gpt2"), "Here it is --draft."),
        (("solve", "llama-3-8b", *ON), "Say what is solved for first: solve batch llama-3-8b."),
        (("hardware", "M3", "Max"), 'in quotes: "M3 Max".'),
        (("fit", "llama-3-8b", "--on", "h100", "x", "4"), "before the name: --on 4xh100-sxm."),
        (("quantize", "llama-3-8b", "--bits", "4"), "say rooflm fit MODEL --weights int4."),
        (("explain", "cache [GB]", "llama-3-8b", *ON), "kv_cache_bytes or bytes_per_token"),
        (("help", "fit"), "It is rooflm fit --help."),
    ],
)  # fmt: skip
def test_the_way_out_is_told(rooflm: Terminal, words: tuple[str, ...], part: str) -> None:
    """One sentence says what is written here in place of what was typed."""
    ran = rooflm(*words)

    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert part in ran.err


def test_an_engine_that_never_ran_on_a_chip_names_those_that_did(rooflm: Terminal) -> None:
    """TensorRT-LLM 0.5 to 0.9 ran on an A100, as `sweep` without --engine says; help lists all."""
    words = ("sweep", "llama-3-8b", "--on", "a100-sxm-80gb")
    lines = "\n".join(rooflm.json(*words, "--engine", "tensorrt-llm")["assumptions"])
    usual = "\n".join(rooflm.json(*words)["assumptions"])
    told = rooflm("sweep", "--help").out

    assert "ran on the a100-sxm-80gb; engines with an estimate there: tensorrt-llm-0.9," in lines
    assert "estimate: TensorRT-LLM 0.5 to 0.9" in usual
    assert all(name in " ".join(told.split()) for name in engine_names())


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        ("llama3.1:8b-instruct-q4_K_M", "Say llama-3.1-8b --weights q4_k_m."),
        ("Meta-Llama-3.1-8B-Instruct-IQ2_XXS.gguf", "Say llama-3.1-8b --weights iq2_xxs, or name"),
        ("google/gemma-3-27b-it-qat-q4_0-gguf", "Say gemma-3-27b --weights q4_0."),
        ("nvidia/Llama-3.1-8B-Instruct-FP4", "Name llama-3.1-8b, and its format"),
        ("unsloth/Qwen3-8B-GGUF", "Name qwen3-8b, and its format with --weights."),
        ("unsloth/Qwen3-8B-UD-Q4_K_XL", "Name qwen3-8b, and its format with --weights."),
        ("qwen3.6-27b", "Of another model its config.json will do."),
    ],
)
def test_a_file_of_llama_cpp_is_a_model_and_a_format(
    rooflm: Terminal, typed: str, says: str
) -> None:
    """Names of files and tags end with the type of the file."""
    ran = rooflm("fit", typed, *ON)

    assert (ran.code, says in ran.err) == (2, True), ran.err


def test_active_parameters_may_be_left_out(rooflm: Terminal) -> None:
    """One of a family has so many in all; its parameters are those of its index on the hub."""
    assert rooflm.json("show", "qwen3:235b")["parameters"]["total"] == 235_093_634_560


def test_several_formats_are_compared(rooflm: Terminal) -> None:
    """A row for each, equal to that of the format alone; formats of parts are one."""
    words = ("compare", "llama-3-8b", *ON, "--batch", "1,8")
    both = rooflm.json(*words, "--weights", "bf16,fp8")["rows"]
    alone = [rooflm.json(*words, "--weights", kind)["rows"] for kind in ("bf16", "fp8")]

    assert both == [alone[i][n] for n in range(2) for i in range(2)]
    assert len(rooflm.json(*words, "--weights", "mlp=fp8,rest=bf16")["rows"]) == 2
    caches = rooflm.json(*words, "--kv", "bf16,fp8")["rows"]
    assert [row["kv_format"] for row in caches] == ["bf16", "fp8"] * 2
    assert " cache " in rooflm(*words, "--kv", "bf16,fp8").out.partition("\n")[0]


def test_an_option_that_is_said_twice_is_told(rooflm: Terminal) -> None:
    """The last one counts, so that advice can be added to a line; nobody overlooks it."""
    ran = rooflm(*FIT, *ON, "--weights", "bf16", "--weights=int4")

    assert "weights int4" in ran.out
    assert ran.err == "rooflm: note: --weights is said more than once; the last counts\n"
