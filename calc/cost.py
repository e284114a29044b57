"""What tokens cost and the energy that they take: the price and the power of devices over time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .case import Case
from .hardware import Machine
from .readings import Q, formula
from .requests import Work, prefill_row

HOUR_S = 3600
MEGA = 1_000_000


@formula
def usd_per_mtok(usd_per_hour: Q, tokens_per_s: Q, utilization: Q = 1) -> Q:
    """Price of a million tokens: price/(3600 R u) 10⁶.

    usd_per_hour: rent of all devices together [USD/h]; tokens_per_s: what they yield while they
    are busy, R [tokens/s]; utilization: share of the paid time in which they do, u [1]. Returns
    [USD a million tokens]. Left out: hosts and people that the rent does not pay.

    >>> round(usd_per_mtok(2.0, 6416.688), 7)
    0.0865798
    """
    return usd_per_hour / (HOUR_S * tokens_per_s * utilization) * MEGA


@formula
def joules_per_token(power_w: Q, tokens_per_s: Q, pue: Q = 1) -> Q:
    """Energy of a token: power/R PUE.

    power_w: what all devices draw together [W]; tokens_per_s: what they yield, R [tokens/s]; pue:
    power of the whole site for each watt of theirs [1]. Returns [J]. Left out: hosts and network;
    the cap of a board is more than decoding draws while it waits for memory.

    >>> round(joules_per_token(700.0, 6416.688, pue=1.2), 6)
    0.130909
    """
    return power_w / tokens_per_s * pue


@formula
def rent_usd(devices: Q, usd_per_hour: Q, seconds: Q) -> Q:
    """Rent of devices over a time, busy or not.

    devices: number [1]; usd_per_hour: rent of one [USD/h]; seconds: time [s]. Returns [USD].
    Source of the example: the fleet of DeepSeek on a day, deepseek-ai/open-infra-index, day 6.

    >>> rent_usd(226.75 * 8, 2.0, 24 * 3600)
    87072.0
    """
    return devices * usd_per_hour * seconds / HOUR_S


@formula
def tariff_usd(
    cached_tokens: Q, input_tokens: Q, output_tokens: Q, cached_usd_per_mtok: Q,
    input_usd_per_mtok: Q, output_usd_per_mtok: Q,
) -> Q:  # fmt: skip
    """What a tariff charges for tokens, cached input apart from input that is computed.

    cached_tokens, input_tokens, output_tokens: of each kind [tokens]; cached_usd_per_mtok,
    input_usd_per_mtok, output_usd_per_mtok: their prices [USD a million tokens]. Returns [USD].
    Source of the example: as of `rent_usd`; it says 562,027 of rounded tokens.

    >>> round(tariff_usd(342e9, 266e9, 168e9, 0.14, 0.55, 2.19))
    562100
    """
    cached = cached_tokens * cached_usd_per_mtok
    return (cached + input_tokens * input_usd_per_mtok + output_tokens * output_usd_per_mtok) / MEGA


@formula
def margin(revenue_usd: Q, cost_usd: Q) -> Q:
    """Profit for each dollar of cost: (revenue - cost)/cost.

    revenue_usd: what is charged [USD]; cost_usd: what it costs [USD]. Returns [1]: 5.45 is the
    "545 %" of deepseek-ai/open-infra-index, day 6.

    >>> round(margin(562027, 87072), 2)
    5.45
    """
    return (revenue_usd - cost_usd) / cost_usd


@dataclass(frozen=True)
class Paid:
    """What was typed about cost; None where nothing was."""

    price_usd_per_hour: float | None = None
    power_w: float | None = None
    pue: float = 1.0
    utilization: float = 1.0
    tariff: tuple[float, float, float] | None = None


@dataclass(frozen=True)
class Economics:
    """What one device costs and draws, and how it is used."""

    name: str
    """Of the device."""
    price_usd_per_hour: float | None
    """Rent of one device; None where it is not known [USD/h]."""
    price_date: str
    """When that was its price; "" where it was typed."""
    power_w: float | None
    """Power of one device; None where it is not known [W]."""
    typed_power: bool = False
    """The power was typed, and is not the cap of the board."""
    pue: float = 1.0
    """Power of the whole site for each watt of a device [1]."""
    utilization: float = 1.0
    """Share of the paid time that is busy [1]."""
    tariff: tuple[float, float, float] | None = None
    """What is charged for cached input, input and output [USD a million tokens]."""


def economics_of(machine: Machine, typed: Paid) -> Economics:
    """Take what was typed, else the dated price and the board power of the machine."""
    priced = typed.price_usd_per_hour is not None
    powered = typed.power_w is not None
    return Economics(
        name=machine.name,
        price_usd_per_hour=typed.price_usd_per_hour if priced else machine.price_usd_per_hour,
        price_date="" if priced else machine.price_date,
        power_w=typed.power_w if powered else machine.power_w,
        typed_power=powered,
        pue=typed.pue,
        utilization=typed.utilization,
        tariff=typed.tariff,
    )


def add_costs(
    answer: dict[str, Any], asked: Iterable[tuple[Case, Work | None]], typed: Paid
) -> dict[str, Any]:
    """Give every row of a sweep or comparison its cost and energy, and say what they rest on.

    asked: the case and the piece of work of each row, in their order; None for decode steps.
    """
    pairs = list(asked)
    rows: list[dict[str, Any]] = []
    for row, (case, work) in zip(answer["rows"], pairs, strict=True):
        rows.append(row | costs(row, case, work, economics_of(case.machine, typed)))
    known = list(dict.fromkeys(economics_of(case.machine, typed) for case, _ in pairs))
    phase = answer["phase"]
    whole = any(case.model.denoises for case, _ in pairs)
    said = [*answer["assumptions"], *told(known, phase, rows, together=whole)]
    return answer | {"rows": rows, "assumptions": said}


def costs(row: dict[str, Any], case: Case, work: Work | None, how: Economics) -> dict[str, Any]:
    """Tell what the tokens of a row cost and the energy they take; null where it is not known.

    row: a decode step, a prefill, a request or served tokens, by the keys of the contract; work:
    what was asked of each sequence, None for a step.
    """
    devices, rate = row.get("devices", 1), row.get("tokens_per_s")
    energy = None
    if how.power_w is not None and rate is not None:
        energy = joules_per_token(how.power_w * devices, rate, how.pue)
    if work is None or work.phase == "served":
        found = _step_costs(devices, rate, work, how)
    else:
        found = _work_costs(row, case, work, devices, how)
    return {**found, "joules_per_token": energy}


def _rent(how: Economics, devices: Q, seconds: Q) -> Q:
    """Rent of a time at the utilization; None where price or time is not known [USD]."""
    if how.price_usd_per_hour is None or seconds is None:
        return None
    return rent_usd(devices, how.price_usd_per_hour, seconds) / how.utilization


def _step_costs(
    devices: int, rate: float | None, work: Work | None, how: Economics
) -> dict[str, Any]:
    """Price the tokens that a step yields, or that clients are served."""
    output = None
    if how.price_usd_per_hour is not None and rate is not None:
        output = usd_per_mtok(how.price_usd_per_hour * devices, rate, how.utilization)
    found: dict[str, Any] = {"output_usd_per_mtok": output}
    tokens = 1 if work is None else work.output
    if work is not None:
        found["usd_per_request"] = None if output is None else output * tokens / MEGA
    if how.tariff is not None:
        cached, fresh = (0, 0) if work is None else (work.reused, work.prompt - work.reused)
        charged = tariff_usd(cached, fresh, tokens, *how.tariff)
        found["margin"] = None if output is None else margin(charged, output * tokens / MEGA)
    return found


def _work_costs(
    row: dict[str, Any], case: Case, work: Work, devices: int, how: Economics
) -> dict[str, Any]:
    """Split what a prefill or a request costs by the time that each kind of token takes."""
    B, reused = row["batch"], work.reused
    computed, further = work.prompt - reused, work.output - 1
    if case.model.denoises:
        # Every pass computes prompt and output together: all of it is the output's.
        first, added, last = None, None, row["time_s"]
        further = work.output
    else:
        first = row["ttft_s"]
        added = _added_time(row, case, B, work)
        itl = row.get("itl_s")
        last = None if itl is None else further * itl
    fresh = first if added is None or first is None else first - added

    def each(seconds: Q, tokens: int) -> Q:
        whole = _rent(how, devices, seconds)
        return None if whole is None or not tokens else whole / (B * tokens) * MEGA

    found = {
        "input_usd_per_mtok": each(fresh, computed),
        "cached_input_usd_per_mtok": each(added, reused),
    }
    whole = _rent(how, devices, row["time_s"])
    cost = None if whole is None else whole / B
    if work.phase == "request":
        found |= {"output_usd_per_mtok": each(last, further), "usd_per_request": cost}
    if how.tariff is not None:
        outputs = work.output if work.phase == "request" else 0
        charged = tariff_usd(work.reused, work.prompt - work.reused, outputs, *how.tariff)
        found["margin"] = None if cost is None else margin(charged, cost)
    return found


def _added_time(row: dict[str, Any], case: Case, B: int, work: Work) -> Q:
    """Time that attending to reused tokens adds to a prefill; None where none are reused [s]."""
    if not work.reused or row["ttft_s"] is None:
        return None
    alone = replace(work, prompt=work.prompt - work.reused, prefix=0)
    # On the same basis as the row, whatever the shorter prefill would have.
    without = prefill_row(case, B, alone)[f"{row['basis']}_s"]
    return None if without is None else row["ttft_s"] - without


def told(
    known: Sequence[Economics], phase: str, rows: Sequence[dict[str, Any]], together: bool = False
) -> list[str]:
    """Say in sentences what cost and energy rest on, and what they leave out."""
    said: list[str] = []
    for how in known:
        if how.price_usd_per_hour is None:
            said.append(f"cost: no price of {how.name} is known: --price USD, of a device and hour")
            continue
        date = f" on {how.price_date}" if how.price_date else ", as given"
        said.append(
            f"cost: {how.price_usd_per_hour:g} USD an hour for a device of {how.name}{date}; all "
            "devices of a layout are paid"
        )
    first = known[0]
    if any(how.price_usd_per_hour is not None for how in known):
        busy = f"{100 * first.utilization:g} % of the paid time is busy at this load"
        said.append(f"{busy} (--utilization)" if first.utilization == 1 else busy)
        said += _split_told(phase, rows, together)
    for how in known:
        if how.power_w is None:
            said.append(f"energy: no power of {how.name} is known: --power WATTS, of a device")
        elif how.typed_power:
            said.append(f"energy: {how.power_w:g} W a device, as given; PUE {how.pue:g}")
        else:
            said.append(
                f"energy: {how.power_w:g} W, the cap of a board of {how.name}: an upper bound, "
                f"since decoding draws less while it waits for memory (--power); PUE {how.pue:g}; "
                "without hosts and network"
            )
    if first.tariff is not None:
        said.append("margin: (charged - cost)/cost, so that 0 is even and 1 is twice the cost")
    return said


def _split_told(phase: str, rows: Sequence[dict[str, Any]], together: bool) -> list[str]:
    """Say how the price of a prefill or request is split over its tokens."""
    if phase == "served":
        return ["output tokens pay for the prefills of their prompts"]
    if phase not in ("prefill", "request"):
        return []
    if together:
        return ["every pass computes prompt and output together: output tokens pay for all"]
    said = ["split by time: input pays for the prefill, which yields the first token"]
    if phase == "request":
        said[0] += "; output for the decode steps, by the further tokens"
    if any(row.get("reused_tokens") for row in rows):
        said.append(
            "cached input pays for what attending to it adds to the prefill; storing it while it "
            "waits is left out"
        )
    return said
