"""TensorScatter: new rows of a key-value cache go to a position of their own for each sequence."""

from __future__ import annotations

from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, const, shape_of


def tensor_scatter(node: Node) -> Expr:
    """past_cache [B, ..., S, ...], update [B, ..., n, ...], write_indices [B] (default 0) -> the cache with the update."""
    from pydoit.tvm_compat import te, tirx

    cache, update = node[0], node[1]
    axis = node.get("axis", -2) % len(shape_of(cache))
    circular = node.get("mode", "linear") == "circular"
    starts = node[2] if node.has(2) else const([0] * int(shape_of(cache)[0]), "int64")

    def compute(old: Any, new: Any, first: Any) -> Any:
        size, count = old.shape[axis], new.shape[axis]

        def at(*index: Any) -> Any:
            offset = tirx.Cast("int64", index[axis]) - first(index[0])
            if circular:
                offset = tirx.floormod(offset, tirx.Cast("int64", size))
            place = [offset if k == axis else i for k, i in enumerate(index)]
            return tirx.if_then_else(tirx.all(offset >= 0, offset < count), new(*place), old(*index))

        return te.compute(old.shape, at, name="tensor_scatter")

    return node.emit_te(compute, cache, update, starts, name="tensor_scatter")


CONVERTERS = {"TensorScatter": tensor_scatter}
