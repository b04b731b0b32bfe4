"""scatter in all its forms: replace, add, multiply, smallest, largest and mean, with and without the old value."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, extents

_REDUCTIONS = {"sum": "add", "add": "add", "prod": "mul", "multiply": "mul", "amax": "max", "amin": "min", "mean": "add"}


@converter("scatter.src")
def scatter(graph: Graph, data: Any, axis: int, index: Any, source: Any) -> Any:
    """Elements of `source` written to the places that `index` names."""
    return _scatter(graph, data, axis, index, _fit(graph, source, index), "update")


@converter("scatter.value")
def scatter_value(graph: Graph, data: Any, axis: int, index: Any, value: float) -> Any:
    """One number written to the places that `index` names."""
    return _scatter(graph, data, axis, index, _spread(graph, value, index, str(data.ty.dtype)), "update")


@converter("scatter_add.default")
def scatter_add(graph: Graph, data: Any, axis: int, index: Any, source: Any) -> Any:
    """Elements of `source` added at the places that `index` names."""
    return _scatter(graph, data, axis, index, _fit(graph, source, index), "add")


@converter("scatter.reduce", "scatter.value_reduce")
def scatter_with(graph: Graph, data: Any, axis: int, index: Any, source: Any, reduction: str) -> Any:
    """Elements, or one number, added to or multiplied with what is there."""
    number = isinstance(source, (bool, int, float))
    values = _spread(graph, source, index, str(data.ty.dtype)) if number else _fit(graph, source, index)
    return _scatter(graph, data, axis, index, values, _REDUCTIONS[reduction])


@converter("scatter_reduce.two")
def scatter_reduce(graph: Graph, data: Any, axis: int, index: Any, source: Any, reduction: str, with_self: bool) -> Any:
    """Elements combined at the places that `index` names; without the old value, that starts from the neutral element."""
    from tvm import relax

    dtype = str(data.ty.dtype)
    values = _fit(graph, source, index)
    start = data
    if not with_self:
        start = _scatter(graph, data, axis, index, _spread(graph, _neutral(reduction, dtype), index, dtype), "update")
    combined = _scatter(graph, start, axis, index, values, _REDUCTIONS[reduction])
    if reduction != "mean":
        return combined
    ones = _spread(graph, 1, index, dtype)
    counted = _scatter(graph, graph.emit(relax.op.zeros_like(data)), axis, index, ones, "add")
    if with_self:
        counted = graph.emit(relax.op.add(counted, relax.const(1, dtype)))
    counted = graph.emit(relax.op.maximum(counted, relax.const(1, dtype)))
    divide = relax.op.divide if dtype.startswith("float") else relax.op.floor_divide
    return graph.emit(divide(combined, counted))


def _scatter(graph: Graph, data: Any, axis: int, index: Any, values: Any, reduction: str) -> Any:
    from tvm import relax

    if data.ty.ndim == 0:
        data, index, values = (graph.emit(relax.op.reshape(item, [1])) for item in (data, index, values))
        return graph.emit(relax.op.reshape(_scatter(graph, data, 0, index, values, reduction), []))
    values = graph.cast(values, str(data.ty.dtype))
    return graph.emit(relax.op.scatter_elements(data, index, values, axis=axis, reduction=reduction))


def _fit(graph: Graph, source: Any, index: Any) -> Any:
    """The part of `source` that `index` covers: torch allows a larger one."""
    from tvm import relax

    wanted, found = extents(index), extents(source)
    if len(wanted) != len(found):
        return graph.emit(relax.op.reshape(source, wanted))
    for axis, (extent, given) in enumerate(zip(wanted, found, strict=True)):
        if isinstance(extent, int) and isinstance(given, int) and extent < given:
            source = graph.emit(relax.op.strided_slice(source, [axis], [0], [extent]))
    return source


def _spread(graph: Graph, value: float, index: Any, dtype: str) -> Any:
    from tvm import relax

    return graph.emit(relax.op.broadcast_to(relax.const(value, dtype), extents(index)))


def _neutral(reduction: str, dtype: str) -> float:
    import numpy as np

    if reduction in ("sum", "mean"):
        return 0
    if reduction == "prod":
        return 1
    sign = -1 if reduction == "amax" else 1
    if dtype.startswith("float"):
        return sign * float("inf")
    limits = np.iinfo(dtype)
    return int(limits.min if sign < 0 else limits.max)
