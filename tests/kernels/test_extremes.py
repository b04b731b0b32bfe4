"""Maxima and minima start from infinity."""

from __future__ import annotations

import numpy as np
import pytest

from pydoit.kernels.extremes import extreme
from pydoit.tvm_compat import te, tvm


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("keepdims", [True, False])
@pytest.mark.parametrize("axes", [[1], [0, 2], [0, 1, 2]])
def test_against_numpy(largest: bool, keepdims: bool, axes: list[int]) -> None:
    data = te.placeholder((3, 4, 5), name="x")
    result = extreme(data, axes, keepdims, largest)
    built = tvm.compile(te.create_prim_func([data, result]), target="llvm")
    x = np.random.default_rng(1).standard_normal((3, 4, 5)).astype(np.float32)
    x[1] = -np.inf if largest else np.inf
    expected = (np.max if largest else np.min)(x, axis=tuple(axes), keepdims=keepdims)
    out = tvm.runtime.tensor(np.zeros(expected.shape, np.float32))
    built["main"](tvm.runtime.tensor(x), out)
    np.testing.assert_array_equal(out.numpy(), expected)
