"""Live traffic with caches that are shared, reserved in one piece, or drafted for."""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.asked import swept
from rooflm.calc.clock import TICKS, Limits, new_trace
from rooflm.calc.live import Pool, run
from rooflm.calc.served import occupancy
from rooflm.calc.sharing_server import RESERVES, ReservingServer, reserved_tokens
from rooflm.calc.typed_serve import UnitCost, find_service, find_traffic, served
from rooflm.calc.workload import Workload

TRACES = Path(__file__).resolve().parents[1] / "traces"
LLAMA = {"model": "llama-3-8b", "on": "h100-sxm"}


def requests(seed: int, number: int, longest: int = 60) -> Workload:
    """Make requests of random lengths that come at random."""
    chance = random.Random(seed)
    arrivals = sorted(chance.randrange(200 * TICKS) for _ in range(number))
    return Workload(
        arrivals,
        [chance.randrange(1, longest) for _ in range(number)],
        [chance.randrange(1, longest) for _ in range(number)],
    )


@pytest.mark.parametrize("way", RESERVES)
def test_regions_never_overlap_and_all_come_back(way: str) -> None:
    """Whatever comes and goes, regions and holes tile the pool, and free is what holes have."""
    work = requests(7, 120)
    limits = Limits(pool=400, units=0, tokens=64, sequences=8, first="prefill")

    def size_of(prompt: int, output: int) -> int:
        return reserved_tokens(way, prompt, output, 128)

    server = ReservingServer(UnitCost(), limits, new_trace(120), size_of=size_of)
    for i, arrival in enumerate(work.arrival):
        server.submit(i, arrival, work.prompt[i], work.output[i])
    until = 0
    most = 0
    while not server.done:
        until += TICKS
        server.advance(until)
        pieces = sorted([*server.holes, *server.regions.values()])
        assert pieces[0][0] == 0
        assert [a + n for a, n in pieces] == [*(a for a, _ in pieces[1:]), 400]
        assert server.free == sum(n for _, n in server.holes)
        most = max(most, len(server.regions))

    assert server.holes == [(0, 400)]
    assert most >= (3 if way == "longest" else 4)
    assert not server.trace.preemptions


def test_an_oracle_with_room_serves_as_paging_does() -> None:
    """With exact reservations and a pool that is never full, nobody waits longer than paged."""
    work = requests(3, 200)
    limits = Limits(pool=10**6, tokens=64, sequences=8)
    paged = run(work, Pool(UnitCost(), limits))
    whole = run(work, Pool(UnitCost(), replace(limits, units=0), reserve="exact", longest=128))

    assert whole.trace.finish == paged.trace.finish


def test_shares_of_a_reserved_pool_are_those_of_its_regions() -> None:
    """Two requests of known lengths: what holds tokens, is to come, or is never used, by hand."""
    # Both come at 0 and take a slot of 32 tokens: 8 + 8 and 8 + 4 tokens, of which the last one is
    # never cached. With 1 s a step the second ends after 3 s, the first after 7 s.
    work = Workload([0, 0], [8, 8], [8, 4])
    limits = Limits(pool=64, units=0, tokens=64, sequences=8, first="prefill")
    made = run(work, Pool(UnitCost(), limits, reserve="longest", longest=32))
    cache = occupancy(made, 1.0, 16)

    whole = 64 * 7
    used = sum(range(9, 16)) + sum(range(9, 12))
    final = 15 * 7 + 11 * 3
    assert cache["token_share"] == pytest.approx(used / whole)
    assert cache["future_share"] == pytest.approx((final - used) / whole)
    assert cache["internal_share"] == pytest.approx((32 * 7 + 32 * 3 - final) / whole)
    assert cache["external_share"] == 0


def test_reserving_the_longest_runs_seven_of_the_paper() -> None:
    """Slots of 2,048 tokens in 12.9 GB: 7 sequences of OPT-13B (arXiv 2309.06180, figure 13)."""
    words = {
        "model": "opt-13b", "on": "a100-sxm-40gb", "basis": "bound", "cache": "12GiB",
        "prompt": "161", "output_tokens": "338", "clients": "20", "rounds": "2",
        "contiguous": "longest", "max_len": "2048",
    }  # fmt: skip
    cache = served(words)["cache"]

    assert cache["peak_bytes"] == pytest.approx(7 * 2048 * 819_200, rel=1e-3)
    paged = served({**words, "contiguous": None, "max_len": None})["cache"]
    assert paged["mean_running_sequences"] > 2.5 * cache["mean_running_sequences"]


