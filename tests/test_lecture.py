"""The lecture's table and the default accounting, on the command line's JSON."""

from __future__ import annotations

import pytest

from .helpers import Terminal, only

SWEEP = ("sweep", "llama-2-13b", "--on", "h100-sxm", "--context", "1024")

# Stanford CS336 lecture 10, compute_transformer_performance_stats:
# batch, GB, ms, tokens/s, fits 80e9 bytes; then the same with K = 8.
TABLE = [
    (1, 26.87, 8.02, 124.7, True),
    (64, 79.72, 23.80, 2689, True),
    (256, 240.78, 71.87, 3562, False),
]
TABLE_K8 = [(64, 33.41, 9.97, 6417, True), (256, 65.63, 19.59, 13068, True)]


@pytest.mark.parametrize(("changes", "expected"), [((), TABLE), (("--set", "K=8"), TABLE_K8)])
def test_lecture_table(
    rooflm: Terminal,
    changes: tuple[str, ...],
    expected: list[tuple[int, float, float, float, bool]],
) -> None:
    """Memory, latency, throughput and fit of the lecture, to its printed digits."""
    batches = ",".join(str(row[0]) for row in expected)
    answer = rooflm.json(*SWEEP, "--batch", batches, "--accounting", "lecture", *changes)

    for row, (batch, gb, ms, tokens, fits) in zip(answer["rows"], expected, strict=True):
        assert row["batch"] == batch
        assert round(row["memory_bytes"] / 1e9, 2) == gb
        assert round(row["time_s"] * 1e3, 2) == ms
        assert row["tokens_per_s"] == pytest.approx(tokens, abs=0.5 if tokens > 1000 else 0.05)
        assert row["fits"] is fits
        assert (row["basis"], row["regime"]) == ("lecture", "memory")
        assert row["capacity_bytes"] == 80_000_000_000
        assert "bound_s" not in row


def test_contract_example(rooflm: Terminal) -> None:
    """The example of the contract, digit by digit."""
    answer = rooflm.json(*SWEEP, "--batch", "64", "--accounting", "lecture")
    row = only(answer["rows"])

    assert answer["schema"] == "rooflm.sweep/1"
    assert (answer["model"], answer["hardware"]) == ("llama-2-13b", "h100-sxm")
    assert answer["assumptions"]
    assert row["weights_bytes"] == 26030899200
    assert row["kv_cache_bytes"] == 53687091200
    assert row["memory_bytes"] == 79717990400
    assert round(row["time_s"], 7) == 0.0237964
    assert round(row["tokens_per_s"], 2) == 2689.48


def test_both_parameter_counts(rooflm: Terminal) -> None:
    """13,015,449,600 in the lecture's accounting, 13,015,864,320 with norms."""
    full = rooflm.json("show", "llama-2-13b")
    lecture = rooflm.json("show", "llama-2-13b", "--accounting", "lecture")

    assert full["parameters"]["total"] == 13_015_864_320
    assert lecture["parameters"]["total"] == 13_015_449_600


def test_default_accounting(rooflm: Terminal) -> None:
    """The bound streams no input embedding and writes the new entries: 7.923 and 23.71 ms."""
    answer = rooflm.json(*SWEEP, "--batch", "1,64")
    one, many = answer["rows"]

    assert one["bound_s"] == pytest.approx(7.923e-3, rel=1e-3)
    assert many["bound_s"] == pytest.approx(23.71e-3, rel=1e-3)
    assert one["time_s"] == one["estimate_s"] > one["bound_s"]
    assert one["basis"] == "estimate"
    assert one["floor_s"] <= one["bound_s"]
    plain = rooflm.json(*SWEEP, "--basis", "bound")["rows"][0]
    assert plain["time_s"] == plain["bound_s"] == one["bound_s"]
    assert plain["estimate_s"] == one["estimate_s"]
    assert many["capacity_bytes"] == 85_520_809_984
    assert answer["capacity_basis"] == "driver"
    assert answer["capacity_nominal_bytes"] == 80_000_000_000


def test_table_says_which_capacity_decided(rooflm: Terminal) -> None:
    """Both capacities are named below the table, the deciding one first."""
    full = rooflm(*SWEEP).out
    lecture = rooflm(*SWEEP, "--accounting", "lecture").out

    assert "capacity: 85.52 GB, as the driver reports (nominal 80.00 GB)" in full
    assert "capacity: 80.00 GB nominal (the driver reports 85.52 GB)" in lecture


def test_elasticities_add_to_one(rooflm: Terminal) -> None:
    """Every byte of the lecture is proportional to L or to V: doubling both doubles the time."""
    args = ("--batch", "64", "--accounting", "lecture")
    time = only(rooflm.json(*SWEEP, *args)["rows"])["time_s"]
    deeper = only(rooflm.json(*SWEEP, *args, "--set", "L=80")["rows"])["time_s"]
    wider = only(rooflm.json(*SWEEP, *args, "--set", "V=64000")["rows"])["time_s"]

    assert (deeper - time) / time + (wider - time) / time == pytest.approx(1, rel=1e-12)


def test_problem_10_2_on_the_command_line(rooflm: Terminal) -> None:
    """Llama-3-8B at 4096 tokens: 119 sequences fit beside its weights in 80e9 bytes."""
    answer = rooflm.json(
        "fit", "llama-3-8b", "--on", "h100-sxm", "--context", "4096", "--accounting", "lecture"
    )

    assert answer["max_sequences"] == 119
    assert answer["memory"]["kv_cache_bytes"] == 536_870_912
