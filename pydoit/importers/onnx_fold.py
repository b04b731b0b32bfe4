"""Evaluates what depends on constants and static shapes alone, so that TVM's importer sees no shape arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

MAX_ELEMENTS = 4096
"""Larger results stay computations: they are weights' transforms, not shapes."""
MAX_ROUNDS = 8
_NEVER = {"If", "Loop", "Scan", "RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Dropout"}


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer shapes and replace foldable nodes by constants until nothing changes."""
    for _ in range(MAX_ROUNDS):
        del model.graph.value_info[:]
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        if not _fold_once(model):
            break
    _drop_unused(model.graph)
    return model


def _fold_once(model: onnx.ModelProto) -> bool:
    graph = model.graph
    shapes = _static_shapes(graph)
    values = {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer if _small(item.dims)}
    outputs = {item.name for item in graph.output}
    kept: list[onnx.NodeProto] = []
    folded: dict[str, NDArray[Any]] = {}
    for node in graph.node:
        results = None if outputs & set(node.output) else _evaluate(node, values, shapes, model)
        if results is None:
            kept.append(node)
        else:
            folded.update(results)
            values.update(results)
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in folded.items())
    return bool(folded)


def _evaluate(
    node: onnx.NodeProto,
    values: dict[str, NDArray[Any]],
    shapes: dict[str, tuple[int, ...]],
    model: onnx.ModelProto,
) -> dict[str, NDArray[Any]] | None:
    """The node's outputs when they are known now and (but for literal constants) small, else None."""
    if node.op_type == "Shape" and not node.attribute and node.input[0] in shapes:
        return {node.output[0]: np.array(shapes[node.input[0]], dtype=np.int64)}
    if node.op_type == "Constant" and node.attribute[0].name == "value":
        return {node.output[0]: onnx.numpy_helper.to_array(node.attribute[0].t)}  # whatever its size: a weight
    names = [name for name in node.input if name]
    if node.op_type in _NEVER or node.domain not in ("", "ai.onnx") or not all(name in values for name in names):
        return None
    if any(name in shapes and not _small(shapes[name]) for name in node.output):
        return None
    try:
        evaluator = ReferenceEvaluator(node, opsets={item.domain: item.version for item in model.opset_import})
    except NotImplementedError:
        return None  # the evaluator lacks the operator: it stays in the graph
    results = [np.asarray(result) for result in evaluator.run(None, {name: values[name] for name in names})]
    if any(result.size > MAX_ELEMENTS for result in results):
        return None
    return dict(zip(node.output, results, strict=True))


def _static_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    found = {item.name: tuple(item.dims) for item in graph.initializer}
    for item in (*graph.input, *graph.value_info, *graph.output):
        tensor = item.type.tensor_type
        if tensor.HasField("shape") and all(dim.HasField("dim_value") for dim in tensor.shape.dim):
            found[item.name] = tuple(dim.dim_value for dim in tensor.shape.dim)
    return found


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Remove initializers that nothing reads any more (subgraphs may read outer ones, so then all stay)."""
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return
    used = {name for node in graph.node for name in node.input} | {item.name for item in graph.output}
    kept = [item for item in graph.initializer if item.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _small(extents: Any) -> bool:
    return int(np.prod(list(extents), dtype=np.int64)) <= MAX_ELEMENTS
