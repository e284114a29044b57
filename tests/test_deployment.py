"""Deployments through the command line: the same options and numbers for every command."""

from __future__ import annotations

from typing import Any

import pytest

from rooflm.calc.errors import Exit
from rooflm.calc.plain import is_list
from rooflm.calc.units import parse_size

from .golden import table
from .helpers import Terminal, only

QUESTIONS: list[dict[str, Any]] = table("questions_devices")["questions"]
LLAMA = "llama-3-70b --on h100-sxm"
LAYOUTS = [
    "llama-3-70b --on h100-sxm --tp 8 --batch 16 --context 4096",
    "llama-3-70b --on h100-sxm --pp 2 --tp 4 --batch 13 --context 4096",
    "deepseek-v3 --on h200-sxm --dp 8 --ep 8 --weights fp8-block --batch 3 --context 4096",
    "deepseek-v3 --on h200-sxm --tp 8 --cp 4 --weights fp8-block --batch 64 --context 4096",
]


def row(rooflm: Terminal, words: str) -> dict[str, Any]:
    """Sweep one point, at the bound."""
    return only(rooflm.json("sweep", *words.split(), "--basis", "bound")["rows"])


def test_a_node_is_its_devices(rooflm: Terminal) -> None:
    """8xh100-sxm is --tp 8, and 2x8xh100-sxm sixteen, joined by a network."""
    node = row(rooflm, "llama-3-70b --on 8xh100-sxm --batch 8")

    assert node == row(rooflm, f"{LLAMA} --tp 8 --batch 8")
    assert node["devices"] == 8
    nodes = row(rooflm, "llama-3-70b --on 2x8xh100-sxm --tp 8 --pp 2 --network 50GB --batch 8")
    assert nodes["devices"] == 16
    assert "devices" not in row(rooflm, "llama-3-70b --on 1xh100-sxm")


def test_one_rank_is_no_layout(rooflm: Terminal) -> None:
    """Degrees of 1 change nothing, to the bit."""
    for words in ("llama-3-8b --on h100-sxm --batch 3", "mixtral-8x7b --on mi300x --batch 3"):
        ones = f"{words} --tp 1 --pp 1 --ep 1 --dp 1 --cp 1 --replicas 1"
        for command in ("sweep", "fit", "compare", "roofline"):
            assert rooflm.json(command, *ones.split()) == rooflm.json(command, *words.split())


def test_commands_agree(rooflm: Terminal) -> None:
    """Sweep, fit, compare and roofline have the same figures of the same layout."""
    for words in LAYOUTS:
        swept = row(rooflm, words)
        fit = rooflm.json("fit", *words.split())
        compared = only(rooflm.json("compare", *words.split(), "--basis", "bound")["rows"])
        lines = rooflm.json("roofline", *words.split())["operators"]
        stages = 2 if "--pp 2" in words else 1

        assert fit["memory_bytes"] == swept["memory_bytes"]
        assert fit["devices"] == swept["devices"]
        assert swept["tokens_per_s_per_device"] == swept["tokens_per_s"] / swept["devices"]
        assert compared["tokens_per_s_per_device"] == swept["tokens_per_s_per_device"]
        for key in ("memory_bytes", "bound_s", "tokens_per_s", "devices", "fits"):
            assert compared[key] == swept[key]
        total = stages * sum(line["bound_s"] for line in lines)
        assert total == pytest.approx(swept["bound_s"], rel=1e-12)


@pytest.mark.parametrize("words", LAYOUTS[1::2])
def test_explain_agrees_with_sweep(rooflm: Terminal, words: str) -> None:
    """The formula of a figure has its value, of the rank or the model that it is of."""
    swept = row(rooflm, words)
    keys = ["bound_s", "floor_s", "memory_bytes", "weights_bytes", "kv_cache_bytes"]
    large = words.startswith("deepseek")
    keys += ["touched_parameters", "devices", "tokens_per_s_per_device"]
    if large:
        keys = ["floor_s" if "--ep" in words else "memory_bytes"]
    for key in keys:
        value = rooflm.json("explain", key, *words.split())["value"]
        assert value == pytest.approx(swept[key], rel=1e-12), key
    if large:
        # Its further figures go the same way, five seconds each.
        return
    fit = rooflm.json("fit", *words.split())
    reserved = rooflm.json("explain", "reserved_kv_cache_bytes.paged", *words.split())["value"]
    assert reserved == pytest.approx(fit["reserved_kv_cache_bytes"]["paged"], rel=1e-12)
    if "--pp" not in words:
        most = rooflm.json("explain", "max_sequences", *words.split())["value"]
        assert most == fit["max_sequences"]


