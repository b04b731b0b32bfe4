"""DeformConv in two dimensions: sampled patches, then a product with the weights."""

from __future__ import annotations

from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, static_shape
from pydoit.importers.onnx_ops.windows import Windows, windows


def deform_conv(node: Node) -> Expr:
    """X [N, C, H, W], W [M, C / group, h, w], offset [N, groups * h * w * 2, oh, ow], B [M], mask -> [N, M, oh, ow]."""
    from tvm import relax

    x, weight = node[0], node[1]
    out, per_group, *kernel = static_shape(node, weight)
    batch, channels, *extents = static_shape(node, x)
    if len(kernel) != 2:
        raise node.refuse(f"{len(kernel)} spatial dimensions", "use two")
    item = windows(node, extents, kernel)
    patches = _sample(node, item, [batch, channels, kernel[0] * kernel[1], *item.size])
    group = node.get("group", 1)
    rows = node.emit(relax.op.reshape(patches, [batch, group, per_group * kernel[0] * kernel[1], item.size[0] * item.size[1]]))
    flat = node.emit(relax.op.reshape(weight, [1, group, out // group, per_group * kernel[0] * kernel[1]]))
    y = node.emit(relax.op.reshape(node.emit(relax.op.matmul(flat, rows)), [batch, out, *item.size]))
    if node.has(3):
        y = node.emit(relax.op.add(y, node.emit(relax.op.reshape(node[3], [1, -1, 1, 1]))))
    return y


def _sample(node: Node, item: Windows, shape: list[int]) -> Expr:
    """[N, C, taps, oh, ow]: the input at each tap's shifted position, bilinear, outside 0."""
    from pydoit.tvm_compat import te, tirx

    groups = node.get("offset_group", 1)
    taps, channels = shape[2], shape[1]

    def compute(data: Any, offset: Any, *mask: Any) -> Any:
        dtype = data.dtype

        def at(n: Any, c: Any, tap: Any, row: Any, column: Any) -> Any:
            base = (c * groups // channels) * taps + tap
            position = []
            for axis, (out, part) in enumerate(((row, tap // item.kernel[1]), (column, tap % item.kernel[1]))):
                start = out * item.strides[axis] - item.before[axis] + part * item.dilations[axis]
                position.append(tirx.Cast(dtype, start) + offset(n, base * 2 + axis, row, column))
            value = _bilinear(data, n, c, position, item.extents)
            return value * mask[0](n, base, row, column) if mask else value

        return te.compute(shape, at, name="deformed_patches")

    operands = [node[0], node[2], *([node[4]] if node.has(4) else [])]
    return node.emit_te(compute, *operands, name="deformed_patches")


def _bilinear(data: Any, n: Any, c: Any, position: list[Any], extents: tuple[int, ...]) -> Any:
    from pydoit.tvm_compat import tirx

    dtype = data.dtype
    low = [tirx.floor(p) for p in position]
    total = tirx.const(0, dtype)
    for down in (0, 1):
        for right in (0, 1):
            corner = [tirx.Cast("int64", low[axis]) + step for axis, step in enumerate((down, right))]
            weight = tirx.const(1, dtype)
            for axis, step in enumerate((down, right)):
                part = position[axis] - low[axis]
                weight = weight * (part if step else tirx.const(1, dtype) - part)
            inside = tirx.all(*(tirx.And(k >= 0, k < extents[axis]) for axis, k in enumerate(corner)))
            total = total + weight * tirx.if_then_else(inside, data(n, c, *corner), tirx.const(0, dtype))
    return total


CONVERTERS = {"DeformConv": deform_conv}
