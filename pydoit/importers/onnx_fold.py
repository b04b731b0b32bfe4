"""Evaluates what depends on constants and static shapes alone, so that TVM's importer sees no shape arithmetic."""

from __future__ import annotations

import math
from typing import Any

import onnx
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.importers.onnx_evaluate import Values, evaluate, is_small
from pydoit.importers.onnx_functions import complete_attributes, expand, inline_local
from pydoit.importers.onnx_symbolic import fold_extents, partial_shapes
from pydoit.importers.onnx_unroll import unroll

MAX_ROUNDS = 32
MAX_TENSOR_ELEMENTS = 2**32
CONSTANT_ONLY = frozenset({"Cast", "Identity", "MelWeightMatrix", "NonMaxSuppression", "NonZero", "Shape", "Size", "Unique"})
"""Operators that are supported where their result is known at import; they are folded even into results of the model."""


def fold(model: onnx.ModelProto) -> onnx.ModelProto:
    """Infer shapes, replace foldable nodes by constants and constant control flow by its body, until nothing changes."""
    model = inline_local(model)
    complete_attributes(model)
    for _ in range(MAX_ROUNDS):
        del model.graph.value_info[:]
        model = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True, data_prop=True)
        _refuse_huge(model.graph)
        changed = _fold_once(model)
        changed |= fold_extents(model.graph, _known_values(model.graph))
        changed |= unroll(model, _known_values(model.graph), static_shapes(model.graph))
        changed |= expand(model)
        if not changed:
            break
    _drop_unused(model.graph)
    return model


def _refuse_huge(graph: onnx.GraphProto) -> None:
    """No computer that runs the model has such tensors; compiling them would take its memory too."""
    for name, extents in static_shapes(graph).items():
        if any(extent < 0 for extent in extents) or math.prod(extents) > MAX_TENSOR_ELEMENTS:
            raise UserError(f"model: the tensor {name!r} of shape {list(extents)} is negative or too large; correct the model")


def _fold_once(model: onnx.ModelProto) -> bool:
    graph = model.graph
    shapes = static_shapes(graph)
    values = _known_values(graph)
    outputs = {item.name for item in graph.output}
    kept: list[onnx.NodeProto] = []
    folded: Values = {}
    for node in graph.node:
        wanted = outputs & set(node.output)
        results = None if wanted and node.op_type not in CONSTANT_ONLY else evaluate(node, values, shapes, model)
        if results is None:
            kept.append(node)
        elif wanted:
            kept += [_literal(name, array) for name, array in results.items()]
        else:
            folded.update(results)
            values.update(results)
    del graph.node[:]
    graph.node.extend(kept)
    graph.initializer.extend(onnx.numpy_helper.from_array(array, name) for name, array in folded.items())
    return bool(folded)


def inline_constants(model: onnx.ModelProto) -> None:
    """Turn scalars and integers, which are part of the computation, into Constant nodes; what is left are weights."""
    weights = [item for item in model.graph.initializer if _is_weight(onnx.numpy_helper.to_array(item))]
    names = {item.name for item in weights}
    literals = [
        _literal(item.name, onnx.numpy_helper.to_array(item)) for item in model.graph.initializer if item.name not in names
    ]
    nodes = [*literals, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    del model.graph.initializer[:]
    model.graph.initializer.extend(weights)


def _is_weight(array: NDArray[Any]) -> bool:
    """Tensors of floats, and of bytes (quantized ones); TVM cannot store an empty constant, so those of floats are too."""
    return array.size != 1 and (array.dtype.kind in "fV" or (array.itemsize == 1 and array.dtype.kind in "iu"))


def _literal(name: str, array: Any) -> onnx.NodeProto:
    return onnx.helper.make_node("Constant", [], [name], value=onnx.numpy_helper.from_array(array))


def _known_values(graph: onnx.GraphProto) -> Values:
    return {item.name: onnx.numpy_helper.to_array(item) for item in graph.initializer if is_small(item.dims)}


def static_shapes(graph: onnx.GraphProto) -> dict[str, tuple[int, ...]]:
    """Name -> extents of every tensor whose extents are all known."""
    found: dict[str, tuple[int, ...]] = {}
    for name, extents in partial_shapes(graph).items():
        known = tuple(extent for extent in extents if extent is not None)
        if len(known) == len(extents):
            found[name] = known
    return found


def _drop_unused(graph: onnx.GraphProto) -> None:
    """Remove initializers that nothing reads any more (subgraphs may read outer ones, so then all stay)."""
    if any(attribute.HasField("g") for node in graph.node for attribute in node.attribute):
        return
    used = {name for node in graph.node for name in node.input} | {item.name for item in graph.output}
    kept = [item for item in graph.initializer if item.name in used]
    del graph.initializer[:]
    graph.initializer.extend(kept)
