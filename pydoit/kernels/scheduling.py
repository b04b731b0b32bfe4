"""Choose and apply the schedule of one fused TIR function, with the parameters of a tuning record or the defaults."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from pydoit.kernels.blocks import Block, describe_blocks, vectorizable
from pydoit.kernels.elementwise import inline_maps, schedule_elementwise
from pydoit.kernels.machine import Machine
from pydoit.kernels.rows import ROWS, schedule_rows
from pydoit.kernels.tile import Tile, schedule_tile
from pydoit.kernels.tile_space import default_tile
from pydoit.tvm_compat import Schedule, ScheduleError


@dataclass(frozen=True)
class Plan:
    """What the scheduler sees in a function: its blocks and the one that a register tile suits, if any."""

    blocks: tuple[Block, ...]
    anchor: Block | None


def plan_function(function: Any) -> Plan:
    """Describe an unscheduled function."""
    schedule = Schedule(function)
    blocks = describe_blocks(schedule)
    reductions = [block for block in blocks if block.reduction]
    anchor = None
    if len(reductions) == 1 and _fits_tile(schedule, blocks, reductions[0]):
        anchor = reductions[0]
    return Plan(tuple(blocks), anchor)


def schedule_function(function: Any, machine: Machine, tile: Tile | None = None) -> Any:
    """Return the scheduled function; without `tile` with the default parameters, the same on every machine.

    Raises ScheduleError where a given `tile` does not fit; the default falls back to plain loops.
    """
    try:
        scheduled = _schedule(function, machine, tile)
    except ScheduleError:
        if tile is not None:
            raise
        scheduled = _schedule_plainly(function, machine)
    scheduled = scheduled.with_attr("tirx.is_scheduled", True)
    if function.attrs is not None and "global_symbol" in function.attrs:
        return scheduled.with_attr("global_symbol", function.attrs["global_symbol"])
    return scheduled


def _schedule(function: Any, machine: Machine, tile: Tile | None) -> Any:
    plan = plan_function(function)
    schedule = Schedule(function)
    if plan.anchor is not None:
        chosen = tile or default_tile(plan.anchor, machine)
        schedule_tile(schedule, list(plan.blocks), plan.anchor, chosen, machine)
    elif plan.blocks and all(block.kernel == ROWS for block in plan.blocks):
        schedule_rows(schedule, list(plan.blocks), machine)
    elif any(block.reduction for block in plan.blocks):
        for block in plan.blocks:
            schedule_elementwise(schedule, block, machine)
    elif plan.blocks:
        for block in inline_maps(schedule, list(plan.blocks)):
            schedule_elementwise(schedule, block, machine)
    return schedule.mod["main"]


def _schedule_plainly(function: Any, machine: Machine) -> Any:
    """Every block for itself; one whose loops cannot be changed at all stays as it is, which is slow but right."""
    schedule = Schedule(function)
    for block in describe_blocks(schedule):
        before = schedule.copy()
        try:
            schedule_elementwise(schedule, block, machine)
        except ScheduleError:
            schedule = before
    return schedule.mod["main"]


def _fits_tile(schedule: Any, blocks: list[Block], anchor: Block) -> bool:
    """A tile suits a reduction over adjacent columns whose consumers form a chain of maps of static shape."""
    if any(extent is None for block in blocks for extent in block.spatial):
        return False
    if not anchor.spatial or (anchor.spatial[-1] or 1) % 4 or not vectorizable(schedule, anchor.name):
        return False
    after = blocks[blocks.index(anchor) + 1 :]
    if any(block.is_output for block in blocks[:-1]):
        return False
    if any(_elements(block) > _elements(anchor) for block in after):
        return False  # a result spread over an image (squeeze-excite): its whole plane would be unrolled in each tile
    return all(not block.reduction for block in after)


def _elements(block: Block) -> int:
    return math.prod(extent or 1 for extent in block.spatial)
