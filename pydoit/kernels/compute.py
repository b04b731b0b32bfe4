"""Tensor expressions of the CPU's heavy operators on weights packed in panels of adjacent output channels."""

from __future__ import annotations

from typing import Any

from pydoit.tvm_compat import te, tirx

KERNEL = "pydoit.kernel"
"""Block annotation that tells the schedules which operator a block is."""


def panel_width(columns: int, lanes: int) -> int:
    """Return how many adjacent output columns form a panel: one vector, or the half or quarter that divides them.

    When not even 4 divides `columns`, a full vector is returned and the weights are padded with zeros.
    """
    for width in (lanes, lanes // 2, lanes // 4):
        if width >= 4 and columns % width == 0:
            return width
    return lanes


def packed_matmul(data: Any, weight: Any, columns: int) -> Any:
    """data [..., K] times weight [ceil(columns / P), K, P] -> [..., columns], summed in data's dtype.

    weight[p, k, j] is the element (k, p * P + j) of the unpacked matrix.
    """
    *leading, depth = data.shape
    panels, _, width = (int(size) for size in weight.shape)
    axis = te.reduce_axis((0, depth), name="k")

    def element(*index: Any) -> Any:
        column = index[-1]
        return te.sum(data(*index[:-1], axis) * weight[column // width, axis, column % width], axis=axis)

    padded = te.compute((*leading, panels * width), element, name="matmul", attrs={KERNEL: "matmul"})
    return _first_columns(padded, columns)


def packed_conv2d(
    data: Any,
    weight: Any,
    columns: int,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Any:
    """data NHWC, weight [ceil(columns / P), KH, KW, C / groups, P] -> NHWC with `columns` channels.

    `padding` is (top, left, bottom, right) zeros; `groups` > 1 needs panels that do not cross a group's border.
    """
    batch, height, width, _ = data.shape
    panels, kernel_h, kernel_w, depth, lanes = (int(size) for size in weight.shape)
    top, left, bottom, right = padding
    out_h = (height + top + bottom - (kernel_h - 1) * dilation[0] - 1) // strides[0] + 1
    out_w = (width + left + right - (kernel_w - 1) * dilation[1] - 1) // strides[1] + 1
    padded = _pad_image(data, padding)
    axis_h = te.reduce_axis((0, kernel_h), name="kh")
    axis_w = te.reduce_axis((0, kernel_w), name="kw")
    axis_c = te.reduce_axis((0, depth), name="kc")
    group_columns = columns // groups

    def element(image: Any, row: Any, column: Any, out: Any) -> Any:
        channel = axis_c if groups == 1 else (out // group_columns) * depth + axis_c
        value = padded[image, row * strides[0] + axis_h * dilation[0], column * strides[1] + axis_w * dilation[1], channel]
        return te.sum(value * weight[out // lanes, axis_h, axis_w, axis_c, out % lanes], axis=[axis_h, axis_w, axis_c])

    shape = (batch, out_h, out_w, panels * lanes)
    result = te.compute(shape, element, name="conv2d", attrs={KERNEL: "conv2d"})
    return _first_columns(result, columns)


def depthwise_conv2d(
    data: Any,
    weight: Any,
    strides: tuple[int, int],
    padding: tuple[int, int, int, int],
    dilation: tuple[int, int],
) -> Any:
    """data NHWC, weight [KH, KW, C] -> NHWC: each channel is convolved with its own kernel."""
    batch, height, width, channels = data.shape
    kernel_h, kernel_w, _ = (int(size) for size in weight.shape)
    top, left, bottom, right = padding
    out_h = (height + top + bottom - (kernel_h - 1) * dilation[0] - 1) // strides[0] + 1
    out_w = (width + left + right - (kernel_w - 1) * dilation[1] - 1) // strides[1] + 1
    padded = _pad_image(data, padding)
    axis_h = te.reduce_axis((0, kernel_h), name="kh")
    axis_w = te.reduce_axis((0, kernel_w), name="kw")

    def element(image: Any, row: Any, column: Any, channel: Any) -> Any:
        value = padded[image, row * strides[0] + axis_h * dilation[0], column * strides[1] + axis_w * dilation[1], channel]
        return te.sum(value * weight[axis_h, axis_w, channel], axis=[axis_h, axis_w])

    shape = (batch, out_h, out_w, channels)
    return te.compute(shape, element, name="depthwise_conv2d", attrs={KERNEL: "depthwise_conv2d"})


def _first_columns(padded: Any, columns: int) -> Any:
    """Drop the columns that only the padding of the last panel computed."""
    if int(padded.shape[-1]) == columns:
        return padded
    shape = (*padded.shape[:-1], columns)
    return te.compute(shape, lambda *index: padded(*index), name="columns", tag="injective")


def _pad_image(data: Any, padding: tuple[int, int, int, int]) -> Any:
    """Surround an NHWC image with zeros; the image itself when there is nothing to add."""
    if padding == (0, 0, 0, 0):
        return data
    batch, height, width, channels = data.shape
    top, left, bottom, right = padding
    zero = tirx.const(0, data.dtype)

    def element(image: Any, row: Any, column: Any, channel: Any) -> Any:
        inside = tirx.all(row >= top, row < height + top, column >= left, column < width + left)
        return tirx.if_then_else(inside, data[image, row - top, column - left, channel], zero)

    shape = (batch, height + top + bottom, width + left + right, channels)
    return te.compute(shape, element, name="pad", attrs={KERNEL: "pad"})
