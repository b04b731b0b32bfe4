"""Where what is here differs from the lock file: the field, old -> new, and the remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydoit.keys import Change, changes
from pydoit.lockfile.entry import CHECKED_IN, PARTS, Entry

_LONG_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,52}\b")
UNDO = {
    "recipe": "undo it",
    "arch": "name the arch in the recipe",
    "sources": "restore the file or reference",
    "records": "restore the file",
    "code": "restore the file",
    "toolchain": "install the locked version",
    "environment": "set the variable as it was locked",
    "artifact": "`doit build {name} --check-reproducible` tells what differs",
}


@dataclass(frozen=True)
class Drift:
    """One difference between the lock file and what is here."""

    recipe: str
    part: str
    change: Change

    @property
    def what(self) -> str:
        """The field: its part of the lock file, and its name there."""
        return self.change.what

    @property
    def remedy(self) -> str:
        command = f"doit lock {self.recipe}" if self.part in CHECKED_IN else f"doit lock --upgrade {self.recipe}"
        upgraded = command if self.part in (*CHECKED_IN, "artifact") else f"{command} {self.part}"
        return f"{UNDO[self.part].format(name=self.recipe)}, or `{upgraded}`"

    def __str__(self) -> str:
        return f"{self.recipe}: {self.what}: {self.change.old} -> {self.change.new}; {self.remedy}"


def drifts(recipe: str, locked: Entry, here: Entry) -> list[Drift]:
    """Every input that is not as it was locked; what cannot be known here yet stands as locked."""
    here = carry(locked, here)
    return [Drift(recipe, part, change) for part in PARTS for change in part_changes(part, locked, here)]


def carry(locked: Entry, here: Entry) -> Entry:
    """`here` with the digests of files that were not fetched here, where they belong to the same revision."""
    known = dict(here.sources)
    for reference in [name for name, value in here.sources.items() if value.startswith("revision:")]:
        inner = f"{reference}/"
        if locked.sources.get(reference) == known[reference] and not any(name.startswith(inner) for name in known):
            known |= {name: value for name, value in locked.sources.items() if name.startswith(inner)}
        elif not any(name.startswith(inner) for name in locked.sources):
            known = {name: value for name, value in known.items() if not name.startswith(inner)}
    return replace(here, sources=known)


def part_changes(part: str, locked: Entry, here: Entry) -> list[Change]:
    """The differences of one part, by dotted names that begin with the part's."""
    old, new = getattr(locked, part), getattr(here, part)
    if isinstance(old, str):
        return [Change(part, old or "none", new or "none")] if old != new else []
    return [_readable(part, change, old, new) for change in changes(old, new) if change.what]


def _readable(part: str, change: Change, old: Mapping[str, Any], new: Mapping[str, Any]) -> Change:
    before, after = (_at(side, change.what) for side in (old, new))
    if isinstance(before, list) and isinstance(after, list):
        return _list_change(f"{part}.{change.what}", before, after)
    return Change(f"{part}.{change.what}", _short(change.old), _short(change.new))


def _list_change(what: str, old: Sequence[Any], new: Sequence[Any]) -> Change:
    """Only the stretch of two lists that differs, so that a long order shows what changed in it."""
    start = next((index for index, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    end = 0
    while end < min(len(old), len(new)) - start and old[-1 - end] == new[-1 - end]:
        end += 1
    shown = (", ".join(map(str, side[start : len(side) - end])) or "nothing" for side in (old, new))
    return Change(f"{what}[{start}]", *shown)


def _at(values: Mapping[str, Any], dotted: str) -> Any:
    return next((value for name, value in _leaves(values) if name == dotted), None)


def _leaves(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _short(text: str) -> str:
    return _LONG_DIGEST.sub(r"\1", text)
