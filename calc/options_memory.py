"""Options of an engine's memory: how it is started, and what only a run can tell."""

# Annotations are evaluated once, where they stand: as text each start would compile 150 of them.

from typing import Annotated, Any

import typer

MEMORY: dict[str, Any] = {
    "engine": Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Engine whose memory is told too: vllm, sglang, tensorrt-llm, llama.cpp, ollama.",
        ),
    ],
    "engine_version": Annotated[
        str | None, typer.Option(metavar="VERSION", help="Its version: 0.12.  [default: newest]")
    ],
    "utilization": Annotated[
        str | None,
        typer.Option(
            metavar="SHARE",
            help="Share that it takes: gpu_memory_utilization, mem_fraction_static or "
            "free_gpu_memory_fraction.  [default: the engine's]",
        ),
    ],
    "max_len": Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="Longest request, or -c.  [default: --context, or the engine's]",
        ),
    ],
    "max_batched_tokens": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Tokens of a pass.  [default: the engine's]"),
    ],
    "max_sequences": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Sequences, or slots.  [default: the engine's]"),
    ],
    "block": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Tokens of a block.  [default: the engine's]"),
    ],
    "state_blocks": Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="vLLM: blocks of a request in a group of state layers: 1, one more with cached "
            "prefixes and for each drafted token.  [default: 1]",
        ),
    ],
    "window_ratio": Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="SGLang: tokens of window layers for one of the rest."),
    ],
    "state_ratio": Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="SGLang: memory of states for that of caches."),
    ],
    "peak_activation": Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="As profiled, or compute buffers.  [default: estimated]"),
    ],
    "non_torch": Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Context, NCCL, workspaces.  [default: range of logs]"),
    ],
    "graphs": Annotated[
        str | None, typer.Option(metavar="SIZE", help="CUDA graphs.  [default: range of logs]")
    ],
    "free": Annotated[
        str | None,
        typer.Option(
            metavar="SIZE",
            help="Free memory: before weights are loaded (SGLang), or after (TensorRT-LLM).",
        ),
    ],
}  # fmt: skip
"""Options of the memory of an engine."""
