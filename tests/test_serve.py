"""The command of live traffic: what it answers, what it refuses, and rates against the capacity."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.clock import TICKS
from rooflm.calc.errors import Exit, RooflmError
from rooflm.calc.live import run
from rooflm.calc.scheduler import Server
from rooflm.calc.serve import RATE_DIGITS, Service, Traffic, at_rate, capacity, find_rate, simulate
from rooflm.calc.served import Slo, interval, latencies, met
from rooflm.calc.step_cost import Steps
from rooflm.calc.typed_serve import find_service, find_traffic

from .golden import table
from .helpers import Terminal

SERVE = ("serve", "llama-3-8b", "--on", "h100-sxm")
RANDOM = ("--rate", "8", "--requests", "200", "--prompt", "exponential:300",
          "--output-tokens", "exponential:60")  # fmt: skip
SPREAD = {"mean", "p50", "p90", "p99"}


def test_keys_of_the_contract(rooflm: Terminal) -> None:
    """Latencies with mean and quantiles, throughput, goodput, memory, split, and what was taken."""
    answer = rooflm.json(*SERVE, *RANDOM, "--slo-ttft", "200ms", "--slo-itl", "10ms")

    assert answer["schema"] == "rooflm.serve/1"
    assert (answer["model"], answer["hardware"]) == ("llama-3-8b", "h100-sxm")
    assert answer["basis"] == "estimate"
    for key in ("ttft_s", "itl_s", "tpot_s", "e2e_s"):
        assert set(answer[key]) == SPREAD
        assert 0 < answer[key]["p50"] <= answer[key]["p90"] <= answer[key]["p99"]
    assert 0 < answer["goodput_requests_per_s"] <= answer["throughput_requests_per_s"]
    assert answer["attainment"] == pytest.approx(
        answer["goodput_requests_per_s"] / answer["throughput_requests_per_s"], rel=0.02
    )
    assert answer["throughput_tokens_per_s"] > 0
    memory = answer["memory"]
    assert 0 < memory["mean_bytes"] <= memory["peak_bytes"] <= memory["pool_bytes"]
    assert memory["pool_bytes"] == memory["cache_pool_bytes"]
    assert memory["capacity_bytes"] == pytest.approx(
        sum(memory[k] for k in ("weights_bytes", "activations_bytes", "reserve_bytes"))
        + memory["cache_pool_bytes"]
    )
    assert (answer["stable"], answer["load"], answer["complete"]) == (True, "stable", True)
    assert answer["measured_requests"] == 180, "a tenth comes first and is not measured"
    assert answer["replications"] == 5
    assert any("seed 0" in said for said in answer["assumptions"])
    split = answer["time_split"]
    assert set(split) == {
        "queueing_s", "prefill_s", "handoff_s", "decode_s", "communication_share", "busy_share"
    }  # fmt: skip
    assert 0 < split["busy_share"] <= 1


def test_times_of_a_request_add_up(rooflm: Terminal) -> None:
    """Queueing, prefill and decoding are the whole of a request, and its first part the TTFT."""
    answer = rooflm.json(*SERVE, *RANDOM)

    split = answer["time_split"]
    first = split["queueing_s"] + split["prefill_s"]
    assert first == pytest.approx(answer["ttft_s"]["mean"], rel=1e-9)
    assert first + split["decode_s"] == pytest.approx(answer["e2e_s"]["mean"], rel=1e-9)


def test_a_seed_tells_all_that_is_drawn(rooflm: Terminal) -> None:
    """The same seed gives the same answer to the last digit; another one gives another."""
    one, again, other = (
        rooflm.json(*SERVE, *RANDOM, "--seed", seed, "--replications", "2")
        for seed in ("7", "7", "8")
    )

    assert one == again
    assert one["ttft_s"]["mean"] != other["ttft_s"]["mean"]


def test_replications_are_seeds_of_their_own(rooflm: Terminal) -> None:
    """Two replications are the runs of two seeds: their mean, and Student's interval of both."""
    both = rooflm.json(*SERVE, *RANDOM, "--seed", "3", "--replications", "2")
    each = [
        rooflm.json(*SERVE, *RANDOM, "--seed", seed, "--replications", "1") for seed in ("3", "4")
    ]
    for key in ("ttft_s", "itl_s", "e2e_s"):
        values = [answer[key]["p90"] for answer in each]

        assert both[key]["p90"] == pytest.approx(sum(values) / 2, rel=1e-12)
        assert both["intervals"][f"{key}.p90"] == pytest.approx(
            12.706 * abs(values[0] - values[1]) / 2, rel=1e-9
        )
        assert each[0]["intervals"][f"{key}.p90"] is None


