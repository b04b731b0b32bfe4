"""BitShift: shifts by the width or more give 0."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, elementwise


def bit_shift(node: Node) -> Expr:
    """X shifted by Y bits to the left or right, broadcast; integers."""
    from tvm import DataType

    from pydoit.tvm_compat import tirx

    dtype = dtype_of(node[0])
    width = DataType(dtype).bits
    left = node.get("direction") == "LEFT"

    def shifted(x: Expr, y: Expr) -> Expr:
        zero = tirx.const(0, dtype)
        wide = tirx.Cast("int64", y)  # TVM cannot simplify comparisons of unsigned integers
        valid = tirx.And(wide >= 0, wide < width)
        amount = tirx.Select(valid, y, zero)
        moved = tirx.shift_left(x, amount) if left else tirx.shift_right(x, amount)
        beyond = zero if left or dtype.startswith("uint") else tirx.Select(x < zero, tirx.const(-1, dtype), zero)
        return tirx.Select(valid, moved, beyond)

    return elementwise(node, shifted, node[0], node[1], name="bit_shift")


CONVERTERS = {"BitShift": bit_shift}
