"""One ONNX node as a converter sees it: Relax operands, attributes, known values, and a builder to emit into."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError
from pydoit.runtime.exchange import numpy_dtype

Expr = Any
"""A Relax expression (tvm.ir.Expr)."""
Result = Any
"""A Relax expression, or a sequence of them for operators with several outputs."""
Converter = Callable[["Node"], Result]


@dataclass(frozen=True)
class Node:
    """Operands and attributes of one node; `emit` binds an expression, so that its type is known."""

    operator: str
    builder: Any
    inputs: Sequence[Expr | None]
    attributes: Mapping[str, Any]
    opset: int
    outputs: int
    """How many outputs the node names (trailing ones that nobody wants may be missing)."""
    scope: Sequence[Any]
    """TVM's importer's tables: values by name, and weights (variable and value) by the name of their variable."""

    def has(self, index: int) -> bool:
        """Whether the optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def __getitem__(self, index: int) -> Expr:
        """The input; its presence was checked by onnx's checker or by `has`."""
        expr = self.inputs[index]
        assert expr is not None
        return expr

    def get(self, name: str, default: Any = None) -> Any:
        """An attribute; byte strings are decoded."""
        value = self.attributes.get(name, default)
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, tuple) and value and isinstance(value[0], bytes):
            return tuple(item.decode() for item in value)
        return value

    def emit(self, expr: Expr) -> Expr:
        """Bind the expression to a variable."""
        return self.builder.emit(expr)

    def emit_te(self, function: Callable[..., Any], *arguments: Any, name: str | None = None) -> Expr:
        """Bind a call of a tensor expression; `name` is what profiles show."""
        return self.builder.emit_te(function, *arguments, primfunc_name_hint=name or self.operator.lower())

    def known(self, index: int) -> NDArray[Any] | None:
        """The input's value if it is a constant, None if it is computed or not given."""
        from tvm import relax
        from tvm.ir import GenericConst

        if not self.has(index):
            return None
        expr = self.inputs[index]
        if isinstance(expr, GenericConst):
            return np.asarray(expr.value.numpy())
        if isinstance(expr, relax.ShapeExpr) and all(hasattr(extent, "value") for extent in expr.values):
            return np.array([int(extent) for extent in expr.values], dtype=np.int64)
        found = self.scope[1].get(expr.name) if isinstance(expr, relax.Var) else None
        if found is not None and found[0].same_as(expr):
            value = found[1]
            return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        return None

    def constant(self, index: int, what: str) -> NDArray[Any] | None:
        """The value of an input that must be known now; None if it is not given.

        Raises UserError where it is computed at run time.
        """
        value = self.known(index)
        if value is None and self.has(index):
            raise UserError(
                f"model: {self.operator} needs {what} at import, but the model computes it at run time; "
                "bind the inputs that it depends on in [model.constants] or fix the input shapes"
            )
        return value

    def integers(self, index: int, attribute: str) -> list[int] | None:
        """A list of integers that older opsets give as an attribute and newer ones as a constant input."""
        value = self.constant(index, attribute)
        if value is not None:
            return [int(item) for item in np.atleast_1d(value)]
        given = self.get(attribute)
        return None if given is None else [int(item) for item in np.atleast_1d(given)]

    def refuse(self, what: str, remedy: str = "export the model without it") -> UserError:
        """The error to raise for something that the operator allows and we do not."""
        return UserError(f"model: {self.operator}: {what} is not supported; {remedy}")


def dtype_of(expr: Expr) -> str:
    """Element type of a bound expression."""
    return str(expr.ty.dtype)


def shape_of(expr: Expr) -> list[Any]:
    """Extents of a bound expression: int where known, else a symbolic TIR expression."""
    return [int(extent) if hasattr(extent, "value") else extent for extent in expr.ty.shape.values]


def static_shape(node: Node, expr: Expr) -> list[int]:
    """Extents that must all be known; raises UserError where one is symbolic."""
    extents = shape_of(expr)
    if not all(isinstance(extent, int) for extent in extents):
        raise node.refuse(f"an operand of symbolic shape {extents}", "fix the input shapes")
    return extents


def is_float(dtype: str) -> bool:
    """Whether an element type is a floating-point one."""
    return dtype.startswith(("float", "bfloat"))


def const(value: Any, dtype: str) -> Expr:
    """A Relax constant of any element type that NumPy or ml_dtypes has."""
    from tvm import relax

    return relax.const(np.asarray(value).astype(numpy_dtype(dtype)), dtype)


def broadcast(node: Node, *operands: Expr) -> list[Expr]:
    """The operands at their common shape."""
    from tvm import relax

    common = node.emit(relax.op.equal(operands[0], operands[0]))
    for operand in operands[1:]:
        common = node.emit(relax.op.logical_or(common, node.emit(relax.op.equal(operand, operand))))
    shape = common.ty.shape
    same = [shape_of(operand) == shape_of(common) for operand in operands]
    return [x if equal else node.emit(relax.op.broadcast_to(x, shape)) for x, equal in zip(operands, same, strict=True)]


def elementwise(node: Node, function: Callable[..., Any], *operands: Expr, name: str) -> Expr:
    """`function` of the operands' elements, which are broadcast first; for what Relax has no operator for."""
    from pydoit.tvm_compat import te

    def compute(*tensors: Any) -> Any:
        return te.compute(tensors[0].shape, lambda *i: function(*(tensor(*i) for tensor in tensors)), name=name)

    return node.emit_te(compute, *broadcast(node, *operands), name=name)


def along(values: Any, axis: int, rank: int) -> Any:
    """A NumPy vector shaped so that it broadcasts along one axis."""
    return values.reshape([-1 if i == axis else 1 for i in range(rank)])
