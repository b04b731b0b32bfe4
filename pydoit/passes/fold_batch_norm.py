"""FoldBatchNorm: fold batch normalization into the weights of the convolution before it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.passes.dependence import WeightDependence, count_uses, weight_params
from pydoit.tvm_compat import PyExprMutator, mutator, relax


@dataclass(frozen=True)
class FoldBatchNorm:
    """Rewrite `batch_norm(conv2d(x, w) [+ b])` to `conv2d(x, w * scale) + shift`.

    scale = gamma / sqrt(variance + epsilon) and shift = beta - mean * scale (+ b * scale) are expressions of weights,
    so that lifting moves them out of the compiled function. A batch norm after anything else becomes
    `x * scale + shift`. Source: Jacob et al. 2018, section 3.2 (arXiv:1712.05877), without quantization.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with every batch norm in inference form; functions without one stay as they are."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(name, _Folder(module, function).visit_expr(function))
        passes = (relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination())
        for remove in passes:
            module = remove(module)
        return module


@mutator
class _Folder(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, function: Any) -> None:
        super().__init__(module)
        self._uses = count_uses(function)
        self._constant = WeightDependence(weight_params(function), self.lookup_binding)

    def visit_tuple_getitem_(self, item: Any) -> Any:
        """Replace element 0 of a batch norm's result; the running statistics (1 and 2) are left to dead code."""
        item = super().visit_tuple_getitem_(item)
        norm = self.lookup_binding(item.tuple_value) if isinstance(item.tuple_value, relax.Var) else None
        if norm is None or item.index != 0 or not _is_call(norm, "relax.nn.batch_norm"):
            return item
        data, gamma, beta, mean, variance = norm.args
        attrs = norm.attrs
        one = relax.const(float(attrs.epsilon), data.ty.dtype)
        scale = relax.op.rsqrt(relax.op.add(variance, one))
        if attrs.scale:
            scale = relax.op.multiply(gamma, scale)
        scale = self.builder_.emit(scale)
        shift = relax.op.multiply(mean, scale)
        shift = relax.op.subtract(beta, shift) if attrs.center else relax.op.negative(shift)
        return self._apply(data, scale, self.builder_.emit(shift), int(attrs.axis))

    def _apply(self, data: Any, scale: Any, shift: Any, axis: int) -> Any:
        rank = len(data.ty.shape)
        broadcast = [-1 if position == axis else 1 for position in range(rank)]
        producer = self._sole_producer(data)
        bias = None
        if _is_call(producer, "relax.add"):
            producer, bias = self._split_bias(producer)
        if _is_call(producer, "relax.nn.conv2d") and producer.attrs.data_layout == "NCHW" and axis == 1:
            data = self.builder_.emit(self._scaled_convolution(producer, scale))
            if bias is not None:
                scaled = relax.op.multiply(bias, relax.op.reshape(scale, broadcast))
                shift = relax.op.add(relax.op.reshape(shift, broadcast), scaled)
                return relax.op.add(data, self.builder_.emit(shift))
            return relax.op.add(data, self.builder_.emit(relax.op.reshape(shift, broadcast)))
        scaled = self.builder_.emit(relax.op.multiply(data, relax.op.reshape(scale, broadcast)))
        return relax.op.add(scaled, relax.op.reshape(shift, broadcast))

    def _scaled_convolution(self, call: Any, scale: Any) -> Any:
        weight = self.builder_.emit(relax.op.multiply(call.args[1], relax.op.reshape(scale, [-1, 1, 1, 1])))
        return relax.Call(call.op, [call.args[0], weight], call.attrs)

    def _split_bias(self, add: Any) -> tuple[Any, Any]:
        for data, bias in (add.args, reversed(add.args)):
            producer = self._sole_producer(data)
            if self._constant.holds(bias) and _is_call(producer, "relax.nn.conv2d"):
                return producer, bias
        return add, None

    def _sole_producer(self, data: Any) -> Any:
        """Return the call that computes `data` if nothing else reads it: folding must not double the convolution."""
        if not isinstance(data, relax.Var) or self._uses.get(data, 1) > 1:
            return None
        return self.lookup_binding(data)


def _is_call(expr: Any, name: str) -> bool:
    return isinstance(expr, relax.Call) and getattr(expr.op, "name", None) == name
