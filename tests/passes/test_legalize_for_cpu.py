"""LegalizeForCpu: own expressions agree with TVM's, along the axes and sizes that they do not suit too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.legalize_for_cpu import LegalizeForCpu
from pydoit.tvm_compat import relax

CASES: dict[str, Callable[[Any], Any]] = {
    "softmax": lambda x: relax.op.nn.softmax(x, axis=-1),
    "softmax-other-axis": lambda x: relax.op.nn.softmax(x, axis=0),
    "gelu": relax.op.nn.gelu,
    "gelu-tanh": relax.op.nn.gelu_tanh,
    "silu": relax.op.nn.silu,
    "sigmoid": relax.op.sigmoid,
    "tanh": relax.op.tanh,
    "erf": relax.op.erf,
    "exp": relax.op.exp,
}


@pytest.mark.parametrize("columns", [32, 7])
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_tvm(name: str, columns: int) -> None:
    module = module_of(CASES[name], {"x": (3, columns)})
    lowered = run_pass(LegalizeForCpu(), module)
    assert operators(lowered) == ["call_tir"]
    values = random(3, columns)
    np.testing.assert_allclose(evaluate(lowered, values), evaluate(module, values), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("columns", [32, 7])
def test_layer_norm(columns: int) -> None:
    def build(x: Any, gamma: Any, beta: Any) -> Any:
        return relax.op.nn.layer_norm(x, gamma, beta, axes=[-1], epsilon=1e-5)

    module = module_of(build, {"x": (5, columns)}, {"gamma": (columns,), "beta": (columns,)})
    values = random(5, columns), random(columns, seed=1), random(columns, seed=2)
    lowered = run_pass(LegalizeForCpu(), module)
    np.testing.assert_allclose(evaluate(lowered, *values), evaluate(module, *values), rtol=1e-5, atol=1e-5)
