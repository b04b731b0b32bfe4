"""sum, mean, cumsum, cumprod, var: computed in torch's result type, which for truth values and integers is another."""

from __future__ import annotations

from typing import Any

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, axes_of


@converter("sum.dim_IntList")
def sum_along(graph: Graph, data: Any, axes: Any, keep: bool, dtype: Any) -> Any:
    """The sum along the axes; none given means all of them."""
    return _along(graph, "sum", data, axes, keep)


@converter("sum.default")
def sum_all(graph: Graph, data: Any, dtype: Any) -> Any:
    """The sum of all elements."""
    return sum_along(graph, data, None, False, dtype)


@converter("mean.dim")
def mean_along(graph: Graph, data: Any, axes: Any, keep: bool, dtype: Any) -> Any:
    """The mean along the axes; none given means all of them."""
    return _along(graph, "mean", data, axes, keep)


@converter("mean.default")
def mean_all(graph: Graph, data: Any, dtype: Any) -> Any:
    """The mean of all elements."""
    return mean_along(graph, data, None, False, dtype)


@converter("cumsum.default")
def cumsum(graph: Graph, data: Any, axis: int, dtype: Any) -> Any:
    """Running sums; TVM's importer adds truth values as such, which LLVM refuses."""
    from tvm import relax

    data = graph.cast(data, graph.dtype())
    return data if data.ty.ndim == 0 else graph.emit(relax.op.cumsum(data, axis=axis))


@converter("cumprod.default")
def cumprod(graph: Graph, data: Any, axis: int, dtype: Any) -> Any:
    """Running products."""
    from tvm import relax

    data = graph.cast(data, graph.dtype())
    return data if data.ty.ndim == 0 else graph.emit(relax.op.cumprod(data, axis=axis))


@converter("var_mean.correction")
def var_mean(graph: Graph, data: Any, axes: Any, correction: Any, keep: bool) -> Any:
    """Variance and mean along the axes; the variance divides by the count less the correction."""
    from tvm import relax

    kept_mean = graph.emit(relax.op.mean(data, axis=axes_of(axes, data.ty.ndim), keepdims=True))
    count = 1
    for axis in axes_of(axes, data.ty.ndim):
        count *= int(data.ty.shape[axis])
    difference = graph.emit(relax.op.subtract(data, kept_mean))
    squares = graph.emit(relax.op.multiply(difference, difference))
    total = graph.emit(relax.op.sum(squares, axis=axes_of(axes, data.ty.ndim), keepdims=keep))
    less = count - (1 if correction is None else correction)
    variance = graph.emit(relax.op.divide(total, relax.const(float(less), graph.dtype(0))))
    mean = kept_mean
    if not keep:
        mean = graph.emit(relax.op.squeeze(kept_mean, axis=axes_of(axes, data.ty.ndim)))
    return relax.Tuple([variance, mean])


def _along(graph: Graph, kind: str, data: Any, axes: Any, keep: bool) -> Any:
    from tvm import relax

    data = graph.cast(data, graph.dtype())
    if data.ty.ndim == 0:
        return data
    return graph.emit(getattr(relax.op, kind)(data, axis=axes_of(axes, data.ty.ndim), keepdims=keep))
