"""The blocks of one TIR function as the schedules see them: what is reduced, what comes before and after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import Analyzer, ScheduleError, tirx

DATA_PARALLEL = 0
REDUCTION = 2


@dataclass(frozen=True)
class Block:
    """One block: its name, annotation and the extents of its axes (None where an extent is symbolic)."""

    name: str
    kernel: str
    spatial: tuple[int | None, ...]
    reduction: tuple[int | None, ...]
    parts: tuple[int, ...] = ()
    """For each spatial axis the largest number that is known to divide its extent: the extent itself, but for symbols."""
    is_output: bool = False
    """Whether it writes a result of the function, which no other block may absorb."""


def describe_blocks(schedule: Any) -> list[Block]:
    """Return the blocks below the root in the order of computation.

    A function of plain loops, or that is one opaque block (TVM's scatter), has none: its loops are its own affair.
    """
    try:
        root = schedule.get_sblock("root")
    except ScheduleError:
        return []
    temporary = list(schedule.get(root).alloc_buffers)
    return [_describe(schedule.get(child), temporary) for child in schedule.get_child_blocks(root)]


def vectorizable(schedule: Any, name: str) -> bool:
    """Say whether the last spatial axis of a block is adjacent in memory in its result and in all that it reads.

    An index `panel_width * (axis // width)` in an earlier dimension is allowed beside `axis % width` in the last one:
    this is how panels of packed weights are read. So is a constant added to the axis, which reads a slice; one that is
    subtracted belongs to padding and concatenation, which read behind a guard.
    """
    block = schedule.get(schedule.get_sblock(name))
    axes = [axis.var for axis in block.iter_vars if int(axis.iter_type) == DATA_PARALLEL]
    if not axes:
        return False
    axis = axes[-1]
    written = block.writes[0].region
    if not _same(written[-1].min, axis) or _reads_stored_truth(schedule, block):
        return False
    return all(_adjacent(read.region, axis) for read in block.reads)


def strided_axis(schedule: Any, name: str) -> int | None:
    """The spatial axis along which a transposing block reads adjacent elements; None for a block that does not transpose.

    It writes along its last axis and reads some tensor along another one.
    """
    block = schedule.get(schedule.get_sblock(name))
    axes = [axis.var for axis in block.iter_vars if int(axis.iter_type) == DATA_PARALLEL]
    if len(axes) < 2 or not _same(block.writes[0].region[-1].min, axes[-1]):
        return None
    for read in block.reads:
        indices = [extent.min for extent in read.region]
        if not indices or not any(_uses(index, axes[-1]) for index in indices[:-1]):
            continue
        for place, axis in enumerate(axes[:-1]):
            if _same(indices[-1], axis):
                return place
    return None


def _reads_stored_truth(schedule: Any, block: Any) -> bool:
    """TVM 0.27 loads a vector of truth values from a buffer of the function's own as bytes, which LLVM then refuses."""
    temporary = schedule.get(schedule.get_sblock("root")).alloc_buffers
    stored = [buffer for buffer in temporary if str(buffer.dtype) == "bool"]
    return any(read.source.same_as(buffer) for read in block.reads for buffer in stored)


def _adjacent(region: Any, axis: Any) -> bool:
    users = [position for position, extent in enumerate(region) if _uses(extent.min, axis)]
    if not users:
        return True
    last = region[-1].min
    if users == [len(region) - 1]:
        return _same(last, axis) or _is_shifted(last, axis)
    return users[-1] == len(region) - 1 and isinstance(last, tirx.FloorMod) and _same(last.a, axis)


def _is_shifted(expr: Any, axis: Any) -> bool:
    return isinstance(expr, tirx.Add) and _same(expr.a, axis) and isinstance(expr.b, tirx.IntImm) and int(expr.b) >= 0


def _uses(expr: Any, var: Any) -> bool:
    return any(used.same_as(var) for used in tirx.analysis.undefined_vars(expr))


def _same(expr: Any, var: Any) -> bool:
    return isinstance(expr, type(var)) and bool(expr.same_as(var))


def _describe(block: Any, temporary: list[Any]) -> Block:
    spatial: list[int | None] = []
    reduction: list[int | None] = []
    parts: list[int] = []
    for axis in block.iter_vars:
        extent = int(axis.dom.extent) if isinstance(axis.dom.extent, tirx.IntImm) else None
        (reduction if int(axis.iter_type) == REDUCTION else spatial).append(extent)
        if int(axis.iter_type) != REDUCTION:
            parts.append(int(Analyzer().modular_set(axis.dom.extent).coeff) if extent is None else extent)
    kernel = str(block.annotations["pydoit.kernel"]) if "pydoit.kernel" in block.annotations else ""
    is_output = any(all(not write.source.same_as(buffer) for buffer in temporary) for write in block.writes)
    return Block(block.name_hint, kernel, tuple(spatial), tuple(reduction), tuple(parts), is_output)
