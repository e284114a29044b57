"""The Python interface: the answers of the command line, arrays, names, and nothing printed."""

from __future__ import annotations

import copy
import importlib
import inspect
import json
import pickle
from fractions import Fraction
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import numpy as np
import pytest
import sympy
import yaml

import rooflm.calc as calc
from rooflm.calc import Model, RooflmError, api
from rooflm.calc.cli import app
from rooflm.calc.errors import Exit
from rooflm.calc.options import PLOTTED, PRINTED
from rooflm.calc.yamlfile import load

from .helpers import Terminal, only

ROOT = Path(__file__).resolve().parents[1]
LOG = str(ROOT / "docs/examples/vllm.log")
STUDY = str(ROOT / "studies/batch_sweep.yaml")
H100 = ("--on", "h100-sxm")

ASKED: dict[str, tuple[Any, tuple[str, ...]]] = {
    "models": (lambda: calc.models("llama-3"), ("models", "llama-3")),
    "hardware": (lambda: calc.hardware("h100-sxm"), ("hardware", "h100-sxm")),
    "show": (
        lambda: calc.show("qwen3-8b", set={"K": 4, "tied": True}, weights="fp8", tp=2),
        ("show", "qwen3-8b", "--set", "K=4", "--set", "tied=true", "--weights", "fp8",
         "--tp", "2"),
    ),
    "fit": (
        lambda: calc.fit(
            "llama-3-8b", "rtx-4090", batch=16, context=8192, capacity=24e9, non_torch=0.5e9,
            engine="vllm", utilization=0.9,
        ),
        ("fit", "llama-3-8b", "--on", "rtx-4090", "--batch", "16", "--context", "8192",
         "--capacity", "24GB", "--non-torch", "500MB", "--engine", "vllm", "--utilization", "90%"),
    ),
    "lecture": (
        lambda: calc.sweep("llama-2-13b", "h100-sxm", batch=[1, 64], accounting="lecture"),
        ("sweep", "llama-2-13b", *H100, "--batch", "1,64", "--accounting", "lecture"),
    ),
    "sweep": (
        lambda: calc.sweep(
            "mixtral-8x7b", "8xh100-sxm", batch=np.array([8, 64]), context=range(1024, 4096, 1024),
            weights={"experts": "mxfp4", "rest": "bf16"}, link_latency=2e-6, link=450e9,
            hardware_scale={"compute": 1.5}, cost=True, tariff=(0.14, 0.55, 2.19), price=2.5,
        ),
        ("sweep", "mixtral-8x7b", "--on", "8xh100-sxm", "--batch", "8,64", "--context",
         "1024:4095:1024", "--weights", "experts=mxfp4,rest=bf16", "--link-latency", "2us",
         "--link", "450GB/s", "--hardware-scale", "compute=1.5", "--cost", "--tariff",
         "0.14,0.55,2.19", "--price", "2.5"),
    ),
    "sweep of requests": (
        lambda: calc.sweep("llama-3-8b", "h100-sxm", phase="request", prompt=[1000, 2000]),
        ("sweep", "llama-3-8b", *H100, "--phase", "request", "--prompt", "1k,2k"),
    ),
    "compare": (
        lambda: calc.compare(["llama-3-8b", "qwen3-8b"], ["h100-sxm", "rtx-4090"], batch=8),
        ("compare", "llama-3-8b", "qwen3-8b", "--on", "h100-sxm,rtx-4090", "--batch", "8"),
    ),
    "roofline": (
        lambda: calc.roofline("llama-3-8b", "h100-sxm", batch=[1, 64], context="4k"),
        ("roofline", "llama-3-8b", *H100, "--batch", "1,64", "--context", "4000"),
    ),
    "explain": (
        lambda: calc.explain("kv_cache_bytes", "gpt2", "h100-sxm", batch=64),
        ("explain", "kv_cache_bytes", "gpt2", *H100, "--batch", "64"),
    ),
    "solve": (
        lambda: calc.solve("batch", "llama-2-13b", "h100-sxm", context=1024, latency=0.02),
        ("solve", "batch", "llama-2-13b", *H100, "--context", "1024", "--latency", "20ms"),
    ),
    "solve devices": (
        lambda: calc.solve("devices", "llama-3-8b", "h100-sxm", latency=0.004, batch=32),
        ("solve", "devices", "llama-3-8b", *H100, "--latency", "4ms", "--batch", "32"),
    ),
    "speculate": (
        lambda: calc.speculate(
            "llama-3-70b", "8xh100-sxm", draft="llama-3-8b", acceptance=[0.8, 0.7],
            draft_tokens=2, batch=[1, 8],
        ),
        ("speculate", "llama-3-70b", "--on", "8xh100-sxm", "--draft", "llama-3-8b",
         "--acceptance", "0.8,0.7", "--draft-tokens", "2", "--batch", "1,8"),
    ),
    "speculate with a tree": (
        lambda: calc.speculate(
            "llama-3-8b", "h100-sxm", draft="eagle", tree=[[0], [1], [0, 0]],
            accuracies=[[0.6, 0.15], [0.5]],
        ),
        ("speculate", "llama-3-8b", *H100, "--draft", "eagle", "--tree", "0;1;0,0",
         "--accuracies", "0.6,0.15;0.5"),
    ),
    "laws": (
        lambda: calc.speculate(p=[Fraction(1, 3), Fraction(2, 3)], q=[0.5, 0.5]),
        ("speculate", "--p", "1/3,2/3", "--q", "0.5,0.5"),
    ),
    "levers": (
        lambda: calc.levers("gpt2", "h100-sxm", batch=64, by="throughput"),
        ("levers", "gpt2", *H100, "--batch", "64", "--by", "throughput"),
    ),
    "plan": (
        lambda: calc.plan("llama-3-8b", "h100-sxm", devices=[1, 2], latency=0.02, top=3),
        ("plan", "llama-3-8b", *H100, "--devices", "1,2", "--latency", "20ms", "--top", "3"),
    ),
    "serve": (
        lambda: calc.serve(
            "llama-3-8b", "h100-sxm", sweep=[2, 4.5], requests=40, replications=1, slo_ttft=0.5,
        ),
        ("serve", "llama-3-8b", *H100, "--sweep", "rate=2,4.5", "--requests", "40",
         "--replications", "1", "--slo-ttft", "500ms"),
    ),
    "quantize": (
        lambda: calc.quantize([5.2342, -1e-7, 20], bits=4, symmetric=True),
        ("quantize", "--values", "5.2342,-1e-7,20", "--bits", "4", "--symmetric"),
    ),
    "calibrate": (
        lambda: calc.calibrate(
            "llama-3-8b", "h100-sxm",
            [{"context": 512, "latency": 6.9e-3}, {"batch": 8, "context": 512, "latency": 7.4e-3}],
            constants=["memory", "sequence"],
        ),
        ("calibrate", "llama-3-8b", *H100, "--measured", "context=512 latency=0.0069s",
         "--measured", "batch=8 context=512 latency=0.0074s", "--constants", "memory,sequence"),
    ),
    "explain_log": (lambda: calc.explain_log(Path(LOG)), ("explain-log", LOG)),
    "study": (lambda: calc.study(Path(STUDY)), ("study", STUDY)),
}  # fmt: skip
"""Questions in Python and on the command line."""


