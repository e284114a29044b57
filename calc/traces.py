"""Requests read from a file: a trace of a service, or the result of a benchmark.

One request a row, in CSV (comma, tab or semicolon) or in JSON lines; columns are known by name,
whatever their case and order, and others are passed over. `LAYOUTS` has them:

| trace | time | prompt | output |
|---|---|---|---|
| rooflm's own | `arrival_s` [s] | `prompt_tokens` | `output_tokens` |
| Azure 2023, 2024 | `TIMESTAMP` [date] | `ContextTokens` | `GeneratedTokens` |
| BurstGPT | `Timestamp` [s] | `Request tokens` | `Response tokens` |
| Mooncake | `timestamp` [ms] | `input_length` | `output_length` |
| vLLM's benchmark | `start_times` [s] | `input_lens` | `output_lens` |

rooflm's own may have `priority`, `prefix` with `prefix_tokens`, and `session` as well, and BurstGPT
has `Session ID` in its newer files; what they mean, `Workload` says. Cells of these may be empty.
vLLM's result is one JSON object with a list for each (`vllm bench serve --save-result
--save-detailed`). Dates and clocks (Azure, BurstGPT, vLLM) count from the first request; the others
say themselves where 0 is. Rows without tokens of prompt or output are failures in published traces
and benchmarks: they are left out and counted. In a trace of rooflm's own they are mistakes.

Times are read from their decimals as exact numbers and rounded to ticks once, to even: times that
are equal in the file stay equal.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from fractions import Fraction
from functools import lru_cache
from io import TextIOWrapper
from itertools import chain, islice
from operator import gt, itemgetter
from pathlib import Path
from typing import Any, Literal, TypeAlias

from .clock import TICKS
from .errors import RooflmError, nearest, printable
from .plain import is_list, is_map
from .units import LARGEST
from .workload import (
    LAST_ARRIVAL,
    MOST_REQUESTS,
    Workload,
    check,
    draw_arrivals,
    exact,
    round_half_even,
    say_arrivals,
)

LONGEST_ROW = 2**20
"""Characters of a row: published ones have below 10,000."""
LONGEST_RESULT = 2**29
"""Characters of the result of a benchmark, which holds all generated texts in one line."""
DECIMALS = 30
"""Decimals of a second that are counted in whole numbers, beyond those of any float of a clock;
what has more is a fraction."""

Time: TypeAlias = int | Fraction
"""Seconds times 10**DECIMALS."""
Row: TypeAlias = tuple[int, Sequence[Any]]
"""Line, and the cells: time, prompt, output, and those of the options."""


@dataclass(frozen=True)
class Layout:
    """Columns of a trace, in lower case."""

    name: str
    time: str
    unit: Literal["s", "ms", "date"]
    prompt: str
    output: str
    session: str = ""
    """Column of the conversation; it need not be there."""
    further: tuple[str, ...] = ()
    """Columns that need not be there either."""
    unread: dict[str, str] = field(default_factory=dict[str, str])
    """What it means that a column is not read."""
    clock: bool = True
    """Time counts from the first request."""
    published: bool = True
    """Rows without tokens are failures, and left out."""

    @property
    def options(self) -> tuple[str, ...]:
        """Columns that need not be there."""
        return (*filter(None, [self.session]), *self.further)


LAYOUTS = (
    Layout(
        "rooflm", "arrival_s", "s", "prompt_tokens", "output_tokens",
        "session", ("priority", "prefix", "prefix_tokens"), clock=False, published=False,
    ),
    Layout(
        "Azure", "timestamp", "date", "contexttokens", "generatedtokens",
        unread={"numimages": "NumImages is not read: a prompt is its ContextTokens"},
    ),
    Layout(
        "BurstGPT", "timestamp", "s", "request tokens", "response tokens", "session id",
    ),
    Layout(
        "Mooncake", "timestamp", "ms", "input_length", "output_length",
        unread={"hash_ids": "hash_ids are not read: no two prompts begin with the same tokens"},
        clock=False,
    ),
)  # fmt: skip
"""Sources: github.com/Azure/AzurePublicDataset (AzureLLMInferenceDataset2023.md and ...2024.md),
github.com/HPMLL/BurstGPT, github.com/kvcache-ai/Mooncake (FAST25-release)."""
RESULT = Layout("vLLM's benchmark", "start_times", "s", "input_lens", "output_lens")
"""Source: github.com/vllm-project/vllm, vllm/benchmarks/serve.py."""

_WHOLE = re.compile(r"\s*([0-9]{1,13})(?:\.0*)?\s*").fullmatch
_PRIORITY = re.compile(r"\s*([-+]?[0-9]{1,9})(?:\.0*)?\s*").fullmatch
_DECIMAL = re.compile(r"([0-9]{0,20})(?:\.([0-9]{0,99}))?(?:[eE]([-+]?[0-9]{1,2}))?").fullmatch
_DATE = re.compile(
    r"\s*([0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}):([0-5][0-9])(?:\.([0-9]{1,30}))?"
    r"\s*(?:Z|([-+])([0-9]{2}):?([0-9]{2}))?\s*"
).fullmatch
_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)
"""Leaves the decimals of a number as they stand."""


@dataclass(frozen=True)
class _Table:
    """A trace that is being read."""

    layout: Layout
    names: list[str]
    """Columns that are read, as in a row; "" for a time that is not there."""
    found: list[str]
    """All columns, in lower case."""
    rows: Iterator[Row]
    place: Callable[[int], str]
    """Say where a row is, by its line; 0: where the columns are."""


@dataclass
class _Read:
    """What was read of a trace, in the order of the file."""

    options: dict[str, list[Any]]
    arrival: list[int] = field(default_factory=list[int])
    prompt: list[int] = field(default_factory=list[int])
    output: list[int] = field(default_factory=list[int])
    failures: int = 0
    """Rows without tokens."""


def read_trace(
    path: str | Path, rate: float | None = None, seed: int = 0, limit: int | None = None,
    scale: float = 1.0,
) -> Workload:  # fmt: skip
    """Read the requests of a trace.

    rate: requests a second, which then come at random (Poisson) by a seed, in the order of the
    file, whatever its times are; limit: requests that are read, the first of the file; scale: how
    many times faster they come. Rows that are not in the order of their times are sorted, and stay
    in their order where times are equal.
    """
    path = str(path)
    if limit is not None and limit < 1:
        raise RooflmError(f"{limit} is below 1", "--limit")
    if not 1e-9 <= scale <= 1e9:
        raise RooflmError(f"the scale {scale:g} is not between 1e-9 and 1e9", "--scale")
    try:
        with _open(path) as file:
            table = _table(file, path)
            if rate is None and not table.names[0]:
                raise _no_times(table)
            read = _gather(table, path, limit, scale if rate is None else None)
    except UnicodeError:
        raise RooflmError("the file is not text", path, "Text in UTF-8 is needed.") from None
    except RecursionError:
        raise RooflmError("the file is nested too deeply", path) from None
    except OSError as e:
        reason = (e.strerror or "cannot be read").lower()
        raise RooflmError(f"cannot read the file: {reason}", path) from None
    workload = _assemble(read, table, path, rate, seed, scale)
    check(workload)
    return workload


def _gather(table: _Table, path: str, limit: int | None, scale: float | None) -> _Read:
    """Read the rows of a trace; without a scale, times are not read."""
    layout, names, place = table.layout, table.names, table.place
    read = _Read({name: [] for name in names[3:]})
    options = [(name, values.append, _OPTIONS[name]) for name, values in read.options.items()]
    words: dict[Any, str] = {}
    shared = not read.options.keys().isdisjoint(("prefix", "prefix_tokens"))
    parse = _TIMES[layout.unit]
    per_tick = TICKS / (10**DECIMALS * exact(scale or 1))
    numerator, denominator = per_tick.numerator, per_tick.denominator
    start = None if layout.clock else 0
    for line, cells in table.rows:
        if len(read.prompt) == MOST_REQUESTS:
            what = f"the trace has more than {MOST_REQUESTS:,} requests"
            raise RooflmError(what, place(line), "Read the first of them: --limit 1M.")
        p, o = _tokens(cells[1], names[1], place, line), _tokens(cells[2], names[2], place, line)
        if not (p and o):
            if layout.published:
                read.failures += 1
                continue
            fix = "A request has a token of prompt and of output at least."
            raise RooflmError(f"{names[2] if p else names[1]} is 0", place(line), fix)
        if scale:
            time = parse(cells[0])
            if time is None:
                raise _bad_time(cells[0], layout, place(line))
            start = time if start is None else start
            read.arrival.append(_ticks(time - start, numerator, denominator))
        read.prompt.append(p)
        read.output.append(o)
        for (name, keep, kind), cell in zip(options, cells[3:], strict=True):
            # A name is kept once, however many rows have it.
            if kind is _word and type(cell) is str and cell in words:
                keep(words[cell])
            else:
                value = kind(cell, name, place, line)
                if kind is _word and type(cell) is str:
                    words[cell] = value
                keep(value)
        if shared:
            _check_prefix(read.options, p, place, line)
        if len(read.prompt) == limit:
            break
    if not read.prompt:
        what = "the trace holds no requests" + (" that have tokens" if read.failures else "")
        raise RooflmError(what, path)
    return read


def _assemble(
    read: _Read, table: _Table, path: str, rate: float | None, seed: int, scale: float
) -> Workload:
    """Make a workload of the rows that were read, in the order of their times."""
    layout, arrival = table.layout, read.arrival
    told = [f"{len(read.prompt):,} requests of {Path(path).name} ({layout.name})"]
    if read.failures:
        told.append(f"rows left out, without tokens of prompt or output: {read.failures:,}")
    told += [said for column, said in layout.unread.items() if column in table.found]
    if rate is not None:
        arrival = draw_arrivals(rate * scale, len(read.prompt), seed)
        told.append(f"they {say_arrivals(rate * scale, 'poisson')}, seed {seed}, in their order")
    elif scale != 1:
        told.append(f"they come {scale:g} times as fast as they did")
    # Columns that are the same all through say nothing.
    options = {name: values for name, values in read.options.items() if any(values)}
    prompt, output = read.prompt, read.output
    late = sum(map(gt, arrival, islice(arrival, 1, None)))
    if late:
        told.append(f"rows are sorted by time; earlier than the row above them: {late:,}")
        order = sorted(range(len(arrival)), key=arrival.__getitem__)
        first = arrival[order[0]] if layout.clock else 0
        arrival = [arrival[i] - first for i in order]
        prompt, output = [prompt[i] for i in order], [output[i] for i in order]
        options = {name: [values[i] for i in order] for name, values in options.items()}
    return Workload(
        arrival, prompt, output,
        priority=options.get("priority", []),
        prefix=options.get("prefix", []),
        prefix_tokens=options.get("prefix_tokens", []),
        session=options.get(layout.session, []),
        told=tuple(told),
    )  # fmt: skip


# Files


def _open(path: str) -> TextIOWrapper:
    """Open a text of UTF-8 or UTF-16; a pipe will do."""
    try:
        if Path(path).is_dir():
            raise RooflmError("a folder stands where a trace is needed", path)
        raw = Path(path).open("rb")  # noqa: SIM115 (what wraps it closes it)
    except ValueError:
        raise RooflmError("this is not a file name", path) from None
    head = raw.peek(1)
    wide = head[:2] in (b"\xff\xfe", b"\xfe\xff")
    if b"\0" in head and not wide:
        raw.close()
        raise RooflmError("the file is not text", path, "Text in UTF-8 is needed.")
    return TextIOWrapper(raw, encoding="utf-16" if wide else "utf-8-sig")


def _table(file: TextIOWrapper, path: str) -> _Table:
    """Tell CSV from JSON by the first line that says anything, past what is blank or a remark."""
    lines = _lines(file, path)
    for number, line in lines:
        if line.strip() and not line.startswith("#"):
            if line.lstrip().startswith(("{", "[")):
                return _of_json(number, line, lines, file, path)
            return _of_csv(number, line, lines, path)
    raise RooflmError("the file is empty", path)


def _lines(file: TextIOWrapper, path: str) -> Iterator[tuple[int, str]]:
    """Give the lines by their number; the first may be the result of a benchmark, and long."""
    number, longest = 1, LONGEST_RESULT
    while line := file.readline(longest):
        if len(line) == longest and not line.endswith("\n"):
            what = f"the row is longer than {longest:,} characters"
            raise RooflmError(what, f"{path}:{number}")
        yield number, line
        number, longest = number + 1, LONGEST_ROW


def _of_csv(first: int, header: str, lines: Iterator[tuple[int, str]], path: str) -> _Table:
    delimiter = max(",\t;", key=header.count)
    texts = chain([header], (line for _, line in lines))
    reader = csv.reader(texts, delimiter=delimiter, skipinitialspace=True, strict=True)
    # The reader counts from the header on.
    table = _csv_rows(reader, lambda: f"{path}:{first - 1 + reader.line_num}")
    found = [name.strip() for name in next(table)]
    lower = [name.lower() for name in found]
    layout = _layout(found, f"{path}:{first}")
    names = [layout.time if layout.time in lower else "", layout.prompt, layout.output]
    names += [name for name in layout.options if name in lower]
    for name in names:
        if lower.count(name) > 1:
            raise RooflmError(f"the column '{name}' stands twice", f"{path}:{first}")
    prompt = lower.index(layout.prompt)
    cells = itemgetter(*(lower.index(name or layout.prompt) for name in names))

    def rows() -> Iterator[Row]:
        for row in table:
            line = first - 1 + reader.line_num
            if len(row) == len(found) and row[prompt]:
                yield line, cells(row)
            elif not any(cell.strip() for cell in row):
                continue
            elif len(row) == len(found):
                yield line, cells(row)
            else:
                what = f"the row has {len(row)} cells and the header has {len(found)}"
                raise RooflmError(what, f"{path}:{line}")

    return _Table(layout, names, lower, rows(), lambda line: f"{path}:{line or first}")


def _csv_rows(reader: Iterator[list[str]], where: Callable[[], str]) -> Iterator[list[str]]:
    """Give the rows of a reader, or say what is wrong with one."""
    try:
        yield from reader
    except csv.Error as e:
        raise RooflmError(f"this is not CSV: {e}", where()) from None


def _of_json(
    first: int, line: str, lines: Iterator[tuple[int, str]], file: TextIOWrapper, path: str
) -> _Table:
    where = f"{path}:{first}"
    if line.lstrip().startswith("["):
        raise RooflmError("the file is a list", where, "Write one object a line (JSON Lines).")
    if line.strip() == "{":
        # An object over many lines is the result of a benchmark that somebody has formatted.
        line += file.read(LONGEST_RESULT)
    start = _object(line, path, first)
    keys = {key.lower(): key for key in start}
    if RESULT.prompt in keys or RESULT.output in keys:
        for further, rest in lines:
            if rest.strip():
                what = "the file holds more than one result"
                raise RooflmError(what, f"{path}:{further}", "Leave one line in it.")
        return _of_result(start, path)
    if "request_throughput" in keys:
        fix = "Run the benchmark with --save-detailed."
        raise RooflmError("the result of a benchmark is without lengths", where, fix)
    layout = _layout(list(start), where)
    names = [layout.time if layout.time in keys else "", layout.prompt, layout.output]
    # What a row need not have may be missing in the first.
    names += layout.options
    # Keys may be in any case, but in one all through a file.
    named = [keys.get(name, name) for name in names]

    def rows() -> Iterator[Row]:
        yield first, [start.get(name) for name in named]
        for number, text in lines:
            if text.strip():
                row = _object(text, path, number)
                yield number, [row.get(name) for name in named]

    return _Table(layout, names, list(keys), rows(), lambda line: f"{path}:{line or first}")


def _object(line: str, path: str, number: int) -> dict[str, Any]:
    """Decode the object of a line."""
    try:
        value: Any = _DECODER.decode(line.strip())
    except json.JSONDecodeError as e:
        where = f"{path}:{number + e.lineno - 1}:{e.colno}"
        raise RooflmError(f"this is not valid JSON: {e.msg.lower()}", where) from None
    except ValueError:
        raise RooflmError("a number has too many digits", f"{path}:{number}") from None
    if not is_map(value):
        fix = "Write one object a line (JSON Lines)."
        raise RooflmError("the row is not an object", f"{path}:{number}", fix)
    return value


def _of_result(result: dict[str, Any], path: str) -> _Table:
    """Take the requests of a benchmark's result out of its lists."""
    names = [RESULT.time if RESULT.time in result else "", RESULT.prompt, RESULT.output]
    lists: list[list[Any]] = []
    for name in names:
        values = result.get(name or RESULT.prompt)
        if not is_list(values):
            raise RooflmError(f"the result has no list '{name or RESULT.prompt}'", path)
        lists.append(values)
    if len({len(values) for values in lists}) != 1:
        said = ", ".join(f"{name} {len(v):,}" for name, v in zip(names, lists, strict=True) if name)
        raise RooflmError(f"the lists of the result differ in length: {said}", path)
    rows = enumerate(zip(*lists, strict=True), start=1)
    # A list has no lines: its requests are counted.
    return _Table(
        RESULT, names, list(result), rows, lambda n: f"{path}, request {n}" if n else path
    )


