"""Integer quantization of numbers: codes, what comes back of them, and the error beside its bound.

q = clip(round(x/s) + z, q_min, q_max) and x' = s(q - z), with a scale s and a zero point z for all
numbers, for each row, or for each group of a row. Ties go to the even code, as in Python, numpy and
torch; C's roundf goes away from zero.

Sources: Stanford CS336 lecture 10 (github.com/stanford-cs336/lectures, lecture_10.py,
"quantization"); arxiv.org/abs/1712.05877, section 2 (affine integers, zero a code of its own);
arxiv.org/abs/2210.17323 and 2306.00978 (groups of 128). Scales are kept in double precision here; a
file has them in fewer bits, which adds an error of its own. What a calibration chooses (clipping,
another order, scaled channels) is no part of this.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from .errors import RooflmError, nearest, printable
from .readings import Q
from .yamlfile import is_file, read_text

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[Any]

Per = Literal["tensor", "channel", "group"]
"""What shares a scale: all numbers, a row, or so many numbers of a row."""
PERS: tuple[Per, ...] = ("tensor", "channel", "group")

LEAST_BITS, MOST_BITS = 2, 16
LARGEST = 1e100
"""Magnitude beyond which numbers are refused: their squares would overflow."""
LARGEST_TEXT = 2**24
"""Bytes of a text of numbers [B]; more of them are in a .safetensors file."""
CHUNK = 2**21
"""Numbers that are in memory at a time, a row at least [1]."""
SLACK = 1e-9
"""Relative rounding of x/s in double precision, which is no clipping."""
DECODED = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}
"""Types of safetensors that are read, as numpy has them; BF16 is the upper half of an F32."""


def code_range(bits: int, signed: bool = True) -> tuple[int, int]:
    """Tell the smallest and the largest code of integers of some bits.

    >>> code_range(8), code_range(4, signed=False)
    ((-128, 127), (0, 15))
    """
    return (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)


def uniform_mse(scale: Q) -> Q:
    """Mean squared error of rounding to multiples of a scale, evenly spread between them: s²/12.

    scale: step between codes [the numbers' unit]. Returns [its square]. A bit less doubles s and
    costs 20 log10(2) = 6.02 dB.

    >>> round(uniform_mse(0.1), 10)
    0.0008333333
    """
    return scale * scale / 12


def symmetric_scale(largest: Q, bits: int) -> Q:
    """Scale of symmetric codes: the largest magnitude at the largest code, max|x|/(2^(b-1) - 1).

    largest: max|x| [the numbers' unit]; bits: b [1]. Returns [the numbers' unit].

    >>> symmetric_scale(31.75, 8)
    0.25
    """
    return largest / (2 ** (bits - 1) - 1)


def affine_scale(low: Q, high: Q, bits: int) -> Q:
    """Scale of affine codes: the range in equal steps, (x_max - x_min)/(2^b - 1).

    low, high: ends of the range, which holds 0 [the numbers' unit]; bits: b [1]. Returns [the
    numbers' unit].

    >>> affine_scale(-10.0, 15.5, 8)
    0.1
    """
    return (high - low) / (2**bits - 1)


def outlier_flops(D: int, F: int, share: float) -> tuple[float, float]:
    """FLOPs of LLM.int8 for one token through X @ W[D, F]: those in 16 bits, and those in 8.

    D, F: widths of the weight [1]; share: of input columns with a magnitude of 6 and more, about
    0.001 [1]. Returns [FLOP] twice. Source: arxiv.org/abs/2208.07339, section 3.2. Left out: the
    search for the columns, expanding their weights, and adding both products.

    >>> outlier_flops(4096, 4096, 0.25)
    (8388608.0, 25165824.0)
    """
    return 2 * D * F * share, 2 * D * F * (1 - share)


@dataclass(frozen=True)
class Quantizer:
    """How numbers become codes."""

    bits: int = 8
    signed: bool = True
    symmetric: bool = False
    """The zero point is 0 and the range lies evenly about it."""
    scale: float | None = None
    """Step between codes; from the range of the numbers if None."""
    zero_point: int | None = None
    """Code of 0."""
    per: Per = "tensor"
    group: int = 128
    """Numbers of a row that share a scale where `per` is group."""

    def __post_init__(self) -> None:
        """Refuse what has no codes."""
        if not LEAST_BITS <= self.bits <= MOST_BITS:
            what = f"{self.bits} bits are not between {LEAST_BITS} and {MOST_BITS}"
            raise RooflmError(what, "--bits", "Write 8 or 4.")
        if self.symmetric and not self.signed:
            fix = "Leave out --unsigned or --symmetric."
            raise RooflmError("symmetric codes are signed", "--unsigned", fix)
        if self.scale is not None:
            if not (math.isfinite(self.scale) and 1 / LARGEST <= self.scale <= LARGEST):
                what = f"{self.scale:g} is no scale: it has to be above 0"
                raise RooflmError(what, "--scale", "Write 0.1, or leave it out.")
            if self.per != "tensor":
                fix = "Add --per tensor, or leave out --scale."
                raise RooflmError("a given scale is one for all numbers", "--per", fix)
        if self.zero_point is not None:
            low, high = code_range(self.bits, self.signed)
            if self.scale is None:
                raise RooflmError("a zero point needs its scale", "--zero-point", "Add --scale.")
            if self.symmetric and self.zero_point != 0:
                fix = "Leave out --zero-point or --symmetric."
                raise RooflmError("the zero point of symmetric codes is 0", "--zero-point", fix)
            if not low <= self.zero_point <= high:
                what = f"{self.zero_point} is no code: codes are {low} to {high}"
                raise RooflmError(what, "--zero-point", f"Write one of them, such as {high}.")

    @property
    def affine(self) -> bool:
        """Codes have a zero point that is kept with the scale."""
        return not self.symmetric and (self.scale is None or bool(self.zero_point))

    @property
    def scale_bits(self) -> int:
        """Bits of a scale as it is kept: fp16 for a group, fp32 otherwise [bits]."""
        return 16 if self.per == "group" else 32

    @property
    def zero_bits(self) -> int:
        """Bits of a zero point as it is kept [bits]."""
        return self.bits if self.affine else 0

    def starts(self, columns: int) -> list[int]:
        """Tell where the groups of a row begin."""
        return list(range(0, columns, self.group)) if self.per == "group" else [0]

    def scales(self, low: Floats, high: Floats) -> tuple[Floats, Floats]:
        """Choose scales and zero points for ranges of numbers."""
        import numpy as np

        if self.scale is not None:
            return np.full_like(low, self.scale), np.full_like(low, self.zero_point or 0)
        if self.symmetric:
            scale = symmetric_scale(np.maximum(-low, high), self.bits)
        else:
            # Zero has to be a code: padding and ReLU make many, and each would err.
            low, high = np.minimum(low, 0), np.maximum(high, 0)
            scale = affine_scale(low, high, self.bits)
        # Zeros alone have no range; any scale brings them back.
        scale = np.where(scale < 1 / LARGEST, 1.0, scale)
        if self.symmetric:
            return scale, np.zeros_like(scale)
        first, last = code_range(self.bits, self.signed)
        return scale, np.clip(np.rint(first - low / scale), first, last)


@dataclass(frozen=True)
class Codes:
    """Numbers and what became of them, element by element."""

    values: Floats
    scales: Floats
    zero_points: Floats
    codes: Floats
    clipped: Floats
    """Numbers beyond the outermost codes, by more than half a step."""

    @property
    def restored(self) -> Floats:
        """What the codes stand for."""
        return self.scales * (self.codes - self.zero_points)

    @property
    def errors(self) -> Floats:
        """Magnitude of the error of each number."""
        return abs(self.restored - self.values)


def encode(values: Floats, scales: Floats, zero_points: Floats, quantizer: Quantizer) -> Codes:
    """Turn numbers into codes; scales and zero points are broadcast to them."""
    import numpy as np

    first, last = code_range(quantizer.bits, quantizer.signed)
    steps = values / scales
    beyond = 0.5 + SLACK * (1 + abs(steps))
    exact = steps + zero_points
    clipped = (exact < first - beyond) | (exact > last + beyond)
    codes = np.clip(np.rint(steps) + zero_points, first, last)
    ones = np.ones_like(values)
    return Codes(values, scales * ones, zero_points * ones, codes, clipped)


class Source(Protocol):
    """Numbers in rows: the channels of a weight, or one row of a list."""

    @property
    def name(self) -> str:
        """What they are called."""
        ...

    @property
    def rows(self) -> int:
        """Rows of numbers [1]."""
        ...

    @property
    def columns(self) -> int:
        """Numbers of a row [1]."""
        ...

    def read(self, start: int, stop: int) -> Floats:
        """Read some rows in double precision."""
        ...


@dataclass(frozen=True)
class Listed:
    """Numbers that were typed, or read from a text."""

    name: str
    values: Floats

    @property
    def rows(self) -> int:
        """Rows of numbers [1]."""
        return self.values.shape[0]

    @property
    def columns(self) -> int:
        """Numbers of a row [1]."""
        return self.values.shape[1]

    def read(self, start: int, stop: int) -> Floats:
        """Read some rows."""
        return self.values[start:stop]


@dataclass(frozen=True)
class Stored:
    """A tensor of a safetensors file; its last axis is a row."""

    name: str
    path: Path
    dtype: str
    offset: int
    rows: int
    columns: int

    def read(self, start: int, stop: int) -> Floats:
        """Read some rows in double precision."""
        import numpy as np

        kind = np.dtype(DECODED[self.dtype])
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset + start * self.columns * kind.itemsize)
                raw = file.read((stop - start) * self.columns * kind.itemsize)
        except OSError as e:
            reason = (e.strerror or "it cannot be read").lower()
            raise RooflmError(f"cannot read the file: {reason}", str(self.path)) from None
        found = np.frombuffer(raw, kind)
        if self.dtype == "BF16":
            found = (found.astype("<u4") << 16).view("<f4")
        values = found.astype("f8").reshape(stop - start, self.columns)
        return _checked(values, f"the tensor '{self.name}'", str(self.path))


def _checked(values: Floats, what: str, where: str) -> Floats:
    """Refuse what has no code: NaN, infinity, magnitudes whose squares overflow."""
    wrong = ~(abs(values) <= LARGEST)
    if wrong.any():
        lost = f"{what} holds {values[wrong][0]:g}, which has no code"
        raise RooflmError(lost, where, "Leave it out, or put a number in its place.")
    return values


def parse_numbers(text: str, where: str) -> Listed:
    """Read numbers between commas or blanks; lines of equally many become rows.

    A list with one number a line, or with lines of different lengths, is one row.
    """
    import numpy as np

    lines: list[list[float]] = []
    for i, line in enumerate(text.splitlines(), 1):
        words = line.partition("#")[0].replace(",", " ").split()
        try:
            numbers = [float(word) for word in words]
        except ValueError:
            wrong = next(w for w in words if not _is_number(w))
            place = f"{where}, line {i}" if len(text.splitlines()) > 1 else where
            what = f"'{printable(wrong, 40)}' is not a number"
            raise RooflmError(what, place, "Write 5.2342,1.5.") from None
        if numbers:
            lines.append(numbers)
    if not lines:
        raise RooflmError("there are no numbers", where, "Write 5.2342,1.5.")
    lengths = {len(line) for line in lines}
    if len(lengths) > 1 or lengths == {1}:
        lines = [[x for line in lines for x in line]]
    return Listed(where, _checked(np.array(lines), "the list", where))


def as_rows(values: Any, where: str) -> Listed:
    """Take an array of numbers: one row, or several of equal length."""
    import numpy as np

    fix = "Give [5.2342, 1.5], or rows of equal length."
    try:
        rows = np.atleast_2d(np.asarray(values, float))
    except (TypeError, ValueError, OverflowError):
        raise RooflmError("this is no array of numbers", where, fix) from None
    if rows.ndim > 2 or not rows.size:
        what = "there are no numbers" if not rows.size else "an array has rows, and no more axes"
        raise RooflmError(what, where, fix)
    return Listed(where, _checked(rows, "the list", where))


def parse_real(text: str, option: str) -> float:
    """Read a number of any sign."""
    if not _is_number(text):
        raise RooflmError(f"'{printable(text, 40)}' is not a number", option, "Write 0.1.")
    return float(text)


def parse_code(text: str, option: str) -> int:
    """Read a whole number of any sign."""
    if not re.fullmatch(r" *[-+]?[0-9]{1,40} *", text):
        what = f"'{printable(text, 40)}' is not a whole number"
        raise RooflmError(what, option, "Write 4.")
    return int(text)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def open_numbers(path: Path, tensor: str | None) -> Source:
    """Open a text file of numbers, or a tensor of a safetensors file."""
    if path.suffix == ".safetensors":
        return _open_tensor(path, tensor)
    if tensor is not None:
        what = "only a .safetensors file has tensors"
        raise RooflmError(what, "--tensor", "Leave the option out.")
    try:
        return parse_numbers(read_text(path, LARGEST_TEXT), str(path))
    except RooflmError as e:
        if path.suffix or is_file(str(path)):
            raise
        fix = "Numbers are read from it; of a model, say rooflm fit MODEL --weights int4."
        raise RooflmError(e.what, e.where, fix) from None


def _open_tensor(path: Path, name: str | None) -> Stored:
    from .safetensors_file import read_header

    tensors = read_header(path)
    if name is None and len(tensors) == 1:
        name = next(iter(tensors))
    if name is None or name not in tensors:
        names = list(tensors)
        few = ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")
        listed = f"The file holds {few}." if names else "The file holds none."
        if name is None:
            raise RooflmError(f"the file holds {len(tensors)} tensors", "--tensor", listed)
        what = f"no tensor '{printable(name, 80)}' in {path.name}"
        raise RooflmError(what, "--tensor", nearest(name, names) or listed)
    found = tensors[name]
    if found.dtype not in DECODED:
        what = f"the tensor '{name}' is {found.dtype}: it has codes already, or no fractions"
        raise RooflmError(what, str(path), f"Read are {', '.join(DECODED)}.")
    if not found.elements:
        raise RooflmError(f"the tensor '{name}' is empty", str(path))
    columns = found.shape[-1] if found.shape else 1
    return Stored(name, path, found.dtype, _begin(path, name), found.elements // columns, columns)


def _begin(path: Path, name: str) -> int:
    """Tell where a tensor begins in a file whose header was checked."""
    import json

    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    return 8 + length + header[name]["data_offsets"][0]


def _chunks(source: Source) -> Iterator[Floats]:
    step = max(1, CHUNK // source.columns)
    for start in range(0, source.rows, step):
        yield source.read(start, min(start + step, source.rows))


def _coded(source: Source, quantizer: Quantizer) -> Iterator[Codes]:
    """Quantize a source, some rows at a time."""
    import numpy as np

    starts = quantizer.starts(source.columns)
    lengths = np.diff([*starts, source.columns])
    if quantizer.per == "tensor" and quantizer.scale is None:
        ends = [(x.min(), x.max()) for x in _chunks(source)]
        low = np.array([[min(a for a, _ in ends)]])
        high = np.array([[max(b for _, b in ends)]])
    else:
        low = high = np.zeros((1, 1))
    for values in _chunks(source):
        if quantizer.per != "tensor":
            low = np.minimum.reduceat(values, starts, axis=1)
            high = np.maximum.reduceat(values, starts, axis=1)
        scales, zeros = quantizer.scales(low, high)
        if quantizer.per == "group":
            scales, zeros = (np.repeat(a, lengths, axis=1) for a in (scales, zeros))
        yield encode(values, scales, zeros, quantizer)


def quantize(source: Source, quantizer: Quantizer, first: int = 16) -> dict[str, Any]:
    """Answer with the first codes of some numbers, and the errors of all of them."""
    rows: list[dict[str, Any]] = []
    number = source.rows * source.columns
    clipped, worst, share, beyond, bound = 0, 0.0, 0.0, 0.0, 0.0
    squares = inside = expected = signal = 0.0
    least, most = math.inf, 0.0
    single: tuple[float, float] | None = None
    for part in _coded(source, quantizer):
        if len(rows) < first:
            rows += _rows(part, first - len(rows))
        kept = ~part.clipped
        errors = part.errors
        halves = part.scales / 2
        clipped += int(part.clipped.sum())
        worst = max(worst, float(errors[kept].max(initial=0)))
        share = max(share, float((errors / halves)[kept].max(initial=0)))
        beyond = max(beyond, float(errors[part.clipped].max(initial=0)))
        bound = max(bound, float(halves.max()))
        squares += float((errors**2).sum())
        inside += float((errors[kept] ** 2).sum())
        expected += float(uniform_mse(part.scales).sum())
        signal += float((part.values**2).sum())
        least = min(least, float(part.scales.min()))
        most = max(most, float(part.scales.max()))
        single = (float(part.scales[0, 0]), float(part.zero_points[0, 0]))
    scales = 1 if quantizer.per == "tensor" else source.rows * len(quantizer.starts(source.columns))
    bits = quantizer.bits * number + scales * (quantizer.scale_bits + quantizer.zero_bits)
    low, high = code_range(quantizer.bits, quantizer.signed)
    return {
        "schema": "rooflm.quantize/1",
        "model": None,
        "hardware": None,
        "source": source.name,
        "shape": [source.rows, source.columns],
        "bits": quantizer.bits,
        "signed": quantizer.signed,
        "symmetric": quantizer.symmetric,
        "per": quantizer.per,
        "group": quantizer.group if quantizer.per == "group" else None,
        "code_min": low,
        "code_max": high,
        "scale": single[0] if single and scales == 1 else None,
        "zero_point": int(single[1]) if single and scales == 1 else None,
        "rows": rows,
        "summary": {
            "numbers": number,
            "scales": scales,
            "scale_min": least,
            "scale_max": most,
            "max_error": worst,
            "error_bound": bound,
            "max_error_over_bound": share,
            "clipped": clipped,
            "max_clipping_error": beyond if clipped else None,
            "mse": squares / number,
            "mse_inside": inside / (number - clipped) if clipped < number else None,
            "mse_expected": expected / number,
            "snr_db": 10 * math.log10(signal / squares) if squares and signal else None,
            "bits_per_weight": bits / number,
            "bytes": math.ceil(bits / 8),
        },
        "assumptions": _assumptions(quantizer),
    }


def _rows(part: Codes, most: int) -> list[dict[str, Any]]:
    columns = part.values.shape[1]
    whole = -(-most // columns)
    flat = [
        a[:whole].ravel()[:most].tolist()
        for a in (part.values, part.scales, part.zero_points, part.codes, part.restored,
                  part.errors, part.clipped)
    ]  # fmt: skip
    return [
        {"value": x, "scale": s, "zero_point": int(z), "code": int(q), "restored": back,
         "error": error, "clipped": out}
        for x, s, z, q, back, error, out in zip(*flat, strict=True)
    ]  # fmt: skip


def _assumptions(quantizer: Quantizer) -> list[str]:
    shared = {
        "tensor": "one scale for all numbers",
        "channel": "a scale for each row",
        "group": f"a scale for each {quantizer.group:,} numbers of a row",
    }[quantizer.per]
    kept = f"fp{quantizer.scale_bits} scales"
    if quantizer.zero_bits:
        kept += f" and {quantizer.zero_bits}-bit zero points"
    return [
        f"{shared}; {kept} are counted in the bits per weight",
        "ties round to the even code; the bound of half a step holds inside the range, and numbers "
        "clipped beyond it are counted apart",
        "expected MSE: s²/12, as of numbers spread evenly between codes",
    ]
