"""Plans: nothing that a brute force finds is better, and every command gives its row's figures."""

from __future__ import annotations

import itertools
import json
import math
import random
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from rooflm.calc.attention import Attention
from rooflm.calc.candidates import divisors, least_for, make_unit, time_at
from rooflm.calc.case import Case, figures, memory_bytes, slowest
from rooflm.calc.deployment import Node, Spread, deploy
from rooflm.calc.errors import Exit, RooflmError
from rooflm.calc.experts import Experts
from rooflm.calc.layout import Layout
from rooflm.calc.layout_search import AIMS, Ask, Site
from rooflm.calc.memory import largest, largest_near
from rooflm.calc.mla import MLA
from rooflm.calc.mlp import MLP
from rooflm.calc.model import Group, Model, has_experts
from rooflm.calc.plan import plan
from rooflm.calc.presets import find_machine
from rooflm.calc.solve import Target, solve
from rooflm.calc.typed import Counting, Estimating, make_case

from .helpers import Terminal, only

DENSE = Model("dense", 64, 640, (Group(5, Attention(N=8, K=2, H=16), MLP(240)),))
ROUTED = Model("routed", 64, 640, (
    Group(1, Attention(N=8, K=2, H=16), MLP(192)),
    Group(2, Attention(N=8, K=2, H=16), Experts(F=48, E=6, k=2)),
))  # fmt: skip
LATENT = Model("latent", 64, 640, (
    Group(3, MLA(N=4, c=32, r=8, d=16, v=16), Experts(F=48, E=4, k=1, shared=48)),
))  # fmt: skip
CONTEXT = 100
AXES = ("replicas", "tp", "pp", "dp", "ep", "cp")


@dataclass(frozen=True)
class Tried:
    """A layout at a batch, as a brute force finds it."""

    layout: Layout
    batch: int
    seconds: float

    @property
    def rate(self) -> float:
        """Tokens per second of all devices."""
        return self.batch / self.seconds

    @property
    def each(self) -> float:
        """Tokens per second of each device."""
        return self.rate / self.layout.devices


