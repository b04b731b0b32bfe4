"""[[gate]] with max_regress: a new artifact beside the locked one, or that of a revision, before it is published."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydoit.apart import linked
from pydoit.console import Console
from pydoit.lockfile.file import read_lock
from pydoit.regression.bench import Effort, compare
from pydoit.regression.sides import Side, open_side
from pydoit.regression.verdict import Change
from pydoit.results import File
from pydoit.store import Store
from pydoit.workspace import Workspace

LOCKED = "locked"


@dataclass(frozen=True)
class Missing:
    """There is nothing to compare with."""

    reason: str
    is_fault: bool = False
    """Whether the gate fails for it."""


def regressions(
    workspace: Workspace, store: Store, recipe: str, files: Mapping[str, File], bounds: Sequence[Mapping[str, Any]]
) -> tuple[list[str], list[str]]:
    """Failures of the gates with max_regress, and notes on those that could not be judged.

    A gate fails only where the whole interval of the change lies beyond it: what is inconclusive passes, and is told.
    """
    failures: list[str] = []
    notes: list[str] = []
    for gate in bounds:
        if not gate.get("max_regress"):
            continue
        against = gate.get("against") or LOCKED
        with _baseline(workspace, store, recipe, against, files) as baseline, store.scratch() as folder:
            if isinstance(baseline, Missing):
                (failures if baseline.is_fault else notes).append(f"gate: {gate['metric']}: {baseline.reason}")
                continue
            new = Side(recipe, linked(folder / "new", {name: file.path for name, file in files.items()}))
            margin = float(gate["max_regress"].rstrip("%")) / 100
            found = compare(workspace, baseline, new, Effort(margin), {}, Console())
        change = _timed(found.changes)
        told = f"gate: {gate['metric']} is {change.text} against {against}, max_regress = {gate['max_regress']}"
        if change.verdict == "worse":
            failures.append(told)
        elif change.verdict == "inconclusive":
            notes.append(f"{told}: inconclusive")
    return failures, notes


@contextmanager
def _baseline(
    workspace: Workspace, store: Store, recipe: str, against: str, files: Mapping[str, File]
) -> Iterator[Side | Missing]:
    """The artifact to compare with, or why there is none."""
    if against != LOCKED:
        with open_side(workspace, f"{recipe}:{against}", Console()) as side:
            yield side
        return
    entry = (read_lock(workspace.root) or {}).get(recipe)
    if entry is None or not entry.artifact:
        yield Missing(f"not judged, no artifact is locked; `doit lock {recipe}` locks this one")
    elif {name: item.sha256 for name, item in entry.artifact.items()} == {name: file.sha256 for name, file in files.items()}:
        yield Missing("not judged, it is the locked artifact")
    else:
        blobs = {name: store.blob_path(item.sha256) for name, item in entry.artifact.items()}
        missing = [name for name, path in blobs.items() if not path.is_file()]
        if missing:
            yield Missing(
                f"{', '.join(missing)} of the locked artifact is not in the cache; `doit cache pull {recipe}`, or lock anew",
                is_fault=True,
            )
            return
        with store.scratch() as folder:
            yield Side(f"{recipe} (locked)", linked(folder / "locked", blobs))


def _timed(changes: Sequence[Change]) -> Change:
    """The change that `profile.latency_ms` speaks of: a call, or a decoded token."""
    return next(change for change in changes if change.metric in ("latency", "decode"))
