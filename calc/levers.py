"""Which change would help most: every lever tried on the user's case, and ranked by its effect.

A lever is a change of what was typed, so that each row is what one command answers.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from .asked import case_of, command_of, counting_of
from .attention import Attention
from .case import max_sequences, slowest
from .cost import Paid, costs, economics_of
from .deployment import parse_node
from .errors import RooflmError
from .letters import dimensions
from .mlp import MLP
from .options import DRAFTED, UNCHARGED
from .readings import total
from .sweep import assumptions, step_row
from .timing import compulsory_bytes
from .typed import parse_costs, parse_factors

if TYPE_CHECKING:
    from .case import Case
    from .model import Model
    from .speculate import Speculation

Acts = Literal["weights", "cache", "weights and cache", "passes", "work", "devices", "machine"]
By = Literal["time", "throughput", "memory", "cost"]
BYS: tuple[By, ...] = ("time", "throughput", "memory", "cost")
KEPT_SHARE = 0.75
"""Share of the widths or layers that a pruned model keeps."""
USUAL_DRAFT_TOKENS = "4"
"""Tokens that are drafted where one acceptance holds for all: the papers' usual three or four."""
USUAL_ACCEPTANCE = "0.8"
"""Acceptance that is assumed where none is given, as in the worked examples of arXiv 2211.17192."""
MLA_SHAPE = "c:512+r:64+d:128+v:128"
"""Latent attention of DeepSeek-V2 and V3 (arXiv 2405.04434)."""

Words = Mapping[str, Any]
"""What was typed, by the names of the options; None where nothing was."""


@dataclass(frozen=True)
class Lever:
    """A change of what was typed, what it acts on, and what has to be checked."""

    name: str
    acts_on: Acts
    options: Mapping[str, Any]
    """Options that it changes; `set` is added to."""
    check: str
    refused: str = ""
    """Why it cannot be pulled, where that is known before."""

    @property
    def keeps(self) -> bool:
        """Keep the machine, the number of devices and the batch."""
        return self.acts_on not in ("work", "devices", "machine")


DRAFTS = ("draft", "acceptance", "draft_tokens")


def levers(words: dict[str, Any], by: By) -> dict[str, Any]:
    """Answer what each lever makes of a decode step, the best first.

    words: what was typed, with batch and context as whole numbers; by: what is ranked. A lever that
    cannot be pulled is told with its reason.
    """
    base = case_of(words)
    plain = _row(words, base)
    if words.get("draft") is not None or words.get("acceptance") is not None:
        # What was typed is wrong before any lever is pulled.
        _speculation_of(words | dict(_speculation(words, base).options))
    if base.basis == "estimate" and plain["time_s"] is None:
        raise RooflmError(f"no estimate: {base.no_estimate}", "--basis", "Say --basis bound.")
    rows: list[dict[str, Any]] = []
    untried: list[dict[str, str]] = []
    for lever in candidates(words, base):
        try:
            if lever.refused:
                raise RooflmError(lever.refused)
            row = _pulled(words, lever)
        except RooflmError as e:
            untried.append({"lever": lever.name, "reason": str(e)})
            continue
        if row["time_s"] is None:
            untried.append({"lever": lever.name, "reason": "no estimate for it"})
        elif lever.acts_on != "machine" and _idle(row, plain):
            untried.append({"lever": lever.name, "reason": "it changes nothing here"})
        else:
            rows.append(_beside(row, plain))
    priced = plain["output_usd_per_mtok"] is not None
    rows.sort(key=lambda row: _rank(row, by, plain["fits"], priced))
    step = base.step(words["batch"], words["context"])
    pass_ = slowest(base, step).ledger(step)
    cache = total(op.count * (op.read_bytes + op.write_bytes) for op in pass_)
    return {
        "schema": "rooflm.levers/1",
        "model": base.model.name,
        "hardware": base.machine.name,
        "by": by,
        "basis": words["basis"],
        "cache_share": cache / compulsory_bytes(pass_),
        "base": plain,
        "rows": rows,
        "not_tried": untried,
        "assumptions": _told(base, words, rows),
    }


def _paid(words: Words) -> Paid:
    """Read what was typed about cost."""
    return parse_costs({name: words.get(name) for name in UNCHARGED}) or Paid()


