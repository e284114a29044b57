"""The layers that are measured, against transformers and against what the ledger counts.

Oracles: transformers 5.24 (Llama, Qwen3, Mistral, Mixtral, DeepSeek-V3, Mamba-2, Qwen3-Next) with
the same weights, in fp32 and without a cache; the project's own cacheless forward for formats.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from rooflm.calc.attention import Attention
from rooflm.calc.errors import RooflmError
from rooflm.calc.experts import Experts
from rooflm.calc.linear_attention import DeltaNet
from rooflm.calc.memory import weights_bytes
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model, cache_bytes, sequence_state_bytes
from rooflm.calc.precision import precision_of
from rooflm.calc.presets import find_model
from rooflm.calc.ssm import Mamba2
from rooflm.validate import reference
from rooflm.validate.agreement import agreement, cached_logits, format_errors, relative_error
from rooflm.validate.attention_layers import KV
from rooflm.validate.linears import make_linear
from rooflm.validate.making import Maker
from rooflm.validate.network import build, held_caches
from rooflm.validate.shrink import cut, small

CPU = torch.device("cpu")
D, F, V, N, K, H = 64, 96, 128, 8, 2, 16
FP32 = precision_of("fp32")


def one(mixer: Any, ffn: Any, layers: int = 2) -> Model:
    """A model of equal layers."""
    return Model("small", D, V, (Group(layers, mixer, ffn, norms=2),))


def made(model: Model) -> tuple[Any, torch.Tensor]:
    """Build a model in fp32, and tokens of two sequences."""
    network = build(model, Maker(FP32, CPU, 3, keep=True, most_positions=32))
    return network, torch.randint(0, V, (2, 14), generator=torch.Generator().manual_seed(1))


def put(target: Any, value: Any) -> None:
    """Copy weights into a parameter of the oracle, whose shape must be the same."""
    assert tuple(target.shape) == tuple(value.shape)
    target.data.copy_(value)


def fill_ends(oracle: Any, network: Any) -> None:
    """Copy embedding, last norm and head."""
    put(oracle.model.embed_tokens.weight, network.table)
    put(oracle.model.norm.weight, network.final[0])
    put(oracle.lm_head.weight, network.head.exact)


def fill_mlp(mlp: Any, ours: Any) -> None:
    """Copy a gated feed-forward."""
    gate, up = ours.up.exact.chunk(2)
    put(mlp.gate_proj.weight, gate)
    put(mlp.up_proj.weight, up)
    put(mlp.down_proj.weight, ours.down.exact)


def fill_attention(attention: Any, ours: Any) -> None:
    """Copy the projections of plain attention."""
    m = ours.of
    q, k, v = ours.qkv.exact.split([m.N * m.H, m.K * m.H, m.K * m.H])
    for name, weight in (("q_proj", q), ("k_proj", k), ("v_proj", v), ("o_proj", ours.out.exact)):
        put(getattr(attention, name).weight, weight)


def fill_norms(layer: Any, ours: Any) -> None:
    """Copy the norms before mixer and feed-forward."""
    put(layer.input_layernorm.weight, ours.norms[0][0])
    put(layer.post_attention_layernorm.weight, ours.norms[1][0])


def check(oracle: Any, network: Any, tokens: torch.Tensor) -> None:
    """Compare cached steps, and the cacheless forward, with the oracle's logits."""
    oracle = oracle.eval()
    with torch.no_grad():
        want = oracle(input_ids=tokens, use_cache=False).logits
    # The cacheless forward first: its experts are its own then.
    assert relative_error(reference.logits(network, tokens), want) < 2e-5
    assert relative_error(cached_logits(network, tokens), want[:, 5:]) < 2e-5


SHAPE: dict[str, Any] = {
    "hidden_size": D, "intermediate_size": F, "vocab_size": V, "num_hidden_layers": 2,
    "num_attention_heads": N, "num_key_value_heads": K, "head_dim": H, "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
}  # fmt: skip


def config_of(cls: Any, **fields: Any) -> Any:
    """Make a config of the oracle, whose fields have narrower types than what is given here."""
    return cls(**fields)


def test_grouped_query_attention_is_that_of_llama() -> None:
    """Cached steps of GQA, RoPE and a gated MLP give Llama's logits."""
    from transformers import LlamaConfig, LlamaForCausalLM

    network, tokens = made(one(Attention(N, K, H), MLP(F)))
    oracle: Any = LlamaForCausalLM(config_of(LlamaConfig, **SHAPE))
    fill_ends(oracle, network)
    for layer, ours in zip(oracle.model.layers, network.layers, strict=True):
        fill_attention(layer.self_attn, ours.mixer)
        fill_mlp(layer.mlp, ours.ffn)
        fill_norms(layer, ours)

    check(oracle, network, tokens)


