"""EyeLike of a matrix of known shape."""

from __future__ import annotations

import numpy as np

from pydoit.importers.onnx_ops.cast import onnx_dtype
from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, static_shape


def eye_like(node: Node) -> Expr:
    """X [rows, columns] -> ones on the k-th diagonal."""
    rows, columns = static_shape(node, node[0])
    code = node.get("dtype")
    return const(np.eye(rows, columns, node.get("k", 0)), dtype_of(node[0]) if code is None else onnx_dtype(node, code))


CONVERTERS = {"EyeLike": eye_like}
