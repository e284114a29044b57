"""What hypothesis draws: models of every shape that the presets can say, machines, and mistakes."""

from __future__ import annotations

import copy
import functools
import pickle
import random
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias

from hypothesis import strategies as st

from rooflm.calc.attention import Attention, NoMixer
from rooflm.calc.compressed import Compressed
from rooflm.calc.experts import Experts, NoFeedForward
from rooflm.calc.linear_attention import DeltaNet, LinearAttention
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.mlstm import MLSTM
from rooflm.calc.model import Group, Model
from rooflm.calc.plain import is_list, is_map
from rooflm.calc.residual import Residual
from rooflm.calc.rglru import RGLRU
from rooflm.calc.rwkv import RWKV4, RWKV7, ChannelMix
from rooflm.calc.short_conv import ShortConv
from rooflm.calc.side_by_side import SideBySide
from rooflm.calc.sparse import SparseAttention, SparseMLA
from rooflm.calc.ssm import Mamba, Mamba2
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

widths, heads, taps = st.sampled_from([64, 512, 5120]), st.integers(1, 64), st.integers(1, 4)
states = st.one_of(
    st.builds(Mamba, d=widths, s=st.sampled_from([16, 64]), r=heads, taps=taps, bias=st.booleans(),
              norms=st.booleans()),
    st.builds(Mamba2, heads=heads, width=st.just(64), s=st.sampled_from([64, 128]),
              groups=st.integers(1, 8), taps=taps, bias=st.booleans(), norm=st.booleans()),
    st.builds(LinearAttention, heads=heads, key=st.just(64), value=st.just(128),
              gate=st.booleans(), norm=st.booleans(), decays=st.booleans(),
              normaliser=st.booleans()),
    st.builds(DeltaNet, key_heads=heads, value_heads=heads, key=st.just(128), value=st.just(64),
              taps=taps, decay=st.sampled_from(["head", "channel"]),
              rank=st.sampled_from([None, 32])),
    st.builds(RGLRU, width=st.sampled_from([512, 2560]), blocks=st.sampled_from([1, 8])),
    st.builds(MLSTM, heads=heads, key=st.just(64), value=st.just(128)),
)  # fmt: skip
"""Mixers with a state whose size is not that of the model."""

compressed = st.builds(
    Compressed,
    N=heads,
    H=st.sampled_from([64, 512]),
    q=widths,
    window=st.sampled_from([1, 128]),
    groups=st.integers(1, 8),
    rank=st.just(64),
    m=st.sampled_from([0, 4, 128]),
).flatmap(
    lambda raw: st.sampled_from(
        [raw]
        if raw.m == 0
        else [raw, Compressed(raw.N, raw.H, raw.q, raw.window, raw.groups, raw.rank, raw.m,
                              index_heads=4, index_width=32, top=64)]
    )
)  # fmt: skip


@st.composite
def sparse(draw: st.DrawFn) -> SparseMLA | SparseAttention:
    """Draw attention that reads what an indexer chooses."""
    K = draw(st.integers(1, 8))
    if draw(st.booleans()):
        return SparseAttention(
            N=2 * K, K=K, H=64, index_heads=K, index_width=32,
            top=draw(st.integers(1, 20)), block=draw(st.sampled_from([1, 16, 128])),
        )  # fmt: skip
    return SparseMLA(
        N=K, c=256, r=32, d=64, v=64, q=draw(st.sampled_from([None, 768])), index_heads=4,
        index_width=64, top=draw(st.sampled_from([1, 64, 2048])), reads_choice=draw(st.booleans()),
    )  # fmt: skip


side_by_side = st.builds(
    SideBySide, first=st.builds(Attention, N=st.just(8), K=st.just(2), H=st.just(64)), second=states
)
mixers = st.one_of(
    attentions(), latents, st.just(NoMixer()), states, compressed, sparse(), side_by_side
)
feed_forwards = st.one_of(
    dense,
    experts,
    st.just(NoFeedForward()),
    st.builds(ChannelMix, F=st.integers(64, 20_000), receptance=st.booleans()),
)
residuals = st.one_of(
    st.none(),
    st.builds(Residual, streams=st.sampled_from([0, 4])),
    st.builds(
        Residual, altup=st.just(4), laurel=st.just(64), width=st.just(256), rows=st.just(900)
    ),
)


