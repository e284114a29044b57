"""A model from a GGUF file: dimensions by the shapes of its tensors, bytes by their blocks.

Names of keys and tensors are those of the constants.py of the `gguf` package; which layers slide
is a matter of llama.cpp, src/models/*.cpp, and not in the file. What is not understood is an error:
the parameters of the Model are those of the file to the last.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .attention import Attention, NoMixer, QKNorm
from .errors import RooflmError, nearest, printable
from .experts import Experts, NoFeedForward
from .gguf_file import Shape, Tensor, read_header
from .mixers import Mixer
from .mla import MLA
from .mlp import MLP
from .model import FeedForward, Group, Model, Norm, total_parameters
from .plain import is_list

FULL = frozenset({
    "apertus", "arcee", "baichuan", "bailingmoe", "bailingmoe2", "chatglm", "codeshell",
    "command-r", "dbrx", "deci", "deepseek", "deepseek2", "dots1", "ernie4_5", "ernie4_5-moe",
    "exaone", "falcon", "gemma", "glm4", "glm4moe", "gpt2", "gptneox", "granite", "granitemoe",
    "hunyuan-dense", "hunyuan-moe", "internlm2", "jais", "llama", "minicpm", "minicpm3",
    "minimax-m2", "mistral3", "nemotron", "olmo", "olmoe", "orion", "pangu-embedded", "phi2",
    "phimoe", "plm", "qwen", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "refact",
    "seed_oss", "smollm3", "stablelm", "starcoder", "starcoder2", "xverse",
})  # fmt: skip
"""Architectures whose layers all see the whole context."""
PERIODS = {"gemma2": 2, "gemma3": 6, "cohere2": 4, "olmo2": 4, "gpt-oss": 2, "phi3": 1}
"""Layers of which the last sees the whole context and the others slide, by architecture.

