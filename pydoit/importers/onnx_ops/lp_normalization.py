"""LpNormalization along one axis."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of


def lp_normalization(node: Node) -> Expr:
    """X of any shape, divided by its 1- or 2-norm along `axis`; where that is 0 the result is 0."""
    from tvm import relax

    x, axis = node[0], node.get("axis", -1)
    dtype = dtype_of(x)
    powers = relax.op.abs(x) if node.get("p", 2) == 1 else relax.op.multiply(x, x)
    norm = node.emit(relax.op.sum(node.emit(powers), axis=[axis], keepdims=True))
    norm = norm if node.get("p", 2) == 1 else node.emit(relax.op.sqrt(norm))
    empty = node.emit(relax.op.equal(norm, const(0, dtype)))
    safe = node.emit(relax.op.where(empty, const(1, dtype), norm))
    return node.emit(relax.op.divide(x, safe))


CONVERTERS = {"LpNormalization": lp_normalization}
