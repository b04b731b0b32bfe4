"""Rows that the embedding kernel reads are those that `dequantize` gives, in every format."""

from __future__ import annotations

import numpy as np
import pytest

from pydoit.kernels.cpu.embed import embed
from pydoit.kernels.cpu.weight_format import WeightFormat, dequantize, pack, quantize
from pydoit.tvm_compat import tirx
from tests.kernels.cpu.running import call, compile_kernel, cpu

FORMATS = [
    WeightFormat("float32"),
    WeightFormat("bfloat16"),
    WeightFormat("int8"),
    WeightFormat("int8", 32),
    WeightFormat("int4", 32, symmetric=False),
    WeightFormat("int4", 64),
]


@pytest.mark.parametrize("chosen", FORMATS, ids=str)
@pytest.mark.parametrize("arch", ["x86-64-v3", "x86-64-v4"])
def test_rows_are_those_of_the_matrix(chosen: WeightFormat, arch: str) -> None:
    target = cpu(arch)
    lanes = {"x86-64-v3": 8, "x86-64-v4": 16}[arch]
    matrix = np.random.default_rng(0).normal(size=(77, 72)).astype(np.float32)
    packed = pack(chosen, matrix, lanes)
    expected = dequantize(quantize(chosen, matrix)) if chosen.quantized else matrix
    tokens = np.array([76, 0, 5, 16, 5], dtype=np.int32)
    function = embed(chosen, tirx.Var("rows", "int64"), 77, 72, target)
    out = np.full((5, 72), np.nan, np.float32)
    found = call(compile_kernel(function, target), *packed.values(), tokens, out)[-1]
    # bfloat16 keeps 8 bits of a value, half of the last of them is rounded away.
    tolerance = 2.0**-8 if chosen.dtype == "bfloat16" else 1e-6
    np.testing.assert_allclose(found, expected[tokens], rtol=tolerance, atol=1e-6)
