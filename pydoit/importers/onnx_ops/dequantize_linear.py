"""DequantizeLinear: per tensor, axis or block, from integers or float8."""

from __future__ import annotations

from pydoit.importers.onnx_ops.cast import cast, onnx_dtype
from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of
from pydoit.importers.onnx_ops.quantization import centered, is_integer, spread


def dequantize_linear(node: Node) -> Expr:
    """X of any shape, scale and zero point () | [axis] | blocks -> the scale's type or `output_dtype`."""
    from tvm import relax

    x, scale = node[0], spread(node, node[1], node[0])
    code = node.get("output_dtype", 0)
    dtype = onnx_dtype(node, code) if code else dtype_of(node[1])
    work = "float32"
    if is_integer(x):
        values = cast(node, centered(node, x, spread(node, node[2], x) if node.has(2) else None), work)
    else:
        values = cast(node, x, work)
    product = node.emit(relax.op.multiply(values, cast(node, scale, work)))
    return cast(node, product, dtype)


CONVERTERS = {"DequantizeLinear": dequantize_linear}