@pytest.mark.parametrize(
    "words",
    [
        "mixtral-8x7b --on h200-sxm --tp 4 --ep 4 --batch 1024 --context 100 --weights q4_k",
        "gpt-oss-120b --on h200-sxm --tp 4 --ep 4 --batch 64 --context 100 --weights q4_k",
        "longcat-flash-chat --on h200-sxm --batch 4096 --context 100",
    ],
)
def test_the_floor_of_experts_elsewhere_is_explained(rooflm: Terminal, words: str) -> None:
    """All tokens may choose experts of other ranks, or empty ones: neither bytes nor work."""
    swept = row(rooflm, words)

    assert swept["floor_s"] <= swept["bound_s"]
    assert rooflm.json("explain", "floor_s", *words.split())["value"] == pytest.approx(
        swept["floor_s"], rel=1e-12
    )


def test_what_crosses_nodes_goes_over_the_network(rooflm: Terminal) -> None:
    """Tp fills a node first: groups of dp then cross, stages of a replica in one node do not."""
    groups = "deepseek-v3 --on 2x8xh200-sxm --tp 4 --dp 4 --batch 64"
    odd = "deepseek-v3 --on 2x6xh200-sxm --tp 4 --replicas 3"
    for words in (groups, odd):
        refused = rooflm("sweep", *words.split())
        assert refused.code == Exit.USAGE
        assert "--network" in refused.err
    slow, fast = (row(rooflm, f"{groups} --network {n}")["time_s"] for n in ("25GB", "50GB"))
    assert slow > fast

    stages = "llama-3-70b --on 2x8xh200-sxm --batch 64 --pp"
    inside = row(rooflm, f"{stages} 8 --replicas 2")["time_s"]
    assert row(rooflm, f"{stages} 8 --replicas 2 --network 1MB")["time_s"] == inside
    # Of fifteen hops one is between nodes, which sixteen stage times count in each: 4 rows of D.
    far, near = 4 * 8192 * 2 / 25e9, 4 * 8192 * 2 / 450e9
    hop = row(rooflm, f"{stages} 16 --network 25GB")["time_s"]
    free = row(rooflm, f"{stages} 16 --network 450GB")["time_s"]
    assert hop - free == pytest.approx(16 * (far - near) / 15, rel=1e-6)
    # A network as fast as the links of a node is no other than a node of sixteen.
    whole = row(rooflm, "llama-3-70b --on 16xh200-sxm --batch 64 --pp 16")["time_s"]
    assert free == pytest.approx(whole, rel=1e-12)


def test_batches_are_solved_where_they_are_dealt_out_in_steps(rooflm: Terminal) -> None:
    """A power with a whole exponent is not multiplied out; a side may not grow with the batch."""
    for words in ("jamba-v0.1 --on h200-sxm --pp 3 --share 90%",
                  "jamba-v0.1 --on h200-sxm --pp 2 --when compute-bound"):  # fmt: skip
        assert rooflm.json("solve", "batch", *words.split())["value"] > 1000


def test_replicas_scale_throughput(rooflm: Terminal) -> None:
    """Twice the replicas and sequences: the same time and memory, twice the tokens and room."""
    words = "llama-3-8b --on h100-sxm --tp 2 --context 3000"
    one = row(rooflm, f"{words} --batch 32")
    two = row(rooflm, f"{words} --batch 64 --replicas 2")

    assert (two["time_s"], two["memory_bytes"]) == (one["time_s"], one["memory_bytes"])
    assert two["tokens_per_s"] == 2 * one["tokens_per_s"]
    # An odd sequence makes one replica do as much as another sequence would.
    assert row(rooflm, f"{words} --batch 63 --replicas 2")["time_s"] == two["time_s"]
    room = [
        rooflm.json("fit", *words.split(), "--replicas", n)["max_sequences"] for n in ("1", "2")
    ]
    assert room[1] == 2 * room[0]


