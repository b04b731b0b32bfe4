"""MaxUnpool: each value goes back to the flat position where MaxPool found it."""

from __future__ import annotations

import math

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, static_shape


def max_unpool(node: Node) -> Expr:
    """X and I (int64, flat positions) [N, C, d1, ..., dn]; output_shape is a constant -> zeros but for those positions."""
    from tvm import relax

    shape = static_shape(node, node[0])
    kernel = list(node.get("kernel_shape"))
    rank = len(kernel)
    strides = list(node.get("strides") or (1,) * rank)
    pads = list(node.get("pads") or (0,) * 2 * rank)
    natural = [
        (extent - 1) * stride + k - first - last
        for extent, stride, k, first, last in zip(shape[2:], strides, kernel, pads[:rank], pads[rank:], strict=True)
    ]
    given = node.integers(2, "output_shape")
    target = list(given) if given is not None else [*shape[:2], *natural]
    positions = node.emit(relax.op.reshape(node[1], [-1]))
    if given is not None:
        positions = _moved(node, positions, [*shape[:2], *natural], target)
    zeros = node.emit(relax.op.zeros([math.prod(target)], dtype_of(node[0])))
    values = node.emit(relax.op.reshape(node[0], [-1]))
    flat = node.emit(relax.op.scatter_elements(zeros, positions, values, axis=0))
    return node.emit(relax.op.reshape(flat, target))


def _moved(node: Node, positions: Expr, source: list[int], target: list[int]) -> Expr:
    """Flat positions in `source` as flat positions in the larger `target`."""
    from tvm import relax

    result = None
    for axis, extent in enumerate(source):
        step, new_step = math.prod(source[axis + 1 :]), math.prod(target[axis + 1 :])
        index = relax.op.floor_mod(relax.op.floor_divide(positions, const(step, "int64")), const(extent, "int64"))
        term = node.emit(relax.op.multiply(node.emit(index), const(new_step, "int64")))
        result = term if result is None else node.emit(relax.op.add(result, term))
    assert result is not None
    return result


CONVERTERS = {"MaxUnpool": max_unpool}
