"""What a build is compared with: the measurement before it, and the locked artifact's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from pydoit.lockfile.file import read_lock
from pydoit.publish import LIBRARY
from pydoit.regression.journal import Experiment, Journal
from pydoit.report.figures import figures_of
from pydoit.workspace import Workspace

DIGEST = "library"
"""The figure of a profile's row in the journal that tells which library was measured."""


def previous_of(rows: Sequence[Experiment], report: Mapping[str, Any]) -> dict[str, Any] | None:
    """The latest measurement among a recipe's profiles that is not the report's own."""
    now = figures_of(report).get("latency_ms")
    return next((_told(row) for row in reversed(rows) if row.figures.get("latency_ms") != now), None)


def locked_of(workspace: Workspace, recipe: str, rows: Sequence[Experiment], files: Mapping[str, str]) -> dict[str, Any] | None:
    """The files of the locked artifact, and its figures where it was measured here. `files`: name -> sha256 of the package."""
    entry = (read_lock(workspace.root) or {}).get(recipe)
    if entry is None or not entry.artifact:
        return None
    sizes = {name: item.bytes for name, item in entry.artifact.items()}
    library = entry.artifact.get(LIBRARY)
    measured = next((row for row in reversed(rows) if library and row.figures.get(DIGEST) == library.sha256), None)
    figures = {"artifact_bytes": sum(sizes.values()), **({"library_bytes": library.bytes} if library else {})}
    return {
        "files": sizes,
        "is_current": all(files.get(name) == item.sha256 for name, item in entry.artifact.items()),
        "figures": {**(_told(measured)["figures"] if measured else {}), **figures},
        "time": _told(measured)["time"] if measured else None,
    }


def profiles(workspace: Workspace, recipe: str) -> list[Experiment]:
    """The measured profiles of a recipe in this workspace, oldest first."""
    return Journal(workspace.state).rows(recipe, "profile")


def _told(row: Experiment) -> dict[str, Any]:
    figures = {name: value for name, value in row.figures.items() if name != DIGEST}
    return {"time": told_time(row.time), "changed": row.changed, "figures": figures}


def told_time(seconds: float) -> str:
    """Seconds since 1970 as UTC, ISO 8601."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
