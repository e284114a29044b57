"""Names that mean a preset without being one: fine-tunes of equal dimensions, chips by half a name.

A name is compared with the names of presets, and never opened as a file. Nothing is guessed: a
word that may change a dimension makes a name unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

RELATIVES = {
    "deepseekr1": "deepseek-v3",
    "deepseekr1zero": "deepseek-v3",
    "deepseekr10528": "deepseek-v3",
    "deepseekv30324": "deepseek-v3",
    "deepseekv3.1": "deepseek-v3",
    "deepseekr1distillqwen7b": "qwen2.5-7b",
    "deepseekr1distillqwen14b": "qwen2.5-14b",
    "deepseekr1distillqwen32b": "qwen2.5-32b",
    "deepseekr1distillllama8b": "llama-3.1-8b",
    "deepseekr1distillllama70b": "llama-3.3-70b",
    "deepseekr114b": "qwen2.5-14b",
    "deepseekr132b": "qwen2.5-32b",
    "deepseekr170b": "llama-3.3-70b",
    "deepseekr1671b": "deepseek-v3",
    "glm4.6": "glm-4.5",
    "glm4.7": "glm-4.5",
    "qwen3coder30ba3b": "qwen3-30b-a3b",
    "tinyllama1.1bchatv1.0": "tinyllama-1.1b",
}
"""Models that were trained on from a preset's weights, of equal dimensions.
Sources: huggingface.co/deepseek-ai/DeepSeek-R1 (its model card), Qwen/Qwen3-Coder-30B-A3B;
ollama.com/library/deepseek-r1 (its tags); huggingface.co/zai-org/GLM-4.6 and GLM-4.7."""

UNLIKE = frozenset({"codellama34binstruct", "kimik2thinking"})
"""Models that their names would lead astray: checkpoints of CodeLlama differ in their vocabulary,
Kimi K2 Thinking was published in int4."""

QUANTIZED = frozenset({
    "fp8", "fp4", "awq", "gptq", "int4", "int8", "w8a8", "w4a16", "nvfp4", "mxfp4", "4bit", "8bit",
    "dynamic", "quantized", "gguf", "qat", "bnb", "g128", "block", "marlin",
})  # fmt: skip
"""Words of a name that say that weights have a format of their own."""

TAILS = QUANTIZED | {
    "instruct", "chat", "it", "hf", "base", "pt", "thinking", "2507", "2501", "2503", "2506",
    "fp16", "bf16", "sft", "1m", "v1", "v1.5",
}  # fmt: skip
"""Words of a name that do not change the dimensions of a model."""

MAKERS = frozenset({
    "nvidia", "geforce", "rtx", "amd", "radeon", "rx", "intel", "arc", "google", "tpu", "apple",
    "jetson", "tesla", "instinct", "ryzen", "gpu", "mac", "macbook", "studio",
})  # fmt: skip
"""Words that people leave out of the name of a chip, or put before it."""


ENGINES = {"trtllm": "tensorrt-llm", "tensorrtllm": "tensorrt-llm", "llamacpp": "llama.cpp"}
"""Engines as people write them, without marks."""


def engine_name(typed: str) -> str:
    """Spell an engine as the registries do.

    >>> engine_name("vLLM"), engine_name("TRT-LLM"), engine_name("llama-cpp")
    ('vllm', 'tensorrt-llm', 'llama.cpp')
    """
    word = typed.strip().lower()
    return ENGINES.get(re.sub("[-_. ]", "", word), word)


def plain_name(name: str) -> str:
    """Leave letters, digits and points of a name."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())


