"""How weights of linear layers are quantized and laid out: panels of adjacent output channels with the depth inside."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError

DTYPES = ("float32", "bfloat16", "int8", "int4")
GROUP_SIZES = (32, 64, 128)
PAIR = 2
"""Panels of adjacent channels that one task computes; the number of channels is padded to a multiple of them."""
K_IN_WORD = {"float32": 1, "bfloat16": 2, "int8": 2, "int4": 8}
"""Values of k in what one load reads for every channel of a panel."""
DEPTH_STEP = 32
"""bfloat16 weights are padded to this depth, that of one AMX tile; int4 weights to the group."""

Array = NDArray[Any]


@dataclass(frozen=True)
class WeightFormat:
    """Storage of one weight matrix.

    Raises UserError where dtype and group size do not go together.
    """

    dtype: str
    """"float32", "bfloat16", "int8" or "int4"."""
    group_size: int | None = None
    """Adjacent weights of a channel that share a scale: 32, 64 or 128; None is one scale a channel (int8 alone)."""
    symmetric: bool = True
    """Without it each group also has a minimum (int4 alone)."""

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise UserError(f'weight dtype "{self.dtype}" is unknown; known: {", ".join(DTYPES)}')
        if self.group_size is not None and self.group_size not in GROUP_SIZES:
            raise UserError(f"group size {self.group_size} is not supported; known: {', '.join(map(str, GROUP_SIZES))}")
        if not self.quantized and (self.group_size is not None or not self.symmetric):
            raise UserError(f'weights in "{self.dtype}" have no groups and no minimum; leave group_size and symmetric out')
        if self.dtype == "int4" and self.group_size is None:
            raise UserError("int4 weights need a group size; known: 32, 64, 128")
        if self.dtype == "int8" and not self.symmetric:
            raise UserError("int8 weights are symmetric; leave symmetric out")

    @property
    def quantized(self) -> bool:
        """Whether values are integers with scales."""
        return self.dtype in ("int8", "int4")

    @property
    def scale_dtype(self) -> str:
        """float16 for groups, as GGUF has them; float32 for one scale a channel."""
        return "float32" if self.group_size is None else "float16"

    def groups(self, depth: int) -> int:
        """Return the number of groups in a channel of `depth` weights."""
        return 1 if self.group_size is None else ceil(depth / self.group_size)

    def padded_depth(self, depth: int) -> int:
        """Return the depth as stored; weights beyond `depth` are zero or multiplied with nothing."""
        if self.dtype == "int8":
            return depth + depth % 2
        if self.dtype == "bfloat16":
            return ceil(depth / DEPTH_STEP) * DEPTH_STEP
        if self.dtype == "int4":
            assert self.group_size is not None
            return self.groups(depth) * self.group_size
        return depth


@dataclass(frozen=True)
class Quantized:
    """w[n, k] = scale[n, k // group] * values[n, k] + minimum[n, k // group], without a minimum when symmetric."""

    values: Array
    """int8 (symmetric) or uint8 of shape (n, k); int4 values are -8..7 or 0..15."""
    scale: Array
    """float16 or float32 of shape (n, groups)."""
    minimum: Array | None = None
    """As scale; None when symmetric."""


def quantize(weight_format: WeightFormat, array: Array) -> Quantized:
    """Round a float32 (n, k) matrix to the nearest values of `format`, group by group.

    A group's scale is first rounded to its stored dtype, so that values are nearest to what is stored.
    """
    if not weight_format.quantized:
        raise UserError(f'weights in "{weight_format.dtype}" have no scales; quantize to int8 or int4')
    grouped = _grouped(weight_format, np.asarray(array, np.float32))
    minimum = None
    if weight_format.dtype == "int4" and weight_format.symmetric:
        # The value of largest magnitude becomes -8, whatever its sign, so that all 16 values are used (as in Q4_0).
        largest = np.take_along_axis(grouped, np.abs(grouped).argmax(2)[:, :, None], 2)[:, :, 0]
        scale, shifted, low, high = (largest / -8.0).astype(weight_format.scale_dtype), grouped, -8.0, 7.0
    elif weight_format.symmetric:
        scale = (np.abs(grouped).max(2) / 127.0).astype(weight_format.scale_dtype)
        shifted, low, high = grouped, -127.0, 127.0
    else:
        minimum = grouped.min(2).astype(weight_format.scale_dtype)
        shifted, low, high = grouped - minimum[:, :, None].astype(np.float32), 0.0, 15.0
        scale = (shifted.max(2) / high).astype(weight_format.scale_dtype)
    divisor = np.where(scale == 0, 1, scale).astype(np.float32)[:, :, None]
    values = np.clip(np.rint(shifted / divisor), low, high)
    dtype = np.int8 if weight_format.symmetric else np.uint8
    return Quantized(values.reshape(len(array), -1)[:, : array.shape[1]].astype(dtype), scale, minimum)


def dequantize(quantized: Quantized) -> Array:
    """Return the float32 (n, k) matrix that the kernels multiply with."""
    depth, groups = quantized.values.shape[1], quantized.scale.shape[1]
    size = _group_size(depth, groups)
    index = np.arange(depth) // size
    result = quantized.values.astype(np.float32) * quantized.scale.astype(np.float32)[:, index]
    if quantized.minimum is not None:
        result += quantized.minimum.astype(np.float32)[:, index]
    return result


def packed_tensors(weight_format: WeightFormat, n: int, k: int, lanes: int) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return names, shapes and dtypes of the packed tensors in the order in which `linear` takes them.

    weight: [panels, k, lanes] in float32; [panels, k / 2, lanes] in uint32 with two bfloat16 (the even k in the low half);
    [panels, k / 2, 2 lanes] in int8, two adjacent k of each channel side by side; [panels, k / 8, lanes] in uint32 with
    eight nibbles (k = 0, 2, 4, 6 in the low half from the lowest bits up, k = 1, 3, 5, 7 in the high half). scale,
    minimum: [panels, groups, lanes].
    """
    panels = padded_panels(n, lanes)
    depth = weight_format.padded_depth(k)
    stored = {"float32": "float32", "bfloat16": "uint32", "int8": "int8", "int4": "uint32"}[weight_format.dtype]
    across = 2 * lanes if weight_format.dtype == "int8" else lanes
    shape = (panels, depth // K_IN_WORD[weight_format.dtype], across)
    tensors: dict[str, tuple[tuple[int, ...], str]] = {"weight": (shape, stored)}
    if weight_format.quantized:
        tensors["scale"] = ((panels, weight_format.groups(k), lanes), weight_format.scale_dtype)
    if not weight_format.symmetric:
        tensors["minimum"] = tensors["scale"]
    return tensors


def padded_panels(n: int, lanes: int) -> int:
    """Return the number of panels that `n` output channels are stored in."""
    return ceil(n / (lanes * PAIR)) * PAIR


def pack(weight_format: WeightFormat, array: Array | Quantized, lanes: int) -> dict[str, Array]:
    """Lay a (n, k) matrix out as `packed_tensors` says; a float matrix is quantized first where the format asks for it.

    Raises UserError where a Quantized does not have the values, groups and minimum of `format`.
    """
    if not weight_format.quantized:
        if isinstance(array, Quantized):
            raise UserError(f'quantized weights do not fit the format "{weight_format.dtype}"; dequantize them first')
        weight = np.asarray(array, np.float32)
        words = (
            weight if weight_format.dtype == "float32" else _pair_bfloat16(weight, weight_format.padded_depth(weight.shape[1]))
        )
        return {"weight": _panels(words, lanes)}
    quantized = array if isinstance(array, Quantized) else quantize(weight_format, array)
    _check(weight_format, quantized)
    values = quantized.values
    if weight_format.dtype == "int4":
        weight = _panels(_join_nibbles(values, weight_format), lanes)
    else:
        weight = _pair_bytes(values, lanes)
    packed = {"weight": weight, "scale": _panels(quantized.scale.astype(weight_format.scale_dtype), lanes)}
    if quantized.minimum is not None:
        packed["minimum"] = _panels(quantized.minimum.astype(weight_format.scale_dtype), lanes)
    return packed


def pack_gated(weight_format: WeightFormat, gate: Array | Quantized, up: Array | Quantized, lanes: int) -> dict[str, Array]:
    """Pack two (n / 2, k) matrices for `linear(..., epilogue="silu_gate")`: a panel of gate, a panel of up, in turn."""
    first, second = (pack(weight_format, matrix, lanes) for matrix in (gate, up))
    rows = gate.values.shape[0] if isinstance(gate, Quantized) else gate.shape[0]
    panels = ceil(rows / lanes)
    return {
        name: np.stack([first[name][:panels], second[name][:panels]], 1).reshape(-1, *first[name].shape[1:]) for name in first
    }


def _grouped(weight_format: WeightFormat, array: Array) -> Array:
    """Return (n, groups, group size), the last group filled up with its own last value, which changes no extreme."""
    n, depth = array.shape
    size = weight_format.group_size or depth
    return np.pad(array, ((0, 0), (0, -depth % size)), mode="edge").reshape(n, -1, size)


def _group_size(depth: int, groups: int) -> int:
    if groups == 1:
        return depth
    return next(size for size in GROUP_SIZES if ceil(depth / size) == groups)


def _check(weight_format: WeightFormat, quantized: Quantized) -> None:
    n, depth = quantized.values.shape
    if quantized.scale.shape != (n, weight_format.groups(depth)):
        raise UserError(
            f"quantized weights of shape {(n, depth)} have scales of shape {quantized.scale.shape}, "
            f"but group size {weight_format.group_size} means {(n, weight_format.groups(depth))}; use the format that they have"
        )
    if (quantized.minimum is None) != weight_format.symmetric:
        raise UserError("only weights with symmetric = false have a minimum; use the format that they have")
    low, high = {True: (-8, 7), False: (0, 15)}[weight_format.symmetric] if weight_format.dtype == "int4" else (-128, 127)
    if quantized.values.min(initial=0) < low or quantized.values.max(initial=0) > high:
        raise UserError(f"values of {weight_format.dtype} weights lie in {low}..{high}; use the format that they have")


def _panels(array: Array, lanes: int) -> Array:
    """(n, depth) -> [panels, depth, lanes], n filled up with zeros."""
    n, depth = array.shape
    panels = padded_panels(n, lanes)
    padded = np.zeros((panels * lanes, depth), array.dtype)
    padded[:n] = array
    return np.ascontiguousarray(padded.reshape(panels, lanes, depth).transpose(0, 2, 1))


def _pair_bytes(values: Array, lanes: int) -> Array:
    """(n, depth) -> [panels, depth / 2, 2 * lanes], two adjacent k of a channel side by side."""
    even = np.pad(values, ((0, 0), (0, values.shape[1] % 2)))
    pairs = _panels(np.ascontiguousarray(even).view(np.int16), lanes)
    return pairs.view(np.int8)


def _pair_bfloat16(weight: Array, depth: int) -> Array:
    """Round to bfloat16 (nearest, ties to even) and join pairs of adjacent k in uint32, the even one in the low half."""
    padded = np.zeros((len(weight), depth), np.float32)
    padded[:, : weight.shape[1]] = weight
    bits = padded.view(np.uint32)
    rounded = bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))
    halves = np.where(np.isnan(padded), np.uint32(0x7FC00000), rounded) >> np.uint32(16)
    return halves[:, 0::2] | (halves[:, 1::2] << np.uint32(16))


def _join_nibbles(values: Array, weight_format: WeightFormat) -> Array:
    """Join eight adjacent k in uint32, the even ones in its low half; symmetric values are stored with 8 added."""
    n, depth = values.shape
    offset = 8 if weight_format.symmetric else 0
    padded = np.full((n, weight_format.padded_depth(depth)), offset, np.uint32)
    padded[:, :depth] = values.astype(np.int16) + offset
    words = np.zeros((n, padded.shape[1] // 8), np.uint32)
    for nibble in range(8):
        words |= padded[:, nibble::8] << np.uint32(16 * (nibble % 2) + 4 * (nibble // 2))
    return words
