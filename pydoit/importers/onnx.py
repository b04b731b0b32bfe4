"""ONNX files: checked, with static shapes, initializers kept as parameters, translated to Relax."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from pydoit.errors import StageError, UserError
from pydoit.importers import onnx_fold, onnx_ops
from pydoit.importers.imported import Imported, finish
from pydoit.importers.onnx_refuse import refuse_unsupported
from pydoit.importers.spec import ModelSpec
from pydoit.objects import did_you_mean

if TYPE_CHECKING:
    from pydoit.importers import Reference


def load(spec: ModelSpec, folder: Path) -> Imported:
    """Fix the input shapes, fold what depends on shapes alone, and translate; weights keep their ONNX names."""
    model = prepare(spec, folder)
    refuse_unsupported(model)
    from tvm.relax.frontend.onnx import from_onnx

    onnx_fold.inline_constants(model)
    names = {item.name: _identifier(item.name) for item in model.graph.input}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every name that it renames
        with onnx_ops.installed():
            module = _translate(lambda: from_onnx(model, _empty_shapes(model), keep_params_in_input=True))
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    # TVM keeps the initializers' order in the file but not their names
    by_name = dict(zip(arrays, list(module["main"].params)[len(names) :], strict=True))
    weights = {name: arrays[name] for name in sorted(arrays)}
    outputs = [_identifier(item.name) for item in model.graph.output]
    return finish(module, list(names.values()), outputs, weights, by_name)


def reference(spec: ModelSpec, folder: Path) -> Reference:
    """The file as it is in onnxruntime on the CPU; only unwanted outputs are left out."""
    import onnxruntime

    model = _read(folder)
    taken = {_identifier(item.name): item.name for item in _true_inputs(model)}
    given = {_identifier(item.name): item.name for item in model.graph.output}
    wanted = [name for name in given if spec.outputs is None or name in spec.outputs]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    def run(inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        results = session.run([given[name] for name in wanted], {taken[name]: inputs[name] for name in inputs})
        return {name: np.asarray(result) for name, result in zip(wanted, results, strict=True)}

    return run


def prepare(spec: ModelSpec, folder: Path) -> onnx.ModelProto:
    """The checked model with the recipe's shapes, the chosen outputs, and no computation on shapes left."""
    model = _read(folder)
    _fix_inputs(model, spec)
    _choose_outputs(model, spec.outputs)
    try:
        return onnx_fold.fold(model)
    except (onnx.shape_inference.InferenceError, onnx.checker.ValidationError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model.inputs: the declared shapes do not fit the model ({reason}); correct them") from error


def _translate(translate: Callable[[], Any]) -> Any:
    try:
        return translate()
    except UserError:
        raise
    except Exception as error:  # TVM's converters raise whatever their own checks raise
        reason = str(error).strip().splitlines()[-1] if str(error).strip() else type(error).__name__
        raise StageError(f"TVM's ONNX importer cannot translate the model ({reason[:300]}); see the log") from error


def _empty_shapes(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Extents of inputs with an extent of 0, which TVM's importer would take for unknown."""
    found = {}
    for item in model.graph.input:
        dims = item.type.tensor_type.shape.dim
        if dims and all(dim.HasField("dim_value") for dim in dims):
            found[item.name] = [dim.dim_value for dim in dims]
    return found


def _read(folder: Path) -> onnx.ModelProto:
    files = sorted(folder.glob("*.onnx")) or sorted(path for path in folder.iterdir() if path.is_file())
    if len(files) != 1:
        raise UserError(f"model.path: expected one .onnx file in the model's folder, found {len(files)}; name the file")
    try:
        model = onnx.load(files[0])
        onnx.checker.check_model(model)
    except Exception as error:  # protobuf's DecodeError, ValidationError and OSError share no base
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"model.path: {files[0].name!r} is no valid ONNX model ({reason}); export it again") from error
    return model


def _fix_inputs(model: onnx.ModelProto, spec: ModelSpec) -> None:
    known = {_identifier(item.name): item for item in _true_inputs(model)}
    for name in spec.inputs:
        if name not in known:
            raise UserError(f"model.inputs.{name}: the model takes no input {name!r}{did_you_mean(name, known)}")
    for name, item in known.items():
        if name not in spec.inputs:
            raise UserError(f"model.inputs: the model also needs the input {name!r}; add [model.inputs.{name}]")
        _fix_input(name, item, spec.inputs[name].shape, spec.inputs[name].dtype)
    del model.graph.input[:]
    model.graph.input.extend(known.values())


def _fix_input(name: str, item: onnx.ValueInfoProto, shape: tuple[int, ...], dtype: str) -> None:
    tensor = item.type.tensor_type
    expected = str(np.dtype(onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)))
    if dtype != expected:
        raise UserError(f"model.inputs.{name}.dtype: the model takes {expected}, not {dtype}; write {expected!r}")
    found = [dim.dim_value if dim.HasField("dim_value") else None for dim in tensor.shape.dim]
    fits = len(found) == len(shape) and all(f in (None, 0, s) for f, s in zip(found, shape, strict=True))
    if tensor.HasField("shape") and not fits:
        shown = ["?" if extent is None else extent for extent in found]
        raise UserError(f"model.inputs.{name}.shape: the model takes {shown}, not {list(shape)}; make it fit")
    item.CopyFrom(onnx.helper.make_tensor_value_info(item.name, tensor.elem_type, shape))


def _choose_outputs(model: onnx.ModelProto, wanted: tuple[str, ...] | None) -> None:
    known = {_identifier(item.name): item for item in model.graph.output}
    for name in wanted or ():
        if name not in known:
            raise UserError(f"model.outputs: the model has no output {name!r}{did_you_mean(name, known)}")
    chosen = [known[name] for name in wanted or known]
    kept = [onnx.ValueInfoProto.FromString(item.SerializeToString()) for item in chosen]
    del model.graph.output[:]
    model.graph.output.extend(kept)


def _true_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Inputs that the caller gives: old files list initializers among the inputs too."""
    weights = {item.name for item in model.graph.initializer}
    return [item for item in model.graph.input if item.name not in weights]


def _identifier(name: str) -> str:
    """`input:0` -> `input_0`: a name that can be a keyword argument and a TOML key."""
    cleaned = re.sub(r"\W", "_", name)
    return cleaned if not cleaned[:1].isdigit() else f"input_{cleaned}"
