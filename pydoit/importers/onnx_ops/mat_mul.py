"""MatMul; products of half-precision operands are summed in float32, as ONNX's reference does."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of


def mat_mul(node: Node) -> Expr:
    """A [..., M, K] times B [..., K, N], batch axes broadcast."""
    from tvm import relax

    dtype = dtype_of(node[0])
    if dtype not in ("float16", "bfloat16"):
        return node.emit(relax.op.matmul(node[0], node[1]))
    total = node.emit(relax.op.matmul(node[0], node[1], out_dtype="float32"))
    return node.emit(relax.op.astype(total, dtype))


CONVERTERS = {"MatMul": mat_mul}
