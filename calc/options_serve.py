"""Options of live traffic: what comes, the engine, and what is promised."""

# Annotations are evaluated once, where they stand: as text each start would compile 150 of them.

from typing import Annotated, Any

import typer

USUAL = {
    "requests": "2000", "prompt": "512", "output_tokens": "128", "arrivals": "poisson",
    "burstiness": "1", "rounds": "5", "think": "0", "stagger": "0", "seed": "0",
    "scheduler": "chunked", "max_batched_tokens": "2048", "max_sequences": "256", "block": "16",
    "watermark": "0", "max_len": "2048", "routing_policy": "round-robin", "prefill_servers": "1",
    "attainment": "0.9",
}  # fmt: skip
"""What is taken where nothing is typed, as the help tells."""

TRAFFIC: dict[str, Any] = {
    "rate": Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Requests a second that come at random.")
    ],
    "requests": Annotated[
        str | None, typer.Option(metavar="COUNT", help="Requests at a rate.  [default: 2000]")
    ],
    "prompt": Annotated[
        str | None,
        typer.Option(
            metavar="LAW",
            help="Prompt tokens: 512, 1024@0.8, uniform:256-1024, lognormal:MEAN,SIGMA, "
            "exponential:MEAN or @FILE.  [default: 512]",
        ),
    ],
    "output_tokens": Annotated[
        str | None, typer.Option(metavar="LAW", help="Tokens generated, likewise.  [default: 128]")
    ],
    "arrivals": Annotated[
        str | None,
        typer.Option(metavar="WAY", help="poisson (default), constant or burst: all at once."),
    ],
    "burstiness": Annotated[
        str | None,
        typer.Option(metavar="NUMBER", help="Below 1 they come in bursts.  [default: 1, Poisson]"),
    ],
    "clients": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Clients that ask again when they are answered."),
    ],
    "rounds": Annotated[
        str | None, typer.Option(metavar="COUNT", help="Requests of each client.  [default: 5]")
    ],
    "think": Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From an answer to the next request.  [default: 0]"),
    ],
    "stagger": Annotated[
        str | None,
        typer.Option(metavar="TIME", help="From one client's start to the next.  [default: 0]"),
    ],
    "trace": Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Requests as they came: CSV or JSON lines with arrival_s, prompt_tokens and "
            "output_tokens, an Azure, BurstGPT or Mooncake trace, or a result of vLLM's benchmark.",
        ),
    ],
    "limit": Annotated[
        str | None, typer.Option(metavar="COUNT", help="First requests of a trace.")
    ],
    "scale": Annotated[
        str | None, typer.Option(metavar="NUMBER", help="A trace so many times as fast.")
    ],
    "prefix": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Leading prompt tokens that requests share."),
    ],
    "prefix_groups": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Different prefixes among them.  [default: 1]"),
    ],
    "seed": Annotated[
        str | None, typer.Option(metavar="NUMBER", help="Of all that is drawn.  [default: 0]")
    ],
    "replications": Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="Runs with seeds of their own, for intervals.  [default: 5; 1 from 20k requests]",
        ),
    ],
    "warm_up": Annotated[
        str | None,
        typer.Option(
            metavar="COUNT",
            help="First requests that are not measured.  [default: a tenth at a rate, else 0]",
        ),
    ],
}
"""Options of what comes."""
ENGINE: dict[str, Any] = {
    "scheduler": Annotated[
        str | None,
        typer.Option(metavar="NAME", help="chunked (default), prefill-first or static."),
    ],
    "max_batched_tokens": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Tokens of a step, prompts' too.  [default: 2048]"),
    ],
    "max_sequences": Annotated[
        str | None, typer.Option(metavar="COUNT", help="Sequences that run.  [default: 256]")
    ],
    "block": Annotated[
        str | None, typer.Option(metavar="COUNT", help="Tokens of a cache block.  [default: 16]")
    ],
    "cache": Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Memory for caches.  [default: what the rest leaves]"),
    ],
    "watermark": Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Of the cache that admission leaves.  [default: 0]"),
    ],
    "swap": Annotated[
        str | None,
        typer.Option(
            metavar="SIZE", help="Host memory for what gives way.  [default: computed again]"
        ),
    ],
    "contiguous": Annotated[
        str | None,
        typer.Option(
            metavar="WAY",
            help="Reserve caches in one piece: of the longest, power-of-two or exact.  "
            "[default: paged]",
        ),
    ],
    "max_len": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Tokens of the longest request.  [default: 2048]"),
    ],
    "routing_policy": Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="Of --replicas: round-robin (default), least-loaded, prefix-aware."
        ),
    ],
    "prefill_servers": Annotated[
        str | None,
        typer.Option(metavar="COUNT", help="Machines of --prefill-on.  [default: 1]"),
    ],
    "unit_cost": (
        Annotated[
            bool,
            typer.Option("--unit-cost", help="Textbook: a decode step takes 1 s, prompts nothing."),
        ],
        False,
    ),
}
"""Options of the engine."""
PROMISED: dict[str, Any] = {
    "slo_ttft": Annotated[
        str | None, typer.Option(metavar="TIME", help="Time to first token that is promised.")
    ],
    "slo_itl": Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Mean time between a request's tokens that is promised."),
    ],
    "slo_e2e": Annotated[
        str | None, typer.Option(metavar="TIME", help="Time to the last token that is promised.")
    ],
    "attainment": Annotated[
        str | None,
        typer.Option(metavar="SHARE", help="Of requests that keep it.  [default: 90%]"),
    ],
    "find_rate": (
        Annotated[
            bool, typer.Option("--find-rate", help="Find the largest rate that keeps the promise.")
        ],
        False,
    ),
    "sweep": Annotated[
        str | None,
        typer.Option(metavar="rate=RATES", help="A row for each: rate=1:32:x2, or 1,2.5."),
    ],
}
"""Options of what is promised and looked for."""
