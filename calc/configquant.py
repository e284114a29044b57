"""Read the number formats of a checkpoint from the `quantization_config` of its config.json.

What is not understood is said, and not counted as something else.

Sources: github.com/huggingface/transformers, src/transformers/utils/quantization_config.py (keys
and their defaults); github.com/vllm-project/compressed-tensors (config groups, formats, `ignore`);
github.com/vllm-project/vllm, vllm/model_executor/layers/quantization (modelopt, fp8, mxfp4).
Left out: the format of the cache that some files ask for (`--kv` says it), scales of single columns
of fp8 weights (a tenth of a per cent at the most), and what files say of matrices with an output a
head.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from .errors import RooflmError, either, printable
from .passes import LINEAR
from .plain import is_list, is_map

KEY = "quantization_config"
NOTHING: tuple[Any, ...] = (None, False, {})
"""Values that stand for its absence."""
SIXTEEN = "bf16"
"""How `--weights` is told that a part stays in 16 bits."""


class _UnknownError(Exception):
    """What a file says is not understood; its text tells what."""


@dataclass(frozen=True)
class FileFormats:
    """What a file tells of the formats of its weights."""

    weights: str | None = None
    """As `--weights` takes it; None where there is nothing, or nothing that is understood."""
    unknown: str = ""
    """What is not understood, in a few words."""
    said: str = ""
    """What the file says, in a few words."""


@dataclass(frozen=True)
class _Method:
    """How a method keeps weights, before exceptions."""

    main: str = ""
    """Format of the matrices of the layers; 16 bits if ""."""
    parts: dict[str, str] = field(default_factory=dict[str, str])
    """Formats of parts in its place."""
    ignored: tuple[str, ...] = ()
    """Modules that are left in 16 bits, as the file names them."""


def file_formats(
    config: dict[str, Any], inner: dict[str, Any], layers: Sequence[Collection[str]]
) -> FileFormats:
    """Tell the formats of the weights of a config.json.

    config: the file; inner: that of its language model, often the same; layers: the parts that
    each layer has.
    """
    found = [c[KEY] for c in (inner, config) if c.get(KEY) not in NOTHING]
    if not found:
        return FileFormats()
    quantization = found[0]
    if not is_map(quantization):
        return FileFormats(unknown="no mapping", said="not a mapping")
    said = _said(quantization)
    try:
        expert = inner.get("expert_dtype", quantization.get("expert_dtype"))
        method = _with_experts(_method(quantization), expert)
        return FileFormats(_text(method, layers), said=said)
    except _UnknownError as e:
        what = f"{said}; {e}" if str(e) else said
        return FileFormats(unknown=printable(what, 160), said=said)


MATRICES = "matrices of "
"""Begins what is said of a file whose tensors tell their types themselves."""


def unknown_formats(unknown: str, where: str) -> RooflmError:
    """Make the error of a file whose formats are not known."""
    what = f"the {KEY} of this file ({unknown}) is not known"
    if unknown.startswith(MATRICES):
        what = f"the weights of this file have no one format ({unknown})"
    return RooflmError(what, printable(where, 200), "Say --weights FORMAT.")


_SAID = (
    "quant_algo", "format", "bits", "w_bit", "group_size", "q_group_size",
    "weight_block_size", "load_in_8bit", "load_in_4bit", "bnb_4bit_quant_type",
)  # fmt: skip


def _said(quantization: dict[str, Any]) -> str:
    """Name what decides in a few words."""
    words = [f"{k} {quantization[k]}" for k in _SAID if quantization.get(k) not in (None, False)]
    method = quantization.get("quant_method")
    words.insert(0, "no quant_method" if method in (None, "") else f"{method}")
    return printable(", ".join(words), 120)


def _method(quantization: dict[str, Any]) -> _Method:
    """Tell what a method stores."""
    method = quantization.get("quant_method")
    if method is None and ("load_in_4bit" in quantization or "load_in_8bit" in quantization):
        method = "bitsandbytes"
    match method:
        case "fp8":
            return _fp8(quantization)
        case "awq":
            return _awq(quantization)
        case "gptq":
            return _gptq(quantization)
        case "bitsandbytes":
            return _bitsandbytes(quantization)
        case "mxfp4":
            ignored = _names(quantization.get("modules_to_not_convert"))
            return _Method(parts={"experts": "mxfp4"}, ignored=ignored)
        case "compressed-tensors":
            return _compressed(quantization)
        case "modelopt" | "modelopt_fp4":
            return _modelopt(quantization)
        case _:
            raise _UnknownError


def _fp8(quantization: dict[str, Any]) -> _Method:
    ignored = _names(
        quantization.get("modules_to_not_convert") or quantization.get("ignored_layers")
    )
    block = quantization.get("weight_block_size")
    if block is not None and block != [128, 128]:
        raise _UnknownError
    # MiniMax-M2 writes the name that torch gives to the same format.
    if quantization.get("fmt") not in (None, "e4m3", "float8_e4m3fn"):
        raise _UnknownError(f"fmt {quantization['fmt']}")
    return _Method("fp8" if block is None else "fp8-block", ignored=ignored)


def _awq(quantization: dict[str, Any]) -> _Method:
    bits = quantization.get("bits", quantization.get("w_bit"))
    group = quantization.get("group_size", quantization.get("q_group_size"))
    zeros = quantization.get("zero_point", True)
    if not (_is(bits, 4) and _is(group, 128)) or zeros is not True:
        raise _UnknownError
    return _Method("awq", ignored=_names(quantization.get("modules_to_not_convert")))


def _gptq(quantization: dict[str, Any]) -> _Method:
    if not (_is(quantization.get("bits"), 4) and _is(quantization.get("group_size"), 128)):
        raise _UnknownError
    if quantization.get("dynamic"):
        raise _UnknownError("rules for single modules")
    head = quantization.get("lm_head", False)
    if head not in (True, False):
        raise _UnknownError("lm_head")
    ignored = _names(quantization.get("modules_to_not_convert"))
    return _Method("gptq", {"head": "gptq"} if head else {}, ignored)


def _bitsandbytes(quantization: dict[str, Any]) -> _Method:
    ignored = _names(quantization.get("llm_int8_skip_modules"))
    four = quantization.get("load_in_4bit", quantization.get("_load_in_4bit"))
    eight = quantization.get("load_in_8bit", quantization.get("_load_in_8bit"))
    if eight is True and four is not True:
        return _Method("int8-weights", ignored=ignored)
    if four is True and eight is not True and quantization.get("bnb_4bit_quant_type") == "nf4":
        nested = quantization.get("bnb_4bit_use_double_quant") is True
        return _Method("nf4-double" if nested else "nf4", ignored=ignored)
    raise _UnknownError


def _compressed(quantization: dict[str, Any]) -> _Method:
    groups = quantization.get("config_groups")
    if not is_map(groups) or not groups:
        raise _UnknownError("no config_groups")
    found: set[str] = set()
    for group in groups.values():
        if not is_map(group) or group.get("targets") != ["Linear"]:
            raise _UnknownError("targets other than Linear")
        kind = group.get("format") or quantization.get("format")
        found.add(_scheme(kind, group.get("weights"), group.get("input_activations")))
    if len(found) > 1:
        raise _UnknownError(either(sorted(found)))
    if quantization.get("sparsity_config"):
        raise _UnknownError("sparse weights")
    return _Method(found.pop(), ignored=_names(quantization.get("ignore")))


def _scheme(kind: Any, weights: Any, inputs: Any) -> str:
    """Name the format of a group of compressed-tensors.

    kind: how the numbers lie; weights: how they are quantized; inputs: how activations are.
    """
    if not is_map(weights):
        raise _UnknownError("no weights in a group")
    bits, group = weights.get("num_bits"), weights.get("group_size")
    strategy, even = weights.get("strategy"), weights.get("symmetric", True) is True
    block = weights.get("block_structure")
    facts = (kind, bits if type(bits) is int else None, strategy)
    match facts:
        case ("float-quantized", 8, "tensor" | "channel") if inputs is not None:
            return "fp8"
        case ("float-quantized", 8, "block") if block == [128, 128] and inputs is not None:
            return "fp8-block"
        case ("int-quantized", 8, "channel") if even and inputs is not None:
            return "int8-channel"
        case ("int-quantized", 8, "tensor") if even and inputs is not None:
            return "int8"
        case ("pack-quantized", 4, "group") if _is(group, 128):
            return "int4" if even else "awq"
        case ("pack-quantized", 4, "group") if _is(group, 32) and even:
            return "int4-sym-g32"
        case ("nvfp4-pack-quantized", 4, _) if _is(group, 16):
            return "nvfp4"
        case ("mxfp4-pack-quantized", 4, _) if _is(group, 32):
            return "mxfp4"
        case _:
            words = (f"{kind}", f"{bits} bits", f"strategy {strategy}", f"group_size {group}")
            raise _UnknownError(", ".join(words) + ("" if even else ", not symmetric"))


_MODELOPT = {"FP8": "fp8", "NVFP4": "nvfp4"}


def _modelopt(quantization: dict[str, Any]) -> _Method:
    algorithm = quantization.get("quant_algo")
    if not isinstance(algorithm, str) or algorithm not in _MODELOPT:
        raise _UnknownError
    ignored = quantization.get("ignore") or quantization.get("exclude_modules")
    return _Method(_MODELOPT[algorithm], ignored=_names(ignored))


def _with_experts(method: _Method, expert: Any) -> _Method:
    """Give experts the format that a key of their own tells (DeepSeek-V4)."""
    if expert in (None, "fp8") or method.main != "fp8-block":
        return method
    if expert != "fp4":
        raise _UnknownError(f"expert_dtype {expert}")
    return _Method(method.main, {**method.parts, "experts": "mxfp4"}, method.ignored)


def _is(value: Any, wanted: int) -> bool:
    return type(value) is int and value == wanted


def _names(value: Any) -> tuple[str, ...]:
    """Read a list of modules; null is none."""
    if value is None:
        return ()
    if not is_list(value) or not all(isinstance(v, str) for v in value):
        raise _UnknownError("modules that are left out")
    return tuple(value)


def _text(method: _Method, layers: Sequence[Collection[str]]) -> str:
    """Write what `--weights` would be told."""
    there = {part for parts in layers for part in parts}
    kept = _kept_parts(method.ignored, layers)
    parts = dict(method.parts)
    for part in sorted(kept):
        if method.main:
            parts[part] = SIXTEEN
        else:
            parts.pop(part, None)
    if not method.main and not there & set(method.parts):
        raise _UnknownError("no experts in the model")
    parts = {part: kind for part, kind in parts.items() if part in there or part == "head"}
    if not parts:
        return method.main or SIXTEEN
    words = [f"{part}={kind}" for part, kind in parts.items()]
    return ",".join([*words, f"rest={method.main or SIXTEEN}"])


_FEED_FORWARD = (
    ("gate_proj", "up_proj", "down_proj"),
    ("gate_up_proj", "down_proj"),
    ("up_proj", "down_proj"),
    ("w1", "w2", "w3"),
)
"""Matrices of an MLP or an expert in the checkpoints of different classes."""
_NAMES: dict[str, tuple[tuple[str, ...], ...]] = {
    "attention": tuple(
        tuple(f"{block}.{name}" for name in names)
        for block in ("self_attn", "self_attention", "attention", "attn")
        for names in (
            ("q_proj", "k_proj", "v_proj", "o_proj"),
            ("qkv_proj", "o_proj"),
            ("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
            ("q_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
            ("wq", "wk", "wv", "wo"),
        )
    ),
    "mlp": tuple(
        tuple(f"{block}.{name}" for name in names)
        for block in ("mlp", "feed_forward")
        for names in _FEED_FORWARD
    ),
    "experts": tuple(
        tuple(f"{block}.experts.0.{name}" for name in names)
        for block in ("mlp", "feed_forward", "block_sparse_moe")
        for names in _FEED_FORWARD
    ),
    "shared_experts": tuple(
        tuple(f"{block}.{shared}.{name}" for name in ("gate_proj", "up_proj", "down_proj"))
        for block in ("mlp", "feed_forward", "block_sparse_moe")
        for shared in ("shared_experts", "shared_expert")
    ),
    "linear_mixer": tuple(
        tuple(f"{block}.{name}" for name in names)
        for block in ("linear_attn", "mamba", "mixer")
        for names in (
            ("in_proj", "out_proj"),
            ("in_proj_qkvz", "out_proj"),
            ("in_proj_qkv", "in_proj_z", "out_proj"),
        )
    ),
}
"""Matrices of a part in the checkpoints of different classes, below the layer."""

_PREFIXES = (
    "model.", "model.language_model.", "language_model.model.", "language_model.", "backbone.", "",
)  # fmt: skip
"""What stands before `layers` in checkpoints."""

_APART = (
    "vision", "visual", "image", "audio", "speech", "projector", "patch", "merger", "aligner",
    "connector", "mtp", "nextn", "eh_proj",
)  # fmt: skip
"""Words of modules that are no part of the decoder."""
_SIXTEEN_ANYWAY = ("head", "embed", "norm", "router", "conv1d", "rotary")
"""Words of modules that formats of the layers do not cover."""
_SMALL = frozenset((
    "gate", "wte", "wpe", "shared_expert_gate", "output", "mlp1", "vit", "e_score_correction_bias",
    "in_proj_a", "in_proj_b", "in_proj_ba", "weights_proj",
))  # fmt: skip
"""Whole words of such modules, and of matrices with an output a head, which are too small to
matter."""


def _kept_parts(ignored: Sequence[str], layers: Sequence[Collection[str]]) -> set[str]:
    """Tell the parts whose matrices are left in 16 bits in every layer that has them.

    A part of which some matrices are left, or those of some layers, is not understood.
    """
    left: set[tuple[int, str, str]] = set()
    for entry in ignored:
        found = set(_matched(entry, layers))
        if not found and not _is_apart(entry, len(layers)):
            raise _UnknownError(f"module {entry[:60]}")
        left |= found
    if not left:
        return set()
    kept: set[str] = set()
    for part in sorted(LINEAR & {part for _, part, _ in left}):
        has = [i for i, parts in enumerate(layers) if part in parts]
        whole = [
            i for i in has
            if any(all((i, part, n) in left for n in names) for names in _NAMES[part])
        ]  # fmt: skip
        if len(whole) < len(has):
            raise _UnknownError(f"{part} in 16 bits in {len(whole)} of {len(has)} layers")
        kept.add(part)
    return kept


def _matched(entry: str, layers: Sequence[Collection[str]]) -> Iterator[tuple[int, str, str]]:
    """List layer, part and name of the matrices that an entry leaves in 16 bits."""
    lower = entry.lower()
    pattern = entry.startswith("re:")
    if not pattern and any(word in lower for word in _APART):
        return
    number = None if pattern else re.search(r"(?:^|\.)layers\.(\d{1,6})(?=\.|$)", entry)
    if number is None:
        places: Sequence[int] = range(len(layers))
    else:
        places = [int(number[1])] if int(number[1]) < len(layers) else []
    if pattern and (re.search(r"\)[*+{]", entry) or sum(map(entry.count, "*+{")) > 3):
        # Such a pattern may take forever.
        raise _UnknownError(f"module {entry[:60]}")
    try:
        compiled = re.compile(entry[3:]) if pattern else None
    except (re.error, OverflowError, RecursionError):
        raise _UnknownError(f"module {entry[:60]}") from None
    for layer in places:
        for part in layers[layer]:
            for name in {name for names in _NAMES.get(part, ()) for name in names}:
                if compiled is None:
                    hit = _holds(f"layers.{layer}.{name}", entry)
                else:
                    full = (f"{prefix}layers.{layer}.{name}" for prefix in _PREFIXES)
                    hit = any(compiled.match(text) for text in full)
                if hit:
                    yield layer, part, name


def _holds(name: str, entry: str) -> bool:
    """Tell whether an entry without a pattern names a matrix or something that holds it."""
    bare = entry.strip(".")
    for prefix in sorted(_PREFIXES, key=len, reverse=True):
        if bare.startswith(prefix):
            bare = bare.removeprefix(prefix)
            break
    if "*" in bare or "?" in bare:
        return any(fnmatchcase(name, p) for p in (bare, f"{bare}.*", f"*.{bare}", f"*.{bare}.*"))
    return f".{bare}." in f".{name}."


def _is_apart(entry: str, layers: int) -> bool:
    """Tell whether a module is no part of the decoder, or in 16 bits in any case."""
    lower = entry.lower()
    numbers = re.findall(r"layers\.(\d{1,6})(?=\.|\*|$)", entry)
    beyond = bool(numbers) and all(int(n) >= layers for n in numbers)
    words = re.findall(r"[a-z0-9_]+", lower)
    return (
        beyond
        or any(stem in lower for stem in (*_APART, *_SIXTEEN_ANYWAY))
        or bool(words and words[-1] in _SMALL)
    )
