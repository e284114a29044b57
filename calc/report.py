"""A study as one page: tables, figures, formulas, assumptions and the commands behind them.

The page is one file: no network, readable without script, for screens and paper.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from .asked import denoises, is_mixed, works_of
from .errors import RooflmError
from .expectations import at
from .labels import words
from .output import MOST_TABLE_ROWS, Table
from .pages_study import columns_of, expectations_table, expected_sentence, rows_table, shown_keys
from .plain import is_map, is_number
from .study import Probe, Ready
from .study_figures import draw_figures

TEMPLATE = Path(__file__).with_name("report_page.html")
WIDE = 7.0
"""Width of a figure beyond which it has panels side by side [inches]."""
MOST_UNFOLDED = 30
"""Expectations that are shown without unfolding them."""
MOST_NAMED = 6
"""Models or machines that are named below the title; of more their number."""
MOST_FORMULAS = 40
"""Formulas of a page: quantities times variants whose formulas differ."""

Answer = Mapping[str, Any]


def check_size(ready: Ready) -> None:
    """Refuse a page of more rows than anybody reads."""
    if ready.points > MOST_TABLE_ROWS:
        what = f"{ready.points:,} rows are more than the {MOST_TABLE_ROWS:,} of a page"
        raise RooflmError(what, ready.study.path, "Take a smaller grid, or rooflm study --output.")


def page(ready: Ready, answer: Answer) -> str:
    """Write a study as a page of HTML."""
    from importlib.metadata import version

    name, source = answer["study"], "\n".join(ready.study.text.sources)
    sections = [
        *_figures(ready, answer),
        *_rows(answer),
        *_expected(answer),
        *_variants(answer),
        *_facts(answer),
        *_formulas(ready),
        _section("What is taken for granted", _list(answer["assumptions"])),
        _section("The study", f"<pre><code>{escape(source)}</code></pre>"),
    ]
    intro = f"<p>{escape(answer['says'])}</p>" if answer["says"] else ""
    told = " on ".join(filter(None, (_names(answer[k], f"{k}s") for k in ("model", "hardware"))))
    told = told.replace("hardwares", "machines")
    if answer["draft"]:
        told += f", drafted by {answer['draft']}"
    intro += f'<p class="dim">{escape(told)}</p>' if told else ""
    made = f"rooflm report {name}"
    return Template(TEMPLATE.read_text("utf-8")).substitute(
        title=escape(answer["title"]),
        version=escape(version("rooflm")),
        intro=intro,
        sections="\n".join(sections),
        footer=f"Made by <code>{escape(made)}</code>, rooflm {escape(version('rooflm'))}.",
    )


def _names(names: Sequence[str], kind: str) -> str:
    return ", ".join(names) if len(names) <= MOST_NAMED else f"{len(names)} {kind}"


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>"


def _list(lines: Sequence[str]) -> str:
    return "<ul>\n" + "\n".join(f"<li>{_linked(line)}</li>" for line in lines) + "\n</ul>"


def _linked(text: str) -> str:
    """Escape a text, and make links of the addresses in it."""
    found = re.split(r"(https?://[^\s<>\"']*[\w/])", text)
    return "".join(
        f'<a href="{escape(part)}">{escape(part)}</a>' if i % 2 else escape(part)
        for i, part in enumerate(found)
    )


def table(
    shown: Table, values: Sequence[Sequence[Any]] = (), sortable: bool = False,
    failing: Sequence[bool] = (),
) -> str:  # fmt: skip
    """Write a table; values: what each cell sorts by; failing: which rows tell of a failure."""
    heads = "".join(
        f'<th scope="col"{" class=word" if shown.is_words(i) else ""}>{escape(head)}</th>'
        for i, head in enumerate(shown.heads)
    )
    rows: list[str] = []
    for r, row in enumerate(shown.rows):
        cells: list[str] = []
        for i, cell in enumerate(row):
            kind = " class=word" if shown.is_words(i) else ""
            value = values[r][i] if values else None
            data = f' data-value="{value!r}"' if is_number(value) else ""
            cells.append(f"<td{kind}{data}>{escape(cell)}</td>")
        marked = " class=fails" if failing and failing[r] else ""
        rows.append(f"<tr{marked}>{''.join(cells)}</tr>")
    label = escape(shown.title or "table")
    caption = f"<caption>{label}</caption>" if shown.title else ""
    kind = ' class="sortable"' if sortable else ""
    return (
        f'<div class="wide" tabindex="0" role="region" aria-label="{label}"><table{kind}>{caption}'
        f"<thead><tr>{heads}</tr></thead>\n<tbody>\n" + "\n".join(rows) + "\n</tbody></table></div>"
    )


def _rows(answer: Answer) -> Iterator[str]:
    keys, columns = shown_keys(answer), columns_of(answer)
    names = [*keys, *(c.key for c in columns)]
    values = [[row.get(name) for name in names] for row in answer["rows"]]
    derived = [f"{name} = {text}" for name, text in answer["derive"].items()]
    body = table(rows_table(answer), values, sortable=True)
    yield _section("Numbers", body + (_list(derived) if derived else ""))


def _expected(answer: Answer) -> Iterator[str]:
    verdicts = answer["expectations"]
    if not verdicts:
        return
    right = all(v["holds"] for v in verdicts)
    kind = "holds" if right else "fails"
    said = f'<p class="{kind}">{escape(expected_sentence(verdicts))}</p>'
    shown = expectations_table(verdicts, "What was expected of which row")
    # Where it stands in the file is of no use on a page; whether it holds is.
    rows = [(*row[:-1], "yes" if v["holds"] else "no") for row, v in
            zip(shown.rows, verdicts, strict=True)]  # fmt: skip
    heads = (*shown.heads[:-1], "holds")
    laid = Table(heads, rows, shown.title, shown.keys, ("expected", "found"))
    sources = list(dict.fromkeys(v["source"] for v in verdicts if v["source"]))
    body = table(laid, failing=[not v["holds"] for v in verdicts])
    if right and len(verdicts) > MOST_UNFOLDED:
        body = f"<details><summary>All {len(verdicts):,}</summary>{body}</details>"
    yield _section("What was expected", said + body + (_list(sources) if sources else ""))


def _variants(answer: Answer) -> Iterator[str]:
    parts: list[str] = []
    first = ", ".join(answer["one_at_a_time"])
    if first:
        parts.append(f"<p>Each command is of the first {escape(first)}; the others are alike.</p>")
    for variant in answer["variants"]:
        changes = ", ".join(
            f"{k} {at(v) if is_map(v) else v}" for k, v in variant["changes"].items()
        )
        told = f": {escape(changes)}" if changes else ""
        parts.append(
            f"<h3>{escape(variant['variant'])}<span class=dim>{told}</span></h3>"
            f"<pre><code>{escape(variant['command'])}</code></pre>"
        )
    yield _section("Variants, and the commands that answer them", "\n".join(parts))


def _facts(answer: Answer) -> Iterator[str]:
    if answer["facts"]:
        units = {
            name: f" [{f['unit']}]" if f["unit"] else "" for name, f in answer["facts"].items()
        }
        lines = [f"{f['label']}{units[n]}: {f['source']}" for n, f in answer["facts"].items()]
        yield _section("What was given and not computed", _list(lines))


def _figures(ready: Ready, answer: Answer) -> Iterator[str]:
    from ..plots.kinds import KINDS
    from ..plots.style import svg
    from ..plots.words import words as in_words

    drawn: list[str] = []
    for i, (figure, drawing) in enumerate(draw_figures(ready, answer)):
        title = figure.title or KINDS[figure.kind].says
        text = _own_ids(svg(drawing, transparent=True), f"f{i}-")
        said = in_words(drawing, KINDS[figure.kind].says)
        # A wide figure is scrolled on a narrow screen: its text would be too small to read.
        wide = ' class="wide"' if drawing.get_figwidth() > WIDE else ""
        start = f'<svg{wide} role="img" aria-label="{escape(title)}" aria-describedby="f{i}-said" '
        drawn.append(
            f'<figure>\n<div class="scroll">{text.replace("<svg ", start, 1)}</div>\n<figcaption>'
            f"{escape(title)}"
            f'<details><summary>In words</summary><p id="f{i}-said">{escape(said)}</p></details>'
            "</figcaption>\n</figure>"
        )
    if drawn:
        yield _section("Figures", "\n".join(drawn))


def _own_ids(text: str, prefix: str) -> str:
    """Take an SVG out of its file, and make its names its own: several stand in one page."""
    text = text[text.index("<svg ") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    return re.sub(r'(url\(|href=")#', rf"\1#{prefix}", text)


def _formulas(ready: Ready) -> Iterator[str]:
    """Write the formula of each quantity, once for all variants that share it."""
    from .definitions import Question
    from .explain import formulas
    from .symbols import mathml, text

    shared: dict[tuple[str, ...], tuple[str, list[str]]] = {}
    for name, probe in ready.probes.items():
        if probe.case is None or probe.failed or not _has_formulas(ready, probe):
            continue
        row, works = probe.rows[0], works_of(probe.words)
        question = Question(
            probe.case, row["batch"], row["context_tokens"], works[0] if works else None
        )
        for lines in formulas(question, _formulated(ready, probe)).values():
            told = tuple(f"{inner} = {text(formula)}" for inner, formula in lines)
            if told not in shared and len(shared) < MOST_FORMULAS:
                rendered = "\n".join(f'<div class="formula">{mathml(n, f)}</div>' for n, f in lines)
                shared[told] = (rendered, [])
            if told in shared and name not in shared[told][1]:
                shared[told][1].append(name)
    parts: list[str] = []
    for told, (rendered, names) in shared.items():
        key = told[0].partition(" = ")[0]
        of = "" if len(names) == len(ready.probes) else f" of {', '.join(names)}"
        label = words(key)
        parts.append(
            f"<details><summary>{escape(label)}{escape(of)}</summary>\n{rendered}\n</details>"
        )
    if parts:
        yield _section("Formulas", "\n".join(parts))


def _has_formulas(ready: Ready, probe: Probe) -> bool:
    """Tell whether rows are steps, prefills or requests of one machine, which have formulas."""
    words, known = probe.words, (None, "decode", "prefill", "request")
    plain = words.get("phase") in known and words.get("prefill_on") is None
    whole = probe.case is not None and not denoises(words, probe.case)
    mixed = is_mixed(words)
    return ready.study.command == "sweep" and "phase" not in ready.study.axes and plain and (
        whole and not mixed
    )  # fmt: skip


def _formulated(ready: Ready, probe: Probe) -> list[str]:
    """Name the quantities whose formulas are those of the rows: no estimates of layouts."""
    estimated = probe.rows[0].get("basis") == "estimate"
    if not estimated or probe.case is None or probe.case.layout is None:
        return list(ready.measured)
    timed = ("time_s", "tokens_per_s", "output_usd_per_mtok", "joules_per_token")
    return [key for key in ready.measured if "estimate" not in key and not key.startswith(timed)]
