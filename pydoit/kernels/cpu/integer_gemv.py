"""One row times a quantized weight matrix, in integers within a group."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.cpu.emit import Registers, load, local, splat, steps, store
from pydoit.kernels.cpu.epilogue import Epilogue
from pydoit.kernels.cpu.integer import OFFSET, QuantizedRows, group_size, pair_product, quantize_rows
from pydoit.kernels.cpu.unpack import PackedWeights
from pydoit.kernels.cpu.weight_format import PAIR
from pydoit.tvm_compat import script, tirx

UNROLL = 32
"""Values of k in one pass of the innermost loop."""


def emit_integer_gemv(x: Any, weights: PackedWeights, epilogue: Epilogue, arch: str) -> None:
    """Emit the loops of out[0, n] = sum over k of x[0, k] * w[n, k]; x is float32 [1, k]."""
    lanes = weights.lanes
    given = quantize_rows(x, 1, weights.depth, weights.weight_format, lanes)
    size = group_size(weights.weight_format)
    with script.parallel(0, weights.panels // PAIR) as task:
        sums, totals = Registers(PAIR, lanes, "int32"), Registers(PAIR, lanes)
        result = local(PAIR * lanes)
        totals.fill(0.0)
        panels = [task * PAIR + member for member in range(PAIR)]

        def group(start: Any, count: int) -> None:
            sums.fill(0)
            words = -(-count // weights.in_word)
            steps(words, UNROLL // weights.in_word, lambda word, present: multiply(start, word, present, count))
            finish_group(weights, given, 0, panels, tirx.indexdiv(start, size), sums, totals)

        def multiply(start: Any, word: Any, present: int, count: int) -> None:
            pairs = -(-count // 2)
            for offset in range(present):
                number = tirx.indexdiv(start, weights.in_word) + word + offset
                kept = [weights.pairs(panel, number) for panel in panels]
                for pair in range(weights.in_word // 2):
                    if isinstance(word, int) and (word + offset) * weights.in_word // 2 + pair >= pairs:
                        continue
                    factor = script.bind(given.pair(0, number * (weights.in_word // 2) + pair, lanes))
                    for member in range(PAIR):
                        sums[member] = sums[member] + pair_product(kept[member][pair], factor, lanes, arch)

        steps(weights.depth, size, group)
        for member, panel in enumerate(panels):
            total = totals[member]
            if weights.weight_format.group_size is None:
                total = total * weights.scale(panel, 0)
            store(result, total, [member * lanes], lanes)

        def finished(member: int) -> Any:
            return lambda offset, count: load(result, [offset + member * lanes], count)

        epilogue.store(0, task * PAIR, finished(0), finished(1))


def finish_group(
    weights: PackedWeights, given: QuantizedRows, row: Any, panels: list[Any], group: Any, sums: Registers, totals: Registers
) -> None:
    """Add a group's integer sums to the totals."""
    lanes, chosen = weights.lanes, weights.weight_format
    factor = splat(script.bind(given.scales[row, group]), lanes)
    for member, panel in enumerate(panels):
        value = script.bind(tirx.Cast(f"float32x{lanes}", sums[member])) * factor
        if chosen.dtype == "int4" and chosen.symmetric:
            value = value - splat(given.sums[row, group] * tirx.const(float(OFFSET), "float32"), lanes)
        if chosen.group_size is not None:
            value = value * weights.scale(panel, group)
        total = totals[member] + value
        if not chosen.symmetric:
            total = total + weights.minimum(panel, group) * splat(given.sums[row, group], lanes)
        totals[member] = total
