"""Det of small square matrices, by elimination with the largest pivot of each column."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, static_shape

MAX_SIZE = 16
"""Larger matrices are refused: each step is code of its own."""


def det(node: Node) -> Expr:
    """X [..., n, n] -> [...]."""
    from tvm import relax

    x = node[0]
    *batch, size, _ = static_shape(node, x)
    dtype = dtype_of(x)
    if size > MAX_SIZE:
        raise node.refuse(f"a matrix of {size} rows (at most {MAX_SIZE})")
    x = node.emit(relax.op.reshape(x, [-1, size, size]))
    result = node.emit(relax.op.ones([static_shape(node, x)[0]], dtype))
    for left in range(size, 0, -1):
        x, pivot = _eliminate(node, x, left, dtype)
        result = node.emit(relax.op.multiply(result, pivot))
    return node.emit(relax.op.reshape(result, batch))


def _eliminate(node: Node, x: Expr, left: int, dtype: str) -> tuple[Expr, Expr]:
    """[m, left, left] -> [m, left - 1, left - 1] and the pivot [m] with the sign of the swap of rows."""
    from tvm import relax

    column = node.emit(relax.op.reshape(_part(node, x, 2, 0, 1), [-1, left]))
    best = node.emit(relax.op.argmax(node.emit(relax.op.abs(column)), axis=1))
    places = const([list(range(left))], dtype_of(best))
    chosen = node.emit(relax.op.equal(node.emit(relax.op.expand_dims(best, [1])), places))
    one_hot = node.emit(relax.op.astype(chosen, dtype))
    row = node.emit(relax.op.matmul(node.emit(relax.op.expand_dims(one_hot, [1])), x))  # [m, 1, left]
    pivot = node.emit(relax.op.reshape(_part(node, row, 2, 0, 1), [-1]))
    if left == 1:
        return x, pivot
    # the first row takes the pivot's place, which changes the sign unless it is the pivot itself
    first = _part(node, x, 1, 0, 1)
    swapped = node.emit(relax.op.where(node.emit(relax.op.expand_dims(chosen, [2])), first, x))
    zero = const(0, dtype_of(best))
    sign = node.emit(relax.op.where(node.emit(relax.op.equal(best, zero)), const(1, dtype), const(-1, dtype)))
    below, right = _part(node, swapped, 1, 1, left), _part(node, row, 2, 1, left)
    safe = node.emit(relax.op.where(node.emit(relax.op.equal(pivot, const(0, dtype))), const(1, dtype), pivot))
    scaled = node.emit(relax.op.divide(_part(node, below, 2, 0, 1), node.emit(relax.op.reshape(safe, [-1, 1, 1]))))
    rest = node.emit(relax.op.subtract(_part(node, below, 2, 1, left), node.emit(relax.op.multiply(scaled, right))))
    return rest, node.emit(relax.op.multiply(pivot, sign))


def _part(node: Node, x: Expr, axis: int, first: int, last: int) -> Expr:
    from tvm import relax

    return node.emit(relax.op.strided_slice(x, axes=[axis], begin=[first], end=[last]))


CONVERTERS = {"Det": det}