@pytest.mark.parametrize("model", ["llama-3-70b", "deepseek-v3", "gemma-3-27b", "nemotron-h-8b"])
def test_no_device_holds_more_along_an_axis(rooflm: Terminal, model: str) -> None:
    """Weights and cache of a device do not grow with the ranks of an axis."""
    for axis, ways in (("--tp", "1 2 4 8"), ("--pp", "1 2 4"), ("--replicas", "1 2 3")):
        held = [
            row(rooflm, f"{model} --on h200-sxm {axis} {n} --batch 24 --context 4096")
            for n in ways.split()
        ]
        for key in ("weights_bytes", "kv_cache_bytes"):
            sizes = [point[key] for point in held]
            assert sizes == sorted(sizes, reverse=True)


def test_more_ranks_stop_helping(rooflm: Terminal) -> None:
    """Once a message costs something, a step is fastest at some number of ranks."""
    words = f"{LLAMA} --batch 16 --context 4096 --link-latency 2us"
    times = [row(rooflm, f"{words} --tp {n}")["time_s"] for n in (1, 2, 4, 8, 16, 32, 64)]
    best = times.index(min(times))

    assert 0 < best < len(times) - 1
    assert times[:best] == sorted(times[:best], reverse=True)
    assert times[best:] == sorted(times[best:])


def test_few_sequences_wait_for_all_stages_once(rooflm: Terminal) -> None:
    """One sequence reads all weights once, wherever they are; nothing is sent over a free link."""
    free = "--link 1e18"
    alone = row(rooflm, "llama-3-8b --on h100-sxm")
    for pp in (2, 4, 7):
        one = row(rooflm, f"llama-3-8b --on h100-sxm --pp {pp} {free}")
        assert one["floor_s"] == pytest.approx(alone["floor_s"], rel=1e-4)
        assert one["bound_s"] == pytest.approx(alone["bound_s"], rel=1e-4)
        full = row(rooflm, f"llama-3-8b --on h100-sxm --pp {pp} {free} --batch {pp}")
        # The last stage, with the head, is the slowest, and each sequence waits for it once.
        assert full["bound_s"] > one["bound_s"]
    words = ["llama-3-8b", "--on", "h100-sxm", "--pp", "4"]
    assert "fewer sequences than stages" in rooflm("explain", "bound_s", *words).err
    assert "no one formula" in rooflm.json("solve", "context", *words, "--latency", "6ms")["reason"]


def test_few_sequences_are_not_one_for_each_group(rooflm: Terminal) -> None:
    """Experts of a pass see the tokens that there are, not one for each group."""
    words = "deepseek-v3 --on h200-sxm --dp 8 --ep 8 --weights fp8-block --batch"
    times = [row(rooflm, f"{words} {n}")["time_s"] for n in (1, 4, 8)]

    assert times[0] < times[1] < times[2]


def test_requests_under_a_layout(rooflm: Terminal) -> None:
    """Prefills are divided as well, and a slow link is named as the limit."""
    prompt = "llama-3-70b --on h100-sxm --phase request --prompt 2048 --output-tokens 400 --batch 4"
    one, eight = row(rooflm, prompt), row(rooflm, f"{prompt} --tp 8")

    assert 1 < one["ttft_s"] / eight["ttft_s"] < 8
    assert eight["memory_bytes"] < one["memory_bytes"]
    slow = row(rooflm, f"{prompt} --tp 8 --link 1GB")
    assert slow["regime"] == "communication"
    first = prompt.replace("request", "prefill").replace(" --output-tokens 400", "")
    assert row(rooflm, f"{first} --tp 8 --link 1GB")["regime"] == "communication"
    assert row(rooflm, f"{first} --tp 8")["regime"] == "compute"


@pytest.mark.parametrize(
    ("layout", "latency"), [("--tp 4", "10ms"), ("--replicas 3", "10ms"), ("--pp 3", "20ms")]
)
def test_solved_values_are_exact(rooflm: Terminal, layout: str, latency: str) -> None:
    """The value meets the target, and one more does not."""
    base = f"llama-3-8b --on h100-sxm {layout}"
    limit = float(latency.removesuffix("ms")) / 1e3
    within = rooflm.json("solve", "batch", *base.split(), "--latency", latency)["value"]
    room = rooflm.json("solve", "batch", *base.split())["value"]

    times = [row(rooflm, f"{base} --batch {n}")["time_s"] for n in (within, within + 1)]
    assert times[0] <= limit < times[1]
    fits = [row(rooflm, f"{base} --batch {n}")["fits"] for n in (room, room + 1)]
    assert fits == [True, False]
    longest = rooflm.json("solve", "context", *base.split(), "--batch", "6")["value"]
    for tokens, answer in ((longest, True), (longest + 1, False)):
        assert row(rooflm, f"{base} --batch 6 --context {tokens}")["fits"] is answer


