"""What is asked of a remote: the small interface that fsspec's file systems serve, and tests with faults of their own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from pydoit.errors import ModelBuildError

Moved = Callable[[int], None]
"""Called with the bytes just moved: shows that a long request is alive."""


class RemoteError(ModelBuildError):
    """The remote cannot be used; a build goes on without it."""


class DamagedError(RemoteError):
    """A blob on the remote is not what its name says; the remote itself may be well."""


class Transport(Protocol):
    """Named byte strings on another machine. `FileNotFoundError` means that there is none of the name.

    Any other exception is a fault of the remote; `PermissionError` one that trying again does not mend.
    """

    def read(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """The bytes from `start` to before `end`; fewer where the remote holds fewer."""

    def size(self, name: str) -> int | None:
        """Bytes held under the name; None for none."""

    def put(self, name: str, source: Path | bytes, moved: Moved) -> None:
        """Store a file's or the given bytes; readers see them whole or not at all."""
