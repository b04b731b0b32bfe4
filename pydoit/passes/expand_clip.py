"""ExpandClip: write clip with constant bounds as maximum and minimum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import PyExprMutator, mutator, relax, tirx


@dataclass(frozen=True)
class ExpandClip:
    """Rewrite `clip(x, low, high)` to `maximum(minimum(x, high), low)`.

    TVM 0.27 converts the layout of maximum and minimum but not that of clip (ReLU6), which leaves two transposes
    around each; and it lowers clip's bounds to arguments, which keeps it from being fused.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with clips expanded; one whose bounds are not constants stays."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(name, _Expander(module).visit_expr(function))
        return module


@mutator
class _Expander(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        """Expand one clip."""
        call = super().visit_call_(call)
        if getattr(call.op, "name", None) != "relax.clip":
            return call
        data, low, high = call.args
        if not all(isinstance(bound, tirx.FloatImm | tirx.IntImm) for bound in (low, high)):
            return call
        bounded = self.builder_.emit(relax.op.minimum(data, relax.const(high.value, data.ty.dtype)))
        return relax.op.maximum(bounded, relax.const(low.value, data.ty.dtype))
