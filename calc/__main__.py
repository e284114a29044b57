"""Entry point: turns interrupts, closed pipes and defects into exit codes."""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable


def main() -> None:
    """Run rooflm; imports happen inside, so that Ctrl-C during them is quiet as well."""
    sys.exit(guarded(_run))


def _run() -> int:
    from rooflm.calc.cli import main as run

    return run()


def guarded(run: Callable[[], int]) -> int:
    """Run a command and return its exit code; what it does not catch becomes one line."""
    try:
        return _guarded(run)
    except KeyboardInterrupt:
        return 130


def _guarded(run: Callable[[], int]) -> int:
    from rooflm.calc.errors import silence

    try:
        code = run()
        if sys.stdout is not None:  # pyright: ignore[reportUnnecessaryComparison]
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader has what it wanted.
        silence(1)
        return 0
    except Exception as e:
        if isinstance(e, OSError) and e.errno == errno.ENOSPC:
            silence(1)
            return _last_line(f"cannot write the output: {str(e.strerror).lower()}.", 2, e)
        text = f"{type(e).__name__}: {e}".splitlines()[0][:200]
        return _last_line(
            f"this is a defect of rooflm: {text}. Please report it; --debug shows where.", 70, e
        )


def _last_line(message: str, code: int, error: Exception) -> int:
    if "--debug" in sys.argv:
        import traceback

        traceback.print_exception(error)
    from rooflm.calc.errors import say

    say(f"rooflm: error: {message}")
    return code


if __name__ == "__main__":
    main()
