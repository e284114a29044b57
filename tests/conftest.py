"""Fixtures of the whole suite."""

from __future__ import annotations

import os

import pytest

from .helpers import Terminal

# Workers share the cores: torch in each, with a thread for every core, would wait for itself.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def rooflm(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """Run the command line in this process: `rooflm("show", "gpt2")`."""
    return Terminal(monkeypatch, capsys)
