"""Div: integers divide towards zero."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, elementwise, is_float


def div(node: Node) -> Expr:
    """A / B, broadcast; an integer divided by zero is 0."""
    from tvm import relax

    from pydoit.tvm_compat import tirx

    a, b = node[0], node[1]
    dtype = dtype_of(a)
    if is_float(dtype):
        return node.emit(relax.op.divide(a, b))

    def truncated(x: Expr, y: Expr) -> Expr:
        zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
        return tirx.Select(y == zero, zero, tirx.truncdiv(x, tirx.Select(y == zero, one, y)))

    return elementwise(node, truncated, a, b, name="truncated_divide")


CONVERTERS = {"Div": div}
