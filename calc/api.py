"""Every answer of the command line from Python: plain dicts with the keys of `--format json`.

Functions take the options of the command of the same name as keywords: `--draft-tokens 4` is
`draft_tokens=4`. Texts are read as the command line reads them ("1:256:x2", "20ms", "80GB").
Numbers are in SI units: seconds, bytes, bytes a second, shares of 1. Lists, ranges and arrays stand
for commas, mappings for KEY=VALUE. What is None was not said, and has the command's default.

A model is a preset's name, a file, or what `model` makes; a machine likewise. Nothing is printed.
Mistakes raise `RooflmError`, whose sentence names options as the command line spells them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import (
    Any,
    ParamSpec,
    TypeGuard,
    TypeVar,
    Unpack,
    cast,
)

from .api_options import (
    Answer,
    Array,
    CalibrateOptions,
    CaseOptions,
    CompareOptions,
    ExplainOptions,
    File,
    FitOptions,
    LeversOptions,
    LogOptions,
    Named,
    Numbers,
    Parts,
    PlanOptions,
    QuantizeOptions,
    RooflineOptions,
    ServeOptions,
    Settings,
    ShowOptions,
    Sited,
    SolveOptions,
    SpeculateOptions,
    Step,
    SweepOptions,
)
from .case import Case
from .errors import RooflmError, nearest
from .hardware import Machine
from .model import Model
from .plain import is_list

P = ParamSpec("P")
T = TypeVar("T")


TIMES = frozenset(("latency", "link_latency", "think", "stagger", "slo_ttft", "slo_itl", "slo_e2e"))
"""Options whose numbers are seconds."""
FLAGS = frozenset(("cost", "find_rate", "sensitivity", "symmetric", "unit_cost", "unsigned"))
"""Options that are said or not."""


def _takes(known: Any) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Show the options of a function in its signature, and refuse those that it does not have."""
    return lambda function: _checked(function, known)


def _checked(function: Callable[P, T], known: Any) -> Callable[P, T]:
    kind = inspect.Parameter.KEYWORD_ONLY
    plain = inspect.signature(function)
    own = [p for p in plain.parameters.values() if p.kind is not inspect.Parameter.VAR_KEYWORD]
    types: dict[str, Any] = known.__annotations__
    named = [
        inspect.Parameter(name, kind, default=None, annotation=of.__forward_arg__)
        for name, of in types.items()
    ]
    names = (*(p.name for p in own), *types)

    @functools.wraps(function)
    def wrapped(*args: P.args, **options: P.kwargs) -> T:
        for name in options:
            if name not in names:
                what = f"{function.__name__} has no option '{name}'"
                fix = nearest(name, names) or f"help({function.__name__}) lists them."
                raise RooflmError(what, "", fix)
        return function(*args, **options)

    wrapped.__signature__ = plain.replace(parameters=[*own, *named])  # pyright: ignore
    return wrapped


def _as_typed(options: Mapping[str, Any]) -> dict[str, Any]:
    """Write options as they would be typed; what is None stays None.

    Numbers are written with all their digits, those of times with their unit.
    """
    return {
        name: _flag(value, name) if name in FLAGS
        else _settings(value) if name == "set"
        else _version(value) if name == "engine_version"
        else _typed(value, "s" if name in TIMES else "")
        for name, value in options.items()
    }  # fmt: skip


def _unlike(value: object, wanted: str, where: str, fix: str = "") -> RooflmError:
    """Make the mistake of a value that is another kind of thing than is wanted."""
    return RooflmError(f"{wanted} is needed, not {type(value).__name__}", where, fix)


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise _unlike(value, "a text", where)
    return value


def _case(value: object) -> Case:
    if not isinstance(value, Case):
        fix = 'Make one: case("llama-3-8b", "h100-sxm").'
        raise _unlike(value, "a case", "case", fix)
    return value


def _flag(value: Any, name: str) -> bool:
    said = _plain(value)
    if not isinstance(said, bool | None):
        fix = "Leave it out where it is not meant."
        raise _unlike(value, "True or False", f"--{name.replace('_', '-')}", fix)
    return bool(said)


