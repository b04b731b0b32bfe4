"""ReduceMax and ReduceMin, of bool too."""

from __future__ import annotations

from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, shape_of


def reduce_max(node: Node) -> Expr:
    """X of any shape, reduced along constant axes (default: all, or with noop_with_empty_axes none)."""
    from tvm import relax

    return _reduce(node, relax.op.max)


def reduce_min(node: Node) -> Expr:
    """X of any shape, reduced along constant axes (default: all, or with noop_with_empty_axes none)."""
    from tvm import relax

    return _reduce(node, relax.op.min)


def _reduce(node: Node, reduce: Any) -> Expr:
    from tvm import relax

    axes = node.integers(1, "axes")
    keeps = bool(node.get("keepdims", 1))
    if not axes:
        if node.get("noop_with_empty_axes", 0):
            return node[0]
        axes = None
    dtype = dtype_of(node[0])
    if dtype == "bool" and 0 in shape_of(node[0]):  # of no elements: false is the largest, true the smallest
        empty = node.builder.normalize(reduce(node.emit(relax.op.zeros(node[0].ty.shape, "uint8")), axis=axes, keepdims=keeps))
        return node.emit(relax.op.full(empty.ty.shape, const(node.operator == "ReduceMin", "bool"), "bool"))
    x = node.emit(relax.op.astype(node[0], "uint8")) if dtype == "bool" else node[0]
    result = node.emit(reduce(x, axis=axes, keepdims=keeps))
    return node.emit(relax.op.astype(result, dtype)) if dtype == "bool" else result


CONVERTERS = {"ReduceMax": reduce_max, "ReduceMin": reduce_min}
