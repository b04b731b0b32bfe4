"""AveragePool of any rank: padding counted or not, ceil mode, dilations."""

from __future__ import annotations

import numpy as np

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, is_float, static_shape
from pydoit.importers.onnx_ops.windows import reduce_windows, windows


def average_pool(node: Node) -> Expr:
    """X [N, C, d1, ..., dn] -> the mean of each window."""
    from tvm import relax

    x, kernel = node[0], list(node.get("kernel_shape"))
    pads = list(node.get("pads") or (0,) * 2 * len(kernel))
    include = bool(node.get("count_include_pad", 0))
    plain = node.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not node.get("ceil_mode", 0)
    dilated = any(item != 1 for item in node.get("dilations") or ())
    if len(kernel) == 2 and plain and not dilated and is_float(dtype_of(x)) and (include or not any(pads)):
        strides = list(node.get("strides") or (1, 1))
        call = relax.op.nn.avg_pool2d(x, kernel, strides=strides, padding=pads, count_include_pad=True, layout="NCHW")
        return node.emit(call)
    item = windows(node, static_shape(node, x)[2:], kernel)
    total = reduce_windows(node, x, item, "sum")
    count = np.ones((1, 1))
    for axis, counted in enumerate(item.counts(include)):
        count = count[..., None] * counted.reshape((1,) * (2 + axis) + (-1,))
    return node.emit(relax.op.divide(total, const(count, dtype_of(x))))


CONVERTERS = {"AveragePool": average_pool}
