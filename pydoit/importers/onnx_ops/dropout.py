"""Dropout as inference has it: the identity, and a mask that keeps all."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, shape_of


def dropout(node: Node) -> Expr | list[Expr]:
    """X of any shape -> X and, if asked for, a mask of the same shape. Raises UserError in training mode."""
    from tvm import relax

    training = node.constant(2, "training_mode")
    ratio = node.constant(1, "ratio")
    drops = ratio is None or float(ratio.reshape(-1)[0]) != 0.0
    if training is not None and bool(training.reshape(-1)[0]) and drops:
        raise node.refuse("training mode (random)", "export the model for inference")
    if node.outputs == 1:
        return node[0]
    dtype = "bool" if node.opset >= 10 else dtype_of(node[0])
    return [node[0], node.emit(relax.op.full(relax.ShapeExpr(shape_of(node[0])), const(1, dtype), dtype))]


CONVERTERS = {"Dropout": dropout}
