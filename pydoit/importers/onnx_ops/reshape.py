"""Reshape to a constant shape; one that is computed goes through TVM's converter."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, shape_of


def reshape(node: Node) -> Expr:
    """X of any shape; 0 copies the input's extent unless `allowzero`, -1 is what is left."""
    from tvm import relax
    from tvm.relax.frontend.onnx.onnx_frontend import Reshape

    x, wanted = node[0], node.known(1) if node.has(1) else node.get("shape")
    if wanted is None or not isinstance(getattr(x, "ty", None), relax.TensorType):
        return Reshape.get_converter(node.opset)(node.builder, list(node.inputs), dict(node.attributes), node.scope)
    target = [int(extent) for extent in wanted]
    given = shape_of(x)
    if not node.get("allowzero", 0):
        target = [given[i] if extent == 0 else extent for i, extent in enumerate(target)]
    if 0 in [extent for extent in target if isinstance(extent, int)] and -1 not in target:
        return node.emit(relax.op.zeros(target, dtype_of(x)))
    return node.emit(relax.op.reshape(x, target))


CONVERTERS = {"Reshape": reshape}
