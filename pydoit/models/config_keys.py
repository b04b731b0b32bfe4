"""Values of a config.json by key, each checked: a message names the key, what stands there and what may."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pydoit.errors import UserError

_MOST = 2**31 - 1


def whole(values: Mapping[str, Any], key: str, default: int | None = None, *, least: int = 1, most: int = _MOST) -> int:
    """A whole number; `default` where the key is missing or null."""
    value = _given(values, key, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UserError(f"{key} is {_shown(value)}; it must be a whole number from {least} to {most}")
    return value


def number(values: Mapping[str, Any], key: str, default: float | None = None) -> float:
    """A positive number."""
    value = _given(values, key, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise UserError(f"{key} is {_shown(value)}; it must be a positive number")
    return float(value)


def flag(values: Mapping[str, Any], key: str) -> bool:
    """True or false; false where the key is missing or null."""
    value = _given(values, key, default=False)
    if not isinstance(value, bool):
        raise UserError(f"{key} is {_shown(value)}; it must be true or false")
    return value


def table(values: Mapping[str, Any], key: str) -> dict[str, Any]:
    """A table without its nulls; empty where the key is missing or null."""
    value = _given(values, key, {})
    if not isinstance(value, Mapping):
        raise UserError(f"{key} is {_shown(value)}; it must be a table")
    return {name: item for name, item in value.items() if item is not None}


def _given(values: Mapping[str, Any], key: str, default: Any) -> Any:
    value = values.get(key)
    value = default if value is None else value
    if value is None:
        raise UserError(f"{key} is missing; add it to the config")
    return value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
