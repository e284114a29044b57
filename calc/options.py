"""What every option of the command line is called and says; the same everywhere."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias, cast

import typer


def _complete_models(incomplete: str) -> list[str]:
    from .presets import MODELS_FILE, preset_names

    return [name for name in preset_names(MODELS_FILE) if name.startswith(incomplete)]


def _complete_hardware(incomplete: str) -> list[str]:
    from .presets import HARDWARE_FILE, preset_names

    return [name for name in preset_names(HARDWARE_FILE) if name.startswith(incomplete)]


ModelName = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A preset, its Hugging Face name, or a file: YAML, config.json (or its folder), GGUF.",
        autocompletion=_complete_models,
    ),
]
On = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="A preset or a YAML file.",
        autocompletion=_complete_hardware,
    ),
]
ManyModels = Annotated[
    list[str],
    typer.Argument(metavar="MODEL...", help="Models.", autocompletion=_complete_models),
]
ManyOn = Annotated[
    list[str],
    typer.Option(
        "--on",
        metavar="HARDWARE...",
        help="Machines: repeat the option, or separate with commas.",
        autocompletion=_complete_hardware,
    ),
]
Word = Annotated[str | None, typer.Argument(metavar="[WORD]", help="Show only names that hold it.")]
Batch = Annotated[
    str | None,
    typer.Option(metavar="COUNTS", help="Sequences: 1,64 or 1:256:x2 or 1:9:2.  [default: 1]"),
]
Context = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="COUNTS",
        help="Tokens of each sequence, the new one included: 1024, 4k, 128Ki.  [default: 1024]",
    ),
]
MixedContext = Annotated[
    str | None,
    typer.Option(
        "--context",
        metavar="COUNTS",
        help="Tokens of each sequence, the new one included: 1024, 4k, 128Ki; "
        "512,1024,4096@mixed or FILE@mixed for one batch of different lengths.  [default: 1024]",
    ),
]
OptionalContext = Annotated[
    str | None,
    typer.Option("--context", metavar="COUNT", help="Tokens of each sequence.  [default: 1024]"),
]
OneBatch = Annotated[str, typer.Option("--batch", metavar="COUNT", help="Sequences.")]
OneContext = Annotated[
    str, typer.Option("--context", metavar="COUNT", help="Tokens of each sequence.")
]
Phase = Annotated[
    str | None, typer.Option(metavar="PHASE", help="decode (default), prefill, request or served.")
]
Prompt = Annotated[
    str | None, typer.Option(metavar="COUNTS", help="Prompt tokens of a prefill or request.")
]
OutputTokens = Annotated[
    str | None,
    typer.Option(metavar="COUNT", help="Tokens that a request generates.  [default: 128]"),
]
Prefix = Annotated[
    str | None,
    typer.Option(metavar="COUNT", help="Leading prompt tokens that are in a cache already."),
]
Chunk = Annotated[
    str | None,
    typer.Option(metavar="COUNT", help="Prompt tokens of a prefill pass; all if not given."),
]
Block = Annotated[
    str | None,
    typer.Option(
        metavar="COUNT", help="Tokens of a cache block; whole ones are reused.  [default: 16]"
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        metavar="FORMAT",
        help="Number format of the weights, or of parts: experts=mxfp4,rest=bf16.  [default: that "
        "of the file, bf16 where it has none, fp16 where a device has only that]",
    ),
]
Cache = Annotated[
    str | None,
    typer.Option(
        "--kv",
        metavar="FORMAT",
        help="Number format of the cache.  [default: the 16 bits of the activations]",
    ),
]
State = Annotated[
    str | None,
    typer.Option(
        "--state",
        metavar="FORMAT",
        help="Number format of recurrent states.  [default: fp32; the engine's own in its lines]",
    ),
]
TokensPerStep = Annotated[
    str | None,
    typer.Option(
        metavar="NUMBER", help="Tokens that a step of a diffusion model yields.  [default: 1]"
    ),
]
DenoiseBlock = Annotated[
    str | None,
    typer.Option(metavar="COUNT", help="Block diffusion: tokens of a block, with a cache."),
]
DenoiseSteps = Annotated[
    str | None,
    typer.Option(
        metavar="COUNT", help="Denoising passes of a block, or of a diffusion model's request."
    ),
]
Typed: TypeAlias = Mapping[str, "str | None"]
"""What was typed of the options of a layout."""
_WAYS = "COUNT"
LAYOUT: dict[str, Any] = {
    "tp": Annotated[
        str | None, typer.Option("--tp", metavar=_WAYS, help="Devices that split every layer.")
    ],
    "pp": Annotated[
        str | None, typer.Option("--pp", metavar=_WAYS, help="Stages that split the layers.")
    ],
    "ep": Annotated[
        str | None,
        typer.Option("--ep", metavar=_WAYS, help="Sets that the experts are dealt out to."),
    ],
    "dp": Annotated[
        str | None,
        typer.Option("--dp", metavar=_WAYS, help="Groups with sequences of their own."),
    ],
    "cp": Annotated[
        str | None, typer.Option("--cp", metavar=_WAYS, help="Parts of the tokens of a cache.")
    ],
    "replicas": Annotated[
        str | None, typer.Option("--replicas", metavar=_WAYS, help="Copies of everything.")
    ],
    "link": Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes a second between devices of a node, one way."),
    ],
    "network": Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Bytes a second between nodes, one way of a device."),
    ],
    "link_latency": Annotated[
        str | None, typer.Option(metavar="TIME", help="Latency of a message.  [default: 0]")
    ],
    "all_reduce": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="ring (default), one-shot, two-shot or in-switch."),
    ],
    "gpu_layers": Annotated[
        str | None,
        typer.Option("--gpu-layers", metavar=_WAYS, help="Layers on the device; rest on the host."),
    ],
    "host_link": Annotated[
        str | None,
        typer.Option("--host-link", metavar="SIZE", help="Bytes a second from the host, one way."),
    ],
}
"""Options that spread a model over devices, and over a device and its host."""


SHARED: dict[str, Any] = {
    "shared_prefix": Annotated[
        str | None,
        typer.Option(metavar=_WAYS, help="Leading tokens that all sequences of a step share."),
    ],
    "prefix_reads": Annotated[
        str | None,
        typer.Option(
            metavar="HOW",
            help="each: a shared prefix is read for every sequence (default); once: for all.",
        ),
    ],
}
"""Options of a prefix that a batch shares."""


ADAPTERS: dict[str, Any] = {
    "lora": Annotated[
        str | None,
        typer.Option(
            "--lora",
            metavar="RANKxCOUNT",
            help="Adapters beside the weights: 16 is one of rank 16, 16x8 are eight.",
        ),
    ],
    "lora_targets": Annotated[
        str | None,
        typer.Option(
            "--lora-targets",
            metavar="NAME",
            help="Matrices that have them: all (attention and MLP, default), or attention.",
        ),
    ],
}
"""Options of low-rank adapters."""
TERMS = SHARED | ADAPTERS
"""Options of further terms of a pass."""
HANDOFF: dict[str, Any] = {
    "prefill_on": Annotated[
        str | None,
        typer.Option(
            metavar="HARDWARE",
            help="Machine that computes prompts of a request and hands their cache on.",
            autocompletion=_complete_hardware,
        ),
    ],
    "handoff": Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Bytes a second that it hands on, one way.  [default: --network]"
        ),
    ],
}
"""Options of prompts that are computed on another machine."""


def _with_default(option: tuple[str, Any]) -> tuple[str, tuple[Any, Any]]:
    name, said = option
    return name, cast("tuple[Any, Any]", said) if isinstance(said, tuple) else (said, None)


def with_options(**groups: Mapping[str, Any]) -> Callable[..., Any]:
    """Give a command groups of options; it gets what was typed of a group as one argument.

    groups: by the name of the command's argument, its options by name: annotations, or pairs of
    annotation and default where that is not None. Options of the output stay last.
    """

    def give(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def wrapped(**typed: Any) -> Any:
            own = {name: {n: typed.pop(n) for n in group} for name, group in groups.items()}
            return command(**typed, **own)

        plain = inspect.signature(command)
        kind = inspect.Parameter.KEYWORD_ONLY
        own = [p.replace(kind=kind) for p in plain.parameters.values() if p.name not in groups]
        more = [
            inspect.Parameter(name, kind, annotation=annotation, default=default)
            for group in groups.values()
            for name, (annotation, default) in map(_with_default, group.items())
        ]
        ordered = sorted([*own, *more], key=lambda p: p.name in PRINTED)
        wrapped.__signature__ = plain.replace(parameters=ordered)  # pyright: ignore
        wrapped.__annotations__ = {p.name: p.annotation for p in ordered}
        return wrapped

    return give


with_layout = with_options(layout=LAYOUT)


Set = Annotated[
    list[str],
    typer.Option("--set", metavar="KEY=VALUE", help="Change a dimension or trait: K=8, tied=true."),
]
AccountingName = Annotated[
    str,
    typer.Option("--accounting", metavar="NAME", help="full, or lecture as in CS336 lecture 10."),
]
TimeModelName = Annotated[
    str | None,
    typer.Option(
        "--time-model",
        metavar="NAME",
        help="bandwidth, overlap, operator or serial.  [default: operator]",
    ),
]
RoutingName = Annotated[
    str | None,
    typer.Option(
        "--routing",
        metavar="LAW",
        help="How tokens choose experts: even (default), zipf:1.0, alike:0.5 (B**0.5 of them by "
        "themselves), or a probability an expert.",
    ),
]
EngineName = Annotated[
    str | None,
    typer.Option(
        "--engine",
        metavar="NAME",
        help="Engine whose steps are estimated: tensorrt-llm, vllm, tensorrt-llm-0.9, vllm-0.6, "
        "llama.cpp, llama.cpp-2024, llama.cpp-hip, compiled, exllama.  [default: the first that "
        "ran on such a chip]",
    ),
]
CalibrationFile = Annotated[
    str | None,
    typer.Option(
        "--calibration", metavar="FILE", help="Constants of `rooflm calibrate` in place of both."
    ),
]
BasisName = Annotated[
    str | None,
    typer.Option(
        "--basis",
        metavar="NAME",
        help="What time_s is: estimate, or bound.  [default: the estimate where there is one]",
    ),
]
Reserve = Annotated[
    str, typer.Option(metavar="SIZE", help="Memory kept free for what is not modelled: 2GiB.")
]
Capacity = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory in place of the device's own: 128GiB.")
]
GpuShare = Annotated[
    str | None,
    typer.Option(
        "--gpu-share", metavar="SHARE", help="Share of the memory that a GPU may use: 75%."
    ),
]
HardwareScale = Annotated[
    str | None,
    typer.Option(
        "--hardware-scale",
        metavar="FACTORS",
        help="Figures of the machine times a factor: bandwidth=1.1,compute=1.1,capacity=2,link=2.",
    ),
]
ModelsFile = Annotated[
    str | None, typer.Option("--models", metavar="FILE", help="A YAML file of further models.")
]
HardwareFile = Annotated[
    str | None, typer.Option("--hardware", metavar="FILE", help="A YAML file of further hardware.")
]
Check = Annotated[
    bool, typer.Option("--check", help="Check every entry of the files; exit 1 on a mistake.")
]
Format = Annotated[
    str | None, typer.Option("--format", metavar="FORMAT", help="table (default), json, csv or md.")
]
Output = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write there; its suffix sets the format."),
]
PLOTTED: dict[str, Any] = {
    "plot": Annotated[
        str | None,
        typer.Option(metavar="FILE", help="Draw a figure too: PNG, SVG, PDF; or its data as JSON."),
    ],
    "draw": Annotated[
        str | None,
        typer.Option(
            metavar="KIND",
            help="Another kind of figure, as of `rooflm plot`: heatmap:x=batch,z=regime.",
        ),
    ],
    "chart": (
        Annotated[bool, typer.Option("--chart", help="Draw it in the terminal too.")], False
    ),
}  # fmt: skip
"""Options of a figure of the answer."""
Provenance = Annotated[
    bool, typer.Option("--provenance", help="Tell where each field of the model came from.")
]
Sensitivity = Annotated[
    bool, typer.Option("--sensitivity", help="Elasticities of time and throughput as well.")
]
NumbersFile = Annotated[
    str | None,
    typer.Argument(metavar="[FILE]", help="A text of numbers, a row a line, or a .safetensors."),
]
Values = Annotated[
    str | None, typer.Option(metavar="NUMBERS", help="Numbers in place of a file: 5.2342,1.5.")
]
TensorName = Annotated[
    str | None, typer.Option("--tensor", metavar="NAME", help="A tensor of a .safetensors file.")
]
Bits = Annotated[str, typer.Option(metavar="COUNT", help="Bits of a code, 2 to 16.")]
Unsigned = Annotated[bool, typer.Option("--unsigned", help="Codes from 0 to 2^b - 1, not about 0.")]
Symmetric = Annotated[bool, typer.Option("--symmetric", help="No zero point: 0 is code 0.")]
Scale = Annotated[
    str | None, typer.Option(metavar="NUMBER", help="Step between codes; from the range if absent.")
]
ZeroPoint = Annotated[
    str | None, typer.Option("--zero-point", metavar="CODE", help="Code of 0, with --scale.")
]
Per = Annotated[
    str, typer.Option("--per", metavar="WHAT", help="A scale per tensor, channel (row) or group.")
]
GroupSize = Annotated[
    str | None,
    typer.Option("--group", metavar="COUNT", help="Numbers of a row in a group.  [default: 128]"),
]
First = Annotated[str, typer.Option("--first", metavar="COUNT", help="Numbers that are shown.")]
Measured = Annotated[
    list[str],
    typer.Option(
        "--measured",
        metavar="POINT",
        help='A measured step: "batch=1 context=512 latency=10.6ms"; repeat the option.',
    ),
]
ConstantNames = Annotated[
    str | None,
    typer.Option(
        "--constants",
        metavar="NAMES",
        help="What to fit: memory, layer, sequence.  [default: as many as the points carry]",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No notes below the tables.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the traceback of a defect.")]
DRAFTED: dict[str, Any] = {
    "draft": Annotated[
        str | None,
        typer.Option(
            "--draft",
            metavar="DRAFT",
            help="A model, or a head on the target: eagle, eagle3, medusa:5, mtp; or ngram.",
        ),
    ],
    "acceptance": Annotated[
        str | None,
        typer.Option(
            metavar="CHANCES",
            help="Chance that a drafted token is accepted once those before it were: 0.8, or one "
            "for each position: 0.8,0.7,0.6.",
        ),
    ],
    "draft_tokens": Annotated[
        str | None,
        typer.Option(metavar="COUNTS", help="Tokens to draft.  [default: the best of each row]"),
    ],
    "draft_tp": Annotated[
        str | None,
        typer.Option(
            "--draft-tp", metavar="COUNT", help="Devices that split the draft.  [default: as --tp]"
        ),
    ],
    "draft_weights": Annotated[
        str | None,
        typer.Option(metavar="FORMAT", help="Number format of the draft's weights."),
    ],
    "chains": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Independent drafts that are verified together."),
    ],
    "tree": Annotated[
        str | None,
        typer.Option(
            metavar="PATHS", help="A tree in place of a chain, by ranks: 0;1;0,0;0,1;1,0."
        ),
    ],
    "accuracies": Annotated[
        str | None,
        typer.Option(
            metavar="CHANCES",
            help="Of each depth of a tree, the chance that each rank is right: 0.6,0.15;0.5,0.1.",
        ),
    ],
}
"""Options of speculation."""
Draws = Annotated[
    str | None,
    typer.Option("--p", metavar="CHANCES", help="Law of a draft over a few tokens: 0.8,0.2."),
]
Wants = Annotated[
    str | None, typer.Option("--q", metavar="CHANCES", help="Law of the target over the same.")
]
DraftCost = Annotated[
    str | None,
    typer.Option(
        metavar="RATIOS", help="Without models: time of a draft step over that of the target."
    ),
]
OptionalModel = Annotated[
    str | None,
    typer.Argument(
        metavar="[TARGET]", help="The model that decides.", autocompletion=_complete_models
    ),
]
OptionalOn = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="HARDWARE",
        help="A preset or a YAML file.",
        autocompletion=_complete_hardware,
    ),
]
PRINTED: dict[str, Any] = {
    "format": Format, "output": Output, "quiet": (Quiet, False), "debug": (Debug, False),
}  # fmt: skip
"""Options that say where and how an answer goes."""
FILES: dict[str, Any] = {"models": ModelsFile, "hardware": HardwareFile}
COUNTED: dict[str, Any] = {
    "weights": Weights,
    "kv": Cache,
    "routing": RoutingName,
    "state": State,
    "time_model": TimeModelName,
    "reserve": (Reserve, "0"),
    "capacity": Capacity,
    "gpu_share": GpuShare,
    "hardware_scale": HardwareScale,
}
"""Options that say how to count."""
ESTIMATED: dict[str, Any] = {
    "engine": EngineName, "calibration": CalibrationFile, "basis": BasisName,
}  # fmt: skip
"""Options of an estimate."""
BOUNDED: dict[str, Any] = {
    **ESTIMATED,
    "basis": Annotated[
        str | None,
        typer.Option(
            "--basis", metavar="NAME", help="bound (default), or estimate, also with --engine."
        ),
    ],
}
"""The same where bounds are usual."""
Grouped: TypeAlias = Mapping[str, Any]
"""What was typed of a group of options."""
PLANNED: dict[str, Any] = {
    name: said for name, said in LAYOUT.items() if name not in ("gpu_layers", "host_link")
}
"""Options of a layout that is looked for: degrees that are given, and links."""
Latency = Annotated[
    str | None,
    typer.Option("--latency", metavar="TIME", help="A step takes at most this: 20ms."),
]
Throughput = Annotated[
    str | None,
    typer.Option("--throughput", metavar="RATE", help="Tokens a second to reach: 2500."),
]
Devices = Annotated[
    str | None,
    typer.Option(
        "--devices", metavar="COUNTS", help="Numbers of devices to try: 1:16 or 4,8.  [default: "
        "1:8, or as many as --on names]",
    ),
]  # fmt: skip
PlannedBatch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="COUNT",
        help="Sequences of the whole deployment.  [default: what suits each layout]",
    ),
]
SolvedBatch = Annotated[
    str | None,
    typer.Option(
        "--batch",
        metavar="COUNT",
        help="Sequences.  [default: 1; for devices what suits each layout]",
    ),
]
Aim = Annotated[
    str | None,
    typer.Option(
        "--by",
        metavar="WHAT",
        help="What is best: cost (of a token), latency, throughput or devices.  [default: cost, "
        "or devices with --throughput]",
    ),
]
Top = Annotated[str, typer.Option("--top", metavar="COUNT", help="Layouts that are shown.")]
COSTED: dict[str, Any] = {
    "cost": (Annotated[bool, typer.Option("--cost", help="Cost and energy of tokens too.")], False),
    "price": Annotated[
        str | None,
        typer.Option(metavar="USD", help="Rent of a device an hour.  [default: its dated price]"),
    ],
    "power": Annotated[
        str | None,
        typer.Option(metavar="WATTS", help="Power of a device.  [default: the cap of its board]"),
    ],
    "pue": Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Site power a watt of a device.  [default: 1]"),
    ],
    "utilization": Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Share of the paid time that is busy.  [default: 100%]"),
    ],
    "tariff": Annotated[
        str | None,
        typer.Option(
            metavar="PRICES",
            help="What is charged for a million tokens of CACHED,INPUT,OUTPUT: adds the margin.",
        ),
    ],
}
"""Options of cost and energy; any of them asks for both."""
RankedBy = Annotated[
    str, typer.Option("--by", metavar="WHAT", help="Rank by time, throughput, memory or cost.")
]
LeverDraft = Annotated[
    str | None,
    typer.Option(
        "--draft", metavar="DRAFT", help="What drafts for speculation.  [default: a head]"
    ),
]
LeverAcceptance = Annotated[
    str | None,
    typer.Option(
        "--acceptance", metavar="CHANCE", help="Acceptance of its tokens.  [default: 0.8, assumed]"
    ),
]
UNCHARGED = {name: said for name, said in COSTED.items() if name not in ("cost", "tariff")}
"""The same where cost and energy are told anyway, and not what is charged."""
OnlySource = Annotated[
    str | None,
    typer.Option("--source", metavar="WORD", help="Only rows of sources whose key holds it."),
]
OnlyModel = Annotated[
    str | None, typer.Option("--model", metavar="WORD", help="Only models whose name holds it.")
]
OnlyHardware = Annotated[
    str | None, typer.Option("--hardware", metavar="WORD", help="Only chips whose name holds it.")
]
OnlyEngine = Annotated[
    str | None, typer.Option("--engine", metavar="WORD", help="Only engines whose name holds it.")
]
OnlyKind = Annotated[
    str | None,
    typer.Option("--kind", metavar="WORD", help="Only decode, request, prefill, served or op."),
]
OnlyWeights = Annotated[
    str | None, typer.Option("--weights", metavar="WORD", help="Only formats whose name holds it.")
]
OnlyBatch = Annotated[str | None, typer.Option("--batch", metavar="WORD", help="Only this batch.")]
GroupBy = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="WHAT",
        help="Group by set (of constants), source, hardware, engine, kind, weights, model, batch.",
    ),
]
EachRow = Annotated[bool, typer.Option("--rows", help="Show each row, not the groups.")]
