"""FuseSafeSoftmax: join softmax and the guard that torch.export puts around it for rows that are masked entirely."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.kernels import rows
from pydoit.target import vector_lanes
from pydoit.tvm_compat import PyExprMutator, Target, mutator, relax


@dataclass(frozen=True)
class FuseSafeSoftmax:
    """Rewrite `where(not any(x != -inf), 0, softmax(x))` over the last axis to one function.

    torch's scaled dot-product attention returns zeros for a query that may attend to nothing; written out, the guard
    costs five passes over the scores.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with guarded softmaxes as calls of one TIR function each."""
        lanes = vector_lanes(Target.current())
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                fuser = _Fuser(module, lanes)
                rewritten = fuser.visit_expr(function)
                fuser.builder_.update_func(name, rewritten)
                module = fuser.builder_.get()
        return relax.transform.DeadCodeElimination()(module)


@mutator
class _Fuser(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, lanes: int) -> None:
        super().__init__(module)
        self._lanes = lanes

    def visit_call_(self, call: Any) -> Any:
        """Replace the `where` that ends a guarded softmax."""
        call = super().visit_call_(call)
        if getattr(call.op, "name", None) != "relax.where":
            return call
        empty, zero, normal = call.args
        softmax = self._bound(normal, "relax.nn.softmax")
        if softmax is None or not self._is_zero(zero):
            return call
        scores = softmax.args[0]
        rank = len(scores.ty.shape)
        if int(softmax.attrs.axis) not in (-1, rank - 1) or scores.ty.dtype != "float32":
            return call
        if not self._tests_all_masked(empty, scores):
            return call
        return self.builder_.call_te(rows.softmax, scores, self._lanes, True, primfunc_name_hint="safe_softmax")

    def _tests_all_masked(self, condition: Any, scores: Any) -> bool:
        """Whether all scores of a row are -inf, in one of the ways in which torch's versions write it."""
        return any(self._follows(chain, condition, scores) for chain in _ALL_MASKED)

    def _follows(self, chain: tuple[str, ...], condition: Any, scores: Any) -> bool:
        current = condition
        for name in chain:
            call = self._bound(current, name)
            if call is None:
                return False
            if name in ("relax.max", "relax.min") and not _keeps_last_axis(call):
                return False
            if name == "relax.equal":
                return bool(call.args[0].same_as(scores)) and _value(call.args[1]) == float("-inf")
            current = call.args[0]
        return False

    def _is_zero(self, expr: Any) -> bool:
        for name in ("relax.full_like", "relax.zeros_like", "relax.full", "relax.zeros"):
            call = self._bound(expr, name)
            if call is not None:
                return name.startswith("relax.zeros") or _value(call.args[1]) == 0.0
        return _value(expr) == 0.0

    def _bound(self, expr: Any, name: str) -> Any:
        bound = self.lookup_binding(expr) if isinstance(expr, relax.Var) else expr
        return bound if isinstance(bound, relax.Call) and getattr(bound.op, "name", None) == name else None


# From the outermost: not(any(not(x == -inf))), and all(x == -inf), with casts in between.
_ALL_MASKED = (
    ("relax.logical_not", "relax.astype", "relax.max", "relax.astype", "relax.logical_not", "relax.equal"),
    ("relax.astype", "relax.min", "relax.astype", "relax.equal"),
)


def _keeps_last_axis(reduction: Any) -> bool:
    """Whether it goes over the last axis alone, which stays with extent 1."""
    rank = len(reduction.args[0].ty.shape)
    axes = [int(axis) % rank for axis in reduction.attrs.axis] if reduction.attrs.axis is not None else []
    return bool(reduction.attrs.keepdims) and axes == [rank - 1]


def _value(expr: Any) -> float | None:
    """Return the number that all elements of a constant have, or None."""
    data = getattr(expr, "value", None)
    if data is None or not hasattr(data, "numpy"):
        return None
    array = data.numpy()
    first = array.reshape(-1)[0]
    return float(first) if (array == first).all() else None