def test_norms_on_heads_are_those_of_qwen3() -> None:
    """Queries and keys are normed before they are turned."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    network, tokens = made(one(Attention(N, K, H, qk_norm="head"), MLP(F)))
    oracle: Any = Qwen3ForCausalLM(config_of(Qwen3Config, **SHAPE))
    fill_ends(oracle, network)
    for layer, ours in zip(oracle.model.layers, network.layers, strict=True):
        fill_attention(layer.self_attn, ours.mixer)
        put(layer.self_attn.q_norm.weight, ours.mixer.norms[0])
        put(layer.self_attn.k_norm.weight, ours.mixer.norms[1])
        fill_mlp(layer.mlp, ours.ffn)
        fill_norms(layer, ours)

    check(oracle, network, tokens)


def test_windows_are_those_of_mistral() -> None:
    """A cache of five slots, used in turn, gives what a mask over the whole context gives."""
    from transformers import MistralConfig, MistralForCausalLM

    network, tokens = made(one(Attention(N, K, H, window=5), MLP(F)))
    oracle: Any = MistralForCausalLM(
        config_of(MistralConfig, **SHAPE, sliding_window=5, attn_implementation="eager")
    )
    fill_ends(oracle, network)
    for layer, ours in zip(oracle.model.layers, network.layers, strict=True):
        fill_attention(layer.self_attn, ours.mixer)
        fill_mlp(layer.mlp, ours.ffn)
        fill_norms(layer, ours)

    check(oracle, network, tokens)
    assert network.caches(2, 14)[0].k.shape == (2, K, 5, H)


def test_experts_are_those_of_mixtral() -> None:
    """Each token's two experts, weighted by a softmax over them."""
    from transformers import MixtralConfig, MixtralForCausalLM

    network, tokens = made(one(Attention(N, K, H), Experts(F, E=8, k=2)))
    config = config_of(MixtralConfig,
        **SHAPE, num_local_experts=8, num_experts_per_tok=2, sliding_window=None,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )  # fmt: skip
    oracle: Any = MixtralForCausalLM(config)
    fill_ends(oracle, network)
    for layer, ours in zip(oracle.model.layers, network.layers, strict=True):
        fill_attention(layer.self_attn, ours.mixer)
        fill_norms(layer, ours)
        put(layer.mlp.gate.weight, ours.ffn.router.exact)
        put(layer.mlp.experts.gate_up_proj, torch.stack([e.up.exact for e in ours.ffn.experts]))
        put(layer.mlp.experts.down_proj, torch.stack([e.down.exact for e in ours.ffn.experts]))

    check(oracle, network, tokens)


def test_absorbed_latents_are_those_of_deepseek() -> None:
    """Decode over the latents gives what keys and values of every head give."""
    from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

    m = MLA(N=4, c=32, r=8, d=16, v=24, q=48)
    network, tokens = made(one(m, MLP(F)))
    shape = SHAPE | {"num_attention_heads": 4, "num_key_value_heads": 4}
    del shape["head_dim"]
    config = config_of(DeepseekV3Config,
        **shape, q_lora_rank=48, kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16,
        v_head_dim=24, first_k_dense_replace=2, rope_interleave=False,
    )  # fmt: skip
    oracle: Any = DeepseekV3ForCausalLM(config)
    fill_ends(oracle, network)
    for layer, ours in zip(oracle.model.layers, network.layers, strict=True):
        attention, mixer = layer.self_attn, ours.mixer
        into, down = mixer.down.exact.split([48, 40])
        put(attention.q_a_proj.weight, into)
        put(attention.kv_a_proj_with_mqa.weight, down)
        put(attention.q_a_layernorm.weight, mixer.norms[1])
        put(attention.kv_a_layernorm.weight, mixer.norms[0])
        put(attention.q_b_proj.weight, mixer.up.exact)
        both = torch.cat((mixer.keys, mixer.values), dim=1).reshape(4 * 40, 32)
        put(attention.kv_b_proj.weight, both)
        put(attention.o_proj.weight, mixer.out.exact)
        fill_mlp(layer.mlp, ours.ffn)
        fill_norms(layer, ours)

    check(oracle, network, tokens)


