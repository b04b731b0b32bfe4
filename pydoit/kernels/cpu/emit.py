"""Building blocks of the kernels: a function around emitted statements, vectors, register accumulators, tails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pydoit.tvm_compat import IRBuilder, script, tirx

UNROLLED_TASKS = 4096


def primitive(name: str, emit: Callable[[], None]) -> Any:
    """Return the TIR function whose arguments and statements `emit` creates; passes that schedule leave it alone."""
    with IRBuilder() as builder, script.prim_func(s_tir=True):
        script.func_name(name)
        script.func_attr({"tirx.is_scheduled": True, "tirx.noalias": True, "global_symbol": name})
        emit()
    return builder.get()


def argument(name: str, shape: Sequence[Any], dtype: str = "float32") -> Any:
    """Declare the next argument of the function."""
    return script.arg(name, script.buffer(tuple(shape), dtype))


def local(size: int, dtype: str = "float32") -> Any:
    """Allocate registers, or the stack where they do not suffice."""
    return script.alloc_buffer((size,), dtype, scope="local")


def at(start: Any, lanes: int) -> Any:
    """Index of `lanes` adjacent elements."""
    return tirx.Ramp(start, 1, lanes) if lanes > 1 else start


def splat(value: Any, lanes: int) -> Any:
    """Repeat a scalar in every lane."""
    return tirx.Broadcast(value, lanes) if lanes > 1 else value


def constant(number: float, lanes: int = 1, dtype: str = "float32") -> Any:
    """Return a constant vector."""
    return splat(tirx.const(number, dtype), lanes)


def load(buffer: Any, index: Sequence[Any], lanes: int) -> Any:
    """Read `lanes` adjacent elements, the last index being that of the first."""
    *outer, start = index
    return buffer[(*outer, at(start, lanes))]


def store(buffer: Any, value: Any, index: Sequence[Any], lanes: int) -> None:
    """Write `lanes` adjacent elements."""
    *outer, start = index
    script.buffer_store(buffer, value, [*outer, at(start, lanes)])


def convert(value: Any, dtype: str, lanes: int) -> Any:
    """Convert every lane of a vector to another dtype."""
    return tirx.Cast(f"{dtype}x{lanes}" if lanes > 1 else dtype, value)


def reinterpret(value: Any, dtype: str, lanes: int) -> Any:
    """Read the bits of every lane of a vector as another dtype of the same size."""
    return tirx.reinterpret(f"{dtype}x{lanes}" if lanes > 1 else dtype, value)


class Registers:
    """An array of vectors that are accumulated; indices are Python numbers, so that each stays in a register."""

    def __init__(self, count: int, lanes: int, dtype: str = "float32") -> None:
        self.count, self.lanes, self.dtype = count, lanes, dtype
        self.buffer = local(count * lanes, dtype)

    def __getitem__(self, number: int) -> Any:
        return load(self.buffer, [number * self.lanes], self.lanes)

    def __setitem__(self, number: int, value: Any) -> None:
        store(self.buffer, value, [number * self.lanes], self.lanes)

    def fill(self, number: float) -> None:
        """Set every lane of every vector."""
        for index in range(self.count):
            self[index] = constant(number, self.lanes, self.dtype)

    def total(self) -> Any:
        """Return the sum of the vectors, added pairwise."""
        values = [self[index] for index in range(self.count)]
        while len(values) > 1:
            values = [sum(values[index + 1 : index + 2], values[index]) for index in range(0, len(values), 2)]
        return values[0]


def steps(extent: int, step: int, emit: Callable[[Any, int], None]) -> None:
    """Call `emit(start, size)` in a loop for the full steps of a static extent, then once for the rest."""
    full = extent // step
    if full == 1:
        emit(0, step)
    elif full:
        with script.serial(0, full) as index:
            emit(index * step, step)
    if extent % step:
        emit(full * step, extent % step)


def conditional(condition: Any, then: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
    """Emit `if condition`."""
    with script.If(condition):
        with script.Then():
            then()
        if otherwise is not None:
            with script.Else():
                otherwise()


def reduce_lanes(value: Any, lanes: int) -> Any:
    """Return the sum of all lanes in every lane: log2(lanes) exchanges of halves."""
    distance = lanes // 2
    while distance:
        value = script.bind(value)
        value = value + tirx.Shuffle([value], [tirx.const(lane ^ distance, "int32") for lane in range(lanes)])
        distance //= 2
    return value
