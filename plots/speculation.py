"""Speed-up of speculation against batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..calc.errors import RooflmError
from ..calc.plain import is_list, is_map
from .axes import counted, label_axes, linear
from .legends import entries, legend, line_handle
from .series import Answer, Row, Series, drawable, few, series
from .style import BLUE, GREY, MARKERS, PALETTE, VERMILION, caption, figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SILENT = "speedup_without_messages"


def draw(answer: Answer) -> Figure:
    """Draw the speed-up of each batch, without messages as well where there are any.

    A line for what else differs, such as the context; where several draft lengths were asked for,
    the best of each batch.
    """
    given = answer.get("rows")
    batched = is_list(given) and any(is_map(row) and "batch" in row for row in given)
    if not batched and (answer.get("best") or answer.get("token") or given):
        fix = "Take `rooflm speculate TARGET --draft DRAFT --acceptance 0.8 --on HARDWARE`."
        what = "the answer has no batches: costs of drafts and laws are those of one sequence"
        raise RooflmError(what, "speculation", fix)
    rows = drawable(answer, "speculation", "batch", "context_tokens", "draft_tokens", "speedup")
    lines = few(series(answer, rows, "batch", but=("draft_tokens",)), "speculation")
    drawn = [_best(line) for line in lines]
    drawing, (ax,) = figure(1, _caption(answer, [row for own in drawn for row in own]))
    basis = str(rows[0].get("basis") or answer.get("basis") or "speed-up")
    style: dict[str, Any] = {"markersize": 4, "linewidth": 1.3}
    alone = len(lines) == 1
    silent = any(row.get(SILENT) is not None for row in rows)
    for i, (line, own) in enumerate(zip(lines, drawn, strict=True)):
        batches = [row["batch"] for row in own]
        colours = (BLUE, VERMILION) if alone else (PALETTE[i], PALETTE[i])
        markers = ("s", "o") if alone else (MARKERS[i], MARKERS[i])
        if silent:
            label = f"{basis}, no messages" if alone else "_silent"
            without = [row.get(SILENT) for row in own]
            ax.plot(batches, without, "--", color=colours[0], marker=markers[0], label=label,
                    **style)  # fmt: skip
        label = line.label
        if alone:
            label = f"{basis}, with messages" if silent else basis
        loud = [row["speedup"] for row in own]
        ax.plot(batches, loud, "-", color=colours[1], marker=markers[1], label=label, **style)
    ax.axhline(1, color=GREY, linewidth=1, linestyle=":", label="plain decoding")
    ax.set_ylim(bottom=0)
    counted(ax, "x", [row["batch"] for row in rows])
    linear(ax, "y")
    label_axes(ax, "batch [sequences]", "speed-up over plain decoding [1]")
    told = entries(ax)
    if silent and not alone:
        told.append((line_handle(linestyle="--"), "no messages"))
    legend(drawing, told)
    return drawing


def _best(line: Series) -> list[Row]:
    """Take the row of the best draft length of each batch."""
    best: dict[int, Row] = {}
    for row in line.rows:
        if row["batch"] not in best or row["speedup"] > best[row["batch"]]["speedup"]:
            best[row["batch"]] = row
    return [best[batch] for batch in sorted(best)]


def _caption(answer: Answer, drawn: Sequence[Row]) -> str:
    about = {**answer, "rows": drawn}
    said = [str(answer.get("basis") or drawn[0].get("basis") or "")]
    if answer.get("acceptance") is not None:
        said.append(f"acceptance {_listed(answer['acceptance'])}")
    for key, unit in (("draft_tokens", "drafted tokens"), ("context_tokens", "tokens of context")):
        values = sorted({row[key] for row in drawn})
        ends = f"{values[0]:,}" if len(values) == 1 else f"{values[0]:,} to {values[-1]:,}"
        said.append(f"{ends} {unit}")
    return caption(about, *said, timed=False)


def _listed(value: Any) -> str:
    """Write one value or several."""
    each = value if is_list(value) else [value]
    return ", ".join(str(v) for v in each if v is not None)