def _layout(found: list[str], where: str) -> Layout:
    """Tell a trace by its columns."""
    lower = [name.lower() for name in found]
    for layout in LAYOUTS:
        if layout.prompt in lower and layout.output in lower:
            return layout
    shown = f"Found: {printable(', '.join(found), 200)}."
    for layout in LAYOUTS:
        for name, other in ((layout.prompt, layout.output), (layout.output, layout.prompt)):
            if other in lower:
                meant = nearest(name, [n for n in found if n.lower() != other])
                fix = " ".join(filter(None, [meant, shown]))
                raise RooflmError(f"no column '{name}' beside '{other}'", where, fix)
    own = LAYOUTS[0]
    fix = f"Name them {own.time}, {own.prompt} and {own.output}. {shown}"
    raise RooflmError("the columns are of no known trace", where, fix)


# Cells

Place: TypeAlias = Callable[[int], str]


def _tokens(cell: Any, name: str, place: Place, line: int) -> int:
    """Read a number of tokens, 0 included."""
    if type(cell) is str and cell.isdecimal() and len(cell) <= 12:
        return int(cell)
    value = cell
    if type(cell) is str:
        match = _WHOLE(cell)
        value = int(match[1]) if match else -1
    if type(value) is not int or value < 0:
        what = f"{name} is {_shown(cell)}, which is not a whole number of tokens"
        raise RooflmError(what, place(line))
    if value > LARGEST:
        raise RooflmError(f"{name} is above {LARGEST:.0e}", place(line), "Is it a slip?")
    return value


