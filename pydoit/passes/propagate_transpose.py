"""PropagateTranspose: move transposes behind elementwise operators, so that inverse pairs meet and cancel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydoit.passes.matching import is_call, is_tensor, same_shape
from pydoit.tvm_compat import PyExprMutator, mutator, relax, tirx

_ELEMENTWISE = frozenset(
    f"relax.{name}"
    for name in (
        "abs", "acos", "acosh", "asin", "asinh", "astype", "atan", "atanh", "ceil", "clip", "cos", "cosh", "erf", "exp",
        "floor", "isfinite", "isinf", "isnan", "log", "logical_not", "negative", "nn.gelu", "nn.gelu_tanh", "nn.leakyrelu",
        "nn.relu", "nn.relu6", "nn.selu", "nn.silu", "nn.softplus", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh",
        "sqrt", "square", "tan", "tanh", "trunc",
        "add", "atan2", "divide", "equal", "floor_divide", "floor_mod", "greater", "greater_equal", "less", "less_equal",
        "logical_and", "logical_or", "logical_xor", "maximum", "minimum", "mod", "multiply", "not_equal", "power",
        "subtract", "where",
    )
)  # fmt: skip
Axes = tuple[int, ...]


@dataclass(frozen=True)
class PropagateTranspose:
    """Compute elementwise operators before the transposes that they read, where fewer transposes are left then.

    Transposes and the operators that connect them form regions; a region is rewritten as a whole, or left as it is where
    that saves no transpose. The other operands of an operator must have the same transpose, or be brought to its order
    by a reshape: scalars, vectors of weights.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with as many transposes or fewer."""
        for clean in (relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination()):
            module = clean(module)
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                plan = _Plan()
                for block in function.body.blocks:
                    if isinstance(block, relax.DataflowBlock):
                        plan.add(_Regions(block).worthwhile())
                if plan.axes:
                    module.update_func(name, _Mover(module, plan).visit_expr(function))
        return relax.transform.DeadCodeElimination()(relax.transform.CanonicalizeBindings()(module))


@dataclass
class _Plan:
    """What is computed before its transpose."""

    axes: dict[Any, Axes] = field(default_factory=dict)
    """Variable -> the transpose that leads from what is computed to its value."""
    read: set[Any] = field(default_factory=set)
    """Variables of `axes` whose values are read by operators that are not moved."""

    def add(self, other: _Plan) -> None:
        self.axes.update(other.axes)
        self.read |= other.read


class _Regions:
    """The transposes of one dataflow block and the operators that may be computed before them."""

    def __init__(self, block: Any) -> None:
        self._axes: dict[Any, Axes] = {}
        self._parents: dict[Any, Any] = {}
        self._read: set[Any] = set()
        self._transposes: list[Any] = []
        for binding in block.bindings:
            self._add(binding.var, binding.value)

    def worthwhile(self) -> _Plan:
        """The regions that have fewer transposes when moved."""
        saved: dict[Any, int] = {}
        for variable in self._transposes:
            saved[self._region(variable)] = saved.get(self._region(variable), 0) + 1
        for variable in self._read:
            if not _is_identity(self._axes[variable]):
                saved[self._region(variable)] -= 1
        axes = {variable: axes for variable, axes in self._axes.items() if saved[self._region(variable)] > 0}
        return _Plan(axes, self._read & axes.keys())

    def _add(self, variable: Any, value: Any) -> None:
        transpose = transpose_axes(value)
        if transpose is not None:
            before = self._axes.get(value.args[0])
            axes = transpose if before is None else tuple(before[axis] for axis in transpose)
            self._join(variable, axes, [value.args[0]])
            self._transposes.append(variable)
        else:
            moved = moved_axes(value, self._axes)
            if moved is None:
                relax.analysis.post_order_visit(value, self._note_read)
                return
            self._join(variable, moved, list(value.args))
            # Where transposes have cancelled, the value itself is an operand.
            self._read |= {
                argument for argument in value.args if argument in self._axes and not _has_axes(argument, self._axes)
            }
        if not isinstance(variable, relax.DataflowVar):
            self._read.add(variable)

    def _note_read(self, expr: Any) -> None:
        if isinstance(expr, relax.Var) and expr in self._axes:
            self._read.add(expr)

    def _join(self, variable: Any, axes: Axes, arguments: list[Any]) -> None:
        self._axes[variable] = axes
        self._parents[variable] = variable
        for argument in arguments:
            if isinstance(argument, relax.Var) and argument in self._axes:
                self._parents[self._region(argument)] = variable

    def _region(self, variable: Any) -> Any:
        while not self._parents[variable].same_as(variable):
            variable = self._parents[variable]
        return variable


def transpose_axes(value: Any) -> Axes | None:
    """The axes of a transpose of a tensor of known rank, None for anything else."""
    if not is_call(value, "permute_dims") or not isinstance(value.args[0], relax.Var) or not is_tensor(value.args[0]):
        return None
    rank = len(value.args[0].ty.shape)
    if value.attrs.axes is None:
        return tuple(reversed(range(rank)))
    return tuple(int(axis) % rank for axis in value.attrs.axes)


def moved_axes(value: Any, known: Mapping[Any, Axes]) -> Axes | None:
    """The transpose that an elementwise operator can be computed before, None where it cannot."""
    if getattr(getattr(value, "op", None), "name", None) not in _ELEMENTWISE or not is_tensor(value):
        return None
    transposed = [argument for argument in value.args if _has_axes(argument, known)]
    found = {known[argument] for argument in transposed}
    if len(found) != 1 or not any(same_shape(argument, value) for argument in transposed):
        return None
    (axes,) = found
    others = [argument for argument in value.args if not _has_axes(argument, known)]
    fits = all(len(argument.ty.shape) == len(axes) for argument in transposed)
    return axes if fits and all(_can_follow(argument, axes) for argument in others) else None


def _has_axes(argument: Any, known: Mapping[Any, Axes]) -> bool:
    return isinstance(argument, relax.Var) and argument in known and not _is_identity(known[argument])


def _is_identity(axes: Axes) -> bool:
    return axes == tuple(range(len(axes)))


def _can_follow(argument: Any, axes: Axes) -> bool:
    """Whether an operand is a number, or a reshape brings it to the order before the transpose."""
    if not isinstance(argument.ty, relax.TensorType):
        return isinstance(argument, tirx.IntImm | tirx.FloatImm)
    if not is_tensor(argument) or len(argument.ty.shape) > len(axes):
        return False
    offset = len(axes) - len(argument.ty.shape)
    places = [axes[offset + axis] for axis, extent in enumerate(argument.ty.shape) if not _is_one(extent)]
    return places == sorted(places)


def _is_one(extent: Any) -> bool:
    return isinstance(extent, tirx.IntImm) and int(extent) == 1


@mutator
class _Mover(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, plan: _Plan) -> None:
        super().__init__(module)
        self._plan = plan
        self._before: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        """Compute a moved value before its transpose, and transpose it where its value is read."""
        axes = self._plan.axes.get(binding.var)
        if axes is None:
            super().visit_var_binding_(binding)
            return
        before = self._compute(binding.value, axes)
        self._before[binding.var] = before
        if binding.var in self._plan.read:
            value = before if _is_identity(axes) else relax.op.permute_dims(before, axes)
            super().visit_var_binding_(relax.VarBinding(binding.var, value))

    def _compute(self, value: Any, axes: Axes) -> Any:
        if is_call(value, "permute_dims"):
            data = value.args[0]
            return self._before[data] if data in self._before else self.visit_expr(data)
        arguments = [self._operand(argument, axes) for argument in value.args]
        return self.builder_.emit(relax.Call(value.op, arguments, value.attrs, value.ty_args))

    def _operand(self, argument: Any, axes: Axes) -> Any:
        if isinstance(argument, relax.Var) and argument in self._before and not _is_identity(self._plan.axes[argument]):
            return self._before[argument]
        given = self.visit_expr(argument)
        if not isinstance(argument.ty, relax.TensorType) or all(_is_one(extent) for extent in argument.ty.shape):
            return given
        offset = len(axes) - len(argument.ty.shape)
        shape: list[Any] = [tirx.const(1, "int64")] * len(axes)
        for axis, extent in enumerate(argument.ty.shape):
            shape[axes[offset + axis]] = extent
        return self.builder_.emit(relax.op.reshape(given, shape))
