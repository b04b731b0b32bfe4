"""Replaces calls of functions by their bodies: the model's own functions, and operators that ONNX defines by others."""

from __future__ import annotations

import onnx
import onnx.inliner

from pydoit.errors import UserError

OWN_BODIES = frozenset(
    {
        "AffineGrid", "Attention", "CastLike", "CausalConvWithState", "Celu", "CenterCropPad", "DynamicQuantizeLinear",
        "Elu", "FlexAttention", "GroupNormalization", "HardSigmoid", "LinearAttention", "MeanVarianceNormalization",
        "NegativeLogLikelihoodLoss", "PRelu", "RMSNormalization", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
        "ReduceSumSquare", "RotaryEmbedding", "Selu", "Shrink", "SoftmaxCrossEntropyLoss", "Softplus", "SwiGLU", "Swish",
        "ThresholdedRelu",
    }
)  # fmt: skip
"""Operators whose definition in ONNX replaces them: TVM lacks them or converts some of their forms wrongly."""
_DOMAINS = ("", "ai.onnx.preview")
_MAX_ROUNDS = 8


def expand(model: onnx.ModelProto) -> onnx.ModelProto:
    """Inline the model's functions, then the operators of OWN_BODIES; a body may use others of them.

    Raises UserError for functions that call each other in a circle.
    """
    if model.functions:
        _refuse_recursion(model)
        model = onnx.inliner.inline_local_functions(model)
    for _ in range(_MAX_ROUNDS):
        found = {(node.domain, node.op_type) for node in _all_nodes(model.graph)}
        wanted = sorted(item for item in found if item[1] in OWN_BODIES and item[0] in _DOMAINS)
        if not wanted:
            break
        count = len(model.graph.node)
        model = onnx.inliner.inline_selected_functions(model, wanted, inline_schema_functions=True)
        if {(node.domain, node.op_type) for node in _all_nodes(model.graph)} == found and len(model.graph.node) == count:
            break  # this opset has no body for what is left
    return model


def _refuse_recursion(model: onnx.ModelProto) -> None:
    calls = {(f.domain, f.name): {(n.domain, n.op_type) for n in _nodes_of(f.node)} for f in model.functions}
    finished: set[tuple[str, str]] = set()
    while len(finished) < len(calls):
        ready = {name for name, called in calls.items() if name not in finished and not (called & set(calls)) - finished}
        if not ready:
            circle = ", ".join(sorted(name for _, name in set(calls) - finished))
            raise UserError(f"model: its functions call each other in a circle ({circle}); export the model again")
        finished |= ready


def _all_nodes(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    return _nodes_of(graph.node)


def _nodes_of(nodes: object) -> list[onnx.NodeProto]:
    found: list[onnx.NodeProto] = []
    for node in nodes:  # type: ignore[attr-defined]
        found.append(node)
        for attribute in node.attribute:
            if attribute.HasField("g"):
                found += _nodes_of(attribute.g.node)
    return found
