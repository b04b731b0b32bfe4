"""Linear layers over packed weights beside float64 products of the dequantized ones: formats, odd shapes, epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pydoit.errors import UserError
from pydoit.kernels.cpu.linear import linear
from pydoit.kernels.cpu.weight_format import Quantized, WeightFormat, dequantize, pack, pack_gated, quantize
from pydoit.kernels.lowering import compile_module
from pydoit.target import CPU_LANES, ResolvedTarget, make_tvm_target
from pydoit.tvm_compat import IRModule, tirx
from tests.kernels.cpu.running import call, compile_kernel, cpu

FORMATS = [
    WeightFormat("float32"), WeightFormat("bfloat16"), WeightFormat("int8"), WeightFormat("int8", 32),
    WeightFormat("int4", 32, symmetric=False), WeightFormat("int4", 32), WeightFormat("int4", 64), WeightFormat("int4", 128),
    WeightFormat("int8", 128), WeightFormat("int4", 128, symmetric=False),
]  # fmt: skip
ROWS = (1, 2, 5, 6, 7, 12, 13, 23, 128)


def stored(chosen: WeightFormat, matrix: Any) -> Any:
    """What the kernel multiplies with, float64."""
    if chosen.quantized:
        return dequantize(quantize(chosen, matrix)).astype(np.float64)
    if chosen.dtype == "bfloat16":
        import ml_dtypes

        return matrix.astype(ml_dtypes.bfloat16).astype(np.float64)
    return matrix.astype(np.float64)


def check(found: Any, wanted: Any, scale: Any) -> None:
    """Errors beside the size of what is summed up: activations of quantized layers keep 16 bits."""
    assert np.all(np.isfinite(found))
    assert np.max(np.abs(found - wanted) / scale) < 3e-5


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
@pytest.mark.parametrize("arch", ["x86-64", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(("n", "k"), [(77, 72), (48, 320), (16, 33)])
def test_products(chosen: WeightFormat, arch: str, n: int, k: int) -> None:
    target = cpu(arch)
    generator = np.random.default_rng(n)
    matrix = generator.normal(size=(n, k)).astype(np.float32)
    kept = stored(chosen, matrix)
    packed = pack(chosen, matrix, CPU_LANES[arch])
    several = compile_kernel(linear(chosen, tirx.Var("rows", "int64"), n, k, target), target)
    one = compile_kernel(linear(chosen, 1, n, k, target), target)
    for rows in ROWS:
        sizes = 10.0 ** generator.integers(-3, 3, (rows, 1))
        x = (generator.normal(size=(rows, k)) * sizes).astype(np.float32)
        out = np.full((rows, n), np.nan, np.float32)
        found = call(one if rows == 1 else several, x, *packed.values(), out)[-1]
        check(found, x.astype(np.float64) @ kept.T, np.abs(x).astype(np.float64) @ np.abs(kept).T)


@pytest.mark.parametrize("chosen", [FORMATS[0], FORMATS[2], FORMATS[4], FORMATS[5]], ids=str)
@pytest.mark.parametrize("rows", [1, 9])
def test_epilogues(chosen: WeightFormat, rows: int) -> None:
    target = cpu("x86-64-v3")
    n, k = 40, 96
    generator = np.random.default_rng(4)
    x, bias, residual = (generator.normal(size=shape).astype(np.float32) for shape in ((rows, k), (n,), (rows, n)))
    matrix = generator.normal(size=(n, k)).astype(np.float32) / 10
    kept = stored(chosen, matrix)
    out = np.full((rows, n), np.nan, np.float32)
    height = 1 if rows == 1 else tirx.Var("rows", "int64")
    kernel = compile_kernel(linear(chosen, height, n, k, target, bias=True, epilogue="residual"), target)
    found = call(kernel, x, *pack(chosen, matrix, 8).values(), bias, residual, out)[-1]
    np.testing.assert_allclose(found, x.astype(np.float64) @ kept.T + bias + residual, atol=1e-4)

    gate, up = matrix[:20], matrix[20:]
    out = np.full((rows, 20), np.nan, np.float32)
    kernel = compile_kernel(linear(chosen, height, n, k, target, epilogue="silu_gate"), target)
    found = call(kernel, x, *pack_gated(chosen, gate, up, 8).values(), out)[-1]
    opened, carried = (x.astype(np.float64) @ stored(chosen, half).T for half in (gate, up))
    np.testing.assert_allclose(found, opened / (1 + np.exp(-opened)) * carried, atol=1e-4)


@pytest.mark.parametrize("rows", [1, 8])
@pytest.mark.parametrize("chosen", [FORMATS[2], FORMATS[4], FORMATS[7]], ids=str)
def test_extreme_activations_and_weights(chosen: WeightFormat, rows: int) -> None:
    """Integer sums do not overflow, rows of zeros give zeros, and what is not finite does not come out as a number."""
    target = cpu("x86-64-v3")
    n, k = 16, 512
    signs = np.where(np.random.default_rng(1).integers(0, 2, (n, k)), 1, -1)
    values = {"int8": signs * 127, "int4": np.where(signs > 0, 7, -7) if chosen.symmetric else np.full((n, k), 15)}[
        chosen.dtype
    ]
    groups = chosen.groups(k)
    minimum = None if chosen.symmetric else np.zeros((n, groups), np.float16)
    dtype = np.int8 if chosen.symmetric else np.uint8
    kept = Quantized(values.astype(dtype), np.ones((n, groups), chosen.scale_dtype), minimum)
    height = 1 if rows == 1 else tirx.Var("rows", "int64")
    kernel = compile_kernel(linear(chosen, height, n, k, target), target)
    x = np.zeros((rows, k), np.float32)
    out = np.full((rows, n), np.nan, np.float32)
    assert not call(kernel, x, *pack(chosen, kept, 8).values(), out)[-1].any()
    x[0] = signs[3]
    found = call(kernel, x, *pack(chosen, kept, 8).values(), out)[-1]
    np.testing.assert_allclose(found[0], values.astype(np.float64) @ signs[3], rtol=1e-4, atol=0.3)
    for fault in (np.inf, np.nan):
        x[0, 40] = fault
        found = call(kernel, x, *pack(chosen, kept, 8).values(), out)[-1]
        assert not np.isfinite(found[0]).any()


@pytest.mark.parametrize("chosen", [FORMATS[1], FORMATS[3], FORMATS[4], FORMATS[5]], ids=str)
@pytest.mark.parametrize("arch", ["x86-64-v4", "sapphirerapids", "znver4"])
def test_code_for_other_cpus(chosen: WeightFormat, arch: str) -> None:
    target = ResolvedTarget(kind="cpu", arch=arch)
    for rows in (1, tirx.Var("rows", "int64")):
        function = linear(chosen, rows, 64, 128, target).with_attr("global_symbol", "kernel")
        code = compile_module(IRModule({"kernel": function}), make_tvm_target(target))
        text = code.mod.inspect_source("asm")
        assert "zmm" in text
        if chosen.quantized:
            assert "vpmaddwd" in text or "vpdpwssd" in text


def test_what_does_not_fit_is_refused() -> None:
    target = ResolvedTarget(kind="cpu", arch="x86-64-v3")
    with pytest.raises(UserError, match="even number"):
        linear(FORMATS[0], 1, 33, 8, target, epilogue="silu_gate")
    with pytest.raises(UserError, match="no bias"):
        linear(FORMATS[0], 1, 32, 8, target, epilogue="silu_gate", bias=True)
