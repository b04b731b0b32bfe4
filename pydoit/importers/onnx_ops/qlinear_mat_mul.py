"""QLinearMatMul: an exact integer product, rescaled."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, shape_of
from pydoit.importers.onnx_ops.quantization import centered, to_integer


def qlinear_mat_mul(node: Node) -> Expr:
    """a [.., M, K] and b [.., K, N] with scales and zero points () | [rows of a] | [columns of b]."""
    from tvm import relax

    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = node.inputs
    left = centered(node, a, _rows(node, a_zero))
    right = centered(node, b, b_zero)
    product = node.emit(relax.op.astype(node.emit(relax.op.matmul(left, right)), "float32"))
    scale = node.emit(relax.op.multiply(_wide(node, _rows(node, a_scale)), _wide(node, b_scale)))
    scaled = node.emit(relax.op.multiply(product, scale))
    scaled = node.emit(relax.op.divide(scaled, _wide(node, _rows(node, y_scale))))
    return to_integer(node, scaled, _rows(node, y_zero), dtype_of(y_zero))


def _rows(node: Node, values: Expr) -> Expr:
    """A value for each row as a column; scalars as they are."""
    from tvm import relax

    shape = shape_of(values)
    return values if len(shape) != 1 or shape[0] == 1 else node.emit(relax.op.expand_dims(values, [1]))


def _wide(node: Node, values: Expr) -> Expr:
    from tvm import relax

    return node.emit(relax.op.astype(values, "float32")) if dtype_of(values) != "float32" else values


CONVERTERS = {"QLinearMatMul": qlinear_mat_mul}
