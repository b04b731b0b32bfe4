"""FuseRmsNorm: the norm is one vectorized function, with the sum before it; what is no RMS norm stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import TARGET, blocks_of, evaluate, evaluate_all, functions, module_of, operators, random, run_pass

from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import schedule_function
from pydoit.passes.fuse_rms_norm import FuseRmsNorm
from pydoit.tvm_compat import relax, tirx

EPSILON = 1e-5


def emit(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def deviation(x: Any, axis: int = -1, power: bool = False, keepdims: bool = True) -> Any:
    square = relax.op.power(x, relax.const(2.0, "float32")) if power else relax.op.multiply(x, x)
    mean = relax.op.mean(emit(square), axis=[axis], keepdims=keepdims)
    return emit(relax.op.rsqrt(relax.op.add(mean, relax.const(EPSILON, "float32"))))


def norm(x: Any, weight: Any) -> Any:
    return relax.op.multiply(relax.op.multiply(x, deviation(x)), weight)


def weight_first(x: Any, weight: Any) -> Any:
    return relax.op.multiply(weight, relax.op.multiply(deviation(x, power=True), x))


def by_division(x: Any, weight: Any) -> Any:
    mean = relax.op.mean(relax.op.square(x), axis=[len(x.ty.shape) - 1], keepdims=True)
    return relax.op.multiply(relax.op.divide(x, relax.op.sqrt(relax.op.add(relax.const(EPSILON), mean))), weight)


def reference(x: Any, weight: Any) -> Any:
    x = x.astype("float64")
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * weight


@pytest.mark.parametrize("shape", [(5, 32), (2, 3, 48), (2, 3, 30), (16,)])
@pytest.mark.parametrize("build", [norm, weight_first, by_division])
def test_one_function(build: Callable[..., Any], shape: tuple[int, ...]) -> None:
    module = module_of(build, {"x": shape}, {"weight": shape[-1:]})
    fused = run_pass(FuseRmsNorm(), module)
    assert operators(fused) == ["call_tir"]
    given = random(*shape), random(*shape[-1:], seed=1)
    np.testing.assert_allclose(evaluate(fused, *given), evaluate(module, *given), rtol=2e-6, atol=2e-6)
    np.testing.assert_allclose(evaluate(fused, *given), reference(*given), rtol=2e-6, atol=2e-6)


def test_rows_are_vectors() -> None:
    module = run_pass(FuseRmsNorm(), module_of(norm, {"x": (4, 6, 64)}, {"weight": (64,)}))
    text = schedule_function(module["rms_norm"], Machine.of(TARGET)).script()
    assert text.count("T.parallel(T.int64(24))") == 1
    assert text.count("T.vectorized(T.int64(8))") >= 2


def test_a_sum_that_nothing_else_reads_is_no_result() -> None:
    module = module_of(lambda x, y, w: norm(emit(relax.op.add(x, y)), w), {"x": (3, 32), "y": (3, 32)}, {"w": (32,)})
    fused = run_pass(FuseRmsNorm(), module)
    assert operators(fused) == ["call_tir"]
    assert len(functions(fused)["add_rms_norm"].params) == 4
    given = random(3, 32), random(3, 32, seed=1), random(32, seed=2)
    np.testing.assert_allclose(evaluate(fused, *given), reference(given[0] + given[1], given[2]), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("columns", [64, 30])
def test_a_sum_that_is_read_later_is_a_second_result(columns: int) -> None:
    def build(x: Any, y: Any, w: Any) -> Any:
        total = emit(relax.op.add(x, y))
        return relax.op.add(total, relax.op.nn.relu(norm(total, w)))

    module = module_of(build, {"x": (5, 7, columns), "y": (5, 7, columns)}, {"w": (columns,)})
    fused = run_pass(FuseRmsNorm(), module)
    assert operators(fused) == ["call_tir", "nn.relu", "add"]
    given = random(5, 7, columns), random(5, 7, columns, seed=1), random(columns, seed=2)
    np.testing.assert_allclose(evaluate(fused, *given), evaluate(module, *given), rtol=2e-6, atol=2e-6)
    text = schedule_function(functions(fused)["add_rms_norm"], Machine.of(TARGET)).script()
    assert text.count("T.parallel(T.int64(35))") == 1
    assert ("T.vectorized(T.int64(8))" in text) == (columns % 8 == 0)


def test_blocks_of_their_own_keep_the_sum_apart() -> None:
    module = blocks_of(
        {"x": (3, 16), "y": (3, 16), "w": (16,)}, lambda x, y, w: relax.op.add(x, y), lambda x, y, w, total: norm(total, w)
    )
    fused = run_pass(FuseRmsNorm(), module)
    assert operators(fused) == ["add", "negative", "call_tir"]
    given = random(3, 16), random(3, 16, seed=1), random(16, seed=2)
    for found, wanted in zip(evaluate_all(fused, *given), evaluate_all(module, *given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=2e-6)


def test_two_norms_of_one_sum() -> None:
    def build(x: Any, y: Any, w: Any, v: Any) -> Any:
        total = emit(relax.op.add(x, y))
        return relax.op.subtract(norm(total, w), norm(total, v))

    module = module_of(build, {"x": (3, 16), "y": (3, 16)}, {"w": (16,), "v": (16,)})
    fused = run_pass(FuseRmsNorm(), module)
    assert operators(fused) == ["call_tir", "call_tir", "subtract"]
    given = random(3, 16), random(3, 16, seed=1), random(16, seed=2), random(16, seed=3)
    np.testing.assert_allclose(evaluate(fused, *given), evaluate(module, *given), rtol=2e-6, atol=4e-6)


def test_a_weight_that_is_computed_after_the_sum() -> None:
    def build(x: Any, y: Any, w: Any) -> Any:
        total = emit(relax.op.add(x, y))
        shifted = emit(relax.op.add(w, relax.const(1.0, "float32")))
        return relax.op.add(total, norm(total, shifted))

    module = module_of(build, {"x": (3, 16), "y": (3, 16)}, {"w": (16,)})
    fused = run_pass(FuseRmsNorm(), module)
    assert operators(fused) == ["add", "add", "call_tir", "add"]
    given = random(3, 16), random(3, 16, seed=1), random(16, seed=2)
    np.testing.assert_allclose(evaluate(fused, *given), evaluate(module, *given), rtol=2e-6, atol=4e-6)


def test_symbolic_rows() -> None:
    batch, length = tirx.Var("batch", "int64"), tirx.Var("length", "int64")

    def build(x: Any, y: Any, w: Any) -> Any:
        total = emit(relax.op.add(x, y))
        return relax.op.add(total, norm(total, w))

    module = module_of(build, {"x": (batch, length, 32), "y": (batch, length, 32)}, {"w": (32,)})
    fused = run_pass(FuseRmsNorm(), module)
    assert operators(fused) == ["call_tir", "add"]
    given = random(2, 5, 32), random(2, 5, 32, seed=1), random(32, seed=2)
    np.testing.assert_allclose(evaluate(fused, *given), evaluate(module, *given), rtol=2e-6, atol=4e-6)
    text = schedule_function(functions(fused)["add_rms_norm"], Machine.of(TARGET)).script()
    assert "T.vectorized(T.int64(8))" in text


def other_axis(x: Any, weight: Any) -> Any:
    return relax.op.multiply(relax.op.multiply(x, deviation(x, axis=0)), weight)


def other_square(x: Any, weight: Any) -> Any:
    return relax.op.multiply(relax.op.multiply(x, deviation(emit(relax.op.abs(x)))), weight)


def weight_of_a_matrix(x: Any, weight: Any) -> Any:
    return norm(x, emit(relax.op.broadcast_to(weight, (16, 16))))


def read_elsewhere(x: Any, weight: Any) -> Any:
    scale = deviation(x)
    return relax.op.add(relax.op.multiply(relax.op.multiply(x, scale), weight), scale)


def vector_epsilon(x: Any, weight: Any) -> Any:
    mean = relax.op.mean(relax.op.multiply(x, x), axis=[-1], keepdims=True)
    spread = relax.op.add(mean, relax.const(np.linspace(1, 2, 16, dtype="float32").reshape(16, 1)))
    return relax.op.multiply(relax.op.multiply(x, relax.op.rsqrt(spread)), weight)


@pytest.mark.parametrize("build", [other_axis, other_square, weight_of_a_matrix, read_elsewhere, vector_epsilon])
def test_what_is_no_norm_stays(build: Callable[..., Any]) -> None:
    module = module_of(build, {"x": (16, 16)}, {"weight": (16,)})
    assert operators(run_pass(FuseRmsNorm(), module)) == operators(module)


def test_other_dtypes_and_symbolic_columns_stay() -> None:
    columns = tirx.Var("columns", "int64")
    module = module_of(norm, {"x": (3, columns)}, {"weight": (columns,)})
    assert "call_tir" not in operators(run_pass(FuseRmsNorm(), module))
    variables = [relax.Var(name, relax.TensorType(shape, "float64")) for name, shape in (("x", (3, 16)), ("w", (16,)))]
    builder = relax.BlockBuilder()
    with builder.function("main", variables):
        with builder.dataflow():
            x, weight = variables
            mean = builder.emit(relax.op.mean(relax.op.multiply(x, x), axis=[-1], keepdims=True))
            scale = relax.op.rsqrt(relax.op.add(mean, relax.const(1e-5, "float64")))
            result = builder.emit_output(relax.op.multiply(relax.op.multiply(x, scale), weight))
        builder.emit_func_output(result)
    assert "call_tir" not in operators(run_pass(FuseRmsNorm(), builder.get()))


def test_what_another_block_hides_is_not_read() -> None:
    module = blocks_of(
        {"x": (3, 16), "w": (16,)},
        lambda x, w: relax.op.multiply(emit(relax.op.abs(x)), deviation(emit(relax.op.abs(x)))),
        lambda x, w, scaled: relax.op.multiply(scaled, w),
    )
    fused = run_pass(FuseRmsNorm(), relax.transform.EliminateCommonSubexpr()(module))
    relax.analysis.well_formed(fused)
    assert "call_tir" not in operators(fused)
