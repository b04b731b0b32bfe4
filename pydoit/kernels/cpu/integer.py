"""Products of quantized weights with 16-bit activations: twice as many a second as in float32, and as exact as it.

An activation is rounded to 16 bits with a scale for each group of its row, an error of at most 1.5e-5 of the group's
largest value. Products are summed in 32 bits within a group, which `SUM_BOUND` keeps from overflowing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.kernels.cpu.emit import Registers, constant, convert, load, reinterpret, splat, steps, store
from pydoit.kernels.cpu.weight_format import WeightFormat
from pydoit.tvm_compat import script, tirx

HIGHEST = 32767
CHANNEL_GROUP = 128
"""Values of k with one activation scale where the weights have none; 128 * 127 * 32767 < 2**31."""
OFFSET = 8
"""What is added to symmetric int4 values so that they are stored without a sign."""
_PAIR_PRODUCTS = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}


def group_size(chosen: WeightFormat) -> int:
    """Values of k that are summed as integers."""
    return chosen.group_size or CHANNEL_GROUP


def pair_product(first: Any, second: Any, lanes: int, arch: str) -> Any:
    """int32 [lanes]: a0 * b0 + a1 * b1 of the two int16 in each lane of two int32 vectors."""
    if arch == "generic":
        return sum_of_halves(first, second, lanes)
    halves = [reinterpret(value, "int16", 2 * lanes) for value in (first, second)]
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", _PAIR_PRODUCTS[lanes], *halves)


def sum_of_halves(first: Any, second: Any, lanes: int) -> Any:
    """The same in plain arithmetic, for CPUs other than x86."""
    sixteen = constant(16, lanes, "int32")
    low = ((first << sixteen) >> sixteen) * ((second << sixteen) >> sixteen)
    return low + (first >> sixteen) * (second >> sixteen)


@dataclass(frozen=True)
class QuantizedRows:
    """Activations as int16 with a scale for each row and group."""

    values: Any
    """int16 [rows, depth, made even], zero beyond the end."""
    scales: Any
    """float32 [rows, groups]"""
    sums: Any
    """float32 [rows, groups]: sum of the rounded values times their scale; None where it is not needed."""

    def pair(self, row: Any, number: Any, lanes: int) -> Any:
        """Values 2 * number and 2 * number + 1 of a row in each int32 lane."""
        return splat(reinterpret(load(self.values, [row, number * 2], 2), "int32", 1), lanes)


def quantize_rows(x: Any, rows: Any, depth: int, chosen: WeightFormat, lanes: int) -> QuantizedRows:
    """Emit the rounding of float32 [rows, depth]."""
    size = group_size(chosen)
    even = depth + depth % 2
    groups = -(-depth // size)
    needs_sums = chosen.dtype == "int4"
    values = script.alloc_buffer((rows, even), "int16")
    scales = script.alloc_buffer((rows, groups))
    sums = script.alloc_buffer((rows, groups)) if needs_sums else None
    result = QuantizedRows(values, scales, sums)
    loop = script.serial(0, 1) if isinstance(rows, int) and rows == 1 else script.parallel(0, rows)
    with loop as row:
        if even > depth:
            store(values, tirx.const(0, "int16"), [row, depth], 1)
        steps(depth, size, lambda start, count: _quantize_group(x, row, start, count, size, result, lanes))
    return result


def _quantize_group(x: Any, row: Any, start: Any, count: int, size: int, result: QuantizedRows, lanes: int) -> None:
    full = count - count % lanes
    # The largest magnitude by the bits of its number, whose order is the same and in which NaN is above all.
    peak, high = Registers(1, lanes, "int32"), Registers(1, 1, "int32")
    peak.fill(0)
    high.fill(0)
    with script.serial(0, full // lanes) as part:
        value = load(x, [row, start + part * lanes], lanes)
        peak[0] = tirx.max(peak[0], reinterpret(value, "int32", lanes) & constant(0x7FFFFFFF, lanes, "int32"))
    for lane in range(lanes):
        high[0] = tirx.max(high[0], _lane(peak[0], lane, lanes))
    for offset in range(full, count):
        high[0] = tirx.max(high[0], reinterpret(x[row, start + offset], "int32", 1) & tirx.const(0x7FFFFFFF, "int32"))
    largest = script.bind(reinterpret(high[0], "float32", 1))
    # Zeros have the scale zero; where a value is not finite the scale is not either, hence all that it multiplies.
    scale = script.bind(largest * tirx.const(1.0 / HIGHEST, "float32"))
    tiny = tirx.const(1e-30, "float32")
    inverse = script.bind(tirx.const(float(HIGHEST), "float32") / tirx.max(largest, tiny))
    group = tirx.indexdiv(start, size)
    store(result.scales, scale, [row, group], 1)
    total = Registers(1, lanes, "int32")
    rest = Registers(1, 1, "int32")
    total.fill(0)
    rest.fill(0)
    with script.serial(0, full // lanes) as part:
        index = [row, start + part * lanes]
        rounded = script.bind(_rounded(load(x, index, lanes) * splat(inverse, lanes), lanes))
        store(result.values, convert(rounded, "int16", lanes), index, lanes)
        total[0] = total[0] + rounded
    for offset in range(full, count):
        rounded = script.bind(_rounded(x[row, start + offset] * inverse, 1))
        store(result.values, convert(rounded, "int16", 1), [row, start + offset], 1)
        rest[0] = rest[0] + rounded
    if result.sums is not None:
        for lane in range(lanes):
            rest[0] = rest[0] + _lane(total[0], lane, lanes)
        store(result.sums, convert(rest[0], "float32", 1) * scale, [row, group], 1)


def _rounded(value: Any, lanes: int) -> Any:
    return convert(tirx.nearbyint(value), "int32", lanes)


def _lane(vector: Any, lane: int, lanes: int) -> Any:
    return vector if lanes == 1 else tirx.Shuffle([vector], [tirx.const(lane, "int32")])
