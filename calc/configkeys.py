"""Look up keys of a config.json: typed, under all their spellings, and remembered."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from .attention import Gate, QKNorm
from .errors import RooflmError, either
from .model import Norm
from .plain import is_list, is_map

Flag: TypeAlias = bool | tuple[str, bool]
"""Fixed by the class, or the key that says it and the class default."""
Default: TypeAlias = int | bool | None
Layout: TypeAlias = Literal[
    "plain", "blocks", "compressed", "falcon", "gemma3n", "gemma4", "hunyuan", "indexed", "laguna",
    "llada", "llama4", "longcat", "nas",
    "bamba", "falcon_h1", "jamba", "mamba", "mamba2", "mamba_ssm", "nemotron_h", "zamba2",
    "bailing_hybrid", "delta", "griffin", "kimi_linear", "lfm2", "lightning", "olmo_hybrid", "rwkv",
    "xlstm",
]  # fmt: skip
"""Which function makes the layers: see ELSEWHERE of huggingface.py."""
Heads: TypeAlias = Literal["key", "chatglm", "falcon", "gpt_bigcode"]
"""How the number of key/value heads is told."""
Sight: TypeAlias = Literal[
    "full", "window", "switch", "alternate", "pattern", "letters", "late", "odd", "rope", "types"
]
"""How the layers with a window are told where layer_types does not: see `layer_kinds`."""
Where: TypeAlias = Literal["all", "first", "dense", "step", "interval", "listed", "optional"]
"""How the layers with experts are told: see `expert_layers`."""


@dataclass(frozen=True)
class Routed:
    """How a class lays out its experts."""

    where: Where
    width: str = "moe_intermediate_size"
    """Key of the width of one expert."""
    shared: Literal["none", "count", "width", "one"] = "none"
    """Shared experts: n_shared_experts of an expert's width, a width of their own, or one."""
    shared_gate: bool = False
    bias: bool = False
    router_bias: bool = False
    """The router's biases are parameters; in most classes they are a buffer."""


@dataclass(frozen=True)
class Family:
    """What a class fixes that its config.json does not say."""

    norm: Norm = "rms"
    norms: int = 2
    norms_if: tuple[str, bool, int] | None = None
    """Key, class default, and the norms of a layer where it holds."""
    final_norm: Flag = True
    first_norm: bool = False
    """A norm between the embedding and the first layer."""
    tied: bool = False
    """Class default of tie_word_embeddings."""
    qkv_bias: Flag = False
    out_bias: Flag = False
    mlp_bias: Flag = False
    head_bias: Flag = False
    parallel: Flag = False
    """Attention and MLP read the same input."""
    gated: bool = True
    qk_norm: QKNorm = "none"
    qk_norm_if: Flag = True
    gate: Gate = "none"
    heads: Heads = "key"
    multiple: int | None = None
    """F / D where no width is given."""
    halved: bool = False
    """intermediate_size counts both halves of the gated layer."""
    learned_positions: bool = False
    extra_positions: int = 0
    narrow_embedding: bool = False
    """The embedding may be narrower than the layers: word_embed_proj_dim."""
    sight: Sight = "full"
    period: tuple[str, int] = ("sliding_window_pattern", 0)
    """Key and class default of the distance between layers that see everything."""
    sinks: bool = False
    """A learned sink for each query head."""
    lambdas: bool = False
    """Four lambdas of a head's width (differential attention)."""
    more: int = 0
    """Further weights of each layer."""
    latent: bool = False
    """Multi-head latent attention."""
    experts: Routed | None = None
    layout: Layout = "plain"
    denoises: bool = False
    """A diffusion model: each pass computes a sequence both ways and keeps nothing."""
    vocabulary: str = "vocab_size"
    """Key of the rows of the embedding."""
    padding: tuple[str, int] | None = None
    """Key and default of a number that the rows of the embedding are a multiple of."""
    state_bias: Flag = False
    """Biases on the projections around a recurrent state."""
    state_norm: Flag = True
    """A norm beside a recurrent state."""
    conv_bias: Flag = True
    """A bias on the convolution before a recurrent state."""
    defaults: dict[str, Default] = field(default_factory=dict[str, Default])
    """Class defaults of traits; null where null is what the class takes for an absent key."""
    nested: dict[str, Default] = field(default_factory=dict[str, Default])
    """Class defaults of sizes, which configs inside a multimodal one leave out."""
    refuses: dict[str, str] = field(default_factory=dict[str, str])
    """Keys that turn on what is not modelled."""


