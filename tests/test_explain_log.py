"""Logs of engines are read and explained; figures and formats are in logs/sources.yaml."""

from __future__ import annotations

import io
import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rooflm.calc.errors import RooflmError
from rooflm.calc.log_explain import explain_file, explain_log
from rooflm.calc.log_lines import MOST_CHARACTERS, decoded, plain, rank_of
from rooflm.calc.log_patterns import PATTERNS
from rooflm.calc.log_read import read_log
from rooflm.calc.log_words import FIGURES, SETTINGS
from rooflm.calc.presets import preset_of

from .helpers import Terminal

LOGS = Path(__file__).parent / "logs"
SOURCES: list[dict[str, Any]] = yaml.safe_load((LOGS / "sources.yaml").read_text("utf-8"))
FIGURE_KEYS = {
    "name", "line", "rank", "ranks", "says", "value", "unit", "unit_means", "bytes", "expected",
    "agrees", "off", "how", "fills",
}  # fmt: skip


def excerpt(name: str) -> str:
    """Read an excerpt."""
    return (LOGS / f"{name}.txt").read_bytes().decode()


def explained(log: str | bytes, **options: str) -> dict[str, Any]:
    """Explain a log that is at hand."""
    raw = log.encode() if isinstance(log, str) else log
    return explain_log(read_log(decoded(io.BytesIO(raw), "log")), options)