def _version(value: Any) -> Any:
    """Refuse a number with a point, which has lost its last zeros: 0.20 is 0.2."""
    if isinstance(_plain(value), float):
        raise _unlike(value, "a text", "--engine-version", 'Write engine_version="0.20".')
    return _typed(value)


def _typed(value: Any, unit: str = "") -> Any:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return ",".join(f"{key}={_one(item)}" for key, item in given.items())
    value = _plain(value)
    if not is_list(value):
        return _one(value) + unit
    inner: list[Any] = [_plain(item) for item in value]
    nested = any(is_list(item) for item in inner)
    return (";" if nested else ",").join(
        ",".join(map(_one, item)) if is_list(item) else _one(item) for item in inner
    )


def _plain(value: Any) -> Any:
    """Turn arrays, ranges, tuples and the like into lists, and numbers of numpy into Python's."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Iterable) and not isinstance(value, str | bytes | Path):
        return list(cast("Iterable[Any]", value))
    return value


def _one(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    value = _plain(value)
    if isinstance(value, float) and value - value == 0:
        # All digits, and no exponent below 0, which no option reads.
        return f"{Decimal(repr(value)):f}"
    return str(value)


def _settings(value: Settings) -> list[str]:
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        given = cast("Mapping[str, Any]", value)
        return [f"{key}={_one(item)}" for key, item in given.items()]
    listed = _plain(value)
    texts: list[Any] = listed if is_list(listed) else [listed]
    for text in texts:
        if not isinstance(text, str):
            raise _unlike(text, "KEY=VALUE", "--set", 'Write {"K": 8} or ["K=8"].')
    return texts


def _named(value: Named) -> str | Model:
    return str(value) if isinstance(value, str | Path) else model(value)


def _sited(value: Sited) -> str | Machine:
    return str(value) if isinstance(value, str | Path) else machine(value)


def _words(model: Named, on: Sited, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write a question as it would be typed."""
    return _options(options) | {"model": _named(model), "on": _sited(on)}


def _options(options: Mapping[str, Any]) -> dict[str, Any]:
    return _as_typed({"set": None, **options})


def _told(model: Named, on: Sited, options: Mapping[str, Any]) -> dict[str, Any]:
    """Write a question whose answer holds commands, so that names are needed."""
    for value, where in ((model, "MODEL"), (on, "--on")):
        if not isinstance(value, str | Path):
            fix = "Write it to a YAML file and name that."
            raise RooflmError("the answer holds commands, which take a name or a file", where, fix)
    return _words(model, on, options)


def model(
    source: Named, *, set: Settings = None, models: File = None, name: str = "model"
) -> Model:
    """Find or make a model.

    source: a preset's name, its Hugging Face name, a file (YAML, config.json or its folder, GGUF),
    an entry of a YAML file or a config.json as plain data; set: dimensions to change, as `--set`;
    models: a YAML file of further models; name: of a model that is given as plain data. Raises
    `RooflmError` for what is not known or not understood.

    >>> model("llama-3-8b", set={"K": 32}).groups[0].mixer.K
    32
    >>> dims = {"D": 512, "L": 4, "N": 8, "K": 2, "H": 64, "F": 2048, "V": 32000}
    >>> model({"dims": dims}, name="tiny").layers
    4
    """
    from .presets import find_model
    from .typed import parse_settings

    changes = parse_settings(_settings(set))
    found: object = source
    if isinstance(source, Mapping):
        found = _of_data(_plain_data(source), _text(name, "name"))
    elif isinstance(source, Path):
        found = str(source)
    if not isinstance(found, str | Model):
        fix = "Give a name, a file, an entry or a config as a dict, or what `model` made."
        raise _unlike(source, "a model", "MODEL", fix)
    return find_model(found, changes, None if models is None else str(models))