ALIASES: dict[str, tuple[str, ...]] = {
    "hidden_size": ("n_embd", "d_model", "n_embed"),
    "num_hidden_layers": ("n_layer", "num_layers", "n_layers"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        "num_kv_heads", "num_heads_kv", "n_head_kv", "n_kv_heads", "num_query_groups",
    ),
    "head_dim": ("attention_head_dim", "kv_channels"),
    "intermediate_size": (
        "ffn_dim", "n_inner", "ffn_hidden_size", "mlp_hidden_size", "block_ff_dim",
    ),
    "vocab_size": ("padded_vocab_size",),
    "num_experts": ("num_local_experts", "n_routed_experts", "moe_num_experts"),
    "num_experts_per_tok": (
        "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k", "experts_per_token",
    ),
    "moe_intermediate_size": ("expert_ffn_hidden_size", "expert_hidden_dim"),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": (
        "shared_intermediate_size", "moe_shared_expert_intermediate_size",
    ),
    "tie_word_embeddings": ("tie_embeddings", "tie_embedding", "weight_tying"),
    "max_position_embeddings": (
        "n_positions", "n_ctx", "max_seq_len", "seq_length", "max_sequence_length",
        "model_max_length", "context_length",
    ),
    "mamba_n_heads": ("mamba_num_heads", "n_mamba_heads"),
    "mamba_d_head": ("mamba_head_dim", "mamba_headdim", "headdim"),
    "mamba_d_state": ("ssm_state_size", "state_size", "d_state"),
    "mamba_d_conv": ("conv_kernel", "d_conv"),
    "mamba_dt_rank": ("time_step_rank", "dt_rank"),
    "mamba_expand": ("expand",),
    "mamba_n_groups": ("n_groups", "mamba_ngroups", "ngroups"),
}  # fmt: skip
"""Other spellings of a key, seen in published configs."""

LARGEST = 10**9
"""Counts beyond this are mistakes: the longest contexts and vocabularies are below 1e8."""
MOST_LAYERS = 1_000
"""Layers beyond this are a mistake: the deepest published models have below 200."""


class Absent:
    """Neither the key nor a class default."""


ABSENT: Final = Absent()


