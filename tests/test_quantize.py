"""Integer quantization: properties of codes and errors, files, and the command."""

from __future__ import annotations

import json
import math
import struct
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from rooflm.calc.errors import RooflmError
from rooflm.calc.formats import FORMATS
from rooflm.calc.quantize import (
    PERS,
    Listed,
    Per,
    Quantizer,
    code_range,
    encode,
    open_numbers,
    parse_numbers,
    quantize,
    uniform_mse,
)

from .helpers import Terminal

Array = Any

quick = settings(max_examples=150, derandomize=True, deadline=None)

numbers = st.floats(-1e6, 1e6, width=32)
matrices = arrays.arrays(
    np.float64, arrays.array_shapes(min_dims=2, max_dims=2, max_side=9), elements=numbers
)
quantizers = st.builds(
    Quantizer,
    bits=st.integers(2, 16),
    symmetric=st.booleans(),
    per=st.sampled_from(PERS),
    group=st.integers(1, 5),
)


def answer(values: Array, quantizer: Quantizer, first: int = 10_000) -> dict[str, Any]:
    """Quantize a matrix."""
    return quantize(Listed("test", np.array(values, float)), quantizer, first)


# Properties


@given(matrices, quantizers)
@quick
def test_by_its_range_nothing_is_clipped_and_errors_keep_their_bound(
    values: Array, quantizer: Quantizer
) -> None:
    """Half a step at the most, codes inside their range, zero without an error."""
    found = answer(values, quantizer)
    low, high = code_range(quantizer.bits)
    summary = found["summary"]

    assert summary["clipped"] == 0
    assert summary["max_error_over_bound"] <= 1 + 1e-6
    assert summary["max_error"] <= summary["error_bound"] * (1 + 1e-6)
    assert len(found["rows"]) == values.size
    for row, value in zip(found["rows"], values.ravel(), strict=True):
        assert row["value"] == value
        assert low <= row["code"] <= high
        assert row["restored"] == row["scale"] * (row["code"] - row["zero_point"])
        if value == 0:
            assert row["error"] == 0
        if quantizer.symmetric:
            assert row["zero_point"] == 0
            assert row["code"] > low


@given(matrices, st.integers(2, 8), st.booleans(), st.floats(1e-3, 1e3), st.data())
@quick
def test_given_scales_clip_and_errors_are_counted_apart(
    values: Array, bits: int, signed: bool, scale: float, data: st.DataObject
) -> None:
    """Against the definition, number by number, in Python's own arithmetic."""
    low, high = code_range(bits, signed)
    zero = data.draw(st.integers(low, high))
    found = answer(values, Quantizer(bits, signed, scale=scale, zero_point=zero))
    errors: list[float] = []
    clipped = 0
    for row, x in zip(found["rows"], values.ravel().tolist(), strict=True):
        code = min(max(round(x / scale) + zero, low), high)
        assert row["code"] == code
        errors.append(abs(scale * (code - zero) - x))
        assert row["error"] == pytest.approx(errors[-1])
        assert row["clipped"] == (errors[-1] > scale / 2 * (1 + 1e-6) + 1e-9 * abs(x))
        clipped += row["clipped"]
    summary = found["summary"]
    assert summary["clipped"] == clipped
    assert summary["mse"] == pytest.approx(sum(e * e for e in errors) / len(errors))
    assert summary["max_error"] <= scale / 2 * (1 + 1e-6) + 1e-3
    assert (summary["max_clipping_error"] is None) == (clipped == 0)


def test_even_numbers_err_by_a_twelfth_of_the_square_of_the_step() -> None:
    """The measured MSE is s²/12 within 1 %, and 6.02 dB a bit."""
    values = np.random.default_rng(3).uniform(-1, 1, (1000, 200))
    eight = answer(values, Quantizer(8), 1)["summary"]
    nine = answer(values, Quantizer(9), 1)["summary"]

    assert eight["mse"] == pytest.approx(eight["mse_expected"], rel=0.01)
    assert eight["mse_expected"] == pytest.approx(uniform_mse(2 / 255), rel=0.01)
    assert nine["snr_db"] - eight["snr_db"] == pytest.approx(6.02, abs=0.1)