def test_smallest_batch_of_replicas(rooflm: Terminal) -> None:
    """No smaller batch reaches the throughput, though odd ones are slower than even ones."""
    base = "llama-3-8b --on h100-sxm --replicas 2"
    value = rooflm.json("solve", "batch", *base.split(), "--throughput", "9000")["value"]

    rates = [row(rooflm, f"{base} --batch {n}")["tokens_per_s"] for n in range(1, value + 1)]
    assert rates[-1] >= 9000 > max(rates[:-1])
    limits = [
        rooflm.json("solve", "throughput", *base.split()[:3], *more)["value"]
        for more in ((), ("--replicas", "2"))
    ]
    assert limits[1] == pytest.approx(2 * limits[0], rel=1e-12)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"{LLAMA} --tp 3", "Possible: 1, 2, 4, 8, 16, 32 or 64."),
        (f"{LLAMA} --pp 81", "Possible: 1 to 80."),
        (f"{LLAMA} --tp 8 --cp 3", "Possible: 1, 2, 4 or 8."),
        (f"{LLAMA} --tp 0", "0 is below 1 (--tp)"),
        (f"{LLAMA} --tp 8,4", "not a positive whole number (--tp)"),
        (f"{LLAMA} --replicas 1000000000000", "more than 10,000 (--replicas)"),
        (f"{LLAMA} --dp 100000000000", "more than 10,000 (--dp)"),
        ("llama-3-70b --on apple-m1 --tp 2", "--link"),
        ("llama-3-70b --on 2x8xh100-sxm --tp 8 --pp 2", "--network"),
        ("llama-3-70b --on 2x8xh100-sxm", "--network"),
        ("llama-3-70b --on 4xh100-sxm --tp 2", "tp * pp * dp * replicas has to be 4"),
        ("qwen2.5-7b --on 8xh100-sxm", "--tp 4 with --pp, --dp or --replicas"),
        (f"{LLAMA} --tp 8 --accounting lecture", "--accounting"),
        ("llama-3-8b --on h100-sxm --tp 2 --denoise-block 32 --denoise-steps 8", "denoising"),
        (f"{LLAMA} --tp 8 --all-reduce tree", "ring, one-shot, two-shot, in-switch"),
        ("llama-3-70b --on 0xh100-sxm", "0 devices"),
        ("llama-3-70b --on 8x", "unknown hardware '8x'"),
        ("llama-3-70b --on 8xh100", "h100-pcie"),
        ("llama-3-70b --on 99999xh100-sxm", "99,999 devices"),
        ("llama-3-70b --on 9999x9999xh100-sxm", "99,980,001 devices"),
        ("llama-3-8b --on apple-m1 --gpu-share 120%", "--gpu-share"),
    ],
)
def test_impossible_deployments_say_what_would_do(rooflm: Terminal, words: str, says: str) -> None:
    """Each is refused with exit 2, and the message names the way out."""
    ran = rooflm("sweep", *words.split())

    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert says in ran.err


def test_a_gpu_may_use_a_share(rooflm: Terminal) -> None:
    """The share makes the capacity smaller everywhere; without it unified memory says its part."""
    base = "llama-3-8b --on apple-m2-ultra"
    whole, part = (rooflm.json("fit", *base.split(), *m) for m in (("--gpu-share", "1"), SHARE))
    usual = rooflm.json("fit", *base.split())

    assert (whole["capacity_bytes"], part["capacity_bytes"]) == (192e9, 144e9)
    # macOS lends so much by default, and nobody has to know it.
    assert usual["capacity_bytes"] == 144e9
    assert any("75 % of the nominal memory: what macOS" in said for said in usual["assumptions"])
    assert not any("macOS" in said for said in part["assumptions"] + whole["assumptions"])
    for command in ("sweep", "compare"):
        assert only(rooflm.json(command, *base.split(), *SHARE)["rows"])["capacity_bytes"] == 144e9
    value = rooflm.json("explain", "capacity_bytes", *base.split(), *SHARE)["value"]
    assert value == 144e9
    assert rooflm.json("solve", "batch", *base.split(), *SHARE)["value"] == part["max_sequences"]


SHARE = ("--gpu-share", "75%")


