"""What quantized operators share: scales per tensor, axis or block, and rounding into an integer type."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, shape_of


def spread(node: Node, values: Expr, x: Expr) -> Expr:
    """Scales or zero points so that they broadcast against x: one for all, one along `axis`, or one for each block."""
    from tvm import relax

    extents, given = shape_of(x), shape_of(values)
    if not given:
        return values
    if len(given) == 1 and given[0] == 1 and len(extents) != 1:
        return node.emit(relax.op.reshape(values, []))
    axis = node.get("axis", 1)
    axis = 0 if len(extents) == 1 else axis % len(extents)
    block = node.get("block_size", 0)
    if not block:
        shape = [given[0] if i == axis else 1 for i in range(len(extents))] if len(given) == 1 else given
        return node.emit(relax.op.reshape(values, shape))
    repeated = node.emit(relax.op.repeat(values, block, axis))
    if shape_of(repeated)[axis] == extents[axis]:
        return repeated
    return node.emit(relax.op.strided_slice(repeated, axes=[axis], begin=[0], end=[extents[axis]]))


def to_integer(node: Node, x: Expr, zero_point: Expr | None, dtype: str) -> Expr:
    """Floating point -> integers of `dtype`: round to even, add the zero point, saturate."""
    from tvm import relax

    rounded = node.emit(relax.op.astype(node.emit(relax.op.round(x)), "float32"))
    if zero_point is not None:
        rounded = node.emit(relax.op.add(rounded, node.emit(relax.op.astype(zero_point, "float32"))))
    low, high = limits(dtype)
    bounded = node.emit(relax.op.minimum(node.emit(relax.op.maximum(rounded, const(low, "float32"))), const(high, "float32")))
    return node.emit(relax.op.astype(node.emit(relax.op.astype(bounded, "int32")), dtype))


def centered(node: Node, x: Expr, zero_point: Expr | None) -> Expr:
    """Integers minus their zero point, as int32."""
    from tvm import relax

    wide = node.emit(relax.op.astype(x, "int32"))
    if zero_point is None:
        return wide
    return node.emit(relax.op.subtract(wide, node.emit(relax.op.astype(zero_point, "int32"))))


def limits(dtype: str) -> tuple[Any, Any]:
    """The smallest and largest value of an integer type."""
    info = np.iinfo(dtype)
    return info.min, info.max


def is_integer(expr: Expr) -> bool:
    """Whether the elements are integers."""
    return dtype_of(expr).startswith(("int", "uint"))
