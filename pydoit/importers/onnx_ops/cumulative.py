"""CumSum and CumProd, exclusive and reversed."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydoit.importers.onnx_ops.node import Expr, Node, shape_of


def cum_sum(node: Node) -> Expr:
    """X of any shape, axis (a constant scalar) -> the same shape."""
    from tvm import relax

    return _scan(node, relax.op.cumsum)


def cum_prod(node: Node) -> Expr:
    """X of any shape, axis (a constant scalar) -> the same shape."""
    from tvm import relax

    return _scan(node, relax.op.cumprod)


def _scan(node: Node, scan: Any) -> Expr:
    from tvm import relax

    x = node[0]
    axis = int(np.asarray(node.constant(1, "the axis")).reshape(-1)[0]) % len(shape_of(x))
    backwards = node.get("reverse", 0)
    x = node.emit(relax.op.flip(x, axis=axis)) if backwards else x
    x = node.emit(scan(x, axis=axis, exclusive=bool(node.get("exclusive", 0))))
    return node.emit(relax.op.flip(x, axis=axis)) if backwards else x


CONVERTERS = {"CumSum": cum_sum, "CumProd": cum_prod}
