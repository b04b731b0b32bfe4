"""FuseSafeSoftmax: the guard of torch's attention joins the softmax, and rows without a key stay zero."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.fuse_safe_softmax import FuseSafeSoftmax
from pydoit.tvm_compat import relax


def any_allowed(scores: Any) -> Any:
    """What earlier versions of torch export."""
    allowed = relax.op.logical_not(relax.op.equal(scores, relax.const(float("-inf"), "float32")))
    some = relax.op.astype(relax.op.max(relax.op.astype(allowed, "int8"), axis=[-1], keepdims=True), "bool")
    return relax.op.logical_not(some)


def all_masked(scores: Any, axis: int = -1) -> Any:
    """What later versions export."""
    masked = relax.op.equal(scores, relax.const(float("-inf"), "float32"))
    return relax.op.astype(relax.op.min(relax.op.astype(masked, "int8"), axis=[axis], keepdims=True), "bool")


def guarded(x: Any, test: Callable[[Any], Any]) -> Any:
    builder = relax.BlockBuilder.current()
    scores = builder.emit(relax.op.add(x, relax.const(0.0, "float32")))
    plain = relax.op.nn.softmax(scores, axis=-1)
    return relax.op.where(test(scores), relax.op.full_like(plain, relax.const(0.0, "float32")), plain)


def test_a_guard_over_another_axis_stays() -> None:
    module = module_of(lambda x: guarded(x, lambda scores: all_masked(scores, 1)), {"x": (3, 16, 16)})
    assert "call_tir" not in operators(run_pass(FuseSafeSoftmax(), module))


@pytest.mark.parametrize("test", [any_allowed, all_masked])
def test_guard_and_softmax_are_one_call(test: Callable[[Any], Any]) -> None:
    module = module_of(lambda x: guarded(x, test), {"x": (3, 5, 16)})
    fused = run_pass(FuseSafeSoftmax(), module)
    assert operators(fused) == ["add", "call_tir"]
    values = random(3, 5, 16)
    values[0, 1] = -np.inf
    values[1, :, 7:] = -np.inf
    with np.errstate(invalid="ignore"):
        shifted = np.exp(values.astype(np.float64) - values.max(-1, keepdims=True))
        expected = np.nan_to_num(shifted / shifted.sum(-1, keepdims=True))
    np.testing.assert_allclose(evaluate(fused, values), expected, rtol=2e-6, atol=1e-7)


def test_a_plain_softmax_stays() -> None:
    module = module_of(lambda x: relax.op.nn.softmax(x, axis=-1), {"x": (3, 16)})
    assert operators(run_pass(FuseSafeSoftmax(), module)) == ["nn.softmax"]
