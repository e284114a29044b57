"""Hardware presets: figures that are published, checked against each other and against drivers."""

from __future__ import annotations

import pytest

from rooflm.calc.errors import RooflmError
from rooflm.calc.hardware import Machine, bound_flops, capacity
from rooflm.calc.listing import all_machines, list_hardware
from rooflm.calc.presets import find_machine

MACHINES = all_machines()

DRIVER_MIB = {
    # Totals of nvidia-smi; H100 and H200 also in the Stanford CS336 and vLLM notes on capacity.
    "h100-sxm": 81559,
    "h200-sxm": 143771,
    "rtx-4090": 24564,
    "l40s": 46068,
    "l4": 23034,
}


def test_there_are_forty_machines_and_more() -> None:
    """GPUs, TPUs, accelerators, unified memory and CPUs are all there."""
    assert len(MACHINES) >= 40
    assert {m.kind for m in MACHINES} == {"gpu", "tpu", "accelerator", "unified", "cpu"}


@pytest.mark.parametrize("name", DRIVER_MIB)
def test_driver_totals_are_those_of_nvidia_smi(name: str) -> None:
    """The driver's figure is the MiB that nvidia-smi prints."""
    assert find_machine(name).driver_bytes == DRIVER_MIB[name] * 2**20


def test_lecture_figures_of_the_h100() -> None:
    """80e9 B, 989e12 FLOP/s, 3.35e12 B/s (CS336 lecture 10); 85,520,809,984 B by the driver."""
    h100 = find_machine("h100-sxm")

    assert (h100.label_bytes, h100.driver_bytes) == (80_000_000_000, 85_520_809_984)
    assert (h100.flops["bf16"], h100.bandwidth_bytes_per_s) == (989e12, 3.35e12)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_figures_are_dense_and_consistent(machine: Machine) -> None:
    """Peaks halve with each doubling of width, and no sparse headline slipped in.

    No chip of these has a dense 16-bit ridge above 1000 FLOP/B (the largest, Jetson Thor, has
    947); a sparse or summed figure would show here or break the ratio to 8 bits.
    """
    flops = machine.flops
    if "bf16" in flops:
        assert 20 < flops["bf16"] / machine.bandwidth_bytes_per_s < 1000
    if "bf16" in flops and "fp8" in flops:
        assert 0.99 <= flops["fp8"] / flops["bf16"] <= 2.05
    if machine.driver_bytes is not None and machine.label_bytes is not None:
        # A label is GiB or GB; ECC on GDDR takes a sixteenth.
        assert 0.93 <= machine.driver_bytes / machine.label_bytes <= 1.08
    for name, rate in machine.best_flops.items():
        assert rate > flops[name]


def test_every_figure_has_a_source_that_a_reader_can_open() -> None:
    """Figures carry https addresses; prices carry a date."""
    for row in list_hardware()["rows"]:
        for figure in row["figures"]:
            assert str(figure["url"]).startswith("https://"), (row["name"], figure["key"])
            if figure["key"] == "price_usd_per_hour":
                assert figure["date"], row["name"]


def test_what_a_chip_lacks_is_refused_and_never_zero() -> None:
    """A V100 has no bf16, a memory system no compute rate and no capacity; each says so."""
    with pytest.raises(RooflmError, match=r"no bf16 rate.*--weights"):
        bound_flops(find_machine("v100-sxm2-32gb"), "bf16")
    with pytest.raises(RooflmError, match="time-model bandwidth"):
        bound_flops(find_machine("ddr5-6000-dual"), "bf16")
    with pytest.raises(RooflmError, match="--capacity"):
        capacity(find_machine("ddr5-6000-dual"))
    for machine in MACHINES:
        assert 0 not in machine.flops.values()


def test_a_bound_uses_the_best_rate_that_anybody_measured() -> None:
    """GeForce boards run above their rated boost: the bound takes the measured rate."""
    card = find_machine("rtx-4090")

    assert bound_flops(card, "bf16") == card.best_flops["bf16"] > card.flops["bf16"]
