"""Operators whose result is random: refused by name, because a compiled model could not be compared with anything."""

from __future__ import annotations

RANDOM = frozenset({
    "bernoulli.default", "bernoulli.p", "exponential.default", "geometric.default", "log_normal.default", "multinomial.default",
    "native_dropout.default", "normal.Tensor_Tensor", "normal.Tensor_float", "normal.float_Tensor", "normal.float_float",
    "normal_functional.default", "poisson.default", "rand.default", "rand_like.default", "randint.default", "randint.low",
    "randint_like.default", "randint_like.low_dtype", "randn.default", "randn_like.default", "randperm.default",
    "uniform.default",
})  # fmt: skip
"""ATen operators that draw random numbers."""
