"""Commands of studies and figures: they parse and print, nothing else."""

# Annotations are evaluated once, where they stand: as text each start would compile 150 of them.

import os
import sys
import textwrap
from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .errors import Exit, RooflmError, check_choice, printable
from .options import PRINTED, Debug, Quiet, with_options
from .output import progress_on, write, write_file
from .printing import Printing, chart_of, emit, tell_on_stderr
from .printing import printing as printing_of

StudyFile = Annotated[str, typer.Argument(metavar="FILE.yaml", help="A study.")]
StudyFiles = Annotated[
    list[str], typer.Argument(metavar="FILE.yaml...", help="Studies; several with --check.")
]
CheckStudy = Annotated[
    bool,
    typer.Option("--check", help="Hold it against what it expects and what was frozen; 1 if not."),
]
Freeze = Annotated[
    bool, typer.Option("--freeze", help="Write its numbers to FILE.frozen.json, for --check.")
]
Junit = Annotated[
    str | None,
    typer.Option("--junit", metavar="FILE", help="Write what --check found as JUnit XML."),
]
Figures = Annotated[
    str | None, typer.Option(metavar="FOLDER", help="Draw its figures into a folder, as SVG.")
]
Resume = Annotated[
    bool, typer.Option("--resume", help="Go on with a CSV file that was interrupted.")
]
ChartToo = Annotated[bool, typer.Option("--chart", help="Draw its figures in the terminal too.")]
StudyOutput = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="Write there; its suffix sets the format: .csv and .parquet are written as they are "
        "made.",
    ),
]
ReportOutput = Annotated[
    str | None,
    typer.Option("--output", "-o", metavar="FILE", help="The page.  [default: FILE.html]"),
]
Kind = Annotated[str, typer.Argument(metavar="KIND", help="What is drawn; listed below.")]
PlotOutput = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE",
        help="PNG, SVG, PDF; or the data as JSON.  [default: KIND.svg]",
    ),
]
X = Annotated[str | None, typer.Option("--x", metavar="KEY", help="Column along the x-axis.")]
Y = Annotated[str | None, typer.Option("--y", metavar="KEY", help="Column along the y-axis.")]
Z = Annotated[
    str | None, typer.Option("--z", metavar="KEY", help="Column of a heat map's colours.")
]
Log = Annotated[str | None, typer.Option("--log", metavar="AXES", help="Logarithmic: x, y or xy.")]
Better = Annotated[
    str | None, typer.Option("--better", metavar="WAYS", help="Better of x and y: low/high.")
]
Slo = Annotated[str | None, typer.Option("--slo", metavar="TIME", help="Latency that is promised.")]
OnlyChart = Annotated[bool, typer.Option("--chart", help="Draw in the terminal, to no file.")]
STUDY_PRINTED = {**PRINTED, "output": StudyOutput}


