"""The model of a log: its preset, the formats of its parts, and what a rank holds of it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from .attention import Attention
from .engine_memory import rope_table_bytes
from .engine_rules import find_rules
from .engine_states import own_index, own_states
from .entries import build_model
from .errors import RooflmError
from .layout import Layout, shard
from .log_names import name_of
from .log_read import Start
from .memory import weights_bytes
from .model import Model, token_bytes
from .names import plain_name
from .passes import Precision
from .precision import precision_of
from .presets import MODELS_FILE, find_model, preset_of, preset_text
from .torch_allocator import absorbed_bytes, allocated_bytes
from .yamlfile import load_block

HINTS = {
    "fp8": "fp8", "awq": "awq", "awq_marlin": "awq", "gptq": "gptq", "gptq_marlin": "gptq",
    "int8": "int8-channel", "w8a8": "int8-channel", "w4a16": "int4", "mxfp4": "mxfp4",
    "nvfp4": "nvfp4", "modelopt_fp4": "nvfp4", "modelopt": "fp8", "fbgemm_fp8": "fp8",
}  # fmt: skip
"""Formats that a name or a setting of an engine means."""
KV_FORMATS = {
    "fp8": "fp8", "fp8_e4m3": "fp8", "fp8_e5m2": "fp8", "float8_e4m3fn": "fp8",
    "float8_e5m2": "fp8", "bfloat16": "bf16", "bf16": "bf16", "float16": "fp16", "half": "fp16",
    "fp16": "fp16", "float32": "fp32", "float": "fp32", "nvfp4": "nvfp4",
}  # fmt: skip
"""Formats of caches by the words of engines."""


@dataclass
class Known:
    """What the model of a log says that its figures should be."""

    model: Model | None
    precision: Precision | None
    """None where the format of the weights is not known."""
    cache: Precision | None
    """Formats of the cache, whatever the weights are."""
    layout: Layout
    name: str | None
    """The model as the log calls it."""
    why: str
    """Where no figure follows from a model: why."""
    assumed: list[str] = field(default_factory=list[str])

    def rank_weights(self) -> list[float]:
        """Bytes of the weights of each kind of rank [B]."""
        if self.model is None or self.precision is None:
            return []
        return sorted({weights_bytes(m, self.precision) for m in self.rank_models()}, reverse=True)

    def rank_models(self) -> list[Model]:
        """List what the different ranks hold of the model."""
        if self.model is None:
            return []
        if self.layout.devices == 1:
            return [self.model]
        return [r.model for r in shard(self.model, self.layout)]

    def rope_table(self, length: float | None = None) -> tuple[float, float]:
        """Tell positions and width of the rotary table that an engine keeps beside the weights.

        length: positions, where the model does not say its longest context [tokens].
        """
        if self.model is None or self.model.positions:
            return 0.0, 0.0
        positions = self.model.max_context or length
        rotary = [m.H for g in self.model.groups if isinstance(m := g.mixer, Attention)]
        return (positions, rotary[0]) if rotary and positions else (0.0, 0.0)

    @property
    def turns_twice(self) -> bool:
        """Tell whether layers with a window may turn at a base of their own, as in Gemma 3."""
        if self.model is None:
            return False
        mixers = [g.mixer for g in self.model.groups if isinstance(g.mixer, Attention)]
        return len({m.window is None for m in mixers}) > 1

    def rank_remainders(self, positions: float, width: float) -> list[float]:
        """Bytes that torch's allocator keeps behind the matrices of each kind of rank [B].

        positions, width: of the rotary table; 0 where there is none.
        """
        if self.precision is None:
            return []
        found: set[float] = set()
        for model in self.rank_models():
            twice = self.turns_twice
            held = allocated_bytes(model, self.precision, positions, width, twice=twice)
            tables = (1 + twice) * rope_table_bytes(positions, width)
            found.add(held - weights_bytes(model, self.precision) - tables)
        return sorted(found, reverse=True)

    def absorbed(self) -> float:
        """Bytes of what vLLM keeps of a latent's up-projections on the fullest rank again [B]."""
        return max((absorbed_bytes(m) for m in self.rank_models()), default=0)

    def token_bytes(self) -> list[float]:
        """Bytes of a token in the cache of each kind of rank, all layers [B]."""
        if self.cache is None:
            return []
        cache = self.cache
        found = {token_bytes(m, cache) for m in self.rank_models()} - {0}
        return sorted(found, reverse=True)

    def padded_token_bytes(self) -> list[float]:
        """The same where every layer that keeps tokens has pages of the largest one [B]."""
        found: set[float] = set()
        if self.cache is None:
            return []
        for model in self.rank_models():
            each = [(g.count, g.mixer.token_bytes(self.cache)) for g in model.groups]
            most = max((b for _, b in each), default=0)
            found.add(most * sum(n for n, b in each if b))
        return sorted(found, reverse=True)

    @property
    def mixed(self) -> bool:
        """Tell whether layers keep different things: windows, chunks, nothing."""
        if self.model is None:
            return False
        return len({(g.mixer.kind, g.mixer.token_elements) for g in self.model.groups}) > 1

    @property
    def states(self) -> bool:
        """Tell whether layers keep states."""
        return self.model is not None and any(g.mixer.state.elements for g in self.model.groups)


