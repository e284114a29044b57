"""Several devices: processes that `torchrun` starts, each a rank of tensor parallelism."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..calc.attention import Attention
from ..calc.errors import RooflmError
from ..calc.experts import Experts
from ..calc.mlp import MLP
from ..calc.model import Group, Model

SIZES = (2**10, 2**14, 2**18, 2**22, 2**25)
"""Messages whose all-reduce is timed [B]."""


@dataclass(frozen=True)
class Ranks:
    """The ranks of a run, and which one this process is."""

    count: int = 1
    rank: int = 0
    backend: str = ""
    reduce: Callable[[Any], Any] | None = None
    """Adds up a tensor over the ranks."""
    gather: Callable[[Any], Any] | None = None
    """Puts the last axes of all ranks together."""

    def share(self, model: Model) -> Model:
        """What a rank holds of a model; the model itself where there is one rank."""
        if self.count == 1:
            return model
        from ..calc.layout import Layout, shard

        for group in model.groups:
            refuse_split(group, self.count)
        return shard(model, Layout(tp=self.count))[0].model

    def most(self, value: float) -> float:
        """Largest value of all ranks, so that they decide alike."""
        if self.count == 1:
            return value
        import torch
        from torch import distributed

        device = "cuda" if self.backend == "nccl" else "cpu"
        held = torch.tensor([value], dtype=torch.float64, device=device)
        distributed.all_reduce(held, op=distributed.ReduceOp.MAX)
        return float(held.item())

    def all_reduce_times(self, device: Any) -> list[dict[str, float]]:
        """Time all-reduces of several sizes [s]."""
        import torch

        from .device import timed

        found: list[dict[str, float]] = []
        for size in SIZES:
            # Zeros stay zeros, however often they are added up.
            message = torch.zeros(size // 4, dtype=torch.float32, device=device)

            def run(message: Any = message) -> None:
                torch.distributed.all_reduce(message)

            timing = timed(run, device, 7)
            found.append(
                {
                    "bytes": size,
                    "seconds": timing.median_s,
                    "low_s": timing.low_s,
                    "high_s": timing.high_s,
                }
            )
        return found


def refuse_split(group: Group, tp: int) -> None:
    """Raise `RooflmError` for layers that are not run split: they would compute something else."""
    mixer, ffn = group.mixer, group.ffn
    if type(mixer) is not Attention or mixer.K % tp or mixer.qk_norm == "width" or mixer.out_bias:
        what = f"{mixer.kind} layers"
        fix = "Take --tp that divides its key/value heads." if hasattr(mixer, "K") else ""
        raise RooflmError(f"{what} of this model are not run split {tp} ways", "--tp", fix)
    if not isinstance(ffn, MLP | Experts) or ffn.bias:
        raise RooflmError("feed-forwards with biases are not run split", "--tp")


def alone() -> Ranks:
    """One device."""
    return Ranks()


def start(tp: int, device: str) -> Ranks:
    """Join the ranks that `torchrun` started; raises `RooflmError` where their number is another.

    tp: ranks that are wanted; device: cpu (gloo) or cuda (NCCL).
    """
    said = os.environ.get("WORLD_SIZE", "1")
    world = int(said) if said.isdigit() else 0
    if world != tp:
        script = "-m rooflm.validate"
        fix = f"Start it with: torchrun --nproc-per-node {tp} {script} ... --tp {tp}."
        raise RooflmError(f"{world} processes run, and --tp says {tp}", "--tp", fix)
    if tp == 1:
        return alone()
    import torch
    from torch import distributed

    rank = int(os.environ["RANK"])
    backend = "nccl" if device == "cuda" else "gloo"
    if device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", rank)))
    if not distributed.is_initialized():
        distributed.init_process_group(backend)

    def reduce(x: Any) -> Any:
        distributed.all_reduce(x)
        return x

    def gather(x: Any) -> Any:
        parts = [torch.empty_like(x) for _ in range(tp)]
        distributed.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=-1)

    return Ranks(tp, rank, backend, reduce, gather)


def stop(ranks: Ranks) -> None:
    """Leave the other ranks."""
    if ranks.count > 1:
        from torch import distributed

        distributed.destroy_process_group()
