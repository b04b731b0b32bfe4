"""ConvertLayout: a chain of convolutions runs in NHWC between two transposes."""

from __future__ import annotations

from typing import Any

import numpy as np
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.convert_layout import ConvertLayout
from pydoit.tvm_compat import relax


def chain(x: Any, first: Any, second: Any) -> Any:
    hidden = relax.op.nn.relu(relax.op.nn.conv2d(x, first, padding=1))
    pooled = relax.op.nn.max_pool2d(hidden, pool_size=(2, 2), strides=(2, 2))
    return relax.op.nn.conv2d(pooled, second)


def test_transposes_of_data_stand_at_the_ends_only() -> None:
    module = module_of(chain, {"x": (1, 3, 8, 8)}, {"first": (4, 3, 3, 3), "second": (6, 4, 1, 1)})
    converted = run_pass(ConvertLayout(), module)
    names = operators(converted)
    # one for each weight, one for the input, one for the output
    assert names.count("permute_dims") == 4
    assert [name for name in names if name.startswith("nn.")] == ["nn.conv2d", "nn.relu", "nn.max_pool2d", "nn.conv2d"]
    values = random(1, 3, 8, 8), random(4, 3, 3, 3, seed=1), random(6, 4, 1, 1, seed=2)
    np.testing.assert_allclose(evaluate(converted, *values), evaluate(module, *values), rtol=1e-5, atol=1e-5)


def test_a_module_without_convolutions_is_the_same() -> None:
    module = module_of(lambda x: relax.op.nn.relu(x), {"x": (2, 3)})
    assert run_pass(ConvertLayout(), module).functions.items() == module.functions.items()
