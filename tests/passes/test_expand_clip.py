"""ExpandClip: constant bounds become minimum and maximum."""

from __future__ import annotations

import numpy as np
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.expand_clip import ExpandClip
from pydoit.tvm_compat import relax


def test_relu6() -> None:
    module = module_of(lambda x: relax.op.clip(x, 0.0, 1.5), {"x": (3, 5)})
    expanded = run_pass(ExpandClip(), module)
    assert operators(expanded) == ["minimum", "maximum"]
    values = random(3, 5)
    np.testing.assert_array_equal(evaluate(expanded, values), np.clip(values, 0.0, 1.5))
