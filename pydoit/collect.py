"""Store upkeep: sizes, verification of every blob, and garbage collection by age and size."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path

from pydoit.digest import hash_file
from pydoit.errors import UserError
from pydoit.locks import locked
from pydoit.store import Store

UNITS = {"MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Stats:
    """What the store holds."""

    entries: int
    blobs: int
    bytes: int
    temporary: int


@dataclass(frozen=True)
class Collected:
    """What garbage collection removed and kept."""

    entries_removed: int
    blobs_removed: int
    bytes_removed: int
    bytes_kept: int


def parse_size(text: str) -> int:
    """`500MB`, `50GB` or `1.5TB` in bytes."""
    number, unit = text[:-2], text[-2:].upper()
    try:
        return int(float(number) * UNITS[unit])
    except (KeyError, ValueError):
        raise UserError(f"{text!r} is not a size; write like 500MB, 50GB or 1.5TB") from None


def measure(store: Store) -> Stats:
    """Count entries, blobs and bytes."""
    sizes = [size for _, size in _blobs(store)]
    entries = sum(1 for _ in store.root.glob("actions/*/*.json"))
    return Stats(entries, len(sizes), sum(sizes), sum(1 for _ in store.root.glob("tmp/*")))


def verify(store: Store) -> list[str]:
    """Hash every blob; damaged ones and the entries that name them are removed and their digests returned."""
    with locked(store.root / "locks" / "store.lock"):
        damaged = [path.name for path, _ in _blobs(store) if hash_file(path) != path.name]
        for name in damaged:
            store.blob_path(name).unlink(missing_ok=True)
        for path in store.root.glob("actions/*/*.json"):
            names = _named(path)
            if names is None or any(not store.blob_path(name).exists() for name in names):
                path.unlink(missing_ok=True)
    return damaged


def collect(store: Store, max_bytes: int, max_age_days: float | None = None) -> Collected:
    """Drop the least recently used entries until the rest fits `max_bytes`, then blobs that no entry names.

    Waits until no build runs: a running build holds the store in shared mode.
    """
    import time

    with locked(store.root / "locks" / "store.lock"):
        store.sweep()
        sizes = {path.name: size for path, size in _blobs(store)}
        entries = sorted(store.root.glob("actions/*/*.json"), key=lambda path: path.stat().st_mtime, reverse=True)
        oldest = time.time() - max_age_days * 86400 if max_age_days is not None else 0.0
        kept: set[str] = set()
        total = removed = 0
        for position, path in enumerate(entries):
            names = _named(path)
            added = sum(sizes.get(name, 0) for name in (names or set()) - kept)
            if names is None or path.stat().st_mtime < oldest or total + added > max_bytes:
                path.unlink(missing_ok=True)
                removed += 1
                if names is not None and total + added > max_bytes:
                    removed += _drop(entries[position + 1 :])
                    break
                continue
            kept |= names
            total += added
        loose = [name for name in sizes if name not in kept]
        _drop([store.blob_path(name) for name in loose])
        _drop([path for path in store.root.glob("locks/*.lock") if path.name != "store.lock"])
        return Collected(removed, len(loose), sum(sizes[name] for name in loose), total)


def _drop(paths: list[Path]) -> int:
    for path in paths:
        path.unlink(missing_ok=True)
    return len(paths)


def _blobs(store: Store) -> list[tuple[Path, int]]:
    found = []
    for path in store.root.glob("blobs/*/*"):
        with contextlib.suppress(FileNotFoundError):
            found.append((path, path.stat().st_size))
    return found


def _named(path: Path) -> set[str] | None:
    """Digests that an entry names; None when it cannot be read."""
    try:
        return {str(blob["sha256"]) for blob in json.loads(path.read_bytes())["outputs"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
