"""The command that explains a log: it parses and prints, nothing else."""

# Annotations are evaluated once, where they stand: as text each start would compile 150 of them.

from typing import Annotated, Any

import typer

from .errors import Exit
from .options import LAYOUT, PRINTED, Cache, Grouped, Weights, with_options

LogFile = Annotated[
    str, typer.Argument(metavar="FILE", help="What the engine printed at its start; - for stdin.")
]
LogModel = Annotated[
    str | None,
    typer.Option("--model", metavar="MODEL", help="The model, where the log names none or ours."),
]
SPREAD: dict[str, Any] = {name: LAYOUT[name] for name in ("tp", "pp")}
"""Degrees, where the log does not state them."""


@with_options(spread=SPREAD, how=PRINTED)
def explain_log(
    file: LogFile, model: LogModel = None, weights: Weights = None, kv: Cache = None,
    spread: Grouped = {}, how: Grouped = {},
) -> int:  # fmt: skip
    """Explain what vLLM, SGLang, TensorRT-LLM, llama.cpp or ollama printed at its start.

    Each figure in words, what it should be by the model or by other figures of the log, whether
    both agree within the log's rounding, and what may fill a difference.

    Example: rooflm explain-log docs/examples/vllm.log

    Example: rooflm explain-log docs/examples/llamacpp.log --format json
    """
    from .log_explain import explain_file
    from .pages_log import log_page
    from .printing import emit, printing

    printed = printing(how["format"], how["output"], how["quiet"])
    answer = explain_file(file, {"model": model, "weights": weights, "kv": kv, **spread})
    rows = {"rows": answer["figures"]} if printed.format == "csv" else {}
    emit({**answer, **rows}, log_page, printed)
    return Exit.DONE


def add(app: typer.Typer) -> None:
    """Add the command."""
    app.command("explain-log")(explain_log)
