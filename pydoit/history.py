"""The last build of each recipe: what `doit why` compares with and `doit report` shows (disposable)."""

from __future__ import annotations

import contextlib
import os
import re
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydoit.errors import StoreError
from pydoit.keys import Change, changes, parse_json, pretty
from pydoit.results import Result

SCHEMA = 1
_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{32}\.tmp")
LEFT_SECONDS = 3600.0
"""Age of a temporary file that nobody writes any more."""


class History:
    """artifacts/.modelbuild/builds/<recipe>.json: per stage the last status, key, document and measurements."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "builds"
        self._read: dict[str, dict[str, Any]] = {}

    def recipes(self) -> list[str]:
        """The recipes that were built here."""
        return sorted(path.stem for path in self._folder.glob("[!.]*.json"))

    def stages(self, recipe: str) -> dict[str, Any]:
        """Stage -> what was recorded of it; empty when the recipe was never built here."""
        if recipe not in self._read:
            try:
                record = parse_json(self._path(recipe).read_bytes())
                self._read[recipe] = dict(record["stages"]) if record["schema"] == SCHEMA else {}
            except (OSError, ValueError, KeyError, TypeError):
                self._read[recipe] = {}
        return self._read[recipe]

    def reasons(self, recipe: str, stage: str, document: Mapping[str, Any]) -> list[Change]:
        """Why a stage with this key document is not the one that was last good: the differences."""
        before = self.stages(recipe).get(stage, {}).get("document")
        return changes(before, document) if before else [Change("never built here", "none", "first build")]

    def record(self, recipe: str, results: Mapping[str, Result], keep: Mapping[str, Any]) -> None:
        """Replace the recipe's record; the document of the last good run of a stage outlives failed ones.

        `keep`: earlier records of stages that this build was not asked for.
        """
        before = self.stages(recipe)
        stages = dict(keep) | {stage: _encode(result, before.get(stage, {})) for stage, result in results.items()}
        self._read[recipe] = stages
        write_atomically(self._path(recipe), pretty({"schema": SCHEMA, "recipe": recipe, "stages": stages}))

    def _path(self, recipe: str) -> Path:
        return self._folder / f"{recipe}.json"


def _encode(result: Result, before: Mapping[str, Any]) -> dict[str, Any]:
    document = dict(result.document) if result.is_good else before.get("document", {})
    reason, because = result.reason, before.get("because", "")
    if result.status == "built":
        because = result.reason
    return {
        "status": result.status, "key": result.key, "document": document, "seconds": round(result.seconds, 3),
        "reason": reason, "because": because, "measurements": dict(result.measurements),
        "files": {name: file.sha256 for name, file in result.files.items()},
    }  # fmt: skip


def is_temporary(name: str) -> bool:
    """Whether a file is one that is being written, here or by another command, and will be renamed."""
    return _TEMPORARY.fullmatch(name) is not None


def sweep(folder: Path) -> None:
    """Remove temporary files in `folder` that a killed process left there."""
    with contextlib.suppress(OSError):
        for path in folder.glob(".*.tmp"):
            if is_temporary(path.name) and time.time() - path.stat().st_mtime > LEFT_SECONDS:
                path.unlink(missing_ok=True)


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that readers see whole or not at all; `StoreError` when the folder cannot be written."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror or error}; correct its rights or free space") from error
    finally:
        with contextlib.suppress(OSError):  # the error above says more
            temporary.unlink(missing_ok=True)
