"""Started by torchrun: ranks of a small model together, against the whole model on one."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import torch
from little import lessen

from rooflm.calc.attention import Attention
from rooflm.calc.experts import Experts
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model
from rooflm.calc.precision import precision_of
from rooflm.validate import ranks, reference
from rooflm.validate.__main__ import main as command
from rooflm.validate.agreement import cached_logits, relative_error
from rooflm.validate.making import Maker
from rooflm.validate.network import build


def whole_of(parts: list[Any], model: Model, maker: Maker) -> Any:
    """Put the weights of all ranks together in one network."""
    whole = build(model, maker)
    whole.table = torch.cat([p.table for p in parts])
    whole.head = joined([p.head for p in parts], 0)
    whole.final = parts[0].final
    for i, layer in enumerate(whole.layers):
        own = [p.layers[i] for p in parts]
        layer.norms = own[0].norms
        m = own[0].mixer.of
        widths = [m.N * m.H, m.K * m.H, m.K * m.H]
        made = [p.mixer.qkv.exact.split(widths) for p in own]
        qkv = torch.cat([torch.cat(column) for column in zip(*made, strict=True)])
        layer.mixer.qkv = replace(layer.mixer.qkv, exact=qkv)
        layer.mixer.out = joined([p.mixer.out for p in own], 1)
        if hasattr(layer.ffn, "experts"):
            layer.ffn.router = own[0].ffn.router
            for e, expert in enumerate(layer.ffn.experts):
                join_mlp(expert, [p.ffn.experts[e] for p in own])
        else:
            join_mlp(layer.ffn, [p.ffn for p in own])
    return whole


def joined(linears: list[Any], axis: int) -> Any:
    """Put matrices side by side."""
    return replace(linears[0], exact=torch.cat([x.exact for x in linears], axis))


def join_mlp(mlp: Any, parts: list[Any]) -> None:
    """Put the columns of gates together, then those of the products."""
    halves = [p.up.exact.chunk(2) for p in parts]
    up = torch.cat([torch.cat(half) for half in zip(*halves, strict=True)])
    mlp.up = replace(mlp.up, exact=up)
    mlp.down = joined([p.down for p in parts], 1)


def main() -> int:
    """Compare steps of two ranks with a cacheless forward of the whole."""
    lessen()
    group = ranks.start(2, "cpu")
    worst = 0.0
    for ffn in (MLP(96), Experts(64, E=4, k=2)):
        model = Model("small", 64, 128, (Group(2, Attention(8, 2, 16), ffn, norms=2),))
        share, fp32 = group.share(model), precision_of("fp32")
        makers = [
            Maker(fp32, torch.device("cpu"), 0, r, keep=True, most_positions=32) for r in range(2)
        ]
        makers[group.rank].reduce = group.reduce
        mine = build(share, makers[group.rank], group.gather)
        tokens = torch.randint(128, (2, 14), generator=torch.Generator().manual_seed(1))
        got = cached_logits(mine, tokens)
        # The weights of every rank can be made anywhere: they come from a seed.
        parts = [build(share, Maker(fp32, torch.device("cpu"), 0, r, keep=True)) for r in range(2)]
        whole = whole_of(parts, model, Maker(fp32, torch.device("cpu"), keep=True))
        want = reference.logits(whole, tokens)[:, 5:]
        worst = max(worst, relative_error(got, want))
    times = group.all_reduce_times(torch.device("cpu"))
    sys.stdout.write(f"rank {group.rank}: {worst:.2e} {len(times)} messages\n")
    # The command itself, with what was typed: it leaves the ranks.
    return command(sys.argv[1:]) if worst < 2e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