def site(model: Model, room: int, node: int | None = None, estimate: bool = False) -> Site:
    """Put a model on devices that hold so many times its weights in thousandths."""
    typed = Counting(estimating=Estimating(basis="estimate") if estimate else None)
    case = make_case(model, find_machine("h100-sxm"), typed)
    whole = memory_bytes(case, 1, CONTEXT)
    case = replace(case, capacity_bytes=whole * room // 1000)
    spread = Spread(network_bytes_per_s=None if node is None else 2e10, latency_s=1e-7)
    return Site(case, "h100-sxm", node, spread, model="model")


def brute_force(where: Site, devices: Sequence[int]) -> list[Tried]:
    """Try all degrees up to the number of devices, at every batch that fits, without shortcuts."""
    found: list[Tried] = []
    for n in devices:
        for ways in itertools.product(range(1, n + 1), repeat=len(AXES)):
            degrees = dict(zip(AXES, ways, strict=True))
            if math.prod(degrees[axis] for axis in ("replicas", "tp", "pp", "dp")) != n:
                continue
            node = Node("x")
            if where.node is not None:
                size = where.node
                node = Node("x", n) if n <= size else Node("x", size, n // size)
            try:
                case = deploy(where.case, replace(where.spread, **degrees), node)
                found += every_batch(case, Layout(**degrees))
            except RooflmError:
                continue
    return found


def every_batch(case: Case, layout: Layout) -> list[Tried]:
    """Time a layout at all batches that fit."""
    found: list[Tried] = []
    batch = 0
    while memory_bytes(case, batch := batch + 1, CONTEXT) <= case.limit[0]:
        segments = case.step(batch, CONTEXT)
        slow = slowest(case, segments)
        row = figures(slow, segments, slow.ledger(segments), batch)
        if case.basis == "estimate" and row["estimate_s"] is None:
            break
        found.append(Tried(layout, batch, row["time_s"]))
    return found


SITES: dict[str, tuple[Callable[[], Site], tuple[int, ...]]] = {
    "dense": (lambda: site(DENSE, 1010), (1, 2, 4)),
    "dense, tight": (lambda: site(DENSE, 600), (1, 2, 3, 4)),
    "dense, estimates": (lambda: site(DENSE, 1010, estimate=True), (1, 2, 4)),
    "dense, nodes of 2": (lambda: site(DENSE, 700, node=2), (1, 2, 4)),
    "dense, nodes of 3": (lambda: site(DENSE, 700, node=3), (3, 6)),
    "routed": (lambda: site(ROUTED, 500), (1, 2, 4)),
    "routed, nodes of 3": (lambda: site(ROUTED, 600, node=3), (3, 6)),
    "latent": (lambda: site(LATENT, 560), (2, 4)),
    "latent, nodes of 2": (lambda: site(LATENT, 560, node=2), (2, 4)),
}


def asks(tried: Sequence[Tried], devices: tuple[int, ...], seed: int) -> list[Ask]:
    """Draw targets from what is there, and a little beyond it."""
    drawn = random.Random(seed)
    basic = Ask(devices, CONTEXT)
    found = [basic, *(replace(basic, by=aim) for aim in AIMS)]
    for _ in range(5):
        some, other = drawn.choice(tried), drawn.choice(tried)
        latency = some.seconds * drawn.choice([0.2, 1, 1.0001, 1.3])
        rate = other.rate * drawn.choice([0.7, 0.9999, 1, 1.2])
        found.append(
            replace(
                basic,
                latency_s=drawn.choice([None, latency]),
                tokens_per_s=drawn.choice([None, rate]),
                batch=drawn.choice([None, None, some.batch]),
                by=drawn.choice([None, *AIMS]),
            )
        )
    return found


def key(tried: Tried, ask: Ask) -> tuple[float, ...]:
    """Order by what is asked, the smaller the better."""
    return {
        "cost": (-tried.each, tried.seconds),
        "latency": (tried.seconds, -tried.each),
        "throughput": (-tried.rate, tried.seconds),
        "devices": (tried.layout.devices, -tried.each if ask.tokens_per_s is None
                    else tried.seconds),
    }[ask.aim]  # fmt: skip


@pytest.mark.parametrize("name", SITES)
def test_nothing_that_a_brute_force_finds_is_better(name: str) -> None:
    """Feasibility, the number of layouts, and the best one, for random targets."""
    make, devices = SITES[name]
    where = make()
    every = brute_force(where, devices)
    assert len(every) > 50
    basis = where.case.basis
    for ask in asks(every, devices, seed=len(every)):
        good = [
            t for t in every
            if (ask.latency_s is None or t.seconds <= ask.latency_s)
            and (ask.tokens_per_s is None or t.rate >= ask.tokens_per_s)
            and ask.batch in (None, t.batch)
        ]  # fmt: skip
        answer = plan(where, replace(ask, top=3), basis)

        assert answer["feasible"] == bool(good), ask
        if not has_experts(where.case.model):
            good = [t for t in good if t.layout.dp == 1]
        assert answer["qualifying"] == len({t.layout for t in good}), ask
        # Of layouts that differ in replicas alone the best is listed.
        best: dict[Layout, tuple[float, ...]] = {}
        for tried in good:
            kind = replace(tried.layout, replicas=1)
            best[kind] = min(best.get(kind, (math.inf,)), key(tried, ask))
        rows = [of_row(row) for row in answer["rows"]]
        assert {(t.layout, t.batch) for t in rows} <= {(t.layout, t.batch) for t in good}, ask
        wanted = sorted(best.values())[:3]
        for mine, theirs in zip((key(t, ask) for t in rows), wanted, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-9), ask


def of_row(row: dict[str, Any]) -> Tried:
    """Read a layout, its batch and its time off a row."""
    return Tried(Layout(**{axis: row[axis] for axis in AXES}), row["batch"], row["time_s"])


@pytest.mark.parametrize("ways", [{"pp": 3, "tp": 2}, {"replicas": 3, "pp": 2}, {"dp": 2, "pp": 3}])
def test_the_smallest_batch_for_a_rate_is_that_of_a_scan(ways: dict[str, int]) -> None:
    """Of parts that are no powers of two, where one sequence more may yield less."""
    model = ROUTED if "dp" in ways else DENSE
    where = site(model, 3000)
    # So long that a sequence more of a part is felt.
    unit = make_unit(where.case, Layout(**ways), where.spread, Node("h100-sxm"), 20_000)
    most = 4 * unit.case.parts + 1
    rates = {B: B / (time_at(unit, B) or math.inf) for B in range(1, most + 1)}
    for wanted in rates.values():
        if rates[most] < wanted:
            continue
        found = least_for(unit, wanted * (1 - 1e-12), most)
        assert found == min(B for B, rate in rates.items() if rate >= wanted * (1 - 1e-12))
    even = 2 * unit.case.parts
    reached = min(B for B, rate in rates.items() if rate >= rates[even] * (1 - 1e-12))
    target = Target(tokens_per_s=rates[even] * (1 - 1e-12))
    assert solve(unit.case, "batch", 1, 20_000, target)["value"] == reached


def test_a_row_is_not_better_than_the_frontier(rooflm: Terminal) -> None:
    """Rows whose batch is dealt out evenly stand in it, and say that it is even."""
    words = ("llama-3-70b", "--on", "h200-sxm", "--context", "1k", "--devices", "4,8", "--tp", "2",
             "--link", "100GB", "--basis", "bound")  # fmt: skip
    answer = rooflm.json("plan", *words)
    assert answer["fewest_devices"] == 4
    points = [(r["time_s"], r["tokens_per_s_per_device"]) for r in answer["frontier"]]
    for row in answer["rows"]:
        time, each = row["time_s"] * (1 + 1e-9), row["tokens_per_s_per_device"] * (1 - 1e-9)
        assert any(t <= time and e >= each for t, e in points)
    for slower, faster in itertools.combinations(reversed(points), 2):
        assert slower[0] > faster[0]
        assert slower[1] > faster[1]
    even = next(r for r in answer["rows"] if r["limit"] == "even")
    one_more = shlex.split(
        even["command"].replace(f"--batch {even['batch']}", f"--batch {even['batch'] + 1}")
    )
    assert only(rooflm.json(*one_more[1:])["rows"])["fits"]


def test_a_miss_of_both_targets_tells_both(rooflm: Terminal) -> None:
    """A layout that is hardly too slow and yields far too little is not near."""
    words = ("llama-3-8b", "--on", "h100-sxm", "--devices", "1,2", "--latency", "1ms")
    answer = rooflm("plan", *words, "--throughput", "1e9", "--format", "json")
    assert answer.code == Exit.NO
    assert "times too long and yields" in answer.json["reason"]


@pytest.mark.parametrize("name", ["routed", "latent, nodes of 2"])
def test_nothing_beats_the_frontier(name: str) -> None:
    """Of layouts at powers of two and at the most that fits, none is better in both."""
    make, devices = SITES[name]
    where = make()
    every = brute_force(where, devices)
    rows = plan(where, Ask(devices, CONTEXT))["frontier"]
    points = [(r["time_s"], r["tokens_per_s_per_device"]) for r in rows]

    assert points == sorted(points)
    assert len({each for _, each in points}) == len(points)
    for tried in every:
        batch = tried.batch / tried.layout.replicas
        most = max(t.batch for t in every if t.layout == tried.layout)
        if batch in (1, 2, 4, 8, 16, 32) or tried.batch == most:
            near = (tried.seconds * (1 + 1e-9), tried.each * (1 - 1e-9))
            assert any(t <= near[0] and each >= near[1] for t, each in points), tried


LLAMA = ["llama-3-70b", "--on", "h100-sxm", "--context", "4k"]
COMMANDS = [
    "llama-3-70b --on h100-sxm --devices 1:16 --context 4k --latency 30ms --top 4",
    "llama-3-8b --on h100-sxm --devices 1:4 --basis estimate --throughput 5k --weights fp8 --top 3",
    "llama-3-8b --on 4xh100-sxm --devices 1:8 --network 50GB --batch 64 --price 2 --top 3",
    "mixtral-8x7b --on h100-sxm --devices 4 --kv fp8 --set L=16 --link 300GB --link-latency 1us "
    "--all-reduce two-shot --routing zipf:1.0 --time-model overlap --pue 1.2 --top 3",
]  # fmt: skip


@pytest.mark.parametrize("words", COMMANDS)
def test_the_command_of_a_row_gives_its_figures(rooflm: Terminal, words: str) -> None:
    """Rows and frontier: the sweep that a row names has the same figures, costs included."""
    answer = rooflm.json("plan", *words.split())
    rows = [*answer["rows"], *answer["frontier"][::4]]
    assert answer["rows"]
    for row in rows:
        program, *rest = shlex.split(row["command"])
        assert program == "rooflm"
        (swept,) = rooflm.json(*rest)["rows"]

        same = {k: v for k, v in swept.items() if k not in ("ttft_s", "e2e_s")}
        assert {k: row[k] for k in same} == same
        assert row["fits"]
        assert row["devices"] in answer["devices"]


def test_targets_are_met_or_the_nearest_is_told(rooflm: Terminal) -> None:
    """Exit 1 with a reason and the layout that misses by least."""
    words = [
        "llama-3-70b",
        "--on",
        "h100-sxm",
        "--devices",
        "1:8",
        "--context",
        "4k",
        "--basis",
        "bound",
    ]
    met = rooflm.json("plan", *words, "--latency", "12ms", "--throughput", "1500")
    assert all(r["time_s"] <= 0.012 and r["tokens_per_s"] >= 1500 for r in met["rows"])

    for targets, reason, text in (
        (["--latency", "1ms"], "too slow", "times too long"),
        (["--throughput", "1M"], "too few tokens a second", "times too few"),
        (["--devices", "1"], "does not fit", "times the memory"),
    ):
        ran = rooflm("plan", *words, *targets, "--format", "json")
        assert ran.code == Exit.NO
        answer = json.loads(ran.out)
        assert answer["feasible"] is False
        assert text in answer["reason"]
        assert answer["nearest"]["reason"] == reason
        assert answer["nearest"]["factor"] > 1
        assert reason in [r["reason"] for r in answer["rejected"]]
        counted = sum(r["layouts"] for r in answer["rejected"])
        assert answer["layouts"] == answer["qualifying"] + counted
        assert rooflm("plan", *words, *targets).code == Exit.NO


def test_links_that_are_not_known_reject_layouts(rooflm: Terminal) -> None:
    """Between nodes without a network, and between chips without any link."""
    words = ["llama-3-8b", "--on", "4xh100-sxm", "--devices", "8", "--throughput", "1000"]
    answer = rooflm.json("plan", *words)
    assert all(r["replicas"] > 1 for r in answer["rows"])
    assert any("network" in r["reason"] for r in answer["rejected"])
    assert any(r["replicas"] == 1 for r in rooflm.json("plan", *words, "--network", "50GB")["rows"])

    lone = rooflm.json("plan", "llama-3-8b", "--on", "apple-m2-ultra", "--devices", "1:2")
    assert any("no link" in r["reason"] for r in lone["rejected"])
    assert lone["rows"][0]["devices"] == 1


def test_estimates_and_bounds_are_not_ranked_against_each_other(rooflm: Terminal) -> None:
    """Where one layout has no estimate the default is the bound, and says so; typed, it is kept."""
    words = ["llama-3-8b", "--on", "h100-sxm", "--context", "4k", "--devices"]
    known = rooflm.json("plan", *words, "1,2,4")
    assert known["basis"] == "estimate"
    # Nobody timed all-reduces among sixteen of these.
    some = rooflm.json("plan", *words, "1,2,4,16")
    assert {r["basis"] for r in [*some["rows"], *some["frontier"]]} == {"bound"}
    assert any("ranked against a bound" in line for line in some["assumptions"])
    typed = rooflm.json("plan", *words, "1,2,4,16", "--basis", "estimate")
    assert {r["basis"] for r in [*typed["rows"], *typed["frontier"]]} == {"estimate"}
    assert {"reason": "no estimate", "layouts": 2, "example": None} in typed["rejected"]
    bound = rooflm.json("plan", *words, "1", "--time-model", "overlap")
    assert bound["basis"] == "bound"


def test_degrees_may_be_given(rooflm: Terminal) -> None:
    """A typed degree holds in every row."""
    words = ["mixtral-8x7b", "--on", "h200-sxm", "--devices", "4,8", "--tp", "2"]
    answer = rooflm.json("plan", *words, "--ep", "2")
    assert answer["rows"]
    assert all((r["tp"], r["ep"]) == (2, 2) for r in answer["rows"])
    none = rooflm("plan", *words, "--pp", "3")
    assert none.code == Exit.NO
    assert "degrees" in none.out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("llama-3-8b --on h100-sxm --devices 1:1000", "--devices"),
        ("llama-3-8b --on 8xh100-sxm --devices 9", "nodes"),
        ("llama-3-8b --on h100-sxm --by price", "--by"),
        ("llada-8b --on h100-sxm", "denoises"),
        ("llama-3-8b --on h100-sxm --all-reduce tree", "--all-reduce"),
        ("llama-3-8b --on h100-sxm --routing even", "no experts"),
        ("llama-3-8b --on ddr5-6000-dual", "capacity"),
    ],
)
def test_what_cannot_be_planned_is_refused(rooflm: Terminal, words: str, told: str) -> None:
    """One sentence and exit 2."""
    ran = rooflm("plan", *words.split())

    assert ran.code == Exit.USAGE
    assert told in ran.err


