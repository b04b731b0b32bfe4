"""div in its rounding modes: integers divide to floats, as in Python; TVM's importer truncates them."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph


@converter("div.Tensor", "div.Scalar")
def divide(graph: Graph, left: Any, right: Any) -> Any:
    """The quotient in torch's result type."""
    from tvm import relax

    if not isinstance(left, relax.Expr) or "val" not in graph.node.meta:
        return left / right
    dtype = graph.dtype()
    return graph.emit(relax.op.divide(graph.tensor(left, dtype), graph.tensor(right, dtype)))


@converter("div.Tensor_mode", "div.Scalar_mode")
def divide_rounded(graph: Graph, left: Any, right: Any, mode: str | None) -> Any:
    """The quotient, rounded down ("floor"), towards zero ("trunc") or not at all."""
    from tvm import relax

    if mode is None:
        return divide(graph, left, right)
    dtype = graph.dtype()
    left, right = graph.tensor(left, dtype), graph.tensor(right, dtype)
    if dtype.startswith("float"):
        rounding = relax.op.floor if mode == "floor" else relax.op.trunc
        return graph.emit(rounding(graph.emit(relax.op.divide(left, right))))
    if mode == "floor":
        return graph.emit(relax.op.floor_divide(left, right))
    sign = graph.emit(relax.op.multiply(relax.op.sign(left), relax.op.sign(right)))
    magnitude = graph.emit(relax.op.floor_divide(relax.op.abs(left), relax.op.abs(right)))
    return graph.emit(relax.op.multiply(sign, magnitude))


@converter("floor_divide.default")
def floor_divide(graph: Graph, left: Any, right: Any) -> Any:
    """The quotient rounded down."""
    return divide_rounded(graph, left, right, "floor")
