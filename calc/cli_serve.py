"""The command of live traffic: it parses and prints, nothing else."""

# Annotations are evaluated once, where they stand: as text each start would compile 150 of them.

import sys

import typer

from .errors import Exit
from .options import (
    COUNTED,
    DRAFTED,
    ESTIMATED,
    FILES,
    HANDOFF,
    LAYOUT,
    PLOTTED,
    PRINTED,
    Grouped,
    ModelName,
    On,
    Set,
    with_options,
)
from .options_serve import ENGINE, PROMISED, TRAFFIC

USED = {name: said for name, said in COUNTED.items() if name != "time_model"}
"""Options of counting; the time model is fixed."""


@with_options(
    traffic=TRAFFIC, engine=ENGINE, promised=PROMISED, drafted=DRAFTED, handoff=HANDOFF,
    layout=LAYOUT, counted=USED, estimated=ESTIMATED, files=FILES, plotted=PLOTTED, how=PRINTED,
)  # fmt: skip
def serve(
    model: ModelName, on: On, set: Set = [],
    traffic: Grouped = {}, engine: Grouped = {}, promised: Grouped = {}, drafted: Grouped = {},
    handoff: Grouped = {}, layout: Grouped = {}, counted: Grouped = {}, estimated: Grouped = {},
    files: Grouped = {}, plotted: Grouped = {}, how: Grouped = {},
) -> int:  # fmt: skip
    """Simulate live traffic: what users wait for, throughput, and how full the caches are.

    Example: rooflm serve llama-3-8b --on h100-sxm --rate 4 --prompt 512 --output-tokens 128

    Example: rooflm serve llama-3-8b --on h100-sxm --clients 32 --prompt 1024 --output-tokens 256

    Example: rooflm serve llama-3-8b --on h100-sxm --find-rate --slo-ttft 500ms --slo-itl 20ms
    """
    from .output import progress_on
    from .pages_serve import serve_page
    from .printing import emit, printing
    from .typed_serve import served

    words = {"model": model, "on": on, "set": set, **traffic, **engine, **promised, **counted,
             **estimated, **files, **layout, **handoff, **drafted}  # fmt: skip
    printed = printing(how["format"], how["output"], how["quiet"])
    answer = served(words, progress_on(sys.stderr))
    kind = "throughput-latency" if "rows" in answer else "timeline"
    emit(answer, serve_page, printed, plotted, kind)
    return Exit.DONE if answer["complete"] else Exit.INTERRUPTED


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(serve)
