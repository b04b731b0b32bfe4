"""FuseOpsGuarded: groups within the limits are those of FuseOps, others are cut where few values cross."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import blocks_of, evaluate, evaluate_all, module_of, operators, random, run_pass

from pydoit import passes
from pydoit.passes import Setting, is_legal
from pydoit.passes.fuse_ops_guarded import FuseOpsGuarded
from pydoit.tvm_compat import relax, structural_equal, tirx

Build = Callable[..., Any]


def emit(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def lowered(module: Any) -> Any:
    for name in ("LegalizeForCpu", "AnnotateTIROpPattern"):
        module = run_pass(passes.make_pass(name), module)
    return module


def groups(module: Any) -> dict[str, int]:
    """Operators of each group by its name."""
    functions = {name.name_hint: item for name, item in module.functions.items() if isinstance(item, relax.Function)}
    return {name: len(operators({"main": item})) for name, item in functions.items() if name != "main"}


def compiled(module: Any) -> Any:
    return run_pass(passes.make_pass("FuseTIR"), module)


def calls(module: Any) -> int:
    """TIR functions that `main` calls after fusion."""
    return operators(compiled(module)).count("call_tir")


def chain(length: int) -> Build:
    def build(x: Any) -> Any:
        for number in range(length):
            x = emit(relax.op.add(relax.op.nn.relu(x), relax.const(0.1 * number - 0.3, "float32")))
        return x

    return build


def total(*terms: Any) -> Any:
    result = terms[0]
    for term in terms[1:]:
        result = emit(relax.op.add(result, term))
    return result


def test_groups_within_the_limits_are_those_of_fuse_ops() -> None:
    module = lowered(module_of(chain(7), {"x": (4, 16)}))
    assert structural_equal(run_pass(FuseOpsGuarded(), module), run_pass(relax.transform.FuseOps(), module))
    assert list(groups(run_pass(FuseOpsGuarded(), module)).values()) == [14]


@pytest.mark.parametrize(("limit", "wanted"), [(7, [7, 7]), (4, [3, 3, 4, 4]), (1, [])])
def test_operators(limit: int, wanted: list[int]) -> None:
    module = lowered(module_of(chain(7), {"x": (4, 16)}))
    guarded = run_pass(FuseOpsGuarded(max_operators=limit), module)
    relax.analysis.well_formed(guarded)
    assert sorted(groups(guarded).values()) == wanted
    assert calls(guarded) == (len(wanted) or 14)
    given = random(4, 16)
    np.testing.assert_allclose(evaluate(compiled(guarded), given), evaluate(module, given), rtol=1e-6, atol=1e-6)


def test_inputs() -> None:
    shapes = {f"x{number}": (4, 16) for number in range(9)}
    module = lowered(module_of(total, shapes))
    guarded = run_pass(FuseOpsGuarded(max_inputs=5), module)
    assert sorted(groups(guarded).values()) == [4]  # the two parts are the same function
    assert calls(guarded) == 2
    given = [random(4, 16, seed=number) for number in range(9)]
    np.testing.assert_allclose(evaluate(compiled(guarded), *given), evaluate(module, *given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("kibibytes", "wanted"), [(20, [4, 4]), (36, [8])])
def test_working_set(kibibytes: int, wanted: list[int]) -> None:
    module = lowered(module_of(chain(4), {"x": (2, 1024)}))  # a row of one tensor is 4 KiB
    guarded = run_pass(FuseOpsGuarded(max_working_set=kibibytes), module)
    assert sorted(groups(guarded).values()) == wanted


def test_a_cut_is_where_one_value_crosses() -> None:
    def build(x: Any) -> Any:
        wide = [emit(operator(x)) for operator in (relax.op.nn.relu, relax.op.abs, relax.op.negative)]
        neck = emit(total(*wide))
        return emit(relax.op.add(emit(relax.op.sqrt(relax.op.abs(neck))), neck))

    module = lowered(module_of(build, {"x": (4, 16)}))
    guarded = run_pass(FuseOpsGuarded(max_operators=5), module)
    assert sorted(groups(guarded).values()) == [3, 5]
    given = random(4, 16)
    np.testing.assert_allclose(evaluate(compiled(guarded), given), evaluate(module, given), rtol=1e-6, atol=1e-6)


def test_values_that_cross_together_are_results_of_one_part() -> None:
    def build(x: Any) -> Any:
        wide = [emit(relax.op.multiply(emit(relax.op.add(x, relax.const(number))), x)) for number in (1.0, 2.0, 3.0)]
        return total(*wide)

    module = lowered(module_of(build, {"x": (4, 16)}))
    guarded = run_pass(FuseOpsGuarded(max_operators=4), module)
    relax.analysis.well_formed(guarded)
    assert sorted(groups(guarded).values()) == [4, 4]
    given = random(4, 16)
    np.testing.assert_allclose(evaluate(compiled(guarded), given), evaluate(module, given), rtol=1e-6, atol=1e-6)


def test_a_product_keeps_the_maps_next_to_it() -> None:
    def build(x: Any, weight: Any) -> Any:
        return chain(3)(emit(relax.op.matmul(x, weight)))

    module = lowered(module_of(build, {"x": (8, 16)}, {"weight": (16, 32)}))
    guarded = run_pass(FuseOpsGuarded(max_operators=4), module)
    assert sorted(groups(guarded)) == ["fused_matmul_relu_add", "fused_relu_add1_relu_add2"]
    given = random(8, 16), random(16, 32, seed=1)
    np.testing.assert_allclose(evaluate(compiled(guarded), *given), evaluate(module, *given), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("limit", [4, 2, 1])
def test_symbolic_extents_that_no_tensor_tells(limit: int) -> None:
    length = tirx.Var("length", "int64")

    def build(x: Any) -> Any:
        return chain(3)(emit(relax.op.reshape(x, (2, 3 * length))))

    module = lowered(module_of(build, {"x": (3, length, 2)}))
    guarded = run_pass(FuseOpsGuarded(max_operators=limit), module)
    relax.analysis.well_formed(guarded)
    assert all(count <= limit for count in groups(guarded).values())
    given = random(3, 5, 2)
    np.testing.assert_allclose(evaluate(compiled(guarded), given), evaluate(module, given), rtol=1e-6, atol=1e-6)


def test_several_dataflow_blocks() -> None:
    module = lowered(blocks_of({"x": (4, 16)}, chain(2), lambda x, y: chain(3)(y)))
    guarded = run_pass(FuseOpsGuarded(max_operators=3), module)
    relax.analysis.well_formed(guarded)
    assert sorted(groups(guarded).values()) == [2, 2, 3, 3]
    given = random(4, 16)
    for found, wanted in zip(evaluate_all(compiled(guarded), given), evaluate_all(module, given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_it_takes_the_place_of_fuse_ops_in_every_preset() -> None:
    for preset in passes.PRESETS.values():
        order = ["FuseOpsGuarded" if use == "FuseOps" else use for use in preset]
        assert is_legal(order, Setting())
