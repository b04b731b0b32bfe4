"""The archive of a bundle: a zip file whose members are stored as they are, with fixed metadata, written and read in pieces.

Nothing is compressed: weights do not shrink, and a compressor's output changes with its version. So a member's size is what
it takes in the file, and no archive unpacks to more than itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import struct
import uuid
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from pydoit.bundle.index import MAX_BYTES, MAX_MEMBERS, MEMBER, Member, is_member_name
from pydoit.errors import UserError
from pydoit.store import store_error

PIECE_BYTES = 2**20
EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that zip can say."""
MODE = 0o100644
_END = struct.Struct("<4s4H2LH")
_LARGE_END_PLACE, _LARGE_END = struct.Struct("<4sLQL"), struct.Struct("<4sQ2H2L4Q")
_DIRECTORY_BYTES_PER_MEMBER = 2200
_DAMAGE = (zipfile.BadZipFile, EOFError, RuntimeError, ValueError, OverflowError, struct.error, OSError)
"""What zipfile raises for bytes that are no archive, when it opens one and when it reads a member alike."""


def write_archive(path: Path, index: bytes, files: Mapping[str, Member], sources: Mapping[str, Path | bytes]) -> None:
    """Write the archive; it appears whole under its name or not at all. `UserError` where a source is not what it should be."""
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}.tmp")
    try:
        with temporary.open("wb") as raw:
            with zipfile.ZipFile(raw, "w", zipfile.ZIP_STORED) as archive:
                archive.writestr(_information(MEMBER, len(index)), index)
                for name in sorted(files):
                    _write_member(archive, name, files[name], sources[name])
            raw.flush()
            os.fsync(raw.fileno())
        os.replace(temporary, path)
    except OSError as error:
        raise store_error(error, path) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _write_member(archive: zipfile.ZipFile, name: str, member: Member, source: Path | bytes) -> None:
    found = hashlib.sha256()
    with archive.open(_information(name, member.bytes), "w") as target:
        for piece in _pieces(source):
            found.update(piece)
            target.write(piece)
    if found.hexdigest() != member.sha256:
        raise UserError(f"{name} changed while it was packed; run `doit cache verify`, build and pack again")


def _information(name: str, size: int) -> zipfile.ZipInfo:
    information = zipfile.ZipInfo(name, EPOCH)
    information.create_system = 3  # on every system
    information.external_attr = MODE << 16
    information.file_size = size
    return information


def _pieces(source: Path | bytes) -> Iterator[bytes]:
    if isinstance(source, bytes):
        yield source
        return
    with source.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


class Archive:
    """An opened bundle; its members are checked against each other when it is opened, against the index when they are read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = _open(path)
        try:
            _refuse_strange_end(self._file)
            self._zip = zipfile.ZipFile(self._file)
            self._members = _checked(self._zip.infolist(), path.stat().st_size)
        except _DAMAGE as error:
            self._file.close()
            raise UserError(f"{path.name}: not a bundle ({error}); pack or download it again") from None

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *_: object) -> None:
        self._zip.close()
        self._file.close()

    def index(self) -> bytes:
        """The bytes of the sealed index."""
        if MEMBER not in self._members or self._members[MEMBER].file_size > MAX_BYTES:
            raise UserError(f"{self.path.name}: holds no {MEMBER}; pack or download it again")
        return b"".join(self._read(MEMBER))

    def expect(self, files: Mapping[str, Member]) -> None:
        """`UserError` unless the archive holds exactly the files that its index names, with their sizes."""
        held = {name: item.file_size for name, item in self._members.items() if name != MEMBER}
        named = {name: member.bytes for name, member in files.items()}
        for name in sorted({*held, *named}):
            if held.get(name) != named.get(name):
                what = "is missing" if name not in held else "is not in the index" if name not in named else "has another size"
                raise UserError(f"{self.path.name}: {name} {what}; pack or download it again")

    def extract(self, name: str, target: Path) -> None:
        """Copy a member's bytes out as they are."""
        with target.open("wb") as file:
            for piece in self._read(name):
                file.write(piece)

    def read(self, name: str, member: Member) -> bytes:
        """A small member's bytes."""
        if member.bytes > MAX_BYTES:
            raise UserError(f"{self.path.name}: {name} is too large ({member.bytes:,} bytes); refuse it")
        data = b"".join(self._read(name))
        if hashlib.sha256(data).hexdigest() != member.sha256:
            raise UserError(f"{self.path.name}: {name} has other bytes than the index says; pack or download it again")
        return data

    def _read(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(self._members[name]) as source:
                while piece := source.read(PIECE_BYTES):
                    yield piece
        except _DAMAGE as error:
            raise UserError(f"{self.path.name}: {name} is damaged ({error}); pack or download it again") from None


def _open(path: Path) -> BinaryIO:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UserError(f"{path}: not a file; name a bundle that `doit pack` wrote")
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; name a bundle that `doit pack` wrote") from None


def _refuse_strange_end(file: BinaryIO) -> None:
    """Raise ValueError unless the archive ends as ours do, with a directory that may be read into memory."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _END.size - _LARGE_END_PLACE.size))
    tail = file.read()
    mark, _, _, _, count, directory, _, comment = _END.unpack(tail[-_END.size :])
    if mark != b"PK\5\6" or comment:
        raise ValueError("it does not end like an archive of ours")
    if tail.startswith(b"PK\6\7"):
        file.seek(_LARGE_END_PLACE.unpack_from(tail)[2])
        count, directory = _LARGE_END.unpack(file.read(_LARGE_END.size))[7:9]
    if count > MAX_MEMBERS or directory > count * _DIRECTORY_BYTES_PER_MEMBER:
        raise ValueError(f"a directory of {count:,} members in {directory:,} bytes")


def _checked(members: list[zipfile.ZipInfo], size: int) -> dict[str, zipfile.ZipInfo]:
    """Members by name; ValueError for what `doit pack` never writes: links, devices, folders, compressed or doubled members."""
    found: dict[str, zipfile.ZipInfo] = {}
    for item in members:
        if item.orig_filename != MEMBER and not is_member_name(item.orig_filename):
            raise ValueError(f"a member is named {item.orig_filename!r}")
        if item.orig_filename in found:
            raise ValueError(f"{item.orig_filename} is there twice")
        if item.external_attr != MODE << 16 or item.compress_type != zipfile.ZIP_STORED or item.flag_bits & ~0x800:
            raise ValueError(f"{item.orig_filename} is no plain stored file")
        if item.file_size != item.compress_size:
            raise ValueError(f"{item.orig_filename} has two sizes")
        found[item.orig_filename] = item
    if sum(item.file_size for item in members) > size:
        raise ValueError("its members are larger than itself")
    return found