def _plain_data(value: Any) -> Any:
    """Copy data as JSON would hold it: texts as keys, lists, and no numbers of numpy."""
    if isinstance(value, Mapping):
        given = cast("Mapping[object, object]", value)
        return {str(key): _plain_data(item) for key, item in given.items()}
    value = _plain(value)
    return [_plain_data(item) for item in value] if is_list(value) else value


def _of_data(data: dict[str, Any], name: str) -> Model:
    if "dims" in data or not ({"model_type", "architectures"} & data.keys()):
        from .entries import build_model
        from .yamlfile import Block

        return build_model(name, Block(data, {}, name))
    from .huggingface import model_of_config

    return model_of_config(data, name, name)


def machine(
    source: Sited, *, scale: Parts = None, hardware: File = None, name: str = "machine"
) -> Machine:
    """Find or make a machine: one device.

    source: a preset's name, a YAML file, or an entry of one as plain data; scale: figures times a
    factor, as `--hardware-scale`; hardware: a YAML file of further machines; name: of a machine
    that is given as plain data. Raises `RooflmError` for what is not known.

    >>> machine("h100-sxm").bandwidth_bytes_per_s
    3350000000000.0
    >>> machine("h100-sxm", scale={"bandwidth": 2}).bandwidth_bytes_per_s
    6700000000000.0
    """
    from .hardware import scaled
    from .presets import find_machine
    from .typed import parse_factors

    if isinstance(source, Mapping):
        from .entries import build_machine
        from .yamlfile import Block

        data: dict[str, Any] = _plain_data(source)
        found = build_machine(_text(name, "name"), Block(data, {}, name))
    elif isinstance(source, Machine):
        found = source
    elif isinstance(source, str | Path):  # pyright: ignore[reportUnnecessaryIsInstance]
        found = find_machine(str(source), None if hardware is None else str(hardware))
    else:
        fix = "Give a name, a file, an entry as a dict, or what `machine` made."
        raise _unlike(source, "a machine", "--on", fix)
    factors = _typed(scale)
    return found if factors is None else scaled(found, parse_factors(factors))


@_takes(CaseOptions)
def case(model: Named, on: Sited, **options: Unpack[CaseOptions]) -> Case:
    """Put a model on a machine, with what says how to count: what `grid` and `formulas` take.

    >>> case("llama-3-8b", "h100-sxm", weights="fp8").machine.name
    'h100-sxm'
    """
    from .asked import case_of

    return case_of(_words(model, on, options))


def grid(case: Case, batch: Numbers, context: Numbers) -> dict[str, Array]:
    """Figures of decode steps at every batch and context, as arrays of shape (batches, contexts).

    batch: sequences [1]; context: tokens of each, the new one included [tokens]. Keys are the
    columns of `sweep`, in SI units; what a row has no figure for is NaN. `time_s` is the estimate,
    and the bound where there is none: `estimate_s` is NaN there, and `sweep` says why. A million
    points take about a second. Raises `RooflmError` for counts that are none.

    >>> figures = grid(case("llama-3-8b", "h100-sxm"), [1, 8, 64], [1024, 8192])
    >>> figures["bound_s"].shape
    (3, 2)
    >>> int((figures["memory_bytes"] < 80e9).sum())
    5
    """
    import numpy as np

    from .sweep import grid_columns, step_row
    from .units import parse_counts

    case = _case(case)
    batches, contexts = (
        parse_counts("" if said is None else _typed(said), name)
        for said, name in ((batch, "batch"), (context, "context"))
    )
    if len(case.ranks) > 1:
        # Ranks that differ are compared point by point.
        rows = [step_row(case, case.step(B, S), B, S) for S in contexts for B in batches]
        found = columns({"rows": rows})
    else:
        found = {
            key: _column(np.asarray(c)) for key, c in grid_columns(case, batches, contexts).items()
        }
    return {key: c.reshape(len(contexts), len(batches)).T for key, c in found.items()}


