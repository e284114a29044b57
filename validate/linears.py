"""Matrices as torch multiplies them: one for each number format, with the kernel that is fastest.

A matrix of `columns` outputs and `rows` inputs is stored as torch has it, [columns, rows], in the
bytes that calc/formats.py counts: nothing beside them is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from ..calc.errors import RooflmError
from .device import quickest, timed
from .untyped import Tensor, functional, torch

LARGEST_INT4 = 15
LARGEST_INT8 = 127
LARGEST_FP8 = 448.0
GROUP = 32
"""Rows of a group of int4-g32."""

KINDS = ("bf16", "fp16", "fp32", "int8-weights", "int4-g32", "fp8")
"""Formats of weights that can be run."""


@dataclass(frozen=True)
class Linear:
    """A matrix in its format, and what multiplies it."""

    run: Callable[[Tensor], Tensor]
    """[..., rows] to [..., columns]."""
    held: tuple[Tensor, ...]
    """What is stored."""
    kernel: str
    exact: Tensor = None
    """What the stored numbers stand for, [columns, rows] in fp32; None where it was not kept."""
    bias: Tensor = None

    def __call__(self, x: Tensor) -> Tensor:
        """Multiply."""
        return self.run(x)


def held_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes of tensors [B]."""
    return sum(t.numel() * t.element_size() for t in tensors)


def dtype_of(name: str) -> Any:
    """Tell torch's type of plain numbers in a format."""
    known = {
        "bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32,
        "fp8": torch.float8_e4m3fn,
    }  # fmt: skip
    if name not in known:
        what = f"torch steps are not run in {name}"
        raise RooflmError(what, "--weights", f"Known: {', '.join(KINDS)}.")
    return known[name]


def make_linear(
    weight: Tensor, kind: str, bias: Tensor = None, keep: bool = False, pack: bool = True
) -> Linear:
    """Store a matrix in a format and choose what multiplies it.

    weight: [columns, rows], in the format of the activations; kind: of `KINDS`; bias: [columns];
    keep: keep what the stored numbers stand for, to check results; pack: it may be laid out anew,
    which a table that is gathered from as well may not. Raises `RooflmError` where torch has no
    kernel for the format on the device.
    """
    if kind not in KINDS:
        dtype_of(kind)
    make = {"int8-weights": _int8, "int4-g32": _int4, "fp8": _fp8}.get(kind)
    made = _plain(weight, pack) if make is None else make(weight)
    exact = made.exact() if keep else None
    if bias is None:
        return Linear(made.run, made.held, made.kernel, exact)
    return Linear(_with_bias(made.run, bias), (*made.held, bias), made.kernel, exact, bias)


