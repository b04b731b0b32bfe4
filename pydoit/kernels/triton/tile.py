"""How a product of matrices is cut up for a GPU."""

from __future__ import annotations

from dataclasses import dataclass

from pydoit.kernels.triton.launch import compute_capability

ROW_CLASSES = (1, 16, 32, 64, 0)
"""Most rows that a tile is for; a product has one tile for each class."""
MORE = 0
"""The class of any more rows."""
WIDE = 6144
"""Columns from which on a tile of 256 of them is faster than one of 128."""
LARGE_SHARED = (90, 100, 103)
"""Architectures (compute capability) whose blocks may have 227 KiB of shared memory."""


@dataclass(frozen=True)
class Tile:
    """One way to cut a product up."""

    rows: int
    columns: int
    """Of the result; a gated product has twice as many sums."""
    depth: int
    """Inputs that one step multiplies."""
    warps: int
    stages: int
    """Steps whose loads are in flight."""
    most: int | None = None
    """Most rows of x that this tile is for; None: any number."""

    def __post_init__(self) -> None:
        """Raises ValueError for what Triton cannot compile: extents are powers of two from 16, warps from 1."""
        sizes = {"rows": self.rows, "columns": self.columns, "depth": self.depth}
        wrong = [name for name, size in sizes.items() if type(size) is not int or size < 16 or size & (size - 1)]
        wrong += ["warps"] if self.warps not in (1, 2, 4, 8, 16) else []
        wrong += ["stages"] if type(self.stages) is not int or not 1 <= self.stages <= 8 else []
        if wrong:
            raise ValueError(f"{', '.join(wrong)} of its tile cannot be")

    def shared_bytes(self, item_size: int, *, gated: bool) -> int:
        """Shared memory of the loads in flight."""
        return self.stages * self.depth * (self.rows + self.columns * (2 if gated else 1)) * item_size


def default_tiles(arch: str, n: int, *, gated: bool) -> tuple[Tile, ...]:
    """A tile for each class of rows of a result with `n` columns, for products that no record is for.

    Those of GPUs with large shared memory were measured (docs/performance.md); wide tiles need enough columns to give
    every multiprocessor one.
    """
    if compute_capability(arch) not in LARGE_SHARED:
        few = (Tile(16, 32, 128, 4, 4, 1), Tile(16, 32, 128, 4, 4, 16), Tile(32, 32, 128, 4, 4, 32), Tile(64, 64, 64, 4, 3, 64))
        return (*few, Tile(128, 64 if gated else 128, 32, 4, 3))
    return (
        Tile(16, 32, 256, 4, 3, 1),
        Tile(16, 32, 256, 4, 3, 16),
        Tile(32, 64, 128, 4, 4, 32),
        Tile(64, 64, 64, 4, 4, 64) if gated else Tile(64, 32, 128, 4, 4, 64),
        Tile(128, 256 if n >= WIDE and not gated else 128, 64, 8, 4),
    )
