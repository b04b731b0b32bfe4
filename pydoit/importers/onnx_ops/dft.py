"""DFT of any axis as products with constant matrices of cosines and sines."""

from __future__ import annotations

from typing import Any

import numpy as np

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, shape_of

MAX_LENGTH = 4096
"""Longer transforms are refused: the matrices grow with the square."""


def dft(node: Node) -> Expr:
    """X [..., n, ..., 1 or 2] -> [..., bins, ..., 2] (real, imaginary), for the inverse of one side [..., n, ..., 1]."""
    from tvm import relax

    x = node[0]
    rank = len(shape_of(x))
    axis = _axis(node) % rank
    inverse, one_sided = bool(node.get("inverse", 0)), bool(node.get("onesided", 0))
    last = [i for i in range(rank) if i not in (axis, rank - 1)] + [axis, rank - 1]
    x = node.emit(relax.op.permute_dims(x, last))
    extent = shape_of(x)[-2]
    given = node.constant(1, "the length")
    if given is not None:
        length = int(given.reshape(-1)[0])
    elif isinstance(extent, int):
        length = 2 * (extent - 1) if inverse and one_sided else extent
    else:
        raise node.refuse("a transform of symbolic length", "fix the input shapes")
    needed = length // 2 + 1 if inverse and one_sided else length
    x = transform(node, _fit(node, x, needed), length, inverse=inverse, one_sided=one_sided)
    order = list(range(rank - 2))
    order.insert(axis, rank - 2)
    return node.emit(relax.op.permute_dims(x, [*order, rank - 1]))


def transform(node: Node, x: Expr, length: int, *, inverse: bool = False, one_sided: bool = False) -> Expr:
    """The transform along the axis before the last of [..., n, 1 or 2]."""
    from tvm import relax

    if length > MAX_LENGTH:
        raise node.refuse(f"a transform of length {length} (at most {MAX_LENGTH})", "use a shorter one")
    dtype = dtype_of(x)
    x = node.emit(relax.op.astype(x, "float64"))  # sums of many large terms cancel
    real = _component(node, x, 0)
    imaginary = _component(node, x, 1) if shape_of(x)[-1] == 2 else None
    cosine, sine = _matrices(length, inverse, one_sided)

    def product(part: Expr | None, matrix: Any) -> Expr | None:
        return None if part is None else node.emit(relax.op.matmul(part, const(matrix, "float64")))

    def total(a: Expr | None, b: Expr | None) -> Expr:
        both = a is not None and b is not None
        return node.emit(relax.op.add(a, b)) if both else a if a is not None else b

    # (re + i im) * (cos + i sin)
    parts = [total(product(real, cosine), product(imaginary, -sine))]
    if not (inverse and one_sided):
        parts.append(total(product(real, sine), product(imaginary, cosine)))
    axis = len(shape_of(x)) - 1
    expanded = [node.emit(relax.op.expand_dims(part, [axis])) for part in parts]
    joined = expanded[0] if len(expanded) == 1 else node.emit(relax.op.concat(expanded, axis=axis))
    return node.emit(relax.op.astype(joined, dtype))


def _matrices(length: int, inverse: bool, one_sided: bool) -> tuple[Any, Any]:
    """[inputs, outputs] of cosines and (signed) sines."""
    bins = length // 2 + 1 if one_sided else length
    rows, columns = (bins, length) if inverse else (length, bins)
    angle = 2 * np.pi * (np.outer(np.arange(rows), np.arange(columns)) % length) / length
    cosine, sine = np.cos(angle), np.sin(angle) if inverse else -np.sin(angle)
    if inverse:
        cosine, sine = cosine / length, sine / length
        if one_sided:  # the other side is the mirror image
            twice = np.where((np.arange(bins) == 0) | (2 * np.arange(bins) == length), 1.0, 2.0)[:, None]
            cosine, sine = cosine * twice, sine * twice
    return cosine, sine


def _axis(node: Node) -> int:
    if node.opset < 20:
        return int(node.get("axis", 1))
    given = node.constant(2, "the axis")
    return -2 if given is None else int(given.reshape(-1)[0])


def _fit(node: Node, x: Expr, length: int) -> Expr:
    """Cut or fill with zeros along the axis before the last."""
    from tvm import relax

    rank = len(shape_of(x))
    extent = shape_of(x)[-2]
    if extent == length:
        return x
    if extent > length:
        return node.emit(relax.op.strided_slice(x, axes=[rank - 2], begin=[0], end=[length]))
    widths = [0] * (2 * rank - 4) + [0, length - extent, 0, 0]
    return node.emit(relax.op.nn.pad(x, widths))


def _component(node: Node, x: Expr, index: int) -> Expr:
    from tvm import relax

    axis = len(shape_of(x)) - 1
    part = node.emit(relax.op.strided_slice(x, axes=[axis], begin=[index], end=[index + 1]))
    return node.emit(relax.op.squeeze(part, [axis]))


CONVERTERS = {"DFT": dft}