def _whole(cell: Any, name: str, place: Place, line: int) -> int:
    """Read a priority, which may be negative; 0 where there is none."""
    if _none(cell):
        return 0
    match = _PRIORITY(str(cell)) if type(cell) in (str, int) and len(str(cell)) < 40 else None
    if not match:
        raise RooflmError(f"{name} is {_shown(cell)}, which is not a whole number", place(line))
    return int(match[1])


def _shared_tokens(cell: Any, name: str, place: Place, line: int) -> int:
    """Read the tokens of a shared prefix; 0 where there is none."""
    return 0 if _none(cell) else _tokens(cell, name, place, line)


def _word(cell: Any, name: str, place: Place, line: int) -> str:
    """Read a name, which may be a number; "" where there is none."""
    if cell is None:
        return ""
    if type(cell) not in (str, int):
        raise RooflmError(f"{name} is {_shown(cell)}, which is not a name", place(line))
    return printable(str(cell).strip(), 200)


_OPTIONS: dict[str, Callable[[Any, str, Place, int], Any]] = {
    "priority": _whole,
    "prefix": _word,
    "prefix_tokens": _shared_tokens,
    "session": _word,
    "session id": _word,
}


def _check_prefix(options: dict[str, list[Any]], prompt: int, place: Place, line: int) -> None:
    """Refuse a shared prefix that has tokens and no name, a name and no tokens, or is too long."""
    name = options["prefix"][-1] if "prefix" in options else ""
    tokens = options["prefix_tokens"][-1] if "prefix_tokens" in options else 0
    if bool(name) != bool(tokens):
        what = "prefix and prefix_tokens are not both there"
        raise RooflmError(what, place(line), "Give a shared prefix its name and its tokens.")
    if tokens > prompt:
        what = f"a prefix of {tokens:,} tokens is longer than its prompt of {prompt:,}"
        raise RooflmError(what, place(line))