@with_options(how=STUDY_PRINTED)
def study(
    files: StudyFiles, check: CheckStudy = False, freeze: Freeze = False, junit: Junit = None,
    figures: Figures = None, chart: ChartToo = False, resume: Resume = False,
    how: Mapping[str, Any] = {},
) -> int:  # fmt: skip
    """Run a study: a file of a base, variants, a grid, figures and expectations.

    Example: rooflm study studies/batch_sweep.yaml

    Example: rooflm study studies/batch_sweep.yaml --check --junit study.xml
    """
    from .output import MOST_TABLE_ROWS
    from .study import prepare
    from .study_answer import answer as answer_of
    from .study_answer import expecting_nothing, rows_of, unfinished
    from .study_file import read_study
    from .study_stream import write_csv, write_parquet

    parquet = str(how["output"]).lower().endswith(".parquet")
    _spare(files, how["output"], junit)
    printing = printing_of(how["format"], None if parquet else how["output"], how["quiet"])
    if junit is not None and not check:
        raise RooflmError("nothing is checked", "--junit", "Say --check as well.")
    if check or freeze:
        if resume or figures or chart:
            option = "--resume" if resume else "--figures" if figures else "--chart"
            raise RooflmError("a check only checks", option, "Leave out one of the two options.")
        if parquet or (not check and how["output"]):
            what = "frozen numbers have a file of their own" if freeze else "a check has no rows"
            raise RooflmError(what, "--output", "Leave the option out.")
        return _checked(files, check, freeze, junit, printing)
    if len(files) > 1:
        raise RooflmError("one study at a time is run", "FILE.yaml", "Several go with --check.")
    ready = prepare(read_study(files[0]))
    tell = progress_on(sys.stderr)
    streamed = parquet or printing.format == "csv"
    if parquet and (resume or how["format"] is not None):
        option = "--resume" if resume else "--format"
        raise RooflmError("Parquet is written anew, in its own format", option, "Leave it out.")
    if printing.format in ("table", "md") and ready.points > MOST_TABLE_ROWS:
        what = f"{ready.points:,} rows are more than the {MOST_TABLE_ROWS:,} of a table"
        raise RooflmError(what, "--format", "Take --output rows.csv, or --format json.")
    if streamed and (figures or chart):
        option = "--figures" if figures else "--chart"
        raise RooflmError("figures are drawn of rows that are held", option, "Leave --output out.")
    if parquet:
        rows = write_parquet(ready, how["output"], tell)
    elif streamed:
        rows = write_csv(ready, printing.output, resume, tell)
    else:
        if resume:
            raise RooflmError("only CSV is gone on with", "--resume", "Say --output rows.csv.")
        found, whole = rows_of(ready, tell)
        if not whole and printing.output is not None:
            # A good file is not replaced by half of one.
            raise unfinished(ready, found, "CSV keeps them: --output rows.csv.")
        answer = answer_of(ready, found) if whole else answer_of(expecting_nothing(ready), found)
        paths: list[Any] = []
        if whole and figures is not None:
            # First what may fail: a folder that cannot be made leaves no answer behind.
            from .study_figures import save_figures

            paths = list(save_figures(ready, answer, figures))
        _show(ready, answer, printing, chart and whole)
        if not whole:
            raise unfinished(ready, found, "To keep them in a file: --output rows.csv.")
        if paths:
            tell_on_stderr(f"drawn: {', '.join(map(str, paths))}", printing.quiet)
        return Exit.DONE
    if how["output"]:
        tell_on_stderr(f"{rows:,} rows in {how['output']}", printing.quiet)
    return Exit.DONE


def _spare(files: list[str], *outputs: str | None) -> None:
    """Refuse to write over a study."""
    named = [output for output in outputs if output is not None]
    studies = {_real(file) for file in files} if named else set[str]()
    for output in named:
        if _real(output) in studies:
            raise RooflmError(
                "this is the study itself", f"--output {output}", "Name another file."
            )


def _real(path: str) -> str:
    """Follow the links of a path; in a folder that is gone nothing can be followed."""
    try:
        return os.path.realpath(path)
    except (OSError, ValueError):
        return path


def _show(ready: Any, answer: dict[str, Any], printing: Printing, chart: bool) -> None:
    """Print a study, and its figures in characters."""
    from .pages_study import study_page

    emit(answer, study_page, printing)
    if chart:
        from .study_figures import draw_figures

        if printing.format != "table":
            raise RooflmError("a chart stands below a table", "--chart", "Leave --format out.")
        for figure, drawing in draw_figures(ready, answer):
            write(f"\n{figure.title or figure.name}\n{chart_of(drawing)}", None)


def _checked(
    files: list[str], check: bool, freeze: bool, junit: str | None, printing: Printing
) -> int:
    """Check studies one after the other, or freeze their numbers."""
    from .frozen import check_study, freeze_study, junit_of
    from .pages_study import check_page

    tell = progress_on(sys.stderr)
    checked: list[dict[str, Any]] = []
    broken = 0
    for file in files:
        try:
            if freeze:
                path = freeze_study(file, tell)
                tell_on_stderr(f"frozen: {path}", printing.quiet)
            if check:
                checked.append(check_study(file, tell))
        except RooflmError as e:
            # The others are checked all the same.
            if len(files) == 1 or e.code == Exit.INTERRUPTED:
                raise
            broken = int(e.code)
            tell_on_stderr(f"error: {e}")
    if not check:
        return broken or Exit.DONE
    if junit is not None:
        write_file(junit_of(checked).encode(), junit, "--junit")
    answer = {"schema": "rooflm.check/1", "holds": all(c["holds"] for c in checked),
              "studies": checked}  # fmt: skip
    emit(answer, lambda _: check_page(checked), printing)
    return broken or (Exit.DONE if answer["holds"] else Exit.NO)


