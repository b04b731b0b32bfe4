"""OneHot with negative and out-of-range indices, and values that are computed."""

from __future__ import annotations

import numpy as np

from pydoit.importers.onnx_ops.cast import cast
from pydoit.importers.onnx_ops.node import Expr, Node, along, const, dtype_of, shape_of


def one_hot(node: Node) -> Expr:
    """Indices of any shape, depth (a constant), values [off, on] -> one more axis of extent depth."""
    from tvm import relax

    depth = int(np.asarray(node.constant(1, "the depth")).reshape(-1)[0])
    rank = len(shape_of(node[0])) + 1
    axis = node.get("axis", -1) % rank
    indices = cast(node, node[0], "int64")
    wrapped = relax.op.add(indices, const(depth, "int64"))
    indices = node.emit(relax.op.where(relax.op.less(indices, const(0, "int64")), wrapped, indices))
    places = const(along(np.arange(depth), axis, rank), "int64")
    hit = node.emit(relax.op.equal(node.emit(relax.op.expand_dims(indices, [axis])), places))
    off, on = (_element(node, node[2], index) for index in (0, 1))
    if dtype_of(node[2]) == "bool":
        same = node.emit(relax.op.logical_and(hit, on))
        return node.emit(relax.op.logical_or(same, node.emit(relax.op.logical_and(relax.op.logical_not(hit), off))))
    return node.emit(relax.op.where(hit, on, off))


def _element(node: Node, x: Expr, index: int) -> Expr:
    from tvm import relax

    return node.emit(relax.op.strided_slice(x, axes=[0], begin=[index], end=[index + 1]))


CONVERTERS = {"OneHot": one_hot}