def _none(cell: Any) -> bool:
    return cell is None or (type(cell) is str and not cell.strip())


def _shown(cell: Any) -> str:
    """Show a cell in a sentence."""
    if _none(cell):
        return "empty"
    if isinstance(cell, bool):
        return "true or false"
    if is_list(cell) or is_map(cell):
        return "a list" if is_list(cell) else "an object"
    return f"'{printable(_digits(cell), 40)}'"


def _digits(cell: Any) -> str:
    # Python prints no whole number of more than 4,300 digits.
    return str(cell) if type(cell) is not int or abs(cell) < 10**40 else "a long number"


# Times

_POWERS = [10**n for n in range(DECIMALS + 1)]
_LAST = LAST_ARRIVAL * 10**DECIMALS


def _seconds(cell: Any, shift: int = 0) -> Time | None:
    """Read seconds times 10**shift, exactly; nothing where they are no time from 0 on."""
    if type(cell) is int:
        whole, decimals, exponent = cell, "", 0
        if not 0 <= cell <= LAST_ARRIVAL * 10**shift:
            return None
    else:
        match = _DECIMAL(cell.strip()) if type(cell) is str else None
        if not match or not (match[1] or match[2]):
            return None
        decimals = match[2] or ""
        whole, exponent = int(match[1] + decimals), int(match[3] or 0)
    power = DECIMALS - shift - len(decimals) + exponent
    if power >= 0:
        time = whole * (_POWERS[power] if power <= DECIMALS else 10**power)
    else:
        time = Fraction(whole, 10**-power)
    return time if time <= _LAST else None


