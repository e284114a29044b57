"""Hybrids, compressed caches, layer embeddings and diffusion through the command line.

Sizes are written out here and put together by hand: what a sequence keeps, what a step moves. Every
command is held against that, against the counts of tests/golden, and against the other commands.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NamedTuple

import pytest

from rooflm.calc import definitions
from rooflm.calc.definitions import Question
from rooflm.calc.explain import resolve
from rooflm.calc.symbols import number, symbolic_case

from .golden import table
from .helpers import Terminal, only
from .test_explain import lecture_or, numbers

GOLDEN: dict[str, dict[str, Any]] = table("models")
BANDWIDTH, PEAK = 3.35e12, 989e12
"""Of an H100: bytes and FLOPs in a second, in bf16."""
SIXTEEN = ("--weights", "bf16")
EXACT = 1e-12
"""Relative difference of two numbers that are computed in different orders."""


class Sequence(NamedTuple):
    """What a sequence keeps, and what a decode step moves of it [B]."""

    cache: int
    state: int
    moved: float
    """Read and written."""


class Choice(NamedTuple):
    """Experts of a model: so many layers, E in each, k of them chosen, the weights of one."""

    layers: int
    E: int
    k: int
    weights: int


@dataclass(frozen=True)
class Preset:
    """A preset, and where it is asked about."""

    name: str
    batch: int
    context: int
    capacity: str
    """Capacity that holds the weights and more."""
    sequence: Callable[[int], Sequence]
    """Tells what a sequence of so many tokens keeps."""
    gathered: int
    """Elements of the rows that tables of embeddings give for each sequence of a step."""
    experts: Choice | None = None

    @property
    def machine(self) -> tuple[str, ...]:
        """Words that name the model, the machine and 16 bits, in which all is counted by hand."""
        return self.name, "--on", "h100-sxm", "--capacity", self.capacity, *SIXTEEN

    @property
    def words(self) -> tuple[str, ...]:
        """Words that name the point as well."""
        return *self.machine, "--batch", str(self.batch), "--context", str(self.context)

    @property
    def parameters(self) -> int:
        """Parameters by an independent count."""
        return GOLDEN[self.name]["total"]

    @property
    def least_weights(self) -> int:
        """Bytes of weights that a step reads where all tokens are alike."""
        return 2 * (GOLDEN[self.name]["streamed"] + self.batch * self.gathered)

    @property
    def weights(self) -> float:
        """Bytes of weights that a step reads: experts that others choose come on top."""
        if self.experts is None:
            return self.least_weights
        layers, E, k, weights = self.experts
        distinct = E * (1 - (1 - k / E) ** self.batch)
        return self.least_weights + 2 * layers * weights * (distinct - k)


def attention_and_state(
    layers: int, token: int, others: int, recurrent: int, columns: int
) -> Callable[[int], Sequence]:
    """Tell what a hybrid keeps: so many layers that attend, so many with a state.

    token: elements of a token in a layer that attends; recurrent: numbers of a state, in fp32;
    columns: those of its convolution, in bf16. A step reads all tokens and writes one, and reads
    and writes the states.
    """

    def sequence(S: int) -> Sequence:
        each, state = 2 * layers * token, others * (4 * recurrent + 2 * columns)
        return Sequence(each * S, state, each * (S + 1) + 2 * state)

    return sequence


def deepseek_v4_pro(S: int) -> Sequence:
    """Thirty layers with an entry for 4 tokens, 31 with one for 128, all with a window of 128.

    Of the former 1024 entries are read, and the index keys of all. A row of the open windows is
    written each step; read are two of those that an entry pools twice, and one of the others.
    """
    entry, key = 512, 128
    near, far = S // 4, S // 128
    window = min(S, 128) * entry
    cache = 61 * window + 30 * near * (entry + key) + 31 * far * entry
    rows = 2 * 2 * (entry + key), 2 * entry
    state = 30 * 8 * rows[0] + 31 * 128 * rows[1]
    read = 61 * window + 30 * (entry * min(near, 1024) + key * near) + 31 * entry * far
    written = 61 * entry + 30 * (entry + key) / 4 + 31 * entry / 128
    opened = 30 * rows[0] * (2 + 1) + 31 * rows[1] * (1 + 1)
    return Sequence(2 * cache, 4 * state, 2 * (read + written) + 4 * opened)


def gemma_4_e2b(S: int) -> Sequence:
    """Twelve local and three global layers keep something; sixteen and four read it again."""
    local, everywhere = 2 * 256, 2 * 512
    near = min(S, 512)
    cache = 12 * local * near + 3 * everywhere * S
    read = 28 * local * near + 7 * everywhere * S
    written = 12 * local + 3 * everywhere
    return Sequence(2 * cache, 0, 2 * (read + written))


def llada(S: int) -> Sequence:
    """Nothing is kept of a sequence, whatever its length."""
    return Sequence(0, 0, 0)


PRESETS = (
    Preset("deepseek-v4-pro", 3, 2**20, "3200GB", deepseek_v4_pro, gathered=7168,
        experts=Choice(61, 384, 6, 3 * 7168 * 3072)),
    Preset("qwen3-next-80b-a3b", 5, 4096, "200GB",
        attention_and_state(12, 2 * 2 * 256, 36, 32 * 128 * 128, 3 * (2 * 16 + 32) * 128),
        gathered=2048, experts=Choice(48, 512, 10, 3 * 2048 * 512)),
    Preset("nemotron-h-8b", 7, 4096, "80GB",
        attention_and_state(4, 2 * 8 * 128, 24, 128 * 64 * 128, 3 * (128 * 64 + 2 * 8 * 128)),
        gathered=4096),
    Preset("jamba-v0.1", 3, 10_000, "141GB",
        attention_and_state(4, 2 * 8 * 128, 28, 8192 * 16, 3 * 8192), gathered=4096,
        experts=Choice(16, 16, 2, 3 * 4096 * 14336)),
    Preset("gemma-4-e2b", 4, 3000, "24GB", gemma_4_e2b, gathered=1536 + 35 * 256),
    Preset("llada-8b", 2, 700, "24GB", llada, gathered=700 * 4096),
)  # fmt: skip
DENOISES = PRESETS[-1]
"""A step of it computes all tokens of a sequence, not one."""
BESIDE = ("even_batch",)
"""The batch that decoding catches up at is searched: it has no formula of its own."""
MORE = (
    "zamba2-2.7b", "falcon-h1-0.5b", "minimax-m3", "deepseek-v3.2", "rwkv-4-7b", "gemma-3n-e2b",
    "lfm2-350m", "recurrentgemma-2b",
)  # fmt: skip
"""Other kinds of layers, whose columns are explained as well."""

each_preset = pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.name)


@each_preset
def test_show_tells_what_is_stored_and_kept(rooflm: Terminal, preset: Preset) -> None:
    """Parameters of the independent count; state and growth of the cache by hand."""
    answer = rooflm.json("show", preset.name, *SIXTEEN)
    parts = dict(answer["parameters"])
    total, active, streamed = (parts.pop(key) for key in ("total", "active", "streamed"))

    assert total == sum(parts.values()) == preset.parameters
    assert (active, streamed) == tuple(GOLDEN[preset.name][k] for k in ("active", "streamed"))
    assert answer["weights_bytes"] == 2 * total
    cache = answer["cache"]
    if preset is DENOISES:
        assert {v for k, v in cache.items() if k != "layers"} == {None}
        return
    far = 2**20
    grown = preset.sequence(far + 128).cache - preset.sequence(far).cache
    assert 2 * 128 * cache["growing_elements_per_token"] == grown
    assert cache["bytes_per_token"] == 2 * cache["elements_per_token"]
    assert cache["state_bytes_per_sequence"] == preset.sequence(far).state
    kept = [layer["count"] * layer["state_elements_per_sequence"] for layer in cache["layers"]]
    assert cache["state_elements_per_sequence"] == sum(kept)


@each_preset
def test_fit_tells_what_fills_the_memory(rooflm: Terminal, preset: Preset) -> None:
    """Cache and states by hand; the kinds add up; the most sequences fit, and one more does not."""
    row = only(rooflm("fit", *preset.words, "--format", "json").json["rows"])
    kinds = row["memory"]
    each = preset.sequence(preset.context)

    assert kinds["weights_bytes"] == 2 * preset.parameters
    assert kinds["kv_cache_bytes"] == preset.batch * each.cache
    assert kinds.get("state_bytes", 0) == preset.batch * each.state
    assert row["memory_bytes"] == sum(kinds.values())
    assert row["margin_bytes"] == row["capacity_bytes"] - row["memory_bytes"]
    assert row["fits"] == (row["margin_bytes"] >= 0)
    reserved = row["reserved_kv_cache_bytes"]
    assert (
        reserved["needed"] == kinds["kv_cache_bytes"] <= min(reserved["paged"], reserved["padded"])
    )
    assert fitting(rooflm, preset, "--batch", row["max_sequences"]) == [True, False]


def fitting(rooflm: Terminal, preset: Preset, option: str, value: int) -> list[bool]:
    """Ask whether a batch or a context fits, and whether one more does."""
    words = dict(zip(preset.words[-4::2], preset.words[-3::2], strict=True))
    words |= {"--context": "700"} if option == "--batch" and preset is DENOISES else {}
    words[option] = f"{value},{value + 1}"
    asked = [word for pair in words.items() for word in pair]
    answer = rooflm("fit", *preset.machine, *asked, "--format", "json").json
    return [row["fits"] for row in answer["rows"]]


@each_preset
def test_sweep_is_bounded_by_what_has_to_move(rooflm: Terminal, preset: Preset) -> None:
    """Bytes by hand; bound, floor and bytes at full bandwidth in order; memory as `fit` says."""
    row = only(rooflm.json("sweep", *preset.words)["rows"])
    fit = only(rooflm("fit", *preset.words, "--format", "json").json["rows"])
    each = preset.sequence(preset.context)
    moved = preset.batch * each.moved
    least_s = (preset.least_weights + moved) / BANDWIDTH

    assert row["bytes"] == pytest.approx(preset.weights + moved, rel=EXACT)
    assert row["bound_s"] >= row["floor_s"] * (1 - EXACT)
    assert row["floor_s"] == pytest.approx(max(least_s, row["flops"] / PEAK), rel=EXACT)
    assert {key: row[key] for key in fit["memory"]} == fit["memory"]
    assert (row["memory_bytes"], row["fits"]) == (fit["memory_bytes"], fit["fits"])
    assert row["time_s"] == row["bound_s"]
    assert row["tokens_per_s"] == pytest.approx(preset.batch / row["bound_s"], rel=EXACT)
    assert row["intensity_flops_per_byte"] == pytest.approx(row["flops"] / row["bytes"], rel=EXACT)
    # Few sequences decode far below the ridge; denoising computes all tokens of a sequence.
    regime, slowest = ("compute", PEAK) if preset is DENOISES else ("memory", BANDWIDTH)
    assert row["regime"] == regime
    limit = row["flops" if preset is DENOISES else "bytes"] / slowest
    assert limit * (1 - EXACT) <= row["bound_s"] < 1.01 * limit


def test_a_denoising_step_computes_every_token(rooflm: Terminal) -> None:
    """Work by hand; a decode step beside it reads the weights and a whole cache, and is faster."""
    B, S, L, N, H = DENOISES.batch, DENOISES.context, 32, 32, 128
    row = only(rooflm.json("sweep", *DENOISES.words)["rows"])
    golden = GOLDEN[DENOISES.name]
    multiplied = golden["streamed"] - golden["norms"]

    assert row["flops"] == 2 * B * S * multiplied + 4 * L * N * H * S * S * B
    assert (row["passes"], row["tokens_per_pass"]) == (1, 1)
    read = 2 * (golden["streamed"] + B * 4096) + B * 2 * L * 2 * N * H * (S + 1)
    assert row["autoregressive_tokens_per_s"] == pytest.approx(B * BANDWIDTH / read, rel=EXACT)
    faster = row["tokens_per_s"] / row["autoregressive_tokens_per_s"]
    assert row["speedup"] == pytest.approx(faster, rel=EXACT)
    assert faster < row["even_batch"] == 1


@each_preset
def test_explain_gives_the_bound_of_the_sweep(rooflm: Terminal, preset: Preset) -> None:
    """The value of the formula is the column, and the sum of its subtotals."""
    answer = rooflm.json("explain", "bound_s", *preset.words)
    bound = only(rooflm.json("sweep", *preset.words)["rows"])["bound_s"]

    assert answer["value"] == pytest.approx(bound, rel=EXACT)
    parts = [t["value"] for t in answer["terms"] if t["name"] != "bound_s"]
    assert sum(parts) == pytest.approx(bound, rel=EXACT)


@pytest.mark.parametrize("name", [*(preset.name for preset in PRESETS), *MORE])
def test_every_column_has_a_formula_that_gives_it(rooflm: Terminal, name: str) -> None:
    """Columns of sweep, fit and show equal what their definitions in symbols evaluate to."""
    preset = next((p for p in PRESETS if p.name == name), None)
    words = (name, "--on", "h100-sxm", "--batch", "3", "--context", "5000")
    batch, context, capacity, more = 3, 5000, None, ()
    if preset is not None:
        more = SIXTEEN
        words, batch, context = preset.words, preset.batch, preset.context
        capacity = int(preset.capacity.removesuffix("GB")) * 10**9
    columns = columns_of(rooflm, words)
    asked = Question(replace(lecture_or(name, more), capacity_bytes=capacity), batch, context)
    value_of = by_parts(asked)
    assert len(columns) > 30

    differ = {
        key: (value, found)
        for key, value in columns.items()
        if (found := value_of(key)) != pytest.approx(value, rel=EXACT)
    }
    assert differ == {}


def by_parts(question: Question) -> Callable[[str], float]:
    """Define every quantity; then give the value of each, out of the values of its parts.

    To compose one formula of many layers first takes seconds for each.
    """
    symbolic = symbolic_case(question.case)
    known = definitions.definitions(question, symbolic)
    values = symbolic.values | definitions.point(question)

    @cache
    def value_of(name: str) -> float:
        inner = {s: value_of(s.name) for s in known[name].free_symbols if s.name in known}
        return number(known[name], values | inner)

    return lambda quantity: value_of(resolve(quantity, known))


def columns_of(rooflm: Terminal, words: tuple[str, ...]) -> dict[str, float]:
    """List the numeric columns of sweep, fit and show."""
    row = only(rooflm("fit", *words, "--format", "json").json["rows"])
    shown = rooflm.json("show", words[0], *(SIXTEEN if "--weights" in words else ()))
    tables = [only(rooflm.json("sweep", *words)["rows"]), row.pop("memory"), row]
    tables += [shown["weights_bytes_by_format"], shown["parameters"]]
    tables += [{k: v for k, v in shown["cache"].items() if k not in ("layers", "reference")}]
    columns = [pair for part in tables for pair in numbers(part)]
    return {key: value for key, value in columns if key not in BESIDE}


@each_preset
def test_solved_batches_and_contexts_are_exact(rooflm: Terminal, preset: Preset) -> None:
    """The solved number fits and the next one does not, by `fit` and by hand."""
    words = dict(zip(preset.words[-4::2], preset.words[-3::2], strict=True))
    for unknown in ("batch", "context"):
        known = [w for k, v in words.items() if k != f"--{unknown}" for w in (k, v)]
        answer = rooflm.json("solve", unknown, *preset.machine, *known)
        value = answer["value"]

        assert answer["feasible"]
        assert fitting(rooflm, preset, f"--{unknown}", value) == [True, False]
        B, S = (value, preset.context) if unknown == "batch" else (preset.batch, value)
        each = preset.sequence(S)
        room = int(preset.capacity.removesuffix("GB")) * 10**9 - 2 * preset.parameters
        assert B * (each.cache + each.state) < room


def test_a_solved_context_of_entries_is_the_longest(rooflm: Terminal) -> None:
    """Of all contexts around it those up to the solved one fit, though entries come in steps."""
    preset = PRESETS[0]
    B, capacity = preset.batch, int(preset.capacity.removesuffix("GB")) * 10**9
    batch = ("--batch", str(B))
    value = rooflm.json("solve", "context", *preset.machine, *batch)["value"]
    around = range(value - 300, value + 301)
    contexts = ",".join(map(str, around))
    rows = rooflm.json("sweep", *preset.machine, *batch, "--context", contexts)["rows"]
    held = [B * sum(preset.sequence(S)[:2]) + 2 * preset.parameters for S in around]

    assert [row["fits"] for row in rows] == [value >= S for S in around]
    assert [r["memory_bytes"] - r["activations_bytes"] for r in rows] == held
    assert [r["fits"] for r in rows] == [r["memory_bytes"] <= capacity for r in rows]
