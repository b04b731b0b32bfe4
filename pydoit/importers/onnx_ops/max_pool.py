"""MaxPool of any rank: dilations, ceil mode, auto padding, and the indices of the maxima."""

from __future__ import annotations

from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, is_float, shape_of, static_shape
from pydoit.importers.onnx_ops.windows import Windows, place, reduce_windows, windows


def max_pool(node: Node) -> Expr | list[Expr]:
    """X [N, C, d1, ..., dn] -> Y and, if asked for, flat positions in X (int64) of the first maximum of each window."""
    x, kernel = node[0], list(node.get("kernel_shape"))
    if node.outputs == 1 and (simple := _relax_pool(node, x, kernel)) is not None:
        return simple
    item = windows(node, static_shape(node, x)[2:], kernel)
    values = reduce_windows(node, x, item, "max")
    return values if node.outputs == 1 else [values, _indices(node, x, values, item)]


def _relax_pool(node: Node, x: Expr, kernel: list[int]) -> Expr | None:
    """Relax's own operator, which layouts and schedules know, in two dimensions."""
    from tvm import relax

    if len(kernel) != 2 or not is_float(dtype_of(x)) or node.get("storage_order", 0):
        return None
    strides, dilations = list(node.get("strides") or (1, 1)), list(node.get("dilations") or (1, 1))
    if node.get("auto_pad", "NOTSET") == "NOTSET" and not node.get("ceil_mode", 0):
        pads = list(node.get("pads") or (0, 0, 0, 0))
    else:
        extents = shape_of(x)[2:]
        if not all(isinstance(extent, int) for extent in extents):
            raise node.refuse("ceil_mode or auto_pad with a symbolic extent", "fix the input shapes")
        item = windows(node, extents, kernel)
        ends = [
            (count - 1) * stride + (k - 1) * dilation + 1 - extent - first
            for count, stride, k, dilation, extent, first in zip(
                item.size, strides, kernel, dilations, extents, item.before, strict=True
            )
        ]
        pads = [*item.before, *(max(end, 0) for end in ends)]
    call = relax.op.nn.max_pool2d(x, kernel, strides=strides, padding=pads, dilation=dilations, layout="NCHW")
    return node.emit(call)


def _indices(node: Node, x: Expr, values: Expr, item: Windows) -> Expr:
    from pydoit.tvm_compat import te, tirx

    column_major = bool(node.get("storage_order", 0))

    def compute(data: Any, maxima: Any) -> Any:
        axes = [te.reduce_axis((0, extent), name=f"r{number}") for number, extent in enumerate(item.kernel)]

        def at(*index: Any) -> Any:
            position, inside = place(item, index[2:], axes)
            read = data(*index[:2], *position)
            channel = index[0] * data.shape[1] + index[1]
            flat = _flat(channel, position, item.extents, column_major)
            found = tirx.all(inside, tirx.if_then_else(inside, read, tirx.min_value(data.dtype)) == maxima(*index))
            last = tirx.const(2**62, "int64")
            return te.min(tirx.if_then_else(found, flat, last), axis=axes)

        return te.compute([*data.shape[:2], *item.size], at, name="pool_indices")

    return node.emit_te(compute, x, values, name="pool_indices")


def _flat(channel: Any, position: list[Any], extents: tuple[int, ...], column_major: bool) -> Any:
    from pydoit.tvm_compat import tirx

    inner = tirx.const(0, "int64")
    pairs = list(zip(position, extents, strict=True))
    for place_in_axis, extent in reversed(pairs) if column_major else pairs:
        inner = inner * extent + tirx.Cast("int64", place_in_axis)
    size = 1
    for extent in extents:
        size *= extent
    return tirx.Cast("int64", channel) * size + inner


CONVERTERS = {"MaxPool": max_pool}
