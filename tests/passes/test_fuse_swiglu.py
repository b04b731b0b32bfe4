"""FuseSwiGLU: SiLU and product are one vectorized function that reads the halves of a split in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import TARGET, blocks_of, evaluate, evaluate_all, functions, module_of, operators, random, run_pass

from pydoit.kernels.machine import Machine
from pydoit.kernels.scheduling import schedule_function
from pydoit.passes.fuse_swiglu import FuseSwiGLU
from pydoit.tvm_compat import relax, tirx


def emit(value: Any) -> Any:
    return relax.BlockBuilder.current().emit(value)


def silu_first(x: Any, y: Any) -> Any:
    return relax.op.multiply(relax.op.nn.silu(x), y)


def silu_last(x: Any, y: Any) -> Any:
    return relax.op.multiply(y, relax.op.nn.silu(x))


def written_out(x: Any, y: Any) -> Any:
    return relax.op.multiply(relax.op.multiply(x, relax.op.sigmoid(x)), y)


def written_out_otherwise(x: Any, y: Any) -> Any:
    return relax.op.multiply(y, relax.op.multiply(relax.op.sigmoid(x), x))


def of_halves(product: Any, gate: int, axis: int, sections: Any) -> Any:
    parts = emit(relax.op.split(product, sections, axis=axis))
    return silu_first(emit(relax.TupleGetItem(parts, gate)), emit(relax.TupleGetItem(parts, 1 - gate)))


def reference(x: Any, y: Any) -> Any:
    x = x.astype("float64")
    return x / (1 + np.exp(-x)) * y


@pytest.mark.parametrize("shape", [(3, 32), (2, 3, 7), (8,)])
@pytest.mark.parametrize("build", [silu_first, silu_last, written_out, written_out_otherwise])
def test_two_tensors(build: Callable[..., Any], shape: tuple[int, ...]) -> None:
    module = module_of(build, {"x": shape, "y": shape})
    fused = run_pass(FuseSwiGLU(), module)
    assert operators(fused) == ["call_tir"]
    given = random(*shape) * 4, random(*shape, seed=1)
    np.testing.assert_allclose(evaluate(fused, *given), evaluate(module, *given), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(evaluate(fused, *given), reference(*given), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("gate", [0, 1])
@pytest.mark.parametrize(("shape", "axis", "sections"), [((3, 64), -1, [32]), ((2, 10, 6), 1, 2), ((3, 14), 1, 2)])
def test_halves_are_read_in_place(shape: tuple[int, ...], axis: int, sections: Any, gate: int) -> None:
    module = module_of(lambda x: of_halves(emit(relax.op.nn.relu(x)), gate, axis, sections), {"x": shape})
    fused = run_pass(FuseSwiGLU(), module)
    assert operators(fused) == ["nn.relu", "call_tir"]
    given = random(*shape) * 4
    np.testing.assert_allclose(evaluate(fused, given), evaluate(module, given), rtol=2e-6, atol=1e-6)


def test_halves_are_vectors() -> None:
    module = run_pass(FuseSwiGLU(), module_of(lambda x: of_halves(x, 0, -1, 2), {"x": (3, 64)}))
    text = schedule_function(functions(module)["swiglu"], Machine.of(TARGET)).script()
    assert "T.vectorized(T.int64(8))" in text


def test_halves_that_are_read_elsewhere() -> None:
    def build(x: Any) -> Any:
        parts = emit(relax.op.split(x, 2, axis=-1))
        gate, other = (emit(relax.TupleGetItem(parts, half)) for half in (0, 1))
        return relax.op.subtract(silu_first(gate, other), other)

    module = module_of(build, {"x": (3, 16)})
    fused = run_pass(FuseSwiGLU(), module)
    assert operators(fused) == ["split", "call_tir", "subtract"]
    given = random(3, 16)
    np.testing.assert_allclose(evaluate(fused, given), evaluate(module, given), rtol=2e-6, atol=1e-6)


def uneven(x: Any) -> Any:
    parts = emit(relax.op.split(x, [8, 16], axis=-1))
    return silu_first(emit(relax.TupleGetItem(parts, 0)), emit(relax.TupleGetItem(parts, 1)))


def test_two_of_three_parts_are_two_tensors() -> None:
    module = module_of(uneven, {"x": (3, 32)})
    fused = run_pass(FuseSwiGLU(), module)
    assert operators(fused) == ["split", "call_tir"]
    given = random(3, 32)
    np.testing.assert_allclose(evaluate(fused, given), evaluate(module, given), rtol=2e-6, atol=1e-6)


def test_symbolic_rows() -> None:
    rows = tirx.Var("rows", "int64")
    module = module_of(lambda x: of_halves(x, 0, -1, 2), {"x": (rows, 64)})
    fused = run_pass(FuseSwiGLU(), module)
    assert operators(fused) == ["call_tir"]
    given = random(5, 64)
    np.testing.assert_allclose(evaluate(fused, given), evaluate(module, given), rtol=2e-6, atol=1e-6)


def test_a_split_over_a_symbolic_extent_stays() -> None:
    columns = tirx.Var("columns", "int64")
    module = module_of(lambda x: of_halves(x, 0, -1, 2), {"x": (3, columns)})
    assert "split" in operators(run_pass(FuseSwiGLU(), module))


def activation_read_elsewhere(x: Any, y: Any) -> Any:
    activated = emit(relax.op.nn.silu(x))
    return relax.op.add(relax.op.multiply(activated, y), activated)


def other_sigmoid(x: Any, y: Any) -> Any:
    return relax.op.multiply(relax.op.multiply(x, relax.op.sigmoid(y)), y)


def repeated(x: Any, y: Any) -> Any:
    return relax.op.multiply(relax.op.nn.silu(x), emit(relax.op.mean(y, axis=[0], keepdims=True)))


@pytest.mark.parametrize("build", [activation_read_elsewhere, other_sigmoid, repeated])
def test_what_is_no_gated_unit_stays(build: Callable[..., Any]) -> None:
    module = module_of(build, {"x": (4, 8), "y": (4, 8)})
    assert operators(run_pass(FuseSwiGLU(), module)) == operators(module)


def test_other_dtypes_stay() -> None:
    def build(x: Any, y: Any) -> Any:
        return relax.op.astype(silu_first(relax.op.astype(x, "float16"), relax.op.astype(y, "float16")), "float32")

    module = module_of(build, {"x": (4, 8), "y": (4, 8)})
    assert "nn.silu" in operators(run_pass(FuseSwiGLU(), module))


def test_what_another_block_hides_is_not_read() -> None:
    module = blocks_of(
        {"x": (4, 8)},
        lambda x: relax.op.nn.silu(emit(relax.op.abs(x))),
        lambda x, activated: silu_first(activated, x),
        lambda x, activated, gated: relax.op.multiply(activated, gated),
    )
    fused = run_pass(FuseSwiGLU(), module)
    relax.analysis.well_formed(fused)
    assert operators(fused) == ["abs", "nn.silu", "negative", "call_tir", "negative", "multiply"]
    given = random(4, 8)
    for found, wanted in zip(evaluate_all(fused, given), evaluate_all(module, given), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=2e-6, atol=1e-6)
