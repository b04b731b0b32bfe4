"""Symbolic dimensions in Relax: the recipe's names for them, and what follows from their bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydoit.errors import UserError
from pydoit.importers.spec import Dim, ModelSpec
from pydoit.tvm_compat import Analyzer, PyExprMutator, ir, mutator, relax, tirx


def name_dims(function: Any, inputs: Sequence[str], spec: ModelSpec) -> Any:
    """Call `main`'s symbolic variables by the recipe's names, and note the bounds by which TVM plans memory.

    Raises UserError where the import has fixed a dimension to one extent.
    """
    named = {name: tirx.Var(name, "int64") for name in spec.dims}
    binding = {}
    for name, parameter in zip(inputs, function.params, strict=False):
        for axis, extent in enumerate(spec.inputs[name].shape):
            if isinstance(extent, str):
                found = parameter.ty.shape[axis]
                if not isinstance(found, tirx.Var):
                    raise UserError(f"model.dims.{extent}: the model works for {extent} = {found} only; write that number")
                binding[found] = named[extent]
    function = function.bind_symbolic_vars(binding)
    upper = {name: tirx.IntImm("int64", dim.max) for name, dim in spec.dims.items()}
    lower = {name: tirx.IntImm("int64", dim.min) for name, dim in spec.dims.items()}
    return function.with_attr("tir_var_upper_bound", upper).with_attr("tir_var_lower_bound", lower)


def simplify(module: Any, dims: Mapping[str, Dim]) -> Any:
    """Simplify the shapes in `main` by the dimensions' bounds.

    `x[:seq]` of 512 rows has `min(seq, 512)` rows for TVM, which then knows no shape for what follows.
    """
    bounded = _Bounded(module, dims)
    bounded.builder_.update_func(module.get_global_var("main"), bounded.visit_expr(module["main"]))
    return bounded.builder_.get()


@mutator
class _Bounded(PyExprMutator):  # type: ignore[misc]
    def __init__(self, module: Any, dims: Mapping[str, Dim]) -> None:
        super().__init__(module)
        self._analyzer = Analyzer()
        for variable in relax.analysis.free_symbolic_vars(module["main"]) or relax.analysis.defined_symbolic_vars(
            module["main"]
        ):
            if variable.name in dims:
                low, high = dims[variable.name].min, dims[variable.name].max
                extent = tirx.const(high - low + 1, "int64")
                self._analyzer.bind(variable, ir.Range.from_min_extent(tirx.const(low, "int64"), extent))

    def visit_shape_expr_(self, shape: Any) -> Any:
        """Simplify the shape that an operator is given."""
        return relax.ShapeExpr([self._simple(extent) for extent in shape.values])

    def visit_call_(self, call: Any) -> Any:
        """Mark slices that stay within their tensor."""
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", None) != "relax.strided_slice" or call.attrs.assume_inbound:
            return call
        data, axes, begin, end, *strides = call.args
        if not all(isinstance(part, ir.Tuple) for part in (axes, begin, end, *strides)) or data.ty.shape is None:
            return call
        if any(not isinstance(step, tirx.IntImm) or int(step) != 1 for part in strides for step in part.fields):
            return call
        starts, stops = ([self._simple(value) for value in part.fields] for part in (begin, end))
        for axis, start, stop in zip(axes.fields, starts, stops, strict=True):
            extent = data.ty.shape[int(axis)]
            known = self._analyzer.can_prove
            if not (known(start >= 0) and known(stop >= start) and known(stop <= extent)):
                return call
        return relax.op.strided_slice(data, axes, starts, stops, assume_inbound=True)

    def _simple(self, extent: Any) -> Any:
        return self._analyzer.simplify(extent)
