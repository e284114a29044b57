"""Names, shapes and bytes of the tensors in safetensors files: the header only, never the weights.

Format: github.com/huggingface/safetensors, README.md: the length of the header in 8 bytes,
little-endian, then JSON, then the tensors without gaps. What the reference reader refuses is
refused here too.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import RooflmError, nearest
from .plain import is_list, is_map, is_number

LARGEST_HEADER = 100_000_000
"""Bytes of a header beyond which the reference reader refuses a file [B]."""
MOST_DIMENSIONS = 64
"""Dimensions beyond which a shape is taken for damage; real ones have five at most."""

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"

BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "U16": 16, "I16": 16, "U32": 32, "I32": 32, "U64": 64, "I64": 64,
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E8M0": 8, "F8_E4M3": 8, "F8_E5M2": 8,
    "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "F16": 16, "BF16": 16, "F32": 32, "F64": 64, "C64": 64,
}  # fmt: skip
"""Bits per element of each dtype of the format [bit]."""
BUFFERS = frozenset({"BOOL", "I64", "U64"})
"""Dtypes of masks and indices; no quantization stores weights in them."""
PACKED = frozenset({"U8", "I8", "U16", "I16", "U32", "I32"})
"""Dtypes whose elements may hold several weights each (AWQ and GPTQ in I32, MXFP4 in U8)."""


@dataclass(frozen=True)
class Tensor:
    """What a header says about a tensor."""

    dtype: str
    shape: tuple[int, ...]
    bytes: int
    """Bytes in the file [B]."""

    @property
    def elements(self) -> int:
        """Elements of the shape [1]; fewer than weights where several are packed into one."""
        return math.prod(self.shape)


def weight_bytes(tensors: Mapping[str, Tensor]) -> int:
    """Add up the bytes of tensors [B]."""
    return sum(t.bytes for t in tensors.values())


def parameters(tensors: Mapping[str, Tensor]) -> int | None:
    """Count the elements of the floating-point tensors [parameters].

    None where a tensor is of a small integer dtype: how many weights an element of it holds is not
    in the file. Masks and 64-bit indices are left out; scales of quantized weights are not told
    from weights.
    """
    if any(t.dtype in PACKED for t in tensors.values()):
        return None
    return sum(t.elements for t in tensors.values() if t.dtype not in BUFFERS)


def file_size(path: Path) -> int:
    """Bytes of a regular file [B]; a folder or a pipe in its place is an error."""
    try:
        if path.is_file():
            return path.stat().st_size
        found = path.exists()
    except OSError as e:
        raise _unreadable(e, path) from None
    if found:
        raise RooflmError("this is not a regular file", str(path))
    raise RooflmError("there is no such file", str(path))


def read_folder(path: Path) -> dict[str, Tensor]:
    """Read the headers of a model's folder: one file, or the shards that an index names."""
    try:
        names = sorted(p.name for p in path.iterdir())
    except OSError as e:
        raise _unreadable(e, path, "folder") from None
    except ValueError:
        raise RooflmError("this is not a folder's name", str(path)) from None
    if INDEX in names:
        return _read_shards(path, names)
    files = [name for name in names if name.endswith(".safetensors")]
    if not files:
        raise RooflmError("the folder holds no .safetensors file", str(path))
    if len(files) > 1 and SINGLE not in files:
        what = f"the folder holds {len(files)} .safetensors files and no {INDEX}"
        raise RooflmError(what, str(path), "Name one of the files.")
    return read_header(path / (SINGLE if SINGLE in files else files[0]))


def _read_shards(folder: Path, names: list[str]) -> dict[str, Tensor]:
    index = folder / INDEX
    listed, promised = _read_index(index)
    tensors: dict[str, Tensor] = {}
    for shard in sorted(set(listed.values())):
        path = folder / shard
        if shard not in names:
            fix = "Complete the download."
            raise RooflmError(f"the shard {shard} is missing", str(folder), fix)
        for name, tensor in read_header(path).items():
            if listed.get(name) != shard:
                other = listed.get(name)
                place = "in no shard" if other is None else f"in {other}"
                what = f"the shard holds '{name}', which the index has {place}"
                raise RooflmError(what, str(path))
            tensors[name] = tensor
    for name, shard in listed.items():
        if name not in tensors:
            raise RooflmError(f"the shard lacks '{name}', which the index has in it",
                              str(folder / shard))  # fmt: skip
    found = weight_bytes(tensors)
    if promised is not None and promised != found:
        what = f"the index promises {promised} bytes and the shards hold {found}"
        raise RooflmError(what, str(index), "Shards and index are not of one model.")
    return tensors


