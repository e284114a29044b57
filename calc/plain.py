"""Plain data as files hold it: mappings, lists, and the leaves between."""

from __future__ import annotations

from typing import Any, TypeGuard


def is_map(value: Any) -> TypeGuard[dict[str, Any]]:
    """Tell whether a value read from a file is a mapping; its keys are words then."""
    return isinstance(value, dict)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Tell whether a value read from a file is a number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_list(value: Any) -> TypeGuard[list[Any]]:
    """Tell whether a value read from a file is a list."""
    return isinstance(value, list)
