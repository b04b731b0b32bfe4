"""Col2Im of any rank: each image element sums the columns that cover it."""

from __future__ import annotations

import math
from typing import Any

from pydoit.importers.onnx_ops.node import Expr, Node


def col2im(node: Node) -> Expr:
    """input [N, C * prod(block), L], image_shape [n], block_shape [n] (constants) -> [N, C, *image_shape]."""
    from tvm import relax

    from pydoit.tvm_compat import te, tirx

    image, block = node.integers(1, "image_shape") or [], node.integers(2, "block_shape") or []
    rank = len(image)
    strides = list(node.get("strides") or (1,) * rank)
    dilations = list(node.get("dilations") or (1,) * rank)
    pads = list(node.get("pads") or (0,) * 2 * rank)
    counts = [(image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)]
    columns = node.emit(relax.op.reshape(node[0], [0, -1, *block, *counts]))

    def compute(data: Any) -> Any:
        taps = [te.reduce_axis((0, extent), name=f"k{number}") for number, extent in enumerate(block)]

        def at(n: Any, c: Any, *position: Any) -> Any:
            offset = [p + pads[i] - taps[i] * dilations[i] for i, p in enumerate(position)]
            index = [tirx.floordiv(o, strides[i]) for i, o in enumerate(offset)]
            inside = [tirx.all(o >= 0, tirx.floormod(o, strides[i]) == 0, index[i] < counts[i]) for i, o in enumerate(offset)]
            return te.sum(tirx.if_then_else(tirx.all(*inside), data(n, c, *taps, *index), tirx.const(0, data.dtype)), axis=taps)

        return te.compute([*data.shape[:2], *image], at, name="col2im")

    assert math.prod(block) > 0
    return node.emit_te(compute, columns)


CONVERTERS = {"Col2Im": col2im}
