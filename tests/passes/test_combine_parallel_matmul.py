"""CombineParallelMatmul merges products, and leaves those of constants, at which TVM's own pass fails."""

from __future__ import annotations

import numpy as np

from pydoit.passes.combine_parallel_matmul import CombineParallelMatmul
from pydoit.tvm_compat import IRModule, relax


def products(module: IRModule) -> int:
    found = []
    relax.analysis.post_order_visit(
        module["main"], lambda e: found.append(e) if getattr(getattr(e, "op", None), "name", "") == "relax.matmul" else None
    )
    return len(found)


def two_products(constant: bool) -> IRModule:
    """x @ a and x @ b, where x is an input or a constant."""
    builder = relax.BlockBuilder()
    x, a, b = (relax.Var(n, relax.TensorType(s, "float32")) for n, s in (("x", [3, 5]), ("a", [5, 4]), ("b", [5, 6])))
    left = relax.const(np.zeros((3, 5), "float32")) if constant else x
    with builder.function("main", [x, a, b]):
        with builder.dataflow():
            results = builder.emit_output([builder.emit(relax.op.matmul(left, weight)) for weight in (a, b)])
        builder.emit_func_output(results)
    return builder.get()


def test_products_of_one_operand_are_merged() -> None:
    assert products(CombineParallelMatmul()(two_products(constant=False))) == 1


def test_a_constant_operand_is_no_fault() -> None:
    assert products(CombineParallelMatmul()(two_products(constant=True))) in (1, 2)
