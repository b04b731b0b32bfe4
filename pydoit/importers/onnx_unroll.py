"""Replaces control flow that is known at import by the nodes that would run: If, Loop and Scan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper

from pydoit.errors import UserError
from pydoit.importers.onnx_evaluate import Shapes, Values, evaluate

MAX_NODES = 50_000
"""Nodes of one unrolled loop; more are refused."""


def unroll(model: onnx.ModelProto, values: Values, shapes: Shapes) -> bool:
    """Replace, in place, the main graph's control flow whose condition, trip count or length is known."""
    nodes: list[onnx.NodeProto] = []
    changed = False
    for number, node in enumerate(model.graph.node):
        expanded = _Expansion(model, values, shapes, f"{node.op_type}_{number}_{node.output[0]}").expand(node)
        nodes += [node] if expanded is None else expanded
        changed |= expanded is not None
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return changed


class _Expansion:
    """The nodes that one control-flow node becomes; new tensors are named after it."""

    def __init__(self, model: onnx.ModelProto, values: Values, shapes: Shapes, prefix: str) -> None:
        self.model = model
        self.values = dict(values)
        self.shapes = shapes
        self.prefix = prefix
        self.nodes: list[onnx.NodeProto] = []
        self.opset = next((item.version for item in model.opset_import if item.domain in ("", "ai.onnx")), 0)

    def expand(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        if node.op_type == "If" and node.input[0] in self.values:
            return self._branch(node)
        if node.op_type == "Loop":
            return self._loop(node)
        if node.op_type == "Scan" and self.opset >= 9:
            return self._scan(node)
        return None

    def _branch(self, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        taken = "then_branch" if bool(self.values[node.input[0]].reshape(-1)[0]) else "else_branch"
        results = self._instantiate(_attributes(node)[taken].g, [], "branch")
        self._forward(results, node.output)
        return self.nodes

    def _loop(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        body = _attributes(node)["body"].g
        trips = self._scalar(node.input[0]) if node.input[0] else None
        condition = self._scalar(node.input[1]) if len(node.input) > 1 and node.input[1] else True
        if condition is None or (trips is None and node.input[0]):
            return None
        carried = list(node.input[2:])
        stacked: list[list[str]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
        iteration = 0
        while condition and (trips is None or iteration < int(trips)):
            number = self._constant(np.array(iteration, dtype=np.int64), f"i{iteration}")
            going = self._constant(np.array(True), f"c{iteration}")
            results = self._instantiate(body, [number, going, *carried], str(iteration))
            condition = self._scalar(results[0])
            if condition is None:
                return None
            carried = results[1 : len(carried) + 1]
            for part, name in zip(stacked, results[len(carried) + 1 :], strict=True):
                part.append(self._unsqueeze(name, 0))
            iteration += 1
        self._forward(carried, node.output[: len(carried)])
        for part, name, item in zip(stacked, node.output[len(carried) :], body.output[1 + len(carried) :], strict=False):
            self._stack(part, name, item, 0)
        return self.nodes

    def _scan(self, node: onnx.NodeProto) -> list[onnx.NodeProto] | None:
        attributes = _attributes(node)
        body = attributes["body"].g
        count = attributes["num_scan_inputs"].i
        states, scanned = list(node.input[:-count]), list(node.input[-count:])
        if any(name not in self.shapes for name in scanned):
            return None
        outputs = len(body.output) - len(states)
        lists = {name: list(attributes[name].ints) for name in attributes if name.startswith("scan_")}
        axes = lists.get("scan_input_axes", [0] * count)
        length = self.shapes[scanned[0]][axes[0]]
        stacked: list[list[str]] = [[] for _ in range(outputs)]
        for step in range(length):
            backwards = lists.get("scan_input_directions", [0] * count)
            taken = [
                self._gather(name, length - 1 - step if back else step, axis, f"{step}_{position}")
                for position, (name, axis, back) in enumerate(zip(scanned, axes, backwards, strict=True))
            ]
            results = self._instantiate(body, [*states, *taken], str(step))
            states = results[: len(states)]
            for part, name, axis in zip(
                stacked, results[len(states) :], lists.get("scan_output_axes", [0] * outputs), strict=True
            ):
                part.append(self._unsqueeze(name, axis))
        self._forward(states, node.output[: len(states)])
        reverse = lists.get("scan_output_directions", [0] * outputs)
        out_axes = lists.get("scan_output_axes", [0] * outputs)
        for position, name in enumerate(node.output[len(states) :]):
            part = stacked[position][::-1] if reverse[position] else stacked[position]
            self._stack(part, name, body.output[len(states) + position], out_axes[position])
        return self.nodes

    def _instantiate(self, body: onnx.GraphProto, arguments: list[str], step: str) -> list[str]:
        """Append a copy of the body's nodes; return what its outputs are called. Known values are followed."""
        if len(self.nodes) > MAX_NODES:
            raise UserError(f"model: {self.prefix} unrolls to more than {MAX_NODES} nodes; export it with a shorter loop")
        local = f"{self.prefix}/{step}/"
        names = dict(zip((item.name for item in body.input), arguments, strict=True))
        names |= {item.name: local + item.name for item in body.initializer}
        names |= {name: local + name for node in body.node for name in node.output if name}
        for item in body.initializer:
            copy = onnx.TensorProto.FromString(item.SerializeToString())
            copy.name = names[item.name]
            self.model.graph.initializer.append(copy)
            self.values[copy.name] = onnx.numpy_helper.to_array(copy)
        for node in body.node:
            copied = _renamed(node, names)
            copied.name = local + node.name
            self.nodes.append(copied)
            self.values.update(evaluate(copied, self.values, self.shapes, self.model) or {})
        return [names.get(item.name, item.name) for item in body.output]

    def _scalar(self, name: str) -> Any:
        value = self.values.get(name)
        return None if value is None else value.reshape(-1)[0]

    def _constant(self, array: Any, name: str) -> str:
        full = f"{self.prefix}/{name}"
        self.model.graph.initializer.append(onnx.numpy_helper.from_array(array, full))
        self.values[full] = array
        return full

    def _gather(self, name: str, index: int, axis: int, suffix: str) -> str:
        position = self._constant(np.array(index, dtype=np.int64), f"at{suffix}")
        self.nodes.append(helper.make_node("Gather", [name, position], [f"{position}/slice"], axis=axis))
        return f"{position}/slice"

    def _unsqueeze(self, name: str, axis: int) -> str:
        result = f"{self.prefix}/{len(self.nodes)}/row"
        if self.opset < 13:
            self.nodes.append(helper.make_node("Unsqueeze", [name], [result], axes=[axis]))
        else:
            axes = self._constant(np.array([axis], dtype=np.int64), f"{len(self.nodes)}/axes")
            self.nodes.append(helper.make_node("Unsqueeze", [name, axes], [result]))
        return result

    def _stack(self, parts: list[str], name: str, item: onnx.ValueInfoProto, axis: int) -> None:
        if parts:
            self.nodes.append(helper.make_node("Concat", parts, [name], axis=axis))
            return
        tensor = item.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        array = np.zeros([*shape[:axis], 0, *shape[axis:]], helper.tensor_dtype_to_np_dtype(tensor.elem_type))
        self.nodes.append(helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array)))

    def _forward(self, names: Any, outputs: Any) -> None:
        pairs = zip(names, outputs, strict=False)
        self.nodes += [helper.make_node("Identity", [name], [output]) for name, output in pairs if output]


def _attributes(node: onnx.NodeProto) -> dict[str, onnx.AttributeProto]:
    return {attribute.name: attribute for attribute in node.attribute}


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """A copy whose operands, results and captured values go by their new names."""
    copy = onnx.NodeProto.FromString(node.SerializeToString())
    for field in (copy.input, copy.output):
        for index, name in enumerate(field):
            field[index] = names.get(name, name)
    for attribute in copy.attribute:
        if attribute.HasField("g"):
            _rename_captured(attribute.g, names)
    return copy


def _rename_captured(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    own = {item.name for item in (*graph.input, *graph.initializer)} | {n for node in graph.node for n in node.output}
    outer = {name: new for name, new in names.items() if name not in own}
    nodes = [_renamed(node, outer) for node in graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    for item in graph.output:
        item.name = outer.get(item.name, item.name)
