"""What passes ask of Relax expressions: which call computes a value, which number fills it, whether shapes agree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydoit.tvm_compat import ir, relax, structural_equal

Lookup = Callable[[Any], Any]
"""From a variable to the expression that it is bound to, None for a parameter.

It must know variables of the current block alone where something that they read is to be used: what a dataflow block does
not give out cannot be read after it.
"""
_FILLED = {"relax.zeros": 0, "relax.zeros_like": 0, "relax.ones": 1, "relax.ones_like": 1}


def source(expr: Any, lookup: Lookup) -> Any:
    """The expression that computes a value: variables are followed to what they are bound to."""
    while isinstance(expr, relax.Var):
        bound = lookup(expr)
        if bound is None:
            return expr
        expr = bound
    return expr


def call_of(expr: Any, name: str, lookup: Lookup) -> Any:
    """The call of operator `name`, without its `relax.`, that computes a value, or None."""
    found = source(expr, lookup)
    return found if is_call(found, name) else None


def is_call(expr: Any, name: str) -> bool:
    """Whether an expression is a call of operator `name`, without its `relax.`."""
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", None) == f"relax.{name}"


def uniform_value(expr: Any, lookup: Lookup) -> float | None:
    """The number that all elements of a constant have, None for anything else."""
    found = source(expr, lookup)
    name = getattr(getattr(found, "op", None), "name", None)
    if name in _FILLED:
        return _FILLED[name]
    if name in ("relax.full", "relax.full_like"):
        return uniform_value(found.args[1], lookup)
    if not isinstance(found, ir.GenericConst):
        return None
    array = found.value.numpy()
    # numpy has no name for some dtypes, such as bfloat16, and shows their bits instead
    if array.dtype.name != str(found.ty.dtype) or not array.size or not (array == array.flat[0]).all():
        return None
    number: float = array.flat[0].item()
    return number


def is_tensor(expr: Any, dtype: str | None = None) -> bool:
    """Whether a value is a tensor whose rank and extents are known, as numbers or symbols, of the given dtype if any."""
    kind = expr.ty
    known = isinstance(kind, relax.TensorType) and isinstance(kind.shape, relax.ShapeExpr)
    return known and (dtype is None or str(kind.dtype) == dtype)


def same_shape(one: Any, other: Any) -> bool:
    """Whether two values are tensors of the same extents, which may be symbols."""
    return is_tensor(one) and is_tensor(other) and bool(structural_equal(one.ty.shape, other.ty.shape))
