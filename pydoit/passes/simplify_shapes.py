"""SimplifyShapes: remove reshapes, broadcasts and transposes that change nothing, and move reshapes behind products."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydoit.tvm_compat import PyExprMutator, mutator, relax, structural_equal

_UNARY = frozenset(
    f"relax.{name}"
    for name in ("nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "sigmoid", "tanh", "exp", "erf", "sqrt", "negative")
)
_BINARY = frozenset(("relax.add", "relax.multiply", "relax.subtract", "relax.divide", "relax.maximum", "relax.minimum"))


@dataclass(frozen=True)
class SimplifyShapes:
    """Drop shape operators without effect, and sink those that merge leading axes below products and maps.

    torch.export writes a linear layer as reshape, matmul, add, reshape, and attention with several reshapes and
    broadcasts for each operand; each one that stays between a product and a map keeps them from being fused.
    """

    def __call__(self, module: Any) -> Any:
        """Return the module with fewer shape operators."""
        for name, function in module.functions_items():
            if isinstance(function, relax.Function):
                module.update_func(name, _Simplifier(module).visit_expr(function))
        canonical = relax.transform.CanonicalizeBindings()(module)
        return relax.transform.DeadCodeElimination()(canonical)


@mutator
class _Simplifier(PyExprMutator):  # type: ignore[misc]
    def visit_call_(self, call: Any) -> Any:
        """Simplify one operator; what it reads is simplified already."""
        call = self.builder_.normalize(super().visit_call_(call))
        name = getattr(call.op, "name", None)
        if name in ("relax.broadcast_to", "relax.reshape"):
            return self._simplify_shape(call, name)
        if name == "relax.permute_dims":
            return self._join_transposes(call)
        if name == "relax.matmul":
            return self._sink_below_matmul(call)
        if name in _UNARY or name in _BINARY:
            return self._sink_below_map(call)
        return call

    def _simplify_shape(self, call: Any, name: str) -> Any:
        data = call.args[0]
        if _same_shape(call, data):
            return data
        if name != "relax.reshape":
            return call
        source = self._source(data, "relax.reshape")
        if source is not None:
            return source.args[0] if _same_shape(call, source.args[0]) else relax.op.reshape(source.args[0], call.args[1])
        product = self._source(data, "relax.matmul")
        return call if product is None else self._unmerge_batches(call, product)

    def _unmerge_batches(self, call: Any, product: Any) -> Any:
        """reshape(matmul(reshape(a), reshape(b))) with the batches of a and b -> matmul(a, b)."""
        sources = [self._source(operand, "relax.reshape") for operand in product.args]
        if None in sources:
            return call
        left, right = (source.args[0] for source in sources)
        shapes = [shape for shape in map(_shape, (left, right, call)) if shape is not None]
        merged = [shape for shape in map(_shape, (*product.args, product)) if shape is not None]
        if len(shapes) + len(merged) != 6 or len({len(shape) for shape in shapes}) != 1 or len(shapes[0]) < 3:
            return call
        same_batch = shapes[0][:-2] == shapes[1][:-2] == shapes[2][:-2]
        kept = merged[0][-2:] == shapes[0][-2:] and merged[1][-2:] == shapes[1][-2:]
        if not same_batch or not kept or merged[2][-2:] != shapes[2][-2:]:
            return call
        return relax.op.matmul(left, right, out_dtype=product.attrs.out_dtype or None)

    def _join_transposes(self, call: Any) -> Any:
        source = self._source(call.args[0], "relax.permute_dims")
        if source is None or call.attrs.axes is None or source.attrs.axes is None:
            return call
        axes = [int(source.attrs.axes[int(axis)]) for axis in call.attrs.axes]
        return source.args[0] if axes == sorted(axes) else relax.op.permute_dims(source.args[0], axes)

    def _sink_below_matmul(self, call: Any) -> Any:
        """matmul(reshape(x), w) with x's last axis kept -> reshape(matmul(x, w))."""
        source = self._source(call.args[0], "relax.reshape")
        weight = _shape(call.args[1])
        if source is None or weight is None or len(weight) != 2 or not _merges_leading(source):
            return call
        product = relax.op.matmul(source.args[0], call.args[1], out_dtype=call.attrs.out_dtype or None)
        return relax.op.reshape(self.builder_.emit(product), call.ty.shape)

    def _sink_below_map(self, call: Any) -> Any:
        """map(reshape(x), v) with a scalar or vector v and x's last axis kept -> reshape(map(x, v))."""
        for position, operand in enumerate(call.args):
            source = self._source(operand, "relax.reshape")
            others = [_shape(other) for index, other in enumerate(call.args) if index != position]
            if source is None or not _merges_leading(source) or _shape(call) != _shape(operand):
                continue
            if any(shape is None or len(shape) > 1 for shape in others):
                continue
            arguments = [*call.args[:position], source.args[0], *call.args[position + 1 :]]
            return relax.op.reshape(self.builder_.emit(relax.Call(call.op, arguments, call.attrs)), call.ty.shape)
        return call

    def _source(self, expr: Any, name: str) -> Any:
        """Return the call of operator `name` that computes `expr`, or None."""
        bound = self.lookup_binding(expr) if isinstance(expr, relax.Var) else None
        return bound if isinstance(bound, relax.Call) and getattr(bound.op, "name", None) == name else None


def _merges_leading(reshape: Any) -> bool:
    """Say whether a reshape keeps the last axis and lowers the rank: what linear layers do before their product."""
    before, after = _shape(reshape.args[0]), _shape(reshape)
    if before is None or after is None or len(after) < 2:
        return False
    return len(before) > len(after) and before[-1] == after[-1]


def _shape(expr: Any) -> tuple[int, ...] | None:
    """Return the static shape of a tensor, or None."""
    if not isinstance(expr.ty, relax.TensorType) or expr.ty.shape is None:
        return None
    sizes = [getattr(size, "value", None) for size in expr.ty.shape]
    return None if None in sizes else tuple(int(size) for size in sizes if size is not None)


def _same_shape(call: Any, data: Any) -> bool:
    if not isinstance(data.ty, relax.TensorType) or not isinstance(call.ty, relax.TensorType):
        return False
    if data.ty.shape is None or call.ty.shape is None:
        return False
    return bool(structural_equal(data.ty.shape, call.ty.shape))
