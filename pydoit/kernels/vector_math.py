"""Elementary functions as arithmetic that vectorizes: LLVM would call the scalar C library once for each lane."""

from __future__ import annotations

import math
from typing import Any

from pydoit.tvm_compat import tirx

_LOG2E = 1.4426950408889634
_LN2_HIGH = 0.693359375
_LN2_LOW = -2.12194440e-4
_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
_EXP_LOWEST, _EXP_HIGHEST = -87.3365447504019, 88.7228317
_TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
_ERF_NUMERATOR = (
    -2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05,
    -7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02,
)  # fmt: skip
_ERF_DENOMINATOR = (
    -1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03,
    -1.42647390514189e-02,
)  # fmt: skip


def exp(value: Any) -> Any:
    """e^value in float32 within some units in the last place; denormal results are 0, NaN and inf go through.

    Source: Cephes `expf` (S. Moshier): 2^n from the exponent bits times a polynomial of the remainder.
    """
    bounded = _clamp(value, _EXP_LOWEST, _EXP_HIGHEST)
    power = tirx.min(tirx.floor(bounded * _float(_LOG2E) + _float(0.5)), _float(127.0))
    rest = bounded - power * _float(_LN2_HIGH) - power * _float(_LN2_LOW)
    series = _polynomial(rest, _EXP)
    result = series * (rest * rest) + rest + _float(1.0)
    lanes = _lanes(value)
    bits = (tirx.Cast(_vector("int32", lanes), power) + _splat(tirx.const(127, "int32"), lanes)) << _splat(
        tirx.const(23, "int32"), lanes
    )
    scaled = result * tirx.reinterpret(_vector("float32", lanes), bits)
    finite = _select(value < _float(_EXP_LOWEST), _float(0.0), scaled)
    return _select(value > _float(_EXP_HIGHEST), tirx.infinity("float32"), finite)


def sigmoid(value: Any) -> Any:
    """1 / (1 + e^-value) in float32."""
    return _float(1.0) / (_float(1.0) + exp(_float(0.0) - value))


def tanh(value: Any) -> Any:
    """Hyperbolic tangent in float32, absolute error below 2e-7, relative error of some units in the last place.

    Source: Cephes `tanhf` (S. Moshier): an odd polynomial near 0, where the exponentials would cancel.
    """
    square = value * value
    small = value + value * square * _polynomial(square, _TANH)
    large = _float(1.0) - _float(2.0) / (exp(value * _float(2.0)) + _float(1.0))
    return _select(square < _float(0.625 * 0.625), small, large)


def erf(value: Any) -> Any:
    """Error function in float32, absolute error below 5e-7.

    Source: the rational approximation of Eigen (`generic_fast_erf_float`), odd over even powers up to |x| = 4.
    """
    bounded = _clamp(value, -4.0, 4.0)
    square = bounded * bounded
    return bounded * _polynomial(square, _ERF_NUMERATOR) / _polynomial(square, _ERF_DENOMINATOR)


def gelu(value: Any) -> Any:
    """value * Phi(value) in float32 by the error function."""
    return value * (_float(0.5) + _float(0.5) * erf(value * _float(math.sqrt(0.5))))


def gelu_tanh(value: Any) -> Any:
    """The tanh approximation of GELU in float32."""
    inner = _float(math.sqrt(2.0 / math.pi)) * value * (_float(1.0) + _float(0.044715) * value * value)
    return _float(0.5) * value * (_float(1.0) + tanh(inner))


def silu(value: Any) -> Any:
    """value * sigmoid(value) in float32."""
    return value * sigmoid(value)


def _clamp(value: Any, lowest: float, highest: float) -> Any:
    """Bound a value by comparisons that NaN fails, so that it stays NaN (minimum and maximum would drop it)."""
    below = _select(value > _float(highest), _float(highest), value)
    return _select(below < _float(lowest), _float(lowest), below)


def _polynomial(value: Any, coefficients: tuple[float, ...]) -> Any:
    """Evaluate by Horner's rule, the highest power's coefficient first."""
    result = _float(coefficients[0])
    for coefficient in coefficients[1:]:
        result = result * value + _float(coefficient)
    return result


def _select(condition: Any, then: Any, otherwise: Any) -> Any:
    """Choose lane by lane; a scalar stands for all lanes."""
    lanes = max(_lanes(then), _lanes(otherwise))
    return tirx.Select(condition, _splat(then, lanes), _splat(otherwise, lanes))


def _lanes(value: Any) -> int:
    kind = getattr(value, "ty", None)  # an element of a te tensor has none
    return 1 if kind is None else int(kind.dtype.lanes)


def _splat(value: Any, lanes: int) -> Any:
    return tirx.Broadcast(value, lanes) if lanes > 1 and _lanes(value) == 1 else value


def _vector(dtype: str, lanes: int) -> str:
    return f"{dtype}x{lanes}" if lanes > 1 else dtype


def _float(number: float) -> Any:
    return tirx.const(number, "float32")
