"""Schedule of one reduction whose results fill a tile of vector registers: products, convolutions, pooling, means."""

from __future__ import annotations

from typing import Any

from pydoit.frozen import Frozen
from pydoit.kernels.blocks import Block
from pydoit.kernels.elementwise import schedule_elementwise
from pydoit.kernels.machine import Machine

MAX_UNROLLED_WINDOW = 25
"""Taps of a pooling or depthwise window that are unrolled; more stay loops."""


class Tile(Frozen):
    """How the iterations of one reduction are tiled; all sizes divide the extents that they tile."""

    rows: int
    """Positions of the last but one spatial axis whose sums stay in registers."""
    vectors: int
    """Vectors of adjacent columns whose sums stay in registers."""
    width: int
    """Columns in a vector."""
    row_tiles: int = 1
    """Tiles of rows that one parallel task computes."""
    column_tiles: int = 1
    """Tiles of columns that one parallel task computes."""
    columns_outer: bool = False
    """Tasks walk over rows first, so that neighbours share weights; otherwise they share data."""
    unroll: int = 1
    """Steps of the innermost reduction axis that are unrolled."""


def tile_choices(block: Block, machine: Machine) -> list[Tile]:
    """Return sensible tiles for a block, the default first."""
    columns = block.spatial[-1] or 1
    rows = (block.spatial[-2] or 1) if len(block.spatial) > 1 else 1
    width = next((size for size in (machine.lanes, machine.lanes // 2, 4) if columns % size == 0), 1)
    shapes = _register_shapes(rows, columns // width, machine, _is_window(block))
    choices = []
    for row_count, vectors in shapes:
        row_parts = _divisors(rows // row_count)
        column_parts = _divisors(columns // width // vectors)
        for row_tiles in row_parts:
            for column_tiles in column_parts:
                choices.append(
                    Tile(rows=row_count, vectors=vectors, width=width, row_tiles=row_tiles, column_tiles=column_tiles)
                )
    return choices


def default_tile(block: Block, machine: Machine) -> Tile:
    """Return the tile used without a tuning record: the fullest register tile, tasks of moderate size."""
    columns = block.spatial[-1] or 1
    rows = (block.spatial[-2] or 1) if len(block.spatial) > 1 else 1
    width = next((size for size in (machine.lanes, machine.lanes // 2, 4) if size and columns % size == 0), 1)
    row_count, vectors = _register_shapes(rows, columns // width, machine, _is_window(block))[0]
    outer = _product(block.spatial[:-2])
    row_tiles = _row_tiles(outer, rows // row_count, columns // width // vectors)
    return Tile(rows=row_count, vectors=vectors, width=width, row_tiles=row_tiles)


def tile_fits(block: Block, tile: Tile) -> bool:
    """Say whether a tile divides the block's extents, so that no iteration needs a guard."""
    rows = (block.spatial[-2] or 0) if len(block.spatial) > 1 else 1
    columns = block.spatial[-1] or 0
    depth = (block.reduction[-1] or 0) if block.reduction else 0
    return (
        rows % (tile.rows * tile.row_tiles) == 0
        and columns % (tile.width * tile.vectors * tile.column_tiles) == 0
        and depth % tile.unroll == 0
    )


def schedule_tile(schedule: Any, blocks: list[Block], anchor: Block, tile: Tile, machine: Machine) -> None:
    """Schedule the function around `anchor`: producers apart, consumers fused into its tile."""
    position = blocks.index(anchor)
    for block in blocks[:position]:
        schedule_elementwise(schedule, block, machine)
    consumers = [block.name for block in blocks[position + 1 :]]
    for name in consumers[:-1]:
        schedule.compute_inline(schedule.get_sblock(name))
    computed = schedule.get_sblock(anchor.name)
    if consumers:
        schedule.set_scope(computed, 0, "local")
        store = schedule.get_sblock(consumers[-1])
    else:
        store = schedule.cache_write(computed, 0, "local")
    innermost, reduction = _tile_loops(schedule, computed, anchor, tile)
    schedule.reverse_compute_at(store, innermost)
    _vectorize_store(schedule, store, innermost, tile)
    if reduction:
        schedule.decompose_reduction(computed, reduction[0])


def _tile_loops(schedule: Any, computed: Any, anchor: Block, tile: Tile) -> tuple[Any, list[Any]]:
    """Split and order the loops of the reduction; return the loop around one tile and the reduction loops."""
    loops = schedule.get_loops(computed)
    spatial, reduction = loops[: len(anchor.spatial)], loops[len(anchor.spatial) :]
    row = spatial[-2] if len(spatial) > 1 else schedule.add_unit_loop(spatial[0])
    row_outer, row_tile, row_inner = schedule.split(row, [None, tile.row_tiles, tile.rows])
    column_outer, column_tile, vector, lane = schedule.split(
        spatial[-1], [None, tile.column_tiles, tile.vectors, tile.width]
    )
    if tile.unroll > 1:
        steps, unrolled = schedule.split(reduction[-1], [None, tile.unroll])
        schedule.unroll(unrolled)
        reduction = [*reduction[:-1], steps, unrolled]
    elif _is_window(anchor) and _product(anchor.reduction) <= MAX_UNROLLED_WINDOW:
        for loop in reduction:
            schedule.unroll(loop)
    images = spatial[:-2]
    tasks = [column_outer, *images, row_outer] if tile.columns_outer else [*images, row_outer, column_outer]
    inner = [column_tile, row_tile] if tile.columns_outer else [row_tile, column_tile]
    schedule.reorder(*tasks, *inner, *reduction, row_inner, vector, lane)
    schedule.parallel(schedule.fuse(*tasks))
    schedule.unroll(row_inner)
    schedule.unroll(vector)
    if tile.width > 1:
        schedule.vectorize(lane)
    return inner[-1], list(reduction)


def _vectorize_store(schedule: Any, store: Any, innermost: Any, tile: Tile) -> None:
    """Write a finished tile vector by vector; `innermost` is the loop around the tile."""
    depth = len(schedule.get_loops(store))
    outside = [schedule.get(loop).loop_var for loop in schedule.get_loops(store)]
    around = schedule.get(innermost).loop_var
    inside = schedule.get_loops(store)[1 + next(i for i in range(depth) if outside[i].same_as(around)) :]
    *others, columns = inside
    for loop in others:
        schedule.unroll(loop)
    vector, lane = schedule.split(columns, [None, tile.width])
    schedule.unroll(vector)
    if tile.width > 1:
        schedule.vectorize(lane)


def _register_shapes(rows: int, vectors: int, machine: Machine, window: bool) -> list[tuple[int, int]]:
    """Return (rows, vectors) of register tiles that fit and divide, the best first.

    A product reads rows + vectors operands for rows * vectors multiply-adds, so the fullest, squarest tile wins; a
    window reads one operand for each, so that only the length of the chain of dependent sums counts.
    """
    limit = machine.registers - 4
    shapes = []
    for row_count in _divisors(rows):
        for vector_count in _divisors(vectors):
            if vector_count <= 8 and row_count * vector_count + vector_count + 1 <= machine.registers:
                shapes.append((row_count, vector_count))
    if window:
        return sorted(shapes, key=lambda shape: (-min(shape[0] * shape[1], 8), shape[1], -shape[0]))

    def cost(shape: tuple[int, int]) -> tuple[float, int, int]:
        row_count, vector_count = shape
        sums = row_count * vector_count
        loads = (row_count + vector_count) / sums
        latency = max(1.0, 8 / sums)
        return (round(max(loads / 2 * 2, latency), 3), -min(sums, limit), vector_count)

    return sorted(shapes, key=cost)


def _row_tiles(outer: int, row_parts: int, column_parts: int) -> int:
    """Return how many row tiles form a task: as many as leave 16 tasks, so that a few cores share them evenly."""
    fitting = [part for part in _divisors(row_parts) if outer * (row_parts // part) * column_parts >= 16]
    return max(part for part in [1, *fitting] if part <= 4)


def _is_window(block: Block) -> bool:
    return block.kernel not in ("matmul", "conv2d") and "matmul" not in block.name


def _divisors(number: int) -> list[int]:
    return [part for part in range(1, min(number, 4096) + 1) if number % part == 0]


def _product(extents: tuple[int | None, ...]) -> int:
    result = 1
    for extent in extents:
        result *= extent or 1
    return result
