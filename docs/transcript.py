"""Runs commands for the documents, so that what they print is what the program prints."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import sys

import rooflm.calc.__main__ as entry

COMMANDS = (
    "models", "hardware", "show", "fit", "sweep", "compare", "roofline", "explain", "solve",
    "quantize", "accuracy", "calibrate",
)  # fmt: skip


def output(command: str) -> str:
    """Run a `rooflm` command in this process and return what it prints, as into a pipe."""
    os.environ["COLUMNS"] = "100"
    printed = io.StringIO()
    before = sys.argv
    sys.argv = shlex.split(command)
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            entry.main()
    except SystemExit:
        pass
    finally:
        sys.argv = before
    return "\n".join(line.rstrip() for line in printed.getvalue().splitlines())


def show(command: str) -> str:
    """Write a command and its output as a Markdown block."""
    return f"```\n$ {command}\n{output(command)}\n```"


def reference() -> str:
    """Write the help of every command."""
    parts = [f"## rooflm\n\n```\n{output('rooflm --help')}\n```"]
    parts += [f"## rooflm {c}\n\n```\n{output(f'rooflm {c} --help')}\n```" for c in COMMANDS]
    return "\n\n".join(parts)


def write_schemas() -> None:
    """Write the JSON Schemas that editors use for both preset files."""
    import json
    from pathlib import Path

    from rooflm.calc.schema import HARDWARE, MODEL, json_schema

    folder = Path(__file__).parent / "schema"
    folder.mkdir(exist_ok=True)
    for name, fields in (("models", MODEL), ("hardware", HARDWARE)):
        text = json.dumps(json_schema(fields, f"rooflm {name}"), indent=2) + "\n"
        (folder / f"{name}.json").write_text(text, "utf-8")


def formulas() -> str:
    """List every formula with its first sentence."""
    import inspect

    from rooflm.calc import (
        attention,
        collectives,
        compressed,
        diffusion,
        estimate,
        experts,
        linear_attention,
        matmul,
        memory,
        mla,
        mlp,
        model,
        requests,
        residual,
        rwkv,
        sparse,
        ssm,
        state,
        timing,
    )
    from rooflm.calc.readings import FORMULAS

    rows = ["| formula | what it computes | module |", "| :-- | :-- | :-- |"]
    modules = (
        matmul, attention, mla, sparse, compressed, state, ssm, linear_attention, rwkv, mlp,
        experts, residual, model, timing, estimate, memory, requests, diffusion, collectives,
    )  # fmt: skip
    for module in modules:
        for name, formula in FORMULAS.items():
            if formula.__module__ == module.__name__:
                first = (inspect.getdoc(formula) or "").partition("\n")[0]
                where = module.__name__.rpartition(".")[2]
                rows.append(f"| `{name}` | {first} | `calc/{where}.py` |")
    return "\n".join(rows)


if __name__ == "__main__":
    write_schemas()
