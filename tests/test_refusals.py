"""What is asked for in vain ends with exit code 2, what is wrong, where, and how to mend it."""

from __future__ import annotations

import io
import time
from pathlib import Path

import pytest

from rooflm.calc.entries import build_machine, build_model
from rooflm.calc.errors import Exit, RooflmError
from rooflm.calc.output import progress_on
from rooflm.calc.yamlfile import load

from .helpers import Terminal

ON = "llama-3-8b --on h100-sxm"
LOAD = f"serve {ON} --prompt 512 --output-tokens 64"
TREE = "speculate llama-3-70b --on 8xh100-sxm --draft medusa:3"
DRAFTED = "speculate llama-3-70b --on 8xh100-sxm --acceptance 0.7"
ROOT = Path(__file__).resolve().parents[1]
STUDY, TRACE = ROOT / "studies" / "batch_sweep.yaml", ROOT / "traces" / "chat.csv"


@pytest.mark.parametrize(
    ("words", "what", "where", "fix"),
    [
        (f"sweep {ON} --phase prefill --output-tokens 5", "a prefill generates one token",
         "--output-tokens", "Add --phase request."),
        (f"sweep {ON} --phase prefill --prompt 100 --prefix 2000",
         "a prefix of 2,000 tokens is longer than the prompt of 100", "--prefix", ""),
        (f"sweep {ON} --phase prefill --prompt 1:1e6",
         "1,000,000 prefills or requests are more than 20,000", "--prompt, --batch", "a study"),
        (f"explain bound_s {ON} --phase request --output-tokens 1e9",
         "more than 10,000,000 tokens are not summed", "--output-tokens", ""),
        (f"sweep {ON} --calibration x.json --engine vllm", "a calibration is its own engine",
         "--engine", "Leave it out."),
        (f"sweep {ON} --gpu-layers 99", "llama-3-8b has 32 layers, not 99", "--gpu-layers",
         "Possible: 0 to 32."),
        (f"sweep {ON} --gpu-layers 3 --accounting lecture",
         "the lecture's accounting keeps all layers on the device", "--gpu-layers",
         "Leave out one of the two options."),
        (f"sweep {ON} --reserve 1e19", "1e19 is above 1e18 bytes", "--reserve", "Is it a slip?"),
        (f"sweep {ON} --draw heatmap", "nothing is drawn", "--draw", "Say --plot FILE, or"),
        (f"sweep {ON} --plot x.svg --draw heatmap:x", "'x' has no value", "--draw",
         "Write heatmap:x=batch."),
        (f"fit {ON} --batch 1:1000 --context 1:1000", "1,000,000 points are more than 2,000",
         "--batch, --context", "`rooflm sweep` takes more."),
        (f"fit {ON} --engine vllm --reserve 1GB",
         "an engine knows of no reserve: --non-torch is what others use", "--reserve",
         "Leave out one of the options."),
        (f"fit {ON} --engine vllm --lora 16x2",
         "the room that engines keep for adapters is not modelled", "--lora", "Leave out one"),
        (f"fit {ON} --engine vlm", "no engine 'vlm' whose memory is known", "--engine",
         "Did you mean vllm?"),
        (f"sweep {ON} --engine vlm", "unknown engine 'vlm'", "--engine", "Did you mean vllm?"),
        (f"roofline {ON} --batch 1:1000", "1,000 rooflines are more than 64", "--on, --batch", ""),
        (f"explain bound_s {ON} --engine vllm", "bound_s is no estimate", "--engine",
         "Leave the option out."),
        (f"solve devices {ON} --latency 20ms --tp 2", "the layout is solved for", "--tp",
         "Leave the option out."),
        (f"solve batch {ON} --latency 20ms --share 0.5", "one target at a time",
         "--latency and --share", "Ask twice."),
        (f"calibrate {ON}", "a measured step is needed", "--measured", 'Say --measured "batch=1'),
        ("quantize", "numbers are needed", "--values", "Say either FILE or --values"),
        ("quantize --values 1,2 --unsigned --symmetric", "symmetric codes are signed",
         "--unsigned", "Leave out --unsigned or --symmetric."),
        ("quantize --values 1,2 --scale 0", "0 is no scale: it has to be above 0", "--scale", ""),
        ("quantize --values 1,2 --scale 1 --per channel",
         "a given scale is one for all numbers", "--per", "Add --per tensor, or leave out"),
        ("quantize --values 1,x", "'x' is not a number", "--values", "Write 5.2342,1.5."),
        ("quantize --values 1,2 --group 2", "only groups have a size", "--group",
         "Add --per group."),
        (f"study {STUDY} {STUDY}", "one study at a time is run", "FILE.yaml",
         "Several go with --check."),
        ("speculate --p 0.5,0.4 --q 0.5,0.5", "a law adds up to 1, not 0.9", "--p",
         "Write fractions where decimals round"),
        (f"{TREE} --acceptance 0.7 --tree 0;1", "a tree has accuracies", "--acceptance",
         "Say --acceptance 0.8, or --tree with --accuracies."),
        (f"{TREE} --acceptance 0.7 --accuracies 0.6;0.5", "accuracies are those of a tree",
         "--accuracies", "Say --tree as well."),
        (f"{TREE} --tree 0;x --accuracies 0.6;0.5", "'x' is no path of a tree", "--tree",
         "Write 0;1;0,0;0,1: ranks from the root on."),
        (f"{TREE} --tree 0;0,0;0,0,0 --accuracies 0.6;0.5", "node 0,0,0 has no accuracy",
         "--accuracies", "Give each depth an accuracy for each rank"),
        (f"{TREE} --tree 0;1 --accuracies 0.6,0.6;0.5,0.1",
         "the candidates of depth 1 are right 1.2 times in one", "--accuracies",
         "They add up to at most 1."),
        ("speculate", "a target is needed", "TARGET", "Say TARGET with --draft, or --p and --q"),
        ("speculate --p 0.5,0.5", "both laws are needed", "--p, --q", "Say --p 0.8,0.2 --q"),
        ("speculate --p 0.5,0.5 --q 0.5,0.5 --on h100-sxm",
         "this is asked of a model on a machine", "--on", "Say TARGET, or leave the option out."),
        ("speculate llama-3-70b --draft llama-3-8b --acceptance 0.7", "a machine is needed",
         "--on", "Say --on 8xh100-sxm."),
        (f"{TREE} --acceptance 0.7 --draft-tokens 99", "99 drafted tokens are more than 3 heads",
         "--draft-tokens", ""),
        (f"{DRAFTED} --draft llama-3-8b --tp 8 --draft-tp 3",
         "3 ranks of a draft are no part of 8", "--draft-tp", "Take a divisor."),
        (f"{DRAFTED} --draft llada-8b", "llada-8b denoises", "--draft", "Draft with a decoder."),
        (f"{DRAFTED} --draft medusa:999", "999 heads are more than 64", "--draft",
         "Is it a slip?"),
        (f"{DRAFTED} --draft llama-3-8b --batch 1:1000 --context 1:1000",
         "1,000,000 rounds are more than 2,000", "--batch, --context, --draft-tokens",
         "Take a larger step."),
        ("speculate llada-8b --on h100-sxm --draft llama-3-8b --acceptance 0.7",
         "llada-8b denoises: it has no next token to draft", "TARGET", ""),
        (f"{TREE} --tree 0,0 --accuracies 0.6;0.5", "node 0,0 has no parent", "--tree", ""),
        (f"{TREE} --tree 0;0 --accuracies 0.6;0.5", "node 0 is there twice", "--tree", ""),
        (f"{LOAD} --rate 4 --draft llama-3-8b --acceptance 0.7",
         "how many tokens a round drafts is needed", "--draft-tokens", "Say --draft-tokens 4."),
        (f"{LOAD} --rate 4 --draft medusa:3 --acceptance 0.7 --draft-tokens 9",
         "the draft makes at most 3 tokens", "--draft-tokens", "Take fewer."),
        (f"{LOAD} --rate 4 --unit-cost --draft medusa:3 --acceptance 0.7 --draft-tokens 3",
         "steps that take a second each know of no draft", "--unit-cost", "Leave out one"),
        (f"serve {ON} --rate 4 --trace {TRACE} --scale 2",
         "a rate takes the place of the times that would be scaled", "--scale", "Leave out one"),
        ("serve gemma-3-27b --on h200-sxm --rate 4 --prompt 512 --output-tokens 64 --prefix 100",
         "prefixes are shared where all layers keep all tokens; this model's do not", "--prefix",
         "Leave it out."),
        (f"solve batch {ON} --when compute-bound --time-model bandwidth",
         "the time model bandwidth counts no compute", "--time-model", "Leave the option out."),
        (f"sweep {ON} --chart --format json", "a chart stands below a table, and not in json",
         "--chart", "Leave out one of the two options."),
        ("fit llada-8b --on h100-sxm --engine vllm",
         "a diffusion model without a cache has no pool", "MODEL", "Leave out one of the options."),
        # 100 GB are 100e9 / 2^30 GiB; the H100 reports 85,520,809,984 B.
        (f"fit {ON} --engine vllm --non-torch 100GB", "93.13 GiB are more than the device has",
         "--non-torch", "It has 79.65 GiB."),
        (LOAD, "how requests come is needed", "--rate",
         "Say --rate 4, --clients 16 or --trace FILE."),
        (f"{LOAD} --rate 4 --clients 4",
         "requests come at a rate, from clients, or as a trace says", "--clients",
         "Say one of them."),
        (f"{LOAD} --find-rate", "a rate is found for a promise", "--find-rate",
         "Say --slo-ttft 500ms."),
        (f"{LOAD} --find-rate --slo-itl 1s --clients 4",
         "a rate is found for requests that are drawn", "--find-rate",
         "Leave out --clients and --trace."),
        (f"{LOAD} --rate 4 --burstiness 2 --arrivals constant",
         "a burstiness means nothing to requests that come constant", "--burstiness",
         "Leave it out, or say --arrivals poisson."),
        (f"fit {ON} --engine vllm --gpu-layers 3", "vLLM V1 keeps all layers on the device",
         "--gpu-layers", "Leave out one of the options."),
        (f"fit {ON} --engine sglang --free 100GB", "93.13 GiB are more than the device has",
         "--free", "It has 79.65 GiB."),
        (f"fit {ON} --engine vllm --tp 16 --cp 2",
         "tokens that are split over devices are not modelled for engines", "--cp",
         "Leave out one of the options."),
        ("serve gemma-3-27b --on h200-sxm --rate 1 --draft llama-3-8b --acceptance 0.7 "
         "--draft-tokens 3", "drafting is simulated for models whose layers all see everything",
         "--draft", "Leave it out."),
        # 141.1 GB of a draft beside 16.1 in 85.5.
        (f"{LOAD} --rate 1 --draft llama-3-70b --acceptance 0.7 --draft-tokens 3",
         "the draft leaves no room for caches", "--draft", "Take a smaller one."),
        (f"{LOAD} --rate 1 --contiguous exact --scheduler static",
         "what is reserved whole never gives way", "--scheduler", "Leave it out."),
        (f"{LOAD} --rate 1 --contiguous exact --swap 10GB",
         "what is reserved whole never gives way", "--swap", "Leave it out."),
        ("serve gemma-3-27b --on h200-sxm --rate 1 --contiguous exact",
         "caches in one piece are simulated where all layers keep all tokens", "--contiguous",
         "Leave it out."),
        ("serve llama-3-8b --on apple-m3-ultra --rate 1 --basis bound --swap 10GB",
         "how fast apple-m3-ultra reaches its host is not known", "--swap", "Leave it out"),
        (f"{LOAD} --rate 1 --prefill-on h100-sxm --handoff 50GB --scheduler static",
         "a static batch computes its own prompts", "--scheduler", "Leave it out."),
        (f"{LOAD} --rate 1 --prefill-on h100-sxm --handoff 50GB --contiguous exact",
         "caches in one piece are simulated where their prompts are computed", "--contiguous",
         "Leave it out."),
        (f"{LOAD} --rate 1 --arrivals burst", "requests that all come at once have no rate",
         "--arrivals", "Leave out the rate, or say poisson."),
        (f"{LOAD} --sweep rate=1:8:x1", "'1:8:x1' never ends", "--sweep", "Write rate=1:32:x2."),
        (f"{LOAD} --rate 4 --gpu-layers 3", "layers in host memory are not simulated",
         "--gpu-layers", ""),
    ],
)  # fmt: skip
def test_options_in_vain_say_what_is_wrong_and_how_to_mend_it(
    rooflm: Terminal, words: str, what: str, where: str, fix: str
) -> None:
    """The form of errors is WHAT (WHERE). FIX."""
    ran = rooflm(*words.split(" "))

    assert (ran.code, ran.out) == (Exit.USAGE, "")
    assert f"rooflm: error: {what} ({where})." in ran.err
    assert fix in ran.err