def test_rates_of_a_sweep_are_rows(rooflm: Terminal) -> None:
    """Each rate is a row with the same requests: waits grow, and each row is the rate's answer."""
    words = [*SERVE, *RANDOM[2:], "--replications", "1"]
    answer = rooflm.json(*words, "--sweep", "rate=2,8,32")
    alone = rooflm.json(*words, "--rate", "8")

    rows = answer["rows"]
    assert [row["rate_requests_per_s"] for row in rows] == [2.0, 8.0, 32.0]
    assert rows[1]["ttft_s"] == alone["ttft_s"]
    assert rows[0]["itl_s"]["mean"] < rows[1]["itl_s"]["mean"] < rows[2]["itl_s"]["mean"]


@pytest.fixture
def textbook(tmp_path: Path) -> str:
    """Write a trace of four requests that come at once; a prompt yields a token of its own."""
    case = static_case()
    lines = [f"0,10,{steps + 1}" for steps in case["inputs"]["output_lengths"]]
    path = tmp_path / "trace.csv"
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "\n".join(lines) + "\n", "utf-8")
    return str(path)


def static_case() -> dict[str, Any]:
    """Find the worked case of static and continuous batches."""
    cases = table("cases_serving")["simulated"]
    return next(c for c in cases if c["id"] == "t16_static_vs_continuous")


@pytest.mark.parametrize("way", ["static", "continuous"])
def test_a_static_batch_waits_for_its_longest(rooflm: Terminal, textbook: str, way: str) -> None:
    """Case t16_static_vs_continuous: 13 steps against 10 of two slots, for the same 18 tokens."""
    case, scheduler = static_case(), "static" if way == "static" else "prefill-first"
    slots, steps = case["inputs"]["slots"], sum(case["inputs"]["output_lengths"])

    answer = rooflm.json(
        *SERVE, "--trace", textbook, "--unit-cost", "--scheduler", scheduler,
        "--max-sequences", str(slots),
    )  # fmt: skip

    makespan = case["expected"][f"{way}_makespan"]
    assert answer["duration_s"] == makespan
    assert answer["engine_steps"] == makespan
    # Tokens of prompts come free: what the steps yield is the rest.
    yielded = answer["throughput_tokens_per_s"] * makespan - len(case["inputs"]["output_lengths"])
    assert yielded == pytest.approx(steps, rel=1e-12)
    used = yielded / (slots * makespan)
    assert used == pytest.approx(case["expected"][f"{way}_util"], rel=1e-9)
    held = answer["memory"]["mean_running_sequences"] / slots
    # Slots that are held after their sequence has ended get no tokens.
    assert held == pytest.approx(used, rel=1e-9)
    assert answer["itl_s"] == dict.fromkeys(SPREAD, 1.0)


LONG_TRACE = "arrival_s,prompt_tokens,output_tokens\n" + "".join(
    f"{0.05 * i},{100 + 7 * i % 90},{20 + 11 * i % 70}\n" for i in range(400)
)