def test_an_outlier_spoils_what_shares_its_scale() -> None:
    """A scale for each row and for each group errs less."""
    values = np.random.default_rng(3).normal(size=(8, 256))
    values[0, 0] = 100
    kinds: tuple[Per, ...] = ("tensor", "channel", "group")
    errors = [answer(values, Quantizer(4, per=per, group=32))["summary"]["mse"] for per in kinds]

    assert errors == sorted(errors, reverse=True)
    assert errors[0] > 5 * errors[1] > 10 * errors[2]


def test_bits_per_weight_are_those_of_the_formats() -> None:
    """Groups as AWQ's, symmetric groups as int4, channels as int8-channel."""
    values = np.random.default_rng(3).normal(size=(256, 512))
    for quantizer, name in (
        (Quantizer(4, per="group"), "awq"),
        (Quantizer(4, symmetric=True, per="group"), "int4"),
        (Quantizer(3, per="group"), "int3"),
        (Quantizer(8, symmetric=True, per="channel"), "int8-channel"),
        (Quantizer(8, symmetric=True), "int8"),
    ):
        summary = answer(values, quantizer)["summary"]
        # Rows of a stored weight are its outputs: columns of a format.
        assert summary["bytes"] == FORMATS[name].matrix_bytes(512, 256)
        assert summary["bits_per_weight"] == FORMATS[name].real_bits(512, 256)


def test_rows_are_read_some_at_a_time_with_the_same_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """However few numbers are in memory."""
    values = np.random.default_rng(3).normal(size=(7, 10))
    for per in PERS:
        quantizer = Quantizer(5, per=per, group=4)
        whole = answer(values, quantizer)
        with monkeypatch.context() as patched:
            patched.setattr(sys.modules[quantize.__module__], "CHUNK", 20)
            parts = answer(values, quantizer)
        assert parts.pop("summary") == pytest.approx(whole.pop("summary"))
        assert parts == whole


def test_ties_round_to_the_even_code() -> None:
    """As numpy and torch round, and Python."""
    values = np.array([[0.5, 1.5, 2.5, -0.5, -1.5]])
    quantizer = Quantizer(8, scale=1.0)
    codes = encode(values, np.array([[1.0]]), np.array([[0.0]]), quantizer).codes

    assert codes.tolist() == [[0, 2, 2, 0, -2]]
    assert codes[0].tolist() == [round(x) for x in values[0]]


def test_torch_quantizes_to_the_same_codes() -> None:
    """torch.fake_quantize_per_tensor_affine with the scale and zero point found here."""
    torch = pytest.importorskip("torch")
    values = np.random.default_rng(5).normal(size=(1, 500)).astype(np.float32).astype(float)
    found = answer(values, Quantizer(8))
    theirs = torch.fake_quantize_per_tensor_affine(
        torch.tensor(values), found["scale"], found["zero_point"], -128, 127
    )

    assert [r["restored"] for r in found["rows"]] == pytest.approx(theirs.ravel().tolist())


def test_zeros_alone_come_back() -> None:
    """No range to take a scale from."""
    found = answer(np.zeros((2, 3)), Quantizer(4, per="channel"))

    assert found["summary"]["max_error"] == 0
    assert found["summary"]["snr_db"] is None


# What is typed, and files


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("5.2342,1.5", [[5.2342, 1.5]]),
        ("1 2\t3", [[1, 2, 3]]),
        ("1,2\n3,4\n", [[1, 2], [3, 4]]),
        ("1\n2\n3\n", [[1, 2, 3]]),
        ("1,2\n3\n", [[1, 2, 3]]),
        ("# a weight\n1e-3, -2  # two\n\n", [[0.001, -2]]),
    ],
)
def test_numbers_are_read_in_rows_where_lines_are_equal(
    text: str, values: list[list[float]]
) -> None:
    """Lines of equally many are rows; anything else is one row."""
    assert parse_numbers(text, "x").values.tolist() == values