def _milliseconds(cell: Any) -> Time | None:
    return _seconds(cell, 3)


def _date(cell: Any) -> Time | None:
    """Read a date and time of day, of UTC where no offset is given, as seconds from year 1 on."""
    match = _DATE(cell) if type(cell) is str else None
    minute = _minute(match[1]) if match else None
    if not match or minute is None:
        return None
    if match[4]:
        offset = int(match[5]) * 60 + int(match[6])
        minute += -offset if match[4] == "+" else offset
    decimals = match[3] or ""
    return int(f"{minute * 60 + int(match[2])}{decimals}") * _POWERS[DECIMALS - len(decimals)]


@lru_cache(maxsize=64)
def _minute(text: str) -> int | None:
    """Count the minutes from year 1 on to one such as 2023-11-16 18:17."""
    try:
        time = datetime.strptime(text.replace("T", " "), "%Y-%m-%d %H:%M")
    except ValueError:
        return None
    return (time.toordinal() * 24 + time.hour) * 60 + time.minute


_TIMES: dict[str, Callable[[Any], Time | None]] = {
    "s": _seconds,
    "ms": _milliseconds,
    "date": _date,
}


def _ticks(time: Time, numerator: int, denominator: int) -> int:
    """Round an exact time to ticks, to even."""
    if type(time) is int:
        return round_half_even(time * numerator, denominator)
    return round(time * Fraction(numerator, denominator))


def _no_times(table: _Table) -> RooflmError:
    close = nearest(table.layout.time, table.found)
    fix = " ".join(filter(None, [close, "Or give a rate, such as --rate 5."]))
    return RooflmError(f"no times: '{table.layout.time}' is missing", table.place(0), fix)


def _bad_time(cell: Any, layout: Layout, where: str) -> RooflmError:
    kind = {"s": "seconds from 0 on", "ms": "milliseconds from 0 on", "date": "a date and time"}
    fix = "Write 2023-11-16 18:17:03.98." if layout.unit == "date" else ""
    return RooflmError(
        f"{layout.time} is {_shown(cell)}, which is not {kind[layout.unit]}", where, fix
    )
