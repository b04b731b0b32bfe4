"""Several rows times a packed weight matrix by AMX tiles: bfloat16 factors, float32 sums.

Activations that meet bfloat16 weights are rounded to bfloat16. With quantized weights factors are sums of two bfloat16
numbers, which keep 16 bits of a number, as the products of vectors do; the product of the two rests is left out.

A library for x86-64-v4 holds these products beside those of vectors; whether the CPU and its kernel allow tiles is asked
when a product runs, so that one library serves machines with and without them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydoit.kernels.cpu.emit import conditional, constant, convert, load, local, reinterpret, steps, store
from pydoit.kernels.cpu.epilogue import Epilogue
from pydoit.kernels.cpu.integer import OFFSET
from pydoit.kernels.cpu.unpack import PackedWeights
from pydoit.kernels.cpu.weight_format import DEPTH_STEP, PAIR
from pydoit.tvm_compat import script, tirx

ARCHS = frozenset({"x86-64-v4", "sapphirerapids", "emeraldrapids", "graniterapids"})
"""Architectures whose machines may have tiles."""
LANES = 16
TILE = 16
"""Rows of a tile; each row has 64 bytes: 32 values of k, or 16 sums."""
HEIGHT = 2
"""Tiles of rows that are multiplied with the weights in registers: with PAIR of them, four tiles of sums."""
LEAST_ROWS = {"bfloat16": 2, "int8": 32, "int4": 32}
"""Rows from which on tiles are faster; quantized weights have to be unpacked first."""
STORED_BLOCK, UNPACKED_BLOCK = 4096, 256
"""Values of k that are multiplied with all rows before the next ones: weights as they are stored, and unpacked ones."""
_SUMS, _GIVEN, _WEIGHTS = 0, HEIGHT * PAIR, HEIGHT * PAIR + HEIGHT
"""Where the tiles of each kind begin among the eight registers."""
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def with_tiles(arch: str, rows: Any, dtype: str, tiles: Callable[[], None], vectors: Callable[[], None]) -> None:
    """Emit both products of `rows` rows and the choice between them; only one where there is nothing to choose."""
    if arch not in ARCHS or dtype not in LEAST_ROWS or (isinstance(rows, int) and rows < LEAST_ROWS[dtype]):
        return vectors()
    numbers = (tirx.const(number, "int64") for number in (_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA))
    # Linux lets a process use tiles after it has asked; asking again costs a tenth of a microsecond.
    denied = script.bind(tirx.call_extern("int64", "syscall", *numbers))
    conditional(tirx.all(denied == tirx.const(0, "int64"), rows >= LEAST_ROWS[dtype]), tiles, vectors)
    return None


def emit_tile_gemm(x: Any, rows: Any, weights: PackedWeights, epilogue: Epilogue) -> None:
    """Emit the loops of out[r, n] = sum over k of x[r, k] * w[n, k]; x is float32 [rows, k]."""
    depth = -(-weights.depth // DEPTH_STEP) * DEPTH_STEP
    source = _Unpacked(weights) if weights.weight_format.quantized else _Stored(weights)
    given = _rounded_rows(x, rows, weights.depth, depth, 2 if weights.weight_format.quantized else 1)
    with script.parallel(0, weights.panels // PAIR) as task:
        sums = script.alloc_buffer((rows + TILE - 1, PAIR * LANES))
        source.begin()
        _configure()

        def block(start: Any, size: int, *, first: bool) -> None:
            source.block(task * PAIR, start, size)
            _for_tiles(rows, lambda row, height: _multiply(given, source, sums, row, height, start, size, first=first))

        size = min(source.size, depth)
        block(0, size, first=True)
        steps(depth - size, source.size, lambda start, count: block(start + size, count, first=False))
        _evaluate("tilerelease")
        with script.serial(0, rows) as row:

            def finished(member: int) -> Any:
                def value(offset: Any, count: int) -> Any:
                    return source.scaled(load(sums, [row, offset + member * LANES], count), task * PAIR + member, offset, count)

                return value

            epilogue.store(row, task * PAIR, finished(0), finished(1))


@dataclass
class _Stored:
    """bfloat16 weights, whose packed form is that of tiles."""

    weights: PackedWeights
    size: int = STORED_BLOCK
    stride: int = 4 * LANES
    parts: int = 1
    panel: Any = None

    def begin(self) -> None:
        pass

    def block(self, panel: Any, _start: Any, _size: int) -> None:
        self.panel = panel

    def place(self, _part: int, start: Any, step: Any, member: int) -> Any:
        """The tile of `DEPTH_STEP` values of k from start + step on, of one panel."""
        pair = tirx.indexdiv(start, 2) + tirx.indexdiv(step, 2)
        return tirx.address_of(self.weights.tensors["weight"][self.panel + member, pair, 0])

    def scaled(self, total: Any, _panel: Any, _offset: Any, _count: int) -> Any:
        return total


@dataclass
class _Unpacked:
    """Quantized weights, which become bfloat16 block by block."""

    weights: PackedWeights
    size: int = UNPACKED_BLOCK
    stride: int = 4 * LANES * PAIR
    buffers: tuple[Any, ...] = ()

    @property
    def parts(self) -> int:
        """Numbers that a weight is the sum of; integers are exact in bfloat16."""
        return 1 if self.weights.weight_format.group_size is None else 2

    def begin(self) -> None:
        self.buffers = tuple(local(self.size // 2 * PAIR * LANES, "uint32") for _ in range(self.parts))

    def block(self, panel: Any, start: Any, size: int) -> None:
        group = self.weights.weight_format.group_size or size
        steps(size, min(group, size), lambda offset, count: self._group(panel, start, offset, count))

    def place(self, part: int, _start: Any, step: Any, member: int) -> Any:
        return tirx.address_of(self.buffers[part][tirx.indexdiv(step, 2) * PAIR * LANES + member * LANES])

    def scaled(self, total: Any, panel: Any, offset: Any, count: int) -> Any:
        """Sums of one panel; integers are exact in bfloat16, so that one scale a channel waits until here."""
        if self.weights.weight_format.group_size is not None:
            return total
        return total * load(self.weights.tensors["scale"], [panel, 0, offset], count)

    def _group(self, panel: Any, start: Any, offset: Any, count: int) -> None:
        """Unpack a group of k of both panels; what is beyond the stored depth becomes zero."""
        weights, in_word = self.weights, self.weights.in_word
        present = weights.weight_format.padded_depth(weights.depth)
        for member in range(PAIR):
            read = self._reader(panel + member, start + offset)
            with script.serial(0, count // in_word) as word:
                first = start + offset + word * in_word
                at = (tirx.indexdiv(offset, 2) + word * (in_word // 2)) * PAIR * LANES + member * LANES

                def fill(read: Any = read, first: Any = first, at: Any = at) -> None:
                    for pair, (even, odd) in enumerate(read(tirx.indexdiv(first, in_word))):
                        for buffer, value in zip(self.buffers, _joined(even, odd, self.parts), strict=True):
                            store(buffer, value, [at + pair * PAIR * LANES], LANES)

                def clear(at: Any = at) -> None:
                    for pair, buffer in itertools.product(range(in_word // 2), self.buffers):
                        store(buffer, constant(0, LANES, "uint32"), [at + pair * PAIR * LANES], LANES)

                conditional(first < present, fill, clear) if present % DEPTH_STEP else fill()

    def _reader(self, panel: Any, start: Any) -> Callable[[Any], list[tuple[Any, Any]]]:
        """Reads a word of the group that begins at `start`: float32 of an even k and of the next one, several times."""
        weights, chosen = self.weights, self.weights.weight_format
        if chosen.group_size is None:
            return lambda word: [_halves(pair, 0) for pair in weights.pairs(panel, word)]
        group = tirx.indexdiv(start, chosen.group_size)
        scale = script.bind(weights.scale(panel, group))
        minimum = None if chosen.symmetric else script.bind(weights.minimum(panel, group))
        offset = OFFSET if chosen.dtype == "int4" and chosen.symmetric else 0

        def real(value: Any) -> Any:
            return value * scale if minimum is None else value * scale + minimum

        def values(word: Any) -> list[tuple[Any, Any]]:
            halves = [_halves(pair, offset) for pair in weights.pairs(panel, word)]
            return [(real(even), real(odd)) for even, odd in halves]

        return values


def _halves(pair: Any, offset: int) -> tuple[Any, Any]:
    """float32 of the two int16 in each lane of an int32 vector, less `offset`."""
    sixteen = constant(16, LANES, "int32")
    pair = script.bind(pair)
    halves = ((pair << sixteen) >> sixteen, pair >> sixteen)
    even, odd = (convert(half - constant(offset, LANES, "int32") if offset else half, "float32", LANES) for half in halves)
    return even, odd


def _rounded_rows(x: Any, rows: Any, depth: int, padded: int, parts: int) -> list[Any]:
    """Emit the rounding of float32 [rows, depth] to sums of bfloat16 [rows and some more, padded], zero beyond the depth."""
    given = [script.alloc_buffer((rows + TILE - 1, padded), "uint16") for _ in range(parts)]
    with script.parallel(0, rows) as row:

        def part(start: Any, lanes: int) -> None:
            for buffer, bits in zip(given, _split(load(x, [row, start], lanes), lanes, parts), strict=True):
                store(buffer, convert(bits >> constant(16, lanes, "uint32"), "uint16", lanes), [row, start], lanes)

        steps(depth, LANES, lambda start, count: _parts(start, count, part))
        for buffer, place in itertools.product(given, range(depth, padded)):
            store(buffer, tirx.const(0, "uint16"), [row, place], 1)
    return given


def _split(value: Any, lanes: int, parts: int) -> list[Any]:
    """uint32 whose upper halves are bfloat16 numbers that add up to float32 `value`, the largest first."""
    split = []
    for number in range(parts):
        value = script.bind(value)
        bits = script.bind(reinterpret(value, "uint32", lanes))
        odd = (bits >> constant(16, lanes, "uint32")) & constant(1, lanes, "uint32")
        nearest = bits + constant(0x7FFF, lanes, "uint32") + odd
        is_nan = (bits & constant(0x7FFFFFFF, lanes, "uint32")) > constant(0x7F800000, lanes, "uint32")
        split.append(script.bind(tirx.Select(is_nan, constant(0x7FC00000, lanes, "uint32"), nearest)))
        if number + 1 < parts:
            value = value - reinterpret(split[-1] & constant(0xFFFF0000, lanes, "uint32"), "float32", lanes)
    return split


def _joined(even: Any, odd: Any, parts: int) -> list[Any]:
    """uint32 [LANES] of two bfloat16: of an even k in the low half, of the next one in the high half.

    The first of two parts is cut off, not rounded, and the second takes up what is left: an error of 2**-15 at most.
    """
    mask, sixteen = constant(0xFFFF0000, LANES, "uint32"), constant(16, LANES, "uint32")
    values = [script.bind(value) for value in (even, odd)]
    bits = [script.bind(reinterpret(value, "uint32", LANES)) for value in values]
    joined = [(bits[0] >> sixteen) | (bits[1] & mask)]
    if parts > 1:
        half = constant(0x8000, LANES, "uint32")
        rests = [value - reinterpret(own & mask, "float32", LANES) for value, own in zip(values, bits, strict=True)]
        low, high = (script.bind(reinterpret(rest, "uint32", LANES) + half) for rest in rests)
        joined.append((low >> sixteen) | (high & mask))
    return joined


def _parts(start: Any, count: int, emit: Callable[[Any, int], None]) -> None:
    if count == LANES:
        emit(start, LANES)
        return
    for place in range(count):
        emit(start + place, 1)


def _for_tiles(rows: Any, emit: Callable[[Any, int], None]) -> None:
    """Call `emit(first row, tiles)` in loops over pairs of tiles and then single ones; the last may reach beyond the rows."""
    full = tirx.indexdiv(rows, HEIGHT * TILE)
    with script.serial(0, full) as pair:
        emit(pair * HEIGHT * TILE, HEIGHT)
    rest = tirx.indexdiv(rows - full * HEIGHT * TILE + TILE - 1, TILE)
    with script.serial(0, rest) as tile:
        emit(full * HEIGHT * TILE + tile * TILE, 1)


def _multiply(
    given: list[Any], source: _Stored | _Unpacked, sums: Any, row: Any, height: int, start: Any, size: int, *, first: bool
) -> None:  # fmt: skip
    """Add the products of one block of k to the sums of `height` tiles of rows."""
    tiles = [(part, member) for part in range(height) for member in range(PAIR)]
    places = [tirx.address_of(sums[row + part * TILE, member * LANES]) for part, member in tiles]
    for number, place in enumerate(places):
        if first:
            _evaluate("tilezero", _register(_SUMS + number))
        else:
            _move("tileloadd64", _SUMS + number, place, 4 * PAIR * LANES)
    with script.serial(0, size // DEPTH_STEP) as number:
        step = number * DEPTH_STEP
        held: tuple[int | None, int | None] = (None, None)
        for factors in _products(len(given), source.parts):
            rounded, weight = factors
            if held[0] != rounded:
                for part in range(height):
                    place = tirx.address_of(given[rounded][row + part * TILE, start + step])
                    _move("tileloadd64", _GIVEN + part, place, 2 * int(given[rounded].shape[1]))
            if held[1] != weight:
                for member in range(PAIR):
                    _move("tileloadd64", _WEIGHTS + member, source.place(weight, start, step, member), source.stride)
            held = factors
            for number_of_sum, (part, member) in enumerate(tiles):
                registers = (_SUMS + number_of_sum, _GIVEN + part, _WEIGHTS + member)
                _evaluate("tdpbf16ps", *map(_register, registers))
    for number, place in enumerate(places):
        _move("tilestored64", _SUMS + number, place, 4 * PAIR * LANES)


def _products(given: int, weights: int) -> list[tuple[int, int]]:
    """Which parts are multiplied: all but those where both are rests, adjacent ones sharing a factor."""
    return [(0, 0), *[(0, 1)] * (weights > 1), *[(1, 0)] * (given > 1)]


def _configure() -> None:
    """Give all eight registers 16 rows of 64 bytes; what a thread has configured it must release."""
    settings = local(64, "uint8")
    store(settings, constant(0, 64, "uint8"), [0], 64)
    store(settings, tirx.const(1, "uint8"), [0], 1)
    for register in range(8):
        store(settings, tirx.const(64, "uint8"), [16 + 2 * register], 1)
        store(settings, tirx.const(TILE, "uint8"), [48 + register], 1)
    _evaluate("ldtilecfg", tirx.address_of(settings[0]))


def _move(name: str, register: int, place: Any, stride: int) -> None:
    _evaluate(name, _register(register), place, tirx.const(stride, "int64"))


def _register(number: int) -> Any:
    return tirx.const(number, "int8")


def _evaluate(name: str, *arguments: Any) -> None:
    script.evaluate(tirx.call_llvm_intrin("void", f"llvm.x86.{name}", *arguments))
