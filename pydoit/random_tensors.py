"""Tensors from a seed and a name, the same bits on every machine: Philox counters, no math library in between."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pydoit.dims import static_shape

if TYPE_CHECKING:
    from pydoit.importers.spec import Input

_BLOCK = 1 << 20  # words made at a time; even, so that no half of a 64-bit word is lost
COUNTER_WORDS = 8  # words that Philox makes of one counter
_FRACTION_BITS = 24  # a float32 in [0, 1) holds 24 random bits exactly


def raw_bits(seed: int, name: str, count: int) -> NDArray[np.uint32]:
    """`count` uint32 words for (seed, name). NumPy guarantees the stream of `random_raw`, not that of `Generator`."""
    return np.concatenate([np.empty(0, "<u4"), *_raw_blocks(seed, name, count)])


def _raw_blocks(seed: int, name: str, count: int, skipped: int = 0) -> Iterator[NDArray[np.uint32]]:
    """The words after `skipped` (whole counters) in blocks, so that a large tensor needs little more memory than its own."""
    key = int.from_bytes(hashlib.sha256(f"{seed}\0{name}".encode()).digest()[:16], "little")
    generator = np.random.Philox(key=key)
    generator.advance(skipped // COUNTER_WORDS)
    for start in range(0, count, _BLOCK):
        size = min(_BLOCK, count - start)
        yield np.asarray(generator.random_raw((size + 1) // 2), dtype="<u8").view("<u4")[:size]


def uniform(seed: int, name: str, shape: Sequence[int], low: float, high: float, skipped: int = 0) -> NDArray[np.float32]:
    """float32 of `shape`, uniform in [low, high): those after the first `skipped`, a multiple of COUNTER_WORDS."""
    if skipped % COUNTER_WORDS:
        raise ValueError(f"{skipped} values are no whole counters of {COUNTER_WORDS}")
    values = np.empty(math.prod(shape), dtype=np.float32)
    start = 0
    for bits in _raw_blocks(seed, name, values.size, skipped):
        unit = values[start : start + bits.size]
        unit[:] = bits >> np.uint32(32 - _FRACTION_BITS)
        unit *= np.float32(2.0**-_FRACTION_BITS)
        unit *= np.float32(high - low)
        unit += np.float32(low)
        start += bits.size
    return values.reshape(tuple(shape))


def integers(seed: int, name: str, shape: Sequence[int], low: int, high: int) -> NDArray[np.int64]:
    """int64 of `shape`, in low..high, both ends included."""
    bits = raw_bits(seed, name, math.prod(shape)).astype(np.int64)
    return (low + bits % (high - low + 1)).reshape(tuple(shape))


def random_sample(
    inputs: Mapping[str, Input], seed: int, index: int, extents: Mapping[str, int] | None = None
) -> dict[str, NDArray[Any]]:
    """Input number `index` of `seed`: uniform in each input's range, the same on every machine.

    `extents` gives the symbolic dimensions a size.
    """
    shapes = {name: static_shape(item, extents or {}) for name, item in inputs.items()}
    return {name: _random(f"{name}[{index}]", item, shapes[name], seed) for name, item in inputs.items()}


def picture_like(
    inputs: Mapping[str, Input], seed: int, index: int, extents: Mapping[str, int] | None = None
) -> dict[str, NDArray[Any]]:
    """As `random_sample`, but 4-d floats [batch, channel, height, width] vary on all scales, as pictures do.

    White noise has almost no large structure: statistics measured on it are far off for pictures.
    """
    sample = random_sample(inputs, seed, index, extents)
    for name, item in inputs.items():
        if len(item.shape) == 4 and np.issubdtype(np.dtype(item.dtype), np.floating):
            low, high = item.range or (-1.0, 1.0)
            sample[name] = _octaves(seed, f"{name}[{index}]", sample[name].shape, low, high).astype(item.dtype)
    return sample


def _octaves(seed: int, label: str, shape: tuple[int, ...], low: float, high: float) -> NDArray[np.float32]:
    """Noise of equal amplitude at each power-of-two scale, summed and clipped to [low, high]."""
    batch, channels, height, width = shape
    half, middle = (high - low) / 2, (high + low) / 2
    levels = max(1, min(height, width).bit_length() - 1)
    total = np.zeros(shape, dtype=np.float32)
    for level in range(levels):
        step = 1 << level
        coarse = (batch, channels, -(-height // step), -(-width // step))
        noise = uniform(seed, f"{label}/{level}", coarse, -half, half)
        total += noise.repeat(step, axis=2).repeat(step, axis=3)[:, :, :height, :width]
    total *= np.float32(1.0 / math.sqrt(levels))
    total += np.float32(middle)
    return np.clip(total, np.float32(low), np.float32(high), out=total)


def _random(label: str, item: Input, shape: tuple[int, ...], seed: int) -> NDArray[Any]:
    if np.issubdtype(np.dtype(item.dtype), np.floating):
        low, high = item.range or (-1.0, 1.0)
        return uniform(seed, label, shape, low, high).astype(item.dtype)
    low, high = item.range or (0, 1)
    return integers(seed, label, shape, int(low), int(high)).astype(item.dtype)
