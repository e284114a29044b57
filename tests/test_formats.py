"""Number formats: real bits against packed bytes, against gguf's own table, and worked cases."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from rooflm.calc.errors import RooflmError
from rooflm.calc.formats import (
    CACHES,
    FORMATS,
    LARGEST,
    MIXTURES,
    CacheRole,
    Format,
    find_cache_format,
    find_format,
)
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_model
from rooflm.calc.quantize import (
    Quantizer,
    encode,
    outlier_flops,
    uniform_mse,
)

from .golden import table
from .helpers import Terminal

CASES: dict[str, dict[str, Any]] = {c["id"]: c for c in table("cases_formats")["cases"]}
Inputs = dict[str, Any]
Array = Any
ROWS, COLUMNS = 512, 256
"""The matrix that is packed: every group, tile and block divides it, and scales have two levels."""
GIB = 2**30
G: Any = gguf


# Worked cases


def real(name: str, **changes: Any) -> float:
    """Tell the bits of a weight of a wide matrix, with a field of the format changed."""
    return replace(FORMATS[name], **changes).real_bits(4096, 4096)


def one_code(i: Inputs) -> dict[str, Any]:
    """Quantize a number with a given scale and zero point."""
    quantizer = Quantizer(8, scale=i["scale"], zero_point=i.get("zero_point", 0))
    values = np.array([[i["x"]]])
    scales, zeros = quantizer.scales(values, values)
    code = encode(values, scales, zeros, quantizer)
    return {
        "q": int(code.codes[0, 0]),
        "dequant": code.restored[0, 0],
        "abs_err": code.errors[0, 0],
        "x_over_s": i["x"] / i["scale"],
        "half_even": int(code.codes[0, 0]),
        "half_away": math.floor(i["x"] / i["scale"] + 0.5),
    }


def even_noise(i: Inputs) -> dict[str, Any]:
    """Tell the noise of a scale, and what a bit less costs."""
    s = i["scale"]
    fewer = uniform_mse(s * 2 ** i["bits_removed"]) / uniform_mse(s)
    return {"mse": uniform_mse(s), "snr_drop_per_bit": 10 * math.log10(fewer)}


def format_bits(i: Inputs) -> dict[str, Any]:
    """Tell the bits of every format, scales of a whole matrix left out."""
    return {
        "fp32": real("fp32"),
        "bf16": real("bf16"),
        "fp8_e4m3": real("fp8", matrix_bits=0),
        # Engines keep 32 bits a channel; the case has 16.
        "int8_per_channel_4096": real("int8-channel", column_bits=16),
        "fp8_block128x128_fp32": real("fp8-block"),
        "int4_awq_g128": real("awq"),
        "int4_sym_g128": real("int4"),
        "int4_gptq_g128_gidx_out4096": real("gptq"),
        "int3_g128": real("int3"),
        "int4_g32_fp16scale_zero": real("int4-g32"),
        "mxfp4": real("mxfp4"),
        "mxfp8": real("mxfp8"),
        "nvfp4": real("nvfp4", matrix_bits=0),
    }


def block_bits(i: Inputs) -> dict[str, Any]:
    """Tell the bits of GGUF blocks."""
    return {name: FORMATS[name].real_bits(256, 1) for name in i["blocks"]}


def file_bytes(i: Inputs) -> dict[str, Any]:
    """Tell the size of a file whose every weight takes the measured bits, and of pure blocks."""
    bits = FORMATS[i["format"]].bits if "format" in i else i["bpw"]
    whole = replace(FORMATS["q4_k_m"], bits=bits).matrix_bytes(1, i["params"])
    pure = FORMATS[i["block"]].matrix_bytes(256, i["params"] // 256)
    return {
        "bytes": whole,
        "gib": whole / GIB,
        "pure_bytes": pure,
        "pure_gib": pure / GIB,
    }


def llama(i: Inputs, norms: bool = True) -> tuple[list[tuple[int, int]], int, int]:
    """List the matrices of a Llama-2, the weights of a table, and those of norms."""
    D, F, L = i["D"], i["F"], i["layers"]
    layer = [(D, D)] * 4 + [(D, F)] * 2 + [(F, D)]
    return layer * L, i["V"] * D, (2 * L + 1) * D if norms else 0


def awq_bytes(i: Inputs) -> dict[str, Any]:
    """Tell what AWQ saves of a model whose tables stay in 16 bits."""
    matrices, embedding, norms = llama(i)
    small = sum(FORMATS["awq"].matrix_bytes(*m) for m in matrices)
    large = sum(FORMATS["fp16"].matrix_bytes(*m) for m in matrices)
    rest = 2 * (2 * embedding + norms)
    found = {
        "bytes": small + 2 * 2 * embedding,
        "ratio": (large + 2 * 2 * embedding) / (small + 2 * 2 * embedding),
        "nominal": 16 // FORMATS["awq"].bits,
        "byte_ratio": (large + rest) / (small + rest),
        "byte_ratio_excl_input_embedding": (large + rest - 2 * embedding)
        / (small + rest - 2 * embedding),
    }
    measured = {f"{k}_speedup": i[k][0] / i[k][1] for k in ("orin", "a100", "rtx4090") if k in i}
    assert all(v < found["byte_ratio_excl_input_embedding"] for v in measured.values())
    return found | measured


def claims(i: Inputs) -> dict[str, Any]:
    """Tell what three and four bits save, nominally and with a scale and zero of 128."""
    return {
        "int3_nominal": 16 / FORMATS["int3"].bits,
        "int4_nominal": 16 // FORMATS["awq"].bits,
        "int4_g128": 16 / real("awq"),
        "int3_g128": 16 / real("int3"),
    }


def ranges(i: Inputs) -> dict[str, Any]:
    """Tell the largest 8-bit floats, and hold torch against them."""
    torch = pytest.importorskip("torch")
    for name, kind in (("e4m3", torch.float8_e4m3fn), ("e4m3fnuz", torch.float8_e4m3fnuz),
                       ("e5m2", torch.float8_e5m2)):  # fmt: skip
        assert torch.finfo(kind).max == LARGEST[name]
    names = {"e4m3fn_max": "e4m3", "e4m3fnuz_max": "e4m3fnuz", "e5m2_max": "e5m2"}
    return {key: LARGEST[name] for key, name in names.items()}


def int8_weights(i: Inputs) -> dict[str, Any]:
    """Tell the bytes and the split work of LLM.int8."""
    wide, narrow = outlier_flops(i["D"], i["F"], i["outlier_frac"])
    return {
        "weight_bytes": FORMATS["int8-weights"].matrix_bytes(i["D"], i["F"]),
        "fp16_side_matmul_flops_per_token": wide,
        "int8_flops_per_token": narrow,
    }


def cached(i: Inputs) -> dict[str, Any]:
    """Tell the bytes of a token in a layer, keys and values."""
    names = {
        "bf16": "bf16", "fp8_per_tensor": "fp8", "int8_per_token_head": "int8-head",
        "nvfp4": "nvfp4", "int2_g32_fp16_scale_zero": "int2-g32",
    }  # fmt: skip
    roles: tuple[CacheRole, CacheRole] = ("key", "value")
    return {
        key: i["K"] * sum(CACHES[name].vector_bytes(i["H"], role) for role in roles)
        for key, name in names.items()
    }


COMPUTE: dict[str, Callable[[Inputs], dict[str, Any]]] = {
    "t12_affine_lecture": one_code, "t12_affine_clip_int8": one_code,
    "t12_round_half_even": one_code, "t12_uniform_mse": even_noise,
    "t12_format_bits": format_bits, "t12_gguf_block_bits": block_bits,
    "t12_gguf_q4km_file": file_bytes, "t12_gguf_q8_0_file": file_bytes,
    "t12_awq_llama2_13b": awq_bytes, "t12_awq_measured_orin": awq_bytes,
    "t12_awq_claim_consistency": claims, "t12_e4m3_range": ranges,
    "t12_llm_int8_bytes": int8_weights, "t12_kv_quant_bytes": cached,
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_every_expected_value_of_a_worked_case_is_reproduced(name: str) -> None:
    """All values of a case, within 1e-9; whole numbers exactly."""
    found = COMPUTE[name](CASES[name]["inputs"])
    for key, value in CASES[name]["expected"].items():
        wanted = value if isinstance(value, int) else pytest.approx(value, rel=1e-9)
        assert found[key] == wanted, key


# Packed bytes


def pack(codes: Array, bits: int) -> bytes:
    """Write codes of so many bits one behind the other."""
    shifts = np.arange(bits)
    return np.packbits((codes.reshape(-1, 1) >> shifts) & 1).tobytes()


def unpack(raw: bytes, bits: int) -> Array:
    """Read codes back."""
    each = np.unpackbits(np.frombuffer(raw, np.uint8))
    each = each[: len(each) // bits * bits].reshape(-1, bits)
    return (each.astype(int) << np.arange(bits)).sum(axis=1)


def floats(exponent: int, mantissa: int, bias: int) -> Array:
    """List what the codes of a small float without infinities stand for, NaN left out."""
    codes: Array = np.arange(1 << (exponent + mantissa))
    e: Array = codes >> mantissa
    m: Array = (codes & ((1 << mantissa) - 1)) / (1 << mantissa)
    scale: Array = np.exp2(np.maximum(e, 1) - bias)
    positive: Array = (m + (e > 0)) * scale
    if mantissa + exponent == 7:
        positive[-1] = positive[-2]  # e4m3's only NaN
    both: list[Array] = [positive, -positive]
    return np.concatenate(both)


E4M3, E2M1 = floats(4, 3, 7), floats(2, 1, 1)
NF4: Array = np.linspace(-1, 1, 16)
"""Any 16 levels do: only their number counts here."""


def closest(values: Array, levels: Array) -> Array:
    """Take the code of the level that is closest to each number."""
    flat = values.reshape(-1)
    order = np.argsort(levels, kind="stable")
    middle = (levels[order][1:] + levels[order][:-1]) / 2
    return order[np.searchsorted(middle, flat)].reshape(values.shape)


def weights() -> Array:
    """Make a matrix of rows by columns."""
    return np.random.default_rng(7).normal(size=(ROWS, COLUMNS))


def grouped(values: Array, size: int) -> Array:
    """Split rows into groups: (groups, size, columns)."""
    return values.reshape(-1, size, values.shape[1])


def integers(bits: int, size: int, zero_bits: int, zero_type: Any = None) -> list[bytes]:
    """Pack integer codes with an fp16 scale of each group, and a zero point where there is one."""
    groups = grouped(weights(), size)
    low = np.minimum(groups.min(axis=1), 0) if zero_bits or zero_type else None
    high = groups.max(axis=1)
    if low is None:
        scales = abs(groups).max(axis=1) / (2 ** (bits - 1) - 1)
        zeros = np.full(scales.shape, 2 ** (bits - 1))
    else:
        scales = (high - low) / (2**bits - 1)
        zeros = np.rint(-low / scales)
    codes = np.clip(np.rint(groups / scales[:, None]) + zeros[:, None], 0, 2**bits - 1)
    restored = (codes - zeros[:, None]) * scales[:, None]
    assert (abs(restored - groups) <= scales[:, None] * (0.5 + 1e-9)).all()
    packed = pack(codes.astype(int), bits)
    assert (unpack(packed, bits) == codes.reshape(-1)).all()
    parts = [packed, scales.astype(np.float16).tobytes()]
    if zero_type:
        parts.append(zeros.astype(zero_type).tobytes())
    elif zero_bits:
        parts.append(pack(zeros.astype(int), zero_bits))
    return parts


def scaled(levels: Array, bits: int, size: int, scale_type: Any) -> list[bytes]:
    """Pack small floats with a scale of each group."""
    groups = grouped(weights(), size)
    scales = abs(groups).max(axis=1) / abs(levels).max()
    codes = closest(groups / scales[:, None], levels)
    assert (unpack(pack(codes, bits), bits) == codes.reshape(-1)).all()
    return [pack(codes, bits), scales.astype(scale_type).tobytes()]


def whole(levels: Array, bits: int, scales: int, scale_type: Any = np.float32) -> list[bytes]:
    """Pack codes with so many scales for the whole matrix."""
    return [pack(closest(weights(), levels), bits), np.ones(scales, scale_type).tobytes()]


def nested() -> list[bytes]:
    """Pack codes with magnitudes that are themselves quantized, 256 at a time."""
    codes, raw = scaled(NF4, 4, 64, np.float32)
    magnitudes = np.frombuffer(raw, np.float32)
    blocks = (magnitudes - magnitudes.mean()).reshape(-1, 256)
    scales = abs(blocks).max(axis=1).astype(np.float32)
    inner = np.rint(127 * blocks / scales[:, None]).astype(np.int8)
    return [codes, inner.tobytes(), scales.tobytes(), np.float32(magnitudes.mean()).tobytes()]


INT8 = np.arange(-128, 128)
PACKED: dict[str, Callable[[], list[bytes]]] = {
    "fp32": lambda: [weights().astype(np.float32).tobytes()],
    "tf32": lambda: [weights().astype(np.float32).tobytes()],
    "bf16": lambda: [(weights().astype(np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()],
    "fp16": lambda: [weights().astype(np.float16).tobytes()],
    "fp8": lambda: whole(E4M3, 8, 1),
    "fp8-block": lambda: whole(E4M3, 8, (ROWS // 128) * (COLUMNS // 128)),
    "int8": lambda: whole(INT8, 8, 1),
    "int8-channel": lambda: whole(INT8, 8, COLUMNS),
    "int8-weights": lambda: whole(INT8, 8, COLUMNS),
    "int4": lambda: integers(4, 128, 0),
    "int4-g32": lambda: integers(4, 32, 0, np.float16),
    "int4-sym-g32": lambda: integers(4, 32, 0),
    "int3": lambda: integers(3, 128, 3),
    "awq": lambda: integers(4, 128, 4),
    "gptq": lambda: [*integers(4, 128, 4), (np.arange(ROWS, dtype=np.int32) // 128).tobytes()],
    "nf4": lambda: scaled(NF4, 4, 64, np.float32),
    "nf4-double": nested,
    "mxfp4": lambda: scaled(E2M1, 4, 32, np.uint8),
    "mxfp8": lambda: scaled(E4M3, 8, 32, np.uint8),
    "nvfp4": lambda: [*scaled(E2M1, 4, 16, np.uint8), np.float32(1).tobytes()],
}
"""What a checkpoint in each format holds of one matrix."""

HALF = "<f2"
BLOCKS: dict[str, list[tuple[str, str, int]]] = {
    "q1_0": [("d", HALF, 1), ("qs", "u1", 16)],
    "q4_0": [("d", HALF, 1), ("qs", "u1", 16)],
    "q4_1": [("d", HALF, 1), ("m", HALF, 1), ("qs", "u1", 16)],
    "q5_0": [("d", HALF, 1), ("qh", "u1", 4), ("qs", "u1", 16)],
    "q5_1": [("d", HALF, 1), ("m", HALF, 1), ("qh", "u1", 4), ("qs", "u1", 16)],
    "q8_0": [("d", HALF, 1), ("qs", "i1", 32)],
    "q2_k": [("scales", "u1", 16), ("qs", "u1", 64), ("d", HALF, 1), ("dmin", HALF, 1)],
    "q3_k": [("hmask", "u1", 32), ("qs", "u1", 64), ("scales", "u1", 12), ("d", HALF, 1)],
    "q4_k": [("d", HALF, 1), ("dmin", HALF, 1), ("scales", "u1", 12), ("qs", "u1", 128)],
    "q5_k": [("d", HALF, 1), ("dmin", HALF, 1), ("scales", "u1", 12), ("qh", "u1", 32),
             ("qs", "u1", 128)],
    "q6_k": [("ql", "u1", 128), ("qh", "u1", 64), ("scales", "i1", 16), ("d", HALF, 1)],
    "q8_k": [("d", "<f4", 1), ("qs", "i1", 256), ("bsums", "<i2", 16)],
    "iq1_s": [("d", HALF, 1), ("qs", "u1", 32), ("qh", "<u2", 8)],
    "iq1_m": [("qs", "u1", 32), ("qh", "u1", 16), ("scales", "u1", 8)],
    "iq2_xxs": [("d", HALF, 1), ("qs", "<u2", 32)],
    "iq2_xs": [("d", HALF, 1), ("qs", "<u2", 32), ("scales", "u1", 8)],
    "iq2_s": [("d", HALF, 1), ("qs", "u1", 64), ("qh", "u1", 8), ("scales", "u1", 8)],
    "iq3_xxs": [("d", HALF, 1), ("qs", "u1", 96)],
    "iq3_s": [("d", HALF, 1), ("qs", "u1", 64), ("qh", "u1", 8), ("signs", "u1", 32),
              ("scales", "u1", 4)],
    "iq4_nl": [("d", HALF, 1), ("qs", "u1", 16)],
    "iq4_xs": [("d", HALF, 1), ("scales_h", "<u2", 1), ("scales_l", "u1", 4), ("qs", "u1", 128)],
    "tq1_0": [("qs", "u1", 48), ("qh", "u1", 4), ("d", HALF, 1)],
    "tq2_0": [("qs", "u1", 64), ("d", HALF, 1)],
}  # fmt: skip
"""Fields of the blocks in llama.cpp's ggml-common.h."""

