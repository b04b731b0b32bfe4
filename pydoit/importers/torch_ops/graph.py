"""One node of the exported graph while it is translated: its arguments as Relax, and helpers to emit Relax."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pydoit.errors import UserError


@dataclass(frozen=True)
class Graph:
    """What a converter works with."""

    node: Any
    """The torch.fx node."""
    importer: Any
    """TVM's ExportedProgramImporter, which holds the expressions made so far."""

    def arguments(self) -> list[Any]:
        """The arguments in the order of the operator's schema, defaults filled in, tensors as Relax expressions."""
        values: list[Any] = []
        for position, argument in enumerate(self.node.target._schema.arguments):  # noqa: SLF001 - ATen's only description
            if position < len(self.node.args):
                value = self.node.args[position]
            elif argument.name in self.node.kwargs:
                value = self.node.kwargs[argument.name]
            else:
                value = argument.default_value if argument.has_default_value() else None
            values.append(self.importer._retrieve_args(value))  # noqa: SLF001 - converters have no other way to the values
        return values

    def emit(self, expression: Any) -> Any:
        """Bind the expression to a variable."""
        return self.importer.block_builder.emit(expression)

    def dtype(self, output: int | None = None) -> str:
        """The element type that torch gives the result, or one of several results."""
        value = self.node.meta["val"]
        return str((value if output is None else value[output]).dtype).removeprefix("torch.")

    def cast(self, expression: Any, dtype: str) -> Any:
        """The expression in another element type."""
        from tvm import relax

        if str(expression.ty.dtype) == dtype:
            return expression
        return self.emit(relax.op.astype(expression, dtype))

    def tensor(self, value: Any, dtype: str) -> Any:
        """A number or an expression as an expression of `dtype`."""
        from tvm import relax

        if isinstance(value, (bool, int, float)):
            return relax.const(value, dtype)
        return self.cast(value, dtype)

    def constant(self, array: NDArray[Any]) -> Any:
        """An array as a constant of the module."""
        from tvm import relax

        return relax.const(np.asarray(array, order="C"), str(array.dtype))

    def refuse(self, what: str) -> UserError:
        """The error for a use of the operator that has no translation."""
        return UserError(f"model: {self.node.target.__name__} with {what} is not supported; write it otherwise")


class SymbolicShapeError(Exception):
    """A converter met a symbolic shape where it needs a fixed one."""


def extents(expression: Any) -> list[Any]:
    """The shape: whole numbers where they are known, else symbolic expressions."""
    from pydoit.tvm_compat import tirx

    return [int(extent) if isinstance(extent, tirx.IntImm) else extent for extent in expression.ty.shape]


def static(expression: Any) -> list[int]:
    """The shape where all of it must be known."""
    shape = extents(expression)
    if not all(isinstance(extent, int) for extent in shape):
        raise SymbolicShapeError(str(list(map(str, shape))))
    return shape


def positive(axis: int, rank: int) -> int:
    """An axis counted from the front."""
    return axis + rank if axis < 0 else axis


def axes_of(axes: Sequence[int] | int | None, rank: int) -> list[int]:
    """Axes counted from the front; none given means all of them."""
    if axes is None or axes == []:
        return list(range(rank))
    return [positive(axis, rank) for axis in ([axes] if isinstance(axes, int) else axes)]
