"""A language model on an NVIDIA GPU: weights and caches in its memory, steps that end when their logits are on the host."""

from __future__ import annotations

import ctypes
import importlib.util
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.runtime import library as runtime_library
from pydoit.runtime.device import Described, check_names, read_weights
from pydoit.runtime.exchange import numpy_dtype

_CUDA = 2  # DLPack's kDLCUDA
_CPU = 1
_POOLED_ALLOCATOR = 2
RESERVE = 0.05
"""Part of weights and caches that activations and the runtime may take beside them."""


class CudaDevice:
    """The first GPU that the process sees."""

    def __init__(self, library: Path) -> None:
        _load_runtime()
        self._ffi = runtime_library.tvm_ffi()
        self._device = self._ffi.device("cuda", 0)
        self._allocate = self._ffi.get_global_func("runtime.TVMTensorAllocWithScope")
        self._from_bytes = self._ffi.get_global_func("runtime.TVMTensorCopyFromBytes")
        self._to_bytes = self._ffi.get_global_func("runtime.TVMTensorCopyToBytes")
        self._view = self._ffi.get_global_func("runtime.TVMTensorCreateView")
        self._copy = self._ffi.get_global_func("runtime.TVMTensorCopyFromTo")
        self._machine = runtime_library.load_module(library)["vm_load_executable"]()
        self._machine["vm_initialization"](_CUDA, 0, _POOLED_ALLOCATOR, _CPU, 0, _POOLED_ALLOCATOR)
        self._functions: dict[str, Any] = {}
        self._inputs: dict[tuple[int, tuple[int, ...]], Any] = {}
        self._caches: list[tuple[Any, tuple[int, ...], str]] = []

    @property
    def name(self) -> str:
        """What the driver calls the GPU."""
        return _device_name()

    def bind(self, weights: Sequence[Path], names: Sequence[str], caches: Described, params: Described) -> list[Any]:
        """Copy the weights to the GPU and clear the caches; raises UserError, before anything is copied, if they do not fit."""
        tensors = read_weights(weights, params)
        check_names({**tensors, **{item["name"]: None for item in caches}}, names)
        sizes = {item["name"]: math.prod(item["shape"]) * numpy_dtype(item["dtype"]).itemsize for item in caches}
        weight_bytes = sum(array.nbytes for array in tensors.values())
        _check_fit(weight_bytes, sum(sizes.values()))
        bound = {name: self._upload(array) for name, array in tensors.items()}
        for item in caches:
            shape = tuple(item["shape"])
            tensor = self._empty(shape, item["dtype"])
            zeros = np.zeros(sizes[item["name"]], np.uint8)
            self._from_bytes(tensor, ctypes.c_void_p(zeros.ctypes.data), zeros.nbytes)
            bound[item["name"]] = tensor
            self._caches.append((tensor, shape, item["dtype"]))
        return [bound[name] for name in names]

    def call(self, function: str, inputs: Sequence[NDArray[np.int32]], arguments: Sequence[Any]) -> NDArray[np.float32]:
        """Run a function on inputs that are copied to fixed places, and copy its result to the host."""
        if function not in self._functions:
            self._functions[function] = self._machine[function]
        given = [self._place(index, array) for index, array in enumerate(inputs)]
        result = self._functions[function](*given, *arguments)
        host = np.empty(tuple(result.shape), dtype=np.float32)
        self._to_bytes(result, ctypes.c_void_p(host.ctypes.data), host.nbytes)
        return host

    def copy_pages(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole pages of every cache."""
        for source, destination in copies:
            for tensor, shape, dtype in self._caches:
                page = self._ffi.Shape([1, *shape[1:]])
                size = math.prod(shape[1:]) * numpy_dtype(dtype).itemsize
                views = [self._view(tensor, page, self._ffi.dtype(dtype), index * size) for index in (source, destination)]
                self._copy(*views)

    def _empty(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self._allocate(self._ffi.Shape(list(shape)), self._ffi.dtype(dtype), self._device, None)

    def _upload(self, array: NDArray[Any]) -> Any:
        tensor = self._empty(array.shape, str(array.dtype))
        self._from_bytes(tensor, ctypes.c_void_p(array.ctypes.data), array.nbytes)
        return tensor

    def _place(self, index: int, array: NDArray[np.int32]) -> Any:
        key = (index, array.shape)
        if key not in self._inputs:
            self._inputs[key] = self._empty(array.shape, "int32")
        contiguous = np.ascontiguousarray(array)
        self._from_bytes(self._inputs[key], ctypes.c_void_p(contiguous.ctypes.data), contiguous.nbytes)
        return self._inputs[key]


def _load_runtime() -> None:
    """Load TVM's CUDA runtime, which needs the driver and libcudart; raises UserError where they are missing."""
    runtime_library.tvm_ffi()
    package = importlib.util.find_spec("tvm")
    assert package is not None
    assert package.submodule_search_locations is not None
    folder = Path(next(iter(package.submodule_search_locations))) / "lib"
    try:
        ctypes.CDLL(str(folder / "libtvm_runtime_cuda.so"), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise UserError(f"this machine cannot run CUDA code ({error}); install the driver and libcudart") from error


def _device_name() -> str:
    driver = ctypes.CDLL("libcuda.so.1")
    name = ctypes.create_string_buffer(256)
    driver.cuInit(0)
    driver.cuDeviceGetName(name, 256, 0)
    return name.value.decode()


def _check_fit(weights: int, caches: int) -> None:
    runtime = ctypes.CDLL("libcudart.so.13", mode=ctypes.RTLD_GLOBAL)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    if runtime.cudaMemGetInfo(ctypes.byref(free), ctypes.byref(total)) != 0:
        raise UserError("this machine has no usable NVIDIA GPU; check the driver")
    wanted = int((weights + caches) * (1 + RESERVE))
    if wanted > free.value:
        raise UserError(
            f"the model needs {wanted / 2**30:.2f} GiB ({weights / 2**30:.2f} weights, {caches / 2**30:.2f} KV cache, the rest "
            f"activations), the GPU has {free.value / 2**30:.2f} GiB free; lower kv_cache.tokens or use a larger GPU"
        )
