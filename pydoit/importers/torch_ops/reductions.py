"""amax, amin, max, min, any, all, prod: reductions over chosen axes."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, axes_of


@converter("amax.default")
def amax(graph: Graph, data: Any, axes: Any, keep: bool) -> Any:
    """The largest element along the axes."""
    return _extreme(graph, "max", data, axes, keep)


@converter("amin.default")
def amin(graph: Graph, data: Any, axes: Any, keep: bool) -> Any:
    """The smallest element along the axes."""
    return _extreme(graph, "min", data, axes, keep)


@converter("max.dim")
def max_dim(graph: Graph, data: Any, axis: int, keep: bool) -> Any:
    """The largest element along an axis, and where it stands."""
    return _extreme_and_index(graph, "max", data, axis, keep)


@converter("min.dim")
def min_dim(graph: Graph, data: Any, axis: int, keep: bool) -> Any:
    """The smallest element along an axis, and where it stands."""
    return _extreme_and_index(graph, "min", data, axis, keep)


@converter("any.default", "any.dim", "any.dims")
def any_of(graph: Graph, data: Any, axes: Any = None, keep: bool = False) -> Any:
    """Whether one element is not zero."""
    return _truth(graph, "max", data, axes, keep)


@converter("all.default", "all.dim", "all.dims")
def all_of(graph: Graph, data: Any, axes: Any = None, keep: bool = False) -> Any:
    """Whether no element is zero."""
    return _truth(graph, "min", data, axes, keep)


@converter("prod.dim_int")
def prod(graph: Graph, data: Any, axis: int, keep: bool, dtype: Any) -> Any:
    """The product along an axis."""
    from tvm import relax

    return graph.emit(relax.op.prod(graph.cast(data, graph.dtype()), axis=[axis], keepdims=keep))


def _extreme(graph: Graph, kind: str, data: Any, axes: Any, keep: bool) -> Any:
    from tvm import relax

    number = _as_number(graph, data)
    reduced = graph.emit(getattr(relax.op, kind)(number, axis=axes_of(axes, data.ty.ndim), keepdims=keep))
    return graph.cast(reduced, str(data.ty.dtype))


def _extreme_and_index(graph: Graph, kind: str, data: Any, axis: int, keep: bool) -> Any:
    from tvm import relax

    if data.ty.ndim == 0:
        return relax.Tuple([data, relax.const(0, "int64")])
    number = _as_number(graph, data)
    index = graph.emit(getattr(relax.op, f"arg{kind}")(number, axis=axis, keepdims=keep))
    return relax.Tuple([_extreme(graph, kind, data, axis, keep), graph.cast(index, "int64")])


def _truth(graph: Graph, kind: str, data: Any, axes: Any, keep: bool) -> Any:
    from tvm import relax

    if str(data.ty.dtype) != "bool":
        data = graph.emit(relax.op.not_equal(data, relax.const(0, str(data.ty.dtype))))
    if data.ty.ndim == 0:
        return data
    return _extreme(graph, kind, data, axes, keep)


def _as_number(graph: Graph, data: Any) -> Any:
    return graph.cast(data, "int8") if str(data.ty.dtype) == "bool" else data
