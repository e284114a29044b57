"""What hypothesis draws: models of every shape that the presets can say, and machines."""

from __future__ import annotations

from hypothesis import strategies as st

from rooflm.calc.attention import Attention, NoMixer
from rooflm.calc.experts import Experts, NoFeedForward
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model
from rooflm.calc.timing import Rates


@st.composite
def attentions(draw: st.DrawFn) -> Attention:
    """Draw softmax attention: any head sharing, windows, sinks, gates, norms, biases."""
    K = draw(st.integers(1, 16))
    return Attention(
        N=K * draw(st.integers(1, 8)),
        K=K,
        H=draw(st.sampled_from([16, 64, 80, 128, 256])),
        H_v=draw(st.sampled_from([None, 64])),
        window=draw(st.sampled_from([None, 1, 128, 4096])),
        sink_tokens=draw(st.sampled_from([0, 4])),
        shares=draw(st.booleans()),
        value_is_key=draw(st.booleans()),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(["none", "head", "width", "shared-head"])),
        gate=draw(st.sampled_from(["none", "width", "head"])),
        extra=draw(st.sampled_from([0, 40])),
    )


latents = st.builds(
    MLA,
    N=st.integers(1, 128),
    c=st.sampled_from([256, 512]),
    r=st.sampled_from([32, 64]),
    d=st.sampled_from([64, 128]),
    v=st.sampled_from([64, 128]),
    q=st.sampled_from([None, 768, 1536]),
    latent_norms=st.booleans(),
    q_bias=st.booleans(),
    out_bias=st.booleans(),
)

dense = st.builds(MLP, F=st.integers(64, 60_000), gated=st.booleans(), bias=st.booleans())

experts = st.builds(
    Experts,
    F=st.integers(64, 8_000),
    E=st.sampled_from([8, 60, 256]),
    k=st.sampled_from([1, 2, 8]),
    gated=st.booleans(),
    bias=st.booleans(),
    zero=st.sampled_from([0, 128]),
    shared=st.sampled_from([0, 2048]),
    shared_gate=st.booleans(),
    latent=st.sampled_from([None, 1024]),
    router_bias=st.booleans(),
)

mixers = st.one_of(attentions(), latents, st.just(NoMixer()))
feed_forwards = st.one_of(dense, experts, st.just(NoFeedForward()))


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Draw a model of one to three kinds of layers, with any head, positions and norms."""
    groups = tuple(
        Group(draw(st.integers(1, 130)), draw(mixers), draw(feed_forwards), draw(st.integers(0, 4)))
        for _ in range(draw(st.integers(1, 3)))
    )
    return Model(
        name="drawn",
        D=draw(st.integers(64, 20_000)),
        V=draw(st.integers(100, 300_000)),
        groups=groups,
        norm=draw(st.sampled_from(["rms", "layer", "layer-no-bias", "none"])),
        final_norm=draw(st.booleans()),
        tied=draw(st.booleans()),
        positions=draw(st.sampled_from([0, 1024, 2050])),
        embedding_width=draw(st.sampled_from([None, 512])),
        head_bias=draw(st.booleans()),
    )


rates = st.builds(
    Rates,
    flops_per_s=st.floats(1e11, 1e16, allow_nan=False),
    bytes_per_s=st.floats(1e10, 1e14, allow_nan=False),
)

batches = st.integers(1, 10**6)
contexts = st.integers(1, 10**6)
