"""QuantizeLinear: per tensor, axis or block, into integers or float8."""

from __future__ import annotations

from pydoit.importers.onnx_ops.cast import onnx_dtype
from pydoit.importers.onnx_ops.float8 import encode, is_float8
from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of
from pydoit.importers.onnx_ops.quantization import spread, to_integer


def quantize_linear(node: Node) -> Expr:
    """X of any shape, scale and zero point () | [axis] | blocks -> the zero point's type (default uint8)."""
    from tvm import relax

    x = node[0]
    code = node.get("output_dtype", 0)
    dtype = dtype_of(node[2]) if node.has(2) else onnx_dtype(node, code) if code else "uint8"
    work = onnx_dtype(node, node.get("precision", 0)) if node.get("precision", 0) else dtype_of(node[1])
    scale = spread(node, node[1], x)
    x, scale = (node.emit(relax.op.astype(item, work)) if dtype_of(item) != work else item for item in (x, scale))
    scaled = node.emit(relax.op.divide(x, scale))
    if is_float8(dtype):
        return encode(node, scaled, dtype, bool(node.get("saturate", 1)))
    return to_integer(node, scaled, spread(node, node[2], x) if node.has(2) else None, dtype)


CONVERTERS = {"QuantizeLinear": quantize_linear}
