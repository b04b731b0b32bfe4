"""The content-addressed store: blobs by sha256, and action entries that name the blobs a stage wrote."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydoit.digest import StatCache, hash_file
from pydoit.errors import StoreError
from pydoit.keys import canonical, digest_of, parse_json
from pydoit.locks import locked, try_locked
from pydoit.machine import host_identity

STORE_SCHEMA = 1
FOREIGN_SECONDS = 86400.0
"""Age from which a temporary folder of another machine is taken for left behind."""


def blob_name(sha256: str) -> str:
    """Where a blob lies, in the store and on a remote."""
    return f"blobs/{sha256[:2]}/{sha256}"


def entry_name(key: str) -> str:
    """Where an entry lies, in the store and on a remote."""
    return f"actions/{key[:2]}/{key}.json"


@dataclass(frozen=True)
class Blob:
    """One file of an output."""

    sha256: str
    bytes: int


@dataclass(frozen=True)
class Entry:
    """What a stage produced under an action key: files by relative name, and measurements beside them."""

    key: str
    stage: str
    document: Mapping[str, Any]
    outputs: Mapping[str, Blob]
    measurements: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def output_digest(self) -> str:
        return digest_of({name: blob.sha256 for name, blob in self.outputs.items()})


class Store:
    """A folder shared by workspaces, branches and concurrent builds.

    A blob is written to a temporary name and renamed; the entry comes last, so an entry never names a blob that is
    not there, and a process killed at any point leaves only temporary files, which the next build sweeps away.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.stats = StatCache(root / "stat.db")
        self._scratches: set[Path] = set()

    def blob_path(self, sha256: str) -> Path:
        return self.root / blob_name(sha256)

    def entry_path(self, key: str) -> Path:
        return self.root / entry_name(key)

    def lookup(self, key: str) -> Entry | None:
        """The entry of `key` when it is whole: well-formed, and every blob present with its bytes unchanged.

        A damaged blob is removed together with the entry, so that the stage runs again.
        """
        path = self.entry_path(key)
        try:
            entry = decode_entry(key, parse_json(path.read_bytes()))
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError):
            path.unlink(missing_ok=True)
            return None
        except OSError as error:
            raise store_error(error, path) from error
        damaged = [blob for blob in entry.outputs.values() if not self.holds(blob)]
        for blob in damaged:
            self.blob_path(blob.sha256).unlink(missing_ok=True)
        if damaged:
            path.unlink(missing_ok=True)
            return None
        return entry

    def touch(self, key: str) -> None:
        """Note that the entry was used, for the order of garbage collection."""
        with contextlib.suppress(OSError):
            os.utime(self.entry_path(key))

    def holds(self, blob: Blob) -> bool:
        """Whether the blob is here with its bytes unchanged."""
        path = self.blob_path(blob.sha256)
        try:
            return path.stat().st_size == blob.bytes and self.stats.digest(path) == blob.sha256
        except OSError:
            return False

    def commit(self, key: str, stage: str, document: Mapping[str, Any], out: Path, measurements: Mapping[str, Any],
               seconds: float) -> Entry:  # fmt: skip
        """Move the files below `out` into the store and write the entry; the entry is the last thing written."""
        try:
            outputs = {path.relative_to(out).as_posix(): self._add(path) for path in _files(out)}
            entry = Entry(key, stage, document, outputs, measurements, round(seconds, 3))
        except OSError as error:
            raise store_error(error, self.root) from error
        self.write_entry(entry)
        return entry

    def write_entry(self, entry: Entry) -> None:
        """Write an entry whose blobs are all here."""
        try:
            self._write(self.entry_path(entry.key), canonical(encode_entry(entry)))
        except OSError as error:
            raise store_error(error, self.root) from error

    def partial_path(self, sha256: str) -> Path:
        """Where a blob grows while it comes from elsewhere; what is there after an interruption is gone on with."""
        return self.root / "partial" / sha256

    def adopt(self, path: Path, blob: Blob) -> bool:
        """Move a file that came from elsewhere into the store; removed instead, and False, where it is not the blob."""
        if path.stat().st_size != blob.bytes or hash_file(path) != blob.sha256:
            path.unlink()
            return False
        self._place(path, blob.sha256)
        return True

    def _add(self, path: Path) -> Blob:
        sha256, size = hash_file(path), path.stat().st_size
        self._place(path, sha256)
        return Blob(sha256, size)

    def _place(self, path: Path, sha256: str) -> None:
        with path.open("rb") as file:
            os.fsync(file.fileno())
        target = self.blob_path(sha256)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.chmod(0o444)
        os.replace(path, target)
        self.stats.trust(target, sha256)

    def _write(self, path: Path, data: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        with self.scratch() as folder:  # not beside the target: what a killed process leaves there is swept
            temporary = folder / path.name
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)

    def restore(self, entry: Entry, name: str, destination: Path) -> None:
        """Copy one output file out (a reflink where the file system can), checking its bytes on the way."""
        blob = entry.outputs[name]
        destination.parent.mkdir(parents=True, exist_ok=True)
        temporary = destination.with_name(f".{destination.name}.{uuid.uuid4().hex}.tmp")
        try:
            shutil.copyfile(self.blob_path(blob.sha256), temporary)
            if hash_file(temporary) != blob.sha256:
                self.blob_path(blob.sha256).unlink(missing_ok=True)
                raise StoreError(f"a stored file was damaged ({blob.sha256[:12]}) and has been removed; build again")
            os.replace(temporary, destination)
        except OSError as error:
            raise store_error(error, destination) from error
        finally:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)

    def link_out(self, entry: Entry, names: tuple[str, ...] | None, folder: Path) -> None:
        """Lay a read-only view of output files into `folder` as symbolic links to the blobs."""
        for name, blob in entry.outputs.items():
            if names is None or name in names:
                link = folder / name
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(self.blob_path(blob.sha256))

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep garbage collection away while a build runs."""
        try:
            (self.root / "locks").mkdir(parents=True, exist_ok=True)
            (self.root / "locks" / "store.lock").touch()
        except OSError as error:
            raise store_error(error, self.root) from error
        with locked(self.root / "locks" / "store.lock", shared=True):
            yield

    @contextlib.contextmanager
    def key_lock(self, key: str, waiting: Callable[[float], None] | None = None) -> Iterator[None]:
        """One process at a time works on an action key."""
        with locked(self.root / "locks" / f"{key}.lock", waiting=waiting):
            yield

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """A temporary folder on the store's file system; swept by a later build when this process dies."""
        folder = self.root / "tmp" / f"{host_identity()}-{uuid.uuid4().hex}"
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise store_error(error, folder) from error
        self._scratches.add(folder)
        with locked(folder / "owner.lock"):
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                self._scratches.discard(folder)

    def wait_until_idle(self, seconds: float) -> None:
        """After an interrupt: let this process's other threads remove their temporary folders."""
        end = time.monotonic() + seconds
        while self._scratches and time.monotonic() < end:
            time.sleep(0.01)

    def sweep(self) -> int:
        """Remove temporary folders whose owner is gone; returns how many.

        Locks of another machine may not show here, so its folders must be old too.
        """
        removed = 0
        for folder in self.root.glob("tmp/*"):
            age = _age_seconds(folder)
            if not folder.name.startswith(host_identity()) and age < FOREIGN_SECONDS:
                continue
            with try_locked(folder / "owner.lock") as free:
                if free or (not (folder / "owner.lock").exists() and age > 60):
                    shutil.rmtree(folder, ignore_errors=True)
                    removed += 1
        return removed


