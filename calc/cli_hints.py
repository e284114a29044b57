"""The way out of a command line that could not be parsed: what other programs call our options."""

from __future__ import annotations

import re
from typing import Any

from .errors import RooflmError, either, printable

OTHERS = {
    "gpus num-gpus n-gpus num-devices n-devices ngpus": ("--tp 2", "--on 2xh100-sxm"),
    "gpu device chip accelerator machine gpu-type": ("--on h100-sxm",),
    "tensor-parallel-size tensor-parallel tp-size t": ("--tp",),
    "pipeline-parallel-size pp-size": ("--pp",),
    "data-parallel-size dp-size": ("--dp",),
    "expert-parallel-size ep-size enable-expert-parallel": ("--ep",),
    "quant quantization dtype precision wtype load-in-4bit load-in-8bit": ("--weights",),
    "kv-cache-dtype kv-dtype cache-type-k cache-type-v kv-quant": ("--kv",),
    "max-model-len max-seq-len max-seqlen": ("--max-len", "--context"),
    "ctx ctx-size n-ctx num-ctx seq-len seqlen seq-length context-length context-len c": (
        "--context", "--prompt",
    ),
    "input-len prompt-len isl input-tokens": ("--prompt",),
    "output-len osl max-tokens": ("--output-tokens",),
    "bs batch-size concurrency users b": ("--batch", "--clients"),
    "gpu-memory-utilization mem-fraction-static gpu-mem": ("--utilization", "--gpu-share"),
    "max-num-seqs max-running-requests max-batch-size": ("--max-sequences", "--batch"),
    "max-num-batched-tokens chunked-prefill-size": ("--max-batched-tokens",),
    "n-gpu-layers ngl num-gpu-layers n": ("--gpu-layers",),
    "cpu-moe n-cpu-moe override-tensor cpu-offload-gb": (
        "not modelled for experts or parts of layers; --gpu-layers keeps whole layers there",
    ),
    "num-speculative-tokens num-draft-tokens": ("--draft-tokens",),
    "speculative-model model-draft draft-model": ("--draft",),
    "accept": ("--acceptance",),
    "enforce-eager": ("--graphs 0GB",),
    "swap-space": ("--swap",),
    "request-rate qps": ("--rate",),
    "backend framework": ("--engine",),
    "json": ("--format json",),
    "csv": ("--format csv",),
    "markdown md": ("--format md",),
    "capacity memory vram": ("--capacity 40GB",),
    "hardware": ("--on h100-sxm",),
    "model": ("MODEL, without a word before it",),
    "ttft": ("--phase prefill", "--ttft"),
    "input": ("--prompt",),
}  # fmt: skip
"""Ours by the words that engines and calculators have for it, the nearest first."""


def way_out(error: Any, words: list[str]) -> str:
    """Mend the message of a parser's error.

    error: of typer, with the context of the command; words: what was typed after `rooflm`.
    """
    message = printable(" ".join(str(error.format_message()).split()))
    name = getattr(error, "option_name", None)
    if name is not None:
        ours = _ours(str(name), _options(error))
        if ours:
            return f"No such option: {printable(str(name), 40)}. Here it is {either(ours)}"
        if elsewhere := _elsewhere(str(name)):
            return f"No such option here: {printable(str(name), 40)}.{elsewhere}"
    elif message.startswith("Got unexpected extra argument") and words[0] in ("models", "hardware"):
        return f'{message} Put words that go together in quotes: "{" ".join(words[1:3])}"'
    elif "'MODEL'" in message and words[:1] == ["solve"] and any(map(_is_model, words[1:2])):
        return f"{message} Say what is solved for first: solve batch {words[1]}"
    elif "'--on'" in message and message.startswith("Missing option"):
        chip = next((word for word in words if _is_machine(word)), "h100-sxm")
        return f"{message} Say --on {chip}; `rooflm hardware` lists them"
    elif message.startswith("Got unexpected extra argument") and "--batch" in _options(error):
        if " x " in " ".join(words):
            return f"{message} Devices are written before the name: --on 4xh100-sxm"
        extra = re.findall(r"[0-9]+[kKMGi]*\b", message)
        return (
            f"{message} Several values are written with commas: 1,{','.join(extra or ['8', '64'])}"
        )
    elif message.startswith("No such command") and words:
        return f"No such command '{printable(words[0], 40)}'. {_command(words, message)}".strip()
    return message


def _command(words: list[str], message: str) -> str:
    """Say which command a first word stands for."""
    if words[0] == "version":
        return "It is rooflm --version."
    if words[0] == "help":
        return f"It is rooflm {' '.join([*words[1:2], '--help'])}."
    if _is_model(words[0]):
        return f"Did you mean `rooflm fit {words[0]} --on h100-sxm`?"
    return message.partition(". ")[2]


def _options(error: Any) -> set[str]:
    """List the options of the command that was typed."""
    context = getattr(error, "ctx", None)
    params: list[Any] = [] if context is None else context.command.params
    return {option for param in params for option in param.opts}


def _ours(name: str, options: set[str]) -> list[str]:
    """List what a command has for an option of another program."""
    word = name.lstrip("-").replace("_", "-").lower()
    asked = next((ours for words, ours in OTHERS.items() if word in words.split()), ())
    if "--price" in options:
        # There the word is for a share of the time that is paid.
        asked = [text for text in asked if text != "--utilization"]
    return [text for text in asked if text.split()[0] in options or not text.startswith("--")]


def _elsewhere(name: str) -> str:
    """Say which other commands have an option; "" where none has."""
    import typer

    from .cli import app

    commands = typer.main.get_group(app).commands.items()
    having = [f"`rooflm {n}`" for n, c in commands if any(name in p.opts for p in c.params)]
    return f" {either(having[:4])} {'has' if len(having) == 1 else 'have'} it." if having else ""


def _is_machine(word: str) -> bool:
    from .presets import find_machine

    try:
        return not word.startswith("-") and bool(find_machine(word))
    except RooflmError:
        return False


def _is_model(word: str) -> bool:
    from .presets import find_model

    try:
        return bool(find_model(word))
    except RooflmError:
        return False
