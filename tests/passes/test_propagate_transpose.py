"""PropagateTranspose: inverse transposes cancel across elementwise operators; what saves none stays as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import blocks_of, evaluate, evaluate_all, module_of, operators, random, run_pass

from pydoit.passes.propagate_transpose import PropagateTranspose
from pydoit.tvm_compat import relax, tirx

TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)
Build = Callable[..., Any]


def emit(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def last(x: Any) -> Any:
    return emit(relax.op.permute_dims(x, TO_LAST))


def first(x: Any) -> Any:
    return emit(relax.op.permute_dims(x, TO_FIRST))


def number(value: float) -> Any:
    return relax.const(value, "float32")


def unary(x: Any) -> Any:
    return first(relax.op.tanh(relax.op.nn.relu(last(x))))


def with_scalar(x: Any) -> Any:
    return first(relax.op.add(number(1.0), relax.op.multiply(last(x), number(2.0))))


def with_channels(x: Any) -> Any:
    return first(relax.op.multiply(last(x), relax.const(np.arange(4, dtype="float32"))))


def with_rows_and_columns(x: Any) -> Any:
    return first(relax.op.add(last(x), relax.const(np.arange(30, dtype="float32").reshape(5, 6, 1))))


def with_same(x: Any) -> Any:
    return first(relax.op.subtract(last(x), last(relax.op.nn.relu(x))))


def with_repeated(x: Any) -> Any:
    return first(relax.op.divide(last(x), last(relax.op.max(x, axis=[1], keepdims=True))))


def clipped(x: Any) -> Any:
    return first(relax.op.clip(last(x), 0, 1))


def chosen(x: Any) -> Any:
    moved = last(x)
    return first(relax.op.where(relax.op.greater(moved, number(0.0)), moved, number(0.5)))


def composed(x: Any) -> Any:
    return relax.op.permute_dims(relax.op.negative(relax.op.permute_dims(x, (0, 1, 3, 2))), (0, 2, 3, 1))


def reversed_twice(x: Any) -> Any:
    return relax.op.permute_dims(relax.op.abs(relax.op.permute_dims(x)))


CASES: dict[str, tuple[Build, int]] = {
    "unary": (unary, 0),
    "scalar": (with_scalar, 0),
    "channels": (with_channels, 0),
    "rows and columns": (with_rows_and_columns, 0),
    "the same transpose": (with_same, 0),
    "the same transpose, repeated": (with_repeated, 0),
    "clip": (clipped, 0),
    "where": (chosen, 0),
    "composed": (composed, 1),
    "reversed": (reversed_twice, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_fewer_and_equal(name: str) -> None:
    build, left = CASES[name]
    module = module_of(build, {"x": (2, 4, 5, 6)})
    moved = run_pass(PropagateTranspose(), module)
    relax.analysis.well_formed(moved)
    assert operators(moved).count("permute_dims") == left < operators(module).count("permute_dims")
    given = random(2, 4, 5, 6)
    np.testing.assert_allclose(evaluate(moved, given), evaluate(module, given), rtol=1e-6, atol=1e-6)
    assert operators(run_pass(PropagateTranspose(), moved)) == operators(moved)


def alone(x: Any) -> Any:
    return relax.op.nn.relu(last(x))


def of_another_order(x: Any) -> Any:
    return relax.op.add(last(x), emit(relax.op.permute_dims(x, (0, 3, 2, 1))))


def full_operand(x: Any) -> Any:
    return first(relax.op.add(last(x), emit(relax.op.reshape(x, (2, 5, 5, 4)))))


def full_constant(x: Any) -> Any:
    return first(relax.op.add(last(x), relax.const(random(5, 5, 4))))


def reduced(x: Any) -> Any:
    return first(relax.op.nn.softmax(last(x), axis=-1))


def grown(x: Any) -> Any:
    small = last(relax.op.mean(x, axis=[1], keepdims=True))
    return first(relax.op.add(small, relax.const(np.arange(4, dtype="float32"))))


@pytest.mark.parametrize("build", [alone, of_another_order, full_operand, full_constant, reduced, grown])
def test_what_saves_nothing_stays(build: Build) -> None:
    module = module_of(build, {"x": (2, 4, 5, 5)})
    assert operators(run_pass(PropagateTranspose(), module)) == operators(module)


def test_values_that_are_read_several_times() -> None:
    def build(x: Any) -> Any:
        moved = last(x)
        mapped = emit(relax.op.nn.relu(moved))
        pooled = relax.op.sum(mapped, axis=[1, 2])
        mixed = relax.op.sum(first(relax.op.tanh(mapped)), axis=[2, 3])
        return relax.op.add(pooled, relax.op.add(mixed, relax.op.max(moved, axis=[1, 2])))

    module = module_of(build, {"x": (2, 4, 5, 6)})
    moved = run_pass(PropagateTranspose(), module)
    # Two values are read in the new order and one in the old: two transposes as before, so nothing changes.
    assert operators(moved) == operators(module)


def test_each_region_is_judged_for_itself() -> None:
    def build(x: Any, y: Any) -> Any:
        pays = emit(relax.op.sum(first(relax.op.nn.relu(last(x))), axis=[1]))
        does_not = emit(relax.op.sum(relax.op.nn.relu(last(y)), axis=[3]))
        return relax.op.add(pays, does_not)

    module = module_of(build, {"x": (2, 4, 5, 6), "y": (2, 4, 5, 6)})
    moved = run_pass(PropagateTranspose(), module)
    assert operators(moved) == ["nn.relu", "sum", "permute_dims", "nn.relu", "sum", "add"]
    given = random(2, 4, 5, 6), random(2, 4, 5, 6, seed=1)
    np.testing.assert_allclose(evaluate(moved, *given), evaluate(module, *given), rtol=1e-6, atol=1e-5)


def test_a_cancelled_transpose_as_another_operand() -> None:
    def build(x: Any, y: Any) -> Any:
        plain = emit(relax.op.permute_dims(relax.op.permute_dims(y)))
        return relax.op.permute_dims(relax.op.add(relax.op.permute_dims(x), plain))

    module = module_of(build, {"x": (5, 3), "y": (5,)})
    moved = run_pass(PropagateTranspose(), module)
    relax.analysis.well_formed(moved)
    assert operators(moved).count("permute_dims") == 0
    given = random(5, 3), random(5, seed=1)
    np.testing.assert_allclose(evaluate(moved, *given), evaluate(module, *given), rtol=1e-6, atol=1e-6)


def test_symbolic_extents() -> None:
    rows, columns = tirx.Var("rows", "int64"), tirx.Var("columns", "int64")

    def build(x: Any, bias: Any) -> Any:
        return relax.op.permute_dims(relax.op.add(relax.op.permute_dims(x, (0, 2, 1)), bias), (0, 2, 1))

    module = module_of(build, {"x": (2, rows, columns), "bias": (rows,)})
    moved = run_pass(PropagateTranspose(), module)
    relax.analysis.well_formed(moved)
    assert "permute_dims" not in operators(moved)
    given = random(2, 5, 7), random(5, seed=1)
    np.testing.assert_allclose(evaluate(moved, *given), evaluate(module, *given), rtol=1e-6, atol=1e-6)


def test_several_dataflow_blocks() -> None:
    module = blocks_of({"x": (2, 4, 5, 6)}, unary, lambda x, y: first(relax.op.tanh(last(y))), lambda x, y, z: last(z))
    moved = run_pass(PropagateTranspose(), module)
    relax.analysis.well_formed(moved)
    assert operators(moved) == ["nn.relu", "tanh", "negative", "tanh", "negative", "permute_dims"]
    given = random(2, 4, 5, 6)
    for found, wanted in zip(evaluate_all(moved, given), evaluate_all(module, given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-6)


def test_a_transpose_that_is_given_out_is_kept() -> None:
    module = blocks_of({"x": (2, 4, 5, 6)}, lambda x: last(x), lambda x, y: first(relax.op.abs(y)))
    moved = run_pass(PropagateTranspose(), module)
    assert operators(moved) == operators(module)
