"""topk and sort: what torch leaves unsorted is sorted too, and stable order is TVM's own."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph


@converter("topk.default")
def topk(graph: Graph, data: Any, count: int, axis: int, largest: bool, in_order: bool) -> Any:
    """The first elements in order and their places; `in_order=False` leaves any order to us."""
    from tvm import relax

    if data.ty.ndim == 0:
        return relax.Tuple([data, relax.const(0, "int64")])
    found = relax.op.topk(data, k=count, axis=axis, ret_type="both", largest=largest, dtype="int64")
    return graph.emit(found)


@converter("sort.default")
def sort(graph: Graph, data: Any, axis: int, descending: bool) -> Any:
    """All elements in order and their places."""
    from tvm import relax

    if data.ty.ndim == 0:
        return relax.Tuple([data, relax.const(0, "int64")])
    places = graph.emit(relax.op.argsort(data, axis, descending, dtype="int64"))
    return relax.Tuple([graph.emit(relax.op.gather_elements(data, places, axis=axis)), places])


@converter("sort.stable")
def sort_stable(graph: Graph, data: Any, stable: bool, axis: int, descending: bool) -> Any:
    """As sort; equal elements keep their order."""
    return sort(graph, data, axis, descending)
