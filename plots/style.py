"""One style for every figure: colour-blind-safe, legible in print and at half size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..calc.errors import RooflmError
from ..calc.output import write_file

BLUE, VERMILION, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#6b6b6b"
"""Okabe and Ito's colours, told apart with any colour vision and in grey."""

FILE_TYPES = (".png", ".svg", ".pdf")


def figure(columns: int, caption: str) -> tuple[Any, Any]:
    """Make a figure with axes side by side and a caption of the assumptions below."""
    import textwrap

    from matplotlib.figure import Figure

    drawing = Figure(figsize=(5.2 * columns, 4.4), dpi=150, layout="constrained")
    axes = drawing.subplots(1, columns, squeeze=False)[0]
    for ax in axes:
        ax.grid(True, color="#dddddd", linewidth=0.6)
        ax.spines[["top", "right"]].set_visible(False)
    wrapped = "\n".join(textwrap.wrap(caption, 78 * columns))
    drawing.supxlabel(wrapped, fontsize=8, color=GREY, x=0.01, ha="left")
    return drawing, axes


def save(drawing: Any, path: str) -> None:
    """Write a figure; the suffix of the path says how."""
    if Path(path).suffix.lower() not in FILE_TYPES:
        raise RooflmError(f"a figure is {', '.join(FILE_TYPES)}", f"--plot {path}")
    import io

    from matplotlib import rc_context  # pyright: ignore[reportUnknownVariableType]

    image, kind = io.BytesIO(), Path(path).suffix[1:].lower()
    # The same figure is the same file: no date, no random names.
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with rc_context({"svg.hashsalt": "rooflm"}):
        drawing.savefig(image, format=kind, metadata=undated)
    write_file(image.getvalue(), path, "--plot")
