"""Weights as files hold them: safetensors headers, and models read from GGUF files."""

from __future__ import annotations

import contextlib
import json
import math
import struct
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf.quants import quantize
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflm.calc.attention import Attention
from rooflm.calc.errors import Exit, RooflmError
from rooflm.calc.experts import Experts, NoFeedForward
from rooflm.calc.gguf_file import Tensor as GGUFTensor
from rooflm.calc.gguf_file import tensor_bytes
from rooflm.calc.gguf_model import FILE_TYPES, FULL, KNOWN, PERIODS, formats_of, read_gguf
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Model, cache_elements, parameters, total_parameters
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_model
from rooflm.calc.safetensors_file import (
    BITS,
    INDEX,
    Tensor,
    read_folder,
    read_header,
    weight_bytes,
)
from rooflm.calc.safetensors_file import parameters as count

G: Any = gguf
Q8_0, Q4_0, F16 = (G.GGMLQuantizationType[name] for name in ("Q8_0", "Q4_0", "F16"))
Shape = tuple[int, ...]

D, N, K, H, F, V = 64, 4, 2, 16, 96, 50
"""Dimensions of the files made here; the smallest that blocks of 32 divide."""

quick = settings(
    max_examples=150,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


# Safetensors


def header(tensors: Mapping[str, tuple[str, Shape]]) -> dict[str, Any]:
    """Describe tensors that follow each other."""
    entries: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + math.prod(shape) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end]}
    return entries


def write(path: Path, entries: Mapping[str, Any]) -> Path:
    """Write a safetensors file with this header, and as many bytes of data as it promises."""
    data = max(e["data_offsets"][1] for n, e in entries.items() if n != "__metadata__")
    return write_raw(path, json.dumps(entries).encode(), data)


def write_raw(path: Path, text: bytes, data: int) -> Path:
    """Write a safetensors file of any header and so many bytes of data."""
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(data))
    return path


TWO = {"a": ("BF16", (4, 8)), "b": ("F32", (3,))}


def test_header_tells_dtype_shape_and_bytes(tmp_path: Path) -> None:
    """Each tensor has the dtype, the shape and the bytes of its entry; sums are by hand."""
    tensors = read_header(write(tmp_path / "m.safetensors", header(TWO)))

    assert tensors == {"a": Tensor("BF16", (4, 8), 64), "b": Tensor("F32", (3,), 12)}
    assert weight_bytes(tensors) == 76
    assert count(tensors) == 35


def test_dtypes_that_numpy_has_are_as_wide_as_numpys() -> None:
    """Bits per element of the common dtypes are those of numpy's types of the same name."""
    letters = {"U": "uint", "I": "int", "F": "float", "C": "complex"}
    for dtype, bits in BITS.items():
        if dtype[1:].isdigit() and bits >= 8:
            assert np.dtype(f"{letters[dtype[0]]}{dtype[1:]}").itemsize * 8 == bits, dtype


@pytest.mark.parametrize("dtype", ["U8", "I8", "I32"])
def test_packed_dtypes_are_not_counted_as_parameters(tmp_path: Path, dtype: str) -> None:
    """Elements that may hold several weights make the count None; bytes stay known."""
    path = write(tmp_path / "m.safetensors", header(TWO | {"q": (dtype, (8, 4))}))
    tensors = read_header(path)

    assert count(tensors) is None
    assert weight_bytes(tensors) == 76 + 32 * BITS[dtype] // 8


def test_buffers_and_four_bit_floats_are_counted_right(tmp_path: Path) -> None:
    """64-bit positions and masks are no parameters; two F4 elements share a byte."""
    more = {"ids": ("I64", (9,)), "mask": ("BOOL", (5,)), "w": ("F4", (2, 5))}
    tensors = read_header(write(tmp_path / "m.safetensors", header(TWO | more)))

    assert count(tensors) == 45
    assert tensors["w"].bytes == 5


def test_empty_tensors_and_scalars_are_read(tmp_path: Path) -> None:
    """A shape without dimensions is one element; one with a zero is none."""
    tensors = read_header(
        write(tmp_path / "m.safetensors", header({"s": ("F32", ()), "e": ("F16", (0, 7))}))
    )

    assert (tensors["s"].elements, tensors["e"].elements) == (1, 0)


def entry(**changes: Any) -> dict[str, Any]:
    """Describe one tensor of 64 bytes, with mistakes."""
    return {"a": {"dtype": "BF16", "shape": [4, 8], "data_offsets": [0, 64]} | changes}


