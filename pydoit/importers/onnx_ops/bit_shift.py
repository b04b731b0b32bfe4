"""BitShift: shifts by the width or more give 0."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, elementwise


def bit_shift(node: Node) -> Expr:
    """X shifted by Y bits to the left or right, broadcast; integers."""
    from pydoit.tvm_compat import tirx
    from tvm import DataType

    left = node.get("direction") == "LEFT"

    def shifted(x: Expr, y: Expr) -> Expr:
        width = DataType(x.dtype).bits
        zero = tirx.const(0, x.dtype)
        valid = tirx.all(y >= zero, y < tirx.const(width, x.dtype))
        amount = tirx.Select(valid, y, zero)
        moved = tirx.shift_left(x, amount) if left else tirx.shift_right(x, amount)
        beyond = zero if left or str(x.dtype).startswith("uint") else tirx.Select(x < zero, tirx.const(-1, x.dtype), zero)
        return tirx.Select(valid, moved, beyond)

    return elementwise(node, shifted, node[0], node[1], name="bit_shift")


CONVERTERS = {"BitShift": bit_shift}
