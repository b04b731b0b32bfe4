"""Outputs from bundles that stand in for stages here: made by other tools, from the same recipe, inputs and code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydoit.history import write_atomically
from pydoit.keys import Change, changes, parse_json, pretty
from pydoit.store import Entry, decode_entry, encode_entry

SCHEMA = 1
MACHINE = ("tools", "environment", "hardware")
"""Parts of a key document that say who did the work and where, not what was asked for."""


@dataclass(frozen=True)
class Adoption:
    """What a bundle brought for one stage."""

    key: str
    """The stage's action key on this machine; another one as soon as anything changes here, so that it never goes stale."""
    entry: Entry
    """What was made, under the key of the machine that made it."""


class Adopted:
    """artifacts/.modelbuild/unpacked/<recipe>.json; disposable, `doit unpack` writes it anew."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "unpacked"
        self._read: dict[str, dict[str, Adoption]] = {}

    def find(self, recipe: str, stage: str, key: str) -> Entry | None:
        """The entry that stands in for the stage under its key here."""
        found = self._of(recipe).get(stage)
        return found.entry if found is not None and found.key == key else None

    def add(self, recipe: str, adoptions: Mapping[str, Adoption]) -> None:
        """Keep what a bundle brought, in place of what an earlier one brought for the same stages."""
        kept = {**self._of(recipe), **adoptions}
        self._read[recipe] = kept
        stages = {stage: {"key": item.key, "entry": encode_entry(item.entry)} for stage, item in kept.items()}
        write_atomically(self._path(recipe), pretty({"schema": SCHEMA, "recipe": recipe, "stages": stages}))

    def _of(self, recipe: str) -> dict[str, Adoption]:
        if recipe not in self._read:
            self._read[recipe] = _decode(self._path(recipe))
        return self._read[recipe]

    def _path(self, recipe: str) -> Path:
        return self._folder / f"{recipe}.json"


def _decode(path: Path) -> dict[str, Adoption]:
    try:
        value = parse_json(path.read_bytes())
        stages = value["stages"] if value["schema"] == SCHEMA else {}
        return {
            stage: Adoption(str(item["key"]), decode_entry(item["entry"]["key"], item["entry"]))
            for stage, item in stages.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def differences(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[Change]:
    """Why an output made from one key document cannot stand in for the other; empty when only the machines differ."""
    return changes(_asked(theirs), _asked(ours))


def made_by(theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> list[Change]:
    """How the machines differ."""
    return changes({name: theirs.get(name) for name in MACHINE}, {name: ours.get(name) for name in MACHINE})


def _asked(document: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in MACHINE}
