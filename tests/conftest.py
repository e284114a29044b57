"""Fixtures of the whole suite."""

from __future__ import annotations

import pytest

from .helpers import Terminal


@pytest.fixture
def rooflm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Run the command line in this process: `rooflm("show", "gpt2")`."""
    return Terminal(monkeypatch, capsys)
