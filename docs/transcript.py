"""Runs commands for the documents, so that what they print is what the program prints."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import json
import os
import shlex
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rooflm.calc.__main__ as entry
from rooflm.calc.yamlfile import load


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
    from rooflm.calc.cli_help import PURPOSES

    commands = ("", *(name for names in PURPOSES.values() for name in names))
    typed = [f"rooflm {name}".rstrip() for name in commands]
    parts = [f"## {words}\n\n```\n{output(f'{words} --help')}\n```" for words in typed]
    return "\n\n".join(parts)


def left_out() -> str:
    """List the errors of rows whose whole source was left out."""
    import yaml

    from rooflm.validate.accuracy import UNSEEN_FILE

    found = yaml.safe_load(UNSEEN_FILE.read_text("utf-8"))["left_out"]
    lines = ["| set | rows | median | nine of ten within |", "| :-- | --: | --: | --: |"]
    lines += [
        f"| {name} | {v['rows']} | {100 * v['median']:.1f} % | {100 * v['p90']:.0f} % |"
        for name, v in found.items()
    ]
    return "\n".join(lines)


def engine_logs(number: int) -> str:
    """Count figures of start-up logs, and list those that are off.

    number: 0 for those whose threads can be opened, 1 for the others.
    """
    from rooflm.tests.engine_logs import counted, table_of_those_off

    near, every = counted(number)
    return f"{near} of {every} are. The others, and why:\n\n{table_of_those_off(number)}"


def kernels() -> str:
    """List what kernels reach on the chips with timings, and how far off that is."""
    from rooflm.calc.presets import HARDWARE_FILE, find_machine, preset_names

    names = ("matmul", "matmul_fp8", "matmul_fp4", "decode", "prefill")
    lines = [
        "| chip | kernels | start [us] | of bandwidth | of peak | timings | error |",
        "| :-- | :-- | --: | --: | --: | --: | --: |",
    ]
    for chip in preset_names(HARDWARE_FILE):
        timed = find_machine(chip).kernels
        for name in names:
            kernel = timed.get(name, {})
            if "error" in kernel:
                cells = [
                    f"{kernel[key]:.3g}" if key in kernel else "-"
                    for key in ("start_us", "memory", "compute", "rows")
                ]
                error = f"{100 * kernel['error']:.1f} %"
                what = name.replace("_", " ")
                lines.append(f"| {chip} | {what} | {' | '.join(cells)} | {error} |")
    return "\n".join(lines)


def served_goals() -> str:
    """List what the simulation of traffic was to reach on published rows, and what it does."""
    from rooflm.validate.served import goals, replays

    lines = ["| of all published rows | at most | reached | |", "| :-- | --: | --: | :-- |"]
    for what, most, reached in goals(replays()):
        met = "" if reached <= most else "missed"
        lines.append(f"| {what} | {100 * most:.0f} % | {100 * reached:.2f} % | {met} |")
    return "\n".join(lines)


SERVED_HEADS = (
    "rows | per token: mean error | median | formula | formula, same cache | "
    "first token: median error | within a factor of two |"
)


def _served_cells(told: dict[str, Any]) -> str:
    shares = ("tpot", "tpot_median", "closed", "same_cache", "ttft_median")
    cells = [f"{100 * told[key]:.1f} %" for key in shares]
    return f"{told['rows']} | {' | '.join(cells)} | {100 * told['ttft_within_two']:.0f} % |"


def served_scopes() -> str:
    """Sum up the simulation of traffic on published rows."""
    from rooflm.validate.served import replays, scopes, totals

    lines = [f"| which | {SERVED_HEADS}", "| :-- " + "| --: " * 7 + "|"]
    for name, some in scopes(replays()).items():
        lines.append(f"| {name} | {_served_cells(totals(some))}")
    return "\n".join(lines)


def served_groups() -> str:
    """Sum it up by model, GPU and engine."""
    from rooflm.validate.served import groups, replays, totals

    lines = [f"| model | GPU | engine | {SERVED_HEADS}", "| :-- | :-- | :-- " + "| --: " * 7 + "|"]
    for names, some in groups(replays()).items():
        lines.append(f"| {' | '.join(names)} | {_served_cells(totals(some))}")
    return "\n".join(lines)


def served_doubts() -> str:
    """List the rows that are not held to it, and why."""
    from rooflm.validate.served import replays

    lines = ["| row | model | prompt, output, clients | why |", "| :-- | :-- | :-- | :-- |"]
    for one in replays():
        if one.doubt:
            row = one.row
            load = f"{row.prompt}, {row.generated}, {row.concurrency}"
            lines.append(f"| {row.id} | {row.model} | {load} | {one.doubt} |")
    return "\n".join(lines)


def served_protocols() -> str:
    """Compare what benchmarks may have sent."""
    from rooflm.validate.served import EVERY, PROTOCOLS, replays, scopes, totals

    lines = [
        "| requests | per token: mean error | first token: median error | within a factor of two |",
        "| :-- | --: | --: | --: |",
    ]
    for protocol in PROTOCOLS:
        told = totals(scopes(replays(protocol))[EVERY])
        cells = [f"{100 * told[key]:.1f} %" for key in ("tpot", "ttft_median")]
        within = f"{100 * told['ttft_within_two']:.0f} %"
        lines.append(f"| {protocol.name} | {' | '.join(cells)} | {within} |")
    return "\n".join(lines)


KEPT = "validate/results/epyc-2-cores.json"
"""The run that docs/validation.md quotes."""


def kept() -> dict[str, Any]:
    """Read the run that is kept."""
    from pathlib import Path

    from rooflm.validate.tables import read_answer

    return read_answer(str(Path(__file__).parents[1] / KEPT))


def kept_run() -> str:
    """Sum up the run that is kept, and list its steps."""
    from rooflm.calc.output import to_markdown
    from rooflm.validate import judge, tables

    answer = kept()
    lines = [
        "| weights | points | not below the bound | of the read rate, at most | "
        "bound at ceilings | calibrated on the other half |",
        "| :-- | --: | --: | --: | --: | --: |",
    ]
    for weights in dict.fromkeys(r["weights"] for r in answer["rows"]):
        s = judge.summary([r for r in answer["rows"] if r["weights"] == weights])
        cells = [
            f"{s['measured']}",
            *(
                f"{100 * s[key]:.0f} %"
                for key in ("not_below_bound", "largest_read_share", "median_ceiling_error")
            ),
            f"{100 * s['median_calibrated_error']:.1f} %, at most "
            f"{100 * s['largest_calibrated_error']:.0f} %",
        ]
        lines.append(f"| {weights} | {' | '.join(cells)} |")
    rows = [r for r in answer["rows"] if r["batch"] in (1, 4, 8)]
    table = to_markdown(tables.steps_table(rows))
    told = "Errors are medians. Of the steps, those of 1, 4 and 8 sequences:"
    return "\n".join([*lines, "", told,
                      "", table])  # fmt: skip


def kept_sentence() -> str:
    """Say in a sentence what the kept run found."""
    answer = kept()
    s, rows = answer["summary"], answer["rows"]
    formats = " and ".join(dict.fromkeys(r["weights"] for r in rows))
    return (
        f"On {answer['device']['name']}, {answer['date']}: {s['measured']} steps of "
        f"{rows[0]['model']} in {formats}. {100 * s['not_below_bound']:.0f} % are not below the "
        "bound at measured ceilings;\nestimates, calibrated on half of the steps, are off by "
        f"{100 * s['median_calibrated_error']:.1f} % on the other half (median)."
    )


@functools.cache
def _answer(command: str) -> dict[str, Any]:
    """Run a command that prints JSON."""
    return json.loads(output(command))


@functools.cache
def _estimates() -> dict[str, float]:
    """Estimate every published row with constants that had not seen it [s]."""
    rows = _answer("rooflm accuracy --rows --format json")["rows"]
    return {row["id"]: row["estimate_s"] for row in rows}


def _ours(asked: dict[str, Any]) -> float:
    """Compute rooflm's figure in one column of the comparison."""
    if "row" in asked:
        return _estimates()[asked["row"]]
    found: Any = _answer(asked["command"])
    for key in asked["key"].split("."):
        found = found[key]
    return found // 1 if asked.get("whole") else found