@pytest.mark.parametrize("name", ASKED)
def test_python_answers_what_the_command_answers(
    name: str, rooflm: Terminal, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is the oracle: its JSON is the answer, and nothing is printed in Python."""
    ask, words = ASKED[name]
    answer = ask()
    printed = capsys.readouterr()
    ran = rooflm(*words, "--format", "json")

    assert (printed.out, printed.err) == ("", "")
    # 1 where the answer is no: `fits` or `feasible` is false.
    assert ran.code in (0, 1), ran.err
    assert json.loads(json.dumps(answer)) == ran.json


COMMANDS = {
    c.name or c.callback.__name__: c.callback for c in app.registered_commands if c.callback
}
FUNCTIONS = sorted(set(calc.__all__) & {name.replace("-", "_") for name in COMMANDS})
OUTPUT = {*PRINTED, *PLOTTED, "check", "freeze", "junit", "figures", "resume", "provenance"}
"""Options that say what a command does with its answer, or with files."""


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_has_the_options_of_its_command(name: str) -> None:
    """No option is missing in Python, none is made up, and `help` lists all."""
    command = set(inspect.signature(COMMANDS[name.replace("_", "-")]).parameters)
    function = set(inspect.signature(getattr(calc, name)).parameters)

    # Numbers of `quantize` are one argument, which may be a file as well.
    files = {"file", "files"}
    assert function - files == command - files - OUTPUT


def test_times_and_flags_are_those_of_the_commands() -> None:
    """Numbers of exactly the options with a TIME are seconds, and flags have no value."""
    flags = {
        name
        for command in FUNCTIONS
        for name, parameter in inspect.signature(getattr(calc, command)).parameters.items()
        if parameter.annotation == "bool"
    }
    found = {
        name
        for command in COMMANDS.values()
        for name, parameter in inspect.signature(command).parameters.items()
        if any(getattr(a, "metavar", None) == "TIME" for a in get_args(parameter.annotation))
    }

    # `rooflm plot` has a promise to draw.
    assert found - {"slo"} == api.TIMES
    assert flags == api.FLAGS


def test_names_are_sorted_documented_and_functions() -> None:
    """Every public name is there with an example, also where a module has the same name."""
    for name in calc.__all__:
        module = ROOT / f"calc/{name}.py"
        if module.exists():
            importlib.import_module(f"rooflm.calc.{name}")
        found = getattr(calc, name)
        assert callable(found), name
        assert inspect.getdoc(found), name
        if inspect.isfunction(found):
            # tests/test_readings.py runs these, as those of every module.
            assert ">>> " in (inspect.getdoc(found) or ""), name
    assert list(calc.__all__) == sorted(calc.__all__)
    assert set(calc.__all__) <= set(dir(calc))
    functions = {
        n for n, f in vars(api).items() if inspect.isfunction(f) and f.__module__ == api.__name__
    }
    assert {n for n in functions if not n.startswith("_")} - {"typed"} == {
        n for n in calc.__all__ if n[0].islower()
    }


def test_an_unknown_name_of_the_package_is_none() -> None:
    """A misspelt import fails as everywhere."""
    with pytest.raises(AttributeError, match="has no attribute 'swep'"):
        _ = calc.swep  # pyright: ignore


def test_a_grid_is_the_loop_over_points() -> None:
    """Arrays hold what the same points give one by one, also on several devices."""
    batch, context = np.array([1, 7, 64, 700]), np.array([1024, 100_000])
    for name, on in (("llama-3-8b", "h100-sxm"), ("gpt-oss-20b", "2xh100-sxm")):
        figures = calc.grid(calc.case(name, on), batch, context)
        for i, B in enumerate(batch):
            for j, S in enumerate(context):
                row = only(calc.sweep(name, on, batch=B, context=S)["rows"])
                for key, column in figures.items():
                    value = column[i, j]
                    if row[key] is None:
                        assert np.isnan(value), key
                    elif isinstance(row[key], str):
                        assert value == row[key], key
                    else:
                        assert value == pytest.approx(row[key], rel=1e-12), key


def test_columns_of_an_answer_are_its_rows() -> None:
    """Each key is an array; what a row lacks is NaN."""
    answer = calc.sweep("llama-3-8b", "h100-sxm", batch=[1, 300])
    found = calc.columns(answer)

    assert found["batch"].tolist() == [1, 300]
    assert found["fits"].dtype == bool
    assert np.isnan(found["ttft_s"]).all()
    assert found["regime"].tolist() == [row["regime"] for row in answer["rows"]]


def test_formulas_give_the_figures() -> None:
    """A formula with numbers for its letters is the figure of the sweep."""
    found, values = calc.formulas(calc.case("gpt2", "h100-sxm", weights="fp8"))
    row = only(calc.sweep("gpt2", "h100-sxm", weights="fp8", batch=64, context=512)["rows"])
    B, S = sympy.symbols("B S", positive=True, integer=True)
    for key in ("memory_bytes", "bound_s", "flops", "bytes"):
        value = found[key].subs(values).subs({B: 64, S: 512})
        assert float(value) == pytest.approx(row[key], rel=1e-12), key
    with pytest.raises(RooflmError, match="one device"):
        calc.formulas(calc.case("gpt2", "2xh100-sxm"))


def test_a_model_is_a_name_a_file_or_plain_data(tmp_path: Path) -> None:
    """The same model comes from a preset, its entry, its YAML file and its config.json."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 5120,
        "num_hidden_layers": 40, "num_attention_heads": 40, "intermediate_size": 13824,
        "vocab_size": 32000, "max_position_embeddings": 4096,
    }  # fmt: skip
    entry = yaml.safe_load((ROOT / "models.yaml").read_text("utf-8"))["llama-2-13b"]
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({"mine": entry}), "utf-8")
    (tmp_path / "config.json").write_text(json.dumps(config), "utf-8")
    sources: list[Any] = [
        "llama-2-13b", entry, config, tmp_path / "m.yaml", tmp_path / "config.json", tmp_path,
        calc.model("llama-2-13b"),
    ]  # fmt: skip
    rows = [calc.sweep(source, "h100-sxm", batch=64)["rows"] for source in sources]

    assert all(row == rows[0] for row in rows)
    assert {type(calc.model(source)) for source in sources} == {Model}


