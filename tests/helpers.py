"""What several tests need: the lecture's machine, and the command line run in this process."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from rooflm.calc import __main__ as entry
from rooflm.calc.communication import Communication, Link, Links, rank_messages
from rooflm.calc.hardware import Machine
from rooflm.calc.layout import Layout, fullest, shard
from rooflm.calc.model import Model
from rooflm.calc.passes import BF16, Segment


def h100() -> Machine:
    """Make the H100 of the lecture: 80e9 B, 989e12 FLOP/s, 3.35e12 B/s; the driver's capacity."""
    return Machine(
        name="h100",
        full_name="H100 of the lecture",
        kind="gpu",
        bandwidth_bytes_per_s=3.35e12,
        label_bytes=80_000_000_000,
        driver_bytes=85_520_809_984,
        flops={"bf16": 989e12, "fp16": 989e12},
    )


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its answer."""
        return json.loads(self.out)


class Terminal:
    """Runs `rooflm` commands in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch, self.capsys = monkeypatch, capsys

    def __call__(self, *words: str) -> Ran:
        """Run one command; a word with spaces stays one word."""
        self.monkeypatch.setattr(sys, "argv", ["rooflm", *words])
        with pytest.raises(SystemExit) as stopped:
            entry.main()
        printed = self.capsys.readouterr()
        code = stopped.value.code
        assert isinstance(code, int)
        return Ran(code, printed.out, printed.err)

    def json(self, *words: str) -> dict[str, Any]:
        """Run a command that must succeed and return its JSON."""
        ran = self(*words, "--format", "json")
        assert ran.code == 0, ran.err
        return ran.json


def messages(
    model: Model, layout: Layout, segments: Sequence[Segment], link: Link
) -> list[Communication]:
    """List what the fullest rank of a layout within one node sends in a pass."""
    rank = fullest(shard(model, layout))
    return rank_messages(rank, segments, BF16, Links(link, node_devices=layout.devices))


def only(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Take the one row there is."""
    assert len(rows) == 1
    return rows[0]