def _row(words: Words, case: Case) -> dict[str, Any]:
    """Answer one decode step with what it costs."""
    B, S = words["batch"], words["context"]
    row = step_row(case, case.step(B, S), B, S)
    if words["basis"] == "estimate" and row["basis"] != "estimate":
        row |= {"time_s": None, "tokens_per_s": None}
    row |= costs(row, case, None, economics_of(case.machine, _paid(words)))
    keys = ("batch", "context_tokens", "time_s", "tokens_per_s", "memory_bytes", "fits", "bytes",
            "output_usd_per_mtok", "joules_per_token")  # fmt: skip
    found = {key: row[key] for key in keys} | {"devices": row.get("devices", 1)}
    command = command_of("sweep", {k: v for k, v in words.items() if k not in DRAFTS})
    return {**found, "max_sequences": max_sequences(case, S), "command": command}


def _pulled(words: Words, lever: Lever) -> dict[str, Any]:
    """Answer the step with a lever pulled."""
    own = [setting.partition("=")[0] for setting in lever.options.get("set", ())]
    kept = [s for s in words["set"] if s.partition("=")[0].strip() not in own]
    settings = (*kept, *lever.options.get("set", ()))
    changed = {**words, **lever.options, "set": settings}
    about = {
        "lever": lever.name,
        "acts_on": lever.acts_on,
        "keeps": lever.keeps,
        "check": lever.check,
    }
    if lever.acts_on == "passes":
        return about | _round(changed)
    return about | _row(changed, case_of(changed))


def _speculation_of(words: Words) -> Speculation:
    """Find what is asked of speculation."""
    from .typed_drafts import find_speculation

    drafted = {name: words.get(name) for name in DRAFTED}
    return find_speculation(case_of(words), drafted, counting_of(words), words.get("models"))


def _round(words: Words) -> dict[str, Any]:
    """Answer a round of speculation: time for each token, memory with the draft."""
    from .speculate import speculate

    asked = _speculation_of(words)
    tokens = words.get("draft_tokens")
    lengths = None if tokens is None else [int(tokens)]
    answer = speculate(asked, [words["batch"]], [words["context"]], lengths)
    row = answer["rows"][0]
    wanted = words["basis"] == answer["basis"]
    taken = {
        "batch": row["batch"],
        "context_tokens": row["context_tokens"],
        "time_s": row["itl_s"] if wanted else None,
        "tokens_per_s": row["tokens_per_s"] if wanted else None,
        "memory_bytes": row["memory_bytes"],
        "fits": row["fits"],
        "bytes": None,
        "devices": row.get("devices", 1),
        "max_sequences": None,
        "draft_tokens": row["draft_tokens"],
    }
    machine = asked.target.machine
    taken |= costs(taken, asked.target, None, economics_of(machine, _paid(words)))
    return taken | {"command": command_of("speculate", words)}


def _idle(row: Mapping[str, Any], plain: Mapping[str, Any]) -> bool:
    """Tell whether a lever changed nothing."""
    keys = ("time_s", "tokens_per_s", "memory_bytes", "max_sequences", "fits")
    return all(row[key] == plain[key] for key in keys)


