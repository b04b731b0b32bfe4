"""FoldBatchNorm: the normalization is gone, the numbers stay."""

from __future__ import annotations

from typing import Any

import numpy as np
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.fold_batch_norm import FoldBatchNorm
from pydoit.tvm_compat import relax

STATISTICS: dict[str, tuple[int, ...]] = dict.fromkeys(("gamma", "beta", "mean", "variance"), (5,))


def norm(data: Any, *statistics: Any) -> Any:
    return relax.TupleGetItem(relax.op.nn.batch_norm(data, *statistics, axis=1, epsilon=1e-3), 0)


def convolution(data: Any, weight: Any) -> Any:
    return relax.op.nn.conv2d(data, weight, padding=1)


def values() -> list[np.ndarray[Any, Any]]:
    statistics = [random(5, seed=seed) for seed in range(3)] + [np.abs(random(5, seed=3)) + np.float32(0.5)]
    return [random(1, 3, 6, 6, seed=4), random(5, 3, 3, 3, seed=5), *statistics]


def check(build: Any, expected: list[str]) -> None:
    module = module_of(build, {"x": (1, 3, 6, 6)}, {"w": (5, 3, 3, 3), **STATISTICS})
    folded = run_pass(FoldBatchNorm(), module)
    assert "nn.batch_norm" in operators(module)
    assert operators(folded)[-len(expected) :] == expected
    reference = run_pass(relax.transform.DecomposeOpsForInference(), module)
    # float32 sums of 27 products of values near 1
    np.testing.assert_allclose(evaluate(folded, *values()), evaluate(reference, *values()), rtol=1e-5, atol=2e-5)


def test_after_a_convolution_only_a_shift_remains() -> None:
    check(lambda x, w, *rest: norm(convolution(x, w), *rest), ["nn.conv2d", "reshape", "add"])


def test_a_bias_in_between_joins_the_shift() -> None:
    def build(x: Any, w: Any, gamma: Any, *rest: Any) -> Any:
        bias = relax.op.reshape(gamma, [1, 5, 1, 1])
        return norm(relax.op.add(convolution(x, w), bias), gamma, *rest)

    module = module_of(build, {"x": (1, 3, 6, 6)}, {"w": (5, 3, 3, 3), **STATISTICS})
    folded = run_pass(FoldBatchNorm(), module)
    assert operators(folded).count("nn.conv2d") == 1
    assert "nn.batch_norm" not in operators(folded)
    reference = run_pass(relax.transform.DecomposeOpsForInference(), module)
    np.testing.assert_allclose(evaluate(folded, *values()), evaluate(reference, *values()), rtol=1e-5, atol=2e-5)


def test_a_convolution_that_others_read_keeps_its_weights() -> None:
    def build(x: Any, w: Any, *rest: Any) -> Any:
        plain = relax.BlockBuilder.current().emit(convolution(x, w))
        return relax.op.add(norm(plain, *rest), plain)

    module = module_of(build, {"x": (1, 3, 6, 6)}, {"w": (5, 3, 3, 3), **STATISTICS})
    folded = run_pass(FoldBatchNorm(), module)
    assert operators(folded).count("nn.conv2d") == 1
    reference = run_pass(relax.transform.DecomposeOpsForInference(), module)
    np.testing.assert_allclose(evaluate(folded, *values()), evaluate(reference, *values()), rtol=1e-5, atol=2e-5)
