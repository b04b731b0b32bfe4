"""What every importer returns, and the clean-up that gives all of them the same shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from pydoit.importers import symbolic

if TYPE_CHECKING:
    import tvm
    from tvm import relax

    from pydoit.importers.spec import Dim, ModelSpec

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Imported:
    """A Relax module whose `main` takes the inputs, then the parameters, and returns a tuple of the outputs."""

    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: Tensors
    dims: Mapping[str, Dim] = field(default_factory=dict)

    def spec(self) -> dict[str, Any]:
        """The content of spec.json (docs/structures.md)."""
        main = self.module["main"]
        names = (*self.inputs, *self.params)
        described = [_describe(name, var.ty) for name, var in zip(names, main.params, strict=True)]
        outputs = [_describe(name, ty) for name, ty in zip(self.outputs, main.ret_ty.fields, strict=True)]
        count = len(self.inputs)
        return {
            "schema": 1,
            "entry": "main",
            "dims": {name: dim.model_dump() for name, dim in self.dims.items()},
            "inputs": described[:count],
            "outputs": outputs,
            "params": described[count:],
        }

    def operators(self) -> dict[str, int]:
        """How often `main` calls each Relax operator, by name."""
        from tvm import ir, relax

        counts: Counter[str] = Counter()

        def visit(expr: Any) -> None:
            if isinstance(expr, relax.Call) and isinstance(expr.op, ir.Op):
                counts[expr.op.name] += 1

        relax.analysis.post_order_visit(self.module["main"], visit)
        return dict(sorted(counts.items()))


def finish(
    module: tvm.IRModule,
    inputs: Sequence[str],
    outputs: Sequence[str],
    params: Mapping[str, NDArray[Any]],
    param_vars: Mapping[str, relax.Var],
    spec: ModelSpec | None = None,
) -> Imported:
    """Drop unused parameters, give `main` a tuple result, and rewrite what TVM cannot compile.

    `params` are ordered by name in the checkpoint; `param_vars` maps each of them to its variable in `main`. The
    symbolic dimensions of `spec` give `main`'s symbolic variables their names and bounds.
    """
    import tvm
    from tvm import relax

    main = module["main"]
    used = set(relax.analysis.free_vars(main.body))
    kept = {name: array for name, array in params.items() if param_vars[name] in used}
    body, result = main.body, main.ret_ty
    if not isinstance(result, relax.TupleType):
        body, result = relax.SeqExpr(body.blocks, relax.Tuple([body.body])), relax.TupleType([result])
    arguments = [*main.params[: len(inputs)], *(param_vars[name] for name in kept)]
    attributes = tvm.ir.make_node("ir.DictAttrs", num_input=len(inputs), global_symbol="main")
    function = relax.Function(arguments, body, result, True, attributes)
    if spec is not None and spec.dims:
        function = symbolic.name_dims(function, inputs, spec)
    # functions that the importer emitted itself stay
    normalized = relax.BlockBuilder().normalize(function)
    cleaned = tvm.IRModule({**dict(module.functions.items()), module.get_global_var("main"): normalized})
    if spec is not None and spec.dims:
        cleaned = symbolic.simplify(cleaned, spec.dims)
    cleaned = relax.transform.DeadCodeElimination()(_rewrite(cleaned))
    arrays = {name: np.asarray(array, order="C") for name, array in kept.items()}
    dims = {} if spec is None else spec.dims
    return Imported(cleaned, tuple(inputs), tuple(outputs), arrays, dims)


def _rewrite(module: tvm.IRModule) -> tvm.IRModule:
    """Replace what TVM 0.27 cannot compile, and drop broadcasts to the shape that is there already.

    Bitwise operators and arithmetic on bool become logical operators, because LLVM rejects the former ("Invalid operand
    type") and TVM's code generation the latter.
    """
    from tvm import relax

    from pydoit.tvm_compat import structural_equal

    logical = {f"relax.bitwise_{name}": getattr(relax.op, f"logical_{name}") for name in ("and", "or", "xor", "not")}
    logical |= {"relax.multiply": relax.op.logical_and, "relax.minimum": relax.op.logical_and}
    logical |= {"relax.add": relax.op.logical_or, "relax.maximum": relax.op.logical_or}

    @relax.expr_functor.mutator
    class Rewrite(relax.PyExprMutator):  # type: ignore[misc]
        def visit_call_(self, call: relax.Call) -> relax.Expr:
            visited = self.visit_expr_post_order(call)
            name = getattr(visited.op, "name", "")
            if name == "relax.broadcast_to" and structural_equal(visited.args[0].ty.shape, call.ty.shape):
                return visited.args[0]
            if name in logical and str(visited.args[0].ty.dtype) == "bool":
                return logical[name](*visited.args)
            return visited

    rewrite = Rewrite(module)
    rewrite.builder_.update_func(module.get_global_var("main"), rewrite.visit_expr(module["main"]))
    return rewrite.builder_.get()


def _describe(name: str, ty: Any) -> dict[str, Any]:
    """A symbolic extent is a string: the name of a dimension, or an expression of several."""
    from pydoit.tvm_compat import tirx

    shape = [int(extent) if isinstance(extent, tirx.IntImm) else str(extent) for extent in ty.shape]
    return {"name": name, "shape": shape, "dtype": str(ty.dtype)}
