"""ConvTranspose of one to three dimensions with all attributes: a convolution of the spread input, flipped kernel."""

from __future__ import annotations

from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node, shape_of, static_shape


def conv_transpose(node: Node) -> Expr:
    """X [N, C, d1, ..., dn], W [C, M / group, k1, ..., kn], B [M] -> [N, M, e1, ..., en]."""
    from tvm import relax

    from pydoit.tvm_compat import topi

    x, weight = node[0], node[1]
    kernel = static_shape(node, weight)[2:]
    rank, group = len(kernel), node.get("group", 1)
    if rank > 3:
        raise node.refuse(f"{rank} spatial dimensions", "use at most three")
    strides = list(node.get("strides") or (1,) * rank)
    dilations = list(node.get("dilations") or (1,) * rank)
    begin, end = _padding(node, shape_of(x)[2:], kernel, strides, dilations)
    if any(stride != 1 for stride in strides):
        x = node.emit_te(lambda data: topi.nn.dilate(data, [1, 1, *strides]), x, name="spread")
    convolve = (relax.op.nn.conv1d, relax.op.nn.conv2d, relax.op.nn.conv3d)[rank - 1]
    padding = [*(max(p, 0) for p in begin), *(max(p, 0) for p in end)]
    call = convolve(x, _flipped(node, weight, group), padding=padding, dilation=dilations, groups=group)
    result = _crop(node, node.emit(call), [max(-p, 0) for p in begin], [max(-p, 0) for p in end])
    if node.has(2):
        bias = node.emit(relax.op.reshape(node[2], [1, -1] + [1] * rank))
        result = node.emit(relax.op.add(result, bias))
    return result


def _padding(
    node: Node, extents: list[Any], kernel: list[int], strides: list[int], dilations: list[int]
) -> tuple[list[int], list[int]]:
    """Padding of the spread input at the beginning and the end of each axis; negative: cut off the result."""
    rank = len(kernel)
    pads = list(node.get("pads") or (0,) * 2 * rank)
    extra = list(node.get("output_padding") or (0,) * rank)
    wanted = node.get("output_shape")
    auto = node.get("auto_pad", "NOTSET")
    begin, end = [], []
    for axis in range(rank):
        reach = (kernel[axis] - 1) * dilations[axis]
        first, last = pads[axis], pads[rank + axis]
        if wanted is not None or auto.startswith("SAME"):
            if not isinstance(extents[axis], int):
                raise node.refuse("output_shape or auto_pad with a symbolic extent", "fix the input shapes")
            size = list(wanted)[-rank:][axis] if wanted is not None else extents[axis] * strides[axis]
            total = strides[axis] * (extents[axis] - 1) + extra[axis] + reach + 1 - size
            half = total // 2
            first, last = (half, total - half) if auto == "SAME_UPPER" else (total - half, half)
            if total < 0:
                first, last = 0, total  # the result is longer than all windows together: zeros at the end
        elif auto == "VALID":
            first, last = 0, 0
        begin.append(reach - first)
        end.append(reach - last + extra[axis])
    return begin, end


def _flipped(node: Node, weight: Expr, group: int) -> Expr:
    """[C, M / group, ...] -> [M, C / group, ...] with the spatial axes reversed."""
    from tvm import relax

    channels, out, *kernel = static_shape(node, weight)
    spatial = range(3, 3 + len(kernel))
    w = node.emit(relax.op.reshape(weight, [group, channels // group, out, *kernel]))
    w = node.emit(relax.op.permute_dims(w, [0, 2, 1, *spatial]))
    w = node.emit(relax.op.reshape(w, [group * out, channels // group, *kernel]))
    for axis, extent in enumerate(kernel, start=2):
        if extent > 1:
            w = node.emit(relax.op.flip(w, axis=axis))
    return w


def _crop(node: Node, x: Expr, first: list[int], last: list[int]) -> Expr:
    from tvm import relax

    if not any(first) and not any(last):
        return x
    extents = shape_of(x)[2:]
    axes = [axis + 2 for axis in range(len(extents))]
    ends = [extent - cut for extent, cut in zip(extents, last, strict=True)]
    return node.emit(relax.op.strided_slice(x, axes=axes, begin=first, end=ends))


CONVERTERS = {"ConvTranspose": conv_transpose}
