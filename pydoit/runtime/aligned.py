"""Arrays at the alignment that TVM's kernels assume, and weights mapped from a safetensors file."""

from __future__ import annotations

import json
import math
import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.runtime.exchange import numpy_dtype

MAX_HEADER_BYTES = 100_000_000
"""As the safetensors library has it."""
ALIGNMENT = 64
"""Bytes; TVM's kernels use aligned vector loads, and a misaligned buffer is a crash."""
_DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "F8_E8M0": "float8_e8m0fnu",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U64": "uint64",
    "U32": "uint32",
    "U16": "uint16",
    "U8": "uint8",
    "BOOL": "bool",
}


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """`array` itself where it is contiguous, aligned and writable, else such a copy."""
    if array.flags.c_contiguous and array.flags.writeable and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialized array whose first element lies at a multiple of 64 bytes."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, dtype=np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size].view(dtype).reshape(shape)


def map_weights(path: Path) -> dict[str, NDArray[Any]]:
    """Tensors by name, mapped privately from a safetensors file; only those that lie misaligned are copied.

    Raises ValueError for a file that is damaged or no safetensors.
    """
    with path.open("rb") as file:
        memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    header_size = int.from_bytes(memory[:8], "little")
    if header_size > min(len(memory) - 8, MAX_HEADER_BYTES):
        raise ValueError(f"{path.name} is no safetensors file or is cut off")
    try:
        header = json.loads(memory[8 : 8 + header_size])
        data = np.frombuffer(memory, dtype=np.uint8)[8 + header_size :]
        return {name: aligned(_view(data, name, item)) for name, item in header.items() if name != "__metadata__"}
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{path.name} has a malformed header ({type(error).__name__}: {error})") from None


def _view(data: NDArray[Any], name: str, item: Any) -> NDArray[Any]:
    """One tensor's bytes by its entry in the header; ValueError unless they lie within the file and have its size."""
    first, last = item["data_offsets"]
    dtype, shape = numpy_dtype(_DTYPES[item["dtype"]]), item["shape"]
    if not all(type(number) is int and number >= 0 for number in (first, last, *shape)):
        raise ValueError(f"{name!r} has an extent or a place that is no natural number")
    if last > data.size or last - first != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"{name!r} lies past the end of the file or has another size; the file is cut off or damaged")
    return data[first:last].view(dtype).reshape(shape)