Phi-3 has a window key that llama.cpp reads and turns off.
"""
GEMMA2_WINDOW = 4096
"""Window of Gemma 2 in files without the key [tokens]."""
LLAMA4_CHUNK = 8192
"""Chunk of three of four layers of Llama 4, whatever the file says [tokens]."""
KNOWN = FULL | PERIODS.keys() | {"llama4"}

NORMS = (
    "attn_norm", "attn_norm_2", "attn_output_norm", "post_attention_norm", "ffn_norm",
    "post_ffw_norm", "layer_output_norm",
)  # fmt: skip
"""Block norms, by name of the tensor."""
BUFFER = re.compile(
    r"(blk\.\d+\.)?(rope_freqs|rope_factors_long|rope_factors_short|attn_rot_embd)\.weight"
    r"|.+\.(scale|input_scale)"
)
"""Tensors that are no parameters: rotary tables, scales of quantized weights."""


FIX = "Write its dimensions as a YAML entry like those of models.yaml."


def read_gguf(path: Path) -> Model:
    """Read the model that a GGUF file holds; a file in parts is read whole."""
    keys, tensors = read_header(path)
    weights = {n: t.shape for n, t in tensors.items() if not BUFFER.fullmatch(n)}
    total = sum(t.elements for n, t in tensors.items() if n in weights)
    file = _File(path, keys, weights)
    model = file.model(sum(t.bytes for t in tensors.values()))
    if file.left:
        shown = ", ".join(list(file.left)[:6]) + (" ..." if len(file.left) > 6 else "")
        raise file.error(f"{len(file.left)} tensors are not understood: {shown}", FIX)
    if total_parameters(model) != total:
        # Every tensor was taken with its shape: this is a defect of this module.
        what = f"the tensors hold {total} weights and the model read from them"
        raise file.error(f"{what} {total_parameters(model)}", FIX)
    known, unknown = formats_of(model, keys, tensors)
    return replace(model, weights_format=known, weights_unknown=unknown)


PLAIN = {"f32": "fp32", "f16": "fp16"}
"""Types of tensors that have another name here."""
FILE_TYPES = {
    10: "q2_k-file", 11: "q3_k_s", 12: "q3_k_m", 13: "q3_k_l", 14: "q4_k_s", 15: "q4_k_m",
    16: "q5_k_s", 17: "q5_k_m", 18: "q6_k", 21: "q2_k_s",
}  # fmt: skip
"""Mixtures by general.file_type (github.com/ggml-org/llama.cpp, include/llama.h, llama_ftype)."""
CLOSE = 0.002
"""Share by which a mixture may miss the bytes of a file: norms are fp32 there."""


def formats_of(
    model: Model, keys: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> tuple[str | None, str]:
    """Tell the format of a file's matrices, or why there is no one name for them.

    model: what the file holds; keys, tensors: its header. A mixture has to have its bytes.
    """
    from .configquant import MATRICES
    from .formats import FORMATS
    from .memory import weights_bytes
    from .precision import precision_of

    kinds = {t.type.lower() for t in tensors.values() if len(t.shape) > 1}
    names = sorted(PLAIN.get(kind, kind) for kind in kinds)
    if len(names) == 1 and names[0] in FORMATS:
        return names[0], ""
    number = keys.get("general.file_type")
    mixture = FILE_TYPES.get(number) if isinstance(number, int) else None
    if mixture is not None:
        held = weights_bytes(model, precision_of(mixture, model=model))
        if abs(held / sum(t.bytes for t in tensors.values()) - 1) <= CLOSE:
            return mixture, ""
    return None, f"{MATRICES}{', '.join(names)}"


@dataclass
class _File:
    """A file on its way to a Model: tensors are taken until none is left."""

    path: Path
    keys: Mapping[str, Any]
    left: dict[str, Shape]
    notes: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])
    """Origin of each field and value."""
    arch: str = ""
    width: int = 0
    layers: int = 0

    def error(self, what: str, fix: str = "") -> RooflmError:
        return RooflmError(what, str(self.path), fix)

    def note(self, name: str, value: object, origin: str) -> None:
        self.notes.setdefault((name, str(value)), origin)

    # Keys

    def key(self, name: str, layer: int | None = None) -> int | None:
        """Take the number under a key, or the layer's where the key has one for each."""
        full = f"{self.arch}.{name}"
        value = self.keys.get(full)
        if is_list(value) and layer is not None:
            if len(value) != self.layers:
                raise self.error(f"'{full}' has {len(value)} entries for {self.layers} layers")
            value = value[layer]
        if value is not None and (type(value) is not int or not 0 <= value < 2**40):
            raise self.error(f"'{full}' is not a count")
        return value

    def need_key(self, name: str, layer: int | None = None) -> int:
        value = self.key(name, layer)
        if not value:
            raise self.error(f"the key '{self.arch}.{name}' is missing or 0")
        return value

    # Tensors

    def take(self, name: str, *shape: int) -> bool:
        """Take a tensor if it is there; its shape must be the one given."""
        found = self.left.pop(name, None)
        if found is not None and found != shape:
            raise self.error(f"the tensor '{name}' is {_shape(found)} in place of {_shape(shape)}")
        return found is not None

    def need(self, name: str, *shape: int) -> None:
        if not self.take(name, *shape):
            raise self.error(f"the tensor '{name}' is missing", FIX)

    def shape(self, name: str, dimensions: int) -> Shape:
        """Look at the shape of a tensor that must be there."""
        if name not in self.left:
            raise self.error(f"the tensor '{name}' is missing", FIX)
        found = self.left[name]
        if len(found) != dimensions or 0 in found:
            raise self.error(f"the tensor '{name}' has the shape {_shape(found)}", FIX)
        return found

    def all_or_none(self, shapes: Mapping[str, Shape]) -> bool:
        """Take tensors of which a layer has all or none."""
        found = [name for name, shape in shapes.items() if self.take(name, *shape)]
        if found and len(found) < len(shapes):
            lacking = next(name for name in shapes if name not in found)
            raise self.error(f"there is '{found[0]}' but no '{lacking}'", FIX)
        return bool(found)

    # The model

    def model(self, file_bytes: int) -> Model:
        arch = self.keys.get("general.architecture")
        if not isinstance(arch, str):
            raise self.error("the key 'general.architecture' is missing")
        if arch not in KNOWN:
            fix = nearest(arch, KNOWN) or FIX
            raise self.error(f"the architecture '{arch[:40]}' is not among those read", fix)
        self.arch = arch
        if self.keys.get(f"{arch}.attention.causal") is False:
            raise self.error(f"this '{arch}' is an encoder: it generates no text")
        self.width, V = self.shape("token_embd.weight", 2)
        if self.need_key("embedding_length") != self.width:
            raise self.error(
                f"'{arch}.embedding_length' is {self.key('embedding_length')} and "
                f"'token_embd.weight' {self.width} wide",
                FIX,
            )
        self.layers = self.need_key("block_count")
        found = {int(m[1]) for n in self.left if (m := re.match(r"blk\.(\d{1,9})\.", n))}
        if len(found) != self.layers or max(found) != self.layers - 1:
            what = (
                f"'{arch}.block_count' is {self.layers} and the tensors are of {len(found)} layers"
            )
            raise self.error(what)
        self.need("token_embd.weight", self.width, V)
        for name, value in (("D", self.width), ("V", V)):
            self.note(name, value, "tensor token_embd.weight")
        self.note("L", self.layers, f"key {arch}.block_count")
        tied = not self.take("output.weight", self.width, V)
        self.note("tied", tied, f"{'no ' if tied else ''}tensor output.weight")
        positions = 0
        if "position_embd.weight" in self.left:
            positions = self.shape("position_embd.weight", 2)[1]
            self.need("position_embd.weight", self.width, positions)
            self.note("positions", positions, "tensor position_embd.weight")
        windows, norms = self.windows(), _Norms(self)
        final = norms.take("output_norm")
        layers = [self.layer(i, windows[i], norms) for i in range(self.layers)]
        max_context = self.key("context_length") or None
        if max_context is not None:
            self.note("max_context", max_context, f"key {arch}.context_length")
        return Model(
            name=printable(self.path.stem),
            D=self.width,
            V=V,
            groups=tuple(Group(count, *layer) for layer, count in Counter(layers).items()),
            norm=norms.kind(),
            final_norm=final,
            tied=tied,
            positions=positions,
            head_bias=self.take("output.bias", V),
            parallel=self.keys.get(f"{arch}.use_parallel_residual") is True or norms.shared,
            max_context=max_context,
            source=printable(str(self.path)),
            provenance=tuple((name, value, why) for (name, value), why in self.notes.items()),
            file_bytes=file_bytes,
        )

    def windows(self) -> list[int | None]:
        """Tell the window of each layer, None where it sees the whole context [tokens]."""
        arch, key = self.arch, f"{self.arch}.attention.sliding_window"
        window, context = self.key("attention.sliding_window"), self.key("context_length")
        if arch == "llama4":
            # A window of 0 is MobileLLM's, which has none; any other value is ignored.
            return self.slide(4, 0 if window == 0 else LLAMA4_CHUNK, "chunk", "llama.cpp, llama4")
        origin = f"key {key}"
        if window is None and arch == "gemma2":
            window, origin = GEMMA2_WINDOW, "llama.cpp, gemma2"
        if not window:
            return [None] * self.layers
        if (context and window >= context) or PERIODS.get(arch) == 1:
            why = "turned off by llama.cpp" if arch == "phi3" else "no shorter than the context"
            self.note("window", "none", f"{origin} = {window}, {why}")
            return [None] * self.layers
        pattern = self.keys.get(f"{key}_pattern")
        if is_list(pattern):
            if len(pattern) != self.layers or not all(type(p) is bool for p in pattern):
                raise self.error(f"'{key}_pattern' is not a truth for each of {self.layers} layers")
            self.note("window", window, f"{origin}, {key}_pattern")
            return [window if slides else None for slides in pattern]
        if arch not in PERIODS:
            what = f"there is a window of {window} tokens, and which layers of '{arch}' have it is"
            raise self.error(f"{what} not known", FIX)
        period = self.key("attention.sliding_window_pattern") or PERIODS[arch]
        return self.slide(period, window, "window", f"{origin}; 1 layer of {period} is full")

    def slide(self, period: int, window: int, name: str, origin: str) -> list[int | None]:
        """Give all layers but the last of each period a window."""
        if window:
            self.note(name, window, origin)
        slides = [bool(window) and i % period < period - 1 for i in range(self.layers)]
        return [window if one else None for one in slides]

    def layer(self, i: int, window: int | None, norms: _Norms) -> tuple[Mixer, FeedForward, int]:
        """Take the tensors of a layer."""
        at = f"blk.{i}."
        count = norms.of_layer(at)
        if at + "attn_kv_a_mqa.weight" in self.left:
            mixer: Mixer = self.latent(i, at)
        elif self.key("attention.head_count", i) == 0:
            mixer = NoMixer()
        else:
            mixer = self.attention(i, at, window)
        if at + "ffn_gate_inp.weight" in self.left:
            return mixer, self.experts(at), count
        if self.key("feed_forward_length", i) == 0:
            return mixer, NoFeedForward(), count
        F, gated, bias = self.mlp(at, "")
        self.note("F", F, f"tensor {at}ffn_down.weight")
        return mixer, MLP(F, gated, bias), count

    def attention(self, i: int, at: str, window: int | None) -> Attention:
        D, N = self.width, self.need_key("attention.head_count", i)
        kv = self.key("attention.head_count_kv", i)
        fused = at + "attn_qkv.weight" in self.left
        H = self.key("attention.key_length") or D // N
        H_v = self.key("attention.value_length") or H
        K = N if kv is None else kv
        if not K or N % K or not H:
            raise self.error(f"{K} key/value heads cannot serve {N} query heads (layer {i})")
        widths = (
            {"qkv": N * H + K * H + K * H_v} if fused else {"q": N * H, "k": K * H, "v": K * H_v}
        )
        for part, width in widths.items():
            self.need(f"{at}attn_{part}.weight", D, width)
        self.need(at + "attn_output.weight", N * H_v, D)
        source = at + ("attn_qkv" if fused else "attn_k") + ".weight"
        self.note("N", N, f"key {self.arch}.attention.head_count, tensor {at}attn_output.weight")
        self.note("K", K, f"key {self.arch}.attention.head_count_kv, tensor {source}")
        self.note("H", H, f"tensor {source}")
        if H_v != H:
            self.note("H_v", H_v, f"key {self.arch}.attention.value_length")
        chunk = self.arch == "llama4"
        return Attention(
            N=N,
            K=K,
            H=H,
            H_v=None if H_v == H else H_v,
            window=None if chunk else window,
            chunk=window if chunk else None,
            qkv_bias=self.all_or_none({f"{at}attn_{p}.bias": (w,) for p, w in widths.items()}),
            out_bias=self.take(at + "attn_output.bias", D),
            qk_norm=self.qk_norm(at, N, K, H),
            extra=N if self.take(at + "attn_sinks.weight", N) else 0,
        )

    def qk_norm(self, at: str, N: int, K: int, H: int) -> QKNorm:
        q, k = at + "attn_q_norm.weight", at + "attn_k_norm.weight"
        shape = self.left.get(q, self.left.get(k))
        if shape is None:
            return "none"
        kind: QKNorm = "width"
        if shape == (H,):
            kind, taken = "head", {q: (H,), k: (H,)}
        elif len(shape) == 2:
            # Command R+ and StableLM 2 have one norm a head, each with weights of its own.
            taken = {q: (H, N), k: (H, K)}
        else:
            taken = {q: (N * H,), k: (K * H,)}
        self.all_or_none(taken)
        self.note("qk_norm", kind, f"tensor {q}")
        return kind

    def latent(self, i: int, at: str) -> MLA:
        """Take multi-head latent attention; the up-projections may be one tensor or two."""
        D, N = self.width, self.need_key("attention.head_count", i)
        c = self.shape(at + "attn_kv_a_norm.weight", 1)[0]
        r = self.shape(at + "attn_kv_a_mqa.weight", 2)[1] - c
        v = self.shape(at + "attn_output.weight", 2)[0] // N
        if at + "attn_k_b.weight" in self.left:
            d = self.shape(at + "attn_k_b.weight", 3)[0]
            self.need(at + "attn_k_b.weight", d, c, N)
            self.need(at + "attn_v_b.weight", c, v, N)
        else:
            d = self.shape(at + "attn_kv_b.weight", 2)[1] // N - v
            self.need(at + "attn_kv_b.weight", c, N * (d + v))
        if min(r, d, v) < 1:
            raise self.error(f"the widths of layer {i} do not go with {N} heads")
        q = None
        if at + "attn_q_a.weight" in self.left:
            q = self.shape(at + "attn_q_a.weight", 2)[1]
            self.need(at + "attn_q_a.weight", D, q)
            self.need(at + "attn_q_a_norm.weight", q)
            self.need(at + "attn_q_b.weight", q, N * (d + r))
        else:
            self.need(at + "attn_q.weight", D, N * (d + r))
        self.need(at + "attn_kv_a_norm.weight", c)
        self.need(at + "attn_kv_a_mqa.weight", D, c + r)
        self.need(at + "attn_output.weight", N * v, D)
        self.note("N", N, f"key {self.arch}.attention.head_count")
        for name, value, tensor in (
            ("c", c, "attn_kv_a_norm"),
            ("r", r, "attn_kv_a_mqa"),
            ("d", d, "attn_k_b or attn_kv_b"),
            ("v", v, "attn_output"),
            ("q", q, "attn_q_a"),
        ):
            self.note(name, value, f"tensor {at}{tensor}.weight")
        return MLA(N, c, r, d, v, q, out_bias=self.take(at + "attn_output.bias", D))

    def mlp(self, at: str, kind: str, *E: int) -> tuple[int, bool, bool]:
        """Take a feed-forward, or those of E experts: its width, whether gated, whether biased."""
        D = self.width
        up, gate, down = (f"{at}ffn_{part}{kind}" for part in ("up", "gate", "down"))
        both = f"{at}ffn_gate_up{kind}"
        F = self.shape(down + ".weight", 2 + len(E))[0]
        inner = {up: F, gate: F}
        if both + ".weight" in self.left:
            inner = {both: 2 * F}
        elif gate + ".weight" not in self.left:
            # Phi-3 and GLM-4 have the gate in the upper half of the up-projection.
            doubled = self.shape(up + ".weight", 2 + len(E))[1] == 2 * F
            inner = {up: 2 * F if doubled else F}
        for name, width in inner.items():
            self.need(name + ".weight", D, width, *E)
        self.need(down + ".weight", F, D, *E)
        biases = {f"{name}.bias": (width, *E) for name, width in inner.items()}
        bias = self.all_or_none(biases | {down + ".bias": (D, *E)})
        gated = sum(inner.values()) == 2 * F
        self.note("gated", gated, f"tensor {next(reversed(inner))}.weight")
        return F, gated, bias

    def experts(self, at: str) -> Experts:
        router = at + "ffn_gate_inp.weight"
        E, k = self.shape(router, 2)[1], self.need_key("expert_used_count")
        if k > E:
            raise self.error(f"a token cannot choose {k} of {E} experts")
        self.need(router, self.width, E)
        F, gated, bias = self.mlp(at, "_exps", E)
        router_bias = [
            name
            for name in (at + "ffn_gate_inp.bias", at + "exp_probs_b.bias")
            if self.take(name, E)
        ]
        if len(router_bias) > 1:
            raise self.error(f"the router has two biases, {' and '.join(router_bias)}", FIX)
        for name, value, origin in (
            ("F of an expert", F, f"tensor {at}ffn_down_exps.weight"),
            ("E", E, f"tensor {router}"),
            ("k", k, f"key {self.arch}.expert_used_count"),
        ):
            self.note(name, value, origin)
        shared = 0
        if at + "ffn_down_shexp.weight" in self.left:
            shared, *same = self.mlp(at, "_shexp")
            if same != [gated, bias]:
                raise self.error(f"shared and routed experts differ ({at}ffn_down_shexp)", FIX)
            self.note("F_s", shared, f"tensor {at}ffn_down_shexp.weight")
        return Experts(
            F=F,
            E=E,
            k=k,
            gated=gated,
            bias=bias,
            shared=shared,
            shared_gate=bool(shared) and self.take(at + "ffn_gate_inp_shexp.weight", self.width),
            router_bias=bool(router_bias),
        )


