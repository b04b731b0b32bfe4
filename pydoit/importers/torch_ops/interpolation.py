"""interpolate: nearest and linear for any factor, with and without antialiasing, as torch places the source elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, extents, static


@converter("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def nearest(graph: Graph, data: Any, size: Sequence[int] | None, factors: Sequence[float] | None) -> Any:
    """Repeat or drop elements along the trailing axes; whole factors stay one operator that layouts know.

    TVM's importer takes the middle of each element, torch its beginning, in float32.
    """
    from tvm import relax

    whole = _whole_factors(data, factors)
    if whole is not None:
        for axis, factor in enumerate(whole):
            data = graph.emit(relax.op.repeat(data, factor, axis + 2)) if factor != 1 else data
        return data
    spatial, sizes = static(data)[2:], _sizes(graph)
    if len(sizes) == 2 and all(new % old == 0 for new, old in zip(sizes, spatial, strict=True)):
        resized = relax.op.image.resize2d(
            data, tuple(sizes), method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor"
        )
        return graph.emit(resized)
    for axis, (new, old) in enumerate(zip(sizes, spatial, strict=True)):
        scale = np.float32(old) / np.float32(new) if factors is None else np.float32(1.0 / factors[axis])
        places = np.minimum(np.floor(np.arange(new, dtype="float32") * scale).astype("int64"), old - 1)
        data = graph.emit(relax.op.take(data, graph.constant(places), axis=axis + 2))
    return data


@converter("upsample_bilinear2d.vec")
def bilinear(graph: Graph, data: Any, size: Sequence[int] | None, corners: bool, factors: Sequence[float] | None) -> Any:
    """Weighted means of neighbours; a factor that leaves a rest steps by the factor, not by the ratio of the sizes."""
    from tvm import relax

    whole = _whole_factors(data, factors)
    if whole is not None:
        mode = "align_corners" if corners else "half_pixel"
        size = relax.ShapeExpr([extent * factor for extent, factor in zip(extents(data)[2:], whole, strict=True)])
        return graph.emit(relax.op.image.resize2d(data, size, method="linear", coordinate_transformation_mode=mode))
    spatial, sizes = static(data)[2:], _sizes(graph)
    exact = factors is None or all(old * f == new for old, f, new in zip(spatial, factors, sizes, strict=True))
    if exact or corners:
        mode = "align_corners" if corners else "half_pixel"
        resized = relax.op.image.resize2d(data, tuple(sizes), method="linear", coordinate_transformation_mode=mode)
        return graph.emit(resized)
    assert factors is not None
    for axis, (new, old) in enumerate(zip(sizes, spatial, strict=True)):
        place = np.maximum((np.arange(new) + 0.5) / factors[axis] - 0.5, 0.0)
        low = np.minimum(np.floor(place).astype("int64"), old - 1)
        weight = (place - low).astype("float32").reshape([new] + [1] * (1 - axis))
        below = graph.emit(relax.op.take(data, graph.constant(low), axis=axis + 2))
        above = graph.emit(relax.op.take(data, graph.constant(np.minimum(low + 1, old - 1)), axis=axis + 2))
        step = graph.emit(relax.op.multiply(relax.op.subtract(above, below), graph.constant(weight)))
        data = graph.emit(relax.op.add(below, step))
    return data


@converter("_upsample_bilinear2d_aa.default", "_upsample_bicubic2d_aa.default")
def antialiased(graph: Graph, data: Any, size: Sequence[int], corners: bool, rows: float | None, columns: float | None) -> Any:
    """One product with a constant matrix an axis; TVM's importer leaves antialiasing out."""
    from tvm import relax

    height, width = static(data)[2:]
    left = graph.constant(_matrix(graph, height, size[0], corners, rows))
    right = graph.constant(_matrix(graph, width, size[1], corners, columns).T)
    return graph.emit(relax.op.matmul(graph.emit(relax.op.matmul(left, data)), right))


def _whole_factors(data: Any, factors: Sequence[float] | None) -> list[int] | None:
    """The factors of an image of symbolic extents when all of them are whole numbers, else None."""
    if factors is None or all(isinstance(extent, int) for extent in extents(data)):
        return None
    return [int(factor) for factor in factors] if all(factor == int(factor) for factor in factors) else None


def _matrix(graph: Graph, old: int, new: int, corners: bool, factor: float | None) -> Any:
    """The weights [new, old] along one axis: what torch makes of the unit vectors."""
    import torch

    unit = torch.eye(old).reshape(1, 1, old, old)
    return graph.node.target(unit, [old, new], corners, None, factor)[0, 0].T.numpy()


def _sizes(graph: Graph) -> list[int]:
    return [int(extent) for extent in graph.node.meta["val"].shape[2:]]
