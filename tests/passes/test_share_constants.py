"""ShareConstants: equal constants are bound once, what differs in anything is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import blocks_of, evaluate, evaluate_all, module_of, random, run_pass

from pydoit.passes.share_constants import MAX_COMPARED_BYTES, ShareConstants
from pydoit.tvm_compat import ir, relax, tirx


def emit(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def constants(module: Any) -> tuple[int, int]:
    """How many constants with axes are bound, and how many are read in place."""
    bound, read = 0, 0
    for block in module["main"].body.blocks:
        for binding in block.bindings:
            if isinstance(binding.value, ir.GenericConst):
                bound += 1
            elif isinstance(binding.value, relax.Call):
                read += sum(isinstance(item, ir.GenericConst) and len(item.ty.shape) > 0 for item in binding.value.args)
    return bound, read


def vector(*values: float, dtype: str = "float32") -> Any:
    return relax.const(np.array(values, dtype))


def twice(make: Callable[[], Any]) -> Callable[[Any], Any]:
    return lambda x: relax.op.multiply(emit(relax.op.add(x, make())), make())


def test_equal_constants_are_bound_once() -> None:
    module = module_of(twice(lambda: vector(1, 2, 3)), {"x": (2, 3)})
    shared = run_pass(ShareConstants(), module)
    assert (constants(module), constants(shared)) == ((0, 2), (1, 0))
    given = random(2, 3)
    np.testing.assert_array_equal(evaluate(shared, given), evaluate(module, given))
    assert constants(run_pass(ShareConstants(), shared)) == (1, 0)


def test_large_ones_are_compared_too() -> None:
    size = MAX_COMPARED_BYTES
    other = random(size)
    other[-1] += 1
    for second, wanted in ((random(size), (1, 0)), (other, (0, 2))):
        values = iter((random(size), second))
        module = module_of(twice(lambda values=values: relax.const(next(values))), {"x": (2, size)})
        assert constants(run_pass(ShareConstants(), module)) == wanted


@pytest.mark.parametrize(
    "pair",
    [
        (vector(1, 2), vector(1, 3)),
        (vector(0.0, 1.0), vector(-0.0, 1.0)),
        (vector(1, 2), relax.const(np.array([[1, 2]], "float32"))),
        (relax.const(1.0, "float32"), relax.const(1.0, "float32")),
    ],
)
def test_other_values_shapes_and_scalars_stay_in_place(pair: tuple[Any, Any]) -> None:
    module = module_of(lambda x: relax.op.multiply(emit(relax.op.add(x, pair[0])), pair[1]), {"x": (2, 2)})
    shared = run_pass(ShareConstants(), module)
    assert constants(shared) == constants(module)


def test_other_dtypes_stay_in_place() -> None:
    def build(x: Any) -> Any:
        integers = relax.op.add(relax.op.astype(x, "int32"), vector(0, 0, dtype="int32"))
        return relax.op.add(x, relax.op.add(relax.op.astype(integers, "float32"), vector(0, 0)))

    assert constants(run_pass(ShareConstants(), module_of(build, {"x": (2, 2)}))) == (0, 2)


def test_a_bound_constant_and_one_in_a_tuple() -> None:
    def build(x: Any) -> Any:
        named = emit(vector(1, 2))
        joined = emit(relax.op.concat([vector(1, 2), emit(relax.op.sum(x, axis=[0])), vector(1, 2)], axis=0))
        return relax.op.add(relax.op.sum(joined), relax.op.sum(named))

    module = module_of(build, {"x": (2, 2)})
    shared = run_pass(ShareConstants(), module)
    assert constants(shared) == (1, 0)
    given = random(2, 2)
    np.testing.assert_array_equal(evaluate(shared, given), evaluate(module, given))


def test_several_dataflow_blocks() -> None:
    module = blocks_of(
        {"x": (2, 3)},
        lambda x: relax.op.add(x, vector(1, 2, 3)),
        lambda x, y: relax.op.multiply(y, vector(1, 2, 3)),
        lambda x, y, z: relax.op.multiply(emit(relax.op.add(z, vector(4, 5, 6))), vector(4, 5, 6)),
    )
    shared = run_pass(ShareConstants(), module)
    relax.analysis.well_formed(shared)
    assert constants(shared) == (2, 0)
    given = random(2, 3)
    for found, wanted in zip(evaluate_all(shared, given), evaluate_all(module, given), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_branches_keep_theirs() -> None:
    condition, x = relax.Var("condition", relax.TensorType((), "bool")), relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [condition, x]):
        branches = []
        for _ in range(2):
            result = relax.Var("branch", relax.TensorType((2,), "float32"))
            binding = relax.VarBinding(result, builder.normalize(relax.op.add(x, vector(1, 2))))
            branches.append(relax.SeqExpr([relax.BindingBlock([binding])], result))
        chosen = builder.emit(relax.If(condition, *branches))
        builder.emit_func_output(builder.emit(relax.op.add(chosen, vector(1, 2))))
    shared = run_pass(ShareConstants(), builder.get())
    relax.analysis.well_formed(shared)
    assert constants(shared) == (0, 1)


def test_symbolic_extents() -> None:
    rows = tirx.Var("rows", "int64")
    module = module_of(twice(lambda: vector(1, 2, 3)), {"x": (rows, 3)})
    shared = run_pass(ShareConstants(), module)
    assert constants(shared) == (1, 0)
    given = random(4, 3)
    np.testing.assert_array_equal(evaluate(shared, given), evaluate(module, given))


def test_equal_expressions_of_them_become_common() -> None:
    def build(x: Any) -> Any:
        return relax.op.add(relax.op.nn.relu(relax.op.add(x, vector(1, 2))), relax.op.tanh(relax.op.add(x, vector(1, 2))))

    shared = relax.transform.EliminateCommonSubexpr()(run_pass(ShareConstants(), module_of(build, {"x": (3, 2)})))
    calls = [b.value.op.name for block in shared["main"].body.blocks for b in block.bindings if isinstance(b.value, relax.Call)]
    assert calls.count("relax.add") == 2