def _with_bias(run: Callable[[Tensor], Tensor], bias: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda x: run(x) + bias


@dataclass
class Stored:
    """A matrix in its format before what it stands for is forgotten."""

    run: Callable[[Tensor], Tensor]
    held: tuple[Tensor, ...]
    kernel: str
    exact: Callable[[], Tensor]
    """Makes what the stored numbers stand for."""


PACKED = "oneDNN linear on a packed matrix"


def _plain(weight: Tensor, pack: bool) -> Stored:
    if pack and weight.device.type == "cpu" and _packs(weight.dtype):
        packed = _pack(weight)
        return Stored(
            lambda x: _padded_linear(x, packed),
            (packed,),
            PACKED,
            lambda: packed.to_dense().float(),
        )
    linear = functional.linear
    return Stored(lambda x: linear(x, weight), (weight,), "linear", lambda: weight.float())


def _pack(weight: Tensor) -> Tensor:
    return torch.ops.mkldnn._reorder_linear_weight(weight, PACK_ROWS)


PACK_ROWS = 8
"""Rows that a packed layout is asked for; seen to be the same for 1 to 64."""


def _packed_linear(x: Tensor, packed: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(x, packed, None, "none", [], "")


MOST_PADDED = 8
"""Rows up to which others are tried in their place."""
TRIED = (4096, 2048, 8)
"""Matrices on which kernels are tried: columns, rows, and how many."""


def padded_to(dtype: Any, rows: int) -> int:
    """Tell how many rows are multiplied in place of a few: the quickest number."""
    return _quickest_rows(dtype)[rows] if rows <= MOST_PADDED else rows


@cache
def _quickest_rows(dtype: Any) -> dict[int, int]:
    """Measure how many rows take least time, of those that are enough.

    oneDNN has kernels for some numbers of rows: one or two take longer than five.
    """
    columns, rows, many = TRIED
    laid = [_pack(torch.rand(columns, rows).to(dtype)) for _ in range(many)]
    seconds: dict[int, float] = {}
    for n in range(1, MOST_PADDED + 1):
        x = torch.rand(n, rows).to(dtype)
        run = partial(_all, laid, x)
        seconds[n] = timed(run, x.device, runs=5).median_s
    return {n: min(range(n, MOST_PADDED + 1), key=lambda m: seconds[m]) for n in seconds}


def _all(laid: Sequence[Tensor], x: Tensor) -> None:
    for packed in laid:
        _packed_linear(x, packed)


def _padded_linear(x: Tensor, packed: Tensor) -> Tensor:
    flat = x.reshape(-1, x.shape[-1])
    rows = flat.shape[0]
    wanted = padded_to(x.dtype, rows)
    if wanted == rows:
        return _packed_linear(x, packed)
    more = functional.pad(flat, (0, 0, 0, wanted - rows))
    return _packed_linear(more, packed)[:rows].reshape(*x.shape[:-1], -1)


@cache
def _packs(dtype: Any) -> bool:
    """Measure whether packed matrices are multiplied faster than plain ones, at four rows."""
    columns, rows, many = TRIED
    plain = [torch.rand(columns, rows).to(dtype) for _ in range(many)]
    x = torch.rand(4, rows).to(dtype)

    def as_they_are() -> Callable[[], object]:
        return lambda: [functional.linear(x, w) for w in plain]

    def packed() -> Callable[[], object]:
        laid = [_pack(w) for w in plain]
        return lambda: [_packed_linear(x, w) for w in laid]

    return quickest({"linear": as_they_are, PACKED: packed}, x.device, "matrices") == PACKED


def _int8(weight: Tensor) -> Stored:
    """Int8 codes with an fp32 scale of each output, multiplied in 16 bits."""
    wide = weight.float()
    scales = wide.abs().amax(dim=1).clamp(min=1e-12) / LARGEST_INT8
    codes = torch.clamp(torch.round(wide / scales[:, None]), -LARGEST_INT8, LARGEST_INT8)
    codes = codes.to(torch.int8)
    ones = _ones(weight.shape[0], weight.dtype, str(weight.device))
    choices: dict[str, Callable[[Tensor], Tensor]] = {
        "int8 weight-only matmul": partial(_int8_product, codes=codes, scales=scales, ones=ones)
    }
    if weight.device.type == "cuda":
        expanded = partial(compiled(_int8_expanded), codes=codes, scales=scales)
        choices["int8 weight-only, compiled"] = expanded
    run, kernel = _fastest(choices, weight, "int8-weights")
    return Stored(run, (codes, scales), kernel, lambda: codes.float() * scales[:, None])


@cache
def _ones(columns: int, dtype: Any, device: str) -> Tensor:
    """Scales of 1, shared by all matrices: the kernel takes none in fp32."""
    return torch.ones(columns, dtype=dtype, device=device)


def _int8_product(x: Tensor, codes: Tensor, scales: Tensor, ones: Tensor) -> Tensor:
    found = torch._weight_int8pack_mm(x.reshape(-1, x.shape[-1]), codes, ones)
    return (found * scales).to(x.dtype).reshape(*x.shape[:-1], -1)


def _int8_expanded(x: Tensor, codes: Tensor, scales: Tensor) -> Tensor:
    return (functional.linear(x, codes.to(x.dtype)) * scales).to(x.dtype)


def _int4(weight: Tensor) -> Stored:
    """4-bit codes with a 16-bit scale and zero of 32 rows."""
    columns, rows = weight.shape
    if rows % GROUP or columns % 16:
        what = f"a matrix of {rows} x {columns} does not divide into groups of {GROUP} and tiles"
        raise RooflmError(what, "--weights", "Take int8-weights.")
    groups = weight.float().reshape(columns, rows // GROUP, GROUP)
    low, high = groups.amin(-1), groups.amax(-1)
    scales = ((high - low).clamp(min=1e-12) / LARGEST_INT4).to(weight.dtype)
    # torch's kernels take w = (code - 8) scale + zero.
    zeros = (low + 8 * scales.float()).to(weight.dtype)
    wide, middle = scales.float()[..., None], zeros.float()[..., None]
    codes = torch.clamp(torch.round((groups - middle) / wide + 8), 0, LARGEST_INT4)
    exact = ((codes - 8) * wide + middle).reshape(columns, rows)
    flat = codes.reshape(columns, rows).to(torch.int32)
    both = torch.stack((scales, zeros), dim=-1).transpose(0, 1).contiguous()
    if weight.device.type == "cpu":
        packed = torch._convert_weight_to_int4pack_for_cpu(flat, 2)
        multiply = torch._weight_int4pack_mm_for_cpu
    else:
        pairs = (flat[:, ::2] << 4 | flat[:, 1::2]).to(torch.uint8)
        # The kernel's inner tiles have to divide the rows.
        tiles = next((n for n in (8, 4, 2) if rows % (16 * n) == 0), 2)
        packed = torch._convert_weight_to_int4pack(pairs, tiles)
        multiply = torch._weight_int4pack_mm

    def run(x: Tensor) -> Tensor:
        found = multiply(x.reshape(-1, rows), packed, GROUP, both)
        return found.reshape(*x.shape[:-1], columns)

    chosen, kernel = _fastest({"int4 weight-only matmul": run}, weight, "int4-g32")
    return Stored(chosen, (packed, both), kernel, lambda: exact)


def _fp8(weight: Tensor) -> Stored:
    """e4m3 numbers with an fp32 scale of the matrix, multiplied by activations in fp8."""
    if weight.device.type != "cuda" or torch.cuda.get_device_capability(weight.device) < (8, 9):
        what = "this device multiplies no fp8"
        raise RooflmError(what, "--weights", "Take int8-weights or int4-g32.")
    scale = weight.float().abs().amax().clamp(min=1e-12) / LARGEST_FP8
    codes = (weight.float() / scale).to(torch.float8_e4m3fn)

    choices: dict[str, Callable[[Tensor], Tensor]] = {
        "fp8 scaled matmul": partial(_fp8_product, codes=codes, scale=scale),
        "fp8 scaled matmul, compiled": partial(compiled(_fp8_product), codes=codes, scale=scale),
    }
    chosen, kernel = _fastest(choices, weight, "fp8")
    return Stored(chosen, (codes, scale), kernel, lambda: codes.float() * scale)


def _fp8_product(x: Tensor, codes: Tensor, scale: Tensor) -> Tensor:
    flat = x.reshape(-1, x.shape[-1])
    own = flat.abs().amax().float().clamp(min=1e-12) / LARGEST_FP8
    narrow = (flat.float() / own).to(torch.float8_e4m3fn)
    found = torch._scaled_mm(narrow, codes.t(), own, scale, out_dtype=x.dtype, use_fast_accum=True)
    return found.reshape(*x.shape[:-1], -1)


_CHOSEN: dict[tuple[str, str, int, int], str] = {}
"""Kernels that were fastest, by format, device and shape."""


def _fastest(
    choices: Mapping[str, Callable[[Tensor], Tensor]], weight: Tensor, kind: str
) -> tuple[Callable[[Tensor], Tensor], str]:
    """Choose the fastest of several kernels that run at all, at four rows."""
    columns, rows = weight.shape
    key = (kind, weight.device.type, columns, rows)
    if key not in _CHOSEN:
        x = torch.rand(4, rows, dtype=torch.float32, device=weight.device).to(weight.dtype)

        def ready(run: Callable[[Tensor], Tensor]) -> Callable[[], object]:
            return lambda: run(x)

        ways = {name: partial(ready, run) for name, run in choices.items()}
        _CHOSEN[key] = quickest(ways, weight.device, f"{kind} weights")
    return choices[_CHOSEN[key]], _CHOSEN[key]


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function once for all that call it: a closure of each matrix would be once each."""
    return torch.compile(function)
