"""Mod: the divisor's sign, or with fmod=1 the dividend's."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, elementwise, is_float


def mod(node: Node) -> Expr:
    """A mod B, broadcast; an integer modulo zero is 0."""
    from pydoit.tvm_compat import tirx
    from tvm import relax

    a, b = node[0], node[1]
    dtype = dtype_of(a)
    keeps_sign = bool(node.get("fmod", 0))
    if dtype in ("float16", "bfloat16"):
        a, b = (node.emit(relax.op.astype(x, "float32")) for x in (a, b))

    def of_floats(x: Expr, y: Expr) -> Expr:
        rest = tirx.fmod(x, y)
        zero = tirx.const(0, x.dtype)
        moved = tirx.all(rest != zero, (rest < zero) != (y < zero))
        return rest if keeps_sign else tirx.Select(moved, rest + y, rest)

    def of_integers(x: Expr, y: Expr) -> Expr:
        zero, one = tirx.const(0, x.dtype), tirx.const(1, x.dtype)
        divisor = tirx.Select(y == zero, one, y)
        rest = tirx.truncmod(x, divisor)
        if not keeps_sign and not x.dtype.startswith("uint"):
            rest = tirx.Select(tirx.all(rest != zero, (rest < zero) != (divisor < zero)), rest + divisor, rest)
        return rest

    result = elementwise(node, of_floats if is_float(dtype) else of_integers, a, b, name="modulo")
    return result if dtype_of(result) == dtype else node.emit(relax.op.astype(result, dtype))


CONVERTERS = {"Mod": mod}
