"""Own converters of ONNX operators on odd shapes, through the whole chain, against onnx's reference implementation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from chain import results, run_chain
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OPSET = 20
IN_ONNXRUNTIME = ("ConvTranspose", "LpNormalization", "Pad")
Arrays = Mapping[str, np.ndarray[Any, Any]]
GENERATOR = np.random.default_rng(5)


def normal(*shape: int, dtype: str = "float32") -> np.ndarray[Any, Any]:
    return GENERATOR.standard_normal(shape).astype(dtype)


def whole(low: int, high: int, *shape: int, dtype: str = "int32") -> np.ndarray[Any, Any]:
    return GENERATOR.integers(low, high, shape).astype(dtype)


@dataclass(frozen=True)
class Case:
    """A node: its operands (inputs first, then initializers), attributes, how many outputs."""

    operator: str
    inputs: Arrays
    constants: Arrays = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = OPSET
    operands: tuple[str, ...] | None = None
    """Names in the operator's order, "" for one that is not given; none: inputs, then constants."""


def recurrent(gates: int, directions: int = 1, hidden: int = 5) -> dict[str, np.ndarray[Any, Any]]:
    return {
        "w": normal(directions, gates * hidden, 3),
        "r": normal(directions, gates * hidden, hidden),
        "b": normal(directions, 2 * gates * hidden),
    }


CASES: dict[str, Case] = {
    "lstm": Case("LSTM", {"x": normal(4, 2, 3)}, recurrent(4), {"hidden_size": 5}, 3),
    "lstm-peepholes": Case(
        "LSTM",
        {"x": normal(3, 2, 3)},
        recurrent(4) | {"h": normal(1, 2, 5), "c": normal(1, 2, 5), "p": normal(1, 15)},
        {"hidden_size": 5},
        2,
        operands=("x", "w", "r", "b", "", "h", "c", "p"),
    ),
    "gru": Case("GRU", {"x": normal(4, 2, 3)}, recurrent(3), {"hidden_size": 5, "linear_before_reset": 1}, 2),
    "rnn": Case("RNN", {"x": normal(4, 2, 3)}, recurrent(1), {"hidden_size": 5}, 2),
    "resize-nearest": Case(
        "Resize", {"x": normal(1, 2, 5, 7)}, {"s": np.array([1, 2, 8, 9])}, {"mode": "nearest"}, operands=("x", "", "", "s")
    ),
    "resize-cubic": Case(
        "Resize",
        {"x": normal(1, 3, 6, 5)},
        {"s": np.float32([1, 1, 1.7, 0.8])},
        {"mode": "cubic", "exclude_outside": 1},
        operands=("x", "", "s"),
    ),
    "resize-linear": Case(
        "Resize", {"x": normal(1, 3, 6, 5)}, {"s": np.float32([1, 1, 2, 3])}, {"mode": "linear"}, operands=("x", "", "s")
    ),
    "max-pool": Case(
        "MaxPool", {"x": normal(1, 3, 9, 7)}, {}, {"kernel_shape": [3, 2], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 0, 1, 1]}
    ),
    "max-pool-indices": Case("MaxPool", {"x": normal(2, 3, 7, 6)}, {}, {"kernel_shape": [2, 2], "strides": [2, 2]}, 2),
    "max-pool-1d": Case("MaxPool", {"x": normal(2, 3, 11)}, {}, {"kernel_shape": [3], "dilations": [2]}),
    "average-pool": Case(
        "AveragePool", {"x": normal(1, 3, 9, 7)}, {}, {"kernel_shape": [3, 2], "strides": [2, 2], "pads": [1, 0, 1, 1]}
    ),
    "conv-transpose": Case(
        "ConvTranspose",
        {"x": normal(1, 4, 5, 3)},
        {"w": normal(4, 3, 3, 2), "b": normal(6)},
        {"group": 2, "strides": [2, 3], "dilations": [2, 1], "output_padding": [1, 0], "pads": [1, 0, 2, 1]},
    ),
    "pad-reflect": Case("Pad", {"x": normal(3, 5)}, {"p": np.array([1, 2, 0, 3])}, {"mode": "reflect"}),
    "pad-negative": Case("Pad", {"x": whole(0, 9, 3, 5)}, {"p": np.array([-1, 2, 1, -1])}),
    "div-integers": Case("Div", {"a": whole(-20, 20, 3, 7), "b": whole(1, 6, 7)}),
    "mod-integers": Case("Mod", {"a": whole(-20, 20, 3, 7), "b": np.int32([3, -3, 2, -7, 5, 1, 4])}),
    "mod-floats": Case("Mod", {"a": normal(3, 7) * 9, "b": normal(3, 1) * 3}, {}, {"fmod": 1}),
    "pow-integers": Case("Pow", {"a": whole(-5, 5, 3, 7), "b": whole(0, 6, 7)}),
    "bit-shift": Case("BitShift", {"a": whole(0, 200, 5, dtype="uint8"), "b": whole(0, 8, 5, dtype="uint8")}, {}, {"direction": "LEFT"}),
    "one-hot": Case("OneHot", {"i": whole(-4, 4, 2, 3, dtype="int64")}, {"d": np.array(5), "v": np.float32([2, 7])}, {"axis": 1}, operands=("i", "d", "v")),
    "cum-sum": Case("CumSum", {"x": normal(3, 7)}, {"axis": np.array(1)}, {"reverse": 1, "exclusive": 1}),
    "compress": Case("Compress", {"x": normal(3, 4)}, {"c": np.array([True, False, True])}, {"axis": 0}),
    "det": Case("Det", {"x": normal(2, 3, 3)}),
    "dft": Case("DFT", {"x": normal(2, 9, 1)}, {}, {"onesided": 1}),
    "col2im": Case("Col2Im", {"x": normal(1, 12, 20)}, {"i": np.array([5, 6]), "k": np.array([2, 2])}),
    "quantize": Case("QuantizeLinear", {"x": normal(3, 4, 5) * 9}, {"s": np.float32([0.1, 0.3, 0.2, 1]), "z": np.uint8([1, 128, 9, 0])}),
    "dequantize": Case("DequantizeLinear", {"x": whole(0, 255, 3, 4, dtype="uint8")}, {"s": np.float32([0.1, 0.3, 0.2, 1]), "z": np.uint8([1, 128, 9, 0])}),
    "split-empty": Case("Split", {"x": normal(3, 5)}, {"s": np.array([2, 0, 3])}, {"axis": 1}, 3),
    "lp-normalization": Case("LpNormalization", {"x": normal(3, 5)}, {}, {"axis": 0, "p": 1}),
    "eye-like": Case("EyeLike", {"x": normal(3, 5)}, {}, {"k": 1}),
    "reduce-max-bool": Case("ReduceMax", {"x": normal(3, 5) > 0}, {"a": np.array([1])}),
    "reduce-max-infinite": Case("ReduceMax", {"x": np.full((2, 3), -np.inf, np.float32)}, {"a": np.array([1])}),
    "cast-float8": Case("Cast", {"x": normal(3, 5)}, {}, {"to": onnx.TensorProto.FLOAT16}),
    "selu": Case("Selu", {"x": normal(3, 5)}),
    "group-normalization": Case(
        "GroupNormalization", {"x": normal(2, 6, 3)}, {"s": normal(6), "b": normal(6)}, {"num_groups": 2}, opset=21
    ),
    "scalar": Case("Abs", {"x": np.float32(-3)}),
    "empty": Case("Add", {"x": normal(0, 3), "y": normal(3)}),
}  # fmt: skip


