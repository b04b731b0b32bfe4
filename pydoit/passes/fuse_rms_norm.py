"""FuseRmsNorm: join the operators of an RMS normalization, and the residual sum before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydoit.kernels import rows
from pydoit.passes.dependence import count_uses
from pydoit.passes.matching import Lookup, call_of, is_call, is_tensor, same_shape, source, uniform_value
from pydoit.target import vector_lanes
from pydoit.tvm_compat import PyExprMutator, Target, mutator, relax, tirx


@dataclass(frozen=True)
class FuseRmsNorm:
    """Rewrite `x * rsqrt(mean(x * x) + epsilon) * weight` over the last axis, in float32, to one function.

    Where x is a sum of two tensors, as after the branches of a transformer, the function computes the sum too, and has
    it as a first result where something else reads it. A norm whose intermediate values are read elsewhere stays.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with RMS norms as calls of one TIR function each."""
        lanes = vector_lanes(Target.current())
        module = relax.transform.CanonicalizeBindings()(module)
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                fuser = _Fuser(module, function, lanes)
                rewritten = fuser.visit_expr(function)
                fuser.builder_.update_func(name, rewritten)
                module = fuser.builder_.get()
        return relax.transform.DeadCodeElimination()(module)


@dataclass(frozen=True)
class _Norm:
    """One normalization that was found."""

    result: Any
    """Variable of the normalized tensor."""
    data: Any
    """Variable of what is normalized."""
    weight: Any
    epsilon: float
    reads: int
    """How often the normalization reads `data`."""
    terms: tuple[Any, ...] = ()
    """The two terms where `data` is their sum and nothing else comes between."""
    keeps_sum: bool = False
    """Whether something else reads the sum."""


@mutator
class _Fuser(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, function: Any, lanes: int) -> None:
        super().__init__(module)
        self._lanes = lanes
        norms = list(find_norms(function))
        self._by_result = {norm.result: norm for norm in norms}
        self._by_sum = {norm.data: norm for norm in norms if norm.keeps_sum}
        self._pairs: dict[Any, Any] = {}

    def visit_var_binding_(self, binding: Any) -> None:
        """Replace the binding of a normalized tensor, or of a sum that is normalized and read elsewhere."""
        value = binding.value
        if binding.var in self._by_sum:
            norm = self._by_sum[binding.var]
            pair = self.builder_.emit(self.visit_expr(self._call(norm, norm.terms, with_sum=True)))
            self._pairs[norm.result] = pair
            value = relax.TupleGetItem(pair, 0)
        elif binding.var in self._pairs:
            value = relax.TupleGetItem(self._pairs[binding.var], 1)
        elif binding.var in self._by_result:
            norm = self._by_result[binding.var]
            value = self._call(norm, norm.terms or (norm.data,), with_sum=False)
        super().visit_var_binding_(relax.VarBinding(binding.var, value))

    def _call(self, norm: _Norm, terms: tuple[Any, ...], with_sum: bool) -> Any:
        return self.builder_.call_te(
            rows.rms_norm, list(terms), norm.weight, norm.epsilon, self._lanes, with_sum,
            primfunc_name_hint="add_rms_norm" if len(terms) > 1 else "rms_norm",
        )  # fmt: skip


def find_norms(function: Any) -> Iterator[_Norm]:
    """The normalizations of a function, in its order; each sum is given to the first that reads it."""
    uses = count_uses(function)
    taken: set[Any] = set()
    for block in function.body.blocks:
        bound = {binding.var: binding.value for binding in block.bindings}
        places = {binding.var: place for place, binding in enumerate(block.bindings)}
        for binding in block.bindings:
            norm = _match(binding.var, binding.value, uses, bound.get)
            if norm is None:
                continue
            if norm.data not in taken:
                norm = _with_sum(norm, places, uses, bound)
            if norm.terms:
                taken.add(norm.data)
            yield norm


def _match(result: Any, value: Any, uses: Mapping[Any, int], lookup: Lookup) -> _Norm | None:
    if not is_call(value, "multiply") or not is_tensor(value, "float32"):
        return None
    for scaled, weight in (value.args, tuple(value.args)[::-1]):
        data, inner = _scaled(scaled, lookup)
        if data is None or not is_tensor(data, "float32") or not same_shape(data, value) or not len(data.ty.shape):
            continue
        size = data.ty.shape[-1]
        fits = is_tensor(weight, "float32") and len(weight.ty.shape) == 1 and isinstance(size, tirx.IntImm)
        if not fits or not isinstance(weight.ty.shape[0], tirx.IntImm) or int(weight.ty.shape[0]) != int(size):
            continue
        epsilon, chain = _epsilon(inner, data, lookup)
        if epsilon is not None and all(uses.get(step, 1) == 1 for step in (scaled, inner, *chain)):
            square = source(chain[-1], lookup)
            return _Norm(result, data, weight, epsilon, 1 + sum(factor.same_as(data) for factor in square.args))
    return None


def _scaled(expr: Any, lookup: Lookup) -> tuple[Any, Any]:
    """x and the value that `x * rsqrt(value)` or `x / sqrt(value)` scales it by; None and None for anything else."""
    product, quotient = call_of(expr, "multiply", lookup), call_of(expr, "divide", lookup)
    if product is not None:
        for data, factor in (product.args, tuple(product.args)[::-1]):
            if call_of(factor, "rsqrt", lookup) is not None:
                return data, factor
    if quotient is not None and call_of(quotient.args[1], "sqrt", lookup) is not None:
        return quotient.args[0], quotient.args[1]
    return None, None


def _epsilon(factor: Any, data: Any, lookup: Lookup) -> tuple[float | None, tuple[Any, ...]]:
    """Epsilon of `[r]sqrt(mean(data * data) + epsilon)` and the variables in between; None for anything else."""
    shifted = source(factor, lookup).args[0]
    addition = call_of(shifted, "add", lookup)
    for average, constant in (addition.args, tuple(addition.args)[::-1]) if addition is not None else ():
        epsilon, mean = uniform_value(constant, lookup), call_of(average, "mean", lookup)
        if epsilon is None or mean is None or not same_shape(addition, mean) or not _is_over_last_axis(mean):
            continue
        if _is_square(source(mean.args[0], lookup), data, lookup):
            return float(epsilon), (shifted, average, mean.args[0])
    return None, ()


def _is_over_last_axis(mean: Any) -> bool:
    rank = len(mean.args[0].ty.shape) if is_tensor(mean.args[0]) else 0
    axes = [int(axis) for axis in mean.attrs.axis] if mean.attrs.axis is not None else []
    return bool(mean.attrs.keepdims) and axes in ([-1], [rank - 1])


def _is_square(expr: Any, data: Any, lookup: Lookup) -> bool:
    wanted = source(data, lookup)
    if is_call(expr, "square"):
        return bool(source(expr.args[0], lookup).same_as(wanted))
    if is_call(expr, "power"):
        return uniform_value(expr.args[1], lookup) == 2 and bool(source(expr.args[0], lookup).same_as(wanted))
    return is_call(expr, "multiply") and all(source(factor, lookup).same_as(wanted) for factor in expr.args)


def _with_sum(norm: _Norm, places: Mapping[Any, int], uses: Mapping[Any, int], bound: Mapping[Any, Any]) -> _Norm:
    """The norm with the sum that it reads, where its weight is there before the sum."""
    addition: Any = bound.get(norm.data)
    if not is_call(addition, "add"):
        return norm
    if not all(is_tensor(term, "float32") and same_shape(term, addition) for term in addition.args):
        return norm
    keeps_sum = uses[norm.data] > norm.reads or not isinstance(norm.data, relax.DataflowVar)
    if keeps_sum and places.get(norm.weight, -1) > places[norm.data]:
        return norm
    return replace(norm, terms=tuple(addition.args), keeps_sum=keeps_sum)