def test_prompts_that_begin_alike_are_computed_once() -> None:
    """One prefix of 1,000 tokens: all but the first find its 62 whole blocks."""
    words = {
        **LLAMA, "rate": "2", "requests": "100", "prompt": "1500", "output_tokens": "50",
        "prefix": "1000", "replications": "1", "warm_up": "0",
    }  # fmt: skip
    found, plain = served(words), served({**words, "prefix": None})

    assert found["cache"]["hit_share"] == pytest.approx(99 * 62 * 16 / (100 * 1500))
    assert found["ttft_s"]["p50"] < 0.6 * plain["ttft_s"]["p50"]


def nothing(*_: object) -> None:
    """Answer nothing."""


def test_routing_by_prefix_finds_more_than_taking_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight prefixes on four servers with small caches: each server keeps those of its own."""
    # What the servers could do at most takes thousands of requests, and is not asked here.
    monkeypatch.setattr(sys.modules["rooflm.calc.serve"], "capacity", nothing)
    words = {
        **LLAMA, "on": "4xh100-sxm", "replicas": "4", "rate": "20", "requests": "150",
        "prompt": "2200", "output_tokens": "32", "prefix": "2000", "prefix_groups": "8",
        "cache": "2GB", "replications": "1",
    }  # fmt: skip
    turns = served(words)["cache"]["hit_share"]
    aware = served({**words, "routing_policy": "prefix-aware"})["cache"]["hit_share"]

    assert aware > turns + 0.05


def test_a_drafted_token_takes_its_share_of_a_round() -> None:
    """One client: the mean time between tokens is that of `rooflm speculate` at its context."""
    from rooflm.calc.asked import speculated

    words: dict[str, Any] = {
        "model": "llama-3-70b", "on": "8xh100-sxm", "tp": "8", "draft": "llama-3-8b",
        "acceptance": "0.8", "draft_tokens": "4",
    }  # fmt: skip
    found = served({**words, "clients": "1", "rounds": "1", "prompt": "1024",
                    "output_tokens": "65"})  # fmt: skip
    round_ = speculated({**words, "context": "1056"})["rows"][0]

    # The round grows by a line between two contexts where it is timed: 0.1 % here.
    assert found["itl_s"]["mean"] == pytest.approx(round_["itl_s"], rel=2e-3)


def test_what_gives_way_to_the_host_is_not_computed_again() -> None:
    """With room on the host the cache goes there and back, over the bus of the machine."""
    words = {
        **LLAMA, "clients": "40", "rounds": "2", "prompt": "2000", "output_tokens": "400",
        "cache": "6GB", "basis": "bound",
    }  # fmt: skip
    again, swapped = served(words), served({**words, "swap": "40GB"})

    assert again["preemptions"] > 5
    assert again["swaps"] == 0
    # Prompts that are being computed are put back, and not swapped.
    assert 5 < swapped["swaps"] <= swapped["preemptions"]
    service = find_service({**words, "swap": "40GB"})
    # 131,072 bytes a token over 63 GB/s (PCIe 5.0 x16, hardware.yaml).
    assert service.steps.moved(1000) / TICKS == pytest.approx(131_072_000 / 63e9)


def test_one_client_of_a_batch_waits_for_nobody() -> None:
    """A request alone takes what the closed form says, with the chunks of the budget."""
    words = {**LLAMA, "clients": "1", "rounds": "1", "prompt": "5000", "output_tokens": "100"}
    found = served({**words, "max_batched_tokens": "2048"})
    row = swept(
        {**LLAMA, "phase": "request", "prompt": "5000", "output_tokens": "100", "chunk": "2048"}
    )["rows"][0]

    assert found["ttft_s"]["mean"] == pytest.approx(row["ttft_s"], rel=1e-9)
    assert found["e2e_s"]["mean"] == pytest.approx(row["estimate_s"], rel=1e-9)


def test_a_trace_is_measured_whole() -> None:
    """The project's own trace of conversations: every request, and what its turns find."""
    trace = str(TRACES / "sessions.csv")
    work = find_traffic({"trace": trace}).make(None, 0)
    found = served({**LLAMA, "trace": trace})

    assert found["measured_requests"] == len(work.prompt) == 140
    assert 0.8 < found["cache"]["hit_share"] < 0.95
    assert found["stable"] is None
