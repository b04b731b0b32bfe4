"""What is known of a stage after it was looked at: status, key, files, measurements (data, no behaviour)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GOOD = frozenset({"built", "hit", "restored"})
STATUSES = ("built", "hit", "restored", "deferred", "failed", "skipped")


@dataclass(frozen=True)
class File:
    """A file that a stage gives to the next: where it lies, and its digest."""

    path: Path
    sha256: str


@dataclass(frozen=True)
class Result:
    """One stage of one recipe in the last build."""

    stage: str
    status: str
    key: str | None = None
    document: Mapping[str, Any] = field(default_factory=dict)
    files: Mapping[str, File] = field(default_factory=dict)
    measurements: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0
    reason: str = ""

    @property
    def is_good(self) -> bool:
        return self.status in GOOD
