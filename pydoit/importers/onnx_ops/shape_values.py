"""Integer arithmetic on symbolic shapes, done at import: what Reshape, Expand and Slice are told by other operators.

A vector of extents is a Relax ShapeExpr, a single extent a TIR expression; both stay exact in the recipe's dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pydoit.importers.onnx_ops.node import Expr

_INTEGERS = (6, 7)  # onnx.TensorProto.INT32 and INT64
MAX_VALUES = 64
"""Longer integer vectors are data, not shapes."""
CONSUMERS = frozenset({"ConstantOfShape", "Expand", "Range", "Reshape", "Slice", "Tile", "Resize", "Pad"})
"""Operators whose converters take a symbolic shape as it is; for all others it becomes a tensor."""


def is_symbolic(expr: Expr | None) -> bool:
    """Whether an operand is a shape or an extent instead of a tensor."""
    from tvm import relax
    from tvm.ir import PrimType

    return expr is not None and isinstance(getattr(expr, "ty", None), relax.ShapeType | PrimType)


def evaluate(operator: str, inputs: Sequence[Expr | None], attributes: Mapping[str, Any]) -> Expr | None:
    """The result of an operator on extents, as such; None where it is no arithmetic on extents that we know."""
    function = _FUNCTIONS.get(operator)
    if function is None or not any(is_symbolic(item) for item in inputs):
        return None
    arrays = [_array(item) for item in inputs if item is not None]
    if any(array is None for array in arrays):
        return None
    result = function([array for array in arrays if array is not None], attributes)
    return None if result is None or result.ndim > 1 or result.size > MAX_VALUES else _expression(result)


def materialize(builder: Any, expr: Expr) -> Expr:
    """A shape [n] or an extent [] as an int64 tensor."""
    from pydoit.tvm_compat import relax

    if isinstance(expr.ty, relax.ShapeType):
        return builder.emit(relax.op.shape_to_tensor(expr))
    vector = builder.emit(relax.op.shape_to_tensor(relax.ShapeExpr([expr])))
    return builder.emit(relax.op.squeeze(vector, [0]))


def _array(expr: Expr) -> np.ndarray[Any, Any] | None:
    """The values as an array of Python integers and TIR expressions, of rank 0 or 1."""
    from pydoit.tvm_compat import ir, relax

    if isinstance(expr, relax.ShapeExpr):
        return np.array([_plain(extent) for extent in expr.values] or [], dtype=object)
    if isinstance(expr, ir.GenericConst):
        array = expr.value.numpy()
        known = array.dtype.kind in "iub" and array.ndim <= 1 and array.size <= MAX_VALUES
        return array.astype(object) if known else None
    if isinstance(getattr(expr, "ty", None), ir.PrimType):
        array = np.empty((), dtype=object)
        array[()] = _plain(expr)
        return array
    return None


def _expression(array: np.ndarray[Any, Any]) -> Expr:
    from pydoit.tvm_compat import Analyzer, relax, tirx

    analyzer = Analyzer()
    values = [analyzer.simplify(tirx.const(v, "int64") if isinstance(v, int) else v) for v in array.reshape(-1)]
    return relax.ShapeExpr(values) if array.ndim else relax.prim_value(values[0])


def _plain(extent: Any) -> Any:
    from pydoit.tvm_compat import tirx

    return int(extent) if isinstance(extent, int | tirx.IntImm) else extent


def _gather(arrays: list[np.ndarray[Any, Any]], _: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    data, index = arrays
    return np.asarray(data[index.astype(np.int64)], dtype=object) if data.ndim == 1 and _known(index) else None


def _slice(arrays: list[np.ndarray[Any, Any]], attributes: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    data, *operands = arrays
    if not all(_known(operand) for operand in operands) or data.ndim != 1:
        return None
    if operands:
        starts, ends = operands[:2]
        step = int(operands[3].reshape(-1)[0]) if len(operands) > 3 else 1
        return data[int(starts.reshape(-1)[0]) : int(ends.reshape(-1)[0]) : step]
    return data[attributes["starts"][0] : attributes["ends"][0]]


def _concat(arrays: list[np.ndarray[Any, Any]], _: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([array.reshape(-1) for array in arrays])


def _same(arrays: list[np.ndarray[Any, Any]], _: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return arrays[0]


def _cast(arrays: list[np.ndarray[Any, Any]], attributes: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    return arrays[0] if attributes["to"] in _INTEGERS else None


def _squeeze(arrays: list[np.ndarray[Any, Any]], _: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    return arrays[0].reshape(()) if arrays[0].size == 1 else arrays[0]


def _unsqueeze(arrays: list[np.ndarray[Any, Any]], _: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    return arrays[0].reshape(1) if arrays[0].ndim == 0 else None


def _reshape(arrays: list[np.ndarray[Any, Any]], _: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    data, shape = arrays
    wanted = [int(extent) for extent in shape] if _known(shape) else None
    return data.reshape(wanted) if wanted in ([], [-1], [data.size]) else None


def _reduce_product(arrays: list[np.ndarray[Any, Any]], attributes: Mapping[str, Any]) -> np.ndarray[Any, Any] | None:
    total: Any = 1
    for value in arrays[0].reshape(-1):
        total = total * value
    result = np.empty((1,) if attributes.get("keepdims", 1) else (), dtype=object)
    result[...] = total
    return result


def _arithmetic(function: Callable[[Any, Any], Any]) -> Callable[..., np.ndarray[Any, Any]]:
    def apply(arrays: list[np.ndarray[Any, Any]], _: Mapping[str, Any]) -> np.ndarray[Any, Any]:
        return np.asarray(np.frompyfunc(function, 2, 1)(*arrays), dtype=object)

    return apply


def _divided(a: Any, b: Any) -> Any:
    """Extents are not negative, so that rounding down is rounding to zero."""
    from pydoit.tvm_compat import tirx

    if isinstance(a, int) and isinstance(b, int):
        return a // b
    return tirx.floordiv(a, b)


def _remainder(a: Any, b: Any) -> Any:
    from pydoit.tvm_compat import tirx

    return a % b if isinstance(a, int) and isinstance(b, int) else tirx.floormod(a, b)


def _bound(name: str) -> Callable[[Any, Any], Any]:
    def apply(a: Any, b: Any) -> Any:
        from pydoit.tvm_compat import tirx

        if isinstance(a, int) and isinstance(b, int):
            return min(a, b) if name == "min" else max(a, b)
        return getattr(tirx, name)(*(tirx.const(v, "int64") if isinstance(v, int) else v for v in (a, b)))

    return apply


def _known(array: np.ndarray[Any, Any]) -> bool:
    return all(isinstance(value, int) for value in array.reshape(-1))


_FUNCTIONS: Mapping[str, Callable[..., np.ndarray[Any, Any] | None]] = {
    "Add": _arithmetic(lambda a, b: a + b),
    "Cast": _cast,
    "Concat": _concat,
    "Div": _arithmetic(_divided),
    "Gather": _gather,
    "Identity": _same,
    "Max": _arithmetic(_bound("max")),
    "Min": _arithmetic(_bound("min")),
    "Mod": _arithmetic(_remainder),
    "Mul": _arithmetic(lambda a, b: a * b),
    "ReduceProd": _reduce_product,
    "Reshape": _reshape,
    "Slice": _slice,
    "Squeeze": _squeeze,
    "Sub": _arithmetic(lambda a, b: a - b),
    "Unsqueeze": _unsqueeze,
}
