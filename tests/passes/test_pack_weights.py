"""PackWeights: products and convolutions with constant weights become calls on panels, with the same results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.pack_weights import PackWeights
from pydoit.tvm_compat import relax


def check(build: Any, data: tuple[int, ...], weight: tuple[int, ...], depth: int) -> None:
    module = module_of(build, {"x": data}, {"w": weight})
    packed = run_pass(PackWeights(), module)
    assert "call_tir" in operators(packed)
    assert not {"matmul", "nn.conv2d"} & set(operators(packed))
    values = random(*data), random(*weight, seed=1)
    # float32 sums of `depth` products of values near 1, in another order
    bound = 1e-6 * depth
    np.testing.assert_allclose(evaluate(packed, *values), evaluate(module, *values), rtol=1e-5, atol=bound)


@pytest.mark.parametrize("columns", [16, 24, 12, 7, 1])
@pytest.mark.parametrize("rows", [1, 13, 16])
def test_products_with_full_and_odd_panels(rows: int, columns: int) -> None:
    check(lambda x, w: relax.op.matmul(x, w), (2, rows, 9), (9, columns), 9)


@pytest.mark.parametrize(
    ("data", "weight", "options"),
    [
        ((1, 7, 7, 3), (16, 3, 3, 3), {"padding": 1}),
        ((1, 7, 9, 4), (24, 3, 3, 4), {"strides": 2, "padding": (0, 1, 1, 0)}),
        ((2, 6, 6, 8), (8, 1, 1, 8), {}),
        ((1, 6, 6, 8), (16, 1, 1, 8), {"strides": 2}),
        ((1, 9, 9, 4), (5, 3, 3, 4), {"dilation": 2}),
        ((1, 6, 6, 8), (16, 3, 3, 4), {"groups": 2, "padding": 1}),
        ((1, 7, 7, 12), (12, 3, 3, 1), {"groups": 12, "padding": 1}),
    ],
)
def test_convolutions(data: tuple[int, ...], weight: tuple[int, ...], options: dict[str, Any]) -> None:
    def build(x: Any, w: Any) -> Any:
        return relax.op.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI", **options)

    check(build, data, weight, weight[1] * weight[2] * weight[3])


def test_a_product_of_two_inputs_stays() -> None:
    module = module_of(lambda x, y: relax.op.matmul(x, y), {"x": (3, 4), "y": (4, 8)})
    assert operators(run_pass(PackWeights(), module)) == ["matmul"]