def test_a_plan_without_a_layout_says_so(rooflm: Terminal) -> None:
    """Sixty-four ranks on one device or two: nothing was tried, and the answer is no."""
    ran = rooflm(*f"plan {ON} --devices 1:2 --tp 64 --latency 40ms --format json".split(" "))

    assert ran.code == Exit.NO
    assert ran.json["reason"] == "no layout has the degrees that are given"


DIMS = "dims: {D: 64, F: 128, N: 4, K: 2, H: 16, L: 4, V: 100}"


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (f"{DIMS}\n  kinds: {{a: {{}}}}", 3, "mine has kinds of layers but no pattern"),
        (f"{DIMS}\n  kinds: {{a: {{}}, b: {{}}}}\n  pattern: [a]", 3, "no layer is of kind 'b'"),
        (f"{DIMS}\n  kinds: {{a: {{}}}}\n  pattern: [0*a]", 4, "'0*a' is not a kind or COUNT*KIND"),
        (f"{DIMS}\n  kinds: {{a: {{}}}}\n  pattern: [c]", 4, "no kind of layer 'c'"),
        (f"{DIMS}\n  rwkv7: {{}}\n  conv: {{}}", 4, "a layer has one mixer, not rwkv7 and conv"),
        (f"{DIMS}\n  mixer: both", 3, "side by side with attention there has to be another mixer"),
        (f"{DIMS}\n  window: 8\n  chunk: 8", 4, "a layer has a window or a chunk, not both"),
        (f"{DIMS}\n  value_is_key: true\n  value_width: 8", 4, "values that are keys are H wide"),
        (f"{DIMS}\n  mixer: none\n  mla: {{c: 8, r: 8, d: 8, v: 8}}", 4,
         "a layer with mixer: none has no 'mla'"),
        (f"{DIMS}\n  mla: {{c: 8, r: 8, d: 8, v: 8}}\n  gate: width", 4,
         "the gate of latent attention is one number a head"),
        ("dims: {D: 64, F: 128, H: 16, L: 4, V: 100}", 2, "attention needs 'N'"),
        ("dims: {D: 64, N: 4, K: 2, H: 16, L: 4, V: 100}", 2, "a dense layer needs 'F'"),
        (f"{DIMS}\n  bias: [all]", 3, "mine.bias must be a list out of"),
        (f"{DIMS}\n  kinds: 5", 3, "mine.kinds must hold keys such as"),
        (f"{DIMS}\n  tied: maybe", 3, "mine.tied must be true or false, not 'maybe'"),
        (f"{DIMS}\n  source:", 3, "mine.source must be text, not nothing"),
    ],
)  # fmt: skip
def test_a_model_entry_names_the_place_of_its_mistake(text: str, line: int, what: str) -> None:
    """The line is that of the key that has to be changed, counted by hand."""
    block = load(f"mine:\n  {text}\n", "own.yaml").under("mine")

    with pytest.raises(RooflmError) as refused:
        build_model("mine", block)

    assert refused.value.what.startswith(what)
    assert str(refused.value.where).startswith(f"own.yaml:{line}:")


