"""Root-mean-square normalization of rows, with the residual added before where asked for."""

from __future__ import annotations

from typing import Any

from pydoit.kernels.cpu.emit import Registers, argument, load, primitive, reduce_lanes, splat, steps, store
from pydoit.target import CPU_LANES, ResolvedTarget
from pydoit.tvm_compat import script, tirx

UNROLL = 4


def rms_norm(rows: Any, width: int, epsilon: float, target: ResolvedTarget, *, residual: bool = False) -> Any:
    """Return the TIR function of out = x / sqrt(mean(x * x) + epsilon) * weight over the last axis.

    Arguments of the function, all float32: x [rows, width], weight [width], out [rows, width]. With `residual`: x,
    residual [rows, width], weight, total [rows, width], out, where total = x + residual is what is normalized.
    `rows` is a number or a tirx.Var. Source: Zhang and Sennrich, Root Mean Square Layer Normalization (2019).
    """
    lanes = CPU_LANES[target.arch]

    def emit() -> None:
        x = argument("x", (rows, width))
        added = argument("residual", (rows, width)) if residual else None
        weight = argument("weight", (width,))
        total = argument("total", (rows, width)) if residual else None
        out = argument("out", (rows, width))
        loop = script.serial(0, 1) if isinstance(rows, int) and rows == 1 else script.parallel(0, rows)
        with loop as row:
            if added is not None:
                _add(x, added, total, row, lanes)
            _normalize(x if total is None else total, weight, out, row, epsilon, lanes)

    return primitive("rms_norm", emit)


def _add(x: Any, residual: Any, total: Any, row: Any, lanes: int) -> None:
    def add(start: Any, size: int) -> None:
        count = lanes if size == lanes else 1
        for offset in range(0, size, count):
            index = [row, start + offset]
            store(total, load(x, index, count) + load(residual, index, count), index, count)

    steps(int(x.shape[1]), lanes, add)


def _normalize(x: Any, weight: Any, out: Any, row: Any, epsilon: float, lanes: int) -> None:
    width = int(x.shape[1])
    sums, rest = Registers(UNROLL, lanes), Registers(1, 1)
    sums.fill(0.0)
    rest.fill(0.0)

    def square(start: Any, size: int) -> None:
        for number, offset in enumerate(range(0, size - lanes + 1, lanes)):
            value = script.bind(load(x, [row, start + offset], lanes))
            sums[number] = sums[number] + value * value
        for offset in range(size - size % lanes, size):
            rest[0] = rest[0] + x[row, start + offset] * x[row, start + offset]

    steps(width, UNROLL * lanes, square)
    total = tirx.Shuffle([reduce_lanes(sums.total(), lanes)], [tirx.const(0, "int32")]) + rest[0]
    mean = total * tirx.const(1.0 / width, "float32") + tirx.const(epsilon, "float32")
    factor = script.bind(tirx.const(1.0, "float32") / tirx.sqrt(mean))

    def scale(start: Any, size: int) -> None:
        count = lanes if size == lanes else 1
        for offset in range(0, size, count):
            value = load(x, [row, start + offset], count) * splat(factor, count)
            store(out, value * load(weight, [start + offset], count), [row, start + offset], count)

    steps(width, lanes, scale)
