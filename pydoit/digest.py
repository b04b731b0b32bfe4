"""File digests behind a stat cache, so that gigabytes of weights are hashed once."""

from __future__ import annotations

import hashlib
import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from pydoit.errors import UserError

RECENT_NS = 2_000_000_000


def hash_file(path: Path) -> str:
    """sha256 (hex) of the file's bytes, read now."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_bytes(data: bytes) -> str:
    """sha256 (hex) of `data`."""
    return hashlib.sha256(data).hexdigest()


class StatCache:
    """sha256 by (path, size, mtime_ns, ctime_ns, inode), kept in sqlite; losing it costs time only.

    A file changed within the last two seconds is hashed but not remembered: a second change within the clock's
    granularity would look the same.
    """

    def __init__(self, database: Path) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._known: dict[tuple[str, int, int, int, int], str] = {}

    def digest(self, path: Path) -> str:
        """sha256 (hex) of `path`; from the cache when the file's stat has not changed."""
        status = path.stat()
        identity = (os.fspath(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        with self._lock:
            found = self._known.get(identity) or self._lookup(identity)
        if found is not None:
            return found
        value = hash_file(path)
        after = path.stat()
        if (after.st_size, after.st_mtime_ns) == identity[1:3] and time.time_ns() - status.st_mtime_ns > RECENT_NS:
            self._remember(identity, value)
        return value

    def trust(self, path: Path, sha256: str) -> None:
        """Remember the digest of a file that nobody writes to any more."""
        status = path.stat()
        identity = (os.fspath(path), status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino)
        self._remember(identity, sha256)

    def _lookup(self, identity: tuple[str, int, int, int, int]) -> str | None:
        try:
            row = self._open().execute(
                "SELECT sha256 FROM files WHERE path=? AND size=? AND mtime_ns=? AND ctime_ns=? AND inode=?", identity
            )
            found = row.fetchone()
        except sqlite3.Error:
            self._connection = None
            return None
        if found is None:
            return None
        self._known[identity] = found[0]
        return str(found[0])

    def _remember(self, identity: tuple[str, int, int, int, int], value: str) -> None:
        with self._lock:
            self._known[identity] = value
            try:
                self._open().execute("INSERT OR REPLACE INTO files VALUES (?,?,?,?,?,?)", (*identity, value))
            except sqlite3.Error:
                self._connection = None  # a cache that cannot be written only costs time

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._database.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(self._database, timeout=2, isolation_level=None, check_same_thread=False)
            connection.execute(
                "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, size INTEGER, mtime_ns INTEGER,"
                " ctime_ns INTEGER, inode INTEGER, sha256 TEXT)"
            )
            self._connection = connection
        return self._connection


def walk(folder: Path, *, follow: bool = False) -> Iterator[tuple[Path, list[str], list[str]]]:
    """`os.walk` in a stable order that raises OSError for a folder it cannot read; it and rglob would leave it out silently."""

    def refuse(error: OSError) -> None:
        raise error

    for place, folders, names in os.walk(folder, onerror=refuse, followlinks=follow):
        folders.sort()
        yield Path(place), folders, sorted(names)


def files_below(path: Path, label: str) -> dict[str, Path]:
    """The files of a model by relative name; a single file stands under its own name."""
    if path.is_file():
        return {path.name: path}
    if not path.is_dir():
        raise UserError(f"{label}: there is no such file or folder; check the path")
    found: dict[str, Path] = {}
    for folder, folders, names in walk(path, follow=True):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "__pycache__"]
        for name in names:
            if not name.startswith("."):
                file = folder / name
                found[file.relative_to(path).as_posix()] = file
    return found
