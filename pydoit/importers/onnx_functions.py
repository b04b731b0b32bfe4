"""Replaces calls of functions by their bodies: the model's own functions, and operators that ONNX defines by others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import onnx
import onnx.inliner

from pydoit.errors import UserError
from pydoit.importers.onnx_evaluate import literal

WITH_BODY = frozenset(
    {
        "AffineGrid", "Attention", "BlackmanWindow", "CastLike", "CausalConvWithState", "Celu", "CenterCropPad",
        "DynamicQuantizeLinear", "Elu", "FlexAttention", "GroupNormalization", "HammingWindow", "HannWindow", "HardSigmoid",
        "LinearAttention", "MeanVarianceNormalization", "NegativeLogLikelihoodLoss", "PRelu", "RMSNormalization", "ReduceL1",
        "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", "RotaryEmbedding", "Selu", "Shrink",
        "SpaceToDepth", "SoftmaxCrossEntropyLoss", "Softplus", "SwiGLU", "Swish", "ThresholdedRelu",
    }
)  # fmt: skip
"""Operators whose definition in ONNX replaces them: TVM lacks them or converts some of their forms wrongly."""
WITH_STATISTICS = "LayerNormalization"
"""TVM converts it, but for its outputs Mean and InvStdDev: where they are wanted the body replaces it."""
_DOMAINS = ("", "ai.onnx", "ai.onnx.preview")

Types = Mapping[str, onnx.TypeProto]


def inline_local(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline the functions that the model defines.

    Raises UserError for functions that call each other in a circle.
    """
    if not model.functions:
        return model
    _refuse_recursion(model)
    return onnx.inliner.inline_local_functions(model)


def expand(model: onnx.ModelProto) -> bool:
    """Replace, in place, operators of WITH_BODY in the main graph by their bodies, one level; whether there were any.

    The types of their operands must have been inferred; a body is written for them.
    """
    types = _types(model.graph)
    versions = _versions(model)
    nodes: list[onnx.NodeProto] = []
    changed = False
    complete_attributes(model)
    for number, node in enumerate(model.graph.node):
        function = _body(node, types, versions)
        if function is None:
            nodes.append(node)
            continue
        changed = True
        nodes += instantiate(function, node, f"{node.op_type}_{number}_{node.output[0] or node.output[-1]}/")
        for item in function.opset_import:
            if item.domain not in versions:
                model.opset_import.append(onnx.helper.make_opsetid(item.domain, item.version))
                versions[item.domain] = item.version
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    return changed


def complete_attributes(model: onnx.ModelProto) -> None:
    """Write defaults out, in place, where onnx's shape inference and bodies rely on it."""
    versions = _versions(model)
    for node in _nodes_of(model.graph.node):
        if node.op_type not in WITH_BODY | {"STFT", WITH_STATISTICS} or node.domain not in _DOMAINS:
            continue
        schema, _ = _schema(node, versions)
        given = {attribute.name for attribute in node.attribute}
        node.attribute.extend(
            item.default_value for item in schema.attributes.values() if item.name not in given and item.default_value.type
        )


def instantiate(function: onnx.FunctionProto, call: onnx.NodeProto, prefix: str) -> list[onnx.NodeProto]:
    """The nodes of a call's body, with the call's operands, results and attributes in place."""
    names = dict.fromkeys(function.input, "")
    names |= dict(zip(function.input, call.input, strict=False))
    results = {name: result for name, result in zip(function.output, call.output, strict=False) if result}
    attributes = {item.name: item for item in function.attribute_proto} | {item.name: item for item in call.attribute}
    nodes = []
    for node in function.node:
        # a result that is an operand too, or read before it is the result, goes through a name of its own
        names |= {name: results.get(name, prefix + name) for name in node.output if name}
        copy = onnx.NodeProto.FromString(node.SerializeToString())
        copy.name = prefix + (node.name or node.output[0])
        _place(copy, names, attributes)
        nodes.append(copy)
    for name, result in results.items():
        if names.get(name) != result:
            nodes.append(onnx.helper.make_node("Identity", [names[name]], [result]))
    return nodes