def columns(answer: Mapping[str, Any]) -> dict[str, Array]:
    """Turn the rows of an answer into arrays, one for each key; what is missing is NaN.

    answer: of `sweep`, `compare`, `fit`, `levers`, `plan`, `study` and others with rows.

    >>> answer = sweep("llama-3-8b", "h100-sxm", batch=[1, 2, 4])
    >>> columns(answer)["batch"].sum()
    np.int64(7)
    """
    import numpy as np

    listed: object = _plain(answer.get("rows")) if _is_mapping(answer) else None
    if not is_list(listed) or not all(map(_is_mapping, listed)):
        fix = "Give what sweep, compare or fit returned."
        raise RooflmError("this is no answer with rows", "answer", fix)
    rows: list[Mapping[str, Any]] = listed
    keys = dict.fromkeys(key for row in rows for key in row)
    found: dict[str, Array] = {}
    for key in keys:
        values = [row.get(key) for row in rows]
        holds = any(isinstance(v, Mapping) or is_list(v) for v in values)
        column = np.empty(len(values), object)
        column[:] = values
        found[key] = column if holds else _column(column)
    return found


def _is_mapping(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, Mapping)


def _column(column: Array) -> Array:
    """Give a column of plain values the type that all of them have; None is NaN."""
    import numpy as np

    if column.dtype != object:
        return column
    values = column.tolist()
    if any(isinstance(value, str) for value in values):
        return np.array(["" if value is None else str(value) for value in values])
    return np.array([np.nan if value is None else value for value in values])


def formulas(case: Case) -> tuple[dict[str, Any], dict[Any, Any]]:
    """Figures of a decode step as sympy expressions, and what their letters stand for.

    The expressions are in the batch B, the context S and the letters of docs/nomenclature.md. Times
    are bounds. `subs` and `lambdify` of sympy take them on. Raises `RooflmError` for a layout over
    several devices, each kind of which has formulas of its own.

    >>> found, values = formulas(case("llama-2-13b", "h100-sxm", accounting="lecture"))
    >>> found["kv_cache_bytes"]
    2*B*H*K*L*S*b_kv
    >>> found["kv_cache_bytes"].subs(values)
    819200*B*S
    """
    from .case import figures
    from .symbols import BATCH, CONTEXT, symbolic_case

    case = _case(case)
    if case.ranks:
        what = "each kind of device of a layout has formulas of its own"
        raise RooflmError(what, "", "Take a case on one device.")
    plain = symbolic_case(replace(case, constants=None, basis="bound"))
    segments = plain.case.step(BATCH, CONTEXT)
    tokens = BATCH * plain.case.step_tokens
    found = figures(plain.case, segments, plain.case.ledger(segments), tokens)
    import sympy

    return {k: sympy.sympify(v) for k, v in found.items() if v is not None}, dict(plain.values)


def models(word: str = "", *, models: File = None) -> Answer:
    """List the models that are known: those whose name holds all words.

    >>> [row["name"] for row in models("llama-3-8b")["rows"]]
    ['llama-3-8b']
    """
    from .listing import list_models

    return list_models(_text(word, "WORD"), None if models is None else str(models))


def hardware(word: str = "", *, hardware: File = None) -> Answer:
    """List the hardware that is known; one chip alone with every figure and its source.

    >>> "h100-sxm" in [row["name"] for row in hardware("h100")["rows"]]
    True
    """
    from .listing import list_hardware

    return list_hardware(_text(word, "WORD"), None if hardware is None else str(hardware))


@_takes(ShowOptions)
def show(model: Named, **options: Unpack[ShowOptions]) -> Answer:
    """Show a model: parameters by part, bytes by format, cache by kind of layer.

    >>> show("qwen3-8b")["parameters"]["total"]
    8190735360
    """
    from .answered import shown

    return shown(_options(options) | {"model": _named(model), "on": None})


@_takes(FitOptions)
def fit(model: Named, on: Sited, **options: Unpack[FitOptions]) -> Answer:
    """Tell whether a model fits (`fits`), what fills the memory, and what would make it fit.

    >>> fit("llama-3-8b", "rtx-4090", batch=16, context="8Ki")["fits"]
    False
    """
    from .answered import fitted

    return fitted(_words(model, on, options))


