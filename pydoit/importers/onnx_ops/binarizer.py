"""ai.onnx.ml's Binarizer."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of


def binarizer(node: Node) -> Expr:
    """X of any shape -> 1 where it exceeds `threshold`, else 0."""
    from tvm import relax

    dtype = dtype_of(node[0])
    above = node.emit(relax.op.greater(node[0], const(node.get("threshold", 0.0), dtype)))
    return node.emit(relax.op.astype(above, dtype))


CONVERTERS = {"Binarizer": binarizer}
