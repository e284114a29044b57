"""What does not exist: other layers by `--set`, figures of a machine times a factor."""

from __future__ import annotations

from pathlib import Path

import pytest

from .helpers import Terminal, only

DIMS = "dims: {D: 5120, F: 13824, N: 40, K: 40, H: 128, L: 40, V: 32000}"
SAME = [
    ("mla=c:512+r:64+d:128+v:128", "mla: {c: 512, r: 64, d: 128, v: 128}"),
    (
        "pattern=3*window:256+full",
        "kinds: {window: {window: 256}, full: {}}\n  pattern: [3*window, full]",
    ),
    (
        "pattern=full+shared",
        "kinds: {full: {}, shared: {shares_kv: true}}\n  pattern: [full, shared]",
    ),
    ("experts=E:8+k:2+F:1024", "experts: {E: 8, k: 2, F: 1024}"),
]


@pytest.mark.parametrize(("setting", "entry"), SAME)
def test_layers_that_are_spelt_out_are_those_of_an_entry(
    rooflm: Terminal, tmp_path: Path, setting: str, entry: str
) -> None:
    """`--set` on Llama-2-13B gives the parameters and cache of an entry that says so."""
    path = tmp_path / "own.yaml"
    path.write_text(f"mine:\n  source: a test\n  {DIMS}\n  {entry}\n", "utf-8")
    changed = rooflm.json("show", "llama-2-13b", "--set", setting)
    mine = rooflm.json("show", "mine", "--models", str(path))

    for key in ("parameters", "cache"):
        assert changed[key] == mine[key]


def test_shared_layers_hold_no_keys_and_values_of_their_own(rooflm: Terminal) -> None:
    """Half of the layers without: 20 x 2 x 5,120 x 5,120 weights and half of the cache less."""
    plain = rooflm.json("show", "llama-2-13b")
    shared = rooflm.json("show", "llama-2-13b", "--set", "pattern=full+shared")
    less = plain["parameters"]["total"] - shared["parameters"]["total"]

    assert less == 20 * 2 * 5120 * 5120
    assert shared["cache"]["bytes_per_token"] == plain["cache"]["bytes_per_token"] / 2


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("pattern=3*window+full", "'3*window' is no kind of layer"),
        ("pattern=full:3", "'full:3' is no kind of layer"),
        ("pattern=0*full+full", "'0*full' is no kind of layer (--set pattern)"),
        ("pattern=shared+full", "no cache before it"),
        ("pattern=41*full", "does not fit L = 40 (--set pattern)"),
        ("mla=c:512+c:256", "'c' is set twice"),
        ("pattern=", "is not KEY=VALUE"),
        ("mla=512", "'512' is not KEY:VALUE (--set mla). Write mla="),
        ("mla=c:512+x:1", "'x'"),
        ("mla=c:512", "mla lacks 'r'"),
        ("experts=E:8+k:9+F:10", "a token cannot choose 9 of 8"),
    ],
)
def test_layers_that_make_no_sense_are_refused(rooflm: Terminal, setting: str, said: str) -> None:
    """With exit code 2 and a sentence."""
    ran = rooflm("show", "llama-2-13b", "--set", setting)

    assert ran.code == 2
    assert said in ran.err


def test_a_model_with_a_pattern_keeps_it(rooflm: Terminal) -> None:
    """Which of its kinds another pattern would mean is not known."""
    ran = rooflm("show", "gemma-3-27b", "--set", "pattern=full+shared")

    assert ran.code == 2
    assert "layers of its own kinds" in ran.err


def test_scaled_figures_scale_what_they_limit(rooflm: Terminal) -> None:
    """Twice the bandwidth halves a step that reads; capacity and compute leave it as it is."""
    words = ("sweep", "llama-2-13b", "--on", "h100-sxm", "--basis", "bound")
    plain = only(rooflm.json(*words)["rows"])

    def scaled(factors: str) -> dict[str, float]:
        return only(rooflm.json(*words, "--hardware-scale", factors)["rows"])

    # A decode step of one sequence is bound by memory in every operator.
    assert scaled("bandwidth=2")["time_s"] == pytest.approx(plain["time_s"] / 2, rel=1e-12)
    assert scaled("compute=2,capacity=2")["time_s"] == plain["time_s"]
    assert scaled("capacity=2")["capacity_bytes"] == 2 * plain["capacity_bytes"]
    tp = ("--tp", "2")
    two = only(rooflm.json(*words, *tp)["rows"])
    fast = only(rooflm.json(*words, *tp, "--hardware-scale", "link=1e9")["rows"])
    assert fast["time_s"] < two["time_s"]
    assert "a machine that does not exist" in "".join(
        rooflm.json(*words, "--hardware-scale", "link=2")["assumptions"]
    )


@pytest.mark.parametrize(
    ("factors", "said"),
    [
        ("speed=2", "unknown value 'speed'"),
        ("bandwidth", "'' is not a positive number"),
        ("bandwidth=0", "'0' is not a positive number"),
        ("bandwidth=-1", "'-1' is not a positive number"),
        ("link=2,link=3", "'link' is scaled twice"),
        ("", "unknown value ''"),
    ],
)
def test_figures_that_cannot_be_scaled_are_refused(
    rooflm: Terminal, factors: str, said: str
) -> None:
    """An unknown figure and a factor that is not positive."""
    ran = rooflm("sweep", "llama-2-13b", "--on", "h100-sxm", "--hardware-scale", factors)

    assert ran.code == 2
    assert f"{said} (--hardware-scale)" in ran.err
