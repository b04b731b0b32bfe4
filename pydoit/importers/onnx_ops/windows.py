"""Sliding windows of poolings and convolutions: ONNX's padding rules, and sums or maxima over windows of any rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.importers.onnx_ops.node import Expr, Node


@dataclass(frozen=True)
class Windows:
    """The windows over the spatial axes (all but the first two)."""

    extents: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    """Padding at the beginning of each axis."""
    after: tuple[int, ...]
    size: tuple[int, ...]
    """How many windows there are along each axis."""

    def counts(self, include_padding: bool) -> list[NDArray[np.int64]]:
        """For each axis, how many elements of each window count for a mean."""
        found = []
        for axis, extent in enumerate(self.extents):
            low, high = (-self.before[axis], extent + self.after[axis]) if include_padding else (0, extent)
            starts = np.arange(self.size[axis]) * self.strides[axis] - self.before[axis]
            positions = starts[:, None] + np.arange(self.kernel[axis]) * self.dilations[axis]
            found.append(((positions >= low) & (positions < high)).sum(1))
        return found


def windows(node: Node, extents: Sequence[int], kernel: Sequence[int]) -> Windows:
    """From auto_pad, pads, strides, dilations and ceil_mode (onnx's MaxPool)."""
    rank = len(kernel)
    strides = tuple(node.get("strides") or (1,) * rank)
    dilations = tuple(node.get("dilations") or (1,) * rank)
    pads = list(node.get("pads") or (0,) * 2 * rank)
    auto = node.get("auto_pad", "NOTSET")
    before, after, size = [], [], []
    for axis, extent in enumerate(extents):
        reach, stride = (kernel[axis] - 1) * dilations[axis] + 1, strides[axis]
        first, last = pads[axis], pads[rank + axis]
        if auto.startswith("SAME"):
            count = -(-extent // stride)
            total = max((count - 1) * stride + reach - extent, 0)
            first = total // 2 if auto == "SAME_UPPER" else total - total // 2
            last = total - first
        else:
            first, last = (0, 0) if auto == "VALID" else (first, last)
            room = extent + first + last - reach
            count = (-(-room // stride) if node.get("ceil_mode", 0) else room // stride) + 1
            if node.get("ceil_mode", 0) and (count - 1) * stride >= extent + first:
                count -= 1  # a window that begins in the padding at the end is none
        if count < 0:
            raise node.refuse(f"a window of {reach} over an axis of {extent}", "correct the input shapes")
        before.append(first)
        after.append(last)
        size.append(count)
    return Windows(tuple(extents), tuple(kernel), strides, dilations, tuple(before), tuple(after), tuple(size))


def reduce_windows(node: Node, x: Expr, item: Windows, kind: str) -> Expr:
    """[N, C, *extents] -> [N, C, *size]: "sum" of each window, padding as 0, or "max", padding as the lowest value."""
    from pydoit.tvm_compat import te, tirx

    def compute(data: Any) -> Any:
        axes = [te.reduce_axis((0, extent), name=f"r{number}") for number, extent in enumerate(item.kernel)]
        outside = tirx.const(0, data.dtype) if kind == "sum" else tirx.min_value(data.dtype)
        reduce = te.sum if kind == "sum" else te.max

        def at(*index: Any) -> Any:
            position, inside = place(item, index[2:], axes)
            return reduce(tirx.if_then_else(inside, data(*index[:2], *position), outside), axis=axes)

        return te.compute([*data.shape[:2], *item.size], at, name=f"pool_{kind}")

    return node.emit_te(compute, x, name=f"pool_{kind}")


def place(item: Windows, output: Sequence[Any], taps: Sequence[Any]) -> tuple[list[Any], Any]:
    """Where a tap of an output's window lies in the input, and the condition that it lies inside."""
    from pydoit.tvm_compat import tirx

    position = [
        o * stride - first + tap * dilation
        for o, tap, stride, first, dilation in zip(output, taps, item.strides, item.before, item.dilations, strict=True)
    ]
    conditions = [tirx.And(p >= 0, p < extent) for p, extent in zip(position, item.extents, strict=True)]
    return position, tirx.all(*conditions)


Reduce = Callable[..., Expr]
