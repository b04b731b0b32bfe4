"""BitCast: the same bits as elements of another type."""

from __future__ import annotations

from pydoit.importers.onnx_ops.cast import onnx_dtype
from pydoit.importers.onnx_ops.float8 import reinterpret
from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of


def bit_cast(node: Node) -> Expr:
    """Any shape; types of the same width."""
    from tvm import relax

    x, dtype = node[0], onnx_dtype(node, node.get("to"))
    if dtype_of(x) == "bool":
        x = node.emit(relax.op.astype(x, "uint8"))
    if dtype == "bool":
        raise node.refuse("reading bits as bool")
    return reinterpret(node, x, dtype)


CONVERTERS = {"BitCast": bit_cast}