def _read_index(path: Path) -> tuple[dict[str, str], int | None]:
    """Read which shard holds which tensor, and the bytes of all together."""
    size = file_size(path)
    if size > LARGEST_HEADER:
        raise RooflmError(f"an index of {size} bytes is too long", str(path))
    index = _parse(_read(path, 0, size), path, "index")
    weights = index.get("weight_map")
    if not is_map(weights) or not weights:
        raise RooflmError("the index has no 'weight_map'", str(path))
    for name, shard in weights.items():
        # A name with a folder in it would lead out of the model's own.
        if not isinstance(shard, str) or not shard or set(shard) & set("/\\\0") or shard == "..":
            raise RooflmError(f"the shard of '{name}' is not a file name", str(path))
    metadata = index.get("metadata")
    total: Any = metadata.get("total_size") if is_map(metadata) else None
    if total is None:
        return weights, None
    if not is_number(total) or not 0 <= total < 2**63:
        raise RooflmError("'total_size' is no number of bytes", str(path))
    return weights, round(total)


def read_header(path: Path) -> dict[str, Tensor]:
    """Read dtype, shape and bytes of every tensor of a safetensors file."""
    size = file_size(path)
    if size < 8:
        raise RooflmError("the file is too short for a safetensors file", str(path))
    length = int.from_bytes(_read(path, 0, 8), "little")
    if length > LARGEST_HEADER:
        what = f"this is no safetensors file: its header would be {length} bytes long"
        raise RooflmError(what, str(path))
    if 8 + length > size:
        what = f"the file ends after {size} bytes, within its header of {length}"
        raise RooflmError(what, str(path), "Complete the download.")
    header = _parse(_read(path, 8, length), path, "header")
    header.pop("__metadata__", None)
    spans: list[tuple[int, int, str]] = []
    tensors: dict[str, Tensor] = {}
    for name, entry in header.items():
        tensors[name], begin = _tensor(name, entry, path)
        spans.append((begin, begin + tensors[name].bytes, name))
    end = 0
    for begin, after, name in sorted(spans):
        if begin != end:
            kind = "a gap before" if begin > end else "an overlap at"
            raise RooflmError(f"the header has {kind} the tensor '{name}'", str(path))
        end = after
    if end != size - 8 - length:
        what = f"the header promises {end} bytes of tensors and {size - 8 - length} are there"
        raise RooflmError(what, str(path), "Complete the download.")
    return tensors


def _tensor(name: str, entry: Any, path: Path) -> tuple[Tensor, int]:
    """Check an entry of a header; return the tensor and where it begins."""
    what = f"the tensor '{name}'"
    if not is_map(entry):
        raise RooflmError(f"{what} has no description", str(path))
    dtype, shape, offsets = (entry.get(k) for k in ("dtype", "shape", "data_offsets"))
    if not isinstance(dtype, str) or dtype not in BITS:
        fix = nearest(str(dtype)[:20], BITS) or f"Known: {', '.join(BITS)}."
        raise RooflmError(f"{what} has the unknown dtype '{str(dtype)[:20]}'", str(path), fix)
    if not is_list(shape) or len(shape) > MOST_DIMENSIONS or not all(map(_is_size, shape)):
        raise RooflmError(f"{what} has no valid shape", str(path))
    if not is_list(offsets) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise RooflmError(f"{what} has no valid 'data_offsets'", str(path))
    tensor = Tensor(dtype, tuple(shape), offsets[1] - offsets[0])
    if tensor.bytes * 8 != tensor.elements * BITS[dtype]:
        need = -(-tensor.elements * BITS[dtype] // 8)
        more = f"{tensor.bytes} bytes where {dtype} {list(shape)} takes {need}"
        raise RooflmError(f"{what} has {more}", str(path))
    return tensor, offsets[0]


def _is_size(value: Any) -> bool:
    return type(value) is int and 0 <= value < 2**63


def _read(path: Path, start: int, length: int) -> bytes:
    try:
        with path.open("rb") as file:
            file.seek(start)
            return file.read(length)
    except OSError as e:
        raise _unreadable(e, path) from None


def _parse(raw: bytes, path: Path, what: str) -> dict[str, Any]:
    """Parse a JSON object; a name that stands twice is an error."""

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            seen: set[str] = set()
            twice = next(name for name, _ in pairs if name in seen or seen.add(name))
            raise RooflmError(f"'{twice}' stands twice in the {what}", str(path))
        return found

    try:
        parsed: Any = json.loads(raw.decode(), object_pairs_hook=unique)
    except (ValueError, RecursionError):  # ValueError: no UTF-8, no JSON, a number too long
        raise RooflmError(f"the {what} is not valid JSON", str(path)) from None
    if not is_map(parsed):
        raise RooflmError(f"the {what} is not a JSON object", str(path))
    return parsed


def _unreadable(e: OSError, path: Path, what: str = "file") -> RooflmError:
    reason = (e.strerror or "it cannot be opened").lower()
    return RooflmError(f"cannot read the {what}: {reason}", str(path))
