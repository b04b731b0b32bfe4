"""What `doit lock` writes: a locked entry with some of its parts taken from what is here."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from pydoit.lockfile.drift import carry
from pydoit.lockfile.entry import CHECKED_IN, PARTS, Entry


def updated(locked: Entry | None, here: Entry, parts: Collection[str] = CHECKED_IN) -> Entry:
    """The entry to write: `parts` as they are here, the others as they were locked.

    The artifact is the one that these parts gave here; where they did not give one, it stays only if no part changed.
    """
    if locked is None:
        return here
    here = carry(locked, here)
    kept = {part: _kept(part, locked, here) for part in PARTS if part not in parts}
    entry = replace(here, **kept)
    if here.artifact and entry.inputs == here.inputs:
        return entry
    return replace(entry, artifact=locked.artifact if entry.inputs == locked.inputs else {})


def _kept(part: str, locked: Entry, here: Entry) -> Any:
    old, new = getattr(locked, part), getattr(here, part)
    if part == "arch":
        return old if old and new else new
    if part == "toolchain":  # which tools take part follows from the recipe; their versions stay
        return {name: old.get(name, version) for name, version in new.items()}
    return old
