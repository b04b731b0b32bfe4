"""Copies a package from the store to artifacts/<recipe>/, and tells whether it is there unchanged."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from pydoit.digest import StatCache
from pydoit.errors import StoreError
from pydoit.history import is_temporary
from pydoit.results import File
from pydoit.store import Entry, Store

MANIFEST, LIBRARY = "manifest.json", "lib.so"
STATEMENT, MATERIALS, ENVELOPE = "provenance.json", "sbom.json", "provenance.dsse.json"
REPORT, PAGE, TRACE = "report.json", "report.html", "trace.json"
REPORTS = frozenset({REPORT, PAGE, TRACE, STATEMENT, MATERIALS, ENVELOPE})


def is_published(folder: Path, files: Mapping[str, File], stats: StatCache) -> bool:
    """Whether `folder` holds exactly `files` with their digests, beside reports and provenance."""
    try:
        return all(stats.digest(folder / name) == file.sha256 for name, file in files.items()) and not _strangers(folder, files)
    except OSError:
        return False


def publish(store: Store, entry: Entry, folder: Path) -> None:
    """Copy the files of `entry` into `folder`: the manifest goes first and comes back last.

    A folder without manifest is not an artifact, so that a process killed in between leaves nothing that looks whole.
    """
    try:
        _refuse_links(folder, entry.outputs)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / MANIFEST).unlink(missing_ok=True)
        for name in sorted(entry.outputs, key=lambda name: (name == MANIFEST, name)):
            store.restore(entry, name, folder / name)
        for stranger in _strangers(folder, entry.outputs):
            stranger.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                stranger.parent.rmdir()
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror or error}; correct its rights and build again") from error


def _refuse_links(folder: Path, names: Iterable[str]) -> None:
    """Raise StoreError where a link would lead what is written, and what is removed, out of the artifact's folder."""
    places = {folder, *(folder / parent for name in names for parent in PurePosixPath(name).parents)}
    for place in sorted(places):
        if place.is_symlink():
            raise StoreError(f"{place}: a link in an artifact's place; remove it and build again")


def _strangers(folder: Path, files: Mapping[str, object]) -> list[Path]:
    found = []
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            relative = path.relative_to(folder).as_posix()
            if relative not in files and relative not in REPORTS and not is_temporary(name):
                found.append(path)
    return found
