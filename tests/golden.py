"""Tables of expected values: where they are and how a test reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rooflm.calc.yamlfile import load

GOLDEN = Path(__file__).parent / "golden"


def table(name: str) -> Any:
    """Read a table of expected values by the project's own strict loader."""
    path = GOLDEN / f"{name}.yaml"
    return load(path.read_text("utf-8"), path.name).value
