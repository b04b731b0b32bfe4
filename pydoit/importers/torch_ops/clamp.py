"""clamp, clamp_min, clamp_max: bounds that are numbers or tensors, of any element type; the upper bound wins."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph


@converter("clamp.default", "clamp.Tensor")
def clamp(graph: Graph, data: Any, low: Any, high: Any) -> Any:
    """min(max(data, low), high).

    TVM 0.27's own clip gives `low` where low > high, and for integers an infinite bound that FoldConstant cannot hold.
    """
    from tvm import relax

    dtype = graph.dtype()
    data = graph.cast(data, dtype)
    numbers = isinstance(low, (int, float)) and isinstance(high, (int, float))
    if numbers and dtype == "float32" and low <= high:
        return graph.emit(relax.op.clip(data, float(low), float(high)))
    if low is not None:
        data = graph.emit(relax.op.maximum(data, graph.tensor(low, dtype)))
    if high is not None:
        data = graph.emit(relax.op.minimum(data, graph.tensor(high, dtype)))
    return data


@converter("clamp_min.default", "clamp_min.Tensor")
def clamp_min(graph: Graph, data: Any, low: Any) -> Any:
    """The larger of data and bound."""
    return clamp(graph, data, low, None)


@converter("clamp_max.default", "clamp_max.Tensor")
def clamp_max(graph: Graph, data: Any, high: Any) -> Any:
    """The smaller of data and bound."""
    return clamp(graph, data, None, high)
