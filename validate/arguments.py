"""What is typed after `rooflm validate`: one parser, with or without typer."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ..calc.changes import parse_changes
from ..calc.errors import RooflmError, check_choice, nearest
from ..calc.units import parse_count, parse_counts, parse_time

DEFAULTS = {"cpu": ("tinyllama-1.1b",), "cuda": ("llama-2-13b", "llama-3-8b")}
QUICK = {"cpu": ("smollm2-360m",), "cuda": ("llama-3-8b",)}
"""Models that are run where none is named."""
GPU_BATCHES, GPU_CONTEXTS = (1, 4, 16, 64), (512, 1024, 4096, 16384)
PHASES = ("decode", "prefill")
FORMATS = ("table", "json", "csv", "md")

EPILOG = """examples:
  rooflm validate --quick
  rooflm validate tinyllama-1.1b --weights bf16 --weights fp32 --output run.json
  rooflm validate --from run.json --report run.md --plot run.svg
  torchrun --nproc-per-node 2 -m rooflm.validate llama-3-8b --device cuda --tp 2"""


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes read as all others do."""

    def error(self, message: str) -> NoReturn:
        """Raise what `main` prints."""
        known = [option for action in self._actions for option in action.option_strings]
        word = next((w for w in message.split() if w.startswith("-")), "")
        fix = nearest(word.partition("=")[0], known) if "unrecognized" in message else ""
        raise RooflmError(message, "", fix or f"`{self.prog} --help` lists the options.")


