"""Tensor expressions of the CPU's heavy operators on weights packed in panels of adjacent output channels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydoit.tvm_compat import te, tirx

ROW_STEP = 8
"""Rows are rounded up to a multiple of this where no better number divides them."""
MIN_TILE_ROWS = 4
MAX_TILE_ROWS = 14
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
    """data [..., M, K] times weight [ceil(columns / P), K, P] -> [..., M, columns], summed in data's dtype.

    weight[p, k, j] is the element (k, p * P + j) of the unpacked matrix.
    """
    panels, _, width = (int(size) for size in weight.shape)

    def element(column: Any, axis: Any, *_batch: Any) -> Any:
        return weight[column // width, axis, column % width]

    return _first_rows_and_columns(_product(data, element, panels * width), data.shape[-2], columns)


def padded_matmul(left: Any, right: Any, lanes: int) -> Any:
    """left [..., M, K] times right [..., K, N] -> [..., M, N] for extents that no register tile divides.

    `right` is copied to panels of `lanes` columns, the last one filled with zeros. Batch axes of extent 1 are repeated.
    """
    *batch, depth, columns = right.shape
    panels = _ceil_div(columns, lanes)
    zero = tirx.const(0, right.dtype)

    def pack(*index: Any) -> Any:
        *outer, panel, row, lane = index
        column = panel * lanes + lane
        return tirx.if_then_else(column < columns, right(*outer, row, column), zero)

    packed = te.compute((*batch, panels, depth, lanes), pack, name="panels", attrs={KERNEL: "pack"})

    def element(column: Any, axis: Any, *outer: Any) -> Any:
        return packed(*(_repeated(outer, batch) if batch else ()), column // lanes, axis, column % lanes)

    return _first_rows_and_columns(_product(left, element, panels * lanes, batch), left.shape[-2], columns)


def is_awkward(rows: Any) -> bool:
    """Say whether no number of rows that suits a register tile divides `rows`: a symbolic extent, a large prime."""
    if not isinstance(rows, tirx.IntImm):
        return True
    return not any(int(rows) % part == 0 for part in range(min(int(rows), MIN_TILE_ROWS), MAX_TILE_ROWS + 1))


def _product(data: Any, element: Any, columns: Any, batch: Sequence[Any] = ()) -> Any:
    """Sum data [..., M, K] times element(column, k, *batch index) over K, M rounded up where a tile needs it."""
    *leading, rows, depth = data.shape
    leading = [right if _is_one(left) else left for left, right in zip(leading, batch, strict=True)] if batch else leading
    axis = te.reduce_axis((0, depth), name="k")

    def sum_of(*index: Any) -> Any:
        *outer, row, column = index
        row = _clamped(row, rows)
        read = _repeated(outer, list(data.shape)[:-2]) if batch else outer
        return te.sum(data(*read, row, axis) * element(column, axis, *outer), axis=axis)

    return te.compute((*leading, _rounded_up(rows), columns), sum_of, name="matmul", attrs={KERNEL: "matmul"})


def _rounded_up(rows: Any) -> Any:
    """The number of rows that are computed, so that a tile divides it; those beyond `rows` repeat the last one."""
    return _ceil_div(rows, ROW_STEP) * ROW_STEP if is_awkward(rows) else rows


def _clamped(row: Any, rows: Any) -> Any:
    """The row that is read for one of `_rounded_up(rows)`: reading needs no guard."""
    return tirx.min(row, rows - 1) if is_awkward(rows) else row


def _repeated(index: Sequence[Any], extents: Sequence[Any]) -> list[Any]:
    """The index into axes of `extents`, of which those of extent 1 are repeated."""
    return [0 if _is_one(extent) else position for position, extent in zip(index, extents, strict=True)]


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


def _ceil_div(extent: Any, part: int) -> Any:
    return (extent + part - 1) // part


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
        column = _clamped(column, out_w)
        value = padded[image, row * strides[0] + axis_h * dilation[0], column * strides[1] + axis_w * dilation[1], channel]
        return te.sum(value * weight[out // lanes, axis_h, axis_w, axis_c, out % lanes], axis=[axis_h, axis_w, axis_c])

    shape = (batch, out_h, _rounded_up(out_w), panels * lanes)
    result = te.compute(shape, element, name="conv2d", attrs={KERNEL: "conv2d"})
    return _first_rows_and_columns(result, out_w, columns)


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
        column = _clamped(column, out_w)
        value = padded[image, row * strides[0] + axis_h * dilation[0], column * strides[1] + axis_w * dilation[1], channel]
        return te.sum(value * weight[axis_h, axis_w, channel], axis=[axis_h, axis_w])

    shape = (batch, out_h, _rounded_up(out_w), channels)
    result = te.compute(shape, element, name="depthwise_conv2d", attrs={KERNEL: "depthwise_conv2d"})
    return _first_rows_and_columns(result, out_w, channels)


def _first_rows_and_columns(padded: Any, rows: Any, columns: Any) -> Any:
    """Drop what only the filling up of the last rows and of the last panel computed."""
    *leading, found_rows, found_columns = padded.shape
    if _same(found_rows, rows) and _same(found_columns, columns):
        return padded
    shape = (*leading, rows, columns)
    return te.compute(shape, lambda *index: padded(*index), name="columns", tag="injective")


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, tirx.IntImm) and isinstance(other, int | tirx.IntImm):
        return int(one) == int(other)
    return one is other or bool(hasattr(one, "same_as") and one.same_as(other))


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