@pytest.mark.parametrize("asked", QUESTIONS, ids=[q["source"] for q in QUESTIONS])
def test_a_question_about_devices_is_answered(rooflm: Terminal, asked: dict[str, Any]) -> None:
    """Every command finds the figures worked by hand, or says why there are none."""
    for answer in asked["answers"]:
        ran = rooflm(*answer["run"].split(), "--format", "json")
        if "refused" in answer:
            assert ran.code == Exit.USAGE
            assert answer["refused"] in ran.err
            continue
        assert ran.code in (Exit.DONE, Exit.NO), ran.err
        for key, said in answer["expect"].items():
            sized = isinstance(said, str) and said[:1].isdigit() and said.endswith("B")
            expected = parse_size(said, key) if sized else said
            if "rel" in answer:
                expected = pytest.approx(expected, rel=answer["rel"])
            value: Any = ran.json
            for step in key.split("."):
                value = value[int(step) if is_list(value) else step]
            assert value == expected, f"{answer['run']}: {key}"


@pytest.mark.parametrize(
    ("words", "said_gib", "digits"),
    [
        # What an engine holds beside weights: a table of rotary angles, positions * 128 * 2 B.
        # Blocks of torch's allocator are 2 MiB: 0.002 GiB.
        ("llama-3.1-8b --tp 2", 7.51 - 131072 * 256 / 2**30, 0.005),
        ("qwen3-30b-a3b --tp 4", 14.2474 - 40960 * 256 / 2**30, 0.0025),
        ("llama-3.1-70b --tp 4 --weights fp8", 16.96 - 131072 * 256 / 2**30, 0.011),
    ],
)
def test_weights_of_a_rank_are_those_of_servers(
    rooflm: Terminal, words: str, said_gib: float, digits: float
) -> None:
    """What servers print at the start is what a rank holds and a table of rotary angles."""
    held = only(rooflm.json("show", *words.split())["ranks"])["weights_bytes"] / 2**30

    assert held == pytest.approx(said_gib, abs=digits)


@pytest.mark.parametrize(
    ("model", "tp", "gigabytes"),
    [
        ("llama-2-7b", 2, 7.000652), ("llama-2-7b", 4, 3.762814), ("llama-2-7b", 8, 2.143836),
        ("llama-2-70b", 2, 69.506098), ("llama-2-70b", 4, 35.273875), ("llama-2-70b", 8, 18.16464),
    ],
)  # fmt: skip
def test_bytes_of_a_rank_are_those_of_gpt_fast(
    rooflm: Terminal, model: str, tp: int, gigabytes: float
) -> None:
    """gpt-fast prints the bytes of each rank; it splits neither the embedding nor the head."""
    answer = rooflm.json("show", model, "--tp", str(tp))
    parts = answer["parameters"]
    tables = 2 * (parts["embedding"] + parts["head"])
    held = only(answer["ranks"])["weights_bytes"] - tables / tp + tables
    assert held == pytest.approx(1e9 * gigabytes, rel=2e-3)


@pytest.mark.parametrize(
    ("model", "tp", "kind", "bits", "gigabytes"),
    [
        ("llama-2-70b", 8, "int8-weights", 8, 9.349080),
        ("llama-2-70b", 8, "int4-g32", 5, 6.038339),
        ("llama-2-70b", 1, "int4-g32", 5, 43.471683),
        ("llama-2-7b", 1, "int8-weights", 8, 6.872349),
        ("llama-2-7b", 1, "int4-g32", 5, 4.383587),
    ],
)
def test_quantized_bytes_of_a_rank_are_those_of_gpt_fast(
    rooflm: Terminal, model: str, tp: int, kind: str, bits: float, gigabytes: float
) -> None:
    """Its head is quantized and whole on each rank, its embedding whole in 16 bits.

    github.com/meta-pytorch/gpt-fast, README: bandwidth over tokens a second.
    """
    formats = ("--weights", f"head={kind},rest={kind}")
    answer = rooflm.json("show", model, *formats, "--tp", str(tp))
    tables = answer["parameters"]["embedding"] * (2 + bits / 8)

    held = only(answer["ranks"])["weights_bytes"] + (1 - 1 / tp) * tables
    assert held == pytest.approx(1e9 * gigabytes, rel=2e-3)


