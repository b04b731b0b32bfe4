"""ReduceMax and ReduceMin, of bool too."""

from __future__ import annotations

from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of


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
    if not axes:
        if node.get("noop_with_empty_axes", 0):
            return node[0]
        axes = None
    dtype = dtype_of(node[0])
    x = node.emit(relax.op.astype(node[0], "uint8")) if dtype == "bool" else node[0]
    result = node.emit(reduce(x, axis=axes, keepdims=bool(node.get("keepdims", 1))))
    return node.emit(relax.op.astype(result, dtype)) if dtype == "bool" else result


CONVERTERS = {"ReduceMax": reduce_max, "ReduceMin": reduce_min}