def write(path: Path, tensors: dict[str, tuple[str, list[int], bytes]]) -> Path:
    """Write a safetensors file."""
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    path.write_bytes(
        struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values())
    )
    return path


VALUES = np.array([[1.5, -2.25, 0.5], [3.0, 0.125, -8.0]])
"""Exact in all formats that are read."""


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """Make a file with a tensor of each format, and one that has no fractions."""
    top = (VALUES.astype("<f4").view("<u4") >> 16).astype("<u2")
    return write(
        tmp_path / "w.safetensors",
        {
            "bf16.weight": ("BF16", [2, 3], top.tobytes()),
            "f16.weight": ("F16", [2, 3], VALUES.astype("<f2").tobytes()),
            "f32.weight": ("F32", [1, 2, 3], VALUES.astype("<f4").tobytes()),
            "f64.weight": ("F64", [6], VALUES.astype("<f8").tobytes()),
            "codes": ("I8", [2], b"\1\2"),
            "one": ("F32", [], np.float32(7).tobytes()),
            "none": ("F32", [0, 4], b""),
            "nan": ("F32", [2], np.array([1, math.nan], "<f4").tobytes()),
        },
    )


@pytest.mark.parametrize("name", ["bf16", "f16", "f32", "f64"])
def test_tensors_are_decoded(weights: Path, name: str) -> None:
    """The same numbers whatever their format; leading axes are rows."""
    source = open_numbers(weights, f"{name}.weight")

    assert source.read(0, source.rows).ravel().tolist() == VALUES.ravel().tolist()
    assert (source.rows, source.columns) == ((1, 6) if name == "f64" else (2, 3))


def test_a_number_alone_is_a_row_of_one(weights: Path) -> None:
    """A tensor without axes."""
    assert open_numbers(weights, "one").read(0, 1).tolist() == [[7.0]]


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        ("bf16.weights", "Did you mean bf16.weight"),
        ("zzz", "The file holds bf16.weight"),
        (None, "the file holds 8 tensors"),
        ("codes", "is I8"),
        ("none", "is empty"),
    ],
)
def test_a_tensor_that_cannot_be_read_is_refused(
    weights: Path, tensor: str | None, message: str
) -> None:
    """Misspelt, not named, without fractions, empty."""
    with pytest.raises(RooflmError, match=message):
        open_numbers(weights, tensor)


def test_the_only_tensor_of_a_file_needs_no_name(tmp_path: Path) -> None:
    """There is nothing to choose."""
    path = write(tmp_path / "w.safetensors", {"w": ("F32", [1], np.float32(2).tobytes())})

    assert open_numbers(path, None).read(0, 1).tolist() == [[2.0]]


# The command


def test_the_lectures_number(rooflm: Terminal) -> None:
    """5.2342 becomes code 56, and 20 is clipped to 127."""
    found = rooflm.json("quantize", "--values", "5.2342,20", "--scale", "0.1", "--zero-point", "4")
    first, second = found["rows"]

    assert found["schema"] == "rooflm.quantize/1"
    assert found["model"] is None
    assert found["hardware"] is None
    assert found["assumptions"]
    assert (first["code"], first["clipped"]) == (56, False)
    assert first["restored"] == pytest.approx(5.2)
    assert first["error"] == pytest.approx(0.0342)
    assert (second["code"], second["clipped"]) == (127, True)
    assert found["summary"]["clipped"] == 1
    assert found["summary"]["max_clipping_error"] == pytest.approx(7.7)
    assert found["summary"]["max_error"] == pytest.approx(0.0342)
    assert found["summary"]["error_bound"] == 0.05


