"""SimplifyShapes: reshapes without effect go, those before products move behind them."""

from __future__ import annotations

from typing import Any

import numpy as np
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.simplify_shapes import SimplifyShapes
from pydoit.tvm_compat import relax


def test_a_linear_layer_loses_its_reshapes() -> None:
    def build(x: Any, w: Any, b: Any) -> Any:
        flat = relax.op.reshape(x, [6, 4])
        return relax.op.nn.gelu(relax.op.reshape(relax.op.add(b, relax.op.matmul(flat, w)), [2, 3, 8]))

    module = module_of(build, {"x": (2, 3, 4)}, {"w": (4, 8), "b": (8,)})
    simple = run_pass(SimplifyShapes(), module)
    assert operators(simple) == ["matmul", "add", "nn.gelu"]
    values = random(2, 3, 4), random(4, 8, seed=1), random(8, seed=2)
    np.testing.assert_allclose(evaluate(simple, *values), evaluate(module, *values), rtol=1e-5, atol=1e-5)


def test_merged_batches_of_a_product_are_split_again() -> None:
    def build(x: Any, y: Any) -> Any:
        left, right = relax.op.reshape(x, [6, 4, 5]), relax.op.reshape(y, [6, 5, 7])
        return relax.op.reshape(relax.op.matmul(left, right), [2, 3, 4, 7])

    module = module_of(build, {"x": (2, 3, 4, 5), "y": (2, 3, 5, 7)})
    assert operators(run_pass(SimplifyShapes(), module)) == ["matmul"]


def test_transposes_join_and_cancel() -> None:
    def build(x: Any) -> Any:
        once = relax.op.permute_dims(x, [0, 2, 1])
        joined = relax.op.permute_dims(once, [2, 1, 0])
        back = relax.op.permute_dims(relax.op.permute_dims(joined, [1, 0, 2]), [1, 0, 2])
        return relax.op.nn.relu(relax.op.broadcast_to(back, [3, 4, 2]))

    module = module_of(build, {"x": (2, 3, 4)})
    simple = run_pass(SimplifyShapes(), module)
    assert operators(simple) == ["permute_dims", "nn.relu"]
    values = random(2, 3, 4)
    np.testing.assert_array_equal(evaluate(simple, values), evaluate(module, values))
