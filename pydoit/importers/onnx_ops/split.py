"""Split into equal or given parts, which may be empty."""

from __future__ import annotations

import numpy as np

from pydoit.importers.onnx_ops.node import Expr, Node, shape_of


def split(node: Node) -> list[Expr]:
    """X of any shape -> parts along `axis`; their sizes are constants."""
    from tvm import relax

    x = node[0]
    axis = node.get("axis", 0) % len(shape_of(x))
    sizes = node.integers(1, "split")
    extent = shape_of(x)[axis]
    if sizes is None:
        count = node.get("num_outputs", node.outputs)
        if not isinstance(extent, int):
            raise node.refuse("equal parts of an axis of symbolic extent", "fix the input shapes")
        size = -(-extent // count)
        sizes = [min(size, max(extent - number * size, 0)) for number in range(count)]
    ends = [int(end) for end in np.cumsum(sizes)]
    if len(sizes) == 1:
        return [x]
    if all(sizes):
        parts = node.emit(relax.op.split(x, ends[:-1], axis=axis))
        return [node.emit(relax.TupleGetItem(parts, number)) for number in range(len(sizes))]
    return [_part(node, x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def _part(node: Node, x: Expr, axis: int, first: int, last: int) -> Expr:
    from tvm import relax

    if first == last:
        shape = shape_of(x)
        return node.emit(relax.op.zeros([*shape[:axis], 0, *shape[axis + 1 :]], str(x.ty.dtype)))
    return node.emit(relax.op.strided_slice(x, axes=[axis], begin=[first], end=[last]))


CONVERTERS = {"Split": split}
