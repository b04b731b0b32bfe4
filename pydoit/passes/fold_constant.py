"""FoldConstant: evaluate what depends on constants alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import PyExprMutator, mutator, relax


@dataclass(frozen=True)
class FoldConstant:
    """TVM's pass, but results without elements stay calls of `zeros`: TVM 0.27 cannot read an empty constant back."""

    def __call__(self, module: Any) -> Any:
        """Return the module with constant expressions evaluated."""
        folded = relax.transform.FoldConstant()(module)
        for variable, function in list(folded.functions_items()):
            if isinstance(function, relax.Function):
                rewriter = _EmptyConstants(folded)
                rewriter.builder_.update_func(variable, rewriter.visit_expr(function))
                folded = rewriter.builder_.get()
        return folded


@mutator
class _EmptyConstants(PyExprMutator):  # type: ignore[misc]
    def visit_generic_const_(self, constant: Any) -> Any:
        """Replace a constant without elements."""
        if not hasattr(constant.value, "shape") or 0 not in constant.value.shape:
            return constant
        return self.builder_.normalize(relax.op.zeros(list(constant.value.shape), str(constant.value.dtype)))
