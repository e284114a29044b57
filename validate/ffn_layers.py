"""Feed-forwards in torch: one for all rows, or experts, of which only the chosen are read.

Sources of what is computed: transformers, models/llama and mixtral.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..calc.experts import Experts
from ..calc.mlp import MLP
from . import elementwise
from .linears import Linear, make_linear
from .making import Maker, Meter, refused
from .untyped import Tensor, torch


@dataclass
class MLPLayer:
    """A gated or plain feed-forward layer."""

    of: MLP
    up: Linear
    down: Linear
    part: str = "mlp"

    @classmethod
    def make(cls, ffn: MLP, D: int, maker: Maker, part: str = "mlp", held: str = "mlp") -> MLPLayer:
        """Make the weights of one layer; held: the part whose format it is in."""
        up = maker.matrix((2 if ffn.gated else 1) * ffn.F, D, held, ffn.bias)
        return cls(ffn, up, maker.matrix(D, ffn.F, held, ffn.bias), part)

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from (*self.up.held, *self.down.held)

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        return {self.part: self.up.kernel}

    def compute(self, x: Tensor) -> Tensor:
        """Compute rows, [..., D]."""
        act = elementwise.silu_gate if self.of.gated else elementwise.gelu
        return self.down(act(self.up(x)))

    def __call__(self, x: Tensor, meter: Meter) -> Tensor:
        """Compute rows, [B, T, D]."""
        return meter(self.part, self.compute, x)


@dataclass
class ExpertsLayer:
    """Routed experts: only those that a token chose are read."""

    of: Experts
    router: Linear
    experts: Sequence[MLPLayer]
    shared: MLPLayer | None
    shared_gate: Tensor | None
    stacked: tuple[Tensor, Tensor] | None = None
    """Matrices of all experts, [E, columns, rows], where one kernel multiplies them in groups."""
    touched: list[Tensor] = field(default_factory=list[Tensor])
    """Distinct experts of each pass since this was emptied."""
    routes: list[Tensor] | None = None
    """Experts of each row of each pass, [B, T, k], kept to check results."""
    part = "experts"

    @classmethod
    def make(cls, ffn: Experts, D: int, maker: Maker) -> ExpertsLayer:
        """Make the weights of one layer; raise `RooflmError` for what is not run."""
        if ffn.zero or ffn.latent is not None:
            raise refused("empty experts, and experts of a width of their own,")
        one = ffn.expert()
        shared = None
        if ffn.shared:
            wide = MLP(ffn.shared, ffn.gated, ffn.bias)
            shared = MLPLayer.make(wide, D, maker, "shared experts", "shared_experts")
        stacked = None
        if maker.precision.format_of("experts").covers == "all" and maker.groups and not ffn.bias:
            columns = (2 if ffn.gated else 1) * ffn.F
            up = maker.normal(ffn.E, columns, D, scale=D**-0.5)
            down = maker.normal(ffn.E, D, ffn.F, scale=ffn.F**-0.5)
            stacked = (up, down)
            kind = maker.precision.format_of("experts").name
            ups, downs = (
                [make_linear(own, kind, keep=maker.keep, pack=False) for own in every]
                for every in stacked
            )
            experts = [MLPLayer(one, *pair, "experts") for pair in zip(ups, downs, strict=True)]
        else:
            experts = [MLPLayer.make(one, D, maker, "experts", "experts") for _ in range(ffn.E)]
        return cls(
            ffn,
            maker.matrix(ffn.choices, D, "router", ffn.router_bias, shared=True),
            experts,
            shared,
            maker.normal(D, scale=D**-0.5, shared=True) if ffn.shared and ffn.shared_gate else None,
            stacked,
            routes=[] if maker.keep else None,
        )

    @property
    def held(self) -> Iterator[Tensor]:
        """What is stored."""
        yield from self.router.held
        for expert in self.experts:
            yield from expert.held
        if self.shared is not None:
            yield from self.shared.held
        if self.shared_gate is not None:
            yield self.shared_gate

    @property
    def kernels(self) -> dict[str, str]:
        """Kernels by part."""
        how = "one by one" if self.stacked is None else "in groups"
        return {"experts": f"{how}, {self.experts[0].up.kernel}"}

    def __call__(self, x: Tensor, meter: Meter) -> Tensor:
        """Compute rows, [B, T, D]."""
        flat = x.reshape(-1, x.shape[-1])
        ids, shares = meter("router", self.route, flat)
        if self.routes is not None:
            self.routes.append(ids.reshape(*x.shape[:-1], -1))
        run = self.run_chosen if self.stacked is None else self.run_grouped
        out = meter("experts", run, flat, ids, shares)
        if self.shared is not None:
            own = meter("shared experts", self.shared.compute, flat)
            if self.shared_gate is not None:
                own = own * torch.sigmoid(flat @ self.shared_gate)[:, None]
            out = out + own
        return out.reshape(x.shape)

    def route(self, flat: Tensor) -> tuple[Tensor, Tensor]:
        """Choose k experts of each row, and their shares, which add up to 1."""
        best, ids = torch.topk(self.router(flat).float(), self.of.k, dim=-1)
        return ids, torch.softmax(best, dim=-1)

    def run_chosen(self, flat: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        """Run every expert that was chosen over the rows that chose it."""
        out = torch.zeros_like(flat, dtype=torch.float32)
        chosen = torch.unique(ids)
        self.touched.append(chosen.numel())
        numbers: list[int] = chosen.tolist()
        for e in numbers:
            rows, place = (ids == e).nonzero(as_tuple=True)
            made = self.experts[e].compute(flat[rows])
            out.index_add_(0, rows, made.float() * shares[rows, place, None])
        return out.to(flat.dtype)

    def run_grouped(self, flat: Tensor, ids: Tensor, shares: Tensor) -> Tensor:
        """Run all experts in one kernel, rows sorted by expert: those without rows are not read."""
        assert self.stacked is not None
        k, every = self.of.k, torch.arange(self.of.E, device=flat.device)
        experts = ids.flatten()
        order = torch.argsort(experts)
        counts = (experts[:, None] == every).sum(0)
        self.touched.append((counts > 0).sum())
        ends = counts.cumsum(0).to(torch.int32)
        up, down = (weight.transpose(-1, -2) for weight in self.stacked)
        act = elementwise.silu_gate if self.of.gated else elementwise.gelu
        hidden = act(torch._grouped_mm(flat[order // k], up, offs=ends))
        made = torch._grouped_mm(hidden, down, offs=ends)
        out = torch.empty_like(made, dtype=torch.float32)
        out[order] = made.float()
        return (out.view(*ids.shape, -1) * shares[..., None]).sum(1).to(flat.dtype)


def groups_matmuls(device: Any, kind: str) -> bool:
    """Tell whether torch multiplies matrices in groups on a device, by one kernel."""
    if device.type != "cuda" or kind != "bf16" or torch.cuda.get_device_capability(device) < (9, 0):
        return False
    try:
        x, w = torch.ones(16, 16, device=device), torch.ones(2, 16, 16, device=device)
        ends = torch.tensor([8, 16], device=device, dtype=torch.int32)
        torch._grouped_mm(x.bfloat16(), w.bfloat16(), offs=ends)
    except (AttributeError, RuntimeError):
        return False
    return True