def test_nodes_are_explained_at_the_bound(rooflm: Terminal) -> None:
    """A measured curve has no formula: of several devices the bound is explained, not a crash."""
    words = ("llama-3-70b", "--on", "8xh100-sxm", "--batch", "4")
    for key in ("time_s", "tokens_per_s", "output_usd_per_mtok"):
        (swept,) = rooflm.json("sweep", *words, "--basis", "bound", "--cost")["rows"]
        value = rooflm.json("explain", key, *words)["value"]
        assert value == pytest.approx(swept[key], rel=1e-12)
    assert rooflm("explain", "estimate_s", *words).code == Exit.USAGE


def test_a_large_node_and_a_network_are_told(rooflm: Terminal) -> None:
    """Sixteen devices under one name are one node, and the answer says so."""
    words = ("llama-3-70b", "--batch", "4", "--tp", "8", "--pp", "2")
    one = " ".join(rooflm.json("sweep", *words, "--on", "16xh100-sxm")["assumptions"])
    two = " ".join(
        rooflm.json("sweep", *words, "--on", "2x8xh100-sxm", "--network", "50GB/s")["assumptions"]
    )

    assert "all 16 devices are taken to be of one node" in one
    assert "between nodes: 50 GB/s" in two
    assert "taken to be of one node" not in two


@pytest.mark.parametrize(
    ("on", "layout", "link"),
    [
        ("2xh100-nvl", "--tp 2", "300GB"),
        ("4xh100-nvl", "--tp 4", "63GB"),
        ("4xh100-nvl", "--tp 2 --replicas 2", "300GB"),
        ("8xrtx-3090", "--tp 8", "31GB"),
        ("2xa100-pcie-80gb", "--tp 2", "300GB"),
        ("4xh200-nvl", "--tp 4", "450GB"),
        ("8xh200-nvl", "--tp 8", "63GB"),
        ("2xmi300x", "--tp 2", "64GB"),
        ("4xmi300x", "--tp 4", "192GB"),
        ("8xmi300x", "--tp 8", "448GB"),
        ("8xmi355x", "--tp 2 --replicas 4", "76.5GB"),
        ("8xh100-sxm", "--tp 8", "450GB"),
    ],
)
def test_a_bridge_joins_two_and_a_mesh_has_a_link_for_each_pair(
    rooflm: Terminal, on: str, layout: str, link: str
) -> None:
    """NVIDIA's bridges join 2 cards, those of the H200 NVL 4; an MI300X has 64 GB/s to each other.

    Sources: product pages of the A30, H100 NVL and H200 NVL, GA102 white paper; AMD's data sheet.
    """
    words = ["sweep", "llama-3-70b", "--on", on, *layout.split(), "--batch", "64"]
    words += ["--basis", "bound"]
    (own,) = rooflm.json(*words)["rows"]
    (typed,) = rooflm.json(*words, "--link", link)["rows"]

    assert own["bound_s"] == typed["bound_s"]


def test_stages_beyond_a_bridge_go_over_the_bus(rooflm: Terminal) -> None:
    """Two pairs of cards: sums of 2 over the bridge, one hop of 64 x 8,192 in bf16 over PCIe."""
    words = ["sweep", "llama-3-70b", "--on", "4xh100-nvl", "--tp", "2", "--pp", "2"]
    words += ["--batch", "128", "--basis", "bound"]
    answer, bridged = rooflm.json(*words), rooflm.json(*words, "--link", "300GB")
    hop = 64 * 8192 * 2

    assert only(answer["rows"])["time_s"] - only(bridged["rows"])["time_s"] == pytest.approx(
        2 * hop * (1 / 63e9 - 1 / 300e9), rel=1e-6
    )
    assert "nvlink joins 2 devices of h100-nvl; beyond them 63 GB/s" in " ".join(
        answer["assumptions"]
    )


def test_an_estimate_waits_for_a_latency_that_is_typed(rooflm: Terminal) -> None:
    """48 layers with two messages each and ring steps of 30 us: the estimate is not below them."""
    words = ["sweep", "codellama-34b", "--on", "a100-sxm-80gb", "--tp", "4", "--weights", "fp16"]
    (before,) = rooflm.json(*words)["rows"]
    (row,) = rooflm.json(*words, "--link-latency", "30us")["rows"]

    # Two all-reduces a layer of 2 (4 - 1) steps each.
    assert row["bound_s"] - before["bound_s"] > 48 * 2 * 6 * 30e-6
    assert row["bound_s"] < row["estimate_s"]