def same_dimensions(name: str, called: Mapping[str, str]) -> tuple[str | None, str]:
    """Find the preset that has the dimensions of a model, and the word for a format in its name.

    name: as a hub or a log has it; called: presets by their plain names. None where no preset is
    known to have its dimensions; "" where no word tells a format.
    """
    name, packed = re.subn(r"[-.]gguf$", "", name.rpartition("/")[2][:120].lower())
    file = _GGUF.search(name)
    words = [w for w in re.split(r"[-_ :]+", name[: file.start()] if file else name) if w]
    usual = "gguf" if packed else ""
    kind = file[1] if file else next((w for w in words if w in QUANTIZED), usual)
    for rest in (words, words[1:] if words[:1] == ["meta"] else []):
        shorter = [rest[: len(rest) - n] for n in range(_tail(rest) + 1)]
        for some in [*shorter, [w for w in rest if w not in TAILS]]:
            plain = plain_name("".join(some))
            if plain in UNLIKE:
                return None, kind
            found = called.get(plain) or RELATIVES.get(plain) or _active(plain, called)
            if some and found:
                return found, kind
    return None, kind


_GGUF = re.compile(r"(?:[-.:]ud)?[-.:_](i?q[0-9](?:_[0-9a-z]{1,3})*|f16|bf16)$")
"""Format of a file of llama.cpp at the end of its name, as in llama3.1:8b-instruct-q4_K_M."""


def _active(plain: str, called: Mapping[str, str]) -> str | None:
    """Find the one preset whose name goes on with its active parameters: qwen3-235b has a22b."""
    fuller = {
        p for name, p in called.items() if re.fullmatch(r"a[0-9.]+b", name.removeprefix(plain))
    }
    return fuller.pop() if len(fuller) == 1 and plain.endswith("b") else None


def _tail(words: list[str]) -> int:
    """Count the words at the end that do not change a model."""
    count = 0
    while count < len(words) - 1 and words[-1 - count] in TAILS:
        count += 1
    return count


FORMS = frozenset({"sxm", "pcie", "nvl"})
"""Words for how a chip is built in, which are left out where there is one way."""
_SIZE = re.compile(r"[0-9]+gb")


def same_chip(name: str, chips: Mapping[str, str]) -> list[str]:
    """List the chips that a name means, words for makers and for the way of building in left out.

    name: as a driver, a shop or a person writes it; chips: what each chip is called in full, with
    its memory, by preset. 4090 is rtx-4090, and NVIDIA H100 80GB HBM3 is h100-sxm; several are
    listed where what would tell them apart is left out: h100 is three chips.

    >>> same_chip("NVIDIA B200", {"b200-sxm": "NVIDIA B200 SXM, HBM3e, 180 GB"})
    ['b200-sxm']
    """
    wanted = chip_words(name)
    if wanted in CHIPS:
        return [CHIPS[wanted]]
    same = [n for n in chips if wanted and chip_words(n) == wanted]
    return same or [n for n, said in chips.items() if _lacks(wanted, n, said) <= FORMS]


def like_chips(name: str, chips: Mapping[str, str]) -> list[str]:
    """List the chips that a name may mean where it leaves out the size of their memory as well."""
    wanted = chip_words(name)
    return [
        n for n, said in chips.items()
        if all(w in FORMS or _SIZE.fullmatch(w) for w in _lacks(wanted, n, said))
    ]  # fmt: skip


def chip_words(name: str) -> tuple[str, ...]:
    """Take a name of a chip apart, without its makers: 80 GB is one word, and SXM5 is SXM."""
    text = re.sub(r"([0-9]+) ?g(?:i?b)?(?![a-z0-9])", r"\1gb", name[:120].lower())
    words = re.split(r"[^a-z0-9.]+", re.sub(r"sxm[0-9]", "sxm", text))
    return tuple(w for w in words if w and w not in MAKERS)


def _lacks(wanted: tuple[str, ...], chip: str, said: str) -> frozenset[str]:
    """List the words of a chip's own name that a name lacks; all kinds of words if it is another's.

    said: all that the chip is called.
    """
    own = chip_words(chip)
    if not {*wanted} & {own[0]} or not {*wanted} <= {*own, *chip_words(said)}:
        return frozenset({"another"})
    return frozenset(own) - {*wanted}


CHIPS: dict[tuple[str, ...], str] = {
    ("dgx", "spark"): "gb10", ("spark",): "gb10", ("ai", "max", "395"): "strix-halo",
}  # fmt: skip
"""Chips by what the machines around them are called."""