def parser(program: str) -> Parser:
    """Make the parser of a program's arguments."""
    made = Parser(
        prog=program,
        description="Run real decode and prefill steps on the device at hand, and print how far\n"
        "off the predictions of the same steps were.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = made.add_argument
    add("models", nargs="*", metavar="MODEL", help="presets or files, as elsewhere  [default: "
        "tinyllama-1.1b on a CPU, llama-2-13b and llama-3-8b on CUDA]")  # fmt: skip
    add("--device", choices=("cpu", "cuda"), help="[default: cuda where torch sees one, else cpu]")
    add("--on", metavar="HARDWARE", help="preset of the device  [default: that of its name]")
    add("--batch", metavar="COUNTS", help="sequences  [default: 1,2,4,8; 1,4,16,64 on CUDA]")
    add("--context", metavar="COUNTS", help="tokens of each sequence, or of a prompt  [default: "
        "512,1024,2048; 512,1024,4096,16384 on CUDA]")  # fmt: skip
    add(
        "--weights",
        metavar="FORMAT",
        action="append",
        default=[],
        help="bf16, fp16, fp32, "
        "int8-weights, int4-g32 or fp8, or PART=FORMAT,...; repeat it for several  [default: bf16]",
    )
    add(
        "--kv",
        metavar="FORMAT",
        action="append",
        default=[],
        help="format of the cache: bf16, "
        "fp16, fp32 or fp8; repeat it for several  [default: that of the activations]",
    )
    add("--phase", metavar="NAMES", help="decode, prefill, or both with a comma  [default: decode]")
    add("--set", metavar="KEY=VALUE", action="append", default=[], help="change a dimension")
    add("--layers", metavar="COUNT", help="run so many layers, and predict as many  [default: all "
        "that fit in memory and time]")  # fmt: skip
    add("--tp", metavar="COUNT", default="1", help="ranks, started by torchrun  [default: 1]")
    add("--budget", metavar="TIME", help="time for everything  [default: 10min; 1min if --quick]")
    add("--runs", metavar="COUNT", default=None, help="timed runs of a point  [default: 9]")
    add("--compile", action="store_true", help="compile what runs between the matrices")
    add("--quick", action="store_true", help="a run of a minute: few points, fewer runs")
    add("--seed", metavar="COUNT", default="0", help="of the random weights  [default: 0]")
    add("--dry-run", action="store_true", help="print what would run, and its memory and time")
    add("--from", dest="source", metavar="FILE", help="report a run that was kept as JSON")
    add("--save-calibration", metavar="FILE", help="constants fitted to the run, for --calibration")
    add("--save-hardware", metavar="FILE", help="the measured device as an entry, for --on FILE")
    add("--report", metavar="FILE", help="a Markdown report of the run")
    add("--plot", metavar="FILE", help="a figure: .png, .svg or .pdf")
    add("--format", metavar="NAME", help="table (default), json, csv or md")
    add("-o", "--output", metavar="FILE", help="write to it; .json, .csv and .md say the format")
    add("--quiet", action="store_true", help="no progress and no notes")
    add("--debug", action="store_true", help="show the traceback of a defect")
    return made


def parse(words: Sequence[str], program: str) -> argparse.Namespace:
    """Read what was typed; raises `RooflmError` for a mistake, before torch is imported."""
    typed = parser(program).parse_args(list(words))
    typed.phases = _words(typed.phase or "decode", PHASES, "--phase")
    if typed.format is not None:
        check_choice(typed.format, FORMATS, "--format")
    for name in ("batch", "context"):
        text = getattr(typed, name)
        setattr(typed, name, None if text is None else parse_counts(text, f"--{name}"))
    for name in ("layers", "runs"):
        text = getattr(typed, name)
        setattr(typed, name, None if text is None else parse_count(text, f"--{name}"))
    _check_together(typed)
    typed.tp, typed.seed = parse_count(typed.tp, "--tp"), _seed(typed.seed)
    usual = "1min" if typed.quick else "10min"
    typed.budget = parse_time(typed.budget or usual, "--budget")
    typed.changes = tuple(parse_changes(typed.set).items())
    return typed


def _check_together(typed: argparse.Namespace) -> None:
    """Refuse options that would have no effect, and a figure of no known kind."""
    from ..plots.style import FILE_TYPES

    if typed.plot is not None and not typed.plot.lower().endswith(FILE_TYPES):
        raise RooflmError(f"a figure is {', '.join(FILE_TYPES)}", f"--plot {typed.plot}")
    run = ("models", "batch", "context", "weights", "kv", "phase", "layers", "set", "device", "on",
           "budget", "runs", "quick", "compile", "dry_run")  # fmt: skip
    if typed.source is not None:
        for name in run:
            if getattr(typed, name):
                option = "MODEL" if name == "models" else f"--{name.replace('_', '-')}"
                raise RooflmError("a run that was kept is not run again", option, "Leave it out.")
    if typed.dry_run:
        for name in ("save_calibration", "save_hardware", "report", "plot"):
            if getattr(typed, name) is not None:
                option = f"--{name.replace('_', '-')}"
                raise RooflmError("a dry run measures nothing to write", option, "Leave it out.")


def plan_of(typed: argparse.Namespace, device: str, ranks: Any, date: str) -> Any:
    """Make the plan of a run; what was not typed depends on the device."""
    from .plan import Plan

    gpu, quick = device == "cuda", typed.quick
    batches = (1, 4) if quick else GPU_BATCHES if gpu else (1, 2, 4, 8)
    contexts = (512,) if quick else GPU_CONTEXTS if gpu else (512, 1024, 2048)
    return Plan(
        models=typed.models or (QUICK if quick else DEFAULTS)[device],
        device=device,
        on=typed.on,
        batches=typed.batch or batches,
        contexts=typed.context or contexts,
        weights=typed.weights or ("bf16",),
        caches=typed.kv or ("",),
        phases=typed.phases,
        changes=typed.changes,
        layers=typed.layers,
        budget_s=typed.budget,
        runs=typed.runs or (3 if quick else 9),
        compile=typed.compile or gpu,
        quick=quick,
        seed=typed.seed,
        ranks=ranks,
        date=date,
        quiet=typed.quiet,
        debug=typed.debug,
    )


def _words(text: str, known: Sequence[str], option: str) -> tuple[str, ...]:
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",")))
    for word in words:
        check_choice(word, known, option)
    return words


def _seed(text: str) -> int:
    return 0 if text == "0" else parse_count(text, "--seed")
