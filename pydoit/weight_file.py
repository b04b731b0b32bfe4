"""Writes safetensors files whose tensors lie aligned, so that a loader can map them instead of copying them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ALIGNMENT = 64
"""Bytes; TVM's kernels assume that every buffer starts at a multiple of this."""
_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
    "float8_e8m0fnu": "F8_E8M0",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}


def write(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write `tensors`; the same ones give the same bytes.

    The format allows no gaps, but any order: tensors whose size is a multiple of 64 bytes come first, the rest sorted
    by falling element size; the header is padded with spaces to 64 bytes. Both are within the safetensors format.
    """
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    order = sorted(arrays, key=lambda name: (arrays[name].nbytes % ALIGNMENT != 0, -arrays[name].itemsize, name))
    header: dict[str, Any] = {}
    offset = 0
    for name in order:
        array = arrays[name]
        end = offset + array.nbytes
        header[name] = {"dtype": _DTYPES[str(array.dtype)], "shape": list(array.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(arrays[name].reshape(-1).view(np.uint8).data)