def test_an_interrupt_keeps_what_was_simulated(
    rooflm: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C in the middle of a trace: figures of the requests that were done, exit code 130."""
    path = tmp_path / "trace.csv"
    path.write_text(LONG_TRACE, "utf-8")
    whole = rooflm.json(*SERVE, "--trace", str(path))
    steps, own = [0], Steps.run

    def pressed(self: Steps, sequences: int, tokens: int, more: Sequence[Any]) -> Any:
        steps[0] += 1
        if steps[0] == 300:
            raise KeyboardInterrupt
        return own(self, sequences, tokens, more)

    monkeypatch.setattr(Steps, "run", pressed)
    ran = rooflm(*SERVE, "--trace", str(path), "--format", "json")

    assert ran.code == Exit.INTERRUPTED
    assert not ran.json["complete"]
    assert ran.json["unfinished_requests"] > 0
    assert ran.json["measured_requests"] + ran.json["unfinished_requests"] == 400
    assert ran.json["duration_s"] < whole["duration_s"]
    assert whole["complete"]
    assert whole["unfinished_requests"] == 0
    # What was there before does not change when the rest is missing.
    assert ran.json["ttft_s"]["p50"] == pytest.approx(whole["ttft_s"]["p50"], rel=0.05)


def test_an_interrupt_while_prompts_are_computed_elsewhere(
    rooflm: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Ctrl-C before any cache was handed on: no request is done, and no defect is told of."""
    path = tmp_path / "trace.csv"
    path.write_text(LONG_TRACE, "utf-8")
    steps, own = [0], Steps.mixed

    def pressed(self: Steps, *words: Any) -> int:
        steps[0] += 1
        if steps[0] == 50:
            raise KeyboardInterrupt
        return own(self, *words)

    monkeypatch.setattr(Steps, "mixed", pressed)
    ran = rooflm(
        *SERVE, "--trace", str(path), "--prefill-on", "h100-sxm", "--handoff", "1GB",
        "--format", "json",
    )  # fmt: skip

    assert ran.code == Exit.INTERRUPTED
    assert not ran.json["complete"]
    assert ran.json["measured_requests"] == 0


def test_an_interrupt_before_there_is_anything_answers_nothing(
    rooflm: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while the capacity is looked for: exit code 130, and no half of an answer."""

    def pressed(self: Server, until: int | None = None) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Server, "advance", pressed)
    ran = rooflm(*SERVE, *RANDOM)

    assert (ran.code, ran.out) == (Exit.INTERRUPTED, "")
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--rate 0", "'0' is not a positive number (--rate)"),
        ("--rate -2", "(--rate)"),
        ("--rate 4 --clients 3", "requests come at a rate, from clients, or as a trace says"),
        ("", "how requests come is needed (--rate). Say --rate 4"),
        ("--clients 0", "0 is below 1 (--clients)"),
        ("--rate 4 --prompt 900k", "never fits: it takes 56,258 of"),
        ("--rate 4 --prompt nonsense", "'nonsense' is not a length (--prompt)"),
        ("--rate 4 --requests 0", "0 is below 1 (--requests)"),
        ("--rate 4 --requests 10 --warm-up 10", "all 10 requests would be left out (--warm-up)"),
        ("--rate 4 --think 1s", "(--think)"),
        ("--rate 4 --seed -1", "(--seed)"),
        ("--rate 4 --scheduler fifo", "unknown value 'fifo' (--scheduler). Known: chunked"),
        ("--rate 4 --cache 100TB", "GB of memory (--cache)"),
        ("--rate 4 --watermark 2", "(--watermark)"),
        ("--rate 4 --unit-cost", "Say --scheduler prefill-first, or static."),
        ("--rate 4 --prefill-servers 2", "nothing is handed on (--prefill-servers)"),
        ("--rate 4 --burstiness 0", "(--burstiness)"),
        ("--find-rate", "a rate is found for a promise (--find-rate)"),
        ("--clients 4 --find-rate --slo-ttft 1s", "requests that are drawn (--find-rate)"),
        ("--sweep batch=3", "live traffic is swept over rates (--sweep)"),
        ("--trace nowhere.csv", "no such file"),
        ("--rate 4 --routing-policy random", "(--routing-policy)"),
        ("--rate 4 --find-rate --slo-ttft 1us", "one rate, several, or the largest"),
        ("--clients 4 --sweep rate=1,2", "clients have no rate (--sweep)"),
        ("--arrivals burst --rate 3", "have no rate (--arrivals)"),
        ("--rate 4 --prefix-groups 3", "it says nothing without --prefix (--prefix-groups)"),
        ("--rate 4 --cache 1B", "hold no block of the cache (--cache)"),
        ("--rate 4 --block 1G", "is more than 65,536 (--block)"),
        ("--rate 4 --contiguous longest --max-len 100", "(--max-len)"),
        ("--sweep rate=1:1000000:1", "rates: a sweep has 1 to 1,000 (--sweep)"),
        (
            "--rate 1 --prompt 120k --basis bound --prefill-on l4 --handoff 50GB",
            "never fits where prompts are computed (--prefill-on)",
        ),
    ],
)
def test_bad_options_end_with_one_sentence(rooflm: Terminal, words: str, said: str) -> None:
    """Usage errors: exit code 2, one line on the error stream that says what and where."""
    ran = rooflm(*SERVE, *words.split())

    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert said in ran.err
    assert ran.err.startswith("rooflm: error: ")
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n", "Name them arrival_s, prompt_tokens and output_tokens. Found: a, b."),
        ("arrival_s,prompt_tokens\n1,2\n", "output_tokens"),
        ("arrival_s,prompt_tokens,output_tokens\n0,x,3\n", ":2"),
        ("arrival_s,prompt_tokens,output_tokens\n", "trace.csv"),
        ("", "trace.csv"),
    ],
)
def test_bad_traces_end_with_one_sentence(
    rooflm: Terminal, tmp_path: Path, text: str, said: str
) -> None:
    """Traces without columns or rows, or with words for numbers: which file, which line."""
    path = tmp_path / "trace.csv"
    path.write_text(text, "utf-8")
    ran = rooflm(*SERVE, "--trace", str(path))

    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1


WORDS: dict[str, Any] = {
    "model": "llama-3-8b", "on": "h100-sxm", "requests": "600", "prompt": "exponential:500",
    "output_tokens": "exponential:100", "max_sequences": "32", "replications": "1", "rate": "1",
}  # fmt: skip


def served_by(**words: str) -> tuple[Service, Traffic]:
    """Make a service and what comes to it."""
    typed = {**WORDS, **words}
    return find_service(typed), find_traffic(typed)


def test_a_rate_at_the_capacity_has_no_answer() -> None:
    """At it and above, waits have no end and are null; from 95 % on they are said not to settle."""
    service, traffic = served_by()
    most = capacity(service, traffic.make(1.0, 0)) or 0.0
    for share, stable, load in (
        (0.5, True, "stable"), (0.94, True, "stable"), (0.95, True, "near saturation"),
        (0.999, True, "near saturation"), (1.0, False, "unstable"), (1.5, False, "unstable"),
    ):  # fmt: skip
        row = at_rate(service, traffic, share * most, Slo(ttft_s=1.0), limit=most)

        assert (row["stable"], row["load"]) == (stable, load)
        waits = [row["ttft_s"]["mean"], row["e2e_s"]["p99"], row["time_split"]["queueing_s"],
                 row["goodput_requests_per_s"], row["attainment"]]  # fmt: skip
        assert all(value is None for value in waits) == (not stable)
        assert any(value is None for value in waits) == (not stable)
        # Steps are full, however long the queue: these are known.
        assert row["itl_s"]["mean"] > 0
        assert row["throughput_tokens_per_s"] > 0


def test_an_overloaded_server_is_said_to_be_unstable(rooflm: Terminal) -> None:
    """The command finds the capacity itself, and shows no waits above it."""
    answer = rooflm.json(
        *SERVE, "--rate", "1000", "--requests", "600", "--prompt", "exponential:500",
        "--output-tokens", "exponential:100", "--max-sequences", "32", "--replications", "1",
    )  # fmt: skip

    assert answer["stable"] is False
    assert answer["ttft_s"] == dict.fromkeys(SPREAD)
    assert 1 < answer["capacity_requests_per_s"] < 1000


def test_the_capacity_is_a_figure_of_the_service() -> None:
    """The same at any rate and whenever it is asked; other seeds are within 10 %."""
    service, traffic = served_by(requests="2000")
    found = [capacity(service, traffic.make(rate, 0)) or 0.0 for rate in (1.0, 1.0, 20.0)]
    others = [capacity(service, traffic.make(1.0, seed)) for seed in (1, 2, 3)]

    assert found[0] == found[1] == found[2]
    assert others == pytest.approx([found[0]] * 3, rel=0.1)
    # What a server that is always busy gets through: twice the servers get twice as far.
    twice = find_service({**WORDS, "on": "2xh100-sxm", "replicas": "2"})
    assert capacity(twice, traffic.make(1.0, 0)) == pytest.approx(2 * found[0], rel=0.05)


def test_waits_explode_at_the_capacity() -> None:
    """It is where queues begin: waits are short at 80 % of it, and grow with the run at 110 %."""
    service, traffic = served_by(requests="4000")
    most = capacity(service, traffic.make(1.0, 0)) or 0.0
    waits: dict[float, float] = {}
    for share in (0.8, 1.1):
        times = latencies(simulate(service, traffic.make(share * most, 0)))
        early, late = (float((times.start - times.arrival)[part].mean())
                       for part in (slice(1000, 2000), slice(3000, 4000)))  # fmt: skip
        waits[share] = late
        if share > 1:
            assert late > 1.8 * early

    assert waits[0.8] < waits[1.1] / 20


@pytest.mark.parametrize("law", ["", "exponential:"])
def test_the_capacity_does_not_hang_on_the_number_of_requests(law: str) -> None:
    """A hundred requests, fewer than run at once, tell that of ten thousand to a fifth."""
    words = {"prompt": f"{law}500", "output_tokens": f"{law}100", "max_sequences": "256"}
    few, many = (served_by(**words, requests=number) for number in ("100", "10000"))

    assert capacity(few[0], few[1].make(1.0, 0)) == pytest.approx(
        capacity(many[0], many[1].make(1.0, 0)), rel=0.2
    )


@pytest.mark.parametrize("slo", [Slo(ttft_s=0.1), Slo(itl_s=0.009), Slo(0.1, 0.0095, 4.0)])
def test_a_found_rate_is_where_the_promise_begins_to_break(slo: Slo) -> None:
    """Direct runs with the same seed: at the rate it is kept, and soon above it is not."""
    service, traffic = served_by()
    share = 0.9

    told = find_rate(service, traffic, slo, share)

    (rate,) = told["found"]
    assert told["rate_requests_per_s"] == rate
    kept = [
        met(latencies(simulate(service, traffic.make(part * rate, 0)), traffic.warm_up), slo).mean()
        for part in (1.0, 1.002, 1.005, 1.01, 1.02, 1.03)
    ]
    assert kept[0] >= share > min(kept[1:])


def test_a_stricter_promise_gives_no_larger_rate() -> None:
    """Rates fall with each limit, with the share that must keep it, and with limits together."""
    service, traffic = served_by()

    def rate(slo: Slo, share: float = 0.9) -> float:
        return find_rate(service, traffic, slo, share)["rate_requests_per_s"]

    by_ttft = [rate(Slo(ttft_s=limit)) for limit in (1.0, 0.2, 0.1, 0.05)]
    by_itl = [rate(Slo(itl_s=limit)) for limit in (0.012, 0.009, 0.008)]
    by_share = [rate(Slo(ttft_s=0.1), share) for share in (0.5, 0.9, 0.99)]
    for found in (by_ttft, by_itl, by_share):
        assert found == sorted(found, reverse=True)
        assert found[0] > found[-1]
    both = rate(Slo(ttft_s=0.1, itl_s=0.009))
    assert both <= 1.01 * min(by_ttft[2], by_itl[1])


def test_a_found_rate_is_the_mean_of_replications(rooflm: Terminal) -> None:
    """Each seed finds its own rate; the answer is their mean, its interval, and a run at it."""
    answer = rooflm.json(
        *SERVE, "--find-rate", "--slo-ttft", "100ms", "--requests", "300", "--prompt",
        "exponential:500", "--output-tokens", "exponential:100", "--max-sequences", "32",
        "--replications", "3",
    )  # fmt: skip

    found = answer["found_rate"]
    told = interval(found["found"])
    assert len(set(found["found"])) == 3
    assert found["rate_requests_per_s"] == pytest.approx(told["mean"])
    assert found["half_width"] == pytest.approx(told["half_width"])
    assert answer["rate_requests_per_s"] == found["rate_requests_per_s"]
    assert found["attainment_asked"] == 0.9


def test_a_found_rate_can_be_served(rooflm: Terminal) -> None:
    """A promise that any stable rate keeps finds the capacity, at which all requests keep it."""
    answer = rooflm.json(
        *SERVE, "--find-rate", "--slo-itl", "10s", "--requests", "300", "--replications", "1",
    )  # fmt: skip

    found = answer["found_rate"]
    assert answer["stable"]
    assert found["limit"] == "capacity"
    assert found["rate_requests_per_s"] == pytest.approx(
        found["capacity_requests_per_s"] * (1 - RATE_DIGITS)
    )
    assert answer["attainment"] == 1
    assert 0 < answer["ttft_s"]["mean"] < answer["ttft_s"]["p99"] < answer["duration_s"]


def test_an_impossible_promise_is_refused() -> None:
    """A first token in a microsecond is kept by no rate: the sentence says in how few cases."""
    service, traffic = served_by(requests="50")
    with pytest.raises(
        RooflmError, match="even one request at a time keeps it in less than 90 %"
    ) as told:
        find_rate(service, traffic, Slo(ttft_s=1e-6), 0.9)
    assert told.value.code is Exit.NO


def test_clients_keep_their_number_in_flight(rooflm: Terminal) -> None:
    """Twelve clients that never think: Little's law gives them back, and no capacity is told."""
    answer = rooflm.json(
        *SERVE, "--clients", "12", "--rounds", "40", "--prompt", "200", "--output-tokens", "50"
    )

    assert answer["requests"] == 480
    assert answer["stable"] is None
    assert answer["capacity_requests_per_s"] is None
    inside = answer["throughput_requests_per_s"] * answer["e2e_s"]["mean"]
    assert inside == pytest.approx(12, rel=0.03)


def test_replicas_share_the_requests(rooflm: Terminal) -> None:
    """Two chips with a replica each serve twice the clients as one chip serves the half."""
    words = ("--rounds", "5", "--prompt", "200", "--output-tokens", "50")
    one = rooflm.json(*SERVE, "--clients", "8", *words)
    two = rooflm.json(
        "serve", "llama-3-8b", "--on", "2xh100-sxm", "--replicas", "2", "--clients", "16", *words
    )

    assert two["e2e_s"] == pytest.approx(one["e2e_s"], rel=1e-9)
    assert two["throughput_tokens_per_s"] == pytest.approx(2 * one["throughput_tokens_per_s"])


def test_prompts_that_are_computed_elsewhere_are_sent(rooflm: Terminal) -> None:
    """One request: its prefill, and 1000 tokens of 131,072 B at 1 GB/s before its first token."""
    words = ("--requests", "1", "--warm-up", "0", "--rate", "1", "--prompt", "1000",
             "--output-tokens", "20", "--replications", "1")  # fmt: skip
    whole = rooflm.json(*SERVE, *words)
    handed = rooflm.json(*SERVE, *words, "--prefill-on", "h100-sxm", "--handoff", "1GB")

    sent = handed["ttft_s"]["mean"] - whole["ttft_s"]["mean"]
    assert sent == pytest.approx(131_072_000 / 1e9, rel=1e-3)
    assert handed["itl_s"]["mean"] == pytest.approx(whole["itl_s"]["mean"], rel=1e-9)


def test_a_deployment_is_one_server_for_its_ranks() -> None:
    """Eight ranks of a split model are one engine, and messages are a share of its time."""
    words = {**WORDS, "model": "llama-3-70b", "on": "8xh100-sxm", "tp": "8", "requests": "50"}
    service, traffic = find_service(words), find_traffic(words)
    made = run(traffic.make(2.0, 0), service.pool)

    row = at_rate(service, traffic, 2.0, Slo())
    assert len(made.servers) == 1
    assert 0.01 < row["time_split"]["communication_share"] < 0.6
    assert made.end == row["duration_s"]
    assert max(made.trace.finish) / TICKS == made.end
