"""What people see of a log that was explained."""

from __future__ import annotations

from typing import Any

from .errors import printable
from .output import Page, Table
from .units import show_number

Answer = dict[str, Any]


def log_page(answer: Answer) -> Page:
    """Lay out each figure beside what it should be; what fills a difference stands below."""
    rows = [
        (f"{f['line']}", _says(f), _value(f), _expected(f), _verdict(f), printable(f["how"], 300))
        for f in answer["figures"]
    ]
    heads = ("line", "figure", "log says", "should be", "agrees", "from")
    tables = [Table(heads, rows, _title(answer), keys=2, words=("agrees", "from"))]
    if answer["settings"]:
        told = [(name, printable(str(v), 80)) for name, v in answer["settings"].items()]
        tables.append(Table(("setting", "value"), told, words=("value",)))
    return Page(tables, [*_notes(answer), *map(printable, answer["assumptions"])])


def _title(answer: Answer) -> str:
    version = f" {answer['version']}" if answer["version"] else ""
    model = answer["model"] or answer["preset"] or "no model named"
    preset = answer["preset"]
    meant = f" (preset {preset})" if preset and preset != model else ""
    return printable(f"{model}{meant}, {answer['engine']}{version}", 200)


def _says(figure: Answer) -> str:
    rank = f" ({figure['ranks']} ranks)" if figure["ranks"] > 1 else ""
    if figure["rank"] and figure["ranks"] == 1:
        rank = f" ({printable(figure['rank'], 20)})"
    return f"{figure['says']}{rank}"


def _value(figure: Answer) -> str:
    unit, means = figure["unit"], figure["unit_means"]
    told = unit if unit == means else f"{unit} = {means}"
    return _number(figure["value"]) + (f" {told}" if unit else "")


def _expected(figure: Answer) -> str:
    if figure["expected"] is None:
        return "-"
    unit = figure["unit_means"]
    return _number(figure["expected"]) + (f" {unit}" if unit else "")


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4f}".rstrip("0").rstrip(".")


def _verdict(figure: Answer) -> str:
    if figure["agrees"] is None:
        return "-"
    if figure["agrees"]:
        return "yes"
    off = figure["off"]
    return "no" if off is None else f"no: {'+' if off > 0 else '-'}{show_number(abs(100 * off))} %"


def _notes(answer: Answer) -> list[str]:
    """Say what fills differences, and how much was left alone."""
    said = [
        f"line {f['line']}, {f['says']}: what may fill the difference: {f['fills']}"
        for f in answer["figures"]
        if f["fills"]
    ]
    judged, agreeing = answer["judged"], answer["agreeing"]
    said.append(f"{agreeing} of {judged} figures that follow from others or the model agree")
    said.append(f"{answer['unknown_lines']:,} of {answer['lines']:,} lines were left alone")
    return said
