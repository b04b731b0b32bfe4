"""Pooling that Relax has no operator for: a divisor of one's own, and where the largest element stood."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, static


@converter("avg_pool2d.default")
def avg_pool2d(
    graph: Graph, data: Any, kernel: Any, stride: Any, padding: Any, ceil: bool, include_pad: bool, divisor: int | None
) -> Any:
    """The mean of each window; with a divisor, its sum over that number."""
    from tvm import relax

    kernel, padding = _pair(kernel), _pair(padding)
    stride = _pair(stride) if stride else kernel
    batched = data.ty.ndim == 4
    data = data if batched else graph.emit(relax.op.expand_dims(data, 0))
    if divisor is None:
        pooled = relax.op.nn.avg_pool2d(data, kernel, stride, _sides(padding), (1, 1), ceil, include_pad)
    else:
        count = [int(extent) for extent in graph.node.meta["val"].shape[-2:]]
        data = _pad_for_windows(graph, data, kernel, stride, padding, (1, 1), count, 0.0)
        mean = graph.emit(relax.op.nn.avg_pool2d(data, kernel, stride))
        pooled = relax.op.multiply(mean, relax.const(kernel[0] * kernel[1] / divisor, graph.dtype()))
    pooled = graph.emit(pooled)
    return pooled if batched else graph.emit(relax.op.squeeze(pooled, [0]))


@converter("max_pool2d_with_indices.default")
def max_pool2d(graph: Graph, data: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> Any:
    """The largest element of each window and its place in the plane; TVM's importer gives zeros for the places."""
    from tvm import relax

    kernel, padding, dilation = _pair(kernel), _pair(padding), _pair(dilation)
    stride = _pair(stride) if stride else kernel
    batched = data.ty.ndim == 4
    data = data if batched else graph.emit(relax.op.expand_dims(data, 0))
    pooled = graph.emit(relax.op.nn.max_pool2d(data, kernel, stride, _sides(padding), dilation, ceil))
    results = [pooled]
    if any(user.target is operator.getitem and user.args[1] == 1 for user in graph.node.users):
        results.append(_places(graph, data, kernel, stride, padding, dilation))
    if not batched:
        results = [graph.emit(relax.op.squeeze(result, [0])) for result in results]
    return relax.Tuple([*results, results[0]][:2])


def _places(graph: Graph, data: Any, kernel: Any, stride: Any, padding: Any, dilation: Any) -> Any:
    from tvm import relax

    width = static(data)[-1]
    rows, columns = (int(extent) for extent in graph.node.meta["val"][0].shape[-2:])
    padded = _pad_for_windows(graph, data, kernel, stride, padding, dilation, [rows, columns], float("-inf"))
    windows, offsets = [], []
    for i, j in itertools.product(range(kernel[0]), range(kernel[1])):
        begin = [i * dilation[0], j * dilation[1]]
        end = [begin[0] + (rows - 1) * stride[0] + 1, begin[1] + (columns - 1) * stride[1] + 1]
        windows.append(graph.emit(relax.op.strided_slice(padded, [2, 3], begin, end, list(stride))))
        offsets.append(begin[0] * width + begin[1])
    which = graph.emit(relax.op.argmax(graph.emit(relax.op.stack(windows, 0)), axis=0))
    offset = graph.emit(relax.op.take(graph.constant(np.array(offsets, "int64")), graph.cast(which, "int64"), axis=0))
    base_rows = (np.arange(rows) * stride[0] - padding[0])[:, None] * width
    base = base_rows + (np.arange(columns) * stride[1] - padding[1])[None, :]
    return graph.emit(relax.op.add(offset, graph.constant(base.astype("int64"))))


def _pad_for_windows(
    graph: Graph, data: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, count: Any, value: float
) -> Any:
    """The data with every window inside it."""
    from tvm import relax

    after = []
    for axis, extent in enumerate(static(data)[-2:]):
        covered = (count[axis] - 1) * stride[axis] + (kernel[axis] - 1) * dilation[axis] + 1
        after.append(max(0, covered - extent - padding[axis]))
    sides = [0, 0, 0, 0, padding[0], after[0], padding[1], after[1]]
    return graph.emit(relax.op.nn.pad(data, sides, "constant", value)) if any(sides) else data


def _pair(value: Any) -> tuple[int, int]:
    values = [value] if isinstance(value, int) else list(value)
    return (values[0], values[-1])


def _sides(padding: tuple[int, int]) -> tuple[int, int, int, int]:
    return (padding[0], padding[1], padding[0], padding[1])
