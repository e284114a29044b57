"""The name of a model in a log, and the preset that it means.

A name in a log comes from whoever wrote the log. It is compared with the names of presets, and
never opened as a file.
"""

from __future__ import annotations

import re

from .log_read import Start
from .presets import MODELS_FILE, preset_names, preset_text
from .yamlfile import top_keys

RELATIVES = {
    "deepseekr1": "deepseek-v3",
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

TAILS = frozenset({
    "instruct", "chat", "it", "hf", "base", "pt", "thinking", "2507", "2501", "2503", "2506",
    "fp8", "fp16", "bf16", "awq", "gptq", "int4", "int8", "w8a8", "w4a16", "nvfp4", "mxfp4", "4bit",
    "8bit", "dynamic", "quantized", "gguf", "sft", "qat", "bnb", "g128", "block", "marlin",
    "1m", "v1", "v1.5",
})  # fmt: skip
"""Words at the end of a name that do not change the dimensions of a model."""


def name_of(start: Start) -> str | None:
    """Tell the name of the model as the log has it, without folders."""
    text = start.word("model")
    if text is None:
        return None
    cached = re.search(r"models--([\w.-]+?)--([\w.-]+)", text)
    if cached:
        return f"{cached[1]}/{cached[2]}"
    parts = [p for p in re.split(r"[/\\]", text.strip()) if p]
    if not parts or parts[-1].startswith("sha256"):
        return None
    local = text[:1] in "/.~\\" or len(parts) > 2
    return parts[-1] if local or len(parts) == 1 else "/".join(parts)


def preset_of(name: str) -> str | None:
    """Find the preset that a name of a log means, by its words; nothing is opened.

    >>> preset_of("meta-llama/Meta-Llama-3.1-8B-Instruct-AWQ")
    'llama-3.1-8b'
    """
    text = preset_text(MODELS_FILE)
    called = {plain_name(n): n for n in preset_names(MODELS_FILE)}
    for preset, (_, start, end) in top_keys(text, MODELS_FILE.name).items():
        hub = re.search(r"^  hf: *(\S+)", text[start:end], re.M)
        if hub and preset in called.values():
            called.setdefault(plain_name(hub[1].rpartition("/")[2]), preset)
    words = [w for w in re.split(r"[-_ :]+", name.rpartition("/")[2][:120].lower()) if w]
    for lead in ([], ["meta"]):
        if words[: len(lead)] != lead:
            continue
        rest = words[len(lead) :]
        shorter = [rest[: len(rest) - n] for n in range(_tail(rest) + 1)]
        for some in [*shorter, [w for w in rest if w not in TAILS]]:
            found = called.get(plain_name("".join(some))) or RELATIVES.get(
                plain_name("".join(some))
            )
            if some and found:
                return found
    return None


def _tail(words: list[str]) -> int:
    """Count the words at the end that do not change a model."""
    count = 0
    while count < len(words) - 1 and words[-1 - count] in TAILS:
        count += 1
    return count


def plain_name(name: str) -> str:
    """Leave letters, digits and points of a name."""
    return re.sub(r"[^a-z0-9.]", "", name.lower())
