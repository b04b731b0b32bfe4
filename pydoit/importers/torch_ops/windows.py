"""unfold and as_strided: windows of a tensor as a lookup with constant places."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, positive, static


@converter("unfold.default")
def unfold(graph: Graph, data: Any, axis: int, size: int, step: int) -> Any:
    """Windows of `size` elements every `step` along an axis; the elements of a window become the last axis."""
    from tvm import relax

    rank = data.ty.ndim
    axis = positive(axis, rank)
    count = (static(data)[axis] - size) // step + 1
    places = np.arange(count)[:, None] * step + np.arange(size)[None, :]
    taken = graph.emit(relax.op.take(data, graph.constant(places.astype("int64")), axis=axis))
    order = [*range(axis + 1), *range(axis + 2, rank + 1), axis + 1]
    return graph.emit(relax.op.permute_dims(taken, order))


@converter("as_strided.default")
def as_strided(graph: Graph, data: Any, size: list[int], stride: list[int], offset: int | None) -> Any:
    """Elements of a contiguous tensor by their distance in memory."""
    from tvm import relax

    if not graph.node.args[0].meta["val"].is_contiguous():
        raise graph.refuse("a tensor that is not contiguous")
    places = np.full([], offset or 0, "int64")
    for extent, distance in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(extent) * distance
    flat = graph.emit(relax.op.reshape(data, [-1]))
    return graph.emit(relax.op.take(flat, graph.constant(places), axis=0))