class Keys:
    """A config.json that is being read, and what was taken from it."""

    def __init__(
        self, config: dict[str, Any], kind: str, family: Family, where: str, nested: bool
    ) -> None:
        self.config, self.kind, self.family, self.where = config, kind, family, where
        self.defaults = family.defaults | (family.nested if nested else {})
        self.taken: dict[str, tuple[str, str]] = {}

    def note(self, field: str, value: object, origin: str) -> None:
        """Remember where a field came from; the first word on it stays."""
        self.taken.setdefault(field, (str(value), origin))

    def fail(self, what: str, fix: str = "") -> RooflmError:
        """Make the error that says what is wrong with this config."""
        return RooflmError(what, self.where, fix)

    def find(self, key: str) -> tuple[str, Any]:
        """Find the value of a key under one of its spellings; absent ones are ABSENT."""
        spellings = (key, *ALIASES.get(key, ()))
        found = [(k, self.config[k]) for k in spellings if k in self.config]
        given = [pair for pair in found if pair[1] is not None]
        if not found:
            return key, ABSENT
        for other, value in given[1:]:
            if value != given[0][1] and key != "max_position_embeddings":
                shown = f"{given[0][0]} is {_shown(given[0][1])} and {other} is {_shown(value)}"
                raise self.fail(f"{shown}: two spellings of one key", "Keep one of them.")
        return given[0] if given else found[0]

    def missing(self, key: str) -> RooflmError:
        """Make the error of a key that has to be there."""
        others = ALIASES.get(key, ())
        looked = f"Looked for {either([key, *others])}." if others else "Add it."
        return self.fail(f"{key} is missing, and {self.kind} has no default for it", looked)

    def optional(
        self, key: str, field: str, least: int = 1, most: int = LARGEST
    ) -> int | Absent | None:
        """Read a count that may be null or absent; an absent one with a class default is that."""
        name, value = self.find(key)
        if isinstance(value, Absent):
            if key not in self.defaults:
                return ABSENT
            default = self.defaults[key]
            self.note(field, default, f"class default of {self.kind}")
            return default
        if value is None:
            self.note(field, None, f"key {name} is null")
            return None
        number = self.number(name, value, least, most)
        self.note(field, number, f"key {name}")
        return number

    def number(self, name: str, value: Any, least: int = 1, most: int = LARGEST) -> int:
        """Check that a value is a count."""
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            range_ = f"from {least} to {most:.0e}" if most >= 10**6 else f"from {least} to {most}"
            raise self.fail(f"{name} is {_shown(value)}", f"A whole number {range_} is needed.")
        return value

    def count(self, key: str, field: str, least: int = 1, most: int = LARGEST) -> int:
        """Read a count that has to be there, or have a class default."""
        value = self.optional(key, field, least, most)
        if isinstance(value, Absent):
            raise self.missing(key)
        if value is None:
            raise self.fail(f"{self.find(key)[0]} is null", "A whole number is needed.")
        return value

    def flag(self, flag: Flag, field: str) -> bool:
        """Read what a class fixes or leaves to a key."""
        if isinstance(flag, bool):
            self.note(field, flag, f"class {self.kind}")
            return flag
        key, default = flag
        name, value = self.find(key)
        if isinstance(value, Absent):
            self.note(field, default, f"class default of {self.kind}")
            return default
        if value is None and default:
            raise self.fail(f"{name} is null, and {self.kind} takes it for true where it is absent",
                            "Say true or false.")  # fmt: skip
        if value is None:
            self.note(field, default, f"key {name} is null: class default of {self.kind}")
            return default
        if not isinstance(value, bool):
            raise self.fail(f"{name} is {_shown(value)}", "It has to be true or false.")
        self.note(field, value, f"key {name}")
        return value

    def words(self, key: str, length: int) -> list[str] | None:
        """Read a list with a word for each layer; None where it is absent or null."""
        value = self.config.get(key)
        if value is None:
            return None
        texts = [v for v in value if isinstance(v, str)] if is_list(value) else []
        if not is_list(value) or len(texts) != len(value) or len(value) != length:
            raise self.fail(f"{key} is {_shown(value)}", f"A list of {length} words is needed.")
        return texts

    def counts(self, key: str, length: int, least: int = 0) -> list[int] | None:
        """Read one count or a list of them, one a layer; None where it is absent or null."""
        name, value = self.find(key)
        if value is None or isinstance(value, Absent):
            return None
        if not is_list(value):
            return [self.number(name, value, least)] * length
        if len(value) != length:
            raise self.fail(
                f"{name} has {len(value)} entries", f"One for each of the {length} layers, please."
            )
        return [self.number(name, v, least) for v in value]

    def indices(self, key: str, length: int) -> list[int] | None:
        """Read a list of layer numbers; None where it is absent or null."""
        value = self.config.get(key)
        if value is None:
            return None
        if not is_list(value):
            raise self.fail(f"{key} is {_shown(value)}", "A list of layer numbers is needed.")
        return [self.number(key, v, 0, length - 1) for v in value]

    def mapping(self, key: str) -> dict[str, Any]:
        """Read a mapping; absent and null are empty."""
        value = self.config.get(key)
        if value is None:
            return {}
        if not is_map(value):
            raise self.fail(f"{key} is {_shown(value)}", "A mapping is needed.")
        return value

    def refuse(self, what: str, key: str = "") -> RooflmError:
        """Make the error of a model that is known and not modelled."""
        because = f"{key} turns on " if key else f"{self.kind} has "
        return self.fail(f"{because}{what}, which is not modelled yet")

    def refuse_switched(self) -> None:
        """Refuse a model whose keys turn on what is not modelled."""
        for key, what in self.family.refuses.items():
            holder: Any = self.config
            *outer, last = key.split(".")
            for step in outer:
                holder = holder.get(step) if is_map(holder) else None
            if is_map(holder) and holder.get(last) not in (None, False, 0):
                raise self.refuse(what, key)


def _shown(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
