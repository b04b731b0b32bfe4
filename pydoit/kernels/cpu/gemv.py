"""One row times a packed weight matrix, at the speed at which the weights are read."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.cpu.emit import (
    Registers,
    load,
    local,
    reduce_lanes,
    splat,
    steps,
    store,
)
from pydoit.kernels.cpu.epilogue import Epilogue
from pydoit.kernels.cpu.unpack import PackedWeights
from pydoit.kernels.cpu.weight_format import PAIR
from pydoit.tvm_compat import script, tirx

ACCUMULATORS = 4
"""Independent sums of a panel, which hide the latency of a multiply-add."""
UNROLL = 16
"""Values of k in one pass of the innermost loop."""


def emit_gemv(x: Any, weights: PackedWeights, epilogue: Epilogue) -> None:
    """Emit the loops of out[0, n] = sum over k of x[0, k] * w[n, k]; x is float32 [1, k]."""
    group_sums = _sum_groups(x, weights) if "minimum" in weights.tensors else None
    lanes = weights.lanes
    with script.parallel(0, weights.panels // PAIR) as task:
        accumulators, totals = Registers(ACCUMULATORS, lanes), Registers(1, lanes)
        result = local(PAIR * lanes)
        for member in range(PAIR):
            _emit_panel(x, weights, task * PAIR + member, accumulators, totals, group_sums)
            store(result, totals[0], [member * lanes], lanes)

        def finished(member: int) -> Any:
            return lambda offset, count: load(result, [offset + member * lanes], count)

        epilogue.store(0, task * PAIR, finished(0), finished(1))


def _sum_groups(x: Any, weights: PackedWeights) -> Any:
    """Sum x over each group, which a group's minimum is multiplied with."""
    lanes, size = weights.lanes, weights.group_size
    sums = script.alloc_buffer((weights.weight_format.groups(weights.depth),))
    partial = Registers(1, lanes)

    def group(start: Any, count: int) -> None:
        partial.fill(0.0)
        for offset in range(0, count - lanes + 1, lanes):
            partial[0] = partial[0] + load(x, [0, start + offset], lanes)
        total = script.bind(tirx.Shuffle([reduce_lanes(partial[0], lanes)], [tirx.const(0, "int32")]))
        for offset in range(count - count % lanes, count):
            total = total + x[0, start + offset]
        store(sums, total, [tirx.indexdiv(start, size)], 1)

    steps(weights.depth, size, group)
    return sums


def _emit_panel(
    x: Any, weights: PackedWeights, panel: Any, accumulators: Registers, totals: Registers, group_sums: Any
) -> None:
    """Leave the sums of one panel in `totals`."""
    lanes = weights.lanes
    totals.fill(0.0)

    def group(start: Any, size: int) -> None:
        accumulators.fill(0.0)
        steps(size, UNROLL, lambda offset, count: _emit_steps(x, weights, panel, start + offset, count, accumulators))
        index = tirx.indexdiv(start, weights.group_size)
        total, scale = accumulators.total(), weights.scale(panel, index)
        total = totals[0] + (total if scale is None else total * scale)
        if group_sums is not None:
            total = total + weights.minimum(panel, index) * splat(group_sums[index], lanes)
        totals[0] = total

    steps(weights.depth, weights.group_size, group)


def _emit_steps(x: Any, weights: PackedWeights, panel: Any, start: Any, count: int, accumulators: Registers) -> None:
    """Multiply and add `count` values of k from `start` on, a multiple of the word's."""
    in_word = weights.in_word
    for offset in range(0, count, in_word):
        word = weights.word(panel, tirx.indexdiv(start + offset, in_word))
        for position, vector in enumerate(word[: count - offset]):
            number = (offset + position) % ACCUMULATORS
            product = splat(x[0, start + offset + position], weights.lanes) * vector
            accumulators[number] = accumulators[number] + product
