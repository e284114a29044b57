"""Where and how an answer goes: to a terminal, a pipe, a file, a figure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .errors import RooflmError, check_choice, printable, say
from .output import (
    OutputFormat,
    Page,
    check_rows,
    format_of,
    render,
    terminal_width,
    write,
    write_file,
)
from .typed import given
from .units import parse_counts


@dataclass(frozen=True)
class Printing:
    """Where and how an answer goes."""

    format: OutputFormat
    output: str | None
    quiet: bool


def printing(
    format: str | None, output: str | None, quiet: bool, more: tuple[str, ...] = ()
) -> Printing:
    """Read the options of the output; more: formats that a command has beside the usual ones."""
    if output is not None and output.isdecimal():
        fix = f"Tokens are --output-tokens {output}; a file of that name is ./{output}."
        raise RooflmError(f"'{printable(output, 20)}' is a number, and no file", "--output", fix)
    chosen: Any = given(format, format_of(output))
    check_choice(chosen, ("table", "json", "csv", "md", *more), "--format")
    return Printing(chosen, output, quiet)


def check_points(how: Printing, batch: str | None, context: str | None, cases: int = 1) -> None:
    """Refuse a table that is too long before its rows are worked out.

    batch, context: as they were typed, the context perhaps as lengths of one batch; cases: models
    and machines of each point.
    """
    if how.format == "table" and not (context or "").endswith("@mixed"):
        batches = len(parse_counts(given(batch, "1"), "--batch"))
        check_rows(cases * batches * len(parse_counts(given(context, "1"), "--context")))


def emit(
    answer: dict[str, Any], page: Callable[[dict[str, Any]], Page], how: Printing,
    plotted: Mapping[str, Any] | None = None, kind: str = "",
) -> None:  # fmt: skip
    """Print an answer, and draw it where that was asked for.

    page: lays an answer out, where a table is wanted; plotted: options of the figure; kind: the
    figure that is usual for the answer.
    """
    chart = "" if plotted is None else drawn(answer, plotted, kind, how)
    width = terminal_width() if how.output is None else 10_000
    laid = page(answer) if how.format in ("table", "md") else Page((), ())
    text = render(answer, laid, how.format, width, how.quiet)
    write(f"{text}\n{chart}" if chart else text, how.output)


def drawn(answer: dict[str, Any], plotted: Mapping[str, Any], kind: str, how: Printing) -> str:
    """Draw an answer into the file that was named, and return a chart in text if one was asked for.

    plotted: `plot`, `draw` and `chart` as they were typed; kind: the usual one.
    """
    path, chart, asked = plotted.get("plot"), plotted.get("chart"), plotted.get("draw")
    if path is None and not chart:
        if asked is not None:
            raise RooflmError("nothing is drawn", "--draw", "Say --plot FILE, or --chart.")
        return ""
    if chart and how.format != "table":
        what = f"a chart stands below a table, and not in {how.format}"
        raise RooflmError(what, "--chart", "Leave out one of the two options.")
    from ..plots.kinds import draw
    from ..plots.style import save

    name, options = parse_draw(given(asked, kind))
    drawing = draw(name, answer, **options)
    if path is not None and path.lower().endswith(".json"):
        write_file(data_text(drawing).encode(), path, "--plot")
    elif path is not None:
        save(drawing, path)
    return chart_of(drawing) if chart else ""


def data_text(drawing: Any) -> str:
    """Write what the axes of a figure were given, each panel on a line."""
    import json

    from ..plots.data import data

    panels = [json.dumps(panel, ensure_ascii=False) for panel in data(drawing)]
    return "[\n" + ",\n".join(panels) + "\n]\n"


def chart_of(drawing: Any) -> str:
    """Draw a figure in characters that fit the terminal."""
    from ..plots.terminal import chart
    from .output import prints

    width = min(terminal_width(), 100)
    return chart(drawing, width, ascii=not prints("⠿█")).rstrip("\n") + "\n"


def parse_draw(text: str) -> tuple[str, dict[str, Any]]:
    """Read a kind of figure with its options: heatmap:x=batch,z=regime."""
    from ..plots.kinds import KINDS
    from .units import parse_time

    kind, _, rest = text.partition(":")
    check_choice(kind, tuple(KINDS), "--draw")
    options: dict[str, Any] = {}
    for part in filter(None, rest.split(",")):
        name, equals, value = part.partition("=")
        check_choice(name, KINDS[kind].options or ("no options",), "--draw")
        if not equals or not value:
            raise RooflmError(f"'{name}' has no value", "--draw", "Write heatmap:x=batch.")
        options[name] = parse_time(value, "--draw") if name.endswith("_s") else value
    return kind, options


def tell_on_stderr(text: str, quiet: bool = False) -> None:
    """Say something beside the data."""
    if not quiet:
        say(f"rooflm: {text}")
