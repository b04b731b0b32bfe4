"""Where each output element of a resized axis reads, and with which weights: ONNX's Resize along one axis, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Axis:
    """One axis of a Resize."""

    extent: int
    size: int
    scale: float
    transformation: str
    window: tuple[float, float]
    """tf_crop_and_resize: start and end of the region, normalized."""
    rounding: str
    cubic: float
    """The cubic kernel's coefficient a."""
    exclude_outside: bool
    antialias: bool
    extrapolation: float

    @property
    def keeps(self) -> bool:
        """Whether the axis is left as it is."""
        return self.extent == self.size and self.scale == 1.0 and self.transformation != "tf_crop_and_resize"

    @property
    def repeats(self) -> bool:
        """Whether nearest repeats each element a whole number of times."""
        if self.extent == 0 or self.size % self.extent:
            return False
        indices, _, outside = taps(self, "nearest")
        return not outside.any() and bool((indices[0] == np.arange(self.size) // (self.size // self.extent)).all())


def taps(axis: Axis, mode: str) -> tuple[list[NDArray[Any]], list[Floats] | None, NDArray[np.bool_]]:
    """Indices [taps][size], weights [taps][size] (None for nearest), and which outputs lie outside the input."""
    positions = _positions(axis)
    outside = np.zeros(axis.size, dtype=bool)
    if axis.transformation == "tf_crop_and_resize":
        outside = (positions < 0) | (positions > axis.extent - 1)
    if mode == "nearest":
        return [np.clip(_nearest(positions, axis.rounding), 0, axis.extent - 1)], None, outside
    stretch = max(1.0, 1.0 / axis.scale) if axis.antialias else 1.0
    kernel = _kernel(mode, axis.cubic)
    radius = int(np.ceil((1 if mode == "linear" else 2) * stretch))
    # the half-open neighbourhood of 2 * radius elements around each position
    base = np.floor(positions).astype(np.int64)
    offsets = range(-radius + 1, radius + 1)
    indices = [base + offset for offset in offsets]
    weights = [kernel((index - positions) / stretch) for index in indices]
    if axis.exclude_outside or axis.antialias:
        inside = axis.exclude_outside
        weights = [np.where(_within(i, axis.extent), w, 0.0) if inside else w for i, w in zip(indices, weights, strict=True)]
        total = sum(weights)
        weights = [weight / total for weight in weights]
    return [np.clip(index, 0, axis.extent - 1) for index in indices], weights, outside


def _positions(axis: Axis) -> Floats:
    """Input coordinate of each output element (onnx's Resize, coordinate_transformation_mode)."""
    out = np.arange(axis.size, dtype=np.float64)
    length = axis.extent * axis.scale  # may be no whole number
    start, end = axis.window
    match axis.transformation:
        case "align_corners":
            return out * (axis.extent - 1) / (length - 1) if length != 1 else np.zeros_like(out)
        case "asymmetric":
            return out / axis.scale
        case "tf_crop_and_resize":
            if length == 1:
                return np.full_like(out, (end - start) * (axis.extent - 1) / 2)
            return out * ((end - start) * (axis.extent - 1) / (length - 1)) + start * (axis.extent - 1)
        case "pytorch_half_pixel" if length <= 1:
            return np.full_like(out, -0.5)
        case "half_pixel_symmetric":
            adjusted = axis.size / length
            center = axis.extent / 2
            return center * (1 - adjusted) + (out + 0.5) / axis.scale - 0.5
        case "tf_half_pixel_for_nn":
            return (out + 0.5) / axis.scale
        case _:
            return (out + 0.5) / axis.scale - 0.5


def _nearest(positions: Floats, rounding: str) -> NDArray[np.int64]:
    match rounding:
        case "floor":
            rounded = np.floor(positions)
        case "ceil":
            rounded = np.ceil(positions)
        case "round_prefer_ceil":
            rounded = np.floor(positions + 0.5)
        case _:
            rounded = np.ceil(positions - 0.5)
    return rounded.astype(np.int64)


def _kernel(mode: str, a: float) -> Callable[[Floats], Floats]:
    if mode == "linear":
        return lambda x: np.maximum(0.0, 1.0 - np.abs(x))

    def cubic(x: Floats) -> Floats:
        x = np.abs(x)
        near = ((a + 2) * x - (a + 3)) * x * x + 1
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return np.where(x <= 1, near, np.where(x < 2, far, 0.0))

    return cubic


def _within(index: NDArray[np.int64], extent: int) -> NDArray[np.bool_]:
    return (index >= 0) & (index < extent)