def _files(folder: Path) -> list[Path]:
    """The files below `folder`; StoreError for a link, whose target would change behind the store's back."""
    found = sorted(folder.rglob("*"))
    for path in found:
        if path.is_symlink():
            raise StoreError(f"a stage made a link, {path.relative_to(folder).as_posix()!r}; let it write a file instead")
    return [path for path in found if path.is_file()]


def _age_seconds(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def encode_entry(entry: Entry) -> dict[str, Any]:
    """The entry as a JSON value."""
    return {"schema": STORE_SCHEMA, **asdict(entry)}


def decode_entry(key: str, value: Any) -> Entry:
    """The entry of `key` in a JSON value; ValueError, KeyError, TypeError or AttributeError when it is none."""
    if value["schema"] != STORE_SCHEMA or value["key"] != key or digest_of(value["document"]) != key:
        raise ValueError("not an entry of this key")
    outputs = {str(name): Blob(str(blob["sha256"]), int(blob["bytes"])) for name, blob in value["outputs"].items()}
    if any(not _is_safe(name) or len(blob.sha256) != 64 or not blob.sha256.isalnum() for name, blob in outputs.items()):
        raise ValueError("an output name leaves its folder")
    return Entry(key, str(value["stage"]), value["document"], outputs, dict(value["measurements"]), float(value["seconds"]))


def _is_safe(name: str) -> bool:
    return bool(name) and not name.startswith("/") and ".." not in name.split("/") and "\0" not in name


def store_error(error: OSError, path: Path) -> StoreError:
    """What the user is told of a fault of the file system."""
    if error.errno == errno.ENOSPC:
        return StoreError(f"the disk is full while writing {path}; free space or run `doit cache gc`")
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM):
        return StoreError(f"{path} cannot be written ({error.strerror}); correct its rights or set MODELBUILD_CACHE")
    return StoreError(f"{path}: {error.strerror or error}; correct the path or set MODELBUILD_CACHE")
