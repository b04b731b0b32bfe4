"""ONNX files: checked, with static shapes, initializers kept as parameters, translated to Relax."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from pydoit.errors import StageError, UserError
from pydoit.importers import import_report, onnx_fold, onnx_ops, onnx_opset, onnx_refuse
from pydoit.importers.imported import Imported, finish
from pydoit.importers.onnx_inputs import choose_outputs, constant_array, fix_inputs, identifier, true_inputs
from pydoit.importers.spec import ModelSpec

if TYPE_CHECKING:
    from pydoit.importers import Reference


def load(spec: ModelSpec, folder: Path) -> Imported:
    """Fix the input shapes, fold what depends on shapes alone, and translate; weights keep their ONNX names."""
    model = prepare(spec, folder)
    missing = onnx_refuse.unsupported(model)
    if missing:
        raise import_report.error_of(missing)
    from tvm.relax.frontend.onnx import from_onnx

    onnx_fold.inline_constants(model)
    names = {item.name: identifier(item.name) for item in model.graph.input}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns of every name that it renames
        with onnx_ops.installed():
            module = _translate(lambda: from_onnx(model, _empty_shapes(model), keep_params_in_input=True))
    arrays = {item.name: onnx.numpy_helper.to_array(item) for item in model.graph.initializer}
    # TVM keeps the initializers' order in the file but not their names
    by_name = dict(zip(arrays, list(module["main"].params)[len(names) :], strict=True))
    weights = {name: arrays[name] for name in sorted(arrays)}
    outputs = [identifier(item.name) for item in model.graph.output]
    return finish(module, list(names.values()), outputs, weights, by_name, spec)


def reference(spec: ModelSpec, folder: Path) -> Reference:
    """The file as it is in onnxruntime on the CPU; only unwanted outputs are left out."""
    import onnxruntime

    model = _read(folder)
    taken = {identifier(item.name): item for item in true_inputs(model)}
    bound = {taken[name].name: constant_array(taken[name], value) for name, value in spec.constants.items()}
    given = {identifier(item.name): item.name for item in model.graph.output}
    wanted = [name for name in given if spec.outputs is None or name in spec.outputs]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])

    def run(inputs: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        fed = {**bound, **{taken[name].name: array for name, array in inputs.items()}}
        results = session.run([given[name] for name in wanted], fed)
        return {name: np.asarray(result) for name, result in zip(wanted, results, strict=True)}

    return run


def unsupported(spec: ModelSpec, folder: Path) -> list[import_report.Unsupported]:
    """Every operator of the file that cannot be imported."""
    return onnx_refuse.unsupported(prepare(spec, folder))


def prepare(spec: ModelSpec, folder: Path) -> onnx.ModelProto:
    """The checked model with the recipe's shapes, the chosen outputs, and no computation on shapes left."""
    model = onnx_opset.upgrade(_read(folder))
    fix_inputs(model, spec)
    choose_outputs(model, spec.outputs)
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
