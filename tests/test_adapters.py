"""Low-rank adapters: how many weights, what is held of them, what a pass reads and computes."""

from __future__ import annotations

import importlib
import itertools
import os
from typing import Any

import pytest

from rooflm.calc.adapters import (
    Adapters,
    Targets,
    adapted,
    adapters_bytes,
    distinct_adapters,
    operators,
    parameters_of_one,
)
from rooflm.calc.attention import Attention
from rooflm.calc.case import Case
from rooflm.calc.definitions import Question
from rooflm.calc.explain import explain
from rooflm.calc.letters import dimensions
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model, parameters, total_parameters
from rooflm.calc.passes import BF16, Segment, decode, prefill
from rooflm.calc.presets import find_model
from rooflm.calc.sweep import step_row, sweep

from .helpers import Terminal, h100, only
from .meta_models import CONFIGS

# Read when transformers is imported: no look at the network, no advice on its own defaults.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

NAMES = {
    "attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "all": {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
}
"""Modules that peft's target_modules names for a Llama."""


@pytest.mark.parametrize(
    "name",
    ["llama-2-13b", "llama-3-8b", "qwen3-8b", "gemma-3-27b", "mixtral-8x7b", "qwen3-30b-a3b"],
)
def test_weights_equal_a_count_over_the_linear_modules(name: str) -> None:
    """An adapter of a linear module holds r (in + out), as peft makes it: counted over the class.

    The classes of transformers make the modules, without data; experts are left out.
    """
    torch: Any = importlib.import_module("torch")
    transformers: Any = importlib.import_module("transformers")
    config = transformers.AutoConfig.for_model(**CONFIGS[name])
    with torch.device("meta"):
        decoder = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    for targets, wanted in NAMES.items():
        counted = sum(
            16 * (part.in_features + part.out_features)
            for path, part in decoder.named_modules()
            if isinstance(part, torch.nn.Linear)
            and path.rpartition(".")[2] in wanted
            and "expert" not in path
        )
        own = Adapters(rank=16, targets="all" if targets == "all" else "attention")
        assert parameters_of_one(adapted(find_model(name), own)) == counted > 0


@pytest.mark.parametrize(
    ("rank", "published"),
    [(2, 18_874_368), (4, 37_748_736)],
)
def test_the_paper_of_lora(rank: int, published: int) -> None:
    """GPT-3, 96 layers 12288 wide: rank 2 on four matrices is the paper's 18M, rank 4 its 37.7M.

    arXiv 2106.09685: table 5 (rank 2 on Wq, Wk, Wv and Wo: 18M, 35 MB in fp16) and table 4 (37.7M,
    rank 8 on two matrices, which is as much as rank 4 on four).
    """
    mixer = Attention(N=96, K=96, H=128)
    group = Group(96, mixer, MLP(F=49_152, gated=False))
    gpt3 = Model(name="gpt-3", D=12_288, V=50_257, groups=(group,))
    found = adapted(gpt3, Adapters(rank=rank, targets="attention"))

    assert parameters_of_one(found) == published
    assert adapters_bytes(found, BF16) == 2 * published


def test_published_counts_of_llamas() -> None:
    """Rank 16 on all seven matrices of Llama-3-8B has 41,943,040 weights; of Llama-2-7B 39,976,960.

    As trainers print it: "Trainable parameters = 41,943,040 of 8,072,204,288" (unslothai/unsloth)
    and "trainable params: 39,976,960 || all params: 6,778,392,576" (huggingface/peft).
    """
    for name, published, whole in (
        ("llama-3-8b", 41_943_040, 8_072_204_288),
        ("llama-2-7b", 39_976_960, 6_778_392_576),
    ):
        found = adapted(find_model(name), Adapters(16))
        assert parameters_of_one(found) == published
        assert total_parameters(found) + published == whole


def test_a_grid_and_symbols_give_the_same() -> None:
    """Arrays of batches and contexts, and the formulas of `explain`, equal the numbers."""
    case = Case(adapted(find_model("gemma-3-27b"), Adapters(16, 8)), h100())
    rows = sweep(case, list(range(1, 61)), list(range(100, 1100, 100)))["rows"]
    assert len(rows) == 600
    for i in (0, 59, 333, 599):
        B, S = rows[i]["batch"], rows[i]["context_tokens"]
        alone = step_row(case, decode(B, S), B, S)
        for key in ("adapters_bytes", "memory_bytes", "bytes", "bound_s", "floor_s"):
            assert rows[i][key] == pytest.approx(alone[key], rel=1e-12)
        assert alone["floor_s"] <= alone["bound_s"] * (1 + 1e-12)
    alone = step_row(case, decode(7, 900), 7, 900)
    for key in ("adapters_bytes", "floor_s"):
        answer = explain(Question(case, 7, 900), key)
        assert answer["value"] == pytest.approx(alone[key], rel=1e-12)


