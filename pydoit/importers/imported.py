"""What every importer returns, and the clean-up that gives all of them the same shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import tvm
    from tvm import relax

Tensors = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Imported:
    """A Relax module whose `main` takes the inputs, then the parameters, and returns a tuple of the outputs."""

    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    params: Tensors

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
) -> Imported:
    """Drop unused parameters, give `main` a tuple result, and rewrite what TVM cannot compile.

    `params` are ordered by name in the checkpoint; `param_vars` maps each of them to its variable in `main`.
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
    # functions that the importer emitted itself stay
    cleaned = tvm.IRModule(
        {**dict(module.functions.items()), module.get_global_var("main"): relax.BlockBuilder().normalize(function)}
    )
    cleaned = relax.transform.DeadCodeElimination()(_rewrite(cleaned))
    return Imported(cleaned, tuple(inputs), tuple(outputs), {n: np.ascontiguousarray(a) for n, a in kept.items()})


def _rewrite(module: tvm.IRModule) -> tvm.IRModule:
    """Replace what TVM 0.27 cannot compile, and drop broadcasts to the shape that is there already.

    Bitwise operators on bool become logical ones, because LLVM rejects the former ("Invalid operand type").
    """
    from tvm import relax
    from tvm_ffi import structural_equal

    logical = {f"relax.bitwise_{name}": getattr(relax.op, f"logical_{name}") for name in ("and", "or", "xor", "not")}

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
    return {"name": name, "shape": [int(extent) for extent in ty.shape], "dtype": str(ty.dtype)}
