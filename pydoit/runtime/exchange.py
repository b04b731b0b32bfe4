"""NumPy arrays to TVM's tensors and back without a copy, for element types that NumPy's DLPack does not know too."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
"""DLPack's type codes (dlpack.h) of ml_dtypes' types."""
_UNSIGNED = 1
_CODE_OFFSET = 20
"""Bytes before DLTensor.dtype.code: a pointer, a device of two int32, an int32 rank."""
_STRIDES_OFFSET = 32
"""Bytes before DLTensor.strides: the above, four bytes of type, the pointer to the extents."""


def numpy_dtype(name: str) -> np.dtype[Any]:
    """NumPy's type of that name; bfloat16 and float8 come from ml_dtypes, imported only for them."""
    if name in _CODES:
        import ml_dtypes

        found: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return found
    return np.dtype(name)


def to_tensor(array: NDArray[Any], ffi: Any) -> Any:
    """The array's memory as a tensor of `ffi` (the tvm_ffi module); the array must be contiguous and writable."""
    code = _CODES.get(str(array.dtype))
    if code is None and array.size:
        return ffi.from_dlpack(array)
    return ffi.from_dlpack(_Relabelled(array if code is None else array.view(f"u{array.itemsize}"), code))


def to_array(tensor: Any) -> NDArray[Any]:
    """The tensor's memory as an array that keeps it alive."""
    name = str(tensor.dtype)
    if name not in _CODES:
        return np.from_dlpack(tensor)
    return np.from_dlpack(_Relabelled(tensor, _UNSIGNED)).view(numpy_dtype(name))


class _Relabelled:
    """Gives out another object's DLPack capsule with another type code of the same width, empty ones without strides."""

    def __init__(self, source: Any, code: int | None) -> None:
        self.source = source
        self.code = code

    def __dlpack__(self, **_options: Any) -> Any:
        capsule = self.source.__dlpack__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        address = pointer(capsule, b"dltensor")
        if self.code is not None:
            ctypes.c_uint8.from_address(address + _CODE_OFFSET).value = self.code
        if 0 in getattr(self.source, "shape", ()):  # NumPy's strides of an empty array are not those that TVM checks for
            ctypes.c_void_p.from_address(address + _STRIDES_OFFSET).value = None
        return capsule

    def __dlpack_device__(self) -> Any:
        return self.source.__dlpack_device__()
