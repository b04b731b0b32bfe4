"""Linear layers over packed weights beside float64 products of the dequantized ones: formats, odd shapes, epilogues."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pydoit.cpus import cpu_flags
from pydoit.errors import UserError
from pydoit.kernels.cpu.amx import ARCHS, LEAST_ROWS, STORED_BLOCK
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


def rounded(array: Any) -> Any:
    """The nearest bfloat16 values, as float64."""
    import ml_dtypes

    return array.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)


def by_tiles(chosen: WeightFormat, arch: str, rows: int) -> bool:
    """Whether this machine multiplies so many rows by AMX tiles."""
    least = LEAST_ROWS.get(chosen.dtype)
    return arch in ARCHS and "amx_bf16" in cpu_flags() and least is not None and rows >= least


def check(found: Any, wanted: Any, scale: Any) -> None:
    """Errors beside the size of what is summed up: activations of quantized layers keep 16 bits."""
    assert np.all(np.isfinite(found))
    assert np.max(np.abs(found - wanted) / scale) < 3e-5


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
@pytest.mark.parametrize(
    ("arch", "n", "k"),
    [
        *itertools.product(["x86-64", "x86-64-v3", "x86-64-v4"], [77], [72]),
        *itertools.product(["x86-64", "x86-64-v3", "x86-64-v4"], [48], [320]),
        *itertools.product(["x86-64-v3", "x86-64-v4"], [16], [33]),
        ("x86-64-v4", 33, 1100),
    ],
)
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
        given = rounded(x) if chosen.dtype == "bfloat16" and by_tiles(chosen, arch, rows) else x.astype(np.float64)
        check(found, given @ kept.T, np.abs(x).astype(np.float64) @ np.abs(kept).T)


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
        assert ("tdpbf16ps" in text) == (rows != 1 and arch in ARCHS)


def test_a_long_depth_is_summed_block_by_block() -> None:
    target = cpu("x86-64-v4")
    generator = np.random.default_rng(2)
    n, k, rows = 32, 2 * STORED_BLOCK + 48, 40
    x, matrix = (generator.normal(size=shape).astype(np.float32) for shape in ((rows, k), (n, k)))
    kernel = compile_kernel(linear(FORMATS[1], tirx.Var("rows", "int64"), n, k, target), target)
    found = call(kernel, x, *pack(FORMATS[1], matrix, 16).values(), np.full((rows, n), np.nan, np.float32))[-1]
    given = rounded(x) if by_tiles(FORMATS[1], "x86-64-v4", rows) else x.astype(np.float64)
    check(found, given @ rounded(matrix).T, np.abs(given) @ np.abs(rounded(matrix)).T)


def test_what_is_not_a_number_stays_so_by_tiles() -> None:
    target = cpu("x86-64-v4")
    generator = np.random.default_rng(3)
    n, k, rows = 32, 40, 33
    x, matrix = (generator.normal(size=shape).astype(np.float32) for shape in ((rows, k), (n, k)))
    x.view(np.uint32)[5, 7], x.view(np.uint32)[20, 39], x[32, 0] = 0x7FFFFFFF, 0xFF800001, np.inf
    kernel = compile_kernel(linear(FORMATS[1], tirx.Var("rows", "int64"), n, k, target), target)
    found = call(kernel, x, *pack(FORMATS[1], matrix, 16).values(), np.full((rows, n), 7.0, np.float32))[-1]
    spoiled = [5, 20, 32]
    assert not np.isfinite(found[spoiled]).any()
    assert np.isfinite(np.delete(found, spoiled, 0)).all()


DENIED = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdarg.h>
long syscall(long number, ...) {
  va_list given; va_start(given, number);
  long a[6]; for (int i = 0; i < 6; ++i) a[i] = va_arg(given, long);
  va_end(given);
  if (number == 158 && a[0] == 0x1023) return -1;
  return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}
"""
WITHOUT_TILES = """
import numpy as np
from pydoit.kernels.cpu.linear import linear
from pydoit.kernels.cpu.weight_format import WeightFormat, pack
from pydoit.tvm_compat import tirx
from tests.kernels.cpu.running import call, compile_kernel, cpu

target, chosen = cpu("x86-64-v4"), WeightFormat("bfloat16")
x, matrix = (np.random.default_rng(5).normal(size=shape).astype(np.float32) for shape in ((20, 64), (32, 64)))
kernel = compile_kernel(linear(chosen, tirx.Var("rows", "int64"), 32, 64, target), target)
found = call(kernel, x, *pack(chosen, matrix, 16).values(), np.zeros((20, 32), np.float32))[-1]
kept = (pack(chosen, matrix, 16)["weight"].view(np.uint16).astype(np.uint32) << 16).view(np.float32)
kept = kept.reshape(2, 32, 16, 2).transpose(0, 2, 1, 3).reshape(32, 64)
np.testing.assert_allclose(found, x.astype(np.float64) @ kept.T, atol=2e-5)
"""


def test_a_machine_that_denies_tiles_multiplies_with_vectors(tmp_path: Path) -> None:
    """The same code: activations are then not rounded."""
    cpu("x86-64-v4")
    (tmp_path / "denied.c").write_text(DENIED)
    library = tmp_path / "denied.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", tmp_path / "denied.c", "-o", library, "-ldl"], check=True)
    environment = {**os.environ, "LD_PRELOAD": str(library)}
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", WITHOUT_TILES], cwd=root, env=environment, check=True)


def test_what_does_not_fit_is_refused() -> None:
    target = ResolvedTarget(kind="cpu", arch="x86-64-v3")
    with pytest.raises(UserError, match="even number"):
        linear(FORMATS[0], 1, 33, 8, target, epilogue="silu_gate")
    with pytest.raises(UserError, match="no bias"):
        linear(FORMATS[0], 1, 32, 8, target, epilogue="silu_gate", bias=True)
