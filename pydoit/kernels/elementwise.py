"""Schedules of blocks without a register tile: elementwise maps, transposes, padding, and plain reductions."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.blocks import Block, vectorizable
from pydoit.kernels.machine import Machine

LIGHT_NODES = 200
_PARTS = ("value", "a", "b", "condition", "true_value", "false_value", "args", "indices")

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
    if last is not None and not block.reduction and vectorizable(schedule, block.name):
        width = next((size for size in (machine.lanes, machine.lanes // 2, 4) if last % size == 0), 0)
    elements = 1
    for extent in block.spatial + block.reduction:
        elements *= extent or SERIAL_BELOW
    outer = spatial if not width else spatial[:-1]
    if width:
        vectors, lane = schedule.split(spatial[-1], [None, width])
        schedule.vectorize(lane)
        outer = [*outer, vectors] if len(spatial) == 1 or (last or 0) > 64 * width else outer
    if elements >= SERIAL_BELOW and outer:
        schedule.parallel(schedule.fuse(*outer))


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
