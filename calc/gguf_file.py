"""The header of a GGUF file: its keys, and the shape, block type and bytes of every tensor.

The file is read with the `gguf` package (extra `gguf`); what it takes for empty, and lists without
end, are refused.
"""

from __future__ import annotations

import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .errors import Exit, RooflmError
from .safetensors_file import file_size

MOST_READS = 200_000
"""Pieces of metadata beyond which a file is taken for damaged; a tensor has seven."""
MOST_WORDS = 8_000_000
"""Words of a list beyond which a file is taken for damaged; tokenizers have 0.5 million."""


Shape = tuple[int, ...]


@dataclass(frozen=True)
class Tensor:
    """What a file says about a tensor."""

    type: str
    """Name of the block type: F16, Q8_0, Q4_K."""
    shape: Shape
    """Columns first, as GGUF has them: (in, out)."""
    bytes: int

    @property
    def elements(self) -> int:
        """Elements [1]."""
        return math.prod(self.shape)


def tensor_bytes(path: Path) -> dict[str, tuple[str, int]]:
    """List the block type and the bytes of every tensor, by name."""
    return {name: (t.type, t.bytes) for name, t in read_header(path)[1].items()}


def read_header(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read keys and tensors of a file, or of all parts of a model."""
    keys, tensors = _read_part(path)
    count = keys.get("split.count", 1)
    if type(count) is not int or count < 2:
        return keys, tensors
    named = re.fullmatch(r"(.+)-(\d{5})-of-(\d{5})\.gguf", path.name)
    if named is None or int(named[3]) != count:
        what = f"this is one of {count} parts and not named like one"
        raise RooflmError(what, str(path), "Name it NAME-00001-of-00003.gguf, or merge the parts.")
    keys.clear()
    tensors.clear()
    for i in range(1, count + 1):
        part = path.with_name(f"{named[1]}-{i:05}-of-{named[3]}.gguf")
        more_keys, more = _read_part(part)
        keys = keys or more_keys
        for name, tensor in more.items():
            if name in tensors:
                raise RooflmError(f"the tensor '{name}' is in an earlier part too", str(part))
            tensors[name] = tensor
    promised = keys.get("split.tensors.count", len(tensors))
    if promised != len(tensors):
        what = f"the parts promise {promised} tensors and hold {len(tensors)}"
        raise RooflmError(what, str(path), "Complete the download.")
    return keys, tensors


def _read_part(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    size = file_size(path)
    try:
        import numpy as np
        from gguf import GGUFReader, GGUFValueType
    except ImportError:
        what = "reading GGUF files needs the package gguf"
        raise RooflmError(what, str(path), "pip install 'rooflm[gguf]'", Exit.MISSING) from None
    base: Any = GGUFReader

    class Reader(base):
        """Refuses what its base takes for empty: pieces past the end, and endless lists of them.

        Lists are stepped over at once. Its base makes an array of each word of a tokenizer, which
        takes seven seconds for 150,000 of them.
        """

        reads = 0

        def _get(self, offset: int, dtype: Any, count: Any = 1, *rest: Any, **more: Any) -> Any:
            inherited: Any = super()
            piece: Any = inherited._get(offset, dtype, count, *rest, **more)
            self.reads += 1
            if len(piece) != int(count):
                raise ValueError("it ends early")
            if self.reads > MOST_READS:
                raise ValueError("its metadata have no end")
            return piece

        def _get_field_parts(self, offset: int, kind: int) -> Any:
            this: Any = self
            inherited: Any = super()
            if kind != GGUFValueType.ARRAY:
                return inherited._get_field_parts(offset, kind)
            parts = [self._get(offset, np.uint32), self._get(offset + 4, np.uint64)]
            item, length = GGUFValueType(parts[0][0]), int(parts[1][0])
            types = [GGUFValueType.ARRAY, item]
            if item != GGUFValueType.STRING:
                parts.append(self._get(offset + 12, this.gguf_scalar_to_np[item], length))
                return 12 + int(parts[2].nbytes), parts, [2], types
            if length > MOST_WORDS:
                raise ValueError("its metadata have no end")
            foreign = "big" if sys.byteorder == "little" else "little"
            order = sys.byteorder if this.byte_order == "I" else foreign
            raw, end = memoryview(this.data), offset + 12
            for _ in range(length):
                end += 8 + int.from_bytes(raw[end : end + 8], order)
            if end > len(raw):
                raise ValueError("it ends early")
            return end - offset, parts, [], types

    try:
        with np.errstate(all="raise"):
            reader: Any = Reader(path)
            keys = {
                name: f.contents()
                for name, f in reader.fields.items()
                if not name.startswith("tokenizer.")
            }
            tensors = {
                t.name: Tensor(t.tensor_type.name, tuple(t.shape.tolist()), int(t.n_bytes))
                for t in reader.tensors
            }
            elements = sum(int(t.n_elements) for t in reader.tensors)
    except OSError as e:
        reason = (e.strerror or "it cannot be opened").lower()
        raise RooflmError(f"cannot read the file: {reason}", str(path)) from None
    except Exception as e:  # The package has no exception of its own: damage raises anything.
        reason = str(e) if isinstance(e, ValueError) else type(e).__name__
        raise RooflmError(f"this GGUF file cannot be read: {reason}", str(path)) from None
    if sum(t.bytes for t in tensors.values()) > size or elements != sum(
        t.elements for t in tensors.values()
    ):
        raise RooflmError("this GGUF file is damaged: its tensors overlap", str(path))
    return keys, tensors
