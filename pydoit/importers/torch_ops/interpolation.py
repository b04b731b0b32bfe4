"""interpolate by the nearest element: source places are computed as torch does, in float32, for any factor."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pydoit.importers.torch_ops import converter
from pydoit.importers.torch_ops.graph import Graph, static


@converter("upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec")
def nearest(graph: Graph, data: Any, size: Sequence[int] | None, factors: Sequence[float] | None) -> Any:
    """Repeat or drop elements along the trailing axes; whole factors stay one operator that layouts know."""
    from tvm import relax

    shape = static(data)
    spatial = shape[2:]
    sizes = [int(extent) for extent in graph.node.meta["val"].shape[2:]]
    whole = all(new % old == 0 for new, old in zip(sizes, spatial, strict=True))
    if len(sizes) == 2 and whole:
        resized = relax.op.image.resize2d(
            data, tuple(sizes), method="nearest_neighbor", coordinate_transformation_mode="asymmetric", rounding_method="floor"
        )
        return graph.emit(resized)
    for axis, (new, old) in enumerate(zip(sizes, spatial, strict=True)):
        scale = np.float32(old) / np.float32(new) if factors is None else np.float32(1.0 / factors[axis])
        places = np.minimum(np.floor(np.arange(new, dtype="float32") * scale).astype("int64"), old - 1)
        data = graph.emit(relax.op.take(data, graph.constant(places), axis=axis + 2))
    return data