def test_distinct_adapters_equal_an_enumeration() -> None:
    """All ways in which B sequences choose one of n adapters, each as likely."""
    for n, B in itertools.product(range(1, 5), range(1, 6)):
        ways = [len(set(chosen)) for chosen in itertools.product(range(n), repeat=B)]
        assert distinct_adapters(B, n) == pytest.approx(sum(ways) / len(ways), rel=1e-12)
        assert distinct_adapters(B, n) >= 1


@pytest.mark.parametrize("targets", ["all", "attention"])
def test_a_pass_reads_and_computes_the_adapters_of_its_sequences(targets: Targets) -> None:
    """All are held; those that 5 sequences choose of 8 are read; every row is multiplied.

    By hand: 8(1 - (7/8)^5) = 3.896728515625 of them; two FLOPs a weight and row.
    """
    model = adapted(find_model("llama-3-8b"), Adapters(16, 8, targets))
    plain = Case(find_model("llama-3-8b"), h100())
    case, one = Case(model, h100()), parameters_of_one(model)
    with_, without = (step_row(c, decode(5, 2000), 5, 2000) for c in (case, plain))

    assert with_["adapters_bytes"] == 8 * 2 * one
    assert with_["memory_bytes"] == without["memory_bytes"] + with_["adapters_bytes"]
    assert with_["bytes"] - without["bytes"] == pytest.approx(3.896728515625 * 2 * one)
    assert with_["flops"] - without["flops"] == 5 * 2 * one
    # Nothing forbids that all sequences choose the same.
    read = (with_["floor_s"] - without["floor_s"]) * 3.35e12
    assert read == pytest.approx(2 * one, rel=1e-6)
    long = [c.ledger(prefill(3, 100)) for c in (case, plain)]
    work = [sum(op.count * op.flops for op in ops) for ops in long]
    assert work[0] - work[1] == 300 * 2 * one
    # Weights of the model stay those of the model.
    assert parameters(model) == parameters(find_model("llama-3-8b"))
    assert with_["weights_bytes"] == without["weights_bytes"]


def test_operators_add_up(rooflm: Terminal) -> None:
    """The adapters are rows of the roofline, and its rows are the step of the sweep."""
    words = "llama-3-8b --on h100-sxm --batch 32 --lora 16x8".split()  # noqa: SIM905
    operators = rooflm.json("roofline", *words)["operators"]
    row = only(rooflm.json("sweep", *words)["rows"])
    (own,) = (o for o in operators if o["part"] == "adapters")

    assert sum(o["bound_s"] for o in operators) == pytest.approx(row["bound_s"], rel=1e-12)
    assert sum(o["flops"] for o in operators) == row["flops"]
    assert own["runs"] == 32
    assert own["flops"] == 32 * 2 * 41_943_040


