"""ai.onnx.ml's ArrayFeatureExtractor."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, shape_of


def array_feature_extractor(node: Node) -> Expr:
    """X [..., n], Y of positions -> [..., positions]."""
    from tvm import relax

    positions = node.emit(relax.op.reshape(node[1], [-1]))
    x = node[0] if len(shape_of(node[0])) > 1 else node.emit(relax.op.expand_dims(node[0], [0]))
    return node.emit(relax.op.take(x, positions, axis=len(shape_of(x)) - 1))


CONVERTERS = {"ArrayFeatureExtractor": array_feature_extractor}
