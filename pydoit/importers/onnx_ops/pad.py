"""Pad in all modes, with axes, negative pads and a value that may be computed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, is_float, shape_of


def pad(node: Node) -> Expr:
    """X of any shape; pads [2 * axes] are constants; negative ones cut off."""
    x = node[0]
    rank = len(shape_of(x))
    pads = node.integers(1, "pads") or [0] * 2 * rank
    axes = [axis % rank for axis in node.integers(3, "axes") or range(rank)]
    first = dict(zip(axes, pads[: len(axes)], strict=True))
    last = dict(zip(axes, pads[len(axes) :], strict=True))
    x = _cut(node, x, first, last)
    grown = {axis: (max(first[axis], 0), max(last[axis], 0)) for axis in axes if max(first[axis], last[axis]) > 0}
    if not grown:
        return x
    mode = node.get("mode", "constant")
    if mode == "constant":
        return _constant(node, x, grown)
    from tvm import relax

    for axis, (before, after) in grown.items():
        extent = shape_of(x)[axis]
        if not isinstance(extent, int):
            raise node.refuse(f"mode {mode} along an axis of symbolic extent", "fix the input shapes")
        source = _source(np.arange(-before, extent + after), extent, mode)
        x = node.emit(relax.op.take(x, const(source, "int64"), axis=axis))
    return x


def _cut(node: Node, x: Expr, first: dict[int, int], last: dict[int, int]) -> Expr:
    from tvm import relax

    axes = [axis for axis in first if first[axis] < 0 or last[axis] < 0]
    if not axes:
        return x
    begin = [max(-first[axis], 0) for axis in axes]
    end = [shape_of(x)[axis] - max(-last[axis], 0) for axis in axes]
    return node.emit(relax.op.strided_slice(x, axes=axes, begin=begin, end=end))


def _constant(node: Node, x: Expr, grown: dict[int, tuple[int, int]]) -> Expr:
    from tvm import relax

    dtype, rank = dtype_of(x), len(shape_of(x))
    value = node.known(2)
    if not node.has(2):
        value = np.array(node.get("value", 0.0))
    if value is not None and is_float(dtype) and not dtype.startswith("float8"):
        flat = [width for axis in range(rank) for width in grown.get(axis, (0, 0))]
        return node.emit(relax.op.nn.pad(x, flat, "constant", float(value.reshape(-1)[0])))
    scalar = const(value.reshape(-1)[0], dtype) if value is not None else node.emit(relax.op.reshape(node[2], []))
    for axis, widths in grown.items():
        parts = [x]
        for position, width in enumerate(widths):
            if width:
                shape = shape_of(x)
                block = node.emit(relax.op.full([*shape[:axis], width, *shape[axis + 1 :]], scalar, dtype))
                parts = [block, *parts] if position == 0 else [*parts, block]
        x = node.emit(relax.op.concat(parts, axis=axis))
    return x


def _source(position: NDArray[np.int64], extent: int, mode: str) -> NDArray[np.int64]:
    """Where each padded position reads."""
    if mode == "edge":
        return np.clip(position, 0, extent - 1)
    if mode == "wrap":
        return position % extent
    if extent == 1:
        return np.zeros_like(position)
    period = 2 * (extent - 1)
    folded = position % period
    return np.minimum(folded, period - folded)


CONVERTERS = {"Pad": pad}