def comparison(name: str) -> str:
    """Write one question of `comparison.yaml` as a table, and the commands below it."""
    question = load((Path(__file__).parent / "comparison.yaml").read_text("utf-8"), "").value[name]
    columns, unit = question["columns"], question["unit"]

    def cell(figure: float | None, truth: float | None = None) -> str:
        if figure is None:
            return "-"
        shown = figure / float(unit["of"])
        digits = unit["digits"]
        text = f"{shown:,.{digits}f}" if digits < 4 else f"{shown:.{digits}g}"
        if truth is None:
            return text
        times = figure / truth
        if abs(times - 1) < 5e-4:
            return f"{text} (same)"
        return f"{text} ({f'x {times:.1f}' if times > 2 else f'{100 * (times - 1):+.1f} %'})"

    def line(tool: str, figures: Sequence[float | None], why: str) -> str:
        told = [cell(f, c["truth"]) for f, c in zip(figures, columns, strict=True)]
        return f"| {tool} | {' | '.join(told)} | {why} |"

    heads = [f"{c['name']} [{unit['name']}]" for c in columns]
    ours = [_ours(asked) for asked in question["rooflm"]]
    lines = [f"| | {' | '.join(heads)} | why |", "| :-- " + "| --: " * len(columns) + "| :-- |"]
    lines.append(f"| truth | {' | '.join(cell(c['truth']) for c in columns)} | |")
    lines.append(line("**rooflm**", ours, question["ours"]))
    lines += [line(t["tool"], t["figures"], t["why"]) for t in question["tools"]]
    lines += ["", f"Truth: {'; '.join(c['source'] for c in columns)}.", ""]
    asked = dict.fromkeys(
        f"`{a['command']}`" if "command" in a else f"`rooflm accuracy --rows`, {a['row']}"
        for a in question["rooflm"]
    )
    lines.append(f"- rooflm: {'; '.join(asked)}")
    for tool in question["tools"]:
        how = tool.get("ran") or f"its formula evaluated by hand: {tool['formula']}"
        lines.append(f"- {tool['tool']}: {how}")
    return "\n".join(lines)


