"""Turns on one machine: stages run side by side, but whatever measures runs alone."""

from __future__ import annotations

import contextlib
import os
import platform
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from pydoit.digest import hash_bytes
from pydoit.locks import locked


@contextlib.contextmanager
def working(waiting: Callable[[float], None]) -> Iterator[None]:
    """Work that may run beside other work, but not beside a measurement, in any workspace of this machine."""
    with contextlib.ExitStack() as stack:
        with locked(_file("turn"), waiting=waiting):
            stack.enter_context(locked(_file("work"), shared=True, waiting=waiting))
        yield


@contextlib.contextmanager
def measuring(waiting: Callable[[float], None]) -> Iterator[None]:
    """A measurement: waits until all work has ended, and holds further work back in the meantime."""
    with locked(_file("turn"), waiting=waiting), locked(_file("work"), waiting=waiting):
        yield


@cache
def host_identity() -> str:
    """This machine since it was started, in twelve letters; containers on it share it, as they share its locks."""
    try:
        text = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")
    except OSError:
        text = platform.node()
    return hash_bytes(text.encode())[:12]


def _file(name: str) -> Path:
    """A lock file that every user of the machine can open, whoever made it."""
    shared = Path("/tmp")  # noqa: S108 - one place for all users, whatever their TMPDIR
    path = (shared if shared.is_dir() else Path(tempfile.gettempdir())) / f"doit-modelbuild-{name}.lock"
    if not path.exists():
        with contextlib.suppress(OSError):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666))
            path.chmod(0o666)
    return path
