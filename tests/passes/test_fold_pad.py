"""FoldPad: zeros around an image become the convolution's padding, other pads stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from relax_modules import evaluate, module_of, operators, random, run_pass

from pydoit.passes.fold_pad import FoldPad
from pydoit.tvm_compat import relax


def padded_convolution(widths: list[int], value: float) -> Any:
    def build(x: Any, w: Any) -> Any:
        return relax.op.nn.conv2d(relax.op.nn.pad(x, widths, pad_value=value), w, strides=2, padding=1)

    return module_of(build, {"x": (1, 3, 7, 8)}, {"w": (4, 3, 3, 3)})


def test_uneven_zeros_are_folded() -> None:
    module = padded_convolution([0, 0, 0, 0, 0, 1, 2, 0], 0.0)
    folded = run_pass(FoldPad(), module)
    assert operators(folded) == ["nn.conv2d"]
    values = random(1, 3, 7, 8), random(4, 3, 3, 3, seed=1)
    np.testing.assert_allclose(evaluate(folded, *values), evaluate(module, *values), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("widths", "value"), [([0, 0, 0, 0, 1, 1, 1, 1], 1.0), ([1, 0, 0, 0, 0, 0, 0, 0], 0.0)])
def test_other_values_and_other_axes_stay(widths: list[int], value: float) -> None:
    assert operators(run_pass(FoldPad(), padded_convolution(widths, value))) == ["nn.pad", "nn.conv2d"]
