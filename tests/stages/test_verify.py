"""verify on compiled small models: it passes, and each way of being wrong fails with a name and a number."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from small_models import CPU, SMALL_NET, build

from pydoit import weight_file
from pydoit.errors import GateError, UserError
from pydoit.stages import verify


@pytest.fixture(scope="module")
def stages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(SMALL_NET, tmp_path_factory.mktemp("small"))


def spec(**changes: Any) -> verify.Spec:
    return verify.Spec.model_validate({"model": SMALL_NET, "samples": 4, "target": CPU, **changes})


def test_a_right_model_passes(stages: dict[str, Path], tmp_path: Path) -> None:
    measured = verify.run(spec(), stages, tmp_path)
    assert measured["passed"]
    assert measured["reference"] == "torch"
    assert (measured["samples"], measured["distinct_outputs"]) == (4, 4)
    # float32 sums of 27 products of values near 1
    assert measured["max_abs"] < 1e-5
    assert measured["cosine"] > 0.999999
    assert set(measured["outputs"]) == {"features", "logits"}


def test_a_changed_weight_fails(stages: dict[str, Path], tmp_path: Path) -> None:
    changed = load_file(stages["weights"] / "model.safetensors")
    changed["classifier.bias"] = changed["classifier.bias"] + np.float32(0.01)
    weight_file.write(tmp_path / "model.safetensors", changed)
    with pytest.raises(GateError, match=r"max_abs is 0\.0\d+, above 0\.001 \(output 'logits', sample \d\)") as caught:
        verify.run(spec(), {**stages, "weights": tmp_path}, tmp_path)
    assert not caught.value.measurements["passed"]
    assert caught.value.measurements["outputs"]["features"]["max_abs"] < 1e-5
    loose = spec(tolerance={"max_abs": 1.0, "cosine": 0.5})
    assert verify.run(loose, {**stages, "weights": tmp_path}, tmp_path)["passed"]


def test_nan_fails_whatever_the_tolerance(stages: dict[str, Path], tmp_path: Path) -> None:
    changed = load_file(stages["weights"] / "model.safetensors")
    changed["classifier.bias"] = np.full_like(changed["classifier.bias"], np.nan)
    weight_file.write(tmp_path / "model.safetensors", changed)
    with pytest.raises(GateError, match="NaN or infinite"):
        verify.run(spec(tolerance={"max_abs": None, "cosine": None}), {**stages, "weights": tmp_path}, tmp_path)


def test_outputs_that_never_differ_prove_nothing(tmp_path: Path) -> None:
    model = {"source": "torch", "factory": "small_models:constant", "inputs": {"x": {"shape": [4], "dtype": "float32"}}}
    with pytest.raises(GateError, match="one output for all 4 inputs, so the check proves nothing"):
        verify.run(spec(model=model), build(model, tmp_path), tmp_path)


def test_a_file_of_inputs(stages: dict[str, Path], tmp_path: Path) -> None:
    images = np.random.default_rng(0).normal(size=(3, 1, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "inputs.npz", image=images, scale=np.ones((3, 1, 1), np.float32))
    inputs = {**stages, "dataset": tmp_path / "inputs.npz"}
    assert verify.run(spec(samples=3, dataset="file"), inputs, tmp_path)["distinct_outputs"] == 3


def test_inputs_of_another_model_are_a_users_mistake(stages: dict[str, Path], tmp_path: Path) -> None:
    inputs = {**SMALL_NET["inputs"], "image": {"shape": [1, 3, 4, 4], "dtype": "float32"}}
    with pytest.raises(UserError, match=r"input 'image': shape is \[1, 3, 4, 4\], not \[1, 3, 8, 8\]"):
        verify.run(spec(model={**SMALL_NET, "inputs": inputs}), stages, tmp_path)


def test_onnx_is_compared_with_onnxruntime(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.arange(12, dtype=np.float32).reshape(4, 3) / 10, "weight")
    nodes = [helper.make_node("MatMul", ["x", "weight"], ["p"]), helper.make_node("Softmax", ["p"], ["y"])]
    taken = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 4])
    given = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 3])
    graph = helper.make_graph(nodes, "graph", [taken], [given], [weight])
    fetched = tmp_path / "fetched"
    (fetched / "model").mkdir(parents=True)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), fetched / "model/m.onnx")
    model = {"source": "onnx", "inputs": {"x": {"shape": [2, 4], "dtype": "float32"}}}
    measured = verify.run(spec(model=model), build(model, tmp_path / "b", fetched), tmp_path)
    assert measured["reference"] == "onnxruntime"
    # softmax in float32: some units in the last place of 1
    assert measured["max_abs"] < 1e-6


def test_a_library_of_another_model_is_named(stages: dict[str, Path], tmp_path: Path) -> None:
    shutil.copytree(stages["weights"], tmp_path / "weights")
    tensors = load_file(tmp_path / "weights/model.safetensors")
    del tensors["norm.weight"]
    weight_file.write(tmp_path / "weights/model.safetensors", tensors)
    with pytest.raises(UserError, match=r"the weights lack 'norm.weight'"):
        verify.run(spec(), {**stages, "weights": tmp_path / "weights"}, tmp_path)
