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
SUMS = 2
"""Independent sums of a panel."""


def emit_integer_gemv(x: Any, weights: PackedWeights, epilogue: Epilogue, arch: str) -> None:
    """Emit the loops of out[0, n] = sum over k of x[0, k] * w[n, k]; x is float32 [1, k]."""
    lanes = weights.lanes
    given = quantize_rows(x, 1, weights.depth, weights.weight_format, lanes)
    size = group_size(weights.weight_format)
    with script.parallel(0, weights.panels // PAIR) as task:
        sums, totals = Registers(SUMS, lanes, "int32"), Registers(1, lanes)
        result = local(PAIR * lanes)

        def multiply(panel: Any, start: Any, word: Any, present: int, pairs: int) -> None:
            for offset in range(present):
                number = tirx.indexdiv(start, weights.in_word) + word + offset
                for pair, kept in enumerate(weights.pairs(panel, number)):
                    position = offset * weights.in_word // 2 + pair
                    if isinstance(word, int) and word * weights.in_word // 2 + position >= pairs:
                        continue
                    factor = given.pair(0, number * (weights.in_word // 2) + pair, lanes)
                    at = position % SUMS
                    sums[at] = sums[at] + pair_product(kept, factor, lanes, arch)

        # One panel after the other: weights are read in one stream, which is what the time goes into.
        for member in range(PAIR):
            panel = task * PAIR + member
            totals.fill(0.0)

            def group(start: Any, count: int, panel: Any = panel) -> None:
                sums.fill(0)
                words = -(-count // weights.in_word)
                pairs = -(-count // 2)
                unrolled = UNROLL // weights.in_word
                steps(words, unrolled, lambda word, present: multiply(panel, start, word, present, pairs))
                finish_group(weights, given, panel, tirx.indexdiv(start, size), sums, totals)

            steps(weights.depth, size, group)
            total = totals[0]
            if weights.weight_format.group_size is None:
                total = total * weights.scale(panel, 0)
            store(result, total, [member * lanes], lanes)

        def finished(member: int) -> Any:
            return lambda offset, count: load(result, [offset + member * lanes], count)

        epilogue.store(0, task * PAIR, finished(0), finished(1))


def finish_group(
    weights: PackedWeights, given: QuantizedRows, panel: Any, group: Any, sums: Registers, totals: Registers
) -> None:
    """Add a group's integer sums to the total."""
    lanes, chosen = weights.lanes, weights.weight_format
    value = tirx.Cast(f"float32x{lanes}", sums.total()) * splat(given.scales[0, group], lanes)
    if chosen.dtype == "int4" and chosen.symmetric:
        value = value - splat(given.sums[0, group] * tirx.const(float(OFFSET), "float32"), lanes)
    if chosen.group_size is not None:
        value = value * weights.scale(panel, group)
    total = totals[0] + value
    if not chosen.symmetric:
        total = total + weights.minimum(panel, group) * splat(given.sums[0, group], lanes)
    totals[0] = total