def test_the_table_says_what_the_json_says(rooflm: Terminal, weights: Path) -> None:
    """A tensor of a file, groups, and fewer rows than numbers."""
    ran = rooflm("quantize", str(weights), "--tensor", "bf16.weight", "--bits", "4",
                 "--per", "group", "--group", "2", "--first", "4", "--symmetric")  # fmt: skip

    assert ran.code == 0, ran.err
    assert "bf16.weight: 6 numbers in signed 4-bit codes, -8 to 7; the first 4" in ran.out
    assert "a scale for each 2 numbers of a row; fp16 scales are counted" in ran.out
    assert len([line for line in ran.out.splitlines() if line.endswith(" no")]) == 4


def test_a_file_of_numbers_and_csv(rooflm: Terminal, tmp_path: Path) -> None:
    """Rows of the text are channels; CSV has the codes."""
    path = tmp_path / "numbers.txt"
    path.write_text("1,2\n10,20\n")
    ran = rooflm("quantize", str(path), "--per", "channel", "--unsigned", "--format", "csv")

    assert ran.out.splitlines()[0].startswith("value,scale,zero_point,code")
    assert [line.split(",")[3] for line in ran.out.splitlines()[1:]] == ["128", "255"] * 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--values", ""], "there are no numbers"),
        (["--values", "1,x"], "'x' is not a number"),
        (["--values", "1,nan"], "holds nan"),
        (["--values", "inf"], "holds inf"),
        (["--values", "1e101"], "holds 1e+101"),
        (["--values", "1", "--bits", "1"], "1 bits are not between 2 and 16"),
        (["--values", "1", "--bits", "17"], "17 bits are not between 2 and 16"),
        (["--values", "1", "--bits", "x"], "not a positive whole number"),
        (["--values", "1", "--scale", "0"], "0 is no scale"),
        (["--values", "1", "--scale", "-1"], "-1 is no scale"),
        (["--values", "1", "--scale", "nan"], "nan is no scale"),
        (["--values", "1", "--scale", "x"], "'x' is not a number"),
        (["--values", "1", "--zero-point", "3"], "a zero point needs its scale"),
        (["--values", "1", "--scale", "1", "--zero-point", "1.5"], "not a whole number"),
        (["--values", "1", "--scale", "1", "--zero-point", "128"], "128 is no code"),
        (["--values", "1", "--scale", "1", "--zero-point", "1", "--symmetric"], "is 0"),
        (["--values", "1", "--symmetric", "--unsigned"], "symmetric codes are signed"),
        (["--values", "1", "--scale", "1", "--per", "channel"], "one for all numbers"),
        (["--values", "1", "--per", "row"], "unknown value 'row'"),
        (["--values", "1", "--group", "64"], "only groups have a size"),
        (["--values", "1", "--tensor", "w"], "only a .safetensors file has tensors"),
        ([], "numbers are needed"),
        (["x.txt", "--values", "1"], "there are both a file and numbers"),
        (["no-such-file.txt"], "cannot read the file"),
        (["no-such-file.safetensors"], "there is no such file"),
        (["no-such-file.txt", "--tensor", "w"], "only a .safetensors file has tensors"),
    ],
)
def test_mistakes_are_one_line_and_exit_with_2(
    rooflm: Terminal, words: list[str], message: str
) -> None:
    """What is wrong is named with the option."""
    ran = rooflm("quantize", *words)

    assert ran.code == 2, ran.out + ran.err
    assert message in ran.err
    assert ran.err.count("\n") == 1
    assert not ran.out


def test_files_that_are_no_numbers_are_refused(
    rooflm: Terminal, weights: Path, tmp_path: Path
) -> None:
    """NaN in a tensor, a text with words, bytes that are no text."""
    text, raw = tmp_path / "words.txt", tmp_path / "raw.bin"
    text.write_text("1,2\n3,four\n")
    raw.write_bytes(b"\xff\x00\x80")
    for words, message in (
        ((str(weights), "--tensor", "nan"), "the tensor 'nan' holds nan"),
        ((str(text),), "'four' is not a number (" + str(text) + ", line 2)"),
        ((str(raw),), "the file is not text"),
    ):
        ran = rooflm("quantize", *words)
        assert ran.code == 2
        assert message in ran.err
