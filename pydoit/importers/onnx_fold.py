"""Evaluates what depends on constants and static shapes alone, so that TVM's importer sees no shape arithmetic."""

from __future__ import annotations

import onnx

from pydoit.importers.onnx_evaluate import Values, evaluate, is_small
from pydoit.importers.onnx_functions import expand, inline_local
from pydoit.importers.onnx_symbolic import fold_extents
from pydoit.importers.onnx_unroll import unroll

MAX_ROUNDS = 32


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer shapes, replace foldable nodes by constants and constant control flow by its body, until nothing changes."""
    model = inline_local(model)
    for _ in range(MAX_ROUNDS):
        del model.graph.value_info[:]
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        changed = _fold_once(model)
        changed |= fold_extents(model.graph, _known_values(model.graph))
        changed |= unroll(model, _known_values(model.graph), static_shapes(model.graph))
        changed |= expand(model)
        if not changed:
            break
    _drop_unused(model.graph)
    return model


def _fold_once(model: onnx.ModelProto) -> bool:
    graph = model.graph
    shapes = static_shapes(graph)
    values = _known_values(graph)
    outputs = {item.name for item in graph.output}
    kept: list[onnx.NodeProto] = []
    folded: Values = {}
    for node in graph.node:
        results = None if outputs & set(node.output) else evaluate(node, values, shapes, model)
        if results is None:
            kept.append(node)
        else:
            folded.update(results)
            values.update(results)
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in folded.items())
    return bool(folded)


def _known_values(graph: onnx.GraphProto) -> Values:
    return {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer if is_small(item.dims)}


def static_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Name -> extents of every tensor whose extents are all known."""
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
