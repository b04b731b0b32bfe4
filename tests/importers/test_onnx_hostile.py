"""Damaged and hostile ONNX files are refused by a UserError, quickly and without much memory."""

from __future__ import annotations

import io
import resource
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from pydoit import importers
from pydoit.errors import StageError, UserError
from pydoit.importers.spec import ModelSpec

SPEC = ModelSpec.model_validate({"source": "onnx", "inputs": {"x": {"shape": [2, 3], "dtype": "float32"}}})


@pytest.fixture(autouse=True)
def limited() -> Iterator[None]:
    """No test may take more than 1 GB beyond what the process has."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**20  # kilobytes


def model(*nodes: onnx.NodeProto, initializers: tuple[TensorProto, ...] = ()) -> onnx.ModelProto:
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        list(initializers),
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def refused(folder: Path, data: bytes) -> str:
    (folder / "model.onnx").write_bytes(data)
    with pytest.raises((UserError, StageError)) as caught:
        importers.load(SPEC, folder)
    return str(caught.value)


def valid() -> onnx.ModelProto:
    weight = numpy_helper.from_array(np.ones((3, 4), np.float32), "w")
    return model(helper.make_node("MatMul", ["x", "w"], ["y"]), initializers=(weight,))


@pytest.mark.parametrize("part", [0.1, 0.3, 0.5, 0.8, 0.97])
def test_cut_off_files(tmp_path: Path, part: float) -> None:
    data = valid().SerializeToString()
    refused(tmp_path, data[: int(len(data) * part)])


def test_a_zip_bomb_is_no_model(tmp_path: Path) -> None:
    memory = io.BytesIO()
    with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("model.onnx", b"\0" * 50_000_000)
    assert "no valid ONNX model" in refused(tmp_path, memory.getvalue())


def cycle() -> onnx.ModelProto:
    return model(
        helper.make_node("Add", ["x", "b"], ["a"]), helper.make_node("Abs", ["a"], ["b"]), helper.make_node("Abs", ["b"], ["y"])
    )


def huge_fill() -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([2**20, 2**20]), "s")
    return model(helper.make_node("ConstantOfShape", ["s"], ["y"]), initializers=(shape,))


def huge_expand() -> onnx.ModelProto:
    shape = numpy_helper.from_array(np.array([2**20, 2**20, 2, 3]), "s")
    return model(helper.make_node("Expand", ["x", "s"], ["y"]), initializers=(shape,))


def huge_weight() -> onnx.ModelProto:
    return model(
        helper.make_node("MatMul", ["x", "w"], ["y"]), initializers=(TensorProto(name="w", data_type=1, dims=[2**40, 4]),)
    )


def negative_weight() -> onnx.ModelProto:
    return model(
        helper.make_node("MatMul", ["x", "w"], ["y"]), initializers=(TensorProto(name="w", data_type=1, dims=[-3, 4]),)
    )


def outside() -> onnx.ModelProto:
    weight = TensorProto(name="w", data_type=1, dims=[3, 4], data_location=TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../secret.bin")
    return model(helper.make_node("MatMul", ["x", "w"], ["y"]), initializers=(weight,))


def long_loop() -> onnx.ModelProto:
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["s", "s"], ["t"])],
        "body",
        [
            helper.make_tensor_value_info("i", TensorProto.INT64, []),
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 3]),
        ],
        [
            helper.make_tensor_value_info("d", TensorProto.BOOL, []),
            helper.make_tensor_value_info("t", TensorProto.FLOAT, [2, 3]),
        ],
    )
    trips = numpy_helper.from_array(np.array(10**12), "m")
    return model(helper.make_node("Loop", ["m", "", "x"], ["y"], body=body), initializers=(trips,))


@pytest.mark.parametrize("make", [cycle, huge_fill, huge_expand, huge_weight, negative_weight, outside, long_loop])
def test_hostile_models(tmp_path: Path, make: Callable[[], onnx.ModelProto]) -> None:
    (tmp_path / "secret.bin").write_bytes(b"\0" * 48)
    (tmp_path / "model").mkdir()
    refused(tmp_path / "model", make().SerializeToString())


def test_functions_that_call_each_other(tmp_path: Path) -> None:
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    first = helper.make_function("own", "F", ["a"], ["b"], [helper.make_node("G", ["a"], ["b"], domain="own")], opset)
    second = helper.make_function("own", "G", ["a"], ["b"], [helper.make_node("F", ["a"], ["b"], domain="own")], opset)
    circular = model(helper.make_node("F", ["x"], ["y"], domain="own"))
    circular.functions.extend([first, second])
    circular.opset_import.extend([helper.make_opsetid("own", 1)])
    refused(tmp_path, circular.SerializeToString())
