"""Which values of a Relax function depend on its weights alone, so that they can be computed before the first call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydoit.tvm_compat import relax, tvm


def weight_params(function: Any) -> list[Any]:
    """Return the parameters of a Relax function after its user inputs (attribute `num_input`)."""
    attrs = function.attrs
    if attrs is None or "num_input" not in attrs:
        return []
    return list(function.params)[int(attrs["num_input"]) :]


class WeightDependence:
    """Answers whether an expression is computed from weights and constants only, following `lookup` for variables."""

    def __init__(self, weights: list[Any], lookup: Callable[[Any], Any]) -> None:
        self._weights = set(weights)
        self._lookup = lookup
        self._known: dict[Any, bool] = {}

    def holds(self, expr: Any) -> bool:
        """Say whether `expr` depends on weights and constants alone."""
        if isinstance(expr, tvm.ir.GenericConst):
            return True
        if isinstance(expr, relax.Var):
            return self._variable_holds(expr)
        if isinstance(expr, relax.TupleGetItem):
            return self.holds(expr.tuple_value)
        if isinstance(expr, relax.Tuple):
            return all(self.holds(field) for field in expr.fields)
        if isinstance(expr, relax.Call):
            return _is_pure_operator(expr) and all(self.holds(arg) for arg in expr.args)
        return not isinstance(expr, relax.Function | relax.SeqExpr | relax.If)

    def _variable_holds(self, var: Any) -> bool:
        if var in self._weights:
            return True
        if var not in self._known:
            bound = self._lookup(var)
            self._known[var] = bound is not None and self.holds(bound)
        return self._known[var]


def count_uses(function: Any) -> dict[Any, int]:
    """Count how often each variable of a Relax function is read."""
    uses: dict[Any, int] = {}

    def visit(node: Any) -> None:
        if isinstance(node, relax.Var):
            uses[node] = uses.get(node, 0) + 1

    for block in function.body.blocks:
        for binding in block.bindings:
            relax.analysis.post_order_visit(binding.value, visit)
    relax.analysis.post_order_visit(function.body.body, visit)
    return uses


def _is_pure_operator(call: Any) -> bool:
    return isinstance(call.op, tvm.ir.Op) and not call.op.name.startswith("relax.call_")
