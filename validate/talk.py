"""What long work says: its progress on stderr, and why something failed."""

from __future__ import annotations

import sys
import time


class Talk:
    """Progress on stderr: which point, how many are left, and about how long they take."""

    def __init__(self, quiet: bool) -> None:
        self.quiet = quiet
        self.points = self.number = 0
        self.seconds = self.expected = 0.0
        self.start = time.monotonic()
        self.live = sys.stderr.isatty()

    def say(self, text: str) -> None:
        """Write one line; on a terminal over the last one."""
        if self.quiet:
            return
        end = "\x1b[K\r" if self.live else "\n"
        sys.stderr.write(f"rooflm: {text}{end}")
        sys.stderr.flush()

    def point(self, text: str) -> None:
        """Say which point runs."""
        self.number += 1
        left = self.seconds - self.expected
        if self.expected > 0:
            # What was planned, at the pace so far.
            left *= (time.monotonic() - self.start) / self.expected
        minutes, rest = divmod(max(0, round(left)), 60)
        self.say(f"{self.number}/{self.points} {text}, about {minutes}:{rest:02d} left")

    def done(self, expected: float) -> None:
        """Count a point that has run."""
        self.expected += expected

    def end(self) -> None:
        """Leave the line."""
        if self.live and not self.quiet:
            sys.stderr.write("\x1b[K")
            sys.stderr.flush()


def reason(error: BaseException) -> str:
    """Say in one line why something failed."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return "out of memory"
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__
