"""Reads a report whose fields may be missing, null or not finite, so that sections need not ask each time."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_UNSHOWN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
"""Categories of characters that have no shape, or turn the text around them."""


def part(value: Any, *path: str) -> Mapping[str, Any]:
    """The table at a path; empty where there is none."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}


def parts(value: Any) -> list[Mapping[str, Any]]:
    """The tables of a list; empty where it is none."""
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def number(value: Any) -> float | None:
    """The value where it is a finite number, else None."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else None


def amount(value: Any) -> float:
    """The value where it is a finite number that is not negative, else 0."""
    return max(number(value) or 0.0, 0.0)


def cleaned(value: Any) -> Any:
    """The value at any depth with null for what is no finite number, and characters that cannot be shown replaced."""
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, Mapping):
        return {cleaned(key): cleaned(item) for key, item in value.items()}
    if isinstance(value, Sequence):
        return [cleaned(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _shown(character: str) -> str:
    if character in "\n\t":
        return " "
    return REPLACEMENT if unicodedata.category(character) in _UNSHOWN else character
