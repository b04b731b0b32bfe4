"""Several rows times a packed weight matrix: weights are unpacked once, block by block, and multiplied with all rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydoit.kernels.cpu.emit import Registers, constant, load, local, splat, steps, store
from pydoit.kernels.cpu.epilogue import Epilogue
from pydoit.kernels.cpu.unpack import PackedWeights
from pydoit.kernels.cpu.weight_format import PAIR
from pydoit.tvm_compat import script, tirx

DEPTH_BLOCK = 256
"""Values of k whose unpacked weights (32 KB with 16 lanes) are multiplied with all rows before the next ones."""
REST_ROWS = 4
"""Rows of the tiles that compute what the full tiles leave over."""


def tile_rows(lanes: int) -> int:
    """Rows of a register tile of two vectors: the sums, two weights and one factor fill 16 or 32 registers."""
    return 12 if lanes == 16 else 6


def emit_gemm(x: Any, rows: Any, weights: PackedWeights, epilogue: Epilogue) -> None:
    """Emit the loops of out[r, n] = sum over k of x[r, k] * w[n, k]; x is float32 [rows, k]."""
    lanes, width = weights.lanes, PAIR * weights.lanes
    padded = rows + REST_ROWS - 1  # the last tile may reach beyond the last row
    with script.parallel(0, weights.panels // PAIR) as task:
        sums = script.alloc_buffer((padded, width))
        unpacked = local(min(DEPTH_BLOCK, weights.depth) * width)
        with script.serial(0, padded) as row:
            for member in range(PAIR):
                store(sums, constant(0.0, lanes), [row, member * lanes], lanes)

        def block(start: Any, size: int) -> None:
            _unpack(weights, task * PAIR, start, size, unpacked)
            _multiply(x, rows, start, size, unpacked, sums, lanes)

        steps(weights.depth, DEPTH_BLOCK, block)

        with script.serial(0, rows) as row:

            def finished(member: int) -> Any:
                return lambda offset, count: load(sums, [row, offset + member * lanes], count)

            epilogue.store(row, task * PAIR, finished(0), finished(1))


def _unpack(weights: PackedWeights, panel: Any, start: Any, size: int, unpacked: Any) -> None:
    """Write the float32 weights of two panels, [size, 2 * lanes], into `unpacked`."""
    lanes, in_word = weights.lanes, weights.in_word
    group_size = min(weights.group_size, size) if weights.weight_format.group_size else size

    def group(offset: Any, count: int) -> None:
        index = tirx.indexdiv(start + offset, weights.weight_format.group_size or weights.depth)
        for member in range(PAIR):
            scale, minimum = weights.scale(panel + member, index), weights.minimum(panel + member, index)
            scale = scale if scale is None else script.bind(scale)
            minimum = minimum if minimum is None else script.bind(minimum)

            def word(step: Any, present: int, scale: Any = scale, minimum: Any = minimum, member: int = member) -> None:
                vectors = weights.word(panel + member, tirx.indexdiv(start + offset + step, in_word))
                for position, vector in enumerate(vectors[:present]):
                    value = vector if scale is None else vector * scale
                    value = value if minimum is None else value + minimum
                    store(unpacked, value, [(offset + step + position) * PAIR * lanes + member * lanes], lanes)

            steps(count, in_word, word)

    steps(size, group_size, group)


def _multiply(x: Any, rows: Any, start: Any, size: int, unpacked: Any, sums: Any, lanes: int) -> None:
    """Add the products of one block of k to the sums of all rows, tile by tile."""
    for_tiles(rows, tile_rows(lanes), lambda first, read: _tile(x, read, first, start, size, unpacked, sums, lanes))


def for_tiles(rows: Any, height: int, emit: Callable[[Any, list[Any]], None]) -> None:
    """Call `emit(first row, rows to read)` in loops over full tiles and then smaller ones.

    The last tile may reach beyond the rows; there it reads the last one and its sums are not used.
    """
    full = tirx.indexdiv(rows, height)
    with script.serial(0, full) as tile:
        emit(tile * height, [tile * height + row for row in range(height)])
    rest = tirx.indexdiv(rows - full * height + REST_ROWS - 1, REST_ROWS)
    with script.serial(0, rest) as tile:
        first = full * height + tile * REST_ROWS
        emit(first, [tirx.min(first + row, rows - 1) for row in range(REST_ROWS)])


def _tile(x: Any, read: list[Any], first: Any, start: Any, size: int, unpacked: Any, sums: Any, lanes: int) -> None:
    """Add the products of the rows `read` to the sums from row `first` on, all of which are in registers meanwhile."""
    height = len(read)
    registers = Registers(height * PAIR, lanes)
    for row in range(height):
        for member in range(PAIR):
            registers[row * PAIR + member] = load(sums, [first + row, member * lanes], lanes)
    with script.serial(0, size) as step:
        vectors = [script.bind(load(unpacked, [(step * PAIR + member) * lanes], lanes)) for member in range(PAIR)]
        for row in range(height):
            factor = script.bind(splat(x[read[row], start + step], lanes))
            for member, vector in enumerate(vectors):
                registers[row * PAIR + member] = registers[row * PAIR + member] + factor * vector
    for row in range(height):
        for member in range(PAIR):
            store(sums, registers[row * PAIR + member], [first + row, member * lanes], lanes)
