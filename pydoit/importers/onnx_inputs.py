"""An ONNX file's inputs and outputs as the recipe wants them: shapes, constants, and the outputs to keep."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.importers.spec import Input, ModelSpec
from pydoit.objects import did_you_mean


def fix_inputs(model: onnx.ModelProto, spec: ModelSpec) -> None:
    """Give the inputs the recipe's shapes, and make its constants initializers.

    A symbolic dimension becomes a `dim_param` of the recipe's name. Raises UserError for an input that is unknown, left
    out, of another element type, or of a shape that the file does not allow.
    """
    known = {identifier(item.name): item for item in true_inputs(model)}
    for key in ("inputs", "constants"):
        for name in getattr(spec, key):
            if name not in known:
                raise UserError(f"model.{key}.{name}: the model takes no input {name!r}{did_you_mean(name, known)}")
    for name, item in known.items():
        if name in spec.constants:
            array = constant_array(item, spec.constants[name])
            model.graph.initializer.append(onnx.numpy_helper.from_array(array, item.name))
        elif name in spec.inputs:
            _fix_input(name, item, spec.inputs[name])
        else:
            raise UserError(f"model.inputs: the model also needs the input {name!r}; add [model.inputs.{name}]")
    del model.graph.input[:]
    model.graph.input.extend(item for name, item in known.items() if name in spec.inputs)


def choose_outputs(model: onnx.ModelProto, wanted: Sequence[str] | None) -> None:
    """Keep the outputs that the recipe names, in its order; all of them where it names none."""
    known = {identifier(item.name): item for item in model.graph.output}
    for name in wanted or ():
        if name not in known:
            raise UserError(f"model.outputs: the model has no output {name!r}{did_you_mean(name, known)}")
    chosen = [known[name] for name in wanted or known]
    kept = [onnx.ValueInfoProto.FromString(item.SerializeToString()) for item in chosen]
    for item in kept:  # the shapes follow from the inputs; files give -1 or another batch for them
        item.type.tensor_type.ClearField("shape")
    del model.graph.output[:]
    model.graph.output.extend(kept)


def constant_array(item: onnx.ValueInfoProto, value: bool | int | float | str) -> NDArray[Any]:
    """A recipe's constant as the tensor that the input takes: all its elements are the value.

    Raises UserError where the input's shape is not known or its element type cannot hold the value.
    """
    name = identifier(item.name)
    tensor = item.type.tensor_type
    dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    if any(extent < 1 for extent in shape):
        raise UserError(f"model.constants.{name}: the input's shape is not fixed; declare it as [model.inputs.{name}]")
    array = np.full(shape, value).astype(dtype) if not isinstance(value, str) else None
    if array is None or not np.array_equal(array.astype(np.float64), np.full(shape, value, dtype=np.float64)):
        raise UserError(f"model.constants.{name}: the model takes {np.dtype(dtype)}, not {value!r}; write such a value")
    return array


def true_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that the caller gives: old files list initializers among the inputs too."""
    weights = {item.name for item in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in weights]


def identifier(name: str) -> str:
    """`input:0` -> `input_0`: a name that can be a keyword argument and a TOML key."""
    cleaned = re.sub(r"\W", "_", name)
    return cleaned if not cleaned[:1].isdigit() else f"input_{cleaned}"


def _fix_input(name: str, item: onnx.ValueInfoProto, declared: Input) -> None:
    tensor = item.type.tensor_type
    expected = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
    if declared.dtype != expected:
        raise UserError(f"model.inputs.{name}.dtype: the model takes {expected}, not {declared.dtype}; write {expected!r}")
    found = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    fits = len(found) == len(declared.shape) and all(f in (None, 0, -1, s) for f, s in zip(found, declared.shape, strict=True))
    if tensor.HasField("shape") and not fits:
        shown = ["?" if extent is None else extent for extent in found]
        raise UserError(f"model.inputs.{name}.shape: the model takes {shown}, not {list(declared.shape)}; make it fit")
    item.CopyFrom(onnx.helper.make_tensor_value_info(item.name, tensor.elem_type, declared.shape))
