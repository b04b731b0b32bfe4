"""Store upkeep: sizes, verification of every blob, and garbage collection by age and size."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from pydoit.digest import hash_file
from pydoit.errors import UserError
from pydoit.keys import parse_json
from pydoit.locks import locked
from pydoit.store import Store

REMOVALS_AT_ONCE = 8
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
    sizes = list(_blobs(store).values())
    temporary = sum(1 for pattern in ("tmp/*", "partial/*") for _ in store.root.glob(pattern))
    return Stats(sum(1 for _ in _entries(store)), len(sizes), sum(sizes), temporary)


def verify(store: Store) -> list[str]:
    """Hash every blob; damaged ones and the entries that name them are removed and their digests returned."""
    with locked(store.root / "locks" / "store.lock"):
        blobs = set(_blobs(store))
        damaged = [name for name in sorted(blobs) if hash_file(store.blob_path(name)) != name]
        blobs -= set(damaged)
        for name in damaged:
            store.blob_path(name).unlink(missing_ok=True)
        for item in _entries(store):
            names = _named(item.path)
            if names is None or not names <= blobs:
                Path(item.path).unlink(missing_ok=True)
    return damaged


def collect(store: Store, max_bytes: int, max_age_days: float | None = None) -> Collected:
    """Drop the least recently used entries until the rest fits `max_bytes`, then blobs that no entry names.

    Waits until no build runs: a running build holds the store in shared mode.
    """
    with locked(store.root / "locks" / "store.lock"):
        store.sweep()
        sizes = _blobs(store)
        entries = sorted(((item.stat().st_mtime, item.path) for item in _entries(store)), reverse=True)
        oldest = time.time() - max_age_days * 86400 if max_age_days is not None else 0.0
        kept: set[str] = set()
        dropped: list[str] = []
        total = 0
        for position, (used, path) in enumerate(entries):
            names = _named(path) if used >= oldest else None
            if names is None:
                dropped.append(path)
                continue
            added = sum(sizes.get(name, 0) for name in names - kept)
            if total + added > max_bytes:
                dropped += [older for _, older in entries[position:]]
                break
            kept |= names
            total += added
        loose = [name for name in sizes if name not in kept]
        _drop(dropped)
        _drop(store.blob_path(name) for name in loose)
        _drop(store.root.glob("partial/*"))
        _drop(path for path in store.root.glob("locks/*.lock") if path.name != "store.lock")
        return Collected(len(dropped), len(loose), sum(sizes[name] for name in loose), total)


def _drop(paths: Iterable[str | Path]) -> None:
    """Remove files, several at once: a disk that has not looked at them lately takes a millisecond for each."""
    with ThreadPoolExecutor(REMOVALS_AT_ONCE) as pool:
        for _ in pool.map(lambda path: Path(path).unlink(missing_ok=True), paths):
            pass


def _blobs(store: Store) -> dict[str, int]:
    """Digest -> bytes of every blob."""
    found = {}
    for item in _files(store.root / "blobs"):
        with contextlib.suppress(FileNotFoundError):
            found[item.name] = item.stat().st_size
    return found


def _entries(store: Store) -> Iterator[os.DirEntry[str]]:
    return (item for item in _files(store.root / "actions") if item.name.endswith(".json") and item.name[0] != ".")


def _files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Files two levels down; scandir, because a store may hold a hundred thousand of them."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as parts:
        for part in parts:
            with contextlib.suppress(NotADirectoryError, FileNotFoundError), os.scandir(part.path) as items:
                yield from items


def _named(path: str) -> set[str] | None:
    """Digests that an entry names; None when it cannot be read."""
    try:
        return {str(blob["sha256"]) for blob in parse_json(Path(path).read_bytes())["outputs"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
