"""ConvInteger and QLinearConv: a convolution of int32, exact; QLinearConv rescales it."""

from __future__ import annotations

from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, shape_of, static_shape
from pydoit.importers.onnx_ops.quantization import centered, to_integer
from pydoit.importers.onnx_ops.windows import windows


def conv_integer(node: Node) -> Expr:
    """x [N, C, ...], w [M, C / group, ...] of 8-bit integers, zero points () or [M] for w -> int32."""
    x_zero = node[2] if node.has(2) else None
    w_zero = node[3] if node.has(3) else None
    return _convolve(node, node[0], x_zero, node[1], w_zero)


def qlinear_conv(node: Node) -> Expr:
    """x, its scale and zero point; w, its scale and zero point (() or [M]); y's; bias [M] of int32 -> y's type."""
    from tvm import relax

    x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero = node.inputs[:8]
    total = _convolve(node, x, x_zero, w, w_zero)
    rank = len(shape_of(x))
    if node.has(8):
        total = node.emit(relax.op.add(total, _channels(node, node[8], rank)))
    scale = node.emit(relax.op.divide(node.emit(relax.op.multiply(x_scale, _channels(node, w_scale, rank))), y_scale))
    scaled = node.emit(relax.op.multiply(node.emit(relax.op.astype(total, "float32")), scale))
    return to_integer(node, scaled, y_zero, dtype_of(y_zero))


def _convolve(node: Node, x: Expr, x_zero: Expr | None, w: Expr, w_zero: Expr | None) -> Expr:
    from tvm import relax

    kernel = static_shape(node, w)[2:]
    rank = len(kernel)
    zero = None if w_zero is None or not shape_of(w_zero) else _first(node, w_zero, rank + 2)
    data = centered(node, x, x_zero)
    weight = centered(node, w, w_zero if zero is None else zero)
    pads: Any = list(node.get("pads") or (0,) * 2 * rank)
    if node.get("auto_pad", "NOTSET") != "NOTSET":
        item = windows(node, static_shape(node, x)[2:], kernel)
        pads = [*item.before, *item.after]
    convolve = (relax.op.nn.conv1d, relax.op.nn.conv2d, relax.op.nn.conv3d)[rank - 1]
    strides, dilations = (list(node.get(name) or (1,) * rank) for name in ("strides", "dilations"))
    groups = node.get("group", 1)
    return node.emit(
        convolve(data, weight, strides=strides, padding=pads, dilation=dilations, groups=groups, out_dtype="int32")
    )


def _channels(node: Node, values: Expr, rank: int) -> Expr:
    from tvm import relax

    return node.emit(relax.op.reshape(values, [1, -1] + [1] * (rank - 2))) if shape_of(values) else values


def _first(node: Node, values: Expr, rank: int) -> Expr:
    from tvm import relax

    return node.emit(relax.op.reshape(values, [-1] + [1] * (rank - 1)))


CONVERTERS = {"ConvInteger": conv_integer, "QLinearConv": qlinear_conv}