def told(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Sum up what an answer says, wherever the lines stand."""
    return [(f["name"], f["value"], f["expected"], f["agrees"]) for f in answer["figures"]]


def one(answer: dict[str, Any], name: str) -> dict[str, Any]:
    """Find the first figure of a name."""
    return next(f for f in answer["figures"] if f["name"] == name)


@pytest.mark.parametrize("row", SOURCES, ids=lambda r: r["file"])
def test_an_excerpt_is_explained(row: dict[str, Any]) -> None:
    """Engine, model and figures are found; what agrees and what does not is told, and why."""
    answer = explain_file(str(LOGS / f"{row['file']}.txt"), row.get("options", {}))

    assert answer["engine"] == row["engine"]
    assert answer["preset"] == row.get("preset")
    for key in ("model", "version", "starts"):
        if key in row:
            assert answer[key] == row[key]
    judged = {
        name: [f["agrees"] for f in answer["figures"] if (f["name"], f["value"]) == (name, value)]
        for name, (value, _) in row["figures"].items()
    }
    assert judged == {name: [agrees] for name, (_, agrees) in row["figures"].items()}
    for name, words in row.get("fills", {}).items():
        assert words in one(answer, name)["fills"]


@pytest.mark.parametrize("row", SOURCES, ids=lambda r: r["file"])
def test_every_figure_says_where_it_comes_from(row: dict[str, Any]) -> None:
    """A figure has all keys; without an expected value it has a reason, and no judgement."""
    answer = explain_file(str(LOGS / f"{row['file']}.txt"), row.get("options", {}))

    for f in answer["figures"]:
        assert set(f) == FIGURE_KEYS
        assert f["how"]
        assert (f["expected"] is None) == (f["agrees"] is None)
        assert f["says"] == FIGURES[f["name"]]
    assert json.loads(json.dumps(answer, allow_nan=False)) == answer


def test_every_excerpt_has_a_source_and_every_source_an_excerpt() -> None:
    """Sources are public addresses, one a file."""
    assert {r["file"] for r in SOURCES} == {p.stem for p in LOGS.glob("*.txt")}
    assert all(r["source"].startswith("https://github.com/") for r in SOURCES)
    assert len(SOURCES) >= 30


def test_every_name_of_a_pattern_is_known() -> None:
    """What a pattern captures is a figure, a setting, or used by one."""
    inner = {
        "model", "version", "banner", "old", "layer", "layer_k", "layer_v", "layer_rope",
        "layer_rank", "latent_twice",
    }  # fmt: skip
    names = {g.rpartition("__")[0] for p in PATTERNS for g in p.regex.groupindex}

    assert names - set(FIGURES) - set(SETTINGS) == inner
    assert all(p.key for p in PATTERNS)


WRAPPED: dict[str, Callable[[str], str]] = {
    "docker compose": lambda s: f"llm-server-1  | {s}",
    "kubernetes": lambda s: f"2025-06-01T10:00:00.123456789Z stdout F {s}",
    "journal": lambda s: f"Sep 11 01:16:15 host app[1884]: {s}",
    "docker json": lambda s: json.dumps({"log": s + "\n", "stream": "stderr"}),
    "colours": lambda s: f"\x1b[36m\x1b[1m{s}\x1b[0m",
    "carriage returns": lambda s: s + "\r",
}
"""What stands around the lines of an engine."""


@pytest.mark.parametrize("wrapped", WRAPPED, ids=str)
@pytest.mark.parametrize(
    "name",
    ["vllm-0.6-llama-3.1-8b-v100-tp2", "vllm-v1-gemma-4-31b", "sglang-qwen3-235b-fp8-tp4",
     "trtllm-blocks-of-32", "llamacpp-2024-trilm", "llamacpp-qwen3.6-27b-hybrid"],
)  # fmt: skip
def test_what_stands_around_a_line_changes_nothing(name: str, wrapped: str) -> None:
    """Prefixes of containers, colours and line ends are looked through."""
    text = excerpt(name)
    around = "\n".join(WRAPPED[wrapped](line) for line in text.splitlines()) + "\n"

    assert told(explained(around)) == told(explained(text))


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_other_encodings_are_read(encoding: str) -> None:
    """UTF-16 with and without its mark, as PowerShell writes it, and a mark before UTF-8."""
    text = excerpt("vllm-0.6-llama-3-8b-table")

    assert told(explained(text.encode(encoding))) == told(explained(text))


def test_ranks_that_print_the_same_are_one_figure() -> None:
    """Four ranks of one size are a line, with their number; the names of ranks are listed."""
    answer = explained(excerpt("vllm-v1-qwen3-30b-tp4"))

    assert one(answer, "weights")["ranks"] == 4
    assert answer["ranks"] == ["rank 0", "rank 1", "rank 2", "rank 3"]


def test_the_rank_with_the_smallest_pool_decides() -> None:
    """Tokens follow from the smallest pool of all ranks: 8.00 GiB / 48,128 B, in whole blocks."""
    text = excerpt("vllm-v1-qwen3-235b-fp8-tp4").replace(
        "Available KV cache memory: 8.11 GiB",
        "(Worker_TP0 pid=1) Available KV cache memory: 8.11 GiB\n"
        "(Worker_TP1 pid=2) Available KV cache memory: 8.02 GiB",
    )
    tokens = one(explained(text), "tokens")

    assert tokens["how"].startswith("8.02 GiB")
    assert tokens["agrees"] is True


def test_a_share_that_is_printed_as_typed_is_not_rounded() -> None:
    """V1 prints the setting itself, older lines two digits of it.

    By hand: 0.9 x 178.36 is 160.52, and 0.9 x 79.15 is 71.24; 71.5 is 0.9033 of it.
    """
    text = excerpt("vllm-v1-gemma-3-4b-suggested")
    old = "the current vLLM instance can use total_gpu_memory (79.15GiB) x gpu_memory_utilization "
    shares = [
        one(explained(log), "usable")["agrees"]
        for log in (text, text.replace("160.53", "168.56"), text.replace("160.53", "152.5"),
                    f"{old}(0.90) = 71.50GiB", f"{old}(0.90) = 72.00GiB")
    ]  # fmt: skip

    assert shares == [True, False, False, True, False]


def test_states_are_in_the_format_that_the_engine_takes() -> None:
    """States of Qwen3-Next are in the model's format in vLLM where no line names another.

    By hand, half of the heads: 544 tokens of 1,024 B are a page, 12 layers a group, and there
    are four groups: 20 GiB / (544 x 1,024 x 12) is 3,212 blocks, 803 a group of 544 tokens each.
    """
    log = (
        "Initializing a V1 LLM engine (v0.11.0) with config: model='Qwen/Qwen3-Next-80B-A3B', "
        "dtype=torch.bfloat16, tensor_parallel_size=2\n"
        "Setting attention block size to 544 tokens\n"
        "Available KV cache memory: 20.00 GiB\nGPU KV cache size: 436,832 tokens\n"
        "Maximum concurrency for 8,192 tokens per request: 53.32x\n"
    )
    said = explained(log)
    tokens, kept = one(said, "tokens"), one(explained(f"{log}mamba_ssm_dtype='float32'"), "tokens")

    assert (tokens["expected"], tokens["agrees"], kept["agrees"]) == (436_832, True, False)
    assert (
        "states in bf16, that of the model, as vLLM V1 keeps them by itself" in said["assumptions"]
    )


def test_keys_of_indexers_are_in_8_bits_beside_a_cache_of_16() -> None:
    """By hand, 78 layers of 2 x 576 B and 132 B, a token of padding (sglang, memory_pool.py)."""
    said = explained(
        "server_args=ServerArgs(model_path='zai-org/GLM-5', tp_size=8, dtype='auto')\n"
        "KV Cache is allocated. dtype: torch.bfloat16, #tokens: 314304, KV size: 29.32 GB\n"
    )
    size = one(said, "kv_size")

    assert size["agrees"] is True
    assert size["expected"] == pytest.approx(314_305 * 78 * (2 * 576 + 132) / 2**30)
    assert "keys of indexers in 8 bits, as SGLang keeps them always" in said["assumptions"]


def test_copies_of_the_up_projections_are_counted_with_weights() -> None:
    """By hand, 61 layers x 16 heads x 256 x 512 in 2 bytes are 244 MiB on each of 8 ranks.

    Source: vllm, mla/common.py. The figure is made: 79.2929 GiB of a rank in fp8, and these.
    """
    said = explained(
        "Initializing a V1 LLM engine (v0.10.0) with config: model='deepseek-ai/DeepSeek-V3', "
        "dtype=torch.bfloat16, tensor_parallel_size=8, quantization=fp8\n"
        "Model loading took 79.5312 GiB and 60.0 seconds\n"
    )
    held = one(said, "weights")

    assert (held["agrees"], "once more in 16 bits" in held["how"]) == (True, True)


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("(Worker_DP1_TP1_EP3 pid=3585771) INFO 08-19 05:56:57 x", "DP1_TP1_EP3"),
        ("[2025-10-16 09:06:22 TP5] Memory pool end.", "TP5"),
        ("[2025-10-16 09:06:22 DP2 TP5] Memory pool end.", "DP2_TP5"),
        ("(VllmWorker rank=3 pid=77) INFO", "rank 3"),
        ("(VllmWorkerProcess pid=507) INFO", "pid 507"),
        ("(RayWorkerWrapper pid=21, ip=10.0.0.1) INFO", "pid 21"),
        ("[1,3]<stdout>:[TensorRT-LLM][INFO] x", "rank 3"),
        ("[rank2]: ValueError", "rank 2"),
        ("INFO 04-24 16:33:13 [kv_cache_utils.py:634] GPU KV cache size", ""),
    ],
)  # fmt: skip
def test_the_rank_of_a_line_is_told_by_its_prefix(line: str, rank: str) -> None:
    """Every engine and launcher marks ranks in its own way."""
    assert rank_of(line) == rank


def test_gb_that_are_gib_are_said_to_be() -> None:
    """A figure in GB of an engine is told in the unit that it means, and in bytes."""
    answer = explained(excerpt("vllm-0.7-llama-3.1-70b-int8"))
    weights = one(answer, "weights")

    assert any("GB of vLLM are GiB" in said for said in answer["assumptions"])
    assert not any("GiB" in s for s in explained(excerpt("vllm-v1-blocks"))["assumptions"])

    assert (weights["unit"], weights["unit_means"]) == ("GB", "GiB")
    assert weights["bytes"] == round(67.7229 * 2**30)


def test_the_last_start_is_explained() -> None:
    """Of a log that begins anew the last start counts, and the answer says how many there were."""
    answer = explained(excerpt("vllm-v1-fp8-cache-two-starts"))

    assert answer["settings"]["max_model_len"] == 221_000
    assert any("2 starts" in said for said in answer["assumptions"])


def test_logs_of_two_engines_are_told_apart() -> None:
    """The last start is explained as its own engine does, whichever wrote more lines."""
    texts = [excerpt("sglang-qwen3-235b-fp8-tp4") * 3, excerpt("vllm-v1-llama-3.1-8b")]
    both = explained("".join(texts))

    assert both["engine"] == "vLLM"
    assert any("lines of SGLang and vLLM are there" in said for said in both["assumptions"])
    assert [f["agrees"] for f in both["figures"]] == [True, None, True]
    assert explained("".join(reversed(texts)))["engine"] == "SGLang"


def test_a_model_that_contradicts_the_log_is_said() -> None:
    """What the user names is held against the figures, and the answer says what the log names."""
    answer = explained(excerpt("vllm-v1-llama-3.1-8b"), model="llama-3-70b")

    assert one(answer, "weights")["agrees"] is False
    assert any("--model llama-3-70b is held against it" in s for s in answer["assumptions"])


def test_packed_caches_and_states_alone_have_a_reason() -> None:
    """Where pages are not modelled nothing is judged; a model of states alone is."""
    lines = (
        "vllm serve x\nGPU KV cache size: 1,009,661 tokens\nAvailable KV cache memory: 7.01 GiB\n"
    )
    packed = one(explained(lines, model="deepseek-v4-flash"), "tokens")
    alone = one(explained(lines.replace("x\n", "x --max-model-len 2048\n"), model="mamba-2.8b"),
                "tokens")  # fmt: skip

    assert (packed["expected"], packed["agrees"]) == (None, None)
    assert "not modelled" in packed["how"]
    assert alone["how"]


def test_a_draft_does_not_hide_the_model() -> None:
    """llama.cpp loads the model that drafts second; the first, larger one is explained."""
    begins = "llama_model_loader: loaded meta data with 30 key-value pairs\n"
    first = begins + excerpt("ollama-llama-3.1-70b-journal")
    second = begins + excerpt("ik-llama-llama-3.1-8b-iq2")

    assert explained(first + second)["preset"] == "llama-3.1-70b"
    assert explained(second + first)["preset"] == "llama-3.1-70b"


@pytest.mark.parametrize(
    ("name", "preset"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("NousResearch/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("Qwen3-30B-A3B-Instruct-2507-FP8", "qwen3-30b-a3b"),
        ("mistralai/Mistral-7B-Instruct-v0.2", "mistral-7b-v0.2"),
        ("deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "llama-3.1-8b"),
        ("Qwen/Qwen2.5-Math-7B", None),
        ("alpaca-2", None),
        ("instruct", None),
        ("", None),
        ("../../etc/passwd", None),
    ],
)  # fmt: skip
def test_a_name_of_a_log_means_a_preset(name: str, preset: str | None) -> None:
    """Words that do not change dimensions are left out; no other name is guessed."""
    assert preset_of(name) == preset


def test_a_log_makes_nobody_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name in a log is compared with presets, and no file or folder of that name is read."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret/config.json").write_text("{}")
    (tmp_path / "secret.gguf").write_text("x")
    monkeypatch.chdir(tmp_path)
    for path in ("secret", "./secret", "secret.gguf", str(tmp_path / "secret")):
        answer = explained(
            f"Initializing a V1 LLM engine (v0.10.0) with config: model='{path}'\n"
            "Model loading took 14.98 GiB and 2.0 seconds\n"
        )
        assert answer["preset"] is None


def test_the_command_prints_both_ways(rooflm: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    """Table and JSON of a file, and of stdin; options fill what the log does not state."""
    path = LOGS / "trtllm-0.8-llama-2-7b.txt"
    table = rooflm("explain-log", str(path), "--model", "llama-2-7b")
    answer = rooflm.json("explain-log", str(path), "--model", "llama-2-7b")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    piped = rooflm.json("explain-log", "-", "--model", "llama-2-7b")

    assert table.code == 0
    assert "69,524,783,104 B" in table.out
    assert answer["schema"] == "rooflm.explain-log/1"
    assert set(answer) == {
        "schema", "engine", "version", "model", "preset", "ranks", "starts", "settings",
        "figures", "judged", "agreeing", "lines", "unknown_lines", "assumptions",
    }  # fmt: skip
    assert piped == answer


def test_csv_has_a_row_for_each_figure(rooflm: Terminal) -> None:
    """Figures are the rows of the CSV."""
    path = str(LOGS / "vllm-v1-llama-3.1-8b.txt")
    lines = rooflm("explain-log", path, "--format", "csv").out.splitlines()

    assert lines[0].startswith("name,line,")
    assert [line.partition(",")[0] for line in lines[1:]] == ["weights", "tokens", "concurrency"]


def test_options_replace_what_the_log_says(rooflm: Terminal) -> None:
    """Another format of the cache halves what a token takes, and the figure no longer agrees."""
    path = str(LOGS / "sglang-qwen3-235b-fp8-tp4.txt")

    assert one(rooflm.json("explain-log", path), "k_size")["agrees"] is True
    assert one(rooflm.json("explain-log", path, "--kv", "fp8"), "k_size")["agrees"] is False


def test_what_is_no_log_is_refused_in_a_sentence(rooflm: Terminal, tmp_path: Path) -> None:
    """Empty, binary, of another program, a folder, missing: one line, exit code 2."""
    cases = {
        "empty": b"",
        "binary": bytes(range(256)) * 64,
        "nginx": b'127.0.0.1 - - "GET / HTTP/1.1" 200 612\n' * 50,
        "newlines": b"\n" * 1000,
        "noise": random.Random(7).randbytes(4096).replace(b"\0", b"\1"),
    }
    root = Path(__file__).resolve().parents[1]
    written = [str(root / page) for page in ("README.md", "docs/questions.md", "docs/theory.md")]
    paths = [*written, str(tmp_path), str(tmp_path / "missing.log"), "/dev/null", "no\0name"]
    for name, content in cases.items():
        (tmp_path / name).write_bytes(content)
        paths.append(str(tmp_path / name))
    for path in paths:
        ran = rooflm("explain-log", path)
        assert (ran.code, ran.out) == (2, ""), path
        assert ran.err.startswith("rooflm: error: "), path
        assert ran.err.count("\n") == 1, path


def test_a_wrong_option_is_named(rooflm: Terminal) -> None:
    """Unknown models, formats and degrees are told as everywhere."""
    path = str(LOGS / "trtllm-0.8-llama-2-7b.txt")
    for words in (("--model", "llama-9"), ("--model", "llama-2-7b", "--kv", "fp9"),
                  ("--model", "llama-2-7b", "--weights", "fp9"),
                  ("--model", "llama-2-7b", "--tp", "0")):  # fmt: skip
        ran = rooflm("explain-log", path, *words)
        assert ran.code == 2, words
        assert words[-1] in ran.err, words


def test_degrees_that_cannot_be_are_told_and_not_fatal() -> None:
    """A log that says tp 7 of a model of 32 heads is explained as far as it goes."""
    text = excerpt("vllm-v1-llama-3.1-8b").replace(
        "tensor_parallel_size=1", "tensor_parallel_size=7"
    )
    weights = one(explained(text), "weights")

    assert weights["expected"] is None
    assert "cannot be spread" in weights["how"]


class Endless(io.RawIOBase):
    """A log of many bytes that nobody holds in memory."""

    def __init__(self, piece: bytes, times: int) -> None:
        self.piece, self.times = piece, times

    def read(self, size: int = -1) -> bytes:
        """Return the next piece."""
        self.times -= 1
        return self.piece if self.times >= 0 else b""


def test_memory_does_not_grow_with_the_log() -> None:
    """Lines are forgotten, and a figure that comes again is kept once: 16 MB take a few."""
    figure = b"(EngineCore pid=1) Available KV cache memory: 5.00 GiB\n"
    request = b'INFO: 10.0.0.7:51234 - "POST /v1/completions HTTP/1.1" 200 OK\n'
    piece = (figure + request * 400) * 40
    stream: Any = Endless(piece, 16 * 10**6 // len(piece))
    tracemalloc.start()
    log = read_log(decoded(stream, "log"))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert log.lines > 200_000
    assert peak < 16 * 10**6
    assert len(log.starts[-1].facts["pool"]) == 1


def test_a_line_without_end_is_cut() -> None:
    """Of 64 MB on one line the first part is looked at."""
    piece = b"Available KV cache memory: 5.00 GiB " * 20_000
    stream: Any = Endless(piece, 64 * 10**6 // len(piece))
    tracemalloc.start()
    lengths = [len(text) for _, text in decoded(stream, "log")]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert lengths == [MOST_CHARACTERS]
    assert peak < 16 * 10**6


def test_no_line_takes_long() -> None:
    """The longest lines that nearly match every pattern are read in less than a second each."""
    for key in {p.key for p in PATTERNS}:
        line = (key * (MOST_CHARACTERS // len(key) + 1))[:MOST_CHARACTERS]
        nearly = f"{key}{' ' * 2000}{key}={'9' * 3000}"
        begun = time.perf_counter()
        for text in (line, nearly * 12):
            try:
                read_log(iter([(1, text)]))
            except RooflmError:
                continue
        assert time.perf_counter() - begun < 2.0, key


def test_colours_are_taken_out() -> None:
    """With and without the escape character, and as JSON writes it; brackets of words stay."""
    assert plain("\x1b[1;32mINFO\x1b[0m [worker.py:3]") == "INFO [worker.py:3]"
    assert plain("\\u001b[36m(RayWorker pid=1)\\u001b[0m x") == "(RayWorker pid=1) x"


def pieces() -> Iterator[str]:
    """List lines of all excerpts."""
    for row in SOURCES:
        yield from excerpt(row["file"]).splitlines()


LINES = sorted(set(pieces()))
NUMBERS = ["0", "1", "-1", "0.00", "1e9", "9" * 25, "None", "nan", "", "16", "131072", "1,2,3"]


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """Draw lines of real logs with other numbers in them."""
    lines = draw(st.lists(st.sampled_from(LINES), min_size=1, max_size=12))
    seed = draw(st.integers(0, 2**32))
    chance = random.Random(seed)
    out: list[str] = []
    for line in lines:
        words = line.split(" ")
        for i, word in enumerate(words):
            digits = [c for c in word if c.isdigit()]
            if digits and chance.random() < 0.3:
                words[i] = word.replace("".join(digits[:1]), chance.choice(NUMBERS), 1)
        out.append(" ".join(words))
    return "\n".join(out)


@settings(max_examples=150, deadline=None, derandomize=True,
          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
@given(text=damaged(), model=st.sampled_from([None, "llama-3.1-8b", "qwen3.5-9b", "deepseek-v3"]))
def test_damaged_logs_are_answered_or_refused(text: str, model: str | None) -> None:
    """Whatever numbers stand in real lines, there is an answer that is JSON, or a sentence."""
    try:
        answer = explained(text, **({} if model is None else {"model": model}))
    except RooflmError:
        return
    json.dumps(answer, allow_nan=False)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(raw=st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_answered_or_refused(raw: bytes) -> None:
    """No bytes make more than a sentence of trouble."""
    try:
        answer = explained(raw)
    except RooflmError:
        return
    json.dumps(answer, allow_nan=False)