def _beside(row: dict[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Put the effects beside the figures: above 1 is better for the first two."""

    def ratio(a: float | None, b: float | None) -> float | None:
        return None if a is None or not b else a / b

    return row | {
        "speedup": ratio(plain["time_s"], row["time_s"]),
        "throughput_gain": ratio(row["tokens_per_s"], plain["tokens_per_s"]),
        "memory_kept": ratio(row["memory_bytes"], plain["memory_bytes"]),
        "cost_kept": ratio(row["output_usd_per_mtok"], plain["output_usd_per_mtok"]),
    }


def _rank(row: Mapping[str, Any], by: By, fits: bool, priced: bool) -> tuple[Any, ...]:
    """Order rows: those that stop fitting last, then by the effect that is asked for.

    priced: the case has a price; rows without one then come after those with one.
    """
    per_device = row["tokens_per_s"] / row["devices"]
    cost = row["output_usd_per_mtok"]
    key = {
        "time": row["time_s"],
        "throughput": -row["tokens_per_s"],
        "memory": row["memory_bytes"],
        # Without prices the device-seconds of a token rank alike.
        "cost": cost if priced else 1 / per_device,
    }[by]
    unknown = key is None
    return (fits and not row["fits"], unknown, 0 if unknown else key, row["lever"])


def candidates(words: Words, base: Case) -> Iterator[Lever]:
    """List the levers that the notes name, as far as they say something about the case."""
    yield from _formats(base)
    yield from _variants(words, base)
    yield from _pruned(base)
    yield _speculation(words, base)
    if not base.model.denoises and words["context"] > 1:
        half = words["context"] // 2
        yield Lever(
            f"a prefix of {half:,} tokens shared, read once",
            "cache",
            {"shared_prefix": str(half), "prefix_reads": "once"},
            "whether requests share so much; a kernel that reads it once (cascade); isolation of "
            "users",
        )
    yield from _work(words, base)
    yield from _machines(words, base)


def _formats(base: Case) -> Iterator[Lever]:
    """List formats of fewer bits that the chip computes or that are expanded as they are read."""
    rates = {*base.machine.flops, *base.machine.best_flops}
    weights = [name for name, rate in (("fp8", "fp8"), ("int8", "int8"), ("nvfp4", "fp4"))
               if rate in rates and not (name == "int8" and "fp8" in rates)]  # fmt: skip
    for name in (*weights, "int4"):
        only = "" if name in weights else ", which multiplies in 16 bits"
        yield Lever(
            f"weights {name}",
            "weights",
            {"weights": name},
            f"quality on your task; kernels of your engine for {name}{only}",
        )
    for name in ("fp8", *(["nvfp4"] if "fp4" in rates else []), "q4_0"):
        yield Lever(
            f"cache {name}",
            "cache",
            {"kv": name},
            f"quality in long contexts; attention kernels that read {name}",
        )


def _variants(words: Words, base: Case) -> Iterator[Lever]:
    """List hypothetical variants of the architecture: fewer heads, latents, windows, sharing."""
    new = "a new model: uptraining or training, then quality"
    mixers = [g.mixer for g in base.model.groups if isinstance(g.mixer, Attention)]
    if not mixers:
        return
    letters = {k: v for k, v in dimensions(base.model).items() if k == "K" or k.startswith("K_")}
    most = max(letters.values(), default=1)
    for name, K in (("GQA", _grouped(mixers)), ("MQA", 1)):
        if 0 < K < most and (K > 1 or name == "MQA"):
            changes = tuple(f"{k}={K}" for k, v in letters.items() if v > K)
            yield Lever(
                f"{name}, {K} key/value head{'s' if K > 1 else ''}",
                "cache",
                {"set": changes},
                f"{new} (arXiv 2305.13245)",
            )
    yield Lever(
        "latent attention, 512 + 64 elements",
        "cache",
        {"set": (f"mla={MLA_SHAPE}",)},
        f"{new} (arXiv 2405.04434); kernels",
    )
    window = words["context"] // 4
    if window:
        yield Lever(
            f"a window of {window:,} tokens in three of four layers",
            "cache",
            {"set": (f"pattern=3*window:{window}+full",)},
            f"{new}, above all on tasks that need distant tokens",
        )
    yield Lever(
        "each cache shared by two layers",
        "cache",
        {"set": ("pattern=full+shared",)},
        f"{new} (arXiv 2405.12981)",
    )


def _grouped(mixers: Sequence[Attention]) -> int:
    """Choose key/value heads of a grouped variant: 8 as most models have, else half of them."""
    most = max(m.K for m in mixers)
    if most > 8 and all(m.N % 8 == 0 for m in mixers):
        return 8
    return most // 2 if most % 2 == 0 else 0


def _pruned(base: Case) -> Iterator[Lever]:
    """List a narrower and a shallower model."""
    from . import prune

    check = "a new model: distillation, then quality (arXiv 2407.14679)"
    ways: tuple[tuple[str, Acts, Callable[[Model, float], dict[str, str]]], ...] = (
        ("width", "weights", prune.width),
        ("depth", "weights and cache", prune.depth),
    )
    for name, acts, of in ways:
        lever = Lever(f"pruned to {100 * KEPT_SHARE:g} % of the {name}", acts, {}, check)
        try:
            found = of(base.model, KEPT_SHARE)
        except RooflmError as e:
            yield replace(lever, refused=e.what)
            continue
        yield replace(lever, options={"set": tuple(f"{k}={v}" for k, v in found.items())})


def _speculation(words: Words, base: Case) -> Lever:
    """Let a head draft, as it is published for such models, or what was said."""
    draft = words.get("draft")
    draft = _usual_draft(base) if draft is None else draft
    typed = words.get("acceptance")
    acceptance = USUAL_ACCEPTANCE if typed is None else typed
    assumed = " (assumed: --acceptance)" if typed is None else ""
    options = {"draft": draft, "acceptance": acceptance}
    if "," not in acceptance:
        heads = str(draft).partition("medusa:")[2]
        few = bool(re.fullmatch("[0-9]{1,9}", heads)) and int(heads) < int(USUAL_DRAFT_TOKENS)
        options["draft_tokens"] = heads if few else USUAL_DRAFT_TOKENS
    return Lever(
        f"speculation by {draft or 'a draft'}, acceptance {acceptance}{assumed}",
        "passes",
        options,
        "acceptance on your own text; exact only with acceptance and correction as published; the "
        "load, since verifying costs compute",
        refused="" if draft else "no head of such a model is known: --draft with --acceptance",
    )


def _usual_draft(base: Case) -> str | None:
    """Choose a head that is published for such models; None where none is known."""
    from .drafts import prediction_module

    with contextlib.suppress(RooflmError):
        prediction_module(base.model)
        return "mtp"
    dense = any(g.mixer.kind == "full" and isinstance(g.ffn, MLP) for g in base.model.groups)
    return "eagle" if dense and not base.model.denoises else None


def _work(words: Words, base: Case) -> Iterator[Lever]:
    """List other batches and layouts."""
    B, node = words["batch"], parse_node(words["on"])
    yield Lever("twice the batch", "work", {"batch": 2 * B}, "the latency of each user; queues")
    if B > 1:
        yield Lever("half the batch", "work", {"batch": B // 2}, "the throughput that is left")
    most = max_sequences(base, words["context"])
    if most not in (0, B, 2 * B, B // 2):
        yield Lever(
            f"the largest batch that fits, {most:,}",
            "work",
            {"batch": most},
            "memory for what is not modelled (--reserve); the latency of each user",
        )
    copies = int(words.get("replicas") or 1)
    told = "traffic that spreads evenly; twice the rent"
    spread: dict[str, Any] = {"replicas": str(2 * copies), "batch": 2 * B}
    if node.devices is not None:
        layout = base.layout
        spread["on"] = f"{2 * node.nodes}x{node.devices}x{node.name}"
        if layout is not None and not any(words.get(axis) for axis in ("tp", "pp", "dp")):
            spread["tp"] = str(layout.tp)
    yield Lever("two replicas, each with this batch", "devices", spread, told)
    if node.devices is None:
        tp = int(words.get("tp") or 1)
        yield Lever(
            f"tensor parallelism over {2 * tp}",
            "devices",
            {"tp": str(2 * tp)},
            "links between the devices; messages have no latency here (--link-latency)",
        )


def _machines(words: Words, base: Case) -> Iterator[Lever]:
    """List faster chips of the kind, and each figure with 10 % more.

    The next faster one, those with a price, and the fastest.
    """
    from .listing import all_machines

    machine, needed = base.machine, base.precision.activations.compute
    faster = [
        m
        for m in all_machines()
        if m.kind == machine.kind
        and m.bandwidth_bytes_per_s > machine.bandwidth_bytes_per_s
        and needed in {*m.flops, *m.best_flops}
        and m.label_bytes is not None
    ]
    faster.sort(key=lambda m: (m.bandwidth_bytes_per_s, m.name))
    priced = [m for m in faster if m.price_usd_per_hour is not None]
    for name in dict.fromkeys(m.name for m in (*faster[:1], *priced, *faster[-1:])):
        node = parse_node(words["on"])
        on = f"{node.nodes}x{node.devices}x{name}" if node.devices is not None else name
        # What was typed about this machine is not that one's.
        own = dict.fromkeys(("price", "power", "capacity", "gpu_share", "link", "hardware_scale"))
        check = "price; kernels of your engine for it"
        yield Lever(f"on {name}", "machine", {**own, "on": on}, check)
    typed_scale = words.get("hardware_scale")
    scaled = {} if typed_scale is None else parse_factors(typed_scale)
    for figure in ("bandwidth", "compute", "capacity", *(["link"] if base.ranks else [])):
        factors = scaled | {figure: 1.1 * scaled.get(figure, 1.0)}
        text = ",".join(f"{name}={factor:.10g}" for name, factor in factors.items())
        typed = figure in ("capacity", "link") and words.get(figure)
        yield Lever(
            f"10 % more {figure}",
            "machine",
            {"hardware_scale": text},
            "no such machine: tells which figure limits",
            refused=f"--{figure} says what it is" if typed else "",
        )


def _told(base: Case, words: Words, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what the ranking rests on."""
    said = [
        "each row changes one thing; effects of several do not multiply, try them with the command",
        "speed-up and throughput are those of the case, memory and cost what is kept of it; a row "
        "that stops fitting comes last",
        "rooflm knows bytes and times and nothing about quality: what has to be checked stands "
        "beside each row",
    ]
    if words["basis"] == "bound":
        said.insert(
            1,
            "ranked by bounds, which hold for any engine, where `sweep` tells an estimate by "
            "default; --basis estimate ranks by one",
        )
    if any(row["acts_on"] == "passes" for row in rows):
        said.append("time of speculation is that of a token, a round over the tokens it yields")
    said.append(
        "continuous batching, paging and routing change how many sequences run together, not a step"
    )
    return said + assumptions(replace(base, basis=base.basis), contexts=[words["context"]])
