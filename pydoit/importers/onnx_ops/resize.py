"""Resize and Upsample in all modes: each axis on its own, as a weighted sum of a few gathered slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydoit.importers.onnx_ops.interpolation import Axis, taps
from pydoit.importers.onnx_ops.node import Expr, Node, along, const, dtype_of, is_float, shape_of

_MAX_TAPS = 8
"""Longer sums (antialiased shrinking) are matrix products."""


def resize(node: Node) -> Expr:
    """Input [d0, ..., dn] of any rank; extents of resized axes must be known."""
    x = node[0]
    shape = shape_of(x)
    given = node.get("axes")
    axes = [axis % len(shape) for axis in given] if given is not None else list(range(len(shape)))
    roi = node.constant(1, "the region of interest") if len(node.inputs) > 2 else None
    scales, sizes = _wanted(node)
    mode = node.get("mode", "nearest")
    plan = []
    for position, axis in enumerate(axes):
        if not isinstance(shape[axis], int):
            if scales is not None and float(scales[position]) == 1.0:
                continue
            raise node.refuse(f"axis {axis} of symbolic extent", "fix the input shapes")
        plan.append((axis, _axis(node, position, shape[axis], scales, sizes, roi, [shape[a] for a in axes])))
    plan = [(axis, item) for axis, item in plan if not item.keeps]
    simple = _resize2d(node, x, plan, mode, shape)
    if simple is not None:
        return simple
    dtype = dtype_of(x)
    if mode != "nearest" and dtype != "float64":
        x = _as(node, x, "float32")
    for axis, item in plan:
        x = _apply(node, x, axis, item, mode)
    return _round_back(node, x, dtype)


def _wanted(node: Node) -> tuple[Any, Any]:
    """Scales and sizes by the opset's positions; exactly one of them is not None."""
    index = 1 if len(node.inputs) <= 2 else 2
    scales = node.constant(index, "scales")
    if scales is None and node.get("scales") is not None:
        scales = np.array(node.get("scales"), dtype=np.float32)
    sizes = node.constant(3, "sizes")
    scales = None if scales is None or scales.size == 0 else scales
    sizes = None if sizes is None or sizes.size == 0 else sizes
    if scales is None and sizes is None:
        raise node.refuse("neither scales nor sizes", "give one of them")
    return (scales, None) if sizes is None else (None, sizes)


def _axis(node: Node, position: int, extent: int, scales: Any, sizes: Any, roi: Any, extents: Sequence[Any]) -> Axis:
    policy = node.get("keep_aspect_ratio_policy", "stretch")
    count = len(extents)
    if scales is not None:
        scale = float(scales[position])
        size = int(np.floor(extent * scale))
    elif policy == "stretch":
        size = int(sizes[position])
        scale = size / extent if extent else 1.0
    else:
        choose = min if policy == "not_larger" else max
        scale = choose(int(size) / have for size, have in zip(sizes, extents, strict=True))
        size = int(np.floor(extent * scale + 0.5))
    window = (0.0, 1.0)
    mode = node.get("coordinate_transformation_mode", "half_pixel" if node.opset > 10 else "asymmetric")
    if mode == "tf_crop_and_resize":
        window = (float(roi[position]), float(roi[count + position]))
    return Axis(
        extent=extent,
        size=size,
        scale=scale,
        transformation=mode,
        window=window,
        rounding=node.get("nearest_mode", "round_prefer_floor" if node.opset > 10 else "floor"),
        cubic=float(node.get("cubic_coeff_a", -0.75)),
        exclude_outside=bool(node.get("exclude_outside", 0)),
        antialias=bool(node.get("antialias", 0)),
        extrapolation=float(node.get("extrapolation_value", 0.0)),
    )


def _resize2d(node: Node, x: Expr, plan: Sequence[tuple[int, Axis]], mode: str, shape: Sequence[Any]) -> Expr | None:
    """Relax's own operator where it computes the same: layouts and fusion know it."""
    from tvm import relax

    if len(shape) != 4 or not plan or {axis for axis, _ in plan} - {2, 3} or not is_float(dtype_of(x)):
        return None
    items = [item for _, item in plan]
    if any(item.antialias or item.exclude_outside or item.transformation == "tf_crop_and_resize" for item in items):
        return None
    sizes = {axis: item.size for axis, item in plan}
    size = [sizes.get(axis, shape[axis]) for axis in (2, 3)]
    if not all(isinstance(extent, int) for extent in size):
        return None
    if mode == "nearest" and all(item.repeats for item in items):
        call = relax.op.image.resize2d(
            x,
            size,
            layout="NCHW",
            method="nearest_neighbor",
            coordinate_transformation_mode="asymmetric",
            rounding_method="floor",
        )
        return node.emit(call)
    exact = all(item.scale * item.extent == item.size for item in items) and dtype_of(x) == "float32"
    known = {"half_pixel", "align_corners", "asymmetric"}
    if mode == "linear" and exact and all(item.transformation in known and item.size > 1 for item in items):
        call = relax.op.image.resize2d(
            x, size, layout="NCHW", method="linear", coordinate_transformation_mode=items[0].transformation
        )
        return node.emit(call)
    return None


def _apply(node: Node, x: Expr, axis: int, item: Axis, mode: str) -> Expr:
    from tvm import relax

    indices, weights, outside = taps(item, mode)
    dtype = dtype_of(x)
    rank = len(shape_of(x))
    if weights is None:
        result = node.emit(relax.op.take(x, const(indices[0], "int32"), axis=axis))
    elif len(indices) > _MAX_TAPS:
        matrix = np.zeros((item.size, item.extent))
        for index, weight in zip(indices, weights, strict=True):
            np.add.at(matrix, (np.arange(item.size), index), weight)
        moved = node.emit(relax.op.permute_dims(x, [i for i in range(rank) if i != axis] + [axis]))
        product = node.emit(relax.op.matmul(moved, const(matrix.T, dtype)))
        order = list(range(rank - 1))
        order.insert(axis, rank - 1)
        result = node.emit(relax.op.permute_dims(product, order))
    else:
        result = None
        for index, weight in zip(indices, weights, strict=True):
            taken = node.emit(relax.op.take(x, const(index, "int32"), axis=axis))
            term = node.emit(relax.op.multiply(taken, const(along(weight, axis, rank), dtype)))
            result = term if result is None else node.emit(relax.op.add(result, term))
    if outside.any():
        mask = const(along(outside, axis, rank), "bool")
        result = node.emit(relax.op.where(mask, const(item.extrapolation, dtype), result))
    return result


def _as(node: Node, x: Expr, dtype: str) -> Expr:
    from tvm import relax

    return x if dtype_of(x) == dtype else node.emit(relax.op.astype(x, dtype))


def _round_back(node: Node, x: Expr, dtype: str) -> Expr:
    """To the input's type; integers as the reference does, towards zero within their range."""
    return _as(node, x, dtype)


CONVERTERS = {"Resize": resize, "Upsample": resize}
