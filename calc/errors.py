"""What can go wrong, and the exit code that says so."""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Iterable, Sequence
from enum import IntEnum


class Exit(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    NO = 1
    """The answer is no: it does not fit, no solution, a check failed."""
    USAGE = 2
    """Bad usage or input, or the output cannot be written."""
    MISSING = 3
    """A needed part is missing: a package, a device."""
    DEFECT = 70
    """A defect of rooflm itself (EX_SOFTWARE of sysexits.h)."""
    INTERRUPTED = 130
    """Ctrl-C: 128 + SIGINT."""


class RooflmError(Exception):
    """A mistake that the user can mend: what, where, and how.

    The message is one sentence in the form ``WHAT (WHERE). FIX.``; `code` is the exit code.
    """

    def __init__(self, what: str, where: str = "", fix: str = "", code: Exit = Exit.USAGE) -> None:
        self.what, self.where, self.fix, self.code = what, where, fix, code
        text = what + (f" ({where})" if where else "") + "."
        super().__init__(printable(f"{text} {fix}" if fix else text))

    def __reduce__(self) -> tuple[type[RooflmError], tuple[str, str, str, Exit]]:
        """Pickle and copy the parts: worker processes raise mistakes as well."""
        return type(self), (self.what, self.where, self.fix, self.code)


def printable(text: str, most: int = 600) -> str:
    """Cut a text and replace what a terminal would obey or a log would break on."""
    shown = "".join(c if c.isprintable() else "?" for c in text[: most + 1])
    return shown if len(shown) <= most else shown[:most] + "..."


def say(line: str) -> None:
    """Write a line to stderr; where nobody can read it, what is done goes on as it would."""
    if sys.stderr is None:  # pyright: ignore[reportUnnecessaryComparison]
        return
    try:
        sys.stderr.write(line + "\n")
    except OSError:
        with contextlib.suppress(OSError):
            silence(sys.stderr.fileno())


def silence(descriptor: int) -> None:
    """Send a stream nowhere: what Python flushes of it at exit must not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


MEANT = {
    "users clients concurrency sequences batch_size bs": ("batch", "clients"),
    "gpus gpu cards num_gpus": ("devices",),
    "length seq_len context_length tokens": ("context", "context_tokens"),
    "hidden_size d_model n_embd": ("D",),
    "intermediate_size ffn_dim d_ff": ("F",),
    "num_attention_heads n_heads heads": ("N",),
    "num_key_value_heads n_kv_heads kv_heads": ("K",),
    "head_dim d_head": ("H",),
    "num_hidden_layers n_layers num_layers layers": ("L",),
    "vocab_size vocab": ("V",),
    "max_position_embeddings": ("max_context",),
    "cache kv kv_cache": ("kv_cache_bytes", "bytes_per_token"),
    "memory vram": ("memory_bytes",),
    "step latency tpot itl time": ("bound_s", "estimate_s", "itl_s", "time_s"),
    "throughput": ("bound_tokens_per_s", "estimate_tokens_per_s", "tokens_per_s"),
    "ttft": ("prefill", "ttft_s"),
    "params": ("parameters",),
    "intensity": ("intensity_flops_per_byte",),
    "int8": ("int8-weights", "int8-head", "fp8"),
}
"""Our names by the words that people have for them."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which known names are meant by another word: "Did you mean x, y or z?", or nothing."""
    by_lower = {k.lower(): k for k in known}
    word = name.lower().replace("-", "_")
    ours = next((ours for words, ours in MEANT.items() if word in words.split()), ())
    close = [k.lower() for k in ours if by_lower.get(k.lower()) == k]
    close = close or difflib.get_close_matches(name.lower(), by_lower, n=3, cutoff=0.6)
    if not close:
        return ""
    return f"Did you mean {either([by_lower[c] for c in close])}?"


def check_choice(value: str, known: Sequence[str], option: str) -> None:
    """Raise `RooflmError` for a word that an option does not know."""
    if value not in known:
        fix = nearest(value, known) or f"Known: {', '.join(known)}."
        raise RooflmError(f"unknown value '{printable(value, 40)}'", option, fix)


def either(names: list[str]) -> str:
    """Join names with commas and a last "or"."""
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " or " + names[-1]