def test_the_fewest_devices_are_solved_for(rooflm: Terminal) -> None:
    """One device less does not do, by plan; the command has the figures."""
    words = [
        "llama-3-70b",
        "--on",
        "h100-sxm",
        "--context",
        "4k",
        "--batch",
        "32",
        "--latency",
        "15ms",
    ]
    answer = rooflm.json("solve", "devices", *words)
    n = answer["value"]
    fewer = rooflm("plan", *words, "--basis", "bound", "--devices", f"1:{n - 1}")
    assert fewer.code == Exit.NO
    assert rooflm("plan", *words, "--basis", "bound", "--devices", f"{n}").code == Exit.DONE
    (swept,) = rooflm.json(*shlex.split(answer["command"])[1:])["rows"]
    assert swept["time_s"] == answer["time_s"] <= 0.015
    assert answer["formula"] is None
    assert "tp 4" in answer["reason"]

    never = rooflm("solve", "devices", *words[:3], "--latency", "1us", "--format", "json")
    assert never.code == Exit.NO
    assert "none up to 64" in json.loads(never.out)["reason"]
    rate = rooflm.json("solve", "devices", "llama-3-8b", "--on", "h100-sxm", "--throughput", "60k")
    assert rate["tokens_per_s"] >= 60_000


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("--tp 2", "solved for"),
        ("--gpu-layers 3", "solved for"),
        ("--share 90%", "--share"),
        ("--when compute-bound", "--when"),
        ("--accounting lecture", "one device"),
    ],
)
def test_what_devices_are_not_solved_for_is_refused(
    rooflm: Terminal, words: str, told: str
) -> None:
    """One sentence and exit 2."""
    ran = rooflm("solve", "devices", "llama-3-8b", "--on", "h100-sxm", *words.split())

    assert ran.code == Exit.USAGE
    assert told in ran.err


