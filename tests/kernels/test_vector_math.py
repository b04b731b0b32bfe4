"""Elementary functions against float64 numpy over their whole range, special values included."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from pydoit.kernels import vector_math
from pydoit.tvm_compat import te, tvm

TINY = [0.0, -0.0, 1e-30, -1e-30, 1e-7, -1e-7, 1e-4, -1e-4]
SPECIAL = [math.inf, -math.inf, math.nan, 88.0, 88.5, 88.7, 89.0, 1e30, -87.0, -87.3, -88.0, -104.0, -1e30]
POINTS = np.array([*TINY, *SPECIAL, *np.linspace(-90, 90, 4001), *np.linspace(-5, 5, 4001)], np.float32)


def run(function: Callable[[Any], Any], values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    data = te.placeholder(values.shape, "float32", name="data")
    result = te.compute(values.shape, lambda index: function(data[index]), name="result")
    library = tvm.compile(te.create_prim_func([data, result]), target="llvm")
    out = tvm.runtime.tensor(np.zeros_like(values))
    library["main"](tvm.runtime.tensor(values), out)
    return out.numpy()


def _erf(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.array([math.erf(value) for value in values])


REFERENCES: dict[str, tuple[Callable[[Any], Any], float, float]] = {
    # reference in float64, absolute and relative tolerance: a few units in the last place (1.2e-7)
    "exp": (np.exp, 2e-38, 2e-6),
    "tanh": (np.tanh, 2e-7, 1e-6),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 2e-38, 2e-6),
    "erf": (_erf, 5e-7, 5e-6),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_against_numpy(name: str) -> None:
    reference, absolute, relative = REFERENCES[name]
    with np.errstate(over="ignore", invalid="ignore", under="ignore"):
        expected = reference(POINTS.astype(np.float64)).astype(np.float32)
    found = run(getattr(vector_math, name), POINTS)
    np.testing.assert_allclose(found, expected, rtol=relative, atol=absolute)