@st.composite
def groups(draw: st.DrawFn, D: int) -> Group:
    """Draw a kind of layers, some with weights that they share."""
    as_wide = st.sampled_from(
        [ShortConv(D), RWKV4(D, 512), RWKV7(D, width=64), RWKV7(D, width=64, v=0)]
    )
    count = draw(st.integers(1, 130))
    copies = draw(st.sampled_from([None, None, None, min(2, count)]))
    return Group(
        count,
        draw(st.one_of(mixers, as_wide)),
        draw(feed_forwards),
        draw(st.integers(0, 4)),
        copies=copies,
        own=0 if copies is None else draw(st.sampled_from([0, 1000])),
    )


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Draw a model of one to three kinds of layers, with any head, positions and norms."""
    D = draw(st.integers(64, 20_000))
    return Model(
        name="drawn",
        D=D,
        V=draw(st.integers(100, 300_000)),
        groups=tuple(draw(groups(D)) for _ in range(draw(st.integers(1, 3)))),
        residual=draw(residuals),
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

HOSTILE = (
    "", " ", "x", "0", "-1", "+1", "-0", "0.0", "0.5", "2.5", "3", "8", "nan", "inf", "-inf",
    "1e400",
    "1e308", "1e-400", "1e12", "1e9", "1e12s", "1e-12s", "1e12GB", "1:1e9", "1:1e6", "1:0", "::",
    ":", "x0", "1:9:x0", "1:1000000:1", "1e9,1e9", "1,", ",", "=", "K=8", "K=1e400", "@", "%",
    "100%",
    "1/0", "0x10", "1_000", "true", "null", "[", "{}", "~", "~nosuch/x", "*", "-", "--",
    "\u0663\u0664", "\u00b2", "\U0001d7d8", "\ud800", "\0", "\x1b[31m", "a\nb", "\ufeff1",
    "9" * 5000, "1" * 400 + "." + "1" * 400,
    "folder", "folder/", "file.txt", "./nothing/here.yaml", "file.txt/x.json",
    "/proc/nothing/x.svg",
    "/dev/null", "/dev/zero",
)  # fmt: skip
"""Words that no option and no field of a text expects: of the wrong kind, empty, huge, negative,
digits of other scripts, halves of characters, ranges without end, and paths that lead nowhere."""
LONG = ("a" * 100_000, "9" * 100_000 + "x", " " * 100_000 + "x", "1," * 50_000 + "x")
"""Words on which a pattern that can match in two ways takes minutes."""

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 0.5, 1e308, float("inf"), float("nan"), 2**63, 10**400, "", "x",
    "8", "\ud800", [], {}, [1], [[]], {"x": {}}, [None] * 300, "0" * 5000,
)  # fmt: skip
"""Values that JSON can hold, and that few keys expect."""


Maker: TypeAlias = Callable[[random.Random], Any]
"""Makes an input of a seeded generator; a draw of hypothesis takes longer than what is tested."""
BATCH = 20
"""Inputs that are made of one draw."""


def several(*makers: Maker) -> st.SearchStrategy[list[Any]]:
    """Draw a batch of inputs; of tuples where there is more than one maker."""

    def make(seed: int) -> list[Any]:
        chance = random.Random(seed)
        drawn = [tuple(maker(chance) for maker in makers) for _ in range(BATCH)]
        return drawn if len(makers) > 1 else [one for (one,) in drawn]

    return st.integers(0, 2**40).map(make)


def among(*values: Any) -> Maker:
    """Make one of some values."""
    return lambda chance: chance.choice(values)


def either(*makers: Maker) -> Maker:
    """Make what one of some makers makes."""
    return lambda chance: chance.choice(makers)(chance)


@functools.lru_cache(maxsize=1000)
def _parts(text: str) -> tuple[str, ...]:
    return tuple(part for part in re.split(r"(\W)", text) if part)


def damaged(texts: Sequence[str], pieces: Sequence[str] = HOSTILE) -> Maker:
    """Make a text that is right but for a few words: exchanged, added, left out or said twice."""

    def make(chance: random.Random) -> str:
        parts = list(_parts(chance.choice(texts)))
        for _ in range(chance.randint(1, 3)):
            at, how = chance.randrange(len(parts) + 1), chance.random()
            if how < 0.6:
                parts[at : at + 1] = [chance.choice(pieces)]
            elif how < 0.8:
                parts.insert(at, chance.choice(pieces))
            elif how < 0.9:
                del parts[at : at + chance.randint(1, 40)]
            else:
                parts[at:at] = parts[at : at + chance.randint(1, 40)]
        return "".join(parts)

    return make


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if is_map(value) or is_list(value):
        inside: Any = value.items() if is_map(value) else enumerate(value)
        for key, inner in inside:
            yield (*path, key)
            yield from _paths(inner, (*path, key))


def altered(sources: Sequence[Any], values: Sequence[Any] = VALUES) -> Maker:
    """Make plain data that are right but for one to three values, exchanged or left out."""
    written = [pickle.dumps(source) for source in sources]

    def make(chance: random.Random) -> Any:
        data: Any = pickle.loads(chance.choice(written))
        for _ in range(chance.randint(1, 3)):
            paths = list(_paths(data))
            if not paths:
                break
            *way, last = chance.choice(paths)
            holder: Any = functools.reduce(lambda inner, key: inner[key], way, data)
            if chance.random() < 0.1:
                del holder[last]
            else:
                holder[last] = copy.deepcopy(chance.choice(values))
        return data

    return make