@dataclass
class _Norms:
    """The norms of a file, which are all of one kind."""

    file: _File
    biased: dict[bool, str] = field(default_factory=dict[bool, str])
    shared: bool = False
    """Attention and MLP read the same norm, or two of the same input (Falcon)."""

    def take(self, name: str) -> bool:
        """Take a norm, with its bias if it has one."""
        if not self.file.take(name + ".weight", self.file.width):
            return False
        self.biased.setdefault(self.file.take(name + ".bias", self.file.width), name)
        return True

    def of_layer(self, at: str) -> int:
        """Take the block norms of a layer and count them."""
        found = [name for name in NORMS if self.take(at + name)]
        self.shared = self.shared or found in (["attn_norm"], ["attn_norm", "attn_norm_2"])
        return len(found)

    def kind(self) -> Norm:
        """Tell what the norms are; LayerNorm and RMSNorm differ by key, biases by tensor."""
        file = self.file
        if len(self.biased) > 1:
            names = f"'{self.biased[True]}' has a bias and '{self.biased[False]}' none"
            raise file.error(f"norms differ: {names}", FIX)
        layer = f"{file.arch}.attention.layer_norm_epsilon"
        if not self.biased:
            kind: Norm = "none"
        elif True in self.biased:
            kind = "layer"
        else:
            kind = "layer-no-bias" if layer in file.keys else "rms"
        file.note("norm", kind, "tensors *_norm" if layer not in file.keys else f"key {layer}")
        return kind


def _shape(shape: Shape) -> str:
    return " x ".join(map(str, shape))
