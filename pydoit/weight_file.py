"""Writes safetensors files whose tensors lie aligned, so that a loader can map them instead of copying them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.runtime.exchange import numpy_dtype

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
    """Write `tensors`; the same ones give the same bytes."""
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    described = [{"name": name, "shape": array.shape, "dtype": str(array.dtype)} for name, array in arrays.items()]
    stream(path, described, arrays.items())


def stream(path: Path, described: Iterable[Mapping[str, Any]], tensors: Iterable[tuple[str, NDArray[Any]]]) -> None:
    """Write tensors as they come, each at the place that its name, shape and dtype in `described` give it.

    The format allows no gaps, but any order: tensors whose size is a multiple of 64 bytes come first, the rest sorted
    by falling element size; the header is padded with spaces to 64 bytes. Both are within the safetensors format.
    """
    known = {item["name"]: (tuple(item["shape"]), str(item["dtype"])) for item in described}
    places, header = _lay_out(known)
    with path.open("wb") as file:
        file.write(header)
        for name, array in tensors:
            if (array.shape, str(array.dtype)) != known[name]:
                raise ValueError(f"{name} is {array.dtype} {array.shape}, not {known[name]}")
            file.seek(len(header) + places.pop(name))
            file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    if places:
        raise ValueError(f"{', '.join(places)} never came")


def _lay_out(known: Mapping[str, tuple[tuple[int, ...], str]]) -> tuple[dict[str, int], bytes]:
    """Offset of each tensor in the data, and the file's header."""
    widths = {name: numpy_dtype(dtype).itemsize for name, (_, dtype) in known.items()}
    sizes = {name: math.prod(shape) * widths[name] for name, (shape, _) in known.items()}
    places: dict[str, int] = {}
    header: dict[str, Any] = {}
    offset = 0
    for name in sorted(known, key=lambda name: (sizes[name] % ALIGNMENT != 0, -widths[name], name)):
        shape, dtype = known[name]
        places[name] = offset
        header[name] = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [offset, offset + sizes[name]]}
        offset += sizes[name]
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % ALIGNMENT)
    return places, len(text).to_bytes(8, "little") + text