def test_mamba2_is_that_of_transformers() -> None:
    """State updates of single tokens give the chunked form over the whole sequence."""
    from transformers import Mamba2Config, Mamba2ForCausalLM

    from rooflm.calc.experts import NoFeedForward

    m = Mamba2(heads=8, width=16, s=16, groups=2)
    model = Model("small", D, V, (Group(2, m, NoFeedForward(), norms=1),))
    network, tokens = made(model)
    config = config_of(Mamba2Config,
        hidden_size=D, num_heads=8, head_dim=16, state_size=16, n_groups=2, conv_kernel=4,
        expand=2, vocab_size=V, num_hidden_layers=2, layer_norm_epsilon=1e-6, chunk_size=8,
        tie_word_embeddings=False,
    )  # fmt: skip
    oracle: Any = Mamba2ForCausalLM(config)
    put(oracle.backbone.embeddings.weight, network.table)
    put(oracle.backbone.norm_f.weight, network.final[0])
    put(oracle.lm_head.weight, network.head.exact)
    for layer, ours in zip(oracle.backbone.layers, network.layers, strict=True):
        mixer = layer.mixer
        mixer.norm.variance_epsilon = 1e-6
        put(layer.norm.weight, ours.norms[0][0])
        put(mixer.in_proj.weight, ours.mixer.into.exact)
        put(mixer.out_proj.weight, ours.mixer.out.exact)
        put(mixer.conv1d.weight, ours.mixer.taps[:, None])
        put(mixer.conv1d.bias, ours.mixer.conv_bias)
        for name, own in zip(("A_log", "dt_bias", "D"), ours.mixer.rates, strict=True):
            put(getattr(mixer, name), own)
        put(mixer.norm.weight, ours.mixer.norm)

    check(oracle, network, tokens)


def test_gated_delta_rule_and_gates_are_those_of_qwen3_next() -> None:
    """The delta rule token by token gives the chunked form; attention outputs are gated."""
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM

    delta = DeltaNet(key_heads=2, value_heads=4, key=16, value=16)
    attention = Attention(N, K, H, qk_norm="head", gate="width")
    groups = (Group(1, delta, MLP(F), norms=2), Group(1, attention, MLP(F), norms=2))
    network, tokens = made(Model("small", D, V, groups))
    config = config_of(Qwen3NextConfig,
        **SHAPE, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
        linear_value_head_dim=16, linear_conv_kernel_dim=4, mlp_only_layers=[0, 1],
        layer_types=["linear_attention", "full_attention"],
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                         "partial_rotary_factor": 1.0},
    )  # fmt: skip
    oracle: Any = Qwen3NextForCausalLM(config)
    put(oracle.model.embed_tokens.weight, network.table)
    put(oracle.lm_head.weight, network.head.exact)
    # Its norms multiply by 1 + weight.
    put(oracle.model.norm.weight, network.final[0] - 1)
    for layer, ours in zip(oracle.model.layers, network.layers, strict=True):
        put(layer.input_layernorm.weight, ours.norms[0][0] - 1)
        put(layer.post_attention_layernorm.weight, ours.norms[1][0] - 1)
        fill_mlp(layer.mlp, ours.ffn)
    linear, ours = oracle.model.layers[0].linear_attn, network.layers[0].mixer
    q, k, v, b, a, z = ours.into.exact.split([32, 32, 64, 4, 4, 64])
    # The oracle interleaves what belongs to a key head.
    rows = [torch.cat([t.chunk(2)[i] for t in (q, k, v, z)]) for i in range(2)]
    put(linear.in_proj_qkvz.weight, torch.cat(rows))
    rows = [torch.cat([t.chunk(2)[i] for t in (b, a)]) for i in range(2)]
    put(linear.in_proj_ba.weight, torch.cat(rows))
    put(linear.conv1d.weight, ours.taps[:, None])
    put(linear.A_log, ours.rates[0])
    put(linear.dt_bias, ours.rates[1])
    put(linear.norm.weight, ours.norm)
    put(linear.out_proj.weight, ours.out.exact)
    full, ours = oracle.model.layers[1].self_attn, network.layers[1].mixer
    q, k, v, gate = ours.qkv.exact.split([N * H, K * H, K * H, N * H])
    both = torch.stack((q.view(N, H, D), gate.view(N, H, D)), 1).reshape(2 * N * H, D)
    for name, weight in (("q_proj", both), ("k_proj", k), ("v_proj", v)):
        put(getattr(full, name).weight, weight)
    put(full.o_proj.weight, ours.out.exact)
    put(full.q_norm.weight, ours.norms[0] - 1)
    put(full.k_norm.weight, ours.norms[1] - 1)

    check(oracle, network, tokens)


