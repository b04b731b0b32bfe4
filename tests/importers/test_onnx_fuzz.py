"""Random small ONNX graphs: compiled results match onnxruntime's, or the model is refused by a clear error."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import onnxruntime
from chain import results, run_chain
from onnx import TensorProto, helper, numpy_helper

from pydoit.errors import StageError, UserError

Step = Callable[["Graph"], None]
UNARY = (
    "Abs",
    "Neg",
    "Relu",
    "Sigmoid",
    "Tanh",
    "Exp",
    "Elu",
    "Selu",
    "Softplus",
    "HardSwish",
    "Floor",
    "Round",
    "Erf",
    "Softmax",
)
BINARY = ("Add", "Sub", "Mul", "Max", "Min")
REDUCTIONS = ("ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp")


class Graph:
    """Nodes in a chain; each reads the last result, and some the input again."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[TensorProto] = []
        self.last = "x"

    def add(self, operator: str, *operands: str, **attributes: Any) -> None:
        result = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, [self.last, *operands], [result], **attributes))
        self.last = result

    def constant(self, array: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name


def steps() -> st.SearchStrategy[list[Step]]:
    unary = st.sampled_from(UNARY).map(lambda op: lambda g: g.add(op))
    binary = st.tuples(st.sampled_from(BINARY), st.floats(-2, 2, width=32)).map(
        lambda p: lambda g: g.add(p[0], g.constant(np.float32(p[1])))
    )
    reduction = st.tuples(st.sampled_from(REDUCTIONS), st.integers(-1, 0)).map(
        lambda p: lambda g: g.add(p[0], g.constant(np.array([p[1]])), keepdims=1)
    )
    flat = st.just(lambda g: g.add("Reshape", g.constant(np.array([1, -1]))))
    turned = st.just(lambda g: g.add("Transpose"))
    padded = st.tuples(st.sampled_from(["constant", "edge", "reflect"]), st.integers(0, 2)).map(
        lambda p: lambda g: g.add("Pad", g.constant(np.array([0, p[1], 0, p[1]])), mode=p[0])
    )
    summed = st.integers(0, 1).map(lambda axis: lambda g: g.add("CumSum", g.constant(np.array(axis))))
    return st.lists(st.one_of(unary, binary, reduction, flat, turned, padded, summed), min_size=1, max_size=6)


@hypothesis.settings(max_examples=15, deadline=None, derandomize=True, database=None, phases=[hypothesis.Phase.generate])
@hypothesis.given(steps(), st.integers(1, 7), st.integers(1, 9))
def test_random_graphs(chain: list[Step], rows: int, columns: int) -> None:
    graph = Graph()
    for step in chain:
        step(graph)
    shape = [rows, columns]
    made = helper.make_graph(
        graph.nodes,
        "graph",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(graph.last, TensorProto.FLOAT, [None, None])],
        graph.constants,
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    x = np.random.default_rng(rows * 10 + columns).standard_normal(shape).astype(np.float32)
    try:
        expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]
    except Exception:  # noqa: BLE001 - its exceptions share no base
        hypothesis.reject()  # no valid model: a reflection of an axis that is too short
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "fetch" / "model").mkdir(parents=True)
        onnx.save(model, folder / "fetch" / "model" / "model.onnx")
        try:
            out = run_chain({"source": "onnx", "inputs": {"x": {"shape": shape, "dtype": "float32"}}}, folder)
        except (UserError, StageError):
            return
        actual = results(out, x=x)[graph.last]
    # six float32 operators, exponentials among them
    np.testing.assert_allclose(actual, expected, rtol=2e-4, atol=1e-5)