def build(case: Case) -> onnx.ModelProto:
    operands = case.operands or (*case.inputs, *case.constants)
    outputs = [f"y{number}" for number in range(case.outputs)]
    graph = helper.make_graph(
        [helper.make_node(case.operator, operands, outputs, **case.attributes)],
        "graph",
        [helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape) for n, a in case.inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in case.constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", case.opset)], ir_version=10)
    inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    for item, array in zip(inferred.graph.output, expect(inferred, case), strict=True):
        item.CopyFrom(helper.make_tensor_value_info(item.name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    return inferred


def expect(model: onnx.ModelProto, case: Case) -> list[np.ndarray[Any, Any]]:
    """The results of onnxruntime where it is stricter or further than onnx's reference implementation, else of that."""
    inputs = {key: np.asarray(array) for key, array in case.inputs.items()}
    if case.operator in IN_ONNXRUNTIME:
        return onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs)
    return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, inputs)]


@pytest.mark.parametrize("name", CASES)
def test_converter(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    model = build(case)
    folder = tmp_path / "fetch" / "model"
    folder.mkdir(parents=True)
    onnx.save(model, folder / "model.onnx")
    inputs = {key: {"shape": array.shape, "dtype": str(array.dtype)} for key, array in case.inputs.items()}
    out = run_chain({"source": "onnx", "inputs": inputs}, tmp_path)
    found = results(out, **{key: np.asarray(array) for key, array in case.inputs.items()})
    for actual, wanted in zip(found.values(), expect(model, case), strict=True):
        assert actual.dtype == wanted.dtype
        # at most some hundred float32 terms of size about 10
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)
