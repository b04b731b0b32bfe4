"""Largest and smallest element along axes, with an infinite identity: TVM's is the largest finite value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydoit.tvm_compat import te, tirx


def extreme(data: Any, axes: Sequence[int], keepdims: bool, largest: bool) -> Any:
    """Floating-point data [d0, ..., dn] -> the axes reduced; a row of -inf alone gives -inf, an empty one the identity.

    `te.max` starts from the lowest finite value, so that a row of -inf gives that; drop this when TVM starts from -inf.
    """
    reduced = {axis: te.reduce_axis((0, data.shape[axis]), name=f"k{axis}") for axis in axes}
    infinity = tirx.infinity(data.dtype)
    choose = tirx.max if largest else tirx.min
    reducer = te.comm_reducer(
        lambda x, y: choose(x, y),
        lambda _dtype: -infinity if largest else infinity,
        name="max" if largest else "min",
    )
    kept = [axis for axis in range(len(data.shape)) if axis not in reduced]
    shape = [1 if axis in reduced else data.shape[axis] for axis in range(len(data.shape)) if keepdims or axis in kept]

    def at(*index: Any) -> Any:
        spatial = dict(enumerate(index)) if keepdims else dict(zip(kept, index, strict=True))
        source = [reduced.get(axis, spatial.get(axis)) for axis in range(len(data.shape))]
        return reducer(data(*source), axis=list(reduced.values()))

    return te.compute(shape, at, name="max" if largest else "min")
