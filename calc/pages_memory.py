"""What people see of an engine's memory: its own lines, in its own units."""

from __future__ import annotations

from typing import Any

from .output import Page, Table
from .pages import fit_page, yes

GIB, MIB = 2**30, 2**20
Answer = dict[str, Any]
Row = tuple[str, ...]


def fit_memory_page(answer: Answer) -> Page:
    """Lay out whether a model fits, and beside it what an engine would print."""
    page = fit_page(answer)
    engine = answer["engine"]
    return Page([*page.tables, engine_table(engine)], [*page.notes, *engine["sentences"]])


def engine_table(engine: Answer) -> Table:
    """Lay out the memory of an engine line by line, with the range of what only a run can tell."""
    version = "" if engine["version"] is None else f" {engine['version']}"
    rows = _llama_rows(engine) if engine["share"] is None else _pool_rows(engine)
    rows += [
        _size("one request of the longest length: needed [GiB]", engine["request_needed_bytes"]),
        _size("the same: reserved [GiB]", engine["request_reserved_bytes"]),
    ]
    if engine["request_padded_bytes"] is not None:
        rows.append(_size("the same: if all layers are full [GiB]", engine["request_padded_bytes"]))
    rows.append(_three(engine, "starts, by memory", "starts", "", yes))
    heads = ("line", "counted", "least", "most")
    return Table(
        heads, rows, f"{engine['name']}{version}, the fullest device", keys=1, words=heads[:1]
    )


def _pool_rows(engine: Answer) -> list[Row]:
    total = engine["total_bytes"]
    rows = [
        _size("memory of the device [GiB]", total),
        (engine["share_name"], f"{engine['share']:.4g}", "", ""),
    ]
    if "share_without_graphs" in engine:
        rows.append(
            (
                "share with as much left for caches if graphs were not counted",
                f"{engine['share_without_graphs']:.4f}",
                "",
                "",
            )
        )
    rows.append(_size("weights [GiB]", engine["weights_bytes"]))
    rows += [
        _size(f"{one['input'].replace('_', ' ')} [GiB]", one["bytes"], one["low_bytes"],
              one["high_bytes"])
        for one in engine["inputs"]
    ]  # fmt: skip
    rows.append(_three(engine, "available for caches [GiB]", "pool", "_bytes", _gib))
    if engine["blocks"] is not None:
        rows.append(_three(engine, "blocks", "blocks", "", _count))
    rows.append(_three(engine, "cache size [tokens]", "tokens", "", _count))
    length = f"{engine['max_len']:,}"
    rows.append(_three(engine, f"maximum concurrency for {length} tokens per request",
                       "max_concurrency", "", _times))  # fmt: skip
    rows.append(_three(engine, "estimated maximum model length [tokens]", "estimated_max_len", "",
                       _count))  # fmt: skip
    names = {"state_slots": "states", "window_tokens": "tokens of window layers"}
    rows += [(name, _count(engine[key]), "", "") for key, name in names.items() if key in engine]
    sizes = {"k_bytes": "K size [GiB]", "v_bytes": "V size [GiB]"}
    return rows + [_size(name, engine[key]) for key, name in sizes.items() if key in engine]


def _llama_rows(engine: Answer) -> list[Row]:
    buffer = engine["inputs"][0]
    rows = [
        _size("memory of the device [MiB]", engine["total_bytes"], unit=MIB),
        _size("weights on the device [MiB]", engine["weights_bytes"], unit=MIB),
        ("cells", _count(engine["cells"]), "", ""),
        *((f"cells of layers with a window of {int(window):,}", _count(cells), "", "")
          for window, cells in engine["window_cells"].items()),
        _size("KV self size [MiB]", engine["k_bytes"] + engine["v_bytes"], unit=MIB),
        _size("K [MiB]", engine["k_bytes"], unit=MIB),
        _size("V [MiB]", engine["v_bytes"], unit=MIB),
    ]  # fmt: skip
    if engine["state_bytes"]:
        rows.append(_size("recurrent states [MiB]", engine["state_bytes"], unit=MIB))
    rows += [
        _size("compute buffers [MiB]", buffer["bytes"], buffer["low_bytes"], buffer["high_bytes"],
              MIB),
        _size("allocated [MiB]", engine["reserved_bytes"], engine["reserved_low_bytes"],
              engine["reserved_high_bytes"], MIB),
        ("slots", _count(engine["max_sequences"]), "", ""),
        ("longest context that fits [tokens]", _count(engine["estimated_max_len"]), "", ""),
    ]  # fmt: skip
    return rows


def _size(
    name: str, size: float, low: float | None = None, high: float | None = None, unit: int = GIB
) -> Row:
    ends = () if low is None or high is None or low == high else (low, high)
    cells = [f"{n / unit:,.2f}" for n in ends]
    return (name, f"{size / unit:,.2f}", *(cells or ("", "")))


def _three(engine: Answer, name: str, key: str, tail: str, show: Any) -> Row:
    middle, low, high = (engine[f"{key}{end}{tail}"] for end in ("", "_low", "_high"))
    ends = ("", "") if low == high else (show(low), show(high))
    return (name, show(middle), *ends)


def _gib(size: float) -> str:
    return f"{size / GIB:,.2f}"


def _count(number: float) -> str:
    return f"{number:,}"


def _times(number: float) -> str:
    return f"{number:,.2f}x"
