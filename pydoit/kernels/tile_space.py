"""Which register tiles suit a reduction: the default without a tuning record, and the candidates of a search."""

from __future__ import annotations

from itertools import product
from math import gcd, prod
from typing import Any

from pydoit.kernels.blocks import Block
from pydoit.kernels.machine import Machine
from pydoit.kernels.tile import Tile, is_product, tile_fits

L1_SET_BYTES = 4096
"""Addresses this far apart share a set of the first-level cache (64 lines of 64 bytes on x86)."""
CACHED_WEIGHTS = 1 << 20
"""Bytes of weights that stay in the second-level cache while all rows pass by."""
MAX_VECTORS = 8


def default_tile(block: Block, machine: Machine) -> Tile:
    """Return the tile used without a tuning record: a pure function of extents, vector width and registers."""
    return tile_choices(block, machine)[0]


def tile_choices(block: Block, machine: Machine) -> list[Tile]:
    """Return tiles that fit a block, the most promising first; the first is the default."""
    rows = block.parts[-2] if len(block.parts) > 1 else 1
    columns = block.parts[-1]
    width = next((size for size in (machine.lanes, machine.lanes // 2, 4) if columns % size == 0), 1)
    depth = block.reduction[-1] or 1
    if is_product(block):
        big = columns * prod(extent or 1 for extent in block.reduction) * 4 > CACHED_WEIGHTS
        shapes = _product_shapes(rows, columns // width, depth, machine)
        orders: list[bool] = [big, not big]
        inlines, unrolls = [False], [1, 2, 4]
    else:
        shapes = _window_shapes(rows, columns // width, machine)
        orders, inlines, unrolls = [False], [True, False], [1]
    ranked: list[tuple[float, int, Tile]] = []
    axes: tuple[list[Any], ...] = (shapes[:8], orders, unrolls, inlines, [1, 2, 4])
    options = product(*(list(enumerate(axis)) for axis in axes))
    for (shape_rank, shape), (order_rank, order), (unroll_rank, unroll), (inline_rank, inline), (part_rank, part) in options:
        tile = Tile(
            rows=shape[0], vectors=shape[1], width=width, columns_outer=order, unroll=unroll, inline=inline,
            row_tiles=1 if order else part, column_tiles=part if order else 1,
        )  # fmt: skip
        if tile_fits(block, tile):
            rank = shape_rank + 1.5 * order_rank + 2 * unroll_rank + 2 * inline_rank + 3 * part_rank
            ranked.append((rank, len(ranked), tile))
    return [tile for _, _, tile in sorted(ranked, key=lambda entry: entry[:2])]


def _product_shapes(rows: int, vectors: int, depth: int, machine: Machine) -> list[tuple[int, int]]:
    """Return (rows, vectors) of register tiles for a product, the best first.

    For rows * vectors multiply-adds, two a cycle, a tile reads rows + vectors operands, two a cycle, and takes its
    weights and data from the second-level cache at 32 bytes a cycle; at least 8 sums must be under way to hide the
    latency of 4 cycles. Rows whose distance is a multiple of a cache set's period evict each other, so that more than
    8 of them in a set count double.
    """

    def cost(shape: tuple[int, int]) -> tuple[float, int, int]:
        row_count, vector_count = shape
        sums = row_count * vector_count
        traffic = 4 * (vector_count * machine.lanes + row_count) / 32
        cycles = max(sums / 2, 4, (row_count + vector_count) / 2, traffic) + 1
        in_set = row_count * gcd(depth * 4, L1_SET_BYTES) / L1_SET_BYTES
        return (round(cycles / sums * (2 if in_set > 8 else 1), 3), vector_count, row_count)

    return sorted(_shapes(rows, vectors, machine), key=cost)


def _window_shapes(rows: int, vectors: int, machine: Machine) -> list[tuple[int, int]]:
    """Return tiles for pooling, depthwise convolution and means, the best first.

    Nothing but neighbouring taps is reused, so the tile only has to hide the latency of dependent sums: 8 of them or
    more, and rather rows (they share the taps' weights) than vectors; beyond 14 the code grows without gain.
    """

    def cost(shape: tuple[int, int]) -> float:
        row_count, vector_count = shape
        sums = row_count * vector_count
        return 4 * max(0, 8 - sums) + abs(sums - 14) / 2 + 2 * (vector_count - 1)

    return sorted(_shapes(rows, vectors, machine), key=cost)


def _shapes(rows: int, vectors: int, machine: Machine) -> list[tuple[int, int]]:
    """Return all (rows, vectors) that divide the extents and fit the registers with their operands."""
    return [
        (row_count, vector_count)
        for row_count in _divisors(rows)
        for vector_count in _divisors(vectors)
        if vector_count <= MAX_VECTORS and row_count * vector_count + vector_count + 1 <= machine.registers + 1
    ]


def _divisors(number: int) -> list[int]:
    return [part for part in range(1, min(number, 64) + 1) if number % part == 0]