def _place(node: onnx.NodeProto, names: Mapping[str, str], attributes: Mapping[str, onnx.AttributeProto]) -> None:
    for field in (node.input, node.output):
        for index, name in enumerate(field):
            field[index] = names.get(name, name)
    placed = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            if attribute.ref_attr_name not in attributes:
                continue  # the attribute is not given: the inner one has its default too
            given = onnx.AttributeProto.FromString(attributes[attribute.ref_attr_name].SerializeToString())
            given.name = attribute.name
            placed.append(given)
            continue
        if attribute.HasField("g"):
            own = {item.name for item in attribute.g.input} | {n for inner in attribute.g.node for n in inner.output}
            for inner in attribute.g.node:
                _place(inner, {name: new for name, new in names.items() if name not in own}, attributes)
            for item in attribute.g.output:
                item.name = item.name if item.name in own else names.get(item.name, item.name)
        placed.append(attribute)
    kept = [onnx.AttributeProto.FromString(item.SerializeToString()) for item in placed]
    del node.attribute[:]
    node.attribute.extend(kept)
    if node.op_type == "Constant" and (value := literal(node)) is not None:  # older opsets have no other form than `value`
        node.attribute[0].CopyFrom(onnx.helper.make_attribute("value", onnx.numpy_helper.from_array(value)))


def _body(node: onnx.NodeProto, types: Types, versions: Mapping[str, int]) -> onnx.FunctionProto | None:
    wants_statistics = node.op_type == WITH_STATISTICS and any(node.output[1:])
    if node.domain not in _DOMAINS or not (wants_statistics or node.op_type in WITH_BODY):
        return None
    schema, version = _schema(node, versions)
    serialized = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
    if schema.has_context_dependent_function:
        fitting = _fitting(schema.context_dependent_function_opset_versions, version)
        make = schema.get_context_dependent_function_with_opset_version
        text = None if fitting is None else make(fitting, node.SerializeToString(), serialized)
    elif schema.has_function:
        fitting = _fitting(schema.function_opset_versions, version)
        text = None if fitting is None else schema.get_function_with_opset_version(fitting)
    else:
        return None
    function = onnx.FunctionProto.FromString(text or b"")
    return function if function.node else None


def _versions(model: onnx.ModelProto) -> dict[str, int]:
    return {"" if item.domain == "ai.onnx" else item.domain: item.version for item in model.opset_import}


def _schema(node: onnx.NodeProto, versions: Mapping[str, int]) -> tuple[Any, int]:
    domain = "" if node.domain == "ai.onnx" else node.domain
    return onnx.defs.get_schema(node.op_type, versions[domain], domain), versions[domain]


def _fitting(versions: Iterable[int], wanted: int) -> int | None:
    """The newest body that is written for the model's opset or an older one; a newer one may use operators it lacks."""
    return max((version for version in versions if version <= wanted), default=None)


def _types(graph: onnx.GraphProto) -> dict[str, onnx.TypeProto]:
    found = {item.name: item.type for item in (*graph.input, *graph.value_info, *graph.output)}
    for item in graph.initializer:
        found[item.name] = onnx.helper.make_tensor_type_proto(item.data_type, list(item.dims))
    return found


def _refuse_recursion(model: onnx.ModelProto) -> None:
    calls = {(f.domain, f.name): {(n.domain, n.op_type) for n in _nodes_of(f.node)} for f in model.functions}
    finished: set[tuple[str, str]] = set()
    while len(finished) < len(calls):
        ready = {name for name, called in calls.items() if name not in finished and not (called & set(calls)) - finished}
        if not ready:
            circle = ", ".join(sorted(name for _, name in set(calls) - finished))
            raise UserError(f"model: its functions call each other in a circle ({circle}); export the model again")
        finished |= ready


def _nodes_of(nodes: Iterable[onnx.NodeProto]) -> list[onnx.NodeProto]:
    found: list[onnx.NodeProto] = []
    for node in nodes:
        found.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _nodes_of(attribute.g.node)
    return found
