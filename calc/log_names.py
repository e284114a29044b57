"""The name of a model in a log, which comes from whoever wrote the log: no file is opened by it."""

from __future__ import annotations

import re

from .log_read import Start


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