@_takes(SweepOptions)
def sweep(model: Named, on: Sited, **options: Unpack[SweepOptions]) -> Answer:
    """Sweep batches and contexts: memory, time, throughput, regime, fits, a row each.

    >>> answer = sweep("llama-2-13b", "h100-sxm", batch=[1, 64], accounting="lecture")
    >>> [round(1e3 * row["time_s"], 2) for row in answer["rows"]]
    [8.02, 23.8]
    """
    from .asked import swept

    return swept(_words(model, on, options))


@_takes(CompareOptions)
def compare(
    model: Named | Iterable[Named], on: Sited | Iterable[Sited], **options: Unpack[CompareOptions]
) -> Answer:
    """Compare models and machines on the same work, a row each.

    >>> len(compare(["llama-3-8b", "qwen3-8b"], ["h100-sxm", "rtx-4090"], batch=8)["rows"])
    4
    """
    from .answered import compared

    places = [_sited(place) for place in _each(on)]
    said = {"model": [_named(one) for one in _each(model)], "on": places}
    return compared(_options(options) | said)


@_takes(RooflineOptions)
def roofline(
    model: Named, on: Sited | Iterable[Sited], **options: Unpack[RooflineOptions]
) -> Answer:
    """Hold every operator of decode and prefill against the ridge of a machine.

    >>> answer = roofline("llama-3-8b", "h100-sxm", batch=64)
    >>> round(answer["ridge_flops_per_byte"])
    295
    """
    from .answered import held_against

    places = [_sited(place) for place in _each(on)]
    return held_against(_options(options) | {"model": _named(model), "on": places})


def _each(value: Any) -> list[Any]:
    one = isinstance(value, str | Mapping) or not isinstance(value, Iterable)
    return [value] if one else list(cast("Iterable[Any]", value))


@_takes(ExplainOptions)
def explain(quantity: str, model: Named, on: Sited, **options: Unpack[ExplainOptions]) -> Answer:
    """Explain a number: its formula in text and LaTeX, subtotals, value, source.

    quantity: a column of show, fit, sweep or roofline.

    >>> explain("kv_cache_bytes", "llama-2-13b", "h100-sxm", batch=64)["formula"]
    'kv_cache_bytes = 2*B*H*K*L*S*b_kv'
    """
    from .answered import explained

    asked = _text(quantity, "QUANTITY")
    return explained(_words(model, on, options) | {"quantity": asked})


@_takes(SolveOptions)
def solve(unknown: str, model: Named, on: Sited, **options: Unpack[SolveOptions]) -> Answer:
    """Solve for what meets a target; `feasible` is False where nothing does.

    unknown: batch, context, bandwidth, compute, capacity, throughput or devices.

    >>> solve("batch", "llama-2-13b", "h100-sxm", context=1024, latency=0.02)["value"]
    49
    """
    from .answered import solved

    asked = _text(unknown, "UNKNOWN")
    words = _told if asked == "devices" else _words
    return solved(words(model, on, options) | {"unknown": asked})


@_takes(SpeculateOptions)
def speculate(
    target: Named | None = None, on: Sited | None = None, **options: Unpack[SpeculateOptions]
) -> Answer:
    """Tell what speculative sampling gains; of two laws p and q, one step of it exactly.

    >>> speculate(p=[0.8, 0.2], q=[0.6, 0.4])["acceptance"]
    0.8
    """
    from .asked import speculated

    said = {
        "model": None if target is None else _named(target),
        "on": None if on is None else _sited(on),
    }
    return speculated(_options(options) | said)


@_takes(LeversOptions)
def levers(model: Named, on: Sited, **options: Unpack[LeversOptions]) -> Answer:
    """Tell which change would help most: every lever tried, the best first.

    Rows hold commands, so that model and machine have to be names or files.

    >>> levers("gpt2", "h100-sxm", batch=64, by="memory")["rows"][0]["acts_on"]
    'cache'
    """
    from .answered import levered

    return levered(_told(model, on, options))


