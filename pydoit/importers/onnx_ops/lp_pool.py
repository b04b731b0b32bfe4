"""LpPool of any rank."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, static_shape
from pydoit.importers.onnx_ops.windows import reduce_windows, windows


def lp_pool(node: Node) -> Expr:
    """X [N, C, d1, ..., dn] -> the p-norm of each window."""
    from tvm import relax

    x, power = node[0], node.get("p", 2)
    dtype = dtype_of(x)
    item = windows(node, static_shape(node, x)[2:], list(node.get("kernel_shape")))
    raised = node.emit(relax.op.power(node.emit(relax.op.abs(x)), const(power, dtype)))
    total = reduce_windows(node, raised, item, "sum")
    return node.emit(relax.op.power(total, const(1 / power, dtype)))


CONVERTERS = {"LpPool": lp_pool}
