"""Locks between processes: flock on small files, freed by the kernel when their holder dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

POLL_SECONDS = 0.05


@contextlib.contextmanager
def locked(path: Path, *, shared: bool = False, waiting: Callable[[float], None] | None = None) -> Iterator[None]:
    """Hold the lock file `path`; while another process holds it, call `waiting(seconds)` about every POLL_SECONDS."""
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    started = time.monotonic()
    while True:
        descriptor = _open(path)
        if _take(descriptor, mode) and _is_current(descriptor, path):
            break
        os.close(descriptor)
        if waiting is not None:
            waiting(time.monotonic() - started)
        time.sleep(POLL_SECONDS)
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def try_locked(path: Path) -> Iterator[bool]:
    """Hold the lock file `path` when it is free; yields whether it is held."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except FileNotFoundError:
        yield False
        return
    try:
        yield _take(descriptor, fcntl.LOCK_EX)
    finally:
        os.close(descriptor)


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


def _take(descriptor: int, mode: int) -> bool:
    try:
        fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_current(descriptor: int, path: Path) -> bool:
    """Whether the locked file is still the one at `path`: garbage collection may have removed it in between."""
    try:
        return os.fstat(descriptor).st_ino == path.stat().st_ino
    except FileNotFoundError:
        return False
