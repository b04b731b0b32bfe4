"""Schedule of one reduction whose results fill a tile of vector registers: products, convolutions, pooling, means."""

from __future__ import annotations

from math import prod
from typing import Any

from pydoit.frozen import Frozen
from pydoit.kernels.blocks import Block
from pydoit.kernels.elementwise import inline_maps, schedule_elementwise
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
    """Tasks walk over all rows before the next columns, so that weights are read once; otherwise data are."""
    unroll: int = 1
    """Steps of the innermost reduction axis that are unrolled."""
    inline: bool = False
    """Compute what the reduction reads (padding) where it is read, instead of storing it first."""


def is_product(block: Block) -> bool:
    """Say whether a block multiplies data by a matrix of weights, so that rows and columns reuse each other's data."""
    return block.kernel in ("matmul", "conv2d") or "matmul" in block.name


def tile_fits(block: Block, tile: Tile) -> bool:
    """Say whether a tile divides the block's extents, so that no iteration needs a guard."""
    rows = block.parts[-2] if len(block.parts) > 1 else 1
    columns = block.parts[-1]
    depth = (block.reduction[-1] or 0) if block.reduction else 0
    return (
        rows % (tile.rows * tile.row_tiles) == 0
        and columns % (tile.width * tile.vectors * tile.column_tiles) == 0
        and depth % tile.unroll == 0
    )


def schedule_tile(schedule: Any, blocks: list[Block], anchor: Block, tile: Tile, machine: Machine) -> None:
    """Schedule the function around `anchor`: producers apart or inlined, consumers fused into its tile.

    From the first consumer on that repeats the results, such as the gate of a squeeze-and-excitation block, consumers are
    loops of their own: in a tile they would be one task, and unrolled.
    """
    position = blocks.index(anchor)
    for block in blocks[:position]:
        if tile.inline and not block.reduction:
            schedule.compute_inline(schedule.get_sblock(block.name))
        else:
            schedule_elementwise(schedule, block, machine)
    after = blocks[position + 1 :]
    repeated = next((index for index, block in enumerate(after) if not _same_shape(block, anchor)), len(after))
    for block in inline_maps(schedule, after[repeated:]) if after[repeated:] else ():
        schedule_elementwise(schedule, block, machine)
    consumers = [block.name for block in after[:repeated]]
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
    schedule.decompose_reduction(computed, reduction[0])


def _same_shape(block: Block, anchor: Block) -> bool:
    """Say whether a consumer has one element for each of the anchor's, or fewer where those only fill up a tile."""
    if len(block.spatial) != len(anchor.spatial):
        return False
    pairs = zip(block.spatial, anchor.spatial, strict=True)
    return all(one is None if other is None else one is not None and one <= other for one, other in pairs)


def _tile_loops(schedule: Any, computed: Any, anchor: Block, tile: Tile) -> tuple[Any, list[Any]]:
    """Split and order the loops of the reduction; return the loop around one tile and the reduction loops."""
    loops = schedule.get_loops(computed)
    spatial, reduction = loops[: len(anchor.spatial)], loops[len(anchor.spatial) :]
    row = spatial[-2] if len(spatial) > 1 else schedule.add_unit_loop(spatial[0])
    row_outer, row_tile, row_inner = schedule.split(row, [None, tile.row_tiles, tile.rows])
    column_outer, column_tile, vector, lane = schedule.split(spatial[-1], [None, tile.column_tiles, tile.vectors, tile.width])
    reduction = _unroll_reduction(schedule, reduction, anchor, tile)
    images = spatial[:-2]
    tasks = [column_outer, *images, row_outer] if tile.columns_outer else [*images, row_outer, column_outer]
    inner = [column_tile, row_tile] if tile.columns_outer else [row_tile, column_tile]
    schedule.reorder(*tasks, *inner, *reduction, row_inner, vector, lane)
    schedule.parallel(schedule.fuse(*tasks))
    schedule.unroll(row_inner)
    schedule.unroll(vector)
    if tile.width > 1:
        schedule.vectorize(lane)
    return inner[-1], reduction


def _unroll_reduction(schedule: Any, reduction: list[Any], anchor: Block, tile: Tile) -> list[Any]:
    """Unroll the taps of a small window, or `tile.unroll` steps of a product's depth; return the loops in order."""
    if not is_product(anchor):
        if prod(extent or MAX_UNROLLED_WINDOW + 1 for extent in anchor.reduction) <= MAX_UNROLLED_WINDOW:
            for loop in reduction:
                schedule.unroll(loop)
        return reduction
    if tile.unroll == 1:
        return reduction
    steps, unrolled = schedule.split(reduction[-1], [None, tile.unroll])
    schedule.unroll(unrolled)
    return [*reduction[:-1], steps, unrolled]


def _vectorize_store(schedule: Any, store: Any, innermost: Any, tile: Tile) -> None:
    """Write a finished tile vector by vector; `innermost` is the loop around the tile."""
    loops = schedule.get_loops(store)
    around = schedule.get(innermost).loop_var
    depth = next(number for number, loop in enumerate(loops) if schedule.get(loop).loop_var.same_as(around))
    if not loops[depth + 1 :]:  # a single value
        return
    *others, columns = loops[depth + 1 :]
    for loop in others:
        schedule.unroll(loop)
    vector, lane = schedule.split(columns, [None, tile.width])
    schedule.unroll(vector)
    if tile.width > 1:
        schedule.vectorize(lane)
