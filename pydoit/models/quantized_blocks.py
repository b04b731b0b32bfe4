"""Blocks that the quantize stage has made, in a file, and a checkpoint that has them instead of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit import weight_file
from pydoit.kernels.cpu.weight_format import Quantized
from pydoit.models.checkpoint import ALL, Checkpoint

VALUES, SCALE, MINIMUM = ".values", ".scale", ".minimum"


def write_blocks(path: Path, blocks: Mapping[str, Quantized]) -> None:
    """One safetensors file, three tensors or two a block."""
    tensors: dict[str, NDArray[Any]] = {}
    for name, block in blocks.items():
        tensors |= {name + VALUES: block.values, name + SCALE: block.scale}
        if block.minimum is not None:
            tensors[name + MINIMUM] = block.minimum
    weight_file.write(path, tensors)


class BlockCheckpoint:
    """A checkpoint (`pydoit.models.checkpoint.Checkpoint`) whose tensors are blocks where the file has them."""

    def __init__(self, path: Path, inner: Checkpoint) -> None:
        from pydoit.runtime.aligned import map_weights

        self._tensors = map_weights(path)
        self._inner = inner

    def read(self, name: str, rows: slice = ALL) -> NDArray[np.float32]:
        """Rows of the original tensor."""
        return self._inner.read(name, rows)

    def blocks(self, name: str, rows: slice = ALL) -> Quantized | None:
        """The file's block, else the original tensor's own."""
        if name + VALUES not in self._tensors:
            return self._inner.blocks(name, rows)
        values, scale, minimum = (self._rows(name + suffix, rows) for suffix in (VALUES, SCALE, MINIMUM))
        assert values is not None
        assert scale is not None
        return Quantized(values, scale, minimum)

    def _rows(self, name: str, rows: slice) -> NDArray[Any] | None:
        return np.asarray(self._tensors[name])[rows] if name in self._tensors else None
