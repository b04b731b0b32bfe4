"""Cast, between all element types; float8 by tables, bool by comparison with zero."""

from __future__ import annotations

from pydoit.importers.onnx_ops.float8 import decode, encode, is_float8
from pydoit.importers.onnx_ops.node import Expr, Node, const, dtype_of, is_float


def cast(node: Node, x: Expr, dtype: str, saturate: bool = True, round_mode: str = "up") -> Expr:
    """`x` as elements of `dtype`; floating point to integer goes towards zero."""
    from tvm import relax

    source = dtype_of(x)
    if source == dtype:
        return x
    if is_float8(source):
        wide = dtype if is_float(dtype) and not is_float8(dtype) else "float32"
        return cast(node, decode(node, x, wide), dtype, saturate, round_mode)
    if is_float8(dtype):
        return encode(node, cast(node, x, "float32"), dtype, saturate, round_mode)
    if dtype == "bool":
        return node.emit(relax.op.not_equal(x, const(0, source)))
    if is_float(source) and dtype in ("uint8", "uint16", "int8", "int16"):  # LLVM's conversion to a narrow type saturates
        x = node.emit(relax.op.astype(x, "int32"))
    return node.emit(relax.op.astype(x, dtype))


def convert_cast(node: Node) -> Expr:
    """Cast: input any shape; attribute `to` is onnx's code of the type."""
    return cast(node, node[0], onnx_dtype(node, node.get("to")), bool(node.get("saturate", 1)), node.get("round_mode", "up"))


def onnx_dtype(node: Node, code: int) -> str:
    """Our name of an ONNX element type; raises UserError for those that the runtime does not carry."""
    import onnx

    name = onnx.TensorProto.DataType.Name(code)
    if name in ("STRING", "UNDEFINED", "COMPLEX64", "COMPLEX128") or name.endswith(("INT4", "INT2", "E2M1")):
        raise node.refuse(f"the element type {name}")
    return str(onnx.helper.tensor_dtype_to_np_dtype(code))


CONVERTERS = {"Cast": convert_cast}
