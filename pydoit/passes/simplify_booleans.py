"""SimplifyBooleans: the boolean algebra that exporters leave around attention masks, written shorter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydoit.passes.matching import call_of, is_tensor, same_shape, uniform_value
from pydoit.tvm_compat import PyExprMutator, mutator, relax

# dtype -> dtypes that hold each of its values exactly and through which a cast may be skipped, whatever it leads to.
_WIDER = {
    "int8": ("int16", "int32", "int64"),
    "int16": ("int32", "int64"),
    "int32": ("int64",),
    "uint8": ("uint16", "uint32", "uint64", "int16", "int32", "int64"),
    "uint16": ("uint32", "uint64", "int32", "int64"),
    "uint32": ("uint64", "int64"),
    "float16": ("float32", "float64"),
    "float32": ("float64",),
}
_NUMBERS = frozenset((*_WIDER, "int64", "uint64", "float64"))


@dataclass(frozen=True)
class SimplifyBooleans:
    """Remove double negations, operands without effect, choices by constants and casts that lead back.

    Exact: a cast is skipped only where the dtype in between holds every value. A result keeps its shape: an operand
    that the removed operator had repeated is left alone.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with fewer operators on truth values."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(name, _Simplifier(module).visit_expr(function))
        canonical = relax.transform.CanonicalizeBindings()(module)
        return relax.transform.DeadCodeElimination()(canonical)


@mutator
class _Simplifier(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any) -> None:
        super().__init__(module)
        self._block: frozenset[Any] = frozenset()

    def visit_binding_block_(self, block: Any) -> Any:
        """Remember which variables can be looked up: what those of other blocks read may be out of sight here."""
        outer, self._block = self._block, frozenset(binding.var for binding in block.bindings)
        simplified = super().visit_binding_block_(block)
        self._block = outer
        return simplified

    def visit_dataflow_block_(self, block: Any) -> Any:
        """As for the other blocks."""
        outer, self._block = self._block, frozenset(binding.var for binding in block.bindings)
        simplified = super().visit_dataflow_block_(block)
        self._block = outer
        return simplified

    def visit_call_(self, call: Any) -> Any:
        """Simplify one operator; what it reads is simplified already."""
        call = self.builder_.normalize(super().visit_call_(call))
        rules: dict[str, Callable[[Any], Any]] = {
            "relax.logical_not": self._negation,
            "relax.logical_and": lambda call: self._connective(call, neutral=True),
            "relax.logical_or": lambda call: self._connective(call, neutral=False),
            "relax.where": self._choice,
            "relax.astype": self._cast,
            "relax.equal": lambda call: self._comparison(call, negated=False),
            "relax.not_equal": lambda call: self._comparison(call, negated=True),
        }
        rule = rules.get(getattr(call.op, "name", ""))
        return rule(call) if rule is not None and is_tensor(call) else call

    def _lookup(self, variable: Any) -> Any:
        return self.lookup_binding(variable) if variable in self._block else None

    def _negation(self, call: Any) -> Any:
        """not(not(x)) -> x."""
        inner = call_of(call.args[0], "logical_not", self._lookup)
        return inner.args[0] if inner is not None and is_tensor(inner.args[0], "bool") else call

    def _connective(self, call: Any, neutral: bool) -> Any:
        """x and true, x or false -> x; x and false, x or true -> the constant."""
        for operand, other in (call.args, tuple(call.args)[::-1]):
            value = uniform_value(other, self._lookup)
            if value is None or not is_tensor(operand, "bool") or not is_tensor(other, "bool"):
                continue
            kept = operand if bool(value) == neutral else other
            if same_shape(kept, call):
                return kept
        return call

    def _choice(self, call: Any) -> Any:
        """where(true, a, b) -> a; where(false, a, b) -> b."""
        condition, *branches = call.args
        value = uniform_value(condition, self._lookup)
        if value is None:
            return call
        chosen = branches[0] if value else branches[1]
        if not is_tensor(chosen, str(call.ty.dtype)):
            return call
        return chosen if same_shape(chosen, call) else relax.op.broadcast_to(chosen, call.ty.shape)

    def _cast(self, call: Any) -> Any:
        """A cast to the same dtype, or after one that loses nothing."""
        data, wanted = call.args[0], str(call.ty.dtype)
        if is_tensor(data, wanted):
            return data
        inner = call_of(data, "astype", self._lookup)
        if inner is None or not is_tensor(inner) or not is_tensor(inner.args[0]):
            return call
        origin = inner.args[0]
        if not _leads_through(str(origin.ty.dtype), str(inner.ty.dtype), wanted):
            return call
        return origin if str(origin.ty.dtype) == wanted else relax.op.astype(origin, wanted)

    def _comparison(self, call: Any, negated: bool) -> Any:
        """A truth value, or its cast to numbers, compared with 0 or 1 -> the truth value or its negation."""
        for operand, other in (call.args, tuple(call.args)[::-1]):
            cast = call_of(operand, "astype", self._lookup)
            truth = cast.args[0] if cast is not None else operand
            value = uniform_value(other, self._lookup)
            if value not in (0, 1) or not is_tensor(truth, "bool") or not same_shape(truth, call):
                continue
            return truth if bool(value) != negated else relax.op.logical_not(truth)
        return call


def _leads_through(origin: str, between: str, wanted: str) -> bool:
    """Whether casting `origin` to `between` to `wanted` is the same as casting it to `wanted`."""
    if origin == "bool":
        return between in _NUMBERS and wanted in {*_NUMBERS, "bool"}
    if wanted == "float16" and not origin.startswith("float"):
        return False  # machines without such a cast go through float32 from some integers only, and round twice
    return between in _WIDER.get(origin, ()) and wanted in {*_NUMBERS, "bool"}
