"""Mod: the divisor's sign, or with fmod=1 the dividend's."""

from __future__ import annotations

from pydoit.importers.onnx_ops.node import Expr, Node, dtype_of, elementwise, is_float


def mod(node: Node) -> Expr:
    """A mod B, broadcast; an integer modulo zero is 0."""
    from tvm import relax

    from pydoit.tvm_compat import tirx

    a, b = node[0], node[1]
    dtype = dtype_of(a)
    keeps_sign = bool(node.get("fmod", 0))
    if dtype in ("float16", "bfloat16"):
        a, b = (node.emit(relax.op.astype(x, "float32")) for x in (a, b))

    work = dtype_of(a)

    def of_floats(x: Expr, y: Expr) -> Expr:
        rest = tirx.call_pure_extern(work, "fmodf" if work == "float32" else "fmod", x, y)
        zero = tirx.const(0, work)
        moved = _differ(rest, y, zero)
        return rest if keeps_sign else tirx.Select(moved, rest + y, rest)

    def of_integers(x: Expr, y: Expr) -> Expr:
        zero, one = tirx.const(0, work), tirx.const(1, work)
        divisor = tirx.Select(y == zero, one, y)
        rest = tirx.truncmod(x, divisor)
        if not keeps_sign and not work.startswith("uint"):
            rest = tirx.Select(_differ(rest, divisor, zero), rest + divisor, rest)
        return rest

    result = elementwise(node, of_floats if is_float(dtype) else of_integers, a, b, name="modulo")
    return result if dtype_of(result) == dtype else node.emit(relax.op.astype(result, dtype))


def _differ(rest: Expr, divisor: Expr, zero: Expr) -> Expr:
    """Whether a remainder that is not 0 and its divisor have different signs."""
    from pydoit.tvm_compat import tirx

    return tirx.Or(tirx.And(rest < zero, divisor > zero), tirx.And(rest > zero, divisor < zero))


CONVERTERS = {"Mod": mod}
