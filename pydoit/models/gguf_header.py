"""The header of a GGUF file (metadata and tensor table), every length checked against the file before it is used.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little endian. The gguf package's
own reader trusts the lengths and takes seconds for a vocabulary.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_STRING, _ARRAY = 8, 9
_FORMATS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_BOOL = 7
_MAX_STRINGS = 2_000_000  # vocabularies have 0.3 million; a damaged count must not take minutes
_MAX_DIMENSIONS = 4
_DEFAULT_ALIGNMENT = 32


@dataclass(frozen=True)
class TensorEntry:
    """One tensor of the table."""

    name: str
    shape: tuple[int, ...]
    """Outermost extent first, as in torch."""
    type: str
    """GGML's name: F32, Q4_1, Q6_K ..."""
    start: int
    """Bytes from the start of the file."""
    size: int
    """Bytes."""


class FaultyError(Exception):
    """What is wrong with the bytes; gguf_file makes it a UserError with the file's name."""


class Cursor:
    """Reads values of a buffer in order; raises FaultyError where it ends."""

    def __init__(self, buffer: Any) -> None:
        self.buffer, self.at, self.strings = buffer, 0, 0
        self.size = len(buffer)

    def take(self, size: int, what: str) -> int:
        """Pass over `size` bytes and return where they start."""
        if size > self.size - self.at:
            raise FaultyError(f"{what} at byte {self.at} needs {size} bytes and the file has {self.size - self.at} more")
        start, self.at = self.at, self.at + size
        return start

    def number(self, form: str, what: str) -> Any:
        """One number of a struct format."""
        start = self.take(struct.calcsize(f"<{form}"), what)
        return struct.unpack_from(f"<{form}", self.buffer, start)[0]

    def string(self, what: str) -> str:
        """A length and UTF-8 bytes."""
        size = self.number("Q", what)
        start = self.take(size, what)
        self.strings += 1
        if self.strings > _MAX_STRINGS:
            raise FaultyError(f"{what}: there are more than {_MAX_STRINGS} strings")
        try:
            return bytes(self.buffer[start : start + size]).decode()
        except UnicodeDecodeError as error:
            raise FaultyError(f"{what} at byte {start} is no UTF-8") from error

    def value(self, what: str) -> Any:
        """A typed value: number, bool, string, list of strings or numpy array of numbers."""
        kind = self.number("I", what)
        if kind == _STRING:
            return self.string(what)
        if kind == _ARRAY:
            return self._array(what)
        return self.number(_form(kind, what), what)

    def _array(self, what: str) -> Any:
        kind, count = self.number("I", what), self.number("Q", what)
        if kind == _STRING:
            if count * 8 > self.size - self.at:
                raise FaultyError(
                    f"{what} at byte {self.at} has {count} strings and the file has {self.size - self.at} more bytes"
                )
            return [self.string(what) for _ in range(count)]
        dtype = np.dtype(f"<{_form(kind, what)}")
        start = self.take(count * dtype.itemsize, what)
        return np.frombuffer(self.buffer, dtype, count, start).copy()


def read_header(buffer: Any) -> tuple[dict[str, Any], list[TensorEntry]]:
    """Metadata and tensors of a whole GGUF file in `buffer` (bytes or mmap); raises FaultyError."""
    cursor = Cursor(buffer)
    if bytes(buffer[:4]) != _MAGIC:
        raise FaultyError("it does not begin with GGUF")
    cursor.take(4, "the magic")
    version = cursor.number("I", "the version")
    if version not in _VERSIONS:
        swapped = version & 0xFFFF == 0
        raise FaultyError("it is big endian" if swapped else f"its version is {version}; known: {_VERSIONS[0]}, {_VERSIONS[1]}")
    tensors, entries = cursor.number("Q", "the tensor count"), cursor.number("Q", "the metadata count")
    metadata: dict[str, Any] = {}
    for index in range(entries):
        name = cursor.string(f"the name of metadata {index}")
        if name in metadata:
            raise FaultyError(f"metadata {name!r} stands there twice")
        metadata[name] = cursor.value(f"metadata {name!r}")
    table = [_entry(cursor, index) for index in range(tensors)]
    return metadata, _place(table, cursor, _alignment(metadata))


def _form(kind: int, what: str) -> str:
    form = _FORMATS.get(kind)
    if form is None:
        raise FaultyError(f"{what} has the unknown type {kind}" if kind != _ARRAY else f"{what} is an array of arrays")
    return form


def _alignment(metadata: dict[str, Any]) -> int:
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise FaultyError(f"general.alignment is {alignment}, which is no power of two")
    return alignment


def _entry(cursor: Cursor, index: int) -> TensorEntry:
    """An entry whose `start` counts from the data section still."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    what = f"the entry of tensor {index}"
    name = cursor.string(what)
    dimensions = cursor.number("I", what)
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise FaultyError(f"tensor {name!r} has {dimensions} dimensions")
    shape = tuple(reversed([cursor.number("Q", what) for _ in range(dimensions)]))
    kind = cursor.number("I", what)
    start = cursor.number("Q", what)
    try:
        known = GGMLQuantizationType(kind)
    except ValueError as error:
        raise FaultyError(f"tensor {name!r} has the unknown type {kind}") from error
    block, size = GGML_QUANT_SIZES[known]
    if 0 in shape or shape[-1] % block:
        raise FaultyError(f"tensor {name!r} of type {known.name} has the shape {list(shape)}; its rows are blocks of {block}")
    return TensorEntry(name, shape, known.name, start, math.prod(shape) // block * size)


def _place(table: Sequence[TensorEntry], cursor: Cursor, alignment: int) -> list[TensorEntry]:
    data = -(-cursor.at // alignment) * alignment
    end = data
    names = set()
    placed = [TensorEntry(item.name, item.shape, item.type, data + item.start, item.size) for item in table]
    for item in sorted(placed, key=lambda item: item.start):
        if item.name in names:
            raise FaultyError(f"tensor {item.name!r} stands there twice")
        if item.start % alignment or item.start < end:
            raise FaultyError(f"tensor {item.name!r} starts at byte {item.start}, inside another or not aligned to {alignment}")
        end = item.start + item.size
        if end > cursor.size:
            raise FaultyError(f"tensor {item.name!r} ends at byte {end} and the file at {cursor.size}: it is cut short")
        names.add(item.name)
    return placed
