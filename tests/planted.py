"""Passes with planted faults, for tests of ablation and bisection; they work on imported and on lowered modules alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import PyExprMutator, mutator, relax


@mutator
class _Planter(PyExprMutator):  # type: ignore[misc]
    """Puts operators behind the float tensor that the call number `number` of a function computes."""

    def __init__(self, module: Any, number: int, fault: Callable[[Any], Any]) -> None:
        super().__init__(module)
        self._number, self._fault, self._seen = number, fault, 0

    def visit_var_binding_(self, binding: Any) -> None:
        value = self.visit_expr(binding.value)
        kind = binding.var.ty
        if isinstance(value, relax.Call) and isinstance(kind, relax.TensorType) and kind.dtype == "float32":
            self._seen += 1
            if self._seen == self._number:
                value = self._fault(self.builder_.emit(value), self.builder_.emit)
        var = self.builder_.emit_output(value) if not isinstance(binding.var, relax.DataflowVar) else self.builder_.emit(value)
        self.set_var_remap(binding.var, var)


@dataclass(frozen=True)
class _Planted:
    number: int = 1
    """Call of `main`, counted from 1, whose result is changed."""

    def __call__(self, module: Any) -> Any:
        planter = _Planter(module, self.number, self.fault)
        main = planter.visit_expr(module["main"])
        module.update_func(module.get_global_var("main"), main)
        lowered = not any(_is_operator(binding.value) for block in main.body.blocks for binding in block.bindings[:1])
        return relax.transform.LegalizeOps()(module) if lowered else module

    def fault(self, x: Any, emit: Callable[[Any], Any]) -> Any:
        raise AssertionError


def _is_operator(value: Any) -> bool:
    return isinstance(value, relax.Call) and str(getattr(value.op, "name", "")).startswith("relax.nn")


class Perturb(_Planted):
    """Adds a tenth."""

    def fault(self, x: Any, emit: Callable[[Any], Any]) -> Any:
        return relax.op.add(x, relax.const(0.1, "float32"))


class NotANumber(_Planted):
    """The root of a negative number."""

    def fault(self, x: Any, emit: Callable[[Any], Any]) -> Any:
        return relax.op.sqrt(emit(relax.op.subtract(relax.const(-1.0, "float32"), emit(relax.op.abs(x)))))


class Slow(_Planted):
    """Computes much, and uses none of it; the results stay the same."""

    def fault(self, x: Any, emit: Callable[[Any], Any]) -> Any:
        wasted = x
        for _ in range(60):
            wasted = emit(relax.op.sin(wasted))
        beyond = emit(relax.op.greater(wasted, relax.const(2.0, "float32")))
        return relax.op.where(beyond, wasted, x)
