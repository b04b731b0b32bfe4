"""Where a language model runs: its functions, and the memory of weights and caches, on the CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.runtime import library as runtime_library
from pydoit.runtime.aligned import aligned, empty, map_weights
from pydoit.runtime.exchange import numpy_dtype, to_array, to_tensor
from pydoit.runtime.manifest import check_weights

Described = Sequence[Mapping[str, Any]]
"""Tensors as a manifest has them: name, shape, dtype."""


class Device(Protocol):
    """What a language model needs of the place where it runs."""

    @property
    def name(self) -> str:
        """What the hardware calls itself."""

    def bind(self, weights: Sequence[Path], names: Sequence[str], caches: Described, params: Described) -> list[Any]:
        """Weights, checked to be those of `params`, and zeroed caches, by `names`, as the functions take them."""

    def call(self, function: str, inputs: Sequence[NDArray[np.int32]], arguments: Sequence[Any]) -> NDArray[np.float32]:
        """Run a function; its result on the host."""

    def copy_pages(self, copies: Iterable[tuple[int, int]]) -> None:
        """Copy whole pages of every cache: (from, to)."""


def open_device(library: Path, target: Mapping[str, Any], threads: int) -> Device:
    """Load the library for the target's kind of device."""
    if target["kind"] == "cuda":
        from pydoit.runtime.cuda import CudaDevice

        return CudaDevice(library)
    return CpuDevice(library, threads)


def read_weights(files: Sequence[Path], params: Described) -> dict[str, NDArray[Any]]:
    """Tensors of safetensors files by name, mapped; raises UserError for a damaged file, or tensors unlike `params`."""
    tensors: dict[str, NDArray[Any]] = {}
    for file in files:
        try:
            tensors.update(map_weights(file))
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{file}: the weights cannot be read ({error}); build or copy them again") from error
    check_weights(tensors, params)
    return tensors


def check_names(tensors: Mapping[str, Any], names: Sequence[str]) -> None:
    """Raise UserError when a weight is missing."""
    missing = [name for name in names if name not in tensors]
    if missing:
        raise UserError(f"the weights lack {missing[0]!r} and {len(missing) - 1} more; build or copy them again")


class CpuDevice:
    """The CPU: weights stay in the mapped file, caches are arrays."""

    def __init__(self, library: Path, threads: int) -> None:
        runtime_library.set_threads(threads)
        self._ffi = runtime_library.tvm_ffi()
        self._machine = runtime_library.open_machine(library)
        self._functions: dict[str, Any] = {}
        self._caches: list[NDArray[Any]] = []

    @property
    def name(self) -> str:
        return "cpu"

    def bind(self, weights: Sequence[Path], names: Sequence[str], caches: Described, params: Described) -> list[Any]:
        tensors = read_weights(weights, params)
        for item in caches:
            array = empty(tuple(item["shape"]), numpy_dtype(item["dtype"]))
            array.view(np.uint8)[...] = 0
            tensors[item["name"]] = array
            self._caches.append(array)
        check_names(tensors, names)
        return [to_tensor(tensors[name], self._ffi) for name in names]

    def call(self, function: str, inputs: Sequence[NDArray[np.int32]], arguments: Sequence[Any]) -> NDArray[np.float32]:
        if function not in self._functions:
            self._functions[function] = self._machine[function]
        given = [to_tensor(aligned(array), self._ffi) for array in inputs]
        return to_array(self._functions[function](*given, *arguments))

    def instrument(self, function: Any) -> None:
        """Let the virtual machine call a packed function before and after each of its calls, from now on."""
        self._machine["set_instrument"](function)

    def copy_pages(self, copies: Iterable[tuple[int, int]]) -> None:
        for source, destination in copies:
            for cache in self._caches:
                cache[destination] = cache[source]
