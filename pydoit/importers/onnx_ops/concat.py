"""Concat without the parts that are empty."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node


def concat(node: Node) -> Expr:
    """Tensors of any shape, joined along `axis`; shapes as TVM's importer writes them go through its own converter."""
    from tvm import relax
    from tvm.relax.frontend.onnx.onnx_frontend import Concat

    if all(isinstance(getattr(item, "ty", None), relax.TensorType) for item in node.inputs):
        axis = node.get("axis", 1)
        kept = [item for item in node.inputs if item is not None and not _is_empty(item)] or [node[0]]
        return kept[0] if len(kept) == 1 else node.emit(relax.op.concat(kept, axis=axis))
    return Concat.get_converter(node.opset)(node.builder, list(node.inputs), dict(node.attributes), node.scope)


def _is_empty(item: Expr) -> bool:
    extents = getattr(item.ty.shape, "values", ())
    return any(getattr(extent, "value", None) == 0 for extent in extents)


CONVERTERS = {"Concat": concat}
