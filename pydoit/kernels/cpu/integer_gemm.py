"""Several rows times a quantized weight matrix: weights become int16 pairs once, all rows are multiplied in integers."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.cpu.emit import Registers, constant, load, local, splat, steps, store
from pydoit.kernels.cpu.epilogue import Epilogue
from pydoit.kernels.cpu.gemm import REST_ROWS, for_tiles, tile_rows
from pydoit.kernels.cpu.integer import OFFSET, QuantizedRows, group_size, pair_product, quantize_rows
from pydoit.kernels.cpu.unpack import PackedWeights
from pydoit.kernels.cpu.weight_format import PAIR
from pydoit.tvm_compat import script, tirx

DEPTH_BLOCK = 256
"""Values of k whose weights are unpacked before all rows are multiplied with them; a multiple of every group."""


def emit_integer_gemm(x: Any, rows: Any, weights: PackedWeights, epilogue: Epilogue, arch: str) -> None:
    """Emit the loops of out[r, n] = sum over k of x[r, k] * w[n, k]; x is float32 [rows, k]."""
    lanes = weights.lanes
    given = quantize_rows(x, rows, weights.depth, weights.weight_format, lanes)
    block = Block(weights, given, rows, arch)
    with script.parallel(0, weights.panels // PAIR) as task:
        panels = [task * PAIR + member for member in range(PAIR)]
        block.begin()
        steps(weights.depth, DEPTH_BLOCK, lambda start, size: block.add(panels, start, size))
        with script.serial(0, rows) as row:

            def finished(member: int) -> Any:
                def value(offset: Any, count: int) -> Any:
                    total = load(block.sums, [row, offset + member * lanes], count)
                    if weights.weight_format.group_size is not None:
                        return total
                    return total * load(weights.tensors["scale"], [panels[member], 0, offset], count)

                return value

            epilogue.store(row, task * PAIR, finished(0), finished(1))


class Block:
    """What one task keeps: the sums of all rows, and the weights of one block of k."""

    def __init__(self, weights: PackedWeights, given: QuantizedRows, rows: Any, arch: str) -> None:
        self.weights, self.given, self.rows, self.arch = weights, given, rows, arch
        self.lanes = weights.lanes
        self.size = group_size(weights.weight_format)
        self.width = PAIR * self.lanes

    def begin(self) -> None:
        """Allocate, and clear the sums."""
        self.sums = script.alloc_buffer((self.rows + REST_ROWS - 1, self.width))
        """float32 [rows and some more, PAIR * lanes]"""
        depth = min(DEPTH_BLOCK, self.weights.weight_format.padded_depth(self.weights.depth))
        self.pairs = local(-(-depth // 2) * self.width, "int32")
        """int32 [depth / 2, PAIR * lanes]: two int16 in each"""
        groups = -(-depth // self.size)
        self.factors = {name: local(groups * self.width) for name in self.weights.tensors if name != "weight"}
        """float32 [groups, PAIR * lanes]: scale and minimum"""
        with script.serial(0, self.rows + REST_ROWS - 1) as row:
            for member in range(PAIR):
                store(self.sums, constant(0.0, self.lanes), [row, member * self.lanes], self.lanes)

    def add(self, panels: list[Any], start: Any, size: int) -> None:
        """Add the products of a block of k."""
        self._unpack(panels, start, size)
        for_tiles(self.rows, tile_rows(self.lanes), lambda first, read: self._multiply(first, read, start, size))

    def _unpack(self, panels: list[Any], start: Any, size: int) -> None:
        weights, lanes = self.weights, self.lanes
        in_word = weights.in_word
        with script.serial(0, -(-size // in_word)) as word:
            for member, panel in enumerate(panels):
                kept = weights.pairs(panel, tirx.indexdiv(start, in_word) + word)
                for pair, vector in enumerate(kept):
                    at = (word * (in_word // 2) + pair) * self.width + member * lanes
                    store(self.pairs, vector, [at], lanes)
        if weights.weight_format.group_size is None:
            return
        with script.serial(0, -(-size // self.size)) as group:
            for name, buffer in self.factors.items():
                read = {"scale": weights.scale, "minimum": weights.minimum}[name]
                for member, panel in enumerate(panels):
                    value = read(panel, tirx.indexdiv(start, self.size) + group)
                    store(buffer, value, [group * self.width + member * lanes], lanes)

    def _multiply(self, first: Any, read: list[Any], start: Any, size: int) -> None:
        steps(size, self.size, lambda offset, count: self._group(first, read, start, offset, count))

    def _group(self, first: Any, read: list[Any], start: Any, offset: Any, count: int) -> None:
        """Add the products of one group of k to the rows `read`, whose sums begin at row `first`."""
        lanes, height = self.lanes, len(read)
        sums = Registers(height * PAIR, lanes, "int32")
        sums.fill(0)
        with script.serial(0, -(-count // 2)) as pair:
            at = (tirx.indexdiv(offset, 2) + pair) * self.width
            vectors = [script.bind(load(self.pairs, [at + member * lanes], lanes)) for member in range(PAIR)]
            number = tirx.indexdiv(start + offset, 2) + pair
            for row in range(height):
                factor = script.bind(self.given.pair(read[row], number, lanes))
                for member, vector in enumerate(vectors):
                    at_sum = row * PAIR + member
                    sums[at_sum] = sums[at_sum] + pair_product(vector, factor, lanes, self.arch)
        inside, group = tirx.indexdiv(offset, self.size), tirx.indexdiv(start + offset, self.size)
        for row in range(height):
            for member in range(PAIR):
                place = [first + row, member * lanes]
                value = self._scaled(sums[row * PAIR + member], read[row], inside, group, member)
                store(self.sums, load(self.sums, place, lanes) + value, place, lanes)

    def _scaled(self, total: Any, row: Any, inside: Any, group: Any, member: int) -> Any:
        """A group's integer sums in float32."""
        lanes, chosen = self.lanes, self.weights.weight_format
        value = tirx.Cast(f"float32x{lanes}", total) * splat(self.given.scales[row, group], lanes)
        at = [inside * self.width + member * lanes]
        if chosen.dtype == "int4" and chosen.symmetric:
            value = value - splat(self.given.sums[row, group] * tirx.const(float(OFFSET), "float32"), lanes)
        if chosen.group_size is not None:
            value = value * load(self.factors["scale"], at, lanes)
        if not chosen.symmetric:
            value = value + load(self.factors["minimum"], at, lanes) * splat(self.given.sums[row, group], lanes)
        return value