ESTIMATES = [n for n, f in FORMATS.items() if n in MIXTURES or f.stores.startswith("mixture")]


@pytest.mark.parametrize("name", PACKED)
def test_a_matrix_takes_as_many_bytes_as_its_packed_codes_and_scales(name: str) -> None:
    """Codes and scales of a random matrix, packed as a checkpoint has them."""
    held = sum(len(part) for part in PACKED[name]())

    assert FORMATS[name].matrix_bytes(ROWS, COLUMNS) == held
    assert isinstance(FORMATS[name].matrix_bytes(ROWS, COLUMNS), int)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_gguf_block_takes_as_many_bytes_as_its_fields(name: str) -> None:
    """The struct of ggml-common.h, laid out without padding."""
    layout = np.dtype([(field, kind, (count,)) for field, kind, count in BLOCKS[name]])
    blocks = np.zeros((COLUMNS, ROWS // FORMATS[name].group), layout)

    assert FORMATS[name].matrix_bytes(ROWS, COLUMNS) == blocks.nbytes


def test_every_format_is_packed_or_an_estimate_that_says_so() -> None:
    """No format escapes the tests above."""
    assert {*PACKED, *BLOCKS, *ESTIMATES} == set(FORMATS)


def test_gguf_has_the_same_blocks() -> None:
    """Elements and bytes of a block, against the table of the gguf package."""
    plain = {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"}
    for kind, (elements, size) in G.GGML_QUANT_SIZES.items():
        # Q8_1 is in no file; there the package (40 bytes) and ggml-common.h (36) disagree.
        if kind.name in plain | {"Q8_1"}:
            continue
        found = FORMATS[kind.name.lower()]
        # GGUF keeps the scale of a whole matrix of NVFP4 in a tensor of its own.
        assert replace(found, matrix_bits=0).matrix_bytes(elements, 1) == size, kind.name


@pytest.mark.parametrize("name", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0"])
def test_gguf_packs_a_matrix_into_as_many_bytes(name: str) -> None:
    """What the package writes for a random matrix."""
    packed = G.quants.quantize(weights().T.astype(np.float32), G.GGMLQuantizationType[name])

    assert FORMATS[name.lower()].matrix_bytes(ROWS, COLUMNS) == packed.nbytes


def test_small_floats_reach_the_largest_numbers_they_are_said_to() -> None:
    """e4m3 and e2m1 from their bits."""
    assert E4M3.max() == LARGEST["e4m3"]
    assert E2M1.max() == LARGEST["e2m1"]


# Shapes and readings


@given(st.integers(1, 5000), st.integers(1, 5000), st.sampled_from(sorted(FORMATS)))
@settings(max_examples=200, deadline=None)
def test_bytes_are_at_least_the_codes_and_read_alike_in_symbols(
    rows: int, columns: int, name: str
) -> None:
    """Any shape, groups that are not full included: numbers, arrays and symbols agree."""
    kind = FORMATS[name]
    found = kind.matrix_bytes(rows, columns)
    D, F = sympy.symbols("D F", integer=True, positive=True)
    symbolic = kind.matrix_bytes(D, F).subs({D: rows, F: columns})
    array = kind.matrix_bytes(np.array([float(rows)]), float(columns))

    assert found >= kind.bits / 8 * rows * columns * (1 - 1e-12)
    assert float(symbolic) == pytest.approx(found, rel=1e-12)
    assert array[0] == pytest.approx(found, rel=1e-12)
    assert found <= kind.matrix_bytes(rows + 1, columns)


def test_a_group_that_is_not_full_has_a_scale_of_its_own() -> None:
    """130 rows are two groups of 128; 129 columns are two tiles."""
    assert FORMATS["int4"].matrix_bytes(130, 2) == 130 + 2 * 2 * 2
    assert FORMATS["fp8-block"].matrix_bytes(129, 129) == 129 * 129 + 4 * 4


def test_formats_that_are_computed_in_name_a_peak_and_the_others_none() -> None:
    """Weight-only formats multiply in the activations' format."""
    computed = {f.name: f.compute for f in FORMATS.values() if f.compute and f.covers != "all"}
    assert computed == {
        "fp8": "fp8", "fp8-block": "fp8", "mxfp8": "fp8", "int8": "int8", "int8-channel": "int8",
        "nvfp4": "fp4",
    }  # fmt: skip


@pytest.mark.parametrize(("find", "known"), [(find_format, "awq"), (find_cache_format, "fp8")])
def test_an_unknown_format_is_refused_with_the_nearest(
    find: Callable[[str, str], Any], known: str
) -> None:
    """A slip of the keyboard is mended; anything else lists what is known."""
    with pytest.raises(RooflmError, match=f"Did you mean.*{known}"):
        find(known + "x", "--weights")
    with pytest.raises(RooflmError, match=r"Known formats.*nvfp4"):
        find("!", "--weights")
    assert find(known, "").name == find(known.upper(), "").name == known


def test_a_mean_of_another_model_is_told(rooflm: Terminal) -> None:
    """R1 in Q4_K_M is 404 GB (gpustack issue 1487) and 410.7 here: its rule is not known."""
    mean = rooflm.json("show", "deepseek-v3", "--weights", "q4_k_m")
    ruled = rooflm.json("show", "llama-3.1-70b", "--weights", "q4_k_m")

    assert mean["weights_bytes"] == pytest.approx(404e9, rel=0.02)
    assert any("measured on Llama-3.1-8B; a file" in said for said in mean["assumptions"])
    assert not any("measured on" in said for said in ruled["assumptions"])
    assert "410,683,098,304" in rooflm("show", "deepseek-v3", "--weights", "q4_k_m").out


def test_names_of_formats_may_be_in_capitals(rooflm: Terminal) -> None:
    """As engines and files write them; each part of a model as well."""
    for text in ("Q4_K_M", "FP8", "experts=MXFP4,rest=BF16"):
        same = text.lower()
        upper, lower = (rooflm.json("show", "gpt-oss-20b", "--weights", t) for t in (text, same))
        assert upper == lower


@pytest.mark.parametrize(
    ("typed", "file"),
    [("q2_k", "q2_k-file"), ("IQ2_XXS", "iq2_xxs-file"), ("q3_k", "q3_k_m"), ("q4_k", "q4_k_m"),
     ("q5_k", "q5_k_m"), ("q6_k", "q6_k"), ("q4_0", "q4_0")],
)  # fmt: skip
def test_a_name_of_llama_cpp_alone_is_that_of_a_file(typed: str, file: str) -> None:
    """Source: llama-quantize, whose list has Q4_K for Q4_K_M; the bits are those of its README."""
    assert precision_of(typed).weights.name == file
    assert precision_of(f"rest={typed}").weights.name == typed.lower()


@pytest.mark.parametrize(
    ("typed", "name"),
    [("float16", "fp16"), ("F16", "fp16"), ("bfloat16", "bf16"), ("float32", "fp32"),
     ("fp8_e4m3", "fp8")],
)  # fmt: skip
def test_formats_are_known_as_torch_vllm_and_llama_cpp_spell_them(typed: str, name: str) -> None:
    """Source: torch.dtype, `--kv-cache-dtype` of vLLM, `--cache-type-k` of llama.cpp."""
    assert find_format(typed).name == name
    assert find_cache_format(typed).name == name


def test_a_cache_of_int8_is_several_things() -> None:
    """What llama.cpp, vLLM and others mean by eight bits is named; none of it is int8 alone."""
    with pytest.raises(RooflmError, match=r"int8-head .*, q8_0 \(llama.cpp\) or fp8"):
        find_cache_format("INT8", "--kv")


# Mixtures

MEASURED = {
    "q2_k-file": 3.1593, "q2_k_s": 2.9697, "q3_k_s": 3.6429, "q3_k_m": 3.9960, "q3_k_l": 4.2979,
    "q4_k_s": 4.6672, "q4_k_m": 4.8944, "q5_k_s": 5.5704, "q5_k_m": 5.7036,
}  # fmt: skip
"""Bits per weight of Llama-3.1-8B in llama.cpp's tools/quantize/README.md, q3_k_m by the rule."""


@pytest.mark.parametrize("name", MIXTURES)
def test_the_rule_of_a_mixture_gives_the_measured_bits(name: str) -> None:
    """Llama-3.1-8B tensor by tensor, norms in fp32, to all digits of the README."""
    D, F, L, V, keys = 4096, 14336, 32, 128256, 1024
    kind = MIXTURES[name]
    shapes = {
        "attn_q": (D, D), "attn_k": (D, keys), "attn_v": (D, keys), "attn_output": (D, D),
        "ffn_gate": (D, F), "ffn_up": (D, F), "ffn_down": (F, D),
    }  # fmt: skip
    held = sum(
        kind.tensor_format(tensor, layer, L, sharing=4).matrix_bytes(*shape)
        for layer in range(L)
        for tensor, shape in shapes.items()
    )
    mean = sum(
        kind.mean_bits(t, L, sharing=4) * rows * columns / 8 * L
        for t, (rows, columns) in shapes.items()
    )
    tables = ("token_embd", "output")
    held += sum(kind.tensor_format(t).matrix_bytes(D, V) for t in tables)
    parameters = L * sum(r * c for r, c in shapes.values()) + 2 * V * D + 65 * D

    assert mean == pytest.approx(held - sum(kind.tensor_format(t).matrix_bytes(D, V)
                                            for t in tables))  # fmt: skip
    assert round(8 * (held + 4 * 65 * D) / parameters, 4) == MEASURED[name] == kind.bits


@pytest.mark.parametrize(("name", "bits"), [("q6_k", 6.5633), ("q8_0", 8.5008)])
def test_pure_files_are_their_blocks_and_norms_in_fp32(name: str, bits: float) -> None:
    """The README's figures of Q6_K and Q8_0."""
    norms, parameters = 65 * 4096, 8030261248
    held = FORMATS[name].real_bits(256, 1) * (parameters - norms) + 32 * norms

    assert round(held / parameters, 4) == bits


def test_a_mixture_looks_at_experts_size_and_shape() -> None:
    """The exceptions of llama-quant.cpp."""
    q4, q3, q2 = MIXTURES["q4_k_m"], MIXTURES["q3_k_l"], MIXTURES["q2_k-file"]

    assert q4.tensor_format("attn_v", 16, 32).name == "q4_k"
    assert q4.tensor_format("attn_qkv", 0, 32).name == "q6_k"
    assert q4.tensor_format("attn_v", 12, 80).name == "q6_k"
    assert q4.tensor_format("attn_v", 11, 80).name == "q5_k"
    assert q4.tensor_format("attn_k", 0, 32, experts=8).name == "q8_0"
    assert q4.tensor_format("attn_output", 0, 32, experts=8).name == "q5_k"
    assert q3.tensor_format("attn_output", 0, 32, experts=8).name == "q3_k"
    assert q2.tensor_format("attn_v", 0, 32, sharing=1).name == "q3_k"
    assert q4.tensor_format("token_embd", tied=True).name == "q6_k"
    assert q4.tensor_format("token_embd").name == "q4_k"
    assert q4.tensor_format("ffn_up", 0, 32, rows=576).name == "q5_0"
    assert q4.tensor_format("output", rows=576).name == "q8_0"
    # An eighth of 36 layers is 4 there, and not 4.5.
    small = MIXTURES["q4_k_s"]
    assert [small.tensor_format("ffn_down", i, 36).name for i in (3, 4)] == ["q5_k", "q4_k"]
    assert q4.tensor_format("ffn_up", 0, 32, rows=100).name == "fp16"


# Caches


def test_latents_keys_and_entries_take_the_layouts_of_deepseek() -> None:
    """656 and 132 bytes for V3.2, 584 and 68 for V4, from packed fields."""
    latent = np.dtype([("nope", "u1", (512,)), ("scales", "<f4", (4,)), ("rope", "<u2", (64,))])
    entry = np.dtype(
        [("nope", "u1", (448,)), ("rope", "<u2", (64,)), ("scales", "u1", (7,)), ("pad", "u1")]
    )
    key = np.dtype([("key", "u1", (128,)), ("scale", "<f4")])
    small = np.dtype([("key", "u1", (64,)), ("scales", "u1", (4,))])
    fp8, fp4 = CACHES["fp8-deepseek"], CACHES["fp8-deepseek-fp4"]

    for kind in (fp8, fp4):
        token = kind.vector_bytes(512, "latent") + kind.vector_bytes(64, "rope")
        assert token == latent.itemsize == 656
        assert kind.vector_bytes(512, "entry") == entry.itemsize == 584
        # Twice the width: 960 numbers in 15 groups of 64, and a byte of padding.
        assert kind.vector_bytes(1024, "entry") == 960 + 2 * 64 + 16
        assert kind.vector_bytes(128, "value") == 128
    assert fp8.vector_bytes(128, "index") == key.itemsize == 132
    assert fp4.vector_bytes(128, "index") == small.itemsize == 68


def test_plain_caches_take_their_bytes_in_every_role() -> None:
    """No scale, no layout."""
    roles: tuple[CacheRole, ...] = ("key", "value", "latent", "rope", "index", "entry")
    for name, size in (("fp32", 4), ("bf16", 2), ("fp16", 2), ("fp8", 1)):
        assert {CACHES[name].vector_bytes(576, role) for role in roles} == {576 * size}
        assert CACHES[name].bytes == size


def test_caches_of_llama_cpp_are_its_blocks() -> None:
    """A cache of q8_0 and q4_0 is quantized along the width of a head."""
    for name in ("q8_0", "q4_0"):
        assert CACHES[name].vector_bytes(128) == FORMATS[name].matrix_bytes(128, 1)
        symbolic = CACHES[name].vector_bytes(sympy.Symbol("H"))
        assert symbolic.subs("H", 128) == CACHES[name].vector_bytes(128)


# Documents


def row(kind: Format) -> str:
    """Write what docs/quantization.md says of a format."""
    bits = f"{kind.real_bits(4096, 4096):.6g}"
    where = kind.compute or "activations"
    cells = (f"`{kind.name}`", str(kind.bits), bits, where, kind.covers, kind.stores)
    return "| " + " | ".join(cells) + " |"


def test_the_document_has_every_format_as_it_is() -> None:
    """Each row of the table of docs/quantization.md, and no other."""
    text = (Path(__file__).resolve().parents[1] / "docs/quantization.md").read_text("utf-8")
    rows = re.findall(r"^\| `[^`]+` \|.*(?:all|matrices|linear|experts) \|.*$", text, re.M)

    assert rows == [row(f) for f in FORMATS.values()]


def test_the_document_has_every_cache_as_it_is() -> None:
    """Each row of the table of caches."""
    text = (Path(__file__).resolve().parents[1] / "docs/quantization.md").read_text("utf-8")
    for kind in CACHES.values():
        where = kind.compute or "activations"
        cells = (f"`{kind.name}`", f"{kind.vector_bytes(128):g}", where, kind.stores)
        assert "| " + " | ".join(cells) + " |" in text


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "unknown number format ''"),
        ("attention=q4_k_m,rest=fp8", "mixes types over a whole file, not within 'attention'"),
        ("attention=,rest=fp8", "is not PART=FORMAT"),
        ("mlp=fp8,mlp=bf16", "given twice"),
        ("wings=fp8", "no part of a model is called 'wings'"),
        ("experts=fp8", "has no part 'experts'"),
    ],
)
def test_what_is_typed_about_weights_is_understood_or_refused(text: str, says: str) -> None:
    """Each mistake is one sentence that names the option."""
    with pytest.raises(RooflmError, match=re.escape(says)):
        precision_of(text, model=find_model("llama-3-8b"))