SPECULATION = (
    "rooflm speculate llama-3-70b --draft llama-3-8b --acceptance 0.8 --draft-tokens 4 "
    "--on 8xh100-sxm --context 2048 --batch 1:512:x2 --basis bound"
)
"""The example of docs/speculation.md, which `studies/speculation.yaml` draws."""


def write_figures() -> None:
    """Draw the run that is kept."""
    from pathlib import Path

    from rooflm.plots.style import save
    from rooflm.plots.validation import draw

    folder = Path(__file__).parent
    save(draw(kept()), str(folder / "validation.svg"))


def study_keys() -> str:
    """List what a study file may say."""
    from rooflm.calc.study_file import FACT, FIGURE, TOP

    lines = ["| key | what it says |", "| :-- | :-- |"]
    lines += [f"| `{key}` | {says} |" for key, says in TOP.items()]
    for name, keys in (("facts", FACT), ("figures", FIGURE)):
        lines += [f"| `{name}`: `{key}` | {says} |" for key, says in keys.items()]
    return "\n".join(lines)


def cells(path: str) -> str:
    """Run a script and write each of its cells with what it prints as Markdown.

    A cell begins with `# %% TITLE`, and the comments below are its words.
    """
    from pathlib import Path

    text = (Path(__file__).parents[1] / path).read_text("utf-8")
    known: dict[str, Any] = {"__name__": "__main__"}
    parts: list[str] = []
    for cell in text.split("\n# %% ")[1:]:
        title, _, body = cell.partition("\n")
        lines = body.splitlines()
        words = list(itertools.takewhile(lambda line: line.startswith("# "), lines))
        code = "\n".join(lines[len(words) :]).strip()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, path, "exec"), known)
        told = " ".join(line.removeprefix("# ") for line in words)
        prose = "\n".join(textwrap.wrap(told, 100))
        block = f"```python\n{code}\n```\n\n```\n{printed.getvalue().rstrip()}\n```"
        parts.append(f"## {title}\n\n{prose}\n\n{block}")
    return "\n\n".join(parts)


def exported() -> str:
    """List the public names of the package, each with its first sentence."""
    import inspect

    from rooflm import calc

    lines = ["| name | what it is for |", "| :-- | :-- |"]
    for name in calc.__all__:
        first = (inspect.getdoc(getattr(calc, name)) or "").partition("\n\n")[0]
        lines.append(f"| `{name}` | {' '.join(first.split())} |")
    return "\n".join(lines)


def write_schemas() -> None:
    """Write the JSON Schemas that editors use for preset files and studies."""
    import json
    from pathlib import Path

    from rooflm.calc.schema import HARDWARE, MODEL, json_schema
    from rooflm.calc.study_schema import study_schema

    folder = Path(__file__).parent / "schema"
    folder.mkdir(exist_ok=True)
    schemas = {
        "models": json_schema(MODEL, "rooflm models"),
        "hardware": json_schema(HARDWARE, "rooflm hardware"),
        "study": study_schema(),
    }
    for name, schema in schemas.items():
        (folder / f"{name}.json").write_text(json.dumps(schema, indent=2) + "\n", "utf-8")


def formulas() -> str:
    """List every formula with its first sentence."""
    import importlib
    import inspect

    from rooflm.calc.readings import FORMULAS

    rows = ["| formula | what it computes | module |", "| :-- | :-- | :-- |"]
    modules = (
        "matmul", "attention", "mla", "sparse", "compressed", "state", "ssm", "linear_attention",
        "rwkv", "mlp", "experts", "adapters", "residual", "model", "timing", "estimate", "memory",
        "engine_memory", "paging", "sharing", "requests", "queueing", "handoff", "diffusion",
        "collectives", "speculation", "cost",
    )  # fmt: skip
    for module in modules:
        importlib.import_module(f"rooflm.calc.{module}")
        for name, formula in FORMULAS.items():
            if formula.__module__ == f"rooflm.calc.{module}":
                first = (inspect.getdoc(formula) or "").partition("\n")[0]
                rows.append(f"| `{name}` | {first} | `calc/{module}.py` |")
    return "\n".join(rows)


if __name__ == "__main__":
    write_schemas()
    write_figures()
