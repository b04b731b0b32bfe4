"""The ONNX importer: shapes, folding, names, and messages for files that do not fit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pydoit import importers
from pydoit.errors import UserError
from pydoit.importers import import_report, onnx_fold, onnx_refuse
from pydoit.importers.spec import ModelSpec

WEIGHT = np.arange(12, dtype=np.float32).reshape(4, 3) / 10


def write(folder: Path, nodes: Sequence[onnx.NodeProto], weights: dict[str, np.ndarray[Any, Any]]) -> Path:
    """A file that takes `x:0` [N, 2, 2] and returns `y`."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x:0", TensorProto.FLOAT, ["N", 2, 2])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", "M"])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    return folder


def classifier(folder: Path) -> Path:
    """Flattens by shape arithmetic, as PyTorch's exporter writes it, then a dense layer."""
    nodes = [
        helper.make_node("Shape", ["x:0"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["batch"]),
        helper.make_node("Unsqueeze", ["batch", "axis"], ["batch_1d"]),
        helper.make_node("Concat", ["batch_1d", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x:0", "wanted"], ["flat"]),
        helper.make_node("MatMul", ["flat", "dense.weight"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axis": np.array([0]), "rest": np.array([-1])}
    return write(folder, nodes, {"dense.weight": WEIGHT, **constants})


def spec(**changes: Any) -> ModelSpec:
    inputs = {"x_0": {"shape": [2, 2, 2], "dtype": "float32"}}
    return ModelSpec.model_validate({"source": "onnx", "inputs": inputs, **changes})


def test_shape_arithmetic_is_folded_and_weights_stay_parameters(tmp_path: Path) -> None:
    imported = importers.load(spec(), classifier(tmp_path))
    assert list(imported.params) == ["dense.weight"]
    np.testing.assert_array_equal(imported.params["dense.weight"], WEIGHT)
    assert imported.spec()["inputs"] == [{"name": "x_0", "shape": [2, 2, 2], "dtype": "float32"}]
    assert imported.spec()["outputs"] == [{"name": "y", "shape": [2, 3], "dtype": "float32"}]
    assert imported.operators() == {"relax.matmul": 1, "relax.nn.relu": 1, "relax.reshape": 1}


def test_folding_leaves_no_shape_operator(tmp_path: Path) -> None:
    model = onnx.load(classifier(tmp_path) / "model.onnx")
    for dim, extent in zip(model.graph.input[0].type.tensor_type.shape.dim, (2, 2, 2), strict=True):
        dim.dim_value = extent
    folded = onnx_fold.fold(model)
    assert [node.op_type for node in folded.graph.node] == ["Reshape", "MatMul", "Relu"]
    assert "rest" not in {item.name for item in folded.graph.initializer}


def test_weights_in_constant_nodes_become_parameters_and_scalars_do_not(tmp_path: Path) -> None:
    large = np.arange(8192, dtype=np.float32).reshape(2, 4096) / 8192
    nodes = [
        helper.make_node("Constant", [], ["w"], value=numpy_helper.from_array(large)),
        helper.make_node("Constant", [], ["half"], value=numpy_helper.from_array(np.float32([0.5]))),
        helper.make_node("MatMul", ["x:0", "w"], ["product"]),
        helper.make_node("Mul", ["product", "half"], ["y"]),
    ]
    write(tmp_path, nodes, {})
    model = onnx.load(tmp_path / "model.onnx")
    del model.graph.output[0].type.tensor_type.shape.dim[:]
    for extent in ("N", "M", "K"):
        model.graph.output[0].type.tensor_type.shape.dim.add().dim_param = extent
    onnx.save(model, tmp_path / "model.onnx")
    imported = importers.load(spec(), tmp_path)
    assert list(imported.params) == ["w"]
    assert imported.spec()["outputs"][0]["shape"] == [2, 2, 4096]


def test_the_reference_runs_the_file(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 8, dtype=np.float32).reshape(2, 2, 2)
    outputs = importers.reference(spec(), classifier(tmp_path))({"x_0": x})
    # 4-long float32 sums of values near 1
    np.testing.assert_allclose(outputs["y"], np.maximum(x.reshape(2, 4) @ WEIGHT, 0), atol=1e-6)


def test_all_unsupported_operators_are_listed_with_counts(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x:0"], ["d"], name="noise"),
        helper.make_node("Fancy", ["x:0"], ["m"], name="first", domain="com.example"),
        helper.make_node("Fancy", ["m"], ["n"], domain="com.example"),
        helper.make_node("Abs", ["d"], ["y"]),
    ]
    write(tmp_path, nodes, {})
    model = onnx.load(tmp_path / "model.onnx")
    message = str(import_report.error_of(onnx_refuse.unsupported(model)))
    assert "RandomNormalLike (1) at noise: its result is random: replace it by an input" in message
    assert "com.example.Fancy (2) at first, n: export the model without it" in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"inputs": {"x": {"shape": [2, 2, 2], "dtype": "float32"}}}, "model.inputs.x: the model takes no input 'x'"),
        ({"inputs": {}}, "also needs the input 'x_0'"),
        ({"inputs": {"x_0": {"shape": [2, 4], "dtype": "float32"}}}, "takes ['?', 2, 2], not [2, 4]"),
        ({"inputs": {"x_0": {"shape": [2, 2, 3], "dtype": "float32"}}}, "takes ['?', 2, 2], not [2, 2, 3]"),
        ({"inputs": {"x_0": {"shape": [2, 2, 2], "dtype": "int64"}}}, "takes float32, not int64"),
        ({"outputs": ["z"]}, "model.outputs: the model has no output 'z'"),
    ],
)
def test_specs_that_do_not_fit(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        importers.load(spec(**changes), classifier(tmp_path))
    assert message in str(caught.value)


def test_files_that_are_no_onnx(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"expected one .onnx file"):
        importers.load(spec(), tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"this is no protobuf")
    with pytest.raises(UserError, match=r"'model.onnx' is no valid ONNX model"):
        importers.load(spec(), tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"")
    with pytest.raises(UserError, match=r"'model.onnx' is no valid ONNX model"):
        importers.load(spec(), tmp_path)