@_takes(PlanOptions)
def plan(model: Named, on: Sited, **options: Unpack[PlanOptions]) -> Answer:
    """Plan a deployment: every layout that meets a target, the best first, with its command.

    `feasible` is False where none does. Model and machine have to be names or files.

    >>> plan("llama-3-8b", "h100-sxm", devices=[1, 2], latency=0.02)["feasible"]
    True
    """
    from .answered import planned

    return planned(_told(model, on, options))


@_takes(ServeOptions)
def serve(model: Named, on: Sited, **options: Unpack[ServeOptions]) -> Answer:
    """Simulate live traffic: what users wait for, throughput, how full the caches are.

    sweep: rates, with a row for each [requests/s].

    >>> answer = serve("llama-3-8b", "h100-sxm", rate=4, requests=50, replications=1)
    >>> answer["complete"]
    True
    """
    from .typed_serve import served

    words = _words(model, on, options)
    rates = options.get("sweep")
    if rates is not None and not isinstance(rates, str):
        words["sweep"] = f"rate={words['sweep']}"
    answer = served(words)
    if not answer["complete"]:
        raise KeyboardInterrupt
    return answer


@_takes(QuantizeOptions)
def quantize(values: str | Path | Iterable[Any], **options: Unpack[QuantizeOptions]) -> Answer:
    """Quantize numbers to integers: codes, what comes back, the error beside its bound.

    values: an array of numbers, of one row or more, or a file of them.

    >>> answer = quantize([5.2342, 1.5, 20], scale=0.1, zero_point=4)
    >>> [row["code"] for row in answer["rows"]]
    [56, 19, 127]
    """
    from .answered import quantized

    said = {"file": str(values)} if isinstance(values, str | Path) else {"values": values}
    return quantized(_as_typed(options) | said)


@_takes(CalibrateOptions)
def calibrate(
    model: Named, on: Sited, measured: Step | Iterable[Step],
    **options: Unpack[CalibrateOptions],
) -> Answer:  # fmt: skip
    """Fit the constants of an estimate to steps that you measured.

    measured: of each step, or of one alone, its batch [1], context [tokens] and latency [s], or
    the text of `--measured`.

    >>> steps = [{"context": 512, "latency": 6.9e-3}]
    >>> calibrate("llama-3-8b", "h100-sxm", steps)["engine"]
    'tensorrt-llm'
    """
    from .answered import calibrated

    points = [_point(one) for one in _each(measured)]
    return calibrated(_words(model, on, options) | {"measured": points})


def _point(step: Step) -> str:
    if isinstance(step, str):
        return step
    if not _is_mapping(step):
        fix = 'Write {"batch": 1, "context": 512, "latency": 6.9e-3}.'
        raise _unlike(step, "a measured step", "--measured", fix)
    said = {name: _typed(value, "s" if name in TIMES else "") for name, value in step.items()}
    return " ".join(f"{name}={value}" for name, value in said.items())


@_takes(LogOptions)
def explain_log(file: str | Path, **options: Unpack[LogOptions]) -> Answer:
    """Explain what vLLM, SGLang, TensorRT-LLM, llama.cpp or ollama printed at its start.

    file: the log.

    >>> from pathlib import Path
    >>> answer = explain_log(Path(__file__).parents[1] / "docs/examples/vllm.log")
    >>> answer["engine"]
    'vLLM'
    """
    from .log_explain import explain_file

    return explain_file(str(file), dict.fromkeys(LogOptions.__annotations__) | _as_typed(options))


def study(file: str | Path) -> Answer:
    """Run a study; `expectations` tells which of them hold.

    file: YAML, as docs/studies.md says.

    >>> from pathlib import Path
    >>> answer = study(Path(__file__).parents[1] / "studies/batch_sweep.yaml")
    >>> all(one["holds"] for one in answer["expectations"])
    True
    """
    from .answered import silent
    from .study import prepare
    from .study_answer import answer as answer_of
    from .study_answer import rows_of
    from .study_file import read_study

    ready = prepare(read_study(str(file)))
    rows, whole = rows_of(ready, silent)
    if not whole:
        raise KeyboardInterrupt
    return answer_of(ready, rows)
