"""Pow with base and exponent of different types; integer powers are exact."""

from __future__ import annotations

from pydoit.importers.onnx_ops.cast import cast
from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, is_float

_BITS = 6
"""A 64-bit integer overflows above exponent 63, but for the bases 0, 1 and -1, where the last bit decides."""


def power(node: Node) -> Expr:
    """X ** Y, broadcast, in X's type."""
    from tvm import relax

    base, exponent = node[0], node[1]
    dtype = dtype_of(base)
    if is_float(dtype):
        return _of_floats(node, base, cast(node, exponent, dtype))
    if is_float(dtype_of(exponent)):
        result = node.emit(relax.op.power(cast(node, base, "float64"), cast(node, exponent, "float64")))
        return cast(node, result, dtype)
    return _of_integers(node, base, cast(node, exponent, dtype))


def _of_floats(node: Node, base: Expr, exponent: Expr) -> Expr:
    """Small whole exponents that are known become products."""
    from tvm import relax

    value = node.known(1)
    if value is not None and value.size == 1 and float(value.reshape(-1)[0]) == 2.0 and value.ndim == 0:
        return node.emit(relax.op.multiply(base, base))
    return node.emit(relax.op.power(base, exponent))


def _of_integers(node: Node, base: Expr, exponent: Expr) -> Expr:
    from tvm import relax

    dtype = dtype_of(base)
    result = const(1, dtype)
    for bit in range(_BITS):
        chosen = relax.op.bitwise_and(exponent, const(1 << bit, dtype))
        factor = relax.op.where(relax.op.not_equal(chosen, const(0, dtype)), base, const(1, dtype))
        result = node.emit(relax.op.multiply(result, node.emit(factor)))
        base = node.emit(relax.op.multiply(base, base))
    return result


CONVERTERS = {"Pow": power}
