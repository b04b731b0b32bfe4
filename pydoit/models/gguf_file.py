"""A GGUF file: its metadata, and its tensors as raw rows that are mapped, not read, until they are used."""

from __future__ import annotations

import mmap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.models.gguf_blocks import Blocks, dequantize, split_blocks
from pydoit.models.gguf_header import FaultyError, read_header
from pydoit.nearest import nearest


@dataclass(frozen=True)
class GgufTensor:
    """One tensor; `rows` is a view of the mapped file."""

    name: str
    shape: tuple[int, ...]
    """Outermost extent first, as in torch: a linear layer's weight is [outputs, inputs]."""
    type: str
    """GGML's name: F32, Q4_1, Q6_K ..."""
    rows: NDArray[np.uint8]
    """uint8 [product of all extents but the last, bytes of a row], read-only."""

    def dequantize(self, start: int | None = None, stop: int | None = None) -> NDArray[np.float32]:
        """float32 [rows start to stop, last extent], or `shape` when all rows are asked for."""
        values = dequantize(self.rows[start:stop], self.type)
        return values.reshape(self.shape) if len(values) == len(self.rows) else values

    def blocks(self, start: int | None = None, stop: int | None = None) -> Blocks:
        """Quantized values, scales and minima of rows of a Q8_0, Q4_0 or Q4_1 matrix, as they are in the file."""
        return split_blocks(self.rows[start:stop], self.type)


class GgufFile:
    """An open GGUF file; everything that the file claims was checked against its size."""

    def __init__(self, path: Path) -> None:
        """Raises UserError if the file is missing, damaged, cut short, of another version, or one part of several."""
        self.path = path
        try:
            with path.open("rb") as file:
                buffer: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # an empty file cannot be mapped
            raise UserError(f"{path}: this cannot be read ({error}); give a GGUF file") from error
        try:
            self.metadata, entries = read_header(buffer)
        except FaultyError as error:
            raise UserError(f"{path}: this is no whole GGUF file: {error}; download or convert it again") from error
        parts = self.value("split.count", int, 0)
        if parts > 1:
            raise UserError(f"{path}: this is one of {parts} parts; join them by `llama-gguf-split --merge`")
        whole = np.frombuffer(buffer, np.uint8)
        self.tensors = {
            entry.name: GgufTensor(
                entry.name,
                entry.shape,
                entry.type,
                whole[entry.start : entry.start + entry.size].reshape(int(np.prod(entry.shape[:-1], dtype=np.int64)), -1),
            )
            for entry in entries
        }
        """Name -> tensor, in the file's order."""

    def tensor(self, name: str) -> GgufTensor:
        """The tensor of that name; raises UserError if there is none."""
        found = self.tensors.get(name)
        if found is None:
            raise UserError(f"{self.path}: there is no tensor {name!r}; {nearest(name, list(self.tensors))}")
        return found

    def value(self, name: str, kind: type, default: Any = None) -> Any:
        """Metadata `name`, or `default` if it is missing; raises UserError if it is of another kind than `kind`.

        Whole numbers stand for floats. Kinds: int, float, bool, str, list (of strings), numpy.ndarray (of numbers).
        """
        value = self.metadata.get(name)
        if value is None:
            return default
        fits = isinstance(value, (int, float) if kind is float else kind) and (kind is bool or not isinstance(value, bool))
        if not fits:
            raise UserError(
                f"{self.path}: metadata {name!r} is {str(value)[:60]!r}, not {kind.__name__}; convert the model again"
            )
        return kind(value) if kind in (int, float) else value

    def required(self, name: str, kind: type) -> Any:
        """Metadata `name` of that kind; raises UserError if it is missing."""
        value = self.value(name, kind)
        if value is None:
            raise UserError(f"{self.path}: metadata {name!r} is missing; convert the model again")
        return value