FORMATS = [
    ("fp32", "fp32"), ("bf16", "bf16"), ("bf16", "fp8"), ("int8-weights", "bf16"),
    ("int4-g32", "bf16"), ("experts=int4-g32,rest=bf16", "bf16"),
]  # fmt: skip
MODELS = [
    "llama-3-8b", "gemma-3-1b", "deepseek-v3", "mixtral-8x7b", "mamba2-2.7b",
    "qwen3-next-80b-a3b", "gpt2", "llama-4-scout", "command-r-35b",
]  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_every_format_agrees_and_takes_the_bytes_of_the_ledger(name: str) -> None:
    """Cached steps agree with a cacheless fp32 forward; torch holds what is counted."""
    model = find_model(name)
    tiny = small(model)
    ran, lacks = 0, list[str]()
    for weights, cache in FORMATS:
        try:
            precision = precision_of(weights, cache, model=model)
            found = agreement(model, precision, CPU)
        except RooflmError as e:
            lacks.append(e.what)
            continue
        network = build(tiny, Maker(precision, CPU, most_positions=64))
        caches = network.caches(2, 13)
        kept = cache_bytes(tiny, 13, precision) + sequence_state_bytes(tiny, precision)

        assert found["agrees"], (weights, cache, found)
        assert network.weights_bytes == weights_bytes(tiny, precision)
        assert held_caches(caches) == 2 * kept
        ran += 1
    assert ran >= 3
    # A model without experts; latent attention in fewer bits.
    known = ("has no part 'experts'", "no kernel for the heads of latent attention")
    assert all(any(word in what for word in known) for what in lacks)


def test_disagreement_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache whose entries are a position off is no agreement."""
    plain = KV.read

    def off(self: KV, n: int) -> Any:
        return plain(self, max(0, n - 1))

    monkeypatch.setattr(KV, "read", off)

    assert not agreement(find_model("llama-3-8b"), FP32, CPU)["agrees"]


def test_formats_are_off_by_their_bits() -> None:
    """The output error of int4 is larger than that of int8, and bf16 has none of its own."""
    model = find_model("llama-3-8b")
    errors = {
        name: format_errors(model, precision_of(name, "bf16"), CPU)["error_against_bf16"]
        for name in ("bf16", "int8-weights", "int4-g32")
    }

    assert errors["bf16"] == 0
    assert 0 < errors["int8-weights"] < errors["int4-g32"] / 3


@pytest.mark.parametrize("kind", ["int8-weights", "int4-g32"])
def test_a_quantized_matrix_stands_for_its_own_codes(kind: str) -> None:
    """What is multiplied is the matrix that the codes stand for; each number is half a step off."""
    weight = torch.randn(64, 96).to(torch.bfloat16)
    linear = make_linear(weight, kind, keep=True)
    x = torch.randn(3, 96).to(torch.bfloat16)

    assert relative_error(linear(x).float(), x.float() @ linear.exact.T) < 0.01
    step = weight.float().abs().amax() / (127 if kind == "int8-weights" else 7.5)
    assert float((linear.exact - weight.float()).abs().amax()) < 0.75 * float(step)


@pytest.mark.parametrize(
    ("name", "weights", "what"),
    [
        ("gpt-oss-20b", "bf16", "attention sinks"),
        ("rwkv-7-2.9b", "bf16", "layers with 3 norms"),
        ("zamba2-2.7b", "bf16", "share their weights"),
        ("deepseek-v3", "int8-weights", "no kernel for the heads of latent attention"),
        ("llama-3-8b", "nvfp4", "not run in nvfp4"),
    ],
)
def test_what_is_not_run_is_refused(name: str, weights: str, what: str) -> None:
    """Layers and formats without a torch step are refused with a sentence."""
    model = find_model(name)
    with pytest.raises(RooflmError, match=what):
        build(small(model), Maker(precision_of(weights, model=model), CPU))


def test_touched_experts_are_counted() -> None:
    """One token touches k experts; many touch no more than there are."""
    model = one(Attention(N, K, H), Experts(F, E=8, k=2), layers=3)
    network, _ = made(model)
    for batch, low, high in ((1, 2, 2), (32, 3, 8)):
        caches = network.caches(batch, 1)
        network.run(torch.randint(0, V, (batch, 1)), 0, caches)
        touched = network.touched()
        assert touched is not None
        assert low <= touched <= high
    assert network.touched() is None


def test_experts_in_groups_are_those_one_by_one() -> None:
    """One kernel over rows sorted by expert gives what a cacheless forward of each gives."""
    model = one(Attention(N, K, H), Experts(F, E=8, k=2, shared=32, shared_gate=True))
    bf16 = precision_of("bf16")
    network = build(model, Maker(bf16, CPU, 3, keep=True, groups=True, most_positions=32))
    _, tokens = made(model)

    got = cached_logits(network, tokens)

    assert relative_error(got, reference.logits(network, tokens)[:, 5:]) < 0.03
    assert network.weights_bytes == weights_bytes(model, bf16)
    assert network.kernels["experts"].startswith("in groups")
    touched = network.touched()
    assert touched is not None
    assert 2 <= touched <= 8


def test_a_cut_model_keeps_its_kinds() -> None:
    """A third of the layers of a hybrid has some of each kind."""
    whole = find_model("qwen3-next-80b-a3b")
    short = cut(whole, 16)

    assert [g.count for g in short.groups] == [12, 4]
    assert [replace(g, count=0) for g in short.groups] == [
        replace(g, count=0) for g in whole.groups
    ]