BAD_HEADERS: dict[str, tuple[Any, str]] = {
    "unknown dtype": (entry(dtype="BF61"), "BF16"),
    "dtype no word": (entry(dtype=[1]), "dtype"),
    "negative offset": (entry(data_offsets=[-64, 0]), "data_offsets"),
    "backward offsets": (entry(data_offsets=[64, 0]), "-64 bytes"),
    "fractional offset": (entry(data_offsets=[0.0, 64]), "data_offsets"),
    "true as offset": (entry(data_offsets=[False, 64]), "data_offsets"),
    "one offset": (entry(data_offsets=[64]), "data_offsets"),
    "huge offset": (entry(data_offsets=[0, 10**400]), "data_offsets"),
    "wrong size": (entry(shape=[4, 9]), "takes 72"),
    "negative shape": (entry(shape=[-4, -8]), "shape"),
    "huge shape": (entry(shape=[2**62] * 64), "bytes where"),
    "many dimensions": (entry(shape=[1] * 65), "shape"),
    "shape no list": (entry(shape=32), "shape"),
    "no entry": ({"a": 5}, "description"),
    "a list": ([1, 2], "object"),
    "gap": (entry() | {"b": {"dtype": "U8", "shape": [1], "data_offsets": [65, 66]}}, "gap"),
    "overlap": (entry() | {"b": {"dtype": "U8", "shape": [9], "data_offsets": [9, 18]}}, "overlap"),
    "more data": (entry() | {"b": {"dtype": "U8", "shape": [6], "data_offsets": [64, 70]}}, "70"),
    "no JSON": (b"{'a'", "JSON"),
    "no UTF-8": (b'{"\xff": 1}', "JSON"),
    "deep": (b"[" * 10**5, "JSON"),
    "long number": (b'{"a": ' + b"9" * 5000 + b"}", "JSON"),
    "twice": (b'{"a": 1, "a": 2}', "'a' stands twice"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_HEADERS)
def test_a_wrong_header_is_an_error_that_says_what(tmp_path: Path, name: str) -> None:
    """Every inconsistency of a header is a RooflmError that names it."""
    bad, says = BAD_HEADERS[name]
    text = bad if isinstance(bad, bytes) else json.dumps(bad).encode()
    path = write_raw(tmp_path / "m.safetensors", text, 64)

    with pytest.raises(RooflmError) as raised:
        read_header(path)

    assert says in str(raised.value)


def test_a_cut_file_is_an_error_wherever_it_ends(tmp_path: Path) -> None:
    """A file cut at every tenth of its header, and within its data, is refused."""
    path = write(tmp_path / "m.safetensors", header(TWO))
    whole = path.read_bytes()
    cuts = {len(whole) * i // 20 for i in range(20)} | set(range(9)) | {len(whole) - 1}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        with pytest.raises(RooflmError):
            read_header(path)


def test_a_huge_header_length_is_refused_unread(tmp_path: Path) -> None:
    """A header of more than 100 MB is not believed, whatever the file's size."""
    path = tmp_path / "m.safetensors"
    for length in (10**8 + 1, 2**64 - 1):
        path.write_bytes(struct.pack("<Q", length) + b"{}")
        with pytest.raises(RooflmError, match="bytes long"):
            read_header(path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    """A folder, nothing at all and an impossible name are errors, for both formats."""
    for path in (tmp_path, tmp_path / "none", tmp_path / ("x" * 300), Path("a\0b")):
        for read in (read_header, read_gguf):
            with pytest.raises(RooflmError):
                read(path)
    for path in (tmp_path / "none", tmp_path, Path("a\0b"), tmp_path / ("x" * 300)):
        with pytest.raises(RooflmError):
            read_folder(path)


@quick
@given(st.data())
def test_random_damage_to_a_header_never_escapes(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed anywhere give tensors or a RooflmError, never another exception."""
    path = write(tmp_path / "m.safetensors", header(TWO))
    damage(path, data)
    with contextlib.suppress(RooflmError):
        read_header(path)


def damage(path: Path, data: st.DataObject) -> None:
    """Overwrite some bytes of a file, and maybe cut it."""
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(raw) - 1))
        new = data.draw(st.binary(min_size=1, max_size=8))
        raw[at : at + len(new)] = new
    path.write_bytes(raw[: data.draw(st.integers(0, len(raw)) | st.just(len(raw)))])


# Folders


def shards(folder: Path, **index: Any) -> Path:
    """Write a model in two shards, and its index with changes."""
    write(folder / "one.safetensors", header({"a": ("BF16", (4, 8))}))
    write(folder / "two.safetensors", header({"b": ("F32", (3,))}))
    content = {
        "metadata": {"total_size": 76},
        "weight_map": {"a": "one.safetensors", "b": "two.safetensors"},
    }
    (folder / INDEX).write_text(json.dumps(content | index))
    return folder


def test_a_folder_is_read_with_and_without_an_index(tmp_path: Path) -> None:
    """One file and two shards of the same tensors read the same."""
    single, several = tmp_path / "single", tmp_path / "several"
    single.mkdir()
    several.mkdir()
    write(single / "model.safetensors", header(TWO))
    write(single / "adapter.safetensors", header({"z": ("F32", (1,))}))

    assert read_folder(single) == read_folder(shards(several))


def test_an_index_without_a_total_is_read(tmp_path: Path) -> None:
    """The sum in an index is compared only where there is one."""
    assert weight_bytes(read_folder(shards(tmp_path, metadata={}))) == 76
    assert weight_bytes(read_folder(shards(tmp_path, metadata={"total_size": 76.0}))) == 76


BAD_INDICES: dict[str, tuple[dict[str, Any], str]] = {
    "total": ({"metadata": {"total_size": 80}}, "promises 80 bytes and the shards hold 76"),
    "total no number": ({"metadata": {"total_size": "76"}}, "total_size"),
    "total infinite": ({"metadata": {"total_size": float("inf")}}, "total_size"),
    "missing shard": (
        {"weight_map": {"a": "one.safetensors", "b": "three.safetensors"}},
        "three.safetensors is missing",
    ),
    "other shard": (
        {"weight_map": {"a": "two.safetensors", "b": "two.safetensors"}},
        "lacks 'a'",
    ),
    "swapped": (
        {"weight_map": {"a": "two.safetensors", "b": "one.safetensors"}},
        "holds 'a', which the index has in two.safetensors",
    ),
    "extra": ({"weight_map": {"c": "two.safetensors"}}, "holds 'b', which the index has in no"),
    "another folder": ({"weight_map": {"a": "../one.safetensors"}}, "not a file name"),
    "no word": ({"weight_map": {"a": 1}}, "not a file name"),
    "no map": ({"weight_map": []}, "weight_map"),
    "empty map": ({"weight_map": {}}, "weight_map"),
}


@pytest.mark.parametrize("name", BAD_INDICES)
def test_an_index_that_its_shards_do_not_bear_out_is_an_error(tmp_path: Path, name: str) -> None:
    """Missing shards, other totals and other places of a tensor are named."""
    index, says = BAD_INDICES[name]
    with pytest.raises(RooflmError) as raised:
        read_folder(shards(tmp_path, **index))

    assert says in str(raised.value)


def test_a_tensor_in_two_shards_is_an_error(tmp_path: Path) -> None:
    """A shard may not hold what the index has in another."""
    shards(tmp_path)
    write(tmp_path / "two.safetensors", header({"b": ("F32", (3,)), "a": ("BF16", (4, 8))}))

    with pytest.raises(RooflmError, match=r"'a', which the index has in one\.safetensors"):
        read_folder(tmp_path)


def test_a_shard_listed_twice_in_json_is_an_error(tmp_path: Path) -> None:
    """An index that names a tensor twice is refused."""
    shards(tmp_path)
    text = '{"weight_map": {"a": "one.safetensors", "a": "two.safetensors"}}'
    (tmp_path / INDEX).write_text(text)

    with pytest.raises(RooflmError, match="'a' stands twice in the index"):
        read_folder(tmp_path)


def test_several_files_without_an_index_are_ambiguous(tmp_path: Path) -> None:
    """Two files of unknown belonging are not added up; none at all is an error."""
    with pytest.raises(RooflmError, match=r"no \.safetensors file"):
        read_folder(tmp_path)
    shards(tmp_path)
    (tmp_path / INDEX).unlink()

    with pytest.raises(RooflmError, match=r"2 \.safetensors files and no"):
        read_folder(tmp_path)


# GGUF


def llama(layers: int = 2, kv: int = K) -> dict[str, Shape]:
    """Name the tensors of a Llama, shapes (in, out)."""
    tensors: dict[str, Shape] = {
        "token_embd.weight": (D, V), "output.weight": (D, V), "output_norm.weight": (D,),
    }  # fmt: skip
    for i in range(layers):
        tensors |= block(i, kv)
    return tensors


def block(i: int, kv: int = K) -> dict[str, Shape]:
    """Name the tensors of a layer of a Llama."""
    names: dict[str, Shape] = {
        "attn_norm": (D,), "attn_q": (D, N * H), "attn_k": (D, kv * H), "attn_v": (D, kv * H),
        "attn_output": (N * H, D), "ffn_norm": (D,), "ffn_gate": (D, F), "ffn_up": (D, F),
        "ffn_down": (F, D),
    }  # fmt: skip
    return {f"blk.{i}.{name}.weight": shape for name, shape in names.items()}


KEYS: dict[str, Any] = {
    "block_count": 2, "embedding_length": D, "feed_forward_length": F, "context_length": 4096,
    "attention.head_count": N, "attention.head_count_kv": K,
    "attention.layer_norm_rms_epsilon": 1e-5,
}  # fmt: skip


def make(
    path: Path,
    tensors: Mapping[str, Shape],
    arch: str = "llama",
    formats: Mapping[str, Any] | None = None,
    general: Mapping[str, Any] | None = None,
    big: bool = False,
    **keys: Any,
) -> Path:
    """Write a GGUF file: KEYS with changes (`__` for a dot, None to leave one out), zeros."""
    order = G.GGUFEndian.BIG if big else G.GGUFEndian.LITTLE
    writer = G.GGUFWriter(str(path), arch, False, order)
    changed = KEYS | {name.replace("__", "."): value for name, value in keys.items()}
    for name, value in [(f"{arch}.{n}", v) for n, v in changed.items()] + list(
        (general or {}).items()
    ):
        match value:
            case None:
                pass
            case bool():
                writer.add_bool(name, value)
            case int():
                writer.add_uint32(name, value)
            case float():
                writer.add_float32(name, value)
            case str():
                writer.add_string(name, value)
            case _:
                writer.add_array(name, value)
    writer.add_token_list([f"token {i}" for i in range(20)])
    for name, shape in tensors.items():
        data = np.zeros(shape[::-1], np.float32)
        kind = (formats or {}).get(name.split(".")[-2])
        if kind is None:
            writer.add_tensor(name, data)
        else:
            writer.add_tensor(name, quantize(data, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


Make = Callable[..., Model]


@pytest.fixture
def model(tmp_path: Path) -> Make:
    """Write a file and read it; what holds for every model is checked here."""

    def read(tensors: Mapping[str, Shape], *args: Any, **keys: Any) -> Model:
        path = make(tmp_path / "m.gguf", tensors, *args, **keys)
        found = read_gguf(path)
        assert total_parameters(found) == elements(tensors)
        assert found.file_bytes == sum(size for _, size in tensor_bytes(path).values())
        return found

    return read


@pytest.mark.parametrize("name", ["Q8_0", "Q4_0", "F16"])
def test_the_one_type_of_all_matrices_is_the_format_of_a_file(tmp_path: Path, name: str) -> None:
    """Norms are fp32 in such a file; matrices of several types have no one format."""
    kind = G.GGMLQuantizationType[name]
    matrices = [n.split(".")[-2] for n, shape in llama().items() if len(shape) > 1]
    same = read_gguf(make(tmp_path / "a.gguf", llama(), formats=dict.fromkeys(matrices, kind)))
    mixed = read_gguf(make(tmp_path / "b.gguf", llama(), formats={matrices[0]: kind}))

    assert same.weights_format == {"F16": "fp16"}.get(name, name.lower())
    assert mixed.weights_format is None
    assert mixed.weights_unknown.startswith("matrices of ")
    with pytest.raises(RooflmError, match="Say --weights FORMAT"):
        precision_of(None, model=mixed)


def test_a_mixture_is_taken_for_its_name_where_its_bytes_are_those_of_the_file() -> None:
    """The numbers of file types are those of the package gguf; a Llama in Q4_K_M has 4.58 GiB.

    Its 4.8944 bits a weight: github.com/ggml-org/llama.cpp, tools/quantize/README.md.
    """
    llama_8b, held = find_model("llama-3.1-8b"), round(8030261248 * 4.8944 / 8)
    tensors = {
        "a.weight": GGUFTensor("Q4_K", (256, 1), held // 2),
        "b.weight": GGUFTensor("Q6_K", (256, 1), held - held // 2),
    }
    assert formats_of(llama_8b, {"general.file_type": 15}, tensors) == ("q4_k_m", "")
    for other in (None, 14, 18, "15"):
        unknown = formats_of(llama_8b, {"general.file_type": other}, tensors)
        assert unknown == (None, "matrices of q4_k, q6_k")
    for number, name in FILE_TYPES.items():
        said = G.LlamaFileType(number).name.removeprefix("MOSTLY_").lower()
        assert name.removesuffix("-file") == said


def elements(tensors: Mapping[str, Shape]) -> int:
    """Add up elements, rotary tables and scales apart."""
    return sum(math.prod(s) for n, s in tensors.items() if "rope" not in n and ".scale" not in n)


def renamed(
    tensors: Mapping[str, Shape], without: Iterable[str] = (), **layer: Shape
) -> dict[str, Shape]:
    """Leave tensors of a layer out and put others into both layers (`__` for a dot)."""
    kept = {n: s for n, s in tensors.items() if not any(f".{w}." in f".{n}" for w in without)}
    for i in range(2):
        kept |= {f"blk.{i}.{name.replace('__', '.')}": shape for name, shape in layer.items()}
    return kept


def attention_of(found: Model) -> Attention:
    """Take the attention of the first group."""
    mixer = found.groups[0].mixer
    assert isinstance(mixer, Attention)
    return mixer


def test_a_llama_is_read(model: Make) -> None:
    """Two equal layers, gated, grouped queries, untied, RMSNorm: by hand."""
    found = model(llama())

    assert (found.name, found.D, found.V, found.norm, found.tied) == ("m", D, V, "rms", False)
    assert [g.count for g in found.groups] == [2]
    assert found.groups[0].norms == 2
    assert found.groups[0].mixer == Attention(N, K, H)
    assert found.groups[0].ffn == MLP(F, gated=True)
    assert (found.final_norm, found.parallel, found.max_context) == (True, False, 4096)
    assert found.file_bytes == 4 * elements(llama())


def test_provenance_names_keys_and_tensors(model: Make) -> None:
    """Each field says from which key or tensor of the file it came."""
    origins = {(name, value): why for name, value, why in model(llama()).provenance}

    assert origins["D", "64"] == "tensor token_embd.weight"
    assert "key llama.attention.head_count_kv" in origins["K", "2"]
    assert origins["F", "96"] == "tensor blk.0.ffn_down.weight"
    assert origins["tied", "False"] == "tensor output.weight"


def test_without_output_weight_the_head_is_tied(model: Make) -> None:
    """A file that lacks output.weight uses the embedding for the head."""
    tied, own = model(renamed(llama(), ["output"])), model(llama())

    assert (tied.tied, own.tied) == (True, False)
    assert total_parameters(own) - total_parameters(tied) == own.V * own.D


def test_rotary_tables_and_scales_are_no_parameters(model: Make) -> None:
    """Buffers count as bytes of the file and not as weights."""
    buffers = {"rope_freqs.weight": (8,), "rope_factors_long.weight": (8,),
               "blk.0.attn_q.scale": (1,)}  # fmt: skip
    found = model(llama() | buffers)

    assert found.file_bytes == 4 * (elements(llama()) + 17)


def test_quantized_bytes_are_those_of_blocks(model: Make, tmp_path: Path) -> None:
    """A type takes the bytes of its blocks in gguf's own table: Q8_0 34 for 32 weights."""
    formats = {"ffn_down": Q8_0, "ffn_up": Q4_0, "attn_q": F16}
    found = model(llama(), "llama", formats)

    listed = tensor_bytes(tmp_path / "m.gguf")
    for name, (kind, size) in listed.items():
        block_size, block_bytes = G.GGML_QUANT_SIZES[G.GGMLQuantizationType[kind]]
        assert size * block_size == math.prod(llama()[name]) * block_bytes
    assert listed["blk.1.ffn_down.weight"] == ("Q8_0", F * D * 34 // 32)
    assert listed["blk.0.ffn_up.weight"] == ("Q4_0", F * D * 18 // 32)
    assert listed["blk.0.attn_q.weight"] == ("F16", D * N * H * 2)
    saved = 2 * (F * D * 4 - F * D * 34 // 32 + F * D * 4 - F * D * 18 // 32 + D * N * H * 2)
    assert found.file_bytes == 4 * elements(llama()) - saved


def test_a_list_of_kv_heads_makes_groups(model: Make) -> None:
    """Layers with other key/value heads are other groups, whatever their order."""
    tensors = llama(0) | block(0, 2) | block(1, 4) | block(2, 2)
    found = model(tensors, block_count=3, attention__head_count_kv=[2, 4, 2])

    assert [(g.count, g.mixer.K) for g in found.groups if isinstance(g.mixer, Attention)] == [
        (2, 2),
        (1, 4),
    ]
    origins = [why for name, value, why in found.provenance if (name, value) == ("K", "4")]
    assert "blk.1.attn_k.weight" in origins[0]


def test_files_of_the_other_byte_order_are_read(model: Make) -> None:
    """A big-endian file, lists and words included, is the same model."""
    keys = {"attention__head_count_kv": [K, K]}

    assert model(llama(), big=True, **keys).groups == model(llama(), **keys).groups


def test_a_list_of_widths_makes_groups(model: Make) -> None:
    """Feed-forward widths differ by layer; the tensors say how."""
    other = {"blk.1.ffn_gate.weight": (D, 32), "blk.1.ffn_up.weight": (D, 32),
             "blk.1.ffn_down.weight": (32, D)}  # fmt: skip
    found = model(llama() | other, feed_forward_length=[F, 32])

    assert [g.ffn for g in found.groups] == [MLP(F), MLP(32)]


def test_layers_may_lack_attention_or_feed_forward(model: Make) -> None:
    """Zero heads and zero width in the keys are layers without that part (Nemotron NAS)."""
    tensors = llama(0) | block(0) | block(1) | block(2)
    for gone in ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output"):
        del tensors[f"blk.1.{gone}.weight"]
    for gone in ("ffn_norm", "ffn_gate", "ffn_up", "ffn_down"):
        del tensors[f"blk.2.{gone}.weight"]
    found = model(
        tensors, "deci", block_count=3, attention__head_count=[N, 0, N],
        attention__head_count_kv=[K, 0, K], feed_forward_length=[F, F, 0],
    )  # fmt: skip

    assert [g.mixer.kind for g in found.groups] == ["full", "none", "full"]
    assert isinstance(found.groups[2].ffn, NoFeedForward)


def test_biases_and_head_norms_are_read(model: Make) -> None:
    """Qwen 2 has biases on queries, keys and values; Qwen 3 norms of a head's width."""
    biased = renamed(
        llama(), attn_q__bias=(N * H,), attn_k__bias=(K * H,), attn_v__bias=(K * H,)
    )  # fmt: skip
    normed = renamed(llama(), attn_q_norm__weight=(H,), attn_k_norm__weight=(H,))
    qwen2, qwen3 = attention_of(model(biased, "qwen2")), attention_of(model(normed, "qwen3"))

    assert (qwen2.qkv_bias, qwen2.out_bias, qwen2.qk_norm) == (True, False, "none")
    assert (qwen3.qkv_bias, qwen3.qk_norm) == (False, "head")


def test_gpt2_is_read(model: Make) -> None:
    """Fused biased projections, plain MLP with biases, LayerNorm, learned positions."""
    tensors = renamed(
        llama(), ["attn_q", "attn_k", "attn_v", "ffn_gate", "output"],
        attn_qkv__weight=(D, 3 * D), attn_qkv__bias=(3 * D,), attn_output__bias=(D,),
        attn_norm__bias=(D,), ffn_norm__bias=(D,), ffn_up__bias=(F,), ffn_down__bias=(D,),
    ) | {"position_embd.weight": (D, 128), "output_norm.bias": (D,)}  # fmt: skip
    found = model(
        tensors, "gpt2", attention__head_count_kv=None,
        attention__layer_norm_rms_epsilon=None, attention__layer_norm_epsilon=1e-5,
    )  # fmt: skip

    assert found.norm == "layer"
    assert found.positions == 128
    assert attention_of(found) == Attention(N, N, H, qkv_bias=True, out_bias=True)
    assert found.groups[0].ffn == MLP(F, gated=False, bias=True)


def test_one_norm_for_both_halves_is_a_parallel_model(model: Make) -> None:
    """Phi-2 has one norm a layer and a head with a bias; Command R norms without biases."""
    phi2 = model(
        renamed(llama(), ["ffn_norm", "ffn_gate"], attn_norm__bias=(D,))
        | {"output.bias": (V,), "output_norm.bias": (D,)}, "phi2",
    )  # fmt: skip
    command_r = model(
        renamed(llama(), ["ffn_norm", "output"]), "command-r",
        attention__layer_norm_rms_epsilon=None, attention__layer_norm_epsilon=1e-5,
    )  # fmt: skip

    assert (phi2.parallel, phi2.head_bias, phi2.groups[0].norms) == (True, True, 1)
    assert (command_r.parallel, command_r.norm, command_r.tied) == (True, "layer-no-bias", True)


def test_olmo_norms_are_read(model: Make) -> None:
    """OLMo 1 has norms without weights; OLMo 2 norms after each half and wide QK-norms."""
    olmo = model(renamed(llama(), ["attn_norm", "ffn_norm", "output_norm"]), "olmo")
    olmo2 = model(
        renamed(
            llama(), ["attn_norm", "ffn_norm"], post_attention_norm__weight=(D,),
            post_ffw_norm__weight=(D,), attn_q_norm__weight=(N * H,),
            attn_k_norm__weight=(K * H,),
        ), "olmo2",
    )  # fmt: skip

    assert (olmo.norm, olmo.final_norm, olmo.groups[0].norms) == ("none", False, 0)
    assert attention_of(olmo2).qk_norm == "width"
    assert (olmo2.groups[0].norms, olmo2.parallel) == (2, False)


def test_a_gate_inside_the_up_projection_is_seen(model: Make) -> None:
    """Phi-3 and GLM-4 have an up-projection twice as wide as what goes down."""
    found = model(
        renamed(
            llama(), ["attn_q", "attn_k", "attn_v", "ffn_gate"],
            attn_qkv__weight=(D, (N + 2 * K) * H), ffn_up__weight=(D, 2 * F),
        ), "phi3", attention__sliding_window=2047,
    )  # fmt: skip

    assert found.groups[0].ffn == MLP(F, gated=True)
    # llama.cpp turns Phi-3's window off.
    assert attention_of(found).window is None


def test_heads_need_not_fill_the_width(model: Make) -> None:
    """Head width and value width come from their keys and are checked against the tensors."""
    tensors = renamed(
        llama(), attn_q__weight=(D, N * 24), attn_k__weight=(D, K * 24),
        attn_v__weight=(D, K * 8), attn_output__weight=(N * 8, D),
    )  # fmt: skip
    found = attention_of(model(tensors, attention__key_length=24, attention__value_length=8))

    assert (found.H, found.H_v) == (24, 8)
    assert found.token_elements == K * 32


def moe(**more: Shape) -> dict[str, Shape]:
    """Name the tensors of a Llama with six experts of width 32."""
    return renamed(
        llama(), ["ffn_gate", "ffn_up", "ffn_down"], ffn_gate_inp__weight=(D, 6),
        ffn_gate_exps__weight=(D, 32, 6), ffn_up_exps__weight=(D, 32, 6),
        ffn_down_exps__weight=(32, D, 6), **more,
    )  # fmt: skip


def test_experts_are_read(model: Make) -> None:
    """Mixtral is a llama with experts; shared ones and their gate are Qwen 2's."""
    shared: dict[str, Shape] = {
        "ffn_gate_shexp__weight": (D, 40), "ffn_up_shexp__weight": (D, 40),
        "ffn_down_shexp__weight": (40, D), "ffn_gate_inp_shexp__weight": (D,),
    }  # fmt: skip
    keys = {"expert_count": 6, "expert_used_count": 2, "expert_feed_forward_length": 32}

    assert model(moe(), **keys).groups[0].ffn == Experts(32, 6, 2)
    assert model(moe(**shared), "qwen2moe", **keys).groups[0].ffn == Experts(
        32, 6, 2, shared=40, shared_gate=True
    )
    assert parameters(model(moe(**shared), "qwen2moe", **keys))["router"] == 2 * D * 6


def test_dense_layers_before_experts_are_a_group(model: Make) -> None:
    """The first layers of DeepSeek are dense; the router's correction is a parameter."""
    tensors = llama(1) | {
        n: s for n, s in moe(exp_probs_b__bias=(6,)).items() if n.startswith("blk.1.")
    }
    found = model(tensors, "deepseek", expert_used_count=2)

    assert [g.ffn for g in found.groups] == [MLP(F), Experts(32, 6, 2, router_bias=True)]


def test_gpt_oss_is_read(model: Make) -> None:
    """Sinks, biases everywhere, experts with biases, and every other layer slides."""
    tensors = moe(
        attn_q__bias=(N * H,), attn_k__bias=(K * H,), attn_v__bias=(K * H,),
        attn_output__bias=(D,), attn_sinks__weight=(N,), ffn_gate_inp__bias=(6,),
        ffn_gate_exps__bias=(32, 6), ffn_up_exps__bias=(32, 6), ffn_down_exps__bias=(D, 6),
    )  # fmt: skip
    found = model(tensors, "gpt-oss", expert_used_count=2, attention__sliding_window=128)

    slides, full = (g.mixer for g in found.groups)
    assert slides == Attention(N, K, H, window=128, qkv_bias=True, out_bias=True, extra=N)
    assert full.kind == "full"
    assert found.groups[0].ffn == Experts(32, 6, 2, bias=True, router_bias=True)


@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("q_rank", [None, 24])
def test_latent_attention_is_read(model: Make, split: bool, q_rank: int | None) -> None:
    """Ranks and widths come from the shapes, with kv_b whole or split into k_b and v_b."""
    c, r, d, v = 32, 8, 16, 12
    up = (
        {"attn_k_b__weight": (d, c, N), "attn_v_b__weight": (c, v, N)}
        if split
        else {"attn_kv_b__weight": (c, N * (d + v))}
    )
    query = (
        {"attn_q__weight": (D, N * (d + r))}
        if q_rank is None
        else {
            "attn_q_a__weight": (D, q_rank),
            "attn_q_a_norm__weight": (q_rank,),
            "attn_q_b__weight": (q_rank, N * (d + r)),
        }
    )  # fmt: skip
    tensors = renamed(
        llama(), ["attn_q", "attn_k", "attn_v"], attn_kv_a_mqa__weight=(D, c + r),
        attn_kv_a_norm__weight=(c,), attn_output__weight=(N * v, D), **up, **query,
    )  # fmt: skip
    found = model(tensors, "deepseek2", attention__head_count_kv=1)

    assert found.groups[0].mixer == MLA(N, c, r, d, v, q_rank)
    assert cache_elements(found, 10) == 2 * 10 * (c + r)


def kinds(found: Model) -> dict[str, int]:
    """Count the layers of each kind."""
    return {g.mixer.kind: int(g.count) for g in found.groups}


@pytest.mark.parametrize(
    ("arch", "sliding"),
    [("gemma3", 10), ("gemma2", 6), ("cohere2", 9), ("olmo2", 9), ("llama", 0)],
)
def test_which_layers_slide_is_the_architectures(model: Make, arch: str, sliding: int) -> None:
    """Of 12 layers the last of each period is full: 6, 2 or 4 of them make a period."""
    window = None if arch == "llama" else 512
    found = model(llama(12), arch, block_count=12, attention__sliding_window=window)

    assert kinds(found).get("sliding", 0) == sliding
    assert sum(kinds(found).values()) == 12
    if sliding:
        assert attention_of(found).window == 512


def test_a_pattern_key_goes_before_the_architectures_own(model: Make) -> None:
    """A period or a truth for each layer in the file is believed."""
    by_period = model(
        llama(6), "gemma3", block_count=6, attention__sliding_window=512,
        attention__sliding_window_pattern=3,
    )  # fmt: skip
    by_layer = model(
        llama(2), "qwen3", attention__sliding_window=512,
        attention__sliding_window_pattern=[True, False],
    )  # fmt: skip

    assert kinds(by_period) == {"sliding": 4, "full": 2}
    assert kinds(by_layer) == {"sliding": 1, "full": 1}


def test_windows_that_do_nothing_are_full_attention(model: Make) -> None:
    """A window of 0 or not below the context is none; Gemma 2 has one without the key."""
    assert kinds(model(llama(), attention__sliding_window=0)) == {"full": 2}
    assert kinds(model(llama(), attention__sliding_window=4096)) == {"full": 2}
    gemma2 = model(llama(), "gemma2", context_length=8192)
    assert attention_of(gemma2).window == 4096


def test_llama4_looks_into_chunks(model: Make) -> None:
    """Three of four layers are chunked by 8192, without any key in the file."""
    found = model(llama(4), "llama4", block_count=4)

    assert kinds(found) == {"chunked": 3, "full": 1}
    assert attention_of(found).chunk == 8192


def test_architectures_are_ggufs_names() -> None:
    """No name is misspelt, and none is in two lists."""
    assert set(G.MODEL_ARCH_NAMES.values()) >= KNOWN
    assert not FULL & PERIODS.keys()


REFUSED: dict[str, tuple[dict[str, Shape], dict[str, Any], str]] = {
    "architecture": (llama(), {"arch": "mamba"}, "'mamba'"),
    "hybrid": (llama(), {"arch": "qwen3next"}, "'qwen3next'"),
    "linear layer": (
        renamed(llama(), ssm_in__weight=(D, 8)),
        {},
        "2 tensors are not understood: blk.0.ssm_in.weight",
    ),
    "vision": (llama() | {"v.patch.weight": (4, 4)}, {}, "v.patch.weight"),
    "next tokens": (
        renamed(llama(), nextn__eh_proj__weight=(2 * D, D)),
        {"arch": "glm4moe"},
        "nextn",
    ),
    "encoder": (llama(), {"attention__causal": False}, "encoder"),
    "window": (
        llama(),
        {"arch": "qwen2", "attention__sliding_window": 512},
        "512 tokens, and which layers of 'qwen2'",
    ),
    "pattern": (
        llama(),
        {"attention__sliding_window": 512, "attention__sliding_window_pattern": [True]},
        "pattern",
    ),
    "no keys": (llama(), {"block_count": None}, "llama.block_count"),
    "more blocks": (llama(), {"block_count": 3}, "of 2 layers"),
    "hole in blocks": (llama(0) | block(0) | block(2), {}, "of 2 layers"),
    "width": (llama(), {"embedding_length": 32}, "embedding_length"),
    "heads": (llama(), {"attention__head_count": 8}, "blk.0.attn_k.weight"),
    "kv heads": (llama(), {"attention__head_count_kv": 4}, "64 x 32 in place of 64 x 64"),
    "odd kv heads": (llama(), {"attention__head_count_kv": 3}, "3 key/value heads"),
    "no kv heads": (llama(), {"attention__head_count_kv": 0}, "0 key/value heads"),
    "short list": (llama(), {"attention__head_count_kv": [2]}, "1 entries for 2 layers"),
    "word for a number": (llama(), {"block_count": "two"}, "not a count"),
    "list for a number": (llama(), {"block_count": [2, 2]}, "not a count"),
    "no embedding": (renamed(llama(), ["token_embd"]), {}, "token_embd.weight"),
    "no keys' tensor": (renamed(llama(), ["attn_k"]), {}, "'blk.0.attn_k.weight' is missing"),
    "no down": (renamed(llama(), ["ffn_down"]), {}, "'blk.0.ffn_down.weight' is missing"),
    "down has three": (renamed(llama(), ffn_down__weight=(F, D, 1)), {}, "96 x 64 x 1"),
    "one bias": (renamed(llama(), attn_q__bias=(N * H,)), {}, "no 'blk.0.attn_k.bias'"),
    "one qk norm": (
        renamed(llama(), attn_q_norm__weight=(H,)),
        {},
        "no 'blk.0.attn_k_norm.weight'",
    ),
    "some norm biases": (renamed(llama(), ffn_norm__bias=(D,)), {}, "norms differ"),
    "wide head": (llama() | {"output.weight": (D, V + 1)}, {}, "output.weight"),
    "too few experts": (moe(), {"expert_used_count": 7}, "7 of 6 experts"),
    "experts unused": (moe(), {}, "expert_used_count"),
    "both": (moe() | block(0), {"expert_used_count": 2}, "ffn_gate.weight"),
    "two router biases": (
        moe(ffn_gate_inp__bias=(6,), exp_probs_b__bias=(6,)),
        {"expert_used_count": 2},
        "two biases",
    ),
    "old experts": (renamed(llama(), ["ffn_gate"], ffn_gate__0__weight=(D, F)), {}, "ffn_gate.0"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_understood_is_refused_by_name(tmp_path: Path, name: str) -> None:
    """Other architectures, other tensors and contradictions are errors that name them."""
    tensors, keys, says = REFUSED[name]
    path = make(tmp_path / "m.gguf", tensors, **keys)

    with pytest.raises(RooflmError) as raised:
        read_gguf(path)

    assert says in str(raised.value)
    assert raised.value.code == Exit.USAGE


def parts(folder: Path, second: Mapping[str, Shape], total: int) -> list[Path]:
    """Write a Llama in two parts, the second layer's tensors in the second."""
    paths = [folder / f"m-0000{i}-of-00002.gguf" for i in (1, 2)]
    first = {n: s for n, s in llama().items() if not n.startswith("blk.1.")}
    split = {"split.count": 2, "split.tensors.count": total}
    make(paths[0], first, general=split | {"split.no": 0})
    make(paths[1], second, general=split | {"split.no": 1})
    return paths


def test_a_file_in_parts_is_read_whole(tmp_path: Path) -> None:
    """Any part leads to the model; its bytes are those of all parts."""
    for path in parts(tmp_path, block(1), len(llama())):
        found = read_gguf(path)

        assert total_parameters(found) == elements(llama())
        assert found.file_bytes == 4 * elements(llama())


def test_parts_that_do_not_add_up_are_errors(tmp_path: Path) -> None:
    """A missing part, a repeated tensor, another total, another name."""
    first, second = parts(tmp_path, block(1), 99)
    with pytest.raises(RooflmError, match="promise 99 tensors and hold 21"):
        read_gguf(first)
    parts(tmp_path, block(0), 21)
    with pytest.raises(RooflmError, match="in an earlier part too"):
        read_gguf(first)
    second.unlink()
    with pytest.raises(RooflmError, match="00002-of-00002"):
        read_gguf(first)
    with pytest.raises(RooflmError, match="not named like one"):
        read_gguf(first.rename(tmp_path / "m.gguf"))


def test_a_cut_gguf_file_is_an_error_wherever_it_ends(tmp_path: Path) -> None:
    """A file cut at every tenth of its metadata and of its data is refused."""
    path = make(tmp_path / "m.gguf", llama())
    whole = path.read_bytes()
    front = len(whole) - 4 * elements(llama())
    cuts = {front * i // 40 for i in range(40)} | {len(whole) * i // 10 for i in range(10)}
    for cut in sorted(cuts):
        path.write_bytes(whole[:cut])
        with pytest.raises(RooflmError):
            read_gguf(path)


@pytest.mark.parametrize("kind", ["UINT8", "STRING", "ARRAY"])
def test_a_list_without_end_in_a_large_file_is_refused(tmp_path: Path, kind: str) -> None:
    """A length that the file's size does not contradict at once does not take minutes."""
    path = tmp_path / "m.gguf"
    inner, outer = G.GGUFValueType[kind], G.GGUFValueType.ARRAY
    front = struct.pack("<4sIQQQcIIQ", b"GGUF", 3, 0, 1, 1, b"a", outer, inner, 2**60)
    with path.open("wb") as file:
        file.write(front)
        file.truncate(2**30)

    with pytest.raises(RooflmError):
        read_gguf(path)


@pytest.mark.parametrize("tensors", [0, 2**60])
def test_endless_counts_in_a_large_file_are_refused(tmp_path: Path, tensors: int) -> None:
    """So many keys or tensors of zeros end after a second or two."""
    path = tmp_path / "m.gguf"
    with path.open("wb") as file:
        file.write(struct.pack("<4sIQQ", b"GGUF", 3, tensors, 0 if tensors else 2**60))
        file.truncate(2**30)

    with pytest.raises(RooflmError):
        read_gguf(path)


def test_endless_lists_do_not_hang(tmp_path: Path) -> None:
    """Lengths of 2^60 in place of any eight bytes of the metadata end in an error or a model."""
    path = make(tmp_path / "m.gguf", llama(1), block_count=1)
    whole = path.read_bytes()
    for at in range(4, len(whole) - 4 * elements(llama(1)), 7):
        raw = bytearray(whole)
        raw[at : at + 8] = struct.pack("<Q", 2**60)
        path.write_bytes(raw)
        with contextlib.suppress(RooflmError):
            read_gguf(path)


@quick
@given(st.data())
def test_random_damage_to_a_gguf_file_never_escapes(tmp_path: Path, data: st.DataObject) -> None:
    """Bytes changed anywhere give a model or a RooflmError, never another exception."""
    path = make(tmp_path / "m.gguf", llama(1), block_count=1)
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) - 4 * elements(llama(1))])
    damage(path, data)
    path.write_bytes(path.read_bytes() + bytes(4 * elements(llama(1))))
    with contextlib.suppress(RooflmError):
        read_gguf(path)


def test_the_sum_of_overlapping_tensors_is_refused(tmp_path: Path) -> None:
    """Tensors that would need more bytes than the file has are damage."""
    path = make(tmp_path / "m.gguf", llama())
    reader = G.GGUFReader(path)
    raw = bytearray(path.read_bytes())
    for tensor in reader.tensors:
        offset = tensor.field.offset + sum(int(p.nbytes) for p in tensor.field.parts[:-1])
        raw[offset : offset + 8] = bytes(8)
    del reader
    path.write_bytes(raw[: len(raw) - 4 * elements(llama()) + 4 * D * F])

    with pytest.raises(RooflmError, match="overlap"):
        read_gguf(path)


def test_without_gguf_the_install_line_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 3 and the command that installs the package."""
    path = make(tmp_path / "m.gguf", llama())
    monkeypatch.setitem(sys.modules, "gguf", None)
    for read in (read_gguf, tensor_bytes):
        with pytest.raises(RooflmError) as raised:
            read(path)

        assert raised.value.code == Exit.MISSING
        assert raised.value.fix == "pip install 'rooflm[gguf]'"