def known(start: Start, typed: dict[str, str | None]) -> Known:
    """Find the model of a start; typed: what the user says of model, weights, kv, tp and pp."""
    said: list[str] = []
    name = name_of(start)
    model, why = _model(name, typed.get("model"), said)
    layout = _layout(start, typed, said)
    natural = {"float16": "fp16", "half": "fp16", "float32": "fp32"}.get(
        start.word("dtype") or "", "bf16"
    )
    precision = cache = None
    if model is not None:
        weights, none = _weights(start, name, model, typed.get("weights"), said)
        kv = typed.get("kv")
        kv = _kv(start, said) if kv is None else kv
        if kv is not None:
            state = KV_FORMATS.get((start.word("state_dtype") or "").lower())
            if state is None:
                state = _states(start, model, natural, said)
            index = own_index(start.engine, model, kv) if typed.get("kv") is None else None
            if index is not None:
                said.append(index[1])
            cache = precision_of("bf16", index[0] if index else kv, state, natural=natural)
        try:
            # Where the log says nothing, the model's own format holds, which may be a file's.
            own = weights == "bf16" and typed.get("weights") is None
            if not none:
                precision = precision_of(None if own else weights, kv, model=model, natural=natural)
        except RooflmError:
            if typed.get("weights") is not None or typed.get("kv") is not None:
                raise
            none = f"the formats of {model.name} do not follow from the log: --weights says them"
        if none:
            why = none
        try:
            shard(model, layout)
        except RooflmError as e:
            model, why = None, f"{model.name} cannot be spread as the log says: {e.what}"
    return Known(model, precision, cache, layout, name, why, said)


def _model(name: str | None, typed: str | None, said: list[str]) -> tuple[Model | None, str]:
    """Find the preset of a name, or the model that the user names."""
    if typed is not None:
        model = find_model(typed)
        meant = None if name is None else preset_of(name)
        if meant is not None and meant != model.name:
            said.append(f"the log names {name}, and --model {typed} is held against it")
        return model, ""
    if name is None:
        return None, "the log names no model: --model does"
    preset = preset_of(name)
    if preset is None:
        return None, f"no preset is called {name[:60]}: --model names one, or a config.json"
    if plain_name(name.rpartition("/")[2]) != plain_name(preset):
        said.append(f"{name} has the dimensions of the preset {preset}")
    text = preset_text(MODELS_FILE)
    return build_model(preset, load_block(text, preset, MODELS_FILE.name)), ""


def _layout(start: Start, typed: dict[str, str | None], said: list[str]) -> Layout:
    """Read over how many devices a model is spread."""
    from .units import parse_count

    ways: dict[str, int] = {}
    for axis in ("tp", "pp"):
        text = typed.get(axis)
        if text is not None:
            ways[axis] = parse_count(text, f"--{axis}")
            continue
        found = start.number(axis)
        ranks = {m[1] for f in start.all(*start.facts) for r in f.ranks
                 if (m := re.search(rf"{axis.upper()}(\d+)", r))}  # fmt: skip
        ways[axis] = int(found) if found and 1 <= found <= 4096 else 1
        if found is None and len(ranks) > 1:
            ways[axis] = max(map(int, ranks)) + 1
            said.append(f"{axis} {ways[axis]}: by the ranks that wrote lines")
    return Layout(tp=ways["tp"], pp=ways["pp"])


def _weights(
    start: Start, name: str | None, model: Model, typed: str | None, said: list[str]
) -> tuple[str | None, str]:
    """Tell the format of the weights, or why it is not known."""
    if typed is not None:
        return typed, ""
    named = next((HINTS[w] for w in re.split(r"[-_./ ]", (name or "").lower()) if w in HINTS), None)
    published = model.published
    told = start.word("quantization")
    if told is None and named is None and published is not None:
        if published.startswith("experts=") and not published.endswith("rest=bf16"):
            # An engine may load a mixture of two formats of few bits as something else.
            return None, f"the checkpoint of {model.name} has several formats: --weights says which"
        said.append(f"weights {published}, as {model.name} was published")
        return published, ""
    if told is None:
        if named is not None and not start.says_none("quantization"):
            said.append(f"weights {named}, as the name of the model says")
            return named, ""
        if not start.says_none("quantization"):
            said.append("weights in 16 bits: the log names no quantization")
        return "bf16", ""
    kind = HINTS.get(told.lower().replace("-", "_")) or named
    if published and kind is not None and kind in published:
        kind = published
    if kind is None:
        return None, f"quantization {told[:40]} has several formats: --weights says which"
    said.append(f"weights {kind}: the log says quantization {told[:40]}")
    return kind, ""


def _kv(start: Start, said: list[str]) -> str | None:
    """Tell the format of the cache; None is that of the activations."""
    told = start.word("kv_cache_dtype") or start.word("pool_dtype")
    if told is None:
        return start_dtype(start)
    kind = KV_FORMATS.get(told.lower())
    if kind is None:
        said.append(f"the cache is in {told[:40]}, of which no bytes are known")
    return kind


def _states(start: Start, model: Model, natural: str, said: list[str]) -> str | None:
    """Tell the format of states that an engine takes by itself; None is fp32."""
    if start.engine not in ("vllm", "sglang"):
        return None
    rules = find_rules(start.engine)
    found = own_states(rules, model, natural)
    if found is None:
        return None
    said.append(f"states in {found[0]}{found[1]}, as {rules['name']} keeps them by itself")
    return found[0]


def start_dtype(start: Start) -> str:
    """Tell the 16-bit format of a start."""
    return KV_FORMATS.get((start.word("dtype") or "").lower(), "bf16")
