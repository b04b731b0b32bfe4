"""Writes safetensors files whose tensors lie aligned, so that a loader can map them instead of copying them."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

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


class Piece(NamedTuple):
    """Values of a tensor, all of them or those that begin at `first` on its first axis."""

    name: str
    values: NDArray[Any]
    first: int = 0


def write(path: Path, tensors: Mapping[str, NDArray[Any]]) -> None:
    """Write `tensors`; the same ones give the same bytes."""
    arrays = {name: np.ascontiguousarray(array).reshape(array.shape) for name, array in tensors.items()}
    described = [{"name": name, "shape": array.shape, "dtype": str(array.dtype)} for name, array in arrays.items()]
    stream(path, described, (Piece(name, array) for name, array in arrays.items()))


def stream(path: Path, described: Iterable[Mapping[str, Any]], pieces: Iterable[Piece]) -> None:
    """Write tensors, or pieces of them, as they come, at the place that name, shape and dtype in `described` give them.

    The format allows no gaps, but any order: tensors whose size is a multiple of 64 bytes come first, the rest sorted
    by falling element size; the header is padded with spaces to 64 bytes. Both are within the safetensors format.
    """
    known = {item["name"]: (tuple(item["shape"]), str(item["dtype"])) for item in described}
    places, header = _lay_out(known)
    lacking = {name: math.prod(shape) for name, (shape, _) in known.items()}
    with path.open("wb") as file:
        file.write(header)
        for name, values, first in pieces:
            shape, dtype = known[name]
            row = values.nbytes // max(1, len(values)) if values.ndim else 0
            fits = values.ndim == len(shape) and values.shape[1:] == shape[1:] and str(values.dtype) == dtype
            if not fits or (shape and first + len(values) > shape[0]):
                raise ValueError(f"{name} is {values.dtype} {values.shape} from {first} on, not {dtype} {shape}")
            file.seek(len(header) + places[name] + first * row)
            file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
            lacking[name] -= values.size
    never = [name for name, count in lacking.items() if count]
    if never:
        raise ValueError(f"{', '.join(never)} never came whole")


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
