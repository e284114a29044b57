"""Measurements run on this CPU; without torch they say what to install."""

from __future__ import annotations

import json
import subprocess
import sys

MEASURE = [sys.executable, "-m", "rooflm.validate"]


def test_the_cpu_is_measured() -> None:
    """The read bandwidth of the CPU is a plausible figure, with its spread and versions."""
    ran = subprocess.run(MEASURE, capture_output=True, text=True, check=True)
    answer = json.loads(ran.stdout)

    assert answer["buffer_bytes"] == 2**30
    assert 1e8 < answer["slowest_bytes_per_s"] <= answer["read_bytes_per_s"]
    assert answer["read_bytes_per_s"] <= answer["fastest_bytes_per_s"] < 1e13


def test_a_wrong_device_is_refused() -> None:
    """An unknown device exits 2, a missing one 3."""
    codes = [
        subprocess.run([*MEASURE, d], capture_output=True, check=False).returncode
        for d in ("tpu", "cuda")
    ]

    assert codes[0] == 2
    assert codes[1] in (0, 3)


def test_without_torch_it_says_what_to_install() -> None:
    """Exit 3 with the install command."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from rooflm.validate.__main__ import main\n"
        "sys.exit(main([]))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)

    assert ran.returncode == 3
    assert "pip install 'rooflm[validate]'" in ran.stderr