def test_a_machine_is_a_name_a_file_or_plain_data(tmp_path: Path) -> None:
    """The same machine comes from a preset, its entry and its YAML file; alone and spread."""
    whole = load((ROOT / "hardware.yaml").read_text("utf-8"), "hardware.yaml").value
    entry = whole["h100-sxm"]
    file = {"h100-sxm": entry, "sources": whole["sources"]}
    (tmp_path / "h.yaml").write_text(json.dumps(file), "utf-8")
    sources: list[Any] = [
        "h100-sxm", tmp_path / "h.yaml", calc.machine("h100-sxm"),
        calc.machine(entry, name="h100-sxm"),
    ]  # fmt: skip
    for tp in (1, 8):
        answers = [calc.sweep("llama-3-8b", source, batch=64, tp=tp) for source in sources]
        assert all(answer["rows"] == answers[0]["rows"] for answer in answers)
    both = calc.compare(calc.model("gpt2"), [calc.machine("h100-sxm"), "rtx-4090"])
    assert both == calc.compare("gpt2", ["h100-sxm", "rtx-4090"])


@pytest.mark.parametrize(
    ("ask", "told"),
    [
        (lambda: calc.sweep("gpt2", "h100-sxm", contxt=1), "'contxt'. Did you mean context"),  # pyright: ignore
        (lambda: calc.sweep("llama-3-8b", "h100-sxm", batch=[]), "--batch"),
        (lambda: calc.sweep("gpt2", "h100-sxm", batch=True), "'true' is not a positive"),
        (lambda: calc.sweep("llama-3-8b", "h100-sxm", batch=2.5), "not a whole number"),
        (lambda: calc.sweep("gpt2", "h100-sxm", batch=[4, "x"]), "'x' is not a positive"),
        (lambda: calc.grid(calc.case("gpt2", "h100-sxm"), [0], [1]), "below 1"),
        (lambda: calc.solve("batch", "gpt2", "h100-sxm", latency=-1), "is not a time"),
        (lambda: calc.model({"dims": {"D": 8}}, name="x"), "x"),
        (lambda: calc.levers(calc.model("gpt2"), "h100-sxm"), "commands"),
        (lambda: calc.quantize(np.zeros((2, 2, 2))), "no more axes.*Give .*equal length"),
        (lambda: calc.quantize(["a"]), "no array of numbers.*Give .*equal length"),
        (lambda: calc.quantize([10**400]), "no array of numbers"),
        (lambda: calc.quantize([np.nan]), "holds nan.*Leave it out"),
        (lambda: calc.quantize([1.0], bits=99), "not between 2 and 16.*Write 8"),
        (lambda: calc.sweep("gpt2", "h100-sxm", set=5), "KEY=VALUE is needed, not int"),  # pyright: ignore
        (lambda: calc.sweep("gpt2", "h100-sxm", set=[1]), "not int .--set.. Write"),  # pyright: ignore
        (lambda: calc.sweep(cast("Any", None), "h100-sxm"), "a model is needed, not NoneType"),
        (lambda: calc.sweep("gpt2", cast("Any", 5)), "a machine is needed, not int"),
        (lambda: calc.model({1: 2}), "unknown key '1'"),  # pyright: ignore
        (lambda: calc.machine({1: 2}), "machine has an unknown key '1'"),  # pyright: ignore
        (lambda: calc.model({}, name=cast("Any", 5)), "a text is needed"),
        (lambda: calc.models(cast("Any", None)), "a text is needed, not NoneType"),
        (lambda: calc.hardware(cast("Any", b"h100")), "a text is needed, not bytes"),
        (lambda: calc.solve(cast("Any", 5), "gpt2", "h100-sxm"), "a text is needed, not int"),
        (lambda: calc.explain(cast("Any", None), "gpt2", "h100-sxm"), "QUANTITY"),
        (lambda: calc.compare(cast("Any", 5), "h100-sxm"), "a model is needed, not int"),
        (lambda: calc.roofline("gpt2", cast("Any", [None])), "a machine is needed, not NoneType"),
        (lambda: calc.calibrate("gpt2", "h100-sxm", cast("Any", [5])), "step is needed, not int"),
        (lambda: calc.calibrate("gpt2", "h100-sxm", cast("Any", None)), "step is needed"),
        (lambda: calc.grid(cast("Any", "gpt2"), 1, 1), "a case is needed, not str"),
        (lambda: calc.grid(calc.case("gpt2", "h100-sxm"), None, 1), "batch"),
        (lambda: calc.formulas(cast("Any", 5)), "a case is needed, not int"),
        (lambda: calc.columns({"row": []}), "no answer with rows"),
        (lambda: calc.columns({"rows": [1]}), "Give what sweep"),
        (lambda: calc.sweep("gpt2", "h100-sxm", cost="no"), "--cost.*Leave it out"),  # pyright: ignore
        (lambda: calc.sweep("gpt2", "h100-sxm", cost=1), "True or False is needed, not int"),  # pyright: ignore
        (lambda: calc.fit("gpt2", "h100-sxm", engine_version=0.20), "--engine-version"),  # pyright: ignore
        (lambda: calc.fit("gpt2", "h100-sxm", engine_version=np.float32(1)), "not float32"),  # pyright: ignore
    ],
)  # fmt: skip
def test_mistakes_are_told_in_a_sentence(ask: Any, told: str) -> None:
    """What cannot be answered raises the one exception, with what is wrong."""
    with pytest.raises(RooflmError, match=told):
        ask()