def report(
    file: StudyFile, output: ReportOutput = None, quiet: Quiet = False, debug: Debug = False
) -> None:
    """Write a study as one page: tables, figures, formulas, assumptions, commands.

    Example: rooflm report studies/batch_sweep.yaml -o report.html
    """
    from pathlib import Path

    from .report import check_size, page
    from .study import prepare
    from .study_answer import answer as answer_of
    from .study_answer import rows_of, unfinished
    from .study_file import read_study

    ready = prepare(read_study(file))
    path = output or str(Path(file).with_suffix(".html").name)
    _spare([file], path)
    check_size(ready)
    rows, whole = rows_of(ready, progress_on(sys.stderr))
    if not whole:
        raise unfinished(ready, rows)
    answer = answer_of(ready, rows)
    write(page(ready, answer), path)
    wrong = sum(not v["holds"] for v in answer["expectations"])
    if wrong:
        told = f"{wrong:,} of {len(answer['expectations']):,} expectations do not hold"
        tell_on_stderr(f"{told}: rooflm study {file} --check")
    tell_on_stderr(f"written: {path}", quiet or path == "-")


def plot(
    context: typer.Context, kind: Kind, output: PlotOutput = None, chart: OnlyChart = False,
    x: X = None, y: Y = None, z: Z = None, log: Log = None, better: Better = None,
    slo: Slo = None,
) -> int:  # fmt: skip
    """Draw what a command answers.

    All else is typed as for the command that the kind belongs to.

    Example: rooflm plot heatmap llama-3-8b --on h100-sxm --batch 1:256:x2 --context 1k,8k

    Example: rooflm plot reuse llama-2-13b --on h100-sxm --batch 1:512:x2 -o reuse.svg
    """
    from ..plots.kinds import KINDS
    from .cli import app

    check_choice(kind, tuple(KINDS), "KIND")
    command = KINDS[kind].command
    if command == "validate":
        fix = "Say rooflm validate --from run.json --plot run.svg."
        raise RooflmError(f"`rooflm validate` draws {kind} itself", "KIND", fix)
    drawn = {"x": x, "y": y, "z": z, "log": log, "better": better, "latency_s": slo}
    told = [f"{name}={value}" for name, value in drawn.items() if value is not None]
    for name, value in drawn.items():
        if value is not None and name not in KINDS[kind].options:
            option = "--slo" if name == "latency_s" else f"--{name}"
            raise RooflmError(f"{kind} has no such option", option, "Leave it out.")
    path = output or f"{kind}.svg"
    words = [command, *context.args, "--draw", ":".join([kind, *filter(None, [",".join(told)])])]
    if kind == "tornado" and "--sensitivity" not in words and command == "explain":
        words.append("--sensitivity")
    if chart:
        if output is not None:
            raise RooflmError("a chart goes to the terminal", "--output", "Leave it out.")
        words += ["--chart", "--quiet"]
    else:
        # The figure alone: what the command prints goes nowhere.
        words += ["--plot", path, "--format", "json", "--output", os.devnull]
    code = int(app(words, standalone_mode=False, prog_name="rooflm") or 0)
    if not chart:
        tell_on_stderr(f"drawn: {printable(path)}")
    return code if code != Exit.NO else Exit.DONE


def add(app: typer.Typer) -> None:
    """Give the command line its commands of studies and figures."""
    from ..plots.kinds import KINDS

    app.command()(study)
    app.command()(report)
    # Lines between \b are printed as they are: each has to fit into 80 columns.
    kinds = [
        textwrap.fill(
            f"{kind.says} ({kind.command})", 77, initial_indent=f"  {name:18} ",
            subsequent_indent=21 * " ",
        )
        for name, kind in KINDS.items()
    ]  # fmt: skip
    told = "\n".join(["\b", "Kinds, each with the command whose answer it draws:", *kinds])
    passing = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=passing, epilog=told)(plot)
