"""Softmax, layer and RMS normalization over the last axis: expressions with a vector of partial results, and their schedule."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.blocks import Block
from pydoit.kernels.compute import KERNEL
from pydoit.kernels.machine import Machine
from pydoit.kernels.vector_math import exp
from pydoit.tvm_compat import te, tirx

ROWS = "rows"
MAX_STACK_BYTES = 65536
"""A row's intermediate results up to this size lie on the stack of the thread that computes the row."""


def softmax(data: Any, lanes: int, safe: bool) -> Any:
    """Softmax over the last axis; with `safe`, a row of -inf alone gives zeros instead of NaN."""
    lowest = tirx.min_value(data.dtype)
    largest = _reduce(data, lambda *index: data(*index), "max", lanes)
    shift = te.compute(largest.shape, lambda *index: tirx.max(largest(*index), lowest), name="shift", attrs={KERNEL: ROWS})
    shifted = te.compute(
        data.shape, lambda *index: exp(data(*index) - shift(*index[:-1])), name="exponential", attrs={KERNEL: ROWS}
    )
    total = _reduce(data, lambda *index: shifted(*index), "sum", lanes)
    one = tirx.const(1, data.dtype)

    def factor(*index: Any) -> Any:
        inverse = one / total(*index)
        if not safe:
            return inverse
        # The identity of `max` is the lowest finite value: a row of -inf alone reduces to it.
        return tirx.Select(largest(*index) <= lowest, tirx.const(0, data.dtype), inverse)

    scale = te.compute(total.shape, factor, name="inverse", attrs={KERNEL: ROWS})
    return te.compute(data.shape, lambda *index: shifted(*index) * scale(*index[:-1]), name="softmax", attrs={KERNEL: ROWS})


def narrowed(data: Any) -> Any:
    """The data rounded to bfloat16."""
    return te.compute(data.shape, lambda *index: data(*index).astype("bfloat16"), name="narrowed", attrs={KERNEL: ROWS})


def layer_norm(data: Any, gamma: Any, beta: Any, epsilon: float, lanes: int) -> Any:
    """Layer normalization over the last axis, in two passes over the row; gamma and beta are [N]."""
    size = tirx.const(1.0 / int(data.shape[-1]), data.dtype)
    total = _reduce(data, lambda *index: data(*index), "sum", lanes)
    mean = te.compute(total.shape, lambda *index: total(*index) * size, name="mean", attrs={KERNEL: ROWS})
    centred = te.compute(data.shape, lambda *index: data(*index) - mean(*index[:-1]), name="centred", attrs={KERNEL: ROWS})
    squares = _reduce(data, lambda *index: centred(*index) * centred(*index), "sum", lanes, name="square")
    scale = te.compute(
        squares.shape,
        lambda *index: tirx.const(1, data.dtype) / tirx.sqrt(squares(*index) * size + tirx.const(epsilon, data.dtype)),
        name="deviation",
        attrs={KERNEL: ROWS},
    )
    return te.compute(
        data.shape,
        lambda *index: centred(*index) * scale(*index[:-1]) * gamma(index[-1]) + beta(index[-1]),
        name="layer_norm",
        attrs={KERNEL: ROWS},
    )


def rms_norm(terms: Any, gamma: Any, epsilon: float, lanes: int, with_sum: bool) -> Any:
    """RMS normalization over the last axis of the sum of one or two `terms`; gamma is [N].

    With `with_sum` the sum of two terms is a result of its own, before the normalized one. Source: Zhang and Sennrich
    2019 (arXiv:1910.07467).
    """
    data, *others = terms
    if others:
        first, second = terms
        data = te.compute(
            first.shape, lambda *index: first(*index) + second(*index), name="residual", attrs={KERNEL: ROWS}
        )  # fmt: skip
    size = tirx.const(1.0 / int(data.shape[-1]), data.dtype)
    squares = _reduce(data, lambda *index: data(*index) * data(*index), "sum", lanes, name="square")
    scale = te.compute(
        squares.shape,
        lambda *index: tirx.const(1, data.dtype) / tirx.sqrt(squares(*index) * size + tirx.const(epsilon, data.dtype)),
        name="deviation",
        attrs={KERNEL: ROWS},
    )
    normalized = te.compute(
        data.shape,
        lambda *index: data(*index) * scale(*index[:-1]) * gamma(index[-1]),
        name="rms_norm",
        attrs={KERNEL: ROWS},
    )
    return [data, normalized] if with_sum else normalized


def schedule_rows(schedule: Any, blocks: list[Block], machine: Machine) -> None:
    """Compute a row after the other, in parallel, with all intermediate results of a row on the stack."""
    # A result that other blocks read cannot be moved; they follow it then, row by row.
    leads = len(blocks) > 1 and blocks[0].is_output
    anchor, others = (blocks[0], blocks[1:]) if leads else (blocks[-1], blocks[-2::-1])
    *leading, columns = schedule.get_loops(schedule.get_sblock(anchor.name))
    row = schedule.fuse(*leading) if leading else schedule.add_unit_loop(columns)
    bytes_of_row = 4 * max([1, *block.spatial][-1] or MAX_STACK_BYTES for block in blocks)
    for block in others:
        handle = schedule.get_sblock(block.name)
        move = schedule.reverse_compute_at if leads else schedule.compute_at
        move(handle, row, preserve_unit_loops=True)
        if bytes_of_row <= MAX_STACK_BYTES and not block.is_output:
            schedule.set_scope(handle, 0, "local")
    schedule.parallel(row)
    outermost = {block.name: _vectorize(schedule, block, machine) for block in blocks}
    # Last, because a split reduction is no longer a block that other primitives accept around it.
    for name, steps in outermost.items():
        if steps is not None:
            schedule.decompose_reduction(schedule.get_sblock(name), steps)


def _vectorize(schedule: Any, block: Block, machine: Machine) -> Any:
    """Vectorize the loop over columns; return the loop over vectors of a partial reduction, else None."""
    loops = schedule.get_loops(schedule.get_sblock(block.name))
    if block.reduction:
        *_, lane, steps = loops
        if int(schedule.get(lane).extent) != machine.lanes:
            return None
        schedule.reorder(steps, lane)
        schedule.vectorize(lane)
        return steps
    columns = loops[-1]
    extent = schedule.get(columns).extent
    if isinstance(extent, tirx.IntImm) and int(extent) > 1 and int(extent) % machine.lanes == 0:
        _, lane = schedule.split(columns, [None, machine.lanes])
        schedule.vectorize(lane)
    return None


def _reduce(data: Any, element: Any, kind: str, lanes: int, name: str = "") -> Any:
    """Reduce the last axis to one value: first to a vector of `lanes` partial results where they divide it."""
    reducer = te.max if kind == "max" else te.sum
    *leading, size = data.shape
    name = name or kind
    if not isinstance(size, tirx.IntImm) or int(size) % lanes or int(size) == lanes:
        axis = te.reduce_axis((0, size), name="column")
        return te.compute(leading, lambda *index: reducer(element(*index, axis), axis=axis), name=name, attrs={KERNEL: ROWS})
    step = te.reduce_axis((0, int(size) // lanes), name="step")
    partial = te.compute(
        (*leading, lanes),
        lambda *index: reducer(element(*index[:-1], step * lanes + index[-1]), axis=step),
        name=f"partial_{name}",
        attrs={KERNEL: ROWS},
    )
    lane = te.reduce_axis((0, lanes), name="lane")
    return te.compute(leading, lambda *index: reducer(partial(*index, lane), axis=lane), name=name, attrs={KERNEL: ROWS})