def test_a_mistake_survives_a_copy_and_a_worker_process() -> None:
    """Every part of a mistake comes out of `deepcopy` and `pickle` as it went in."""
    made = RooflmError("no torch", "validate", "Install it.", Exit.MISSING)
    for copied in (copy.deepcopy(made), pickle.loads(pickle.dumps(made))):
        assert str(copied) == "no torch (validate). Install it."
        assert vars(copied) == vars(made)


def test_numbers_of_numpy_stand_for_those_of_python() -> None:
    """Dimensions, figures of a machine and flags are taken from numpy as they are from Python."""
    dims = {"D": 512, "L": 4, "N": 8, "K": 2, "H": 64, "F": 2048, "V": 32000}
    arrays = {"dims": {key: np.int64(value) for key, value in dims.items()}, "tied": np.True_}
    assert calc.model(arrays) == calc.model({"dims": dims, "tied": True})
    box = {"name": "Box", "kind": "gpu", "bandwidth_bytes_per_s": 1e12}
    assert calc.machine(box | {"bandwidth_bytes_per_s": np.float64(1e12)}) == calc.machine(box)
    priced = calc.sweep("gpt2", "h100-sxm", cost=np.True_)  # pyright: ignore
    assert priced == calc.sweep("gpt2", "h100-sxm", cost=True)
    assert priced != calc.sweep("gpt2", "h100-sxm", cost=np.False_)  # pyright: ignore


