"""What a preset may say: one table of fields for models, one for hardware, and the check."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import RooflmError, nearest
from .mixers import WHERE, MixerClass, choices, mixer_class
from .plain import is_list, is_map, is_number
from .yamlfile import Block, Key

Kind = Literal["count", "figure", "text", "flag", "choice", "choices", "texts", "map"]


LARGEST_DIMENSION = 10**9


@dataclass(frozen=True)
class Field:
    """What one key of an entry may hold."""

    kind: Kind
    about: str
    required: bool = False
    choices: tuple[str, ...] = ()
    zero: bool = False
    """A count may be 0."""
    most: int = LARGEST_DIMENSION
    inside: dict[str, Field] = field(default_factory=dict[str, "Field"])
    """Keys of a map, those of an open one under "*"; of a figure those beside `FIGURE`."""
    of: str = ""
    """Key of a mixer whose fields the map holds."""

    @property
    def keys(self) -> dict[str, Field]:
        """Keys that a map may hold."""
        return mixer_fields(mixer_class(self.of)) if self.of else self.inside


def mixer_fields(cls: MixerClass) -> dict[str, Field]:
    """Tell what the map of a mixer may hold, by the fields of its class that it explains."""
    found: dict[str, Field] = {}
    for own in dataclasses.fields(cls):
        if own.name not in cls.ABOUT:
            continue
        about, kind = cls.ABOUT[own.name], str(own.type)
        if kind == "bool":
            found[own.name] = Field("flag", about)
        elif kind.startswith("Literal"):
            found[own.name] = Field("choice", about, choices=choices(cls, own.name))
        else:
            required = own.default is dataclasses.MISSING
            zero = own.default == 0 or "; 0" in about
            found[own.name] = Field("count", about, required=required, zero=zero)
    return found


SMALLEST_FIGURE, LARGEST_FIGURE = 1e-3, 1e24
FORMAT_NAMES = ("fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "int4")

DIMENSIONS: dict[str, Field] = {
    "D": Field("count", "model width", required=True),
    "F": Field("count", "MLP width"),
    "N": Field("count", "query heads"),
    "K": Field("count", "key/value heads"),
    "H": Field("count", "head width"),
    "L": Field("count", "layers", required=True),
    "V": Field("count", "vocabulary", required=True),
}

INDEX: dict[str, Field] = {
    "heads": Field("count", "index heads", required=True),
    "width": Field("count", "width of an index key", required=True),
    "top": Field("count", "tokens, or blocks of them, that a query attends to", required=True),
    "block": Field("count", "keys of a block, where blocks are chosen"),
    "reads_choice": Field("flag", "takes the choice of an earlier layer"),
}

RESIDUAL: dict[str, Field] = {
    "streams": Field("count", "streams of hyper-connections (DeepSeek-V4)"),
    "altup": Field("count", "streams of AltUp (Gemma 3n)"),
    "laurel": Field("count", "rank of LAuReL (Gemma 3n)"),
    "width": Field("count", "width of the embedding of each layer (Gemma 3n and 4)"),
    "rows": Field("count", "rows of the embedding of each layer"),
}

EXPERTS: dict[str, Field] = {
    "E": Field("count", "experts with weights", required=True),
    "k": Field("count", "experts of a token", required=True),
    "F": Field("count", "width of an expert", required=True),
    "shared": Field("count", "width of all shared experts together", zero=True),
    "zero": Field("count", "experts that do nothing", zero=True),
    "latent": Field("count", "width at which the experts work, where it is not D"),
    "shared_gate": Field("flag", "a gate of D weights on the shared experts"),
    "router_bias": Field("flag", "router biases that are parameters"),
}

LAYER: dict[str, Field] = {
    "mixer": Field("choice", "what mixes tokens: attention is there unless another mixer is given",
                   choices=("attention", "none", "both")),
    "mlp": Field("choice", "three matrices, two, RWKV's with or without receptance, or none",
                 choices=("gated", "plain", "channel-mix", "channel-mix-receptance", "none")),
    "norms_per_layer": Field("count", "block norms of a layer", zero=True),
    "qk_norm": Field("choice", "norm weights on queries and keys",
                     choices=("none", "head", "width", "shared-head")),
    "bias": Field("choices", "which parts have biases", choices=("qkv", "out", "mlp", "head")),
    "window": Field("count", "last tokens that a query sees"),
    "chunk": Field("count", "chunk that a query does not look out of"),
    "sink_tokens": Field("count", "first tokens kept in view beside a window", zero=True),
    "value_width": Field("count", "width of a value head where it is not H"),
    "shares_kv": Field("flag", "reads the keys and values of another layer"),
    "value_is_key": Field("flag", "no value projection"),
    "gate": Field("choice", "gate of the attention output", choices=("none", "width", "head")),
    "extra": Field("count", "further weights of a layer", zero=True),
    "sinks": Field("flag", "a learned sink a query head"),
    "idle_key_norm": Field("flag", "a norm of keys in layers that have none"),
    "attention_inputs": Field("count", "rows that attention reads side by side"),
    "copies": Field("count", "sets of weights that the layers of a kind share"),
    "own": Field("count", "weights of further matrices of each layer beside shared ones"),
    "index": Field("map", "an indexer that chooses what attention reads", inside=INDEX),
    **{key: Field("map", f"mixer {key}", of=key) for key in WHERE},
    "experts": Field("map", "routed experts in place of the MLP", inside=EXPERTS),
}  # fmt: skip
"""What layers may differ in; also in `kinds`, beside the letters."""

KIND: dict[str, Field] = {
    **{k: Field(f.kind, f.about) for k, f in DIMENSIONS.items() if k not in ("D", "L", "V")},
    **LAYER,
}

MODEL: dict[str, Field] = {
    "hf": Field("text", "name on the Hugging Face hub; its config.json is the source"),
    "source": Field("text", "where the dimensions come from, where hf is not the place"),
    "dims": Field("map", "the letters of the scaling book", required=True, inside=DIMENSIONS),
    "max_context": Field("count", "longest context [tokens]"),
    "weights": Field("text", "format of the published checkpoint, as --weights takes it, where "
                     "its config.json has a quantization_config"),
    "states": Field("choice", "format of recurrent states that the checkpoint tells engines",
                    choices=("fp32", "bf16", "fp16")),
    "norm": Field("choice", "weights of a norm", choices=("rms", "layer", "layer-no-bias", "none")),
    "final_norm": Field("flag", "a norm before the head"),
    "tied": Field("flag", "the head is the input embedding"),
    "positions": Field("count", "rows of a learned position table", zero=True),
    "embedding_width": Field("count", "width of the embedding where it is not D"),
    "parallel": Field("flag", "attention and MLP side by side"),
    "residual": Field("map", "what surrounds the layers", inside=RESIDUAL),
    "extras": Field("map", "parts that a checkpoint holds beside the decoder [parameters]",
                    inside={"*": Field("count", "a part", most=10**12)}),
    "denoises": Field("flag", "a diffusion model without a cache"),
    "reference_repeats_heads": Field("flag", "the reference caches every query head"),
    "kinds": Field("map", "kinds of layers: what each has of its own",
                   inside={"*": Field("map", "a kind", inside=KIND)}),
    "pattern": Field("texts", "kinds in order, repeated over the layers: [5*local, global]"),
    **LAYER,
}  # fmt: skip

_BARE = Field("figure", "")

KERNEL: dict[str, Field] = {
    "start_us": Field("figure", "time of a kernel that moves and computes nothing [us]"),
    "memory": Field("figure", "share of the bandwidth"),
    "compute": Field("figure", "share of the dense peak"),
    "small_memory": Field("figure", "share of the bandwidth for the first bytes"),
    "small_bytes": Field("figure", "how many first bytes [B]"),
    "wide_memory": Field("figure", "share of these that heads wider than 128 reach"),
    "short_tokens": Field("figure", "context at which half of `compute` is reached [tokens]"),
    "rows": Field("count", "timings that it was fitted on"),
    "error": Field("figure", "mean relative error on shapes that it had not seen"),
}

KERNELS: dict[str, Field] = {
    "like": Field("text", "chip whose timings hold in place of its own"),
    "source": Field("text", "who timed them"),
    "date": Field("text", "when they were fitted"),
    "matmul": Field("map", "matrix products in 16 bits", inside=KERNEL),
    "matmul_fp8": Field("map", "matrix products in fp8", inside=KERNEL),
    "matmul_fp4": Field("map", "matrix products in fp4", inside=KERNEL),
    "decode": Field("map", "attention of decode steps", inside=KERNEL),
    "prefill": Field("map", "attention of prefills", inside=KERNEL),
    "all_reduce": Field(
        "map",
        "all-reduce by ranks: bytes to us",
        inside={"*": Field("map", "ranks", inside={"*": _BARE})},
    ),
}

LINK: dict[str, Field] = {
    "joins": Field("count", "devices that a bridge joins; absent where it is all of a node"),
    "pair": Field("figure", "to one other device, where each pair has links of its own [B/s]"),
}

HARDWARE: dict[str, Field] = {
    "name": Field("text", "full name", required=True),
    "vendor": Field("text", "maker"),
    "kind": Field(
        "choice",
        "what it is",
        required=True,
        choices=("gpu", "tpu", "accelerator", "unified", "cpu"),
    ),
    "family": Field("text", "architecture"),
    "memory": Field("text", "kind of memory"),
    "label_gb": Field("figure", "the number on the box [GB]"),
    "driver_bytes": Field("figure", "total that the driver reports [B]"),
    "bandwidth_bytes_per_s": Field("figure", "memory bandwidth [B/s]", required=True),
    "flops": Field("map", "dense peaks [FLOP/s]", inside=dict.fromkeys(FORMAT_NAMES, _BARE)),
    "best_flops": Field(
        "map",
        "measured rates above the datasheet [FLOP/s]",
        inside=dict.fromkeys(FORMAT_NAMES, _BARE),
    ),
    "cache_bytes": Field("figure", "last-level cache [B]"),
    "links": Field(
        "map",
        "links, one direction of one device [B/s]",
        inside={"*": Field("figure", "", inside=LINK)},
    ),
    "kernels": Field("map", "what kernels reach, by class", inside=KERNELS),
    "power_w": Field("figure", "board power [W]"),
    "price_usd_per_hour": Field("figure", "rent of one device, dated [USD/h]"),
    "notes": Field("texts", "what trips people"),
}

BAND: dict[str, Field] = {
    "low": Field("figure", "share of the estimate below which 6 % of measurements lie"),
    "high": Field("figure", "share of the estimate above which 6 % lie"),
    "rows": Field("count", "judged rows"),
    "median": Field("figure", "median error of rows that the constants had not seen"),
    "p90": Field("figure", "error that nine of ten of them stay below"),
}

ENGINE_COSTS: dict[str, Field] = {
    "most_batch": Field("count", "most sequences of a step that was published"),
    "layer_us": Field("figure", "what a layer costs beside its kernels [us]"),
    "prefill_layer_us": Field("figure", "the same in a prefill [us]"),
    "sequence_us": Field("figure", "what a sequence of a step costs [us]"),
    "message_us": Field("figure", "what a message costs beside its kernel [us]"),
    "experts": Field("figure", "share of the bandwidth of experts where tokens are several"),
}

ENGINE: dict[str, Field] = {
    "name": Field("text", "name and versions", required=True),
    "launch": Field("text", "how it starts kernels", required=True),
    "date": Field("text", "when it was fitted", required=True),
    "sources": Field("texts", "rows that it was fitted on", required=True),
    "notes": Field("texts", "what trips people"),
    "on": Field("texts", "chips with published steps"),
    "separate_attention": Field(
        "texts", "families of chips with a kernel for prompts and one for decoding in a mixed pass"
    ),
    "formats": Field("map", "share of the bandwidth by format", inside={"*": _BARE}, required=True),
    "tile_rows": Field("count", "rows that a matmul computes at least"),
    **ENGINE_COSTS,
    "bands": Field(
        "map", "by family, of all, of prefills", inside={"*": Field("map", "a set", inside=BAND)}
    ),
    "chips": Field(
        "map",
        "kinds of chips, where the kernels are the engine's own",
        inside={"*": Field("map", "a kind", inside={
            "on": Field("texts", "chips, * for any letters", required=True),
            "memory": Field("figure", "share of the bandwidth", required=True),
            "attention": Field("figure", "share of that which attention reaches", required=True),
            "compute": Field("figure", "share of the peak in a prefill"),
            **ENGINE_COSTS,
            **BAND,
        })},
    ),
}  # fmt: skip

CALIBRATION: dict[str, Field] = {
    "model": Field("text", "model whose steps were measured", required=True),
    "hardware": Field("text", "chip that they ran on", required=True),
    "engine": Field("text", "engine whose start times of kernels are kept"),
    "weights": Field("texts", "formats of the matrices", required=True),
    "kv": Field("text", "format of the cache", required=True),
    "constants": Field("map", "what was fitted", required=True, inside={
        "memory": Field("figure", "share of the bandwidth"),
        "layer_us": Field("figure", "time of a layer [us]"),
        "sequence_us": Field("figure", "time of a sequence [us]"),
        "attention": Field("figure", "share of the bandwidth that attention reaches"),
        "compute": Field("figure", "share of the peak that matrix products reach"),
        "serial": Field("figure", "share of the shorter of their times that is not hidden"),
    }),
    "points": Field("count", "measured steps", required=True),
    "error": Field("figure", "largest error", required=True),
    "low": Field("figure", "least measured / predicted of points that were left out"),
    "high": Field("figure", "most of the same"),
}  # fmt: skip

FIGURE: dict[str, Kind] = {"value": "figure", "source": "text", "note": "text", "date": "text"}


def check(block: Block, fields: dict[str, Field], name: str) -> dict[str, Any]:
    """Check an entry against its fields and return it; raise the first mistake with its place."""
    return _check_map(block, fields, (), name)


def _check_map(block: Block, fields: dict[str, Field], key: Key, name: str) -> dict[str, Any]:
    value = _at(block, key)
    if not is_map(value):
        known = ", ".join(list(fields)[:6])
        raise RooflmError(f"{name} must hold keys such as {known}", block.where(key))
    entry = value
    for word in entry:
        if word not in fields and "*" not in fields:
            fix = nearest(word, fields) or f"Known keys: {', '.join(fields)}."
            raise RooflmError(f"{name} has an unknown key '{word}'", block.where((*key, word)), fix)
        spec = fields.get(word) or fields["*"]
        _check_value(block, spec, (*key, word), f"{name}.{word}")
    for word, spec in fields.items():
        if spec.required and word not in entry:
            raise RooflmError(f"{name} lacks '{word}' ({spec.about})", block.where(key))
    return entry


def _check_value(block: Block, spec: Field, key: Key, name: str) -> None:
    value = _at(block, key)
    wrong = ""
    match spec.kind:
        case "count":
            low = 0 if spec.zero else 1
            if isinstance(value, bool) or not isinstance(value, int):
                wrong = "must be a whole number"
            elif not low <= value <= spec.most:
                wrong = f"must lie between {low} and {spec.most:,}"
        case "figure":
            _check_figure(block, spec, key, name)
        case "text":
            if not isinstance(value, str) or not value.strip():
                wrong = "must be text"
        case "flag":
            if not isinstance(value, bool):
                wrong = "must be true or false"
        case "choice":
            if value not in spec.choices:
                wrong = f"must be one of {', '.join(spec.choices)}"
        case "choices":
            if not is_list(value) or any(v not in spec.choices for v in value):
                wrong = f"must be a list out of {', '.join(spec.choices)}"
        case "texts":
            if not is_list(value) or not all(isinstance(v, str) for v in value):
                wrong = "must be a list of sentences"
        case "map":
            _check_map(block, spec.keys, key, name)
    if wrong:
        raise RooflmError(f"{name} {wrong}, not {_say(value)}", block.where(key))


def _check_figure(block: Block, spec: Field, key: Key, name: str) -> None:
    value = _at(block, key)
    if is_map(value):
        known = [*FIGURE, *spec.inside]
        for word in value:
            if word not in known:
                fix = nearest(word, known) or f"Known keys: {', '.join(known)}."
                where = block.where((*key, word))
                raise RooflmError(f"{name} has an unknown key '{word}'", where, fix)
            if word in spec.inside:
                _check_value(block, spec.inside[word], (*key, word), f"{name}.{word}")
        if "value" not in value:
            raise RooflmError(f"{name} lacks 'value'", block.where(key))
        key, value = (*key, "value"), _at(block, (*key, "value"))
    number = is_number(value)
    if not number or not SMALLEST_FIGURE <= value <= LARGEST_FIGURE:
        limits = f"between {SMALLEST_FIGURE:g} and {LARGEST_FIGURE:g}"
        raise RooflmError(f"{name} must be a number {limits}, not {_say(value)}", block.where(key))


def _at(block: Block, key: Key) -> Any:
    value = block.value
    for step in key:
        value = value[step]
    return value


def _say(value: Any) -> str:
    if value is None:
        return "nothing"
    if is_list(value):
        value = ", ".join(map(str, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text[:40]}'" if not isinstance(value, int | float) else text[:40]


def json_schema(fields: dict[str, Field], title: str) -> dict[str, Any]:
    """Write the fields of a file's entries as a JSON Schema, for editors."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        "type": "object",
        "properties": {"sources": {"type": "object"}},
        "additionalProperties": _object_schema(fields),
    }


