"""Numbers as people write them: ranges, multiples, sizes; and as tables show them."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .errors import RooflmError, printable

if TYPE_CHECKING:
    from fractions import Fraction

MULTIPLES = {
    "": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12,
    "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40,
}  # fmt: skip
"""k is 1000 and Ki is 1024, for counts as for bytes."""

LARGEST = 10**12
"""Largest count taken: beyond it a slip of the keyboard is likelier than a wish."""
MOST_POINTS = 10**6
"""Values that one range may have."""

_NUMBER = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,3})?) ?(k|K|M|G|T|Ki|Mi|Gi|Ti)?")
_PLAIN = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
"""Decimals, with one way to match each: two would take time as the square of their length."""
_TIME = re.compile(rf"((?:{_PLAIN})(?:[eE][-+]?[0-9]{{1,3}})?) ?([a-zµ]+)")
_SHARE = re.compile(rf"({_PLAIN})(%?)")
FEWEST_BYTES = 10**6
"""Below it a size without a unit is more likely one that lacks it [B]."""
_SMALL_LETTERS = re.compile(r"(.* ?)([kmgt])(i?)b")
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?(?:[eE]\+?[0-9]{1,3})?) ?([kKMGT]i?)?(B|b)?")


ONE = "Write 64, 4k or 128Ki."
SEVERAL = "Write 64, 4k or 128Ki; several as 1,64 or 1:256:x2."


def parse_count(text: str, option: str, fix: str = ONE) -> int:
    """Read a positive whole number such as 64, 1k (1000), 128Ki (131072) or 1e6.

    fix: what is said of a text that is none.
    """
    match = _NUMBER.fullmatch(text.strip())
    if not match:
        raise RooflmError(f"'{_short(text)}' is not a positive whole number", option, fix)
    value = _exact(match[1], match[2])
    if value > LARGEST:
        raise RooflmError(f"{_short(text)} is above {LARGEST:.0e}", option, "Is it a slip?")
    if value.denominator != 1:
        raise RooflmError(f"'{_short(text)}' is not a whole number", option)
    if value < 1:
        raise RooflmError(f"{_short(text)} is below 1", option)
    return int(value)


LENGTHS = ("--context", "--prompt", "--output-tokens", "--prefix")
_THOUSANDS = re.compile(r"[1-9][0-9]{0,2}(?:,[0-9]{3}){1,3}")
"""A number whose thousands are set apart, or a list."""


def parse_layers(text: str) -> int:
    """Read a number of layers, which may be 0."""
    return 0 if text.strip() == "0" else parse_count(text, "--gpu-layers")


def parse_counts(text: str, option: str) -> list[int]:
    """Read a list of counts and ranges: `1,64,256`, `1:256:x2` (times two), `1:9:2` (plus two)."""
    values: list[int] = []
    if _THOUSANDS.fullmatch(text.strip()):
        plain = text.strip().replace(",", "")
        whole = int(plain)
        if ",0" in text or (option in LENGTHS and whole.bit_count() == 1):
            what = f"'{_short(text)}' is several values, and no {plain}"
            raise RooflmError(what, option, f"Write {plain}.")
    for part in text.split(","):
        values.extend(_range(part, option))
        if len(values) > MOST_POINTS:
            raise RooflmError(f"'{_short(text)}' has more than {MOST_POINTS:,} values", option)
    return values


def _range(text: str, option: str) -> Iterator[int]:
    pieces = text.split(":")
    if len(pieces) == 1:
        yield parse_count(text, option, SEVERAL)
        return
    if len(pieces) > 3 or not all(p.strip() for p in pieces):
        fix = "Write FIRST:LAST, FIRST:LAST:STEP or FIRST:LAST:xFACTOR."
        raise RooflmError(f"'{_short(text)}' is not a range", option, fix)
    first, last = (parse_count(p, option, SEVERAL) for p in pieces[:2])
    step = pieces[2].strip() if len(pieces) == 3 else "1"
    times = step.startswith("x")
    by = parse_count(step.removeprefix("x"), option)
    if last < first:
        raise RooflmError(f"the range '{_short(text)}' ends before it begins", option)
    if times and by < 2:
        raise RooflmError(f"the factor of '{_short(text)}' must be at least 2", option)
    if not times and (last - first) // by >= MOST_POINTS:
        raise RooflmError(f"'{_short(text)}' has more than {MOST_POINTS:,} values", option)
    value = first
    while value <= last:
        yield value
        value = value * by if times else value + by


def parse_size(text: str, option: str, least: int = 0) -> int:
    """Read a size in bytes: `80GB` or `80gb` is 80e9, `80GiB` is 80 * 2**30.

    A number without a unit is bytes where it can be: 40 is none of a memory, but a slip.
    """
    text = text.strip()
    if small := _SMALL_LETTERS.fullmatch(text):
        text = small[1] + small[2].upper() + small[3] + "B"
    return _size(text, option, least)


def _size(text: str, option: str, least: int) -> int:
    match = _SIZE.fullmatch(text)
    if not match or match[3] == "b":
        fix = "Write 80GB or 80GiB (bytes, not bits)."
        raise RooflmError(f"'{_short(text)}' is not a size", option, fix)
    if match[2] and not match[3]:
        fix = f"Write {match[1]}{match[2]}B."
        raise RooflmError(f"'{_short(text)}' has no unit", option, fix)
    value = _exact(match[1], match[2])
    if not match[3] and 0 < value < FEWEST_BYTES:
        fix = f"Say its unit, as {match[1]}GB, {match[1]}MiB or {match[1]}B."
        raise RooflmError(f"'{_short(text)}' has no unit", option, fix)
    if value > 10**18:
        raise RooflmError(f"{_short(text)} is above 1e18 bytes", option, "Is it a slip?")
    if round(value) < least:
        raise RooflmError(f"{_short(text)} is below {least} byte", option)
    return round(value)


def parse_speed(text: str, option: str) -> float:
    """Read bytes a second, such as 450GB or 450GB/s; of small letters 50gb may be bits."""
    return float(_size(text.strip().removesuffix("/s"), option, least=1))


def _exact(digits: str, multiple: str | None) -> int | Fraction:
    """Multiply without rounding: 1.001k is 1001."""
    times = MULTIPLES[multiple or ""]
    _, _, exponent = digits.lower().partition("e")
    if len(digits) > 40 or int(exponent or 0) > 40:
        # Beyond all limits; a long integer or a power of ten is not spelled out.
        return 10**41
    if digits.isdigit():
        return int(digits) * times
    from fractions import Fraction

    return Fraction(digits) * times


def _short(text: str) -> str:
    return printable(text, 40)


TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0}


def parse_time(text: str, option: str) -> float:
    """Read a time with its unit, such as 20ms, 1.5s or 500us, in seconds."""
    match = _TIME.fullmatch(text.strip())
    if not match or match[2] not in TIMES:
        raise RooflmError(f"'{_short(text)}' is not a time", option, "Write 20ms, 1.5s or 500us.")
    seconds = float(match[1]) * TIMES[match[2]]
    if not 1e-12 < seconds < 1e12:
        raise RooflmError(f"'{_short(text)}' is out of range", option, "Is it a slip?")
    return seconds


def parse_share(text: str, option: str, whole: bool = False) -> float:
    """Read a share between 0 and 1: 0.9 or 90%; whole: 1 or 100% will do as well."""
    match = _SHARE.fullmatch(text.strip())
    value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not (0 < value < 1 or (whole and value == 1)):
        what = f"'{_short(text)}' is not a share between 0 and 1"
        raise RooflmError(what, option, "Write 0.9 or 90%.")
    return value


def parse_rate(text: str, option: str) -> float:
    """Read a positive number such as 2500, 2.5k or 1e4."""
    match = _NUMBER.fullmatch(text.strip())
    value = float(_exact(match[1], match[2])) if match else 0.0
    if not 0 < value < 1e30:
        raise RooflmError(
            f"'{_short(text)}' is not a positive number", option, "Write 2500 or 2.5k."
        )
    return value


def show_number(value: float) -> str:
    """Show a figure in four digits or so: 0.0123, 8.02, 124.7, 2,689."""
    if not math.isfinite(value):
        return "-"
    size = abs(value)
    if size >= 1000:
        return f"{value:,.0f}"
    if size >= 100:
        return f"{value:.1f}"
    if size >= 0.995 or size == 0:
        return f"{value:.2f}"
    return f"{value:.3g}"


def show_gb(value: float) -> str:
    """Show bytes in GB of 10**9 bytes: 26.87."""
    gb = value / 1e9
    return f"{gb:,.2f}" if abs(gb) >= 0.1 or gb == 0 else f"{gb:.3g}"
