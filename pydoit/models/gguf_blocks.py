"""Raw tensor blocks of GGUF: dequantized, or taken apart into quantized values, scales and minima without loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError

TYPES = ("F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q4_K", "Q5_K", "Q6_K")
"""Types that can be dequantized."""
GROUP = 32
"""Values that share one scale in Q8_0, Q4_0 and Q4_1."""

FIELD_TYPES = ("Q8_0", "Q4_0", "Q4_1")
"""Types whose fields `split_blocks` gives as they are."""
_Element = TypeVar("_Element", bound=np.generic)


@dataclass(frozen=True)
class Blocks:
    """A quantized matrix [n, k] in groups of 32: element = scale * value + minimum."""

    values: NDArray[np.int8] | NDArray[np.uint8]
    """[n, k]: int8 in -128...127 (Q8_0) or -8...7 (Q4_0), uint8 in 0...15 (Q4_1)."""
    scale: NDArray[np.float16]
    """[n, k / 32]."""
    minimum: NDArray[np.float16] | None
    """[n, k / 32] for Q4_1, else None."""


def dequantize(rows: NDArray[np.uint8], kind: str) -> NDArray[np.float32]:
    """float32 [n, k] of raw rows uint8 [n, bytes of a row]; raises UserError for a type that is not in TYPES."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize as by_type

    if kind not in TYPES:
        raise UserError(f"tensors of type {kind} cannot be read; known: {', '.join(TYPES)}; take a file of one of these")
    values: NDArray[np.float32] = by_type(np.ascontiguousarray(rows), GGMLQuantizationType[kind])
    return values


def split_blocks(rows: NDArray[np.uint8], kind: str) -> Blocks:
    """The fields of raw rows uint8 [n, bytes of a row] of type Q8_0, Q4_0 or Q4_1; raises UserError for another type.

    Layout (ggml-common.h): Q8_0 is scale, 32 int8; Q4_0 is scale, 16 bytes whose low halves are values 0...15 and whose
    high halves are values 16...31, less 8; Q4_1 is scale, minimum, 16 such bytes.
    """
    if kind not in FIELD_TYPES:
        raise UserError(f"tensors of type {kind} have no fields of this kind; known: {', '.join(FIELD_TYPES)}; dequantize it")
    header = 4 if kind == "Q4_1" else 2
    size = header + (GROUP if kind == "Q8_0" else GROUP // 2)
    blocks = rows.reshape(rows.shape[0], -1, size)
    numbers = np.ascontiguousarray(blocks[..., :header]).view("<f2")
    quantized = blocks[..., header:]
    minimum = np.ascontiguousarray(numbers[..., 1]) if kind == "Q4_1" else None
    values: NDArray[Any]
    if kind == "Q8_0":
        values = np.ascontiguousarray(quantized).view(np.int8)
    else:
        values = np.concatenate([quantized & 0x0F, quantized >> 4], axis=-1)
        values = values if kind == "Q4_1" else values.astype(np.int8) - np.int8(8)
    return Blocks(values.reshape(rows.shape[0], -1), np.ascontiguousarray(numbers[..., 0]), minimum)


def unpermute_rows(rows: NDArray[_Element], heads: int) -> NDArray[_Element]:
    """Undo llama.cpp's order of the rows of attn_q and attn_k (weights and biases) of architecture llama.

    There the two halves of a head's rotated dimensions are interleaved; transformers keeps them one after the other.
    `heads` is that of the keys for attn_k. Acts on axis 0 of float rows, raw rows, and block fields alike; raises
    UserError if the rows are no whole pairs for each head.
    """
    if heads < 1 or rows.shape[0] % (2 * heads):
        raise UserError(f"{rows.shape[0]} rows are no whole pairs for each of {heads} heads; the file's head counts are wrong")
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(rows.shape)
