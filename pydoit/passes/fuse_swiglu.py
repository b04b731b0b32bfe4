"""FuseSwiGLU: join SiLU and the product with the other branch of a gated linear unit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydoit.kernels.vector_math import silu
from pydoit.passes.dependence import count_uses
from pydoit.passes.matching import Lookup, call_of, is_call, is_tensor, same_shape, source
from pydoit.tvm_compat import PyExprMutator, mutator, relax, te, tirx


@dataclass(frozen=True)
class FuseSwiGLU:
    """Rewrite `silu(x) * y`, in float32, to one function; SiLU may be written `x * sigmoid(x)`.

    Where x and y are the two halves of a split, the function reads them in place, so that the halves need no copies.
    Source: Shazeer 2020 (arXiv:2002.05202). An activation that something else reads stays.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with gated units as calls of one TIR function each."""
        module = relax.transform.CanonicalizeBindings()(module)
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                fuser = _Fuser(module, function)
                rewritten = fuser.visit_expr(function)
                fuser.builder_.update_func(name, rewritten)
                module = fuser.builder_.get()
        return relax.transform.DeadCodeElimination()(module)


@dataclass(frozen=True)
class _Unit:
    """One gated unit that was found."""

    result: Any
    """Variable of `silu(gate) * other`."""
    gate: Any
    other: Any
    halves: tuple[Any, int, int] | None = None
    """The tensor that both are halves of, the axis, and which half the gate is."""


@mutator
class _Fuser(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, function: Any) -> None:
        super().__init__(module)
        self._units = {unit.result: unit for unit in _find_units(function)}

    def visit_var_binding_(self, binding: Any) -> None:
        """Replace the binding of a unit's result."""
        unit, value = self._units.get(binding.var), binding.value
        if unit is not None and unit.halves is not None:
            value = self.builder_.call_te(_of_halves, *unit.halves, primfunc_name_hint="swiglu")
        elif unit is not None:
            value = self.builder_.call_te(_of_two, unit.gate, unit.other, primfunc_name_hint="swiglu")
        super().visit_var_binding_(relax.VarBinding(binding.var, value))


def _of_two(gate: Any, other: Any) -> Any:
    return te.compute(gate.shape, lambda *index: silu(gate(*index)) * other(*index), name="swiglu")


def _of_halves(product: Any, axis: int, gate_half: int) -> Any:
    """`axis` of `product` holds both halves, one after the other."""
    half = product.shape[axis] // 2
    shape = [*product.shape[:axis], half, *product.shape[axis + 1 :]]

    def element(*index: Any) -> Any:
        second = (*index[:axis], index[axis] + half, *index[axis + 1 :])
        gate, other = (second, index) if gate_half else (index, second)
        return silu(product(*gate)) * product(*other)

    return te.compute(shape, element, name="swiglu")


def _find_units(function: Any) -> Iterator[_Unit]:
    uses = count_uses(function)
    for block in function.body.blocks:
        bound = {binding.var: binding.value for binding in block.bindings}
        for binding in block.bindings:
            unit = _match(binding.var, binding.value, uses, bound.get)
            if unit is not None:
                yield unit


def _match(result: Any, value: Any, uses: Mapping[Any, int], lookup: Lookup) -> _Unit | None:
    if not is_call(value, "multiply") or not is_tensor(value, "float32"):
        return None
    for activated, other in (value.args, tuple(value.args)[::-1]):
        gate = _gate(activated, uses, lookup)
        if gate is None or uses.get(activated, 1) > 1:
            continue
        if all(is_tensor(operand, "float32") and same_shape(operand, value) for operand in (gate, other)):
            return _Unit(result, gate, other, _halves(gate, other, lookup))
    return None


def _gate(activated: Any, uses: Mapping[Any, int], lookup: Lookup) -> Any:
    """x where `activated` is silu(x) or x * sigmoid(x), else None."""
    activation, product = call_of(activated, "nn.silu", lookup), call_of(activated, "multiply", lookup)
    if activation is not None:
        return activation.args[0]
    for factor, gate in (product.args, tuple(product.args)[::-1]) if product is not None else ():
        sigmoid = call_of(factor, "sigmoid", lookup)
        if sigmoid is not None and uses.get(factor, 1) == 1 and source(sigmoid.args[0], lookup).same_as(source(gate, lookup)):
            return gate
    return None


def _halves(gate: Any, other: Any, lookup: Lookup) -> tuple[Any, int, int] | None:
    """What both are halves of, its axis and which half the gate is; None where they are not the halves of one split."""
    items = [source(operand, lookup) for operand in (gate, other)]
    if not all(isinstance(item, relax.TupleGetItem) for item in items) or {item.index for item in items} != {0, 1}:
        return None
    splits = [call_of(item.tuple_value, "split", lookup) for item in items]
    if splits[0] is None or not splits[0].same_as(splits[1]):
        return None
    product = splits[0].args[0]
    if not is_tensor(product, "float32"):
        return None
    axis = int(splits[0].attrs.axis) % len(product.ty.shape)
    extents = [tensor.ty.shape[axis] for tensor in (product, gate)]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents) or int(extents[0]) != 2 * int(extents[1]):
        return None
    return product, axis, int(items[0].index)
