"""A loaded artifact: named numpy arrays in, named numpy arrays out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.dims import mismatch
from pydoit.errors import UserError
from pydoit.runtime import library as runtime_library
from pydoit.runtime.aligned import aligned, map_weights
from pydoit.runtime.exchange import to_array, to_tensor
from pydoit.runtime.manifest import check_weights, read_manifest


@dataclass(frozen=True)
class TensorSpec:
    """Name, extents and element type of one tensor."""

    name: str
    shape: tuple[int | str, ...]
    """A symbolic extent is the name of a dimension, or in outputs an expression of several."""
    dtype: str

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> TensorSpec:
        """From an entry of spec.json or manifest.json."""
        return cls(item["name"], tuple(item["shape"]), item["dtype"])


class Model:
    """A compiled model with its weights; call it with inputs by name.

    `model(x=array)` returns {name: array}. Inputs are used where they lie if they are contiguous and 64-byte aligned,
    else copied once; outputs own their memory. Not for several threads at once: one `session()` a thread.
    """

    def __init__(
        self,
        library: Path,
        weights: Path | Sequence[Path],
        inputs: Sequence[Mapping[str, Any]],
        outputs: Sequence[Mapping[str, Any]],
        params: Sequence[Mapping[str, Any]],
        *,
        dims: Mapping[str, Mapping[str, int]] | None = None,
        entry: str = "main",
        threads: int = 0,
    ) -> None:
        """`inputs`, `outputs`, `params` and `dims` are those of manifest.json; `threads` 0: one for each usable CPU."""
        runtime_library.set_threads(threads)
        self.inputs = tuple(TensorSpec.parse(item) for item in inputs)
        self.outputs = tuple(TensorSpec.parse(item) for item in outputs)
        self.dims = {name: (int(bound["min"]), int(bound["max"])) for name, bound in (dims or {}).items()}
        self.entry = entry
        self._module = runtime_library.load_module(library)
        self._machine = runtime_library.start_machine(self._module)
        self._function = self._machine[entry]
        self._ffi = runtime_library.tvm_ffi()
        files = [weights] if isinstance(weights, Path) else weights
        self._weights = _ordered_weights(files, params, self._ffi)
        runtime_library.prepare(self._module, self._weights, threads)

    def session(self, threads: int = 0) -> Model:
        """The same model for the calling thread, which no other may use: library and weights are shared, workspace is not.

        `threads` is the size of the calling thread's pool; 0: one for each usable CPU.
        """
        runtime_library.set_threads(threads)
        session = copy.copy(self)
        session._machine = runtime_library.start_machine(self._module)  # noqa: SLF001 - a Model too
        session._function = session._machine[self.entry]  # noqa: SLF001
        return session

    def __call__(self, **inputs: NDArray[Any]) -> dict[str, NDArray[Any]]:
        """Run once; raises UserError for an unknown or missing name, a wrong dtype or a wrong shape."""
        results = self.bind(inputs)()
        return {spec.name: to_array(result) for spec, result in zip(self.outputs, results, strict=True)}

    def bind(self, inputs: Mapping[str, NDArray[Any]]) -> Callable[[], Sequence[Any]]:
        """A function that runs the model on `inputs`, checked and converted once (for timing)."""
        arguments = self._arguments(inputs)

        def run() -> Sequence[Any]:
            result = self._function(*arguments)
            return [result] if isinstance(result, self._ffi.Tensor) else result

        return run

    def instrument(self, function: Any) -> None:
        """Let the virtual machine call a packed function before and after each of its calls, from now on.

        It gets (function, name, whether the call begins, result, arguments...).
        """
        self._machine["set_instrument"](function)

    def use_threads(self, count: int) -> None:
        """Run on fewer threads than the model was loaded with; TVM's pool cannot grow again."""
        runtime_library.set_threads(count)
        runtime_library.use_threads(self._module, count)

    def _arguments(self, inputs: Mapping[str, NDArray[Any]]) -> list[Any]:
        known = [spec.name for spec in self.inputs]
        for name in inputs:
            if name not in known:
                raise UserError(f"the model takes no input {name!r}; it takes {', '.join(known)}")
        extents: dict[str, int] = {}
        checked = [_checked(inputs, spec, self.dims, extents) for spec in self.inputs]
        return [to_tensor(aligned(array), self._ffi) for array in checked] + self._weights


def load(path: Path | str, threads: int | None = None) -> Model:
    """Load an artifact folder (lib.so, weights/, manifest.json); raises UserError where it is none or is damaged.

    `threads` is the size of TVM's pool; None takes the manifest's target.threads (0: one for each usable CPU).
    """
    folder = Path(path)
    manifest = read_manifest(folder)
    if "language" in manifest:
        raise UserError(f"{folder} holds a language model; load it with pydoit.runtime.load_text_model")
    return Model(
        folder / manifest["library"]["path"],
        [folder / item["path"] for item in manifest["weights"]],
        manifest["inputs"],
        manifest["outputs"],
        manifest["params"],
        dims=manifest.get("dims"),
        entry=manifest["entry"],
        threads=manifest["target"]["threads"] if threads is None else threads,
    )


def _ordered_weights(files: Sequence[Path], params: Sequence[Mapping[str, Any]], ffi: Any) -> list[Any]:
    tensors: dict[str, NDArray[Any]] = {}
    for file in files:
        try:
            tensors.update(map_weights(file))
        except (OSError, ValueError, KeyError) as error:
            raise UserError(f"{file}: the weights cannot be read ({error}); build or copy them again") from error
    check_weights(tensors, params)
    return [to_tensor(tensors[item["name"]], ffi) for item in params]


def _checked(
    inputs: Mapping[str, NDArray[Any]], spec: TensorSpec, dims: Mapping[str, tuple[int, int]], extents: dict[str, int]
) -> NDArray[Any]:
    if spec.name not in inputs:
        raise UserError(f"the input {spec.name!r} is missing; pass {spec.dtype} {list(spec.shape)}")
    array = np.asarray(inputs[spec.name])
    if str(array.dtype) != spec.dtype:
        raise UserError(f"input {spec.name!r}: dtype is {array.dtype}, not {spec.dtype}; convert it with .astype")
    reason = mismatch(array.shape, spec.shape, dims, extents)
    if reason:
        shapes = f"{list(array.shape)}, not {list(spec.shape)}"
        detail = f" ({reason})" if dims else ""
        raise UserError(f"input {spec.name!r}: shape is {shapes}{detail}; reshape or pad it")
    return array
