"""`python -m rooflm.validate`: needs no more than torch, numpy and PyYAML."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any

from ..calc.errors import Exit, RooflmError

PROGRAM = "python -m rooflm.validate"


def main(words: Sequence[str], program: str = PROGRAM) -> int:
    """Run what was typed and return the exit code; a mistake becomes one line on stderr."""
    try:
        return run(words, program)
    except RooflmError as e:
        sys.stderr.write(f"rooflm: error: {e}\n")
        return e.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def run(words: Sequence[str], program: str) -> int:
    """Run what was typed; raises `RooflmError` for a mistake."""
    from .arguments import parse

    typed = parse(words, program)
    if typed.source is not None:
        from .tables import page, read_answer

        answer = read_answer(typed.source)
        _show(answer, page(answer), typed)
        _save(answer, typed)
        return Exit.DONE
    from .device import find_device

    device = typed.device or _usual_device()
    find_device(device)
    from .arguments import plan_of
    from .plan import dry_run
    from .ranks import start, stop
    from .run import validate

    ranks = start(typed.tp, device)
    try:
        plan = plan_of(typed, device, ranks, date.today().isoformat())
        if typed.dry_run:
            from .tables import plan_page

            answer = dry_run(plan)
            _show(answer, plan_page(answer), typed)
            return Exit.DONE
        answer = validate(plan, _keeper(typed))
    finally:
        stop(ranks)
    if ranks.rank == 0:
        from .tables import page

        # What was measured is printed before anything else can fail.
        _show(answer, page(answer), typed)
        _save(answer, typed)
    if answer["interrupted"]:
        return Exit.INTERRUPTED
    if not answer["summary"]["measured"]:
        return Exit.NO
    return Exit.DONE if all(check["agrees"] is not False for check in answer["checks"]) else Exit.NO


def _usual_device() -> str:
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _keeper(typed: Any) -> Any:
    """Keep what was measured so far in the file of --output, where that is JSON."""
    from ..calc.output import format_of, write

    path = typed.output
    if path is None or path == "-" or (typed.format or format_of(path)) != "json":
        return None
    import json
    import os

    if os.environ.get("RANK", "0") != "0":
        return None

    def keep(answer: Mapping[str, Any]) -> None:
        write(json.dumps({**answer, "interrupted": True}, indent=2) + "\n", path)

    return keep


def _save(answer: dict[str, Any], typed: Any) -> None:
    """Write the files that were asked for beside the answer."""
    from ..calc.output import write_file
    from . import report

    if typed.save_calibration is not None:
        text = report.calibration_text(answer, typed.save_calibration)
        write_file(text.encode(), typed.save_calibration, "--save-calibration")
    if typed.save_hardware is not None:
        write_file(report.hardware_text(answer).encode(), typed.save_hardware, "--save-hardware")
    if typed.report is not None:
        write_file(report.report(answer).encode(), typed.report, "--report")
    if typed.plot is not None:
        from ..plots.validation import draw

        draw(answer, typed.plot)


def _show(answer: dict[str, Any], shown: Any, typed: Any) -> None:
    from ..calc.output import format_of, render, terminal_width, write

    how: Any = typed.format or format_of(typed.output)
    if how == "table":
        try:
            import rich  # noqa: F401  # pyright: ignore[reportUnusedImport]
        except ImportError:
            # A bare machine has no library for tables; Markdown reads as well.
            how = "md"
    width = terminal_width() if typed.output is None else 10_000
    write(render(answer, shown, how, width, typed.quiet), typed.output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