@pytest.mark.parametrize(
    ("figure", "what"),
    [
        ("{sauce: x, value: 1}", "has an unknown key 'sauce'"),
        ("{source: x}", "lacks 'value'"),
        ("fast", "must be a number between"),
    ],
)
def test_a_figure_of_a_machine_is_a_number_with_its_source(figure: str, what: str) -> None:
    """A figure is a number, or a number and where it comes from."""
    text = f"mine:\n  name: Mine\n  kind: gpu\n  bandwidth_bytes_per_s: {figure}\n"

    with pytest.raises(RooflmError) as refused:
        build_machine("mine", load(text, "own.yaml").under("mine"))

    assert what in refused.value.what
    assert "bandwidth" in refused.value.what
    assert str(refused.value.where).startswith("own.yaml:4:")


class Screen(io.StringIO):
    """A terminal to write to."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def test_long_work_tells_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal, after two seconds and then once a second; its line is cleared at the end."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    screen, file = Screen(), io.StringIO()
    tell, silent = progress_on(screen), progress_on(file)
    for done, second in ((1, 101.9), (2000, 102.0), (3000, 102.5), (4000, 103.0), (9000, 103.1)):
        now[0] = second
        tell(done, 9000)
        silent(done, 9000)

    clear = "\x1b[K"
    assert screen.getvalue() == (
        f"rooflm: 2,000 of 9,000{clear}\rrooflm: 4,000 of 9,000{clear}\r{clear}"
    )
    assert file.getvalue() == ""
