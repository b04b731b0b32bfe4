"""Compress by a constant condition."""

from __future__ import annotations

import numpy as np

from pydoit.importers.onnx_ops.node import Expr, Node, const


def compress(node: Node) -> Expr:
    """X of any shape, condition [n] (a constant) -> the chosen slices along `axis`, or of the flat input."""
    from tvm import relax

    chosen = np.flatnonzero(np.asarray(node.constant(1, "the condition")))
    axis = node.get("axis")
    x = node[0] if axis is not None else node.emit(relax.op.reshape(node[0], [-1]))
    return node.emit(relax.op.take(x, const(chosen, "int64"), axis=axis if axis is not None else 0))


CONVERTERS = {"Compress": compress}
