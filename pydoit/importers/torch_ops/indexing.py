"""index, index_put, index_select, select: several index tensors become one, negative indices count from the end."""

from __future__ import annotations

from functools import reduce
from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, extents


@converter("index.Tensor")
def index(graph: Graph, data: Any, indices: list[Any]) -> Any:
    """Advanced indexing: one `take` along the indexed axes, which are merged into one."""
    from tvm import relax

    merged = _Merged(graph, data, indices)
    return graph.emit(relax.op.take(merged.data, merged.index, axis=merged.axis))


@converter("index_put.default", "_unsafe_index_put.default")
def index_put(graph: Graph, data: Any, indices: list[Any], values: Any, accumulate: bool) -> Any:
    """Replace, or add to, the elements that `index` would read."""
    from tvm import relax

    mask = next((item for item in indices if item is not None and str(item.ty.dtype) == "bool"), None)
    if mask is not None:
        return _put_masked(graph, data, indices, values, accumulate)
    merged = _Merged(graph, data, indices)
    rank, width = merged.data.ty.ndim, merged.index.ty.ndim
    chosen = [*extents(merged.data)[: merged.axis], *extents(merged.index), *extents(merged.data)[merged.axis + 1 :]]
    values = graph.emit(relax.op.broadcast_to(graph.cast(values, str(data.ty.dtype)), chosen))
    front = [merged.axis, *(axis for axis in range(rank) if axis != merged.axis)]
    spread = [*range(merged.axis, merged.axis + width), *range(merged.axis), *range(merged.axis + width, len(chosen))]
    moved = graph.emit(relax.op.permute_dims(merged.data, front))
    values = graph.emit(relax.op.permute_dims(values, spread)) if values.ty.ndim else values
    where = graph.emit(relax.op.expand_dims(merged.index, -1))
    changed = graph.emit(relax.op.scatter_nd(moved, where, values, "add" if accumulate else "update"))
    back = [front.index(axis) for axis in range(rank)]
    return merged.restore(graph.emit(relax.op.permute_dims(changed, back)))


@converter("index_select.default")
def index_select(graph: Graph, data: Any, axis: int, where: Any) -> Any:
    """Chosen slices along an axis."""
    from tvm import relax

    if data.ty.ndim == 0:
        return data
    return graph.emit(relax.op.take(data, where, axis=axis))


@converter("select.int")
def select(graph: Graph, data: Any, axis: int, where: Any) -> Any:
    """One slice along an axis."""
    from tvm import relax

    if isinstance(where, int):
        if where < 0:
            where = extents(data)[axis] + where
        where = relax.const(where, "int64") if isinstance(where, int) else relax.prim_value(where)
    return graph.emit(relax.op.take(data, where, axis))


@converter("masked_scatter.default")
def masked_scatter(graph: Graph, data: Any, mask: Any, source: Any) -> Any:
    """Where the mask holds, the elements of source one after another."""
    from tvm import relax

    shape = extents(data)
    mask = graph.emit(relax.op.broadcast_to(mask, shape))
    flat = graph.emit(relax.op.astype(graph.emit(relax.op.reshape(mask, [-1])), "int64"))
    position = graph.emit(relax.op.subtract(graph.emit(relax.op.cumsum(flat, axis=0)), relax.const(1, "int64")))
    position = graph.emit(relax.op.maximum(position, relax.const(0, "int64")))
    flat_source = graph.emit(relax.op.reshape(source, [-1]))
    last = relax.const(extents(flat_source)[0] - 1, "int64")
    taken = graph.emit(relax.op.take(flat_source, graph.emit(relax.op.minimum(position, last)), axis=0))
    return graph.emit(relax.op.where(mask, graph.emit(relax.op.reshape(taken, shape)), data))


def _put_masked(graph: Graph, data: Any, indices: list[Any], values: Any, accumulate: bool) -> Any:
    from tvm import relax

    masked = sum(item is not None for item in indices)
    single = all(extent == 1 for extent in extents(values))
    if masked != 1 or not single:
        raise graph.refuse("a mask and several values")
    before = next(axis for axis, item in enumerate(indices) if item is not None)
    mask = indices[before]
    shape = [1] * before + extents(mask) + [1] * (data.ty.ndim - before - mask.ty.ndim)
    mask = graph.emit(relax.op.reshape(mask, shape))
    value = graph.emit(relax.op.reshape(graph.cast(values, str(data.ty.dtype)), []))
    put = graph.emit(relax.op.add(data, value)) if accumulate else value
    return graph.emit(relax.op.where(mask, put, data))


class _Merged:
    """The data with its indexed axes merged into `axis`, and the one index into it."""

    def __init__(self, graph: Graph, data: Any, indices: list[Any]) -> None:
        from tvm import relax

        self.graph = graph
        axes = [axis for axis, item in enumerate(indices) if item is not None]
        if any(str(indices[axis].ty.dtype) in ("bool", "uint8") for axis in axes):
            raise graph.refuse("a mask, whose result has as many elements as the values say")
        rank = data.ty.ndim
        self.order: list[int] | None = None
        if axes != list(range(axes[0], axes[-1] + 1)):
            self.order = [*axes, *(axis for axis in range(rank) if axis not in axes)]
            data = graph.emit(relax.op.permute_dims(data, self.order))
        self.axis = 0 if self.order is not None else axes[0]
        self.shape = extents(data)
        sizes = self.shape[self.axis : self.axis + len(axes)]
        parts = [_counted_from_front(graph, indices[axis], size) for axis, size in zip(axes, sizes, strict=True)]
        self.index = parts[0]
        for part, size in zip(parts[1:], sizes[1:], strict=True):
            scaled = graph.emit(relax.op.multiply(self.index, _extent(graph, size)))
            self.index = graph.emit(relax.op.add(scaled, part))
        merged = [*self.shape[: self.axis], reduce(lambda a, b: a * b, sizes), *self.shape[self.axis + len(axes) :]]
        self.data = data if len(axes) == 1 else graph.emit(relax.op.reshape(data, merged))

    def restore(self, changed: Any) -> Any:
        """A changed `data` in the shape of the original."""
        from tvm import relax

        changed = self.graph.emit(relax.op.reshape(changed, self.shape))
        if self.order is None:
            return changed
        return self.graph.emit(relax.op.permute_dims(changed, [self.order.index(a) for a in range(len(self.order))]))


def _counted_from_front(graph: Graph, where: Any, size: Any) -> Any:
    from tvm import relax

    where = graph.cast(where, "int64")
    negative = graph.emit(relax.op.less(where, relax.const(0, "int64")))
    return graph.emit(relax.op.where(negative, graph.emit(relax.op.add(where, _extent(graph, size))), where))


def _extent(graph: Graph, size: Any) -> Any:
    """An extent as an int64 scalar tensor."""
    from tvm import relax

    if isinstance(size, int):
        return relax.const(size, "int64")
    shape = graph.emit(relax.op.shape_to_tensor(graph.emit(relax.ShapeExpr([size]))))
    return graph.emit(relax.op.reshape(shape, []))
