"""Names that mean a preset without being one: fine-tunes of equal dimensions, chips by half a name.

A name is compared with the names of presets, and never opened as a file. Nothing is guessed: a
word that may change a dimension makes a name unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

RELATIVES = {
    "deepseekr1": "deepseek-v3",
    "deepseekr1zero": "deepseek-v3",
    "deepseekr10528": "deepseek-v3",
    "deepseekv30324": "deepseek-v3",
    "deepseekv3.1": "deepseek-v3",
    "deepseekr1distillqwen14b": "qwen2.5-14b",
    "deepseekr1distillqwen32b": "qwen2.5-32b",
    "deepseekr1distillllama8b": "llama-3.1-8b",
    "deepseekr1distillllama70b": "llama-3.3-70b",
    "qwen3coder30ba3b": "qwen3-30b-a3b",
    "tinyllama1.1bchatv1.0": "tinyllama-1.1b",
}
"""Models that were trained on from a preset's weights, of equal dimensions.
Sources: huggingface.co/deepseek-ai/DeepSeek-R1 (its model card), Qwen/Qwen3-Coder-30B-A3B."""

UNLIKE = frozenset({"codellama34binstruct", "kimik2thinking"})
"""Models that their names would lead astray: checkpoints of CodeLlama differ in their vocabulary,
Kimi K2 Thinking was published in int4."""

QUANTIZED = frozenset({
    "fp8", "awq", "gptq", "int4", "int8", "w8a8", "w4a16", "nvfp4", "mxfp4", "4bit", "8bit",
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
    "jetson",
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
    words = [w for w in re.split(r"[-_ :]+", name.rpartition("/")[2][:120].lower()) if w]
    kind = next((w for w in words if w in QUANTIZED), "")
    for rest in (words, words[1:] if words[:1] == ["meta"] else []):
        shorter = [rest[: len(rest) - n] for n in range(_tail(rest) + 1)]
        for some in [*shorter, [w for w in rest if w not in TAILS]]:
            plain = plain_name("".join(some))
            if plain in UNLIKE:
                return None, kind
            found = called.get(plain) or RELATIVES.get(plain)
            if some and found:
                return found, kind
    return None, kind


def _tail(words: list[str]) -> int:
    """Count the words at the end that do not change a model."""
    count = 0
    while count < len(words) - 1 and words[-1 - count] in TAILS:
        count += 1
    return count


def same_chip(name: str, names: Iterable[str]) -> list[str]:
    """List the chips that a name means with or without words for their maker: 4090 is rtx-4090."""
    wanted = _model_number(name)
    return [n for n in names if wanted and _model_number(n) == wanted]


def _model_number(name: str) -> tuple[str, ...]:
    return tuple(w for w in re.split(r"[^a-z0-9.]+", name.lower()) if w and w not in MAKERS)
