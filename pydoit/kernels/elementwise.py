"""Schedules of blocks without a register tile: elementwise maps, transposes, padding, and plain reductions."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.blocks import Block, strided_axis, vectorizable
from pydoit.kernels.machine import Machine

LIGHT_NODES = 200
_PARTS = ("value", "a", "b", "condition", "true_value", "false_value", "args", "indices")

MAX_FUSED_SYMBOLIC = 2
"""Loops over symbolic extents that are fused: TVM 0.27 cannot take more of them apart again."""
LONGEST_SIDE, SHORTEST_SIDE = 16, 4
"""Of the squares in which a transpose is computed: a cache line of float32 and what is still worth the loops."""
SERIAL_BELOW = 4096
"""Elements under which waking the threads costs more than they save."""


def schedule_elementwise(schedule: Any, block: Block, machine: Machine) -> None:
    """Parallelize the outer loops of a block and vectorize the innermost one where its data is adjacent."""
    handle = schedule.get_sblock(block.name)
    loops = schedule.get_loops(handle)
    spatial = loops[: len(block.spatial)]
    if not spatial or 0 in block.spatial:
        return
    last = block.spatial[-1]
    width = 0
    adjacent = not block.reduction and vectorizable(schedule, block.name)
    if adjacent and last is not None:
        width = next((size for size in (machine.lanes, machine.lanes // 2, 4) if last % size == 0), 0)
    elements = 1
    for extent in block.spatial + block.reduction:
        elements *= extent or SERIAL_BELOW
    across = None if block.reduction or elements < SERIAL_BELOW else strided_axis(schedule, block.name)
    if across is not None and _tile_transpose(schedule, spatial, block.spatial, across):
        return
    # Where no vector width divides the columns, LLVM vectorizes the plain loop over them, with a remainder.
    outer = spatial[:-1] if width or (adjacent and len(spatial) > 1 and (last is None or last > machine.lanes)) else spatial
    if width:
        vectors, lane = schedule.split(spatial[-1], [None, width])
        schedule.vectorize(lane)
        outer = [*outer, vectors] if len(spatial) == 1 or (last or 0) > 64 * width else outer
    if elements >= SERIAL_BELOW and outer:
        symbolic = None in block.spatial
        schedule.parallel(schedule.fuse(*outer[: MAX_FUSED_SYMBOLIC if symbolic else len(outer)]))


def _tile_transpose(schedule: Any, loops: list[Any], extents: tuple[int | None, ...], across: int) -> bool:
    """Go through a transpose in squares, so that each cache line that is read is used up while it is in the cache.

    `across` is the loop along which the input is adjacent; the last one is that of the output. Leaves loops that are short
    or symbolic as they are and says so.
    """
    sides = [_side(extents[across]), _side(extents[-1])]
    if min(sides) < SHORTEST_SIDE:
        return False
    others = [loop for place, loop in enumerate(loops[:-1]) if place != across]
    far, near = (schedule.split(loop, [None, side]) for loop, side in zip((loops[across], loops[-1]), sides, strict=True))
    schedule.reorder(*others, far[0], near[0], far[1], near[1])
    schedule.parallel(schedule.fuse(*others, far[0], near[0]))
    return True


def _side(extent: int | None) -> int:
    """Longest side of a square that divides an extent."""
    return max((side for side in range(1, LONGEST_SIDE + 1) if extent and extent % side == 0), default=1)


def inline_maps(schedule: Any, blocks: list[Block]) -> list[Block]:
    """Inline every light map that another block reads into its reader; return the blocks that remain.

    Elementary functions read their argument dozens of times: inlined one into the other, as in the gates of an LSTM, the
    expression would grow exponentially and TVM's passes would walk it for hours.
    """
    remaining = []
    for block in blocks[:-1]:
        if block.reduction or block.is_output or not is_light(schedule, block.name):
            remaining.append(block)
            continue
        schedule.compute_inline(schedule.get_sblock(block.name))
    return [*remaining, blocks[-1]]


def is_light(schedule: Any, name: str) -> bool:
    """Whether a block's expression, written out as a tree, has at most LIGHT_NODES nodes."""
    waiting, count = [schedule.get(schedule.get_sblock(name)).body], 0
    while waiting:
        node = waiting.pop()
        count += 1
        if count > LIGHT_NODES:
            return False
        for part in _PARTS:
            child = getattr(node, part, None)
            if child is not None:
                waiting.extend(child if part in ("args", "indices") else [child])
    return True