def test_the_frontier_is_drawn(rooflm: Terminal, tmp_path: Path) -> None:
    """The line holds the rows of the answer."""
    from rooflm.plots.plan import draw

    words = ["llama-3-8b", "--on", "h100-sxm", "--devices", "1:4"]
    answer = rooflm.json("plan", *words, "--latency", "20ms")
    figure: Any = draw(answer)
    line = figure.axes[0].get_lines()[0]

    assert list(line.get_xdata()) == [1e3 * r["time_s"] for r in answer["frontier"]]
    each = [r["tokens_per_s_per_device"] for r in answer["frontier"]]
    assert list(line.get_ydata()) == each
    assert rooflm("plan", *words, "--plot", str(tmp_path / "plan.png")).code == Exit.DONE
    assert (tmp_path / "plan.png").exists()


def test_a_search_from_a_guess_finds_the_same() -> None:
    """From below, from above and from far off; where all hold, the largest that is asked about."""
    for last, guess, most in itertools.product((0, 1, 7, 99, 100), (1, 8, 50, 200), (1, 60, 100)):

        def holds(n: int, last: int = last, most: int = most) -> bool:
            assert 1 <= n <= most
            return n <= last

        assert largest_near(holds, guess, most) == min(last, most)
        assert largest_near(holds, guess, most) == largest(lambda n, last=last: n <= last, most)
    assert divisors(36) == [1, 2, 3, 4, 6, 9, 12, 18, 36]
