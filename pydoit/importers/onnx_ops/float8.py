"""Conversions to and from float8, by tables: TVM 0.27 lowers these types without subnormals, saturation and NaN."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of
from pydoit.runtime.exchange import numpy_dtype

_MAGNITUDES = 128
"""Codes without the sign bit."""


def is_float8(dtype: str) -> bool:
    """Whether the element type is one of the 8-bit floating-point types."""
    return dtype.startswith("float8_")


def reinterpret(node: Node, x: Expr, dtype: str) -> Expr:
    """The same bits as elements of another type of the same width."""
    from pydoit.tvm_compat import te, tirx

    if dtype_of(x) == dtype:
        return x
    return node.emit_te(
        lambda a: te.compute(a.shape, lambda *i: tirx.reinterpret(dtype, a(*i)), name="reinterpret"), x, name="reinterpret"
    )


def decode(node: Node, x: Expr, dtype: str) -> Expr:
    """float8 -> a wider type: a table of 256 values."""
    from tvm import relax

    codes = node.emit(relax.op.astype(reinterpret(node, x, "uint8"), "int32"))
    table = np.arange(256, dtype=np.uint8).view(numpy_dtype(dtype_of(x))).astype(np.float32)
    values = node.emit(relax.op.take(const(table, "float32"), codes, axis=0))
    return node.emit(relax.op.astype(values, dtype))


def encode(node: Node, x: Expr, dtype: str, saturate: bool = True, round_mode: str = "up") -> Expr:
    """A wider float -> float8, to nearest and ties to even (float8_e8m0fnu: by `round_mode`).

    Beyond the largest value: that value if `saturate`, else infinity or NaN, as ONNX's Cast says.
    """
    from tvm import relax

    x = node.emit(relax.op.astype(x, "float32"))
    magnitude = node.emit(relax.op.abs(x))
    bounds, largest, overflow, nan = _table(dtype, saturate, round_mode)
    code = node.emit(relax.op.bucketize(magnitude, const(bounds, "float32"), out_int32=True, right=True))
    exceeds = relax.op.greater(code, const(largest, "int32"))
    code = node.emit(relax.op.where(exceeds, const(overflow, "int32"), code))
    if not saturate or dtype == "float8_e5m2":  # infinity stays infinity only without saturation
        infinite = relax.op.equal(magnitude, const(np.inf, "float32"))
        code = node.emit(relax.op.where(infinite, const(largest if saturate else overflow, "int32"), code))
    if dtype != "float8_e8m0fnu":
        bits = reinterpret(node, x, "int32")
        negative = relax.op.less(bits, const(0, "int32"))
        signed = relax.op.add(code, const(_MAGNITUDES, "int32"))
        if dtype.endswith("fnuz"):  # these have no negative zero, and their NaN is its code
            numbers = relax.op.logical_and(
                relax.op.greater(code, const(0, "int32")), relax.op.less(code, const(_MAGNITUDES, "int32"))
            )
            negative = relax.op.logical_and(negative, numbers)
        code = node.emit(relax.op.where(negative, signed, code))
    code = node.emit(relax.op.where(relax.op.isnan(x), const(nan, "int32"), code))
    return reinterpret(node, node.emit(relax.op.astype(code, "uint8")), dtype)


def _table(dtype: str, saturate: bool, round_mode: str) -> tuple[NDArray[Any], int, int, int]:
    """Bounds b with `code = how many b <= |x|`, the largest finite code, the code of overflow, the code of NaN."""
    count = 256 if dtype == "float8_e8m0fnu" else _MAGNITUDES
    values = np.arange(count, dtype=np.uint8).view(numpy_dtype(dtype)).astype(np.float64)
    finite = values[np.isfinite(values)]
    largest = finite.size - 1
    if dtype == "float8_e8m0fnu":
        bounds = _power_bounds(finite, round_mode)
        return bounds, largest, largest if saturate else 255, 255
    # one more step as if the next exponent existed: where it would be rounded to, a value is too large
    step = finite[-1] - finite[-2]
    middle = np.append((finite[1:] + finite[:-1]) / 2, finite[-1] + step / 2)
    bounds = middle.astype(np.float32)
    even = np.arange(middle.size) % 2 == 0
    bounds = np.where(even, np.nextafter(bounds, np.float32(np.inf)), bounds)
    nan = 128 if dtype.endswith("fnuz") else 127
    infinity = 124 if dtype == "float8_e5m2" else nan
    return bounds.astype(np.float32), largest, largest if saturate else infinity, nan


def _power_bounds(finite: NDArray[Any], round_mode: str) -> NDArray[Any]:
    lower, upper = finite[:-1], finite[1:]
    if round_mode == "up":
        bounds = np.nextafter(lower.astype(np.float32), np.float32(np.inf))
    elif round_mode == "down":
        bounds = upper.astype(np.float32)
    else:  # nearest, ties away from zero
        bounds = ((lower + upper) / 2).astype(np.float32)
    return bounds.astype(np.float32)