def test_ranks_hold_their_part_and_a_whole_factor(rooflm: Terminal) -> None:
    """Two ranks, rank 16, by hand: A of q, k, v, gate, up and B of o, down are whole on each.

    q 16(4096 + 2048), k and v 16(4096 + 512), o 16(2048 + 4096), gate and up 16(4096 + 7168), down
    16(7168 + 4096); 32 layers, 2 bytes.
    """
    layer = 16 * (6144 + 2 * 4608 + 6144 + 3 * 11_264)
    words = "llama-3-8b --on 2xh100-sxm --lora 16x4".split()  # noqa: SIM905
    kinds = rooflm.json("fit", *words)["memory"]
    assert kinds["adapters_bytes"] == 4 * 2 * 32 * layer
    # Half of the layers each, with their adapters.
    stages = rooflm.json("show", "llama-3-8b", "--lora", "16x4", "--pp", "2")
    assert {r["adapters_bytes"] for r in stages["ranks"]} == {4 * 2 * 41_943_040 // 2}


def test_no_published_step_has_adapters(rooflm: Terminal) -> None:
    """The estimate is null, and says why; prefills and requests run with them too."""
    answer = rooflm.json("sweep", "llama-3-8b", "--on", "h100-sxm", "--lora", "16")
    assert only(answer["rows"])["estimate_s"] is None
    assert "no estimate: no published step has adapters; " in "".join(answer["assumptions"])
    assert any("merged into the weights" in line for line in answer["assumptions"])
    words = ("llama-3-8b", "--on", "h100-sxm", "--phase", "request", "--basis", "bound")
    plain, lora = (
        only(rooflm.json("sweep", *words, *more)["rows"]) for more in ((), ("--lora", "16"))
    )
    assert lora["ttft_s"] > plain["ttft_s"]
    assert lora["itl_s"] > plain["itl_s"]
    assert lora["adapters_bytes"] == 2 * 41_943_040


def test_show_tells_them_beside_the_model(rooflm: Terminal) -> None:
    """Parameters of the model stay; those of an adapter stand beside them."""
    plain = rooflm.json("show", "llama-3-8b")
    found = rooflm.json("show", "llama-3-8b", "--lora", "16x8")

    assert found["parameters"] == plain["parameters"]
    assert found["weights_bytes"] == plain["weights_bytes"]
    assert found["adapters"] == {
        "rank": 16, "count": 8, "targets": "all", "parameters": 41_943_040,
        "bytes": 16 * 41_943_040,
    }  # fmt: skip
    assert "adapters" not in plain
    assert "41,943,040 parameters each" in rooflm("show", "llama-3-8b", "--lora", "16x8").out


def test_experts_and_states_have_none(rooflm: Terminal) -> None:
    """Mixtral has adapters on its attention alone; a hybrid on its attention and its MLPs."""
    row = only(rooflm.json("compare", "mixtral-8x7b", "--on", "h200-sxm", "--lora", "16x2")["rows"])
    # q and o 16 * 8192, k and v 16 * 5120, in 32 layers.
    assert row["adapters_bytes"] == 2 * 2 * 32 * 16 * 2 * (8192 + 5120)
    model = find_model("falcon-h1-34b")
    N, K, H, D, F, L = (dimensions(model)[letter] for letter in "NKHDFL")
    layer = 2 * (D + N * H) + 2 * (D + K * H) + 3 * (D + F)
    assert parameters_of_one(adapted(model, Adapters(1))) == L * layer


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ("sweep llama-3-8b --on h100-sxm --lora 16x", "--lora"),
        ("sweep llama-3-8b --on h100-sxm --lora 0", "below 1"),
        ("sweep llama-3-8b --on h100-sxm --lora 5000", "above the width"),
        ("sweep llama-3-8b --on h100-sxm --lora 16 --lora-targets mlp", "--lora-targets"),
        ("sweep llama-3-8b --on h100-sxm --lora-targets all", "Say --lora 16"),
        ("sweep llama-3-8b --on h100-sxm --lora 16 --accounting lecture", "lecture"),
        ("fit llama-3-8b --on h100-sxm --lora 16 --gpu-layers 4", "host memory"),
        ("fit deepseek-v3 --on h100-sxm --lora 16", "mla layers of deepseek-v3"),
        ("roofline qwen3-next-80b-a3b --on h100-sxm --lora 16", "gated attention"),
        ("show mamba-2.8b --lora 16", "no matrices that adapters are put on"),
        ("compare zamba2-2.7b --on h100-sxm --lora 16", "share weights"),
    ],
)
def test_what_is_not_known_is_refused(rooflm: Terminal, words: str, part: str) -> None:
    """Slips, and layers of which nobody says what their adapters are, exit 2 with a sentence."""
    ran = rooflm(*words.split())

    assert ran.code == 2
    assert part in ran.err


def test_what_adapters_move_and_keep_is_counted_by_hand() -> None:
    """Rank 16 on four matrices of 4096 x 4096, in a pass of 4 + 2 * 3 rows.

    Each factor reads its input; the second reads what it adds to and writes it: 4096 + 2 * 16 +
    2 * 4096 numbers a matrix and row. While q, k and v change, the input, its copy and all of the
    three are there.
    """
    model = adapted(find_model("llama-2-7b"), Adapters(16, targets="attention"))
    segments = [Segment(4, 1, 99), Segment(2, 3, 50)]
    (op,) = operators(model, model.groups[0], segments, BF16)

    assert op.flops == 2 * 4 * 16 * (4096 + 4096) * 10
    assert op.activation_bytes == 2 * 4 * (4096 + 2 * 16 + 2 * 4096) * 10
    assert op.live_bytes == 2 * (2 * 4096 + 3 * (16 + 4096)) * 10
    assert adapters_bytes(find_model("llama-2-7b"), BF16) == 0


def test_layers_without_targets_execute_nothing() -> None:
    """Of Jamba's layers those with attention have adapters; biases of GPT-2 are no matrices."""
    model = adapted(find_model("jamba-v0.1"), Adapters(8, targets="attention"))
    listed = {
        type(group.mixer).__name__: len(list(operators(model, group, decode(1, 9), BF16)))
        for group in model.groups
    }
    assert listed == {"Mamba": 0, "Attention": 1}

    gpt2 = adapted(find_model("gpt2"), Adapters(8))
    assert parameters_of_one(gpt2) == 12 * 8 * (4 * (768 + 768) + 2 * (768 + 3072))
