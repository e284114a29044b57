"""What hypothesis draws: models of every shape that the presets can say, and machines."""

from __future__ import annotations

from hypothesis import strategies as st

from rooflm.calc.attention import Attention
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model
from rooflm.calc.timing import Rates


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Draw a dense model: any head sharing, norms, biases, tying, positions, narrow embedding."""
    K = draw(st.integers(1, 16))
    mixer = Attention(
        N=K * draw(st.integers(1, 8)),
        K=K,
        H=draw(st.sampled_from([16, 64, 80, 128, 256])),
        qkv_bias=draw(st.booleans()),
        out_bias=draw(st.booleans()),
        qk_norm=draw(st.sampled_from(["none", "head", "width"])),
    )
    ffn = MLP(draw(st.integers(64, 60_000)), draw(st.booleans()), draw(st.booleans()))
    return Model(
        name="drawn",
        D=draw(st.integers(64, 20_000)),
        V=draw(st.integers(100, 300_000)),
        groups=(Group(draw(st.integers(1, 130)), mixer, ffn, draw(st.integers(0, 4))),),
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
