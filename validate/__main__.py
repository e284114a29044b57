"""`python -m rooflm.validate`: needs no more than torch, numpy and PyYAML."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Any

from ..calc.__main__ import guarded
from ..calc.errors import Exit, RooflmError, say
from ..calc.output import format_of, render, terminal_width, write, write_file

PROGRAM = "python -m rooflm.validate"


def main(words: Sequence[str], program: str = PROGRAM) -> int:
    """Run what was typed and return the exit code; a mistake becomes one line on stderr."""

    def told() -> int:
        try:
            return run(words, program)
        except RooflmError as e:
            say(f"rooflm: error: {e}")
            return e.code

    return guarded(told)


def run(words: Sequence[str], program: str) -> int:
    """Run what was typed; raises `RooflmError` for a mistake."""
    from .arguments import parse

    typed = parse(words, program)
    if typed.source is not None:
        from .tables import page, read_answer

        try:
            answer = read_answer(typed.source)
            _show(answer, page(answer), typed)
            _save(answer, typed)
        except (ArithmeticError, LookupError, TypeError, AttributeError, ValueError) as e:
            what = f"the run is not usable: {type(e).__name__} {e}"
            raise RooflmError(what, typed.source) from None
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
            if ranks.rank == 0:
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
    wrong = any(check["agrees"] is False for check in answer["checks"])
    differ = answer["summary"]["weights_differ_bytes"] or answer["summary"]["cache_differs_bytes"]
    return Exit.NO if wrong or differ else Exit.DONE


def _usual_device() -> str:
    try:
        import torch
    except ImportError:
        return "cpu"
    return "cuda" if torch.cuda.is_available() else "cpu"


def _keeper(typed: Any) -> Any:
    """Keep what was measured so far in the file of --output, where that is JSON."""
    path = typed.output
    if path is None or path == "-" or (typed.format or format_of(path)) != "json":
        return None
    import json
    import os

    if os.environ.get("RANK", "0") != "0":
        return None

    def keep(answer: Mapping[str, Any]) -> None:
        text = json.dumps({**answer, "interrupted": True}, indent=2, allow_nan=False)
        write(text + "\n", path)

    return keep


def _save(answer: dict[str, Any], typed: Any) -> None:
    """Write the files that were asked for beside the answer; one that fails keeps no other back."""
    from . import report

    wanted: dict[str, Callable[[], object]] = {}
    if typed.save_hardware is not None:
        wanted["--save-hardware"] = lambda: report.hardware_text(answer)
    if typed.report is not None:
        wanted["--report"] = lambda: report.report(answer)
    if typed.plot is not None:
        wanted["--plot"] = lambda: _draw(answer, typed.plot)
    if typed.save_calibration is not None:
        wanted["--save-calibration"] = lambda: report.calibration_text(answer)
    paths = {option: getattr(typed, option[2:].replace("-", "_")) for option in wanted}
    failed: RooflmError | None = None
    for option, make in wanted.items():
        try:
            text = make()
            if isinstance(text, str):
                write_file(text.encode(), paths[option], option)
        except RooflmError as e:
            failed = failed or e
    if failed is not None:
        raise failed


def _draw(answer: dict[str, Any], path: str) -> None:
    from ..plots.style import save
    from ..plots.validation import draw

    try:
        save(draw(answer), path)
    except ImportError:
        fix = "Install it, or draw elsewhere with --from and the run's JSON."
        raise RooflmError("a figure needs matplotlib", "--plot", fix, Exit.MISSING) from None


def _show(answer: dict[str, Any], shown: Any, typed: Any) -> None:
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