def _object_schema(fields: dict[str, Field]) -> dict[str, Any]:
    known = {k: _field_schema(f) for k, f in fields.items() if k != "*"}
    others: Any = _field_schema(fields["*"]) if "*" in fields else False
    required = [k for k, f in fields.items() if f.required]
    return {
        "type": "object",
        "properties": known,
        "additionalProperties": others,
        **({"required": required} if required else {}),
    }


def _field_schema(spec: Field) -> dict[str, Any]:
    text = {"type": "string", "minLength": 1}
    choice = {"enum": list(spec.choices)}
    number = {"type": "number", "minimum": SMALLEST_FIGURE, "maximum": LARGEST_FIGURE}
    sourced = {
        "type": "object",
        "properties": {k: number if k == "value" else text for k in FIGURE}
        | {k: _field_schema(f) for k, f in spec.inside.items() if spec.kind == "figure"},
        "required": ["value"],
        "additionalProperties": False,
    }
    kinds: dict[Kind, dict[str, Any]] = {
        "count": {
            "type": "integer", "minimum": 0 if spec.zero else 1, "maximum": spec.most
        },
        "figure": {"anyOf": [number, sourced]},
        "text": text,
        "flag": {"type": "boolean"},
        "choice": choice,
        "choices": {"type": "array", "items": choice},
        "texts": {"type": "array", "items": text},
        "map": _object_schema(spec.keys),
    }  # fmt: skip
    return kinds[spec.kind] | ({"description": spec.about} if spec.about else {})
