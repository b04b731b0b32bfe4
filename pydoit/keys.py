"""Canonical JSON and the digests made of it: the identity of everything that is cached (pure)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

KEY_SCHEMA = 1


def canonical(value: Any) -> bytes:
    """The one spelling of a JSON value: sorted keys, no white space, UTF-8; NaN is refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def pretty(value: Any) -> bytes:
    """Canonical JSON for files that people read: sorted keys, two spaces, a newline at the end."""
    return (json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def parse_json(data: bytes | str) -> Any:
    """The JSON value in `data`; ValueError for anything else, also for one that is nested too deeply to be read."""
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("nested too deeply") from None


def digest_of(value: Any) -> str:
    """sha256 (hex) of the canonical JSON of `value`."""
    return hashlib.sha256(canonical(value)).hexdigest()


@dataclass(frozen=True)
class Change:
    """One reason to run again: what changed, from what, to what."""

    what: str
    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.what}: {self.old} -> {self.new}"


def changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    """The differences between two key documents, by their dotted names."""
    before, after = _flat(old), _flat(new)
    return [
        Change(name, _shown(before.get(name)), _shown(after.get(name)))
        for name in sorted({*before, *after})
        if before.get(name) != after.get(name)
    ]


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, Mapping) and value:
        flat: dict[str, Any] = {}
        for key, item in value.items():
            flat.update(_flat(item, f"{prefix}.{key}" if prefix else str(key)))
        return flat
    return {prefix: value}


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, str) and len(value) == 64:
        return value[:12]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:117]}..."