@pytest.mark.parametrize(
    "alone", ["context=512 latency=6.9ms", {"context": 512, "latency": 6.9e-3}]
)
def test_one_measured_step_needs_no_list(alone: Any) -> None:
    """A lone text or mapping is one step, as a machine alone is one machine."""
    asked = ("llama-3-8b", "h100-sxm")
    assert calc.calibrate(*asked, alone) == calc.calibrate(*asked, [alone])


def test_hints_of_every_function_resolve() -> None:
    """`typing.get_type_hints`, which tools and notebooks call, finds every name."""
    for name in calc.__all__:
        found = getattr(calc, name)
        if inspect.isfunction(found):
            assert "return" in get_type_hints(found), name
    options = get_args(get_type_hints(calc.sweep)["options"])
    assert options == (api.SweepOptions,)


def test_without_an_estimate_time_is_the_bound() -> None:
    """Nobody published timings of an MI300X: `estimate_s` is NaN, and `time_s` the bound."""
    figures = calc.grid(calc.case("llama-3-8b", "mi300x"), [1, 64], [1024])
    assert np.isnan(figures["estimate_s"]).all()
    assert (figures["time_s"] == figures["bound_s"]).all()


@pytest.mark.parametrize(
    ("on", "weights", "told"),
    [
        ("b200-sxm", "mxfp4", "mxfp4: taken as expanded and multiplied in bf16"),
        ("h100-sxm", "nvfp4", "h100-sxm has no fp4 rate: fewer bits are expanded"),
        ("b200-sxm", "nvfp4", "fewer bits are multiplied at 9,000 TFLOP/s fp4"),
    ],
)
def test_an_answer_tells_what_multiplies_fewer_bits(on: str, weights: str, told: str) -> None:
    """A large batch in mxfp4 takes as long as its FLOPs at 16 bits, and the answer says why."""
    answer = calc.sweep("llama-3-8b", on, weights=weights, batch=4096, context=1)
    said = [line for line in answer["assumptions"] if line.startswith(told)]
    assert len(said) == 1, answer["assumptions"]
    rate = 9000e12 if "at 9,000" in told else calc.machine(on).flops["bf16"]
    row = only(answer["rows"])
    # FLOPs of the head are at 16 bits in every format, so that a faster rate bounds from below.
    assert row["bound_s"] >= row["flops"] / rate
    assert (row["bound_s"] < row["flops"] / calc.machine(on).flops["bf16"]) == ("at 9,000" in told)
