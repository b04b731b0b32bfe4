"""CombineParallelMatmul: merge products that share their left operand, in modules with constant operands too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import PyExprMutator, ir, mutator, relax


@dataclass(frozen=True)
class CombineParallelMatmul:
    """TVM's pass, which fails where an operand is a constant ("Cannot treat type GenericConst as Var", TVM 0.27).

    The first state of a recurrent net is one: constants are bound to variables for the pass and put back after it.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with parallel products merged."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(name, _Binder(module).visit_expr(function))
        return relax.transform.CanonicalizeBindings()(relax.transform.CombineParallelMatmul()(module))


@mutator
class _Binder(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        """Give the constants that a product reads a name."""
        call = super().visit_call_(call)
        if getattr(call.op, "name", None) != "relax.matmul":
            return call
        operands = [self.builder_.emit(item) if isinstance(item, ir.GenericConst) else item for item in call.args]
        return relax.op.matmul(*operands, out_dtype=call.attrs.out_dtype or None)
